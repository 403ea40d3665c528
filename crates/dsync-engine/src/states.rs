//! The states of an end that serves.
//!
//! The law: this end decides whether a session has one, and where it is kept. The client only asks,
//! and never under a grant: what one key's session has read would tell another's of files that it may
//! not read, and each pair that a key names would take the place of another's.

use std::fmt;

use crate::State;

/// The keeper of the states that an end offers to the sessions that it serves.
///
/// ```
/// use std::path::PathBuf;
///
/// use dsync_engine::{State, States};
///
/// /// States for whoever has no grant: the operator's own hosts.
/// #[derive(Debug)]
/// struct Kept(PathBuf);
///
/// impl States for Kept {
///     fn open(&self, pair: Option<&[u8]>, lacks: &mut Vec<String>) -> Option<State> {
///         let opened = State::open(&self.0, pair);
///         opened.map(|(state, _)| state).map_err(|error| lacks.push(error.to_string())).ok()
///     }
///
///     fn close(&self, state: &State, whole: bool) {
///         if let Err(error) = state.save(whole) {
///             eprintln!("the next run reads all contents: {error}");
///         }
///     }
/// }
/// # let home = tempfile::tempdir()?;
/// # let (kept, mut lacks) = (Kept(home.path().join("states")), Vec::new());
/// # kept.close(&kept.open(None, &mut lacks).ok_or("no state")?, true);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait States: fmt::Debug + Send + Sync {
    /// Opens the state of a session's operands, as [`State::open`] does, which says what no `pair` means;
    /// `None` where none can be used.
    /// Called before the session's cage is entered. A sentence on what is wrong with it goes to
    /// `lacks`, and so to the client ([`Observer::peer_lacks`](crate::Observer::peer_lacks)).
    fn open(&self, pair: Option<&[u8]>, lacks: &mut Vec<String>) -> Option<State>;

    /// Keeps what a session has read. What a `whole` one met no more may be forgotten.
    fn close(&self, state: &State, whole: bool);
}
