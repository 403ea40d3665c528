//! The listed entries that are names of one inode.
//!
//! The first name that is listed stands for all of them: names outside the operands or left out by
//! a filter have no say. Cost: a number for each inode that has several names, in a map for each
//! filesystem, below 48 bytes; nothing for others.

use std::collections::BTreeMap;

use dsync_fs::{Kind, Metadata};
use dsync_wire::message::{EntryId, HardLink};

/// The first listed names of inodes that have several.
#[derive(Default)]
pub(super) struct FirstNames {
    /// By filesystem, then by inode number.
    filesystems: BTreeMap<u64, BTreeMap<u64, EntryId>>,
    /// The names whose content a manifest demands, by filesystem, inode number and that content.
    demanded: BTreeMap<(u64, u64, [u8; 32]), EntryId>,
}

impl FirstNames {
    /// Tells whether an entry that is about to be listed is one of several names. Names of which
    /// different contents are demanded are not names of one entry.
    pub(super) fn link_of(
        &mut self,
        metadata: &Metadata,
        demanded: Option<[u8; 32]>,
        entry: EntryId,
    ) -> Option<HardLink> {
        if metadata.nlink < 2 || metadata.kind == Kind::Dir {
            return None;
        }
        let &Metadata { dev, ino, .. } = metadata;
        let first = match demanded {
            Some(content) => *self.demanded.entry((dev, ino, content)).or_insert(entry),
            None => *self.filesystems.entry(dev).or_default().entry(ino).or_insert(entry),
        };
        Some(if first == entry { HardLink::First } else { HardLink::To(first) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(dev: u64, ino: u64, nlink: u32, kind: Kind) -> Metadata {
        let time = dsync_fs::Timestamp::default();
        let rdev = dsync_fs::DeviceNumber::default();
        Metadata {
            kind,
            mode: 0o644,
            size: 0,
            mtime: time,
            ctime: time,
            atime: time,
            uid: 0,
            gid: 0,
            dev,
            ino,
            nlink,
            rdev,
            blocks: 0,
            origin: dsync_fs::Origin::Inode,
        }
    }

    #[test]
    fn names_are_of_one_entry_if_filesystem_and_inode_are_the_same() {
        let mut names = FirstNames::default();
        let mut link =
            |dev, ino, nlink, kind, id| names.link_of(&metadata(dev, ino, nlink, kind), None, EntryId(id));
        assert_eq!(link(1, 1, 1, Kind::File, 1), None);
        assert_eq!(link(1, 2, 9, Kind::Dir, 2), None);
        assert_eq!(link(1, 3, 2, Kind::File, 3), Some(HardLink::First));
        assert_eq!(link(2, 3, 2, Kind::Fifo, 4), Some(HardLink::First));
        assert_eq!(link(1, 3, 2, Kind::File, 5), Some(HardLink::To(EntryId(3))));
        assert_eq!(link(2, 3, 2, Kind::Fifo, 6), Some(HardLink::To(EntryId(4))));

        let file = metadata(1, 3, 2, Kind::File);
        let mut demanded = |content, id| names.link_of(&file, Some([content; 32]), EntryId(id));
        assert_eq!(demanded(1, 7), Some(HardLink::First));
        assert_eq!(demanded(2, 8), Some(HardLink::First));
        assert_eq!(demanded(1, 9), Some(HardLink::To(EntryId(7))));
    }

    #[test]
    fn an_inode_costs_less_than_48_bytes() {
        // A node of the map is at least five elevenths full, and has some bytes of its own.
        assert!((size_of::<(u64, EntryId)>() + 2) * 11 / 5 <= 48);
    }
}
