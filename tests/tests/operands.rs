//! The entries that operands name, and how they land: each run as the real rsync has it, here, to a
//! host and from one.
//!
//! Every case runs in the source's parent directory, so that operands are written as a person
//! writes them. Trees, exit codes and lists of changes are compared.

use std::{collections::BTreeSet, ffi::OsString, fs, os::unix::fs::PermissionsExt, path::Path};

use dsync_tests::{Node, Outcome, Run, Scope, Scratch, Sshd, Tree, Via, differences, needs_dsync, oracle};

/// A run, and what the destination has before it.
struct Case<'a> {
    options: &'a [&'a str],
    sources: &'a [&'a str],
    /// Paths of the destination; one that ends in `/` is a directory.
    before: &'a [&'a str],
    /// The destination, below the directory that is made for it.
    to: &'a str,
}

const PLAIN: Case<'_> = Case { options: &[], sources: &["./"], before: &[], to: "" };

/// Plants the source of all cases.
fn plant(scratch: &Scratch) {
    let dirs = ["a", "a/b", "a/b/c", "e1", "e1/e2", "full", "full/empty", "x", "other", "links"];
    let files = ["a/b/c/f", "a/b/g", "full/g", "x/skip.o", "x/h", "top"];
    let links = [("la", "a"), ("x2", "gone"), ("links/l", "q"), ("other/up", "../a")];
    let dirs = dirs
        .into_iter()
        .enumerate()
        .map(|(index, path)| Node { mode: if index % 2 == 0 { 0o755 } else { 0o711 }, ..Node::dir(path) });
    let files = files.into_iter().zip(1..).map(|(path, seed)| Node::file(path, seed, seed));
    let links = links.into_iter().map(|(path, target)| Node::symlink(path, target));
    Tree::of(dirs.chain(files).chain(links)).plant(&scratch.src());
    fs::set_permissions(scratch.src(), fs::Permissions::from_mode(0o751)).unwrap();
}

/// Makes a destination.
fn prepare(at: &Path, before: &[&str]) {
    let node = |path: &&str| match path.strip_suffix('/') {
        Some(dir) => Node::dir(dir),
        None => Node::file(*path, 99, 3),
    };
    Tree::of(before.iter().map(node)).plant(at);
}

/// Returns a list of changes without its order and direction, and what rsync says besides.
fn changes(outcome: &Outcome) -> BTreeSet<String> {
    let is_change = |line: &&str| {
        line.starts_with("*deleting")
            || line.get(..1).is_some_and(|first| "<>ch.".contains(first))
                && line.as_bytes().get(11) == Some(&b' ')
    };
    // The time of the directory itself is what the clock made it.
    let is_root = |line: &&str| line.ends_with(" ./");
    outcome
        .stdout_text()
        .lines()
        .filter(|line| is_change(line) && !is_root(line))
        .map(|line| line.replacen('<', ">", 1))
        .collect()
}

/// Returns an operand of the source's directory as one that starts at the root.
fn from(scratch: &Scratch, options: &[&str], source: &str) -> OsString {
    let relative = options.iter().any(|option| option.contains('R') && !option.starts_with("--"));
    let cut = if relative && !source.contains("/./") { "/./" } else { "/" };
    format!("{}{cut}{source}", scratch.src().display()).into()
}

/// Runs a case with both programs in every direction.
fn check(case: &Case<'_>) {
    let scratch = Scratch::new();
    plant(&scratch);
    let Case { options, sources, before, to } = case;
    // Before 3.4.0 its receiver refused what its sender said of a missing path.
    if options.contains(&"--delete-missing-args") && !oracle::is_since((3, 4, 0)) {
        return;
    }
    let operand = |at: &Path| OsString::from(format!("{}/{to}", at.display()));
    let theirs = scratch.at("theirs");
    prepare(&theirs, before);
    let oracle = Run::of("rsync")
        .args(["-i", "--modify-window=-1"])
        .args(*options)
        .args(*sources)
        .arg(operand(&theirs))
        .cwd(&scratch.src())
        .run();

    let sshd = Sshd::shared();
    for way in ["local", "push", "pull"] {
        let ours = scratch.at(way);
        prepare(&ours, before);
        let run = match way {
            "local" => Run::dsync(),
            "push" => sshd.run(Via::Quic),
            _ => sshd.run(Via::Ssh),
        };
        let run = run.args(["-i", "--allow-empty-source", "--durability=none"]).args(*options);
        let run = match way {
            "local" => run.args(*sources).arg(operand(&ours)),
            "push" => run.args(*sources).arg(sshd.operand(Path::new(&operand(&ours)))),
            _ => run
                .args(sources.iter().map(|source| sshd.operand(from(&scratch, options, source))))
                .arg(operand(&ours)),
        };
        let outcome = run.cwd(&scratch.src()).run();
        let account = format!("{way} {options:?} {sources:?}\n{}\n{}", outcome.account(), oracle.account());
        let times = options.iter().any(|option| !option.starts_with("--") && option.contains(['a', 't']));
        let scope = Scope { dir_times: false, root: false, times, ..Scope::full() };
        let found = differences(&theirs, &ours, scope);
        assert!(found.is_empty(), "{found:?}\n{account}");
        let mode = |at: &Path| fs::metadata(at).map(|facts| facts.permissions().mode()).ok();
        assert_eq!(mode(&ours), mode(&theirs), "{account}");
        assert_eq!(outcome.code(), oracle.code(), "{account}");
        assert_eq!(changes(&outcome), changes(&oracle), "{account}");
    }
}

