use std::{
    io::{IoSlice, Read as _, Write as _},
    mem::MaybeUninit,
    net::{SocketAddr, TcpListener, TcpStream},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    thread,
    time::{Duration, Instant},
};

use dsync_wire::link::{CloseReason, Lane, Link, Move, MoveCause};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::{
    client::{Calling, Plan},
    server::{Handed, Inviting, Known, MOST_STRANGERS},
    *,
};
use crate::{
    identity::Identity,
    mux::{MuxLink, Role, Seat, beside::Beside},
    pipe,
    reactor::Reactor,
    standing::DatagramPort,
    suite::{Pair, pattern, suite},
    tls::handshake::{DIAL_TIME, OURS, THEIRS, opening, read_exactly},
};

/// Long enough for any machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A session, and its parent that passes connections of its number on.
struct Server {
    address: SocketAddr,
    inviting: Arc<Inviting>,
    connections: Count,
    client: Identity,
    plan: Plan,
}

/// Returns what a client does that goes on by TLS, or by QUIC.
fn plan(quic: Option<MoveCause>) -> Plan {
    let round_trip = Duration::from_millis(80);
    Plan { knows_quic: true, moves_again: true, by_loss: true, quic, round_trip, idle_timeout: PATIENCE }
}

/// Starts a session whose client goes on by QUIC. Its parent leads every sender of its number to it.
fn session_over_quic() -> Server {
    let server = session_of(true);
    Server { plan: plan(Some(MoveCause::Far)), ..server }
}

/// Starts a session. Its parent passes on what begins as it should and closes the rest.
fn session() -> Server {
    session_of(false)
}

/// Starts a session of two ends of which one knows nothing of second moves.
fn older_session() -> Server {
    let server = session_with(false, false);
    Server { plan: Plan { moves_again: false, by_loss: false, ..server.plan }, ..server }
}

/// Opens both halves of a port.
fn ports() -> (TcpListener, DatagramPort) {
    let since = Instant::now();
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // Another test may have the number for UDP.
        if let Ok(port) = DatagramPort::alone(listener.local_addr().unwrap()) {
            return (listener, port);
        }
        assert!(since.elapsed() < PATIENCE);
    }
}

fn session_of(takes_quic: bool) -> Server {
    session_with(takes_quic, true)
}

fn session_with(takes_quic: bool, second_moves: bool) -> Server {
    let (client, own) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let (parent, socket) = UnixStream::pair().unwrap();
    let connections = Count::default();
    let handed = Handed {
        session: SessionNumber([9; 16]),
        socket,
        takes_quic,
        sent: Count::default(),
        received: Count::default(),
        connections: connections.clone(),
    };
    let known = Known { quic: true, second_moves, is_far: false };
    let inviting = Arc::new(Inviting::start(handed, (&own, client.fingerprint()), known, PATIENCE).unwrap());

    let (listener, port) = ports();
    let address = listener.local_addr().unwrap();
    if takes_quic {
        let leading = parent.try_clone().unwrap();
        thread::spawn(move || {
            while let Ok((session, sender)) = port.next_preface() {
                if session == SessionNumber([9; 16]) {
                    hand_over(&leading, &port.lead(address, sender).unwrap());
                }
            }
        });
    }
    thread::spawn(move || {
        for tcp in listener.incoming() {
            let mut tcp = tcp.unwrap();
            let mut seen = [0; PREFACE];
            if tcp.read_exact(&mut seen).is_ok()
                && parse_preface(&seen) == Prefaced::Of(SessionNumber([9; 16]))
            {
                hand_over(&parent, &tcp);
            }
        }
    });
    Server { address, inviting, connections, client, plan: plan(None) }
}

