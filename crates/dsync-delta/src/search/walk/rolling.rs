//! Rolling: computes the weak sum of each offset's window and verifies the hits.

use super::{HASH_LAG, HASH_UNIT, Outcome, Search};
use crate::{
    block::BlockIndex,
    emit::is_zero,
    index::WeakIndex,
    num::len_u64,
    read::ReadAt,
    search::{TokenSink, bounds::MAX_CANDIDATES, fill},
    token::MAX_LITERAL,
    weak::Roll,
};

/// A match that rolling found.
pub(super) enum Hit {
    Block(BlockIndex),
    Zeros,
}

impl<R: ReadAt + ?Sized, S: TokenSink + ?Sized> Search<'_, '_, R, S> {
    /// Returns whether the search can roll at `at` and its bounds of work allow it.
    pub(super) fn may_roll(&self, at: u64) -> bool {
        self.weak.is_some() && self.bounds.allow_rolling(at)
    }

    /// Counts the offsets from `from` to before `to` that are skipped for lack of weak sums.
    pub(super) fn note_unrolled(&mut self, from: u64, to: u64) {
        if !self.index.has_weak() {
            self.counters.unrolled_bytes += to.min(self.last_window() + 1).saturating_sub(from);
        }
    }

    /// Returns the start of the last window of full length.
    fn last_window(&self) -> u64 {
        self.limit.saturating_sub(self.block_len)
    }

    /// Rolls from `from` to before `to` and returns the first match. Without a match, moves to
    /// `to`, or to an earlier offset if the bounds of work are reached; the bytes passed are
    /// pending or emitted literals. With `hold`, moves and emits nothing.
    pub(super) fn roll(&mut self, from: u64, to: u64, hold: bool) -> Outcome<Option<(u64, Hit)>, R, S> {
        let Some(weak) = self.weak else {
            return Ok(None);
        };
        let last = to.min((self.limit + 1).saturating_sub(self.block_len));
        let mut at = from;
        let mut roll = None;
        while at < last && self.may_roll(at) {
            let slab = last.min(at + ROLL_SLAB);
            self.load_held(from, slab + self.block_len, hold)?;
            let roll = roll.get_or_insert_with(|| Roll::new(self.window.bytes(at, at + self.block_len)));
            let begun = at;
            let hit = self.roll_slab(weak, roll, &mut at, slab);
            self.counters.rolled_bytes += at - begun;
            if hit.is_some() {
                self.bounds.note_hit();
                return Ok(hit.map(|hit| (at, hit)));
            }
            self.bounds.note_fruitless(at - begun);
            if !hold {
                self.pass(at)?;
            }
        }

        if !hold {
            let stopped = if at < last { at } else { to };
            self.load(stopped)?;
            self.at = stopped;
        }

        Ok(None)
    }

    /// Loads the window so that it also holds everything from `from` on.
    fn load_held(&mut self, from: u64, high: u64, hold: bool) -> Outcome<(), R, S> {
        if hold {
            let low = from.min(self.hashed()).min(self.literal);
            return fill(&mut self.window, self.file_len, low, high);
        }
        self.load(high)
    }

    /// Releases literal bytes up to `to` while rolling continues.
    fn pass(&mut self, to: u64) -> Outcome<(), R, S> {
        self.at = to;
        if to - self.literal >= len_u64(MAX_LITERAL) {
            self.flush_literal(to)?;
        }
        if self.hashed() + HASH_LAG <= to {
            self.hash_to(to - to % HASH_UNIT);
        }
        Ok(())
    }

    /// Rolls from `at` to `slab` over bytes that the window holds.
    fn roll_slab(&mut self, weak: &WeakIndex, roll: &mut Roll, at: &mut u64, slab: u64) -> Option<Hit> {
        while *at < slab {
            let out = self.window.bytes(*at, slab);
            let into = self.window.bytes(*at + self.block_len, slab + self.block_len);
            match weak.scan(roll, out, into) {
                Some(steps) => *at += len_u64(steps),
                None => {
                    // At the very end of the file no byte enters after the last window.
                    *at += len_u64(out.len().min(into.len()));
                    if *at >= slab || !weak.may_hold(*roll) {
                        *at = slab;
                        return None;
                    }
                }
            }
            if let Some(hit) = self.verify(weak, *roll, *at) {
                return Some(hit);
            }
            if !self.bounds.allow_comparing() {
                return None;
            }

            let (out, into) = (self.window.bytes(*at, *at + 1), *at + self.block_len);
            if let (&[out], &[into]) = (out, self.window.bytes(into, into + 1)) {
                roll.roll(out, into);
            }

            *at += 1;
        }

        None
    }

    /// Determines whether a window that passed the filter is zeros, a block or neither.
    fn verify(&mut self, weak: &WeakIndex, roll: Roll, at: u64) -> Option<Hit> {
        let sum = weak.weak_of(roll);
        if sum.0 == 0 && at >= self.start {
            self.counters.weak_hits += 1;
            if is_zero(self.window.bytes(at, at + self.block_len)) {
                return Some(Hit::Zeros);
            }
            self.note_false_match();
        }
        let index = self.index;
        for (tried, block) in index.candidates(sum, self.predicted, MAX_CANDIDATES).enumerate() {
            self.counters.weak_hits += u64::from(tried == 0);
            if !self.bounds.allow_comparing() {
                break;
            }
            if self.compare(at, block) {
                return Some(Hit::Block(block));
            }
            self.note_false_match();
        }
        None
    }

    fn note_false_match(&mut self) {
        self.counters.false_matches += 1;
        self.bounds.note_false_match();
    }
}

/// Offsets rolled over between checks of the bounds of work.
const ROLL_SLAB: u64 = 64 << 10;