#[test]
fn directories_that_hold_only_directories_are_pruned() {
    needs_dsync!();
    let old: &[&str] = &["e1/", "e1/e2/", "e1/e2/q/", "e1/e2/q/z", "full/", "full/empty/", "zzz/"];
    for case in [
        Case { options: &["-am"], ..PLAIN },
        Case { options: &["-am"], sources: &["e1", "a", "e1/"], ..PLAIN },
        Case { options: &["-am"], sources: &["e1"], to: "new/", ..PLAIN },
        Case { options: &["-rltm", "--exclude=*.o", "--exclude=h"], ..PLAIN },
        Case { options: &["-am", "--include=*/", "--include=*.o", "--exclude=*"], ..PLAIN },
        Case { options: &["-am", "--max-size=1"], ..PLAIN },
        Case { options: &["-am", "--delete"], before: old, ..PLAIN },
        Case { options: &["-am", "--delete-before"], before: old, ..PLAIN },
        Case { options: &["-amn", "--delete-during"], before: old, ..PLAIN },
        Case { options: &["-am", "--delete-excluded", "--exclude=g"], before: old, ..PLAIN },
        Case { options: &["-dltm"], ..PLAIN },
        // A protected directory is kept, with those above it and not with those in it.
        Case { options: &["-am", "--filter=P e2/"], ..PLAIN },
        Case { options: &["-am", "--filter=protect e1"], ..PLAIN },
        Case { options: &["-am", "--filter=P *e*", "--filter=R e2"], ..PLAIN },
        Case { options: &["-am", "--filter=P /full/empty/"], sources: &["full", "e1"], ..PLAIN },
        Case { options: &["-am", "--filter=P e2/", "--delete"], before: old, ..PLAIN },
        Case { options: &["-am", "--filter=P e2/", "--delete-excluded"], before: old, ..PLAIN },
        Case { options: &["-am", "--filter=R e1", "--filter=H e2"], ..PLAIN },
    ] {
        check(&case);
    }
}

