//! Options in any combination: the trees, the list of changes and the exit code are those of rsync.
//!
//! If rsync does something odd that dsync does not imitate, [`Case::is_odd`] leaves out the case,
//! or [`lines`] and [`differences`] leave out the difference. Each says what it is.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use dsync_tests::{
    Edit, Facts, Kind, Outcome, Run, Scope, Scratch, Tree,
    compare::compare,
    needs_dsync, needs_root,
    scratch::slash,
    survey,
    tree::{self, Change},
};
use proptest::{
    prelude::{Just, Strategy, any, prop_oneof},
    sample::subsequence,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner},
};

const COMPARISON: &[&str] =
    &["-c", "-I", "--size-only", "-u", "--existing", "--ignore-existing", "-W", "--modify-window=1"];
const DELETION: &[&str] =
    &["--delete", "--delete-before", "--delete-during", "--delete-after", "--delete-delay"];
const SELECTION: &[&str] =
    &["--exclude=*a*", "--include=*b*", "--exclude=*/", "--max-size=20K", "--min-size=10", "--safe-links"];
const OTHERS: &[&str] = &["--delete-excluded", "--force"];
const WRITING: &[&str] = &[
    "-O",
    "-J",
    "-E",
    "-S",
    "-H",
    "-K",
    "-n",
    "-b",
    "--suffix=.old",
    "--backup-dir=../kept",
    "--inplace",
    "--preallocate",
    "--chmod=D755,F640",
    "--chown=1:2",
    "--numeric-ids",
    "--delay-updates",
    "--partial-dir=.part",
    "--temp-dir=@/temp",
];
const ALTERNATES: &[&str] = &["--link-dest=../other", "--copy-dest=../other", "--compare-dest=../other"];

/// Generates the options of a run besides `-r`; `@` is its working directory.
fn options() -> impl Strategy<Value = Vec<&'static str>> {
    let few = |options: &[&'static str], most: usize| subsequence(options.to_vec(), 0..=most);
    let kept = prop_oneof![
        5 => Just(vec!["-a"]),
        2 => few(&["-l", "-p", "-t", "-g", "-o", "-D"], 6),
        2 => Just(vec!["-aHAX"]),
    ];
    let alternates = prop_oneof![2 => Just(Vec::new()), 1 => few(ALTERNATES, 1)];
    let deletion = (few(DELETION, 1), prop_oneof![3 => Just(Vec::new()), 1 => few(OTHERS, 2)]);
    (kept, few(COMPARISON, 2), deletion, few(SELECTION, 2), few(WRITING, 3), alternates)
        .prop_map(|(a, b, (c, d), e, f, g)| [a, b, c, d, e, f, g].concat())
}

/// A run and the entries that it finds.
#[derive(Debug)]
struct Case {
    options: Vec<&'static str>,
    /// Whether the source is given by its name, without a slash, so that it becomes an entry of the
    /// destination.
    by_name: bool,
    tree: Tree,
    /// Changes to the source since the destination was copied from it.
    edits: Vec<Edit>,
    /// Entries that only the destination has.
    old: Tree,
    /// Changes to the source since the alternate directory was copied from it.
    other: Vec<Edit>,
}

impl Case {
    fn any() -> impl Strategy<Value = Self> {
        let trees = (tree::rich_trees(14, 60_000), tree::edits(5), tree::trees(4, 1000), tree::edits(4));
        (options(), any::<bool>(), trees).prop_map(|(options, by_name, (tree, edits, old, other))| {
            let mut tree = plain(tree);
            if !options.iter().any(|option| ["-H", "-aHAX"].contains(option)) {
                // A change on one of the names is listed for as many names as were examined before.
                tree.nodes.retain(|node| !matches!(node.kind, Kind::HardLink(_)));
            }
            Self { options, by_name, tree, edits, old: plain(old), other }
        })
    }

    fn has(&self, options: &[&str]) -> bool {
        self.options.iter().any(|option| options.contains(option))
    }

    fn is_odd(&self) -> bool {
        let becomes_directory = |edit: &Edit| matches!(edit.change, Change::BecomeDirectory);
        // rsync's backup of a file written in place has neither its time nor its attributes; dsync
        // does not write into a file that it has linked elsewhere.
        self.has(&["--inplace"]) && self.has(&["-b", "--suffix=.old", "--backup-dir=../kept", ALTERNATES[0]])
            // rsync sets a directory's time on the file that it left in its place.
            || self.has(&["--ignore-existing"]) && self.edits.iter().any(becomes_directory)
            // rsync's dry run does not show the new time of directories from which something would
            // be deleted; its run does.
            || self.has(&["-n"]) && self.has(&["--delete-before"])
            // rsync puts two entries for one user into a list.
            || self.has(&["--chown=1:2"]) && self.has(&["-aHAX"])
            // rsync then treats equal times as newer.
            || self.has(&["-u"]) && self.has(&["--modify-window=1"])
            // rsync removes a backup that it has just made if a rule includes its name, or no rule
            // counts.
            || self.has(&["-b", "--suffix=.old"]) && self.has(&["--include=*b*", "--delete-excluded"])
            // rsync keeps no backup of an entry that gives way to a file of an alternate directory.
            || self.has(&["-b", "--suffix=.old", "--backup-dir=../kept"]) && self.has(ALTERNATES)
    }

