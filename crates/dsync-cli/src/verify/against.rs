//! `dsync verify PATH --against SRC`: do two trees have the same contents, wherever they are?
//!
//! A dry run with `-c` that would make PATH equal to SRC tells it: both ends read all of their files
//! whose sizes agree and compare hashes, so no content is sent and nothing is changed.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::{Mutex, PoisonError},
};

use dsync_engine::{
    Action, CancelToken, Cause, Changes, Event, FileType, Observer, Operand, Planned, Progress, SyncError,
    exit_code,
};
use serde_json::{Value, json};

use super::{SCHEMA, Teller, code_of, flags::Flags};
use crate::{
    console::{blame, say},
    escape::escape_text,
    flags,
    here::is_here,
    messages,
    numbers::{Number, Style, counted},
    resolve::{self, Order},
    usage::UsageError,
};

/// Compares the trees, and returns the exit code: 23 where something differs.
pub(super) fn run(flags: &Flags, source: &OsString, teller: &Teller, cancel: &CancelToken) -> u8 {
    if is_missing(&flags.path) {
        blame(&escape_text(&format!("cannot read the directory '{}': there is none", flags.path.display())));
        return exit_code::FILE_SELECTION;
    }
    let Order { job, rules, .. } = match order(flags, source) {
        Ok(order) => order,
        Err(error) => {
            blame(&escape_text(&error.to_string()));
            return error.exit_code();
        }
    };

    let witness = Witness { teller, counts: Mutex::default() };
    let outcome = job.run(&witness, cancel);
    let counts = witness.counts.into_inner().unwrap_or_else(PoisonError::into_inner);
    teller.bar.clear();
    let summary = match outcome {
        Ok(summary) => summary,
        Err(SyncError::Cancelled) => {
            say("dsync: error: interrupted; the rest is not verified");
            return exit_code::INTERRUPTED;
        }
        Err(error) => {
            say(&format!("dsync: error: {}", messages::failure(&error, &rules)));
            let code = code_of(&error);
            if code == exit_code::POLICY && !is_here(flags.path.as_os_str()) {
                say(&escape_text(&format!(
                    "dsync: the tree before --against is one that the other end would be copied to; a key that may only read \
                     or add does the same the other way round: dsync verify {} --against {}",
                    source.display(),
                    flags.path.display()
                )));
            }
            return code;
        }
    };

    let files = summary.report.listed.files.saturating_sub(counts.files);
    let entries = summary.report.listed.total() + counts.new;
    // The entries that the destination left out of its report count too.
    let code = if counts.findings() > 0 { exit_code::PARTIAL } else { summary.exit_code() };
    teller.end(flags.quiet, &counts.json(entries, files, code), &counts.text(entries, files));
    code
}

/// Makes the dry run of the words.
fn order(flags: &Flags, source: &OsString) -> Result<Order, UsageError> {
    let [source, path] = [source.as_os_str(), flags.path.as_os_str()].map(contents);
    let mut words: Vec<OsString> = ["-acin", "--delete", "--force-root", "--allow-empty-source"]
        .into_iter()
        .map(OsString::from)
        .collect();
    if flags.one_file_system {
        words.push("-x".into());
    }
    words.extend(super::remote::way(flags));
    words.extend(["--".into(), source, path]);
    resolve::order(&flags::parse(words)?, &|name| std::env::var_os(name))
}

/// Returns the operand of a tree's contents, wherever it is.
fn contents(tree: &OsStr) -> OsString {
    // A host alone is its home directory; with a slash it would be the root of its filesystem.
    let is_host_alone =
        tree.as_bytes().ends_with(b":") && matches!(Operand::parse(tree), Ok(Operand::Remote { .. }));
    let mut contents = tree.to_owned();
    contents.push(if is_host_alone { "./" } else { "/" });
    contents
}

