//! `--json`: the run as a stream of events, one JSON object a line, for programs.
//!
//! `docs/events.schema.json` describes every event, and tests hold real runs against it. Within a
//! [`VERSION`] events and fields are only added. A name is a string; of one that is not UTF-8 it is
//! the readable part, and a second field has all its bytes in hexadecimal digits (`path_hex`).
//!
//! The first event is `start`, the last one `summary`, also of a run that failed. Entries come as
//! lists name them: when they are done, in the order of the listing, or as planned in a dry run.

use std::{
    collections::HashSet,
    sync::{Mutex, OnceLock, PoisonError},
};

use dsync_engine::{
    BackedUp, Cause, Connection, Ended, EntryPath, LeftAlone, Planned, Problem, Progress, Reconnect,
    StateUse, Summary, SyncError, exit_code,
    schema::{Name, Told, Worded},
};
use serde::Serialize;

use crate::{errno, escape::json_line, messages};

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
    /// The contents that the run compared, where it has a state.
    contents: OnceLock<StateUse>,
}

/// Entries that failed, each once.
#[derive(Default)]
struct Failures {
    paths: HashSet<EntryPath>,
    kept: Vec<Worded<'static>>,
    omitted: u64,
}

/// The events of the command alone; those of entries are [`Told`] by the library.
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
    Connected(&'a Connection),
    Plan {
        entries: u64,
        files: u64,
        bytes: u64,
    },
    Progress(&'a Progress),
    Retry {
        number: u32,
        limit: u32,
        wait_ms: u64,
        text: String,
    },
    /// A share of a server that is asked for its shares.
    Share {
        name: &'a str,
        role: &'a str,
    },
    Summary(Box<End<'a>>),
}

#[derive(Debug, Serialize)]
struct End<'a> {
    exit_code: u8,
    meaning: &'static str,
    /// The reason why the run ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    dry_run: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    totals: Option<&'a Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    contents: Option<&'a StateUse>,
    failures: Vec<Worded<'static>>,
    failures_omitted: u64,
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
        let (failures, planned, contents) = Default::default();
        (Self { dry_run, lists_only, failures, planned, contents }, line)
    }

    /// Takes the contents that the run compared; the first ones stay.
    pub(crate) fn compared(&self, contents: StateUse) {
        let _ = self.contents.set(contents);
    }

    /// Returns the line of a connection that was made; a plan follows.
    pub(crate) fn connected(&self, connection: &Connection) -> Vec<u8> {
        *self.planned.lock().unwrap_or_else(PoisonError::into_inner) = false;
        line(&Record::Connected(connection))
    }

    /// Returns the line of an entry.
    pub(crate) fn entry(&self, planned: &Planned, ended: &Ended) -> Vec<u8> {
        let ended = ended.done(!self.dry_run);
        line(&if self.lists_only { Told::listed(planned, &ended) } else { Told::entry(planned, &ended) })
    }

    /// Returns the line of a problem, and notes it for the summary.
    pub(crate) fn problem(&self, problem: &Problem) -> Vec<u8> {
        let worded = Worded::new(problem, messages::problem(problem), errno::cure(problem));
        if problem.cause != Cause::Skipped {
            let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
            if failures.kept.len() >= MAX_FAILURES {
                failures.omitted += 1;
            } else if failures.paths.insert(problem.path.clone()) {
                failures.kept.push(worded.clone());
            }
        }
        line(&Told::problem(worded))
    }

    /// Returns the line of an entry that an option leaves alone.
    pub(crate) fn left_alone(&self, left: &LeftAlone) -> Vec<u8> {
        line(&Told::left_alone(left, messages::left_alone(left)))
    }

    /// Returns the line of a backup.
    pub(crate) fn backed_up(&self, made: &BackedUp) -> Vec<u8> {
        line(&Told::backed_up(made))
    }

    /// Returns the line of an entry that has left the source.
    pub(crate) fn removed(&self, path: &[u8]) -> Vec<u8> {
        line(&Told::removed(path))
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
        self.summary(outcome.as_ref().ok(), code, error.filter(|_| outcome.is_err()))
    }

    fn summary(&self, totals: Option<&Summary>, code: u8, error: Option<&str>) -> Vec<u8> {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        line(&Record::Summary(Box::new(End {
            exit_code: code,
            meaning: messages::meaning(code),
            error: error.map(str::to_owned),
            dry_run: self.dry_run,
            totals,
            contents: self.contents.get(),
            failures: std::mem::take(&mut failures.kept),
            failures_omitted: failures.omitted,
        })))
    }
}

