//! How the destination is written.

use clap::{Args, ValueEnum};

use super::Group;

/// Dry run, parents, durability.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Writing")]
pub(crate) struct Writing {
    /// Change nothing; with -v or -i, list what would be done
    ///
    /// The list is exactly that of the run without -n.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Create the parents of the destination that are missing
    #[arg(long)]
    pub(crate) mkpath: bool,
    /// Take a link to a directory at the destination for the directory, where the source has one
    ///
    /// Only links of root and of the user who writes there; then what they lead to is written, wherever it is.
    /// Without it the link is replaced by a directory.
    #[arg(short = 'K', long)]
    pub(crate) keep_dirlinks: bool,
    /// When data is on the disk: batch, file or none
    ///
    /// batch, the default, syncs in groups: exit code 0 means that everything survives a power cut. file also
    /// syncs each file on its own before it takes the old one's name. none leaves it to the operating system: a
    /// power cut may then lose or empty files that were copied.
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        hide_possible_values = true,
        hide_default_value = true,
        default_value = "batch",
        allow_hyphen_values = true
    )]
    pub(crate) durability: When,
}

/// The names that `--durability` knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    Batch,
    File,
    None,
}

impl Group for Writing {
    fn switches(&mut self) -> Vec<(&'static str, &mut bool)> {
        vec![
            ("dry_run", &mut self.dry_run),
            ("mkpath", &mut self.mkpath),
            ("keep_dirlinks", &mut self.keep_dirlinks),
        ]
    }
}
