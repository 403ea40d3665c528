//! The state that an end lends to a session that it serves.

use std::{
    ffi::OsStr,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{self, Path},
    sync::Arc,
};

use dsync_wire::message::PeerRole;

use crate::{State, States, session::Session};

/// The state of one session, until it is over.
pub(crate) struct Lent {
    states: Arc<dyn States>,
    state: State,
}

impl Lent {
    /// Opens the state that a session asks for and may have.
    pub(crate) fn to(
        session: &mut Session,
        states: Option<&Arc<dyn States>>,
        role: &PeerRole,
        lacks: &mut Vec<String>,
    ) -> Option<Self> {
        let options = &session.options;
        // Contents are of use for comparing them, signatures to whoever has an old file.
        let is_of_use = options.checksum || matches!(role, PeerRole::Destination { .. });
        let states = states.filter(|_| options.state && is_of_use && session.grant.is_none())?;
        let pair = options.checksum.then(|| pair(role));
        let state = states.open(pair.as_deref(), lacks)?;
        session.state = Some(state.clone());
        Some(Self { states: Arc::clone(states), state })
    }

    /// Keeps what the session has read.
    pub(crate) fn close(self, whole: bool) {
        self.states.close(&self.state, whole);
    }
}

/// Returns the name of a session's pair: this end's operands from its root on, and a word for the
/// other's.
fn pair(role: &PeerRole) -> Vec<u8> {
    let from_root = |path: &Vec<u8>| {
        let here = Path::new(OsStr::from_bytes(path));
        path::absolute(here).map_or_else(|_| path.clone(), |path| path.into_os_string().into_vec())
    };
    match role {
        PeerRole::Source { paths } => {
            let paths: Vec<_> = paths.iter().map(from_root).collect();
            [&paths.join(&b' ')[..], b" -> (a client)"].concat()
        }
        PeerRole::Destination { path, .. } => [b"(a client) -> ", &from_root(path)[..]].concat(),
    }
}
