//! The states of an end that serves.
//!
//! The law: this end decides whether a session has one, and where it is kept. The client only asks,
//! and never under a grant: what one key's session has read would tell another's of files that it may
//! not read, and each pair that a key names would take the place of another's.

use std::{
    ffi::OsStr,
    fmt,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{self, Path},
    sync::Arc,
};

use dsync_wire::message::PeerRole;

use crate::{State, session::Session};

/// The keeper of the states that an end offers to the sessions that it serves.
pub trait States: fmt::Debug + Send + Sync {
    /// Opens the state of a session's operands, as [`State::open`] does; `None` where none can be used.
    /// Called before the session's cage is entered. A sentence on what is wrong with it goes to
    /// `lacks`, and so to the client ([`Observer::peer_lacks`](crate::Observer::peer_lacks)).
    fn open(&self, pair: &[u8], lacks: &mut Vec<String>) -> Option<State>;

    /// Keeps what a session has read. What a `whole` one met no more may be forgotten.
    fn close(&self, state: &State, whole: bool);
}

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
        let asked = session.options.state && session.options.checksum;
        let states = states.filter(|_| asked && session.grant.is_none())?;
        let state = states.open(&pair(role), lacks)?;
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
