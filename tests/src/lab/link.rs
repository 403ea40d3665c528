//! One direction of an emulated link: decides which packets arrive, and when.
//!
//! Pure: the caller supplies the time. A packet passes a firewall, a queue of bounded length before
//! a sender of a fixed rate, and a wire that delays, loses and reorders. A packet lost on the wire
//! has used its share of the rate; one dropped by the queue has not. With the same seed, the same
//! packets at the same times have the same fate.

use std::time::Duration;

use super::path::Conditions;

/// Extra delay of a reordered packet.
const LATE: Duration = Duration::from_millis(2);

/// The fate of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It arrives at this time.
    Arrives(Duration),
    /// It is dropped.
    Dropped(Cause),
}

/// The reason why a packet is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The queue is full.
    Queue,
    /// Lost on the wire.
    Loss,
    /// UDP, or this TCP port, is blocked.
    Blocked,
}

/// One direction of a link.
#[derive(Debug)]
pub(super) struct Link {
    conditions: Conditions,
    dice: Dice,
    /// Time when all waiting packets will have left.
    free_at: Duration,
    /// Arrival time of the last packet that kept its place.
    last_arrival: Duration,
    in_burst: bool,
}

impl Link {
    /// Makes an idle link; `direction` keeps the losses of the two directions independent.
    pub(super) fn new(conditions: Conditions, direction: u64) -> Self {
        Self {
            conditions,
            dice: Dice(conditions.seed.wrapping_mul(2).wrapping_add(direction)),
            free_at: Duration::ZERO,
            last_arrival: Duration::ZERO,
            in_burst: false,
        }
    }

    /// Changes the conditions for the packets that follow.
    pub(super) fn change(&mut self, conditions: Conditions) {
        self.conditions = conditions;
    }

    /// Returns the fate of a packet that arrives now; `now` never decreases.
    pub(super) fn offer(&mut self, now: Duration, packet: &[u8]) -> Fate {
        let closed = |port| tcp_ports(packet).is_some_and(|ports| !ports.contains(&port));
        if self.conditions.udp_blocked && is_udp(packet) || self.conditions.only_tcp_port.is_some_and(closed)
        {
            return Fate::Dropped(Cause::Blocked);
        }
        let begins = self.free_at.max(now);
        if self.bytes_in(begins - now) + packet.len() as u64 > self.conditions.queue_bytes {
            return Fate::Dropped(Cause::Queue);
        }
        self.free_at = begins + self.time_of(packet.len());
        if self.is_lost() {
            return Fate::Dropped(Cause::Loss);
        }
        let arrival =
            self.free_at + self.conditions.round_trip / 2 + self.dice.within(self.conditions.jitter);
        if self.dice.chance(self.conditions.reorder) {
            return Fate::Arrives(arrival + LATE);
        }
        self.last_arrival = self.last_arrival.max(arrival);
        Fate::Arrives(self.last_arrival)
    }

    fn is_lost(&mut self) -> bool {
        if let Some(burst) = self.conditions.burst {
            let turn = if self.in_burst { burst.leave } else { burst.enter };
            self.in_burst ^= self.dice.chance(turn);
        }
        self.dice.chance(self.conditions.loss) || self.in_burst
    }

    /// Returns how long that many bytes keep the sender busy.
    fn time_of(&self, bytes: usize) -> Duration {
        match self.conditions.bits_per_second {
            0 => Duration::ZERO,
            rate => Duration::from_nanos((bytes as u64 * 8).saturating_mul(1_000_000_000) / rate),
        }
    }

    /// Returns how many bytes keep the sender busy for this long.
    fn bytes_in(&self, time: Duration) -> u64 {
        (self.conditions.bits_per_second as f64 / 8.0 * time.as_secs_f64()) as u64
    }
}

/// SplitMix64: small, seeded, good enough for losses.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number evenly distributed from 0 to 1.
    fn share(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && self.share() < share
    }

    fn within(&mut self, time: Duration) -> Duration {
        if time.is_zero() { time } else { time.mul_f64(self.share()) }
    }
}

/// Returns whether this is a UDP packet of either version of IP; extension headers of IPv6 do not
/// occur here.
fn is_udp(packet: &[u8]) -> bool {
    const UDP: u8 = 17;
    match packet.first().map(|first| first >> 4) {
        Some(4) => packet.get(9) == Some(&UDP),
        Some(6) => packet.get(6) == Some(&UDP),
        _ => false,
    }
}

/// Returns the source and destination port of a TCP packet over IPv4; the lab's hosts have no other.
fn tcp_ports(packet: &[u8]) -> Option<[u16; 2]> {
    const TCP: u8 = 6;
    let first = packet.first().filter(|first| **first >> 4 == 4)?;
    let header = usize::from(first & 15) * 4;
    let [a, b, c, d] = *packet.get(header..)?.first_chunk()?;
    (packet.get(9) == Some(&TCP)).then(|| [[a, b], [c, d]].map(u16::from_be_bytes))
}

