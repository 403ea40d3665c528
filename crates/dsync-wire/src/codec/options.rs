//! The options of `Start`: a JSON object of those that differ from their defaults.
//!
//! Options are sent by name, unlike everything else. An end that does not know an option can
//! therefore name it, and a new option changes nothing for runs that do not use it. They are sent
//! once per session.

use serde_json::{Map, Value};

use super::{reader::Reader, writer::Writer};
use crate::{
    error::{DecodeError, EncodeError, PeerText},
    limits::{
        MAX_ALTERNATES, MAX_FILTERS, MAX_ID_NAME, MAX_ID_RULES, MAX_MODE, MAX_MODE_RULES, MAX_NAME,
        MAX_OPERAND, MAX_OPTIONS, MAX_PATTERN, MAX_PATTERN_BYTES, MAX_ZSTD_LEVEL,
    },
    name::Name,
    options::{
        Alternates, Append, Backup, Compression, DeleteLimit, IdMatch, IdRule, IdTarget, SyncOptions,
        WritePolicy,
    },
};

pub(super) fn encode(options: &SyncOptions, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    check(options).map_err(|Fault { field, value, limit }| w.refused(field, value, limit))?;
    let changed = changed(options).ok_or_else(|| w.refused("options", 0, None))?;
    w.bytes(&changed, MAX_OPTIONS, "options")
}

pub(super) fn decode(r: &mut Reader<'_>) -> Result<SyncOptions, DecodeError> {
    let offset = r.offset();
    let text = r.bytes(MAX_OPTIONS, "options")?;
    let options = serde_json::from_slice(text).map_err(|error| DecodeError::Options {
        detail: PeerText::new(error.to_string().as_bytes()),
        offset,
    })?;
    check(&options).map_err(|Fault { field, value, limit }| match limit {
        Some(limit) => DecodeError::Limit { kind: r.kind(), field, value, limit, offset },
        None => r.value(value, offset, field),
    })?;
    Ok(options)
}

/// Encodes the options that differ from their defaults.
fn changed(options: &SyncOptions) -> Option<Vec<u8>> {
    let as_map = |options| match serde_json::to_value(options) {
        Ok(Value::Object(map)) => Some(map),
        _ => None,
    };
    let (mut map, defaults): (Map<_, _>, Map<_, _>) = (as_map(options)?, as_map(&SyncOptions::default())?);
    map.retain(|name, value| defaults.get(name) != Some(value));
    serde_json::to_vec(&map).ok()
}

/// An option that no end may request.
struct Fault {
    field: &'static str,
    value: u64,
    /// The largest allowed value; none if the value has no meaning at all.
    limit: Option<u64>,
}

fn at_most(value: usize, limit: usize, field: &'static str) -> Result<(), Fault> {
    if value <= limit { Ok(()) } else { Err(Fault { field, value: value as u64, limit: Some(limit as u64) }) }
}

fn has_meaning(holds: bool, value: u64, field: &'static str) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault { field, value, limit: None }) }
}

/// Checks options against the bounds that their types do not express.
fn check(options: &SyncOptions) -> Result<(), Fault> {
    check_rules(options)?;
    check_writing(&options.writing)?;
    if let Some(DeleteLimit::Percent(percent)) = options.max_delete {
        at_most(percent.into(), 100, "deletion limit")?;
    }
    if let Compression::Zstd(level) = options.compression {
        has_meaning(level > 0, 0, "compression level")?;
        at_most(level.into(), MAX_ZSTD_LEVEL.into(), "compression level")?;
    }
    Ok(())
}

fn check_rules(SyncOptions { filters, mode_rules, id_rules, .. }: &SyncOptions) -> Result<(), Fault> {
    at_most(filters.len(), MAX_FILTERS, "number of filters")?;
    for rule in filters {
        at_most(rule.pattern.len(), MAX_PATTERN, "filter")?;
    }
    at_most(filters.iter().map(|rule| rule.pattern.len()).sum(), MAX_PATTERN_BYTES, "size of filters")?;
    at_most(mode_rules.len(), MAX_MODE_RULES, "number of mode rules")?;
    for mode in mode_rules.iter().flat_map(|rule| [rule.keep, rule.set]) {
        at_most(mode.into(), MAX_MODE.into(), "mode rule")?;
    }
    at_most(id_rules.len(), MAX_ID_RULES, "number of owner rules")?;
    for IdRule { from, to, .. } in id_rules {
        if let IdMatch::Name(name) = from {
            at_most(name.len(), MAX_ID_NAME, "owner rule")?;
        }
        if let IdTarget::Name(name) = to {
            at_most(name.len(), MAX_ID_NAME, "owner rule")?;
        }
    }
    Ok(())
}

fn check_writing(writing: &WritePolicy) -> Result<(), Fault> {
    has_meaning(writing.inplace || writing.append == Append::No, 0, "appending")?;
    let WritePolicy { temp_dir, partial_dir, backup, alternates, .. } = writing;
    if let Some(dir) = temp_dir {
        check_operand(dir)?;
        has_meaning(!dir.is_empty(), 0, "directory of temporaries")?;
    }
    if let Some(dir) = partial_dir {
        check_operand(dir)?;
        has_meaning(dir.starts_with(b"/") || Name::new(dir).is_ok(), 0, "directory of unfinished files")?;
    }

    if let Some(Backup { dir, suffix }) = backup {
        dir.iter().try_for_each(|dir| check_operand(dir))?;
        at_most(suffix.len(), MAX_NAME, "backup suffix")?;
        has_meaning(!suffix.iter().any(|byte| matches!(byte, b'/' | 0)), 0, "backup suffix")?;
        // A backup beside its original needs another name.
        has_meaning(dir.is_some() || !suffix.is_empty(), 0, "backup suffix")?;
    }
    if let Some(Alternates { dirs, .. }) = alternates {
        has_meaning(!dirs.is_empty(), 0, "number of alternate directories")?;
        at_most(dirs.len(), MAX_ALTERNATES, "number of alternate directories")?;
        dirs.iter().try_for_each(|dir| check_operand(dir))?;
    }

    Ok(())
}

fn check_operand(path: &[u8]) -> Result<(), Fault> {
    at_most(path.len(), MAX_OPERAND, "directory")?;
    has_meaning(!path.contains(&0), 0, "directory")
}
