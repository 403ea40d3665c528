//! `--json`: the run as a stream of events, one JSON object a line, for programs.
//!
//! `docs/events.schema.json` describes every event, and tests hold real runs against it. Within a
//! [`VERSION`] events and fields are only added. A name is a string; of one that is not UTF-8 it is
//! the readable part, and a second field has all its bytes in hexadecimal digits (`path_hex`).
//!
//! The first event is `start`, the last one `summary`, also of a run that failed. Entries come as
//! lists name them: when they are done, in the order of the listing, or as planned in a dry run.

use std::{collections::HashSet, sync::Mutex, sync::PoisonError};

use dsync_engine::{
    Action, BackedUp, Cause, Changes, Connection, Ended, FileType, LeftAlone, Planned, Problem, Progress,
    Reconnect, Report, Summary, SyncError, TypeCounts,
};
use serde::Serialize;

use crate::{errno, escape::json_line, listing::is_made_from, messages};

/// The version of the stream.
const VERSION: u32 = 1;

/// The names and settings that the stream begins with.
#[derive(Debug, Clone, Default)]
pub(crate) struct Opening {
    /// `local`, `push`, `pull` or `list`.
    pub(crate) mode: &'static str,
    pub(crate) dry_run: bool,
    /// The operands, as they were given.
    pub(crate) sources: Vec<Vec<u8>>,
    pub(crate) destination: Option<Vec<u8>>,
}

/// A stream that is being written.
pub(crate) struct Stream {
    /// Whether entries are only planned, or listed.
    dry_run: bool,
    /// Whether they are only listed.
    lists_only: bool,
    failures: Mutex<Failures>,
    /// Whether the plan was told: once for each session.
    planned: Mutex<bool>,
}

/// Entries that failed, each once.
#[derive(Default)]
struct Failures {
    paths: HashSet<Vec<u8>>,
    kept: Vec<Failure>,
    omitted: u64,
}

/// A name: its text and, if it is not UTF-8, its bytes in hexadecimal digits.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Name {
    pub(crate) path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path_hex: Option<String>,
}

impl Name {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let path_hex = std::str::from_utf8(bytes).is_err().then(|| hex(bytes));
        Self { path: String::from_utf8_lossy(bytes).into_owned(), path_hex }
    }
}

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Record<'a> {
    Start {
        version: u32,
        program_version: &'static str,
        mode: &'static str,
        dry_run: bool,
        sources: Vec<Name>,
        destination: Option<Name>,
    },
    Connected {
        carrier: String,
        reason: Option<&'a str>,
    },
    Plan {
        entries: u64,
        files: u64,
        bytes: u64,
    },
    Entry(Entry),
    Problem(Failure),
    Skipped {
        #[serde(flatten)]
        name: Name,
        text: String,
    },
    Backup {
        #[serde(flatten)]
        name: Name,
        backup: Name,
    },
    Removed {
        #[serde(flatten)]
        name: Name,
    },
    Progress {
        entries_checked: u64,
        entries_listed: u64,
        files_needed: u64,
        files_done: u64,
        bytes_needed: u64,
        bytes_done: u64,
        totals_final: bool,
    },
    Retry {
        number: u32,
        limit: u32,
        wait_ms: u64,
        text: String,
    },
    Summary(Box<End>),
}

#[derive(Debug, Serialize)]
struct Entry {
    #[serde(flatten)]
    name: Name,
    kind: &'static str,
    action: &'static str,
    /// Whether it is done, not only planned.
    done: bool,
    changes: Vec<&'static str>,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Name>,
    /// The old file of another place that a new one is made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    made_from: Option<Name>,
    #[serde(flatten)]
    facts: Option<EntryFacts>,
    literal_bytes: u64,
    signature_bytes: u64,
}

#[derive(Debug, Serialize)]
struct EntryFacts {
    /// In octal digits.
    mode: String,
    mtime_seconds: i64,
    mtime_nanoseconds: u32,
    uid: u32,
    gid: u32,
}

#[derive(Debug, Clone, Serialize)]
struct Failure {
    #[serde(flatten)]
    name: Name,
    operation: String,
    cause: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    errno: Option<Errno>,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cure: Option<&'static str>,
}

#[derive(Debug, Clone, Serialize)]
struct Errno {
    number: i32,
    name: String,
}

#[derive(Debug, Default, Serialize)]
struct End {
    exit_code: u8,
    meaning: &'static str,
    /// The reason why the run ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    dry_run: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    totals: Option<Totals>,
    failures: Vec<Failure>,
    failures_omitted: u64,
}

