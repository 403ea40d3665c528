//! Power cuts at any system call that changes the disk, and right after exit 0, on ext4 and XFS.
//!
//! A run is killed at the N-th call of one kind (strace counts them for each thread), then the disk
//! loses its power: data that was only in memory is gone, and the journal is not flushed.
//! Afterwards every name must hold the whole old or the whole new content, no leftovers except
//! dsync's own temporaries may exist, and the next run must repair everything. `DSYNC_CRASH=long`
//! (`cargo xtask crash --long`) tries every N of every kind instead of a few.

use std::{collections::BTreeMap, env, ffi::OsStr, fs, os::unix::ffi::OsStrExt, path::PathBuf};

use dsync_tests::{
    Facts, Node, Outcome, Run, Scope, Scratch, Sshd, Tree, Via, assert_same, compare, differences,
    needs_dsync,
    power::{Disk, Format},
    run::{catch, until_met},
    scratch::slash,
    strace, survey,
    unfinished::{finished_segments, hidden},
};
use rustix::process::Signal;

/// A disk with a destination, and the destination's old and new state.
struct Bench {
    format: Format,
    /// Before the directory in which it is mounted: fields are dropped in this order.
    disk: Disk,
    scratch: Scratch,
    old: BTreeMap<Vec<u8>, Facts>,
    new: BTreeMap<Vec<u8>, Facts>,
    options: &'static [&'static str],
    promise: Promise,
    /// Whether the source is on another host.
    pulls: bool,
}

/// The guarantee for a name after a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Promise {
    /// The whole old or the whole new content.
    OldOrNew,
    /// As before, and a replaced or removed entry is whole, in the backup or in its old place.
    Kept,
    /// Anything in a file that is rewritten in place; the next run repairs it.
    Found,
    /// The old part of a file that is appended to; the next run without `--append` finds the rest.
    Longer,
}

impl Promise {
    fn of(options: &[&str]) -> Self {
        match options {
            _ if options.iter().any(|option| option.starts_with("--append")) => Self::Longer,
            _ if options.contains(&"--inplace") => Self::Found,
            _ if options.contains(&"--backup") => Self::Kept,
            _ => Self::OldOrNew,
        }
    }
}

/// Makes files of three directories; `state` is part of their content and time.
fn files(state: u64) -> impl Iterator<Item = Node> {
    let mtime = (1_300_000_000 + i64::try_from(state).unwrap(), 0);
    let dirs = (0..3).map(move |dir| Node { mtime, ..Node::dir(format!("d{dir}")) });
    let small = (0..9_u64).map(move |index| Node {
        mtime,
        ..Node::file(format!("d{}/f{index}", index % 3), state * 100 + index, 3000 + index)
    });
    let large = Node { mtime, ..Node::file("large", state, 700_000) };
    dirs.chain(small).chain([large])
}

fn old_tree() -> Tree {
    Tree::of(files(1).chain([
        Node::symlink("link", "large"),
        Node::file("gone", 5, 50),
        Node::dir("gone dir"),
        Node::file("gone dir/x", 6, 60),
        Node::dir("file now"),
        Node::file("file now/x", 7, 70),
        Node::file("dir now", 8, 80),
        Node::file("link now", 9, 90),
    ]))
}

fn new_tree() -> Tree {
    Tree::of(files(2).chain([
        Node::symlink("link", "d0"),
        Node::file("file now", 7, 700),
        Node::dir("dir now"),
        Node::file("dir now/x", 8, 80),
        Node::symlink("link now", "large"),
        Node::dir("new dir"),
        Node::file("new dir/x", 9, 90),
    ]))
}

/// Makes files that only grow: the first `parts` of two parts each.
fn logs(parts: u64) -> Tree {
    let mtime = (1_300_000_000 + i64::try_from(parts).unwrap(), 0);
    let small = (0..6).map(|index| Node::file(format!("d/f{index}"), index, parts * (1500 + index)));
    let files = small.chain([Node::file("large", 9, parts * 350_000)]);
    Tree::of(
        [Node::dir("d")].into_iter().chain(files).map(|node| Node { mtime, ..node }).chain([Node::file(
            format!("d/of state {parts}"),
            7,
            4000,
        )]),
    )
}

