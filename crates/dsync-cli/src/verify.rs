//! `dsync verify PATH`: is the tree still what its manifest says, or what runs have recorded? `--record`
//! writes the manifest.
//!
//! Each difference is a line of standard output as soon as it is found, or with `--json` an event;
//! the last line has the counts. Nothing of the tree is changed.

mod against;
mod by_state;
mod flags;
mod remote;

use std::{
    ffi::{OsStr, OsString},
    io::{self, IsTerminal as _, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use clap::{Args as _, Command, FromArgMatches as _};
use dsync_engine::{
    CancelToken, Changes, Manifest, ManifestError, Progress, SyncError, UntrustedLink, exit_code,
    manifest::Totals,
    schema::Found,
    verify::{
        self, AgesProblem, Difference, Finding, MaxAge, Reading, RemoteTree, Verified, VerifyError,
        VerifyObserver,
    },
};
use serde::Serialize;
use serde_json::{Value, json};

use self::flags::Flags;
use crate::{
    bar::{Bar, Shown},
    closing::{self, show},
    console::{blame, say},
    escape::{Escaped, escape_text, json_line},
    manifest_names::{beside, times_beside},
    messages,
    numbers::{Number, Style, counted},
    rules::Rules,
    signals,
    streams::Standard,
    usage::UsageError,
    words,
};

/// Version of the JSON form; a reader ignores keys and events that it does not know.
const SCHEMA: u64 = 1;

/// Carries the command out and returns the exit code: 23 where something differs.
pub(crate) fn run(words: &[OsString]) -> u8 {
    let flags = match parse(words) {
        Ok(Parsed::Flags(flags)) => flags,
        Ok(Parsed::Help(text)) => return show(text.as_bytes()),
        Err(error) => {
            blame(&escape_text(&error.to_string()));
            return error.exit_code();
        }
    };

    let shown = match (flags.quiet, io::stderr().is_terminal()) {
        (true, _) => Shown::Nothing,
        (false, true) => Shown::Bar,
        (false, false) if flags.progress => Shown::Lines,
        (false, false) => Shown::Nothing,
    };
    let (cancel, bar) = (CancelToken::new(), Arc::new(Bar::new(shown)));
    if let Err(error) = signals::watch(cancel.clone(), Arc::clone(&bar)) {
        blame(&format!("cannot watch for signals: {}", words::system_words(&error)));
        return exit_code::START;
    }

    let teller = Teller { bar, json: flags.json, failure: Mutex::default() };
    let code = match &flags.against {
        Some(source) => against::run(&flags, source, &teller, &cancel),
        None => of_one_tree(&flags, &teller, &cancel),
    };
    let failed = teller.failure.into_inner().unwrap_or_else(PoisonError::into_inner);
    closing::printed(failed.map_or(Ok(()), Err), code)
}

/// Verifies the tree against its manifest or what runs have recorded, or writes the manifest.
fn of_one_tree(flags: &Flags, teller: &Teller, cancel: &CancelToken) -> u8 {
    let needs_manifest = "a directory of another host is compared with a manifest of this one: name it with \
         --manifest FILE; `dsync verify --record --manifest FILE HOST:DIR` writes it, and `dsync verify --state DIR` on \
         that host needs none";

    let tree = match remote::tree(flags) {
        Ok(Some(_)) if flags.manifest.is_none() => {
            blame(needs_manifest);
            return exit_code::USAGE;
        }
        Ok(tree) => tree,
        Err(error) => {
            blame(&escape_text(&error.to_string()));
            return error.exit_code();
        }
    };
    if by_state::is_asked(flags) {
        return by_state::run(flags, teller, cancel);
    }

    let outcome = perform(flags, tree.as_ref(), teller, cancel);
    teller.bar.clear();
    match outcome {
        Ok(Outcome::Recorded(totals, path)) => {
            teller.end(flags.quiet, &recorded_json(totals), &recorded_text(totals, &path));
            exit_code::OK
        }
        Ok(Outcome::Verified(verified)) => {
            teller.end(flags.quiet, &verified_json(&verified), &verified_text(&verified));
            verified.exit_code()
        }
        Err(error) if tree.is_none() && by_state::is_left(flags, &error) => {
            by_state::run(flags, teller, cancel)
        }
        Err(error) => {
            let code = match &error {
                VerifyError::Session(error) => code_of(error),
                error => error.exit_code(),
            };
            teller.fail(&failure(&error, flags), code)
        }
    }
}

/// Returns the exit code of a session that failed: that of a difference is for findings only.
fn code_of(error: &SyncError) -> u8 {
    match messages::code_of(error) {
        exit_code::PARTIAL => exit_code::FILE_SELECTION,
        code => code,
    }
}

/// The meaning of the words.
enum Parsed {
    Flags(Flags),
    Help(String),
}

/// Returns the command's words as clap knows them.
pub(crate) fn command() -> Command {
    Flags::augment_args(Command::new("verify"))
}

fn parse(words: &[OsString]) -> Result<Parsed, UsageError> {
    let command = command()
        .bin_name("dsync verify")
        .about("Compare a directory with its manifest, and tell rot from edits")
        .no_binary_name(true)
        .max_term_width(100);
    let matches = match command.try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelp => {
            return Ok(Parsed::Help(error.to_string()));
        }
        Err(error) if error.kind() == clap::error::ErrorKind::MissingRequiredArgument => {
            let wanted = "takes a directory: `dsync verify PATH [--manifest FILE]`".to_owned();
            let file = crate::here::is_here(OsStr::new("verify"));
            return Err(UsageError::CommandWords { command: "verify", wanted, file });
        }
        Err(error) => return Err(UsageError::from_clap(&error)),
    };
    Flags::from_arg_matches(&matches).map(Parsed::Flags).map_err(|error| UsageError::from_clap(&error))
}

/// The result of the command.
enum Outcome {
    Recorded(Totals, PathBuf),
    Verified(Verified),
}

fn perform(
    flags: &Flags,
    remote: Option<&RemoteTree<'_>>,
    teller: &Teller,
    cancel: &CancelToken,
) -> Result<Outcome, VerifyError> {
    let path = flags.manifest.clone().unwrap_or_else(|| beside(&flags.path));
    let reading = reading(flags).max_age(flags.max_age.map(|age| MaxAge::new(age, times_beside(&path))));

    if flags.record {
        let totals = match remote {
            Some(tree) => verify::record_remote_to_file(tree, &path, &reading, cancel)?,
            None => verify::record_to_file(&flags.path, &path, &reading, teller, cancel)?,
        };
        return Ok(Outcome::Recorded(totals, path));
    }
    let manifest = Manifest::open(&path)?;
    let verified = match remote {
        Some(tree) => verify::verify_remote(tree, &manifest, &reading, teller, cancel)?,
        None => verify::verify(&flags.path, &manifest, &reading, teller, cancel)?,
    };
    Ok(Outcome::Verified(verified))
}

/// Returns the way of reading that the words ask for, but for the times of reading.
fn reading(flags: &Flags) -> Reading {
    // Another seed each time, so that in the end every file was read.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Reading::default()
        .percent(if flags.dry_run { 0 } else { flags.percent })
        .seed(u64::from(now.subsec_nanos()) ^ now.as_secs())
        .one_file_system(flags.one_file_system)
}

/// Prints what is found.
struct Teller {
    bar: Arc<Bar>,
    json: bool,
    failure: Mutex<Option<io::Error>>,
}

impl Teller {
    fn print(&self, line: &str) {
        let result = self.bar.aside(|| Standard::Output.write_all(format!("{line}\n").as_bytes()));
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = result {
            failure.get_or_insert(error);
        }
    }

    fn end(&self, quiet: bool, json: &Value, text: &str) {
        if self.json {
            self.print(&json_line(&json));
        } else if !quiet {
            self.print(text);
        }
    }
}

impl Teller {
    /// Says why there is no outcome, and returns the exit code.
    fn fail(&self, why: &str, code: u8) -> u8 {
        if self.json {
            self.print(&json_line(&ended(json!({ "event": "failed", "error": why }), code)));
        }
        say(&format!("dsync: error: {why}"));
        code
    }
}

impl VerifyObserver for Teller {
    fn finding(&self, finding: &Finding) {
        self.difference(&finding.path, described(&finding.difference));
    }

    fn progress(&self, progress: &Progress) {
        self.bar.update(progress);
    }

    fn ages(&self, problem: &AgesProblem) {
        let (what, why) = match problem {
            AgesProblem::Unreadable(error) => ("cannot be read", words::system_words(error)),
            AgesProblem::Unsaved(error) => ("cannot be written", words::system_words(error)),
            _ => ("cannot be used", "it is damaged or out of date".to_owned()),
        };
        let effect = match problem {
            AgesProblem::Unsaved(_) => "the next run reads again what this one has read",
            _ => "all files are read",
        };
        self.bar.aside(|| say(&format!("dsync: warning: the file of --max-age {what}: {why}; {effect}")));
    }
}

impl Teller {
    /// Prints a difference: its kind in a word, what changed, and why it could not be read.
    fn difference(&self, path: &[u8], (word, changes, why): (&str, Option<Changes>, Option<String>)) {
        if self.json {
            self.print(&json_line(&as_event("difference", &Found::new(path, word, changes, why))));
            return;
        }

        let path = if path.is_empty() { b".".as_slice() } else { path };
        let changes = changes.unwrap_or_default().iter().map(Changes::name);
        let more: Vec<_> = changes.map(str::to_owned).chain(why).collect();
        let more = if more.is_empty() { String::new() } else { format!(" ({})", more.join(", ")) };
        self.print(&format!("{word:<10} {}{more}", Escaped(path)));
    }
}

/// Returns a difference in one word, with what changed and why it could not be read.
fn described(difference: &Difference) -> (&'static str, Option<Changes>, Option<String>) {
    match difference {
        Difference::Rot => ("rot", None, None),
        Difference::Edited(changes) => ("edited", Some(*changes), None),
        Difference::Attributes(changes) => ("attributes", Some(*changes), None),
        Difference::Missing => ("missing", None, None),
        Difference::New => ("new", None, None),
        Difference::Unreadable(error) => ("unreadable", None, Some(words::system_words(error))),
        Difference::Busy => ("busy", None, None),
        Difference::Unrecorded => ("unrecorded", None, None),
        Difference::EditedSince(changes) => ("edited", Some(*changes), None),
        _ => ("other", None, None),
    }
}

fn verified_text(verified: &Verified) -> String {
    let Verified { entries, sound, bytes_read, unread, rotten, edited, .. } = *verified;
    let Verified { attributes, missing, new, unreadable, busy, .. } = *verified;
    let number = |value| Number(value, Style::Commas);

    let mut text = format!(
        "{} compared, {} read: {} sound",
        counted(entries, "entry", "entries"),
        counted(bytes_read, "byte", "bytes"),
        counted(sound, "file is", "files are")
    );
    let counts = [
        (unread, "compared by size and time only"),
        (rotten, "rotten"),
        (edited, "edited"),
        (attributes, "with other attributes"),
        (missing, "missing"),
        (new, "new"),
        (unreadable, "unreadable"),
        (busy, "changed meanwhile"),
    ];

    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!(", {} {what}", number(count)));
    }
    text
}

