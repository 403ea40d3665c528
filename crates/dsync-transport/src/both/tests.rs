use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use dsync_wire::link::{Carrier, CloseReason, Lane, Link, LinkError, MoveCause};

use super::{BothLink, Meters, Sample, Shared, Why, header};
use crate::{
    memory,
    suite::{Pair, pattern, suite},
};

/// Makes a pair of links, each over two links in memory.
fn both(meters: Option<Meters>) -> (BothLink, BothLink) {
    let ((a, b), (c, d)) = (memory::pair(), memory::pair());
    (BothLink::over([Arc::new(a), Arc::new(c)], meters), BothLink::over([Arc::new(b), Arc::new(d)], None))
}

fn quiet() -> Pair {
    let (near, far) = both(None);
    (Arc::new(near), Arc::new(far))
}

/// Decides on a move, whatever the path shows.
fn turn(shared: &Shared) {
    let mut route = shared.route();
    route.why = Why::Decided(MoveCause::Clean);
    shared.decisions.fetch_add(1, Ordering::AcqRel);
}

/// Makes a pair whose two ends move all the time, as long as the test's process lives.
fn restless() -> Pair {
    let (near, far) = both(None);
    for shared in [Arc::clone(&near.shared), Arc::clone(&far.shared)] {
        thread::spawn(move || {
            while !shared.arrivals.ends_within(Duration::from_micros(300)) {
                turn(&shared);
            }
        });
    }
    (Arc::new(near), Arc::new(far))
}

mod resting {
    use super::*;
    suite!(super::super::quiet);
}

mod moving {
    use super::*;
    suite!(super::super::restless);
}

/// Opens a lane that both ends hold.
fn lane(near: &dyn Link, far: &dyn Link) -> (Lane, Lane) {
    let mut here = near.open_lane().unwrap();
    here.tx.write(Bytes::from_static(b"!")).unwrap();
    let mut there = far.accept_lane().unwrap();
    assert_eq!(there.rx.fill(&mut [0]).unwrap(), 1);
    (here, there)
}

#[test]
fn a_lane_that_moves_keeps_its_order_and_loses_nothing() {
    let (near, far) = both(None);
    let (mut here, mut there) = lane(&near, &far);
    let sent = pattern(7, 3_000_000);
    thread::scope(|scope| {
        scope.spawn(|| {
            for (index, start) in (0..sent.len()).step_by(10_000).enumerate() {
                if index % 50 == 49 {
                    turn(&near.shared);
                }
                here.tx.write(sent.slice(start..start + 10_000)).unwrap();
            }
            here.tx.finish().unwrap();
        });
        let mut got = vec![0; sent.len()];
        assert_eq!(there.rx.fill(&mut got).unwrap(), sent.len());
        assert!(got == sent);
        assert_eq!(there.rx.read(&mut [0]).unwrap(), 0);
    });
    // The far end sends less: it counts the moves, and goes along.
    assert_eq!((far.moves().len(), far.carrier()), (6, Carrier::Tls));
    assert_eq!(far.traffic().received_bytes, 3_000_001);
}

#[test]
fn a_lane_that_was_opened_before_a_decision_moves_after_its_first_piece() {
    let (near, far) = both(None);
    let mut here = near.open_lane().unwrap();
    turn(&near.shared);
    for piece in [b"one", b"two"] {
        here.tx.write(Bytes::from_static(piece)).unwrap();
    }
    let mut there = far.accept_lane().unwrap();
    assert_eq!(there.rx.fill(&mut [0; 6]).unwrap(), 6);
    assert_eq!(far.carrier(), Carrier::Quic);
}

