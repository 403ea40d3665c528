use std::{
    io::{ErrorKind, Read},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use dsync_wire::{
    bootstrap::{Fingerprint, PortRange, Token},
    link::{CloseReason, Link, LinkError},
};

use super::{
    Established, TlsLink,
    handshake::{Credentials, Offer, Probe, dial, probe},
    stream::{Opener, Sealer, Stream, StreamError},
};
use crate::{
    identity::Identity,
    pipe::PipeReader,
    race::{Addresses, DialError},
    reactor::Reactor,
    suite::{Pair, suite},
};

/// A server that waits for one client, and the facts that the client learns over ssh.
struct Stage {
    /// The fingerprint of the server's key.
    key: Fingerprint,
    server: Reactor,
    client: Reactor,
    offer: Option<Offer>,
    address: SocketAddr,
}

impl Stage {
    fn new(client: Fingerprint, window: Duration) -> Self {
        Self::with((client, TOKEN), IDLE, window)
    }

    fn with(client: (Fingerprint, Token), idle: Duration, window: Duration) -> Self {
        let server = Reactor::start().unwrap();
        let identity = Identity::generate().unwrap();
        let key = identity.fingerprint();
        let offer = server
            .run(async move { Offer::open(&identity, client, None, Some(CLIENT), idle, window).unwrap() })
            .unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, offer.port()));
        Self { key, server, client: Reactor::start().unwrap(), offer: Some(offer), address }
    }

    fn dial(&self, identity: Identity, token: Token) -> Result<Established, DialError> {
        self.dial_with(&Credentials { identity, server: self.key, token, idle_timeout: IDLE })
    }

    fn dial_with(&self, credentials: &Credentials) -> Result<Established, DialError> {
        dial(self.probe()?, credentials, WAIT)
    }

    fn probe(&self) -> Result<Probe, DialError> {
        let addresses = Addresses { first: vec![self.address], later: async { Vec::new() } };
        self.client.run(async move { probe(addresses, WAIT).await }).unwrap()
    }

    /// Makes both links, and the streams that each takes for ssh's: dropping one looks like the end
    /// of ssh.
    fn links(mut self, winner: Established) -> (Pair, [OwnedFd; 2]) {
        let accepted = self.offer.take().unwrap().take().unwrap();
        let (a, from_a) = start(self.client, winner);
        let (b, from_b) = start(self.server, accepted);
        ((a, b), [from_a, from_b])
    }
}

fn start(reactor: Reactor, established: Established) -> (Arc<dyn Link>, OwnedFd) {
    let (read, write) = rustix::pipe::pipe().unwrap();
    let reader = reactor.run(async move { PipeReader::new(read).unwrap() }).unwrap();
    (Arc::new(TlsLink::start(reactor, established, reader, ())), write)
}

fn connected() -> (Pair, [OwnedFd; 2]) {
    let identity = Identity::generate().unwrap();
    let stage = Stage::new(identity.fingerprint(), WINDOW);
    let winner = stage.dial(identity, TOKEN).unwrap();
    stage.links(winner)
}

#[test]
fn both_ends_take_the_path_for_what_the_client_measured() {
    for (round_trip, near) in [(Duration::from_micros(100), true), (Duration::from_millis(40), false)] {
        let identity = Identity::generate().unwrap();
        let stage = Stage::new(identity.fingerprint(), WINDOW);
        let credentials = Credentials { identity, server: stage.key, token: TOKEN, idle_timeout: IDLE };
        let mut probe = stage.probe().unwrap();
        probe.round_trip = round_trip;
        let winner = dial(probe, &credentials, WAIT).unwrap();
        let ((client, server), _ssh) = stage.links(winner);
        assert_eq!([client.is_near(), server.is_near()], [near; 2], "{round_trip:?}");
    }
}

/// Makes a pair whose ends of ssh live as long as the test's process.
fn pair() -> Pair {
    let (pair, ssh) = connected();
    let _ = ssh.map(std::mem::forget);
    pair
}

