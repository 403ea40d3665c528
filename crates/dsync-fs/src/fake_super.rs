//! `--fake-super`: owner, permission bits and type of an entry in its extended attribute
//! `user.rsync.%stat`.
//!
//! This lets a user without privileges keep attributes that only root could set. The text is
//! rsync's, so that each program reads what the other wrote: `MODE MAJOR,MINOR UID:GID`, the mode
//! octal with the bits of the type. The attribute exists only if the inode differs from it. The
//! inode has the permissions less setuid, setgid and sticky bits, and enough for its owner to keep
//! using it. Links, devices, fifos and sockets are regular files; a link's file holds its text.
//!
//! Access control lists are in `user.rsync.%aacl` and `%dacl`, attributes of root's name spaces in
//! `user.rsync.NAME`: see [`crate::extended`].
//!
//! The law: stored values are untrusted, since anybody who may write to the file may have written
//! them. An unreadable one is [`Origin::Damaged`]. A directory stays a directory, and nothing else
//! becomes one.

use std::{ffi::CStr, io, os::fd::BorrowedFd};

use rustix::{fs::FileType, io::Errno};

use crate::{
    attributes::{Handle, Wanted, chmod, set_times},
    extended::{self, Keeping, Place, Reconciling, Withheld},
    metadata::{DeviceNumber, Kind, Metadata, Origin},
};

/// The error for an entry whose `user.rsync.%stat` cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("its user.rsync.%stat is damaged")]
struct Damaged;

/// Returns whether this crate refused an entry because its `user.rsync.%stat` cannot be read.
pub fn is_damaged(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Damaged>())
}

pub(crate) fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, Damaged)
}

/// The attributes that an entry stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stored {
    kind: Kind,
    mode: u16,
    device: DeviceNumber,
    uid: u32,
    gid: u32,
}

impl Stored {
    /// Parses rsync's text; returns `None` if it is invalid.
    fn parse(value: &[u8]) -> Option<Self> {
        let mut fields = std::str::from_utf8(value).ok()?.split(' ');
        let (mode, device, owner) = (fields.next()?, fields.next()?, fields.next()?);
        let (major, minor) = device.split_once(',')?;
        let (uid, gid) = owner.split_once(':')?;
        let mode = number(mode, 8).filter(|_| fields.next().is_none())?;
        Some(Self {
            kind: Kind::from_file_type(FileType::from_raw_mode(mode))?,
            mode: u16::try_from(mode).ok()? & 0o7777,
            device: DeviceNumber { major: number(major, 10)?, minor: number(minor, 10)? },
            uid: number(uid, 10).filter(|&uid| uid != NOBODY)?,
            gid: number(gid, 10).filter(|&gid| gid != NOBODY)?,
        })
    }

    fn to_text(self) -> String {
        let Self { kind, mode, device: DeviceNumber { major, minor }, uid, gid } = self;
        let mode = kind.file_type().as_raw_mode() | u32::from(mode);
        format!("{mode:o} {major},{minor} {uid}:{gid}")
    }

    /// Returns the permission bits for the inode.
    fn inode_mode(&self) -> u16 {
        let least = if self.kind == Kind::Dir { 0o700 } else { 0o600 };
        self.mode & 0o777 | least
    }

    /// Returns whether the inode expresses the same attributes.
    fn is_of(&self, inode: &Metadata) -> bool {
        let said = (self.kind, self.mode, self.uid, self.gid);
        said == (inode.kind, self.inode_mode(), inode.uid, inode.gid)
    }
}

/// Parses a number of digits only: no sign, no blank.
fn number(text: &str, radix: u32) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    u32::from_str_radix(text, radix).ok().filter(|_| digits)
}

/// Returns whether inodes of this type can have attributes of a user's.
fn can_store(inode: Kind) -> bool {
    matches!(inode, Kind::File | Kind::Dir)
}

