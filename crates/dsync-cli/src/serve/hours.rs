//! The hours of the day in which a key is let in, in UTC as its last day is.
//!
//! The law: a session ends when its hours do, whatever it is doing. Hours that touch or overlap are
//! one stretch.

use std::{fmt, str::FromStr, time::Duration};

use jiff::{Timestamp, tz::TimeZone};

/// The allowed hours; none means all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Hours(Vec<Stretch>);

impl Hours {
    /// Makes the hours of their stretches.
    pub(crate) fn new(stretches: Vec<Stretch>) -> Self {
        Self(stretches)
    }

    /// Returns whether every hour is allowed.
    pub(crate) fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the time that a session that begins now has; `None` outside of the hours.
    pub(crate) fn left(&self, now: Timestamp) -> Option<Left> {
        let time = now.to_zoned(TimeZone::UTC).time();
        let second = u64::from(time.hour().unsigned_abs()) * 3600
            + u64::from(time.minute().unsigned_abs()) * 60
            + u64::from(time.second().unsigned_abs());
        self.left_at(second)
    }

    fn left_at(&self, second: u64) -> Option<Left> {
        if self.is_all() {
            return Some(Left::Endless);
        }
        let mut left = 0;
        // Each step ends one stretch; a day without an end has none.
        while left < DAY {
            let at = (second + left) % DAY;
            match self.0.iter().filter_map(|stretch| stretch.left_at(at)).max() {
                Some(more) => left += more,
                None if left == 0 => return None,
                None => return Some(Left::For(Duration::from_secs(left))),
            }
        }
        Some(Left::Endless)
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stretches: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        write!(f, "{} UTC", stretches.join(", "))
    }
}

/// The time that a session has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    Endless,
    For(Duration),
}

/// One stretch of hours; it may go over midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// Minutes of the day, to 24:00 included.
    from: u64,
    to: u64,
}

impl Stretch {
    /// Returns the seconds from one of the day to the end; `None` outside.
    fn left_at(self, second: u64) -> Option<u64> {
        let (from, to) = (self.from * 60, self.to * 60);
        match from < to {
            true => (from..to).contains(&second).then(|| to - second),
            false if second >= from => Some(DAY - second + to),
            false => (second < to).then(|| to - second),
        }
    }
}

/// The error for text that is no stretch of hours.
#[derive(Debug)]
pub(crate) struct NotHours;

impl fmt::Display for NotHours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("is no stretch of hours like 22:00-06:00")
    }
}

impl FromStr for Stretch {
    type Err = NotHours;

    fn from_str(text: &str) -> Result<Self, NotHours> {
        let (from, to) = text.split_once('-').ok_or(NotHours)?;
        let (from, to) = (minute(from).ok_or(NotHours)?, minute(to).ok_or(NotHours)?);
        // Nobody can say whether that is none of the day or all of it.
        if from == to || from == DAY / 60 { Err(NotHours) } else { Ok(Self { from, to }) }
    }
}

impl fmt::Display for Stretch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [from, to] = [self.from, self.to].map(|minute| format!("{:02}:{:02}", minute / 60, minute % 60));
        write!(f, "{from}-{to}")
    }
}

/// Reads a time of two digits each, up to 24:00.
fn minute(text: &str) -> Option<u64> {
    let (hour, minute) = text.split_once(':')?;
    let number = |digits: &str| -> Option<u64> {
        let is_number = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_digit());
        is_number.then(|| digits.parse().ok())?
    };
    let (hour, minute) = (number(hour)?, number(minute)?);
    let all = hour * 60 + minute;
    (minute < 60 && all <= DAY / 60).then_some(all)
}

/// Seconds of a day.
const DAY: u64 = 24 * 3600;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn hours(stretches: &[&str]) -> Hours {
        Hours::new(stretches.iter().map(|text| text.parse().unwrap()).collect())
    }

    /// Returns the seconds left at a moment of the day; 0 if there is no end.
    fn left(stretches: &[&str], moment: &str) -> Option<u64> {
        let now: Timestamp = format!("2026-11-23T{moment}Z").parse().unwrap();
        hours(stretches).left(now).map(|left| match left {
            Left::Endless => 0,
            Left::For(time) => time.as_secs(),
        })
    }

    #[test]
    fn a_stretch_has_its_first_moment_and_not_its_last() {
        let day = &["09:00-17:30"][..];
        assert_eq!(left(day, "08:59:59"), None);
        assert_eq!(left(day, "09:00:00"), Some(8 * 3600 + 1800));
        assert_eq!(left(day, "17:29:59.9"), Some(1));
        assert_eq!(left(day, "17:30:00"), None);
        let night = &["22:00-06:00"][..];
        assert_eq!(left(night, "21:59:59"), None);
        assert_eq!(left(night, "22:00:00"), Some(8 * 3600));
        assert_eq!(left(night, "00:00:00"), Some(6 * 3600));
        assert_eq!(left(night, "05:59:59"), Some(1));
        assert_eq!(left(night, "06:00:00"), None);
        let late = &["22:00-24:00"][..];
        assert_eq!((left(late, "23:00:00"), left(late, "00:00:00")), (Some(3600), None));
    }

    #[test]
    fn stretches_that_touch_are_one_and_all_of_the_day_has_no_end() {
        assert_eq!(left(&["22:00-24:00", "00:00-06:00"], "23:00:00"), Some(7 * 3600));
        assert_eq!(left(&["08:00-10:00", "09:00-12:00"], "08:00:00"), Some(4 * 3600));
        for all in [&["00:00-24:00"][..], &["00:00-12:00", "12:00-00:00"], &[]] {
            assert_eq!(left(all, "13:14:15"), Some(0), "{all:?}");
        }
    }

    #[test]
    fn what_is_no_stretch_is_refused() {
        for text in [
            "",
            "22-06",
            "22:00",
            "22:00-25:00",
            "24:00-06:00",
            "22:60-23:00",
            "9:00-10:00",
            "09:00-09:00",
            "09:00-24:01",
            "+9:00-10:00",
        ] {
            assert!(text.parse::<Stretch>().is_err(), "{text}");
        }
        assert_eq!(hours(&["22:00-06:00", "12:00-12:30"]).to_string(), "22:00-06:00, 12:00-12:30 UTC");
    }
}
