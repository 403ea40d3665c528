//! The sockets of a server's addresses.
//!
//! The law: `[::]` is every address of the machine, whatever the system's default for IPv6 is
//! (`net.ipv6.bindv6only`), and also where there is no IPv6.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
};

use rustix::{
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt},
};

/// Opens the socket of one of a server's addresses.
///
/// # Errors
/// The system's.
pub(super) fn open(address: SocketAddr, all: &[SocketAddr]) -> io::Result<TcpListener> {
    let is_whole = address.is_ipv6() && address.ip().is_unspecified();
    // Who names IPv4 addresses of the port too has them apart: one socket for all would be in the way.
    let has_ipv4 = all.iter().any(|other| other.is_ipv4() && other.port() == address.port());
    match listener(address, is_whole && has_ipv4) {
        Err(Errno::AFNOSUPPORT) if is_whole && !has_ipv4 => {
            Ok(listener((Ipv4Addr::UNSPECIFIED, address.port()).into(), false)?)
        }
        opened => Ok(opened?),
    }
}

/// Opens a socket that takes connections, as the standard library does, which leaves IPv4 to the system's default.
fn listener(address: SocketAddr, only_ipv6: bool) -> Result<TcpListener, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, only_ipv6)?;
    }
    // Connections of an earlier server must not hold the port.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Most connections that the system queues until they are accepted: the standard library's number.
const BACKLOG: i32 = 128;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_are_both_families_but_where_ipv4_is_named_apart() {
        // Another program may take the port between the two steps.
        let is_served = (0..9).any(|_| {
            let any = "[::]:0".parse().unwrap();
            let whole = open(any, &[any]).unwrap();
            let all = whole.local_addr().unwrap();
            if all.is_ipv4() {
                // There is no IPv6 here.
                return true;
            }
            assert!(!sockopt::ipv6_v6only(&whole).unwrap());

            drop(whole);
            let named = [all, (Ipv4Addr::UNSPECIFIED, all.port()).into()];
            let both = named.map(|address| open(address, &named));
            both.iter().all(Result::is_ok)
        });
        assert!(is_served);
    }
}
