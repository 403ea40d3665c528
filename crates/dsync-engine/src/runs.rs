//! Sets of segment numbers, kept as runs: a file's segments come nearly in order, so that a set of
//! millions is a few runs.

use std::{collections::BTreeMap, ops::Range};

/// A set of numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Runs {
    /// Disjoint runs that do not touch, by their start; the value is the end.
    runs: BTreeMap<u64, u64>,
}

impl Runs {
    /// Adds a number. Returns `false` if the set has it already.
    pub(crate) fn insert(&mut self, number: u64) -> bool {
        if self.contains(number) {
            return false;
        }
        let mut end = number.saturating_add(1);
        if let Some(after) = self.runs.remove(&end) {
            end = after;
        }
        match self.runs.range_mut(..number).next_back() {
            Some((_, before)) if *before == number => *before = end,
            _ => _ = self.runs.insert(number, end),
        }
        true
    }

    /// Returns whether the number is in the set.
    pub(crate) fn contains(&self, number: u64) -> bool {
        self.runs.range(..=number).next_back().is_some_and(|(_, end)| number < *end)
    }

    /// Returns whether the set is all numbers below `count`.
    pub(crate) fn is_all_below(&self, count: u64) -> bool {
        self.runs.get(&0).is_some_and(|end| *end >= count)
    }

    /// Returns the runs of numbers below `count` that are not in the set.
    pub(crate) fn missing_below(&self, count: u64) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        let mut at = 0;
        for (&start, &end) in &self.runs {
            if start > at {
                missing.push(at..start.min(count));
            }
            at = end;
            if at >= count {
                return missing;
            }
        }
        missing.push(at..count);
        missing
    }

    /// Forgets numbers until no more than `most` runs are missing below `count`, the last of which
    /// reaches it.
    pub(crate) fn limit_missing(&mut self, count: u64, most: usize) {
        let missing = self.missing_below(count);
        if let Some(last) = missing.get(most.saturating_sub(1))
            && missing.len() > most
        {
            let start = last.start;
            self.runs.retain(|run, _| *run < start);
        }
    }
}

impl FromIterator<u64> for Runs {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        let mut runs = Self::default();
        for number in numbers {
            runs.insert(number);
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn law_runs_are_a_set(numbers in prop::collection::vec(0_u64..40, 0..60)) {
            let mut runs = Runs::default();
            let mut set = BTreeSet::new();
            for number in numbers {
                prop_assert_eq!(runs.insert(number), set.insert(number));
            }
            for number in 0..41 {
                prop_assert_eq!(runs.contains(number), set.contains(&number));
            }
            let missing: Vec<u64> = runs.missing_below(40).into_iter().flatten().collect();
            let expected: Vec<u64> = (0..40).filter(|number| !set.contains(number)).collect();
            prop_assert_eq!(runs.is_all_below(40), missing.is_empty());
            prop_assert_eq!(missing, expected);
        }

        #[test]
        fn law_limited_sets_miss_few_runs_and_gain_nothing(
            numbers in prop::collection::vec(0_u64..40, 0..60),
            most in 1_usize..5,
        ) {
            let all: Runs = numbers.into_iter().collect();
            let mut limited = all.clone();
            limited.limit_missing(40, most);
            prop_assert!(limited.missing_below(40).len() <= most);
            prop_assert!((0..40).all(|number| all.contains(number) || !limited.contains(number)));
        }
    }
}
