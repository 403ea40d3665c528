//! Access control lists and extended attributes of entries: reading them, and making them equal.
//!
//! The kernel keeps both in one name space: `system.posix_acl_access` and
//! `system.posix_acl_default` are the lists, `user.*` belongs to the user, `security.*` and
//! `trusted.*` to root. Other names that a filesystem shows there are not attributes and are left
//! alone: see `LEFT_ALONE`. Under `--fake-super` the lists are kept in `user.rsync.%*` and root's
//! attributes in `user.rsync.NAME`, so that an unprivileged user can keep them: see `Keeping`. One
//! call lists the names, so an entry without any costs one call.
//!
//! Entries are reached by one component below an open directory, never following a link, or as the
//! inode behind an `O_PATH` descriptor. The descriptor's own calls refuse that, so the way leads
//! through `/proc/self/fd`. On kernels older than 6.13 so does the way to entries, and an attribute
//! then costs two and a half times as much.

use std::{
    borrow::Cow,
    cell::RefCell,
    ffi::{CStr, CString},
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use rustix::{
    fs::{
        XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr, getxattr, lgetxattr, listxattr,
        llistxattr, removexattr, setxattr,
    },
    io::Errno,
};

use crate::{
    acl::Acl,
    attributes::{Handle, Privileges},
    sys,
    xattr_rules::XattrRules,
};

/// The kinds of attributes that are read and made equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExtendedScope {
    /// Access control lists.
    pub acls: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Of these, only the attributes that any user may set, even as root.
    pub users_only: bool,
}

impl ExtendedScope {
    /// Returns whether nothing is in scope.
    pub fn is_empty(self) -> bool {
        !(self.acls || self.xattrs)
    }

    fn takes(self, what: &Found) -> bool {
        match what {
            Found::Attribute(name) => self.xattrs && (!self.users_only || is_users(name.to_bytes())),
            Found::Access | Found::Default => self.acls,
        }
    }
}

/// Access control lists and extended attributes of one entry; `None` for kinds out of scope.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Extended {
    /// The entry's access control lists.
    pub acls: Option<Acls>,
    /// The entry's extended attributes in ascending order of their names.
    pub xattrs: Option<Vec<Xattr>>,
    /// Whether attributes that only root may set are out of scope.
    pub users_only: bool,
    /// The rules by which further attributes are out of scope.
    pub rules: XattrRules,
}

/// The access control lists of one entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Acls {
    /// The access list; `None` if the permission bits express all of it.
    pub access: Option<Acl>,
    /// The default list of a directory, which its new entries inherit.
    pub default: Option<Acl>,
}

/// One extended attribute.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Xattr {
    /// Name with its name space.
    pub name: CString,
    /// Value of the attribute.
    pub value: Vec<u8>,
}

/// The attributes that an entry lacks, because the filesystem cannot hold them or the process may not set
/// them, each with the system's error number (`errno`) of the first. Everything else was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Withheld {
    /// The owner or the group.
    pub owner: Option<i32>,
    /// Some list or extended attribute.
    pub extended: Option<i32>,
    /// The mode or a time.
    pub plain: Option<i32>,
}

impl Withheld {
    /// Returns what one of two lacks.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            owner: self.owner.or(other.owner),
            extended: self.extended.or(other.extended),
            plain: self.plain.or(other.plain),
        }
    }

    /// Returns an error if a mode or a time could not be set.
    pub(crate) fn unless_plain(self) -> io::Result<()> {
        self.plain.map_or(Ok(()), |number| Err(io::Error::from_raw_os_error(number)))
    }

    /// Withholds lists or extended attributes.
    pub(crate) fn extended(error: Errno) -> Self {
        Self { extended: Some(error.raw_os_error()), ..Self::default() }
    }
}

/// The name of the attribute that has a file's capabilities.
const CAPABILITY: &[u8] = b"security.capability";

impl Extended {
    /// Returns the kinds that are in scope.
    pub fn scope(&self) -> ExtendedScope {
        let Self { users_only, .. } = *self;
        ExtendedScope { acls: self.acls.is_some(), xattrs: self.xattrs.is_some(), users_only }
    }

