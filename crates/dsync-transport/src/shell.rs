//! The remote shell: how its command line is made, and the process that runs it.

use std::ffi::OsString;

/// How to start `dsync --server` on another host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteShell {
    /// The shell's program and its own arguments. Usually `["ssh"]`.
    pub command: Vec<OsString>,
    /// Login name, when given.
    pub user: Option<String>,
    /// Host name, ssh alias or address (IPv6 without brackets).
    pub host: String,
    /// The command that starts dsync there, as the remote login shell reads it. Usually `dsync`.
    pub remote_program: String,
}
