//! Backups of the entries that the run replaces or removes (`-b`).
//!
//! The law: nothing old moves before its backup stands. An entry loses its name only after
//! [`secure`](super::secure::secure) has agreed. A directory is emptied into its backup under its
//! own name, so that entries that cannot be kept stay in their place.
//!
//! Without a directory of its own a backup stays in its directory under another name. Names that
//! end like backups are never removed then. A name that the source has itself is the source's: the
//! backup gets the suffix once more. So does the backup of an entry that itself ends like one, where
//! this run has the name in use.
//!
//! With a directory, the backups form a tree of the same shape, whose directories are made when they
//! are needed and look like the originals; below the destination that tree is left alone. Such a
//! directory admits nobody whom the original does not, so one that cannot get the original's list is its
//! owner's alone.
//!
//! The client hears of each attribute that a backup, or a directory of backups, could not get from its
//! original, as it does for any other entry.
//!
//! Entries that a client's role keeps form a tree as well, out of the client's reach: its shape is that of the
//! grant's directory, of which the destination is a part.
//!
//! A file that is rewritten in place is copied first. If it has several names, the backup of a later
//! one is a copy of the first one's, because the file may be new by then.

use std::{
    borrow::Borrow,
    collections::{HashMap, HashSet},
    ffi::OsStr,
    io,
    ops::Deref,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, atomic::AtomicBool},
};

use dsync_fs::{
    BackupPlace, Component, Dir, ExtendedScope, Kind, OwnPlaces, RelPath, Timestamp, Wanted, Withheld,
    is_abandoned,
};
use dsync_wire::{
    budget::{Budget, Held, OverBudget, Share},
    options::{Backup, WritePolicy},
};

use crate::{halt::lock, keep::Keep};

/// The backups of replaced and removed entries.
pub(super) struct Backups {
    /// The destination's root.
    root: Arc<Dir>,
    tree: Tree,
    suffix: Vec<u8>,
    /// Backups that were made since then are this run's, of a session that broke.
    since: Option<Timestamp>,
    /// A killed run may have left temporaries.
    reaps: bool,
    opened: Mutex<Opened>,
    /// The run's own places, among which the tree is from the moment that it is there.
    own: Arc<OwnPlaces>,
    claimed: RwLock<Claimed>,
    given: Mutex<Given>,
    copied: Mutex<Copied>,
    before: Mutex<Before>,
}

/// The place of the backups.
enum Tree {
    /// Each stays in its directory.
    Beside,
    /// In a tree at this path.
    At(PathBuf),
    /// In a tree that the client cannot reach, under the paths from the grant's directory on. The
    /// session's directory is open, and so held, from the first entry on.
    Kept(Arc<Keep>, OnceLock<Arc<Dir>>),
}

/// Names of the source that end like backups in their directory, and the memory for them.
struct Claimed {
    paths: HashSet<RelPath>,
    held: Held,
}

/// The entries whose backups two entries could want to have one name, by the path of the backup,
/// and the memory for them.
struct Given {
    to: HashMap<RelPath, Component>,
    held: Held,
}

/// The first backup of each file of several names that is rewritten in place, and the memory for
/// them.
struct Copied {
    firsts: HashMap<(u64, u64), FirstBackup>,
    held: Held,
}

/// The first backup of a file of several names, from which those of the other names are copied.
struct FirstBackup {
    /// Its directory, as a path of the destination.
    directory: RelPath,
    name: Component,
    /// The attributes that it lacks of the file, and so do its copies.
    withheld: Withheld,
}

impl Copied {
    /// Takes the memory for one more first backup.
    fn reserve(&mut self, path: &RelPath) -> io::Result<()> {
        let bytes = (path.as_bytes().len() + COPY_BYTES) as u64;
        self.held.grow(bytes).map_err(io::Error::other)
    }
}

/// The access to directories that the run has changed as it was before, and the memory for it.
struct Before {
    access: HashMap<RelPath, Wanted>,
    held: Held,
}

/// The place of one backup. While it exists the source claims no name, so the place stays a
/// backup's.
pub(super) struct SafePlace<'a> {
    place: BackupPlace,
    /// Its path as the options name it, if the client may know.
    shown: Option<Vec<u8>>,
    /// The directories that were made for it and lack something of their originals.
    lacking: Vec<LackingTwin>,
    _claimed: RwLockReadGuard<'a, Claimed>,
}

