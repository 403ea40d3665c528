//! The entries that a manifest names, beside those that the source has now.
//!
//! Laws: an entry is listed only if it still is of the type that the manifest has of it, a file only if
//! it has that length, a link or device only if it has that text or number. A file is listed with the
//! manifest's hash, not one of its own: the destination holds what arrives against it, so the source
//! reads no more than it sends. Walk and manifest have one order ([`compare_paths`]), so each is read
//! once, and memory is that of one record.

use std::cmp::Ordering;

use dsync_fs::{Kind, Metadata, WalkedEntry};
use dsync_wire::message::Cause;

use crate::{
    Manifest, ManifestError,
    manifest::{ManifestReader, Record, compare_paths},
    plan::file_type_of,
};

/// A manifest on the way through a walk.
pub(super) struct Expected {
    records: ManifestReader,
    next: Option<Record>,
}

impl Expected {
    /// Begins with the first record.
    ///
    /// # Errors
    /// [`ManifestError`]: the file was changed since it was opened.
    pub(super) fn new(manifest: &Manifest) -> Result<Self, ManifestError> {
        let mut records = manifest.reader()?;
        let next = records.next().transpose()?;
        Ok(Self { records, next })
    }

    /// Returns the hash of the content that the next entry of the walk must have, of a file, or why it is
    /// not listed.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(super) fn content_of(
        &mut self,
        path: &[u8],
        walked: &WalkedEntry,
    ) -> Result<Result<Option<[u8; 32]>, Cause>, ManifestError> {
        let order = loop {
            match &self.next {
                None => break Ordering::Greater,
                Some(record) => match compare_paths(&record.path, path) {
                    // It is missing by now, which the walk reports.
                    Ordering::Less => self.next = self.records.next().transpose()?,
                    order => break order,
                },
            }
        };
        Ok(match self.next.as_ref().filter(|_| order.is_eq()) {
            Some(record) => judge(record, walked),
            // A directory on the way, of which the manifest has no record.
            None if walked.is_implied => Ok(None),
            None => Err(Cause::OtherContent),
        })
    }
}

/// Compares an entry with its record.
fn judge(record: &Record, walked: &WalkedEntry) -> Result<Option<[u8; 32]>, Cause> {
    let WalkedEntry { metadata, link_target, .. } = walked;
    if file_type_of(metadata.kind) != record.kind {
        return Err(Cause::TypeChanged);
    }
    let is_same = match metadata.kind {
        Kind::File => metadata.size == record.size,
        Kind::Symlink => link_target.as_deref() == Some(&record.text),
        // A manifest that was recorded over a connection does not know the numbers.
        Kind::CharDevice | Kind::BlockDevice => {
            record.text.is_empty() || numbers(metadata).as_bytes() == record.text
        }
        Kind::Dir | Kind::Fifo | Kind::Socket => true,
    };
    if is_same { Ok(record.content) } else { Err(Cause::OtherContent) }
}

/// Returns a device's numbers as a manifest has them.
fn numbers(metadata: &Metadata) -> String {
    format!("{},{}", metadata.rdev.major, metadata.rdev.minor)
}
