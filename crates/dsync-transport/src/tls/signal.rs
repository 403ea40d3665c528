//! The main connection of a link: messages between the two ends besides the lanes.
//!
//! ```text
//! what: u8 | number: u32 LE
//! ```
//!
//! | what | name | number | meaning |
//! |---|---|---|---|
//! | 0 | alive | 0 | sent every second, and more often under a short limit |
//! | 1 | close | reason | end of the link; nothing follows |
//! | 2 | stop | lane | the sender will read no more of the lane |
//! | 3 | reset | lane | the sender will not finish its direction of the lane |
//! | 4 | dial | 0 | from the server: make a connection for one of my lanes |
//! | 5 | no line | 0 | from the client: that was not possible |

use std::{
    net::Shutdown,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use dsync_wire::link::{CloseReason, LinkError};

use super::{
    meter::Relief,
    registry::{Registry, Word, link_error, tls_error},
    stream::{Opener, Sealer, Stream, StreamError},
};
use crate::losses::SAMPLE_TIME;

/// One message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    Alive,
    Close(u32),
    Told(u32, Word),
    Dial,
    NoLine,
}

impl Signal {
    fn encode(self) -> [u8; LENGTH] {
        let (what, number) = match self {
            Self::Alive => (0, 0),
            Self::Close(reason) => (1, reason),
            Self::Told(lane, Word::Stop) => (2, lane),
            Self::Told(lane, Word::Reset) => (3, lane),
            Self::Dial => (4, 0),
            Self::NoLine => (5, 0),
        };
        let [a, b, c, d] = u32::to_le_bytes(number);
        [what, a, b, c, d]
    }

    fn decode([what, a, b, c, d]: [u8; LENGTH]) -> Option<Self> {
        let number = u32::from_le_bytes([a, b, c, d]);
        Some(match what {
            0 => Self::Alive,
            1 => Self::Close(number),
            2 => Self::Told(number, Word::Stop),
            3 => Self::Told(number, Word::Reset),
            4 => Self::Dial,
            5 => Self::NoLine,
            _ => return None,
        })
    }
}

/// The sending side of the main connection.
pub(super) struct Main {
    stream: Stream,
    sealer: Mutex<Sealer>,
    /// The path's class, which the client measured when it connected and told the server.
    near: bool,
}

impl Main {
    pub(super) fn new(stream: Stream, near: bool) -> Self {
        Self { stream, sealer: Mutex::default(), near }
    }

    /// Returns whether the path is short.
    pub(super) fn is_near(&self) -> bool {
        self.near
    }

    /// Returns the connection.
    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Sends bytes that precede the first message.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<(), StreamError> {
        self.sealer.lock().unwrap_or_else(PoisonError::into_inner).write(&self.stream, bytes)
    }

    /// Sends one message. The receiving side detects a peer that takes none.
    pub(super) fn send(&self, signal: Signal) {
        if let Err(error) = self.write(&signal.encode()) {
            tracing::debug!(?signal, ?error, "main connection");
        }
    }

    /// Sends the farewell, if any, and ends.
    pub(super) fn end(&self, farewell: Option<CloseReason>) {
        match farewell {
            Some(reason) => {
                self.send(Signal::Close(reason.code()));
                self.stream.shut(Shutdown::Write);
            }
            None => self.stream.shut(Shutdown::Both),
        }
    }
}

/// Listens to the peer and sends it signs of life, until the link ends. `dial` makes a connection
/// for a lane of the peer.
pub(super) fn listen(registry: &Arc<Registry>, mut opener: Opener, idle_timeout: Duration, dial: &dyn Fn()) {
    if let Some(main) = registry.main() {
        let interval = (idle_timeout / 3).min(ALIVE_INTERVAL);
        // A peer that accepts nothing for so long is gone.
        if let Err(error) = main.stream.set_write_timeout(Some(idle_timeout)) {
            registry.end(LinkError::io(error), Some(CloseReason::Failed));
        }
        let cause = converse(registry, main, &mut opener, (interval, idle_timeout), dial);
        registry.end(cause, None);
        main.stream.shut(Shutdown::Both);
    }
    registry.main_is_over();
}

/// Reads signals and sends signs of life until there is a reason to end; returns that reason.
fn converse(
    registry: &Arc<Registry>,
    main: &Main,
    opener: &mut Opener,
    (interval, idle_timeout): (Duration, Duration),
    dial: &dyn Fn(),
) -> LinkError {
    let (mut heard, mut beaten) = (Instant::now(), Instant::now());
    let mut message = [0; LENGTH];
    let mut filled = 0;
    let mut relief = None;

    loop {
        // A message that comes byte by byte must not keep this end from its own signs of life.
        let next = Instant::now() + interval.min(SAMPLE_TIME);
        match opener.read_by(&main.stream, &mut message[filled..], next) {
            Ok(0) => return LinkError::Lost,
            Ok(count) => {
                heard = Instant::now();
                filled += count;
            }
            Err(StreamError::Io(error)) if is_timeout(&error) => {}
            Err(error) => return link_error(error),
        }
        if filled == LENGTH {
            filled = 0;
            if let Err(cause) = act(registry, Signal::decode(message), dial) {
                return cause;
            }
        }
        if let Some(lanes) = registry.relieved() {
            relief.get_or_insert_with(|| Relief::of(registry, lanes)).look(registry);
        }
        if heard.elapsed() >= idle_timeout {
            return LinkError::TimedOut;
        }
        if beaten.elapsed() >= interval {
            beaten = Instant::now();
            main.send(Signal::Alive);
            // Whoever waits in such a lane would wait for the system's own patience, a quarter of an hour.
            if registry.has_lost(idle_timeout) {
                return LinkError::TimedOut;
            }
        }
    }
}

fn act(registry: &Registry, signal: Option<Signal>, dial: &dyn Fn()) -> Result<(), LinkError> {
    match signal {
        Some(Signal::Alive) => {}
        Some(Signal::Close(code)) => {
            return Err(LinkError::PeerClosed { reason: CloseReason::from_code(u64::from(code)) });
        }
        Some(Signal::Told(lane, word)) => registry.told(lane, word),
        Some(Signal::Dial) => dial(),
        Some(Signal::NoLine) => registry.refuse(),
        None => {
            registry
                .end(tls_error(rustls::Error::General("unknown signal".into())), Some(CloseReason::Protocol));
            return Err(LinkError::Closed);
        }
    }
    Ok(())
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

/// Length of a message in bytes.
const LENGTH: usize = 5;
/// Longest silence of this end.
const ALIVE_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_survive_and_others_are_refused() {
        for signal in [
            Signal::Alive,
            Signal::Close(3),
            Signal::Told(u32::MAX, Word::Stop),
            Signal::Told(7, Word::Reset),
            Signal::Dial,
            Signal::NoLine,
        ] {
            assert_eq!(Signal::decode(signal.encode()), Some(signal));
        }
        assert_eq!(Signal::decode([6, 0, 0, 0, 0]), None);
    }
}
