//! `dsync serve --check`: a configuration in words, share by share and key by key.

use std::fmt::Write as _;

use dsync_engine::{Access, exit_code};

use super::config::{Config, today};
use crate::{
    cage::missing_layers,
    console::{print, say},
    escape::escape_text,
    messages,
    numbers::counted,
};

/// Prints what each key may do. A share that is not there, an expired key and a key without a
/// share are warned of; the exit code is 1 where a share is not there.
pub(super) fn run(config: &Config) -> u8 {
    let shown = print(escape_lines(&describe(config)).as_bytes());
    for warning in idle_keys(config) {
        say(&escape_text(&format!("dsync: {warning}")));
    }
    if config.server.is_some() {
        for (name, _) in config.keys.iter().filter(|(_, key)| key.public.is_none()) {
            say(&escape_text(&format!("dsync: key '{name}' has no public line: it is for --stdio only")));
        }
    }
    for lack in missing_layers() {
        say(&escape_text(&format!("dsync: a part of the cage is missing here: {lack}")));
    }
    let absent: Vec<_> = config.shares.values().filter_map(|offer| offer.share.check().err()).collect();
    for error in &absent {
        say(&escape_text(&format!("dsync: {error}")));
    }

    match shown {
        Err(_) => messages::OUTPUT,
        Ok(()) if absent.is_empty() => exit_code::OK,
        Ok(()) => exit_code::USAGE,
    }
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
    let idle = config.keys.keys().filter(|key| !used(key));
    idle.map(|key| format!("key '{key}' may use no share")).collect()
}

fn escape_lines(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", escape_text(line))).collect()
}
