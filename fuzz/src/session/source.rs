//! A source: lists entries, and sends the requested files.

use std::collections::HashMap;

use bytes::Bytes;
use dsync_delta::{BlockIndex, BlockLen, BlockRun, SumsFormat, Token, TokenEncoder, file_root};
use dsync_wire::{
    codec::encode_records,
    compress::{Codec, Packed},
    message::{
        Acl, Attributes, Cause, ControlMessage, DataMessage, DeviceNumber, Entry, EntryId, EntryKind,
        Extended, FileEnd, FileState, HardLink, IdName, Listing, ListingEnd, Operation, Problem, Record,
        Refine, Same, Segment, Span, Timestamp, Tops, Xattr,
    },
    name::Name,
    options::SyncOptions,
};

use super::{PATIENCE, Peer, script::Script};

/// Names of entries, in listing order.
const NAMES: [&str; 12] = [".part", "a", "b", "c", "d", "kept", "kept~", "old", "out", "peek", "sub", "zz"];

/// The listing so far, and open requests.
#[derive(Default)]
struct Listed {
    /// Lengths of files by entry number.
    files: HashMap<u64, u64>,
    firsts: Vec<u64>,
    /// Directories without a listing yet, the next one last.
    directories: Vec<u64>,
    next: u64,
    bytes: u64,
    /// Requests without an answer: entry and attempt.
    asked: Vec<(u64, u8)>,
    ended: bool,
}

/// Plays the script to its end.
pub(super) fn play(peer: &mut Peer, script: &mut Script<'_>, options: &SyncOptions) {
    let root = Attributes { mode: 0o755, ..Attributes::default() };
    let tops = Tops { root: Some(root), named: 0, single_file: script.rarely(30) };
    peer.say(&ControlMessage::Tops(tops), script.damage());
    let mut listed = Listed { directories: vec![0], next: 1, ..Listed::default() };
    for number in 0..super::LANES {
        peer.open(number);
    }
    while script.goes_on() {
        step(peer, script, options, &mut listed);
    }
}

fn step(peer: &mut Peer, script: &mut Script<'_>, options: &SyncOptions, listed: &mut Listed) {
    match script.below(24) {
        0..=4 => list(peer, script, options, listed, false),
        5 => list(peer, script, options, listed, true),
        6 | 7 => end_listing(peer, script, listed),
        8..=10 => hear(peer, listed),
        11..=14 => answer(peer, script, listed),
        15 => any_data(peer, script),
        16 => peer.open(script.byte() % 4),
        17 => {
            let lane = script.below(8);
            peer.send(lane, &DataMessage::LaneEnd, script.damage());
            if let Some(lane) = peer.lanes.get_mut(lane) {
                let _ = lane.finish();
            }
        }
        18 => {
            let (kind, bytes) = (script.byte(), script.bytes(64));
            peer.say_raw(frame(kind, &bytes));
        }
        19 => {
            let (lane, kind, bytes) = (script.below(4), 60 + script.byte() % 16, script.bytes(64));
            peer.send_raw(lane, frame(kind, &bytes));
        }
        20 => {
            let message = any_refine(script);
            peer.say(&message, script.damage());
        }
        _ => {
            let message = any_control(script);
            peer.say(&message, script.damage());
        }
    }
}

fn frame(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let len = (bytes.len() as u32 + 1).to_le_bytes();
    [&len[..], &[kind], bytes].concat()
}

/// Lists some entries of a directory, after a span that tells them if `spanned`.
fn list(peer: &mut Peer, script: &mut Script<'_>, options: &SyncOptions, listed: &mut Listed, spanned: bool) {
    let legal = listed.directories.pop().filter(|_| !script.rarely(12));
    let dir = legal.unwrap_or_else(|| u64::from(script.byte() % 8));
    let wanted = u16::from(script.byte()) | u16::from(script.byte()) << 8;
    let mut entries = Vec::new();
    let mut directories = Vec::new();
    for (at, name) in NAMES.iter().enumerate().filter(|(at, _)| wanted >> at & 1 == 1) {
        let Ok(name) = Name::new(name.as_bytes()) else { continue };
        if at == 0 && !script.rarely(8) {
            continue;
        }
        let (kind, hard_link) = kind(script, options, listed);
        if kind == EntryKind::Directory {
            directories.push(listed.next);
        }
        let attributes = attributes(script, options);
        let implied = kind == EntryKind::Directory && script.rarely(8);
        entries.push(Entry { name, kind, attributes, hard_link, implied });
        listed.next += 1;
    }
    listed.directories.extend(directories.into_iter().rev());
    let (last, complete) = (!script.rarely(10), !script.rarely(6));
    let listing = Listing { dir: EntryId(dir), last, complete: last && complete, left_out: !last, entries };
    if spanned {
        let items = listing.entries.len() + usize::from(last);
        let span = any_span(script, u32::try_from(items).unwrap_or(u32::MAX));
        peer.say(&span, script.damage());
        if script.rarely(4) {
            peer.say(&any_same(script), script.damage());
        }
    }
    peer.say(&ControlMessage::Listing(listing), script.damage());
}

