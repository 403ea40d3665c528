//! `--files-from`: what its lines name, as the real rsync reads them, here, to a host and from one,
//! with the list at either end.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use dsync_tests::{
    Node, Run, Scope, Scratch, Sshd, Tree, Via, differences, needs_dsync, oracle, program, scratch::slash,
};

/// Plants the source of all cases.
fn plant(at: &Path) {
    let dirs = ["a", "a/b", "d", "d/e", "e1", "e1/e2", "x", "y", "y/a"].map(Node::dir);
    let files = ["a/b/c", "a/f", "d/e/g", "d/h", "top", "#hash", " sp ", "x/z", "caf\u{e9}", "d/skip.o"];
    // Names that other directories have too.
    let files = files.into_iter().chain(["x/0", "x/h", "y/h", "y/z", "y/a/f"]);
    let files = files.into_iter().zip(1..).map(|(path, seed)| Node::file(path, seed, seed));
    let links =
        [Node::symlink("la", "a"), Node::symlink("gone", "nowhere"), Node::symlink("out", "../beside")];
    Tree::of(dirs.into_iter().chain(files).chain(links)).plant(at);
    let beside =
        [Node::dir("sub"), Node::file("f", 1, 3), Node::file("sub/g", 2, 3), Node::symlink("sub/up", "..")];
    Tree::of(beside).plant(&at.with_file_name("beside"));
    fs::write(at.join(std::ffi::OsStr::new("x")).join("r\r"), b"7").unwrap();
    fs::set_permissions(at, fs::Permissions::from_mode(0o751)).unwrap();
}

/// Plants what the destination has before a run.
fn prepare(at: &Path) {
    let dirs = ["a", "a/b", "d", "d/e", "zz"].map(Node::dir);
    let files = ["a/old", "a/b/old", "d/old", "d/e/old", "old", "zz/q"].map(|path| Node::file(path, 99, 3));
    Tree::of(dirs.into_iter().chain(files)).plant(at);
}

/// The ends of a run, and where the list is.
const WAYS: [(&str, &str); 5] =
    [("local", "here"), ("push", "here"), ("push", "there"), ("pull", "here"), ("pull", "there")];

/// Runs rsync once and dsync in every way; asserts equal trees and exit codes.
fn as_rsync(lines: &[u8], options: &[&str], fresh: bool) {
    let scratch = Scratch::new();
    plant(&scratch.src());
    let list = scratch.at("list");
    fs::write(&list, lines).unwrap();
    let list = list.display().to_string();
    let made = |name: &str| {
        let at = scratch.at(name);
        if !fresh {
            prepare(&at);
        }
        at
    };

    let theirs = made("theirs");
    let source = format!("{}/", scratch.src().display());
    let from = |list: &str| format!("--files-from={list}");
    let reference = Run::of("rsync")
        .args(options)
        .arg(from(&list))
        .arg(&source)
        .arg(slash(&theirs))
        .cwd(scratch.path())
        .run();
    let sshd = Sshd::shared();
    for (way, place) in WAYS {
        let ours = made(&format!("{way}-{place}"));
        let list = if place == "there" { format!(":{list}") } else { list.clone() };
        let run = match way {
            "local" => Run::dsync().args([from(&list), source.clone()]).arg(slash(&ours)),
            "push" => sshd.run(Via::Tls).args([from(&list), source.clone()]).arg(sshd.operand(slash(&ours))),
            _ => sshd.run(Via::Ssh).arg(from(&list)).arg(sshd.operand(&source)).arg(slash(&ours)),
        };
        let outcome = run.args(["--durability=none"]).args(options).cwd(scratch.path()).run();
        let account = format!("{way} {place} {options:?}\n{}\n{}", outcome.account(), reference.account());
        assert_eq!(outcome.code(), reference.code(), "{account}");
        // Where nothing is left to copy, dsync makes no destination.
        [&theirs, &ours].into_iter().for_each(|at| fs::create_dir_all(at).unwrap());
        let times = options.iter().any(|option| option.starts_with("-a"));
        let scope = Scope { dir_times: false, root: false, times, ..Scope::full() };
        let found = differences(&theirs, &ours, scope);
        assert!(found.is_empty(), "{found:?}\n{account}");
        // The root's own attributes come only where a line has it on its way.
        let source = fs::metadata(scratch.src()).unwrap().modified().unwrap();
        let root = |at: &Path| {
            let facts = fs::metadata(at).unwrap();
            (facts.mode(), facts.modified().unwrap() == source)
        };
        assert_eq!(root(&ours), root(&theirs), "{account}");
    }
}