    fn plant(&self, scratch: &Scratch) {
        self.tree.plant(&scratch.dst());
        self.old.plant(&scratch.dst().join("old"));
        self.tree.plant(&scratch.at("other"));
        self.tree.plant(&scratch.src());
        self.other.iter().for_each(|edit| edit.apply(&scratch.at("other")));
        self.edits.iter().for_each(|edit| edit.apply(&scratch.src()));
        ["src", "dst", "other"].iter().for_each(|name| settle(&scratch.at(name)));
    }

    /// Runs a program on copies of the destination and the alternate directory; returns the result.
    fn run(&self, scratch: &Scratch, program: &Path, own: &[&str]) -> (Outcome, BTreeMap<Vec<u8>, Facts>) {
        let root =
            self.stage(scratch, program.file_name().and_then(|name| name.to_str()).expect("a program"));
        let outcome = self.start(scratch, &root, program).args(own).arg(root.join("dst")).run();
        (outcome, timeless(&root))
    }

    /// Copies the destination and the alternate directory; returns the directory of both copies.
    fn stage(&self, scratch: &Scratch, name: &str) -> PathBuf {
        let root = scratch.at(name);
        fs::create_dir_all(root.join("temp")).expect("a directory");
        let copy = Run::of("cp").arg("-a").arg(scratch.dst()).arg(scratch.at("other")).arg(&root);
        let _ = copy.run().expect_quiet_success();
        if self.by_name {
            for name in ["dst", "other"] {
                let below = root.join("below");
                fs::rename(root.join(name), &below).expect("a tree");
                fs::create_dir(root.join(name)).expect("a directory");
                fs::rename(below, root.join(name).join("src")).expect("a tree");
            }
        }
        root
    }

    /// Makes a run of a program in `root`, without the destination and without options that depend
    /// on it.
    fn start(&self, scratch: &Scratch, root: &Path, program: &Path) -> Run {
        let source = if self.by_name { scratch.src().into_os_string() } else { slash(&scratch.src()) };
        let options = self.options.iter().map(|option| option.replace('@', &root.display().to_string()));
        Run::of(program).args(["-ri", "--modify-window=-1"]).args(options).arg(source)
    }

    /// Checks that a dry run lists the same as the run, with the same exit code; into an existing
    /// or a missing destination.
    fn check_dry_run(&self, is_missing: bool) -> Result<(), String> {
        let scratch = Scratch::new();
        self.plant(&scratch);
        let root = self.stage(&scratch, "there");
        if is_missing {
            fs::remove_dir_all(root.join("dst")).expect("a destination");
        }
        let run = |own: &[&str]| {
            let run = self.start(&scratch, &root, dsync_tests::program()).args(own);
            run.args(["--allow-empty-source", "--durability=none"]).arg(root.join("dst")).run()
        };
        let before = survey(&root);
        let dry = run(&["-n"]);
        let changed = compare(&before, &survey(&root), Scope::EVERYTHING);
        if !changed.is_empty() {
            return Err(format!("the dry run changed something: {changed:?}\n{}", dry.account()));
        }
        let real = run(&[]);
        if all_lines(&dry) == all_lines(&real) && dry.code() == real.code() {
            return Ok(());
        }
        Err(format!("{:?}\n{}\n{}", self.options, dry.account(), real.account()))
    }

    fn check(&self) -> Result<(), String> {
        let scratch = Scratch::new();
        self.plant(&scratch);
        let (rsync, theirs) = self.run(&scratch, Path::new("rsync"), &[]);
        let own = ["--allow-empty-source", "--durability=none"];
        let (dsync, ours) = self.run(&scratch, dsync_tests::program(), &own);
        let mut found = differences(&theirs, &ours);
        let (listed, expected) = (lines(&dsync), lines(&rsync));
        let only = |who: &str, a: &[String], b: &[String]| {
            let lines = a.iter().filter(|line| !b.contains(line));
            lines.map(|line| format!("only {who} says: {line}")).collect::<Vec<_>>()
        };
        found.extend(only("dsync", &listed, &expected));
        found.extend(only("rsync", &expected, &listed));
        if found.is_empty() && dsync.code() == rsync.code() {
            return Ok(());
        }
        let found = found[..found.len().min(12)].join("\n");
        let form = if self.by_name { "src" } else { "src/" };
        Err(format!("{form} {:?}\n{found}\n{}\n{}", self.options, dsync.account(), rsync.account()))
    }
}

