//! A peer that breaks the rules: writes any bytes, in any state, in any role.
//!
//! It knows the wire from `docs/wire.md` alone and shares no code with dsync. [`bytes`] writes
//! messages by hand, [`lanes`] carries them over the ssh pipe, QUIC or TLS, [`session`] plays the
//! opening of either side, and [`arena`] holds everything that must come to no harm. Against
//! `dsync --server` it is the client; against the client, which starts [`shell`] as its remote
//! shell, it is the server.

pub mod arena;
pub mod bytes;
pub mod footprint;
mod key;
pub mod lanes;
mod outlet;
mod quic;
pub mod session;
pub mod shell;
mod tls;

pub use arena::Arena;
pub use bytes::{Item, Message, frame, listing, raw_listing};
pub use footprint::{Footprint, Peak};
pub use session::{Fatal, Session};

/// The carrier of a session's lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// The streams of the remote shell.
    Pipe,
    /// TLS over TCP.
    Tls,
    /// QUIC.
    Quic,
}
