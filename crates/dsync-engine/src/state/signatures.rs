//! The signatures of large files that this end has written, for later runs: the file is not read to
//! be signed then.
//!
//! Each has a file of its own beside the states. All numbers are little-endian: `dsync-sums 1` and a
//! line feed; the version of the file as in a state's record; the block length in 4 bytes; the key of
//! the sums in 32; both sums of each block; the BLAKE3 hash of all before it.
//!
//! The law: a signature is kept of a version whose stamp will tell, and taken for that version only.
//! Nothing depends on it but time all the same: the values of the segments that are made with it are
//! those of bytes that were read and written.

use std::{
    collections::VecDeque,
    io::{self, Write as _},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use dsync_delta::{BlockLen, ContentHasher, Layout, Signature, SignatureDecoder, SumsFormat};
use dsync_fs::{Component, Dir, SourceFile, Stamp, Timestamp, reap_abandoned, wait_until_past};

use super::{
    error::StateError,
    format::{self, Version, take},
    kept_files, lock, read_whole,
};
use crate::{limits::MAX_SIGNATURE_BLOCKS, whole_file::WholeFile};

/// The signature of a file, and the key that it was made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownSignature {
    pub(crate) key: [u8; 32],
    pub(crate) signature: Signature,
}

/// A file that was written and has its name.
pub(crate) struct Written {
    pub(crate) dir: Arc<Dir>,
    pub(crate) name: Component,
    /// The stamp that it had before it got its name, which changes nothing but the change time.
    pub(crate) stamp: Stamp,
    /// The inode on the same filesystem that had the name before.
    pub(crate) replaced: Option<u64>,
    pub(crate) known: KnownSignature,
}

/// The signatures in a directory of states.
#[derive(Default)]
pub(super) struct Signatures {
    /// Files whose change time is of the last tick, or that somebody may still write to.
    waiting: Mutex<VecDeque<Waiting>>,
    used_files: AtomicU64,
    used_bytes: AtomicU64,
    /// Signatures that were written since the last look at what they take.
    written: AtomicU64,
    /// The first reasons why one could not be used, and why one could not be kept.
    unused: Mutex<Option<StateError>>,
    unkept: Mutex<Option<StateError>>,
}

struct Waiting {
    written: Written,
    /// The stamp when it got its name.
    named: Stamp,
    filesystem: u64,
}

