//! The compression of data in transit.

use clap::{Args, ValueEnum};

use super::{Group, NotInRange, whole_number};

/// Compression. Without any of these dsync compresses when the connection is the bottleneck.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Compression")]
pub(crate) struct Compressing {
    /// Compress whatever becomes smaller, whatever is the bottleneck
    ///
    /// By default dsync compresses while the connection is slower than the processor and does not
    /// otherwise.
    /// --no-compress never compresses.
    #[arg(short = 'z', long)]
    pub(crate) compress: bool,
    /// Which compression: auto, zstd, lz4 or none (implies -z)
    #[arg(
        long,
        visible_alias = "zc",
        value_name = "NAME",
        value_enum,
        hide_possible_values = true,
        allow_hyphen_values = true
    )]
    pub(crate) compress_choice: Option<Choice>,
    /// zstd's level, 1 (fast) to 19 (small); 3 with -z alone (implies -z)
    #[arg(
        long,
        visible_alias = "zl",
        value_name = "LEVEL",
        allow_hyphen_values = true,
        value_parser = zstd_level
    )]
    pub(crate) compress_level: Option<u8>,
    /// Whether `--no-compress` came after every option that requests compression.
    #[arg(skip)]
    pub(crate) refused: bool,
}

/// The names that `--compress-choice` knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Choice {
    Auto,
    Zstd,
    Lz4,
    None,
}

fn zstd_level(value: &str) -> Result<u8, NotInRange> {
    let refuse = || NotInRange { value: value.to_owned(), lowest: 1, highest: 19 };
    u8::try_from(whole_number(value, 1, 19)?).map_err(|_| refuse())
}

impl Group for Compressing {
    fn switches(&mut self) -> Vec<(&'static str, &mut bool)> {
        vec![("compress", &mut self.compress)]
    }
}