fn hand_over(parent: &UnixStream, socket: &impl AsFd) {
    let descriptors = [socket.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    sendmsg(parent, &[IoSlice::new(&[0])], &mut control, SendFlags::empty()).unwrap();
}

fn mux((input, output): (OwnedFd, OwnedFd), role: Role, beside: Arc<dyn Beside>) -> MuxLink {
    let reactor = Reactor::start().unwrap();
    let pipes = reactor.run(async move { pipe::open(input, output).unwrap() });
    let (reader, writer) = pipes.unwrap();
    let seat = Seat { role, carrier: Carrier::Tls, is_near: false };
    MuxLink::start(reactor, reader, writer, seat, PATIENCE, Arc::default(), Some(beside))
}

/// Makes a pair whose client connects to `address` for more.
fn pair_to(server: &Server, address: SocketAddr) -> Pair {
    pair_of(server, Calling::new(server.client.clone(), address, server.plan))
}

fn pair_of(server: &Server, calling: Calling) -> Pair {
    let (a, b) = UnixStream::pair().unwrap();
    let twice = |stream: UnixStream| (OwnedFd::from(stream.try_clone().unwrap()), OwnedFd::from(stream));
    let near = mux(twice(a), Role::Client, Arc::new(calling));
    let far = mux(twice(b), Role::Server, Arc::clone(&server.inviting) as Arc<dyn Beside>);
    (Arc::new(near), Arc::new(far))
}

fn pair() -> Pair {
    let server = session();
    pair_to(&server, server.address)
}

suite!(super::pair);

#[cfg(feature = "quic")]
mod over_quic {
    use super::*;

    fn pair() -> Pair {
        let server = session_over_quic();
        pair_to(&server, server.address)
    }

    suite!(super::pair);

    #[test]
    fn lanes_move_to_it_in_either_direction_and_their_bytes_keep_their_order() {
        for to_server in [true, false] {
            let server = session_over_quic();
            let (near, far) = pair_to(&server, server.address);
            let told = Arc::clone(&near);
            let (sender, receiver) = if to_server { (near, far) } else { (far, near) };
            // Until much has gone that way: what passed by the mux is not counted.
            let counted = usize::from(to_server);
            send_until(&sender, &receiver, || server.inviting.counts()[counted].count() > 4 << 20);
            assert_eq!(server.inviting.counts()[1 - counted].count(), 0);
            // One connection carries all, and TLS has none.
            assert_eq!(server.connections.count(), 1);
            let moved = Move::new(Carrier::Quic, MoveCause::Far);
            assert_eq!(told.moves(), [moved]);
        }
    }

    #[test]
    fn lanes_that_losses_hold_back_move_from_tls_to_quic_and_their_bytes_keep_their_order() {
        for to_server in [true, false] {
            let server = session_of(true);
            let calling = Calling::new(server.client.clone(), server.address, server.plan);
            let client = calling.clone();
            let (near, far) = pair_of(&server, calling);
            let told = Arc::clone(&near);
            let (sender, receiver) = if to_server { (near, far) } else { (far, near) };
            let counted = usize::from(to_server);
            let is_over_tls = || server.inviting.counts()[counted].count() > 0;
            let is_over_quic = || !told.moves().is_empty();
            send_until(&sender, &receiver, || {
                // As the thread would that watches the losses.
                match is_over_tls() {
                    true if to_server => client.asked_for_quic(10_000),
                    true => server.inviting.hold_back(10_000),
                    false => {}
                }
                is_over_quic()
            });
            assert_eq!(told.moves(), [Move::new(Carrier::Quic, MoveCause::Loss { per_million: 10_000 })]);
            // Four of TLS, and one of QUIC.
            assert_eq!(server.connections.count(), 5);
        }
    }

    #[test]
    fn who_asked_for_tls_stays_there() {
        let server = session_of(true);
        let plan = Plan { by_loss: false, ..server.plan };
        let (near, far) = pair_of(&server, Calling::new(server.client.clone(), server.address, plan));
        send_until(&far, &near, || {
            server.inviting.hold_back(10_000);
            server.connections.count() >= 4
        });
        assert_eq!(near.moves(), []);
        assert_eq!(server.connections.count(), 4);
    }

    #[test]
    fn where_it_does_not_get_through_lanes_go_on_by_tls() {
        // A port without UDP, one whose datagrams nobody reads, and one whose parent leads them nowhere.
        for case in 0..3 {
            let server = session();
            let unread = (case == 1).then(|| DatagramPort::alone(server.address));
            let nowhere = (case == 2).then(|| DatagramPort::alone(server.address));
            if let Some(Ok(port)) = nowhere {
                thread::spawn(move || while port.next_preface().is_ok() {});
            }
            let calling = Calling::new(server.client.clone(), server.address, plan(Some(MoveCause::Far)));
            calling.told_of_quic();
            let (near, far) = pair_of(&server, calling);
            send_until(&near, &far, || server.connections.count() >= 4);
            assert_eq!(near.moves(), []);
            drop(unread);
        }
    }

    #[test]
    fn a_port_without_it_is_not_asked_and_a_client_without_it_is_not_told() {
        // The server says nothing of QUIC, so that there is no wait for it.
        let server = Server { plan: plan(Some(MoveCause::Asked)), ..session() };
        let (near, far) = pair_to(&server, server.address);
        send_until(&near, &far, || server.connections.count() >= 4);
        assert_eq!(near.moves(), []);

        // A peer that speaks of it without the feature breaks a rule.
        let server = session_over_quic();
        let without =
            Plan { knows_quic: false, moves_again: false, by_loss: false, quic: None, ..server.plan };
        let (near, _far) = pair_of(&server, Calling::new(server.client.clone(), server.address, without));
        let refused = near.accept_lane().err().unwrap();
        assert!(matches!(refused, LinkError::Carrier { .. }), "{refused:?}");
    }

    /// Calls as a client would that has this key and this secret; returns whether it was let in.
    fn call(server: &Server, identity: &Identity, secret: &Token) -> bool {
        let invitation = Invitation { secret: secret.clone(), ..invitation(server) };
        let called = quic::call(identity, server.address, &invitation, PATIENCE);
        // The connection lasts as long as the test.
        called.map(std::mem::forget).is_ok()
    }

    #[test]
    fn only_the_clients_key_and_the_secret_together_are_let_in_once() {
        let server = session_over_quic();
        let secret = invitation(&server).secret;
        let other = Identity::generate().unwrap();
        assert!(!call(&server, &server.client, &Token([7; 32])));
        assert!(!call(&server, &other, &secret));
        let elsewhere = Invitation { session: SessionNumber([8; 16]), ..invitation(&server) };
        assert!(quic::call(&server.client, server.address, &elsewhere, PATIENCE).is_err());
        assert_eq!(server.connections.count(), 0);

        assert!(call(&server, &server.client, &secret));
        assert_eq!(server.connections.count(), 1);
        // There is one of them.
        assert!(!call(&server, &server.client, &secret));
        assert_eq!(server.connections.count(), 1);
    }

    #[test]
    fn a_peer_cannot_go_on_by_a_stream_without_a_connection() {
        let server = session_over_quic();
        for number in [1 << 31, u32::MAX] {
            let refused = server.inviting.receive(number).err().unwrap();
            assert!(matches!(refused, LinkError::Carrier { .. }), "{refused:?}");
        }
    }

    #[test]
    fn one_that_breaks_in_the_middle_ends_the_link_and_is_no_clean_end() {
        // As QUIC tells it over ssh.
        let error = break_in_the_middle(&session_over_quic());
        assert_eq!(error.to_string(), LinkError::PeerClosed { reason: CloseReason::Failed }.to_string());
    }
}

/// Sends from one end until `is_enough`, and checks that the other receives just that.
fn send_until(sender: &Arc<dyn Link>, receiver: &Arc<dyn Link>, is_enough: impl Fn() -> bool + Sync) {
    let Lane { mut tx, rx: _rx } = sender.open_lane().unwrap();
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let since = Instant::now();
            let mut pieces = 0_u64;
            // Some behind the last one that was waited for.
            while !is_enough() || pieces < 8 {
                tx.write(pattern(pieces, 1 << 20)).unwrap();
                pieces += 1;
                assert!(since.elapsed() < PATIENCE);
            }
            tx.write(pattern(pieces, 1 << 20)).unwrap();
            tx.finish().unwrap();
            pieces + 1
        });
        let mut lane = receiver.accept_lane().unwrap();
        let mut piece = vec![0; 1 << 20];
        let mut pieces = 0;
        while lane.rx.fill(&mut piece).unwrap() == piece.len() {
            assert_eq!(piece, pattern(pieces, 1 << 20));
            pieces += 1;
        }
        assert_eq!(pieces, sending.join().unwrap());
    });
}

