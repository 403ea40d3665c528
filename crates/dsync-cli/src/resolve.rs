//! Resolves the command line into a run: parses operands, turns values into the engine's options,
//! and reads pattern files and the environment.

mod batch;
mod combinations;
mod files_from;
mod info;
mod reporting;
mod rights;
mod spelling;
mod users;
mod watched;
mod writing;

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use dsync_engine::{
    AddressFamily, Compression, ConnectOptions, DeleteTiming, Destination, DetectRenamed, EventLevel,
    FilesFrom, IdRule, Job, Links, ManifestFile, MungeLinks, Operand, OperatorFiles, RemoteHost, Resources,
    Source, SyncOptions, TransportChoice, WritePolicy, notation::Owner, verify::RemoteTree,
};

pub(crate) use self::{
    info::HELP as INFO_HELP,
    reporting::{Reporting, listed, unbegun},
    watched::with_list,
};
use self::{
    reporting::{check_hashes, reporting},
    rights::{FAKE, REAL, WITHOUT, set_rights},
};
use crate::{
    address::{self, ShareAddress},
    console::{Voice, say},
    flags::{
        Attributes, Carrier, Choice, DEFAULT_LEVEL, Deletion, EMPTY, Flags, IdRules, accepted::Accepted,
    },
    here::is_here,
    manifest_names::times_beside,
    rules::{CvsNames, Rules},
    usage::{Role, UsageError},
};

/// A run that is ready to start, and the settings of its report.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) job: Job,
    pub(crate) rules: Arc<Rules>,
    pub(crate) report: Reporting,
    /// Operands that name another host, and a file here as well.
    pub(crate) doubtful: Vec<OsString>,
    /// The share that the run goes to, if it goes to one.
    pub(crate) share: Option<ShareAddress>,
    /// Whether the run is made again whenever its source has changed.
    pub(crate) is_watched: bool,
}

