//! Disks whose caches are cold: the tree lies on a filesystem of its own, mounted anew before each run.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use dsync_tests::{
    Run,
    delayed_image::{Delay, DelayedImage},
};

/// One disk: its name on the command line, its filesystem, and its delay beyond that of the machine's
/// own disk.
pub(crate) struct Kind {
    name: &'static str,
    format: &'static str,
    delay: Option<Delay>,
}

/// All disks.
pub(crate) static KINDS: [Kind; 4] = [
    Kind { name: "ext4", format: "ext4", delay: None },
    Kind { name: "xfs", format: "xfs", delay: None },
    Kind { name: "hard-disk", format: "ext4", delay: Some(Delay::Seek(Duration::from_millis(8))) },
    Kind { name: "volume", format: "ext4", delay: Some(Delay::RoundTrip(Duration::from_millis(5))) },
];

impl Kind {
    /// Returns the disk of this name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// Returns its name on the command line.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }
}

/// A disk in a file, mounted; it goes with the value.
pub(crate) struct Disk {
    // Dropped before the directory that it is in.
    delayed: Option<DelayedImage>,
    image: PathBuf,
    mounted: PathBuf,
    dir: tempfile::TempDir,
}

impl Disk {
    /// Makes a disk in a directory.
    ///
    /// # Panics
    /// If the system refuses: this needs root, loop devices and for some disks FUSE.
    pub(crate) fn create(kind: &Kind, dir: &Path) -> Self {
        let dir = tempfile::Builder::new().prefix("dsync-disk-").tempdir_in(dir).expect("a directory");
        let (plain, mounted) = (dir.path().join("image"), dir.path().join("disk"));
        fs::create_dir(&mounted).expect("a mount point");
        let file = fs::File::create(&plain).expect("an image");
        file.set_len(LENGTH).expect("its length");
        drop(file);
        let force = if kind.format == "ext4" { "-F" } else { "-f" };
        let _ = Run::of(format!("mkfs.{}", kind.format)).args(["-q", force]).arg(&plain).run().expect_code(0);

        let delayed = kind.delay.map(|delay| {
            let at = dir.path().join("delayed");
            fs::create_dir(&at).expect("a mount point");
            DelayedImage::mount(&plain, &at, delay).expect("FUSE")
        });
        let image = delayed.as_ref().map_or(plain, |delayed| delayed.path().to_owned());
        let disk = Self { delayed, image, mounted, dir };
        disk.mount();
        disk
    }

    /// Returns the mount point.
    pub(crate) fn path(&self) -> &Path {
        &self.mounted
    }

    /// Empties the caches: whatever a run reads comes from the disk.
    ///
    /// # Panics
    /// If a process still uses the disk.
    pub(crate) fn cool(&self) {
        self.unmount();
        fs::write("/proc/sys/vm/drop_caches", "3").expect("root");
        self.mount();
    }

    /// Mounts it without the cache of a loop device's file, which would be a second one.
    fn mount(&self) {
        let script = r#"device=$(losetup --direct-io=on --find --show "$1") && mount "$device" "$2"
            mounted=$?; losetup --detach "$device"; exit $mounted"#;
        let _ =
            Run::of("sh").args(["-c", script, "sh"]).args([&self.image, &self.mounted]).run().expect_code(0);
    }

    fn unmount(&self) {
        let _ = Run::of("umount").arg(&self.mounted).run().expect_code(0);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Run::of("umount").arg(&self.mounted).run();
        drop(self.delayed.take());
        debug_assert!(self.dir.path().exists());
    }
}

/// Bytes of a disk: its file is sparse.
const LENGTH: u64 = 16 << 30;
