//! A compact encoding of directory entries.
//!
//! A name is sent as the length of the prefix it shares with the name before it, and the rest. Mode
//! and owner are sent only if they differ from the entry before (for the mode, the one of the same
//! type), seconds as a difference. Access control lists and extended attributes go first, each
//! distinct set once, and entries refer to them by number. Each part starts anew, so parts can be
//! decoded alone. A part of 1 KiB and more is compressed as a whole. `/usr` takes about 15 bytes
//! per entry.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;

use super::{
    extended, packed,
    reader::{Reader, checked_timestamp},
    writer::Writer,
};
use crate::{
    compress::{Effort, Packer, Unpacker},
    error::{DecodeError, EncodeError, PeerText},
    kind::Kind,
    limits::{
        MAX_FILE_LEN, MAX_LISTING_BYTES, MAX_LISTING_ENTRIES, MAX_MODE, MAX_NAME, MAX_RAW_FRAME, MAX_SYMLINK,
    },
    message::{Attributes, DeviceNumber, Entry, EntryId, EntryKind, Extended, HardLink, Listing},
    name::Name,
};

impl Entry {
    /// Returns an upper bound of the entry's encoded size in bytes, for filling a listing message
    /// up to [`MAX_LISTING_BYTES`].
    pub fn max_encoded_len(&self) -> usize {
        let target = if let EntryKind::Symlink { target } = &self.kind { target.len() } else { 0 };
        let extended = self.attributes.extended.as_ref().map_or(0, |extended| extended.max_encoded_len());
        MAX_FIXED_LEN + self.name.as_bytes().len() + target + extended
    }
}

impl Extended {
    /// Returns an upper bound of the encoded size in bytes.
    pub fn max_encoded_len(&self) -> usize {
        let lists = [&self.access, &self.default].into_iter().flatten();
        let lists = lists.map(|acl| 8 + 6 * (acl.users.len() + acl.groups.len())).sum::<usize>();
        let xattrs = self.xattrs.iter().map(|xattr| 5 + xattr.name.len() + xattr.value.len());
        4 + lists + xattrs.sum::<usize>()
    }
}

pub(super) fn encode(listing: &Listing, packer: &mut Packer, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let mut content = Vec::with_capacity(16 + listing.entries.len() * TYPICAL_LEN);
    let mut w = Writer::new(Kind::LISTING, &mut content);
    let sets = Sets::of(&listing.entries);
    w.count(sets.in_order.len(), MAX_LISTING_ENTRIES, "number of attribute sets")?;
    for set in &sets.in_order {
        extended::encode(set, &mut w)?;
    }
    w.count(listing.entries.len(), MAX_LISTING_ENTRIES, "number of entries")?;
    let mut before = Before::default();
    for entry in &listing.entries {
        before.encode(entry, &sets, &mut w)?;
    }
    w.check(w.size(), MAX_LISTING_BYTES as u64, "size of entries")?;
    let mut w = Writer::new(Kind::LISTING, out);
    w.entry(listing.dir);
    w.flags(0, &[(LAST, listing.last), (COMPLETE, listing.complete), (LEFT_OUT, listing.left_out)]);
    let effort = if content.len() >= COMPRESSED_LEN { Effort::Zstd(1) } else { Effort::Raw };
    let packed = packer.pack(Bytes::from(content), effort);
    packed::encode_header(&packed, Kind::LISTING, out)?;
    out.extend_from_slice(&packed.bytes);
    Ok(())
}

