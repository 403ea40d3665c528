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
}

/// Length of an image, which is sparse; each has room for the trees of two workers.
const IMAGE_BYTES: u64 = 600 << 20;

/// Mounts those of the wanted filesystems that this machine can, below `base`; without mounts,
/// returns `base` itself.
///
/// # Panics
/// If the directory cannot be used.
pub(super) fn prepare(base: &Path, wanted: &[String]) -> Vec<Filesystem> {
    let mut ready = Vec::new();
    if may_mount() && mount(&["-t", "tmpfs", "-o", "size=8g,mode=755", "none"], base) {
        for name in wanted {
            let root = base.join(name);
            fs::create_dir_all(&root).expect("a mount point");
            if name == "tmpfs" || make(base, name, &root) {
                ready.push(Filesystem { name: name.clone(), root });
            } else {
                println!("hunt: {name} cannot be mounted here and is left out");
            }
        }
    }
    if ready.is_empty() {
        println!("hunt: nothing can be mounted here; cases run in {} only", base.display());
        ready.push(Filesystem { name: "here".into(), root: base.to_owned() });
    }
    ready
}

/// Returns whether this process may mount, in a mount namespace that the caller made.
fn may_mount() -> bool {
    crate::skip::is_root() && std::env::var_os(super::INSIDE).is_some()
}

fn make(base: &Path, name: &str, root: &Path) -> bool {
    let image = base.join(format!("{name}.image"));
    let made = File::create(&image).and_then(|file| file.set_len(IMAGE_BYTES)).is_ok();
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
