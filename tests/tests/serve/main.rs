//! Shares and keys of `dsync serve`, through a key's command and over a port: what each role does and
//! does not do, and who gets no session at all.

mod attacker;
mod authority;
mod clock;
mod connections;
mod enroll;
mod flood;
mod forced;
mod keep;
mod killed;
mod limits;
mod metrics;
mod nas;
mod nothing_to_do;
mod operands;
mod own_names;
mod owners;
mod parent;
mod power;
mod quic;
mod quota;
mod refusals;
mod roles;
mod round_trips;
mod service;
mod share_users;
mod stalled;
mod status;
mod taken_over;
mod thief;
mod versions;
mod watched;
mod without_landlock;

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
};

use dsync_tests::{
    Run, assert_unchanged, needs_dsync,
    run::{Running, send, until_met, wait_for},
    scratch::slash,
    survey,
    tree::noise,
    unfinished::finished_segments,
};
use rustix::process::Signal;

use crate::nas::{EACH_WAY, Nas, children, user};

#[test]
fn what_exceeds_a_role_ends_with_42_and_a_line_that_names_it() {
    needs_dsync!();
    for (way, (role, options, demand)) in EACH_WAY.into_iter().flat_map(|way| {
        [
            ("append", &["--delete"][..], "--delete and its like"),
            ("append", &["--inplace"], "--inplace"),
            ("write", &["--delete"], "--delete and its like"),
            ("write", &["--backup-dir=/old"], "--backup"),
            ("read", &[], "copying to there"),
        ]
        .map(|case| (way, case))
    }) {
        let nas = way(role);
        nas.plant("old", "new content", "old");
        let before = survey(&nas.place());
        let refused = nas.push(options).expect_code(42);
        let text = refused.stderr_text();
        for part in [demand, "share 'nas'", &format!("the role '{role}'"), "another role"] {
            assert!(text.contains(part), "{part}: {}", refused.account());
        }
        // The client does not learn where the share is.
        assert!(!text.contains(&nas.scratch.at("share").display().to_string()), "{text}");
        assert_unchanged(&before, &nas.place());
    }
}

#[test]
fn a_key_stays_in_its_directory_which_is_made_for_it() {
    needs_dsync!();
    for way in EACH_WAY {
        let nas = way("full");
        fs::remove_dir_all(nas.place()).unwrap();
        fs::write(nas.scratch.at("share/secret"), "secret").unwrap();
        fs::write(nas.scratch.src().join("new"), "new").unwrap();
        let _ = nas.push(&[]).expect_quiet_success();
        assert_eq!(fs::read(nas.there("new")).unwrap(), b"new");
        assert_eq!(fs::metadata(nas.place()).unwrap().mode() & 0o7777, 0o700);

        symlink("../../secret", nas.tree().join("door")).unwrap();
        let pull =
            |path: &str| nas.run().arg("-a").arg(nas.operand(path)).arg(slash(&nas.scratch.at("got"))).run();
        for path in ["..", "../secret", "../../share/secret", "tree/door/"] {
            let refused = pull(path).expect_code(42);
            assert!(refused.stderr_text().contains("leads out"), "{path}: {}", refused.account());
        }
        // An absolute path starts there as well.
        let _ = pull(&nas.scratch.at("share/secret").display().to_string()).expect_code(23);
        assert!(!nas.scratch.at("got/secret").exists());
    }
}

#[test]
fn a_share_that_is_not_there_is_no_empty_directory() {
    needs_dsync!();
    for evidence in ["marker = '.here'", "mounted = true"] {
        let nas = Nas::new("full");
        let share = nas.scratch.at("share");
        fs::remove_dir_all(nas.place()).unwrap();
        fs::write(nas.scratch.src().join("new"), "new").unwrap();
        nas.configure(&format!(
            "[keys.web1]\n[shares.nas]\npath = '{}'\n{evidence}\n{}[shares.nas.keys.web1]\nrole = 'full'\ndirectory = '{{key}}'\n",
            share.display(),
            user()
        ));
        let refused = nas.push(&["--mkpath"]).expect_code(3);
        assert!(refused.stderr_text().contains("share 'nas' is not there"), "{}", refused.account());
        assert_eq!(fs::read_dir(&share).unwrap().count(), 0, "{evidence}");
        let refused = nas.pull(&["--delete"]).expect_code(3);
        assert!(!nas.scratch.at("got").exists(), "{}", refused.account());
    }

    // The marker is what was missing.
    let nas = Nas::new("full");
    nas.configure(&format!(
        "[keys.web1]\n[shares.nas]\npath = '{}'\nmarker = '.here'\n{}[shares.nas.keys.web1]\nrole = 'full'\n",
        nas.scratch.at("share").display(),
        user()
    ));
    fs::write(nas.scratch.at("share/.here"), "").unwrap();
    let _ = nas.push(&[]).expect_quiet_success();
}

