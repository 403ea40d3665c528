//! The limits of somebody who has stolen a key, for the kinds of keys that are no role of the table of
//! roles: one that has expired, one that was taken out, the server's own.

use std::{fs, os::unix::fs::symlink, path::Path};

use dsync_tests::{Outcome, Run, assert_unchanged, needs_dsync, scratch::slash, survey};
use rustix::process::Signal;

use crate::{
    is_whole,
    nas::{EACH_WAY, Nas},
    slow_push,
};

/// Returns what a thief tries at a share, each with its name.
fn attempts(nas: &Nas) -> Vec<(&'static str, Outcome)> {
    let mut met = vec![
        ("push", nas.push(&["--retries=0"])),
        ("dry run", nas.push(&["-n", "--retries=0"])),
        ("pull", nas.pull(&["--retries=0"])),
        ("list", nas.run().arg("--retries=0").arg(nas.operand("tree/")).run()),
        ("take away", nas.pull(&["--remove-source-files", "--retries=0"])),
    ];
    if nas.server.is_some() {
        let address = format!("dsync://127.0.0.1:{}", nas.port());
        let other = nas.run().args(["-a", "--retries=0"]).arg(format!("{address}/hidden/"));
        met.push(("shares", nas.run().arg("--retries=0").arg(&address).run()));
        met.push(("another share", other.arg(slash(&nas.scratch.at("got"))).run()));
    }
    met
}

/// Asserts that each attempt is refused as that of nobody, and brings and changes nothing.
fn assert_refused(nas: &Nas, words: &str, what: &str) {
    let before = survey(&nas.scratch.at("share"));
    for (attempt, outcome) in attempts(nas) {
        assert_eq!(outcome.code(), Some(40), "{what} {attempt}: {}", outcome.account());
        assert!(outcome.stderr_text().contains(words), "{what} {attempt}: {}", outcome.account());
        // Neither names nor shares.
        assert_eq!(outcome.stdout_text(), "", "{what} {attempt}");
        assert!(!outcome.stderr_text().contains("hidden"), "{what} {attempt}: {}", outcome.account());
        assert!(!nas.scratch.at("got/old").exists(), "{what} {attempt}");
        assert_unchanged(&before, &nas.scratch.at("share"));
    }
}

/// Returns the configuration with a share that the key may not use.
fn with_another_share(nas: &Nas) -> String {
    let user = if dsync_tests::skip::is_root() { "user = 'root'\n" } else { "" };
    let text = fs::read_to_string(nas.scratch.at("serve.toml")).unwrap();
    format!(
        "{text}[keys.other]\n[shares.hidden]\npath = '/'\n{user}[shares.hidden.keys.other]\nrole = 'read'\n"
    )
}

#[test]
fn a_key_that_has_expired_opens_nothing_and_tells_nothing() {
    needs_dsync!();
    for way in EACH_WAY {
        for role in ["read", "append", "keep", "write", "full"] {
            let nas = way(role);
            fs::write(nas.scratch.src().join("new"), "new").unwrap();
            fs::write(nas.there("old"), "old").unwrap();
            let text = with_another_share(&nas);
            nas.reconfigure(&text.replacen("[keys.web1]", "[keys.web1]\nexpires = 2020-02-29", 1));
            assert_refused(&nas, "key web1 has expired", role);
            // The nearest day that lets it in.
            nas.reconfigure(&text.replacen("[keys.web1]", "[keys.web1]\nexpires = 9999-01-01", 1));
            let _ = nas.pull(&[]).expect_quiet_success();
        }
    }
}

#[test]
fn a_key_that_was_taken_out_gets_in_no_more_and_its_sessions_go_on() {
    needs_dsync!();
    let nas = Nas::standing("full");
    let run = slow_push(&nas, "one");
    run.signal(Signal::STOP);
    let known = Nas::public(&nas.config("home/dsync/key"));
    let another = Nas::public(&nas.scratch.at("another.key"));
    let text = with_another_share(&nas);
    nas.reconfigure(&text.replacen(&known, &another, 1));
    fs::write(nas.there("old"), "old").unwrap();
    let before = survey(&nas.tree());
    for (attempt, outcome) in attempts(&nas) {
        assert_eq!(outcome.code(), Some(40), "{attempt}: {}", outcome.account());
        assert!(outcome.stderr_text().contains("does not let this key in"), "{}", outcome.account());
        assert_unchanged(&before, &nas.tree());
    }
    run.signal(Signal::CONT);
    let _ = run.wait().expect_quiet_success();
    assert!(is_whole(&nas, "one"));
}

