//! Judges a case: compares the results of its runs with rsync's and with each other.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{
    batch,
    case::Case,
    disturbed,
    known::{self, Seen},
    laws::{self, Trees},
    lists, live,
    world::{FILLS, Survey, World, seconds},
};
use crate::{
    compare::{Scope, compare, show},
    run::Outcome,
};

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub class: Class,
    /// Description in one line.
    pub line: String,
}

/// The kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// The trees differ from those that rsync makes.
    Tree,
    /// The exit codes differ in meaning.
    Exit,
    /// A dry run listed something else than the run.
    DryRun,
    /// The changes that `-i` lists differ, although the trees do not.
    List,
    /// A temporary file is left.
    Leftover,
    /// A second run does something.
    Second,
    /// A refused run did something.
    Refused,
    /// A program panicked or was killed by a signal.
    Panic,
    /// A run did not end.
    Hang,
    /// A property that must hold whatever the source does was violated.
    Live,
    /// A law that holds whatever rsync does was broken.
    Law,
}

/// The result of a case's runs, for people.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub findings: Vec<Finding>,
    /// Differences that the table of known ones explains, each as its entry's sentence.
    pub excused: Vec<&'static str>,
    /// Reason why dsync refused the case, if it did.
    pub refused: Option<String>,
    /// Reason why the programs could not be compared, if they could not.
    pub passed_over: Option<&'static str>,
    /// Commands and outputs.
    pub account: String,
}

impl Verdict {
    fn add(&mut self, class: Class, line: impl Into<String>) {
        self.findings.push(Finding { class, line: line.into() });
    }

    /// Puts the breaches of laws before all other findings.
    fn with_breaches(mut self, broken: Vec<Finding>) -> Self {
        self.findings.splice(0..0, broken);
        self
    }

    /// Returns the most important finding.
    pub(super) fn first(&self) -> Option<&Finding> {
        self.findings.first()
    }
}

impl Finding {
    /// Returns the path that the line is about, as printed.
    pub(super) fn path(&self) -> &str {
        self.paths().first().copied().unwrap_or_default()
    }

    /// Returns all paths that the line is about: several if it is about names of one file.
    pub(super) fn paths(&self) -> Vec<&str> {
        let mut paths = Vec::new();
        let mut rest = self.line.as_str();
        while let Some((_, quoted)) = rest.split_once('\'') {
            let mut is_escaped = false;
            let end = quoted.find(|letter| {
                let ends = letter == '\'' && !is_escaped;
                is_escaped = letter == '\\' && !is_escaped;
                ends
            });
            let Some((path, tail)) = end.and_then(|end| quoted.split_at_checked(end)) else { break };
            paths.push(path);
            rest = tail.strip_prefix("', ").unwrap_or_default();
        }
        paths
    }

    /// Returns whether it is about a modification time that these runs themselves caused.
    fn is_of_time(&self) -> bool {
        self.class == Class::Tree
            && self.line.contains("': mtime is ")
            && self.line.contains(&i64::MAX.to_string())
    }

    /// Returns whether it is about an entry of the directory that the other one is about.
    fn is_within(&self, directory: &Self) -> bool {
        self.path().rsplit_once('/').is_some_and(|(parent, _)| parent == directory.path())
    }

    /// Returns the key by which two findings count as the same for a reduction.
    pub(super) fn key(&self) -> (Class, String) {
        (self.class, kind_of(&self.line).to_owned())
    }
}

/// Returns a line without its path.
fn kind_of(line: &str) -> &str {
    let rest = match line.rsplit_once("': ") {
        Some((_, rest)) => rest,
        None => line.split(": '").next().unwrap_or(line),
    };
    rest.split(" is ").next().unwrap_or(rest)
}

/// Runs a case with both programs and judges it; a failure of the tester itself is a finding too.
pub(super) fn judge(case: &Case, world: &World) -> Verdict {
    judge_for(case, world, None)
}

