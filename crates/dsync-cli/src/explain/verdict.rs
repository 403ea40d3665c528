//! The verdict on one path, from what both ends told of it and of the directories above it.

use std::collections::BTreeMap;

use dsync_engine::{Action, Cause, Changes, FileType, Planned, Ruled, Ruling, WhyLeft, schema::Name};
use serde::Serialize;

use super::Facts;
use crate::{
    escape::{Escaped, json_line},
    listing, messages,
    rules::Rules,
    words::type_in_words,
};

/// The knowledge from which verdicts are made.
pub(super) struct Context<'a> {
    pub(super) known: &'a BTreeMap<Vec<u8>, Facts>,
    pub(super) rules: &'a Rules,
    /// Whether `--files-from` names the paths to copy.
    pub(super) has_list: bool,
}

/// The answer for one path: the deed of the run, and the reason.
#[derive(Debug)]
pub(super) struct Verdict {
    path: Vec<u8>,
    /// A word for programs.
    word: &'static str,
    /// The reason in words, escaped.
    text: String,
    /// The place of the rule that decides, escaped.
    rule: Option<String>,
    /// The directory above whose verdict holds for the path.
    above: Option<Vec<u8>>,
    planned: Option<Planned>,
}

impl Verdict {
    /// Returns whether the path is at neither end.
    pub(super) fn is_absent(&self) -> bool {
        self.word == "absent"
    }

    /// Returns the line for people.
    pub(super) fn line(&self) -> Vec<u8> {
        format!("{}: {}\n", Escaped(&self.path), self.text).into_bytes()
    }

    /// Returns the event for programs, without its end.
    pub(super) fn json(&self) -> Vec<u8> {
        let planned = self.planned.as_ref();
        let event = Explained {
            event: "explained",
            name: Name::of(&self.path),
            verdict: self.word,
            text: &self.text,
            rule: self.rule.as_deref(),
            decided_at: self.above.as_deref().map(Name::of),
            action: planned.map(|planned| planned.action),
            changes: planned.map(|planned| planned.changes),
        };
        // Cannot fail: it has string keys only.
        json_line(&event).into_bytes()
    }
}

#[derive(Serialize)]
struct Explained<'a> {
    event: &'static str,
    #[serde(flatten)]
    name: Name,
    verdict: &'static str,
    text: &'a str,
    rule: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decided_at: Option<Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<Action>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Changes>,
}

