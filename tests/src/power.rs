//! Disks whose power can be cut: an ext4 image on a loop device, stopped by the shutdown ioctl.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{run::Run, skip::is_root};

/// A mounted ext4 filesystem in a file.
#[derive(Debug)]
pub struct Disk {
    image: PathBuf,
    mounted: PathBuf,
}

impl Disk {
    /// Makes an image in `dir` and mounts it there; `None` where the process may not mount.
    ///
    /// # Panics
    /// When the image cannot be made.
    pub fn create(dir: &Path, mib: u64) -> Option<Self> {
        let (image, mounted) = (dir.join("disk.img"), dir.join("disk"));
        fs::create_dir(&mounted).expect("a mount point");
        let file = fs::File::create(&image).expect("an image");
        file.set_len(mib << 20).expect("the image's length");
        drop(file);
        let _ = Run::of("mkfs.ext4")
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .arg("-q")
            .arg(&image)
            .run()
            .expect_code(0);
        let disk = Self { image, mounted };
        (is_root() && disk.mount()).then_some(disk)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mounted
    }

    /// Cuts the power: what is in memory only is lost, the journal is not flushed. Then mounts again, as
    /// after a boot.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn cut_power(&self) {
        // _IOR('X', 125, __u32) is the ext4 shutdown ioctl; 2 is EXT4_GOING_FLAGS_NOLOGFLUSH. perl is
        // essential on Debian, and this package has no unsafe code.
        let script =
            r#"open(F, "<", $ARGV[0]) or die; my $f = pack("L", 2); ioctl(F, 0x8004587d, $f) or die "$!""#;
        let _ = Run::of("perl").args(["-e", script]).arg(&self.mounted).run().expect_code(0);
        assert!(self.unmount(), "the dead filesystem cannot be unmounted");
        assert!(self.mount(), "the filesystem cannot be mounted after the power cut");
    }

    fn mount(&self) -> bool {
        let status = Command::new("mount").args(["-o", "loop"]).arg(&self.image).arg(&self.mounted).output();
        status.is_ok_and(|output| output.status.success())
    }

    fn unmount(&self) -> bool {
        Command::new("umount").arg(&self.mounted).output().is_ok_and(|output| output.status.success())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.unmount();
    }
}
