//! Runs that stop by themselves: the time, as rsync writes it, and the watch that cancels the run
//! then.
//!
//! Takes the words of `--stop-after` and `--stop-at` and cancels the run's token when the wall clock
//! gets there. What the engine does then is the same as for an interrupt; only the exit code and the
//! last line differ.

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use dsync_engine::CancelToken;
use jiff::{Timestamp, ToSpan as _, Zoned, civil::Date};

use crate::{flags::Stopping, log::system_zone, streams, usage::UsageError};

/// A point in time of which parts may be left open.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Moment {
    /// The words, for a message.
    text: String,
    year: Option<Year>,
    month: Option<i8>,
    day: Option<i8>,
    hour: Option<i8>,
    minute: Option<i8>,
}

/// A year as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Year {
    Full(i16),
    InCentury(i16),
}

/// The error for words that are no point in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotAMoment {
    /// The words have another form.
    Words,
    /// The month has no such day, or not in the year that the words name.
    NoSuchDay,
}

impl fmt::Display for NotAMoment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Words => "is no time like 2026-12-31T23:59, 12-31, 23:59 or :30",
            Self::NoSuchDay => "is no day of the calendar",
        })
    }
}

impl std::error::Error for NotAMoment {}

impl Moment {
    /// Reads `[[YEAR-]MONTH-]DAY`, `[HOUR]:MINUTE`, or both with a `T` between them, in either case.
    pub(crate) fn parse(text: &str) -> Result<Self, NotAMoment> {
        let (date, time) = match text.split_once(['T', 't']) {
            Some((date, time)) => (date, time),
            None if text.contains(':') => ("", text),
            None => (text, ""),
        };
        if date.is_empty() && time.is_empty() {
            return Err(NotAMoment::Words);
        }

        let mut moment = Self { text: text.to_owned(), ..Self::default() };
        if !date.is_empty() {
            let parts: Vec<&str> = date.split(['-', '/']).collect();
            let (year, month, day) = match *parts.as_slice() {
                [day] => (None, None, day),
                [month, day] => (None, Some(month), day),
                [year, month, day] => (Some(year), Some(month), day),
                _ => return Err(NotAMoment::Words),
            };
            moment.year = year.map(Year::parse).transpose()?;
            moment.month = month.map(|month| number(month, 1..=12)).transpose()?;
            moment.day = Some(number(day, 1..=31)?);
        }
        if !time.is_empty() {
            let (hour, minute) = time.split_once(':').ok_or(NotAMoment::Words)?;
            moment.hour = if hour.is_empty() { None } else { Some(number(hour, 0..=23)?) };
            moment.minute = Some(number(minute, 0..=59)?);
        }
        if moment.has_possible_day() { Ok(moment) } else { Err(NotAMoment::NoSuchDay) }
    }

    /// Returns whether the month has the day, in the year if one is given.
    fn has_possible_day(&self) -> bool {
        let year = match self.year {
            Some(Year::Full(year)) => year,
            Some(Year::InCentury(year)) => LEAP_YEAR + year,
            None => LEAP_YEAR,
        };
        match (self.month, self.day) {
            (Some(month), Some(day)) => Date::new(year, month, day).is_ok(),
            _ => true,
        }
    }

    /// Returns the first time after `now` that has all the given parts.
    fn after(&self, now: &Zoned) -> Option<Zoned> {
        let today = now.date();
        let mut day = match self.year {
            Some(Year::Full(year)) => today.max(Date::new(year, 1, 1).ok()?),
            _ => today,
        };
        for _ in 0..MOST_DAYS {
            if self.has_date(day) {
                let hours = match self.hour {
                    Some(hour) => hour..=hour,
                    None if self.minute.is_some() => 0..=23,
                    None => 0..=0,
                };
                let times = hours.filter_map(|hour| {
                    day.at(hour, self.minute.unwrap_or(0), 0, 0).to_zoned(now.time_zone().clone()).ok()
                });
                if let Some(time) = times.filter(|time| time > now).min() {
                    return Some(time);
                }
            }
            day = day.checked_add(1.day()).ok()?;
        }
        None
    }

    fn has_date(&self, date: Date) -> bool {
        let year = match self.year {
            None => true,
            Some(Year::Full(year)) => date.year() == year,
            Some(Year::InCentury(year)) => date.year() % 100 == year,
        };
        year && self.month.is_none_or(|month| month == date.month())
            && self.day.is_none_or(|day| day == date.day())
    }
}

impl Year {
    fn parse(text: &str) -> Result<Self, NotAMoment> {
        let year = number(text, 0..=9999)?;
        match text.len() {
            4 => Ok(Self::Full(year)),
            1 | 2 => Ok(Self::InCentury(year)),
            _ => Err(NotAMoment::Words),
        }
    }
}

/// Reads digits.
fn number<T: std::str::FromStr + PartialOrd>(
    text: &str,
    range: std::ops::RangeInclusive<T>,
) -> Result<T, NotAMoment> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NotAMoment::Words);
    }
    text.parse().ok().filter(|number| range.contains(number)).ok_or(NotAMoment::Words)
}

