//! Reads reports back: the other half of each implementation.

use serde::{Deserialize, Deserializer, de::Error};

use super::{
    BackupFields, CauseFields, CauseWord, FactsFields, Name, RuleFields, RuledWord, RulingFields, bytes,
};
use crate::{
    event::{
        Action, BackedUp, Changes, Done, Ended, Event, Facts, FileType, LeftAlone, Planned, Present, WhyLeft,
    },
    message::{Cause, Operation, Problem, Timestamp},
    path::EntryPath,
    ruling::{RulePlace, Ruled, Ruling},
};

impl<'de> Deserialize<'de> for EntryPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Name::deserialize(deserializer)?.to_entry()
    }
}

#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum EventRead {
    Entry(Planned),
    Problem(Problem),
    Skipped(SkippedRead),
    Backup(BackedUp),
    Removed(Name),
    Done(Done),
    Ended(Ended),
    Ruling(Ruling),
    Present(Present),
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match EventRead::deserialize(deserializer)? {
            EventRead::Entry(planned) => Self::Planned(planned),
            EventRead::Problem(problem) => Self::Failed(problem),
            EventRead::Backup(made) => Self::BackedUp(made),
            EventRead::Removed(name) => Self::Removed(name.to_entry()?),
            EventRead::Done(done) => Self::Done(done),
            EventRead::Ended(ended) => Self::Ended(ended),
            EventRead::Ruling(ruling) => Self::Ruling(ruling),
            EventRead::Present(present) => Self::Present(present),
            EventRead::Skipped(SkippedRead { name, operation: Some(operation), .. }) => {
                Self::Failed(Problem::new(operation, name.to_entry()?, Cause::Skipped))
            }
            EventRead::Skipped(left) => Self::LeftAlone(left.left_alone()?),
        })
    }
}

#[derive(Deserialize)]
struct SkippedRead {
    #[serde(flatten)]
    name: Name,
    operation: Option<Operation>,
    kind: Option<FileType>,
    why: Option<WhyLeft>,
}

impl SkippedRead {
    fn left_alone<E: Error>(self) -> Result<LeftAlone, E> {
        let path = self.name.to_entry()?;
        let kind = self.kind.ok_or_else(|| E::missing_field("kind"))?;
        let why = self.why.ok_or_else(|| E::missing_field("why"))?;
        Ok(LeftAlone { kind, path, why })
    }
}

impl<'de> Deserialize<'de> for LeftAlone {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        SkippedRead::deserialize(deserializer)?.left_alone()
    }
}

#[derive(Deserialize)]
struct EntryRead {
    #[serde(flatten)]
    name: Name,
    kind: FileType,
    action: Action,
    changes: Changes,
    size: u64,
    target: Option<Name>,
    made_from: Option<Name>,
    #[serde(flatten)]
    facts: Option<FactsFields>,
    #[serde(default)]
    number: u64,
    content: Option<HashRead>,
}

impl<'de> Deserialize<'de> for Planned {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = EntryRead::deserialize(deserializer)?;
        let target = read.target.or(read.made_from).map_or(Ok(Vec::new()), |name| name.to_raw())?;
        let (number, content) = (read.number, read.content.map(|hash| hash.0));
        let facts = read.facts.map(|facts| facts.facts(number, content)).transpose()?;
        let (action, kind, changes) = (read.action, read.kind, read.changes);
        Ok(Self { action, kind, changes, path: read.name.to_entry()?, target, size: read.size, facts })
    }
}

#[derive(Deserialize)]
struct PresentRead {
    #[serde(flatten)]
    name: Name,
    kind: FileType,
    size: u64,
    target: Option<Name>,
    #[serde(flatten)]
    facts: FactsFields,
    content: Option<HashRead>,
}

impl<'de> Deserialize<'de> for Present {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let PresentRead { name, kind, size, target, facts, content } =
            PresentRead::deserialize(deserializer)?;
        let text = target.map_or(Ok(Vec::new()), |name| name.to_raw())?;
        let facts = facts.facts(0, content.map(|hash| hash.0))?;
        Ok(Self { path: name.to_entry()?, kind, size, text, facts })
    }
}

impl FactsFields {
    fn facts<E: Error>(self, number: u64, content: Option<[u8; 32]>) -> Result<Facts, E> {
        let mode = u16::from_str_radix(&self.mode, 8).map_err(|_| E::custom("'mode' has no octal digits"))?;
        let mtime = Timestamp { seconds: self.mtime_seconds, nanoseconds: self.mtime_nanoseconds };
        Ok(Facts { number, mode, mtime, uid: self.uid, gid: self.gid, content })
    }
}

struct HashRead([u8; 32]);

