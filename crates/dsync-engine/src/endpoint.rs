//! A run and how it is started: [`Job`], [`serve`].

mod described;
mod homes;
mod lent;
mod local;
mod manifested;
mod named;
mod opening;
#[cfg(feature = "ssh")]
mod remote_end;
mod serving;

use std::{
    ffi::OsString,
    num::NonZeroU64,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use dsync_fs::{Chooser, FileList, Spelling, TreeWatch};
use dsync_transport::Throttle;
use dsync_wire::{
    budget::Budget,
    event::Report,
    link::{Link, Traffic},
    message::{ListPlace, PeerRole},
    options::{DetectRenamed, EventLevel, SyncOptions},
    path::EntryPath,
};

#[cfg(feature = "ssh")]
pub use self::remote_end::serve;
pub(crate) use self::{
    opening::{Place, expanded, open_tree},
    serving::{Means, serve_link},
};
use crate::{
    CancelToken, Manifest, Observer, Resources, Summary, SyncError,
    acting::{acting, on_own_thread, with_own_workers},
    batch::{Batch, Recorder, Recording},
    callbacks::caught,
    check,
    choice::Filter,
    destination::{self, asked::AskedFor},
    ends::{ConnectOptions, Destination, FilesFrom, NOWHERE, Source},
    footprint::{Cage, Footprint, Inmates},
    grant::Start,
    handle::{self, RunHandle},
    manifest_file::{ManifestFile, ManifestHears},
    names,
    observe::{Connection, Guarded},
    own_entries::OwnEntries,
    reconnect::{self, Attempt, Earlier, SystemClock},
    rules::{self, Filters},
    session::{self, Session},
    source::{self, ListedFiles, Origin, Tree},
    spelled,
    way::{Connector, Way},
};

/// One run, described but not started.
///
/// ```
/// use dsync_engine::{CancelToken, Destination, Job, Silent, Source, SyncOptions};
///
/// # let home = tempfile::tempdir()?;
/// # let (from, to) = (home.path().join("from"), home.path().join("to"));
/// # std::fs::create_dir(&from)?;
/// # std::fs::write(from.join("note"), "short")?;
/// let source = Source::Local { paths: vec![from.join("")] };
/// let job = Job::new(source, Destination::Local { path: to.clone() });
///
/// // First a dry run: what would it do?
/// let mut options = SyncOptions::archive();
/// options.dry_run = true;
/// let planned = job.clone().options(options).run(&Silent, &CancelToken::new())?;
/// assert!(planned.report.files_transferred == 1 && !to.exists());
///
/// let done = job.options(SyncOptions::archive()).run(&Silent, &CancelToken::new())?;
/// assert_eq!((done.exit_code(), std::fs::read(to.join("note"))?), (0, b"short".to_vec()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Job {
    source: Source,
    destination: Destination,
    options: SyncOptions,
    connect: ConnectOptions,
    resources: Resources,
    cage: Option<Arc<dyn Cage>>,
    files_from: Option<FilesFrom>,
    spelling: Option<Spelling>,
    recording: Option<Recording>,
    manifest_file: Option<ManifestFile>,
    /// Files that the caller writes.
    own_files: Vec<PathBuf>,
    filter: Option<Filter>,
    watch: Option<TreeWatch>,
    /// The entries that the job is narrowed to, if not all of them are copied.
    only: Option<Vec<EntryPath>>,
    /// The manifest, once the source is the list of its names.
    manifest: Option<Manifest>,
}

impl Job {
    /// Describes a run with default options (see [`SyncOptions`]: nothing recursive, nothing
    /// preserved).
    pub fn new(source: Source, destination: Destination) -> Self {
        let (options, connect) = (SyncOptions::default(), ConnectOptions::default());
        let (cage, files_from, spelling, recording, filter) = Default::default();
        let (only, manifest, manifest_file, watch, own_files) = Default::default();
        let resources = Resources::default();
        Self {
            source,
            destination,
            options,
            connect,
            resources,
            cage,
            files_from,
            spelling,
            recording,
            manifest_file,
            own_files,
            filter,
            watch,
            only,
            manifest,
        }
    }

