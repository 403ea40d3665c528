//! Makes, renames and removes entries of a directory.
//!
//! The law: a replacement takes its place in one step, by a rename, and has its attributes by then.
//! A failed step leaves nothing behind, except that a machine which stops at that moment leaves a
//! temporary for the next run to remove.

use std::{ffi::CStr, io, os::fd::AsFd};

use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, RenameFlags, fdatasync, linkat, mkdirat, mknodat, openat, renameat,
        renameat_with, symlinkat, unlinkat,
    },
    io::Errno,
    process::geteuid,
};

use super::{Dir, retry, wrong_type};
use crate::{
    attributes::{self, Handle, Wanted},
    component::Component,
    extended::Withheld,
    fake_super,
    metadata::{DeviceNumber, Kind, Metadata},
    staged::{temp_name, write_all_at},
    sys,
};

/// An entry that is neither file, directory nor link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
    /// Character device; for root only.
    CharDevice(DeviceNumber),
    /// Block device; for root only.
    BlockDevice(DeviceNumber),
}

impl Dir {
    /// Creates a directory with these permission bits, less those that the process's file creation mask takes
    /// from others than its owner.
    ///
    /// # Errors
    /// The system's error; `EEXIST` if the name is taken.
    pub fn make_dir(&self, name: &Component, mode: u16) -> io::Result<()> {
        let on_disk = self.spelled(name)?;
        let make = || Ok(mkdirat(&self.fd, &*on_disk, Mode::from_raw_mode(u32::from(mode & 0o7777)))?);
        self.meter().map_or_else(make, |meter| meter.count_entry(make))?;
        if sys::mask_locks_owner_out() { self.admit_owner(name, mode) } else { Ok(()) }
    }

    /// Grants the owner of a directory that was just made those of these permission bits that the mask took.
    fn admit_owner(&self, name: &Component, mode: u16) -> io::Result<()> {
        let (fd, made) = self.open_path(name)?;
        let wanted = made.mode | mode & 0o700;
        let is_ours = made.kind == Kind::Dir && made.uid == geteuid().as_raw();
        if wanted == made.mode || !is_ours {
            return Ok(());
        }
        attributes::chmod(fd.as_fd(), Handle::PathOnly, wanted)
    }

    /// Creates a symbolic link with its attributes and replaces any existing entry, in one step:
    /// readers see the old entry or the finished new one.
    ///
    /// # Errors
    /// The system's error; `EISDIR` (or `ENOTEMPTY`) if a directory has the name. `target` must
    /// have 1 to 4095 bytes and no NUL.
    pub fn make_symlink(&self, name: &Component, target: &[u8], wanted: &Wanted) -> io::Result<Withheld> {
        let node = (Kind::Symlink, DeviceNumber::default());
        let target = &*self.spelled_text(target)?;
        if self.fake_super {
            // A replaced entry must not give way to a file without its text. A new one without its
            // text is simply made again.
            let replaces = self.stat(name).is_ok();
            let create = |temp: &Component| self.create_file(temp, target, replaces);
            return self.replace(name, (node, target.len() as u64), wanted, create);
        }
        self.replace(name, (node, 0), wanted, |temp| Ok(symlinkat(target, &self.fd, &*self.spelled(temp)?)?))
    }

    /// Creates a fifo, socket or device with its attributes and replaces any existing entry, in one
    /// step.
    ///
    /// # Errors
    /// As [`Dir::make_symlink`]; `EPERM` for a device without privileges.
    pub fn make_special(&self, name: &Component, special: Special, wanted: &Wanted) -> io::Result<Withheld> {
        let (kind, file_type, number) = match special {
            Special::Fifo => (Kind::Fifo, FileType::Fifo, DeviceNumber::default()),
            Special::Socket => (Kind::Socket, FileType::Socket, DeviceNumber::default()),
            Special::CharDevice(number) => (Kind::CharDevice, FileType::CharacterDevice, number),
            Special::BlockDevice(number) => (Kind::BlockDevice, FileType::BlockDevice, number),
        };
        if self.fake_super {
            let create = |temp: &Component| self.create_file(temp, &[], false);
            return self.replace(name, ((kind, number), 0), wanted, create);
        }
        let device = rustix::fs::makedev(number.major, number.minor);
        self.replace(name, ((kind, number), 0), wanted, |temp| {
            Ok(mknodat(&self.fd, &*self.spelled(temp)?, file_type, Mode::from_raw_mode(0o600), device)?)
        })
    }

