//! Runs of a program: started, watched, waited for, judged.

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::{ErrorKind, Read},
    mem,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::{
    namespace::Namespace,
    program::{is_stand_in, program},
};

/// Default time limit of a run: far more than any needs on the busiest machine, so that it ends
/// only a hang.
const LIMIT: Duration = Duration::from_secs(900);

/// Time limit for an event, likewise.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// Interval between checks of a running program's memory and time limit.
const SAMPLE: Duration = Duration::from_millis(5);

/// A program with its arguments, not yet started.
#[derive(Debug)]
pub struct Run {
    argv: Vec<OsString>,
    cwd: Option<OsString>,
    env: Vec<(OsString, OsString)>,
    prefix: Vec<OsString>,
    limit: Duration,
    has_group: bool,
}

impl Run {
    /// Makes a run of the program under test.
    pub fn dsync() -> Self {
        // rsync treats times in the same second as equal unless told otherwise; dsync never does.
        let exact = is_stand_in().then_some("--modify-window=-1");
        Self::of(program()).args(exact)
    }

    /// Makes a run of any program.
    pub fn of(program: impl AsRef<OsStr>) -> Self {
        Self {
            argv: vec![program.as_ref().to_owned()],
            cwd: None,
            env: Vec::new(),
            prefix: Vec::new(),
            limit: LIMIT,
            has_group: false,
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.argv.push(arg.as_ref().to_owned());
        self
    }

    /// Adds several arguments.
    #[must_use]
    pub fn args<I>(mut self, args: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        self.argv.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets the directory that the program starts in.
    #[must_use]
    pub fn cwd(mut self, dir: &Path) -> Self {
        self.cwd = Some(dir.as_os_str().to_owned());
        self
    }

    /// Sets one variable of its environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Runs it inside a network namespace.
    #[must_use]
    pub fn within(mut self, namespace: &Namespace) -> Self {
        self.prefix.extend(namespace.enter());
        self
    }

    /// Runs it as another user, with that user's primary group only.
    #[must_use]
    pub fn as_user(mut self, uid: u32, gid: u32) -> Self {
        let drop =
            ["setpriv".into(), format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".into()];
        self.prefix.extend(drop.into_iter().map(OsString::from));
        self
    }

    /// Runs it under a shell that prints the bytes read and written if it succeeded.
    #[must_use]
    pub fn counting_io(mut self) -> Self {
        let count = r#""$@" && cat /proc/$$/io"#;
        self.prefix.extend(["sh", "-c", count, "sh"].map(OsString::from));
        self
    }

    /// Makes another program, with its arguments, start it.
    #[must_use]
    pub fn behind(mut self, starter: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.prefix.extend(starter.into_iter().map(Into::into));
        self
    }

    /// Sets its time limit.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Starts it in a process group of its own: what it starts is then killed with it.
    pub fn in_own_group(mut self) -> Self {
        self.has_group = true;
        self
    }

    /// Starts it with an empty stdin and both outputs collected.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(self) -> Running {
        let argv: Vec<OsString> = self.prefix.into_iter().chain(self.argv).collect();
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("LC_ALL", "C").env("TZ", "UTC");
        // Scratch directories are elsewhere: a cage lets a run use this one whatever its operands are.
        command.env("TMPDIR", "/var/tmp");
        for name in ["DSYNC_LOG", "RSYNC_RSH", "RSYNC_OLD_ARGS", "RSYNC_PROTECT_ARGS", "SSH_CONNECTION"] {
            command.env_remove(name);
        }
        command.envs(self.env);
        if let Some(cwd) = self.cwd {
            command.current_dir(cwd);
        }
        if self.has_group {
            command.process_group(0);
        }
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {argv:?}: {error}"));
        let stdout = Collected::of(child.stdout.take().expect("stdout is piped"));
        let stderr = Collected::of(child.stderr.take().expect("stderr is piped"));
        let (since, limit, has_group) = (Instant::now(), self.limit, self.has_group);
        Running { argv, child, stdout, stderr, since, limit, has_group, peak_memory: 0 }
    }

    /// Starts it and waits for its end.
    ///
    /// # Panics
    /// If it cannot be started or hangs.
    pub fn run(self) -> Outcome {
        self.start().wait()
    }
}

/// A program that runs.
#[derive(Debug)]
pub struct Running {
    argv: Vec<OsString>,
    child: Child,
    stdout: Collected,
    stderr: Collected,
    since: Instant,
    limit: Duration,
    has_group: bool,
    peak_memory: u64,
}

impl Running {
    /// Returns its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether it has not ended yet.
    ///
    /// # Panics
    /// If the system does not report its state.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("the state of a child").is_none()
    }

    /// Returns whether its time limit has passed.
    pub fn is_late(&self) -> bool {
        self.since.elapsed() > self.limit
    }

    /// Returns whether it has said `words` on stderr so far.
    ///
    /// # Panics
    /// If the reader of stderr has.
    pub fn has_said(&self, words: &str) -> bool {
        String::from_utf8_lossy(&self.stderr.bytes.lock().expect("the reader of stderr")).contains(words)
    }

    /// Returns its child processes that have not ended.
    ///
    /// # Panics
    /// If it has ended itself.
    pub fn children(&self) -> Vec<u32> {
        // Each thread has its own.
        let tasks = fs::read_dir(format!("/proc/{}/task", self.id())).expect("its threads").flatten();
        let lists = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
        lists.collect::<String>().split_whitespace().filter_map(|word| word.parse().ok()).collect()
    }

    /// Sends it a signal; a process that has just ended is no error.
    pub fn signal(&self, signal: Signal) {
        send(self.child.id(), signal);
    }

    /// Sends its process group a signal, if that is its own.
    pub fn signal_group(&self, signal: Signal) {
        let group = i32::try_from(self.id()).ok().and_then(Pid::from_raw).filter(|_| self.has_group);
        if let Some(group) = group {
            let _ = kill_process_group(group, signal);
        }
    }

    /// Kills it, with its process group if that is its own, and waits for its end.
    pub fn kill(&mut self) {
        self.signal_group(Signal::KILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it takes longer than its limit: it is killed then.
    pub fn wait(mut self) -> Outcome {
        let status = self.wait_for_status();
        let elapsed = self.since.elapsed();
        Outcome {
            argv: self.argv,
            status,
            stdout: self.stdout.whole(),
            stderr: self.stderr.whole(),
            elapsed,
            peak_memory: self.peak_memory,
        }
    }

    fn wait_for_status(&mut self) -> ExitStatus {
        loop {
            self.peak_memory = self.peak_memory.max(peak_memory(self.child.id()));
            if let Some(status) = self.child.try_wait().expect("the state of a child") {
                return status;
            }
            if self.is_late() {
                self.kill();
                panic!("{:?} did not end within {} s", self.argv, self.limit.as_secs());
            }
            thread::sleep(SAMPLE);
        }
    }
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    argv: Vec<OsString>,
    status: ExitStatus,
    /// Everything written to stdout.
    pub stdout: Vec<u8>,
    /// Everything written to stderr.
    pub stderr: Vec<u8>,
    /// Wall time from start to end.
    pub elapsed: Duration,
    /// Largest resident size seen, in bytes.
    pub peak_memory: u64,
}

impl Outcome {
    /// Returns the exit code; `None` if a signal ended it.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Asserts the exit code.
    ///
    /// # Panics
    /// If it differs, with the whole output.
    #[must_use]
    pub fn expect_code(self, code: i32) -> Self {
        assert!(self.code() == Some(code), "expected exit code {code}\n{}", self.account());
        self
    }

    /// Asserts exit code 0 and an empty stderr, as cron needs it.
    ///
    /// # Panics
    /// If either differs.
    pub fn expect_quiet_success(self) -> Self {
        let outcome = self.expect_code(0);
        assert!(outcome.stderr.is_empty(), "expected nothing on stderr\n{}", outcome.account());
        outcome
    }

    /// Returns stdout, lossily decoded.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns stderr, lossily decoded.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Returns both outputs as one text.
    pub fn all_text(&self) -> String {
        self.stdout_text() + &self.stderr_text()
    }

    /// Returns the number after `label:` in the output of `--stats`, without its thousands
    /// separators.
    ///
    /// # Panics
    /// If there is no such line.
    pub fn stat(&self, label: &str) -> u64 {
        let text = self.stdout_text();
        let line = text.lines().find_map(|line| line.trim().strip_prefix(label)?.strip_prefix(':'));
        let line = line.unwrap_or_else(|| panic!("no '{label}:' in the statistics\n{}", self.account()));
        let digits = line.trim().split([' ', '(']).next().unwrap_or("").replace(',', "");
        digits.parse().unwrap_or_else(|_| panic!("'{label}:{line}' has no number"))
    }

    /// Returns command, status and outputs, for the message of an assertion.
    pub fn account(&self) -> String {
        let argv: Vec<_> = self.argv.iter().map(|arg| arg.to_string_lossy()).collect();
        let ended = match self.status.signal() {
            Some(signal) => format!("signal {signal}"),
            None => format!("code {:?}", self.status.code()),
        };
        let (stdout, stderr) = (self.stdout_text(), self.stderr_text());
        format!(
            "$ {}\n{ended} after {:?}\n-- stdout\n{stdout}\n-- stderr\n{stderr}",
            argv.join(" "),
            self.elapsed
        )
    }
}

/// Sends a signal to a process; it is no error if that is gone.
pub fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Waits until `seen` returns `true`.
///
/// # Panics
/// If that takes longer than [`PATIENCE`].
pub fn wait_for(mut seen: impl FnMut() -> bool) {
    let since = Instant::now();
    while !seen() {
        assert!(since.elapsed() < PATIENCE, "it did not come");
        thread::sleep(SAMPLE);
    }
}

/// Repeats `attempt` until it returns a result: `None` means that the machine did things in another
/// order this time, which is no failure.
///
/// # Panics
/// If no attempt succeeded within [`PATIENCE`].
pub fn until_met<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    let mut attempts = 0;
    loop {
        attempts += 1;
        if let Some(met) = attempt() {
            return met;
        }
        assert!(since.elapsed() < PATIENCE, "none of {attempts} attempts met it");
    }
}

/// Stops a process as soon as `seen` is true, and checks again. Returns `true` if it still is: the
/// process then stays in that state until it is continued or killed. Returns `false` if the process
/// has moved past it; it then runs on.
pub fn catch(pid: u32, mut seen: impl FnMut() -> bool) -> bool {
    wait_for(|| seen() || !is_alive(pid));
    send(pid, Signal::STOP);
    wait_for(|| is_stopped(pid) || !is_alive(pid));
    let caught = is_alive(pid) && seen();
    if !caught {
        send(pid, Signal::CONT);
    }
    caught
}

/// Returns whether a process lives; a zombie does not. It lives as long as one of its threads does,
/// which holds the files and locks of all: the first thread of a process that ends may go before others.
pub fn is_alive(pid: u32) -> bool {
    threads(pid).any(|state| !matches!(state, 'Z' | 'X'))
}

/// Returns whether every thread of a process is stopped: each first completes its current system
/// call.
pub fn is_stopped(pid: u32) -> bool {
    let mut states = threads(pid).peekable();
    states.peek().is_some() && states.all(|state| state == 'T')
}

/// Returns the state of each thread of a process.
fn threads(pid: u32) -> impl Iterator<Item = char> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| state(&task.path().to_string_lossy()))
}

