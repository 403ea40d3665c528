//! The weak sum: cheap, rolling, a filter and never evidence.
//!
//! For a window of `n` bytes `x[0..n]` and a secret 32-bit `k`, modulo 2^32:
//!
//! ```text
//! a = sum of x[i]        b = sum of (n - i) * x[i]        weak = b + k * a
//! ```
//!
//! `a` and `b` are those of Fletcher and of rsync (thesis, section 3.2.1) in full 32 bits each. The
//! sum of zeros is zero. Whoever writes content can force collisions whatever the secret is (swap
//! bytes symmetrically); work per weak hit is bounded by the search instead, see [`crate::search`].

use crate::key::Key;

/// The weak sum of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct WeakSum(pub(crate) u32);

/// The secret of a session's weak sums.
#[derive(Clone, Copy)]
pub(crate) struct WeakSecret {
    factor: u32,
}

impl std::fmt::Debug for WeakSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WeakSecret(..)")
    }
}

impl WeakSecret {
    pub(crate) fn new(key: &Key) -> Self {
        let secret = key.weak_secret();
        Self { factor: u32::from_le_bytes([secret[0], secret[1], secret[2], secret[3]]) | 1 }
    }

    /// The weak sum of a whole window.
    pub(crate) fn sum(self, window: &[u8]) -> WeakSum {
        Roll::new(window).weak(self)
    }
}

/// The state of a rolling window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Roll {
    a: u32,
    b: u32,
    len: u32,
}

impl Roll {
    /// Sums a window afresh. The window is at most `BlockLen::MAX` long.
    pub(crate) fn new(window: &[u8]) -> Self {
        let (mut a, mut b) = (0_u32, 0_u32);
        for &byte in window {
            a = a.wrapping_add(u32::from(byte));
            b = b.wrapping_add(a);
        }
        Self { a, b, len: u32::try_from(window.len()).unwrap_or(u32::MAX) }
    }

    /// Moves the window one byte on: `out` leaves, `into` enters.
    #[inline]
    pub(crate) fn roll(&mut self, out: u8, into: u8) {
        self.a = self.a.wrapping_sub(u32::from(out)).wrapping_add(u32::from(into));
        self.b = self.b.wrapping_sub(self.len.wrapping_mul(u32::from(out))).wrapping_add(self.a);
    }

    /// The weak sum of the window.
    #[inline]
    pub(crate) fn weak(self, secret: WeakSecret) -> WeakSum {
        WeakSum(self.b.wrapping_add(self.a.wrapping_mul(secret.factor)))
    }
}
