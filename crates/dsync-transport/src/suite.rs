//! The contract of every carrier, as tests that run on each of them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use dsync_wire::link::{CloseReason, Lane, LaneRead, Link, LinkError};

/// The two ends of one link.
pub(crate) type Pair = (Arc<dyn Link>, Arc<dyn Link>);

/// Makes a module of tests for the carrier whose links the given function makes.
macro_rules! suite {
    ($make:path) => {
        mod suite {
            $crate::suite::suite!(@tests $make,
                bytes_arrive_in_order_and_once,
                two_parts_written_at_once_arrive_in_order,
                a_lane_is_seen_with_its_first_byte,
                an_empty_lane_ends_cleanly,
                finish_is_a_clean_end_and_what_was_written_comes_first,
                a_dropped_writer_is_an_error_for_the_reader,
                a_dropped_reader_is_an_error_for_the_writer,
                writing_after_finish_fails,
                a_slow_reader_slows_the_writer,
                an_unread_lane_does_not_stop_the_others,
                many_lanes_work_in_both_directions,
                many_megabytes_pass_through_several_lanes,
                close_wakes_every_blocked_call_of_both_ends,
                the_reason_reaches_the_peer,
                later_calls_report_the_first_cause,
                a_lane_outlives_the_peer_as_an_error,
                traffic_counts_payload,
                fill_gives_all_that_was_asked_for_and_less_at_the_end_only,
                fill_ends_with_the_link,
            );
        }
    };
    (@tests $make:path, $($name:ident,)*) => {
        $(#[test]
        fn $name() {
            $crate::suite::$name($make());
        })*
    };
}
pub(crate) use suite;

/// Returns bytes that depend on their place and on `seed`, so that any mix-up shows.
pub(crate) fn pattern(seed: u64, length: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    Bytes::from(bytes)
}

fn read_to_end(rx: &mut dyn LaneRead) -> Result<Vec<u8>, LinkError> {
    let mut all = Vec::new();
    let mut buf = vec![0; 100_000];
    loop {
        match rx.read(&mut buf)? {
            0 => return Ok(all),
            count => all.extend_from_slice(&buf[..count]),
        }
    }
}

fn read_exactly(rx: &mut dyn LaneRead, length: usize) -> Vec<u8> {
    let mut all = vec![0; length];
    let mut filled = 0;
    while filled < length {
        let count = rx.read(&mut all[filled..]).unwrap();
        assert_ne!(count, 0, "the lane ended after {filled} of {length} bytes");
        filled += count;
    }
    all
}

/// Opens a lane that both ends hold.
fn lane((a, b): &Pair) -> (Lane, Lane) {
    let mut near = a.open_lane().unwrap();
    near.tx.write(Bytes::from_static(b"!")).unwrap();
    let mut far = b.accept_lane().unwrap();
    assert_eq!(read_exactly(&mut *far.rx, 1), b"!");
    (near, far)
}

pub(crate) fn bytes_arrive_in_order_and_once(pair: Pair) {
    let (mut near, mut far) = lane(&pair);
    let sizes = [1, 2, 7, 100, 4096, 65_535, 65_536, 65_537, 262_145, 1_000_003];
    let writer = |seed: u64| -> Vec<Bytes> {
        sizes.iter().zip(seed..).map(|(size, seed)| pattern(seed, *size)).collect()
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for data in writer(1) {
                near.tx.write(data).unwrap();
            }
            near.tx.finish().unwrap();
        });
        scope.spawn(|| {
            for data in writer(50) {
                far.tx.write(data).unwrap();
            }
            far.tx.finish().unwrap();
        });
        assert!(read_to_end(&mut *far.rx).unwrap() == writer(1).concat());
        assert!(read_to_end(&mut *near.rx).unwrap() == writer(50).concat());
    });
}

pub(crate) fn fill_gives_all_that_was_asked_for_and_less_at_the_end_only(pair: Pair) {
    let (mut near, mut far) = lane(&pair);
    let sizes = [1, 16_383, 16_384, 300_000, 5, 2_500_000, 70_000];
    let all = pattern(9, sizes.iter().sum());
    let before = pair.1.traffic().received_bytes;
    thread::scope(|scope| {
        scope.spawn(|| {
            // In pieces that match no request.
            for piece in all.chunks(9_973) {
                near.tx.write(Bytes::copy_from_slice(piece)).unwrap();
            }
            near.tx.finish().unwrap();
        });
        let mut got = Vec::new();
        for size in sizes {
            let mut buf = vec![0; size + usize::from(size == 70_000)];
            assert_eq!(far.rx.fill(&mut buf).unwrap(), size);
            got.extend_from_slice(&buf[..size]);
        }
        assert!(got == all);
        assert_eq!(far.rx.fill(&mut [0; 20_000]).unwrap(), 0);
    });
    assert_eq!(pair.1.traffic().received_bytes - before, all.len() as u64);
}

