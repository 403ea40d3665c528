//! A host that pauses now and then: a busy processor or a hypervisor runs something else.

/// The times at which one end of a flow does not run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stalls {
    /// Average time between two pauses; 0 for none.
    gap: u64,
    shortest: u64,
    longest: u64,
    begin: u64,
    end: u64,
    random: u64,
}

impl Stalls {
    /// A host that never pauses.
    pub(crate) const NONE: Self =
        Self { gap: 0, shortest: 0, longest: 0, begin: u64::MAX, end: u64::MAX, random: 1 };

    /// Makes pauses of `shortest` to `longest` every `gap` on average, all in nanoseconds.
    pub(crate) fn new(gap: u64, shortest: u64, longest: u64, seed: u64) -> Self {
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self { gap, shortest, longest, begin: 0, end: 0, random }
    }

    /// Returns the time when the host runs again, if it does not run at `now`. `now` never
    /// decreases.
    pub(crate) fn until(&mut self, now: u64) -> Option<u64> {
        while now >= self.end {
            self.begin = self.end + self.draw(2 * self.gap);
            self.end = self.begin + self.shortest + self.draw(self.longest - self.shortest + 1);
        }
        (now >= self.begin).then_some(self.end)
    }

    /// Returns a random number (xorshift64*) below `bound`.
    fn draw(&mut self, bound: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % bound.max(1)
    }
}
