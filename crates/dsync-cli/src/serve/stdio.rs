//! `dsync serve --stdio`: one session for a key that sshd has let in.
//!
//! Standard error is the client's, so nothing is written there unless the key's command asks for it
//! by `--log` and leads it elsewhere. The shell has opened that file before the session begins: the
//! cage needs no place for it. A server that stands is told nothing: whoever could tell it would be
//! a user of the share, and could tell it anything.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Instant,
};

use dsync_engine::{Resources, exit_code, standing::refuse};
use jiff::{Timestamp, tz::TimeZone};

use super::{
    admission::{Admitted, admit},
    config::Config,
    session::{Outcome, Record, code_of_run},
    status::Passed,
    user::Users,
};
use crate::{cage::Cage, console::say, debug::start_log, server, words::system_words};

/// Serves the session and returns the exit code; with `log` the session's line goes to standard
/// error. What the client asks sshd for is ignored.
pub(super) fn run(config: &Config, share: &str, key: &str, log: bool) -> u8 {
    start_log(None);
    let (began, peer) = (Instant::now(), client());
    let mut record = Record { key: key.to_owned(), share: share.to_owned(), ..Record::default() };
    let outcome = hold(config, &mut record);
    let (line, code) = record.line(&peer, began, &outcome);
    if log {
        let now = Timestamp::now().to_zoned(TimeZone::UTC);
        say(&format!("{} dsync: {line}", now.strftime("%Y-%m-%dT%H:%M:%SZ")));
    }
    code
}

/// Serves the session to its end.
///
/// A reason that is the administrator's to know is only logged, for a command that asks for that by
/// `DSYNC_LOG`.
fn hold(config: &Config, record: &mut Record) -> Outcome {
    let log = |why: &str| tracing::error!("{why}");
    let users = Users::of(config);
    let cage = Cage::required(config.require_cage).of_session();
    let cage = cage.map_err(|error| {
        (exit_code::START, format!("a session cannot be prepared: {}", system_words(&error)))
    });
    let admitted = cage.and_then(|cage| {
        let wanted = (record.share.as_str(), record.key.as_str());
        admit((config, &users), wanted, None, &mut record.role, &log).map(|admitted| (admitted, cage))
    });
    let (Admitted { grant, places: _held }, cage) = admitted.inspect_err(|(code, why)| {
        refuse(&mut io::stdout(), *code, why);
    })?;

    let tally = grant.tally();
    let served = server::serve_session(Some(grant), &Resources::default(), &cage);
    let traffic = tally.traffic();
    record.passed = Passed {
        connections: 1,
        entries: tally.entries(),
        files: tally.files(),
        sent: traffic.sent_bytes,
        received: traffic.received_bytes,
    };
    served.map(|()| code_of_run(&tally))
}

/// Returns the client's address and port, as sshd says them; `unknown` without sshd.
fn client() -> String {
    let said = std::env::var("SSH_CONNECTION").unwrap_or_default();
    let mut words = said.split_ascii_whitespace();
    let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
    let port = words.next().and_then(|word| word.parse().ok());
    let peer = address.zip(port).map(|(address, port)| SocketAddr::new(address.to_canonical(), port));
    peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string())
}