pub(crate) fn fill_ends_with_the_link(pair: Pair) {
    let (mut near, mut far) = lane(&pair);
    near.tx.write(Bytes::from_static(&[1; 20_000])).unwrap();
    thread::scope(|scope| {
        let filling = scope.spawn(|| far.rx.fill(&mut vec![0; 1 << 20]));
        thread::sleep(std::time::Duration::from_millis(50));
        pair.0.close(CloseReason::Done);
        assert!(filling.join().unwrap().is_err());
    });
    assert!(far.rx.fill(&mut vec![0; 1 << 20]).is_err());
}

pub(crate) fn two_parts_written_at_once_arrive_in_order(pair: Pair) {
    let (mut near, mut far) = lane(&pair);
    let sizes = [(0, 0), (0, 1), (1, 0), (24, 262_150), (100, 131_072), (140_000, 147_457), (5, 1_000_003)];
    let parts: Vec<_> = (1..)
        .zip(sizes)
        .map(|(seed, (head, body))| (pattern(seed, head), pattern(seed + 50, body)))
        .collect();
    let sent = parts.clone();
    thread::scope(|scope| {
        scope.spawn(|| {
            for (head, body) in sent {
                near.tx.write_both(head, body).unwrap();
            }
            near.tx.finish().unwrap();
        });
        let expected: Vec<u8> =
            parts.iter().flat_map(|(head, body)| [&head[..], &body[..]].concat()).collect();
        assert!(read_to_end(&mut *far.rx).unwrap() == expected);
    });
    assert_eq!(
        pair.0.traffic().sent_bytes,
        1 + sizes.iter().map(|(head, body)| (head + body) as u64).sum::<u64>()
    );
}

pub(crate) fn a_lane_is_seen_with_its_first_byte((a, b): Pair) {
    let quiet = a.open_lane().unwrap();
    let mut loud = b.open_lane().unwrap();
    loud.tx.write(Bytes::from_static(b"x")).unwrap();
    let mut seen = a.accept_lane().unwrap();
    assert_eq!(read_exactly(&mut *seen.rx, 1), b"x");
    // Nothing of the quiet one: the next accepted lane is opened after it, or is its own first
    // byte.
    let (send, receive) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut lane = b.accept_lane().unwrap();
            send.send(read_exactly(&mut *lane.rx, 1)).unwrap();
        });
        let Lane { mut tx, rx: _rx } = quiet;
        tx.write(Bytes::from_static(b"q")).unwrap();
        assert_eq!(receive.recv_timeout(LONG).unwrap(), b"q");
    });
}

pub(crate) fn an_empty_lane_ends_cleanly((a, b): Pair) {
    let mut near = a.open_lane().unwrap();
    near.tx.write(Bytes::new()).unwrap();
    near.tx.finish().unwrap();
    near.tx.finish().unwrap();
    let mut far = b.accept_lane().unwrap();
    assert_eq!(far.rx.read(&mut [0; 8]).unwrap(), 0);
    assert_eq!(far.rx.read(&mut [0; 8]).unwrap(), 0);
    far.tx.write(Bytes::from_static(b"answer")).unwrap();
    far.tx.finish().unwrap();
    assert_eq!(read_to_end(&mut *near.rx).unwrap(), b"answer");
}

pub(crate) fn finish_is_a_clean_end_and_what_was_written_comes_first(pair: Pair) {
    let (near, mut far) = lane(&pair);
    let Lane { mut tx, rx } = near;
    let data = pattern(9, 300_000);
    tx.write(data.clone()).unwrap();
    tx.finish().unwrap();
    drop(tx);
    assert!(read_to_end(&mut *far.rx).unwrap() == data);
    drop(rx);
}

pub(crate) fn a_dropped_writer_is_an_error_for_the_reader(pair: Pair) {
    let (near, mut far) = lane(&pair);
    let Lane { mut tx, rx: _rx } = near;
    tx.write(Bytes::from_static(b"half")).unwrap();
    drop(tx);
    let outcome = read_to_end(&mut *far.rx);
    assert!(matches!(outcome, Err(LinkError::PeerClosed { reason: CloseReason::Failed })), "{outcome:?}");
    // Only the lane is gone, not the link.
    lane(&pair);
}

pub(crate) fn a_dropped_reader_is_an_error_for_the_writer(pair: Pair) {
    let (mut near, far) = lane(&pair);
    let Lane { tx: _tx, rx } = far;
    drop(rx);
    let data = pattern(3, 1 << 20);
    let error = (0..200).find_map(|_| near.tx.write(data.clone()).err());
    assert!(matches!(error, Some(LinkError::PeerClosed { reason: CloseReason::Failed })), "{error:?}");
    lane(&pair);
}

