//! The contents that the runs of all pairs have recorded, for verifying a tree by them.
//!
//! Takes a directory of states, and returns what is recorded of a file that has a stamp.
//!
//! The law: a content is returned for the version of the file that it was read from, and for no other,
//! as [`State`] has it for a run. A state that cannot be used takes nothing from the others. Nothing
//! is written here.

use std::{cmp::Reverse, path::Path};

use dsync_delta::ContentHasher;
use dsync_fs::{Component, Dir, Stamp, Timestamp, filesystem_time};
use dsync_wire::event::Changes;

use super::{
    State, StateError, existing,
    format::{self, Content, Record},
    kept_files, read,
};

/// Contents that runs have recorded: those of all states in a directory.
///
/// Memory: 80 bytes for each of at most 2,097,152 records.
///
/// ```
/// use dsync_engine::State;
///
/// # let scratch = tempfile::tempdir()?;
/// # let states = scratch.path().join("none");
/// let (recorded, unusable) = State::recorded(&states);
/// assert!(unusable.is_empty());
/// if recorded.is_empty() {
///     println!("no run with a state has read a file yet");
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Recorded {
    /// In their order, none twice. Of one version there may be two contents: a disk that rots between
    /// the runs of two pairs shows each of them another one.
    records: Vec<Record>,
}

/// The standing of a file beside the records.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// No record is of its inode.
    Unrecorded,
    /// The records are of other versions: these differ from the last one, or only its change time.
    EditedSince(Changes),
    /// Contents of this very version, at least one, and the number of the first one's record.
    Recorded(Vec<[u8; 32]>, usize),
}

impl State {
    /// Reads the contents that runs have recorded in a directory of states, whatever pairs they are of, for
    /// [`verify_recorded`](crate::verify::verify_recorded). Takes no lock, writes nothing, and finds
    /// nothing where there is no directory.
    ///
    /// The errors are those of the states that are left out, one each: what they have counts as not
    /// recorded.
    pub fn recorded(dir: &Path) -> (Recorded, Vec<StateError>) {
        let mut unusable = Vec::new();
        let recorded = Recorded::read(dir, (filesystem_time(), Recorded::MAX_RECORDS), &mut unusable);
        let recorded = recorded.unwrap_or_else(|error| {
            unusable.push(error);
            Recorded::default()
        });
        (recorded, unusable)
    }
}

impl Recorded {
    /// Records of all pairs together that are kept in memory: four full states.
    pub(crate) const MAX_RECORDS: usize = 4 * format::MAX_RECORDS;

    /// Returns the number of records: those of one file that is in several states may differ.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns whether nothing is recorded.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    fn read(
        dir: &Path,
        (now, max): (Timestamp, usize),
        unusable: &mut Vec<StateError>,
    ) -> Result<Self, StateError> {
        let Some(dir) = existing(dir)? else { return Ok(Self::default()) };
        if !dir.metadata()?.is_own() {
            return Err(StateError::Shared);
        }
        let mut files = kept_files(&dir, format::PREFIX)?;
        // Where they are too many the newest ones tell most of the tree as it is.
        files.sort_by_key(|file| Reverse(file.time));

        let mut recorded = Self::default();
        for file in files {
            match records_of(&dir, &file.name, now) {
                Ok(records) if recorded.len() + records.len() > max => unusable.push(StateError::TooMuch),
                Ok(records) => recorded.add(records),
                Err(error) => unusable.push(error),
            }
        }
        Ok(recorded)
    }

    fn add(&mut self, records: Vec<Record>) {
        self.records.extend(records);
        self.records.sort_unstable();
        self.records.dedup();
    }

    /// Returns a number for each record that another one has by chance only, and the same one at a later
    /// time.
    pub(crate) fn marks(&self) -> Vec<u64> {
        let mark = |record: &Record| {
            let mut hasher = ContentHasher::new();
            hasher.update(&record.version.to_bytes()).update(&record.content);
            hasher.finish().first_chunk::<8>().map_or(0, |first| u64::from_le_bytes(*first))
        };
        self.records.iter().map(mark).collect()
    }

    /// Returns what is known of the file with this stamp on this filesystem.
    pub(crate) fn standing(&self, filesystem: u64, stamp: &Stamp) -> Standing {
        let key = (filesystem, stamp.ino);
        let from = self.records.partition_point(|record| record.key() < key);
        let of_file = self.records.get(from..).unwrap_or_default();
        let of_file = of_file.iter().take_while(|record| record.key() == key);
        let is_now = |record: &&Record| record.version.is_of(stamp);
        let contents: Vec<_> = of_file.clone().filter(is_now).map(|record| record.content).collect();
        if !contents.is_empty() {
            let before = of_file.take_while(|record| !is_now(record)).count();
            return Standing::Recorded(contents, from + before);
        }

        let Some(last) = of_file.max_by_key(|record| record.version.ctime) else {
            return Standing::Unrecorded;
        };
        let mut changes = Changes::NONE;
        let differing = [
            (last.version.size != stamp.size, Changes::SIZE),
            (last.version.mtime != stamp.mtime, Changes::TIME),
        ];
        differing.into_iter().filter(|(differs, _)| *differs).for_each(|(_, change)| changes.insert(change));
        Standing::EditedSince(changes)
    }
}

