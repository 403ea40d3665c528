//! `dsync serve --check`: a configuration in words, share by share and key by key.

use std::{
    fmt::Write as _,
    io,
    path::{Path, PathBuf},
};

use dsync_engine::{Access, exit_code, grant::Demand};
use jiff::{Unit, civil::Date};
use nix::unistd::{Group, User};
use rustix::io::Errno;

use super::{
    admission::in_words,
    config::{Config, Key, Offer, Part, Server, today},
    limits::IdMap,
    user::{Users, of_root},
};
use crate::{
    cage::missing_layers,
    certificates::{self, CertificateFile},
    closing,
    console::{blame, print, say},
    escape::escape_text,
    keys,
    numbers::counted,
    words::system_words,
};

/// Prints what each key may do. A share that is not there, that its user cannot use as its keys may, or whose
/// user nobody is or the server cannot become, a key that is old, has expired or soon will, and one without a
/// share are warned of; the exit code is 1 where a share could not be served, or nothing is. A server whose own key could not be used is an error, as at its start.
pub(super) fn run(config: &Config) -> u8 {
    let shown = print(escape_lines(&describe(config)).as_bytes());
    let warnings = idle_keys(config).into_iter().chain(old_keys(config, today())).chain(of_stdio(config));
    for warning in warnings.chain(idle_maps(config)) {
        say(&escape_text(&format!("dsync: {warning}")));
    }
    if config.server.is_some() {
        let only_sshd = |key: &Key| key.public.is_none() && key.authorities.is_empty();
        for (name, _) in config.keys.iter().filter(|(_, key)| only_sshd(key)) {
            say(&escape_text(&format!("dsync: key '{name}' has no public line: it is for --stdio only")));
        }
    }
    for lack in missing_layers() {
        say(&escape_text(&format!("dsync: a part of the cage is missing here: {lack}")));
    }
    let users = Users::of(config);
    let unusable = config.shares.values().flat_map(|offer| unusable(offer, &users));
    let unserved: Vec<_> = unusable.chain(Users::faults(config)).chain(nothing(config)).collect();
    for fault in &unserved {
        say(&escape_text(&format!("dsync: {fault}")));
    }

    let own = config.server.as_ref().map_or(Ok(None), own_certificate);
    if let Ok(Some(own)) = &own {
        say(escape_lines(&format!("dsync: {}", certificates::describe(&own.certificate))).trim_end());
        if let Some(warning) = own.ends_soon() {
            say(&escape_text(&format!("dsync: {warning}")));
        }
    }
    let unusable = own.err();
    if let Some(why) = &unusable {
        blame(&escape_text(why));
    }

    let code = match (unusable, unserved.as_slice()) {
        (Some(_), _) => exit_code::AUTHENTICATION,
        (None, []) => exit_code::OK,
        (None, _) => exit_code::USAGE,
    };
    closing::printed(shown, code)
}

/// Returns what is wrong with a share in the eyes of its user, whom its sessions become.
fn unusable(offer: &Offer, users: &Users) -> Vec<String> {
    let user = offer.user.as_deref();
    // Who cannot become the user learns nothing of the user's rights.
    let looks_as = user.filter(|user| users.may_act_as(user));
    let looked = users.acting(user, || {
        if let Err(error) = offer.share.check() {
            return Ok(vec![in_words(&error, looks_as)]);
        }
        let fault = |(key, part): (&String, &Part)| {
            let forbidden = looks_as.and_then(|user| forbidden(offer, user, (key, part)));
            forbidden.or_else(|| unopened(offer, looks_as, (key, part)))
        };
        let may_look = user.is_none() || looks_as.is_some();
        Ok(offer.keys.iter().filter(|_| may_look).filter_map(fault).collect())
    });

    match looked {
        Ok(faults) => faults,
        // That nobody is the user is told of all shares together.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => vec![format!("cannot look at share '{}': {}", offer.share.name, system_words(&error))],
    }
}

/// Returns why a key's sessions would be refused although the system forbids its user nothing, or could
/// replace nothing.
fn unopened(offer: &Offer, user: Option<&str>, (key, part): (&str, &Part)) -> Option<String> {
    let kept = (part.role == Access::Keep).then(|| offer.kept.join(key));
    let checked = offer.share.check_directory(part.directory.as_deref(), kept.as_deref());
    checked.err().map(|error| format!("key '{key}': {}", in_words(&error, user)))
}

