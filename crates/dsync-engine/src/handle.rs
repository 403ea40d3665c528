//! A run on a thread of its own, and the handle by which a program steers it.

use std::{
    collections::BTreeSet,
    future::Future,
    num::NonZeroU64,
    pin::Pin,
    sync::{Arc, Condvar, Mutex},
    task::{Context, Poll, Waker},
};

use dsync_transport::Throttle;
use dsync_wire::{
    event::{Event, Progress},
    message::Cause,
    path::EntryPath,
};

use crate::{
    CancelToken, Connection, Connector, FileProgress, Job, Observer, Reconnect, Summary, SyncError,
    callbacks::caught, halt::lock, threads,
};

/// A run that was started with [`Job::start`] or [`Job::start_over`].
///
/// It is also a future of the [`RunOutcome`], for any executor. Dropping it cancels the run and
/// does not wait for its end; [`RunControls`] steer it from elsewhere.
///
/// ```
/// use std::num::NonZeroU64;
///
/// use dsync_engine::{Destination, Job, Silent, Source, SyncOptions};
///
/// # let home = tempfile::tempdir()?;
/// # let (from, to) = (home.path().join("from"), home.path().join("to"));
/// # std::fs::create_dir(&from)?;
/// # std::fs::write(from.join("note"), "short")?;
/// let source = Source::Local { paths: vec![from.join("")] };
/// let job = Job::new(source, Destination::Local { path: to }).options(SyncOptions::archive());
/// let run = job.start(Silent)?;
///
/// // Office hours begin: stop for now, then go on at a MiB a second.
/// run.pause();
/// run.set_rate(NonZeroU64::new(1 << 20));
/// run.resume();
/// println!("{} of {} files", run.progress().files_done, run.progress().files_needed);
///
/// let outcome = run.join();
/// assert!(outcome.error.is_none() && outcome.failed.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping it cancels the run"]
pub struct RunHandle {
    controls: RunControls,
}

/// The controls of a run that was started, for threads beside the one that has its [`RunHandle`] and
/// waits for the end. Clones are of the same run. Dropping them changes nothing, and once the run is over
/// they do nothing.
///
/// ```
/// use std::{num::NonZeroU64, thread};
///
/// use dsync_engine::{Destination, Job, RunControls, Silent, Source, SyncOptions};
///
/// # let home = tempfile::tempdir()?;
/// # let (from, to) = (home.path().join("from"), home.path().join("to"));
/// # std::fs::create_dir(&from)?;
/// # std::fs::write(from.join("note"), "short")?;
/// let source = Source::Local { paths: vec![from.join("")] };
/// let job = Job::new(source, Destination::Local { path: to }).options(SyncOptions::archive());
/// let run = job.start(Silent)?;
///
/// // Another thread has the buttons of a window, while this one waits.
/// let controls: RunControls = run.controls();
/// let window = thread::spawn(move || {
///     controls.pause();
///     controls.set_rate(NonZeroU64::new(1 << 20));
///     controls.resume();
///     if controls.progress().bytes_needed > 1 << 40 {
///         controls.cancel();
///     }
/// });
/// assert!(run.join().error.is_none());
/// # window.join().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct RunControls {
    run: Arc<Run>,
    throttle: Throttle,
    cancel: CancelToken,
}