    /// Returns the same without capabilities, which an owner was given.
    #[must_use]
    pub(crate) fn without_capabilities(mut self) -> Self {
        self.xattrs.iter_mut().for_each(|xattrs| xattrs.retain(|xattr| xattr.name.to_bytes() != CAPABILITY));
        self
    }

    /// Returns the same without the attributes that only root may set.
    #[must_use]
    pub fn of_users(mut self) -> Self {
        self.users_only = true;
        self.xattrs.iter_mut().for_each(|xattrs| xattrs.retain(|xattr| is_users(xattr.name.to_bytes())));
        self
    }

    /// Returns the same without the attributes that rules exclude, for which they are the scope from
    /// now on.
    #[must_use]
    pub fn ruled(mut self, rules: &XattrRules) -> Self {
        self.xattrs
            .iter_mut()
            .for_each(|xattrs| xattrs.retain(|xattr| !rules.excludes(xattr.name.to_bytes())));
        self.rules = rules.clone();
        self
    }

    /// Encodes the attributes for this process's own files, without the rules.
    pub fn to_bytes(&self) -> Vec<u8> {
        let scope = [self.acls.is_some(), self.xattrs.is_some(), self.users_only];
        let mut bytes = scope.map(u8::from).to_vec();
        let mut pair = |name: &CStr, value: &[u8]| {
            bytes.extend(name.to_bytes_with_nul());
            bytes.extend((value.len() as u64).to_ne_bytes());
            bytes.extend(value);
        };
        if let Some(acls) = &self.acls {
            for (name, acl) in [(ACCESS, &acls.access), (DEFAULT, &acls.default)] {
                acl.iter().for_each(|acl| pair(name, &acl.to_kernel()));
            }
        }
        self.xattrs.iter().flatten().for_each(|xattr| pair(&xattr.name, &xattr.value));
        bytes
    }

    /// Decodes the form of [`to_bytes`](Self::to_bytes); returns `None` for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&[acls, xattrs, users_only], mut rest) = bytes.split_first_chunk()?;
        let mut read = Self {
            acls: (acls == 1).then(Acls::default),
            xattrs: (xattrs == 1).then(Vec::new),
            users_only: users_only == 1,
            rules: XattrRules::default(),
        };

        while !rest.is_empty() {
            let name = CStr::from_bytes_until_nul(rest).ok()?;
            let (len, tail) = rest.get(name.count_bytes() + 1..)?.split_first_chunk()?;
            let (value, tail) = tail.split_at_checked(usize::try_from(u64::from_ne_bytes(*len)).ok()?)?;
            read.add(Found::of(name), value, Keeping::Own).ok()?;
            rest = tail;
        }
        Some(read)
    }
}

impl Xattr {
    /// Returns whether a source may send an attribute of this name. Lists and attributes that dsync
    /// itself keeps are excluded.
    pub fn is_ever_copied(name: &[u8]) -> bool {
        !is_left_alone(name)
    }

    /// Returns whether dsync copies an attribute of this name and the process may set it, or keep
    /// it with `fake_super`.
    pub fn is_settable(name: &CStr, fake_super: bool) -> bool {
        let name = name.to_bytes();
        if fake_super {
            is_roots(name) || name.starts_with(b"user.") && !is_left_alone(name)
        } else {
            is_copied(name)
        }
    }
}

/// The names under which lists and attributes are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// Their own names.
    Own,
    /// The names of `--fake-super`, in rsync's forms.
    FakeSuper {
        /// The entry's permission bits, which are not repeated in its access list.
        mode: u16,
        /// Whether root's attributes are also read under their own names.
        own: bool,
    },
}

/// The kind of an attribute, according to its name.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Access,
    Default,
    Attribute(CString),
}

impl Found {
    /// Classifies a name by the kernel's names.
    fn of(name: &CStr) -> Self {
        match () {
            () if name == ACCESS => Self::Access,
            () if name == DEFAULT => Self::Default,
            () => Self::Attribute(name.to_owned()),
        }
    }
}

impl Keeping {
    /// Returns the form that also reads root's attributes under their own names.
    pub(crate) fn with_own(self) -> Self {
        match self {
            Self::Own => Self::Own,
            Self::FakeSuper { mode, .. } => Self::FakeSuper { mode, own: true },
        }
    }

