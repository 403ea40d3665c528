//! Limits of a key: what exceeds one ends with a line that names it, whatever the client is or says.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use dsync_tests::{
    Node, Outcome, Tree, assert_unchanged,
    hostile::{
        Item, Message, Session, bytes::listing_part, lanes::Pipe, session::ARCHIVE_DELETE, session::Order,
    },
    needs_dsync, program,
    run::{send, until_met, wait_for},
    scratch::slash,
    survey,
    tree::noise,
};
use rustix::process::Signal;

use crate::nas::Nas;

/// The ways to a share.
pub(crate) const WAYS: [fn(&str) -> Nas; 2] = [Nas::new, Nas::standing];

/// Asserts that a run ended by a limit of the key.
fn exceeds(run: Outcome, limit: &str, words: &[&str]) {
    let run = run.expect_code(42);
    let text = run.stderr_text();
    for part in
        [format!("the limit '{limit}'").as_str(), "share 'nas'"].into_iter().chain(words.iter().copied())
    {
        assert!(text.contains(part), "{part}: {}", run.account());
    }
}

#[test]
fn no_file_is_longer_than_the_limit() {
    needs_dsync!();
    for way in WAYS {
        let nas = way("full");
        nas.limit("largest-file = 1000");
        let here = |name: &str| nas.scratch.src().join(name);
        fs::write(here("fits"), noise(1, 1000)).unwrap();
        // The administrator's own: a limit is for what the client writes.
        nas.plant("theirs", "", "");
        for root in [nas.scratch.src(), nas.tree()] {
            fs::write(root.join("theirs"), noise(2, 5000)).unwrap();
            dsync_tests::tree::set_mtime(&root.join("theirs"), crate::nas::LONG_AGO);
        }
        let _ = nas.push(&[]).expect_quiet_success();
        assert_eq!(fs::metadata(nas.there("fits")).unwrap().size(), 1000);

        fs::write(here("long"), noise(3, 1001)).unwrap();
        let before = survey(&nas.place());
        for options in [&[][..], &["-n"], &["--inplace"], &["-H"], &["--append"], &["--partial"]] {
            exceeds(nas.push(options), "largest-file", &["'long' has 1001 bytes, and 1000", "--max-size"]);
            assert_unchanged(&before, &nas.place());
        }
        let _ = nas.push(&["--max-size=1000"]).expect_quiet_success();

        // A file that is there and grows, in each way.
        fs::remove_file(here("long")).unwrap();
        fs::write(here("fits"), noise(1, 1001)).unwrap();
        let before = survey(&nas.place());
        for options in [&[][..], &["--inplace"], &["--append"], &["--append-verify"]] {
            exceeds(nas.push(options), "largest-file", &["'fits' has 1001 bytes"]);
            assert_unchanged(&before, &nas.place());
        }
        // Nor by a link's other name.
        fs::hard_link(here("fits"), here("again")).unwrap();
        exceeds(nas.push(&["-H", "--delete"]), "largest-file", &["has 1001 bytes"]);
        assert_unchanged(&before, &nas.place());

        // Whatever is there may be read.
        let _ = nas.pull(&[]).expect_quiet_success();
        assert_eq!(fs::metadata(nas.scratch.at("got/theirs")).unwrap().size(), 5000);
    }
}

#[test]
fn who_hears_that_a_run_failed_finds_the_destination_let_go() {
    needs_dsync!();
    // Over a connection to a server, the client sees no process that it could wait for.
    let (mut nas, key) = Nas::offering("full");
    nas.limit("largest-file = 1000");
    let mut command = Command::new("strace");
    command.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=unlinkat"]);
    command.args(["-e", "inject=unlinkat:delay_enter=1000000"]);
    command.arg(program()).args(["serve", "--config"]).arg(nas.scratch.at("serve.toml"));
    nas.stand_by(command);
    nas.know(&key);
    fs::write(nas.scratch.src().join("long"), noise(3, 1001)).unwrap();
    fs::write(nas.scratch.src().join("fits"), noise(1, 1000)).unwrap();
    fs::create_dir(nas.scratch.src().join("d")).unwrap();
    for options in [&[][..], &["--delete"], &["--partial"], &["--delay-updates"], &["--transport=quic"]] {
        exceeds(nas.push(options), "largest-file", &["'long' has 1001 bytes"]);
        for path in survey(&nas.place()).into_keys() {
            let name = String::from_utf8_lossy(&path);
            assert!(!name.contains(".dsync-"), "{name} is left with {options:?}");
        }
    }
}

