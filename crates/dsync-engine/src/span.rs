//! The digests of stretches of a listing, made alike at both ends.
//!
//! A stretch is a row of items: entries, and ends of directories. It is cut into pieces behind entries
//! whose names say so, so that an item that only one end has moves no cut of the others.
//!
//! The law: two pieces have equal digests only if their items are equal, in every part that a listing
//! sends, and lie in directories of the same paths. A listing may therefore be told by its digest to
//! whoever has one that is equal. What a record has no place for is never equal to anything.

use dsync_delta::{Key, file_root};
use dsync_wire::message::{Attributes, Digest, Entry, EntryKind, Timestamp};

/// The key of a session's digests.
#[derive(Clone)]
pub(crate) struct SpanKey(Key);

impl SpanKey {
    /// Derives the key from the random share of the source, which both ends know before the first
    /// listing. Nobody who wrote a tree before the session knew it.
    pub(crate) fn of(source_share: &[u8; 32]) -> Self {
        Self(Key::derive(&[KEY_CONTEXT, source_share]))
    }
}

/// One item of a listing.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Item<'a> {
    /// An entry of a directory.
    Entry(&'a Entry),
    /// The end of a directory.
    End {
        /// Whether it was read to its end.
        complete: bool,
    },
}

/// The digests of one stretch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Digests {
    /// The digest of each piece, and the number of its items.
    pub(crate) pieces: Vec<(Digest, usize)>,
    /// The digest of all of it.
    pub(crate) whole: Digest,
}

/// The end that makes a digest: items without a record differ by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Source,
    Destination,
}

/// Digests of a stretch in the making.
pub(crate) struct Digester<'k> {
    key: &'k SpanKey,
    end: End,
    /// The records of the piece so far, and their number.
    piece: Vec<u8>,
    items: usize,
    pieces: Vec<(Digest, usize)>,
    /// The directory of the piece's last item; `None` before its first one.
    directory: Option<Vec<u8>>,
}

impl<'k> Digester<'k> {
    pub(crate) fn new(key: &'k SpanKey, end: End) -> Self {
        Self { key, end, piece: Vec::new(), items: 0, pieces: Vec::new(), directory: None }
    }

    /// Adds an item of the directory of this path.
    pub(crate) fn push(&mut self, directory: &[u8], item: Item<'_>) {
        if self.directory.as_deref() != Some(directory) {
            self.piece.push(DIRECTORY);
            write_bytes(&mut self.piece, directory);
            self.directory = Some(directory.to_vec());
        }
        let is_last = match item {
            Item::Entry(entry) => {
                if write_entry(&mut self.piece, entry).is_none() {
                    self.piece.push(if self.end == End::Source { LISTED } else { FOUND });
                }
                ends_piece(entry.name.as_bytes())
            }
            Item::End { complete } => {
                self.piece.extend([END, u8::from(complete)]);
                false
            }
        };

        self.items += 1;
        if is_last || self.piece.len() >= PIECE_BYTES {
            self.cut();
        }
    }

    /// Ends the stretch.
    pub(crate) fn finish(mut self) -> Digests {
        if self.items > 0 {
            self.cut();
        }
        self.piece.push(STRETCH);
        self.pieces.iter().for_each(|(digest, _)| self.piece.extend(digest));
        Digests { whole: self.digest(), pieces: self.pieces }
    }

    /// Returns the digest of the records.
    fn digest(&self) -> Digest {
        let root = file_root(&self.key.0, &self.piece);
        let mut digest = Digest::default();
        digest.iter_mut().zip(root.as_bytes()).for_each(|(to, from)| *to = *from);
        digest
    }

    fn cut(&mut self) {
        self.pieces.push((self.digest(), self.items));
        self.piece.clear();
        self.items = 0;
        self.directory = None;
    }
}

/// Returns whether a piece ends behind the entry of this name: one in [`PIECE_ITEMS`] does.
fn ends_piece(name: &[u8]) -> bool {
    // FNV-1a with a last mix, as its low bits alone follow the last letter. Bad luck costs bytes only.
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32 & (PIECE_ITEMS - 1) == 0
}

/// Writes the record of an entry; `None` for one that has parts without a place here. No record is the
/// beginning of another.
fn write_entry(out: &mut Vec<u8>, entry: &Entry) -> Option<()> {
    let Entry { name, kind, attributes, hard_link, implied } = entry;
    let Attributes { mode, mtime: Timestamp { seconds, nanoseconds }, atime, uid, gid, extended } =
        attributes;
    out.extend([ENTRY, u8::from(*implied)]);
    write_bytes(out, name.as_bytes());
    out.extend(mode.to_le_bytes());
    out.extend(seconds.to_le_bytes());
    out.extend(nanoseconds.to_le_bytes());
    out.extend(uid.to_le_bytes());
    out.extend(gid.to_le_bytes());

    match kind {
        EntryKind::File { size, content: None } => {
            out.push(0);
            out.extend(size.to_le_bytes());
        }
        EntryKind::Directory => out.push(1),
        EntryKind::Symlink { target } => {
            out.push(2);
            write_bytes(out, target);
        }
        EntryKind::Fifo => out.push(3),
        EntryKind::Socket => out.push(4),
        EntryKind::CharDevice { device } | EntryKind::BlockDevice { device } => {
            out.push(if matches!(kind, EntryKind::CharDevice { .. }) { 5 } else { 6 });
            out.extend(device.major.to_le_bytes());
            out.extend(device.minor.to_le_bytes());
        }
        _ => return None,
    }
    (atime.is_none() && extended.is_none() && hard_link.is_none()).then_some(())
}

fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Items of a piece on average: a changed entry costs the listing of one.
const PIECE_ITEMS: u64 = 64;
/// Bytes of records that a piece ends behind whatever its names are.
const PIECE_BYTES: usize = 64 << 10;

/// The first bytes of records.
const DIRECTORY: u8 = 0;
const ENTRY: u8 = 1;
const END: u8 = 2;
/// Of an entry without a record.
const LISTED: u8 = 3;
const FOUND: u8 = 4;
/// Of the digests of a stretch.
const STRETCH: u8 = 5;

/// Changes with the form of records.
const KEY_CONTEXT: &[u8] = b"dsync 2026-11-24 spans of listings, version 1";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
