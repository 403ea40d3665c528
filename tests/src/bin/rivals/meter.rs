//! Measures one run at both of its ends.

use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use dsync_tests::{Lab, Run, run::Running, run::peak_memory};

use crate::tool::{Server, Tool};

/// Ticks of the kernel's processor accounts per second: 100 on every Linux that this runs on.
const TICKS: f64 = 100.0;

/// Time for which processes are sampled often: a run of a second soon has its last moment.
const EARLY: Duration = Duration::from_secs(1);

/// The measurements of one run.
#[derive(Debug, Clone)]
pub(crate) struct Measure {
    /// Time from the start of the command to its end.
    pub(crate) wall: Duration,
    /// Processor seconds of the command and its descendants.
    pub(crate) cpu_here: f64,
    /// Processor seconds of sshd's session or the server, and its descendants.
    pub(crate) cpu_there: f64,
    /// Bytes that crossed the path, headers included, both directions.
    pub(crate) wire_bytes: u64,
    /// Largest resident size of a process here, except ssh's, in bytes.
    pub(crate) peak_here: u64,
    /// The same at the other end.
    pub(crate) peak_there: u64,
}

/// The variables for a tool's scripts.
pub(crate) type Words = Vec<(&'static str, String)>;

/// A meter for runs in one lab.
pub(crate) struct Meter<'a> {
    pub(crate) lab: &'a Lab,
    /// Whether a run includes the sync of the disk that it has written to.
    pub(crate) syncs: bool,
}

impl Meter<'_> {
    /// Runs a tool to its end. With `change`, runs it once more before, and then makes the change;
    /// neither counts.
    ///
    /// # Errors
    /// The tool's output if it failed.
    pub(crate) fn measure(
        &self,
        tool: &Tool,
        words: &Words,
        change: Option<&dyn Fn()>,
    ) -> Result<Measure, String> {
        let daemon = self.lab.sshd().daemon_id();
        let server = tool.server.as_ref().map(|server| self.serve(server, words)).transpose()?;
        let far = server.as_ref().map_or(daemon, Running::id);
        if let Some(change) = change {
            let first = script(tool.near, words).within(self.lab.near()).run();
            if first.code() != Some(0) {
                server.into_iter().for_each(end);
                return Err(first.account());
            }
            change();
            let _ = Run::of("sync").run();
        }
        self.wait_for_sessions();
        let own = std::process::id();
        let (here_before, there_before, wire) =
            (children_cpu(own), self.cpu_there(server.as_ref()), self.wire_bytes());
        let since = Instant::now();
        let near = if self.syncs {
            format!("{{ {}\n}} && sync -f \"$DST\"", tool.near)
        } else {
            tool.near.to_owned()
        };
        let run = script(&near, words).within(self.lab.near()).limit(Duration::from_secs(1800)).start();
        let here = Sampler::start(run.id(), false);
        let there = Sampler::start(far, server.is_none());
        let outcome = run.wait();
        if tool.server.as_ref().is_some_and(|server| server.ends) {
            wait_for_end(far);
        }
        let wall = since.elapsed();
        self.wait_for_sessions();
        let measure = Measure {
            wall,
            cpu_here: children_cpu(own) - here_before,
            cpu_there: self.cpu_there(server.as_ref()) - there_before,
            wire_bytes: self.wire_bytes() - wire,
            peak_here: here.stop(),
            peak_there: there.stop(),
        };
        if let Some(server) = server {
            end(server);
        }
        if outcome.code() == Some(0) { Ok(measure) } else { Err(outcome.account()) }
    }

    /// Starts a server on the far host and waits until it listens.
    fn serve(&self, server: &Server, words: &Words) -> Result<Running, String> {
        let run =
            script(server.script, words).within(self.lab.far()).limit(Duration::from_secs(1800)).start();
        let port = format!(":{:04X} ", server.port);
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(10) {
            let files = ["/proc/self/net/tcp", "/proc/self/net/udp"];
            let listening = Run::of("cat").args(files).within(self.lab.far()).run().stdout_text();
            // The listener's own column comes first; state 0A listens, 07 is a UDP socket.
            if listening
                .lines()
                .any(|line| line.contains(&port) && (line.contains(" 0A ") || line.contains(" 07 ")))
            {
                return Ok(run);
            }
            thread::sleep(Duration::from_millis(20));
        }
        end(run);
        Err(format!("the server does not listen on port {}", server.port))
    }

    /// Waits until the daemon has reaped its sessions, because only then its account includes them.
    fn wait_for_sessions(&self) {
        let since = Instant::now();
        while descendants(self.lab.sshd().daemon_id()).len() > 1 && since.elapsed() < Duration::from_secs(10)
        {
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn cpu_there(&self, server: Option<&Running>) -> f64 {
        let served = server.map_or(0.0, |server| descendants(server.id()).keys().map(|pid| cpu(*pid)).sum());
        children_cpu(self.lab.sshd().daemon_id()) + served
    }

    fn wire_bytes(&self) -> u64 {
        self.lab.counts().iter().map(|counts| counts.offered_bytes).sum()
    }
}

fn script(text: &str, words: &Words) -> Run {
    let run = Run::of("sh").args(["-c", text]);
    words.iter().fold(run, |run, (name, value)| run.env(name, value))
}

/// Waits until a process has ended but leaves it unreaped, so that its account can still be read.
fn wait_for_end(pid: u32) {
    let since = Instant::now();
    let alive = || fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    while alive() && since.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(5));
    }
}

