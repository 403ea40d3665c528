//! Reports of a run while it goes on.

use std::time::Duration;

use dsync_fs::{Chooser, Spelling};
use dsync_wire::{
    event::{Event, Progress},
    link::{Carrier, Move},
    path::EntryPath,
    setters,
};

use crate::{CancelToken, SyncError, callbacks::Callbacks, choice::Filter};

/// Listens to a run. Called from several of the engine's threads; keep it short, a slow observer
/// slows the run. A panic in an observer ends the run with [`SyncError::Aborted`], not the process;
/// nothing is reported after it.
///
/// ```
/// use dsync_engine::{Connection, Event, FileProgress, Observer, Progress, Reconnect};
///
/// struct Terminal;
///
/// impl Observer for Terminal {
///     fn shell_says(&self, lines: &[String]) {
///         eprintln!("{}", lines.join("\n"));
///     }
///
///     fn connected(&self, connection: &Connection) {
///         println!("connected by {}", connection.carrier);
///     }
///
///     fn peer_lacks(&self, lacks: &[String]) {
///         println!("{}", lacks.join("; "));
///     }
///
///     fn reconnecting(&self, reconnect: &Reconnect<'_>) {
///         println!("{}: try {} of {}", reconnect.cause, reconnect.number, reconnect.limit);
///     }
///
///     fn event(&self, event: &Event) {
///         if let Event::Failed(problem) = event {
///             println!("failed: {}", problem.path);
///         }
///     }
///
///     fn progress(&self, progress: &Progress) {
///         println!("{} of {} bytes", progress.bytes_done, progress.bytes_needed);
///     }
///
///     fn file(&self, file: &FileProgress) {
///         println!("{}", file.path);
///     }
/// }
/// # Terminal.file(&FileProgress::new("photos/one", 3));
/// ```
pub trait Observer: Send + Sync {
    /// Reports what the remote shell has written to standard error, escaped lines, while the other end has
    /// not answered for three seconds: it may ask somebody for something. Called again as more comes.
    fn shell_says(&self, _lines: &[String]) {}

    /// Reports that the peer is connected and authenticated; not called for local runs, again after
    /// each [`reconnecting`](Self::reconnecting).
    fn connected(&self, _connection: &Connection) {}

    /// Reports what the remote end's system lacks to confine the process there, and why a state there
    /// is not used: a sentence each, in that end's words. Called when the session begins, and only if
    /// something is lacking.
    fn peer_lacks(&self, _lacks: &[String]) {}

    /// Reports that the connection broke, or a new one could not be made; another try follows.
    fn reconnecting(&self, _reconnect: &Reconnect<'_>) {}

    /// Reports that something happened to one entry.
    /// [`SyncOptions::events`](crate::SyncOptions::events) sets how much is reported.
    ///
    /// ```
    /// use dsync_engine::{Event, EventLevel, Observer, SyncOptions};
    ///
    /// struct Log;
    ///
    /// impl Observer for Log {
    ///     fn event(&self, event: &Event) {
    ///         match event {
    ///             Event::Planned(plan) => {
    ///                 println!("{:?} {}", plan.action, plan.path)
    ///             }
    ///             Event::Done(done) => println!("done, on the disk: {}", done.durable),
    ///             Event::Failed(problem) => println!("failed: {}", problem.cause),
    ///             _ => {}
    ///         }
    ///     }
    /// }
    /// // Entries that are up to date are told of as well.
    /// let options = SyncOptions::archive().events(EventLevel::All).event_done(true);
    /// # let _ = (Log, options);
    /// ```
    fn event(&self, _event: &Event) {}

    /// Reports the progress of the run, a few times a second. After a lost connection the counts
    /// start anew: they are those of the work that was left.
    fn progress(&self, _progress: &Progress) {}

    /// Reports the file whose content is under way, just before a
    /// [`progress`](Self::progress). Files are in flight side by side; this is one of them.
    fn file(&self, _file: &FileProgress) {}
}

/// The progress of one file's content, as this end knows it: what a source has sent may not have
/// arrived.
///
/// ```
/// use dsync_engine::FileProgress;
///
/// // An observer is tested without a run.
/// let half = FileProgress::new("film", 100).done_bytes(50);
/// assert!(!half.is_complete() && half.done_bytes(100).is_complete());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileProgress {
    /// Path below the root of the tree.
    pub path: EntryPath,
    /// Size as listed, in bytes.
    pub size: u64,
    /// Bytes of the file that are done, at most `size`.
    pub done_bytes: u64,
}

