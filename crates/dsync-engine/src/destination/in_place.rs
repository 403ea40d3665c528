//! `--inplace`: the old file becomes the new one without being replaced.
//!
//! A file that arrives over a link is staged like any other, except that only its new bytes are
//! written and moved ranges are noted. When it is complete and its root is the source's, the old
//! file is rewritten from that. So a broken connection or hostile content never touches the old
//! file, and the temporary needs room for the new bytes only. Ranges are moved inside the file, in
//! an order in which no byte is read after it was overwritten ([`InPlaceOrder`]); the temporary
//! also takes bytes that must be saved meanwhile.
//!
//! The law: until the rewriting begins the file is old, after it the file is new. In between it is
//! neither, and a power cut then leaves a mixture, whose modification time is not the source's: the
//! next run makes it whole.

use std::{
    io,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use dsync_delta::{BasisCopy, InPlaceOrder, InPlaceStep};
use dsync_fs::{Component, Durability, StagedFile};

use super::{
    Site,
    backup::Backups,
    begun::{Begun, other_name_with_backup},
    slot::Slot,
};
use crate::{content::READ_BYTES, halt::lock};

/// The changes to the old file's bytes.
#[derive(Default)]
pub(super) struct Rewriting {
    /// New bytes, at their place in the temporary.
    literals: Vec<Range<u64>>,
    /// Zeros that are no holes.
    zeros: Vec<Range<u64>>,
    holes: Vec<Range<u64>>,
    /// Old zeros of which holes may be made, as long as they are not too many to remember.
    blanks: Vec<Range<u64>>,
    moved: Vec<BasisCopy>,
    /// Nothing is noted: the file is replaced.
    ignores: bool,
}

impl Rewriting {
    /// Notes the pieces of a segment whose old file is rewritten, of another one nothing.
    pub(super) fn of_segment(is_rewritten: bool) -> Self {
        Self { ignores: !is_rewritten, ..Self::default() }
    }

    pub(super) fn literal(&mut self, offset: u64, len: u64) {
        if !self.ignores {
            extend(&mut self.literals, offset, len);
        }
    }

    pub(super) fn zero(&mut self, offset: u64, len: u64) {
        if !self.ignores {
            extend(&mut self.zeros, offset, len);
        }
    }

    pub(super) fn hole(&mut self, offset: u64, len: u64) {
        if !self.ignores {
            extend(&mut self.holes, offset, len);
        }
    }

    pub(super) fn blank(&mut self, offset: u64, len: u64) {
        if !self.ignores && self.blanks.len() <= MAX_PIECES {
            extend(&mut self.blanks, offset, len);
        }
    }

    /// Notes bytes of the old file; those that stay where they are need nothing.
    pub(super) fn copy(&mut self, basis_offset: u64, offset: u64, len: u64) {
        if basis_offset == offset || self.ignores {
            return;
        }
        match self.moved.last_mut() {
            Some(last)
                if last.offset + last.len == offset && last.basis_offset + last.len == basis_offset =>
            {
                last.len += len;
            }
            _ => self.moved.push(BasisCopy { basis_offset, offset, len }),
        }
    }

    /// Adds what another segment noted.
    pub(super) fn append(&mut self, mut other: Self) {
        self.literals.append(&mut other.literals);
        self.zeros.append(&mut other.zeros);
        self.holes.append(&mut other.holes);
        if self.blanks.len() + other.blanks.len() <= MAX_PIECES {
            self.blanks.append(&mut other.blanks);
        }
        self.moved.append(&mut other.moved);
    }

    /// Returns whether holes were noted.
    pub(super) fn has_holes(&self) -> bool {
        !self.holes.is_empty()
    }

    /// Returns the bytes of memory that the pieces take, with the room that a vector keeps free.
    pub(super) fn bytes(&self) -> u64 {
        let ranges = self.literals.len() + self.zeros.len() + self.holes.len() + self.blanks.len();
        2 * (ranges * size_of::<Range<u64>>() + self.moved.len() * size_of::<BasisCopy>()) as u64
    }

    /// Returns whether there is more to remember than any edit needs: a peer made it up, and the
    /// file goes whole.
    pub(super) fn is_excessive(&self) -> bool {
        let pieces = self.literals.len() + self.zeros.len() + self.holes.len() + self.moved.len();
        pieces > MAX_PIECES
    }

    /// Returns the order of the moves, which need nothing else of this from then on.
    ///
    /// # Errors
    /// [`InvalidData`](io::ErrorKind::InvalidData) if moves contradict each other.
    pub(super) fn order(&mut self) -> io::Result<InPlaceOrder> {
        InPlaceOrder::new(std::mem::take(&mut self.moved))
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Makes `target`, which is the old file, the new one of `len` bytes; `temp` has the literals, and gets
    /// what `order` saves behind them.
    ///
    /// # Errors
    /// The system's error, and [`Interrupted`](io::ErrorKind::Interrupted) once `stopped` is set;
    /// from the first write on, `target` is a mixture then.
    pub(super) fn carry_out(
        self,
        order: &InPlaceOrder,
        temp: &StagedFile,
        target: &StagedFile,
        len: u64,
        stopped: &AtomicBool,
    ) -> io::Result<()> {
        let mut mover = Mover { temp, target, buffer: vec![0; READ_BYTES], stopped };
        let mut saved = len;

        for step in order.steps() {
            match *step {
                InPlaceStep::Save { basis_offset, len } => {
                    mover.copy((target, basis_offset), (temp, saved), len, false)?;
                    saved += len;
                }
                InPlaceStep::Copy { basis_offset, offset, len, backward } => {
                    mover.copy((target, basis_offset), (target, offset), len, backward)?;
                }
                InPlaceStep::Restore { scratch_offset, offset, len: count } => {
                    mover.copy((temp, len + scratch_offset), (target, offset), count, false)?;
                }
                _ => return Err(io::ErrorKind::Unsupported.into()),
            }
        }

        for literal in self.literals {
            mover.copy(
                (mover.temp, literal.start),
                (mover.target, literal.start),
                literal.end - literal.start,
                false,
            )?;
        }

        // First the length, so that a hole at the end has a place.
        target.set_len(len)?;
        let holes = self.holes.into_iter().chain(self.blanks);
        holes.into_iter().try_for_each(|hole| target.punch_hole(hole.start, hole.end - hole.start))?;
        self.zeros.into_iter().try_for_each(|zero| target.clear(zero.start, zero.end - zero.start))
    }

    /// Adds the `len` bytes that were staged to `target`, which is the old file of `from` bytes;
    /// `temp` has the literals.
    ///
    /// # Errors
    /// Those of [`carry_out`](Self::carry_out); the bytes written by then are a beginning of the new end.
    pub(super) fn add_to(
        self,
        temp: &StagedFile,
        target: &StagedFile,
        from: u64,
        len: u64,
        durability: Durability,
        stopped: &AtomicBool,
    ) -> io::Result<()> {
        // A peer may have made a tail of nothing up.
        let Some(end) = len.checked_sub(1) else { return Ok(()) };
        let mut last = [0];
        temp.read_full_at(end, &mut last)?;
        let mut mover = Mover { temp, target, buffer: vec![0; READ_BYTES], stopped };
        let mut pieces: Vec<_> = self.literals.into_iter().map(|piece| (piece, true)).collect();
        pieces.extend(self.zeros.into_iter().map(|piece| (piece, false)));

        // In their order, so that a failure leaves a beginning. Holes are where nothing is written.
        pieces.sort_unstable_by_key(|(piece, _)| piece.start);
        for (piece, literal) in pieces {
            let start = piece.start;
            let count = piece.end.min(end).saturating_sub(start);
            if literal {
                mover.copy((mover.temp, start), (mover.target, from + start), count, false)?;
            } else {
                target.write_zeros(from + start, count)?;
            }
        }

        end_tail(target, from + len, last[0], durability)
    }
}

/// Ends a file that was added to, whose last byte is missing. With that alone it has its length, so
/// what was added must be on the disk before: after a power cut a file that is as long as the
/// source's lacks no more than that byte, which ext4 writes after the length where the block is
/// there already, and its time, by which a later run finds it.
pub(super) fn end_tail(target: &StagedFile, len: u64, last: u8, durability: Durability) -> io::Result<()> {
    if durability != Durability::None {
        target.sync_data()?;
    }
    match last {
        0 => target.set_len(len),
        last => target.write_all_at(len - 1, &[last]),
    }
}

/// Copies between and within the two files.
struct Mover<'a> {
    temp: &'a StagedFile,
    target: &'a StagedFile,
    buffer: Vec<u8>,
    stopped: &'a AtomicBool,
}

impl Mover<'_> {
    /// Copies `len` bytes, from the last to the first when `backward`.
    fn copy(
        &mut self,
        (from_file, from): (&StagedFile, u64),
        (to_file, to): (&StagedFile, u64),
        len: u64,
        backward: bool,
    ) -> io::Result<()> {
        let mut done = 0;
        while done < len {
            if self.stopped.load(Ordering::Acquire) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let count = usize::try_from(len - done).unwrap_or(usize::MAX).min(self.buffer.len());
            let at = if backward { len - done - count as u64 } else { done };
            let piece = &mut self.buffer[..count];
            if from_file.read_full_at(from + at, piece)? < count {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            to_file.write_all_at(to + at, piece)?;
            done += count as u64;
        }
        Ok(())
    }
}

/// Opens the old file of a run that writes in place; `None` when the file is replaced as usual.
/// Before it is written into, its content is to be [kept](keep_content).
pub(super) fn open(slot: &Slot) -> io::Result<Option<StagedFile>> {
    let Some(dir) = slot.directory.dir.as_ref().filter(|_| slot.in_place) else {
        return Ok(None);
    };
    let name = slot.name.clone();
    if slot.device { StagedFile::open_device(dir, name) } else { StagedFile::open_in_place(dir, name) }
        .map(Some)
}

/// A content that an old file is about to get, in all that can make its writing fail.
pub(super) struct Coming {
    pub(super) len: u64,
    /// Whether some of it may be holes.
    pub(super) has_holes: bool,
    /// The end of what is written; `len` where nobody knows better.
    pub(super) written_to: u64,
}

impl Coming {
    /// Describes a content of `len` bytes that is written as a whole.
    pub(super) fn whole(len: u64) -> Self {
        Self { len, has_holes: false, written_to: len }
    }
}

/// Creates the file that content is written to: the old one, or a new one beside it, with its space
/// reserved if that is wished. In place the content has its length at the end whatever it was, and there is
/// [room](make_room) for it before the first write.
pub(super) fn create(site: &Site<'_>, slot: &Slot, coming: &Coming) -> io::Result<StagedFile> {
    if let Some(old) = open(slot)? {
        keep_content(site, slot, || make_room(site, &old, coming))?;
        old.distrust()?;
        return Ok(old);
    }
    create_beside(site, slot, coming.len)
}

/// Makes sure that an old file can get a content: no limit on lengths ends the writing, and the space that the
/// file grows by is reserved, unless some of that may be holes.
pub(super) fn make_room(site: &Site<'_>, old: &StagedFile, coming: &Coming) -> io::Result<()> {
    old.check_reach(coming.written_to)?;
    if coming.has_holes || site.policy.options.writing.sparse {
        Ok(())
    } else {
        old.reserve_growth(coming.len)
    }
}

/// Makes sure that a temporary of `len` bytes can get what `order` saves behind them.
pub(super) fn make_scratch_room(temp: &StagedFile, len: u64, order: &InPlaceOrder) -> io::Result<()> {
    if order.scratch_bytes() == 0 {
        return Ok(());
    }
    let end = len.saturating_add(order.scratch_bytes());
    temp.check_reach(end)?;
    temp.reserve_growth(end)
}

/// Keeps a copy of an old file that is about to be written into, if there are backups, and notes that it
/// is: once, before this run first does. Where an earlier run was killed in the middle of that, its copy
/// stays.
///
/// `make_room` is called between the two: it gives the file a new change time, which tells whether there is a
/// backup, and what is left may be too little for the note.
pub(super) fn keep_content(
    site: &Site<'_>,
    slot: &Slot,
    make_room: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let Some(dir) = &slot.directory.dir else { return Ok(()) };
    if slot.has_backup.load(Ordering::Acquire) {
        return make_room();
    }

    let path = &slot.directory.path;
    let place = site.backup_of(dir, path, &slot.name)?;
    let at = place.as_deref();
    let may_be_noted = slot.is_noted && slot.directory.may_have_notes();
    let found = may_be_noted.then(|| Begun::find(slot, dir, at)).flatten();
    if let (Some(backups), Some(place)) = (site.backups.get(), &place) {
        if found.is_some() {
            backups.note_copied(place, dir, path, &slot.name)?;
        } else {
            note_kept(site, backups, slot, dir)?;
            let withheld = backups.copy(place, dir, path, &slot.name)?;
            site.tell_backup(path, &slot.name, place, withheld).map_err(io::Error::other)?;
        }
    }

    make_room()?;
    let note = || slot.is_noted.then(|| Begun::note(site, slot, dir, at)).flatten();
    let begun = found.or_else(note);
    *lock(&slot.begun) = begun;
    slot.has_backup.store(true, Ordering::Release);
    Ok(())
}

/// Notes the backup that a killed run has made of another name of the file that it left half written: the one
/// of this name is a copy of that.
fn note_kept(site: &Site<'_>, backups: &Backups, slot: &Slot, dir: &Arc<dsync_fs::Dir>) -> io::Result<()> {
    if !slot.directory.may_have_notes() {
        return Ok(());
    }
    let path = &slot.directory.path;
    let place_of = |name: &Component| site.backup_of(dir, path, name);
    match other_name_with_backup(dir, &slot.name, place_of)? {
        Some((name, place)) => backups.note_copied(&place, dir, path, &name),
        None => Ok(()),
    }
}

/// Creates a new file beside the old one, or the one that collects its new bytes.
pub(super) fn create_beside(site: &Site<'_>, slot: &Slot, len: u64) -> io::Result<StagedFile> {
    let (dir, name) = (slot.directory.for_temporary()?, slot.name.clone());
    let staged =
        if slot.in_place { site.homes.stage_rewriting(dir, name)? } else { site.homes.stage(dir, name)? };
    if site.policy.options.writing.preallocate {
        staged.reserve(len)?;
    }
    Ok(staged)
}

fn extend(ranges: &mut Vec<Range<u64>>, offset: u64, len: u64) {
    match ranges.last_mut() {
        Some(last) if last.end == offset => last.end += len,
        _ => ranges.push(offset..offset + len),
    }
}

/// Pieces of one file, about 24 bytes each.
const MAX_PIECES: usize = 1 << 20;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use dsync_fs::{Component, Dir};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tail_of_nothing_adds_nothing() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("f"), b"old").unwrap();
        let dir = Arc::new(Dir::open_operand(scratch.path()).unwrap());
        let name = Component::new(b"f").unwrap();
        let temp = StagedFile::create(&dir, name.clone()).unwrap();
        let target = StagedFile::open_in_place(&dir, name).unwrap();
        let goes_on = AtomicBool::new(false);
        Rewriting::default().add_to(&temp, &target, 3, 0, Durability::Batch, &goes_on).unwrap();
        assert_eq!(std::fs::read(scratch.path().join("f")).unwrap(), b"old");
    }

    #[test]
    fn rewriting_ends_when_the_run_does() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("f"), b"old").unwrap();
        let dir = Arc::new(Dir::open_operand(scratch.path()).unwrap());
        let name = Component::new(b"f").unwrap();
        let temp = StagedFile::create(&dir, name.clone()).unwrap();
        temp.write_all_at(0, b"new").unwrap();
        let target = StagedFile::open_in_place(&dir, name).unwrap();
        let mut rewriting = Rewriting::default();
        rewriting.literal(0, 3);
        let order = rewriting.order().unwrap();
        let error = rewriting.carry_out(&order, &temp, &target, 3, &AtomicBool::new(true)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        assert_eq!(std::fs::read(scratch.path().join("f")).unwrap(), b"old");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        /// Law: the old file becomes the file that the tokens describe, whatever moves where.
        #[test]
        fn rewritten_file_is_the_new_file(
            old in prop::collection::vec(any::<u8>(), 0..3000),
            pieces in prop::collection::vec((0..4_u8, any::<prop::sample::Index>(), 1..400_usize), 0..20),
        ) {
            let scratch = tempfile::tempdir().unwrap();
            std::fs::write(scratch.path().join("f"), &old).unwrap();
            let dir = Arc::new(Dir::open_operand(scratch.path()).unwrap());
            let name = Component::new(b"f").unwrap();
            let temp = StagedFile::create(&dir, name.clone()).unwrap();
            let target = StagedFile::open_in_place(&dir, name).unwrap();
            let (mut new, mut rewriting) = (Vec::new(), Rewriting::default());
            for (kind, index, len) in pieces {
                let at = new.len() as u64;
                match kind {
                    0 => {
                        new.resize(new.len() + len, 0);
                        match len % 2 {
                            0 => rewriting.zero(at, len as u64),
                            _ => rewriting.hole(at, len as u64),
                        }
                    }
                    1 => {
                        new.resize(new.len() + len, 0xAB);
                        temp.write_all_at(at, &new[new.len() - len..]).unwrap();
                        rewriting.literal(at, len as u64);
                    }
                    _ if old.is_empty() => {}
                    // Often from the same place.
                    _ => {
                        let from = if kind == 2 { index.index(old.len()) } else { new.len() % old.len() };
                        let len = len.min(old.len() - from);
                        new.extend_from_slice(&old[from..from + len]);
                        rewriting.copy(from as u64, at, len as u64);
                    }
                }
            }
            let (order, goes_on) = (rewriting.order().unwrap(), AtomicBool::new(false));
            rewriting.carry_out(&order, &temp, &target, new.len() as u64, &goes_on).unwrap();
            prop_assert_eq!(std::fs::read(scratch.path().join("f")).unwrap(), new);
        }
    }
}