/// Returns what the system forbids the share's user, who the calling thread is, of what a key may do in its
/// directory, if anything.
fn forbidden(offer: &Offer, user: &str, (key, part): (&str, &Part)) -> Option<String> {
    let root = &offer.share.path;
    let writes = part.role.allows(Demand::Write);
    let kept = (part.role == Access::Keep).then(|| offer.kept.join(key));
    let places = [Some(part.directory.clone().unwrap_or_default()), kept];
    let refused = places.into_iter().flatten().find_map(|below| use_of(root, &below, writes).err());
    let (place, error) = refused?;

    let does = if writes { "write to" } else { "read" };
    let (share, place, why) = (&offer.share.name, place.display(), system_words(&error));
    Some(format!("share '{share}': user '{user}' cannot {does} '{place}', as key '{key}' may: {why}"))
}

/// Asks the system whether a directory of a share could be used, or made where it is missing. The error
/// names the directory that cannot.
fn use_of(root: &Path, below: &Path, writes: bool) -> Result<(), (PathBuf, io::Error)> {
    let mut place = root.join(below);
    let mut needed = rustix::fs::Access::READ_OK | rustix::fs::Access::EXEC_OK;
    needed.set(rustix::fs::Access::WRITE_OK, writes);
    loop {
        match rustix::fs::access(&place, needed) {
            Ok(()) => return Ok(()),
            // A session makes it, whatever its role.
            Err(Errno::NOENT) if place != root && place.pop() => {
                needed |= rustix::fs::Access::WRITE_OK;
            }
            Err(errno) => return Err((place, errno.into())),
        }
    }
}

/// Returns what a configuration lacks that nobody is served by.
fn nothing(config: &Config) -> Option<String> {
    let is_nothing = config.server.is_none() && config.shares.is_empty();
    is_nothing.then(|| "nothing is served: the file has neither a [server] nor a share".to_owned())
}

/// Reads a server's key and its certificate, as the server does when it starts.
fn own_certificate(server: &Server) -> Result<Option<CertificateFile>, String> {
    let key = keys::read(&server.identity)?;
    server.certificate.as_ref().map(|path| CertificateFile::of_server(path, &key)).transpose()
}

/// Describes the shares.
fn describe(config: &Config) -> String {
    let mut text = String::new();
    if config.require_cage {
        text.push_str("cage: a session without all of it serves nobody\n");
    }
    if let Some(most) = config.server.as_ref().and_then(|server| server.sessions) {
        let sessions = counted(most.into(), "session", "sessions");
        let _ = writeln!(text, "server: {sessions} at once at most");
    }
    if let Some(limit) = config.server.as_ref().and_then(|server| server.stop_timeout) {
        let seconds = counted(limit.as_secs(), "second", "seconds");
        let _ = writeln!(text, "server: sessions have {seconds} to end when it stops");
    }
    for (name, key) in config.keys.iter() {
        if let Some(public) = key.public {
            let _ = writeln!(text, "key '{name}': fingerprint {}", public.fingerprint());
        }
    }

    for (name, authority) in config.keys.authorities() {
        let named = authority.fingerprint();
        let _ = writeln!(text, "key '{name}': any key that the authority {named} certifies as '{name}'");
    }

    for (name, offer) in &config.shares {
        // Memory takes whatever is written to it.
        let _ = writeln!(text, "share '{name}': {}", offer.share.path.display());
        if offer.keys.is_empty() {
            text.push_str("  no key may use it\n");
        }
        for (key, part) in &offer.keys {
            let place = match &part.directory {
                Some(directory) => format!("'{}' in it", directory.display()),
                None => "all of it".to_owned(),
            };

            let expires = config.keys.get(key).and_then(|key| key.expires);
            let until = match expires {
                Some(day) if day <= today() => format!("; expired since {day}: let in no more"),
                Some(day) => format!("; until {day}"),
                None => String::new(),
            };

            let kept = match (part.role, offer.keep_days) {
                (Access::Keep, Some(days)) => {
                    format!(
                        "; what it replaces and removes is kept for {days} days in '{}'",
                        offer.kept.join(key).display()
                    )
                }
                _ => String::new(),
            };

            let (role, purpose) = (part.role.role(), part.role.purpose());
            let _ = writeln!(text, "  {key}: {role}, {place}: for {purpose} only{kept}{until}");
            for limit in part.limits.describe() {
                let _ = writeln!(text, "    limit: {limit}");
            }
        }
    }
    text
}

/// Returns a warning for each key that no share has.
fn idle_keys(config: &Config) -> Vec<String> {
    let used = |key: &String| config.shares.values().any(|offer| offer.keys.contains_key(key));
    let idle = config.keys.names().filter(|key| !used(key));
    idle.map(|key| format!("key '{key}' may use no share")).collect()
}

