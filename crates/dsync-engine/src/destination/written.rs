//! Records the contents of the files that a run has written, for the next run that compares contents.
//!
//! The law is that of [`State`](crate::State): a content is read from a file that has its name, once no
//! change of it can go unseen. So it is the destination's own reading, and may cost time, never
//! correctness. The word of the source can only forbid a record: a content that is not the listed
//! one has changed at the source, or was damaged since it was written.

use std::{io, sync::Arc};

use crossbeam_channel::Receiver;
use dsync_fs::{Component, Dir};

use super::Site;
use crate::{
    SyncError, content,
    schedule::{Point, point},
};

/// A file that has its name, or waits for it under another one (`--delay-updates`).
pub(super) struct Written {
    pub(super) dir: Arc<Dir>,
    pub(super) name: Component,
    /// The hash of its content as listed.
    pub(super) listed: Option<[u8; 32]>,
}

/// Reads and notes files until the committer hands in no more.
pub(super) fn run(site: &Site<'_>, written: &Receiver<Written>) -> Result<(), SyncError> {
    let Some(state) = &site.session.state else { return Ok(()) };
    let halt = &site.session.halt;
    for Written { dir, name, listed } in written {
        point(Point::Receive);
        if halt.stopped() {
            break;
        }
        state.note_written(&dir, &name, |file| {
            let content = content::hash(file, halt.stop_flag())?;
            let is_other = listed.is_some_and(|listed| listed != content);
            if is_other { Err(io::ErrorKind::InvalidData.into()) } else { Ok(content) }
        });
    }
    Ok(())
}
