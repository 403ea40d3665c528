//! A share of a server that stands: a directory with a name, and the evidence that it is there.
//!
//! The law: an empty directory never stands for a share whose disk is not mounted. A share says how
//! it is recognised ([`Share::marker`], [`Share::mounted`]); without that evidence nobody gets a
//! grant, and nothing is created.

use dsync_wire::setters;
use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Component as Step, Path, PathBuf},
};

use dsync_fs::{Component, Dir, Kind, RemoveError, Spare};

use crate::{
    Access, Grant, GrantTerms,
    keep::{Keep, Keeping},
};

/// A directory that a server offers under a name.
///
/// ```
/// use dsync_engine::{Access, Share, ShareError};
///
/// # let home = tempfile::tempdir()?;
/// let share = Share::new("photos".into(), home.path().into()).marker(Some(".is-mounted".into()));
/// // The disk is not there: nobody writes to the empty directory below its mount point.
/// assert!(matches!(share.check(), Err(ShareError::NoMarker { .. })));
///
/// std::fs::write(home.path().join(".is-mounted"), "")?;
/// share.check()?;
/// let directory = "phone".as_ref();
/// assert!(Share::admits(directory) && !Share::admits("../elsewhere".as_ref()));
/// let grant = share.grant(Access::Append, Some(directory), None)?;
/// # let _ = grant;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Share {
    /// The name by which clients ask for it.
    pub name: String,
    /// The directory. Its path is the administrator's and may pass through any link.
    pub path: PathBuf,
    /// The name of an entry that must be in the directory.
    pub marker: Option<OsString>,
    /// Whether the directory must be on another filesystem than its parent.
    pub mounted: bool,
}

impl Share {
    /// Makes a share without conditions.
    pub fn new(name: String, path: PathBuf) -> Self {
        Self { name, path, marker: None, mounted: false }
    }
}

setters!(Share {
    name: String,
    path: PathBuf,
    marker: Option<OsString>,
    mounted: bool,
});