impl Bench {
    /// Makes a bench; returns `None` with the test recorded as skipped.
    fn new(format: Format, old: &Tree, options: &'static [&'static str]) -> Option<Self> {
        Self::between(format, old, &new_tree(), options)
    }

    fn between(format: Format, old: &Tree, new: &Tree, options: &'static [&'static str]) -> Option<Self> {
        let scratch = Scratch::new();
        let disk = Disk::create(scratch.path(), format, 64)?;
        old.plant(&scratch.at("old"));
        new.plant(&scratch.src());
        let (old, new) = (survey(&scratch.at("old")), survey(&scratch.src()));
        Some(Self { format, scratch, disk, old, new, options, promise: Promise::of(options), pulls: false })
    }

    /// Makes a bench with a part of a file in `.parts`, as an interrupted run leaves it.
    fn with_part(format: Format, options: &'static [&'static str]) -> Option<Self> {
        let big = || Node::file("big", 3, 20 << 20);
        let new = Tree::of(new_tree().nodes.into_iter().chain([big()]));
        let mut bench = Self::between(format, &old_tree(), &new, options)?;
        let (alone, old) = (bench.scratch.at("alone"), bench.scratch.at("old"));
        Tree::of([big()]).plant(&alone);
        let sshd = Sshd::shared();
        let outcome = until_met(|| {
            let _ = fs::remove_dir_all(old.join(".parts"));
            let _ = fs::remove_file(old.join("big"));
            let slowly = sshd.run(Via::Ssh).args(["-a", "--partial-dir=.parts", "--bwlimit=8m"]);
            let running = slowly.arg(sshd.operand(slash(&alone))).arg(&old).start();
            let caught = catch(running.id(), || (1..12).contains(&finished_segments(&old.join(".parts"))));
            running.signal(Signal::INT);
            running.signal(Signal::CONT);
            let outcome = running.wait();
            (caught && outcome.code() != Some(0)).then_some(outcome)
        });
        let _ = outcome.expect_code(20);
        assert_eq!(hidden(&old.join(".parts")), 2, "the part and its notes");
        bench.old = survey(&old);
        bench.pulls = true;
        Some(bench)
    }

    fn dst(&self) -> PathBuf {
        self.disk.path().join("dst")
    }

    /// Resets the destination to the old state, on the disk.
    fn reset(&self) {
        for dir in ["dst", "backup", "beside"] {
            let _ = fs::remove_dir_all(self.disk.path().join(dir));
        }
        fs::create_dir_all(self.disk.path().join("temporaries")).unwrap();
        if self.options.iter().any(|option| option.ends_with("=../beside")) {
            let beside = self.disk.path().join("beside");
            let _ = Run::of("cp").arg("-a").arg(self.scratch.src()).arg(&beside).run().expect_code(0);
            for changed in ["large", "d0/f0"] {
                fs::write(beside.join(changed), "another state").unwrap();
            }
        }
        if self.old.len() > 1 {
            let _ = Run::of("cp").arg("-a").arg(self.scratch.at("old")).arg(self.dst()).run().expect_code(0);
        }
        let _ = Run::of("sync").arg("-f").arg(self.disk.path()).run().expect_code(0);
    }

    /// Makes a run of the program without options and operands.
    fn program(&self) -> Run {
        if self.pulls { Sshd::shared().run(Via::Ssh) } else { Run::dsync() }
    }

    fn finish(&self, run: Run) -> Outcome {
        self.operands(run.args(self.options)).run()
    }

    fn operands(&self, run: Run) -> Run {
        let source = slash(&self.scratch.src());
        let source = if self.pulls { Sshd::shared().operand(source) } else { source };
        run.arg(source).arg(self.dst())
    }

    /// Makes the run after a power cut.
    fn put_right(&self) {
        if self.promise == Promise::Longer {
            let _ = self.operands(self.program().args(["-a", "--delete"])).run().expect_quiet_success();
            return;
        }
        let _ = self.finish(self.program()).expect_quiet_success();
    }

    /// Kills a run at its `count`-th `call` and cuts the power; returns `false` if there are fewer.
    fn cut_at(&self, call: &str, count: usize) -> bool {
        self.reset();
        let run = strace::inject_into(self.program(), call, &format!("signal=KILL:when={count}"));
        let outcome = self.finish(run);
        let killed = outcome.code() != Some(0);
        assert!(!killed || outcome.code().is_none_or(|code| code == 137), "{}", outcome.account());
        self.disk.cut_power();
        let when = format!("power cut at {call} number {count}, {:?}", self.options);
        if killed {
            self.assert_whole(&when);
            self.put_right();
        }
        assert_same(&self.scratch.src(), &self.dst(), Scope::full());
        assert_eq!(compare::temporaries(&self.dst()), Vec::<String>::new(), "{when}");
        killed
    }

    /// Returns whether a file written in place may hold this.
    fn may_be_mixed(&self, path: &[u8], facts: &Facts) -> bool {
        let (Some(old), Some(new)) = (self.old.get(path), self.new.get(path)) else { return false };
        match self.promise {
            _ if facts.kind != "file" => false,
            Promise::Found => true,
            Promise::Longer => {
                let path = OsStr::from_bytes(path);
                let begins = |dir: PathBuf| {
                    let content = fs::read(dir.join(path)).unwrap();
                    content[..usize::try_from(old.size).unwrap()].to_vec()
                };
                (old.size..=new.size).contains(&facts.size)
                    && begins(self.dst()) == begins(self.scratch.src())
            }
            Promise::OldOrNew | Promise::Kept => false,
        }
    }

    fn assert_whole(&self, when: &str) {
        let now = if self.dst().exists() { survey(&self.dst()) } else { BTreeMap::new() };
        let same = |facts: &Facts, was: Option<&Facts>| {
            was.is_some_and(|was| (was.kind, &was.content) == (facts.kind, &facts.content))
        };
        for (path, facts) in &now {
            let shown = compare::show(path);
            let own = path.split(|&byte| byte == b'/').any(|name| name.starts_with(b".dsync-"));
            let whole = same(facts, self.old.get(path)) || same(facts, self.new.get(path));
            assert!(own || whole || self.may_be_mixed(path, facts), "{shown} is neither old nor new, {when}");
        }
        if self.promise == Promise::Kept {
            let backup = self.disk.path().join("backup");
            let kept = if backup.exists() { survey(&backup) } else { BTreeMap::new() };
            for (path, facts) in self.old.iter().filter(|(_, facts)| facts.kind == "file") {
                let whole = same(facts, now.get(path)) || same(facts, kept.get(path));
                assert!(whole, "the old {} is in neither place, {when}", compare::show(path));
            }
        }
        // A destination that did not exist before may be missing.
        let old = if self.old.len() > 1 { &self.old } else { &BTreeMap::new() };
        for path in old.keys().filter(|path| self.new.contains_key(*path)) {
            assert!(now.contains_key(path), "{} is gone, {when}", compare::show(path));
        }
    }
}

