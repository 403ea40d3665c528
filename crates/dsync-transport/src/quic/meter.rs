//! Samples of a connection.

use std::time::Instant;

use quinn::Connection;

use crate::losses::Sample;

/// Samples a connection.
pub(crate) struct Meter {
    connection: Connection,
    last: Sample,
    at: Instant,
}

impl Meter {
    pub(super) fn new(connection: Connection) -> Self {
        Self { connection, last: Sample::default(), at: Instant::now() }
    }

    /// Returns what the connection showed since the last call.
    pub(crate) fn sample(&mut self) -> Sample {
        let stats = self.connection.stats();
        let now = Sample {
            packets: stats.path.sent_packets,
            lost: stats.path.lost_packets,
            delivered_bytes: stats.udp_tx.bytes.saturating_sub(stats.path.lost_bytes),
            ..Sample::default()
        };
        let since = Sample {
            span: self.at.elapsed(),
            packets: now.packets.saturating_sub(self.last.packets),
            lost: now.lost.saturating_sub(self.last.lost),
            delivered_bytes: now.delivered_bytes.saturating_sub(self.last.delivered_bytes),
            round_trip: stats.path.rtt,
            least_round_trip: stats.path.min_rtt,
            connections: 1,
            packet_bytes: stats.path.current_mtu.into(),
        };
        self.at = Instant::now();
        self.last = now;
        since
    }
}
