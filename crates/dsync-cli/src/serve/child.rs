//! Processes of the server's own program.

use std::{path::PathBuf, process::Command};

/// Returns a command that starts this program, even when a newer one has its path by now.
pub(super) fn own_program(words: &[&str]) -> Command {
    let mut command = Command::new(PathBuf::from("/proc/self/exe"));
    for name in ["NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"] {
        command.env_remove(name);
    }
    command.args(words);
    command
}
