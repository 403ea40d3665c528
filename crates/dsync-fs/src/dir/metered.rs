//! Directories whose contents are counted for a quota.
//!
//! The law: every call of this crate that makes, replaces or removes an entry of such a directory
//! tells its [`Meter`], in one turn with the change.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use rustix::fs::{AtFlags, unlinkat};

use super::{Dir, NO_FOLLOW};
use crate::{
    component::{Component, RelPath},
    metadata::{Kind, Metadata},
    own_names::is_lock_name,
    quota::{Charge, Meter, Usage},
    source_file::stat_fd,
};

impl Dir {
    /// Counts all that is made, lengthened and removed in the directory and in those opened through
    /// it; see [`Meter`].
    #[must_use]
    pub fn metered(mut self, meter: Option<Arc<Meter>>) -> Self {
        self.meter = meter;
        self
    }

    /// Returns the meter of the directory.
    pub fn meter(&self) -> Option<&Arc<Meter>> {
        self.meter.as_ref()
    }

    /// Charges for a new, empty file that is to become `target`; `None` without a meter.
    ///
    /// # Errors
    /// That of a meter without room.
    pub(crate) fn charge_new(&self, target: &Component) -> io::Result<Option<Box<Charge>>> {
        self.meter.as_ref().map(|meter| Charge::of_new(meter, self.replaced_at(target))).transpose()
    }

    /// Takes over the count of an unfinished file, open as `fd`, that is to become `target`.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn charge_kept(&self, fd: &OwnedFd, target: &Component) -> io::Result<Option<Box<Charge>>> {
        let Some(meter) = &self.meter else { return Ok(None) };
        let own = Usage::of(&stat_fd(fd.as_fd())?);
        Ok(Some(Charge::of_kept(meter, own, self.replaced_at(target))))
    }

    /// Takes over the count of a file, open as `fd`, that is written in place.
    ///
    /// # Errors
    /// The system's error, e.g. `EMFILE`.
    pub(crate) fn charge_in_place(&self, fd: &OwnedFd) -> io::Result<Option<Box<Charge>>> {
        let Some(meter) = &self.meter else { return Ok(None) };
        let own = Usage::of(&stat_fd(fd.as_fd())?);
        Ok(Some(Charge::in_place(meter, own, fd.try_clone()?)))
    }

    /// Stands for notes about an unfinished file; those that an earlier session left are open as `left`.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn charge_notes(&self, left: Option<&OwnedFd>) -> io::Result<Option<Box<Charge>>> {
        let Some(meter) = &self.meter else { return Ok(None) };
        let left = left.map(|fd| stat_fd(fd.as_fd()).map(|found| Usage::of(&found))).transpose()?;
        Ok(Some(Charge::of_notes(meter, left.unwrap_or_default())))
    }

    /// Counts what lies below the directory. An entry counts with each of its names for a part, so
    /// that one with names elsewhere counts here for the part that is here.
    ///
    /// # Errors
    /// The system's error, with the path: what cannot be read cannot be counted.
    pub fn usage(&self) -> io::Result<Usage> {
        let mut sum = Sum::default();
        let mut left = vec![RelPath::default()];
        while let Some(path) = left.pop() {
            let counted = self.open_beneath(&path).and_then(|dir| sum.add(&dir, &path, &mut left));
            if let Err(error) = counted {
                let path = String::from_utf8_lossy(path.as_bytes()).into_owned();
                return Err(io::Error::new(error.kind(), Uncounted { path, source: error }));
            }
        }
        Ok(Usage { bytes: rounded(sum.bytes), files: rounded(sum.files) })
    }

    /// Returns what a new file makes room for by taking a name.
    fn replaced_at(&self, name: &Component) -> Usage {
        let stays = self.adds_only() || self.meter.as_ref().is_some_and(|meter| meter.keeps_replaced());
        if stays { Usage::default() } else { self.freed_by(name) }
    }

    /// Returns what goes with a name of the directory: nothing where it is not the last one.
    pub(crate) fn freed_by(&self, name: &Component) -> Usage {
        if self.meter.is_none() {
            return Usage::default();
        }
        let found = self.inode_of(name).ok();
        found.filter(is_last_name).map(|found| Usage::of(&found)).unwrap_or_default()
    }

    /// Returns the attributes of an entry's inode, whatever it stands for.
    fn inode_of(&self, name: &Component) -> io::Result<Metadata> {
        Metadata::of_entry(self, &*self.spelled(name)?, NO_FOLLOW)
    }

    /// Removes a name, and gives back what goes with it.
    pub(crate) fn unlink(&self, name: &Component, flags: AtFlags) -> io::Result<()> {
        self.in_turn(|| {
            let freed = self.freed_by(name);
            unlinkat(self, &*self.spelled(name)?, flags)?;
            if let Some(meter) = &self.meter {
                meter.give_back(freed);
            }
            Ok(())
        })
    }

    /// Carries out a change of names while no other is under way.
    pub(crate) fn in_turn<T>(&self, change: impl FnOnce() -> T) -> T {
        match &self.meter {
            Some(meter) => meter.in_turn(change),
            None => change(),
        }
    }

    /// Calls `place` to give the name `new` to a file that `charge` has counted, in place of the entry
    /// that has it.
    ///
    /// # Errors
    /// [`QuotaReached`] if that entry stays under another name and there is no room for both;
    /// otherwise those of `place`.
    pub(crate) fn placing(
        &self,
        new: &Component,
        charge: &mut Option<Box<Charge>>,
        place: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(meter) = &self.meter else { return place() };
        self.in_turn(|| {
            let freed = self.freed_by(new);
            match charge.as_ref() {
                Some(charge) => charge.settle(freed)?,
                None => meter.give_back(freed),
            }
            place().inspect_err(|_| meter.add(freed))?;
            if let Some(charge) = charge.take() {
                charge.forget();
            }
            Ok(())
        })
    }
}

