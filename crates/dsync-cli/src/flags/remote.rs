//! Starting and reaching a remote end.

use std::{
    ffi::OsString,
    fmt,
    num::{NonZeroU16, NonZeroU64},
    str::FromStr,
    time::Duration,
};

use clap::{Args, ValueEnum, builder::StringValueParser};
use dsync_engine::PortRange;

use super::{Group, NotInRange, full, whole_number};
use crate::numbers::{NotASize, Size};

/// Remote shell, remote program, carrier, ports, limits, retries.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Remote {
    /// The remote shell and its arguments; ssh by default
    ///
    /// Split into words as a shell does, quotes included: -e 'ssh -p 2222'. The host and 'dsync
    /// --server' follow. Without it DSYNC_RSH, then RSYNC_RSH is taken from the environment.
    #[arg(short = 'e', long, value_name = "COMMAND", allow_hyphen_values = true)]
    pub(crate) rsh: Option<OsString>,
    /// The command that starts dsync on the remote host; dsync by default
    ///
    /// The remote login shell reads it: --dsync-path='sudo dsync'.
    #[arg(
        long,
        visible_alias = "rsync-path",
        value_name = "PROGRAM",
        allow_hyphen_values = true,
        value_parser = full(StringValueParser::new())
    )]
    pub(crate) dsync_path: Option<String>,
    /// Copy this program to a remote host that has none, and use the copy there
    ///
    /// Where the remote shell does not find dsync, this program is sent through it to the user's cache
    /// there, as ${XDG_CACHE_HOME:-~/.cache}/dsync/dsync-VERSION-HASH. The host compares SHA-256 (or cksum) and length and runs it
    /// for its version before it gets that name. A later run with --deploy finds the copy, compares it again and sends nothing. On a
    /// terminal a run without --deploy asks; elsewhere it never sends. The platform must be the same. 'ssh HOST rm -r
    /// .cache/dsync' removes all copies. Not with --dsync-path.
    #[arg(long)]
    pub(crate) deploy: bool,
    /// Give the remote end an option of its own: --fake-super, --no-super, and --super, which takes
    /// them back; --insecure-links, --munge-links, --copy-as=USER
    ///
    /// In a local run the destination is that end.
    #[arg(short = 'M', long, value_name = "OPTION", allow_hyphen_values = true)]
    pub(crate) remote_option: Vec<String>,
    /// What carries the data: auto, quic, tls or ssh
    ///
    /// auto, the default, takes TLS over TCP where the round trip is below 2 ms and QUIC from 40 ms
    /// on. Between them it connects over both: data begins with TLS, which costs less processor
    /// time, and moves to QUIC where losses hold TCP back, or back again, while the run goes on;
    /// without an answer over UDP within six round trips, and half a second at least, TLS, and
    /// without one over TCP either, within 1.5 seconds, the ssh connection itself, as always where
    /// ssh goes through another host or a command. The summary says which it was, why, and each move. A
    /// carrier that is asked for by name has 10 seconds to answer.
    ///
    /// To a share of dsync serve every run begins with one connection of TLS over TCP, and the lanes
    /// of a long one move: with auto to QUIC where the round trip is 40 ms or longer, else to
    /// connections of TLS, and from these to QUIC where losses hold TCP back; with quic and tls to
    /// these. No run waits for them, and where QUIC does not
    /// get through TLS carries everything. ssh is for runs over ssh.
    #[arg(
        long,
        value_name = "CARRIER",
        value_enum,
        hide_possible_values = true,
        hide_default_value = true,
        default_value = "auto",
        allow_hyphen_values = true
    )]
    pub(crate) transport: Carrier,
    /// End with exit code 30 when the peer is silent for SECONDS; 60 by default
    ///
    /// Both ends send a sign of life every second, whatever they are busy with, so only a lost peer
    /// is silent. There is always a limit: 0, rsync's word for none, is the default. The remote end
    /// waits for an hour at the most.
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true, value_parser = seconds_or_default)]
    pub(crate) timeout: Option<Duration>,
    /// Connect again when the connection breaks, up to N times in a row; 5 by default
    ///
    /// Each time the pause before it doubles, from 1 second to 30, and is up to a quarter longer or
    /// shorter, so that many runs do not come back at once. The run goes on where it stood:
    /// what was finished is not sent again, and of an unfinished file only what is missing. 0 ends
    /// the run at once. What was refused (a login, a full disk) is not tried again, nor is a first
    /// connection that fails.
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = retries)]
    pub(crate) retries: Option<u32>,
    /// End with exit code 35 when the remote end does not answer within SECONDS; 300 by default
    ///
    /// Logging in counts, and typing a password; a job without a person may want less. A server of
    /// HOST::SHARE has 20 seconds by default, as nobody logs in there. 0 is the default.
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true, value_parser = seconds_or_default)]
    pub(crate) contimeout: Option<Duration>,
    /// Ports of the remote host that may be opened, for a firewall: 5000 or 5000-5010
    ///
    /// For UDP and for TCP. By default the remote system chooses. A run opens one port of each
    /// kind; it is an error when none is free. (rsync's option of this name is the port of a
    /// daemon; ssh's own port is set with -e.)
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true)]
    pub(crate) port: Option<Ports>,
    /// Send at most RATE bytes per second; 0 for no limit
    ///
    /// At least 512 bytes. In KiB without a suffix; K, M, G, T and P are powers of 1024, KB, MB and so
    /// on of 1000, B single bytes:
    /// --bwlimit=1.5m. What both ends send is limited, before encryption. --no-bwlimit takes it back.
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub(crate) bwlimit: Option<Rate>,
    /// Hold at most SIZE bytes of memory for what the other end sends; 256M by default
    ///
    /// At least 16M; 0 for no limit. In bytes without a suffix; K, M, G are powers of 1024. An end
    /// that would have to hold more ends the run with exit code 12 and names what it was for: a run
    /// with millions of hard links, or of directories in one directory, may need more. Each end has
    /// its own limit, which the other one cannot change; the remote one's is set with
    /// --dsync-path='dsync --max-alloc=SIZE'. A local run has none.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = most_memory)]
    pub(crate) max_alloc: Option<u64>,
    /// End with exit code 30 when nothing is done for SECONDS; 3600 by default
    ///
    /// At least 1. --timeout ends a run whose peer is silent, this one a run whose peer says no
    /// more than that it is there. A second comes on top for each 8 MiB of the longest file, which
    /// may have to be read at a go, and a day with
    /// -c. Each end has its own limit; the remote one's is set with --dsync-path='dsync --max-stall=SECONDS'.
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true, value_parser = seconds)]
    pub(crate) max_stall: Option<Duration>,
    /// Use IPv4 only; passed on to ssh
    #[arg(short = '4', long, overrides_with = "ipv6")]
    pub(crate) ipv4: bool,
    /// Use IPv6 only; passed on to ssh
    #[arg(short = '6', long, overrides_with = "ipv4")]
    pub(crate) ipv6: bool,
}

