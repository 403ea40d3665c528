//! The remote shell: its command line and the process that runs it.
//!
//! The command line is constant except for the host and the login name. Both are checked here even
//! if the caller did so before. No part of a path, a pattern or a file name ever comes near a
//! shell: the session's content stays inside the link.

use std::{
    collections::VecDeque,
    ffi::OsString,
    io,
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    path::Path,
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use dsync_wire::{link::Carrier, unprintable::is_unprintable};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open},
};
use tokio::{net::unix::pipe::Receiver, sync::Notify};

use crate::{
    AddressFamily, Carriers, ConnectError, error::ShellStatus, reactor::Attendance, text::printable,
};

/// The way to start `dsync --server` on another host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteShell {
    /// The shell's program and its own arguments. Usually `["ssh"]`.
    pub command: Vec<OsString>,
    /// Login name, if given.
    pub user: Option<String>,
    /// Host name, ssh alias or address (IPv6 without brackets).
    pub host: String,
    /// Addresses of the host that may be used; ssh gets `-4` or `-6`.
    pub family: AddressFamily,
    /// The command that starts dsync there, as the remote login shell reads it. Usually `dsync`. It
    /// may hold a path and arguments of its own, and the operator must quote it.
    pub remote_program: String,
    /// The label of the shell's own pipe. Usually [`Carrier::Ssh`].
    pub pipe: Carrier,
}

impl RemoteShell {
    /// Returns the whole command line:
    /// `command.. [-4 | -6] [-l user] -- host remote_program --server`.
    ///
    /// The program is one word and its option another, as rsync has them: ssh joins them for the host's login
    /// shell, and what runs its arguments as they are (`docker exec -i`) needs them apart.
    ///
    /// The `--` is present if the shell is ssh, also behind other programs (`sshpass -p x ssh`). A
    /// remote shell of another kind may not know it, and gets only hosts that cannot be read as an
    /// option.
    ///
    /// # Errors
    /// [`ConnectError::UnsafeName`], or [`ConnectError::ShellNotFound`] if `command` is empty.
    pub fn argv(&self) -> Result<Vec<OsString>, ConnectError> {
        self.words(&[&self.remote_program, "--server"])
    }

    /// Returns the line that runs `command` at the host, as [`argv`](Self::argv) does for a session's.
    ///
    /// # Errors
    /// As [`argv`](Self::argv).
    pub fn command_line(&self, command: &str) -> Result<Vec<OsString>, ConnectError> {
        self.words(&[command])
    }

    /// Returns the line that gives these words to the shell behind the host.
    fn words(&self, words: &[&str]) -> Result<Vec<OsString>, ConnectError> {
        check_name("host", &self.host)?;
        if self.command.first().is_none_or(|program| program.is_empty()) {
            return Err(ConnectError::ShellNotFound { program: String::new() });
        }
        let mut argv = self.command.clone();
        if self.is_ssh() {
            argv.extend(self.family.ssh_option().map(OsString::from));
        }
        if let Some(user) = &self.user {
            check_name("user", user)?;
            argv.extend(["-l".into(), user.into()]);
        }
        if self.is_ssh() {
            argv.push("--".into());
        }
        argv.push((&self.host).into());
        argv.extend(words.iter().map(OsString::from));
        Ok(argv)
    }

    fn is_ssh(&self) -> bool {
        self.command.iter().enumerate().any(|(position, word)| {
            let name = Path::new(word).file_name().unwrap_or_default().to_string_lossy();
            name == "ssh" || (position == 0 && name.contains("ssh"))
        })
    }

    /// Returns the program's name for messages.
    pub(crate) fn program(&self) -> String {
        let program = self.command.first().map(OsString::as_os_str).unwrap_or_default();
        printable(program.as_encoded_bytes(), NAME_CHARACTERS)
    }

    /// Returns the host for messages.
    pub(crate) fn host_text(&self) -> String {
        printable(self.host.as_bytes(), NAME_CHARACTERS)
    }
}

