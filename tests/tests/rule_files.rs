//! Files of filter rules in the tree, and rules for one end, choose and protect as rsync's do.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    time::{Duration, SystemTime},
};

use dsync_tests::{
    Outcome, Run, Scope, Scratch, Sshd, Via, assert_same, differences, every_way_of, needs_dsync, oracle,
    scratch::slash, survey,
};

/// The trees were made at different times.
const NAMES: Scope = Scope {
    owners: true,
    modes: true,
    times: false,
    dir_times: false,
    root: false,
    xattrs: true,
    links: false,
    atimes: false,
};

/// A case: files of the source and of the destination (a directory ends with `/`, a `=` begins the
/// text), and the options.
struct Case {
    source: &'static [&'static str],
    destination: &'static [&'static str],
    options: &'static [&'static str],
}

const fn case(
    source: &'static [&'static str],
    destination: &'static [&'static str],
    options: &'static [&'static str],
) -> Case {
    Case { source, destination, options }
}

/// Cases that both programs treat alike, with each time of deletion where it matters.
#[rustfmt::skip]
const CASES: &[Case] = &[
    // The order of rules, inheritance, anchors.
    case(&["a", "d/a", "d/b", ".f=- a\n"], &[], &["-f", ": .f"]),
    case(&["a", "b", "d/a", "d/b", ".f=- a\n", "d/.f=+ a\n- b\n"], &[], &["-f", ": .f"]),
    case(&["a", "b", "d/a", "d/b", ".f=- a\n", "d/.f=!\n- b\n"], &[], &["-f", ": .f"]),
    case(&["a", "d/a", ".f=- /a\n"], &[], &["-f", "dir-merge .f"]),
    case(&["d/x", "d/y", "d/e/x", "d/.f=- d/x\n- e/x\n"], &[], &["-f", ": .f"]),
    case(&["a", "d/a", ".f=- a\n"], &[], &["-f", ":n .f"]),
    case(&["a", ".f=- a\n"], &[], &["-f", "+ a", "-f", ": .f"]),
    case(&["a", ".f=+ a\n"], &[], &["-f", ": .f", "-f", "- a", "-f", ": .f"]),
    // Modifiers of files.
    case(&["a", "b", "#", "h", ".f=a b # h\n"], &[], &["-f", ":w- .f"]),
    case(&["a", "b", "c", ".f=-_a -_b"], &[], &["-f", ":w .f"]),
    case(&["a", "b", "- b", "!", ".f=a\n- b\n!\n"], &[], &["-f", ":- .f"]),
    case(&["a", "b", ".f=a\n"], &[], &["-f", ":+ .f", "-f", "- *"]),
    case(&["a", "b", ".f=+ .f\n- a\n"], &[], &["-f", ":e .f"]),
    case(&["a", "b", "c", "s/a", ".cvsignore=a !  b\n"], &[], &["-f", ":C"]),
    case(&["a", "b", ".g=a !  b\n"], &[], &["-f", ":C .g"]),
    case(&["s/a", "s/b", ".f=- src/s/a\n"], &[], &["-f", ":/ .f"]),
    // Lines.
    case(&["a", "b", "c", "d", ".f=# no\n; no\n\n- a\r\n- b\r- c"], &[], &["-f", ": .f"]),
    case(&["a", "b ", ".f=- a \n- b \n"], &[], &["-f", ": .f"]),
    // Files that name others.
    case(&["a", "s/a", ".f=. .g\n", ".g=- /a\n"], &[], &["-f", ": .f"]),
    case(&["a", "s/a", "s/.f=. ../.g\n", ".g=- a\n"], &[], &["-f", ": .f"]),
    case(&["a", "b", "s/a", "s/b", ".f=: .g\n", ".g=- a\n", "s/.g=- b\n"], &[], &["-f", ": .f"]),
    // A name that was dropped counts anew where the same file or one below states it again.
    case(&["a", "b", ".f=: .g\n!\n: .g\n", ".g=- a\n- k\n"], &["k", "z", ".f=: .g\n!\n: .g\n", ".g=- k\n"],
        &["-f", ": .f", "--delete"]),
    case(&["s/t/a", "s/t/b", "s/.f=: .g\n!\n", "s/t/.f=: .g\n", "s/t/.g=- a\n- k\n"],
        &["s/t/k", "s/t/z", "s/.f=: .g\n!\n", "s/t/.f=: .g\n", "s/t/.g=- k\n"], &["-f", ": .f", "--delete"]),
    case(&["s/t/a", "s/t/b", "s/t/c", ".f=: .g\n!\n", "s/.f=: .h\n", "s/t/.f=: .g\n", "s/t/.g=- a\n", "s/t/.h=- b\n"],
        &[], &["-f", ": .f"]),
    case(&["a", "s/a", ".f=: .g\n!\n", "s/.g=no rule\n"], &[], &["-f", ": .f"]),
    // One that a file above states is known for good.
    case(&["s/t/a", ".f=: .g\n", "s/.f=!\n: .g\n", "s/t/.g=- a\n"], &[], &["-f", ": .f"]),
    case(&["s/t/a", ".f=: .g\n", "s/.f=!\n", "s/t/.f=: .g\n", "s/t/.g=- a\n"], &[], &["-f", ": .f"]),
    // The rule that excludes a file of rules has no modifiers.
    case(&["s/a", "s/.g=- a\n"], &[".g=- z\n", "old/.g=- z\n"], &["-f", ":e .g", "--delete"]),
    case(&["s/a", "s/.g=- a\n"], &[".g=- z\n", "old/.g=- z\n"], &["-f", ":es .g", "--delete"]),
    case(&["s/a", "s/.g=- a\n"], &[".g=- z\n", "old/.g=- z\n"], &["-f", "dir-merge,er .g", "--delete"]),
    case(&["s/a", "s/.g=- a\n"], &[".g=- z\n", "old/.g=- z\n"], &["-f", ":ep .g", "--delete"]),
    case(&["s/a", "s/.g=- a\n"], &[".g=- z\n", "old/.g=- z\n"], &["-f", ":es .g", "--delete-excluded"]),
    case(&["s/a", "s/.g=- a\n", ".f=:es .g\n"], &[".g=- z\n", "old/.g=- z\n", ".f=:es .g\n"], &["-f", ": .f", "--delete"]),
    case(&["s/a", "s/.g=- a\n", ".f=:er .g\n"], &[".g=- z\n", "old/.g=- z\n", ".f=:er .g\n"], &["-f", ": .f", "--delete"]),
    case(&["s/a", "s/.g=- a\n", ".f=:ep .g\n"], &[".g=- z\n", "old/.g=- z\n", ".f=:ep .g\n"], &["-f", ": .f", "--delete"]),
    case(&["s/a", "s/.g=- a\n", ".f=:e .g\n"], &[".g=- z\n", "old/.g=- z\n", ".f=:e .g\n"], &["-f", ": .f", "--delete-excluded"]),
    case(&["s/a", "s/.g=- a\n", ".f=:e .g\n"], &[".g=- z\n", "old/.g=- z\n", ".f=:e .g\n"], &["-f", ":p .f", "--delete"]),
    // An entry stays that a file excludes which another one names, also with --delete-excluded.
    case(&["c", ".f=. .g\n", ".g=- k\n"], &["k", "s/k", "z", ".f=. .g\n", ".g=- k\n"], &["-f", ": .f", "--delete-excluded"]),
    case(&["c", ".f=.- .g\n", ".g=k\n"], &["k", "s/k", "z", ".f=.- .g\n", ".g=k\n"], &["-f", ": .f", "--delete-excluded"]),
    case(&["c", ".f=. .g\n", ".g=-C\n"], &["k~", "z", ".f=. .g\n", ".g=-C\n"], &["-f", ": .f", "--delete-excluded"]),
    // Patterns that match nothing.
    case(&["a.o", "b", "s/c", ".cvsignore=[a-z *.o\n"], &["q", "q.o"], &["-C", "--delete"]),
    case(&["a.o", "b", "s/c", "[a-z", ".gitignore=[a-z\n*.o\n"], &["q"], &["-f", ":- .gitignore", "--delete"]),
    case(&["a", "b", "[b", ".f=- [b\n- a\n"], &["q", "[b", ".f=- [b\n"], &["-f", ": .f", "--delete"]),
    case(&["a", "b", "[b", ".f=+ [[:foo:]]\n+ b*\\\n- b\n"], &[], &["-f", ": .f"]),
    case(&["a", "b", "s/c", "s/.f=-! [b\n"], &[], &["-f", ": .f"]),
    case(&["a", "b", "s/c", "s/.f=-! [b/\n"], &[], &["-f", ": .f"]),
    // Modifiers of rules.
    case(&["a", "b", "s/c"], &[], &["-f", "-! */"]),
    case(&["a", "b", "s/c"], &[], &["-f", "-! a"]),
    case(&["s/a", "s/b"], &["x"], &["-f", "-/ src/s/a", "--delete"]),
    case(&["s/a", "s/b", ".f=-/ src/s/a\n"], &[], &["-f", ": .f"]),
    // Sides.
    case(&["a", "c"], &["a", "b"], &["-f", "H a", "--delete"]),
    case(&["a", "c"], &["b", "k"], &["-f", "P k", "--delete"]),
    case(&["c"], &["a", "b.keep"], &["-f", "R a", "-f", "P *", "--delete"]),
    case(&["a", "c"], &["a"], &["-f", "S a", "-f", "H *", "--delete"]),
    case(&["c"], &["z", "k"], &["-f", "-s z", "-f", "-r k", "--delete"]),
    case(&["c", "a", ".f=- a\n"], &["a", ".f=- a\n"], &["-f", ":s .f", "--delete"]),
    case(&["c", "a", ".f=- a\n- z\n"], &["z", ".f=- z\n"], &["-f", ":r .f", "--delete"]),
    // Perishable.
    case(&["c"], &["old/z", "old/y", "z"], &["-f", "-p z", "--delete"]),
    case(&["c"], &["old/z", "old/y", "z"], &["-f", "- z", "--delete"]),
    case(&["c", "old/"], &["old/z", "old/y", "z"], &["-f", "-p z", "--delete"]),
    case(&["c"], &["old/.f=-p z\n", "old/z", "old/y"], &["-f", ": .f", "--delete"]),
    // The destination's own files: before, with and below what goes.
    case(&["c"], &["z", ".f=- z\n"], &["-f", ": .f", "--delete"]),
    case(&["c"], &["old/z", "old/y", ".f=- z\n"], &["-f", ": .f", "--delete"]),
    case(&["c"], &["old/z", "old/y", "old/.f=- z\n"], &["-f", ": .f", "--delete"]),
    case(&["d/c"], &["d/z", "d/old/z", "d/old/y", ".f=- z\n"], &["-f", ": .f", "--delete"]),
    case(&["d/c", ".f=- z\n"], &["d/z", "y", ".f=- y\n"], &["-f", ": .f", "-f", "- .f", "--delete"]),
    case(&["c", ".f=- a\n"], &["a", ".f=- a\n"], &["-f", ": .f", "--delete-excluded"]),
    case(&["c", ".f=-r a\n"], &["a", ".f=-r a\n"], &["-f", ": .f", "--delete-excluded"]),
    case(&["c"], &["a", "k"], &["-f", "P k", "-f", "- a", "--delete-excluded"]),
    // Short options.
    case(&["a", "b", ".rsync-filter=- a\n"], &[], &["-F"]),
    case(&["a", "b", ".rsync-filter=- a\n"], &["z", ".rsync-filter=- z\n"], &["-FF", "--delete"]),
    case(&["a", "b", ".rsync-filter=- a\n"], &[], &["--include=.rsync-filter", "-FF"]),
    case(&["a", "b", ".rsync-filter=- a\n"], &[], &["--include=a", "-F"]),
    case(&["a.o", "b", "core", "z", "core2/", ".git/x", ".cvsignore=z\n"], &["q.o", "old/q.o"], &["-C", "--delete"]),
    case(&["a.o", "b", "z", ".cvsignore=z\n"], &[], &["-C", "--include=a.o"]),
    case(&["a.o", "b", "z", ".cvsignore=z\n"], &[], &["-f", "-C"]),
    case(&["a.o", "b"], &["c.o"], &["-f", "-Cs", "--delete"]),
];

