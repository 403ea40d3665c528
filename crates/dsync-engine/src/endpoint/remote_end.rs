//! The end that a remote shell starts.

use std::sync::Arc;

use dsync_transport::{Accepted, Entrance};
use dsync_wire::budget::Budget;

use super::{Means, serve_link};
use crate::{
    CancelToken, Resources, SyncError,
    callbacks::caught,
    check,
    error::Wording,
    footprint::{Cage, Inmates},
    grant::{Grant, Start},
    source::ListedFiles,
    threads,
};

/// Serves one session as the remote end (`dsync --server`) to the client that came by `entrance`;
/// returns when the session is over.
///
/// The client has no say in `resources`. With a `grant` the
/// client may do in its directory what it allows and nothing else; without one, whatever this
/// process may. A `cage` is entered when the operands are known, by the threads that carry bytes
/// before they start. The client is told in this `wording` why a session ends. A panic in a rule of the
/// grant, or in the cage, ends the session with [`SyncError::Aborted`].
///
/// # Errors
/// [`SyncError`]; the peer has been told, where it could be. [`SyncError::InvalidOption`] before anything
/// is read from the client.
///
/// ```no_run
/// use std::{env, io, os::fd::AsFd};
///
/// use dsync_engine::{Entrance, Resources, Wording, serve};
///
/// // A product's own program at the remote host, named by `ConnectOptions::remote_program`.
/// let (input, output) =
///     (io::stdin().as_fd().try_clone_to_owned()?, io::stdout().as_fd().try_clone_to_owned()?);
/// let reached = env::var("SSH_CONNECTION").ok();
/// let entrance = Entrance::new(input, output).ssh_connection(reached.as_deref());
/// serve(entrance, &Resources::default(), None, None, Wording::default())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn serve(
    entrance: Entrance<'_>,
    resources: &Resources,
    grant: Option<Grant>,
    cage: Option<&dyn Cage>,
    wording: Wording,
) -> Result<(), SyncError> {
    check::resources(resources)?;
    caught(|| serve_caught(entrance, resources, grant, cage, wording))
}

/// Serves one session; a panic of the caller's code goes through it.
fn serve_caught(
    entrance: Entrance<'_>,
    resources: &Resources,
    grant: Option<Grant>,
    cage: Option<&dyn Cage>,
    wording: Wording,
) -> Result<(), SyncError> {
    let budget = Budget::new(resources.max_alloc);
    let accept = || {
        // The carrier's threads start from this one, and keep its cage: they carry bytes and open
        // nothing.
        cage.inspect(|cage| cage.enter_carrier());
        dsync_transport::accept(entrance, &budget)
    };
    let Accepted { link, idle_timeout, .. } = std::thread::scope(|scope| {
        let thread = threads::spawn_scoped(scope, "accept", accept)?;
        Ok::<_, SyncError>(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
    })?;

    let start = Start::of(grant, resources.home.clone());
    let means = Means::new(resources.allowance(budget), resources.spool_home());
    let states = resources.states.clone();
    let means = Means { start, cage, inmates: Inmates::Process, wording, states, ..means };
    let (tally, carried) = (means.start.tally(), Arc::clone(&link));
    let served = serve_link(link, idle_timeout, &CancelToken::new(), ListedFiles::default(), means);
    tally.note_traffic(carried.traffic());
    served
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{os::unix::net::UnixStream, time::Duration};

    use super::*;
    use crate::footprint::Footprint;

    /// A cage with a bug.
    #[derive(Debug)]
    struct Buggy;

    impl Cage for Buggy {
        fn enter_carrier(&self) {
            panic!("a bug in the cage");
        }

        fn enter(&self, _: &Footprint, _: Inmates) {}
    }

    #[test]
    fn panic_of_the_programs_code_is_an_error() {
        let (_client, server) = UnixStream::pair().unwrap();
        let entrance = Entrance::new(server.try_clone().unwrap().into(), server.into());
        let ended = serve(entrance, &Resources::default(), None, Some(&Buggy), Wording::default());
        let Err(SyncError::Aborted { message }) = ended else { panic!("{ended:?}") };
        assert_eq!(message, "a bug in the cage");
    }

    #[test]
    fn limits_that_no_session_could_keep_are_refused() {
        for (resources, expected) in [
            (Resources::default().max_stall(Duration::ZERO), "max_stall"),
            (Resources::default().max_alloc(1 << 20), "max_alloc"),
        ] {
            let (_client, server) = UnixStream::pair().unwrap();
            let entrance = Entrance::new(server.try_clone().unwrap().into(), server.into());
            let ended = serve(entrance, &resources, None, None, Wording::default());
            let Err(SyncError::InvalidOption { option, .. }) = ended else { panic!("{ended:?}") };
            assert_eq!(option, expected);
        }
    }
}
