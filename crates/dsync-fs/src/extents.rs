//! Copies content from one open file to another without the wire.
//!
//! On a filesystem that shares extents (btrfs, XFS), [`Sharing::clone_whole`] makes a staged file a
//! copy of another in one call, whatever its length. Elsewhere [`StagedFile::copy_from`] lets the
//! kernel copy a range, and reads and writes where the kernel refuses. Holes stay holes:
//! [`SourceFile::data_ranges`] names the ranges between them.
//!
//! The law: a staged file has the same bytes whichever way they took. No way is assumed to work
//! because another call on the same filesystem did; it is only assumed not to work after it was
//! refused.

use std::{
    collections::HashSet,
    io,
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::{
    fs::{copy_file_range, ioctl_ficlone},
    io::Errno,
};

use crate::{
    blank::{self, UNIT},
    source_file::SourceFile,
    staged::StagedFile,
};

/// Pairs of filesystems that are known not to share extents, so that a tree of small files does not
/// ask once for each of them.
#[derive(Debug, Default)]
pub struct Sharing {
    refused: Mutex<HashSet<(u64, u64)>>,
    /// Flag that makes copies end early.
    stopped: Option<Arc<AtomicBool>>,
}

impl Sharing {
    /// Makes [`StagedFile::copy_all`] end early once `stopped` is set, with an error of the kind
    /// [`Interrupted`](io::ErrorKind::Interrupted).
    #[must_use]
    pub fn until(mut self, stopped: &Arc<AtomicBool>) -> Self {
        self.stopped = Some(Arc::clone(stopped));
        self
    }

    fn go_on(&self) -> Result<(), CopyError> {
        if self.stopped.as_ref().is_some_and(|stopped| stopped.load(Ordering::Acquire)) {
            Err(CopyError::Write(io::ErrorKind::Interrupted.into()))
        } else {
            Ok(())
        }
    }

    /// Returns whether files of these two filesystems (by number) may share extents; `false` if
    /// they are known not to.
    pub fn may_share(&self, from: u64, to: u64) -> bool {
        !self.refused.lock().unwrap_or_else(PoisonError::into_inner).contains(&(from, to))
    }

    /// Makes `staged`, which must be empty, a copy of `file` that shares its extents. Returns
    /// `false` if that is impossible; nothing was written then.
    ///
    /// The copy is of one state of `file`: the kernel keeps writers out meanwhile.
    pub fn clone_whole(&self, staged: &StagedFile, file: &SourceFile) -> bool {
        let Ok(to) = staged.device() else { return false };
        let from = file.stamp().dev;
        if !self.may_share(from, to) {
            return false;
        }
        if staged.cover(file.len()).is_err() {
            return false;
        }
        match ioctl_ficlone(staged, file) {
            Ok(()) => true,
            Err(error) => {
                // Other errors (among others, a file without copy-on-write) concern only this file.
                if matches!(error, Errno::OPNOTSUPP | Errno::XDEV | Errno::NOTTY | Errno::NOSYS) {
                    self.refused.lock().unwrap_or_else(PoisonError::into_inner).insert((from, to));
                }
                false
            }
        }
    }
}

/// The reason why content could not be copied, with the file at fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The source of the copy could not be read.
    #[error("cannot read the file that is copied")]
    Read(#[source] io::Error),
    /// The staged file could not be written.
    #[error("cannot write the copy")]
    Write(#[source] io::Error),
}

impl CopyError {
    /// Returns the system's error.
    pub fn into_inner(self) -> io::Error {
        match self {
            Self::Read(error) | Self::Write(error) => error,
        }
    }
}

impl StagedFile {
    /// Copies `range` of `file` to the same offsets. Returns the number of bytes copied, less than
    /// requested only if `file` ends.
    ///
    /// Copies inside the kernel if both files are on one filesystem, which saves one of two copies
    /// in memory. `buffer` serves the other case and grows to 256 KiB.
    ///
    /// # Errors
    /// [`CopyError`].
    pub fn copy_from(
        &self,
        file: &SourceFile,
        range: Range<u64>,
        buffer: &mut Vec<u8>,
    ) -> Result<u64, CopyError> {
        let mut at = range.start;
        while at < range.end {
            let want = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(KERNEL_COPY_BYTES);
            self.cover(at.saturating_add(want as u64)).map_err(CopyError::Write)?;
            let (mut from, mut to) = (at, at);
            match copy_file_range(file, Some(&mut from), self, Some(&mut to), want) {
                Ok(count) if count > 0 => at += count as u64,
                Err(Errno::INTR) => {}
                // Another filesystem, an old kernel, or a sandbox. After an error of a disk, this
                // way also shows which of the two disks it was. Some filesystems copy nothing and
                // say so without an error (CIFS, procfs): only a read tells where a file ends.
                Ok(_) | Err(_) => {
                    return Ok(at - range.start + self.copy_by_hand(file, at..range.end, buffer)?);
                }
            }
        }
        Ok(at - range.start)
    }

    /// Makes this file, which must be empty, a copy of the whole of `file`. The copy shares its
    /// extents if possible and otherwise keeps its holes. With `sparse` it shares nothing and
    /// leaves out zeros that fill blocks.
    ///
    /// # Errors
    /// [`CopyError`].
    pub fn copy_all(&self, file: &SourceFile, sharing: &Sharing, sparse: bool) -> Result<(), CopyError> {
        if file.is_empty() || !sparse && sharing.clone_whole(self, file) {
            return Ok(());
        }
        self.set_len(file.len()).map_err(CopyError::Write)?;
        let mut buffer = Vec::new();

        for data in file.data_ranges(0..file.len()) {
            let data = data.map_err(CopyError::Read)?;
            for start in data.clone().step_by(STEP_BYTES) {
                sharing.go_on()?;
                let step = start..data.end.min(start + STEP_BYTES as u64);
                let wanted = step.end - step.start;
                let read = if sparse {
                    self.copy_sparse(file, step, false, &mut buffer)?.read
                } else {
                    self.copy_from(file, step, &mut buffer)?
                };
                // Zeros never stand for what could not be read.
                if read < wanted {
                    return Err(CopyError::Read(io::ErrorKind::UnexpectedEof.into()));
                }
            }
        }
        Ok(())
    }

    /// Copies `range` of `file` to the same offsets without its zeros, in units of [`UNIT`] bytes.
    /// Zeros are left out, or made a hole if `punch`. Returns the numbers of bytes read and written.
    ///
    /// # Errors
    /// [`CopyError`].
    pub fn copy_sparse(
        &self,
        file: &SourceFile,
        range: Range<u64>,
        punch: bool,
        buffer: &mut Vec<u8>,
    ) -> Result<Patched, CopyError> {
        buffer.resize(BUFFER_BYTES, 0);
        let (mut at, mut written) = (range.start, 0);
        while at < range.end {
            let want = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(buffer.len());
            let count = file.read_full_at(at, &mut buffer[..want]).map_err(CopyError::Read)?;
            if count == 0 {
                break;
            }
            written += self.write_sparse_at(at, &buffer[..count], punch).map_err(CopyError::Write)?;
            at += count as u64;
        }
        Ok(Patched { read: at - range.start, equal: 0, written })
    }

    /// Writes `bytes` without zeros that fill units. Zeros are left out, or made a hole if `punch`.
    /// Returns the number of bytes written.
    ///
    /// # Errors
    /// The system's error.
    pub fn write_sparse_at(&self, offset: u64, bytes: &[u8], punch: bool) -> io::Result<u64> {
        let mut written = 0;
        blank::for_runs(
            offset,
            bytes,
            |_| true,
            |run, blank| {
                let at = offset + run.start as u64;
                match (blank, punch) {
                    (true, true) => self.punch_hole(at, run.len() as u64),
                    (true, false) => Ok(()),
                    (false, _) => {
                        written += run.len() as u64;
                        self.write_all_at(at, &bytes[run])
                    }
                }
            },
        )?;
        Ok(written)
    }

    /// Copies `range` by reading and writing.
    fn copy_by_hand(
        &self,
        file: &SourceFile,
        range: Range<u64>,
        buffer: &mut Vec<u8>,
    ) -> Result<u64, CopyError> {
        buffer.resize(BUFFER_BYTES, 0);
        let mut at = range.start;
        while at < range.end {
            let want = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(buffer.len());
            let count = file.read_full_at(at, &mut buffer[..want]).map_err(CopyError::Read)?;
            if count == 0 {
                break;
            }
            self.write_all_at(at, &buffer[..count]).map_err(CopyError::Write)?;
            at += count as u64;
        }
        Ok(at - range.start)
    }

    /// Makes `range` equal to that of `file` but writes only bytes that differ, in units of
    /// [`UNIT`] bytes. Returns the numbers of bytes read, equal and written. For a staged file that
    /// shares the extents of an older copy: extents that are not written stay shared. With
    /// `sparse`, zeros become holes whether they differ or not, and count as neither.
    ///
    /// # Errors
    /// [`CopyError`].
    pub fn patch_from(
        &self,
        file: &SourceFile,
        range: Range<u64>,
        sparse: bool,
        buffers: &mut (Vec<u8>, Vec<u8>),
    ) -> Result<Patched, CopyError> {
        let (new, old) = buffers;
        new.resize(BUFFER_BYTES, 0);
        old.resize(BUFFER_BYTES, 0);
        let mut patched = Patched::default();
        let mut at = range.start;
        while at < range.end {
            let want = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(new.len());
            let count = file.read_full_at(at, &mut new[..want]).map_err(CopyError::Read)?;
            if count == 0 {
                break;
            }

            let known = self.read_full_at(at, &mut old[..count]).map_err(CopyError::Write)?;
            let (new, old) = (&new[..count], &old[..known]);
            blank::for_runs(
                at,
                new,
                |_| sparse,
                |run, blank| {
                    let start = at + run.start as u64;
                    if blank {
                        self.punch_hole(start, run.len() as u64)
                    } else {
                        self.patch(
                            start,
                            &new[run.clone()],
                            old.get(run.start..).unwrap_or_default(),
                            &mut patched,
                        )
                    }
                },
            )
            .map_err(CopyError::Write)?;

            at += count as u64;
            patched.read += count as u64;
        }

        Ok(patched)
    }

    /// Writes the runs of units of `new` that differ from `old`.
    fn patch(&self, at: u64, new: &[u8], old: &[u8], patched: &mut Patched) -> io::Result<()> {
        let mut dirty = 0..0;
        for start in (0..new.len()).step_by(UNIT) {
            let end = new.len().min(start + UNIT);
            if old.get(start..end) == Some(&new[start..end]) {
                patched.equal += (end - start) as u64;
                continue;
            }
            if dirty.end != start {
                self.write_all_at(at + dirty.start as u64, &new[dirty.clone()])?;
                dirty.start = start;
            }
            dirty.end = end;
            patched.written += (end - start) as u64;
        }
        self.write_all_at(at + dirty.start as u64, &new[dirty])
    }
}

/// The result of [`StagedFile::patch_from`] and [`StagedFile::copy_sparse`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Patched {
    /// Bytes that were read, less than requested only if the file ends.
    pub read: u64,
    /// Bytes that were already equal.
    pub equal: u64,
    /// Bytes that were written.
    pub written: u64,
}

impl SourceFile {
    /// Returns the parts of `range` that are not holes, as far as the filesystem reports holes.
    pub fn data_ranges(&self, range: Range<u64>) -> DataRanges<'_> {
        DataRanges { file: self, rest: range, has_holes: self.has_holes() }
    }

    /// Returns whether the file has a hole, as far as the filesystem reports holes. Asks the kernel
    /// once, because for a file in memory the answer requires a look at every page.
    pub fn has_holes(&self) -> bool {
        // Ask only about a file that occupies less space than its length, as compressed files do as
        // well, and about long files, because attributes and space reserved beyond the end count as
        // space.
        let may_have = || self.len() > LONG || self.metadata().blocks.saturating_mul(512) < self.len();
        let has = || self.next_hole(0).is_ok_and(|hole| hole < self.len());
        *self.holes.get_or_init(|| may_have() && has())
    }

    /// Returns the holes in `range`.
    ///
    /// # Errors
    /// The system's error.
    pub fn holes(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        let mut holes = Vec::new();
        let mut at = range.start;
        for data in self.data_ranges(range.clone()) {
            let data = data?;
            holes.extend((at < data.start).then_some(at..data.start));
            at = data.end;
        }
        holes.extend((at < range.end).then_some(at..range.end));
        Ok(holes)
    }
}

