//! Further connections at the client, which makes them.

use std::{
    io::Write as _,
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::Instant,
};

use dsync_wire::link::{LaneRead, LaneWrite, LinkError, Traffic};

use super::{ADMITTED, Awaited, Invitation, Pool, preface, settle};
use crate::{
    identity::Identity,
    mux::beside::{Beside, INVITATION},
    tls::{
        handshake::{DIAL_TIME, OURS, THEIRS, opening, read_exactly},
        stream::{Opener, Sealer, Stream, StreamError},
    },
    waits::NEAR,
};

/// The client's end. It makes connections once, for each direction in which much passes.
pub(crate) struct Caller {
    identity: Identity,
    address: SocketAddr,
    invitation: OnceLock<Invitation>,
    pool: Arc<Pool>,
    next: AtomicU32,
    /// Whether connections were made to send on, and to receive from.
    has_called: [AtomicBool; 2],
}

/// [`Caller`] as the mux has it: its calls outlive the call that starts them.
pub(crate) struct Calling(Arc<Caller>);

impl Calling {
    /// Makes the client's end. `identity` is the one that the bootstrap announced, `address` that of the
    /// connection to the server.
    pub(crate) fn new(identity: Identity, address: SocketAddr) -> Self {
        Self(Arc::new(Caller {
            identity,
            address,
            invitation: OnceLock::new(),
            pool: Arc::default(),
            next: AtomicU32::default(),
            has_called: Default::default(),
        }))
    }
}

impl Beside for Calling {
    fn invitation(&self) -> Option<[u8; INVITATION]> {
        None
    }

    fn invited(&self, invitation: &[u8; INVITATION]) {
        // A second one changes nothing.
        let _ = self.0.invitation.set(Invitation::parse(invitation));
    }

    fn passed(&self, traffic: Traffic) {
        let passed = [traffic.sent_bytes, traffic.received_bytes];
        for ((bytes, has_called), kind) in passed.into_iter().zip(&self.0.has_called).zip([OURS, THEIRS]) {
            if bytes >= PAYS_AFTER
                && !has_called.load(Ordering::Relaxed)
                && self.0.invitation.get().is_some()
                && !has_called.swap(true, Ordering::AcqRel)
            {
                self.0.call_all(kind);
            }
        }
    }

    fn take(&self) -> Option<(u32, Box<dyn LaneWrite>)> {
        self.0.pool.take()
    }

    fn receive(&self, number: u32) -> Result<Box<dyn LaneRead>, LinkError> {
        self.0.pool.receive(number)
    }

    fn end(&self) {
        self.0.pool.end();
    }
}

impl Caller {
    /// Makes the connections for one direction, each on a thread of its own. What fails stays on the mux.
    fn call_all(self: &Arc<Self>, kind: u8) {
        for _ in 0..CONNECTIONS {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if kind == THEIRS {
                self.pool.expect(number, Awaited::Called);
            }

            let caller = Arc::clone(self);
            let work = move || {
                let called = caller.call(kind, number);
                let is_made = match called {
                    Ok((stream, _)) if kind == OURS => caller.pool.add_free(number, stream),
                    Ok((stream, opener)) => caller.pool.add_awaited(number, stream, opener),
                    Err(error) => {
                        tracing::debug!(?error, "no further connection");
                        false
                    }
                };
                if !is_made && kind == THEIRS {
                    caller.pool.expect(number, Awaited::Failed);
                }
            };
            let started = thread::Builder::new().name("dsync-further".into()).spawn(work);
            if started.is_err() && kind == THEIRS {
                self.pool.expect(number, Awaited::Failed);
            }
        }
    }

    /// Makes a connection that the server has admitted.
    fn call(&self, kind: u8, number: u32) -> Result<(Arc<Stream>, Opener), StreamError> {
        let Some(Invitation { session, secret, server }) = self.invitation.get() else {
            return Err(StreamError::Truncated);
        };
        let (config, _) = self.identity.client_config(*server).map_err(StreamError::Tls)?;

        let begun = Instant::now();
        let mut tcp = TcpStream::connect_timeout(&self.address, DIAL_TIME)?;
        let is_near = begun.elapsed() < NEAR;
        tcp.set_nodelay(true)?;
        tcp.write_all(&preface(session))?;

        let end = begun + DIAL_TIME;
        let (stream, mut opener) = Stream::client(tcp, Arc::new(config), DIAL_TIME)?;
        Sealer::default().write(&stream, &opening(kind, is_near, number, secret))?;
        let mut admitted = [0];
        read_exactly(&stream, &mut opener, &mut admitted, end)?;
        if admitted != ADMITTED {
            return Err(StreamError::Truncated);
        }
        settle(&stream, is_near)?;
        tracing::debug!(address = %self.address, number, kind, "further connection");
        Ok((Arc::new(stream), opener))
    }
}

/// Connections for a direction: as many as the mux has data lanes.
const CONNECTIONS: usize = 4;
/// Bytes in a direction after which connections pay for their handshakes: those of four take some
/// milliseconds of both ends, in which as much passes as this over a fast path.
const PAYS_AFTER: u64 = 2 << 20;
