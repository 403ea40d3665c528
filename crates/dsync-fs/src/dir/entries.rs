//! Entries of a directory are made, renamed and removed here.
//!
//! The law: what is put in the place of something takes it in one step, by a rename, and has its attributes by then. Of a
//! step that fails nothing is left but, where the machine stops at that moment, a temporary that the next run removes.

use std::{io, os::fd::AsFd};

use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, RenameFlags, fdatasync, linkat, mkdirat, mknodat, openat, renameat,
        renameat_with, symlinkat, unlinkat,
    },
    io::Errno,
};

use super::{Dir, retry, wrong_type};
use crate::{
    attributes::{Handle, Wanted},
    component::Component,
    extended::Withheld,
    fake_super,
    metadata::{DeviceNumber, Kind},
    staged::{temp_name, write_all_at},
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

/// True for the errors of [`Dir::make_hard_link`] that say that the entry cannot have a further name there: it has
/// as many as its filesystem allows, is on another one, or is on one without hard links.
pub fn cannot_link(error: &io::Error) -> bool {
    let refusals = [Errno::MLINK, Errno::XDEV, Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS];
    Errno::from_io_error(error).is_some_and(|error| refusals.contains(&error))
}

impl Dir {
    /// Creates a directory with these permission bits, less the process's file creation mask.
    ///
    /// # Errors
    /// What the system says; `EEXIST` when the name is taken.
    pub fn make_dir(&self, name: &Component, mode: u16) -> io::Result<()> {
        Ok(mkdirat(&self.fd, name.as_c_str(), Mode::from_raw_mode(u32::from(mode & 0o7777)))?)
    }

    /// Creates a symbolic link with its attributes, in place of what is there, in one step: readers
    /// see the old entry or the finished new one.
    ///
    /// # Errors
    /// What the system says; `EISDIR` (or `ENOTEMPTY`) when a directory is there. `target` must have
    /// 1 to 4095 bytes and no NUL.
    pub fn make_symlink(&self, name: &Component, target: &[u8], wanted: &Wanted) -> io::Result<Withheld> {
        let node = (Kind::Symlink, DeviceNumber::default());
        if self.fake_super {
            // What is replaced must not give way to a file without its text; a new one without it is made anew.
            let replaces = self.stat(name).is_ok();
            return self.replace(name, node, wanted, |temp| self.create_file(temp, target, replaces));
        }
        self.replace(name, node, wanted, |temp| Ok(symlinkat(target, &self.fd, temp.as_c_str())?))
    }

    /// Creates a fifo, socket or device with its attributes, in place of what is there, in one step.
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
            return self.replace(name, (kind, number), wanted, |temp| self.create_file(temp, &[], false));
        }
        let device = rustix::fs::makedev(number.major, number.minor);
        self.replace(name, (kind, number), wanted, |temp| {
            Ok(mknodat(&self.fd, temp.as_c_str(), file_type, Mode::from_raw_mode(0o600), device)?)
        })
    }

    /// Creates a file that stands for something else, on the disk if `sync`.
    fn create_file(&self, name: &Component, content: &[u8], sync: bool) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = retry(|| openat(&self.fd, name.as_c_str(), flags, Mode::from_raw_mode(0o600)))?;
        write_all_at(fd.as_fd(), 0, content)?;
        if sync { retry(|| fdatasync(&fd)) } else { Ok(()) }
    }

    /// Gives the entry `first` of `from` another name in this directory, in place of what has the name, in one
    /// step. A symbolic link is not followed but gets a name itself. Nothing happens where both are names of
    /// one entry already.
    ///
    /// # Errors
    /// What the system says; `EISDIR` when a directory has the name. See [`cannot_link`] for those of a
    /// filesystem that has no further name for the entry.
    pub fn make_hard_link(&self, name: &Component, from: &Self, first: &Component) -> io::Result<()> {
        let link =
            |to: &Component| linkat(&from.fd, first.as_c_str(), &self.fd, to.as_c_str(), AtFlags::empty());
        match link(name) {
            Err(Errno::EXIST) => {}
            result => return Ok(result?),
        }
        let (here, there) = (self.stat(name)?, from.stat(first)?);
        // A rename of one name over another of the same entry does nothing, and leaves both.
        if (here.dev, here.ino) == (there.dev, there.ino) {
            return Ok(());
        }
        self.refuse_change(name)?;
        let temp = temp_name()?;
        link(&temp)?;
        let placed = renameat(&self.fd, temp.as_c_str(), &self.fd, name.as_c_str());
        if placed.is_err() {
            // Nothing more can be done for the leftover than the next run's cleaning does.
            let _ = unlinkat(&self.fd, temp.as_c_str(), AtFlags::empty());
        }
        Ok(placed?)
    }

    fn replace(
        &self,
        name: &Component,
        node: (Kind, DeviceNumber),
        wanted: &Wanted,
        create: impl Fn(&Component) -> io::Result<()>,
    ) -> io::Result<Withheld> {
        let temp = temp_name()?;
        let created = create(&temp);
        let placed = created
            .and_then(|()| self.finish_node(&temp, node, wanted))
            .and_then(|withheld| self.give_name(self, &temp, name).map(|()| withheld));
        if placed.is_err() {
            // Nothing more can be done for the leftover than the next run's cleaning does.
            let _ = unlinkat(&self.fd, temp.as_c_str(), AtFlags::empty());
        }
        placed
    }

    /// Gives an entry another name, in place of what has it.
    ///
    /// # Errors
    /// What the system says.
    pub fn rename(&self, from: &Component, to: &Component) -> io::Result<()> {
        self.give_name(self, from, to)
    }

    /// Exchanges what stands under two names, whatever their types are.
    ///
    /// One step where the filesystem can do it (ext4, XFS, btrfs and tmpfs can), so that `name` stands for
    /// the one or the other at any moment; elsewhere it is missing between two renames.
    ///
    /// # Errors
    /// What the system says; then both names are what they were.
    pub fn exchange(&self, temp: &Component, name: &Component) -> io::Result<()> {
        self.refuse_change(temp).and_then(|()| self.refuse_change(name))?;
        let rename = |from: &Component, to: &Component| {
            retry(|| renameat(&self.fd, from.as_c_str(), &self.fd, to.as_c_str()))
        };
        match renameat_with(&self.fd, temp.as_c_str(), &self.fd, name.as_c_str(), RenameFlags::EXCHANGE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
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

    /// Renames what stands under `temp` to `name`. True when another entry had that: it has the other name then.
    ///
    /// # Errors
    /// What the system says; then both names are what they were.
    pub fn take_name(&self, temp: &Component, name: &Component) -> io::Result<bool> {
        if self.adds_only() {
            return self.rename(temp, name).map(|()| false);
        }
        match self.exchange(temp, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.rename(temp, name).map(|()| false),
            result => result.map(|()| true),
        }
    }

    /// Removes an entry that is no directory.
    ///
    /// # Errors
    /// What the system says; `EISDIR` for a directory.
    pub fn remove_file(&self, name: &Component) -> io::Result<()> {
        self.refuse_change(name)?;
        Ok(unlinkat(&self.fd, name.as_c_str(), AtFlags::empty())?)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// What the system says; `ENOTEMPTY` when it is not empty.
    pub fn remove_empty_dir(&self, name: &Component) -> io::Result<()> {
        self.refuse_change(name)?;
        Ok(unlinkat(&self.fd, name.as_c_str(), AtFlags::REMOVEDIR)?)
    }

    /// Sets the attributes of what was just made to be `node`.
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
        assert!(!cannot_link(&error) && cannot_link(&Errno::MLINK.into()));
        assert_eq!(dir.list().entries.len(), 4, "a temporary name was left");
    }
}
