//! quinn's settings, each with its reason; several of its defaults are traps for bulk transfer.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use dsync_wire::bootstrap::PortRange;
use quinn::{
    ClientConfig, EndpointConfig, IdleTimeout, MtuDiscoveryConfig, ServerConfig, TransportConfig,
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use rustix::net::sockopt;

use super::congestion::BulkControl;
use crate::ports;

/// Returns the settings for both sides. `peer` is the packets' destination, if known: it determines
/// how large they may be.
pub(crate) fn transport(idle_timeout: Duration, peer: Option<IpAddr>) -> Arc<TransportConfig> {
    let idle_timeout = idle_timeout.clamp(SHORTEST_IDLE, LONGEST_IDLE);
    let mut mtu = MtuDiscoveryConfig::default();
    mtu.upper_bound(udp_payload(peer));
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(MAX_LANES.into())
        .max_concurrent_uni_streams(0_u8.into())
        .stream_receive_window(STREAM_WINDOW.into())
        .receive_window(RECEIVE_WINDOW.into())
        .send_window(SEND_WINDOW)
        .datagram_receive_buffer_size(None)
        .congestion_controller_factory(Arc::new(BulkControl))
        .initial_rtt(INITIAL_RTT)
        .mtu_discovery_config(Some(mtu))
        // The clamp keeps it far inside a VarInt, so the fallback is never used.
        .max_idle_timeout(IdleTimeout::try_from(idle_timeout).ok())
        .keep_alive_interval(Some((idle_timeout / 3).min(KEEP_ALIVE)));
    Arc::new(config)
}

/// Returns the endpoint's side of the packet size: receive buffers are this times 2,048 per
/// endpoint.
pub(crate) fn endpoint(peer: Option<IpAddr>) -> EndpointConfig {
    let mut config = EndpointConfig::default();
    // Never below 1,200, the only possible error.
    let _ = config.max_udp_payload_size(udp_payload(peer).max(MIN_PAYLOAD_LIMIT));
    config
}

/// Returns the whole client configuration.
pub(crate) fn client(
    tls: rustls::ClientConfig,
    transport: Arc<TransportConfig>,
) -> Result<ClientConfig, quinn::crypto::rustls::NoInitialCipherSuite> {
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    config.transport_config(transport);
    Ok(config)
}

/// Returns the whole server configuration.
pub(crate) fn server(
    tls: rustls::ServerConfig,
    transport: Arc<TransportConfig>,
) -> Result<ServerConfig, quinn::crypto::rustls::NoInitialCipherSuite> {
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    config
        .transport_config(transport)
        // A laptop that changes networks, or a NAT that forgets, continues from another address.
        // Only the holder of the keys can do that, and quinn checks that the new address answers
        // before it sends much there.
        .migration(true)
        .max_incoming(MAX_INCOMING)
        .incoming_buffer_size(INCOMING_BUFFER)
        .incoming_buffer_size_total(INCOMING_BUFFER * MAX_INCOMING as u64);
    Ok(config)
}

/// Opens a socket on a port of the range, or of the system's choice.
pub(crate) fn bind_any(range: Option<PortRange>) -> io::Result<UdpSocket> {
    let socket = ports::udp_socket(range)?;
    ask_for_buffers(&socket);
    Ok(socket)
}

/// Opens a socket to reach `peer`.
pub(crate) fn bind_for(peer: SocketAddr) -> io::Result<UdpSocket> {
    let any = if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    let socket = UdpSocket::bind((any, 0))?;
    ask_for_buffers(&socket);
    Ok(socket)
}

/// Requests large buffers, by force if allowed, and accepts whatever the system grants.
pub(super) fn ask_for_buffers(socket: &UdpSocket) {
    let _ = sockopt::set_socket_recv_buffer_size_force(socket, UDP_BUFFER)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, UDP_BUFFER));
    let _ = sockopt::set_socket_send_buffer_size_force(socket, UDP_BUFFER)
        .or_else(|_| sockopt::set_socket_send_buffer_size(socket, UDP_BUFFER));
    // The kernel reports twice what it grants.
    let receive = sockopt::socket_recv_buffer_size(socket).map_or(0, |size| size / 2);
    let send = sockopt::socket_send_buffer_size(socket).map_or(0, |size| size / 2);
    tracing::debug!(receive, send, wanted = UDP_BUFFER, "UDP buffers; limits: net.core.{{r,w}}mem_max");
}

