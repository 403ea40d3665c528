//! The rulings that a run asks for: those about all entries that a rule decides on, or about the
//! paths that it explains.

use dsync_fs::Explained;
use dsync_wire::{options::SyncOptions, ruling::Ruled};

/// The rulings that a run asks for.
pub(super) struct WantedRulings {
    /// Whether each entry that a rule hides or protects is told.
    all: bool,
    explained: Option<Explained>,
}

impl WantedRulings {
    pub(super) fn of(options: &SyncOptions) -> Self {
        Self { all: options.rulings, explained: Explained::of(&options.explain) }
    }

    /// Returns whether a ruling was asked for.
    pub(super) fn wants(&self, path: &[u8], why: &Ruled) -> bool {
        let by_rule = matches!(why, Ruled::Hidden(_) | Ruled::Protected(_));
        self.all && by_rule || self.explains(path)
    }

    /// Returns whether this path is explained, or on the way to one that is.
    pub(super) fn explains(&self, path: &[u8]) -> bool {
        self.explained.as_ref().is_some_and(|explained| explained.concerns(path))
    }

    /// Returns whether any are asked for.
    pub(super) fn any(&self) -> bool {
        self.all || self.explained.is_some()
    }
}