/// Returns the lines of a run that cannot begin: its start, and a summary with the reason.
pub(crate) fn unbegun(opening: &Opening, code: u8, error: &str) -> [Vec<u8>; 2] {
    let (stream, start) = Stream::begin(opening);
    [start, stream.summary(None, code, Some(error))]
}

/// Returns the lines of a list of shares, whose `text` has a line for each with its name and role: a start, an
/// event for each and a summary, with the exit code and the reason where the server gave no list.
pub(crate) fn shares(opening: &Opening, text: &str, failure: Option<(u8, &str)>) -> String {
    let (stream, start) = Stream::begin(opening);
    let named = text.lines().filter_map(|line| line.split_once(' '));
    let shares = named.map(|(name, role)| line(&Record::Share { name, role }));
    let (code, error) = failure.map_or((exit_code::OK, None), |(code, why)| (code, Some(why)));
    let end = stream.summary(None, code, error);

    let lines = std::iter::once(start).chain(shares).chain([end]);
    lines.map(|line| String::from_utf8_lossy(&line).into_owned() + "\n").collect()
}

/// Failures that a summary names; a disk that fails as a whole would fill the memory.
const MAX_FAILURES: usize = 10_000;

/// Returns the line of progress.
pub(crate) fn progress(progress: &Progress) -> Vec<u8> {
    line(&Record::Progress(progress))
}