/// Starts a session of a client that keeps to no rule, as the source.
pub(crate) fn hostile(nas: &Nas) -> (Child, Session) {
    let mut command = Command::new(program());
    command.args(["serve", "--stdio", "--share", "nas", "--key", "web1", "--config"]);
    command.arg(nas.scratch.at("serve.toml")).env_remove("SSH_CONNECTION");
    let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (writer, reader) = (server.stdin.take().unwrap(), server.stdout.take().unwrap());
    let pipe = Pipe { reader: Box::new(reader), writer: Box::new(writer) };
    (server, Session::greet(pipe).start(Order::Destination(b"tree/"), ARCHIVE_DELETE))
}

/// Ways to send more of a file than was announced: in a segment, and in a batch.
pub(crate) const UNDERSTATED: [fn(&mut Session); 2] = [
    |session| {
        let lane = session.lane(0);
        let segment = Message::new(66).int(1).byte(0).bytes(&[0; 16]).int(1 << 40).byte(20).int(0).int(0);
        session.lanes.send(lane, &segment.frame());
    },
    |session| {
        let lane = session.lane(0);
        let record = Session::record(1, 0, &[b'x'; 1001]);
        session.lanes.send(lane, &Session::batch(&session.value(&record), &record));
    },
];

#[test]
fn a_client_that_understates_a_file_gets_no_further() {
    needs_dsync!();
    for deed in UNDERSTATED {
        let nas = Nas::new("full");
        nas.limit("largest-file = '1000B'");
        let before = survey(&nas.place());
        let (mut server, mut session) = hostile(&nas);
        session.tops();
        session.control(&listing_part(0, 1, &[Item::file("new", 5)]));
        assert_eq!(session.expect(10), [1, 0]);
        deed(&mut session);
        let fatal = session.fatal();
        assert!(fatal.code == 42 && fatal.text.contains("the limit 'largest-file'"), "{}", fatal.text);
        drop(session);
        assert_eq!(server.wait().unwrap().code(), Some(42));
        assert_unchanged(&before, &nas.place());
    }
}

#[test]
fn refused_options_are_refused_by_name_pattern_and_exception() {
    needs_dsync!();
    for way in WAYS {
        let nas = way("full");
        nas.plant("old", "new content", "old");
        let before = survey(&nas.place());
        nas.limit("refuse = ['delete', 'c', 'inplace', '*-dest', '!link-dest']");
        for (option, named) in [
            ("--delete", "--delete is refused"),
            ("--delete-during", "--delete is refused"),
            ("--delete-excluded", "--delete is refused"),
            ("-c", "--checksum is refused"),
            ("--inplace", "--inplace is refused"),
            ("--append", "--inplace is refused"),
            ("--copy-dest=../x", "--copy-dest is refused"),
        ] {
            exceeds(nas.push(&[option]), "refuse", &[named]);
            exceeds(nas.push(&[option, "-n"]), "refuse", &[named]);
            assert_unchanged(&before, &nas.place());
        }
        // As with rsync's daemon.
        exceeds(nas.pull(&["--remove-source-files"]), "refuse", &["--remove-source-files is refused"]);
        // A pull deletes at the client, which the key does not limit.
        let _ = nas.pull(&["--delete"]).expect_quiet_success();
        fs::create_dir(nas.place().join("x")).unwrap();
        let _ = nas.push(&["--link-dest=../x"]).expect_code(0);
        assert_eq!(fs::read_to_string(nas.there("old")).unwrap(), "new content");
    }

    let nas = Nas::new("full");
    nas.limit("refuse = ['*', '!a']");
    fs::write(nas.scratch.src().join("new"), "new").unwrap();
    exceeds(nas.push(&["-z"]), "refuse", &["--compress is refused"]);
    exceeds(nas.push(&["-H"]), "refuse", &["--hard-links is refused"]);
    let _ = nas.push(&["-n"]).expect_code(0);
    let _ = nas.push(&["-v"]).expect_code(0);
    assert!(nas.there("new").exists());
}

