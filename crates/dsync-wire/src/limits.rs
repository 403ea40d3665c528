//! Every bound of the protocol, with its unit and its reason.
//!
//! A peer cannot raise any of them, and no value means "unlimited". Decoders check a length against
//! its bound before they allocate; encoders refuse whatever the other end would have to refuse. The
//! memory that one end needs for a peer's messages is therefore a sum of these constants, whatever
//! the peer declares. `docs/wire.md` repeats them, and a test compares the two.

/// Bytes that a peer can make an end hold in one session, over all [shares](crate::budget::Share)
/// (256 MiB). With the fixed costs of a process this stays below 300 MiB. `--max-alloc` sets
/// another bound.
pub const DEFAULT_MAX_ALLOC: u64 = 256 << 20;

/// Alternate directories of one kind, as in rsync.
pub const MAX_ALTERNATES: usize = 20;

/// Kind byte and payload of one frame, in bytes. A frame must hold [`MAX_RAW_FRAME`] incompressible
/// bytes with a header, and an event with a path of [`MAX_PATH`] and a link text.
pub const MAX_FRAME: u32 = (1 << 20) + (64 << 10);

/// Content of one compressed piece, in bytes after decompression. Pieces are independent, so a lane
/// needs one such buffer; beyond 1 MiB zstd's ratio gains under 1 %.
pub const MAX_RAW_FRAME: u32 = 1 << 20;

/// Window that a zstd piece may ask for, in bytes (8 MiB, log2 23). A window larger than the
/// content is never useful here; the bound only leaves room for encoders that do not shrink it.
pub const MAX_ZSTD_WINDOW: u64 = 1 << 23;

/// Data lanes of one session. QUIC fills long paths with 16; more only costs memory.
pub const MAX_DATA_LANES: usize = 64;

/// Entries in one `Listing` message. Bounds the memory to which a small compressed frame can
/// expand: 4,096 entries need 2 MiB with the longest names.
pub const MAX_LISTING_ENTRIES: usize = 4096;

/// Uncompressed content of one `Listing` message, in bytes.
pub const MAX_LISTING_BYTES: usize = MAX_RAW_FRAME as usize;

/// Files in one `Batch` message. Bounds the memory to which a small compressed frame can expand.
pub const MAX_BATCH_RECORDS: usize = 4096;

/// Bytes of one name.
pub const MAX_NAME: usize = 255;

/// Names from the transfer's root to an entry. Directories deeper than this are reported, not
/// walked.
pub const MAX_PATH_DEPTH: usize = 4096;

/// Bytes of a path in an event or a problem: [`MAX_PATH_DEPTH`] names of 255 bytes and a separator.
/// The kernel's 4096 do not apply, because trees are walked by directory handles.
pub const MAX_PATH: usize = MAX_PATH_DEPTH * (MAX_NAME + 1);

/// Bytes of a symbolic link's text: the most that Linux stores.
pub const MAX_SYMLINK: usize = 4095;

/// Bytes of an extended attribute's name: the most that Linux stores.
pub const MAX_XATTR_NAME: usize = 255;

/// Bytes of an extended attribute's value: the most that Linux stores.
pub const MAX_XATTR_VALUE: usize = 64 << 10;

/// Extended attributes of one entry. Linux lists at most 64 KiB of names, and the shortest takes
/// seven bytes.
pub const MAX_XATTRS: usize = 9362;

/// Named users or groups of one access control list: as many as the largest value has room for.
pub const MAX_ACL_NAMED: usize = 8191;

/// Operands of one side in `Start`. A command line of Linux has room for fewer.
pub const MAX_OPERANDS: usize = 256 << 10;

/// Bytes of one operand: the most that Linux opens, NUL excluded.
pub const MAX_OPERAND: usize = 4095;

/// Bytes of all operands in one `Start`. A whole command line on Linux is at most 6 MiB.
pub const MAX_OPERAND_BYTES: usize = 16 << 20;

/// Names in one `Start` that a destination may receive. Beyond it would cost more bytes than the
/// bound is worth, and any name may arrive.
pub const MAX_ASKED: usize = 4096;

/// Bytes of all those names in one `Start`.
pub const MAX_ASKED_BYTES: usize = 512 << 10;

/// Bytes of the options in one `Start`: room for all patterns as text and their surroundings.
/// Patterns that are not UTF-8 take up to four times as much, and that many do not fit.
pub const MAX_OPTIONS: usize = 8 << 20;

/// Bytes of a `Start` in pieces: of its operands with their lengths, its options, and the rest.
pub const MAX_START: usize = MAX_OPERAND_BYTES + 2 * MAX_OPERANDS + MAX_OPTIONS + 64;

/// Bytes of one piece of a `Start`.
pub const MAX_START_PART: usize = 256 << 10;

