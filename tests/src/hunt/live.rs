//! Cases whose source changes while it is copied, and whose run may be ended at any step. The
//! properties that must hold all the same.

use std::thread;

use rustix::process::Signal;

use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use super::{
    case::{Carrier, Case},
    dice::Dice,
    judge::{Class, Finding, Verdict},
    options,
    world::World,
};
use crate::{
    compare::{Scope, differences, temporaries},
    run::Outcome,
    tree::{self, Change, Edit, Kind, Node, Piece},
};

/// Runs dsync while edits are made at the source, and ends some of these runs; then once more
/// undisturbed, which must make the trees equal.
pub(super) fn judge(case: &Case, world: &World) -> Verdict {
    let mut verdict = Verdict::default();
    let mut add = |line: String| verdict.findings.push(Finding { class: Class::Live, line });
    world.plant(case);
    let mut run = world.start(case, &[]);
    let edits = edits(case.seed);
    let end = ended(case);
    for (count, edit) in edits.iter().cycle().enumerate() {
        if !run.is_running() {
            break;
        }
        if let Some((signal, at)) = end
            && count == at
        {
            run.signal(signal);
        }
        edit.apply(&world.at("w/s"));
        thread::yield_now();
    }
    let outcome = run.wait();
    verdict.account.push_str(&outcome.account());
    if is_refusal(&outcome) {
        verdict.refused = first_line(&outcome);
        return verdict;
    }
    let is_ended = end.is_some() && matches!(outcome.code(), None | Some(20));
    if !matches!(outcome.code(), Some(0 | 23 | 24 | 25)) && !is_ended {
        let text = outcome.stderr_text();
        let first = text.lines().next().unwrap_or_default();
        add(format!("a run beside changes ends with {:?} is {first}", outcome.code()));
    }
    let left = || temporaries(&world.root).into_iter().filter(|name| name.contains(".dsync-"));
    let may_stay = |name: &String| may_stay(case, &outcome, name);
    if outcome.code().is_some() {
        let left = left().filter(|name| !may_stay(name));
        left.for_each(|name| add(format!("left by a run beside changes: '{name}'")));
    }

    let calm = world.dsync(case, &[]);
    verdict.account.push_str(&calm.account());
    if is_refusal(&calm) && is_refused_at_first(case, world, &calm) {
        // The run before was ended before it could say so.
        verdict.refused = first_line(&calm);
        return verdict;
    }
    if calm.code() != Some(0) {
        let line = format!("the run in peace ends with {:?} is {}", calm.code(), calm.stderr_text());
        verdict.findings.push(Finding { class: Class::Live, line });
        return verdict;
    }
    let is_part = |name: &String| case.has(&["--partial", "--partial-dir"]) && name.contains("part");
    let left = left().filter(|name| !is_part(name));
    let line = |name| format!("left by the run in peace: '{name}'");
    verdict.findings.extend(left.map(|name| Finding { class: Class::Live, line: line(name) }));
    let scope = Scope { dir_times: false, root: false, links: false, xattrs: false, ..Scope::ALL };
    let differing = differences(&world.at("w/s"), &world.at("w/d"), scope);
    let differing = differing.into_iter().filter(|line| !line.starts_with("extra: "));
    verdict.findings.extend(differing.map(|line| Finding { class: Class::Live, line }));
    verdict
}

/// Returns whether what a run left is for the next one: files that an interrupted run had finished, and notes
/// of files that changed while they were rewritten in place.
fn may_stay(case: &Case, outcome: &Outcome, name: &str) -> bool {
    let is_finished =
        outcome.code() == Some(20) && case.has(&["--partial"]) && name.contains("/.dsync-done-");
    let is_half = matches!(outcome.code(), Some(20 | 23 | 24)) && case.has(&["--inplace"]);
    is_finished || is_half && name.contains("/.dsync-note-")
}

/// Returns whether a run ended before it began, for what it was asked.
fn is_refusal(outcome: &Outcome) -> bool {
    matches!(outcome.code(), Some(1 | 3 | 4 | 42))
}

fn first_line(outcome: &Outcome) -> Option<String> {
    outcome.stderr_text().lines().next().map(str::to_owned)
}

/// Returns whether a run is refused as well where no other went before.
fn is_refused_at_first(case: &Case, world: &World, refused: &Outcome) -> bool {
    world.plant(case);
    let first = world.dsync(case, &[]);
    first.code() == refused.code() && first_line(&first) == first_line(refused)
}

/// Returns the signal that ends the case's run, and the number of edits before it. Ends at a distance
/// take their time to notice, so those of one process only.
fn ended(case: &Case) -> Option<(Signal, usize)> {
    let mut dice = Dice::new(case.seed ^ ENDS);
    let is_ended = case.carrier == Carrier::Local && dice.chance(50);
    let signal = *dice.pick(&[Signal::KILL, Signal::KILL, Signal::TERM, Signal::INT]);
    let most = *dice.pick(&[5, 50, 500]);
    is_ended.then(|| (signal, dice.below(most)))
}

