//! A filesystem that lets every reader wait, and counts how many wait at once.
//!
//! It shows a directory for reading only. A request for content or for names is answered when
//! enough others wait with it, or after a while: so a program that asks for one thing after the
//! other is slow, and one that asks ahead is not, on any machine.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs::{self, File},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyEntry, ReplyOpen, Request,
};

use crate::{
    skip::{self, is_root},
    stingy::{self, attr},
};

/// A mounted slow filesystem; unmounted when dropped.
#[derive(Debug)]
pub struct SlowDisk {
    session: Option<BackgroundSession>,
    reads: Arc<Queue>,
    listings: Arc<Queue>,
}

/// Requests of one kind that wait.
#[derive(Debug, Default)]
struct Queue {
    /// Number of waiting requests, and the largest number so far.
    waiting: Mutex<(usize, usize)>,
    company: Condvar,
}

impl SlowDisk {
    /// Shows the directory `backing` at `at`; returns `None`, recorded as a skip, if the process
    /// may not.
    ///
    /// # Panics
    /// If `backing` cannot be read.
    pub fn mount(backing: &Path, at: &Path) -> Option<Self> {
        Self::mount_with(backing, at, Reads::InCompany)
    }

    /// Does the same with content that is read in another way, and names that nobody waits for.
    ///
    /// # Panics
    /// If `backing` cannot be read.
    pub fn mount_with(backing: &Path, at: &Path, how: Reads) -> Option<Self> {
        let (reads, listings) = (Arc::default(), Arc::default());
        let root = attr(&File::open(backing).expect("the directory to show")).expect("its attributes");
        let nodes = HashMap::from([(INodeNo::ROOT, backing.to_owned())]);
        let shown = Shown {
            nodes: Mutex::new(nodes),
            root: root.ino,
            reads: Arc::clone(&reads),
            listings: Arc::clone(&listings),
            how,
        };
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("slow".to_owned()), MountOption::RO];
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        let session = is_root().then(|| fuser::spawn_mount(shown, at, &config).ok()).flatten();
        if session.is_none() {
            skip::record(skip::Reason::NeedsFuse);
        }
        session.map(|session| Self { session: Some(session), reads, listings })
    }

    /// Returns the largest number of reads of content that waited at once.
    pub fn reads_at_once(&self) -> usize {
        self.reads.most()
    }

    /// Returns the largest number of directories whose listings were waited for at once.
    pub fn listings_at_once(&self) -> usize {
        self.listings.most()
    }
}

/// The answer to a read of content.
#[derive(Debug)]
pub enum Reads {
    /// It comes when enough others wait with it, or after a while.
    InCompany,
    /// It comes at once, but for the reads that a gate keeps.
    Gated(Arc<Gate>),
    /// It comes at once, but for a file, named by the end of its path, that cannot be read from an
    /// offset on.
    Broken(PathBuf, u64),
}

/// A read that waits until another file is read, which shows that the two are read at once.
#[derive(Debug)]
pub struct Gate {
    /// The file of which reads wait, below the shown directory, and the offset that they wait from.
    pub closed: PathBuf,
    /// Offset from which the reads wait, in bytes.
    pub from: u64,
    /// The file whose first read opens the gate.
    pub opener: PathBuf,
    opened: Mutex<Opened>,
    changed: Condvar,
}

/// The state of a gate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Opened {
    /// Reads that have waited, or would have if the gate had not been open.
    pub passed: usize,
    /// Reads that nobody opened the gate for in minutes.
    pub stuck: usize,
    is_open: bool,
}

impl Gate {
    /// Closes a gate.
    pub fn new(closed: &str, from: u64, opener: &str) -> Arc<Self> {
        let (closed, opener) = (PathBuf::from(closed), PathBuf::from(opener));
        Arc::new(Self { closed, from, opener, opened: Mutex::default(), changed: Condvar::new() })
    }

