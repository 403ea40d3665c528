//! `dsync verify PATH --against SRC`: do two trees have the same contents, wherever they are?
//!
//! A dry run with `-c` that would make PATH equal to SRC tells it: both ends read all of their files
//! whose sizes agree and compare hashes, so no content is sent and nothing is changed.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::{Mutex, PoisonError},
};

use dsync_engine::{
    Action, CancelToken, Cause, Changes, EntryPath, Event, FileType, Observer, Operand, Operation, Planned,
    Progress, SyncError, exit_code,
};
use serde_json::{Value, json};

use super::{SCHEMA, Teller, code_of, flags::Flags};
use crate::{
    console::{blame, say},
    escape::escape_text,
    flags,
    here::{is_here, type_here},
    messages,
    numbers::{Number, Style, counted},
    resolve::{self, Order},
    usage::UsageError,
    words::type_in_words,
};

/// Compares the trees, and returns the exit code: 23 where something differs.
pub(super) fn run(flags: &Flags, source: &OsString, teller: &Teller, cancel: &CancelToken) -> u8 {
    if is_missing(&flags.path) {
        let why = format!("cannot read the directory '{}': there is none", flags.path.display());
        return teller.fail(&escape_text(&why), exit_code::FILE_SELECTION);
    }
    let Order { job, rules, .. } = match order(flags, source) {
        Ok(order) => order,
        Err(error) => {
            blame(&escape_text(&error.to_string()));
            return error.exit_code();
        }
    };

    let here = is_local(&flags.path).then_some(flags.path.as_path());
    let witness = Witness { teller, here, counts: Mutex::default(), unread: Mutex::default() };
    let outcome = job.run(&witness, cancel);
    let counts = witness.counts.into_inner().unwrap_or_else(PoisonError::into_inner);
    teller.bar.clear();
    let summary = match outcome {
        Ok(summary) => summary,
        Err(SyncError::Cancelled) => {
            return teller.fail("interrupted; the rest is not verified", exit_code::INTERRUPTED);
        }
        Err(error) => {
            let code = teller.fail(&messages::failure(&error, &rules), code_of(&error));
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
    /// The tree that is verified, if it is one of this machine.
    here: Option<&'a Path>,
    counts: Mutex<Counts>,
    /// Files whose content could not be read at SRC, which is told before they are compared.
    unread: Mutex<HashSet<EntryPath>>,
}

/// Number of unreadable files that are kept: a source may have any number. Of further ones both lines come.
const MAX_UNREAD: usize = 10_000;

impl Witness<'_> {
    fn planned(&self, planned: &Planned) {
        let is_file = planned.kind == FileType::File;
        let mut changes = Changes::NONE;
        // Times of other types change with what is in them, or for no reason that matters.
        for change in planned.changes.iter().filter(|change| is_file || *change != Changes::TIME) {
            changes.insert(change);
        }
        let looks_edited = changes.contains(Changes::SIZE) || changes.contains(Changes::TIME);

        let differs = planned.action == Action::Update && is_file && !looks_edited;
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        // Nothing is known of a content that could not be read, which was told.
        if differs && self.unread.lock().unwrap_or_else(PoisonError::into_inner).remove(&planned.path) {
            counts.files += 1;
            return;
        }

        let occupant = self.occupant(planned);
        if occupant.is_some() {
            changes.insert(Changes::CONTENT);
        }
        let (word, count) = match planned.action {
            Action::Create if occupant.is_some() => ("edited", &mut counts.edited),
            Action::Create => ("missing", &mut counts.missing),
            Action::Delete => ("new", &mut counts.new),
            Action::Update if differs => ("differs", &mut counts.differing),
            Action::Update => ("edited", &mut counts.edited),
            Action::Retag if !changes.is_empty() => ("attributes", &mut counts.attributes),
            _ => return,
        };
        *count += 1;
        if is_file && planned.action != Action::Delete {
            counts.files += 1;
        }
        drop(counts);
        let shows_changes = matches!(word, "edited" | "attributes");
        self.teller.difference(&planned.path, (word, shows_changes.then_some(changes), occupant));
    }

    /// Returns in words which types an entry has at both ends, if the tree of this machine has one of another
    /// type in its place.
    fn occupant(&self, planned: &Planned) -> Option<String> {
        if planned.action != Action::Create {
            return None;
        }
        let found = type_here(self.here?, Path::new(OsStr::from_bytes(&planned.path)))?;
        let (found, listed) = (type_in_words(found), type_in_words(planned.kind));
        (found != listed).then(|| format!("{found} here, {listed} at SRC"))
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
                let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
                if problem.operation == Operation::ReadFile && unread.len() < MAX_UNREAD {
                    unread.insert(problem.path.clone());
                }
                drop(unread);
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
    is_local(path) && !is_here(path.as_os_str())
}

fn is_local(path: &Path) -> bool {
    matches!(Operand::parse(path.as_os_str()), Ok(Operand::Local(_)))
}