#[test]
fn lines_are_those_that_rsync_reads() {
    needs_dsync!();
    for (lines, options) in [
        (&b"a/b/c\n#hash\n;x\n\n ./top\ntop\n sp \ncaf\xc3\xa9\n"[..], &["-a"][..]),
        (b"./#hash\nnot-\xff\xfe-text\na/b/c\r\ntop\rd/h", &["-a"]),
        (b"../s/top\na/../top\n/a/f\n//d//h\n../../a/b/../f\n", &["-a"]),
        (b"top\0a/f\0#hash\0;q\0\0./#hash\0x/r\r", &["-a", "--from0"]),
        (b"", &["-a"]),
        (b"gone\nla/f\nla\na/f/\n", &["-a"]),
        (b"gone/\na/f/.\n", &["-a"]),
        (b"gone/.\n", &["-ar", "--no-relative"]),
        (b"./missing\n", &["-a"]),
        (b"./missing\n./a/missing\na/f\n", &["-a"]),
        (b"./d/skip.o\n", &["-a", "--exclude=*.o"]),
        (b"./top\n", &["-a", "--exclude=*/"]),
        (b"./top\n", &["-a", "--exclude=.*"]),
        (b"./top\n", &["-a", "--exclude=s/"]),
    ] {
        as_rsync(lines, options, true);
    }
}

#[test]
fn directories_are_copied_as_their_lines_say() {
    needs_dsync!();
    for (lines, options) in [
        (&b"a\nd/\n"[..], &["-a"][..]),
        (b"d/.\ne1\n", &["-a"]),
        (b"a\nd\n", &["-a", "-r"]),
        (b"d/\n", &["-ar"]),
        (b".\n", &["-a"]),
        (b"./\na/b\n", &["-ar"]),
        (b"a/b/c\nd\n", &["-a", "--no-d"]),
        (b"a/./b/c\nd/./e\n", &["-a"]),
        (b"a/b/c\nd/e\n", &["-a", "--no-R"]),
        (b"a/b/c\nd/e/\nx/z\n", &["-a", "--no-relative"]),
        (b"a/b/c\nd/e/g\n", &["-a", "--no-implied-dirs"]),
        (b"a/f\n./top\n", &["-a"]),
        (b"./a/b/c\n", &["-r", "-p"]),
        (b"./a/b/c\n", &["-a", "--no-implied-dirs"]),
        (b"./a/b/c\n", &["-a", "--no-R"]),
        (b"top\nd/././h\n", &["-a"]),
        (b"./top\n", &["-a", "--no-d"]),
        (b"a/b/..\n", &["-a"]),
        (b"a/b/..\nd/e/../h\n", &["-ar"]),
        (b"d/e/..\n", &["-a", "--no-R"]),
    ] {
        as_rsync(lines, options, true);
    }
}

/// The cage of either end has to let the source read there.
#[test]
fn a_line_leads_through_a_link_out_of_the_source() {
    needs_dsync!();
    for (lines, options) in [
        (&b"out/f\n"[..], &["-a"][..]),
        (b"out/\n", &["-ar"]),
        (b"out/sub/g\ntop\n", &["-a", "--no-R"]),
        (b"out/sub/up/f\n", &["-r"]),
    ] {
        as_rsync(lines, options, true);
    }
}

