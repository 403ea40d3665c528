//! Whose an entry is at the destination, and who else its access control lists name: the source's names
//! first, its numbers where a name is unknown.

use std::{collections::HashMap, ffi::CString, sync::Arc};

use dsync_fs::{Acl, Acls, Extended, Names, Privileges, Xattr};
use dsync_wire::{
    message::{self, Attributes, IdName},
    options::SyncOptions,
};

use crate::plan::Mapped;

/// The map from the source's numbers to the destination's.
pub(super) struct Owners {
    preserves_owner: bool,
    preserves_group: bool,
    names: Names,
    users: HashMap<u32, u32>,
    groups: HashMap<u32, u32>,
    acls: bool,
    xattrs: bool,
    /// The last set that was translated: neighbours often have the same.
    last: Option<(Arc<message::Extended>, Arc<Extended>)>,
}

impl Owners {
    pub(super) fn new(options: &SyncOptions) -> Self {
        Self {
            preserves_owner: options.owner,
            preserves_group: options.group,
            names: Names::new(),
            users: HashMap::new(),
            groups: HashMap::new(),
            acls: options.acls,
            xattrs: options.xattrs,
            last: None,
        }
    }

    /// Notes a name of the source. Root is root by number, whatever it is called (never an unknown name,
    /// rsync's CVE-2026-53798).
    pub(super) fn learn(&mut self, name: &IdName) {
        if name.id == 0 {
            return;
        }
        let (map, here) = if name.group {
            (&mut self.groups, self.names.gid_of(&name.name))
        } else {
            (&mut self.users, self.names.uid_of(&name.name))
        };
        if let Some(here) = here {
            map.insert(name.id, here);
        }
    }

    /// What an entry should get; only what is preserved and what this process may set.
    pub(super) fn of(&mut self, attributes: &Attributes) -> Mapped {
        let (uid, gid) = (self.user(attributes.uid), self.group(attributes.gid));
        let privileges = Privileges::current();
        Mapped {
            uid: (self.preserves_owner && privileges.is_root()).then_some(uid),
            gid: (self.preserves_group && privileges.may_set_group(gid)).then_some(gid),
            extended: attributes.extended.as_ref().map(|extended| self.extended(extended)),
        }
    }

    fn user(&self, id: u32) -> u32 {
        self.users.get(&id).copied().unwrap_or(id)
    }

    fn group(&self, id: u32) -> u32 {
        self.groups.get(&id).copied().unwrap_or(id)
    }

    fn extended(&mut self, wire: &Arc<message::Extended>) -> Arc<Extended> {
        if let Some((last, translated)) = &self.last
            && Arc::ptr_eq(last, wire)
        {
            return Arc::clone(translated);
        }
        let acl = |acl: &Option<message::Acl>| acl.as_ref().map(|acl| self.acl(acl));
        let translated = Arc::new(Extended {
            acls: self.acls.then(|| Acls { access: acl(&wire.access), default: acl(&wire.default) }),
            xattrs: self.xattrs.then(|| wire.xattrs.iter().filter_map(xattr).collect()),
        });
        self.last = Some((Arc::clone(wire), Arc::clone(&translated)));
        translated
    }

    fn acl(&self, acl: &message::Acl) -> Acl {
        Acl {
            user: acl.user,
            group: acl.group,
            mask: acl.mask,
            other: acl.other,
            users: acl.users.iter().map(|&(id, bits)| (self.user(id), bits)).collect(),
            groups: acl.groups.iter().map(|&(id, bits)| (self.group(id), bits)).collect(),
        }
        .normalized()
    }
}

/// An attribute that this process may set.
fn xattr(wire: &message::Xattr) -> Option<Xattr> {
    let name = CString::new(wire.name.as_slice()).ok()?;
    Xattr::is_settable(&name).then(|| Xattr { name, value: wire.value.clone() })
}
