//! A simulated path, to test the controller without sockets or clocks: discrete events, one
//! bottleneck, several flows. The same seed makes the same run.

mod cubic;
mod flow;
mod link;
mod stall;
mod tests;

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    time::{Duration, Instant},
};

pub(crate) use cubic::Cubic;
pub(crate) use flow::{Flow, Source};
pub(crate) use link::{Fate, Link, LinkConfig, Queued};
pub(crate) use stall::Stalls;

use super::control::Control;

/// Length of each packet in bytes, headers included.
pub(crate) const PACKET: u64 = 1500;
pub(crate) const NANOS: u64 = 1_000_000_000;

/// The interface of a flow's congestion control: quinn's trait, without quinn's types.
pub(crate) trait Law {
    fn on_sent(&mut self, now: Instant, bytes: u64);
    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64);
    fn on_end_acks(&mut self, now: Instant, in_flight: u64, limited: bool);
    fn on_loss(&mut self, now: Instant, sent: Instant, persistent: bool, lost: u64);
    fn window(&self) -> u64;
    fn paced(&self) -> bool;
}

impl Law for Control {
    fn on_sent(&mut self, now: Instant, bytes: u64) {
        self.on_sent(now, bytes);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64) {
        self.on_ack(now, sent, bytes);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, limited: bool) {
        self.on_end_acks(now, in_flight, limited);
    }

    fn on_loss(&mut self, now: Instant, sent: Instant, persistent: bool, lost: u64) {
        self.on_loss(now, sent, persistent, lost);
    }

    fn window(&self) -> u64 {
        self.window()
    }

    fn paced(&self) -> bool {
        true
    }
}

enum Event {
    /// The link has served the packet at its front.
    Served,
    Arrives(Queued),
    /// A delayed acknowledgement may be due.
    AckTimer(usize),
    Acked(usize, Vec<u64>),
    Wake(usize),
}

struct Entry {
    at: u64,
    order: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// Counts of one flow at one time, to subtract from later ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    at: u64,
    delivered: u64,
    sent: u64,
    dropped: u64,
    rtt_sum: u64,
    rtt_count: u64,
}

/// The work of a flow between two marks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch {
    /// Bytes per second.
    pub(crate) rate: u64,
    /// Packets dropped by the queue or policer, per cent of those sent.
    pub(crate) drops: f64,
    /// Mean of the round trips.
    pub(crate) rtt: Duration,
}

pub(crate) struct Sim {
    pub(crate) now: u64,
    base: Instant,
    events: BinaryHeap<Reverse<Entry>>,
    order: u64,
    pub(crate) link: Link,
    pub(crate) flows: Vec<Flow>,
}

impl Sim {
    pub(crate) fn new(config: LinkConfig, seed: u64) -> Self {
        Self {
            now: 0,
            // Only differences matter.
            base: Instant::now(),
            events: BinaryHeap::new(),
            order: 0,
            link: Link::new(config, seed),
            flows: Vec::new(),
        }
    }

    /// Adds a flow of ours that starts now.
    pub(crate) fn add_ours(&mut self) -> usize {
        let control = Control::new(self.base + Duration::from_nanos(self.now), PACKET);
        self.add(Box::new(control))
    }

    pub(crate) fn add(&mut self, law: Box<dyn Law>) -> usize {
        self.flows.push(Flow::new(self.base, law, self.now));
        let id = self.flows.len() - 1;
        self.schedule(self.now, Event::Wake(id));
        id
    }

    pub(crate) fn set_source(&mut self, flow: usize, source: Source) {
        self.flows[flow].set_source(self.now, source);
        self.schedule(self.now, Event::Wake(flow));
    }

    /// Makes both hosts of `flow` pause for 5 to 30 ms every `gap_ms` on average, each at times of
    /// its own.
    pub(crate) fn stall(&mut self, flow: usize, gap_ms: u64, seed: u64) {
        let stalls = |seed| Stalls::new(gap_ms * 1_000_000, 5_000_000, 30_000_000, seed);
        self.flows[flow].sender = stalls(2 * seed + 1);
        self.flows[flow].receiver = stalls(2 * seed + 2);
    }

