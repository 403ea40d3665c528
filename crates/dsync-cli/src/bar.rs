//! Progress on standard error: a bar on a terminal, or a line now and then.
//!
//! The bar is one line that is drawn over itself. It is as wide as the terminal is at that moment,
//! its last column stays free so that no terminal wraps it, and nothing but erasing is ever asked of
//! the terminal: no colour, no hidden cursor. Whoever prints another line removes the bar first
//! ([`aside`](Bar::aside)); the next count draws it again.

use std::{
    io::{self, Write},
    sync::{
        Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use dsync_engine::{FileProgress, Progress};

use crate::{
    json,
    meter::{Meter, width},
    streams::Standard,
};

/// The form in which progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// One line of a terminal, drawn over itself.
    Bar,
    /// A line every [`INTERVAL`], without any control character.
    Lines,
    /// An event of `--json` for each count, for programs.
    Json,
    /// Only when it is asked for, by SIGUSR1.
    Nothing,
}

/// The progress of a run on standard error.
pub(crate) struct Bar {
    shown: Shown,
    meter: Meter,
    /// Whether nothing is drawn, because the process is about to stop or to end.
    paused: AtomicBool,
    /// Held while anything is printed, for as long as nobody reads it.
    screen: Mutex<Screen>,
}

/// The line on the terminal.
struct Screen {
    out: Box<dyn Write + Send>,
    columns: fn() -> usize,
    /// Whether another program has the terminal.
    behind: fn() -> bool,
    /// Columns of the text that stands there; 0 for none.
    drawn: usize,
    last: Option<Instant>,
}

impl Bar {
    /// Starts on standard error with nothing drawn.
    pub(crate) fn new(shown: Shown) -> Self {
        Self::on(Box::new(Standard::Errors), columns, shown)
    }

    fn on(out: Box<dyn Write + Send>, columns: fn() -> usize, shown: Shown) -> Self {
        // The first line of a log comes after an interval, that of a bar at once.
        let last = (shown == Shown::Lines).then(Instant::now);
        let behind = if shown == Shown::Bar { is_behind } else { || false };
        let screen = Screen { out, columns, behind, drawn: 0, last };
        let paused = AtomicBool::new(false);
        Self { shown, meter: Meter::new(), paused, screen: Mutex::new(screen) }
    }

    /// Returns whether a person sees a bar.
    pub(crate) fn is_drawn(&self) -> bool {
        self.shown == Shown::Bar
    }

    /// Shows the run's progress.
    pub(crate) fn update(&self, progress: &Progress) {
        self.meter.progress(progress);
        let mut screen = self.screen();
        let pause = match self.shown {
            Shown::Bar => BETWEEN_DRAWS,
            Shown::Lines => INTERVAL,
            Shown::Json => Duration::ZERO,
            Shown::Nothing => return,
        };
        let is_paused = self.paused.load(Ordering::Acquire);
        if is_paused || (screen.behind)() || screen.last.is_some_and(|last| last.elapsed() < pause) {
            return;
        }

        screen.last = Some(Instant::now());
        match self.shown {
            Shown::Bar => {
                let columns = (screen.columns)().saturating_sub(1);
                screen.draw(&self.meter.line(columns));
            }
            Shown::Json => {
                let line = [json::progress(progress).as_slice(), b"\n"].concat();
                screen.print(&String::from_utf8_lossy(&line));
            }
            _ => screen.print(&format!("dsync: {}\n", self.meter.whole_line())),
        }
    }

    /// Takes the file whose content is under way.
    pub(crate) fn file(&self, file: &FileProgress) {
        self.meter.file(file);
    }

    /// Notes that the session broke.
    pub(crate) fn session_broke(&self) {
        self.meter.session_broke();
    }

    /// Prints the state as a line.
    pub(crate) fn tell(&self) {
        let mut screen = self.screen();
        screen.erase();
        screen.print(&format!("dsync: {}\n", self.meter.whole_line()));
    }

    /// Runs `print` with the bar out of the way.
    pub(crate) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        let mut screen = self.screen();
        screen.erase();
        print()
    }

    /// Removes the bar because the process is about to stop. Leaves it if a line is being printed that
    /// nobody reads: who has the terminal may wait for this process to stop.
    pub(crate) fn pause(&self) {
        self.paused.store(true, Ordering::Release);
        for _ in 0..TRIES {
            match self.screen.try_lock() {
                Ok(mut screen) => return screen.erase(),
                Err(TryLockError::Poisoned(broken)) => return broken.into_inner().erase(),
                Err(TryLockError::WouldBlock) => thread::sleep(BETWEEN_TRIES),
            }
        }
    }

    /// Lets the bar be drawn again.
    pub(crate) fn resume(&self) {
        self.paused.store(false, Ordering::Release);
    }

    /// Removes the bar for good.
    pub(crate) fn clear(&self) {
        self.paused.store(true, Ordering::Release);
        self.screen().erase();
    }

    fn screen(&self) -> MutexGuard<'_, Screen> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Screen {
    fn draw(&mut self, text: &str) {
        // A narrower terminal has wrapped the old line.
        if self.drawn > (self.columns)() {
            self.erase();
        }
        self.print(&format!("\r{text}\x1b[K"));
        self.drawn = width(text);
    }

    fn erase(&mut self) {
        if self.drawn > 0 {
            let rows = self.drawn.div_ceil((self.columns)().max(1));
            let up = if rows > 1 { format!("\x1b[{}A", rows - 1) } else { String::new() };
            self.print(&format!("{up}\r\x1b[J"));
            self.drawn = 0;
            // The next count draws it again at once.
            self.last = None;
        }
    }

    /// Writes in one call, so that no other program's output gets between.
    fn print(&mut self, text: &str) {
        // If even that fails, there is nobody left to tell.
        let _ = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
    }
}

