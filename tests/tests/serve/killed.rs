//! Processes of a run over the port that are killed in the middle: the client, the session, the
//! server. No name has a mix, no place or lock stays taken, and the next run ends right.

use std::{collections::BTreeSet, fs, process::Command};

use dsync_tests::{
    assert_unchanged,
    compare::temporaries,
    needs_dsync,
    run::{Running, catch, is_alive, send, until_met, wait_for},
    scratch::slash,
    survey,
    tree::noise,
    unfinished::finished_segments,
};
use rustix::process::Signal;
use serde_json::json;

use crate::{
    nas::{Nas, children},
    status::status,
};

/// Bytes of a file that is under way for seconds at [`SLOW`].
pub(crate) const BIG: usize = 24 << 20;
const SLOW: &str = "--bwlimit=8M";
/// A silence that no test waits out: an end that ends has noticed the other's death.
const PATIENT: &str = "--timeout=36000";

/// Starts a push, and holds its client once a part of the big file is on the server's disk: the old
/// file is whole then, or there is none. `None` if the run was over first.
pub(crate) fn held_push(nas: &Nas, role: &str) -> Option<Running> {
    let push = nas.run().args(["-a", SLOW, PATIENT, "--retries=0"]).arg(slash(&nas.scratch.src()));
    let run = push.arg(nas.operand("tree")).start();
    let is_half_way = || finished_segments(&nas.tree()) >= 1 && is_old(nas, role);
    if catch(run.id(), is_half_way) {
        return Some(run);
    }
    let _ = run.wait();
    None
}

/// Plants the old file at the share, where the role may replace it.
pub(crate) fn plant_old(nas: &Nas, role: &str) {
    let _ = fs::remove_file(nas.there("big"));
    if role != "append" {
        fs::write(nas.there("big"), "old").unwrap();
    }
}

pub(crate) fn is_old(nas: &Nas, role: &str) -> bool {
    match fs::read(nas.there("big")) {
        Ok(content) => content == b"old",
        Err(_) => role == "append",
    }
}

/// Kills a client, which may be held, and waits for the end of its sessions.
fn kill(nas: &Nas, client: Running) {
    let sessions = nas.sessions(&client);
    client.signal(Signal::KILL);
    let _ = client.wait();
    wait_for(|| !sessions.iter().any(|session| is_alive(*session)));
}

/// Returns the bytes of the files in a key's directory, and of what is kept for the key.
fn bytes_at_share(nas: &Nas) -> u64 {
    let mut find = Command::new("find");
    find.arg(nas.scratch.at("share")).args(["-type", "f", "-printf", "%s\n"]);
    let text = String::from_utf8(find.output().unwrap().stdout).unwrap();
    text.lines().map(|line| line.parse::<u64>().unwrap()).sum()
}

/// Waits until no session runs. Asserts that no name of dsync's own is left beside the files.
fn wait_for_no_debris(nas: &Nas) {
    wait_for(|| children(nas.server.as_ref().unwrap().process.id()).is_empty());
    assert_eq!(temporaries(&nas.place()), Vec::<String>::new());
}

/// Asserts that the server shows no session, and that the quota counts what is there.
fn assert_clean(nas: &Nas) {
    wait_for_no_debris(nas);
    wait_for(|| status(nas)["sessions"] == json!([]));
    let (used, more) = (bytes_at_share(nas), 40 << 20);
    fs::write(nas.scratch.src().join("too much"), noise(9, more)).unwrap();
    let full = nas.push(&[]).expect_code(11);
    let books = format!("{used} are used, and this needs {more} more");
    assert!(full.stderr_text().contains(&books), "{books}: {}", full.account());
    // Who hears of a failure finds the destination let go, whether or not the session has ended.
    assert_eq!(temporaries(&nas.place()), Vec::<String>::new());
}

