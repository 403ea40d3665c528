//! The source role: lists its tree, answers requests for files.
//!
//! Threads: a lister (stage 1), an inbox for the destination's requests, one worker per data lane
//! (stages 4 to 6). They share the [`Catalogue`] of listed entries and the [`Queue`] of requested
//! files; both are bounded by the destination's own credit. A watch and a pulse are
//! [beats](crate::clock).

mod catalogue;
mod effort;
mod expected;
mod first_names;
mod inbox;
mod lane;
mod large;
mod listing;
mod queue;
mod read;
mod replay;
mod shared;
mod spans;
mod sums;

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use dsync_delta::Key;
use dsync_fs::{SourceFile, Walk};
use dsync_wire::{
    event::Report,
    message::{Cause, ControlMessage, EntryId},
    version::LEFT_OUT,
};

pub(crate) use self::listing::entry as listed_entry;
use self::{catalogue::Catalogue, effort::EffortGauge, queue::Queue, shared::Shared, spans::Spans};
use crate::{
    CancelToken, Manifest, SyncError,
    batch::{Batch, Recording},
    reconnect::Attempt,
    session::{Session, SourceMail},
    under_way::UnderWay,
};

/// The content that a source serves.
pub(crate) struct Tree {
    /// The origin of the listing.
    pub(crate) origin: Origin,
    /// The listed files, for a destination in the same process.
    pub(crate) files: ListedFiles,
    /// The batch that the listing is recorded in.
    pub(crate) recording: Option<Recording>,
    /// The manifest that the listing is held to.
    pub(crate) manifest: Option<Manifest>,
    /// Whether the destination is in this process and reads the files itself.
    pub(crate) in_process: bool,
}

/// The origin of a listing.
pub(crate) enum Origin {
    /// A walk over operands.
    Walk {
        /// The operands as given, for messages.
        operands: Vec<PathBuf>,
        /// The walk over them.
        walk: Box<Walk>,
        /// Whether the walk is of one operand and not of a list of paths.
        is_one: bool,
    },
    /// A batch.
    Batch(Batch),
}

/// The listed files of a source, for a destination in the same process: it reads them itself.
#[derive(Clone, Default)]
pub(crate) struct ListedFiles(Arc<Catalogue>);

impl ListedFiles {
    /// Opens a listed file that was not released.
    pub(crate) fn open(&self, entry: EntryId) -> Result<SourceFile, Cause> {
        let listed = self.0.find(entry).ok_or(Cause::Vanished)?;
        read::open(&listed)
    }

    /// Records the content of the listed file at this path.
    pub(crate) fn record(&self, path: &[u8], recording: &Recording) -> Result<(), Cause> {
        let Some(listed) = self.0.find_path(path) else { return Err(Cause::Vanished) };
        recording.content(listed.number(), &|| listed.open(), &read::cause)
    }

    /// Returns the cause that an error of reading stands for.
    pub(crate) fn cause(error: &io::Error) -> Cause {
        read::cause(error)
    }
}

/// Makes the listing stay where all of it is needed to the end, and begins to record it.
fn prepare(session: &Session, files: &ListedFiles, recording: Option<Recording>) {
    // A file that is recorded is found by its path whenever its plan is told.
    if session.options.needs_whole_listing() || recording.is_some() {
        files.0.keep_all();
    }
    if let Some(recording) = recording {
        recording.until(session.halt.stop_flag());
        session.control.record(recording);
    }
}

/// Serves a destination until it has everything. Returns the destination's report.
pub(crate) fn run(
    session: Session,
    mut mail: SourceMail,
    tree: Tree,
    attempt: Option<&Attempt<'_>>,
    cancel: &CancelToken,
) -> Result<Report, SyncError> {
    let Tree { origin, files, recording, manifest, in_process } = tree;
    let (mut report, is_recorded) = (None, recording.is_some());
    prepare(&session, &files, recording);
    {
        let shared = Shared {
            session: &session,
            catalogue: files.0,
            queue: Queue::default(),
            spans: Spans::default(),
            refining: Mutex::default(),
            effort: EffortGauge::new(session.link.as_ref(), session.options.compression, session.data_lanes),
            attempt,
            under_way: UnderWay::default(),
            tells_left_out: in_process || mail.features & LEFT_OUT != 0,
        };
        let (shared, halt, report) = (&shared, &session.halt, &mut report);

        std::thread::scope(|scope| {
            // A destination in this process watches for both ends, and waits for no sign of life.
            let watched = || {
                let control = Arc::clone(&shared.session.control);
                let pulse = move || control.send(&ControlMessage::Alive);
                Ok((shared.session.watch(cancel)?, shared.session.beat(pulse)?))
            };
            let beating = if in_process { None } else { halt.guard(watched) };
            // In one process a listing costs less than the digests that would spare it.
            let can_pay = !in_process && !is_recorded;
            let key = mail.spans.take().filter(|_| can_pay && session.options.allows_spans());
            halt.spawn(scope, "list", move || match origin {
                Origin::Walk { operands, walk, is_one } => {
                    listing::run(shared, (&operands, *walk), manifest.as_ref(), key.filter(|_| is_one))
                }
                Origin::Batch(batch) => replay::run(shared, &batch),
            });
            // Without a key no request will come. Nor may a data lane come before the peer has
            // received its task on the first one. A destination that reads the files itself has none.
            let lanes = if in_process { 0 } else { session.data_lanes };
            let start_lanes = |key: &Key| {
                for number in 0..lanes {
                    let (key, number) = (key.clone(), u8::try_from(number).unwrap_or(u8::MAX));
                    halt.spawn(scope, "send", move || lane::run(shared, key, number));
                }
            };
            halt.guard(|| {
                let outcome = inbox::run(shared, mail, start_lanes);
                shared.queue.close();
                drop(beating);
                *report = Some(outcome?);
                Ok(())
            });
        });
    }
    session.conclude(report)
}
