//! Many clients at once, silent connections, sessions that idle, and strangers that send garbage meanwhile.
//!
//! `cargo xtask flood` runs it with the numbers of [`FULL`]; every run has those of [`SMALL`].

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use dsync_tests::{
    needs_dsync,
    run::{Running, until_met, wait_for},
    scratch::slash,
    tree::noise,
};
use rustix::{
    net::{AddressFamily, SocketType, bind, connect as join, socket},
    process::Signal,
};

use crate::{
    nas::{Nas, children},
    status::status,
};

/// The numbers of a test.
struct Size {
    /// Clients that push at once.
    clients: usize,
    /// Connections that send nothing, all the time.
    silent: usize,
    /// Sessions whose clients have proved a key and say nothing any more, all the time.
    idle: usize,
    /// Handshakes that fail, while the clients push.
    bad: usize,
    /// Rounds of all that.
    rounds: usize,
}

const SMALL: Size = Size { clients: 24, silent: 300, idle: 8, bad: 300, rounds: 2 };
const FULL: Size = Size { clients: 200, silent: 500, idle: 100, bad: 5000, rounds: 4 };

fn size() -> Size {
    if std::env::var_os("DSYNC_FLOOD").is_some_and(|word| word == "full") { FULL } else { SMALL }
}

/// Returns the bytes of a process's memory.
fn memory(process: u32) -> u64 {
    kib(&fs::read_to_string(format!("/proc/{process}/status")).unwrap(), "VmRSS:")
}

/// Returns the bytes that would be free without this process: what it shares with others counts in part.
fn share_of_memory(process: u32) -> u64 {
    kib(&fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap(), "Pss:")
}

/// Reads a value in KiB; returns bytes.
fn kib(text: &str, label: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(label)).unwrap();
    line.trim_matches(['\t', ' ', 'k', 'B']).parse::<u64>().unwrap() * 1024
}

fn descriptors(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

fn connect(nas: &Nas) -> TcpStream {
    TcpStream::connect(("127.0.0.1", nas.port())).unwrap()
}

/// Connects from another loopback address: those of one address are bounded.
fn connect_from(nas: &Nas, host: u8) -> TcpStream {
    let tcp = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&tcp, &SocketAddr::from((Ipv4Addr::new(127, 0, 1, host), 0))).unwrap();
    join(&tcp, &SocketAddr::from((Ipv4Addr::LOCALHOST, nas.port()))).unwrap();
    tcp.into()
}