#[cfg(test)]
mod tests {
    use super::{super::path::Burst, *};

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn clean() -> Conditions {
        Conditions::of(12, 20 * MILLISECOND)
    }

    /// Returns the fates of that many packets of 1500 bytes, one each millisecond: the most that 12
    /// Mbit/s carries.
    fn fates(conditions: Conditions, packets: u32) -> Vec<Fate> {
        let mut link = Link::new(conditions, 0);
        (0..packets).map(|index| link.offer(MILLISECOND * index, &[0; 1500])).collect()
    }

    fn dropped(fates: &[Fate], cause: Cause) -> usize {
        fates.iter().filter(|fate| **fate == Fate::Dropped(cause)).count()
    }

    fn arrivals(fates: &[Fate]) -> Vec<Duration> {
        let arrival = |fate: &Fate| if let Fate::Arrives(at) = fate { Some(*at) } else { None };
        fates.iter().filter_map(arrival).collect()
    }

    #[test]
    fn one_tcp_port_may_be_the_only_one_that_passes() {
        let mut link = Link::new(Conditions { only_tcp_port: Some(22), ..clean() }, 0);
        let mut packet = [0; 60];
        (packet[0], packet[9], packet[23]) = (0x45, 6, 22);
        assert!(matches!(link.offer(MILLISECOND, &packet), Fate::Arrives(_)));
        packet[23] = 23;
        assert_eq!(link.offer(MILLISECOND, &packet), Fate::Dropped(Cause::Blocked));
        packet[9] = 17;
        assert!(matches!(link.offer(MILLISECOND, &packet), Fate::Arrives(_)));
    }

    #[test]
    fn packet_takes_its_time_on_the_link_and_half_a_round_trip() {
        assert_eq!(fates(clean(), 1), [Fate::Arrives(11 * MILLISECOND)]);
    }

    #[test]
    fn rate_is_kept_and_what_the_queue_cannot_hold_is_dropped() {
        let mut link = Link::new(clean(), 0);
        let fates: Vec<Fate> =
            (0..2000).map(|index| link.offer(MILLISECOND / 2 * index, &[0; 1500])).collect();
        let arrived = arrivals(&fates);
        assert!(arrived.windows(2).all(|pair| pair[1] - pair[0] == MILLISECOND));
        // Twice the rate for a second: half of it leaves, 64 kB wait, the rest is dropped.
        assert_eq!(arrived.len(), 1000 + 64_000 / 1500);
        assert_eq!(dropped(&fates, Cause::Queue), 2000 - arrived.len());
    }

    #[test]
    fn random_loss_has_its_share() {
        let lost = dropped(&fates(Conditions { loss: 0.01, ..clean() }, 100_000), Cause::Loss);
        assert!((900..1100).contains(&lost), "{lost}");
    }

    #[test]
    fn bursts_have_their_length_and_share() {
        let burst = Some(Burst { enter: 0.001, leave: 0.1 });
        let fates = fates(Conditions { burst, ..clean() }, 200_000);
        let lost = dropped(&fates, Cause::Loss);
        let begins = fates.windows(2).filter(|pair| matches!(pair, [Fate::Arrives(_), Fate::Dropped(_)]));
        let bursts = begins.count();
        assert!((150..250).contains(&bursts), "{bursts}");
        assert!((8 * bursts..12 * bursts).contains(&lost), "{lost} in {bursts}");
    }

    #[test]
    fn jitter_keeps_the_order_and_reordering_does_not() {
        let jittered = arrivals(&fates(Conditions { jitter: 5 * MILLISECOND, ..clean() }, 1000));
        assert!(jittered.is_sorted());
        let reordered = arrivals(&fates(Conditions { reorder: 0.01, ..clean() }, 1000));
        let late = reordered.windows(2).filter(|pair| pair[1] < pair[0]).count();
        assert!((2..30).contains(&late), "{late}");
    }

    #[test]
    fn blocked_udp_is_dropped_and_tcp_is_not() {
        let mut link = Link::new(Conditions { udp_blocked: true, ..clean() }, 0);
        let packet = |first, at: usize, protocol| {
            let mut packet = [0_u8; 60];
            packet[0] = first;
            packet[at] = protocol;
            packet
        };
        for (packet, blocked) in [
            (packet(0x45, 9, 17), true),
            (packet(0x45, 9, 6), false),
            (packet(0x60, 6, 17), true),
            (packet(0x60, 6, 6), false),
        ] {
            let fate = link.offer(Duration::ZERO, &packet);
            assert_eq!(fate == Fate::Dropped(Cause::Blocked), blocked, "{fate:?}");
        }
    }

    #[test]
    fn same_seed_has_the_same_fates() {
        let lossy = Conditions { loss: 0.1, jitter: MILLISECOND, ..clean() };
        assert_eq!(fates(lossy, 1000), fates(lossy, 1000));
        assert_ne!(fates(lossy, 1000), fates(Conditions { seed: 2, ..lossy }, 1000));
    }
}
