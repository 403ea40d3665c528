//! The properties of a path between two hosts, and the named paths.

use std::{fmt, time::Duration};

/// A path between two hosts, the same in both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Path {
    /// The medium of the packets.
    pub medium: Medium,
    /// Largest packet in bytes, IP header included.
    pub mtu: u16,
    /// TCP's congestion control at both ends; the kernel's default differs between machines.
    pub congestion: &'static str,
}

/// The medium of packets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Medium {
    /// The loopback of one namespace.
    Loopback,
    /// A pair of virtual cards: as fast as the machine is.
    Pair,
    /// The emulated link.
    Link(Conditions),
}

/// The behaviour of one direction of an emulated link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Conditions {
    /// Bits of IP packets per second, headers included; 0 is no limit.
    pub bits_per_second: u64,
    /// Time over the link and back, without the queue; each direction takes half.
    pub round_trip: Duration,
    /// Largest extra delay of a packet, evenly distributed; the order is kept.
    pub jitter: Duration,
    /// Share of the packets that are lost at random, 0 to 1.
    pub loss: f64,
    /// Losses in bursts.
    pub burst: Option<Burst>,
    /// Share of the packets that arrive two milliseconds late, behind others, 0 to 1.
    pub reorder: f64,
    /// Bytes that may wait for the link; further packets are dropped.
    pub queue_bytes: u64,
    /// Whether UDP is dropped without an answer, as firewalls do.
    pub udp_blocked: bool,
    /// The one TCP port whose packets pass, if others are dropped without an answer.
    pub only_tcp_port: Option<u16>,
    /// Seed of the losses, the jitter and the order.
    pub seed: u64,
}

/// The Gilbert-Elliott model: a good state without losses of its own and a bad one that loses
/// everything.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Burst {
    /// Chance of each packet to begin the bad state.
    pub enter: f64,
    /// Chance of each packet to end it: its inverse is the mean length of a burst in packets.
    pub leave: f64,
}

impl Path {
    /// The names of [`Path::named`], in the order of their distance.
    pub const NAMES: [&'static str; 7] = ["lo", "veth", "jumbo", "lan", "wan", "sat", "hotel"];

    /// Returns a path by its name.
    pub fn named(name: &str) -> Option<Self> {
        let path = |medium, mtu| Self { medium, mtu, congestion: "cubic" };
        let link = |megabits, milliseconds| Conditions::of(megabits, Duration::from_millis(milliseconds));
        Some(match name {
            "lo" => path(Medium::Loopback, u16::MAX),
            "veth" => path(Medium::Pair, 1500),
            "jumbo" => path(Medium::Pair, 9000),
            "lan" => path(Medium::Link(link(1000, 17)), 1500),
            "wan" => path(Medium::Link(Conditions { loss: 0.001, ..link(200, 80) }), 1500),
            "sat" => path(Medium::Link(Conditions { loss: 0.01, ..link(100, 600) }), 1500),
            "hotel" => path(Medium::Link(Conditions { udp_blocked: true, ..link(20, 40) }), 1500),
            _ => return None,
        })
    }

    /// Makes a path over an emulated link.
    pub fn over(conditions: Conditions) -> Self {
        Self { medium: Medium::Link(conditions), mtu: 1500, congestion: "cubic" }
    }
}

impl Conditions {
    /// Makes a clean link of this rate and round trip, with a queue of [`Conditions::usual_queue`].
    pub fn of(megabits: u64, round_trip: Duration) -> Self {
        let conditions = Self {
            bits_per_second: megabits * 1_000_000,
            round_trip,
            jitter: Duration::ZERO,
            loss: 0.0,
            burst: None,
            reorder: 0.0,
            queue_bytes: 0,
            udp_blocked: false,
            only_tcp_port: None,
            seed: 1,
        };
        Self { queue_bytes: conditions.usual_queue(), ..conditions }
    }

    /// Returns the link's content in a round trip, within the limits of routers: 64 kB to 2.5 MB.
    pub fn usual_queue(&self) -> u64 {
        let product = self.bits_per_second as f64 / 8.0 * self.round_trip.as_secs_f64();
        if self.bits_per_second == 0 { u64::MAX } else { (product as u64).clamp(64_000, 2_500_000) }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.medium {
            Medium::Loopback => write!(f, "loopback")?,
            Medium::Pair => write!(f, "virtual cards, MTU {}", self.mtu)?,
            Medium::Link(conditions) => write!(f, "{conditions}, MTU {}", self.mtu)?,
        }
        write!(f, ", TCP {}", self.congestion)
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
        match self.bits_per_second {
            0 => write!(f, "no limit")?,
            rate => write!(f, "{} Mbit/s, queue {} bytes", rate as f64 / 1e6, self.queue_bytes)?,
        }
        write!(f, ", {} ms", milliseconds(self.round_trip))?;
        if !self.jitter.is_zero() {
            write!(f, ", jitter {} ms", milliseconds(self.jitter))?;
        }
        if self.loss > 0.0 {
            write!(f, ", {} % lost", self.loss * 100.0)?;
        }
        if let Some(burst) = self.burst {
            write!(f, ", bursts {} % / {} %", burst.enter * 100.0, burst.leave * 100.0)?;
        }
        if self.reorder > 0.0 {
            write!(f, ", {} % reordered", self.reorder * 100.0)?;
        }
        if self.udp_blocked {
            write!(f, ", UDP blocked")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_path() {
        for name in Path::NAMES {
            assert!(Path::named(name).is_some(), "{name}");
        }
        assert_eq!(Path::named("moon"), None);
    }

    #[test]
    fn queue_is_what_a_round_trip_holds_within_bounds() {
        assert_eq!(Conditions::of(100, Duration::from_millis(40)).queue_bytes, 500_000);
        assert_eq!(Conditions::of(100, Duration::from_millis(600)).queue_bytes, 2_500_000);
        assert_eq!(Conditions::of(1, Duration::from_millis(1)).queue_bytes, 64_000);
    }
}
