//! The judgement of one entry beside its record: which files are read, and what a difference is.
//!
//! Law: an entry of this machine and one that a remote end lists are judged alike.

use std::io;

use dsync_delta::ContentHasher;
use dsync_wire::event::{Changes, FileType};

use super::{Difference, Reading};
use crate::{manifest::Record, plan::same_time};

/// Compares an entry, whose content may have been read, with its record.
pub(super) fn difference(now: &Record, read: Read, record: &Record) -> Option<Difference> {
    let mut changes = Changes::NONE;
    let mut set = |differs: bool, change| {
        if differs {
            changes.insert(change);
        }
    };
    set(now.mode != record.mode, Changes::PERMS);
    set(now.uid != record.uid, Changes::OWNER);
    set(now.gid != record.gid, Changes::GROUP);
    if now.kind != record.kind || !is_same_text(now, record) {
        set(true, Changes::CONTENT);
        return Some(Difference::Edited(changes));
    }
    // Times of other types change with what is in them, or for no reason that matters.
    let is_file = now.kind == FileType::File;
    set(is_file && now.size != record.size, Changes::SIZE);
    set(is_file && !same_time(now.mtime, record.mtime), Changes::TIME);

    let is_same = match read {
        Read::Failed(error) => return Some(Difference::Unreadable(error)),
        Read::Busy => return Some(Difference::Busy),
        Read::Not | Read::Ended => None,
        Read::Content(hash) => record.content.map(|recorded| recorded == hash),
    };
    let looks_edited = changes.contains(Changes::SIZE) || changes.contains(Changes::TIME);
    match is_same {
        Some(false) if !looks_edited => Some(Difference::Rot),
        Some(false) => {
            changes.insert(Changes::CONTENT);
            Some(Difference::Edited(changes))
        }
        None if looks_edited => Some(Difference::Edited(changes)),
        _ if changes.is_empty() => None,
        _ => Some(Difference::Attributes(changes)),
    }
}

/// Compares the text of a link or the numbers of a device. A remote end does not tell a device's
/// numbers, so a record that was made over a connection has none.
fn is_same_text(now: &Record, record: &Record) -> bool {
    let is_device = matches!(now.kind, FileType::CharDevice | FileType::BlockDevice);
    let is_unknown = is_device && (now.text.is_empty() || record.text.is_empty());
    is_unknown || now.text == record.text
}

impl Reading {
    /// Returns whether a file's content is compared.
    pub(super) fn wants(&self, now: &Record, record: &Record) -> bool {
        // A file of another length needs no look.
        [now.kind, record.kind] == [FileType::File; 2]
            && record.content.is_some()
            && now.size == record.size
            && self.samples(&record.path)
    }

    /// Returns whether a path is among the share that is read.
    pub(super) fn samples(&self, path: &[u8]) -> bool {
        let mut hasher = ContentHasher::new();
        hasher.update(&self.seed.to_le_bytes()).update(path);
        let [first, second, ..] = hasher.finish();
        u64::from(u16::from_le_bytes([first, second])) * 100 < u64::from(self.percent) << 16
    }
}

/// The result of reading an entry's content.
pub(super) enum Read {
    /// It has none, or it was not asked for.
    Not,
    Content([u8; 32]),
    /// It changed meanwhile, twice.
    Busy,
    Failed(io::Error),
    /// The work was cancelled before its end.
    Ended,
}
