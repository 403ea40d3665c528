//! The write policy: part of the options of `Start`.

use super::{
    reader::Reader,
    start::{decode_operand, encode_operand},
    writer::Writer,
};
use crate::{
    error::{DecodeError, EncodeError},
    limits::{MAX_ALTERNATES, MAX_NAME},
    options::{AlternateUse, Alternates, Backup, WritePolicy},
};

pub(super) fn encode(policy: &WritePolicy, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    w.bool(policy.inplace);
    w.bool(policy.preallocate);
    w.bool(policy.backup.is_some());
    if let Some(Backup { dir, suffix }) = &policy.backup {
        w.bool(dir.is_some());
        if let Some(dir) = dir {
            encode_operand(dir, w)?;
        }
        w.valid(is_suffix(suffix, dir.is_some()), "backup suffix")?;
        w.bytes(suffix, MAX_NAME, "backup suffix")?;
    }
    let Some(Alternates { way, dirs }) = &policy.alternates else {
        w.byte(0);
        return Ok(());
    };
    w.byte(*way as u8 + 1);
    w.valid(!dirs.is_empty(), "number of alternate directories")?;
    w.count(dirs.len(), MAX_ALTERNATES, "number of alternate directories")?;
    dirs.iter().try_for_each(|dir| encode_operand(dir, w))
}

pub(super) fn decode(r: &mut Reader<'_>) -> Result<WritePolicy, DecodeError> {
    let (inplace, preallocate) = (r.bool("in place")?, r.bool("preallocation")?);
    let backup = if r.bool("backup")? { Some(decode_backup(r)?) } else { None };
    let way = r.choice("alternate directories", |code| match code {
        0 => Some(None),
        1 => Some(Some(AlternateUse::Compare)),
        2 => Some(Some(AlternateUse::Copy)),
        3 => Some(Some(AlternateUse::Link)),
        _ => None,
    })?;
    let alternates = match way {
        Some(way) => Some(Alternates { way, dirs: decode_dirs(r)? }),
        None => None,
    };
    Ok(WritePolicy { inplace, preallocate, backup, alternates })
}

fn decode_backup(r: &mut Reader<'_>) -> Result<Backup, DecodeError> {
    let dir = if r.bool("backup directory")? { Some(decode_operand(r)?) } else { None };
    let offset = r.offset();
    let suffix = r.bytes(MAX_NAME, "backup suffix")?.to_vec();
    if !is_suffix(&suffix, dir.is_some()) {
        return Err(r.value(0, offset, "backup suffix"));
    }
    Ok(Backup { dir, suffix })
}

fn decode_dirs(r: &mut Reader<'_>) -> Result<Vec<Vec<u8>>, DecodeError> {
    let offset = r.offset();
    let count = r.count(MAX_ALTERNATES, 1, "number of alternate directories")?;
    if count == 0 {
        return Err(r.value(0, offset, "number of alternate directories"));
    }
    (0..count).map(|_| decode_operand(r)).collect()
}

/// A backup beside its original must have another name.
fn is_suffix(suffix: &[u8], has_dir: bool) -> bool {
    !suffix.iter().any(|byte| matches!(byte, b'/' | 0)) && (has_dir || !suffix.is_empty())
}
