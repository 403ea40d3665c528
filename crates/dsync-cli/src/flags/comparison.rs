//! When a file counts as up to date.

use clap::Args;

use super::Group;

/// How files are compared, and which of those that differ are skipped.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Comparison")]
#[expect(clippy::struct_excessive_bools, reason = "one independent switch per rsync option")]
pub(crate) struct Comparison {
    /// Compare contents instead of size and time
    ///
    /// Reads every file on both ends. Without it a file of equal size and modification time is up to date.
    #[arg(short = 'c', long)]
    pub(crate) checksum: bool,
    /// Take no file as up to date by size and time
    #[arg(short = 'I', long)]
    pub(crate) ignore_times: bool,
    /// Take files of equal size as up to date
    #[arg(long)]
    pub(crate) size_only: bool,
    /// Skip files that are newer at the destination
    #[arg(short = 'u', long)]
    pub(crate) update: bool,
    /// Skip what does not exist at the destination
    #[arg(long, visible_alias = "ignore-non-existing")]
    pub(crate) existing: bool,
    /// Skip files that exist at the destination
    #[arg(long)]
    pub(crate) ignore_existing: bool,
    /// Send changed files whole, without looking for equal blocks
    #[arg(short = 'W', long)]
    pub(crate) whole_file: bool,
}

impl Group for Comparison {
    fn switches(&mut self) -> Vec<(&'static str, &mut bool)> {
        vec![
            ("checksum", &mut self.checksum),
            ("ignore_times", &mut self.ignore_times),
            ("size_only", &mut self.size_only),
            ("update", &mut self.update),
            ("existing", &mut self.existing),
            ("ignore_existing", &mut self.ignore_existing),
            ("whole_file", &mut self.whole_file),
        ]
    }
}
