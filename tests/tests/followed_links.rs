//! Links of the source that are followed (`-L`, `-k`, `--copy-unsafe-links`) or munged, each as the
//! real rsync does it; and links that lead in circles or out of a restricted server's directory.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    time::Duration,
};

use dsync_tests::{
    Node, Outcome, Run, Scope, Scratch, Sshd, Tree, Via, assert_same, assert_unchanged, differences,
    needs_dsync, needs_root, oracle, program, scratch::slash, survey,
};

/// Links by name and text, relative to `src`: all that lead somewhere.
const LINKS: &[(&str, &str)] = &[
    ("to_file", "real/f"),
    ("to_dir", "real"),
    ("to_dir_slash", "real/"),
    ("chain", "to_dir"),
    ("deep/up", "../real/f"),
    ("deep/up_dir", "../real"),
    ("out_file", "../out/f"),
    ("out_dir", "../out/dir"),
    ("deep/out", "../../out/f"),
    ("deep/back_in", "../../src/real/f"),
    ("hard_one", "real/hard1"),
    ("hard_two", "../src/real/hard2"),
    ("fifo", "../out/fifo"),
    ("null", "/dev/null"),
    ("around", "real/../real/f"),
];

/// Links that lead nowhere.
const DANGLING: &[(&str, &str)] = &[("none", "nowhere"), ("out_none", "../nowhere"), ("self", "self")];

fn plant(scratch: &Scratch, links: &[&[(&str, &str)]]) {
    let dirs = ["real", "deep", "real/sub"].map(Node::dir);
    let files = ["real/f", "real/sub/g", "real/hard1", "plain"].map(|path| Node::file(path, 7, 3000));
    let hard = Node::hard_link("real/hard2", "real/hard1");
    Tree::of(dirs.into_iter().chain(files).chain([hard])).plant(&scratch.src());
    Tree::of([
        Node::dir("dir"),
        Node::file("dir/x", 3, 100),
        Node::file("f", 4, 200),
        Node::new("fifo", dsync_tests::tree::Kind::Fifo),
        Node::symlink("dir/inner", "../f"),
    ])
    .plant(&scratch.at("out"));
    for (name, text) in links.iter().copied().flatten() {
        symlink(text, scratch.src().join(name)).unwrap();
    }
}

/// Runs dsync to `dst` and rsync to `rsync`; asserts the same tree and the same exit code.
fn as_rsync(scratch: &Scratch, run: Run, options: &[&str], from: &str, to: std::ffi::OsString) -> Outcome {
    let source = scratch.at("src").display().to_string();
    let ours =
        run.args(options).arg(format!("{from}{source}/")).arg(to).limit(Duration::from_secs(120)).run();
    let theirs = Run::of("rsync").arg("--modify-window=-1").args(options).arg(format!("{source}/"));
    let theirs = theirs.arg(scratch.at("rsync")).run();
    let scope = Scope { dir_times: false, root: false, ..Scope::full() };
    let found = differences(&scratch.at("rsync"), &scratch.dst(), scope);
    let account = || format!("{options:?} {}\n{}", ours.account(), theirs.account());
    assert!(found.is_empty(), "{found:?}\n{}", account());
    assert_eq!(ours.code(), theirs.code(), "{}", account());
    ours
}

const CHOICES: &[&[&str]] = &[
    &["-aL"],
    &["-aLH"],
    &["-ak"],
    &["-akH"],
    &["-a", "--copy-unsafe-links"],
    &["-ak", "--copy-unsafe-links"],
    &["-aL", "--safe-links"],
    &["-ak", "--safe-links"],
    &["-a", "--copy-unsafe-links", "--safe-links"],
    &["-rtk"],
    &["-rtL"],
    &["-rt", "--copy-unsafe-links"],
    &["-aLx", "--exclude=null"],
    &["-aL", "--exclude=to_dir/", "--exclude=/out_file"],
    &["-aLc"],
    &["-aRL"],
    &["-aR", "-k"],
];

