//! The memory of a process under attack: its largest resident size, and its files that are memory.

use std::{
    fs,
    os::unix::fs::MetadataExt,
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
}

impl Footprint {
    /// Starts to watch a process.
    pub fn watch(pid: u32) -> Self {
        let shared = Arc::new(Shared::default());
        let seen = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            while !seen.over.load(Ordering::Acquire) {
                seen.look(pid);
                thread::sleep(Duration::from_millis(3));
            }
        });
        Self { shared, thread: Some(thread) }
    }

    /// Returns the peaks so far.
    pub fn so_far(&self) -> Peak {
        let Shared { memory, memfds, spooled, .. } = &*self.shared;
        let [memory, memfds, spooled] = [memory, memfds, spooled].map(|seen| seen.load(Ordering::Acquire));
        Peak { memory, memfds, spooled }
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