/// Lines in one `Names` message.
pub const MAX_NAMES: usize = 4096;

/// Bytes of one line of a list: one more than a path can have, so that a longer one is recognised.
pub const MAX_LINE: usize = MAX_OPERAND + 1;

/// Bytes of all lines in one `Names` message. Lines share beginnings with their neighbours, so a
/// small message could expand to much more.
pub const MAX_NAMES_BYTES: usize = 256 << 10;

/// Paths that one run explains: more than anybody types or reads.
pub const MAX_EXPLAINED: usize = 4096;

/// Filter rules in one `Start`. Published lists of patterns have some ten thousand.
pub const MAX_FILTERS: usize = 64 << 10;

/// Bytes of one filter rule's modifiers.
pub const MAX_MODIFIERS: usize = 16;

/// Bytes of one filter pattern.
pub const MAX_PATTERN: usize = 4096;

/// Bytes of all filter patterns in one `Start`; each is compiled, so the sum bounds work as well.
pub const MAX_PATTERN_BYTES: usize = 2 << 20;

/// Changes of permission bits in one `Start`.
pub const MAX_MODE_RULES: usize = 256;

/// Changes of owners and groups in one `Start`.
pub const MAX_ID_RULES: usize = 1024;

/// Bytes of a user or group name. glibc's databases take longer ones only in theory.
pub const MAX_ID_NAME: usize = 256;

/// Bytes of the text of a `Fatal` message.
pub const MAX_FATAL_TEXT: usize = 4096;
/// Bytes of what a peer that is ready says that its system lacks.
pub const MAX_READY_TEXT: usize = 1024;

/// Bytes of sums in one `Sums` message. A large signature is sent in parts.
pub const MAX_SUMS: usize = 256 << 10;

/// Signatures of one session that are announced but not complete. Bounds the source's table of
/// them.
pub const MAX_OPEN_SIGNATURES: usize = 1024;

/// Runs of segments in one `Rest` message. An interrupted file usually lacks one run at its end and
/// a few before it.
pub const MAX_REST_RUNS: usize = 256;

/// `IdName` messages of one session: the destination remembers the owner of each number, 10 bytes
/// apiece.
pub const MAX_ID_NAMES: usize = 512 << 10;

/// Requests for one file. A file is requested again if it changed while it was read, or if it
/// arrived damaged.
pub const MAX_ATTEMPTS: u8 = 3;

/// `Rest` messages of one session whose request has not yet followed.
pub const MAX_OPEN_RESTS: usize = 1024;

/// Entries in one `Landed` message.
pub const MAX_LANDED: usize = 4096;

/// Items of one `Span`: twice the most that a source of this project sends.
pub const MAX_SPAN_ITEMS: u32 = 32 << 10;

/// Digests in one `SpanAnswer`: a piece has 64 items on average.
pub const MAX_SPAN_PIECES: usize = 1024;

/// Spans that are sent and whose stretch of the listing is not whole.
pub const MAX_OPEN_SPANS: usize = 16;

/// Bytes of the longest block; a segment's lead is shorter.
pub const MAX_BLOCK_LEN: u32 = 4 << 20;

/// Length of a regular file, in bytes: the most that `off_t` holds.
pub const MAX_FILE_LEN: u64 = i64::MAX as u64;

/// Permission bits: nine for access, set-user-id, set-group-id, sticky.
pub const MAX_MODE: u16 = 0o7777;

/// Log2 of the shortest segment, in bytes (1 MiB).
pub const MIN_SEGMENT_LOG2: u8 = dsync_delta::Segments::MIN_LOG2;

/// Log2 of the longest segment, in bytes (64 MiB).
pub const MAX_SEGMENT_LOG2: u8 = dsync_delta::Segments::MAX_LOG2;

/// Holes of one segment: those of a filesystem with blocks of 4 KiB, every other one a hole, twice
/// over. Holes beyond these are written as zeros.
pub const MAX_HOLES: usize = 16 << 10;

/// Highest zstd level that a run may ask for.
pub const MAX_ZSTD_LEVEL: u8 = 19;

/// One bootstrap message with its header, in bytes.
pub const MAX_BOOTSTRAP: usize = 4096;

/// Addresses that a server offers in its bootstrap.
pub const MAX_SERVER_ADDRESSES: usize = 16;

/// Bytes of the text of a bootstrap refusal.
pub const MAX_REFUSAL_TEXT: usize = 1024;

// The two largest messages fit a frame.
const _: () = assert!(MAX_PATH + MAX_SYMLINK + 64 <= MAX_FRAME as usize);
const _: () = assert!(MAX_RAW_FRAME as usize + 64 <= MAX_FRAME as usize);
const _: () = assert!(MAX_HOLES * 8 + 64 <= MAX_FRAME as usize);
const _: () = assert!(MAX_START_PART + 64 <= MAX_FRAME as usize);
