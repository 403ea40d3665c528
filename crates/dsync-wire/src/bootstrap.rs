//! The greeting over the standard streams of the remote shell, before a link exists.
//!
//! One message per direction and turn, each with a fixed magic, so that a login banner is told from a
//! greeting at its first byte, and so that a stream that translates line ends fails at once:
//!
//! ```text
//! client: ClientBootstrap                      what it speaks, its key's fingerprint, a one-time token
//! server: ServerBootstrap | Refusal            what was agreed, its key's fingerprint, where it listens
//! client: ClientChoice                         which carrier it got through with
//! server: Go                                   the link begins right after this message
//! ```
//!
//! A message is [`MAGIC`] (10 bytes), its number (1), the length of its payload (2, little endian) and the
//! payload, at most [`MAX_BOOTSTRAP`] bytes in all. Nothing here is secret but the token, and nothing is
//! trusted beyond the ssh connection it came over. This module does no input or output.

mod codec;

use std::{
    fmt,
    net::IpAddr,
    num::{NonZeroU16, NonZeroU32, NonZeroU64},
};

use crate::{
    error::PeerText,
    limits::{MAX_BOOTSTRAP, MAX_REFUSAL_TEXT, MAX_SERVER_ADDRESSES},
    version::{FEATURES, OLDEST_VERSION, VERSION},
};

/// First bytes of every bootstrap message. A first byte that no text begins with, then what line-end and
/// end-of-file translation would change.
pub const MAGIC: [u8; 10] = *b"\x89dsync\r\n\x1a\n";

/// Bytes before a message's payload: magic, number, length.
pub const HEADER_LEN: usize = MAGIC.len() + 3;

/// A message of the bootstrap.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BootstrapMessage {
    /// First, from the client.
    Client(ClientBootstrap),
    /// The server's answer when it agrees.
    Server(ServerBootstrap),
    /// The server's answer when it does not; nothing follows.
    Refusal(Refusal),
    /// The client's choice of carrier.
    Choice(ClientChoice),
    /// The server has turned to the chosen carrier.
    Go,
}

/// What the client offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientBootstrap {
    /// Versions that it speaks.
    pub versions: VersionRange,
    /// Feature bits that it understands.
    pub features: u64,
    /// Those of them that it cannot do without.
    pub required: u64,
    /// Carriers that it would use.
    pub transports: Transports,
    /// What the link is to keep to, at both ends.
    pub terms: LinkTerms,
    /// Fingerprint of the key that it will prove to have.
    pub fingerprint: Fingerprint,
    /// What it will say first over a carrier that is not this pipe; valid once.
    pub token: Token,
}

/// What the server agrees to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerBootstrap {
    /// The version of the session.
    pub version: u16,
    /// Feature bits that both understand.
    pub features: u64,
    /// Fingerprint of the key that it will prove to have.
    pub fingerprint: Fingerprint,
    /// UDP port that it listens on, when QUIC was wanted and a port could be had.
    pub udp_port: Option<NonZeroU16>,
    /// TCP port that it listens on, when TLS was wanted and a port could be had.
    pub tcp_port: Option<NonZeroU16>,
    /// Its own addresses that the client is known to reach, best first; may be empty. At most
    /// [`MAX_SERVER_ADDRESSES`].
    pub addresses: Vec<IpAddr>,
}

/// Why the server does not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// It speaks none of the client's versions.
    Versions {
        /// What it speaks.
        supported: VersionRange,
    },
    /// It lacks features that the client requires, or requires some that the client lacks.
    Features {
        /// The bits that one end lacks.
        missing: u64,
        /// True when it is the client that lacks them.
        at_client: bool,
    },
    /// Anything else.
    Other {
        /// Exit code that the client should end with.
        exit_code: u8,
        /// What happened, for people; escape before printing. At most [`MAX_REFUSAL_TEXT`] bytes.
        text: Vec<u8>,
    },
}

/// The carrier that the client goes on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ClientChoice {
    /// QUIC answered; the pipe stays open only as a sign of life.
    Quic = 1,
    /// The pipe itself becomes the link.
    Ssh = 2,
    /// TLS over TCP answered; the pipe stays open only as a sign of life.
    Tls = 3,
}

/// What the client asks of the link, and the server keeps to as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkTerms {
    /// Longest silence of the peer, in seconds, at least 1.
    pub idle_seconds: NonZeroU32,
    /// Payload bytes per second that each end may send; `None` for as many as pass.
    pub bytes_per_second: Option<NonZeroU64>,
    /// The ports that the server may open; `None` for any that the system chooses.
    pub ports: Option<PortRange>,
}

/// A range of ports, ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortRange {
    first: NonZeroU16,
    last: NonZeroU16,
}

