//! Entries that are read side by side.

/// The entries that wait, and the bytes that are read of them.
pub(super) struct Batch<T> {
    entries: Vec<T>,
    bytes: u64,
}

impl<T> Batch<T> {
    /// Makes an empty batch.
    pub(super) fn new() -> Self {
        Self { entries: Vec::new(), bytes: 0 }
    }

    /// Adds an entry of which so many bytes may be read. Returns whether the batch is full then.
    pub(super) fn push(&mut self, entry: T, bytes: u64) -> bool {
        self.entries.push(entry);
        self.bytes = self.bytes.saturating_add(bytes);
        self.entries.len() >= BATCH_ENTRIES || self.bytes >= BATCH_BYTES
    }

    /// Takes all entries.
    pub(super) fn take(&mut self) -> Vec<T> {
        self.bytes = 0;
        std::mem::take(&mut self.entries)
    }
}

/// Entries that are read side by side: enough for every thread, few enough to keep in memory.
pub(super) const BATCH_ENTRIES: usize = 1024;
/// Bytes of files that are read side by side.
const BATCH_BYTES: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_full_with_enough_entries_or_bytes_since_it_was_taken() {
        let mut batch = Batch::new();
        for _ in 0..2 {
            let full = (1..).find(|_| batch.push((), 0));
            assert_eq!((full, batch.take().len()), (Some(BATCH_ENTRIES), BATCH_ENTRIES));
            assert!(!batch.push((), BATCH_BYTES - 1) && batch.push((), 1));
            assert_eq!(batch.take().len(), 2);
        }
    }
}
