//! The way in which the destination is written.

use std::ffi::OsString;

use clap::{Args, ValueEnum};
use dsync_engine::Append;

use super::{Group, name};

/// Dry run, parents, in place, backups, alternates, durability.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Writing")]
pub(crate) struct Writing {
    /// Change nothing; with -v or -i, list what would be done
    ///
    /// The list is exactly that of the run without -n.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Create the parents of the destination that are missing
    #[arg(long)]
    pub(crate) mkpath: bool,
    /// Take a link to a directory at the destination for the directory, where the source has one
    ///
    /// Only links of root and of the user who writes there that were there before the run and lead
    /// to a directory in the destination. One that leads out of it stays as it is, with exit code
    /// 23, as a source may have made it in an earlier run: --insecure-links follows it all the same.
    /// Without -K the link is replaced by a directory.
    #[arg(short = 'K', long)]
    pub(crate) keep_dirlinks: bool,
    /// Follow anybody's links on the way to the destination
    ///
    /// On the way to the destination, to the directories that options name there (--backup-dir,
    /// --temp-dir, --partial-dir, --compare-dest, --copy-dest, --link-dest), and to files of patterns,
    /// lists and logs, links are followed only if they belong to root or to the user who runs dsync;
    /// with another's the run is refused. Whoever may write to a directory on the way could lead a run
    /// of root's anywhere: use this only if all of them are trusted. Within the destination a source
    /// may have made a link: on the way to those directories and files none is followed there, such a
    /// file must be a regular one, and with -K only those links are followed that stay within. It is
    /// for this end; -M--insecure-links is for the remote one.
    #[arg(long)]
    pub(crate) insecure_links: bool,
    /// Write into the old file itself, not beside it
    ///
    /// Keeps the file's hard links and needs no room for a second copy. A further name for which the
    /// source has another file becomes a file of its own. With -u, --append, --max-size or --min-size,
    /// which leave files as they are, a file with further names is replaced, not written into. No more
    /// is written than without it: what moved inside the file is moved there. A remote file is written
    /// to only when all that is new of it has arrived and was verified. But a run that is killed, or a
    /// power cut, may leave a file that is partly old and partly new until the next run; readers see it
    /// change. With -u, --size-only or backups that run knows it by a note beside it (.dsync-note-*).
    /// Not with --link-dest.
    #[arg(long)]
    pub(crate) inplace: bool,
    /// Write the content of files into devices that have their names (implies --inplace)
    ///
    /// A device at the destination keeps its type, its length and its attributes, and gets the
    /// content of the source's file of its name, always, as no time tells what a device holds; the delta works. A block
    /// device that is shorter than the file, or that is mounted or otherwise in use, is left as it is, with
    /// exit code 23; of a longer one the rest stays. A run that breaks off leaves it half written, as content goes into
    /// the device as it arrives. Such a run makes no devices, whatever -D says. Entries that are no devices are replaced or rewritten as with --inplace. A server
    /// under --restrict refuses it. Not with --append or --backup.
    #[arg(long)]
    pub(crate) write_devices: bool,
    /// Give new content its name when all of it has arrived
    ///
    /// Files, links and special files wait beside their targets under temporary names
    /// (.dsync-tmp-*); in the end all of them are written to the disk, then get their names in one
    /// go, before hard links and deletions. So the disk must have room for all that is new besides
    /// all that is old. Directories, attributes of what is otherwise unchanged, and what takes a
    /// file's place as a directory are there at once. A run that ends early removes what waits,
    /// unless it lost its connection or --partial is given: then the files stay under other hidden
    /// names (.dsync-done-*), and the next run takes those up that are the source's still. Not with
    /// --inplace.
    #[arg(long)]
    pub(crate) delay_updates: bool,
    /// Go on with files that are shorter, believing what is there (implies --inplace)
    ///
    /// For files that only grow. What is there is not read, neither here nor at the source, and not
    /// compared: only what is added is verified. Files that are there and not shorter stay as they
    /// are, whatever is in them. After a power cut some of what was added may be missing: run once
    /// without it then.
    #[arg(long)]
    pub(crate) append: bool,
    /// As --append, but compare what is there, and send the whole file where it differs
    ///
    /// Both ends read all of the file. Files that are there and not shorter stay as they are here
    /// as well.
    #[arg(long)]
    pub(crate) append_verify: bool,
    /// Make holes of zeros that fill blocks, wherever they are in new content
    ///
    /// Without it a file has holes where the source's has them, and only there, or none with
    /// --preallocate. With --inplace the
    /// space of the old file is given back where zeros go. A file that is not transferred stays as
    /// it is. Local copies then share no extents with their source.
    #[arg(short = 'S', long)]
    pub(crate) sparse: bool,
    /// Reserve the space of each new file before it is written
    ///
    /// Such a file has no holes, whatever the source's has. With -S the space of zeros is given back,
    /// so only that of other bytes stays reserved.
    #[arg(long)]
    pub(crate) preallocate: bool,
    /// Write new content in DIR until it is complete
    ///
    /// DIR is relative to the destination directory and must exist. What is complete is moved
    /// beside its target, from another filesystem by a copy there, and then takes its name in one
    /// step like every file: so the destination must have room for the largest files under way even
    /// if DIR is elsewhere. Unfinished files are kept in DIR too, unless
    /// --partial-dir says where. With --inplace only what is new of a file waits there. In the destination, DIR is never
    /// removed by --delete.
    #[arg(short = 'T', long, value_name = "DIR", allow_hyphen_values = true, value_parser = name())]
    pub(crate) temp_dir: Option<OsString>,
    /// Keep what is replaced or removed, under its name with a ~
    ///
    /// Without --backup-dir this implies -O, and with --delete names that end in ~ are not removed.
    #[arg(short = 'b', long)]
    pub(crate) backup: bool,
    /// Keep it in a tree of its own (implies --backup)
    ///
    /// Relative to the destination directory. Names there get no ~ unless --suffix says so.
    #[arg(long, value_name = "DIR", allow_hyphen_values = true, value_parser = name())]
    pub(crate) backup_dir: Option<OsString>,
    /// What the name of a backup ends with: ~ by default
    #[arg(long, value_name = "SUFFIX", allow_hyphen_values = true)]
    pub(crate) suffix: Option<OsString>,
    /// Copy only what differs from DIR
    ///
    /// DIR is relative to the destination directory, as in --compare-dest=../full; up to 20 may be
    /// given. What a DIR has unchanged is not copied, and removed from the destination. Where none of
    /// them exists the exit code is 3, unless no directory but the destination is where they should be,
    /// as before the first of a row of copies. Not with --copy-dest or --link-dest.
    #[arg(long, value_name = "DIR", allow_hyphen_values = true, value_parser = name())]
    pub(crate) compare_dest: Vec<OsString>,
    /// Take what is unchanged from DIR, by copying it there
    ///
    /// DIR is as with --compare-dest. Not with --compare-dest or --link-dest.
    #[arg(long, value_name = "DIR", allow_hyphen_values = true, value_parser = name())]
    pub(crate) copy_dest: Vec<OsString>,
    /// Take what is unchanged from DIR, by a hard link
    ///
    /// With --link-dest=../yesterday each run makes a whole tree that takes only the space of what
    /// changed. DIR is as with --compare-dest. Not with --compare-dest or --copy-dest.
    #[arg(long, value_name = "DIR", allow_hyphen_values = true, value_parser = name())]
    pub(crate) link_dest: Vec<OsString>,
    /// Keep unfinished files when the run ends early, however it ends
    ///
    /// The next run goes on where they stand if the source has not changed, after verifying what is
    /// there. They wait beside their targets under hidden names of dsync's own (.dsync-part-*, with
    /// notes in .dsync-note-*); no target ever holds half a file. Without this option they are kept
    /// when the connection is lost, and removed when the run is interrupted or fails; an end that
    /// does not hear of that within half a second has lost the connection. With --no-partial they are
    /// always removed. --delete removes those that nothing in the source asks for. Local runs without --bwlimit keep
    /// none.
    #[arg(long)]
    pub(crate) partial: bool,
    /// Keep them in DIR (implies --partial)
    ///
    /// A single name is a directory in each directory of the destination: made when it is needed,
    /// with mode 0700, and removed when it is empty; it is not copied from the source nor, unless a
    /// rule of yours or --delete-excluded says so, removed by --delete. An absolute DIR is made if
    /// only its last name is missing, and stays. With RSYNC_PARTIAL_DIR in the environment,
    /// --partial means this option with that DIR. A directory . or without a name means none. Not
    /// with
    /// --inplace.
    #[arg(long, value_name = "DIR", allow_hyphen_values = true)]
    pub(crate) partial_dir: Option<OsString>,
    /// Whether `--no-partial` came after every `--partial`.
    #[arg(skip)]
    pub(crate) no_partial: bool,
    /// When data is on the disk: batch, file or none
    ///
    /// batch, the default, syncs in groups: exit code 0 means that everything survives a power cut.
    /// file also syncs each file on its own before it takes the old one's name. none leaves it to
    /// the operating system: a power cut may then lose or empty files that were copied.
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        hide_possible_values = true,
        hide_default_value = true,
        default_value = "batch",
        allow_hyphen_values = true
    )]
    pub(crate) durability: When,
}

