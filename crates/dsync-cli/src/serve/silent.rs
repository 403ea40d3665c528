//! Connections whose client has sent nothing yet.
//!
//! They wait for their first byte in the parent, which does not read it: no process is started for
//! who is silent, and no silent one takes the place of another client. The law: a silent connection
//! costs a descriptor and an entry here, there are at most [`MOST`] of them, [`ONE_ADDRESS`] of one
//! address, and none lasts longer than [`PATIENCE`]. One too many closes the oldest, of its own
//! address if that has too many, which an honest client's never is: it speaks first.

use std::{
    collections::BTreeMap,
    io,
    net::{SocketAddr, TcpStream},
    os::fd::OwnedFd,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::{
    event::{
        Timespec,
        epoll::{self, CreateFlags, Event, EventData, EventFlags},
    },
    io::Errno,
};

use super::strangers::network;

/// The silent connections of a server.
pub(super) struct Silent {
    watch: OwnedFd,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// By their number, which is their order as well.
    connections: BTreeMap<u64, (TcpStream, SocketAddr, Instant)>,
    next: u64,
}

impl Silent {
    /// Makes an empty one.
    ///
    /// # Errors
    /// The system's: no descriptors.
    pub(super) fn new() -> io::Result<Self> {
        let watch = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self { watch, waiting: Mutex::default() })
    }

    /// Takes a connection that was just accepted.
    ///
    /// # Errors
    /// The system's; the connection is closed.
    pub(super) fn add(&self, tcp: TcpStream, peer: SocketAddr) -> io::Result<()> {
        let mut waiting = self.lock();
        let address = network(peer.ip());
        let of_address = waiting.connections.iter().filter(|(_, (_, peer, _))| network(peer.ip()) == address);
        let mut of_address = of_address.map(|(number, _)| *number);
        let oldest = of_address.next();
        // Closing it takes it out of the watch as well.
        if of_address.count() + 1 >= ONE_ADDRESS {
            oldest.and_then(|number| waiting.connections.remove(&number));
        }
        if waiting.connections.len() >= MOST {
            waiting.connections.pop_first();
        }
        let number = waiting.next;
        waiting.next += 1;
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ONESHOT;
        epoll::add(&self.watch, &tcp, EventData::new_u64(number), flags)?;
        waiting.connections.insert(number, (tcp, peer, Instant::now()));
        Ok(())
    }

    /// Waits for connections that speak, and calls `each` with them, for as long as the process lives.
    ///
    /// # Errors
    /// The system's; nobody can be served any more.
    pub(super) fn watch(&self, mut each: impl FnMut(TcpStream, SocketAddr)) -> io::Result<()> {
        loop {
            let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENTS];
            let count = match epoll::wait(&self.watch, &mut events, Some(&LOOK)) {
                Ok(count) => count,
                Err(Errno::INTR) => 0,
                Err(errno) => return Err(errno.into()),
            };
            for event in &events[..count] {
                let number = event.data.u64();
                let spoke = self.lock().connections.remove(&number);
                if let Some((tcp, peer, _)) = spoke {
                    // A session has the connection to itself: its watch ends here, not with its copy.
                    let _ = epoll::delete(&self.watch, &tcp);
                    each(tcp, peer);
                }
            }
            self.close_old();
        }
    }

    /// Returns the number of silent connections.
    pub(super) fn count(&self) -> usize {
        self.lock().connections.len()
    }

    fn close_old(&self) {
        let mut waiting = self.lock();
        while waiting.connections.first_entry().is_some_and(|first| first.get().2.elapsed() >= PATIENCE) {
            waiting.connections.pop_first();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The most silent connections, fewer than a process may have descriptors by default.
const MOST: usize = 768;
/// The most silent connections of one address.
const ONE_ADDRESS: usize = 640;
/// Time for the first byte.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two looks for old ones.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Connections that are taken by one call.
const EVENTS: usize = 32;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{io::Write as _, net::TcpListener, sync::mpsc, thread};

    use super::*;

    #[test]
    fn who_speaks_is_served_and_the_oldest_silent_one_makes_room() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let silent: &'static Silent = Box::leak(Box::new(Silent::new().unwrap()));
        let (sender, spoke) = mpsc::channel();
        thread::spawn(move || silent.watch(|tcp, peer| sender.send((tcp, peer)).unwrap()));
        let connect_from = |address: &str| {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (tcp, peer) = listener.accept().unwrap();
            silent.add(tcp, SocketAddr::new(address.parse().unwrap(), peer.port())).unwrap();
            client
        };
        let connect = || connect_from("127.0.0.1");

        let first = connect();
        let mut speaking = connect();
        speaking.write_all(b"x").unwrap();
        let (tcp, peer) = spoke.recv().unwrap();
        assert_eq!(peer, speaking.local_addr().unwrap());
        // The byte is the session's to read.
        let mut byte = [0];
        assert_eq!((tcp.peek(&mut byte).unwrap(), byte), (1, *b"x"));
        assert_eq!(silent.count(), 1);
        // One that has gone is handed on too: somebody has to note it.
        drop(first);
        let _ = spoke.recv().unwrap();

        let is_closed = |mut client: &TcpStream| io::Read::read(&mut client, &mut [0]).unwrap() == 0;
        // One address keeps its own out, and nobody else.
        let first = connect_from("192.0.2.9");
        let crowd: Vec<_> = (0..=ONE_ADDRESS).map(|_| connect()).collect();
        assert_eq!(silent.count(), 1 + ONE_ADDRESS);
        assert!(is_closed(&crowd[0]));
        // Where all places are taken, the oldest of all goes.
        let others: Vec<_> = (0..MOST - ONE_ADDRESS).map(|_| connect_from("192.0.2.10")).collect();
        assert_eq!(silent.count(), MOST);
        assert!(is_closed(&first));
        let mut youngest = others.last().unwrap();
        youngest.write_all(b"y").unwrap();
        assert_eq!(spoke.recv().unwrap().1.port(), youngest.local_addr().unwrap().port());
    }
}
