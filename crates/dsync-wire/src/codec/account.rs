//! Problems, outcomes, events, progress and the report.

use super::{reader::Reader, ruling, writer::Writer};
use crate::{
    error::{DecodeError, EncodeError},
    event::{
        Action, BackedUp, Changes, Done, Ended, Event, Facts, FileType, LeftAlone, Planned, Present,
        Progress, Report, TypeCounts, WhyLeft,
    },
    limits::{MAX_PATH, MAX_SYMLINK},
    message::{Cause, EntryId, Operation, Problem, Timestamp},
};

pub(super) fn encode_problem(problem: &Problem, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    w.byte(problem.operation as u8);
    encode_cause(problem.cause, w);
    w.bytes(&problem.path, MAX_PATH, "path")
}

pub(super) fn decode_problem(r: &mut Reader<'_>) -> Result<Problem, DecodeError> {
    Ok(Problem {
        operation: r.choice("operation", operation)?,
        cause: decode_cause(r)?,
        path: r.bytes(MAX_PATH, "path")?.into(),
    })
}

fn encode_cause(cause: Cause, w: &mut Writer<'_>) {
    match cause {
        Cause::Os(number) => {
            w.byte(0);
            w.i64(i64::from(number));
        }

        Cause::Vanished => w.byte(1),
        Cause::Changed => w.byte(2),
        Cause::ContentMismatch => w.byte(3),
        Cause::DirectoryInTheWay => w.byte(4),
        Cause::Skipped => w.byte(5),
        Cause::Unrepresentable => w.byte(6),
        Cause::TypeChanged => w.byte(7),
        Cause::FirstNameFailed => w.byte(8),
        Cause::SameFile => w.byte(9),
        Cause::FakeSuperDamaged => w.byte(10),
        Cause::LeadsOut => w.byte(11),
        Cause::BadRule(line) => {
            w.byte(12);
            w.u32(line);
        }
        Cause::TooManyRules => w.byte(13),
        Cause::DeviceTooShort { device, file } => {
            w.byte(14);
            w.u64(device);
            w.u64(file);
        }
        Cause::OtherContent => w.byte(15),
        Cause::Lacking { owner, extended, number } => {
            w.byte(16);
            w.bool(owner);
            w.bool(extended);
            w.i64(i64::from(number));
        }
        Cause::EmptySource => w.byte(17),
    }
}

fn decode_cause(r: &mut Reader<'_>) -> Result<Cause, DecodeError> {
    let offset = r.offset();

    Ok(match r.byte("cause")? {
        0 => Cause::Os(decode_number(r)?),
        1 => Cause::Vanished,
        2 => Cause::Changed,
        3 => Cause::ContentMismatch,
        4 => Cause::DirectoryInTheWay,
        5 => Cause::Skipped,
        6 => Cause::Unrepresentable,
        7 => Cause::TypeChanged,
        8 => Cause::FirstNameFailed,
        9 => Cause::SameFile,
        10 => Cause::FakeSuperDamaged,
        11 => Cause::LeadsOut,
        12 => Cause::BadRule(r.u32("line")?),
        13 => Cause::TooManyRules,
        14 => Cause::DeviceTooShort { device: r.u64("device length")?, file: r.u64("file length")? },
        15 => Cause::OtherContent,
        16 => Cause::Lacking {
            owner: r.bool("owner lacking")?,
            extended: r.bool("attributes lacking")?,
            number: decode_number(r)?,
        },
        17 => Cause::EmptySource,
        other => return Err(r.value(u64::from(other), offset, "cause")),
    })
}

fn decode_number(r: &mut Reader<'_>) -> Result<i32, DecodeError> {
    let offset = r.offset();
    let number = r.i64("error number")?;
    i32::try_from(number).map_err(|_| DecodeError::Integer { kind: r.kind(), offset })
}

/// Encodes a file's outcome: the time when it was read, or why it could not be.
pub(super) fn encode_outcome(
    outcome: Result<Timestamp, Cause>,
    w: &mut Writer<'_>,
) -> Result<(), EncodeError> {
    match outcome {
        Ok(mtime) => {
            w.byte(0);
            w.timestamp(mtime)?;
        }
        Err(cause) => {
            w.byte(1);
            encode_cause(cause, w);
        }
    }
    Ok(())
}

