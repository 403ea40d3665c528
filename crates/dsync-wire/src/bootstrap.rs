//! The greeting over the standard streams of the remote shell, before a link exists.
//!
//! Each turn is one message in one direction. Every message starts with a fixed magic, which tells
//! a greeting from a login banner at its first byte and makes a stream that translates line ends
//! fail at once:
//!
//! ```text
//! client: ClientBootstrap                      what it speaks, its key's fingerprint, a one-time token
//! server: ServerBootstrap | Refusal            what was agreed, its key's fingerprint, where it listens
//! client: ClientChoice                         which carrier it got through with
//! server: Go                                   the link begins right after this message
//! ```
//!
//! Where a program of this host dials a server that stands, in place of a remote shell, the run reads
//! one message more, the first: [`Reached`], which that program writes and no server.
//!
//! A message is [`MAGIC`] (10 bytes), its number (1), the length of its payload (2, little endian)
//! and the payload, at most [`MAX_BOOTSTRAP`] bytes in all. Nothing here is secret except the
//! token, and nothing is trusted beyond the ssh connection that carried it. This module does no
//! input or output.

mod codec;

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    num::{NonZeroU16, NonZeroU32, NonZeroU64},
    time::Duration,
};

use crate::{
    error::PeerText,
    limits::{MAX_BOOTSTRAP, MAX_REFUSAL_TEXT, MAX_SERVER_ADDRESSES},
    version::{FEATURES, OLDEST_VERSION, VERSION},
};

/// The first bytes of every bootstrap message: a byte that no text begins with, then bytes that
/// line-end and end-of-file translation would change.
pub const MAGIC: [u8; 10] = *b"\x89dsync\r\n\x1a\n";

/// Number of bytes before a message's payload: magic, number, length.
pub const HEADER_LEN: usize = MAGIC.len() + 3;

/// A message of the bootstrap.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BootstrapMessage {
    /// The client's first message.
    Client(ClientBootstrap),
    /// The server's answer if it agrees.
    Server(ServerBootstrap),
    /// The server's answer if it refuses; nothing follows.
    Refusal(Refusal),
    /// The client's choice of carrier.
    Choice(ClientChoice),
    /// The server's confirmation that it uses the chosen carrier.
    Go,
    /// The dialler's word to its run, before all others. It crosses no network.
    Reached(Reached),
}

/// The connection of a program that dials a server that stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    /// The server's end of it.
    pub address: SocketAddr,
    /// The shortest round trip so far, in whole microseconds on the wire.
    pub round_trip: Duration,
}

/// The client's offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientBootstrap {
    /// Protocol versions that the client speaks.
    pub versions: VersionRange,
    /// Feature bits that the client understands.
    pub features: u64,
    /// The features among them that the client requires.
    pub required: u64,
    /// Carriers that the client would use.
    pub transports: Transports,
    /// Terms of the link for both ends.
    pub terms: LinkTerms,
    /// Fingerprint of the client's key, which it will prove to own.
    pub fingerprint: Fingerprint,
    /// One-time secret that the client sends first over any carrier other than this pipe.
    pub token: Token,
}

/// The server's answer to an offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerBootstrap {
    /// Protocol version of the session.
    pub version: u16,
    /// Feature bits that both ends understand.
    pub features: u64,
    /// Fingerprint of the server's key, which it will prove to own.
    pub fingerprint: Fingerprint,
    /// UDP port that the server listens on, if the client wants QUIC and a port was available.
    pub udp_port: Option<NonZeroU16>,
    /// TCP port that the server listens on, if the client wants TLS and a port was available.
    pub tcp_port: Option<NonZeroU16>,
    /// The server's own addresses that the client is known to reach, best first; may be empty. At
    /// most [`MAX_SERVER_ADDRESSES`].
    pub addresses: Vec<IpAddr>,
}

/// The reason why the server refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The server speaks none of the client's versions.
    Versions {
        /// Versions that the server speaks.
        supported: VersionRange,
    },
    /// The server lacks features that the client requires, or requires some that the client lacks.
    Features {
        /// Feature bits that one end lacks.
        missing: u64,
        /// Whether the client is the end that lacks them.
        at_client: bool,
    },
    /// Any other reason.
    Other {
        /// Exit code for the client.
        exit_code: u8,
        /// An explanation for people; escape before printing. At most [`MAX_REFUSAL_TEXT`] bytes.
        text: Vec<u8>,
    },
}

