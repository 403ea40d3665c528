//! What is removed at the destination.

use clap::Args;

use super::{Group, NotInRange, whole_number};

/// `--delete` and its limits.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Deletion")]
pub(crate) struct Deletion {
    /// Remove what the source does not have
    ///
    /// Nothing is removed in a directory that could not be read completely at the source. Needs -r.
    #[arg(long)]
    pub(crate) delete: bool,
    /// Also remove what the exclude rules leave out (implies --delete)
    #[arg(long)]
    pub(crate) delete_excluded: bool,
    /// Remove at most N entries; with more, remove none and end with exit code 25
    ///
    /// A whole number from 0 on; no limit by default.
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = any_number)]
    pub(crate) max_delete: Option<u64>,
}

fn any_number(value: &str) -> Result<u64, NotInRange> {
    whole_number(value, 0, u64::MAX)
}

impl Group for Deletion {
    fn switches(&mut self) -> Vec<(&'static str, &mut bool)> {
        vec![("delete", &mut self.delete), ("delete_excluded", &mut self.delete_excluded)]
    }
}