/// A line for the directory itself, and one of which nothing exists.
#[test]
fn a_name_that_may_be_missing_withholds_no_deletion() {
    needs_dsync!();
    for lines in [&b".\ngone2\n"[..], b"a/\ngone2\n", b"a/\na/gone2\n"] {
        for option in ["--ignore-missing-args", "--delete-missing-args"] {
            // Older ones end with 2 ("invalid file mode 00"), whatever is missing.
            if option == "--delete-missing-args" && !oracle::is_since((3, 4, 0)) {
                continue;
            }
            as_rsync(lines, &["-a", "--delete", option], false);
        }
        let scratch = Scratch::new();
        plant(&scratch.src());
        prepare(&scratch.dst());
        fs::write(scratch.at("list"), lines).unwrap();
        let run = Run::dsync()
            .args(["-a", "--delete"])
            .arg(format!("--files-from={}", scratch.at("list").display()));
        let outcome = run.arg(slash(&scratch.src())).arg(slash(&scratch.dst())).run().expect_code(23);
        assert!(outcome.stderr_text().contains("withheld"), "{}", outcome.account());
        assert!(scratch.dst().join("old").exists() && scratch.dst().join("a/old").exists());
    }
}

/// A destination's name can be that of several lines.
#[test]
fn of_one_name_the_first_line_counts() {
    needs_dsync!();
    for (lines, options) in [
        (&b"y/h\nx/h\nx/0\nd/h\n"[..], &["-a", "--no-R"][..]),
        (b"x/h\nx/0\ny/h\n", &["-a", "--no-R"]),
        (b"y/\nx/\nd/h\n", &["-a", "--no-R"]),
        (b"x/z\ny/\nd/h\nx/\n", &["-a", "--no-R"]),
        (b"a\ny/\na/\n", &["-a", "--no-R"]),
        (b"y/a\na\n", &["-ar", "--no-R"]),
        (b"a\nx/0\ny/a\n", &["-ar", "--no-R"]),
        (b"y/./h\nx/./0\nx/./h\n", &["-a"]),
        (b"y/./\nx/././h\nd/./h\n", &["-a"]),
        (b"y/./a/f\n./a\n./0\n", &["-ar"]),
    ] {
        as_rsync(lines, options, true);
    }
}

#[test]
fn what_the_rules_leave_out_and_what_is_not_there_is_not_copied() {
    needs_dsync!();
    for (lines, options) in [
        (&b"nope\nnope/x\na/zz\ntop\ntop\n"[..], &["-a"][..]),
        (b"top\na/nope\n", &["-a", "--ignore-missing-args"]),
        (b"a/b/c\n", &["-a", "--exclude=a"]),
        (b"a/b/c\n", &["-a", "--exclude=c"]),
        (b"d\n", &["-ar", "--exclude=*.o"]),
        (b"e1\na/b/c\n", &["-a", "-m"]),
        (b"e1\na/b/c\nd\n", &["-ar", "-m"]),
        (b"a\nla\n", &["-a", "-L"]),
    ] {
        as_rsync(lines, options, true);
    }
}

#[test]
fn entries_go_only_from_directories_that_lines_stand_for() {
    needs_dsync!();
    for (lines, options) in [
        (&b"a/b/c\nd\n"[..], &["-a", "--delete"][..]),
        (b"a/b/c\nd\n", &["-ar", "--delete"]),
        (b"a/b/c\nd/\n", &["-a", "--delete"]),
        (b".\n", &["-ar", "--delete"]),
        (b"top\n", &["-ar", "--delete"]),
        (b"a\nd\n", &["-ar", "--delete", "--exclude=old"]),
        (b"a\nd\n", &["-ar", "--delete-before"]),
        (b"nope\nd\n", &["-ar", "--delete", "--ignore-missing-args"]),
    ] {
        as_rsync(lines, options, false);
    }
}

