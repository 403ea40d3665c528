//! Checks a job before anything starts: what is refused here is the caller's mistake, whatever the
//! disk and the network are like.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, time::Duration};

use dsync_wire::{
    limits::{MAX_OPERAND, MAX_OPERAND_BYTES, MAX_OPERANDS},
    options::{Append, CopyAs, Durability, SyncOptions},
};

use crate::{ConnectOptions, Destination, FilesFrom, Recording, Resources, Source, SyncError};

/// Checks all of a job that needs no look at the disk.
pub(crate) fn job(
    (source, destination): (&Source, &Destination),
    options: &SyncOptions,
    connect: &ConnectOptions,
) -> Result<(), SyncError> {
    sources(source)?;
    self::destination(destination)?;
    connection(connect)?;
    rights(options)?;
    removal(options)?;
    writing(options)?;
    contents(source, options)?;
    options.check().map_err(|fault| SyncError::InvalidOption { option: fault.option, why: fault.to_string() })
}

/// Checks that a run can join the ends; `is_over` is whether the connections are the caller's.
pub(crate) fn ends(
    (source, destination): (&Source, &Destination),
    is_over: bool,
    dry_run: bool,
) -> Result<(), SyncError> {
    if *destination == Destination::Nowhere && !dry_run {
        return invalid("destination", "it is nowhere, where only a dry run can go");
    }

    let is_to_here = matches!(destination, Destination::Local { .. } | Destination::Nowhere);
    let is_joined = match (source, destination) {
        (Source::Remote { .. }, _) => is_to_here && !is_over,
        (Source::Peer { .. }, _) => is_to_here && is_over,
        (_, Destination::Peer { .. }) => is_over,
        (_, Destination::Local { .. } | Destination::Remote { .. } | Destination::Nowhere) => !is_over,
    };
    let is_from_here = !matches!(source, Source::Remote { .. } | Source::Peer { .. });
    if is_joined {
        Ok(())
    } else if is_from_here || is_to_here {
        invalid("destination", "one end, and one only, is a peer where the connection is the caller's")
    } else {
        Err(SyncError::BothRemote)
    }
}

/// Checks the limits on what a run takes of this machine.
pub(crate) fn resources(resources: &Resources) -> Result<(), SyncError> {
    if resources.max_stall < Duration::from_secs(1) {
        return invalid("max_stall", "must be at least 1 s");
    }
    if resources.max_alloc < LEAST_ALLOC {
        return invalid("max_alloc", "must be at least 16 MiB, which a session needs");
    }
    Ok(())
}

/// Checks the longest silence of a client.
pub(crate) fn patience(timeout: Duration) -> Result<(), SyncError> {
    if timeout < Duration::from_secs(3) {
        return invalid("timeout", "must be at least 3 s");
    }
    Ok(())
}

/// Checks a run that is to be recorded in a batch.
pub(crate) fn recording(
    recording: &Recording,
    (source, is_spelled): (&Source, bool),
    options: &SyncOptions,
) -> Result<(), SyncError> {
    if matches!(source, Source::Batch(_)) {
        return invalid("recording", "is of a run that a batch replays");
    }

    let is_pull = matches!(source, Source::Remote { .. } | Source::Peer { .. });
    if is_pull && recording.is_only() {
        return invalid("recording", "needs the source at this end, which has the contents");
    }
    if is_pull && options.writing.inplace {
        return invalid("recording", "of a remote source needs files that are not written in place");
    }

    if options.contents_as_listed {
        return invalid("recording", "is made before it is known that contents are those of the listing");
    }
    if options.copy_as != CopyAs::default() {
        return invalid("recording", "is made with the rights of the process, not with those of copy_as");
    }
    if is_spelled {
        return invalid("recording", "has names in one character set");
    }
    if options.dry_run && !recording.is_only() {
        return invalid("recording", "is of a run that changes nothing");
    }
    Ok(())
}