#[test]
fn moved_files_are_not_looked_for_where_that_is_refused() {
    needs_dsync!();
    for way in WAYS {
        for refuses in [false, true] {
            let nas = way("full");
            Tree::of([Node::dir("new"), Node::file("new/film", 1, 2 << 20)]).plant(&nas.scratch.src());
            Tree::of([Node::file("film", 1, 2 << 20)]).plant(&nas.tree());
            if refuses {
                nas.limit("refuse = ['detect-renamed']");
                exceeds(nas.push(&["--detect-renamed"]), "refuse", &["--detect-renamed is refused"]);
            }
            let outcome = nas.push(&["--stats"]).expect_code(0);
            assert_eq!(outcome.stat("Literal data") > 0, refuses, "{}", outcome.account());
            assert_eq!(fs::read(nas.there("new/film")).unwrap().len(), 2 << 20);
        }
    }
}

#[test]
fn no_session_is_faster_than_its_rate() {
    needs_dsync!();
    for way in WAYS {
        let nas = way("full");
        nas.limit("rate = '256K'");
        fs::write(nas.scratch.src().join("big"), noise(4, 768 << 10)).unwrap();
        // Three seconds' bytes, less what a moment without any is worth. A slow machine takes longer.
        for run in [Nas::push, Nas::pull] {
            let began = Instant::now();
            let _ = run(&nas, &["--bwlimit=0"]).expect_quiet_success();
            let took = began.elapsed();
            assert!(took >= Duration::from_millis(2500), "{took:?}");
        }
        assert_eq!(fs::read(nas.scratch.at("got/big")).unwrap(), noise(4, 768 << 10));
    }
}

#[test]
fn a_key_has_so_many_sessions_at_once_and_a_server_too() {
    needs_dsync!();
    for (way, server) in [(WAYS[0], false), (WAYS[1], false), (WAYS[1], true)] {
        let nas = way("full");
        if server {
            nas.limit_server("sessions = 1");
        } else {
            nas.limit("sessions = 1");
        }
        fs::write(nas.scratch.src().join("big"), noise(5, 8 << 20)).unwrap();
        let slow = nas.run().args(["-a", "--bwlimit=1M", "--timeout=3600", "--retries=0"]);
        let slow = slow.arg(slash(&nas.scratch.src())).arg(nas.operand("one"));
        let mut slow = slow.start();
        wait_for(|| !slow.is_running() || nas.place().join("one").exists());
        // It stays as it is: the server has nobody else's word.
        slow.signal(Signal::STOP);
        let refused = nas.push(&[]).expect_code(41);
        let text = refused.stderr_text();
        let whose =
            if server { "the server has 1 session already" } else { "key web1 has 1 session in share nas" };
        for part in [whose, "its limit is sessions = 1"] {
            assert!(text.contains(part), "{part}: {}", refused.account());
        }
        assert!(!nas.there("big").exists());
        // The answer comes before the shortest silence that ends a run; a busy machine may be late.
        until_met(|| {
            let refused = nas.push(&["--timeout=3", "--retries=0"]);
            assert!(matches!(refused.code(), Some(41 | 30)), "{}", refused.account());
            (refused.code() == Some(41)).then_some(())
        });

        // The place is free when the session has ended, however it ends.
        let sessions = nas.sessions(&slow);
        slow.signal(Signal::KILL);
        let _ = slow.wait();
        wait_for(|| sessions.iter().all(|session| !dsync_tests::run::is_alive(*session)));
        let _ = nas.push(&[]).expect_quiet_success();
    }
}