/// Checks that there is no session: a key that is refused is told so, as over the port, and what is
/// wrong with the server's words or configuration is its own error.
fn refuses(nas: &Nas, what: &str, code: i32, text: &str) {
    let server = Run::of(nas.shell()).arg("host").run().expect_code(code);
    let client = nas.push(&[]);
    let (told, client_code) = if code < 40 { (&server, 12) } else { (&client, code) };
    assert!(told.stderr_text().contains(text), "{what}: {}{}", server.account(), client.account());
    assert_eq!(client.code(), Some(client_code), "{what}: {}", client.account());
}

#[test]
fn nobody_gets_a_session_by_a_slip_in_a_command_or_a_configuration() {
    needs_dsync!();
    for way in [Nas::new, Nas::through_sshd] {
        let nas = way("full");
        fs::write(nas.scratch.src().join("new"), "new").unwrap();
        let before = survey(&nas.scratch.at("share"));
        for (words, code, text) in [
            ("--share nas --key web2", 40, "there is no key web2"),
            ("--share nsa --key web1", 42, "there is no share nsa for key web1"),
            ("--share nas", 1, "--key"),
            ("--share nas --key web1 --chek", 1, "--chek"),
            ("--share nas --key web1 --check", 1, "--check"),
            ("--share nas --key web1 extra", 1, "takes no word 'extra': it takes --config FILE"),
        ] {
            nas.command(words);
            refuses(&nas, words, code, text);
        }

        nas.command("--share nas --key web1");
        let good = fs::read_to_string(nas.scratch.at("serve.toml")).unwrap();
        let line = |text: &str| 1 + good.lines().position(|line| line == text).unwrap();
        let of_role = line("role = 'full'");
        for (from, to, code, text) in [
            ("[keys.web1]", "[keys.web1]\nexpires = 2020-02-29", 40, "key web1 has expired"),
            (
                "role = 'full'",
                "role = 'full'\nquota = 5",
                1,
                &format!("serve.toml:{}: this version knows no key 'quota'", of_role + 1),
            ),
            (
                "role = 'full'",
                "role = 'ful'",
                1,
                &format!("serve.toml:{of_role}: 'ful' is none of read, append, keep, write, full"),
            ),
        ] {
            nas.configure(&good.replacen(from, to, 1));
            refuses(&nas, to, code, text);
        }
        nas.configure(&good);
        fs::set_permissions(nas.scratch.at("serve.toml"), fs::Permissions::from_mode(0o666)).unwrap();
        let server = Run::of(nas.shell()).arg("host").run().expect_code(1);
        assert!(server.stderr_text().contains("can be written by others"), "{}", server.account());
        assert_unchanged(&before, &nas.scratch.at("share"));
    }
}

#[test]
fn a_key_of_ssh_gets_no_session_of_root_by_a_share_without_a_user() {
    needs_dsync!();
    if !dsync_tests::skip::is_root() {
        return;
    }
    let nas = Nas::new("full");
    fs::write(nas.scratch.src().join("new"), "new").unwrap();
    let before = survey(&nas.scratch.at("share"));
    let text = fs::read_to_string(nas.scratch.at("serve.toml")).unwrap();
    nas.configure(&text.replacen(user(), "", 1));
    nas.command(&format!("--share nas --key web1 --log 2>>'{}'", nas.scratch.at("log").display()));
    let words = "share 'nas' has no user: the server runs as root";
    let refused = nas.push(&[]).expect_code(5);
    assert!(refused.stderr_text().contains(words), "{}", refused.account());
    let logged = [" role=full entries=0 ", " code=5 why=\"share 'nas' has no user"];
    wait_for(|| logged.iter().all(|part| nas.log().contains(part)));
    assert_unchanged(&before, &nas.scratch.at("share"));

    // Who runs the command is not known where there is no server.
    let check =
        || Run::dsync().args(["serve", "--check", "--config"]).arg(nas.scratch.at("serve.toml")).run();
    let checked = check().expect_code(0);
    assert!(checked.stderr_text().contains(words), "{}", checked.account());

    nas.configure(&text);
    let _ = nas.push(&[]).expect_code(0);
    assert!(!check().expect_code(0).stderr_text().contains(words));
}

