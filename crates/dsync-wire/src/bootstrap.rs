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

use std::{
    fmt,
    num::{NonZeroU16, NonZeroU32, NonZeroU64},
};

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
    /// Appends the message to `out`.
    ///
    /// # Errors
    /// [`BootstrapError::TooLong`] when a text or the list of addresses exceeds its limit; `out` is then
    /// as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), BootstrapError> {
        let mut payload = Vec::new();
        match self {
            Self::Client(client) => client.encode(&mut payload),
            Self::Server(server) => server.encode(&mut payload)?,
            Self::Refusal(refusal) => refusal.encode(&mut payload)?,
            Self::Choice(choice) => payload.push(*choice as u8),
            Self::Go => {}
        }
        let too_long = BootstrapError::TooLong { len: payload.len() };
        let len = u16::try_from(payload.len()).map_err(|_| too_long)?;
        out.extend_from_slice(&MAGIC);
        out.push(self.number());
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&payload);
        Ok(())
    }

    /// Reads the message at the start of `bytes`, which may be incomplete or hold more.
    ///
    /// # Errors
    /// [`BootstrapError`]: [`Noise`](BootstrapError::Noise) as soon as the bytes cannot begin a message.
    pub fn parse(bytes: &[u8]) -> Result<Parsed, BootstrapError> {
        let same = bytes.iter().zip(&MAGIC).take_while(|(a, b)| a == b).count();
        if same < bytes.len().min(MAGIC.len()) {
            return Err(BootstrapError::Noise { text: PeerText::new(bytes) });
        }
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_LEN>() else {
            return Ok(Parsed::Incomplete { needed: HEADER_LEN });
        };
        let [.., number, low, high] = *header;
        let len = usize::from(u16::from_le_bytes([low, high]));
        if HEADER_LEN + len > MAX_BOOTSTRAP {
            return Err(BootstrapError::TooLong { len });
        }
        let consumed = HEADER_LEN + len;
        let Some(payload) = rest.get(..len) else {
            return Ok(Parsed::Incomplete { needed: consumed });
        };
        let message = Self::decode_payload(number, &mut Fields(payload))?;
        Ok(Parsed::Complete { message, consumed })
    }

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

    fn number(&self) -> u8 {
        match self {
            Self::Client(_) => 1,
            Self::Server(_) => 2,
            Self::Refusal(_) => 3,
            Self::Choice(_) => 4,
            Self::Go => 5,
        }
    }

    fn decode_payload(number: u8, fields: &mut Fields<'_>) -> Result<Self, BootstrapError> {
        let malformed = BootstrapError::Malformed { number };
        let message = match number {
            1 => ClientBootstrap::decode(fields).map(Self::Client),
            2 => ServerBootstrap::decode(fields).map(Self::Server),
            3 => Refusal::decode(fields).map(Self::Refusal),
            4 => fields.byte().and_then(ClientChoice::from_code).map(Self::Choice),
            5 => Some(Self::Go),
            _ => return Err(BootstrapError::UnknownMessage { number }),
        };
        message.filter(|_| fields.0.is_empty()).ok_or(malformed)
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

    fn encode(&self, out: &mut Vec<u8>) {
        self.versions.encode(out);
        out.extend_from_slice(&self.features.to_le_bytes());
        out.extend_from_slice(&self.required.to_le_bytes());
        out.push(self.transports.bits());
        self.terms.encode(out);
        out.extend_from_slice(&self.fingerprint.0);
        out.extend_from_slice(&self.token.0);
    }

    fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self {
            versions: VersionRange::decode(fields)?,
            features: fields.u64()?,
            required: fields.u64()?,
            transports: Transports::from_bits(fields.byte()?)?,
            terms: LinkTerms::decode(fields)?,
            fingerprint: Fingerprint(fields.array()?),
            token: Token(fields.array()?),
        })
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

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), BootstrapError> {
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.features.to_le_bytes());
        out.extend_from_slice(&self.fingerprint.0);
        for port in [self.udp_port, self.tcp_port] {
            out.extend_from_slice(&port.map_or(0, NonZeroU16::get).to_le_bytes());
        }
        let len = self.addresses.len();
        let count = u8::try_from(len)
            .ok()
            .filter(|_| len <= MAX_SERVER_ADDRESSES)
            .ok_or(BootstrapError::TooLong { len })?;
        out.push(count);
        for address in &self.addresses {
            match address {
                IpAddr::V4(v4) => {
                    out.push(4);
                    out.extend_from_slice(&v4.octets());
                }
                IpAddr::V6(v6) => {
                    out.push(6);
                    out.extend_from_slice(&v6.octets());
                }
            }
        }
        Ok(())
    }

    fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        let version = fields.u16()?;
        let features = fields.u64()?;
        let fingerprint = Fingerprint(fields.array()?);
        let udp_port = NonZeroU16::new(fields.u16()?);
        let tcp_port = NonZeroU16::new(fields.u16()?);
        let count = usize::from(fields.byte()?);
        if version == 0 || count > MAX_SERVER_ADDRESSES {
            return None;
        }
        let mut addresses = Vec::with_capacity(count);
        for _ in 0..count {
            addresses.push(match fields.byte()? {
                4 => IpAddr::V4(Ipv4Addr::from(fields.array::<4>()?)),
                6 => IpAddr::V6(Ipv6Addr::from(fields.array::<16>()?)),
                _ => return None,
            });
        }
        Some(Self { version, features, fingerprint, udp_port, tcp_port, addresses })
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

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), BootstrapError> {
        match self {
            Self::Versions { supported } => {
                out.push(1);
                supported.encode(out);
            }
            Self::Features { missing, at_client } => {
                out.push(2);
                out.extend_from_slice(&missing.to_le_bytes());
                out.push(u8::from(*at_client));
            }
            Self::Other { exit_code, text } => {
                if text.len() > MAX_REFUSAL_TEXT {
                    return Err(BootstrapError::TooLong { len: text.len() });
                }
                out.extend_from_slice(&[3, *exit_code]);
                out.extend_from_slice(text);
            }
        }
        Ok(())
    }

    fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        match fields.byte()? {
            1 => Some(Self::Versions { supported: VersionRange::decode(fields)? }),
            2 => {
                let missing = fields.u64()?;
                let at_client = match fields.byte()? {
                    0 => false,
                    1 => true,
                    _ => return None,
                };
                Some(Self::Features { missing, at_client })
            }
            3 => {
                let exit_code = fields.byte()?;
                let text = std::mem::take(&mut fields.0);
                (text.len() <= MAX_REFUSAL_TEXT).then(|| Self::Other { exit_code, text: text.to_vec() })
            }
            _ => None,
        }
    }
}

