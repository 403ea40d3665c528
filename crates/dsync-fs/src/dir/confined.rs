//! Directories whose floor no operator's path can leave, and directories whose existing entries may
//! not change: the limits that an administrator sets for a client that chooses its own paths.
//!
//! The law: with [`Dir::confining`] every path that starts at the directory, or at one opened by
//! such a path, ends in it or below it. Directories that a path passes through stay open until the
//! end, so `..` and a concurrent rename lead back and not out. No step of it has one of this crate's own
//! names, whose files belong to a run of anybody's. With [`Dir::adding_only`] no call of
//! this crate replaces, renames or removes an entry, except those with dsync's own names for
//! temporaries and unfinished files.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::PathBuf,
    sync::Arc,
};

use rustix::{
    fs::{AtFlags, RenameFlags, linkat, renameat, renameat_with, unlinkat},
    io::Errno,
};

use super::{Dir, cannot_link, retry};
use crate::{
    component::{Component, RelPath},
    own_names::{is_apart_name, is_finished_name, is_kept_name, is_own_name, is_temp_name},
    quota::Charge,
};

/// The directories from a floor to one opened by a path, both included.
pub(super) type Trail = Arc<[Arc<Passed>]>;

/// A directory on the way from a floor.
#[derive(Debug)]
pub(super) struct Passed {
    pub(super) fd: OwnedFd,
    /// Its name in the directory before it; empty for the floor, and where nobody asks.
    pub(super) name: Vec<u8>,
}

impl Passed {
    /// Makes one without a name.
    pub(super) fn unnamed(fd: OwnedFd) -> Arc<Self> {
        Arc::new(Self { fd, name: Vec::new() })
    }
}

/// The limit for the operator's paths that start at a directory.
#[derive(Debug, Clone)]
pub(super) enum Reach {
    Anywhere,
    /// Not beyond the first of these directories; the last one is the directory itself.
    Along(Trail),
    /// The directory is below the first of these, its floor. No path may start there.
    Below(Trail),
}

impl Reach {
    /// Returns the reach of a directory opened by name.
    pub(super) fn of_child(&self) -> Self {
        match self {
            Self::Anywhere => Self::Anywhere,
            Self::Along(trail) | Self::Below(trail) => Self::Below(Arc::clone(trail)),
        }
    }
}

/// A path that would lead out of the directory that confines it, or to a file of this crate's own there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}'{}' {}",
    if *is_link { "the link " } else { "" },
    path.display(),
    if self.is_own_name() { OWN_NAME } else { LEADS_OUT }
)]
#[non_exhaustive]
pub struct LeadsOut {
    /// The failing step, as a path from the floor: `..` of the floor itself, the first link on the way whose
    /// text leads out, or one of this crate's own names.
    pub path: PathBuf,
    /// Whether the step is a link.
    pub is_link: bool,
}

const LEADS_OUT: &str = "leads out of what may be used";
const OWN_NAME: &str = "is a name of dsync's own files, which no client may use";

impl LeadsOut {
    /// Makes the refusal of a step that the path itself names.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path, is_link: false }
    }

    /// Makes the refusal of a link.
    pub(super) fn by_link(path: PathBuf) -> Self {
        Self { path, is_link: true }
    }

    /// Returns the path for which an operation was refused, if that was the reason for the error.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref().and_then(|inner| inner.downcast_ref())
    }

    /// Returns whether the path was refused for one of this crate's own names.
    pub fn is_own_name(&self) -> bool {
        self.path.file_name().is_some_and(|name| is_own_name(name.as_bytes()))
    }
}

impl From<LeadsOut> for io::Error {
    fn from(refusal: LeadsOut) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, refusal)
    }
}

impl Dir {
    /// Makes the directory the floor of every operator's path that starts here. An absolute path
    /// starts here as well, and none leads out. Directories opened by such paths have the same
    /// floor.
    ///
    /// # Errors
    /// The system's error, e.g. `EMFILE`.
    pub fn confining(self) -> io::Result<Self> {
        let floor = Passed::unnamed(self.fd.try_clone()?);
        Ok(Self { reach: Reach::Along(Trail::from([floor])), ..self })
    }

    /// Returns the path from the floor to the directory, with links and `..` resolved, if a path from
    /// the floor has opened it. Without a floor it is the root's.
    pub fn path_from_floor(&self) -> RelPath {
        let mut path = RelPath::root();
        if let Reach::Along(trail) = &self.reach {
            trail
                .iter()
                .filter_map(|passed| Component::new(&passed.name).ok())
                .for_each(|name| path.push(&name));
        }
        path
    }

