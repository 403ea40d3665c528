//! `--deploy`: a remote host without dsync gets a copy of this program, in its user's cache.
//!
//! Where the remote shell does not find the program, the host is asked for its platform and for the
//! copy that an earlier run left. If there is none, this program is sent over the same remote shell,
//! into a file of another name that nobody else may open; the host compares its sum and length with
//! those that travel in the command, runs it once for its version, and only then renames it.
//!
//! The law: nothing is sent without consent, which is `--deploy` or a yes on a terminal, and a file
//! that has not all of this program's bytes never gets the name that is run. The commands are
//! constant but for this program's version and sums; what the host answers is only compared, or
//! quoted where its path becomes a word.

use std::{
    fmt,
    fs::File,
    io::{self, BufRead as _, BufReader, IsTerminal as _, Read, Write as _},
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
    time::Duration,
};

use aws_lc_rs::digest::{self, SHA256};
use dsync_engine::{
    CancelToken, ConnectError, ConnectOptions, HostAnswer, Operand, RemoteHost, ShellStatus, SyncError,
    ask_host, host_command_line,
};

use crate::{
    escape::escape_text,
    flags::Flags,
    messages::caused,
    numbers::{Number, Style},
    streams::Standard,
    words::system_words,
};

/// A host that lacks the program.
pub(crate) struct Bare<'a> {
    host: RemoteHost,
    connect: &'a ConnectOptions,
    consent: Consent,
}

/// The person's consent to sending the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Consent {
    /// `--deploy`.
    Given,
    /// To be asked for on the terminal.
    Asked,
    /// Nobody can be asked.
    None,
}

/// The reason why a host did not get the program.
#[derive(Debug)]
pub(crate) enum NotDeployed {
    /// Nobody agreed to it.
    Unwanted,
    /// The host is another platform than this program is for.
    Platform(String),
    /// The remote shell failed, or did not answer in the expected words.
    NoAnswer(String),
    /// The host refused a step.
    Step(&'static str),
    /// This program cannot be read.
    Unreadable(io::Error),
}

impl fmt::Display for NotDeployed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unwanted => f.write_str("it was not copied there"),
            Self::Platform(theirs) => {
                write!(f, "this program is for {}, and the host is {theirs}", platform())
            }
            Self::NoAnswer(said) => write!(f, "the remote shell gave no answer: {said}"),
            Self::Step(why) => f.write_str(why),
            Self::Unreadable(error) => write!(f, "this program cannot be read: {}", system_words(error)),
        }
    }
}

impl<'a> Bare<'a> {
    /// Returns the host of a run that ended because its program was not found there.
    pub(crate) fn of(error: &SyncError, flags: &Flags, connect: &'a ConnectOptions) -> Option<Self> {
        let missing = matches!(error, SyncError::Connect(ConnectError::RemoteProgramMissing { .. }));
        if !missing || flags.remote.dsync_path.is_some() {
            return None;
        }
        let host = flags.operands.iter().find_map(|word| match Operand::parse(word) {
            Ok(Operand::Remote { host, .. }) => Some(host),
            _ => None,
        })?;
        let watched = io::stdin().is_terminal() && io::stderr().is_terminal();
        let consent = if flags.remote.deploy {
            Consent::Given
        } else if watched && !flags.output.quiet && !flags.output.json {
            Consent::Asked
        } else {
            Consent::None
        };
        Some(Self { host, connect, consent })
    }

