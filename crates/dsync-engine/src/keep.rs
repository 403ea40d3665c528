//! The place for what clients of [`Access::Keep`](crate::Access::Keep) replace and remove: a
//! directory beyond every path of theirs, with a dated one in it for each session.
//!
//! The law: what came here stays until its administrator removes it. A session makes a directory
//! that nobody had before, holds it while it lasts, and only adds to it; an entry that cannot come here
//! stays where it was.

use dsync_wire::setters;
use std::{
    io::{self, ErrorKind},
    path::PathBuf,
    sync::Arc,
};

use dsync_fs::{Component, Dir, Meter, Usage};

/// The place of one session's entries in a share.
///
/// ```
/// use dsync_engine::{Access, Keeping, Share};
///
/// # let home = tempfile::tempdir()?;
/// // What the client replaces or removes today moves to `.kept/agent-7/2026-11-26`.
/// let share = Share::new("backups".into(), home.path().into());
/// let keeping = Keeping::new(".kept/agent-7".into(), "2026-11-26".into());
/// let grant = share.grant(Access::Keep, Some("agent-7".as_ref()), Some(keeping))?;
/// assert_eq!(grant.terms().path, home.path().join("agent-7"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Keeping {
    /// The key's directory of kept entries in the share: plain names, made when it is missing. It
    /// has to lie outside of the directory that the key may use.
    pub directory: PathBuf,
    /// The name of the session's directory in it.
    pub session: String,
}

impl Keeping {
    /// Makes the place of a session.
    pub fn new(directory: PathBuf, session: String) -> Self {
        Self { directory, session }
    }
}

setters!(Keeping { directory: PathBuf, session: String });

/// A key's directory of kept entries, open.
#[derive(Debug)]
pub(crate) struct Keep {
    /// The number of the system's error if there is none and it cannot be made.
    dir: Result<Dir, i32>,
    session: String,
}

impl Keep {
    /// Takes the key's directory. One that a read-only or full filesystem has not yet, and cannot have
    /// now, holds up only a session that has something to keep.
    ///
    /// # Errors
    /// Any other reason why there is no directory.
    pub(crate) fn new(dir: io::Result<Dir>, session: String) -> io::Result<Self> {
        let dir = match dir {
            Ok(dir) => Ok(dir),
            Err(error) => match (error.kind(), error.raw_os_error()) {
                (
                    ErrorKind::ReadOnlyFilesystem | ErrorKind::StorageFull | ErrorKind::QuotaExceeded,
                    Some(why),
                ) => Err(why),
                _ => return Err(error),
            },
        };
        Ok(Self { dir, session })
    }

    /// Returns another handle of the key's directory.
    pub(crate) fn duplicate(&self) -> io::Result<Dir> {
        self.open()?.duplicate()
    }

    /// Counts what the key's sessions kept.
    pub(crate) fn usage(&self) -> io::Result<Usage> {
        self.dir.as_ref().map_or_else(|_| Ok(Usage::default()), Dir::usage)
    }

    fn open(&self) -> io::Result<&Dir> {
        self.dir.as_ref().map_err(|why| io::Error::from_raw_os_error(*why))
    }

    /// Makes the session's directory, which only adds. Called at the first entry, so that a session
    /// that replaces nothing leaves none. What is kept counts for the key's quota.
    pub(crate) fn begin(&self, meter: Option<&Arc<Meter>>) -> io::Result<Arc<Dir>> {
        let dir = self.duplicate()?.metered(meter.cloned());
        let mut tried = 1;
        loop {
            let name = if tried == 1 { self.session.clone() } else { format!("{}-{tried}", self.session) };
            let name = Component::new(name.as_bytes())
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            match dir.make_dir(&name, 0o700) {
                // Another session of the key began in the same moment.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tried < MOST_AT_ONCE => {
                    tried += 1;
                }
                made => {
                    made?;
                    let own = dir.open_child(&name)?.adding_only(true);
                    if let Err(error) = own.hold() {
                        tracing::debug!(%error, "a directory of kept entries cannot be held");
                    }
                    return Ok(Arc::new(own));
                }
            }
        }
    }
}

/// Sessions of a key that may begin to keep in one millisecond.
const MOST_AT_ONCE: u32 = 1000;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::fs;

    use dsync_fs::BackupPlace;

    use super::*;

    #[test]
    fn sessions_of_one_moment_have_directories_of_their_own_and_replace_nothing() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |path: &str| scratch.path().join(path);
        fs::create_dir_all(at("kept")).unwrap();
        fs::create_dir_all(at("tree")).unwrap();
        let keep = Keep::new(Dir::open_operand(&at("kept")), "moment".into()).unwrap();
        let (one, two) = (keep.begin(None).unwrap(), keep.begin(None).unwrap());
        assert!(at("kept/moment").is_dir() && at("kept/moment-2").is_dir() && !one.is_same(&two).unwrap());

        let tree = Dir::open_operand(&at("tree")).unwrap();
        let name = Component::new(b"a").unwrap();
        let place = BackupPlace::new(one, name.clone());
        fs::write(at("tree/a"), "first").unwrap();
        place.keep(&tree, &name).unwrap();
        // The name goes as well where the entry is there already.
        place.take(&tree, &name).unwrap();
        assert!(!at("tree/a").exists());
        // Another entry of the name stays in its place.
        fs::write(at("tree/a"), "second").unwrap();
        assert!(place.keep(&tree, &name).is_err() && place.take(&tree, &name).is_err());
        assert!(place.copy(&tree, &name).is_err());
        assert_eq!(fs::read(at("kept/moment/a")).unwrap(), b"first");
        assert_eq!(fs::read(at("tree/a")).unwrap(), b"second");
    }
}