/// Returns the largest UDP payload worth probing for towards `peer`.
fn udp_payload(peer: Option<IpAddr>) -> u16 {
    let route = peer.and_then(|peer| route_mtu(peer).ok()).unwrap_or(0);
    if route <= ETHERNET_MTU {
        return ETHERNET_PAYLOAD;
    }
    u16::try_from(route - HEADERS).unwrap_or(u16::MAX).min(JUMBO_PAYLOAD)
}

/// Returns the MTU of the local interface that leads to `peer`.
fn route_mtu(peer: IpAddr) -> io::Result<u32> {
    let peer = peer.to_canonical();
    // Connecting a UDP socket looks up the route and sends nothing. The port (discard) is never
    // used.
    let socket = UdpSocket::bind(match peer {
        IpAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        IpAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    })?;
    socket.connect((peer, 9))?;
    Ok(match peer {
        IpAddr::V4(_) => sockopt::ip_mtu(&socket),
        IpAddr::V6(_) => sockopt::ipv6_mtu(&socket),
    }?)
}

/// Most streams that the peer may have open: the most lanes of a session and some to spare.
const MAX_LANES: u8 = 72;
/// Bytes in flight or unread per stream. quinn kills a connection whose stream has more than 1,024
/// gaps, which a window above 2.4 MiB reaches at 1,452-byte packets with every second one lost.
/// Sixteen lanes of this are 2.3 times the 12.5 MB of 1 Gbit/s at 100 ms. With 1 % loss each lane
/// waits for some packet all the time, and holds the data behind it for one or two more round
/// trips. With 1.25 MiB that path carried 740 Mbit/s.
pub(super) const STREAM_WINDOW: u32 = 7 << 18;
/// Bytes in flight or unread per connection: 17 full streams (16 data lanes and the control lane),
/// so that unread data lanes never starve the control lane. With a slow disk all of it is memory,
/// on long paths; short ones have fewer lanes.
const RECEIVE_WINDOW: u32 = 17 * STREAM_WINDOW;
/// Unacknowledged bytes that this end keeps, for the same path.
const SEND_WINDOW: u64 = 28 << 20;
/// Largest route MTU of a path that is treated as Ethernet, in bytes.
const ETHERNET_MTU: u32 = 1500;
/// UDP payload in an Ethernet frame under IPv6, in bytes: quinn's own default bound.
const ETHERNET_PAYLOAD: u16 = 1452;
/// UDP payload on larger paths, in bytes: that of a jumbo frame of 9,000 bytes under IPv6. Seven fit into one
/// system call, and the socket asks for no more.
const JUMBO_PAYLOAD: u16 = 8952;
/// IPv6 and UDP headers, in bytes.
const HEADERS: u32 = 48;
/// quinn's own default limit of received payloads, in bytes; a lower one would refuse standard
/// paths.
const MIN_PAYLOAD_LIMIT: u16 = 1472;
/// Socket buffers to request, in bytes.
const UDP_BUFFER: usize = 4 << 20;
/// Handshakes that may wait to be processed. quinn's default is 65,536.
const MAX_INCOMING: usize = 16;
/// Bytes that each of them may buffer. quinn's default is 10 MiB.
const INCOMING_BUFFER: u64 = 64 << 10;
/// Round trip assumed before one is measured. A lost packet of the handshake is resent after three
/// of them. RFC 9002, section 6.2.2, says 333 ms, and a second is long if TLS would be used
/// meanwhile.
const INITIAL_RTT: Duration = Duration::from_millis(100);
/// Time without a packet after which one is sent; keeps NAT entries alive.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
const SHORTEST_IDLE: Duration = Duration::from_secs(1);
const LONGEST_IDLE: Duration = Duration::from_secs(24 * 3600);
