//! The ways in which lanes leave this end: the pipe itself, or QUIC and TLS as in sections 3.1 and
//! 3.2 of `docs/wire.md`.
//!
//! Each outlet takes the pipe's frames and performs them in its own way. Frames without an
//! equivalent on a carrier are left out.

use std::{
    io::{Read, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use super::{
    Carrier,
    lanes::{Pipe, Shared, kind},
};

/// One way out.
pub(super) trait Outlet: Send + Sync {
    /// Performs what a frame of the pipe means. Blocks while the other end takes nothing; ignores
    /// errors.
    fn put(&self, lane: u32, kind: u8, payload: &[u8]);

    /// Writes any bytes between frames, if the carrier has frames.
    fn put_raw(&self, bytes: &[u8]);

    /// Ends the connection, at whatever point it is.
    fn hang_up(&self);
}

/// The facts about the coming connection that both ends exchange in a bootstrap.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// The port, here or at the other end.
    pub(super) port: u16,
    /// The client's proof of identity.
    pub(super) token: [u8; 32],
}

impl Carrier {
    /// Every carrier of a remote run.
    pub const ALL: [Self; 3] = [Self::Pipe, Self::Tls, Self::Quic];

    /// Returns its value for `--transport`.
    pub fn option(self) -> &'static str {
        match self {
            Self::Pipe => "ssh",
            Self::Tls => "tls",
            Self::Quic => "quic",
        }
    }

    /// Returns the host for a client. Over a network it connects to that host, because its remote
    /// shell is not ssh.
    pub(super) fn host(self) -> &'static str {
        if self == Self::Pipe { "host" } else { "127.0.0.1" }
    }

    /// Returns its bit in a client's offer.
    pub(super) fn bit(self) -> u8 {
        match self {
            Self::Quic => 1,
            Self::Pipe => 2,
            Self::Tls => 4,
        }
    }

    /// Returns its code in a client's choice.
    pub(super) fn choice(self) -> u8 {
        match self {
            Self::Quic => 1,
            Self::Pipe => 2,
            Self::Tls => 3,
        }
    }
}

/// The pipe.
pub(super) struct PipeOutlet(Mutex<Option<Box<dyn Write + Send>>>);

impl PipeOutlet {
    /// Takes the pipe and starts to listen.
    pub(super) fn start(pipe: Pipe, shared: &Arc<Shared>) -> Arc<Self> {
        let this = Arc::new(Self(Mutex::new(Some(pipe.writer))));
        let (out, shared, mut reader) = (Arc::clone(&this), Arc::clone(shared), pipe.reader);
        thread::spawn(move || {
            while let Some((lane, kind, payload)) = next_frame(&mut reader) {
                shared.take(lane, kind, &payload);
                if kind == kind::DATA && !shared.is_deaf() {
                    let credit = u32::try_from(payload.len()).expect("the length of a payload");
                    out.put(lane, kind::CREDIT, &credit.to_le_bytes());
                }
            }
            shared.end();
        });
        this
    }
}

impl Outlet for PipeOutlet {
    fn put(&self, lane: u32, kind: u8, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("the length of a payload").to_le_bytes();
        let header = [&lane.to_le_bytes()[..], &[kind], &length[..3]].concat();
        self.put_raw(&[&header, payload].concat());
    }

    fn put_raw(&self, bytes: &[u8]) {
        if let Some(writer) = lock(&self.0).as_mut() {
            let _ = writer.write_all(bytes).and_then(|()| writer.flush());
        }
    }

    fn hang_up(&self) {
        *lock(&self.0) = None;
    }
}

fn next_frame(reader: &mut impl Read) -> Option<(u32, u8, Vec<u8>)> {
    let mut header = [0; 8];
    reader.read_exact(&mut header).ok()?;
    let [a, b, c, d, kind, x, y, z] = header;
    let mut payload = vec![0; u32::from_le_bytes([x, y, z, 0]) as usize];
    reader.read_exact(&mut payload).ok()?;
    Some((u32::from_le_bytes([a, b, c, d]), kind, payload))
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
