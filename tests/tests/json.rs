//! `--json`: every line of real runs is an event of `docs/events.schema.json`, and says what lists
//! say.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt as _};

use dsync_tests::{
    Node, Outcome, Run, Scratch, Sshd, Tree, Via, mount::Mount, needs_dsync, run::until_met, schema,
    scratch::slash, strace,
};
use serde_json::Value;

fn plant(scratch: &Scratch) {
    Tree::of([
        Node::dir("dir"),
        Node::file("dir/a", 1, 4000),
        Node::file("b", 2, 300_000),
        Node::file("line\nbreak", 2, 30),
        Node::symlink("link", "b"),
    ])
    .plant(&scratch.src());
    fs::write(scratch.src().join(OsStr::from_bytes(b"n\xff")), "name").unwrap();
    fs::hard_link(scratch.src().join("b"), scratch.src().join("c")).unwrap();
    Tree::of([Node::dir("dir"), Node::file("dir/a", 4, 5000), Node::file("extra", 6, 60)])
        .plant(&scratch.dst());
}

/// Returns the events of some lines, held against the schema.
fn read(lines: &str) -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/events.schema.json");
    let schema: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    for event in &events {
        assert_eq!(schema::fault(&schema, event), None, "{event}");
    }
    events
}

/// Returns the events of a run, held against the schema.
fn events(outcome: &Outcome) -> Vec<Value> {
    let events = read(&outcome.stdout_text());
    assert_eq!(events.first().unwrap()["event"], "start", "{}", outcome.account());
    let last = events.last().unwrap();
    assert_eq!(last["event"], "summary", "{}", outcome.account());
    assert_eq!(last["exit_code"].as_i64(), outcome.code().map(i64::from), "{}", outcome.account());
    events
}

fn of<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == name).collect()
}

