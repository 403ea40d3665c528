//! State that every part of the destination needs: the session, the policy, the account, and the
//! tree.
//!
//! The law: nothing here knows of files in flight, so everything that knows of them may take a
//! [`Site`].

use std::{
    collections::HashMap,
    io,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, atomic::AtomicBool},
};

use dsync_delta::Key;
use dsync_fs::{CommitError, Component, Dir, Privileges, RelPath, SpoolHome, Withheld, XattrRules};
use dsync_wire::{
    event::BackedUp,
    limits::MAX_PATH,
    link::LinkError,
    message::{Cause, Operation, Problem},
    options::{Durability, KeepPartial},
    path::EntryPath,
    version::{LACKING, LEFT_OUT},
};

use super::{
    backup::{Backups, LackingTwin, SafePlace},
    credit::OpenDirectories,
    hands::Hands,
    homes::Homes,
    known::Known,
    late::Delayed,
    locked::Locked,
    room::{Room, is_full},
    tenure::Tenure,
    wanted_rulings::WantedRulings,
};
use crate::{
    Recording, State, SyncError,
    account::{Account, Audience},
    failures::Failures,
    grant::{Excess, Start},
    halt::lock,
    keep::Keep,
    own_entries::OwnEntries,
    plan::Policy,
    session::Session,
};

/// State that all parts of the destination share.
pub(super) struct Site<'a> {
    pub(super) session: &'a Session,
    pub(super) key: Key,
    /// The source's feature bits.
    pub(super) peer_features: u64,
    pub(super) policy: Policy,
    /// The hands that change the tree.
    pub(super) hands: Hands,
    /// The rights of the client where it is a stranger.
    pub(super) start: Start,
    /// The rules by which some extended attributes are left alone here.
    pub(super) xattr_rules: XattrRules,
    pub(super) account: Account<'a>,
    pub(super) rulings: WantedRulings,
    pub(super) tree: Tree,
    /// The directories of unfinished files.
    pub(super) homes: Homes,
    pub(super) room: Room,
    pub(super) open: OpenDirectories,
    /// The place beyond the client's reach for what is replaced and removed.
    pub(super) keep: Option<Arc<Keep>>,
    /// The batch that the run is recorded in.
    pub(super) recording: Option<Recording>,
    /// Files that the run itself writes in the tree.
    pub(super) own: OwnEntries,
    /// Present when the tree is told of at the end.
    pub(super) present: Option<Known>,
    /// Present when replaced and removed entries are kept, once the root is open.
    pub(super) backups: OnceLock<Backups>,
    /// Present when names are given at the end, once the root is open.
    pub(super) delayed: OnceLock<Delayed>,
    /// Present when directories are opened again at the end, once the root is open.
    pub(super) locked: OnceLock<Locked>,
    /// The hold of the run on the destination, once the root is open.
    pub(super) tenure: Mutex<Tenure>,
}

/// Returns the system's error that an error of a commit stands for.
fn plain(source: Arc<io::Error>) -> io::Error {
    source.raw_os_error().map_or_else(|| io::Error::new(source.kind(), source), io::Error::from_raw_os_error)
}

/// The knowledge of the destination's tree.
#[derive(Default)]
pub(super) struct Tree {
    /// Its root's path, for messages.
    pub(super) root: OnceLock<PathBuf>,
    /// Its root, once that is open.
    pub(super) dir: OnceLock<Arc<Dir>>,
    /// One directory of each filesystem that was changed other than by a commit.
    pub(super) touched: Mutex<HashMap<u64, Arc<Dir>>>,
    /// Whether it had notes of half-written files.
    pub(super) had_notes: AtomicBool,
    /// The name that the only file has at the source, where it gets another one.
    pub(super) renamed_from: Arc<OnceLock<RelPath>>,
}

impl Tree {
    /// Returns whether an entry is on a read-only filesystem below a root that can be written.
    fn is_on_read_only(&self, path: &RelPath) -> bool {
        let Some(root) = self.dir.get().filter(|root| !root.is_read_only()) else { return false };
        let is_read_only = |path: &RelPath| root.open_beneath(path).is_ok_and(|dir| dir.is_read_only());
        is_read_only(path) || path.parent().is_some_and(|parent| is_read_only(&parent))
    }

    /// Returns a path below the root as a person would write it.
    fn display_path(&self, path: &RelPath) -> PathBuf {
        let below = std::ffi::OsStr::from_bytes(path.as_bytes());
        self.root.get().map_or_else(|| PathBuf::from(below), |root| root.join(below))
    }
}

