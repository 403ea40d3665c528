//! Connections whose client has sent nothing yet.
//!
//! They wait for their first byte in the parent, which does not read it: no process is started for
//! who is silent, and no silent one takes the place of another client. What begins as the preface of a
//! further connection ([`dsync_engine::standing::PREFACE`] bytes, a magic and a session's number) waits for the
//! whole of it, which the parent reads, and nothing behind it. The law: a silent connection
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

use dsync_engine::standing::{PREFACE, Prefaced, SessionNumber, parse_preface};
use rustix::{
    event::{
        Timespec,
        epoll::{self, CreateFlags, Event, EventData, EventFlags},
    },
    io::Errno,
    net::{RecvFlags, recv},
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
    connections: BTreeMap<u64, Accepted>,
    next: u64,
}

/// A connection that was accepted.
pub(super) struct Accepted {
    pub(super) tcp: TcpStream,
    pub(super) peer: SocketAddr,
    /// The instant from which on the time until its client's key is proved counts.
    pub(super) since: Instant,
}

/// The kind of a connection's first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spoke {
    /// Whatever a session may have to judge; unread.
    Anything,
    /// The preface of a further connection of this session; read.
    Preface(SessionNumber),
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
        let of_address = waiting.connections.iter().filter(|(_, waits)| network(waits.peer.ip()) == address);
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
        // Of an unfinished preface each further byte is an event, and nothing else is.
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.watch, &tcp, EventData::new_u64(number), flags)?;
        waiting.connections.insert(number, Accepted { tcp, peer, since: Instant::now() });
        Ok(())
    }

    /// Waits for connections that speak, and calls `each` with them, for as long as the process lives.
    ///
    /// # Errors
    /// The system's; nobody can be served any more.
    pub(super) fn watch(&self, mut each: impl FnMut(Accepted, Spoke)) -> io::Result<()> {
        loop {
            let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENTS];
            let count = match epoll::wait(&self.watch, &mut events, Some(&LOOK)) {
                Ok(count) => count,
                Err(Errno::INTR) => 0,
                Err(errno) => return Err(errno.into()),
            };
            for event in &events[..count] {
                let Event { flags, data } = *event;
                let is_over = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
                if let Some((accepted, spoke)) = self.take_spoken(data.u64(), is_over) {
                    // A session has the connection to itself: its watch ends here, not with its copy.
                    let _ = epoll::delete(&self.watch, &accepted.tcp);
                    each(accepted, spoke);
                }
            }
            self.close_old();
        }
    }

    /// Takes a connection that has said enough, or whose client says no more.
    fn take_spoken(&self, number: u64, is_over: bool) -> Option<(Accepted, Spoke)> {
        let mut waiting = self.lock();
        let spoke = first_words(&waiting.connections.get(&number)?.tcp, is_over)?;
        Some((waiting.connections.remove(&number)?, spoke))
    }

    /// Returns the number of silent connections.
    pub(super) fn count(&self) -> usize {
        self.lock().connections.len()
    }

    fn close_old(&self) {
        let mut waiting = self.lock();
        while waiting.connections.first_entry().is_some_and(|first| first.get().since.elapsed() >= PATIENCE) {
            waiting.connections.pop_first();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns what the first bytes of a connection are, once that is known. Reads a whole preface, and
/// nothing else. Never waits.
fn first_words(tcp: &TcpStream, is_over: bool) -> Option<Spoke> {
    let mut seen = [0; PREFACE];
    let count = recv(tcp, &mut seen[..], RecvFlags::PEEK | RecvFlags::DONTWAIT).map_or(0, |(count, _)| count);
    match parse_preface(&seen[..count.min(PREFACE)]) {
        Prefaced::Unfinished if !is_over => None,
        Prefaced::Of(session) => {
            // It is there, and nobody else reads.
            let _ = recv(tcp, &mut seen[..], RecvFlags::DONTWAIT);
            Some(Spoke::Preface(session))
        }
        _ => Some(Spoke::Anything),
    }
}

/// The most silent connections, fewer than a process may have descriptors by default.
const MOST: usize = 768;
/// The most silent connections of one address.
const ONE_ADDRESS: usize = 640;
/// Time for the first byte, and from the accept on for all that a client says before its key is proved.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
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
    fn a_preface_is_read_whole_and_nothing_behind_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let silent: &'static Silent = Box::leak(Box::new(Silent::new().unwrap()));
        let (sender, spoke) = mpsc::channel();
        thread::spawn(move || silent.watch(|accepted, words| sender.send((accepted.tcp, words)).unwrap()));
        let connect = || {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (tcp, peer) = listener.accept().unwrap();
            silent.add(tcp, peer).unwrap();
            client
        };
        let whole = dsync_engine::standing::preface(&SessionNumber([7; 16]));
        let mut sent = [0; 5];
        for cut in [1, 8, PREFACE - 1] {
            let mut client = connect();
            client.set_nodelay(true).unwrap();
            client.write_all(&whole[..cut]).unwrap();
            // Another one shows that the half was looked at.
            connect().write_all(b"x").unwrap();
            assert_eq!(spoke.recv().unwrap().1, Spoke::Anything);
            assert_eq!(silent.count(), 1);
            client.write_all(&[&whole[cut..], b"TLS.."].concat()).unwrap();
            let (mut tcp, words) = spoke.recv().unwrap();
            assert_eq!(words, Spoke::Preface(SessionNumber([7; 16])));
            io::Read::read_exact(&mut tcp, &mut sent).unwrap();
            assert_eq!(&sent, b"TLS..");
        }

        // Who ends in the middle, or turns out to be something else, is a stranger like any other.
        connect().write_all(&whole[..10]).unwrap();
        assert_eq!(spoke.recv().unwrap().1, Spoke::Anything);
        let mut other = connect();
        other.write_all(&whole[..7]).unwrap();
        other.write_all(b"no").unwrap();
        let (mut tcp, words) = spoke.recv().unwrap();
        assert_eq!(words, Spoke::Anything);
        let mut unread = [0; 9];
        io::Read::read_exact(&mut tcp, &mut unread).unwrap();
        assert_eq!(unread, [&whole[..7], b"no"].concat()[..]);
    }

    #[test]
    fn who_speaks_is_served_and_the_oldest_silent_one_makes_room() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let silent: &'static Silent = Box::leak(Box::new(Silent::new().unwrap()));
        let (sender, spoke) = mpsc::channel();
        thread::spawn(move || {
            silent.watch(|Accepted { tcp, peer, since }, _| sender.send((tcp, peer, since)).unwrap())
        });
        let connect_from = |address: &str| {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (tcp, peer) = listener.accept().unwrap();
            silent.add(tcp, SocketAddr::new(address.parse().unwrap(), peer.port())).unwrap();
            client
        };
        let connect = || connect_from("127.0.0.1");

        let first = connect();
        let before = Instant::now();
        let mut speaking = connect();
        let accepted = Instant::now();
        speaking.write_all(b"x").unwrap();
        let (tcp, peer, since) = spoke.recv().unwrap();
        assert_eq!(peer, speaking.local_addr().unwrap());
        // The client's time began before its first byte.
        assert!((before..=accepted).contains(&since));
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
