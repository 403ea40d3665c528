//! The mount namespace of a session, where the kernel has no Landlock and the server runs as root.
//!
//! A session gets a root directory of its own in memory, which nobody writes. The shares, and the few
//! files of the system that a session needs, are mounted there under their own paths. The tree of the
//! system is then detached, so no path leads to it. Once the key is proved, [`hide_others`] detaches
//! the shares that the session does not use.
//!
//! The law: nothing is made on a disk, a mount keeps the restrictions that it had, and no empty
//! directory stands for a share that is not there. A session reaches nothing that the share's user
//! could not reach by the share's path, so each share is opened with that user's rights: a link that
//! a local user plants on the way shows nothing new.
//!
//! Directories are mounted before those above them, which then cover them. So a share below another
//! one is seen through that one, and is still there when that one is detached.
//!
//! The namespace does not replace all of Landlock: inside the share it has no rights but the user's,
//! and it has none on ports, signals and sockets.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io,
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::ffi::OsStringExt as _,
    },
    path::{Component, Path, PathBuf},
    thread,
};

use nix::sched::{CloneFlags, unshare};
use rustix::{
    fs::{FileType, Mode, OFlags, chmod, fstat, mkdir, open, openat},
    io::Errno,
    mount::{
        MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive,
        mount_change, mount_move, mount_remount, unmount,
    },
    process::{chdir, chroot, pivot_root},
};

/// A share, as its sessions see it.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    /// Its directory.
    pub(crate) path: PathBuf,
    /// Whether something must be mounted there.
    pub(crate) mounted: bool,
    /// The user that its sessions become.
    pub(crate) user: Option<String>,
}

/// Opens a path with the rights of a share's user.
pub(crate) type Reach<'a> = &'a dyn Fn(Option<&str>, &Path) -> io::Result<OwnedFd>;

/// The use of a path of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// It is read.
    Read,
    /// It is a device that is written to.
    Device,
    /// It is a directory for files.
    Spool,
}

impl Use {
    /// Returns the restrictions of mounts there.
    fn restrictions(self) -> MountFlags {
        match self {
            Self::Read => MountFlags::RDONLY | MountFlags::NOSUID,
            Self::Device => MountFlags::NOSUID,
            Self::Spool => WRITTEN,
        }
    }
}

/// A path in the new root, and its origin in the system's tree.
struct Place {
    /// `None` for an empty directory.
    from: Option<OwnedFd>,
    restrictions: MountFlags,
    /// Whether mounts below it are seen as well.
    is_whole: bool,
}

/// Leaves the calling thread the shares and these paths of the system. Returns the paths of the
/// shares that can be hidden again, in order.
///
/// # Errors
/// The system's. The system's tree is then still there.
pub(super) fn enter(
    shares: &[Shown],
    reach: Reach<'_>,
    system: &[(PathBuf, Use)],
) -> io::Result<Vec<PathBuf>> {
    if shares.iter().any(|share| !is_plain(&share.path)) {
        let why = "the path of a share is / or has '..' in it";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }

    unshare(CloneFlags::CLONE_NEWNS)?;
    // A mount that the system makes or ends in a share from now on is seen there, and never the reverse.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;

    // Only now: a directory can be mounted from this namespace, not from the one before.
    let mut places = places_of(shares, system);
    let shown = shares_of(shares, reach);
    // A share in a directory for spools is seen through that, and its users decide where a path there
    // leads: to detach it by its path could detach another share.
    let is_in_spool = |path: &Path| system.iter().any(|(dir, of)| *of == Use::Spool && path.starts_with(dir));
    let paths = shown.keys().filter(|path| !is_in_spool(path)).cloned().collect();
    places.extend(shown);

    build(&places)?;
    take_root()?;
    Ok(paths)
}

/// Tries all of it without a share, in a thread that is gone afterwards.
///
/// # Errors
/// The system's.
pub(super) fn attempt(system: &[(PathBuf, Use)]) -> io::Result<()> {
    let nobody = |_: Option<&str>, _: &Path| Err(io::ErrorKind::NotFound.into());
    let tried = thread::scope(|scope| scope.spawn(|| enter(&[], &nobody, system)).join());
    tried.unwrap_or_else(|_| Err(io::Error::other("the attempt failed"))).map(drop)
}