/// The carrier that the client chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ClientChoice {
    /// QUIC answered. The pipe stays open only as a sign of life.
    Quic = 1,
    /// The pipe itself becomes the link.
    Ssh = 2,
    /// TLS over TCP answered. The pipe stays open only as a sign of life.
    Tls = 3,
    /// Both answered and carry the session together; with
    /// [`TWO_CARRIERS`](crate::version::TWO_CARRIERS) only. The pipe stays open only as a sign of
    /// life.
    Both = 4,
}

/// Terms of the link that the client requests and the server keeps as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkTerms {
    /// Longest silence of the peer, in seconds, at least 1.
    pub idle_seconds: NonZeroU32,
    /// Payload bytes per second that each end may send; `None` for no limit.
    pub bytes_per_second: Option<NonZeroU64>,
    /// Ports that the server may open; `None` for any that the system chooses.
    pub ports: Option<PortRange>,
}

/// A range of ports, both ends included.
///
/// ```
/// use std::num::NonZeroU16;
///
/// use dsync_wire::bootstrap::PortRange;
///
/// // The ports that a firewall lets through.
/// let port = |number| NonZeroU16::new(number).ok_or("no port");
/// let range = PortRange::new(port(40_000)?, port(40_009)?).ok_or("an empty range")?;
/// assert_eq!(range.ports().count(), 10);
/// # Ok::<(), &str>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortRange {
    first: NonZeroU16,
    last: NonZeroU16,
}

impl PortRange {
    /// Makes a range; returns `None` if it is empty.
    pub fn new(first: NonZeroU16, last: NonZeroU16) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    /// Returns the ports, lowest first.
    pub fn ports(self) -> impl Iterator<Item = u16> {
        self.first.get()..=self.last.get()
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

/// A range of protocol versions, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VersionRange {
    oldest: u16,
    newest: u16,
}

impl VersionRange {
    /// The versions that this build speaks.
    pub const OURS: Self = Self { oldest: OLDEST_VERSION, newest: VERSION };

    /// Makes a range; returns `None` if it is empty or begins at 0.
    pub fn new(oldest: u16, newest: u16) -> Option<Self> {
        (1 <= oldest && oldest <= newest).then_some(Self { oldest, newest })
    }

    /// Returns the oldest version.
    pub fn oldest(self) -> u16 {
        self.oldest
    }

    /// Returns the newest version.
    pub fn newest(self) -> u16 {
        self.newest
    }

    /// Returns whether `version` lies in the range.
    pub fn contains(self, version: u16) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }

    /// Returns the newest version in both ranges.
    pub fn agree(self, other: Self) -> Option<u16> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.oldest == self.newest {
            write!(f, "version {}", self.newest)
        } else {
            write!(f, "versions {}-{}", self.oldest, self.newest)
        }
    }
}

/// A set of carriers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Transports {
    /// QUIC over UDP.
    pub quic: bool,
    /// Lanes over the pipe.
    pub ssh: bool,
    /// TLS 1.3 over TCP.
    pub tls: bool,
}

/// SHA-256 of a public key in SubjectPublicKeyInfo form.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A secret that is used once and never shown. Compared in constant time.
#[derive(Clone)]
pub struct Token(pub [u8; 32]);

impl PartialEq for Token {
    /// Compares in constant time, wherever the tokens differ.
    fn eq(&self, other: &Self) -> bool {
        let difference = self.0.iter().zip(&other.0).fold(0, |seen, (a, b)| seen | (a ^ b));
        std::hint::black_box(difference) == 0
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The result of [`BootstrapMessage::parse`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// The bytes so far may begin a message, which needs more of them.
    Incomplete {
        /// Bytes needed from the start before another attempt can succeed; more than were passed.
        needed: usize,
    },
    /// A message.
    Complete {
        /// The message.
        message: BootstrapMessage,
        /// Length of the message in bytes. Any bytes behind it belong to the next one.
        consumed: usize,
    },
}

impl BootstrapMessage {
    /// Returns the message's name, for messages to people.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Client(_) => "ClientBootstrap",
            Self::Server(_) => "ServerBootstrap",
            Self::Refusal(_) => "Refusal",
            Self::Choice(_) => "ClientChoice",
            Self::Go => "Go",
            Self::Reached(_) => "Reached",
        }
    }
}