#[test]
fn no_directory_on_the_way_to_a_pruned_one_is_made() {
    needs_dsync!();
    let lists = Scratch::new();
    let list = |name: &str, lines: &str| {
        fs::write(lists.at(name), lines).unwrap();
        format!("--files-from={}", lists.at(name).display())
    };
    let (one, two) = (list("one", "e1/e2/\n"), list("two", "full/empty/\na/b/c/\n"));

    let before: &[&str] = &["e1/", "e1/e2/", "e1/e2/old", "full/", "full/empty/", "full/empty/old"];
    for (options, sources) in [
        (&["-rtmR"][..], &["e1/"][..]),
        (&["-rtmR"], &["e1/e2/"]),
        (&["-rtmR"], &["./e1/e2/"]),
        (&["-rtmR"], &["full/empty/", "a/b/"]),
        (&["-rtmR"], &["full/empty/", "full/g"]),
        (&["-rtmR"], &["e1/./e2/", "full/./empty"]),
        (&["-rtmRn"], &["e1/e2/"]),
        (&["-rtmR", "--no-implied-dirs"], &["e1/e2/"]),
        (&["-rtmR", "--exclude=h"], &["x/", "x/skip.o"]),
        (&["-rtm", &one], &["./"]),
        (&["-tm", &one], &["./"]),
        (&["-rtm", &two], &["./"]),
        // A protected directory is kept, with those above it.
        (&["-rtmR", "--filter=P /e1/"], &["e1/e2/"]),
        (&["-rtmR", "--filter=P /e1/"], &["e1/e2"]),
        (&["-rtmR", "--filter=P e2"], &["e1/e2/"]),
        (&["-rtmR", "--filter=P /e1/", "--no-implied-dirs"], &["e1/e2/"]),
    ] {
        check(&Case { options, sources, ..PLAIN });
    }
    for options in [&["-rtmR", "--delete"][..], &["-rtmR", "--delete-before"], &["-rtmR", "--delete", "-n"]] {
        check(&Case { options, sources: &["e1/e2/", "full/empty/"], before, ..PLAIN });
    }

    // Of one path in several places the first directory's attributes count, barren or not.
    let scratch = Scratch::new();
    let nodes = [
        Node { mode: 0o711, ..Node::dir("barren/w/x") },
        Node::dir("other/w"),
        Node::file("other/w/f", 1, 9),
    ];
    Tree::of(["barren", "barren/w", "other"].map(Node::dir).into_iter().chain(nodes)).plant(&scratch.src());
    fs::set_permissions(scratch.src().join("barren/w"), fs::Permissions::from_mode(0o700)).unwrap();
    for (run, to) in [(Run::dsync(), scratch.dst()), (Run::of("rsync"), scratch.at("theirs"))] {
        let run = run.arg("-rpmR").args(["barren/./w/", "other/./w/"]).arg(&to).cwd(&scratch.src()).run();
        let _ = run.expect_quiet_success();
        assert_eq!(fs::metadata(to.join("w")).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(to.join("w")).unwrap().count(), 1);
    }
}

#[test]
fn a_directory_that_the_run_does_not_enter_is_an_empty_one() {
    needs_dsync!();
    let lists = Scratch::new();
    fs::write(lists.at("list"), "a/\n").unwrap();
    let list = format!("--files-from={}", lists.at("list").display());
    let before: &[&str] = &["a/", "a/b/", "a/b/old", "a/zz/", "a/zz/f"];

    for (options, sources) in [
        (&["-dtmR"][..], &["a/"][..]),
        (&["-dtmR"], &["a/b/"]),
        (&["-dtmR"], &["a/", "full/"]),
        (&["-dtmR"], &["./", "a/b/"]),
        (&["-dtmRn"], &["a/"]),
        (&["-dtm"], &["a/"]),
        (&["-tm", &list], &["./"]),
        (&["-dtLmR"], &["a/"]),
        // A protected directory is kept, with those above it.
        (&["-dtmR", "--filter=P b"], &["a/"]),
        (&["-dtmR", "--filter=P b"], &["a/b"]),
        (&["-dtmR", "--filter=P c"], &["a/"]),
        (&["-dtm", "--filter=P b"], &["a/"]),
        (&["-dtm", "--filter=P b"], &["a/b"]),
        (&["-tm", "--filter=P b", &list], &["./"]),
    ] {
        check(&Case { options, sources, ..PLAIN });
    }
    for options in [&["-dtmR", "--delete"][..], &["-dtmR", "--delete-before"], &["-dtm", "--delete"]] {
        check(&Case { options, sources: &["a/"], before, ..PLAIN });
    }
}

#[test]
fn directories_are_copied_without_what_is_in_them() {
    needs_dsync!();
    let old: &[&str] = &["a/", "a/zz/", "a/zz/f", "q/", "q/r/", "q/r/f", "full/", "full/gone"];
    for case in [
        Case { options: &["-dlpt"], ..PLAIN },
        Case { options: &["-dl"], sources: &["."], to: "new/", ..PLAIN },
        Case { options: &["-dlt"], sources: &["a", "e1", "top"], ..PLAIN },
        Case { options: &["-dlt"], sources: &["a/", "x/.", "e1"], ..PLAIN },
        Case { options: &["-ad"], sources: &["a"], ..PLAIN },
        Case { options: &["-a", "--no-r", "-d"], ..PLAIN },
        Case { options: &["-dlt", "--exclude=/a", "--exclude=top"], ..PLAIN },
        Case { options: &["-dlt", "--delete"], before: old, ..PLAIN },
        Case { options: &["-dlt", "--delete"], sources: &["a", "full/"], before: old, ..PLAIN },
        Case { options: &["-dlt", "--delete"], sources: &["a", "top"], before: old, ..PLAIN },
        Case { options: &["-dltn", "--delete-before"], before: old, ..PLAIN },
        Case { options: &["-lt", "--old-dirs"], ..PLAIN },
        Case { options: &["-lt", "--old-d", "--include=/a/b"], sources: &["./", "a"], ..PLAIN },
    ] {
        check(&case);
    }
}