/// Returns the width of the terminal behind standard error now.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr());
    size.map(|size| usize::from(size.ws_col)).ok().filter(|columns| *columns > 0).unwrap_or(80)
}

/// Returns whether another job has the terminal behind standard error: a bar would tear its output.
fn is_behind() -> bool {
    let owner = rustix::termios::tcgetpgrp(io::stderr());
    owner.is_ok_and(|owner| owner != rustix::process::getpgrp())
}

/// Attempts to remove the bar before the process stops, and the time between two. Together they are
/// far longer than a draw, and short for who waits for a prompt.
const TRIES: usize = 50;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);
/// Smooth for the eye, cheap over ssh.
const BETWEEN_DRAWS: Duration = Duration::from_millis(125);
/// Time between two lines of `--progress` in a log.
const INTERVAL: Duration = Duration::from_secs(5);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    /// A terminal that keeps what is written.
    #[derive(Clone, Default)]
    pub(crate) struct Page(pub(crate) Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Page {
        fn take(&self) -> String {
            String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
        }
    }

    fn some() -> Progress {
        Progress::default().files_done(1).files_needed(2).bytes_done(50).bytes_needed(200).totals_final(true)
    }

    #[test]
    fn bar_is_drawn_over_itself_and_removed_for_other_lines() {
        let page = Page::default();
        let bar = Bar::on(Box::new(page.clone()), || 40, Shown::Bar);
        bar.update(&some());
        assert_eq!(page.take(), "\r 25%  50 bytes of 200 bytes\x1b[K");
        bar.aside(|| ());
        assert_eq!(page.take(), "\r\x1b[J");
        bar.aside(|| ());
        assert_eq!(page.take(), "");
        bar.update(&some());
        assert!(page.take().starts_with("\r 25%"));
        bar.tell();
        assert_eq!(page.take(), "\r\x1b[Jdsync: 25%  1 of 2 files  50 bytes of 200 bytes\n");
        bar.clear();
        bar.update(&some());
        assert_eq!(page.take(), "");
    }

    #[test]
    fn process_stops_without_its_bar_and_while_nobody_reads_its_lines() {
        let page = Page::default();
        let bar = Bar::on(Box::new(page.clone()), || 40, Shown::Bar);
        bar.update(&some());
        // A line that nobody reads: the bar stays, and the process can stop.
        bar.aside(|| thread::scope(|scope| scope.spawn(|| bar.pause()).join().unwrap()));
        bar.update(&some());
        bar.resume();
        let _ = page.take();

        bar.update(&some());
        assert!(page.take().starts_with("\r 25%"));
        bar.pause();
        bar.update(&some());
        assert_eq!(page.take(), "\r\x1b[J");
    }

    #[test]
    fn terminal_that_narrowed_has_wrapped_the_line() {
        static COLUMNS: AtomicUsize = AtomicUsize::new(100);
        let page = Page::default();
        let bar = Bar::on(Box::new(page.clone()), || COLUMNS.load(Ordering::Relaxed), Shown::Bar);
        bar.update(&some());
        let first = page.take();
        let drawn = first.trim_start_matches('\r').trim_end_matches("\x1b[K").len();
        assert!((52..99).contains(&drawn), "{first:?}");
        COLUMNS.store(26, Ordering::Relaxed);
        bar.aside(|| ());
        assert_eq!(page.take(), format!("\x1b[{}A\r\x1b[J", drawn.div_ceil(26) - 1));
    }

    #[test]
    fn log_has_no_line_at_first_and_no_control_characters() {
        let page = Page::default();
        let bar = Bar::on(Box::new(page.clone()), || 40, Shown::Lines);
        bar.update(&some());
        bar.aside(|| ());
        bar.clear();
        assert_eq!(page.take(), "");
        bar.tell();
        assert_eq!(page.take(), "dsync: 25%  1 of 2 files  50 bytes of 200 bytes\n");
    }
}
