use std::{os::fd::OwnedFd, os::unix::net::UnixStream, sync::Arc, time::Duration};

use bytes::Bytes;
use dsync_wire::link::{Carrier, CloseReason, Link, LinkError};
use proptest::prelude::*;

use super::{
    MuxLink, Role, Seat,
    beside::INVITATION,
    frame::{Frame, MAX_PAYLOAD, MuxError, encode, kind, parse},
    lanes::{Batch, Lanes, MAX_LANES, Moves, Received, WINDOW},
};
use crate::{
    pipe,
    reactor::Reactor,
    suite::{Pair, pattern, suite},
};

fn link(input: OwnedFd, output: OwnedFd, role: Role, idle: Duration) -> MuxLink {
    let reactor = Reactor::start().unwrap();
    let pipes = reactor.run(async move { pipe::open(input, output).unwrap() });
    let (reader, writer) = pipes.unwrap();
    let seat = Seat { role, carrier: Carrier::Ssh, is_near: false };
    MuxLink::start(reactor, reader, writer, seat, idle, Arc::default(), None)
}

/// Makes a pair over pipes, as ssh's parent has them.
fn piped() -> Pair {
    let (read_a, write_b) = rustix::pipe::pipe().unwrap();
    let (read_b, write_a) = rustix::pipe::pipe().unwrap();
    let a = link(read_a, write_a, Role::Client, IDLE);
    let b = link(read_b, write_b, Role::Server, IDLE);
    (Arc::new(a), Arc::new(b))
}

suite!(super::piped);

/// Over one socket, as sshd's children may have it.
#[test]
fn one_socket_for_both_directions_works() {
    let (a, b) = UnixStream::pair().unwrap();
    let twice = |stream: UnixStream| (OwnedFd::from(stream.try_clone().unwrap()), OwnedFd::from(stream));
    let ((ai, ao), (bi, bo)) = (twice(a), twice(b));
    let pair: Pair = (Arc::new(link(ai, ao, Role::Client, IDLE)), Arc::new(link(bi, bo, Role::Server, IDLE)));
    crate::suite::bytes_arrive_in_order_and_once(pair);
}

/// Makes a link and the raw end of a peer that may do anything.
fn with_raw_peer(idle: Duration) -> (MuxLink, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (link(ours.try_clone().unwrap().into(), ours.into(), Role::Client, idle), theirs)
}

#[test]
fn a_silent_peer_times_out() {
    let (link, _peer) = with_raw_peer(Duration::from_millis(300));
    assert!(matches!(link.accept_lane(), Err(LinkError::TimedOut)));
}

#[test]
fn a_vanished_peer_is_lost() {
    let (link, peer) = with_raw_peer(IDLE);
    drop(peer);
    assert!(matches!(link.accept_lane(), Err(LinkError::Lost)));
}

#[test]
fn a_peer_that_breaks_the_rules_ends_the_link_and_is_told() {
    use std::io::{Read, Write};
    let (link, mut peer) = with_raw_peer(IDLE);
    let mut alive = Vec::new();
    encode(0, Frame::Alive, &mut alive);
    peer.write_all(&alive).unwrap();
    peer.write_all(&[1, 0, 0, 0, 99, 0, 0, 0]).unwrap();
    let error = link.accept_lane().map(drop).unwrap_err();
    assert!(matches!(error, LinkError::Carrier { .. }) && error.is_retryable(), "{error:?}");
    let mut said = Vec::new();
    peer.read_to_end(&mut said).unwrap();
    let (_, frame, _) = parse(&said).unwrap().unwrap();
    assert_eq!(frame, Frame::Close(CloseReason::Protocol.code()));
}

#[test]
fn a_peer_that_begins_with_anything_else_speaks_another_protocol() {
    use std::io::Write;
    for said in [&b"HTTP/1.1 400 Bad Request"[..], b"SSH-2.0-OpenSSH_9.6", &[0; 64], b"220 mail ESMTP"] {
        let (link, mut peer) = with_raw_peer(IDLE);
        peer.write_all(said).unwrap();
        let error = link.accept_lane().map(drop).unwrap_err();
        assert!(matches!(error, LinkError::OtherProtocol { .. }) && !error.is_retryable(), "{error:?}");
    }
}

