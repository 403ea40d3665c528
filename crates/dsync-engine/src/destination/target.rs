//! The meaning of the destination operand, given what the source sends (rsync's rule).
//!
//! An existing directory takes everything inside it. Otherwise one file may be given a new name,
//! and anything else needs a directory, which is created; its parent must exist unless `mkpath`.

use std::{
    borrow::Cow,
    io,
    os::unix::ffi::OsStrExt,
    path::{self, Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use dsync_fs::{Component, Dir, DirLock, Kind, Links, UntrustedLink};
use dsync_wire::{message::Tops, options::SyncOptions};

use super::{alternate::Alternates, hands::Hands, refused_places, tenure::Tenure};
use crate::{
    SyncError,
    ends::NOWHERE,
    error::PathRole,
    footprint::operator_links,
    grant::Start,
    guard,
    halt::{Halt, lock},
    session::Session,
};

/// The directory where the source's root lands.
pub(super) struct Target {
    /// The operand or its directory part, for messages.
    pub(super) path: PathBuf,
    /// The open root; `None` in a dry run where it does not exist.
    pub(super) root: Option<Arc<Dir>>,
    /// The name that the one source file gets.
    pub(super) rename: Option<Component>,
    /// Whether the root was made for this run (or, in a dry run, would be).
    pub(super) created: bool,
}

/// The terms on which a destination is opened.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a> {
    pub(super) options: &'a SyncOptions,
    pub(super) start: &'a Start,
    pub(super) hands: &'a Hands,
    /// The place of the hold that the run gets.
    pub(super) tenure: &'a Mutex<Tenure>,
}

impl Target {
    /// Opens the destination, creating it where the rule says so, and takes its lock.
    ///
    /// The guards hold for `contents`, which is the operator's word, and not for the source's
    /// announcement.
    pub(super) fn open(
        operand: &Path,
        tops: &Tops,
        contents: bool,
        session: &Session,
        terms: Terms<'_>,
    ) -> Result<Self, SyncError> {
        let mut target = Self::find(operand, tops, contents, terms)?;
        target.open_up(terms);
        if let Some(root) = &target.root {
            let wait = if session.begun.is_some() {
                session.timeout().saturating_add(OWN_END_WAIT)
            } else {
                LOCK_WAIT
            };
            let take = || wait_for_lock(root, wait, &session.halt);
            let taken = terms
                .hands
                .lock(take)
                .map_err(|source| SyncError::DestinationUnusable { path: target.path.clone(), source })?;

            let Some(taken) = taken else {
                return Err(SyncError::Locked { path: terms.start.named(target.path) });
            };
            lock(terms.tenure).hold(taken);
        }
        Ok(target)
    }

    /// Lets the run work in a root of the user's own that he may enter but not read.
    fn open_up(&mut self, Terms { options, start, tenure, .. }: Terms<'_>) {
        let Some(root) = &self.root else { return };
        if options.dry_run || start.adds_only() {
            return;
        }
        // A failure here happens again with the lock, and is reported then.
        let Ok(Some(mode)) = root.unlock() else { return };
        lock(tenure).open_up(root, mode);
        // The first handle can only look up names.
        if let Ok(opened) = root.reopen() {
            self.root = Some(Arc::new(opened));
        }
    }

    /// Returns the place of a root that does not exist: the nearest directory that does, and the
    /// path that is missing below it.
    pub(super) fn missing(&self, options: &SyncOptions, start: &Start) -> Option<(Dir, PathBuf)> {
        let steps: Vec<_> = self.path.components().collect();
        (0..steps.len()).rev().find_map(|there| {
            let above: PathBuf = steps[..there].iter().collect();
            let above = if there == 0 { PathBuf::from(".") } else { above };
            let base = start.open(&above, operator_links(options)).ok()?;
            Some((base.with_fake_super(options.fake_super.destination), steps[there..].iter().collect()))
        })
    }

    fn find(operand: &Path, tops: &Tops, contents: bool, terms: Terms<'_>) -> Result<Self, SyncError> {
        let Terms { options, start, .. } = terms;
        if options.dry_run && operand == Path::new(NOWHERE) {
            return Ok(Self::imagined(operand));
        }
        let last = operand.as_os_str().as_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let names_directory = matches!(last, b"" | b"." | b"..");
        let may_name_file = tops.single_file && !names_directory;
        let links = operator_links(options);

        match start.open(operand, links) {
            Ok(root) => {
                if options.delete && contents && !options.force_root {
                    guard::refuse_precious(operand, &root)?;
                }
                let root = if options.follows_dirlinks() { root.through_own_links() } else { root };
                return Ok(Self::with_root(operand, root, None, options));
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory && !may_name_file => {
                if tops.root.is_none() && tops.named == 0 {
                    // Nothing is selected that would go into it.
                    return Ok(Self::imagined(operand));
                }
                return Err(SyncError::DestinationIsFile { path: file_on(operand, terms) });
            }
            Err(error) if is_absent_or_file(&error) => {}
            // The one file replaces another user's link that leads to no directory.
            Err(error)
                if may_name_file
                    && UntrustedLink::of(&error).is_some()
                    && start.open(operand, Links::Any).is_err_and(|error| is_absent_or_file(&error)) => {}
            Err(source) => return Err(unusable(operand, source)),
        }

        let is_file =
            start.open(operand, links).is_err_and(|error| error.kind() == io::ErrorKind::NotADirectory);
        // A link to nowhere is there too, to be removed for a missing source.
        let is_there = is_file || may_name_file && is_link(operand, terms);
        if tops.root.is_none() && tops.named == 0 && !(is_there && may_name_file) {
            // Nothing is selected: nothing is made.
            return Ok(Self::imagined(operand));
        }
        if may_name_file { Self::file(operand, terms) } else { Self::create(operand, terms) }
    }

    /// Opens the target of an operand that names a file: its parent is the root.
    fn file(operand: &Path, terms: Terms<'_>) -> Result<Self, SyncError> {
        let Terms { options, start, .. } = terms;
        if options.event_tree && !options.dry_run {
            let why = "needs a directory as destination, and this one is the name of a file".to_owned();
            return Err(SyncError::InvalidOption { option: "event_tree", why });
        }
        let parent = match operand.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let name = operand.file_name().unwrap_or_default().as_bytes();
        let name = start.spelling.map_or(Cow::Borrowed(name), |spelling| spelling.to_there(name));
        let name = Component::new(&name).map_err(|_| SyncError::DestinationUnusable {
            path: operand.to_owned(),
            source: io::ErrorKind::InvalidInput.into(),
        })?;

        let root = match start.open(parent, operator_links(options)) {
            Ok(root) => root,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if !options.mkpath {
                    return Err(SyncError::DestinationParentMissing { path: parent.to_owned() });
                }
                let mut target = Self::create_missing(parent, terms)?;
                target.rename = Some(name);
                return Ok(target);
            }
            Err(source) => return Err(unusable(parent, source)),
        };
        Ok(Self::with_root(parent, root, Some(name), options))
    }

    /// Creates the target of an operand that names a directory that does not exist.
    fn create(operand: &Path, terms: Terms<'_>) -> Result<Self, SyncError> {
        let Terms { options, start, .. } = terms;
        if is_link(operand, terms) {
            let source = io::Error::other("it is a link that leads nowhere");
            return Err(SyncError::DestinationUnusable { path: operand.to_owned(), source });
        }
        let parent = operand
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or_else(|| Path::new("."));
        if !options.mkpath
            && let Err(source) = start.open(parent, operator_links(options))
        {
            let path = parent.to_owned();
            return Err(match source.kind() {
                io::ErrorKind::NotFound => SyncError::DestinationParentMissing { path },
                io::ErrorKind::NotADirectory => SyncError::DestinationIsFile { path: file_on(parent, terms) },
                _ => unusable(&path, source),
            });
        }
        Self::create_missing(operand, terms)
    }

    /// Returns a root that does not exist and is not made.
    fn imagined(path: &Path) -> Self {
        Self { path: path.to_owned(), root: None, rename: None, created: true }
    }

    fn create_missing(
        path: &Path,
        Terms { options, start, hands, .. }: Terms<'_>,
    ) -> Result<Self, SyncError> {
        let imagined = Self::imagined(path);
        if let Some((base, below)) = imagined.missing(options, start) {
            if below.components().any(|part| part == path::Component::ParentDir) {
                // Once the parts are made it leads to a directory that no guard has seen.
                let source = io::Error::other("'..' follows a directory that does not exist");
                return Err(unusable(path, source));
            }
            refused_places::refuse_from_missing(&options.writing, &base, &below)?;
            if let Some(alternates) = &options.writing.alternates {
                let _ = Alternates::open(alternates, &base, &below)?;
            }
        }

        match hands.create_root(|| start.create(path, options.mkpath, operator_links(options))) {
            Ok(Some(root)) => Ok(Self { created: true, ..Self::with_root(path, root, None, options) }),
            Ok(None) => Ok(imagined),
            Err(error) if error.kind() == io::ErrorKind::NotFound && options.mkpath => {
                Err(unusable(path, io::Error::other("a link on the way to it leads nowhere")))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(SyncError::DestinationParentMissing { path: path.to_owned() })
            }
            Err(source) => Err(unusable(path, source)),
        }
    }

    fn with_root(path: &Path, root: Dir, rename: Option<Component>, options: &SyncOptions) -> Self {
        let root = root.with_fake_super(options.fake_super.destination);
        let root = Some(Arc::new(root));
        Self { path: path.to_owned(), root, rename, created: false }
    }
}

fn unusable(path: &Path, source: io::Error) -> SyncError {
    SyncError::of_path(PathRole::Destination, path, source, |path, source| SyncError::DestinationUnusable {
        path,
        source,
    })
}

/// Waits a little for another run to end: single files that are copied to one place at the same
/// time follow each other, while a run that overlaps with a long one is refused.
fn wait_for_lock(root: &Dir, wait: Duration, halt: &Halt) -> io::Result<Option<DirLock>> {
    // A time that no clock holds has no end.
    let until = Instant::now().checked_add(wait);
    let has_time = || until.is_none_or(|until| Instant::now() < until);
    loop {
        match root.try_lock()? {
            None if has_time() && !halt.stopped() => std::thread::sleep(crate::halt::POLL),
            result => return Ok(result),
        }
    }
}

/// Time to wait for another run.
const LOCK_WAIT: Duration = Duration::from_secs(3);
/// Time to wait for this run's own far end, from when it notices that the connection broke. It holds the
/// lock until the parts of files are on the disk, which a busy or sleeping disk makes wait for minutes.
const OWN_END_WAIT: Duration = Duration::from_secs(600);

/// Returns whether an operand is itself a symbolic link.
fn is_link(operand: &Path, Terms { options, start, .. }: Terms<'_>) -> bool {
    let parent = operand.parent().filter(|parent| !parent.as_os_str().is_empty());
    let Ok(dir) = start.open(parent.unwrap_or_else(|| Path::new(".")), operator_links(options)) else {
        return false;
    };
    let name = operand.file_name().and_then(|name| Component::new(name.as_bytes()).ok());
    name.is_some_and(|name| dir.stat(&name).is_ok_and(|found| found.kind == Kind::Symlink))
}

/// Returns what is no directory on the way to an operand, with the operand itself.
fn file_on(operand: &Path, Terms { options, start, .. }: Terms<'_>) -> PathBuf {
    let is_directory = |path: &Path| start.open(path, operator_links(options)).is_ok();
    let is_below_one = |path: &&Path| {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        is_directory(parent.unwrap_or_else(|| Path::new(".")))
    };
    operand.ancestors().find(is_below_one).unwrap_or(operand).components().collect()
}

fn is_absent_or_file(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dsync_wire::{frame::ControlSender, link::Link};

    use super::*;
    use crate::session::ControlOut;

    #[test]
    fn a_wait_that_no_clock_holds_is_no_panic() {
        let (here, _there) = dsync_transport::memory::pair();
        let here: Arc<dyn Link> = Arc::new(here);
        let control = Arc::new(ControlOut::new(ControlSender::new(here.open_lane().unwrap().tx)));
        let halt = Halt::new(here, control);
        let scratch = tempfile::tempdir().unwrap();
        let root = Dir::open_operand(scratch.path()).unwrap();
        assert!(wait_for_lock(&root, Duration::MAX, &halt).unwrap().is_some());
    }
}
