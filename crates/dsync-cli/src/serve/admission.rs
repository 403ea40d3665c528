//! Admission of a key to a share, or the reason against it.

use std::{error::Error as _, path::Path};

use dsync_engine::{Share, ShareError};

use super::config::{Config, Part, today};
use crate::words::system_words;

/// Finds the part of a share that a key may use today.
///
/// # Errors
/// The reason in words, for the administrator and the owner of the key.
pub(super) fn part<'a>(config: &'a Config, share: &str, key: &str) -> Result<(&'a Share, &'a Part), String> {
    let known = config.keys.get(key).ok_or_else(|| format!("there is no key {key}"))?;
    if known.is_expired(today()) {
        return Err(format!("key {key} has expired"));
    }
    // Whether a share exists is nobody's business who may not use it.
    let offer = config.shares.get(share);
    let found = offer.and_then(|offer| Some((&offer.share, offer.keys.get(key)?)));
    found.ok_or_else(|| format!("there is no share {share} for key {key}"))
}

/// Describes an error of a share with the system's words.
pub(super) fn in_words(error: &ShareError) -> String {
    let cause = error.source().and_then(|cause| cause.downcast_ref());
    let why = cause.map_or_else(String::new, |cause| format!(": {}", system_words(cause)));
    format!("{error}{why}")
}

/// Returns how messages name a configuration.
pub(super) fn named(path: &Path) -> String {
    format!("configuration '{}'", path.display())
}
