//! Killed runs: no name ever holds a mix, and the next run repairs everything.

use std::{
    collections::BTreeMap,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use dsync_tests::{
    Facts, Node, Outcome, Run, Scope, Scratch, Sshd, Tree, Via, assert_same,
    compare::{is_written_to, temporaries},
    is_stand_in, needs_dsync,
    run::{catch, is_alive, send, until_met, wait_for},
    scratch::slash,
    survey, tree,
};
use rustix::process::Signal;

/// Makes the old or the new state of a tree: the same names, sizes that differ, a few large files.
fn state(new: bool) -> Tree {
    let seed = if new { 5000 } else { 0 };
    let mtime = (1_300_000_000 + i64::from(new), 0);
    let small = (0..400_u64).map(move |index| {
        let len = 2000 + index * 37 % 9000 + u64::from(new);
        Node { mtime, ..Node::file(format!("d{}/f{index}", index % 7), seed + index, len) }
    });
    // Large files share most of their content, so that old blocks are reused.
    let large = (0..3_u64).map(move |index| Node {
        mtime,
        ..Node::file(format!("large{index}"), 99, (4 << 20) + index * 4096)
    });
    let only = if new {
        vec![Node { mtime, ..Node::file("only new", 3, 3000) }]
    } else {
        vec![Node::file("only old", 4, 4000)]
    };
    let dirs = (0..7).map(|index| Node { mtime, ..Node::dir(format!("d{index}")) });
    Tree::of(dirs.chain(small).chain(large).chain(only))
}

struct Case {
    scratch: Scratch,
    old: BTreeMap<Vec<u8>, Facts>,
    new: BTreeMap<Vec<u8>, Facts>,
}

impl Case {
    fn new() -> Self {
        let scratch = Scratch::new();
        state(false).plant(&scratch.at("old"));
        state(true).plant(&scratch.src());
        for index in 0..3 {
            let path = scratch.src().join(format!("large{index}"));
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &tree::noise(index, 300_000), 1_000_000).unwrap();
            drop(file);
            tree::set_mtime(&path, (1_300_000_001, 0));
        }
        let (old, new) = (survey(&scratch.at("old")), survey(&scratch.src()));
        Self { scratch, old, new }
    }

    /// Resets the destination to the old state.
    fn reset(&self) {
        let _ = std::fs::remove_dir_all(self.scratch.dst());
        let _ =
            Run::of("cp").arg("-a").arg(self.scratch.at("old")).arg(self.scratch.dst()).run().expect_code(0);
    }

    fn assert_no_mix(&self, when: &str) {
        for (path, facts) in survey(&self.scratch.dst()) {
            let name = String::from_utf8_lossy(&path).into_owned();
            if facts.kind != "file" || is_temporary(&name) {
                continue;
            }
            let held = |state: &BTreeMap<Vec<u8>, Facts>| {
                state.get(&path).is_some_and(|was| was.content == facts.content)
            };
            assert!(held(&self.old) || held(&self.new), "{name} is neither old nor new, {when}");
        }
        for path in self.old.keys().filter(|path| self.new.contains_key(*path)) {
            let there = self.scratch.dst().join(std::str::from_utf8(path).unwrap()).exists();
            assert!(there, "{} is gone, {when}", String::from_utf8_lossy(path));
        }
    }

    fn assert_converged(&self, when: &str) {
        assert_same(&self.scratch.src(), &self.scratch.dst(), Scope::full());
        if !is_stand_in() {
            assert_eq!(
                temporaries(&self.scratch.dst()),
                Vec::<String>::new(),
                "temporaries are left, {when}"
            );
        }
    }
}

fn is_temporary(name: &str) -> bool {
    name.rsplit('/').next().is_some_and(|name| name.starts_with('.'))
}

/// Returns ten moments over the length of a whole run, the same for the same length.
fn moments(whole: Duration) -> impl Iterator<Item = Duration> {
    (0..10_u32).map(move |index| {
        let jitter = u32::from(tree::noise(u64::from(index), 1)[0]) * 8 / 256;
        whole * (index * 10 + jitter + 1) / 100
    })
}

/// Makes a run with a limit of silence that no test waits out: an end that stops has noticed the
/// other's death.
fn copy_over(sshd: &Sshd, via: Via, remote: &Path) -> Run {
    sshd.run_serving(via, remote).args(["-a", "--delete"]).args((!is_stand_in()).then_some("--timeout=36000"))
}

fn push(sshd: &Sshd, via: Via, case: &Case, remote: &Path) -> Run {
    let run = copy_over(sshd, via, remote).arg(slash(&case.scratch.src()));
    run.arg(sshd.operand(case.scratch.dst()))
}

fn pull(sshd: &Sshd, via: Via, case: &Case, remote: &Path) -> Run {
    let run = copy_over(sshd, via, remote).arg(sshd.operand(slash(&case.scratch.src())));
    run.arg(case.scratch.dst())
}