/// Calls that change the disk, or make changes durable.
const CALLS: [&str; 15] = [
    "pwrite64",
    "copy_file_range",
    "renameat",
    "renameat2",
    "unlinkat",
    "mkdirat",
    "symlinkat",
    "syncfs",
    "fsync",
    "fdatasync",
    "fchmod",
    "fchown",
    "utimensat",
    "ftruncate",
    "linkat",
];

/// Cuts everywhere, or at a few places that differ from one `salt` to the next.
fn sweep(format: Format, old: &Tree, options: &'static [&'static str], salt: usize) {
    if let Some(bench) = Bench::new(format, old, options) {
        sweep_on(&bench, salt);
    }
}

fn sweep_on(bench: &Bench, salt: usize) {
    // The program's own loader makes none of these calls, so each kind is met in the run or not at
    // all.
    if env::var_os("DSYNC_CRASH").is_some_and(|how| how == "long") {
        for call in CALLS {
            let last = (1..).find(|&count| !bench.cut_at(call, count)).unwrap_or(0);
            println!("{:?} {:?}: {} cuts at {call}", bench.format, bench.options, last - 1);
        }
        return;
    }
    let mut killed = 0;
    for (call, counts) in [
        ("copy_file_range,pwrite64", [1, 2]),
        ("renameat,renameat2", [1, 6]),
        ("syncfs", [1, 2]),
        ("unlinkat", [1, 3]),
    ] {
        killed += usize::from(bench.cut_at(call, counts[salt % 2]));
    }
    let others = ["mkdirat", "symlinkat", "renameat2", "fchmod"];
    killed += usize::from(bench.cut_at(others[salt % others.len()], 1));
    assert!(killed > 0, "no run was killed");
}

