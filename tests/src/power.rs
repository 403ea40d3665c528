//! Disks whose power can be cut: a filesystem image on a loop device, stopped by the shutdown
//! ioctl.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    run::{Run, wait_for},
    skip::{self, is_root},
};

/// The format of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// ext4.
    Ext4,
    /// ext4 with inodes of 128 bytes, which have room for whole seconds only.
    Ext4Seconds,
    /// XFS.
    Xfs,
}

impl Format {
    /// Returns the formatting program, its arguments, and the smallest image that it accepts, in
    /// MiB.
    fn maker(self) -> (&'static str, &'static [&'static str], u64) {
        match self {
            Self::Ext4 => ("mkfs.ext4", &["-q"], 1),
            Self::Ext4Seconds => ("mkfs.ext4", &["-q", "-I", "128"], 1),
            Self::Xfs => ("mkfs.xfs", &["-q"], 300),
        }
    }
}

/// A mounted filesystem in a file.
#[derive(Debug)]
pub struct Disk {
    image: PathBuf,
    mounted: PathBuf,
}

impl Disk {
    /// Makes an image in `dir` and mounts it there; returns `None`, recorded as a skip, if the
    /// process may not.
    ///
    /// # Panics
    /// If the image cannot be made.
    pub fn create(dir: &Path, format: Format, mib: u64) -> Option<Self> {
        let (image, mounted) = (dir.join("disk.img"), dir.join("disk"));
        let (program, args, least) = format.maker();
        fs::create_dir(&mounted).expect("a mount point");
        let file = fs::File::create(&image).expect("an image");
        file.set_len(mib.max(least) << 20).expect("the image's length");
        drop(file);
        let _ = Run::of(program).env("PATH", SYSTEM_PATH).args(args).arg(&image).run().expect_code(0);
        let disk = Self { image, mounted };
        let mounted = is_root() && disk.mount();
        if !mounted {
            skip::record(skip::Reason::NeedsLoop);
        }
        mounted.then_some(disk)
    }

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        &self.mounted
    }

    /// Cuts the power: data that is only in memory is lost, and the journal is not flushed. Then
    /// mounts again, as after a boot.
    ///
    /// # Panics
    /// If the system refuses, for minutes.
    pub fn cut_power(&self) {
        // _IOR('X', 125, __u32) is the shutdown ioctl of ext4 and XFS; 2 is their flag NOLOGFLUSH.
        // perl is essential on Debian, and this package has no unsafe code.
        let script =
            r#"open(F, "<", $ARGV[0]) or die; my $f = pack("L", 2); ioctl(F, 0x8004587d, $f) or die "$!""#;
        let _ = Run::of("perl").args(["-e", script]).arg(&self.mounted).run().expect_code(0);
        // A remote end has the destination open for a moment after its client has ended.
        wait_for(|| self.unmount());
        if self.is_attached() {
            self.copy_image();
        }
        // Another process may take the loop device that mount has found free.
        wait_for(|| self.mount());
    }

    /// Returns whether the kernel still has the filesystem: a mount namespace that another process
    /// made meanwhile also holds the mount. Mounting the same file would then find the dead
    /// filesystem again.
    fn is_attached(&self) -> bool {
        let losetup = Run::of("losetup").env("PATH", SYSTEM_PATH);
        let attached = losetup.arg("-j").arg(&self.image).run().expect_code(0);
        !attached.stdout_text().is_empty()
    }

    /// Replaces the image by a copy: another file, so another device.
    fn copy_image(&self) {
        let copy = self.image.with_extension("copy");
        let _ = Run::of("cp").arg("--sparse=always").arg(&self.image).arg(&copy).run().expect_code(0);
        fs::rename(&copy, &self.image).expect("the copy in the image's place");
    }

    fn mount(&self) -> bool {
        let status = Command::new("mount").args(["-o", "loop"]).arg(&self.image).arg(&self.mounted).output();
        status.is_ok_and(|output| output.status.success())
    }

    fn unmount(&self) -> bool {
        Command::new("umount").arg(&self.mounted).output().is_ok_and(|output| output.status.success())
    }
}

/// Path of the programs for disks, which a user's path may not include.
pub(crate) const SYSTEM_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

impl Drop for Disk {
    fn drop(&mut self) {
        self.unmount();
    }
}
