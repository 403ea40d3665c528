//! The program under test.

use std::{
    env, fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use crate::skip::is_root;

/// Returns the program under test: `$DSYNC_BIN`, else `dsync` in the directory of the build
/// profile. Root's tests run it as other users too, so where these cannot get to it, it has another name
/// among the temporary files.
///
/// # Panics
/// If there is no such file.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let path = env::var_os("DSYNC_BIN").map_or_else(|| profile_dir().join("dsync"), PathBuf::from);
        assert!(
            path.is_file(),
            "{} is missing: run `cargo build -p dsync-cli`, or set DSYNC_BIN",
            path.display()
        );
        let path = path.canonicalize().expect("the path of the program under test");
        if is_root() && !is_open_to_all(&path) { in_the_open(&path) } else { path }
    })
}

/// Returns whether every user may enter the directories above.
fn is_open_to_all(path: &Path) -> bool {
    path.ancestors().skip(1).all(|dir| fs::metadata(dir).is_ok_and(|dir| dir.mode() & 0o001 != 0))
}

/// Returns the name of a build of the program that every user can get to: one for all tests that run it, in
/// place of that of an earlier build.
fn in_the_open(path: &Path) -> PathBuf {
    let built = fs::metadata(path).expect("the program under test");
    let of_path =
        format!("dsync-program-{}-", &blake3::hash(path.as_os_str().as_encoded_bytes()).to_hex()[..16]);
    let place = env::temp_dir().join(format!("{of_path}{}.{}", built.mtime(), built.mtime_nsec()));
    let name = path.file_name().expect("the name of the program under test");
    let is_own = || {
        fs::symlink_metadata(&place)
            .is_ok_and(|dir| dir.is_dir() && dir.uid() == 0 && dir.mode() & 0o022 == 0)
    };
    if is_own() {
        return place.join(name);
    }

    for old in fs::read_dir(env::temp_dir()).into_iter().flatten().flatten() {
        // Another test may have made the one of this build meanwhile.
        if old.path() != place && old.file_name().to_string_lossy().starts_with(&of_path) {
            let _ = fs::remove_dir_all(old.path());
        }
    }
    let made = tempfile::Builder::new().prefix("dsync-program-").tempdir().expect("a directory");
    fs::copy(path, made.path().join(name)).expect("the program under test");
    fs::set_permissions(made.path(), fs::Permissions::from_mode(0o755)).expect("its directory's mode");
    if fs::rename(made.path(), &place).is_ok() {
        let _ = made.keep();
    }
    assert!(is_own(), "{} is not root's alone", place.display());
    place.join(name)
}

/// Returns a compiled example of the engine crate.
///
/// # Panics
/// If it was not built.
pub fn example(name: &str) -> PathBuf {
    let path = profile_dir().join("examples").join(name);
    assert!(path.is_file(), "{} is missing: run `cargo build -p dsync-engine --examples`", path.display());
    path
}

/// Returns whether rsync stands in for dsync: promises that only dsync makes are not checked then.
pub fn is_stand_in() -> bool {
    program().file_name().is_some_and(|name| name == "rsync")
}

/// Returns `target/<profile>`: programs are in it, test binaries in its `deps`.
fn profile_dir() -> PathBuf {
    let itself = env::current_exe().expect("the path of the test binary");
    let dir = itself.parent().expect("a program in a directory");
    let dir = if dir.ends_with("deps") { dir.parent().expect("target/<profile>/deps") } else { dir };
    dir.to_path_buf()
}
