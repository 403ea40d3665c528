//! Runs that are disturbed at any step, killed or by a call that fails: they tell it, unless it did no harm;
//! and made again they leave what an undisturbed run leaves, backups included, and their dry run foresees it.

use super::{
    case::{Carrier, Case},
    dice::{Dice, mixed},
    judge::{Class, Finding, changes},
    known, options,
    world::{Survey, World},
};
use crate::{
    compare::{Facts, Scope, compare, show},
    run::Outcome,
    tree::{Kind, Node},
};

/// Returns the breaches of a case in whose run dsync made `ours`, and after which it had nothing more to
/// do. Runs are surveyed as of `since`.
pub(super) fn breaches(case: &Case, world: &World, ours: &Survey, since: i64) -> Vec<Finding> {
    if !case.is_disturbed || !counts_for_itself(case) {
        return Vec::new();
    }
    let mut dice = Dice::new(case.seed ^ STEPS);
    let what = *dice.pick(&["signal=KILL", "signal=KILL", "error=ENOSPC", "error=EIO", "error=EACCES"]);
    let step = 1 + dice.below(MOST_STEPS);
    world.plant(case);
    let disturbed = world.disturbed(case, what, step);
    let mut lines = Vec::new();
    let differences = || {
        let found = compare(ours, &world.survey(since), Scope::EVERYTHING).into_iter();
        found.filter(|line| !is_of_the_run(case, (ours, what), line)).collect::<Vec<_>>()
    };
    // Whatever failed did no harm.
    if disturbed.code() == Some(0) {
        // A lock that nobody holds keeps nobody out. An equal file of an alternate directory that cannot be
        // read is copied, as if it were not there, and the destination's stays, with all of its names, where it
        // cannot be removed.
        let stays =
            |line: &String| line.starts_with("extra: ") || line.starts_with("should not be one file: ");
        let is_harmless =
            |line: &String| line.contains("/.dsync-lock-") || stays(line) && case.has(&["--compare-dest"]);
        let told = differences().into_iter().filter(|line| !is_harmless(line));
        lines.extend(told.map(|line| format!("not told when disturbed: {line}")));
    }

    let (dry, again) = (world.dsync(case, &["-n"]), world.dsync(case, &[]));
    if again.code() != Some(0) {
        lines.push(format!("a run after a disturbed one fails: {}{}", disturbed.account(), again.account()));
    }

    // A dry run tells that it may not look into a directory, which the run opens.
    let sees = dry.code() == Some(0);
    let (foreseen, done) = (listed(case, &dry), listed(case, &again));
    let unforeseen = done.iter().filter(|line| sees && !foreseen.contains(line));
    // Attributes of two names of one file are listed with each in a dry run, and set once.
    let is_of_names =
        |line: &str| line.starts_with('.') && has_names_of_one_file(case) && !case.has_letter('H');
    let undone = foreseen.iter().filter(|line| sees && !done.contains(line) && !is_of_names(line));
    lines.extend(unforeseen.map(|line| format!("not foreseen when disturbed: {line}")));
    lines.extend(undone.map(|line| format!("foreseen when disturbed and not done: {line}")));

    lines.extend(differences().into_iter().map(|line| format!("otherwise when disturbed: {line}")));
    lines.into_iter().map(|line| Finding { class: Class::Law, line }).collect()
}

/// Returns the changes that a run lists. Attributes of two names of one file are compared with each in a
/// dry run, and set once: which of them show with a file that is sent is left out of these.
fn listed(case: &Case, outcome: &Outcome) -> Vec<String> {
    let mut lines = changes(outcome);
    if has_names_of_one_file(case) {
        let is_sent = |line: &&mut String| line.starts_with(['<', '>']) && line.get(ATTRIBUTES).is_some();
        lines.iter_mut().filter(is_sent).for_each(|line| line.replace_range(ATTRIBUTES, "......"));
        lines.sort_unstable();
    }
    lines
}