impl Deref for SafePlace<'_> {
    type Target = BackupPlace;

    fn deref(&self) -> &BackupPlace {
        &self.place
    }
}

/// A directory of backups that lacks something of its original.
pub(super) struct LackingTwin {
    /// Its path as the options name it.
    pub(super) path: Vec<u8>,
    pub(super) withheld: Withheld,
}

impl SafePlace<'_> {
    /// Takes the directories that were made for the place and lack something of their originals.
    pub(super) fn take_lacking(&mut self) -> Vec<LackingTwin> {
        std::mem::take(&mut self.lacking)
    }

    /// Returns the place with a way to stop a long copy to it.
    pub(super) fn until(self, stopped: &Arc<AtomicBool>) -> Self {
        Self { place: self.place.until(stopped), ..self }
    }

    /// Returns the backup's path as the options name it; `None` if the client may not know it.
    pub(super) fn shown(&self) -> Option<&[u8]> {
        self.shown.as_deref()
    }
}

/// The tree of backups once it is open.
#[derive(Default)]
struct Opened {
    root: Option<Arc<Dir>>,
    /// The last directory that was asked for.
    last: Option<(RelPath, Arc<Dir>)>,
}

impl Backups {
    pub(super) fn new(root: &Arc<Dir>, backup: &Backup, own: &Arc<OwnPlaces>, budget: &Arc<Budget>) -> Self {
        let tree = backup.dir.as_deref().map_or(Tree::Beside, |dir| Tree::At(tree_path(dir)));
        Self::in_tree(tree, backup.suffix.clone(), (root, own), budget)
    }

    /// Leaves the backups alone that an earlier session of the run has made, which began then.
    pub(super) fn since(self, begun: Option<Timestamp>) -> Self {
        Self { since: begun, ..self }
    }

    /// Removes the temporaries of killed runs from each directory of backups before it is used.
    pub(super) fn reaping(self) -> Self {
        Self { reaps: true, ..self }
    }

    /// Makes the backups of a client's run that are kept from the client.
    pub(super) fn kept(
        root: &Arc<Dir>,
        keep: &Arc<Keep>,
        own: &Arc<OwnPlaces>,
        budget: &Arc<Budget>,
    ) -> Self {
        Self::in_tree(Tree::Kept(Arc::clone(keep), OnceLock::new()), Vec::new(), (root, own), budget)
    }

    fn in_tree(
        tree: Tree,
        suffix: Vec<u8>,
        (root, own): (&Arc<Dir>, &Arc<OwnPlaces>),
        budget: &Arc<Budget>,
    ) -> Self {
        let (root, own) = (Arc::clone(root), Arc::clone(own));
        let claimed = Claimed { paths: HashSet::new(), held: budget.nothing(Share::Paths) };
        let copied = Copied { firsts: HashMap::new(), held: budget.nothing(Share::Paths) };
        let (claimed, copied) = (RwLock::new(claimed), Mutex::new(copied));
        let given = Mutex::new(Given { to: HashMap::new(), held: budget.nothing(Share::Paths) });
        let before = Mutex::new(Before { access: HashMap::new(), held: budget.nothing(Share::Paths) });

        Self {
            root,
            tree,
            suffix,
            since: None,
            reaps: false,
            opened: Mutex::default(),
            own,
            claimed,
            given,
            copied,
            before,
        }
    }