    /// Runs on the calling thread and the engine's own, and returns when the run is over and, under
    /// the default durability, on the disk.
    ///
    /// # Errors
    /// [`SyncError`] when the run could not start or not go on; failures of single entries are in
    /// the summary and the events instead.
    pub fn run(self, observer: &dyn Observer, cancel: &CancelToken) -> Result<Summary, SyncError> {
        self.conduct(None, None, observer, cancel)
    }

    /// Starts the run on a thread of its own.
    ///
    /// # Errors
    /// [`SyncError::Thread`]; all else is in the [`RunOutcome`](crate::RunOutcome).
    pub fn start(self, observer: impl Observer + 'static) -> Result<RunHandle, SyncError> {
        handle::start(self, None, observer)
    }

    /// Starts the run on a thread of its own, over connections as of [`run_over`](Self::run_over).
    ///
    /// # Errors
    /// As [`start`](Self::start).
    ///
    /// ```
    /// use std::os::unix::net::UnixStream;
    ///
    /// use dsync_engine::{CancelToken, Destination, Job, Silent, Source, Stream, SyncOptions};
    /// # use dsync_engine::Server;
    ///
    /// # let home = tempfile::tempdir()?;
    /// # let (from, to) = (home.path().join("from"), home.path().join("to"));
    /// # std::fs::create_dir(&from)?;
    /// # std::fs::write(from.join("note"), "short")?;
    /// // A pull from a service whose connections the program makes.
    /// let source = Source::Peer { paths: vec![from.join("").into()] };
    /// let job = Job::new(source, Destination::Local { path: to.clone() })
    ///     .options(SyncOptions::archive());
    /// let connect = |_: &CancelToken| {
    ///     let (agent, service) = UnixStream::pair()?;
    /// #   let server = Server::new(Stream::from_socket(service)?);
    /// #   std::thread::spawn(move || server.serve(&Silent, &CancelToken::new()));
    ///     Stream::from_socket(agent)
    /// };
    /// let outcome = job.start_over(connect, Silent)?.join();
    /// assert!(outcome.error.is_none() && to.join("note").exists());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_over(
        self,
        connector: impl Connector + Send + 'static,
        observer: impl Observer + 'static,
    ) -> Result<RunHandle, SyncError> {
        handle::start(self, Some(Box::new(connector)), observer)
    }

    /// Returns the rate that the job was described with.
    pub(crate) fn rate(&self) -> Option<NonZeroU64> {
        self.connect.bytes_per_second
    }

    /// Runs as [`run`](Self::run) does, over connections that the caller makes to a
    /// [`Server`](crate::Server): one of the two ends is [`Source::Peer`] or [`Destination::Peer`].
    /// No port is opened, no process is started, and no byte leaves the connection.
    ///
    /// # Errors
    /// As [`run`](Self::run), and [`SyncError::Connector`].
    ///
    /// ```
    /// use std::os::unix::net::UnixStream;
    ///
    /// use dsync_engine::{
    ///     CancelToken, Destination, Job, Server, Silent, Source, Stream, SyncOptions,
    /// };
    ///
    /// # let home = tempfile::tempdir()?;
    /// # let (from, to) = (home.path().join("from"), home.path().join("to"));
    /// # std::fs::create_dir(&from)?;
    /// # std::fs::write(from.join("note"), "short")?;
    /// let push = || -> Result<_, dsync_engine::SyncError> {
    ///     let connect = |_: &CancelToken| {
    ///         // Of a product: a connection to its service, over its own TLS.
    ///         let (agent, service) = UnixStream::pair()?;
    ///         let server = Server::new(Stream::from_socket(service)?);
    ///         std::thread::spawn(move || server.serve(&Silent, &CancelToken::new()));
    ///         Stream::from_socket(agent)
    ///     };
    ///     let source = Source::Local { paths: vec![from.join("")] };
    ///     let job = Job::new(source, Destination::Peer { path: to.clone().into() });
    ///     job.options(SyncOptions::archive()).run_over(&connect, &Silent, &CancelToken::new())
    /// };
    /// assert_eq!((push()?.exit_code(), to.join("note").exists()), (0, true));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_over(
        self,
        connector: &dyn Connector,
        observer: &dyn Observer,
        cancel: &CancelToken,
    ) -> Result<Summary, SyncError> {
        self.conduct(Some(connector), None, observer, cancel)
    }

    /// Checks what is to be recorded, and sets the options of a recorded run.
    fn prepare_recording(&mut self) -> Result<(), SyncError> {
        let Some(recording) = &self.recording else { return Ok(()) };
        check::recording(recording, (&self.source, self.spelling.is_some()), &self.options)?;
        self.options.dry_run |= recording.is_only();
        // A batch file has contents, and none of what is made from an old file.
        if self.options.detect_renamed == DetectRenamed::Auto {
            self.options.detect_renamed = DetectRenamed::Never;
        }
        // Contents that an earlier session recorded would have the numbers of its listing.
        self.connect.retries = 0;
        Ok(())
    }

    /// Checks all of the job that needs no look at the disk.
    fn check(&self, is_over: bool) -> Result<(), SyncError> {
        let ends = (&self.source, &self.destination);
        check::ends(ends, is_over, self.options.dry_run)?;
        check::job(ends, &self.options, &self.connect)?;
        check::resources(&self.resources)?;
        check::files_from(self.files_from.as_ref(), ends, &self.options)
    }

    /// Completes the options by what the job is to do, and checks all of them. Returns whether the caller's
    /// observer hears of the tree.
    fn prepare(&mut self, is_over: bool) -> Result<bool, SyncError> {
        self.narrow();
        self.by_names();
        self.prepare_recording()?;
        if self.options.event_done {
            self.options.event_ends = true;
            self.options.events = self.options.events.max(EventLevel::Changes);
        }
        let passes = self.prepare_manifest()?;
        if let Some(filter) = &self.filter {
            filter.prepare(&self.source, self.recording.is_some(), &mut self.options)?;
        }
        self.check(is_over)?;
        Ok(passes)
    }

    /// Runs, at a speed that may change if there is a throttle. A panic of any code of the caller's ends
    /// the run, not the process.
    pub(crate) fn conduct(
        self,
        connector: Option<&dyn Connector>,
        throttle: Option<&Throttle>,
        observer: &dyn Observer,
        cancel: &CancelToken,
    ) -> Result<Summary, SyncError> {
        caught(|| self.conduct_caught(connector, throttle, observer, cancel))
    }

    /// Conducts a run; a panic of the caller's code goes through it.
    fn conduct_caught(
        mut self,
        connector: Option<&dyn Connector>,
        throttle: Option<&Throttle>,
        observer: &dyn Observer,
        cancel: &CancelToken,
    ) -> Result<Summary, SyncError> {
        let passes = self.prepare(connector.is_some())?;
        if self.only.as_ref().is_some_and(Vec::is_empty) {
            return Ok(Summary { dry_run: self.options.dry_run, ..Summary::default() });
        }

        // From here on something is made, asked or started.
        let started = Instant::now();
        let own = self.own_entries();
        let tree = self.begin_manifest(observer, passes)?;
        self.take_names(cancel)?;
        let dry_run = self.options.dry_run;
        let recording = self.recording.clone();
        let heard: &dyn Observer = tree.as_ref().map_or(observer, |tree| tree);
        let guarded = Guarded::new(heard, cancel);
        let chooser = self.filter.as_ref().map(|filter| guarded.chooser(filter, self.spelling));
        let watch = self.watch.clone();
        let means = Own { connector, throttle, chooser: chooser.as_ref(), own: &own };
        let outcome = match self.spelling {
            None => self.dispatch(means, &guarded, guarded.cancel()),
            Some(spelling) => self.spelled(spelling).and_then(|job| {
                let hears = spelled::Hears { observer: &guarded, spelling };
                job.dispatch(means, &hears, guarded.cancel())
            }),
        };
        // Of a run that was cancelled for its batch the batch's failure is the cause.
        recording.as_ref().map_or(Ok(()), Recording::check)?;
        let Outcome { mut report, connection, traffic, earlier } = guarded.verdict(outcome)?;
        if let Some(recording) = recording {
            recording.finish()?;
            // Paths that the run could not read either are counted already.
            let counted = if recording.is_only() { 0 } else { report.failed + report.vanished };
            report.failed += recording.lacking().saturating_sub(counted);
        }
        tree.map_or(Ok(()), ManifestHears::finish)?;
        if let Some(watch) = watch {
            watch.settle();
        }

        Ok(Summary {
            report,
            connection,
            reconnects: earlier.sessions,
            files_done_before: earlier.files_done,
            traffic,
            elapsed: started.elapsed(),
            dry_run,
        })
    }

    /// Returns the job with the other end's spelling of names.
    fn spelled(self, spelling: Spelling) -> Result<Self, SyncError> {
        let far = !matches!(self.destination, Destination::Local { .. } | Destination::Nowhere);
        let spools = self.resources.spool_home();
        let list = self.files_from.map(|list| spelled::files_from(list, &spools, spelling));
        Ok(Self {
            source: spelled::source(self.source, spelling)?,
            destination: spelled::destination(self.destination, spelling)?,
            options: spelled::options(self.options, far, spelling)?,
            files_from: list.transpose()?,
            ..self
        })
    }

    /// Runs the form of the job that its operands make.
    fn dispatch(
        self,
        Own { connector, throttle, chooser, own }: Own<'_>,
        observer: &dyn Observer,
        cancel: &CancelToken,
    ) -> Result<Outcome, SyncError> {
        let Self { source, destination, mut options, connect, resources, spelling, .. } = self;
        let recording = self.recording.as_ref().map(|recording| (recording, options.events));
        // The plan that a pull records passes this end in any case.
        if recording.is_some() && matches!(source, Source::Local { .. }) {
            options.events = options.events.max(EventLevel::Changes);
        }
        let remote = Remote {
            connect: &connect,
            resources: &resources,
            cage: self.cage.as_deref(),
            throttle,
            files_from: self.files_from.as_ref(),
            spelling,
            recording,
            chooser,
            watch: self.watch.as_ref(),
            own,
            manifest: self.manifest.as_ref(),
        };

        match (source.for_list(remote.files_from), somewhere(destination), connector) {
            (Source::Local { paths }, Destination::Local { path }, None) => {
                local::run(Files::Paths(&paths), &path, options, remote, observer, cancel)
            }
            (Source::Batch(batch), Destination::Local { path }, None) => {
                let options = batch.options(options)?;
                local::run(Files::Batch(&batch), &path, options, remote, observer, cancel)
            }
            (Source::Local { paths }, Destination::Remote { host, path }, None) => {
                push(Files::Paths(&paths), Way::shell(&host)?, path, &options, remote, observer, cancel)
            }
            (Source::Batch(batch), Destination::Remote { host, path }, None) => {
                let options = batch.options(options)?;
                push(Files::Batch(&batch), Way::shell(&host)?, path, &options, remote, observer, cancel)
            }
            (Source::Local { paths }, Destination::Peer { path }, Some(own)) => {
                push(Files::Paths(&paths), Way::Own(own), path, &options, remote, observer, cancel)
            }
            (Source::Batch(batch), Destination::Peer { path }, Some(own)) => {
                let options = batch.options(options)?;
                push(Files::Batch(&batch), Way::Own(own), path, &options, remote, observer, cancel)
            }
            (Source::Remote { host, paths }, Destination::Local { path }, None) => {
                pull(Way::shell(&host)?, paths, &path, &options, remote, observer, cancel)
            }
            (Source::Peer { paths }, Destination::Local { path }, Some(own)) => {
                pull(Way::Own(own), paths, &path, &options, remote, observer, cancel)
            }
            // `check::ends` has refused the others.
            _ => Err(SyncError::BothRemote),
        }
    }
}

