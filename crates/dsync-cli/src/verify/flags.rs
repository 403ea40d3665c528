//! The words of `dsync verify`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use crate::flags::{NotInRange, name, whole_number};

/// The words behind `dsync verify`.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    /// The directory to verify: here, or HOST:DIR or HOST::SHARE/DIR, which needs --manifest
    #[arg(value_name = "PATH")]
    pub(super) path: PathBuf,

    /// The manifest, a file here; where none is named PATH.dsync-manifest beside a directory here, and where
    /// there is none either, what runs with --state have kept (--state)
    #[arg(long, value_name = "FILE")]
    pub(super) manifest: Option<PathBuf>,

    /// Compare with the hashes that runs with --state have kept, also where there is a manifest
    ///
    /// A file that has changed since a run read it, and one that no run has read, is told and not read; the
    /// exit code is 23 for rot and what cannot be read, and 11 where no file of PATH can be compared
    #[arg(long, conflicts_with_all = ["manifest", "against", "record"])]
    pub(super) state: bool,

    /// The directory of --state, which it implies; $XDG_STATE_HOME/dsync where none is named
    #[arg(long, value_name = "DIR", conflicts_with_all = ["manifest", "against", "record"])]
    pub(super) state_dir: Option<PathBuf>,

    /// Compare with the tree SRC by contents, and not with a manifest; one of the two may be HOST:DIR
    #[arg(long, value_name = "SRC", conflicts_with_all = ["manifest", "record", "percent"], value_parser = name())]
    pub(super) against: Option<OsString>,

    /// The remote shell
    #[arg(short = 'e', long, value_name = "COMMAND")]
    pub(super) rsh: Option<OsString>,

    /// The program on the remote host
    #[arg(long, value_name = "PROGRAM", value_parser = name())]
    pub(super) dsync_path: Option<OsString>,

    /// Read the tree and write its manifest, in place of the one that is there
    #[arg(long, conflicts_with = "percent")]
    pub(super) record: bool,

    /// Read the content of this share of the files, others each time; compare all others by size and time
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = percent)]
    pub(super) percent: u8,

    /// Read no content: compare all files by size and time, and change no times of --max-age
    #[arg(short = 'n', long, conflicts_with_all = ["against", "record", "percent"])]
    pub(super) dry_run: bool,

    /// Read only the files that were not read and found sound within this time, as 30d, 12h or 2w, and go on
    /// where an interrupted run ended; FILE.verified beside the manifest, or `verified` in the directory of
    /// --state, keeps the times
    #[arg(long, value_name = "AGE", value_parser = age, conflicts_with_all = ["against", "record"])]
    pub(super) max_age: Option<Duration>,

    /// Stay on the filesystem of PATH
    #[arg(short = 'x', long)]
    pub(super) one_file_system: bool,

    /// Print a JSON object for each difference, and one at the end
    #[arg(long)]
    pub(super) json: bool,

    /// Show progress although standard error is no terminal
    #[arg(long)]
    pub(super) progress: bool,

    /// Print differences only
    #[arg(short, long)]
    pub(super) quiet: bool,
}

fn percent(text: &str) -> Result<u8, NotInRange> {
    whole_number(text, 0, 100).map(|number| u8::try_from(number).unwrap_or(100))
}

/// Reads an age in the form of GNU and systemd programs. A month has no fixed length.
fn age(text: &str) -> Result<Duration, &'static str> {
    let span = text.parse::<jiff::Span>().ok();
    let length = span.and_then(|span| span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok());
    length
        .and_then(|length| Duration::try_from(length).ok())
        .ok_or("is no age: a number and a unit, as 30d, 12h or 90m")
}
