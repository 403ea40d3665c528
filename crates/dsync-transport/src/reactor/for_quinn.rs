//! The runtime as quinn sees it: what quinn starts are tasks of the link that it works for.

use std::{future::Future, io, net::UdpSocket, pin::Pin, sync::Arc, time::Instant};

use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, TokioRuntime};

use super::{OWN, Tasks};

/// The tasks of a link.
pub(crate) struct ForQuinn(Arc<Tasks>);

impl ForQuinn {
    /// Returns the runtime of the link that the current task belongs to.
    ///
    /// # Errors
    /// The caller is no task of a link.
    pub(crate) fn current() -> io::Result<Arc<Self>> {
        let own = OWN.try_with(Arc::clone).map_err(|_| io::ErrorKind::NotConnected)?;
        Ok(Arc::new(Self(own)))
    }
}

impl std::fmt::Debug for ForQuinn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForQuinn").finish_non_exhaustive()
    }
}

impl Runtime for ForQuinn {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        TokioRuntime.new_timer(at)
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        // Of a link that has ended nothing starts any more.
        let _ = self.0.spawn(future);
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        TokioRuntime.wrap_udp_socket(socket)
    }

    fn now(&self) -> Instant {
        TokioRuntime.now()
    }
}