/// Messages of failures that end a case and are unrelated to dsync, each with its reason.
const BESIDE: &[(&str, &str)] = &[
    (FILLS, FILLS),
    ("/rsync\"", "rsync does not end"),
    ("Structure needs cleaning", "XFS cannot read an attribute that it accepted"),
    (": No space left on device", NO_ROOM),
    ("kind: StorageFull", NO_ROOM),
    ("File name too long (os error 36)", "a copy has paths that are too long to be looked at"),
];

/// The reason of a case for which there is no room: on a full filesystem, or in an entry of ext4 that
/// is to have many attributes.
const NO_ROOM: &str = "no room for its trees";

/// Judges a case with no more runs than findings of one class need.
pub(super) fn judge_for(case: &Case, world: &World, class: Option<Class>) -> Verdict {
    let judged = catch_unwind(AssertUnwindSafe(|| {
        if case.is_live { live::judge(case, world) } else { compare_programs(case, world, class) }
    }));
    judged.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        if let Some((_, reason)) = BESIDE.iter().find(|(words, _)| text.contains(words)) {
            return Verdict { passed_over: Some(reason), account: text, ..Verdict::default() };
        }
        let class = if text.contains("did not end within") { Class::Hang } else { Class::Panic };
        let mut verdict = Verdict { account: text.clone(), ..Verdict::default() };
        verdict.add(class, text.lines().next().unwrap_or("the tester failed").to_owned());
        verdict
    })
}

/// The meaning of an exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Done,
    Partial,
    Vanished,
    Limit,
    Refused,
}

fn meaning(outcome: &Outcome) -> Meaning {
    match outcome.code() {
        Some(0) => Meaning::Done,
        Some(23) => Meaning::Partial,
        Some(24) => Meaning::Vanished,
        Some(25) => Meaning::Limit,
        _ => Meaning::Refused,
    }
}

/// Returns whether a run did nothing, and all that it was asked for.
fn is_at_rest(outcome: &Outcome) -> bool {
    changes(outcome).is_empty() && outcome.code() == Some(0)
}

/// Returns whether rsync failed for want of room, which a run beside it may have used up. A file that
/// has no room for an attribute is none: that decides both programs' results.
fn has_no_room(rsync: &Outcome) -> bool {
    let is_of_attributes = |line: &str| ["xattr", "acl"].iter().any(|word| line.contains(word));
    let is_full = |line: &str| line.contains("No space left on device (28)") && !is_of_attributes(line);
    rsync.stderr_text().lines().any(is_full)
}

/// The message of a case in which rsync goes round in circles.
const CIRCLES: &str = "rsync copies directories into each other by links";

/// The message of a case in which rsync's processes misunderstand each other: with `-H
/// --append-verify`, where the beginning of a file of several names differs.
const BROKEN_OFF: &str = "rsync breaks its own protocol";

/// Number of copies of each entry of a case that rsync may leave: of as many differences as there are
/// with more, each would be judged for itself, which has taken minutes.
const MOST_COPIES: usize = 20;

/// Returns why rsync's result is no measure, if it is none.
fn no_measure(case: &Case, rsync: &Outcome, theirs: &Survey) -> Option<&'static str> {
    let goes_round = theirs.len() > MOST_COPIES * (case.world.len() + case.other.len());
    let breaks_off = rsync.stderr_text().contains("Invalid packet at end of run");
    let reasons =
        [(has_no_room(rsync), "rsync has no room"), (breaks_off, BROKEN_OFF), (goes_round, CIRCLES)];
    reasons.iter().find(|(applies, _)| *applies).map(|(_, reason)| *reason)
}

