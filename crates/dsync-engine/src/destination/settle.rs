//! The ends of a requested file: every way out of being asked for passes here.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
};

use dsync_wire::message::{Cause, ControlMessage, Operation};

use super::{
    files::Pending,
    phase::{Again, Phase},
    transfers::Transfers,
};
use crate::{
    SyncError,
    schedule::{Point, point},
};

/// The outcome of a file.
pub(super) enum Outcome {
    /// Its content is here, is right and is on its way to its name: no other name need carry it.
    Arrived,
    /// After [`Arrived`](Self::Arrived) it could not get its name, which was recorded: another name
    /// may take over.
    Nameless,
    /// After [`Arrived`](Self::Arrived) the run is done with it: it has its name, waits for it or
    /// never gets it.
    Closed,
    /// Its content is not the source's, or the source cannot read it: it is asked for again where
    /// that may help.
    Unsound(Cause),
    /// The destination could not write it.
    Failed(Operation, Cause),
    /// The destination could not write it: the system's error. An error that every other file would
    /// meet as well ends the run.
    Broke(Operation, io::Error),
    /// Another name of the same inode has the content, which was awaited.
    Needless,
}

impl Transfers<'_> {
    /// Settles the consequences of a file's outcome: requests, problems, counts, and its memory.
    pub(super) fn settle(&self, file: &Arc<Pending>, outcome: Outcome) -> Result<(), SyncError> {
        match outcome {
            Outcome::Arrived => self.arrived(file),
            Outcome::Nameless => {
                if file.is_cloned() {
                    self.site.account.clone_failed();
                }
                self.lost(file)
            }
            Outcome::Closed => self.closed(file),

            Outcome::Unsound(cause) => self.unsound(file, cause),
            Outcome::Failed(operation, cause) => match file.end() {
                Phase::Over => Ok(()),
                before => self.failed(file, before, operation, cause),
            },
            Outcome::Broke(operation, error) => {
                let cause = self.site.cause_or_fatal(operation, &file.slot.path(), error)?;
                self.settle(file, Outcome::Failed(operation, cause))
            }
            Outcome::Needless => {
                self.awaited.release();
                self.release(file)
            }
        }
    }

    /// Asks for a file in the place of one that had the same content.
    pub(super) fn take_over(&self, file: &Arc<Pending>) -> Result<(), SyncError> {
        self.site.account.transfer_added(file.size);
        file.announce(self.site)?;
        if !self.is_local() {
            self.files.insert(file);
        }
        self.ask(file, &ControlMessage::Need { entry: file.entry, attempt: 0 })
    }

    fn ask(&self, file: &Arc<Pending>, request: &ControlMessage) -> Result<(), SyncError> {
        let Some(copiers) = &self.copied_again else { return self.site.session.control.send(request) };
        point(Point::Send);
        self.call.work();
        // Cannot fail: the copiers' end of the channel lives as long as this one.
        copiers
            .send(Arc::clone(file))
            .map_err(|_| SyncError::Aborted { message: "no copier is left".to_owned() })
    }

    fn arrived(&self, file: &Arc<Pending>) -> Result<(), SyncError> {
        let before = file.end();
        if matches!(before, Phase::Over) {
            return Ok(());
        }
        self.end_request(file, &before);

        let waited = file.first_name.map(|number| self.succession.arrived(number));
        waited.into_iter().flatten().try_for_each(|other| self.settle(&other, Outcome::Needless))
    }

    /// Asks for a file again if its failure may be one of this attempt only, else records it.
    fn unsound(&self, file: &Arc<Pending>, cause: Cause) -> Result<(), SyncError> {
        let (again, before) = file.again(cause);
        match again {
            Again::Over => Ok(()),
            Again::Ask(request) => {
                self.return_signature(&before);
                self.ask(file, &request)
            }
            Again::Never => {
                let operation = match cause {
                    Cause::ContentMismatch => Operation::WriteFile,
                    _ => Operation::ReadFile,
                };
                self.failed(file, before, operation, cause)
            }
        }
    }

    /// Records why the file will not have its name, and ends it.
    fn failed(
        &self,
        file: &Arc<Pending>,
        before: Phase,
        operation: Operation,
        cause: Cause,
    ) -> Result<(), SyncError> {
        self.site.problem(operation, &file.slot.path(), cause)?;
        self.lost(file)?;

        self.end_request(file, &before);
        // A temporary goes before its directory gets its time.
        drop(before);
        self.closed(file)
    }

    /// Settles a file that will not have its name: another name of the same inode may take over.
    fn lost(&self, file: &Pending) -> Result<(), SyncError> {
        self.site.account.transfer_failed(file.action, file.size);
        file.tell_end(self.site, false)?;
        let next = file.first_name.map(|number| self.succession.lost(number)).transpose()?.flatten();
        next.map_or(Ok(()), |next| self.take_over(&next))
    }

    /// Ends the request for the file.
    fn end_request(&self, file: &Pending, before: &Phase) {
        self.return_signature(before);
        if let Some(basis) = before.basis() {
            file.signature_bytes.fetch_add(basis.signature_bytes, Ordering::Relaxed);
        }
        if !self.is_local() {
            self.files.remove(file.entry);
        }
        self.awaited.release();
    }

    /// Releases the credit for the basis' sums that the source held.
    fn return_signature(&self, before: &Phase) {
        if let Some(basis) = before.basis() {
            self.signatures.give(basis.credit);
        }
    }

    fn closed(&self, file: &Pending) -> Result<(), SyncError> {
        self.site.account.file_done();
        file.tell_end(self.site, true)?;
        self.release(file)
    }

    /// Releases the file's directory and its listing.
    fn release(&self, file: &Pending) -> Result<(), SyncError> {
        file.slot.directory.release(self.site)?;
        file.part.release(&self.site.session.control)
    }
}
