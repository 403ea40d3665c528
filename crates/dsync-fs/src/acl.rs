//! POSIX access control lists, checked. The kernel's binary form and the form in which rsync's
//! `--fake-super` keeps them are read and written here and nowhere else.
//!
//! The laws: `Acl::from_kernel` reads back whatever `Acl::to_kernel` makes, and a list that the
//! kernel would refuse is never made. Source: `include/uapi/linux/posix_acl_xattr.h` and
//! `posix_acl_valid` of Linux.

/// An access control list. Permissions are bits: 4 read, 2 write, 1 execute.
///
/// As the access list of an entry, `user`, `other` and `mask` (without one: `group`) repeat the
/// entry's permission bits; [`Acl::with_mode`] makes them agree.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Acl {
    /// The owner's permissions.
    pub user: u8,
    /// The owning group's permissions.
    pub group: u8,
    /// The upper limit for groups and named users; always present if anybody is named.
    pub mask: Option<u8>,
    /// Everybody else's permissions.
    pub other: u8,
    /// Named users, each once, in ascending order.
    pub users: Vec<(u32, u8)>,
    /// Named groups, each once, in ascending order.
    pub groups: Vec<(u32, u8)>,
}

impl Acl {
    /// Sorts the named users and groups, and adds a mask to a list that needs one.
    #[must_use]
    pub fn normalized(mut self) -> Self {
        for named in [&mut self.users, &mut self.groups] {
            named.sort_by_key(|&(id, _)| id);
            // Two names of the source can be one at the destination.
            named.dedup_by_key(|&mut (id, _)| id);
        }
        if self.mask.is_none() && !(self.users.is_empty() && self.groups.is_empty()) {
            let named = self.users.iter().chain(&self.groups);
            self.mask = Some(named.fold(self.group, |mask, (_, perm)| mask | perm));
        }
        self
    }

    /// Returns the list with the permission bits of `mode`.
    #[must_use]
    pub fn with_mode(&self, mode: u16) -> Self {
        let [user, group, other] = [mode >> 6, mode >> 3, mode].map(|bits| bits.to_le_bytes()[0] & 7);
        let mut acl = Self { user, other, ..self.clone() };
        match &mut acl.mask {
            Some(mask) => *mask = group,
            None => acl.group = group,
        }
        acl
    }

    /// Returns the permission bits of an entry with this list.
    pub fn mode(&self) -> u16 {
        [self.user, self.mask.unwrap_or(self.group), self.other]
            .into_iter()
            .fold(0, |mode, perm| mode << 3 | u16::from(perm & 7))
    }

    /// Returns whether permission bits alone express the list.
    pub fn is_mode_only(&self) -> bool {
        self.mask.is_none() && self.users.is_empty() && self.groups.is_empty()
    }

    /// Parses the kernel's form; returns `None` if it is invalid.
    pub(crate) fn from_kernel(bytes: &[u8]) -> Option<Self> {
        let (version, entries) = bytes.split_first_chunk::<4>()?;
        let (entries, rest) = entries.as_chunks::<ENTRY_LEN>();
        if u32::from_le_bytes(*version) != VERSION || !rest.is_empty() {
            return None;
        }

        let mut acl = Self::default();
        for &[t0, t1, p0, p1, i0, i1, i2, i3] in entries {
            let id = u32::from_le_bytes([i0, i1, i2, i3]);
            let perm = p0 & 7;
            if p1 != 0 || p0 != perm {
                return None;
            }
            match u16::from_le_bytes([t0, t1]) {
                USER_OBJ => acl.user = perm,
                USER => acl.users.push((id, perm)),
                GROUP_OBJ => acl.group = perm,
                GROUP => acl.groups.push((id, perm)),
                MASK => acl.mask = Some(perm),
                OTHER => acl.other = perm,
                _ => return None,
            }
        }

        Some(acl.normalized())
    }

    /// Encodes the list in the kernel's form.
    pub(crate) fn to_kernel(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(4 + ENTRY_LEN * (4 + self.users.len() + self.groups.len()));
        bytes.extend(VERSION.to_le_bytes());
        let mut entry = |tag: u16, perm: u8, id: u32| {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(u16::from(perm & 7).to_le_bytes());
            bytes.extend(id.to_le_bytes());
        };
        entry(USER_OBJ, self.user, NOBODY);
        self.users.iter().for_each(|&(id, perm)| entry(USER, perm, id));
        entry(GROUP_OBJ, self.group, NOBODY);
        self.groups.iter().for_each(|&(id, perm)| entry(GROUP, perm, id));
        if let Some(mask) = self.mask {
            entry(MASK, mask, NOBODY);
        }
        entry(OTHER, self.other, NOBODY);
        bytes
    }