#[test]
fn check_says_what_each_key_may_do() {
    needs_dsync!();
    let nas = Nas::new("append");
    let config = nas.scratch.at("serve.toml");
    let more = "[keys.old]\nexpires = 2020-01-01\n[keys.idle]\nsince = 2020-02-02\n[shares.gone]\npath = '/nowhere/at/all'\n\
                [shares.gone.keys.old]\nrole = 'read'\n\
                [shares.lost]\npath = '/'\nuser = 'nobody-at-all'\n";
    nas.configure(&(fs::read_to_string(&config).unwrap() + more));
    let checked = Run::dsync().args(["serve", "--check", "--config"]).arg(&config).run().expect_code(1);
    let said = checked.stdout_text();
    for line in [
        "  web1: append, 'of-web1' in it: for copying from it and adding to it only",
        "  old: read, all of it: for copying from it only; expired since 2020-01-01: let in no more",
    ] {
        assert!(said.lines().any(|found| found == line), "{line}: {}", checked.account());
    }
    for warning in [
        "key 'idle' may use no share",
        "share 'gone' cannot be opened",
        "key 'old' has expired on 2020-01-01: remove it",
        "key 'idle' is known since 2020-02-02: add the client's next key beside it in 'public'",
        "there is no user 'nobody-at-all'",
    ] {
        assert!(checked.stderr_text().contains(warning), "{warning}: {}", checked.account());
    }
    // Nothing is made by looking.
    assert!(nas.place().join("tree").exists() && !Path::new("/nowhere").exists());
}

#[test]
fn check_refuses_a_file_that_serves_nothing() {
    needs_dsync!();
    let nas = Nas::new("full");
    let check = |text: &str| {
        nas.configure(text);
        Run::dsync().args(["serve", "--check", "--config"]).arg(nas.scratch.at("serve.toml")).run()
    };
    for nothing in ["", "# Later.\n", "[keys.web1]\n"] {
        let checked = check(nothing).expect_code(1);
        assert!(checked.stderr_text().contains("nothing is served"), "{}", checked.account());
    }
    let share = format!("[shares.nas]\npath = '{}'\n{}", nas.scratch.at("share").display(), user());
    assert!(!check(&share).stderr_text().contains("nothing is served"));
}

#[test]
fn the_servers_own_key_is_judged_by_check_as_at_start() {
    needs_dsync!();
    let (nas, _) = Nas::offering("append");
    let key = nas.scratch.at("server.key");
    let serve = |words: &[&str]| {
        let run = Run::dsync().arg("serve").args(words).arg("--config").arg(nas.scratch.at("serve.toml"));
        run.run()
    };
    let refuses = |why: &str| {
        for words in [&["--check"][..], &[]] {
            let refused = serve(words).expect_code(40);
            for part in [&format!("'{}'", key.display()), why] {
                assert!(refused.stderr_text().contains(part), "{part}: {}", refused.account());
            }
        }
    };

    for mode in [0o644, 0o640, 0o604] {
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        refuses(&format!("can be read by others (mode {mode:04o})"));
    }
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let _ = serve(&["--check"]).expect_code(0);
    fs::write(&key, "no key").unwrap();
    refuses("is no private key of dsync's");
    fs::remove_file(&key).unwrap();
    refuses("'dsync key' makes one");
}

#[test]
fn a_session_that_is_killed_leaves_what_was_there() {
    needs_dsync!();
    let nas = Nas::new("write");
    let big = noise(8, 24 << 20);
    fs::write(nas.scratch.src().join("big"), &big).unwrap();
    fs::write(nas.there("big"), "old").unwrap();
    let slow = nas.run().args(["-a", "--bwlimit=8M"]).arg(slash(&nas.scratch.src())).arg(nas.operand("tree"));
    let mut slow = slow.start();
    wait_for(|| !slow.is_running() || finished_segments(&nas.tree()) >= 2);
    let session = slow.children().into_iter().next().expect("the session's process");
    send(session, Signal::KILL);
    let _ = slow.wait();
    let now = fs::read(nas.there("big")).unwrap();
    assert!(now == b"old" || now == big, "{} bytes", now.len());
    let _ = nas.push(&[]).expect_quiet_success();
    assert_eq!(fs::read(nas.there("big")).unwrap(), big);
}

#[test]
fn a_key_sees_its_own_shares_and_no_others() {
    needs_dsync!();
    let nas = Nas::standing("append");
    let config = nas.scratch.at("serve.toml");
    let user = if dsync_tests::skip::is_root() { "user = 'root'\n" } else { "" };
    let more = format!(
        "[keys.other]\n[shares.hidden]\npath = '/'\n{user}[shares.hidden.keys.other]\nrole = 'read'\n"
    );
    nas.configure(&(fs::read_to_string(&config).unwrap() + &more));
    send(nas.server.as_ref().unwrap().process.id(), Signal::HUP);
    wait_for(|| nas.log().contains("was read anew"));

    let address = format!("dsync://127.0.0.1:{}", nas.port());
    let listed = nas.run().arg(&address).run().expect_code(0);
    assert_eq!(listed.stdout_text(), "nas append\n", "{}", listed.account());
    for share in ["hidden", "none"] {
        let refused =
            nas.run().arg("-a").arg(format!("{address}/{share}/etc/")).arg(slash(&nas.scratch.at("got")));
        let refused = refused.run().expect_code(42);
        let text = format!("there is no share {share} for key web1");
        assert!(refused.stderr_text().contains(&text), "{}", refused.account());
    }
    wait_for(|| nas.log().contains("key=web1 share=hidden"));

    // The name of a share is the client's text, and forges no other field of the log.
    let port = nas.port().to_string();
    let forged = "nas role=full code=0\ndsync: refused peer=192.0.2.1:1 why=\"";
    let dial = nas.run().args(["serve", "--port", &port, "--dial", forged, "127.0.0.1"]);
    let _ = dial.run().expect_code(42);
    let quoted = r#"key=web1 share="nas role=full code=0\ndsync: refused peer=192.0.2.1:1 why=\"" role= "#;
    wait_for(|| nas.log().contains(quoted));
    assert!(!nas.log().lines().any(|line| line.starts_with("dsync: refused")), "{}", nas.log());
}

