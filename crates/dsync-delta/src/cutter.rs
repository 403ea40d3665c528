//! Bytes that come in pieces of any length, cut into blocks.

/// Cuts a stream of bytes into blocks of one length.
///
/// Memory: one block, once a piece has ended inside it.
#[derive(Debug, Clone, Default)]
pub(crate) struct BlockCutter {
    block_len: usize,
    /// The beginning of the next block.
    partial: Vec<u8>,
}

impl BlockCutter {
    /// Starts at a block's first byte.
    pub(crate) fn new(block_len: usize) -> Self {
        Self { block_len, partial: Vec::new() }
    }

    /// Takes the next bytes; passes on each block that they complete.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut each: impl FnMut(&[u8])) {
        if !self.partial.is_empty() {
            let missing = (self.block_len - self.partial.len()).min(bytes.len());
            self.partial.extend_from_slice(&bytes[..missing]);
            bytes = &bytes[missing..];
            if self.partial.len() < self.block_len {
                return;
            }
            each(&self.partial);
            self.partial.clear();
        }

        let blocks = bytes.chunks_exact(self.block_len);
        if !blocks.remainder().is_empty() {
            // Growing by doubling would hold the block three times for a moment.
            self.partial.reserve_exact(self.block_len);
            self.partial.extend_from_slice(blocks.remainder());
        }
        blocks.for_each(each);
    }

    /// Passes on the last block, if it is a shorter one.
    pub(crate) fn finish(&mut self, each: impl FnOnce(&[u8])) {
        if !self.partial.is_empty() {
            each(&self.partial);
            self.partial = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_of_any_length_make_the_blocks_of_the_whole(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            pieces in prop::collection::vec(0usize..40, 0..20),
            block_len in 1usize..33,
        ) {
            let mut cutter = BlockCutter::new(block_len);
            let mut blocks: Vec<Vec<u8>> = Vec::new();
            let mut rest = &bytes[..];
            for len in pieces {
                let (piece, after) = rest.split_at(len.min(rest.len()));
                cutter.push(piece, |block| blocks.push(block.to_vec()));
                rest = after;
            }
            cutter.push(rest, |block| blocks.push(block.to_vec()));
            cutter.finish(|block| blocks.push(block.to_vec()));
            let wanted: Vec<Vec<u8>> = bytes.chunks(block_len).map(<[u8]>::to_vec).collect();
            prop_assert_eq!(blocks, wanted);
        }
    }
}