pub(super) fn decode(r: &mut Reader<'_>, unpacker: &mut Unpacker) -> Result<Listing, DecodeError> {
    let dir = r.entry()?;
    let flags = r.flags(LAST | COMPLETE | LEFT_OUT, "flags")?;
    let packed = packed::decode(r, Bytes::copy_from_slice)?;
    let content = unpacker
        .unpack(&packed, MAX_RAW_FRAME)
        .map_err(|source| DecodeError::Packed { kind: Kind::LISTING, source })?;
    let mut r = Reader::new(Kind::LISTING, &content, 0);
    let count = r.count(MAX_LISTING_ENTRIES, MIN_SET_LEN, "number of attribute sets")?;
    let sets = (0..count).map(|_| extended::decode(&mut r).map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
    let count = r.count(MAX_LISTING_ENTRIES, MIN_LEN, "number of entries")?;
    let mut entries = Vec::with_capacity(count);
    let mut before = Before::default();
    for index in 0..count {
        entries.push(before.decode(EntryId(index as u64), &sets, &mut r)?);
    }
    r.finish()?;
    let is = |flag| flags & flag != 0;
    Ok(Listing { dir, last: is(LAST), complete: is(COMPLETE), left_out: is(LEFT_OUT), entries })
}

pub(super) fn encode_attributes(attributes: &Attributes, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    w.mode(attributes.mode)?;
    w.timestamp(attributes.mtime)?;
    w.u32(attributes.uid);
    w.u32(attributes.gid);
    w.valid(attributes.atime.is_none(), "access time of a directory")?;
    w.bool(attributes.extended.is_some());
    attributes.extended.as_ref().map_or(Ok(()), |extended| extended::encode(extended, w))
}

pub(super) fn decode_attributes(entry: EntryId, r: &mut Reader<'_>) -> Result<Attributes, DecodeError> {
    Ok(Attributes {
        mode: r.mode(entry)?,
        mtime: r.timestamp(entry)?,
        atime: None,
        uid: r.u32("owner")?,
        gid: r.u32("group")?,
        extended: if r.bool("flag")? { Some(Arc::new(extended::decode(r)?)) } else { None },
    })
}

/// The distinct sets of lists and attributes of a part.
#[derive(Default)]
struct Sets<'a> {
    in_order: Vec<&'a Extended>,
    numbers: HashMap<&'a Extended, usize>,
}

impl<'a> Sets<'a> {
    fn of(entries: &'a [Entry]) -> Self {
        let mut sets = Self::default();
        for set in entries.iter().filter_map(|entry| entry.attributes.extended.as_deref()) {
            sets.numbers.entry(set).or_insert_with(|| {
                sets.in_order.push(set);
                sets.in_order.len() - 1
            });
        }
        sets
    }
}

/// The values of the entries before, against which the next one is encoded.
#[derive(Default)]
struct Before {
    name: Vec<u8>,
    modes: [u16; 8],
    uid: u32,
    gid: u32,
    seconds: i64,
}

impl Before {
    fn encode(&mut self, entry: &Entry, sets: &Sets<'_>, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        let Attributes { mode, mtime, atime, uid, gid, ref extended } = entry.attributes;
        let code = type_code(&entry.kind);
        let same_mode = self.modes[usize::from(code)] == mode;
        let same_owner = (self.uid, self.gid) == (uid, gid);
        let hash = matches!(entry.kind, EntryKind::File { content: Some(_), .. });
        w.valid(mtime.is_valid(), "timestamp")?;
        let (nanoseconds, linked) = (mtime.nanoseconds != 0, entry.hard_link);
        w.valid(linked.is_none() || entry.kind != EntryKind::Directory, "hard link")?;
        w.valid(atime.is_none() || entry.kind != EntryKind::Directory, "access time of a directory")?;
        w.valid(!entry.implied || entry.kind == EntryKind::Directory, "directory on the way")?;
        let is_bare = entry.attributes == Attributes::default() && linked.is_none();
        w.valid(is_bare || entry.kind != EntryKind::Hidden, "hidden entry")?;
        let more = extended.is_some() || linked.is_some() || atime.is_some() || entry.implied;
        let flags = [
            (SAME_MODE, same_mode),
            (SAME_OWNER, same_owner),
            (NANOSECONDS, nanoseconds),
            (HASH, hash),
            (MORE, more),
        ];

        w.flags(code, &flags);
        if more {
            let another = matches!(linked, Some(HardLink::To(_)));
            let first = linked.is_some() && !another;
            let flags = [
                (EXTENDED, extended.is_some()),
                (FIRST_NAME, first),
                (ANOTHER_NAME, another),
                (READ_AT, atime.is_some()),
                (IMPLIED, entry.implied),
            ];
            w.flags(0, &flags);
        }

        self.encode_name(&entry.name, w)?;
        if !same_mode {
            w.mode(mode)?;
        }

        if !same_owner {
            w.u32(uid);
            w.u32(gid);
        }

        // Two times of which each is far off have a difference in the ring of 64 bits only.
        w.i64(mtime.seconds.wrapping_sub(self.seconds));
        if mtime.nanoseconds != 0 {
            w.raw(&mtime.nanoseconds.to_le_bytes());
        }
        if let Some(atime) = atime {
            w.timestamp(atime)?;
        }
        if let Some(number) = extended.as_deref().and_then(|set| sets.numbers.get(set)) {
            w.u64(*number as u64);
        }
        if let Some(HardLink::To(first)) = linked {
            w.entry(first);
        }
        self.modes[usize::from(code)] = mode;
        (self.uid, self.gid, self.seconds) = (uid, gid, mtime.seconds);
        encode_details(&entry.kind, w)
    }

