//! Connections at a port that have not proved their identity, and the choice of one to evict if
//! there are too many.
//!
//! The law: until the client is in, a new connection always gets a place, and the number of places
//! is bounded. To make room, the oldest connection is evicted whose address is not the one from
//! which ssh was reached; if there is none, the oldest of all. So strangers who connect and send
//! nothing keep nobody out, and as long as they come from other addresses they do not cost the
//! client its place either. After the client is in, only strangers are evicted: connections from
//! its address are its lanes, and it may open many at once.

use std::{collections::VecDeque, net::IpAddr};

/// Connections without proof, oldest first; `T` is the handle that ends one.
pub(crate) struct Crowd<T> {
    places: usize,
    client: Option<IpAddr>,
    /// Whether the client has proved its identity.
    client_is_in: bool,
    members: VecDeque<(IpAddr, T)>,
}

impl<T> Crowd<T> {
    /// Makes a crowd of at least one place. `client` is the address that ssh saw, if known.
    pub(crate) fn new(places: usize, client: Option<IpAddr>) -> Self {
        let client = client.map(|address| address.to_canonical());
        Self { places, client, client_is_in: false, members: VecDeque::new() }
    }

    /// Records that the client is in: connections from its address are not evicted any more.
    pub(crate) fn recognise(&mut self, client: IpAddr) {
        self.client = Some(client.to_canonical());
        self.client_is_in = true;
    }

    /// Admits a connection; returns the one that must be evicted for it.
    pub(crate) fn admit(&mut self, address: IpAddr, member: T) -> Option<T> {
        let gone = (self.members.len() >= self.places).then(|| self.give_up()).flatten();
        self.members.push_back((address.to_canonical(), member));
        gone
    }

    /// Removes the connection that `is` recognises; returns `false` if it had been evicted before.
    pub(crate) fn leave(&mut self, is: impl Fn(&T) -> bool) -> bool {
        let at = self.members.iter().position(|(_, member)| is(member));
        at.and_then(|at| self.members.remove(at)).is_some()
    }

    /// Returns how many connections wait.
    #[cfg(any(feature = "quic", test))]
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    fn give_up(&mut self) -> Option<T> {
        let strangers = self.members.iter().position(|(address, _)| Some(*address) != self.client);
        let oldest = (!self.client_is_in).then_some(0);
        self.members.remove(strangers.or(oldest)?).map(|(_, member)| member)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 66));

    #[test]
    fn the_oldest_goes_when_all_places_are_taken() {
        let mut crowd = Crowd::new(2, None);
        assert_eq!([1, 2, 3, 4].map(|number| crowd.admit(STRANGER, number)), [None, None, Some(1), Some(2)]);
        assert_eq!(crowd.len(), 2);
    }

    #[test]
    fn who_has_left_takes_no_place_and_who_had_to_go_is_told() {
        let mut crowd = Crowd::new(1, None);
        crowd.admit(STRANGER, 1);
        assert!(crowd.leave(|&member| member == 1));
        assert_eq!(crowd.admit(STRANGER, 2), None);
        assert_eq!(crowd.admit(STRANGER, 3), Some(2));
        assert!(!crowd.leave(|&member| member == 2));
    }

    #[test]
    fn strangers_go_before_the_address_that_ssh_saw() {
        let mapped = IpAddr::V6(Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped());
        let mut crowd = Crowd::new(2, Some(mapped));
        crowd.admit(CLIENT, 1);
        crowd.admit(IpAddr::V6(Ipv6Addr::LOCALHOST), 2);
        assert_eq!(crowd.admit(STRANGER, 3), Some(2));
        assert_eq!(crowd.admit(STRANGER, 4), Some(3));
        crowd.leave(|&member| member == 4);
        crowd.admit(mapped, 5);
        assert_eq!(crowd.admit(STRANGER, 6), Some(1), "the oldest of its own, where there is nobody else");
    }

    #[test]
    fn the_client_that_is_in_may_have_any_number_of_lanes_under_way() {
        let mut crowd = Crowd::new(2, None);
        crowd.admit(STRANGER, 1);
        crowd.recognise(CLIENT);
        assert_eq!([2, 3, 4].map(|number| crowd.admit(CLIENT, number)), [None, Some(1), None]);
        crowd.admit(STRANGER, 5);
        assert_eq!(crowd.admit(CLIENT, 6), Some(5));
        assert_eq!(crowd.len(), 4);
    }
}