#[test]
fn first_copy_is_cut_on_ext4() {
    needs_dsync!();
    sweep(Format::Ext4, &Tree::default(), &["-a"], 0);
}

#[test]
fn update_with_deletions_is_cut_on_ext4() {
    needs_dsync!();
    sweep(Format::Ext4, &old_tree(), &["-a", "--delete"], 1);
}

#[test]
fn update_with_each_file_synced_is_cut_on_ext4() {
    needs_dsync!();
    sweep(Format::Ext4, &old_tree(), &["-a", "--delete-during", "--durability=file"], 2);
}

#[test]
fn first_copy_is_cut_on_xfs() {
    needs_dsync!();
    sweep(Format::Xfs, &Tree::default(), &["-a"], 1);
}

#[test]
fn update_with_deletions_is_cut_on_xfs() {
    needs_dsync!();
    sweep(Format::Xfs, &old_tree(), &["-a", "--delete"], 0);
}

#[test]
fn update_in_place_is_cut_and_the_next_run_finds_what_is_mixed() {
    needs_dsync!();
    sweep(Format::Ext4, &old_tree(), &["-a", "--delete", "--inplace"], 0);
    sweep(Format::Xfs, &old_tree(), &["-a", "--delete", "--inplace"], 1);
}

#[test]
fn linked_tree_is_cut() {
    needs_dsync!();
    sweep(Format::Ext4, &Tree::default(), &["-a", "--link-dest=../beside"], 3);
    sweep(Format::Xfs, &old_tree(), &["-a", "--delete", "--link-dest=../beside"], 0);
}

#[test]
fn update_with_backups_is_cut_and_every_old_file_is_somewhere() {
    needs_dsync!();
    sweep(Format::Ext4, &old_tree(), &["-a", "--delete", "--backup", "--backup-dir=../backup"], 1);
    sweep(Format::Xfs, &old_tree(), &["-a", "--delete", "--backup", "--backup-dir=../backup"], 2);
}

#[test]
fn update_by_way_of_another_directory_is_cut() {
    needs_dsync!();
    sweep(Format::Ext4, &old_tree(), &["-a", "--delete", "--temp-dir=../temporaries"], 0);
    // On another filesystem: arriving files are copied to the disk.
    sweep(Format::Xfs, &old_tree(), &["-a", "--delete", "--temp-dir=/tmp"], 1);
}

#[test]
fn update_with_names_at_the_end_is_cut() {
    needs_dsync!();
    sweep(Format::Ext4, &old_tree(), &["-a", "--delete", "--delay-updates"], 1);
    sweep(Format::Xfs, &old_tree(), &["-a", "--delete", "--delay-updates", "--durability=file"], 0);
}

