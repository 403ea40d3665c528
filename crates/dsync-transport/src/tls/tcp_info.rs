//! The kernel's counts of a TCP connection (`TCP_INFO`, tcp(7)).
//!
//! Neither the standard library nor rustix or nix has this option, so one system call is made here.
//! The answer is read as bytes at the offsets of `struct tcp_info` in `linux/tcp.h`, which only ever
//! grows at its end; a kernel that knows fewer fields leaves the rest zero.

use std::{net::TcpStream, os::fd::AsRawFd, time::Duration};

/// Counts of one connection since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TcpInfo {
    /// Smoothed round trip.
    pub(crate) round_trip: Duration,
    /// Shortest round trip.
    pub(crate) least_round_trip: Duration,
    /// Bytes of data in a packet.
    pub(crate) packet_bytes: u64,
    /// Packets with data that were sent, again or not; wraps around, as the next one does.
    pub(crate) packets: u32,
    /// Packets that were sent again.
    pub(crate) resent: u32,
    /// Bytes that the peer's system has.
    pub(crate) delivered_bytes: u64,
    /// Time since the peer's system was heard.
    pub(crate) silence: Duration,
    /// Packets in a row that the peer's system should have answered and did not: data that was sent
    /// again, and questions whether it is there.
    pub(crate) unanswered: u32,
}

impl TcpInfo {
    /// Asks the kernel; `None` if it does not tell.
    pub(crate) fn of(tcp: &TcpStream) -> Option<Self> {
        let bytes = raw(tcp)?;
        let word = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word));
        let long = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
        Some(Self {
            round_trip: Duration::from_micros(word(RTT).into()),
            least_round_trip: Duration::from_micros(word(MIN_RTT).into()),
            packet_bytes: word(SND_MSS).into(),
            packets: word(DATA_SEGS_OUT),
            resent: word(TOTAL_RETRANS),
            delivered_bytes: long(BYTES_ACKED),
            silence: Duration::from_millis(word(LAST_DATA_RECV).min(word(LAST_ACK_RECV)).into()),
            unanswered: u32::from(bytes[RETRANSMITS]) + u32::from(bytes[PROBES]),
        })
    }
}

fn raw(tcp: &TcpStream) -> Option<[u8; LENGTH as usize]> {
    let mut bytes = [0; LENGTH as usize];
    let mut length = LENGTH;
    // SAFETY: the descriptor is open while `tcp` is borrowed; the kernel writes at most `length`
    // bytes to `bytes`, which lives on this stack, and its new length to `length`.
    #[allow(unsafe_code)]
    let result = unsafe {
        libc::getsockopt(
            tcp.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    (result == 0).then_some(bytes)
}

/// Bytes of the structure up to the last field that is read here.
const LENGTH: libc::socklen_t = 160;
const RETRANSMITS: usize = 2;
const PROBES: usize = 3;
const SND_MSS: usize = 16;
const LAST_DATA_RECV: usize = 52;
const LAST_ACK_RECV: usize = 56;
const RTT: usize = 68;
const TOTAL_RETRANS: usize = 100;
const BYTES_ACKED: usize = 120;
const MIN_RTT: usize = 148;
const DATA_SEGS_OUT: usize = 156;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
    };

    use super::*;

    #[test]
    fn the_kernel_counts_what_a_connection_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[7; 100_000]).unwrap();
        far.read_exact(&mut [0; 100_000]).unwrap();
        far.write_all(b"!").unwrap();
        near.read_exact(&mut [0]).unwrap();
        let info = TcpInfo::of(&near).unwrap();
        assert!((100_000..=100_001).contains(&info.delivered_bytes), "{info:?}");
        assert!(info.packets >= 2 && info.packet_bytes > 500, "{info:?}");
        assert!(
            info.round_trip > Duration::ZERO && info.least_round_trip <= info.round_trip * 100,
            "{info:?}"
        );
    }
}
