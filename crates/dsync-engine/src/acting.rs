//! The users that the ends of a run work as (`copy_as`).
//!
//! The law: once an end has a user to work as, nothing of its trees is opened, read, written or
//! looked up by a thread with more rights than that user's, nor by one of another end's. Connecting, and files that the caller
//! opened before, keep the rights of the process.

use dsync_fs::ActingUser;
use dsync_wire::options::ActAs;

use crate::{SyncError, footprint::Inmates, session::Session, threads};

/// Makes this the user of the calling thread and of those that it starts from now on. The threads
/// that carry bytes were started before, and keep their rights.
///
/// # Errors
/// [`SyncError::ActingUser`].
fn become_user(who: &ActAs) -> Result<(), SyncError> {
    let user = ActingUser::find(&who.user, who.group.as_deref());
    user.and_then(|user| user.become_on_this_thread()).map_err(|source| SyncError::ActingUser {
        user: String::from_utf8_lossy(&who.user).into_owned(),
        group: who.group.as_ref().map(|group| String::from_utf8_lossy(group).into_owned()),
        source,
    })
}

/// Does the work of one end as this user, if there is one: as the inmates say, on the calling thread
/// for good, or on a thread of its own. The work is told whether it may begin.
///
/// # Errors
/// As the work.
pub(crate) fn acting<T: Send>(
    who: Option<&ActAs>,
    inmates: Inmates,
    work: impl FnOnce(Result<(), SyncError>) -> Result<T, SyncError> + Send,
) -> Result<T, SyncError> {
    let Some(who) = who else { return work(Ok(())) };
    let work = || work(become_user(who));
    match inmates {
        Inmates::Process => work(),
        Inmates::Thread => on_own_thread(work),
    }
}

/// Returns the session; of an end that has a user, with a pool of its own that has no threads yet.
pub(crate) fn with_own_workers(mut session: Session, who: Option<&ActAs>) -> Session {
    if who.is_some() {
        session.workers = session.workers.apart();
        // It may know contents that this user may not read.
        session.state = None;
    }
    session
}

/// Does work on a thread of its own, whose rights and cage end with it.
///
/// # Errors
/// As the work, and [`SyncError::Thread`].
pub(crate) fn on_own_thread<T: Send>(
    work: impl FnOnce() -> Result<T, SyncError> + Send,
) -> Result<T, SyncError> {
    std::thread::scope(|scope| {
        let thread = threads::spawn_scoped(scope, "end", work)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
