//! A program's own verdicts on the entries of a walk.
//!
//! Law: whatever the rules leave is judged once for each time that it is met, with the attributes that
//! would be copied. The root is never judged, nor is a directory that is only on the way to a path.
//! An entry without a verdict is not listed, and its directory counts as not read to its end.

use std::{fmt, sync::Arc};

use crate::metadata::Metadata;

/// A verdict on an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Choice {
    /// The entry is copied; of a directory, also what is in it, as far as that is chosen.
    #[default]
    Copy,
    /// A directory is copied without what is in it, as one of another filesystem is. Any other entry is
    /// copied.
    CopyAlone,
    /// The entry is left out; of a directory, also all that is in it.
    Hide,
}

/// A judge of entries. It gets the path below the transfer's root and the entry's attributes, from any
/// of the walk's threads. `None` is no verdict.
#[derive(Clone)]
pub struct Chooser(Arc<Judge>);

type Judge = dyn Fn(&[u8], &Metadata) -> Option<Choice> + Send + Sync;

impl Chooser {
    /// Makes a judge of a closure.
    pub fn new(judge: impl Fn(&[u8], &Metadata) -> Option<Choice> + Send + Sync + 'static) -> Self {
        Self(Arc::new(judge))
    }

    /// Returns the verdict on an entry.
    pub(super) fn choose(&self, path: &[u8], metadata: &Metadata) -> Option<Choice> {
        (self.0)(path, metadata)
    }
}

impl fmt::Debug for Chooser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chooser").finish_non_exhaustive()
    }
}
