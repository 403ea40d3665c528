//! The stop of a server: from then on nobody accepts a connection.
//!
//! The law: once the stop is told, no connection is taken from a listener. The server closes the
//! listener; a connection to a socket of systemd's waits there for the next server, and one to the
//! server's own is refused by the system.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    io::{Errno, write},
};

/// The word that a server stops, which each waiting thread hears.
pub(super) struct Stop {
    is_told: AtomicBool,
    /// Readable once it is told, and nobody reads it.
    event: OwnedFd,
}

impl Stop {
    /// Makes one that is not told.
    ///
    /// # Errors
    /// The system's: no descriptors.
    pub(super) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { is_told: AtomicBool::default(), event })
    }

    /// Tells of the stop; returns whether it was told before.
    pub(super) fn tell(&self) -> bool {
        let was_told = self.is_told.swap(true, Ordering::AcqRel);
        let _ = write(&self.event, &1_u64.to_ne_bytes());
        was_told
    }

    /// Returns whether the stop was told.
    pub(super) fn is_told(&self) -> bool {
        self.is_told.load(Ordering::Acquire)
    }

    /// Waits for a connection; `None` once the stop is told. The listener does not block: another
    /// server may take a connection of a common socket first.
    ///
    /// # Errors
    /// The system's: most likely out of descriptors.
    pub(super) fn accept(&self, listener: &TcpListener) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        loop {
            let mut watched = [PollFd::new(listener, PollFlags::IN), PollFd::new(&self.event, PollFlags::IN)];
            match poll(&mut watched, None) {
                Err(Errno::INTR) => continue,
                polled => polled?,
            };
            // A connection that came with the stop is the next server's.
            if self.is_told() {
                return Ok(None);
            }

            match listener.accept() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                accepted => return accepted.map(Some),
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{sync::Arc, thread};

    use super::*;

    #[test]
    fn a_connection_that_comes_with_the_stop_stays_with_the_listener() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let (stop, theirs) = (Arc::new(Stop::new().unwrap()), listener.try_clone().unwrap());
        let told = Arc::clone(&stop);
        let waiting = thread::spawn(move || {
            let first = told.accept(&theirs).unwrap();
            (first.is_some(), told.accept(&theirs).unwrap().is_none())
        });
        let first = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        while !waiting.is_finished() {
            let _ = stop.tell();
        }
        // Either both waits ended by the stop, or the first one had the connection already.
        let (is_taken, is_over) = waiting.join().unwrap();
        assert!(is_over && stop.is_told() && stop.tell());

        let second = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(stop.accept(&listener).unwrap().is_none());
        let next = if is_taken { &second } else { &first };
        assert_eq!(listener.accept().unwrap().1, next.local_addr().unwrap());
    }
}