/// The signatures that a run has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SignatureUse {
    /// Files that were not read to be signed.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Signatures {
    /// Returns the signature of the version of a file that has this stamp, in blocks of this length.
    pub(super) fn find(
        &self,
        dir: &Dir,
        filesystem: u64,
        stamp: &Stamp,
        block_len: BlockLen,
    ) -> Option<KnownSignature> {
        if stamp.size < MIN_FILE_BYTES {
            return None;
        }
        let name = name_of((filesystem, stamp.ino)).ok()?;
        let (version, known) = match read(dir, &name) {
            Ok(found) => found?,
            Err(error) => {
                // Made anew when the file is written again, unless a newer version's.
                if matches!(error, StateError::Damaged) {
                    let _ = dir.remove_file(&name);
                }
                lock(&self.unused).get_or_insert(error);
                return None;
            }
        };

        if version != Version::new((filesystem, stamp.ino), stamp)
            || known.signature.layout().block_len() != block_len
        {
            return None;
        }
        self.used_files.fetch_add(1, Ordering::Relaxed);
        self.used_bytes.fetch_add(stamp.size, Ordering::Relaxed);
        Some(known)
    }

    /// Notes a file that was written; keeps those that were noted before and whose stamps will tell.
    pub(super) fn note(&self, dir: &Arc<Dir>, filesystem: u64, named: Stamp, written: Written) {
        if let Some(replaced) = written.replaced.filter(|ino| *ino != named.ino)
            && let Ok(name) = name_of((filesystem, replaced))
            && !matches!(read(dir, &name), Err(StateError::Newer))
        {
            let _ = dir.remove_file(&name);
        }
        self.settle(dir);
        let mut waiting = lock(&self.waiting);
        waiting.push_back(Waiting { written, named, filesystem });
        let mut blocks: u64 = waiting.iter().map(Waiting::blocks).sum();
        while blocks > MAX_WAITING_BLOCKS {
            blocks -= waiting.pop_front().map_or(blocks, |dropped| dropped.blocks());
        }
    }

    /// Returns whether a signature may be kept of the version of a file that has this stamp. One that was noted
    /// is kept first, once the clock has passed its time.
    pub(super) fn keeps(&self, dir: &Arc<Dir>, filesystem: u64, stamp: &Stamp) -> bool {
        if stamp.size < MIN_FILE_BYTES {
            return false;
        }
        let is_it = |one: &Waiting| one.filesystem == filesystem && one.named == *stamp;
        if lock(&self.waiting).iter().any(is_it) {
            wait_until_past(stamp.ctime);
            self.settle(dir);
        }
        name_of((filesystem, stamp.ino)).is_ok_and(|name| dir.stat(&name).is_ok())
    }

    /// Keeps the signature of one version of a file for the next one, which has the same content.
    pub(super) fn carry(&self, dir: &Arc<Dir>, filesystem: u64, (from, to): (&Stamp, &Stamp)) {
        let key = (filesystem, from.ino);
        let found = name_of(key).ok().and_then(|name| read(dir, &name).ok().flatten());
        let Some((version, known)) = found else { return };
        if version != Version::new(key, from) {
            return;
        }
        if let Err(error) = keep(dir, Version::new(key, to), &known) {
            lock(&self.unkept).get_or_insert(error);
        }
    }

    /// Keeps all that were noted and whose stamps will tell, once the clock has passed their times.
    ///
    /// # Errors
    /// The first reason of the whole run why one could not be kept.
    pub(super) fn close(&self, dir: &Arc<Dir>) -> Result<(), StateError> {
        let changed: Vec<Timestamp> = lock(&self.waiting).iter().map(|one| one.named.ctime).collect();
        changed.into_iter().for_each(wait_until_past);
        self.settle(dir);
        lock(&self.waiting).clear();

        if self.written.swap(0, Ordering::Relaxed) > 0 {
            make_room(dir)?;
        }
        lock(&self.unkept).take().map_or(Ok(()), Err)
    }

    pub(super) fn take_unused(&self) -> Option<StateError> {
        lock(&self.unused).take()
    }

    pub(super) fn used(&self) -> SignatureUse {
        let [files, bytes] = [&self.used_files, &self.used_bytes].map(|used| used.load(Ordering::Relaxed));
        SignatureUse { files, bytes }
    }

    fn settle(&self, dir: &Arc<Dir>) {
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        let mut left = VecDeque::new();
        for one in waiting {
            let Some(file) = one.opened() else { continue };
            if !file.is_settled() {
                left.push_back(one);
                continue;
            }
            if let Err(error) = one.keep(dir) {
                lock(&self.unkept).get_or_insert(error);
            }
            if self.written.fetch_add(1, Ordering::Relaxed) % LOOK_AFTER == LOOK_AFTER - 1 {
                let _ = make_room(dir);
            }
        }
        let mut waiting = lock(&self.waiting);
        left.append(&mut waiting);
        *waiting = left;
    }
}

impl Waiting {
    fn blocks(&self) -> u64 {
        self.written.known.signature.layout().block_count()
    }

    /// Opens the file, unless it is no longer the version that was written.
    fn opened(&self) -> Option<SourceFile> {
        let Written { dir, name, .. } = &self.written;
        dir.open_source_noatime(name).ok().filter(|file| file.stamp() == self.named)
    }

    fn keep(&self, dir: &Arc<Dir>) -> Result<(), StateError> {
        let key = (self.filesystem, self.named.ino);
        keep(dir, Version::new(key, &self.named), &self.written.known)
    }
}

