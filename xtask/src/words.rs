//! Holds doc comments to the project's plain English, as far as their first word shows it.
//!
//! The laws: no doc begins with a word that asks or states a truth ("What is left", "True when"),
//! and the doc of a function begins with a verb in the third person ("Returns"). Tests may begin
//! otherwise: their docs name a law.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::step::root;

/// Sources that keep the laws.
const KEPT: &[&str] = &[
    "benches",
    "crates/dsync-cli",
    "crates/dsync-delta",
    "crates/dsync-delta-c",
    "crates/dsync-engine",
    "crates/dsync-fs",
    "crates/dsync-transport",
    "crates/dsync-wire",
    "fuzz",
    "tests",
    "xtask",
];

/// Sources whose docs are texts of the help, which is written for users.
const HELP: &str = "crates/dsync-cli/src/flags";

/// First words of docs that paraphrase a thing instead of naming it.
const PARAPHRASES: &[&str] = &[
    "False", "Gives", "Has", "How", "If", "That", "True", "What", "When", "Where", "Which", "Who", "Whose",
    "Why",
];

/// Words that end as a verb in the third person does but are none.
const NO_VERBS: &[&str] = &["As", "Bytes", "Entries", "Is", "Its", "Lines", "Offsets", "This", "Tokens"];

/// Words that may stand before `fn`.
const QUALIFIERS: &[&str] = &["async", "const", "extern", "pub", "unsafe", "\"C\""];

/// One doc comment and the line behind it.
struct Doc<'t> {
    first_line: usize,
    first_word: &'t str,
    is_of_function: bool,
    is_of_test: bool,
}

impl Doc<'_> {
    /// Returns the law that the doc breaks, if any.
    fn fault(&self) -> Option<&'static str> {
        if PARAPHRASES.contains(&self.first_word) {
            return Some("names nothing");
        }
        let is_bound = self.is_of_function && !self.is_of_test;
        (is_bound && !is_verb(self.first_word)).then_some("does not begin with a verb in the third person")
    }
}

/// Returns whether a word looks like a verb in the third person, at the start of a sentence.
fn is_verb(word: &str) -> bool {
    let is_capital = word.starts_with(|first: char| first.is_ascii_uppercase());
    is_capital && word.ends_with('s') && !NO_VERBS.contains(&word)
}

/// Returns whether a line declares a function.
fn declares_function(line: &str) -> bool {
    let mut words = line.split([' ', '(', ')']).filter(|word| !word.is_empty());
    let is_before = |word: &&str| QUALIFIERS.contains(word) || ["crate", "super"].contains(word);
    words.find(|word| !is_before(word)) == Some("fn")
}

/// Returns the text of a doc comment's line.
fn doc_text(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim)
}

/// Returns the doc comments of a file.
fn docs(text: &str) -> Vec<Doc<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let begins = |at: usize| doc_text(lines[at]).is_some() && (at == 0 || doc_text(lines[at - 1]).is_none());

    let doc = |at: usize| {
        let behind = &lines[at..];
        let is_above =
            |line: &&&str| line.trim_start().starts_with("//") || line.trim_start().starts_with("#[");
        let above: Vec<&&str> = behind.iter().take_while(is_above).collect();
        let word = doc_text(lines[at]).unwrap_or_default().split(|c: char| !c.is_alphanumeric()).next();
        Doc {
            first_line: at + 1,
            first_word: word.unwrap_or_default(),
            is_of_function: behind.get(above.len()).is_some_and(|line| declares_function(line)),
            is_of_test: above.iter().any(|line| line.contains("#[") && line.contains("test")),
        }
    };
    (0..lines.len()).filter(|&at| begins(at)).map(doc).collect()
}

/// Returns every Rust file below `path`, except build products.
fn sources(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let (dirs, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let files = files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "rs"));
    let dirs = dirs.into_iter().filter(|dir| !dir.ends_with("target") && !dir.ends_with(HELP));
    files.chain(dirs.flat_map(|dir| sources(&dir))).collect()
}

#[test]
fn docs_begin_with_a_verb_or_a_noun() {
    let files: Vec<_> = KEPT.iter().flat_map(|top| sources(&root().join(top))).collect();
    assert!(files.len() > 200, "the sources are not where they were");

    let mut wrong = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap_or_default();
        for (doc, fault) in docs(&text).iter().filter_map(|doc| Some((doc, doc.fault()?))) {
            wrong.push(format!("{}:{}: '{}' {fault}", file.display(), doc.first_line, doc.first_word));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn paraphrases_and_nouns_are_caught() {
    let faults = |text: &str| docs(text).iter().filter_map(Doc::fault).count();
    assert_eq!(faults("/// Returns the root.\n#[must_use]\npub(crate) const fn root() {}"), 0);
    assert_eq!(faults("/// The root.\npub fn root() {}"), 1);
    assert_eq!(faults("/// Bytes so far.\npub fn size() {}"), 1);
    assert_eq!(faults("/// `None` for the root.\nfn parent() {}"), 1);
    assert_eq!(faults("    /// Sets\n    /// What it is.\n    fn set();"), 0);
    assert_eq!(faults("/// True when all is there.\nstruct Flags;"), 1);
    assert_eq!(faults("//! What is left.\n\n/// Whether it is there.\nis_there: bool,"), 1);
    assert_eq!(faults("/// Law S1: names stay names.\n#[test]\nfn names_stay() {}"), 0);
    assert_eq!(faults("/// The rest.\nfunction: fn(),"), 0);
}
