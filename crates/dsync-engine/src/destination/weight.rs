//! What the source's messages weigh while this end holds them.
//!
//! The law: a weight lies above what an allocator takes for the message, whatever its fields are. It is taken from the
//! session's account when a message arrives, before it waits for the planner.

use std::{collections::HashSet, mem::size_of, sync::Arc};

use dsync_wire::message::{Acl, Entry, EntryKind, Extended, Listing, Xattr};

use super::planner::{Announced, Listed};

/// Returns the bytes of a message that waits for the planner, without attribute sets.
pub(super) fn of_message(message: &Listed) -> u64 {
    let content = match message {
        Listed::Listing(listing, _) => listing.entries.iter().map(of_entry).sum(),
        Listed::IdName(name) => name.name.len() + ALLOCATION,
        Listed::Missing(name) => name.as_bytes().len() + ALLOCATION,
        Listed::Tops(tops) => {
            tops.root.iter().filter_map(|root| root.extended.as_deref()).map(of_set).sum::<usize>()
        }
        Listed::End => 0,
    };
    (size_of::<Listed>() + ALLOCATION + content) as u64
}

fn of_entry(entry: &Entry) -> usize {
    let text = if let EntryKind::Symlink { target } = &entry.kind { target.len() + ALLOCATION } else { 0 };
    size_of::<Entry>() + entry.name.as_bytes().len() + ALLOCATION + text
}

/// Returns the bytes of a listing's attribute sets, as they came and as this end has translated them.
pub(super) fn of_sets(listing: &Listing) -> u64 {
    let sets = || listing.entries.iter().filter_map(|entry| entry.attributes.extended.as_ref());
    if sets().next().is_none() {
        return 0;
    }
    let mut seen = HashSet::new();
    let different = sets().filter(|set| seen.insert(Arc::as_ptr(set)));
    2 * different.map(|set| of_set(set)).sum::<usize>() as u64
}

fn of_set(set: &Extended) -> usize {
    let acl = |acl: &Acl| (acl.users.len() + acl.groups.len()) * size_of::<(u32, u8)>() + 2 * ALLOCATION;
    let lists: usize = [&set.access, &set.default].into_iter().flatten().map(acl).sum();
    let xattr =
        |xattr: &Xattr| size_of::<Xattr>() + xattr.name.len() + xattr.value.len() + 1 + 2 * ALLOCATION;
    let xattrs: usize = set.xattrs.iter().map(xattr).sum();
    size_of::<Extended>() + 2 * ALLOCATION + lists + xattrs
}

/// Returns the bytes of a directory that waits for its listing, here and where it is listed ahead.
pub(super) fn of_announced(announced: &Announced) -> u64 {
    let path = if announced.path.is_root() {
        0
    } else {
        dsync_fs::SharedPath::OVERHEAD + announced.path.name_len() + ALLOCATION
    };
    (size_of::<Announced>() + 2 * ALLOCATION + path) as u64
}

/// What an allocation takes beside what it was asked for, at most: a header, and the rounding up of small ones.
const ALLOCATION: usize = 32;
