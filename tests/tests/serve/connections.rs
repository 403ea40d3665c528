//! Further connections of a session: a long run's lanes move to them, a short one has none, strangers who
//! know how they begin get nothing, and where they do not get through the run goes on.

use std::{
    fs,
    io::{ErrorKind, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use dsync_tests::{
    Namespace, Scope, assert_same, needs_dsync, needs_namespace,
    run::{Running, catch, is_alive, send, until_met, wait_for},
    scratch::slash,
    tree::noise,
};
use rustix::process::Signal;

use crate::nas::{Nas, children};

/// Bytes of a file that is under way for seconds at [`SLOW`]: enough for connections to be made.
const BIG: usize = 24 << 20;
const SLOW: &str = "--bwlimit=12M";
/// Bytes that a connection has sent which has a lane.
const MUCH: u64 = 512 << 10;
/// The first bytes of a further connection, and their length with a number.
const MAGIC: &[u8; 8] = b"\x89dsync+\n";
pub(crate) const PREFACE: usize = 24;

/// Returns the connections of the last session that has ended, once there are more sessions than before.
pub(crate) fn connections(nas: &Nas, before: usize) -> u64 {
    wait_for(|| ended(nas) > before);
    let log = nas.log();
    let line = log.lines().rfind(|line| line.contains(" code=")).unwrap();
    let words = line.split_whitespace();
    words.filter_map(|word| word.strip_prefix("connections=")).next().unwrap().parse().unwrap()
}

pub(crate) fn ended(nas: &Nas) -> usize {
    nas.log().lines().filter(|line| line.contains("dsync: session ") && line.contains(" code=")).count()
}

#[test]
fn a_long_run_has_connections_of_its_own_in_either_direction_and_a_short_one_has_none() {
    needs_dsync!();
    let nas = Nas::standing("full");
    fs::write(nas.scratch.src().join("big"), noise(3, BIG)).unwrap();
    fs::write(nas.scratch.src().join("small"), "x").unwrap();
    // On a busy machine a run may be over before they are made.
    until_met(|| {
        let _ = fs::remove_file(nas.there("big"));
        let before = ended(&nas);
        let _ = nas.push(&[SLOW]).expect_quiet_success();
        assert_same(&nas.scratch.src(), &nas.tree(), Scope::CONTENT);
        (connections(&nas, before) == 5).then_some(())
    });
    until_met(|| {
        let _ = fs::remove_dir_all(nas.scratch.at("got"));
        let before = ended(&nas);
        let _ = nas.pull(&[SLOW]).expect_quiet_success();
        assert_same(&nas.scratch.src(), &nas.scratch.at("got"), Scope::CONTENT);
        (connections(&nas, before) == 5).then_some(())
    });

    fs::write(nas.scratch.src().join("small"), "longer").unwrap();
    let before = ended(&nas);
    let _ = nas.push(&[]).expect_quiet_success();
    assert_eq!(connections(&nas, before), 1);
}

/// The path between a client and a server.
#[derive(Default)]
struct Relay {
    /// Prefaces of further connections.
    seen: Mutex<Vec<[u8; PREFACE]>>,
    /// The words of the clients on connections that are no further ones.
    said: Mutex<Vec<u8>>,
}

impl Relay {
    /// Carries connections to a port, further ones only if `lets_further`. Returns its own port.
    fn start(port: u16, lets_further: bool) -> (Arc<Self>, u16) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let own = listener.local_addr().unwrap().port();
        let relay = Arc::new(Self::default());
        let seeing = Arc::clone(&relay);
        thread::spawn(move || {
            for client in listener.incoming() {
                let relay = Arc::clone(&seeing);
                thread::spawn(move || relay.carry(client.unwrap(), port, lets_further));
            }
        });
        (relay, own)
    }

    fn carry(&self, mut client: TcpStream, port: u16, lets_further: bool) {
        let mut head = vec![0; 1];
        if client.read_exact(&mut head).is_err() {
            return;
        }
        if head[0] == MAGIC[0] {
            let mut preface = [0; PREFACE];
            preface[0] = head[0];
            client.read_exact(&mut preface[1..]).unwrap();
            self.seen.lock().unwrap().push(preface);
            if !lets_further {
                return;
            }
            head = preface.to_vec();
        }
        let is_first = head.len() == 1;
        let mut server = TcpStream::connect(("127.0.0.1", port)).unwrap();
        server.write_all(&head).unwrap();
        let (mut back, mut there) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || {
            let _ = std::io::copy(&mut back, &mut there);
            let _ = there.shutdown(Shutdown::Both);
        });
        if is_first {
            self.said.lock().unwrap().extend(&head);
        }
        let mut piece = [0; 1 << 16];
        while let Ok(read @ 1..) = client.read(&mut piece) {
            if is_first {
                self.said.lock().unwrap().extend(&piece[..read]);
            }
            if server.write_all(&piece[..read]).is_err() {
                break;
            }
        }
        let _ = server.shutdown(Shutdown::Both);
    }

    fn prefaces(&self) -> Vec<[u8; PREFACE]> {
        self.seen.lock().unwrap().clone()
    }
}