fn verified_json(verified: &Verified) -> Value {
    ended(as_event("verified", verified), verified.exit_code())
}

fn recorded_text(totals: Totals, path: &Path) -> String {
    let number = |value| Number(value, Style::Commas);
    let path = Escaped(path.as_os_str().as_encoded_bytes());
    let Totals { entries, files, bytes, without_content, .. } = totals;
    let mut text = format!(
        "{}, {} of {} recorded in '{path}'",
        counted(entries, "entry", "entries"),
        counted(files, "file", "files"),
        counted(bytes, "byte", "bytes")
    );
    if without_content > 0 {
        text.push_str(&format!("; {} changed meanwhile and have no content there", number(without_content)));
    }
    text
}

fn recorded_json(totals: Totals) -> Value {
    ended(as_event("recorded", &totals), exit_code::OK)
}

/// Returns a report of the library as an event.
fn as_event(name: &str, report: &impl Serialize) -> Value {
    // Cannot fail: reports have string keys only.
    let mut event = serde_json::to_value(report).unwrap_or_else(|_| json!({}));
    event["event"] = name.into();
    event
}

/// Makes an event the last one.
fn ended(mut event: Value, code: u8) -> Value {
    (event["version"], event["exit_code"]) = (SCHEMA.into(), code.into());
    event
}

