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
        MAX_ALTERNATES, MAX_EXPLAINED, MAX_FILTERS, MAX_ID_NAME, MAX_ID_RULES, MAX_MODE, MAX_MODE_RULES,
        MAX_MODIFIERS, MAX_NAME, MAX_OPERAND, MAX_OPTIONS, MAX_PATTERN, MAX_PATTERN_BYTES, MAX_ZSTD_LEVEL,
    },
    name::Name,
    options::{
        ActAs, Alternates, Append, Backup, Compression, CopyAs, DeleteLimit, IdMatch, IdRule, IdTarget,
        OptionFault, SyncOptions, WritePolicy,
    },
};

pub(super) fn encode(options: &SyncOptions, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    options.check().map_err(|OptionFault { field, value, limit, .. }| w.refused(field, value, limit))?;
    let changed = changed(options).ok_or_else(|| w.refused("options", 0, None))?;
    w.bytes(&changed, MAX_OPTIONS, "options")
}

pub(super) fn decode(r: &mut Reader<'_>) -> Result<SyncOptions, DecodeError> {
    let offset = r.offset();
    let text = r.bytes(MAX_OPTIONS, "options")?;
    let options: SyncOptions = serde_json::from_slice(text).map_err(|error| DecodeError::Options {
        detail: PeerText::new(error.to_string().as_bytes()),
        offset,
    })?;
    options.check().map_err(|OptionFault { field, value, limit, .. }| match limit {
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

fn at_most(value: usize, limit: usize, names: Names) -> Result<(), OptionFault> {
    let (option, field) = names;
    let (value, limit) = (value as u64, Some(limit as u64));
    if Some(value) <= limit { Ok(()) } else { Err(OptionFault { option, field, value, limit }) }
}

fn has_meaning(holds: bool, value: u64, (option, field): Names) -> Result<(), OptionFault> {
    if holds { Ok(()) } else { Err(OptionFault { option, field, value, limit: None }) }
}

/// The name of an option's field, and what of it is at fault.
type Names = (&'static str, &'static str);

impl SyncOptions {
    /// Checks the bounds and rules that the types do not express. Both ends refuse a run whose
    /// options break one; whoever starts a run learns it here before anything else begins. Cost:
    /// one pass over the lists.
    ///
    /// # Errors
    /// [`OptionFault`], the first one found.
    pub fn check(&self) -> Result<(), OptionFault> {
        check_rules(self)?;
        check_writing(&self.writing)?;
        check_explained(self)?;
        check_users(&self.copy_as)?;
        if let Some(DeleteLimit::Percent(percent)) = self.max_delete {
            at_most(percent.into(), 100, ("max_delete", "deletion limit"))?;
        }
        if let Compression::Zstd(level) = self.compression {
            has_meaning(level > 0, 0, ("compression", "compression level"))?;
            at_most(level.into(), MAX_ZSTD_LEVEL.into(), ("compression", "compression level"))?;
        }
        Ok(())
    }
}

fn check_rules(SyncOptions { filters, mode_rules, id_rules, .. }: &SyncOptions) -> Result<(), OptionFault> {
    at_most(filters.len(), MAX_FILTERS, ("filters", "number of filters"))?;
    for rule in filters {
        at_most(rule.pattern.len(), MAX_PATTERN, ("filters", "filter"))?;
        at_most(rule.modifiers.len(), MAX_MODIFIERS, ("filters", "modifiers of a filter"))?;
    }
    at_most(
        filters.iter().map(|rule| rule.pattern.len()).sum(),
        MAX_PATTERN_BYTES,
        ("filters", "size of filters"),
    )?;
    at_most(mode_rules.len(), MAX_MODE_RULES, ("mode_rules", "number of mode rules"))?;

    for mode in mode_rules.iter().flat_map(|rule| [rule.keep, rule.set]) {
        at_most(mode.into(), MAX_MODE.into(), ("mode_rules", "mode rule"))?;
    }
    for copied in mode_rules.iter().filter_map(|rule| rule.copied) {
        at_most(copied.from.into(), 6, ("mode_rules", "class of a mode rule"))?;
        at_most(copied.to.into(), 0o777, ("mode_rules", "mode rule"))?;
    }
    at_most(id_rules.len(), MAX_ID_RULES, ("id_rules", "number of owner rules"))?;
    for IdRule { from, to, .. } in id_rules {
        match from {
            IdMatch::Name(name) => at_most(name.len(), MAX_ID_NAME, ("id_rules", "owner rule"))?,
            IdMatch::Numbers(first, last) => {
                has_meaning(first <= last, u64::from(*first), ("id_rules", "range of an owner rule"))?;
            }
        }
        if let IdTarget::Name(name) = to {
            at_most(name.len(), MAX_ID_NAME, ("id_rules", "owner rule"))?;
        }
    }
    Ok(())
}

fn check_explained(SyncOptions { explain, dry_run, .. }: &SyncOptions) -> Result<(), OptionFault> {
    has_meaning(*dry_run || explain.is_empty(), 0, ("explain", "explaining without a dry run"))?;
    at_most(explain.len(), MAX_EXPLAINED, ("explain", "number of explained paths"))?;
    for path in explain {
        at_most(path.len(), MAX_OPERAND, ("explain", "explained path"))?;
        let is_path = path.split(|&byte| byte == b'/').all(|name| Name::check(name).is_ok());
        has_meaning(is_path, 0, ("explain", "explained path"))?;
    }
    Ok(())
}

fn check_users(CopyAs { source, destination }: &CopyAs) -> Result<(), OptionFault> {
    for ActAs { user, group } in [source, destination].into_iter().flatten() {
        for name in [Some(user), group.as_ref()].into_iter().flatten() {
            at_most(name.len(), MAX_ID_NAME, ("copy_as", "user or group"))?;
            has_meaning(!name.is_empty(), 0, ("copy_as", "user or group"))?;
        }
    }
    Ok(())
}

fn check_writing(writing: &WritePolicy) -> Result<(), OptionFault> {
    has_meaning(writing.inplace || writing.append == Append::No, 0, ("writing.append", "appending"))?;
    let WritePolicy { temp_dir, partial_dir, backup, alternates, .. } = writing;
    if let Some(dir) = temp_dir {
        check_directory(dir, "writing.temp_dir")?;
        has_meaning(!dir.is_empty(), 0, ("writing.temp_dir", "directory of temporaries"))?;
    }
    if let Some(dir) = partial_dir {
        check_directory(dir, "writing.partial_dir")?;
        let is_name = !dir.starts_with(b"/");
        if is_name {
            at_most(dir.len(), MAX_NAME, ("writing.partial_dir", "length of the directory's name"))?;
        }
        has_meaning(
            !is_name || Name::new(dir).is_ok(),
            0,
            ("writing.partial_dir", "directory of unfinished files"),
        )?;
    }

    if let Some(Backup { dir, suffix }) = backup {
        dir.iter().try_for_each(|dir| check_directory(dir, "writing.backup"))?;
        let has_name = dir.as_ref().is_none_or(|dir| !dir.is_empty());
        has_meaning(has_name, 0, ("writing.backup", "directory of backups"))?;
        at_most(suffix.len(), MAX_NAME, ("writing.backup", "backup suffix"))?;
        has_meaning(
            !suffix.iter().any(|byte| matches!(byte, b'/' | 0)),
            0,
            ("writing.backup", "backup suffix"),
        )?;
        // A backup beside its original needs another name.
        has_meaning(dir.is_some() || !suffix.is_empty(), 0, ("writing.backup", "backup suffix"))?;
    }
    if let Some(Alternates { dirs, .. }) = alternates {
        has_meaning(!dirs.is_empty(), 0, ("writing.alternates", "number of alternate directories"))?;
        at_most(dirs.len(), MAX_ALTERNATES, ("writing.alternates", "number of alternate directories"))?;
        dirs.iter().try_for_each(|dir| check_directory(dir, "writing.alternates"))?;
    }

    Ok(())
}

fn check_directory(path: &[u8], option: &'static str) -> Result<(), OptionFault> {
    at_most(path.len(), MAX_OPERAND, (option, "directory"))?;
    has_meaning(!path.contains(&0), 0, (option, "directory"))
}
