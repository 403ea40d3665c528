//! The removal of entries at the destination.

use std::{error::Error, fmt};

use clap::Args;
use dsync_engine::DeleteLimit;

use super::{Group, whole_number};

/// `--delete`, its times and its limits.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Deletion")]
#[expect(clippy::struct_excessive_bools, reason = "one switch per option")]
pub(crate) struct Deletion {
    /// Remove what the source does not have
    ///
    /// Nothing is removed when something of the source could not be read, in a directory that was
    /// not listed completely, or where the source is empty. --delete-before and --delete-during
    /// remove before that is known of all of the source. Needs -r or -d. By default entries go when
    /// everything has arrived. Only one of --delete-before, --delete-during, --delete-delay and
    /// --delete-after may be given.
    #[arg(long)]
    pub(crate) delete: bool,
    /// Remove in each directory as soon as it has been compared (implies --delete)
    ///
    /// As with rsync, the rest of the source has not been read by then: where a file or a directory
    /// turns out to be unreadable later, what was removed before stays removed. With
    /// --delete-all-or-nothing, or a --max-delete of N%, the removals still come at the end, when
    /// their number is known.
    #[arg(long, visible_alias = "del")]
    pub(crate) delete_during: bool,
    /// Remove before anything is written, to make room (implies --delete)
    ///
    /// Then nothing is written before all of the source is listed, and the source's end needs
    /// memory for the list: some 100 bytes for each entry. As with rsync, no file of the source has
    /// been read by then: a directory that cannot be listed withholds all removals, a file that
    /// turns out to be unreadable none.
    #[arg(long)]
    pub(crate) delete_before: bool,
    /// Remove when everything has arrived, by the files of rules that did (implies --delete)
    ///
    /// Without files of rules (-F, -C, --filter=':') it is the default. With them, the default removes
    /// only what neither the old files nor those that arrived protect.
    #[arg(long)]
    pub(crate) delete_after: bool,
    /// Find what is to go while comparing, remove it at the end: the default (implies --delete)
    #[arg(long)]
    pub(crate) delete_delay: bool,
    /// Also remove what the exclude rules leave out (implies --delete)
    #[arg(long)]
    pub(crate) delete_excluded: bool,
    /// Remove at the destination what a source that does not exist would be copied to
    ///
    /// A directory that is not empty only with --delete or --force.
    /// The directory that the source was in must exist, with -R or --files-from
    /// the one that its path begins in; where it does not exist, nothing is removed, without a word,
    /// and the exit code is 0. Whatever --delete says.
    #[arg(long)]
    pub(crate) delete_missing_args: bool,
    /// Remove files at the source once they are at the destination and on its disk
    ///
    /// Everything but directories, and whatever was there already and needed nothing. A file that
    /// has changed since it was listed stays, with exit code 24. So does one in a directory outside the
    /// source that a link on its way leads to, with exit code 23. Not with --delete, which would remove
    /// in the next run what was moved in this one, and not with --durability=none.
    #[arg(long)]
    pub(crate) remove_source_files: bool,
    /// Remove files at the source that this run sent, once they are on the destination's disk
    ///
    /// The old form of --remove-source-files: what was at the destination already stays, and what a
    /// directory of --link-dest, --copy-dest or --compare-dest had. So do devices, fifos and sockets,
    /// and of several names of a file (-H) all but the one that was sent. If the connection or the
    /// run breaks after a file arrived and before it was removed, it stays for good: the next run
    /// finds nothing to send. The later of this option and --remove-source-files counts.
    #[arg(long)]
    pub(crate) remove_sent_files: bool,
    /// Remove at most N entries, or N% of those at the destination
    ///
    /// The first ones that are found are removed, the others stay, and the exit code is 25. What is
    /// in a directory that gives way to something else counts: where that is more than may go, the
    /// directory stays, and the exit code is 23; for a share it is counted but not held back. A whole
    /// number, of which one below 0 is 0, or from 0% to 100%; no limit by default. After a lost
    /// connection nothing more is removed under a limit. With --watch each run has the limit, and none
    /// follows one that reached it before something changes.
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = limit)]
    pub(crate) max_delete: Option<DeleteLimit>,
    /// With --max-delete: if more than that would be removed, remove nothing
    ///
    /// The exit code is 25 then too. The limit for jobs that nobody watches: too many removals mostly
    /// mean that something is wrong with the source.
    #[arg(long)]
    pub(crate) delete_all_or_nothing: bool,
    /// Remove even though something of the source could not be read
    ///
    /// Still nothing in a directory that was not listed completely.
    #[arg(long)]
    pub(crate) ignore_errors: bool,
    /// Replace a directory that is not empty by what is no directory, even without --delete
    #[arg(long, alias = "force-delete")]
    pub(crate) force: bool,
    /// Empty a destination whose source has nothing in it
    ///
    /// Otherwise such a run is refused with exit code 42: more often the source is not mounted.
    #[arg(long)]
    pub(crate) allow_empty_source: bool,
    /// Remove also in '/' and in the home directory themselves
    ///
    /// Without this such a run is refused with exit code 42, also where the home directory is below
    /// the destination. One within a directory that goes stays, with the directories above it. The
    /// home directory is that of the user's account, whatever HOME says.
    #[arg(long)]
    pub(crate) force_root: bool,
}

/// The error for a value of `--max-delete` that is not a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NoLimit {
    value: String,
}

impl fmt::Display for NoLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not a whole number up to {}, nor a share from 0% to 100%", self.value, u64::MAX)
    }
}

impl Error for NoLimit {}

fn limit(value: &str) -> Result<DeleteLimit, NoLimit> {
    let refuse = |_| NoLimit { value: value.to_owned() };
    match value.strip_suffix('%') {
        Some(share) => {
            let share = whole_number(share, 0, 100).map_err(refuse)?;
            Ok(DeleteLimit::Percent(u8::try_from(share).unwrap_or(100)))
        }
        // As with rsync.
        None if value.strip_prefix('-').is_some_and(|digits| whole_number(digits, 0, u64::MAX).is_ok()) => {
            Ok(DeleteLimit::Entries(0))
        }
        None => whole_number(value, 0, u64::MAX).map(DeleteLimit::Entries).map_err(refuse),
    }
}

impl Deletion {
    /// Returns the option by which files leave the source, if one is given.
    pub(crate) fn moving(&self) -> Option<&'static str> {
        match (self.remove_source_files, self.remove_sent_files) {
            (true, _) => Some("--remove-source-files"),
            (false, true) => Some("--remove-sent-files"),
            (false, false) => None,
        }
    }
}

impl Group for Deletion {
    fn switches(&mut self) -> Vec<(&'static str, &mut bool)> {
        vec![
            ("delete", &mut self.delete),
            ("delete_before", &mut self.delete_before),
            ("delete_during", &mut self.delete_during),
            ("delete_after", &mut self.delete_after),
            ("delete_delay", &mut self.delete_delay),
            ("delete_excluded", &mut self.delete_excluded),
            ("delete_missing_args", &mut self.delete_missing_args),
            ("remove_source_files", &mut self.remove_source_files),
            ("remove_sent_files", &mut self.remove_sent_files),
            ("delete_all_or_nothing", &mut self.delete_all_or_nothing),
            ("ignore_errors", &mut self.ignore_errors),
            ("force", &mut self.force),
            ("allow_empty_source", &mut self.allow_empty_source),
            ("force_root", &mut self.force_root),
        ]
    }
}
