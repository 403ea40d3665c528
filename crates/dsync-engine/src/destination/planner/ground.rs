//! The operator's operands at the destination: the root, the name that a single file gets, operands
//! that the source does not have, and the directories beside the root that the run uses.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::{Arc, OnceLock},
};

use dsync_fs::{Component, Dir, Kind, Metadata, OwnPlaces, RelPath, SpoolHome, UntrustedLink};
use dsync_wire::{
    budget::{Held, Share},
    message::{Entry, EntryId, EntryKind, Tops},
    options::SyncOptions,
};

use super::{
    super::{
        Site,
        alternate::{Alternates, Level},
        backup::{self, Backups},
        directory::{Directory, settle},
        hands::Hands,
        homes::Around,
        late::Delayed,
        locked::Locked,
        protection::Protection,
        refused_places,
        target::{Target, Terms},
        transfers::Transfers,
    },
    frontier::{Announced, Presence},
};
use crate::{
    State, SyncError,
    error::PathRole,
    grant::Start,
    guard,
    halt::lock,
    misbehaved::{PeerMisbehaved, misbehaved},
    set_bytes::ALLOCATION,
};

/// The root of the destination and the places that belong to it.
pub(super) struct Ground {
    pub(super) target: Target,
    /// Directories that may hold entries as well (`--link-dest` and its like).
    pub(super) alternates: Option<Alternates>,
    /// Paths that the source was asked for and does not have.
    missing: BTreeSet<RelPath>,
    /// The filesystem that the root is on, or will be.
    device: Option<u64>,
    /// Memory of these paths.
    missing_held: Held,
    /// Directories that belong to the run.
    pub(super) own: Arc<OwnPlaces>,
    /// The place of lists that outgrow memory.
    pub(super) spools: SpoolHome,
    /// Directories that belong to the run's backups, as far as the source has directories of their
    /// names.
    own_paths: Vec<RelPath>,
    /// The user's home directory, where nothing is removed in it.
    home: Option<(u64, u64)>,
    /// The name that the only file has at the source, where it gets another one.
    renamed_from: Arc<OnceLock<RelPath>>,
}

impl Ground {
    /// Opens the destination and the directories beside it that the run uses.
    pub(super) fn open(
        transfers: &Transfers<'_>,
        operand: &Path,
        tops: &Tops,
        contents: bool,
        (start, spools): (&Start, SpoolHome),
    ) -> Result<Self, SyncError> {
        let site = transfers.site;
        let terms = Terms { options: &site.policy.options, start, hands: &site.hands, tenure: &site.tenure };
        let target = Target::open(operand, tops, contents, site.session, terms)?;
        let _ = site.tree.root.set(target.path.clone());
        if let Some(root) = &target.root {
            let _ = site.tree.dir.set(Arc::clone(root));
        }

        let own = Arc::<OwnPlaces>::default();
        let home = note_home(&site.policy.options, &own);
        let around = Around { own: &own, spools: &spools, local: transfers.is_local() };
        let alternates = match &target.root {
            Some(root) => open_beside(site, root, &around)?,
            None => alternates_of_missing(site, start, &target)?,
        };
        alternates.as_ref().map_or(Ok(()), |alternates| alternates.tell_missing(site))?;
        let renamed_from = Arc::clone(&site.tree.renamed_from);
        let device = match &target.root {
            Some(root) => root.device().ok(),
            None => target.missing(&site.policy.options, start).and_then(|(base, _)| base.device().ok()),
        };
        let (missing, own_paths) = (BTreeSet::new(), Vec::new());
        let missing_held = site.session.budget.nothing(Share::Paths);
        Ok(Self {
            target,
            alternates,
            missing,
            device,
            missing_held,
            own,
            spools,
            own_paths,
            home,
            renamed_from,
        })
    }

    /// Returns the open root; `None` where it does not exist.
    pub(super) fn root(&self) -> Option<&Arc<Dir>> {
        self.target.root.as_ref()
    }

    /// Returns the filesystem that entries of a directory are on, or will be.
    pub(super) fn device_of(&self, directory: &Directory) -> Option<u64> {
        directory.dir.as_ref().map_or(self.device, |dir| dir.device().ok())
    }

    /// Returns the destination's state of its root.
    pub(super) fn presence(&self) -> Presence {
        match (&self.target.root, self.target.created) {
            (None, _) => Presence::Imagined,
            (Some(_), true) => Presence::New,
            (Some(_), false) => Presence::Old { dirty: false },
        }
    }

