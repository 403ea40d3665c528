//! The rsync that dsync is compared with: the first one in `PATH`, and its version.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|dir| dir.join("rsync")).find(|file| file.is_file());
    found.unwrap_or_else(|| PathBuf::from("/usr/bin/rsync"))
});

static VERSION: LazyLock<Version> = LazyLock::new(|| {
    let output = Command::new(program()).arg("--version").output().expect("rsync");
    parse(&String::from_utf8_lossy(&output.stdout)).expect("a version in the first line of `rsync --version`")
});

/// A version's three numbers.
pub(super) type Version = (u32, u32, u32);

/// Returns the path of rsync.
pub(super) fn program() -> &'static Path {
    &PROGRAM
}

/// Returns the version of rsync.
pub(super) fn version() -> Version {
    *VERSION
}

fn parse(text: &str) -> Option<Version> {
    let word = text.lines().next()?.split("version ").nth(1)?.split_whitespace().next()?;
    let mut numbers =
        word.split(|letter: char| !letter.is_ascii_digit()).filter_map(|part| part.parse().ok());
    Some((numbers.next()?, numbers.next()?, numbers.next().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_its_line() {
        assert_eq!(parse("rsync  version 3.2.7  protocol version 31\nCopyright"), Some((3, 2, 7)));
        assert_eq!(parse("rsync  version v3.4.0pre1  protocol version 32"), Some((3, 4, 0)));
        assert_eq!(parse("openrsync: protocol version 29"), None);
    }
}
