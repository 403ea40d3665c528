//! Wildcards in the operands of a remote source: the tree is the one that a shell's expansion and
//! rsync make, and nothing else is taken.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use dsync_tests::{Run, Scope, Scratch, Sshd, Via, differences, needs_dsync, program, scratch::slash};

/// Plants the source of all cases.
fn plant(scratch: &Scratch) {
    for dir in ["a1", "a2", "b", "x y"] {
        fs::create_dir(scratch.src().join(dir)).unwrap();
    }
    for (seed, file) in [
        "top.pdf",
        ".dot.pdf",
        "a1/f.pdf",
        "a2/g.pdf",
        "a2/h.txt",
        "b/1.c",
        "b/2.c",
        "st*r",
        "star",
        "x y/q",
        "back\\slash",
        "q[1]",
    ]
    .into_iter()
    .enumerate()
    {
        fs::write(scratch.src().join(file), "x".repeat(seed + 1)).unwrap();
    }
    symlink("a2", scratch.src().join("link")).unwrap();
}

/// Pulls these operands, which begin in the source.
fn pull(scratch: &Scratch, via: Via, options: &[&str], operands: &[&str], to: &Path) -> Run {
    let relative = options.iter().any(|option| option.contains('R'));
    let below = |operand: &&str| {
        let cut = if relative { "/./" } else { "/" };
        Sshd::shared().operand(OsString::from(format!("{}{cut}{operand}", scratch.src().display())))
    };
    let run = Sshd::shared().run(via).arg("--durability=none").args(options);
    run.args(operands.iter().map(below)).arg(slash(to))
}

#[test]
fn remote_wildcards_stand_for_what_a_shell_makes_of_them() {
    needs_dsync!();
    let cases: &[(&[&str], &[&str], &str)] = &[
        (&["-a"], &["*.pdf"], "*.pdf"),
        (&["-a"], &["a*/*.pdf"], "a*/*.pdf"),
        (&["-a"], &["a*"], "a*"),
        (&["-a"], &["a*/"], "a*/"),
        (&["-a", "--delete"], &["a?/."], "a?/."),
        (&["-a"], &["st*r"], "st*r"),
        (&["-a"], &["st\\*r"], "st\\*r"),
        (&["-a"], &["q\\[1\\]"], "q\\[1\\]"),
        (&["-a"], &["a[13]"], "a[13]"),
        (&["-a"], &["*"], "*"),
        (&["-a"], &["x*y", "b/?.c"], "x*y b/?.c"),
        (&["-a"], &["{a1,b}"], "a1 b"),
        (&["-a"], &["*/{f,g}.pdf"], "*/f.pdf link/g.pdf"),
        (&["-aR"], &["a*/*.pdf"], "a*/*.pdf"),
        (&["-aR"], &["*/?.*"], "*/?.*"),
        (&["-aR"], &["a*"], "a*"),
        (&["-aR", "--delete"], &["a*/"], "a*/"),
        (&["-aRm"], &["*/*.c", "none*/x"], "*/*.c none*/x"),
        (&["-a", "--exclude=*.txt"], &["a*"], "a*"),
        // The names that nothing matches are missing; the others are copied.
        (&["-a"], &["none*", "star"], "none* star"),
        (&["-a"], &["none*"], "none*"),
        (&["-a", "--ignore-missing-args"], &["none*", "star"], "none* star"),
        // Without wildcards a backslash is one.
        (&["-a"], &["back\\slash"], "back\\\\slash"),
    ];
    for (index, (options, operands, words)) in cases.iter().enumerate() {
        let scratch = Scratch::new();
        plant(&scratch);
        let (theirs, ours) = (scratch.at("theirs"), scratch.at("ours"));
        for tree in [&theirs, &ours] {
            fs::create_dir(tree).unwrap();
            fs::write(tree.join("old"), "old").unwrap();
            dsync_tests::tree::set_mtime(&tree.join("old"), (1_500_000_000, 0));
        }
        let line =
            format!("exec rsync --modify-window=-1 {} {words} {}/", options.join(" "), theirs.display());
        let oracle = Run::of("sh").arg("-c").arg(line).cwd(&scratch.src()).run();
        let via = if index % 2 == 0 { Via::Quic } else { Via::Ssh };
        let outcome = pull(&scratch, via, options, operands, &ours).run();

        let account = format!("{options:?} {operands:?}\n{}\n{}", outcome.account(), oracle.account());
        assert_eq!(outcome.code(), oracle.code(), "{account}");
        let scope = Scope { dir_times: false, root: false, ..Scope::full() };
        let found = differences(&theirs, &ours, scope);
        assert!(found.is_empty(), "{found:?}\n{account}");
    }
}

