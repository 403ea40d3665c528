//! `dsync serve --status`: who has a session, and what passed.

use std::{
    fs,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::{PermissionsExt, chown},
            net::{SocketAddr, UnixStream},
            process::CommandExt,
        },
    },
    process::Command,
};

use dsync_tests::{
    Outcome, Run, attack::ATTACKER, needs_dsync, needs_root, program, run::wait_for, scratch::slash,
    tree::noise,
};
use rustix::process::Signal;
use serde_json::Value;

use crate::nas::{Nas, Server};

fn ask(nas: &Nas, words: &[&str]) -> Outcome {
    Run::dsync().args(["serve", "--status", "--config"]).arg(nas.scratch.at("serve.toml")).args(words).run()
}

pub(crate) fn status(nas: &Nas) -> Value {
    serde_json::from_str(&ask(nas, &["--json"]).expect_code(0).stdout_text()).unwrap()
}

#[test]
fn a_client_that_asks_for_a_long_name_has_proved_its_key_all_the_same() {
    needs_dsync!();
    let nas = Nas::standing("full");
    // Each of its bytes is six in JSON.
    let dial = nas.run().arg("serve").arg(format!("--dial={}", "\u{1}".repeat(200)));
    let dial = dial.arg(format!("--port={}", nas.port())).arg("127.0.0.1");
    let refused = dial.run().expect_code(42);
    assert!(refused.stderr_text().contains("there is no share"), "{}", refused.account());
    wait_for(|| nas.log().contains(" code=42 "));
    let asked = status(&nas);
    assert_eq!(asked["refused"]["handshakes"], 0, "{asked}");
}

