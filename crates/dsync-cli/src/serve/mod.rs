//! `dsync serve`: shares with names, keys with roles.
//!
//! `--stdio` serves one session for a key that somebody else has authenticated: sshd, by the key's
//! command in authorized_keys. `--check` says what a configuration means. What a key may do is
//! decided by the engine's [`dsync_engine::Grant`], as under `--server --restrict`.

mod check;
mod config;
mod stdio;

use std::{
    ffi::OsString,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use clap::Parser;
use dsync_engine::{Share, exit_code};

use self::config::{Config, ConfigError, Part, today};
use crate::{
    commands::is_here,
    console::{blame, print},
    escape::escape_text,
    messages,
    usage::UsageError,
};

/// The words of `dsync serve`.
#[derive(Debug, Parser)]
#[command(name = "dsync serve", disable_version_flag = true, max_term_width = 100)]
/// Offer shares to keys, each with a role
///
/// The configuration names the shares and what each key may do there; see docs/server.md.
struct Words {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = DEFAULT)]
    config: PathBuf,
    /// Say what each key may do, and end
    #[arg(long, conflicts_with_all = ["stdio", "share", "key"])]
    check: bool,
    /// Serve one session on standard input and output, as the command of a key in authorized_keys
    #[arg(long)]
    stdio: bool,
    /// With --stdio: the share
    #[arg(long, value_name = "NAME", requires = "stdio")]
    share: Option<String>,
    /// With --stdio: the key, by its name in the configuration
    #[arg(long, value_name = "NAME", requires = "stdio")]
    key: Option<String>,
}

/// Carries the command out and returns the exit code.
pub(crate) fn run(words: &[OsString]) -> u8 {
    // Who has a file of this name meant to copy it.
    if words.iter().any(|word| !word.as_bytes().starts_with(b"-"))
        && !words.iter().any(|word| word.as_bytes().starts_with(b"--"))
    {
        let wanted = "takes --stdio, --share and --key, or --check, and --config FILE".to_owned();
        return complain(&UsageError::CommandWords {
            command: "serve",
            wanted,
            file: is_here("serve".as_ref()),
        });
    }
    let words = std::iter::once(OsString::from("dsync serve")).chain(words.iter().cloned());
    let words = match Words::try_parse_from(words) {
        Ok(words) => words,
        Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelp => {
            let shown = print(error.to_string().as_bytes());
            return if shown.is_ok() { exit_code::OK } else { messages::OUTPUT };
        }
        Err(error) => return complain(&UsageError::from_clap(&error)),
    };

    let config = match Config::read(&words.config) {
        Ok(config) => config,
        Err(error) => return refuse(&error),
    };
    match (words.check, words.share, words.key) {
        (true, _, _) => check::run(&config),
        (false, Some(share), Some(key)) => stdio::run(&config, &words.config, &share, &key),
        _ => {
            blame("dsync serve needs --stdio with --share and --key, or --check");
            exit_code::USAGE
        }
    }
}

fn complain(error: &UsageError) -> u8 {
    blame(&escape_text(&error.to_string()));
    error.exit_code()
}

fn refuse(error: &ConfigError) -> u8 {
    blame(&escape_text(&error.to_string()));
    exit_code::USAGE
}

/// Finds the part of a share that a key may use today.
///
/// # Errors
/// The reason in words, for the administrator and the owner of the key.
fn part<'a>(config: &'a Config, share: &str, key: &str) -> Result<(&'a Share, &'a Part), String> {
    let known = config.keys.get(key).ok_or_else(|| format!("there is no key '{key}'"))?;
    if known.is_expired(today()) {
        return Err(format!("key '{key}' has expired"));
    }
    // Whether a share exists is nobody's business who may not use it.
    let offer = config.shares.get(share);
    let found = offer.and_then(|offer| Some((&offer.share, offer.keys.get(key)?)));
    found.ok_or_else(|| format!("there is no share '{share}' for key '{key}'"))
}

/// The path of the configuration where no other is named.
const DEFAULT: &str = "/etc/dsync/serve.toml";

/// Returns how messages name a configuration.
fn named(path: &Path) -> String {
    format!("configuration '{}'", path.display())
}
