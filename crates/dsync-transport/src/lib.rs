#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! A carrier implements [`dsync_wire::link::Link`]; one test suite checks them all (`suite.rs`). [`memory`] is the one
//! of local runs, [`stream`] has those of a program's own, and `standing` is the connection to a server that needs no
//! ssh.
//!
//! `connect()` starts `dsync --server` through the remote shell and picks the carrier;
//! `accept()` is its other end. Nothing here touches a file of a tree, reads the environment, or
//! prints.
//!
//! tokio lives only in here, on threads that links share ([`Carriers`]); every call of the API blocks.

#[cfg(feature = "ssh")]
mod accept;
#[cfg(feature = "ssh")]
mod ask;
#[cfg(feature = "quic")]
mod both;
#[cfg(feature = "ssh")]
mod carried;
#[cfg(feature = "ssh")]
mod connect;
mod counters;
#[cfg(feature = "tls")]
mod crowd;
#[cfg(feature = "tls")]
mod ending;
mod error;
#[cfg(feature = "ssh")]
mod greeting;
#[cfg(feature = "tls")]
mod identity;
#[cfg(all(feature = "ssh", not(feature = "tls")))]
mod keyless;
#[cfg(feature = "tls")]
mod losses;
pub mod memory;
#[cfg(feature = "stream")]
mod mux;
#[cfg(feature = "tls")]
mod offers;
mod pace;
#[cfg(feature = "stream")]
mod pipe;
#[cfg(feature = "tls")]
mod ports;
#[cfg(feature = "quic")]
mod quic;
#[cfg(feature = "tls")]
mod race;
#[cfg(feature = "tls")]
mod reach;
#[cfg(feature = "stream")]
mod reactor;
#[cfg(feature = "tls")]
mod share;
#[cfg(feature = "ssh")]
mod shell;
#[cfg(feature = "tls")]
pub mod standing;
pub mod stream;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::needless_pass_by_value)]
mod suite;
#[cfg(feature = "ssh")]
mod text;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "stream")]
mod waits;
#[cfg(feature = "tls")]
mod whereabouts;

#[cfg(feature = "tls")]
use std::net::IpAddr;

#[cfg(feature = "ssh")]
pub use accept::{Accepted, Entrance, accept};
#[cfg(feature = "ssh")]
pub use ask::{HostAnswer, MAX_ANSWER};
#[cfg(feature = "ssh")]
pub use connect::{Abandon, ConnectOptions, Connected, connect};
pub use error::{AcceptError, ConnectError, ShellStatus};
#[cfg(feature = "tls")]
pub use identity::cryptography;
pub use pace::{Sides, Throttle, paced, throttled};
#[cfg(feature = "stream")]
pub use reactor::Carriers;
#[cfg(feature = "ssh")]
pub use shell::{RemoteShell, ShellLines};
pub use stream::{Stream, StreamEnd, shared_link};

#[cfg(all(feature = "ssh", not(feature = "tls")))]
use keyless::{identity, offers};

/// The threads that carry bytes: none in a build without streams.
#[cfg(not(feature = "stream"))]
#[derive(Debug, Clone, Default)]
pub struct Carriers(());

/// The carrier of a remote run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum TransportChoice {
    /// TLS if the round trip is below 2 ms, QUIC from 40 ms on. Between them both: data begins with
    /// TLS and moves to QUIC where losses hold TCP back. TLS also if UDP gets no answer, and the
    /// ssh pipe if TCP gets none either.
    #[default]
    Auto,
    /// QUIC or nothing.
    Quic,
    /// TLS over TCP or nothing.
    Tls,
    /// The ssh pipe only: the remote side opens no port.
    Ssh,
}

#[cfg(feature = "ssh")]
impl TransportChoice {
    /// Returns the choice as this build can make it, or the protocol that it lacks and the reason.
    fn in_this_build(self) -> Result<Self, (&'static str, &'static str)> {
        match self {
            Self::Quic if !cfg!(feature = "quic") => Err(("UDP", "this program was built without QUIC")),
            Self::Tls if !cfg!(feature = "tls") => Err(("TCP", "this program was built without TLS")),
            // Nothing is left to choose from.
            Self::Auto if !cfg!(feature = "tls") => Ok(Self::Ssh),
            choice => Ok(choice),
        }
    }
}

/// The addresses of a host that may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum AddressFamily {
    /// Both kinds.
    #[default]
    Any,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

#[cfg(feature = "ssh")]
impl AddressFamily {
    /// Returns whether the address belongs to this family.
    #[cfg(feature = "tls")]
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
