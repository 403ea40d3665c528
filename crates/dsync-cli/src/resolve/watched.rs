//! `--watch`: which runs can be made again whenever their source has changed.

use std::path::Path;

use dsync_engine::{Destination, Job, Source, TreeWatch};

use super::{Environment, ends, files_from, operator_files, resources};
use crate::{address, flags::Flags, usage::UsageError};

/// Checks that the source is one whose changes can be seen. Returns whether it is to be watched.
///
/// # Errors
/// [`UsageError`] for another source.
pub(super) fn is_watched(
    flags: &Flags,
    source: &Source,
    destination: &Destination,
) -> Result<bool, UsageError> {
    if !flags.stopping.watch {
        return Ok(false);
    }
    if matches!(source, Source::Remote { .. }) {
        return Err(UsageError::UnsupportedUse {
            text: "--watch of a remote source (no host tells another one what changes: run dsync at the host that has the source, as a push)",
        });
    }
    if *destination == Destination::Nowhere {
        return Err(UsageError::Needs { option: "--watch", needed: "a destination" });
    }

    let list = flags.selection.files_from.as_deref();
    if list.is_some_and(|list| list == "-") {
        return Err(UsageError::NotWatched {
            with: "--files-from=-",
            why: "standard input is read once, and each run reads the list; put it into a file",
        });
    }
    Ok(true)
}

/// Returns a job of a watch with the list of paths that `--files-from` names as it is now, and watches
/// the list.
///
/// # Errors
/// [`UsageError`] for a list that cannot be read.
pub(crate) fn with_list(
    flags: &Flags,
    environment: Environment<'_>,
    job: Job,
    trees: Option<&TreeWatch>,
) -> Result<Job, UsageError> {
    let Some(list) = &flags.selection.files_from else { return Ok(job) };
    // A change from here on leads to another run.
    if let Some(trees) = trees {
        trees.file(Path::new(list));
    }

    let (operands, _) = address::rewrite(&flags.operands)?;
    let (source, destination) = ends(&operands, flags.output.list_only)?;
    let files = operator_files(flags, &destination);
    let resources = resources(flags, environment);
    let list = files_from::files_from(flags, (&source, &destination), &files, &resources)?;
    Ok(list.into_iter().fold(job, Job::files_from))
}
