//! An open directory: the only way to reach anything in a tree.
//!
//! The law: below an operator's own path every step takes one [`Component`] and follows no symbolic
//! link, so nothing outside the directory can be reached whatever its entries are or become while the
//! call runs. `openat2` does several steps in one call where the kernel has it; the component-wise way
//! is the reference and the fallback.

use std::{
    fmt, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::{
    fs::{
        AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, RawDir, RenameFlags, ResolveFlags, fdatasync,
        flock, fsync, linkat, mkdirat, mknodat, openat, openat2, readlinkat, renameat, renameat_with, statx,
        symlinkat, syncfs, unlinkat,
    },
    io::Errno,
};

use crate::{
    attributes::{self, Handle, Wanted},
    component::{Component, RelPath},
    extended::{Place, Withheld, handle_path},
    fake_super,
    metadata::{DeviceNumber, Kind, Metadata},
    names::{Name, stat_in_disk_order},
    source_file::{SourceFile, stat_fd},
    staged::{temp_name, write_all_at},
};

/// An open directory. Share it with [`Arc`](std::sync::Arc); all methods take `&self`.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    /// Opened with `O_PATH`, because the directory may be passed through but not read.
    path_only: bool,
    /// See [`Dir::through_own_links`].
    own_links: bool,
    /// See [`Dir::with_fake_super`].
    fake_super: bool,
    device: OnceLock<u64>,
}

/// The entries of a directory at the time of listing.
#[derive(Debug)]
pub struct Listing {
    /// Names with what the kernel says of them, in byte order of the names. An entry that vanished
    /// between the two calls has a [`NotFound`](io::ErrorKind::NotFound) error.
    pub entries: Vec<(Component, io::Result<Metadata>)>,
    /// False when not all names could be read, or one was no valid [`Component`].
    pub complete: bool,
    /// Why the listing stopped early, when it did.
    pub error: Option<io::Error>,
}

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

/// Keeps other runs out of a directory until it is dropped; the kernel drops it with the process.
pub struct DirLock {
    _fd: OwnedFd,
}

impl fmt::Debug for DirLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirLock").finish_non_exhaustive()
    }
}

impl Dir {
    /// Opens a directory by the operator's own path; symbolic links in it are followed.
    ///
    /// # Errors
    /// What the system says, e.g. `ENOENT`, `ENOTDIR`, `EACCES`.
    pub fn open_operand(path: &Path) -> io::Result<Self> {
        open_step(CWD, path.as_os_str().as_bytes(), OFlags::empty())
    }

    /// Opens a directory by the operator's own path and creates it, when missing, with the process's
    /// default permissions; with `mkpath` its missing parents as well.
    ///
    /// # Errors
    /// What the system says; `ENOENT` without `mkpath` means that the parent is missing.
    pub fn create_operand(path: &Path, mkpath: bool) -> io::Result<Self> {
        create_step(CWD, path, mkpath)
    }

    /// As [`Dir::open_operand`], with a path that is relative to this directory unless it is absolute.
    ///
    /// # Errors
    /// As [`Dir::open_operand`].
    pub fn open_operand_here(&self, path: &Path) -> io::Result<Self> {
        self.inherit(open_step(self.fd.as_fd(), path.as_os_str().as_bytes(), OFlags::empty()))
    }

    /// As [`Dir::create_operand`] with `mkpath`, with a path that is relative to this directory unless it is
    /// absolute.
    ///
    /// # Errors
    /// As [`Dir::create_operand`].
    pub fn create_operand_here(&self, path: &Path) -> io::Result<Self> {
        self.inherit(create_step(self.fd.as_fd(), path, true))
    }

    /// Opens a directory in this one.
    ///
    /// # Errors
    /// What the system says; `ENOTDIR` (or `ELOOP`) when the entry is no directory, e.g. a link.
    pub fn open_child(&self, name: &Component) -> io::Result<Self> {
        self.inherit(open_step(self.fd.as_fd(), name.as_c_str(), OFlags::NOFOLLOW))
    }