/// The end of a run.
///
/// ```
/// use dsync_engine::{RunOutcome, Verdict};
///
/// /// Decides what an agent does next.
/// fn next_step(outcome: &RunOutcome) -> &'static str {
///     match (&outcome.summary, &outcome.error) {
///         (Some(summary), _) if summary.verdict() == Verdict::Done => "sleep until tomorrow",
///         (Some(_), _) if !outcome.failed.is_empty() => "try the failed entries again",
///         (_, Some(error)) if error.is_retryable() => "try all again in a minute",
///         _ => "call somebody",
///     }
/// }
/// # use dsync_engine::{Destination, Job, Silent, Source};
/// # let source = Source::Local { paths: vec!["/no/such/place".into()] };
/// # let outcome = Job::new(source, Destination::Local { path: "/no/such/copy".into() }).start(Silent)?.join();
/// # assert_eq!(next_step(&outcome), "call somebody");
/// # Ok::<(), dsync_engine::SyncError>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct RunOutcome {
    /// The summary, if the run reached its end; failures of single entries are in it.
    pub summary: Option<Summary>,
    /// The reason why it did not.
    pub error: Option<SyncError>,
    /// The last progress that was reported, which an error does not take away.
    pub progress: Progress,
    /// Paths of the entries that failed, below the transfer's root, in order and each once:
    /// [`Job::only`] tries these again. Entries that the options leave out
    /// ([`Cause::Skipped`](crate::Cause::Skipped)) are not among them. A missing operand is listed as it was
    /// given; a missing path of [`Source::Files`](crate::Source::Files) is listed with the root in front. After a
    /// [reconnect](Observer::reconnecting) they are those of the last session, which planned everything
    /// anew, like the counts of the summary. Where they would take more than 16 MiB, as a peer can name any
    /// number, it is the root alone (an empty path): then all is tried again.
    pub failed: Vec<EntryPath>,
}

impl RunHandle {
    /// Returns controls that other threads can keep while one waits for the end.
    pub fn controls(&self) -> RunControls {
        self.controls.clone()
    }

    /// Stops content until [`resume`](Self::resume): of a push it is not sent, of a pull not read,
    /// of a local run not copied, but for what is on its way. The connection stays. Over a connection a pause beyond
    /// [`Resources::max_stall`](crate::Resources::max_stall) of either end ends the run. A local run waits for
    /// as long as it is paused.
    pub fn pause(&self) {
        self.controls.pause();
    }

    /// Lets content go on.
    pub fn resume(&self) {
        self.controls.resume();
    }

    /// Sets the bytes of content per second from now on; `None` is no limit. The other end keeps
    /// to the rate that the job was [described](crate::ConnectOptions::bytes_per_second) with. A
    /// local run that was described without one keeps the rate by whole segments of a file. Progress is counted by
    /// messages of up to 1 MiB: over a connection a rate at which one takes longer than
    /// [`Resources::max_stall`](crate::Resources::max_stall) ends the run as stalled.
    pub fn set_rate(&self, bytes_per_second: Option<NonZeroU64>) {
        self.controls.set_rate(bytes_per_second);
    }

    /// Returns the last progress that was reported.
    pub fn progress(&self) -> Progress {
        self.controls.progress()
    }

    /// Cancels the run, paused or not: it ends within about a second, or when a callback of the program's
    /// (observer, filter, connector, iterator) that is under way has returned.
    ///
    /// ```
    /// use dsync_engine::{Destination, Job, RunHandle, Silent, Source, SyncError};
    ///
    /// # let home = tempfile::tempdir()?;
    /// # let (from, to) = (home.path().join("from"), home.path().join("to"));
    /// # std::fs::create_dir(&from)?;
    /// # std::fs::write(from.join("note"), "short")?;
    /// # let source = Source::Local { paths: vec![from.join("")] };
    /// let run: RunHandle = Job::new(source, Destination::Local { path: to }).start(Silent)?;
    /// if !run.is_finished() {
    ///     run.cancel();
    /// }
    /// // It may have ended before it heard of that.
    /// assert!(matches!(run.join().error, None | Some(SyncError::Cancelled)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&self) {
        self.controls.cancel();
    }

    /// Returns whether the run is over.
    pub fn is_finished(&self) -> bool {
        !matches!(lock(&self.controls.run.end).stage, Stage::Runs)
    }

    /// Waits for the end. A callback of the run must not call it: the end waits for the callback.
    ///
    /// If the handle was already awaited to its end, its outcome is gone: `join`, and every further await,
    /// returns [`SyncError::InvalidOption`] in its place.
    pub fn join(self) -> RunOutcome {
        let mut end = lock(&self.controls.run.end);
        loop {
            if let Some(outcome) = self.controls.run.outcome(&mut end) {
                return outcome;
            }
            end = crate::halt::wait(&self.controls.run.ended, end);
        }
    }
}