/// Replaces the inode's attributes by the stored ones.
pub(crate) fn uncover(metadata: &mut Metadata, place: &Place<'_>) -> io::Result<()> {
    if !can_store(metadata.kind) {
        return Ok(());
    }
    let mut value = [0; MAX_TEXT];
    let stored = match place.get(STAT, &mut value) {
        Ok(len) => value.get(..len).and_then(Stored::parse),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
        Err(Errno::RANGE) => None,
        // A run that works in the directory lets itself in first.
        Err(Errno::ACCESS) if metadata.kind == Kind::Dir => {
            metadata.origin = Origin::Unreadable;
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };

    match stored.filter(|stored| (stored.kind == Kind::Dir) == (metadata.kind == Kind::Dir)) {
        None => metadata.origin = Origin::Damaged,
        Some(Stored { kind, mode, device, uid, gid }) => {
            let (rdev, origin) = (device, Origin::Stored);
            *metadata = Metadata { kind, mode, rdev, uid, gid, origin, ..*metadata };
        }
    }
    Ok(())
}

/// Stores the wanted attributes of the entry behind `fd`, whose inode has the attributes `inode`.
/// With `node` the entry stands for that from now on.
///
/// # Errors
/// The system's error, also if the filesystem cannot store the type of an entry. Other attributes
/// that it cannot store are only reported.
pub(crate) fn apply(
    fd: BorrowedFd<'_>,
    handle: Handle,
    inode: &Metadata,
    node: Option<(Kind, DeviceNumber)>,
    wanted: &Wanted,
) -> io::Result<Withheld> {
    let place = Place::of(fd, handle);
    let Wanted { mode, uid, gid, extended, .. } = wanted;
    if node.is_none() && mode.is_none() && uid.is_none() && gid.is_none() && extended.is_none() {
        // The source does not list this directory, so it keeps its type and bits.
        return set_times(fd, handle, wanted, inode).map(|()| Withheld::default());
    }

    let mut now = *inode;
    uncover(&mut now, &place)?;
    let (kind, device) = node.unwrap_or((now.kind, now.rdev));
    let mode = if kind == Kind::Symlink { 0o777 } else { wanted.mode.unwrap_or(now.mode) };
    let (uid, gid) = (wanted.uid.unwrap_or(now.uid), wanted.gid.unwrap_or(now.gid));
    let stored = Stored { kind, mode, device, uid, gid };
    if stored.inode_mode() != inode.mode {
        chmod(fd, handle, stored.inode_mode())?;
    }
    if now.origin == Origin::Unreadable {
        now = *inode;
        uncover(&mut now, &place)?;
    }

    let mut withheld = match &wanted.extended {
        None => Withheld::default(),
        Some(extended) => {
            let mut changes = Reconciling::begin(&place, extended, Keeping::FakeSuper { mode, own: false })?;
            changes.xattrs()?;
            changes.set_acls(mode)?;
            changes.finish()?
        }
    };
    withheld.extended = withheld.extended.or(store(&place, inode, &now, &stored)?.extended);
    set_times(fd, handle, wanted, inode)?;
    Ok(withheld)
}

/// Writes or removes the attribute unless it is already as wanted.
fn store(place: &Place<'_>, inode: &Metadata, now: &Metadata, stored: &Stored) -> io::Result<Withheld> {
    let result = if stored.is_of(inode) {
        if now.origin == Origin::Inode { Ok(()) } else { place.remove(STAT) }
    } else {
        let is = Stored { kind: now.kind, mode: now.mode, device: now.rdev, uid: now.uid, gid: now.gid };
        let same = now.origin == Origin::Stored && is == *stored;
        if same { Ok(()) } else { place.set(STAT, stored.to_text().as_bytes()) }
    };
    match result {
        // Without its type an entry would become another one.
        Err(error) if stored.kind == inode.kind && extended::WITHHELD.contains(&error) => {
            Ok(Withheld::extended(error))
        }
        result => Ok(result.map(|()| Withheld::default())?),
    }
}

const STAT: &CStr = c"user.rsync.%stat";
/// Longer than the longest text: seven digits of mode, four numbers of ten digits, four characters
/// between.
const MAX_TEXT: usize = 64;
/// A value that the kernel does not treat as a number.
const NOBODY: u32 = u32::MAX;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_of_rsync_is_read_and_written() {
        for text in [
            "100644 0,0 0:0",
            "104750 0,0 1234:2345",
            "20644 5,7 0:0",
            "60644 8,300 0:0",
            "10644 0,0 0:0",
            "140755 0,0 0:0",
            "120777 0,0 77:88",
            "41777 0,0 5:6",
            "100000 0,0 4294967294:1",
        ] {
            assert_eq!(Stored::parse(text.as_bytes()).unwrap().to_text(), text);
        }
    }

    #[test]
    fn what_is_no_such_text_is_damaged() {
        for text in [
            "",
            "100644",
            "100644 0,0",
            "100644 0,0 1:2 extra",
            "100644 0,0 1:2\n",
            "100644  0,0 1:2",
            "777777777777 0,0 0:0",
            "300644 0,0 0:0",
            "-1 0,0 0:0",
            "+100644 0,0 0:0",
            "644 0,0 0:0",
            "170644 0,0 1:1",
            "100648 0,0 1:1",
            "100644 0,0 -1:-1",
            "100644 0,0 4294967295:1",
            "100644 0,0 4294967296:1",
            "100644 0 1:1",
            "100644 0,0 1",
        ] {
            assert_eq!(Stored::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Stored::parse(&[0xff; 5]), None);
    }

    #[test]
    fn longest_text_has_room() {
        let max = DeviceNumber { major: u32::MAX, minor: u32::MAX };
        let stored = Stored { kind: Kind::Socket, mode: 0o7777, device: max, uid: NOBODY, gid: NOBODY };
        assert!(stored.to_text().len() <= MAX_TEXT);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        /// Law: no value panics, and an accepted value is written as it was read, except for
        /// leading zeros.
        #[test]
        fn any_value_is_read_or_refused(value in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..80),
            "[0-7]{1,7} [0-9]{1,11},[0-9]{1,11} [0-9]{1,11}:[0-9]{1,11}".prop_map(String::into_bytes),
        ]) {
            if let Some(stored) = Stored::parse(&value) {
                prop_assert_eq!(Stored::parse(stored.to_text().as_bytes()), Some(stored));
            }
        }
    }
}
