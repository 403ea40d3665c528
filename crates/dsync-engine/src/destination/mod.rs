//! The destination role: compares listings, asks for what differs, stages, verifies, commits, deletes.
//!
//! Threads: an inbox for the source's messages, a planner (stage 2), signers (stage 3), one receiver per
//! data lane (stage 7), a committer (stage 8), a watch and a pulse. When every file that was asked for
//! has its name, deletions are carried out, everything is made durable, and only then the report is sent.
//!
//! The law: the run goes on to its end only when every thread that can hand in work has been joined
//! ([`work`]), and the committer only ends when each of their outboxes is gone. No count decides it.

mod alternate;
pub(crate) mod asked;
mod backup;
mod commit;
mod credit;
mod delayed;
mod delete;
mod directory;
mod files;
mod holes;
mod homes;
mod in_place;
mod inbox;
mod journal;
mod kept;
mod landed;
mod links;
mod local;
mod owners;
mod phase;
mod planner;
mod receive;
mod records;
mod settle;
mod sign;
mod stage;
mod succession;
mod target;
mod weight;

use std::{
    collections::HashMap,
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use dsync_delta::Key;
use dsync_fs::{CommitGroup, Dir, FilterSet, OwnPlaces, Privileges, RelPath, Sharing, SpoolHome, Withheld};
use dsync_wire::{
    event::Report,
    link::LinkError,
    message::{Asked, Cause, ControlMessage, EntryId, Operation, Problem},
    options::{Durability, KeepPartial},
};

use self::{
    backup::Backups,
    commit::{Commit, Outbox},
    credit::Credit,
    delayed::Delayed,
    files::{Files, Pending},
    homes::Homes,
    local::Local,
    planner::Leftover,
    sign::Refinement,
    succession::Succession,
    target::Target,
};
use crate::{
    CancelToken, SyncError,
    account::{Account, Audience},
    grant::Start,
    halt::lock,
    limits::{MAX_OPEN_PATH_BYTES, MAX_UNRELEASED_ENTRIES},
    plan::Policy,
    session::{DestinationMail, Session},
    source::ListedFiles,
};

/// What the destination's threads share.
pub(super) struct Site<'a> {
    session: &'a Session,
    key: Key,
    policy: Policy,
    /// Where the operand starts.
    start: Start,
    durability: dsync_fs::Durability,
    account: Account<'a>,
    files: Files,
    /// Present in a local run: content is read here, not asked for.
    local: Option<Local>,
    /// Present when what is replaced or removed is kept, once the root is open.
    backups: OnceLock<Backups>,
    /// Directories that belong to the run.
    own: Arc<OwnPlaces>,
    /// Present when names are given at the end, once the root is open.
    delayed: OnceLock<Delayed>,
    /// Where unfinished files are.
    homes: Homes,
    /// Where lists go that outgrow memory.
    spools: SpoolHome,
    /// Which filesystems share extents.
    sharing: Sharing,
    /// Files asked for that have neither arrived nor failed, and names that wait for one of them.
    awaited: Credit,
    /// Entries that the source may remove and has not seen to.
    unremoved: Credit,
    /// Directories held open.
    open_directories: Credit,
    /// Bytes of their paths.
    open_paths: Credit,
    /// Bytes of signatures that the source holds.
    signatures: Credit,
    listed: AtomicU64,
    root: OnceLock<PathBuf>,
    /// Data lanes that the source has not ended.
    live_lanes: AtomicUsize,
    /// Set just before the source is told that nothing more is needed.
    needs_ended: AtomicBool,
    /// Set just before the report is sent.
    reporting: AtomicBool,
    /// One directory of each filesystem that was changed other than by a commit.
    touched: Mutex<HashMap<u64, Arc<Dir>>>,
    /// What becomes of the first names of files that have several.
    succession: Succession,
}

/// What a destination is started with.
pub(crate) struct Terms<'a> {
    /// The operand.
    pub(crate) operand: PathBuf,
    /// The run's filters, compiled.
    pub(crate) filter: FilterSet,
    /// What the source's operands stand for.
    pub(crate) asked: Asked,
    /// Who hears of events: `None` when the source is the controller.
    pub(crate) observer: Option<&'a dyn crate::Observer>,
    /// The source's files, when it is in this process.
    pub(crate) files: Option<ListedFiles>,
    /// Where lists go that outgrow memory.
    pub(crate) spools: SpoolHome,
    /// Where the operand starts, and what may be done there.
    pub(crate) start: Start,
}