    fn encode_name(&mut self, name: &Name, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        let name = name.as_bytes();
        w.valid(name > self.name.as_slice(), "order of names")?;
        let shared = name.iter().zip(&self.name).take_while(|(a, b)| a == b).count();
        w.count(shared, MAX_NAME, "name")?;
        w.bytes(&name[shared..], MAX_NAME, "name")?;
        self.name.truncate(shared);
        self.name.extend_from_slice(&name[shared..]);
        Ok(())
    }

    fn decode(
        &mut self,
        index: EntryId,
        sets: &[Arc<Extended>],
        r: &mut Reader<'_>,
    ) -> Result<Entry, DecodeError> {
        let offset = r.offset();
        let flags = r.byte("flags")?;
        let code = flags & TYPE;
        let Some(before_mode) = self.modes.get(usize::from(code)).copied() else {
            return Err(r.value(u64::from(code), offset, "type of entry"));
        };
        if flags & HASH != 0 && code != 0 {
            return Err(r.value(u64::from(flags), offset, "flags"));
        }

        let more_offset = r.offset();
        let known = EXTENDED | FIRST_NAME | ANOTHER_NAME | READ_AT | IMPLIED;
        let more = if flags & MORE != 0 { r.flags(known, "flags")? } else { 0 };
        let names = more & (FIRST_NAME | ANOTHER_NAME);
        let misplaced = if code == DIRECTORY { !(EXTENDED | IMPLIED) } else { IMPLIED };
        let is_misplaced = more & misplaced != 0;
        if names == FIRST_NAME | ANOTHER_NAME || is_misplaced {
            return Err(r.value(u64::from(more), more_offset, "flags"));
        }

        let name = self.decode_name(index, r)?;
        let mode = if flags & SAME_MODE != 0 { before_mode } else { r.mode(index)? };
        if flags & SAME_OWNER == 0 {
            self.uid = r.u32("owner")?;
            self.gid = r.u32("group")?;
        }

        let seconds = self.seconds.wrapping_add(r.i64("seconds")?);
        let nanoseconds =
            if flags & NANOSECONDS != 0 { u32::from_le_bytes(r.array("nanoseconds")?) } else { 0 };
        let mtime = checked_timestamp(seconds, nanoseconds, index)?;
        self.seconds = seconds;
        let atime = if more & READ_AT != 0 { Some(r.timestamp(index)?) } else { None };
        let extended = if more & EXTENDED != 0 { Some(decode_set(sets, r)?) } else { None };
        let hard_link = match names {
            0 => None,
            FIRST_NAME => Some(HardLink::First),
            _ => Some(HardLink::To(r.entry()?)),
        };
        if let Some(slot) = self.modes.get_mut(usize::from(code)) {
            *slot = mode;
        }
        let kind = decode_details(code, flags & HASH != 0, r)?;
        let attributes = Attributes { mode, mtime, atime, uid: self.uid, gid: self.gid, extended };
        if code == HIDDEN && (attributes != Attributes::default() || hard_link.is_some()) {
            return Err(r.value(u64::from(flags), offset, "hidden entry"));
        }
        Ok(Entry { name, kind, attributes, hard_link, implied: more & IMPLIED != 0 })
    }

    fn decode_name(&mut self, index: EntryId, r: &mut Reader<'_>) -> Result<Name, DecodeError> {
        let shared = r.len(self.name.len(), "shared part of the name")?;
        let rest = r.bytes(MAX_NAME + 1, "name")?;
        // The first byte that differs shows the order, without a copy of the name before.
        let ascends = rest.first() > self.name.get(shared);
        self.name.truncate(shared);
        self.name.extend_from_slice(rest);
        let name = Name::new(&self.name)
            .map_err(|source| DecodeError::Name { name: PeerText::new(&self.name), source })?;
        if ascends {
            Ok(name)
        } else {
            Err(DecodeError::NameOrder { entry: index, name: PeerText::new(&self.name) })
        }
    }
}

/// Decodes a reference to one of the part's sets.
fn decode_set(sets: &[Arc<Extended>], r: &mut Reader<'_>) -> Result<Arc<Extended>, DecodeError> {
    let offset = r.offset();
    let number = r.u64("number of an attribute set")?;
    let set = usize::try_from(number).ok().and_then(|number| sets.get(number)).cloned();
    set.ok_or_else(|| r.value(number, offset, "number of an attribute set"))
}

