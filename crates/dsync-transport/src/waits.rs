//! Times that several parts of a connection have to agree on.

use std::time::Duration;

/// Round trip below which a path is short. There TCP beats QUIC, whose loss recovery pays only on
/// longer ones.
#[cfg(feature = "ssh")]
pub(crate) const NEAR: Duration = Duration::from_millis(2);
/// Round trip from which on QUIC carries the data alone. TLS takes six more to open its lanes,
/// and there TCP takes seconds to find the rate again after a single loss.
#[cfg(feature = "tls")]
pub(crate) const FAR: Duration = Duration::from_millis(40);
/// Longest wait for a port. Twice this, for TCP after UDP, lies within the server's window of 30 s.
#[cfg(feature = "ssh")]
pub(crate) const LONGEST_PORT_WAIT: Duration = Duration::from_secs(10);
/// Shortest silence that ends a link. A lower limit would end healthy links: the other end does not
/// know this end's limit and shows a sign of life every second.
pub(crate) const SHORTEST_IDLE: Duration = Duration::from_secs(3);