impl FileProgress {
    /// Makes the progress of a file that has no bytes yet.
    pub fn new(path: impl Into<EntryPath>, size: u64) -> Self {
        Self { path: path.into(), size, done_bytes: 0 }
    }
}

setters!(FileProgress { path: EntryPath, size: u64, done_bytes: u64 });

impl FileProgress {
    /// Returns whether no byte is missing.
    pub fn is_complete(&self) -> bool {
        self.done_bytes >= self.size
    }
}

/// An observer that ignores everything.
///
/// ```
/// use dsync_engine::{
///     CancelToken, Destination, Job, Report, Silent, Source, SyncOptions, TypeCounts,
/// };
///
/// # let home = tempfile::tempdir()?;
/// # let (from, to) = (home.path().join("from"), home.path().join("to"));
/// # std::fs::create_dir(&from)?;
/// # std::fs::write(from.join("note"), "short")?;
/// // A service that only wants the account at the end.
/// let source = Source::Local { paths: vec![from.join("")] };
/// let job = Job::new(source, Destination::Local { path: to }).options(SyncOptions::archive());
/// let Report { created, total_bytes, .. } = job.run(&Silent, &CancelToken::new())?.report;
/// let TypeCounts { files, directories, .. } = created;
/// assert_eq!((files, directories, created.total(), total_bytes), (1, 1, 2, 5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {}

/// Passes every callback on to the observer behind a pointer.
macro_rules! passed_on {
    ($($pointer:ty),*) => {$(
        impl<T: Observer + ?Sized> Observer for $pointer {
            fn shell_says(&self, lines: &[String]) {
                (**self).shell_says(lines);
            }

            fn connected(&self, connection: &Connection) {
                (**self).connected(connection);
            }

            fn peer_lacks(&self, lacks: &[String]) {
                (**self).peer_lacks(lacks);
            }

            fn reconnecting(&self, reconnect: &Reconnect<'_>) {
                (**self).reconnecting(reconnect);
            }

            fn event(&self, event: &Event) {
                (**self).event(event);
            }

            fn progress(&self, progress: &Progress) {
                (**self).progress(progress);
            }

            fn file(&self, file: &FileProgress) {
                (**self).file(file);
            }
        }
    )*};
}

passed_on!(&T, Box<T>, std::sync::Arc<T>);

/// The way in which the peer was reached.
///
/// ```
/// use dsync_engine::{Carrier, Connection, Move, MoveCause};
///
/// /// Returns a sentence for those who ask why a run is slow.
/// fn sentence(connection: &Connection) -> String {
///     let lossy =
///         connection.moves.iter().any(|step| matches!(step.cause, MoveCause::Loss { .. }));
///     match connection.carrier {
///         Carrier::Ssh => "no port of the host answers: all goes through ssh".into(),
///         _ if lossy => "the line loses packets".into(),
///         carrier => format!("data goes by {carrier}"),
///     }
/// }
/// // A test needs no run.
/// let lossy = Connection::new(Carrier::Quic)
///     .moves(vec![Move::new(Carrier::Tls, MoveCause::Loss { per_million: 9 })]);
/// assert_eq!(sentence(&lossy), "the line loses packets");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Connection {
    /// The carrier that the data began with.
    pub carrier: Carrier,
    /// The reason for this carrier, in words; `None` when no other was allowed.
    pub reason: Option<String>,
    /// The moves of data to another carrier since then, oldest first; of each end the last 24.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub moves: Vec<Move>,
}

impl Connection {
    /// Makes a connection by a carrier that no other was allowed beside, without moves.
    pub fn new(carrier: Carrier) -> Self {
        Self { carrier, reason: None, moves: Vec::new() }
    }
}