fn plant(at: &Path, files: &[&str]) {
    fs::create_dir_all(at).unwrap();
    for file in files {
        let (path, text) = file.split_once('=').unwrap_or((file, ""));
        let path = at.join(path);
        if file.ends_with('/') {
            fs::create_dir_all(path).unwrap();
        } else {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }
}

/// Plants files that no quick check takes for the source's.
fn plant_old(at: &Path, files: &[&str]) {
    plant(at, files);
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for file in files.iter().filter(|file| !file.ends_with('/')) {
        let path = at.join(file.split('=').next().unwrap());
        fs::File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
    }
}

/// Runs both programs on equal trees, each in a directory of its own so that paths are equal.
/// Returns what differs.
fn compare(case: (&[&str], &[&str], &[&str]), operands: [&str; 2], may_fail: bool) -> Option<String> {
    let (source, destination, options) = case;
    let scratch = Scratch::new();
    let outcomes: [Outcome; 2] =
        [("rsync", Run::of("rsync")), ("dsync", Run::dsync())].map(|(name, program)| {
            let at = scratch.at(name);
            plant(&at.join("src"), source);
            plant_old(&at.join("dst"), destination);
            program.args(["-a"]).args(options).args(operands).cwd(&at).run()
        });
    let [theirs, ours] = ["rsync/dst", "dsync/dst"].map(|dst| scratch.at(dst));
    let found = differences(&theirs, &ours, NAMES);
    // rsync ends with one that it cannot read; dsync leaves its directory alone.
    if may_fail && outcomes[0].code() != Some(0) {
        return None;
    }
    // Before 3.5.0 a `!` among the words of a file for CVS was refused, and nothing above was read.
    let is_reference = oracle::is_since((3, 5, 0))
        || outcomes[0].code() != Some(1) && !options.iter().any(|option| option.contains("../"));
    if !is_reference {
        return None;
    }
    let same = found.is_empty() && outcomes[0].code() == outcomes[1].code();
    let accounts = || outcomes.iter().map(Outcome::account).collect::<Vec<_>>().join("\n");
    (!same).then(|| format!("{source:?} {destination:?} {options:?}: {found:?}\n{}", accounts()))
}

/// The times of deletion at which both programs take the same copy of a file of rules.
const TIMES: [&str; 3] = ["--delete-after", "--delete-during", "--delete-before"];

#[test]
fn rule_files_choose_and_protect_as_rsyncs_do() {
    let mut wrong = Vec::new();
    for Case { source, destination, options } in CASES {
        let deletes = options.iter().any(|option| option.starts_with("--delete"));
        for time in TIMES.iter().take(if deletes { 3 } else { 1 }) {
            let mut options: Vec<&str> =
                options.iter().copied().filter(|option| *option != "--delete").collect();
            options.extend(deletes.then_some(*time));
            wrong.extend(compare((source, destination, &options), ["src/", "dst/"], false));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn files_above_the_operands_count_where_they_are_named_from_the_root() {
    for (files, options, operands) in [
        (&["s/a", "s/b", ".f=- a\n"][..], &["-f", ": .f"][..], ["src/s", "dst/"]),
        (&["s/a", "s/b", ".f=- a\n"], &["-f", ": /.f"], ["src/s", "dst/"]),
        (&["s/a", "s/b", ".f=- a\n"], &["-f", ": /.f"], ["src/s/", "dst/"]),
        (&["s/a", "s/b", ".f=- /s/a\n"], &["-f", ": /.f"], ["src/s/", "dst/"]),
        (&["s/a", "s/b", ".f=- /s/a\n"], &["-f", ": /.f"], ["src/s", "dst/"]),
        (&["s/a", "s/b", ".f=- s\n"], &["-f", ": /.f"], ["src/s", "dst/"]),
        // A file above that names another for each directory.
        (&["s/t/a", "s/t/b", ".f=: .g\n", "s/t/.g=- a\n"], &["-f", ": /.f"], ["src/s/", "dst/"]),
        (&["s/t/a", "s/t/b", ".f=:- .g\n", "s/t/.g=a\n"], &["-f", ": /.f"], ["src/s/", "dst/"]),
        (
            &["s/t/a", "s/t/b", "s/t/c", ".f=: .g\n", ".g=- a\n", "s/.g=- b\n"],
            &["-f", ": /.f"],
            ["src/s/t/", "dst/"],
        ),
        (
            &["s/t/a", "s/t/b", "s/t/c", ".f=: .g\n", ".g=- a\n", "s/.g=- b\n"],
            &["-f", ": /.f"],
            ["src/s/t", "dst/"],
        ),
        (&["s/t/a", "s/b", ".f=:n .g\n", "s/.g=- a\n- b\n"], &["-f", ": /.f"], ["src/s/", "dst/"]),
        (
            &["s/t/a", "s/t/b", ".f=: .g\n!\n", "s/.f=: .g\n", "s/t/.g=- a\n"],
            &["-f", ": /.f"],
            ["src/s/", "dst/"],
        ),
        (&["s/t/a", "s/t/b", ".f=: .g\n", "s/.f=!\n", "s/t/.g=- a\n"], &["-f", ": /.f"], ["src/s/", "dst/"]),
        (
            &["s/a", "s/b", "s/c", ".f=: .g\n+ *\n", "s/.f=: .h\n", "s/.g=- a\n", "s/.h=- b\n"],
            &["-f", ": /.f"],
            ["src/s/", "dst/"],
        ),
        (&["s/a", "s/b", ".f=- a\n"], &["-f", ": ../.f"], ["src/s/", "dst/"]),
        (&["s/t/a", "s/t/b", ".f=- a\n"], &["-f", ": ../.f"], ["src/s/t/", "dst/"]),
        (&["s/a", "s/b", "s/.f=!\n", ".f=- a\n"], &["-f", ": /.f"], ["src/s/", "dst/"]),
    ] {
        if let Some(difference) = compare((files, &[], options), operands, false) {
            panic!("{difference}");
        }
    }
    for time in TIMES {
        for (name, operands) in [(": /.f", ["src/s", "dst/"]), (": .f", ["src/s", "dst/"])] {
            let (source, destination) = (&["s/a", "s/b"], &["s/a", "s/z", "s/y", ".f=- z\n"]);
            let difference = compare((source, destination, &["-f", name, time]), operands, false);
            assert_eq!(difference, None);
        }
        // One above the destination that names another.
        let (source, destination) = (&["t/a"], &["d/t/k", "d/t/z", "d/t/.g=P k\nP .g\n", ".f=: .g\n"]);
        let difference = compare((source, destination, &["-f", ": /.f", time]), ["src/", "dst/d/"], false);
        assert_eq!(difference, None);
    }
}

/// A small generator, so that a failing case is named by its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.roll(choices.len())]
    }
}

#[test]
fn drawn_rules_in_drawn_trees_do_what_rsyncs_do() {
    const DIRS: &[&str] = &["", "d/", "d/e/", "k/", "old/", "old/e/"];
    const NAMES: &[&str] = &["a", "b", "c.o", "x"];
    const RULES: &[&str] = &[
        "- a", "- /a", "+ b", "- *.o", "- e/", "- /e/**", "+ /d/", "- d/*", "P x", "H x", "S a", "R b",
        "-p c.o", "-s a", "-r b", "- **/x", "!", "-! */", ": .g", "- old/", "+ *", "-_x", "hide b",
    ];
    const FILES: &[&str] = &[": .f", ":n .f", ":e .f", ":s .f", ":r .f", ":- .f", ": /.f", ":p .f", ": .f"];
    const COMMAND: &[&str] = &["- c.o", "+ a", "P old/x", "H b", "-p x", "R a"];
    let mut wrong = Vec::new();
    for seed in 0..120 {
        let dice = &mut Dice(seed);
        for _ in 0..4 {
            dice.roll(2);
        }
        let draw = |dice: &mut Dice, dirs: &[&str]| {
            let mut files = vec!["kept".to_owned()];
            for dir in dirs {
                let chosen: Vec<_> = NAMES.iter().filter(|_| dice.roll(2) == 0).collect();
                files.extend(chosen.into_iter().map(|name| format!("{dir}{name}")));
                for name in [".f", ".g"] {
                    if dice.roll(3) == 0 {
                        let plain = |rule: &&str| name == ".f" || !rule.contains(".g");
                        let rules: Vec<_> =
                            (0..=dice.roll(3)).map(|_| dice.of(RULES)).filter(plain).collect();
                        files.push(format!("{dir}{name}={}\n", rules.join("\n")));
                    }
                }
            }
            files
        };
        let (source, destination) = (draw(dice, &DIRS[..4]), draw(dice, DIRS));
        let mut options = vec!["-f", dice.of(FILES)];
        if dice.roll(2) == 0 {
            options.splice(0..0, ["-f", dice.of(COMMAND)]);
        }
        if dice.roll(2) == 0 {
            options.extend(["-f", dice.of(COMMAND)]);
        }
        // A file for one side may not state sides itself.
        if options.iter().any(|option| matches!(*option, ":s .f" | ":r .f")) {
            options = vec!["-f", ":- .f"];
        }
        options.push(dice.of(&TIMES));
        if dice.roll(5) == 0 {
            options.push("--delete-excluded");
        }
        let [source, destination] =
            [&source, &destination].map(|files| files.iter().map(String::as_str).collect::<Vec<_>>());
        let difference = compare((&source, &destination, &options), ["src/", "dst/"], true);
        wrong.extend(difference.map(|difference| format!("seed {seed}: {difference}")));
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn rule_files_hold_over_the_wire_in_both_directions() {
    let sshd = Sshd::shared();
    let source = ["a", "b", "d/a", "d/c", "d/.rsync-filter=- c\n", ".rsync-filter=- /a\n- z\n"];
    let destination = ["z", "y", "d/z", "d/old/z", "d/old/y"];
    for via in Via::EACH {
        let scratch = Scratch::new();
        plant(&scratch.src(), &source);
        for name in ["rsync", "up", "down"] {
            plant(&scratch.at(name), &destination);
        }
        let rules = ["-aF", "--delete-after", "-f", "P y"];
        let from = slash(&scratch.src());
        let _ = Run::of("rsync").args(rules).arg(&from).arg(scratch.at("rsync")).run().expect_code(0);
        let up = sshd.run(via).args(rules).arg(&from).arg(sshd.operand(scratch.at("up")));
        let _ = up.run().expect_quiet_success();
        let down = sshd.run(via).args(rules).arg(sshd.operand(&from)).arg(scratch.at("down"));
        let _ = down.run().expect_quiet_success();
        for made in ["up", "down"] {
            assert_eq!(differences(&scratch.at("rsync"), &scratch.at(made), NAMES), [""; 0]);
        }
    }
}

#[test]
fn what_is_no_rule_keeps_its_directory_out_and_everything_there() {
    let scratch = Scratch::new();
    plant(&scratch.src(), &["a", "d/.f=password\n", "d/x", "e/x"]);
    plant(&scratch.dst(), &["d/old", "e/old", "old"]);
    let run =
        || Run::dsync().args(["-a", "--delete", "-f", ": .f"]).arg(slash(&scratch.src())).arg(scratch.dst());
    let outcome = run().run().expect_code(23);
    let text = outcome.all_text();
    assert!(text.contains("d/.f") && text.contains("line 1") && !text.contains("password"), "{text}");
    let names = ["a", "d/old", "e/old", "e/x", "old"];
    assert!(names.iter().all(|name| scratch.dst().join(name).exists()), "{text}");
    assert!(!scratch.dst().join("d/x").exists());

    // At the destination it protects what is below it, and nothing else.
    fs::write(scratch.src().join("d/.f"), "- x\n").unwrap();
    plant(&scratch.dst(), &["d/.f=password\n", "d/x"]);
    let outcome = Run::dsync().args(["-a", "--delete-during", "-f", ": .f", "-f", "- .f"]);
    let outcome = outcome.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_code(23);
    assert!(outcome.all_text().contains("line 1"), "{}", outcome.account());
    assert!(scratch.dst().join("d/old").exists() && scratch.dst().join("d/x").exists());
}

#[test]
fn odd_entries_of_that_name_neither_block_nor_lead_out() {
    let scratch = Scratch::new();
    plant(&scratch.src(), &["a", "b", "real=- a\n", "far/a", "pipe/a", "dir/.f/", "dir/a", "near/a"]);
    assert!(
        std::process::Command::new("mkfifo").arg(scratch.src().join("pipe/.f")).status().unwrap().success()
    );
    symlink("/dev/zero", scratch.src().join("far/.f")).unwrap();
    symlink("../real", scratch.src().join("near/.f")).unwrap();
    let outcome = Run::dsync().args(["-r", "-f", ": .f"]).arg(slash(&scratch.src())).arg(scratch.dst()).run();
    let text = outcome.expect_code(23).all_text();
    assert!(text.contains("far/.f") && text.contains("leads out"), "{text}");
    for (name, exists) in
        [("a", true), ("far/a", false), ("pipe/a", true), ("dir/a", true), ("near/a", false)]
    {
        assert_eq!(scratch.dst().join(name).exists(), exists, "{name}");
    }
}

#[test]
fn nothing_goes_at_the_end_that_the_old_rules_or_those_that_arrive_protect() {
    // The rule is new, or is no more: each with the times at which the entry stays.
    let new = (Some("- cache/\n"), None, ["--delete", "--delete-delay", "--delete-after"]);
    let gone = (None, Some("- cache/\n"), ["--delete", "--delete-delay", "--delete-during"]);
    for (source, destination, stays) in [new, gone] {
        for time in ["--delete", "--delete-delay", "--delete-after", "--delete-during", "--delete-before"] {
            let scratch = Scratch::new();
            let trees = [("src", source), ("dst", destination), ("theirs", destination)];
            for (tree, rule) in trees {
                plant(&scratch.at(tree), &["b"]);
                fs::write(scratch.at(tree).join(".rsync-filter"), rule.unwrap_or("- nothing\n")).unwrap();
                if tree != "src" {
                    plant(&scratch.at(tree), &["cache/x", "other"]);
                }
            }
            let run = |program: Run, options: &[&str], to: &str| {
                let run = program.args(["-a", "-i", "-f", ": .rsync-filter", time]).args(options);
                run.arg(slash(&scratch.src())).arg(slash(&scratch.at(to))).run().expect_code(0).stdout_text()
            };
            let deleted = |text: &str| {
                let lines = text.lines().filter(|line| line.starts_with("*deleting"));
                lines.map(str::to_owned).collect::<Vec<_>>()
            };

            let rehearsed = deleted(&run(Run::dsync(), &["-n"], "dst"));
            let done = deleted(&run(Run::dsync(), &[], "dst"));
            let kept = scratch.dst().join("cache/x").exists();
            let expected = stays.contains(&time) || time == "--delete-before" && destination.is_some();
            assert_eq!(kept, expected, "{source:?} {time}: {done:?}");
            if time != "--delete-after" {
                assert!(done.iter().all(|line| rehearsed.contains(line)), "{time}: {rehearsed:?} {done:?}");
            }
            let _ = run(Run::of("rsync"), &[], "theirs");
            let same = scratch.at("theirs/cache/x").exists() == kept;
            let safer = source.is_some() && ["--delete", "--delete-delay"].contains(&time);
            assert!(same || safer && kept, "{source:?} {time}");
            let again = deleted(&run(Run::dsync(), &[], "dst"));
            assert_eq!(again.is_empty(), !(kept && destination.is_some()), "{time}: {again:?}");
        }
    }
}

/// Each of two operands has an entry of the name; the first one's is left out by the files of its own.
#[test]
fn an_entry_of_a_later_operand_is_not_that_which_the_first_one_leaves_out() {
    let sshd = Sshd::shared();
    let first =
        ["b=hidden", "sub/c=hidden", "sub/.rsync-filter=- c\n", ".rsync-filter=- /b\n- l\n", "a=first"];
    let second = ["b=shown", "sub/c=shown", "a=second"];
    for (way, more) in [
        ("local", ""),
        ("push", ""),
        ("pull", ""),
        ("local", "-X"),
        ("local", "--remove-source-files"),
        ("push", "--remove-source-files"),
        ("local", "-R"),
    ] {
        let scratch = Scratch::new();
        let (one, two) = (scratch.at("one"), scratch.at("two"));
        plant(&one, &first);
        plant(&two, &second);
        symlink("hidden", one.join("l")).unwrap();
        symlink("shown", two.join("l")).unwrap();
        let options: Vec<&str> = ["-aF"].into_iter().chain((!more.is_empty()).then_some(more)).collect();
        let operand = |at: &Path| if more == "-R" { at.join("./.").into_os_string() } else { slash(at) };
        let (from, to) = ([operand(&one), operand(&two)], slash(&scratch.dst()));
        let run = match way {
            "local" => Run::dsync().args(&options).args(&from).arg(to),
            "push" => sshd.run(Via::Tls).args(&options).args(&from).arg(sshd.operand(to)),
            _ => sshd.run(Via::Ssh).args(&options).args(from.map(|at| sshd.operand(at))).arg(to),
        };
        let _ = run.run().expect_quiet_success();
        for (path, content) in [("b", "shown"), ("sub/c", "shown"), ("a", "first")] {
            let found = fs::read_to_string(scratch.dst().join(path)).unwrap();
            assert_eq!(found, content, "{way} {more} {path}");
            let (kept, gone) = if content == "shown" { (&one, &two) } else { (&two, &one) };
            let moves = more == "--remove-source-files";
            assert!(kept.join(path).exists() && gone.join(path).exists() != moves, "{way} {more} {path}");
        }
        assert_eq!(fs::read_link(scratch.dst().join("l")).unwrap(), Path::new("shown"), "{way} {more}");
    }
}

/// A directory of the source is below a name that at the destination is no directory yet.
#[test]
fn a_dry_run_looks_for_rules_only_where_there_are_directories() {
    for place in ["link", "file", "missing"] {
        let scratch = Scratch::new();
        plant(&scratch.src(), &["b/b/"]);
        plant(&scratch.dst(), &["other/b/.f=- nonsense here\n"]);
        match place {
            "link" => symlink("other", scratch.dst().join("b")).unwrap(),
            "file" => plant(&scratch.dst(), &["b"]),
            _ => {}
        }
        let run = |more: &str| {
            let run = Run::dsync().args(["-ai", "-f", ": .f", more]).arg(slash(&scratch.src()));
            run.arg(slash(&scratch.dst())).run().expect_code(0)
        };
        let rehearsed = run("-n").all_text();
        assert_eq!(rehearsed, run("--no-n").all_text(), "{place}");
        assert!(rehearsed.contains("cd+++++++++ b/b/"), "{place}: {rehearsed}");
    }
}

/// Runs rsync, and dsync in each direction, with the same words, and asserts equal destinations.
fn as_rsync_does(plant: &dyn Fn(&Path), words: &[&str]) {
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    plant(scratch.path());
    let words: Vec<_> =
        words.iter().map(|word| word.replace("HERE", &scratch.path().display().to_string())).collect();
    let there = |word: &str| sshd.operand(scratch.at("").join(word)).into_string().unwrap();
    let pulled = words.iter().map(|word| if word.starts_with("src/") { there(word) } else { word.clone() });
    for (program, words, to) in [
        (Run::of("rsync"), words.clone(), "theirs/".to_owned()),
        (Run::dsync(), words.clone(), "ours/".to_owned()),
        (sshd.run(Via::Ssh), words.clone(), there("pushed/")),
        (sshd.run(Via::Ssh), pulled.collect(), "pulled/".to_owned()),
    ] {
        let _ = program.args(words).arg(to).cwd(scratch.path()).run().expect_code(0);
    }
    let scope = Scope { dir_times: false, ..Scope::full() };
    for ours in ["ours", "pushed", "pulled"] {
        assert_same(&scratch.at("theirs"), &scratch.at(ours), scope);
        assert!(survey(&scratch.at(ours)).len() > 1, "{words:?}: nothing was copied");
    }
}

#[test]
fn files_above_a_path_do_not_leave_out_what_the_path_names() {
    needs_dsync!();
    let plant = |at: &Path| {
        fs::create_dir_all(at.join("src/sub")).unwrap();
        fs::write(at.join("src/sub/x"), "1").unwrap();
        fs::write(at.join("src/.rsync-filter"), "- sub\n").unwrap();
        fs::write(at.join("src/.gitignore"), "sub\n").unwrap();
        fs::write(at.join("list"), "sub\n").unwrap();
    };
    for words in [
        &["-aR", "-F", "src/./sub"][..],
        &["-aR", "-F", "src/./sub/"],
        &["-a", "-F", "src/sub"],
        &["-aR", "-F", "src/./sub/x"],
    ] {
        as_rsync_does(&plant, words);
    }
    // Above the tree of a list.
    let above = |at: &Path| {
        plant(at);
        fs::rename(at.join("src/.rsync-filter"), at.join(".rsync-filter")).unwrap();
    };
    as_rsync_does(&above, &["-a", "-r", "-F", "--files-from=list", "src/"]);

    // rsync has no such option.
    let scratch = Scratch::new();
    plant(scratch.path());
    for (words, to) in [(["-a", "src/sub"], "plain/sub/x"), (["-aR", "src/./sub"], "relative/sub/x")] {
        let dir = to.split('/').next().unwrap();
        let run = Run::dsync().arg("--gitignore").args(words).arg(dir).cwd(scratch.path());
        let _ = run.run().expect_code(0);
        assert!(scratch.at(to).exists(), "{words:?}");
    }
}

#[test]
fn a_file_above_that_names_another_leaves_out_by_it_in_each_direction() {
    needs_dsync!();
    let files = [".rsync-filter=: nested\n", "sub/deep/nested=- *.key\n", "sub/deep/my.key", "sub/deep/f"];
    as_rsync_does(&|at| plant(&at.join("src"), &files), &["-aF", "src/sub/"]);
}

#[test]
fn absolute_patterns_are_of_the_whole_path_of_what_a_path_names() {
    needs_dsync!();
    let plant = |at: &Path| {
        fs::create_dir_all(at.join("src/sub")).unwrap();
        fs::create_dir_all(at.join("src/x/sub")).unwrap();
        for file in ["src/sub/f", "src/h", "src/x/sub/f"] {
            fs::write(at.join(file), file).unwrap();
        }
        fs::write(at.join("list"), "sub\nx/sub\nh\n").unwrap();
    };
    for words in [
        &["-aR", "--filter=-/ /sub", "src/./sub", "src/./h"][..],
        &["-aR", "--filter=-/ HERE/src/sub", "src/./sub", "src/./h"],
        &["-aR", "--filter=+/ HERE/src/sub", "--filter=- sub", "src/./sub", "src/./h"],
        &["-a", "-r", "--files-from=list", "--filter=-/ /sub", "src/"],
        &["-a", "-r", "--files-from=list", "--filter=-/ HERE/src/sub", "src/"],
        &["-a", "-r", "--no-R", "--files-from=list", "--filter=-/ /sub", "src/"],
    ] {
        as_rsync_does(&plant, words);
    }
}

#[test]
fn rules_speak_of_the_path_that_was_typed_and_not_of_where_its_links_lead() {
    needs_dsync!();
    let scratch = Scratch::new();
    let (real, behind, link) = (scratch.at("real/s"), scratch.at("real/d"), scratch.at("link"));
    for name in ["secret", "f"] {
        fs::create_dir_all(&real).unwrap();
        fs::write(real.join(name), name).unwrap();
    }
    symlink(&real, &link).unwrap();
    fs::write(scratch.at(".rsync-filter"), "- /link/secret\nP /local/keep\nP /push/keep\nP /pull/keep\n")
        .unwrap();
    // Beside the directories that the links lead to: those are not asked.
    fs::write(scratch.at("real/.rsync-filter"), "- f\nP gone\n").unwrap();

    for by_file in [true, false] {
        every_way_of(&scratch, &[slash(&link)], &["-a", "--delete"], |copy, to| {
            fs::create_dir(&behind).unwrap();
            ["keep", "gone"].iter().for_each(|name| fs::write(behind.join(name), name).unwrap());
            symlink(&behind, to).unwrap();
            let path = |path: &Path, name: &str| path.join(name).display().to_string();
            let rules = match by_file {
                true => vec!["-F".to_owned()],
                false => vec![
                    format!("--filter=-/ {}", path(&link, "secret")),
                    format!("--filter=P/ {}", path(to, "keep")),
                    format!("--filter=P/ {}", path(&behind, "gone")),
                ],
            };
            let outcome = copy().args(&rules).run().expect_code(0);
            let mut names: Vec<_> =
                fs::read_dir(&behind).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            assert_eq!(names, ["f", "keep"], "{by_file} {}", outcome.account());
            fs::remove_dir_all(&behind).unwrap();
            fs::remove_file(to).unwrap();
        });
    }
}
