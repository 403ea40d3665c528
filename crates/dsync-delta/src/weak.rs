//! The weak sum: cheap, rolling, a filter and never evidence.
//!
//! For a window of `n` bytes `x[0..n]` and a secret odd 32-bit `k`, modulo 2^32:
//!
//! ```text
//! a = sum of x[i]        b = sum of (n - i) * x[i]        weak = b + k * a
//! ```
//!
//! `a` and `b` are those of Fletcher and of rsync (thesis, section 3.2.1) in full 32 bits each. The
//! sum of zeros is zero. Whoever writes content can force collisions whatever the secret is (swap
//! bytes symmetrically), so the search bounds the work per weak hit instead; see [`crate::search`].
//!
//! Sums of whole windows are written so that the compiler can use wide registers, and compiled a
//! second time for AVX2 in [`arch`]. Measured on one core: byte by byte 3.7 GB/s, wide 8 to 9, with
//! AVX2 17 to 23.

use std::fmt;

use crate::key::Key;

/// The weak sum of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct WeakSum(pub(crate) u32);

/// The secret of a session's weak sums.
#[derive(Clone, Copy)]
pub(crate) struct WeakSecret {
    factor: u32,
}

impl fmt::Debug for WeakSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakSecret(..)")
    }
}

impl WeakSecret {
    pub(crate) fn new(key: &Key) -> Self {
        let [a, b, c, d, ..] = key.weak_secret();
        Self { factor: u32::from_le_bytes([a, b, c, d]) | 1 }
    }

    /// Returns the weak sum of a whole window.
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
    /// Computes the sums of a fresh window. The window is at most `BlockLen::MAX` long.
    pub(crate) fn new(window: &[u8]) -> Self {
        let (a, b) = arch::sums(window);
        Self { a, b, len: u32::try_from(window.len()).unwrap_or(u32::MAX) }
    }

    /// Moves the window one byte forward: `out` leaves, `into` enters.
    #[inline]
    pub(crate) fn roll(&mut self, out: u8, into: u8) {
        self.a = self.a.wrapping_sub(u32::from(out)).wrapping_add(u32::from(into));
        self.b = self.b.wrapping_sub(self.len.wrapping_mul(u32::from(out))).wrapping_add(self.a);
    }

    /// Returns the weak sum of the window.
    #[inline]
    pub(crate) fn weak(self, secret: WeakSecret) -> WeakSum {
        WeakSum(self.b.wrapping_add(self.a.wrapping_mul(secret.factor)))
    }
}

/// Computes the sums `a` and `b` byte by byte: their definition, and the reference for the wide
/// ones.
fn sums_by_byte(window: &[u8], start: (u32, u32)) -> (u32, u32) {
    window.iter().fold(start, |(a, b), &byte| {
        let a = a.wrapping_add(u32::from(byte));
        (a, b.wrapping_add(a))
    })
}

/// Computes the sums `a` and `b` in `LANES` columns of bytes.
///
/// Within a group of `ROWS` rows a column's sums fit 16 bits. `a` is at most `16 * 255`, and `b`,
/// which adds up `a` after each row but the last, at most `120 * 255`.
#[inline(always)]
fn sums_wide(window: &[u8]) -> (u32, u32) {
    let (mut a, mut b) = ([0_u32; LANES], [0_u32; LANES]);
    let groups = window.chunks_exact(LANES * ROWS);
    let rest = groups.remainder();
    for group in groups {
        let (mut column, mut prefix) = ([0_u16; LANES], [0_u16; LANES]);
        for row in group.chunks_exact(LANES) {
            for lane in 0..LANES {
                prefix[lane] = prefix[lane].wrapping_add(column[lane]);
                column[lane] = column[lane].wrapping_add(u16::from(row[lane]));
            }
        }
        for lane in 0..LANES {
            let earlier = a[lane].wrapping_mul(ROWS_U32);
            b[lane] = b[lane].wrapping_add(earlier).wrapping_add(u32::from(prefix[lane]));
            a[lane] = a[lane].wrapping_add(u32::from(column[lane]));
        }
    }

    // A byte counts once for each later row, times the row's length, and once for each byte left in
    // its own row.
    let (mut sum, mut weighted, mut weight) = (0_u32, 0_u32, LANES_U32);
    for (a, b) in a.into_iter().zip(b) {
        sum = sum.wrapping_add(a);
        weighted = weighted.wrapping_add(b.wrapping_mul(LANES_U32)).wrapping_add(a.wrapping_mul(weight));
        weight = weight.wrapping_sub(1);
    }

    sums_by_byte(rest, (sum, weighted))
}

/// The same code for newer processors, chosen at run time.
#[allow(unsafe_code)]
mod arch {
    /// Returns the sums of a window, by the widest code that this processor runs.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn sums(window: &[u8]) -> (u32, u32) {
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: `sums_avx2` needs AVX2 and nothing else, and the processor has it.
            unsafe { sums_avx2(window) }
        } else {
            super::sums_wide(window)
        }
    }

    /// Returns the sums of a window. Elsewhere the baseline has wide registers (NEON), or there is
    /// nothing to choose.
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn sums(window: &[u8]) -> (u32, u32) {
        super::sums_wide(window)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn sums_avx2(window: &[u8]) -> (u32, u32) {
        super::sums_wide(window)
    }
}

/// Columns of a group; with [`ROWS`] rows a group is 1 KiB, the shortest block.
const LANES: usize = 64;
const LANES_U32: u32 = 64;

/// Rows of a group: the most, in a power of two, whose sums fit 16 bits.
const ROWS: usize = 16;
const ROWS_U32: u32 = 16;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{key, noise};

    proptest! {
        #[test]
        fn law_wide_sums_equal_sums_by_byte(len in 0_usize..5000, seed in any::<u64>()) {
            let window = noise(seed, len);
            let by_byte = sums_by_byte(&window, (0, 0));
            prop_assert_eq!(sums_wide(&window), by_byte);
            prop_assert_eq!(arch::sums(&window), by_byte);
        }

        #[test]
        fn law_rolled_sum_equals_sum_afresh(len in 1_usize..3000, seed in any::<u64>()) {
            let file = noise(seed, len + 500);
            let mut roll = Roll::new(&file[..len]);
            for at in 0..500 {
                roll.roll(file[at], file[at + len]);
                prop_assert_eq!(roll, Roll::new(&file[at + 1..at + 1 + len]));
            }
        }
    }

    #[test]
    fn largest_bytes_do_not_overflow_a_lane() {
        for len in [1023, 1024, 1025, 4 << 20] {
            let window = vec![0xff; len];
            assert_eq!(sums_wide(&window), sums_by_byte(&window, (0, 0)));
            assert_eq!(arch::sums(&window), sums_by_byte(&window, (0, 0)));
        }
    }

    #[test]
    fn zeros_sum_to_zero() {
        let secret = WeakSecret::new(&key());
        assert_eq!(secret.sum(&[0; 3000]), WeakSum(0));
        assert_ne!(secret.sum(&[1; 3000]), WeakSum(0));
    }
}