/// Keeps the signature of a version.
fn keep(dir: &Arc<Dir>, version: Version, known: &KnownSignature) -> Result<(), StateError> {
    let name = name_of(version.key)?;
    // Kept for the program that it belongs to.
    if let Err(error @ StateError::Newer) = read(dir, &name) {
        return Err(error);
    }
    let mut whole = WholeFile::create(dir, name)?;
    whole.write_all(&encode(version, known))?;
    // A power cut may leave less: its hash tells.
    whole.commit_unsynced()?;
    Ok(())
}

/// Returns the number of the signatures in a directory, and their bytes.
pub(super) fn count(dir: &Dir) -> io::Result<(u64, u64)> {
    let files = kept_files(dir, PREFIX)?;
    Ok((files.len() as u64, files.iter().map(|file| file.size).sum()))
}

/// Removes the oldest signatures where there are too many, or too long ones.
fn make_room(dir: &Dir) -> io::Result<()> {
    reap_abandoned(dir);
    let mut files = kept_files(dir, PREFIX)?;
    files.sort_by_key(|file| std::cmp::Reverse(file.time));
    let mut bytes = 0_u64;
    for (at, file) in files.iter().enumerate() {
        bytes = bytes.saturating_add(file.size);
        if at >= MAX_FILES || bytes > MAX_BYTES {
            dir.remove_file(&file.name)?;
        }
    }
    Ok(())
}

fn encode(version: Version, known: &KnownSignature) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(version.to_bytes());
    bytes.extend(known.signature.layout().block_len().get().to_le_bytes());
    bytes.extend(known.key);
    bytes.extend(known.signature.encode());
    let sum = ContentHasher::new().update(&bytes).finish();
    bytes.extend(sum);
    bytes
}

fn parse(bytes: &[u8]) -> Result<(Version, KnownSignature), StateError> {
    fields(format::body_of(bytes, KIND, MAGIC)?).ok_or(StateError::Damaged)
}

fn fields(mut rest: &[u8]) -> Option<(Version, KnownSignature)> {
    let version = Version::take(&mut rest)?;
    let block_len = BlockLen::new(u32::from_le_bytes(take(&mut rest)?)).ok()?;
    let key = take(&mut rest)?;
    let layout = Layout::new(version.size, block_len);
    let mut decoder = SignatureDecoder::new(layout, SumsFormat::StrongAndWeak, MAX_SIGNATURE_BLOCKS).ok()?;
    decoder.push(rest).ok()?;
    Some((version, KnownSignature { key, signature: decoder.finish().ok()? }))
}

fn read(dir: &Dir, name: &Component) -> Result<Option<(Version, KnownSignature)>, StateError> {
    read_whole(dir, name, MAX_FILE_BYTES)?.map(|bytes| parse(&bytes)).transpose()
}

fn name_of((filesystem, inode): format::Key) -> io::Result<Component> {
    let mut hasher = ContentHasher::new();
    hasher.update(b"dsync sums ").update(&filesystem.to_le_bytes()).update(&inode.to_le_bytes());
    format::name(PREFIX, &hasher)
}