/// Returns the error in words, with what to do.
fn failure(error: &VerifyError, flags: &Flags) -> String {
    let tree = Escaped(flags.path.as_os_str().as_encoded_bytes());
    let path = flags.manifest.clone().unwrap_or_else(|| beside(&flags.path));
    let manifest = Escaped(path.as_os_str().as_encoded_bytes());

    match error {
        VerifyError::Tree { source, .. } => {
            format!("cannot read the directory '{tree}': {}", words::system_words(source))
        }
        VerifyError::Entry { path, source } => format!(
            "cannot read '{}' in '{tree}', so nothing is recorded: {}",
            Escaped(path),
            words::system_words(source)
        ),
        VerifyError::Manifest(ManifestError::Io { source }) if UntrustedLink::of(source).is_some() => {
            let verb = if flags.record { "write" } else { "read" };
            format!(
                "cannot {verb} the manifest '{manifest}': {source}; name the manifest by a path without it"
            )
        }
        VerifyError::Manifest(ManifestError::Io { source }) if flags.record => {
            format!("cannot write the manifest '{manifest}': {}", words::system_words(source))
        }
        VerifyError::Manifest(ManifestError::Io { source }) => {
            let next = match source.kind() {
                io::ErrorKind::NotFound => "; `dsync verify --record` writes one",
                _ => "",
            };
            format!("cannot read the manifest '{manifest}': {}{next}", words::system_words(source))
        }
        VerifyError::Manifest(error) => format!("'{manifest}': {error}"),
        VerifyError::Ages { source } if UntrustedLink::of(source).is_some() => format!(
            "cannot use '{manifest}.verified' for --max-age: {source}; name the manifest by a path without it"
        ),
        VerifyError::Ages { source } => format!(
            "cannot use '{manifest}.verified' for --max-age: {}; move away what is there, or name another manifest",
            words::system_words(source)
        ),
        VerifyError::Session(error) => messages::failure(error, &Rules::default()),
        VerifyError::Disorder { path } => format!(
            "the other end listed '{}' out of order, so nothing more is verified: dsync there is damaged or hostile",
            Escaped(path)
        ),
        VerifyError::TooManyProblems => {
            format!("the other end cannot read too many directories of '{tree}': verify it as a user who can")
        }
        VerifyError::Cancelled if flags.record => "interrupted; nothing is recorded".to_owned(),
        VerifyError::Cancelled if flags.max_age.is_some() => {
            "interrupted; the same command goes on with the rest".to_owned()
        }
        VerifyError::Cancelled => "interrupted; the rest is not verified".to_owned(),
        other => other.to_string(),
    }
}
