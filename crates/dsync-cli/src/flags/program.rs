//! Modes of the program other than a run.

use std::ffi::OsString;

use clap::Args;

/// Help, version, the remote end, generated documents.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Program")]
pub(crate) struct Program {
    /// Show this help and end (-h on its own: a shorter one)
    #[arg(long)]
    pub(crate) help: bool,
    /// Show the version, the protocol and what is built in, and end
    #[arg(short = 'V', long)]
    pub(crate) version: bool,
    /// Be the remote end of a run, on standard input and output
    #[arg(long, hide = true)]
    pub(crate) server: bool,
    /// With --server: what a client may do, by the command of its key
    ///
    /// For authorized_keys, where a command is run whatever the client asks for: command="dsync
    /// --server --restrict /srv/backups,append",restrict ssh-ed25519 AAAA... All paths of the
    /// client start at PATH and end in it: / is PATH, and .. or a link that leads out of it is
    /// refused. ACCESS is rw (both ways; the default), ro (from it), wo (to it), append (from it,
    /// and new entries may be added, while nothing that is there is changed, replaced or removed) or
    /// write (both ways, while nothing is removed). What is refused ends with exit code 42. See "Keys for one purpose".
    #[arg(long, value_name = "PATH[,ACCESS]", help_heading = "Program")]
    pub(crate) restrict: Option<OsString>,
}