/// Makes the destination like the source; gives the account of it.
pub(crate) fn run(
    session: Session,
    mail: DestinationMail,
    terms: Terms<'_>,
    cancel: &CancelToken,
) -> Result<Report, SyncError> {
    let mut report = None;
    let (commits_tx, commits) = bounded(QUEUED_COMMITS);
    {
        let control = Arc::clone(&session.control);
        let Terms { operand, filter, asked, observer, files, spools, start } = terms;
        let audience = observer.map_or(Audience::Wire(&control), Audience::Observer);
        let site = Site::new(&session, mail.key.clone(), audience, files.map(Local::new), (spools, start));
        let site = &site;
        let halt = &session.halt;
        let report = &mut report;
        let group = Mutex::new(None);
        let group = &group;
        std::thread::scope(|scope| {
            let (over_tx, over) = bounded::<()>(0);
            let pulse_over = over.clone();
            let (listed_tx, listed) = unbounded();
            let (refinements_tx, refinements) = unbounded();
            halt.spawn(scope, "watch", move || site.session.watch(cancel, &over));
            halt.spawn(scope, "pulse", move || {
                site.session.beat(&pulse_over, || site.account.tell_progress())
            });
            let inbox =
                halt.spawn(scope, "inbox", move || inbox::run(site, mail, &listed_tx, &refinements_tx));
            let committer = halt.spawn(scope, "commit", move || {
                *lock(group) = Some(commit::run(site, &commits)?);
                Ok(())
            });
            let plan = |readers, outbox| {
                planner::run(site, operand, &Arc::new(filter), asked, readers, outbox, &listed)
            };
            let leftover = work(site, commits_tx, &refinements, plan);
            if let Some(committer) = committer {
                let _ = committer.join();
            }
            *report = site.finish_if_whole(leftover, lock(group).take());
            // The source says goodbye, or hangs up.
            if let Some(inbox) = inbox {
                let _ = inbox.join();
            }
            drop(over_tx);
        });
        if report.is_none() && site.keeps_unfinished() {
            site.files.keep_unfinished();
        }
        if let Some(delayed) = site.delayed.get().filter(|_| report.is_none()) {
            delayed.abandon(site);
        }
    }
    session.conclude(report)
}

/// Runs the planner and the threads that read what the destination has and write what it gets; returns what the planner
/// leaves when all of them have ended. Each has an outbox of its own, and nobody has one after that.
fn work<'a>(
    site: &'a Site<'a>,
    committer: Sender<Vec<Commit>>,
    refinements: &Receiver<Refinement>,
    plan: impl FnOnce(Sender<Vec<Arc<Pending>>>, Outbox<'a>) -> Result<Option<Leftover>, SyncError> + Send,
) -> Option<Leftover> {
    let halt = &site.session.halt;
    let (readers_tx, readers) = bounded(QUEUED_FILES);
    let mut leftover = None;
    std::thread::scope(|scope| {
        let outbox = || Outbox::new(site, committer.clone());
        let (leftover, own) = (&mut leftover, outbox());
        halt.spawn(scope, "plan", move || {
            *leftover = plan(readers_tx, own)?;
            Ok(())
        });
        for _ in 0..site.session.data_lanes {
            let own = outbox();
            halt.spawn(scope, "receive", move || receive::run(site, own));
        }
        let workers = if site.local.is_some() { local::workers() } else { 0..SIGNERS };
        for _ in workers {
            let (readers, own) = (readers.clone(), outbox());
            match &site.local {
                Some(local) => halt.spawn(scope, "copy", move || local::run(site, local, own, &readers)),
                None => halt.spawn(scope, "sign", move || sign::run(site, own, &readers, refinements)),
            };
        }
        // The planner may not wait for readers that are gone, nor the committer for an outbox that nobody has.
        drop((readers, committer));
    });
    leftover
}

impl<'a> Site<'a> {
    fn new(
        session: &'a Session,
        key: Key,
        audience: Audience<'a>,
        local: Option<Local>,
        (spools, start): (SpoolHome, Start),
    ) -> Self {
        let descriptors = dsync_fs::sys::raise_nofile_limit();
        let options = session.options.clone();
        let durability = match options.durability {
            Durability::File => dsync_fs::Durability::File,
            Durability::None => dsync_fs::Durability::None,
            _ => dsync_fs::Durability::Batch,
        };
        Self {
            session,
            key,
            account: Account::new(audience, options.events),
            homes: Homes::new(&options.writing, session.halt.stop_flag()),
            policy: Policy {
                privileged: Privileges::current().is_root() || options.fake_super.destination,
                options,
                umask: dsync_fs::sys::file_creation_mask(),
                adds_only: start.adds_only(),
            },
            start,
            durability,
            files: Files::default(),
            local,
            backups: OnceLock::new(),
            own: Arc::default(),
            delayed: OnceLock::new(),
            spools,
            sharing: Sharing::default().until(session.halt.stop_flag()),
            awaited: Credit::new(MAX_UNRELEASED_ENTRIES as u64),
            unremoved: Credit::new(u64::MAX),
            open_directories: Credit::new((descriptors / 4).clamp(8, MAX_OPEN_DIRECTORIES)),
            open_paths: Credit::new(MAX_OPEN_PATH_BYTES),
            signatures: Credit::new(MAX_SIGNATURE_BYTES),
            listed: AtomicU64::new(1),
            root: OnceLock::new(),
            live_lanes: AtomicUsize::new(session.data_lanes),
            needs_ended: AtomicBool::new(false),
            reporting: AtomicBool::new(false),
            touched: Mutex::default(),
            succession: Succession::new(&session.budget),
        }
    }

    /// Returns whether the run has ended early.
    fn stopped(&self) -> bool {
        self.session.halt.stopped()
    }

