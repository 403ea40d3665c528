//! A run and how it is started: [`Job`], [`serve`].

use std::{
    ffi::OsString,
    io,
    num::NonZeroU64,
    os::{fd::OwnedFd, unix::ffi::OsStringExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use dsync_fs::{
    Dir, FilterSet, FollowLinks, LeadsOut, OperandProblem, SpoolHome, Walk, WalkError, WalkOptions,
};
use dsync_transport::{Accepted, Sides, Throttle, paced, throttled};
use dsync_wire::{
    budget::Budget,
    event::Report,
    link::{CloseReason, Link, Traffic},
    message::PeerRole,
    options::SyncOptions,
    state::{DestinationInbox, SourceInbox},
};

use crate::{
    CancelToken, Observer, Resources, Summary, SyncError, check,
    destination::{self, asked},
    ends::{ConnectOptions, Destination, NOWHERE, Source},
    error::{PathRole, Wording},
    footprint::{Cage, Footprint, Inmates},
    grant::{Grant, Start},
    guard,
    handle::{self, RunHandle},
    observe::{Connection, Guarded},
    reconnect::{self, Attempt, Earlier, SystemClock},
    resources::Allowance,
    retry,
    rules::{self, Filters},
    session::{self, DestinationMail, Invitation, Keying, Session, SourceMail},
    source::{self, ListedFiles, Tree},
    way::{Connector, Way},
};

/// One run, described but not started.
#[derive(Debug, Clone)]
pub struct Job {
    source: Source,
    destination: Destination,
    options: SyncOptions,
    connect: ConnectOptions,
    resources: Resources,
    cage: Option<Arc<dyn Cage>>,
}

impl Job {
    /// Describes a run with default options (see [`SyncOptions`]: nothing recursive, nothing
    /// preserved).
    pub fn new(source: Source, destination: Destination) -> Self {
        let (options, connect) = (SyncOptions::default(), ConnectOptions::default());
        Self { source, destination, options, connect, resources: Resources::default(), cage: None }
    }

    /// Sets the run's policy.
    #[must_use]
    pub fn options(mut self, options: SyncOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets how a remote end is reached.
    #[must_use]
    pub fn connect(mut self, connect: ConnectOptions) -> Self {
        self.connect = connect;
        self
    }

    /// Sets the limits on what the run takes of this machine.
    #[must_use]
    pub fn resources(mut self, resources: Resources) -> Self {
        self.resources = resources;
        self
    }

    /// Sets the cage of the threads that write the data of a remote source. Default: none, they may
    /// do all that the process may. The thread that calls [`run`](Self::run) is not confined: it
    /// starts the remote shell.
    #[must_use]
    pub fn cage(mut self, cage: Arc<dyn Cage>) -> Self {
        self.cage = Some(cage);
        self
    }

    /// Narrows the job to some of its entries, by their paths below the transfer's root: to those
    /// that [failed](crate::RunOutcome::failed), most often. What has vanished from the source by
    /// now is left out; `delete` removes things below these entries only. Where only the whole job
    /// does them all, because the root is among them, it stays whole.
    ///
    /// ```no_run
    /// # use dsync_engine::{Destination, Job, Silent, Source, SyncError};
    /// # fn main() -> Result<(), SyncError> {
    /// # let source = Source::Local { paths: vec!["src/".into()] };
    /// let job = Job::new(source, Destination::Local { path: "dst".into() });
    /// let outcome = job.clone().start(Silent)?.join();
    /// if !outcome.failed.is_empty() {
    ///     job.only(&outcome.failed).start(Silent)?.join();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn only(mut self, entries: &[Vec<u8>]) -> Self {
        let narrowed = retry::narrowed(&self.source, &self.destination, &self.options, entries);
        if let Some((source, destination, options)) = narrowed {
            (self.source, self.destination, self.options) = (source, destination, options);
        }
        self
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
    pub fn run_over(
        self,
        connector: &dyn Connector,
        observer: &dyn Observer,
        cancel: &CancelToken,
    ) -> Result<Summary, SyncError> {
        self.conduct(Some(connector), None, observer, cancel)
    }

    /// Runs, at a speed that may change if there is a throttle.
    pub(crate) fn conduct(
        self,
        connector: Option<&dyn Connector>,
        throttle: Option<&Throttle>,
        observer: &dyn Observer,
        cancel: &CancelToken,
    ) -> Result<Summary, SyncError> {
        check::job((&self.source, &self.destination), &self.options, &self.connect)?;
        let started = Instant::now();
        let dry_run = self.options.dry_run;
        let guarded = Guarded::new(observer, cancel);
        let outcome = self.dispatch((connector, throttle), &guarded, guarded.cancel());
        let Outcome { report, connection, traffic, earlier } = guarded.verdict(outcome)?;

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

    /// Runs the form of the job that its operands make.
    fn dispatch(
        self,
        (connector, throttle): (Option<&dyn Connector>, Option<&Throttle>),
        observer: &dyn Observer,
        cancel: &CancelToken,
    ) -> Result<Outcome, SyncError> {
        let Self { source, destination, options, connect, resources, cage } = self;
        let remote = Remote { connect: &connect, resources: &resources, cage: cage.as_deref(), throttle };
        let destination = match destination {
            Destination::Nowhere if options.dry_run => Destination::Local { path: NOWHERE.into() },
            Destination::Nowhere => {
                let why = "it is nowhere, where only a dry run can go";
                return Err(SyncError::InvalidOption { option: "destination", why: why.to_owned() });
            }
            somewhere => somewhere,
        };

        match (source, destination, connector) {
            (Source::Local { paths }, Destination::Local { path }, None) => {
                local(&paths, &path, options, remote, observer, cancel)
            }
            (Source::Local { paths }, Destination::Remote { host, path }, None) => {
                push(&paths, Way::Shell(&host), path, &options, remote, observer, cancel)
            }
            (Source::Local { paths }, Destination::Peer { path }, Some(own)) => {
                push(&paths, Way::Own(own), path, &options, remote, observer, cancel)
            }
            (Source::Remote { host, paths }, Destination::Local { path }, None) => {
                pull(Way::Shell(&host), paths, &path, &options, remote, observer, cancel)
            }
            (Source::Peer { paths }, Destination::Local { path }, Some(own)) => {
                pull(Way::Own(own), paths, &path, &options, remote, observer, cancel)
            }
            (Source::Local { .. }, _, _) | (_, Destination::Local { .. }, _) => {
                let why = "one end, and one only, is a peer where the connection is the caller's";
                Err(SyncError::InvalidOption { option: "destination", why: why.to_owned() })
            }
            _ => Err(SyncError::BothRemote),
        }
    }
}

/// The way to the other end, and the limits on what it may make this one take.
#[derive(Clone, Copy)]
struct Remote<'a> {
    connect: &'a ConnectOptions,
    resources: &'a Resources,
    cage: Option<&'a dyn Cage>,
    throttle: Option<&'a Throttle>,
}

/// The result of a run of any form.
struct Outcome {
    report: Report,
    connection: Option<Connection>,
    /// Of all sessions.
    traffic: Traffic,
    earlier: Earlier,
}

/// Makes the link of a local run; its source's end is the second.
fn link_in_memory(
    throttle: Option<&Throttle>,
    bytes_per_second: Option<NonZeroU64>,
) -> (Arc<dyn Link>, Arc<dyn Link>) {
    let (here, there) = dsync_transport::memory::pair();
    let (here, there): (Arc<dyn Link>, Arc<dyn Link>) = (Arc::new(here), Arc::new(there));
    match throttle {
        Some(throttle) => (here, throttled(there, throttle, Sides::Sending)),
        None => (paced(here, bytes_per_second), paced(there, bytes_per_second)),
    }
}

/// Runs both ends in this process: the source is the peer, on threads of its own.
fn local(
    paths: &[PathBuf],
    path: &Path,
    options: SyncOptions,
    Remote { connect, resources, throttle, .. }: Remote<'_>,
    observer: &dyn Observer,
    cancel: &CancelToken,
) -> Result<Outcome, SyncError> {
    let bytes_per_second = connect.bytes_per_second;
    let asked = asked::of_operands(paths, &options)?;
    let filters = Filters::of(&options, path, asked.contents, None)?;
    let is_somewhere = path != Path::new(NOWHERE);
    if is_somewhere {
        guard::refuse_self_copy(paths, path, &filters.source, &options)?;
        guard::refuse_doomed_source(paths, path, &filters.destination, &options)?;
    }

    let (here, there) = link_in_memory(throttle, bytes_per_second);
    // Both ends are this process, which may hold as much memory as it likes.
    let allowance = resources.allowance(Budget::unbounded());
    let allowance = Allowance { stall: NO_TIMEOUT, throttle: throttle.cloned(), ..allowance };
    let theirs_allowance = allowance.clone();
    let spools = resources.spool_home();
    // The operands do not travel: there may be more of them than a message takes.
    let terms = session::Terms {
        role: PeerRole::Source { paths: vec![b".".to_vec()] },
        options,
        timeout: NO_TIMEOUT,
        again: false,
        allowance,
    };

    let files = ListedFiles::default();
    let theirs = files.clone();
    // Content that is copied from file to file crosses no link whose rate could be limited.
    let direct = bytes_per_second.is_none().then_some(files);
    let (result, peer) = std::thread::scope(|scope| {
        let operands = Some(paths);
        let barred = is_somewhere.then_some(path);
        let means = Means { operands, barred, ..Means::new(theirs_allowance, spools.clone()) };
        let peer = scope.spawn(|| serve_link(there, NO_TIMEOUT, cancel, theirs, means));
        let result = Session::start_destination(Arc::clone(&here), terms).and_then(|(session, mail)| {
            let (observer, spools, start) = (Some(observer), spools.clone(), Start::default());
            let operand = path.to_path_buf();
            let terms =
                destination::Terms { operand, filters, asked, observer, files: direct, spools, start };
            destination::run(session, mail, terms, cancel)
        });
        here.close(CloseReason::Done);
        (result, peer.join())
    });

    let report = match (result, peer) {
        (Ok(report), _) => report,
        // The peer's own error says more than this end's report of it.
        (Err(SyncError::Peer { .. } | SyncError::Link(_)), Ok(Err(theirs))) => return Err(theirs),
        (Err(error), _) => return Err(error),
    };

    Ok(Outcome { report, connection: None, traffic: here.traffic(), earlier: Earlier::default() })
}

/// Runs this end as the source.
fn push(
    paths: &[PathBuf],
    way: Way<'_>,
    path: OsString,
    options: &SyncOptions,
    remote: Remote<'_>,
    observer: &dyn Observer,
    cancel: &CancelToken,
) -> Result<Outcome, SyncError> {
    // Unreadable operands are reported before anybody is asked for a password.
    let open = || {
        let filter = rules::above_source(rules::compile(options)?, paths, None)?;
        let (files, spools) = (ListedFiles::default(), remote.resources.spool_home());
        open_tree(paths, (options, filter), files, spools, None, None)
    };
    let mut tree = Some(open()?);

    let asked = asked::of_operands(paths, options)?.as_sent();
    let path = path.into_vec();
    with_remote(way, remote, observer, cancel, |link, attempt, budget| {
        let tree = tree.take().map_or_else(open, Ok)?;
        let role = PeerRole::Destination { path: path.clone(), asked: asked.clone() };
        let terms = terms(role, options, remote, attempt, budget);
        let (session, mail) = Session::start_source(link, terms)?;
        source::run(session, mail, tree, Some(attempt), cancel)
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
    let asked = asked::of_operands(&operands, options)?;
    let filters = Filters::of(options, path, asked.contents, None)?;

    let paths: Vec<_> = paths.into_iter().map(OsString::into_vec).collect();
    with_remote(way, remote, observer, cancel, |link, attempt, budget| {
        let role = PeerRole::Source { paths: paths.clone() };
        let terms = terms(role, options, remote, attempt, budget);
        let (session, mail) = Session::start_destination(link, terms)?;
        attempt.note_begun(&session.peer_lacks());
        let terms = destination::Terms {
            operand: path.to_owned(),
            filters: filters.clone(),
            asked: asked.clone(),
            observer: Some(attempt),
            files: None,
            spools: remote.resources.spool_home(),
            start: Start::default(),
        };
        match remote.cage {
            None => destination::run(session, mail, terms, cancel),
            Some(cage) => confined(path, options, cage, || destination::run(session, mail, terms, cancel)),
        }
    })
}

/// Runs a destination on a thread of its own, in a cage: the calling one starts the next remote
/// shell if the connection breaks.
fn confined<T: Send>(
    operand: &Path,
    options: &SyncOptions,
    cage: &dyn Cage,
    work: impl FnOnce() -> Result<T, SyncError> + Send,
) -> Result<T, SyncError> {
    let work = || {
        cage.enter(&Footprint::of_destination(operand, options, &Start::default()), Inmates::Thread);
        work()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("destination".into()).spawn_scoped(scope, work);
        let thread = thread.map_err(|source| SyncError::Thread { source })?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn terms(
    role: PeerRole,
    options: &SyncOptions,
    Remote { connect, resources, .. }: Remote<'_>,
    attempt: &Attempt<'_>,
    budget: Arc<Budget>,
) -> session::Terms {
    session::Terms {
        role,
        options: options.clone(),
        timeout: connect.timeout,
        again: attempt.again,
        allowance: resources.allowance(budget),
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
    let one_session = |attempt: &Attempt<'_>| {
        let budget = Budget::new(resources.max_alloc);
        let (link, connection) = way.connect(connect, (&budget, throttle), cancel)?;
        attempt.connected(&connection);
        let result = session(Arc::clone(&link), attempt, budget);
        attempt.note_traffic(link.traffic());
        Ok((result?, connection, link.traffic()))
    };

    let ((report, connection, traffic), earlier) =
        reconnect::run(connect.retries, observer, cancel, &SystemClock, one_session)?;
    let traffic = Traffic::new(
        traffic.sent_bytes.saturating_add(earlier.traffic.sent_bytes),
        traffic.received_bytes.saturating_add(earlier.traffic.received_bytes),
    );

    Ok(Outcome { report, connection: Some(connection), traffic, earlier })
}

/// Serves one session as the remote end (`dsync --server`): the bootstrap comes in on `input`,
/// answers go out on `output`; returns when the session is over.
///
/// The client has no say in `resources`. `ssh_connection` is the value of the `SSH_CONNECTION`
/// variable, from which the address that the client really reached is taken. With a `grant` the
/// client may do in its directory what it allows and nothing else; without one, whatever this
/// process may. A `cage` is entered when the operands are known, by the threads that carry bytes
/// before they start. The client is told in this `wording` why a session ends.
///
/// # Errors
/// [`SyncError`]; the peer has been told, where it could be.
pub fn serve(
    input: OwnedFd,
    output: OwnedFd,
    ssh_connection: Option<&str>,
    resources: &Resources,
    grant: Option<Grant>,
    cage: Option<&dyn Cage>,
    wording: Wording,
) -> Result<(), SyncError> {
    let budget = Budget::new(resources.max_alloc);
    let accept = || {
        // The carrier's threads start from this one, and keep its cage: they carry bytes and open
        // nothing.
        cage.inspect(|cage| cage.enter_carrier());
        dsync_transport::accept(input, output, ssh_connection, &budget)
    };
    let Accepted { link, idle_timeout, .. } = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("accept".into()).spawn_scoped(scope, accept);
        let thread = thread.map_err(|source| SyncError::Thread { source })?;
        Ok::<_, SyncError>(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
    })?;

    let start = Start(grant.map(Arc::new));
    let means = Means::new(resources.allowance(budget), resources.spool_home());
    let means = Means { start, cage, wording, ..means };
    serve_link(link, idle_timeout, &CancelToken::new(), ListedFiles::default(), means)
}

/// Means of the serving end, in which the client has no say.
pub(crate) struct Means<'a> {
    /// The session's share of this machine.
    pub(crate) allowance: Allowance,
    /// The home of lists that outgrow memory.
    pub(crate) spools: SpoolHome,
    /// The start of the operands' paths, and the rights there.
    pub(crate) start: Start,
    /// The cage of the process.
    pub(crate) cage: Option<&'a dyn Cage>,
    /// The source's operands, where the client is this process; else those that it sends.
    pub(crate) operands: Option<&'a [PathBuf]>,
    /// The destination of a local run, which the source does not enter through a link.
    pub(crate) barred: Option<&'a Path>,
    /// The wording of errors for the client.
    pub(crate) wording: Wording,
}

impl Means<'_> {
    /// Makes the means of an end that may do all that its process may, without a cage.
    pub(crate) fn new(allowance: Allowance, spools: SpoolHome) -> Self {
        let (start, wording) = Default::default();
        Self { allowance, spools, start, cage: None, operands: None, barred: None, wording }
    }
}

/// Serves one session over a link, in the role that the controller assigns; as a source it lists
/// into `files`.
pub(crate) fn serve_link(
    link: Arc<dyn Link>,
    timeout: Duration,
    cancel: &CancelToken,
    files: ListedFiles,
    Means { allowance, spools, start, cage, operands, barred, wording }: Means<'_>,
) -> Result<(), SyncError> {
    let Invitation { session, receiver, key, role } = Session::accept(link, timeout, allowance)?;
    session.halt.set_wording(wording);
    if let Some(Err(error)) = start.0.as_ref().map(|grant| grant.check(&role, &session.options)) {
        return Err(session.refuse(error));
    }
    match role {
        PeerRole::Source { paths } => {
            let sent = || paths.into_iter().map(|path| PathBuf::from(OsString::from_vec(path))).collect();
            let paths: Vec<_> = operands.map_or_else(sent, <[_]>::to_vec);
            // The cage keeps this end from what is above the operands.
            let filter = rules::compile(&session.options);
            let filter =
                filter.and_then(|filter| rules::above_source(filter, &paths, start.floor().as_ref()));
            if let Some(cage) = cage {
                cage.enter(&Footprint::of_source(&paths, &session.options, &start), Inmates::Process);
            }
            let tree = filter.and_then(|filter| {
                open_tree(&paths, (&session.options, filter), files, spools, start.floor(), barred)
            });
            let tree = match tree {
                Ok(tree) => tree,
                Err(error) => return Err(session.refuse(error)),
            };
            session.say_ready(&cage.map_or_else(Vec::new, Cage::lacks))?;
            let mail = SourceMail { receiver, order: SourceInbox::peer(), keying: Keying::Agreed(key) };
            source::run(session, mail, tree, None, cancel)?;
        }

        PeerRole::Destination { path, asked } => {
            let operand = PathBuf::from(OsString::from_vec(path));
            let floor = start.floor();
            let filters = Filters::of(&session.options, &operand, asked.contents, floor.as_ref());
            let filters = match filters {
                Ok(filters) => filters,
                Err(error) => return Err(session.refuse(error)),
            };
            if let Some(cage) = cage {
                cage.enter(&Footprint::of_destination(&operand, &session.options, &start), Inmates::Process);
            }
            session.say_ready(&cage.map_or_else(Vec::new, Cage::lacks))?;
            let terms =
                destination::Terms { operand, filters, asked, observer: None, files: None, spools, start };
            let mail = DestinationMail { receiver, order: DestinationInbox::peer(), key };
            destination::run(session, mail, terms, cancel)?;
        }
    }

    Ok(())
}

/// Opens the source operands; a missing one is an error when it is the only one.
fn open_tree(
    paths: &[PathBuf],
    (options, filter): (&SyncOptions, FilterSet),
    files: ListedFiles,
    spools: SpoolHome,
    floor: Option<Arc<Dir>>,
    barred: Option<&Path>,
) -> Result<Tree, SyncError> {
    let walk_options = WalkOptions {
        recursive: options.recursive,
        dirs: options.dirs,
        prune: options.prune_empty_dirs,
        follow: followed(options),
        barred: barred.map(Path::to_path_buf),
        relative: options.relative,
        missing_counts: options.delete_missing_args,
        one_file_system: options.one_file_system,
        filter: asked::listed_by(filter, options),
        readers: dsync_fs::default_readers(),
        open_noatime: options.open_noatime,
        copy_devices: options.copy_devices,
        fake_super: options.fake_super.source,
        spools,
        floor,
    };

    let operands: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let walk = Walk::open(&operands, walk_options).map_err(|error| match error {
        WalkError::InvalidOperand { index, source } => SyncError::SourceUnreadable {
            path: paths.get(index).cloned().unwrap_or_default(),
            source: io::Error::new(io::ErrorKind::InvalidInput, source),
        },
        WalkError::Upwards { .. } => asked::upwards(),
        _ => SyncError::InvalidOption { option: "sources", why: "are too many paths".to_owned() },
    })?;
    let problems = walk.operand_problems();

    for problem in problems {
        if let Some(step) = LeadsOut::of(&problem.error) {
            let path = paths.get(problem.index).cloned().unwrap_or_default();
            return Err(SyncError::LeadsOut { role: PathRole::Source, path, step: step.clone() });
        }
    }

    match problems.first() {
        Some(problem)
            if problems.len() == paths.len()
                && !(options.ignores_missing_args() && problems.iter().all(OperandProblem::is_missing)) =>
        {
            let path = paths.get(problem.index).cloned().unwrap_or_default();
            Err(match problem.error.raw_os_error() {
                Some(number) if problem.error.kind() != io::ErrorKind::NotFound => {
                    SyncError::SourceUnreadable { path, source: io::Error::from_raw_os_error(number) }
                }
                _ => SyncError::SourceMissing { path },
            })
        }
        _ => Ok(Tree { operands: paths.to_vec(), walk, files }),
    }
}

/// Returns the links that a source follows.
fn followed(options: &SyncOptions) -> FollowLinks {
    FollowLinks {
        all: options.copy_links,
        to_directories: options.copy_dirlinks,
        leading_out: options.copy_unsafe_links,
    }
}

/// A local run has no network that could go silent.
const NO_TIMEOUT: Duration = Duration::from_secs(u32::MAX as u64);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod schedules;
