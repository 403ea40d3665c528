//! `dsync explain`: what a run would do with a path, and which rule decides, in every direction; and
//! rsync's lines about rules under `-vv`.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    time::{Duration, SystemTime},
};

use dsync_tests::{
    Run, Scratch, Sshd, assert_unchanged, needs_dsync, program, rsync, schema, scratch::slash, survey,
};
use serde_json::Value;

fn write(root: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
    }
}

fn plant(source: &Path, destination: &Path) {
    write(
        source,
        &[
            ("same", "a"),
            ("new", "b"),
            ("size", "long"),
            ("old", "c"),
            ("big", "0123456789"),
            ("b.o", "d"),
            ("keep.o", "e"),
            ("sub/c.o", "f"),
            ("sub/.rules", "# first\n- hidden\n"),
            ("sub/hidden", "g"),
            ("cache/x/y", "h"),
            ("deep/er/f", "i"),
            ("other/untouched", "j"),
        ],
    );
    write(
        destination,
        &[
            ("same", "a"),
            ("size", "s"),
            ("old", "cc"),
            ("z.o", "k"),
            ("extra", "l"),
            ("gone/f", "m"),
            ("gone/g.o", "m"),
            ("sub/.rules", "# first\n- hidden\n- mine\n"),
            ("sub/mine", "n"),
        ],
    );
    fs::File::options()
        .write(true)
        .open(destination.join("old"))
        .unwrap()
        .set_modified(SystemTime::now())
        .unwrap();
}

const OPTIONS: &[&str] = &[
    "-ru",
    "--times",
    "--delete",
    "--max-size=9",
    "--include=keep.o",
    "--exclude=*.o",
    "--exclude=/cache/",
    "--filter=: .rules",
];

/// Each path with the beginning of its verdict.
const VERDICTS: &[(&str, &str)] = &[
    ("same", "up to date"),
    ("new", "would be transferred: new"),
    ("size", "would be transferred: differs in size"),
    ("old", "left alone: the destination's is newer (--update)"),
    ("big", "left alone: over --max-size"),
    ("b.o", "hidden by rule '- *.o' of the command line"),
    ("keep.o", "would be transferred: new; included by rule '+ keep.o' of the command line"),
    ("sub/c.o", "hidden by rule '- *.o' of the command line"),
    ("sub/hidden", "hidden by rule sub/.rules:2 at the source"),
    ("cache/x/y", "not looked at, because of its directory cache/: hidden by rule '- /cache/'"),
    ("deep/er/f", "would be transferred: new"),
    ("deep/er", "would be created: new"),
    ("z.o", "only at the destination, and is protected from deletion by rule '- *.o'"),
    ("extra", "would be deleted: not at the source"),
    ("gone/f", "would be deleted: not at the source"),
    ("gone/g.o", "only at the destination, and is protected from deletion by rule '- *.o'"),
    (
        "sub/mine",
        "only at the destination, and is protected from deletion by rule sub/.rules:3 at the destination",
    ),
    ("nowhere/at/all", "at neither end"),
];

/// Explains in one direction: `local`, `push` or `pull`.
fn explain(scratch: &Scratch, direction: &str, options: &[&str], paths: &[&str]) -> Run {
    let sshd = Sshd::shared();
    let run = Run::dsync().arg("explain");
    let run = match direction {
        "local" => run,
        _ => run.arg("-e").arg(sshd.shell()).arg("--dsync-path").arg(program()),
    };
    let (source, destination) = (slash(&scratch.src()), scratch.dst());
    let run = run.args(options);
    let run = match direction {
        "push" => run.arg(source).arg(sshd.operand(destination)),
        "pull" => run.arg(sshd.operand(source)).arg(destination),
        _ => run.arg(source).arg(destination),
    };
    run.args(paths)
}