#[test]
fn what_was_not_agreed_on_ends_the_link() {
    use std::io::Write;
    let (mut moved, mut invite, mut wants) = (Vec::new(), Vec::new(), Vec::new());
    encode(2, Frame::Open, &mut moved);
    encode(2, Frame::Moved(0), &mut moved);
    encode(0, Frame::Invite(&[1; INVITATION]), &mut invite);
    encode(0, Frame::WantsQuic(1), &mut wants);
    for frames in [moved, invite, wants] {
        let (link, mut peer) = with_raw_peer(IDLE);
        peer.write_all(&frames).unwrap();
        assert!(matches!(link.accept_lane(), Err(LinkError::Carrier { .. })));
    }
}

#[test]
fn a_peer_that_stops_reading_cannot_hold_up_the_end() {
    // Nor does the silence of the peer end it.
    let (link, _peer) = with_raw_peer(Duration::from_secs(36_000));
    let mut lane = link.open_lane().unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| while lane.tx.write(pattern(1, 1 << 20)).is_ok() {});
        std::thread::sleep(Duration::from_millis(100));
        link.close(CloseReason::Cancelled);
        writer.join().unwrap();
    });
    let (send, dropped) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(link);
        let _ = send.send(());
    });
    dropped.recv_timeout(PATIENCE).unwrap();
}

#[test]
fn quiet_links_stay_alive() {
    // If the machine is so busy that a sign of life arrives too late, the next one gets more time.
    let limits = [300, 1000, 4000, 16_000, 60_000].map(Duration::from_millis);
    let lives = |idle: Duration| {
        let (read_a, write_b) = rustix::pipe::pipe().unwrap();
        let (read_b, write_a) = rustix::pipe::pipe().unwrap();
        let a = link(read_a, write_a, Role::Client, idle);
        let b = link(read_b, write_b, Role::Server, idle);
        std::thread::sleep(idle * 3);
        let Ok(mut lane) = a.open_lane() else { return false };
        lane.tx.write(Bytes::from_static(b"still here")).is_ok() && b.accept_lane().is_ok()
    };
    assert!(limits.into_iter().any(lives));
}

fn lanes(role: Role) -> Lanes {
    lanes_with(role, Moves::Nowhere)
}

fn lanes_with(role: Role, moves: Moves) -> Lanes {
    Lanes::new((role, Carrier::Ssh), moves, Arc::default(), Arc::default())
}

/// Returns the lanes, kinds and numbers of all frames that are to be sent.
fn sent(lanes: &mut Lanes) -> Vec<(u32, u8, u32)> {
    let mut sent = Vec::new();
    loop {
        let mut parts = Vec::new();
        match lanes.next_batch(&mut parts) {
            Batch::Data => sent.extend_from_slice(&parts.concat()),
            _ => break,
        }
    }
    let mut frames = Vec::new();
    let mut rest = &sent[..];
    while let Some((id, frame, used)) = parse(rest).unwrap() {
        let number = if let Frame::Moved(number) = frame { number } else { 0 };
        frames.push((id, frame.kind(), number));
        rest = &rest[used..];
    }
    frames
}

