//! `dsync serve`: shares with names, keys with roles.
//!
//! Without more words it listens on a port ([`listen`]) and starts a process for each connection
//! ([`session`]). `--stdio` serves one session for a key that somebody else has authenticated:
//! sshd, by the key's command in authorized_keys. `--check` says what a configuration means,
//! `--clean` removes what was kept long enough. What a key may do is decided by the engine's
//! [`dsync_engine::Grant`], as under `--server --restrict`.

mod addressed;
mod admission;
mod check;
mod child;
mod clean;
mod config;
mod dial;
pub(crate) mod enrolment;
mod field;
mod hours;
mod limits;
mod listen;
mod listener;
mod metrics;
mod places;
mod refuse;
mod session;
mod silent;
mod status;
mod stdio;
mod stop;
mod strangers;
mod user;

use std::{ffi::OsString, os::unix::ffi::OsStrExt as _, path::PathBuf, time::Duration};

use clap::Parser;
use dsync_engine::{AddressFamily, exit_code, standing::Address};

use self::config::{Config, ConfigError};
use crate::{
    address::{PORT, ShareAddress},
    closing::show,
    console::blame,
    escape::escape_text,
    here::is_here,
    json::Opening,
    usage::UsageError,
};

/// Returns the command's words as clap knows them.
pub(crate) fn command() -> clap::Command {
    <Words as clap::CommandFactory>::command()
}

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
    /// Remove what was kept for keys whose role is keep once its days are over, and end
    #[arg(long, conflicts_with_all = ["check", "stdio", "share", "key"])]
    clean: bool,
    /// Ask the server that stands with this configuration for its sessions, and end
    #[arg(long, conflicts_with_all = ["check", "clean", "stdio", "share", "key"])]
    status: bool,
    /// With --status: print the answer as JSON
    #[arg(long, requires = "status")]
    json: bool,
    /// Serve one session on standard input and output, as the command of a key in authorized_keys
    #[arg(long)]
    stdio: bool,
    /// With --stdio: the share
    #[arg(long, value_name = "NAME", requires = "stdio")]
    share: Option<String>,
    /// With --stdio: the key, by its name in the configuration
    #[arg(long, value_name = "NAME", requires = "stdio")]
    key: Option<String>,
    /// With --stdio: write the session's line to standard error, which the command leads to a file
    #[arg(long, requires = "stdio")]
    log: bool,
    /// Be a session of a server
    #[arg(long, hide = true)]
    session: bool,
    /// Clean a share
    #[arg(long, hide = true, value_name = "SHARE")]
    clean_share: Option<String>,
    /// Be the way of a run to a share
    #[arg(long, hide = true, value_name = "SHARE")]
    dial: Option<String>,
    #[arg(long, hide = true, default_value_t = PORT)]
    port: u16,
    #[arg(long, hide = true, default_value = "any")]
    family: String,
    /// The milliseconds in which the server has to answer
    #[arg(long, hide = true, value_name = "MILLISECONDS")]
    limit: Option<u64>,
    /// The host, and the words of the command for a remote shell, options among them
    #[arg(hide = true, trailing_var_arg = true)]
    host: Vec<String>,
}

/// Carries the command out and returns the exit code.
pub(crate) fn run(words: &[OsString]) -> u8 {
    // Who has a file of this name meant to copy it.
    if words.iter().any(|word| !word.as_bytes().starts_with(b"-"))
        && !words.iter().any(|word| word.as_bytes().starts_with(b"--"))
    {
        return complain(&UsageError::CommandWords {
            command: "serve",
            wanted: TAKES.to_owned(),
            file: is_here("serve".as_ref()),
        });
    }
    let words = std::iter::once(OsString::from("dsync serve")).chain(words.iter().cloned());
    let words = match Words::try_parse_from(words) {
        Ok(words) => words,
        Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelp => {
            return show(error.to_string().as_bytes());
        }
        Err(error) => return complain(&UsageError::from_clap(&error)),
    };

    if let Some(extra) = words.host.first().filter(|_| words.dial.is_none()) {
        blame(&escape_text(&format!("'dsync serve' takes no word '{extra}': it {TAKES}")));
        return exit_code::USAGE;
    }
    if let Some(share) = &words.clean_share {
        return clean::share(share);
    }
    match (&words.dial, words.session) {
        (_, true) => return session::run(),
        (Some(share), _) => return dial(share, &words),
        _ => {}
    }
    let config = match Config::read(&words.config) {
        Ok(config) => config,
        Err(error) => return refuse(&error),
    };
    match (words.check, words.stdio, words.share, words.key) {
        _ if words.clean => clean::run(&config),
        _ if words.status => status::run(&words.config, &config, words.json),
        (true, ..) => check::run(&config),
        (_, true, Some(share), Some(key)) => stdio::run(&config, &share, &key, words.log),
        (_, true, ..) => {
            blame("dsync serve --stdio needs --share and --key");
            exit_code::USAGE
        }
        _ => listen::run(&words.config, &config),
    }
}

/// Connects a run to a share.
fn dial(share: &str, words: &Words) -> u8 {
    let family = match words.family.as_str() {
        "v4" => AddressFamily::V4,
        "v6" => AddressFamily::V6,
        _ => AddressFamily::Any,
    };
    // The words behind it are the command for a remote shell.
    let Some(host) = words.host.first() else { return exit_code::USAGE };
    let limit = words.limit.map(Duration::from_millis);
    dial::run(share, &Address { host: host.clone(), port: words.port, family }, limit)
}

/// Prints the shares of a server that this user's key may use, as events if there is an opening for them;
/// returns the exit code.
pub(crate) fn list(
    (server, family): (&ShareAddress, AddressFamily),
    limit: Option<Duration>,
    events: Option<&Opening>,
) -> u8 {
    dial::list(&Address { host: server.host.host.clone(), port: server.port, family }, limit, events)
}

fn complain(error: &UsageError) -> u8 {
    blame(&escape_text(&error.to_string()));
    error.exit_code()
}

fn refuse(error: &ConfigError) -> u8 {
    blame(&escape_text(&error.to_string()));
    exit_code::USAGE
}

/// The words for what the command takes.
const TAKES: &str = "takes --config FILE, and --check, --clean, --status, or --stdio with --share and --key";
/// The path of the configuration where no other is named.
const DEFAULT: &str = "/etc/dsync/serve.toml";
