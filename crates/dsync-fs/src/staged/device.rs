//! Devices that are written into: opened for one writer alone.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    thread,
    time::Duration,
};

use rustix::fs::{Mode, OFlags, openat};

use super::StagedFile;
use crate::{
    component::Component,
    dir::{Dir, retry, wrong_type},
    metadata::Kind,
    source_file::stat_fd,
};

impl StagedFile {
    /// Opens the device `target` of `dir` for writing its content. Neither makes it nor changes its
    /// length or attributes. A block device that the system uses, as a mounted one, is refused
    /// after a second.
    ///
    /// # Errors
    /// The system's error, e.g. `EBUSY`; [`InvalidInput`](io::ErrorKind::InvalidInput) if the entry
    /// is no device.
    pub fn open_device(dir: &Arc<Dir>, target: Component) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;

        let on_disk = dir.spelled(&target)?;
        let open = |flags| retry(|| openat(&**dir, &*on_disk, flags, Mode::empty()));
        let fd = match dir.stat(&target)?.kind {
            // Without O_CREAT it means that nobody else has the device to himself.
            Kind::BlockDevice => unless_busy(|| open(flags | OFlags::EXCL))?,
            Kind::CharDevice => open(flags)?,
            _ => return Err(wrong_type()),
        };
        if !stat_fd(fd.as_fd())?.is_device() {
            return Err(wrong_type());
        }

        Ok(Self { is_device: true, ..Self::assemble(None, fd, dir, target) })
    }

    /// Returns whether this is a device.
    pub fn is_device(&self) -> bool {
        self.is_device
    }
}

/// Repeats an exclusive open of a device that another process has to itself, 20 times in a second:
/// programs that attach or probe devices (losetup, mount) claim one for an instant.
fn unless_busy(mut open: impl FnMut() -> io::Result<OwnedFd>) -> io::Result<OwnedFd> {
    for _ in 1..BUSY_TRIES {
        match open() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => thread::sleep(BUSY_PAUSE),
            result => return result,
        }
    }
    open()
}

/// Number of times that a busy device is opened, and the pause between two of them.
const BUSY_TRIES: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_device_that_is_busy_for_a_moment_is_opened_and_one_that_stays_so_is_not() {
        let busy = || io::Error::from(Errno::BUSY);
        let mut tries = 0;
        let opened = unless_busy(|| {
            tries += 1;
            if tries < 3 { Err(busy()) } else { io::stdin().as_fd().try_clone_to_owned() }
        });
        assert!(opened.is_ok() && tries == 3, "{tries} tries");

        let mut tries = 0;
        let error = unless_busy(|| {
            tries += 1;
            Err(busy())
        })
        .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        assert_eq!(tries, BUSY_TRIES);

        let error = unless_busy(|| Err(io::ErrorKind::PermissionDenied.into())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
