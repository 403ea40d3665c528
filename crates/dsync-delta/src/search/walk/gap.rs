//! Gaps: the way from a failed prediction to the next match.

use super::{HASH_UNIT, NO_BLOCK, Outcome, Search, rolling::Hit};
use crate::{block::BlockIndex, num::len_u64, read::ReadAt, search::TokenSink, token::MAX_LITERAL};

impl<R: ReadAt + ?Sized, S: TokenSink + ?Sized> Search<'_, '_, R, S> {
    /// Finds the next match after a failed prediction, or the segment's end.
    pub(super) fn cross_gap(&mut self) -> Outcome<(), R, S> {
        let tail = self.predicted_tail();
        if !self.may_roll(self.at) {
            self.note_unrolled(self.at, tail.unwrap_or(self.at + self.block_len).min(self.end));
            return match tail {
                Some(_) => self.take(self.predicted),
                None => self.step_aligned(),
            };
        }
        if tail.is_none()
            && let Some((at, block)) = self.look_ahead_over_shift()?
        {
            self.counters.look_aheads += 1;
            self.at = at;
            return self.take(block);
        }

        // A predicted last block shorter than the others counts unless a full one begins inside it.
        let until = tail.map_or(self.end, |end| end.min(self.end));
        match self.roll(self.at, until, tail.is_some())? {
            Some((at, Hit::Block(block))) => {
                self.at = at;
                self.take(block)
            }
            Some((at, Hit::Zeros)) => {
                self.at = at;
                self.predicted = NO_BLOCK;
                self.take_zeros().map(drop)
            }
            None if tail.is_some() => self.take(self.predicted),
            None if self.at < self.end => {
                self.predicted = NO_BLOCK;
                self.step_aligned()
            }
            None => Ok(()),
        }
    }

    /// Finds the first block behind a gap of about one block. After an insertion or removal, the
    /// data continues close to where it was.
    fn look_ahead_over_shift(&mut self) -> Outcome<Option<(u64, BlockIndex)>, R, S> {
        if self.predicted == NO_BLOCK || self.literal != self.at {
            return Ok(None);
        }
        let (next, reach) = (self.at + self.block_len, self.block_len / SHIFT_SHARE);
        let until = (next + reach).min(self.end);
        let Some((at, Hit::Block(block))) = self.roll(next - reach, until, true)? else {
            return Ok(None);
        };
        // Blocks that begin in between overlap it. Those that end before it begins take precedence.
        let last = (at + 1).saturating_sub(self.block_len);
        match self.roll(self.at, last, true)? {
            Some((_, Hit::Zeros)) => Ok(None),
            Some((first, Hit::Block(earlier))) => Ok(Some((first, earlier))),
            None => Ok(Some((at, block))),
        }
    }

    /// Returns the end of the predicted block if it is the basis' short last one and lies at
    /// `self.at`.
    fn predicted_tail(&mut self) -> Option<u64> {
        let layout = self.index.layout();
        let len = layout.short_tail_len().map(u64::from)?;
        let is_last = self.predicted.0 == layout.full_block_count();
        let end = self.at.saturating_add(len);
        (is_last && end <= self.limit && self.compare(self.at, self.predicted)).then_some(end)
    }

    /// Moves to the next aligned block without rolling.
    fn step_aligned(&mut self) -> Outcome<(), R, S> {
        let next = (self.at / self.block_len + 1) * self.block_len;
        self.predicted = if self.at.is_multiple_of(self.block_len) && self.predicted != NO_BLOCK {
            BlockIndex(self.predicted.0.saturating_add(1))
        } else {
            BlockIndex(next / self.block_len)
        };
        self.at = next.min(self.end);
        if self.at - self.literal >= len_u64(MAX_LITERAL) {
            self.load(self.at)?;
            // The last block length of the file stays pending, because the basis' short last block
            // may be there.
            self.flush_literal(self.at.min(self.limit.saturating_sub(self.block_len)))?;
            self.hash_to(self.at - self.at % HASH_UNIT);
        }
        Ok(())
    }
}

/// Reach of the look-ahead over a shift, as a share of a block to either side. Shifts are short as
/// a rule; where there is none, an eighth of a block was rolled over in vain.
const SHIFT_SHARE: u64 = 16;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::testing::{
        indexed, literal_bytes, literal_bytes_and_slack, naive_literal_bytes, noise, round_trip,
    };

    #[test]
    fn insertion_costs_a_block_and_is_followed() {
        let basis = noise(3, 900_000);
        let mut new = basis.clone();
        new.splice(300_001..300_001, *b"inserted");
        let outcomes = round_trip(&indexed(&basis, 4 << 10), &basis, &new);
        assert_eq!(outcomes[0].literal_bytes, (4 << 10) + 8);
        // A sixteenth of a block before the expected place of the next one, and the shift on either
        // side.
        let rolled = outcomes[0].counters.rolled_bytes;
        assert!(rolled <= 256 + 2 * 8 + 1, "{rolled}");
    }

    #[test]
    fn removal_costs_a_block_and_is_followed() {
        let basis = noise(3, 900_000);
        let mut new = basis.clone();
        new.drain(300_001..300_101);
        let outcomes = round_trip(&indexed(&basis, 4 << 10), &basis, &new);
        assert_eq!(outcomes[0].literal_bytes, (4 << 10) - 100);
        let rolled = outcomes[0].counters.rolled_bytes;
        assert!(rolled <= 256, "{rolled}");
    }

    #[test]
    fn block_in_front_of_a_shift_is_not_passed_over() {
        // Block 5 moved to the place of block 10, and block 11 follows it, 20 bytes late.
        let basis = noise(3, 900_000);
        let block = |number: usize| number << 12..(number + 1) << 12;
        let mut new = basis.clone();
        new.splice(block(10), [&noise(4, 10), &basis[block(5)], &noise(5, 10)].concat());
        let outcomes = round_trip(&indexed(&basis, 4 << 10), &basis, &new);
        assert_eq!(outcomes[0].literal_bytes, 20);
    }

    #[test]
    fn overlapping_blocks_cost_a_block_for_each_look_ahead_at_the_most() {
        // Pieces of one stream, each a little further on than another: nearly every window is one
        // of several blocks.
        let stream = noise(6, 80 << 10);
        let piece = |number: usize| &stream[number * 29 % 32 * 48..][..64 << 10];
        let basis = Vec::from_iter((0..32).flat_map(piece).copied());
        let mut new = basis.clone();
        new.splice(900_000..900_100, *b"not as long as what it replaces");
        let (found, slack) = literal_bytes_and_slack(&basis, &new, 16 << 10);
        assert!(slack > 0, "a shift is crossed by look-ahead");
        let naive = naive_literal_bytes(&basis, &new, 16 << 10, true);
        assert!(found <= naive + slack, "{found} bytes, {naive} by an exhaustive search, {slack}");
    }

    #[test]
    fn zeros_need_no_block_of_the_basis() {
        let mut new = noise(5, 100_000);
        new.extend(vec![0; 300_000]);
        let literal = literal_bytes(&new[..50_000], &new, 1024);
        assert!(literal < 51_300, "{literal}");
    }

    #[test]
    fn zeros_in_a_gap_crossed_by_look_ahead_are_no_literals() {
        let mut new = noise(7, 10_753);
        new.extend(vec![0; 452_586]);
        assert_eq!(literal_bytes(&vec![0; 452_586], &new, 16 << 10), 10_753);
    }
}