#[test]
fn words_about_a_moved_direction_follow_its_last_frame() {
    // Output that waits goes first, and a word that comes late goes at once.
    for is_late in [false, true] {
        let mut client = lanes_with(Role::Client, Moves::Again);
        let (id, _) = client.open().unwrap().unwrap();
        assert_eq!(client.write(id, &mut Bytes::from_static(b"data")).unwrap(), 4);
        client.move_on(id, 7).unwrap();
        let mut frames = if is_late { sent(&mut client) } else { Vec::new() };
        client.move_again(id, 9).unwrap();
        client.finish_beside(id).unwrap();
        frames.extend(sent(&mut client));
        let [open, data, moved, finish] = [kind::OPEN, kind::DATA, kind::MOVED, kind::FINISH];
        assert_eq!(frames, [(id, open, 0), (id, data, 0), (id, moved, 7), (id, moved, 9), (id, finish, 0)]);
    }

    // To a peer that does not know of second moves nothing is told.
    let mut client = lanes_with(Role::Client, Moves::ToQuic);
    let (id, _) = client.open().unwrap().unwrap();
    client.move_on(id, 7).unwrap();
    client.finish_beside(id).unwrap();
    assert_eq!(sent(&mut client), [(id, kind::OPEN, 0), (id, kind::MOVED, 7)]);
    // One that reads no more hears nothing either.
    let mut client = lanes_with(Role::Client, Moves::Again);
    let (id, _) = client.open().unwrap().unwrap();
    client.write(id, &mut Bytes::from_static(b"data")).unwrap();
    client.move_on(id, 7).unwrap();
    client.on_frame(id, Frame::Stop).unwrap();
    assert!(client.move_again(id, 9).is_err() && client.finish_beside(id).is_err());
}

#[test]
fn a_moved_direction_goes_on_as_the_peer_says_and_in_that_order() {
    let told = |frames: &[Frame<'_>]| {
        let mut server = lanes_with(Role::Server, Moves::Again);
        server.on_frame(1, Frame::Open).unwrap();
        server.on_frame(1, Frame::Moved(7)).unwrap();
        assert!(server.accept().unwrap().is_some());
        assert!(matches!(server.read(1).unwrap(), Received::Moved(7)));
        assert!(matches!(server.read_on(1).unwrap(), Received::Wait));
        frames.iter().try_for_each(|frame| server.on_frame(1, *frame)).map(|()| server)
    };
    let mut server = told(&[Frame::Finish]).unwrap();
    assert!(matches!(server.read_on(1).unwrap(), Received::End));
    assert!(matches!(server.read_on(1).unwrap(), Received::End));
    let mut server = told(&[Frame::Moved(9), Frame::Finish]).unwrap();
    assert!(matches!(server.read_on(1).unwrap(), Received::Moved(9)));
    assert!(matches!(server.read_on(1).unwrap(), Received::End));
    let mut server = told(&[Frame::Moved(9)]).unwrap();
    assert!(matches!(server.read_on(1).unwrap(), Received::Moved(9)));
    assert!(matches!(server.read_on(1).unwrap(), Received::Wait));
    server.on_frame(1, Frame::Finish).unwrap();
    assert!(matches!(server.read_on(1).unwrap(), Received::End));

    for wrong in [
        &[Frame::Finish, Frame::Finish][..],
        &[Frame::Finish, Frame::Moved(9)],
        &[Frame::Moved(9), Frame::Moved(11)],
        &[Frame::Reset],
        &[Frame::Data(b"data")],
    ] {
        assert!(matches!(told(wrong), Err(MuxError::BadLane { lane: 1, .. })), "{wrong:?}");
    }
    // A direction that never moved ends once.
    let mut server = lanes_with(Role::Server, Moves::Again);
    server.on_frame(1, Frame::Open).unwrap();
    server.on_frame(1, Frame::Finish).unwrap();
    assert!(server.on_frame(1, Frame::Moved(9)).is_err());
}

