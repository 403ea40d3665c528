//! Serde's traits for what a run reports, with the feature `serde`: the schema of the command's
//! `--json` (`docs/events.schema.json`).
//!
//! | type | is in the schema | is read back |
//! |---|---|---|
//! | [`Event`](crate::Event) | one of the events | yes |
//! | [`Progress`], [`Connection`] | `progress`, `connected`, without `event` | yes |
//! | [`Reconnect`] | `retry`, without `event` | no: its cause is its words |
//! | [`FileProgress`] | `file` | yes |
//! | [`Carrier`], [`Move`], [`MoveCause`](crate::MoveCause), [`Traffic`] | as in `connected` and `totals` | yes |
//! | [`Report`], [`TypeCounts`](crate::TypeCounts) | the counts of `totals`, `counts` | yes |
//! | [`Summary`] | `totals` | yes, its time in whole milliseconds |
//! | [`RunOutcome`] | `outcome` | no: an error is its words |
//! | [`StateUse`](crate::StateUse) | `contents` of `summary` | yes |
//! | [`Verified`](crate::verify::Verified), [`Totals`](crate::manifest::Totals) | as of `dsync verify --json`, without `event` | yes |
//! | [`Finding`] | `difference` of `dsync verify --json`, without `event` | no |
//!
//! A plan and its end are two events here, `entry` and `ended`, as the run reports them. The
//! command prints [`Told::entry`], one event of both. Within a version of the schema events and
//! fields are only added; readers ignore fields that they do not know, and those of a report that
//! an older library did not write are zero.
//!
//! ```
//! use dsync_engine::{Action, Done, Event, FileType};
//!
//! let done = Done::new(Action::Create, FileType::File, b"n\xff").bytes(3).durable(true);
//! let line = serde_json::to_string(&Event::Done(done.clone()))?;
//!
//! assert!(line.starts_with(r#"{"event":"done","path":"n�","path_hex":"6eff","kind":"file""#));
//! assert_eq!(serde_json::from_str::<Event>(&line)?, Event::Done(done));
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! ```
//! use dsync_engine::schema::{Name, Told, Worded, errno_name};
//! use dsync_engine::{
//!     Action, BackedUp, Cause, Ended, FileType, LeftAlone, Operation, Planned, Problem, WhyLeft,
//! };
//!
//! // A program with words of its own keeps the schema.
//! let problem = Problem::new(Operation::ReadFile, "a", Cause::Os(13));
//! let text = format!("a: no rights ({})", errno_name(13));
//! let line =
//!     serde_json::to_string(&Told::problem(Worded::new(&problem, text, Some("run it as root"))))?;
//! assert!(line.contains("EACCES") && line.contains("as root"));
//!
//! let (plan, end) =
//!     (Planned::new(Action::Update, FileType::File, "a"), Ended::default());
//! let left = LeftAlone::new(FileType::File, "a", WhyLeft::Newer);
//! let backup = BackedUp::new("a", "a~");
//! for told in [
//!     Told::entry(&plan, &end),
//!     Told::listed(&plan, &end),
//!     Told::left_alone(&left, "is newer here"),
//!     Told::backed_up(&backup),
//!     Told::removed(b"a"),
//! ] {
//!     println!("{}", serde_json::to_string(&told)?);
//! }
//!
//! // Names that are no text go and come back whole.
//! let name = Name::of(b"n\xff");
//! assert_eq!(name.to_bytes(), Some(b"n\xff".to_vec()));
//! assert_eq!(
//!     (name.into_parts().1.as_deref(), Name::of_entry(b"").into_parts().0.as_str()),
//!     (Some("6eff"), ".")
//! );
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::time::Duration;

pub use dsync_wire::schema::{Name, Told, Worded, errno_name};
use dsync_wire::{
    event::{Changes, Progress, Report},
    link::{Carrier, Move, Traffic},
    message::Reason,
    path::EntryPath,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use crate::{
    Connection, Fault, FileProgress, Reconnect, RunOutcome, Summary, SyncError,
    error::with_causes,
    verify::{Difference, Finding},
};

#[derive(Serialize, Deserialize)]
struct SummaryFields {
    elapsed_ms: u64,
    sent_bytes: u64,
    received_bytes: u64,
    carrier: Option<Carrier>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    moves: Vec<Move>,
    reconnects: u32,
    files_done_before: u64,
    #[serde(default, skip_serializing_if = "is_false")]
    dry_run: bool,
    #[serde(flatten)]
    report: Report,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_false(value: &bool) -> bool {
    !value
}

impl Serialize for Summary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { report, connection, reconnects, files_done_before, traffic, elapsed, dry_run } = self;
        let connection = connection.as_ref();
        let fields = SummaryFields {
            elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            sent_bytes: traffic.sent_bytes,
            received_bytes: traffic.received_bytes,
            carrier: connection.map(|connection| connection.carrier),
            reason: connection.and_then(|connection| connection.reason.clone()),
            moves: connection.map_or_else(Vec::new, |connection| connection.moves.clone()),
            reconnects: *reconnects,
            files_done_before: *files_done_before,
            dry_run: *dry_run,
            report: report.clone(),
        };
        fields.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Summary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = SummaryFields::deserialize(deserializer)?;
        Ok(Self {
            report: read.report,
            connection: read.carrier.map(|carrier| Connection {
                carrier,
                reason: read.reason,
                moves: read.moves,
            }),
            reconnects: read.reconnects,
            files_done_before: read.files_done_before,
            traffic: Traffic::new(read.sent_bytes, read.received_bytes),
            elapsed: Duration::from_millis(read.elapsed_ms),
            dry_run: read.dry_run,
        })
    }
}

#[derive(Serialize, Deserialize)]
struct FileFields {
    #[serde(flatten)]
    name: Name,
    size: u64,
    done_bytes: u64,
}

impl Serialize for FileProgress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { path, size, done_bytes } = self;
        FileFields { name: Name::of(path), size: *size, done_bytes: *done_bytes }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for FileProgress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let FileFields { name, size, done_bytes } = FileFields::deserialize(deserializer)?;
        let path = name.to_bytes().ok_or_else(|| D::Error::custom("'path_hex' is no path"))?;
        Ok(Self { path: path.into(), size, done_bytes })
    }
}

#[derive(Serialize)]
struct RetryFields {
    number: u32,
    limit: u32,
    wait_ms: u64,
    text: String,
}

impl Serialize for Reconnect<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { cause, number, limit, wait } = *self;
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        RetryFields { number, limit, wait_ms, text: with_causes(cause) }.serialize(serializer)
    }
}

#[derive(Serialize)]
struct OutcomeFields<'a> {
    exit_code: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<Fault>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retryable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    totals: Option<&'a Summary>,
    progress: Progress,
    failed: &'a [EntryPath],
}

impl Serialize for RunOutcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (summary, error) = (self.summary.as_ref(), self.error.as_ref());
        let fields = OutcomeFields {
            exit_code: error.map(SyncError::exit_code).or_else(|| summary.map(Summary::exit_code)),
            error: error.map(|error| with_causes(error)),
            fault: error.map(SyncError::fault),
            reason: error.map(SyncError::reason),
            retryable: error.map(SyncError::is_retryable),
            totals: summary,
            progress: self.progress,
            failed: &self.failed,
        };
        fields.serialize(serializer)
    }
}

/// A difference that a verification found, in words of the program's own; [`Finding`] itself has the
/// library's.
///
/// ```
/// use dsync_engine::{Changes, schema::Found};
///
/// // A scanner of the program's own reports in the form of `dsync verify --json`.
/// let line = serde_json::to_string(&Found::new(b"note", "edited", Some(Changes::SIZE), None))?;
/// assert!(line.contains(r#""path":"note""#) && line.contains("edited"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Serialize)]
pub struct Found<'a> {
    kind: &'a str,
    path: String,
    // Every field is there, null or not.
    path_hex: Option<String>,
    changes: Option<Changes>,
    why: Option<String>,
}

impl<'a> Found<'a> {
    /// Describes a difference: its kind in a word, what changed, and why it could not be read.
    pub fn new(path: &[u8], kind: &'a str, changes: Option<Changes>, why: Option<String>) -> Self {
        let (path, path_hex) = Name::of(path).into_parts();
        Self { kind, path, path_hex, changes, why }
    }
}

impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (kind, changes, why) = match &self.difference {
            Difference::Rot => ("rot", None, None),
            Difference::Edited(changes) => ("edited", Some(*changes), None),
            Difference::Attributes(changes) => ("attributes", Some(*changes), None),
            Difference::Missing => ("missing", None, None),
            Difference::New => ("new", None, None),
            Difference::Unreadable(error) => ("unreadable", None, Some(error.to_string())),
            Difference::Busy => ("busy", None, None),
            Difference::Unrecorded => ("unrecorded", None, None),
            Difference::EditedSince(changes) => ("edited", Some(*changes), None),
        };
        Found::new(&self.path, kind, changes, why).serialize(serializer)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
