//! `--watch`: runs again whenever the source has changed and rests.
//!
//! The law: a change at the source is in some run that begins after it. Watches are set before a run
//! lists the tree; what they tell up to its beginning is in that run, and what they tell later
//! leads to another one. Each is a whole run, with a lock and a connection of its own: what it does
//! does not depend on what was seen, so a change that no watch tells of is in the next one as well.

use std::{
    io,
    path::PathBuf,
    thread::sleep,
    time::{Duration, Instant},
};

use dsync_engine::{CancelToken, Seen, TreeWatch, exit_code, schema::errno_name, watch_trees};

use crate::{console::say, escape::escape_text, usage::UsageError, words};

/// The watch on the directories of a run's source.
pub(crate) struct Watch<'a> {
    paths: &'a [PathBuf],
    cancel: &'a CancelToken,
    /// `None` if there can be no watches.
    trees: Option<TreeWatch>,
    /// Whether it was said that some changes are found only by looking.
    told: bool,
}

/// A run of a watch that is over.
pub(crate) struct Ran {
    pub(crate) code: u8,
    /// Whether it came to its end, however many entries failed.
    pub(crate) ended: bool,
}

impl<'a> Watch<'a> {
    /// Begins to watch directories.
    ///
    /// # Errors
    /// [`UsageError`] for an operand that is a file.
    pub(crate) fn begin(paths: &'a [PathBuf], cancel: &'a CancelToken) -> Result<Self, UsageError> {
        let is_file = |error: &io::Error| error.kind() == io::ErrorKind::NotADirectory;
        let trees = watch_trees(paths);
        if trees.as_ref().is_err_and(is_file) {
            return Err(UsageError::UnsupportedUse { text: "--watch of a file (give its directory)" });
        }
        let mut watch = Self { paths, cancel, trees: None, told: false };
        watch.accept(trees);
        Ok(watch)
    }

    /// Runs again and again. Returns the exit code of a first run that did not come to its end, or
    /// of one that was interrupted; `None` if the interrupt came between two runs.
    pub(crate) fn go(mut self, mut run: impl FnMut() -> Ran) -> Option<u8> {
        let mut failed = 0;
        let mut is_first = true;
        loop {
            // The changes so far are in the run that begins now.
            self.take(Duration::ZERO);
            let Ran { code, ended } = run();
            // An interrupt may come too late for the run, and ends the watch all the same.
            if self.cancel.is_cancelled() && ended {
                return None;
            }
            // A mistake in the command line shows at once.
            if self.cancel.is_cancelled() || is_first && !ended {
                return Some(code);
            }
            is_first = false;

            if code == exit_code::OK {
                failed = 0;
                self.await_change();
            } else {
                failed += 1;
                let pause = pause_after(failed);
                say(&format!("dsync: trying again in {} s", pause.as_secs()));
                self.rest(pause);
            }
            if self.cancel.is_cancelled() {
                return None;
            }
        }
    }

    /// Waits until something has changed and nothing has for a moment, or until it is time to look.
    fn await_change(&mut self) {
        let is_blind = self.trees.as_ref().is_none_or(|trees| trees.lacking().is_some());
        let began = Instant::now();
        while self.take(SLICE) == Seen::Nothing {
            if self.cancel.is_cancelled() {
                return;
            }
            if is_blind && began.elapsed() >= LOOK_EVERY {
                return self.renew();
            }
        }

        let first = Instant::now();
        let mut last = first;
        while last.elapsed() < QUIET && first.elapsed() < LONGEST && !self.cancel.is_cancelled() {
            if self.take(SLICE) != Seen::Nothing {
                last = Instant::now();
            }
        }
    }

    /// Takes the changes that are known, after waiting for one at most so long.
    fn take(&mut self, most: Duration) -> Seen {
        let Some(trees) = &mut self.trees else {
            sleep(most);
            return Seen::Nothing;
        };
        match trees.take(most) {
            Ok(Seen::Lost) | Err(_) => {
                self.renew();
                Seen::Lost
            }
            Ok(seen) => seen,
        }
    }

    fn rest(&self, pause: Duration) {
        let began = Instant::now();
        while began.elapsed() < pause && !self.cancel.is_cancelled() {
            sleep(SLICE);
        }
    }

    /// Sets new watches on all that is there now.
    fn renew(&mut self) {
        // The old ones count until they are gone.
        self.trees = None;
        self.accept(watch_trees(self.paths));
    }

    /// Takes new watches, and says once what they lack.
    fn accept(&mut self, trees: io::Result<TreeWatch>) {
        let why = match trees {
            Ok(trees) => {
                let lacking = trees.lacking().map(why_lacking);
                self.trees = Some(trees);
                lacking
            }
            Err(error) => Some(why_lacking(&error)),
        };
        if let Some(why) = why.filter(|_| !self.told) {
            self.told = true;
            let every = LOOK_EVERY.as_secs();
            say(&escape_text(&format!(
                "dsync: not everything can be watched: {why}; the source is looked through every {every} s"
            )));
        }
    }
}

/// Returns the reason in words, with the cure where the system has a limit.
fn why_lacking(error: &io::Error) -> String {
    match error.raw_os_error().map(errno_name).as_deref() {
        Some("ENOSPC") => {
            "there are more directories than fs.inotify.max_user_watches (raise it as root: sysctl \
             fs.inotify.max_user_watches=1048576)"
                .to_owned()
        }
        Some("EMFILE") => {
            "there are as many watching programs as fs.inotify.max_user_instances (raise it as root: sysctl \
             fs.inotify.max_user_instances=1024)"
                .to_owned()
        }
        _ => words::system_words(error),
    }
}

/// Returns how long to wait after so many failures one after the other: 1 s, doubled up to a minute.
fn pause_after(failed: u32) -> Duration {
    Duration::from_secs(1 << failed.saturating_sub(1).min(6)).min(LONGEST_PAUSE)
}

/// Time without a change before a run: programs write in bursts, and a run has a price.
const QUIET: Duration = Duration::from_millis(500);
/// A source that never rests is copied so often.
const LONGEST: Duration = Duration::from_secs(10);
/// Time between two looks at a source that cannot be watched as a whole.
const LOOK_EVERY: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Time in which an interrupt is heard.
const SLICE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute() {
        let seconds = [1, 2, 3, 6, 7, 8, 1000].map(|failed| pause_after(failed).as_secs());
        assert_eq!(seconds, [1, 2, 4, 32, 60, 60, 60]);
    }

    #[test]
    fn limits_of_the_system_come_with_their_cure() {
        let why = |number| why_lacking(&io::Error::from_raw_os_error(number));
        assert!(why(28).contains("sysctl fs.inotify.max_user_watches="));
        assert!(why(24).contains("sysctl fs.inotify.max_user_instances="));
        assert!(!why(2).contains("sysctl"));
    }
}