    /// Parses the form of rsync's `--fake-super`; returns `None` if it is invalid. An access list
    /// takes the fields that it omits from the entry's `mode`.
    pub(crate) fn from_rsync(bytes: &[u8], mode: Option<u16>) -> Option<Self> {
        let (head, named) = bytes.split_first_chunk::<16>()?;
        let (head, named) = (head.as_chunks::<4>().0, named.as_chunks::<8>());
        let &[user, group, mask, other] = head else { return None };
        let said = |field| match u32::from_le_bytes(field) {
            UNSAID => Some(None),
            perm => u8::try_from(perm).ok().filter(|perm| *perm <= 7).map(Some),
        };
        let of_mode = |shift: u8| mode.map(|mode| (mode >> shift).to_le_bytes()[0] & 7);
        let mut acl = Self {
            user: said(user)?.or_else(|| of_mode(6))?,
            group: said(group)?.or_else(|| of_mode(3))?,
            mask: said(mask)?,
            other: said(other)?.or_else(|| of_mode(0))?,
            ..Self::default()
        };
        for &[i0, i1, i2, i3, p0, p1, p2, p3] in named.0 {
            let (id, access) = (u32::from_le_bytes([i0, i1, i2, i3]), u32::from_le_bytes([p0, p1, p2, p3]));
            let perm = u8::try_from(access & !NAMES_USER).ok().filter(|perm| *perm <= 7)?;
            let list = if access & NAMES_USER == 0 { &mut acl.groups } else { &mut acl.users };
            list.push((id, perm));
        }
        named.1.is_empty().then(|| acl.normalized())
    }

    /// Encodes the list in the form of rsync's `--fake-super`. An access list omits whatever the
    /// entry's `mode` says.
    pub(crate) fn to_rsync(&self, mode: Option<u16>) -> Vec<u8> {
        let of_mode = |perm: u8, shift: u8| mode.is_some_and(|mode| mode >> shift & 7 == u16::from(perm));
        let say = |perm: u8, unsaid: bool| if unsaid { UNSAID } else { u32::from(perm & 7) };
        let group_unsaid = self.mask.is_some() && of_mode(self.group, 3);
        let head = [
            say(self.user, of_mode(self.user, 6)),
            say(self.group, group_unsaid),
            self.mask.map_or(UNSAID, |mask| u32::from(mask & 7)),
            say(self.other, of_mode(self.other, 0)),
        ];
        let mut bytes: Vec<u8> = head.into_iter().flat_map(u32::to_le_bytes).collect();
        for (named, flag) in [(&self.users, NAMES_USER), (&self.groups, 0)] {
            for &(id, perm) in named {
                bytes.extend(id.to_le_bytes());
                bytes.extend((u32::from(perm & 7) | flag).to_le_bytes());
            }
        }
        bytes
    }
}

/// In rsync's form: a field that is omitted.
const UNSAID: u32 = 0x80;
/// In rsync's form: marks a user's number.
const NAMES_USER: u32 = 1 << 31;
const VERSION: u32 = 2;
/// Bytes of one entry: tag 2, permissions 2, number 4.
const ENTRY_LEN: usize = 8;
/// The number in entries that name nobody.
const NOBODY: u32 = u32::MAX;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn acls() -> impl Strategy<Value = Acl> {
        let named = || prop::collection::vec((0..9_u32, 0..8_u8), 0..5);
        (0..8_u8, 0..8_u8, prop::option::of(0..8_u8), 0..8_u8, named(), named()).prop_map(
            |(user, group, mask, other, users, groups)| {
                Acl { user, group, mask, other, users, groups }.normalized()
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        /// Law: the kernel's form decodes to the list that it was made from.
        #[test]
        fn kernel_form_comes_back(acl in acls()) {
            prop_assert_eq!(Acl::from_kernel(&acl.to_kernel()), Some(acl));
        }

        /// Law: nothing that a disk can hold makes the reader panic, and every accepted list is in
        /// order.
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(0..40_u8, 0..60)) {
            if let Some(acl) = Acl::from_kernel(&bytes) {
                prop_assert_eq!(acl.clone().normalized(), acl);
            }
        }

        /// Law: a list with a given mode stands for that mode.
        #[test]
        fn mode_is_taken_over(acl in acls(), mode in 0..0o1000_u16) {
            let acl = acl.with_mode(mode);
            let group = acl.mask.unwrap_or(acl.group);
            let stands_for = u16::from(acl.user) << 6 | u16::from(group) << 3 | u16::from(acl.other);
            prop_assert_eq!(stands_for, mode);
        }
    }
}
