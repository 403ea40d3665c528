//! The hashes of files' contents by the files' identity, however many there are.
//!
//! Takes each file's device, inode, size and modification time with the hash of its content, and answers
//! for a file that is still so. A file's other names have the same answer. Records are sorted in
//! runs of [`RUN_RECORDS`] that go to a [`FlatSpool`], so ten million files take the memory of one
//! run. A look-up searches each run by halves.
//!
//! The law: an answer is the hash that was added. Each record carries its sum, and one that the disk
//! changed is not found; nor is a file that was added with two different hashes.

use std::{fmt, mem};

use xxhash_rust::xxh3::xxh3_64;

use crate::{
    flat_spool::{FlatBytes, FlatSpool},
    metadata::{Metadata, Timestamp},
    spool::{SpoolError, SpoolHome},
};

/// An index that collects files.
#[derive(Debug)]
pub struct ContentIndexBuilder {
    records: FlatSpool,
    run: Vec<Record>,
}

/// Hashes of contents by file.
pub struct ContentIndex(FlatBytes);

/// The identity of a file, and its version by size and modification time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    /// Number of the filesystem.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Length in bytes.
    pub size: u64,
    /// Time of the last change of content.
    pub mtime: Timestamp,
}

impl FileVersion {
    /// Returns the version that was looked at.
    pub fn of(metadata: &Metadata) -> Self {
        let Metadata { dev, ino, size, mtime, .. } = *metadata;
        Self { dev, ino, size, mtime }
    }

    fn key(&self) -> [u8; OF_VERSION] {
        let mut key = [0; OF_VERSION];
        key[..8].copy_from_slice(&self.dev.to_be_bytes());
        key[8..16].copy_from_slice(&self.ino.to_be_bytes());
        key[16..24].copy_from_slice(&self.size.to_be_bytes());
        key[24..32].copy_from_slice(&self.mtime.seconds.to_be_bytes());
        key[32..].copy_from_slice(&self.mtime.nanoseconds.to_be_bytes());
        key
    }
}

type Record = [u8; RECORD_BYTES];

impl ContentIndexBuilder {
    /// Makes an empty index that grows into `home`.
    pub fn new(home: &SpoolHome) -> Self {
        Self { records: FlatSpool::new(home), run: Vec::new() }
    }

    /// Adds a file.
    ///
    /// # Errors
    /// [`SpoolError`].
    pub fn push(&mut self, file: &FileVersion, hash: &[u8; 32]) -> Result<(), SpoolError> {
        let mut record = [0; RECORD_BYTES];
        record[..OF_VERSION].copy_from_slice(&file.key());
        record[OF_VERSION..OF_HASH].copy_from_slice(hash);
        let sum = xxh3_64(&record[..OF_HASH]);
        record[OF_HASH..].copy_from_slice(&sum.to_be_bytes());
        self.run.push(record);
        if self.run.len() >= RUN_RECORDS { self.end_run() } else { Ok(()) }
    }

    /// Ends collecting.
    ///
    /// # Errors
    /// [`SpoolError`].
    pub fn seal(mut self) -> Result<ContentIndex, SpoolError> {
        self.end_run()?;
        Ok(ContentIndex(self.records.seal()?))
    }

    fn end_run(&mut self) -> Result<(), SpoolError> {
        let mut run = mem::take(&mut self.run);
        run.sort_unstable();
        run.iter().try_for_each(|record| self.records.push(record))?;
        run.clear();
        self.run = run;
        Ok(())
    }
}

impl ContentIndex {
    /// Returns the hash of a file's content; `None` if none was added of this version, or two were.
    pub fn find(&self, file: &FileVersion) -> Option<[u8; 32]> {
        let key = file.key();
        let (records, _) = self.0.as_chunks::<RECORD_BYTES>();
        let mut found = None;

        for run in records.chunks(RUN_RECORDS) {
            let first = run.partition_point(|record| record[..OF_VERSION] < key[..]);
            for record in run.iter().skip(first).take_while(|record| record.starts_with(&key)) {
                let hash = hash_of(record)?;
                if found.is_some_and(|found| found != hash) {
                    return None;
                }
                found = Some(hash);
            }
        }
        found
    }
}

impl fmt::Debug for ContentIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContentIndex").field("files", &(self.0.len() / RECORD_BYTES)).finish_non_exhaustive()
    }
}

/// Returns the hash of a record that is what was written.
fn hash_of(record: &Record) -> Option<[u8; 32]> {
    let (hashed, sum) = record.split_at(OF_HASH);
    let is_sound = xxh3_64(hashed).to_be_bytes() == sum;
    is_sound.then(|| hashed[OF_VERSION..].try_into().ok()).flatten()
}

/// Bytes of a version: device, inode, size, seconds, nanoseconds.
const OF_VERSION: usize = 36;
/// Bytes of a version and its hash.
const OF_HASH: usize = OF_VERSION + 32;
/// Bytes of a record: a version, its hash and the sum of both.
const RECORD_BYTES: usize = OF_HASH + 8;
/// Records that are sorted together: about 2 MiB.
const RUN_RECORDS: usize = 1 << 15;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn version(number: u64) -> FileVersion {
        let mtime = Timestamp { seconds: 7, nanoseconds: 9 };
        FileVersion { dev: 1, ino: number, size: number % 3, mtime }
    }

    fn hash(number: u64) -> [u8; 32] {
        let mut hash = [0; 32];
        hash[..8].copy_from_slice(&number.to_le_bytes());
        hash
    }

    #[test]
    fn files_are_found_in_memory_and_beyond_it_and_others_are_not() {
        for count in [0, 3, 100_000] {
            let mut index = ContentIndexBuilder::new(&SpoolHome::default());
            // In no order.
            for number in (0..count).map(|number| number * 7919 % count) {
                index.push(&version(number), &hash(number)).unwrap();
            }
            let index = index.seal().unwrap();
            assert!((0..count).all(|number| index.find(&version(number)) == Some(hash(number))), "{count}");
            assert_eq!(index.find(&version(count)), None);
            let mut touched = version(1);
            touched.mtime.nanoseconds += 1;
            assert_eq!(index.find(&touched), None);
        }
    }

    #[test]
    fn a_file_with_two_hashes_has_none_and_with_one_hash_twice_has_it() {
        let mut index = ContentIndexBuilder::new(&SpoolHome::default());
        for (number, content) in [(1, 1), (2, 2), (1, 3), (2, 2)] {
            index.push(&version(number), &hash(content)).unwrap();
        }
        let index = index.seal().unwrap();
        assert_eq!((index.find(&version(1)), index.find(&version(2))), (None, Some(hash(2))));
    }

    #[test]
    fn a_record_that_the_disk_changed_is_not_found() {
        let mut index = ContentIndexBuilder::new(&SpoolHome::default());
        index.push(&version(1), &hash(1)).unwrap();
        let ContentIndex(FlatBytes::Memory(mut bytes)) = index.seal().unwrap() else { panic!("mapped") };
        bytes[OF_VERSION] ^= 1;
        assert_eq!(ContentIndex(FlatBytes::Memory(bytes)).find(&version(1)), None);
    }
}