#[test]
fn every_direction_says_what_would_be_done_and_why() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch.src(), &scratch.dst());
    let before = survey(&scratch.dst());
    let paths: Vec<&str> = VERDICTS.iter().map(|(path, _)| *path).collect();
    for direction in ["local", "push", "pull"] {
        let outcome = explain(&scratch, direction, OPTIONS, &paths).run().expect_code(23);
        let text = outcome.stdout_text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), VERDICTS.len(), "{}", outcome.account());
        for (line, (path, verdict)) in lines.iter().zip(VERDICTS) {
            assert!(line.starts_with(&format!("{path}: {verdict}")), "{direction}: {line}, not {verdict}");
        }
        // Of other paths nothing is told.
        assert!(!outcome.all_text().contains("untouched"), "{}", outcome.account());
    }
    assert_unchanged(&before, &scratch.dst());
}

#[test]
fn verdicts_are_those_of_the_run() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch.src(), &scratch.dst());
    let run = Run::dsync().args(OPTIONS).arg("-i").arg(slash(&scratch.src())).arg(scratch.dst());
    let listed = run.run().expect_code(0).stdout_text();
    for (path, verdict) in VERDICTS {
        let acts = verdict.starts_with("would be");
        let name =
            |line: &str| line.split_once(' ').map(|(_, name)| name.trim().trim_end_matches('/') == *path);
        let is_listed = listed.lines().any(|line| name(line) == Some(true));
        assert_eq!(is_listed, acts, "{path}: {verdict}\n{listed}");
    }
}

#[test]
fn options_that_decide_without_a_rule_are_named() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch.src(), &scratch.dst());
    fs::create_dir(scratch.src().join("empty")).unwrap();
    let list = scratch.at("list");
    fs::write(&list, "new\n").unwrap();
    let list = format!("--files-from={}", list.display());
    for (options, path, verdict, code) in [
        (&["-r"][..], "extra", "only at the destination, and stays without --delete", 0),
        (
            &["-r"],
            "gone/f",
            "not looked at, because of its directory gone/: only at the destination, and stays",
            0,
        ),
        (
            &["-d"],
            "sub/c.o",
            "not looked at, because of its directory sub/: not descended into without -r",
            0,
        ),
        (&["-rm"], "empty", "left out by -m, as it holds nothing but directories", 0),
        (&["-r", "--existing"], "new", "left alone: the destination has none (--existing)", 0),
        (&["-r", "--ignore-existing"], "same", "left alone: the destination has one (--ignore-existing)", 0),
        (&["-r", "--min-size=9"], "new", "left alone: under --min-size", 0),
        (&["-r", "-I"], "same", "would be transferred: ", 0),
        (&["-r", "--delete", "--max-delete=0"], "extra", "only at the destination, and stays, as it is", 25),
        (
            &["-rt", "--delete", "--delete-excluded", "--exclude=extra"],
            "extra",
            "would be deleted: not at",
            0,
        ),
        (
            &["-r", "--exclude=same", "--delete-excluded"],
            "same",
            "would be deleted: hidden by rule '- same'",
            0,
        ),
        (&[&list], "same", "not in --files-from, or not at the source; the destination's stays", 0),
        (&[&list], "b.o", "not in --files-from, or at neither end", 23),
        (&[&list], "new", "would be transferred: new", 0),
    ] {
        let outcome = explain(&scratch, "local", options, &[path]).run().expect_code(code);
        let expected = format!("{path}: {verdict}");
        assert!(
            outcome.stdout_text().starts_with(&expected),
            "{options:?} {expected}\n{}",
            outcome.account()
        );
    }
}

#[test]
fn paths_may_be_absolute_and_wrong_words_are_refused() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch.src(), &scratch.dst());
    let at = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
    let (here, there) = (at(scratch.src().join("new")), at(scratch.dst().join("extra")));
    let outcome = explain(&scratch, "local", OPTIONS, &[&here, &there]).run().expect_code(0);
    assert_eq!(outcome.stdout_text().lines().count(), 2, "{}", outcome.account());
    for (paths, text) in [
        (&[][..], "takes a source, a destination and paths"),
        (&["a/../b"], "it has '..' in it"),
        (&["."], "the root of the transfer itself"),
        (&["/elsewhere"], "it is not below SRC or DST"),
    ] {
        let outcome = explain(&scratch, "local", &["-a"], paths).run().expect_code(1);
        assert!(outcome.stderr_text().contains(text), "{}", outcome.account());
    }
    let listing = explain(&scratch, "local", &["--list-only"], &["a"]).run().expect_code(1);
    assert!(listing.stderr_text().contains("cannot be combined"), "{}", listing.account());
}