    pub(crate) fn run_ms(&mut self, ms: u64) {
        let end = self.now + ms * 1_000_000;
        while self.events.peek().is_some_and(|Reverse(entry)| entry.at <= end) {
            if let Some(Reverse(entry)) = self.events.pop() {
                self.now = entry.at;
                self.handle(entry.event);
            }
        }
        self.now = end;
    }

    pub(crate) fn mark(&self, flow: usize) -> Mark {
        let flow = &self.flows[flow];
        Mark {
            at: self.now,
            delivered: flow.delivered,
            sent: flow.sent_packets,
            dropped: flow.dropped,
            rtt_sum: flow.rtt_sum,
            rtt_count: flow.rtt_count,
        }
    }

    pub(crate) fn since(&self, flow: usize, then: Mark) -> Stretch {
        let now = self.mark(flow);
        let elapsed = u128::from((now.at - then.at).max(1));
        Stretch {
            rate: (u128::from(now.delivered - then.delivered) * u128::from(NANOS) / elapsed) as u64,
            drops: 100.0 * (now.dropped - then.dropped) as f64 / (now.sent - then.sent).max(1) as f64,
            rtt: Duration::from_nanos((now.rtt_sum - then.rtt_sum) / (now.rtt_count - then.rtt_count).max(1)),
        }
    }

    /// Runs for `ms` and returns what `flow` did in that time.
    pub(crate) fn stretch(&mut self, flow: usize, ms: u64) -> Stretch {
        let mark = self.mark(flow);
        self.run_ms(ms);
        self.since(flow, mark)
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse(Entry { at, order: self.order, event }));
    }

    fn handle(&mut self, event: Event) {
        let stalled = match &event {
            Event::Acked(flow, _) | Event::Wake(flow) => self.flows[*flow].sender.until(self.now),
            Event::AckTimer(flow) => self.flows[*flow].receiver.until(self.now),
            Event::Served | Event::Arrives(_) => None,
        };
        if let Some(until) = stalled {
            self.schedule(until, event);
            return;
        }
        match event {
            Event::Served => self.served(),
            Event::Arrives(packet) => self.arrives(&packet),
            Event::AckTimer(flow) => {
                if self.flows[flow].ack_due <= self.now {
                    let acks = self.flows[flow].take_acks();
                    self.send_acks(flow, acks);
                }
            }
            Event::Acked(flow, numbers) => {
                self.flows[flow].on_ack(self.now, &numbers);
                self.wake(flow);
            }
            Event::Wake(flow) => {
                if self.flows[flow].wake <= self.now {
                    self.wake(flow);
                }
            }
        }
    }

    fn served(&mut self) {
        let (packet, next) = self.link.leave(self.now);
        if let Some(next) = next {
            self.schedule(next, Event::Served);
        }
        if let Some(packet) = packet {
            let delay = self.link.config.rtt / 2 + self.link.jitter();
            let flow = &mut self.flows[packet.flow];
            flow.last_arrival = flow.last_arrival.max(self.now + delay);
            let at = flow.last_arrival;
            self.schedule(at, Event::Arrives(packet));
        }
    }

    fn arrives(&mut self, packet: &Queued) {
        let flow = &mut self.flows[packet.flow];
        if let Some(until) = flow.receiver.until(self.now) {
            flow.hold(packet.number, until);
            self.schedule(until, Event::AckTimer(packet.flow));
            return;
        }
        match flow.receive(self.now, packet.number) {
            Some(acks) => self.send_acks(packet.flow, acks),
            None => self.schedule(self.flows[packet.flow].ack_due, Event::AckTimer(packet.flow)),
        }
    }

    fn send_acks(&mut self, flow: usize, acks: Vec<u64>) {
        let rtt = self.link.config.rtt;
        self.schedule(self.now + rtt - rtt / 2, Event::Acked(flow, acks));
    }

    fn wake(&mut self, flow: usize) {
        for number in self.flows[flow].run(self.now) {
            match self.link.enter(self.now, Queued { flow, number }) {
                Fate::Served(at) => self.schedule(at, Event::Served),
                Fate::Queued | Fate::LostAtRandom => {}
                Fate::Dropped => self.flows[flow].dropped += 1,
            }
        }
        let at = self.flows[flow].wake;
        if at < u64::MAX {
            self.schedule(at.max(self.now), Event::Wake(flow));
        }
    }
}
