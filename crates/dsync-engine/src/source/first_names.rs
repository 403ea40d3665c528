//! The listed entries that are names of one inode.
//!
//! The first name that is listed stands for all of them: names outside the operands or left out by
//! a filter have no say. Cost: two numbers for each inode that has several names, in a map for each
//! filesystem, below 58 bytes; nothing for others.
//!
//! The law: a name is linked to another one only if both are of one inode. Its number does not tell: where
//! names go and others are made while the tree is listed, a new inode gets the number of an old one.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use dsync_fs::{Kind, Metadata};
use dsync_wire::message::{EntryId, HardLink};

/// The first listed names of inodes that have several.
#[derive(Default)]
pub(super) struct FirstNames {
    /// By filesystem, then by inode number.
    filesystems: BTreeMap<u64, BTreeMap<u64, First>>,
    /// The names whose content a manifest demands, by filesystem, inode number and that content.
    demanded: BTreeMap<(u64, u64, [u8; 32]), EntryId>,
}

/// The first listed name of an inode.
struct First {
    entry: EntryId,
    /// The digest of what tells the inode from others of its number.
    inode: u64,
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
            None => {
                let inode = digest(metadata);
                let first =
                    self.filesystems.entry(dev).or_default().entry(ino).or_insert(First { entry, inode });
                if first.inode != inode {
                    *first = First { entry, inode };
                }
                first.entry
            }
        };
        Some(if first == entry { HardLink::First } else { HardLink::To(first) })
    }
}

/// Returns the digest of what tells an inode from an earlier or later one of its number. Where the filesystem
/// keeps no birth time, one whose size or time has changed between two looks is taken for another: then its
/// names are copied apart, which loses nothing.
fn digest(found: &Metadata) -> u64 {
    let mut hasher = DefaultHasher::new();
    match found.born {
        Some(born) => (found.kind, born).hash(&mut hasher),
        None => (found.kind, found.size, found.mtime).hash(&mut hasher),
    }
    hasher.finish()
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
            born: None,
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
    fn an_inode_that_got_the_number_of_another_is_not_that_one() {
        let time = |seconds| dsync_fs::Timestamp { seconds, nanoseconds: 0 };
        let of = |kind, born, mtime| Metadata { born, mtime: time(mtime), ..metadata(1, 3, 2, kind) };
        for (first, later, is_same) in [
            (of(Kind::File, Some(time(1)), 5), of(Kind::File, Some(time(1)), 6), true),
            (of(Kind::File, Some(time(1)), 5), of(Kind::File, Some(time(2)), 5), false),
            (of(Kind::Fifo, Some(time(1)), 5), of(Kind::File, Some(time(1)), 5), false),
            (of(Kind::File, None, 5), of(Kind::File, None, 5), true),
            (of(Kind::File, None, 5), of(Kind::File, None, 6), false),
            (of(Kind::Symlink, None, 5), of(Kind::File, None, 5), false),
        ] {
            let mut names = FirstNames::default();
            assert_eq!(names.link_of(&first, None, EntryId(7)), Some(HardLink::First));
            let link = names.link_of(&later, None, EntryId(8));
            assert_eq!(link, Some(if is_same { HardLink::To(EntryId(7)) } else { HardLink::First }));
            // Further names are those of the later one.
            let to = if is_same { 7 } else { 8 };
            assert_eq!(names.link_of(&later, None, EntryId(9)), Some(HardLink::To(EntryId(to))));
        }
    }

    #[test]
    fn an_inode_costs_less_than_58_bytes() {
        // A node of the map is at least five elevenths full, and has some bytes of its own.
        assert!((size_of::<(u64, First)>() + 2) * 11 / 5 <= 58);
    }
}
