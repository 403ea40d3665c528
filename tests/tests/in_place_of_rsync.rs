//! dsync under the name `rsync`: what programs that call rsync look for is there, and the refusals that none of
//! them knows are not.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use dsync_tests::{
    Node, Run, Scratch, Tree, needs_dsync, needs_root, oracle, program, run::wait_for, scratch::slash,
};

const NOBODY: u32 = 65_534;

/// Makes a link called `rsync` to the program.
fn link(scratch: &Scratch) -> PathBuf {
    let link = scratch.at("rsync");
    symlink(program(), &link).unwrap();
    link
}

fn rsync(link: &Path, words: &[&str], scratch: &Scratch) -> Run {
    Run::of(link).args(words).cwd(scratch.path())
}

#[test]
fn failures_are_told_in_lines_that_callers_of_rsync_look_for() {
    needs_dsync!();
    let scratch = Scratch::new();
    let link = link(&scratch);
    Tree::of([Node::file("f", 1, 10)]).plant(&scratch.src());
    fs::create_dir(scratch.at("is-a-directory")).unwrap();
    for (words, code) in [
        (&["-a", "missing/", "dst/"][..], 23),
        (&["-a", "-e", "false", "host:src/", "dst/"], 12),
        (&["-a", "src/", "no/such/parent"], 3),
        (&["--no-such-option"], 1),
    ] {
        let log = scratch.at("log");
        let run = rsync(&link, &["--log-file=log"], &scratch).args(words);
        let outcome = run.run().expect_code(code);
        let text = outcome.stderr_text();
        let last = text.lines().last().unwrap_or_default();
        let end = format!(" (code {code}) at main.c(0) [sender=3.2.7]");
        assert!(last.starts_with("rsync error: ") && last.ends_with(&end), "{}", outcome.account());
        assert!(text.starts_with("rsync: ") && !text.contains("dsync: "), "{}", outcome.account());
        if code != 1 {
            let logged = fs::read_to_string(&log).unwrap();
            assert!(logged.contains("] rsync: ") && logged.contains(&end), "{logged}");
        }
    }
}

#[test]
fn the_number_of_a_systems_error_is_behind_its_words() {
    needs_dsync!();
    needs_root!();
    let scratch = Scratch::new();
    let link = link(&scratch);
    Tree::of([Node { mode: 0o600, ..Node::file("f", 1, 10) }]).plant(&scratch.src());
    fs::create_dir(scratch.dst()).unwrap();
    std::os::unix::fs::chown(scratch.dst(), Some(NOBODY), None).unwrap();
    let run = rsync(&link, &["-r", "src/", "dst/"], &scratch).as_user(NOBODY, NOBODY);
    let outcome = run.run().expect_code(23);
    let is_numbered = |line: &str| line.starts_with("rsync: cannot read 'f': ") && line.ends_with(" (13)");
    assert!(outcome.stderr_text().lines().any(is_numbered), "{}", outcome.account());
}

#[test]
fn the_option_for_the_remote_program_has_rsyncs_name() {
    needs_dsync!();
    let scratch = Scratch::new();
    let link = link(&scratch);
    Tree::of([Node::file("f", 1, 10)]).plant(&scratch.src());
    let outcome = rsync(&link, &["-a", "-e", "sh -c 'exit 127'", "src/", "host:dst"], &scratch).run();
    let text = outcome.expect_code(127).stderr_text();
    assert!(text.contains("set --rsync-path") && !text.contains("--dsync-path"), "{text}");
}

#[test]
fn a_list_begins_and_ends_as_rsyncs_does() {
    needs_dsync!();
    let scratch = Scratch::new();
    let link = link(&scratch);
    Tree::of([Node::file("f", 1, 10)]).plant(&scratch.src());
    let ours = rsync(&link, &["-av", "src/", "ours/"], &scratch).run().expect_code(0).stdout_text();
    let theirs = ["-av".into(), slash(&scratch.src()), scratch.at("theirs/").into_os_string()];
    let theirs = oracle::rsync(theirs).expect_code(0).stdout_text();
    assert_eq!(ours.lines().next(), theirs.lines().next());
    let shape = |text: &str| -> Vec<String> {
        let last = text.lines().rev().take(3).map(str::to_owned);
        last.map(|line| {
            line.chars().filter(|letter| !letter.is_ascii_digit() && !",.".contains(*letter)).collect()
        })
        .collect()
    };
    assert_eq!(shape(&ours), shape(&theirs));
    assert!(ours.contains("total size is 10  speedup is "), "{ours}");
}

#[test]
fn an_empty_source_is_a_source_as_any_other() {
    needs_dsync!();
    let scratch = Scratch::new();
    let link = link(&scratch);
    Tree::of([Node::file("f", 1, 10)]).plant(&scratch.dst());
    let _ = Run::dsync()
        .args(["-a", "--delete"])
        .arg(slash(&scratch.src()))
        .arg(scratch.dst())
        .run()
        .expect_code(42);
    let _ = rsync(&link, &["-a", "--delete", "src/", "dst/"], &scratch).run().expect_code(0);
    assert_eq!(fs::read_dir(scratch.dst()).unwrap().count(), 0);
}

#[test]
fn runs_into_one_destination_follow_each_other() {
    needs_dsync!();
    let scratch = Scratch::new();
    let link = link(&scratch);
    Tree::of([Node::file("large", 1, 8 << 20)]).plant(&scratch.at("one"));
    Tree::of([Node::file("small", 1, 10)]).plant(&scratch.at("two"));
    // Longer than a run waits by itself.
    let first = rsync(&link, &["-a", "--bwlimit=1m", "one/", "dst/"], &scratch).start();
    wait_for(|| fs::read_dir(scratch.dst()).is_ok_and(|entries| entries.count() > 0));
    let refused = Run::dsync().args(["-a", "two/", "dst/"]).cwd(scratch.path()).run().expect_code(41);
    assert!(refused.stderr_text().contains("--lock-wait"), "{}", refused.account());
    let waited = rsync(&link, &["-a", "two/", "dst/"], &scratch).run().expect_code(0);
    assert!(waited.stderr_text().contains("waiting for its end"), "{}", waited.account());
    let _ = first.wait().expect_code(0);
    for name in ["one/large", "two/small"] {
        let copied = scratch.dst().join(Path::new(name).file_name().unwrap());
        assert_eq!(fs::read(scratch.at(name)).unwrap(), fs::read(copied).unwrap(), "{name}");
    }
}
