//! The destination's account of a run: the counts of its report and its progress, and the receiver
//! of its events.
//!
//! Counters are atomics because lane threads, the planner and the committer add to them at once.
//! The law (invariant D14): the report's counts are those of the planned actions that did not fail.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use dsync_fs::Explained;
use dsync_wire::{
    event::{
        Action, BackedUp, Changes, Done, Ended, Event, FileType, LeftAlone, Planned, Present, Progress,
        Report,
    },
    message::{Cause, ControlMessage, Entry, EntryId, Operation, Problem},
    options::{EventLevel, SyncOptions},
    path::EntryPath,
    ruling::Ruling,
};

use crate::{
    Observer, SyncError, Tally, failures::Failures, halt::lock, plan::file_type, session::ControlOut,
    under_way::UnderWay,
};

/// The receiver of the destination's events.
#[derive(Clone, Copy)]
pub(crate) enum Audience<'a> {
    /// This end is the controller.
    Observer(&'a dyn Observer),
    /// The source is the controller: events cross the wire, and whoever serves may listen.
    Wire(&'a ControlOut, Option<&'a dyn Observer>),
}

impl<'a> Audience<'a> {
    /// Returns the observer in this process.
    fn observer(&self) -> Option<&'a dyn Observer> {
        match *self {
            Self::Observer(observer) => Some(observer),
            Self::Wire(_, observer) => observer,
        }
    }

    /// Returns the way to the controller at the other end.
    fn wire(&self) -> Option<&'a ControlOut> {
        match *self {
            Self::Observer(_) => None,
            Self::Wire(control, _) => Some(control),
        }
    }
}

/// The account of one run.
pub(crate) struct Account<'a> {
    audience: Audience<'a>,
    level: EventLevel,
    /// The paths that the run is about, if it explains some.
    explained: Option<Explained>,
    /// Whether more is told of entries (`event_ends`).
    with_facts: bool,
    /// Whether plans are told when they are carried out: not in a dry run.
    ends: bool,
    /// Whether each entry is told of that was carried out (`event_done`).
    done: bool,
    /// Numbers of announced plans that were given.
    announced: AtomicU64,
    report: Mutex<Report>,
    /// Counters of [`Progress`].
    pub(crate) progress: Arc<ProgressCounters>,
    /// The counts of the session.
    tally: Tally,
    /// Bytes of new files that came over the wire, and that came from the basis.
    pub(crate) literal_bytes: AtomicU64,
    /// See `literal_bytes`.
    pub(crate) matched_bytes: AtomicU64,
    /// Whether the source could not read something: then nothing may be deleted.
    source_damaged: AtomicBool,
    /// The paths that failed, if somebody wants to know them at the end.
    pub(crate) failures: Option<Failures>,
    /// Files whose content arrives.
    under_way: UnderWay,
}

/// Progress as it is counted.
#[derive(Default)]
pub(crate) struct ProgressCounters {
    pub(crate) entries_checked: AtomicU64,
    pub(crate) entries_listed: AtomicU64,
    pub(crate) files_needed: AtomicU64,
    pub(crate) bytes_needed: AtomicU64,
    pub(crate) files_done: AtomicU64,
    pub(crate) bytes_done: AtomicU64,
    pub(crate) totals_final: AtomicBool,
}

impl ProgressCounters {
    /// Returns what sends the progress to the peer, as a sign of life.
    pub(crate) fn shown_by(
        self: &Arc<Self>,
        control: &Arc<ControlOut>,
    ) -> impl Fn() -> Result<(), SyncError> + Send + 'static {
        let (progress, control) = (Arc::clone(self), Arc::clone(control));
        move || control.send(&ControlMessage::Progress(progress.snapshot()))
    }

    /// Returns the counters as they are now.
    pub(crate) fn snapshot(&self) -> Progress {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Progress::default()
            .totals_final(self.totals_final.load(Ordering::Acquire))
            .entries_checked(get(&self.entries_checked))
            .files_needed(get(&self.files_needed))
            .bytes_needed(get(&self.bytes_needed))
            .files_done(get(&self.files_done))
            .bytes_done(get(&self.bytes_done))
            .entries_listed(get(&self.entries_listed))
    }
}