/// Checks a list of the paths to copy.
pub(crate) fn files_from(
    list: Option<&FilesFrom>,
    (source, destination): (&Source, &Destination),
    options: &SyncOptions,
) -> Result<(), SyncError> {
    let Some(list) = list else { return Ok(()) };
    let (count, is_local) = match source {
        Source::Local { paths } => {
            (paths.len(), matches!(destination, Destination::Local { .. } | Destination::Nowhere))
        }
        Source::Remote { paths, .. } | Source::Peer { paths } => (paths.len(), false),
        Source::Files { .. } | Source::Manifest { .. } | Source::Batch(_) => (0, true),
    };

    match list {
        _ if count != 1 => invalid("files_from", "needs one source, the directory in which the paths begin"),
        FilesFrom::AtPeer { path, .. } if path.is_empty() => invalid("files_from", "its path is empty"),
        FilesFrom::AtPeer { path, .. } if has_zero(path) => invalid("files_from", ZERO),
        FilesFrom::AtPeer { path, .. } if path.len() > MAX_OPERAND => invalid("files_from", LONG_OPERAND),
        FilesFrom::AtPeer { .. } if is_local => invalid("files_from", "is at the remote end of a local run"),
        FilesFrom::List(list) if list.is_relative() != options.relative => {
            invalid("files_from", "was made for another value of 'relative'")
        }
        _ => Ok(()),
    }
}

fn invalid(option: &'static str, why: &str) -> Result<(), SyncError> {
    Err(SyncError::InvalidOption { option, why: why.to_owned() })
}

fn destination(destination: &Destination) -> Result<(), SyncError> {
    let (path, is_sent) = match destination {
        Destination::Local { path } => (path.as_os_str(), false),
        Destination::Remote { path, .. } | Destination::Peer { path } => (path.as_os_str(), true),
        Destination::Nowhere => return Ok(()),
    };
    if path.is_empty() {
        return invalid("destination", "its path is empty");
    }
    if is_sent && path.len() > MAX_OPERAND {
        return invalid("destination", LONG_OPERAND);
    }
    if has_zero(path) {
        return invalid("destination", ZERO);
    }
    Ok(())
}

fn sources(source: &Source) -> Result<(), SyncError> {
    let (paths, bytes, longest) = match source {
        Source::Local { paths } => (paths.len(), 0, 0),
        Source::Files { root, .. } | Source::Manifest { root, .. } => {
            (usize::from(!root.as_os_str().is_empty()), 0, 0)
        }
        Source::Remote { paths, .. } | Source::Peer { paths } => {
            let lengths = || paths.iter().map(|path| path.len());
            (paths.len(), lengths().sum(), lengths().max().unwrap_or(0))
        }
        Source::Batch(_) => return Ok(()),
    };

    if paths == 0 {
        return invalid("sources", "no path was given");
    }
    let is_here = matches!(source, Source::Local { .. } | Source::Files { .. } | Source::Manifest { .. });
    let is_sent = !is_here;
    if is_sent && (paths > MAX_OPERANDS || bytes > MAX_OPERAND_BYTES) {
        let why =
            "are more than 262,144, or 16 MiB, from a remote host: name the directory above, with filters";
        return invalid("sources", why);
    }
    if longest > MAX_OPERAND {
        return invalid("sources", LONG_OPERAND);
    }
    let has_zero = match source {
        Source::Local { paths } => paths.iter().any(|path| has_zero(path.as_os_str())),
        Source::Files { root, .. } | Source::Manifest { root, .. } => has_zero(root.as_os_str()),
        Source::Remote { paths, .. } | Source::Peer { paths } => paths.iter().any(|path| has_zero(path)),
        Source::Batch(_) => false,
    };
    if has_zero { invalid("sources", ZERO) } else { Ok(()) }
}

/// The least that a session over a connection works with, in bytes: room for the buffers of any carrier's
/// lanes and for one listing in progress.
const LEAST_ALLOC: u64 = 16 << 20;

/// Returns whether a path, or a word for a program, has a zero byte, which no system call takes.
fn has_zero(text: &OsStr) -> bool {
    text.as_bytes().contains(&0)
}

/// The fault of a path that no system call takes.
const ZERO: &str = "its path has a zero byte";

