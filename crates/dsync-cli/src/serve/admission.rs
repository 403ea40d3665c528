//! Admission of a key to a share, or the reason against it.

use std::{error::Error as _, path::Path};

use dsync_engine::{Access, Grant, Keeping, ShareError};

use super::{
    clean::dated,
    config::{Config, Offer, Part, today},
};
use crate::words::system_words;

/// Finds the part of a share that a key may use today, and the share.
///
/// # Errors
/// The reason in words, for the administrator and the owner of the key.
pub(super) fn part<'a>(config: &'a Config, share: &str, key: &str) -> Result<(&'a Offer, &'a Part), String> {
    let known = config.keys.get(key).ok_or_else(|| format!("there is no key {key}"))?;
    if known.is_expired(today()) {
        return Err(format!("key {key} has expired"));
    }
    // Whether a share exists is nobody's business who may not use it.
    let offer = config.shares.get(share);
    let found = offer.and_then(|offer| Some((offer, offer.keys.get(key)?)));
    found.ok_or_else(|| format!("there is no share {share} for key {key}"))
}

/// Opens the part of a share for a session that begins now.
pub(super) fn open(offer: &Offer, part: &Part, key: &str) -> Result<Grant, ShareError> {
    let keeping = (part.role == Access::Keep)
        .then(|| Keeping { directory: offer.kept.join(key), session: dated(jiff::Timestamp::now()) });
    offer.share.grant(part.role, part.directory.as_deref(), keeping)
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
