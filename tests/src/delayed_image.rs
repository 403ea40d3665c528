//! The image of a disk whose requests take their time, to be mounted through a loop device.
//!
//! One kind is a hard disk: it serves one request at a time, and each one that does not follow the
//! last one waits for the arm. The other one is a volume behind a network: every request takes a
//! round trip, and any number are on their way at once. Neither is a model of transfer rates.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};

use crate::{skip, stingy::attr};

/// The cost of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delay {
    /// One request at a time, and so long for each that does not begin where the last one ended.
    Seek(Duration),
    /// So long for each request, however many there are.
    RoundTrip(Duration),
}

/// A mounted image; unmounted when dropped.
#[derive(Debug)]
pub struct DelayedImage {
    session: Option<BackgroundSession>,
    path: PathBuf,
}

impl DelayedImage {
    /// Shows the image in the file `backing` in the directory `at`; returns `None`, recorded as a
    /// skip, if the process may not.
    ///
    /// # Panics
    /// If `backing` cannot be opened.
    pub fn mount(backing: &Path, at: &Path, delay: Delay) -> Option<Self> {
        let image = fs::File::options().read(true).write(true).open(backing).expect("the image");
        let root = attr(&File::open(at).expect("a mount point")).expect("its attributes");
        let shown = Shown { image, root, delay, arm: Mutex::default() };
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("delayed".to_owned())];
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        let session = skip::is_root().then(|| fuser::spawn_mount(shown, at, &config).ok()).flatten();
        if session.is_none() {
            skip::record(skip::Reason::NeedsFuse);
        }
        session.map(|session| Self { session: Some(session), path: at.join(NAME) })
    }

    /// Returns the path of the image.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for DelayedImage {
    fn drop(&mut self) {
        let _ = self.session.take().map(BackgroundSession::umount_and_join);
    }
}

struct Shown {
    image: File,
    root: FileAttr,
    delay: Delay,
    /// The offset at which the last request of a hard disk ended, in bytes.
    arm: Mutex<u64>,
}

impl Shown {
    /// Waits for the disk and makes a request of so many bytes at an offset.
    fn request<T>(&self, offset: u64, len: usize, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match self.delay {
            Delay::RoundTrip(time) => {
                thread::sleep(time);
                work()
            }
            Delay::Seek(time) => {
                let mut arm = self.arm.lock().unwrap_or_else(PoisonError::into_inner);
                if *arm != offset {
                    thread::sleep(time);
                }
                *arm = offset + len as u64;
                work()
            }
        }
    }

    fn attr(&self) -> io::Result<FileAttr> {
        Ok(FileAttr { ino: IMAGE, ..attr(&self.image)? })
    }
}

impl Filesystem for Shown {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.set_max_background(u16::try_from(2 * THREADS).expect("a small number"));
        // Else a loop device has one request under way.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attr() {
            Ok(found) if name == NAME => reply.entry(&CACHED, &found, Generation(0)),
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if ino == INodeNo::ROOT {
            let root = FileAttr { ino, kind: FileType::Directory, ..self.root };
            return reply.attr(&CACHED, &root);
        }
        match self.attr() {
            Ok(found) => reply.attr(&CACHED, &found),
            Err(error) => reply.error(error.into()),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        asked: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; asked as usize];
        match self.request(offset, bytes.len(), || self.image.read_at(&mut bytes, offset)) {
            Ok(read) => reply.data(&bytes[..read]),
            Err(error) => reply.error(error.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.request(offset, data.len(), || self.image.write_all_at(data, offset)) {
            Ok(()) => reply.written(u32::try_from(data.len()).expect("a request's length")),
            Err(error) => reply.error(error.into()),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }
}

/// Name of the image in the directory that shows it.
const NAME: &str = "image";
/// Its inode number.
const IMAGE: INodeNo = INodeNo(2);
/// Threads that answer: as many requests as a disk of today takes at once on one queue.
const THREADS: usize = 64;
/// Time for which the kernel may cache answers.
const CACHED: Duration = Duration::from_secs(3600);
