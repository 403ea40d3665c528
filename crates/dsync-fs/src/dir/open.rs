//! Opens directories: by the operator's own path, or below another directory.
//!
//! The law is that of [`Dir`]: an operator's own path may pass through links (to a destination only
//! through trusted ones, see `trusted`); below it no step does. `openat2` takes several steps in
//! one call if the kernel has it. Walking component by component is the reference and the fallback.

use std::{
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component as PathPart, Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2, readlinkat},
    io::Errno,
};

use super::{
    Dir, Links, UntrustedLink,
    confined::Reach,
    open_step, open_with, retry,
    trusted::{self, Bounds, Make, is_trusted},
};
use crate::{
    component::{Component, RelPath},
    metadata::Kind,
    quota::Meter,
    source_file::stat_fd,
};

impl Dir {
    /// Opens a directory by the operator's own path. Follows symbolic links in it, whoever made
    /// them: for directories that are only read.
    ///
    /// # Errors
    /// The system's error, e.g. `ENOENT`, `ENOTDIR`, `EACCES`.
    pub fn open_operand(path: &Path) -> io::Result<Self> {
        open_step(CWD, path.as_os_str().as_bytes(), OFlags::empty()).map(|dir| dir.typed_as(path))
    }

    /// Opens a directory for writing by the operator's own path, which may pass through `links`
    /// only. The same holds for paths that start at that directory.
    ///
    /// # Errors
    /// As [`Dir::open_operand`]; [`UntrustedLink`] for a link that is not followed.
    pub fn open_destination(path: &Path, links: Links) -> io::Result<Self> {
        open_by(CWD, path, Make::Nothing, links, (&Reach::Anywhere, None)).map(|dir| dir.typed_as(path))
    }

    /// Opens a directory of the operator's, by links of these owners and, within `root`, by none.
    ///
    /// # Errors
    /// As [`Dir::open_destination`].
    pub(crate) fn open_beside(path: &Path, links: Links, root: Option<&Self>) -> io::Result<Self> {
        // An absolute path does not begin where the run does, which may be within the root.
        let begin = if path.is_absolute() { Path::new("/") } else { Path::new(".") };
        let begin = Self::open_destination(begin, links)?;
        let bounds = Bounds { reach: &Reach::Anywhere, root, meter: None };
        trusted::open(begin.as_fd(), path, Make::Nothing, links, bounds).map(|dir| Self { links, ..dir })
    }

    /// Opens a directory as [`Dir::open_destination`] does. Creates it if it is missing, with the
    /// process's default permissions, and with `mkpath` its missing parents as well.
    ///
    /// # Errors
    /// As [`Dir::open_destination`]; without `mkpath`, `ENOENT` means that the parent is missing.
    pub fn create_destination(path: &Path, mkpath: bool, links: Links) -> io::Result<Self> {
        let make = if mkpath { Make::All } else { Make::Last };
        open_by(CWD, path, make, links, (&Reach::Anywhere, None)).map(|dir| dir.typed_as(path))
    }

    fn typed_as(self, path: &Path) -> Self {
        Self { typed: Some(path.into()), ..self }
    }

    /// Returns the absolute path of the directory as its operator wrote it: filter rules speak of that one, and
    /// not of where links lead. It is the [real one](Self::real_path) where the operator went up with `..`,
    /// and of a directory that no path of his opened.
    ///
    /// # Errors
    /// As [`real_path`](Self::real_path).
    pub fn typed_path(&self) -> io::Result<PathBuf> {
        let typed =
            self.typed.as_deref().filter(|path| !path.components().any(|part| part == PathPart::ParentDir));
        match typed.map(std::path::absolute) {
            Some(Ok(path)) => Ok(path.components().collect()),
            _ => self.real_path(),
        }
    }