#[test]
fn the_servers_key_stands_for_the_server_and_is_no_clients() {
    needs_dsync!();
    let nas = Nas::standing("full");
    fs::write(nas.scratch.src().join("new"), "new").unwrap();
    fs::write(nas.there("old"), "old").unwrap();

    // At the server it is nobody's.
    let own = nas.config("home/dsync/key");
    let kept = fs::read(&own).unwrap();
    fs::copy(nas.scratch.at("server.key"), &own).unwrap();
    assert_refused(&nas, "does not let this key in", "the server's key");
    fs::write(&own, kept).unwrap();

    // Whoever has it, and is where clients look for the server, gets what they push.
    let (mut thief, _) = Nas::offering("full");
    fs::copy(nas.scratch.at("server.key"), thief.scratch.at("server.key")).unwrap();
    let client = Nas::public(&nas.config("home/dsync/key"));
    let text = fs::read_to_string(thief.scratch.at("serve.toml")).unwrap();
    let thieves = Nas::public(&thief.config("home/dsync/key"));
    thief.configure(&text.replacen(&thieves, &client, 1));
    thief.stand();
    let key = Nas::public(&nas.scratch.at("server.key"));
    fs::write(nas.config("home/dsync/known-hosts"), format!("127.0.0.1:{} {key}\n", thief.port())).unwrap();
    let push = nas.run().arg("-a").arg(slash(&nas.scratch.src()));
    let _ = push.arg(format!("dsync://127.0.0.1:{}/nas/tree", thief.port())).run().expect_quiet_success();
    assert_eq!(fs::read(thief.there("new")).unwrap(), b"new");

    // With another key nobody gets anything.
    let other = Nas::public(&nas.scratch.at("other.key"));
    fs::write(nas.config("home/dsync/known-hosts"), format!("127.0.0.1:{} {other}\n", thief.port())).unwrap();
    fs::write(nas.scratch.src().join("next"), "next").unwrap();
    let push = nas.run().arg("-a").arg(slash(&nas.scratch.src()));
    let refused = push.arg(format!("dsync://127.0.0.1:{}/nas/tree", thief.port())).run().expect_code(40);
    assert!(refused.stderr_text().contains("has another key than before"), "{}", refused.account());
    assert!(!thief.there("next").exists());
}

#[test]
fn who_takes_a_clients_key_over_by_ssh_has_its_role_and_no_shell() {
    needs_dsync!();
    for role in ["read", "append", "keep", "write", "full"] {
        let nas = Nas::through_sshd(role);
        let mark = nas.scratch.at("mark");
        let asked = Run::of(nas.shell()).arg("host").arg(format!("touch {}", mark.display())).run();
        assert_ne!(asked.code(), Some(0), "{role}: {}", asked.account());
        assert!(!mark.exists(), "{role}");
        let refused = match role {
            "read" => nas.push(&[]),
            "full" => nas.run().arg("-a").arg(nas.operand("../")).arg(slash(&nas.scratch.at("got"))).run(),
            "keep" => nas.pull(&["--remove-source-files"]),
            _ => nas.push(&["--delete"]),
        };
        let _ = refused.expect_code(42);
    }
}

#[test]
fn links_may_have_any_text_and_lead_nobody_out() {
    needs_dsync!();
    let texts = ["/etc/shadow", "../../secret", "../../..", "/proc/self/fd/0", "/"];
    for way in EACH_WAY {
        for role in ["append", "keep", "write", "full"] {
            let nas = way(role);
            fs::write(nas.scratch.at("share/secret"), "secret").unwrap();
            for (number, text) in texts.iter().enumerate() {
                symlink(text, nas.scratch.src().join(format!("l{number}"))).unwrap();
            }
            let _ = nas.push(&[]).expect_quiet_success();

            for (number, text) in texts.iter().enumerate() {
                let name = format!("l{number}");
                assert_eq!(fs::read_link(nas.there(&name)).unwrap(), Path::new(text), "{role}");
                // No path through it leads anywhere.
                let path = format!("tree/{name}/");
                for option in ["-a", "-aL", "-ak"] {
                    let _ = fs::remove_dir_all(nas.scratch.at("got"));
                    let pull =
                        nas.run().arg(option).arg(nas.operand(&path)).arg(slash(&nas.scratch.at("got")));
                    assert_ne!(pull.run().code(), Some(0), "{role} {path} {option}");
                    assert!(!nas.scratch.at("got/secret").exists(), "{role} {path} {option}");
                }
                let push = nas.run().arg("-a").arg(slash(&nas.scratch.src())).arg(nas.operand(&path)).run();
                assert_ne!(push.code(), Some(0), "{role} {path}: {}", push.account());
            }
        }
    }
}