    /// Returns the command that starts the program there, after it was copied if need be.
    ///
    /// # Errors
    /// [`NotDeployed`].
    pub(crate) fn program(&self, cancel: &CancelToken, say: &dyn Fn(&str)) -> Result<String, NotDeployed> {
        if self.consent == Consent::None {
            return Err(NotDeployed::Unwanted);
        }
        let own = Own::read().map_err(NotDeployed::Unreadable)?;
        let found = self.probe(&own, cancel)?;
        let path = quoted(&format!("{}/{}", found.directory, own.name))
            .ok_or(NotDeployed::Step("its cache directory has a name that no shell could be given"))?;
        if own.is(&found.sum) {
            return Ok(path);
        }
        if found.platform != platform() {
            return Err(NotDeployed::Platform(found.platform));
        }

        let size = Number(own.len, Style::Commas);
        let host = escape_text(&self.host.host).into_owned();
        if self.consent == Consent::Asked && !agrees(&host, &found.directory, &own.name, &size.to_string()) {
            return Err(NotDeployed::Unwanted);
        }
        if cancel.is_cancelled() {
            return Err(NotDeployed::Unwanted);
        }
        say(&format!("dsync: copying this program ({size} bytes) to {host}:{}", escape_text(&path)));
        self.upload(&own, cancel)?;
        Ok(path)
    }

    /// Returns what to do instead: of a host of this program's platform, the same by hand.
    pub(crate) fn instead(&self, why: &NotDeployed) -> String {
        if let NotDeployed::Platform(theirs) = why {
            return format!("install dsync for {theirs} there");
        }
        let install = "mkdir -p .local/bin && cat >.local/bin/dsync && chmod 755 .local/bin/dsync";
        let words = host_command_line((&self.host, self.connect), install).unwrap_or_default();
        let words: Vec<String> =
            words.iter().map(|word| String::from_utf8_lossy(word.as_bytes()).into_owned()).collect();
        let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("dsync"));
        let line = shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default();
        let own = own.to_string_lossy().into_owned();
        let own = shlex::try_quote(&own).map(|own| own.into_owned()).unwrap_or_default();
        format!("by hand, if it runs {}: {line} <{own}, then --dsync-path=.local/bin/dsync", platform())
    }

    /// Runs a command there.
    fn ask(
        &self,
        script: &str,
        input: impl Read + Send + 'static,
        (time, cancel): (Duration, &CancelToken),
    ) -> Result<HostAnswer, NotDeployed> {
        let command = format!("sh -c '{script}'");
        ask_host((&self.host, self.connect), &command, input, time, cancel)
            .map_err(|error| NotDeployed::NoAnswer(caused(&error)))
    }

    /// Asks the host for its platform, its cache directory, and the sum of the copy there.
    fn probe(&self, own: &Own, cancel: &CancelToken) -> Result<Found, NotDeployed> {
        let answer = self.ask(&own.probe(), io::empty(), (self.connect.connect_timeout, cancel))?;
        let text = String::from_utf8_lossy(&answer.output).into_owned();
        // A login may print a banner of its own first.
        let mut lines = text.lines().skip_while(|line| *line != MARK).skip(1).map(str::to_owned);
        match (lines.next(), lines.next(), lines.next()) {
            (Some(platform), Some(directory), Some(sum)) if directory.starts_with('/') => {
                Ok(Found { platform, directory, sum })
            }
            _ => Err(no_answer("it knows no sh, uname or HOME", &answer)),
        }
    }

    /// Sends the program; the host verifies and renames it.
    fn upload(&self, own: &Own, cancel: &CancelToken) -> Result<(), NotDeployed> {
        let file = own_program().map_err(NotDeployed::Unreadable)?;
        let answer = self.ask(&own.receive(), file, (UPLOAD_TIME, cancel))?;
        let ShellStatus::Exited(code) = answer.status else { return Err(no_answer("it broke off", &answer)) };
        Err(match code {
            0 if String::from_utf8_lossy(&answer.output).lines().any(|line| line == DONE) => return Ok(()),
            NO_DIRECTORY => NotDeployed::Step("its cache directory cannot be made, or is somebody else's"),
            NOT_WRITTEN => NotDeployed::Step("the copy cannot be written there"),
            NOT_WHOLE => NotDeployed::Step("the copy did not arrive whole and was removed"),
            DOES_NOT_RUN => NotDeployed::Step(
                "the copy does not run there, by its libc or a mount without exec, and was removed",
            ),
            _ => no_answer("it broke off", &answer),
        })
    }
}

