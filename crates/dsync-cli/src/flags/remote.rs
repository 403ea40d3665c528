//! How a remote end is started and reached.

use std::{ffi::OsString, time::Duration};

use clap::{Args, ValueEnum};

use super::{Group, NotInRange, whole_number};

/// Remote shell, remote program, carrier, timeout, retries.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Remote {
    /// The remote shell and its arguments; ssh by default
    ///
    /// Split into words as a shell does, quotes included: -e 'ssh -p 2222'. The host and 'dsync --server' follow.
    /// Without it DSYNC_RSH, then RSYNC_RSH is taken from the environment.
    #[arg(short = 'e', long, value_name = "COMMAND", allow_hyphen_values = true)]
    pub(crate) rsh: Option<OsString>,
    /// The command that starts dsync on the remote host; dsync by default
    ///
    /// The remote login shell reads it: --dsync-path='sudo dsync'.
    #[arg(long, visible_alias = "rsync-path", value_name = "PROGRAM", allow_hyphen_values = true)]
    pub(crate) dsync_path: Option<String>,
    /// What carries the data: auto, quic or ssh
    ///
    /// auto, the default, tries QUIC to the address that ssh reached and goes on over ssh when UDP gets no answer
    /// within 2 seconds; the summary says which it was.
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
    /// At least 1. Both ends send a sign of life every second, whatever they are busy with.
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true, value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// Connect again when the connection breaks, up to N times in a row; 5 by default
    ///
    /// Each time the pause before it doubles, from 1 second to 30. The run goes on where it stood: what was
    /// finished is not sent again, and of an unfinished file only what is missing. 0 ends the run at once. What was
    /// refused (a login, a full disk) is not tried again, nor is a first connection that fails.
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = retries)]
    pub(crate) retries: Option<u32>,
}

/// The names that `--transport` knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Carrier {
    Auto,
    Quic,
    Ssh,
}

/// A timeout that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoTimeout {
    Zero,
    Number(NotInRange),
}

impl std::fmt::Display for NoTimeout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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

fn retries(value: &str) -> Result<u32, NotInRange> {
    let number = whole_number(value, 0, MAX_RETRIES)?;
    Ok(u32::try_from(number).unwrap_or(u32::MAX))
}

/// Most tries in a row: with the longest pause between them, five weeks.
const MAX_RETRIES: u64 = 100_000;

/// Longest timeout: a year. Longer is a typing error, and far from where clock arithmetic overflows.
const MAX_TIMEOUT_SECONDS: u64 = 365 * 24 * 60 * 60;

impl Group for Remote {
    fn switches(&mut self) -> Vec<(&'static str, &mut bool)> {
        Vec::new()
    }
}
