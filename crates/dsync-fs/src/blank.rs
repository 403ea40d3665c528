//! Zeros that need not be written.
//!
//! Content is examined in units of [`UNIT`] bytes, aligned in the file: the unit that a filesystem
//! can leave out. A partial unit at either end of the content counts by itself; its other part is
//! examined with its own content.

use std::{io, ops::Range};

/// Calls back with the runs of `bytes`, which lie at `offset` in a file, in order. Blank runs are
/// zeros throughout, in units that `may_stay_blank`; the others lie between them.
///
/// # Errors
/// Whatever `each` returns.
pub fn for_runs(
    offset: u64,
    bytes: &[u8],
    may_stay_blank: impl Fn(Range<u64>) -> bool,
    mut each: impl FnMut(Range<usize>, bool) -> io::Result<()>,
) -> io::Result<()> {
    let (mut run, mut blank) = (0..0, false);
    while run.end < bytes.len() {
        let place = offset.saturating_add(run.end as u64);
        let rest = UNIT - usize::try_from(place % UNIT as u64).unwrap_or(0);
        let end = bytes.len().min(run.end + rest);
        let is_blank = may_stay_blank(place..place.saturating_add((end - run.end) as u64))
            && is_zero(&bytes[run.end..end]);
        if is_blank != blank && !run.is_empty() {
            each(run.clone(), blank)?;
            run.start = run.end;
        }
        (run.end, blank) = (end, is_blank);
    }
    if run.is_empty() { Ok(()) } else { each(run, blank) }
}

/// Returns whether all bytes are zero.
fn is_zero(bytes: &[u8]) -> bool {
    // Data usually differs in its first bytes. The rest is compared in pieces that the compiler
    // turns into wide loops.
    let (head, rest) = bytes.split_at(bytes.len().min(16));
    head.iter().all(|&byte| byte == 0)
        && rest.chunks(256).all(|piece| piece.iter().fold(0, |any, &byte| any | byte) == 0)
}

/// Unit of comparing and writing in bytes: a page, which is the block of btrfs and XFS.
pub const UNIT: usize = 4096;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

        /// Law: the runs tile the content, a blank one is zeros, and no whole unit of zeros is in
        /// another.
        #[test]
        fn runs_tile_the_content(
            offset in 0..3 * UNIT as u64,
            pieces in prop::collection::vec((any::<bool>(), 1..2 * UNIT), 0..20),
            fence in 0..30 * UNIT as u64,
        ) {
            let bytes: Vec<u8> =
                pieces.iter().flat_map(|&(zero, len)| vec![u8::from(!zero); len]).collect();
            let allowed = |unit: Range<u64>| unit.end <= fence;
            let (mut at, mut last) = (0, None);
            for_runs(offset, &bytes, allowed, |run, blank| {
                assert_eq!(run.start, at);
                assert!(run.end > at && last != Some(blank));
                (at, last) = (run.end, Some(blank));
                if blank {
                    assert!(bytes[run.clone()].iter().all(|&byte| byte == 0));
                    assert!(offset + run.end as u64 <= fence);
                    return Ok(());
                }
                let first = (offset + run.start as u64).next_multiple_of(UNIT as u64);
                for unit in (first..offset + run.end as u64).step_by(UNIT) {
                    let from = usize::try_from(unit - offset).unwrap();
                    let unit_bytes = &bytes[from..bytes.len().min(from + UNIT)];
                    assert!(unit_bytes.iter().any(|&byte| byte != 0) || !allowed(unit..unit + unit_bytes.len() as u64));
                }
                Ok(())
            })
            .unwrap();
            prop_assert_eq!(at, bytes.len());
        }
    }
}
