//! A destination directory while work in it is pending.
//!
//! Making or renaming an entry changes the directory's own time, so its attributes are set when the
//! last pending piece of work in it is done. A directory that needs deletions or hard links is set
//! after those instead.

use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use dsync_fs::{Dir, Extended, ExtendedScope, RelPath, SharedPath, Timestamp, Wanted};
use dsync_wire::{budget::Held, message::Operation};

use super::{
    Site, locked,
    records::{push_counted, take, take_counted},
    site::cause,
};
use crate::{SyncError, halt::lock, plan::SETGID};

/// One directory in work.
pub(super) struct Directory {
    /// Path from the destination's root.
    pub(super) path: RelPath,
    /// The same, for the paths of its directories.
    pub(super) shared: SharedPath,
    /// Memory for its path and its attributes.
    _held: (Option<Held>, Option<Arc<Held>>),
    /// The open directory; `None` in a dry run where it does not exist.
    pub(super) dir: Option<Arc<Dir>>,
    /// Attributes it gets in the end; `None` for one that the source did not announce.
    wanted: Option<Wanted>,
    /// Pending pieces of work: files in flight, and one while it is being planned.
    pending: AtomicU64,
    /// Whether its attributes must be set even if nothing in it changes.
    dirty: AtomicBool,
    /// Whether deletions or hard links in it are still to come.
    deferred: AtomicBool,
    /// Whether entries that arrived in it get their names at the end of the run.
    delayed: AtomicBool,
    /// Whether it has a directory of unfinished files.
    has_parts: AtomicBool,
    /// Whether a deletion removes that directory and lists it.
    parts_go: AtomicBool,
    /// Whether no earlier run has left notes of half-written files in it.
    lacks_notes: AtomicBool,
    /// The permissions that its default list leaves to new entries, once they were asked for.
    allowed_mode: OnceLock<Option<u16>>,
    /// The permission bits that new directories in it take over, once they were asked for.
    inherited_mode: OnceLock<u16>,
}

impl Directory {
    /// Makes the state of a directory whose planning starts.
    pub(super) fn new(
        shared: SharedPath,
        dir: Option<Arc<Dir>>,
        wanted: Option<Wanted>,
        dirty: bool,
    ) -> Self {
        Self {
            path: shared.to_path(),
            shared,
            _held: (None, None),
            dir,
            wanted,
            pending: AtomicU64::new(1),
            dirty: AtomicBool::new(dirty),
            deferred: AtomicBool::new(false),
            delayed: AtomicBool::new(false),
            has_parts: AtomicBool::new(false),
            parts_go: AtomicBool::new(false),
            lacks_notes: AtomicBool::new(false),
            allowed_mode: OnceLock::new(),
            inherited_mode: OnceLock::new(),
        }
    }

    /// Keeps the memory for its path and for its attributes until it is gone.
    pub(super) fn holding(mut self, path: Held, attributes: Option<Arc<Held>>) -> Self {
        self._held = (Some(path), attributes);
        self
    }

