//! Entries that no removal touches: those that the filters exclude, backups, the run's own places,
//! and mounts.

use std::{
    collections::HashSet,
    os::unix::ffi::OsStrExt,
    sync::{Arc, Mutex},
};

use dsync_fs::{Component, Dir, Kind, OwnPlaces, RelPath, Spare};
use dsync_wire::{
    options::{DeleteTiming, SyncOptions},
    ruling::RulePlace,
};

use super::{
    Site,
    backup::Kept,
    directory::Directory,
    local_rules::{LocalRules, Protected},
};
use crate::{SyncError, halt::lock};

/// The rules for entries that are never removed, in a directory that is removed as well.
#[derive(Clone)]
pub(super) struct Protection {
    rules: LocalRules,
    /// Whether the rules that are there when a directory is compared protect.
    judges_first: bool,
    /// Whether those that are there in the end do: files of rules may have arrived.
    judges_last: bool,
    deletes_excluded: bool,
    /// Directories of this name are unfinished files'; they go with a directory that goes as a
    /// whole.
    parts: Option<Component>,
    mounts: bool,
    kept: Kept,
    /// Directories that a link leads to which stands for a directory of the source
    /// (`keep_dirlinks`): their entries are that directory's.
    led_to: Arc<Mutex<HashSet<RelPath>>>,
    /// The run's own places.
    own: Arc<OwnPlaces>,
}

impl Protection {
    /// Protects the excluded entries, unless they are to be removed as well, and with
    /// `one_file_system` whatever is mounted.
    pub(super) fn new(rules: LocalRules, options: &SyncOptions, own: &Arc<OwnPlaces>) -> Self {
        use DeleteTiming::{After, AfterArrival};
        let at_end = |timings: &[DeleteTiming]| {
            options.delete && rules.reads_files() && timings.contains(&options.delete_timing)
        };
        let (judges_first, judges_last) = (!at_end(&[AfterArrival]), at_end(&[After, AfterArrival]));
        let deletes_excluded = options.delete_excluded;
        let kept = Kept::of(&options.writing);
        let parts = options.writing.partial_dir.as_deref().and_then(|dir| Component::new(dir).ok());
        let (mounts, own, led_to) = (options.one_file_system, Arc::clone(own), Arc::default());
        Self { rules, judges_first, judges_last, deletes_excluded, parts, mounts, kept, own, led_to }
    }

    /// Protects a directory that a link of the destination leads to, if it is in the destination as
    /// well.
    pub(super) fn note_led_to(&self, root: &Dir, target: &Dir) {
        let (Ok(root), Ok(target)) = (root.real_path(), target.real_path()) else { return };
        let below = target.strip_prefix(root).ok().map(|below| RelPath::parse(below.as_os_str().as_bytes()));
        if let Some(Ok(below)) = below {
            lock(&self.led_to).insert(below);
        }
    }

    /// Returns whether the backups of a directory's entries stay in it.
    pub(super) fn keeps_backups_beside(&self) -> bool {
        self.kept.stay_beside()
    }

    /// Returns the entries that stay in a directory that is removed.
    pub(super) fn spare<'a>(
        &'a self,
        site: &'a Site<'_>,
        entries: &'a dyn Fn(&RelPath, Kind) -> bool,
    ) -> Spare<'a> {
        let stopped = Some(&**site.session.halt.stop_flag());
        let unlocks = site.hands.unlocks();
        let places = Some(&*self.own);
        Spare { entries, mounts: self.mounts, places, stopped, unlocks, reaps: true, ..Spare::NOTHING }
    }

    /// Returns whether the entry of the directory stays.
    pub(super) fn covers(&self, directory: &Directory, name: &Component, found: Found) -> bool {
        self.own.has_inode((found.device, found.ino)) || self.rules_cover(directory, name, found)
    }

    /// Returns whether the entry of the directory stays though it is no place of the run.
    pub(super) fn rules_cover(&self, directory: &Directory, name: &Component, found: Found) -> bool {
        let mounted = || {
            let here = directory.dir.as_ref().and_then(|dir| dir.device().ok());
            found.kind == Kind::Dir && here.is_some_and(|here| here != found.device)
        };
        let path = directory.path.join(name);
        self.keeps_otherwise(&path, found.kind)
            || self.judges_first && self.is_ruled_out(&path, found.kind, false)
            || self.keeps_parts(&path, name, found.kind)
            || self.mounts && mounted()
    }

    /// Returns whether a directory of unfinished files stays: as with rsync a rule that includes it
    /// gives it up, and so does `delete_excluded`.
    fn keeps_parts(&self, path: &RelPath, name: &Component, kind: Kind) -> bool {
        let is_parts = kind == Kind::Dir && self.parts.as_ref() == Some(name) && !self.deletes_excluded;
        is_parts && self.rules.judge(path, true, false) == Protected::Undecided
    }

    /// Returns whether the entry at this path, in a directory that gives way, stays.
    pub(super) fn spares(&self, path: &RelPath, kind: Kind, inode: (u64, u64)) -> bool {
        self.own.has_inode(inode) || self.filters_out(path, kind, true)
    }

    /// Returns whether the entry at this path stays; `perishing` in a directory that is removed.
    pub(super) fn filters_out(&self, path: &RelPath, kind: Kind, perishing: bool) -> bool {
        self.is_ruled_out(path, kind, perishing) || self.keeps_otherwise(path, kind)
    }

    /// Returns the place of the rule that protects an entry; `None` where none does.
    pub(super) fn place_of(&self, path: &RelPath, kind: Kind, perishing: bool) -> Option<RulePlace> {
        self.rules.place_of(path, kind == Kind::Dir, perishing)
    }

    fn is_ruled_out(&self, path: &RelPath, kind: Kind, perishing: bool) -> bool {
        self.rules.judge(path, kind == Kind::Dir, perishing) == Protected::Yes
    }

    fn keeps_otherwise(&self, path: &RelPath, kind: Kind) -> bool {
        let led_to = || kind == Kind::Dir && lock(&self.led_to).contains(path);
        self.kept.covers(path) || led_to()
    }

    /// Reads the files of rules of a directory whose entries are about to be compared: from now on
    /// they hold for it, whatever arrives.
    pub(super) fn enter(&self, directory: &RelPath) {
        self.rules.enter(directory);
    }

    /// Begins the removals at the end of a run, after everything has arrived: files of rules are
    /// read once more.
    pub(super) fn begin_removals(&self) {
        self.rules.begin_anew();
    }

    /// Drops those entries of a directory that the rules protect, if that was left to the end, and
    /// passes each on to `kept`.
    pub(super) fn retain(
        &self,
        directory: &RelPath,
        entries: &mut Vec<(Component, Kind)>,
        kept: &mut dyn FnMut(&RelPath, Kind),
    ) {
        // Read before the first removal, which may be that of the file itself.
        self.rules.enter(directory);
        if self.judges_last {
            entries.retain(|(name, kind)| {
                let path = directory.join(name);
                let goes = !self.is_ruled_out(&path, *kind, false);
                if !goes {
                    kept(&path, *kind);
                }
                goes
            });
        }
    }

    /// Reports files of rules that cannot be followed.
    pub(super) fn tell(&self, site: &Site<'_>) -> Result<(), SyncError> {
        self.rules.tell(site)
    }
}

/// The known facts of an extraneous entry.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub(super) kind: Kind,
    pub(super) mode: u16,
    pub(super) device: u64,
    pub(super) ino: u64,
}