    /// Claims the names in one part of a directory's listing that backups beside them could have,
    /// before any entry of the part is replaced. If it is not the `last` part, the next one may have
    /// further ones: in ascending order only of entries whose names the last one begins with, of
    /// which there are few.
    pub(super) fn claim<'n>(
        &self,
        directory: &RelPath,
        names: impl DoubleEndedIterator<Item = &'n [u8]> + Clone,
        last: bool,
    ) -> Result<(), OverBudget> {
        if !matches!(self.tree, Tree::Beside) {
            return Ok(());
        }
        let own = names.clone().filter(|name| name.ends_with(&self.suffix)).map(<[u8]>::to_vec);
        let end = names.clone().next_back().filter(|_| !last).unwrap_or_default();
        let may_follow = names.filter(|name| end.starts_with(name)).flat_map(|name| {
            (1..=MOST_SUFFIXES).map(move |times| [name, &self.suffix.repeat(times)].concat())
        });

        let names: Vec<_> = own.chain(may_follow).filter_map(|name| Component::new(&name).ok()).collect();
        if names.is_empty() {
            // A backup that is being copied is not waited for.
            return Ok(());
        }
        let claimed = &mut *self.claimed.write().unwrap_or_else(PoisonError::into_inner);
        for name in names {
            let path = directory.join(&name);
            // With `--delete-before` each listing comes twice.
            if claimed.paths.contains(&path) {
                continue;
            }
            claimed.held.grow((path.as_bytes().len() + CLAIM_BYTES) as u64)?;
            claimed.paths.insert(path);
        }
        Ok(())
    }

    /// Returns the place of the backup of a directory's entry `name`.
    pub(super) fn place(
        &self,
        dir: &Arc<Dir>,
        path: &RelPath,
        name: &Component,
    ) -> io::Result<SafePlace<'_>> {
        let claimed = self.claimed.read().unwrap_or_else(PoisonError::into_inner);
        let kept = self.kept_name(path, name, &claimed)?;
        let shown = self.shown(path, &kept);
        let mut lacking = Vec::new();
        let place = match &self.tree {
            Tree::Beside => BackupPlace::new(Arc::clone(dir), kept),
            Tree::At(_) => BackupPlace::new(self.twin(path, &mut lacking)?, kept).over_older(&self.own),
            // No backup replaces another one there.
            Tree::Kept(..) => BackupPlace::new(self.twin(path, &mut lacking)?, kept),
        };
        Ok(SafePlace { place: place.since(self.since), shown, lacking, _claimed: claimed })
    }

    /// Returns a backup's path as the options name it; `None` if the client may not know it.
    fn shown(&self, path: &RelPath, kept: &Component) -> Option<Vec<u8>> {
        self.shown_path(&path.join(kept))
    }

    /// Returns the path of what stands for `below` among the backups as the options name it; `None` if the
    /// client may not know it.
    fn shown_path(&self, below: &RelPath) -> Option<Vec<u8>> {
        match &self.tree {
            Tree::Beside => Some(below.as_bytes().to_vec()),
            Tree::At(tree) => {
                let tree = tree.strip_prefix(".").unwrap_or(tree);
                Some(tree.join(OsStr::from_bytes(below.as_bytes())).into_os_string().into_vec())
            }
            Tree::Kept(..) => None,
        }
    }

    /// Returns whether a backup may take the place of an older one.
    pub(super) fn replace_older(&self) -> bool {
        !matches!(self.tree, Tree::Kept(..))
    }

    /// Notes who may do what in a directory, which `open` opens, before it gets `wanted`: its directory of
    /// backups is to admit no more.
    pub(super) fn note_access<D: Borrow<Dir>>(
        &self,
        path: &RelPath,
        wanted: &Wanted,
        open: impl FnOnce() -> io::Result<D>,
    ) {
        let Before { access, held } = &mut *lock(&self.before);
        if !matches!(self.tree, Tree::At(_)) || access.contains_key(path) {
            return;
        }
        let Ok(now) = open().and_then(|dir| access_to(dir.borrow())) else { return };
        // Without the memory the directory of backups gets those of then.
        let bytes = (path.as_bytes().len() + ACCESS_BYTES) as u64;
        if changes_access(&now, wanted) && held.grow(bytes).is_ok() {
            access.insert(path.clone(), now);
        }
    }

    /// Copies the entry `name` of `dir` to the place of its backup: it is about to be written into. Returns
    /// what the backup lacks.
    pub(super) fn copy(
        &self,
        place: &BackupPlace,
        dir: &Dir,
        path: &RelPath,
        name: &Component,
    ) -> io::Result<Withheld> {
        let Some(key) = inode_of_several(dir, name) else { return place.copy(dir, name) };

        // Until the first copy is complete, no other name of the file is written into.
        let copied = &mut *lock(&self.copied);
        if let Some(first) = copied.firsts.get(&key) {
            if first.directory == *path && first.name == *place.name() {
                return Ok(Withheld::default());
            }
            let withheld = place.copy(&*self.home(&first.directory)?, &first.name)?;
            return Ok(withheld.or(first.withheld));
        }

        copied.reserve(path)?;
        let withheld = place.copy(dir, name)?;
        let first = FirstBackup { directory: path.clone(), name: place.name().clone(), withheld };
        copied.firsts.insert(key, first);
        Ok(withheld)
    }

    /// Notes that an earlier run has copied the entry `name` of `dir` to the place of its backup, and was killed
    /// while it wrote into it: further names of the file are backed up from there.
    pub(super) fn note_copied(
        &self,
        place: &BackupPlace,
        dir: &Dir,
        path: &RelPath,
        name: &Component,
    ) -> io::Result<()> {
        let Some(key) = inode_of_several(dir, name) else { return Ok(()) };
        let copied = &mut *lock(&self.copied);
        copied.reserve(path)?;
        copied.firsts.entry(key).or_insert_with(|| {
            // That run has told what it lacks.
            let withheld = Withheld::default();
            FirstBackup { directory: path.clone(), name: place.name().clone(), withheld }
        });
        Ok(())
    }

    /// Opens the directory that has the backups of a directory's entries.
    fn home(&self, path: &RelPath) -> io::Result<Arc<Dir>> {
        if !matches!(self.tree, Tree::Beside) {
            // It was made for the backup that it has.
            return self.twin(path, &mut Vec::new());
        }
        let mut home = Arc::clone(&self.root);
        for name in path.components() {
            home = Arc::new(home.open_child(&component(name)?)?);
        }
        Ok(home)
    }

    /// Returns the name of an entry's backup, the same one whenever it is asked for.
    fn kept_name(&self, path: &RelPath, name: &Component, claimed: &Claimed) -> io::Result<Component> {
        let first = self.with_suffix(name)?;
        let may_clash = name.as_bytes().ends_with(&self.suffix) || claimed.paths.contains(&path.join(&first));
        if !matches!(self.tree, Tree::Beside) || !may_clash {
            return Ok(first);
        }

        let given = &mut *lock(&self.given);
        let mut kept = first;
        loop {
            let place = path.join(&kept);
            match given.to.get(&place) {
                Some(other) if other == name => return Ok(kept),
                None if !claimed.paths.contains(&place) => {
                    let bytes = (place.as_bytes().len() + GIVEN_BYTES) as u64;
                    given.held.grow(bytes).map_err(io::Error::other)?;
                    given.to.insert(place, name.clone());
                    return Ok(kept);
                }
                _ => kept = self.with_suffix(&kept)?,
            }
        }
    }

    /// Returns a name with the suffix; an error for one that is too long for it.
    fn with_suffix(&self, name: &Component) -> io::Result<Component> {
        let longer = [name.as_bytes(), &self.suffix].concat();
        Component::new(&longer).map_err(|error| io::Error::new(io::ErrorKind::InvalidFilename, error))
    }

    /// Opens the directory of the tree that stands for a directory of the destination. Adds to `lacking`
    /// those on the way that it makes without all that they should have.
    fn twin(&self, path: &RelPath, lacking: &mut Vec<LackingTwin>) -> io::Result<Arc<Dir>> {
        let mut opened = lock(&self.opened);
        if let Some((known, dir)) = &opened.last
            && known == path
        {
            return Ok(Arc::clone(dir));
        }
        let root = match &opened.root {
            Some(root) => Arc::clone(root),
            None => Arc::clone(opened.root.insert(self.open_tree()?)),
        };

        let mut twin = root;
        // In a kept tree, which is private as a whole, each directory is its user's alone.
        let alike = matches!(self.tree, Tree::At(_));
        let mut original = alike.then(|| Arc::clone(&self.root));
        let mut original_path = RelPath::root();
        for name in path.components() {
            let name = component(name)?;
            original_path = original_path.join(&name);
            original = original.and_then(|dir| dir.open_child(&name).ok()).map(Arc::new);
            let access = || match lock(&self.before).access.get(&original_path) {
                Some(before) => Ok(Some(before.clone())),
                None => original.as_deref().map(access_to).transpose(),
            };
            let (opened, withheld) = open_twin(&twin, &name, access)?;
            twin = Arc::new(opened);
            if withheld != Withheld::default()
                && let Some(path) = self.shown_path(&original_path)
            {
                lacking.push(LackingTwin { path, withheld });
            }
        }

        if self.reaps {
            reap(&twin);
        }
        opened.last = Some((path.clone(), Arc::clone(&twin)));
        Ok(twin)
    }

    /// Opens the tree, and makes it if it is missing. In the destination that counts as no change
    /// of the destination.
    fn open_tree(&self) -> io::Result<Arc<Dir>> {
        let tree = match &self.tree {
            Tree::Beside => return Ok(Arc::clone(&self.root)),
            Tree::Kept(keep, session) => return self.open_kept(keep, session),
            Tree::At(tree) => tree,
        };
        let before = self.root.metadata()?.mtime;
        let opened = self.root.create_operand_here(tree, true)?;
        self.own.add_whole(&opened)?;
        // There each entry would be its own backup.
        if self.suffix.is_empty() && opened.is_same(&self.root)? {
            return Err(io::ErrorKind::InvalidFilename.into());
        }
        if self.root.metadata()?.mtime != before {
            self.root.set_own_attributes(&Wanted { mtime: Some(before), ..Wanted::default() })?;
        }
        Ok(Arc::new(opened))
    }

    /// Makes the session's directory of kept entries. Returns the one in it that stands for the root:
    /// an entry is kept under its path in the grant's directory, wherever in it the run's destination
    /// is.
    fn open_kept(&self, keep: &Keep, session: &OnceLock<Arc<Dir>>) -> io::Result<Arc<Dir>> {
        let session = match session.get() {
            Some(session) => session,
            None => {
                let begun = keep.begin(self.root.meter())?;
                session.get_or_init(|| begun)
            }
        };

        let mut twin = Arc::clone(session);
        for name in self.root.path_from_floor().components() {
            let (opened, _) = open_twin(&twin, &component(name)?, || Ok(None))?;
            twin = Arc::new(opened);
        }
        Ok(twin)
    }
}

