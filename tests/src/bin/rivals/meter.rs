//! Measuring one run at both of its ends.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use dsync_tests::{Run, Sshd, run::peak_memory};

/// Ticks of the kernel's processor accounts per second: 100 on every Linux that this runs on.
const TICKS: f64 = 100.0;

/// What one run took.
#[derive(Debug, Clone)]
pub(crate) struct Measure {
    /// From the start of the command to its end.
    pub(crate) wall: Duration,
    /// Processor seconds of the command and all that it started.
    pub(crate) cpu_here: f64,
    /// Processor seconds of sshd's session and all that it started.
    pub(crate) cpu_there: f64,
    /// Bytes that crossed the loopback, headers included, both directions.
    pub(crate) wire_bytes: u64,
    /// Largest resident size of a process here that is not ssh's, in bytes.
    pub(crate) peak_here: u64,
    /// The same at the other end.
    pub(crate) peak_there: u64,
}

/// Measures runs against one sshd.
pub(crate) struct Meter {
    daemon: u32,
}

impl Meter {
    /// A meter for runs that go to this sshd.
    pub(crate) fn new(sshd: &Sshd) -> Self {
        Self { daemon: sshd.daemon_id() }
    }

    /// Runs a command to its end.
    ///
    /// # Panics
    /// When it fails.
    pub(crate) fn measure(&self, argv: &[OsString]) -> Measure {
        self.wait_for_sessions();
        let own = std::process::id();
        let before = (children_cpu(own), children_cpu(self.daemon), loopback_bytes());
        let since = Instant::now();
        let run = Run::of(&argv[0]).args(&argv[1..]).limit(Duration::from_secs(1800)).start();
        let here = Sampler::start(run.id(), false);
        let there = Sampler::start(self.daemon, true);
        let outcome = run.wait();
        let wall = since.elapsed();
        assert!(outcome.code() == Some(0), "{}", outcome.account());
        self.wait_for_sessions();
        let (peak_here, peak_there) = (here.stop(), there.stop());
        Measure {
            wall,
            cpu_here: children_cpu(own) - before.0,
            cpu_there: children_cpu(self.daemon) - before.1,
            wire_bytes: loopback_bytes() - before.2,
            peak_here,
            peak_there,
        }
    }

    /// Waits until the daemon has reaped its sessions: only then are they in its account.
    fn wait_for_sessions(&self) {
        let since = Instant::now();
        while descendants(self.daemon).len() > 1 && since.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The middle of some figures.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    if figures.len() % 2 == 1 { figures[middle] } else { f64::midpoint(figures[middle - 1], figures[middle]) }
}

/// Samples the memory of a process and all below it.
struct Sampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Sampler {
    fn start(root: u32, below_only: bool) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut peak = 0;
            while !stopped.load(Ordering::Acquire) {
                let family = descendants(root);
                let counted = family.iter().filter(|(pid, name)| {
                    let is_root = **pid == root && below_only;
                    !is_root && !name.starts_with("ssh") && *name != "sh"
                });
                peak = counted.map(|(pid, _)| peak_memory(*pid)).fold(peak, u64::max);
                // Seldom enough to cost the run little, often enough for runs of a second.
                thread::sleep(Duration::from_millis(20));
            }
            peak
        });
        Self { stop, thread }
    }

    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("the sampler")
    }
}

/// A process and all below it, with their names.
fn descendants(root: u32) -> BTreeMap<u32, String> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if let Some((name, fields)) = stat(pid) {
            parents.push((pid, fields[1] as u32, name));
        }
    }
    let mut family: BTreeMap<u32, String> =
        parents.iter().filter(|(pid, ..)| *pid == root).map(|(pid, _, name)| (*pid, name.clone())).collect();
    let mut pending = vec![root];
    while let Some(parent) = pending.pop() {
        for (pid, above, name) in &parents {
            if *above == parent && *pid != root && !family.contains_key(pid) {
                family.insert(*pid, name.clone());
                pending.push(*pid);
            }
        }
    }
    family
}

/// Processor seconds of a process's children that ended and were waited for, and of theirs.
fn children_cpu(pid: u32) -> f64 {
    stat(pid).map_or(0.0, |(_, fields)| (fields[13] + fields[14]) as f64 / TICKS)
}

/// A process's name and the numbers after it in its `stat`; the state letter counts as 0.
fn stat(pid: u32) -> Option<(String, Vec<u64>)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, tail) = text.rsplit_once(") ")?;
    let name = head.split_once('(')?.1.to_owned();
    let fields: Vec<u64> = tail.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
    (fields.len() > 15).then_some((name, fields))
}

fn loopback_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let line = text.lines().find_map(|line| line.trim().strip_prefix("lo:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
