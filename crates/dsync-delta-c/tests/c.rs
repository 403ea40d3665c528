//! The C library as a C program sees it: header, linking, and all jobs under sanitizers.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

// Links the library, so that cargo builds its shared form before this test runs.
use dsync_delta_c as _;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the directory in which cargo put the libraries.
fn libraries() -> PathBuf {
    env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// Compiles `tests/NAME.c` with the given arguments; returns the program.
fn compile(dir: &TempDir, name: &str, args: &[&str]) -> PathBuf {
    let program = dir.path().join(name);
    let libraries = libraries();
    let output = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-O1"])
        .args(args)
        .arg("-I")
        .arg(here().join("include"))
        .arg(here().join(format!("tests/{name}.c")))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(&libraries)
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .arg("-ldsync_delta_c")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn run(program: &Path) {
    let output = Command::new(program).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success(), "{}: {text}", output.status);
    assert!(text.ends_with("all jobs passed\n"), "{text}");
}

/// `DSYNC_BLESS=1` writes the header.
#[test]
fn header_is_that_of_the_source() {
    let config = cbindgen::Config::from_file(here().join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(here().join("src/lib.rs"))
        .with_src(here().join("src/job.rs"))
        .generate()
        .unwrap();
    let mut made = Vec::new();
    bindings.write(&mut made);
    let made = String::from_utf8(made).unwrap();

    let path = here().join("include/dsync_delta.h");
    if env::var_os("DSYNC_BLESS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(kept, made, "DSYNC_BLESS=1 cargo test -p dsync-delta-c writes the header again");
}

const SANITIZED: [&str; 3] = ["-std=c99", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

#[test]
fn all_jobs_pass_under_sanitizers() {
    let dir = TempDir::new().unwrap();
    run(&compile(&dir, "jobs", &SANITIZED));
}

#[test]
fn all_jobs_pass_without_sanitizers() {
    let dir = TempDir::new().unwrap();
    run(&compile(&dir, "jobs", &["-std=c11"]));
}

#[test]
fn buffers_of_odd_lengths_change_no_byte_under_sanitizers() {
    let dir = TempDir::new().unwrap();
    run(&compile(&dir, "chunks", &SANITIZED));
}

#[test]
fn buffers_of_odd_lengths_change_no_byte_without_sanitizers() {
    let dir = TempDir::new().unwrap();
    run(&compile(&dir, "chunks", &["-std=c11"]));
}
