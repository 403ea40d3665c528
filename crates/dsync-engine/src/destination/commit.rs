//! Stage 8: makes finished files durable and visible, in groups.
//!
//! Under the default durability a group costs one sync of its filesystem, before its renames. A
//! group is closed when it is large, old, or when nothing more comes for a moment: files of slow
//! runs should not wait long for their names, and the source's credit returns only with them.

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, SendError, Sender};
use dsync_delta::ContentHasher;
use dsync_fs::{CommitError, CommitGroup, Component, PreparedFile, StagedFile, Timestamp as FileTime};
use dsync_wire::{
    event::{FileType, WhyLeft},
    link::LinkError,
    message::{Cause, Landed, Operation, Timestamp},
};

use super::{
    delayed,
    files::Pending,
    known::Known,
    landed::{self, Unsent},
    overtaken::{self, Overtaken},
    room::{Gathers, Room},
    settle::Outcome,
    site::Site,
    transfers::Transfers,
    written::Written,
};
use crate::{
    SyncError,
    content::READ_BYTES,
    halt::lock,
    plan::fs_timestamp,
    schedule::{Point, point},
};

/// A task for the committer.
pub(super) enum Commit {
    /// A finished file on its way to its name.
    File(PreparedFile, Arc<Pending>),
    /// An entry that the source hears of once it is on the disk.
    Unsent(Unsent),
}

/// One thread's way to the committer. Finished files go together, so that many small ones wake it
/// once.
///
/// The committer ends when the last outbox is dropped, never before: so no file can be handed in
/// too late. Whoever has one [flushes](Self::flush) it before it waits for more work: until then
/// its files have no name.
pub(super) struct Outbox<'a> {
    transfers: &'a Transfers<'a>,
    notes: Arc<Notes>,
    /// The way to the thread that records contents, if there is one.
    record: Option<Sender<Written>>,
}

/// The contents of an outbox. Whoever needs [room](super::room) hands them over as well.
pub(super) struct Notes {
    committer: Sender<Vec<Commit>>,
    commits: Mutex<Vec<Commit>>,
}

impl Notes {
    /// Hands everything over; an error if the committer has ended, for whose files nothing changes.
    fn hand_over(&self, room: &Room) -> Result<(), SyncError> {
        Self::send(&self.committer, lock(&self.commits), room)
    }

    fn send(
        committer: &Sender<Vec<Commit>>,
        mut commits: MutexGuard<'_, Vec<Commit>>,
        room: &Room,
    ) -> Result<(), SyncError> {
        let files = commits.len();
        if files == 0 {
            return Ok(());
        }
        room.handed(files);
        // The committer ends early only when the run has failed.
        committer.send(std::mem::take(&mut *commits)).map_err(|SendError(unsent)| {
            *commits = unsent;
            room.settled(files, 0);
            SyncError::Link(LinkError::Closed)
        })
    }
}

impl Gathers for Notes {
    fn hand_over_if_idle(&self, room: &Room) {
        if let Ok(commits) = self.commits.try_lock() {
            // Its thread learns of it.
            let _ = Self::send(&self.committer, commits, room);
        }
    }
}

impl<'a> Outbox<'a> {
    /// Opens a way to the committer, and to the thread that records contents.
    pub(super) fn new(
        transfers: &'a Transfers<'a>,
        committer: Sender<Vec<Commit>>,
        record: Option<Sender<Written>>,
    ) -> Self {
        let notes = Arc::new(Notes { committer, commits: Mutex::default() });
        let gatherer: Weak<Notes> = Arc::downgrade(&notes);
        transfers.site.room.add(gatherer);
        Self { transfers, notes, record }
    }

    /// Sets the attributes of a written temporary and notes it for the committer; `mtime` is the
    /// time of the content that was read, which may be newer than the listing.
    pub(super) fn submit(
        &mut self,
        file: &Arc<Pending>,
        staged: io::Result<StagedFile>,
        mtime: Timestamp,
    ) -> Result<(), SyncError> {
        let prepared = prepare((self.transfers, self.record.as_ref()), file, staged, mtime)?;
        let Some(prepared) = prepared else { return Ok(()) };
        let mut commits = lock(&self.notes.commits);
        // First, so that a run that fails here gives the file up and does not lose it.
        commits.push(Commit::File(prepared, Arc::clone(file)));
        arrived(self.transfers, file)?;
        let enough = commits.len() >= MAX_TOGETHER || self.transfers.site.room.is_scarce();
        drop(commits);
        if enough { self.flush() } else { Ok(()) }
    }

