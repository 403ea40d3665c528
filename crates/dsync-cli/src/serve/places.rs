//! Places for sessions: no more sessions of a kind at once than it has places.
//!
//! A place is an abstract Unix socket: binding it is one step of the kernel's, its name belongs to
//! no directory that a client could reach, and it goes with its process, however that ends. So
//! sessions of a server and those that sshd starts share their key's places. The law: a session
//! that has a place keeps it to its end, a name has one holder, and nothing can be sent or received
//! by it. A datagram socket that could send would reach every service of the system by its path.
//!
//! The names are those of this network namespace, and open to every user of the machine: who has an
//! account there can take the places of others, and so keep a key out. Nobody can add one.

use std::{
    io,
    net::Shutdown,
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    thread,
    time::{Duration, Instant},
};

/// A place that a session holds.
#[derive(Debug)]
pub(super) struct Place(
    #[cfg_attr(not(test), expect(dead_code, reason = "held for the session"))] UnixDatagram,
);

/// The purpose of a place.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind<'a> {
    /// The sessions of all keys over a server's port.
    Server {
        /// The fingerprint of the server's key.
        key: &'a str,
    },
    /// The sessions of a key in a share.
    Key {
        /// The device and the inode of the share's directory.
        share: (u64, u64),
        /// The key's name.
        key: &'a str,
    },
    /// The session with a quota in a directory, whatever its key.
    Quota {
        /// The device and the inode of the directory.
        directory: (u64, u64),
    },
}

impl Kind<'_> {
    fn name(self, number: u32) -> String {
        match self {
            Self::Server { key } => format!("dsync/{key}/{number:x}"),
            // As long as a name can be with the longest name of a key.
            Self::Key { share: (device, inode), key } => {
                format!("dsync{device:x}.{inode:x}/{key}/{number:x}")
            }
            // No key has an empty name.
            Self::Quota { directory: (device, inode) } => format!("dsync{device:x}.{inode:x}//{number:x}"),
        }
    }
}

/// Takes one of so many places; `None` if none became free by then. A client that lost its
/// connection is often back before the session of that one has noticed.
///
/// # Errors
/// The system's.
pub(super) fn take(kind: Kind<'_>, most: u32, until: Instant) -> io::Result<Option<Place>> {
    loop {
        if let Some(place) = take_now(kind, most)? {
            return Ok(Some(place));
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        thread::sleep(LOOK);
    }
}

fn take_now(kind: Kind<'_>, most: u32) -> io::Result<Option<Place>> {
    for number in 0..most {
        let address = SocketAddr::from_abstract_name(kind.name(number))?;
        match UnixDatagram::bind_addr(&address) {
            Ok(socket) => {
                socket.shutdown(Shutdown::Both)?;
                return Ok(Some(Place(socket)));
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Time that a session waits for all of its places. Its client hears nothing meanwhile, and the shortest
/// silence that ends a run is 3 s: the answer has to come before.
pub(super) const WAIT: Duration = Duration::from_secs(2);
/// The most places of a kind: each takes a call to find that it is taken.
pub(super) const MOST: u32 = 0xfff;
const LOOK: Duration = Duration::from_millis(100);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_so_many_places_and_gets_them_back() {
        let key = format!("test-{}", std::process::id());
        let kind = Kind::Key { share: (1, u64::MAX), key: &key };
        let now = |kind, most| take(kind, most, Instant::now()).unwrap();
        let first = now(kind, 2).unwrap();
        let second = now(kind, 2);
        assert!(second.is_some() && now(kind, 2).is_none());
        // Another share of the same key, and another key.
        assert!(now(Kind::Key { share: (2, u64::MAX), key: &key }, 1).is_some());
        assert!(now(Kind::Server { key: &key }, 1).is_some());
        drop(first);
        assert!(now(kind, 2).is_some());
        // Fewer than there were: those that are there stay, and count.
        assert!(second.is_some() && now(kind, 1).is_some());
    }

    #[test]
    fn a_place_sends_and_hears_nothing() {
        let key = format!("mute-{}", std::process::id());
        let kind = Kind::Server { key: &key };
        let place = take(kind, 1, Instant::now()).unwrap().unwrap();
        let service = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&key).unwrap()).unwrap();
        let sent = place.0.send_to_addr(b"order", &service.local_addr().unwrap());
        assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let told = service.send_to_addr(b"word", &SocketAddr::from_abstract_name(kind.name(0)).unwrap());
        assert_eq!(told.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn the_longest_names_fit() {
        let key = "k".repeat(64);
        for kind in [Kind::Key { share: (u64::MAX, u64::MAX), key: &key }, Kind::Server { key: &key }] {
            let name = kind.name(MOST - 1);
            assert!(SocketAddr::from_abstract_name(&name).is_ok(), "{}", name.len());
        }
    }
}