/// Makes a server whose client reaches it by a relay, and the relay's port.
fn relayed(lets_further: bool) -> (Nas, Arc<Relay>, u16) {
    let (mut nas, key) = Nas::offering("full");
    nas.stand();
    let (relay, port) = Relay::start(nas.port(), lets_further);
    let known = format!("127.0.0.1:{port} {key}\n127.0.0.1:{} {key}\n", nas.port());
    fs::write(nas.config("home/dsync/known-hosts"), known).unwrap();
    fs::write(nas.scratch.src().join("big"), noise(3, BIG)).unwrap();
    (nas, relay, port)
}

/// Starts a push through a relay.
fn push_by(nas: &Nas, port: u16, options: &[&str]) -> Running {
    let push = nas.run().arg("-a").args(options).arg(slash(&nas.scratch.src()));
    push.arg(format!("dsync://127.0.0.1:{port}/nas/tree")).start()
}

#[test]
fn where_further_connections_do_not_get_through_the_run_goes_on() {
    needs_dsync!();
    let (nas, relay, port) = relayed(false);
    let before = ended(&nas);
    let _ = push_by(&nas, port, &[]).wait().expect_quiet_success();
    assert_same(&nas.scratch.src(), &nas.tree(), Scope::CONTENT);
    assert_eq!(connections(&nas, before), 1);
    // They were tried, where the first one had gone.
    wait_for(|| relay.prefaces().len() == 4);
}

/// Starts a server in the namespace.
fn within(namespace: &Namespace) -> Nas {
    let (mut nas, key) = Nas::offering("full");
    nas.stand_by(nas.server_in(&namespace.enter()));
    nas.know(&key);
    nas
}

#[test]
fn a_run_goes_on_by_new_connections_where_a_path_forgets_one_of_them() {
    needs_dsync!();
    let namespace = needs_namespace!();
    let nas = within(&namespace);
    fs::write(nas.there("big"), noise(3, BIG)).unwrap();
    let of_clients = || {
        let all = namespace.connections().into_iter();
        all.filter(|(ports, _)| ports[0] == nas.port()).map(|(ports, sent)| (ports[1], sent))
    };
    // On a busy machine a run may have ended before its connection is forgotten.
    until_met(|| {
        let _ = fs::remove_dir_all(nas.scratch.at("got"));
        let pull =
            nas.run().within(&namespace).args(["-av", "--timeout=5", "--bwlimit=2M", "--transport=tls"]);
        let mut pull = pull.arg(nas.operand("tree/")).arg(slash(&nas.scratch.at("got"))).start();
        let mut first = None;
        wait_for(|| {
            first = of_clients().next();
            first.is_some() || !pull.is_running()
        });
        let first = first.map(|(client, _)| client);
        let mut busy = None;
        wait_for(|| {
            busy = of_clients().find(|(client, sent)| Some(*client) != first && *sent > MUCH);
            busy.is_some() || !pull.is_running()
        });
        if let Some((client, _)) = busy {
            namespace.drop_connection(client);
        }
        let pulled = pull.wait().expect_code(0);
        assert_same(&nas.tree(), &nas.scratch.at("got"), Scope::CONTENT);
        // The old session notices it too.
        wait_for(|| children(nas.server.as_ref().unwrap().process.id()).is_empty());
        pulled.stdout_text().contains("The connection was lost once").then_some(())
    });
}