#[test]
fn frames_that_break_a_bound_are_refused() {
    let mut server = lanes(Role::Server);
    let wrong = |id, frame: Frame<'_>| MuxError::BadLane { kind: frame.kind(), lane: id };
    assert_eq!(server.on_frame(2, Frame::Open), Err(wrong(2, Frame::Open)));
    assert_eq!(server.on_frame(1, Frame::Finish), Err(wrong(1, Frame::Finish)));
    server.on_frame(3, Frame::Open).unwrap();
    assert_eq!(server.on_frame(1, Frame::Open), Err(wrong(1, Frame::Open)), "numbers only grow");
    assert_eq!(server.on_frame(3, Frame::Open), Err(wrong(3, Frame::Open)));
    assert_eq!(server.on_frame(3, Frame::Credit(1)), Err(MuxError::CreditExceeded { lane: 3, credit: 1 }));
    let payload = vec![0; MAX_PAYLOAD];
    for _ in 0..WINDOW / MAX_PAYLOAD {
        server.on_frame(3, Frame::Data(&payload)).unwrap();
    }
    assert_eq!(
        server.on_frame(3, Frame::Data(b"x")),
        Err(MuxError::WindowExceeded { lane: 3, length: 1, left: 0 })
    );
    server.on_frame(3, Frame::Finish).unwrap();
    assert_eq!(server.on_frame(3, Frame::Data(b"x")), Err(wrong(3, Frame::Data(b"x"))));
    assert_eq!(server.on_frame(3, Frame::Reset), Err(wrong(3, Frame::Reset)));
}

#[test]
fn lanes_beyond_the_limit_are_refused_and_waited_for() {
    let (mut client, mut server) = (lanes(Role::Client), lanes(Role::Server));
    for _ in 0..MAX_LANES {
        let (id, _) = client.open().unwrap().unwrap();
        server.on_frame(id, Frame::Open).unwrap();
    }
    assert!(client.open().unwrap().is_none());
    assert_eq!(server.on_frame(9999, Frame::Open), Err(MuxError::TooManyLanes { limit: MAX_LANES }));
    client.writer_dropped(1);
    client.on_frame(1, Frame::Reset).unwrap();
    assert!(client.open().unwrap().is_some());
}

#[test]
fn a_peer_that_makes_answers_and_reads_none_is_cut_off() {
    let mut server = lanes(Role::Server);
    let outcome = (0..100_000).map(|n| 2 * n + 1).try_for_each(|id| {
        server.on_frame(id, Frame::Open)?;
        server.on_frame(id, Frame::Reset)
    });
    assert_eq!(outcome, Err(MuxError::Flooded));
}

#[test]
fn control_frames_go_before_data_and_lanes_take_turns() {
    let mut client = lanes(Role::Client);
    let ids: Vec<_> = (0..3).map(|_| client.open().unwrap().unwrap().0).collect();
    for id in &ids {
        client.write(*id, &mut pattern(1, 3 * MAX_PAYLOAD)).unwrap();
    }
    let order: Vec<_> = sent(&mut client).into_iter().map(|(id, kind, _)| (id, kind)).collect();
    let opens = [(1, 1), (3, 1), (5, 1)];
    let turns = [(1, 2), (3, 2), (5, 2)];
    assert_eq!(order, [&opens[..], &turns, &turns, &turns].concat());
}

/// One step of a peer, or of the program above the mux.
#[derive(Debug, Clone)]
enum Step {
    Frame(u32, u8, usize),
    Open,
    Accept,
    /// A call of a half of one of this end's lanes.
    Call(usize, Call),
    Send,
}

#[derive(Debug, Clone, Copy)]
enum Call {
    Write(usize),
    Finish,
    MoveOn,
    MoveAgain,
    FinishBeside,
    Read,
    ReadOn,
    DropWriter,
    DropReader,
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        3 => (0_usize..300_000).prop_map(Call::Write),
        1 => Just(Call::Finish),
        1 => Just(Call::MoveOn),
        1 => Just(Call::MoveAgain),
        1 => Just(Call::FinishBeside),
        3 => Just(Call::Read),
        1 => Just(Call::ReadOn),
        1 => Just(Call::DropWriter),
        1 => Just(Call::DropReader),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0_u32..12, 1_u8..12, 0_usize..100_000).prop_map(|(id, kind, size)| Step::Frame(id, kind, size)),
        2 => Just(Step::Open),
        2 => Just(Step::Accept),
        13 => (0_usize..8, call()).prop_map(|(lane, call)| Step::Call(lane, call)),
        4 => Just(Step::Send),
    ]
}

