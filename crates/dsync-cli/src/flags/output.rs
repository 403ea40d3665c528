//! The program's output and its destination.

use std::{error::Error, fmt};

use clap::{ArgAction, Args};

use super::Group;

/// Listings, statistics, progress.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
#[expect(clippy::struct_excessive_bools, reason = "one independent switch per rsync option")]
pub(crate) struct Output {
    /// List what is changed, and end with a summary; -vv also lists what is up to date
    #[arg(short = 'v', long, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Say nothing but errors
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
    /// List what is changed, and how, in rsync's format; -ii also lists what is up to date
    ///
    /// Eleven characters and the name: '<' or '>' for data that is sent or received, 'c' for a local creation,
    /// '.' for attributes only; the type f, d, L, D or S; then what differs: c checksum or value, s size, t time
    /// (T: set to the time of the transfer), p permissions, o owner, g group. A removal is '*deleting'.
    #[arg(short = 'i', long, action = ArgAction::Count)]
    pub(crate) itemize_changes: u8,
    /// End with statistics, in rsync's format
    #[arg(long)]
    pub(crate) stats: bool,
    /// Numbers with units of 1000; -hh with units of 1024; --no-h without commas
    ///
    /// On its own, -h shows the help instead.
    #[arg(short = 'h', long, action = ArgAction::Count)]
    pub(crate) human_readable: u8,
    /// Show a progress bar on the terminal even with -v
    ///
    /// Without it there is a bar when standard error is a terminal and neither -v nor -i is given; --no-progress
    /// takes it away. When standard error is not a terminal there is none.
    #[arg(long)]
    pub(crate) progress: bool,
    /// Same as --partial --progress
    #[arg(short = 'P')]
    pub(crate) partial_progress: bool,
    /// rsync's name for --progress: progress or progress2
    #[arg(long, value_name = "FLAGS", value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) info: Vec<String>,
    /// When lines of the list are written: L or N at once, B in blocks
    ///
    /// By default at once on a terminal, and into a pipe or a file several times a second.
    #[arg(long, value_name = "MODE", allow_hyphen_values = true, value_parser = buffering)]
    pub(crate) outbuf: Option<Buffering>,
    /// True when `--no-h` came after all `-h`.
    #[arg(skip)]
    pub(crate) plain_numbers: bool,
    /// Whether `--no-progress` came after every option that requests a bar.
    #[arg(skip)]
    pub(crate) no_progress: bool,
}

/// When lines of the list are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Buffering {
    Lines,
    Blocks,
}

/// A value of `--outbuf` that is none of rsync's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NotBuffering;

impl fmt::Display for NotBuffering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("use N, L or B")
    }
}

impl Error for NotBuffering {}

/// Reads a mode of which rsync looks at the first letter only.
fn buffering(value: &str) -> Result<Buffering, NotBuffering> {
    match value.bytes().next().map(|letter| letter.to_ascii_lowercase()) {
        // Unbuffered lines are whole lines: nothing here writes less.
        Some(b'n' | b'u' | b'l') => Ok(Buffering::Lines),
        Some(b'b' | b'f') => Ok(Buffering::Blocks),
        _ => Err(NotBuffering),
    }
}

impl Group for Output {
    fn switches(&mut self) -> Vec<(&'static str, &mut bool)> {
        vec![("quiet", &mut self.quiet), ("stats", &mut self.stats), ("progress", &mut self.progress)]
    }
}
