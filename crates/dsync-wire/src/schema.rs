//! Serde's traits for what a run reports, in the schema of the command's `--json`
//! (`docs/events.schema.json`).
//!
//! The command prints these implementations, so that each field has its name in one place. A name
//! is a string; of one that is not UTF-8 it is the readable part, and a second field has all its
//! bytes in hexadecimal digits. The root of the tree is `.`.
//!
//! Law: a report that was written is read back equal. Its words (`text`, `cure`) are written for
//! people and not read. Fields may be added within a version of the schema; unknown ones are ignored.
//! Names that were read are not checked: they are what the text says.

mod read;

use std::borrow::Cow;

use serde::{Serialize, Serializer, de};

use crate::{
    event::{
        Action, BackedUp, Changes, Done, Ended, Event, Facts, FileType, LeftAlone, Planned, Present, WhyLeft,
    },
    message::{Cause, Operation, Problem, Timestamp},
    path::EntryPath,
    ruling::{RulePlace, Ruled, Ruling},
};

/// A name: its text and, if it is not UTF-8, its bytes in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Name {
    path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
}

impl Name {
    /// Makes a name of its bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let path_hex = std::str::from_utf8(bytes).is_err().then(|| digits(bytes));
        Self { path: String::from_utf8_lossy(bytes).into_owned(), path_hex }
    }

    /// Makes the name of an entry of a tree, whose root has an empty path and the name `.`.
    pub fn of_entry(path: &[u8]) -> Self {
        Self::of(if path.is_empty() { b"." } else { path })
    }

    /// Returns the bytes of the name; `None` if its digits are no bytes.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        self.path_hex.as_ref().map_or_else(|| Some(self.path.as_bytes().to_vec()), |text| bytes(text))
    }

    /// Returns the text and, if the name is not UTF-8, the hexadecimal digits.
    pub fn into_parts(self) -> (String, Option<String>) {
        (self.path, self.path_hex)
    }

    /// Returns the path of an entry, which is empty for the root.
    fn to_entry<E: de::Error>(&self) -> Result<EntryPath, E> {
        let path = self.to_raw()?;
        Ok(if path == b"." { EntryPath::default() } else { path.into() })
    }

    fn to_raw<E: de::Error>(&self) -> Result<Vec<u8>, E> {
        self.to_bytes().ok_or_else(|| E::custom("'path_hex' has no pairs of hexadecimal digits"))
    }
}

impl Serialize for EntryPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Name::of_entry(self).serialize(serializer)
    }
}

/// A problem with one entry in words of the program's own; [`Problem`] itself has the library's.
#[derive(Debug, Clone, Serialize)]
pub struct Worded<'a> {
    #[serde(flatten)]
    name: Name,
    operation: Operation,
    #[serde(flatten)]
    cause: CauseFields,
    text: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cure: Option<&'a str>,
}

impl<'a> Worded<'a> {
    /// Describes a problem in these words, with what to do about it.
    pub fn new(problem: &Problem, text: impl Into<Cow<'a, str>>, cure: Option<&'a str>) -> Self {
        let (operation, cause) = (problem.operation, CauseFields::of(problem.cause));
        Self { name: Name::of_entry(&problem.path), operation, cause, text: text.into(), cure }
    }
}

impl From<&Problem> for Worded<'_> {
    fn from(problem: &Problem) -> Self {
        let path = if problem.path.is_empty() { b"." } else { problem.path.as_bytes() };
        let (path, cause) = (String::from_utf8_lossy(path), problem.cause);
        let text = match cause {
            Cause::Skipped => format!("skipping '{path}': {cause}"),
            _ => format!("cannot {} '{path}': {cause}", problem.operation.words()),
        };
        Self::new(problem, text, None)
    }
}

impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Worded::from(self).serialize(serializer)
    }
}

/// An event with what a program knows beside it, for one that keeps the schema but prints more or
/// other words than the library: [`Event`] itself is serialized in the same form.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Told<'a>(EventFields<'a>);

impl<'a> Told<'a> {
    /// Makes the event of an entry that is done, or only planned, as [`Ended::done`] says.
    pub fn entry(planned: &'a Planned, ended: &Ended) -> Self {
        Self(EventFields::Entry(Box::new(EntryFields::new(planned, *ended))))
    }