/// Suffixes of one name that are thought of.
const MOST_SUFFIXES: usize = 4;
/// Memory for a claimed name beside its path: an entry of a set that has just doubled, and an
/// allocation.
const CLAIM_BYTES: usize = 3 * size_of::<RelPath>() + 32;

/// Memory for a name that is given beside its path: as above, and another name.
const GIVEN_BYTES: usize = 256 + 3 * size_of::<(RelPath, Component)>() + 32;

/// Memory for the access to a directory beside its path: lists of some entries.
const ACCESS_BYTES: usize = 512 + 3 * size_of::<(RelPath, Wanted)>();

/// Memory for a first backup beside its path: its name, and an entry of a map that has just doubled.
const COPY_BYTES: usize = 256 + 3 * size_of::<((u64, u64), FirstBackup)>();

/// Returns filesystem and number of a file that has several names.
fn inode_of_several(dir: &Dir, name: &Component) -> Option<(u64, u64)> {
    let several = dir.stat(name).ok().filter(|now| now.kind == Kind::File && now.nlink > 1)?;
    Some((several.dev, several.ino))
}

fn component(name: &[u8]) -> io::Result<Component> {
    Component::new(name).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Removes the temporaries of killed runs, which were copying a backup to another filesystem or from a file
/// that is rewritten.
fn reap(dir: &Dir) {
    for (name, _) in dir.list().entries {
        if is_abandoned(dir, &name) {
            let _ = dir.remove_file(&name);
        }
    }
}

/// Opens a directory of backups, and makes it with this access if it is missing; its owner may work in it all
/// the same. Another entry of its name gives way: it is a backup from before the directory existed. Returns
/// what the directory lacks of the access.
fn open_twin(
    parent: &Dir,
    name: &Component,
    access: impl FnOnce() -> io::Result<Option<Wanted>>,
) -> io::Result<(Dir, Withheld)> {
    let open = || parent.open_unlocked(name).map(|(dir, _)| dir);
    let is_in_the_way = match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) if parent.stat(name).is_ok_and(|now| now.kind != Kind::Dir) => {
            tracing::debug!(%error, "an older backup gives way to a directory");
            true
        }
        opened => return opened.map(|dir| (dir, Withheld::default())),
    };

    // First, since a directory that is there is not looked at again.
    let access = access()?;
    if is_in_the_way {
        parent.remove_file(name)?;
    }
    parent.make_dir(name, 0o700)?;
    let made = parent.open_child(name)?;
    let Some(access) = access else { return Ok((made, Withheld::default())) };

    let withheld = admit(&made, &access)?;
    open().map(|dir| (dir, withheld))
}

