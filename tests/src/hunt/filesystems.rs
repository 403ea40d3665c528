//! The filesystems that cases run on: images on a memory filesystem, mounted where nobody else sees
//! them.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

/// A mounted filesystem.
#[derive(Debug, Clone)]
pub(super) struct Filesystem {
    pub name: String,
    pub root: PathBuf,
    /// A directory on another filesystem, if there is one.
    pub beside: PathBuf,
    /// The file that has its content, unless it is part of the memory filesystem of all.
    image: Option<PathBuf>,
    room: Room,
}

impl Filesystem {
    fn new(name: &str, root: PathBuf, image: Option<PathBuf>) -> Self {
        let (room, beside) = (Room::of(&root), root.clone());
        Self { name: name.to_owned(), root, beside, image, room }
    }

    /// Returns whether it has less room than a case may need.
    pub(super) fn is_full(&self) -> bool {
        self.room.is_used_up()
    }

    /// Makes it anew and empty, if it has an image; returns whether it did.
    ///
    /// # Panics
    /// If the new one cannot be made or mounted.
    pub(super) fn make_anew(&self) -> bool {
        let Some(image) = &self.image else { return false };
        // A process that still has a file open there keeps the old one to itself.
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.root).output();
        assert!(unmounted.is_ok_and(|output| output.status.success()), "{}: umount", self.root.display());
        fs::remove_file(image).expect("an image to remove");

        assert!(make(image, &self.name, &self.root), "{}: a new filesystem", self.root.display());
        true
    }
}

/// The room that a filesystem had when it was empty. Others may use it too where nothing can be
/// mounted, so its size alone says nothing.
#[derive(Debug, Clone)]
pub(super) struct Room {
    at: PathBuf,
    bytes: u64,
    files: u64,
}

impl Room {
    /// Notes the room that is left at a directory.
    ///
    /// # Panics
    /// If it cannot be read.
    pub(super) fn of(at: &Path) -> Self {
        let state = rustix::fs::statvfs(at).expect("the state of a filesystem");
        Self { at: at.to_owned(), bytes: state.f_bavail * state.f_frsize, files: state.f_ffree }
    }

    /// Returns whether most of it is used up: no case needs as much.
    pub(super) fn is_used_up(&self) -> bool {
        let now = Self::of(&self.at);
        now.bytes < self.bytes / LEAST_PART || now.files < self.files / LEAST_PART
    }
}

/// Part of its room below which a filesystem is full.
const LEAST_PART: u64 = 4;

/// Arguments for the mount that has all others.
const BASE: &[&str] = &["-t", "tmpfs", "-o", "size=8g,mode=755", "none"];

/// Length of an image, which is sparse; each has room for the trees of two workers.
const IMAGE_BYTES: u64 = 600 << 20;

/// Length of the image of btrfs: it gives back what was removed late, and filled up in an hour.
const BTRFS_BYTES: u64 = 3 << 30;

/// Mounts those of the wanted filesystems that this machine can, below `place`; without mounts,
/// returns `place` itself.
///
/// # Panics
/// If the directory cannot be used.
pub(super) fn prepare(place: &Place, wanted: &[String]) -> Vec<Filesystem> {
    let mut ready = Vec::new();
    let base = place.path();
    let is_mounted = match place {
        Place::Mounts(_) => true,
        Place::Temporary(_) => may_mount() && mount(BASE, base),
    };
    if is_mounted {
        for name in wanted {
            let root = base.join(name);
            fs::create_dir_all(&root).expect("a mount point");
            let image = (name != "tmpfs").then(|| base.join(format!("{name}.image")));
            if image.as_ref().is_none_or(|image| make(image, name, &root)) {
                ready.push(Filesystem::new(name, root, image));
            } else {
                println!("hunt: {name} cannot be mounted here and is left out");
            }
        }
    }
    if ready.is_empty() {
        println!("hunt: nothing can be mounted here; cases run in {} only", base.display());
        ready.push(Filesystem::new("here", base.to_owned(), None));
    } else if let [alone] = &mut ready[..] {
        alone.beside = base.join("beside");
        fs::create_dir_all(&alone.beside).expect("a mount point");
        mount(&["-t", "tmpfs", "-o", "size=1g,mode=755", "none"], &alone.beside);
    } else {
        let roots: Vec<PathBuf> = ready.iter().map(|filesystem| filesystem.root.clone()).collect();
        let next = roots.iter().cycle().skip(1);
        ready.iter_mut().zip(next).for_each(|(filesystem, next)| filesystem.beside.clone_from(next));
    }
    ready
}