    /// Opens a directory of the destination.
    pub(super) fn open_beneath(&self, path: &RelPath) -> io::Result<Arc<Dir>> {
        match self.root() {
            Some(root) if path.is_root() => Ok(Arc::clone(root)),
            Some(root) => root.open_beneath(path).map(Arc::new),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Returns where entries of a directory may be as well.
    pub(super) fn level(&self, path: &RelPath) -> Option<Level> {
        self.alternates.as_ref().map(|alternates| alternates.level(path))
    }

    /// Returns whether the one source file gets another name.
    pub(super) fn renames(&self) -> bool {
        self.target.rename.is_some()
    }

    /// Returns the name that an entry has at the destination.
    pub(super) fn name_of(&self, entry: &Entry, id: EntryId) -> Result<Component, SyncError> {
        match &self.target.rename {
            // A second entry would get the same name as the first.
            Some(_) if id.0 > 1 || matches!(entry.kind, EntryKind::Directory) => {
                Err(misbehaved(PeerMisbehaved::NotASingleFile { entry: id }))
            }
            Some(renamed) => {
                let there = RelPath::parse(entry.name.as_bytes()).map_err(misbehaved)?;
                let _ = self.renamed_from.set(there);
                Ok(renamed.clone())
            }
            None => Component::new(entry.name.as_bytes()).map_err(misbehaved),
        }
    }

    /// Notes an operand's path that the source does not have.
    pub(super) fn note_missing(&mut self, path: &[u8]) -> Result<(), SyncError> {
        let renamed = self.target.rename.clone().map(RelPath::from);
        let path = renamed.map_or_else(|| RelPath::parse(path), Ok);
        let path = path.map_err(misbehaved)?;
        if !self.missing.contains(&path) {
            self.missing_held.grow(MISSING_BYTES + path.as_bytes().len() as u64)?;
            self.missing.insert(path);
        }
        Ok(())
    }

    /// Returns whether an entry is an operand that the source does not have.
    pub(super) fn is_missing(&self, directory: &Directory, name: &Component) -> bool {
        !self.missing.is_empty() && self.missing.contains(&directory.path.join(name))
    }

    /// Returns the operands below a directory that the source does not have, in the order of their bytes.
    pub(super) fn missing_within(&self, path: &RelPath) -> impl Iterator<Item = &RelPath> {
        // All that begins with the path and a slash comes after this, and no other path begins so.
        let first = RelPath::parse(&[path.as_bytes(), b"/\x01"].concat()).ok();
        let from = first.into_iter().flat_map(|first| self.missing.range(first..));
        let within = [path.as_bytes(), b"/"].concat();
        from.take_while(move |missing| missing.as_bytes().starts_with(&within))
    }

    /// Returns the names in a directory that such operands have, or their directories there.
    pub(super) fn missing_names(&self, directory: &RelPath) -> Vec<Component> {
        let within = self.missing_within(directory).filter_map(|missing| missing.below(directory));
        let first = |within: RelPath| Component::new(within.components().next()?).ok();
        let mut names: Vec<Component> = within.filter_map(first).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns whether a directory is the user's home directory, and nothing is removed in it.
    pub(super) fn is_home(&self, inode: impl FnOnce() -> Option<(u64, u64)>) -> bool {
        self.home.is_some() && self.home == inode()
    }

    /// Returns whether a directory belongs to the run's backups, which the source may have a
    /// directory for.
    pub(super) fn is_own(&mut self, path: &RelPath, dir: &Dir) -> bool {
        let below = |own: &RelPath| own.components().zip(path.components()).all(|(a, b)| a == b);
        let within = |own: &RelPath| own.depth() <= path.depth() && below(own);
        if self.own_paths.iter().any(within) {
            return true;
        }

        let inode = || dir.metadata().ok().map(|now| (now.dev, now.ino));
        let is_own = !path.is_root() && self.own.has_whole(dir) && !self.is_home(inode);
        if is_own {
            self.own_paths.push(path.clone());
        }
        is_own
    }

    /// Returns the destination's entry of a name: a directory where a link leads to one.
    ///
    /// # Errors
    /// Of a link that may neither be followed nor give way, which is the operator's to decide.
    pub(super) fn through_own_link(
        &self,
        (directory, name): (&Directory, &Component),
        existing: Option<Metadata>,
        protection: &Protection,
    ) -> io::Result<Option<Metadata>> {
        let is_link = existing.as_ref().is_some_and(|existing| existing.kind == Kind::Symlink);
        let (Some(dir), Some(root), true) = (&directory.dir, self.root(), is_link) else {
            return Ok(existing);
        };

        match dir.open_child_or_own_link(name, root) {
            Ok(opened) => {
                protection.note_led_to(root, &opened);
                Ok(opened.metadata().ok().or(existing))
            }
            Err(error) if UntrustedLink::of(&error).is_some_and(UntrustedLink::is_in_a_directorys_place) => {
                Err(error)
            }
            Err(_) => Ok(existing),
        }
    }

    /// Sets the attributes of a directory that the source does not list.
    pub(super) fn settle_unlisted(&self, site: &Site<'_>, announced: &Announced) -> Result<(), SyncError> {
        let dirty = match announced.state {
            Presence::New => true,
            Presence::Old { dirty } => dirty,
            Presence::Imagined | Presence::Ignored | Presence::Covered => false,
        };
        if !dirty {
            return Ok(());
        }
        let path = announced.path.to_path();
        match self.open_beneath(&path) {
            Ok(dir) => settle(site, &path, Some(&dir), announced.wanted.as_ref()),
            Err(_) => Ok(()),
        }
    }
}

/// Memory of a path in a set, besides its bytes: nodes are at least half full.
const MISSING_BYTES: u64 = (2 * size_of::<RelPath>() + ALLOCATION) as u64;

/// Opens the directories beside an open root.
fn open_beside(
    site: &Site<'_>,
    root: &Arc<Dir>,
    around: &Around<'_>,
) -> Result<Option<Alternates>, SyncError> {
    let own = around.own;
    let policy = &site.policy.options.writing;
    // A directory that cannot be looked at is no place of the run's.
    let _ = own.add(root);
    site.own.add_to(own);
    if let Some(Ok(state)) = site.session.state.as_ref().map(State::directory) {
        let _ = own.add_whole(&state);
    }

    let open = |options| Alternates::open(options, root, Path::new(""));
    let alternates = policy.alternates.as_ref().map(open).transpose()?;
    let roots = alternates.iter().flat_map(Alternates::roots);
    roots.for_each(|dir| _ = own.add(dir));

    if let Some(backup) = &policy.backup {
        let _ = backup::add_tree(root, backup, own);
    }
    site.homes.open(root, own)?;
    if let Some(dir) = policy.backup.as_ref().and_then(|backup| backup.dir.as_deref()) {
        let path = Path::new(OsStr::from_bytes(dir));
        let opened = root.open_operand_here(path);
        let is_root = opened.as_ref().is_ok_and(|dir| dir.is_same(root).unwrap_or(false));
        if is_root && policy.backup.as_ref().is_some_and(|backup| backup.suffix.is_empty()) {
            let why = "it is the destination itself, where a backup without a suffix has its original's name";
            return Err(refused_places::unusable(PathRole::Backups, path, io::Error::other(why)));
        }
        refused_places::refuse(PathRole::Backups, path, opened)?;
    }

    match site.hands {
        Hands::Working => prepare(site, root, around)?,
        Hands::Idle(_) => {}
    }
    Ok(alternates)
}

/// Prepares the places that the run writes into beside its tree.
fn prepare(site: &Site<'_>, root: &Arc<Dir>, around: &Around<'_>) -> Result<(), SyncError> {
    let policy = &site.policy.options.writing;
    site.homes.prepare(root, around)?;
    if policy.delay_updates {
        let _ = site.delayed.set(Delayed::new(root));
    }
    let options = &site.policy.options;
    let late_work =
        options.hard_links || options.delete || options.delete_missing_args || policy.delay_updates;
    let _ = site.locked.set(Locked::new(root, around.spools, late_work));
    let budget = &site.session.budget;
    if let Some(keep) = &site.keep {
        let _ = site.backups.set(Backups::kept(root, keep, around.own, budget));
    } else if let Some(backup) = &policy.backup {
        let backups = Backups::new(root, backup, around.own, budget).since(site.session.begun);
        // A run that was killed may have left temporaries there.
        let reaps = lock(&site.tenure).follows_killed();
        let _ = site.backups.set(if reaps { backups.reaping() } else { backups });
    }
    Ok(())
}

/// Opens the alternate directories of a root that does not exist.
fn alternates_of_missing(
    site: &Site<'_>,
    start: &Start,
    target: &Target,
) -> Result<Option<Alternates>, SyncError> {
    let Some(options) = &site.policy.options.writing.alternates else { return Ok(None) };
    let Some((base, below)) = target.missing(&site.policy.options, start) else { return Ok(None) };
    Alternates::open(options, &base, &below).map(Some)
}

/// Notes the user's home directory as one in which nothing is removed, unless that is insisted on. Returns its
/// filesystem and inode number.
fn note_home(options: &SyncOptions, own: &OwnPlaces) -> Option<(u64, u64)> {
    let removes = options.delete || options.delete_missing_args || options.force;
    let home = guard::home().filter(|_| removes && !options.force_root)?;
    own.add_whole(&home).ok()?;
    home.metadata().ok().map(|now| (now.dev, now.ino))
}
