//! Temporary files in a directory that is not their target's, and the leftovers of killed runs
//! there.
//!
//! Such a directory has no run's lock, because several runs may use it at once. Each file there is
//! instead locked as long as it is written. The law: a file is removed there only if it has a name
//! of this kind, is a regular file of this user alone, and nobody has it locked.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use rustix::fs::{FlockOperation, Mode, OFlags, openat};

use crate::{
    component::Component,
    dir::{Dir, retry},
    kept::open_own,
    metadata::Kind,
    own_names::{APART_PREFIX, hex_name, is_apart_name},
    source_file::stat_fd,
    staged::{StagedFile, TempName, random_bytes},
    sys::lock_file,
};

impl StagedFile {
    /// Creates an empty temporary file in `home`, mode 0600, to become `target` in `dir`. If the
    /// two are on different filesystems, [`prepare`](Self::prepare) copies it.
    ///
    /// # Errors
    /// The system's error.
    pub fn create_apart(home: &Arc<Dir>, dir: &Arc<Dir>, target: Component) -> io::Result<Self> {
        loop {
            let name = hex_name(APART_PREFIX, &random_bytes()?)?;
            let charge = dir.charge_new(&target)?;
            let fd = create(home, &name)?;
            // Another run may have removed it as abandoned before it was locked.
            if stat_fd(fd.as_fd())?.nlink > 0 {
                return Ok(Self::assemble(Some(TempName::new(home, name, charge)), fd, dir, target));
            }
        }
    }
}

/// Removes a temporary file made outside its target's directory, if the run that made it has ended.
/// Returns `false` for a file that is being written or that is not this user's.
pub fn reap(home: &Dir, name: &Component) -> bool {
    if !is_apart_name(name.as_bytes()) {
        return false;
    }
    let Ok(fd) = open_own(home, name) else { return false };
    let same =
        |now: crate::Metadata| stat_fd(fd.as_fd()).is_ok_and(|own| (own.dev, own.ino) == (now.dev, now.ino));
    home.stat(name).is_ok_and(same) && home.remove_file(name).is_ok()
}

/// Removes the leftovers of killed runs from a directory.
pub fn reap_all(home: &Dir) {
    let entries = home.list().entries.into_iter();
    let abandoned = entries.filter(|(name, found)| {
        is_apart_name(name.as_bytes()) && found.as_ref().is_ok_and(|found| found.kind == Kind::File)
    });
    abandoned.for_each(|(name, _)| _ = reap(home, &name));
}

fn create(home: &Dir, name: &Component) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let name = home.spelled(name)?;
    let fd = retry(|| openat(home, &*name, flags, Mode::from_raw_mode(0o600)))?;
    lock_file(&fd, FlockOperation::LockExclusive)?;
    Ok(fd)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;
    use crate::{attributes::Wanted, commit::Durability};

    fn dir(path: &std::path::Path) -> Arc<Dir> {
        fs::create_dir_all(path).unwrap();
        Arc::new(Dir::open_operand(path).unwrap())
    }

    #[test]
    fn only_what_a_run_left_behind_is_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let (home, target) = (dir(&scratch.path().join("home")), dir(&scratch.path().join("dst")));
        let at = |name: &str| scratch.path().join("home").join(name);
        let name = |digit: &str| format!(".dsync-away-{}", digit.repeat(32));
        let own = |path: &std::path::Path| {
            fs::write(path, "x").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        };
        own(&at(&name("1")));
        own(&at(&name("2")));
        fs::set_permissions(at(&name("2")), fs::Permissions::from_mode(0o644)).unwrap();
        own(&at(&name("3")));
        fs::hard_link(at(&name("3")), at("other name")).unwrap();
        std::os::unix::fs::symlink("other name", at(&name("4"))).unwrap();
        own(&at(".dsync-away-1"));
        let written = StagedFile::create_apart(&home, &target, Component::new(b"f").unwrap()).unwrap();
        reap_all(&home);
        assert!(!at(&name("1")).exists());
        let left = |dir: &str| fs::read_dir(scratch.path().join(dir)).unwrap().count();
        assert_eq!(left("home"), 6, "what is not a dead run's was removed");
        written.write_all_at(0, b"content").unwrap();
        written.prepare(&Wanted::default(), None, Durability::None).unwrap().commit().unwrap();
        assert_eq!(fs::read(scratch.path().join("dst/f")).unwrap(), b"content");
        assert_eq!((left("home"), left("dst")), (5, 1));
    }
}
