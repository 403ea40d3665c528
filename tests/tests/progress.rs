//! Progress on standard error: frames of a bar on terminals of three widths, lines without one.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    os::fd::OwnedFd,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use dsync_tests::{
    Scratch, needs_dsync, program,
    run::{send, wait_for},
};
use rustix::{
    process::Signal,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

/// A name that is long and wide and tries to clear the screen.
const NAME: &str = "写真の山と海と空とその向こうにある小さな家\u{1b}[2J.raw";

/// A terminal with all that was written to it.
struct Terminal {
    master: OwnedFd,
    page: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Starts the program on a terminal, with lines of output only on standard error.
    fn start(columns: u16, term: &str, words: &[&str], at: &Path) -> (Self, Running) {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).expect("its rights");
        unlockpt(&master).expect("its lock");
        let name = ptsname(&master, Vec::new()).expect("its name");
        let terminal = Self { master, page: Arc::default() };
        terminal.resize(columns);
        let slave = File::options().read(true).write(true).open(name.to_str().expect("its name"));

        let child = throttled(words, at)
            .env("TERM", term)
            .stderr(slave.expect("its other side"))
            .spawn()
            .expect("the program");
        let mut reader = File::from(terminal.master.try_clone().expect("a handle"));
        let page = Arc::clone(&terminal.page);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                page.lock().expect("the page").extend_from_slice(&buffer[..count]);
            }
        });
        (terminal, Running(child))
    }

    fn resize(&self, columns: u16) {
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.master, size).expect("the size of the terminal");
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.page.lock().expect("the page")).into_owned()
    }

    fn clear(&self) {
        self.page.lock().expect("the page").clear();
    }

    /// Waits until a whole frame passes `judge` and returns all frames until then.
    fn frames_until(&self, judge: impl Fn(&str) -> bool) -> Vec<String> {
        let mut found = Vec::new();
        wait_for(|| {
            found = frames(&self.text());
            found.iter().any(|frame| judge(frame))
        });
        found
    }
}

/// Makes a run that takes far longer than any test waits: it is ended by a signal.
fn throttled(words: &[&str], at: &Path) -> Command {
    let mut command = Command::new(program());
    command.args(["-a", "--bwlimit=100"]).args(words).arg("src/").arg("dst").current_dir(at);
    command.stdin(Stdio::null()).stdout(Stdio::null()).env("LC_ALL", "C.UTF-8").env_remove("DSYNC_LOG");
    command
}

/// Plants a source of one long file.
fn plant() -> Scratch {
    let scratch = Scratch::new();
    let bytes: Vec<u8> =
        (0..64_u32 << 18).flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    fs::write(scratch.src().join(NAME), bytes).expect("a long file");
    scratch
}

/// Returns the texts that were drawn over each other.
fn frames(text: &str) -> Vec<String> {
    let drawn = text.split('\r').filter_map(|part| part.split_once("\x1b[K"));
    drawn.map(|(frame, _)| frame.to_owned()).filter(|frame| !frame.is_empty()).collect()
}

/// Returns the columns of a frame: the only wide characters are those of [`NAME`].
fn columns(frame: &str) -> usize {
    frame.chars().map(|letter| if letter.is_ascii() { 1 } else { 2 }).sum()
}

/// A run that does not outlive its test.
struct Running(Child);

impl Running {
    fn id(&self) -> u32 {
        self.0.id()
    }

    fn interrupt(mut self) {
        // A shell in the background has SIGINT ignored, and so has what it starts.
        send(self.id(), Signal::TERM);
        self.0.wait().expect("the end of the program");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn frames_fit_terminals_of_every_width_and_no_name_moves_the_cursor() {
    needs_dsync!();
    let scratch = plant();
    for (width, has) in [
        (40, vec!["% ", " of 67.1 MB"]),
        (80, vec!["% ", " of 67.1 MB", "% of ...", "\\#033[2J.raw"]),
        (200, vec!["[", "] ", "% ", "0 of 1 files", " of 67.1 MB", "% of 写真の山と海", "\\#033[2J.raw"]),
    ] {
        let (terminal, child) = Terminal::start(width, "xterm", &["-P"], scratch.path());
        let seen = terminal.frames_until(|frame| has.iter().all(|part| frame.contains(part)));
        for frame in &seen {
            assert!(columns(frame) < usize::from(width), "{width}: {frame:?}");
            assert!(!frame.chars().any(char::is_control), "{width}: {frame:?}");
        }
        let shares =
            seen.iter().filter_map(|frame| frame.split_once('%')?.0.rsplit(' ').next()?.parse().ok());
        assert!(shares.collect::<Vec<u64>>().is_sorted(), "{seen:?}");

        let other: u16 = if width == 40 { 120 } else { 30 };
        terminal.resize(other);
        terminal
            .frames_until(|frame| if other == 30 { columns(frame) < 30 } else { frame.contains("files") });
        child.interrupt();
    }
}

#[test]
fn signals_print_the_state_and_leave_a_clean_line_when_it_stops() {
    needs_dsync!();
    let scratch = plant();
    let (terminal, child) = Terminal::start(80, "xterm", &["-P"], scratch.path());
    terminal.frames_until(|frame| frame.contains('%'));

    send(child.id(), Signal::USR1);
    wait_for(|| terminal.text().contains("dsync: "));
    let text = terminal.text();
    let line = text.split("dsync: ").nth(1).expect("the line");
    assert!(line.split('\r').next().expect("its text").contains("0 of 1 files"), "{line:?}");
    assert!(text.contains("\r\x1b[Jdsync: "), "{text:?}");

    let drawn = |text: &str| text.rsplit("dsync: ").next().is_some_and(|last| last.contains("\x1b[K"));
    wait_for(|| drawn(&terminal.text()));
    send(child.id(), Signal::TSTP);
    let stopped = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("its state");
        stat.rsplit_once(") ").expect("its state").1.starts_with('T')
    };
    wait_for(stopped);
    wait_for(|| terminal.text().ends_with("\r\x1b[J"));
    assert!(stopped());

    terminal.clear();
    send(child.id(), Signal::CONT);
    terminal.frames_until(|frame| frame.contains('%'));
    child.interrupt();
    wait_for(|| terminal.text().contains("dsync: interrupted"));
    assert!(terminal.text().contains("\r\x1b[Jdsync: interrupted"), "{:?}", terminal.text());
}

#[test]
fn dumb_terminal_and_pipe_get_lines_without_control_characters() {
    needs_dsync!();
    let (scratch, other) = (plant(), plant());
    let (terminal, child) = Terminal::start(80, "dumb", &["--progress"], scratch.path());
    let mut piped = throttled(&["--info=progress2"], other.path());
    let mut piped = piped.stderr(Stdio::piped()).spawn().expect("the program");
    let mut reader = BufReader::new(piped.stderr.take().expect("standard error"));
    let mut line = String::new();
    reader.read_line(&mut line).expect("a line");
    wait_for(|| terminal.text().contains("dsync: "));

    for text in [line, terminal.text().replace("\r\n", "\n")] {
        assert!(text.starts_with("dsync: ") && text.contains(" of 67.1 MB"), "{text:?}");
        assert!(
            !text.trim_end_matches('\n').chars().any(|letter| letter != '\n' && letter.is_control()),
            "{text:?}"
        );
    }
    child.interrupt();
    Running(piped).interrupt();
}