/// Returns whether the destination has entries of several names.
fn has_names_of_one_file(case: &Case) -> bool {
    case.world.iter().any(|node| node.path.starts_with(b"w/d/") && matches!(node.kind, Kind::HardLink(_)))
}

/// Returns whether a difference is one of the run's own. Only a run that ends well gives a directory that it
/// does not copy its time back, what a process of the other end had may be there for as long as it lives, and
/// a file that could not be linked to an alternate one is a copy that needs nothing more: it lacks what only
/// the alternate has. What `--append` adds to, it does not look at: which of a file's names was added to
/// decides what the others have, or whether they are one file, and a file to which all was added lacks its
/// attributes for good. Nobody looks again at times within the window, nor, with `--ignore-existing`, at
/// attributes that could not be set, as of a device that is made under its own name, and names that were to
/// be linked. With `--existing`, an empty directory that went before the file of its name came is no entry
/// that is there.
fn is_of_the_run(case: &Case, (ours, what): (&Survey, &str), line: &str) -> bool {
    let about = |fact: &str| line.contains(&format!("': {fact} is "));
    let is_temporary = line.starts_with("extra: ") && line.contains("/.dsync-tmp-");
    // Where a call fails, so may the removal of a part. The next run that copies its file takes it, or `--delete`.
    let is_refused_part = what.starts_with("error=") && line.contains("/.dsync-part-");
    let is_copy = case.has(&["--link-dest"])
        && (line.contains("not one file: ")
            || line.contains("should not be one file: ")
            || is_time_of_temporaries(case, line)
            || about("extended attributes") && !case.has_letter('X')
            || about("owner") && "og".chars().any(|letter| !case.has_letter(letter))
            || about("mode") && !case.has_letter('p'));
    let is_left = about("mtime") && case.has(&["--modify-window"])
        || line.starts_with("missing: ") && case.has(&["--modify-window"]) && case.has(&["--compare-dest"])
        || (about("extended attributes") || line.contains("not one file: "))
            && case.has(&["--ignore-existing"])
        || ["owner", "mode", "mtime", "extended attributes"].iter().any(|fact| about(fact))
            && kind_of(ours, line).is_some_and(|kind| match kind {
                "file" => case.has(&["--append", "--append-verify"]),
                // Each run goes into directories.
                "dir" => false,
                // All others get their attributes after their names.
                _ => case.has(&["--ignore-existing"]),
            })
        || case.has(&["--existing"]) && was_an_empty_directory(case, line);
    line.starts_with("'w/d': mtime is ")
        || is_refused_part
        || is_protected_since(case, line)
        || is_temporary && case.carrier != Carrier::Local
        || is_copy
        || is_left
        || case.has_letter('H')
            && (about("content") && case.has(&["--append"])
                || line.contains("not one file: ") && case.has(&["--append", "--append-verify"]))
        || is_access_of_the_moment(case, ours, line)
        || lost_bits_in_place(case, ours, line)
}

/// Returns whether an entry of the destination stays that a disturbed run did not remove: the file of rules that
/// it copied may protect it from the next one.
fn is_protected_since(case: &Case, line: &str) -> bool {
    let was_there = |node: &Node| line == format!("extra: {}", show(&node.path));
    case.deletes() && known::reads_rule_files(case) && case.world.iter().any(was_there)
}

/// Returns whether a difference is the time of the directory of temporaries.
fn is_time_of_temporaries(case: &Case, line: &str) -> bool {
    let given = case.options.iter().filter_map(|option| option.strip_prefix("--temp-dir="));
    given.map(options::place).any(|place| line.starts_with(&format!("'{place}': mtime is ")))
}

/// Returns the type of the entry that a difference is about.
fn kind_of(ours: &Survey, line: &str) -> Option<&'static str> {
    let is_it = |(path, _): &(&Vec<u8>, &Facts)| line.starts_with(&format!("{}: ", show(path)));
    ours.iter().find(is_it).map(|(_, facts)| facts.kind)
}