/// The fault of an operand that no kernel opens.
const LONG_OPERAND: &str = "its path at the other end has more than 4,095 bytes";

fn connection(connect: &ConnectOptions) -> Result<(), SyncError> {
    let shortest = Duration::from_secs(1);
    if connect.timeout < shortest {
        return invalid("timeout", "must be at least 1 s");
    }
    if connect.connect_timeout < shortest {
        return invalid("connect_timeout", "must be at least 1 s");
    }
    if connect.shell.first().is_none_or(|program| program.is_empty()) {
        return invalid("shell", "names no program");
    }
    if connect.remote_program.trim().is_empty() {
        return invalid("remote_program", "names no program");
    }
    if connect.shell.iter().any(|word| has_zero(word)) {
        return invalid("shell", "has a zero byte");
    }
    if connect.remote_program.contains('\0') {
        return invalid("remote_program", "has a zero byte");
    }
    Ok(())
}

fn rights(options: &SyncOptions) -> Result<(), SyncError> {
    if options.no_super && options.fake_super.destination {
        return invalid("no_super", "leaves out what fake_super keeps at the destination");
    }
    Ok(())
}

fn removal(options: &SyncOptions) -> Result<(), SyncError> {
    if options.remove_source_files && options.durability == Durability::None {
        return invalid("remove_source_files", "needs the copies to be on the disk");
    }
    if options.remove_source_files && (options.delete || options.delete_missing_args) {
        return invalid("remove_source_files", "the next run would delete what was moved");
    }
    if options.names_hidden && (!options.delete || options.delete_excluded) {
        return invalid("names_hidden", "needs delete, without delete_excluded");
    }
    if options.remove_sent_only && !options.remove_source_files {
        return invalid("remove_sent_only", "needs remove_source_files");
    }

    if options.event_removals && !options.remove_source_files {
        return invalid("event_removals", "needs remove_source_files");
    }
    let has_content = options.event_done || options.event_tree || options.checksum && options.event_ends;
    if options.event_contents && !has_content {
        return invalid("event_contents", "needs event_done, event_tree, or checksum and event_ends");
    }
    if options.event_done && options.writing.delay_updates {
        return invalid("event_done", "no file has its name before the end with writing.delay_updates");
    }
    if options.remove_source_files && options.copy_devices {
        return invalid("remove_source_files", "removes no devices");
    }
    Ok(())
}

/// Checks what is demanded of the contents of files.
fn contents(source: &Source, options: &SyncOptions) -> Result<(), SyncError> {
    if options.contents_as_listed && !options.checksum {
        return invalid("contents_as_listed", "needs checksum");
    }
    if options.contents_from_disk && !options.checksum {
        return invalid("contents_from_disk", "needs checksum");
    }
    if options.contents_as_listed && options.writing.inplace {
        return invalid(
            "writing.inplace",
            "leaves a file with another content where that is noticed too late",
        );
    }
    let Source::Manifest { manifest, .. } = source else { return Ok(()) };
    if options.delete || options.delete_missing_args {
        return invalid("delete", "needs a listing of the source, and a manifest says what is copied");
    }
    match manifest.totals().without_content {
        0 => Ok(()),
        some => invalid("sources", &format!("the manifest has no content of {some} files: record it anew")),
    }
}

fn writing(options: &SyncOptions) -> Result<(), SyncError> {
    let writing = &options.writing;
    if writing.inplace && writing.partial_dir.is_some() {
        return invalid("writing.partial_dir", "has no use where files are written in place");
    }
    if writing.inplace && writing.delay_updates {
        return invalid("writing.delay_updates", "does not work where files are written in place");
    }
    if writing.devices && !writing.inplace {
        return invalid("writing.devices", "needs files that are written in place");
    }
    if writing.devices && (writing.append != Append::No || writing.backup.is_some()) {
        return invalid("writing.devices", "does not work with appending or backups");
    }
    if writing.append != Append::No && (!writing.inplace || options.whole_file) {
        return invalid("writing.append", "needs files that are written in place, and not whole");
    }
    Ok(())
}
