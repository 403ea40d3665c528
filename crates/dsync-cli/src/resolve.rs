//! From the command line to a run: operands read, values made into the engine's options, files of
//! patterns and the environment looked at.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::PathBuf,
};

use dsync_engine::{
    Compression, ConnectOptions, Destination, Durability, EventLevel, Job, Operand, RemoteHost, Source,
    SyncOptions, TransportChoice,
};

use crate::{
    flags::{Carrier, Choice, Flags, When},
    listing::Listing,
    numbers::Style,
    rules::Rules,
    usage::{Role, UsageError},
};

/// A run that is ready to start, and how it is to be reported.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) job: Job,
    pub(crate) rules: Rules,
    pub(crate) report: Reporting,
}

/// What is said of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reporting {
    pub(crate) listing: Listing,
    pub(crate) quiet: bool,
    pub(crate) stats: bool,
    pub(crate) style: Style,
    /// `--progress`, `--no-progress` or neither.
    pub(crate) progress: Option<bool>,
    pub(crate) durability: Durability,
    pub(crate) max_delete: Option<u64>,
}

impl Reporting {
    /// Whether a bar is shown, given that standard error is a terminal or is not.
    pub(crate) fn bar(&self, terminal: bool) -> bool {
        let lists = self.listing.verbose > 0 || self.listing.itemize > 0;
        terminal && !self.quiet && self.progress.unwrap_or(!lists)
    }
}