    /// Opens a directory as [`Dir::open_destination`] does. A relative path starts at this
    /// directory, the destination's root, and its rule for links holds: at the root and below none
    /// is followed unless all are.
    ///
    /// # Errors
    /// As [`Dir::open_destination`].
    pub fn open_operand_here(&self, path: &Path) -> io::Result<Self> {
        self.open_operand_of_root(path, Make::Nothing)
    }

    /// Opens a directory as [`Dir::open_operand_here`] does, if this directory is not a destination
    /// but above one: links in it are an operator's.
    ///
    /// # Errors
    /// As [`Dir::open_destination`].
    pub fn open_operand_above(&self, path: &Path) -> io::Result<Self> {
        let bounds = (&self.reach, self.meter.as_deref());
        let opened = self.pass_on(open_by(self.fd.as_fd(), path, Make::Nothing, self.links, bounds));
        opened.map(|dir| self.typed_below(dir, path))
    }

    /// Notes the path that a floor's operator wrote, which begins at the floor even with a slash.
    fn typed_below(&self, dir: Self, path: &Path) -> Self {
        let floor = self.real_path().ok().filter(|_| matches!(self.reach, Reach::Along(_)));
        match floor {
            Some(floor) => dir.typed_as(&floor.join(path.strip_prefix("/").unwrap_or(path))),
            None => dir,
        }
    }

    /// Opens a directory as [`Dir::open_operand_above`] does. Creates it if it is missing, and with
    /// `mkpath` its parents as well.
    ///
    /// # Errors
    /// As [`Dir::create_destination`].
    pub fn create_operand_above(&self, path: &Path, mkpath: bool) -> io::Result<Self> {
        let make = if mkpath { Make::All } else { Make::Last };
        let bounds = (&self.reach, self.meter.as_deref());
        let opened = self.pass_on(open_by(self.fd.as_fd(), path, make, self.links, bounds));
        opened.map(|dir| self.typed_below(dir, path))
    }

    /// Opens a directory as [`Dir::open_operand_here`] does. Creates it if it is missing, and with
    /// `mkpath` its parents as well.
    ///
    /// # Errors
    /// As [`Dir::create_destination`].
    pub fn create_operand_here(&self, path: &Path, mkpath: bool) -> io::Result<Self> {
        self.open_operand_of_root(path, if mkpath { Make::All } else { Make::Last })
    }

    fn open_operand_of_root(&self, path: &Path, make: Make) -> io::Result<Self> {
        let (links, reach, meter) = (self.links, &self.reach, self.meter.as_deref());
        let bounds = Bounds { reach, root: Some(self), meter };
        let opened = trusted::open(self.fd.as_fd(), path, make, links, bounds);
        self.pass_on(opened.map(|dir| Self { links, ..dir }))
    }

    /// Opens a directory in this one.
    ///
    /// # Errors
    /// The system's error; `ENOTDIR` (or `ELOOP`) if the entry is not a directory, e.g. a link.
    pub fn open_child(&self, name: &Component) -> io::Result<Self> {
        self.inherit(open_step(self.fd.as_fd(), &*self.spelled(name)?, OFlags::NOFOLLOW))
    }

    /// Opens a directory in this one, or the target of a link in its place, which must be at `root`
    /// (the destination's) or below. The link must belong to root or to this process's user and
    /// must have existed when `root` was permitted to follow links
    /// ([`through_own_links`](Self::through_own_links)). So must the links on the way. If `root`
    /// follows anybody's links, none of this matters.
    ///
    /// # Errors
    /// As [`open_child`](Self::open_child), also for another user's link, and any error on the way
    /// to the link's target; [`UntrustedLink`] for a link that leads out of the destination or that
    /// is new.
    pub fn open_child_or_own_link(&self, name: &Component, root: &Self) -> io::Result<Self> {
        let refusal = match self.open_child(name) {
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOTDIR | Errno::LOOP)) => error,
            result => return result,
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let on_disk = self.spelled(name)?;
        let link = retry(|| openat(&self.fd, &*on_disk, flags, Mode::empty()))?;
        let metadata = stat_fd(link.as_fd())?;
        let any = root.links == Links::Any;
        if metadata.kind != Kind::Symlink || !any && !is_trusted(metadata.uid) {
            return Err(refusal);
        }

