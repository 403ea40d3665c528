//! The encoding of the greeting.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    num::{NonZeroU16, NonZeroU32, NonZeroU64},
    time::Duration,
};

use super::{
    BootstrapError, BootstrapMessage, ClientBootstrap, ClientChoice, Fingerprint, HEADER_LEN, LinkTerms,
    MAGIC, Parsed, PortRange, Reached, Refusal, ServerBootstrap, Token, Transports, VersionRange,
};
use crate::{
    error::PeerText,
    limits::{MAX_BOOTSTRAP, MAX_REFUSAL_TEXT, MAX_SERVER_ADDRESSES},
};

impl BootstrapMessage {
    /// Appends the message to `out`.
    ///
    /// # Errors
    /// [`BootstrapError::TooLong`] if a text or the list of addresses exceeds its limit; `out` then
    /// stays unchanged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), BootstrapError> {
        let mut payload = Vec::new();
        match self {
            Self::Client(client) => client.encode(&mut payload),
            Self::Server(server) => server.encode(&mut payload)?,
            Self::Refusal(refusal) => refusal.encode(&mut payload)?,
            Self::Choice(choice) => payload.push(*choice as u8),
            Self::Go => {}
            Self::Reached(reached) => reached.encode(&mut payload),
        }
        let too_long = BootstrapError::TooLong { len: payload.len() };
        let len = u16::try_from(payload.len()).map_err(|_| too_long)?;
        out.extend_from_slice(&MAGIC);
        out.push(self.number());
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&payload);
        Ok(())
    }

    /// Parses the message at the start of `bytes`, which may be incomplete or longer.
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

    fn number(&self) -> u8 {
        match self {
            Self::Client(_) => 1,
            Self::Server(_) => 2,
            Self::Refusal(_) => 3,
            Self::Choice(_) => 4,
            Self::Go => 5,
            Self::Reached(_) => 6,
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
            6 => Reached::decode(fields).map(Self::Reached),
            _ => return Err(BootstrapError::UnknownMessage { number }),
        };
        message.filter(|_| fields.0.is_empty()).ok_or(malformed)
    }
}

impl ClientBootstrap {
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
        self.addresses.iter().for_each(|address| encode_address(*address, out));
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
            addresses.push(decode_address(fields)?);
        }
        Some(Self { version, features, fingerprint, udp_port, tcp_port, addresses })
    }
}

impl Refusal {
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

impl Reached {
    fn encode(&self, out: &mut Vec<u8>) {
        let microseconds = u32::try_from(self.round_trip.as_micros()).unwrap_or(u32::MAX);
        out.extend_from_slice(&microseconds.to_le_bytes());
        encode_address(self.address.ip(), out);
        out.extend_from_slice(&self.address.port().to_le_bytes());
        if let SocketAddr::V6(v6) = self.address {
            out.extend_from_slice(&v6.scope_id().to_le_bytes());
        }
    }

    fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        let microseconds = fields.array().map(u32::from_le_bytes)?;
        let (ip, port) = (decode_address(fields)?, fields.u16()?);
        let address = match ip {
            IpAddr::V4(v4) => SocketAddrV4::new(v4, port).into(),
            IpAddr::V6(v6) => SocketAddrV6::new(v6, port, 0, fields.array().map(u32::from_le_bytes)?).into(),
        };
        Some(Self { address, round_trip: Duration::from_micros(microseconds.into()) })
    }
}

fn encode_address(address: IpAddr, out: &mut Vec<u8>) {
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

fn decode_address(fields: &mut Fields<'_>) -> Option<IpAddr> {
    match fields.byte()? {
        4 => Some(Ipv4Addr::from(fields.array::<4>()?).into()),
        6 => Some(Ipv6Addr::from(fields.array::<16>()?).into()),
        _ => None,
    }
}

impl ClientChoice {
    fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Quic),
            2 => Some(Self::Ssh),
            3 => Some(Self::Tls),
            4 => Some(Self::Both),
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

    /// Decodes the terms. Two zeros mean no range of ports; half a range or an empty one is
    /// malformed.
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

    /// Decodes a set of carriers: at least one, and none unknown.
    fn from_bits(bits: u8) -> Option<Self> {
        let set = Self { quic: bits & 1 != 0, ssh: bits & 2 != 0, tls: bits & 4 != 0 };
        (1..=7).contains(&bits).then_some(set)
    }
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
            BootstrapMessage::Choice(ClientChoice::Both),
            BootstrapMessage::Go,
        ];
        all.extend(refusals.map(BootstrapMessage::Refusal));
        all.extend(["192.0.2.1:8730", "[fe80::1%7]:873"].map(|address| {
            let (address, round_trip) = (address.parse().unwrap(), Duration::from_micros(80_000));
            BootstrapMessage::Reached(Reached { address, round_trip })
        }));
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
        assert_eq!(parse(7, 0), Err(BootstrapError::UnknownMessage { number: 7 }));
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