/// Returns the lines of a log for this reason that the filter for fail2ban in docs/server.md matches.
fn bannable<'a>(log: &'a str, why: &str) -> Vec<&'a str> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/server.md");
    let page = fs::read_to_string(page).unwrap();
    let filter = page.lines().find_map(|line| line.trim().strip_prefix("failregex = ^%(__prefix_line)s"));
    // The words around the address and the port are as they stand.
    let (start, end) = filter.and_then(|filter| filter.split_once(r"\[?<ADDR>\]?:\d+")).expect("a filter");
    let is_bannable = |line: &&str| {
        let peer = line.strip_prefix(start).and_then(|rest| rest.split_once(end)).map(|(peer, _)| peer);
        peer.is_some_and(|peer| peer.parse::<SocketAddr>().is_ok())
    };
    log.lines().filter(is_bannable).filter(|line| line.contains(why)).collect()
}

#[test]
fn who_is_not_known_gets_in_nowhere() {
    needs_dsync!();
    let nas = Nas::standing("full");
    fs::write(nas.scratch.src().join("new"), "new").unwrap();
    let known = nas.config("home/dsync/known-hosts");
    let right = fs::read_to_string(&known).unwrap();
    let fails = |words: &[&str]| {
        let refused = nas.push(&[]).expect_code(40);
        for word in words {
            assert!(refused.stderr_text().contains(word), "{word}: {}", refused.account());
        }
        assert!(!nas.there("new").exists());
    };

    // A server that is not known, and nobody to ask.
    fs::write(&known, "").unwrap();
    fails(&["is not known", "fingerprint", "known-hosts"]);
    // Another key in its place.
    let other = Nas::public(&nas.scratch.at("other.key"));
    nas.know(&other);
    fails(&["has another key than before", "known-hosts"]);
    fs::write(&known, &right).unwrap();

    // A client that the server does not know: it is told its own line.
    let own = nas.config("home/dsync/key");
    let kept = fs::read(&own).unwrap();
    fs::remove_file(&own).unwrap();
    fails(&["'dsync key' makes one"]);
    fails(&["'dsync key' makes one"]);
    let stranger = Nas::public(&own);
    fails(&["does not let this key in", stranger.trim_end_matches(" test")]);
    // One line, which a ban can rest on.
    let banned = || bannable(&nas.log(), "its key is none that this server lets in").len();
    wait_for(|| banned() > 0);
    fs::set_permissions(&own, fs::Permissions::from_mode(0o644)).unwrap();
    fails(&["can be read by others"]);
    fs::remove_file(&own).unwrap();
    fs::write(&own, kept).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o600)).unwrap();
    let _ = nas.push(&[]).expect_quiet_success();
    wait_for(|| nas.log().contains(" code=0"));
    assert_eq!(banned(), 1, "{}", nas.log());

    // A key that has expired since.
    fs::remove_file(nas.there("new")).unwrap();
    let config = fs::read_to_string(nas.scratch.at("serve.toml")).unwrap();
    nas.configure(&config.replacen("[keys.web1]", "[keys.web1]\nexpires = 2020-01-01", 1));
    send(nas.server.as_ref().unwrap().process.id(), Signal::HUP);
    wait_for(|| nas.log().contains("was read anew"));
    fails(&["key web1 has expired"]);
    let listed = nas.run().arg(format!("dsync://127.0.0.1:{}", nas.port())).run().expect_code(40);
    assert!(listed.stderr_text().contains("key web1 has expired"), "{}", listed.account());
    // A mistake changes nothing.
    nas.configure("[server");
    send(nas.server.as_ref().unwrap().process.id(), Signal::HUP);
    wait_for(|| nas.log().contains("the old configuration stays"));
    fails(&["key web1 has expired"]);
    nas.configure(&config);
    send(nas.server.as_ref().unwrap().process.id(), Signal::HUP);
    wait_for(|| nas.log().matches("was read anew").count() == 2);
    let _ = nas.push(&[]).expect_quiet_success();
}

