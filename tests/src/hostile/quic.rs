//! Lanes over QUIC.

use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, OnceLock},
    thread,
    time::Duration,
};

use quinn::{
    ClientConfig, Connection, Endpoint, IdleTimeout, RecvStream, SendStream, ServerConfig, TransportConfig,
    VarInt,
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use tokio::{
    runtime::{Builder, Handle},
    task::AbortHandle,
    time::timeout,
};

use super::{
    key,
    lanes::{Shared, kind},
    outlet::{Outlet, Terms, lock},
};
use crate::run::PATIENCE;

/// A connection and its lanes.
pub(super) struct Quic {
    connection: Connection,
    endpoint: Endpoint,
    lanes: Mutex<HashMap<u32, Lane>>,
    shared: Arc<Shared>,
}

struct Lane {
    out: Arc<Mutex<SendStream>>,
    /// Aborting this tells the other end to stop.
    reading: AbortHandle,
}

/// A port that waits for its client.
pub(super) struct Port {
    endpoint: Endpoint,
}

impl Port {
    /// Opens a port of this host.
    pub(super) fn open() -> Self {
        let _guard = runtime().enter();
        let tls = QuicServerConfig::try_from(key::server()).expect("a suite for QUIC");
        let mut config = ServerConfig::with_crypto(Arc::new(tls));
        config.transport_config(transport());
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self { endpoint: Endpoint::server(config, here).expect("a port") }
    }

    /// Returns its number.
    pub(super) fn number(&self) -> u16 {
        self.endpoint.local_addr().expect("its address").port()
    }

    /// Accepts the client.
    pub(super) fn accept(self, token: [u8; 32], shared: &Arc<Shared>) -> Arc<Quic> {
        let Self { endpoint } = self;
        let connection = blocking(async {
            let connection = endpoint.accept().await.expect("a client").await.expect("a handshake");
            let (mut send, mut receive) = connection.accept_bi().await.expect("the stream of the token");
            let shown = receive.read_to_end(64).await.expect("the token");
            assert_eq!(shown, token, "the token of the greeting");
            send.write_all(&[1]).await.and_then(|()| Ok(send.finish()?)).expect("an open stream");
            connection
        });
        Quic::start(connection, endpoint, 1, shared)
    }
}

impl Quic {
    /// Connects to a port of this host.
    pub(super) fn connect(terms: Terms, shared: &Arc<Shared>) -> Arc<Self> {
        let _guard = runtime().enter();
        let tls = QuicClientConfig::try_from(key::client()).expect("a suite for QUIC");
        let mut config = ClientConfig::new(Arc::new(tls));
        config.transport_config(transport());
        let endpoint = Endpoint::client(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a socket");
        let there = SocketAddr::from((Ipv4Addr::LOCALHOST, terms.port));
        let connection = blocking(async {
            let connecting = endpoint.connect_with(config, there, "dsync.invalid").expect("a connection");
            let connection = connecting.await.expect("a handshake");
            let (mut send, mut receive) = connection.open_bi().await.expect("a stream");
            send.write_all(&terms.token).await.and_then(|()| Ok(send.finish()?)).expect("an open stream");
            assert_eq!(receive.read_to_end(64).await.expect("the answer"), [1]);
            connection
        });
        Self::start(connection, endpoint, 2, shared)
    }

    /// Accepts lanes of the other end, the first of which has this number.
    fn start(connection: Connection, endpoint: Endpoint, first: u32, shared: &Arc<Shared>) -> Arc<Self> {
        let (lanes, shared) = (Mutex::default(), Arc::clone(shared));
        let this = Arc::new(Self { connection: connection.clone(), endpoint, lanes, shared });
        let lanes = Arc::downgrade(&this);
        runtime().spawn(async move {
            let mut number = first;
            while let Ok((send, receive)) = connection.accept_bi().await {
                let Some(this) = lanes.upgrade() else { return };
                this.add(number, send, receive);
                number += 2;
            }
            if let Some(this) = lanes.upgrade() {
                this.shared.end();
            }
        });
        this
    }

    fn add(&self, number: u32, send: SendStream, mut receive: RecvStream) {
        let shared = Arc::clone(&self.shared);
        shared.take(number, kind::OPEN, &[]);
        let reading = runtime().spawn(async move {
            while let Ok(Some(chunk)) = receive.read_chunk(65_536, true).await {
                shared.take(number, kind::DATA, &chunk.bytes);
                while shared.is_deaf() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            shared.take(number, kind::FINISH, &[]);
        });
        let lane = Lane { out: Arc::new(Mutex::new(send)), reading: reading.abort_handle() };
        lock(&self.lanes).insert(number, lane);
    }

    fn out(&self, lane: u32) -> Option<Arc<Mutex<SendStream>>> {
        lock(&self.lanes).get(&lane).map(|lane| Arc::clone(&lane.out))
    }
}

impl Outlet for Quic {
    fn put(&self, lane: u32, kind: u8, payload: &[u8]) {
        match (kind, self.out(lane)) {
            (kind::OPEN, _) => {
                if let Ok((send, receive)) = blocking(self.connection.open_bi()) {
                    self.add(lane, send, receive);
                }
            }
            (kind::DATA, Some(out)) => {
                let _ = blocking(lock(&out).write_all(payload));
                self.shared.credit(lane, payload.len());
            }
            (kind::FINISH, Some(out)) => _ = lock(&out).finish(),
            (kind::RESET, Some(out)) => _ = lock(&out).reset(VarInt::from_u32(0)),
            (kind::STOP, _) => {
                if let Some(lane) = lock(&self.lanes).get(&lane) {
                    lane.reading.abort();
                }
            }
            _ => {}
        }
    }

    fn put_raw(&self, _: &[u8]) {}

    fn hang_up(&self) {
        self.connection.close(VarInt::from_u32(3), b"");
        // Resends the last packets until the other end has acknowledged them.
        let endpoint = self.endpoint.clone();
        runtime().spawn(async move { endpoint.wait_idle().await });
    }
}

fn transport() -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config.max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(3_600_000))));
    Arc::new(config)
}

/// Waits for a future of QUIC's.
fn blocking<T>(future: impl Future<Output = T>) -> T {
    runtime().block_on(async { timeout(PATIENCE, future).await }).expect("the other end gets on")
}

/// Returns the runtime that drives all connections of this process.
fn runtime() -> &'static Handle {
    static RUNTIME: OnceLock<Handle> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let handle = runtime.handle().clone();
        thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
        handle
    })
}