/// The names that `--transport` knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Carrier {
    Auto,
    Quic,
    Tls,
    Ssh,
}

/// The error for a timeout that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoTimeout {
    Zero,
    Number(NotInRange),
}

impl fmt::Display for NoTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero => f.write_str("must be at least 1 s (0 would disable it)"),
            Self::Number(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for NoTimeout {}

fn seconds(value: &str) -> Result<Duration, NoTimeout> {
    match whole_number(value, 0, MAX_TIMEOUT_SECONDS) {
        Ok(0) => Err(NoTimeout::Zero),
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(error) => Err(NoTimeout::Number(NotInRange { lowest: 1, ..error })),
    }
}

/// Reads a timeout of which 0, no limit to rsync, stands for the default.
fn seconds_or_default(value: &str) -> Result<Duration, NotInRange> {
    whole_number(value, 0, MAX_TIMEOUT_SECONDS).map(Duration::from_secs)
}

fn retries(value: &str) -> Result<u32, NotInRange> {
    let number = whole_number(value, 0, MAX_RETRIES)?;
    Ok(u32::try_from(number).unwrap_or(u32::MAX))
}

/// The error for a bound of memory that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotMemory {
    Size(NotASize),
    TooLittle,
}

impl fmt::Display for NotMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(error) => error.fmt(f),
            Self::TooLittle => f.write_str("is less than 16M, which a run needs (0 is for no limit)"),
        }
    }
}

impl std::error::Error for NotMemory {}

fn most_memory(word: &str) -> Result<u64, NotMemory> {
    match Size::parse(word, 'B').map_err(NotMemory::Size)?.0 {
        0 => Ok(u64::MAX),
        1..LEAST_MEMORY => Err(NotMemory::TooLittle),
        bytes => Ok(bytes),
    }
}

/// Smallest bound: room for the buffers of any carrier's lanes and for one listing in progress, in
/// bytes.
const LEAST_MEMORY: u64 = 16 << 20;

/// Most attempts in a row: with the longest pause between them, five weeks.
const MAX_RETRIES: u64 = 100_000;

