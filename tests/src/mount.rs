//! Mounts of one test's own, gone with it.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

use crate::skip::{self, is_root};

/// A mounted directory; unmounted when dropped.
#[derive(Debug)]
pub struct Mount {
    at: PathBuf,
}

impl Mount {
    /// Mounts a directory a second time; `None`, recorded as a skip, where the process may not mount.
    pub fn bind(from: &Path, at: &Path) -> Option<Self> {
        Self::with(&[OsStr::new("--bind"), from.as_os_str()], at)
    }

    /// Mounts an empty memory filesystem with the options of tmpfs(5); `None`, recorded
    /// as a skip, where the process may not.
    pub fn tmpfs(at: &Path, options: &str) -> Option<Self> {
        Self::with(&["-t", "tmpfs", "-o", options, "none"].map(OsStr::new), at)
    }

    /// Runs mount(8) with these arguments and the mount point; `None`, recorded as a skip, when it fails.
    pub fn with(args: &[&OsStr], at: &Path) -> Option<Self> {
        let mounted = is_root()
            && Command::new("mount").args(args).arg(at).output().is_ok_and(|output| output.status.success());
        if !mounted {
            skip::record(skip::Reason::NeedsLoop);
        }
        mounted.then(|| Self { at: at.to_owned() })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Changes its options, e.g. to `ro`.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        let output = Command::new("mount").args(["-o", &options]).arg(&self.at).output().expect("mount");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.at).output();
    }
}