#[test]
fn links_are_followed_as_by_rsync() {
    needs_dsync!();
    needs_root!();
    for options in CHOICES {
        let scratch = Scratch::new();
        plant(&scratch, &[LINKS]);
        let dst = || scratch.dst().into_os_string();
        let _ = as_rsync(&scratch, Run::dsync(), options, "", dst());
        let again = as_rsync(&scratch, Run::dsync(), &[*options, &["-i"]].concat(), "", dst());
        let lines = again.stdout_text();
        let quiet = |line: &str| line.starts_with(".d") || line.starts_with("skipping ");
        assert!(lines.lines().all(quiet), "{options:?}: {lines}");
    }
}

#[test]
fn links_that_are_replaced_because_they_lead_out_are_listed_as_by_rsync() {
    needs_dsync!();
    let sshd = Sshd::shared();
    for options in
        [&["-av"][..], &["-avn"], &["-a", "--info=symsafe"], &["-avL"], &["-av", "--info=symsafe0"]]
    {
        let options = [options, &["--copy-unsafe-links"]].concat();
        let scratch = Scratch::new();
        plant(&scratch, &[&[("near", "plain"), ("out", "../out/f"), ("absolute", "/etc/hostname")]]);
        let told = |run: Run, from: OsString, to: OsString| -> Vec<String> {
            let outcome = run.args(&options).arg(from).arg(to).run();
            let told = outcome.all_text();
            let lines = told.lines().filter(|line| line.starts_with("copying unsafe symlink"));
            // dsync does not name what the link leads to.
            lines.map(|line| line.split(" -> ").next().unwrap_or(line).to_owned()).collect()
        };

        let here = || slash(&scratch.src());
        let mut expected = told(Run::of("rsync"), here(), scratch.at("rsync").into());
        expected.sort();
        let ways = [
            ("local", told(Run::dsync(), here(), scratch.dst().into())),
            ("push", told(sshd.run(Via::Ssh), here(), sshd.operand(scratch.at("pushed")))),
            ("pull", told(sshd.run(Via::Ssh), sshd.operand(here()), scratch.at("pulled").into())),
        ];
        for (way, mut told) in ways {
            told.sort();
            assert_eq!(told, expected, "{way} {options:?}");
        }
    }
}

#[test]
fn links_are_followed_over_the_wire() {
    needs_dsync!();
    needs_root!();
    let sshd = Sshd::shared();
    for options in [&["-aLHX"][..], &["-ak"], &["-a", "--copy-unsafe-links"]] {
        for via in [Via::Auto, Via::Ssh] {
            let scratch = Scratch::new();
            plant(&scratch, &[LINKS]);
            let _ = as_rsync(&scratch, sshd.run(via), options, "", sshd.operand(scratch.dst()));
            fs::remove_dir_all(scratch.dst()).unwrap();
            let host = sshd.operand("").into_string().unwrap();
            let _ = as_rsync(&scratch, sshd.run(via), options, &host, scratch.dst().into_os_string());
        }
    }
}

#[test]
fn a_dry_run_follows_links_and_changes_nothing() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch, &[LINKS]);
    let run = |options: &[&str]| {
        let run = Run::dsync().args(["-aL", "-i", "--exclude=null"]).args(options);
        run.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_quiet_success().stdout_text()
    };
    let planned = run(&["-n"]);
    assert!(!scratch.dst().exists());
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(sorted(&planned), sorted(&run(&[])));
}

#[test]
fn links_to_nothing_are_named_and_hold_deletion_back() {
    needs_dsync!();
    for options in [
        &["-aL", "--delete"][..],
        &["-a", "--copy-unsafe-links", "--delete"],
        &["-ak", "--delete"],
        &["-aL", "--delete", "--exclude=none", "--exclude=out_none", "--exclude=self"],
        &["-aL", "--delete", "--ignore-errors"],
    ] {
        let scratch = Scratch::new();
        plant(&scratch, &[DANGLING]);
        for destination in ["dst", "rsync"] {
            Tree::of([Node::file("extra", 1, 1)]).plant(&scratch.at(destination));
        }
        let outcome = as_rsync(&scratch, Run::dsync(), options, "", scratch.dst().into_os_string());
        let names = outcome.code() == Some(23);
        assert_eq!(
            outcome.stderr_text().contains("symlink has no referent: \"out_none\""),
            names,
            "{options:?} {}",
            outcome.account()
        );
    }
}

