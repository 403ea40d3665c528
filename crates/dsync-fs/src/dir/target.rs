//! Entries that a symbolic link of a directory leads to, for runs that copy them in place of the
//! links (`-L`, `-k`, `--copy-unsafe-links`).
//!
//! The law: the entry that is opened is the one that was examined. A link, or a directory on its
//! way, may lead elsewhere by then, so every call after the first takes the [`Target`] and compares.
//! Below a directory that confines ([`Dir::confining`]) a link is followed step by step and never
//! leads out; elsewhere the kernel follows it, wherever it leads, because the operator asked for that.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use rustix::{
    fs::{Mode, OFlags, openat},
    io::Errno,
};

use super::{
    Dir, LeadsOut,
    confined::{Passed, Reach, Trail},
    refusal, retry, retry_leased,
    trusted::open_confined_link,
    wrong_type,
};
use crate::{
    attributes::Handle,
    component::Component,
    extended::{Extended, ExtendedScope, MAX_EXTENDED_BYTES, Place, read},
    fake_super,
    metadata::Metadata,
    source_file::{Opening, SourceFile, stat_fd},
};

/// The identity of the entry that a link leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Target {
    /// Number of its filesystem.
    pub dev: u64,
    /// Its inode number.
    pub ino: u64,
}

impl Target {
    /// Returns the identity of the entry with these attributes.
    pub fn of(metadata: &Metadata) -> Self {
        Self { dev: metadata.dev, ino: metadata.ino }
    }

    /// Checks that an open entry is this one.
    fn check(self, found: &Metadata) -> io::Result<()> {
        if Self::of(found) == self { Ok(()) } else { Err(io::Error::other(TargetChanged)) }
    }
}

/// The refusal to use an entry because its link leads to another one by now.
#[derive(Debug, thiserror::Error)]
#[error("the link leads elsewhere by now")]
struct TargetChanged;

/// Returns whether this crate refused an entry because the link that led to it leads elsewhere by
/// now.
pub fn is_target_changed(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<TargetChanged>())
}

impl Dir {
    /// Returns the attributes of the entry that a link leads to.
    ///
    /// # Errors
    /// The system's error; [`NotFound`](io::ErrorKind::NotFound) if the link leads to nothing, and
    /// [`LeadsOut`] if it leads out of a directory that confines.
    pub fn stat_target(&self, name: &Component) -> io::Result<Metadata> {
        let fd = self.open_link(name, OFlags::PATH)?;
        self.metadata_of(&fd)
    }