/// Longest timeout: a year. A longer one is a typing error, and a year is far below the overflow of
/// clock arithmetic.
const MAX_TIMEOUT_SECONDS: u64 = 365 * 24 * 60 * 60;

impl Group for Remote {
    fn switches(&mut self) -> Vec<(&'static str, &mut bool)> {
        vec![("ipv4", &mut self.ipv4), ("ipv6", &mut self.ipv6), ("deploy", &mut self.deploy)]
    }
}

/// A range of ports as typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ports(pub(crate) PortRange);

/// The error for a word that is not a range of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotPorts;

impl fmt::Display for NotPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("is no port from 1 to 65535, nor two with a '-' between them, the lower one first")
    }
}

impl std::error::Error for NotPorts {}

impl FromStr for Ports {
    type Err = NotPorts;

    fn from_str(word: &str) -> Result<Self, NotPorts> {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let port = |word: &str| {
            let number = whole_number(word, 1, u16::MAX.into()).map_err(|_| NotPorts)?;
            u16::try_from(number).ok().and_then(NonZeroU16::new).ok_or(NotPorts)
        };
        PortRange::new(port(first)?, port(last)?).map(Self).ok_or(NotPorts)
    }
}

/// Bytes per second as typed; none for 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate(pub(crate) Option<NonZeroU64>);

/// The error for a word that is not a rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotARate {
    Size(NotASize),
    TooSlow,
}

impl fmt::Display for NotARate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(error) => error.fmt(f),
            Self::TooSlow => f.write_str("is less than 512 bytes per second (0 is for no limit)"),
        }
    }
}

impl std::error::Error for NotARate {}

impl FromStr for Rate {
    type Err = NotARate;

    fn from_str(word: &str) -> Result<Self, NotARate> {
        match Size::parse(word, 'K').map_err(NotARate::Size)?.0 {
            0 => Ok(Self(None)),
            1..SLOWEST_RATE => Err(NotARate::TooSlow),
            rate => Ok(Self(NonZeroU64::new(rate))),
        }
    }
}

/// rsync's own lowest rate, in bytes per second.
const SLOWEST_RATE: u64 = 512;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_rsync_reads_them() {
        let rate = |word: &str| word.parse::<Rate>().map(|rate| rate.0.map_or(0, NonZeroU64::get));
        for (word, bytes) in
            [("0", 0), ("1", 1024), ("0.5", 512), ("1.5m", 1_572_864), ("1kb", 1000), ("512b", 512)]
        {
            assert_eq!(rate(word), Ok(bytes), "{word}");
        }
        for word in ["0.4", "511b"] {
            assert_eq!(rate(word), Err(NotARate::TooSlow), "{word}");
        }
        assert!(matches!(rate("x"), Err(NotARate::Size(_))));
    }

    #[test]
    fn the_last_limit_and_the_last_family_win() {
        let remote =
            |line: &str| super::super::parse(line.split_whitespace().map(OsString::from)).unwrap().remote;
        assert_eq!(remote("--bwlimit=1 --no-bwlimit").bwlimit, None);
        assert_eq!(remote("--no-bwlimit --bwlimit=1").bwlimit, Some(Rate(NonZeroU64::new(1024))));
        let families = |line| (remote(line).ipv4, remote(line).ipv6);
        assert_eq!(families("-4 -6"), (false, true));
        assert_eq!(families("-6 --ipv4"), (true, false));
        assert_eq!(families("-4 --no-ipv4"), (false, false));
    }

    #[test]
    fn memory_is_in_bytes_and_nought_is_no_limit() {
        for (word, bytes) in [("0", u64::MAX), ("16m", 16 << 20), ("1G", 1 << 30), ("300000000", 300_000_000)]
        {
            assert_eq!(most_memory(word), Ok(bytes), "{word}");
        }
        assert_eq!(most_memory("16777215"), Err(NotMemory::TooLittle));
        assert!(matches!(most_memory("much"), Err(NotMemory::Size(_))));
    }

    #[test]
    fn ports_are_one_or_a_range_upwards() {
        let ports = |word: &str| word.parse::<Ports>().map(|ports| ports.0.to_string());
        assert_eq!(ports("5000"), Ok("5000".into()));
        assert_eq!(ports("5000-5010"), Ok("5000-5010".into()));
        for word in ["", "-", "0", "5010-5000", "5000-", "65536", "1-2-3", "+1", "ssh"] {
            assert_eq!(ports(word), Err(NotPorts), "{word}");
        }
    }
}
