//! Tries several addresses of one host, a little apart; the first right answer wins.

use std::{io, net::SocketAddr, time::Duration};

use dsync_wire::link::LinkError;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::reactor::as_own;

/// The reason why no address was reached.
#[derive(Debug)]
pub(crate) enum DialError {
    /// No address is known, or none could be tried; with the last error.
    Unreachable(Option<io::Error>),
    /// Nothing answered.
    NoAnswer,
    /// A peer answered with another key.
    WrongKey(SocketAddr),
    /// The right server answered and rejected this client, or its connection broke.
    Refused(LinkError),
}

impl DialError {
    /// Makes the error for a failure of this system, before any attempt.
    pub(crate) fn system(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Unreachable(Some(io::Error::other(error)))
    }

    /// Returns the error that says more; of equals, the later one.
    fn or_worse(self, other: Self) -> Self {
        let rank = |error: &Self| match error {
            Self::Unreachable(_) => 0,
            Self::NoAnswer => 1,
            Self::WrongKey(_) => 2,
            Self::Refused(_) => 3,
        };
        if rank(&other) >= rank(&self) { other } else { self }
    }
}

/// The possible addresses of the other end.
pub(crate) struct Addresses<L> {
    /// Addresses to try at once: those that ssh itself reached.
    pub(crate) first: Vec<SocketAddr>,
    /// Addresses to try a little later, or at once if there are no others: those of the host's name
    /// from the operator.
    pub(crate) later: L,
}

/// Tries every address with `attempt`; returns the result of the first that succeeds. Ends after
/// `wait`.
pub(crate) async fn race<T, L, A, F>(
    addresses: Addresses<L>,
    wait: Duration,
    attempt: A,
) -> Result<T, DialError>
where
    T: Send + 'static,
    L: Future<Output = Vec<SocketAddr>>,
    A: Fn(SocketAddr) -> F,
    F: Future<Output = Result<T, DialError>> + Send + 'static,
{
    let mut worst = DialError::Unreachable(None);
    match timeout(wait, run(addresses, attempt, &mut worst)).await {
        Ok(Some(winner)) => Ok(winner),
        Ok(None) => Err(worst),
        // Only silent addresses are left, unless one has said more.
        Err(_) => Err(match worst {
            DialError::WrongKey(_) | DialError::Refused(_) => worst,
            _ => DialError::NoAnswer,
        }),
    }
}

async fn run<T, L, A, F>(addresses: Addresses<L>, attempt: A, worst: &mut DialError) -> Option<T>
where
    T: Send + 'static,
    L: Future<Output = Vec<SocketAddr>>,
    A: Fn(SocketAddr) -> F,
    F: Future<Output = Result<T, DialError>> + Send + 'static,
{
    let Addresses { first: mut tried, later } = addresses;
    tried.truncate(MAX_ADDRESSES);

    let mut attempts = JoinSet::new();
    for address in &tried {
        attempts.spawn(as_own(attempt(*address)));
    }

    let head_start = if tried.is_empty() { Duration::ZERO } else { STAGGER };
    let stagger = async {
        sleep(head_start).await;
        later.await
    };

    tokio::pin!(stagger);
    let mut resolved = false;
    loop {
        tokio::select! {
            addresses = &mut stagger, if !resolved => {
                resolved = true;
                for address in addresses {
                    if !tried.contains(&address) && tried.len() < MAX_ADDRESSES {
                        tried.push(address);
                        attempts.spawn(as_own(attempt(address)));
                    }
                }
            }
            Some(outcome) = attempts.join_next() => match outcome {
                Ok(Ok(winner)) => return Some(winner),
                Ok(Err(error)) => *worst = std::mem::replace(worst, DialError::NoAnswer).or_worse(error),
                // The task panicked: as if the address were unknown.
                Err(_) => {}
            },
            else => return None,
        }
    }
}

/// Head start of the address that ssh itself reached.
const STAGGER: Duration = Duration::from_millis(250);
/// Most addresses to try; each costs a socket and its buffers.
const MAX_ADDRESSES: usize = 6;
