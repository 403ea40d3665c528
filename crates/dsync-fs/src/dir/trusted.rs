//! Walks an operator's own path so that nobody else can divert it.
//!
//! The law: a symbolic link on the way is followed only if it belongs to root or to this process's
//! user, as in rsync 3.5.0. A user who may write to a directory on the way could plant a link
//! there, and a privileged run would write wherever it leads. Each step opens one component without
//! following it, and reads a link's text from the very link that it examined, so a swap during the
//! walk changes nothing.
//!
//! Within the destination the owner proves nothing: a link there may have come from a source, in
//! this run or an earlier one, and then it belongs to the user who ran it. From the destination's
//! root down no link is followed, however the walk got there.
//!
//! A link of `/proc` leads to an object and not along its text (`/proc/PID/root` reads `/`), so the
//! kernel follows it.
//!
//! A confined walk ([`Dir::confining`]) never leaves its floor. `/` is the floor. `..` returns to
//! the directory that the walk came through, wherever that has been moved meanwhile. A link that
//! leads out is refused, an absolute one always. So is one of this crate's own names: of the files of
//! other clients that have one, a client must neither read nor plant any.

use std::{
    ffi::{CStr, OsStr},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{CWD, Mode, OFlags, PROC_SUPER_MAGIC, fstatfs, mkdirat, openat, readlinkat},
    io::Errno,
};

use super::{
    Dir,
    confined::{LeadsOut, Passed, Reach, Trail},
    open_step, retry,
};
use crate::{metadata::Kind, own_names::is_own_name, quota::Meter, source_file::stat_fd};

/// Owners whose symbolic links an operator's path may pass through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Links {
    /// Root and this process's user.
    #[default]
    Trusted,
    /// Anybody.
    Any,
}

/// A link on an operator's path that is not followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UntrustedLink {
    /// A link made by neither root nor this process's user.
    #[error("the link '{}' belongs to user {uid}", path.display())]
    OfAnother {
        /// Path of the link, with the links before it replaced by their texts.
        path: PathBuf,
        /// Owner of the link.
        uid: u32,
    },
    /// A link within the destination, where a source may have made it.
    #[error("the link '{}' is within the destination, where a source may have made it", path.display())]
    Within {
        /// Path of the link, as above.
        path: PathBuf,
    },
    /// A link in a directory's place in the destination that leads elsewhere.
    #[error("the link '{}' leads out of the destination", path.display())]
    LeadsOut {
        /// Name of the link.
        path: PathBuf,
    },
    /// A link in a directory's place in the destination that did not exist when the run began.
    #[error("the link '{}' was not there when the run began", path.display())]
    New {
        /// Name of the link.
        path: PathBuf,
    },
}

impl UntrustedLink {
    /// Returns the link for which an operation was refused, if that was the reason for the error.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref().and_then(|inner| inner.downcast_ref())
    }

    /// Returns whether `-K` would follow this link if it led within the destination and were not
    /// new.
    pub fn is_in_a_directorys_place(&self) -> bool {
        matches!(self, Self::LeadsOut { .. } | Self::New { .. })
    }
}

/// A file within the destination that is not opened, as it is no regular one.
#[derive(Debug, thiserror::Error)]
#[error("it is no regular file, and within the destination, where a source may have made it")]
struct NoRegularFile;

/// The components of a path to create if they are missing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Make {
    Nothing,
    Last,
    All,
}

/// The limits of a walk, besides the owners of links.
#[derive(Clone, Copy)]
pub(super) struct Bounds<'a> {
    /// The limit for the path.
    pub(super) reach: &'a Reach,
    /// The destination's root, within which no link is followed.
    pub(super) root: Option<&'a Dir>,
    /// Counts directories that are made.
    pub(super) meter: Option<&'a Meter>,
}

impl Bounds<'_> {
    #[cfg(test)]
    const NONE: Bounds<'static> = Bounds { reach: &Reach::Anywhere, root: None, meter: None };
}

