//! `Start`: the peer's role and the run's options.

use super::{reader::Reader, writer::Writer, writing};
use crate::{
    error::{DecodeError, EncodeError},
    limits::{
        MAX_DATA_LANES, MAX_FILTERS, MAX_ID_NAME, MAX_ID_RULES, MAX_MODE_RULES, MAX_OPERAND,
        MAX_OPERAND_BYTES, MAX_OPERANDS, MAX_PATTERN, MAX_PATTERN_BYTES, MAX_ZSTD_LEVEL,
    },
    message::{EntryId, PeerRole, Start},
    options::{
        Compression, DeleteLimit, DeleteTiming, Durability, EventLevel, FilterRule, IdMatch, IdRule,
        IdTarget, KeepPartial, ModeRule, SyncOptions, WritePolicy,
    },
};

pub(super) fn encode(start: &Start, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    let destination = matches!(start.role, PeerRole::Destination { .. });
    w.flags(0, &[(DESTINATION, destination), (AGAIN, start.again)]);
    match &start.role {
        PeerRole::Source { paths } => {
            w.count(paths.len(), MAX_OPERANDS, "number of operands")?;
            let total: usize = paths.iter().map(Vec::len).sum();
            w.check(total as u64, MAX_OPERAND_BYTES as u64, "size of operands")?;
            for path in paths {
                encode_operand(path, w)?;
            }
        }
        PeerRole::Destination { path } => encode_operand(path, w)?,
    }
    w.valid(start.data_lanes > 0, "number of data lanes")?;
    w.count(usize::from(start.data_lanes), MAX_DATA_LANES, "number of data lanes")?;
    encode_options(&start.options, w)
}

pub(super) fn decode(r: &mut Reader<'_>) -> Result<Start, DecodeError> {
    let flags = r.flags(DESTINATION | AGAIN, "role")?;
    let role = match flags & DESTINATION {
        0 => PeerRole::Source { paths: decode_operands(r)? },
        _ => PeerRole::Destination { path: decode_operand(r)? },
    };
    let offset = r.offset();
    let data_lanes = r.at_most(MAX_DATA_LANES as u64, "number of data lanes")?;
    let Some(data_lanes) = u8::try_from(data_lanes).ok().filter(|&lanes| lanes > 0) else {
        return Err(r.value(data_lanes, offset, "number of data lanes"));
    };
    Ok(Start { role, options: decode_options(r)?, data_lanes, again: flags & AGAIN != 0 })
}

