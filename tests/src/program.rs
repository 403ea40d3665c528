//! The program under test.

use std::{
    env,
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// Returns the program under test: `$DSYNC_BIN`, else `dsync` in the directory of the build
/// profile.
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
        path.canonicalize().expect("the path of the program under test")
    })
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
