//! The attributes that are made equal.

use std::ffi::OsString;

use clap::{ArgAction, Args};
use dsync_engine::notation::Owner;

use super::{
    Group,
    id_rules::{self, IdRules},
    mode_rules::{self, ModeRules},
};

/// `-a` and its parts.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "What is copied")]
#[expect(clippy::struct_excessive_bools, reason = "one independent switch per rsync option")]
pub(crate) struct Attributes {
    /// Archive: same as -rlptgoD
    ///
    /// Copies everything that an ordinary backup needs except hard links (-H), ACLs (-A) and
    /// extended attributes (-X). A later --no-OPTION takes a part out: -a --no-owner.
    #[arg(short = 'a', long)]
    pub(crate) archive: bool,
    /// Copy directories and what is in them
    ///
    /// Without it and --dirs a source directory is skipped.
    #[arg(short = 'r', long)]
    pub(crate) recursive: bool,
    /// Copy directories without what is in them
    ///
    /// A directory with a trailing '/' (and '.') stands for its entries: its files are copied, and the
    /// directories in it are made without what is in them. Any other directory is made, and nothing in
    /// it is copied. With -r it has no effect. With --delete, entries go only from a directory whose entries are copied.
    #[arg(short = 'd', long)]
    pub(crate) dirs: bool,
    /// Same as -r --exclude='/*/*'
    ///
    /// The way of an rsync that had no --dirs yet. The rule comes after all others.
    #[arg(long, alias = "old-d")]
    pub(crate) old_dirs: bool,
    /// Copy symbolic links as links
    ///
    /// The link's text is copied and never followed. Without it symbolic links are skipped.
    #[arg(short = 'l', long)]
    pub(crate) links: bool,
    /// Make permissions equal
    ///
    /// Without it new files get the source's permissions less the destination's umask, or as far as
    /// the default access control list of their directory lets them, and existing files keep
    /// theirs. The setuid, setgid and sticky bits of a file come along only if its owner does (-o),
    /// setgid only with its group (-g), and new content does not get those of an old file whose
    /// owner was another.
    #[arg(short = 'p', long)]
    pub(crate) perms: bool,
    /// Make modification times equal, to the nanosecond
    ///
    /// Without it every file with another time is transferred again by the next run.
    #[arg(short = 't', long)]
    pub(crate) times: bool,
    /// Make groups equal
    ///
    /// By name, by number where the destination does not know the name. Without privileges only
    /// groups that the user is a member of can be set.
    #[arg(short = 'g', long)]
    pub(crate) group: bool,
    /// Make owners equal (needs root or --fake-super at the destination)
    ///
    /// By name, by number where the destination does not know the name.
    #[arg(short = 'o', long)]
    pub(crate) owner: bool,
    /// Give everything to this owner, this group or both
    ///
    /// Same as --usermap=*:USER --groupmap=*:GROUP: USER, USER:GROUP or :GROUP. Not with --usermap
    /// where USER is given, nor with --groupmap where GROUP is. May be given twice, once for each part.
    #[arg(long, value_name = "USER:GROUP", value_parser = id_rules::parse_owner)]
    pub(crate) chown: Vec<Owner>,
    /// Give what is one user's to another: FROM:TO,...; implies --owner
    ///
    /// FROM is a name of the source in which *, ? and [ are wildcards, a number, a range of numbers
    /// (1000-1999), or empty for who has no name (nobody has one under --numeric-ids). TO is a
    /// number, or a name that the destination must know. The first rule that matches counts. As
    /// --owner it needs root at the destination.
    #[arg(long, value_name = "RULES", value_parser = id_rules::parse)]
    pub(crate) usermap: Vec<IdRules>,
    /// Give what is one group's to another, as --usermap; implies --group
    #[arg(long, value_name = "RULES", value_parser = id_rules::parse)]
    pub(crate) groupmap: Vec<IdRules>,
    /// Change permissions on the way: D755,F644 or ug+rwX,o-w
    ///
    /// As if the source had them so; works with --perms, and on new files without. Rules are
    /// separated by commas, octal or symbolic (who: u, g, o, a; +, - or =; what: r, w, x, X, s, t, or u, g or o for
    /// what that class may do).
    /// D in front is for directories only, F for everything else. May be given several times.
    #[arg(long, value_name = "CHANGES", value_parser = mode_rules::parse)]
    pub(crate) chmod: Vec<ModeRules>,
    /// Keep hard links: several names of one file stay several names of one
    ///
    /// Among all that is copied; names outside of it have no say. Symbolic links, fifos and devices
    /// too. Where the destination cannot give a file another name, a copy is made and counted.
    #[arg(short = 'H', long)]
    pub(crate) hard_links: bool,
    /// Make access control lists equal; implies --perms
    ///
    /// POSIX lists, the default ones of directories included. Users and groups in them are mapped
    /// as owners are. Entries whose lists the destination cannot hold are copied without them,
    /// counted, and the exit code is 23.
    #[arg(short = 'A', long)]
    pub(crate) acls: bool,
    /// Make extended attributes equal
    ///
    /// All of user.*, and as root every other name space but system.*, file capabilities included;
    /// attributes that the source does not have are removed. What is in user.rsync.%* is left
    /// alone. Entries whose attributes the destination cannot hold are copied without them,
    /// counted, and the exit code is 23.
    #[arg(short = 'X', long)]
    pub(crate) xattrs: bool,
    /// Keep owners, special permissions, devices and the like in extended attributes
    ///
    /// So nobody has to be root to back them up: in user.rsync.%stat and its neighbours, as rsync
    /// keeps them, whose trees of this kind are read and made. Devices, fifos, sockets and symbolic
    /// links become files; with -A and -X also access control lists and root's attributes are kept
    /// so. It counts for the local end of a run, and for both ends of a local one; -M--fake-super
    /// is for the remote end, or only the destination of a local run, and --fake-super
    /// -M--super for only the source of one. What a target cannot hold is counted, and the exit code is 23; links
    /// and devices are then not made.
    #[arg(long)]
    pub(crate) fake_super: bool,
    /// Set all that root may set: the default of root; takes back --fake-super and --no-super
    ///
    /// --no-super sets nothing that only root may, even as root: of owners none, of groups those that
    /// the user is in, no devices, and with -X the attributes user.*; files whose owner is another
    /// then lose setuid and setgid. What the destination has of these stays. It counts for a local
    /// destination; -M--no-super is for a remote one. Of --super, --no-super and --fake-super the last
    /// counts.
    #[arg(id = "super", long = "super")]
    pub(crate) as_super: bool,
    /// Set by --no-super.
    #[arg(skip)]
    pub(crate) no_super: bool,
    /// Do the work with the rights of this user, as root only: not what the user may not read or write
    ///
    /// USER and GROUP are names or numbers of the end concerned. GROUP is then the only group; without
    /// it the user has the groups of his account. New files are the user's, and owners are not set.
    /// It counts for the local end of a run, where ssh still is root's, and for both ends of a local
    /// one; -M--copy-as=USER is for the remote end, or only the destination of a local run. An end that is not
    /// root, or does not know the user, ends the run with exit code 1 before it opens anything.
    #[arg(long, value_name = "USER[:GROUP]", allow_hyphen_values = true)]
    pub(crate) copy_as: Option<OsString>,
    /// Same as --devices --specials
    #[arg(short = 'D')]
    pub(crate) devices_specials: bool,
    /// Copy character and block devices (needs root or --fake-super at the destination)
    #[arg(long)]
    pub(crate) devices: bool,
    /// Copy the content of devices, as files
    ///
    /// A device of the source becomes a regular file; its length is where seeking in the device ends,
    /// so one that cannot be sought in becomes an empty file. Every device that is copied is opened.
    /// The time of a device does not tell whether its content has changed, as writing through a mounted filesystem
    /// leaves it: add -c or -I. A server under --restrict refuses it. Not with --remove-source-files.
    #[arg(long)]
    pub(crate) copy_devices: bool,
    /// Copy fifos and sockets
    #[arg(long)]
    pub(crate) specials: bool,
    /// Make no devices, fifos and sockets, whatever -D and -a say, and wherever they stand
    #[arg(long = "drop-D")]
    pub(crate) drop_specials: bool,
    /// Take owners and groups by number, never by name
    #[arg(long)]
    pub(crate) numeric_ids: bool,
    /// Make access times equal, not of directories; twice also means --open-noatime
    ///
    /// That of a source file is the one before the run read it. Reading changes it (see
    /// --open-noatime), so a further run may find another one.
    #[arg(short = 'U', long, action = ArgAction::Count)]
    pub(crate) atimes: u8,
    /// Leave the times of directories alone
    #[arg(short = 'O', long)]
    pub(crate) omit_dir_times: bool,
    /// Leave the times of symbolic links alone
    #[arg(short = 'J', long)]
    pub(crate) omit_link_times: bool,
    /// Without --perms: make equal whether existing files can be executed
    ///
    /// Who may read a file may execute it where the source has it executable, and nobody where it
    /// has not.
    #[arg(short = 'E', long)]
    pub(crate) executability: bool,
    /// Read files of the source without changing their access times
    ///
    /// Where the reader is root or owns them; others are read as usual.
    #[arg(long)]
    pub(crate) open_noatime: bool,
}