impl<'a> Site<'a> {
    pub(super) fn new(
        session: &'a Session,
        key: Key,
        audience: Audience<'a>,
        (start, xattr_rules): (&Start, XattrRules),
    ) -> Self {
        let options = session.options.clone();

        Self {
            session,
            key,
            peer_features: 0,
            account: Account::new(audience, &options, session.tally.clone()),
            rulings: WantedRulings::of(&options),
            homes: Homes::new(&options.writing, start.holder(), session.halt.stop_flag()),
            room: Room::new(session.halt.stop_flag()),
            hands: Hands::of(&options, &session.budget),
            start: start.clone(),
            xattr_rules,
            policy: Policy {
                may_remove: start.may_remove(&options),
                privileged: Privileges::current().is_root() && !options.no_super
                    || options.fake_super.destination,
                options,
                umask: dsync_fs::sys::file_creation_mask(),
                adds_only: start.adds_only(),
            },
            tree: Tree::default(),
            open: OpenDirectories::new(dsync_fs::sys::nofile_limit()),
            keep: start.keep().cloned(),
            recording: None,
            own: OwnEntries::default(),
            present: None,
            backups: OnceLock::new(),
            delayed: OnceLock::new(),
            locked: OnceLock::new(),
            tenure: Mutex::default(),
        }
    }

    /// Collects what is told of the tree at the end, if it is. `own` is a file in it that is left out.
    pub(super) fn tell_tree(&mut self, spools: &SpoolHome, own: Option<(u64, u64)>) {
        self.present = Known::of(&self.policy.options, spools, own);
        self.account.failures = self.present.as_ref().map(|_| Failures::new(spools));
    }

    /// Returns how durable a name is made.
    pub(super) fn durability(&self) -> dsync_fs::Durability {
        match self.policy.options.durability {
            Durability::File => dsync_fs::Durability::File,
            Durability::None => dsync_fs::Durability::None,
            _ => dsync_fs::Durability::Batch,
        }
    }

    /// Returns whether the names of a group are synced before its files are told of, so that they
    /// are on the disk by then.
    pub(super) fn syncs_before_telling(&self) -> bool {
        self.account.tells_done() && self.durability() != dsync_fs::Durability::None
    }

    /// Checks the length of a file that is to be written.
    pub(super) fn check_length(&self, bytes: u64, path: &RelPath) -> Result<(), SyncError> {
        self.start.check_length(bytes, || path.as_bytes().into())
    }

    /// Returns whether the run has ended early.
    pub(super) fn stopped(&self) -> bool {
        self.session.halt.stopped()
    }

    /// Returns whether the source removes the files that it copied.
    pub(super) fn removes_source(&self) -> bool {
        let options = &self.policy.options;
        options.remove_source_files && !options.dry_run
    }

    /// Tells the client of an entry that has left the source.
    ///
    /// # Errors
    /// [`SyncError::NotAskedFor`] where nobody wants to hear of that.
    pub(super) fn source_removed(&self, path: EntryPath) -> Result<(), SyncError> {
        if !self.policy.options.event_removals || !self.removes_source() {
            let what = "the path of a removed file".to_owned();
            return Err(SyncError::NotAskedFor { what, rule: "the run does not ask for these" });
        }
        self.account.removed(path)
    }

    /// Returns whether the contents of files that are written are recorded, for the next run that
    /// compares contents.
    pub(super) fn records_contents(&self) -> bool {
        self.policy.options.checksum && self.session.state.as_ref().is_some_and(State::keeps_contents)
    }

    /// Changes names or attributes of a file by `change`, and keeps what this end's state knows of its content.
    pub(super) fn carrying<T>(&self, dir: &Dir, name: &Component, change: impl FnOnce() -> T) -> T {
        match (&self.session.state, &self.hands) {
            (Some(state), Hands::Working) => state.carry(dir, name, change),
            _ => change(),
        }
    }

    /// Returns whether the source removes an entry. `sent`: whether this run brought it.
    pub(super) fn removes(&self, sent: bool) -> bool {
        self.removes_source() && (sent || !self.policy.options.remove_sent_only)
    }

    /// Returns a path below the root as a person would write it.
    pub(super) fn display_path(&self, path: &RelPath) -> PathBuf {
        self.tree.display_path(path)
    }

