//! Rules in their order, of which those that may match a path are found by its last name.
//!
//! Many patterns speak of one name: those without wildcards, as long lists of `--exclude-from` have
//! them. Only a path whose last component is that name can match one. The law: the rules that are
//! left out match no such path, so the first one that matches is the same.
//!
//! Cost: a search among the names, then the rules of that name and those with wildcards. Memory: 16
//! bytes for each rule of a long list. Names are known by a digest. A list that was made for equal digests
//! costs as much as one without an index.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::{
    Rule, What,
    pattern::{Pattern, last},
};

/// Compiled rules, the first one first.
#[derive(Debug, Default)]
pub(super) struct Rules {
    all: Vec<Rule>,
    /// The digest of the name that a rule speaks of, and the rule's number; in that order.
    named: Vec<(u64, usize)>,
    /// The numbers of the others, which may match any name.
    others: Vec<usize>,
}

impl Rules {
    /// Returns how many rules there are.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the rules that may match a path, with their numbers, in order. No other one does.
    pub(super) fn that_may_match(&self, path: &[u8]) -> impl Iterator<Item = (usize, &Rule)> {
        let name = if self.named.is_empty() { 0 } else { digest(last(path)) };
        let from = self.named.partition_point(|&(digest, _)| digest < name);
        let named = self.named.get(from..).unwrap_or_default().iter();
        let mut named = named.take_while(move |(digest, _)| *digest == name).map(|&(_, at)| at).peekable();
        let mut others = self.others.iter().copied().peekable();
        let next = move || match (named.peek(), others.peek()) {
            (Some(one), Some(other)) if one < other => named.next(),
            (_, Some(_)) => others.next(),
            (_, None) => named.next(),
        };
        std::iter::from_fn(next).filter_map(|at| Some((at, self.all.get(at)?)))
    }
}

impl From<Vec<Rule>> for Rules {
    fn from(all: Vec<Rule>) -> Self {
        let is_long = all.len() >= LONG;
        let (mut named, mut others) = (Vec::new(), Vec::new());
        for (at, rule) in all.iter().enumerate() {
            match rule.only_name().filter(|_| is_long) {
                Some(name) => named.push((digest(name), at)),
                None => others.push(at),
            }
        }
        named.sort_unstable();
        Self { all, named, others }
    }
}

impl Rule {
    /// Returns the last name of every path that the rule matches, if it is one.
    fn only_name(&self) -> Option<&[u8]> {
        match &self.what {
            What::Pattern(pattern) if !self.negated && !self.absolute => Pattern::only_name(pattern),
            _ => None,
        }
    }
}

fn digest(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// Number of rules from which on an index is faster than a look at each.
const LONG: usize = 32;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::filter::{FilterSet, RuleSpec, Subject};

    proptest! {
        /// The naive twin: each rule is asked in turn.
        #[test]
        fn the_first_rule_that_matches_is_that_of_a_look_at_each(
            rules in prop::collection::vec((r"/?([ab]{1,2}|\*)(/([ab]{1,2}|\?))?/?", any::<[bool; 3]>()), 0..80),
            paths in prop::collection::vec("[ab]{1,2}(/[ab]{1,2}){0,3}", 1..12),
            is_dir: bool,
        ) {
            let spec = |(text, [include, negated, absolute]): &(String, [bool; 3])| {
                RuleSpec { negated: *negated, absolute: *absolute, ..RuleSpec::new(*include, text.as_bytes()) }
            };
            let set = FilterSet::of(&rules.iter().map(spec).collect::<Vec<_>>()).unwrap();
            for path in &paths {
                let subject = Subject { path: path.as_bytes(), is_dir, perishing: false };
                let matches = |rule: &Rule| {
                    matches!(&rule.what, What::Pattern(pattern) if rule.matches(pattern, subject))
                };
                let naive = set.rules.all.iter().position(matches);
                let found = set.rules.that_may_match(path.as_bytes()).find(|(_, rule)| matches(rule));
                prop_assert_eq!(found.map(|(at, _)| at), naive, "{}", path);
            }
        }
    }

    #[test]
    fn a_long_list_of_names_costs_those_of_one_name() {
        let texts: Vec<_> =
            (0..65_000).map(|number| format!("/dir/{number}")).chain(["*.o".into()]).collect();
        let specs: Vec<_> = texts.iter().map(|text| RuleSpec::new(false, text.as_bytes())).collect();
        let set = FilterSet::of(&specs).unwrap();
        for (path, looks, excluded) in [("dir/7", 2, true), ("other/7", 2, false), ("dir/7x", 1, false)] {
            assert_eq!(set.rules.that_may_match(path.as_bytes()).count(), looks, "{path}");
            assert_eq!(set.excludes(path.as_bytes(), false), excluded, "{path}");
        }
    }
}