/// Names a fault and the last line that the remote shell wrote about it.
fn no_answer(fault: &str, answer: &HostAnswer) -> NotDeployed {
    let said = answer.stderr.last().map_or_else(String::new, |line| format!(" ({line})"));
    NotDeployed::NoAnswer(format!("{fault}{said}"))
}

/// A host's answer.
struct Found {
    platform: String,
    directory: String,
    sum: String,
}

/// This program's file.
struct Own {
    /// The name of its copies.
    name: String,
    len: u64,
    /// SHA-256, in hex digits.
    sha256: String,
    /// The sum of POSIX `cksum`, for hosts without sha256sum.
    cksum: u32,
}

impl Own {
    fn read() -> io::Result<Self> {
        let mut file = BufReader::with_capacity(1 << 20, own_program()?);
        let (mut sha, mut crc, mut len) = (digest::Context::new(&SHA256), Crc::new(), 0);
        loop {
            let bytes = file.fill_buf()?;
            if bytes.is_empty() {
                break;
            }
            let count = bytes.len();
            sha.update(bytes);
            bytes.iter().for_each(|&byte| crc.add(byte));
            len += count as u64;
            file.consume(count);
        }
        let sha256: String = sha.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("dsync-{}-{}", env!("CARGO_PKG_VERSION"), &sha256[..16]);
        Ok(Self { name, len, sha256, cksum: crc.finish(len) })
    }

    /// Returns whether a line of `sha256sum` or `cksum` is about the same bytes.
    fn is(&self, line: &str) -> bool {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next()) {
            (Some(sum), _) if sum == self.sha256 => true,
            (Some(sum), Some(len)) => sum == self.cksum.to_string() && len == self.len.to_string(),
            _ => false,
        }
    }

    fn probe(&self) -> String {
        let name = &self.name;
        format!(
            "{DIRECTORY}; echo {MARK}; uname -sm; echo \"$d\"; f=$d/{name}; \
             if [ -f \"$f\" ] && [ -x \"$f\" ] && [ -O \"$f\" ] && [ -O \"$d\" ]; then {SUM} <\"$f\"; else echo none; fi"
        )
    }

    fn receive(&self) -> String {
        let Self { name, len, sha256, cksum } = self;
        format!(
            "umask 077; {DIRECTORY}; t=$d/.{name}.$$; \
             mkdir -p \"$d\" && [ ! -L \"$d\" ] && chmod 700 \"$d\" || exit {NO_DIRECTORY}; \
             trap \"rm -f \\\"$t\\\"\" EXIT; trap \"exit {NOT_WRITTEN}\" HUP INT TERM; \
             cat >\"$t\" || exit {NOT_WRITTEN}; s=$({SUM} <\"$t\"); \
             case \"$s\" in {sha256}\\ *|{cksum}\\ {len}|{cksum}\\ {len}\\ *) ;; *) exit {NOT_WHOLE};; esac; \
             chmod 700 \"$t\" || exit {NOT_WRITTEN}; \"$t\" --version >/dev/null 2>&1 || exit {DOES_NOT_RUN}; \
             mv -f \"$t\" \"$d/{name}\" || exit {NOT_WRITTEN}; echo {DONE}"
        )
    }
}

/// The sum of POSIX `cksum`: a CRC of the bytes and of their number.
struct Crc(u32);

impl Crc {
    fn new() -> Self {
        Self(0)
    }

    fn add(&mut self, byte: u8) {
        let at = (self.0 >> 24) as u8 ^ byte;
        self.0 = self.0 << 8 ^ CRC_TABLE[usize::from(at)];
    }

    fn finish(mut self, len: u64) -> u32 {
        let mut rest = len;
        while rest > 0 {
            self.add((rest & 0xFF) as u8);
            rest >>= 8;
        }
        !self.0
    }
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0_u32;
    while at < 256 {
        let mut value = at << 24;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 << 31 == 0 { value << 1 } else { value << 1 ^ 0x04C1_1DB7 };
            bit += 1;
        }
        table[at as usize] = value;
        at += 1;
    }
    table
};