    /// Returns whether a run that ends like this leaves unfinished files for the next.
    pub(super) fn keeps_unfinished(&self) -> bool {
        match self.policy.options.keep_partial {
            KeepPartial::Always => true,
            KeepPartial::Never => false,
            // The client is let in again another day.
            _ => self.session.halt.ended_with(|error| {
                error.may_reconnect()
                    || matches!(error, SyncError::LimitExceeded { excess: Excess::Hours, .. })
            }),
        }
    }

    /// Remembers that a directory's filesystem was changed.
    pub(super) fn touched(&self, dir: &Arc<Dir>) {
        if let Ok(device) = dir.device() {
            lock(&self.tree.touched).entry(device).or_insert_with(|| Arc::clone(dir));
        }
    }

    /// Writes everything to the disk that the run has changed.
    pub(super) fn sync_touched(&self) -> io::Result<()> {
        lock(&self.tree.touched).values().try_for_each(|dir| dir.sync_filesystem())
    }

    /// Counts and tells an entry that could not get its owner, or all of its lists and attributes.
    pub(super) fn withheld(&self, path: &RelPath, withheld: Withheld) -> Result<(), SyncError> {
        self.withheld_at(path.as_bytes(), withheld)
    }

    /// Works as [`withheld`](Self::withheld), for an entry that may be elsewhere: a backup.
    fn withheld_at(&self, path: &[u8], withheld: Withheld) -> Result<(), SyncError> {
        let tell = |cause| self.account.problem(Problem::new(Operation::SetAttributes, path.to_vec(), cause));
        if let Some(number) = withheld.plain {
            tell(Cause::Os(number))?;
        }
        let Some(number) = withheld.owner.or(withheld.extended) else { return Ok(()) };
        if self.account.tells_peer() && self.peer_features & LACKING == 0 {
            self.account.amend(|report| report.attributes_withheld += 1);
            return Ok(());
        }
        let (owner, extended) = (withheld.owner.is_some(), withheld.extended.is_some());
        tell(Cause::Lacking { owner, extended, number })
    }

    /// Returns whether whoever hears of problems knows [`Cause::EmptySource`].
    pub(super) fn knows_empty_sources(&self) -> bool {
        !self.account.tells_peer() || self.peer_features & LEFT_OUT != 0
    }

    /// Records a problem at a path below the root.
    pub(super) fn problem(
        &self,
        operation: Operation,
        path: &RelPath,
        cause: Cause,
    ) -> Result<(), SyncError> {
        // A file that cannot be read is the source's.
        let read = self.tree.renamed_from.get().filter(|_| operation == Operation::ReadFile);
        let path = read.unwrap_or(path).as_bytes().to_vec();
        self.account.problem(Problem::new(operation, path, cause))
    }

    /// Returns the cause that an error stands for; an error that the next file would meet as well
    /// ends the run.
    pub(super) fn cause_or_fatal(
        &self,
        operation: Operation,
        path: &RelPath,
        error: io::Error,
    ) -> Result<Cause, SyncError> {
        use io::ErrorKind::{Interrupted, ReadOnlyFilesystem};
        // Work that was cut short with the run is no failure of its entry.
        if error.kind() == Interrupted && self.stopped() {
            return Err(SyncError::Link(LinkError::Closed));
        }

        let writes = matches!(
            operation,
            Operation::WriteFile | Operation::SetAttributes | Operation::Commit | Operation::HardLink
        );
        let broken = writes && error.raw_os_error() == Some(INPUT_OUTPUT_ERROR);
        let read_only = error.kind() == ReadOnlyFilesystem && !self.tree.is_on_read_only(path);
        let full = is_full(&error);
        if full {
            // Whatever is finished gets its name before the run ends.
            self.room.make(u64::MAX);
        }
        if broken || read_only || full {
            let path = self.place_of(operation, path);
            return Err(SyncError::Filesystem { operation, path, source: error });
        }
        Ok(cause(&error))
    }

    /// Returns the path of what an operation on an entry writes. Content goes to the directory of `--temp-dir`
    /// first, and from one on another disk to the tree: where there is more room is not what is full.
    fn place_of(&self, operation: Operation, path: &RelPath) -> PathBuf {
        let temp_dir = self.policy.options.writing.temp_dir.as_deref();
        let Some(dir) = temp_dir.filter(|_| operation == Operation::WriteFile) else {
            return self.display_path(path);
        };
        let dir = PathBuf::from(std::ffi::OsStr::from_bytes(dir));
        let root = self.tree.dir.get();
        let free = root.and_then(|root| {
            let temporaries = root.open_operand_here(&dir).and_then(|dir| dir.free_bytes());
            Some((temporaries.ok()?, root.free_bytes().ok()?))
        });
        if free.is_some_and(|(there, here)| there > here) { self.display_path(path) } else { dir }
    }

