//! The mux's bytes: an 8-byte header, then a payload.
//!
//! ```text
//! lane: u32 LE | kind: u8 | length of the payload: u24 LE | payload
//! ```
//!
//! | kind | name | payload | meaning |
//! |---|---|---|---|
//! | 1 | open | – | the sender will use this lane |
//! | 2 | data | 1 to 65,536 bytes | the next bytes of the lane |
//! | 3 | finish | – | clean end of the sender's direction |
//! | 4 | reset | – | end of the sender's direction before it was complete |
//! | 5 | stop | – | the sender will read no more of the lane; answered by reset unless ended |
//! | 6 | credit | u32 LE | the peer may send this many more bytes on the lane |
//! | 7 | alive | – | lane 0: sent if there was nothing else to send for a while |
//! | 8 | close | u32 LE | lane 0: end of the link and its reason; nothing follows |
//! | 9 | moved | u32 LE | the rest of the sender's direction comes on this further connection; a second one: the rest after that |
//! | 10 | invite | [`INVITATION`] bytes | lane 0: how to make further connections |
//! | 11 | port takes QUIC | – | lane 0: one of them may be over QUIC |
//! | 12 | wants QUIC | u32 LE | lane 0: that one is to be made, for this loss in packets of a million |
//!
//! The last four belong to features, without which they are unknown kinds. With the last one's a
//! direction that has moved ends with *finish* here too, behind its end on the further connection.

use dsync_wire::budget::OverBudget;

use super::beside::INVITATION;

/// Length of a header in bytes.
pub(crate) const HEADER_BYTES: usize = 8;

/// Most payload of one frame, in bytes: small enough that a control frame never waits long behind
/// another lane's data (64 KiB take 50 ms at 10 Mbit/s), large enough that headers cost nothing.
pub(crate) const MAX_PAYLOAD: usize = 64 << 10;

/// The content of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    Open,
    Data(&'a [u8]),
    Finish,
    Reset,
    Stop,
    Credit(u32),
    Alive,
    Close(u32),
    Moved(u32),
    Invite(&'a [u8; INVITATION]),
    TakesQuic,
    WantsQuic(u32),
}

/// A fault in the peer's frames: in their bytes or in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MuxError {
    #[error("unknown mux frame kind {kind}")]
    UnknownKind { kind: u8 },
    #[error("mux frame kind {kind} with a payload of {length} bytes")]
    BadLength { kind: u8, length: usize },
    #[error("mux frame kind {kind} on lane {lane}")]
    BadLane { kind: u8, lane: u32 },
    #[error("more than {limit} lanes")]
    TooManyLanes { limit: usize },
    #[error("{length} bytes on lane {lane}, whose window has {left}")]
    WindowExceeded { lane: u32, length: usize, left: usize },
    #[error("credit of {credit} bytes on lane {lane} beyond its window")]
    CreditExceeded { lane: u32, credit: u32 },
    #[error("the peer does not read what it causes to be sent")]
    Flooded,
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
}

/// Parses the first frame of `bytes`. Returns its lane, the frame and its whole length, or `None`
/// if it is incomplete.
///
/// # Errors
/// [`MuxError`] as soon as the header is wrong, before the payload has arrived.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(u32, Frame<'_>, usize)>, MuxError> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let [a, b, c, d, kind, x, y, z] = *header;
    let lane = u32::from_le_bytes([a, b, c, d]);
    let length = u32::from_le_bytes([x, y, z, 0]) as usize;
    let fits = match kind {
        kind::DATA => (1..=MAX_PAYLOAD).contains(&length),
        kind::CREDIT | kind::CLOSE | kind::MOVED | kind::WANTS_QUIC => length == 4,
        kind::INVITE => length == INVITATION,
        kind::OPEN | kind::FINISH | kind::RESET | kind::STOP | kind::ALIVE | kind::TAKES_QUIC => length == 0,
        _ => return Err(MuxError::UnknownKind { kind }),
    };
    if !fits {
        return Err(MuxError::BadLength { kind, length });
    }
    let is_of_link =
        matches!(kind, kind::ALIVE | kind::CLOSE | kind::INVITE | kind::TAKES_QUIC | kind::WANTS_QUIC);
    if (lane == 0) != is_of_link {
        return Err(MuxError::BadLane { kind, lane });
    }

    let Some(payload) = rest.get(..length) else { return Ok(None) };
    let number = || payload.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let frame = match kind {
        kind::DATA => Frame::Data(payload),
        kind::CREDIT => Frame::Credit(number()),
        kind::CLOSE => Frame::Close(number()),
        kind::MOVED => Frame::Moved(number()),
        kind::WANTS_QUIC => Frame::WantsQuic(number()),
        kind::OPEN => Frame::Open,
        kind::FINISH => Frame::Finish,
        kind::RESET => Frame::Reset,
        kind::STOP => Frame::Stop,
        kind::TAKES_QUIC => Frame::TakesQuic,
        kind::INVITE => match payload.first_chunk() {
            Some(invitation) => Frame::Invite(invitation),
            None => return Err(MuxError::BadLength { kind, length }),
        },
        _ => Frame::Alive,
    };

    Ok(Some((lane, frame, HEADER_BYTES + length)))
}

