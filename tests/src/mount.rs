//! Mounts of one test's own, removed with it.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    run::Run,
    skip::{self, is_root},
};

/// Length of an image, which is sparse: mkfs.xfs accepts no less than 300 MiB.
const IMAGE_BYTES: u64 = 400 << 20;

/// A mounted directory; unmounted when dropped.
#[derive(Debug)]
pub struct Mount {
    at: PathBuf,
}

impl Mount {
    /// Mounts a directory a second time; returns `None`, recorded as a skip, if the process may not
    /// mount.
    pub fn bind(from: &Path, at: &Path) -> Option<Self> {
        Self::with(&[OsStr::new("--bind"), from.as_os_str()], at)
    }

    /// Mounts an empty memory filesystem with the options of tmpfs(5); returns `None`, recorded as
    /// a skip, if the process may not.
    pub fn tmpfs(at: &Path, options: &str) -> Option<Self> {
        Self::with(&["-t", "tmpfs", "-o", options, "none"].map(OsStr::new), at)
    }

    /// Runs mount(8) with these arguments and the mount point; returns `None`, recorded as a skip,
    /// if it fails.
    pub fn with(args: &[&OsStr], at: &Path) -> Option<Self> {
        let mounted = is_root()
            && Command::new("mount").args(args).arg(at).output().is_ok_and(|output| output.status.success());
        if !mounted {
            skip::record(skip::Reason::NeedsLoop);
        }
        mounted.then(|| Self { at: at.to_owned() })
    }

    /// Makes a filesystem of this type (`ext4`, `xfs`, `btrfs`, or `tmpfs` without an image) and
    /// mounts it; returns `None`, recorded as a skip, if the process may not.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn of_type(kind: &str, at: &Path) -> Option<Self> {
        fs::create_dir(at).expect("a mount point");
        if kind == "tmpfs" {
            return Self::tmpfs(at, "size=50%");
        }
        let image = at.with_extension("img");
        fs::File::create(&image).and_then(|file| file.set_len(IMAGE_BYTES)).expect("an image");
        let _ = Run::of(format!("mkfs.{kind}"))
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .arg("-q")
            .arg(&image)
            .run()
            .expect_code(0);
        Self::with(&["-o".as_ref(), "loop".as_ref(), image.as_os_str()], at)
    }

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Changes a block with this content below the filesystem of [`Mount::of_type`], whose blocks have
    /// 1 KiB or more: that leaves no trace in any time.
    ///
    /// # Panics
    /// If there is none: what was written has to be on the disk.
    pub fn lose_block(&self, wanted: &[u8]) {
        let image = fs::File::options().read(true).write(true).open(self.at.with_extension("img"));
        let image = image.expect("the image");
        let mut block = [0; 1024];
        let len = image.metadata().expect("a file").len();
        let at = (0..len).step_by(block.len()).find(|&at| {
            image.read_exact_at(&mut block, at).expect("a block");
            wanted.starts_with(&block)
        });
        image.write_all_at(b"lost", at.expect("the file's block")).expect("room");
    }

    /// Changes its options, e.g. to `ro`.
    ///
    /// # Panics
    /// If the system refuses.
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