/// Opens a directory by a path, which is relative to `at` unless it is absolute.
pub(super) fn open(
    at: BorrowedFd<'_>,
    path: &Path,
    make: Make,
    trust: Links,
    Bounds { reach, root, meter }: Bounds<'_>,
) -> io::Result<Dir> {
    let trail = match reach {
        Reach::Anywhere => None,
        Reach::Along(trail) => Some(trail.to_vec()),
        // Its way from the floor is unknown.
        Reach::Below(_) => return Err(LeadsOut::at(path.to_owned()).into()),
    };
    let mut walk = Walk { trail, within: Within::at(root, at)?, meter, ..Walk::new(at, trust) };
    if path.as_os_str().is_empty() {
        return Err(Errno::NOENT.into());
    }

    let named = walk.push(path.as_os_str().as_bytes(), true);
    walk.begin(path.as_os_str().as_bytes())?;
    let mut left = named;
    while let Some(step) = walk.steps.pop() {
        left -= usize::from(step.of_operand);
        let makes = step.of_operand && (make == Make::All || make == Make::Last && left == 0);
        walk.step(&step, makes)?;
    }

    let opened = open_step(walk.place(), c".", OFlags::empty())?;
    let reach = walk.trail.map_or(Reach::Anywhere, |trail| Reach::Along(Trail::from(trail)));
    Ok(Dir { reach, ..opened })
}

/// Opens the entry that a link leads to, without leaving the first directory of `trail`, which ends
/// at the link's own directory.
pub(super) fn open_confined_link(
    at: BorrowedFd<'_>,
    name: &CStr,
    trail: Vec<Arc<Passed>>,
    how: OFlags,
) -> io::Result<OwnedFd> {
    let mut walk = Walk { trail: Some(trail), ..Walk::new(at, Links::Any) };
    let _ = walk.push(name.to_bytes(), false);
    match walk.open_last(how)? {
        Some(fd) => Ok(fd),
        None => retry(|| openat(walk.place(), c".", how, Mode::empty())),
    }
}

/// One component still to walk.
struct Step {
    name: Vec<u8>,
    /// Whether the operator named it; else a link did.
    of_operand: bool,
}

pub(crate) struct Walk<'a> {
    at: BorrowedFd<'a>,
    trust: Links,
    /// The current directory; `at` at first.
    here: Option<OwnedFd>,
    /// In a confined walk, the directories from the floor to the current one; never empty.
    trail: Option<Vec<Arc<Passed>>>,
    /// Path of the current directory.
    seen: PathBuf,
    /// The remaining steps, the next one last.
    steps: Vec<Step>,
    /// The last link of the path itself that was followed.
    followed: Option<Followed>,
    links: usize,
    pub(crate) within: Within,
    meter: Option<&'a Meter>,
}

/// A link whose text is walked, and that no other link led to.
struct Followed {
    path: PathBuf,
    /// The number of steps that remain behind its text.
    rest: usize,
}

/// The walk's position relative to the destination.
#[derive(Clone, Copy, Default)]
pub(crate) struct Within {
    /// Filesystem and inode number of the destination's root, if it matters.
    root: Option<(u64, u64)>,
    /// Whether the walk is at the root or below.
    inside: bool,
    /// Whether the walk is at the root.
    at_root: bool,
}

impl Within {
    /// Returns the position of a walk that has not begun.
    pub(crate) fn of(root: Option<&Dir>) -> io::Result<Self> {
        let root = root.map(|root| stat_fd(root.fd.as_fd())).transpose()?;
        Ok(Self { root: root.map(|root| (root.dev, root.ino)), ..Self::default() })
    }

    /// Returns the position of a walk that begins at a directory.
    pub(crate) fn at(root: Option<&Dir>, at: BorrowedFd<'_>) -> io::Result<Self> {
        let mut within = Self::of(root)?;
        within.arrive(at, b".")?;
        within.inside |= within.root.map_or(Ok(false), |root| is_below(at, root))?;
        Ok(within)
    }

