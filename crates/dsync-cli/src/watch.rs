//! `--watch`: runs again whenever the source has changed and rests.
//!
//! The law: a change at the source is in some run that begins after it. A run watches whatever it
//! reads before it looks ([`TreeWatch`]), so a change is in it, or is seen and leads to another one.
//! Each is a whole run, with a lock and a connection of its own: what it does does not depend on what
//! was seen, so a change that no watch tells of is in the next one as well.

use std::{
    io,
    thread::sleep,
    time::{Duration, Instant},
};

use dsync_engine::{CancelToken, Seen, TreeWatch, exit_code, schema::errno_name};

use crate::{console::say, escape::escape_text, messages::OUTPUT, words};

/// The watch on what the runs of a source read.
pub(crate) struct Watch<'a> {
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
    /// Whether the limit on deletions kept entries from being removed.
    pub(crate) at_limit: bool,
}

impl<'a> Watch<'a> {
    /// Makes a watch without a run.
    pub(crate) fn new(cancel: &'a CancelToken) -> Self {
        Self { cancel, trees: None, told: false }
    }

    /// Runs again and again, with watches if there can be any. Returns the exit code of a first run
    /// that did not come to its end, or of one that was interrupted; `None` if the interrupt came
    /// between two runs.
    pub(crate) fn go(mut self, mut run: impl FnMut(Option<&TreeWatch>) -> Ran) -> Option<u8> {
        let mut failed = 0;
        let mut is_first = true;
        loop {
            self.begin();
            let Ran { code, ended, at_limit } = run(self.trees.as_ref());
            // An interrupt may come too late for the run, and ends the watch all the same.
            if self.cancel.is_cancelled() && ended {
                return None;
            }
            // A mistake in the command line shows at once.
            if self.cancel.is_cancelled() || is_first && !ended {
                return Some(code);
            }
            if code == OUTPUT {
                say("dsync: error: standard output cannot be written any more, so the watch ends");
                return Some(code);
            }
            is_first = false;

            self.tell_lacking();
            if code == exit_code::OK {
                failed = 0;
                self.await_change(None);
            } else if at_limit {
                // Another run by itself would remove as many more.
                say("dsync: not trying again before something changes, because of --max-delete");
                self.await_change(None);
            } else {
                failed += 1;
                let pause = pause_after(failed);
                say(&format!("dsync: trying again in {} s", pause.as_secs()));
                // The next change may repair entries that failed, and no connection.
                if ended { self.await_change(Some(pause)) } else { self.rest(pause) }
            }
            if self.cancel.is_cancelled() {
                return None;
            }
        }
    }

    /// Makes watches possible, and takes the changes so far: they are in the run that begins now.
    fn begin(&mut self) {
        if self.trees.is_none() {
            match TreeWatch::new() {
                Ok(trees) => self.trees = Some(trees),
                Err(error) => self.tell_why(&error),
            }
        }
        self.take(Duration::ZERO);
    }

    /// Waits until something has changed and nothing has for a moment, or until it is time to look:
    /// after so long at the most.
    fn await_change(&mut self, most: Option<Duration>) {
        let is_blind = self.trees.as_ref().is_none_or(|trees| trees.lacking().is_some());
        let most = most.into_iter().chain(is_blind.then_some(LOOK_EVERY)).min();
        let began = Instant::now();
        while self.take(SLICE) == Seen::Nothing {
            if self.cancel.is_cancelled() || most.is_some_and(|most| began.elapsed() >= most) {
                return;
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

    /// Waits, but not for a source that has come back.
    fn rest(&mut self, pause: Duration) {
        let began = Instant::now();
        while began.elapsed() < pause && !self.cancel.is_cancelled() {
            if self.take(SLICE) == Seen::Replaced {
                return;
            }
        }
    }

    /// Takes the changes that are known, after waiting for one at most so long.
    fn take(&mut self, most: Duration) -> Seen {
        let taken = match &self.trees {
            Some(trees) => trees.take(most),
            None => {
                sleep(most);
                return Seen::Nothing;
            }
        };
        taken.unwrap_or_else(|_| {
            // The next run has new ones.
            self.trees = None;
            Seen::Changed
        })
    }

    /// Says once what the watches lack.
    fn tell_lacking(&mut self) {
        if let Some(error) = self.trees.as_ref().and_then(TreeWatch::lacking) {
            self.tell_why(&error);
        }
    }

    fn tell_why(&mut self, error: &io::Error) {
        if !self.told {
            self.told = true;
            let (why, every) = (why_lacking(error), LOOK_EVERY.as_secs());
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
