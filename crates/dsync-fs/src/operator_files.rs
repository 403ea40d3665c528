//! Files that the operator names beside the trees: patterns, lists, a log.
//!
//! The law is that of an operator's directories (module `dir::trusted`): no link of another user is on
//! the way, and within the destination none at all. There only a regular file is opened, as a
//! source may have made a fifo, which would keep the run waiting, or a device.

use std::{
    fs::File,
    io,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::Path,
    sync::Arc,
};

use rustix::{
    fs::{CWD, OFlags, fcntl_getfl, fcntl_setfl},
    io::Errno,
};

use crate::{
    dir::{Dir, Links, Walk, Within},
    metadata::Kind,
    source_file::stat_fd,
};

/// The rules for opening files that the operator names.
///
/// ```
/// use std::io::Write as _;
///
/// use dsync_fs::{Links, OperatorFiles};
///
/// # let home = tempfile::tempdir()?;
/// # let (path, destination) = (home.path().join("log"), home.path().join("backups"));
/// # std::fs::create_dir(&destination)?;
/// // What lies in the destination is the source's, so a link there is never the operator's.
/// let files = OperatorFiles::new(Links::Trusted).with_destination(&destination);
/// files.append(&path)?.write_all(b"begun\n")?;
/// assert_eq!(files.open(&path)?.metadata()?.len(), 6);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct OperatorFiles {
    links: Links,
    destination: Option<Arc<Dir>>,
}

impl OperatorFiles {
    /// Opens files through these links. Default: those of root and of this process's user.
    pub fn new(links: Links) -> Self {
        Self { links, destination: None }
    }

    /// Treats what is within this directory, or within that of a file, as a source's. A directory
    /// that cannot be opened has nothing of a source's.
    #[must_use]
    pub fn with_destination(mut self, path: &Path) -> Self {
        let open = |path| Dir::open_destination(path, self.links);
        let opened = match open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                open(parent.unwrap_or_else(|| Path::new(".")))
            }
            opened => opened,
        };
        self.destination = opened.ok().map(Arc::new);
        self
    }

    /// Opens a file for reading. The file itself may be a link that is followed.
    ///
    /// # Errors
    /// The system's error; [`UntrustedLink`](crate::UntrustedLink) for a link that is not followed.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        self.open_as(path, READ)
    }

    /// Opens a regular file for reading. Nothing else is waited for: no fifo that nobody writes to.
    ///
    /// ```
    /// use std::{io::ErrorKind, path::Path};
    ///
    /// use dsync_fs::{Links, OperatorFiles};
    ///
    /// let refused = OperatorFiles::new(Links::Trusted).open_regular(Path::new("/dev/null"));
    /// assert_eq!(refused.err().map(|error| error.kind()), Some(ErrorKind::InvalidInput));
    /// ```
    ///
    /// # Errors
    /// As [`open`](Self::open); [`InvalidInput`](io::ErrorKind::InvalidInput) for another kind of file.
    pub fn open_regular(&self, path: &Path) -> io::Result<File> {
        let file = self.open_as(path, READ | OFlags::NONBLOCK)?;
        match stat_fd(file.as_fd())?.kind {
            Kind::File => Ok(file),
            Kind::Dir => Err(Errno::ISDIR.into()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
        }
    }

    /// Opens a file for adding to its end; creates it if it is missing. A fifo that nobody reads is not waited
    /// for.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn append(&self, path: &Path) -> io::Result<File> {
        let file = self.open_as(path, APPEND | OFlags::NONBLOCK)?;
        fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
        Ok(file)
    }

    /// Opens the directory of a file that is to be made or replaced.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn directory_of(&self, path: &Path) -> io::Result<Dir> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        Dir::open_beside(parent.unwrap_or_else(|| Path::new(".")), self.links, self.destination.as_deref())
    }

    fn open_as(&self, path: &Path, how: OFlags) -> io::Result<File> {
        let root = self.destination.as_deref();
        let within = if path.is_absolute() { Within::of(root)? } else { Within::at(root, CWD)? };
        let mut walk = Walk::new(CWD, self.links);
        walk.within = within;

        let _ = walk.push(path.as_os_str().as_bytes(), true);
        walk.begin(path.as_os_str().as_bytes())?;
        match walk.open_last(how)? {
            Some(fd) => Ok(File::from(fd)),
            None if path.as_os_str().is_empty() => Err(Errno::NOENT.into()),
            None => Err(Errno::ISDIR.into()),
        }
    }
}