/// Returns whether the server closes a connection that says this.
fn is_closed(nas: &Nas, words: &[u8]) -> bool {
    let mut stranger = TcpStream::connect(("127.0.0.1", nas.port())).unwrap();
    stranger.write_all(words).unwrap();
    stranger.set_read_timeout(Some(Duration::from_secs(100))).unwrap();
    match stranger.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        // A server that closes what it has not read resets the connection.
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn strangers_who_know_how_a_further_connection_begins_get_nothing() {
    needs_dsync!();
    let (nas, relay, port) = relayed(true);
    let push = push_by(&nas, port, &["--bwlimit=4M", "--timeout=36000"]);
    wait_for(|| relay.prefaces().len() == 4);
    // It stays in the middle, however long the strangers take.
    push.signal(Signal::STOP);
    let sessions = nas.sessions(&push);
    let preface = relay.prefaces()[0];
    let unknown = [&MAGIC[..], &[7; 16]].concat();
    let no_session = || nas.log().matches("a connection of no session that is here").count();

    // No session, and one without a process for it.
    assert_eq!(no_session(), 0);
    assert!(is_closed(&nas, &unknown));
    wait_for(|| no_session() == 1);
    assert!(is_closed(&nas, &[&unknown[..], b"behind it"].concat()));
    // A flood is told of by its powers of two.
    for _ in 0..50 {
        assert!(is_closed(&nas, &unknown));
    }
    assert!(no_session() < 10, "{}", nas.log());

    // Another's session: whoever saw its number has neither its secret nor its client's key.
    for words in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0]] {
        let mut stranger = TcpStream::connect(("127.0.0.1", nas.port())).unwrap();
        stranger.write_all(&[&preface[..], words].concat()).unwrap();
        stranger.shutdown(Shutdown::Write).unwrap();
        // The session ends it, and goes on itself.
        let _ = stranger.read_to_end(&mut Vec::new());
        assert_eq!(nas.sessions(&push), sessions);
    }
    // Garbage behind the first byte is a stranger's like any other.
    assert!(is_closed(&nas, b"\x89dsync-no\r\n\r\n"));
    assert!(is_closed(&nas, b"\x89PNG\r\n\x1a\n"));

    // Half of one waits for the other half, and costs no process.
    let mut half = TcpStream::connect(("127.0.0.1", nas.port())).unwrap();
    half.write_all(&unknown[..10]).unwrap();
    let told = no_session();
    wait_for(|| children(nas.server.as_ref().unwrap().process.id()) == sessions);
    half.write_all(&unknown[10..]).unwrap();
    assert!(half.read_to_end(&mut Vec::new()).is_ok_and(|read| read == 0));
    assert!(no_session() >= told);

    push.signal(Signal::CONT);
    let _ = push.wait().expect_quiet_success();
    assert_same(&nas.scratch.src(), &nas.tree(), Scope::CONTENT);
}

#[test]
fn a_session_that_is_killed_with_its_connections_is_followed_by_another() {
    needs_dsync!();
    let (nas, relay, port) = relayed(true);
    until_met(|| {
        let _ = fs::remove_file(nas.there("big"));
        let before = relay.prefaces().len();
        let push = push_by(&nas, port, &["--bwlimit=4M", "--timeout=36000"]);
        wait_for(|| relay.prefaces().len() >= before + 4 || !is_alive(push.id()));
        let killed = nas.sessions(&push);
        let was_caught = catch(push.id(), || !nas.there("big").exists());
        for session in &killed {
            send(*session, Signal::KILL);
        }
        push.signal(Signal::CONT);
        let _ = push.wait().expect_code(0);
        assert_same(&nas.scratch.src(), &nas.tree(), Scope::CONTENT);
        (was_caught && nas.log().contains("was killed by signal 9")).then_some(())
    });
    // Another one made its own.
    assert!(relay.prefaces().len() >= 8);
    let numbers: std::collections::BTreeSet<_> = relay.prefaces().into_iter().collect();
    assert!(numbers.len() >= 2);
}

#[test]
fn a_recorded_run_that_is_said_again_is_refused_and_changes_nothing() {
    needs_dsync!();
    let (nas, relay, port) = relayed(true);
    fs::remove_file(nas.scratch.src().join("big")).unwrap();
    fs::write(nas.scratch.src().join("small"), "content").unwrap();
    let _ = push_by(&nas, port, &[]).wait().expect_quiet_success();
    let said = relay.said.lock().unwrap().clone();
    assert!(said.len() > 500, "{} bytes", said.len());

    // Whoever heard the run says the same words, all of them or the first flight alone.
    fs::remove_file(nas.there("small")).unwrap();
    let before = dsync_tests::survey(&nas.place());
    let refused = || nas.log().matches("dsync: refused peer=").count();
    for (time, words) in [&said[..], &said[..300.min(said.len())]].into_iter().enumerate() {
        assert!(is_closed(&nas, words));
        wait_for(|| refused() == time + 1);
    }
    assert_eq!(ended(&nas), 1, "{}", nas.log());
    dsync_tests::assert_unchanged(&before, &nas.place());
}