    /// Hands an entry to the committer, so that the source hears of it once it is on the disk.
    pub(super) fn submit_unsent(&mut self, unsent: Unsent) -> Result<(), SyncError> {
        lock(&self.notes.commits).push(Commit::Unsent(unsent));
        self.flush()
    }

    /// Hands everything that is noted to the committer.
    pub(super) fn flush(&mut self) -> Result<(), SyncError> {
        if lock(&self.notes.commits).is_empty() {
            return Ok(());
        }
        point(Point::Send);
        self.transfers.call.work();
        self.notes.hand_over(&self.transfers.site.room).inspect_err(|_| self.give_up())
    }

    /// Abandons everything that is noted, as the run has failed.
    pub(super) fn give_up(&self) {
        give_up(self.transfers, std::mem::take(&mut *lock(&self.notes.commits)));
    }
}

impl Drop for Outbox<'_> {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Hands complete files over that get no name in this run, as it has failed.
fn give_up(transfers: &Transfers<'_>, commits: impl IntoIterator<Item = Commit>) {
    let files = commits.into_iter().filter_map(|commit| match commit {
        Commit::File(prepared, file) => Some((prepared, file.size)),
        Commit::Unsent(_) => None,
    });
    lock(&transfers.nameless).extend(files);
}

/// Settles a file that is complete.
fn arrived(transfers: &Transfers<'_>, file: &Arc<Pending>) -> Result<(), SyncError> {
    transfers.settle(file, Outcome::Arrived)?;
    if file.is_cloned() {
        transfers.site.account.clone_made();
    }
    Ok(())
}