        let path = || OsStr::from_bytes(name.as_bytes()).into();
        let refuse = |link| Err(io::Error::new(io::ErrorKind::PermissionDenied, link));
        if !any && root.own_links.is_some_and(|since| metadata.ctime > since) {
            return refuse(UntrustedLink::New { path: path() });
        }

        // Read the text from the link that was examined, not from whatever has its name by now.
        let target = readlinkat(&link, c"", Vec::with_capacity(256))?;
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        let reached =
            open_by(self.fd.as_fd(), target, Make::Nothing, self.links, (&self.reach, self.meter.as_deref()));
        let opened = self.pass_on(reached)?;
        if !any && !opened.is_beneath(root)? {
            return refuse(UntrustedLink::LeadsOut { path: path() });
        }
        Ok(opened)
    }

    /// Returns whether this directory is `root` or below it. Climbs from it towards `/`.
    pub(crate) fn is_beneath(&self, root: &Self) -> io::Result<bool> {
        let place = |fd: BorrowedFd<'_>| stat_fd(fd).map(|now| (now.dev, now.ino));
        let root = place(root.fd.as_fd())?;
        let mut here = place(self.fd.as_fd())?;
        let mut above: Option<OwnedFd> = None;
        while here != root {
            let at = above.as_ref().map_or_else(|| self.fd.as_fd(), AsFd::as_fd);
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let up = retry(|| openat(at, c"..", flags, Mode::empty()))?;
            let parent = place(up.as_fd())?;
            if parent == here {
                return Ok(false);
            }
            (here, above) = (parent, Some(up));
        }
        Ok(true)
    }

    fn open_through_own_links(&self, path: &RelPath) -> io::Result<Self> {
        let mut reached = self.reopen()?;
        for name in path.components() {
            let name =
                Component::new(name).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            reached = reached.open_child_or_own_link(&name, self)?;
        }
        Ok(reached)
    }

    /// Opens a directory of the source by the path below this one that the operator named. A link on
    /// it is followed if it belongs to root or to this process's user, or leads to this directory or
    /// below; with `links` of anybody, every one is.
    ///
    /// # Errors
    /// As [`Dir::open_operand`]; `ELOOP` for a link that is not followed, too.
    pub fn open_named(&self, path: &RelPath, links: Links) -> io::Result<Self> {
        match self.open_beneath(path) {
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOTDIR | Errno::LOOP)) => {}
            result => return result,
        }

        let way = self.spelled_path(path)?;
        let way = Path::new(OsStr::from_bytes(&way));
        let open =
            |links| self.pass_on(open_by(self.fd.as_fd(), way, Make::Nothing, links, (&self.reach, None)));
        match open(links) {
            Err(error) if UntrustedLink::of(&error).is_some() => {
                let reached = open(Links::Any)?;
                if reached.is_beneath(self)? { Ok(reached) } else { Err(Errno::LOOP.into()) }
            }
            result => result,
        }
    }

    /// Opens a directory any number of levels below this one.
    ///
    /// Cost: one call per 4 KiB of path if `openat2` works, else one per component.
    ///
    /// # Errors
    /// The system's error; `ENOTDIR` or `ELOOP` if a step on the way is not a directory.
    pub fn open_beneath(&self, path: &RelPath) -> io::Result<Self> {
        if self.own_links.is_some() {
            return self.open_through_own_links(path);
        }
        self.open_beneath_by(path, Self::open_accelerated)
    }

    fn open_beneath_by(
        &self,
        path: &RelPath,
        accelerated: impl Fn(&Self, &[u8]) -> Option<io::Result<(Self, usize)>>,
    ) -> io::Result<Self> {
        let path = self.spelled_path(path)?;
        let mut rest = &*path;
        let mut reached: Option<Self> = None;
        while !rest.is_empty() {
            let here = reached.as_ref().unwrap_or(self);
            let (next, taken) = match accelerated(here, rest) {
                Some(result) => result?,
                None => here.open_first(rest)?,
            };
            reached = Some(next);
            rest = rest.get(taken..).unwrap_or_default();
            rest = rest.strip_prefix(b"/").unwrap_or(rest);
        }
        match reached {
            Some(dir) => Ok(dir),
            None => self.reopen(),
        }
    }

    /// Opens this directory once more, for a separate handle, e.g. with a lock of its own.
    ///
    /// # Errors
    /// The system's error.
    pub fn reopen(&self) -> io::Result<Self> {
        let again = self.inherit(open_step(self.fd.as_fd(), c".", OFlags::empty()))?;
        Ok(Self { reach: self.reach.clone(), typed: self.typed.clone(), ..again })
    }

    /// Opens several components at once by `openat2`; returns `None` if that does not work here.
    fn open_accelerated(&self, path: &[u8]) -> Option<io::Result<(Self, usize)>> {
        if !OPENAT2_WORKS.load(Ordering::Relaxed) {
            return None;
        }
        let taken = prefix_within(path, MAX_RESOLVED_LEN);
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..OPENAT2_TRIES {
            let opened = open_with(|flags| {
                openat2(&self.fd, &path[..taken], flags | OFlags::NOFOLLOW, Mode::empty(), resolve)
            });
            match opened {
                // A rename somewhere raced with the resolution. Try again, but not for ever.
                Err(Errno::AGAIN) => {}
                Err(Errno::INTR) => {}
                Err(Errno::NOSYS | Errno::PERM | Errno::INVAL | Errno::TOOBIG) => {
                    OPENAT2_WORKS.store(false, Ordering::Relaxed);
                    return None;
                }
                Err(error) => return Some(Err(error.into())),
                Ok(dir) => return Some(self.inherit(Ok(dir)).map(|dir| (dir, taken))),
            }
        }
        None
    }

    fn open_first(&self, path: &[u8]) -> io::Result<(Self, usize)> {
        let taken = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
        let dir = self.inherit(open_step(self.fd.as_fd(), &path[..taken], OFlags::NOFOLLOW))?;
        Ok((dir, taken))
    }
}