/// Returns a destination that a run can go to.
fn somewhere(destination: Destination) -> Destination {
    match destination {
        Destination::Nowhere => Destination::Local { path: NOWHERE.into() },
        somewhere => somewhere,
    }
}

/// The caller's own code and controls, beside the observer.
#[derive(Clone, Copy)]
struct Own<'a> {
    connector: Option<&'a dyn Connector>,
    throttle: Option<&'a Throttle>,
    chooser: Option<&'a Chooser>,
    /// The run's own entries in a destination of this machine.
    own: &'a OwnEntries,
}

/// The way to the other end, and the limits on what it may make this one take.
#[derive(Clone, Copy)]
struct Remote<'a> {
    connect: &'a ConnectOptions,
    resources: &'a Resources,
    cage: Option<&'a dyn Cage>,
    throttle: Option<&'a Throttle>,
    files_from: Option<&'a FilesFrom>,
    /// The character sets of this end's names and the other's.
    spelling: Option<Spelling>,
    /// The batch that the run is recorded in, and the events that the caller wants.
    recording: Option<(&'a Recording, EventLevel)>,
    /// The judge of the source's entries.
    chooser: Option<&'a Chooser>,
    /// The watch on what the source reads.
    watch: Option<&'a TreeWatch>,
    /// The run's own entries in a destination of this machine.
    own: &'a OwnEntries,
    /// The manifest that the source's entries are held to.
    manifest: Option<&'a Manifest>,
}

