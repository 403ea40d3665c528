//! The rsync that dsync is compared with: the first one in `PATH`, and its version.

use std::{
    env,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use crate::oracle::{self, Version};

static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|dir| dir.join("rsync")).find(|file| file.is_file());
    found.unwrap_or_else(|| PathBuf::from("/usr/bin/rsync"))
});

static VERSION: LazyLock<Version> = LazyLock::new(|| oracle::version_of(program()));

/// Returns the path of rsync.
pub(super) fn program() -> &'static Path {
    &PROGRAM
}

/// Returns the version of rsync.
pub(super) fn version() -> Version {
    *VERSION
}