#[test]
fn the_sessions_of_a_server_are_told_while_they_last_and_counted_after() {
    needs_dsync!();
    let nas = Nas::standing("append");
    // The socket is there soon after the port.
    wait_for(|| ask(&nas, &["--json"]).code() == Some(0));
    let idle = status(&nas);
    assert_eq!((&idle["sessions"], &idle["strangers"]), (&Value::Array(vec![]), &0.into()));
    assert_eq!(idle["totals"], serde_json::json!({}));

    let len = 8 << 20;
    fs::write(nas.scratch.src().join("big"), noise(1, len)).unwrap();
    let slow = nas.run().args(["-a", "--bwlimit=2M", "--timeout=3600", "--retries=0"]);
    let mut slow = slow.arg(slash(&nas.scratch.src())).arg(nas.operand("tree")).start();
    let mut seen = Value::Null;
    wait_for(|| {
        seen = status(&nas)["sessions"].get(0).cloned().unwrap_or_default();
        !slow.is_running() || seen["received"].as_u64().is_some_and(|bytes| bytes > 1 << 20)
    });
    assert!(slow.is_running(), "{seen}");
    for (field, expected) in [("key", "web1"), ("share", "nas"), ("role", "append")] {
        assert_eq!(seen[field], expected, "{seen}");
    }
    assert!(seen["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{seen}");
    assert!(seen["bytes_per_second"].as_u64().unwrap() > 0, "{seen}");
    assert_eq!(seen["entries"], 1, "{seen}");
    assert_eq!(nas.sessions(&slow), [u32::try_from(seen["process"].as_u64().unwrap()).unwrap()]);
    let text = ask(&nas, &[]).expect_code(0).stdout_text();
    for part in ["1 session, 0 connections without a key\n", "key=web1 share=nas role=append peer=127.0.0.1:"]
    {
        assert!(text.contains(part), "{text}");
    }

    let _ = slow.wait().expect_code(0);
    wait_for(|| status(&nas)["sessions"] == serde_json::json!([]));
    let total = status(&nas)["totals"]["nas"].take();
    assert!(total["sessions"] == 1 && total["received"].as_u64().unwrap() > len as u64, "{total}");
    assert!(ask(&nas, &[]).stdout_text().contains("ended in share nas: 1 session entries=1 files=1 sent="));
}

#[test]
fn entries_and_files_are_counted_by_either_role_of_the_server() {
    needs_dsync!();
    let nas = Nas::standing("full");
    wait_for(|| ask(&nas, &["--json"]).code() == Some(0));
    fs::create_dir(nas.scratch.src().join("dir")).unwrap();
    for name in ["one", "dir/two", "dir/three"] {
        fs::write(nas.scratch.src().join(name), name).unwrap();
    }

    // Entries and files of a first push, one without a change, a pull, and one with --delete-before.
    let mut sums = (0, 0);
    let pushes: [(&dyn Fn() -> Outcome, u64, u64); 4] = [
        (&|| nas.push(&[]), 4, 3),
        (&|| nas.push(&[]), 4, 0),
        (&|| nas.pull(&[]), 4, 3),
        (&|| nas.push(&["--delete-before"]), 4, 0),
    ];
    for (at, (run, entries, files)) in pushes.iter().enumerate() {
        let _ = run().expect_quiet_success();
        let line =
            || nas.log().lines().filter(|line| line.contains("session peer=")).nth(at).map(str::to_owned);
        wait_for(|| line().is_some());
        let line = line().unwrap();
        assert!(line.contains(&format!(" entries={entries} files={files} sent=")), "{at}: {line}");
        sums = (sums.0 + entries, sums.1 + files);
    }
    wait_for(|| status(&nas)["totals"]["nas"]["sessions"] == 4);
    let total = status(&nas)["totals"]["nas"].take();
    assert_eq!((&total["entries"], &total["files"]), (&sums.0.into(), &sums.1.into()), "{total}");
}

#[test]
fn a_session_that_is_killed_is_told_no_more() {
    needs_dsync!();
    let nas = Nas::standing("append");
    fs::write(nas.scratch.src().join("big"), noise(2, 8 << 20)).unwrap();
    let slow = nas.run().args(["-a", "--bwlimit=1M", "--timeout=3600", "--retries=0"]);
    let slow = slow.arg(slash(&nas.scratch.src())).arg(nas.operand("tree")).start();
    wait_for(|| ask(&nas, &["--json"]).code() == Some(0) && status(&nas)["sessions"][0]["role"] == "append");
    for session in nas.sessions(&slow) {
        dsync_tests::run::send(session, Signal::KILL);
    }
    wait_for(|| status(&nas)["sessions"] == serde_json::json!([]));
    assert_eq!(status(&nas)["totals"]["nas"]["sessions"], 1);
    let _ = slow.wait();
}

#[test]
fn where_no_server_stands_the_answer_says_so() {
    needs_dsync!();
    let (nas, _) = Nas::offering("append");
    let alone = ask(&nas, &[]).expect_code(10);
    assert!(alone.stderr_text().contains("no server with this configuration stands"), "{}", alone.account());
    let nas = Nas::new("append");
    let _ = ask(&nas, &[]).expect_code(1);
    let _ = Run::dsync().args(["serve", "--json"]).run().expect_code(1);
}

#[test]
fn a_session_through_ssh_has_its_line_where_its_command_leads_it() {
    needs_dsync!();
    let nas = Nas::new("append");
    let log = nas.scratch.at("log");
    nas.command(&format!("--share nas --key web1 --log 2>>'{}'", log.display()));
    let last = || fs::read_to_string(&log).unwrap_or_default().lines().last().unwrap_or_default().to_owned();
    let push = |connection: &str, options: &[&str]| {
        let push = nas.run().env("SSH_CONNECTION", connection).arg("-a").args(options);
        push.arg(slash(&nas.scratch.src())).arg(nas.operand("tree")).run()
    };

    let len = 1 << 20;
    fs::write(nas.scratch.src().join("new"), noise(3, len)).unwrap();
    let _ = push("192.0.2.7 40310 198.51.100.1 22", &[]).expect_quiet_success();
    wait_for(|| last().contains(" code="));
    let line = last();
    for part in [
        " dsync: session peer=192.0.2.7:40310 key=web1 share=nas role=append entries=1 files=1 sent=",
        " code=0",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let count = |name: &str| -> u64 {
        let words = line.split_whitespace();
        words.filter_map(|word| word.strip_prefix(name)).next().unwrap().parse().unwrap()
    };
    assert!(count("received=") > len as u64 && (1..len as u64).contains(&count("sent=")), "{line}");

    // A run that is refused by its role, and a key that gets no session.
    let _ = push("::ffff:192.0.2.7 1 ::1 22", &["--delete"]).expect_code(42);
    wait_for(|| last().contains(" code=42"));
    assert!(last().contains("peer=192.0.2.7:1 ") && last().contains("the role 'append'"), "{}", last());
    nas.command(&format!("--share nas --key web2 --log 2>>'{}'", log.display()));
    let _ = push("", &[]).expect_code(40);
    wait_for(|| last().contains(" code=40"));
    assert!(last().contains("peer=unknown key=web2 share=nas role= entries=0"), "{}", last());
    assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), 3);
}

#[test]
fn the_line_of_a_session_has_the_exit_code_that_its_client_ends_with() {
    needs_dsync!();
    for way in [Nas::new, Nas::standing] {
        let nas = way("append");
        if nas.server.is_none() {
            nas.command(&format!("--share nas --key web1 --log 2>>'{}'", nas.scratch.at("log").display()));
        }
        let lines = || -> Vec<String> {
            let log = nas.log();
            log.lines().filter(|line| line.contains("session peer=")).map(str::to_owned).collect()
        };

        // An entry that may not change, and one that the client may not delete.
        nas.plant("old", "new content", "old");
        let _ = nas.push(&[]).expect_code(23);
        wait_for(|| lines().len() == 1);
        fs::create_dir(nas.scratch.at("got")).unwrap();
        fs::write(nas.scratch.at("got/extra"), "extra").unwrap();
        let _ = nas.pull(&["--delete", "--max-delete=0"]).expect_code(25);
        wait_for(|| lines().len() == 2);
        for (line, code) in lines().iter().zip([23, 25]) {
            assert!(line.ends_with(&format!(" code={code}")), "{line}");
        }
        if nas.server.is_some() {
            wait_for(|| status(&nas)["totals"]["nas"]["codes"] == serde_json::json!({"23": 1, "25": 1}));
        }
    }
}

