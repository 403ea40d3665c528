//! One account of the memory that a peer makes this end use.
//!
//! A session has one [`Budget`]. Code that keeps something because of the peer's messages first
//! takes the bytes from the account, under the [`Share`] that names their purpose. Dropping the
//! [`Held`] guard returns them. The law: the sum of all guards never exceeds the bound, whatever
//! the peer sends and however many threads take.
//!
//! The amounts are estimates above the allocator's real need, so the resident size stays below the
//! bound plus the fixed costs of a process. Taking costs two atomic operations and no lock. The
//! account never waits: where the protocol lets a peer wait, its credit keeps an honest one far
//! below the bound.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::limits::DEFAULT_MAX_ALLOC;

/// The purpose for which bytes are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Share {
    /// Listing messages, names of owners and missing operands that were received but not yet
    /// planned.
    Listings,
    /// Directories that were listed and whose own listing has not arrived, the paths of open ones,
    /// and the lists of a `Start` in parts.
    Paths,
    /// Access control lists and extended attributes of unfinished entries.
    AttributeSets,
    /// Entries that have several names.
    HardLinks,
    /// Unread data of lanes, and the buffers of data lanes.
    Lanes,
    /// Signatures, requests for sums, and runs of segments that were requested.
    Signatures,
    /// Pieces of files that are written in place.
    Pieces,
}

impl Share {
    /// Every share, in the order of the table in `docs/threat-model.md`.
    pub const ALL: [Self; 7] = [
        Self::Listings,
        Self::Paths,
        Self::AttributeSets,
        Self::HardLinks,
        Self::Lanes,
        Self::Signatures,
        Self::Pieces,
    ];
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Listings => "listings",
            Self::Paths => "paths",
            Self::AttributeSets => "attribute sets",
            Self::HardLinks => "hard links",
            Self::Lanes => "lanes",
            Self::Signatures => "signatures",
            Self::Pieces => "pieces",
        })
    }
}

/// The account of one session. Cheap to share; every method may be called from any thread.
#[derive(Debug)]
pub struct Budget {
    bound: u64,
    held: AtomicU64,
    shares: [AtomicU64; Share::ALL.len()],
}

/// A request for more bytes than the bound allows; nothing was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the peer would make this end hold more than {} of memory, of which {share} have {}",
    Size(*bound), Size(*held)
)]
#[non_exhaustive]
pub struct OverBudget {
    /// The share that would have held the most.
    pub share: Share,
    /// Bytes that this share would have held.
    pub held: u64,
    /// The bound of all shares together, in bytes.
    pub bound: u64,
}

/// A number of bytes in a form for people.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes @ 0..1024 => write!(f, "{bytes} bytes"),
            bytes @ 1024..0x10_0000 => write!(f, "{} KiB", bytes >> 10),
            bytes => write!(f, "{} MiB", bytes >> 20),
        }
    }
}

impl Budget {
    /// Opens an account of `bound` bytes.
    pub fn new(bound: u64) -> Arc<Self> {
        Arc::new(Self { bound, held: AtomicU64::new(0), shares: Default::default() })
    }

    /// Opens an account without a bound, for a session whose two ends are one process.
    pub fn unbounded() -> Arc<Self> {
        Self::new(u64::MAX)
    }

    /// Returns the bound, in bytes.
    pub fn bound(&self) -> u64 {
        self.bound
    }

    /// Returns how many bytes a share holds now.
    pub fn held_by(&self, share: Share) -> u64 {
        self.shares[share as usize].load(Ordering::Relaxed)
    }

    /// Returns a guard that holds nothing yet.
    pub fn nothing(self: &Arc<Self>, share: Share) -> Held {
        Held { budget: Arc::clone(self), share, bytes: 0 }
    }

    /// Takes bytes from the account.
    ///
    /// # Errors
    /// [`OverBudget`] if all shares together would exceed the bound; nothing is taken then.
    pub fn take(self: &Arc<Self>, share: Share, bytes: u64) -> Result<Held, OverBudget> {
        let mut held = self.nothing(share);
        held.grow(bytes)?;
        Ok(held)
    }

