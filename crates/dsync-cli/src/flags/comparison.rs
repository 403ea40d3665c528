//! The comparison that decides whether a file is up to date.

use std::path::PathBuf;

use clap::{ArgAction, Args, builder::TypedValueParser as _};

use super::{Group, name, whole_number};

/// How files are compared, and which of those that differ are skipped.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Comparison")]
#[expect(clippy::struct_excessive_bools, reason = "one independent switch per rsync option")]
pub(crate) struct Comparison {
    /// Compare contents instead of size and time
    ///
    /// Reads every file on both ends. Without it a file of equal size and modification time is up
    /// to date.
    #[arg(short = 'c', long)]
    pub(crate) checksum: bool,
    /// Take what an earlier run knows of a file, if nothing has written to it since
    ///
    /// With -c a content that was read is not read again: each run adds the BLAKE3 hashes of what it reads here to a file of its own for these operands. A
    /// hash stands for a content as long as filesystem, inode number, size, modification and change
    /// time are those of then, only if nobody had the file open for writing, and until the system
    /// starts anew: a power cut can leave new content under old times. ext4, xfs and btrfs
    /// are trusted with that, other filesystems are read each time, and so are files of other
    /// users unless root runs this. -v and --stats say how many contents were known. Not for finding a
    /// disk that rots: that leaves no trace in any time, and only -c without this reads everything. A
    /// remote end does the same with a file of its own, below the home directory of whoever it runs as; one that is
    /// bound to a directory (--restrict, a share) reads everything. With and without -c the end that writes
    /// keeps the sums of the blocks of each file from 16 MiB on that comes over a connection: when that
    /// file changes, the old one is read where it is copied from and nowhere else. No effect in a local
    /// run without -c.
    #[arg(long)]
    pub(crate) state: bool,
    /// Keep what --state knows in DIR
    ///
    /// Default: $XDG_STATE_HOME/dsync, else ~/.local/state/dsync. It holds 80 bytes for each of at most
    /// 524,288 files of a pair, and 64 pairs; and for large files 12 bytes a block, of 32 KiB mostly, in
    /// 256 MiB for 4,096 files at the most. `dsync state` lists and clears it. No effect without
    /// --state.
    #[arg(long, value_name = "DIR", value_parser = name().map(PathBuf::from))]
    pub(crate) state_dir: Option<PathBuf>,
    /// Take no file as up to date by size and time
    #[arg(short = 'I', long)]
    pub(crate) ignore_times: bool,
    /// Take files of equal size as up to date
    #[arg(long)]
    pub(crate) size_only: bool,
    /// Skip files that are newer at the destination
    #[arg(short = 'u', long)]
    pub(crate) update: bool,
    /// Skip what does not exist at the destination
    #[arg(long, visible_alias = "ignore-non-existing")]
    pub(crate) existing: bool,
    /// Skip files that exist at the destination
    #[arg(long)]
    pub(crate) ignore_existing: bool,
    /// Take times that differ by at most N seconds as equal
    ///
    /// A whole number; with 0 and more only whole seconds are compared. By default, and with -1,
    /// times must be equal to the nanosecond, or as far as the filesystem of one side keeps them (100
    /// nanoseconds on NTFS, micro- or milliseconds, 10 milliseconds on exFAT, whole seconds). A
    /// filesystem that keeps every second one only, as FAT does, needs 1; a run says so when it
    /// copies files again for that.
    #[arg(short = '@', long, value_name = "N", allow_hyphen_values = true, value_parser = window)]
    pub(crate) modify_window: Option<Window>,
    /// Send changed files whole, without looking for equal blocks
    ///
    /// Not with --append or --append-verify.
    #[arg(short = 'W', long)]
    pub(crate) whole_file: bool,
    /// Make new files from similar ones of their directory at the destination; twice: also of
    /// --link-dest and its like
    ///
    /// Only what differs is sent. A file of the same size and time is taken, else the one whose name
    /// is most similar. Files below 16 KiB are sent whole, and so is everything in a local run and
    /// with -W. --delete-before may remove what would have been of use.
    #[arg(short = 'y', long, action = ArgAction::Count)]
    pub(crate) fuzzy: u8,
    /// Make new files from files of the destination that were moved or copied at the source
    ///
    /// A new file of 256 bytes or more is made from an old one that has its size and time. From 16 KiB on
    /// an old one of its size and name will do. Old files are those at the destination below what the
    /// operands stand for there (all of it for a source with a slash), and those in the directories of
    /// --link-dest and its like. The contents are compared by sums, and only what differs is sent; -i and
    /// --json say what is made from what. The destination reads its tree once more when the first
    /// such file comes, and not at all when there is none. --delete-during then deletes at the end,
    /// while --delete-before may remove what would have been of use. Without effect in a local run
    /// and with -W. Without this option a run does so with -t by size and time, once its new files
    /// have a MiB together and 128 bytes for each entry of the destination's tree, but not with
    /// --delete-during or --delete-before, nor while it writes a batch; --no-detect-renamed ends that.
    #[arg(long, visible_alias = "detect-moved")]
    pub(crate) detect_renamed: bool,
    /// Whether `--no-detect-renamed` came last.
    #[arg(skip)]
    pub(crate) no_detect_renamed: bool,
}

/// A tolerance in seconds; `None` for none at all, not even fractions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window(pub(crate) Option<u32>);

fn window(value: &str) -> Result<Window, String> {
    if value == "-1" {
        return Ok(Window(None));
    }
    let seconds = whole_number(value, 0, u64::from(u32::MAX));
    let seconds = seconds.map_err(|_| format!("is neither -1 nor a whole number from 0 to {}", u32::MAX))?;
    Ok(Window(u32::try_from(seconds).ok()))
}

impl Group for Comparison {
    fn switches(&mut self) -> Vec<(&'static str, &mut bool)> {
        vec![
            ("checksum", &mut self.checksum),
            ("state", &mut self.state),
            ("ignore_times", &mut self.ignore_times),
            ("size_only", &mut self.size_only),
            ("update", &mut self.update),
            ("existing", &mut self.existing),
            ("ignore_existing", &mut self.ignore_existing),
            ("whole_file", &mut self.whole_file),
            ("detect_renamed", &mut self.detect_renamed),
        ]
    }
}