    /// Opens a directory in this one, or the one that a link in its place leads to. The link must belong to
    /// root or to this process's user; what it leads to may be anywhere.
    ///
    /// # Errors
    /// As [`open_child`](Self::open_child), also for another user's link, and what opening the link's target
    /// meets.
    pub fn open_child_or_own_link(&self, name: &Component) -> io::Result<Self> {
        let refusal = match self.open_child(name) {
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOTDIR | Errno::LOOP)) => error,
            result => return result,
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let link = retry(|| openat(&self.fd, name.as_c_str(), flags, Mode::empty()))?;
        let metadata = stat_fd(link.as_fd())?;
        let trusted = [0, rustix::process::geteuid().as_raw()].contains(&metadata.uid);
        if metadata.kind != Kind::Symlink || !trusted {
            return Err(refusal);
        }
        // Read from the link that was looked at, not from what has its name by now.
        let target = readlinkat(&link, c"", Vec::with_capacity(256))?;
        self.inherit(open_step(self.fd.as_fd(), target.as_c_str(), OFlags::empty()))
    }

    /// Lets [`open_beneath`](Self::open_beneath) go through links as
    /// [`open_child_or_own_link`](Self::open_child_or_own_link) does. Directories that are opened by it do not
    /// have this property themselves, so that nothing else follows a link.
    #[must_use]
    pub fn through_own_links(mut self) -> Self {
        self.own_links = true;
        self
    }

    /// Has type, permission bits, owners, device numbers, lists and root's attributes of what is in the directory, and
    /// of itself, read from and kept in `user.rsync.*` (see [`crate::fake_super`]). Directories that are opened by it
    /// have this property too.
    #[must_use]
    pub fn with_fake_super(mut self, fake_super: bool) -> Self {
        self.fake_super = fake_super;
        self
    }

    /// See [`with_fake_super`](Self::with_fake_super).
    pub fn is_fake_super(&self) -> bool {
        self.fake_super
    }

    fn inherit(&self, opened: io::Result<Self>) -> io::Result<Self> {
        opened.map(|dir| dir.with_fake_super(self.fake_super))
    }

    fn open_through_own_links(&self, path: &RelPath) -> io::Result<Self> {
        let mut reached = self.reopen()?;
        for name in path.components() {
            let name =
                Component::new(name).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            reached = reached.open_child_or_own_link(&name)?;
        }
        Ok(reached)
    }

    /// Opens a directory any number of levels below this one.
    ///
    /// Cost: one call per 4 KiB of path where `openat2` works, else one per component.
    ///
    /// # Errors
    /// What the system says; `ENOTDIR` or `ELOOP` when something on the way is no directory.
    pub fn open_beneath(&self, path: &RelPath) -> io::Result<Self> {
        if self.own_links {
            return self.open_through_own_links(path);
        }
        self.open_beneath_by(path, Self::open_accelerated)
    }

    fn open_beneath_by(
        &self,
        path: &RelPath,
        accelerated: impl Fn(&Self, &[u8]) -> Option<io::Result<(Self, usize)>>,
    ) -> io::Result<Self> {
        let mut rest = path.as_bytes();
        let mut reached: Option<Self> = None;
        while !rest.is_empty() {
            let here = reached.as_ref().unwrap_or(self);
            let (next, taken) = match accelerated(here, rest) {
                Some(result) => result?,
                None => here.open_first(rest)?,
            };
            reached = Some(next);
            rest = rest.get(taken..).unwrap_or_default();
            rest = rest.strip_prefix(b"/").unwrap_or(rest);
        }
        match reached {
            Some(dir) => Ok(dir),
            None => self.reopen(),
        }
    }

    /// Opens this directory once more: a handle of its own, e.g. for a lock of its own.
    ///
    /// # Errors
    /// What the system says.
    pub fn reopen(&self) -> io::Result<Self> {
        self.inherit(open_step(self.fd.as_fd(), c".", OFlags::empty()))
    }

    /// Several components at once by `openat2`; `None` when that does not work here.
    fn open_accelerated(&self, path: &[u8]) -> Option<io::Result<(Self, usize)>> {
        if !OPENAT2_WORKS.load(Ordering::Relaxed) {
            return None;
        }
        let taken = prefix_within(path, MAX_RESOLVED_LEN);
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..OPENAT2_TRIES {
            let opened = open_with(|flags| {
                openat2(&self.fd, &path[..taken], flags | OFlags::NOFOLLOW, Mode::empty(), resolve)
            });
            match opened {
                // A rename somewhere raced with the resolution; try again, but not for ever.
                Err(Errno::AGAIN) => {}
                Err(Errno::INTR) => {}
                Err(Errno::NOSYS | Errno::PERM | Errno::INVAL | Errno::TOOBIG) => {
                    OPENAT2_WORKS.store(false, Ordering::Relaxed);
                    return None;
                }
                Err(error) => return Some(Err(error.into())),
                Ok(dir) => return Some(self.inherit(Ok(dir)).map(|dir| (dir, taken))),
            }
        }
        None
    }

    fn open_first(&self, path: &[u8]) -> io::Result<(Self, usize)> {
        let taken = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
        let dir = self.inherit(open_step(self.fd.as_fd(), &path[..taken], OFlags::NOFOLLOW))?;
        Ok((dir, taken))
    }

    /// Attributes of the directory itself.
    ///
    /// # Errors
    /// What the system says.
    pub fn metadata(&self) -> io::Result<Metadata> {
        let mut metadata = stat_fd(self.fd.as_fd())?;
        if self.fake_super {
            fake_super::uncover(&mut metadata, &Place::Behind(handle_path(self.fd.as_fd())))?;
        }
        Ok(metadata)
    }

    /// Attributes of an entry; a link's own, not its target's.
    ///
    /// # Errors
    /// What the system says.
    pub fn stat(&self, name: &Component) -> io::Result<Metadata> {
        let stat = statx(&self.fd, name.as_c_str(), NO_FOLLOW, Metadata::WANT)?;
        let mut metadata = Metadata::from_statx(&stat).ok_or(io::ErrorKind::InvalidData)?;
        if self.fake_super {
            fake_super::uncover(&mut metadata, &self.place_of(name))?;
        }
        Ok(metadata)
    }

    /// How an entry's extended attributes are read.
    pub(crate) fn place_of(&self, name: &Component) -> Place<'static> {
        let mut path = handle_path(self.fd.as_fd());
        path.push(b'/');
        path.extend_from_slice(name.as_bytes());
        Place::Link(path)
    }

    /// Lists all entries with their attributes, sorted by the bytes of their names.
    ///
    /// Never fails as a whole: see [`Listing::complete`]. Attributes are read in inode order, which
    /// spares a disk with a cold cache most of its seeks.
    pub fn list(&self) -> Listing {
        // A handle of its own, because the position in a directory belongs to the open file
        // description and several threads may list at once.
        match self.readable() {
            Ok(own) => own.list_once(),
            Err(error) => Listing { entries: Vec::new(), complete: false, error: Some(error) },
        }
    }

    /// As [`list`](Self::list), for a handle that is listed only here and only once.
    pub(crate) fn list_once(&self) -> Listing {
        let mut names = Vec::new();
        let mut complete = true;
        let error =
            self.for_each_name_once(&mut complete, |name, ino, _| names.push(Name { name, layer: 0, ino }));
        names.sort_unstable();
        // Network filesystems can list a name twice when a directory changes meanwhile.
        names.dedup_by(|a, b| a.name == b.name);
        let stats = stat_in_disk_order(&names, |_| Some(self));
        let entries = names.into_iter().zip(stats).filter_map(|(name, stat)| Some((name.name, stat?)));
        Listing { entries: entries.collect(), complete: complete && error.is_none(), error }
    }

    /// Calls `each` with every name, its inode number and, where the filesystem tells, its type; clears
    /// `complete` for a name that cannot be one. For a handle that is listed only here and only once.
    pub(crate) fn for_each_name_once(
        &self,
        complete: &mut bool,
        mut each: impl FnMut(Component, u64, Option<Kind>),
    ) -> Option<io::Error> {
        if self.path_only {
            return Some(Errno::ACCESS.into());
        }
        let mut buffer: Vec<u8> = Vec::with_capacity(LIST_BUFFER);
        let mut names = RawDir::new(&self.fd, buffer.spare_capacity_mut());
        while let Some(entry) = names.next() {
            match entry {
                Err(Errno::INTR) => {}
                Err(error) => return Some(error.into()),
                Ok(entry) => match entry.file_name().to_bytes() {
                    b"." | b".." => {}
                    _ => match Component::from_kernel(entry.file_name()) {
                        Some(name) => each(name, entry.ino(), Kind::from_file_type(entry.file_type())),
                        None => *complete = false,
                    },
                },
            }
        }
        None
    }

    /// The text of a symbolic link.
    ///
    /// # Errors
    /// What the system says; `EINVAL` when the entry is no link.
    pub fn read_link(&self, name: &Component) -> io::Result<Vec<u8>> {
        match readlinkat(&self.fd, name.as_c_str(), Vec::with_capacity(256)) {
            Err(Errno::INVAL) if self.fake_super => self.read_kept_link(name),
            text => Ok(text?.into_bytes()),
        }
    }

    /// The text of a link that is kept in a file.
    fn read_kept_link(&self, name: &Component) -> io::Result<Vec<u8>> {
        let mut text = vec![0; MAX_LINK_TEXT + 1];
        let len = self.open_source(name)?.read_full_at(0, &mut text)?;
        text.truncate(len);
        match (1..=MAX_LINK_TEXT).contains(&len) && !text.contains(&0) {
            true => Ok(text),
            false => Err(fake_super::damaged()),
        }
    }

    /// Opens a regular file for reading. A fifo or device that took its place is neither waited for
    /// nor read.
    ///
    /// # Errors
    /// What the system says; [`InvalidInput`](io::ErrorKind::InvalidInput) when the entry is of another
    /// type, a link included (see [`is_wrong_type`]).
    pub fn open_source(&self, name: &Component) -> io::Result<SourceFile> {
        self.open_source_with(name, OFlags::empty())
    }

    /// As [`open_source`](Self::open_source), but reading does not change when the file was last read. Only
    /// its owner and root may ask for that; for others it is as `open_source`.
    ///
    /// # Errors
    /// As `open_source`.
    pub fn open_source_noatime(&self, name: &Component) -> io::Result<SourceFile> {
        match self.open_source_with(name, OFlags::NOATIME) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => self.open_source(name),
            result => result,
        }
    }

    fn open_source_with(&self, name: &Component, extra: OFlags) -> io::Result<SourceFile> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let flags = flags | extra;
        let fd = match retry(|| openat(&self.fd, name.as_c_str(), flags, Mode::empty())) {
            Err(error) => match Errno::from_io_error(&error) {
                // A link; a socket or a device without a driver.
                Some(Errno::LOOP | Errno::NXIO) => return Err(wrong_type()),
                _ => return Err(error),
            },
            Ok(fd) => fd,
        };
        let metadata = stat_fd(fd.as_fd())?;
        if metadata.kind != Kind::File {
            return Err(wrong_type());
        }
        Ok(SourceFile::new(fd, metadata))
    }

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
        let placed = created.and_then(|()| self.finish_node(&temp, node, wanted)).and_then(|withheld| {
            renameat(&self.fd, temp.as_c_str(), &self.fd, name.as_c_str())?;
            Ok(withheld)
        });
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
        retry(|| renameat(&self.fd, from.as_c_str(), &self.fd, to.as_c_str()))
    }

    /// Exchanges what stands under two names, whatever their types are.
    ///
    /// One step where the filesystem can do it (ext4, XFS, btrfs and tmpfs can), so that `name` stands for
    /// the one or the other at any moment; elsewhere it is missing between two renames.
    ///
    /// # Errors
    /// What the system says; then both names are what they were.
    pub fn exchange(&self, temp: &Component, name: &Component) -> io::Result<()> {
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

    /// Removes an entry that is no directory.
    ///
    /// # Errors
    /// What the system says; `EISDIR` for a directory.
    pub fn remove_file(&self, name: &Component) -> io::Result<()> {
        Ok(unlinkat(&self.fd, name.as_c_str(), AtFlags::empty())?)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// What the system says; `ENOTEMPTY` when it is not empty.
    pub fn remove_empty_dir(&self, name: &Component) -> io::Result<()> {
        Ok(unlinkat(&self.fd, name.as_c_str(), AtFlags::REMOVEDIR)?)
    }

    /// Sets attributes of an entry that must be of type `kind`; links are not followed.
    ///
    /// # Errors
    /// What the system says; [`InvalidInput`](io::ErrorKind::InvalidInput) when the entry is of
    /// another type (see [`is_wrong_type`]).
    pub fn set_attributes(&self, name: &Component, kind: Kind, wanted: &Wanted) -> io::Result<Withheld> {
        let (fd, now) = self.open_path(name)?;
        let mut shown = now;
        if self.fake_super {
            fake_super::uncover(&mut shown, &Place::of(fd.as_fd(), Handle::PathOnly))?;
        }
        if shown.kind != kind {
            return Err(wrong_type());
        }
        self.apply(fd.as_fd(), Handle::PathOnly, &now, wanted)
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

    /// A handle of an entry that does not touch it, and what its inode says.
    fn open_path(&self, name: &Component) -> io::Result<(OwnedFd, Metadata)> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = retry(|| openat(&self.fd, name.as_c_str(), flags, Mode::empty()))?;
        let now = stat_fd(fd.as_fd())?;
        Ok((fd, now))
    }

    /// Sets what `wanted` asks of an entry of the directory, whose inode says `now`.
    pub(crate) fn apply(
        &self,
        fd: BorrowedFd<'_>,
        handle: Handle,
        now: &Metadata,
        wanted: &Wanted,
    ) -> io::Result<Withheld> {
        // Nothing can be kept with a link, device or fifo that is one.
        match self.fake_super && matches!(now.kind, Kind::File | Kind::Dir) {
            true => fake_super::apply(fd, handle, now, None, wanted),
            false => attributes::apply(fd, handle, now, wanted),
        }
    }

    /// Sets attributes of the directory itself.
    ///
    /// # Errors
    /// What the system says.
    pub fn set_own_attributes(&self, wanted: &Wanted) -> io::Result<Withheld> {
        let handle = if self.path_only { Handle::PathOnly } else { Handle::Open };
        self.apply(self.fd.as_fd(), handle, &stat_fd(self.fd.as_fd())?, wanted)
    }

    /// Locks the directory for one run; `None` when another holds the lock. Only runs that lock are
    /// kept out.
    ///
    /// # Errors
    /// What the system says, e.g. where a network filesystem has no locks.
    pub fn try_lock(&self) -> io::Result<Option<DirLock>> {
        let own = self.reopen()?;
        match retry(|| flock(&own.fd, FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => Ok(Some(DirLock { _fd: own.fd })),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the directory's names to the disk.
    ///
    /// # Errors
    /// What the system says. A failed sync is final: a second one that succeeds proves nothing.
    pub fn sync(&self) -> io::Result<()> {
        if self.path_only {
            return self.readable()?.sync();
        }
        Ok(fsync(&self.fd)?)
    }

    /// Writes everything of the directory's filesystem to the disk, data and names.
    ///
    /// The kernel reports write errors since this handle was opened, so use one handle for a group of
    /// writes that was opened before the first.
    ///
    /// # Errors
    /// As [`Dir::sync`].
    pub fn sync_filesystem(&self) -> io::Result<()> {
        if self.path_only {
            return self.readable()?.sync_filesystem();
        }
        Ok(syncfs(&self.fd)?)
    }

    /// Another handle of the same directory.
    ///
    /// # Errors
    /// What the system says, e.g. `EMFILE`.
    pub fn duplicate(&self) -> io::Result<Self> {
        let fd = self.fd.try_clone()?;
        let Self { path_only, own_links, fake_super, .. } = *self;
        Ok(Self { fd, path_only, own_links, fake_super, device: OnceLock::new() })
    }

    /// The number of the filesystem that the directory is on, asked once.
    ///
    /// # Errors
    /// What the system says.
    pub fn device(&self) -> io::Result<u64> {
        if let Some(&device) = self.device.get() {
            return Ok(device);
        }
        let device = self.metadata()?.dev;
        Ok(*self.device.get_or_init(|| device))
    }

    fn readable(&self) -> io::Result<Self> {
        let fd = openat(&self.fd, c".", LIST_FLAGS, Mode::empty())?;
        Ok(Self {
            fd,
            path_only: false,
            own_links: false,
            fake_super: self.fake_super,
            device: OnceLock::new(),
        })
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// True for the error with which this crate refuses an entry whose type is not the expected one: it
/// changed since it was listed.
pub fn is_wrong_type(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<WrongType>())
}

#[derive(Debug, thiserror::Error)]
#[error("its type changed")]
struct WrongType;

pub(crate) fn wrong_type() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, WrongType)
}

/// Repeats a call that a signal interrupted.
pub(crate) fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

fn open_step<P: rustix::path::Arg + Copy>(at: BorrowedFd<'_>, path: P, extra: OFlags) -> io::Result<Dir> {
    loop {
        match open_with(|flags| openat(at, path, flags | extra, Mode::empty())) {
            Err(Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

/// Opens an operator's own path, created when it is missing.
fn create_step(at: BorrowedFd<'_>, path: &Path, mkpath: bool) -> io::Result<Dir> {
    let open = || open_step(at, path.as_os_str().as_bytes(), OFlags::empty());
    match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        result => return result,
    }
    if mkpath && let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        create_step(at, parent, true)?;
    }
    match mkdirat(at, path.as_os_str().as_bytes(), Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => open(),
        Err(error) => Err(error.into()),
    }
}

/// Opens for reading, or only for passing through where reading is not allowed: `x` without `r`, as
/// other users' home directories often are.
fn open_with(open: impl Fn(OFlags) -> rustix::io::Result<OwnedFd>) -> rustix::io::Result<Dir> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let (fd, path_only) = match open(flags | OFlags::RDONLY) {
        Err(Errno::ACCESS) => (open(flags | OFlags::PATH)?, true),
        result => (result?, false),
    };
    Ok(Dir { fd, path_only, own_links: false, fake_super: false, device: OnceLock::new() })
}

/// Length of the longest prefix of whole components within `limit` bytes.
fn prefix_within(path: &[u8], limit: usize) -> usize {
    match path.get(..=limit) {
        None => path.len(),
        Some(head) => head.iter().rposition(|&byte| byte == b'/').unwrap_or(limit),
    }
}

const NO_FOLLOW: AtFlags = AtFlags::SYMLINK_NOFOLLOW.union(AtFlags::NO_AUTOMOUNT);

const LIST_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Bytes of names per `getdents64` call: about 1,500 names of 16 bytes.
const LIST_BUFFER: usize = 64 * 1024;

/// Longest path given to `openat2`, below `PATH_MAX` (4096 with its NUL).
const MAX_RESOLVED_LEN: usize = 4000;

/// Bytes of a symbolic link's text, as Linux has it.
const MAX_LINK_TEXT: usize = 4095;

/// How often `openat2` may report a race before the component-wise way is taken, which never does.
const OPENAT2_TRIES: usize = 8;

/// Cleared when the kernel or a sandbox refuses `openat2`.
static OPENAT2_WORKS: AtomicBool = AtomicBool::new(true);

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::attributes::Wanted;

    fn name(text: &[u8]) -> Component {
        Component::new(text).unwrap()
    }

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

    /// Law: the accelerated way and the component-wise way reach the same directory or both refuse.
    #[test]
    fn both_ways_beneath_agree() {
        let scratch = tempfile::tempdir().unwrap();
        let root = Dir::open_operand(scratch.path()).unwrap();
        root.make_dir(&name(b"a"), 0o755).unwrap();
        let a = root.open_child(&name(b"a")).unwrap();
        a.make_dir(&name(b"b"), 0o755).unwrap();
        let _ = a.make_symlink(&name(b"link"), b"b", &Wanted::default()).unwrap();
        let _ = a.make_special(&name(b"fifo"), Special::Fifo, &Wanted::default()).unwrap();
        let _ = root.make_symlink(&name(b"up"), b"..", &Wanted::default()).unwrap();
        for path in ["", "a", "a/b", "a/link", "a/link/x", "a/fifo", "a/none", "up", "up/etc", "a/b/c"] {
            let path = RelPath::parse(path.as_bytes()).unwrap();
            let plain = root.open_beneath_by(&path, |_, _| None);
            match (root.open_beneath(&path), plain) {
                (Ok(fast), Ok(plain)) => {
                    assert_eq!(fast.metadata().unwrap().stamp(), plain.metadata().unwrap().stamp());
                }
                (Err(fast), Err(plain)) => {
                    let missing = io::ErrorKind::NotFound;
                    assert_eq!(fast.kind() == missing, plain.kind() == missing, "{path:?}");
                }
                other => panic!("{path:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_handle_lists_again_and_again() {
        let scratch = tempfile::tempdir().unwrap();
        let root = Dir::open_operand(scratch.path()).unwrap();
        for entry in [&b"b"[..], b"a", b"c"] {
            root.make_dir(&name(entry), 0o755).unwrap();
        }
        for _ in 0..3 {
            let listing = root.list();
            let names: Vec<_> = listing.entries.iter().map(|(name, _)| name.as_bytes()).collect();
            assert_eq!(names, [b"a", b"b", b"c"]);
            assert!(listing.complete && listing.error.is_none());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        /// Law: a prefix is whole components, within the limit, and not empty.
        #[test]
        fn prefixes_end_at_component_borders(
            names in prop::collection::vec("[a-z]{1,9}", 1..9),
            limit in 9usize..40,
        ) {
            let path = names.join("/").into_bytes();
            let taken = prefix_within(&path, limit);
            prop_assert!(taken > 0 && taken <= limit.max(path.len().min(limit)));
            prop_assert!(taken == path.len() || path[taken] == b'/');
        }
    }
}