    /// Classifies a name; returns `None` for one that is not read.
    fn find(self, name: &CStr) -> Option<Found> {
        match (self, Found::of(name)) {
            (Self::Own, Found::Attribute(name)) if !is_copied(name.to_bytes()) => None,
            (Self::Own, found) => Some(found),
            (Self::FakeSuper { .. }, _) if name == KEPT_ACCESS => Some(Found::Access),
            (Self::FakeSuper { .. }, _) if name == KEPT_DEFAULT => Some(Found::Default),
            (Self::FakeSuper { own, .. }, _) => {
                let name = name.to_bytes();
                let attribute = match name.strip_prefix(KEPT) {
                    Some(kept) if needs_keeping(kept) => kept,
                    _ => name,
                };
                let is_settable = is_roots(attribute) || attribute.starts_with(b"user.");
                let is_attribute = is_settable && !is_left_alone(attribute) && (own || !is_roots(name));
                is_attribute.then(|| CString::new(attribute).ok().map(Found::Attribute))?
            }
        }
    }

    /// Returns the name under which an attribute is kept.
    fn name_of(self, name: &CStr) -> Cow<'_, CStr> {
        match self {
            Self::FakeSuper { .. } if needs_keeping(name.to_bytes()) => {
                let kept = [KEPT, name.to_bytes()].concat();
                CString::new(kept).map_or(Cow::Borrowed(name), Cow::Owned)
            }
            _ => Cow::Borrowed(name),
        }
    }

    /// Returns the name of a list and its encoded form.
    fn list(self, is_default: bool, acl: &Acl) -> (&'static CStr, Vec<u8>) {
        match (self, is_default) {
            (Self::Own, _) => (self.list_name(is_default), acl.to_kernel()),
            (Self::FakeSuper { .. }, true) => (KEPT_DEFAULT, acl.to_rsync(None)),
            (Self::FakeSuper { mode, .. }, false) => (KEPT_ACCESS, acl.to_rsync(Some(mode))),
        }
    }

    fn list_name(self, is_default: bool) -> &'static CStr {
        match (self, is_default) {
            (Self::Own, false) => ACCESS,
            (Self::Own, true) => DEFAULT,
            (Self::FakeSuper { .. }, false) => KEPT_ACCESS,
            (Self::FakeSuper { .. }, true) => KEPT_DEFAULT,
        }
    }

    /// Parses the form of a list.
    fn parse_list(self, is_default: bool, value: &[u8]) -> Option<Acl> {
        match self {
            Self::Own => Acl::from_kernel(value),
            Self::FakeSuper { mode, .. } => Acl::from_rsync(value, (!is_default).then_some(mode)),
        }
    }
}

/// The way to an entry's attributes.
pub(crate) enum Place<'a> {
    /// Through an open descriptor.
    Open(BorrowedFd<'a>),
    /// Through the `/proc` link of a descriptor, which leads to the inode itself.
    Behind(Vec<u8>),
    /// As an entry of an open directory, for reading only; does not follow a link.
    Entry(BorrowedFd<'a>, Cow<'a, CStr>),
}

impl<'a> Place<'a> {
    pub(crate) fn of(fd: BorrowedFd<'a>, handle: Handle) -> Self {
        match handle {
            Handle::Open => Self::Open(fd),
            Handle::PathOnly => Self::Behind(handle_path(fd)),
        }
    }

    fn list(&self, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        match self {
            Self::Open(fd) => flistxattr(fd, buffer),
            Self::Behind(path) => listxattr(path.as_slice(), buffer),
            Self::Entry(dir, name) => match sys::list_xattrs_at(*dir, name, buffer) {
                None => llistxattr(entry_path(*dir, name), buffer),
                Some(answer) => answer,
            },
        }
    }

    pub(crate) fn get(&self, name: &CStr, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        match self {
            Self::Open(fd) => fgetxattr(fd, name, buffer),
            Self::Behind(path) => getxattr(path.as_slice(), name, buffer),
            Self::Entry(dir, entry) => match sys::get_xattr_at(*dir, entry, name, buffer) {
                None => lgetxattr(entry_path(*dir, entry), name, buffer),
                Some(answer) => answer,
            },
        }
    }

    pub(crate) fn set(&self, name: &CStr, value: &[u8]) -> rustix::io::Result<()> {
        match self {
            Self::Open(fd) => fsetxattr(fd, name, value, XattrFlags::empty()),
            Self::Behind(path) => setxattr(path.as_slice(), name, value, XattrFlags::empty()),
            Self::Entry(..) => Err(Errno::OPNOTSUPP),
        }
    }