/// The numbers of differences of each kind.
#[derive(Debug, Default)]
struct Counts {
    /// Content differs although size and time do not, or cannot be read at the destination.
    differing: u64,
    edited: u64,
    attributes: u64,
    missing: u64,
    new: u64,
    unreadable: u64,
    busy: u64,
    /// Regular files of SRC among them.
    files: u64,
}

impl Counts {
    fn findings(&self) -> u64 {
        self.named().into_iter().map(|(count, _)| count).sum()
    }

    fn named(&self) -> [(u64, &'static str); 7] {
        [
            (self.differing, "differing in content only"),
            (self.edited, "edited"),
            (self.attributes, "with other attributes"),
            (self.missing, "missing"),
            (self.new, "new"),
            (self.unreadable, "unreadable"),
            (self.busy, "changed meanwhile"),
        ]
    }

    fn text(&self, entries: u64, sound: u64) -> String {
        let number = |value| Number(value, Style::Commas);
        let entries = counted(entries, "entry", "entries");
        let mut text = format!("{entries} compared: {} equal", counted(sound, "file is", "files are"));
        for (count, what) in self.named().into_iter().filter(|(count, _)| *count > 0) {
            text.push_str(&format!(", {} {what}", number(count)));
        }
        text
    }

    fn json(&self, entries: u64, sound: u64, code: u8) -> Value {
        json!({
            "event": "verified", "version": SCHEMA, "entries": entries, "sound": sound,
            "differs": self.differing, "edited": self.edited, "attributes": self.attributes, "missing": self.missing, "new": self.new,
            "unreadable": self.unreadable, "busy": self.busy, "exit_code": code,
        })
    }
}

/// Turns what the dry run would do into differences.
struct Witness<'a> {
    teller: &'a Teller,
    counts: Mutex<Counts>,
}

impl Witness<'_> {
    fn planned(&self, planned: &Planned) {
        let is_file = planned.kind == FileType::File;
        let mut changes = Changes::NONE;
        // Times of other types change with what is in them, or for no reason that matters.
        for change in planned.changes.iter().filter(|change| is_file || *change != Changes::TIME) {
            changes.insert(change);
        }
        let looks_edited = changes.contains(Changes::SIZE) || changes.contains(Changes::TIME);

        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let (word, count) = match planned.action {
            Action::Create => ("missing", &mut counts.missing),
            Action::Delete => ("new", &mut counts.new),
            Action::Update if is_file && !looks_edited => ("differs", &mut counts.differing),
            Action::Update => ("edited", &mut counts.edited),
            Action::Retag if !changes.is_empty() => ("attributes", &mut counts.attributes),
            _ => return,
        };
        *count += 1;
        if is_file && planned.action != Action::Delete {
            counts.files += 1;
        }
        drop(counts);
        let shows_changes = matches!(planned.action, Action::Update | Action::Retag) && word != "differs";
        self.teller.difference(&planned.path, (word, shows_changes.then_some(changes), None));
    }
}

impl Observer for Witness<'_> {
    fn event(&self, event: &Event) {
        match event {
            Event::Planned(planned) => self.planned(planned),
            Event::Failed(problem) if problem.cause != Cause::Skipped => {
                let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
                let is_busy = matches!(problem.cause, Cause::Vanished | Cause::Changed);
                let (word, count) =
                    if is_busy { ("busy", &mut counts.busy) } else { ("unreadable", &mut counts.unreadable) };
                *count += 1;
                drop(counts);
                let why = (!is_busy).then(|| messages::problem(problem));
                self.teller.difference(&problem.path, (word, None, why));
            }
            _ => {}
        }
    }

    fn progress(&self, progress: &Progress) {
        self.teller.bar.update(progress);
    }
}

/// Returns whether a tree of this machine is missing.
fn is_missing(path: &Path) -> bool {
    matches!(Operand::parse(path.as_os_str()), Ok(Operand::Local(_))) && !is_here(path.as_os_str())
}