#[test]
fn a_list_comes_from_standard_input_and_moves_or_links_its_files() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch.src());
    let from_input = |lines: &str, options: &[&str], to: &str| {
        fs::write(scratch.at("list"), lines).unwrap();
        let run = Run::of("sh").args(["-c", r#"exec "$0" "$@" <list"#]).arg(program());
        let run = run.args(["-a", "--files-from=-"]).args(options).arg(scratch.src()).arg(scratch.at(to));
        run.cwd(scratch.path()).run().expect_code(0)
    };
    let _ = from_input("top\nd/e/g\n", &[], "first");
    let _ = from_input("top\nd/e/g\n", &["--link-dest=../first"], "second");
    let inode = |name: &str| fs::metadata(scratch.at(name)).unwrap().ino();
    assert_eq!(inode("first/d/e/g"), inode("second/d/e/g"));
    let planned = from_input("top\n", &["-ni"], "third");
    assert!(planned.stdout_text().contains(">f+++++++++ top"), "{}", planned.account());
    assert!(!scratch.at("third").exists());
    let _ = from_input("top\n", &["--remove-source-files"], "fourth");
    assert!(!scratch.src().join("top").exists() && scratch.src().join("a/f").exists());
}

#[test]
fn a_destination_in_the_source_is_refused_only_if_a_line_holds_it() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch.src());
    let run = |line: &str| {
        fs::write(scratch.at("list"), line).unwrap();
        let list = format!("--files-from={}", scratch.at("list").display());
        Run::dsync().args(["-ar", &list]).arg(scratch.src()).arg(scratch.src().join("a/backup")).run()
    };
    let _ = run("d\ntop\n").expect_code(0);
    let _ = run("a/f\n").expect_code(0);
    let _ = run("d\na\n").expect_code(42);
    let _ = run(".\n").expect_code(42);
    // Without their paths the lines of `d` bring nothing of where the destination is.
    let apart = |line: &str| {
        fs::write(scratch.at("list"), line).unwrap();
        let list = format!("--files-from={}", scratch.at("list").display());
        let run = Run::dsync().args(["-ar", "--no-R", &list]).arg(scratch.src());
        run.arg(scratch.src().join("a/backup")).run()
    };
    let _ = apart("d/\n").expect_code(0);
    let _ = apart("d/\na/\n").expect_code(42);
    let _ = apart(".\n").expect_code(42);
}

#[test]
fn a_list_of_any_length_is_taken_and_each_missing_line_is_named() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch.src());
    let mut lines = String::new();
    (0..60_000).for_each(|line| lines.push_str(&format!("d/a name that is not there {line}\n")));
    lines.push_str("d/h\ntop\n");
    fs::write(scratch.at("list"), &lines).unwrap();
    let list = format!("--files-from={}", scratch.at("list").display());
    let sshd = Sshd::shared();
    for way in ["push", "pull"] {
        let to = scratch.at(way);
        let run = sshd.run(Via::Tls).args(["-a", "--ignore-missing-args", &list]);
        let run = match way {
            "push" => run.arg(scratch.src()).arg(sshd.operand(&to)),
            _ => run.arg(sshd.operand(scratch.src())).arg(&to),
        };
        let _ = run.run().expect_code(0);
        assert!(to.join("d/h").exists() && to.join("top").exists() && !to.join("a").exists());
    }

    fs::write(scratch.at("list"), "d/h\nnot-\u{301}here\n").unwrap();
    let told = Run::dsync().args(["-a", &list]).arg(scratch.src()).arg(scratch.dst()).run().expect_code(23);
    assert!(told.stderr_text().contains("not-\u{301}here"), "{}", told.account());
}

/// More names than operands may have, and than messages may wait for the destination.
#[test]
fn missing_names_of_any_number_go_at_the_destination() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch.src());
    let mut lines: String = (0..270_000).map(|line| format!("missing-{line}\n")).collect();
    lines.push_str("top\n");
    fs::write(scratch.at("list"), &lines).unwrap();
    let list = format!("--files-from={}", scratch.at("list").display());
    let source = slash(&scratch.src());
    let sshd = Sshd::shared();
    for way in ["push", "pull", "local"] {
        let to = scratch.at(way);
        fs::create_dir(&to).unwrap();
        ["missing-0", "missing-269999", "other"]
            .iter()
            .for_each(|name| fs::write(to.join(name), "").unwrap());

        let run = match way {
            "push" => sshd.run(Via::Ssh).arg(&source).arg(sshd.operand(slash(&to))),
            "pull" => sshd.run(Via::Ssh).arg(sshd.operand(&source)).arg(slash(&to)),
            _ => Run::dsync().arg(&source).arg(slash(&to)),
        };
        let outcome = run.args(["-a", "--delete-missing-args", &list]).run().expect_code(0);

        let mut left = Vec::from_iter(fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name()));
        left.sort_unstable();
        assert_eq!(left, ["other", "top"], "{way} {}", outcome.account());
    }
}