#[test]
fn two_keys_of_one_client_share_its_place_until_the_old_one_is_taken_out() {
    needs_dsync!();
    let nas = Nas::standing("full");
    let text = fs::read_to_string(nas.scratch.at("serve.toml")).unwrap();
    let (old, new) = (nas.config("home/dsync/key"), nas.config("next/dsync/key"));
    let lines = [&old, &new].map(|key| format!("'{}'", Nas::public(key)));
    fs::copy(nas.config("home/dsync/known-hosts"), nas.config("next/dsync/known-hosts")).unwrap();
    let push = |home: &str, content: &str| {
        fs::write(nas.scratch.src().join("file"), content).unwrap();
        let run = Run::dsync().env("XDG_CONFIG_HOME", nas.config(home)).arg("-ac");
        run.arg(slash(&nas.scratch.src())).arg(nas.operand("tree")).run()
    };
    let there = || fs::read_to_string(nas.there("file")).unwrap_or_default();

    let refused = push("next", "of nobody").expect_code(40);
    assert!(refused.stderr_text().contains("does not let this key in"), "{}", refused.account());
    let both = text.replacen(&lines[0], &format!("[\n  {},\n  {},\n]", lines[0], lines[1]), 1);
    nas.reconfigure(&both);
    // In turn, into one directory.
    for (home, content) in
        [("home", "of the old"), ("next", "of the new key"), ("home", "and of the old again")]
    {
        let _ = push(home, content).expect_quiet_success();
        assert_eq!(there(), content);
    }
    let entries = fs::read_dir(nas.scratch.at("share")).unwrap().count();
    assert_eq!(entries, 1, "a directory for each key");

    let check = Run::dsync().args(["serve", "--check", "--config"]).arg(nas.scratch.at("serve.toml"));
    let checked = check.run().expect_code(0);
    for key in [&old, &new] {
        let shown = Run::dsync().args(["key", "--file"]).arg(key).run().expect_code(0);
        let shown = shown.stderr_text();
        let named = shown.lines().next().and_then(|line| line.strip_prefix("dsync: ")).unwrap_or_default();
        let line = format!("key 'web1': {named}");
        assert!(checked.stdout_text().lines().any(|found| found == line), "{line}: {}", checked.account());
    }

    // Without the old one.
    nas.reconfigure(&text.replacen(&lines[0], &lines[1], 1));
    let refused = push("home", "too late").expect_code(40);
    assert!(refused.stderr_text().contains("does not let this key in"), "{}", refused.account());
    let _ = push("next", "of the new key alone").expect_quiet_success();
    assert_eq!(there(), "of the new key alone");

    // A slip while both are there changes nothing.
    let twice = both.replacen(&lines[1], &lines[0], 1);
    nas.configure(&twice);
    let line = twice.lines().position(|line| line.starts_with("  ")).unwrap() + 2;
    let wrong = Run::dsync().args(["serve", "--check", "--config"]).arg(nas.scratch.at("serve.toml"));
    let wrong = wrong.run().expect_code(1);
    let words = format!("serve.toml:{line}: this key is there twice for 'web1'");
    assert!(wrong.stderr_text().contains(&words), "{}", wrong.account());
}

#[test]
fn strangers_are_bounded_and_let_others_in() {
    needs_dsync!();
    let nas = Nas::standing("full");
    fs::write(nas.scratch.src().join("new"), "new").unwrap();
    let connect = || TcpStream::connect(("127.0.0.1", nas.port())).unwrap();
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 40000], &[22, 3, 1, 0xff, 0xff]] {
        let mut stranger = connect();
        let _ = stranger.write_all(garbage);
        let _ = stranger.shutdown(std::net::Shutdown::Write);
        // The end, or a reset where unread bytes were left.
        let _ = stranger.read_to_end(&mut Vec::new());
    }
    wait_for(|| nas.log().matches("dsync: refused peer=127.0.0.1:").count() >= 3);

    let server = nas.server.as_ref().unwrap().process.id();
    // Each begins a handshake and goes no further.
    let begin = || {
        let mut stranger = connect();
        let _ = stranger.write_all(&[22, 3, 1]);
        stranger
    };
    // Before its key is proved a client's process is limited, and cannot raise its limits again.
    let one = begin();
    let limits = || {
        let process = children(server).into_iter().next()?;
        fs::read_to_string(format!("/proc/{process}/limits")).ok()
    };
    let is_limited = |text: String| {
        let has = |name: &str, most: &str| {
            text.lines().filter_map(|line| line.strip_prefix(name)).any(|line| {
                let mut limits = line.split_whitespace();
                limits
                    .nth(1)
                    .is_some_and(|hard| hard.parse::<u64>().ok() <= most.parse().ok() && hard != "unlimited")
            })
        };
        has("Max data size", "4294967296") && has("Max open files", "4096") && has("Max processes", "16384")
    };
    wait_for(|| limits().is_some_and(is_limited));
    drop(one);

    let stuck: Vec<_> = (0..200).map(|_| begin()).collect();
    wait_for(|| nas.log().contains("connections without a key"));
    // Who is caught in a crowd may have a key, and is not to be banned.
    assert!(bannable(&nas.log(), "connections without a key").is_empty(), "{}", nas.log());
    assert!(nas.log().contains("dsync: crowded peer=127.0.0.1:"), "{}", nas.log());
    assert!(children(server).len() <= 48, "{}", nas.log());
    // They are given up one by one, and a known key gets in.
    until_met(|| (nas.push(&[]).code() == Some(0)).then_some(()));
    assert_eq!(fs::read(nas.there("new")).unwrap(), b"new");
    drop(stuck);
    wait_for(|| children(server).is_empty());
    let _ = nas.push(&[]).expect_quiet_success();
}