/// An iterator over the parts of a file that are not holes. Made by [`SourceFile::data_ranges`].
#[derive(Debug)]
pub struct DataRanges<'a> {
    file: &'a SourceFile,
    rest: Range<u64>,
    has_holes: bool,
}

impl Iterator for DataRanges<'_> {
    type Item = io::Result<Range<u64>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        if !self.has_holes {
            let end = self.rest.end;
            return Some(Ok(std::mem::replace(&mut self.rest, end..end)));
        }
        match self.step() {
            Ok(data) => (!data.is_empty()).then_some(Ok(data)),
            Err(error) => {
                self.rest = 0..0;
                Some(Err(error))
            }
        }
    }
}

impl DataRanges<'_> {
    fn step(&mut self) -> io::Result<Range<u64>> {
        let end = self.rest.end;
        let start = self.file.next_data(self.rest.start)?.map_or(end, |start| start.min(end));
        let stop = if start < end { self.file.next_hole(start)?.min(end) } else { end };
        // A file that changes meanwhile may answer anything. Always move forward.
        self.rest = stop.max(start)..end;
        Ok(start..stop)
    }
}

/// Length in bytes from which any file is asked for holes.
const LONG: u64 = 128 << 10;

/// Length of one kernel copy in bytes: below the kernel's own limit of 2 GiB, and short enough to
/// interrupt.
const KERNEL_COPY_BYTES: usize = 64 << 20;