/// Returns the letter for the state of a process or thread, by its directory in proc(5).
fn state(dir: &str) -> Option<char> {
    let stat = fs::read_to_string(format!("{dir}/stat")).ok()?;
    // The state follows the name, which may hold anything.
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Returns the largest resident size of a process so far in bytes; 0 if it is gone.
pub fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: Option<u64> = line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse().ok());
    kib.unwrap_or(0) * 1024
}

/// A watch over the memory of changing processes, named by their ids in a file, one a line.
#[derive(Debug)]
pub struct MemoryWatch {
    stop: Arc<AtomicBool>,
    peak: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl MemoryWatch {
    /// Starts to watch the processes that `pid_file` names now or later.
    pub fn start(pid_file: &Path) -> Self {
        let (stop, peak) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (file, stopped, seen) = (pid_file.to_owned(), Arc::clone(&stop), Arc::clone(&peak));
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                for pid in fs::read_to_string(&file).unwrap_or_default().lines() {
                    seen.fetch_max(pid.trim().parse().map_or(0, peak_memory), Ordering::AcqRel);
                }
                thread::sleep(SAMPLE);
            }
        });
        Self { stop, peak, thread: Some(thread) }
    }

    /// Stops; returns the largest resident size of any of them in bytes.
    ///
    /// # Panics
    /// If the watching thread did.
    pub fn stop(mut self) -> u64 {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the memory watch");
        }
        self.peak.load(Ordering::Acquire)
    }
}

/// An output that a thread reads while the program runs.
#[derive(Debug)]
struct Collected {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Collected {
    fn of(mut pipe: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let read = Arc::clone(&bytes);
        let reader = thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            loop {
                match pipe.read(&mut buffer) {
                    Ok(0) => return,
                    Ok(count) => read.lock().expect("its owner").extend_from_slice(&buffer[..count]),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => return,
                }
            }
        });
        Self { bytes, reader }
    }

    /// Waits for its end, and returns all of it.
    fn whole(self) -> Vec<u8> {
        self.reader.join().expect("the reader of an output");
        mem::take(&mut *self.bytes.lock().expect("the reader of an output"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_in_its_own_group_is_killed_with_what_it_started() {
        let mut run = Run::of("sh").args(["-c", "sleep 600 & wait"]).in_own_group().start();
        wait_for(|| !run.children().is_empty());
        let started = run.children();

        run.kill();

        for pid in started {
            // Its parent is gone: who takes it over may leave it as a zombie.
            let has_ended = || match fs::read_to_string(format!("/proc/{pid}/stat")) {
                Ok(state) => state.contains(") Z "),
                Err(_) => true,
            };
            wait_for(has_ended);
        }
    }
}