/// Moves a written temporary beside its target and sets its attributes; `None` when that failed,
/// which is recorded.
fn prepare(
    (transfers, record): (&Transfers<'_>, Option<&Sender<Written>>),
    file: &Arc<Pending>,
    staged: io::Result<StagedFile>,
    mtime: Timestamp,
) -> Result<Option<PreparedFile>, SyncError> {
    let site = transfers.site;
    let staged = match staged.and_then(StagedFile::beside_target) {
        Ok(staged) => staged,
        Err(error) => {
            return transfers.settle(file, Outcome::Broke(Operation::WriteFile, error)).map(|()| None);
        }
    };

    if let Some(recording) = &site.recording {
        recording.staged(file.entry, &staged, mtime)?;
    }
    if let Some(outcome) = look_at_content(transfers, file, &staged) {
        if site.stopped() {
            return Ok(None);
        }
        // It goes before its directory gets its time.
        drop(staged);
        return transfers.settle(file, outcome).map(|()| None);
    }
    let mut wanted = file.wanted.clone();
    wanted.mtime = wanted.mtime.map(|_| fs_timestamp(mtime));
    file.expect_signed(&staged, wanted.mtime);
    note_content(site, file, &staged, wanted.mtime)?;
    match staged.prepare(&wanted, file.basis_stamp(), site.durability()) {
        Ok(mut prepared) => {
            file.instruct(&mut prepared);
            note_inode(transfers, file, &prepared)?;
            site.withheld(&file.slot.path(), prepared.withheld())?;
            if let Some(delayed) = site.delayed.get() {
                if let Some(temp) = delayed::note_file(site, delayed, file, prepared)? {
                    hand_over(record, file, &temp);
                }
                arrived(transfers, file)?;
                return transfers.settle(file, Outcome::Closed).map(|()| None);
            }
            Ok(Some(prepared))
        }
        Err(error) => transfers.settle(file, Outcome::Broke(Operation::SetAttributes, error)).map(|()| None),
    }
}

/// Notes the inode of a finished file that others will be linked to.
fn note_inode(transfers: &Transfers<'_>, file: &Pending, prepared: &PreparedFile) -> Result<(), SyncError> {
    let Some(number) = file.first_name.filter(|_| prepared.dir().numbers_inodes()) else { return Ok(()) };
    // Without its stamp nothing is known of it.
    let Ok(Some(stamp)) = prepared.stamp() else { return Ok(()) };
    let stays = !file.slot.in_place && file.slot.tail.is_none();
    Ok(transfers.succession.note_inode(number, &stamp, stays)?)
}

/// Reads a written temporary once more, if the run tells its content or demands one. Returns the
/// outcome of a file that cannot have its name.
fn look_at_content(transfers: &Transfers<'_>, file: &Pending, staged: &StagedFile) -> Option<Outcome> {
    let options = &transfers.site.policy.options;
    let site = transfers.site;
    let tells = site.account.tells_done() || site.present.as_ref().is_some_and(Known::tells_contents);
    let tells = tells && options.event_contents && !file.slot.device;
    if !tells && !options.contents_as_listed {
        return None;
    }

    let hash = match hash_of(staged, site.session.halt.stop_flag()) {
        Ok(hash) => hash,
        Err(error) => return Some(Outcome::Broke(Operation::WriteFile, error)),
    };
    if options.contents_as_listed && file.listed_content != Some(hash) {
        return Some(Outcome::Failed(Operation::ReadFile, Cause::OtherContent));
    }
    if tells {
        *lock(&file.content) = Some(hash);
    }
    None
}

/// Notes the content of a written temporary that will have this time, if the tree is told of at the end.
fn note_content(
    site: &Site<'_>,
    file: &Pending,
    staged: &StagedFile,
    mtime: Option<FileTime>,
) -> Result<(), SyncError> {
    let (Some(tree), Some(hash)) = (&site.present, *lock(&file.content)) else { return Ok(()) };
    // Without its stamp nothing is known of it.
    staged.stamp().map_or(Ok(()), |stamp| tree.note(&stamp, mtime, &hash))
}

/// Reads a written temporary once more, unless the run is `stopped`. Returns the hash of its content.
fn hash_of(staged: &StagedFile, stopped: &AtomicBool) -> io::Result<[u8; 32]> {
    let size = staged.stamp()?.size;
    let (mut hasher, mut piece, mut at) = (ContentHasher::new(), vec![0; READ_BYTES], 0);
    while at < size {
        if stopped.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let length = usize::try_from(size - at).map_or(READ_BYTES, |left| left.min(READ_BYTES));
        let read = staged.read_full_at(at, &mut piece[..length])?;
        if read < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        hasher.update(&piece[..length]);
        at += length as u64;
    }
    Ok(hasher.finish())
}

/// Commits until every [`Outbox`] is gone. Returns the group for the final sync. If the run fails before
/// that, gives up the files that wait.
pub(super) fn run(
    transfers: &Transfers<'_>,
    commits: Receiver<Vec<Commit>>,
    record: Option<&Sender<Written>>,
) -> Result<CommitGroup<Arc<Pending>>, SyncError> {
    let mut group = CommitGroup::new(transfers.site.durability());
    transfers.site.room.commits_here();
    let committed = commit_all(transfers, &commits, &mut group, record);
    transfers.site.room.over();
    let Err(error) = committed else { return Ok(group) };
    let waiting = group.into_files().into_iter().map(|(prepared, file)| Commit::File(prepared, file));
    give_up(transfers, waiting.chain(commits.try_iter().flatten()));
    // Whoever hands in more learns of it.
    drop(commits);
    Err(error)
}

fn commit_all(
    transfers: &Transfers<'_>,
    commits: &Receiver<Vec<Commit>>,
    group: &mut CommitGroup<Arc<Pending>>,
    record: Option<&Sender<Written>>,
) -> Result<(), SyncError> {
    let site = transfers.site;
    let mut opened = Instant::now();
    let (mut bytes, mut replaced) = (0_u64, 0_u64);
    let mut idle = MIN_IDLE;
    let mut unsent = Vec::new();
    loop {
        let next = commits.recv_timeout(idle);
        point(Point::Receive);
        let ended = matches!(next, Err(RecvTimeoutError::Disconnected));
        let quiet = next.is_err();
        if group.is_empty() && unsent.is_empty() {
            opened = Instant::now();
        }

        for commit in next.into_iter().flatten() {
            match commit {
                Commit::File(mut prepared, file) => {
                    if file.slot.is_new {
                        prepared.take_free_name();
                    }
                    if site.policy.options.ignore_existing {
                        prepared.give_way();
                    }
                    bytes = bytes.saturating_add(file.size);
                    // The old file goes with the new name, unless it is kept under another one.
                    let is_freed = !file.slot.is_new && site.backups.get().is_none();
                    replaced = replaced.saturating_add(if is_freed { file.size } else { 0 });
                    group.add(prepared, file);
                }
                Commit::Unsent(entry) => unsent.push(entry),
            }
        }

        // The lanes may still have outboxes: they end when the peer hangs up.
        if site.session.halt.stopped() {
            return Err(SyncError::Link(LinkError::Closed));
        }
        let waiting = group.len() + unsent.len();
        let full = waiting >= MAX_FILES || bytes >= MAX_BYTES || opened.elapsed() >= MAX_AGE;
        if waiting > 0 && (quiet || full) {
            let started = Instant::now();
            flush(transfers, group, &std::mem::take(&mut unsent), record)?;
            site.room.settled(waiting, std::mem::take(&mut replaced));
            bytes = 0;
            // Where syncs are slow, wait for more work before the next one.
            idle = (started.elapsed() * IDLE_PER_FLUSH).clamp(MIN_IDLE, MAX_AGE);
        }

        if ended {
            return Ok(());
        }
    }
}

/// Commits the group and settles its files, and the entries that only had to be on the disk.
fn flush(
    transfers: &Transfers<'_>,
    group: &mut CommitGroup<Arc<Pending>>,
    unsent: &[Unsent],
    record: Option<&Sender<Written>>,
) -> Result<(), SyncError> {
    let site = transfers.site;
    let mut landed: Vec<Landed> = unsent.iter().map(|unsent| unsent.landed).collect();
    let mut settled = Vec::new();
    let mut fatal = None;
    let mut secure = |file: &Arc<Pending>| match fatal {
        None => file.secure(site).unwrap_or_else(|error| {
            fatal = Some(error);
            Err(io::ErrorKind::Interrupted.into())
        }),
        Some(_) => Err(io::ErrorKind::Interrupted.into()),
    };
    let outcomes = group.flush_after(&mut secure);
    if let Some(error) = fatal {
        return Err(error);
    }

    for (file, result) in outcomes {
        match result {
            Ok(()) => {
                file.slot.directory.touch();
                file.slot.note_whole();
                file.note_signature(site, &file.slot.name);
                match file.remove_displaced(site)? {
                    Ok(()) if site.removes(file.is_sent()) => {
                        let now = Landed { entry: file.entry, stood: None };
                        match file.first_name {
                            Some(_) => lock(&transfers.first_names).note(now)?,
                            None => landed.push(now),
                        }
                    }
                    Ok(()) => {}
                    Err(error) => {
                        let source = Arc::new(error);
                        failed(transfers, &file, CommitError::Rename { source })?;
                    }
                }
            }
            Err(error) => failed(transfers, &file, error)?,
        }
        settled.push(file);
    }

    transfers.tell_landed(group, &landed)?;
    if site.syncs_before_telling() && !settled.is_empty() {
        landed::sync_names(site, group)?;
    }
    for file in settled {
        transfers.settle(&file, Outcome::Closed)?;
        hand_over(record, &file, &file.slot.name);
    }

    unsent.iter().try_for_each(|unsent| unsent.part.release(&site.session.control))?;
    site.session.control.flush()
}

/// Hands a file over whose content is to be recorded, under the name that it has now. One that did not get
/// its name has no new content there, and reading it does no harm.
fn hand_over(record: Option<&Sender<Written>>, file: &Pending, name: &Component) {
    if let (Some(record), Some(dir)) = (record, &file.slot.directory.dir) {
        let (name, listed) = (name.clone(), file.listed_content);
        let written = Written { dir: Arc::clone(dir), name, listed };
        // The reader is gone only in a run that was stopped.
        let _ = record.send(written);
    }
}

/// Records a file that did not get its name.
fn failed(transfers: &Transfers<'_>, file: &Arc<Pending>, error: CommitError) -> Result<(), SyncError> {
    let site = transfers.site;
    let left = match &error {
        CommitError::NameTaken => Some(WhyLeft::Exists),
        CommitError::Backup { source } => Overtaken::of(source),
        _ => None,
    };
    if let Some(why) = left {
        overtaken::tell(site, FileType::File, &file.slot.path(), why)?;
    } else if !site.stopped() {
        let path = file.slot.path();
        let cause = site.commit_cause(&path, error)?;
        site.problem(Operation::Commit, &path, cause)?;
    }
    transfers.settle(file, Outcome::Nameless)
}

/// Files that go to the committer together: its waking costs each of them little.
const MAX_TOGETHER: usize = 256;
/// Files of one group, about: enough that its sync costs each of them little.
const MAX_FILES: usize = 2048;
/// Bytes of one group, so that a sync does not stall the run for long.
const MAX_BYTES: u64 = 512 << 20;
/// Age of one group.
const MAX_AGE: Duration = Duration::from_secs(1);
/// A group is closed when nothing came for this long.
const MIN_IDLE: Duration = Duration::from_millis(30);
/// The idle time grows with the cost of a flush, so that syncs take at most a quarter of the time.
const IDLE_PER_FLUSH: u32 = 3;