/// Such a link is no directory, so rules for directories take nothing in.
#[test]
fn links_to_nothing_that_a_rule_leaves_out_are_not_named() {
    for (rules, code) in [
        (&["--include=*/", "--exclude=*"][..], 0),
        (&["--include=*/", "--include=plain", "--exclude=*"], 0),
        (&["--include=*/", "--exclude=none", "--exclude=out_none", "--exclude=self"], 0),
        (&["--include=*/", "--exclude=none"], 23),
        (&["--include=*/", "--include=self", "--exclude=*"], 23),
    ] {
        for follows in ["-L", "--copy-unsafe-links", "-k"] {
            let scratch = Scratch::new();
            plant(&scratch, &[DANGLING]);
            let options = [&["-a", follows, "--delete"], rules].concat();
            let ours = as_rsync(&scratch, Run::dsync(), &options, "", scratch.dst().into());
            assert!(follows != "-L" || ours.code() == Some(code), "{}", ours.account());
        }
    }
}

#[test]
fn links_that_lead_in_circles_are_named_and_followed_no_further() {
    needs_dsync!();
    let scratch = Scratch::new();
    let circles = [("to_dir", "real"), ("real/sub/up", ".."), ("deep/top", "../."), ("parent", "..")];
    plant(&scratch, &[&circles]);
    Tree::of([Node::file("extra", 1, 1)]).plant(&scratch.dst());
    let run = Run::dsync().args(["-aL", "--delete"]).arg(slash(&scratch.src())).arg(scratch.dst());
    let outcome = run.limit(Duration::from_secs(300)).run().expect_code(23);
    for circle in ["real/sub/up", "to_dir/sub/up", "deep/top"] {
        let line = format!("cannot follow the link '{circle}': it leads in a circle");
        assert!(outcome.stderr_text().contains(&line), "{line}: {}", outcome.account());
    }
    // Everything beside a circle is copied, and nothing is deleted.
    for path in ["to_dir/f", "to_dir/sub/g", "real/sub/g", "parent/out/f", "extra"] {
        assert!(scratch.dst().join(path).exists(), "{path}: {}", outcome.account());
    }
    // The destination is in the parent, and grows meanwhile.
    assert!(!scratch.dst().join("parent/dst").exists(), "{}", outcome.account());
    assert!(!scratch.dst().join("parent/src/parent").exists());
}

#[test]
fn operands_that_are_links_are_followed() {
    needs_dsync!();
    for options in [&["-aL"][..], &["-ak"], &["-a", "--copy-unsafe-links"], &["-rL", "--ignore-missing-args"]]
    {
        for operands in
            [&["to_dir"][..], &["to_file"], &["out_dir", "out_file", "to_dir"], &["none", "plain"]]
        {
            let scratch = Scratch::new();
            plant(&scratch, &[LINKS, DANGLING]);
            for destination in ["dst", "rsync"] {
                fs::create_dir(scratch.at(destination)).unwrap();
            }
            let sources: Vec<_> = operands.iter().map(|name| scratch.src().join(name)).collect();
            let run = |run: Run, to: &str| run.args(options).args(&sources).arg(scratch.at(to)).run();
            let (ours, theirs) = (run(Run::dsync(), "dst/"), run(Run::of("rsync"), "rsync/"));
            let scope = Scope { dir_times: false, root: false, times: false, ..Scope::full() };
            let found = differences(&scratch.at("rsync"), &scratch.dst(), scope);
            let account = format!("{options:?} {operands:?} {}\n{}", ours.account(), theirs.account());
            assert!(found.is_empty(), "{found:?}\n{account}");
            assert_eq!(ours.code(), theirs.code(), "{account}");
        }
    }
}