/// Returns the time at which a run that starts now has to stop.
///
/// # Errors
/// [`UsageError`] for a time that has passed.
pub(crate) fn time(flags: &Stopping) -> Result<Option<SystemTime>, UsageError> {
    if let Some(minutes) = flags.stop_after {
        return Ok(SystemTime::now().checked_add(Duration::from_secs(minutes.saturating_mul(60))));
    }
    let Some(moment) = &flags.stop_at else { return Ok(None) };
    match moment.after(&Timestamp::now().to_zoned(system_zone())) {
        Some(time) => Ok(Some(SystemTime::from(time.timestamp()))),
        None => Err(UsageError::ValueInvalid {
            option: "--stop-at".to_owned(),
            reason: format!("'{}' is not in the future", moment.text),
        }),
    }
}

/// Cancels a run at a time, from a thread of its own. The flag is set before.
///
/// # Errors
/// If the thread cannot be started.
pub(crate) fn watch(time: SystemTime, cancel: CancelToken) -> io::Result<Arc<AtomicBool>> {
    let reached = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&reached);
    std::thread::Builder::new().name("stop".into()).spawn(move || {
        // By the wall clock, which a suspended machine and a clock that is set right do not stop.
        while let Ok(left) = time.duration_since(SystemTime::now()) {
            std::thread::sleep(left.min(LOOK).max(Duration::from_millis(1)));
        }
        flag.store(true, Ordering::Release);
        streams::tell_to_end();
        cancel.cancel();
    })?;
    Ok(reached)
}

/// A leap year, for a day whose year is not given or lacks its century.
const LEAP_YEAR: i16 = 2000;

/// Time between two looks at the clock.
const LOOK: Duration = Duration::from_secs(5);

/// Days that are looked at: a leap day of a year of two digits may be 8 centuries away, which nobody
/// means; two of them are enough for all others.
const MOST_DAYS: u32 = 200 * 366;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn next(text: &str) -> String {
        let now: Zoned = "2026-11-22T20:56:30[UTC]".parse().unwrap();
        match Moment::parse(text) {
            Err(NotAMoment::Words) => "invalid".to_owned(),
            Err(NotAMoment::NoSuchDay) => "no day".to_owned(),
            Ok(moment) => moment
                .after(&now)
                .map_or_else(|| "past".to_owned(), |time| time.strftime("%F %H:%M").to_string()),
        }
    }

    /// rsync 3.5.0 takes and refuses the same words, but for days that a month does not have.
    #[test]
    fn open_parts_are_the_next_possible_ones() {
        for (text, wanted) in [
            ("2026-11-22T20:57", "2026-11-22 20:57"),
            ("2026-11-22T20:56", "past"),
            ("2026-11-22", "past"),
            ("2020-01-01T00:00", "past"),
            ("2027/1/30", "2027-01-30 00:00"),
            ("27-1-2T3:04", "2027-01-02 03:04"),
            ("27-1-2t3:04", "2027-01-02 03:04"),
            ("25-1-2", "2125-01-02 00:00"),
            ("1-30", "2027-01-30 00:00"),
            ("12/31", "2026-12-31 00:00"),
            ("12-31T", "2026-12-31 00:00"),
            ("2-29", "2028-02-29 00:00"),
            ("1", "2026-12-01 00:00"),
            ("31", "2026-12-31 00:00"),
            ("14:00", "2026-11-23 14:00"),
            ("T20:57", "2026-11-22 20:57"),
            (":59", "2026-11-22 20:59"),
            (":5", "2026-11-22 21:05"),
            ("23T:30", "2026-11-23 00:30"),
            ("2027-2-30", "no day"),
            ("2027-2-29", "no day"),
            ("27-2-29", "no day"),
            ("28-2-29", "2028-02-29 00:00"),
            ("2-30T12:00", "no day"),
            ("4-31", "no day"),
        ] {
            assert_eq!(next(text), wanted, "{text}");
        }
        for text in [
            "",
            "T",
            "T5",
            "T5:",
            "T24:00",
            "2027-1-1T1:61",
            "2027-1",
            "2027-13-01",
            "0-1",
            "2027-0-1",
            "x",
            "1-2-3-4",
            "2027-1-1T1:2:3",
            "2027/1/30T7",
            "-1",
            "+1",
            "027-1-1",
        ] {
            assert_eq!(next(text), "invalid", "{text}");
        }
    }

    #[test]
    fn the_watch_cancels_when_the_time_has_come() {
        let cancel = CancelToken::new();
        let reached = watch(SystemTime::now(), cancel.clone()).unwrap();
        while !cancel.is_cancelled() {
            std::thread::yield_now();
        }
        assert!(reached.load(Ordering::Acquire));
        let later = CancelToken::new();
        let reached = watch(SystemTime::now() + Duration::from_secs(3600), later.clone()).unwrap();
        assert!(!later.is_cancelled() && !reached.load(Ordering::Acquire));
    }
}