/// Refuses a name that a program could read as an option, or a shell (of a proxy command, say) as
/// more than one word.
fn check_name(what: &'static str, name: &str) -> Result<(), ConnectError> {
    let reason = if name.is_empty() {
        "it is empty"
    } else if name.starts_with('-') {
        "it would be read as an option"
    } else if name.chars().any(|c| is_unprintable(c) || c.is_whitespace()) {
        "it holds spaces or control characters"
    } else if name.char_indices().any(|(at, character)| is_of_a_shell(character, at, what, name)) {
        "it holds characters that mean something to a shell"
    } else if name.len() > MAX_NAME {
        "it is longer than 255 bytes"
    } else {
        return Ok(());
    };
    Err(ConnectError::UnsafeName { what, text: printable(name.as_bytes(), NAME_CHARACTERS), reason })
}

/// Returns whether a character of a name means something to a shell. A login name may have a backslash that is
/// not its last character (`DOMAIN\user`) and a `#` that is not its first, as OpenSSH lets it.
fn is_of_a_shell(character: char, at: usize, what: &str, name: &str) -> bool {
    let is_of_user = what == "user"
        && match character {
            '\\' => at + 1 < name.len(),
            '#' => at > 0,
            _ => false,
        };
    SHELL_CHARACTERS.contains(&character) && !is_of_user
}

/// The process of the remote shell. Dropping it waits for the process, which has lost its input by
/// then, and kills it if it does not end by itself. A [dismissed](Self::dismiss) process is left
/// alone.
pub(crate) struct ShellProcess {
    child: Arc<Mutex<Child>>,
    /// Shows when the process ends; `None` on a system that cannot tell.
    end: Option<OwnedFd>,
    stderr: Arc<Stderr>,
    /// Reads standard error; taken by whoever reaps the process.
    reading: Option<Attendance>,
    dismissed: AtomicBool,
    hurried: AtomicBool,
}