    /// Records a step that led to a directory.
    fn arrive(&mut self, fd: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
        let Some(root) = self.root else { return Ok(()) };
        // Only from the root itself does `..` lead out.
        let leaves = self.at_root && name == b"..";
        let now = stat_fd(fd)?;
        self.at_root = (now.dev, now.ino) == root;
        self.inside = self.at_root || self.inside && !leaves;
        Ok(())
    }
}

/// Returns whether a directory is this one or below it.
fn is_below(at: BorrowedFd<'_>, root: (u64, u64)) -> io::Result<bool> {
    let mut place = retry(|| openat(at, c".", PASS | OFlags::DIRECTORY, Mode::empty()))?;
    let mut last = None;
    loop {
        let now = stat_fd(place.as_fd())?;
        let now = Some((now.dev, now.ino));
        if now == Some(root) || now == last {
            return Ok(now == Some(root));
        }
        place = retry(|| openat(&place, c"..", PASS | OFlags::DIRECTORY, Mode::empty()))?;
        last = now;
    }
}

impl<'a> Walk<'a> {
    pub(crate) fn new(at: BorrowedFd<'a>, trust: Links) -> Self {
        let (seen, steps) = (PathBuf::new(), Vec::new());
        let within = Within::default();
        Self {
            at,
            trust,
            here: None,
            trail: None,
            seen,
            steps,
            followed: None,
            links: 0,
            within,
            meter: None,
        }
    }