#[test]
fn update_that_adds_to_files_is_cut_and_keeps_what_was_there() {
    needs_dsync!();
    for (format, options, salt) in [
        (Format::Ext4, &["-a", "--delete", "--append"][..], 0),
        (Format::Xfs, &["-a", "--delete", "--append"], 1),
        (Format::Ext4, &["-a", "--delete", "--append-verify"], 1),
        (Format::Xfs, &["-a", "--delete", "--append-verify"], 0),
    ] {
        let Some(bench) = Bench::between(format, &logs(1), &logs(2), options) else { return };
        sweep_on(&bench, salt);
    }
}

#[test]
fn update_that_takes_up_a_part_is_cut() {
    needs_dsync!();
    for (format, salt) in [(Format::Ext4, 0), (Format::Xfs, 1)] {
        let options = &["-a", "--delete", "--partial-dir=.parts"];
        let Some(bench) = Bench::with_part(format, options) else { return };
        sweep_on(&bench, salt);
    }
}

#[test]
fn update_after_deletions_is_cut() {
    needs_dsync!();
    sweep(Format::Ext4, &old_tree(), &["-a", "--delete-before"], 3);
}

#[test]
fn moved_files_are_never_gone_from_both_sides() {
    needs_dsync!();
    let Some(bench) = Bench::new(Format::Ext4, &old_tree(), &["-a", "--force", "--remove-source-files"])
    else {
        return;
    };
    let long = env::var_os("DSYNC_CRASH").is_some_and(|how| how == "long");
    let mut killed = 0;
    for (call, counts) in [("unlinkat", 1..12), ("syncfs", 1..6), ("renameat,renameat2", 1..12)] {
        for count in counts.step_by(if long { 1 } else { 5 }) {
            let _ = fs::remove_dir_all(bench.scratch.src());
            new_tree().plant(&bench.scratch.src());
            bench.reset();
            let outcome = bench.finish(strace::inject(call, &format!("signal=KILL:when={count}")));
            killed += usize::from(outcome.code() != Some(0));
            bench.disk.cut_power();
            let [left, moved] = [bench.scratch.src(), bench.dst()].map(|dir| survey(&dir));
            let is = |facts: &Facts, found: Option<&Facts>| {
                found.is_some_and(|found| found.content == facts.content)
            };
            for (path, facts) in bench.new.iter().filter(|(_, facts)| facts.kind != "dir") {
                let somewhere = is(facts, left.get(path)) || is(facts, moved.get(path));
                assert!(somewhere, "{} is gone, killed at {call} {count}", compare::show(path));
            }
        }
    }
    assert!(killed > 2, "{killed} runs were killed");
}

#[test]
fn exit_zero_survives_a_power_cut_on_xfs_and_with_every_way_to_delete() {
    needs_dsync!();
    for (format, options) in [
        (Format::Xfs, &["-a", "--delete"][..]),
        (Format::Xfs, &["-a", "--del", "--durability=file"]),
        (Format::Ext4, &["-a", "--del"]),
    ] {
        let Some(bench) = Bench::new(format, &old_tree(), options) else { return };
        bench.reset();
        let _ = bench.finish(Run::dsync()).expect_quiet_success();
        bench.disk.cut_power();
        assert_same(&bench.scratch.src(), &bench.dst(), Scope::full());
    }
}

#[test]
fn rsync_that_syncs_each_file_loses_names_on_the_same_bench() {
    // The control: if nothing were ever lost here, the other tests would prove nothing.
    for format in [Format::Ext4, Format::Xfs] {
        let Some(bench) = Bench::new(format, &old_tree(), &["-a", "--delete", "--fsync"]) else { return };
        bench.reset();
        let _ = bench.finish(Run::of("rsync")).expect_code(0);
        bench.disk.cut_power();
        let lost = differences(&bench.scratch.src(), &bench.dst(), Scope::CONTENT);
        println!("{format:?}: after rsync's exit 0 and a power cut\n{}", lost.join("\n"));
        assert!(!lost.is_empty(), "rsync --fsync lost nothing on {format:?}");
    }
}