/// The reason why a share cannot be used now.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShareError {
    /// The directory cannot be opened, or its marker cannot be looked up.
    #[error("the directory of share '{share}' cannot be opened")]
    Missing {
        /// The share.
        share: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The marker is not there.
    #[error("share '{share}' is not there: its directory has no entry '{}' (is its disk mounted?)", marker.display())]
    NoMarker {
        /// The share.
        share: String,
        /// The name of the entry.
        marker: OsString,
    },
    /// The directory is on the filesystem of its parent.
    #[error("share '{share}' is not there: nothing is mounted at its directory")]
    NotMounted {
        /// The share.
        share: String,
    },
    /// The client's directory of kept entries is on another filesystem than the client's own, so that
    /// nothing can move there.
    #[error(
        "the directory '{}' in share '{share}' is on another filesystem than what the key replaces, so nothing could be \
         replaced or removed",
        directory.display()
    )]
    Apart {
        /// The share.
        share: String,
        /// The directory of kept entries, from the share's on.
        directory: PathBuf,
    },
    /// The key's directory in the share cannot be opened or made.
    #[error("the directory '{}' in share '{share}' cannot be used", directory.display())]
    Directory {
        /// The share.
        share: String,
        /// The directory, from the share's on.
        directory: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl Share {
    /// Returns whether a path can be a key's directory in a share: plain names only, and at least
    /// one.
    pub fn admits(directory: &Path) -> bool {
        let mut steps = directory.components().peekable();
        steps.peek().is_some() && steps.all(|step| matches!(step, Step::Normal(_)))
    }

    /// Opens the share for a client: its directory, or a `directory` in it, which is made if it is
    /// missing. No link in the share is followed to it. With `keeping`, what the client replaces
    /// and removes moves there; [`Access::Keep`] needs it.
    ///
    /// # Errors
    /// [`ShareError`].
    pub fn grant(
        &self,
        access: Access,
        directory: Option<&Path>,
        keeping: Option<Keeping>,
    ) -> Result<Grant, ShareError> {
        let missing = |source| ShareError::Missing { share: self.name.clone(), source };
        let root = self.open()?;

        let unusable = |directory: &Path, source| ShareError::Directory {
            share: self.name.clone(),
            directory: directory.to_owned(),
            source,
        };
        let open_keep = |Keeping { directory, session }| {
            let dir = root.duplicate().and_then(|root| descend(root, &directory));
            Keep::new(dir, session).map_err(|source| unusable(&directory, source))
        };
        let keep = keeping.map(open_keep).transpose()?;

        let mut path = self.path.clone();
        let mut floor = root;
        if let Some(directory) = directory {
            floor = descend(floor, directory).map_err(|source| unusable(directory, source))?;
            path.push(directory);
        }

        let terms = GrantTerms { path, access, share: Some(self.name.clone()) };
        Grant::at(terms, floor, keep).map_err(missing)
    }

    /// Opens the directory if the evidence is there.
    ///
    /// # Errors
    /// [`ShareError`].
    fn open(&self) -> Result<Dir, ShareError> {
        let missing = |source| ShareError::Missing { share: self.name.clone(), source };
        let root = Dir::open_operand(&self.path).map_err(missing)?;

        if let Some(marker) = &self.marker {
            match component(marker).and_then(|name| root.stat(&name)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(ShareError::NoMarker { share: self.name.clone(), marker: marker.clone() });
                }
                // It may be there: a user who may not enter the directory has the same disk mounted.
                found => found.map_err(missing)?,
            };
        }
        if self.mounted {
            let above = Dir::open_operand(&self.path.join("..")).map_err(missing)?;
            if above.device().map_err(missing)? == root.device().map_err(missing)? {
                return Err(ShareError::NotMounted { share: self.name.clone() });
            }
        }

        Ok(root)
    }

    /// Removes directories of sessions with what they kept: in each key's directory in `kept`, those
    /// whose name `is_over` is true of, except of sessions that have not ended. Returns their number,
    /// and the errors of those that stayed in part.
    ///
    /// # Errors
    /// [`ShareError`].
    ///
    /// ```
    /// # let home = tempfile::tempdir()?;
    /// # std::fs::create_dir_all(home.path().join(".kept/agent-7/2026-10-01"))?;
    /// # std::fs::create_dir_all(home.path().join(".kept/agent-7/2026-11-26"))?;
    /// use dsync_engine::Share;
    ///
    /// // What was replaced or removed before November goes.
    /// let share = Share::new("backups".into(), home.path().into());
    /// let (removed, errors) = share.clean(".kept".as_ref(), |session| session < "2026-11")?;
    /// assert_eq!((removed, errors.len()), (1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn clean(
        &self,
        kept: &Path,
        is_over: impl Fn(&OsStr) -> bool,
    ) -> Result<(usize, Vec<io::Error>), ShareError> {
        let root = self.open()?;
        let Some(place) = find(root, kept).map_err(|source| ShareError::Directory {
            share: self.name.clone(),
            directory: kept.to_owned(),
            source,
        })?
        else {
            return Ok((0, Vec::new()));
        };

        let (mut removed, mut errors) = (0, Vec::new());
        // Directories that a client could not write into were kept with their files.
        let all = Spare { unlocks: true, ..Spare::NOTHING };
        for name in directories(&place, kept, &mut errors) {
            let Ok(key) = place.open_child(&name) else { continue };
            let above = kept.join(OsStr::from_bytes(name.as_bytes()));
            for session in directories(&key, &above, &mut errors) {
                let is_over = is_over(OsStr::from_bytes(session.as_bytes()));
                // A clock that was put right makes a session of today one of long ago.
                if !is_over || key.open_child(&session).is_ok_and(|session| session.is_held()) {
                    continue;
                }
                match key.remove_tree(&session, all, &mut |_, _| {}) {
                    Ok(()) => removed += 1,
                    Err(RemoveError { path, source }) => {
                        let path = above.join(OsStr::from_bytes(path.as_bytes()));
                        errors.push(io::Error::other(Uncleaned { does: "remove", path, source }));
                    }
                }
            }
        }
        Ok((removed, errors))
    }

    /// Checks that the share is there.
    ///
    /// # Errors
    /// [`ShareError`].
    pub fn check(&self) -> Result<(), ShareError> {
        self.open().map(drop)
    }

    /// Checks that a client's directory could be opened or made, and that what the client replaces
    /// could move to the directory of `kept` entries, if there is one. Makes nothing, and asks for no
    /// permission to write.
    ///
    /// # Errors
    /// [`ShareError`], as of [`grant`](Self::grant); [`ShareError::Apart`], which shows there when an
    /// entry is replaced.
    ///
    /// ```
    /// # let home = tempfile::tempdir()?;
    /// # std::os::unix::fs::symlink("elsewhere", home.path().join("agent-7"))?;
    /// use dsync_engine::Share;
    ///
    /// // Somebody has put a link in the place of the agent's directory: its sessions are refused.
    /// let share = Share::new("backups".into(), home.path().into());
    /// assert!(share.check_directory(Some("agent-7".as_ref()), None).is_err());
    /// assert!(share.check_directory(Some("agent-8".as_ref()), None).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_directory(&self, directory: Option<&Path>, kept: Option<&Path>) -> Result<(), ShareError> {
        let root = self.open()?;
        let device_at = |directory: &Path| {
            let found =
                root.duplicate().and_then(|root| nearest(root, directory)).and_then(|dir| dir.device());
            found.map_err(|source| ShareError::Directory {
                share: self.name.clone(),
                directory: directory.to_owned(),
                source,
            })
        };

        let own = device_at(directory.unwrap_or_else(|| Path::new("")))?;
        match kept {
            Some(kept) if device_at(kept)? != own => {
                Err(ShareError::Apart { share: self.name.clone(), directory: kept.to_owned() })
            }
            _ => Ok(()),
        }
    }
}