/// Its name is there, so nothing that has it at the destination goes.
#[test]
fn a_link_to_nowhere_that_is_to_be_followed_is_not_missing() {
    needs_dsync!();
    let options: [&[&str]; 5] = [
        &["-a"],
        &["-a", "--ignore-missing-args"],
        &["-a", "--delete-missing-args"],
        &["-a", "--exclude=out_none"],
        &["-aR", "--delete-missing-args"],
    ];
    for options in options {
        for operands in [&["out_none"][..], &["out_none", "plain"], &["plain", "out_none"]] {
            for in_list in [false, true] {
                let scratch = Scratch::new();
                plant(&scratch, &[DANGLING]);
                fs::write(scratch.at("list"), operands.join("\n")).unwrap();
                let list = format!("--files-from={}", scratch.at("list").display());
                let run = |run: Run, to: &str| {
                    fs::create_dir(scratch.at(to)).unwrap();
                    fs::write(scratch.at(to).join("out_none"), "old").unwrap();
                    let run = run.arg("--copy-unsafe-links").args(options).cwd(&scratch.src());
                    let run = if in_list { run.args([&list, "."]) } else { run.args(operands) };
                    run.arg(slash(&scratch.at(to))).run()
                };
                let (ours, theirs) = (run(Run::dsync(), "dst"), run(Run::of("rsync"), "rsync"));

                let scope = Scope { dir_times: false, root: false, times: false, ..Scope::full() };
                let found = differences(&scratch.at("rsync"), &scratch.dst(), scope);
                let account = format!("{options:?} {operands:?} {}\n{}", ours.account(), theirs.account());
                assert!(found.is_empty(), "{found:?}\n{account}");
                assert!(scratch.dst().join("out_none").exists(), "{account}");
                assert_eq!(ours.code(), theirs.code(), "{account}");
            }
        }
    }
}

#[test]
fn a_followed_link_leaves_the_source_and_not_its_target() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch, &[&[("out_file", "../out/f")]]);
    let run = Run::dsync().args(["-aL", "--remove-source-files"]).arg(slash(&scratch.src()));
    let _ = run.arg(scratch.dst()).run().expect_quiet_success();
    assert!(!scratch.src().join("out_file").is_symlink() && scratch.at("out/f").exists());
    assert!(scratch.dst().join("out_file").is_file());
}

#[test]
fn files_behind_a_link_that_leads_out_are_copied_and_stay_and_those_of_the_source_go() {
    let sshd = Sshd::shared();
    for options in [&["-aL"][..], &["-ak"], &["-a", "--copy-unsafe-links"]] {
        for moves in ["--remove-source-files", "--remove-sent-files"] {
            for remote in [false, true] {
                let scratch = Scratch::new();
                let absolute = scratch.at("out/dir").display().to_string();
                let inside = [("near", "real/sub")];
                plant(&scratch, &[&[("out_dir", "../out/dir"), ("out_whole", &absolute)], &inside]);
                let before = survey(&scratch.at("out"));
                let run = if remote { sshd.run(Via::Ssh) } else { Run::dsync() };
                let run = run.args(options).arg(moves).arg(slash(&scratch.src()));
                let to = scratch.dst();
                let to = if remote { sshd.operand(to) } else { to.into_os_string() };
                let outcome = run.arg(to).run().expect_code(23);

                let account = format!("{options:?} {moves} {remote}\n{}", outcome.account());
                assert!(outcome.stderr_text().contains("leads out of the source"), "{account}");
                assert_unchanged(&before, &scratch.at("out"));
                for name in ["out_dir/x", "out_whole/x", "near/g", "real/sub/g"] {
                    let is_unsafe = options.contains(&"--copy-unsafe-links");
                    if !(is_unsafe && name == "near/g") {
                        assert!(scratch.dst().join(name).is_file(), "{name}: {account}");
                    }
                }
                assert!(!scratch.src().join("real/sub/g").exists(), "{account}");
                assert!(!scratch.src().join("real/f").exists(), "{account}");
            }
        }
    }
}

