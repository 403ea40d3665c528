//! The UDP half of a server's port.
//!
//! The server's parent receives datagrams and looks at those that are a preface ([`super::preface`]) and
//! nothing else. It answers none, whatever they say: who sends one from a forged address makes nobody send
//! anything. For a preface it can open a further socket of the same port, connected to the sender, which is the
//! session's: the kernel brings all further datagrams of that sender there.
//!
//! The law: a datagram costs the parent one call, and memory for none.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
};

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, socket_with,
    sockopt::{set_ipv6_v6only, set_socket_reuseport},
};

use super::{PREFACE, Prefaced, SessionNumber, parse_preface};

/// A UDP port, of which sessions have connected sockets.
#[derive(Debug)]
pub struct DatagramPort(UdpSocket);

impl DatagramPort {
    /// Opens the port.
    ///
    /// # Errors
    /// The system's: it is in use, or may not be opened.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(Self(open(address)?))
    }

    /// Takes a port that another program has opened.
    ///
    /// # Errors
    /// The system's: this process may open no further socket of the port, as one whose user is not the
    /// other program's.
    pub fn adopt(socket: UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(false)?;
        set_socket_reuseport(&socket, true)?;
        // Shows it now, not to the first client.
        drop(open(socket.local_addr()?)?);
        Ok(Self(socket))
    }

    /// Opens a port that no socket has. [`bind`](Self::bind) may be given the number of another test's
    /// port, as sockets of this user may share it, and then one of the two waits for ever.
    #[cfg(test)]
    pub(super) fn alone(address: SocketAddr) -> io::Result<Self> {
        Self::adopt(UdpSocket::bind(address)?)
    }

    /// Returns the port's address.
    ///
    /// # Errors
    /// The system's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Waits for the next preface; returns the session that it names, and its sender.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Security
    /// Anybody can send one, from any address that is not checked.
    pub fn next_preface(&self) -> io::Result<(SessionNumber, SocketAddr)> {
        loop {
            // A longer datagram is cut off, and no preface.
            let mut seen = [0; PREFACE + 1];
            let (count, sender) = self.0.recv_from(&mut seen)?;
            if let (Prefaced::Of(session), PREFACE) = (parse_preface(&seen[..count]), count) {
                return Ok((session, sender));
            }
        }
    }

    /// Opens a socket for the sender of a preface. `local` is the address of this host that the session's
    /// client has reached, which a port of all addresses does not know.
    ///
    /// # Errors
    /// The system's, and `local` is of another port.
    pub fn lead(&self, local: SocketAddr, sender: SocketAddr) -> io::Result<UdpSocket> {
        if local.port() != self.address()?.port() {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let socket = open(local)?;
        socket.connect(sender)?;

        // Before it was connected, others' datagrams could arrive here. Whoever needs an answer sends again.
        socket.set_nonblocking(true)?;
        for _ in 0..MOST_STRAY {
            if socket.recv(&mut [0]).is_err() {
                break;
            }
        }
        Ok(socket)
    }
}

/// Opens a socket of a port that several sockets of this user may have.
fn open(address: SocketAddr) -> io::Result<UdpSocket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    if address.is_ipv6() {
        // The system's default can be either, and a client of IPv4 may have reached the port of all addresses.
        // An IPv4 socket of the same port has such a client's datagrams all the same.
        set_ipv6_v6only(&socket, false)?;
    }
    // Not SO_REUSEADDR, by which any user of the machine could take the port's datagrams.
    set_socket_reuseport(&socket, true)?;
    bind(&socket, &address)?;
    Ok(socket.into())
}

/// Datagrams that are taken out of a new socket: what arrives in a moment, and no flood of the sender's.
const MOST_STRAY: usize = 64;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{super::preface, *};

    const SEVEN: SessionNumber = SessionNumber([7; 16]);

    fn client(port: &DatagramPort) -> UdpSocket {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(port.address().unwrap()).unwrap();
        client
    }

    #[test]
    fn only_a_whole_preface_is_one() {
        let port = DatagramPort::alone("127.0.0.1:0".parse().unwrap()).unwrap();
        let client = client(&port);
        let whole = preface(&SEVEN);
        let longer = [&whole[..], b"x"].concat();
        for other in [&b""[..], &whole[..1], &whole[..PREFACE - 1], &longer, &[0; 1200], b"\x89PNG\r\n\x1a\n"]
        {
            client.send(other).unwrap();
        }
        client.send(&whole).unwrap();
        assert_eq!(port.next_preface().unwrap(), (SEVEN, client.local_addr().unwrap()));
    }

    #[test]
    fn a_connected_socket_has_its_senders_datagrams_and_the_port_all_others() {
        // Of one address, and of all of them.
        for address in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"] {
            let port = DatagramPort::alone(address.parse().unwrap()).unwrap();
            let number = port.address().unwrap().port();
            let clients = [0; 3].map(|_| {
                let client = UdpSocket::bind("127.0.0.1:0").unwrap();
                client.connect(("127.0.0.1", number)).unwrap();
                client
            });
            let reached: SocketAddr = match address {
                "[::]:0" => format!("[::ffff:127.0.0.1]:{number}").parse().unwrap(),
                _ => ([127, 0, 0, 1], number).into(),
            };
            let led = clients.each_ref().map(|client| {
                client.send(&preface(&SEVEN)).unwrap();
                let (_, sender) = port.next_preface().unwrap();
                let led = port.lead(reached, sender).unwrap();
                led.set_nonblocking(false).unwrap();
                led
            });
            for (client, led) in clients.iter().zip(&led) {
                let (mut seen, text) = ([0; 64], client.local_addr().unwrap().to_string());
                client.send(text.as_bytes()).unwrap();
                let count = led.recv(&mut seen).unwrap();
                assert_eq!(&seen[..count], text.as_bytes());
                led.send(b"back").unwrap();
                assert_eq!(client.recv(&mut seen).unwrap(), 4);
            }

            // Others' still go to the port, and no port but its own is led.
            let other = UdpSocket::bind("127.0.0.1:0").unwrap();
            other.send_to(&preface(&SEVEN), ("127.0.0.1", number)).unwrap();
            let (_, sender) = port.next_preface().unwrap();
            assert_eq!(sender.port(), other.local_addr().unwrap().port());
            let elsewhere = SocketAddr::new(reached.ip(), number.wrapping_add(1));
            assert!(port.lead(elsewhere, sender).is_err());
        }
    }

    #[test]
    fn a_port_that_another_program_opened_can_be_served() {
        let port = DatagramPort::adopt(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
        let client = client(&port);
        client.send(&preface(&SEVEN)).unwrap();
        let (_, sender) = port.next_preface().unwrap();
        let led = port.lead(port.address().unwrap(), sender).unwrap();
        led.set_nonblocking(false).unwrap();
        client.send(b"here").unwrap();
        assert_eq!(led.recv(&mut [0; 9]).unwrap(), 4);
    }
}
