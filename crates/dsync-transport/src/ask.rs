//! Asking a host through the remote shell: one command, its input, and an answer that is bounded in
//! length and time, whatever the host says.

use std::{
    io::{self, Read},
    os::fd::OwnedFd,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use crate::{
    Carriers, ConnectError, RemoteShell,
    error::ShellStatus,
    shell::{EXIT_TIME, ShellLines, ShellProcess},
};

/// A host's answer to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostAnswer {
    /// The end of the remote shell: the command's exit code, or ssh's own, 255.
    pub status: ShellStatus,
    /// Its standard output, at most [`MAX_ANSWER`] bytes, as the host sent it.
    pub output: Vec<u8>,
    /// The last lines of its standard error, 8 KiB at the most, escaped, oldest first.
    pub stderr: Vec<String>,
}

impl RemoteShell {
    /// Runs a command at the host, with `input` as its standard input, and returns its answer.
    /// [`remote_program`](Self::remote_program) is not used.
    ///
    /// The host's login shell reads `command`: nothing in it may come from a peer or a file name
    /// unless it is quoted. Blocks until the command has ended, `time` is over, or `should_stop`
    /// returns true, which is asked about every 100 ms.
    ///
    /// # Errors
    /// [`ConnectError`]: the shell did not start, `time` was over, the caller stopped it, or the
    /// answer is longer than [`MAX_ANSWER`]. A command that fails is no error: see
    /// [`HostAnswer::status`].
    pub fn ask(
        &self,
        command: &str,
        input: impl Read + Send + 'static,
        time: Duration,
        should_stop: &dyn Fn() -> bool,
    ) -> Result<HostAnswer, ConnectError> {
        let system = |source| ConnectError::System { source };
        let (process, to_host, from_host) = ShellProcess::start(
            self,
            &self.command_line(command)?,
            &ShellLines::default(),
            &Carriers::default(),
        )?;
        // A thread, as a host may answer without reading. It ends when the process has.
        let give = move || drop(send(input, to_host));
        thread::Builder::new().name("dsync-input".into()).spawn(give).map_err(system)?;

        let output = match read_answer(&from_host, time, should_stop) {
            Ok(output) => output,
            Err(fault) => {
                process.hurry();
                return Err(fault.explain(self, time));
            }
        };
        let status = process.status(EXIT_TIME);
        Ok(HostAnswer { status, output, stderr: process.last_lines() })
    }
}

fn send(mut input: impl Read, to_host: OwnedFd) -> io::Result<u64> {
    io::copy(&mut input, &mut std::fs::File::from(to_host))
}

/// The reason why there is no answer.
enum Fault {
    Stopped,
    Late,
    TooLong,
    System(io::Error),
}

impl Fault {
    fn explain(self, shell: &RemoteShell, time: Duration) -> ConnectError {
        let host = shell.host_text();
        match self {
            Self::Stopped => ConnectError::Abandoned,
            Self::Late => ConnectError::NoAnswer { host, after: time },
            Self::TooLong => ConnectError::LongAnswer { host, most: MAX_ANSWER },
            Self::System(source) => ConnectError::System { source },
        }
    }
}

/// Reads to the end of the stream.
fn read_answer(
    from_host: &OwnedFd,
    time: Duration,
    should_stop: &dyn Fn() -> bool,
) -> Result<Vec<u8>, Fault> {
    let (began, pause) = (Instant::now(), Timespec { tv_sec: 0, tv_nsec: 100_000_000 });
    let (mut output, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        if should_stop() {
            return Err(Fault::Stopped);
        }
        if began.elapsed() >= time {
            return Err(Fault::Late);
        }
        match poll(&mut [PollFd::new(from_host, PollFlags::IN)], Some(&pause)) {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(Fault::System(error.into())),
        }

        match rustix::io::read(from_host, &mut buffer) {
            Ok(0) => return Ok(output),
            Ok(read) if output.len() + read > MAX_ANSWER => return Err(Fault::TooLong),
            Ok(read) => output.extend_from_slice(&buffer[..read]),
            Err(Errno::INTR) => {}
            Err(error) => return Err(Fault::System(error.into())),
        }
    }
}

/// Most bytes of a [`HostAnswer`]: far more than a login's banner and a doctor's report.
pub const MAX_ANSWER: usize = 256 << 10;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::Cell;

    use dsync_wire::link::Carrier;

    use super::*;
    use crate::AddressFamily;

    const LONG: Duration = Duration::from_secs(600);

    /// Returns a shell that runs `script`, whatever command it is given.
    fn shell(script: &str) -> RemoteShell {
        RemoteShell {
            command: ["sh", "-c", script, "sh"].map(Into::into).to_vec(),
            user: None,
            host: "h".into(),
            family: AddressFamily::Any,
            remote_program: "dsync".into(),
            pipe: Carrier::Ssh,
        }
    }

    fn ask(script: &str, input: &'static [u8]) -> Result<HostAnswer, ConnectError> {
        shell(script).ask("the command", input, LONG, &|| false)
    }

    #[test]
    fn a_command_gets_its_input_and_its_answer_is_whole() {
        let answer = ask("cat; echo \"$1 $2\"; echo why >&2; exit 7", b"input ").unwrap();
        assert_eq!(answer.output, b"input h the command\n");
        assert_eq!((answer.status, answer.stderr), (ShellStatus::Exited(7), vec!["why".to_owned()]));
    }

    #[test]
    fn an_answer_has_a_longest_length_and_one_that_is_as_long_is_whole() {
        let of = |bytes: usize| ask(&format!("head -c {bytes} /dev/zero"), b"");
        assert_eq!(of(MAX_ANSWER).unwrap().output.len(), MAX_ANSWER);
        assert!(matches!(of(MAX_ANSWER + 1), Err(ConnectError::LongAnswer { most: MAX_ANSWER, .. })));
        assert!(matches!(ask("exec cat /dev/zero", b""), Err(ConnectError::LongAnswer { .. })));
    }

    #[test]
    fn errors_without_end_are_read_and_cut() {
        let answer = ask("head -c 5000000 /dev/zero | tr '\\0' x >&2", b"").unwrap();
        let kept: usize = answer.stderr.iter().map(String::len).sum();
        assert!((1..=8 << 10).contains(&kept), "{kept}");
    }

    #[test]
    fn a_host_that_does_not_read_its_input_answers_all_the_same() {
        static INPUT: [u8; 4 << 20] = [1; 4 << 20];
        assert_eq!(ask("echo here", &INPUT).unwrap().output, b"here\n");
    }

    #[test]
    fn a_host_that_says_nothing_is_given_up() {
        let short = Duration::from_millis(1);
        let silent = shell("exec sleep 10000").ask("c", io::empty(), short, &|| false);
        assert!(matches!(silent, Err(ConnectError::NoAnswer { .. })));

        let asked = Cell::new(0);
        let stop = || asked.replace(asked.get() + 1) > 1;
        let stopped = shell("exec sleep 10000").ask("c", io::empty(), LONG, &stop);
        assert!(matches!(stopped, Err(ConnectError::Abandoned)));
    }
}