/// The names that `--durability` knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    Batch,
    File,
    None,
}

impl Group for Writing {
    fn switches(&mut self) -> Vec<(&'static str, &mut bool)> {
        vec![
            ("dry_run", &mut self.dry_run),
            ("mkpath", &mut self.mkpath),
            ("partial", &mut self.partial),
            ("keep_dirlinks", &mut self.keep_dirlinks),
            ("insecure_links", &mut self.insecure_links),
            ("inplace", &mut self.inplace),
            ("write_devices", &mut self.write_devices),
            ("delay_updates", &mut self.delay_updates),
            ("append", &mut self.append),
            ("append_verify", &mut self.append_verify),
            ("preallocate", &mut self.preallocate),
            ("sparse", &mut self.sparse),
            ("backup", &mut self.backup),
        ]
    }
}

impl Writing {
    /// Returns the treatment of existing files.
    pub(crate) fn append(&self) -> Append {
        match (self.append_verify, self.append) {
            (true, _) => Append::Verifying,
            (false, true) => Append::Believing,
            (false, false) => Append::No,
        }
    }

    /// Returns the option that writes into the old files themselves, if one is given.
    pub(crate) fn in_place(&self) -> Option<&'static str> {
        let options = [
            (self.append_verify, "--append-verify"),
            (self.append, "--append"),
            (self.write_devices, "--write-devices"),
            (self.inplace, "--inplace"),
        ];
        options.into_iter().find_map(|(given, option)| given.then_some(option))
    }
}
