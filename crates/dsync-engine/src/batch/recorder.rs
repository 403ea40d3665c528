//! Hears of a run's plans and records the content of each file that they transfer.

use dsync_wire::{
    event::{Action, Changes, Event, FileType, Planned, Progress},
    message::{Cause, Operation, Problem},
    options::EventLevel,
};

use super::Recording;
use crate::{CancelToken, Connection, FileProgress, Observer, Reconnect, source::ListedFiles};

/// Passes a run's callbacks on and records contents from the source's own files.
pub(crate) struct Recorder<'a> {
    pub(crate) observer: &'a dyn Observer,
    pub(crate) recording: &'a Recording,
    pub(crate) files: ListedFiles,
    /// The events that the caller wants.
    pub(crate) level: EventLevel,
    pub(crate) cancel: &'a CancelToken,
}

impl Recorder<'_> {
    /// Records the content of a file that is transferred.
    fn record(&self, planned: &Planned) {
        let recorded = self.files.record(&planned.path, self.recording);
        // A file that cannot be read is told by the run itself, unless it transfers nothing.
        if let Err(cause) = recorded
            && (self.recording.is_only() || cause == Cause::Changed)
        {
            let problem = Problem::new(Operation::ReadFile, planned.path.clone(), cause);
            self.observer.event(&Event::Failed(problem));
        }
        if !self.recording.is_sound() {
            self.cancel.cancel();
        }
    }
}

/// Returns whether a plan transfers the content of a file.
fn transfers(planned: &Planned) -> bool {
    planned.kind == FileType::File
        && matches!(planned.action, Action::Create | Action::Update)
        && !planned.changes.contains(Changes::HARD_LINK)
}

impl Observer for Recorder<'_> {
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
        self.observer.reconnecting(reconnect);
    }

    fn event(&self, event: &Event) {
        if let Event::Planned(planned) = event {
            if transfers(planned) {
                self.record(planned);
            }
            // Plans are told for this recorder where the caller wants none.
            if self.level < EventLevel::Changes {
                return;
            }
        }
        self.observer.event(event);
    }

    fn progress(&self, progress: &Progress) {
        self.observer.progress(progress);
    }

    fn file(&self, file: &FileProgress) {
        self.observer.file(file);
    }
}