impl ClientChoice {
    fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Quic),
            2 => Some(Self::Ssh),
            3 => Some(Self::Tls),
            _ => None,
        }
    }
}

impl LinkTerms {
    fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.idle_seconds.get().to_le_bytes());
        out.extend_from_slice(&self.bytes_per_second.map_or(0, NonZeroU64::get).to_le_bytes());
        let ends = self.ports.map_or([0, 0], |range| [range.first.get(), range.last.get()]);
        ends.iter().for_each(|end| out.extend_from_slice(&end.to_le_bytes()));
    }

    /// No range is written as two zeros; half a range, or an empty one, is malformed.
    fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        let idle_seconds = NonZeroU32::new(fields.array().map(u32::from_le_bytes)?)?;
        let bytes_per_second = NonZeroU64::new(fields.u64()?);
        let ports = match (NonZeroU16::new(fields.u16()?), NonZeroU16::new(fields.u16()?)) {
            (None, None) => None,
            (first, last) => Some(PortRange::new(first?, last?)?),
        };
        Some(Self { idle_seconds, bytes_per_second, ports })
    }
}

impl VersionRange {
    fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.oldest.to_le_bytes());
        out.extend_from_slice(&self.newest.to_le_bytes());
    }

    fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        Self::new(fields.u16()?, fields.u16()?)
    }
}

impl Transports {
    fn bits(self) -> u8 {
        u8::from(self.quic) | u8::from(self.ssh) << 1 | u8::from(self.tls) << 2
    }

