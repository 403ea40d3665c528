//! The reasons why entries take part in a walk or not, for whoever asks.
//!
//! A walk notes a ruling where it decides, so that what is told is what was done.

use crate::{
    component::RelPath,
    explained::Explained,
    filter::{RuleOrigin, Verdict},
};

/// The rulings that are wanted of a walk.
#[derive(Debug, Clone, Default)]
pub struct WantedRulings {
    /// Whether every entry that a rule hides is told.
    pub hidden: bool,
    /// The paths that are explained; the walk descends only towards them.
    pub explained: Option<Explained>,
}

/// The reason why an entry takes part in a walk or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalkRuling {
    /// Path below the transfer's root.
    pub path: RelPath,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// The reason.
    pub why: WalkRuled,
}

/// The reason of a ruling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WalkRuled {
    /// A rule excludes it.
    Hidden(RuleOrigin),
    /// A rule includes it.
    Shown(RuleOrigin),
    /// It is a directory of another filesystem.
    OtherFilesystem,
    /// It is a directory, and the walk is not recursive.
    NotRecursive,
    /// It holds nothing but directories.
    Pruned,
}

impl WantedRulings {
    /// Returns whether any are wanted.
    pub(super) fn any(&self) -> bool {
        self.hidden || self.explained.is_some()
    }

    /// Returns whether this path is one of those that are explained, or on the way to one.
    pub(super) fn explains(&self, path: &RelPath) -> bool {
        self.explained.as_ref().is_some_and(|explained| explained.concerns(path.as_bytes()))
    }

    /// Returns whether the walk descends into this directory.
    pub(super) fn descends(&self, directory: &RelPath) -> bool {
        self.explained.as_ref().is_none_or(|explained| explained.leads_on(directory))
    }

    /// Returns the ruling of a verdict, if it is wanted.
    pub(super) fn of_verdict(
        &self,
        path: RelPath,
        is_dir: bool,
        verdict: Option<Verdict>,
    ) -> Option<WalkRuling> {
        let Verdict { include, origin } = verdict?;
        if !self.explains(&path) && (include || !self.hidden) {
            return None;
        }
        let why = if include { WalkRuled::Shown(origin) } else { WalkRuled::Hidden(origin) };
        Some(WalkRuling { path, is_dir, why })
    }
}
