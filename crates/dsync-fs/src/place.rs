//! Where an open directory is, for refusing to copy a tree into itself.

use std::{
    ffi::OsString,
    io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::ffi::OsStringExt,
    },
    path::PathBuf,
};

use rustix::fs::readlink;

use crate::dir::Dir;

impl Dir {
    /// The absolute path of the directory without links, as the kernel knows it now. For comparing and
    /// for messages only: by the time it is used it may lead elsewhere.
    ///
    /// # Errors
    /// What the system says, e.g. when `/proc` is not mounted.
    pub fn real_path(&self) -> io::Result<PathBuf> {
        let link = format!("/proc/self/fd/{}", self.as_fd().as_raw_fd());
        Ok(OsString::from_vec(readlink(link, Vec::new())?.into_bytes()).into())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_reached_through_a_link_is_where_the_link_leads() {
        let scratch = tempfile::tempdir().unwrap();
        let real = scratch.path().join("real");
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, scratch.path().join("link")).unwrap();
        let dir = Dir::open_operand(&scratch.path().join("link")).unwrap();
        assert_eq!(dir.real_path().unwrap(), real.canonicalize().unwrap());
    }
}