suite!(super::pair);

/// The same with the server first: its lanes are connections that it requests from the client.
mod from_the_server {
    fn pair() -> super::Pair {
        let (a, b) = super::pair();
        (b, a)
    }

    crate::suite::suite!(super::pair);
}

#[test]
fn a_server_with_another_key_gets_nothing() {
    let identity = Identity::generate().unwrap();
    let stage = Stage::new(identity.fingerprint(), WINDOW);
    let server = Identity::generate().unwrap().fingerprint();
    let dialed = stage.dial_with(&Credentials { identity, server, token: TOKEN, idle_timeout: IDLE });
    assert!(matches!(dialed, Err(DialError::WrongKey(at)) if at == stage.address));
}

#[test]
fn a_client_with_another_key_is_refused_and_the_right_one_still_gets_in() {
    let identity = Identity::generate().unwrap();
    let stage = Stage::new(identity.fingerprint(), WINDOW);
    let stranger = stage.dial(Identity::generate().unwrap(), TOKEN);
    assert!(matches!(stranger, Err(DialError::Refused(_))));
    let winner = stage.dial(identity, TOKEN).unwrap();
    stage.links(winner);
}

#[test]
fn showing_a_key_without_having_it_proves_nothing() {
    let identity = Identity::generate().unwrap();
    let stage = Stage::new(identity.fingerprint(), WINDOW);
    let thief = Identity::generate().unwrap().pretending_to_be(&identity);
    assert_eq!(thief.fingerprint(), identity.fingerprint());
    assert!(matches!(stage.dial(thief, TOKEN), Err(DialError::Refused(_))));
}

#[test]
fn a_wrong_token_is_refused_and_the_right_one_still_gets_in() {
    let identity = Identity::generate().unwrap();
    let stage = Stage::new(identity.fingerprint(), WINDOW);
    assert!(matches!(stage.dial(identity.clone(), Token([1; 32])), Err(DialError::Refused(_))));
    let winner = stage.dial(identity, TOKEN).unwrap();
    stage.links(winner);
}

#[test]
fn a_bootstrap_is_good_for_one_client() {
    let identity = Identity::generate().unwrap();
    let stage = Stage::new(identity.fingerprint(), WINDOW);
    let first = stage.dial(identity.clone(), TOKEN).unwrap();
    // The same key and token, as in a replay of everything that ssh carried.
    assert!(matches!(stage.dial(identity, TOKEN), Err(DialError::Refused(_))));
    let ((a, b), _ssh) = stage.links(first);
    let mut lane = a.open_lane().unwrap();
    lane.tx.write(Bytes::from_static(b"x")).unwrap();
    b.accept_lane().unwrap();
}

/// Makes a connection with the right key that shows `secret` for a lane of the given kind, and
/// sends a byte.
fn lane_of(stage: &Stage, identity: &Identity, kind: u8, secret: [u8; 32]) -> (Stream, Opener) {
    let (config, _) = identity.client_config(stage.key).unwrap();
    let tcp = TcpStream::connect(stage.address).unwrap();
    let (stream, opener) = Stream::client(tcp, Arc::new(config), WAIT).unwrap();
    let opening = [&[kind, 0][..], &9_u32.to_le_bytes(), &secret].concat();
    let mut sealer = Sealer::default();
    sealer.write(&stream, &opening).unwrap();
    // A rejected connection may have ended already.
    let _ = sealer.write(&stream, b"x");
    (stream, opener)
}