/// Makes a run of the command line. `environment` is asked for the variables that count.
///
/// # Errors
/// [`UsageError`].
pub(crate) fn order(
    flags: &Flags,
    environment: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Order, UsageError> {
    check_combinations(flags)?;
    let (source, destination) = ends(&flags.operands)?;
    let rules = Rules::collect(&flags.selection)?;
    let sends = matches!(destination, Destination::Remote { .. });
    let report = reporting(flags, sends);
    let options = sync_options(flags, &rules, &report)?;
    let connect = connect_options(flags, environment)?;
    Ok(Order { job: Job::new(source, destination).options(options).connect(connect), rules, report })
}

fn check_combinations(flags: &Flags) -> Result<(), UsageError> {
    if flags.deletion.delete && !flags.attributes.recursive {
        return Err(UsageError::Needs { option: "--delete", needed: "--recursive (-r)" });
    }
    if flags.selection.one_file_system > 1 {
        return Err(UsageError::UnsupportedUse { text: "--one-file-system given twice (-xx)" });
    }
    let wrong = flags.output.info.iter().find(|flag| !["progress", "progress2"].contains(&flag.as_str()));
    if let Some(flag) = wrong {
        let (option, value) = ("--info".to_owned(), flag.clone());
        let known = "progress, progress2".to_owned();
        let name = flag.trim_end_matches(|letter: char| letter.is_ascii_digit()).to_ascii_lowercase();
        return Err(if RSYNC_INFO_FLAGS.contains(&name.as_str()) {
            UsageError::UnsupportedValue { option, value, known }
        } else {
            UsageError::ValueUnknown { option, value, known }
        });
    }
    Ok(())
}

/// Flags that rsync's `--info` knows.
const RSYNC_INFO_FLAGS: &[&str] = &[
    "backup", "copy", "del", "flist", "misc", "mount", "name", "nonreg", "owner", "progress", "remove",
    "skip", "stats", "symsafe", "all", "none", "help",
];

/// Reads the operands: the last is the destination.
fn ends(operands: &[OsString]) -> Result<(Source, Destination), UsageError> {
    let (last, sources) = operands.split_last().ok_or(UsageError::NoOperands)?;
    if sources.is_empty() {
        return Err(match last.is_empty() {
            true => empty_operand(Role::Source),
            false => UsageError::NoDestination,
        });
    }
    let source = read_sources(sources)?;
    let destination =
        Operand::parse(last).map_err(|error| UsageError::Operand { role: Role::Destination, error })?;
    let destination = match destination {
        Operand::Local(path) => Destination::Local { path },
        Operand::Remote { .. } if matches!(source, Source::Remote { .. }) => {
            return Err(UsageError::BothRemote);
        }
        Operand::Remote { host, path } => Destination::Remote { host, path },
    };
    Ok((source, destination))
}

fn empty_operand(role: Role) -> UsageError {
    UsageError::Operand { role, error: dsync_engine::OperandError::EmptyPath }
}

fn read_sources(words: &[OsString]) -> Result<Source, UsageError> {
    let mut local: Vec<PathBuf> = Vec::new();
    let mut remote: Option<(RemoteHost, Vec<OsString>)> = None;
    for word in words {
        let operand = match &remote {
            Some((host, _)) => Operand::parse_after(host, word),
            None => Operand::parse(word),
        };
        match (operand.map_err(|error| UsageError::Operand { role: Role::Source, error })?, &mut remote) {
            (Operand::Local(path), None) => local.push(path),
            (Operand::Remote { host, path }, None) if local.is_empty() => remote = Some((host, vec![path])),
            (Operand::Remote { host, path }, Some((first, paths))) if host == *first => paths.push(path),
            _ => return Err(UsageError::SeveralHosts),
        }
    }
    Ok(match remote {
        Some((host, paths)) => Source::Remote { host, paths },
        None => Source::Local { paths: local },
    })
}

fn reporting(flags: &Flags, sends: bool) -> Reporting {
    let output = &flags.output;
    let style = match output.human_readable {
        _ if output.plain_numbers => Style::Plain,
        0 => Style::Commas,
        1 => Style::Thousands,
        _ => Style::Binary,
    };
    Reporting {
        listing: Listing { verbose: output.verbose, itemize: output.itemize_changes, sends },
        quiet: output.quiet,
        stats: output.stats,
        style,
        progress: if output.progress { Some(true) } else { output.no_progress.then_some(false) },
        durability: match flags.writing.durability {
            When::Batch => Durability::Batch,
            When::File => Durability::File,
            When::None => Durability::None,
        },
        max_delete: flags.deletion.max_delete,
    }
}

fn sync_options(flags: &Flags, rules: &Rules, report: &Reporting) -> Result<SyncOptions, UsageError> {
    let Flags { attributes, selection, comparison, deletion, writing, .. } = flags;
    Ok(SyncOptions {
        recursive: attributes.recursive,
        links: attributes.links,
        perms: attributes.perms,
        times: attributes.times,
        omit_dir_times: attributes.omit_dir_times,
        owner: attributes.owner,
        group: attributes.group,
        numeric_ids: attributes.numeric_ids,
        devices: attributes.devices,
        specials: attributes.specials,
        checksum: comparison.checksum,
        ignore_times: comparison.ignore_times,
        size_only: comparison.size_only,
        update: comparison.update,
        existing: comparison.existing,
        ignore_existing: comparison.ignore_existing,
        whole_file: comparison.whole_file,
        delete: deletion.delete,
        delete_excluded: deletion.delete_excluded,
        max_delete: deletion.max_delete,
        mkpath: writing.mkpath,
        dry_run: writing.dry_run,
        one_file_system: selection.one_file_system > 0,
        durability: report.durability,
        compression: compression(flags)?,
        filters: rules.list().to_vec(),
        events: event_level(report),
    })
}

fn event_level(report: &Reporting) -> EventLevel {
    let Reporting { listing: Listing { verbose, itemize, .. }, quiet, .. } = *report;
    match (quiet, verbose.max(itemize)) {
        (true, _) | (_, 0) => EventLevel::Problems,
        (_, 1) => EventLevel::Changes,
        _ => EventLevel::All,
    }
}

/// zstd's level for `-z`, as in rsync.
const DEFAULT_LEVEL: u8 = 3;

fn compression(flags: &Flags) -> Result<Compression, UsageError> {
    let compressing = &flags.compressing;
    if !compressing.compress {
        return Ok(if compressing.refused { Compression::Off } else { Compression::Auto });
    }
    let level = compressing.compress_level;
    match (compressing.compress_choice, level) {
        (Some(Choice::Lz4), Some(_)) => {
            Err(UsageError::Conflict { one: "--compress-level", other: "--compress-choice=lz4" })
        }
        (Some(Choice::None), Some(_)) => {
            Err(UsageError::Conflict { one: "--compress-level", other: "--compress-choice=none" })
        }
        (Some(Choice::Lz4), None) => Ok(Compression::Lz4),
        (Some(Choice::None), None) => Ok(Compression::Off),
        (Some(Choice::Auto), None) => Ok(Compression::Auto),
        (None | Some(Choice::Zstd | Choice::Auto), level) => {
            Ok(Compression::Zstd(level.unwrap_or(DEFAULT_LEVEL)))
        }
    }
}

fn connect_options(
    flags: &Flags,
    environment: &dyn Fn(&str) -> Option<OsString>,
) -> Result<ConnectOptions, UsageError> {
    let remote = &flags.remote;
    let mut connect = ConnectOptions::default();
    if let Some(shell) = &remote.rsh {
        connect.shell = shell_words("--rsh (-e)", shell)?;
    } else {
        for name in ["DSYNC_RSH", "RSYNC_RSH"] {
            if let Some(shell) = environment(name).filter(|value| !value.is_empty()) {
                connect.shell = shell_words(name, &shell)?;
                break;
            }
        }
    }
    if let Some(program) = &remote.dsync_path {
        connect.remote_program.clone_from(program);
    }
    if let Some(timeout) = remote.timeout {
        connect.timeout = timeout;
    }
    connect.transport = match remote.transport {
        Carrier::Auto => TransportChoice::Auto,
        Carrier::Quic => TransportChoice::Quic,
        Carrier::Ssh => TransportChoice::Ssh,
    };
    Ok(connect)
}

/// Splits a command as a shell does.
fn shell_words(origin: &'static str, command: &OsStr) -> Result<Vec<OsString>, UsageError> {
    let words = shlex::bytes::split(command.as_bytes()).filter(|words| !words.is_empty());
    let words = words.ok_or_else(|| UsageError::Shell { origin, command: command.to_owned() })?;
    Ok(words.into_iter().map(OsString::from_vec).collect())
}