#[test]
fn pattern_that_matches_nothing_is_named() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    let outcome = pull(&scratch, Via::Ssh, &["-a"], &["none*", "star"], &scratch.at("to")).run();
    let outcome = outcome.expect_code(23);
    assert!(outcome.stderr_text().contains("/none*"), "{}", outcome.account());
    assert!(scratch.at("to/star").exists());
}

#[test]
fn the_one_match_may_have_a_new_name_and_several_may_not() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    let to = |operand: &str, name: &str| {
        let operand = Sshd::shared().operand(scratch.src().join(operand));
        Sshd::shared().run(Via::Ssh).args(["-a"]).arg(operand).arg(scratch.at(name)).run()
    };
    let _ = to("top.p*", "new").expect_code(0);
    assert_eq!(fs::read(scratch.at("new")).unwrap(), b"x");
    let _ = to("st*r", "several").expect_code(0);
    assert!(scratch.at("several/star").exists() && scratch.at("several/st*r").exists());
}

#[test]
fn wildcards_choose_what_is_listed_and_the_directory_of_a_list() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    let operand = |path: &str| Sshd::shared().operand(scratch.src().join(path));
    let outcome = Sshd::shared().run(Via::Ssh).arg(operand("*.pdf")).run().expect_code(0);
    assert!(outcome.stdout_text().contains("top.pdf"), "{}", outcome.account());
    assert!(!outcome.stdout_text().contains("star"), "{}", outcome.account());

    fs::write(scratch.at("list"), "g.pdf\n").unwrap();
    let from = || Sshd::shared().run(Via::Ssh).arg("-a").arg("--files-from").arg(scratch.at("list"));
    let _ = from().arg(operand("a[2]")).arg(slash(&scratch.at("to"))).run().expect_code(0);
    assert!(scratch.at("to/g.pdf").exists());
    // A list has one directory.
    let outcome = from().arg(operand("a*")).arg(slash(&scratch.at("to"))).run();
    assert!(
        outcome.code() != Some(0) && outcome.stderr_text().contains("2 directories"),
        "{}",
        outcome.account()
    );
}

#[test]
fn wildcards_of_a_remote_destination_stand_for_themselves() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    let to = Sshd::shared().operand(scratch.at("d*"));
    let _ =
        Sshd::shared().run(Via::Ssh).arg("-a").arg(scratch.src().join("star")).arg(to).run().expect_code(0);
    assert!(scratch.at("d*").exists());
}

/// A cold disk or a remote one below a pattern.
#[test]
fn wildcards_may_take_longer_than_a_peer_may_be_silent() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    let server = scratch.at("server");
    let text = format!(
        "#!/bin/sh\nexec strace -f -qq -o /dev/null -e trace=getdents64 \\\n\
         -e inject=getdents64:delay_enter=25000000:when=1 '{}' \"$@\"\n",
        program().display()
    );
    fs::write(&server, text).unwrap();
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).unwrap();

    let pull = Sshd::shared().run_serving(Via::Ssh, &server).args(["-a", "--timeout=15", "--retries=0"]);
    let source = Sshd::shared().operand(scratch.src().join("a*"));
    let _ = pull.arg(source).arg(slash(&scratch.dst())).run().expect_code(0);
    assert!(scratch.dst().join("a2/g.pdf").exists());
}
