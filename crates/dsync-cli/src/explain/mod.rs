//! `dsync explain [OPTIONS] SRC DST PATH...`: what a run would do with each path, and why.
//!
//! A dry run of the same options tells it, so that the answer is that of the run itself. Both ends
//! descend only towards the paths. What they tell is kept for these paths and the directories above
//! them only, so that no peer fills the memory. Nothing is written.

mod paths;
mod verdict;

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    sync::{Arc, Mutex, PoisonError},
};

use dsync_engine::{
    CancelToken, Event, Explained, FileType, LeftAlone, Observer, Planned, Problem, Reconnect, Ruled, Ruling,
    Summary, SyncError, exit_code,
};

use self::{
    paths::Names,
    verdict::{Context, Verdict},
};
use crate::{
    bar::{Bar, Shown},
    closing::{self, show},
    console::{blame, print, say},
    debug,
    escape::escape_text,
    flags::{self, Flags},
    here::is_here,
    json::Stream,
    messages,
    resolve::{self, Order},
    signals, unbegun,
    usage::UsageError,
    words,
};

/// The text of `dsync explain --help`.
const HELP: &str = "\
dsync explain [OPTIONS] SRC DST PATH...

Prints what `dsync [OPTIONS] SRC DST` would do with each PATH, and why: the rule that hides or protects it, with the
file and line where it stands; the option that leaves it alone; what differs. Nothing is written.

PATH is written as -v lists it, from the root of the transfer on: with SRC 'photos/' it is 'a.jpg', with SRC 'photos'
it is 'photos/a.jpg'. An absolute path below a local SRC or DST is taken as well; if it is below both, the inner one
counts. OPTIONS are those of the run.

--json prints the events `start`, `explained` for each path, and `summary` (docs/events.schema.json).
The exit code is that of the run, as 25 where it would reach --max-delete, and else 23 where a path is at neither end.
";

/// Carries the command out and returns the exit code.
pub(crate) fn run(words: &[OsString]) -> u8 {
    if flags::ask_for_help(words) {
        return show(HELP.as_bytes());
    }
    let ordered = read(words).and_then(|(flags, paths)| {
        debug::start_log(debug::filter(&flags.output.debug)?);
        let order = resolve::order(&flags, &|name| std::env::var_os(name));
        let order = order.inspect_err(|error| {
            unbegun::tell(&flags, error);
        })?;
        Ok((order, paths, flags.selection.files_from.is_some()))
    });
    match ordered {
        Ok((order, paths, has_list)) => perform(order, &paths, has_list),
        Err(error) => {
            blame(&escape_text(&error.to_string()));
            error.exit_code()
        }
    }
}

/// Reads the words: the run's, and the paths as they are below its root.
fn read(words: &[OsString]) -> Result<(Flags, Vec<Vec<u8>>), UsageError> {
    let mut flags = flags::parse(words.iter().cloned())?;
    let [source, destination, paths @ ..] = flags.operands.as_slice() else { return Err(too_few()) };
    if paths.is_empty() {
        return Err(too_few());
    }
    if flags.output.list_only {
        return Err(UsageError::Conflict { one: "explain", other: "--list-only" });
    }
    if flags.stopping.watch {
        return Err(UsageError::Conflict { one: "explain", other: "--watch" });
    }

    let ends = (source.as_os_str(), destination.as_os_str());
    let names = match flags.selection.files_from {
        _ if flags.selection.relative => Names::Relative,
        Some(_) => Names::Listed,
        None => Names::Operand,
    };
    let paths: Vec<Vec<u8>> = paths
        .iter()
        .map(|path| paths::below(path, ends, names).map_err(|why| not_taken(path, why)))
        .collect::<Result<_, _>>()?;
    flags.operands.truncate(2);
    flags.writing.dry_run = true;
    flags.explain.clone_from(&paths);
    Ok((flags, paths))
}

/// Returns the error for a line without paths. A file with the command's name may be meant if it is here.
fn too_few() -> UsageError {
    if is_here(OsStr::new("explain")) {
        UsageError::CommandWords { command: "explain", wanted: WANTED.to_owned(), file: true }
    } else {
        UsageError::Other { text: format!("the command 'explain' {WANTED}") }
    }
}

fn not_taken(path: &OsStr, why: &str) -> UsageError {
    UsageError::Other {
        text: format!("the command 'explain' cannot take the path '{}': {why}", path.display()),
    }
}

const WANTED: &str = "takes a source, a destination and paths: `dsync explain [OPTIONS] SRC DST PATH...`";