    /// Returns the cause why a file did not get its name; an error that every other file would meet
    /// as well ends the run.
    pub(super) fn commit_cause(&self, path: &RelPath, error: CommitError) -> Result<Cause, SyncError> {
        Ok(match error {
            CommitError::TargetIsDirectory => Cause::DirectoryInTheWay,
            CommitError::BasisChanged | CommitError::NameTaken => Cause::Changed,
            CommitError::Sync { source } => {
                // Final for the whole group, and the next group's sync would prove nothing.
                let source = io::Error::new(source.kind(), source);
                return Err(SyncError::Filesystem {
                    operation: Operation::Commit,
                    path: self.display_path(path),
                    source,
                });
            }
            CommitError::Backup { source } => self.backup_cause(path, source)?,
            CommitError::Rename { source }
            | CommitError::Stat { source }
            | CommitError::Attributes { source } => {
                self.cause_or_fatal(Operation::Commit, path, plain(source))?
            }

            _ => Cause::Unrepresentable,
        })
    }

    /// Returns the cause why a backup could not be made; the disk that is full is that of the backups.
    fn backup_cause(&self, path: &RelPath, source: Arc<io::Error>) -> Result<Cause, SyncError> {
        let elsewhere = self.policy.options.writing.backup.as_ref().and_then(|backup| backup.dir.as_deref());
        self.cause_or_fatal(Operation::Commit, path, plain(source)).map_err(|error| {
            match (error, elsewhere) {
                (SyncError::Filesystem { source, .. }, Some(dir)) => {
                    let path = PathBuf::from(std::ffi::OsStr::from_bytes(dir));
                    SyncError::Filesystem { operation: Operation::WriteFile, path, source }
                }
                (error, _) => error,
            }
        })
    }

    /// Returns the place of the backup of an entry that is about to be replaced or removed; `None`
    /// when it needs none.
    pub(super) fn backup_of(
        &self,
        dir: &Arc<Dir>,
        path: &RelPath,
        name: &Component,
    ) -> io::Result<Option<SafePlace<'_>>> {
        let Some(backups) = self.backups.get() else { return Ok(None) };
        let mut place = backups.place(dir, path, name)?;
        self.touched(place.dir());
        for LackingTwin { path, withheld } in place.take_lacking() {
            self.withheld_at(&path, withheld).map_err(io::Error::other)?;
        }
        Ok(Some(place.until(self.session.halt.stop_flag())))
    }

    /// Tells the client of the backup of an entry, if it asked for that, and in any case what the backup
    /// lacks.
    pub(super) fn tell_backup(
        &self,
        path: &RelPath,
        name: &Component,
        place: &SafePlace<'_>,
        withheld: Withheld,
    ) -> Result<(), SyncError> {
        if withheld != Withheld::default() {
            let named = place.shown().filter(|backup| backup.len() <= MAX_PATH);
            // Of a backup that the client may not know it hears the original's name.
            let named = named.map_or_else(|| path.join(name).as_bytes().to_vec(), <[u8]>::to_vec);
            self.withheld_at(&named, withheld)?;
        }
        let Some(backup) = place.shown().filter(|_| self.policy.options.event_backups) else { return Ok(()) };
        // A longer name has no room in a message.
        if backup.len() > MAX_PATH {
            return Ok(());
        }
        let path = path.join(name).as_bytes().to_vec();
        self.account.backed_up(BackedUp::new(path, backup.to_vec()))
    }

    /// Works as [`backup_of`](Self::backup_of), with a directory that is only borrowed.
    pub(super) fn backup_beside(
        &self,
        dir: &Dir,
        path: &RelPath,
        name: &Component,
    ) -> io::Result<Option<SafePlace<'_>>> {
        if self.backups.get().is_none() {
            return Ok(None);
        }
        self.backup_of(&Arc::new(dir.duplicate()?), path, name)
    }
}

/// Returns the cause that a filesystem error stands for.
pub(super) fn cause(error: &io::Error) -> Cause {
    match error.raw_os_error() {
        Some(number) => Cause::Os(number),
        // Said by this program of a directory in which something had to stay.
        None if error.kind() == io::ErrorKind::DirectoryNotEmpty => Cause::DirectoryInTheWay,
        None => Cause::Unrepresentable,
    }
}

/// Linux's `EIO`, for which the standard library has no word.
const INPUT_OUTPUT_ERROR: i32 = 5;
