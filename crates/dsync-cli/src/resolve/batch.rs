//! The batch files of a run: the one that stands for its source, and the one that it is recorded in.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, IsTerminal as _},
    os::fd::AsFd as _,
    path::Path,
};

use dsync_engine::{Batch, BatchError, BatchFault, OperatorFiles, Recording, Resources, Source};

use crate::{advice, flags::Flags, usage::UsageError};

/// Returns the batch that is the source, if one is.
///
/// # Errors
/// [`UsageError`], also for a batch that is damaged.
pub(super) fn source(
    flags: &Flags,
    files: &OperatorFiles,
    resources: &Resources,
) -> Result<Option<Source>, UsageError> {
    let Some(file) = &flags.batch.read_batch else { return Ok(None) };
    match flags.operands.len() {
        0 => return Err(UsageError::NoOperands),
        1 => {}
        _ => {
            let text = "--read-batch takes one operand, the destination: the batch stands for the source";
            return Err(UsageError::Other { text: text.to_owned() });
        }
    }
    let batch = match file.to_str() {
        Some("-") => of_input(file, resources),
        _ => Batch::open(Path::new(file), files, resources),
    };
    batch.map(|batch| Some(Source::Batch(batch))).map_err(|error| unusable(&error))
}

/// Reads the batch that comes on standard input.
fn of_input(name: &OsString, resources: &Resources) -> Result<Batch, BatchError> {
    let input = io::stdin();
    let name = Path::new(name);
    if input.is_terminal() {
        return Err(BatchError::new(name, BatchFault::NotRegular));
    }
    let file = input.as_fd().try_clone_to_owned().map(File::from);
    let file = file.map_err(|error| BatchError::new(name, error.into()))?;
    Batch::of_file(file, name, resources)
}

fn unusable(error: &BatchError) -> UsageError {
    UsageError::Batch { exit_code: error.exit_code(), text: advice::of_batch(error) }
}

/// Refuses to record what a run from another host cannot.
///
/// # Errors
/// [`UsageError::UnsupportedUse`].
pub(super) fn check_pull(flags: &Flags) -> Result<(), UsageError> {
    if flags.batch.only_write_batch.is_some() {
        let text = "--only-write-batch with a remote source, whose files it would not get,";
        return Err(UsageError::UnsupportedUse { text });
    }
    if flags.batch.write_batch.is_some() && flags.writing.in_place().is_some() {
        let text = "--write-batch with a remote source and files that are written in place";
        return Err(UsageError::UnsupportedUse { text });
    }
    Ok(())
}

/// Begins the batch that the run is recorded in, if it is. A dry run records nothing, as with rsync.
///
/// # Errors
/// [`UsageError::Batch`].
pub(super) fn recording(flags: &Flags, files: &OperatorFiles) -> Result<Option<Recording>, UsageError> {
    let only = flags.batch.only_write_batch.is_some();
    match flags.batch.writing() {
        Some((file, _)) if !flags.writing.dry_run => {
            Recording::create(Path::new(file), only, files).map(Some).map_err(|error| unusable(&error))
        }
        _ => Ok(None),
    }
}
