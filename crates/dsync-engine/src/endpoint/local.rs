//! A local run: both ends in this process, joined by a link in memory.

use std::{
    num::NonZeroU64,
    path::{Path, PathBuf},
    sync::Arc,
};

use dsync_fs::SpoolHome;
use dsync_transport::{Sides, Throttle, paced, throttled};
use dsync_wire::{
    budget::Budget,
    event::Report,
    link::{CloseReason, Link},
    message::{ListPlace, PeerRole},
    options::SyncOptions,
};

use super::{
    Files, Outcome, Remote, filters,
    serving::{Means, serve_link},
};
use crate::{
    Batch, CancelToken, Observer, SyncError,
    acting::{acting, with_own_workers},
    destination::{self, asked::AskedFor},
    ends::NOWHERE,
    footprint::Inmates,
    grant::Start,
    guard,
    own_entries::OwnEntries,
    reconnect::Earlier,
    resources::Allowance,
    rules::Filters,
    session::{self, NO_TIMEOUT, Session},
    source::ListedFiles,
    threads,
};

/// Makes the link of a local run; its source's end is the second.
fn link_in_memory(
    throttle: Option<&Throttle>,
    bytes_per_second: Option<NonZeroU64>,
) -> (Arc<dyn Link>, Arc<dyn Link>) {
    let (here, there) = dsync_transport::memory::pair_with(dsync_fs::processors().clamp(2, 4));
    let (here, there): (Arc<dyn Link>, Arc<dyn Link>) = (Arc::new(here), Arc::new(there));
    match throttle {
        Some(throttle) => (here, throttled(there, throttle, Sides::Sending)),
        None => (paced(here, bytes_per_second), paced(there, bytes_per_second)),
    }
}

/// Returns the means of a local run's source.
fn source_means<'a>(
    means: Means<'a>,
    remote: Remote<'a>,
    (operands, batch): (Option<&'a [PathBuf]>, Option<Batch>),
    barred: Option<&'a Path>,
    is_direct: bool,
) -> Means<'a> {
    Means {
        operands,
        list: remote.list().cloned(),
        barred,
        spelling: remote.spelling,
        batch,
        recording: remote.recording.map(|(recording, _)| recording.clone()),
        chooser: remote.chooser,
        watch: remote.watch,
        manifest: remote.manifest,
        is_direct,
        ..means
    }
}

/// Runs both ends in this process: the source is the peer, on threads of its own.
pub(super) fn run(
    from: Files<'_>,
    path: &Path,
    options: SyncOptions,
    remote: Remote<'_>,
    observer: &dyn Observer,
    cancel: &CancelToken,
) -> Result<Outcome, SyncError> {
    let Remote { connect, resources, throttle, spelling, .. } = remote;
    let bytes_per_second = connect.bytes_per_second;
    let asked = from.asked(remote, &options)?;
    let users = options.copy_as.clone();
    let user = users.destination.as_ref();
    let filters = filters(&options, path, asked.contents(), None)?;
    let is_somewhere = path != Path::new(NOWHERE);
    if let (Files::Paths(paths), true) = (from, is_somewhere) {
        let sources = guard::Sources { paths, list: remote.list(), spelling };
        guard::refuse(sources, path, &filters, &options)?;
    }

    let (here, there) = link_in_memory(throttle, bytes_per_second);
    // Both ends are this process, which may hold as much memory as it likes.
    let allowance = resources.allowance(Budget::unbounded());
    let allowance = Allowance { stall: NO_TIMEOUT, throttle: throttle.cloned(), ..allowance };
    let theirs_allowance = allowance.clone();
    let spools = resources.spool_home();
    remote.begin(&asked, &options)?;
    let terms = local_terms(options, allowance);
    let files = ListedFiles::default();
    let theirs = files.clone();
    let recorder = remote.recorder(observer, &files, cancel);
    let observer = recorder.as_ref().map_or(observer, |recorder| recorder);
    let (operands, batch) = from.apart();
    // Content that is copied from file to file crosses no link whose rate could be limited, and is read
    // with the destination's rights.
    let is_direct = bytes_per_second.is_none() && users.source == users.destination && batch.is_none();
    let direct = is_direct.then_some(files);
    let (result, peer) = std::thread::scope(|scope| {
        let barred = is_somewhere.then_some(path);
        let means = Means::new(theirs_allowance, spools.clone());
        let means = source_means(means, remote, (operands, batch), barred, is_direct);
        let peer =
            threads::spawn_scoped(scope, "source", || serve_link(there, NO_TIMEOUT, cancel, theirs, means))?;
        let result =
            Session::start_destination(Arc::clone(&here), terms, None).and_then(|(session, mail)| {
                let terms = local_order((path, observer), (filters, asked), direct, (spools, remote.own));
                acting(user, Inmates::Thread, |became| {
                    became?;
                    destination::run(with_own_workers(session, user), mail, terms, cancel)
                })
            });
        here.close(CloseReason::Done);
        Ok::<_, SyncError>((result, peer.join()))
    })?;

    let report = report_of(result, peer)?;
    Ok(Outcome { report, connection: None, traffic: here.traffic(), earlier: Earlier::default() })
}

/// Returns the task of a local run's destination. The source records, which has the contents whatever
/// becomes of them.
fn local_order<'a>(
    (path, observer): (&Path, &'a dyn Observer),
    (filters, asked): (Filters, AskedFor),
    files: Option<ListedFiles>,
    (spools, own): (SpoolHome, &OwnEntries),
) -> destination::Terms<'a> {
    let (operand, observer, start) = (path.to_path_buf(), Some(observer), Start::default());
    let (listener, recording) = (None, None);
    destination::Terms {
        operand,
        filters,
        asked,
        observer,
        listener,
        files,
        spools,
        start,
        recording,
        own: own.clone(),
    }
}

/// Returns the outcome of a local run, of what became of its two ends.
fn report_of(
    result: Result<Report, SyncError>,
    peer: std::thread::Result<Result<(), SyncError>>,
) -> Result<Report, SyncError> {
    match (result, peer) {
        (Ok(report), _) => Ok(report),
        // The peer's own error says more than this end's report of it.
        (Err(SyncError::Peer { .. } | SyncError::Link(_)), Ok(Err(theirs))) => Err(theirs),
        (Err(error), _) => Err(error),
    }
}

/// Returns the terms of the session of a local run.
fn local_terms(options: SyncOptions, allowance: Allowance) -> session::Terms {
    session::Terms {
        // The operands do not travel: there may be more of them than a message takes.
        role: PeerRole::Source { paths: vec![b".".to_vec()] },
        options,
        timeout: NO_TIMEOUT,
        again: None,
        allowance,
        list: ListPlace::None,
        is_recorded: false,
        // Its two ends start in this process, and their watch has the run's.
        cancel: CancelToken::new(),
    }
}
