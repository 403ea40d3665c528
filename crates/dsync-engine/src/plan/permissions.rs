//! Permissions that may be kept, and lists that say the same.

use dsync_fs::{Acl, Extended};
use dsync_wire::message::EntryKind;

use super::{Mapped, SETGID, Subject};

/// Returns the source's permissions, as far as they may be kept.
///
/// A setuid file runs with the rights of its owner. The source's owner gave it his own; with
/// another owner, root least, it would hand out rights that nobody gave. A directory's bits are
/// about what is made in it: they stay.
pub(super) fn kept_mode(entry: Subject<'_>, mapped: &Mapped) -> u16 {
    let mode = entry.attributes.mode;
    match entry.kind {
        EntryKind::File { .. } => {
            trusted_with(mode, mapped.kept_owner.is_some(), mapped.kept_group.is_some())
        }
        _ => mode,
    }
}

/// Returns a file's permissions without the special bits that are unsafe when its owner or its
/// group is not kept.
pub(super) fn trusted_with(mode: u16, owner: bool, group: bool) -> u16 {
    match (owner, group) {
        (true, true) => mode,
        (true, false) => mode & !SETGID,
        (false, _) => mode & !SPECIAL,
    }
}

/// The setuid, setgid and sticky bits.
const SPECIAL: u16 = 0o7000;

/// Returns whether access control lists are the same but for the permission bits, which are
/// compared themselves.
pub(super) fn same_lists(a: &Extended, b: &Extended, mode: u16) -> bool {
    let (Some(a), Some(b)) = (&a.acls, &b.acls) else { return a.acls.is_none() && b.acls.is_none() };
    let access = |acl: &Option<Acl>| acl.as_ref().map(|acl| acl.with_mode(mode));
    access(&a.access) == access(&b.access) && a.default == b.default
}
