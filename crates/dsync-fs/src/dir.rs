//! An open directory: the only way to reach anything in a tree.
//!
//! The law: below an operator's own path every step takes one [`Component`] and follows no symbolic
//! link. Nothing outside the directory can be reached, whatever its entries are or become while the
//! call runs. `open` opens directories; `entries` makes and removes entries.

use std::{
    borrow::Cow,
    ffi::CStr,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use rustix::{
    fs::{
        AtFlags, Mode, OFlags, RawDir, StatVfsMountFlags, fstatfs, fstatvfs, fsync, openat, readlinkat,
        syncfs,
    },
    io::Errno,
    time::{ClockId, clock_gettime},
};

pub use confined::LeadsOut;
pub use entries::Special;
pub use run_lock::DirLock;
pub use target::{Target, is_target_changed};
pub use trusted::{Links, UntrustedLink};
pub(crate) use trusted::{Walk, Within};

pub(crate) use crate::sys::{retry, retry_leased};
use crate::{
    attributes::{self, Handle, Wanted},
    component::{Component, RelPath},
    extended::{Place, Withheld},
    fake_super,
    listed_name::Name,
    metadata::{Kind, Metadata, Timestamp},
    own_names::is_own_name,
    quota::Meter,
    source_file::{Opening, SourceFile, stat_fd},
    spelling::{Spelling, unspellable},
    sys,
};

mod confined;
mod entries;
mod lists;
mod metered;
mod open;
mod run_lock;
mod target;
mod trusted;

/// An open directory. Share it with [`Arc`](std::sync::Arc); all methods take `&self`.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    /// Whether it was opened with `O_PATH`, because the directory may be passed through but not
    /// read.
    path_only: bool,
    /// See [`Dir::through_own_links`].
    own_links: Option<Timestamp>,
    /// See [`Dir::with_fake_super`].
    fake_super: bool,
    /// See [`Dir::with_spelling`].
    spelling: Option<Spelling>,
    /// See [`Dir::typed_path`].
    typed: Option<Arc<Path>>,
    /// Owners whose links the operator's paths that start here may pass through.
    links: Links,
    /// The limit for the operator's paths that start here.
    reach: confined::Reach,
    /// See [`Dir::adding_only`].
    adds_only: bool,
    /// See [`Dir::metered`].
    meter: Option<Arc<Meter>>,
    device: OnceLock<u64>,
    /// See [`Dir::mount`].
    pub(crate) mount: OnceLock<u64>,
    /// See [`Dir::is_in_user_space`].
    in_user_space: OnceLock<bool>,
}

/// The entries of a directory at the time of listing.
#[derive(Debug)]
pub struct Listing {
    /// Names with their attributes, in byte order of the names. An entry that vanished between the
    /// two calls has a [`NotFound`](io::ErrorKind::NotFound) error.
    pub entries: Vec<(Component, io::Result<Metadata>)>,
    /// Whether all names could be read and were valid [`Component`]s.
    pub complete: bool,
    /// The error that stopped the listing early, if one did.
    pub error: Option<io::Error>,
}

impl Dir {
    /// Makes a directory of an open descriptor, without any special property.
    fn new(fd: OwnedFd, path_only: bool) -> Self {
        Self {
            fd,
            path_only,
            own_links: None,
            fake_super: false,
            spelling: None,
            typed: None,
            links: Links::Trusted,
            reach: confined::Reach::Anywhere,
            adds_only: false,
            meter: None,
            device: OnceLock::new(),
            mount: OnceLock::new(),
            in_user_space: OnceLock::new(),
        }
    }

    /// Lets [`open_beneath`](Self::open_beneath) follow links as
    /// [`open_child_or_own_link`](Self::open_child_or_own_link) does, if they exist by now.
    /// Directories opened through it do not inherit this property, so nothing else follows a link.
    #[must_use]
    pub fn through_own_links(mut self) -> Self {
        self.own_links = Some(a_moment_that_has_passed());
        self
    }

    /// Keeps type, permission bits, owners, device numbers, lists and root's attributes of the
    /// directory and its entries in `user.rsync.*` (module `fake_super`). Directories opened
    /// through it inherit this property.
    #[must_use]
    pub fn with_fake_super(mut self, fake_super: bool) -> Self {
        self.fake_super = fake_super;
        self
    }

