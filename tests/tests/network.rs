//! Networks that fail for a while, for good, or change, between two hosts that are joined by nothing else.
//!
//! `DSYNC_CRASH=long` (`cargo xtask crash --long`) adds what takes more than a minute.

use std::{
    env, fs,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use dsync_tests::{
    Lab, Node, Outcome, Remote, Run, Running, Scope, Scratch, Tree, Via, assert_same,
    lab::{Conditions, Path},
    needs_dsync, needs_lab, program,
    run::{send, wait_for},
    scratch::slash,
    unfinished::{finished_segments, hidden},
};
use rustix::process::Signal;

/// Longest silence that runs put up with where the test is about longer ones.
const SILENCE: &str = "--timeout=4";

/// Longer than any run.
const FOR_GOOD: Duration = Duration::from_secs(3600);

/// A file of 16 segments.
const FILE_LEN: u64 = 64 << 20;
const SEGMENT: u64 = 4 << 20;

/// Two hosts, a large file on one of them, and a run that takes it to the other.
struct Scene {
    lab: Lab,
    via: Via,
    scratch: Scratch,
    remote: Remote,
}

impl Scene {
    fn new(lab: Lab, via: Via) -> Self {
        let scratch = Scratch::new();
        Tree::of([Node::file("large", 7, FILE_LEN)]).plant(&scratch.src());
        let remote = lab.sshd().remote();
        Self { lab, via, scratch, remote }
    }

    fn push(&self, options: &[&str]) -> Run {
        let run = self.lab.sshd().run_serving(self.via, &self.remote.script).within(self.lab.near());
        let run = run.args(["-av", "--stats"]).args(options);
        run.arg(slash(&self.scratch.src())).arg(self.lab.sshd().operand(self.scratch.dst()))
    }

    /// A push that has come so far that six segments are verified.
    fn push_under_way(&self, options: &[&str]) -> Running {
        self.push_until(options, || finished_segments(&self.scratch.dst()) >= 6)
    }

    fn push_until(&self, options: &[&str], seen: impl Fn() -> bool) -> Running {
        let mut running = self.push(&[options, &["--bwlimit=16m"]].concat()).start();
        let mut ended = false;
        wait_for(|| {
            ended = !running.is_running();
            ended || seen()
        });
        if ended {
            panic!("it ended too early\n{}", running.wait().account());
        }
        running
    }

    /// Bytes that arrived at the far host so far.
    fn arrived(&self) -> u64 {
        self.lab.counts()[0].delivered_bytes
    }

    /// All is there, and nothing else.
    fn assert_complete(&self) {
        assert_same(&self.scratch.src(), &self.scratch.dst(), Scope::full());
        assert_eq!(hidden(&self.scratch.dst()), 0, "something is left");
    }

    /// Waits until no remote end is left.
    fn assert_deserted(&self) {
        wait_for(|| self.remote.alive().is_empty());
    }
}

/// What carries 16 MB/s, and a round trip that makes dsync think of QUIC.
fn path() -> Path {
    Path::over(Conditions::of(200, Duration::from_millis(20)))
}

/// Plays a part of one scene for each carrier at once.
fn play(scenes: &[Scene], part: impl Fn(&Scene) + Sync) {
    thread::scope(|scope| {
        for scene in scenes {
            let part = &part;
            scope.spawn(move || part(scene));
        }
    });
}

/// One scene for each of the carriers, or the test's end.
macro_rules! scenes {
    ($($via:expr),*) => {
        [$(Scene::new(needs_lab!(path()), $via)),*]
    };
}

/// True where minutes may pass.
fn is_long() -> bool {
    env::var_os("DSYNC_CRASH").is_some_and(|how| how == "long")
}

fn reconnected(outcome: &Outcome) -> bool {
    let said = outcome.stderr_text().contains("reconnecting (1 of ");
    assert_eq!(said, outcome.stdout_text().contains("The connection was lost once"), "{}", outcome.account());
    said
}

#[test]
fn cut_of_five_seconds_is_waited_out() {
    needs_dsync!();
    play(&scenes![Via::Quic, Via::Tls, Via::Ssh], |scene| {
        let running = scene.push_under_way(&[]);
        scene.lab.cut(Duration::from_secs(5));
        let outcome = running.wait().expect_quiet_success();
        assert!(!reconnected(&outcome), "{}", outcome.account());
        assert!(scene.lab.counts()[0].cut > 0, "nothing was cut\n{}", outcome.account());
        scene.assert_complete();
    });
}

#[test]
fn cut_longer_than_the_silence_limit_is_followed_by_another_connection() {
    needs_dsync!();
    let (short, usual) = ((&[SILENCE][..], 7), (&[][..], 70));
    for (options, seconds) in if is_long() { vec![short, usual] } else { vec![short] } {
        play(&scenes![Via::Quic, Via::Tls, Via::Ssh], |scene| {
            let running = scene.push_under_way(options);
            scene.lab.cut(Duration::from_secs(seconds));
            let before = scene.arrived();
            let outcome = running.wait().expect_code(0);
            assert!(reconnected(&outcome), "{}", outcome.account());
            assert_rest_only(scene, &outcome, before);
            scene.assert_complete();
            scene.assert_deserted();
        });
    }
}

/// What was verified did not come again: not by dsync's account, nor by what arrived after `before`.
fn assert_rest_only(scene: &Scene, outcome: &Outcome, before: u64) {
    let literal = outcome.stat("Literal data");
    assert!(literal <= FILE_LEN - 6 * SEGMENT, "{literal} bytes came again\n{}", outcome.account());
    let arrived = scene.arrived() - before;
    // Headers of packets, the login, the session.
    assert!(arrived < literal + literal / 8 + (1 << 20), "{arrived} for {literal}\n{}", outcome.account());
}

#[test]
fn another_address_of_the_near_host_does_not_end_a_run() {
    needs_dsync!();
    play(&scenes![Via::Quic, Via::Tls, Via::Ssh], |scene| {
        let running = scene.push_under_way(&[SILENCE]);
        scene.lab.change_near_address();
        let outcome = running.wait().expect_code(0);
        // QUIC follows the host, TCP cannot.
        assert_eq!(reconnected(&outcome), scene.via != Via::Quic, "{}", outcome.account());
        scene.assert_complete();
        scene.assert_deserted();
    });
}

#[test]
fn path_that_is_gone_for_good_ends_both_ends_and_the_next_run_goes_on() {
    needs_dsync!();
    play(&scenes![Via::Quic, Via::Tls, Via::Ssh], |scene| {
        let running = scene.push_under_way(&[SILENCE, "--retries=1", "--contimeout=15"]);
        scene.lab.cut(FOR_GOOD);
        let outcome = running.wait();
        assert!(matches!(outcome.code(), Some(10 | 12 | 30)), "{}", outcome.account());
        assert!(outcome.stderr_text().contains("run the same command again"), "{}", outcome.account());
        scene.assert_deserted();
        let left = fs::read_dir(scene.scratch.dst()).expect("the destination").count();
        assert_eq!(left, 2, "the part and its notes");
        scene.lab.cut(Duration::ZERO);
        let before = scene.arrived();
        let outcome = scene.push(&[]).run().expect_code(0);
        assert_rest_only(scene, &outcome, before);
        scene.assert_complete();
    });
}

#[test]
fn remote_end_does_not_outlive_a_near_host_that_vanished() {
    needs_dsync!();
    for (reachable, options, left) in [(false, &["--no-partial"][..], 0), (false, &[], 2), (true, &[], 2)] {
        play(&scenes![Via::Quic, Via::Tls, Via::Ssh], |scene| {
            // Nothing is noted of what will not be kept.
            let options = [&[SILENCE], options].concat();
            let running = scene.push_until(&options, || scene.arrived() > FILE_LEN / 2);
            if !reachable {
                scene.lab.cut(FOR_GOOD);
            }
            for pid in running.children() {
                send(pid, Signal::KILL);
            }
            running.signal(Signal::KILL);
            let _ = running.wait();
            scene.assert_deserted();
            assert_eq!(hidden(&scene.scratch.dst()), left, "{:?}, {reachable}, {options:?}", scene.via);
        });
    }
}

#[test]
fn remote_end_that_nobody_speaks_to_ends_by_itself() {
    needs_dsync!();
    let (gone, silent) = ((false, 10), (true, 30));
    for (connected, code) in if is_long() { vec![gone, silent] } else { vec![gone] } {
        // As sshd leaves it when the client's host vanishes while it logs in, or hangs up.
        let mut server = Command::new(program());
        server.arg("--server").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = server.spawn().expect("the program");
        if !connected {
            drop(server.stdin.take());
        }
        wait_for(|| server.try_wait().expect("its state").is_some());
        assert_eq!(server.wait().expect("its state").code(), Some(code));
    }
}