/// Makes the dry run and prints the verdicts.
fn perform(order: Order, paths: &[Vec<u8>], has_list: bool) -> u8 {
    let Order { job, rules, report, .. } = order;
    let Some(explained) = Explained::of(paths) else { return exit_code::USAGE };
    let cancel = CancelToken::new();
    if let Err(error) = signals::watch(cancel.clone(), Arc::new(Bar::new(Shown::Nothing))) {
        blame(&format!("cannot watch for signals: {}", words::system_words(&error)));
        return exit_code::START;
    }

    let witness = Witness { explained, known: Mutex::default() };
    let outcome = job.run(&witness, &cancel);
    let known = witness.known.into_inner().unwrap_or_else(PoisonError::into_inner);
    let context = Context { known: &known, rules: &rules, has_list };
    let verdicts = match &outcome {
        Ok(_) => paths.iter().map(|path| context.verdict(path)).collect(),
        Err(_) => Vec::new(),
    };
    let code = code_of(&outcome, &verdicts);
    let error = outcome.as_ref().err().map(|error| match error {
        SyncError::Cancelled => format!("dsync: interrupted (exit code {code})"),
        error => format!("dsync: error: {}", messages::failure(error, &rules)),
    });

    let text = match &report.voice.json {
        Some(opening) => {
            let (stream, start) = Stream::begin(opening);
            let lines = verdicts.iter().map(Verdict::json);
            let end = stream.end(&outcome, code, error.as_deref());
            std::iter::once(start)
                .chain(lines)
                .chain([end])
                .map(|line| [line, vec![b'\n']].concat())
                .collect()
        }
        None => verdicts.iter().map(Verdict::line).collect::<Vec<_>>(),
    };
    let printed = print(&text.concat());
    if let Some(error) = error {
        say(&error);
    }
    closing::printed(printed, code)
}

fn code_of(outcome: &Result<Summary, SyncError>, verdicts: &[Verdict]) -> u8 {
    match outcome {
        Ok(summary) => match summary.exit_code() {
            exit_code::OK if verdicts.iter().any(Verdict::is_absent) => exit_code::PARTIAL,
            code => code,
        },
        Err(SyncError::Cancelled) => exit_code::INTERRUPTED,
        Err(error) => messages::code_of(error),
    }
}

/// The facts of one path; of several of a kind the first.
#[derive(Debug, Default)]
struct Facts {
    planned: Option<Planned>,
    /// The type of the destination's entry, if that goes.
    deleted: Option<FileType>,
    left: Option<LeftAlone>,
    problem: Option<Problem>,
    /// The reason why the source leaves it out, or does not descend into it.
    out: Option<Ruling>,
    /// The rule by which the source lists it.
    shown: Option<Ruling>,
    /// The reason why the destination keeps what the source does not have.
    stays: Option<Ruling>,
}

/// Keeps what a run tells of the paths that are explained, and of the directories above them.
struct Witness {
    explained: Explained,
    known: Mutex<BTreeMap<Vec<u8>, Facts>>,
}

impl Witness {
    fn note(&self, path: &[u8], note: impl FnOnce(&mut Facts)) {
        if self.explained.concerns(path) {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            note(known.entry(path.to_vec()).or_default());
        }
    }
}

impl Observer for Witness {
    fn event(&self, event: &Event) {
        match event {
            Event::Planned(planned) if planned.action == dsync_engine::Action::Delete => {
                self.note(&planned.path, |facts| {
                    facts.deleted.get_or_insert(planned.kind);
                });
            }
            Event::Planned(planned) => self.note(&planned.path, |facts| {
                facts.planned.get_or_insert_with(|| planned.clone());
            }),

            Event::LeftAlone(left) => self.note(&left.path, |facts| {
                facts.left.get_or_insert_with(|| left.clone());
            }),
            Event::Failed(problem) if messages::is_replaced_link(problem) => {}
            Event::Failed(problem) => {
                if !self.explained.concerns(&problem.path) {
                    say(&format!("dsync: {}", messages::problem(problem)));
                }
                self.note(&problem.path, |facts| {
                    facts.problem.get_or_insert_with(|| problem.clone());
                });
            }
            Event::Ruling(ruling) => self.note(&ruling.path, |facts| {
                let slot = match ruling.why {
                    Ruled::Shown(_) => &mut facts.shown,
                    _ if ruling.why.is_of_source() => &mut facts.out,
                    _ => &mut facts.stays,
                };
                slot.get_or_insert_with(|| ruling.clone());
            }),
            _ => {}
        }
    }

    fn reconnecting(&self, reconnect: &Reconnect<'_>) {
        say(&format!("dsync: {}", messages::reconnecting(reconnect)));
    }
}