impl RunControls {
    /// Stops content as [`RunHandle::pause`] does.
    pub fn pause(&self) {
        self.throttle.pause();
    }

    /// Lets content go on.
    pub fn resume(&self) {
        self.throttle.resume();
    }

    /// Sets the bytes of content per second as [`RunHandle::set_rate`] does.
    pub fn set_rate(&self, bytes_per_second: Option<NonZeroU64>) {
        self.throttle.set_rate(bytes_per_second);
    }

    /// Returns the last progress that was reported.
    pub fn progress(&self) -> Progress {
        *lock(&self.run.progress)
    }

    /// Cancels the run as [`RunHandle::cancel`] does.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }
}

impl Future for RunHandle {
    type Output = RunOutcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<RunOutcome> {
        let mut end = lock(&self.controls.run.end);
        if let Some(outcome) = self.controls.run.outcome(&mut end) {
            return Poll::Ready(outcome);
        }
        end.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for RunHandle {
    fn drop(&mut self) {
        self.controls.cancel();
    }
}

/// The state that the run's thread and the handle share.
#[derive(Debug, Default)]
struct Run {
    progress: Mutex<Progress>,
    failed: Mutex<Failed>,
    end: Mutex<End>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct End {
    stage: Stage,
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Runs,
    Over(Box<RunOutcome>),
    /// Somebody has the outcome.
    Taken,
}

impl Run {
    /// Takes the outcome if the run is over. Whoever comes late is told so.
    fn outcome(&self, end: &mut End) -> Option<RunOutcome> {
        match std::mem::replace(&mut end.stage, Stage::Taken) {
            Stage::Over(outcome) => Some(*outcome),
            Stage::Runs => {
                end.stage = Stage::Runs;
                None
            }
            Stage::Taken => {
                let why = "has returned its outcome to an earlier await or join".to_owned();
                let error = Some(SyncError::InvalidOption { option: "run", why });
                let (progress, failed) = (*lock(&self.progress), Vec::new());
                Some(RunOutcome { summary: None, error, progress, failed })
            }
        }
    }
}

/// Passes reports on, and keeps the last progress.
struct Watched<O> {
    observer: O,
    run: Arc<Run>,
}

impl<O: Observer> Observer for Watched<O> {
    fn connected(&self, connection: &Connection) {
        self.observer.connected(connection);
    }

    fn shell_says(&self, lines: &[String]) {
        self.observer.shell_says(lines);
    }

    fn peer_lacks(&self, lacks: &[String]) {
        self.observer.peer_lacks(lacks);
    }

    fn reconnecting(&self, reconnect: &Reconnect<'_>) {
        // The next session plans everything anew, and tells of what fails again.
        *lock(&self.run.failed) = Failed::default();
        self.observer.reconnecting(reconnect);
    }

    fn event(&self, event: &Event) {
        if let Event::Failed(problem) = event
            && problem.cause != Cause::Skipped
        {
            lock(&self.run.failed).note(&problem.path);
        }
        self.observer.event(event);
    }

    fn file(&self, file: &FileProgress) {
        self.observer.file(file);
    }

    fn progress(&self, progress: &Progress) {
        *lock(&self.run.progress) = *progress;
        self.observer.progress(progress);
    }
}

/// The paths that failed, in bounded memory.
#[derive(Debug, Default)]
struct Failed {
    paths: BTreeSet<EntryPath>,
    bytes: usize,
    /// Whether the root stands for all of them.
    is_all: bool,
}

impl Failed {
    fn note(&mut self, path: &[u8]) {
        if self.is_all || self.paths.contains(path) {
            return;
        }
        self.bytes += path.len() + PATH_BYTES;
        if self.bytes > MOST_BYTES {
            self.is_all = true;
            self.paths = BTreeSet::from([EntryPath::default()]);
        } else {
            self.paths.insert(path.into());
        }
    }
}

/// Memory for the paths that failed.
const MOST_BYTES: usize = 16 << 20;
/// Memory of a path beside its bytes: its vector, its share of a node, the allocator's word.
const PATH_BYTES: usize = 64;

/// Starts a job on a thread of its own.
pub(crate) fn start(
    job: Job,
    connector: Option<Box<dyn Connector + Send>>,
    observer: impl Observer + 'static,
) -> Result<RunHandle, SyncError> {
    let (run, cancel) = (Arc::new(Run::default()), CancelToken::new());
    let throttle = Throttle::new(job.rate());
    let controls = RunControls { run: Arc::clone(&run), throttle: throttle.clone(), cancel: cancel.clone() };
    let handle = RunHandle { controls };
    let watched = Watched { observer, run: Arc::clone(&run) };

    let work = move || {
        let own: Option<&dyn Connector> = connector.as_deref().map(|own| own as _);
        let result = job.conduct(own, Some(&throttle), &watched, &cancel);
        // Whoever has waited for the end finds nothing of the program's still held.
        let released = caught(|| {
            drop((watched, connector, throttle));
            Ok(())
        });
        let result = result.and_then(|summary| released.map(|()| summary));
        let (summary, error) = match result {
            Ok(summary) => (Some(summary), None),
            Err(error) => (None, Some(error)),
        };
        let progress = *lock(&run.progress);
        let failed = std::mem::take(&mut *lock(&run.failed)).paths.into_iter().collect();
        let mut end = lock(&run.end);
        end.stage = Stage::Over(Box::new(RunOutcome { summary, error, progress, failed }));
        run.ended.notify_all();
        let waker = end.waker.take();
        drop(end);
        waker.into_iter().for_each(Waker::wake);
    };
    threads::spawn("dsync-run", work)?;
    Ok(handle)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::time::Duration;

    use dsync_wire::message::{Operation, Problem};

    use super::*;
    use crate::{ConnectOptions, Destination, Silent, Source, SyncOptions, Verdict};

    #[test]
    fn an_outcome_is_returned_once_and_who_comes_late_does_not_wait() {
        let job = || Job::new(Source::Local { paths: Vec::new() }, Destination::Nowhere);
        let mut context = Context::from_waker(Waker::noop());
        let is_late = |outcome: &RunOutcome| matches!(&outcome.error, Some(SyncError::InvalidOption { option, .. }) if *option == "run");

        let mut run = job().start(Silent).unwrap();
        let first = loop {
            if let Poll::Ready(outcome) = Pin::new(&mut run).poll(&mut context) {
                break outcome;
            }
            std::thread::yield_now();
        };
        assert!(first.error.is_some() && !is_late(&first));

        let Poll::Ready(second) = Pin::new(&mut run).poll(&mut context) else { panic!("it waits") };
        assert!(run.is_finished() && is_late(&second) && is_late(&run.join()));
    }

    /// An observer that a program keeps a hold on, and that takes its time to be dropped.
    struct Held(#[expect(dead_code, reason = "only held")] Arc<()>);

    impl Observer for Held {}

    impl Drop for Held {
        fn drop(&mut self) {
            // Makes a wrong order likely, and decides nothing.
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[test]
    fn nothing_of_the_programs_is_held_when_the_run_is_over() {
        let home = tempfile::tempdir().unwrap();
        let (observer, connector) = (Arc::new(()), Arc::new(()));
        let job = Job::new(
            Source::Local { paths: vec![home.path().join("")] },
            Destination::Peer { path: "there".into() },
        );
        let (held, kept) = (Held(Arc::clone(&observer)), Held(Arc::clone(&connector)));
        let connect = move |_: &CancelToken| -> std::io::Result<crate::Stream> {
            let _kept = &kept;
            Err(std::io::ErrorKind::ConnectionRefused.into())
        };
        assert!(job.start_over(connect, held).unwrap().join().error.is_some());
        assert_eq!((Arc::strong_count(&observer), Arc::strong_count(&connector)), (1, 1));
    }

    /// An observer that cannot be dropped.
    struct Explosive;

    impl Observer for Explosive {}

    impl Drop for Explosive {
        fn drop(&mut self) {
            panic!("it falls over");
        }
    }

    #[test]
    fn a_panic_as_the_observer_is_dropped_ends_the_run() {
        let home = tempfile::tempdir().unwrap();
        let source = Source::Local { paths: vec![home.path().join("")] };
        let job = Job::new(source, Destination::Local { path: home.path().join("to") });
        let outcome = job.options(SyncOptions::default().dry_run(true)).start(Explosive).unwrap().join();
        assert!(matches!(outcome.error, Some(SyncError::Aborted { .. })), "{outcome:?}");
    }

    #[test]
    fn controls_steer_a_run_that_another_thread_waits_for() {
        let home = tempfile::tempdir().unwrap();
        let (from, to) = (home.path().join("from"), home.path().join("to"));
        std::fs::create_dir(&from).unwrap();
        ["a", "b", "c"].iter().for_each(|name| std::fs::write(from.join(name), vec![7; 3 << 20]).unwrap());
        let source = Source::Local { paths: vec![from.join("")] };
        let job = Job::new(source, Destination::Local { path: to }).options(SyncOptions::archive());
        // Nobody waits for its end.
        let slow = ConnectOptions::default().bytes_per_second(NonZeroU64::new(1));
        let run = job.connect(slow).start(Silent).unwrap();
        let controls = run.controls();
        let waiting = std::thread::spawn(|| run.join());
        controls.pause();
        controls.clone().cancel();
        let outcome = waiting.join().unwrap();
        // Files that are cloned take no time.
        assert!(matches!(outcome.error, None | Some(SyncError::Cancelled)), "{outcome:?}");
        assert_eq!(controls.progress(), outcome.progress);
    }

    #[test]
    fn what_failed_before_a_reconnect_is_left_to_the_next_session() {
        let run = Arc::new(Run::default());
        let watched = Watched { observer: Silent, run: Arc::clone(&run) };
        let fails = |path: &str| {
            watched.event(&Event::Failed(Problem::new(Operation::Stat, path, Cause::Changed)));
        };
        ["a", "b"].iter().for_each(|path| fails(path));
        let cause = &SyncError::BothRemote;
        watched.reconnecting(&Reconnect { cause, number: 1, limit: 1, wait: Duration::ZERO });
        fails("b");
        assert_eq!(lock(&run.failed).paths, BTreeSet::from(["b".into()]));
    }

    #[test]
    fn what_the_options_leave_out_has_not_failed() {
        let home = tempfile::tempdir().unwrap();
        let (from, to) = (home.path().join("from"), home.path().join("to"));
        std::fs::create_dir(&from).unwrap();
        std::os::unix::fs::symlink("nowhere", from.join("link")).unwrap();
        // A directory that nobody enters, and a link that nobody copies.
        for options in [SyncOptions::default(), SyncOptions::archive().links(false)] {
            let source = Source::Local { paths: vec![from.join("")] };
            let job = Job::new(source, Destination::Local { path: to.clone() }).options(options);
            let RunOutcome { summary, failed, .. } = job.start(Silent).unwrap().join();
            assert!(summary.is_some_and(|summary| summary.verdict() == Verdict::Done));
            assert_eq!(failed, [] as [EntryPath; 0]);
        }
    }

    #[test]
    fn paths_that_failed_take_no_more_than_their_bound_and_then_mean_all() {
        let mut failed = Failed::default();
        [&b"b"[..], b"a", b"b"].iter().for_each(|path| failed.note(path));
        assert_eq!(failed.paths, BTreeSet::from(["a".into(), "b".into()]));

        for number in 0..5000_u32 {
            failed.note(&[&number.to_be_bytes()[..], &[b'x'; 4000]].concat());
            let held: usize = failed.paths.iter().map(|path| path.len()).sum();
            assert!(held <= MOST_BYTES);
        }
        assert_eq!(failed.paths, BTreeSet::from([EntryPath::default()]));
    }
}