fn paths(events: &[Value]) -> Vec<String> {
    of(events, "entry").iter().map(|entry| entry["path"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn contents_that_a_state_knows_are_counted() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    let state = format!("--state-dir={}", scratch.at("state").display());
    let summary = |options: &[&str]| {
        let run = Run::dsync().args(["-ac", "--delete", "--json"]).args(options);
        let outcome = run.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_code(0);
        events(&outcome).pop().unwrap()
    };

    assert_eq!(summary(&[]).get("contents"), None);
    // The next run reads again the files that changed in the last tick of the clock.
    until_met(|| {
        let contents = &summary(&["--state", &state])["contents"];
        (contents["known_files"].as_u64() > Some(0) && contents["read_files"] == 0).then_some(())
    });
}

#[test]
fn every_direction_tells_the_same_entries() {
    needs_dsync!();
    let mut first: Option<Vec<String>> = None;
    for mode in ["local", "push", "pull"] {
        for dry in [true, false] {
            let (scratch, sshd) = (Scratch::new(), Sshd::shared());
            plant(&scratch);
            let (source, target) = (slash(&scratch.src()), scratch.dst());
            let run = if mode == "local" { Run::dsync() } else { sshd.run(Via::Tls) };
            let run = run.args(["-aH", "--delete", "--json"]).args(dry.then_some("-n"));
            let run = match mode {
                "push" => run.arg(source).arg(sshd.operand(target)),
                "pull" => run.arg(sshd.operand(source)).arg(target),
                _ => run.arg(source).arg(target),
            };
            let outcome = run.run().expect_code(0);
            let events = events(&outcome);
            assert_eq!((&events[0]["mode"], &events[0]["dry_run"]), (&mode.into(), &dry.into()));
            assert_eq!(of(&events, "connected").len(), usize::from(mode != "local"));
            assert_eq!(of(&events, "plan").len(), 1, "{}", outcome.account());
            assert!(of(&events, "entry").iter().all(|entry| entry["done"] == !dry), "{}", outcome.account());

            let odd: Vec<_> = events.iter().filter(|event| event["path_hex"] == "6eff").collect();
            assert_eq!(odd.len(), 1, "{}", outcome.account());
            let totals = &events.last().unwrap()["totals"];
            assert_eq!(totals["files_transferred"], 4, "{}", outcome.account());
            assert_eq!(totals["deleted"]["files"], 1, "{}", outcome.account());

            let mut paths = paths(&events);
            paths.sort();
            assert_eq!(*first.get_or_insert_with(|| paths.clone()), paths, "{}", outcome.account());
        }
    }
}

#[test]
fn progress_is_told_beside_whatever_is_listed() {
    needs_dsync!();
    for (remote, options) in [(false, &["-ai"][..]), (true, &["-a"]), (true, &["-aP", "--json"])] {
        let (scratch, sshd) = (Scratch::new(), Sshd::shared());
        plant(&scratch);
        let run = if remote { sshd.run(Via::Ssh) } else { Run::dsync() };
        let run = run.args(options).arg("--progress=json").arg(slash(&scratch.src()));
        let target = if remote { sshd.operand(scratch.dst()) } else { scratch.dst().into() };
        let outcome = run.arg(target).run().expect_code(0);
        let told = read(&outcome.stderr_text());
        assert_eq!(of(&told, "progress").len(), told.len(), "{}", outcome.account());
        assert!(told.iter().any(|event| event["files_done"] == 5), "{}", outcome.account());
        assert_eq!(outcome.stdout_text().contains(">f+++++++++ "), options == ["-ai"]);
    }
}

#[test]
fn entries_that_need_nothing_are_told_on_demand() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    let run = |more: &[&str]| {
        let run = Run::dsync().args(["-a", "--json"]).args(more).arg(slash(&scratch.src()));
        events(&run.arg(scratch.dst()).run().expect_code(0))
    };
    let _ = run(&[]);
    assert_eq!(paths(&run(&[])), Vec::<String>::new());
    let all = run(&["-vv"]);
    assert!(of(&all, "entry").iter().all(|entry| entry["action"] == "keep"));
    assert_eq!(paths(&all).len(), 8);
}

#[test]
fn backups_and_what_leaves_the_source_are_told_on_demand() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    let run = |more: &[&str]| {
        let run = Run::dsync().args(["-ab", "--json"]).args(more).arg(slash(&scratch.src()));
        events(&run.arg(scratch.dst()).run().expect_code(0))
    };
    let _ = run(&[]);
    assert_eq!(of(&run(&["-I"]), "backup").len(), 0);
    let events = run(&["-I", "--info=backup,remove", "--remove-source-files"]);
    let odd = |name| of(&events, name).into_iter().find(|event| event["path_hex"] == "6eff");
    assert_eq!(odd("backup").unwrap()["backup"]["path_hex"], "6eff7e");
    assert!(odd("removed").is_some());
}

#[test]
fn failures_are_events_and_each_path_is_in_the_summary_once() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    let run = strace::inject("renameat,renameat2", "error=EACCES")
        .args(["-a", "--json"])
        .arg(slash(&scratch.src()));
    let outcome = run.arg(scratch.dst()).run().expect_code(23);
    let events = events(&outcome);
    let problems = of(&events, "problem");
    let failures = events.last().unwrap()["failures"].as_array().unwrap();
    assert_eq!((problems.len(), failures.len()), (6, 6), "{}", outcome.account());
    for failure in failures {
        assert_eq!(failure["errno"]["name"], "EACCES", "{}", outcome.account());
        assert!(failure["cure"].is_string() && failure["operation"].is_string());
    }
    // A failed entry is none of the entries.
    assert!(!paths(&events).contains(&"b".to_owned()), "{}", outcome.account());
    let dry = Run::dsync().args(["-rn", "--json"]).arg(slash(&scratch.src())).arg(scratch.at("new")).run();
    assert_eq!(of(&self::events(&dry), "skipped").len(), 1, "{}", dry.account());
}