/// The first part of the name of a signature's file.
pub(super) const PREFIX: &[u8] = b"sums-";
const KIND: &[u8] = b"dsync-sums ";
const MAGIC: &[u8] = b"dsync-sums 1\n";
/// Shorter files are read: that takes some milliseconds.
pub(crate) const MIN_FILE_BYTES: u64 = 16 << 20;
/// Longest signature that is read.
const MAX_FILE_BYTES: usize = 12 * (4 << 20) + 256;
/// Signatures in a directory: those of files of 16 MiB are 64 GiB of content. The one that was written
/// longest ago goes first.
const MAX_FILES: usize = 4096;
/// Bytes of all signatures in a directory: of about 700 GB in blocks of 32 KiB, and more in longer ones.
const MAX_BYTES: u64 = 256 << 20;
/// Signatures that are written between two looks at what all take.
const LOOK_AFTER: u64 = 256;
/// Blocks whose sums wait to be kept: 48 MiB of memory.
const MAX_WAITING_BLOCKS: u64 = 4 << 20;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::{
        fs,
        os::unix::fs::PermissionsExt as _,
        time::{Duration, SystemTime},
    };

    use dsync_fs::Links;

    use super::*;

    fn known() -> (Version, KnownSignature) {
        let content: Vec<u8> = (0..10_000_u32).map(|at| (at % 251) as u8).collect();
        let time = |seconds| Timestamp { seconds, nanoseconds: 5 };
        let stamp = Stamp { dev: 1, ino: 7, size: 10_000, mtime: time(3), ctime: time(4) };
        let layout = Layout::new(10_000, BlockLen::MIN);
        let key = dsync_delta::Key::derive(&[b"one"]);
        let signature =
            dsync_delta::signature_parallel(&key, layout, SumsFormat::StrongAndWeak, &content).unwrap();
        (Version::new((9, 7), &stamp), KnownSignature { key: *key.as_bytes(), signature })
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_noticed() {
        let (version, known) = known();
        let whole = encode(version, &known);
        assert_eq!(parse(&whole).unwrap(), (version, known));
        for at in 0..whole.len() {
            for bit in [0x01, 0x80] {
                let mut bytes = whole.clone();
                bytes[at] ^= bit;
                assert!(parse(&bytes).is_err(), "byte {at}");
            }
            assert!(parse(&whole[..at]).is_err(), "cut at {at}");
        }
        assert!(parse(&[whole, vec![0]].concat()).is_err());
        assert!(matches!(parse(b"dsync-sums 2\nwhatever it is"), Err(StateError::Newer)));
    }

    #[test]
    fn what_has_a_right_hash_and_no_sense_is_damaged() {
        const SIZE_AT: usize = MAGIC.len() + 16;
        let (version, known) = known();
        let whole = encode(version, &known);
        let (body, _) = whole.split_last_chunk::<32>().unwrap();
        let sealed = |body: &[u8]| [body, &ContentHasher::new().update(body).finish()].concat();
        let damages: [fn(&mut Vec<u8>); 5] = [
            |body| body[SIZE_AT..SIZE_AT + 8].fill(0xff),
            |body| body[SIZE_AT + 1] ^= 8,
            |body| body[SIZE_AT + 19] = 0xff,
            |body| body[MAGIC.len() + 48] = 3,
            |body| body.truncate(body.len() - 1),
        ];
        assert!(parse(&sealed(body)).is_ok());
        for (number, damage) in damages.iter().enumerate() {
            let mut body = body.to_vec();
            damage(&mut body);
            assert!(matches!(parse(&sealed(&body)), Err(StateError::Damaged)), "{number}");
        }
    }

    #[test]
    fn the_oldest_go_where_there_are_too_many() {
        let scratch = tempfile::tempdir().unwrap();
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let dir = Dir::create_destination(scratch.path(), true, Links::Trusted).unwrap();
        for number in 0..MAX_FILES as u64 + 3 {
            let name = name_of((1, number)).unwrap();
            let path = scratch.path().join(std::str::from_utf8(name.as_bytes()).unwrap());
            let file = fs::File::create(path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(number)).unwrap();
        }
        make_room(&dir).unwrap();
        assert_eq!(count(&dir).unwrap().0, MAX_FILES as u64);
        let is_there = |number| dir.stat(&name_of((1, number)).unwrap()).is_ok();
        assert_eq!([0, 1, 2, 3, MAX_FILES as u64 + 2].map(is_there), [false, false, false, true, true]);

        // One file of more bytes than all may have goes whatever its age, and nothing older stays.
        let name = name_of((1, MAX_FILES as u64 + 1)).unwrap();
        let path = scratch.path().join(std::str::from_utf8(name.as_bytes()).unwrap());
        fs::File::options().write(true).open(path).unwrap().set_len(MAX_BYTES + 1).unwrap();
        make_room(&dir).unwrap();
        assert!(count(&dir).unwrap().1 <= MAX_BYTES);
    }
}
