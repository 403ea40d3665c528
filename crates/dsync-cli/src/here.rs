//! Entries here that a typed word may name, beside what it says.

use std::{ffi::OsStr, path::Path};

/// Returns whether there is an entry of this name here.
#[expect(clippy::disallowed_methods, reason = "a hint about a word that was typed; nothing is opened")]
pub(crate) fn is_here(name: &OsStr) -> bool {
    Path::new(name).symlink_metadata().is_ok()
}