/// Writes a record as one line, without its end.
fn line(record: &impl Serialize) -> Vec<u8> {
    // Cannot fail: the records have string keys only.
    json_line(record).into_bytes()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use dsync_engine::{
        Action, Carrier, Done, Event, Facts, FileProgress, FileType, LinkError, Move, MoveCause, Operation,
        Present, Reason, Report, RulePlace, Ruled, Ruling, Traffic, TypeCounts, WhyLeft,
    };

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
        let problem = |cause| Problem::new(Operation::ReadFile, "d/f", cause);
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
            let line = stream.problem(&Problem::new(operation, "d/f", cause));
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

    /// Returns an event of each form that the library has.
    fn events_of_every_kind() -> Vec<Event> {
        let path = || EntryPath::from(b"d/n\xff");
        let planned = || Planned::new(Action::Create, FileType::Symlink, path()).target(b"there".to_vec());
        let facts = Facts::default().number(3).content(Some([7; 32]));
        let causes = [Cause::Os(13), Cause::Skipped, Cause::DeviceTooShort { device: 1, file: 2 }];
        let failed = causes.map(|cause| Event::Failed(Problem::new(Operation::ReadFile, path(), cause)));
        let rulings =
            [Ruled::Hidden(RulePlace::Command(1)), Ruled::Shown(RulePlace::PartialDir), Ruled::Spared]
                .map(|why| Event::Ruling(Ruling::new(path(), false, why)));
        let file = Ruled::Protected(RulePlace::File { path: path(), line: 4 });
        let mut events = vec![
            Event::Planned(planned()),
            Event::Planned(planned().kind(FileType::File).facts(Some(facts))),
            Event::Ended(Ended::default().number(3)),
            Event::Done(Done::new(Action::Update, FileType::File, path()).content(Some([1; 32]))),
            Event::LeftAlone(LeftAlone::new(FileType::File, path(), WhyLeft::Newer)),
            Event::BackedUp(BackedUp::new(path(), "d/n~")),
            Event::Removed(path()),
            Event::Ruling(Ruling::new(path(), true, file)),
            Event::Present(Present::new(FileType::Symlink, path()).text(b"there".to_vec()).facts(facts)),
        ];
        events.extend(failed.into_iter().chain(rulings));
        events
    }

    /// Asserts that an object has the fields of a definition, and no others.
    fn assert_defined(value: &serde_json::Value, name: &str) {
        let schema: serde_json::Value =
            serde_json::from_str(include_str!("../docs/events.schema.json")).unwrap();
        let definition = &schema["$defs"][name];
        let fields = value.as_object().unwrap();
        let properties = definition["properties"].as_object().unwrap();
        for field in fields.keys() {
            assert!(properties.contains_key(field), "{name} has no '{field}': {value}");
        }
        let words =
            fields.iter().filter_map(|(field, word)| Some((word, properties[field]["enum"].as_array()?)));
        for (word, known) in words {
            assert!(known.contains(word), "{name}: {word}");
        }
        for field in definition["required"].as_array().unwrap() {
            assert!(fields.contains_key(field.as_str().unwrap()), "{name} lacks {field}: {value}");
        }
    }

    #[test]
    fn reports_of_the_library_have_the_schema_of_the_stream() {
        let value = |report: &dyn Fn() -> serde_json::Result<serde_json::Value>| report().unwrap();
        for event in events_of_every_kind() {
            let event = value(&|| serde_json::to_value(&event));
            assert_defined(&event, event["event"].as_str().unwrap());
            event.get("rule").into_iter().for_each(|rule| assert_defined(rule, "rule"));
        }
        let mut progress = value(&|| serde_json::to_value(Progress::default()));
        progress["event"] = "progress".into();
        assert_defined(&progress, "progress");
        let file = value(&|| serde_json::to_value(FileProgress::new(b"\xff", 1)));
        assert_defined(&file, "file");

        let step = Move::new(Carrier::Quic, MoveCause::Loss { per_million: 7 });
        let connection = Connection::new(Carrier::Tls).reason(Some("near".into())).moves(vec![step]);
        let mut connected = value(&|| serde_json::to_value(&connection));
        assert_defined(&connected["moves"][0], "move");
        connected["event"] = "connected".into();
        assert_defined(&connected, "connected");
        let broke = SyncError::Link(LinkError::Lost);
        let retry = Reconnect::new(&broke, 1, 5, Duration::from_millis(1500));
        let mut retry = value(&|| serde_json::to_value(&retry));
        retry["event"] = "retry".into();
        assert_defined(&retry, "retry");
        assert_eq!((&retry["wait_ms"], retry["text"].is_string()), (&1500.into(), true));
        let traffic = value(&|| serde_json::to_value(Traffic::new(1, 2)));
        let totals = value(&|| serde_json::to_value(Summary::default()));
        assert!(traffic.as_object().unwrap().keys().all(|field| totals.get(field).is_some()), "{traffic}");
    }

    #[test]
    fn every_reason_is_in_the_schema() {
        let schema: serde_json::Value =
            serde_json::from_str(include_str!("../docs/events.schema.json")).unwrap();
        let words = schema["$defs"]["outcome"]["properties"]["reason"]["enum"].clone();
        assert_eq!(words, serde_json::to_value(Reason::ALL).unwrap());
    }

    #[test]
    fn the_stream_has_what_the_library_serializes_in_the_words_of_the_command() {
        let (stream, _) = Stream::begin(&Opening { dry_run: true, ..Opening::default() });
        let plain = |mut event: serde_json::Value| {
            let fields = event.as_object_mut().unwrap();
            ["text", "cure", "number"].into_iter().for_each(|field| _ = fields.remove(field));
            event
        };
        let mut told = 0;
        for event in events_of_every_kind() {
            let line = match &event {
                Event::Planned(planned) => stream.entry(planned, &Ended::default()),
                Event::Failed(problem) => stream.problem(problem),
                Event::LeftAlone(left) => stream.left_alone(left),
                Event::BackedUp(made) => stream.backed_up(made),
                Event::Removed(path) => stream.removed(path),
                _ => continue,
            };
            let line: serde_json::Value = serde_json::from_slice(&line).unwrap();
            assert_eq!(plain(line), plain(serde_json::to_value(&event).unwrap()));
            told += 1;
        }
        assert_eq!(told, 8);
        let line: serde_json::Value = serde_json::from_slice(&progress(&Progress::default())).unwrap();
        let mut own = serde_json::to_value(Progress::default()).unwrap();
        own["event"] = "progress".into();
        assert_eq!(line, own);
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
