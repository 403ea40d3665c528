//! The further names of files in one part of the listing, and what was decided on them early, for
//! [`other_names`](super::other_names).

use std::collections::{HashMap, HashSet};

use dsync_fs::Metadata;
use dsync_wire::message::{Entry, EntryId, HardLink};

use crate::plan::Decision;

/// The knowledge of later names in the part of the listing that is being planned.
#[derive(Default)]
pub(super) struct Foreseen {
    /// The number of a first name and the position of each further name, in this order.
    further: Vec<(EntryId, usize)>,
    /// Names that lead their groups.
    leading: HashSet<EntryId>,
    /// The decisions that were made early, and the entries that they are about: a content is not
    /// compared twice.
    decisions: HashMap<EntryId, (Option<Metadata>, Decision)>,
}

impl Foreseen {
    /// Begins with the next part.
    pub(super) fn begin(&mut self, entries: &[Entry]) {
        let further = entries.iter().enumerate().filter_map(|(position, entry)| match entry.hard_link? {
            HardLink::To(first) => Some((first, position)),
            HardLink::First => None,
        });
        *self = Self { further: further.collect(), ..Self::default() };
        self.further.sort_unstable();
    }

    /// Returns whether a name leads its group although others were listed before it.
    pub(super) fn leads(&self, entry: EntryId) -> bool {
        self.leading.contains(&entry)
    }

    /// Makes a name lead its group.
    pub(super) fn lead(&mut self, entry: EntryId) {
        self.leading.insert(entry);
    }

    /// Returns the decision that was made on an entry in view of this one of the destination.
    pub(super) fn decision(&self, entry: EntryId, existing: Option<&Metadata>) -> Option<Decision> {
        let (seen, decision) = self.decisions.get(&entry)?;
        (seen.as_ref() == existing).then(|| decision.clone())
    }

    /// Notes the decision on an entry that is foreseen.
    pub(super) fn note(&mut self, entry: EntryId, existing: Option<&Metadata>, decision: &Decision) {
        self.decisions.insert(entry, (existing.copied(), decision.clone()));
    }

    /// Returns the positions of the group's names after a position.
    pub(super) fn later(&self, first: EntryId, position: usize) -> Vec<usize> {
        let begin = self.further.partition_point(|&name| name <= (first, position));
        let names = self.further.iter().skip(begin).take_while(|(of, _)| *of == first);
        names.map(|&(_, position)| position).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dsync_wire::{
        message::{Attributes, EntryKind},
        name::Name,
    };

    use super::*;

    fn entry(hard_link: Option<HardLink>) -> Entry {
        Entry {
            name: Name::new(b"a").unwrap(),
            kind: EntryKind::Fifo,
            attributes: Attributes::default(),
            hard_link,
            implied: false,
        }
    }

    #[test]
    fn later_names_are_those_of_the_same_file_after_a_position() {
        let to = |first| Some(HardLink::To(EntryId(first)));
        let links = [Some(HardLink::First), to(7), None, to(3), to(7), to(7), to(8)];
        let entries = Vec::from_iter(links.into_iter().map(entry));
        let mut foreseen = Foreseen::default();
        foreseen.begin(&entries);
        assert_eq!(foreseen.later(EntryId(7), 0), [1, 4, 5]);
        assert_eq!(foreseen.later(EntryId(7), 1), [4, 5]);
        assert_eq!(foreseen.later(EntryId(3), 0), [3]);
        assert_eq!(foreseen.later(EntryId(3), 3), [0; 0]);
        assert_eq!(foreseen.later(EntryId(9), 0), [0; 0]);
        foreseen.lead(EntryId(5));
        foreseen.begin(&[]);
        assert!(!foreseen.leads(EntryId(5)) && foreseen.later(EntryId(7), 0).is_empty());
    }
}
