//! An entry as a walk lists it.

use super::choice::Choice;
use crate::{
    component::Component,
    dir::Target,
    metadata::{Kind, Metadata},
};

/// One entry of a walked directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalkedEntry {
    /// Name of the entry.
    pub name: Component,
    /// Attributes of the entry.
    pub metadata: Metadata,
    /// The text of a symbolic link.
    pub link_target: Option<Vec<u8>>,
    /// The identity of the entry if the walk followed a link to it; its attributes are that
    /// entry's.
    pub followed: Option<Target>,
    /// Of a directory: whether its own listing follows.
    pub is_walked: bool,
    /// Of a directory of a relative walk: whether it is only on the way to what operands name.
    pub is_implied: bool,
    /// The verdict on it: [`Choice::Hide`] only with [`WalkOptions::names_hidden`](super::WalkOptions::names_hidden).
    pub choice: Choice,
}

impl WalkedEntry {
    /// Makes an entry of which nothing but the name counts.
    pub(super) fn hidden(name: Component, metadata: Metadata) -> Self {
        let (link_target, followed, is_walked, is_implied) = Default::default();
        Self { name, metadata, link_target, followed, is_walked, is_implied, choice: Choice::Hide }
    }

    /// Returns whether it is a directory that is not hidden.
    pub(super) fn is_directory(&self) -> bool {
        self.metadata.kind == Kind::Dir && self.choice != Choice::Hide
    }
}
