//! Limits that both roles keep: one end stays within them, the other refuses anything beyond.

/// Entries that are listed and not released. With about 60 bytes each this is some 2 MB; it must
/// exceed what the destination collects before it commits a group, or both would wait.
pub(crate) const MAX_UNRELEASED_ENTRIES: usize = 32_768;
/// Bytes that the attribute sets of listed and unreleased entries take at the destination: a
/// quarter of the lowest `--max-alloc` that a run works with, and enough for a long path, as half
/// of it travels.
pub(crate) const MAX_UNRELEASED_SET_BYTES: u64 = 16 << 20;
/// Blocks of one signature: beyond, a file is sent whole. 4 Mi blocks of the longest length are 16
/// TiB.
pub(crate) const MAX_SIGNATURE_BLOCKS: u64 = 4 << 20;
/// Shorter blocks of one request: a larger one is not made, nor answered.
pub(crate) const MAX_FINE_BLOCKS: u64 = 512 << 10;
/// Bytes of the paths of directories that the destination holds open because something in them is
/// in flight: those of a usual tree are a hundredth of it.
pub(crate) const MAX_OPEN_PATH_BYTES: u64 = 32 << 20;
