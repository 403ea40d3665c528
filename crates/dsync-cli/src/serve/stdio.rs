//! `dsync serve --stdio`: one session for a key that sshd has let in.

use std::path::Path;

use dsync_engine::{Resources, exit_code};

use super::{Config, named, part};
use crate::{console::say, escape::escape_text, server, words::system_words};

/// Serves the session and returns the exit code. What the client asks sshd for is ignored.
pub(super) fn run(config: &Config, path: &Path, share: &str, key: &str) -> u8 {
    let (share, part) = match part(config, share, key) {
        Ok(found) => found,
        Err(why) => {
            say(&escape_text(&format!("dsync: {why} in {}", named(path))));
            return exit_code::POLICY;
        }
    };

    match share.grant(part.role, part.directory.as_deref()) {
        Ok(grant) => server::serve_session(Some(grant), &Resources::default()),
        Err(error) => {
            let cause = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref());
            let why = cause.map_or_else(String::new, |cause| format!(": {}", system_words(cause)));
            say(&escape_text(&format!("dsync: {error}{why}")));
            exit_code::FILE_SELECTION
        }
    }
}
