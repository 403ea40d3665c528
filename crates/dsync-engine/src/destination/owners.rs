//! Whose an entry is at the destination: the source's names first, its numbers where a name is unknown.

use std::collections::HashMap;

use dsync_fs::{Names, Privileges};
use dsync_wire::{
    message::{Attributes, IdName},
    options::SyncOptions,
};

use crate::plan::Ownership;

/// The map from the source's numbers to the destination's.
pub(super) struct Owners {
    owner: bool,
    group: bool,
    names: Names,
    users: HashMap<u32, u32>,
    groups: HashMap<u32, u32>,
}

impl Owners {
    pub(super) fn new(options: &SyncOptions) -> Self {
        Self {
            owner: options.owner,
            group: options.group,
            names: Names::new(),
            users: HashMap::new(),
            groups: HashMap::new(),
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

    /// Owner and group that an entry should get; only what is preserved and what this process may set.
    pub(super) fn of(&self, attributes: &Attributes) -> Ownership {
        let uid = self.users.get(&attributes.uid).copied().unwrap_or(attributes.uid);
        let gid = self.groups.get(&attributes.gid).copied().unwrap_or(attributes.gid);
        let privileges = Privileges::current();
        Ownership {
            uid: (self.owner && privileges.is_root()).then_some(uid),
            gid: (self.group && privileges.may_set_group(gid)).then_some(gid),
        }
    }
}
