//! QUIC on the port of a server: lanes move to it, strangers who know how it begins change nothing, and where
//! UDP does not get through the run goes on.

use std::{
    fs,
    net::{TcpListener, TcpStream, UdpSocket},
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use dsync_tests::{
    Lab, Outcome, Scope, assert_same,
    lab::{Conditions, Path as LabPath},
    needs_dsync, needs_lab, needs_namespace, program,
    run::{Running, until_met, wait_for},
    scratch::slash,
    tree::noise,
};

use crate::{
    connections::{PREFACE, connections, ended},
    nas::{Nas, Server},
};

/// Bytes of a file that is under way for a second at [`SLOW`]: enough for a connection to be made.
const BIG: usize = 6 << 20;
/// Bytes of a packet on a path of Ethernet.
const PACKET: usize = 1500;
const SLOW: &str = "--bwlimit=6M";
const QUIC: &str = "--transport=quic";
const MOVED: &str = "then quic: asked for";

/// Makes a server whose port has both halves.
fn standing() -> Nas {
    until_met(|| {
        let nas = Nas::standing("full");
        fs::write(nas.scratch.src().join("big"), noise(3, BIG)).unwrap();
        // Another test may have the number for UDP.
        (!nas.log().contains("no QUIC on")).then_some(nas)
    })
}

/// Pushes until lanes have moved to QUIC; checks the tree.
fn push_by_quic(nas: &Nas, push: impl Fn() -> Outcome) -> Outcome {
    until_met(|| {
        let _ = fs::remove_file(nas.there("big"));
        let before = ended(nas);
        let pushed = push().expect_code(0);
        assert_same(&nas.scratch.src(), &nas.tree(), Scope::CONTENT);
        let is_met = connections(nas, before) == 2 && pushed.all_text().contains(MOVED);
        is_met.then_some(pushed)
    })
}

#[test]
fn lanes_of_a_run_that_asks_for_quic_move_to_it_in_either_direction() {
    needs_dsync!();
    let nas = standing();
    let _ = push_by_quic(&nas, || nas.push(&["-v", QUIC, SLOW]));
    until_met(|| {
        let _ = fs::remove_dir_all(nas.scratch.at("got"));
        let before = ended(&nas);
        let pulled = nas.pull(&["-v", QUIC, SLOW]).expect_code(0);
        assert_same(&nas.scratch.src(), &nas.scratch.at("got"), Scope::CONTENT);
        (connections(&nas, before) == 2 && pulled.all_text().contains(MOVED)).then_some(())
    });

    // Who does not ask for it has TLS on a path as short as this one.
    for options in [&["-v", SLOW][..], &["-v", "--transport=tls", SLOW]] {
        let _ = fs::remove_file(nas.there("big"));
        let before = ended(&nas);
        let pushed = nas.push(options).expect_code(0);
        assert_ne!(connections(&nas, before), 2);
        assert!(pushed.all_text().contains("over tls") && !pushed.all_text().contains("quic"));
    }
    // A short run has no use for it.
    fs::write(nas.scratch.src().join("small"), "x").unwrap();
    let before = ended(&nas);
    let _ = nas.push(&[QUIC]).expect_quiet_success();
    assert_eq!(connections(&nas, before), 1);
}

/// A caged session may not ask the kernel whether it joins packets, and its buffers held one: of each burst the
/// first arrived.
#[test]
fn packets_that_the_kernel_joins_arrive_whole() {
    needs_dsync!();
    let (nas, log) = traced("trace=recvmmsg");
    let _ = push_by_quic(&nas, || nas.push(&["-v", QUIC, SLOW]));

    let calls = fs::read_to_string(&log).unwrap();
    let received = calls.lines().filter(|line| line.contains("recvmmsg") && line.contains("SOL_UDP"));
    assert!(received.count() > 0, "the kernel has joined nothing");
    assert_eq!(calls.matches("MSG_TRUNC").count(), 0, "packets were cut off");
}

/// Nor may it ask whether the kernel splits what is sent at once; then each packet cost a call.
#[test]
fn a_session_sends_many_packets_at_once() {
    needs_dsync!();
    let (nas, log) = traced("trace=sendmsg");
    let _ = push_by_quic(&nas, || nas.push(&["-v", QUIC, SLOW]));
    until_met(|| {
        let _ = fs::remove_dir_all(nas.scratch.at("got"));
        let pulled = nas.pull(&["-v", QUIC, SLOW]).expect_code(0);
        assert_same(&nas.scratch.src(), &nas.scratch.at("got"), Scope::CONTENT);
        pulled.all_text().contains(MOVED).then_some(())
    });

    let calls = fs::read_to_string(&log).unwrap();
    let most = calls
        .lines()
        .filter(|line| line.contains("sendmsg") && line.contains("SOL_UDP"))
        .filter_map(|line| line.rsplit_once(" = ")?.1.parse::<usize>().ok())
        .max();
    assert!(most.is_some_and(|bytes| bytes > 4 * PACKET), "at most {most:?} bytes were sent at once");
}

/// Starts a server whose calls of a kind are written to a file.
fn traced(kind: &str) -> (Nas, PathBuf) {
    let (mut nas, key) = Nas::offering("full");
    let log = nas.scratch.at("calls");
    let mut server = Command::new("strace");
    // `-D`: the server is what is started, and strace runs beside it.
    server.args(["-D", "-f", "-qq", "-s", "1", "-e", kind, "-e", "abbrev=none", "-o"]);
    server.arg(&log).arg(program()).args(["serve", "--config"]).arg(nas.scratch.at("serve.toml"));
    nas.stand_by(server);
    nas.know(&key);
    fs::write(nas.scratch.src().join("big"), noise(3, BIG)).unwrap();
    (nas, log)
}

#[test]
fn a_server_that_is_to_have_no_udp_opens_none() {
    needs_dsync!();
    let (mut nas, key) = Nas::offering("full");
    nas.limit_server("quic = false");
    nas.stand();
    nas.know(&key);
    // The number is free for UDP, unless another test has it.
    until_met(|| UdpSocket::bind(("127.0.0.1", nas.port())).ok());
    fs::write(nas.scratch.src().join("big"), noise(3, BIG)).unwrap();
    let before = ended(&nas);
    let pushed = nas.push(&["-v", QUIC, SLOW]).expect_code(0);
    assert_same(&nas.scratch.src(), &nas.tree(), Scope::CONTENT);
    assert!(!pushed.all_text().contains("then quic"));
    assert_ne!(connections(&nas, before), 2);
}

#[test]
fn the_move_is_an_event_of_json() {
    needs_dsync!();
    let nas = standing();
    until_met(|| {
        let _ = fs::remove_file(nas.there("big"));
        let told = nas.push(&["--json", QUIC, SLOW]).expect_code(0).stdout_text();
        let finished = told.lines().rfind(|line| line.contains("\"moves\""))?;
        assert!(finished.contains(r#""moves":[{"to":"quic","why":"asked"}]"#), "{finished}");
        Some(())
    });
}

#[test]
fn where_udp_does_not_get_through_the_run_goes_on_over_tls() {
    needs_dsync!();
    let namespace = needs_namespace!();
    namespace.drop_udp();
    let (mut nas, key) = Nas::offering("full");
    nas.stand_by(nas.server_in(&namespace.enter()));
    nas.know(&key);
    assert!(!nas.log().contains("no QUIC on"), "{}", nas.log());
    fs::write(nas.scratch.src().join("big"), noise(3, BIG)).unwrap();

    let before = ended(&nas);
    let push = nas.run().within(&namespace).args(["-av", QUIC]).arg(slash(&nas.scratch.src()));
    let pushed = push.arg(nas.operand("tree")).run().expect_code(0);
    assert_same(&nas.scratch.src(), &nas.tree(), Scope::CONTENT);
    assert!(pushed.all_text().contains("over tls") && !pushed.all_text().contains("quic"));
    // Whether it is over before connections over TLS are made in its place depends on the machine.
    assert_ne!(connections(&nas, before), 2);

    // A run that lasts longer than the asking moves to connections over TLS.
    until_met(|| {
        let _ = fs::remove_file(nas.there("big"));
        let before = ended(&nas);
        let push = nas.run().within(&namespace).args(["-av", QUIC, "--bwlimit=1M"]);
        let pushed = push.arg(slash(&nas.scratch.src())).arg(nas.operand("tree")).run().expect_code(0);
        assert!(!pushed.all_text().contains("quic"));
        (connections(&nas, before) == 5).then_some(())
    });
}

/// Starts a server at the far end of a path, whose client is at the near one.
fn far_server(lab: &Lab) -> Nas {
    let (mut nas, key) = Nas::offering("full");
    let text = fs::read_to_string(nas.scratch.at("serve.toml")).unwrap();
    nas.configure(&text.replace("127.0.0.1:0", "10.77.0.2:8730"));
    let words = lab.far().enter();
    let mut server = nas.server_in(&words);
    let log = fs::File::create(nas.scratch.at("log")).unwrap();
    let process = server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    nas.server = Some(Server { process, port: 8730 });
    wait_for(|| nas.log().contains("dsync: listening on 10.77.0.2:8730"));
    fs::write(nas.config("home/dsync/known-hosts"), format!("10.77.0.2:8730 {key}\n")).unwrap();
    nas
}

/// Starts a push or a pull over the path.
fn cross(nas: &Nas, lab: &Lab, is_push: bool, options: &[&str]) -> Running {
    let run = nas.run().within(lab.near()).arg("-av").args(options);
    let there = "dsync://10.77.0.2:8730/nas/tree/";
    let run = if is_push {
        run.arg(slash(&nas.scratch.src())).arg(there)
    } else {
        run.arg(there).arg(slash(&nas.scratch.at("got")))
    };
    run.start()
}

#[test]
fn a_long_path_that_loses_packets_takes_quic_by_itself() {
    needs_dsync!();
    let conditions = Conditions { loss: 0.005, ..Conditions::of(100, Duration::from_millis(80)) };
    let lab = needs_lab!(LabPath::over(conditions));
    let nas = far_server(&lab);
    fs::write(nas.scratch.src().join("big"), noise(3, BIG)).unwrap();
    for (is_push, into) in [(true, nas.tree()), (false, nas.scratch.at("got"))] {
        until_met(|| {
            let _ = fs::remove_dir_all(&into);
            let before = ended(&nas);
            let crossed = cross(&nas, &lab, is_push, &[]).wait().expect_code(0);
            assert_same(&nas.scratch.src(), &into, Scope::CONTENT);
            let is_met = crossed.all_text().contains("then quic: the path is long");
            (is_met && connections(&nas, before) == 2).then_some(())
        });
    }
}

#[test]
fn a_shorter_path_that_loses_packets_moves_from_tls_to_quic() {
    needs_dsync!();
    let conditions = Conditions { loss: 0.02, ..Conditions::of(200, Duration::from_millis(17)) };
    let lab = needs_lab!(LabPath::over(conditions));
    let nas = far_server(&lab);
    fs::write(nas.scratch.src().join("big"), noise(3, 3 * BIG)).unwrap();
    for (is_push, into) in [(true, nas.tree()), (false, nas.scratch.at("got"))] {
        until_met(|| {
            let _ = fs::remove_dir_all(&into);
            let before = ended(&nas);
            let crossed = cross(&nas, &lab, is_push, &[]).wait().expect_code(0);
            assert_same(&nas.scratch.src(), &into, Scope::CONTENT);
            // The first one, four over TLS, and one over QUIC.
            let is_met = crossed.all_text().contains("then quic: the path lost");
            (is_met && connections(&nas, before) == 6).then_some(())
        });
        // Who asks for TLS keeps it.
        let _ = fs::remove_dir_all(&into);
        let crossed = cross(&nas, &lab, is_push, &["--transport=tls"]).wait().expect_code(0);
        assert_same(&nas.scratch.src(), &into, Scope::CONTENT);
        assert!(!crossed.all_text().contains("quic"));
    }
}

/// A path between a client and a server that somebody reads.
struct Path {
    /// The first datagram of each run.
    prefaces: Mutex<Vec<Vec<u8>>>,
    port: u16,
}

impl Path {
    /// Carries TCP and UDP to a port.
    fn start(to: u16) -> Arc<Self> {
        let (listener, udp) = until_met(|| {
            let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            let udp = UdpSocket::bind(listener.local_addr().unwrap()).ok()?;
            Some((listener, udp))
        });
        let port = listener.local_addr().unwrap().port();
        let path = Arc::new(Self { prefaces: Mutex::default(), port });
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = TcpStream::connect(("127.0.0.1", to)).unwrap();
                for (from, into) in [(&client, &server), (&server, &client)] {
                    let (mut from, mut into) = (from.try_clone().unwrap(), into.try_clone().unwrap());
                    thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut into);
                        let _ = into.shutdown(std::net::Shutdown::Write);
                    });
                }
            }
        });
        let reading = Arc::clone(&path);
        thread::spawn(move || reading.carry(&udp, to));
        path
    }

    /// Carries datagrams of one client after another.
    fn carry(&self, near: &UdpSocket, to: u16) {
        let mut far: Option<(std::net::SocketAddr, UdpSocket)> = None;
        let mut datagram = vec![0; 65_536];
        loop {
            let Ok((count, client)) = near.recv_from(&mut datagram) else { return };
            if far.as_ref().is_none_or(|(known, _)| *known != client) {
                self.prefaces.lock().unwrap().push(datagram[..count].to_vec());
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                socket.connect(("127.0.0.1", to)).unwrap();
                let (back, own) = (near.try_clone().unwrap(), socket.try_clone().unwrap());
                thread::spawn(move || {
                    let mut datagram = vec![0; 65_536];
                    while let Ok(count) = own.recv(&mut datagram) {
                        let _ = back.send_to(&datagram[..count], client);
                    }
                });
                far = Some((client, socket));
            }
            if let Some((_, socket)) = &far {
                let _ = socket.send(&datagram[..count]);
            }
        }
    }
}

