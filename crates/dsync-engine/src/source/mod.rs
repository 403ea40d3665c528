//! The source role: lists its tree, answers requests for files.
//!
//! Threads: a lister (stage 1), an inbox for the destination's requests, one worker per data lane
//! (stages 4 to 6), a watch and a pulse. They share the [`Catalogue`] of listed entries and the
//! [`Queue`] of requested files; both are bounded by the destination's own credit.

mod catalogue;
mod effort;
mod inbox;
mod lane;
mod large;
mod listing;
mod queue;
mod read;

use std::path::PathBuf;

use crossbeam_channel::bounded;
use dsync_fs::Walk;
use dsync_wire::{event::Report, message::ControlMessage};

pub(crate) use self::catalogue::MAX_UNRELEASED_ENTRIES;
use self::{catalogue::Catalogue, effort::EffortGauge, queue::Queue};
use crate::{
    CancelToken, Observer, SyncError,
    session::{Session, SourceMail},
};

/// What the source's threads share.
struct Shared<'a> {
    session: &'a Session,
    catalogue: Catalogue,
    queue: Queue,
    effort: EffortGauge,
    /// Present when this end is the controller.
    observer: Option<&'a dyn Observer>,
}

/// What a source serves.
pub(crate) struct Tree {
    /// The operands as given, for messages.
    pub(crate) operands: Vec<PathBuf>,
    /// The walk over them.
    pub(crate) walk: Walk,
}

/// Serves a destination until it has everything; gives its report.
pub(crate) fn run(
    session: Session,
    mail: SourceMail,
    tree: Tree,
    observer: Option<&dyn Observer>,
    cancel: &CancelToken,
) -> Result<Report, SyncError> {
    let mut report = None;
    {
        let shared = Shared {
            session: &session,
            catalogue: Catalogue::default(),
            queue: Queue::default(),
            effort: EffortGauge::new(session.link.as_ref(), session.options.compression, session.data_lanes),
            observer,
        };
        let shared = &shared;
        let halt = &session.halt;
        let report = &mut report;
        std::thread::scope(|scope| {
            let (over_tx, over) = bounded::<()>(0);
            let pulse_over = over.clone();
            halt.spawn(scope, "watch", move || shared.session.watch(cancel, &over));
            halt.spawn(scope, "pulse", move || {
                shared.session.beat(&pulse_over, || shared.session.control.send(&ControlMessage::Alive))
            });
            halt.spawn(scope, "list", move || listing::run(shared, &tree.operands, tree.walk));
            for number in 0..session.data_lanes {
                let number = u8::try_from(number).unwrap_or(u8::MAX);
                halt.spawn(scope, "send", move || lane::run(shared, number));
            }
            halt.spawn(scope, "inbox", move || {
                let outcome = inbox::run(shared, mail);
                drop(over_tx);
                shared.queue.close();
                *report = Some(outcome?);
                Ok(())
            });
        });
    }
    session.conclude(report)
}
