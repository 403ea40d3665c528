//! One name as the kernel lists it.

use crate::component::Component;

/// A listed name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) name: Component,
    /// Index of its layer in a merged directory.
    pub(crate) layer: u32,
    /// Inode number; 0 if there are many names, whose order on the disk is not kept.
    pub(crate) ino: u64,
}