setters!(Connection { carrier: Carrier, reason: Option<String>, moves: Vec<Move> });

/// A try to go on after the connection broke.
///
/// ```
/// use std::time::Duration;
///
/// use dsync_engine::{LinkError, Reconnect, SyncError};
///
/// /// Tells a person once the line has been down for a while.
/// fn notice(reconnect: &Reconnect<'_>) -> Option<String> {
///     let is_last = reconnect.number == reconnect.limit;
///     let cause: &SyncError = reconnect.cause;
///     (is_last || reconnect.number > 3)
///         .then(|| format!("{cause}; next try in {:?}", reconnect.wait))
/// }
/// // A test needs no run.
/// let broke = SyncError::Link(LinkError::Lost);
/// let wait = Duration::from_secs(8);
/// assert!(notice(&Reconnect::new(&broke, 1, 5, wait)).is_none());
/// assert_eq!(
///     notice(&Reconnect::new(&broke, 5, 5, wait)).as_deref(),
///     Some("the connection broke; next try in 8s")
/// );
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Reconnect<'a> {
    /// The error that broke the session, or kept the last try from becoming one.
    pub cause: &'a SyncError,
    /// The number of this try in a row, from 1.
    pub number: u32,
    /// Most tries in a row: [`ConnectOptions::retries`](crate::ConnectOptions::retries).
    pub limit: u32,
    /// Pause before the try.
    pub wait: Duration,
}

impl<'a> Reconnect<'a> {
    /// Describes the try of a number, of so many at most, after this error and a pause.
    pub fn new(cause: &'a SyncError, number: u32, limit: u32, wait: Duration) -> Self {
        Self { cause, number, limit, wait }
    }
}

/// An observer whose panic ends its run and nothing else, whichever thread calls it in whichever
/// phase. Every callback of a run goes through one of these.
pub(crate) struct Guarded<'a> {
    observer: &'a dyn Observer,
    callbacks: Callbacks,
}

impl<'a> Guarded<'a> {
    /// Guards the observer of a run that `cancel` stops.
    pub(crate) fn new(observer: &'a dyn Observer, cancel: &CancelToken) -> Self {
        Self { observer, callbacks: Callbacks::new(cancel) }
    }

    /// Returns the token that the run listens to.
    pub(crate) fn cancel(&self) -> &CancelToken {
        self.callbacks.cancel()
    }

    /// Returns the result of the run, which is an error if the observer panicked, or was not told all
    /// because the run is cancelled.
    pub(crate) fn verdict<T>(self, outcome: Result<T, SyncError>) -> Result<T, SyncError> {
        match self.callbacks.panic() {
            Some(message) => Err(SyncError::Aborted { message }),
            None if outcome.is_ok() && self.callbacks.lack() => Err(SyncError::Cancelled),
            None => outcome,
        }
    }

    /// Returns the judge of a source's walk, which is guarded as the observer is.
    pub(crate) fn chooser(&self, filter: &Filter, spelling: Option<Spelling>) -> Chooser {
        filter.chooser(self.callbacks.clone(), spelling)
    }

    fn call(&self, callback: impl FnOnce(&dyn Observer)) {
        self.callbacks.call(|| callback(self.observer));
    }
}

