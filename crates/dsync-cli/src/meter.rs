//! The state of a run in numbers, and the line that shows it.
//!
//! While the source is still being listed the totals grow, so there is neither a percentage nor an
//! estimate. Once the totals are final the percentage only increases: a lost connection lets the
//! counts of a session start anew, and what was done before is added to them. A line is a pure
//! function of the numbers and of its width: a field that does not fit is left out whole, the less
//! important first.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use dsync_engine::{FileProgress, Progress};
use unicode_width::UnicodeWidthChar as _;

use crate::{
    escape::Escaped,
    numbers::{Bytes, Clock, rate, with_commas},
};

/// The counts of a run and its rate.
#[derive(Debug)]
pub(crate) struct Meter {
    counts: Mutex<Counts>,
    started: Instant,
}

#[derive(Debug, Default)]
struct Counts {
    speed: Speed,
    /// Counts of the session that runs.
    session: Progress,
    /// Sums of the sessions that broke.
    before: Progress,
    /// Highest percentage so far.
    share: u64,
    file: Option<FileProgress>,
}

impl Meter {
    /// Starts with nothing done.
    pub(crate) fn new() -> Self {
        Self { counts: Mutex::default(), started: Instant::now() }
    }

    /// Takes the counts of the running session.
    pub(crate) fn progress(&self, progress: &Progress) {
        let now = self.started.elapsed();
        let mut counts = self.counts();
        let done = counts.before.bytes_done.saturating_add(progress.bytes_done);
        counts.speed.add(now, done);
        counts.session = *progress;
    }

    /// Takes the file whose content is under way.
    pub(crate) fn file(&self, file: &FileProgress) {
        self.counts().file = Some(file.clone());
    }

    /// Notes that the session broke: the next one counts from 0.
    pub(crate) fn session_broke(&self) {
        self.counts().session_broke();
    }

    /// Returns the line for a screen of `columns`.
    pub(crate) fn line(&self, columns: usize) -> String {
        line(&self.counts().reading(), columns)
    }

    /// Returns the line for a log.
    pub(crate) fn whole_line(&self) -> String {
        let fields = fields(&self.counts().reading());
        let texts = fields.into_iter().filter(|field| field.kind != Kind::Drawing).map(|field| field.text);
        texts.collect::<Vec<_>>().join("  ").trim_start().to_owned()
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn session_broke(&mut self) {
        let session = std::mem::take(&mut self.session);
        self.before.files_done = self.before.files_done.saturating_add(session.files_done);
        self.before.bytes_done = self.before.bytes_done.saturating_add(session.bytes_done);
        self.file = None;
    }

    fn reading(&mut self) -> Reading {
        let (session, before) = (&self.session, &self.before);
        let mut progress = *session;
        progress.files_done = before.files_done.saturating_add(session.files_done);
        progress.files_needed = before.files_done.saturating_add(session.files_needed);
        progress.bytes_needed = before.bytes_done.saturating_add(session.bytes_needed);
        // A file that is asked for again counts twice.
        progress.bytes_done = before.bytes_done.saturating_add(session.bytes_done).min(progress.bytes_needed);

        let share = session.totals_final.then(|| {
            self.share = self.share.max(share_done(&progress));
            self.share
        });
        Reading { progress, share, rate: self.speed.per_second(), file: self.file.clone() }
    }
}

/// The numbers of one moment.
#[derive(Debug, Clone)]
struct Reading {
    progress: Progress,
    /// Percentage of the whole run; `None` while totals grow.
    share: Option<u64>,
    /// Bytes per second.
    rate: Option<u64>,
    file: Option<FileProgress>,
}

impl Reading {
    fn time_to_go(&self) -> Option<Duration> {
        let left = self.progress.bytes_needed.saturating_sub(self.progress.bytes_done);
        let rate = self.rate.filter(|rate| *rate > 0 && left > 0)?;
        self.share.map(|_| Duration::from_secs(left.div_ceil(rate)))
    }
}

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
        Some(rate(after.saturating_sub(before), span))
    }
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

/// A part of the line that is shown whole or not at all.
struct Field {
    kind: Kind,
    text: String,
}