/// Sets the access of a new directory of backups. Its group and all others get theirs last, and no more of it
/// than they have in the original. Returns what the directory lacks.
fn admit(made: &Dir, access: &Wanted) -> io::Result<Withheld> {
    let mode = access.mode.unwrap_or_default();
    let of_owner = mode & !0o077;
    let withheld = made.set_own_attributes(&Wanted { mode: Some(of_owner), ..access.clone() })?;
    // Without its list nobody knows who else may enter.
    if withheld.extended.is_some() {
        return Ok(withheld);
    }

    let (group, others) = (mode >> 3 & 0o7, mode & 0o7);
    let both = group & others;
    // Members of another group are others there, and the other way round.
    let is_same_group = Some(made.metadata()?.gid) == access.gid;
    let admitted = if is_same_group { mode } else { of_owner | both << 3 | both };
    let after = made.set_own_attributes(&Wanted { mode: Some(admitted), ..access.clone() })?;
    Ok(after.or(withheld))
}

/// Adds the tree of backups to the run's own places if it is there already.
pub(super) fn add_tree(root: &Dir, backup: &Backup, own: &OwnPlaces) -> io::Result<()> {
    match backup.dir.as_deref().map(|tree| root.open_operand_here(&tree_path(tree))) {
        Some(Ok(tree)) => own.add_whole(&tree),
        // A tree that cannot be opened is reported when something is to be kept there.
        Some(Err(_)) | None => Ok(()),
    }
}