impl Frame<'_> {
    /// Returns the number of this kind on the wire.
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Self::Open => kind::OPEN,
            Self::Data(_) => kind::DATA,
            Self::Finish => kind::FINISH,
            Self::Reset => kind::RESET,
            Self::Stop => kind::STOP,
            Self::Credit(_) => kind::CREDIT,
            Self::Alive => kind::ALIVE,
            Self::Close(_) => kind::CLOSE,
            Self::Moved(_) => kind::MOVED,
            Self::Invite(_) => kind::INVITE,
            Self::TakesQuic => kind::TAKES_QUIC,
            Self::WantsQuic(_) => kind::WANTS_QUIC,
        }
    }
}

/// Returns the header of a frame.
pub(crate) fn header(lane: u32, kind: u8, length: usize) -> [u8; HEADER_BYTES] {
    let [a, b, c, d] = lane.to_le_bytes();
    let [x, y, z, ..] = length.to_le_bytes();
    [a, b, c, d, kind, x, y, z]
}

/// Appends a frame that carries little or no data.
pub(crate) fn encode(lane: u32, frame: Frame<'_>, out: &mut Vec<u8>) {
    let number;
    let payload = match frame {
        Frame::Data(payload) => payload,
        Frame::Invite(invitation) => invitation,
        Frame::Credit(value) | Frame::Close(value) | Frame::Moved(value) | Frame::WantsQuic(value) => {
            number = value.to_le_bytes();
            &number[..]
        }
        _ => &[],
    };
    out.extend_from_slice(&header(lane, frame.kind(), payload.len()));
    out.extend_from_slice(payload);
}

/// Numbers of the kinds.
pub(crate) mod kind {
    pub(crate) const OPEN: u8 = 1;
    pub(crate) const DATA: u8 = 2;
    pub(crate) const FINISH: u8 = 3;
    pub(crate) const RESET: u8 = 4;
    pub(crate) const STOP: u8 = 5;
    pub(crate) const CREDIT: u8 = 6;
    pub(crate) const ALIVE: u8 = 7;
    pub(crate) const CLOSE: u8 = 8;
    pub(crate) const MOVED: u8 = 9;
    pub(crate) const INVITE: u8 = 10;
    pub(crate) const TAKES_QUIC: u8 = 11;
    pub(crate) const WANTS_QUIC: u8 = 12;
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_kind_survives_encoding() {
        let payload = vec![7; MAX_PAYLOAD];
        for (lane, frame) in [
            (3, Frame::Open),
            (3, Frame::Data(&payload)),
            (3, Frame::Finish),
            (u32::MAX, Frame::Reset),
            (2, Frame::Stop),
            (2, Frame::Credit(u32::MAX)),
            (0, Frame::Alive),
            (0, Frame::Close(3)),
            (7, Frame::Moved(2)),
            (0, Frame::Invite(&[9; INVITATION])),
            (0, Frame::TakesQuic),
            (0, Frame::WantsQuic(10_000)),
        ] {
            let mut bytes = Vec::new();
            encode(lane, frame, &mut bytes);
            assert_eq!(parse(&bytes), Ok(Some((lane, frame, bytes.len()))));
            assert_eq!(parse(&bytes[..bytes.len() - 1]), Ok(None));
        }
    }

    #[test]
    fn wrong_headers_are_told_before_their_payload() {
        assert_eq!(parse(&header(1, 13, 0)), Err(MuxError::UnknownKind { kind: 13 }));
        assert_eq!(parse(&header(1, kind::DATA, 0)), Err(MuxError::BadLength { kind: 2, length: 0 }));
        assert_eq!(
            parse(&header(1, kind::DATA, MAX_PAYLOAD + 1)),
            Err(MuxError::BadLength { kind: 2, length: MAX_PAYLOAD + 1 })
        );
        assert_eq!(parse(&header(0, kind::DATA, 1)), Err(MuxError::BadLane { kind: 2, lane: 0 }));
        assert_eq!(parse(&header(4, kind::CLOSE, 4)), Err(MuxError::BadLane { kind: 8, lane: 4 }));
        assert_eq!(parse(&header(4, kind::TAKES_QUIC, 0)), Err(MuxError::BadLane { kind: 11, lane: 4 }));
        assert_eq!(parse(&header(0, kind::TAKES_QUIC, 1)), Err(MuxError::BadLength { kind: 11, length: 1 }));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        /// Law: parsing never panics, and never consumes more than there is.
        #[test]
        fn any_bytes_parse_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..40), small in any::<bool>()) {
            let mut bytes = bytes;
            if small && bytes.len() >= HEADER_BYTES {
                bytes[4] %= 14;
                bytes[6] = 0;
                bytes[7] = 0;
            }
            if let Ok(Some((_, _, used))) = parse(&bytes) {
                prop_assert!(used <= bytes.len());
            }
        }
    }
}