/// The files of a source at this end.
#[derive(Clone, Copy)]
enum Files<'a> {
    Paths(&'a [PathBuf]),
    Batch(&'a Batch),
}

impl<'a> Files<'a> {
    /// Returns the paths, or the batch that stands for them.
    fn apart(self) -> (Option<&'a [PathBuf]>, Option<Batch>) {
        match self {
            Self::Paths(paths) => (Some(paths), None),
            Self::Batch(batch) => (None, Some(batch.clone())),
        }
    }

    /// Returns the paths, unless a batch stands for them.
    fn paths(self) -> Option<&'a [PathBuf]> {
        self.apart().0
    }

    /// Returns what a destination is asked to take.
    fn asked(self, remote: Remote<'_>, options: &SyncOptions) -> Result<AskedFor, SyncError> {
        match self {
            Self::Paths(paths) => {
                AskedFor::of(&spelled::paths(paths, remote.spelling), remote.list(), options)
            }
            Self::Batch(batch) => Ok(batch.asked().into()),
        }
    }

    /// Opens the files, which are listed into `files`.
    fn open(
        self,
        list: Option<&FileList>,
        options: &SyncOptions,
        remote: Remote<'_>,
        files: ListedFiles,
    ) -> Result<Tree, SyncError> {
        let recording = remote.recording.map(|(recording, _)| recording.clone());
        let paths = match self {
            Self::Batch(batch) => {
                return Ok(Tree {
                    origin: Origin::Batch(batch.clone()),
                    files,
                    recording,
                    manifest: None,
                    in_process: false,
                });
            }
            Self::Paths(paths) => paths,
        };

        let filter = rules::above_source(rules::compile(options)?, paths, (None, remote.spelling))?;
        let Remote { spelling, chooser, watch, .. } = remote;
        let place = Place { spelling, chooser, watch, ..Place::default() };
        let spools = remote.resources.spool_home();
        let tree = open_tree((paths, list), (options, filter), (files, recording), spools, place)?;
        Ok(Tree { manifest: remote.manifest.cloned(), ..tree })
    }
}