impl Attributes {
    /// Returns whether directories are copied, with or without what is in them.
    pub(crate) fn takes_directories(&self) -> bool {
        self.recursive || self.dirs
    }
}

impl Group for Attributes {
    fn switches(&mut self) -> Vec<(&'static str, &mut bool)> {
        let mut switches = vec![
            ("archive", &mut self.archive),
            ("recursive", &mut self.recursive),
            ("dirs", &mut self.dirs),
            ("old_dirs", &mut self.old_dirs),
            ("links", &mut self.links),
            ("perms", &mut self.perms),
            ("times", &mut self.times),
            ("group", &mut self.group),
            ("owner", &mut self.owner),
            ("hard_links", &mut self.hard_links),
            ("acls", &mut self.acls),
            ("xattrs", &mut self.xattrs),
            ("fake_super", &mut self.fake_super),
            ("super", &mut self.as_super),
        ];

        switches.extend([
            ("devices_specials", &mut self.devices_specials),
            ("devices", &mut self.devices),
            ("copy_devices", &mut self.copy_devices),
            ("specials", &mut self.specials),
            ("drop_specials", &mut self.drop_specials),
            ("numeric_ids", &mut self.numeric_ids),
            ("omit_dir_times", &mut self.omit_dir_times),
            ("omit_link_times", &mut self.omit_link_times),
            ("executability", &mut self.executability),
            ("open_noatime", &mut self.open_noatime),
        ]);
        switches
    }
}