fn tree_path(dir: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(dir))
}

/// Returns the attributes that decide who may do what in a directory.
fn access_to(dir: &Dir) -> io::Result<Wanted> {
    let now = dir.metadata()?;
    // Without its list a directory's mode admits more than the list does.
    let lists = dir.own_extended(ExtendedScope { acls: true, ..ExtendedScope::default() })?;
    let (mode, uid, gid) = (Some(now.mode), Some(now.uid), Some(now.gid));
    Ok(Wanted { mode, uid, gid, extended: Some(Arc::new(lists)), ..Wanted::default() })
}

/// Returns whether a directory with this access gets another one.
fn changes_access(now: &Wanted, wanted: &Wanted) -> bool {
    let lists = |of: &Wanted| of.extended.as_ref().and_then(|extended| extended.acls.clone());
    let differs = |now, wanted: Option<u32>| wanted.is_some() && now != wanted;
    wanted.mode.is_some() && now.mode != wanted.mode
        || differs(now.uid, wanted.uid)
        || differs(now.gid, wanted.gid)
        || lists(wanted).is_some_and(|wanted| lists(now).as_ref() != Some(&wanted))
}

/// Backups that stay in their directory, which are never removed.
#[derive(Clone, Default)]
pub(super) struct Kept(Option<Vec<u8>>);

impl Kept {
    pub(super) fn of(policy: &WritePolicy) -> Self {
        let beside = policy.backup.as_ref().filter(|backup| backup.dir.is_none());
        Self(beside.map(|backup| backup.suffix.clone()))
    }

    /// Returns whether there are such backups.
    pub(super) fn stay_beside(&self) -> bool {
        self.0.is_some()
    }

    /// Returns whether this is the name of a backup, directories included: files in one would be
    /// renamed in it, not kept.
    pub(super) fn covers(&self, path: &RelPath) -> bool {
        let named = |suffix: &Vec<u8>| path.as_bytes().ends_with(suffix);
        self.0.as_ref().is_some_and(named)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn names() -> impl Strategy<Value = BTreeSet<String>> {
        prop::collection::btree_set("[ab!\u{e9}]{1,3}~{0,3}", 1..40)
    }

    proptest! {
        /// However a listing is cut into parts, every backup of an entry whose part has come has a
        /// name that no entry of the listing has, and no other backup.
        #[test]
        fn no_backup_has_a_name_of_the_source(names in names(), length in 1_usize..10) {
            let scratch = tempfile::tempdir().unwrap();
            let root = Arc::new(Dir::open_operand(scratch.path()).unwrap());
            let backup = Backup::new(b"~".to_vec());
            let backups = Backups::new(&root, &backup, &Arc::default(), &Arc::default());
            let directory = RelPath::root();

            let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
            let mut given = BTreeSet::new();
            let parts = names.chunks(length).count();
            for (number, part) in names.chunks(length).enumerate() {
                backups.claim(&directory, part.iter().copied(), number + 1 == parts).unwrap();
                for name in part {
                    let name = Component::new(name).unwrap();
                    let place = backups.place(&root, &directory, &name).unwrap();
                    let kept = place.name().as_bytes().to_vec();
                    prop_assert!(!names.contains(&&kept[..]), "{kept:?}");
                    prop_assert!(given.insert(kept));
                }
            }
        }
    }
}
