//! The index: a signature made searchable.

use crate::{
    block::Layout,
    key::Key,
    signature::{Signature, StrongSum},
    weak::{WeakSecret, WeakSum},
};

/// A signature that can be searched, from many threads at once.
#[derive(Debug)]
pub struct IndexedSignature {
    signature: Signature,
    key: Key,
    secret: WeakSecret,
}

impl IndexedSignature {
    /// Indexes a signature made under `key`.
    pub fn new(signature: Signature, key: &Key) -> Self {
        Self {
            signature,
            key: key.clone(),
            secret: WeakSecret::new(key),
        }
    }

    /// How the basis is cut in blocks.
    pub fn layout(&self) -> Layout {
        self.signature.layout()
    }

    /// The session's key.
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }
}