pub(super) fn decode_outcome(
    entry: EntryId,
    r: &mut Reader<'_>,
) -> Result<Result<Timestamp, Cause>, DecodeError> {
    let offset = r.offset();
    Ok(match r.byte("outcome")? {
        0 => Ok(r.timestamp(entry)?),
        1 => Err(decode_cause(r)?),
        other => return Err(r.value(u64::from(other), offset, "outcome")),
    })
}

pub(super) fn encode_event(event: &Event, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    match event {
        Event::Planned(planned) => {
            w.byte(match planned.facts {
                None => 0,
                Some(Facts { content: None, .. }) => 2,
                Some(_) => 8,
            });
            w.byte(planned.action as u8);
            w.byte(planned.kind as u8);
            w.u16(planned.changes.bits());
            w.bytes(&planned.path, MAX_PATH, "path")?;
            w.bytes(&planned.target, MAX_PATH, "target")?;
            w.file_len(planned.size, "file size")?;
            planned.facts.map_or(Ok(()), |facts| encode_facts(facts, w))
        }

        Event::Ended(Ended { number, done, literal_bytes, signature_bytes }) => {
            w.byte(3);
            w.u64(*number);
            w.bool(*done);
            w.u64(*literal_bytes);
            w.u64(*signature_bytes);
            Ok(())
        }
        Event::Done(done) => {
            w.byte(9);
            encode_done(done, w)
        }
        Event::LeftAlone(LeftAlone { kind, path, why }) => {
            w.byte(4);
            w.byte(*kind as u8);
            w.byte(*why as u8);
            w.bytes(path, MAX_PATH, "path")
        }
        Event::BackedUp(BackedUp { path, backup }) => {
            w.byte(6);
            w.bytes(path, MAX_PATH, "path")?;
            w.bytes(backup, MAX_PATH, "path of a backup")
        }
        Event::Removed(path) => {
            w.byte(7);
            w.bytes(path, MAX_PATH, "path")
        }
        Event::Ruling(why) => {
            w.byte(5);
            ruling::encode(why, w)
        }
        Event::Failed(problem) => {
            w.byte(1);
            encode_problem(problem, w)
        }
        Event::Present(present) => {
            w.byte(if present.facts.content.is_none() { 10 } else { 11 });
            encode_present(present, w)
        }
    }
}

pub(super) fn decode_event(r: &mut Reader<'_>) -> Result<Event, DecodeError> {
    let offset = r.offset();

    Ok(match r.byte("type of event")? {
        shape @ (0 | 2 | 8) => Event::Planned(Planned {
            action: r.choice("action", action)?,
            kind: r.choice("type of entry", file_type)?,
            changes: decode_changes(r)?,
            path: r.bytes(MAX_PATH, "path")?.into(),
            target: r.bytes(MAX_PATH, "target")?.to_vec(),
            size: r.file_len("file size")?,
            facts: (shape != 0).then(|| decode_facts(r, shape == 8)).transpose()?,
        }),
        3 => Event::Ended(Ended {
            number: r.u64("number")?,
            done: r.bool("outcome")?,
            literal_bytes: r.u64("count")?,
            signature_bytes: r.u64("count")?,
        }),
        4 => Event::LeftAlone(LeftAlone {
            kind: r.choice("type of entry", file_type)?,
            why: r.choice("reason", why_left)?,
            path: r.bytes(MAX_PATH, "path")?.into(),
        }),
        5 => Event::Ruling(ruling::decode(r)?),
        6 => Event::BackedUp(BackedUp {
            path: r.bytes(MAX_PATH, "path")?.into(),
            backup: r.bytes(MAX_PATH, "path of a backup")?.into(),
        }),
        9 => Event::Done(decode_done(r)?),
        7 => Event::Removed(r.bytes(MAX_PATH, "path")?.into()),
        1 => Event::Failed(decode_problem(r)?),
        shape @ (10 | 11) => Event::Present(Present {
            kind: r.choice("type of entry", file_type)?,
            path: r.bytes(MAX_PATH, "path")?.into(),
            text: r.bytes(MAX_SYMLINK, "text")?.to_vec(),
            size: r.file_len("file size")?,
            facts: decode_facts(r, shape == 11)?,
        }),
        other => return Err(r.value(u64::from(other), offset, "type of event")),
    })
}

