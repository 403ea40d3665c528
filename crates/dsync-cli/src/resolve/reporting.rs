//! The output of a run: what is printed, in which form, and where.

use std::{ffi::OsString, os::unix::ffi::OsStrExt as _, path::PathBuf, sync::Arc, time::SystemTime};

use dsync_engine::{DeleteLimit, Destination, Durability, OperatorFiles, Source};

use super::info;
use crate::{
    address,
    bar::Shown,
    catalogue::Catalogue,
    console::Voice,
    debug,
    flags::{Buffering, Flags, Output, ProgressKind, Stream, When},
    format::{Field, Format},
    json::Opening,
    listing::{Base, Listing},
    log::LocalClock,
    numbers::Style,
    stop,
    usage::UsageError,
};

/// The output that a run was asked for.
#[derive(Debug, Clone)]
pub(crate) struct Reporting {
    pub(crate) voice: Voice,
    /// `-v` times.
    pub(crate) verbose: u8,
    /// Whether the list begins with rsync's line about it.
    pub(crate) tells_list: bool,
    /// Whether the run ends with a paragraph.
    pub(crate) paragraph: bool,
    pub(crate) stats: bool,
    /// Whether the run only looks at the source.
    pub(crate) lists_only: bool,
    /// The file of `--only-write-batch`, if one is written.
    pub(crate) recorded: Option<PathBuf>,
    /// `--stderr`.
    pub(crate) stream: Stream,
    /// `--log-file`, its lists, and the rules for opening it.
    pub(crate) log: Option<(PathBuf, Listing, OperatorFiles)>,
    pub(crate) style: Style,
    /// Whether directories are copied, not skipped.
    pub(crate) recursive: bool,
    /// `--outbuf`.
    pub(crate) buffering: Option<Buffering>,
    /// `--progress`, `--no-progress` or neither.
    pub(crate) progress: Option<bool>,
    /// `--progress=plain`.
    pub(crate) progress_kind: Option<ProgressKind>,
    pub(crate) durability: Durability,
    pub(crate) max_delete: Option<DeleteLimit>,
    /// `--delete-all-or-nothing`.
    pub(crate) all_or_nothing: bool,
    /// The time at which the run stops by itself.
    pub(crate) stop: Option<SystemTime>,
}

impl Reporting {
    /// Returns whether each line of the list is written at once, given whether standard output is a
    /// terminal.
    pub(crate) fn writes_lines(&self, terminal: bool) -> bool {
        self.buffering.map_or(terminal, |buffering| buffering == Buffering::Lines)
    }

    /// Returns how to show progress, given whether standard error is a terminal that can draw.
    pub(crate) fn bar(&self, terminal: bool) -> Shown {
        let lists = self.verbose > 0 || self.voice.listing.lists() || self.voice.json.is_some();
        match self.progress {
            _ if self.voice.quiet => Shown::Nothing,
            Some(true) if self.progress_kind == Some(ProgressKind::Json) => Shown::Json,
            Some(true) if self.progress_kind == Some(ProgressKind::Plain) || !terminal => Shown::Lines,
            Some(true) => Shown::Bar,
            None if terminal && !lists => Shown::Bar,
            _ => Shown::Nothing,
        }
    }
}

/// Returns the form of numbers.
fn style(flags: &Flags) -> Style {
    let output = &flags.output;
    match output.human_readable {
        _ if output.plain_numbers => Style::Plain,
        0 => Style::Commas,
        1 => Style::Thousands,
        _ => Style::Binary,
    }
}

/// Returns the output that the flags ask for.
///
/// # Errors
/// [`UsageError`].
pub(super) fn reporting(
    flags: &Flags,
    files: &OperatorFiles,
    source: &Source,
    destination: &Destination,
) -> Result<Reporting, UsageError> {
    let output = &flags.output;
    let info = info::read(&output.info)?;
    let style = style(flags);
    let listing = listing(flags, (info, style), source, destination)?;
    let log = logging(&flags.output, &listing, files)?;

    let voice = Voice {
        listing,
        quiet: output.quiet,
        hides_nonregular: info.nonreg == Some(0),
        shows_left_alone: info.skip.map_or(output.verbose > 1, |level| level > 0),
        shows_rulings: !output.quiet
            && !output.json
            && debug::shows_rulings(&output.debug).unwrap_or(output.verbose > 1),
        shows_backups: info.backup.map_or(output.verbose > 1, |level| level > 0),
        shows_removals: info.remove.map_or(output.verbose > 1, |level| level > 0),
        shows_replaced_links: info.symsafe.map_or(output.verbose > 0, |level| level > 0),
        rules: Arc::default(),
        json: output.json.then(|| opening(flags, mode(source, destination))),
        interactive: false,
    };
    let recorded = flags.batch.only_write_batch.as_ref().filter(|_| !flags.writing.dry_run);
    let stats = output.stats || info.stats.is_some_and(|level| level > 1);

    Ok(Reporting {
        voice,
        verbose: output.verbose,
        tells_list: info.flist.is_some_and(|level| level > 0),
        lists_only: *destination == Destination::Nowhere,
        recorded: recorded.map(PathBuf::from),
        paragraph: info.stats.map_or(output.verbose > 0 || stats, |level| level > 0 || stats),
        stats,
        stream: output.stderr.unwrap_or(Stream::Output),
        log,
        style,
        recursive: flags.attributes.takes_directories(),
        buffering: output.outbuf,
        progress: if output.progress { Some(true) } else { output.no_progress.then_some(false) },
        progress_kind: output.progress_kind,
        durability: match flags.writing.durability {
            When::Batch => Durability::Batch,
            When::File => Durability::File,
            When::None => Durability::None,
        },
        max_delete: flags.deletion.max_delete,
        all_or_nothing: flags.deletion.delete_all_or_nothing,
        stop: stop::time(&flags.stopping)?,
    })
}