    /// Makes the event of an entry of the source, of a run that only lists.
    pub fn listed(planned: &'a Planned, ended: &Ended) -> Self {
        let fields = EntryFields { action: Deed::List("list"), ..EntryFields::new(planned, *ended) };
        Self(EventFields::Entry(Box::new(fields)))
    }

    /// Makes the event of a problem.
    pub fn problem(worded: Worded<'a>) -> Self {
        Self(worded.into())
    }

    /// Makes the event of an entry that an option leaves alone, in these words.
    pub fn left_alone(left: &LeftAlone, text: impl Into<Cow<'a, str>>) -> Self {
        Self(EventFields::Skipped(SkippedFields::left(left, text.into())))
    }

    /// Makes the event of a backup.
    pub fn backed_up(made: &'a BackedUp) -> Self {
        Self(EventFields::Backup(made))
    }

    /// Makes the event of an entry that has left the source.
    pub fn removed(path: &[u8]) -> Self {
        Self(EventFields::Removed(Name::of_entry(path)))
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = match self {
            Self::Planned(planned) => EventFields::Entry(Box::new(EntryFields::plan(planned))),
            Self::Failed(problem) => Worded::from(problem).into(),
            Self::Ended(ended) => EventFields::Ended(ended),
            Self::Done(done) => EventFields::Done(done),
            Self::LeftAlone(left) => EventFields::Skipped(SkippedFields::left(left, left_text(left).into())),
            Self::BackedUp(made) => EventFields::Backup(made),
            Self::Removed(path) => EventFields::Removed(Name::of_entry(path)),
            Self::Ruling(ruling) => EventFields::Ruling(ruling),
            Self::Present(present) => EventFields::Present(PresentFields::of(present)),
        };
        fields.serialize(serializer)
    }
}

/// The fields of an event, by its name.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum EventFields<'a> {
    Entry(Box<EntryFields<'a>>),
    Problem(Worded<'a>),
    Skipped(SkippedFields<'a>),
    Backup(&'a BackedUp),
    Removed(Name),
    Done(&'a Done),
    Ended(&'a Ended),
    Ruling(&'a Ruling),
    Present(PresentFields<'a>),
}

impl<'a> From<Worded<'a>> for EventFields<'a> {
    fn from(worded: Worded<'a>) -> Self {
        let Worded { name, operation, cause, text, .. } = worded;
        match cause.cause {
            CauseWord::Skipped => {
                let (operation, kind, why) = (Some(operation), None, None);
                Self::Skipped(SkippedFields { name, text, operation, kind, why })
            }
            _ => Self::Problem(Worded { name, operation, cause, text, cure: worded.cure }),
        }
    }
}

#[derive(Debug, Serialize)]
struct EntryFields<'a> {
    #[serde(flatten)]
    name: Name,
    kind: FileType,
    action: Deed,
    /// Whether it is done, not only planned.
    done: bool,
    changes: Changes,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Name>,
    /// The old file of another place that a new one is made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    made_from: Option<Name>,
    #[serde(flatten)]
    facts: Option<FactsFields>,
    literal_bytes: u64,
    signature_bytes: u64,
    /// The number that the end of a plan names.
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Hash<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Deed {
    Action(Action),
    List(&'static str),
}

impl<'a> EntryFields<'a> {
    fn new(planned: &'a Planned, ended: Ended) -> Self {
        let other = (!planned.target.is_empty()).then(|| Name::of(&planned.target));
        let (made_from, target) = if planned.is_made_from() { (other, None) } else { (None, other) };
        let facts = planned.facts.as_ref();
        Self {
            name: Name::of_entry(&planned.path),
            kind: planned.kind,
            action: Deed::Action(planned.action),
            done: ended.done,
            changes: planned.changes,
            size: planned.size,
            target,
            made_from,
            facts: facts.map(FactsFields::of),
            literal_bytes: ended.literal_bytes,
            signature_bytes: ended.signature_bytes,
            number: None,
            content: facts.and_then(|facts| facts.content.as_ref()).map(Hash),
        }
    }

    /// Makes the fields of a plan that nothing is known of yet.
    fn plan(planned: &'a Planned) -> Self {
        let number = planned.facts.map(|facts| facts.number).filter(|number| *number > 0);
        Self { number, ..Self::new(planned, Ended::default()) }
    }
}

impl Serialize for Planned {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        EntryFields::plan(self).serialize(serializer)
    }
}

#[derive(Debug, Serialize)]
struct PresentFields<'a> {
    #[serde(flatten)]
    name: Name,
    kind: FileType,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Name>,
    #[serde(flatten)]
    facts: FactsFields,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Hash<'a>>,
}

impl<'a> PresentFields<'a> {
    fn of(present: &'a Present) -> Self {
        let Present { path, kind, size, text, facts } = present;
        let target = (!text.is_empty()).then(|| Name::of(text));
        let content = facts.content.as_ref().map(Hash);
        let (name, facts) = (Name::of_entry(path), FactsFields::of(facts));
        Self { name, kind: *kind, size: *size, target, facts, content }
    }
}

impl Serialize for Present {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        PresentFields::of(self).serialize(serializer)
    }
}

#[derive(Debug, Serialize, serde::Deserialize)]
struct FactsFields {
    /// In octal digits.
    mode: String,
    mtime_seconds: i64,
    mtime_nanoseconds: u32,
    uid: u32,
    gid: u32,
}

impl FactsFields {
    fn of(facts: &Facts) -> Self {
        let Timestamp { seconds, nanoseconds } = facts.mtime;
        Self {
            mode: format!("{:04o}", facts.mode),
            mtime_seconds: seconds,
            mtime_nanoseconds: nanoseconds,
            uid: facts.uid,
            gid: facts.gid,
        }
    }
}

/// A hash in hexadecimal digits.
#[derive(Debug)]
struct Hash<'a>(&'a [u8; 32]);

impl Serialize for Hash<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&digits(self.0))
    }
}