pub(crate) fn writing_after_finish_fails(pair: Pair) {
    let (mut near, _far) = lane(&pair);
    near.tx.finish().unwrap();
    assert!(near.tx.write(Bytes::from_static(b"late")).is_err());
}

pub(crate) fn a_slow_reader_slows_the_writer(pair: Pair) {
    const TOTAL: u64 = 96 << 20;
    let (mut near, mut far) = lane(&pair);
    let written = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let data = pattern(1, 1 << 20);
            for _ in 0..TOTAL >> 20 {
                near.tx.write(data.clone()).unwrap();
                written.fetch_add(1 << 20, Ordering::Relaxed);
            }
            near.tx.finish().unwrap();
        });
        let held = settle(&written);
        assert!(held <= 32 << 20, "{held} bytes taken with nobody reading");
        read_exactly(&mut *far.rx, 40 << 20);
        let more = settle(&written);
        assert!(more > held && more <= (40 << 20) + (32 << 20), "{held}, then {more}");
        let rest = read_to_end(&mut *far.rx).unwrap();
        assert_eq!(rest.len() as u64, TOTAL - (40 << 20));
    });
}

/// Returns the value of a counter after it stands still. On a busy machine it may move again later,
/// so callers may rely only on its bounds.
fn settle(counter: &AtomicU64) -> u64 {
    let mut before = u64::MAX;
    loop {
        let now = counter.load(Ordering::Relaxed);
        if now == before {
            return now;
        }
        before = now;
        thread::sleep(Duration::from_millis(250));
    }
}

