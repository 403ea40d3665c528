//! A filesystem that does less than requested, as POSIX permits every filesystem: its reads return
//! a part of the data, its writes take a part of theirs.
//!
//! It shows a directory of the machine's own disk at a mount point, as far as a copy of directories
//! and regular files needs it. There are no links, no extended attributes, and no way to remove a
//! directory. The limit per call goes up and down with each call, from 1 byte to 9001, almost never
//! a whole number of pages. On request, files cannot be read beyond some offset or end there, the case of a
//! name's letters does not count, or times are kept in steps.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{DirBuilderExt, DirEntryExt, FileExt, MetadataExt, PermissionsExt, fchown},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, SystemTime},
};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{CWD, RenameFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens, renameat_with};

use crate::skip::{self, is_root};

/// A mounted stingy filesystem; unmounted when dropped.
#[derive(Debug)]
pub struct Stingy {
    session: Option<BackgroundSession>,
    at: PathBuf,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    calls: AtomicU64,
    short_reads: AtomicU64,
    short_writes: AtomicU64,
    failed_reads: AtomicU64,
    synced_files: AtomicU64,
    synced_directories: AtomicU64,
}

impl Stingy {
    /// Shows the directory `backing` at `at`; returns `None`, recorded as a skip, if the process
    /// may not.
    ///
    /// # Panics
    /// If `backing` cannot be opened.
    pub fn mount(backing: &Path, at: &Path) -> Option<Self> {
        Self::mount_as(PLAIN, backing, at)
    }

    /// Mounts the same; reads of a file at `readable` bytes and beyond end with EIO.
    ///
    /// # Panics
    /// If `backing` cannot be opened.
    pub fn mount_readable_to(readable: u64, backing: &Path, at: &Path) -> Option<Self> {
        Self::mount_as(Quirks { readable, ..PLAIN }, backing, at)
    }

    /// Mounts the same; reads find the end of a file at `end` bytes, whatever its size says.
    ///
    /// # Panics
    /// If `backing` cannot be opened.
    pub fn mount_ending_at(end: u64, backing: &Path, at: &Path) -> Option<Self> {
        Self::mount_as(Quirks { end, ..PLAIN }, backing, at)
    }

    /// Mounts the same; a name finds the entry that has it in other case, as on FAT.
    ///
    /// # Panics
    /// If `backing` cannot be opened.
    pub fn mount_without_case(backing: &Path, at: &Path) -> Option<Self> {
        Self::mount_as(Quirks { folds: true, ..PLAIN }, backing, at)
    }

    /// Mounts the same; modification times are kept in steps of so many nanoseconds, and are set only
    /// together with access times, as the filesystems of libfuse 2 do that.
    ///
    /// # Panics
    /// If `backing` cannot be opened.
    pub fn mount_with_times_in(step: u32, backing: &Path, at: &Path) -> Option<Self> {
        Self::mount_as(Quirks { step: Some(step), ..PLAIN }, backing, at)
    }

    /// Mounts the same; modes and times cannot be set.
    ///
    /// # Panics
    /// If `backing` cannot be opened.
    pub fn mount_without_attributes(backing: &Path, at: &Path) -> Option<Self> {
        Self::mount_as(Quirks { refuses: true, ..PLAIN }, backing, at)
    }

    /// Mounts the same; each directory has a name more, which is longer than 255 bytes, as NTFS has them.
    ///
    /// # Panics
    /// If `backing` cannot be opened.
    pub fn mount_with_long_names(backing: &Path, at: &Path) -> Option<Self> {
        Self::mount_as(Quirks { has_long_names: true, ..PLAIN }, backing, at)
    }