#[test]
fn relative_operands_bring_their_paths() {
    needs_dsync!();
    for (options, sources) in [
        (&["-aR"][..], &["a/b/c/f"][..]),
        (&["-aR"], &["a/./b/c", "a/b/./c/f", "x"]),
        (&["-aR"], &["a//b///c", "full/"]),
        (&["-aR"], &["."]),
        (&["-aR"], &["a/b/.", "e1/"]),
        (&["-rltR"], &["a/b/c/f", "x/h"]),
        (&["-tR"], &["a/b/c/f", "a/b", "x/h"]),
        (&["-tR"], &["a/b/c"]),
        (&["-dtR"], &["a/b/", "a/b/c", "x"]),
        (&["-aR"], &["la/b/c/f"]),
        (&["-aR"], &["la/b", "la", "links/"]),
        (&["-aR"], &["other/up/b/g", "other"]),
        (&["-aR"], &["top", "a/nope/g", "nope/b"]),
        (&["-aR", "--ignore-missing-args"], &["top", "a/nope/g", "nope/b"]),
        (&["-aR", "--exclude=b"], &["a/b/c/f", "a/b/c"]),
        (&["-aR", "--exclude=/a/b/c/f", "--exclude=a"], &["a/b/c/f", "a/b/g"]),
        (&["-aR", "--exclude=c"], &["a", "a/b/c/f"]),
        (&["-aRm"], &["e1/e2", "top", "full/empty"]),
        (&["-aRx"], &["a/b/g", "x"]),
        (&["-aRn"], &["a/b/g", "x"]),
        (&["-aHR"], &["a/b/g", "a/./b/g"]),
        (&["-aR", "--existing"], &["a/b/g"]),
        (&["-aR"], &["top", "./a/b/g"]),
        (&["-aR", "--no-implied-dirs"], &["./a/b/g"]),
        (&["-tR"], &["./a/b/g"]),
    ] {
        check(&Case { options, sources, ..PLAIN });
    }
    for to in ["new", "new/"] {
        check(&Case { options: &["-aR"], sources: &["a/b/g"], to, ..PLAIN });
        check(&Case { options: &["-aR"], sources: &["top"], to, ..PLAIN });
    }
}

#[test]
fn only_directories_that_are_copied_are_deleted_from() {
    needs_dsync!();
    let before: &[&str] =
        &["a/", "a/zz/", "a/b/", "a/b/old", "a/b/c/", "a/b/c/old/", "old", "q/", "x/", "x/gone"];
    for (options, sources) in [
        (&["-aR", "--delete"][..], &["a/b/c"][..]),
        (&["-aR", "--delete"], &["a/b/c", "x"]),
        (&["-aR", "--delete"], &["a/b/c", "a/b/"]),
        (&["-aR", "--delete"], &["."]),
        (&["-aR", "--delete"], &["a/./b", "a/b/./c"]),
        (&["-dtR", "--delete"], &["a/b/", "x/h"]),
        (&["-aR", "--delete-before"], &["a/b/c", "x/"]),
        (&["-aRn", "--delete-during"], &["a/b/c", "x/"]),
        (&["-aR", "--delete", "--no-implied-dirs"], &["a/b/c"]),
        (&["-aR", "--delete-missing-args"], &["a/zz", "top"]),
        (&["-aR", "--delete-missing-args"], &["a/zz/"]),
        (&["-aR", "--delete-missing-args"], &["old/"]),
        (&["-aR", "--delete-missing-args"], &["old/."]),
        (&["-aR", "--delete-missing-args"], &["x/gone", "x/h", "a/b/old"]),
    ] {
        check(&Case { options, sources, before, ..PLAIN });
    }
}

#[test]
fn a_slash_behind_what_is_no_directory_counts_for_nothing() {
    needs_dsync!();
    for (options, sources, before) in [
        (&["-aR"][..], &["top/"][..], &["x/", "x/h"][..]),
        (&["-aR"], &["a/b/g/.", "x2/"], &["x2"]),
        (&["-aR", "--delete-missing-args"], &["x2/"], &["x2"]),
        (&["-aRi"], &["x/h/", "la/", "links/l/"], &[]),
        (&["-aRL"], &["x2/"], &["x2"]),
    ] {
        check(&Case { options, sources, before, ..PLAIN });
    }
}

