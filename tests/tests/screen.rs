//! Output to a screen or a log: no character from a name or a peer's text that is invisible or
//! moves anything.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
};

use dsync_tests::{Outcome, Run, Scratch, Sshd, Via, needs_dsync, scratch::slash};

/// C0, DEL, C1, separators, spaces of no width, marks of order and direction, tags.
const HIDDEN: &[char] = &[
    '\n',
    '\r',
    '\u{1b}',
    '\u{7f}',
    '\u{85}',
    '\u{9b}',
    '\u{ad}',
    '\u{61c}',
    '\u{200b}',
    '\u{200d}',
    '\u{202e}',
    '\u{2028}',
    '\u{2029}',
    '\u{2060}',
    '\u{2066}',
    '\u{feff}',
    '\u{fff9}',
    '\u{e0001}',
    '\u{e0041}',
    '\u{e007f}',
];

fn assert_clean(outcome: &Outcome) {
    for text in [outcome.stdout_text(), outcome.stderr_text()] {
        let found: Vec<char> = text.chars().filter(|c| *c != '\n' && HIDDEN.contains(c)).collect();
        assert!(found.is_empty(), "{found:?}: {}", outcome.account());
        assert!(text.lines().all(|line| !line.starts_with("forged")), "{}", outcome.account());
    }
}

#[test]
fn no_name_of_any_end_reaches_the_screen_or_the_log_raw() {
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    for (number, hidden) in HIDDEN.iter().enumerate() {
        let name = format!("{number}{hidden}forged");
        fs::write(scratch.src().join(&name), "x").unwrap();
        symlink(format!("to{hidden}forged"), scratch.src().join(format!("l{name}"))).unwrap();
    }
    fs::write(scratch.src().join(OsStr::from_bytes(b"\xffbytes")), "x").unwrap();
    let log = |run: Run| run.env("DSYNC_LOG", "trace");
    let local = |options: &[&str]| {
        log(Run::dsync().args(options)).arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_code(0)
    };
    let first = local(&["-aiv"]);
    assert!(first.stdout_text().matches("\\#").count() > 2 * HIDDEN.len(), "{}", first.account());
    assert_clean(&first);
    fs::remove_dir_all(scratch.dst()).unwrap();
    // A directory in a file's place is reported, by the remote end too.
    for hidden in HIDDEN {
        let number = HIDDEN.iter().position(|other| other == hidden).unwrap();
        fs::create_dir_all(scratch.dst().join(format!("{number}{hidden}forged")).join("full")).unwrap();
    }
    let push = sshd.run(Via::Ssh).arg("-aiv").arg(slash(&scratch.src()));
    let push = log(push).arg(sshd.operand(scratch.dst())).run().expect_code(23);
    assert!(push.stderr_text().contains("\\#342\\#200\\#213forged'"), "{}", push.account());
    assert_clean(&push);
    let missing = "no\u{200b}such\u{e0041}";
    for outcome in [
        Run::dsync().arg("-a").arg(scratch.at(missing)).arg(scratch.dst()).run(),
        Run::dsync().arg(format!("--no-such-{missing}")).run(),
        sshd.run(Via::Ssh).arg("-a").arg(sshd.operand(scratch.at(missing))).arg(scratch.dst()).run(),
        Run::dsync().arg("-a").arg("--exclude-from").arg(missing).arg("a").arg("b").run(),
    ] {
        assert_ne!(outcome.code(), Some(0));
        assert_clean(&outcome);
    }

    // JSON has its own escapes, and its readers get the characters back.
    let record = Run::dsync().args(["verify", "--record"]).arg(scratch.src()).run().expect_code(0);
    assert_clean(&record);
    fs::remove_dir_all(scratch.dst()).unwrap();
    fs::remove_file(scratch.src().join("8\u{200b}forged")).unwrap();
    let explained = |run: Run| run.arg(slash(&scratch.src())).arg(scratch.dst()).arg("9\u{200d}forged").run();
    for outcome in [
        Run::dsync().args(["-aii", "--json"]).arg(slash(&scratch.src())).arg(scratch.dst()).run(),
        Run::dsync().args(["-r", "--list-only", "--json"]).arg(scratch.src()).run(),
        Run::dsync().args(["verify", "--json"]).arg(scratch.src()).run(),
        explained(Run::dsync().args(["explain", "--json", "-a"])),
        Run::dsync().args(["doctor", "--json"]).arg(scratch.src().join("5\u{9b}forged")).run(),
    ] {
        assert!(outcome.stdout_text().contains("\\u"), "{}", outcome.account());
        assert_clean(&outcome);
        for line in outcome.stdout_text().lines() {
            let _: serde_json::Value = serde_json::from_str(line).unwrap();
        }
    }
}
