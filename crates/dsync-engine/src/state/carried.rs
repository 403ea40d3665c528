//! The contents and signatures that are known of a file's version, kept through a change of its names or
//! attributes, which gives it another change time.
//!
//! The law: the knowledge of one stamp is noted for the next one only if nobody can have written to the file
//! from a look at the first until the clock had passed the second. A read lease shows that
//! (`dsync_fs::LeasedFile`). A file whose lease was not granted or was broken is read again by a later run.
//!
//! The clock's step takes milliseconds, so files wait for it together, a bounded number of them, and a thread
//! of their own ends the leases: whoever wants to write to one waits for that step and no longer.

use std::{collections::VecDeque, sync::Mutex, thread};

use dsync_fs::{Component, Dir, LeasedFile, Stamp, wait_until_past};

use super::{State, lock};

/// The files whose last change is of this step of the clock.
#[derive(Default)]
pub(super) struct Carrying(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    files: VecDeque<Carried>,
    /// Whether a thread settles them.
    is_watched: bool,
}

/// A file under a lease.
struct Carried {
    file: LeasedFile,
    filesystem: u64,
    /// The version that something is known of.
    known: Stamp,
    /// The present version.
    now: Stamp,
    content: Option<[u8; 32]>,
    has_signature: bool,
}

impl State {
    /// Changes names or attributes of a file by `change`, and keeps what is known of its content. Whatever
    /// cannot be kept costs a later run the reading. Returns the result of `change`.
    pub(crate) fn carry<T>(&self, dir: &Dir, name: &Component, change: impl FnOnce() -> T) -> T {
        let carried = self.take_along(dir, name);
        let changed = change();
        if let Some(mut carried) = carried
            && let Ok(now) = carried.file.restamp()
        {
            carried.now = now;
            self.await_step(carried);
        }
        changed
    }

    /// Takes a lease on a file of which something is known.
    fn take_along(&self, dir: &Dir, name: &Component) -> Option<Carried> {
        let file = dir.open_source_noatime(name).ok()?;
        let stamp = file.stamp();
        let filesystem = self.meet(&file)?;
        // It has had a lease since its last change.
        if let Some(carried) = self.0.carrying.take(&stamp) {
            return Some(carried);
        }

        let content = self.find_content(&stamp);
        let has_signature = self.0.signatures.keeps(&self.0.dir, filesystem, &stamp);
        if content.is_none() && !has_signature {
            return None;
        }
        let file = file.lease()?;
        // A write between the look and the lease shows, as the known stamp is of the past.
        let is_same = file.restamp().is_ok_and(|now| now == stamp);
        is_same.then_some(Carried { file, filesystem, known: stamp, now: stamp, content, has_signature })
    }

    /// Makes a changed file wait for the next step of the clock.
    fn await_step(&self, carried: Carried) {
        while self.0.carrying.is_full() {
            self.settle_oldest();
        }
        let mut waiting = lock(&self.0.carrying.0);
        waiting.files.push_back(carried);
        if waiting.is_watched {
            return;
        }
        let state = self.clone();
        let watch = thread::Builder::new().name("lease".into()).spawn(move || state.settle_carried());
        // Without a thread the next change or the end of the run settles them.
        waiting.is_watched = watch.is_ok();
    }

    fn settle_carried(&self) {
        loop {
            while self.settle_oldest() {}
            let mut waiting = lock(&self.0.carrying.0);
            if waiting.files.is_empty() {
                waiting.is_watched = false;
                return;
            }
        }
    }

    /// Notes the content of the file that waits longest, and ends its lease. Returns `false` if none waits.
    pub(super) fn settle_oldest(&self) -> bool {
        let carrying = &self.0.carrying.0;
        let Some(now) = lock(carrying).files.front().map(|first| first.now) else { return false };
        wait_until_past(now.ctime);

        let mut waiting = lock(carrying);
        // Another thread may have been here meanwhile.
        if waiting.files.front().is_some_and(|first| first.now == now)
            && let Some(carried) = waiting.files.pop_front()
        {
            // Under the lock, so that whoever changes the file once more finds it here or noted.
            self.note_carried(carried);
        }
        true
    }

    fn note_carried(&self, carried: Carried) {
        let Carried { file, filesystem, known, now, content, has_signature } = carried;
        if !file.is_settled_as(&now) {
            return;
        }
        drop(file);
        if let Some(content) = content {
            self.note(filesystem, &now, content);
        }
        if has_signature {
            self.0.signatures.carry(&self.0.dir, filesystem, (&known, &now));
        }
    }
}

impl Carrying {
    fn is_full(&self) -> bool {
        lock(&self.0).files.len() >= MAX_WAITING
    }

    /// Takes the file that waits with this stamp.
    fn take(&self, stamp: &Stamp) -> Option<Carried> {
        let mut waiting = lock(&self.0);
        let at = waiting.files.iter().position(|carried| carried.now == *stamp)?;
        waiting.files.remove(at)
    }
}

/// Files that wait for a step of the clock, each with a descriptor. With steps of 4 ms that is 16,000 changes
/// a second.
const MAX_WAITING: usize = 64;