#[derive(Debug, Serialize)]
struct Totals {
    elapsed_ms: u64,
    sent_bytes: u64,
    received_bytes: u64,
    carrier: Option<String>,
    reconnects: u32,
    files_done_before: u64,
    listed: Counts,
    created: Counts,
    deleted: Counts,
    retagged: u64,
    files_transferred: u64,
    total_bytes: u64,
    transferred_bytes: u64,
    literal_bytes: u64,
    matched_bytes: u64,
    signature_bytes: u64,
    syncs: u64,
    vanished: u64,
    failed: u64,
    attributes_withheld: u64,
    links_copied: u64,
    rounded_times: u64,
    deletions_withheld: u64,
    deletions_over_limit: u64,
    linked: Option<u64>,
    cloned: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Counts {
    files: u64,
    directories: u64,
    symlinks: u64,
    devices: u64,
    specials: u64,
}

impl Stream {
    /// Begins a stream. Returns it and its first line.
    pub(crate) fn begin(opening: &Opening) -> (Self, Vec<u8>) {
        let Opening { mode, dry_run, ref sources, ref destination } = *opening;
        let line = line(&Record::Start {
            version: VERSION,
            program_version: env!("CARGO_PKG_VERSION"),
            mode,
            dry_run,
            sources: sources.iter().map(|source| Name::of(source)).collect(),
            destination: destination.as_deref().map(Name::of),
        });
        let lists_only = mode == "list";
        (Self { dry_run, lists_only, failures: Mutex::default(), planned: Mutex::default() }, line)
    }

    /// Returns the line of a connection that was made; a plan follows.
    pub(crate) fn connected(&self, connection: &Connection) -> Vec<u8> {
        *self.planned.lock().unwrap_or_else(PoisonError::into_inner) = false;
        line(&Record::Connected {
            carrier: connection.carrier.to_string(),
            reason: connection.reason.as_deref(),
        })
    }

    /// Returns the line of an entry.
    pub(crate) fn entry(&self, planned: &Planned, ended: &Ended) -> Vec<u8> {
        let other = (!planned.target.is_empty()).then(|| Name::of(&planned.target));
        let (made_from, target) = if is_made_from(planned) { (other, None) } else { (None, other) };
        let facts = planned.facts.map(|facts| EntryFacts {
            mode: format!("{:04o}", facts.mode),
            mtime_seconds: facts.mtime.seconds,
            mtime_nanoseconds: facts.mtime.nanoseconds,
            uid: facts.uid,
            gid: facts.gid,
        });
        line(&Record::Entry(Entry {
            name: Name::of(if planned.path.is_empty() { b"." } else { &planned.path }),
            kind: kind(planned.kind),
            action: if self.lists_only { "list" } else { action(planned.action) },
            done: !self.dry_run,
            changes: changes(planned.changes),
            size: planned.size,
            target,
            made_from,
            facts,
            literal_bytes: ended.literal_bytes,
            signature_bytes: ended.signature_bytes,
        }))
    }

    /// Returns the line of a problem, and notes it for the summary.
    pub(crate) fn problem(&self, problem: &Problem) -> Vec<u8> {
        let text = messages::problem(problem);
        let path = if problem.path.is_empty() { b".".as_slice() } else { &problem.path };
        if problem.cause == Cause::Skipped {
            return line(&Record::Skipped { name: Name::of(path), text });
        }
        let errno = match problem.cause {
            Cause::Os(number) => Some(Errno { number, name: errno::name(number) }),
            _ => None,
        };
        let failure = Failure {
            name: Name::of(path),
            operation: snake(&format!("{:?}", problem.operation)),
            cause: cause(problem.cause),
            errno,
            text,
            cure: errno::cure(problem.cause),
        };

        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.kept.len() >= MAX_FAILURES {
            failures.omitted += 1;
        } else if failures.paths.insert(path.to_vec()) {
            failures.kept.push(failure.clone());
        }
        line(&Record::Problem(failure))
    }

    /// Returns the line of an entry that an option leaves alone.
    pub(crate) fn left_alone(&self, left: &LeftAlone) -> Vec<u8> {
        line(&Record::Skipped { name: Name::of(&left.path), text: messages::left_alone(left) })
    }

