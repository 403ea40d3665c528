//! Reading source files: opening by listed name, whole small files, causes of failure.
//!
//! A file is read between two looks at its attributes. A difference means that the content may be a
//! mix of two states: the file is read again (at most [`READ_ATTEMPTS`] times) or given up as
//! changed. One that only grew, as a log does, is none: if a second reading of the part that it had when
//! it was opened finds the same, that part was one state of it between the two.

use std::io;

use dsync_fs::{RuleFileFault, SourceFile};
use dsync_wire::{
    codec::RecordsEncoder,
    message::{Cause, EntryId},
};

use super::catalogue::Listed;
use crate::{content, plan::timestamp, rules};

/// Opens a listed file.
pub(super) fn open(listed: &Listed) -> Result<SourceFile, Cause> {
    listed.open()
}

/// Reads a small file whole into a batch, in one consistent state. Returns `false` for one that goes by
/// itself: with holes that are to be `kept`, or no longer small.
pub(super) fn whole(
    listed: &Listed,
    kept: bool,
    key: (EntryId, u8),
    batch: &mut RecordsEncoder,
) -> Result<bool, Cause> {
    for _ in 0..READ_ATTEMPTS {
        let file = open(listed)?;
        if kept && file.has_holes() {
            return Ok(false);
        }
        let size = usize::try_from(file.len()).unwrap_or(usize::MAX);
        if size > MAX_WHOLE_BYTES {
            return Ok(false);
        }
        let mtime = timestamp(file.stamp().mtime);
        let content = batch.file(key, mtime, size).map_err(|_| Cause::Unrepresentable)?;
        let read = file.read_full_at(0, content);
        match read.and_then(|read| Ok(read == size && is_one_state(&file, content)?)) {
            Ok(true) => return Ok(true),
            Ok(false) => batch.undo(),
            Err(error) => {
                batch.undo();
                return Err(cause(&error));
            }
        }
    }

    Err(Cause::Changed)
}

/// Returns whether what was read of a file is of one state of it: nothing has changed since it was opened,
/// or another reading finds the same, as of one that has grown.
fn is_one_state(file: &SourceFile, content: &[u8]) -> io::Result<bool> {
    let is_unchanged = file.is_unchanged()?;
    if is_unchanged || !file.needs_another_reading()? {
        return Ok(is_unchanged);
    }
    let mut again = vec![0; content.len()];
    Ok(file.read_full_at(0, &mut again)? == content.len() && again == content)
}

/// Returns the cause that a read error stands for.
pub(super) fn cause(error: &io::Error) -> Cause {
    if error.kind() == io::ErrorKind::NotFound {
        return Cause::Vanished;
    }
    if dsync_fs::is_target_changed(error) || content::has_changed(error) {
        return Cause::Changed;
    }
    if dsync_fs::LeadsOut::of(error).is_some() {
        return Cause::LeadsOut;
    }
    if dsync_fs::is_damaged(error) {
        return Cause::FakeSuperDamaged;
    }
    if let Some(fault) = error.get_ref().and_then(|inner| inner.downcast_ref::<RuleFileFault>()) {
        return rules::cause(fault);
    }
    if dsync_fs::is_wrong_type(error) {
        return Cause::TypeChanged;
    }
    error.raw_os_error().map_or(Cause::Unrepresentable, Cause::Os)
}

/// Attempts to read a small file before it is given up as changing.
const READ_ATTEMPTS: usize = 3;
/// A file listed as small that has grown beyond this is not read into memory, but sent in segments.
const MAX_WHOLE_BYTES: usize = 512 << 10;
