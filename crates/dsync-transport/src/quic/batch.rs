//! Packets of several of quinn's sends that one system call may take.
//!
//! quinn hands over ten packets at a time at most, and the kernel takes six times as many. At 1,452 bytes a packet
//! the call is what costs, so packets wait here until quinn's turn ends ([`super::turns`]): no timer, no delay.

use std::net::{IpAddr, SocketAddr};

use quinn::udp::{EcnCodepoint, Transmit};

/// Packets of one length to one address, the last of which may be shorter.
#[derive(Debug, Default)]
pub(super) struct Batch {
    contents: Vec<u8>,
    segment: usize,
    /// Properties that the packets share; `None` while there are none.
    to: Option<Heading>,
}

/// Properties that all packets of one system call share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Heading {
    destination: SocketAddr,
    ecn: Option<EcnCodepoint>,
    source: Option<IpAddr>,
}

impl Batch {
    /// Adds packets to the batch. Returns `false`, and adds none, if they have to go by another call.
    pub(super) fn add(&mut self, transmit: &Transmit<'_>, most: usize) -> bool {
        let bytes = transmit.contents.len();
        let segment = transmit.segment_size.unwrap_or(bytes);
        let heading =
            Heading { destination: transmit.destination, ecn: transmit.ecn, source: transmit.src_ip };

        let joins = match self.to {
            // Where a second send like this one would not fit, waiting costs a copy and saves nothing.
            None => bytes * 2 <= MOST_BYTES && bytes.div_ceil(segment.max(1)) * 2 <= most,
            Some(to) => to == heading && self.takes(segment, bytes, most),
        };
        if joins {
            if self.to.is_none() {
                (self.to, self.segment) = (Some(heading), segment);
            }
            self.contents.extend_from_slice(transmit.contents);
        }
        joins
    }

    /// Returns whether packets of this length fit behind those that are here.
    fn takes(&self, segment: usize, bytes: usize, most: usize) -> bool {
        let (before, together) = (self.contents.len(), self.contents.len() + bytes);
        // Only the last packet of a call may be shorter than the others. One packet by itself may be a probe
        // for a larger size, which the kernel refuses together with what goes with it.
        let shorter = segment == bytes && bytes < self.segment;
        let alike = segment == self.segment || (shorter && before > self.segment);
        let ends_whole = before.is_multiple_of(self.segment);
        ends_whole && alike && together <= MOST_BYTES && together.div_ceil(self.segment) <= most
    }

    /// Returns the packets as one send, if there are any.
    pub(super) fn transmit(&self) -> Option<Transmit<'_>> {
        let to = self.to?;
        Some(Transmit {
            destination: to.destination,
            ecn: to.ecn,
            contents: &self.contents,
            segment_size: (self.contents.len() > self.segment).then_some(self.segment),
            src_ip: to.source,
        })
    }

    /// Forgets the packets and keeps their memory.
    pub(super) fn clear(&mut self) {
        self.contents.clear();
        self.to = None;
    }
}

/// Most bytes of one call: the largest UDP payload over IPv4.
pub(super) const MOST_BYTES: usize = 65_507;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Describes `count` packets of `size` bytes as quinn hands them over.
    fn packets(contents: &[u8], size: usize) -> Transmit<'_> {
        Transmit {
            destination: ([127, 0, 0, 1], 9).into(),
            ecn: None,
            contents,
            segment_size: (contents.len() > size).then_some(size),
            src_ip: None,
        }
    }

    #[test]
    fn packets_of_one_length_go_together_as_far_as_a_call_reaches() {
        let (mut batch, ten) = (Batch::default(), vec![7; 14_520]);
        let added = (0..9).take_while(|_| batch.add(&packets(&ten, 1452), 64)).count();
        assert_eq!(added, 4);
        let joined = batch.transmit().unwrap();
        assert_eq!((joined.contents.len(), joined.segment_size), (58_080, Some(1452)));
        batch.clear();
        assert!(batch.transmit().is_none() && batch.add(&packets(&ten, 1452), 64));
    }

    #[test]
    fn a_shorter_packet_is_the_last() {
        let (mut batch, many) = (Batch::default(), vec![7; 4356]);
        assert!(batch.add(&packets(&many, 1452), 64));
        // Two short packets would arrive as one.
        assert!(!batch.add(&packets(&many[..100], 50), 64));
        assert!(batch.add(&packets(&many[..50], 1452), 64));
        assert!(!batch.add(&packets(&many, 1452), 64));
        assert_eq!(batch.transmit().unwrap().contents.len(), 4406);
    }

    #[test]
    fn a_probe_for_a_larger_size_goes_alone() {
        let (mut batch, probe) = (Batch::default(), vec![7; 1452]);
        assert!(batch.add(&packets(&probe, 1452), 64));
        assert!(!batch.add(&packets(&probe[..60], 60), 64));
        batch.clear();
        assert!(batch.add(&packets(&probe[..1200], 400), 64));
        assert!(!batch.add(&packets(&probe, 1452), 64));
    }

    #[test]
    fn what_is_not_alike_goes_apart() {
        let (mut batch, two) = (Batch::default(), vec![7; 2000]);
        assert!(batch.add(&packets(&two, 1000), 64));
        let ecn = Some(EcnCodepoint::Ect0);
        assert!(!batch.add(&Transmit { ecn, ..packets(&two, 1000) }, 64));
        let destination = ([127, 0, 0, 2], 9).into();
        assert!(!batch.add(&Transmit { destination, ..packets(&two, 1000) }, 64));
        assert!(!batch.add(&packets(&two, 500), 64));
        assert!(!batch.add(&packets(&two, 1000), 3));
    }

    #[test]
    fn a_send_that_fills_a_call_is_not_copied() {
        let (mut batch, ten) = (Batch::default(), vec![7; 65_000]);
        assert!(!batch.add(&packets(&ten, 6500), 64));
        // Without splitting by the kernel each packet has a call of its own.
        assert!(!batch.add(&packets(&ten[..1000], 1000), 1));
    }
}