/// Kills one end at ten moments of a run and checks the leftovers each time.
fn kill_at_ten_moments(via: Via, start: fn(&Sshd, Via, &Case, &Path) -> Run, kill_remote: bool) {
    let (case, sshd) = (Case::new(), Sshd::shared());
    case.reset();
    let whole = start(sshd, via, &case, &sshd.remote().script).run().expect_quiet_success().elapsed;
    for (index, moment) in moments(whole).enumerate() {
        let when = format!(
            "{via:?}, killed {} at {moment:?} of {whole:?} (moment {index})",
            if kill_remote { "remote" } else { "local" }
        );
        case.reset();
        let remote = sshd.remote();
        let running = start(sshd, via, &case, &remote.script).start();
        let since = Instant::now();
        if kill_remote {
            let pid = remote.wait_for_id();
            thread::sleep(moment.saturating_sub(since.elapsed()));
            send(pid, Signal::KILL);
        } else {
            thread::sleep(moment);
            running.signal(Signal::KILL);
        }
        let outcome = running.wait();
        assert!(!kill_remote || outcome.code().is_some(), "{when}: {}", outcome.account());
        remote.wait_until_gone();
        case.assert_no_mix(&when);
        let again = start(sshd, via, &case, &sshd.remote().script).run();
        assert_eq!(again.code(), Some(0), "the next run failed, {when}\n{}", again.account());
        case.assert_converged(&when);
    }
}

#[test]
fn killed_local_source_over_quic() {
    kill_at_ten_moments(Via::Quic, push, false);
}

#[test]
fn killed_remote_destination_over_quic() {
    kill_at_ten_moments(Via::Quic, push, true);
}

#[test]
fn killed_local_destination_over_ssh() {
    kill_at_ten_moments(Via::Ssh, pull, false);
}

#[test]
fn killed_remote_source_over_ssh() {
    kill_at_ten_moments(Via::Ssh, pull, true);
}

#[test]
fn killed_local_copy() {
    let case = Case::new();
    let copy =
        || Run::dsync().args(["-a", "--delete"]).arg(slash(&case.scratch.src())).arg(case.scratch.dst());
    case.reset();
    let whole = copy().run().expect_quiet_success().elapsed;
    for moment in moments(whole) {
        case.reset();
        let mut running = copy().start();
        thread::sleep(moment);
        // rsync's other processes end on their own, a little later.
        let others = if running.is_running() { running.children() } else { Vec::new() };
        running.signal(Signal::KILL);
        let _ = running.wait();
        wait_for(|| !others.iter().any(|&other| is_alive(other)));
        case.assert_no_mix(&format!("killed at {moment:?} of {whole:?}"));
        let _ = copy().run().expect_quiet_success();
        case.assert_converged(&format!("killed at {moment:?} of {whole:?}"));
    }
}

#[test]
fn interrupted_run_ends_with_20_and_leaves_no_temporary() {
    needs_dsync!();
    for (signal, via) in [(Signal::INT, Via::Quic), (Signal::TERM, Via::Ssh), (Signal::HUP, Via::Auto)] {
        let case = Case::new();
        let outcome =
            interrupt(&case, signal, |sshd, remote| push(sshd, via, &case, remote).arg("--no-partial"));
        assert_eq!(temporaries(&case.scratch.dst()), Vec::<String>::new(), "{}", outcome.account());
    }
}

#[test]
fn interrupted_run_leaves_no_more_than_a_lost_connection_and_the_next_one_goes_on() {
    needs_dsync!();
    let case = Case::new();
    let outcome = interrupt(&case, Signal::INT, |sshd, remote| push(sshd, Via::Ssh, &case, remote));
    // An end that does not hear in time why the other went takes it for a lost connection.
    let left = temporaries(&case.scratch.dst());
    let kinds = [".dsync-part-", ".dsync-note-"];
    let is_kept_whole = kinds.iter().all(|kind| left.iter().any(|path| path.contains(kind)));
    assert!(left.is_empty() || left.len() == 2 && is_kept_whole, "{left:?}\n{}", outcome.account());

    let sshd = Sshd::shared();
    let _ = push(sshd, Via::Ssh, &case, &sshd.remote().script).run().expect_quiet_success();
    assert_same(&case.scratch.src(), &case.scratch.dst(), Scope::full());
    assert_eq!(temporaries(&case.scratch.dst()), Vec::<String>::new(), "{}", outcome.account());
}

/// Interrupts a push of a large file once it is being written, waits for both ends, and returns the
/// outcome.
fn interrupt(case: &Case, signal: Signal, push: impl Fn(&Sshd, &Path) -> Run) -> Outcome {
    let sshd = Sshd::shared();
    Tree::of([Node::file("huge", 3, 256 << 20)]).plant(&case.scratch.src());
    // If the run ended before the signal arrived, try again.
    let (remote, outcome) = until_met(|| {
        let _ = std::fs::remove_dir_all(case.scratch.dst());
        let remote = sshd.remote();
        let running = push(sshd, &remote.script).start();
        let caught = catch(running.id(), || is_written_to(&case.scratch.dst()));
        running.signal(signal);
        running.signal(Signal::CONT);
        let outcome = running.wait();
        (caught && outcome.code() != Some(0)).then_some((remote, outcome))
    });
    remote.wait_until_gone();
    outcome.expect_code(20)
}