/// Ends a server and all its descendants.
fn end(server: Running) {
    for pid in descendants(server.id()).keys() {
        dsync_tests::run::send(*pid, rustix::process::Signal::TERM);
    }
    let _ = server.wait();
}

/// Returns the median of some figures.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    if figures.len() % 2 == 1 { figures[middle] } else { f64::midpoint(figures[middle - 1], figures[middle]) }
}

/// Samples the memory of a process and its descendants.
struct Sampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Sampler {
    fn start(root: u32, below_only: bool) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (mut peak, since) = (0, Instant::now());
            while !stopped.load(Ordering::Acquire) {
                let family = descendants(root);
                let counted = family.iter().filter(|(pid, name)| {
                    let is_root = **pid == root && below_only;
                    !is_root && !name.starts_with("ssh") && *name != "sh"
                });
                peak = counted.map(|(pid, _)| peak_memory(*pid)).fold(peak, u64::max);
                // Looking through all processes takes a millisecond or two of processors that the
                // ends use as well: every 20 ms it would cost two ends of ten seconds a fifteenth
                // of the machine. The kernel keeps a peak until the process ends, so only the
                // growth of the last moment is missed.
                let pause = if since.elapsed() < EARLY { 20 } else { 200 };
                thread::sleep(Duration::from_millis(pause));
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

/// Returns a process and its descendants, with their names.
pub(crate) fn descendants(root: u32) -> BTreeMap<u32, String> {
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

/// Returns the processor seconds of a process's children that ended and were waited for, and of
/// their children.
fn children_cpu(pid: u32) -> f64 {
    stat(pid).map_or(0.0, |(_, fields)| (fields[13] + fields[14]) as f64 / TICKS)
}

/// Returns the processor seconds of a process and its ended children.
fn cpu(pid: u32) -> f64 {
    stat(pid).map_or(0.0, |(_, fields)| fields[11..15].iter().sum::<u64>() as f64 / TICKS)
}

/// Returns a process's name and the numbers after it in its `stat`; the state letter counts as 0.
fn stat(pid: u32) -> Option<(String, Vec<u64>)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, tail) = text.rsplit_once(") ")?;
    let name = head.split_once('(')?.1.to_owned();
    let fields: Vec<u64> = tail.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
    (fields.len() > 15).then_some((name, fields))
}