/// Opens an operator's own path; creates as many components as `make` permits.
fn open_by(
    at: BorrowedFd<'_>,
    path: &Path,
    make: Make,
    links: Links,
    (reach, meter): (&Reach, Option<&Meter>),
) -> io::Result<Dir> {
    trusted::open(at, path, make, links, Bounds { reach, root: None, meter }).map(|dir| Dir { links, ..dir })
}

/// Returns the length of the longest prefix of whole components within `limit` bytes.
fn prefix_within(path: &[u8], limit: usize) -> usize {
    match path.get(..=limit) {
        None => path.len(),
        Some(head) => head.iter().rposition(|&byte| byte == b'/').unwrap_or(limit),
    }
}

/// Longest path given to `openat2`, below `PATH_MAX` (4096 with its NUL).
const MAX_RESOLVED_LEN: usize = 4000;

/// Number of races that `openat2` may report before the component-wise walk, which never does,
/// takes over.
const OPENAT2_TRIES: usize = 8;

/// Whether `openat2` works: cleared if the kernel or a sandbox refuses it.
static OPENAT2_WORKS: AtomicBool = AtomicBool::new(true);

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]
mod tests {
    use proptest::prelude::*;

    use super::{super::tests::name, *};
    use crate::{attributes::Wanted, dir::Special};

