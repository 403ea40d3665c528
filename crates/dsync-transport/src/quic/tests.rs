use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use dsync_wire::{
    bootstrap::{Fingerprint, Token},
    link::{CloseReason, Link, LinkError},
};
use quinn::{Connection, Endpoint, EndpointConfig, TokioRuntime};

use super::{
    QuicLink,
    handshake::{Dialer, Offer, dial},
    settings,
    steady::MOST_AT_ONCE,
};
use crate::{
    identity::Identity,
    pipe::PipeReader,
    race::{Addresses, DialError},
    reactor::{PARKED, Reactor},
    suite::{Pair, suite},
};

#[test]
fn a_long_path_gets_more_lanes_than_a_short_one() {
    let lanes = |milliseconds, cores| super::data_lanes(Duration::from_millis(milliseconds), cores);
    assert_eq!([lanes(0, 1), lanes(1, 2), lanes(4, 4), lanes(8, 4), lanes(23, 4)], [4, 4, 4, 6, 16]);
    assert_eq!([lanes(0, 6), lanes(0, 64), lanes(100, 64), lanes(60_000, 1)], [6, 8, 16, 16]);
    assert_eq!(super::data_lanes(Duration::MAX, usize::MAX), 16);
}

/// A server that waits for one client, and the facts that it learns over ssh.
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
        let server = Reactor::start().unwrap();
        let identity = Identity::generate().unwrap();
        let key = identity.fingerprint();
        let offer = server
            .run(async move { Offer::open(&identity, (client, TOKEN), None, None, IDLE, window).unwrap() })
            .unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, offer.port().unwrap()));
        Self { key, server, client: Reactor::start().unwrap(), offer: Some(offer), address }
    }

    fn dial(&self, identity: Identity, token: Token) -> Result<(Connection, Endpoint), DialError> {
        self.dial_within(identity, token, WAIT)
    }

    fn dial_within(
        &self,
        identity: Identity,
        token: Token,
        wait: Duration,
    ) -> Result<(Connection, Endpoint), DialError> {
        let dialer = Dialer { identity, server: self.key, token, idle_timeout: IDLE };
        let address = only(self.address);
        self.client.run(async move { dial(dialer, address, wait).await }).unwrap()
    }

    /// Makes both links, and the streams that each takes for ssh's: dropping one looks like the end
    /// of ssh.
    fn links(mut self, winner: (Connection, Endpoint)) -> (Pair, [OwnedFd; 2]) {
        let accepted = self.server.run({
            let offer = self.offer.take().unwrap();
            async move { offer.take().unwrap() }
        });
        let (a, from_a) = start(self.client, winner);
        let (b, from_b) = start(self.server, accepted.unwrap());
        ((a, b), [from_a, from_b])
    }
}

fn start(reactor: Reactor, (connection, endpoint): (Connection, Endpoint)) -> (Arc<dyn Link>, OwnedFd) {
    let (read, write) = rustix::pipe::pipe().unwrap();
    let reader = reactor.run(async move { PipeReader::new(read).unwrap() }).unwrap();
    (Arc::new(QuicLink::start(reactor, connection, endpoint, reader, ())), write)
}

fn only(address: SocketAddr) -> Addresses<impl Future<Output = Vec<SocketAddr>> + Send> {
    Addresses { first: vec![address], later: async { Vec::new() } }
}

/// Makes a pair whose ends of ssh live as long as the test's process.
fn pair() -> Pair {
    let (pair, ssh) = connected();
    let _ = ssh.map(std::mem::forget);
    pair
}

fn connected() -> (Pair, [OwnedFd; 2]) {
    let identity = Identity::generate().unwrap();
    let stage = Stage::new(identity.fingerprint(), WINDOW);
    let winner = stage.dial(identity, TOKEN).unwrap();
    stage.links(winner)
}

suite!(super::pair);

#[test]
fn a_server_with_another_key_gets_nothing() {
    let identity = Identity::generate().unwrap();
    let stage = Stage::new(identity.fingerprint(), WINDOW);
    let announced = Identity::generate().unwrap().fingerprint();
    let dialer = Dialer { identity, server: announced, token: TOKEN, idle_timeout: IDLE };
    let address = stage.address;
    let dialed = stage.client.run(async move { dial(dialer, only(address), WAIT).await });
    assert!(matches!(dialed.unwrap(), Err(DialError::WrongKey(at)) if at == address));
}

#[test]
fn a_client_with_another_key_is_refused_and_the_right_one_still_gets_in() {
    let identity = Identity::generate().unwrap();
    let stage = Stage::new(identity.fingerprint(), WINDOW);
    let stranger = stage.dial(Identity::generate().unwrap(), TOKEN);
    assert!(matches!(stranger, Err(DialError::Refused(_))), "{stranger:?}");
    let winner = stage.dial(identity, TOKEN).unwrap();
    stage.links(winner);
}

