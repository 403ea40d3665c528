//! Loop devices: block devices whose content is a file.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::{
    power::SYSTEM_PATH,
    run::Run,
    skip::{self, is_root},
};

/// A block device that is detached when dropped.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    /// Makes a device with this content, whose file is in `dir`; returns `None`, recorded as a skip,
    /// if the process may not.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn create(dir: &Path, name: &str, content: &[u8]) -> Option<Self> {
        let image = dir.join(name);
        fs::write(&image, content).expect("an image");
        let attach = || Run::of("losetup").env("PATH", SYSTEM_PATH).args(["-f", "--show"]).arg(&image).run();
        let attached = is_root().then(attach).filter(|outcome| outcome.code() == Some(0));
        if attached.is_none() {
            skip::record(skip::Reason::NeedsLoop);
        }
        let path = PathBuf::from(attached?.stdout_text().trim());
        Some(Self { path })
    }

    /// Returns its path in /dev.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes another node of it.
    ///
    /// # Panics
    /// If the system refuses.
    pub fn node(&self, path: &Path) {
        let number = fs::metadata(&self.path).expect("the device").rdev();
        mknodat(CWD, path, FileType::BlockDevice, Mode::from_raw_mode(0o640), number).expect("a node");
    }

    /// Returns its content.
    ///
    /// # Panics
    /// If it cannot be read.
    pub fn content(&self) -> Vec<u8> {
        fs::read(&self.path).expect("the device's content")
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Run::of("losetup").env("PATH", SYSTEM_PATH).arg("-d").arg(&self.path).run();
    }
}
