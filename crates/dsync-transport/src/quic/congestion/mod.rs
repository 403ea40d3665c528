//! Congestion control for bulk transfer: a long path stays full although it loses packets at
//! random.
//!
//! quinn's own controllers treat each loss as congestion (CUBIC: 2 Mbit/s of 1000 at 100 ms with 1
//! % loss) or ignore their effect on the queue (BBR v1: half of all packets dropped). This one
//! keeps the path's content in flight: the highest delivery rate of the last rounds times the
//! shortest round trip of the last seconds. That is BBR's model (Cardwell et al., "BBR:
//! Congestion-Based Congestion Control", ACM Queue 14(5), 2016; draft-ietf-ccwg-bbr), written anew
//! for a controller whose only output is a window, because quinn's pacer always spreads 5/4 of the
//! window over a round trip.
//!
//! The laws: loss below 10 % a round is no reason to slow down; loss above it is. A queue made by
//! this flow is gone within one probing cycle. Beside a flow that fills the queue itself, the
//! window follows CUBIC's curve until that flow is gone.
//!
//! [`control`] decides, from [`delivery`] samples kept by [`filter`]s and the usual [`loss`].
//! [`contest`] is the window beside a competitor. This module connects them to quinn.
//! `docs/design/congestion.md` has reasons, figures and limits.

mod contest;
mod control;
mod delivery;
mod filter;
mod loss;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
mod sim;

use std::{any::Any, sync::Arc, time::Instant};

use control::Control;
use quinn_proto::{
    RttEstimator,
    congestion::{Controller, ControllerFactory},
};

/// Makes one controller per path of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BulkControl;

impl ControllerFactory for BulkControl {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let control = Control::new(now, current_mtu.into());
        Box::new(PathControl { initial_window: control.window(), control })
    }
}

/// An adapter for quinn's calls.
#[derive(Debug, Clone)]
struct PathControl {
    control: Control,
    initial_window: u64,
}

impl Controller for PathControl {
    fn on_sent(&mut self, now: Instant, bytes: u64, _last_packet_number: u64) {
        self.control.on_sent(now, bytes);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, _app_limited: bool, _rtt: &RttEstimator) {
        self.control.on_ack(now, sent, bytes);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, _largest: Option<u64>) {
        self.control.on_end_acks(now, in_flight, app_limited);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, persistent: bool, lost_bytes: u64) {
        self.control.on_loss(now, sent, persistent, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.control.on_mss(new_mtu.into());
    }

    fn window(&self) -> u64 {
        self.control.window()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.initial_window
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