    /// Numbers the next listed entry.
    fn next_entry(&self) -> EntryId {
        EntryId(self.listed.fetch_add(1, Ordering::AcqRel))
    }

    /// True for a number that the listing has reached.
    fn was_listed(&self, entry: EntryId) -> bool {
        entry.0 < self.listed.load(Ordering::Acquire)
    }

    fn set_root(&self, target: &Target) {
        let _ = self.root.set(target.path.clone());
    }

    /// A path below the root as a person would write it.
    fn display_path(&self, path: &RelPath) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        let below = std::ffi::OsStr::from_bytes(path.as_bytes());
        self.root.get().map_or_else(|| PathBuf::from(below), |root| root.join(below))
    }

    /// True when a run that ends like this leaves unfinished files for the next.
    fn keeps_unfinished(&self) -> bool {
        match self.policy.options.keep_partial {
            KeepPartial::Always => true,
            KeepPartial::Never => false,
            _ => self.session.halt.ended_with(SyncError::is_retryable),
        }
    }

    /// Remembers that a directory's filesystem was changed.
    fn touched(&self, dir: &Arc<Dir>) {
        if let Ok(device) = dir.device() {
            lock(&self.touched).entry(device).or_insert_with(|| Arc::clone(dir));
        }
    }

    /// Counts an entry that could not get all of its lists and attributes.
    fn withheld(&self, withheld: Withheld) {
        if withheld.0 {
            self.account.amend(|report| report.attributes_withheld += 1);
        }
    }

    /// Records a problem at a path below the root.
    fn problem(&self, operation: Operation, path: &RelPath, cause: Cause) -> Result<(), SyncError> {
        self.account.problem(Problem { operation, path: path.as_bytes().to_vec(), cause })
    }

    /// The cause that an error stands for; an error that the next file would meet as well ends the run.
    fn cause_or_fatal(
        &self,
        operation: Operation,
        path: &RelPath,
        error: io::Error,
    ) -> Result<Cause, SyncError> {
        use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        let writes = matches!(
            operation,
            Operation::WriteFile | Operation::SetAttributes | Operation::Commit | Operation::HardLink
        );
        let broken = writes && error.raw_os_error() == Some(INPUT_OUTPUT_ERROR);
        if broken || matches!(error.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem) {
            return Err(SyncError::Filesystem { operation, path: self.display_path(path), source: error });
        }
        Ok(directory::cause(&error))
    }

    /// Finishes a run in which nothing failed; `None` otherwise.
    fn finish_if_whole(
        &self,
        leftover: Option<Leftover>,
        group: Option<CommitGroup<Arc<Pending>>>,
    ) -> Option<Report> {
        let (leftover, group) = (leftover?, group?);
        if self.session.halt.stopped() {
            return None;
        }
        self.finish(leftover, group).map_err(|error| self.session.halt.fail(error)).ok()
    }

    /// Everything has arrived: gives the names that were put off, and further ones, deletes, makes durable, reports.
    fn finish(&self, leftover: Leftover, mut group: CommitGroup<Arc<Pending>>) -> Result<Report, SyncError> {
        let Leftover { mut target, links, deletions } = leftover;
        let mut landed = match self.delayed.get() {
            Some(delayed) => delayed.carry_out(self, deletions.protection(), &mut group)?,
            None => Vec::new(),
        };
        landed.append(&mut links.carry_out(self, target.root.as_ref())?);
        deletions.carry_out(self, target.root.as_ref())?;
        self.delayed.get().map_or(Ok(()), |delayed| delayed.settle(self))?;
        // What an interrupt cut short is no success.
        if self.stopped() {
            return Err(SyncError::Link(LinkError::Closed));
        }
        target.unlock();
        if !self.policy.options.dry_run {
            self.sync_names(&mut group)?;
        }
        self.tell_landed(&mut group, &landed)?;
        if !self.unremoved.drained(&self.session.halt) {
            return Err(SyncError::Link(LinkError::Closed));
        }
        self.account.amend(|report| report.syncs = group.syncs());
        self.account.tell_progress()?;
        let report = self.account.report();
        // Whoever hears the report may start the next run at once, however long this end takes to go.
        drop(target);
        self.reporting.store(true, Ordering::Release);
        self.session.control.send_last(&ControlMessage::Report(Box::new(report.clone())))?;
        Ok(report)
    }
}

/// Linux's `EIO`, for which the standard library has no word.
const INPUT_OUTPUT_ERROR: i32 = 5;
/// Signers: two keep a disk and the processors busy; each signature is parallel in itself.
const SIGNERS: usize = 2;
/// Batches of files that wait for a signer or a copier, by reference.
const QUEUED_FILES: usize = 8;
/// Batches of finished files that wait for the committer, each file with a name only.
const QUEUED_COMMITS: usize = 8;
/// Directories held open, unless the descriptor limit is lower.
const MAX_OPEN_DIRECTORIES: u64 = 1024;
/// Signature bytes that the source may be made to hold; one larger signature is always admitted.
const MAX_SIGNATURE_BYTES: u64 = 16 << 20;
