//! The sessions that further connections may be passed on to.
//!
//! The parent reads the number of a session and no more ([`super::silent`]), and hands the connection to
//! that session, which judges it: a number opens nothing. The law: passing one on costs no memory that
//! lasts and no wait. A session that does not keep up loses the connection, and its run goes on over
//! those that it has.

use std::{
    collections::BTreeMap,
    io::{self, IoSlice},
    mem::MaybeUninit,
    net::TcpStream,
    os::{fd::AsFd as _, unix::net::UnixStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dsync_engine::standing::SessionNumber;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// The sessions whose client has proved a key.
#[derive(Debug, Default)]
pub(super) struct Addressed {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    sessions: BTreeMap<SessionNumber, Arc<UnixStream>>,
    /// Connections that were passed on to nobody.
    strays: usize,
}

impl Addressed {
    /// Notes a session and the socket that leads to it.
    pub(super) fn add(&self, number: SessionNumber, session: &UnixStream) {
        // Without a descriptor for it the session keeps its one connection.
        if let Ok(session) = session.try_clone() {
            self.lock().sessions.insert(number, Arc::new(session));
        }
    }

    /// Forgets a session.
    pub(super) fn remove(&self, number: &SessionNumber) {
        self.lock().sessions.remove(number);
    }

    /// Passes a connection on. Never waits.
    ///
    /// # Errors
    /// There is no such session, or it takes no more: the number of connections for which that was so
    /// before.
    pub(super) fn pass(&self, number: &SessionNumber, tcp: &TcpStream) -> Result<(), usize> {
        let session = self.lock().sessions.get(number).cloned();
        if session.is_some_and(|session| hand_over(&session, tcp).is_ok()) {
            return Ok(());
        }
        let mut held = self.lock();
        held.strays += 1;
        Err(held.strays - 1)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a connection's descriptor, with the byte that has to go along.
fn hand_over(session: &UnixStream, tcp: &TcpStream) -> io::Result<()> {
    let descriptors = [tcp.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    // The space is for just this.
    let _ = control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(session, &[IoSlice::new(&[0])], &mut control, flags)?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{io::Read as _, net::TcpListener};

    use super::*;

    const SEVEN: SessionNumber = SessionNumber([7; 16]);

    #[test]
    fn a_connection_goes_to_the_session_of_its_number_only_and_never_waits() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (tcp, _) = listener.accept().unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let addressed = Addressed::default();
        assert_eq!(addressed.pass(&SEVEN, &tcp), Err(0));

        addressed.add(SEVEN, &ours);
        assert_eq!(addressed.pass(&SessionNumber([8; 16]), &tcp), Err(1));
        addressed.pass(&SEVEN, &tcp).unwrap();
        // A session that takes nothing is no reason to wait.
        let full = (0..100_000).find_map(|_| addressed.pass(&SEVEN, &tcp).err());
        assert_eq!(full, Some(2));

        addressed.remove(&SEVEN);
        assert_eq!(addressed.pass(&SEVEN, &tcp), Err(3));
        // The byte alone shows that something came; its descriptor is closed with it.
        theirs.read_exact(&mut [0]).unwrap();
        drop((tcp, ours, addressed, theirs));
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    }
}