fn compare_programs(case: &Case, world: &World, class: Option<Class>) -> Verdict {
    let mut verdict = Verdict::default();
    let since = seconds() - 1;
    // Reading changes access times, so every run counts: leave out the dry one.
    let keeps_atimes = case.has_letter('U');

    world.plant(case);
    let rsync = world.rsync(case, &[]);
    let theirs = world.survey(since);
    let may_rest = !keeps_atimes && class.is_none_or(|class| class == Class::Second);
    let again = may_rest.then(|| world.rsync(case, &[]));
    let rests = again.as_ref().is_some_and(is_at_rest);
    verdict.account.push_str(&rsync.account());
    if let Some(reason) = no_measure(case, &rsync, &theirs) {
        return Verdict { passed_over: Some(reason), ..verdict };
    }

    world.plant(case);
    let before = (!keeps_atimes).then(|| world.survey(since));
    let is_dry_wanted =
        class.is_none_or(|class| matches!(class, Class::DryRun | Class::Refused | Class::Law));
    let mut broken = Vec::new();
    let dry = before.as_ref().filter(|_| is_dry_wanted && !case.has(&["-n"]));
    let dry = dry.map(|before| dry_run(case, world, (before, since), &mut broken));
    let dsync = world.dsync(case, &[]);
    let ours = world.survey(since);
    verdict.account.push_str(&dsync.account());

    judge_end(&mut verdict, &rsync, &dsync);
    if meaning(&dsync) == Meaning::Refused {
        verdict.refused = Some(dsync.stderr_text().lines().next().unwrap_or("nothing said").to_owned());
        if let Some(before) = before.as_ref().filter(|_| dry.is_some()) {
            let theirs = (meaning(&rsync) == Meaning::Refused).then_some(&theirs);
            judge_refused(&mut verdict, before, &ours, theirs);
        }
        let excused = excuse(verdict, case, before.as_ref(), (&rsync, &theirs), (&dsync, &ours));
        return excused.with_breaches(broken);
    }
    if meaning(&rsync) != Meaning::Refused {
        judge_trees(&mut verdict, &theirs, &ours, keeps_atimes);
    }
    // A dry run leaves the same whatever it lists; its list is compared with the run's.
    let are_done = meaning(&rsync) == Meaning::Done && meaning(&dsync) == Meaning::Done;
    if are_done && !case.has(&["-n"]) {
        judge_lists(&mut verdict, &rsync, &dsync);
    }
    judge_leftovers(&mut verdict, case, &ours);
    if let Some(dry) = &dry {
        judge_dry_run(&mut verdict, dry, &dsync);
    }
    if rests && meaning(&dsync) == Meaning::Done && !case.has(&["-n"]) {
        let second = world.dsync(case, &[]);
        judge_second(&mut verdict, &second);
        if is_at_rest(&second) {
            broken.extend(disturbed::breaches(case, world, &ours, since));
        }
    }
    if let Some(before) = &before {
        let theirs = (meaning(&rsync) != Meaning::Refused).then_some(&theirs);
        let is_theirs_done = meaning(&rsync) == Meaning::Done;
        let trees = Trees { before, theirs, is_theirs_done, ours: &ours };
        broken.extend(laws::breaches(case, &trees, &dsync));
    }
    broken.extend(batch::breaches(case, world, (&dsync, &ours), since));
    excuse(verdict, case, before.as_ref(), (&rsync, &theirs), (&dsync, &ours)).with_breaches(broken)
}

/// Runs dsync dry; what that changes is a breach.
fn dry_run(
    case: &Case,
    world: &World,
    (before, since): (&Survey, i64),
    broken: &mut Vec<Finding>,
) -> Outcome {
    let dry = world.dsync(case, &["-n"]);
    let changed = compare(before, &world.survey(since), Scope::EVERYTHING).into_iter();
    let line = |line| format!("changed by a dry run: {line}");
    broken.extend(changed.map(|changed| Finding { class: Class::Law, line: line(changed) }));
    dry
}