/// Returns the beginning of the stream of events of a run whose words are right, and that cannot begin.
pub(crate) fn unbegun(flags: &Flags) -> Opening {
    let found = || {
        let (operands, _) = address::rewrite(&flags.operands).ok()?;
        super::ends(&operands, flags.output.list_only).ok()
    };
    let ends = if flags.batch.read_batch.is_some() { None } else { found() };
    opening(flags, ends.map_or("local", |(source, destination)| mode(&source, &destination)))
}

/// Returns the beginning of the stream of events of a list of shares.
pub(crate) fn listed(flags: &Flags) -> Opening {
    opening(flags, "list")
}

fn mode(source: &Source, destination: &Destination) -> &'static str {
    match (source, destination) {
        (_, Destination::Nowhere) => "list",
        (Source::Remote { .. }, _) => "pull",
        (_, Destination::Remote { .. }) => "push",
        _ => "local",
    }
}

/// Returns the beginning of the stream of events.
fn opening(flags: &Flags, mode: &'static str) -> Opening {
    let words = |words: &[OsString]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
    let dry_run = flags.writing.dry_run || flags.batch.only_write_batch.is_some() || mode == "list";
    if let Some(batch) = &flags.batch.read_batch {
        let destination = flags.operands.first().map(|word| word.as_bytes().to_vec());
        return Opening { mode, dry_run, sources: vec![batch.as_bytes().to_vec()], destination };
    }
    match flags.operands.split_last() {
        Some((last, sources)) if !sources.is_empty() => {
            let destination = (mode != "list").then(|| last.as_bytes().to_vec());
            Opening { mode, dry_run, sources: words(sources), destination }
        }
        _ => Opening { mode, dry_run, sources: words(&flags.operands), destination: None },
    }
}

/// Returns the lists for standard output.
fn listing(
    flags: &Flags,
    (info, style): (info::Info, Style),
    source: &Source,
    destination: &Destination,
) -> Result<Listing, UsageError> {
    let output = &flags.output;
    let format = output.out_format.as_ref();
    let format = format.map(|format| Format::parse(format.as_bytes()));
    let verbose = info.name.unwrap_or(output.verbose);
    // Whoever chose the form of each line gets one for each deletion, whatever `--info` says.
    let is_chosen = output.itemize_changes > 0 || format.is_some();
    let tells = info.del.map_or(verbose > 0 || output.verbose > 0, |level| level > 0);

    Ok(Listing {
        verbose,
        itemize: output.itemize_changes,
        sends: matches!(destination, Destination::Remote { .. }),
        receives: matches!(source, Source::Remote { .. }),
        has_groups: flags.attributes.group,
        deletions: Some(is_chosen || tells),
        clock: (format.is_some() || output.log_file_format.is_some()).then(LocalClock::new),
        format,
        base: match source {
            Source::Local { paths } => Base(paths.clone()),
            _ => Base::default(),
        },
        catalogue: (*destination == Destination::Nowhere).then(|| Catalogue {
            style,
            targets: flags.attributes.links,
            clock: LocalClock::new(),
        }),
        eight_bit: output.eight_bit_output,
    })
}

/// Returns the log's file and its lists; `None` without `--log-file`.
fn logging(
    output: &Output,
    listing: &Listing,
    files: &OperatorFiles,
) -> Result<Option<(PathBuf, Listing, OperatorFiles)>, UsageError> {
    let Some(file) = &output.log_file else { return Ok(None) };
    let format = output.log_file_format.as_ref();
    let format = format.map(|format| Format::parse(format.as_bytes()));

    let of_log = Listing {
        verbose: output.verbose,
        itemize: 1,
        format,
        deletions: None,
        catalogue: None,
        ..listing.clone()
    };
    Ok(Some((PathBuf::from(file), of_log, files.clone())))
}

/// Refuses hashes of contents where nobody computes them: what dsync checks a transfer with has the
/// session's key, and names no content.
pub(super) fn check_hashes(flags: &Flags, report: &Reporting) -> Result<bool, UsageError> {
    let has = |listing: &Listing| listing.format.as_ref().is_some_and(|format| format.has(Field::Content));
    let listed = has(&report.voice.listing);
    let wanted = listed || report.log.as_ref().is_some_and(|(_, listing, _)| has(listing));
    if wanted && !flags.comparison.checksum {
        let option = if listed { "--out-format" } else { "--log-file-format" };
        return Err(UsageError::HashesWithoutChecksum { option });
    }
    Ok(wanted)
}
