//! The journal beside an unfinished file: the segments that it holds, and their hashes.
//!
//! It is only ever appended to, in records of one length with a sum each. Everything behind the
//! first wrong record was never written, or is not to be believed. It names the state of the
//! source's file that the segments are of, and the key that each value was made with (every session
//! has another). If the run ended in an orderly way, its last record is the stamp that the content
//! then had: content with another stamp has been touched since and is hashed again from end to end.
//!
//! Each record is 64 bytes: kind, 47 bytes, and the first 16 of the BLAKE3 hash of those and of the
//! record's number. Kinds: 1 head (version byte 1, state, length of the file, log2 of the segment
//! length), 2 key, 3 segment (number, value), 4 seal (length, modification and change time, inode).
//! Numbers are little endian.

use std::{collections::BTreeMap, io};

use dsync_delta::{ContentHasher, Key, Segments};
use dsync_fs::{Notes, Stamp};
use dsync_wire::message::FileState;

/// The file that an unfinished one is a part of: its state and its segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) state: FileState,
    pub(super) segments: Segments,
}

/// A journal that is being written.
#[derive(Debug)]
pub(super) struct Journal {
    notes: Notes,
    records: u64,
}

/// A journal as an earlier run left it.
pub(super) struct Entries {
    pub(super) head: Head,
    /// Finished segments, each with the key and the value that it was verified with.
    pub(super) segments: BTreeMap<u64, (Key, [u8; 32])>,
    seal: Option<[u8; SEAL_BYTES]>,
    /// Number of records that are right.
    records: u64,
}

impl Journal {
    /// Begins the journal of a new file.
    pub(super) fn begin(notes: Notes, head: &Head, key: &Key) -> io::Result<Self> {
        let mut journal = Self { notes, records: 0 };
        let mut payload = vec![VERSION];
        payload.extend_from_slice(&head.state.0);
        payload.extend_from_slice(&head.segments.file_len().to_le_bytes());
        payload.push(head.segments.length_log2());
        journal.append(HEAD, &payload)?;
        journal.append(KEY, key.as_bytes())?;
        Ok(journal)
    }

    /// Goes on with an earlier run's journal, under this session's key.
    pub(super) fn resume(notes: Notes, entries: &Entries, key: &Key) -> io::Result<Self> {
        let mut journal = Self { notes, records: entries.records };
        journal.notes.set_len(entries.records * RECORD_BYTES as u64)?;
        journal.append(KEY, key.as_bytes())?;
        Ok(journal)
    }

    /// Notes that a segment is written and verified.
    pub(super) fn finished(&mut self, index: u64, value: &[u8; 32]) -> io::Result<()> {
        let mut payload = index.to_le_bytes().to_vec();
        payload.extend_from_slice(value);
        self.append(SEGMENT, &payload)
    }

    /// Makes sure that there is room to keep the journal once it is sealed.
    pub(super) fn claim(&self) -> io::Result<()> {
        self.notes.claim((self.records + 1) * RECORD_BYTES as u64)
    }

    /// Ends the journal: the content is on the disk and has this stamp.
    pub(super) fn seal(mut self, stamp: &Stamp) -> io::Result<()> {
        self.append(SEAL, &seal(stamp))?;
        self.notes.keep();
        Ok(())
    }

    fn append(&mut self, kind: u8, payload: &[u8]) -> io::Result<()> {
        // A later run would not read more.
        if self.records >= MAX_RECORDS as u64 {
            return Ok(());
        }
        let record = record(kind, payload, self.records);
        self.notes.write_all_at(self.records * RECORD_BYTES as u64, &record)?;
        self.records += 1;
        Ok(())
    }
}

impl Entries {
    /// Reads a journal; `None` when it does not even name the file's state.
    pub(super) fn read(notes: &Notes) -> io::Result<Option<Self>> {
        Ok(Self::parse(&notes.read(MAX_RECORDS * RECORD_BYTES)?))
    }

    /// Returns whether the content is as the last run left it.
    pub(super) fn is_untouched(&self, stamp: &Stamp) -> bool {
        self.seal == Some(seal(stamp))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut entries: Option<Self> = None;
        let mut key: Option<Key> = None;
        for (number, bytes) in bytes.chunks_exact(RECORD_BYTES).enumerate() {
            let (kind, payload) = (bytes[0], &bytes[1..=PAYLOAD_BYTES]);
            if record(kind, payload, number as u64) != bytes {
                break;
            }

            match (&mut entries, kind) {
                (None, HEAD) => {
                    let head = parse_head(payload)?;
                    entries = Some(Self { head, segments: BTreeMap::new(), seal: None, records: 1 });
                    continue;
                }
                (Some(_), KEY) => key = Some(Key::from_bytes(array(payload, 0)?)),
                (Some(entries), SEGMENT) => {
                    let index = u64::from_le_bytes(array(payload, 0)?);
                    let value = (key.clone()?, array(payload, 8)?);
                    if index < entries.head.segments.count() {
                        entries.segments.insert(index, value);
                    }
                }
                (Some(_), SEAL) => {}
                _ => return entries,
            }

            if let Some(entries) = &mut entries {
                entries.records += 1;
                // Nothing may follow it.
                entries.seal = if kind == SEAL { array(payload, 0) } else { None };
            }
        }

        entries
    }
}