/// Detaches these shares but the wanted one, and those below it, which are seen through it. The paths
/// are in order: a directory is detached before those that it covers.
///
/// # Errors
/// The system's.
pub(super) fn hide_others(shares: &[PathBuf], wanted: Option<&Path>) -> io::Result<()> {
    let others = shares.iter().filter(|share| wanted.is_none_or(|wanted| !share.starts_with(wanted)));
    for share in others {
        match unmount(share.as_path(), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            // An empty directory stands for a share that is not mounted.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns whether a path can be the same in another root: absolute, with names only, and one at least.
fn is_plain(path: &Path) -> bool {
    let mut steps = path.components();
    steps.next() == Some(Component::RootDir)
        && steps.clone().next().is_some()
        && steps.all(|step| matches!(step, Component::Normal(_)))
}

/// Opens the paths of the system that are there.
fn places_of(shares: &[Shown], system: &[(PathBuf, Use)]) -> BTreeMap<PathBuf, Place> {
    let spools = system.iter().filter(|(_, of)| *of == Use::Spool).map(|(path, _)| path);
    let written: Vec<&PathBuf> = shares.iter().map(|share| &share.path).chain(spools).collect();
    let mut places = BTreeMap::new();
    for (path, of) in system.iter().filter(|(path, _)| is_plain(path)) {
        // A place that is only read would cover one below it that is written.
        let covers = *of != Use::Spool && written.iter().any(|below| below.starts_with(path));
        if covers {
            continue;
        }
        let Ok(from) = open_as_root(path) else { continue };
        let place = Place { from: Some(from), restrictions: of.restrictions(), is_whole: *of == Use::Spool };
        places.insert(path.clone(), place);
    }
    places
}

/// Opens the shares that are there, each with the rights of its user.
fn shares_of(shares: &[Shown], reach: Reach<'_>) -> BTreeMap<PathBuf, Place> {
    let mut places: BTreeMap<PathBuf, Option<Place>> = BTreeMap::new();
    for share in shares {
        let found = reach(share.user.as_deref(), &share.path).and_then(|from| Ok((is_mounted(&from)?, from)));
        let place = found.ok().map(|(is_mounted, from)| Place {
            // An empty directory is on the filesystem of its parent, which a share like this must not be.
            from: (is_mounted || !share.mounted).then_some(from),
            restrictions: WRITTEN,
            is_whole: true,
        });

        match places.get_mut(&share.path) {
            None => {
                places.insert(share.path.clone(), place);
            }
            // Of two shares with one path neither is there unless both users find the same directory.
            Some(other) => {
                let both = place.as_ref().zip(other.as_ref());
                if !both.is_some_and(|(one, other)| is_same(one, other)) {
                    *other = None;
                }
            }
        }
    }
    places.into_iter().filter_map(|(path, place)| Some((path, place?))).collect()
}

/// Returns whether a directory is on another filesystem than its parent.
fn is_mounted(directory: &OwnedFd) -> io::Result<bool> {
    let above = openat(directory, "..", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    Ok(fstat(&above)?.st_dev != fstat(directory)?.st_dev)
}

fn is_same(one: &Place, other: &Place) -> bool {
    let identity = |place: &Place| {
        let found = place.from.as_ref().and_then(|from| fstat(from).ok());
        found.map(|found| (found.st_dev, found.st_ino))
    };
    identity(one) == identity(other)
}

fn open_as_root(path: &Path) -> io::Result<OwnedFd> {
    Ok(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Mounts the new root and all places in it.
fn build(places: &BTreeMap<PathBuf, Place>) -> io::Result<()> {
    mount("dsync", ROOT, "tmpfs", WRITTEN, c"mode=755,size=1m")?;
    // A share may have this very directory in it: the new root is not mounted in itself.
    mount_change(ROOT, MountPropagationFlags::UNBINDABLE)?;

    // Each before those above it. So no mount point is ever made in a place, which is on a disk.
    for (path, place) in places.iter().rev() {
        show(path, place)?;
    }

    Ok(mount_remount(ROOT, MountFlags::BIND | MountFlags::RDONLY | WRITTEN, c"")?)
}

/// Mounts a place in the new root.
fn show(path: &Path, place: &Place) -> io::Result<()> {
    let at = in_root(path);
    let is_dir = match &place.from {
        None => true,
        Some(from) => FileType::from_raw_mode(fstat(from)?.st_mode) == FileType::Directory,
    };
    make_point(path, is_dir)?;

    let Some(from) = &place.from else { return Ok(()) };
    if place.is_whole {
        mount_bind_recursive(by_number(from), &at)?;
    } else {
        mount_bind(by_number(from), &at)?;
    }
    restrict(&at, place.restrictions)
}

/// Restricts the mount at a path of the new root, and those below it, beside the restrictions that
/// each has.
///
/// # Security
/// Users may write below a share. So a path is opened once, and only the mount that it should be is
/// changed: a link there could lead to another one, which would lose its own restrictions.
fn restrict(at: &Path, restrictions: MountFlags) -> io::Result<()> {
    let mut is_restricted = false;
    for Mounted { id, point, restrictions: own } in mounts_below(at)? {
        let Ok(opened) = open_as_root(&point) else { continue };
        // Another mount may cover it: no path leads there.
        if mount_of(&opened)? == id {
            mount_remount(by_number(&opened), MountFlags::BIND | own | restrictions, c"")?;
            is_restricted |= point == at;
        }
    }
    if is_restricted { Ok(()) } else { Err(io::Error::other("a mount is not where it was made")) }
}

/// Makes a mount point in the new root.
fn make_point(path: &Path, is_dir: bool) -> io::Result<()> {
    let steps: Vec<_> = path.ancestors().skip(usize::from(!is_dir)).map(in_root).collect();
    for dir in steps.iter().rev() {
        match mkdir(dir, DIRECTORY) {
            // The process may have a mask.
            Ok(()) => chmod(dir, DIRECTORY)?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }

    if !is_dir {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        open(in_root(path), flags, Mode::RUSR)?;
    }
    Ok(())
}

/// Makes the new root that of this thread, and detaches the system's tree.
fn take_root() -> io::Result<()> {
    chdir(ROOT)?;
    match pivot_root(".", ".") {
        // The old root is on top of the new one now.
        Ok(()) => unmount(".", UnmountFlags::DETACH)?,
        // The kernel's first root, from which small systems run, changes places with no other. It stays
        // below the new one, and no path leads there.
        Err(Errno::INVAL) => {
            mount_move(".", "/")?;
            chroot(".")?;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(chdir("/")?)
}

/// Returns the path that stands for this one as long as the new root is in the old tree.
fn in_root(path: &Path) -> PathBuf {
    let mut at = OsString::from(ROOT);
    at.push(path);
    at.into()
}

/// Returns a path to an open file or directory.
fn by_number(opened: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", opened.as_fd().as_raw_fd())
}

/// A mount, by the kernel's table.
#[derive(Debug, PartialEq, Eq)]
struct Mounted {
    id: u64,
    point: PathBuf,
    restrictions: MountFlags,
}

/// Lists the mounts at a path and below it. Asks no filesystem for its flags: one may be of a host
/// that does not answer.
#[expect(clippy::disallowed_methods, reason = "the kernel's own file about this thread")]
fn mounts_below(at: &Path) -> io::Result<Vec<Mounted>> {
    let table = std::fs::read("/proc/thread-self/mountinfo")?;
    Ok(parse_mounts(&table).filter(|mounted| mounted.point.starts_with(at)).collect())
}

/// Parses the kernel's table of mounts. See proc_pid_mountinfo(5).
fn parse_mounts(table: &[u8]) -> impl Iterator<Item = Mounted> {
    table.split(|&byte| byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|&byte| byte == b' ');
        let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        // Between are the parent, the device and the root in the filesystem.
        let (point, options) = (fields.nth(3)?, fields.next()?);
        let restrictions = options.split(|&byte| byte == b',').map(restriction).collect();
        Some(Mounted { id, point: OsString::from_vec(unescape(point)).into(), restrictions })
    })
}

/// Returns the number of the mount through which something was opened. statx(2) has it since Linux
/// 5.8 only. See proc_pid_fdinfo(5).
#[expect(clippy::disallowed_methods, reason = "the kernel's own file about this process")]
fn mount_of(opened: &OwnedFd) -> io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", opened.as_fd().as_raw_fd()))?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    id.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns the restriction that a word of the table stands for. Words about times of access are not
/// needed: the kernel keeps those if none is named.
fn restriction(word: &[u8]) -> MountFlags {
    match word {
        b"ro" => MountFlags::RDONLY,
        b"nosuid" => MountFlags::NOSUID,
        b"nodev" => MountFlags::NODEV,
        b"noexec" => MountFlags::NOEXEC,
        b"nosymfollow" => NOSYMFOLLOW,
        _ => MountFlags::empty(),
    }
}

/// Decodes characters that are written as `\` and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut parts = field.split(|&byte| byte == b'\\');
    let mut plain = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        let code = part.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                plain.extend_from_slice(&part[3..]);
            }
            None => {
                plain.push(b'\\');
                plain.extend_from_slice(part);
            }
        }
    }
    plain
}

/// The mount point of the new root until it is the root: a directory that every system has, that has
/// nothing that a session needs, and that is on no disk.
const ROOT: &str = "/proc/fs";
/// The restrictions of mounts that are written to. A session may make devices there, and open none.
const WRITTEN: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);
/// `MS_NOSYMFOLLOW`, of Linux 5.10.
const NOSYMFOLLOW: MountFlags = MountFlags::from_bits_retain(256);
/// Every user may pass through the directories of the new root.
const DIRECTORY: Mode = Mode::from_raw_mode(0o755);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_paths_are_the_same_in_another_root() {
        for plain in ["/srv", "/srv/a b/", "//srv/./a"] {
            assert!(is_plain(Path::new(plain)), "{plain}");
        }
        for other in ["", "/", "//", "/.", "srv", "./srv", "/srv/../a", "/.."] {
            assert!(!is_plain(Path::new(other)), "{other}");
        }
    }

    #[test]
    fn a_mount_has_its_point_and_its_restrictions() {
        let table =
            b"36 35 98:0 /mnt1 /srv/a\\040\\134b\\ rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n\
            37 36 0:5 / /srv/x ro,nosuid,nodev,noexec,nosymfollow,relatime - tmpfs none rw\n";
        let all = MountFlags::RDONLY | WRITTEN | NOSYMFOLLOW;
        let mounted = |id, point: &str, restrictions| Mounted { id, point: point.into(), restrictions };
        let found: Vec<_> = parse_mounts(table).collect();
        assert_eq!(found, [mounted(36, "/srv/a \\b\\", MountFlags::empty()), mounted(37, "/srv/x", all)]);
    }
}