impl<'a> Account<'a> {
    /// Opens the account.
    pub(crate) fn new(audience: Audience<'a>, options: &SyncOptions, tally: Tally) -> Self {
        Self {
            audience,
            level: options.events,
            explained: Explained::of(&options.explain),
            with_facts: options.event_ends,
            ends: options.event_ends && !options.dry_run,
            done: options.event_done && !options.dry_run,
            announced: AtomicU64::new(0),
            report: Mutex::new(Report::default().linked(Some(0)).cloned(Some(0))),
            progress: Arc::default(),
            tally,
            literal_bytes: AtomicU64::new(0),
            matched_bytes: AtomicU64::new(0),
            source_damaged: AtomicBool::new(false),
            failures: None,
            under_way: UnderWay::default(),
        }
    }

    /// Returns whether events go to an observer in this process.
    pub(crate) fn is_heard_here(&self) -> bool {
        self.audience.observer().is_some()
    }

    /// Returns whether events cross the wire.
    pub(crate) fn tells_peer(&self) -> bool {
        self.audience.wire().is_some()
    }

    /// Counts a plan and tells the audience of it.
    pub(crate) fn planned(&self, planned: Planned) -> Result<(), SyncError> {
        self.count(&planned);
        self.carried_out(planned)
    }

    /// Takes back the count of a plan that could not be carried out.
    pub(crate) fn take_back(&self, planned: &Planned) {
        let mut report = lock(&self.report);
        match planned.action {
            Action::Create => report.created.take_back(planned.kind),
            Action::Retag => report.retagged = report.retagged.saturating_sub(1),
            _ => {}
        }
        if is_transfer(planned) {
            report.files_transferred = report.files_transferred.saturating_sub(1);
            report.transferred_bytes = report.transferred_bytes.saturating_sub(planned.size);
        }
    }

    /// Counts a plan.
    pub(crate) fn count(&self, planned: &Planned) {
        let mut report = lock(&self.report);
        match planned.action {
            Action::Create => report.created.add(planned.kind),
            Action::Delete => report.deleted.add(planned.kind),
            Action::Retag => report.retagged += 1,
            _ => {}
        }
        if is_transfer(planned) {
            report.files_transferred += 1;
            // Listed sizes may add up to more than 64 bits hold.
            report.transferred_bytes = report.transferred_bytes.saturating_add(planned.size);
        }
    }

    /// Tells the audience of a plan that was counted and is carried out.
    pub(crate) fn carried_out(&self, planned: Planned) -> Result<(), SyncError> {
        let linked = planned.action == Action::Link;
        self.link_made(linked);
        self.carried_out_by(planned, linked)
    }

    /// Tells the audience of a plan that is carried out, by a hard link or otherwise.
    pub(crate) fn carried_out_by(&self, planned: Planned, linked: bool) -> Result<(), SyncError> {
        if !self.hears(&planned) {
            return Ok(());
        }
        let Planned { action, kind, size, .. } = planned;
        let done = (self.done && action != Action::Keep)
            .then(|| Done::new(action, kind, planned.path.clone()).bytes(size).linked(linked));
        self.tell(Event::Planned(planned))?;
        done.map_or(Ok(()), |done| self.tell(Event::Done(done)))
    }

    /// Counts a hard link, if it is one.
    pub(crate) fn link_made(&self, linked: bool) {
        if linked {
            self.amend(|report| report.linked = report.linked.map(|count| count + 1));
        }
    }

    /// Counts a file that shares the source's blocks.
    pub(crate) fn clone_made(&self) {
        self.amend(|report| report.cloned = report.cloned.map(|count| count + 1));
    }

    /// Takes back the count of a file that shares the source's blocks.
    pub(crate) fn clone_failed(&self) {
        self.amend(|report| report.cloned = report.cloned.map(|count| count.saturating_sub(1)));
    }

    /// Tells the audience of a plan that was counted and is carried out later. Returns its number
    /// for [`ended`](Self::ended); 0 if nobody wants to hear of the end.
    pub(crate) fn announced(&self, mut planned: Planned) -> Result<u64, SyncError> {
        if !self.hears(&planned) {
            return Ok(0);
        }
        let mut number = 0;
        if let Some(facts) = planned.facts.as_mut().filter(|_| self.ends) {
            number = self.announced.fetch_add(1, Ordering::Relaxed) + 1;
            facts.number = number;
        }
        self.tell(Event::Planned(planned)).map(|()| number)
    }