#[test]
fn files_whose_own_path_leads_out_by_a_link_are_copied_and_stay() {
    let sshd = Sshd::shared();
    for follows in ["-a", "-aL", "-ak"] {
        for (in_list, name) in
            [(false, "out_dir/x"), (true, "out_dir/x"), (true, "out_dir/"), (true, "near/g")]
        {
            for remote in [false, true] {
                let scratch = Scratch::new();
                plant(&scratch, &[&[("out_dir", "../out/dir"), ("near", "real/sub")]]);
                let list = scratch.at("list");
                fs::write(&list, name).unwrap();
                let before = survey(&scratch.at("out"));
                let run = if remote { sshd.run(Via::Ssh) } else { Run::dsync() };
                let run = run.args([follows, "-r", "-R", "--remove-source-files"]);
                let run = if in_list {
                    run.arg(format!("--files-from={}", list.display())).arg(scratch.src())
                } else {
                    run.arg(format!("{}/./{name}", scratch.src().display()))
                };
                let to = scratch.dst();
                let to = if remote { sshd.operand(to) } else { to.into_os_string() };
                let outcome = run.arg(to).run();

                let account = format!("{follows} {in_list} {name} {remote}\n{}", outcome.account());
                assert_unchanged(&before, &scratch.at("out"));
                if name == "near/g" {
                    assert_eq!(outcome.code(), Some(0), "{account}");
                    assert!(!scratch.src().join("real/sub/g").exists(), "{account}");
                } else if outcome.code() != Some(0) {
                    assert_eq!(outcome.code(), Some(23), "{account}");
                    // The cage of an end that follows no links ends before what they lead to.
                    let told = ["leads out of the source", "Permission denied"];
                    assert!(told.iter().any(|text| outcome.stderr_text().contains(text)), "{account}");
                } else {
                    // Without a followed link only the link itself was moved.
                    assert!(!scratch.dst().join("out_dir/x").is_file(), "{account}");
                }
            }
        }
    }
}

/// Plants links in a restricted directory, and a shell that starts its server.
fn restricted(scratch: &Scratch) -> Run {
    let floor = scratch.at("floor");
    fs::create_dir_all(floor.join("tree/sub")).unwrap();
    fs::create_dir(scratch.at("outside")).unwrap();
    fs::write(scratch.at("outside/secret"), "secret").unwrap();
    fs::write(floor.join("beside"), "beside").unwrap();
    fs::write(floor.join("tree/sub/f"), "f").unwrap();
    for (text, name) in [
        ("../beside", "tree/in"),
        ("../../beside", "tree/sub/in"),
        ("sub", "tree/dir"),
        ("../../outside/secret", "tree/out"),
        ("../../../outside/secret", "tree/sub/out"),
        ("../../outside", "tree/out_dir"),
        ("/etc/passwd", "tree/absolute"),
        ("../..", "tree/above"),
        ("/proc/self/root", "tree/object"),
    ] {
        symlink(text, floor.join(name)).unwrap();
    }
    let shell = scratch.at("forced");
    let text = format!(
        "#!/bin/sh\ncd /\nexport SSH_ORIGINAL_COMMAND=\"$*\"\nexec {} --server --restrict {},ro\n",
        program().display(),
        floor.display()
    );
    fs::write(&shell, text).unwrap();
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).unwrap();
    Run::dsync().args(["--transport=ssh", "-e"]).arg(shell)
}

#[test]
fn a_restricted_source_follows_no_link_out_of_its_directory() {
    needs_dsync!();
    for (options, refused) in [
        (&["-aL"][..], &["out", "sub/out", "out_dir", "absolute", "above", "object"][..]),
        (&["-a", "--copy-unsafe-links"], &["out", "sub/out", "out_dir", "absolute", "above", "object"]),
        (&["-ak"], &[]),
    ] {
        let scratch = Scratch::new();
        let run = restricted(&scratch).args(options).arg("host:tree/").arg(slash(&scratch.at("got")));
        let outcome = run.run().expect_code(if refused.is_empty() { 0 } else { 23 });
        for name in refused {
            let line = format!("'{name}': it leads out of what the other end may use");
            assert!(outcome.stderr_text().contains(&line), "{options:?} {name}: {}", outcome.account());
            assert!(!scratch.at("got").join(name).exists());
        }
        let got = survey(&scratch.at("got"));
        assert!(!got.keys().any(|path| path.ends_with(b"secret") || path.ends_with(b"passwd")));
        let follows = |name: &str| fs::read_to_string(scratch.at("got").join(name)).unwrap_or_default();
        assert_eq!(follows("dir/f"), "f", "{}", outcome.account());
        if options == ["-aL"] {
            assert_eq!((follows("in"), follows("sub/in")), ("beside".into(), "beside".into()));
        }
    }
    // Nor by an operand.
    let scratch = Scratch::new();
    for operand in ["host:tree/out", "host:tree/above"] {
        let run = restricted_again(&scratch).args(["-aL", operand]).arg(slash(&scratch.at("got")));
        let outcome = run.run();
        assert!(matches!(outcome.code(), Some(23 | 42)), "{operand}: {}", outcome.account());
        assert!(!scratch.at("got/out").exists() && !scratch.at("got/above").exists());
    }
}