    /// Opens the regular file that a link leads to, as [`open_source`](Self::open_source) opens an
    /// entry.
    ///
    /// # Errors
    /// As `open_source` and [`stat_target`](Self::stat_target); [`is_target_changed`] if it is
    /// another entry than `target`.
    pub fn open_target(&self, name: &Component, target: Target, how: Opening) -> io::Result<SourceFile> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = match self.open_link(name, flags | how.flags()) {
            Err(error) if how.noatime && Errno::from_io_error(&error) == Some(Errno::PERM) => {
                self.open_link(name, flags)
            }
            opened => opened,
        };
        let fd = opened.map_err(|error| refusal(error, how))?;
        target.check(&stat_fd(fd.as_fd())?)?;
        SourceFile::of(fd, how.devices)?.ok_or_else(wrong_type)
    }

    /// Opens the directory that a link leads to.
    ///
    /// # Errors
    /// As [`open_child`](Self::open_child) and [`stat_target`](Self::stat_target);
    /// [`is_target_changed`] if it is another entry than `target`.
    pub fn open_target_dir(&self, name: &Component, target: Target) -> io::Result<Self> {
        let (fd, path_only) = match self.open_link(name, OFlags::RDONLY | OFlags::DIRECTORY) {
            // It may be passed through but not read.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::ACCESS) => {
                (self.open_link(name, OFlags::PATH | OFlags::DIRECTORY)?, true)
            }
            opened => (opened?, false),
        };
        target.check(&stat_fd(fd.as_fd())?)?;
        self.inherit(Ok(Self::new(fd, path_only)))
    }

    /// Reads the lists and attributes that a source reports for the entry that a link leads to.
    ///
    /// # Errors
    /// As [`source_extended`](Self::source_extended) and [`stat_target`](Self::stat_target);
    /// [`is_target_changed`] if it is another entry than `target`.
    pub fn target_extended(
        &self,
        name: &Component,
        target: Target,
        scope: ExtendedScope,
    ) -> io::Result<Extended> {
        if scope.is_empty() {
            return Ok(Extended::default());
        }
        let fd = self.open_link(name, OFlags::PATH)?;
        target.check(&stat_fd(fd.as_fd())?)?;
        let keeping = self.keeping(scope, || self.metadata_of(&fd))?;
        read(&Place::of(fd.as_fd(), Handle::PathOnly), scope, keeping.with_own(), MAX_EXTENDED_BYTES)
    }

    fn metadata_of(&self, fd: &OwnedFd) -> io::Result<Metadata> {
        let mut metadata = stat_fd(fd.as_fd())?;
        if self.fake_super {
            fake_super::uncover(&mut metadata, &Place::of(fd.as_fd(), Handle::PathOnly))?;
        }
        Ok(metadata)
    }

    fn open_link(&self, name: &Component, how: OFlags) -> io::Result<OwnedFd> {
        let how = how | OFlags::CLOEXEC;
        let name = &*self.spelled(name)?;
        match self.trail()? {
            Some(trail) => open_confined_link(self.fd.as_fd(), name, trail, how),
            None => retry_leased(|| openat(&self.fd, name, how, Mode::empty())),
        }
    }

    /// Returns the directories from the floor to this one, both included; `None` without a floor.
    fn trail(&self) -> io::Result<Option<Vec<Arc<Passed>>>> {
        match &self.reach {
            Reach::Anywhere => Ok(None),
            Reach::Along(trail) => Ok(Some(trail.to_vec())),
            Reach::Below(floor) => self.climb(floor).map(Some),
        }
    }

    /// Climbs from this directory to the floor.
    fn climb(&self, floor: &Trail) -> io::Result<Vec<Arc<Passed>>> {
        let place = |fd: &OwnedFd| stat_fd(fd.as_fd()).map(|now| Target::of(&now));
        let leads_out = || LeadsOut::at(".".into());
        let end = place(&floor.first().ok_or_else(leads_out)?.fd)?;
        let mut way = vec![Passed::unnamed(self.fd.try_clone()?)];
        loop {
            let Some(last) = way.last() else { return Err(leads_out().into()) };
            let here = place(&last.fd)?;
            if here == end {
                way.reverse();
                return Ok(way);
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let up = retry(|| openat(&last.fd, c"..", flags, Mode::empty()))?;
            // Only the root is its own parent: the directory was moved out of the floor.
            if place(&up)? == here {
                return Err(leads_out().into());
            }
            way.push(Passed::unnamed(up));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::{
        fs,
        os::unix::fs::symlink,
        path::{Path, PathBuf},
    };

    use super::{super::tests::name, *};

    /// Makes `floor/sub` with links of every sort, and entries beside the floor.
    fn planted(scratch: &Path) -> PathBuf {
        let at = |path: &str| scratch.join(path);
        fs::create_dir_all(at("floor/sub/deep")).unwrap();
        fs::create_dir_all(at("outside")).unwrap();
        fs::write(at("floor/file"), "in").unwrap();
        fs::write(at("outside/file"), "out").unwrap();
        for (text, link) in [
            ("../file", "in"),
            ("deep", "dir"),
            ("deep/..", "self"),
            ("..", "up"),
            ("in", "chain"),
            ("none", "dangling"),
            ("circle", "circle"),
            ("../../outside/file", "out"),
            ("../..", "above"),
            ("deep/../../../outside", "around"),
        ] {
            symlink(text, at("floor/sub").join(link)).unwrap();
        }
        symlink(at("floor/file"), at("floor/sub/absolute")).unwrap();
        symlink("/proc/self/root", at("floor/sub/object")).unwrap();
        at("floor")
    }

    /// Law: the confined walk reaches what the kernel reaches, except what is outside.
    #[test]
    fn links_below_a_floor_lead_where_the_kernel_leads_or_are_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let floor = planted(scratch.path());
        let sub = name(b"sub");
        let free = Dir::open_operand(&floor).unwrap().open_child(&sub).unwrap();
        let confined = Dir::open_operand(&floor).unwrap().confining().unwrap().open_child(&sub).unwrap();
        for link in ["in", "dir", "self", "up", "chain", "dangling", "circle"] {
            let link = name(link.as_bytes());
            match (free.stat_target(&link), confined.stat_target(&link)) {
                (Ok(free), Ok(confined)) => assert_eq!(Target::of(&free), Target::of(&confined), "{link:?}"),
                (Err(free), Err(confined)) => {
                    assert_eq!(free.raw_os_error(), confined.raw_os_error(), "{link:?}");
                }
                other => panic!("{link:?}: {other:?}"),
            }
        }
        for link in ["out", "above", "around", "absolute", "object"] {
            let link = name(link.as_bytes());
            let target = Target::of(&free.stat_target(&link).unwrap());
            for refused in [
                confined.stat_target(&link).unwrap_err(),
                confined.open_target(&link, target, Opening::default()).unwrap_err(),
                confined.open_target_dir(&link, target).unwrap_err(),
            ] {
                assert!(LeadsOut::of(&refused).is_some(), "{link:?}: {refused}");
            }
        }
        // Nor does a directory that was moved out lead back in, or further out.
        fs::rename(floor.join("sub"), scratch.path().join("outside/sub")).unwrap();
        assert!(LeadsOut::of(&confined.stat_target(&name(b"in")).unwrap_err()).is_some());
    }

    #[test]
    fn what_is_opened_is_what_was_examined() {
        let scratch = tempfile::tempdir().unwrap();
        let floor = planted(scratch.path());
        let at = |path: &str| floor.join("sub").join(path);
        let dir = Dir::open_operand(&at("")).unwrap();
        let (file, sub) = (name(b"in"), name(b"dir"));
        let target = Target::of(&dir.stat_target(&file).unwrap());
        assert_eq!(
            dir.open_target(&file, target, Opening { noatime: true, devices: false }).unwrap().len(),
            2
        );
        let directory = Target::of(&dir.stat_target(&sub).unwrap());
        assert!(dir.open_target_dir(&sub, directory).is_ok());
        assert!(crate::is_wrong_type(&dir.open_target(&sub, directory, Opening::default()).unwrap_err()));
        for (link, text) in [("in", "../../outside/file"), ("dir", "..")] {
            fs::remove_file(at(link)).unwrap();
            symlink(text, at(link)).unwrap();
        }
        let scope = ExtendedScope { acls: true, xattrs: true, users_only: false };
        for refused in [
            dir.open_target(&file, target, Opening::default()).unwrap_err(),
            dir.open_target_dir(&sub, directory).unwrap_err(),
            dir.target_extended(&file, target, scope).unwrap_err(),
        ] {
            assert!(is_target_changed(&refused), "{refused}");
        }
    }
}