impl ClientBootstrap {
    /// Agrees, as the server, on a version and on features, given what this build supports.
    ///
    /// # Errors
    /// The [`Refusal`] to answer with.
    pub fn agree(&self) -> Result<(u16, u64), Refusal> {
        self.agree_with(VersionRange::OURS, FEATURES)
    }

    /// Agrees as [`agree`](Self::agree) does, with the given abilities.
    ///
    /// # Errors
    /// The [`Refusal`] to answer with.
    pub fn agree_with(&self, versions: VersionRange, features: u64) -> Result<(u16, u64), Refusal> {
        let version = versions.agree(self.versions).ok_or(Refusal::Versions { supported: versions })?;
        match self.required & !features {
            0 => Ok((version, self.features & features)),
            missing => Err(Refusal::Features { missing, at_client: false }),
        }
    }
}

impl ServerBootstrap {
    /// Checks, as the client, that the answer lies within the offer.
    ///
    /// # Errors
    /// [`BootstrapError::Answer`] if the server answers with something that was not offered.
    pub fn check(&self, offered: &ClientBootstrap) -> Result<(), BootstrapError> {
        let within = offered.versions.contains(self.version)
            && self.features & !offered.features == 0
            && offered.required & !self.features == 0
            && (self.udp_port.is_none() || offered.transports.quic)
            && (self.tcp_port.is_none() || offered.transports.tls);
        if within { Ok(()) } else { Err(BootstrapError::Answer) }
    }
}

impl Refusal {
    /// Turns the refusal into the client's error (rows B36 and B37), for a client of this build.
    pub fn into_error(self) -> BootstrapError {
        match self {
            Self::Versions { supported } => {
                BootstrapError::Version { theirs: supported, ours: VersionRange::OURS }
            }
            Self::Features { missing, at_client } => BootstrapError::Feature { missing, at_client },
            Self::Other { exit_code, text } => {
                BootstrapError::Refused { exit_code, text: PeerText::new(&text) }
            }
        }
    }
}

/// The reason why a bootstrap failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// The bytes are no greeting: a banner, an error of the remote shell, another program.
    #[error("unexpected text before the greeting: '{text}'")]
    Noise {
        /// The first bytes; escaped when shown.
        text: PeerText,
    },
    /// A message exceeds its limit.
    #[error("bootstrap message of {len} bytes exceeds its limit")]
    TooLong {
        /// Length of the payload, or of the text or list that is too long.
        len: usize,
    },
    /// The message belongs to another version of the bootstrap itself.
    #[error("unknown bootstrap message {number}")]
    UnknownMessage {
        /// The message's number.
        number: u8,
    },
    /// The payload does not match the message's number.
    #[error("malformed bootstrap message {number}")]
    Malformed {
        /// The message's number.
        number: u8,
    },
    /// The server answered with something that was not offered.
    #[error("peer agreed to something that was not offered")]
    Answer,
    /// The ends have no version in common.
    #[error("peer speaks {theirs}, this program {ours}; upgrade {}", older_side(*theirs, *ours))]
    Version {
        /// Versions that the peer speaks.
        theirs: VersionRange,
        /// Versions that this end speaks.
        ours: VersionRange,
    },
    /// One end requires a feature that the other lacks.
    #[error("{} feature bits {missing:#x} that {} lacks", if *at_client { "peer requires" } else { "this program requires" }, if *at_client { "this version" } else { "the peer" })]
    Feature {
        /// The missing feature bits.
        missing: u64,
        /// Whether the client is the end that lacks them.
        at_client: bool,
    },
    /// The server refused for another reason.
    #[error("{text}")]
    Refused {
        /// Exit code from the server.
        exit_code: u8,
        /// The server's explanation; escaped when shown.
        text: PeerText,
    },
}

fn older_side(theirs: VersionRange, ours: VersionRange) -> &'static str {
    if theirs.newest > ours.newest { "this side" } else { "the other side" }
}

// The longest messages fit.
const _: () = assert!(HEADER_LEN + 2 + 8 + 32 + 2 + 2 + 1 + 17 * MAX_SERVER_ADDRESSES <= MAX_BOOTSTRAP);
const _: () = assert!(HEADER_LEN + 2 + MAX_REFUSAL_TEXT <= MAX_BOOTSTRAP);