impl Serialize for Changes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(Self::name))
    }
}

/// An entry that is not copied: because of its type, or because an option leaves it alone.
#[derive(Debug, Serialize)]
struct SkippedFields<'a> {
    #[serde(flatten)]
    name: Name,
    text: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<Operation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<FileType>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<WhyLeft>,
}

impl<'a> SkippedFields<'a> {
    fn left(left: &LeftAlone, text: Cow<'a, str>) -> Self {
        let name = Name::of_entry(&left.path);
        Self { name, text, operation: None, kind: Some(left.kind), why: Some(left.why) }
    }
}

fn left_text(left: &LeftAlone) -> String {
    let why = match left.why {
        WhyLeft::Newer => "the destination's is newer",
        WhyLeft::Exists => "the destination has one",
        WhyLeft::New => "the destination has none",
        WhyLeft::TooLong => "it is too long",
        WhyLeft::TooShort => "it is too short",
    };
    format!("leaving '{}' alone: {why}", String::from_utf8_lossy(&left.path))
}

impl Serialize for LeftAlone {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        SkippedFields::left(self, left_text(self).into()).serialize(serializer)
    }
}

#[derive(Debug, Serialize, serde::Deserialize)]
struct BackupFields {
    #[serde(flatten)]
    name: Name,
    backup: Name,
}

impl Serialize for BackedUp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (name, backup) = (Name::of_entry(&self.path), Name::of(&self.backup));
        BackupFields { name, backup }.serialize(serializer)
    }
}

#[derive(Serialize)]
struct DoneFields<'a> {
    #[serde(flatten)]
    name: Name,
    kind: FileType,
    action: Action,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Hash<'a>>,
    durable: bool,
    linked: bool,
    cloned: bool,
}

impl Serialize for Done {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { path, kind, action, bytes, content, durable, linked, cloned } = self;
        let fields = DoneFields {
            name: Name::of_entry(path),
            kind: *kind,
            action: *action,
            bytes: *bytes,
            content: content.as_ref().map(Hash),
            durable: *durable,
            linked: *linked,
            cloned: *cloned,
        };
        fields.serialize(serializer)
    }
}

/// A cause in a word, with the numbers of those that have some.
#[derive(Debug, Clone, Serialize, serde::Deserialize)]
struct CauseFields {
    cause: CauseWord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    errno: Option<Errno>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lacks_owner: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lacks_extended: Option<bool>,
}

#[derive(Debug, Clone, Copy, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum CauseWord {
    System,
    Vanished,
    Changed,
    ContentMismatch,
    DirectoryInTheWay,
    Skipped,
    Unrepresentable,
    TypeChanged,
    FirstNameFailed,
    SameFile,
    FakeSuperDamaged,
    BadRule,
    TooManyRules,
    LeadsOut,
    DeviceTooShort,
    OtherContent,
    EmptySource,
    Lacking,
}

