//! Every tuned number of the delta core: block length, segment length, when a delta pays.

use crate::block::BlockLen;

/// What is known of a file's earlier changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EditHistory {
    edits: u64,
}

impl EditHistory {
    /// States that about `edits` separate places of the file change between two runs.
    pub fn new(edits: u64) -> Self {
        Self { edits }
    }

    /// Number of separate places that change between two runs.
    pub fn edits(self) -> u64 {
        self.edits
    }
}

/// Chooses the block length for a basis of `len` bytes.
pub fn block_len(len: u64, history: Option<EditHistory>) -> BlockLen {
    let edits = history.map_or_else(|| prior_edits(len), EditHistory::edits).max(1);
    // B = 2^round(log2(sqrt(s * c * L / E))): half of log2(s * c * L / E), in integers.
    let square = u128::from(len) * SUM_BYTES_TIMES_RATIO / u128::from(edits);
    let exponent = square.max(1).ilog2().div_ceil(2);
    let floor = match len {
        0..0x10_0000 => 11,
        0x10_0000..0x400_0000 => 12,
        _ => 12,
    };
    BlockLen::from_log2(exponent.clamp(floor, 20))
}

fn prior_edits(len: u64) -> u64 {
    (len >> 18).max(8)
}

/// Chooses log2 of the segment length for a file of `len` bytes.
pub fn segment_log2(len: u64) -> u8 {
    match len {
        0..0x1000_0000 => 22,
        0x1000_0000..0x1_0000_0000 => 24,
        _ => 26,
    }
}

/// True when a delta against a basis is worth a try; otherwise send the file whole.
pub fn worthwhile(basis_len: u64, new_len: u64) -> bool {
    basis_len >= MIN_DELTA_LEN && new_len >= MIN_DELTA_LEN
}

/// Bytes per block of sums (12) times the usual compression ratio of literals (2).
const SUM_BYTES_TIMES_RATIO: u128 = 24;

/// Below this length a whole file costs less than its sums and a round trip: 16 KiB.
const MIN_DELTA_LEN: u64 = 16 << 10;