/// Returns a directory for all that a hunt makes. If mounts are this process's own, that is an empty
/// one of the system's, where a hunt leaves nothing behind however it ends.
///
/// # Panics
/// If it cannot be made.
pub(super) fn place() -> Place {
    let is_empty = |dir: &&Path| fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none());
    let mounts = ["/mnt", "/media", "/srv"].map(Path::new).into_iter().find(is_empty);
    if let Some(mounts) = mounts.filter(|mounts| may_mount() && mount(BASE, mounts)) {
        return Place::Mounts(mounts);
    }
    Place::Temporary(tempfile::Builder::new().prefix("dsync-hunt-").tempdir().expect("a place to work in"))
}

/// The directory of a hunt.
pub(super) enum Place {
    /// It is mounted over, for this process only.
    Mounts(&'static Path),
    /// It goes when the hunt ends by itself.
    Temporary(tempfile::TempDir),
}

impl Place {
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Mounts(path) => path,
            Self::Temporary(dir) => dir.path(),
        }
    }
}

/// Returns whether this process may mount, in a mount namespace that the caller made.
fn may_mount() -> bool {
    crate::skip::is_root() && std::env::var_os(super::INSIDE).is_some()
}

fn make(image: &Path, name: &str, root: &Path) -> bool {
    let length = if name == "btrfs" { BTRFS_BYTES } else { IMAGE_BYTES };
    let made = File::create(image).and_then(|file| file.set_len(length)).is_ok();
    let force = if name == "ext4" { "-F" } else { "-f" };
    let formatted = Command::new(format!("mkfs.{name}")).args(["-q", force]).arg(image).output();
    let image = image.to_string_lossy().into_owned();
    made && formatted.is_ok_and(|output| output.status.success()) && mount(&["-o", "loop", &image], root)
}

fn mount(args: &[&str], at: &Path) -> bool {
    let output = Command::new("mount").args(args).arg(at).output();
    output.is_ok_and(|output| {
        if !output.status.success() {
            eprint!("{}", String::from_utf8_lossy(&output.stderr));
        }
        output.status.success()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{needs_root, skip};

    /// A mount that goes with the test.
    struct Mounted(PathBuf);

    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
        }
    }

    #[test]
    fn a_filesystem_that_stays_full_is_made_anew() {
        needs_root!();
        let place = tempfile::tempdir().expect("a place");
        let (image, root) = (place.path().join("ext4.image"), place.path().join("ext4"));
        fs::create_dir(&root).expect("a mount point");
        if !make(&image, "ext4", &root) {
            skip::record(skip::Reason::NeedsLoop);
            return;
        }
        let mounted = Mounted(root);
        let root = mounted.0.clone();
        let filesystem = Filesystem::new("ext4", root.clone(), Some(image));

        // It stays full, as a process has the file open that has no name any more.
        let mut file = File::create(root.join("large")).expect("a large file");
        fs::remove_file(root.join("large")).expect("its name");
        let zeros = vec![0; 16 << 20];
        while !filesystem.is_full() {
            std::io::Write::write_all(&mut file, &zeros).expect("room for more");
        }

        assert!(filesystem.make_anew());
        assert!(!filesystem.is_full());
        fs::write(root.join("small"), "content").expect("a file in the new one");
    }
}