#[test]
fn a_long_lane_moves_in_either_direction_and_its_bytes_keep_their_order() {
    for to_server in [true, false] {
        let server = session();
        let (near, far) = pair_to(&server, server.address);
        let (sender, receiver) = if to_server { (near, far) } else { (far, near) };
        let (sent, received) = (server.inviting.counts(), || server.connections.count() >= 4);
        send_until(&sender, &receiver, received);
        let [moved_here, moved_there] = sent.map(|count| count.count() > 0);
        assert_eq!((moved_here, moved_there), (!to_server, to_server));
    }
}

#[test]
fn a_peer_without_second_moves_has_the_first_one() {
    for to_server in [true, false] {
        let server = older_session();
        let (near, far) = pair_to(&server, server.address);
        let (sender, receiver) = if to_server { (near, far) } else { (far, near) };
        send_until(&sender, &receiver, || server.connections.count() >= 4);
        assert!(server.inviting.counts()[usize::from(to_server)].count() > 0);
    }
}

#[test]
fn where_no_connection_can_be_made_everything_goes_on() {
    let server = session();
    // Closed at once, silent, and no port at all.
    let closing = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let refusing = TcpListener::bind("127.0.0.1:0").unwrap();
    let addresses = [&closing, &silent, &refusing].map(|listener| listener.local_addr().unwrap());
    drop(refusing);
    thread::spawn(move || closing.incoming().for_each(drop));
    for address in addresses {
        let (near, far) = pair_to(&session(), address);
        for (sender, receiver) in [(&near, &far), (&far, &near)] {
            send_until(sender, receiver, || true);
        }
    }
    assert_eq!(server.connections.count(), 0);
}