#[test]
fn a_run_that_lost_its_connection_gets_the_place_of_its_old_session() {
    needs_dsync!();
    let nas = Nas::standing("full");
    nas.limit("sessions = 1");
    fs::write(nas.scratch.src().join("big"), noise(6, 24 << 20)).unwrap();
    let slow = nas.run().args(["-a", "--bwlimit=8M"]).arg(slash(&nas.scratch.src())).arg(nas.operand("tree"));
    let mut slow = slow.start();
    wait_for(|| !slow.is_running() || dsync_tests::unfinished::finished_segments(&nas.tree()) >= 2);
    let session = nas.sessions(&slow)[0];
    // The old session is there still when the new one comes.
    send(session, Signal::STOP);
    for dialler in slow.children() {
        send(dialler, Signal::KILL);
    }
    wait_for(|| nas.sessions(&slow).len() > 1 || !slow.is_running());
    send(session, Signal::CONT);
    let _ = slow.wait().expect_code(0);
    assert_eq!(fs::read(nas.there("big")).unwrap(), noise(6, 24 << 20));
}

/// Returns a stretch of an hour that begins so many hours after the present one.
fn hour_from_now(hours: u64) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let hour = |more| (now / 3600 + more) % 24;
    format!("'{:02}:00-{:02}:00'", hour(hours), hour(hours + 1))
}

#[test]
fn no_session_begins_outside_of_the_hours() {
    needs_dsync!();
    for way in WAYS {
        let nas = way("full");
        fs::write(nas.scratch.src().join("new"), "new").unwrap();
        let free = fs::read_to_string(nas.scratch.at("serve.toml")).unwrap();
        let before = survey(&nas.place());
        nas.limit(&format!("hours = [{}, {}]", hour_from_now(8), hour_from_now(12)));
        for run in [nas.push(&[]), nas.pull(&[])] {
            let run = run.expect_code(42);
            for part in ["key web1 may use share nas at", "UTC only; its limit is hours"] {
                assert!(run.stderr_text().contains(part), "{part}: {}", run.account());
            }
        }
        assert_unchanged(&before, &nas.place());
        nas.reconfigure(&free);
        nas.limit("hours = ['12:00-24:00', '00:00-12:00']");
        let _ = nas.push(&[]).expect_quiet_success();
    }
}

#[test]
fn check_says_the_limits_of_each_key() {
    needs_dsync!();
    let nas = Nas::standing("append");
    nas.limit("largest-file = '4G'\nrate = '1MB'\nsessions = 2\nhours = ['22:00-06:00']\nrefuse = ['*-dest', '!link-dest']");
    nas.limit_server("sessions = 20");
    let config = nas.scratch.at("serve.toml");
    let checked = dsync_tests::Run::dsync().args(["serve", "--check", "--config"]).arg(&config).run();
    let checked = checked.expect_code(0);
    for line in [
        "server: 20 sessions at once at most",
        "    limit: files of 4,294,967,296 bytes at most",
        "    limit: 1,000,000 bytes/s each way in a session",
        "    limit: 2 sessions at once",
        "    limit: only at 22:00-06:00 UTC",
        "    limit: without --compare-dest, --copy-dest",
    ] {
        assert!(checked.stdout_text().lines().any(|found| found == line), "{line}: {}", checked.account());
    }
}

#[test]
fn check_says_the_quota_of_a_key() {
    needs_dsync!();
    let nas = Nas::standing("append");
    nas.limit("max-bytes = '50G'\nmax-files = 200000");
    let checked = dsync_tests::Run::dsync().args(["serve", "--check", "--config"]);
    let checked = checked.arg(nas.scratch.at("serve.toml")).run().expect_code(0);
    for line in [
        "    limit: 53,687,091,200 bytes in all its files",
        "    limit: 200,000 entries in all",
        "    limit: one session at a time",
    ] {
        assert!(checked.stdout_text().lines().any(|found| found == line), "{line}: {}", checked.account());
    }
}