/// Opens a file of the operator's own for reading, whatever the destination is.
///
/// # Errors
/// As [`OperatorFiles::open`].
///
/// ```
/// use dsync_fs::{Links, UntrustedLink, append_operator_file, open_operator_file};
///
/// # let home = tempfile::tempdir()?;
/// # let path = home.path().join("log");
/// // A log in a directory that others can write to: their links are not followed.
/// append_operator_file(&path, Links::Trusted)?;
/// match open_operator_file(&path, Links::Trusted) {
///     Err(error) if UntrustedLink::of(&error).is_some() => {
///         eprintln!("somebody laid a trap: {error}")
///     }
///     opened => assert_eq!(opened?.metadata()?.len(), 0),
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn open_operator_file(path: &Path, links: Links) -> io::Result<File> {
    OperatorFiles::new(links).open(path)
}

/// Opens a file of the operator's own for adding to its end, whatever the destination is; creates
/// it if it is missing.
///
/// # Errors
/// As [`OperatorFiles::open`].
pub fn append_operator_file(path: &Path, links: Links) -> io::Result<File> {
    OperatorFiles::new(links).append(path)
}

/// Flags for reading a file that the operator names, a pipe included.
const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// For adding to what the operator names.
const APPEND: OFlags =
    OFlags::WRONLY.union(OFlags::APPEND).union(OFlags::CREATE).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::*;
    use crate::UntrustedLink;

    #[test]
    fn a_log_is_made_and_added_to_through_links_of_the_own_user() {
        use std::io::Write as _;

        let scratch = tempfile::tempdir().unwrap();
        let at = |path: &str| scratch.path().join(path);
        std::fs::create_dir(at("dir")).unwrap();
        symlink("dir/log", at("link")).unwrap();
        for text in ["one ", "two"] {
            let mut file = append_operator_file(&at("link"), Links::Trusted).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(at("dir/log")).unwrap(), "one two");
        assert!(append_operator_file(&at("dir"), Links::Trusted).is_err());
        assert!(append_operator_file(&at("none/log"), Links::Trusted).is_err());
        if rustix::process::geteuid().is_root() {
            lchown(at("link"), Some(65_534), None).unwrap();
            assert!(append_operator_file(&at("link"), Links::Trusted).is_err());
        }
    }

    #[test]
    fn a_file_is_reached_as_the_kernel_reaches_it() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |path: &str| scratch.path().join(path);
        std::fs::create_dir(at("dir")).unwrap();
        std::fs::write(at("dir/file"), "rules").unwrap();
        symlink("dir/file", at("link")).unwrap();
        symlink(at("link"), at("dir/back")).unwrap();
        symlink("none", at("dangling")).unwrap();
        let read = |path: &Path| open_operator_file(path, Links::Trusted).and_then(std::io::read_to_string);
        for path in ["dir/file", "link", "dir/back", "dir/../dir/./file"] {
            assert_eq!(read(&at(path)).unwrap(), "rules", "{path}");
        }
        for path in ["dangling", "none", "dir", "dir/", "link/x"] {
            let (ours, theirs) =
                (read(&at(path)).unwrap_err(), std::fs::read_to_string(at(path)).unwrap_err());
            assert_eq!(ours.raw_os_error(), theirs.raw_os_error(), "{path}");
        }
        // A fifo that nobody writes to is not waited for, and neither is anything else taken for a file.
        rustix::fs::mknodat(CWD, at("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        for (path, kind) in [
            ("fifo", io::ErrorKind::InvalidInput),
            ("dir", io::ErrorKind::IsADirectory),
            ("none", io::ErrorKind::NotFound),
        ] {
            let opened = OperatorFiles::default().open_regular(&at(path));
            assert_eq!(opened.unwrap_err().kind(), kind, "{path}");
        }
        let text = OperatorFiles::default().open_regular(&at("link")).and_then(std::io::read_to_string);
        assert_eq!(text.unwrap(), "rules");
        let open = File::open(at("dir/file")).unwrap();
        let by_number = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open));
        assert_eq!(read(Path::new(&by_number)).unwrap(), "rules");
        if rustix::process::geteuid().is_root() {
            lchown(at("link"), Some(65_534), None).unwrap();
            let error = read(&at("dir/back")).unwrap_err();
            let expected = UntrustedLink::OfAnother { path: at("link"), uid: 65_534 };
            assert_eq!(*UntrustedLink::of(&error).unwrap(), expected);
            assert!(open_operator_file(&at("dir/back"), Links::Any).is_ok());
        }
    }
}