    /// Permits only additions: in the directory, and in those opened through it, nothing is
    /// replaced, renamed or removed, except temporaries and unfinished files.
    ///
    /// Attributes are the caller's responsibility: those of a new directory are set after it has
    /// its name.
    #[must_use]
    pub fn adding_only(mut self, adds_only: bool) -> Self {
        self.adds_only = adds_only;
        self
    }

    /// Returns whether only additions are permitted here.
    pub fn adds_only(&self) -> bool {
        self.adds_only
    }

    /// Refuses to change an entry that must stay as it is.
    pub(crate) fn refuse_change(&self, name: &Component) -> io::Result<()> {
        let name = name.as_bytes();
        let own = is_temp_name(name) || is_kept_name(name) || is_finished_name(name) || is_apart_name(name);
        if self.adds_only && !own { Err(Errno::EXIST.into()) } else { Ok(()) }
    }

    /// Renames an entry of `from` to a name of this directory; replaces an existing entry if that
    /// is permitted.
    pub(crate) fn give_name(&self, from: &Self, old: &Component, new: &Component) -> io::Result<()> {
        self.give_name_to(from, old, new, &mut None)?;
        self.remove_other_name(from, old, new)
    }

    /// Removes the old name of an entry that had the new one already: rename(2) does nothing then,
    /// leaves both, and returns 0.
    fn remove_other_name(&self, from: &Self, old: &Component, new: &Component) -> io::Result<()> {
        let (Ok(there), Ok(here)) = (from.stat(old), self.stat(new)) else { return Ok(()) };
        if (here.dev, here.ino) != (there.dev, there.ino) || (old == new && from.is_same(self)?) {
            return Ok(());
        }
        // Where case makes no difference, two spellings may be one name.
        if from.lists(old)? && self.lists(new)? { from.remove_file(old) } else { Ok(()) }
    }

    /// Renames an entry as [`give_name`](Self::give_name) does; `charge` is its share of the meter's
    /// count.
    pub(crate) fn give_name_to(
        &self,
        from: &Self,
        old: &Component,
        new: &Component,
        charge: &mut Option<Box<Charge>>,
    ) -> io::Result<()> {
        from.refuse_change(old)?;
        // Nothing gives way to itself.
        if old == new && from.is_same(self)? {
            return Ok(());
        }
        self.placing(new, charge, || self.rename_from(from, old, new))
    }

    /// Renames an entry as [`give_name_to`](Self::give_name_to) does, to a name that was found free.
    ///
    /// # Errors
    /// `EEXIST` where an entry of another spelling stands for the name. Where the filesystem has no such
    /// call, that entry is replaced.
    pub(crate) fn give_free_name(
        &self,
        from: &Self,
        old: &Component,
        new: &Component,
        charge: &mut Option<Box<Charge>>,
    ) -> io::Result<()> {
        from.refuse_change(old)?;
        let spelled = (from.spelled(old)?, self.spelled(new)?);
        let (old_name, new_name) = (&*spelled.0, &*spelled.1);
        let rename = || renameat_with(from, old_name, self, new_name, RenameFlags::NOREPLACE);
        match self.placing(new, charge, || retry(rename)) {
            Err(error) if stands_aside(&error) => self.give_name_to(from, old, new, charge),
            // Somebody has made it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && self.lists(new)? => {
                self.give_name_to(from, old, new, charge)
            }
            result => result,
        }
    }

    /// Renames an entry as [`give_name_to`](Self::give_name_to) does, and never replaces another.
    ///
    /// # Errors
    /// `EEXIST` where an entry has the name. Where the filesystem can name nothing without replacing, that
    /// entry is replaced.
    pub(crate) fn add_name(
        &self,
        from: &Self,
        old: &Component,
        new: &Component,
        charge: &mut Option<Box<Charge>>,
    ) -> io::Result<()> {
        from.refuse_change(old)?;
        match self.placing(new, charge, || self.rename_beside(from, old, new)) {
            Err(error) if cannot_link(&error) || stands_aside(&error) => {
                self.give_name_to(from, old, new, charge)
            }
            named => named,
        }
    }

    /// Returns whether the directory surely has no entry of this name.
    pub fn lacks(&self, name: &Component) -> bool {
        self.stat(name).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Returns whether the directory has an entry of this very name.
    ///
    /// # Errors
    /// The system's error.
    pub fn lists(&self, name: &Component) -> io::Result<bool> {
        let name = self.spelled(name)?;
        let is_it = |entry: Result<rustix::fs::DirEntry, Errno>| match entry {
            Ok(entry) if entry.file_name() == &*name => Some(Ok(true)),
            Ok(_) => None,
            Err(error) => Some(Err(error.into())),
        };
        rustix::fs::Dir::read_from(&self.fd)?.find_map(is_it).unwrap_or(Ok(false))
    }

    fn rename_from(&self, from: &Self, old: &Component, new: &Component) -> io::Result<()> {
        if self.refuse_change(new).is_ok() {
            let (old, new) = (from.spelled(old)?, self.spelled(new)?);
            return retry(|| renameat(from, &*old, self, &*new));
        }
        self.rename_beside(from, old, new)
    }

    /// Renames an entry to a name that no other has.
    fn rename_beside(&self, from: &Self, old: &Component, new: &Component) -> io::Result<()> {
        let (old, new) = (from.spelled(old)?, self.spelled(new)?);
        let flags = RenameFlags::NOREPLACE;
        match renameat_with(from, &*old, self, &*new, flags) {
            // The filesystem lacks that call. A hard link never replaces another entry either.
            Err(error) if stands_aside(&error.into()) => {
                linkat(from.as_fd(), &*old, self.as_fd(), &*new, AtFlags::empty())?;
                Ok(unlinkat(from, &*old, AtFlags::empty())?)
            }
            result => Ok(result?),
        }
    }
}