#[test]
fn an_end_that_only_answers_goes_where_the_data_goes() {
    let (near, far) = both(None);
    let (mut here, mut there) = lane(&near, &far);
    turn(&near.shared);
    here.tx.write(Bytes::from_static(b"over there")).unwrap();
    assert_eq!(there.rx.fill(&mut [0; 10]).unwrap(), 10);
    assert_eq!(far.carrier(), Carrier::Quic);
    there.tx.write(Bytes::from_static(b"yes")).unwrap();
    let mut answer = [0; 3];
    assert_eq!(here.rx.fill(&mut answer).unwrap(), 3);
    assert_eq!(&answer, b"yes");
    // That was no decision, so nobody goes along in turn.
    assert_eq!((near.moves(), near.carrier()), (Vec::new(), Carrier::Quic));
}

/// Shows a path of a carrier that loses `lost` of 15,000 packets.
fn shows(lost: u64) -> Box<dyn FnMut() -> Sample + Send> {
    Box::new(move || Sample {
        span: Duration::from_millis(250),
        delivered_bytes: 2_000_000,
        packets: 15_000,
        lost,
        round_trip: Duration::from_millis(17),
        least_round_trip: Duration::from_millis(17),
        connections: 8,
        packet_bytes: 1448,
    })
}

#[test]
fn an_end_that_sends_on_a_path_with_losses_moves_and_tells() {
    let (near, far) = both(Some([shows(200), shows(200)]));
    let (mut here, mut there) = lane(&near, &far);
    let over = AtomicBool::new(false);
    let sent = AtomicU64::new(1);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                here.tx.write(Bytes::from_static(&[7; 1000])).unwrap();
                sent.fetch_add(1000, Ordering::Relaxed);
            }
            here.tx.finish().unwrap();
        });
        let mut buf = [0; 5000];
        let mut read = 1;
        while far.moves().is_empty() {
            read += there.rx.read(&mut buf).unwrap() as u64;
        }
        over.store(true, Ordering::Release);
        loop {
            match there.rx.read(&mut buf).unwrap() as u64 {
                0 => break,
                count => read += count,
            }
        }
        assert_eq!(read, sent.load(Ordering::Relaxed));
    });
    assert_eq!(near.moves(), far.moves());
    let told = near.moves()[0].to_string();
    assert_eq!(told, "then quic: the path lost 1.33 % of the packets");
    assert_eq!([near.carrier(), far.carrier()], [Carrier::Quic; 2]);
}

#[test]
fn a_carrier_that_nothing_uses_may_end() {
    let ((a, b), (c, d)) = (memory::pair(), memory::pair());
    let idle = Arc::new(Mortal(c));
    let near = BothLink::over([Arc::new(a), Arc::clone(&idle) as Arc<dyn Link>], None);
    let far = BothLink::over([Arc::new(b), Arc::new(d)], None);
    while near.shared.arrivals.is_live(1) {
        thread::yield_now();
    }
    let (mut here, mut there) = lane(&near, &far);
    // A decision for it changes nothing.
    turn(&near.shared);
    here.tx.write(Bytes::from_static(b"still here")).unwrap();
    here.tx.finish().unwrap();
    assert_eq!(there.rx.fill(&mut [0; 20]).unwrap(), 10);
    near.close(CloseReason::Done);
    assert!(matches!(far.accept_lane(), Err(LinkError::PeerClosed { reason: CloseReason::Done })));
}

/// A link whose connection is lost as soon as anybody uses it.
struct Mortal(memory::MemoryLink);

impl Link for Mortal {
    fn carrier(&self) -> Carrier {
        self.0.carrier()
    }

    fn data_lanes(&self) -> usize {
        self.0.data_lanes()
    }

    fn is_near(&self) -> bool {
        false
    }

    fn open_lane(&self) -> Result<Lane, LinkError> {
        Err(LinkError::Lost)
    }

    fn accept_lane(&self) -> Result<Lane, LinkError> {
        Err(LinkError::Lost)
    }

    fn traffic(&self) -> dsync_wire::link::Traffic {
        self.0.traffic()
    }

    fn close(&self, reason: CloseReason) {
        self.0.close(reason);
    }
}

