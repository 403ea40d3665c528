//! Old files of other names that serve as the basis of new files (`--fuzzy`).
//!
//! The law: a file found here is only ever a basis. Whatever it is, and whatever becomes of it, the
//! new file's content is checked like any other. The search looks at a bounded number of files of a
//! directory, and compares names in bounded time.

use std::sync::{Arc, Weak};

use dsync_fs::{Component, Dir, Kind, Metadata, Timestamp};
use dsync_wire::message::Entry;

use super::super::{alternate::Level, directory::Directory, slot::Twin};
use crate::plan::timestamp;

/// The possible bases of one directory.
#[derive(Default)]
pub(super) struct Fuzzy {
    /// The directory that they are of.
    directory: Weak<Directory>,
    candidates: Vec<Candidate>,
}

struct Candidate {
    dir: Arc<Dir>,
    name: Component,
    size: u64,
    mtime: Timestamp,
}

impl Fuzzy {
    /// Returns the best basis for a new file: one of its size and time, else the one of the most
    /// similar name. With `alternates` their directories of this place are searched as well.
    pub(super) fn find(
        &mut self,
        directory: &Arc<Directory>,
        alternates: Option<&Level>,
        name: &Component,
        entry: &Entry,
        size: u64,
    ) -> Option<Twin> {
        if !std::ptr::eq(self.directory.as_ptr(), Arc::as_ptr(directory)) {
            self.directory = Arc::downgrade(directory);
            self.candidates.clear();
            let own = directory.dir.iter();
            for dir in own.chain(alternates.into_iter().flat_map(Level::dirs)) {
                self.candidates.extend(candidates(dir));
            }
        }

        let worthwhile = self.candidates.iter().filter(|old| dsync_delta::worthwhile(old.size, size));
        let is_same = |old: &&Candidate| old.size == size && timestamp(old.mtime) == entry.attributes.mtime;
        let same = worthwhile.clone().find(is_same);
        let best = same.or_else(|| {
            let mut best: Option<(usize, u64, &Candidate)> = None;
            for old in worthwhile {
                let limit = best.map_or(MOST_EDITS, |(edits, ..)| edits);
                let Some(edits) = distance(old.name.as_bytes(), name.as_bytes(), limit) else { continue };
                let apart = old.size.abs_diff(size);
                if best.is_none_or(|(fewest, nearest, _)| (edits, apart) < (fewest, nearest)) {
                    best = Some((edits, apart, old));
                }
            }
            best.map(|(.., old)| old)
        });
        best.map(|old| Twin::Fuzzy(Arc::clone(&old.dir), old.name.clone()))
    }
}

/// Returns files of a directory that a delta could pay for.
fn candidates(dir: &Arc<Dir>) -> Vec<Candidate> {
    let is_basis =
        |found: &Metadata| found.kind == Kind::File && dsync_delta::worthwhile(found.size, found.size);
    let files = dir.some_files(MOST_CANDIDATES).into_iter().filter(|(_, found)| is_basis(found));
    let candidate =
        |(name, Metadata { size, mtime, .. })| Candidate { dir: Arc::clone(dir), name, size, mtime };
    files.map(candidate).collect()
}

/// Returns the number of bytes to insert, remove or change between two names; `None` if it is more
/// than `limit`.
fn distance(one: &[u8], other: &[u8], limit: usize) -> Option<usize> {
    if one.len().abs_diff(other.len()) > limit {
        return None;
    }
    let mut above: Vec<usize> = (0..=other.len()).collect();

    for (row, byte) in one.iter().enumerate() {
        let mut diagonal = row;
        let mut left = row + 1;
        let mut fewest = left;
        for (column, second) in other.iter().enumerate() {
            let up = above.get(column + 1).copied().unwrap_or(usize::MAX);
            let changed = diagonal + usize::from(byte != second);
            let edits = changed.min(left + 1).min(up + 1);
            diagonal = up;
            if let Some(slot) = above.get_mut(column) {
                *slot = left;
            }
            left = edits;
            fewest = fewest.min(edits);
        }
        if let Some(slot) = above.last_mut() {
            *slot = left;
        }
        if fewest > limit {
            return None;
        }
    }
    above.last().copied().filter(|edits| *edits <= limit)
}

/// Most bytes in which the names of a basis and of a new file differ, as in rsync.
const MOST_EDITS: usize = 25;
/// Files of a directory that are looked at: each is compared with each new one.
const MOST_CANDIDATES: usize = 4096;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_as_far_apart_as_their_edits() {
        for (one, other, edits) in [
            ("", "", 0),
            ("a", "", 1),
            ("kitten", "sitting", 3),
            ("app-1.2.tar", "app-1.3.tar", 1),
            ("app-1.9.tar", "app-1.10.tar", 2),
            ("abc", "abc", 0),
        ] {
            assert_eq!(distance(one.as_bytes(), other.as_bytes(), 25), Some(edits), "{one} {other}");
            assert_eq!(distance(one.as_bytes(), other.as_bytes(), edits), Some(edits));
            if edits > 0 {
                assert_eq!(distance(one.as_bytes(), other.as_bytes(), edits - 1), None);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

        /// Law: the distance is a metric, as far as its limit allows to see it.
        #[test]
        fn distance_is_symmetric_and_bounded(one in "[ab]{0,12}", other in "[ab]{0,12}") {
            let (there, back) = (distance(one.as_bytes(), other.as_bytes(), 25), distance(other.as_bytes(), one.as_bytes(), 25));
            prop_assert_eq!(there, back);
            prop_assert!(there.unwrap() <= one.len().max(other.len()));
            prop_assert_eq!(there == Some(0), one == other);
        }
    }
}
