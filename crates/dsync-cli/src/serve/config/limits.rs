//! The limits of a key in a configuration.

use std::{num::NonZeroU64, ops::Range, time::Duration};

use dsync_engine::grant::Quota;
use toml::Spanned;

use super::{
    super::{
        hours::{Hours, NotHours},
        limits::{IdMap, KeyLimits},
        places::MOST,
        refuse::{self, Fault, Refused},
    },
    mistake::{Mistake, meant, nearest},
    tables::{Amount, PartTable, Role},
};

/// Reads the limits in a key's table.
pub(super) fn read(table: &PartTable) -> Result<KeyLimits, Mistake> {
    Ok(KeyLimits {
        largest_file: table.largest_file.as_ref().map(|most| most.get_ref().0),
        quota: quota(table)?,
        rate: table.rate.as_ref().map(rate).transpose()?,
        sessions: table.sessions.as_ref().map(sessions).transpose()?,
        refused: refused(&table.refuse)?,
        hours: table.hours.as_ref().map(hours).transpose()?.unwrap_or_default(),
        fake_super: table.fake_super,
        usermap: map(table, table.usermap.as_ref())?,
        groupmap: map(table, table.groupmap.as_ref())?,
    })
}

/// Reads the quota, which each session counts for itself.
fn quota(table: &PartTable) -> Result<Quota, Mistake> {
    let max_bytes = table.max_bytes.as_ref().map(|most| most.get_ref().0);
    let quota = Quota::new(max_bytes, table.max_files);
    match &table.sessions {
        Some(sessions) if *sessions.get_ref() > 1 && !quota.is_endless() => {
            let text =
                "a key with 'max-bytes' or 'max-files' has one session at a time: leave 'sessions' out";
            Err(Mistake::at(&sessions.span(), text.to_owned()))
        }
        _ => Ok(quota),
    }
}

/// Reads a number of sessions at once.
pub(super) fn sessions(written: &Spanned<u32>) -> Result<u32, Mistake> {
    let most = *written.get_ref();
    if (1..=MOST).contains(&most) {
        return Ok(most);
    }
    Err(Mistake::at(&written.span(), format!("{most} is no number of sessions from 1 to {MOST}")))
}

/// Reads the seconds that sessions have to end in.
pub(super) fn stop_timeout(written: &Spanned<u64>) -> Result<Duration, Mistake> {
    let seconds = *written.get_ref();
    if (1..=LONGEST_STOP).contains(&seconds) {
        return Ok(Duration::from_secs(seconds));
    }
    let text = format!("{seconds} is no number of seconds from 1 to {LONGEST_STOP}");
    Err(Mistake::at(&written.span(), text))
}

fn hours(written: &Spanned<Vec<Spanned<String>>>) -> Result<Hours, Mistake> {
    if written.get_ref().is_empty() {
        let text = "no hours are named: leave it out for all hours, or write a stretch like 22:00-06:00";
        return Err(Mistake::at(&written.span(), text.to_owned()));
    }
    let read = |text: &Spanned<String>| {
        let parsed = text.get_ref().parse();
        parsed.map_err(|error: NotHours| Mistake::at(&text.span(), format!("'{}' {error}", text.get_ref())))
    };
    written.get_ref().iter().map(read).collect::<Result<_, _>>().map(Hours::new)
}

/// Reads a map of owners or groups.
fn map(table: &PartTable, written: Option<&Spanned<String>>) -> Result<Option<IdMap>, Mistake> {
    let Some(written) = written else { return Ok(None) };
    let wrong = |why: String| Mistake::at(&written.span(), why);
    if matches!(table.role, Some(Role::Read)) {
        return Err(wrong("a key whose role is 'read' gives nothing an owner".to_owned()));
    }
    IdMap::parse(written.get_ref()).map(Some).map_err(wrong)
}

fn rate(written: &Spanned<Amount>) -> Result<NonZeroU64, Mistake> {
    let bytes = written.get_ref().0;
    let rate = NonZeroU64::new(bytes).filter(|rate| rate.get() >= SLOWEST);
    let slow = || {
        format!(
            "'rate' is {bytes} bytes per second, and {SLOWEST} are the least at which a session gets on; without \
             'rate' there is no limit"
        )
    };
    rate.ok_or_else(|| Mistake::at(&written.span(), slow()))
}

fn refused(written: &[Spanned<String>]) -> Result<Refused, Mistake> {
    Refused::parse(written.iter().map(|rule| rule.get_ref().as_str())).map_err(|(at, fault)| {
        let place: Range<usize> = written.get(at).map(Spanned::span).unwrap_or_default();
        let text = match fault {
            Fault::Unknown(rule) => {
                let near = nearest(&rule, refuse::candidates());
                format!("'{rule}' names no option that can be refused{}", meant(near))
            }
            Fault::ClientOnly(rule) => {
                format!("'{rule}' is the client's own affair: a server has nothing to refuse")
            }
        };
        Mistake::at(&place, text)
    })
}

/// The lowest rate: signs of life alone take a tenth of it.
const SLOWEST: u64 = 4096;
/// The longest that sessions may have to end in, in seconds: a week.
const LONGEST_STOP: u64 = 604_800;