    fn mount_as(quirks: Quirks, backing: &Path, at: &Path) -> Option<Self> {
        let counts = Arc::new(Counts::default());
        let root = File::open(backing).expect("the directory to show");
        let nodes = Mutex::new(HashMap::from([(INodeNo::ROOT, Arc::new(root))]));
        let shown = Shown { nodes, counts: Arc::clone(&counts), quirks };
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("stingy".to_owned())];
        let session = is_root().then(|| fuser::spawn_mount(shown, at, &config).ok()).flatten();
        if session.is_none() {
            skip::record(skip::Reason::NeedsFuse);
        }
        session.map(|session| Self { session: Some(session), at: at.to_owned(), counts })
    }

    /// Returns how many reads so far returned less than was requested and available.
    pub fn short_reads(&self) -> u64 {
        self.counts.short_reads.load(Ordering::Acquire)
    }

    /// Returns how many writes so far took less than was passed.
    pub fn short_writes(&self) -> u64 {
        self.counts.short_writes.load(Ordering::Acquire)
    }

    /// Returns how many files and how many directories it was asked to sync so far.
    pub fn syncs(&self) -> (u64, u64) {
        let Counts { synced_files, synced_directories, .. } = &*self.counts;
        (synced_files.load(Ordering::Acquire), synced_directories.load(Ordering::Acquire))
    }

    /// Returns how many reads so far began where nothing can be read.
    pub fn failed_reads(&self) -> u64 {
        self.counts.failed_reads.load(Ordering::Acquire)
    }
}

impl Drop for Stingy {
    fn drop(&mut self) {
        // The far end of a run may take a moment to leave it.
        let unmounts = || {
            let umount = Command::new("umount").arg(&self.at).stderr(Stdio::null()).status();
            umount.is_ok_and(|status| status.success())
        };
        for _ in 0..MOST_TRIES {
            if unmounts() {
                break;
            }
            thread::sleep(Duration::from_millis(100));
        }
        let _ = self.session.take().map(BackgroundSession::umount_and_join);
    }
}

impl Counts {
    /// Returns how many of `asked` bytes the next call may process.
    fn allow(&self, asked: usize) -> usize {
        let call = self.calls.fetch_add(1, Ordering::AcqRel);
        asked.min(usize::try_from(1 + call * 2477 % MOST).expect("a small number"))
    }
}

/// The shown directory. Each file that was named stays open until the end, whatever happens to its
/// name, so that its inode number belongs to no other.
struct Shown {
    nodes: Mutex<HashMap<INodeNo, Arc<File>>>,
    counts: Arc<Counts>,
    quirks: Quirks,
}

/// The ways in which it differs from other filesystems.
#[derive(Clone, Copy)]
struct Quirks {
    /// Offset from which on files cannot be read.
    readable: u64,
    /// Offset at which reads find the end of a file.
    end: u64,
    /// The case of letters does not count.
    folds: bool,
    /// Times are kept in steps of so many nanoseconds, and are set both or not at all.
    step: Option<u32>,
    /// Modes and times cannot be set.
    refuses: bool,
    /// Each directory also has a name that is longer than 255 bytes.
    has_long_names: bool,
}

const PLAIN: Quirks = Quirks {
    readable: u64::MAX,
    end: u64::MAX,
    folds: false,
    step: None,
    refuses: false,
    has_long_names: false,
};

impl Quirks {
    /// Returns the times that a call sets.
    fn times(self, atime: Option<TimeOrNow>, mtime: Option<TimeOrNow>) -> Timestamps {
        let both = atime.is_some() && mtime.is_some();
        let (mut last_access, mut last_modification) = (timespec(atime), timespec(mtime));
        if let Some(step) = self.step {
            match both {
                true => last_modification.tv_nsec -= last_modification.tv_nsec % i64::from(step),
                false => (last_access, last_modification) = (timespec(None), timespec(None)),
            }
        }
        Timestamps { last_access, last_modification }
    }
}

