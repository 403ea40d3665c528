//! Under the name `rsync`: what the programs that call rsync read of it.
//!
//! A backup program has rsync's name in its source, and judges it by its words: a line that begins with
//! `rsync:`, the last one with the exit code, the capabilities of `--version`, the first and the last lines of
//! `-v`. Called by a link of that name, dsync says these. The law: trees and exit codes are the same under every
//! name, but for the two refusals that no caller of rsync knows: an empty source is a source as any other, and
//! a destination in use is waited for. The formats are those of rsync(1), and of what such programs look for.

use std::{
    borrow::Cow,
    ffi::OsStr,
    io,
    path::Path,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use dsync_engine::exit_code;

/// The release of rsync whose options and formats these are.
const RELEASE: &str = "3.2.7";
const PROTOCOL: u32 = 31;
/// Seconds for which another run is waited for: callers of rsync retry no run that was refused.
pub(crate) const LOCK_WAIT: u64 = 3600;

static CALLED_RSYNC: OnceLock<bool> = OnceLock::new();
static ENDED: AtomicBool = AtomicBool::new(false);

/// Notes the name by which the program was called.
pub(crate) fn begin(name: Option<&OsStr>) {
    let is_rsync = name.and_then(|name| Path::new(name).file_name()).is_some_and(|name| name == "rsync");
    let _ = CALLED_RSYNC.set(is_rsync);
}

/// Returns whether the program was called `rsync`.
pub(crate) fn is_called_rsync() -> bool {
    CALLED_RSYNC.get().is_some_and(|is_rsync| *is_rsync)
}

/// Returns a line of talk with the name by which the program was called, and with rsync's name of the option for
/// the remote program: who called `rsync` knows no other.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    match text.strip_prefix("dsync: ").filter(|_| is_called_rsync()) {
        Some(rest) => Cow::Owned(format!("rsync: {}", rest.replace("--dsync-path", "--rsync-path"))),
        None => Cow::Borrowed(text),
    }
}

/// Returns the words of a system error, with its number behind them as rsync has it.
pub(crate) fn numbered(words: String, error: &io::Error) -> String {
    match error.raw_os_error().filter(|_| is_called_rsync()) {
        Some(number) => format!("{words} ({number})"),
        None => words,
    }
}

/// Returns the exit code that the callers of rsync know.
pub(crate) fn known_code(code: u8) -> u8 {
    if code == exit_code::LOCKED && is_called_rsync() { exit_code::TIMEOUT } else { code }
}

/// Returns the last line of a run that ends with this code and its `meaning`, if there is one that has not been
/// returned yet.
pub(crate) fn last_line(code: u8, meaning: &str) -> Option<String> {
    if !is_called_rsync() || code == exit_code::OK || ENDED.swap(true, Ordering::Relaxed) {
        return None;
    }
    let kind = if code == exit_code::VANISHED { "warning" } else { "error" };
    Some(format!("rsync {kind}: {meaning} (code {code}) at main.c(0) [sender={RELEASE}]"))
}

/// Returns the text of `--version`.
pub(crate) fn version() -> String {
    format!(
        "rsync  version {RELEASE}  protocol version {PROTOCOL}\n\
         dsync {} in the place of rsync: it speaks to dsync only, not to rsync\n\
         \n\
         Capabilities:\n    \
         64-bit files, 64-bit inums, 64-bit timestamps, 64-bit long ints,\n    \
         symlinks, symtimes, hardlinks, hardlink-specials,\n    \
         hardlink-symlinks, IPv6, atimes, batchfiles, inplace, append, ACLs,\n    \
         xattrs, optional secluded-args, iconv, prealloc, stop-at, no crtimes\n\
         Checksum list:\n    blake3\n\
         Compress list:\n    zstd lz4 none\n\
         \n\
         Licence: MIT OR Apache-2.0\n",
        env!("CARGO_PKG_VERSION"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn under_its_own_name_nothing_changes() {
        assert_eq!(line("dsync: error: x"), "dsync: error: x");
        assert_eq!(line("dsync: see --dsync-path"), "dsync: see --dsync-path");
        assert_eq!(numbered("x".to_owned(), &io::Error::from_raw_os_error(13)), "x");
        assert_eq!((known_code(41), last_line(23, "failed")), (41, None));
    }

    #[test]
    fn programs_find_version_and_capabilities() {
        let text = version();
        assert!(text.starts_with("rsync  version 3.2.7  protocol version 31\n"), "{text}");
        let (_, rest) = text.split_once("Capabilities:\n").unwrap_or_default();
        let (capabilities, _) = rest.split_once("\n\n").unwrap_or_default();
        for capability in ["ACLs", "xattrs", "hardlinks", "prealloc"] {
            assert!(capabilities.contains(capability), "{capability}: {text}");
        }
    }
}