impl Context<'_> {
    /// Returns the verdict on a path.
    pub(super) fn verdict(&self, path: &[u8]) -> Verdict {
        let nothing = Facts::default();
        let facts = self.known.get(path).unwrap_or(&nothing);
        let own = self.of_itself(path, facts);
        own.or_else(|| self.of_directory_above(path)).unwrap_or_else(|| {
            let text = if self.has_list {
                "not in --files-from, or at neither end"
            } else {
                "at neither end, or left as it is without a word (--append, a type that is not copied); paths are \
                 written as -v lists them, from the root of the transfer on"
            };
            verdict(path, "absent", text.to_owned())
        })
    }

    /// Returns the verdict by what was told of the path itself.
    fn of_itself(&self, path: &[u8], facts: &Facts) -> Option<Verdict> {
        if let Some(planned) = &facts.planned {
            return Some(self.planned(path, planned, facts));
        }
        if let Some(left) = &facts.left {
            return Some(verdict(path, "left_alone", format!("left alone: {}", why_left(left.why))));
        }
        if facts.deleted.is_some() {
            let (why, rule) = match &facts.out {
                Some(out) => (self.out(out), self.rule(out)),
                None => ("not at the source".to_owned(), None),
            };
            return Some(Verdict { rule, ..verdict(path, "deleted", format!("would be deleted: {why}")) });
        }
        if let Some(problem) = &facts.problem {
            let skipped = problem.cause == Cause::Skipped;
            let word = if skipped { "left_alone" } else { "failed" };
            let text = if skipped {
                format!("not copied: {}", messages::problem(problem))
            } else {
                format!("fails: {}", messages::problem(problem))
            };
            return Some(verdict(path, word, text));
        }
        if let Some(out) = facts.out.as_ref().filter(|out| is_left_out(out)) {
            let mut text = self.out(out);
            if let Some(stays) = &facts.stays {
                text = format!("{text}; the destination's {}", self.stays(stays));
            }
            let rule = self.rule(out);
            return Some(Verdict { rule, ..verdict(path, "hidden", text) });
        }

        facts.stays.as_ref().map(|stays| {
            let word = if stays.why.place().is_some() { "protected" } else { "stays" };
            let text = self.only_there(stays);
            Verdict { rule: self.rule(stays), ..verdict(path, word, text) }
        })
    }

    /// Returns the verdict that the topmost directory above brings with it that takes no part.
    fn of_directory_above(&self, path: &[u8]) -> Option<Verdict> {
        let above = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &path[..at]);
        for directory in above {
            let Some(facts) = self.known.get(directory) else { continue };
            let shown = Escaped(directory);
            let (word, text, rule) = match (&facts.out, &facts.stays, &facts.left, &facts.problem) {
                (Some(out), ..) => ("hidden", self.out(out), self.rule(out)),
                (_, Some(stays), ..) => ("stays", self.only_there(stays), self.rule(stays)),
                (_, _, Some(left), _) => ("left_alone", format!("left alone: {}", why_left(left.why)), None),
                (.., Some(problem)) => ("failed", messages::problem(problem), None),
                _ => continue,
            };
            let is_spared = facts.stays.as_ref().is_some_and(|stays| stays.why == Ruled::Spared);
            let text = if is_spared && facts.out.is_none() {
                // The run may have looked into it.
                format!("nothing is told of it; its directory {shown}/ is {text}")
            } else {
                format!("not looked at, because of its directory {shown}/: {text}")
            };
            return Some(Verdict { rule, above: Some(directory.to_vec()), ..verdict(path, word, text) });
        }
        None
    }

    fn planned(&self, path: &[u8], planned: &Planned, facts: &Facts) -> Verdict {
        let why = listing::reasons(planned);
        let is_file = planned.kind == FileType::File;

        let (word, mut text) = match planned.action {
            Action::Keep if facts.deleted.is_some() => {
                ("deleted", "would be deleted: a directory of --compare-dest has the same file".to_owned())
            }
            _ if facts.deleted.is_some() => ("replaced", gives_way(planned.kind, facts.deleted)),
            Action::Keep => ("up_to_date", "up to date".to_owned()),
            Action::Create if is_file => ("transferred", "would be transferred: new".to_owned()),
            Action::Create => ("created", "would be created: new".to_owned()),
            Action::Update if is_file && planned.changes.is_empty() => {
                ("transferred", format!("would be transferred: {why}"))
            }
            Action::Update if is_file => ("transferred", format!("would be transferred: differs in {why}")),
            Action::Update => ("replaced", format!("would be replaced: differs in {why}")),
            Action::Retag => ("attributes", format!("only attributes would be set: differs in {why}")),
            _ => ("reused", "would be made from an equal entry of an alternate directory".to_owned()),
        };

        let rule = facts.shown.as_ref().and_then(|shown| self.rule(shown));
        if let Some(rule) = &rule {
            text = format!("{text}; included by rule {rule}");
        }
        // Of a file that goes the plan says that the alternate's is kept.
        let planned = (word != "deleted").then(|| planned.clone());
        Verdict { rule, planned, ..verdict(path, word, text) }
    }

    /// Says why the source leaves an entry out, or does not descend into it.
    fn out(&self, ruling: &Ruling) -> String {
        match (&ruling.why, self.rule(ruling)) {
            (_, Some(rule)) => format!("hidden by rule {rule}"),
            (Ruled::OtherFilesystem, _) => "on another filesystem, outside of -x".to_owned(),
            (Ruled::NotRecursive, _) => "not descended into without -r".to_owned(),
            (Ruled::Pruned, _) => "left out by -m, as it holds nothing but directories".to_owned(),
            _ => "left out by the source".to_owned(),
        }
    }

    /// Says that only the destination has an entry, as far as this run looks, and why it stays.
    fn only_there(&self, ruling: &Ruling) -> String {
        let stays = self.stays(ruling);
        if self.has_list {
            return format!("not in --files-from, or not at the source; the destination's {stays}");
        }
        format!("only at the destination, and {stays}")
    }

    /// Says why an entry stays that only the destination has.
    fn stays(&self, ruling: &Ruling) -> String {
        match (&ruling.why, self.rule(ruling)) {
            (_, Some(rule)) => format!("is protected from deletion by rule {rule}"),
            (Ruled::NotDeleted, _) => "stays without --delete".to_owned(),
            _ if ruling.is_dir => format!("stays, as something in it stays, or as it is {SPARED}"),
            _ => format!("stays, as it is {SPARED}"),
        }
    }

    /// Returns the place of the rule that decides, escaped.
    fn rule(&self, ruling: &Ruling) -> Option<String> {
        let end = if ruling.why.is_of_source() { "source" } else { "destination" };
        ruling.why.place().map(|place| self.rules.shown(place, end))
    }
}

/// Returns whether the source leaves the entry itself out, not only what is below it.
fn is_left_out(ruling: &Ruling) -> bool {
    matches!(ruling.why, Ruled::Hidden(_) | Ruled::Pruned)
}

fn verdict(path: &[u8], word: &'static str, text: String) -> Verdict {
    Verdict { path: path.to_vec(), word, text, rule: None, above: None, planned: None }
}

/// Says that an entry of another type gives its name to the source's.
fn gives_way(kind: FileType, displaced: Option<FileType>) -> String {
    let content = if displaced == Some(FileType::Directory) { ", with all that is in it" } else { "" };
    let displaced = displaced.map_or("an entry", type_in_words);
    format!("would be replaced by {}: {displaced} is there and gives way{content}", type_in_words(kind))
}

/// The reasons for which an entry stays that no rule protects.
const SPARED: &str = "outside of what SRC stands for, dsync's own, a backup or a mount point, or as a limit or a \
                      problem withholds the deletion";

fn why_left(why: WhyLeft) -> &'static str {
    match why {
        WhyLeft::Newer => "the destination's is newer (--update)",
        WhyLeft::Exists => "the destination has one (--ignore-existing)",
        WhyLeft::New => "the destination has none (--existing)",
        WhyLeft::TooLong => "over --max-size",
        WhyLeft::TooShort => "under --min-size",
        _ => "an option says so",
    }
}