    fn add(&self, share: Share, bytes: u64) -> Result<(), OverBudget> {
        let of_share = &self.shares[share as usize];
        // Data in flight must not end the link before the peer learns why the run ends.
        let reserve = if share == Share::Lanes { LANES_RESERVE } else { 0 };
        let bound = self.bound.saturating_add(reserve);
        let sum = |held: u64| held.checked_add(bytes).filter(|&sum| sum <= bound);
        // A request that is refused takes nothing even for a moment: another would be refused for it.
        if self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).is_err() {
            let held = of_share.load(Ordering::Relaxed).saturating_add(bytes);
            let others = Share::ALL.into_iter().map(|share| (self.held_by(share), share));
            let (held, share) =
                others.fold((held, share), |most, other| if other.0 > most.0 { other } else { most });
            return Err(OverBudget { share, held, bound: self.bound });
        }
        of_share.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Default for Budget {
    /// Opens an account of [`DEFAULT_MAX_ALLOC`] bytes.
    fn default() -> Self {
        Self { bound: DEFAULT_MAX_ALLOC, held: AtomicU64::new(0), shares: Default::default() }
    }
}

/// A guard for bytes taken from the account. Dropping it returns them.
#[derive(Debug)]
pub struct Held {
    budget: Arc<Budget>,
    share: Share,
    bytes: u64,
}

impl Held {
    /// Returns how many bytes the guard holds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes more bytes for the same share.
    ///
    /// # Errors
    /// [`OverBudget`]; the guard then keeps what it held.
    pub fn grow(&mut self, bytes: u64) -> Result<(), OverBudget> {
        self.budget.add(self.share, bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Returns bytes to the account; at most all of them.
    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.budget.shares[self.share as usize].fetch_sub(bytes, Ordering::Relaxed);
        self.budget.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

/// Bytes that lanes may hold beyond the bound: the most that an honest peer of the ssh pipe can
/// have in flight. Another share is therefore always refused first, and the peer learns of it over
/// a working link.
pub const LANES_RESERVE: u64 = 12 << 20;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_given_back() {
        let budget = Budget::new(100);
        let mut first = budget.take(Share::Paths, 60).unwrap();
        let second = budget.take(Share::Pieces, 40).unwrap();
        drop(budget.take(Share::Lanes, LANES_RESERVE).unwrap());
        assert!(budget.take(Share::Lanes, LANES_RESERVE + 1).is_err());
        let refused = budget.take(Share::Pieces, 1).unwrap_err();
        assert_eq!((refused.share, refused.held, refused.bound), (Share::Paths, 60, 100));
        assert!(refused.to_string().contains("paths have 60 bytes"), "{refused}");
        let refused = budget.take(Share::Pieces, 30).unwrap_err();
        assert_eq!((refused.share, refused.held), (Share::Pieces, 70));
        drop(second);
        first.grow(40).unwrap();
        assert!(first.grow(1).is_err());
        assert_eq!((budget.held_by(Share::Paths), budget.held_by(Share::Pieces)), (100, 0));
        first.shrink(1000);
        assert_eq!(budget.held_by(Share::Paths), 0);
        assert!(budget.take(Share::Pieces, u64::MAX).is_err());
        assert!(budget.take(Share::Pieces, 100).is_ok());
    }

    #[test]
    fn threads_together_never_exceed_the_bound() {
        let (budget, guarded) = (Budget::new(1000), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for share in [Share::Paths, Share::Listings, Share::Pieces, Share::HardLinks] {
                let (budget, guarded) = (&budget, &guarded);
                scope.spawn(move || {
                    for round in 0..2000 {
                        let bytes = round % 400;
                        let Ok(held) = budget.take(share, bytes) else { continue };
                        // Counted after it is taken, and not from before it is given back on.
                        let all = guarded.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        assert!(all <= 1000, "{all}");
                        guarded.fetch_sub(bytes, Ordering::SeqCst);
                        drop(held);
                    }
                });
            }
        });
        assert_eq!(budget.held.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_request_that_is_refused_costs_no_other_its_room() {
        let budget = Budget::new(1000);
        let over = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let refused = scope.spawn(|| {
                while over.load(Ordering::Relaxed) == 0 {
                    assert!(budget.take(Share::Paths, 1001).is_err());
                }
            });
            let granted = (0..200_000).all(|_| budget.take(Share::Pieces, 1000).is_ok());
            over.store(1, Ordering::Relaxed);
            refused.join().unwrap();
            assert!(granted);
        });
    }
}