/// Time for the program to arrive: an hour is enough for a line of 3 kB/s.
const UPLOAD_TIME: Duration = Duration::from_secs(3_600);

/// Asks on the terminal.
fn agrees(host: &str, directory: &str, name: &str, size: &str) -> bool {
    let question = format!(
        "dsync is not installed on {host}. Copy this program ({size} bytes) to {}/{name} there? [y/N] ",
        escape_text(directory)
    );
    // Both are the terminal.
    let ask = || -> io::Result<String> {
        Standard::Errors.write_all(question.as_bytes())?;
        let mut answer = String::new();
        io::stdin().lock().take(LONGEST_ANSWER).read_line(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| ["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}

/// Returns a path as one word of a remote login shell, whichever it is.
fn quoted(path: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._+@=,-".contains(&byte);
    if path.bytes().all(is_plain) {
        return Some(path.to_owned());
    }
    let is_hard = |letter: char| "'!\\".contains(letter) || letter.is_control();
    (!path.contains(is_hard)).then(|| format!("'{path}'"))
}

/// Returns what `uname -sm` says where this program runs.
fn platform() -> String {
    let machine = match std::env::consts::ARCH {
        "x86" => "i686",
        "arm" => "armv7l",
        other => other,
    };
    format!("Linux {machine}")
}

/// Opens the running program, also if its file was replaced since.
#[expect(clippy::disallowed_methods, reason = "the kernel's own file about this process")]
fn own_program() -> io::Result<File> {
    File::open("/proc/self/exe")
}

/// Sets `d` to the directory of copies.
const DIRECTORY: &str = "d=${XDG_CACHE_HOME:-$HOME/.cache}/dsync";
/// Prints the sum of standard input.
const SUM: &str = "{ sha256sum 2>/dev/null || cksum; }";
/// The line before an answer.
const MARK: &str = "dsync-deploy";
/// The line after success.
const DONE: &str = "dsync-deployed";
/// Exit codes of the receiving script.
const NO_DIRECTORY: i32 = 91;
const NOT_WRITTEN: i32 = 92;
const NOT_WHOLE: i32 = 93;
const DOES_NOT_RUN: i32 = 94;
/// Bytes of an answer that are read.
const LONGEST_ANSWER: u64 = 1024;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn cksum_is_that_of_posix() {
        let of = |text: &str| {
            let mut crc = Crc::new();
            text.bytes().for_each(|byte| crc.add(byte));
            crc.finish(text.len() as u64)
        };
        // `printf 123456789 | cksum`
        assert_eq!((of("123456789"), of("")), (930_766_865, 4_294_967_295));
    }

    #[test]
    fn scripts_have_no_quote_that_would_end_them() {
        let own = Own { name: "dsync-1-0".into(), len: 5, sha256: "ab".into(), cksum: 7 };
        for script in [own.probe(), own.receive()] {
            assert!(!script.contains(['\'', '!', '\n']) || script.contains("[ ! -L"), "{script}");
            assert!(!script.contains(['\'', '\n']), "{script}");
        }
        for (line, same) in
            [("ab  -", true), ("7 5", true), ("7 5 f", true), ("7 6", false), ("none", false), ("", false)]
        {
            assert_eq!(own.is(line), same, "{line}");
        }
    }

    #[test]
    fn paths_are_words_of_any_shell() {
        assert_eq!(
            quoted("/home/u/.cache/dsync/dsync-1-ab").as_deref(),
            Some("/home/u/.cache/dsync/dsync-1-ab")
        );
        assert_eq!(quoted("/home/a b$c").as_deref(), Some("'/home/a b$c'"));
        for hard in ["/a'b", "/a\nb", "/a!b", "/a\\b"] {
            assert_eq!(quoted(hard), None, "{hard}");
        }
    }
}