/// Length of one read and write in bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// Bytes that a whole copy moves between checks whether it must end.
const STEP_BYTES: usize = 8 << 20;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::{path::Path, sync::Arc};

    use proptest::prelude::*;

    use super::*;
    use crate::{Component, Dir};

    fn planted(root: &Path, content: &[u8]) -> (Arc<Dir>, SourceFile) {
        std::fs::write(root.join("file"), content).unwrap();
        let dir = Arc::new(Dir::open_operand(root).unwrap());
        let file = dir.open_source(&Component::new(b"file").unwrap()).unwrap();
        (dir, file)
    }

    fn staged(dir: &Arc<Dir>, content: &[u8]) -> StagedFile {
        let staged = StagedFile::create(dir, Component::new(b"new").unwrap()).unwrap();
        staged.write_all_at(0, content).unwrap();
        staged
    }

    fn content_of(staged: &StagedFile, len: usize) -> Vec<u8> {
        let mut content = vec![0; len + 1];
        let read = staged.read_full_at(0, &mut content).unwrap();
        content.truncate(read);
        content
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

        /// Law: a patched file equals the new one, and equal units were not written.
        #[test]
        fn patched_file_is_the_new_file(
            units in prop::collection::vec(any::<(u8, bool)>(), 0..200),
            tail in 0..UNIT,
            old_len in 0..200 * UNIT,
        ) {
            let scratch = tempfile::tempdir().unwrap();
            let mut new: Vec<u8> = units.iter().flat_map(|&(byte, _)| [byte; UNIT]).collect();
            new.resize(new.len() + tail, 7);
            let mut old: Vec<u8> =
                units.iter().flat_map(|&(byte, same)| [if same { byte } else { !byte }; UNIT]).collect();
            old.resize(old_len.min(new.len()), 9);
            let (dir, file) = planted(scratch.path(), &new);
            let staged = staged(&dir, &old);
            let patched = staged.patch_from(&file, 0..file.len(), false, &mut Default::default()).unwrap();
            prop_assert_eq!(patched.equal + patched.written, new.len() as u64);
            prop_assert_eq!(content_of(&staged, new.len()), new);
            let again = staged.patch_from(&file, 0..file.len(), false, &mut Default::default()).unwrap();
            prop_assert_eq!(again.written, 0);
        }
    }

    #[test]
    fn both_ways_of_copying_give_the_same_bytes() {
        let scratch = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..1_000_003_u32).map(|n| n.to_le_bytes()[1]).collect();
        let (dir, file) = planted(scratch.path(), &content);
        let mut buffer = Vec::new();
        for range in [0..file.len(), 5..700_000, 0..0, 999_999..2_000_000] {
            let (kernel, hand) = (staged(&dir, b""), staged(&dir, b""));
            let copied = kernel.copy_from(&file, range.clone(), &mut buffer).unwrap();
            assert_eq!(hand.copy_by_hand(&file, range.clone(), &mut buffer).unwrap(), copied);
            assert_eq!(copied, range.end.min(file.len()) - range.start);
            assert_eq!(content_of(&kernel, content.len()), content_of(&hand, content.len()));
        }
    }

    #[test]
    fn data_of_a_file_with_holes_is_all_that_is_copied() {
        use std::os::unix::fs::FileExt;
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("file");
        let writer = std::fs::File::create(&path).unwrap();
        writer.write_all_at(&[1; 4096], 1 << 20).unwrap();
        writer.write_all_at(&[2; 100], 3 << 20).unwrap();
        writer.set_len(8 << 20).unwrap();
        let dir = Dir::open_operand(scratch.path()).unwrap();
        let file = dir.open_source(&Component::new(b"file").unwrap()).unwrap();
        let ranges: Vec<_> = file.data_ranges(0..file.len()).map(Result::unwrap).collect();
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        assert!(ranges.iter().any(|range| range.contains(&(1 << 20))));
        assert!(ranges.iter().any(|range| range.contains(&(3 << 20))));
        assert!(bytes < 1 << 20, "{ranges:?}");
        assert_eq!(file.data_ranges(4 << 20..5 << 20).count(), 0);
        assert_eq!(file.data_ranges(5..5).count(), 0);
    }
}
