//! Carriers: what brings a session's bytes from one end to the other.
//!
//! A carrier implements [`dsync_wire::link::Link`]: one authenticated connection that holds several
//! ordered byte streams (lanes). There are three, all checked by one test suite (`suite.rs`):
//!
//! | carrier | bytes travel by | used for |
//! |---|---|---|
//! | [`memory`] | bounded queues of `Bytes` inside the process | local runs |
//! | QUIC | UDP, TLS 1.3 with one-time keys pinned both ways | remote runs where UDP passes |
//! | ssh | lanes over the standard streams of the ssh process | everywhere else |
//!
//! [`connect()`] starts `dsync --server` through the remote shell and picks the carrier; [`accept()`] is
//! its other end. Nothing here touches a file of a tree, reads the environment, or prints.
//!
//! tokio lives only in here, on one thread per link; every call of the API blocks.

mod accept;
mod connect;
mod ending;
mod error;
mod greeting;
pub mod memory;
mod mux;
mod pipe;
mod quic;
mod reactor;
mod shell;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::needless_pass_by_value)]
mod suite;
mod text;

pub use accept::{AcceptOptions, accept};
pub use connect::{ConnectOptions, Connected, connect};
pub use error::{AcceptError, ConnectError, ShellStatus};
pub use shell::RemoteShell;

/// Which carrier a remote run uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TransportChoice {
    /// QUIC, or the ssh pipe when UDP gets no answer.
    #[default]
    Auto,
    /// QUIC or nothing.
    Quic,
    /// The ssh pipe only: no UDP port is opened on the remote side.
    Ssh,
}