/// Sets the choice of an end apart from the case's others.
const ENDS: u64 = 0x656e_6473;

/// Options for a run beside changes: those after which the destination equals the source.
pub(super) const OPTIONS: &[&str] = &[
    "-a",
    "-aHAX",
    "-H",
    "-A",
    "-X",
    "-S",
    "-W",
    "-c",
    "-I",
    "-z",
    "-b",
    "--suffix",
    "--backup-dir",
    "--inplace",
    "--preallocate",
    "--numeric-ids",
    "--delay-updates",
    "--delete",
    "--delete-before",
    "--delete-during",
    "--delete-after",
    "--delete-delay",
    "--delete-excluded",
    "--force",
    "--partial",
    "--partial-dir",
    "--temp-dir",
    "--open-noatime",
    "--link-dest",
    "--copy-dest",
    "--durability",
    "--allow-empty-source",
];

/// Turns a case into one whose source changes while it is copied, with enough to copy to leave time
/// for that.
pub(super) fn enliven(case: &mut Case, dice: &mut Dice) {
    case.is_live = true;
    case.is_nobody = false;
    // Root follows no link of another user's on the way to what the command names.
    let is_on_the_way = |node: &&mut Node| matches!(node.kind, Kind::Symlink(_)) && is_beside_the_trees(node);
    case.world.iter_mut().filter(is_on_the_way).for_each(|node| node.owner = None);
    case.options.retain(|option| OPTIONS.contains(&options::name(option)));
    case.options.retain(|option| option != "-a" && option != "-aHAX");
    // A changed entry must be neither the program's own nor mistaken for it.
    let is_inside = |option: &String| {
        option.split_once('=').is_some_and(|(_, value)| options::place(value).starts_with("w/d"))
    };
    case.options
        .retain(|option| !(options::DIRECTORIES.contains(&options::name(option)) && is_inside(option)));
    case.options.insert(0, (*dice.pick(&["-a", "-aHAX"])).into());
    if !case.deletes() {
        case.options.push("--delete".into());
    }
    // The changes may remove all that the source has.
    if !case.has(&["--allow-empty-source"]) {
        case.options.push("--allow-empty-source".into());
    }
    for number in 0..12 {
        let len = *dice.pick(&[100, 70_000, 300_000, 3_000_000]);
        let piece = Piece::Lines { first: 1_000_000 * (number + 1), from: 0, len };
        let new = Node::new(format!("w/s/file {number}"), Kind::Spliced(vec![piece]));
        case.world.push(Node { mtime: (1_000_000_500, 0), ..new });
        if dice.chance(50) {
            let piece = Piece::Lines { first: 1_000_000 * (number + 1), from: 5000, len };
            case.world.push(Node::new(format!("w/d/file {number}"), Kind::Spliced(vec![piece])));
        }
    }
    // Different content under one time and size looks the same to every program.
    let is_old = |node: &&mut Node| !node.path.starts_with(b"w/s/") && matches!(node.kind, Kind::Spliced(_));
    let nodes = case.world.iter_mut().chain(&mut case.other);
    nodes.filter(is_old).for_each(|node| node.mtime.0 -= 10);
    // A directory keeps the name that a backup beside it would need.
    let suffix = if case.has(&["--suffix"]) { &b".old"[..] } else { b"~" };
    case.world.retain(|node| {
        !(node.path.starts_with(b"w/d/") && matches!(node.kind, Kind::Dir) && node.path.ends_with(suffix))
    });
    if case.has(&["-b"]) && !case.has(&["--backup-dir"]) {
        leave_room_for_backups(case);
    }
    case.settle();
}

/// Returns whether an entry is in neither of the trees.
fn is_beside_the_trees(node: &Node) -> bool {
    [&b"w/s/"[..], b"w/d/"].iter().all(|tree| !node.path.starts_with(tree))
}

/// Empties the directories of the destination that give way: their backups would have to stay in
/// them, so with `-b` alone they cannot.
fn leave_room_for_backups(case: &mut Case) {
    let gives_way = |path: &[u8]| {
        let is_it = |node: &Node| node.path.strip_prefix(b"w/s/") == path.strip_prefix(b"w/d/");
        case.world.iter().any(|node| is_it(node) && !matches!(node.kind, Kind::Dir))
    };
    let is_in_one = |node: &Node| {
        let ends = node.path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        ends.into_iter().any(|end| node.path[..end].starts_with(b"w/d/") && gives_way(&node.path[..end]))
    };
    let kept = case.world.iter().filter(|node| !is_in_one(node)).cloned().collect();
    case.world = kept;
}

fn edits(seed: u64) -> Vec<Edit> {
    let mut dice = Dice::new(seed);
    let bytes: Vec<u8> = (0..4).flat_map(|_| dice.number().to_le_bytes()).collect();
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut edits = tree::edits(12).new_tree(&mut runner).expect("generated edits").current();
    // A file that gets one time twice with different content between looks unchanged to every
    // program.
    edits.retain(|edit| !matches!(edit.change, Change::Touch(_)));
    edits
}