/// Returns a warning for each share that a command of a key of ssh does not serve as root: who runs it
/// is not known here.
fn of_stdio(config: &Config) -> Vec<String> {
    let offers = config.shares.values().filter(|_| config.server.is_none());
    offers.filter_map(of_root).map(|why| format!("{why}: 'dsync serve --stdio' of root refuses it")).collect()
}

/// Returns a warning for each map of owners that names nobody, or that sessions may not carry out.
fn idle_maps(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    let parts = config
        .shares
        .values()
        .flat_map(|offer| offer.keys.iter().map(move |(key, part)| (offer, key, &part.limits)));
    for (Offer { share, user, .. }, key, limits) in parts {
        let key = format!("key '{key}' in share '{}'", share.name);
        let users = limits.usermap.iter().flat_map(IdMap::names);
        let users = users.filter(|name| matches!(User::from_name(name), Ok(None)));
        warnings
            .extend(users.map(|name| format!("{key}: 'usermap' names user '{name}', who does not exist")));
        let groups = limits.groupmap.iter().flat_map(IdMap::names);
        let groups = groups.filter(|name| matches!(Group::from_name(name), Ok(None)));
        warnings.extend(
            groups.map(|name| format!("{key}: 'groupmap' names group '{name}', which does not exist")),
        );

        let may_give = |user: &String| matches!(User::from_name(user), Ok(Some(user)) if user.uid.is_root());
        let user = user.as_ref().filter(|user| !may_give(user));
        if let Some(user) = user.filter(|_| limits.usermap.is_some() && !limits.fake_super) {
            warnings.push(format!(
                "{key}: 'usermap' has no effect: all that its sessions write is user '{user}''s"
            ));
        }
    }
    warnings
}

/// Returns a warning for each key that is to be replaced: by its end, or by its age where the
/// configuration says since when it is known.
fn old_keys(config: &Config, today: Date) -> Vec<String> {
    let warning = |name: &String| {
        let key = config.keys.get(name)?;
        let days = |from, to: Date| to.since((Unit::Day, from)).map_or(0, |span| span.get_days());
        if let Some(day) = key.expires {
            return match days(today, day) {
                ..=0 => Some(format!("key '{name}' has expired on {day}: remove it")),
                left @ 1..=SOON => Some(format!(
                    "key '{name}' expires in {}: {ROTATION}",
                    counted(left.unsigned_abs().into(), "day", "days")
                )),
                _ => None,
            };
        }
        let since = key.since.filter(|since| days(*since, today) > OLD)?;
        Some(format!("key '{name}' is known since {since}: {ROTATION}"))
    };
    config.keys.names().filter_map(warning).collect()
}

/// Advice for a key that is to be replaced.
const ROTATION: &str =
    "add the client's next key beside it in 'public', and remove this one when the next is in use";
/// Days before its end in which a key is warned of.
const SOON: i32 = 30;
/// Days after which a key without an end is old.
const OLD: i32 = 365;

fn escape_lines(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", escape_text(line))).collect()
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::{super::config::Keys, *};

    #[test]
    fn keys_that_are_to_be_replaced_are_warned_of() {
        let today = date(2026, 11, 24);
        let key = |since, expires| Key { since, expires, ..Key::default() };
        for (known, words) in [
            (key(None, None), None),
            (key(Some(date(2025, 11, 24)), None), None),
            (
                key(Some(date(2025, 11, 23)), None),
                Some("is known since 2025-11-23: add the client's next key"),
            ),
            // A date that is to come is no age.
            (key(Some(date(2027, 1, 1)), None), None),
            // An end is enough, however old the key.
            (key(Some(date(2001, 1, 1)), Some(date(2026, 12, 25))), None),
            (key(None, Some(date(2026, 12, 24))), Some("expires in 30 days: add")),
            (key(None, Some(date(2026, 11, 25))), Some("expires in 1 day: add")),
            (key(None, Some(today)), Some("has expired on 2026-11-24: remove it")),
            (key(None, Some(date(2020, 1, 1))), Some("has expired on 2020-01-01: remove it")),
        ] {
            let mut keys = Keys::default();
            // Two keys of one client are one to warn of.
            keys.add("web1".to_owned(), known.clone());
            keys.add("web1".to_owned(), known);
            let config =
                Config { text: String::new(), require_cage: false, server: None, keys, shares: [].into() };
            let warned = old_keys(&config, today);
            let is_as_said = match words {
                None => warned.is_empty(),
                Some(words) => warned.len() == 1 && warned[0].contains(words),
            };
            assert!(is_as_said, "{words:?}: {warned:?}");
        }
    }
}