impl ShellProcess {
    /// Starts the shell by its whole command line; returns the process, its standard input and its
    /// standard output. One of `carriers` reads its standard error.
    pub(crate) fn start(
        shell: &RemoteShell,
        argv: &[OsString],
        heard: &ShellLines,
        carriers: &Carriers,
    ) -> Result<(Self, OwnedFd, OwnedFd), ConnectError> {
        let (program, arguments) = argv.split_first().ok_or_else(|| not_found(shell))?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => not_found(shell),
                _ => ConnectError::ShellNotStarted { program: shell.program(), source },
            })?;
        let system = |source| ConnectError::System { source };
        let stderr = Arc::new(Stderr::new(heard));
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        // Opened here, as a run may be in a cage when it waits.
        let number = Pid::from_raw(child.id().cast_signed());
        let end = number.and_then(|number| pidfd_open(number, PidfdFlags::empty()).ok());
        // From here on the child is reaped on every path.
        let child = Arc::new(Mutex::new(child));
        let (dismissed, hurried) = Default::default();
        let mut process = Self { child, end, stderr: Arc::clone(&stderr), reading: None, dismissed, hurried };
        let (Some(input), Some(output), Some(errors)) = pipes else {
            return Err(system(io::ErrorKind::BrokenPipe.into()));
        };

        let collect = async move { stderr.collect(errors).await };
        process.reading = Some(carriers.attend(collect).map_err(system)?);
        let (input, output) = (OwnedFd::from(input), OwnedFd::from(output));
        for pipe in [&input, &output] {
            // Refused beyond the user's limit. The default of 64 KiB works too, with more context
            // switches.
            let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES);
        }

        Ok((process, input, output))
    }

    /// Returns the process's number.
    pub(crate) fn id(&self) -> u32 {
        self.child.lock().unwrap_or_else(PoisonError::into_inner).id()
    }

    /// Releases the process: after losing its input it ends when the remote side does. That takes a
    /// round trip, or more if others share its connection.
    pub(crate) fn dismiss(&self) {
        self.dismissed.store(true, Ordering::Release);
    }

    /// Asks the process to end. ssh gives back a terminal that it asks for a password on; a process
    /// that does not listen is killed soon after.
    pub(crate) fn hurry(&self) {
        self.hurried.store(true, Ordering::Release);
        let mut child = self.child();
        // A process that was not reaped has its number to itself.
        if let (Ok(None), Some(id)) = (child.try_wait(), Pid::from_raw(child.id().cast_signed())) {
            // Fails where it runs as another user (`sudo ssh`): losing its input must do.
            let _ = rustix::process::kill_process(id, Signal::TERM);
        }
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits up to `limit` for the process to end and returns its status. Also lets its last lines
    /// arrive.
    pub(crate) fn status(&self, limit: Duration) -> ShellStatus {
        let status = self.wait(limit);
        if status.is_some() {
            self.stderr.wait_end(STDERR_TIME);
        }
        match status {
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => ShellStatus::Exited(code),
                (None, signal) => ShellStatus::Killed(signal.unwrap_or(0)),
            },
            None => ShellStatus::Silent,
        }
    }

    fn wait(&self, limit: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + limit;
        loop {
            // An error means that somebody else has reaped it, so there is nothing to wait for.
            match self.child().try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < end => self.pause(end),
                Ok(None) | Err(_) => return None,
            }
        }
    }

    /// Waits until the process has ended, or for a moment where nothing shows that.
    fn pause(&self, until: Instant) {
        let left = Timespec::try_from(until.saturating_duration_since(Instant::now()));
        let shown = match (&self.end, &left) {
            (Some(end), Ok(left)) => poll(&mut [PollFd::new(end, PollFlags::IN)], Some(left)).is_ok(),
            _ => false,
        };
        if !shown {
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Returns the last lines of standard error, escaped, oldest first.
    pub(crate) fn last_lines(&self) -> Vec<String> {
        self.stderr.lock().kept.lines.iter().cloned().collect()
    }
}

fn not_found(shell: &RemoteShell) -> ConnectError {
    ConnectError::ShellNotFound { program: shell.program() }
}

impl Drop for ShellProcess {
    fn drop(&mut self) {
        let limit = if self.hurried.load(Ordering::Acquire) { HURRIED_TIME } else { EXIT_TIME };
        let ended = !self.dismissed.load(Ordering::Acquire)
            && (self.wait(limit).is_some() || self.child().kill().is_ok());
        let (child, stderr) = (Arc::clone(&self.child), Arc::clone(&self.stderr));
        let reading = self.reading.take();
        let reap = move || {
            let _ = child.lock().unwrap_or_else(PoisonError::into_inner).wait();
            if reading.is_some() {
                // It reads all that has arrived first.
                stderr.stop.notify_one();
                stderr.wait_end(STDERR_TIME);
            }
        };
        // One that may take its time, or that is another user's, is reaped for a program that
        // continues. Without a thread the process that inherits it does that.
        if ended {
            reap();
        } else {
            let _ = thread::Builder::new().name("dsync-reaper".into()).spawn(reap);
        }
    }
}

/// Lines that a remote shell writes to standard error while somebody else waits for it: it may ask for
/// something there. Clones share them; the last 8 KiB are kept.
#[derive(Debug, Clone, Default)]
pub struct ShellLines(Arc<Mutex<Lines>>);

impl ShellLines {
    /// Takes the lines that came since the last call, escaped, oldest first.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lock()).lines.into()
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last lines of a text, as many as [`TAIL_BYTES`] hold.
#[derive(Debug, Default)]
struct Lines {
    lines: VecDeque<String>,
    bytes: usize,
}

impl Lines {
    fn push(&mut self, line: String) {
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.bytes > TAIL_BYTES
            && let Some(first) = self.lines.pop_front()
        {
            self.bytes -= first.len();
        }
    }
}

/// The last part of a process's standard error.
struct Stderr {
    tail: Mutex<Tail>,
    heard: ShellLines,
    ended: Condvar,
    /// Wakes whoever reads, for the last time.
    stop: Notify,
}

#[derive(Default)]
struct Tail {
    kept: Lines,
    ended: bool,
}

impl Stderr {
    fn new(heard: &ShellLines) -> Self {
        Self { tail: Mutex::default(), heard: heard.clone(), ended: Condvar::new(), stop: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads until the end, or until it is told to stop. The end may be long after that of the
    /// process: a shared ssh connection in the background keeps the stream open.
    async fn collect(&self, stderr: ChildStderr) {
        if let Ok(stderr) = Receiver::from_owned_fd(stderr.into()) {
            self.read(&stderr).await;
        }
        self.lock().ended = true;
        self.ended.notify_all();
    }

    async fn read(&self, stderr: &Receiver) {
        let (mut line, mut buffer) = (Vec::new(), [0; 1024]);
        // After the stop as much as a pipe holds.
        let mut left = None;
        while left != Some(0) {
            if left.is_none() {
                left = tokio::select! {
                    biased;
                    _ = stderr.readable() => None,
                    () = self.stop.notified() => Some(LAST_READS),
                };
            }
            match stderr.try_read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => self.take(&buffer[..read], &mut line),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && left.is_none() => {}
                Err(_) => break,
            }
            left = left.map(|left| left - 1);
        }
        self.push(&line);
    }

    fn take(&self, bytes: &[u8], line: &mut Vec<u8>) {
        for &byte in bytes {
            line.push(byte);
            // A line without end is cut, not collected.
            if byte == b'\n' || line.len() >= MAX_LINE_BYTES {
                self.push(line);
                line.clear();
            }
        }
    }

    fn push(&self, line: &[u8]) {
        let line = printable(line.trim_ascii_end(), LINE_CHARACTERS);
        if line.is_empty() {
            return;
        }
        tracing::debug!(line, "remote stderr");
        self.heard.lock().push(line.clone());
        self.lock().kept.push(line);
    }

    fn wait_end(&self, limit: Duration) {
        let tail = self.lock();
        // The result says whether the time ran out. Either way, use what has arrived.
        let _ = self.ended.wait_timeout_while(tail, limit, |tail| !tail.ended);
    }
}

/// Characters that a shell reads as more than part of a word. `%` stands for ssh's own tokens,
/// which it expands in proxy commands. It is allowed, because link-local IPv6 zones need it and it
/// means nothing to a shell.
const SHELL_CHARACTERS: [char; 21] = [
    '$', '`', '"', '\'', '\\', ';', '&', '|', '<', '>', '(', ')', '{', '}', '[', ']', '*', '?', '!', '#', '~',
];
/// Longest host or login name in bytes: DNS allows 253.
const MAX_NAME: usize = 255;
/// Most characters of a name in a message.
const NAME_CHARACTERS: usize = 80;
/// Most characters of one line in a message.
const LINE_CHARACTERS: usize = 400;
/// Most bytes of one line of standard error.
const MAX_LINE_BYTES: usize = 2048;
/// Reads of standard error after the process has ended: as much as its pipe holds.
const LAST_READS: u32 = 64;
/// Bytes of standard error to keep.
const TAIL_BYTES: usize = 8 << 10;
/// Buffer to ask for in the pipes to the shell, in bytes: the most that needs no privilege by
/// default.
const PIPE_BYTES: usize = 1 << 20;
/// Time for a shell to end after it has lost its input, or its output has ended.
pub(crate) const EXIT_TIME: Duration = Duration::from_secs(2);
/// Time for a shell that was asked to end.
const HURRIED_TIME: Duration = Duration::from_millis(500);
/// Time for the last lines of an ended shell to arrive, even on a busy machine. Only a shared
/// connection that keeps the stream open makes anybody wait this long.
const STDERR_TIME: Duration = Duration::from_secs(2);
/// Pause between checks of a process whose end nothing shows.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shell(command: &[&str], user: Option<&str>, host: &str) -> RemoteShell {
        RemoteShell {
            command: command.iter().map(OsString::from).collect(),
            user: user.map(String::from),
            host: host.into(),
            family: AddressFamily::Any,
            remote_program: "dsync".into(),
            pipe: Carrier::Ssh,
        }
    }

    fn argv(shell: &RemoteShell) -> Vec<String> {
        shell.argv().unwrap().into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn ssh_gets_the_host_behind_two_dashes() {
        assert_eq!(argv(&shell(&["ssh"], None, "h")), ["ssh", "--", "h", "dsync", "--server"]);
        assert_eq!(
            argv(&shell(&["/usr/bin/ssh", "-p", "22"], Some("u"), "fe80::1%eth0")),
            ["/usr/bin/ssh", "-p", "22", "-l", "u", "--", "fe80::1%eth0", "dsync", "--server"]
        );
        assert_eq!(
            argv(&shell(&["nice", "ssh"], None, "h")),
            ["nice", "ssh", "--", "h", "dsync", "--server"]
        );
        assert_eq!(argv(&shell(&["rsh"], None, "h")), ["rsh", "h", "dsync", "--server"]);
    }

    #[test]
    fn ssh_alone_is_told_the_address_family() {
        let with = |command, family| argv(&RemoteShell { family, ..shell(command, None, "h") });
        assert_eq!(with(&["ssh"], AddressFamily::V4), ["ssh", "-4", "--", "h", "dsync", "--server"]);
        assert_eq!(with(&["ssh"], AddressFamily::V6), ["ssh", "-6", "--", "h", "dsync", "--server"]);
        assert_eq!(with(&["rsh"], AddressFamily::V6), ["rsh", "h", "dsync", "--server"]);
    }

    #[test]
    fn login_names_may_be_of_a_windows_domain() {
        for name in [r"CORP\alice", "alice%gate", "alice#gate", "ou=a"] {
            assert_eq!(argv(&shell(&["ssh"], Some(name), "h"))[..3], ["ssh", "-l", name]);
            assert_eq!(shell(&["ssh"], None, name).argv().is_err(), name.contains(['\\', '#']), "{name}");
        }
        for name in [r"CORP\", "#a"] {
            assert!(shell(&["ssh"], Some(name), "h").argv().is_err(), "{name}");
        }
    }

    #[test]
    fn names_that_are_options_or_shell_code_are_refused() {
        for name in ["", "-oProxyCommand=x", "a b", "a\nb", "a;b", "$(a)", "a`b`", "a\u{202e}b", "a|b", "~x"]
        {
            let host = shell(&["ssh"], None, name).argv();
            assert!(matches!(host, Err(ConnectError::UnsafeName { what: "host", .. })), "{name:?}");
            let user = shell(&["ssh"], Some(name), "h").argv();
            assert!(matches!(user, Err(ConnectError::UnsafeName { what: "user", .. })), "{name:?}");
        }
        assert!(matches!(shell(&[], None, "h").argv(), Err(ConnectError::ShellNotFound { .. })));
        assert!(matches!(shell(&[""], None, "h").argv(), Err(ConnectError::ShellNotFound { .. })));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        /// Law S17: whatever the strings, the host comes after `--` as one word, and the words of the remote
        /// command are constant.
        #[test]
        fn any_accepted_host_is_one_word_after_the_dashes(host in any::<String>(), user in any::<Option<String>>()) {
            let shell = shell(&["ssh"], user.as_deref(), &host);
            if let Ok(argv) = shell.argv() {
                let tail = &argv[argv.len() - 4..];
                prop_assert_eq!(tail, ["--", host.as_str(), "dsync", "--server"]);
                prop_assert_eq!(argv.len(), if user.is_some() { 7 } else { 5 });
                prop_assert!(!host.starts_with('-') && !host.contains(char::is_whitespace));
            }
        }
    }
}
