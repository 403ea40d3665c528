//! Batch files: a run recorded in a file, and a file in the place of a source.

use std::ffi::OsString;

use clap::Args;

use super::name;

/// Files that runs are recorded in, and read from.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Batch files")]
pub(crate) struct BatchFiles {
    /// Record the run in FILE, to be applied elsewhere with --read-batch
    ///
    /// FILE has the source's listing and the whole content of each file that the run transferred, so
    /// that it can be applied wherever the destination was like this one. It takes its name when the
    /// run has ended and FILE is on the disk; nothing is left of a run that did not end. From a remote source, not with --inplace or --append. No script
    /// is written: whoever applies FILE gives the options that decide what is copied again, and is told which
    /// they are. A lost connection ends the run. With -n nothing is recorded.
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, value_parser = name())]
    pub(crate) write_batch: Option<OsString>,
    /// Record in FILE what the run would send, and change nothing
    ///
    /// As --write-batch, and the destination stays as it is. The source has to be at this end.
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, value_parser = name())]
    pub(crate) only_write_batch: Option<OsString>,
    /// Apply the run recorded in FILE; the one operand is the destination
    ///
    /// FILE may be '-' for standard input. All of it is checked before anything is changed. It is held
    /// to the same bounds as any source, under the options given here: those that decide what is copied
    /// have to be those of the recorded run. Filter rules are FILE's own where none are given, and keep what
    /// they exclude from --delete. What is up to date already stays; a file that differs and whose content
    /// FILE lacks is an error of that file (23).
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, value_parser = name())]
    pub(crate) read_batch: Option<OsString>,
}

impl BatchFiles {
    /// Returns the option that records the run, if one does, with its name.
    pub(crate) fn writing(&self) -> Option<(&OsString, &'static str)> {
        let only = self.only_write_batch.as_ref().map(|file| (file, "--only-write-batch"));
        only.or_else(|| self.write_batch.as_ref().map(|file| (file, "--write-batch")))
    }
}