impl Observer for Guarded<'_> {
    fn shell_says(&self, lines: &[String]) {
        self.call(|observer| observer.shell_says(lines));
    }

    fn connected(&self, connection: &Connection) {
        self.call(|observer| observer.connected(connection));
    }

    fn peer_lacks(&self, lacks: &[String]) {
        self.call(|observer| observer.peer_lacks(lacks));
    }

    fn reconnecting(&self, reconnect: &Reconnect<'_>) {
        self.call(|observer| observer.reconnecting(reconnect));
    }

    fn event(&self, event: &Event) {
        self.call(|observer| observer.event(event));
    }

    fn progress(&self, progress: &Progress) {
        self.call(|observer| observer.progress(progress));
    }

    fn file(&self, file: &FileProgress) {
        self.call(|observer| observer.file(file));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dsync_wire::message::{Cause, Operation, Problem};

    use super::*;

    type Callback<'a> = &'a dyn Fn(&Guarded<'_>);

    /// Panics in every callback.
    struct Panics;

    impl Observer for Panics {
        fn shell_says(&self, _: &[String]) {
            panic!("shell_says");
        }

        fn connected(&self, _: &Connection) {
            panic!("connected");
        }

        fn peer_lacks(&self, _: &[String]) {
            panic!("peer_lacks");
        }

        fn reconnecting(&self, _: &Reconnect<'_>) {
            panic!("reconnecting");
        }

        fn event(&self, _: &Event) {
            panic!("event");
        }

        fn progress(&self, _: &Progress) {
            panic!("progress");
        }

        fn file(&self, _: &FileProgress) {
            panic!("file");
        }
    }

    /// Counts what it hears.
    #[derive(Default)]
    struct Counts(std::sync::atomic::AtomicU32);

    impl Counts {
        fn one(&self) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    impl Observer for Counts {
        fn shell_says(&self, _: &[String]) {
            self.one();
        }
        fn connected(&self, _: &Connection) {
            self.one();
        }
        fn peer_lacks(&self, _: &[String]) {
            self.one();
        }
        fn reconnecting(&self, _: &Reconnect<'_>) {
            self.one();
        }
        fn event(&self, _: &Event) {
            self.one();
        }
        fn progress(&self, _: &Progress) {
            self.one();
        }
        fn file(&self, _: &FileProgress) {
            self.one();
        }
    }

    fn call_all(observer: impl Observer) {
        observer.connected(&Connection { carrier: Carrier::Ssh, reason: None, moves: Vec::new() });
        observer.shell_says(&[]);
        observer.peer_lacks(&[]);
        let cause = &SyncError::BothRemote;
        observer.reconnecting(&Reconnect { cause, number: 1, limit: 1, wait: Duration::ZERO });
        let problem = Problem::new(Operation::Stat, "", Cause::Vanished);
        observer.event(&Event::Failed(problem));
        observer.progress(&Progress::default());
        observer.file(&FileProgress::new("", 0));
    }

    #[test]
    fn every_pointer_passes_every_callback_on() {
        let counts = std::sync::Arc::new(Counts::default());
        call_all(&*counts);
        call_all(std::sync::Arc::clone(&counts));
        call_all(Box::new(std::sync::Arc::clone(&counts)) as Box<dyn Observer>);
        assert_eq!(counts.0.load(std::sync::atomic::Ordering::Relaxed), 21);
    }

    #[test]
    fn every_callback_is_guarded() {
        let connection = Connection { carrier: Carrier::Ssh, reason: None, moves: Vec::new() };
        let reconnect =
            Reconnect { cause: &SyncError::BothRemote, number: 1, limit: 1, wait: Duration::ZERO };
        let failed = Event::Failed(Problem::new(Operation::Stat, "", Cause::Vanished));
        let file = FileProgress::new("", 0);
        let callbacks: [(&str, Callback<'_>); 7] = [
            ("connected", &|guarded| guarded.connected(&connection)),
            ("shell_says", &|guarded| guarded.shell_says(&[])),
            ("peer_lacks", &|guarded| guarded.peer_lacks(&[])),
            ("reconnecting", &|guarded| guarded.reconnecting(&reconnect)),
            ("event", &|guarded| guarded.event(&failed)),
            ("progress", &|guarded| guarded.progress(&Progress::default())),
            ("file", &|guarded| guarded.file(&file)),
        ];
        for (name, call) in callbacks {
            let cancel = CancelToken::new();
            let guarded = Guarded::new(&Panics, &cancel);
            call(&guarded);
            assert!(guarded.cancel().is_cancelled() && !cancel.is_cancelled());
            // Nothing is reported any more.
            callbacks.iter().for_each(|(_, call)| call(&guarded));
            let error = guarded.verdict(Ok(())).unwrap_err();
            assert!(matches!(error, SyncError::Aborted { message } if message == name));
        }
    }
}
