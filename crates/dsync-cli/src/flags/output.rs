//! The program's output and its destination.

use std::{error::Error, ffi::OsString, fmt};

use clap::{ArgAction, Args};

use super::{Group, name};

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
    /// Eleven characters and the name: '<' or '>' for data that is sent or received, 'c' for a
    /// local creation, '.' for attributes only; the type f, d, L, D or S; then what differs: c
    /// checksum or value, s size, t time (T: set to the time of the transfer), p permissions, o
    /// owner, g group. A removal is '*deleting'.
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
    /// Show progress also with -v: bar, plain (a line every 5 s), json or none
    ///
    /// Without it there is a bar when standard error is a terminal and neither -v nor -i is given;
    /// --no-progress takes it away. Where standard error is no terminal, or TERM is dumb, --progress
    /// prints a line every 5 seconds instead. With json each line on standard error that begins with {
    /// is an event "progress" of --json, several times a second; messages stand between. The bar has no colours, and as many fields as the
    /// terminal is wide for. SIGUSR1 prints the state of any run.
    #[arg(
        id = "progress",
        long = "progress",
        value_name = "KIND",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "bar",
        value_parser = progress_kind
    )]
    pub(crate) progress_kind: Option<ProgressKind>,
    /// Same as --partial --progress
    #[arg(short = 'P')]
    pub(crate) partial_progress: bool,
    /// List the source's entries and copy nothing: what a single operand does, too
    ///
    /// In rsync's format: type and permissions, size, time of modification, name. Without -r the
    /// entries of one directory, or with no slash behind its name the directory alone. Filters and
    /// limits of size select; -l shows where links lead, -h the sizes with units. A destination is
    /// not looked at.
    #[arg(long)]
    pub(crate) list_only: bool,
    /// Print events for programs, one JSON object a line, in the place of lists and summary
    ///
    /// docs/events.schema.json describes them: start, connected, plan, entry, problem, skipped,
    /// backup, removed, progress, retry, summary; of HOST:: alone start, share, summary. Entries are
    /// told when they are done, with -n as planned; -vv or -ii also those that are up to date. The summary has the exit code, all counts, and each failed
    /// path with operation, cause and what to do. A wrong command line is told on standard error
    /// only. Not with -q.
    #[arg(long)]
    pub(crate) json: bool,
    /// Choose the lines that are printed, kind by kind: --info=help names the kinds
    ///
    /// A level behind a word, as in name2 or del0, is 1 without one; 0 turns the kind off whatever
    /// -v says. progress and progress2 show the bar, name lists names (name2 those that are up to
    /// date too), backup the backups that are made, remove what leaves the
    /// source, del deletions, stats the paragraph at the end (stats2 the statistics), nonreg
    /// entries of types that are not copied, symsafe links that --copy-unsafe-links replaces, skip what
    /// --update, --existing, --ignore-existing and limits of size leave alone; none turns all off,
    /// all all on. flist is rsync's line that a list is sent; copy, misc, mount and owner are taken and have no lines.
    #[arg(long, value_name = "FLAGS", value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) info: Vec<String>,
    /// Say on standard error why things are done: --debug=help names the parts
    ///
    /// Words of rsync's, each with a level: those about the connection (connect, io, proto and
    /// others) show ports, carrier and why, those about files (recv, del, flist and others) what is
    /// done with each and why. DSYNC_LOG in the environment is finer, and counts instead if it is
    /// set.
    #[arg(long, value_name = "FLAGS", value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) debug: Vec<String>,
    /// List what is changed, each entry in this format
    ///
    /// Text in which %n stands for the name, with / behind a directory's, %f for the name behind
    /// the operand's directory where the source is at this end, %i for the letters of -i, %L for
    /// what a link leads to, %l for the length, %o for send, recv or del., %p for the number of the
    /// process, %t for the time; %B for the permissions, %M for the modification time, %U and %G for
    /// the numbers of owner and group at the source; %b for the bytes of the file that were sent and
    /// %c for those of its old copy's sums. A width and a - for the left side may stand between, as
    /// in %-40n, and before or behind these ' for a length with commas, '' with units. With %i all changes are listed, else
    /// those that -v lists. %C needs -c and stands for the BLAKE3 hash of each file, as b3sum prints it.
    #[arg(long, alias = "log-format", value_name = "FORMAT", allow_hyphen_values = true)]
    pub(crate) out_format: Option<OsString>,
    /// Add what is done and said to FILE, each line with time and process
    ///
    /// In rsync's form, also with -q. FILE is made where it is missing. When it cannot be opened or
    /// written the run goes on and says so. In the destination it must be a regular file (see
    /// --insecure-links).
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, value_parser = name())]
    pub(crate) log_file: Option<OsString>,
    /// The format of entries in --log-file: '%i %n%L' by default
    ///
    /// As --out-format; an empty one logs no entries.
    #[arg(long, value_name = "FORMAT", allow_hyphen_values = true)]
    pub(crate) log_file_format: Option<OsString>,
    /// Write a manifest of what the destination has after the run to FILE, for dsync verify
    ///
    /// FILE has each entry of the destination directory, sorted, with the BLAKE3 hash of each file that this
    /// run wrote or, with -c, compared; other files have no hash and are verified by size and time. Entries
    /// that failed are left out. FILE appears whole when the run has ended, also with 23 or 24; a run that did not end,
    /// or -n, leaves an old one. It costs another read of what was written, and a walk through the destination. Keep FILE out of
    /// the destination where that is remote. Not with --list-only, --only-write-batch or --iconv.
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, value_parser = name())]
    pub(crate) write_manifest: Option<OsString>,
    /// Print names byte for byte, control characters excepted
    ///
    /// Without it bytes that are not UTF-8, and characters that cannot be seen, are escaped.
    #[arg(short = '8', long = "8-bit-output")]
    pub(crate) eight_bit_output: bool,
    /// Where the list goes: errors or client for standard output, all for standard error
    #[arg(long, value_name = "MODE", allow_hyphen_values = true, value_parser = stream)]
    pub(crate) stderr: Option<Stream>,
    /// When lines of the list are written: L or N at once, B in blocks
    ///
    /// Of a longer word the first letter counts, as with rsync. By default at once on a terminal, and
    /// into a pipe or a file several times a second.
    #[arg(long, value_name = "MODE", allow_hyphen_values = true, value_parser = buffering)]
    pub(crate) outbuf: Option<Buffering>,
    /// Whether `--no-h` came after all `-h`.
    #[arg(skip)]
    pub(crate) plain_numbers: bool,
    /// Whether progress was asked for, by whichever option.
    #[arg(skip)]
    pub(crate) progress: bool,
    /// Whether `--no-progress` came after every option that requests a bar.
    #[arg(skip)]
    pub(crate) no_progress: bool,
}

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgressKind {
    /// A bar on a terminal, else lines.
    Bar,
    /// Lines.
    Plain,
    /// The events `progress` of `--json`.
    Json,
    None,
}

