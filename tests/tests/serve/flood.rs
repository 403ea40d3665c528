//! Many clients at once, silent connections, and strangers that send garbage meanwhile.
//!
//! `cargo xtask flood` runs it with the numbers of [`FULL`]; every run has those of [`SMALL`].

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use dsync_tests::{
    needs_dsync,
    run::{until_met, wait_for},
    scratch::slash,
    tree::noise,
};

use crate::nas::{Nas, children};

/// The numbers of a test.
struct Size {
    /// Clients that push at once.
    clients: usize,
    /// Connections that send nothing.
    silent: usize,
    /// Handshakes that fail, while the clients push.
    bad: usize,
    /// Rounds of all that.
    rounds: usize,
}

const SMALL: Size = Size { clients: 24, silent: 300, bad: 300, rounds: 2 };
const FULL: Size = Size { clients: 200, silent: 500, bad: 5000, rounds: 4 };

fn size() -> Size {
    if std::env::var_os("DSYNC_FLOOD").is_some_and(|word| word == "full") { FULL } else { SMALL }
}

/// Returns a value of the server's memory, in bytes.
fn memory(process: u32, label: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(label)).unwrap();
    line.trim_matches([':', '\t', ' ', 'k', 'B']).parse::<u64>().unwrap() * 1024
}

fn descriptors(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

fn connect(nas: &Nas) -> TcpStream {
    TcpStream::connect(("127.0.0.1", nas.port())).unwrap()
}

/// Returns the bytes that so many silent connections cost the server, which starts no process for
/// any of them, and gives each up.
fn cost_of_silence(nas: &Nas, count: usize) -> u64 {
    let server = nas.server.as_ref().unwrap().process.id();
    // A client ends a moment before its session does.
    wait_for(|| children(server).is_empty());
    let (descriptors_before, before) = (descriptors(server), memory(server, "VmRSS"));
    let cost = until_met(|| {
        let silent: Vec<_> = (0..count).map(|_| connect(nas)).collect();
        let is_open = |tcp: &TcpStream| {
            tcp.set_nonblocking(true).unwrap();
            tcp.peek(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
        };
        // A machine that takes as long to accept them all as the server waits for each tries again.
        wait_for(|| descriptors(server) >= descriptors_before + count || !is_open(&silent[0]));
        assert_eq!(children(server), [0; 0]);
        let cost = memory(server, "VmRSS").saturating_sub(before);
        is_open(&silent[0]).then_some(cost)
    });
    wait_for(|| descriptors(server) <= descriptors_before);
    cost
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

/// Makes clients push at once while strangers fail; returns when both are done.
fn round(nas: &Nas, size: &Size, number: usize) {
    let failed = AtomicUsize::new(0);
    // Each has begun what it will never end, and is closed by the server in time.
    let half: Vec<_> = (0..8)
        .map(|_| {
            let mut tcp = connect(nas);
            tcp.write_all(&[22, 3, 1]).unwrap();
            tcp
        })
        .collect();
    let silent: Vec<_> = (0..size.silent / 4).map(|_| connect(nas)).collect();

    thread::scope(|scope| {
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
        let runs: Vec<_> = (0..size.clients)
            .map(|client| {
                let tree = nas.operand(&format!("round{number}/client{client}"));
                nas.run().arg("-a").arg("--mkpath").arg(slash(&nas.scratch.src())).arg(tree).start()
            })
            .collect();
        for run in runs {
            let _ = run.wait().expect_quiet_success();
        }
    });

    drop((half, silent));
    for client in 0..size.clients {
        let tree = nas.place().join(format!("round{number}/client{client}"));
        assert_eq!(fs::read(tree.join("big")).unwrap(), noise(7, BIG), "client {client}");
        assert_eq!(fs::read(tree.join("small")).unwrap(), b"small", "client {client}");
    }
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

    let mut sizes = Vec::new();
    for number in 0..size.rounds {
        round(&nas, &size, number);
        wait_for(|| children(server).is_empty());
        sizes.push(memory(server, "VmRSS"));
        println!(
            "round {number}: {} clients, {} failed handshakes; the server's memory is {} bytes",
            size.clients,
            size.bad,
            sizes.last().unwrap()
        );
    }
    // The first round makes what the allocator keeps.
    let grown = sizes.last().unwrap().saturating_sub(sizes[0]);
    assert!(grown <= GROWTH, "{grown} bytes more than after the first round: {sizes:?}");
    let listed = nas.run().arg(format!("dsync://127.0.0.1:{}", nas.port())).run().expect_code(0);
    assert_eq!(listed.stdout_text(), "nas full\n");
}

/// Strangers at once.
const STRANGERS: usize = 24;
/// Bytes of a client's larger file.
const BIG: usize = 1 << 20;
/// Bytes that the server's memory may grow by after its first round.
const GROWTH: u64 = 2 << 20;