#[test]
fn showing_a_key_without_having_it_proves_nothing() {
    let identity = Identity::generate().unwrap();
    let stage = Stage::new(identity.fingerprint(), WINDOW);
    let thief = Identity::generate().unwrap().pretending_to_be(&identity);
    assert_eq!(thief.fingerprint(), identity.fingerprint());
    let stolen = stage.dial(thief, TOKEN);
    assert!(matches!(stolen, Err(DialError::Refused(_))), "{stolen:?}");
}

#[test]
fn a_wrong_token_is_refused_and_the_right_one_still_gets_in() {
    let identity = Identity::generate().unwrap();
    let stage = Stage::new(identity.fingerprint(), WINDOW);
    let guessed = stage.dial(identity.clone(), Token([1; 32]));
    assert!(matches!(guessed, Err(DialError::Refused(_))), "{guessed:?}");
    let winner = stage.dial(identity, TOKEN).unwrap();
    stage.links(winner);
}

#[test]
fn a_bootstrap_is_good_for_one_client() {
    let identity = Identity::generate().unwrap();
    let stage = Stage::new(identity.fingerprint(), WINDOW);
    let first = stage.dial(identity.clone(), TOKEN).unwrap();
    // The same key and token, as in a replay of everything that ssh carried.
    let second = stage.dial_within(identity, TOKEN, SILENCE);
    assert!(matches!(second, Err(DialError::Refused(_) | DialError::NoAnswer)), "{second:?}");
    let ((a, b), _ssh) = stage.links(first);
    let mut lane = a.open_lane().unwrap();
    lane.tx.write(Bytes::from_static(b"x")).unwrap();
    b.accept_lane().unwrap();
}

#[test]
fn a_late_client_finds_the_port_closed() {
    let identity = Identity::generate().unwrap();
    let stage = Stage::new(identity.fingerprint(), Duration::from_millis(1));
    let since = Instant::now();
    while !stage.offer.as_ref().unwrap().is_over() {
        assert!(since.elapsed() < WAIT, "the port stays open");
        std::thread::sleep(Duration::from_millis(1));
    }
    let late = stage.dial_within(identity, TOKEN, SILENCE);
    assert!(matches!(late, Err(DialError::Refused(_) | DialError::NoAnswer)), "{late:?}");
}

#[test]
fn a_crowd_of_strangers_does_not_keep_the_right_client_out() {
    let identity = Identity::generate().unwrap();
    let stage = Stage::new(identity.fingerprint(), WINDOW);
    // First packets of connections that are never heard of again, each from a port of its own, and
    // noise.
    let stranger = Identity::generate().unwrap();
    stage.client.run({
        let (tls, _) = stranger.client_config(stage.key).unwrap();
        let config = settings::client(tls, settings::transport(IDLE, None)).unwrap();
        let address = stage.address;
        async move {
            for number in 0..300_u32 {
                let socket = settings::bind_for(address).unwrap();
                let mut noise = [0xc3; 1200];
                noise[1..5].copy_from_slice(&1_u32.to_be_bytes());
                noise[6..10].copy_from_slice(&number.to_be_bytes());
                socket.send_to(&noise, address).unwrap();
                let endpoint =
                    Endpoint::new(EndpointConfig::default(), None, socket, Arc::new(TokioRuntime)).unwrap();
                let connecting = endpoint.connect_with(config.clone(), address, "dsync").unwrap();
                tokio::task::yield_now().await;
                drop((connecting, endpoint));
            }
        }
    });
    let winner = stage.dial(identity, TOKEN).unwrap();
    stage.links(winner);
}

#[test]
fn connections_that_say_nothing_do_not_keep_the_right_client_out() {
    let identity = Identity::generate().unwrap();
    let stage = Stage::new(identity.fingerprint(), WINDOW);
    let (tls, _) = identity.client_config(stage.key).unwrap();
    let config = settings::client(tls, settings::transport(IDLE, None)).unwrap();
    let address = stage.address;
    let silent = stage.client.run(async move {
        let mut silent = Vec::new();
        for _ in 0..20 {
            let socket = settings::bind_for(address).unwrap();
            let endpoint =
                Endpoint::new(EndpointConfig::default(), None, socket, Arc::new(TokioRuntime)).unwrap();
            // With the right key, so that the handshake gets as far as it can; but no token
            // follows.
            let connection = endpoint.connect_with(config.clone(), address, "dsync").unwrap().await.unwrap();
            silent.push((connection, endpoint));
        }
        silent
    });
    let winner = stage.dial(identity, TOKEN).unwrap();
    stage.links(winner);
    drop(silent);
}

#[test]
fn a_silent_port_is_given_up_after_the_wait() {
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let identity = Identity::generate().unwrap();
    let server = identity.fingerprint();
    let dialer = Dialer { identity, server, token: TOKEN, idle_timeout: IDLE };
    let address = silent.local_addr().unwrap();
    let wait = Duration::from_millis(400);
    let begun = Instant::now();
    let reactor = Reactor::start().unwrap();
    let dialed = reactor.run(async move { dial(dialer, only(address), wait).await });
    assert!(matches!(dialed.unwrap(), Err(DialError::NoAnswer)));
    assert!(begun.elapsed() >= wait);
}