#[test]
fn run_that_cannot_begin_for_a_file_says_so_in_its_summary() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    fs::write(scratch.at("damaged"), "no batch").unwrap();
    for (words, mode, code) in [
        (&["--read-batch=damaged", "dst/"][..], "local", 1),
        (&["--read-batch=none", "dst/"], "local", 11),
        (&["--files-from=none", "src/", "dst/"], "local", 1),
        (&["--files-from=none", "src/", "host:dst/"], "push", 1),
        (&["--exclude-from=none", "host:src/", "dst/"], "pull", 11),
    ] {
        let outcome = Run::dsync().cwd(scratch.path()).args(["-a", "--json"]).args(words).run();
        let outcome = outcome.expect_code(code);
        let events = events(&outcome);
        assert_eq!((events.len(), &events[0]["mode"]), (2, &mode.into()), "{}", outcome.account());
        let error = events[1]["error"].as_str().unwrap();
        assert!(outcome.stderr_text().contains(error), "{}", outcome.account());
    }

    let words = ["explain", "-a", "--json", "--files-from=none", "src/", "dst/", "b"];
    let explained = Run::dsync().cwd(scratch.path()).args(words).run().expect_code(1);
    assert_eq!(events(&explained).len(), 2);
    // There is no run of a wrong command line.
    let wrong = Run::dsync().cwd(scratch.path()).args(["--json", "--nothing", "src/", "dst/"]).run();
    assert_eq!(wrong.expect_code(1).stdout_text(), "");
}

#[test]
fn run_that_fails_as_a_whole_says_so_in_its_summary() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    let run = Run::dsync().args(["-a", "--json"]).arg(slash(&scratch.src()));
    let outcome = run.arg(scratch.at("not/there/at all")).run();
    let events = events(&outcome);
    let last = events.last().unwrap();
    assert!(last["error"].as_str().unwrap().contains("not/there"), "{}", outcome.account());
    assert!(last.get("totals").is_none() && last["exit_code"] != 0);
}

#[test]
fn source_is_listed_as_events() {
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    plant(&scratch);
    let here = Run::dsync().args(["-r", "--json"]).arg(slash(&scratch.src())).run().expect_code(0);
    let there = sshd.run(Via::Tls).args(["-r", "--json"]).arg(sshd.operand(slash(&scratch.src()))).run();
    let entries = |outcome: &Outcome| {
        let events = events(outcome);
        assert_eq!(events[0]["mode"], "list");
        assert_eq!(events.last().unwrap()["totals"]["files_transferred"], 0, "{}", outcome.account());
        of(&events, "entry").into_iter().cloned().collect::<Vec<_>>()
    };
    let (ours, theirs) = (entries(&here), entries(&there));
    assert_eq!(ours, theirs);
    assert_eq!(ours.len(), 8, "{}", here.account());
    assert!(ours.iter().all(|entry| entry["action"] == "list" && entry["done"] == false));
}

#[test]
fn links_and_clones_are_counted() {
    needs_dsync!();
    // The one shares blocks between files, the other cannot.
    for (kind, cloned) in [("btrfs", 4), ("ext4", 0)] {
        let scratch = Scratch::new();
        let Some(disk) = Mount::of_type(kind, &scratch.at("disk")) else { return };
        let (from, to) = (disk.path().join("src"), disk.path().join("dst"));
        plant(&scratch);
        let _ = Run::of("cp").arg("-a").arg(scratch.src()).arg(&from).run().expect_code(0);
        let counts = |run: Run| {
            let events = events(&run.arg("--json").arg(slash(&from)).arg(&to).run().expect_code(0));
            let totals = events.last().unwrap()["totals"].clone();
            (totals["linked"].as_u64(), totals["cloned"].as_u64())
        };
        assert_eq!(counts(Run::dsync().arg("-aHn")).1, Some(0), "{kind}: a dry run cannot tell");
        assert_eq!(counts(Run::dsync().arg("-aH")), (Some(1), Some(cloned)), "{kind}");
        assert_eq!(counts(Run::dsync().arg("-aH")), (Some(0), Some(0)), "{kind}: again");
        let old = disk.path().join("old");
        fs::rename(&to, &old).unwrap();
        let alternate = format!("--link-dest={}", old.display());
        let (linked, cloned) = counts(Run::dsync().args(["-aH", &alternate]));
        // Five names of files, and the symbolic link.
        assert_eq!((linked, cloned), (Some(6), Some(0)), "{kind}: of {alternate}");
    }
}