#[test]
fn events_for_programs_are_those_of_the_schema() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch.src(), &scratch.dst());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/events.schema.json");
    let schema: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let paths: Vec<&str> = VERDICTS.iter().map(|(path, _)| *path).collect();
    let options: Vec<&str> = OPTIONS.iter().copied().chain(["--json"]).collect();
    let outcome = explain(&scratch, "pull", &options, &paths).run().expect_code(23);
    let text = outcome.stdout_text();
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    for event in &events {
        assert_eq!(schema::fault(&schema, event), None, "{event}");
    }
    assert_eq!(events.len(), VERDICTS.len() + 2, "{text}");
    let of = |path: &str| events.iter().find(|event| event["path"] == path).unwrap();
    assert_eq!(of("sub/hidden")["rule"], "sub/.rules:2 at the source");
    assert_eq!((&of("new")["verdict"], &of("new")["action"]), (&"transferred".into(), &"create".into()));
    assert_eq!(of("cache/x/y")["decided_at"]["path"], "cache");
    assert_eq!(events.last().unwrap()["exit_code"], 23);
}

#[test]
fn lines_about_rules_are_those_of_rsync() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch.src(), &scratch.dst());
    for options in [
        &["-vvrn", "--delete", "--exclude=*.o", "--exclude=/cache/"][..],
        &["-rn", "--debug=filter", "--delete", "--include=keep.o", "--exclude=*.o"],
        &["-vvrn", "--delete", "--delete-excluded", "--exclude=*.o"],
        &["-vvrn", "--debug=filter0", "--delete", "--exclude=*.o"],
        &["-vrn", "--delete", "--exclude=*.o"],
        &["-rn", "--delete-before", "--debug=filter", "--exclude=sub", "--exclude=gone"],
    ] {
        let words = || options.iter().map(Into::into).chain([slash(&scratch.src()), scratch.dst().into()]);
        let lines = |text: String| {
            // Directories come in another order.
            let rules = text.lines().filter(|line| line.starts_with('[') && line.contains("because of"));
            let mut lines: Vec<String> =
                rules.filter(|line| !line.contains("showing")).map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let theirs = lines(rsync(words()).expect_code(0).stdout_text());
        let ours = lines(Run::dsync().args(words()).run().expect_code(0).stdout_text());
        assert_eq!(ours, theirs, "{options:?}");
    }
}

/// Explains one path between two operands, and returns its line without the path.
fn verdict(scratch: &Scratch, options: &[&str], (source, destination): (&str, &str), path: &str) -> String {
    let run = Run::dsync().cwd(scratch.path()).arg("explain").args(options);
    let outcome = run.args([source, destination, path]).run().expect_code(0);
    let text = outcome.stdout_text();
    text.trim_end().split_once(": ").map_or_else(String::new, |(_, verdict)| verdict.to_owned())
}

#[test]
fn what_gives_way_to_another_type_is_named() {
    needs_dsync!();
    let scratch = Scratch::new();
    write(&scratch.src(), &[("full", "1"), ("link", "2"), ("file/in", "3")]);
    write(&scratch.dst(), &[("full/sub/precious", "p"), ("file", "f"), ("plain", "g")]);
    symlink("elsewhere", scratch.dst().join("link")).unwrap();
    symlink("elsewhere", scratch.src().join("plain")).unwrap();
    let before = survey(&scratch.dst());
    for (path, expected) in [
        ("full", "would be replaced by a file: a directory is there and gives way, with all that is in it"),
        ("full/sub/precious", "would be deleted: not at the source"),
        ("link", "would be replaced by a file: a symbolic link is there and gives way"),
        ("file", "would be replaced by a directory: a file is there and gives way"),
        ("file/in", "would be transferred: new"),
        ("plain", "would be replaced by a symbolic link: a file is there and gives way"),
    ] {
        let found = verdict(&scratch, &["-a", "--delete"], ("src/", "dst/"), path);
        assert_eq!(found, expected, "{path}");
        let outcome = explain(&scratch, "push", &["-a", "--delete"], &[path]).run().expect_code(0);
        assert_eq!(outcome.stdout_text(), format!("{path}: {expected}\n"), "{}", outcome.account());
    }
    assert_unchanged(&before, &scratch.dst());
}