    pub(crate) fn remove(&self, name: &CStr) -> rustix::io::Result<()> {
        match self {
            Self::Open(fd) => fremovexattr(fd, name),
            Self::Behind(path) => removexattr(path.as_slice(), name),
            Self::Entry(..) => Err(Errno::OPNOTSUPP),
        }
    }
}

/// Reads an entry's lists and attributes, of which all names and values have at most so many bytes.
pub(crate) fn read(
    place: &Place<'_>,
    scope: ExtendedScope,
    keeping: Keeping,
    most: usize,
) -> io::Result<Extended> {
    BUFFERS.with_borrow_mut(|Buffers { names, value }| {
        let mut found = Extended {
            acls: scope.acls.then(Acls::default),
            xattrs: scope.xattrs.then(Vec::new),
            users_only: scope.users_only,
            rules: XattrRules::default(),
        };
        let listed = match ask(names, LIST_BYTES, |buffer| place.list(buffer)) {
            Ok(listed) => listed,
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(found),
            Err(error) => return Err(error.into()),
        };
        let mut total = 0;

        for name in listed.split_inclusive(|&byte| byte == 0) {
            let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
            let Some(what) = keeping.find(name).filter(|what| scope.takes(what)) else { continue };
            let value = match ask(value, VALUE_BYTES, |buffer| place.get(name, buffer)) {
                Ok(value) => value,
                // The attribute was removed after it was listed.
                Err(Errno::NODATA) => continue,
                Err(error) => return Err(error.into()),
            };
            total += name.count_bytes() + value.len();
            if total > most {
                return Err(Errno::TOOBIG.into());
            }
            // A kept attribute takes precedence over the entry's own, whichever is listed first.
            let is_own = matches!(keeping, Keeping::FakeSuper { own: true, .. }) && is_roots(name.to_bytes());
            if !(is_own && found.has(&what)) {
                found.put(what, value, keeping)?;
            }
        }
        if let Some(xattrs) = &mut found.xattrs {
            xattrs.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        }

        Ok(found)
    })
}

/// Asks for an answer of at most `longest` bytes. Offers little room first: for each question the
/// kernel clears all the memory offered, which takes longer than everything else.
fn ask(
    buffer: &mut Vec<u8>,
    longest: usize,
    question: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<&[u8]> {
    buffer.resize(longest.max(USUAL_BYTES), 0);
    let len = match question(&mut buffer[..USUAL_BYTES]) {
        Err(Errno::RANGE) => question(&mut buffer[..longest])?,
        answer => answer?,
    };
    Ok(buffer.get(..len).unwrap_or_default())
}

impl Extended {
    /// Returns whether the attribute was already found.
    fn has(&self, what: &Found) -> bool {
        let Found::Attribute(name) = what else { return false };
        self.xattrs.iter().flatten().any(|xattr| xattr.name == *name)
    }

    /// Adds an attribute or list; replaces an attribute of the same name.
    fn put(&mut self, what: Found, value: &[u8], keeping: Keeping) -> io::Result<()> {
        if let (Found::Attribute(name), Some(xattrs), Keeping::FakeSuper { own: true, .. }) =
            (&what, &mut self.xattrs, keeping)
        {
            xattrs.retain(|xattr| xattr.name != *name);
        }
        self.add(what, value, keeping)
    }

    /// Adds an attribute or list.
    fn add(&mut self, what: Found, value: &[u8], keeping: Keeping) -> io::Result<()> {
        let list = |is_default| keeping.parse_list(is_default, value).ok_or(io::ErrorKind::InvalidData);
        match (what, &mut self.acls, &mut self.xattrs) {
            (Found::Access, Some(acls), _) => {
                acls.access = Some(list(false)?).filter(|acl| !acl.is_mode_only());
            }
            (Found::Default, Some(acls), _) => acls.default = Some(list(true)?),
            (Found::Attribute(name), _, Some(xattrs)) => xattrs.push(Xattr { name, value: value.to_vec() }),
            _ => {}
        }
        Ok(())
    }
}

/// The changes that make an entry's lists and attributes equal to the wanted ones, in the order
/// that preserves all of them: attributes, then lists that restrict more than the permission bits
/// alone, then (by the caller) the bits, then the removal of lists.
pub(crate) struct Reconciling<'a> {
    place: &'a Place<'a>,
    wanted: &'a Extended,
    keeping: Keeping,
    have: Extended,
    withheld: Withheld,
}