    /// Returns the state.
    ///
    /// # Panics
    /// If a reader has panicked.
    pub fn state(&self) -> Opened {
        *self.opened.lock().expect("the gate")
    }

    fn pass(&self, path: &Path, end: u64) {
        let mut state = self.opened.lock().expect("the gate");
        if path.ends_with(&self.opener) {
            state.is_open = true;
            self.changed.notify_all();
        }
        if path.ends_with(&self.closed) && end > self.from {
            let closed = |state: &mut Opened| !state.is_open;
            let (mut state, waited) =
                self.changed.wait_timeout_while(state, PATIENCE, closed).expect("the gate");
            state.passed += 1;
            state.stuck += usize::from(waited.timed_out());
            state.is_open = true;
        }
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        let _ = self.session.take().map(BackgroundSession::umount_and_join);
    }
}

impl Queue {
    /// Waits for company, or a while.
    fn wait(&self) {
        let mut waiting = self.waiting.lock().expect("the queue");
        waiting.0 += 1;
        waiting.1 = waiting.1.max(waiting.0);
        self.company.notify_all();
        let (mut waiting, _) =
            self.company.wait_timeout_while(waiting, DELAY, |(now, _)| *now < ENOUGH).expect("the queue");
        waiting.0 -= 1;
    }

    fn most(&self) -> usize {
        self.waiting.lock().expect("the queue").1
    }
}

/// The shown directory.
struct Shown {
    nodes: Mutex<HashMap<INodeNo, PathBuf>>,
    /// The real inode number of the root, which has another here.
    root: INodeNo,
    reads: Arc<Queue>,
    listings: Arc<Queue>,
    how: Reads,
}

impl Filesystem for Shown {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.set_max_background(u16::try_from(2 * THREADS).expect("a small number"));
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS | InitFlags::FUSE_ASYNC_READ);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let path = self.path(parent).join(name);
        match look(&path) {
            Ok(found) => {
                self.nodes.lock().expect("the nodes").insert(found.ino, path);
                reply.entry(&CACHED, &found, Generation(0));
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match look(&self.path(ino)) {
            Ok(found) => reply.attr(&CACHED, &FileAttr { ino, ..found }),
            Err(error) => reply.error(error.into()),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
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
        let (path, end) = (self.path(ino), offset + u64::from(asked));
        let mut is_readable = true;
        match &self.how {
            Reads::InCompany => self.reads.wait(),
            Reads::Gated(gate) => gate.pass(&path, end),
            Reads::Broken(file, from) => is_readable = !path.ends_with(file) || end <= *from,
        }
        let mut bytes = vec![0; asked as usize];
        match File::open(path).and_then(|file| file.read_at(&mut bytes, offset)) {
            Ok(read) if is_readable => reply.data(&bytes[..read]),
            _ => reply.error(Errno::EIO),
        }
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, last: u64, reply: ReplyDirectory) {
        if last == 0 && matches!(self.how, Reads::InCompany) {
            self.listings.wait();
        }
        stingy::list(&self.path(ino), last, reply, None);
    }
}

impl Shown {
    fn path(&self, ino: INodeNo) -> PathBuf {
        let ino = if ino == self.root { INodeNo::ROOT } else { ino };
        self.nodes.lock().expect("the nodes")[&ino].clone()
    }
}

fn look(path: &Path) -> io::Result<FileAttr> {
    let found = attr(&File::open(path)?)?;
    debug_assert!(fs::symlink_metadata(path).is_ok_and(|data| data.ino() == found.ino.0));
    Ok(found)
}

/// Threads that answer: more than requests that wait.
const THREADS: usize = 3 * ENOUGH;
/// Requests that do not wait any longer: more than dsync has threads where a disk is fast.
pub const ENOUGH: usize = 12;
/// Longest wait for company. A read that waits so long is slow by any measure.
const DELAY: Duration = Duration::from_millis(20);
/// Longest wait for a gate: far more than any machine needs.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time for which the kernel may cache answers.
const CACHED: Duration = Duration::from_secs(3600);
