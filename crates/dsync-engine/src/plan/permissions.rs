//! Permissions that may be kept, and lists and attributes that differ.

use dsync_fs::{Acl, Extended, ExtendedScope};
use dsync_wire::{event::Changes, message::EntryKind};

use super::{Mapped, SETGID, Standing, Subject};

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

/// Returns which of the wanted lists and attributes the entry lacks, or may lack: attributes of a file
/// that its owner may not read are set anew, while its lists can be compared.
pub(super) fn extended_changes(wanted: &Extended, mode: u16, standing: &dyn Standing) -> Changes {
    let mut changes = Changes::NONE;
    let scope = wanted.scope();
    let lists_only = ExtendedScope { xattrs: false, ..scope };
    let read = |scope: ExtendedScope| standing.extended(scope).map(|have| have.ruled(&wanted.rules));
    let both = read(scope);
    let lists = if both.is_none() && scope.xattrs && scope.acls { read(lists_only) } else { None };

    if scope.acls && both.as_ref().or(lists.as_ref()).is_none_or(|have| !same_lists(wanted, have, mode)) {
        changes.insert(Changes::ACL);
    }
    if scope.xattrs && both.is_none_or(|have| have.xattrs != wanted.xattrs) {
        changes.insert(Changes::XATTRS);
    }
    changes
}

/// Returns whether access control lists are the same but for the permission bits, which are
/// compared themselves.
fn same_lists(a: &Extended, b: &Extended, mode: u16) -> bool {
    let (Some(a), Some(b)) = (&a.acls, &b.acls) else { return a.acls.is_none() && b.acls.is_none() };
    let access = |acl: &Option<Acl>| acl.as_ref().map(|acl| acl.with_mode(mode));
    access(&a.access) == access(&b.access) && a.default == b.default
}

#[cfg(test)]
mod tests {
    use dsync_fs::Acls;

    use super::*;

    /// An entry with lists as wanted, whose attributes may not be read.
    struct Unreadable;

    impl Standing for Unreadable {
        fn link_equals(&self, _: &[u8]) -> bool {
            false
        }

        fn content_equals(&self, _: &[u8; 32], _: dsync_fs::Stamp) -> bool {
            false
        }

        fn extended(&self, scope: ExtendedScope) -> Option<Extended> {
            (!scope.xattrs).then(|| Extended { acls: Some(Acls::default()), ..Extended::default() })
        }

        fn allowed_mode(&self) -> Option<u16> {
            None
        }

        fn inherited_mode(&self) -> u16 {
            0
        }
    }

    #[test]
    fn only_what_is_wanted_and_cannot_be_compared_counts_as_different() {
        let wanted = |acls: bool, xattrs: bool| Extended {
            acls: acls.then(Acls::default),
            xattrs: xattrs.then(Vec::new),
            ..Extended::default()
        };
        let changes = |wanted: Extended| extended_changes(&wanted, 0o644, &Unreadable);
        assert_eq!(changes(wanted(true, false)), Changes::NONE);
        assert_eq!(changes(wanted(false, true)), Changes::XATTRS);
        assert_eq!(changes(wanted(true, true)), Changes::XATTRS);
    }
}