impl Filesystem for Shown {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.enter(parent, name) {
            Ok(attr) => reply.entry(&UNCACHED, &attr, Generation(0)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match attr(&self.node(ino)) {
            Ok(attr) => reply.attr(&UNCACHED, &attr),
            Err(error) => reply.error(error.into()),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let node = self.node(ino);
        if self.quirks.refuses && (mode.is_some() || atime.is_some() || mtime.is_some()) {
            return reply.error(fuser::Errno::ENOSYS);
        }
        let set = || {
            size.map_or(Ok(()), |size| node.set_len(size))?;
            fchown(&node, uid, gid)?;
            mode.map_or(Ok(()), |mode| node.set_permissions(Permissions::from_mode(mode & 0o7777)))?;
            futimens(&node, &self.quirks.times(atime, mtime))?;
            attr(&node)
        };
        match set() {
            Ok(attr) => reply.attr(&UNCACHED, &attr),
            Err(error) => reply.error(error.into()),
        }
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        match self.make(parent, name, mode, true) {
            Ok(attr) => reply.entry(&UNCACHED, &attr, Generation(0)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        match self.make(parent, name, mode, false) {
            Ok(attr) => reply.created(&UNCACHED, &attr, Generation(0), FileHandle(0), DIRECT),
            Err(error) => reply.error(error.into()),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(fs::remove_file(self.child(parent, name)), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: fuser::RenameFlags,
        reply: ReplyEmpty,
    ) {
        let flags = RenameFlags::from_bits_retain(flags.bits());
        let (old, new) = (self.child(parent, name), self.child(new_parent, new_name));
        answer(renameat_with(CWD, old, CWD, new, flags).map_err(Into::into), reply);
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), DIRECT);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        asked: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.read_short(ino, offset, asked) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.write_short(ino, offset, bytes) {
            Ok(taken) => reply.written(taken),
            Err(error) => reply.error(error.into()),
        }
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.counts.synced_files.fetch_add(1, Ordering::AcqRel);
        answer(self.node(ino).sync_all(), reply);
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.counts.synced_directories.fetch_add(1, Ordering::AcqRel);
        answer(self.node(ino).sync_all(), reply);
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, last: u64, reply: ReplyDirectory) {
        let long = "\u{6f22}".repeat(86);
        list(&self.path(ino), last, reply, self.quirks.has_long_names.then_some(&long));
    }
}

impl Shown {
    fn node(&self, ino: INodeNo) -> Arc<File> {
        Arc::clone(&self.nodes.lock().expect("the nodes")[&ino])
    }

    /// Returns a path that leads to an open file without its name.
    fn path(&self, ino: INodeNo) -> PathBuf {
        format!("/proc/self/fd/{}", self.node(ino).as_raw_fd()).into()
    }

    fn child(&self, parent: INodeNo, name: &OsStr) -> PathBuf {
        let dir = self.path(parent);
        let names = self.quirks.folds.then(|| fs::read_dir(&dir).expect("a directory").flatten());
        let mut names = names.into_iter().flatten().map(|entry| entry.file_name());
        let found = names.find(|other| other.eq_ignore_ascii_case(name));
        dir.join(found.as_deref().unwrap_or(name))
    }

    fn enter(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let path = self.child(parent, name);
        let is_dir = fs::symlink_metadata(&path)?.is_dir();
        let node = OpenOptions::new().read(true).write(!is_dir).open(path)?;
        let attr = attr(&node)?;
        self.nodes.lock().expect("the nodes").entry(attr.ino).or_insert_with(|| Arc::new(node));
        Ok(attr)
    }

    fn read_short(&self, ino: INodeNo, offset: u64, asked: u32) -> io::Result<Vec<u8>> {
        let readable = self.quirks.readable.saturating_sub(offset);
        if readable == 0 {
            self.counts.failed_reads.fetch_add(1, Ordering::AcqRel);
            return Err(rustix::io::Errno::IO.into());
        }
        let most = readable.min(self.quirks.end.saturating_sub(offset));
        let (node, asked) = (self.node(ino), u64::from(asked).min(most) as usize);
        if asked == 0 {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; self.counts.allow(asked)];
        let len = node.read_at(&mut bytes, offset)?;
        bytes.truncate(len);
        if len < asked && offset + (len as u64) < node.metadata()?.len() {
            self.counts.short_reads.fetch_add(1, Ordering::AcqRel);
        }
        Ok(bytes)
    }

    fn write_short(&self, ino: INodeNo, offset: u64, bytes: &[u8]) -> io::Result<u32> {
        let taken = self.counts.allow(bytes.len());
        self.node(ino).write_all_at(&bytes[..taken], offset)?;
        if taken < bytes.len() {
            self.counts.short_writes.fetch_add(1, Ordering::AcqRel);
        }
        Ok(u32::try_from(taken).expect("a small number"))
    }

    fn make(&self, parent: INodeNo, name: &OsStr, mode: u32, dir: bool) -> io::Result<FileAttr> {
        let path = self.child(parent, name);
        if dir {
            DirBuilder::new().mode(mode).create(&path)?;
        } else {
            OpenOptions::new().write(true).create_new(true).open(&path)?;
        }
        // The kernel has applied the caller's umask; ours must not count.
        fs::set_permissions(&path, Permissions::from_mode(mode & 0o7777))?;
        self.enter(parent, name)
    }
}

/// Lists the entries of a directory in the order of their inode numbers, so that a change meanwhile
/// moves none. One more name may come behind them.
pub(crate) fn list(dir: &Path, last: u64, mut reply: ReplyDirectory, more: Option<&String>) {
    let mut entries: Vec<_> = match fs::read_dir(dir) {
        Ok(entries) => entries.flatten().filter(|entry| entry.ino() > last).collect(),
        Err(error) => return reply.error(error.into()),
    };
    entries.sort_by_key(DirEntryExt::ino);
    for entry in entries {
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if reply.add(INodeNo(entry.ino()), entry.ino(), kind(is_dir), entry.file_name()) {
            return reply.ok();
        }
    }
    if let Some(name) = more.filter(|_| last < LAST) {
        let _ = reply.add(INodeNo(LAST), LAST, FileType::RegularFile, name);
    }
    reply.ok();
}

pub(crate) fn attr(node: &File) -> io::Result<FileAttr> {
    let data = node.metadata()?;
    Ok(FileAttr {
        ino: INodeNo(data.ino()),
        size: data.len(),
        blocks: data.blocks(),
        atime: data.accessed()?,
        mtime: data.modified()?,
        ctime: SystemTime::UNIX_EPOCH + Duration::new(data.ctime() as u64, data.ctime_nsec() as u32),
        crtime: SystemTime::UNIX_EPOCH,
        kind: kind(data.is_dir()),
        perm: (data.mode() & 0o7777) as u16,
        nlink: data.nlink() as u32,
        uid: data.uid(),
        gid: data.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    })
}

fn kind(is_dir: bool) -> FileType {
    if is_dir { FileType::Directory } else { FileType::RegularFile }
}

fn timespec(time: Option<TimeOrNow>) -> Timespec {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    match time {
        None => special(UTIME_OMIT),
        Some(TimeOrNow::Now) => special(UTIME_NOW),
        Some(TimeOrNow::SpecificTime(time)) => {
            let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            Timespec { tv_sec: since.as_secs() as i64, tv_nsec: since.subsec_nanos().into() }
        }
    }
}

fn answer(done: io::Result<()>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error.into()),
    }
}

/// Largest limit of a call in bytes: less than dsync ever reads or writes of a large file at once.
const MOST: u64 = 9001;

/// Without it the kernel would take a short read for the end of the file.
const DIRECT: FopenFlags = FopenFlags::FOPEN_DIRECT_IO;

/// Offset of the last name of a directory.
const LAST: u64 = i64::MAX as u64;

/// Time for which the kernel may cache answers: it asks anew each time.
const UNCACHED: Duration = Duration::ZERO;
/// Attempts to unmount, a tenth of a second apart.
const MOST_TRIES: u32 = 600;