    /// Tells the audience what has become of an announced plan; `done` says more of one that was
    /// carried out.
    pub(crate) fn ended(&self, ended: Ended, done: impl FnOnce() -> Done) -> Result<(), SyncError> {
        if ended.number == 0 {
            return Ok(());
        }
        self.tell(Event::Ended(ended))?;
        if ended.done && self.done { self.tell(Event::Done(done())) } else { Ok(()) }
    }

    /// Tells the audience of an entry that an option leaves alone.
    pub(crate) fn left_alone(&self, left: LeftAlone) -> Result<(), SyncError> {
        if self.is_about(&left.path) { self.tell(Event::LeftAlone(left)) } else { Ok(()) }
    }

    /// Tells the audience of a backup.
    pub(crate) fn backed_up(&self, backed_up: BackedUp) -> Result<(), SyncError> {
        self.tell(Event::BackedUp(backed_up))
    }

    /// Tells the audience of an entry that has left the source.
    pub(crate) fn removed(&self, path: EntryPath) -> Result<(), SyncError> {
        self.tell(Event::Removed(path))
    }

    /// Tells the audience why an entry takes part or not.
    pub(crate) fn ruling(&self, ruling: Ruling) -> Result<(), SyncError> {
        self.tell(Event::Ruling(ruling))
    }

    /// Tells the audience of an entry of the tree at the end of the run.
    pub(crate) fn present(&self, present: Present) -> Result<(), SyncError> {
        self.tell(Event::Present(present))
    }

    /// Returns whether the audience wants to hear of this path.
    fn is_about(&self, path: &[u8]) -> bool {
        self.explained.as_ref().is_none_or(|explained| explained.concerns(path))
    }

    /// Returns whether the audience hears of entries that are left alone.
    pub(crate) fn hears_all(&self) -> bool {
        self.with_facts && self.level >= EventLevel::All
    }

    /// Returns whether each entry is told of that was carried out.
    pub(crate) fn tells_done(&self) -> bool {
        self.done
    }

    /// Returns whether plans are told when they are carried out.
    pub(crate) fn tells_ends(&self) -> bool {
        self.ends
    }

    fn hears(&self, planned: &Planned) -> bool {
        let heard = match planned.action {
            Action::Keep => EventLevel::All,
            Action::Link if !self.done => EventLevel::All,
            Action::Reuse if planned.changes.is_empty() && !self.done => EventLevel::All,
            _ => EventLevel::Changes,
        };
        self.level >= heard && self.is_about(&planned.path)
    }

    /// Counts bytes of new files.
    pub(crate) fn received(&self, literal: u64, matched: u64, zero: u64) {
        self.literal_bytes.fetch_add(literal, Ordering::Relaxed);
        self.matched_bytes.fetch_add(matched, Ordering::Relaxed);
        self.progress.bytes_done.fetch_add(literal + matched + zero, Ordering::Relaxed);
    }

    /// Counts bytes of one file for whoever watches at this end.
    pub(crate) fn file_grew(&self, entry: EntryId, size: u64, bytes: u64, path: impl FnOnce() -> EntryPath) {
        if self.is_heard_here() {
            self.under_way.add(entry, size, bytes, path);
        }
    }