/// Starts a push of a file that takes seconds to a tree of its own, and waits until it is under way.
fn slow_push(nas: &Nas, tree: &str) -> Running {
    fs::write(nas.scratch.src().join("big"), noise(9, 24 << 20)).unwrap();
    let run = nas.run().args(["-a", "--bwlimit=8M", "--retries=0"]).arg(slash(&nas.scratch.src()));
    let mut run = run.arg(nas.operand(tree)).start();
    wait_for(|| !run.is_running() || finished_segments(&nas.place().join(tree)) >= 1);
    run
}

fn is_whole(nas: &Nas, tree: &str) -> bool {
    fs::read(nas.place().join(tree).join("big")).is_ok_and(|text| text == noise(9, 24 << 20))
}

#[test]
fn a_session_that_dies_takes_no_other_with_it() {
    needs_dsync!();
    let nas = Nas::standing("full");
    let server = nas.server.as_ref().unwrap().process.id();
    let one = slow_push(&nas, "one");
    let first = children(server);
    // It stays in the middle, however long the other takes to begin.
    one.signal(Signal::STOP);
    let two = slow_push(&nas, "two");
    send(first[0], Signal::KILL);
    one.signal(Signal::CONT);
    let one = one.wait();
    assert_ne!(one.code(), Some(0), "{}", one.account());
    let _ = two.wait().expect_quiet_success();
    assert!(is_whole(&nas, "two") && !nas.place().join("one/big").exists());
    wait_for(|| nas.log().contains("was killed by signal 9"));
    let line = nas.log().lines().find(|line| line.contains("code=signal:9")).map(str::to_owned);
    let line = line.unwrap_or_else(|| panic!("{}", nas.log()));
    let start = "dsync: session peer=127.0.0.1:";
    let why = format!(" why=\"process {} was killed by signal 9\"", first[0]);
    assert!(line.starts_with(start) && line.ends_with(&why), "{line}");
    for part in [" key=web1 share=nas role=full entries=", " received=", " connections=", " seconds="] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let _ = nas.push(&[]).expect_quiet_success();
}

#[test]
fn a_session_outlives_its_parent() {
    needs_dsync!();
    let nas = Nas::standing("full");
    let run = slow_push(&nas, "one");
    send(nas.server.as_ref().unwrap().process.id(), Signal::KILL);
    let _ = run.wait().expect_quiet_success();
    assert!(is_whole(&nas, "one"));
}

#[test]
fn a_server_that_is_asked_to_end_lets_sessions_end() {
    needs_dsync!();
    let mut nas = Nas::standing("full");
    let run = slow_push(&nas, "one");
    send(nas.server.as_ref().unwrap().process.id(), Signal::TERM);
    let _ = run.wait().expect_quiet_success();
    assert!(is_whole(&nas, "one"));
    let status = nas.server.as_mut().unwrap().process.wait().unwrap();
    assert_eq!(status.code(), Some(0));
    let line = nas.log().lines().find(|line| line.contains("session peer=")).map(str::to_owned);
    let line = line.expect("a line for the session");
    for part in ["key=web1", "share=nas", "role=full", "code=0"] {
        assert!(line.contains(part), "{line}");
    }
}

#[test]
fn a_server_that_is_asked_twice_to_end_ends_its_sessions_first() {
    needs_dsync!();
    // Also before a patience that is not over.
    for limit in ["", "stop-timeout = 3600"] {
        let mut nas = Nas::standing("full");
        nas.limit_server(limit);
        let run = slow_push(&nas, "one");
        run.signal(Signal::STOP);
        let server = nas.server.as_ref().unwrap().process.id();
        let session = children(server)[0];
        let accepts = || TcpStream::connect(("127.0.0.1", nas.port())).is_ok();
        send(server, Signal::TERM);
        wait_for(|| !accepts());
        assert!(dsync_tests::run::is_alive(session));
        send(server, Signal::TERM);

        let status = nas.server.as_mut().unwrap().process.wait().unwrap();
        assert_eq!(status.code(), Some(20), "{}", nas.log());
        assert!(!dsync_tests::run::is_alive(session));
        let log = nas.log();
        let said =
            format!("dsync: process {session} of a session is ended as the server was told twice to stop");
        assert!(log.lines().any(|line| line == said), "{log}");
        let line = log.lines().find(|line| line.contains("session peer=")).expect("a line for the session");
        assert!(line.contains(" code=signal:15 "), "{log}");
        run.signal(Signal::CONT);
        let run = run.wait();
        assert_ne!(run.code(), Some(0), "{}", run.account());
    }
}

