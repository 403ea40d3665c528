//! The tables of a configuration as serde reads them.

use std::{collections::BTreeMap, fmt, ops::Range, path::PathBuf};

use dsync_engine::Access;
use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Visitor},
};
use toml::Spanned;

use crate::numbers::Size;

/// The file as serde reads it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(rename = "require-cage", default)]
    pub(super) require_cage: bool,
    pub(super) server: Option<ServerTable>,
    #[serde(default)]
    pub(super) keys: BTreeMap<String, Spanned<KeyTable>>,
    #[serde(default)]
    pub(super) shares: BTreeMap<String, Spanned<ShareTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerTable {
    pub(super) listen: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) identity: Option<Spanned<PathBuf>>,
    pub(super) certificate: Option<Spanned<PathBuf>>,
    pub(super) sessions: Option<Spanned<u32>>,
    pub(super) metrics: Option<Spanned<String>>,
    pub(super) quic: Option<bool>,
    #[serde(rename = "stop-timeout")]
    pub(super) stop_timeout: Option<Spanned<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyTable {
    pub(super) public: Option<Spanned<Lines>>,
    pub(super) authority: Option<Spanned<Lines>>,
    pub(super) since: Option<Spanned<toml::value::Datetime>>,
    pub(super) expires: Option<Spanned<toml::value::Datetime>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShareTable {
    pub(super) path: Option<Spanned<PathBuf>>,
    pub(super) marker: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) mounted: bool,
    pub(super) user: Option<String>,
    pub(super) kept: Option<Spanned<String>>,
    #[serde(rename = "keep-days")]
    pub(super) keep_days: Option<Spanned<u32>>,
    #[serde(default)]
    pub(super) keys: BTreeMap<String, Spanned<PartTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PartTable {
    pub(super) role: Option<Role>,
    pub(super) directory: Option<Spanned<String>>,
    #[serde(rename = "largest-file")]
    pub(super) largest_file: Option<Spanned<Amount>>,
    #[serde(rename = "max-bytes")]
    pub(super) max_bytes: Option<Spanned<Amount>>,
    #[serde(rename = "max-files")]
    pub(super) max_files: Option<u64>,
    pub(super) rate: Option<Spanned<Amount>>,
    pub(super) sessions: Option<Spanned<u32>>,
    pub(super) hours: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    pub(super) refuse: Vec<Spanned<String>>,
    #[serde(rename = "fake-super", default)]
    pub(super) fake_super: bool,
    pub(super) usermap: Option<Spanned<String>>,
    pub(super) groupmap: Option<Spanned<String>>,
}

/// The public lines of a client, or of its authorities: one, or a list whose lines have places of their own.
pub(super) struct Lines(pub(super) Vec<(String, Option<Range<usize>>)>);

impl<'de> Deserialize<'de> for Lines {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LinesVisitor)
    }
}

struct LinesVisitor;

impl<'de> Visitor<'de> for LinesVisitor {
    type Value = Lines;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a public line, or a list of them")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Lines, E> {
        Ok(Lines(vec![(text.to_owned(), None)]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Lines, A::Error> {
        let mut lines = Vec::new();
        while let Some(line) = list.next_element::<Spanned<String>>()? {
            let at = line.span();
            lines.push((line.into_inner(), Some(at)));
        }
        Ok(Lines(lines))
    }
}

/// A number of bytes: `5000` or `"1.5G"`.
pub(super) struct Amount(pub(super) u64);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AmountVisitor)
    }
}

struct AmountVisitor;

impl Visitor<'_> for AmountVisitor {
    type Value = Amount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of bytes like 5000 or \"1.5G\"")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Amount, E> {
        u64::try_from(number).map(Amount).map_err(|_| E::custom(format!("{number} is no number of bytes")))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Amount, E> {
        Size::parse(text, 'B').map(|size| Amount(size.0)).map_err(E::custom)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    Read,
    Append,
    Keep,
    Write,
    Full,
}

impl Role {
    /// Their words.
    pub(super) const NAMES: &str = "read, append, keep, write or full";

    pub(super) fn access(&self) -> Access {
        match self {
            Self::Read => Access::ReadOnly,
            Self::Append => Access::Append,
            Self::Keep => Access::Keep,
            Self::Write => Access::Write,
            Self::Full => Access::ReadWrite,
        }
    }
}