fn excuse(
    mut verdict: Verdict,
    case: &Case,
    before: Option<&Survey>,
    (rsync, theirs): (&Outcome, &Survey),
    (dsync, ours): (&Outcome, &Survey),
) -> Verdict {
    let findings = std::mem::take(&mut verdict.findings);
    // Leftovers and breaches of laws have no excuse.
    let is_excusable = |finding: &&Finding| !matches!(finding.class, Class::Leftover | Class::Panic);
    let seen = |finding| {
        Some(finding)
            .filter(is_excusable)
            .and_then(|finding| known::excuse(&Seen { case, finding, rsync, dsync, before, theirs, ours }))
    };
    let excused: Vec<Option<&str>> = findings.iter().map(seen).collect();
    for (finding, entry) in findings.iter().zip(&excused) {
        // A directory's time reflects the changes inside it, which may be intended differences.
        let mut within = findings.iter().zip(&excused).filter(|(other, _)| other.is_within(finding));
        let follows = || within.find_map(|(_, entry)| *entry).filter(|_| finding.is_of_time());
        match entry.or_else(follows) {
            Some(entry) => verdict.excused.push(entry),
            None => verdict.findings.push(finding.clone()),
        }
    }
    verdict
}

fn judge_end(verdict: &mut Verdict, rsync: &Outcome, dsync: &Outcome) {
    let text = dsync.stderr_text();
    if text.contains("panicked at") || dsync.code().is_none() || dsync.code() == Some(101) {
        verdict.add(Class::Panic, text.lines().next().unwrap_or("ended by a signal").to_owned());
    }
    let (theirs, ours) = (meaning(rsync), meaning(dsync));
    if theirs != ours {
        let theirs = rsync.stderr_text();
        let first = text.lines().chain(theirs.lines()).next().unwrap_or_default().to_owned();
        let codes = (rsync.code().unwrap_or(-1), dsync.code().unwrap_or(-1));
        verdict.add(Class::Exit, format!("rsync ends with {}, dsync with {} is {first}", codes.0, codes.1));
    }
}

fn judge_trees(verdict: &mut Verdict, theirs: &Survey, ours: &Survey, atimes: bool) {
    let scope = Scope { atimes, ..Scope::EVERYTHING };
    compare(theirs, ours, scope).into_iter().for_each(|line| verdict.add(Class::Tree, line));
}

/// Holds that a run which refused its work left everything as it was. A directory that both programs make before
/// they examine the others is no finding.
fn judge_refused(verdict: &mut Verdict, before: &Survey, ours: &Survey, theirs: Option<&Survey>) {
    let as_rsync = theirs.is_some_and(|theirs| compare(theirs, ours, Scope::EVERYTHING).is_empty());
    let changed = compare(before, ours, Scope::EVERYTHING).into_iter().filter(|_| !as_rsync);
    changed.for_each(|line| verdict.add(Class::Refused, line));
}

/// Compares the lists of changes of two runs that left the same tree.
fn judge_lists(verdict: &mut Verdict, rsync: &Outcome, dsync: &Outcome) {
    if verdict.findings.iter().all(|finding| finding.class != Class::Tree) {
        let lines = lists::differences(&rsync.stdout, &dsync.stdout);
        lines.into_iter().for_each(|line| verdict.add(Class::List, line));
    }
}

fn judge_leftovers(verdict: &mut Verdict, case: &Case, ours: &Survey) {
    let was_there =
        |path: &Vec<u8>| case.world.iter().chain(&case.other).any(|node| path.ends_with(&node.path));
    for path in ours.keys() {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        if name.starts_with(b".dsync-") && !was_there(path) {
            verdict.add(Class::Leftover, format!("left: {}", show(path)));
        }
    }
}