#[test]
fn a_client_that_is_killed_in_a_push_leaves_the_old_file_and_no_place_taken() {
    needs_dsync!();
    let new = noise(1, BIG);
    for role in ["append", "keep", "write", "full"] {
        let nas = Nas::standing(role);
        nas.limit("max-bytes = '60M'\nmax-files = 100");
        wait_for(|| nas.log().contains("listening"));
        fs::write(nas.scratch.src().join("big"), &new).unwrap();
        let client = until_met(|| {
            plant_old(&nas, role);
            held_push(&nas, role)
        });
        wait_for(|| status(&nas)["sessions"][0]["role"] == role);
        kill(&nas, client);

        assert!(is_old(&nas, role), "{role}: {}", nas.log());
        let line = || nas.log().lines().rfind(|line| line.contains("session peer=")).map(str::to_owned);
        wait_for(|| line().is_some());
        assert!(!line().unwrap().contains(" code=0"), "{role}: {}", nas.log());
        wait_for(|| status(&nas)["sessions"] == json!([]));

        // The key has one session at a time, and the tree has one run: both are free at once.
        let _ = nas.push(&[]).expect_quiet_success();
        assert_eq!(fs::read(nas.there("big")).unwrap(), new, "{role}");
        let kept = fs::read_dir(nas.scratch.at("share/.dsync-kept/web1")).into_iter().flatten().count();
        assert_eq!(kept, usize::from(role == "keep"), "{role}");
        assert_clean(&nas);
    }
}

#[test]
fn a_client_that_comes_back_before_its_killed_session_has_ended_finds_a_place() {
    needs_dsync!();
    let nas = Nas::standing("full");
    nas.limit("max-bytes = '60M'");
    fs::write(nas.scratch.src().join("big"), noise(1, BIG)).unwrap();
    let client = until_met(|| {
        plant_old(&nas, "full");
        held_push(&nas, "full")
    });
    client.signal(Signal::KILL);
    // The session's end needs no more than the system's word of the client's, so the wait for a
    // place outlasts it; on a machine that is busy for longer the answer is 41.
    let again = until_met(|| Some(nas.push(&[])).filter(|again| again.code() != Some(41)));
    let _ = again.expect_quiet_success();
    let _ = client.wait();
    assert_eq!(fs::read(nas.there("big")).unwrap(), noise(1, BIG));
    assert_clean(&nas);
}

#[test]
fn a_client_that_is_killed_in_a_pull_leaves_both_ends_whole() {
    needs_dsync!();
    for role in ["read", "append", "keep", "full"] {
        let nas = Nas::standing(role);
        nas.limit("sessions = 1");
        fs::write(nas.there("big"), noise(2, BIG)).unwrap();
        let before = survey(&nas.place());
        let got = nas.scratch.at("got");
        fs::create_dir(&got).unwrap();
        let is_half_way = || finished_segments(&got) >= 1 && fs::read(got.join("big")).unwrap() == b"old";
        let client = until_met(|| {
            fs::write(got.join("big"), "old").unwrap();
            let pull = nas.run().args(["-a", SLOW, PATIENT, "--retries=0"]).arg(nas.operand("tree/"));
            let run = pull.arg(slash(&got)).start();
            if catch(run.id(), is_half_way) {
                return Some(run);
            }
            let _ = run.wait();
            None
        });
        kill(&nas, client);
        assert_eq!(fs::read(got.join("big")).unwrap(), b"old", "{role}");
        assert_unchanged(&before, &nas.place());
        wait_for(|| status(&nas)["sessions"] == json!([]));

        let again = nas.pull(&[]).expect_quiet_success();
        assert_eq!(fs::read(got.join("big")).unwrap(), noise(2, BIG), "{role}");
        assert_eq!(temporaries(&got), Vec::<String>::new(), "{}", again.account());
        assert_unchanged(&before, &nas.place());
    }
}

/// Names of small files that a session replaces in several groups.
fn small() -> impl Iterator<Item = String> {
    (0..400).map(|index| format!("f{index}"))
}

fn is_new(nas: &Nas, name: &str) -> bool {
    fs::read(nas.there(name)).unwrap().starts_with(b"new")
}

