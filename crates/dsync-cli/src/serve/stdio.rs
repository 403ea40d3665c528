//! `dsync serve --stdio`: one session for a key that sshd has let in.

use std::{io, path::Path};

use dsync_engine::{Resources, exit_code, standing::refuse};

use super::{
    admission::{end_of_hours, in_words, named, open, part, place},
    config::Config,
    user::become_user,
};
use crate::{console::say, escape::escape_text, server};

/// Serves the session and returns the exit code. What the client asks sshd for is ignored.
pub(super) fn run(config: &Config, path: &Path, share: &str, key: &str) -> u8 {
    let (offer, part) = match part(config, share, key) {
        Ok(found) => found,
        Err(why) => {
            say(&escape_text(&format!("dsync: {why} in {}", named(path))));
            return exit_code::POLICY;
        }
    };

    if let Err(why) = become_user(offer.user.as_deref()) {
        say(&escape_text(&format!("dsync: {why}")));
        return exit_code::START;
    }

    let ends = match end_of_hours((offer, part), key) {
        Ok(ends) => ends,
        Err((code, why)) => {
            refuse(&mut io::stdout(), code, &why);
            return code;
        }
    };
    let grant = match open((offer, part), key, ends) {
        Ok(grant) => grant,
        Err(error) => {
            say(&escape_text(&format!("dsync: {}", in_words(&error))));
            return exit_code::FILE_SELECTION;
        }
    };

    match place((offer, part), &grant, key) {
        Ok(_place) => server::serve_session(Some(grant), &Resources::default()),
        Err((code, why)) => {
            refuse(&mut io::stdout(), code, &why);
            code
        }
    }
}
