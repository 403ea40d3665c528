//! Code in C that runs in a program beside its own: a library that the loader puts into each program of a
//! mount namespace. A library of the environment (`LD_PRELOAD`) would make dsync leave out a part of its cage.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::Scratch;

/// Names the library to the loader, in a view of `/etc` that only this process and its children have.
const SCRIPT: &str = r#"
    library=$1 overlay=$2
    shift 2
    mount -t tmpfs none "$overlay"
    mkdir "$overlay/upper" "$overlay/work"
    mount -t overlay none -o lowerdir=/etc,upperdir="$overlay/upper",workdir="$overlay/work" /etc
    echo "$library" >/etc/ld.so.preload
    exec "$@"
"#;

/// Builds code as a library; returns its path.
///
/// # Panics
/// If there is no compiler.
pub fn build(scratch: &Scratch, name: &str, code: &str, flags: &[String]) -> PathBuf {
    let (source, library) = (scratch.at(&format!("{name}.c")), scratch.at(&format!("{name}.so")));
    fs::write(&source, code).expect("the library's code");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC"]).args(flags).arg("-o").arg(&library).arg(&source).arg("-ldl");
    let built = compile.output().expect("the C compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    library
}

/// Returns the words before a command, as root, that put a library into it and all that it starts. The
/// process becomes the command. No word has a space.
///
/// # Panics
/// If the script cannot be written.
pub fn starter(library: &Path) -> Vec<String> {
    let (script, overlay) = (library.with_extension("sh"), library.with_extension("overlay"));
    fs::write(&script, SCRIPT).expect("the script");
    fs::create_dir_all(&overlay).expect("the view's directory");
    let paths = [script.as_path(), library, &overlay].map(|path| path.display().to_string());
    ["unshare", "--mount", "sh", "-e"].map(str::to_owned).into_iter().chain(paths).collect()
}
