//! Remote shells that run the remote end on this machine, as a child of the run.

use std::{fs, path::PathBuf};

use crate::tree::set_mode;

/// Runs the remote command, and nothing else.
pub const PLAIN: &str = "exec sh -c \"$command\"";

/// Writes a remote shell: a script to which `$command` is the remote command, whose words are the last two.
/// Returns its path.
///
/// # Panics
/// If the script cannot be written.
pub fn write(path: PathBuf, script: &str) -> PathBuf {
    let text = format!("#!/bin/sh\nwhile [ $# -gt 2 ]; do shift; done; command=$*\n{script}\n");
    fs::write(&path, text).expect("a script");
    set_mode(&path, 0o755);
    path
}