pub(crate) fn an_unread_lane_does_not_stop_the_others(pair: Pair) {
    // As many as the carrier has data lanes; the working one stands for the control lane.
    let mut stuck: Vec<_> = (0..pair.0.data_lanes()).map(|_| lane(&pair)).collect();
    let (mut near, mut far) = lane(&pair);
    let filling = pattern(1, 256 << 10);
    let counter = AtomicU64::new(0);
    thread::scope(|scope| {
        for (near, _) in &mut stuck {
            let (filling, counter) = (&filling, &counter);
            scope.spawn(move || {
                while near.tx.write(filling.clone()).is_ok() {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        settle(&counter);
        for round in 0..50 {
            near.tx.write(pattern(round, 1000)).unwrap();
            assert!(read_exactly(&mut *far.rx, 1000) == pattern(round, 1000));
        }
        pair.1.close(CloseReason::Cancelled);
    });
}

pub(crate) fn many_lanes_work_in_both_directions(pair: Pair) {
    const LANES: usize = 40;
    let (a, b) = (&pair.0, &pair.1);
    let open = |link: &Arc<dyn Link>, seed: usize| {
        let mut lane = link.open_lane().unwrap();
        lane.tx.write(Bytes::copy_from_slice(&seed.to_le_bytes())).unwrap();
        lane.tx.write(pattern(seed as u64, 50_000 + seed)).unwrap();
        lane.tx.finish().unwrap();
        assert!(read_to_end(&mut *lane.rx).unwrap() == pattern(seed as u64 + 1, 30_000));
    };
    let accept = |link: &Arc<dyn Link>| {
        let mut lane = link.accept_lane().unwrap();
        let seed = usize::from_le_bytes(read_exactly(&mut *lane.rx, 8).try_into().unwrap());
        assert!(read_to_end(&mut *lane.rx).unwrap() == pattern(seed as u64, 50_000 + seed));
        lane.tx.write(pattern(seed as u64 + 1, 30_000)).unwrap();
        lane.tx.finish().unwrap();
    };
    thread::scope(|scope| {
        for seed in 0..LANES {
            scope.spawn(move || open(a, seed));
            scope.spawn(move || open(b, 1000 + seed));
            scope.spawn(move || accept(a));
            scope.spawn(move || accept(b));
        }
    });
    // Ended lanes make room for others.
    for _ in 0..100 {
        let (mut near, mut far) = lane(&pair);
        near.tx.finish().unwrap();
        far.tx.finish().unwrap();
        assert_eq!(near.rx.read(&mut [0; 1]).unwrap() + far.rx.read(&mut [0; 1]).unwrap(), 0);
    }
}

pub(crate) fn many_megabytes_pass_through_several_lanes(pair: Pair) {
    const LANES: u64 = 4;
    const PIECES: u64 = 16;
    let mut lanes: Vec<_> = (0..LANES).map(|_| lane(&pair)).collect();
    thread::scope(|scope| {
        for ((near, far), number) in lanes.iter_mut().zip(0..) {
            scope.spawn(move || {
                for piece in 0..PIECES {
                    near.tx.write(pattern(number * 100 + piece, 1 << 20)).unwrap();
                }
                near.tx.finish().unwrap();
            });
            scope.spawn(move || {
                for piece in 0..PIECES {
                    let got = read_exactly(&mut *far.rx, 1 << 20);
                    assert!(got == pattern(number * 100 + piece, 1 << 20), "lane {number}, piece {piece}");
                }
                assert_eq!(far.rx.read(&mut [0; 1]).unwrap(), 0);
            });
        }
    });
}

pub(crate) fn close_wakes_every_blocked_call_of_both_ends(pair: Pair) {
    let (mut near, mut far) = lane(&pair);
    let (mut full, _unread) = lane(&pair);
    let filled = AtomicU64::new(0);
    thread::scope(|scope| {
        let blocked = [
            scope.spawn(|| near.rx.read(&mut [0; 1]).map(|_| ())),
            scope.spawn(|| far.rx.read(&mut [0; 1]).map(|_| ())),
            scope.spawn(|| pair.0.accept_lane().map(|_| ())),
            scope.spawn(|| pair.1.accept_lane().map(|_| ())),
            scope.spawn(|| {
                let data = pattern(1, 1 << 20);
                loop {
                    full.tx.write(data.clone())?;
                    filled.fetch_add(1, Ordering::Relaxed);
                }
            }),
        ];
        settle(&filled);
        pair.1.close(CloseReason::Done);
        for call in blocked {
            assert!(call.join().unwrap().is_err());
        }
    });
    for link in [&pair.0, &pair.1] {
        assert!(link.open_lane().is_err());
        assert!(link.accept_lane().is_err());
    }
    assert!(near.tx.write(Bytes::from_static(b"late")).is_err());
    assert!(far.tx.write(Bytes::from_static(b"late")).is_err());
    assert!(near.tx.finish().is_err() && far.tx.finish().is_err());
}

pub(crate) fn the_reason_reaches_the_peer(pair: Pair) {
    let (mut near, _far) = lane(&pair);
    pair.1.close(CloseReason::Protocol);
    let error = near.rx.read(&mut [0; 1]).unwrap_err();
    assert!(matches!(error, LinkError::PeerClosed { reason: CloseReason::Protocol }), "{error:?}");
}

pub(crate) fn later_calls_report_the_first_cause(pair: Pair) {
    let (mut near, mut far) = lane(&pair);
    pair.0.close(CloseReason::Cancelled);
    pair.0.close(CloseReason::Done);
    let theirs = far.rx.read(&mut [0; 1]).unwrap_err();
    pair.1.close(CloseReason::Done);
    let theirs_later = far.tx.write(Bytes::from_static(b"x")).unwrap_err();
    for error in [theirs, theirs_later] {
        assert!(matches!(error, LinkError::PeerClosed { reason: CloseReason::Cancelled }), "{error:?}");
    }
    for error in [near.rx.read(&mut [0; 1]).unwrap_err(), pair.0.open_lane().unwrap_err()] {
        assert!(matches!(error, LinkError::Closed), "{error:?}");
    }
}

pub(crate) fn a_lane_outlives_the_peer_as_an_error(pair: Pair) {
    let (near, far) = lane(&pair);
    let unused = pair.0.open_lane().unwrap();
    let (a, b) = pair;
    drop(far);
    drop(b);
    let Lane { mut tx, mut rx } = near;
    assert!(rx.read(&mut [0; 1]).is_err());
    let data = pattern(1, 1 << 20);
    assert!((0..200).any(|_| tx.write(data.clone()).is_err()));
    let accepted = a.accept_lane().map(|_| ());
    assert!(matches!(accepted, Err(LinkError::PeerClosed { reason: CloseReason::Failed })), "{accepted:?}");
    drop(unused);
    drop(a);
    assert!(tx.finish().is_err());
}

pub(crate) fn traffic_counts_payload(pair: Pair) {
    let (mut near, mut far) = lane(&pair);
    let (sent, received) = (pair.0.traffic().sent_bytes, pair.1.traffic().received_bytes);
    assert_eq!((sent, received), (1, 1));
    thread::scope(|scope| {
        scope.spawn(|| {
            near.tx.write(pattern(1, 700_000)).unwrap();
            near.tx.finish().unwrap();
        });
        read_to_end(&mut *far.rx).unwrap();
    });
    assert_eq!(pair.0.traffic().sent_bytes, 700_001);
    assert_eq!(pair.1.traffic().received_bytes, 700_001);
    assert_eq!(pair.0.traffic().received_bytes, 0);
}

/// Longer than anything here takes on the busiest machine.
const LONG: Duration = Duration::from_secs(300);