#[test]
fn a_server_that_stops_ends_the_sessions_that_outlast_its_patience() {
    needs_dsync!();
    let mut nas = Nas::standing("full");
    // The limit may be read while the server waits already.
    nas.limit_server("stop-timeout = 3600");
    let run = slow_push(&nas, "one");
    run.signal(Signal::STOP);
    let server = nas.server.as_ref().unwrap().process.id();
    let session = children(server)[0];
    send(server, Signal::TERM);
    let config = nas.scratch.at("serve.toml");
    let text = fs::read_to_string(&config).unwrap();
    nas.reconfigure(&text.replacen("stop-timeout = 3600", "stop-timeout = 1", 1));

    let status = nas.server.as_mut().unwrap().process.wait().unwrap();
    assert_eq!(status.code(), Some(0), "{}", nas.log());
    assert!(!dsync_tests::run::is_alive(session));
    let log = nas.log();
    let line = log.lines().find(|line| line.contains("session peer=")).expect("a line for the session");
    let why = format!(" code=signal:15 why=\"process {session} was killed by signal 15\"");
    assert!(line.contains(" key=web1 share=nas role=full ") && line.ends_with(&why), "{log}");
    run.signal(Signal::CONT);
    let run = run.wait();
    assert_ne!(run.code(), Some(0), "{}", run.account());
    assert!(!nas.place().join("one/big").exists());

    nas.server = None;
    let said = Run::dsync().args(["serve", "--check", "--config"]).arg(&config).run().expect_code(0);
    let line = "server: sessions have 1 second to end when it stops";
    assert!(said.stdout_text().lines().any(|found| found == line), "{}", said.account());
    for (limit, words) in [("0", "0 is no number of seconds"), ("'1m'", "should be a whole number")] {
        nas.configure(&text.replacen("stop-timeout = 3600", &format!("stop-timeout = {limit}"), 1));
        let refused = Run::dsync().args(["serve", "--check", "--config"]).arg(&config).run().expect_code(1);
        let text = refused.stderr_text();
        assert!(text.contains("serve.toml:2: ") && text.contains(words), "{}", refused.account());
    }
}

#[test]
fn sessions_of_root_become_the_shares_user() {
    needs_dsync!();
    if !dsync_tests::skip::is_root() {
        return;
    }
    let nas = Nas::standing("full");
    fs::set_permissions(nas.scratch.at("share"), fs::Permissions::from_mode(0o777)).unwrap();
    for dir in nas.scratch.at("share").ancestors().take_while(|dir| *dir != Path::new("/tmp")) {
        let open = fs::metadata(dir).unwrap().mode() & 0o7777 | 0o755;
        fs::set_permissions(dir, fs::Permissions::from_mode(open)).unwrap();
    }
    fs::remove_dir_all(nas.place()).unwrap();
    let config = fs::read_to_string(nas.scratch.at("serve.toml")).unwrap();
    let server = nas.server.as_ref().unwrap().process.id();
    nas.configure(&config.replacen("user = 'root'", "user = 'nobody'", 1));
    send(server, Signal::HUP);
    wait_for(|| nas.log().contains("was read anew"));
    let run = slow_push(&nas, "one");
    let session = children(server)[0];
    let status = fs::read_to_string(format!("/proc/{session}/status")).unwrap();
    assert!(status.lines().any(|line| line.starts_with("Uid:\t65534\t65534\t65534")), "{status}");
    // Its groups too, and none of root's.
    let [group, groups] = ["-g", "-G"].map(|option| {
        let said = Run::of("id").args([option, "nobody"]).run().expect_code(0).stdout_text();
        said.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    });
    let line = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(line("Gid:"), vec![group[0].clone(); 4], "{status}");
    assert_eq!(line("Groups:"), groups, "{status}");
    assert!(status.lines().any(|line| line == "NoNewPrivs:\t1"), "{status}");
    assert!(status.lines().any(|line| line == "Seccomp:\t2"), "{status}");
    let _ = run.wait().expect_code(0);
    assert_eq!(fs::metadata(nas.place().join("one/big")).unwrap().uid(), 65534);

    // Without a user root serves nobody.
    nas.configure(&config.replacen("user = 'root'\n", "", 1));
    send(server, Signal::HUP);
    wait_for(|| nas.log().contains("share 'nas' has no user"));
}

