//! The owners of an entry at the destination, and the users and groups in its access control lists:
//! the source's names first, its numbers where a name is unknown; the run's rules come before
//! either.

use std::{collections::HashMap, ffi::CString, sync::Arc};

use dsync_fs::{Acl, Acls, Extended, FilterSet, Names, Privileges, Xattr, XattrRules};
use dsync_wire::{
    limits::MAX_ID_NAMES,
    message::{self, Attributes, IdName},
    options::{IdMatch, IdRule, IdTarget, SyncOptions},
};

use crate::{
    error::SyncError,
    misbehaved::{PeerMisbehaved, misbehaved},
    plan::Mapped,
};

/// The map from the source's numbers to the destination's.
pub(super) struct Owners {
    preserves_owner: bool,
    preserves_group: bool,
    names: Names,
    users: Ids,
    groups: Ids,
    /// Names that the source has told.
    learned: usize,
    acls: bool,
    xattrs: bool,
    /// The rules by which some of them are left alone here.
    xattr_rules: XattrRules,
    /// Nothing is only root's.
    fake_super: bool,
    /// Everything that is only root's is left out.
    no_super: bool,
    privileges: Privileges,
    /// The last set that was translated: neighbours often have the same.
    last: Option<(Arc<message::Extended>, Arc<Extended>)>,
    /// Those that were translated since the listing began, by their place in memory: a source may
    /// name them in turns.
    translated: HashMap<*const message::Extended, (Arc<message::Extended>, Arc<Extended>)>,
}

impl Owners {
    /// Reads the run's rules for owners and groups.
    ///
    /// # Errors
    /// [`SyncError`] when a rule cannot be carried out here.
    pub(super) fn new(options: &SyncOptions, xattr_rules: XattrRules) -> Result<Self, SyncError> {
        let (names, no_super) = (Names::new(), options.no_super);
        let privileges = Privileges::current();

        Ok(Self {
            preserves_owner: options.owner,
            preserves_group: options.group,
            users: Ids::new(&options.id_rules, false, &names)?,
            groups: Ids::new(&options.id_rules, true, &names)?,
            names,
            learned: 0,
            acls: options.acls,
            xattrs: options.xattrs,
            xattr_rules,
            fake_super: options.fake_super.destination,
            no_super,
            privileges: if no_super { privileges.without_root() } else { Privileges::clone(&privileges) },
            last: None,
            translated: HashMap::new(),
        })
    }

    /// Notes a name of the source.
    ///
    /// # Errors
    /// [`PeerMisbehaved::TooManyOwners`] when it is one more than [`MAX_ID_NAMES`].
    pub(super) fn learn(&mut self, name: &IdName) -> Result<(), SyncError> {
        if self.learned >= MAX_ID_NAMES {
            return Err(misbehaved(PeerMisbehaved::TooManyOwners { most: MAX_ID_NAMES }));
        }
        self.learned += 1;
        if name.group {
            self.groups.learn(name, |here| self.names.gid_of(here));
        } else {
            self.users.learn(name, |here| self.names.uid_of(here));
        }
        Ok(())
    }

    /// Returns the owner, group and lists that an entry should get; only those that are preserved
    /// and that this process may set.
    pub(super) fn of(&mut self, attributes: &Attributes) -> Mapped {
        let (uid, gid) = (self.users.of(attributes.uid), self.groups.of(attributes.gid));
        let privileges = &self.privileges;
        let sets_owner = self.preserves_owner && (self.fake_super || privileges.is_root());
        let sets_group = self.preserves_group && (self.fake_super || privileges.may_set_group(gid));
        Mapped {
            uid: sets_owner.then_some(uid),
            gid: sets_group.then_some(gid),
            // Without privileges everything that the user makes is his, and so his own entries keep
            // their owner. An owner that is only noted under `--fake-super` gains no right.
            kept_owner: (sets_owner || self.fake_super || self.preserves_owner && privileges.is_user(uid))
                .then_some(uid),
            kept_group: (sets_group || self.fake_super).then_some(gid),
            extended: attributes.extended.as_ref().map(|extended| self.extended(extended)),
        }
    }

    /// Forgets the sets of the listing before.
    pub(super) fn forget_sets(&mut self) {
        self.last = None;
        self.translated.clear();
    }

    fn extended(&mut self, wire: &Arc<message::Extended>) -> Arc<Extended> {
        if let Some((last, translated)) = &self.last
            && Arc::ptr_eq(last, wire)
        {
            return Arc::clone(translated);
        }
        if let Some(known) = self.translated.get(&Arc::as_ptr(wire)) {
            self.last = Some(known.clone());
            return Arc::clone(&known.1);
        }

        let acl = |acl: &Option<message::Acl>| acl.as_ref().map(|acl| self.acl(acl));
        let translated = Extended {
            acls: self.acls.then(|| Acls { access: acl(&wire.access), default: acl(&wire.default) }),
            xattrs: self
                .xattrs
                .then(|| wire.xattrs.iter().filter_map(|wire| xattr(wire, self.fake_super)).collect())
                .map(|xattrs: Vec<Xattr>| self.trusted_with(xattrs)),
            ..Extended::default()
        };
        let translated = translated.ruled(&self.xattr_rules);
        let translated = Arc::new(if self.no_super { translated.of_users() } else { translated });

        let both = (Arc::clone(wire), Arc::clone(&translated));
        self.translated.insert(Arc::as_ptr(wire), both.clone());
        self.last = Some(both);
        translated
    }

