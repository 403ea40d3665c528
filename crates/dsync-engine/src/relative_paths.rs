//! The paths of [`Source::Files`](crate::Source::Files): names from a program instead of a list in a
//! file.
//!
//! Law: the run copies what [`Job::files_from`](crate::Job::files_from) would copy of the same names,
//! as it is the same list that they go to. The iterator is asked once, before anything starts, and its
//! names do not stay in memory: lists outgrow it into a file. A path that could not be an entry of the
//! root is refused; nothing is reinterpreted.

use std::{
    fmt, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use dsync_fs::{FileList, FileListError};

use crate::{CancelToken, Manifest, ManifestError, Resources, SyncError};

/// Paths below one directory, in any order and number, from an iterator.
///
/// Each path is that of an entry, without `..` and not absolute. A slash at its end stands for what
/// is in the directory, as on the lines of `--files-from`. Names that come twice are one.
///
/// Clones share the iterator: the first run asks it, and those that follow have the same paths.
///
/// A run that fails or is cancelled while it takes the paths has spent the iterator: clones end with
/// [`SyncError::FileList`](crate::SyncError::FileList) then, and the job is made again with a new one.
///
/// Cost: memory does not grow with the number of paths: beyond a mebibyte they go to an unnamed file
/// in [`Resources::spool_dir`].
///
/// ```
/// use dsync_engine::{CancelToken, Destination, Job, RelativePaths, Silent, Source, SyncOptions};
///
/// # let home = tempfile::tempdir()?;
/// # let (from, to) = (home.path().join("from"), home.path().join("to"));
/// # std::fs::create_dir(&from)?;
/// # std::fs::write(from.join("note"), "short")?;
/// # std::fs::write(from.join("other"), "not asked for")?;
/// // A database's rows, which are read one by one and can fail.
/// let rows = [Ok("note".into())];
/// let source = Source::Files { root: from, relative: RelativePaths::fallible(rows) };
/// let job =
///     Job::new(source, Destination::Local { path: to.clone() }).options(SyncOptions::archive());
/// job.run(&Silent, &CancelToken::new())?;
/// assert!(to.join("note").exists() && !to.join("other").exists());
///
/// // Of what is in memory already:
/// let paths = RelativePaths::new(["photos/one", "photos/two"]);
/// # let _ = paths;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RelativePaths(Arc<Mutex<Names>>);

type Iter = Box<dyn Iterator<Item = io::Result<PathBuf>> + Send>;

enum Names {
    Unasked(Iter),
    Listed(FileList),
    /// The iterator failed, and cannot be asked again.
    Lost,
}

impl RelativePaths {
    /// Makes the paths of an iterator. It is asked by the thread that runs the job.
    pub fn new<P: Into<PathBuf>>(paths: impl IntoIterator<Item = P, IntoIter: Send + 'static>) -> Self {
        Self::fallible(paths.into_iter().map(|path| Ok(path.into())))
    }

    /// Makes the paths of an iterator that can fail, such as a database's. The first error ends the
    /// run before anything has started, with [`SyncError::FileList`].
    pub fn fallible(paths: impl IntoIterator<Item = io::Result<PathBuf>, IntoIter: Send + 'static>) -> Self {
        Self(Arc::new(Mutex::new(Names::Unasked(Box::new(paths.into_iter())))))
    }

    /// Makes the paths of a manifest's entries. The one of the root is on the way to them.
    ///
    /// # Errors
    /// As [`Manifest::open`].
    pub(crate) fn of_manifest(manifest: &Manifest) -> Result<Self, ManifestError> {
        let paths = manifest.reader()?.filter_map(|record| match record {
            Ok(record) if record.path.is_empty() => None,
            Ok(record) => Some(Ok(record.path.into())),
            Err(error) => Some(Err(io::Error::other(error))),
        });
        Ok(Self::fallible(paths))
    }

    /// Returns the list of the paths, which it collects at the first call.
    ///
    /// # Errors
    /// [`SyncError::InvalidPath`]; [`SyncError::FileList`]; [`SyncError::Cancelled`]. The paths are lost
    /// then.
    ///
    /// # Panics
    /// If the iterator does; the paths are lost then too.
    pub(crate) fn list(&self, resources: &Resources, cancel: &CancelToken) -> Result<FileList, SyncError> {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *names, Names::Lost) {
            Names::Listed(list) => {
                *names = Names::Listed(list.clone());
                Ok(list)
            }
            Names::Unasked(paths) => {
                let list = collect(paths, resources, cancel)?;
                *names = Names::Listed(list.clone());
                Ok(list)
            }
            Names::Lost => Err(unreadable(FileListError::Read(io::Error::other(
                "an earlier run took its paths and failed: make the job again with a new iterator",
            )))),
        }
    }
}

/// Collects the paths of an iterator.
fn collect(paths: Iter, resources: &Resources, cancel: &CancelToken) -> Result<FileList, SyncError> {
    let mut list = resources.file_list(true);
    for path in paths {
        if cancel.is_cancelled() {
            return Err(SyncError::Cancelled);
        }
        let path = path.map_err(|error| unreadable(FileListError::Read(error)))?;
        let line = line(&path).map_err(|why| SyncError::InvalidPath { path: path.clone(), why })?;
        list.push(&line).map_err(unreadable)?;
    }
    list.finish().map_err(unreadable)
}

/// Returns a path as a line whose entry has just this path at the destination.
fn line(path: &Path) -> Result<Vec<u8>, &'static str> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.starts_with(b"/") {
        return Err("it is absolute");
    }

    let mut line = Vec::with_capacity(bytes.len());
    // Without `.`: `a/./b` on a line stands for `b`, taken from `a`.
    for name in bytes.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b".")) {
        if name == b".." {
            return Err("it has '..'");
        }
        if name.contains(&0) {
            return Err("it has a zero byte");
        }
        line.extend((!line.is_empty()).then_some(b'/'));
        line.extend_from_slice(name);
    }
    if line.is_empty() {
        return Err("it is the directory itself, not a path in it");
    }
    line.extend((bytes.ends_with(b"/") || bytes.ends_with(b"/.")).then_some(b'/'));
    Ok(line)
}

fn unreadable(source: FileListError) -> SyncError {
    SyncError::FileList { path: None, source }
}

impl<P: Into<PathBuf>> FromIterator<P> for RelativePaths {
    /// Collects the paths in memory; [`RelativePaths::new`] does not.
    fn from_iter<I: IntoIterator<Item = P>>(paths: I) -> Self {
        Self::new(paths.into_iter().map(Into::into).collect::<Vec<PathBuf>>())
    }
}

impl fmt::Debug for RelativePaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelativePaths").finish_non_exhaustive()
    }
}

/// Values are equal if they share an iterator.
impl PartialEq for RelativePaths {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for RelativePaths {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_an_entry_or_refused() {
        for (path, expected) in [
            ("a", Ok("a")),
            ("./a//b/./c", Ok("a/b/c")),
            ("#a", Ok("#a")),
            (";a", Ok(";a")),
            ("d/", Ok("d/")),
            ("d/.", Ok("d/")),
            ("..a/b..", Ok("..a/b..")),
            ("", Err("it is the directory itself, not a path in it")),
            ("./", Err("it is the directory itself, not a path in it")),
            ("/a", Err("it is absolute")),
            ("a/../b", Err("it has '..'")),
            ("a\0", Err("it has a zero byte")),
        ] {
            let found = line(Path::new(path));
            let expected = expected.map(|line: &str| line.as_bytes().to_vec());
            assert_eq!(found, expected, "{path}");
        }
    }
}