    fn place(&self) -> BorrowedFd<'_> {
        let last = self.trail.as_ref().and_then(|trail| trail.last());
        last.map(|last| last.fd.as_fd()).or_else(|| self.here.as_ref().map(AsFd::as_fd)).unwrap_or(self.at)
    }

    /// Puts the components of a path before the remaining steps; returns their number.
    pub(crate) fn push(&mut self, path: &[u8], of_operand: bool) -> usize {
        let names = path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
        let before = self.steps.len();
        self.steps.extend(names.rev().map(|name| Step { name: name.to_vec(), of_operand }));
        self.steps.len() - before
    }

    /// Goes to `/` for an absolute path; in a confined walk to the floor.
    pub(crate) fn begin(&mut self, path: &[u8]) -> io::Result<()> {
        if path.first() != Some(&b'/') {
            return Ok(());
        }
        self.seen = PathBuf::from("/");
        self.within = Within { root: self.within.root, ..Within::default() };
        if let Some(trail) = &mut self.trail {
            trail.truncate(1);
        } else {
            self.here = Some(retry(|| openat(CWD, c"/", PASS | OFlags::DIRECTORY, Mode::empty()))?);
        }
        self.note_arrival(b"/")
    }

    /// Records where the step of this name led.
    fn note_arrival(&mut self, name: &[u8]) -> io::Result<()> {
        let mut within = self.within;
        within.arrive(self.place(), name)?;
        self.within = within;
        Ok(())
    }

    /// Walks to the last step and opens what has its name; `None` if the walk ends at the current
    /// directory itself.
    pub(crate) fn open_last(&mut self, how: OFlags) -> io::Result<Option<OwnedFd>> {
        while let Some(step) = self.steps.pop() {
            // The kernel's `..` could leave the floor.
            if !self.steps.is_empty() || step.name == b".." {
                self.step(&step, false)?;
                continue;
            }

            let name = step.name.as_slice();
            self.refuse_own_name(name)?;
            // A source may have made a fifo there.
            let doubted = self.trust == Links::Trusted && self.within.inside;
            let how = if doubted { how | OFlags::NONBLOCK } else { how };
            let open = |walk: &Self, flags| {
                retry(|| openat(walk.place(), name, how | flags, Mode::from_raw_mode(0o666)))
            };
            match open(self, OFlags::NOFOLLOW) {
                // A handle of a link is no handle of what it leads to.
                Ok(fd) if how.contains(OFlags::PATH) && stat_fd(fd.as_fd())?.kind == Kind::Symlink => {}
                Ok(fd) if doubted && stat_fd(fd.as_fd())?.kind != Kind::File => {
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, NoRegularFile));
                }
                Err(error) if doubted && Errno::from_io_error(&error) == Some(Errno::NXIO) => {
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, NoRegularFile));
                }
                // With DIRECTORY a link is ENOTDIR.
                Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::LOOP | Errno::NOTDIR)) => {}
                opened => return opened.map(Some),
            }

            match self.judge(name)? {
                Way::Object if self.trail.is_none() => return open(self, OFlags::empty()).map(Some),
                Way::Dir(fd) => self.enter(fd, name)?,
                way => self.go(way, name)?,
            }
        }
        Ok(None)
    }

    /// Refuses one of this crate's own names in a confined walk.
    fn refuse_own_name(&self, name: &[u8]) -> io::Result<()> {
        if self.trail.is_none() || !is_own_name(name) {
            return Ok(());
        }
        Err(LeadsOut::at(self.seen.join(OsStr::from_bytes(name))).into())
    }

    fn step(&mut self, step: &Step, makes: bool) -> io::Result<()> {
        let name = step.name.as_slice();
        self.refuse_own_name(name)?;
        if name == b".."
            && let Some(trail) = &mut self.trail
        {
            // The kernel's `..` is wherever the directory is by now.
            if trail.len() < 2 {
                let step = self.first_link(name);
                let by = if self.is_in_a_link() { LeadsOut::by_link } else { LeadsOut::at };
                return Err(by(step).into());
            }
            trail.pop();
            self.seen.pop();
            return self.note_arrival(name);
        }

        // With DIRECTORY the kernel mounts an automount; for anything else, ask for the type.
        let enter = |walk: &Self| {
            retry(|| openat(walk.place(), name, PASS | OFlags::NOFOLLOW | OFlags::DIRECTORY, Mode::empty()))
        };
        let entered = match enter(self) {
            Err(error) if makes && error.kind() == io::ErrorKind::NotFound => {
                let make = || Ok(mkdirat(self.place(), name, Mode::from_raw_mode(0o777))?);
                match self.meter.map_or_else(make, |meter| meter.count_entry(make)) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                    _ => enter(self),
                }
            }
            entered => entered,
        };
        let fd = match entered {
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOTDIR | Errno::LOOP)) => {
                return self.follow(name);
            }
            entered => entered?,
        };

        self.enter(fd, name)
    }

    fn enter(&mut self, fd: OwnedFd, name: &[u8]) -> io::Result<()> {
        self.seen.push(OsStr::from_bytes(name));
        match &mut self.trail {
            Some(trail) => trail.push(Arc::new(Passed { fd, name: name.to_vec() })),
            None => self.here = Some(fd),
        }
        self.note_arrival(name)
    }

    /// Goes to the target of a link.
    fn follow(&mut self, name: &[u8]) -> io::Result<()> {
        let way = self.judge(name)?;
        self.go(way, name)
    }

    /// Goes where a link of this name leads.
    fn go(&mut self, way: Way, name: &[u8]) -> io::Result<()> {
        match way {
            Way::Dir(fd) => self.enter(fd, name)?,
            Way::Object if self.trail.is_some() => {
                return Err(LeadsOut::by_link(self.first_link(name)).into());
            }
            Way::Object => {
                let fd = retry(|| openat(self.place(), name, PASS | OFlags::DIRECTORY, Mode::empty()))?;
                self.enter(fd, name)?;
            }
            Way::Text(text) if self.trail.is_some() && text.first() == Some(&b'/') => {
                return Err(LeadsOut::by_link(self.first_link(name)).into());
            }
            Way::Text(text) => {
                let (path, rest) = (self.first_link(name), self.steps.len());
                if !self.is_in_a_link() {
                    self.followed = Some(Followed { path, rest });
                }
                self.push(&text, false);
                self.begin(&text)?;
            }
        }
        Ok(())
    }

    /// Returns whether the step that was taken last is one of a link's text.
    fn is_in_a_link(&self) -> bool {
        self.followed.as_ref().is_some_and(|link| self.steps.len() >= link.rest)
    }

    /// Returns the path of the link whose text the walk is in: what a person named. In none it is the link of
    /// this name here.
    fn first_link(&self, name: &[u8]) -> PathBuf {
        let outer = self.followed.as_ref().filter(|_| self.is_in_a_link());
        outer.map_or_else(|| self.seen.join(OsStr::from_bytes(name)), |link| link.path.clone())
    }

    /// Returns where a link leads, if it may be followed.
    fn judge(&mut self, name: &[u8]) -> io::Result<Way> {
        let link = retry(|| openat(self.place(), name, PASS | OFlags::NOFOLLOW, Mode::empty()))?;
        let metadata = stat_fd(link.as_fd())?;
        match metadata.kind {
            Kind::Symlink => {}
            // It has become a directory meanwhile.
            Kind::Dir => return Ok(Way::Dir(link)),
            _ => return Err(Errno::NOTDIR.into()),
        }
        if self.trust == Links::Trusted && (self.within.inside || !is_trusted(metadata.uid)) {
            let path = self.seen.join(OsStr::from_bytes(name));
            let refusal = if self.within.inside {
                UntrustedLink::Within { path }
            } else {
                UntrustedLink::OfAnother { path, uid: metadata.uid }
            };
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, refusal));
        }

        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(Errno::LOOP.into());
        }
        if fstatfs(&link)?.f_type == PROC_SUPER_MAGIC {
            return Ok(Way::Object);
        }

        Ok(Way::Text(readlinkat(&link, c"", Vec::with_capacity(256))?.into_bytes()))
    }
}