#[test]
fn a_file_that_goes_for_one_of_compare_dest_is_deleted() {
    needs_dsync!();
    let scratch = Scratch::new();
    for place in ["src", "dst", "alt"] {
        write(&scratch.at(place), &[("f", "same")]);
    }
    let options = ["-a", "--compare-dest=../alt"];
    let found = verdict(&scratch, &options, ("src/", "dst/"), "f");
    assert_eq!(found, "would be deleted: a directory of --compare-dest has the same file");
    let run = Run::dsync().cwd(scratch.path()).args(options).args(["src/", "dst/"]);
    let _ = run.run().expect_code(0);
    assert!(!scratch.dst().join("f").exists());
    // A name that is linked to the alternate's goes for nothing.
    write(&scratch.dst(), &[("f", "same")]);
    let linked = verdict(&scratch, &["-a", "--link-dest=../alt"], ("src/", "dst/"), "f");
    assert!(!linked.contains("deleted"), "{linked}");
}

#[test]
fn what_only_the_destination_has_is_not_at_neither_end() {
    needs_dsync!();
    let scratch = Scratch::new();
    write(&scratch.src(), &[("a", "1")]);
    write(&scratch.dst(), &[("held/keep", "1"), ("other/in", "2"), ("src/only", "3")]);
    for (options, source, path, expected) in [
        (
            &["-a", "--delete", "--exclude=keep"][..],
            "src/",
            "held",
            "only at the destination, and stays, as something in it",
        ),
        (&["-a", "--delete"], "src", "other", "only at the destination, and stays, as something in it"),
        (
            &["-a", "--delete"],
            "src",
            "other/in",
            "nothing is told of it; its directory other/ is only at the destination",
        ),
        (
            &["-a", "--delete-before"],
            "src",
            "other",
            "only at the destination, and stays, as something in it",
        ),
        (&["-a", "--delete"], "src", "src/only", "would be deleted: not at the source"),
    ] {
        let found = verdict(&scratch, options, (source, "dst/"), path);
        assert!(found.starts_with(expected), "{options:?} {path}: {found}");
    }
}

#[test]
fn absolute_paths_are_those_of_the_end_that_they_lie_in() {
    needs_dsync!();
    let scratch = Scratch::new();
    write(&scratch.src(), &[("d1/a", "1")]);
    write(&scratch.dst(), &[("src/only", "3")]);
    let at = |path: &str| scratch.at(path).to_str().unwrap().to_owned();
    let only = verdict(&scratch, &["-a", "--delete"], ("src", "dst/"), &at("dst/src/only"));
    assert_eq!(only, "would be deleted: not at the source");
    for path in ["src/d1", "dst/src/d1"] {
        assert_eq!(verdict(&scratch, &["-aR"], ("src/d1", "dst/"), &at(path)), "would be created: new");
    }
}

#[test]
fn refusals_speak_of_what_was_typed() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch.src(), &scratch.dst());
    for words in
        [&["-a", "src/", "dst/", "a/../f"][..], &["-a", "src/", "dst/", "."], &["-a", "src/", "dst/"]]
    {
        let outcome = Run::dsync().cwd(scratch.path()).arg("explain").args(words).run().expect_code(1);
        assert!(!outcome.stderr_text().contains("./explain"), "{}", outcome.account());
    }
    let outcome = explain(&scratch, "local", &["-a", "--watch"], &["same"]).run().expect_code(1);
    let text = outcome.stderr_text();
    assert!(text.contains("'explain' cannot be combined with '--watch'"), "{text}");
}