fn encode_present(present: &Present, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    let Present { path, kind, size, text, facts } = present;
    w.byte(*kind as u8);
    w.bytes(path, MAX_PATH, "path")?;
    w.bytes(text, MAX_SYMLINK, "text")?;
    w.file_len(*size, "file size")?;
    encode_facts(*facts, w)
}

fn encode_done(done: &Done, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    let Done { path, kind, action, bytes, content, durable, linked, cloned } = done;
    w.flags(
        0,
        &[(DURABLE, *durable), (LINKED, *linked), (CLONED, *cloned), (HAS_CONTENT, content.is_some())],
    );
    w.byte(*action as u8);
    w.byte(*kind as u8);
    w.bytes(path, MAX_PATH, "path")?;
    w.file_len(*bytes, "file size")?;
    content.iter().for_each(|content| w.raw(content));
    Ok(())
}

fn decode_done(r: &mut Reader<'_>) -> Result<Done, DecodeError> {
    let flags = r.flags(DURABLE | LINKED | CLONED | HAS_CONTENT, "flags")?;
    Ok(Done {
        action: r.choice("action", action)?,
        kind: r.choice("type of entry", file_type)?,
        path: r.bytes(MAX_PATH, "path")?.into(),
        bytes: r.file_len("file size")?,
        content: (flags & HAS_CONTENT != 0).then(|| r.array("content hash")).transpose()?,
        durable: flags & DURABLE != 0,
        linked: flags & LINKED != 0,
        cloned: flags & CLONED != 0,
    })
}

fn why_left(value: u8) -> Option<WhyLeft> {
    use WhyLeft::{Exists, New, Newer, TooLong, TooShort};
    [Newer, Exists, New, TooLong, TooShort].into_iter().find(|&why| why as u8 == value)
}

fn encode_facts(facts: Facts, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    let Facts { number, mode, mtime, uid, gid, content } = facts;
    w.u64(number);
    w.u16(mode);
    w.timestamp(mtime)?;
    w.u32(uid);
    w.u32(gid);
    content.iter().for_each(|content| w.raw(content));
    Ok(())
}

fn decode_facts(r: &mut Reader<'_>, has_content: bool) -> Result<Facts, DecodeError> {
    Ok(Facts {
        number: r.u64("number")?,
        mode: r.u16("mode")?,
        mtime: r.timestamp(EntryId(0))?,
        uid: r.u32("owner")?,
        gid: r.u32("group")?,
        content: has_content.then(|| r.array("content hash")).transpose()?,
    })
}

fn decode_changes(r: &mut Reader<'_>) -> Result<Changes, DecodeError> {
    let offset = r.offset();
    let bits = r.u16("changes")?;
    Changes::from_bits(bits).ok_or_else(|| r.value(u64::from(bits), offset, "changes"))
}

pub(super) fn encode_progress(progress: &Progress, w: &mut Writer<'_>) {
    let Progress {
        entries_checked,
        files_needed,
        bytes_needed,
        files_done,
        bytes_done,
        entries_listed,
        totals_final,
    } = *progress;
    for count in [entries_checked, files_needed, bytes_needed, files_done, bytes_done, entries_listed] {
        w.u64(count);
    }
    w.bool(totals_final);
}

pub(super) fn decode_progress(r: &mut Reader<'_>) -> Result<Progress, DecodeError> {
    Ok(Progress {
        entries_checked: r.u64("count")?,
        files_needed: r.u64("count")?,
        bytes_needed: r.u64("count")?,
        files_done: r.u64("count")?,
        bytes_done: r.u64("count")?,
        entries_listed: r.u64("count")?,
        totals_final: r.bool("flag")?,
    })
}