/// The target of a link.
enum Way {
    /// The entry itself, which has become a directory meanwhile.
    Dir(OwnedFd),
    /// An object that only the kernel can reach.
    Object,
    Text(Vec<u8>),
}

/// Returns whether this owner's links may lead the process anywhere.
pub(super) fn is_trusted(uid: u32) -> bool {
    [0, rustix::process::geteuid().as_raw()].contains(&uid)
}

/// Flags of a handle for passing through.
const PASS: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Most links on one path, as in the kernel.
const MAX_LINKS: usize = 40;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    fn walk(path: &Path) -> io::Result<Dir> {
        open(CWD, path, Make::Nothing, Links::Trusted, Bounds::NONE)
    }

    /// Law: without links of others the walk reaches what the kernel reaches.
    #[test]
    fn the_walk_and_the_kernel_agree() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |path: &str| scratch.path().join(path);
        std::fs::create_dir_all(at("a/b")).unwrap();
        std::fs::write(at("a/file"), "").unwrap();
        for (text, name) in [
            ("a", "relative"),
            ("../a/b", "a/up"),
            ("relative/./b/", "through"),
            ("loop", "loop"),
            ("none", "dangling"),
            ("a/file", "to_file"),
            ("/", "root"),
        ] {
            symlink(text, at(name)).unwrap();
        }
        symlink(at("a"), at("absolute")).unwrap();
        for path in [
            "",
            ".",
            "a//b/",
            "a/b/../b",
            "a/b/../../..",
            "relative/b",
            "a/up",
            "through",
            "through/..",
            "absolute/up/.",
            "loop",
            "dangling",
            "dangling/x",
            "to_file",
            "to_file/",
            "a/file/x",
            "none",
            "root/tmp",
            "root/..",
        ] {
            let path = if path.is_empty() { scratch.path().to_owned() } else { at(path) };
            match (walk(&path), Dir::open_operand(&path)) {
                (Ok(ours), Ok(kernels)) => assert!(ours.is_same(&kernels).unwrap(), "{path:?}"),
                (Err(ours), Err(kernels)) => {
                    assert_eq!(ours.raw_os_error(), kernels.raw_os_error(), "{path:?}");
                }
                other => panic!("{path:?}: {other:?}"),
            }
        }
        for path in ["/proc/self/cwd", "/proc/self/root", "/proc/thread-self/cwd/..", "/", "//", "."] {
            let path = Path::new(path);
            assert!(walk(path).unwrap().is_same(&Dir::open_operand(path).unwrap()).unwrap(), "{path:?}");
        }
        assert_eq!(walk(Path::new("")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_is_missing_is_made_where_the_operator_named_it_and_not_where_a_link_did() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |path: &str| scratch.path().join(path);
        std::fs::create_dir(at("a")).unwrap();
        symlink("a", at("link")).unwrap();
        symlink("missing", at("dangling")).unwrap();
        let missing = |path: &str, make| {
            open(CWD, &at(path), make, Links::Trusted, Bounds::NONE).unwrap_err().kind()
                == io::ErrorKind::NotFound
        };
        assert!(missing("link/x/y", Make::Last) && missing("dangling", Make::All));
        assert!(missing("dangling/x", Make::All) && !at("missing").exists());
        let opens = |path: &str, make| open(CWD, &at(path), make, Links::Trusted, Bounds::NONE).is_ok();
        assert!(opens("link/x", Make::Last) && at("a/x").is_dir());
        assert!(opens("link/new/er/", Make::All) && at("a/new/er").is_dir());
    }

    #[test]
    fn a_link_of_another_user_is_named_and_not_followed() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let scratch = tempfile::tempdir().unwrap();
        let at = |path: &str| scratch.path().join(path);
        std::fs::create_dir_all(at("a/b")).unwrap();
        symlink("a", at("theirs")).unwrap();
        lchown(at("theirs"), Some(65_534), None).unwrap();
        symlink(at("theirs/b"), at("ours")).unwrap();
        for path in ["theirs", "theirs/", "theirs/b", "theirs/new", "ours", "ours/.."] {
            let error = open(CWD, &at(path), Make::All, Links::Trusted, Bounds::NONE).unwrap_err();
            let refused = UntrustedLink::of(&error).unwrap();
            assert_eq!(*refused, UntrustedLink::OfAnother { path: at("theirs"), uid: 65_534 }, "{path}");
        }
        assert!(!at("a/new").exists());
        assert!(open(CWD, &at("ours"), Make::Nothing, Links::Any, Bounds::NONE).is_ok());
    }

    /// Law: from the destination's root down no link is followed, however the walk got there. Above
    /// it, one's own links are followed.
    #[test]
    fn links_within_the_destination_are_not_followed_by_any_way() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |path: &str| scratch.path().join(path);
        std::fs::create_dir_all(at("dst/sub/real")).unwrap();
        std::fs::create_dir_all(at("out/deep")).unwrap();
        symlink("../out", at("dst/link")).unwrap();
        symlink("real", at("dst/sub/link")).unwrap();
        symlink("dst/sub", at("in")).unwrap();
        symlink("out", at("above")).unwrap();
        symlink(at("dst"), at("dst/back")).unwrap();
        let root = Dir::open_operand(&at("dst")).unwrap();
        let bounds = Bounds { reach: &Reach::Anywhere, root: Some(&root), meter: None };
        let way = |path: &Path, trust| open(root.fd.as_fd(), path, Make::All, trust, bounds);
        let absolute = |path: &str| at(path);
        let inside = [
            PathBuf::from("link"),
            "link/deep".into(),
            "sub/link".into(),
            "../dst/link".into(),
            "../in/link".into(),
            "sub/../sub/link".into(),
            "../above/../dst/link".into(),
            "back".into(),
            absolute("dst/link"),
            absolute("in/link"),
            absolute("above/../dst/sub/../link"),
        ];
        for path in inside {
            let error = way(&path, Links::Trusted).unwrap_err();
            assert!(matches!(UntrustedLink::of(&error), Some(UntrustedLink::Within { .. })), "{path:?}");
            assert!(way(&path, Links::Any).is_ok(), "{path:?}");
        }
        for path in
            ["sub/real", "sub/new/er", "../above/deep", "../in/real", "../in/../../out", "../out/deep"]
        {
            assert!(way(Path::new(path), Links::Trusted).is_ok(), "{path}");
            assert!(way(&at("dst").join(path), Links::Trusted).is_ok(), "{path}");
        }
    }
}