pub(super) fn encode_operand(path: &[u8], w: &mut Writer<'_>) -> Result<(), EncodeError> {
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

pub(super) fn decode_operand(r: &mut Reader<'_>) -> Result<Vec<u8>, DecodeError> {
    let offset = r.offset();
    let path = r.bytes(MAX_OPERAND, "operand")?;
    if path.contains(&0) {
        return Err(r.value(0, offset, "operand"));
    }
    Ok(path.to_vec())
}

/// Takes `len` from what is left of a sum's limit.
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

fn encode_options(options: &SyncOptions, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    let switches = options.switches();
    let bits = switches.iter().rev().fold(0, |bits, &on| bits << 1 | u64::from(on));
    w.u64(bits);
    match options.max_delete {
        None => w.byte(0),
        Some(DeleteLimit::Entries(entries)) => {
            w.byte(1);
            w.u64(entries);
        }
        Some(DeleteLimit::Percent(percent)) => {
            w.valid(percent <= 100, "deletion limit")?;
            w.byte(2);
            w.byte(percent);
        }
    }
    w.byte(options.delete_timing as u8);
    w.u64(options.min_size);
    encode_optional(options.max_size, w);
    encode_optional(options.modify_window.map(u64::from), w);
    w.byte(options.keep_partial as u8);
    w.byte(options.durability as u8);
    match options.compression {
        Compression::Auto => w.byte(0),
        Compression::Off => w.byte(1),
        Compression::Lz4 => w.byte(2),
        Compression::Zstd(level) => {
            w.valid((1..=MAX_ZSTD_LEVEL).contains(&level), "compression level")?;
            w.byte(3);
            w.byte(level);
        }
    }
    w.byte(options.events as u8);
    w.count(options.mode_rules.len(), MAX_MODE_RULES, "number of mode rules")?;
    for ModeRule { files, directories, if_executable, keep, set } in &options.mode_rules {
        w.flags(0, &[(FILES, *files), (DIRECTORIES, *directories), (IF_EXECUTABLE, *if_executable)]);
        w.mode(*keep)?;
        w.mode(*set)?;
    }
    encode_id_rules(&options.id_rules, w)?;
    writing::encode(&options.writing, w)?;
    w.count(options.filters.len(), MAX_FILTERS, "number of filters")?;
    let total: usize = options.filters.iter().map(|rule| rule.pattern.len()).sum();
    w.check(total as u64, MAX_PATTERN_BYTES as u64, "size of filters")?;
    for FilterRule { include, pattern } in &options.filters {
        w.bool(*include);
        w.bytes(pattern, MAX_PATTERN, "filter")?;
    }
    Ok(())
}

fn decode_options(r: &mut Reader<'_>) -> Result<SyncOptions, DecodeError> {
    let offset = r.offset();
    let bits = r.u64("options")?;
    let mut options = SyncOptions::default();
    let mut rest = bits;
    for switch in options.switches_mut() {
        *switch = rest & 1 == 1;
        rest >>= 1;
    }
    if rest != 0 {
        return Err(r.value(bits, offset, "options"));
    }
    options.max_delete = decode_delete_limit(r)?;
    options.delete_timing = r.choice("deletion timing", |code| match code {
        0 => Some(DeleteTiming::After),
        1 => Some(DeleteTiming::During),
        _ => None,
    })?;
    options.min_size = r.u64("smallest size")?;
    options.max_size = decode_optional(r, u64::MAX, "largest size")?;
    let window = decode_optional(r, u64::from(u32::MAX), "modification window")?;
    options.modify_window = window.and_then(|window| u32::try_from(window).ok());
    options.keep_partial = r.choice("keeping of unfinished files", |code| match code {
        0 => Some(KeepPartial::OnLostConnection),
        1 => Some(KeepPartial::Always),
        2 => Some(KeepPartial::Never),
        _ => None,
    })?;
    options.durability = r.choice("durability", |code| match code {
        0 => Some(Durability::Batch),
        1 => Some(Durability::File),
        2 => Some(Durability::None),
        _ => None,
    })?;
    options.compression = decode_compression(r)?;
    options.events = r.choice("event level", |code| match code {
        0 => Some(EventLevel::Problems),
        1 => Some(EventLevel::Changes),
        2 => Some(EventLevel::All),
        _ => None,
    })?;
    options.mode_rules = decode_mode_rules(r)?;
    options.id_rules = decode_id_rules(r)?;
    options.writing = writing::decode(r)?;
    options.filters = decode_filters(r)?;
    Ok(options)
}

fn decode_mode_rules(r: &mut Reader<'_>) -> Result<Vec<ModeRule>, DecodeError> {
    let count = r.count(MAX_MODE_RULES, 3, "number of mode rules")?;
    let mut rules = Vec::with_capacity(count);
    for _ in 0..count {
        let flags = r.flags(FILES | DIRECTORIES | IF_EXECUTABLE, "mode rule")?;
        let on = |bit| flags & bit != 0;
        rules.push(ModeRule {
            files: on(FILES),
            directories: on(DIRECTORIES),
            if_executable: on(IF_EXECUTABLE),
            keep: r.mode(EntryId(0))?,
            set: r.mode(EntryId(0))?,
        });
    }
    Ok(rules)
}

fn encode_id_rules(rules: &[IdRule], w: &mut Writer<'_>) -> Result<(), EncodeError> {
    w.count(rules.len(), MAX_ID_RULES, "number of owner rules")?;
    for IdRule { group, from, to } in rules {
        let (numbers, number) = (matches!(from, IdMatch::Numbers(..)), matches!(to, IdTarget::Number(_)));
        w.flags(0, &[(OF_GROUPS, *group), (FROM_NUMBERS, numbers), (TO_NUMBER, number)]);
        match from {
            IdMatch::Numbers(low, high) => {
                w.u32(*low);
                w.u32(*high);
            }
            IdMatch::Name(pattern) => w.bytes(pattern, MAX_ID_NAME, "owner rule")?,
        }
        match to {
            IdTarget::Number(id) => w.u32(*id),
            IdTarget::Name(name) => w.bytes(name, MAX_ID_NAME, "owner rule")?,
        }
    }
    Ok(())
}

fn decode_id_rules(r: &mut Reader<'_>) -> Result<Vec<IdRule>, DecodeError> {
    let count = r.count(MAX_ID_RULES, 3, "number of owner rules")?;
    let mut rules = Vec::with_capacity(count);
    for _ in 0..count {
        let flags = r.flags(OF_GROUPS | FROM_NUMBERS | TO_NUMBER, "owner rule")?;
        let from = match flags & FROM_NUMBERS {
            0 => IdMatch::Name(r.bytes(MAX_ID_NAME, "owner rule")?.to_vec()),
            _ => IdMatch::Numbers(r.u32("owner rule")?, r.u32("owner rule")?),
        };
        let to = match flags & TO_NUMBER {
            0 => IdTarget::Name(r.bytes(MAX_ID_NAME, "owner rule")?.to_vec()),
            _ => IdTarget::Number(r.u32("owner rule")?),
        };
        rules.push(IdRule { group: flags & OF_GROUPS != 0, from, to });
    }
    Ok(rules)
}

fn encode_optional(value: Option<u64>, w: &mut Writer<'_>) {
    w.bool(value.is_some());
    if let Some(value) = value {
        w.u64(value);
    }
}

fn decode_optional(r: &mut Reader<'_>, limit: u64, field: &'static str) -> Result<Option<u64>, DecodeError> {
    if r.bool(field)? { r.at_most(limit, field).map(Some) } else { Ok(None) }
}

fn decode_delete_limit(r: &mut Reader<'_>) -> Result<Option<DeleteLimit>, DecodeError> {
    let offset = r.offset();
    Ok(match r.byte("deletion limit")? {
        0 => None,
        1 => Some(DeleteLimit::Entries(r.u64("deletion limit")?)),
        2 => {
            let percent = r.choice("deletion limit", |percent| (percent <= 100).then_some(percent))?;
            Some(DeleteLimit::Percent(percent))
        }
        other => return Err(r.value(u64::from(other), offset, "deletion limit")),
    })
}

fn decode_compression(r: &mut Reader<'_>) -> Result<Compression, DecodeError> {
    let offset = r.offset();
    Ok(match r.byte("compression")? {
        0 => Compression::Auto,
        1 => Compression::Off,
        2 => Compression::Lz4,
        3 => {
            Compression::Zstd(r.choice("compression level", |level| {
                (1..=MAX_ZSTD_LEVEL).contains(&level).then_some(level)
            })?)
        }
        other => return Err(r.value(u64::from(other), offset, "compression")),
    })
}

fn decode_filters(r: &mut Reader<'_>) -> Result<Vec<FilterRule>, DecodeError> {
    let count = r.count(MAX_FILTERS, 2, "number of filters")?;
    let mut filters = Vec::with_capacity(count);
    let mut budget = MAX_PATTERN_BYTES;
    for _ in 0..count {
        let include = r.bool("filter")?;
        let pattern = r.bytes(MAX_PATTERN, "filter")?.to_vec();
        budget = within(budget, pattern.len(), MAX_PATTERN_BYTES, "size of filters", r)?;
        filters.push(FilterRule { include, pattern });
    }
    Ok(filters)
}

impl SyncOptions {
    /// The switches in the order of their bits.
    fn switches(&self) -> [bool; SWITCHES] {
        let (filters, mode_rules, id_rules) = (Vec::new(), Vec::new(), Vec::new());
        let writing = WritePolicy::default();
        let mut copy = Self { filters, mode_rules, id_rules, writing, ..*self };
        copy.switches_mut().map(|switch| *switch)
    }

    /// The switches in the order of their bits: the order is the wire's, new ones go to the end. Naming
    /// every field makes a forgotten one an error of the compiler.
    fn switches_mut(&mut self) -> [&mut bool; SWITCHES] {
        let Self {
            recursive,
            links,
            perms,
            times,
            omit_dir_times,
            owner,
            group,
            numeric_ids,
            devices,
            specials,
            checksum,
            ignore_times,
            size_only,
            update,
            existing,
            ignore_existing,
            whole_file,
            delete,
            delete_excluded,
            max_delete: _,
            delete_timing: _,
            keep_dirlinks,
            safe_links,
            ignore_missing_args,
            omit_link_times,
            executability,
            open_noatime,
            hard_links,
            min_size: _,
            max_size: _,
            modify_window: _,
            ignore_errors,
            force,
            allow_empty_source,
            force_root,
            mkpath,
            dry_run,
            one_file_system,
            acls,
            xattrs,
            keep_partial: _,
            durability: _,
            compression: _,
            mode_rules: _,
            id_rules: _,
            writing: _,
            filters: _,
            events: _,
        } = self;
        [
            recursive,
            links,
            perms,
            times,
            omit_dir_times,
            owner,
            group,
            numeric_ids,
            devices,
            specials,
            checksum,
            ignore_times,
            size_only,
            update,
            existing,
            ignore_existing,
            whole_file,
            delete,
            delete_excluded,
            mkpath,
            dry_run,
            one_file_system,
            ignore_errors,
            force,
            allow_empty_source,
            force_root,
            acls,
            xattrs,
            keep_dirlinks,
            safe_links,
            ignore_missing_args,
            omit_link_times,
            executability,
            open_noatime,
            hard_links,
        ]
    }
}

/// Bit of the role: the peer is the destination.
const DESTINATION: u8 = 1;
/// Bit of the role: an earlier session of the run broke.
const AGAIN: u8 = 2;
/// Bit of a mode rule: it applies to what is not a directory.
const FILES: u8 = 1;
/// Bit of a mode rule: it applies to directories.
const DIRECTORIES: u8 = 2;
/// Bit of a mode rule: it applies only to directories and to what is executable.
const IF_EXECUTABLE: u8 = 4;
/// Bit of an owner rule: it is for groups.
const OF_GROUPS: u8 = 1;
/// Bit of an owner rule: it is for numbers of the source, not for a name.
const FROM_NUMBERS: u8 = 2;
/// Bit of an owner rule: it gives a number, not a name.
const TO_NUMBER: u8 = 4;

/// Number of switches among the options.
const SWITCHES: usize = 35;
