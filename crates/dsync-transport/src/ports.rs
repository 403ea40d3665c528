//! Opens local ports, for peers of both families if the system has both.

#[cfg(feature = "quic")]
use std::net::UdpSocket;
use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    os::fd::OwnedFd,
};

use dsync_wire::bootstrap::PortRange;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// Opens a UDP socket on a free port of the range, or on one of the system's choice.
#[cfg(feature = "quic")]
pub(crate) fn udp_socket(range: Option<PortRange>) -> io::Result<UdpSocket> {
    first_free(range, |port| {
        dual_stack(SocketType::DGRAM, port)
            .map(UdpSocket::from)
            .or_else(|error| or_ipv4(error, || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))))
    })
}

/// Opens a listening TCP socket on a free port, likewise; it does not block.
pub(crate) fn tcp_listener(range: Option<PortRange>) -> io::Result<TcpListener> {
    let listener = first_free(range, |port| {
        dual_stack(SocketType::STREAM, port)
            .and_then(|socket| {
                rustix::net::listen(&socket, BACKLOG)?;
                Ok(TcpListener::from(socket))
            })
            .or_else(|error| or_ipv4(error, || TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))))
    })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Tries every port of the range; returns the last failure if none is free.
fn first_free<T>(range: Option<PortRange>, bind: impl Fn(u16) -> io::Result<T>) -> io::Result<T> {
    let Some(range) = range else { return bind(0) };
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for port in range.ports() {
        match bind(port) {
            Ok(bound) => return Ok(bound),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Falls back to IPv4 alone if there is no IPv6, but not if the port is taken.
fn or_ipv4<T>(error: io::Error, bind: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    if error.kind() == io::ErrorKind::AddrInUse { Err(error) } else { bind() }
}

fn dual_stack(kind: SocketType, port: u16) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(AddressFamily::INET6, kind, SocketFlags::CLOEXEC, None)?;
    // The system's default for this can be either.
    sockopt::set_ipv6_v6only(&socket, false)?;
    if kind == SocketType::STREAM {
        // Lingering connections of an earlier run must not hold a port of a narrow range.
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    rustix::net::bind(&socket, &SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))?;
    Ok(socket)
}

/// Most connections that the system queues until they are accepted.
const BACKLOG: i32 = 128;
