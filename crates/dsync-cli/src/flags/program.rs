//! What the program does instead of a run.

use clap::Args;
use clap_complete::Shell;

/// Help, version, the remote end, generated documents.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Program")]
#[expect(clippy::struct_excessive_bools, reason = "one independent switch per mode")]
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
    /// Print the manual page
    #[arg(long, hide = true)]
    pub(crate) print_man: bool,
    /// Print completions for a shell
    #[arg(long, hide = true, value_name = "SHELL")]
    pub(crate) print_completion: Option<Shell>,
}