fn restricted_again(scratch: &Scratch) -> Run {
    if scratch.at("floor").exists() {
        return Run::dsync().args(["--transport=ssh", "-e"]).arg(scratch.at("forced"));
    }
    restricted(scratch)
}

/// Returns the text of the link that a run makes of one with this text.
fn munged(
    run: Run,
    options: &[&str],
    from: &Path,
    to: &Path,
    operands: [std::ffi::OsString; 2],
    text: &str,
) -> String {
    let _ = fs::remove_dir_all(from);
    let _ = fs::remove_dir_all(to);
    fs::create_dir(from).unwrap();
    symlink(text, from.join("link")).unwrap();
    let _ = run.arg("-a").args(options).args(operands).run().expect_quiet_success();
    fs::read_link(to.join("link")).map(|text| text.display().to_string()).unwrap_or_default()
}

#[test]
fn links_are_munged_where_they_are_received_and_restored_where_they_are_sent_from() {
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    let (from, to) = (scratch.src(), scratch.dst());
    let (here, there) = (&["--munge-links"][..], &["-M--munge-links"][..]);
    let both = &["--munge-links", "-M--munge-links"][..];
    const KEPT: &str = "/rsyncd-munged/../x";
    for (options, text, [local, push, pull]) in [
        (&[][..], "../x", ["../x"; 3]),
        (here, "../x", ["../x", "../x", KEPT]),
        (here, KEPT, ["../x", "../x", "/rsyncd-munged//rsyncd-munged/../x"]),
        (there, "../x", [KEPT, KEPT, "../x"]),
        (there, KEPT, ["/rsyncd-munged//rsyncd-munged/../x", "/rsyncd-munged//rsyncd-munged/../x", "../x"]),
        (both, "../x", [KEPT; 3]),
        (both, KEPT, [KEPT; 3]),
        (&["--munge-links", "--safe-links"], "../x", ["", "", ""]),
    ] {
        let (src, dst) = (slash(&from), to.clone().into_os_string());
        let got = munged(Run::dsync(), options, &from, &to, [src.clone(), dst.clone()], text);
        assert_eq!(got, local, "local {options:?} {text}");
        // rsync's own result; before 3.5.0 links under -M--munge-links were lost.
        if oracle::is_since((3, 5, 0)) {
            let theirs = munged(Run::of("rsync"), options, &from, &to, [src.clone(), dst.clone()], text);
            assert_eq!(got, theirs, "rsync {options:?} {text}");
        }
        let remote = sshd.operand(&dst);
        assert_eq!(munged(sshd.run(Via::Auto), options, &from, &to, [src.clone(), remote], text), push);
        let remote = sshd.operand(&src);
        assert_eq!(munged(sshd.run(Via::Ssh), options, &from, &to, [remote, dst], text), pull);
    }
    // A second run finds them equal.
    let run = |options: &[&str]| {
        let run = Run::dsync().args(["-ai", "-M--munge-links"]).args(options);
        run.arg(slash(&from)).arg(&to).run().expect_quiet_success().stdout_text()
    };
    let before = (run(&[]), survey(&to)).1;
    assert_eq!(run(&["--delete"]), "");
    assert_unchanged(&before, &to);
    assert_same(&from, &from, Scope::full());
}