    /// Adds a piece of work.
    pub(super) fn hold(&self) {
        self.pending.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that something in it was made, replaced or removed.
    pub(super) fn touch(&self) {
        self.dirty.store(true, Ordering::Release);
    }

    /// Returns it for a temporary that is made in it next: its time is set again at the end, also if no file comes
    /// of that.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] for a directory that is only imagined.
    pub(super) fn for_temporary(&self) -> io::Result<&Arc<Dir>> {
        let dir = self.dir.as_ref().ok_or(io::ErrorKind::NotFound)?;
        self.touch();
        Ok(dir)
    }

    /// Returns the permissions that its default list leaves to new entries: the list that the run gives
    /// it, if it gives it any lists. `None` when it has no such list, or it cannot be read.
    pub(super) fn allowed_mode(&self) -> Option<u16> {
        *self.allowed_mode.get_or_init(|| {
            let given = self.wanted.as_ref().and_then(|wanted| wanted.extended.as_ref()?.acls.clone());
            let scope = ExtendedScope { acls: true, ..ExtendedScope::default() };
            let present = || self.dir.as_ref()?.own_extended(scope).ok()?.acls;
            given.or_else(present)?.default.map(|list| list.mode())
        })
    }

    /// Returns the permission bits that new directories in it take over, as the kernel does for its
    /// own.
    pub(super) fn inherited_mode(&self) -> u16 {
        *self.inherited_mode.get_or_init(|| {
            let metadata = self.dir.as_ref().and_then(|dir| dir.metadata().ok());
            metadata.map_or(0, |metadata| metadata.mode & SETGID)
        })
    }

    /// Notes that it has a directory of unfinished files, which is removed in the end if it is
    /// empty.
    pub(super) fn note_parts(&self) {
        self.has_parts.store(true, Ordering::Release);
    }

    /// Notes that the run has made that directory: no deletion knows of it.
    pub(super) fn note_new_parts(&self) {
        self.parts_go.store(false, Ordering::Release);
        self.note_parts();
    }

    /// Notes that a deletion removes that directory.
    pub(super) fn leave_parts(&self) {
        self.parts_go.store(true, Ordering::Release);
    }

    /// Notes that its listing is behind all names of notes, and that there were none.
    pub(super) fn note_lack_of_notes(&self) {
        self.lacks_notes.store(true, Ordering::Release);
    }

    /// Returns whether an earlier run may have left notes of half-written files in it.
    pub(super) fn may_have_notes(&self) -> bool {
        !self.lacks_notes.load(Ordering::Acquire)
    }

    /// Notes that something in it waits for its name; then it gets its attributes after that.
    pub(super) fn delay(&self) {
        self.delayed.store(true, Ordering::Release);
    }

    /// Returns what its path takes of those that are open.
    pub(super) fn path_bytes(&self) -> u64 {
        self.shared.len() as u64
    }

    fn defer(&self) {
        self.deferred.store(true, Ordering::Release);
    }

    /// Ends a piece of work; the last one settles the directory.
    pub(super) fn release(&self, site: &Site<'_>) -> Result<(), SyncError> {
        if self.pending.fetch_sub(1, Ordering::AcqRel) > 1 {
            return Ok(());
        }
        site.open.close(self.path_bytes());
        let has_parts = self.has_parts.load(Ordering::Acquire) && !self.parts_go.load(Ordering::Acquire);
        if has_parts && self.dir.as_ref().is_some_and(|dir| site.hands.reap(|| site.homes.tidy(dir))) {
            self.touch();
        }
        if self.delayed.load(Ordering::Acquire) {
            let Some(delayed) = site.delayed.get() else { return Ok(()) };
            let mut record = Vec::new();
            Deferred::new(self).encode(&mut record);
            return delayed.push_directory(&record);
        }
        if self.deferred.load(Ordering::Acquire) || !self.dirty.load(Ordering::Acquire) {
            return Ok(());
        }
        settle(site, &self.path, self.dir.as_deref(), self.wanted.as_ref())
    }
}

/// A directory whose attributes are set once the postponed work in it is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Deferred {
    /// Path from the destination's root.
    pub(super) path: RelPath,
    /// Attributes it gets in the end.
    pub(super) wanted: Option<Wanted>,
}

impl Deferred {
    /// Puts the attributes of a directory off.
    pub(super) fn new(directory: &Directory) -> Self {
        directory.defer();
        Self { path: directory.path.clone(), wanted: directory.wanted.clone() }
    }

    /// Encodes path and attributes; integers are in this machine's byte order, because the record
    /// never leaves the process.
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        push_counted(bytes, self.path.as_bytes());
        let wanted = self.wanted.clone().unwrap_or_default();
        let mtime = wanted.mtime.map(|time| (time.seconds, time.nanoseconds));
        for field in [wanted.mode.map(u32::from), wanted.uid, wanted.gid, mtime.map(|(_, n)| n)] {
            bytes.push(u8::from(field.is_some()));
            bytes.extend(field.unwrap_or(0).to_ne_bytes());
        }
        bytes.extend(mtime.map_or(0, |(seconds, _)| seconds).to_ne_bytes());
        let extended = wanted.extended.map_or_else(Vec::new, |extended| extended.to_bytes());
        push_counted(bytes, &extended);
    }

    /// Takes what [`encode`](Self::encode) wrote from the front of `rest`.
    pub(super) fn decode(rest: &mut &[u8]) -> Option<Self> {
        let path = RelPath::parse(take_counted(rest)?).ok()?;
        let mut field = || {
            let [present] = take(rest)?;
            let value = u32::from_ne_bytes(take(rest)?);
            Some((present == 1).then_some(value))
        };
        let (mode, uid, gid, nanoseconds) = (field()?, field()?, field()?, field()?);
        let seconds = i64::from_ne_bytes(take(rest)?);
        let wanted = Wanted {
            mode: mode.and_then(|mode| u16::try_from(mode).ok()),
            mtime: nanoseconds.map(|nanoseconds| Timestamp { seconds, nanoseconds }),
            // Directories keep theirs.
            atime: None,
            uid,
            gid,
            extended: match take_counted(rest)? {
                [] => None,
                bytes => Some(Arc::new(Extended::from_bytes(bytes)?)),
            },
        };
        Some(Self { path, wanted: Some(wanted) })
    }
}

