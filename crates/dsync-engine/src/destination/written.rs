//! Records the contents of the files that a run has written, for the next run that compares contents.
//!
//! The law is that of [`State`](crate::State): a content is read from a file that has its name, once no
//! change of it can go unseen. So it is the destination's own reading and not the word of the
//! source, and it may cost time, never correctness. The pages are still in memory then.

use std::sync::Arc;

use crossbeam_channel::Receiver;
use dsync_fs::{Component, Dir};

use super::Site;
use crate::{
    SyncError, content,
    schedule::{Point, point},
};

/// A file that has its name.
pub(super) struct Written {
    pub(super) dir: Arc<Dir>,
    pub(super) name: Component,
}

/// Reads and notes files until the committer hands in no more.
pub(super) fn run(site: &Site<'_>, written: &Receiver<Written>) -> Result<(), SyncError> {
    let Some(state) = &site.session.state else { return Ok(()) };
    let halt = &site.session.halt;
    for Written { dir, name } in written {
        point(Point::Receive);
        if halt.stopped() {
            break;
        }
        state.note_written(&dir, &name, |file| content::hash(file, halt.stop_flag()));
    }
    Ok(())
}
