//! The number of removals that a run may still make: `max_delete` as rsync counts it.
//!
//! Each removed entry counts, a directory like its contents. When nothing is left, entries stay and
//! are counted as withheld. What gives way to an entry of the source does not count.

use std::cell::Cell;

use super::Site;

/// The removals that are left.
pub(super) struct Allowance {
    /// `None` without a limit.
    left: Cell<Option<u64>>,
    withheld: Cell<u64>,
}

impl Allowance {
    /// Returns an allowance of so many removals; `None` is no limit.
    pub(super) fn of(removals: Option<u64>) -> Self {
        Self { left: Cell::new(removals), withheld: Cell::new(0) }
    }

    /// Sets the limit, which was not known before.
    pub(super) fn set(&self, removals: u64) {
        self.left.set(Some(removals));
    }

    /// Returns whether one more entry may go; counts it as withheld if not.
    pub(super) fn permits(&self) -> bool {
        let permits = self.left.get() != Some(0);
        if !permits {
            self.withheld.set(self.withheld.get() + 1);
        }
        permits
    }

    /// Counts a removal.
    pub(super) fn spend(&self) {
        self.left.set(self.left.get().map(|left| left.saturating_sub(1)));
    }

    /// Adds the withheld removals to the report.
    pub(super) fn report(&self, site: &Site<'_>) {
        let withheld = self.withheld.take();
        if withheld > 0 {
            site.account.amend(|report| report.deletions_over_limit += withheld);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removals_end_when_nothing_is_left() {
        let two = Allowance::of(Some(2));
        for left in [true, true, false, false] {
            assert_eq!(two.permits(), left);
            two.spend();
        }
        assert_eq!(two.withheld.get(), 2);

        let unlimited = Allowance::of(None);
        unlimited.spend();
        assert!(unlimited.permits());
        unlimited.set(0);
        assert!(!unlimited.permits());
    }
}
