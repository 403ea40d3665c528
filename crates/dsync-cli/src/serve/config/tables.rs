//! The tables of a configuration as serde reads them.

use std::{collections::BTreeMap, path::PathBuf};

use dsync_engine::Access;
use serde::Deserialize;
use toml::Spanned;

/// The file as serde reads it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) server: Option<ServerTable>,
    #[serde(default)]
    pub(super) keys: BTreeMap<String, Spanned<KeyTable>>,
    #[serde(default)]
    pub(super) shares: BTreeMap<String, Spanned<ShareTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerTable {
    #[serde(default)]
    pub(super) listen: Vec<Spanned<String>>,
    pub(super) identity: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyTable {
    pub(super) public: Option<Spanned<String>>,
    pub(super) expires: Option<Spanned<toml::value::Datetime>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShareTable {
    pub(super) path: Spanned<PathBuf>,
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
    pub(super) role: Role,
    pub(super) directory: Option<Spanned<String>>,
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