fn encode_details(kind: &EntryKind, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    match kind {
        EntryKind::File { size, content } => {
            w.file_len(*size, "file size")?;
            if let Some(content) = content {
                w.raw(content);
            }
        }
        EntryKind::Symlink { target } => {
            w.valid(valid_target(target), "link text")?;
            w.bytes(target, MAX_SYMLINK, "link text")?;
        }
        EntryKind::CharDevice { device } | EntryKind::BlockDevice { device } => {
            w.u32(device.major);
            w.u32(device.minor);
        }
        EntryKind::Directory | EntryKind::Fifo | EntryKind::Socket | EntryKind::Hidden => {}
    }
    Ok(())
}

fn decode_details(code: u8, hash: bool, r: &mut Reader<'_>) -> Result<EntryKind, DecodeError> {
    let device = |r: &mut Reader<'_>| -> Result<DeviceNumber, DecodeError> {
        Ok(DeviceNumber { major: r.u32("device number")?, minor: r.u32("device number")? })
    };

    Ok(match code {
        0 => EntryKind::File {
            size: r.at_most(MAX_FILE_LEN, "file size")?,
            content: if hash { Some(r.array("content hash")?) } else { None },
        },
        DIRECTORY => EntryKind::Directory,
        2 => {
            let offset = r.offset();
            let target = r.bytes(MAX_SYMLINK, "link text")?;
            if !valid_target(target) {
                return Err(r.value(target.len() as u64, offset, "link text"));
            }
            EntryKind::Symlink { target: target.to_vec() }
        }
        3 => EntryKind::Fifo,
        4 => EntryKind::Socket,
        5 => EntryKind::CharDevice { device: device(r)? },
        6 => EntryKind::BlockDevice { device: device(r)? },
        // The caller has checked the code against the eight types.
        _ => EntryKind::Hidden,
    })
}

/// Returns whether a link text is valid: without NUL, which no filesystem stores. It is empty in a
/// run that copies no links.
fn valid_target(target: &[u8]) -> bool {
    !target.contains(&0)
}

/// Returns the code of an entry's type: the wire values of [`FileType`](crate::event::FileType).
fn type_code(kind: &EntryKind) -> u8 {
    match kind {
        EntryKind::File { .. } => 0,
        EntryKind::Directory => DIRECTORY,
        EntryKind::Symlink { .. } => 2,
        EntryKind::Fifo => 3,
        EntryKind::Socket => 4,
        EntryKind::CharDevice { .. } => 5,
        EntryKind::BlockDevice { .. } => 6,
        EntryKind::Hidden => HIDDEN,
    }
}

/// Bit of a listing: this is its last part.
const LAST: u8 = 1;
/// Bit of a listing: the directory was read to its end.
const COMPLETE: u8 = 2;
/// Rules left out entries of the part.
const LEFT_OUT: u8 = 4;

/// Bits of an entry that hold its type.
const TYPE: u8 = 0b111;
/// Bit of an entry: its mode equals that of the entry of this type before it.
const SAME_MODE: u8 = 8;
/// Bit of an entry: its owner and group equal those of the entry before it.
const SAME_OWNER: u8 = 16;
/// Bit of an entry: nanoseconds follow; else they are 0.
const NANOSECONDS: u8 = 32;
/// Bit of a file: its content hash follows.
const HASH: u8 = 64;
/// Bit of an entry: another byte of bits follows.
const MORE: u8 = 128;

/// Second bits of an entry: its lists and attributes follow.
const EXTENDED: u8 = 1;
/// Second bits of an entry: it is the first of several names.
const FIRST_NAME: u8 = 2;
/// Second bits of an entry: it is another name of an entry whose number follows.
const ANOTHER_NAME: u8 = 4;
/// Second bits of an entry: its access time follows.
const READ_AT: u8 = 8;
/// Second bits of a directory: it is only on the way to what operands name.
const IMPLIED: u8 = 16;

/// Type of a directory.
const DIRECTORY: u8 = 1;
/// Type of an entry of which only the name is told.
const HIDDEN: u8 = 7;

/// Smallest set of lists and attributes: flags, number of attributes.
const MIN_SET_LEN: usize = 2;

/// Smallest entry: flags, shared length, length of one byte, that byte, seconds.
const MIN_LEN: usize = 5;
/// Largest entry without its name, link text and attribute set: flags 2, name lengths 2 + 2, mode
/// 2, owner 5 + 5, seconds 10, nanoseconds 4, access time 15, number of a set 2, number of an entry
/// 10, size 9 and hash 32 (or link length 2, or device 5 + 5).
const MAX_FIXED_LEN: usize = 105;
/// First guess of an entry's size.
const TYPICAL_LEN: usize = 32;
/// Length from which content is compressed, in bytes.
const COMPRESSED_LEN: usize = 1024;

const _: () = assert!(MAX_MODE < 1 << 14, "a mode takes two bytes");