impl<'a> Reconciling<'a> {
    /// Reads the present lists and attributes.
    pub(crate) fn begin(place: &'a Place<'a>, wanted: &'a Extended, keeping: Keeping) -> io::Result<Self> {
        let have = read(place, wanted.scope(), keeping, MAX_LOCAL_BYTES)?.ruled(&wanted.rules);
        Ok(Self { place, wanted, keeping, have, withheld: Withheld::default() })
    }

    /// Returns whether any attribute must be set or removed.
    pub(crate) fn changes_xattrs(&self) -> bool {
        self.wanted.xattrs != self.have.xattrs
    }

    /// Makes the attributes equal.
    pub(crate) fn xattrs(&mut self) -> io::Result<()> {
        let (Some(wanted), Some(have)) = (&self.wanted.xattrs, self.have.xattrs.take()) else {
            return Ok(());
        };
        for old in &have {
            if !wanted.iter().any(|new| new.name == old.name) {
                let removed = self.place.remove(&self.keeping.name_of(&old.name));
                self.note(removed)?;
            }
        }
        for new in wanted {
            if !have.contains(new) {
                let set = self.place.set(&self.keeping.name_of(&new.name), &new.value);
                self.note(set)?;
            }
        }
        Ok(())
    }

    /// Sets the wanted lists; `mode` has the bits that the access list stands for. Returns whether
    /// the entry's permission bits are now those of `mode`.
    pub(crate) fn set_acls(&mut self, mode: u16) -> io::Result<bool> {
        let (Some(wanted), Some(have)) = (&self.wanted.acls, &self.have.acls) else { return Ok(false) };
        let access = wanted.access.as_ref().map(|acl| acl.with_mode(mode));
        let mut sets_mode = false;
        let lists = [(false, access.as_ref(), &have.access), (true, wanted.default.as_ref(), &have.default)];
        let mut results = Vec::new();
        for (is_default, new, old) in lists {
            if let Some(new) = new
                && Some(new) != old.as_ref()
            {
                let (name, form) = self.keeping.list(is_default, new);
                let set = self.place.set(name, &form);
                sets_mode |= name == ACCESS && set.is_ok();
                results.push(set);
            }
        }
        results.into_iter().try_for_each(|result| self.note(result))?;
        Ok(sets_mode)
    }

    /// Removes the unwanted lists; returns whether anything was withheld.
    pub(crate) fn finish(mut self) -> io::Result<Withheld> {
        if let (Some(wanted), Some(have)) = (&self.wanted.acls, self.have.acls.take()) {
            let lists = [(false, &wanted.access, have.access), (true, &wanted.default, have.default)];
            for (is_default, new, old) in lists {
                if new.is_none() && old.is_some() {
                    let removed = self.place.remove(self.keeping.list_name(is_default));
                    self.note(removed)?;
                }
            }
        }
        Ok(self.withheld)
    }