impl Remote<'_> {
    /// Begins the batch that the run is recorded in, if it is.
    fn begin(&self, asked: &AskedFor, options: &SyncOptions) -> Result<(), SyncError> {
        let begin = |(recording, _): (&Recording, _)| recording.begin(asked.clone().into_recorded(), options);
        self.recording.map_or(Ok(()), begin)
    }

    /// Returns what records the contents of files that are listed into `files`.
    fn recorder<'b>(
        &self,
        observer: &'b dyn Observer,
        files: &ListedFiles,
        cancel: &'b CancelToken,
    ) -> Option<Recorder<'b>>
    where
        Self: 'b,
    {
        let files = files.clone();
        self.recording.map(|(recording, level)| Recorder { observer, recording, files, level, cancel })
    }

    /// Returns the list that this end has.
    fn list(&self) -> Option<&FileList> {
        match self.files_from {
            Some(FilesFrom::List(list)) => Some(list),
            _ => None,
        }
    }
}

/// The result of a run of any form.
struct Outcome {
    report: Report,
    connection: Option<Connection>,
    /// Of all sessions.
    traffic: Traffic,
    earlier: Earlier,
}

/// Reads the rules of a destination here, with the rights of its user.
fn filters(
    options: &SyncOptions,
    path: &Path,
    contents: bool,
    spelling: Option<Spelling>,
) -> Result<Filters, SyncError> {
    acting(options.copy_as.destination.as_ref(), Inmates::Thread, |became| {
        became?;
        Filters::of(options, path, contents, (None, spelling))
    })
}