fn kind(
    script: &mut Script<'_>,
    options: &SyncOptions,
    listed: &mut Listed,
) -> (EntryKind, Option<HardLink>) {
    let number = listed.next;
    let kind = match script.below(16) {
        0..=8 => {
            let size = script.pick(&[0, 1, 5, 5, 700, 6000, 6001, 200_000, 1_100_000, 1 << 40]);
            listed.files.insert(number, size);
            listed.bytes = listed.bytes.wrapping_add(size);
            let content = options.checksum.then_some([script.byte(); 32]);
            EntryKind::File { size, content }
        }
        9..=12 => return (EntryKind::Directory, None),
        13 => {
            let target = script.pick(&["../outside", "kept", "/etc/passwd", "sub", "..", "a"]);
            listed.bytes = listed.bytes.wrapping_add(target.len() as u64);
            EntryKind::Symlink { target: target.as_bytes().to_vec() }
        }
        14 => script.pick(&[0, 1]).eq(&0).then_some(EntryKind::Fifo).unwrap_or(EntryKind::Socket),
        _ => EntryKind::CharDevice { device: DeviceNumber::default() },
    };
    let link = match script.below(8) {
        5 if options.hard_links => {
            listed.firsts.push(number);
            Some(HardLink::First)
        }
        6 | 7 if options.hard_links => {
            let at = script.below(listed.firsts.len().max(1));
            listed.firsts.get(at).map(|&first| HardLink::To(EntryId(first)))
        }
        _ => None,
    };
    (kind, link)
}

fn attributes(script: &mut Script<'_>, options: &SyncOptions) -> Attributes {
    let extended = (options.acls || options.xattrs).then(|| script.rarely(4)).unwrap_or(false).then(|| {
        let acl = Acl { user: 7, group: 5, mask: Some(5), other: 0, users: vec![(1, 7)], groups: Vec::new() };
        let value = vec![script.byte(); script.below(200)];
        let xattr = Xattr { name: script.pick(&["user.a", "user.b", "trusted.x"]).into(), value };
        let access = options.acls.then_some(acl);
        let xattrs = if options.xattrs { vec![xattr] } else { Vec::new() };
        Extended { access, default: None, xattrs }.into()
    });
    Attributes {
        mode: script.pick(&[0o644, 0o755, 0o600, 0, 0o4755, 0o7777]),
        mtime: Timestamp { seconds: script.pick(&[0, 1_000_000_000, -5, 1 << 40]), nanoseconds: 0 },
        extended,
        ..Attributes::default()
    }
}

fn end_listing(peer: &mut Peer, script: &mut Script<'_>, listed: &mut Listed) {
    // Directories that have no listing yet are skipped.
    if listed.ended && !script.rarely(10) {
        return;
    }
    listed.ended = true;
    let entries = if script.rarely(10) { u64::from(script.byte()) } else { listed.next };
    let end = ListingEnd { entries, bytes: listed.bytes };
    peer.say(&ControlMessage::ListingEnd(end), script.damage());
}

/// Records the requests that have arrived, and answers the messages that need no data.
fn hear(peer: &mut Peer, listed: &mut Listed) {
    while let Some(message) = peer.hear(PATIENCE) {
        match message {
            ControlMessage::Need { entry, attempt } => listed.asked.push((entry.0, attempt)),
            ControlMessage::NeedDelta(need) => listed.asked.push((need.entry.0, need.attempt)),
            ControlMessage::NeedTail(need) => listed.asked.push((need.entry.0, need.attempt)),
            ControlMessage::Landed(landed) => {
                peer.say(&ControlMessage::Removed { entries: landed.len() as u64 }, None);
            }
            ControlMessage::Report(_) => peer.say(&ControlMessage::Bye, None),
            _ => {}
        }
    }
}

/// Sends a requested file, mostly with its listed length.
fn answer(peer: &mut Peer, script: &mut Script<'_>, listed: &mut Listed) {
    let asked =
        if listed.asked.is_empty() || script.rarely(16) { None } else { Some(listed.asked.remove(0)) };
    let (entry, attempt) = asked.unwrap_or_else(|| (u64::from(script.byte() % 8), script.byte() % 4));
    let size = listed.files.get(&entry).copied().unwrap_or(5);
    let size = if script.rarely(8) { u64::from(script.byte()) } else { size };
    let fill = script.byte();
    if size > 4 << 20 || script.rarely(8) {
        let outcome = if script.rarely(2) { Err(Cause::Vanished) } else { Err(Cause::Changed) };
        let end = FileEnd { entry: EntryId(entry), attempt, outcome };
        return peer.send(script.below(2), &DataMessage::FileEnd(end), script.damage());
    }
    let content = vec![fill; size as usize];
    if script.below(3) == 0 {
        batch(peer, script, (entry, attempt), content);
    } else {
        segments(peer, script, (entry, attempt), &content);
    }
}

