//! Networks that fail for a while or for good, or change, between two hosts with no other
//! connection.
//!
//! `DSYNC_CRASH=long` (`cargo xtask crash --long`) adds tests that take more than a minute.

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
    run::{is_alive, send, wait_for},
    scratch::slash,
    unfinished::{SEGMENT, finished_segments, hidden},
};
use rustix::process::Signal;

/// Longest silence that runs tolerate in tests about longer ones. A busy machine may cause a longer one, and so
/// another connection more.
const SILENCE: &str = "--timeout=8";

/// A file of 128 segments.
const FILE_LEN: u64 = 128 << 20;

/// Bytes after which a path is cut, headers and retransmissions included. Sixteen lanes may each
/// have an unfinished segment; many others are finished.
const CUT_AFTER: u64 = 112 << 20;

/// Segments that are finished at the cut, and that a further run may not send again: 24 MiB.
const FINISHED: usize = 24;

/// Two hosts, a large file on one of them, and a run that copies it to the other.
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

    /// Starts a push that is caught by the cut after most of the file, with [`FINISHED`] segments or more
    /// verified.
    fn push_caught(&self, options: &[&str]) -> Running {
        let mut running = self.push_cut(options);
        self.wait_while(&mut running, || finished_segments(&self.scratch.dst()) >= FINISHED);
        running
    }

    /// Starts a push that is caught by the cut after most of the file.
    fn push_cut(&self, options: &[&str]) -> Running {
        let limit = self.arrived() + CUT_AFTER;
        self.lab.cut_after(limit);
        let mut running = self.push(&[options, &["--bwlimit=16m"]].concat()).start();
        self.wait_while(&mut running, || self.arrived() >= limit);
        running
    }

    /// Waits for an event that comes before the run's end.
    fn wait_while(&self, running: &mut Running, seen: impl Fn() -> bool) {
        wait_for(|| {
            assert!(running.is_running(), "it ended too early");
            seen()
        });
    }

    /// Returns the bytes that have arrived at the far host so far.
    fn arrived(&self) -> u64 {
        self.lab.counts()[0].delivered_bytes
    }

    /// Asserts that everything has arrived, and nothing else.
    fn assert_complete(&self) {
        assert_same(&self.scratch.src(), &self.scratch.dst(), Scope::full());
        assert_eq!(hidden(&self.scratch.dst()), 0, "something is left");
    }

    /// Waits until no remote end is left.
    fn assert_deserted(&self) {
        wait_for(|| self.remote.alive().is_empty());
    }
}

/// Returns a path that carries 16 MB/s, with a round trip that makes dsync prefer QUIC.
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

/// Makes one scene for each of the carriers, or ends the test.
macro_rules! scenes {
    ($($via:expr),*) => {
        [$(Scene::new(needs_lab!(path()), $via)),*]
    };
}

/// Returns whether the test may take minutes.
fn is_long() -> bool {
    env::var_os("DSYNC_CRASH").is_some_and(|how| how == "long")
}

fn reconnected(outcome: &Outcome) -> bool {
    let said = outcome.stderr_text().contains("reconnecting (1 of ");
    assert_eq!(said, outcome.stdout_text().contains("The connection was lost "), "{}", outcome.account());
    said
}

#[test]
fn cut_of_five_seconds_is_waited_out() {
    needs_dsync!();
    play(&scenes![Via::Quic, Via::Tls, Via::Ssh], |scene| {
        let running = scene.push_caught(&[]);
        thread::sleep(Duration::from_secs(5));
        scene.lab.cut(Duration::ZERO);
        let outcome = running.wait().expect_quiet_success();
        assert!(!reconnected(&outcome), "{}", outcome.account());
        assert!(scene.lab.counts()[0].cut > 0, "nothing was cut\n{}", outcome.account());
        scene.assert_complete();
    });
}

#[test]
fn cut_longer_than_the_silence_limit_is_followed_by_another_connection() {
    needs_dsync!();
    for options in if is_long() { vec![&[SILENCE][..], &[]] } else { vec![&[SILENCE][..]] } {
        play(&scenes![Via::Quic, Via::Tls, Via::Ssh], |scene| {
            let mut running = scene.push_caught(options);
            let before = scene.arrived();
            // Its ssh ends with the connection that it gives up.
            let shells = running.children();
            scene.wait_while(&mut running, || !shells.iter().any(|&shell| is_alive(shell)));
            scene.lab.cut(Duration::ZERO);
            let outcome = running.wait().expect_code(0);
            assert!(reconnected(&outcome), "{}", outcome.account());
            assert_rest_only(scene, &outcome, before);
            scene.assert_complete();
            scene.assert_deserted();
        });
    }
}

/// Asserts that verified segments were not sent again, by dsync's statistics and by the bytes that
/// arrived after `before`.
fn assert_rest_only(scene: &Scene, outcome: &Outcome, before: u64) {
    let literal = outcome.stat("Literal data");
    assert!(
        literal <= FILE_LEN - FINISHED as u64 * SEGMENT,
        "{literal} bytes came again\n{}",
        outcome.account()
    );
    if outcome.stderr_text().contains("reconnecting (2 of ") {
        // The sessions between brought bytes that are no part of the last one's.
        return;
    }
    let arrived = scene.arrived() - before;
    // Headers of packets, the login, the session.
    assert!(arrived < literal + literal / 8 + (1 << 20), "{arrived} for {literal}\n{}", outcome.account());
}

#[test]
fn another_address_of_the_near_host_does_not_end_a_run() {
    needs_dsync!();
    play(&scenes![Via::Quic, Via::Tls, Via::Ssh], |scene| {
        // QUIC needs no answer in time; TCP must notice that it gets none.
        let running = scene.push_caught(if scene.via == Via::Quic { &[] } else { &[SILENCE] });
        scene.lab.change_near_address();
        scene.lab.cut(Duration::ZERO);
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
        let running = scene.push_caught(&[SILENCE, "--retries=1", "--contimeout=15"]);
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
            // Nothing is recorded about a file that will not be kept.
            let options = [&[SILENCE], options].concat();
            let running = scene.push_cut(&options);
            for pid in running.children() {
                send(pid, Signal::KILL);
            }
            running.signal(Signal::KILL);
            let _ = running.wait();
            if reachable {
                scene.lab.cut(Duration::ZERO);
            }
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
        // As sshd leaves it when the client's host vanishes or hangs up during the login.
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