/// Opens a directory below another one step by step, or the last one on the way that there is.
fn nearest(mut dir: Dir, path: &Path) -> io::Result<Dir> {
    for step in path.components() {
        match dir.open_child(&component(step.as_os_str())?) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            opened => dir = opened?,
        }
    }
    Ok(dir)
}

/// Opens a directory below another one step by step, and makes what is missing.
fn descend(mut dir: Dir, path: &Path) -> io::Result<Dir> {
    for step in path.components() {
        let Step::Normal(step) = step else { return Err(io::ErrorKind::InvalidInput.into()) };
        let name = component(step)?;
        dir = match dir.open_child(&name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match dir.make_dir(&name, 0o700) {
                    // Another session of the same key may have made it meanwhile.
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                    _ => dir.open_child(&name)?,
                }
            }
            opened => opened?,
        };
    }
    Ok(dir)
}

/// Opens a directory below another one step by step; `None` if it was never made.
fn find(mut dir: Dir, path: &Path) -> io::Result<Option<Dir>> {
    for step in path.components() {
        match dir.open_child(&component(step.as_os_str())?) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => dir = opened?,
        }
    }
    Ok(Some(dir))
}

/// An entry that keeps a share from being cleaned whole, by its path in the share.
#[derive(Debug, thiserror::Error)]
#[error("cannot {does} '{}'", path.display())]
struct Uncleaned {
    does: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Lists the directories in the directory of this path in the share.
fn directories(dir: &Dir, path: &Path, errors: &mut Vec<io::Error>) -> Vec<Component> {
    let listed = dir.list();
    let unread = |source| io::Error::other(Uncleaned { does: "list", path: path.to_owned(), source });
    errors.extend(listed.error.map(unread));
    let found = listed.entries.into_iter();
    let dirs = found.filter(|(_, entry)| entry.as_ref().is_ok_and(|entry| entry.kind == Kind::Dir));
    dirs.map(|(name, _)| name).collect()
}

fn component(name: &OsStr) -> io::Result<Component> {
    Component::new(name.as_bytes()).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    fn share(path: &Path) -> Share {
        Share { name: "nas".into(), path: path.to_owned(), marker: None, mounted: false }
    }

    #[test]
    fn a_share_whose_marker_or_mount_is_missing_is_refused_and_nothing_is_made() {
        let scratch = tempfile::tempdir().unwrap();
        let plain = share(scratch.path());
        let marked = Share { marker: Some("here".into()), ..plain.clone() };
        let mounted = Share { mounted: true, ..plain.clone() };
        let gone = share(&scratch.path().join("gone"));
        let below = Some(Path::new("web1"));
        assert!(matches!(marked.grant(Access::Append, below, None), Err(ShareError::NoMarker { .. })));
        assert!(matches!(mounted.grant(Access::Append, below, None), Err(ShareError::NotMounted { .. })));
        assert!(matches!(gone.grant(Access::Append, below, None), Err(ShareError::Missing { .. })));
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);

        fs::write(scratch.path().join("here"), "").unwrap();
        let grant = marked.grant(Access::Append, below, None).unwrap();
        assert_eq!(grant.terms().path, scratch.path().join("web1"));
        assert!(scratch.path().join("web1").is_dir());
        // A filesystem of its own: the kernel's.
        let proc = Share { mounted: true, ..share(Path::new("/proc")) };
        proc.check().unwrap();
    }

