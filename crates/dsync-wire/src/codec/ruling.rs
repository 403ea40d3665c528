//! Rulings.

use super::{reader::Reader, writer::Writer};
use crate::{
    error::{DecodeError, EncodeError},
    limits::{MAX_FILTERS, MAX_PATH},
    path::EntryPath,
    ruling::{RulePlace, Ruled, Ruling},
};

pub(super) fn encode(ruling: &Ruling, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    w.byte(number(&ruling.why));
    w.bool(ruling.is_dir);
    w.bytes(&ruling.path, MAX_PATH, "path")?;
    match ruling.why.place() {
        None => Ok(()),
        Some(RulePlace::Command(at)) => {
            w.byte(0);
            w.at_most(u64::from(*at), MAX_FILTERS as u64, "number of a rule")
        }
        Some(RulePlace::File { path, line }) => {
            w.byte(1);
            w.u32(*line);
            w.bytes(path, MAX_PATH, "path")
        }
        Some(RulePlace::PartialDir) => {
            w.byte(2);
            Ok(())
        }
    }
}

pub(super) fn decode(r: &mut Reader<'_>) -> Result<Ruling, DecodeError> {
    let offset = r.offset();
    let why = r.byte("reason")?;
    let is_dir = r.bool("flag")?;
    let path = EntryPath::from(r.bytes(MAX_PATH, "path")?);

    let why = match why {
        0 => Ruled::Hidden(decode_place(r)?),
        1 => Ruled::Shown(decode_place(r)?),
        2 => Ruled::OtherFilesystem,
        3 => Ruled::NotRecursive,
        4 => Ruled::Pruned,
        5 => Ruled::Protected(decode_place(r)?),
        6 => Ruled::NotDeleted,
        7 => Ruled::Spared,
        other => return Err(r.value(u64::from(other), offset, "reason")),
    };
    Ok(Ruling { path, is_dir, why })
}

fn number(why: &Ruled) -> u8 {
    match why {
        Ruled::Hidden(_) => 0,
        Ruled::Shown(_) => 1,
        Ruled::OtherFilesystem => 2,
        Ruled::NotRecursive => 3,
        Ruled::Pruned => 4,
        Ruled::Protected(_) => 5,
        Ruled::NotDeleted => 6,
        Ruled::Spared => 7,
    }
}

fn decode_place(r: &mut Reader<'_>) -> Result<RulePlace, DecodeError> {
    let offset = r.offset();
    Ok(match r.byte("place of a rule")? {
        0 => {
            let at = r.at_most(MAX_FILTERS as u64, "number of a rule")?;
            RulePlace::Command(u32::try_from(at).unwrap_or(u32::MAX))
        }
        1 => RulePlace::File { line: r.u32("line")?, path: r.bytes(MAX_PATH, "path")?.into() },
        2 => RulePlace::PartialDir,
        other => return Err(r.value(u64::from(other), offset, "place of a rule")),
    })
}
