//! The entries of a directory in each of its layers, before those of one name are merged.

use super::{choice::Choice, entry::WalkedEntry};
use crate::metadata::Metadata;

/// An entry of one layer.
pub(super) struct Candidate {
    pub(super) entry: WalkedEntry,
    pub(super) layer: u32,
    pub(super) by: By,
}

/// The reason why an entry is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// It is in a directory that is listed, or in the root and an operand's.
    Listing,
    /// A relative operand names it.
    Name,
    /// A relative operand stands for what is in it.
    Contents,
    /// A relative operand names something below it.
    Way,
}

/// A directory of one layer.
pub(super) struct Found {
    pub(super) layer: u32,
    pub(super) by: By,
    pub(super) metadata: Metadata,
    /// Whether a link leads to it.
    pub(super) by_link: bool,
    /// Whether it is copied without what is in it.
    pub(super) alone: bool,
}

impl Found {
    pub(super) fn new(layer: u32, by: By, entry: &WalkedEntry) -> Self {
        let (by_link, alone) = (entry.followed.is_some(), entry.choice == Choice::CopyAlone);
        Self { layer, by, metadata: entry.metadata, by_link, alone }
    }
}