/// The fields from the most to the least important.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Share,
    Time,
    Bytes,
    File,
    Rate,
    Files,
    Drawing,
}

/// Returns all fields in the order in which they are shown.
fn fields(reading: &Reading) -> Vec<Field> {
    let progress = &reading.progress;
    let field = |kind, text| Some(Field { kind, text });
    let listed = || progress.entries_listed.max(progress.entries_checked);

    let drawing = reading.share.and_then(|share| field(Kind::Drawing, format!("[{}]", drawing(share))));
    let share = match reading.share {
        Some(share) => format!("{share:3}%"),
        None => format!("{} entries listed", with_commas(listed())),
    };
    let bytes = format!("{} of {}", Bytes(progress.bytes_done), Bytes(progress.bytes_needed));
    let so_far = if reading.share.is_none() { " so far" } else { "" };
    let (done, needed) = (with_commas(progress.files_done), with_commas(progress.files_needed));
    let rate = reading.rate.and_then(|rate| field(Kind::Rate, format!("{}/s", Bytes(rate))));
    let time = reading.time_to_go().and_then(|time| field(Kind::Time, format!("{} to go", Clock(time))));
    let file = reading.file.as_ref().and_then(|file| field(Kind::File, file_text(file)));

    [
        drawing,
        field(Kind::Share, share),
        field(Kind::Files, format!("{done} of {needed} files")),
        field(Kind::Bytes, format!("{bytes}{so_far}")),
        rate,
        time,
        file,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the line in at most `columns`: the fields that fit, by importance. The name of the file
/// takes the room that is left.
fn line(reading: &Reading, columns: usize) -> String {
    let fields = fields(reading);
    let mut by_importance: Vec<&Field> = fields.iter().collect();
    by_importance.sort_by_key(|field| field.kind);
    let mut chosen = Vec::new();
    let mut used = 0;
    for field in by_importance {
        let needed = match field.kind {
            Kind::File => width(&field.text).min(SHORTEST_FILE),
            _ => width(&field.text),
        };
        let gap = if chosen.is_empty() { 0 } else { GAP.len() };
        if used + gap + needed <= columns {
            used += gap + needed;
            chosen.push(field.kind);
        }
    }

    let left = columns - used;
    let texts = fields.iter().filter(|field| chosen.contains(&field.kind)).map(|field| match field.kind {
        Kind::File => shorten(&field.text, width(&field.text).min(SHORTEST_FILE) + left),
        _ => field.text.clone(),
    });
    texts.collect::<Vec<_>>().join(GAP)
}

/// Returns the share and the name of a file; the name is behind, as it is what can be shortened.
fn file_text(file: &FileProgress) -> String {
    let share = (u128::from(file.done_bytes) * 100).checked_div(u128::from(file.size)).unwrap_or(100);
    format!("{share}% of {}", Escaped(&file.path))
}

/// Returns the text in at most `columns`: its first word and the end of the rest.
fn shorten(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let head_len = text.find(" of ").map_or(0, |at| at + " of ".len());
    let (head, name) = text.split_at(head_len);
    let mut room = columns.saturating_sub(width(head) + ELLIPSIS.len());
    let mut start = name.len();
    for (at, letter) in name.char_indices().rev() {
        let wide = letter.width().unwrap_or(0);
        if wide > room {
            break;
        }
        room -= wide;
        start = at;
    }
    format!("{head}{ELLIPSIS}{}", &name[start..])
}

/// Returns the columns that a text takes on a terminal.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(|letter| letter.width().unwrap_or(0)).sum()
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
/// Space between two fields.
const GAP: &str = "  ";
/// Fewest columns that a file's share and name are worth.
const SHORTEST_FILE: usize = 20;
/// In the place of the beginning of a long name; a terminal without UTF-8 shows it too.
const ELLIPSIS: &str = "...";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn progress(files: (u64, u64), bytes: (u64, u64), totals_final: bool) -> Progress {
        Progress::default()
            .entries_checked(900)
            .entries_listed(1234)
            .files_done(files.0)
            .files_needed(files.1)
            .bytes_done(bytes.0)
            .bytes_needed(bytes.1)
            .totals_final(totals_final)
    }

    fn reading(progress: Progress, rate: Option<u64>) -> Reading {
        let share = progress.totals_final.then(|| share_done(&progress));
        Reading { progress, share, rate, file: None }
    }

    fn with_file(path: &str) -> Reading {
        let file = FileProgress::new(path, 400).done_bytes(172);
        let mut reading = reading(progress((3, 7), (1_000_000, 4_000_000), true), Some(1_000));
        reading.file = Some(file);
        reading
    }

    #[test]
    fn totals_that_still_grow_show_no_percentage() {
        let reading = reading(progress((3, 7), (1_500_000, 4_000_000), false), Some(2_000_000));
        assert_eq!(
            line(&reading, 80),
            "1,234 entries listed  3 of 7 files  1.5 MB of 4.0 MB so far  2.0 MB/s"
        );
        assert_eq!(line(&reading, 40), "1,234 entries listed  2.0 MB/s");
    }

    #[test]
    fn final_totals_show_share_rate_and_time_to_go() {
        let half = reading(progress((3, 7), (1_000_000, 4_000_000), true), Some(1_000));
        assert_eq!(
            line(&half, 100),
            "[=====>              ]   25%  3 of 7 files  1.0 MB of 4.0 MB  1.0 kB/s  50:00 to go"
        );
        let done = reading(progress((7, 7), (4_000_000, 4_000_000), true), None);
        assert_eq!(line(&done, 80), "[====================]  100%  7 of 7 files  4.0 MB of 4.0 MB");
    }

    #[test]
    fn fields_are_left_out_whole_as_the_terminal_narrows() {
        let reading = with_file("photos/2026/summer/holiday-in-the-mountains.raw");
        for (columns, expected) in [
            (
                200,
                "[=====>              ]   25%  3 of 7 files  1.0 MB of 4.0 MB  1.0 kB/s  50:00 to go  \
                 43% of photos/2026/summer/holiday-in-the-mountains.raw",
            ),
            (80, " 25%  1.0 MB of 4.0 MB  1.0 kB/s  50:00 to go  43% of ...ay-in-the-mountains.raw"),
            (40, " 25%  1.0 MB of 4.0 MB  50:00 to go"),
            (20, " 25%  50:00 to go"),
            (5, " 25%"),
            (3, ""),
        ] {
            let shown = line(&reading, columns);
            assert_eq!(shown, expected, "{columns}");
        }
    }

    #[test]
    fn names_are_escaped_and_wide_characters_take_two_columns() {
        let shown = line(&with_file("写真/夏休み/山の上の小さな家の写真その一.raw\x1b[2J\n"), 80);
        assert!(shown.ends_with("一.raw\\#033[2J\\#012"), "{shown}");
        assert!(width(&shown) <= 80, "{shown}");
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
    fn share_goes_on_after_a_lost_connection() {
        let mut counts = Counts { session: progress((5, 10), (500, 1000), true), ..Counts::default() };
        assert_eq!(counts.reading().share, Some(50));
        counts.session_broke();
        assert_eq!(counts.reading().share, None);

        // Some of what had arrived is asked for again.
        counts.session = progress((0, 5), (0, 700), true);
        let after = counts.reading();
        assert_eq!(after.share, Some(50));
        assert_eq!((after.progress.files_done, after.progress.files_needed), (5, 10));
        assert_eq!((after.progress.bytes_done, after.progress.bytes_needed), (500, 1200));
        counts.session = progress((5, 5), (700, 700), true);
        assert_eq!(counts.reading().share, Some(100));
    }

    #[test]
    fn log_line_has_all_fields_but_the_drawing() {
        let meter = Meter::new();
        meter.progress(&progress((3, 7), (1_000_000, 4_000_000), true));
        meter.file(&FileProgress::new("a b", 0).done_bytes(0));
        assert_eq!(meter.whole_line(), "25%  3 of 7 files  1.0 MB of 4.0 MB  100% of a b");
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

    proptest! {
        #[test]
        fn no_line_is_wider_than_its_terminal(columns in 0_usize..220, path in "\\PC{0,80}|[写真é/a]{0,90}") {
            let shown = line(&with_file(&path), columns);
            prop_assert!(width(&shown) <= columns, "{shown:?}");
        }
    }
}