/// A question for the variables of the environment.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Makes a run of the command line. `environment` returns the variables that matter.
///
/// # Errors
/// [`UsageError`].
pub(crate) fn order(
    flags: &Flags,
    environment: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Order, UsageError> {
    combinations::check(flags)?;
    check_words(&flags.operands)?;
    let (operands, share) = address::rewrite(&flags.operands)?;
    let resources = resources(flags, environment);
    let (source, destination) = match flags.batch.read_batch {
        Some(_) => batch_ends(flags, &operands, &resources)?,
        None => ends(&operands, flags.output.list_only)?,
    };
    if matches!(source, Source::Remote { .. }) {
        batch::check_pull(flags)?;
    }
    if matches!(destination, Destination::Remote { .. }) {
        writing::check_homes(&flags.writing)?;
    }
    let is_watched = watched::is_watched(flags, &source, &destination)?;
    let files = operator_files(flags, &destination);
    let spelling = spelling::spelling(flags, environment, (&source, &destination))?;
    let rules = Arc::new(rules(flags, &files, &source)?);
    let mut report = reporting(flags, &files, &source, &destination)?;
    report.voice.rules = Arc::clone(&rules);

    let mut options = sync_options(flags, environment, &rules, &report)?;
    check_remote_options(flags)?;
    set_rights(&mut options, flags, &source, &destination);
    options.copy_as = users::copy_as(flags, &source, &destination)?;
    options.insecure_links = insecure_links(flags, &source, &destination);
    options.munge_links = munge_links(flags, &source);
    options.wildcards = matches!(&source, Source::Remote { paths, .. } if
        paths.iter().any(|path| dsync_engine::has_wildcards(path.as_bytes())));
    if destination == Destination::Nowhere {
        options = list_only(options);
    }
    let mut connect = connect_options(flags, environment)?;
    if let Some(share) = &share {
        check_for_share(flags, share)?;
        address::lead(&mut connect, share, flags.remote.contimeout);
    }
    let files_from = files_from::files_from(flags, (&source, &destination), &files, &resources)?;
    options.other_homes = names_home(&source, &destination, files_from.as_ref());
    let mut job = Job::new(source, destination).options(options).connect(connect);
    if let Some(files_from) = files_from {
        job = job.files_from(files_from);
    }
    if let Some(spelling) = spelling {
        job = job.spelling(spelling);
    }
    if let Some(recording) = batch::recording(flags, &files)? {
        job = job.record(recording);
    }
    let job = with_own_files(job, flags);
    let doubtful = flags.operands.iter().filter(|word| is_remote_and_here(word)).cloned().collect();
    Ok(Order { job: job.resources(resources), rules, report, doubtful, share, is_watched })
}

/// Adds the files that the run writes itself.
fn with_own_files(mut job: Job, flags: &Flags) -> Job {
    if let Some(file) = &flags.output.write_manifest {
        let links = if flags.writing.insecure_links { Links::Any } else { Links::Trusted };
        let manifest = ManifestFile::new(file).links(links);
        job = job.write_manifest(manifest).own_file(times_beside(Path::new(file)));
    }
    match &flags.output.log_file {
        Some(log) => job.own_file(log),
        None => job,
    }
}

/// Collects the filter rules of a run.
fn rules(flags: &Flags, files: &OperatorFiles, source: &Source) -> Result<Rules, UsageError> {
    let protect = flags.deletion.delete_excluded && matches!(source, Source::Remote { .. });
    let mut rules = Rules::collect(&flags.selection, files, &CvsNames { protect, ..CvsNames::of_user() })?;
    rules.unmatched().iter().for_each(|line| say(line));
    if flags.attributes.old_dirs {
        rules.exclude(OLD_DIRS);
    }
    Ok(rules)
}

/// Returns the only operand as a directory of another end; `None` if it is one of this machine.
///
/// # Errors
/// [`UsageError`].
pub(crate) fn remote_tree(
    flags: &Flags,
    environment: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Option<RemoteTree<'static>>, UsageError> {
    let (operands, share) = address::rewrite(&flags.operands)?;
    let Source::Remote { host, mut paths } = read_sources(&operands)? else { return Ok(None) };

    let mut connect = connect_options(flags, environment)?;
    if let Some(share) = &share {
        check_for_share(flags, share)?;
        address::lead(&mut connect, share, flags.remote.contimeout);
    }
    let tree = paths.pop().map(|path| RemoteTree::on(host, path).connect(connect));
    Ok(tree.map(|tree| tree.resources(resources(flags, environment))))
}

/// Returns the ends of a run whose source is a batch.
fn batch_ends(
    flags: &Flags,
    operands: &[OsString],
    resources: &Resources,
) -> Result<(Source, Destination), UsageError> {
    let destination = read_destination(operands.first().ok_or(UsageError::NoOperands)?)?;
    let files = operator_files(flags, &destination);
    let source = batch::source(flags, &files, resources)?.ok_or(UsageError::NoOperands)?;
    Ok((source, destination))
}

/// Refuses a single word that a person types to ask for help, unless there is a file of its name.
fn check_words(operands: &[OsString]) -> Result<(), UsageError> {
    let [word] = operands else { return Ok(()) };
    match word.to_str() {
        Some(word @ ("help" | "version")) if !is_here(OsStr::new(word)) => {
            Err(UsageError::Unknown { option: word.to_owned(), suggestion: Some(format!("--{word}")) })
        }
        _ => Ok(()),
    }
}

/// Returns the rules for opening the files that the command line names.
fn operator_files(flags: &Flags, destination: &Destination) -> OperatorFiles {
    let files = OperatorFiles::new(if flags.writing.insecure_links { Links::Any } else { Links::Trusted });
    match destination {
        Destination::Local { path } => files.with_destination(path),
        _ => files,
    }
}

/// Returns whether a path of the remote end begins at a home.
fn names_home(source: &Source, destination: &Destination, list: Option<&FilesFrom>) -> bool {
    let begins = |path: &OsString| path.as_bytes().starts_with(b"~");
    let sources = match source {
        Source::Remote { paths, .. } => paths.as_slice(),
        _ => &[],
    };
    sources.iter().any(begins)
        || matches!(destination, Destination::Remote { path, .. } if begins(path))
        || matches!(list, Some(FilesFrom::AtPeer { path, .. }) if begins(path))
}

/// Refuses options that say how ssh is used, and those of connections to a daemon.
///
/// # Errors
/// [`UsageError::NotForShare`].
pub(crate) fn check_for_share(flags: &Flags, share: &ShareAddress) -> Result<(), UsageError> {
    let remote = &flags.remote;
    let given = [
        ("--rsh", remote.rsh.is_some()),
        ("--dsync-path", remote.dsync_path.is_some()),
        ("--transport=ssh", remote.transport == Carrier::Ssh),
    ];
    if let Some((option, _)) = given.into_iter().find(|(_, given)| *given) {
        return Err(UsageError::NotForShare { option, why: "which is reached without ssh".to_owned() });
    }

    if let Some(range) = remote.port {
        let address = share.at_port(range.0.ports().next().unwrap_or(address::PORT));
        let why = format!("whose port is a part of its address: write {address}");
        return Err(UsageError::NotForShare { option: "--port", why });
    }
    if flags.accepted.iter().any(|option| option.long == "address") {
        let why = "as this system chooses the address from which it is reached".to_owned();
        return Err(UsageError::NotForShare { option: "--address", why });
    }
    Ok(())
}

/// The rule of `--old-dirs`: nothing in the directories of the top level.
const OLD_DIRS: &[u8] = b"/*/*";

/// Returns whether an operand with a colon is the name of a file here.
fn is_remote_and_here(word: &OsString) -> bool {
    matches!(Operand::parse(word), Ok(Operand::Remote { .. })) && is_here(word)
}

/// Returns the options of a run that only looks at the source: all types, as with rsync, whether
/// they would be copied or not, and nothing that concerns a destination.
fn list_only(mut options: SyncOptions) -> SyncOptions {
    let quiet = options.events == EventLevel::Problems;

    options.dirs |= !options.recursive;
    // Whoever may not make a device may look at it.
    options.fake_super.destination = true;

    options
        .links(true)
        .devices(true)
        .specials(true)
        .no_super(false)
        .dry_run(true)
        .events(if quiet { EventLevel::Problems } else { EventLevel::Changes })
        .event_ends(true)
        // None of the rest makes sense without a destination.
        .owner(false)
        .group(false)
        .acls(false)
        .xattrs(false)
        .hard_links(false)
        .checksum(false)
        .event_contents(false)
        .update(false)
        .existing(false)
        .ignore_existing(false)
        .keep_dirlinks(false)
        .safe_links(false)
        .delete(false)
        .delete_missing_args(false)
        .remove_source_files(false)
        .remove_sent_only(false)
        .mode_rules(Vec::new())
        .id_rules(Vec::new())
        .writing(WritePolicy::default())
}

/// Parses the operands: the last is the destination, unless it is the only one or entries are only
/// listed.
fn ends(operands: &[OsString], list_only: bool) -> Result<(Source, Destination), UsageError> {
    let (last, sources) = operands.split_last().ok_or(UsageError::NoOperands)?;
    if sources.is_empty() {
        return Ok((read_sources(operands)?, Destination::Nowhere));
    }
    let source = read_sources(sources)?;
    let destination = read_destination(last)?;
    if let (Source::Remote { .. }, Destination::Remote { .. }) = (&source, &destination) {
        return Err(UsageError::BothRemote);
    }
    Ok((source, if list_only { Destination::Nowhere } else { destination }))
}

fn read_destination(word: &OsString) -> Result<Destination, UsageError> {
    let destination = Operand::parse(word).map_err(|error| UsageError::Operand {
        role: Role::Destination,
        operand: word.clone(),
        error,
    })?;
    Ok(match destination {
        Operand::Local(path) => Destination::Local { path },
        Operand::Remote { host, path } => Destination::Remote { host, path: without_escapes(path) },
    })
}

fn read_sources(words: &[OsString]) -> Result<Source, UsageError> {
    let mut local: Vec<PathBuf> = Vec::new();
    let mut remote: Option<(RemoteHost, Vec<OsString>)> = None;

    for word in words {
        let operand = match &remote {
            Some((host, _)) => Operand::parse_after(host, word),
            None => Operand::parse(word),
        };
        let operand = operand.map_err(|error| UsageError::Operand {
            role: Role::Source,
            operand: word.clone(),
            error,
        })?;
        match (operand, &mut remote) {
            (Operand::Local(path), None) => local.push(path),
            (Operand::Remote { host, path }, None) if local.is_empty() => remote = Some((host, vec![path])),
            (Operand::Remote { host, path }, Some((first, paths))) if host == *first => paths.push(path),
            (operand, _) => {
                let is_here = matches!(operand, Operand::Local(_));
                return Err(UsageError::SeveralHosts { operand: word.clone(), is_here });
            }
        }
    }

    Ok(match remote {
        Some((host, paths)) => Source::Remote { host, paths },
        None => Source::Local { paths: local },
    })
}

fn sync_options(
    flags: &Flags,
    environment: &dyn Fn(&str) -> Option<OsString>,
    rules: &Rules,
    report: &Reporting,
) -> Result<SyncOptions, UsageError> {
    let mut options = SyncOptions::default()
        .durability(report.durability)
        .compression(compression(flags))
        .filters(rules.list().to_vec())
        .rulings(report.voice.shows_rulings)
        .events(event_level(report))
        .event_ends(event_level(report) > EventLevel::Problems);
    preserve(&mut options, flags);
    select(&mut options, flags);
    delete(&mut options, &flags.deletion);
    writing::write(&mut options, &flags.writing, environment)?;
    tell_more(&mut options, report);
    options.event_contents = check_hashes(flags, report)? && options.event_ends;
    explain(&mut options, flags);

    Ok(options)
}

/// Asks for backups and removals, where a list or the log has them.
fn tell_more(options: &mut SyncOptions, report: &Reporting) {
    let Voice { quiet, shows_backups, shows_removals, .. } = report.voice;
    let heard = !quiet || report.log.is_some();
    options.event_backups = heard && shows_backups && options.writing.backup.is_some();
    options.event_removals = heard && shows_removals && options.remove_source_files;
}

/// Makes the run one that explains paths, if it is one.
fn explain(options: &mut SyncOptions, flags: &Flags) {
    if !flags.explain.is_empty() {
        options.explain = flags.explain.iter().map(|path| path.as_slice().into()).collect();
        (options.events, options.event_ends, options.rulings) = (EventLevel::All, true, false);
    }
}

/// Options of the remote end.
const INSECURE: &str = "--insecure-links";
const MUNGE: &str = "--munge-links";

/// Refuses options that `-M` cannot pass to the remote end.
fn check_remote_options(flags: &Flags) -> Result<(), UsageError> {
    match flags.remote.remote_option.iter().find(|word| !is_remote_option(word.as_str())) {
        None => Ok(()),
        Some(other) => Err(UsageError::UnsupportedValue {
            option: "--remote-option".to_owned(),
            value: other.clone(),
            known: format!("{FAKE}, {WITHOUT}, {INSECURE}, {MUNGE} or --copy-as=USER"),
        }),
    }
}

/// Returns whether `-M` can pass an option to the remote end.
pub(crate) fn is_remote_option(word: &str) -> bool {
    let known = [FAKE, REAL, WITHOUT, INSECURE, MUNGE];
    known.contains(&word) || Accepted::find(word).is_some() || is_log(word) || users::is_copy_as(word)
}

/// Returns whether a word asks the remote end for a log of its own: the local end's `--log-file`
/// has all of it.
fn is_log(word: &str) -> bool {
    ["--log-file=", "--log-file-format="].iter().any(|option| word.starts_with(option))
}

/// Returns whether `-M` passes an option to the remote end.
fn remote_has(flags: &Flags, wanted: &str) -> bool {
    flags.remote.remote_option.iter().any(|word| word == wanted)
}

/// Returns whether the destination follows links of others. As with rsync the option applies to the
/// local end, and that of `-M` to the remote end.
fn insecure_links(flags: &Flags, source: &Source, destination: &Destination) -> bool {
    let (here, there) = (flags.writing.insecure_links, remote_has(flags, INSECURE));
    match (source, destination) {
        (Source::Remote { .. }, _) => here,
        (_, Destination::Remote { .. }) => there,
        _ => here || there,
    }
}

/// Returns the ends that `--munge-links` applies to: the local one, which of a local run is the
/// source, and with `-M` the other one, as with rsync.
fn munge_links(flags: &Flags, source: &Source) -> MungeLinks {
    let (here, there) = (flags.links.munge_links, remote_has(flags, MUNGE));
    match source {
        Source::Remote { .. } => MungeLinks::default().source(there).destination(here),
        // Recorded in a pull, where the local end was the destination.
        Source::Batch(batch) if !batch.has_munged_links() => MungeLinks::default().destination(here || there),
        _ => MungeLinks::default().source(here).destination(there),
    }
}

/// Sets the attributes to preserve.
fn preserve(options: &mut SyncOptions, Flags { attributes, writing, .. }: &Flags) {
    options.recursive = attributes.recursive;
    options.dirs = attributes.dirs;
    options.links = attributes.links;
    options.perms = attributes.perms;
    options.times = attributes.times;
    // As with rsync: a backup beside its original changes its directory's time in any case.
    options.omit_dir_times = attributes.omit_dir_times || writing.backup && writing.backup_dir.is_none();
    options.omit_link_times = attributes.omit_link_times;
    options.executability = attributes.executability;
    options.atimes = attributes.atimes > 0;
    options.open_noatime = attributes.open_noatime || attributes.atimes > 1;
    options.owner = attributes.owner;
    options.group = attributes.group;
    options.acls = attributes.acls;
    options.xattrs = attributes.xattrs;
    options.hard_links = attributes.hard_links;
    options.numeric_ids = attributes.numeric_ids;
    options.devices = attributes.devices && !attributes.drop_specials;
    options.copy_devices = attributes.copy_devices;
    options.specials = attributes.specials && !attributes.drop_specials;
    options.mode_rules = attributes.chmod.iter().flat_map(|rules| rules.0.iter().copied()).collect();
    options.id_rules = id_rules(attributes);
}

/// Sets the entries to copy.
fn select(options: &mut SyncOptions, Flags { comparison, selection, links, .. }: &Flags) {
    options.copy_links = links.copy_links;
    options.copy_dirlinks = links.copy_dirlinks;
    options.copy_unsafe_links = links.copy_unsafe_links;
    options.checksum = comparison.checksum;
    options.state = comparison.state;
    options.ignore_times = comparison.ignore_times;
    options.size_only = comparison.size_only;
    options.update = comparison.update;
    options.existing = comparison.existing;
    options.ignore_existing = comparison.ignore_existing;
    options.whole_file = comparison.whole_file;
    options.fuzzy = comparison.fuzzy > 0;
    options.fuzzy_alternates = comparison.fuzzy > 1;
    options.detect_renamed = match (comparison.detect_renamed, comparison.no_detect_renamed) {
        (true, _) => DetectRenamed::Always,
        (_, true) => DetectRenamed::Never,
        _ => DetectRenamed::Auto,
    };

    options.modify_window = comparison.modify_window.and_then(|window| window.0);
    options.safe_links = selection.safe_links;
    options.relative = selection.relative;
    options.no_implied_dirs = selection.relative && selection.no_implied_dirs;
    options.prune_empty_dirs = selection.prune_empty_dirs;
    options.ignore_missing_args = selection.ignore_missing_args;
    options.min_size = selection.min_size.unwrap_or(0);
    options.max_size = selection.max_size;
    options.one_file_system = selection.one_file_system > 0;
}

/// Returns a remote destination without the backslashes before wildcards, as rsync takes it: whoever escapes
/// them for a shell means the name. In a source the other end reads them.
fn without_escapes(path: OsString) -> OsString {
    let bytes = path.into_vec();
    let is_wild = |at: usize| bytes.get(at).is_some_and(|byte| b"*?[".contains(byte));
    let kept = bytes.iter().enumerate().filter(|&(at, &byte)| byte != b'\\' || !is_wild(at + 1));
    OsString::from_vec(kept.map(|(_, &byte)| byte).collect())
}

/// Sets the entries to remove, and when.
fn delete(options: &mut SyncOptions, deletion: &Deletion) {
    options.delete = deletion.delete;
    options.delete_excluded = deletion.delete_excluded;
    options.max_delete = deletion.max_delete;
    options.delete_all_or_nothing = deletion.delete_all_or_nothing;
    options.delete_timing = match deletion {
        Deletion { delete_before: true, .. } => DeleteTiming::Before,
        Deletion { delete_during: true, .. } => DeleteTiming::During,
        Deletion { delete_after: true, .. } => DeleteTiming::AfterArrival,
        _ => DeleteTiming::After,
    };
    options.delete_missing_args = deletion.delete_missing_args;
    options.remove_source_files = deletion.moving().is_some();
    options.remove_sent_only = deletion.remove_sent_files;
    options.ignore_errors = deletion.ignore_errors;
    options.force = deletion.force;
    options.allow_empty_source = deletion.allow_empty_source;
    options.force_root = deletion.force_root;
}

fn id_rules(attributes: &Attributes) -> Vec<IdRule> {
    let users = attributes.usermap.iter().flat_map(IdRules::of_users);
    let groups = attributes.groupmap.iter().flat_map(IdRules::of_groups);
    users.chain(groups).chain(attributes.chown.iter().flat_map(Owner::rules)).collect()
}

fn event_level(report: &Reporting) -> EventLevel {
    let Voice { listing, quiet, .. } = &report.voice;
    let shown = listing.verbose.max(listing.itemize).max(u8::from(listing.lists()));
    let logged = report.log.as_ref().map_or(0, |(_, listing, _)| listing.verbose.max(1));
    let deletions = u8::from(listing.deletions == Some(true));
    let shown = if report.voice.shows_left_alone { 2 } else { shown };
    let streamed = u8::from(report.voice.json.is_some());
    let level = if *quiet { logged } else { shown.max(logged).max(deletions).max(streamed) };
    match level {
        // The log says why of every entry, whatever the list has.
        _ if tracing::enabled!(target: "dsync::plan", tracing::Level::DEBUG) => EventLevel::All,
        0 => EventLevel::Problems,
        1 => EventLevel::Changes,
        _ => EventLevel::All,
    }
}

fn compression(flags: &Flags) -> Compression {
    let compressing = &flags.compressing;
    if !compressing.compress {
        return if compressing.refused { Compression::Off } else { Compression::Auto };
    }

    let level = compressing.compress_level;
    match (compressing.compress_choice, level) {
        (Some(Choice::Lz4), _) => Compression::Lz4,
        (Some(Choice::None), _) => Compression::Off,
        (Some(Choice::Auto), None) => Compression::Auto,
        (None | Some(Choice::Zstd | Choice::Zlib | Choice::Auto), level) => {
            Compression::Zstd(level.unwrap_or(DEFAULT_LEVEL))
        }
    }
}

/// Returns the limits on this machine's resources for a run or a remote end.
pub(crate) fn resources(flags: &Flags, environment: &dyn Fn(&str) -> Option<OsString>) -> Resources {
    let mut resources = Resources::default();
    resources.max_alloc = flags.remote.max_alloc.unwrap_or(resources.max_alloc);
    resources.max_stall = flags.remote.max_stall.unwrap_or(resources.max_stall);
    resources.spool_dir = environment("TMPDIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    resources.home = environment("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    resources
}

/// Returns the way to a remote host, with the environment's part in it.
pub(crate) fn connect_options(
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

    connect.retries = remote.retries.unwrap_or(connect.retries);
    if let Some(limit) = remote.contimeout {
        connect.connect_timeout = limit;
    }

    connect.ports = remote.port.map(|range| range.0);
    connect.bytes_per_second = remote.bwlimit.and_then(|rate| rate.0);
    connect.family = family(flags);
    connect.transport = match remote.transport {
        Carrier::Auto => TransportChoice::Auto,
        Carrier::Quic => TransportChoice::Quic,
        Carrier::Tls => TransportChoice::Tls,
        Carrier::Ssh => TransportChoice::Ssh,
    };
    Ok(connect)
}

/// Returns the addresses that may be used.
pub(crate) fn family(flags: &Flags) -> AddressFamily {
    match (flags.remote.ipv4, flags.remote.ipv6) {
        (true, _) => AddressFamily::V4,
        (_, true) => AddressFamily::V6,
        _ => AddressFamily::Any,
    }
}

/// Splits a command into words as a shell does.
fn shell_words(origin: &'static str, command: &OsStr) -> Result<Vec<OsString>, UsageError> {
    if command.as_bytes().trim_ascii().is_empty() {
        return Err(UsageError::ValueInvalid { option: origin.to_owned(), reason: EMPTY.to_owned() });
    }
    let words = shlex::bytes::split(command.as_bytes()).filter(|words| !words.is_empty());
    let words = words.ok_or_else(|| UsageError::Shell { origin, command: command.to_owned() })?;
    Ok(words.into_iter().map(OsString::from_vec).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dsync_engine::{DeleteLimit, Durability};

    use super::*;
    use crate::{bar::Shown, flags};

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    /// Returns the ends of a run in a direction: `push`, `pull` or a local one.
    pub(super) fn ends_of(direction: &str) -> (Source, Destination) {
        let host = || RemoteHost::new(None, "h").unwrap();
        let source = match direction {
            "pull" => Source::Remote { host: host(), paths: Vec::new() },
            _ => Source::Local { paths: Vec::new() },
        };
        let destination = match direction {
            "push" => Destination::Remote { host: host(), path: "b".into() },
            _ => Destination::Local { path: "b".into() },
        };
        (source, destination)
    }

    pub(super) fn parsed(line: &str) -> Flags {
        flags::parse(words(line)).unwrap()
    }

    pub(super) fn ordered(line: &str) -> Result<Order, UsageError> {
        order(&parsed(line), &|_| None)
    }

    pub(super) fn refusal(line: &str) -> (u8, String) {
        let error = ordered(line).unwrap_err();
        (error.exit_code(), error.to_string())
    }

    /// Returns the output that the flags of a local run ask for.
    pub(super) fn local_report(flags: &Flags) -> Reporting {
        let (source, destination) = ends(&words("a b"), false).unwrap();
        reporting(flags, &OperatorFiles::default(), &source, &destination).unwrap()
    }

    pub(super) fn options(line: &str) -> SyncOptions {
        let flags = parsed(line);
        let rules =
            Rules::collect(&flags.selection, &OperatorFiles::default(), &CvsNames::default()).unwrap();
        sync_options(&flags, &|_| None, &rules, &local_report(&flags)).unwrap()
    }

    fn host(user: Option<&str>, host: &str) -> RemoteHost {
        RemoteHost::new(user, host).unwrap()
    }

    #[test]
    fn operands_become_ends() {
        let push = ends(&words("a b/ u@h:dst/"), false).unwrap();
        assert_eq!(push.0, Source::Local { paths: vec!["a".into(), "b/".into()] });
        assert_eq!(push.1, Destination::Remote { host: host(Some("u"), "h"), path: "dst/".into() });
        for (typed, path) in
            [(r"n\*\?\[a]", "n*?[a]"), (r"n\\x\ b", r"n\\x\ b"), ("n*", "n*"), (r"n\", r"n\")]
        {
            let words = ["a".into(), format!("h:{typed}").into()];
            let path = Destination::Remote { host: host(None, "h"), path: path.into() };
            assert_eq!(ends(&words, false).unwrap().1, path, "{typed}");
        }
        let pull = ends(&words("h:a :b h:c ."), false).unwrap();
        let paths = ["a", "b", "c"].map(OsString::from).to_vec();
        assert_eq!(pull.0, Source::Remote { host: host(None, "h"), paths });
        assert_eq!(pull.1, Destination::Local { path: ".".into() });
    }

    #[test]
    fn operands_that_make_no_run_are_refused_in_the_words_of_the_table() {
        assert_eq!(refusal(""), (1, "usage: dsync [OPTIONS] SRC... DST (see --help)".into()));
        let both = "both source and destination are remote; one must be local";
        assert_eq!(refusal("h:a h:b"), (1, both.into()));
        for (line, cure) in [
            (
                "h:a g:b c",
                "'g:b' is not where the others are; a file here whose name has a colon is written './g:b'",
            ),
            (
                "a g:b c",
                "'g:b' is not where the others are; a file here whose name has a colon is written './g:b'",
            ),
            ("g:b a c", "'a' is not where the others are; a path on the host before it is written ':a'"),
        ] {
            assert_eq!(refusal(line), (1, format!("all sources must be on the same host, and {cure}")));
        }
        let dash = "host may not start with '-', in '-oProxyCommand=x:p' (for a local file write './-oProxyCommand=x:p')";
        assert_eq!(refusal("-- a -oProxyCommand=x:p"), (1, dash.into()));
        assert_eq!(refusal("a :dst"), (1, "empty host in ':dst' (for a local file write './:dst')".into()));
        assert_eq!(refusal("a u@h::m").0, 4);
    }

    #[test]
    fn empty_operand_names_its_role() {
        let empty = |operands: [&str; 2]| ends(&operands.map(OsString::from), false).unwrap_err().to_string();
        assert_eq!(empty(["", "dst"]), "source path is empty (unset variable in a script?)");
        assert_eq!(empty(["src", ""]), "destination path is empty (unset variable in a script?)");
    }

    #[test]
    fn archive_sets_exactly_its_options() {
        assert_eq!(options("-a"), SyncOptions::archive());
        assert_eq!(options(""), SyncOptions::default());
        assert!(!options("-a --no-g").group);
    }

    #[test]
    fn every_option_reaches_the_engine() {
        let all = options(
            "-rc --numeric-ids -O -I --size-only -u --existing --ignore-existing -W --delete-excluded --max-delete=5 \
             --del -K --safe-links --ignore-missing-args --min-size=1K --max-size=1.5m -@2 --ignore-errors --force --allow-empty-source --force-root \
             --mkpath -n -x --durability=file --zl=9 --exclude=a --include=b -ii -AX --chmod=D755,F644",
        );
        assert_eq!(all.mode_rules.len(), 2);
        assert!(all.acls && all.perms && all.xattrs);
        assert!(all.checksum && all.numeric_ids && all.omit_dir_times && all.ignore_times && all.size_only);
        assert!(all.update && all.existing && all.ignore_existing && all.whole_file && all.delete);
        assert!(all.delete_excluded && all.mkpath && all.dry_run && all.one_file_system);
        assert_eq!(all.max_delete, Some(DeleteLimit::Entries(5)));
        assert!(all.ignore_errors && all.force && all.allow_empty_source && all.force_root);
        assert_eq!(all.delete_timing, DeleteTiming::During);
        assert_eq!(options("-r --delete-before").delete_timing, DeleteTiming::Before);
        assert!(all.keep_dirlinks && all.safe_links && all.ignore_missing_args);
        assert_eq!((all.min_size, all.max_size, all.modify_window), (1024, Some(1_572_864), Some(2)));
        assert_eq!(all.durability, Durability::File);
        assert_eq!(all.compression, Compression::Zstd(9));
        assert_eq!(all.filters.len(), 2);
        assert_eq!(all.events, EventLevel::All);
    }

    #[test]
    fn compression_is_automatic_until_something_is_said() {
        let of = |line: &str| compression(&parsed(line));
        assert_eq!(of(""), Compression::Auto);
        assert_eq!(of("-z"), Compression::Zstd(3));
        assert_eq!(of("-z --no-z"), Compression::Off);
        assert_eq!(of("--zc=lz4"), Compression::Lz4);
        assert_eq!(of("--zc=none"), Compression::Off);
        assert_eq!(of("--zc=auto"), Compression::Auto);
        assert_eq!(of("--zc=zstd --zl=19"), Compression::Zstd(19));
        for (line, level) in [("0", 3), ("22", 19), ("-5", 1), ("9 --zc=zlib", 9), ("9 --zc=zlibx", 9)] {
            assert_eq!(of(&format!("--zl={line}")), Compression::Zstd(level), "{line}");
        }
        assert_eq!(of("--zc=zlibx"), Compression::Zstd(3));
        assert_eq!(of("--zc=lz4 --zl=1"), Compression::Lz4);
        assert_eq!(of("--zl=1 --zc=none"), Compression::Off);
    }

    #[test]
    fn shell_is_split_into_words_and_taken_from_the_environment() {
        let nothing = |_: &str| None;
        let shell = |flags: &Flags, environment: &dyn Fn(&str) -> Option<OsString>| {
            connect_options(flags, environment).map(|connect| connect.shell)
        };
        let typed = flags::parse(["-e", "ssh -p 22 -o 'A B'"].map(OsString::from)).unwrap();
        assert_eq!(shell(&typed, &nothing).unwrap(), ["ssh", "-p", "22", "-o", "A B"]);
        assert_eq!(shell(&parsed(""), &nothing).unwrap(), ["ssh"]);
        let from_rsync = |name: &str| (name == "RSYNC_RSH").then(|| OsString::from("ssh -4"));
        assert_eq!(shell(&parsed(""), &from_rsync).unwrap(), ["ssh", "-4"]);
        assert_eq!(shell(&parsed("--rsh=rsh"), &from_rsync).unwrap(), ["rsh"]);
        let open = flags::parse(["-e", "ssh 'x"].map(OsString::from)).unwrap();
        let error = shell(&open, &nothing).unwrap_err();
        assert_eq!(error.to_string(), "--rsh (-e): not a command, or a quote is not closed: 'ssh 'x'");
        for empty in ["", "  "] {
            let error = shell_words("--rsh (-e)", OsStr::new(empty)).unwrap_err().to_string();
            assert_eq!(error, "--rsh (-e): the value is empty (unset variable in a script?)");
        }
    }

    #[test]
    fn bar_is_shown_on_a_terminal_unless_something_else_speaks() {
        let on = |line: &str, terminal| ordered(&format!("{line} a b")).unwrap().report.bar(terminal);
        for line in ["", "-a --stats", "-vP", "-v --info=progress2", "-v --progress", "--progress=bar"] {
            assert_eq!(on(line, true), Shown::Bar, "{line}");
        }
        for line in ["-v", "-i", "-q", "-qP", "--no-progress", "--progress=none", "-P --progress=none"] {
            assert_eq!(on(line, true), Shown::Nothing, "{line}");
        }
        assert_eq!(on("-P --progress=plain", true), Shown::Lines);
        assert_eq!([true, false].map(|terminal| on("-P --progress=json", terminal)), [Shown::Json; 2]);
        assert_eq!(on("-q --progress=json", false), Shown::Nothing);
        assert_eq!((on("-P", false), on("-a", false)), (Shown::Lines, Shown::Nothing));
    }

    #[test]
    fn quiet_asks_for_problems_only() {
        assert_eq!(options("-qvvii").events, EventLevel::Problems);
        assert_eq!(options("-v").events, EventLevel::Changes);
        assert_eq!(options("-vv").events, EventLevel::All);
        assert_eq!(options("--out-format=%n").events, EventLevel::Changes);
        assert_eq!(options("-q --out-format=%n").events, EventLevel::Problems);
        assert_eq!(options("-q --log-file=x").events, EventLevel::Changes);
        assert_eq!(options("-v --info=name0").events, EventLevel::Changes);
        assert_eq!(options("--info=name2").events, EventLevel::All);
    }
}