    /// Law: the accelerated and the component-wise walk reach the same directory or both refuse.
    #[test]
    fn both_ways_beneath_agree() {
        let scratch = tempfile::tempdir().unwrap();
        let root = Dir::open_operand(scratch.path()).unwrap();
        root.make_dir(&name(b"a"), 0o755).unwrap();
        let a = root.open_child(&name(b"a")).unwrap();
        a.make_dir(&name(b"b"), 0o755).unwrap();
        let _ = a.make_symlink(&name(b"link"), b"b", &Wanted::default()).unwrap();
        let _ = a.make_special(&name(b"fifo"), Special::Fifo, &Wanted::default()).unwrap();
        let _ = root.make_symlink(&name(b"up"), b"..", &Wanted::default()).unwrap();
        for path in ["", "a", "a/b", "a/link", "a/link/x", "a/fifo", "a/none", "up", "up/etc", "a/b/c"] {
            let path = RelPath::parse(path.as_bytes()).unwrap();
            let plain = root.open_beneath_by(&path, |_, _| None);
            match (root.open_beneath(&path), plain) {
                (Ok(fast), Ok(plain)) => {
                    assert_eq!(fast.metadata().unwrap().stamp(), plain.metadata().unwrap().stamp());
                }
                (Err(fast), Err(plain)) => {
                    let missing = io::ErrorKind::NotFound;
                    assert_eq!(fast.kind() == missing, plain.kind() == missing, "{path:?}");
                }
                other => panic!("{path:?}: {other:?}"),
            }
        }
    }

    /// Law: a link that may be followed existed before the permission, and leads to the root or
    /// below.
    #[test]
    fn links_are_followed_that_stay_and_were_there_before() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |path: &str| scratch.path().join(path);
        std::fs::create_dir_all(at("root/real")).unwrap();
        std::fs::create_dir_all(at("outside")).unwrap();
        std::fs::create_dir_all(at("root of another")).unwrap();
        let link = |text: &str, path: &str| std::os::unix::fs::symlink(text, at(path)).unwrap();
        let absolute = at("root/real").to_str().unwrap().to_owned();
        for (text, name) in [
            ("real", "in"),
            ("../root/real", "up"),
            (&absolute, "absolute"),
            (".", "self"),
            ("../outside", "out"),
            ("..", "above"),
            ("/", "top"),
            ("../root of another", "neighbour"),
        ] {
            link(text, &format!("root/{name}"));
        }
        let root = Dir::open_destination(&at("root"), Links::Trusted).unwrap().through_own_links();
        link("real", "root/new");
        for followed in ["in", "up", "absolute", "self"] {
            let followed = name(followed.as_bytes());
            assert!(root.open_child_or_own_link(&followed, &root).is_ok(), "{followed:?}");
            assert!(root.open_beneath(&RelPath::root().join(&followed)).is_ok(), "{followed:?}");
        }
        for refused in ["out", "above", "top", "neighbour", "new"] {
            let link = name(refused.as_bytes());
            let error = root.open_child_or_own_link(&link, &root).unwrap_err();
            let is_new = matches!(UntrustedLink::of(&error), Some(UntrustedLink::New { .. }));
            assert!(UntrustedLink::of(&error).unwrap().is_in_a_directorys_place(), "{refused}");
            assert_eq!(is_new, refused == "new");
            assert!(root.open_beneath(&RelPath::root().join(&link)).is_err(), "{refused}");
        }
        let any = Dir::open_destination(&at("root"), Links::Any).unwrap().through_own_links();
        assert!(any.open_child_or_own_link(&name(b"out"), &any).is_ok());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        /// Law: a prefix is whole components, within the limit, and not empty.
        #[test]
        fn prefixes_end_at_component_borders(
            names in prop::collection::vec("[a-z]{1,9}", 1..9),
            limit in 9usize..40,
        ) {
            let path = names.join("/").into_bytes();
            let taken = prefix_within(&path, limit);
            prop_assert!(taken > 0 && taken <= limit.max(path.len().min(limit)));
            prop_assert!(taken == path.len() || path[taken] == b'/');
        }
    }
}