#[test]
fn mistakes_are_named_before_anything_starts() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch.src());
    fs::write(scratch.at("list"), "top\n").unwrap();
    fs::write(scratch.at("binary"), [[0, b'\n']; 2000].concat()).unwrap();
    fs::write(scratch.at("no-names"), format!("{}\n", "n".repeat(256)).repeat(1001)).unwrap();
    for (words, code, text) in [
        (&["--files-from=none", "src", "dst"][..], 1, "cannot read the list of files 'none': No such file"),
        (&["--files-from=binary", "src", "dst"], 1, "has a NUL byte, which no name has; -0 is for lists"),
        (&["--files-from=no-names", "src", "dst"], 1, "more than 1000 lines are no paths"),
        (&["--files-from=list", "src", "src/a", "dst"], 1, "takes one source"),
        (&["--files-from=:list", "src", "dst"], 1, "the run has no remote end"),
        (&["--files-from=h:list", "src", "dst"], 1, "write './h:list'"),
        (&["--files-from=h:list", "src", "other:dst"], 1, "not on the host of the other operand"),
        (&["--files-from=list", "none", "dst"], 3, "source 'none/': no such file"),
    ] {
        let outcome = Run::dsync().arg("-a").args(words).cwd(scratch.path()).run().expect_code(code);
        assert!(outcome.stderr_text().contains(text), "{}", outcome.account());
        assert!(!scratch.dst().exists());
    }
}

/// The source lacks the directory as well, or has a link to nowhere for it.
#[test]
fn what_is_missing_with_its_directory_goes_at_the_destination() {
    needs_dsync!();
    let sshd = Sshd::shared();
    for (way, option) in ["local", "push", "pull"].into_iter().flat_map(|way| {
        ["--delete-missing-args", "--ignore-missing-args", "-n", "--exclude=zz/"].map(|option| (way, option))
    }) {
        let scratch = Scratch::new();
        plant(&scratch.src());
        prepare(&scratch.dst());
        let dirs = ["gone", "a/none", "a/none/deep", "zz/zz"].map(Node::dir);
        let files = ["gone/x", "gone/y", "a/none/deep/x", "a/none/y", "zz/zz/q", "zz/r"];
        let files = files.map(|path| Node::file(path, 98, 4));
        Tree::of(dirs.into_iter().chain(files)).plant(&scratch.dst());
        let list = scratch.at("list");
        fs::write(&list, b"zz/q\nzz/zz/q\ngone/x\na/none/deep/x\na/none/never\nnever/x\n").unwrap();

        let from = format!("--files-from={}", list.display());
        let source = format!("{}/", scratch.src().display());
        let run = match way {
            "local" => Run::dsync().args([from, source]).arg(slash(&scratch.dst())),
            "push" => sshd.run(Via::Tls).args([from, source]).arg(sshd.operand(slash(&scratch.dst()))),
            _ => sshd.run(Via::Ssh).arg(from).arg(sshd.operand(&source)).arg(slash(&scratch.dst())),
        };
        let deletes = if option == "--ignore-missing-args" { option } else { "--delete-missing-args" };
        let outcome = run.args(["-ai", deletes, option]).run().expect_code(0);

        let mut left: Vec<&str> = ["zz/q", "zz/zz/q", "gone/x", "a/none/deep/x"].into();
        left.retain(|path| scratch.dst().join(path).exists());
        let wanted: &[&str] = match option {
            "--delete-missing-args" => &[],
            "--exclude=zz/" => &["zz/q", "zz/zz/q"],
            _ => &["zz/q", "zz/zz/q", "gone/x", "a/none/deep/x"],
        };
        assert_eq!(left, wanted, "{way} {option} {}", outcome.account());
        for kept in ["gone/y", "a/none/y", "zz/r", "a/old", "zz/zz", "a/none/deep"] {
            assert!(scratch.dst().join(kept).exists(), "{kept}: {way} {option} {}", outcome.account());
        }
        let deleted = outcome.stdout_text().lines().filter(|line| line.starts_with("*deleting")).count();
        let told = match option {
            "--ignore-missing-args" => 0,
            "--exclude=zz/" => 2,
            _ => 4,
        };
        assert_eq!(deleted, told, "{way} {option} {}", outcome.account());
    }
}
