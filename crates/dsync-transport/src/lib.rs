//! Carriers: they bring a session's bytes from one end to the other.
//!
//! A carrier implements [`dsync_wire::link::Link`]: one authenticated connection that holds several
//! ordered byte streams (lanes). There are four, all checked by one test suite (`suite.rs`):
//!
//! | carrier | bytes travel by | used for |
//! |---|---|---|
//! | [`memory`] | bounded queues of `Bytes` inside the process | local runs |
//! | QUIC | UDP, TLS 1.3 with one-time keys pinned both ways | remote runs where UDP passes |
//! | TLS | TCP, a connection for each lane, TLS 1.3 with the same keys | short paths, and where UDP is blocked |
//! | ssh | lanes over the standard streams of the ssh process | everywhere else |
//!
//! Beside them, [`standing`] is the connection to a server that needs no ssh.
//!
//! [`connect()`] starts `dsync --server` through the remote shell and picks the carrier;
//! [`accept()`] is its other end. Nothing here touches a file of a tree, reads the environment, or
//! prints.
//!
//! tokio lives only in here, on one thread per link; every call of the API blocks.

mod accept;
mod ask;
mod carried;
mod connect;
mod counters;
mod crowd;
mod ending;
mod error;
mod greeting;
mod identity;
pub mod memory;
mod mux;
mod offers;
mod pace;
mod pipe;
mod ports;
mod quic;
mod race;
mod reach;
mod reactor;
mod shell;
pub mod standing;
pub mod stream;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::needless_pass_by_value)]
mod suite;
mod text;
mod tls;
mod waits;
mod whereabouts;

use std::net::IpAddr;

pub use accept::{Accepted, accept};
pub use ask::{HostAnswer, MAX_ANSWER};
pub use connect::{Abandon, ConnectOptions, Connected, connect};
pub use error::{AcceptError, ConnectError, ShellStatus};
pub use identity::cryptography;
pub use pace::{Sides, Throttle, paced, throttled};
pub use shell::RemoteShell;
pub use stream::{Stream, StreamEnd};

/// The carrier of a remote run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TransportChoice {
    /// TLS if the round trip is below 2 ms, else QUIC. TLS also if UDP gets no answer, and the ssh
    /// pipe if TCP gets none either.
    #[default]
    Auto,
    /// QUIC or nothing.
    Quic,
    /// TLS over TCP or nothing.
    Tls,
    /// The ssh pipe only: the remote side opens no port.
    Ssh,
}

/// The addresses of a host that may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AddressFamily {
    /// Both kinds.
    #[default]
    Any,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

impl AddressFamily {
    /// Returns whether the address belongs to this family.
    fn admits(self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::V4 => address.to_canonical().is_ipv4(),
            Self::V6 => address.to_canonical().is_ipv6(),
        }
    }

    fn ssh_option(self) -> Option<&'static str> {
        match self {
            Self::Any => None,
            Self::V4 => Some("-4"),
            Self::V6 => Some("-6"),
        }
    }
}

/// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