#[derive(Debug, Clone, Serialize, serde::Deserialize)]
struct Errno {
    number: i32,
    #[serde(default)]
    name: String,
}

impl CauseFields {
    fn of(cause: Cause) -> Self {
        let plain = |cause| Self {
            cause,
            errno: None,
            line: None,
            device_bytes: None,
            file_bytes: None,
            lacks_owner: None,
            lacks_extended: None,
        };
        let errno = |number| Some(Errno { number, name: errno_name(number) });

        plain(match cause {
            Cause::Os(number) => return Self { errno: errno(number), ..plain(CauseWord::System) },
            Cause::Lacking { owner, extended, number } => {
                let (lacks_owner, lacks_extended) = (Some(owner), Some(extended));
                return Self {
                    errno: errno(number),
                    lacks_owner,
                    lacks_extended,
                    ..plain(CauseWord::Lacking)
                };
            }
            Cause::BadRule(line) => return Self { line: Some(line), ..plain(CauseWord::BadRule) },
            Cause::DeviceTooShort { device, file } => {
                let (device_bytes, file_bytes) = (Some(device), Some(file));
                return Self { device_bytes, file_bytes, ..plain(CauseWord::DeviceTooShort) };
            }
            Cause::Vanished => CauseWord::Vanished,
            Cause::Changed => CauseWord::Changed,
            Cause::ContentMismatch => CauseWord::ContentMismatch,
            Cause::DirectoryInTheWay => CauseWord::DirectoryInTheWay,
            Cause::Skipped => CauseWord::Skipped,
            Cause::Unrepresentable => CauseWord::Unrepresentable,
            Cause::TypeChanged => CauseWord::TypeChanged,
            Cause::FirstNameFailed => CauseWord::FirstNameFailed,
            Cause::SameFile => CauseWord::SameFile,
            Cause::FakeSuperDamaged => CauseWord::FakeSuperDamaged,
            Cause::TooManyRules => CauseWord::TooManyRules,
            Cause::LeadsOut => CauseWord::LeadsOut,
            Cause::OtherContent => CauseWord::OtherContent,
            Cause::EmptySource => CauseWord::EmptySource,
        })
    }
}

/// Returns the name of one of the system's error numbers, as in `ENOENT`; `UnknownErrno` if it has
/// none.
pub fn errno_name(number: i32) -> String {
    format!("{:?}", nix::errno::Errno::from_raw(number))
}

#[derive(Serialize, serde::Deserialize)]
struct RulingFields {
    #[serde(flatten)]
    name: Name,
    directory: bool,
    why: RuledWord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rule: Option<RuleFields>,
}

#[derive(Clone, Copy, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum RuledWord {
    Hidden,
    Shown,
    OtherFilesystem,
    NotRecursive,
    Pruned,
    Protected,
    NotDeleted,
    Spared,
}

/// The place of a rule: among those of the run, in a file, or none of both.
#[derive(Serialize, serde::Deserialize)]
#[serde(tag = "place", rename_all = "snake_case")]
enum RuleFields {
    Command {
        number: u32,
    },
    File {
        #[serde(flatten)]
        name: Name,
        line: u32,
    },
    PartialDir,
}

impl Serialize for Ruling {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let why = match self.why {
            Ruled::Hidden(_) => RuledWord::Hidden,
            Ruled::Shown(_) => RuledWord::Shown,
            Ruled::OtherFilesystem => RuledWord::OtherFilesystem,
            Ruled::NotRecursive => RuledWord::NotRecursive,
            Ruled::Pruned => RuledWord::Pruned,
            Ruled::Protected(_) => RuledWord::Protected,
            Ruled::NotDeleted => RuledWord::NotDeleted,
            Ruled::Spared => RuledWord::Spared,
        };
        let rule = self.why.place().map(|place| match place {
            RulePlace::Command(number) => RuleFields::Command { number: *number },
            RulePlace::File { path, line } => RuleFields::File { name: Name::of(path), line: *line },
            RulePlace::PartialDir => RuleFields::PartialDir,
        });
        RulingFields { name: Name::of_entry(&self.path), directory: self.is_dir, why, rule }
            .serialize(serializer)
    }
}

/// Returns bytes as hexadecimal digits.
fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the bytes of hexadecimal digits.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [_, _] => u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok(),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
