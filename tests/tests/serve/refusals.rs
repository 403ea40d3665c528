//! Refusals of a server and lost ways to it, in the words and codes of every command that goes to a share.

use std::{fs, net::TcpListener, os::unix::fs::symlink, path::Path};

use dsync_tests::{Outcome, Run, needs_dsync, run::wait_for, scratch::slash, tree::noise};
use rustix::process::Signal;

use crate::nas::Nas;

/// Runs each command that goes to a share, with this path in place of the share's.
fn each(nas: &Nas, share: &str) -> [(&'static str, Outcome); 5] {
    let server = nas.operand("").replace("/nas/", "");
    let there = format!("{server}/{share}");
    let [manifest, other] = ["manifest", "other"].map(|name| nas.scratch.at(name));
    if !manifest.exists() {
        let recorded =
            Run::dsync().args(["verify", "--record", "--manifest"]).arg(&manifest).arg(nas.scratch.src());
        let _ = recorded.run().expect_code(0);
    }
    let source = slash(&nas.scratch.src());
    [
        ("run", nas.run().args(["-n", "-a"]).arg(&there).arg(nas.scratch.at("got")).run()),
        ("verify", nas.run().args(["verify", "--manifest"]).arg(&manifest).arg(&there).run()),
        ("against", nas.run().arg("verify").arg(&source).arg("--against").arg(&there).run()),
        ("record", nas.run().args(["verify", "--record", "--manifest"]).arg(&other).arg(&there).run()),
        ("explain", nas.run().args(["explain", "-a"]).arg(&source).arg(&there).arg("file").run()),
    ]
}

/// Checks that each command ends alike, and without a word about how the way is made.
fn each_ends(nas: &Nas, share: &str, code: i32, words: &str) {
    for (command, outcome) in each(nas, share) {
        let said = outcome.stderr_text();
        assert_eq!(outcome.code(), Some(code), "{command}: {}", outcome.account());
        assert!(said.contains(words), "{command}: {}", outcome.account());
        for strange in ["exited", "ssh HOST true"] {
            assert!(!said.contains(strange), "{command}: {}", outcome.account());
        }
    }
}

#[test]
fn every_command_at_a_share_has_the_servers_words_and_code() {
    needs_dsync!();
    let (mut nas, server) = Nas::offering("full");
    fs::write(nas.scratch.src().join("file"), "content").unwrap();
    nas.stand();
    nas.know(&server);
    each_ends(&nas, "elsewhere/", 42, "there is no share elsewhere for key web1");

    let config = fs::read_to_string(nas.scratch.at("serve.toml")).unwrap();
    nas.reconfigure(&config.replacen("[shares.nas]", "[shares.nas]\nmarker = '.here'", 1));
    each_ends(&nas, "nas/", 3, "share 'nas' is not there");

    let mine = nas.config("home/dsync/key");
    let kept = fs::read(&mine).unwrap();
    fs::remove_file(&mine).unwrap();
    let _ = Nas::public(&mine);
    each_ends(&nas, "nas/", 40, "does not let this key in");
    fs::write(&mine, kept).unwrap();

    nas.know(&Nas::public(&nas.scratch.at("another.key")));
    each_ends(&nas, "nas/", 40, "has another key than before");

    // Nobody listens there as long as this test has the port.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    nas.server.as_mut().unwrap().port = closed.local_addr().unwrap().port();
    drop(closed);
    each_ends(&nas, "nas/", 10, "no connection to '127.0.0.1' port");
}

#[test]
fn a_run_that_does_not_get_back_to_a_share_tells_why_in_plain_words() {
    needs_dsync!();
    let nas = Nas::standing("full");
    fs::write(nas.scratch.src().join("big"), noise(3, 8 << 20)).unwrap();
    let slow = nas.run().args(["-a", "--bwlimit=1M", "--retries=1", "--stats"]);
    let running = slow.arg(slash(&nas.scratch.src())).arg(nas.operand("tree")).start();
    // Content comes to a session that has begun at both ends; the lock is there before.
    let is_part = |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with(".dsync-part-");
    let has_part = |dir: &Path| fs::read_dir(dir).is_ok_and(|found| found.flatten().any(is_part));
    wait_for(|| has_part(&nas.tree()));

    let sessions = nas.sessions(&running);
    let server = nas.server.as_ref().unwrap().process.id();
    for process in [server].into_iter().chain(sessions) {
        dsync_tests::run::send(process, Signal::KILL);
    }
    let outcome = running.wait();
    let said = outcome.stderr_text();
    assert!(matches!(outcome.code(), Some(10 | 12)), "{}", outcome.account());
    assert!(said.contains("1 try to go on failed: no connection to '127.0.0.1'"), "{}", outcome.account());
    assert!(!said.contains("exited"), "{}", outcome.account());
}

#[test]
fn a_server_that_stays_silent_ends_the_run_in_the_time_that_was_asked_for() {
    needs_dsync!();
    let (mut nas, server) = Nas::offering("full");
    fs::write(nas.scratch.src().join("file"), "content").unwrap();
    nas.stand();
    nas.know(&server);
    // The system accepts for whoever listens, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    nas.server.as_mut().unwrap().port = silent.local_addr().unwrap().port();
    nas.know(&server);
    let run = || nas.run().arg("--contimeout=1");
    let push = run().arg("-a").arg(slash(&nas.scratch.src())).arg(nas.operand("tree"));
    for run in [push, run().arg(nas.operand("").replace("/nas/", "/"))] {
        let outcome = run.run().expect_code(35);
        assert!(outcome.stderr_text().contains("did not answer in time"), "{}", outcome.account());
    }
}

#[test]
fn what_no_role_allows_is_refused_without_another_role_as_its_cure() {
    needs_dsync!();
    let nas = Nas::standing("full");
    fs::write(nas.scratch.src().join("file"), "content").unwrap();
    for (option, others) in [
        ("--keep-dirlinks", &[][..]),
        ("--no-implied-dirs", &["-R"]),
        ("--write-devices", &[]),
        ("-M--insecure-links", &[]),
        ("-M--copy-as=root", &[]),
    ] {
        let words: Vec<_> = others.iter().chain([&option]).copied().collect();
        let refused = nas.push(&words).expect_code(42);
        let name = option.trim_start_matches("-M").split('=').next().unwrap();
        let said = format!("error: {name}: no share of a server allows it");
        assert!(refused.stderr_text().contains(&said), "{said}: {}", refused.account());
        assert!(!refused.stderr_text().contains("another role"), "{}", refused.account());
    }
    let refused = nas.pull(&["--copy-devices"]).expect_code(42);
    assert!(refused.stderr_text().contains("--copy-devices: no share of a server"), "{}", refused.account());
}

#[test]
fn what_may_not_be_replaced_has_that_as_its_cure_in_events() {
    needs_dsync!();
    let nas = Nas::standing("append");
    nas.plant("old", "new content", "old");
    let outcome = nas.push(&["--json"]).expect_code(23);
    let lines = outcome.stdout_text();
    let problem = lines.lines().find(|line| line.contains(r#""event":"problem""#)).unwrap();
    assert!(problem.contains("nothing there may be replaced"), "{problem}");
    assert!(problem.contains(r#""cure":"copy it to another name, or have the administrator"#), "{problem}");
}

#[test]
fn a_link_that_leads_out_of_a_share_is_named() {
    needs_dsync!();
    let nas = Nas::standing("full");
    for (name, text) in [("relative", "../../outside"), ("absolute", "/etc"), ("tree/deep", "../..")] {
        symlink(text, nas.place().join(name)).unwrap();
        let path = nas.operand(&format!("{name}/"));
        let pull = nas.run().arg("-a").arg(&path).arg(nas.scratch.at("got")).run().expect_code(42);
        let push = nas.run().arg("-a").arg(slash(&nas.scratch.src())).arg(&path).run().expect_code(42);
        for refused in [pull, push] {
            let said = format!("the link '{name}' leads out of what may be used");
            assert!(refused.stderr_text().contains(&said), "{}", refused.account());
        }
    }
}

#[test]
fn a_busy_destination_is_named_by_its_share_and_directory() {
    needs_dsync!();
    let nas = Nas::standing("full");
    fs::write(nas.scratch.src().join("big"), noise(3, 8 << 20)).unwrap();
    let push = |options: &[&str], path: &str| {
        let run = nas.run().arg("-a").args(options);
        run.arg(nas.scratch.src().join("big")).arg(nas.operand(path))
    };
    for (first, second, named) in [("tree/one", "tree/two", "nas/tree"), ("one", "two", "nas")] {
        let mut slow = push(&["--bwlimit=1M"], first).start();
        let is_part = |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with(".dsync-part-");
        let dir = nas.place().join(first);
        let dir = dir.parent().unwrap();
        wait_for(|| fs::read_dir(dir).is_ok_and(|found| found.flatten().any(is_part)));
        let refused = push(&[], second).run().expect_code(41);
        let said = format!("destination '{named}' is in use");
        assert!(refused.stderr_text().contains(&said), "{}", refused.account());
        slow.kill();
        let _ = slow.wait();
    }
}
