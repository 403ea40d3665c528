//! Clocks that are years off, at the server or its client: runs do not depend on them, and what does is in
//! docs/server.md.

use std::{collections::BTreeSet, fs, process::Command};

use dsync_tests::{
    Outcome, Run, Scope, assert_same, needs_dsync, needs_root, preload, program,
    run::{send, wait_for},
    scratch::slash,
};
use rustix::process::Signal;

use crate::nas::Nas;

/// A clock that is off by `SHIFT` seconds.
const CODE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += SHIFT;
    return result;
}
"#;

const HOUR: i64 = 3600;
const YEARS: i64 = 20 * 365 * 24 * HOUR;

/// Returns the words before a command whose clock is off by so many seconds; none if it is right.
fn shifted(nas: &Nas, seconds: i64) -> Vec<String> {
    if seconds == 0 {
        return Vec::new();
    }
    let flags = [format!("-DSHIFT={seconds}LL")];
    preload::starter(&preload::build(&nas.scratch, &format!("clock{seconds}"), CODE, &flags))
}

/// Starts the server with a clock that is off, in place of one that stands.
fn stand(nas: &mut Nas, key: &str, seconds: i64) {
    nas.server = None;
    let words = shifted(nas, seconds);
    let mut command = Command::new("env");
    command.args(words).arg(program()).args(["serve", "--config"]).arg(nas.scratch.at("serve.toml"));
    nas.stand_by(command);
    nas.know(key);
}

/// Pushes with a client whose clock is off.
fn push(nas: &Nas, seconds: i64, options: &[&str]) -> Outcome {
    let run = nas.run().behind(shifted(nas, seconds)).arg("-a").args(options);
    run.arg(slash(&nas.scratch.src())).arg(nas.operand("tree")).run()
}

/// Returns the moment that is so many seconds from now, in UTC.
fn moment(seconds: i64, format: &str) -> String {
    let date = Run::of("date").args(["-u", "-d", &format!("{seconds} seconds"), format]).run();
    date.expect_code(0).stdout_text().trim().to_owned()
}

#[test]
fn a_run_does_not_depend_on_the_clock_of_either_end() {
    needs_root!();
    needs_dsync!();
    let (mut nas, key) = Nas::offering("full");
    for server in [-YEARS, 0, YEARS] {
        stand(&mut nas, &key, server);
        for client in [-YEARS, 0, YEARS] {
            for transport in ["--transport=auto", "--transport=quic"] {
                let what = format!("{server} {client} {transport}");
                fs::write(nas.scratch.src().join("new"), &what).unwrap();
                let _ = push(&nas, client, &["--delete", transport]).expect_quiet_success();
                assert_same(&nas.scratch.src(), &nas.tree(), Scope::full());
                let pull = nas.run().behind(shifted(&nas, client)).args(["-a", transport]);
                let pull = pull.arg(nas.operand("tree/")).arg(slash(&nas.scratch.at("got")));
                let _ = pull.run().expect_quiet_success();
                assert_same(&nas.scratch.src(), &nas.scratch.at("got"), Scope::full());
                // An entry that one clock calls up to date is so by any other.
                let again = push(&nas, -client, &["-i"]).expect_code(0);
                assert_eq!(again.stdout_text(), "", "{what}");
            }
        }
    }
}

#[test]
fn the_last_day_of_a_key_is_that_of_the_servers_clock() {
    needs_root!();
    needs_dsync!();
    let (mut nas, key) = Nas::offering("full");
    let plain = fs::read_to_string(nas.scratch.at("serve.toml")).unwrap();
    fs::write(nas.scratch.src().join("new"), "new").unwrap();

    let (last_year, next_year) = (moment(-365 * 24 * HOUR, "+%F"), moment(365 * 24 * HOUR, "+%F"));
    for (expires, server, is_let_in) in [
        (&next_year, 0, true),
        (&next_year, YEARS, false),
        (&next_year, -YEARS, true),
        (&last_year, 0, false),
        (&last_year, YEARS, false),
        // Nobody tells a clock that is behind from an earlier day.
        (&last_year, -YEARS, true),
    ] {
        nas.configure(&plain.replacen("[keys.web1]", &format!("[keys.web1]\nexpires = {expires}"), 1));
        stand(&mut nas, &key, server);
        for client in [-YEARS, 0, YEARS] {
            let outcome = push(&nas, client, &[]);
            let code = if is_let_in { 0 } else { 40 };
            assert_eq!(outcome.code(), Some(code), "{expires} {server} {client}: {}", outcome.account());
        }
    }
}

#[test]
fn hours_are_those_of_the_servers_clock() {
    needs_root!();
    needs_dsync!();
    let (mut nas, key) = Nas::offering("full");
    // Long enough for the test.
    nas.limit(&format!("hours = ['{}-{}']", moment(-6 * HOUR, "+%H:%M"), moment(5 * HOUR, "+%H:%M")));
    for (server, code) in [(0, 0), (11 * HOUR, 42), (-11 * HOUR, 42), (24 * HOUR, 0)] {
        stand(&mut nas, &key, server);
        for client in [0, 11 * HOUR, -YEARS] {
            let outcome = push(&nas, client, &[]);
            assert_eq!(outcome.code(), Some(code), "{server} {client}: {}", outcome.account());
        }
    }
}

/// Returns the names of what is kept of the key.
fn kept(nas: &Nas) -> BTreeSet<String> {
    let sessions = fs::read_dir(nas.scratch.at("share/.dsync-kept/web1")).into_iter().flatten().flatten();
    sessions.map(|session| session.file_name().into_string().unwrap()).collect()
}

#[test]
fn what_is_kept_is_dated_and_cleaned_by_the_servers_clock() {
    needs_root!();
    needs_dsync!();
    let (mut nas, key) = Nas::offering("keep");
    // A client's clock dates nothing.
    stand(&mut nas, &key, 0);
    for (content, client) in [("one", 0), ("two longer", -YEARS), ("three still longer", YEARS)] {
        fs::write(nas.scratch.src().join("file"), content).unwrap();
        let _ = push(&nas, client, &[]).expect_quiet_success();
    }
    let year = moment(0, "+%Y");
    assert!(
        kept(&nas).len() == 2 && kept(&nas).iter().all(|name| name.starts_with(&year)),
        "{:?}",
        kept(&nas)
    );

    // A server whose clock is behind dates there, and cleans nothing.
    stand(&mut nas, &key, -YEARS);
    fs::write(nas.scratch.src().join("file"), "four").unwrap();
    let _ = push(&nas, 0, &[]).expect_quiet_success();
    let early = moment(-YEARS, "+%Y");
    assert_eq!(kept(&nas).len(), 3);
    assert!(kept(&nas).first().unwrap().starts_with(&early), "{:?}", kept(&nas));
    send(nas.server.as_ref().unwrap().process.id(), Signal::TERM);

    // One whose clock is ahead finds the days of all over.
    stand(&mut nas, &key, YEARS);
    wait_for(|| kept(&nas).is_empty());
    let late = moment(YEARS, "+%Y");
    fs::write(nas.scratch.src().join("file"), "the fifth").unwrap();
    let _ = push(&nas, 0, &[]).expect_quiet_success();
    assert!(kept(&nas).first().unwrap().starts_with(&late), "{:?}", kept(&nas));

    // The right clock keeps what is dated ahead of it.
    stand(&mut nas, &key, 0);
    let cleaned = Run::dsync().args(["serve", "--clean", "--config"]).arg(nas.scratch.at("serve.toml"));
    let _ = cleaned.run().expect_code(0);
    assert_eq!(kept(&nas).len(), 1);
}
