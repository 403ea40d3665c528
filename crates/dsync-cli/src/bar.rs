//! The progress bar: files, bytes, rate and remaining time over the whole run.
//!
//! While the source is still being listed the totals grow, so the bar shows neither a percentage
//! nor an estimate. Once they are final, both only increase. A pure function of the numbers makes
//! the line; indicatif draws it on standard error and steps aside while another line is printed.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use dsync_engine::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::numbers::{Bytes, Clock, with_commas};

/// The bar on standard error.
#[derive(Debug)]
pub(crate) struct Bar {
    drawn: ProgressBar,
    speed: Mutex<Speed>,
    started: Instant,
}

impl Bar {
    /// Shows an empty bar; the first [`update`](Self::update) fills it.
    pub(crate) fn new() -> Self {
        let drawn = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND));
        // A template that cannot be parsed would leave indicatif's own one; it is a constant.
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            drawn.set_style(style);
        }
        Self { drawn, speed: Mutex::default(), started: Instant::now() }
    }

    /// Shows the run's progress.
    pub(crate) fn update(&self, progress: &Progress) {
        let now = self.started.elapsed();
        let rate = {
            let mut speed = self.speed();
            speed.add(now, progress.bytes_done);
            speed.per_second()
        };
        self.drawn.set_message(line(progress, rate));
        self.drawn.tick();
    }

    /// Runs `print` with the bar out of the way.
    pub(crate) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.drawn.suspend(print)
    }

    /// Removes the bar.
    pub(crate) fn clear(&self) {
        self.drawn.finish_and_clear();
    }

    fn speed(&self) -> MutexGuard<'_, Speed> {
        self.speed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Most redraws per second: smooth for the eye, cheap over ssh.
const DRAWS_PER_SECOND: u8 = 8;

/// Bytes per second over the last [`WINDOW`].
#[derive(Debug, Default)]
struct Speed {
    samples: VecDeque<(Duration, u64)>,
}

/// Long enough to even out a slow file, short enough to follow a change.
const WINDOW: Duration = Duration::from_secs(5);

impl Speed {
    fn add(&mut self, now: Duration, bytes_done: u64) {
        self.samples.push_back((now, bytes_done));
        while self.samples.len() > 2
            && self.samples.get(1).is_some_and(|&(at, _)| now.saturating_sub(at) >= WINDOW)
        {
            self.samples.pop_front();
        }
    }

    /// Returns the rate; `None` until there is a span to measure.
    fn per_second(&self) -> Option<u64> {
        let (&(from, before), &(to, after)) = (self.samples.front()?, self.samples.back()?);
        let span = to.checked_sub(from).filter(|span| span.as_millis() >= 100)?;
        Some(crate::numbers::rate(after.saturating_sub(before), span))
    }
}

/// Returns the bar's text.
fn line(progress: &Progress, rate: Option<u64>) -> String {
    let files =
        format!("{} of {} files", with_commas(progress.files_done), with_commas(progress.files_needed));
    let bytes = format!("{} of {}", Bytes(progress.bytes_done), Bytes(progress.bytes_needed));
    let speed = rate.map_or_else(String::new, |rate| format!("  {}/s", Bytes(rate)));
    if !progress.totals_final {
        let entries = progress.entries_listed.max(progress.entries_checked);
        return format!("{} entries listed  {files}  {bytes} so far{speed}", with_commas(entries));
    }
    let share = share_done(progress);
    let left = progress.bytes_needed.saturating_sub(progress.bytes_done);
    let eta = match rate {
        Some(rate) if rate > 0 && left > 0 => {
            format!("  {} to go", Clock(Duration::from_secs(left.div_ceil(rate))))
        }
        _ => String::new(),
    };
    format!("[{}] {share:3}%  {files}  {bytes}{speed}{eta}", drawing(share))
}

/// Returns the percentage, rounded down, so that 100 means done.
fn share_done(progress: &Progress) -> u64 {
    let (done, needed) = match progress.bytes_needed {
        0 => (progress.files_done, progress.files_needed),
        needed => (progress.bytes_done, needed),
    };
    if progress.files_done >= progress.files_needed {
        return 100;
    }
    let share = u128::from(done.min(needed)) * 100 / u128::from(needed.max(1));
    u64::try_from(share).unwrap_or(100).min(99)
}

fn drawing(share: u64) -> String {
    let filled = usize::try_from(share.min(100) * DRAWING_WIDTH / 100).unwrap_or_default();
    let width = usize::try_from(DRAWING_WIDTH).unwrap_or_default();
    let mut text = "=".repeat(filled);
    if filled < width {
        text.push('>');
    }
    text.push_str(&" ".repeat(width.saturating_sub(filled + 1)));
    text
}

/// Columns between the brackets.
const DRAWING_WIDTH: u64 = 20;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn progress(files: (u64, u64), bytes: (u64, u64), totals_final: bool) -> Progress {
        Progress {
            entries_checked: 900,
            entries_listed: 1234,
            files_done: files.0,
            files_needed: files.1,
            bytes_done: bytes.0,
            bytes_needed: bytes.1,
            totals_final,
        }
    }

    #[test]
    fn totals_that_still_grow_give_no_percentage() {
        assert_eq!(
            line(&progress((3, 7), (1_500_000, 4_000_000), false), Some(2_000_000)),
            "1,234 entries listed  3 of 7 files  1.5 MB of 4.0 MB so far  2.0 MB/s"
        );
    }

    #[test]
    fn final_totals_give_share_rate_and_time_to_go() {
        assert_eq!(
            line(&progress((3, 7), (1_000_000, 4_000_000), true), Some(1_000)),
            "[=====>              ]  25%  3 of 7 files  1.0 MB of 4.0 MB  1.0 kB/s  50:00 to go"
        );
        assert_eq!(
            line(&progress((7, 7), (4_000_000, 4_000_000), true), None),
            "[====================] 100%  7 of 7 files  4.0 MB of 4.0 MB"
        );
    }

    #[test]
    fn share_never_falls_and_is_full_only_at_the_end() {
        let mut last = 0;
        for done in 0..=1000 {
            let share = share_done(&progress((done / 200, 6), (done, 1000), true));
            assert!(share >= last && share < 100);
            last = share;
        }
        assert_eq!(share_done(&progress((6, 6), (1000, 1000), true)), 100);
        assert_eq!(share_done(&progress((0, 0), (0, 0), true)), 100);
        assert_eq!(share_done(&progress((1, 2), (0, 0), true)), 50);
        assert_eq!(share_done(&progress((1, 2), (u64::MAX, u64::MAX), true)), 99);
    }

    #[test]
    fn speed_is_that_of_the_last_seconds() {
        let mut speed = Speed::default();
        assert_eq!(speed.per_second(), None);
        speed.add(Duration::ZERO, 0);
        assert_eq!(speed.per_second(), None);
        for second in 1..=10 {
            speed.add(Duration::from_secs(second), 100 * second);
        }
        assert_eq!(speed.per_second(), Some(100));
        for second in 11..=20 {
            speed.add(Duration::from_secs(second), 1000 + 300 * (second - 10));
        }
        assert_eq!(speed.per_second(), Some(300));
        assert!(speed.samples.len() < 10);
    }
}