/// Runs this end as the source.
fn push(
    from: Files<'_>,
    way: Way<'_>,
    path: OsString,
    options: &SyncOptions,
    remote: Remote<'_>,
    observer: &dyn Observer,
    cancel: &CancelToken,
) -> Result<Outcome, SyncError> {
    // Shared with what records contents, of a run with one session. Each session of another run
    // lists anew.
    let listed = ListedFiles::default();
    let files = || if remote.recording.is_some() { listed.clone() } else { ListedFiles::default() };
    let user = options.copy_as.source.as_ref();
    let open = |list: Option<&FileList>| {
        acting(user, Inmates::Thread, |became| {
            became?;
            from.open(list, options, remote, files())
        })
    };
    let list = names::place(remote.files_from, false);
    // Unreadable operands are reported before anybody is asked for a password.
    let mut tree = if list == ListPlace::None { Some(open(remote.list())?) } else { None };

    let asked = from.asked(remote, options)?;
    remote.begin(&asked, options)?;
    let asked = asked.into_sent();
    let path = path.into_vec();
    let recorder = remote.recorder(observer, &listed, cancel);
    let observer = recorder.as_ref().map_or(observer, |recorder| recorder);
    with_remote(way, remote, observer, cancel, |link, attempt, budget| {
        let role = PeerRole::Destination { path: path.clone(), asked: asked.clone() };
        let terms = terms((role, list.clone()), options, remote, (attempt, cancel), budget);
        let (session, mut mail) = Session::start_source(link, terms)?;
        let await_names = || session.await_names(&mut mail, &remote.resources.spool_home());
        let theirs = (list != ListPlace::None).then(await_names).transpose()?;
        let names = theirs.as_ref().or_else(|| remote.list());
        let opened = match tree.take() {
            Some(tree) => Ok(tree),
            None => session.while_alive(|| open(names)),
        };
        if theirs.is_some() {
            attempt.note_begun(&session.peer_lacks());
        }
        let tree = match opened {
            Ok(tree) => tree,
            Err(error) => return Err(session.refuse(error)),
        };
        acting(user, Inmates::Thread, |became| {
            became?;
            let session = with_own_workers(session, user);
            let Some((cage, paths)) = remote.cage.zip(from.paths()) else {
                return source::run(session, mail, tree, Some(attempt), cancel);
            };
            let (operands, start, state) =
                ((paths, names.is_some()), Start::default(), session.state.clone());
            let footprint = || Footprint::of_source(operands, options, &start).with_state(state.as_ref());
            confined(footprint, cage, || source::run(session, mail, tree, Some(attempt), cancel))
        })
    })
}