/// Returns the name of a server's socket.
fn socket(process: u32) -> String {
    let files = fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
    let files: Vec<_> = files.filter_map(|file| fs::read_link(file.path()).ok()).collect();
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    let name = sockets.lines().find_map(|line| {
        let (fields, name) = line.split_once(" @")?;
        let inode = format!("socket:[{}]", fields.split_whitespace().last()?);
        files.iter().any(|file| file.as_os_str() == inode.as_str()).then(|| name.to_owned())
    });
    name.unwrap()
}

fn open_files(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

#[test]
fn of_two_servers_with_one_key_each_answers_for_its_own_configuration() {
    needs_dsync!();
    let one = Nas::standing("append");
    wait_for(|| ask(&one, &[]).code() == Some(0));
    // The same text with the same key at another path.
    let (two, _) = Nas::offering("append");
    two.configure(&fs::read_to_string(one.scratch.at("serve.toml")).unwrap());
    let alone = ask(&two, &[]).expect_code(10);
    assert!(alone.stderr_text().contains("no server with this configuration stands"), "{}", alone.account());

    let mut two = two;
    two.stand();
    wait_for(|| ask(&two, &[]).code() == Some(0));
    fs::write(one.scratch.src().join("new"), "new").unwrap();
    let _ = one.push(&[]).expect_quiet_success();
    wait_for(|| status(&one)["totals"]["nas"]["sessions"] == 1);
    assert_eq!(status(&two)["totals"], serde_json::json!({}));

    // A second server of one configuration says that it is not heard.
    let log = fs::File::create(one.scratch.at("log of another")).unwrap();
    let mut another = Server { process: one.server_in(&[]).stderr(log).spawn().unwrap(), port: 0 };
    let said = || fs::read_to_string(one.scratch.at("log of another")).unwrap();
    wait_for(|| said().contains("another server with this configuration still stands"));
    another.process.kill().unwrap();
}

#[test]
fn who_asks_and_never_reads_keeps_no_other_from_the_answer() {
    needs_dsync!();
    let nas = Nas::standing("append");
    wait_for(|| ask(&nas, &["--json"]).code() == Some(0));
    let server = nas.server.as_ref().unwrap().process.id();
    let address = SocketAddr::from_abstract_name(socket(server)).unwrap();
    let files = open_files(server);
    let asking: Vec<_> = (0..200).map(|_| UnixStream::connect_addr(&address).unwrap()).collect();
    let _ = ask(&nas, &[]).expect_code(0);
    fs::write(nas.scratch.src().join("new"), "new").unwrap();
    let _ = nas.push(&[]).expect_code(0);
    // Each was answered, and none is held.
    wait_for(|| open_files(server) <= files);
    drop(asking);
}

#[test]
fn only_root_and_the_servers_user_get_an_answer() {
    needs_root!();
    needs_dsync!();
    let nas = Nas::standing("append");
    wait_for(|| ask(&nas, &["--json"]).code() == Some(0));
    let name = socket(nas.server.as_ref().unwrap().process.id());
    let script = "socket(S, PF_UNIX, SOCK_STREAM, 0) or die; \
                  connect(S, pack_sockaddr_un(\"\\0\" . shift)) or die \"no connection\"; print <S>; print 'over'";
    let asked_by = |user: u32| {
        let mut perl = Command::new("perl");
        perl.args(["-MSocket", "-e", script, &name]).uid(user);
        let output = perl.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(asked_by(0).contains("sessions"));
    assert_eq!(asked_by(ATTACKER), "over");
}

#[test]
fn root_gets_an_answer_of_a_server_of_another_users() {
    needs_root!();
    needs_dsync!();
    let (mut nas, _) = Nas::offering("append");
    chown(nas.scratch.at("server.key"), Some(ATTACKER), Some(ATTACKER)).unwrap();
    for (path, mode) in [(".", 0o755), ("serve.toml", 0o644)] {
        fs::set_permissions(nas.scratch.at(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut command = Command::new(program());
    command.args(["serve", "--config"]).arg(nas.scratch.at("serve.toml")).uid(ATTACKER).gid(ATTACKER);
    nas.stand_by(command);
    wait_for(|| ask(&nas, &[]).code() == Some(0));
}