#[test]
fn a_destination_that_ends_with_a_dot_is_a_directory() {
    needs_dsync!();
    for end in ["/.", "/", "/./", "//."] {
        let scratch = Scratch::new();
        for (name, content) in [("f", "new"), ("y", "precious")] {
            fs::write(scratch.at(name), content).unwrap();
        }
        std::os::unix::fs::symlink("y", scratch.at("link")).unwrap();
        let copy = |options: &[&str], to: &str| {
            let to = format!("{to}{end}");
            Run::dsync().arg("-a").args(options).args(["f", &to]).cwd(scratch.path()).run()
        };
        for to in ["y", "link"] {
            let _ = copy(&[], to).expect_code(3);
            assert_eq!(fs::read_to_string(scratch.at("y")).unwrap(), "precious", "{to}{end}");
            assert!(scratch.at("link").is_symlink(), "{to}{end}");
        }
        let _ = copy(&["--mkpath"], "new/dir").expect_code(0);
        assert_eq!(fs::read_to_string(scratch.at("new/dir/f")).unwrap(), "new", "{end}");
    }
}

#[test]
fn what_has_a_slash_behind_it_and_is_no_directory_is_removed_at_the_source() {
    needs_dsync!();
    let sshd = Sshd::shared();
    for source in ["top/", "x2/", "links/l/", "a/b/g/."] {
        let scratch = Scratch::new();
        plant(&scratch);
        let options = ["-aR", "--remove-source-files"];
        let pull = sshd.run(Via::Ssh).args(options).arg(sshd.operand(from(&scratch, &options, source)));
        let outcome = pull.arg(scratch.dst()).run().expect_quiet_success();
        let name = source.trim_end_matches("/.").trim_end_matches('/');
        let is_there = |tree: &Path| fs::symlink_metadata(tree.join(name)).is_ok();
        assert!(is_there(&scratch.dst()) && !is_there(&scratch.src()), "{}", outcome.account());
    }
}

#[test]
fn directories_on_the_way_are_made_or_left() {
    needs_dsync!();
    for (options, sources, before) in [
        (&["-aR", "--no-implied-dirs"][..], &["a/b/c/f", "x/h"][..], &[][..]),
        (&["-aR", "--no-i-d"], &["a/b/c", "full/g"], &["a/", "full/"]),
        (&["-aR", "--no-implied-dirs", "--implied-dirs"], &["a/b/c"], &["a/"]),
        (&["-aR"], &["a/b/g"], &["a"]),
        (&["-aR"], &["a/b/g", "x/h"], &["a/", "a/b/", "x/"]),
        (&["-aR", "--no-implied-dirs", "--existing"], &["a/b/g"], &["a/"]),
    ] {
        check(&Case { options, sources, before, ..PLAIN });
    }
}

#[test]
fn a_link_at_the_destination_is_followed_only_without_implied_directories() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    for (options, follows) in [(&["-aR"][..], false), (&["-aR", "--no-implied-dirs"], true)] {
        let to = scratch.at(if follows { "followed" } else { "replaced" });
        let links = [Node::symlink("a", "real"), Node::symlink("x", "../outside")];
        Tree::of([Node::dir("real")].into_iter().chain(links)).plant(&to);
        fs::create_dir_all(scratch.at("outside")).unwrap();
        let run = Run::dsync().args(options).args(["a/b/g"]).arg(&to).cwd(&scratch.src()).run();
        let account = run.expect_code(0).account();
        assert_eq!(to.join("a").is_symlink(), follows, "{account}");
        assert_eq!(to.join("real/b/g").exists(), follows, "{account}");

        // One that leads out of the destination never.
        let run = Run::dsync().args(options).args(["x/h"]).arg(&to).cwd(&scratch.src()).run();
        assert_eq!(run.code(), Some(if follows { 23 } else { 0 }), "{}", run.account());
        assert!(
            !scratch.at("outside/h").exists() && to.join("x").is_symlink() == follows,
            "{}",
            run.account()
        );
    }
}

#[test]
fn a_path_that_goes_upwards_is_no_relative_operand() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    for source in ["../src/a", "a/../x/h", ".."] {
        let run = Run::dsync().args(["-aR", source]).arg(scratch.dst()).cwd(&scratch.src()).run();
        assert_eq!(run.code(), Some(1), "{}", run.account());
        assert!(run.stderr_text().contains("'..'") && !scratch.dst().exists(), "{}", run.account());
    }
}
