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
    net::{SocketAddr, TcpStream},
    os::{fd::AsFd, unix::net::UnixStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dsync_engine::standing::{DatagramPort, SessionNumber};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// The sessions whose client has proved a key.
#[derive(Debug, Default)]
pub(super) struct Addressed {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    sessions: BTreeMap<SessionNumber, Session>,
    /// Connections that were passed on to nobody.
    strays: usize,
}

#[derive(Debug)]
struct Session {
    socket: Arc<UnixStream>,
    /// The address of this host that its client has reached.
    local: Option<SocketAddr>,
    /// Senders of datagrams that were led to it.
    senders: Vec<SocketAddr>,
}

impl Addressed {
    /// Notes a session, the socket that leads to it, and the address of this host that its client has reached.
    pub(super) fn add(&self, number: SessionNumber, session: &UnixStream, local: Option<SocketAddr>) {
        // Without a descriptor for it the session keeps its one connection.
        if let Ok(socket) = session.try_clone() {
            let session = Session { socket: Arc::new(socket), local, senders: Vec::new() };
            self.lock().sessions.insert(number, session);
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
        let session = self.lock().sessions.get(number).map(|session| Arc::clone(&session.socket));
        if session.is_some_and(|session| hand_over(&session, tcp).is_ok()) {
            return Ok(());
        }
        let mut held = self.lock();
        held.strays += 1;
        Err(held.strays - 1)
    }

    /// Leads the sender of a datagram to the session that it names: a socket of the port that is connected to
    /// it. Whoever names no session, or comes again, changes nothing. Never waits.
    pub(super) fn lead(&self, port: &DatagramPort, number: &SessionNumber, sender: SocketAddr) {
        let (session, local) = {
            let mut held = self.lock();
            let Some(Session { socket, local, senders }) = held.sessions.get_mut(number) else { return };
            let Some(local) = *local else { return };
            if senders.contains(&sender) || senders.len() >= MOST_SENDERS {
                return;
            }
            senders.push(sender);
            (Arc::clone(socket), local)
        };

        let led = port.lead(local, sender).and_then(|socket| hand_over(&session, &socket));
        // All that is lost is speed, and anybody can name any sender: no line of the log.
        if let Err(error) = led {
            tracing::debug!(%sender, %error, "no socket for a session's datagrams");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a connection's descriptor, with the byte that has to go along.
fn hand_over(session: &UnixStream, connection: &impl AsFd) -> io::Result<()> {
    let descriptors = [connection.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    // The space is for just this.
    let _ = control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(session, &[IoSlice::new(&[0])], &mut control, flags)?;
    Ok(())
}

/// Senders of datagrams that a session has in its life. One is its client's; whoever reads the session's
/// number on the path can be the others.
const MOST_SENDERS: usize = 8;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{
        io::Read as _,
        net::{TcpListener, UdpSocket},
    };

    use dsync_engine::standing::preface;

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

        addressed.add(SEVEN, &ours, None);
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

    /// Returns the number of descriptors that a session got.
    fn handed(session: &mut UnixStream) -> usize {
        session.set_nonblocking(true).unwrap();
        // One byte each.
        std::iter::from_fn(|| session.read(&mut [0]).ok()).count()
    }

    #[test]
    fn a_sender_is_led_once_to_the_session_that_it_names_and_only_a_few_are() {
        // Not `bind`, which may be given the number of another test's port.
        let port = DatagramPort::adopt(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
        let local = port.address().unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let addressed = Addressed::default();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let knock = |client: &UdpSocket, number| {
            client.send_to(&preface(&number), local).unwrap();
            let (named, sender) = port.next_preface().unwrap();
            addressed.lead(&port, &named, sender);
        };

        knock(&client, SEVEN);
        addressed.add(SEVEN, &ours, Some(local));
        knock(&client, SessionNumber([8; 16]));
        assert_eq!(handed(&mut theirs), 0);
        knock(&client, SEVEN);
        assert_eq!(handed(&mut theirs), 1);
        // Its datagrams from before it was led are in the port's queue, and change nothing.
        addressed.lead(&port, &SEVEN, client.local_addr().unwrap());
        assert_eq!(handed(&mut theirs), 0);

        // A stranger's replay takes a place, until there is none.
        let strangers: Vec<_> = (0..30).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        strangers.iter().for_each(|stranger| knock(stranger, SEVEN));
        assert_eq!(handed(&mut theirs), MOST_SENDERS - 1);
    }
}