fn take_step(lanes: &mut Lanes, held: &mut Vec<u32>, step: &Step) -> Result<usize, MuxError> {
    let payload = vec![1; MAX_PAYLOAD];
    match *step {
        Step::Frame(id, kind, size) => {
            let frame = match kind {
                1 => Frame::Open,
                2 => Frame::Data(&payload[..size.clamp(1, MAX_PAYLOAD)]),
                3 => Frame::Finish,
                4 => Frame::Reset,
                5 => Frame::Stop,
                6 => Frame::Credit(u32::try_from(size).unwrap()),
                7 | 8 => Frame::Moved(id),
                9 => Frame::WantsQuic(id),
                10 => Frame::TakesQuic,
                _ => Frame::Alive,
            };
            // As at the other end: the link continues only while the peer keeps the rules.
            return lanes.on_frame(id, frame).map(|()| 0);
        }
        Step::Open => held.extend(lanes.open().ok().flatten().map(|(id, _)| id)),
        Step::Accept => held.extend(lanes.accept().ok().flatten().map(|(id, _)| id)),
        Step::Send => {
            lanes.next_batch(&mut Vec::new());
        }
        Step::Call(lane, call) => {
            if let Some(id) = held.get(lane) {
                return Ok(make_call(lanes, *id, call));
            }
        }
    }
    Ok(0)
}

/// Makes a call of a lane's half; returns the bytes that it read.
fn make_call(lanes: &mut Lanes, id: u32, call: Call) -> usize {
    match call {
        Call::Write(size) => drop(lanes.write(id, &mut Bytes::from(vec![0; size]))),
        Call::Finish => drop(lanes.finish(id)),
        Call::MoveOn => drop(lanes.move_on(id, 3)),
        Call::MoveAgain => drop(lanes.move_again(id, 5)),
        Call::FinishBeside => drop(lanes.finish_beside(id)),
        Call::ReadOn => drop(lanes.read_on(id)),
        Call::Read => {
            if let Ok(Received::Data(data)) = lanes.read(id) {
                return data.len();
            }
        }
        Call::DropWriter => lanes.writer_dropped(id),
        Call::DropReader => lanes.reader_dropped(id),
    }
    0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    /// Law: no order of frames and calls panics, and a peer's wrong frame is an error of the link,
    /// after which nothing is left to read.
    #[test]
    fn any_order_of_frames_and_calls_is_survived(
        steps in prop::collection::vec(step(), 0..120),
        moves in prop::sample::select(&[Moves::Nowhere, Moves::ToTls, Moves::ToQuic, Moves::Again]),
    ) {
        let mut lanes = lanes_with(Role::Server, moves);
        let mut held = Vec::new();
        for step in &steps {
            if let Err(error) = take_step(&mut lanes, &mut held, step) {
                lanes.end(lanes.carrier_error(error), Some(CloseReason::Protocol));
            }
            if lanes.check().is_err() {
                for id in &held {
                    prop_assert!(lanes.read(*id).is_err());
                }
            }
        }
    }

    /// Law: whatever bytes arrive, the parser accepts them or names a fault, and the lanes stay
    /// sound.
    #[test]
    fn any_bytes_are_survived(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        moves in prop::sample::select(&[Moves::Nowhere, Moves::Again]),
    ) {
        let mut lanes = lanes_with(Role::Server, moves);
        let mut rest = &bytes[..];
        while let Ok(Some((id, frame, used))) = parse(rest) {
            if lanes.on_frame(id, frame).is_err() {
                break;
            }
            rest = &rest[used..];
        }
    }
}

#[test]
fn a_lane_given_up_before_its_first_byte_is_never_shown() {
    let mut server = lanes(Role::Server);
    server.on_frame(1, Frame::Open).unwrap();
    server.on_frame(1, Frame::Reset).unwrap();
    assert!(server.accept().unwrap().is_none());
    let mut parts = Vec::new();
    server.next_batch(&mut parts);
    let mut expected = Vec::new();
    encode(1, Frame::Reset, &mut expected);
    assert_eq!(parts.concat(), expected);
}

const IDLE: Duration = Duration::from_secs(300);
/// Longer than anything here takes on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(300);