/// A value of `--progress` that is none of dsync's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NotAProgress;

impl fmt::Display for NotAProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("use bar, plain, json or none")
    }
}

impl Error for NotAProgress {}

fn progress_kind(value: &str) -> Result<ProgressKind, NotAProgress> {
    match value {
        "bar" => Ok(ProgressKind::Bar),
        "plain" => Ok(ProgressKind::Plain),
        "json" => Ok(ProgressKind::Json),
        "none" => Ok(ProgressKind::None),
        _ => Err(NotAProgress),
    }
}

/// Which stream the list is printed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Output,
    Errors,
}

/// A value of `--stderr` that is none of rsync's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NotAStream;

impl fmt::Display for NotAStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("use errors, all or client")
    }
}

impl Error for NotAStream {}

/// Reads a mode, of which a beginning is enough.
fn stream(value: &str) -> Result<Stream, NotAStream> {
    match value {
        "" => Err(NotAStream),
        value if "all".starts_with(value) => Ok(Stream::Errors),
        value if "errors".starts_with(value) || "client".starts_with(value) => Ok(Stream::Output),
        _ => Err(NotAStream),
    }
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
        f.write_str("use N, L or B; the first letter counts")
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
        vec![
            ("quiet", &mut self.quiet),
            ("stats", &mut self.stats),
            ("list_only", &mut self.list_only),
            ("json", &mut self.json),
            ("progress", &mut self.progress),
            ("eight_bit_output", &mut self.eight_bit_output),
        ]
    }
}
