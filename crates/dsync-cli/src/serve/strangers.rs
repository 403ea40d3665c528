//! The places of clients that have proved no key.
//!
//! The law: strangers have [`FULL`] places and one address at most [`ONE_ADDRESS`] of them, so nobody
//! can keep others out from one address. From [`CROWD`] on every second connection is refused, but
//! for the first of an address. A connection that is refused comes again; one that is taken ends
//! after some seconds.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The strangers of a server.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    by_address: BTreeMap<IpAddr, usize>,
    all: usize,
    /// Connections that came where every second one is refused, or all are.
    pressed: usize,
}

/// A stranger's place; free again when it is dropped.
#[derive(Debug)]
pub(super) struct Stranger {
    of: Arc<Strangers>,
    address: IpAddr,
}

impl Strangers {
    /// Takes a place for a connection.
    ///
    /// # Errors
    /// There is none: the number of connections that came in a crowd before.
    pub(super) fn admit(self: &Arc<Self>, peer: SocketAddr) -> Result<Stranger, usize> {
        let address = network(peer.ip());
        let mut held = self.lock();
        let own = held.by_address.get(&address).copied().unwrap_or_default();
        let in_crowd = held.all >= CROWD && own > 0;
        let is_refused =
            held.all >= FULL || own >= ONE_ADDRESS || (in_crowd && held.pressed.is_multiple_of(2));
        if is_refused || in_crowd {
            held.pressed += 1;
        }
        if is_refused {
            return Err(held.pressed - 1);
        }

        held.all += 1;
        *held.by_address.entry(address).or_default() += 1;
        Ok(Stranger { of: Arc::clone(self), address })
    }

    /// Returns the number of strangers.
    pub(super) fn count(&self) -> usize {
        self.lock().all
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut held = self.of.lock();
        held.all -= 1;
        if let Some(own) = held.by_address.get_mut(&self.address) {
            *own -= 1;
            if *own == 0 {
                held.by_address.remove(&self.address);
            }
        }
    }
}

/// Returns the address by which a host is counted: of IPv6 its network of 64 bits, all of which a
/// host may use.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// Strangers from which on every second further connection of an address is refused.
const CROWD: usize = 16;
/// The most strangers of one address.
const ONE_ADDRESS: usize = 48;
/// The most strangers.
const FULL: usize = 64;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn peer(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().unwrap(), 40000)
    }

    #[test]
    fn one_address_cannot_take_all_places() {
        let strangers = Arc::new(Strangers::default());
        let flood: Vec<_> = (0..1000).filter_map(|_| strangers.admit(peer("192.0.2.1")).ok()).collect();
        assert_eq!((flood.len(), strangers.count()), (ONE_ADDRESS, ONE_ADDRESS));
        // The first connection of another address is never one of those that are refused by turns.
        let others: Vec<_> =
            (2..=255).map_while(|host| strangers.admit(peer(&format!("192.0.2.{host}"))).ok()).collect();
        assert_eq!(others.len(), FULL - ONE_ADDRESS);
        assert!(strangers.admit(peer("198.51.100.1")).is_err(), "all places are taken");

        drop(others);
        drop(flood);
        assert_eq!(strangers.count(), 0);
        assert!(strangers.lock().by_address.is_empty());
        let _ = strangers.admit(peer("192.0.2.1")).unwrap();
    }

    #[test]
    fn in_a_crowd_every_second_connection_of_an_address_is_refused() {
        let strangers = Arc::new(Strangers::default());
        let crowd: Vec<_> = (0..CROWD).map(|_| strangers.admit(peer("192.0.2.1")).unwrap()).collect();
        let (taken, refused): (Vec<_>, Vec<_>) =
            (0..20).map(|_| strangers.admit(peer("192.0.2.1"))).partition(Result::is_ok);
        assert_eq!((taken.len(), refused.len()), (10, 10));
        drop(crowd);
    }

    #[test]
    fn hosts_are_counted_by_what_one_can_use() {
        for (one, other, same) in [
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
        ] {
            let [one, other] = [one, other].map(|text| network(text.parse().unwrap()));
            assert_eq!(one == other, same, "{one} {other}");
        }
    }
}
