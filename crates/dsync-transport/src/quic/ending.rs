//! The end of a connection: the first cause wins, and every later call reports it.

use std::sync::OnceLock;

use dsync_wire::link::LinkError;

/// The cause of a link's end, if it has ended.
#[derive(Default)]
pub(super) struct Ending(OnceLock<LinkError>);

impl Ending {
    /// Records `cause` unless one was recorded before; returns whether it was the first.
    pub(super) fn set(&self, cause: LinkError) -> bool {
        self.0.set(cause).is_ok()
    }

    /// Returns the cause if the link has ended.
    pub(super) fn get(&self) -> Option<LinkError> {
        self.0.get().cloned()
    }
}