    /// At least one carrier, and none that is unknown.
    fn from_bits(bits: u8) -> Option<Self> {
        let set = Self { quic: bits & 1 != 0, ssh: bits & 2 != 0, tls: bits & 4 != 0 };
        (1..=7).contains(&bits).then_some(set)
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

/// The rest of a payload.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

// The longest messages fit.
const _: () = assert!(HEADER_LEN + 2 + 8 + 32 + 2 + 2 + 1 + 17 * MAX_SERVER_ADDRESSES <= MAX_BOOTSTRAP);
const _: () = assert!(HEADER_LEN + 2 + MAX_REFUSAL_TEXT <= MAX_BOOTSTRAP);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(oldest: u16, newest: u16) -> VersionRange {
        VersionRange::new(oldest, newest).unwrap()
    }

    fn client() -> ClientBootstrap {
        ClientBootstrap {
            versions: range(1, 2),
            features: 0b11,
            required: 0b01,
            transports: Transports { quic: true, ssh: false, tls: true },
            terms: LinkTerms {
                idle_seconds: NonZeroU32::MIN,
                bytes_per_second: NonZeroU64::new(1000),
                ports: PortRange::new(NonZeroU16::MIN, NonZeroU16::MAX),
            },
            fingerprint: Fingerprint([1; 32]),
            token: Token([2; 32]),
        }
    }

    fn server() -> ServerBootstrap {
        ServerBootstrap {
            version: 2,
            features: 0b01,
            fingerprint: Fingerprint([3; 32]),
            udp_port: NonZeroU16::new(9),
            tcp_port: None,
            addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)],
        }
    }

    fn messages() -> Vec<BootstrapMessage> {
        let refusals = [
            Refusal::Versions { supported: range(3, 9) },
            Refusal::Features { missing: 4, at_client: true },
            Refusal::Other { exit_code: 42, text: vec![b'x'; MAX_REFUSAL_TEXT] },
        ];
        let mut all = vec![
            BootstrapMessage::Client(client()),
            BootstrapMessage::Server(server()),
            BootstrapMessage::Choice(ClientChoice::Quic),
            BootstrapMessage::Choice(ClientChoice::Ssh),
            BootstrapMessage::Choice(ClientChoice::Tls),
            BootstrapMessage::Go,
        ];
        all.extend(refusals.map(BootstrapMessage::Refusal));
        all
    }

    fn encode(message: &BootstrapMessage) -> Vec<u8> {
        let mut out = Vec::new();
        message.encode(&mut out).unwrap();
        out
    }

    #[test]
    fn messages_survive_and_say_how_much_they_need() {
        for message in messages() {
            let mut bytes = encode(&message);
            let len = bytes.len();
            for cut in 0..len {
                let needed = if cut < HEADER_LEN { HEADER_LEN } else { len };
                assert_eq!(BootstrapMessage::parse(&bytes[..cut]), Ok(Parsed::Incomplete { needed }));
            }
            bytes.extend(b"what follows");
            assert_eq!(BootstrapMessage::parse(&bytes), Ok(Parsed::Complete { message, consumed: len }));
        }
    }

    #[test]
    fn noise_is_told_from_a_greeting_at_its_first_byte() {
        for noise in
            [&b"W"[..], b"Welcome to host\r\n", b"@RSYNCD: 31.0\n", b"HTTP/1.1 400 Bad", b"\x89dsync\n"]
        {
            let error = BootstrapMessage::parse(noise).unwrap_err();
            assert_eq!(error, BootstrapError::Noise { text: PeerText::new(noise) });
        }
        let error = BootstrapMessage::parse(b"\x1b]0;owned\x07").unwrap_err();
        assert_eq!(error.to_string(), "unexpected text before the greeting: '\\x1b]0;owned\\x07'");
    }

    #[test]
    fn nothing_may_follow_within_a_message() {
        for message in messages() {
            let mut bytes = encode(&message);
            let number = message.number();
            bytes.push(0);
            let len = u16::try_from(bytes.len() - HEADER_LEN).unwrap();
            bytes[HEADER_LEN - 2..HEADER_LEN].copy_from_slice(&len.to_le_bytes());
            assert_eq!(BootstrapMessage::parse(&bytes), Err(BootstrapError::Malformed { number }));
        }
    }

    #[test]
    fn long_and_unknown_messages_are_refused_at_the_header() {
        let header = |number: u8, len: u16| [&MAGIC[..], &[number], &len.to_le_bytes()].concat();
        let parse = |number, len| BootstrapMessage::parse(&header(number, len));
        assert_eq!(parse(1, 65535), Err(BootstrapError::TooLong { len: 65535 }));
        assert_eq!(parse(1, 4083), Ok(Parsed::Incomplete { needed: 4096 }));
        assert_eq!(parse(0, 0), Err(BootstrapError::UnknownMessage { number: 0 }));
        assert_eq!(parse(6, 0), Err(BootstrapError::UnknownMessage { number: 6 }));
    }

    #[test]
    fn the_newest_common_version_is_agreed() {
        for (ours, theirs, agreed) in [
            (range(1, 1), range(1, 1), Some(1)),
            (range(1, 3), range(2, 9), Some(3)),
            (range(2, 9), range(1, 3), Some(3)),
            (range(1, 2), range(3, 4), None),
            (range(3, 4), range(1, 2), None),
        ] {
            assert_eq!(ours.agree(theirs), agreed);
        }
        assert_eq!(VersionRange::new(0, 1), None);
        assert_eq!(VersionRange::new(2, 1), None);
    }

    #[test]
    fn a_server_without_a_common_version_says_what_it_speaks() {
        let refusal = client().agree_with(range(3, 4), 0b11).unwrap_err();
        let error = BootstrapError::Version { theirs: range(3, 4), ours: range(1, 2) };
        assert_eq!(refusal, Refusal::Versions { supported: range(3, 4) });
        let sentence = "peer speaks versions 3-4, this program versions 1-2; upgrade this side";
        assert_eq!(error.to_string(), sentence);
    }

    #[test]
    fn features_are_those_of_both_and_hold_what_is_required() {
        assert_eq!(client().agree_with(range(1, 9), 0b101), Ok((2, 0b01)));
        let refusal = client().agree_with(range(1, 9), 0b10).unwrap_err();
        assert_eq!(refusal, Refusal::Features { missing: 0b01, at_client: false });
        let sentence = "this program requires feature bits 0x1 that the peer lacks";
        assert_eq!(refusal.into_error().to_string(), sentence);
        let refusal = Refusal::Features { missing: 0x20, at_client: true };
        let sentence = "peer requires feature bits 0x20 that this version lacks";
        assert_eq!(refusal.into_error().to_string(), sentence);
    }

    #[test]
    fn a_server_may_not_answer_with_what_was_not_offered() {
        assert_eq!(server().check(&client()), Ok(()));
        let only = |transports| ClientBootstrap { transports, ..client() };
        let without_quic = only(Transports { quic: false, ssh: true, tls: true });
        let without_tls = only(Transports { quic: true, ssh: true, tls: false });
        for (answer, offer) in [
            (ServerBootstrap { version: 3, ..server() }, client()),
            (ServerBootstrap { features: 0b101, ..server() }, client()),
            (ServerBootstrap { features: 0b10, ..server() }, client()),
            (server(), without_quic),
            (ServerBootstrap { tcp_port: NonZeroU16::new(9), ..server() }, without_tls),
        ] {
            assert_eq!(answer.check(&offer), Err(BootstrapError::Answer));
        }
    }

    #[test]
    fn too_much_is_not_sent() {
        let addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST); MAX_SERVER_ADDRESSES + 1];
        let text = vec![b'x'; MAX_REFUSAL_TEXT + 1];
        for message in [
            BootstrapMessage::Server(ServerBootstrap { addresses, ..server() }),
            BootstrapMessage::Refusal(Refusal::Other { exit_code: 1, text }),
        ] {
            let mut out = vec![7];
            assert!(matches!(message.encode(&mut out), Err(BootstrapError::TooLong { .. })));
            assert_eq!(out, [7]);
        }
    }

    #[test]
    fn terms_that_cannot_be_kept_are_malformed() {
        let mut good = Vec::new();
        client().terms.encode(&mut good);
        let silent_for_no_time = [&[0; 4], &good[4..]].concat();
        let half_a_range = [&good[..12], &[0, 0, 7, 0]].concat();
        let backwards = [&good[..12], &[7, 0, 6, 0]].concat();
        assert_eq!(LinkTerms::decode(&mut Fields(&good)), Some(client().terms));
        for bad in [silent_for_no_time, half_a_range, backwards] {
            assert_eq!(LinkTerms::decode(&mut Fields(&bad)), None);
        }
    }

    #[test]
    fn tokens_are_not_shown() {
        assert!(!format!("{:?}", client()).contains("2, 2"));
        assert_ne!(Token([0; 32]), Token([1; 32]));
    }

    proptest! {
        /// Law: any bytes are noise, incomplete, refused, or a message that encodes to itself.
        #[test]
        fn any_bytes_do_no_harm(number in 0..8u8, payload in prop::collection::vec(any::<u8>(), 0..200)) {
            let len = u16::try_from(payload.len()).unwrap();
            let bytes = [&MAGIC[..], &[number], &len.to_le_bytes(), &payload].concat();
            if let Ok(Parsed::Complete { message, consumed }) = BootstrapMessage::parse(&bytes) {
                prop_assert_eq!(encode(&message), &bytes[..consumed]);
            }
            let _ = BootstrapMessage::parse(&payload);
        }
    }
}