#[test]
fn the_second_address_wins_when_the_first_is_silent() {
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let identity = Identity::generate().unwrap();
    let stage = Stage::new(identity.fingerprint(), WINDOW);
    let dialer = Dialer { identity, server: stage.key, token: TOKEN, idle_timeout: IDLE };
    let resolved = vec![silent, stage.address];
    let addresses = Addresses { first: vec![silent], later: async { resolved } };
    let dialed = stage.client.run(async move { dial(dialer, addresses, WAIT).await });
    stage.links(dialed.unwrap().unwrap());
}

#[test]
fn no_address_at_all_fails_at_once() {
    let identity = Identity::generate().unwrap();
    let dialer = Dialer { server: identity.fingerprint(), identity, token: TOKEN, idle_timeout: IDLE };
    let reactor = Reactor::start().unwrap();
    let dialed = reactor.run(async move {
        dial(dialer, Addresses { first: Vec::new(), later: async { Vec::new() } }, WAIT).await
    });
    assert!(matches!(dialed.unwrap(), Err(DialError::Unreachable(None))));
}

#[test]
fn the_port_is_reached_over_both_families() {
    if UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        return;
    }
    let identity = Identity::generate().unwrap();
    let mut stage = Stage::new(identity.fingerprint(), WINDOW);
    stage.address.set_ip(IpAddr::V6(Ipv6Addr::LOCALHOST));
    let winner = stage.dial(identity, TOKEN).unwrap();
    stage.links(winner);
}

#[test]
fn a_thread_that_waits_for_much_is_not_woken_for_every_packet() {
    // One wake-up to see that packets arrive one by one, one for the rest. A busy machine brings
    // some together, and then the thread is woken for them.
    assert!((0..100).any(|_| times_woken_for_200_packets() <= 4));
}

fn times_woken_for_200_packets() -> u64 {
    let ((a, b), _ssh) = connected();
    let mut near = a.open_lane().unwrap();
    near.tx.write(Bytes::from_static(b"!")).unwrap();
    let mut far = b.accept_lane().unwrap();
    far.rx.read(&mut [0]).unwrap();
    std::thread::scope(|scope| {
        let filling = scope.spawn(|| {
            let mut buf = vec![0; 200 * 1000];
            assert_eq!(far.rx.fill(&mut buf).unwrap(), buf.len());
            PARKED.get()
        });
        for _ in 0..200 {
            // Each in a packet of its own, most of the time.
            near.tx.write(Bytes::from(vec![7; 1000])).unwrap();
            std::thread::sleep(Duration::from_micros(200));
        }
        filling.join().unwrap()
    })
}

#[test]
fn one_system_call_takes_more_packets_than_quinn_hands_over_at_a_time() {
    let identity = Identity::generate().unwrap();
    let stage = Stage::new(identity.fingerprint(), WINDOW);
    let winner = stage.dial(identity, TOKEN).unwrap();
    let sending = stage.client.tasks();
    let ((a, b), _ssh) = stage.links(winner);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut far = b.accept_lane().unwrap();
            let mut buf = vec![0; 1 << 20];
            while far.rx.fill(&mut buf).unwrap() > 0 {}
        });
        let mut near = a.open_lane().unwrap();
        near.tx.write(Bytes::from(vec![7; 64 << 20])).unwrap();
        near.tx.finish().unwrap();
    });
    let most = sending.run(async { MOST_AT_ONCE.get() }).unwrap();
    assert!(most > 10, "{most}");
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
fn a_peer_that_falls_silent_times_out() {
    // On a busy machine the peer may seem silent during the handshake: then allow more time.
    let timed_out = [1, 4, 16, 64].into_iter().map(Duration::from_secs).find_map(|idle_timeout| {
        let identity = Identity::generate().unwrap();
        let mut stage = Stage::new(identity.fingerprint(), WINDOW);
        let dialer = Dialer { identity, server: stage.key, token: TOKEN, idle_timeout };
        let address = only(stage.address);
        let dialed = stage.client.run(async move { dial(dialer, address, WAIT).await });
        let (link, _ssh) = start(stage.client, dialed.unwrap().ok()?);
        // Without its thread the server neither answers nor announces its end.
        let held = stage.offer.take();
        drop(stage.server);
        let outcome = link.accept_lane().map(|_| ());
        drop(held);
        Some(outcome)
    });
    assert!(matches!(timed_out, Some(Err(LinkError::TimedOut))), "{timed_out:?}");
}

const TOKEN: Token = Token([7; 32]);
const IDLE: Duration = Duration::from_secs(300);
/// Longer than anything here takes, even on the busiest machine.
const WAIT: Duration = Duration::from_secs(300);
/// Time to wait for an answer that may never arrive.
const SILENCE: Duration = Duration::from_secs(5);
const WINDOW: Duration = Duration::from_secs(300);