/// A directory that cannot be counted.
#[derive(Debug, thiserror::Error)]
#[error("'{path}' in it cannot be counted for the key's quota ({source})")]
struct Uncounted {
    path: String,
    source: io::Error,
}

/// A sum of parts of entries, in units of 2^-48.
#[derive(Default)]
struct Sum {
    bytes: u128,
    files: u128,
}

impl Sum {
    /// Adds the entries of a directory, and puts the directories among them on the list.
    fn add(&mut self, dir: &Dir, path: &RelPath, left: &mut Vec<RelPath>) -> io::Result<()> {
        let mut complete = true;
        let mut failed = None;
        let error = dir.for_each_name_once(&mut complete, |name, _, _| match dir.inode_of(&name) {
            Ok(found) => {
                if found.kind == Kind::Dir {
                    left.push(path.join(&name));
                }
                self.add_entry(&name, &found);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => failed = Some(error),
        });
        match error.or(failed) {
            Some(error) => Err(error),
            None if complete => Ok(()),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn add_entry(&mut self, name: &Component, found: &Metadata) {
        let Usage { bytes, files } = Usage::of(found);
        // A run's lock is no entry of its tree.
        if is_lock_name(name.as_bytes()) && bytes == 0 {
            return;
        }
        let names = if found.kind == Kind::Dir { 1 } else { u128::from(found.nlink.max(1)) };
        self.bytes = self.bytes.saturating_add((u128::from(bytes) << PART_BITS) / names);
        self.files = self.files.saturating_add((u128::from(files) << PART_BITS) / names);
    }
}

/// Returns a sum in whole units. What the divisions lost is less than half a unit for so many entries
/// as there can be.
fn rounded(sum: u128) -> u64 {
    u64::try_from(sum.saturating_add(1 << (PART_BITS - 1)) >> PART_BITS).unwrap_or(u64::MAX)
}

fn is_last_name(found: &Metadata) -> bool {
    found.kind == Kind::Dir || found.nlink <= 1
}

/// Bits of a part of an entry: with 2^40 entries of several names the sum is exact to 1/2^8.
const PART_BITS: u32 = 48;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;
    use crate::{Durability, KeptNames, Quota, QuotaReached, Special, StagedFile, Wanted};

    fn name(number: u8) -> Component {
        Component::new(&[b'a' + number]).unwrap()
    }

    fn root(scratch: &tempfile::TempDir, quota: Quota) -> Arc<Dir> {
        let dir = Dir::open_operand(scratch.path()).unwrap();
        let used = dir.usage().unwrap();
        Arc::new(dir.metered(Some(Arc::new(Meter::new(quota, used)))))
    }

    fn used(dir: &Dir) -> Usage {
        dir.meter().unwrap().used()
    }

    fn quota(max_bytes: u64, max_files: u64) -> Quota {
        Quota { max_bytes: Some(max_bytes), max_files: Some(max_files) }
    }

    /// Writes a file as a run does, up to its name.
    fn put(dir: &Arc<Dir>, name: Component, len: u64) -> io::Result<()> {
        let staged = StagedFile::create(dir, name)?;
        staged.write_all_at(0, &vec![1; usize::try_from(len).unwrap()])?;
        let prepared = staged.prepare(&Wanted::default(), None, Durability::None)?;
        prepared.commit().map_err(io::Error::other)
    }

    fn reached(result: io::Result<()>) -> Option<QuotaReached> {
        result.unwrap_err().get_ref().and_then(|error| error.downcast_ref()).cloned()
    }

    #[test]
    fn a_replacement_takes_the_difference_and_a_removal_gives_back() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = root(&scratch, quota(100, 2));
        put(&dir, name(0), 80).unwrap();
        put(&dir, name(0), 100).unwrap();
        put(&dir, name(0), 90).unwrap();
        let refused = reached(put(&dir, name(1), 11)).unwrap();
        assert_eq!((refused.limit, refused.used, refused.needed), ("max-bytes", 90, 11));
        let refused = reached(put(&dir, name(0), 101)).unwrap();
        assert_eq!((refused.limit, refused.most), ("max-bytes", 100));
        assert_eq!(used(&dir), Usage { bytes: 90, files: 1 });
        dir.make_dir(&name(1), 0o755).unwrap();
        let refused = reached(dir.make_dir(&name(2), 0o755)).unwrap();
        assert_eq!((refused.limit, refused.used), ("max-files", 2));
        // One that is replaced makes room for its successor.
        put(&dir, name(0), 1).unwrap();
        dir.remove_empty_dir(&name(1)).unwrap();
        dir.remove_file(&name(0)).unwrap();
        assert_eq!(used(&dir), Usage::default());
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_unfinished_file_stays_only_beside_what_it_would_replace() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = root(&scratch, quota(150, 10));
        put(&dir, name(0), 100).unwrap();
        let names = KeptNames::new([7; 16]).unwrap();
        let begin = |len| {
            let (staged, notes) = StagedFile::create_kept(&dir, &dir, name(0), &names).unwrap();
            staged.set_len(len).unwrap();
            notes.claim(0).map(|()| notes.keep()).unwrap();
            staged
        };
        // Instead of the old file there is room for it, beside it there is not.
        assert_eq!(begin(120).keep().unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
        assert!(dir.stat(&names.content).is_err());
        let _ = begin(50).keep().unwrap();
        assert_eq!((used(&dir), dir.usage().unwrap()), (Usage { bytes: 150, files: 3 }, used(&dir)));
        let (staged, notes) = StagedFile::open_kept(&dir, &dir, name(0), &names).unwrap();
        staged.set_len(150).unwrap();
        drop(notes);
        staged.prepare(&Wanted::default(), None, Durability::None).unwrap().commit().unwrap();
        assert_eq!((used(&dir), dir.usage().unwrap()), (Usage { bytes: 150, files: 1 }, used(&dir)));
    }

    #[test]
    fn entries_with_names_elsewhere_count_for_their_part() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |path: &str| scratch.path().join(path);
        fs::create_dir_all(at("in/sub")).unwrap();
        fs::write(at("in/one"), [0; 90]).unwrap();
        fs::hard_link(at("in/one"), at("in/sub/two")).unwrap();
        fs::hard_link(at("in/one"), at("out")).unwrap();
        fs::write(at("in/.dsync-lock"), "").unwrap();
        let dir = Dir::open_operand(&at("in")).unwrap();
        assert_eq!(dir.usage().unwrap().bytes, 60);
        fs::remove_file(at("out")).unwrap();
        assert_eq!(dir.usage().unwrap().bytes, 90);
    }

    /// One thing that a run does to its tree.
    #[derive(Debug, Clone)]
    enum Deed {
        Put(u8, u64),
        Abandon(u8, u64),
        Rewrite(u8, u64),
        Grow(u8, u64),
        Wait(u8, u64),
        Link(u8, u8),
        Symlink(u8),
        Fifo(u8),
        Dir(u8),
        Remove(u8),
        Rename(u8, u8),
        Exchange(u8, u8),
        MakePath(u8, u8),
    }

    fn deed() -> impl Strategy<Value = Deed> {
        let (one, len) = (0..6_u8, 0..70_u64);
        prop_oneof![
            3 => (one.clone(), len.clone()).prop_map(|(at, len)| Deed::Put(at, len)),
            1 => (one.clone(), len.clone()).prop_map(|(at, len)| Deed::Abandon(at, len)),
            1 => (one.clone(), len.clone()).prop_map(|(at, len)| Deed::Rewrite(at, len)),
            1 => (one.clone(), len.clone()).prop_map(|(at, len)| Deed::Grow(at, len)),
            1 => (one.clone(), len).prop_map(|(at, len)| Deed::Wait(at, len)),
            2 => (one.clone(), one.clone()).prop_map(|(at, to)| Deed::Link(at, to)),
            1 => one.clone().prop_map(Deed::Symlink),
            1 => one.clone().prop_map(Deed::Fifo),
            1 => one.clone().prop_map(Deed::Dir),
            2 => one.clone().prop_map(Deed::Remove),
            1 => (one.clone(), one.clone()).prop_map(|(at, to)| Deed::Rename(at, to)),
            1 => (one.clone(), one.clone()).prop_map(|(at, to)| Deed::Exchange(at, to)),
            1 => (one.clone(), one).prop_map(|(at, to)| Deed::MakePath(at, to)),
        ]
    }

    fn carry_out(dir: &Arc<Dir>, deed: &Deed) -> io::Result<()> {
        match *deed {
            Deed::Put(at, len) => put(dir, name(at), len),
            Deed::Abandon(at, len) => StagedFile::create(dir, name(at))?.set_len(len),
            Deed::Rewrite(at, len) => {
                let temp = StagedFile::create(dir, name(at))?;
                temp.set_len(len)?;
                let old = StagedFile::open_in_place(dir, name(at))?;
                temp.make_room_in(&old, len)?;
                // A rewriting may need scratch room in the temporary.
                temp.write_all_at(len, b"saved")?;
                old.write_all_at(0, &vec![2; usize::try_from(len / 2).unwrap()])?;
                if len % 2 == 0 { old.set_len(len) } else { Ok(()) }
            }
            Deed::Grow(at, len) => {
                let old = StagedFile::open_in_place(dir, name(at))?;
                old.reserve(len)?;
                old.write_all_at(len / 2, b"more")
            }
            Deed::Wait(at, len) => {
                let staged = StagedFile::create(dir, name(at))?;
                staged.set_len(len)?;
                let prepared = staged.prepare(&Wanted::default(), None, Durability::None)?;
                let Some((temp, _)) = prepared.wait()? else { return Ok(()) };
                let prepared = crate::PreparedFile::waiting(dir, temp, name(at));
                if len % 3 == 0 { Ok(()) } else { prepared.commit().map_err(io::Error::other) }
            }
            Deed::Link(at, to) => dir.make_hard_link(&name(to), dir, &name(at)),
            Deed::Symlink(at) => dir.make_symlink(&name(at), b"text", &Wanted::default()).map(drop),
            Deed::Fifo(at) => dir.make_special(&name(at), Special::Fifo, &Wanted::default()).map(drop),
            Deed::Dir(at) => dir.make_dir(&name(at), 0o755),
            Deed::Remove(at) => dir.remove_file(&name(at)).or_else(|_| dir.remove_empty_dir(&name(at))),
            Deed::Rename(at, to) => dir.rename(&name(at), &name(to)),
            Deed::Exchange(at, to) => dir.take_name(&name(at), &name(to)).map(drop),
            Deed::MakePath(at, to) => {
                let path = format!("{}/{}", char::from(b'a' + at), char::from(b'a' + to));
                dir.create_operand_here(std::path::Path::new(&path), true).map(drop)
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        /// Law: whatever a run does, and wherever it fails, the count is that of the tree, and neither
        /// exceeds the quota.
        #[test]
        fn the_count_is_that_of_the_tree(
            deeds in prop::collection::vec(deed(), 0..40), fake_super: bool,
        ) {
            let scratch = tempfile::tempdir().unwrap();
            let dir = Dir::open_operand(scratch.path()).unwrap().with_fake_super(fake_super);
            let meter = Arc::new(Meter::new(quota(200, 5), Usage::default()));
            let dir = Arc::new(dir.metered(Some(meter)));
            for deed in &deeds {
                let done = carry_out(&dir, deed);
                let there = dir.usage().unwrap();
                prop_assert_eq!(used(&dir), there, "{:?}: {:?}", deed, done);
                prop_assert!(there.bytes <= 200 && there.files <= 5, "{:?}: {:?}", deed, there);
            }
        }
    }
}