pub(super) fn encode_report(report: &Report, w: &mut Writer<'_>) {
    for counts in [&report.listed, &report.created, &report.deleted] {
        let TypeCounts { files, directories, symlinks, devices, specials } = *counts;
        for count in [files, directories, symlinks, devices, specials] {
            w.u64(count);
        }
    }

    let Report {
        listed: _,
        created: _,
        deleted: _,
        retagged,
        files_transferred,
        total_bytes,
        transferred_bytes,
        literal_bytes,
        matched_bytes,
        signature_bytes,
        syncs,
        vanished,
        failed,
        attributes_withheld,
        links_copied,
        rounded_times,
        deletions_withheld,
        deletions_over_limit,
        // Whoever gets the report has counted them in the events.
        linked: _,
        cloned: _,
    } = *report;

    for count in [
        retagged,
        files_transferred,
        total_bytes,
        transferred_bytes,
        literal_bytes,
        matched_bytes,
        signature_bytes,
        syncs,
        vanished,
        failed,
        attributes_withheld,
        links_copied,
        rounded_times,
        deletions_withheld,
        deletions_over_limit,
    ] {
        w.u64(count);
    }
}

pub(super) fn decode_report(r: &mut Reader<'_>) -> Result<Report, DecodeError> {
    let counts = |r: &mut Reader<'_>| -> Result<TypeCounts, DecodeError> {
        Ok(TypeCounts {
            files: r.u64("count")?,
            directories: r.u64("count")?,
            symlinks: r.u64("count")?,
            devices: r.u64("count")?,
            specials: r.u64("count")?,
        })
    };

    Ok(Report {
        listed: counts(r)?,
        created: counts(r)?,
        deleted: counts(r)?,
        retagged: r.u64("count")?,
        files_transferred: r.u64("count")?,
        total_bytes: r.u64("count")?,
        transferred_bytes: r.u64("count")?,
        literal_bytes: r.u64("count")?,
        matched_bytes: r.u64("count")?,
        signature_bytes: r.u64("count")?,
        syncs: r.u64("count")?,
        vanished: r.u64("count")?,
        failed: r.u64("count")?,
        attributes_withheld: r.u64("count")?,
        links_copied: r.u64("count")?,
        rounded_times: r.u64("count")?,
        deletions_withheld: r.u64("count")?,
        deletions_over_limit: r.u64("count")?,
        linked: None,
        cloned: None,
    })
}

fn operation(code: u8) -> Option<Operation> {
    Some(match code {
        0 => Operation::ReadDirectory,
        1 => Operation::Stat,
        2 => Operation::ReadFile,
        3 => Operation::ReadLink,
        4 => Operation::ReadBasis,
        5 => Operation::CreateDirectory,
        6 => Operation::WriteFile,
        7 => Operation::SetAttributes,
        8 => Operation::Commit,
        9 => Operation::CreateLink,
        10 => Operation::CreateSpecial,
        11 => Operation::Delete,
        12 => Operation::ReadDestination,
        13 => Operation::ReadAttributes,
        14 => Operation::HardLink,
        15 => Operation::RemoveSource,
        16 => Operation::FollowLink,
        17 => Operation::ReadRules,
        _ => return None,
    })
}

fn action(code: u8) -> Option<Action> {
    Some(match code {
        0 => Action::Keep,
        1 => Action::Create,
        2 => Action::Update,
        3 => Action::Retag,
        4 => Action::Delete,
        5 => Action::Reuse,
        6 => Action::Link,
        _ => return None,
    })
}

fn file_type(code: u8) -> Option<FileType> {
    Some(match code {
        0 => FileType::File,
        1 => FileType::Directory,
        2 => FileType::Symlink,
        3 => FileType::Fifo,
        4 => FileType::Socket,
        5 => FileType::CharDevice,
        6 => FileType::BlockDevice,
        _ => return None,
    })
}

/// Bits of the flags of an entry that was carried out.
const DURABLE: u8 = 1;
/// See `DURABLE`.
const LINKED: u8 = 2;
/// See `DURABLE`.
const CLONED: u8 = 4;
/// See `DURABLE`.
const HAS_CONTENT: u8 = 8;