    /// Creates a file that stands for something else; syncs it if `sync`.
    fn create_file(&self, name: &Component, content: &[u8], sync: bool) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = self.spelled(name)?;
        let fd = retry(|| openat(&self.fd, &*name, flags, Mode::from_raw_mode(0o600)))?;
        write_all_at(fd.as_fd(), 0, content)?;
        if sync { retry(|| fdatasync(&fd)) } else { Ok(()) }
    }

    /// Makes a hard link in this directory to the entry `first` of `from` and replaces any existing
    /// entry, in one step. A symbolic link is not followed but linked itself. Does nothing if both
    /// are already names of one entry.
    ///
    /// # Errors
    /// The system's error; `EISDIR` if a directory has the name. [`cannot_link`](crate::cannot_link)
    /// recognises the errors of a filesystem that allows no further name for the entry.
    pub fn make_hard_link(&self, name: &Component, from: &Self, first: &Component) -> io::Result<()> {
        self.link_checked(name, (from, first), None).map(|_| ())
    }

    /// Makes a hard link as [`make_hard_link`](Self::make_hard_link) does, if `is_it` accepts the entry
    /// that was linked. Returns `false` otherwise: the link is gone, and an entry that had the name has it.
    ///
    /// # Errors
    /// As [`make_hard_link`](Self::make_hard_link).
    pub fn make_hard_link_if(
        &self,
        name: &Component,
        from: &Self,
        first: &Component,
        is_it: &dyn Fn(&Metadata) -> bool,
    ) -> io::Result<bool> {
        self.link_checked(name, (from, first), Some(is_it))
    }

    fn link_checked(
        &self,
        name: &Component,
        (from, first): (&Self, &Component),
        is_it: Option<&dyn Fn(&Metadata) -> bool>,
    ) -> io::Result<bool> {
        let (source, target) = (from.spelled(first)?, self.spelled(name)?);
        let link = |to: &CStr| linkat(&from.fd, &*source, &self.fd, to, AtFlags::empty());
        // The link is asked about, as the other name may be another entry's at any time.
        let is_right =
            |name: &Component| is_it.map_or(Ok(true), |is_it| self.stat(name).map(|now| is_it(&now)));
        match self.in_turn(|| link(&target)) {
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
            Ok(()) if is_right(name)? => return Ok(true),
            Ok(()) => {
                return unlinkat(&self.fd, &*target, AtFlags::empty()).map(|()| false).map_err(Into::into);
            }
        }

        let (here, there) = (self.stat(name)?, from.stat(first)?);
        // Renaming one name over another of the same entry does nothing and leaves both.
        if (here.dev, here.ino) == (there.dev, there.ino) {
            return Ok(is_it.is_none_or(|is_it| is_it(&here)));
        }
        self.refuse_change(name)?;
        let temp_name = temp_name()?;
        let temp = self.spelled(&temp_name)?;
        self.in_turn(|| link(&temp))?;
        let placed = match is_right(&temp_name) {
            Ok(true) => self
                .placing(name, &mut None, || Ok(renameat(&self.fd, &*temp, &self.fd, &*target)?))
                .map(|()| true),
            refused => refused,
        };
        // In user space (FUSE) the numbers may not show that both are names of one entry.
        if !matches!(placed, Ok(true)) || !self.numbers_inodes() {
            // The next run's cleaning removes a leftover; nothing more can be done here.
            let _ = unlinkat(&self.fd, &*temp, AtFlags::empty());
        }
        placed
    }

    /// Replaces an entry by a new one, whose content has so many bytes.
    fn replace(
        &self,
        name: &Component,
        (node, bytes): ((Kind, DeviceNumber), u64),
        wanted: &Wanted,
        create: impl Fn(&Component) -> io::Result<()>,
    ) -> io::Result<Withheld> {
        let temp = temp_name()?;
        let mut charge = self.charge_new(name)?;
        if let Some(charge) = &charge {
            charge.cover(bytes)?;
        }
        let created = create(&temp);
        let placed = created
            .and_then(|()| self.finish_node(&temp, node, wanted))
            .and_then(|withheld| self.give_name_to(self, &temp, name, &mut charge).map(|()| withheld));
        if placed.is_err() {
            // The next run's cleaning removes the leftover; nothing more can be done here.
            let _ = unlinkat(&self.fd, &*self.spelled(&temp)?, AtFlags::empty());
        }
        placed
    }

    /// Renames an entry and replaces any existing one.
    ///
    /// # Errors
    /// The system's error.
    pub fn rename(&self, from: &Component, to: &Component) -> io::Result<()> {
        self.give_name(self, from, to)
    }

    /// Exchanges the entries of two names, whatever their types.
    ///
    /// One step if the filesystem can do it (ext4, XFS, btrfs and tmpfs can), so that `name` stands
    /// for the one or the other at any moment. Elsewhere it is missing between two renames.
    ///
    /// # Errors
    /// The system's error; both names are then what they were.
    pub fn exchange(&self, temp: &Component, name: &Component) -> io::Result<()> {
        self.refuse_change(temp).and_then(|()| self.refuse_change(name))?;
        let rename = |from: &Component, to: &Component| {
            let (from, to) = (self.spelled(from)?, self.spelled(to)?);
            retry(|| renameat(&self.fd, &*from, &self.fd, &*to))
        };
        let (one, other) = (self.spelled(temp)?, self.spelled(name)?);
        match renameat_with(&self.fd, &*one, &self.fd, &*other, RenameFlags::EXCHANGE) {
            // Where the refusal is of the entries, not of the call, the others meet it too.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => {}
            result => return Ok(result?),
        }
        let aside = temp_name()?;
        rename(name, &aside)?;
        if let Err(error) = rename(temp, name) {
            rename(&aside, name)?;
            return Err(error);
        }
        rename(&aside, temp)
    }

    /// Renames `temp` to `name`. Returns whether another entry had that name; that entry is then
    /// called `temp`.
    ///
    /// # Errors
    /// The system's error; both names are then what they were.
    pub fn take_name(&self, temp: &Component, name: &Component) -> io::Result<bool> {
        if self.adds_only() {
            return self.rename(temp, name).map(|()| false);
        }
        match self.exchange(temp, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.rename(temp, name).map(|()| false),
            result => result.map(|()| true),
        }
    }

    /// Removes an entry that is not a directory.
    ///
    /// # Errors
    /// The system's error; `EISDIR` for a directory.
    pub fn remove_file(&self, name: &Component) -> io::Result<()> {
        self.refuse_change(name)?;
        self.unlink(name, AtFlags::empty())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The system's error; `ENOTEMPTY` if it is not empty.
    pub fn remove_empty_dir(&self, name: &Component) -> io::Result<()> {
        self.refuse_change(name)?;
        self.unlink(name, AtFlags::REMOVEDIR)
    }

    /// Sets the attributes of an entry that was just made to be `node`.
    fn finish_node(
        &self,
        name: &Component,
        node: (Kind, DeviceNumber),
        wanted: &Wanted,
    ) -> io::Result<Withheld> {
        if !self.fake_super {
            return self.set_attributes(name, node.0, wanted);
        }
        let (fd, now) = self.open_path(name)?;
        if now.kind != Kind::File {
            return Err(wrong_type());
        }
        fake_super::apply(fd.as_fd(), Handle::PathOnly, &now, Some(node), wanted)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::{super::tests::name, *};

    #[test]
    fn a_hard_link_takes_a_name_whatever_file_has_it_and_leaves_nothing_else() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Dir::open_operand(scratch.path()).unwrap();
        let (link, other) = (name(b"link"), name(b"other"));
        let _ = dir.make_symlink(&link, b"nowhere", &Wanted::default()).unwrap();
        let _ = dir.make_special(&other, Special::Fifo, &Wanted::default()).unwrap();
        dir.make_dir(&name(b"dir"), 0o755).unwrap();
        for taken in [&other, &name(b"free"), &other] {
            dir.make_hard_link(taken, &dir, &link).unwrap();
            let (first, further) = (dir.stat(&link).unwrap(), dir.stat(taken).unwrap());
            assert_eq!((further.kind, further.ino), (Kind::Symlink, first.ino));
        }
        let error = dir.make_hard_link(&name(b"dir"), &dir, &link).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
        assert!(!crate::cannot_link(&error) && crate::cannot_link(&Errno::MLINK.into()));
        assert_eq!(dir.list().entries.len(), 4, "a temporary name was left");
    }
}