    /// Leaves a file's capabilities out where its owner is not kept, as its setuid bit.
    fn trusted_with(&self, mut xattrs: Vec<Xattr>) -> Vec<Xattr> {
        if !self.preserves_owner && !self.fake_super {
            xattrs.retain(|xattr| xattr.name.as_bytes() != CAPABILITY);
        }
        xattrs
    }

    fn acl(&self, acl: &message::Acl) -> Acl {
        Acl {
            user: acl.user,
            group: acl.group,
            mask: acl.mask,
            other: acl.other,
            users: acl.users.iter().map(|&(id, bits)| (self.users.of(id), bits)).collect(),
            groups: acl.groups.iter().map(|&(id, bits)| (self.groups.of(id), bits)).collect(),
        }
        .normalized()
    }
}

/// Users or groups: whom the source's are here.
struct Ids {
    rules: Vec<Rule>,
    /// Those that have a name at the source.
    named: HashMap<u32, u32>,
}

struct Rule {
    from: Whom,
    to: u32,
}

enum Whom {
    Numbers(u32, u32),
    Unnamed,
    Everybody,
    Named(FilterSet),
}

impl Rule {
    fn new(rule: &IdRule, names: &Names) -> Result<Self, SyncError> {
        let to = match &rule.to {
            // To the kernel the last number means that nothing is to change.
            IdTarget::Number(u32::MAX) => {
                return Err(SyncError::InvalidOption {
                    option: "id_rules",
                    why: "4294967295 is nobody's number".to_owned(),
                });
            }
            IdTarget::Number(id) => *id,
            IdTarget::Name(name) => {
                let here = if rule.group { names.gid_of(name) } else { names.uid_of(name) };
                here.ok_or_else(|| SyncError::UnknownOwner { group: rule.group, name: lossy(name) })?
            }
        };
        Ok(Self { from: Whom::new(&rule.from)?, to })
    }
}

impl Whom {
    fn new(from: &IdMatch) -> Result<Self, SyncError> {
        Ok(match from {
            IdMatch::Numbers(low, high) => Self::Numbers(*low, *high),
            IdMatch::Name(pattern) if pattern.is_empty() => Self::Unnamed,
            IdMatch::Name(pattern) if pattern == b"*" => Self::Everybody,
            IdMatch::Name(pattern) => {
                let compiled = FilterSet::compile(&[(true, pattern)]);
                Self::Named(compiled.map_err(|error| SyncError::BadPattern {
                    pattern: lossy(pattern),
                    column: error.column,
                    reason: error.reason.as_str(),
                })?)
            }
        })
    }

    fn has(&self, id: u32, name: &[u8]) -> bool {
        match self {
            Self::Numbers(low, high) => (*low..=*high).contains(&id),
            Self::Unnamed => name.is_empty(),
            Self::Everybody => true,
            Self::Named(pattern) => pattern.check(name, false).is_some(),
        }
    }
}

impl Ids {
    fn new(rules: &[IdRule], group: bool, names: &Names) -> Result<Self, SyncError> {
        let rules = rules.iter().filter(|rule| rule.group == group).map(|rule| Rule::new(rule, names));
        Ok(Self { rules: rules.collect::<Result<_, _>>()?, named: HashMap::new() })
    }

    /// Notes a name of the source. Root is root by number, whatever it is called (never an unknown
    /// name, rsync's CVE-2026-53798).
    fn learn(&mut self, name: &IdName, find: impl FnOnce(&[u8]) -> Option<u32>) {
        let by_name = || if name.id == 0 { None } else { find(&name.name) };
        let here = self.ruled(name.id, &name.name).or_else(by_name);
        self.named.insert(name.id, here.unwrap_or(name.id));
    }

    /// Returns the number here of the source's `id`.
    fn of(&self, id: u32) -> u32 {
        let named = self.named.get(&id).copied();
        named.or_else(|| self.ruled(id, b"")).unwrap_or(id)
    }

    fn ruled(&self, id: u32, name: &[u8]) -> Option<u32> {
        self.rules.iter().find(|rule| rule.from.has(id, name)).map(|rule| rule.to)
    }
}

/// The attribute that has a file's capabilities, which only root may set.
const CAPABILITY: &[u8] = b"security.capability";

/// Returns the attribute if this process may set it.
fn xattr(wire: &message::Xattr, fake_super: bool) -> Option<Xattr> {
    let name = CString::new(wire.name.as_slice()).ok()?;
    Xattr::is_settable(&name, fake_super).then(|| Xattr { name, value: wire.value.clone() })
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_source_are_bounded() {
        let mut owners = Owners::new(&SyncOptions::default(), XattrRules::default()).unwrap();
        let name = |id| IdName { group: false, id, name: b"root".to_vec() };
        owners.learned = MAX_ID_NAMES - 1;
        owners.learn(&name(7)).unwrap();
        let error = owners.learn(&name(8)).unwrap_err();
        assert!(matches!(error, SyncError::PeerMisbehaved(PeerMisbehaved::TooManyOwners { .. })), "{error}");
    }
}