/// Returns whether an entry is missing that was to take the place of a directory of the destination.
fn was_an_empty_directory(case: &Case, line: &str) -> bool {
    let is_it = |node: &Node| {
        matches!(node.kind, Kind::Dir) && node.path.starts_with(b"w/d/") && line.ends_with(&show(&node.path))
    };
    line.starts_with("missing: ") && case.world.iter().any(is_it)
}

/// Returns whether a directory has another mode or owner for a reason: one of the tree of backups has those that
/// its original had before the run that made it, one above it those that the directory around it had then, which
/// the disturbed run may have changed, and without `-p` a directory that keeps its owner out stays open to it
/// (docs/limits.md). The root is such a directory too; one that the disturbed run made has the umask's mode.
fn is_access_of_the_moment(case: &Case, ours: &Survey, line: &str) -> bool {
    let is_access = line.contains("': mode is ") || line.contains("': owner is ");
    let about =
        |path: &[u8]| line.strip_prefix(show(path).as_str()).is_some_and(|rest| rest.starts_with(": "));
    let directory = ours.iter().find(|(path, facts)| is_access && facts.kind == "dir" && about(path));
    let Some((path, facts)) = directory else { return false };
    let is_in_tree = path.starts_with(b"w/d/");
    let is_closed = (is_in_tree || path == b"w/d") && !case.has_letter('p') && facts.mode & 0o700 != 0o700;
    let is_new_root =
        path == b"w/d" && !case.has_letter('p') && !case.world.iter().any(|node| node.path == b"w/d");
    let is_below = |path: &[u8], above: &[u8]| {
        path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    };
    let places = case.options.iter().filter_map(|option| option.strip_prefix("--backup-dir="));
    let mut places = places.map(options::place);
    // A directory that is made above it takes over the setgid bit of the one around it.
    let is_backups = !is_in_tree
        || places.any(|place| is_below(path, place.as_bytes()) || is_below(place.as_bytes(), path));
    case.has(&["--backup-dir"]) && is_backups || (is_closed || is_new_root) && line.contains("': mode is ")
}

/// Returns whether a file lacks the setuid and setgid bits that were taken away before its content was
/// rewritten: without `-p` no later run knows what they were (docs/limits.md).
fn lost_bits_in_place(case: &Case, ours: &Survey, line: &str) -> bool {
    let is_rewritten = case.has(&["--inplace", "--append", "--append-verify"]) && !case.has_letter('p');
    let has_bits = |facts: &Facts| facts.kind == "file" && facts.mode & 0o6000 != 0;
    let is_it = |path: &[u8]| {
        line.strip_prefix(show(path).as_str()).is_some_and(|rest| rest.starts_with(": mode is "))
    };
    is_rewritten && ours.iter().any(|(path, facts)| has_bits(facts) && is_it(path))
}

/// Returns whether a second run finds done what the first one did.
fn counts_for_itself(case: &Case) -> bool {
    // Each run may remove as many, and what left the source changes the time of its directory.
    const COUNTED: &[&str] = &["--max-delete", "--remove-source-files", "--remove-sent-files"];
    case.has_letter('t') && !case.has(COUNTED)
}

/// Returns whether the case of a seed is to be disturbed.
pub(super) fn selects(seed: u64) -> bool {
    mixed(seed ^ DISTURBANCES).is_multiple_of(4)
}

/// Columns of the attributes in a line of `-i`: permissions to extended attributes.
const ATTRIBUTES: std::ops::Range<usize> = 5..11;

/// Most calls of a thread before it is disturbed: few make more in trees of this size.
const MOST_STEPS: usize = 12;

/// Make the draws others than that of the case.
const DISTURBANCES: u64 = 0x6b69_6c6c_6564_2121;
const STEPS: u64 = 0x7374_6570_7321_2121;