/// Connects as a client would that has this key, and shows these.
fn call(server: &Server, identity: &Identity, (kind, number): (u8, u32), secret: &Token) -> bool {
    let Invitation { server: fingerprint, .. } = invitation(server);
    let (config, _) = identity.client_config(fingerprint).unwrap();
    let mut tcp = TcpStream::connect(server.address).unwrap();
    tcp.write_all(&preface(&SessionNumber([9; 16]))).unwrap();
    let Ok((stream, mut opener)) = Stream::client(tcp, Arc::new(config), DIAL_TIME) else { return false };
    let mut admitted = [0];
    let asked = Sealer::default().write(&stream, &opening(kind, true, number, secret));
    let heard = read_exactly(&stream, &mut opener, &mut admitted, Instant::now() + DIAL_TIME);
    let is_in = asked.is_ok() && heard.is_ok() && admitted == ADMITTED;
    if is_in {
        // The connection lasts as long as the test.
        std::mem::forget(stream);
    }
    is_in
}

fn invitation(server: &Server) -> Invitation {
    Invitation::parse(&server.inviting.invitation().unwrap())
}

#[test]
fn only_the_clients_key_and_the_secret_together_are_let_in() {
    let server = session();
    let secret = invitation(&server).secret;
    let other = Identity::generate().unwrap();
    assert!(!call(&server, &server.client, (OURS, 0), &Token([7; 32])));
    assert!(!call(&server, &other, (OURS, 0), &secret));
    assert!(!call(&server, &server.client, (0, 0), &secret));
    assert!(!call(&server, &server.client, (3, 0), &secret));
    assert_eq!(server.connections.count(), 0);
    assert!(call(&server, &server.client, (OURS, 0), &secret));
    // A number is used once.
    assert!(!call(&server, &server.client, (OURS, 0), &secret));
    assert_eq!(server.connections.count(), 1);
}

