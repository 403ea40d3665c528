//! `dsync verify HOST:DIR` and `dsync verify HOST::SHARE/DIR`: a tree at another end beside a manifest
//! of this one.

use std::ffi::OsString;

use dsync_engine::verify::RemoteTree;

use super::flags::Flags;
use crate::{flags, resolve, usage::UsageError};

/// Returns the tree if it is at another end; `None` for a directory of this machine.
///
/// # Errors
/// [`UsageError`].
pub(super) fn tree(flags: &Flags) -> Result<Option<RemoteTree<'static>>, UsageError> {
    let mut words = way(flags);
    words.extend(["--".into(), flags.path.clone().into_os_string()]);
    resolve::remote_tree(&flags::parse(words)?, &|name| std::env::var_os(name))
}

/// Returns the words that say how a host is reached.
pub(super) fn way(flags: &Flags) -> Vec<OsString> {
    let given = [("--rsh", &flags.rsh), ("--dsync-path", &flags.dsync_path)];
    given
        .into_iter()
        .flat_map(|(option, value)| value.iter().flat_map(move |value| [option.into(), value.clone()]))
        .collect()
}