fn batch(peer: &mut Peer, script: &mut Script<'_>, (entry, attempt): (u64, u8), content: Vec<u8>) {
    let content = Bytes::from(content);
    let outcome = Ok(Timestamp { seconds: 1_000_000_000, nanoseconds: 0 });
    let Ok(raw) = encode_records(&[Record { entry: EntryId(entry), attempt, outcome, content }]) else {
        return;
    };
    let value = *file_root(&peer.key, &raw).as_bytes();
    let message = DataMessage::Batch { value, files: packed(raw) };
    peer.send(script.below(2), &message, script.damage());
}

fn packed(raw: Vec<u8>) -> Packed {
    let raw_len = u32::try_from(raw.len()).unwrap_or(u32::MAX);
    Packed { codec: Codec::Raw, raw_len, bytes: raw.into() }
}

/// Sends a file in segments of 1 MiB. In a file of several segments their values are wrong, so the
/// file is requested again.
fn segments(peer: &mut Peer, script: &mut Script<'_>, (entry, attempt): (u64, u8), content: &[u8]) {
    let state = FileState([script.byte() & 1; 16]);
    let pieces: Vec<&[u8]> =
        if content.is_empty() { vec![content] } else { content.chunks(1 << 20).collect() };
    for (index, piece) in (0..).zip(&pieces) {
        let lane = script.below(2);
        let segment = Segment {
            entry: EntryId(entry),
            attempt,
            state,
            file_len: content.len() as u64,
            length_log2: 20,
            index,
            lead: 0,
        };
        peer.send(lane, &DataMessage::Segment(segment), script.damage());
        let mut tokens = TokenEncoder::new();
        if script.rarely(6)
            && let Some(run) = BlockRun::new(BlockIndex(script.byte().into()), script.byte().into())
        {
            tokens.push(Token::Copy(run));
        }
        for literal in piece.chunks(60_000) {
            tokens.push(Token::Literal(literal));
        }
        if !tokens.is_empty() {
            peer.send(lane, &DataMessage::Tokens(packed(tokens.take())), script.damage());
        }
        let value = *file_root(&peer.key, piece).as_bytes();
        peer.send(lane, &DataMessage::SegmentEnd { value: Some(value) }, script.damage());
    }
    if !script.rarely(10) {
        let outcome = Ok(Timestamp { seconds: 1_000_000_000, nanoseconds: 0 });
        let end = FileEnd { entry: EntryId(entry), attempt, outcome };
        peer.send(script.below(2), &DataMessage::FileEnd(end), script.damage());
    }
}

fn any_data(peer: &mut Peer, script: &mut Script<'_>) {
    let message = match script.below(5) {
        0 => DataMessage::Holes(vec![0..u32::from(script.byte()) << 12]),
        1 => DataMessage::Tokens(packed(script.bytes(40))),
        2 => DataMessage::SegmentEnd { value: None },
        3 => DataMessage::LaneStart { lane: script.byte() },
        _ => DataMessage::Batch { value: [0; 32], files: packed(script.bytes(60)) },
    };
    peer.send(script.below(4), &message, script.damage());
}

fn any_control(script: &mut Script<'_>) -> ControlMessage {
    match script.below(9) {
        0 => ControlMessage::IdName(IdName {
            group: script.rarely(2),
            id: script.byte().into(),
            name: b"x".into(),
        }),
        1 => Name::new(script.pick(&NAMES).as_bytes())
            .map_or(ControlMessage::Alive, |name| ControlMessage::Missing(vec![name])),
        2 => ControlMessage::Problem(Problem::new(
            Operation::ReadFile,
            script.bytes(20),
            Cause::Os(script.byte().into()),
        )),
        3 => ControlMessage::Removed { entries: script.byte().into() },
        4 => ControlMessage::Bye,
        5 => ControlMessage::NeedsEnd,
        6 => {
            let items = script.byte().into();
            any_span(script, items)
        }
        7 => any_same(script),
        _ => ControlMessage::Alive,
    }
}

fn any_span(script: &mut Script<'_>, items: u32) -> ControlMessage {
    let directory = script.pick(&["", "sub", "a", "a/b", "zz", "/"]).as_bytes().to_vec();
    let name = Name::new(script.pick(&NAMES).as_bytes()).ok().filter(|_| script.rarely(2));
    ControlMessage::Span(Span { items, directory, name, digest: [script.byte(); 16] })
}

fn any_same(script: &mut Script<'_>) -> ControlMessage {
    let (first, count) = ((script.byte() % 4).into(), u32::from(script.byte() % 4) + 1);
    ControlMessage::Same(Same { first, count })
}

fn any_refine(script: &mut Script<'_>) -> ControlMessage {
    let block_len = BlockLen::new(1024 << (script.byte() % 8)).unwrap_or(BlockLen::MIN);
    let format = script.pick(&[SumsFormat::WeakOnly, SumsFormat::StrongAndWeak, SumsFormat::StrongOnly]);
    let (entry, attempt) = (EntryId((script.byte() % 10).into()), script.byte() % 3);
    ControlMessage::Refine(Refine { entry, attempt, block_len, format, runs: script.bytes(20) })
}