#[test]
fn a_session_has_a_bounded_number_of_connections() {
    let server = session();
    let secret = invitation(&server).secret;
    let admitted = (0..2 * MOST).filter(|number| {
        let kind = if number % 2 == 0 { OURS } else { THEIRS };
        call(&server, &server.client, (kind, u32::try_from(*number).unwrap()), &secret)
    });
    // Of those that the server sends on the client hears first and is refused then.
    assert!(admitted.count() >= MOST);
    assert_eq!(server.connections.count(), MOST as u64);
}

#[test]
fn strangers_who_know_the_number_take_some_places_and_no_more() {
    let server = session();
    let secret = invitation(&server).secret;
    // Half-open: the preface, and nothing behind it.
    let idle: Vec<_> = (0..100)
        .map(|_| {
            let mut tcp = TcpStream::connect(server.address).unwrap();
            tcp.write_all(&preface(&SessionNumber([9; 16]))).unwrap();
            tcp
        })
        .collect();
    // All but a few are closed at once: no handshake waits for them.
    let since = Instant::now();
    let mut most = 0;
    while idle.iter().any(|tcp| !is_closed(tcp)) {
        most = most.max(server.inviting.strangers());
        assert!(most <= MOST_STRANGERS && since.elapsed() < PATIENCE);
    }
    assert!(most > 0);
    // Their places are free again when their time is over.
    let since = Instant::now();
    while !call(&server, &server.client, (OURS, 1), &secret) {
        assert!(since.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(100));
    }
    drop(idle);
}

fn is_closed(mut tcp: &TcpStream) -> bool {
    tcp.set_nonblocking(true).unwrap();
    matches!(tcp.read(&mut [0]), Ok(0))
}

#[test]
fn a_peer_cannot_go_on_by_a_connection_that_is_not_there() {
    let server = session();
    for number in [0, 1, u32::MAX] {
        let refused = server.inviting.receive(number).err().unwrap();
        assert!(matches!(refused, LinkError::Carrier { .. }), "{refused:?}");
    }
}

#[test]
fn a_connection_that_breaks_in_the_middle_ends_the_link() {
    let error = break_in_the_middle(&session());
    assert!(error.is_retryable(), "{error:?}");
}

/// Drops a lane in the middle, when it has moved; the link ends with it. Returns the error of its reader.
fn break_in_the_middle(server: &Server) -> LinkError {
    let (near, far) = pair_to(server, server.address);
    let mut lane = near.open_lane().unwrap();
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut there = far.accept_lane().unwrap();
            let mut buf = vec![0; 1 << 20];
            loop {
                match there.rx.read(&mut buf) {
                    Ok(0) => panic!("a clean end"),
                    Ok(_) => {}
                    Err(error) => return error,
                }
            }
        });
        let since = Instant::now();
        while server.inviting.counts()[1].count() == 0 {
            lane.tx.write(pattern(1, 1 << 20)).unwrap();
            assert!(since.elapsed() < PATIENCE);
        }

        // Without an end: what arrived is not the whole.
        drop(lane);
        let error = reading.join().unwrap();
        assert!(far.open_lane().is_err());
        error
    })
}

#[test]
fn prefaces_are_told_from_everything_else() {
    let whole = preface(&SessionNumber([5; 16]));
    for len in 1..PREFACE {
        assert_eq!(parse_preface(&whole[..len]), Prefaced::Unfinished);
    }
    assert_eq!(parse_preface(&whole), Prefaced::Of(SessionNumber([5; 16])));
    for other in [&b""[..], b"\x16\x03\x01", b"GET / HTTP/1.1\r\n", b"\x89dsync\r\n\x1a\n", b"\x89PNG"] {
        assert_eq!(parse_preface(other), Prefaced::No, "{other:?}");
    }
    let mut wrong = whole;
    wrong[3] ^= 1;
    assert_eq!(parse_preface(&wrong), Prefaced::No);
}