    /// Takes the names of entries, the texts of links and the lines of filter rules in another
    /// character set than the disk's. Directories opened through this one inherit that. Paths that
    /// an operator wrote are opened as they are.
    #[must_use]
    pub fn with_spelling(mut self, spelling: Option<Spelling>) -> Self {
        self.spelling = spelling;
        self
    }

    /// Returns the property set by [`with_spelling`](Self::with_spelling).
    pub fn spelling(&self) -> Option<&Spelling> {
        self.spelling.as_ref()
    }

    /// Returns a name as the kernel takes it here.
    ///
    /// # Errors
    /// As [`Component::on_disk`].
    pub(crate) fn spelled<'n>(&self, name: &'n Component) -> io::Result<Cow<'n, CStr>> {
        name.on_disk(self.spelling.as_ref())
    }

    /// Returns a path below this directory as the kernel takes it.
    ///
    /// # Errors
    /// As [`Component::on_disk`].
    fn spelled_path<'p>(&self, path: &'p RelPath) -> io::Result<Cow<'p, [u8]>> {
        if self.spelling.is_none() {
            return Ok(Cow::Borrowed(path.as_bytes()));
        }
        let mut spelled = Vec::with_capacity(path.as_bytes().len());
        for name in path.components() {
            let name = Component::new(name)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidFilename, error))?;
            spelled.push(self.spelled(&name)?.to_bytes().to_vec());
        }
        Ok(Cow::Owned(spelled.join(&b'/')))
    }

    /// Returns the owners whose links the operator's paths that start here may pass through.
    pub fn links(&self) -> Links {
        self.links
    }

    /// Returns the property set by [`with_fake_super`](Self::with_fake_super).
    pub fn is_fake_super(&self) -> bool {
        self.fake_super
    }

    /// Passes this directory's properties on to one opened by name. The operator's paths do not
    /// start there.
    fn inherit(&self, opened: io::Result<Self>) -> io::Result<Self> {
        self.pass_on(opened).map(|dir| Self { reach: self.reach.of_child(), ..dir })
    }

    /// Passes this directory's properties on to one opened by an operator's path.
    fn pass_on(&self, opened: io::Result<Self>) -> io::Result<Self> {
        let Self { links, adds_only, fake_super, spelling, .. } = *self;
        let with_rights = |dir| Self { links, adds_only, fake_super, spelling, ..dir };
        opened.map(|dir| with_rights(dir).metered(self.meter.clone()))
    }

    /// Returns whether nothing can be written here, whoever tries: the filesystem, or this mount of it, is
    /// read-only.
    pub fn is_read_only(&self) -> bool {
        fstatvfs(&self.fd).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
    }

    /// Returns the number of bytes that a user without privileges may still write to its filesystem.
    ///
    /// # Errors
    /// The system's error.
    pub fn free_bytes(&self) -> io::Result<u64> {
        let space = fstatvfs(&self.fd)?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }

    /// Returns the attributes of the directory itself.
    ///
    /// # Errors
    /// The system's error.
    pub fn metadata(&self) -> io::Result<Metadata> {
        let mut metadata = stat_fd(self.fd.as_fd())?;
        if self.fake_super {
            fake_super::uncover(&mut metadata, &self.own_place())?;
        }
        Ok(metadata)
    }

    /// Returns the attributes of an entry; a link's own, not its target's.
    ///
    /// # Errors
    /// The system's error.
    pub fn stat(&self, name: &Component) -> io::Result<Metadata> {
        let mut metadata = Metadata::of_entry(&self.fd, &*self.spelled(name)?, NO_FOLLOW)?;
        if self.fake_super {
            fake_super::uncover(&mut metadata, &self.place_of(name)?)?;
        }
        Ok(metadata)
    }

    /// Returns the way to an entry's extended attributes.
    ///
    /// # Errors
    /// As [`Component::on_disk`].
    pub(crate) fn place_of<'a>(&'a self, name: &'a Component) -> io::Result<Place<'a>> {
        Ok(Place::Entry(self.fd.as_fd(), self.spelled(name)?))
    }

    /// Returns what the inode itself has, whatever a note of `fake_super` says.
    pub(crate) fn own_inode(&self) -> io::Result<Metadata> {
        stat_fd(self.fd.as_fd())
    }

    /// Sets the permission bits of the inode itself.
    pub(crate) fn set_inode_mode(&self, mode: u16) -> io::Result<()> {
        attributes::chmod(self.fd.as_fd(), self.handle(), mode)
    }

    /// Returns the way to the directory's own extended attributes.
    pub(crate) fn own_place(&self) -> Place<'_> {
        Place::of(self.fd.as_fd(), self.handle())
    }

    fn handle(&self) -> Handle {
        if self.path_only { Handle::PathOnly } else { Handle::Open }
    }

    /// Lists all entries with their attributes, sorted by the bytes of their names.
    ///
    /// Never fails as a whole: see [`Listing::complete`]. Reads attributes in inode order, which
    /// saves most seeks on a disk with a cold cache.
    pub fn list(&self) -> Listing {
        // Use a separate handle, because the position in a directory belongs to the open file
        // description and several threads may list at once.
        match self.readable() {
            Ok(own) => own.list_once(),
            Err(error) => Listing { entries: Vec::new(), complete: false, error: Some(error) },
        }
    }

    /// Lists as [`list`](Self::list) does, through a handle that is listed only here and only once.
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

    /// Lists at most so many regular files with their attributes, in no order; those that cannot be
    /// looked at are left out, and so are dsync's own.
    pub fn some_files(&self, most: usize) -> Vec<(Component, Metadata)> {
        let Ok(own) = self.readable() else { return Vec::new() };
        let mut names = Vec::new();
        let may_be_file = |kind: Option<Kind>| kind.is_none_or(|kind| kind == Kind::File);
        let _ = own.for_each_name_once(&mut true, |name, _, kind| {
            if names.len() < most && may_be_file(kind) && !is_own_name(name.as_bytes()) {
                names.push(name);
            }
        });
        let stat = |name: Component| own.stat(&name).ok().map(|metadata| (name, metadata));
        names.into_iter().filter_map(stat).filter(|(_, metadata)| metadata.kind == Kind::File).collect()
    }

    /// Lists the names that `wanted` accepts, in no order.
    ///
    /// # Errors
    /// The system's error, also if it comes after some names.
    pub(crate) fn names_where(&self, wanted: impl Fn(&Component) -> bool) -> io::Result<Vec<Component>> {
        let mut names = Vec::new();
        let error = self.readable()?.for_each_name_once(&mut true, |name, _, _| {
            if wanted(&name) {
                names.push(name);
            }
        });
        error.map_or(Ok(names), Err)
    }

    /// Calls `each` with every name, its inode number and, if the filesystem reports it, its type.
    /// Clears `complete` for a name that is not a valid component. For a handle that is listed only
    /// here and only once.
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
                    _ => match Component::from_kernel(entry.file_name(), self.spelling.as_ref()) {
                        Some(name) => each(name, entry.ino(), Kind::from_file_type(entry.file_type())),
                        None => *complete = false,
                    },
                },
            }
        }

        None
    }

    /// Returns the text of a symbolic link; one without a [spelling](Self::with_spelling) is
    /// [unspelled](crate::is_unspelled).
    ///
    /// # Errors
    /// The system's error; `EINVAL` if the entry is not a link.
    pub fn read_link(&self, name: &Component) -> io::Result<Vec<u8>> {
        let text = match readlinkat(&self.fd, &*self.spelled(name)?, Vec::with_capacity(256)) {
            Err(Errno::INVAL) if self.fake_super => self.read_kept_link(name)?,
            text => text?.into_bytes(),
        };
        Ok(match &self.spelling {
            Some(spelling) => spelling.to_there(&text).into_owned(),
            None => text,
        })
    }

    /// Returns a link's text as it is written here.
    pub(crate) fn spelled_text<'t>(&self, text: &'t [u8]) -> io::Result<Cow<'t, [u8]>> {
        match self.spelling {
            Some(spelling) => spelling.to_here(text).ok_or_else(unspellable),
            None => Ok(Cow::Borrowed(text)),
        }
    }

    /// Returns the text of a link that is kept in a file.
    fn read_kept_link(&self, name: &Component) -> io::Result<Vec<u8>> {
        let mut text = vec![0; MAX_LINK_TEXT + 1];
        let len = self.open_source(name)?.read_full_at(0, &mut text)?;
        text.truncate(len);
        if (1..=MAX_LINK_TEXT).contains(&len) && !text.contains(&0) {
            Ok(text)
        } else {
            Err(fake_super::damaged())
        }
    }

    /// Opens a regular file for reading. Neither waits for nor reads a fifo or device that took its
    /// place.
    ///
    /// # Errors
    /// The system's error; [`InvalidInput`](io::ErrorKind::InvalidInput) if the entry is of another
    /// type, including a link (see [`is_wrong_type`]).
    pub fn open_source(&self, name: &Component) -> io::Result<SourceFile> {
        self.open_source_as(name, Opening::default())
    }

    /// Opens a file as [`open_source`](Self::open_source) does, but without changing its access
    /// time when it is read. Only the file's owner and root may request that; for others it works
    /// as `open_source`.
    ///
    /// # Errors
    /// As `open_source`.
    pub fn open_source_noatime(&self, name: &Component) -> io::Result<SourceFile> {
        self.open_source_as(name, Opening { noatime: true, devices: false })
    }

    /// Opens a file as [`open_source`](Self::open_source) does, in the way that a run asks for.
    ///
    /// # Errors
    /// As `open_source`.
    pub fn open_source_as(&self, name: &Component, how: Opening) -> io::Result<SourceFile> {
        match self.open_source_with(name, how.flags(), how) {
            Err(error) if how.noatime && Errno::from_io_error(&error) == Some(Errno::PERM) => {
                self.open_source_with(name, OFlags::empty(), how)
            }
            result => result,
        }
    }

    fn open_source_with(&self, name: &Component, extra: OFlags, how: Opening) -> io::Result<SourceFile> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let flags = flags | extra;
        let name = self.spelled(name)?;
        match retry_leased(|| openat(&self.fd, &*name, flags, Mode::empty())) {
            Ok(fd) => SourceFile::of(fd, how.devices)?.ok_or_else(wrong_type),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => Err(wrong_type()),
            Err(error) => Err(refusal(error, how)),
        }
    }

    /// Sets attributes of an entry that must be of type `kind`; does not follow links.
    ///
    /// # Errors
    /// The system's error; [`InvalidInput`](io::ErrorKind::InvalidInput) if the entry is of another
    /// type (see [`is_wrong_type`]).
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

    /// Returns a handle of an entry that does not touch it, and the attributes of its inode.
    pub(crate) fn open_path(&self, name: &Component) -> io::Result<(OwnedFd, Metadata)> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = self.spelled(name)?;
        let fd = retry(|| openat(&self.fd, &*name, flags, Mode::empty()))?;
        let now = stat_fd(fd.as_fd())?;
        Ok((fd, now))
    }

    /// Sets the wanted attributes of an entry of the directory, whose inode has the attributes
    /// `now`.
    pub(crate) fn apply(
        &self,
        fd: BorrowedFd<'_>,
        handle: Handle,
        now: &Metadata,
        wanted: &Wanted,
    ) -> io::Result<Withheld> {
        // A real link, device or fifo cannot hold kept attributes.
        if self.fake_super && matches!(now.kind, Kind::File | Kind::Dir) {
            fake_super::apply(fd, handle, now, None, wanted)
        } else {
            attributes::apply(fd, handle, now, wanted)
        }
    }

    /// Sets attributes of the directory itself.
    ///
    /// # Errors
    /// The system's error.
    pub fn set_own_attributes(&self, wanted: &Wanted) -> io::Result<Withheld> {
        self.apply(self.fd.as_fd(), self.handle(), &stat_fd(self.fd.as_fd())?, wanted)
    }

    /// Writes the directory's names to the disk.
    ///
    /// # Errors
    /// The system's error. A failed sync is final: a second, successful one proves nothing.
    pub fn sync(&self) -> io::Result<()> {
        if self.path_only {
            return self.readable()?.sync();
        }
        Ok(fsync(&self.fd)?)
    }

    /// Writes everything of the directory's filesystem to the disk, data and names.
    ///
    /// The kernel reports write errors since this handle was opened. For a group of writes, use one
    /// handle that was opened before the first.
    ///
    /// # Errors
    /// As [`Dir::sync`].
    pub fn sync_filesystem(&self) -> io::Result<()> {
        if self.path_only {
            return self.readable()?.sync_filesystem();
        }
        if sys::has_syncfs() {
            return Ok(syncfs(&self.fd)?);
        }
        // The oldest call of all, which tells of no error: files and directories are synced by themselves then.
        rustix::fs::sync();
        Ok(())
    }

    /// Returns whether a sync of the whole filesystem is not enough: one in user space (FUSE) hears of syncs of
    /// files and directories only, and a sandbox may not know the call.
    pub(crate) fn is_synced_by_file(&self) -> bool {
        self.is_in_user_space() || !sys::has_syncfs()
    }

    /// Returns whether the filesystem is in user space (FUSE). Asks the kernel once.
    fn is_in_user_space(&self) -> bool {
        *self.in_user_space.get_or_init(|| fstatfs(&self.fd).is_ok_and(|found| found.f_type == FUSE))
    }

    /// Returns whether the inode numbers of its entries tell them apart for as long as they live. A
    /// filesystem in user space (FUSE) may number an entry anew, and names of one entry differently.
    pub fn numbers_inodes(&self) -> bool {
        !self.is_in_user_space()
    }

    /// Returns another handle of the same directory.
    ///
    /// # Errors
    /// The system's error, e.g. `EMFILE`.
    pub fn duplicate(&self) -> io::Result<Self> {
        let fd = self.fd.try_clone()?;
        let Self { path_only, own_links, fake_super, spelling, links, adds_only, .. } = *self;
        let made =
            Self { path_only, own_links, fake_super, spelling, links, adds_only, ..Self::new(fd, false) };
        let (reach, meter, typed) = (self.reach.clone(), self.meter.clone(), self.typed.clone());
        Ok(Self { reach, meter, typed, ..made })
    }

    /// Returns the number of the directory's filesystem. Asks the kernel once.
    ///
    /// # Errors
    /// The system's error.
    pub fn device(&self) -> io::Result<u64> {
        if let Some(&device) = self.device.get() {
            return Ok(device);
        }
        let device = self.metadata()?.dev;
        Ok(*self.device.get_or_init(|| device))
    }

    fn readable(&self) -> io::Result<Self> {
        let fd = retry(|| openat(&self.fd, c".", LIST_FLAGS, Mode::empty()))?;
        Ok(Self {
            fake_super: self.fake_super,
            spelling: self.spelling,
            links: self.links,
            reach: self.reach.of_child(),
            adds_only: self.adds_only,
            meter: self.meter.clone(),
            ..Self::new(fd, false)
        })
    }
}