fn judge_dry_run(verdict: &mut Verdict, dry: &Outcome, real: &Outcome) {
    if meaning(dry) != meaning(real) {
        // A failure of writing cannot be foreseen.
        if meaning(real) != Meaning::Partial {
            let codes = (dry.code().unwrap_or(-1), real.code().unwrap_or(-1));
            verdict
                .add(Class::DryRun, format!("the dry run ends with {}, the run with {}", codes.0, codes.1));
        }
        return;
    }
    if meaning(real) != Meaning::Done {
        return;
    }
    let (planned, done) = (changes(dry), changes(real));
    let only = |who: &str, a: &[String], b: &[String]| {
        let lines = a.iter().filter(|line| !b.contains(line)).map(|line| quoted(line));
        lines.map(|line| format!("only {who} lists: '{line}'")).collect::<Vec<_>>()
    };
    let lines = only("the dry run", &planned, &done).into_iter().chain(only("the run", &done, &planned));
    lines.for_each(|line| verdict.add(Class::DryRun, line));
}

/// Returns a line of a list in the form in which a finding has a path between apostrophes.
fn quoted(line: &str) -> String {
    line.replace('\\', "\\\\").replace('\'', "\\'")
}

fn judge_second(verdict: &mut Verdict, second: &Outcome) {
    let lines = changes(second);
    if !lines.is_empty() || second.code() != Some(0) {
        let code = second.code().unwrap_or(-1);
        let line = lines.first().cloned().unwrap_or_else(|| second.stderr_text());
        verdict.add(Class::Second, format!("the second run ends with {code}: '{line}'"));
        verdict.account.push_str(&second.account());
    }
}

/// Returns the changes that a run lists, sorted.
pub(super) fn changes(outcome: &Outcome) -> Vec<String> {
    let text = outcome.stdout_text();
    let is_change = |line: &&str| {
        let words = ["cannot delete non-empty", "created directory ", "backed up ", "sender removed "];
        !words.iter().any(|words| line.starts_with(words)) && !lists::is_unchanged(line.as_bytes())
    };
    let mut lines: Vec<String> = text.lines().filter(is_change).map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        hunt::case::Carrier,
        tree::{Kind, Node},
    };

    #[test]
    fn a_case_in_which_rsync_goes_round_in_circles_is_passed_over() {
        let names = (0..40).map(|number| Node::file(format!("w/s/{number}"), number, 3));
        let link = Node::new("w/s/a", Kind::Symlink(b".".into()));
        let case = |links: &[Node]| Case {
            seed: 0,
            carrier: Carrier::Local,
            is_confined: false,
            is_nobody: false,
            umask: 0o22,
            options: ["-r", "-k"].map(String::from).into(),
            operands: ["s/", "d/"].map(String::from).into(),
            cwd: "w",
            world: [Node::dir("w"), Node::dir("w/s")]
                .into_iter()
                .chain(names.clone())
                .chain(links.iter().cloned())
                .collect(),
            other: Vec::new(),
            is_live: false,
            is_disturbed: false,
        };
        let place = tempfile::tempdir().expect("a place");
        let world = World::new(place.path().join("0"), place.path().join("0-other"));
        assert_eq!(judge(&case(&[]), &world).passed_over, None);
        assert_eq!(judge(&case(&[link]), &world).passed_over, Some(CIRCLES));
    }

    #[test]
    fn the_paths_of_a_line_are_found_whatever_is_in_them() {
        let line = |line: &str| Finding { class: Class::Tree, line: line.to_owned() };
        let odd = line(r"'w/d/a\\': mtime is (1, 2), should be (3, 4)");
        assert_eq!(odd.path(), r"w/d/a\\");
        let links = line(r"not one file: 'w/d/it\'s', 'w/d/, b'");
        assert_eq!(links.paths(), [r"w/d/it\'s", "w/d/, b"]);
        assert_eq!(line("nothing").path(), "");
        // A list's name may end with what hides an apostrophe.
        let listed = format!("only the run lists: '{}'", quoted(r".f...p..... it's\"));
        assert_eq!(line(&listed).path(), r".f...p..... it\'s\\");
        assert!(line("extra: 'w/d/x/y'").is_within(&line("'w/d/x': mtime is (1, 2), should be (3, 4)")));
    }
}