    fn note(&mut self, result: rustix::io::Result<()>) -> io::Result<()> {
        match result {
            Ok(()) | Err(Errno::NODATA) => Ok(()),
            Err(error) if WITHHELD.contains(&error) => {
                self.withheld.extended.get_or_insert_with(|| error.raw_os_error());
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns whether dsync copies an attribute of this name; root's only as root.
fn is_copied(name: &[u8]) -> bool {
    !is_left_alone(name) && (is_users(name) || Privileges::current().is_root())
}

/// Returns whether a name is in the name space where whoever may write a file may set attributes.
fn is_users(name: &[u8]) -> bool {
    name.starts_with(b"user.")
}

/// Returns whether a name begins like those that are listed among attributes but are none.
fn is_left_alone(name: &[u8]) -> bool {
    LEFT_ALONE.iter().any(|start| name.starts_with(start))
}

/// Returns whether the name is in a name space where only root may set attributes.
fn is_roots(name: &[u8]) -> bool {
    (name.starts_with(b"security.") || name.starts_with(b"trusted.")) && !is_left_alone(name)
}

/// Returns whether `--fake-super` keeps this name under another one: root's names, and those that
/// could be mistaken for a kept one.
fn needs_keeping(name: &[u8]) -> bool {
    is_roots(name) || name.strip_prefix(KEPT).is_some_and(needs_keeping)
}

/// Makes the `/proc` path of an entry of an open directory.
fn entry_path(dir: BorrowedFd<'_>, name: &CStr) -> Vec<u8> {
    let mut path = handle_path(dir);
    path.push(b'/');
    path.extend_from_slice(name.to_bytes());
    path
}

/// Makes the `/proc` path of the inode behind a descriptor of this process.
fn handle_path(fd: BorrowedFd<'_>) -> Vec<u8> {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into_bytes()
}

/// Memory that each thread keeps for reading. It grows to the kernel's longest answers, so that no
/// question is asked more than twice.
#[derive(Default)]
struct Buffers {
    names: Vec<u8>,
    value: Vec<u8>,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::default();
}

const ACCESS: &CStr = c"system.posix_acl_access";
const DEFAULT: &CStr = c"system.posix_acl_default";
/// Names that filesystems and `--fake-super` show among attributes but that are not attributes, by
/// their beginnings:
///
/// * `system.`: lists. POSIX lists are copied as lists; others are not (NFSv4's `system.nfs4_acl`),
///   nor are the names of one filesystem alone (`system.cifs_acl`, `system.ntfs_attrib`, f2fs's
///   `system.advise`).
/// * `trusted.SGI_ACL_`: the same lists a second time, in XFS's own form. Setting or removing one
///   would silently set or remove a list.
/// * `user.rsync.%`: owners, types, permissions and lists that `--fake-super` keeps.
///
/// Everything else is copied, as by rsync, including names that mean something to one filesystem or
/// system only: `btrfs.*` (properties such as compression), `security.*` (capabilities, labels of
/// SELinux), `trusted.overlay.*`. If the target cannot hold one, that is reported.
const LEFT_ALONE: [&[u8]; 3] = [b"system.", b"trusted.SGI_ACL_", b"user.rsync.%"];
/// Prefix of the names under which `--fake-super` keeps attributes.
const KEPT: &[u8] = b"user.rsync.";
const KEPT_ACCESS: &CStr = c"user.rsync.%aacl";
const KEPT_DEFAULT: &CStr = c"user.rsync.%dacl";

/// Errors of a target that cannot hold an attribute or does not let this process set it. ext4
/// reports a full disk if an entry's attributes do not fit in its block.
pub(crate) const WITHHELD: &[Errno] = &[
    Errno::OPNOTSUPP,
    Errno::PERM,
    Errno::ACCESS,
    Errno::NOSPC,
    Errno::RANGE,
    Errno::TOOBIG,
    Errno::INVAL,
    Errno::DQUOT,
];

/// Room that suffices for most lists of names and most values, in bytes.
const USUAL_BYTES: usize = 512;
/// `XATTR_LIST_MAX` of Linux.
const LIST_BYTES: usize = 64 << 10;
/// `XATTR_SIZE_MAX` of Linux.
const VALUE_BYTES: usize = 64 << 10;
/// Limit for the names and values that a source sends of one entry, in bytes: several of the largest, which
/// fit one message. Of an entry that exceeds it none are copied, and that is reported.
pub const MAX_EXTENDED_BYTES: usize = 512 << 10;
/// Limit for those of an entry that are not sent, in bytes: a thousand of the largest. Whoever owns a file
/// must not decide how much memory a run takes.
pub(crate) const MAX_LOCAL_BYTES: usize = 64 << 20;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::Dir;
    use crate::attributes::Wanted;
    use crate::component::Component;

    #[test]
    fn own_form_comes_back() {
        let acl = Acl { user: 7, group: 5, mask: Some(5), other: 0, users: vec![(5, 7)], groups: vec![] };
        let acls = Acls { access: Some(acl.clone()), default: Some(acl) };
        let xattr = Xattr { name: c"user.a".to_owned(), value: vec![0, 1, 2] };
        let full = Extended { acls: Some(acls), xattrs: Some(vec![xattr]), ..Extended::default() };
        let none = Extended { acls: Some(Acls::default()), ..Extended::default() };
        for extended in [full.clone(), full.of_users(), none, Extended::default()] {
            let bytes = extended.to_bytes();
            assert_eq!(Extended::from_bytes(&bytes), Some(extended));
            for cut in 0..bytes.len() {
                // Damage must not panic.
                let _ = Extended::from_bytes(&bytes[..cut]);
            }
        }
    }

    /// Law: an entry's attributes are the same by its name in an open directory, where the kernel
    /// supports that, and by its path.
    #[test]
    fn both_ways_to_an_entry_agree() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Dir::open_operand(scratch.path()).unwrap();
        let name = |text: &[u8]| Component::new(text).unwrap();
        dir.make_dir(&name(b"entry"), 0o755).unwrap();
        let entry = dir.open_child(&name(b"entry")).unwrap();
        let set = entry.own_place().set(c"user.a", b"some value");
        let _ = dir.make_symlink(&name(b"link"), b"entry", &Wanted::default()).unwrap();
        assert!(matches!(set, Ok(()) | Err(Errno::OPNOTSUPP)));
        for entry in [&b"entry"[..], b"link", b"gone"].map(name) {
            let entry = dir.spelled(&entry).unwrap();
            let path = entry_path(dir.as_fd(), &entry);
            let (mut at, mut by_path) = ([0; 64], [0; 64]);
            if let Some(listed) = sys::list_xattrs_at(dir.as_fd(), &entry, &mut at) {
                assert_eq!((listed, at), (llistxattr(path.as_slice(), &mut by_path), by_path), "{entry:?}");
            }
            for room in [64, 4] {
                let (at, by_path) = (&mut at[..room], &mut by_path[..room]);
                if let Some(read) = sys::get_xattr_at(dir.as_fd(), &entry, c"user.a", at) {
                    assert_eq!(read, lgetxattr(path.as_slice(), c"user.a", &mut *by_path), "{entry:?}");
                    assert_eq!(at, by_path);
                }
            }
        }
    }

    #[test]
    fn names_of_filesystems_and_of_fake_super_are_left_alone() {
        assert!(is_copied(b"user.comment") && is_copied(b"user.rsync.plain"));
        for name in [
            &b"system.posix_acl_access"[..],
            b"system.nfs4_acl",
            b"system.cifs_acl",
            b"system.advise",
            b"trusted.SGI_ACL_FILE",
            b"trusted.SGI_ACL_DEFAULT",
            b"user.rsync.%stat",
        ] {
            assert!(!is_copied(name) && !is_roots(name));
        }
        for name in [
            &b"security.capability"[..],
            b"security.selinux",
            b"btrfs.compression",
            b"trusted.overlay.opaque",
        ] {
            assert_eq!(is_copied(name), Privileges::current().is_root());
        }
    }

    #[test]
    fn fake_super_keeps_what_is_roots_under_a_users_names() {
        let keeping = Keeping::FakeSuper { mode: 0o640, own: false };
        for (name, kept) in [
            (c"user.a", c"user.a"),
            (c"security.capability", c"user.rsync.security.capability"),
            (c"trusted.x", c"user.rsync.trusted.x"),
            // A user's own attribute, unless it looks like a kept one.
            (c"user.rsync.plain", c"user.rsync.plain"),
            (c"user.rsync.trusted.x", c"user.rsync.user.rsync.trusted.x"),
            (c"user.rsync.user.rsync.trusted.x", c"user.rsync.user.rsync.user.rsync.trusted.x"),
            (c"user.rsync.user.rsync.plain", c"user.rsync.user.rsync.plain"),
        ] {
            assert_eq!(&*keeping.name_of(name), kept);
            assert_eq!(keeping.find(kept), Some(Found::Attribute(name.to_owned())));
            assert!(Xattr::is_settable(name, true));
        }
        for hidden in
            [c"user.rsync.%stat", c"trusted.x", c"security.selinux", c"system.posix_acl_access", c"btrfs.x"]
        {
            assert_eq!(keeping.find(hidden), None, "{hidden:?}");
        }
        let own = Found::Attribute(c"trusted.x".to_owned());
        assert_eq!(keeping.with_own().find(c"trusted.x"), Some(own));
        for own in [c"user.rsync.%stat", c"trusted.SGI_ACL_FILE", c"system.x", c"plain"] {
            assert!(!Xattr::is_settable(own, true), "{own:?}");
        }
    }
}
