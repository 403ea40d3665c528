//! Lines at the end of a configuration, written by a program.
//!
//! The law: the file becomes the old text and the new lines behind it, or stays as it is, however
//! this ends. It keeps its owner, its group and its mode.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use rustix::{
    fs::{
        AtFlags, FlockOperation, Gid, Mode, OFlags, Uid, fchmod, fchown, flock, openat, renameat, unlinkat,
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
    flock(&dir, FlockOperation::LockExclusive).map_err(|errno| failed(errno.into()))?;
    if Config::read(&real).map_err(NotAdded::Config)?.text != before {
        return Err(NotAdded::Changed);
    }

    let text = [before, lines].concat();
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(".new");
    let written = replace(&dir, name.as_ref(), beside.as_ref(), text.as_bytes());
    written.map_err(|error| {
        // The unfinished file is nobody's.
        let _ = unlinkat(&dir, &beside, AtFlags::empty());
        failed(error)
    })
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