/// Runs this end as the destination.
fn pull(
    way: Way<'_>,
    paths: Vec<OsString>,
    path: &Path,
    options: &SyncOptions,
    remote: Remote<'_>,
    observer: &dyn Observer,
    cancel: &CancelToken,
) -> Result<Outcome, SyncError> {
    let operands: Vec<_> = paths.iter().map(PathBuf::from).collect();
    let asked = match remote.files_from {
        Some(FilesFrom::AtPeer { .. }) => AskedFor::in_unknown_list(),
        _ => AskedFor::of(&operands, remote.list(), options)?,
    };
    let user = options.copy_as.destination.as_ref();
    // A user that there is not is reported before anybody is asked for a password.
    let filters = filters(options, path, asked.contents(), remote.spelling)?;
    let list = names::place(remote.files_from, true);
    remote.begin(&asked, options)?;

    let paths: Vec<_> = paths.into_iter().map(OsString::into_vec).collect();
    with_remote(way, remote, observer, cancel, |link, attempt, budget| {
        let role = PeerRole::Source { paths: paths.clone() };
        let terms = terms((role, list.clone()), options, remote, (attempt, cancel), budget);
        let (session, mail) = Session::start_destination(link, terms, remote.list())?;
        attempt.note_begun(&session.peer_lacks());
        let terms = destination::Terms {
            operand: path.to_owned(),
            filters: filters.clone(),
            asked: asked.clone(),
            observer: Some(attempt),
            listener: None,
            files: None,
            recording: remote.recording.map(|(recording, _)| recording.clone()),
            own: remote.own.clone(),
            spools: remote.resources.spool_home(),
            start: Start { spelling: remote.spelling, ..Start::default() },
        };
        let session = with_own_workers(session, user);
        acting(user, Inmates::Thread, |became| {
            became?;
            match remote.cage {
                None => destination::run(session, mail, terms, cancel),
                Some(cage) => {
                    let (start, state) = (Start::default(), session.state.clone());
                    let footprint = || {
                        Footprint::of_destination(path, asked.may_be_file(), options, &start)
                            .with_state(state.as_ref())
                    };
                    confined(footprint, cage, || destination::run(session, mail, terms, cancel))
                }
            }
        })
    })
}

/// Runs an end on a thread of its own, in a cage: the calling one starts the next remote
/// shell if the connection breaks.
fn confined<T: Send>(
    footprint: impl FnOnce() -> Footprint + Send,
    cage: &dyn Cage,
    work: impl FnOnce() -> Result<T, SyncError> + Send,
) -> Result<T, SyncError> {
    on_own_thread(|| {
        cage.enter(&footprint(), Inmates::Thread);
        work()
    })
}

fn terms(
    (role, list): (PeerRole, ListPlace),
    options: &SyncOptions,
    Remote { connect, resources, recording, .. }: Remote<'_>,
    (attempt, cancel): (&Attempt<'_>, &CancelToken),
    budget: Arc<Budget>,
) -> session::Terms {
    session::Terms {
        role,
        options: attempt.options(options),
        timeout: connect.timeout,
        again: attempt.again(),
        allowance: resources.allowance(budget),
        list,
        is_recorded: recording.is_some(),
        cancel: cancel.clone(),
    }
}

/// Connects and runs a session over the link, and others when it breaks.
fn with_remote(
    way: Way<'_>,
    Remote { connect, resources, throttle, .. }: Remote<'_>,
    observer: &dyn Observer,
    cancel: &CancelToken,
    mut session: impl FnMut(Arc<dyn Link>, &Attempt<'_>, Arc<Budget>) -> Result<Report, SyncError>,
) -> Result<Outcome, SyncError> {
    let carriers = resources.workers.carriers();
    let one_session = |attempt: &Attempt<'_>| {
        let budget = Budget::new(resources.max_alloc);
        let mut reached = way.connect(connect, (&budget, throttle, carriers), (observer, cancel))?;
        attempt.connected(&reached.connection);
        let result = session(Arc::clone(&reached.link), attempt, budget);
        let traffic = reached.link.traffic();
        attempt.note_traffic(traffic);
        reached.connection.moves = reached.link.moves();
        let explained =
            result.map_err(|error| if attempt.has_begun() { error } else { reached.explain(error) });
        Ok((explained?, reached.connection, traffic))
    };

    let ((report, connection, traffic), earlier) =
        reconnect::run(connect.retries, observer, cancel, &SystemClock, one_session)?;
    let traffic = Traffic::new(
        traffic.sent_bytes.saturating_add(earlier.traffic.sent_bytes),
        traffic.received_bytes.saturating_add(earlier.traffic.received_bytes),
    );

    Ok(Outcome { report, connection: Some(connection), traffic, earlier })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod schedules;
