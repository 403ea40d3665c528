//! `Start`: the peer's role and the run's options.

use std::time::Duration;

use super::{options, reader::Reader, writer::Writer};
use crate::{
    error::{DecodeError, EncodeError, PeerText},
    limits::{
        MAX_ASKED, MAX_ASKED_BYTES, MAX_DATA_LANES, MAX_NAME, MAX_OPERAND, MAX_OPERAND_BYTES, MAX_OPERANDS,
    },
    message::{Asked, ListPlace, PeerRole, Start},
    name::Name,
};

pub(super) fn encode(start: &Start, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    let asked = match &start.role {
        PeerRole::Source { .. } => None,
        PeerRole::Destination { asked, .. } => Some(asked),
    };
    let contents = asked.is_some_and(|asked| asked.contents);
    let unnamed = asked.is_some_and(|asked| asked.names.is_none());
    let destination = asked.is_some();
    let by_path = asked.is_some_and(|asked| !asked.paths.is_empty());
    let flags = [
        (DESTINATION, destination),
        (AGAIN, start.again.is_some()),
        (CONTENTS, contents),
        (UNNAMED, unnamed),
        (BY_PATH, by_path),
        (LIST_SENT, start.list == ListPlace::Sent),
        (LIST_FILE, matches!(start.list, ListPlace::File { .. })),
        (LIST_NUL, matches!(start.list, ListPlace::File { nul: true, .. })),
    ];

    w.flags(0, &flags);
    match &start.role {
        PeerRole::Source { paths } => {
            w.count(paths.len(), MAX_OPERANDS, "number of operands")?;
            let total: usize = paths.iter().map(Vec::len).sum();
            w.check(total as u64, MAX_OPERAND_BYTES as u64, "size of operands")?;
            for path in paths {
                encode_operand(path, w)?;
            }
        }
        PeerRole::Destination { path, asked } => {
            encode_operand(path, w)?;
            w.valid(!by_path || asked.names.as_ref().is_some_and(Vec::is_empty), "names")?;
            match &asked.names {
                Some(_) if by_path => encode_paths(&asked.paths, w)?,
                Some(names) => encode_names(names, w)?,
                None => {}
            }
        }
    }

    w.valid(!destination || start.list != ListPlace::Sent, "place of the list")?;
    if let ListPlace::File { path, .. } = &start.list {
        encode_operand(path, w)?;
    }

    if let Some(age) = start.again {
        w.u64(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
    }
    w.valid(start.data_lanes > 0, "number of data lanes")?;
    w.count(usize::from(start.data_lanes), MAX_DATA_LANES, "number of data lanes")?;
    options::encode(&start.options, w)
}

pub(super) fn decode(r: &mut Reader<'_>) -> Result<Start, DecodeError> {
    let offset = r.offset();
    let flags = r.flags(u8::MAX, "role")?;
    let role = match flags & DESTINATION {
        0 if flags & (CONTENTS | UNNAMED | BY_PATH) != 0 => {
            return Err(r.value(u64::from(flags), offset, "role"));
        }
        0 => PeerRole::Source { paths: decode_operands(r)? },
        _ => {
            let path = decode_operand(r)?;
            let (names, paths) = match flags & (UNNAMED | BY_PATH) {
                0 => (Some(decode_names(r)?), Vec::new()),
                UNNAMED => (None, Vec::new()),
                BY_PATH => (Some(Vec::new()), decode_paths(r)?),
                _ => return Err(r.value(u64::from(flags), offset, "role")),
            };
            PeerRole::Destination { path, asked: Asked { contents: flags & CONTENTS != 0, names, paths } }
        }
    };

    let list = match flags & (LIST_SENT | LIST_FILE | LIST_NUL) {
        0 => ListPlace::None,
        LIST_SENT if flags & DESTINATION == 0 => ListPlace::Sent,
        file if file & LIST_SENT == 0 && file & LIST_FILE != 0 => {
            ListPlace::File { path: decode_operand(r)?, nul: file & LIST_NUL != 0 }
        }
        _ => return Err(r.value(u64::from(flags), offset, "role")),
    };

    let again = (flags & AGAIN != 0).then(|| r.u64("age of the run")).transpose()?.map(Duration::from_millis);
    let offset = r.offset();
    let data_lanes = r.at_most(MAX_DATA_LANES as u64, "number of data lanes")?;
    let Some(data_lanes) = u8::try_from(data_lanes).ok().filter(|&lanes| lanes > 0) else {
        return Err(r.value(data_lanes, offset, "number of data lanes"));
    };
    Ok(Start { role, options: options::decode(r)?, data_lanes, again, list })
}

fn encode_paths(paths: &[Vec<u8>], w: &mut Writer<'_>) -> Result<(), EncodeError> {
    w.count(paths.len(), MAX_ASKED, "number of paths")?;
    let total: usize = paths.iter().map(Vec::len).sum();
    w.check(total as u64, MAX_ASKED_BYTES as u64, "size of paths")?;
    paths.iter().try_for_each(|path| w.bytes(path, MAX_OPERAND, "path"))
}

fn decode_paths(r: &mut Reader<'_>) -> Result<Vec<Vec<u8>>, DecodeError> {
    let count = r.count(MAX_ASKED, 2, "number of paths")?;
    let mut paths = Vec::with_capacity(count);
    let mut budget = MAX_ASKED_BYTES;
    for _ in 0..count {
        let path = r.bytes(MAX_OPERAND, "path")?;
        for name in path.strip_suffix(b"/").unwrap_or(path).split(|&byte| byte == b'/') {
            Name::new(name).map_err(|source| DecodeError::Name { name: PeerText::new(path), source })?;
        }
        budget = within(budget, path.len(), MAX_ASKED_BYTES, "size of paths", r)?;
        paths.push(path.to_vec());
    }
    Ok(paths)
}

fn encode_operand(path: &[u8], w: &mut Writer<'_>) -> Result<(), EncodeError> {
    w.valid(!path.contains(&0), "operand")?;
    w.bytes(path, MAX_OPERAND, "operand")
}

fn decode_operands(r: &mut Reader<'_>) -> Result<Vec<Vec<u8>>, DecodeError> {
    let count = r.count(MAX_OPERANDS, 1, "number of operands")?;
    let mut paths = Vec::with_capacity(count);
    let mut budget = MAX_OPERAND_BYTES;
    for _ in 0..count {
        let path = decode_operand(r)?;
        budget = within(budget, path.len(), MAX_OPERAND_BYTES, "size of operands", r)?;
        paths.push(path);
    }
    Ok(paths)
}

fn encode_names(names: &[Name], w: &mut Writer<'_>) -> Result<(), EncodeError> {
    w.count(names.len(), MAX_ASKED, "number of names")?;
    let total: usize = names.iter().map(|name| name.as_bytes().len()).sum();
    w.check(total as u64, MAX_ASKED_BYTES as u64, "size of names")?;
    names.iter().try_for_each(|name| w.bytes(name.as_bytes(), MAX_NAME, "name"))
}

fn decode_names(r: &mut Reader<'_>) -> Result<Vec<Name>, DecodeError> {
    let count = r.count(MAX_ASKED, 2, "number of names")?;
    let mut names = Vec::with_capacity(count);
    let mut budget = MAX_ASKED_BYTES;
    for _ in 0..count {
        let name = r.bytes(MAX_NAME + 1, "name")?;
        let name =
            Name::new(name).map_err(|source| DecodeError::Name { name: PeerText::new(name), source })?;
        budget = within(budget, name.as_bytes().len(), MAX_ASKED_BYTES, "size of names", r)?;
        names.push(name);
    }
    Ok(names)
}

fn decode_operand(r: &mut Reader<'_>) -> Result<Vec<u8>, DecodeError> {
    let offset = r.offset();
    let path = r.bytes(MAX_OPERAND, "operand")?;
    if path.contains(&0) {
        return Err(r.value(0, offset, "operand"));
    }
    Ok(path.to_vec())
}

/// Subtracts `len` from the rest of a limit on a sum.
fn within(
    budget: usize,
    len: usize,
    limit: usize,
    field: &'static str,
    r: &Reader<'_>,
) -> Result<usize, DecodeError> {
    budget.checked_sub(len).ok_or_else(|| DecodeError::Limit {
        kind: r.kind(),
        field,
        value: (limit - budget).saturating_add(len) as u64,
        limit: limit as u64,
        offset: r.offset(),
    })
}

/// Bit of the role: the peer is the destination.
const DESTINATION: u8 = 1;
/// Bit of the role: an earlier session of the run broke.
const AGAIN: u8 = 2;
/// Bit of a destination's role: an operand of the source stands for its contents.
const CONTENTS: u8 = 4;
/// Bit of a destination's role: the names of the source's operands are too many to send.
const UNNAMED: u8 = 8;
/// Bit of a destination's role: the source's operands come as paths.
const BY_PATH: u8 = 16;
/// Bit of the role: the destination sends a list of the paths to copy.
const LIST_SENT: u8 = 32;
/// Bit of the role: the list of the paths to copy is a file of the peer.
const LIST_FILE: u8 = 64;
/// Bit of the role: the lines of that file end with zero bytes.
const LIST_NUL: u8 = 128;
