//! The first bytes of a stretch of a lane.
//!
//! ```text
//! number of the lane, by the end that opened it: u32 LE
//! number of the stretch, from 0: u16 LE
//! 1 if the sender of this opened the lane, else 0: u8
//! why the data moved here: u8 (0 it did not, 1 losses, 2 slower, 3 clean, 4 the peer's data did)
//! number of that decision of the sender, from 1, else 0: u16 LE
//! packets lost of a million, with 1: u32 LE
//! ```

use dsync_wire::link::MoveCause;

/// The place of a stretch, and the reason for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) id: u32,
    pub(super) stretch: u16,
    /// Whether the sender of the header opened the lane.
    pub(super) own: bool,
    pub(super) why: Why,
    /// Number of its sender's decision.
    pub(super) decision: u16,
}

/// The reason why a stretch is where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// The lane began there.
    Began,
    /// Its sender decided so.
    Decided(MoveCause),
    /// Its sender went where the peer's data went.
    Followed,
}

impl Header {
    pub(super) fn encode(self) -> [u8; LENGTH] {
        let (why, lost) = match self.why {
            Why::Began => (0, 0),
            Why::Decided(MoveCause::Loss { per_million }) => (1, per_million),
            Why::Decided(MoveCause::Slower) => (2, 0),
            // A clean path. A look at the other carrier is told as one: older versions know no further reason,
            // and those of further connections have no stretches.
            Why::Decided(_) => (3, 0),
            Why::Followed => (4, 0),
        };
        let mut bytes = [0; LENGTH];
        bytes[..4].copy_from_slice(&self.id.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.stretch.to_le_bytes());
        bytes[6] = u8::from(self.own);
        bytes[7] = why;
        bytes[8..10].copy_from_slice(&self.decision.to_le_bytes());
        bytes[10..].copy_from_slice(&u32::to_le_bytes(lost));
        bytes
    }

    /// Parses a header; `None` if it is none.
    pub(super) fn decode(bytes: [u8; LENGTH]) -> Option<Self> {
        let [a, b, c, d, e, f, own, why, g, h, lost @ ..] = bytes;
        let per_million = u32::from_le_bytes(lost);
        let why = match why {
            0 => Why::Began,
            1 => Why::Decided(MoveCause::Loss {
                per_million: Some(per_million).filter(|lost| *lost <= MILLION)?,
            }),
            2 => Why::Decided(MoveCause::Slower),
            3 => Why::Decided(MoveCause::Clean),
            4 => Why::Followed,
            _ => return None,
        };

        let header = Self {
            id: u32::from_le_bytes([a, b, c, d]),
            stretch: u16::from_le_bytes([e, f]),
            own: own == 1,
            why,
            decision: u16::from_le_bytes([g, h]),
        };

        // One form only; the first stretch is the opener's, and no other begins a lane.
        let sound = header.encode() == bytes
            && (header.stretch == 0) == (why == Why::Began)
            && (header.stretch == 0) == (header.decision == 0)
            && (header.stretch > 0 || header.own);
        sound.then_some(header)
    }
}

/// Length of a header in bytes.
pub(super) const LENGTH: usize = 14;
const MILLION: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_and_others_are_refused() {
        let loss = MoveCause::Loss { per_million: 12_345 };
        for (stretch, own, why, decision) in [
            (0, true, Why::Began, 0),
            (1, true, Why::Decided(loss), 1),
            (2, false, Why::Decided(MoveCause::Slower), 4),
            (3, true, Why::Decided(MoveCause::Clean), 3),
            (u16::MAX, false, Why::Followed, u16::MAX),
        ] {
            let header = Header { id: u32::MAX - 1, stretch, own, why, decision };
            assert_eq!(Header::decode(header.encode()), Some(header));
        }
        let whole = |stretch, own, why| Header { id: 7, stretch, own, why, decision: stretch }.encode();
        let broken = |at: usize, value| {
            let mut bytes = whole(1, true, Why::Followed);
            bytes[at] = value;
            bytes
        };
        for bytes in [
            whole(0, false, Why::Began),
            whole(0, true, Why::Followed),
            whole(1, true, Why::Began),
            whole(1, true, Why::Decided(MoveCause::Loss { per_million: MILLION + 1 })),
            broken(6, 2),
            broken(7, 5),
            broken(8, 0),
            broken(10, 1),
        ] {
            assert_eq!(Header::decode(bytes), None, "{bytes:?}");
        }
    }
}
