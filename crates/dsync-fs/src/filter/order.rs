//! The order of rules, in which those that may match a path are found by its last name.
//!
//! Many patterns speak of one name: those without wildcards, as long lists of `--exclude-from` have
//! them. Only a path whose last component is that name can match one. The law: the rules that are
//! left out match no such path, so the first one that matches is the same.
//!
//! Cost: a search among the names, then the rules of that name and those with wildcards. Memory: 16
//! bytes for each rule of a long list. Names are known by a digest. A list that was made for equal digests
//! costs as much as one without an index.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::pattern::last;

/// The numbers of rules, from 0 on.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// The digest of the name that a rule speaks of, and the rule's number; in that order.
    named: Vec<(u64, usize)>,
    /// The numbers of the others, which may match any name.
    others: Vec<usize>,
}

impl Order {
    /// Takes the names that rules speak of, each by its number.
    pub(super) fn new<'a>(names: impl ExactSizeIterator<Item = Option<&'a [u8]>>) -> Self {
        let is_long = names.len() >= LONG;
        let (mut named, mut others) = (Vec::new(), Vec::new());
        for (at, name) in names.enumerate() {
            match name.filter(|_| is_long) {
                Some(name) => named.push((digest(name), at)),
                None => others.push(at),
            }
        }
        named.sort_unstable();
        Self { named, others }
    }

    /// Returns the numbers of the rules that may match a path, in order. No other one does.
    pub(super) fn that_may_match(&self, path: &[u8]) -> impl Iterator<Item = usize> {
        let name = if self.named.is_empty() { 0 } else { digest(last(path)) };
        let from = self.named.partition_point(|&(digest, _)| digest < name);
        let named = self.named.get(from..).unwrap_or_default().iter();
        let mut named = named.take_while(move |(digest, _)| *digest == name).map(|&(_, at)| at).peekable();
        let mut others = self.others.iter().copied().peekable();
        std::iter::from_fn(move || match (named.peek(), others.peek()) {
            (Some(one), Some(other)) if one < other => named.next(),
            (_, Some(_)) => others.next(),
            (_, None) => named.next(),
        })
    }
}

fn digest(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// Number of rules from which on an index is faster than a look at each.
const LONG: usize = 32;
