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
}

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
            if name == "tmpfs" || make(base, name, &root) {
                ready.push(Filesystem { name: name.clone(), beside: root.clone(), root });
            } else {
                println!("hunt: {name} cannot be mounted here and is left out");
            }
        }
    }
    if ready.is_empty() {
        println!("hunt: nothing can be mounted here; cases run in {} only", base.display());
        ready.push(Filesystem { name: "here".into(), root: base.to_owned(), beside: base.to_owned() });
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

fn make(base: &Path, name: &str, root: &Path) -> bool {
    let image = base.join(format!("{name}.image"));
    let length = if name == "btrfs" { BTRFS_BYTES } else { IMAGE_BYTES };
    let made = File::create(&image).and_then(|file| file.set_len(length)).is_ok();
    let force = if name == "ext4" { "-F" } else { "-f" };
    let formatted = Command::new(format!("mkfs.{name}")).args(["-q", force]).arg(&image).output();
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