#[test]
fn a_peer_that_breaks_the_rules_ends_the_link() {
    let began = header::Header { id: 1, stretch: 0, own: true, why: Why::Began, decision: 0 }.encode();
    let third = header::Header { id: 1, stretch: 3, own: true, why: Why::Followed, decision: 3 }.encode();
    let with = |more: &[u8]| [&began[..], more].concat();
    for bytes in [
        // No header, and half of one.
        vec![9; 14],
        began[..5].to_vec(),
        // A piece that is longer than any.
        with(&[255; 4]),
        // A piece that ends early.
        with(&[9, 0, 0, 0, 1]),
        with(&[9, 0]),
        // More behind the last piece of a stretch.
        with(&[0, 0, 0, 0, 1]),
    ] {
        let ((a, b), (c, d)) = (memory::pair(), memory::pair());
        let near = BothLink::over([Arc::new(a), Arc::new(c)], None);
        let mut lane = b.open_lane().unwrap();
        lane.tx.write(Bytes::from(bytes.clone())).unwrap();
        // The link may have ended for what was written.
        let _ = lane.tx.finish();
        let outcome = near
            .accept_lane()
            .and_then(|mut lane| lane.rx.read(&mut [0; 100]).and_then(|_| lane.rx.read(&mut [0; 100])));
        assert!(
            matches!(outcome, Err(LinkError::PeerClosed { reason: CloseReason::Protocol })),
            "{bytes:?} {outcome:?}"
        );
        assert!(matches!(d.accept_lane(), Err(LinkError::PeerClosed { reason: CloseReason::Protocol })));
    }

    // The same stretch twice.
    let ((a, b), (c, _d)) = (memory::pair(), memory::pair());
    let near = BothLink::over([Arc::new(a), Arc::new(c)], None);
    let _held = [(); 2].map(|()| {
        let mut lane = b.open_lane().unwrap();
        lane.tx.write(Bytes::copy_from_slice(&third)).unwrap();
        lane
    });
    assert!(near.accept_lane().is_err());
}

#[test]
fn a_stretch_that_is_given_up_before_its_header_is_an_error_for_its_reader() {
    let ((a, b), (c, d)) = (memory::pair(), memory::pair());
    let near = BothLink::over([Arc::new(a), Arc::new(c)], None);
    let began = header::Header { id: 1, stretch: 0, own: true, why: Why::Began, decision: 0 }.encode();
    let mut first = b.open_lane().unwrap();
    first.tx.write(Bytes::from([&began[..], &[0; 4]].concat())).unwrap();
    first.tx.finish().unwrap();

    let mut lane = near.accept_lane().unwrap();
    let mut second = d.open_lane().unwrap();
    second.tx.write(Bytes::copy_from_slice(&began[..5])).unwrap();
    drop(second);
    let outcome = lane.rx.read(&mut [0; 8]);
    assert!(matches!(outcome, Err(LinkError::PeerClosed { reason: CloseReason::Failed })), "{outcome:?}");
    assert!(near.open_lane().is_ok(), "only the lane is gone");
}

#[test]
fn the_moves_that_are_kept_are_bounded() {
    let ((a, b), (c, _d)) = (memory::pair(), memory::pair());
    let near = BothLink::over([Arc::new(a), Arc::new(c)], None);
    let mut held = Vec::new();
    for decision in 1..=200 {
        let why = Why::Decided(MoveCause::Clean);
        let header = header::Header { id: 1, stretch: decision, own: true, why, decision };
        let mut lane = b.open_lane().unwrap();
        lane.tx.write(Bytes::copy_from_slice(&header.encode())).unwrap();
        held.push(lane);
    }
    // A lane that begins behind them shows that they have been heard.
    let last = header::Header { id: 2, stretch: 0, own: true, why: Why::Began, decision: 0 };
    let mut lane = b.open_lane().unwrap();
    lane.tx.write(Bytes::copy_from_slice(&last.encode())).unwrap();
    drop(near.accept_lane().unwrap());
    assert_eq!(near.moves().len(), super::MOST_TOLD);
    assert!(near.shared.decisions.load(Ordering::Acquire) <= super::choice::MOST_AT_ONCE as usize);
}
