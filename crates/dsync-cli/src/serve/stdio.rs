//! `dsync serve --stdio`: one session for a key that sshd has let in.

use std::io;

use dsync_engine::{Resources, standing::refuse};

use super::{
    admission::{Admitted, admit},
    config::Config,
};
use crate::{cage::Cage, debug::start_log, server};

/// Serves the session and returns the exit code. What the client asks sshd for is ignored.
///
/// This standard error is the client's: a reason that is the administrator's to know is only logged,
/// for a command that asks for that by `DSYNC_LOG`.
pub(super) fn run(config: &Config, share: &str, key: &str) -> u8 {
    start_log(None);
    let log = |why: &str| tracing::error!("{why}");
    match admit(config, (share, key), None, &mut "", &log) {
        Ok(Admitted { grant, places: _held }) => {
            let cage = Cage::required(config.require_cage);
            server::serve_session(Some(grant), &Resources::default(), &cage)
        }
        Err((code, why)) => {
            refuse(&mut io::stdout(), code, &why);
            code
        }
    }
}