    #[test]
    fn a_marker_that_cannot_be_looked_up_is_no_missing_disk() {
        let scratch = tempfile::tempdir().unwrap();
        // No filesystem has names of this length: the look-up fails, and not because nothing is there.
        let long = Share { marker: Some("m".repeat(255 + 1).into()), ..share(scratch.path()) };
        let error = long.check().unwrap_err();
        assert!(matches!(&error, ShareError::Missing { .. }), "{error:?}");
        let short = Share { marker: Some("m".repeat(255).into()), ..share(scratch.path()) };
        assert!(matches!(short.check(), Err(ShareError::NoMarker { .. })));
    }

    #[test]
    fn what_a_session_keeps_is_not_cleaned_before_it_has_ended() {
        let scratch = tempfile::tempdir().unwrap();
        let share = share(scratch.path());
        let keeping = Keeping::new(".kept/web1".into(), "1970-01-01".into());
        let grant = share.grant(Access::Keep, Some(Path::new("web1")), Some(keeping)).unwrap();
        let start = crate::grant::Start::of(Some(grant), None);
        let kept = start.keep().unwrap().begin(None).unwrap();
        let clean = || share.clean(Path::new(".kept"), |_| true).unwrap().0;
        assert_eq!(clean(), 0);
        assert!(scratch.path().join(".kept/web1/1970-01-01").is_dir());
        drop(kept);
        assert_eq!(clean(), 1);
        assert!(!scratch.path().join(".kept/web1/1970-01-01").exists());
    }

    #[test]
    fn a_keys_directory_is_reached_through_no_link() {
        let scratch = tempfile::tempdir().unwrap();
        fs::create_dir(scratch.path().join("share")).unwrap();
        fs::create_dir(scratch.path().join("outside")).unwrap();
        symlink("../outside", scratch.path().join("share/web1")).unwrap();
        let share = share(&scratch.path().join("share"));
        for directory in ["web1", "web1/deeper"] {
            let directory = Path::new(directory);
            let refused = share.grant(Access::ReadWrite, Some(directory), None);
            assert!(matches!(refused, Err(ShareError::Directory { .. })), "{directory:?}");
            for (own, kept) in [(directory, None), (Path::new("other"), Some(directory))] {
                let checked = share.check_directory(Some(own), kept);
                assert!(matches!(checked, Err(ShareError::Directory { .. })), "{directory:?}");
            }
        }
        share.check_directory(Some(Path::new("other/deeper")), Some(Path::new("kept/other"))).unwrap();
        share.check_directory(None, None).unwrap();
        assert_eq!(fs::read_dir(scratch.path().join("share")).unwrap().count(), 1);
        assert_eq!(fs::read_dir(scratch.path().join("outside")).unwrap().count(), 0);
    }

    #[test]
    fn only_plain_names_lead_to_a_keys_directory() {
        for good in ["web1", "laptops/web1", "web1/"] {
            assert!(Share::admits(Path::new(good)), "{good}");
        }
        for bad in ["", "/", "/srv", "..", "web1/..", "../web1", "./web1"] {
            assert!(!Share::admits(Path::new(bad)), "{bad}");
        }
    }

    #[test]
    fn only_kept_entries_whose_time_is_over_go() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |path: &str| scratch.path().join(path);
        let share = share(scratch.path());
        let over = |name: &OsStr| name == "old";
        assert_eq!(share.clean(Path::new("kept"), over).unwrap().0, 0);
        assert!(!at("kept").exists());

        for dir in ["kept/web1/old/locked", "kept/web1/new", "kept/web2/old", "old"] {
            fs::create_dir_all(at(dir)).unwrap();
            fs::write(at(dir).join("file"), "kept").unwrap();
        }
        fs::write(at("kept/old"), "no directory").unwrap();
        symlink("../../old", at("kept/web1/link")).unwrap();
        symlink("../old", at("kept/web3")).unwrap();
        fs::set_permissions(at("kept/web1/old/locked"), PermissionsExt::from_mode(0o500)).unwrap();
        let (removed, errors) = share.clean(Path::new("kept"), over).unwrap();
        assert!(removed == 2 && errors.is_empty(), "{removed} {errors:?}");
        for gone in ["kept/web1/old", "kept/web2/old"] {
            assert!(!at(gone).exists(), "{gone}");
        }
        for stays in ["kept/web1/new/file", "kept/old", "old/file"] {
            assert!(at(stays).exists(), "{stays}");
        }
        // A link in place of the directory leads nowhere.
        symlink("kept", at("alias")).unwrap();
        assert!(share.clean(Path::new("alias"), over).is_err());
    }
}
