//! The memory of a process under attack: its largest resident size, its files that are memory, and
//! what the kernel charges it for, where the test may make a control group.
//!
//! The group has a limit. The kernel drops pages of files to stay below it, and kills a process that needs
//! more: so what cannot be dropped is below it as well, whatever was charged on the way.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::run::peak_memory;

/// A watch over one process, until it is dropped or [finished](Self::finish).
#[derive(Debug)]
pub struct Footprint {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    charged: Option<ControlGroup>,
}

#[derive(Debug, Default)]
struct Shared {
    over: AtomicBool,
    memory: AtomicU64,
    memfds: AtomicU64,
    spooled: AtomicU64,
}

/// The peak values of a process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peak {
    /// Resident size, by `VmHWM` of proc(5).
    pub memory: u64,
    /// Files without a disk behind them (`memfd_create`).
    pub memfds: u64,
    /// Files on a disk without a name.
    pub spooled: u64,
    /// Everything that the kernel holds for it since it was watched, at most [`MOST_CHARGED`]: also
    /// buffers of pipes and sockets, and pages of files; `None` without a control group.
    pub charged: Option<u64>,
}

impl Footprint {
    /// Starts to watch a process.
    pub fn watch(pid: u32) -> Self {
        let shared = Arc::new(Shared::default());
        let seen = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            while !seen.over.load(Ordering::Acquire) {
                seen.look(pid);
                thread::sleep(LOOK_EVERY);
            }
            seen.look(pid);
        });
        Self { shared, thread: Some(thread), charged: ControlGroup::of(pid) }
    }

    /// Returns the peaks so far.
    pub fn so_far(&self) -> Peak {
        let Shared { memory, memfds, spooled, .. } = &*self.shared;
        let [memory, memfds, spooled] = [memory, memfds, spooled].map(|seen| seen.load(Ordering::Acquire));
        Peak { memory, memfds, spooled, charged: self.charged.as_ref().and_then(ControlGroup::peak) }
    }

    /// Ends the watch; returns the peaks.
    pub fn finish(mut self) -> Peak {
        self.end();
        self.so_far()
    }

    fn end(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Footprint {
    fn drop(&mut self) {
        self.end();
    }
}

/// A memory control group of one process.
#[derive(Debug)]
struct ControlGroup {
    pid: u32,
    above: PathBuf,
    own: PathBuf,
}

impl ControlGroup {
    /// Moves a process into a group of its own; `None` where this is no version 1 hierarchy, or not
    /// permitted.
    fn of(pid: u32) -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let within = groups.lines().find_map(|line| line.split_once(":memory:"))?.1;
        let above = PathBuf::from("/sys/fs/cgroup/memory").join(within.trim_start_matches('/'));
        // Those of processes that were not reaped in time; one that is in use stays.
        for entry in fs::read_dir(&above).ok()?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(GROUPS) {
                let _ = fs::remove_dir(entry.path());
            }
        }
        let own = above.join(format!("{GROUPS}{pid}"));
        fs::create_dir(&own).ok()?;
        fs::write(own.join("memory.limit_in_bytes"), MOST_CHARGED.to_string()).ok()?;
        let group = Self { pid, above, own };
        fs::write(group.own.join("cgroup.procs"), pid.to_string()).is_ok().then_some(group)
    }

    fn peak(&self) -> Option<u64> {
        fs::read_to_string(self.own.join("memory.max_usage_in_bytes")).ok()?.trim().parse().ok()
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // A group with a process in it cannot be removed.
        let _ = fs::write(self.above.join("cgroup.procs"), self.pid.to_string());
        let _ = fs::remove_dir(&self.own);
    }
}

/// The most that the kernel may hold for a process, in bytes: it reclaims pages of files, then kills.
pub const MOST_CHARGED: u64 = 300 << 20;
/// Time between two looks. The largest resident size is the kernel's own count and waits for the next one;
/// a look costs some hundred microseconds of a processor.
const LOOK_EVERY: Duration = Duration::from_millis(15);
/// Beginning of the groups' names.
const GROUPS: &str = "dsync-tests-";

impl Shared {
    fn look(&self, pid: u32) {
        self.memory.fetch_max(peak_memory(pid), Ordering::AcqRel);
        let (mut memfds, mut spooled) = (0, 0);
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let Ok(target) = fs::read_link(entry.path()) else { continue };
            let target = target.to_string_lossy().into_owned();
            let bytes = || fs::metadata(entry.path()).map_or(0, |file| file.blocks() * 512);
            if target.starts_with("/memfd:") {
                memfds += bytes();
            } else if target.ends_with(" (deleted)") {
                spooled += bytes();
            }
        }
        self.memfds.fetch_max(memfds, Ordering::AcqRel);
        self.spooled.fetch_max(spooled, Ordering::AcqRel);
    }
}
