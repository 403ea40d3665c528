//! The compression of data in transit.

use std::{fmt, num::IntErrorKind};

use clap::{Args, ValueEnum};

use super::Group;

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
    ///
    /// Of a number beyond them the nearest counts, and 0 is the default. lz4 has one level only.
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
    /// rsync's two forms of zlib, in the place of which zstd is used.
    #[value(alias = "zlibx", hide = true)]
    Zlib,
}

/// zstd's level for `-z`, as in rsync.
pub(crate) const DEFAULT_LEVEL: u8 = 3;

/// Returns the nearest level to a number, as rsync takes it.
fn zstd_level(value: &str) -> Result<u8, NotALevel> {
    match value.parse::<i64>() {
        Ok(0) => Ok(DEFAULT_LEVEL),
        Ok(number) => Ok(u8::try_from(number.max(1)).map_or(19, |level| level.min(19))),
        Err(error) => match error.kind() {
            IntErrorKind::PosOverflow => Ok(19),
            IntErrorKind::NegOverflow => Ok(1),
            _ => Err(NotALevel(value.to_owned())),
        },
    }
}

/// The error for a level that is no number.
#[derive(Debug, Clone)]
struct NotALevel(String);

impl fmt::Display for NotALevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is no whole number", self.0)
    }
}

impl std::error::Error for NotALevel {}

impl Group for Compressing {
    fn switches(&mut self) -> Vec<(&'static str, &mut bool)> {
        vec![("compress", &mut self.compress)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_beyond_the_levels_is_the_nearest_one() {
        for (word, level) in [
            ("0", Some(DEFAULT_LEVEL)),
            ("7", Some(7)),
            ("300", Some(19)),
            ("-1", Some(1)),
            ("99999999999999999999", Some(19)),
            ("-99999999999999999999", Some(1)),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(zstd_level(word).ok(), level, "{word}");
        }
    }
}
