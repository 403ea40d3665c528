//! The weights of the source's messages while this end holds them.
//!
//! The law: a weight lies above what an allocator takes for the message, whatever its fields are.
//! It is taken from the session's account when a message arrives, before it waits for the planner.

use std::mem::size_of;

use dsync_wire::{
    message::{Entry, EntryKind},
    name::Name,
};

use super::heard::Listed;
use crate::set_bytes::{ALLOCATION, of_set};

/// Returns the bytes of a message that waits for the planner, without attribute sets.
pub(super) fn of_message(message: &Listed) -> u64 {
    let content = match message {
        Listed::Listing(listing, _) => listing.entries.iter().map(of_entry).sum(),
        Listed::IdName(name) => name.name.len() + ALLOCATION,
        Listed::Missing(name) => {
            name.iter().map(|name| size_of::<Name>() + name.as_bytes().len() + ALLOCATION).sum()
        }
        Listed::Tops(tops) => {
            tops.root.iter().filter_map(|root| root.extended.as_deref()).map(of_set).sum::<usize>()
        }
        Listed::Span(span) => {
            span.directory.len() + span.name.as_ref().map_or(0, |name| name.as_bytes().len()) + 2 * ALLOCATION
        }
        Listed::Same(_) | Listed::End(_) => 0,
    };
    (size_of::<Listed>() + ALLOCATION + content) as u64
}

pub(super) fn of_entry(entry: &Entry) -> usize {
    let text = if let EntryKind::Symlink { target } = &entry.kind { target.len() + ALLOCATION } else { 0 };
    size_of::<Entry>() + entry.name.as_bytes().len() + ALLOCATION + text
}