impl PortRange {
    /// The range; `None` when it is empty.
    pub fn new(first: NonZeroU16, last: NonZeroU16) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    /// The ports, lowest first.
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

/// A range of protocol versions, ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VersionRange {
    oldest: u16,
    newest: u16,
}

impl VersionRange {
    /// What this build speaks.
    pub const OURS: Self = Self { oldest: OLDEST_VERSION, newest: VERSION };

    /// A range; `None` when it is empty or begins at 0.
    pub fn new(oldest: u16, newest: u16) -> Option<Self> {
        (1 <= oldest && oldest <= newest).then_some(Self { oldest, newest })
    }

    /// The oldest version.
    pub fn oldest(self) -> u16 {
        self.oldest
    }

    /// The newest version.
    pub fn newest(self) -> u16 {
        self.newest
    }

    /// True when `version` lies in the range.
    pub fn contains(self, version: u16) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }

    /// The newest version in both ranges.
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

/// A secret that is used once; never shown. Compare in constant time.
#[derive(Clone)]
pub struct Token(pub [u8; 32]);

impl PartialEq for Token {
    /// Takes the same time wherever the tokens differ.
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

/// What [`BootstrapMessage::parse`] found at the start of the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// The bytes so far may begin a message; it has this many at least.
    Incomplete {
        /// Bytes needed from the start before another try can succeed, more than were given.
        needed: usize,
    },
    /// A message.
    Complete {
        /// The message.
        message: BootstrapMessage,
        /// Bytes that it took; what follows belongs to what comes next.
        consumed: usize,
    },
}

impl BootstrapMessage {
    /// The message's name, for messages to people.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Client(_) => "ClientBootstrap",
            Self::Server(_) => "ServerBootstrap",
            Self::Refusal(_) => "Refusal",
            Self::Choice(_) => "ClientChoice",
            Self::Go => "Go",
        }
    }
}

impl ClientBootstrap {
    /// Agrees, as the server, on a version and features with what this build speaks.
    ///
    /// # Errors
    /// The [`Refusal`] to answer with.
    pub fn agree(&self) -> Result<(u16, u64), Refusal> {
        self.agree_with(VersionRange::OURS, FEATURES)
    }

    /// As [`agree`](Self::agree), with given abilities.
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
    /// Checks, as the client, that the answer lies within what was offered.
    ///
    /// # Errors
    /// [`BootstrapError::Answer`] when the server answers with what was not offered.
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
    /// The refusal as the client's error (rows B36 and B37), for a client of this build.
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

/// What is wrong with the bootstrap.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// The bytes are no greeting: a banner, an error of the remote shell, another program.
    #[error("unexpected text before the greeting: '{text}'")]
    Noise {
        /// The first bytes, escaped when shown.
        text: PeerText,
    },
    /// A message exceeds its limit.
    #[error("bootstrap message of {len} bytes exceeds its limit")]
    TooLong {
        /// Length of its payload, or of the text or list that is too long.
        len: usize,
    },
    /// A message of another version of the bootstrap itself.
    #[error("unknown bootstrap message {number}")]
    UnknownMessage {
        /// Its number.
        number: u8,
    },
    /// A message's payload is not what its number says.
    #[error("malformed bootstrap message {number}")]
    Malformed {
        /// Its number.
        number: u8,
    },
    /// The server answers with what was not offered.
    #[error("peer agreed to something that was not offered")]
    Answer,
    /// The ends have no version in common.
    #[error("peer speaks {theirs}, this program {ours}; upgrade {}", older_side(*theirs, *ours))]
    Version {
        /// What the peer speaks.
        theirs: VersionRange,
        /// What this end speaks.
        ours: VersionRange,
    },
    /// One end requires a feature that the other lacks.
    #[error("{} feature bits {missing:#x} that {} lacks", if *at_client { "peer requires" } else { "this program requires" }, if *at_client { "this version" } else { "the peer" })]
    Feature {
        /// The bits.
        missing: u64,
        /// True when it is the client that lacks them.
        at_client: bool,
    },
    /// The server does not go on for another reason.
    #[error("{text}")]
    Refused {
        /// Exit code that it asks for.
        exit_code: u8,
        /// Its words, escaped when shown.
        text: PeerText,
    },
}

fn older_side(theirs: VersionRange, ours: VersionRange) -> &'static str {
    if theirs.newest > ours.newest { "this side" } else { "the other side" }
}

// The longest messages fit.
const _: () = assert!(HEADER_LEN + 2 + 8 + 32 + 2 + 2 + 1 + 17 * MAX_SERVER_ADDRESSES <= MAX_BOOTSTRAP);
const _: () = assert!(HEADER_LEN + 2 + MAX_REFUSAL_TEXT <= MAX_BOOTSTRAP);