/// Returns the records of a state's file; none where it is gone, as another run replaces it.
fn records_of(dir: &Dir, name: &Component, now: Timestamp) -> Result<Vec<Record>, StateError> {
    let Some(Content { pair, saved, records, .. }) = read(dir, name)? else { return Ok(Vec::new()) };
    if format::name_of(&pair)? != *name {
        return Err(StateError::Damaged);
    }
    if saved > now { Err(StateError::ClockWentBack) } else { Ok(records) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use proptest::prelude::*;

    use super::*;

    fn time(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanoseconds: 1 }
    }

    fn stamp(ino: u64, size: u64, changed: i64) -> Stamp {
        Stamp { dev: 1, ino, size, mtime: time(changed), ctime: time(changed) }
    }

    fn record(filesystem: u64, stamp: &Stamp, content: u8) -> Record {
        Record::new((filesystem, stamp.ino), stamp, [content; 32])
    }

    /// Writes a pair's state as a run does.
    fn write(dir: &Path, pair: &str, saved: i64, records: &[Record]) -> std::path::PathBuf {
        let mut bytes = Vec::new();
        let mut sorted: Vec<_> = records.iter().collect();
        sorted.sort_unstable();
        let push = |piece: &[u8]| {
            bytes.extend_from_slice(piece);
            Ok(())
        };
        format::write(pair.as_bytes(), (time(saved), 1), (&Default::default(), &sorted), push).unwrap();
        let name = format::name_of(pair.as_bytes()).unwrap();
        let path = dir.join(std::str::from_utf8(name.as_bytes()).unwrap());
        fs::write(&path, bytes).unwrap();
        path
    }

    proptest! {
        #[test]
        fn law_a_content_is_returned_for_its_version_and_no_other(
            states in prop::collection::vec(
                prop::collection::vec((0_u64..3, 0_u64..3, 0_u64..2, 0_i64..3, 0_u8..2), 0..12), 0..4),
            (filesystem, ino, size, changed) in (0_u64..3, 0_u64..3, 0_u64..2, 0_i64..3),
        ) {
            let of = |&(filesystem, ino, size, changed, content): &(u64, u64, u64, i64, u8)| {
                record(filesystem, &stamp(ino, size, changed), content)
            };
            let mut recorded = Recorded::default();
            states.iter().for_each(|state| recorded.add(state.iter().map(of).collect()));

            let stamp = stamp(ino, size, changed);
            let of_file: Vec<Record> =
                states.iter().flatten().map(of).filter(|record| record.key() == (filesystem, ino)).collect();
            let mut contents: Vec<_> = of_file
                .iter()
                .filter(|record| record.version == version_of(filesystem, &stamp))
                .map(|record| record.content)
                .collect();
            contents.sort_unstable();
            contents.dedup();
            match recorded.standing(filesystem, &stamp) {
                Standing::Recorded(found, number) => {
                    prop_assert!(!found.is_empty() && found == contents);
                    let first = recorded.records[number];
                    prop_assert_eq!((first.version, first.content), (version_of(filesystem, &stamp), found[0]));
                }
                Standing::EditedSince(_) => prop_assert!(contents.is_empty() && !of_file.is_empty()),
                Standing::Unrecorded => prop_assert!(of_file.is_empty()),
            }
        }
    }

    fn version_of(filesystem: u64, stamp: &Stamp) -> format::Version {
        record(filesystem, stamp, 0).version
    }

    #[test]
    fn a_content_is_of_one_version_of_one_file_of_one_filesystem() {
        let scratch = tempfile::tempdir().unwrap();
        let [one, two] = [stamp(1, 10, 100), stamp(2, 20, 100)];
        write(scratch.path(), "a", 200, &[record(7, &one, 1), record(7, &two, 2)]);
        // Another pair met the same files: one as it was, one after an edit; and one met rot.
        let edited = stamp(2, 21, 150);
        write(scratch.path(), "b", 200, &[record(7, &one, 1), record(7, &edited, 3)]);
        write(scratch.path(), "c", 200, &[record(7, &edited, 4)]);
        let (recorded, unusable) = State::recorded(scratch.path());
        assert!(unusable.is_empty(), "{unusable:?}");
        assert_eq!(recorded.len(), 4);

        let of = |filesystem, stamp: &Stamp| recorded.standing(filesystem, stamp);
        assert_eq!(of(7, &one), Standing::Recorded(vec![[1; 32]], 0));
        assert_eq!(of(7, &two), Standing::Recorded(vec![[2; 32]], 1));
        assert_eq!(of(7, &edited), Standing::Recorded(vec![[3; 32], [4; 32]], 2));
        assert_eq!(of(8, &one), Standing::Unrecorded);
        assert_eq!(of(7, &stamp(3, 10, 100)), Standing::Unrecorded);
        assert_eq!(of(7, &Stamp { ctime: time(101), ..one }), Standing::EditedSince(Changes::NONE));
        let longer = Stamp { size: 11, mtime: time(101), ..one };
        let mut changes = Changes::SIZE;
        changes.insert(Changes::TIME);
        assert_eq!(of(7, &longer), Standing::EditedSince(changes));
    }

    #[test]
    fn a_state_that_cannot_be_used_takes_nothing_from_the_others() {
        let scratch = tempfile::tempdir().unwrap();
        let one = stamp(1, 10, 100);
        write(scratch.path(), "sound", 200, &[record(7, &one, 1)]);
        let ahead = filesystem_time().seconds + 1000;
        write(scratch.path(), "ahead", ahead, &[record(7, &one, 9)]);
        let [damaged, newer, moved, shared] = ["damaged", "newer", "moved", "shared"]
            .map(|pair| write(scratch.path(), pair, 200, &[record(7, &one, 9)]));
        let mut bytes = fs::read(&damaged).unwrap();
        bytes[40] ^= 1;
        fs::write(&damaged, &bytes).unwrap();
        let mut bytes = fs::read(&newer).unwrap();
        bytes[12] = b'4';
        fs::write(&newer, &bytes).unwrap();
        fs::rename(&moved, scratch.path().join(format!("pair-{}", "0".repeat(32)))).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o666)).unwrap();

        let (recorded, unusable) = State::recorded(scratch.path());
        let mut said: Vec<_> = unusable.iter().map(ToString::to_string).collect();
        said.sort();
        let expected = [
            StateError::Shared,
            StateError::Newer,
            StateError::Damaged,
            StateError::Damaged,
            StateError::ClockWentBack,
        ];
        let mut expected = expected.map(|error| error.to_string());
        expected.sort();
        assert_eq!(said, expected);
        assert_eq!(recorded.standing(7, &one), Standing::Recorded(vec![[1; 32]], 0));
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 6, "nothing is removed or made");
    }

    #[test]
    fn a_directory_of_others_a_file_and_nothing_at_all_hold_no_records() {
        let scratch = tempfile::tempdir().unwrap();
        let (recorded, unusable) = State::recorded(&scratch.path().join("none"));
        assert!(recorded.is_empty() && unusable.is_empty());
        assert!(!scratch.path().join("none").exists());

        let path = write(scratch.path(), "pair", 200, &[record(7, &stamp(1, 10, 100), 1)]);
        let (recorded, unusable) = State::recorded(&path);
        assert!(recorded.is_empty() && matches!(unusable[..], [StateError::Io { .. }]), "{unusable:?}");
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o770)).unwrap();
        let (recorded, unusable) = State::recorded(scratch.path());
        assert!(recorded.is_empty() && matches!(unusable[..], [StateError::Shared]), "{unusable:?}");
    }

    #[test]
    fn what_memory_has_no_room_for_counts_as_not_recorded() {
        let scratch = tempfile::tempdir().unwrap();
        for pair in ["a", "b", "c"] {
            let of = |ino| record(7, &stamp(ino, 10, 100), 1);
            write(scratch.path(), pair, 200, &[of(1), of(2)]);
        }
        let mut unusable = Vec::new();
        let recorded = Recorded::read(scratch.path(), (filesystem_time(), 3), &mut unusable).unwrap();
        assert_eq!(recorded.len(), 2);
        assert!(matches!(unusable[..], [StateError::TooMuch, StateError::TooMuch]), "{unusable:?}");
    }
}