/// Returns the datagrams that have arrived.
fn heard(socket: &UdpSocket) -> Vec<Vec<u8>> {
    socket.set_nonblocking(true).unwrap();
    let mut datagram = [0; 2048];
    std::iter::from_fn(|| socket.recv(&mut datagram).ok().map(|count| datagram[..count].to_vec())).collect()
}

#[test]
fn datagrams_of_strangers_change_nothing_and_the_servers_parent_answers_none() {
    needs_dsync!();
    let (mut nas, key) = Nas::offering("full");
    until_met(|| {
        nas.server = None;
        nas.stand();
        (!nas.log().contains("no QUIC on")).then_some(())
    });
    let path = Path::start(nas.port());
    fs::write(nas.config("home/dsync/known-hosts"), format!("127.0.0.1:{} {key}\n", path.port)).unwrap();
    fs::write(nas.scratch.src().join("big"), noise(3, BIG)).unwrap();
    let stranger = || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(("127.0.0.1", nas.port())).unwrap();
        socket
    };
    // Numbers of nobody, parts, more than a preface, and what QUIC begins with.
    let mut nobodys = b"\x89dsync+\n".to_vec();
    nobodys.extend([7; 16]);
    let garbage = [
        &nobodys[..],
        &nobodys[..20],
        b"",
        &[0xc3; 1200],
        b"\x89dsync!\n",
        &[nobodys.clone(), vec![0]].concat(),
    ];
    let (loud, replaying) = (stranger(), stranger());

    until_met(|| {
        let _ = fs::remove_file(nas.there("big"));
        let (before, seen) = (ended(&nas), path.prefaces.lock().unwrap().len());
        let push = nas.run().args(["-av", QUIC, SLOW]).arg(slash(&nas.scratch.src()));
        let push = push.arg(format!("dsync://127.0.0.1:{}/nas/tree", path.port)).start();
        let since = Instant::now();
        while path.prefaces.lock().unwrap().len() == seen && since.elapsed() < Duration::from_secs(100) {
            garbage.iter().for_each(|datagram| drop(loud.send(datagram)));
            thread::sleep(Duration::from_millis(1));
        }
        // Whoever reads the number has no key and no secret.
        let preface = path.prefaces.lock().unwrap().last().cloned()?;
        assert_eq!(preface.len(), PREFACE);
        replaying.send(&preface).unwrap();
        for _ in 0..5000 {
            garbage.iter().for_each(|datagram| drop(loud.send(datagram)));
        }
        replaying.send(&[0xc3; 1200]).unwrap();

        let pushed = push.wait().expect_code(0);
        assert_same(&nas.scratch.src(), &nas.tree(), Scope::CONTENT);
        let is_met = connections(&nas, before) == 2 && pushed.all_text().contains(MOVED);
        is_met.then_some(())
    });
    assert_eq!(heard(&loud), Vec::<Vec<u8>>::new());
    // The session that was named answers with less than it was sent.
    assert!(heard(&replaying).iter().all(|answer| answer.len() < PREFACE));
    wait_for(|| nas.log().contains(" code=0"));
    assert!(!nas.log().contains("refused"), "{}", nas.log());
}