    /// Returns the line of a backup.
    pub(crate) fn backed_up(&self, made: &BackedUp) -> Vec<u8> {
        line(&Record::Backup { name: Name::of(&made.path), backup: Name::of(&made.backup) })
    }

    /// Returns the line of an entry that has left the source.
    pub(crate) fn removed(&self, path: &[u8]) -> Vec<u8> {
        line(&Record::Removed { name: Name::of(path) })
    }

    /// Returns the lines of progress, and of the plan once its totals are known.
    pub(crate) fn progress(&self, progress: &Progress) -> Vec<u8> {
        let mut lines = Vec::new();
        let mut planned = self.planned.lock().unwrap_or_else(PoisonError::into_inner);
        if progress.totals_final && !std::mem::replace(&mut *planned, true) {
            lines = line(&Record::Plan {
                entries: progress.entries_checked,
                files: progress.files_needed,
                bytes: progress.bytes_needed,
            });
            lines.push(b'\n');
        } else if progress.totals_final {
            *planned = true;
        }
        lines.extend(self::progress(progress));
        lines
    }

    /// Returns the line of a connection that is made again.
    pub(crate) fn retry(&self, reconnect: &Reconnect<'_>) -> Vec<u8> {
        line(&Record::Retry {
            number: reconnect.number,
            limit: reconnect.limit,
            wait_ms: u64::try_from(reconnect.wait.as_millis()).unwrap_or(u64::MAX),
            text: messages::reconnecting(reconnect),
        })
    }

    /// Returns the last line: the outcome, the exit code and, of a run that failed, why.
    pub(crate) fn end(&self, outcome: &Result<Summary, SyncError>, code: u8, error: Option<&str>) -> Vec<u8> {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        line(&Record::Summary(Box::new(End {
            exit_code: code,
            meaning: messages::meaning(code),
            error: error.filter(|_| outcome.is_err()).map(str::to_owned),
            dry_run: self.dry_run,
            totals: outcome.as_ref().ok().map(totals),
            failures: std::mem::take(&mut failures.kept),
            failures_omitted: failures.omitted,
        })))
    }
}

/// Failures that a summary names; a disk that fails as a whole would fill the memory.
const MAX_FAILURES: usize = 10_000;

/// Returns the line of progress.
pub(crate) fn progress(progress: &Progress) -> Vec<u8> {
    line(&Record::Progress {
        entries_checked: progress.entries_checked,
        entries_listed: progress.entries_listed,
        files_needed: progress.files_needed,
        files_done: progress.files_done,
        bytes_needed: progress.bytes_needed,
        bytes_done: progress.bytes_done,
        totals_final: progress.totals_final,
    })
}

/// Writes a record as one line, without its end.
fn line(record: &Record<'_>) -> Vec<u8> {
    // Cannot fail: the records have string keys only.
    json_line(record).into_bytes()
}

fn totals(summary: &Summary) -> Totals {
    let Report {
        listed,
        created,
        deleted,
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
        linked,
        cloned,
        ..
    } = summary.report;

    Totals {
        elapsed_ms: u64::try_from(summary.elapsed.as_millis()).unwrap_or(u64::MAX),
        sent_bytes: summary.traffic.sent_bytes,
        received_bytes: summary.traffic.received_bytes,
        carrier: summary.connection.as_ref().map(|connection| connection.carrier.to_string()),
        reconnects: summary.reconnects,
        files_done_before: summary.files_done_before,
        listed: counts(listed),
        created: counts(created),
        deleted: counts(deleted),
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
        linked,
        cloned,
    }
}

fn counts(counts: TypeCounts) -> Counts {
    let TypeCounts { files, directories, symlinks, devices, specials, .. } = counts;
    Counts { files, directories, symlinks, devices, specials }
}

fn kind(kind: FileType) -> &'static str {
    match kind {
        FileType::File => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharDevice => "char_device",
        FileType::BlockDevice => "block_device",
        _ => "unknown",
    }
}

pub(crate) fn action(action: Action) -> &'static str {
    match action {
        Action::Keep => "keep",
        Action::Create => "create",
        Action::Update => "update",
        Action::Retag => "retag",
        Action::Delete => "delete",
        Action::Reuse => "reuse",
        Action::Link => "link",
        _ => "unknown",
    }
}

pub(crate) fn changes(changes: Changes) -> Vec<&'static str> {
    changes.iter().map(Changes::name).collect()
}

fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::Os(_) => "system",
        Cause::Vanished => "vanished",
        Cause::Changed => "changed",
        Cause::ContentMismatch => "content_mismatch",
        Cause::DirectoryInTheWay => "directory_in_the_way",
        Cause::Skipped => "skipped",
        Cause::Unrepresentable => "unrepresentable",
        Cause::TypeChanged => "type_changed",
        Cause::FirstNameFailed => "first_name_failed",
        Cause::SameFile => "same_file",
        Cause::FakeSuperDamaged => "fake_super_damaged",
        Cause::BadRule(_) => "bad_rule",
        Cause::TooManyRules => "too_many_rules",
        Cause::LeadsOut => "leads_out",
        Cause::DeviceTooShort { .. } => "device_too_short",
        _ => "unknown",
    }
}

/// Turns `ReadFile` into `read_file`.
fn snake(word: &str) -> String {
    let mut text = String::new();
    for letter in word.chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dsync_engine::Operation;

    use super::*;

    fn text(line: &[u8]) -> &str {
        std::str::from_utf8(line).unwrap()
    }

    #[test]
    fn names_lose_no_byte() {
        let opening = Opening {
            mode: "local",
            sources: vec![b"a\"\n".to_vec(), b"n\xff".to_vec()],
            ..Opening::default()
        };
        let (_, start) = Stream::begin(&opening);
        let expected = r#""sources":[{"path":"a\"\n"},{"path":"n�","path_hex":"6eff"}],"destination":null}"#;
        assert!(text(&start).ends_with(expected), "{}", text(&start));
    }

    #[test]
    fn summary_names_each_failed_path_once_with_its_cure() {
        let (stream, _) = Stream::begin(&Opening::default());
        let problem = |cause| Problem::new(Operation::ReadFile, b"d/f".to_vec(), cause);
        let line = stream.problem(&problem(Cause::Os(13)));
        assert!(text(&line).starts_with(
            r#"{"event":"problem","path":"d/f","operation":"read_file","cause":"system","errno":{"number":13,"name":"EACCES"}"#
        ));
        let _ = stream.problem(&problem(Cause::Vanished));
        let _ = stream.problem(&problem(Cause::Skipped));
        let end = stream.end(&Err(SyncError::Cancelled), 20, Some("interrupted"));
        let end: serde_json::Value = serde_json::from_slice(&end).unwrap();
        assert_eq!(end["failures"].as_array().unwrap().len(), 1);
        assert_eq!((&end["exit_code"], &end["error"]), (&20.into(), &"interrupted".into()));
        assert!(end["failures"][0]["cure"].as_str().unwrap().contains("permissions"));
    }

    #[test]
    fn what_rules_and_followed_links_end_with_is_in_the_schema() {
        let schema: serde_json::Value =
            serde_json::from_str(include_str!("../docs/events.schema.json")).unwrap();
        let (stream, _) = Stream::begin(&Opening::default());
        for (operation, cause) in [
            (Operation::ReadRules, Cause::BadRule(3)),
            (Operation::ReadRules, Cause::TooManyRules),
            (Operation::FollowLink, Cause::LeadsOut),
        ] {
            let line = stream.problem(&Problem::new(operation, b"d/f".to_vec(), cause));
            let event: serde_json::Value = serde_json::from_slice(&line).unwrap();
            for key in ["operation", "cause"] {
                let allowed = schema["$defs"][key]["enum"].as_array().unwrap();
                assert!(allowed.contains(&event[key]), "{}", event[key]);
            }
        }
    }

    #[test]
    fn every_field_of_the_reports_is_in_the_documents() {
        let record = |name: &str| {
            let schema: serde_json::Value =
                serde_json::from_str(include_str!("../docs/events.schema.json")).unwrap();
            schema["$defs"][name]["properties"].as_object().unwrap().clone()
        };
        for (name, fields) in
            [("progress", Progress::FIELDS), ("totals", Report::FIELDS), ("counts", TypeCounts::FIELDS)]
        {
            let documented = record(name);
            let missing: Vec<_> = fields.iter().filter(|field| !documented.contains_key(**field)).collect();
            assert!(missing.is_empty(), "{name} lacks {missing:?}");
        }
    }

    #[test]
    fn plan_is_told_once_a_session() {
        let (stream, _) = Stream::begin(&Opening::default());
        let of = |totals_final| {
            let lines = stream.progress(&Progress::default().totals_final(totals_final));
            text(&lines).lines().count()
        };
        assert_eq!([of(false), of(true), of(true)], [1, 2, 1]);
    }
}
