//! `dsync serve --stdio`: one session for a key that sshd has let in.

use std::io;

use dsync_engine::{Resources, exit_code, standing::refuse};

use super::{
    admission::{Admitted, admit},
    config::Config,
    user::Users,
};
use crate::{cage::Cage, debug::start_log, server, words::system_words};

/// Serves the session and returns the exit code. What the client asks sshd for is ignored.
///
/// This standard error is the client's: a reason that is the administrator's to know is only logged,
/// for a command that asks for that by `DSYNC_LOG`.
pub(super) fn run(config: &Config, share: &str, key: &str) -> u8 {
    start_log(None);
    let log = |why: &str| tracing::error!("{why}");
    let users = Users::of(config);
    let cage = Cage::required(config.require_cage).of_session();
    let cage = cage.map_err(|error| {
        (exit_code::START, format!("a session cannot be prepared: {}", system_words(&error)))
    });
    let admitted = cage.and_then(|cage| {
        admit((config, &users), (share, key), None, &mut "", &log).map(|admitted| (admitted, cage))
    });
    match admitted {
        Ok((Admitted { grant, places: _held }, cage)) => {
            server::serve_session(Some(grant), &Resources::default(), &cage)
        }
        Err((code, why)) => {
            refuse(&mut io::stdout(), code, &why);
            code
        }
    }
}
