//! The number of removals that a run may still make: `max_delete` as rsync counts it.
//!
//! Each removed entry counts, a directory like its contents. When nothing is left, entries stay and
//! are counted as withheld. An entry that gives way to one of the source does not count, but all
//! that is in it does; a directory with more than may still go keeps all of it.

use std::cell::Cell;

use super::Site;

/// The removals that are left.
pub(super) struct Allowance {
    /// `None` without a limit.
    left: Cell<Option<u64>>,
    /// Those of directories that gave way while there was no limit.
    gone: Cell<u64>,
    withheld: Cell<u64>,
}

impl Allowance {
    /// Returns an allowance of so many removals; `None` is no limit.
    pub(super) fn of(removals: Option<u64>) -> Self {
        Self { left: Cell::new(removals), gone: Cell::new(0), withheld: Cell::new(0) }
    }

    /// Sets the limit, which was not known before.
    pub(super) fn set(&self, removals: u64) {
        self.left.set(Some(removals.saturating_sub(self.gone.get())));
    }

    /// Returns whether so many more may go, and none had to stay before.
    pub(super) fn permits_all(&self, removals: u64) -> bool {
        self.withheld.get() == 0 && self.left.get().is_none_or(|left| removals <= left)
    }

    /// Takes so many removals at once for a directory that gives way; if fewer are left, takes none
    /// and counts them as withheld.
    pub(super) fn take(&self, removals: u64) -> bool {
        let left = self.left.get().map(|left| left.checked_sub(removals));
        match left {
            Some(None) => self.withheld.set(self.withheld.get() + removals),
            Some(left) => self.left.set(left),
            None => self.gone.set(self.gone.get() + removals),
        }
        left != Some(None)
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

    #[test]
    fn what_is_in_a_directory_goes_whole_or_not_at_all() {
        let five = Allowance::of(Some(5));
        assert_eq!(
            [five.take(3), five.take(3), five.take(0), five.take(2), five.take(1)],
            [true, false, true, true, false]
        );
        assert_eq!((five.left.get(), five.withheld.get()), (Some(0), 4));
        assert!(!five.permits_all(0));

        // A share is known at the end.
        let share = Allowance::of(None);
        assert!(share.take(3));
        share.set(5);
        assert!(share.permits_all(2) && !share.permits_all(3));
        share.set(1);
        assert!(share.permits_all(0) && !share.permits_all(1));
    }
}
