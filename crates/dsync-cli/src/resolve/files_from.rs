//! The list of `--files-from`: read here, or left for the remote end to read.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::BufReader,
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use dsync_engine::{
    Destination, FileListError, FilesFrom, Operand, OperatorFiles, RemoteHost, Resources, Source,
};

use crate::{
    flags::Flags,
    streams::Input,
    usage::{Role, UsageError},
};

/// Reads the list, unless it is on the remote host.
///
/// # Errors
/// [`UsageError`].
pub(super) fn files_from(
    flags: &Flags,
    (source, destination): (&Source, &Destination),
    files: &OperatorFiles,
    resources: &Resources,
) -> Result<Option<FilesFrom>, UsageError> {
    let selection = &flags.selection;
    let Some(file) = &selection.files_from else { return Ok(None) };
    let (count, remote) = match (source, destination) {
        (Source::Remote { host, paths }, _) => (paths.len(), Some(host)),
        (Source::Local { paths }, Destination::Remote { host, .. }) => (paths.len(), Some(host)),
        (Source::Local { paths }, _) => (paths.len(), None),
        _ => (1, None),
    };
    if count != 1 {
        return Err(UsageError::ListNeedsOneSource);
    }

    let nul = selection.from0;
    if let Some(path) = remote_path(file, remote)? {
        if flags.stopping.watch {
            return Err(UsageError::NotWatched {
                with: "a list of --files-from on the remote host",
                why: "no host tells another one what changes; put the list into a file here",
            });
        }
        return Ok(Some(FilesFrom::AtPeer { path, nul }));
    }
    let mut list = resources.file_list(selection.relative);
    let read = if file == "-" {
        list.read(BufReader::new(Input), nul)
    } else {
        let opened = files.open(Path::new(file)).map_err(FileListError::Read);
        let is_file = |text: &File| text.metadata().is_ok_and(|found| found.is_file());
        if flags.stopping.watch && opened.as_ref().is_ok_and(|text| !is_file(text)) {
            return Err(UsageError::NotWatched {
                with: "a list of --files-from that is a pipe",
                why: "a pipe is read once, and each run reads the list; put it into a file",
            });
        }
        opened.and_then(|text| list.read(text, nul))
    };
    let failed = |source| UsageError::ListUnreadable { list: file.clone(), source };
    read.map_err(failed)?;
    Ok(Some(FilesFrom::List(list.finish().map_err(failed)?)))
}

/// Returns the path of a list on the remote host; `None` for one that is here.
fn remote_path(file: &OsStr, remote: Option<&RemoteHost>) -> Result<Option<OsString>, UsageError> {
    if file == "-" {
        return Ok(None);
    }
    let short = file.as_bytes().starts_with(b":");
    let elsewhere = || UsageError::ListElsewhere { list: file.to_owned(), remote: remote.is_some() };
    let parsed = match remote {
        Some(host) => Operand::parse_after(host, file),
        None if short => return Err(elsewhere()),
        None => Operand::parse(file),
    };
    let parsed =
        parsed.map_err(|error| UsageError::Operand { role: Role::List, operand: file.to_owned(), error })?;
    match (parsed, remote) {
        (Operand::Local(_), _) => Ok(None),
        // As rsync: whoever logs in there.
        (Operand::Remote { host, path }, Some(remote)) if host.host == remote.host => Ok(Some(path)),
        _ => Err(elsewhere()),
    }
}