/// Returns whether the server ends such a connection without another word.
fn lane_is_turned_away(stage: &Stage, identity: &Identity, kind: u8, secret: [u8; 32]) -> bool {
    let (stream, mut opener) = lane_of(stage, identity, kind, secret);
    stream.set_read_timeout(Some(WAIT)).unwrap();
    let outcome = opener.wait(&stream);
    !matches!(&outcome, Err(StreamError::Io(error)) if error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn a_lane_needs_the_secret_of_the_link_and_must_have_been_asked_for() {
    let identity = Identity::generate().unwrap();
    let stage = Stage::new(identity.fingerprint(), WINDOW);
    let first = stage.dial(identity.clone(), TOKEN).unwrap();
    let secret = first.secret().unwrap();
    let lane_of_client = 1;
    let lane_of_server = 2;
    let is_turned_away = |kind, secret| lane_is_turned_away(&stage, &identity, kind, secret);
    assert!(is_turned_away(lane_of_client, TOKEN.0), "the token is no secret of the link");
    assert!(is_turned_away(lane_of_client, [0; 32]));
    assert!(is_turned_away(lane_of_server, secret.0), "nobody asked for it");
    assert!(is_turned_away(3, secret.0), "there is no such kind");
    let _let_in = lane_of(&stage, &identity, lane_of_client, secret.0);
    let ((_client, server), _ssh) = stage.links(first);
    let mut byte = [0];
    assert_eq!((server.accept_lane().unwrap().rx.read(&mut byte).unwrap(), byte), (1, *b"x"));
}

#[test]
fn connections_that_say_nothing_do_not_keep_the_right_client_out() {
    let identity = Identity::generate().unwrap();
    let stage = Stage::new(identity.fingerprint(), WINDOW);
    let silent: Vec<_> = (0..40).map(|_| TcpStream::connect(stage.address).unwrap()).collect();
    let winner = stage.dial(identity, TOKEN).unwrap();
    stage.links(winner);
    drop(silent);
}

#[test]
fn strangers_do_not_cost_a_slow_client_its_place() {
    let identity = Identity::generate().unwrap();
    let stage = Stage::new(identity.fingerprint(), WINDOW);
    let addresses = Addresses { first: vec![stage.address], later: async { Vec::new() } };
    let probe = stage.client.run(async move { probe(addresses, WAIT).await }).unwrap().unwrap();
    // Each gets a place, which evicts an earlier stranger; its end proves that for the last one.
    let silent: Vec<_> = (0..40).map(|_| stranger(stage.address)).collect();
    for evicted in &silent[..40 - 15] {
        evicted.set_read_timeout(Some(WAIT)).unwrap();
        assert!(
            !matches!((&mut &*evicted).read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
        );
    }
    let credentials = Credentials { identity, server: stage.key, token: TOKEN, idle_timeout: IDLE };
    let winner = dial(probe, &credentials, WAIT).unwrap();
    stage.links(winner);
}

/// Connects from an address that is not the client's.
fn stranger(to: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, 66], 0))).unwrap();
    connect(&socket, &to).unwrap();
    socket.into()
}

#[test]
fn a_late_client_finds_the_port_closed() {
    let identity = Identity::generate().unwrap();
    let stage = Stage::new(identity.fingerprint(), Duration::from_millis(1));
    let since = Instant::now();
    while TcpStream::connect(stage.address).is_ok() {
        assert!(since.elapsed() < WAIT, "the port stays open");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(matches!(stage.dial(identity, TOKEN), Err(DialError::NoAnswer | DialError::Refused(_))));
}

#[test]
fn a_late_lane_finds_the_port_closed() {
    let identity = Identity::generate().unwrap();
    let stage = Stage::new(identity.fingerprint(), WINDOW);
    let address = stage.address;
    let winner = stage.dial(identity, TOKEN).unwrap();
    let ((a, b), _ssh) = stage.links(winner);
    b.close(CloseReason::Done);
    drop(b);
    assert!(TcpStream::connect(address).is_err());
    assert!(a.open_lane().is_err());
}

#[test]
fn a_port_that_answers_nothing_is_given_up_after_the_wait() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let addresses =
        Addresses { first: vec![silent.local_addr().unwrap()], later: async { Vec::<SocketAddr>::new() } };
    let reactor = Reactor::start().unwrap();
    let wait = Duration::from_millis(400);
    let probe = reactor.run(async move { probe(addresses, wait).await }).unwrap().unwrap();
    assert!(probe.is_near());
    let identity = Identity::generate().unwrap();
    let server = identity.fingerprint();
    let begun = Instant::now();
    let dialed = dial(probe, &Credentials { identity, server, token: TOKEN, idle_timeout: IDLE }, wait);
    assert!(matches!(dialed, Err(DialError::NoAnswer)));
    assert!(begun.elapsed() >= wait);
}

