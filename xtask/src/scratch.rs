//! A filesystem of the tests' own for their temporary files, wherever this process may mount one.
//!
//! The machine's may be anything. An ext4 without a journal, for one, looks through all inodes that
//! were deleted in the last minute for each new one: on such a machine that was half of the time
//! that the tests took. The filesystem is in a mount namespace, so it goes with the process,
//! however that ends; the empty directory that it was mounted on stays.

use std::{
    env,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use crate::{
    error::TaskError,
    step::{command, root, run, succeeds},
    tools::is_root,
};

/// Set in a process that has a mount namespace of its own, to the image of the filesystem.
const IMAGE: &str = "DSYNC_SCRATCH_IMAGE";

/// The mount point: short, because a socket's path has at most 107 bytes, and in no directory where
/// the checkout could be.
const PLACE: &str = "/run/dsync-scratch";

/// The size of the image, of which only what is in use takes space on the disk.
const BYTES: u64 = 32 << 30;

/// Runs `cargo xtask test` once more, with these arguments, in a mount namespace of its own, and
/// returns how that ended; `None` if this process is that one, or may not mount: then it does the
/// work itself.
pub(crate) fn run_inside(args: &[String]) -> Option<Result<(), TaskError>> {
    if env::var_os(IMAGE).is_some() || !may_mount() {
        return None;
    }
    let image = root().join("target/scratch.img");
    let program = env::current_exe().ok().filter(|_| make(&image).is_ok())?;
    let mut inside = command("unshare", &["--mount"]);
    inside.arg(program).arg("test").args(args).env(IMAGE, &image);
    Some(run(&mut inside))
}

/// Mounts the filesystem that [`run_inside`] made, and returns the directory; `None` without one, or
/// if it cannot be mounted, which is told.
pub(crate) fn mount() -> Option<PathBuf> {
    let image = PathBuf::from(env::var_os(IMAGE)?);
    let place = PathBuf::from(PLACE);
    fs::create_dir_all(&place).ok()?;
    // No test asks what a power cut leaves here, so nothing waits for the disk below.
    let options = ["-t", "ext4", "-o", "loop,discard,barrier=0"];
    let is_mounted = run(command("mount", &options).arg(&image).arg(&place)).is_ok();
    // The mount keeps it.
    let _ = fs::remove_file(&image);
    if is_mounted && succeeds("chmod", &["1777", PLACE]) {
        return Some(place);
    }
    println!("the tests have no filesystem of their own: their files are in {}", env::temp_dir().display());
    None
}

/// Returns whether this process may mount filesystems in a namespace of its own.
pub(crate) fn may_mount() -> bool {
    is_root() && succeeds("unshare", &["--mount", "mount", "-t", "tmpfs", "none", "/mnt"])
}

fn make(image: &Path) -> Result<(), TaskError> {
    let write = || -> io::Result<()> {
        fs::create_dir_all(root().join("target"))?;
        let _ = fs::remove_file(image);
        File::create(image)?.set_len(BYTES)
    };
    write().map_err(|source| TaskError::Read { path: image.display().to_string(), source })?;
    let lazily = "lazy_itable_init=1,lazy_journal_init=1,nodiscard";
    run(command("mkfs.ext4", &["-q", "-F", "-E", lazily]).arg(image))
}
