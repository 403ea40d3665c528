//! Lines at the end of a configuration, written by a program.
//!
//! The law: the file becomes the old text and the new lines behind it, or stays as it is, however
//! this ends. It keeps its owner, its group and its mode. Only who may write to its directory can keep
//! others from adding: anybody who may read a directory may lock its handle, so the lock is a file
//! there that its owner alone may open.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
    thread,
    time::Duration,
};

use rustix::{
    fs::{
        AtFlags, FlockOperation, Gid, Mode, OFlags, Uid, fchmod, fchown, flock, fstat, openat, renameat,
        statat, unlinkat,
    },
    io::Errno,
};

use super::{Config, ConfigError};
use crate::words::system_words;

/// The reason why lines were not added.
#[derive(Debug)]
pub(crate) enum NotAdded {
    /// The file has another text than the one that the lines are for.
    Changed,
    /// Another process is adding lines, and does not end.
    Busy,
    /// The file cannot be read any more.
    Config(ConfigError),
    /// It cannot be written, with the reason in words.
    Written(String),
}

/// Writes a configuration anew with lines behind its text, if its text is still `before`.
///
/// # Errors
/// [`NotAdded`]; the file is what it was.
#[expect(clippy::disallowed_methods, reason = "the operator's own file, whose directories were judged")]
pub(crate) fn add_lines(path: &Path, before: &str, lines: &str) -> Result<(), NotAdded> {
    let failed = |error: io::Error| NotAdded::Written(system_words(&error));
    let real = path.canonicalize().map_err(failed)?;
    let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
        return Err(failed(io::ErrorKind::InvalidInput.into()));
    };
    let dir = File::open(parent).map_err(failed)?;

    // Who adds at the same time waits here, and finds what was added first.
    let Some(_lock) = Lock::take(&dir, beside(name, ".lock")).map_err(failed)? else {
        return Err(NotAdded::Busy);
    };
    if Config::read(&real).map_err(NotAdded::Config)?.text != before {
        return Err(NotAdded::Changed);
    }

    let text = [before, lines].concat();
    let beside = beside(name, ".new");
    let written = replace(&dir, name.as_ref(), beside.as_ref(), text.as_bytes());
    written.map_err(|error| {
        // The unfinished file is nobody's.
        let _ = unlinkat(&dir, &beside, AtFlags::empty());
        failed(error)
    })
}

/// Returns the hidden name beside a file's that ends like this.
fn beside(name: &OsStr, end: &str) -> OsString {
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(end);
    beside
}

/// The lock of those who add lines to a configuration: a file beside it, as long as this is held.
struct Lock<'a> {
    dir: &'a File,
    name: OsString,
    _file: File,
}

impl<'a> Lock<'a> {
    /// Takes the lock; `None` if somebody else holds it all the time. One that a killed process has left is
    /// taken over.
    fn take(dir: &'a File, name: OsString) -> io::Result<Option<Self>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        for _ in 0..TRIES {
            let file = File::from(openat(dir, &name, flags, Mode::RUSR | Mode::WUSR)?);
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // Who had it before may have removed its name meanwhile.
                Ok(()) if is_named(dir, &name, &file)? => return Ok(Some(Self { dir, name, _file: file })),
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => thread::sleep(BETWEEN_TRIES),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(None)
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // Before it is unlocked, so that nobody gets a lock without a name unnoticed.
        let _ = unlinkat(self.dir, &self.name, AtFlags::empty());
    }
}

/// Returns whether a name of the directory is that of an open file.
fn is_named(dir: &File, name: &OsStr, file: &File) -> io::Result<bool> {
    let own = fstat(file)?;
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(named) => Ok((named.st_dev, named.st_ino) == (own.st_dev, own.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Writes a file beside another one of the same directory and puts it in its place.
fn replace(dir: &File, name: &Path, beside: &Path, text: &[u8]) -> io::Result<()> {
    let old =
        File::from(openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?);
    let old = old.metadata()?;
    // One that was left by a crash.
    match unlinkat(dir, beside, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }

    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut new = File::from(openat(dir, beside, flags, Mode::RUSR | Mode::WUSR)?);
    new.write_all(text)?;
    let made = new.metadata()?;
    if (made.uid(), made.gid()) != (old.uid(), old.gid()) {
        fchown(&new, Some(Uid::from_raw(old.uid())), Some(Gid::from_raw(old.gid())))?;
    }
    fchmod(&new, Mode::from_raw_mode(old.mode() & 0o7777))?;
    new.sync_all()?;
    renameat(dir, beside, dir, name)?;
    dir.sync_all()
}

/// Attempts to take the lock, and the time between two: ten seconds together. Lines are added within one,
/// and who enrolls a client is told before he gives up.
const TRIES: u32 = 100;
const BETWEEN_TRIES: Duration = Duration::from_millis(100);
