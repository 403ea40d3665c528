//! `dsync serve --clean`: removes what clients of the role `keep` replaced and removed, once its
//! days are over. A server that stands does the same every hour.
//!
//! The law: the process that reads the configuration opens no file of a share. For each share it
//! starts its own program, which becomes the share's user and enters a cage around the share.

use std::{
    ffi::OsStr,
    io::{self, Read as _, Write as _},
    process::Stdio,
};

use dsync_engine::exit_code;
use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

use super::{admission::in_words, child::own_program, config::Config, user::Users};
use crate::{cage::Cage, console::say, escape::escape_text, messages, words::system_words};

/// Cleans all shares; returns the exit code, that of a share that failed if one did.
pub(super) fn run(config: &Config) -> u8 {
    let kept = config.shares.iter().filter(|(_, offer)| offer.keep_days.is_some());
    kept.fold(exit_code::OK, |code, (share, _)| match start(&config.text, share) {
        Ok(exit_code::OK) => code,
        Ok(failed) => failed,
        Err(error) => {
            say(&escape_text(&format!("dsync: share {share} is not cleaned: {}", system_words(&error))));
            exit_code::START
        }
    })
}

/// Cleans a share in a process of its own; returns the exit code.
fn start(config: &str, share: &str) -> io::Result<u8> {
    let mut command = own_program(&["serve", "--clean-share", share]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // A process that died early shows by its end.
        let _ = input.write_all(config.as_bytes());
    }
    let code = child.wait()?.code();
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(exit_code::START))
}

/// Cleans one share, by the configuration on standard input; returns the exit code.
pub(super) fn share(name: &str) -> u8 {
    let mut text = String::new();
    let read = io::stdin().read_to_string(&mut text);
    let config = read.ok().and_then(|_| Config::parse_again(&text));
    let found = config.as_ref().and_then(|config| {
        let offer = config.shares.get(name)?;
        Some((offer, offer.keep_days?, Users::of(config)))
    });
    let Some((offer, days, users)) = found else {
        say("dsync: a share is cleaned by 'dsync serve' only");
        return exit_code::START;
    };

    let cage = Cage::default();
    cage.enter_shares(&[offer.shown()], &|user, path| users.reach(user, path));
    if let Err(why) = users.become_one(offer.user.as_deref()) {
        say(&escape_text(&format!("dsync: {why}")));
        return exit_code::START;
    }

    let now = Timestamp::now();
    let cleaned = offer.share.clean(&offer.kept, |session| is_over(session, now, days));
    let (removed, errors) = match cleaned {
        Ok(cleaned) => cleaned,
        Err(error) => {
            say(&escape_text(&format!("dsync: {}", in_words(&error, offer.user.as_deref()))));
            return exit_code::FILE_SELECTION;
        }
    };
    for error in &errors {
        let user = offer.user.as_deref().map_or_else(String::new, |user| format!(" for user '{user}'"));
        let why = messages::caused(error);
        say(&escape_text(&format!("dsync: share {name} is not cleaned whole: {why}{user}")));
    }
    if removed > 0 {
        say(&format!("dsync: cleaned share={name} removed={removed} days={days}"));
    }
    if errors.is_empty() { exit_code::OK } else { exit_code::PARTIAL }
}

/// Returns the name of the directory of kept entries of a session that begins now.
pub(super) fn dated(now: Timestamp) -> String {
    let now = now.to_zoned(TimeZone::UTC);
    now.strftime(&format!("{MOMENT}.%3fZ")).to_string()
}

/// Returns whether the days of a session's directory are over. One whose name has not exactly the form
/// of a session's is none of ours: an administrator may have renamed it to save it.
fn is_over(session: &OsStr, now: Timestamp, days: u32) -> bool {
    let split = session.to_str().and_then(|name| name.split_at_checked(MOMENT_BYTES));
    let Some((moment, _)) = split.filter(|(_, rest)| is_end_of_name(rest)) else { return false };
    let Ok(began) = DateTime::strptime(MOMENT, moment) else { return false };
    let now = now.to_zoned(TimeZone::UTC).datetime();
    // A moment in the future has been kept for no time at all.
    let kept = now.duration_since(began).as_hours();
    kept >= i64::from(days) * 24
}

/// Returns whether a text is what stands behind the second in a session's directory: milliseconds, and
/// a number where several sessions began in one.
fn is_end_of_name(rest: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some((millis, more)) = rest.strip_prefix('.').and_then(|rest| rest.split_once('Z')) else {
        return false;
    };
    millis.len() == 3
        && is_number(millis)
        && (more.is_empty() || more.strip_prefix('-').is_some_and(is_number))
}

/// The moment at which a session began, for directories' names: no colon, which not every
/// filesystem takes.
const MOMENT: &str = "%Y-%m-%dT%H-%M-%S";
const MOMENT_BYTES: usize = 19;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_over_when_its_days_are_and_not_before() {
        let began: Timestamp = "2026-02-27T10:00:00.5Z".parse().unwrap();
        let name = dated(began);
        assert_eq!(name, "2026-02-27T10-00-00.500Z");
        let over = |name: &str, now: &str| is_over(OsStr::new(name), now.parse().unwrap(), 2);
        assert!(!over(&name, "2026-03-01T09:59:59Z"));
        assert!(over(&name, "2026-03-01T10:00:00Z") && over(&name, "2036-03-01T10:00:00Z"));
        assert!(over(&format!("{name}-2"), "2026-03-01T10:00:00Z"));
        // A clock that was ahead, and names that are no session's.
        assert!(!over(&name, "2020-01-01T00:00:00Z"));
        for foreign in
            ["", "photos", "2026", "2026-02-30T10-00-00.500Z", ".dsync-share", "2026-02-27T10:00:00Z"]
        {
            assert!(!over(foreign, "2036-03-01T10:00:00Z"), "{foreign}");
        }
        // Somebody has renamed these to save them.
        for end in [".saved", "-", "-2.saved", " ", "-a", "Z"] {
            assert!(!over(&format!("{name}{end}"), "2036-03-01T10:00:00Z"), "{end}");
        }
        for cut in ["2026-02-27T10-00-00", "2026-02-27T10-00-00.50Z", "2026-02-27T10-00-00.5000Z"] {
            assert!(!over(cut, "2036-03-01T10:00:00Z"), "{cut}");
        }
    }
}
