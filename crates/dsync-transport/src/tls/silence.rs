//! Lanes whose path is gone while the link's first connection lives.
//!
//! A NAT forgets a connection that was idle for some minutes, and one of several paths may fail alone.
//! Signs of life pass on the first connection only. So the peer's system is asked on each lane by TCP's
//! keepalive (RFC 9293, section 3.8.4), which also keeps the lane in a NAT's memory.
//!
//! The law: a lane is lost once the peer's system was silent for the link's idle time and has left several
//! packets in a row unanswered. A lane that nobody reads or writes is never lost: the peer's system answers
//! for it. `TCP_USER_TIMEOUT` does not keep this law: it also ends a connection whose reader is busy for so
//! long (Linux 5.11 and later), and whoever waits for a disk is no lost peer.

use std::{io, net::TcpStream, time::Duration};

use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl};

use super::tcp_info::TcpInfo;

/// Makes the kernel ask the peer's system several times within the link's idle time.
///
/// # Errors
/// The system's.
pub(crate) fn keep_alive(tcp: &TcpStream, idle_timeout: Duration) -> io::Result<()> {
    // The kernel counts whole seconds.
    let interval = Duration::from_secs(idle_timeout.as_secs() / 4);
    let interval = interval.clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL);
    set_tcp_keepidle(tcp, interval)?;
    set_tcp_keepintvl(tcp, interval)?;
    set_tcp_keepcnt(tcp, MOST_QUESTIONS)?;
    Ok(set_socket_keepalive(tcp, true)?)
}

/// Returns whether the path of a lane is gone, as far as the kernel tells.
pub(crate) fn is_lost(tcp: &TcpStream, idle_timeout: Duration) -> bool {
    TcpInfo::of(tcp).is_some_and(|info| says_lost(&info, idle_timeout))
}

fn says_lost(info: &TcpInfo, idle_timeout: Duration) -> bool {
    // A reader that is busy is asked ever more seldom, up to every two minutes: silence alone proves nothing.
    info.silence >= idle_timeout && info.unanswered >= UNANSWERED
}

/// Packets that a lost peer leaves unanswered. One may be under way.
const UNANSWERED: u32 = 2;
/// Bounds of the time between two questions: what the kernel takes, and less than any usual NAT remembers.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);
const LONGEST_INTERVAL: Duration = Duration::from_secs(30);
/// Questions after which the kernel itself gives up: the most that it takes, which is an hour of the longest
/// interval. The verdict is this module's.
const MOST_QUESTIONS: u32 = 127;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::TcpListener;

    use rustix::net::sockopt::{socket_keepalive, tcp_keepidle};

    use super::*;

    #[test]
    fn only_a_peer_that_leaves_packets_unanswered_is_lost() {
        let idle = Duration::from_secs(10);
        for (seconds, unanswered, lost) in
            [(0, 0, false), (9, 9, false), (10, 1, false), (119, 1, false), (10, 2, true), (900, 15, true)]
        {
            let info = TcpInfo { silence: Duration::from_secs(seconds), unanswered, ..TcpInfo::default() };
            assert_eq!(says_lost(&info, idle), lost, "{seconds} {unanswered}");
        }
    }

    #[test]
    fn the_peer_is_asked_often_enough_for_the_idle_time_and_for_a_nat() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for (idle, interval) in [(3, 1), (5, 1), (60, 15), (120, 30), (3600, 30)] {
            keep_alive(&tcp, Duration::from_secs(idle)).unwrap();
            assert!(socket_keepalive(&tcp).unwrap());
            assert_eq!(tcp_keepidle(&tcp).unwrap(), Duration::from_secs(interval), "{idle}");
        }
        assert!(!is_lost(&tcp, Duration::ZERO));
    }
}
