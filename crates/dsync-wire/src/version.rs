//! The protocol that this build speaks.
//!
//! The version determines the layout of bytes and the order of messages; feature bits extend it.
//! Both are agreed in the [bootstrap](crate::bootstrap) and repeated in
//! [`Hello`](crate::message::Hello), inside the authenticated link.

/// The newest protocol version that this build speaks, and the one it prefers.
pub const VERSION: u16 = 1;

/// The oldest protocol version that this build speaks.
pub const OLDEST_VERSION: u16 = 1;

/// The application protocol that the QUIC carrier negotiates; changes with [`VERSION`].
pub const ALPN: &[u8] = b"dsync/1";

/// Feature bits that this build understands.
pub const FEATURES: u64 = SPANS
    | CONNECTIONS
    | TWO_CARRIERS
    | FILE_KEYS
    | STREAMS_BESIDE
    | MOVES_AGAIN
    | LACKING
    | LEFT_OUT
    | REASONS;

/// The feature bit of spans: the source may send a digest in the place of a stretch of its listing.
pub const SPANS: u64 = 1;

/// The feature bit of further connections: a server that stands may invite its client to make some, and
/// lanes may move to them.
pub const CONNECTIONS: u64 = 2;

/// The feature bit of a link of two carriers: the client may choose TLS and QUIC at once, and a
/// lane may go on over the other one.
pub const TWO_CARRIERS: u64 = 4;

/// The feature bit of keys of files: a destination may send sums that were made under another key than
/// the session's, and the key with them.
pub const FILE_KEYS: u64 = 8;

/// The feature bit of further connections over QUIC: a server that stands may say that its port takes
/// QUIC as well, and lanes may move to streams of one such connection.
pub const STREAMS_BESIDE: u64 = 16;

/// The feature bit of second moves: a lane that has moved to a connection over TLS may move again, to
/// QUIC, and a server that stands may ask for that connection. Only with the two before.
pub const MOVES_AGAIN: u64 = 32;

/// The feature bit of entries that lack attributes: a destination may name each in a problem.
pub const LACKING: u64 = 64;

/// The feature bit of directories that are empty only as rules leave out what is in them: the source may say so
/// in a listing, and a destination may name an empty one in a problem.
pub const LEFT_OUT: u64 = 128;

/// The feature bit of reasons: an end that gives up may say the kind of reason, for programs.
pub const REASONS: u64 = 256;
