//! One deadline for each phase of a run: a peer that goes no further in just that one, and shows
//! what signs of life it can.
//!
//! Each bound is set low by an option, or is the program's own; what is waited for is that the run
//! ends, and says why.

use std::{net::TcpListener, net::UdpSocket, thread, time::Duration};

use dsync_tests::{
    hostile::{
        Arena, Carrier, Message, Session,
        session::{COPY, Order, bootstrap, hello},
    },
    needs_dsync,
};

use super::{RELAY, many::breathe};

/// Exit code of a run that waited too long.
const TIMEOUT: i32 = 30;
/// Exit code of a carrier that could not be had.
const UNREACHABLE: i32 = 35;
/// The same of a remote shell from which nothing comes.
const CONTIMEOUT: &str = "--contimeout=1";
const STALL: &str = "--max-stall=2";

#[test]
fn a_remote_shell_that_says_nothing_ends_the_run() {
    needs_dsync!();
    let arena = Arena::new();
    let (client, pipe) = arena.pull(RELAY, &[CONTIMEOUT]);
    let outcome = client.wait();
    drop(pipe);
    assert!(outcome.code() == Some(TIMEOUT) || outcome.code() == Some(35), "{}", outcome.account());
    arena.assert_unharmed(&[]);
}

#[test]
fn a_port_that_says_nothing_ends_the_run() {
    needs_dsync!();
    // Both take what comes and answer nothing.
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    for (carrier, ports) in [
        (Carrier::Tls, [0, tcp.local_addr().unwrap().port()]),
        (Carrier::Quic, [udp.local_addr().unwrap().port(), 0]),
    ] {
        let arena = Arena::new();
        let (client, mut pipe) = arena.pull_over(carrier, RELAY, &[]);
        let ports = ports.map(u16::to_le_bytes).concat();
        let answer = [&[1, 0][..], &[0; 8], &[7; 32], &ports, &[0]].concat();
        pipe.writer.write_all(&bootstrap(2, &answer)).and_then(|()| pipe.writer.flush()).unwrap();
        let outcome = client.wait().expect_code(UNREACHABLE);
        drop(pipe);
        println!("{}: {}", carrier.option(), outcome.stderr_text());
        arena.assert_unharmed(&[]);
    }
}

#[test]
fn an_opening_that_does_not_end_ends_the_run() {
    needs_dsync!();
    // The client's own limit is an hour; the server has one of its own.
    for begun in [false, true] {
        let arena = Arena::new();
        let (mut server, pipe) = arena.server_with(&[STALL]);
        let session = Session::greet(pipe);
        if begun {
            session.control(&hello(1));
        }
        while !session.lanes.is_over() {
            session.breathe();
            thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(server.wait(), TIMEOUT);
        arena.assert_unharmed(&[]);
    }
}

/// Plays a source that has nothing to copy, up to the destination's report.
fn lists_nothing(session: &Session) {
    session.tops();
    session.control(&Message::new(7).int(0).byte(3).raw(&[0, 0]).frame());
    session.control(&Message::new(8).int(1).int(0).frame());
}

#[test]
fn a_destination_that_does_not_end_ends_the_run() {
    needs_dsync!();
    let progress = Message::new(16).bytes(&[0; 7]).frame();
    // One that wants nothing more and does not report, and one that reports and does not hang up.
    for reports in [false, true] {
        let arena = Arena::new();
        let (mut server, pipe) = arena.server_with(&[STALL]);
        let session = Session::greet(pipe).start(Order::Source(&arena.tree()), COPY);
        while session.hear().0 != 8 {}
        session.control(&Message::new(14).frame());
        if reports {
            session.control(&Message::new(17).bytes(&[0; 30]).frame());
            while !session.lanes.is_over() {
                session.breathe();
                thread::sleep(Duration::from_millis(50));
            }
            // All is done but the farewell: that it is missing may be told, or not.
            let code = server.wait();
            assert!([0, TIMEOUT].contains(&code), "exit code {code}");
        } else {
            breathe(&session, &progress);
            assert_eq!(server.wait(), TIMEOUT);
        }
        arena.assert_unharmed(&[]);
    }
}

#[test]
fn a_source_that_does_not_end_ends_the_run() {
    needs_dsync!();
    let alive = Message::new(18).frame();
    // One that does not end its lanes, and so never hears the report; and one that does not say
    // goodbye.
    for ends_lanes in [false, true] {
        let arena = Arena::new();
        let (mut server, pipe) = arena.server_with(&[STALL]);
        let mut session = Session::greet(pipe).start(Order::Destination(&arena.tree()), COPY);
        lists_nothing(&session);
        if ends_lanes {
            session.expect_end_of_needs();
        }
        for number in 0..4 {
            let lane = session.lane(number);
            if ends_lanes {
                session.lanes.send(lane, &Message::new(70).frame());
                session.lanes.finish(lane);
            }
        }
        if ends_lanes {
            session.expect(17);
            while !session.lanes.is_over() {
                session.control(&alive);
                session.breathe();
                thread::sleep(Duration::from_millis(50));
            }
        } else {
            breathe(&session, &alive);
        }
        let code = server.wait();
        assert!(code == TIMEOUT || ends_lanes && code == 0, "exit code {code}");
        arena.assert_unharmed(&[]);
    }
}

#[test]
fn a_server_that_does_not_end_ends_the_run() {
    needs_dsync!();
    let (alive, progress) = (Message::new(18).frame(), Message::new(16).bytes(&[0; 7]).frame());
    let arena = Arena::new();
    let (client, pipe) = arena.push(RELAY, &[STALL]);
    let session = Session::serve(pipe).answer();
    while session.hear().0 != 8 {}
    session.control(&Message::new(14).frame());
    breathe(&session, &progress);
    let _ = client.wait().expect_code(TIMEOUT);
    let arena = Arena::new();
    let (client, pipe) = arena.pull(RELAY, &[STALL, "--no-delete"]);
    let mut session = Session::serve(pipe).answer();
    lists_nothing(&session);
    for number in 0..8 {
        session.lane(number);
    }
    breathe(&session, &alive);
    let _ = client.wait().expect_code(TIMEOUT);
    arena.assert_unharmed(&[]);
}
