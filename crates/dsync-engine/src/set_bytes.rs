//! Memory for attribute sets: the destination takes it from its account, the source reckons with it
//! to know when to wait.
//!
//! The law: both ends weigh a listing alike, and above what an allocator takes.

use std::{collections::HashSet, mem::size_of, sync::Arc};

use dsync_wire::message::{Acl, Extended, Listing, Xattr};

/// Returns the bytes of a listing's attribute sets, as they came and as this end has translated
/// them.
pub(crate) fn of_sets(listing: &Listing) -> u64 {
    let sets = || listing.entries.iter().filter_map(|entry| entry.attributes.extended.as_ref());
    if sets().next().is_none() {
        return 0;
    }
    let mut seen = HashSet::new();
    let different = sets().filter(|set| seen.insert(Arc::as_ptr(set)));
    2 * different.map(|set| of_set(set)).sum::<usize>() as u64
}

/// Returns the bytes of one set.
pub(crate) fn of_set(set: &Extended) -> usize {
    let acl = |acl: &Acl| (acl.users.len() + acl.groups.len()) * size_of::<(u32, u8)>() + 2 * ALLOCATION;
    let lists: usize = [&set.access, &set.default].into_iter().flatten().map(acl).sum();
    let xattr =
        |xattr: &Xattr| size_of::<Xattr>() + xattr.name.len() + xattr.value.len() + 1 + 2 * ALLOCATION;
    let xattrs: usize = set.xattrs.iter().map(xattr).sum();
    size_of::<Extended>() + 2 * ALLOCATION + lists + xattrs
}

/// Most memory for an allocation beside the requested bytes: a header, and the rounding up of small
/// ones.
pub(crate) const ALLOCATION: usize = 32;