impl<'de> Deserialize<'de> for HashRead {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let digits = String::deserialize(deserializer)?;
        let hash = bytes(&digits).and_then(|bytes| bytes.try_into().ok());
        hash.map(Self).ok_or_else(|| D::Error::custom("'content' is not 64 hexadecimal digits"))
    }
}

impl<'de> Deserialize<'de> for Changes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut changes = Self::NONE;
        for name in Vec::<String>::deserialize(deserializer)? {
            let change = Self::named(&name);
            changes
                .insert(change.ok_or_else(|| D::Error::custom(format!("no change has the name '{name}'")))?);
        }
        Ok(changes)
    }
}

#[derive(Deserialize)]
struct ProblemRead {
    #[serde(flatten)]
    name: Name,
    operation: Operation,
    #[serde(flatten)]
    cause: CauseFields,
}

impl<'de> Deserialize<'de> for Problem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ProblemRead { name, operation, cause } = ProblemRead::deserialize(deserializer)?;
        Ok(Self { operation, path: name.to_entry()?, cause: cause.cause()? })
    }
}

impl CauseFields {
    fn cause<E: Error>(self) -> Result<Cause, E> {
        Ok(match self.cause {
            CauseWord::System => Cause::Os(self.errno.ok_or_else(|| E::missing_field("errno"))?.number),
            CauseWord::Lacking => Cause::Lacking {
                owner: self.lacks_owner.unwrap_or_default(),
                extended: self.lacks_extended.unwrap_or_default(),
                number: self.errno.ok_or_else(|| E::missing_field("errno"))?.number,
            },
            CauseWord::BadRule => Cause::BadRule(self.line.ok_or_else(|| E::missing_field("line"))?),
            CauseWord::DeviceTooShort => {
                let device = self.device_bytes.ok_or_else(|| E::missing_field("device_bytes"))?;
                let file = self.file_bytes.ok_or_else(|| E::missing_field("file_bytes"))?;
                Cause::DeviceTooShort { device, file }
            }

            CauseWord::Vanished => Cause::Vanished,
            CauseWord::Changed => Cause::Changed,
            CauseWord::ContentMismatch => Cause::ContentMismatch,
            CauseWord::DirectoryInTheWay => Cause::DirectoryInTheWay,
            CauseWord::Skipped => Cause::Skipped,
            CauseWord::Unrepresentable => Cause::Unrepresentable,
            CauseWord::TypeChanged => Cause::TypeChanged,
            CauseWord::FirstNameFailed => Cause::FirstNameFailed,
            CauseWord::SameFile => Cause::SameFile,
            CauseWord::FakeSuperDamaged => Cause::FakeSuperDamaged,
            CauseWord::TooManyRules => Cause::TooManyRules,
            CauseWord::LeadsOut => Cause::LeadsOut,
            CauseWord::OtherContent => Cause::OtherContent,
            CauseWord::EmptySource => Cause::EmptySource,
        })
    }
}

impl<'de> Deserialize<'de> for BackedUp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let BackupFields { name, backup } = BackupFields::deserialize(deserializer)?;
        Ok(Self { path: name.to_entry()?, backup: backup.to_raw()?.into() })
    }
}

#[derive(Deserialize)]
struct DoneRead {
    #[serde(flatten)]
    name: Name,
    kind: FileType,
    action: Action,
    bytes: u64,
    content: Option<HashRead>,
    durable: bool,
    linked: bool,
    cloned: bool,
}

impl<'de> Deserialize<'de> for Done {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let DoneRead { name, kind, action, bytes, content, durable, linked, cloned } =
            DoneRead::deserialize(deserializer)?;
        let (path, content) = (name.to_entry()?, content.map(|hash| hash.0));
        Ok(Self { path, kind, action, bytes, content, durable, linked, cloned })
    }
}

impl<'de> Deserialize<'de> for Ruling {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let RulingFields { name, directory, why, rule } = RulingFields::deserialize(deserializer)?;
        let place = match rule {
            None => Err(D::Error::missing_field("rule")),
            Some(RuleFields::Command { number }) => Ok(RulePlace::Command(number)),
            Some(RuleFields::File { name, line }) => {
                Ok(RulePlace::File { path: name.to_raw()?.into(), line })
            }
            Some(RuleFields::PartialDir) => Ok(RulePlace::PartialDir),
        };
        let why = match why {
            RuledWord::Hidden => Ruled::Hidden(place?),
            RuledWord::Shown => Ruled::Shown(place?),
            RuledWord::Protected => Ruled::Protected(place?),
            RuledWord::OtherFilesystem => Ruled::OtherFilesystem,
            RuledWord::NotRecursive => Ruled::NotRecursive,
            RuledWord::Pruned => Ruled::Pruned,
            RuledWord::NotDeleted => Ruled::NotDeleted,
            RuledWord::Spared => Ruled::Spared,
        };
        Ok(Self { path: name.to_entry()?, is_dir: directory, why })
    }
}
