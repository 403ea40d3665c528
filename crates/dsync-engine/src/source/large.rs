//! One file that goes in segments, shared by the lanes that send them.
//!
//! The first worker opens it; each worker claims the next segment; the worker that finishes the last one
//! checks that the file did not change meanwhile and reports its outcome (invariant D7). After a failed
//! read no further segment is claimed.

use std::sync::{Mutex, OnceLock};

use dsync_delta::{Key, RootBuilder, SegmentValue, Segments};
use dsync_fs::{SourceFile, Stamp};
use dsync_wire::message::{Cause, FileOutcome};

use super::{queue::Request, read};
use crate::{halt::lock, plan::timestamp};

/// A large file in transfer.
pub(super) struct LargeFile {
    pub(super) request: Request,
    opened: OnceLock<Result<Opened, Cause>>,
    claims: Mutex<Claims>,
}

/// The file once it is open.
pub(super) struct Opened {
    pub(super) file: SourceFile,
    pub(super) stamp: Stamp,
    pub(super) segments: Segments,
    root: Mutex<Option<RootBuilder>>,
}

#[derive(Default)]
struct Claims {
    next: u64,
    in_flight: u64,
    failed: Option<Cause>,
    ended: bool,
}

/// What a worker may do with a large file.
pub(super) enum Claim<'a> {
    /// Send this segment.
    Segment(&'a Opened, u64),
    /// It is empty now: it goes as a record.
    Empty,
    /// Report this failure: it could not be opened.
    Failed(Cause),
    /// All segments are claimed.
    Exhausted,
}

impl LargeFile {
    pub(super) fn new(request: Request) -> Self {
        Self { request, opened: OnceLock::new(), claims: Mutex::default() }
    }

    /// Claims the next segment.
    pub(super) fn claim(&self, key: &Key) -> Claim<'_> {
        let opened = self.opened.get_or_init(|| self.open(key));
        let mut claims = lock(&self.claims);
        if claims.ended {
            return Claim::Exhausted;
        }
        match opened {
            Err(cause) => {
                claims.ended = true;
                Claim::Failed(*cause)
            }
            Ok(opened) if opened.stamp.size == 0 => {
                claims.ended = true;
                Claim::Empty
            }
            Ok(opened) => {
                if claims.failed.is_some() || claims.next >= opened.segments.count() {
                    return Claim::Exhausted;
                }
                let index = claims.next;
                claims.next += 1;
                claims.in_flight += 1;
                Claim::Segment(opened, index)
            }
        }
    }

    /// Takes the result of a claimed segment; gives the file's outcome when it was the last one out.
    pub(super) fn finish(
        &self,
        opened: &Opened,
        index: u64,
        result: Result<SegmentValue, Cause>,
    ) -> Option<FileOutcome> {
        let result = result.and_then(|value| {
            lock(&opened.root)
                .as_mut()
                .map_or(Ok(()), |root| root.set(index, value))
                .map_err(|_| Cause::Changed)
        });
        let mut claims = lock(&self.claims);
        claims.in_flight -= 1;
        if let Err(cause) = result {
            claims.failed.get_or_insert(cause);
        }
        let all_claimed = claims.failed.is_some() || claims.next >= opened.segments.count();
        if claims.ended || claims.in_flight > 0 || !all_claimed {
            return None;
        }
        claims.ended = true;
        Some(match claims.failed {
            Some(cause) => FileOutcome::Failed { cause },
            None => opened.outcome(),
        })
    }

    fn open(&self, key: &Key) -> Result<Opened, Cause> {
        let listed = &self.request.listed;
        let file = read::open(listed)?;
        let stamp = file.stamp();
        if !timestamp(stamp.mtime).is_valid() {
            return Err(Cause::Unrepresentable);
        }
        let segments = Segments::for_file(stamp.size).map_err(|_| Cause::Unrepresentable)?;
        file.advise_sequential();
        Ok(Opened { root: Mutex::new(Some(RootBuilder::new(key, &segments))), file, stamp, segments })
    }
}

impl Opened {
    /// The outcome after all segments were read.
    fn outcome(&self) -> FileOutcome {
        match self.file.restamp() {
            Ok(now) if now == self.stamp => {}
            Ok(_) => return FileOutcome::Failed { cause: Cause::Changed },
            Err(error) => return FileOutcome::Failed { cause: read::cause(&error) },
        }
        match lock(&self.root).take().map(RootBuilder::finish) {
            Some(Ok(root)) => FileOutcome::Complete { mtime: timestamp(self.stamp.mtime), root },
            _ => FileOutcome::Failed { cause: Cause::Changed },
        }
    }
}