/// Changes names to ones that both programs print unchanged, and removes special bits: rsync lists
/// their loss by a change of owner as one of permissions, or not at all.
fn plain(mut tree: Tree) -> Tree {
    let mut known: Vec<Vec<u8>> = Vec::new();
    let mut rename = |path: &mut Vec<u8>| {
        let parts = path.split(|&byte| byte == b'/').map(|part| {
            let number = known.iter().position(|known| known == part).unwrap_or(known.len());
            if number == known.len() {
                known.push(part.to_vec());
            }
            let letter = b'a' + part.iter().fold(0, |sum: u8, &byte| sum.wrapping_add(byte)) % 5;
            format!("{}{number}", char::from(letter))
        });
        *path = parts.collect::<Vec<_>>().join("/").into_bytes();
    };
    for node in &mut tree.nodes {
        node.mode &= 0o777;
        rename(&mut node.path);
        if let Kind::HardLink(path) | Kind::Symlink(path) = &mut node.kind {
            rename(path);
        }
    }
    tree
}

/// Returns the changes that a run lists, sorted. Leaves out further names of a file: rsync
/// describes them by the first name's state before its change, or in a dry run. The trees show
/// whether they are links.
fn lines(outcome: &Outcome) -> Vec<String> {
    let text = outcome.stdout_text();
    // The other line is about no change, and dsync does not print it.
    let is_change = |line: &&str| !line.starts_with('h') && !line.starts_with("cannot delete non-empty");
    let mut lines: Vec<_> = text.lines().filter(is_change).map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// Returns all changes that a run lists, sorted.
fn all_lines(outcome: &Outcome) -> Vec<String> {
    let mut lines: Vec<_> = outcome.stdout_text().lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// Returns the differences between the trees, except for the permissions of backup directories.
/// dsync keeps those as before the run; rsync does so only if the run keeps owners and lists, and
/// otherwise takes the new mode.
fn differences(theirs: &BTreeMap<Vec<u8>, Facts>, ours: &BTreeMap<Vec<u8>, Facts>) -> Vec<String> {
    let alike = |path: &[u8], facts: &Facts| {
        let mut facts = facts.clone();
        if path.starts_with(b"kept/") && facts.kind == "dir" {
            facts.mode = 0;
        }
        (path.to_vec(), facts)
    };
    let [theirs, ours] =
        [theirs, ours].map(|tree| tree.iter().map(|(path, facts)| alike(path, facts)).collect());
    let mut found = compare(&theirs, &ours, Scope { dir_times: false, ..Scope::EVERYTHING });
    let is_access = |line: &str| line.contains("owner is") || line.contains("extended attributes is");
    found.retain(|line| !line.starts_with("'kept/") || !is_access(line));
    found
}

/// All times of generated entries are before this one, all times of the run after it.
const NOW: i64 = 1_790_000_000;

/// Sets recent times to fixed ones, seconds apart, because under `-u --modify-window=-1` rsync
/// treats a file that is newer by one second as older.
fn settle(root: &Path) {
    for (path, facts) in survey(root) {
        if facts.mtime.0 > NOW {
            let seconds = 1_500_000_000 + 10 * i64::try_from(facts.size).expect("a length");
            tree::set_mtime(&tree::at(root, &path), (seconds, 5));
        }
    }
}

/// Surveys a tree; all times of the run become the same.
fn timeless(root: &Path) -> BTreeMap<Vec<u8>, Facts> {
    let mut found = survey(root);
    for facts in found.values_mut().filter(|facts| facts.mtime.0 > NOW) {
        facts.mtime = (i64::MAX, 0);
    }
    found
}

#[test]
fn any_combination_of_options_does_what_it_does_in_rsync() {
    needs_dsync!();
    needs_root!();
    let config = Config { cases: 60, max_shrink_iters: 60, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[21; 32]);
    TestRunner::new_with_rng(config, rng)
        .run(&Case::any().prop_filter("not odd", |case| !case.is_odd()), |case| {
            case.check().map_err(TestCaseError::fail)
        })
        .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_dry_run_lists_what_the_run_lists() {
    needs_dsync!();
    needs_root!();
    let config = Config { cases: 80, max_shrink_iters: 80, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[22; 32]);
    let cases = (Case::any(), any::<bool>()).prop_filter("a run", |(case, _)| !case.has(&["-n"]));
    TestRunner::new_with_rng(config, rng)
        .run(&cases, |(case, is_missing)| case.check_dry_run(is_missing).map_err(TestCaseError::fail))
        .unwrap_or_else(|error| panic!("{error}"));
}