/// The directory that was opened last: postponed work in one directory often comes in a row.
#[derive(Default)]
pub(super) struct LastOpened(Option<(RelPath, Arc<Dir>)>);

impl LastOpened {
    /// Opens a directory of the destination by its path.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn open(&mut self, root: &Dir, path: &RelPath) -> io::Result<Arc<Dir>> {
        if let Some((last, dir)) = &self.0
            && last == path
        {
            return Ok(Arc::clone(dir));
        }
        let dir = Arc::new(root.open_beneath(path)?);
        self.0 = Some((path.clone(), Arc::clone(&dir)));
        Ok(dir)
    }
}

/// Sets a directory's final attributes, or notes them when the permissions would keep its owner
/// from work that is still to come.
pub(super) fn settle(
    site: &Site<'_>,
    path: &RelPath,
    dir: Option<&Dir>,
    wanted: Option<&Wanted>,
) -> Result<(), SyncError> {
    let (Some(dir), Some(wanted)) = (dir, wanted) else { return Ok(()) };
    let unlocked = site.locked.get().and_then(|locked| Some((locked, locked.unlocked(wanted)?)));
    let Some((locked, mode)) = unlocked else { return dress(site, path, dir, wanted) };

    let mut record = Vec::new();
    Deferred { path: path.clone(), wanted: Some(wanted.clone()) }.encode(&mut record);
    locked.note(path, &record)?;
    dress(site, path, dir, &Wanted { mode: Some(mode), extended: None, ..wanted.clone() })
}

/// Sets the attributes of the directories that keep their owner out. Nothing below them is opened
/// by path after that.
pub(super) fn settle_locked(site: &Site<'_>) -> Result<(), SyncError> {
    let Some(locked) = site.locked.get() else { return Ok(()) };
    locked.take(|depth, mut record| {
        let Deferred { path, wanted } = Deferred::decode(&mut record).ok_or_else(locked::damaged)?;
        let Some(wanted) = wanted.filter(|_| locked::depth(&path) == depth) else { return Ok(()) };
        match locked.root().open_beneath(&path) {
            Ok(dir) => dress(site, &path, &dir, &wanted),
            // Deleted since, or moved away by somebody.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => site.problem(Operation::SetAttributes, &path, cause(&error)),
        }
    })
}

/// Lets other runs write to the root, which has its permissions then.
pub(super) fn leave_root(site: &Site<'_>) -> Result<(), SyncError> {
    let ended = lock(&site.tenure).end();
    ended.or_else(|error| site.problem(Operation::SetAttributes, &RelPath::root(), cause(&error)))
}

/// Sets a directory's attributes.
fn dress(site: &Site<'_>, path: &RelPath, dir: &Dir, wanted: &Wanted) -> Result<(), SyncError> {
    // A record of it has none.
    let ruled = |extended: &Arc<Extended>| Arc::new(Extended::clone(extended).ruled(&site.xattr_rules));
    let with_rules = (!site.xattr_rules.is_empty())
        .then(|| Wanted { extended: wanted.extended.as_ref().map(ruled), ..wanted.clone() });
    let wanted = with_rules.as_ref().unwrap_or(wanted);
    if let Some(backups) = site.backups.get() {
        backups.note_access(path, wanted, || Ok(dir));
    }
    match site.hands.dress_itself(dir, wanted) {
        Ok(withheld) => site.withheld(path, withheld),
        Err(error) => site.problem(Operation::SetAttributes, path, cause(&error)),
    }
}
