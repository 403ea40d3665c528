//! Samples of the connections of a link, how many of them send, and the cure where losses hold them back and
//! no other carrier can help.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::net::sockopt;

use super::{registry::Registry, tcp_info::TcpInfo};
use crate::{
    losses::{LossWatch, SAMPLE_TIME, Sample},
    share::Senders,
};

/// Samples the connections of a link.
pub(crate) struct Meter {
    /// Asks for the counts of each live connection, by its number.
    counts: Box<dyn Fn() -> Vec<(u32, TcpInfo)> + Send>,
    /// The counts of each live connection at the sample before.
    last: HashMap<u32, TcpInfo>,
    at: Instant,
}

impl Meter {
    /// Makes a meter of the connections whose numbers and counts this returns.
    pub(crate) fn new(counts: impl Fn() -> Vec<(u32, TcpInfo)> + Send + 'static) -> Self {
        Self { counts: Box::new(counts), last: HashMap::new(), at: Instant::now() }
    }

    /// Makes a meter of the lanes of a link.
    pub(super) fn of_lanes(registry: Arc<Registry>) -> Self {
        Self::new(move || {
            let lines = registry.lines().into_iter();
            lines.filter_map(|line| Some((line.id, TcpInfo::of(line.stream.socket())?))).collect()
        })
    }

    /// Returns what the connections showed since the last call. The counts of one that has ended
    /// meanwhile are left out.
    pub(crate) fn sample(&mut self) -> Sample {
        let mut sum = Sample { span: self.at.elapsed(), ..Sample::default() };
        self.at = Instant::now();
        let (mut now, mut trips) = (HashMap::new(), Duration::ZERO);

        for (id, info) in (self.counts)() {
            let before = self.last.get(&id).copied().unwrap_or_default();
            now.insert(id, info);
            let packets = u64::from(info.packets.wrapping_sub(before.packets));
            if packets == 0 {
                continue;
            }
            sum.connections += 1;
            sum.packets += packets;
            sum.lost += u64::from(info.resent.wrapping_sub(before.resent));
            sum.delivered_bytes += info.delivered_bytes.saturating_sub(before.delivered_bytes);
            sum.packet_bytes = sum.packet_bytes.max(info.packet_bytes);
            trips += info.round_trip.mul_f64(packets as f64);
            let least = Some(sum.least_round_trip).filter(|least| !least.is_zero());
            sum.least_round_trip =
                least.map_or(info.least_round_trip, |least| least.min(info.least_round_trip));
        }

        self.last = now;
        sum.round_trip = if sum.packets == 0 { Duration::ZERO } else { trips.div_f64(sum.packets as f64) };
        sum
    }
}

/// The care for a path that a link has for itself. It lets as many lanes send as share the path well, and asks
/// the kernel for BBR once losses hold them back, until the link ends. CUBIC shares a path that loses nothing
/// more fairly, so it stays there. Where the kernel does not offer BBR to this process, nothing changes.
pub(super) struct Relief {
    meter: Meter,
    losses: LossWatch,
    senders: Senders,
    evidence: u32,
    /// The lanes that were given BBR; `None` while nothing asks for it.
    asked: Option<HashSet<u32>>,
}

impl Relief {
    /// Begins for a link with so many data lanes.
    pub(super) fn of(registry: &Arc<Registry>, lanes: usize) -> Self {
        let (losses, evidence) = Default::default();
        let (meter, senders) = (Meter::of_lanes(Arc::clone(registry)), Senders::of(lanes));
        Self { meter, losses, senders, evidence, asked: None }
    }

    /// Looks at what the lanes show, unless it did a moment ago.
    pub(super) fn look(&mut self, registry: &Registry) {
        if self.meter.at.elapsed() < SAMPLE_TIME {
            return;
        }

        let sample = self.meter.sample();
        registry.let_send(self.senders.take(sample));
        let held = self.losses.take(sample);
        self.evidence = if held.is_some() { self.evidence + 1 } else { self.evidence.saturating_sub(1) };
        if self.evidence >= ENOUGH && self.asked.is_none() {
            self.asked = Some(HashSet::new());
            tracing::debug!(?held, "losses hold TCP back: its lanes ask for BBR");
        }
        if let Some(asked) = &mut self.asked {
            ask_for_bbr(registry, asked);
        }
    }
}

/// Asks the kernel for BBR for each lane that has not `asked` yet.
fn ask_for_bbr(registry: &Registry, asked: &mut HashSet<u32>) {
    for line in registry.lines() {
        let new = asked.insert(line.id);
        if new && let Err(error) = sockopt::set_tcp_congestion(line.stream.socket(), "bbr") {
            tracing::debug!(%error, "the kernel does not offer BBR");
        }
    }
}

/// Samples with losses that hold the lanes back, less those without, after which BBR is asked for. Flows that
/// begin or end on a full path look like losses for some tenths of a second, and BBR, which leaves little to
/// CUBIC, stays.
const ENOUGH: u32 = 15;