#[test]
fn the_end_of_ssh_ends_the_link() {
    let ((a, b), [_client_ssh, server_ssh]) = connected();
    drop(server_ssh);
    assert!(matches!(b.accept_lane(), Err(LinkError::Lost)));
    assert!(matches!(a.accept_lane(), Err(LinkError::PeerClosed { reason: CloseReason::Failed })));
}

#[test]
fn a_reason_that_comes_before_the_end_of_ssh_is_kept() {
    let ((a, b), ssh) = connected();
    a.close(CloseReason::Done);
    drop(ssh);
    assert!(matches!(b.accept_lane(), Err(LinkError::PeerClosed { reason: CloseReason::Done })));
    assert!(matches!(a.accept_lane(), Err(LinkError::Closed)));
}

#[test]
fn only_ports_of_the_range_are_opened() {
    let opened = (0..50).find_map(|_| {
        let taken = crate::ports::tcp_listener(None).unwrap();
        let port = std::num::NonZeroU16::new(taken.local_addr().unwrap().port()).unwrap();
        let range = PortRange::new(port, port).unwrap();
        let refused = crate::ports::tcp_listener(Some(range)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AddrInUse);
        drop(taken);
        // UDP has ports of its own. Somebody else on the machine may take either one meanwhile:
        // then try the next.
        let [tcp, udp] = [
            crate::ports::tcp_listener(Some(range)).map(|socket| socket.local_addr()),
            crate::ports::udp_socket(Some(range)).map(|socket| socket.local_addr()),
        ];
        let ports = [tcp.ok()?.unwrap().port(), udp.ok()?.unwrap().port()];
        assert_eq!(ports, [port.get(); 2]);
        Some(())
    });
    assert!(opened.is_some());
}

#[test]
fn a_lane_that_nobody_reads_or_writes_outlives_the_idle_time() {
    let idle_timeout = Duration::from_secs(10);
    let identity = Identity::generate().unwrap();
    let stage = Stage::with((identity.fingerprint(), TOKEN), idle_timeout, WINDOW);
    let credentials = Credentials { identity, server: stage.key, token: TOKEN, idle_timeout };
    let winner = stage.dial_with(&credentials).unwrap();
    let ((client, server), _ssh) = stage.links(winner);

    let mut quiet = client.open_lane().unwrap();
    quiet.tx.write(Bytes::from_static(b"x")).unwrap();
    let mut heard = server.accept_lane().unwrap();
    heard.rx.read(&mut [0]).unwrap();
    let mut full = client.open_lane().unwrap();
    // More than all buffers of the system hold.
    let content = Bytes::from(vec![7; 64 << 20]);
    let len = content.len();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            full.tx.write(content).unwrap();
            full.tx.finish().unwrap();
        });
        let mut unread = server.accept_lane().unwrap();
        std::thread::sleep(idle_timeout * 2 + idle_timeout / 5);
        assert_eq!(unread.rx.fill(&mut vec![0; len + 1]).unwrap(), len);
    });
    quiet.tx.write(Bytes::from_static(b"y")).unwrap();
    assert_eq!(heard.rx.read(&mut [0]).unwrap(), 1);
}

/// Address of the client in these tests.
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const TOKEN: Token = Token([7; 32]);
const IDLE: Duration = Duration::from_secs(300);
/// Longer than anything here takes, even on the busiest machine.
const WAIT: Duration = Duration::from_secs(300);
const WINDOW: Duration = Duration::from_secs(300);