#[test]
fn link_dest_and_deltas_work_over_the_port() {
    needs_dsync!();
    let nas = Nas::standing("full");
    let mut big = noise(11, 8 << 20);
    fs::write(nas.scratch.src().join("big"), &big).unwrap();
    nas.plant("same", "content", "content");
    let _ = nas.push(&[]).expect_quiet_success();

    // The alternate's file is linked, not sent.
    let to = |tree: &str, options: &[&str]| {
        let run = nas.run().arg("-a").args(options).arg(slash(&nas.scratch.src())).arg(nas.operand(tree));
        run.run().expect_code(0)
    };
    let linked = to("next", &["--link-dest=../tree", "--stats"]);
    for name in ["big", "same"] {
        let [old, new] =
            ["tree", "next"].map(|tree| fs::metadata(nas.place().join(tree).join(name)).unwrap());
        assert!(old.ino() == new.ino() && old.nlink() == 2, "{name}: {}", linked.account());
    }
    assert_eq!(literal_bytes(&linked), 0, "{}", linked.account());

    // An edit in the middle, and one that moves all that is behind it.
    big[3 << 20] ^= 1;
    big.splice(6 << 20..6 << 20, *b"inserted");
    fs::write(nas.scratch.src().join("big"), &big).unwrap();
    let sent = to("tree", &["--stats"]);
    let literal = literal_bytes(&sent);
    assert!(literal > 0 && literal < (8 << 20) / 10, "{literal}: {}", sent.account());
    assert!(fs::read(nas.there("big")).unwrap() == big);
    // The name that was linked has the old content still.
    assert!(fs::read(nas.place().join("next/big")).unwrap() != big);
}

/// Returns the number behind `Literal data:` of `--stats`.
fn literal_bytes(run: &dsync_tests::Outcome) -> u64 {
    let text = run.stdout_text();
    let line = text.lines().find_map(|line| line.strip_prefix("Literal data: "));
    let digits: String = line.unwrap_or_default().chars().take_while(|one| *one != ' ').collect();
    digits.replace(',', "").parse().unwrap_or_else(|_| panic!("no literal data: {}", run.account()))
}

#[test]
fn options_about_ssh_are_refused_for_a_share() {
    needs_dsync!();
    for (option, word) in
        [("-e=ssh", "--rsh"), ("--transport=ssh", "--transport=ssh"), ("--port=99", "--port")]
    {
        let refused = Run::dsync().args(["-a", option, "a", "nas::b"]).run().expect_code(1);
        assert!(refused.stderr_text().contains(word), "{}", refused.account());
    }
    for (operand, words) in [
        ("nas::", "names no share"),
        ("nas::a b", "names no share"),
        ("dsync://nas:0/b", "has no port from 1 to 65535"),
        ("dsync://nas:99999/b", "has no port from 1 to 65535"),
        // For ssh it would be the host 'dsync'.
        ("dsync:///b/", "names no host"),
    ] {
        let refused = Run::dsync().args(["-a", "a", operand]).run().expect_code(1);
        assert!(refused.stderr_text().contains(words), "{}", refused.account());
    }
}

#[test]
fn wildcards_of_a_share_stand_for_what_it_has() {
    needs_dsync!();
    for way in [Nas::new, Nas::standing] {
        let nas = way("read");
        for name in ["a.txt", "b.txt", "c.jpg", ".d.txt"] {
            fs::write(nas.there(name), name).unwrap();
        }
        let got = nas.scratch.at("got");
        let pull = |path: &str| nas.run().arg("-a").arg(nas.operand(path)).arg(slash(&got)).run();
        let _ = pull("tree/*.txt").expect_quiet_success();
        let mut names: Vec<_> = fs::read_dir(&got).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a.txt", "b.txt"], "{}", nas.log());
        let _ = pull("tree/{c.jpg,.d*}").expect_quiet_success();
        assert!(got.join("c.jpg").exists() && got.join(".d.txt").exists());
        let none = pull("tree/*.zip").expect_code(23);
        assert!(none.stderr_text().contains("*.zip"), "{}", none.account());
        // No pattern leads above the directory of the key.
        let above = pull("../*");
        assert_ne!(above.code(), Some(0), "{}", above.account());
    }
}

#[test]
fn nobody_waits_for_a_fifo_in_the_place_of_a_configuration_or_a_key() {
    needs_dsync!();
    let (mut nas, _) = Nas::offering("append");
    let made = |path: &Path| {
        let _ = fs::remove_file(path);
        let _ = Run::of("mkfifo").arg(path).run().expect_code(0);
    };
    let config = nas.scratch.at("serve.toml");
    nas.stand();
    made(&config);
    // The server hears what it is told next.
    for told in 1..=2 {
        nas.hang_up();
        wait_for(|| nas.log().matches("the old configuration stays").count() == told);
    }
    let checked = Run::dsync().args(["serve", "--check", "--config"]).arg(&config).run().expect_code(1);
    assert!(checked.stderr_text().contains("is no regular file"), "{}", checked.account());
    let fifo = nas.scratch.at("fifo");
    made(&fifo);
    let refused = Run::dsync().args(["key", "--file"]).arg(&fifo).run().expect_code(11);
    assert!(refused.stderr_text().contains("it is no regular file"), "{}", refused.account());
}