fn parse_head(payload: &[u8]) -> Option<Head> {
    let file_len = u64::from_le_bytes(array(payload, 17)?);
    let length_log2 = *payload.get(25)?;
    let segments = Segments::new(file_len, length_log2).ok()?;
    (payload.first() == Some(&VERSION)).then_some(Head { state: FileState(array(payload, 1)?), segments })
}

/// Returns a record with its sum.
fn record(kind: u8, payload: &[u8], number: u64) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[0] = kind;
    let len = payload.len().min(PAYLOAD_BYTES);
    bytes[1..=len].copy_from_slice(&payload[..len]);
    let sum = ContentHasher::new().update(&bytes[..=PAYLOAD_BYTES]).update(&number.to_le_bytes()).finish();
    bytes[PAYLOAD_BYTES + 1..].copy_from_slice(&sum[..SUM_BYTES]);
    bytes
}

/// Returns the bytes that show whether the content was touched. The filesystem's number is not
/// among them: a reboot may change it.
fn seal(stamp: &Stamp) -> [u8; SEAL_BYTES] {
    let mut bytes = Vec::with_capacity(SEAL_BYTES);
    bytes.extend_from_slice(&stamp.size.to_le_bytes());
    for time in [stamp.mtime, stamp.ctime] {
        bytes.extend_from_slice(&time.seconds.to_le_bytes());
        bytes.extend_from_slice(&time.nanoseconds.to_le_bytes());
    }
    bytes.extend_from_slice(&stamp.ino.to_le_bytes());
    array(&bytes, 0).unwrap_or([0; SEAL_BYTES])
}

fn array<const N: usize>(bytes: &[u8], from: usize) -> Option<[u8; N]> {
    bytes.get(from..from + N)?.try_into().ok()
}

const VERSION: u8 = 1;
const HEAD: u8 = 1;
const KEY: u8 = 2;
const SEGMENT: u8 = 3;
const SEAL: u8 = 4;
const RECORD_BYTES: usize = 64;
const PAYLOAD_BYTES: usize = 47;
const SUM_BYTES: usize = 16;
const SEAL_BYTES: usize = 40;
/// Records of one journal (8 MiB): segments beyond are sent again.
const MAX_RECORDS: usize = 128 << 10;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a journal of a head, a key, three segments and a seal.
    fn sample() -> Vec<u8> {
        let mut head = vec![VERSION];
        head.extend_from_slice(&[7; 16]);
        head.extend_from_slice(&(5_u64 << 20).to_le_bytes());
        head.push(20);
        let mut records = vec![(HEAD, head), (KEY, vec![9; 32])];
        for index in 0..3_u64 {
            records.push((SEGMENT, [&index.to_le_bytes()[..], &[index.to_le_bytes()[0]; 32]].concat()));
        }
        records.push((SEAL, seal(&stamp()).to_vec()));
        let records = records.iter().enumerate();
        records.flat_map(|(number, (kind, payload))| record(*kind, payload, number as u64)).collect()
    }

    fn stamp() -> Stamp {
        let time = dsync_fs::Timestamp { seconds: -4, nanoseconds: 5 };
        Stamp { dev: 1, ino: 2, size: 3, mtime: time, ctime: time }
    }

    #[test]
    fn a_journal_reads_as_it_was_written() {
        let entries = Entries::parse(&sample()).unwrap();
        assert_eq!(entries.head.state, FileState([7; 16]));
        assert_eq!(entries.head.segments.count(), 5);
        assert_eq!(entries.segments.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(entries.segments[&2].1, [2; 32]);
        assert!(entries.is_untouched(&stamp()));
        assert!(!entries.is_untouched(&Stamp { ino: 9, ..stamp() }));
    }

    #[test]
    fn a_torn_journal_is_good_up_to_the_tear_and_not_sealed() {
        let whole = sample();
        for len in RECORD_BYTES..whole.len() {
            let entries = Entries::parse(&whole[..len]).unwrap();
            assert_eq!(entries.records, (len / RECORD_BYTES) as u64);
            assert!(!entries.is_untouched(&stamp()));
        }
        assert!(Entries::parse(&whole[..RECORD_BYTES - 1]).is_none());
    }

    #[test]
    fn records_of_another_journal_do_not_fit_in_another_place() {
        let mut bytes = sample();
        let (a, b) = (2 * RECORD_BYTES, 3 * RECORD_BYTES);
        let (first, second) = (bytes[a..b].to_vec(), bytes[b..b + RECORD_BYTES].to_vec());
        bytes[a..b].copy_from_slice(&second);
        bytes[b..b + RECORD_BYTES].copy_from_slice(&first);
        assert_eq!(Entries::parse(&bytes).unwrap().segments.len(), 0);
    }

    proptest! {
        #[test]
        fn law_no_bytes_panic_and_no_flipped_bit_is_believed(at in 0_usize..384, bit in 0..8) {
            let mut bytes = sample();
            bytes[at] ^= 1_u8 << bit;
            let entries = Entries::parse(&bytes);
            prop_assert_eq!(entries.map_or(0, |entries| entries.records), (at / RECORD_BYTES) as u64);
        }

        #[test]
        fn law_arbitrary_bytes_are_parsed(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Entries::parse(&bytes);
        }
    }
}