/// Returns whether a filesystem cannot rename without replacing, or a sandbox does not know the call. Where the
/// refusal is of the entry, the other calls meet it too.
fn stands_aside(error: &io::Error) -> bool {
    let refusals = [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP, Errno::PERM];
    Errno::from_io_error(error).is_some_and(|error| refusals.contains(&error))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use super::{super::tests::name, *};
    use crate::{Durability, StagedFile, Wanted, temp_name};

    /// Makes a floor with directories `a/b` and `other`, and a directory beside it.
    fn floor(scratch: &Path) -> Dir {
        for dir in ["floor/a/b", "floor/other", "outside/a"] {
            fs::create_dir_all(scratch.join(dir)).unwrap();
        }
        Dir::open_operand(&scratch.join("floor")).unwrap().confining().unwrap()
    }

    #[test]
    fn every_path_ends_at_or_below_the_floor() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |path: &str| scratch.path().join(path);
        let floor = floor(scratch.path());
        for (text, link) in [
            ("../outside", "out"),
            ("../floor/a", "out_and_in"),
            ("/", "root"),
            ("/proc/self/root", "proc"),
            ("a/b", "in"),
            ("../../other", "a/b/up"),
            ("../../../outside", "a/b/far"),
        ] {
            symlink(text, at("floor").join(link)).unwrap();
        }
        symlink(at("floor/a"), at("floor/absolute")).unwrap();
        for (path, real) in [
            (".", "floor"),
            ("/", "floor"),
            ("/a/b", "floor/a/b"),
            ("a/b/../..", "floor"),
            ("in/..", "floor/a"),
            ("in/up", "floor/other"),
            ("a/../other/./", "floor/other"),
        ] {
            let opened = floor.open_operand_above(Path::new(path)).unwrap();
            assert!(opened.is_same(&Dir::open_operand(&at(real)).unwrap()).unwrap(), "{path}");
        }
        // A link is named as such, and not the step of its text that nobody typed.
        for (path, said) in [
            ("..", "'..'"),
            ("/..", "'/..'"),
            ("a/../..", "'..'"),
            ("out", "the link 'out'"),
            ("out/a", "the link 'out'"),
            ("out_and_in", "the link 'out_and_in'"),
            ("root", "the link 'root'"),
            ("proc", "the link 'proc'"),
            ("absolute", "the link 'absolute'"),
            ("in/far", "the link 'a/b/far'"),
            ("in/up/../..", "'..'"),
        ] {
            for opened in [
                floor.open_operand_above(Path::new(path)),
                floor.create_operand_above(&Path::new(path).join("new"), true),
            ] {
                let error = opened.unwrap_err();
                let step = LeadsOut::of(&error).unwrap().to_string();
                assert_eq!(step, format!("{said} leads out of what may be used"), "{path}");
            }
        }
        assert!(!at("outside/new").exists() && !at("new").exists());
    }

    #[test]
    fn the_path_from_the_floor_has_no_links_and_no_steps_up() {
        let scratch = tempfile::tempdir().unwrap();
        let floor = floor(scratch.path());
        symlink("a/b", scratch.path().join("floor/in")).unwrap();
        symlink("../../other", scratch.path().join("floor/a/b/up")).unwrap();
        for (path, real) in [
            (".", ""),
            ("/", ""),
            ("a/b/../..", ""),
            ("/a/./b/", "a/b"),
            ("in", "a/b"),
            ("in/..", "a"),
            ("in/up", "other"),
        ] {
            let opened = floor.open_operand_above(Path::new(path)).unwrap();
            assert_eq!(opened.path_from_floor().as_bytes(), real.as_bytes(), "{path}");
            assert_eq!(opened.reopen().unwrap().path_from_floor().as_bytes(), real.as_bytes(), "{path}");
        }
        let made = floor.create_operand_above(Path::new("in/../new/er"), true).unwrap();
        assert_eq!(made.path_from_floor().as_bytes(), b"a/new/er");
        let beside = made.open_operand_here(Path::new("../../b")).unwrap();
        assert_eq!(beside.path_from_floor().as_bytes(), b"a/b");
        assert!(Dir::open_operand(scratch.path()).unwrap().path_from_floor().is_root());
    }

    #[test]
    fn a_path_from_an_opened_directory_has_the_same_floor() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |path: &str| scratch.path().join(path);
        let floor = floor(scratch.path());
        let b = floor.open_operand_above(Path::new("a/b")).unwrap();
        let opened = b.open_operand_here(Path::new("../../other")).unwrap();
        assert!(opened.is_same(&Dir::open_operand(&at("floor/other")).unwrap()).unwrap());
        let absolute = b.open_operand_here(Path::new("/other")).unwrap();
        assert!(absolute.is_same(&opened).unwrap());
        assert!(LeadsOut::of(&b.open_operand_here(Path::new("../../..")).unwrap_err()).is_some());
        // From a directory that was moved out, `..` leads back to where the walk came from.
        fs::rename(at("floor/a/b"), at("outside/b")).unwrap();
        let back = b.open_operand_here(Path::new("..")).unwrap();
        assert!(back.is_same(&Dir::open_operand(&at("floor/a")).unwrap()).unwrap());
        // No path starts at a directory that was reached by name.
        let child = floor.open_child(&name(b"a")).unwrap();
        assert!(LeadsOut::of(&child.open_operand_here(Path::new("b")).unwrap_err()).is_some());
    }

    #[test]
    fn what_is_there_stays_where_only_additions_are_allowed() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |path: &str| scratch.path().join(path);
        fs::create_dir_all(at("sub/dir")).unwrap();
        for file in ["sub/old", "sub/other"] {
            fs::write(at(file), file).unwrap();
        }
        let root = Dir::open_operand(scratch.path()).unwrap().adding_only(true);
        let sub = Arc::new(root.open_child(&name(b"sub")).unwrap());
        let (old, other, dir) = (name(b"old"), name(b"other"), name(b"dir"));
        let wanted = Wanted::default();
        let committed = |target: &Component| {
            let staged = StagedFile::create(&sub, target.clone()).unwrap();
            staged.write_all_at(0, b"new").unwrap();
            staged.prepare(&wanted, None, Durability::None).unwrap().commit()
        };
        assert!(committed(&old).is_err());
        assert!(sub.rename(&old, &name(b"moved")).is_err());
        assert!(sub.remove_file(&old).is_err());
        assert!(sub.remove_empty_dir(&dir).is_err());
        assert!(sub.exchange(&old, &other).is_err());
        assert!(sub.make_symlink(&old, b"text", &wanted).is_err());
        assert!(sub.make_hard_link(&old, &sub, &other).is_err());
        let temp = temp_name().unwrap();
        fs::write(at("sub").join(std::str::from_utf8(temp.as_bytes()).unwrap()), "temp").unwrap();
        assert!(sub.rename(&temp, &old).is_err() && sub.exchange(&temp, &old).is_err());
        sub.rename(&temp, &name(b"named")).unwrap();
        committed(&name(b"fresh")).unwrap();
        let _ = sub.make_symlink(&name(b"link"), b"text", &wanted).unwrap();
        sub.make_hard_link(&name(b"further"), &sub, &other).unwrap();
        assert_eq!(fs::read(at("sub/old")).unwrap(), b"sub/old");
        assert_eq!(fs::read(at("sub/fresh")).unwrap(), b"new");
        assert_eq!(sub.list().entries.len(), 7, "a temporary was left");
    }
}