/// Returns whether the server has not closed a connection that it never writes to.
fn is_open(tcp: &TcpStream) -> bool {
    tcp.set_nonblocking(true).unwrap();
    tcp.peek(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

/// Returns the bytes that so many silent connections cost the server, which starts no process for
/// any of them, and gives each up.
fn cost_of_silence(nas: &Nas, count: usize) -> u64 {
    let server = nas.server.as_ref().unwrap().process.id();
    // A client ends a moment before its session does.
    wait_for(|| children(server).is_empty());
    let (descriptors_before, before) = (descriptors(server), memory(server));
    let cost = until_met(|| {
        let silent: Vec<_> = (0..count).map(|_| connect(nas)).collect();
        // A machine that takes as long to accept them all as the server waits for each tries again.
        wait_for(|| descriptors(server) >= descriptors_before + count || !is_open(&silent[0]));
        assert_eq!(children(server), [0; 0]);
        let cost = memory(server).saturating_sub(before);
        is_open(&silent[0]).then_some(cost)
    });
    wait_for(|| descriptors(server) <= descriptors_before);
    cost
}

/// Keeps so many silent connections open, in place of each that the server has given up a new one, until
/// `is_over`. Tells how many of them were open at the last look.
fn keep_silent(nas: &Nas, count: usize, held: &AtomicUsize, is_over: &AtomicBool) {
    let mut silent: Vec<TcpStream> = Vec::new();
    while !is_over.load(Ordering::Acquire) {
        silent.retain(is_open);
        held.store(silent.len(), Ordering::Release);
        for host in (0..HOSTS).cycle().take(count - silent.len()) {
            silent.push(connect_from(nas, host));
        }
        thread::sleep(LOOK);
    }
}

/// Starts sessions whose clients prove a key, begin a push and are stopped: a few at a time, which is no
/// crowd.
fn idle_sessions(nas: &Nas, count: usize) -> Vec<Running> {
    let start = |client: usize| {
        let push = nas.run().args(["-a", "--mkpath", "--bwlimit=1", "--timeout=36000"]);
        let push = push.arg(slash(&nas.scratch.src())).arg(nas.operand(&format!("idle/client{client}")));
        push.start()
    };
    // A session is listed once its key is known, and has entries once its operands are.
    let has_begun = |session: &serde_json::Value| session["entries"].as_u64().is_some_and(|count| count > 0);
    let mut idle: Vec<Running> = Vec::new();
    while idle.len() < count {
        let batch: Vec<_> = (idle.len()..count).take(BATCH).map(start).collect();
        let wanted = idle.len() + batch.len();
        wait_for(|| {
            let sessions = status(nas)["sessions"].take();
            sessions.as_array().unwrap().iter().filter(|session| has_begun(session)).count() == wanted
        });
        batch.iter().for_each(|client| client.signal(Signal::STOP));
        idle.extend(batch);
    }
    idle
}

/// Fails a handshake, in one of several ways.
fn fail_a_handshake(nas: &Nas, number: usize) {
    let mut stranger = connect(nas);
    let garbage: &[u8] = match number % 4 {
        0 => b"GET / HTTP/1.1\r\nHost: nas\r\n\r\n",
        1 => &[0; 4000],
        // A handshake that announces more than it sends, and one that ends in its middle.
        2 => &[22, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xfb, 3, 3],
        _ => &[22, 3, 1, 0, 64, 1, 0, 0, 60],
    };
    // The server may have closed it before that.
    let _ = stranger.write_all(garbage);
    let _ = stranger.shutdown(Shutdown::Write);
    let _ = stranger.read_to_end(&mut Vec::new());
}

/// Makes clients push at once while strangers fail. Returns when both are done, and whether all silent
/// connections and idle sessions were seen at once with a push.
fn round(nas: &Nas, size: &Size, number: usize) -> bool {
    let (failed, held, is_over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    // Each has begun what it will never end, and is closed by the server in time.
    let half: Vec<_> = (0..8)
        .map(|_| {
            let mut tcp = connect(nas);
            tcp.write_all(&[22, 3, 1]).unwrap();
            tcp
        })
        .collect();

    let was_full = thread::scope(|scope| {
        scope.spawn(|| keep_silent(nas, size.silent, &held, &is_over));
        wait_for(|| held.load(Ordering::Acquire) == size.silent);
        for _ in 0..STRANGERS {
            scope.spawn(|| {
                loop {
                    let next = failed.fetch_add(1, Ordering::AcqRel);
                    if next >= size.bad {
                        return;
                    }
                    fail_a_handshake(nas, next);
                }
            });
        }
        let mut runs: Vec<_> = (0..size.clients)
            .map(|client| {
                let tree = nas.operand(&format!("round{number}/client{client}"));
                nas.run().arg("-a").arg("--mkpath").arg(slash(&nas.scratch.src())).arg(tree).start()
            })
            .collect();
        let mut was_full = false;
        while !was_full && runs.iter_mut().any(Running::is_running) {
            was_full = is_full(nas, size) && held.load(Ordering::Acquire) == size.silent;
        }
        for run in runs {
            let _ = run.wait().expect_quiet_success();
        }
        is_over.store(true, Ordering::Release);
        was_full
    });

    drop(half);
    for client in 0..size.clients {
        let tree = nas.place().join(format!("round{number}/client{client}"));
        assert_eq!(fs::read(tree.join("big")).unwrap(), noise(7, BIG), "client {client}");
        assert_eq!(fs::read(tree.join("small")).unwrap(), b"small", "client {client}");
    }
    was_full
}

/// Returns whether the server says that it has all silent connections, all idle sessions and a push.
fn is_full(nas: &Nas, size: &Size) -> bool {
    let now = status(nas);
    let strangers = now["strangers"].as_u64().unwrap();
    now["sessions"].as_array().unwrap().len() > size.idle && strangers >= size.silent as u64
}

/// Returns the sessions of so many idle clients, and the clients; holds what each costs to its bound.
fn measured_idle_sessions(nas: &Nas, count: usize) -> (Vec<u32>, Vec<Running>) {
    let server = nas.server.as_ref().unwrap().process.id();
    let before = memory(server);
    let idle = idle_sessions(nas, count);
    let sessions = sessions(nas);
    assert_eq!(sessions.len(), count);
    let of_server = memory(server).saturating_sub(before) / count as u64;
    let each = sessions.iter().map(|session| share_of_memory(*session)).sum::<u64>() / count as u64;
    println!("{count} idle sessions: {each} bytes for each, and {of_server} of the server's");
    assert!(each <= IDLE && of_server <= 64 << 10, "{each} and {of_server} bytes for an idle session");
    (sessions, idle)
}

/// Returns the processes of sessions in their order.
fn sessions(nas: &Nas) -> Vec<u32> {
    let mut sessions = children(nas.server.as_ref().unwrap().process.id());
    sessions.sort_unstable();
    sessions
}

#[test]
fn clients_are_served_in_a_flood_of_strangers_and_silence_costs_nothing() {
    needs_dsync!();
    let (nas, size) = (Nas::standing("full"), size());
    let server = nas.server.as_ref().unwrap().process.id();
    fs::write(nas.scratch.src().join("big"), noise(7, BIG)).unwrap();
    fs::write(nas.scratch.src().join("small"), "small").unwrap();
    let _ = nas.push(&[]).expect_quiet_success();

    let cost = cost_of_silence(&nas, size.silent);
    let each = cost / size.silent as u64;
    println!("{} silent connections: {cost} bytes, {each} for each", size.silent);
    assert!(each <= 64 << 10, "{each} bytes for a silent connection");
    let (idle_sessions, idle) = measured_idle_sessions(&nas, size.idle);

    let (mut sizes, mut was_full) = (Vec::new(), false);
    // The machine may do the pushes before anybody looks.
    until_met(|| {
        was_full |= round(&nas, &size, sizes.len());
        wait_for(|| children(server).len() == size.idle);
        sizes.push(memory(server));
        println!(
            "round {}: {} clients, {} failed handshakes; the server's memory is {} bytes",
            sizes.len(),
            size.clients,
            size.bad,
            sizes.last().unwrap()
        );
        (sizes.len() >= size.rounds && was_full).then_some(())
    });
    // The first round makes what the allocator keeps.
    let grown = sizes.last().unwrap().saturating_sub(sizes[0]);
    assert!(grown <= GROWTH, "{grown} bytes more than after the first round: {sizes:?}");

    // None of the idle ones was given up, and each ends with its client.
    assert_eq!(sessions(&nas), idle_sessions);
    for client in idle {
        client.signal(Signal::KILL);
        let _ = client.wait();
    }
    wait_for(|| children(server).is_empty());
    let listed = nas.run().arg(format!("dsync://127.0.0.1:{}", nas.port())).run().expect_code(0);
    assert_eq!(listed.stdout_text(), "nas full\n");
}

/// Addresses of silent connections, each of which the server bounds.
const HOSTS: u8 = 5;
/// Clients that start at once: fewer than strangers of an address make a crowd.
const BATCH: usize = 8;
/// Time between two looks at silent connections, each of which lasts 10 seconds.
const LOOK: Duration = Duration::from_millis(100);
/// Bytes that an idle session may cost.
const IDLE: u64 = 16 << 20;
/// Strangers at once.
const STRANGERS: usize = 24;
/// Bytes of a client's larger file.
const BIG: usize = 1 << 20;
/// Bytes that the server's memory may grow by after its first round.
const GROWTH: u64 = 2 << 20;