/// Returns the old files that are kept, by name; asserts that each is whole.
fn kept(nas: &Nas) -> BTreeSet<String> {
    let sessions = fs::read_dir(nas.scratch.at("share/.dsync-kept/web1")).into_iter().flatten().flatten();
    let trees = sessions.filter_map(|session| fs::read_dir(session.path().join("tree")).ok());
    let files = trees.flat_map(Iterator::flatten);
    files
        .map(|file| {
            let name = file.file_name().into_string().unwrap();
            assert_eq!(fs::read_to_string(file.path()).unwrap(), format!("old {name}"));
            name
        })
        .collect()
}

#[test]
fn a_session_that_is_killed_while_it_keeps_loses_no_old_file() {
    needs_dsync!();
    for share_of_files in [1, 150, 300] {
        let nas = Nas::standing("keep");
        for name in small() {
            fs::write(nas.scratch.src().join(&name), [b"new ", &noise(3, 30_000)[..]].concat()).unwrap();
        }
        let server = nas.server.as_ref().unwrap().process.id();
        let client = until_met(|| {
            let _ = fs::remove_dir_all(nas.scratch.at("share/.dsync-kept"));
            small().for_each(|name| fs::write(nas.there(&name), format!("old {name}")).unwrap());
            let push = nas.run().args(["-a", "--bwlimit=4M", PATIENT, "--retries=0"]);
            let mut run = push.arg(slash(&nas.scratch.src())).arg(nas.operand("tree")).start();
            wait_for(|| !children(server).is_empty() || !run.is_running());
            let session = children(server).into_iter().next();
            let replaced = || small().filter(|name| is_new(&nas, name)).count();
            let is_met = || (share_of_files..400).contains(&replaced());
            if session.is_some_and(|session| catch(session, is_met)) {
                send(session.unwrap(), Signal::KILL);
                return Some(run);
            }
            let _ = run.wait();
            None
        });
        assert_ne!(client.wait().code(), Some(0));

        let safe = kept(&nas);
        for name in small() {
            let content = fs::read(nas.there(&name)).unwrap();
            let is_old = content == format!("old {name}").as_bytes();
            assert!(is_old || content.len() == 30_004, "{name}: {} bytes", content.len());
            assert!(is_old || safe.contains(&name), "{name} is replaced and not kept");
        }
        let again = nas.push(&[]).expect_quiet_success();
        assert!(small().all(|name| is_new(&nas, &name)));
        assert_eq!(kept(&nas), small().collect(), "{}", again.account());
        wait_for_no_debris(&nas);
    }
}

#[test]
fn a_session_whose_server_and_client_are_killed_leaves_its_place_to_the_next_server() {
    needs_dsync!();
    let (mut nas, key) = Nas::offering("write");
    nas.stand();
    nas.know(&key);
    nas.limit("max-bytes = '60M'");
    fs::write(nas.scratch.src().join("big"), noise(4, BIG)).unwrap();
    let client = until_met(|| {
        plant_old(&nas, "write");
        held_push(&nas, "write")
    });
    let orphans = nas.sessions(&client);
    assert_eq!(orphans.len(), 1);
    send(nas.server.as_ref().unwrap().process.id(), Signal::KILL);

    // The next server keeps to the place that the orphan has.
    nas.stand();
    nas.know(&key);
    let refused = nas.push(&[]).expect_code(41);
    assert!(refused.stderr_text().contains("has a session already"), "{}", refused.account());
    assert!(is_old(&nas, "write") && orphans.iter().all(|orphan| is_alive(*orphan)));

    client.signal(Signal::KILL);
    let _ = client.wait();
    wait_for(|| !orphans.iter().any(|orphan| is_alive(*orphan)));
    assert!(is_old(&nas, "write"));
    let _ = nas.push(&[]).expect_quiet_success();
    assert_eq!(fs::read(nas.there("big")).unwrap(), noise(4, BIG));
    assert_clean(&nas);
}