    /// Counts bytes that an earlier run left of a file; progress has counted them already.
    pub(crate) fn resumed(&self, bytes: u64) {
        self.matched_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a file that arrived or was given up.
    pub(crate) fn file_done(&self) {
        self.progress.files_done.fetch_add(1, Ordering::Relaxed);
        self.tally.add_file();
    }

    /// Counts an entry that was compared.
    pub(crate) fn entry_checked(&self) {
        self.progress.entries_checked.fetch_add(1, Ordering::Relaxed);
        self.tally.add_entries(1);
    }

    /// Counts an entry of the source's listing.
    pub(crate) fn count_listed(&self, entry: &Entry) {
        if let Some(kind) = file_type(&entry.kind) {
            lock(&self.report).listed.add(kind);
        }
    }

    /// Counts a transfer that takes the place of one that failed; its name was counted as a link.
    pub(crate) fn transfer_added(&self, size: u64) {
        self.progress.files_needed.fetch_add(1, Ordering::Relaxed);
        self.progress.bytes_needed.fetch_add(size, Ordering::Relaxed);
        let mut report = lock(&self.report);
        report.files_transferred += 1;
        report.transferred_bytes = report.transferred_bytes.saturating_add(size);
    }

    /// Takes back the count of a planned transfer that failed.
    pub(crate) fn transfer_failed(&self, action: Action, size: u64) {
        let mut report = lock(&self.report);
        if action == Action::Create {
            report.created.files = report.created.files.saturating_sub(1);
        }
        report.files_transferred = report.files_transferred.saturating_sub(1);
        report.transferred_bytes = report.transferred_bytes.saturating_sub(size);
    }

    /// Takes back the count of a planned hard link that could not be made.
    pub(crate) fn link_failed(&self, action: Action, kind: FileType) {
        if action == Action::Create {
            lock(&self.report).created.take_back(kind);
        }
    }

    /// Records a problem of either end and tells the audience.
    pub(crate) fn problem(&self, problem: Problem) -> Result<(), SyncError> {
        {
            let mut report = lock(&self.report);
            match problem.cause {
                Cause::Vanished | Cause::Changed => report.vanished += 1,
                Cause::Skipped => {}
                Cause::Lacking { .. } => report.attributes_withheld += 1,
                _ => report.failed += 1,
            }
        }
        let unread = matches!(
            problem.operation,
            Operation::ReadDirectory
                | Operation::Stat
                | Operation::ReadLink
                | Operation::ReadFile
                | Operation::ReadAttributes
                | Operation::FollowLink
                | Operation::ReadRules
        );
        if unread && !matches!(problem.cause, Cause::Vanished | Cause::Changed | Cause::Skipped) {
            self.source_damaged.store(true, Ordering::Release);
        }

        let is_there = matches!(problem.cause, Cause::Lacking { .. });
        if let Some(failures) = self.failures.as_ref().filter(|_| !is_there) {
            let kept = failures.note(&problem);
            kept.map_err(|error| SyncError::of_list(problem.operation, "the list of failures", error))?;
        }
        self.tell(Event::Failed(problem))
    }

    /// Returns whether something of the source could not be read, so that nothing may be deleted.
    pub(crate) fn source_damaged(&self) -> bool {
        self.source_damaged.load(Ordering::Acquire)
    }

    /// Changes the report under its lock.
    pub(crate) fn amend(&self, change: impl FnOnce(&mut Report)) {
        change(&mut lock(&self.report));
    }

    /// Returns the report as it stands.
    pub(crate) fn report(&self) -> Report {
        let mut report = lock(&self.report).clone();
        report.literal_bytes = self.literal_bytes.load(Ordering::Relaxed);
        report.matched_bytes = self.matched_bytes.load(Ordering::Relaxed);
        report
    }

    /// Returns how far the run is.
    pub(crate) fn progress(&self) -> Progress {
        self.progress.snapshot()
    }

    /// Tells the observer in this process how far the run is.
    pub(crate) fn tell_observer(&self) {
        if let Some(observer) = self.audience.observer() {
            self.under_way.now().inspect(|file| observer.file(file));
            observer.progress(&self.progress());
        }
    }

    /// Tells the audience how far the run is.
    pub(crate) fn tell_progress(&self) -> Result<(), SyncError> {
        self.tell_observer();
        let wire = self.audience.wire();
        wire.map_or(Ok(()), |control| control.send(&ControlMessage::Progress(self.progress())))
    }

    fn tell(&self, event: Event) -> Result<(), SyncError> {
        if let Some(observer) = self.audience.observer() {
            observer.event(&event);
        }
        let wire = self.audience.wire();
        wire.map_or(Ok(()), |control| control.queue(&ControlMessage::Event(event)))
    }
}

/// Returns whether a plan transfers a file.
fn is_transfer(planned: &Planned) -> bool {
    let makes = matches!(planned.action, Action::Create | Action::Update);
    makes && planned.kind == FileType::File && !planned.changes.contains(Changes::HARD_LINK)
}
