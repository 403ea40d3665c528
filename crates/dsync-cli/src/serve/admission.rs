//! Admission of a key to a share, or the reason against it: the same over the port and through ssh.

use std::{error::Error as _, time::Instant};

use dsync_engine::{Access, Grant, Keeping, ShareError, exit_code};

use super::{
    clean::dated,
    config::{Config, Offer, Part, Server, today},
    hours::Left,
    places::{self, Kind, Place},
    user::{Users, of_root},
};
use crate::{numbers::counted, words::system_words};

/// The rights of a session, and its places where their number is limited.
pub(super) struct Admitted {
    pub(super) grant: Grant,
    pub(super) places: [Option<Place>; 2],
}

/// Becomes the share's user, opens the share and takes places for the session. `server` is a
/// listening server's own key; `role` becomes the key's as soon as it is known.
///
/// # Errors
/// The exit code and the reason in words, for the owner of the key. `say` hears what is the
/// administrator's to know.
pub(super) fn admit(
    (config, users): (&Config, &Users),
    (share, key): (&str, &str),
    server: Option<&str>,
    role: &mut &'static str,
    say: &dyn Fn(&str),
) -> Result<Admitted, (u8, String)> {
    let known = part(config, share, key)?;
    let (offer, part) = known;
    *role = part.role.role();
    if let Some(why) = of_root(offer) {
        return Err((exit_code::START, why));
    }
    users.become_one(offer.user.as_deref()).map_err(|why| (exit_code::START, why))?;

    let until = Instant::now() + places::WAIT;
    let all = match server {
        Some(server) => server_place(config.server.as_ref(), server, until)?,
        None => None,
    };
    let ends = end_of_hours(known, key)?;
    let grant = open(known, key, ends).map_err(|error| {
        // Which directory it is and why it cannot be opened is nobody else's.
        say(&in_words(&error, offer.user.as_deref()));
        (exit_code::FILE_SELECTION, error.to_string())
    })?;
    let own = place(known, &grant, key, until)?;
    Ok(Admitted { grant, places: [all, own] })
}

/// Finds the part of a share that a key may use today, and the share.
fn part<'a>(config: &'a Config, share: &str, key: &str) -> Result<(&'a Offer, &'a Part), (u8, String)> {
    let known = config.keys.get(key);
    let known = known.ok_or_else(|| (exit_code::AUTHENTICATION, format!("there is no key {key}")))?;
    if known.is_expired(today()) {
        return Err(expired(key));
    }
    // Whether a share exists is nobody's business who may not use it.
    let offer = config.shares.get(share);
    let found = offer.and_then(|offer| Some((offer, offer.keys.get(key)?)));
    found.ok_or_else(|| (exit_code::POLICY, format!("there is no share {share} for key {key}")))
}

/// Returns the exit code and the words for a key that has expired.
pub(super) fn expired(key: &str) -> (u8, String) {
    (exit_code::AUTHENTICATION, format!("key {key} has expired"))
}

/// Returns the moment at which a session that begins now has to end, if there is one.
///
/// # Errors
/// The exit code and the reason in words, for the owner of the key.
fn end_of_hours((offer, part): (&Offer, &Part), key: &str) -> Result<Option<Instant>, (u8, String)> {
    let hours = &part.limits.hours;
    match hours.left(jiff::Timestamp::now()) {
        Some(Left::Endless) => Ok(None),
        Some(Left::For(time)) => Ok(Some(Instant::now() + time)),
        None => {
            let share = &offer.share.name;
            let why = format!("key {key} may use share {share} at {hours} only; its limit is hours");
            Err((exit_code::POLICY, why))
        }
    }
}

/// Opens the part of a share for a session that begins now and ends by then.
fn open((offer, part): (&Offer, &Part), key: &str, ends: Option<Instant>) -> Result<Grant, ShareError> {
    let keeping = (part.role == Access::Keep)
        .then(|| Keeping::new(offer.kept.join(key), dated(jiff::Timestamp::now())));
    let grant = offer.share.grant(part.role, part.directory.as_deref(), keeping)?;
    Ok(grant.held_by(key).limited(part.limits.of_a_run(ends)))
}

/// Takes one of the key's places in a share, if their number is limited.
///
/// # Errors
/// The exit code and the reason in words, for the owner of the key.
fn place(
    (offer, part): (&Offer, &Part),
    grant: &Grant,
    key: &str,
    until: Instant,
) -> Result<Option<Place>, (u8, String)> {
    let Some(most) = part.limits.sessions_at_once() else { return Ok(None) };
    let directory = grant.identity().map_err(|error| (exit_code::START, system_words(&error)))?;
    let share = &offer.share.name;
    if !part.limits.quota.is_endless() {
        let full = || {
            format!(
                "the directory of key {key} in share {share} has a session already; with max-bytes or max-files \
                 there is one at a time"
            )
        };
        return hold(Kind::Quota { directory }, most, until, full).map(Some);
    }
    let full = || {
        let sessions = counted(most.into(), "session", "sessions");
        format!("key {key} has {sessions} in share {share} already; its limit is sessions = {most}")
    };
    hold(Kind::Key { share: directory, key }, most, until, full).map(Some)
}

/// Takes one of a server's places, if their number is limited.
///
/// # Errors
/// The exit code and the reason in words, for the owner of the key.
fn server_place(server: Option<&Server>, key: &str, until: Instant) -> Result<Option<Place>, (u8, String)> {
    let Some(most) = server.and_then(|server| server.sessions) else { return Ok(None) };
    let sessions = counted(most.into(), "session", "sessions");
    let full = || format!("the server has {sessions} already; its limit is sessions = {most}");
    hold(Kind::Server { key }, most, until, full).map(Some)
}

fn hold(
    kind: Kind<'_>,
    most: u32,
    until: Instant,
    full: impl FnOnce() -> String,
) -> Result<Place, (u8, String)> {
    match places::take(kind, most, until) {
        Ok(Some(place)) => Ok(place),
        Ok(None) => Err((exit_code::LOCKED, full())),
        Err(error) => Err((exit_code::START, format!("no place for a session: {}", system_words(&error)))),
    }
}

/// Describes an error of a share with the system's words, and with the user whom the system has refused.
pub(super) fn in_words(error: &ShareError, user: Option<&str>) -> String {
    let Some(cause) = error.source().and_then(|cause| cause.downcast_ref()) else { return error.to_string() };
    let refused = user.map_or_else(String::new, |user| format!(" for user '{user}'"));
    format!("{error}: {}{refused}", system_words(cause))
}