/// The type that `fstatfs` returns for filesystems in user space.
const FUSE: rustix::fs::FsWord = 0x6573_5546;

/// Takes a sync that a filesystem does not know for one that was made.
pub(crate) fn unless_unknown(synced: io::Result<()>) -> io::Result<()> {
    match synced {
        Err(error)
            if matches!(
                Errno::from_io_error(&error),
                Some(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
            ) =>
        {
            Ok(())
        }
        synced => synced,
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns whether a directory could not be opened because another entry, or a link, has its name.
pub fn is_no_directory(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOTDIR | Errno::LOOP))
}

/// Returns whether this crate refused an entry because its type is not the expected one: it changed
/// since it was listed.
pub fn is_wrong_type(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<WrongType>())
}

#[derive(Debug, thiserror::Error)]
#[error("its type changed")]
struct WrongType;

pub(crate) fn wrong_type() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, WrongType)
}

/// Returns the error for an entry that could not be opened: a socket, or a device without a driver,
/// is of the wrong type unless devices are opened.
fn refusal(error: io::Error, how: Opening) -> io::Error {
    let is_absent = Errno::from_io_error(&error) == Some(Errno::NXIO);
    if is_absent && !how.devices { wrong_type() } else { error }
}

/// Waits until the filesystem's later timestamps will exceed the returned time: a filesystem
/// records the time of the last tick.
fn a_moment_that_has_passed() -> Timestamp {
    let now = |clock| {
        let now = clock_gettime(clock);
        Timestamp { seconds: now.tv_sec, nanoseconds: u32::try_from(now.tv_nsec).unwrap_or_default() }
    };
    let moment = now(ClockId::Realtime);
    for _ in 0..LONGEST_TICK_MS {
        if now(ClockId::RealtimeCoarse) > moment {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    moment
}

/// Time in which the coarse clock advances, unless somebody sets it, in milliseconds.
const LONGEST_TICK_MS: u32 = 100;

/// Returns the attributes of names, in their order. Reads them in inode order, which saves most
/// seeks on a disk with a cold cache. An attribute is `None` if `dir_of` has no directory for its
/// name.
pub(crate) fn stat_in_disk_order<'a>(
    names: &[Name],
    dir_of: impl Fn(&Name) -> Option<&'a Dir>,
) -> Vec<Option<io::Result<Metadata>>> {
    let mut stats: Vec<_> = names.iter().map(|_| None).collect();
    let mut order: Vec<_> = names.iter().zip(&mut stats).collect();
    order.sort_by_key(|(name, _)| name.ino);
    for (name, stat) in order {
        *stat = dir_of(name).map(|dir| dir.stat(&name.name));
    }
    stats
}

/// Returns whether [`Dir::make_hard_link`] failed because the entry cannot have another name there:
/// it has the most that its filesystem allows, is on another filesystem, or is on one without hard
/// links.
pub fn cannot_link(error: &io::Error) -> bool {
    // Some filesystems in user space answer with EIO what they do not know.
    let refusals = [Errno::MLINK, Errno::XDEV, Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS, Errno::IO];
    Errno::from_io_error(error).is_some_and(|error| refusals.contains(&error))
}

const NO_FOLLOW: AtFlags = AtFlags::SYMLINK_NOFOLLOW.union(AtFlags::NO_AUTOMOUNT);

const LIST_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Bytes of names per `getdents64` call: about 1,500 names of 16 bytes.
const LIST_BUFFER: usize = 64 * 1024;

/// Longest text of a symbolic link on Linux, in bytes.
const MAX_LINK_TEXT: usize = 4095;

/// Opens one step of a path.
fn open_step<P: rustix::path::Arg + Copy>(at: BorrowedFd<'_>, path: P, extra: OFlags) -> io::Result<Dir> {
    retry(|| open_with(|flags| openat(at, path, flags | extra, Mode::empty())))
}

/// Opens a directory for reading, or only for passing through if reading is not allowed: `x`
/// without `r`, as other users' home directories often are.
fn open_with(open: impl Fn(OFlags) -> rustix::io::Result<OwnedFd>) -> rustix::io::Result<Dir> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let (fd, path_only) = match open(flags | OFlags::RDONLY) {
        Err(Errno::ACCESS) => (open(flags | OFlags::PATH)?, true),
        result => (result?, false),
    };
    Ok(Dir::new(fd, path_only))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    pub(super) fn name(text: &[u8]) -> Component {
        Component::new(text).unwrap()
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

    #[test]
    fn a_directory_with_a_spelling_has_its_names_in_the_other_set() {
        let scratch = tempfile::tempdir().unwrap();
        let plain = Dir::open_operand(scratch.path()).unwrap();
        let set = |name| crate::Charset::named(name).unwrap();
        let spelling = Spelling::new(set("latin1"), set("utf8"));
        let dir = Dir::open_operand(scratch.path()).unwrap().with_spelling(Some(spelling));
        let (here, there) = (name(b"h\xe9"), name("h\u{e9}".as_bytes()));

        dir.make_dir(&there, 0o755).unwrap();
        assert!(plain.stat(&here).is_ok() && dir.stat(&there).is_ok() && plain.stat(&there).is_err());
        let below = dir.open_child(&there).unwrap();
        let _ = below.make_symlink(&there, "\u{fc}".as_bytes(), &Wanted::default()).unwrap();
        assert_eq!(below.read_link(&there).unwrap(), "\u{fc}".as_bytes());
        let path = RelPath::from(there.clone());
        let deep = dir.open_beneath(&path).unwrap().duplicate().unwrap();
        assert_eq!(deep.list().entries[0].0, there);
        assert_eq!(plain.open_child(&here).unwrap().read_link(&here).unwrap(), b"\xfc");

        // A name that the disk's set cannot spell is refused before the kernel hears of it.
        let lost = name("\u{20ac}".as_bytes());
        let errno = |error: io::Error| Errno::from_io_error(&error);
        assert_eq!(errno(dir.make_dir(&lost, 0o755).unwrap_err()), Some(Errno::ILSEQ));
        assert_eq!(errno(dir.rename(&there, &lost).unwrap_err()), Some(Errno::ILSEQ));
        let text = dir.make_symlink(&name(b"l"), lost.as_bytes(), &Wanted::default());
        assert_eq!(errno(text.unwrap_err()), Some(Errno::ILSEQ));
        deep.remove_file(&there).unwrap();
        dir.remove_empty_dir(&there).unwrap();
        assert!(plain.list().entries.is_empty());
    }
}
