//! `--stop-after`: a run that ends by itself leaves what it had finished, deletes nothing and can be
//! taken up again.

use std::{fs, time::Duration};

use dsync_tests::{
    Node, Run, Scope, Scratch, Tree, assert_same, compare::temporaries, needs_dsync, scratch::slash,
};

/// The shortest limit is a minute, and a run that would take hours is what it has to end.
#[test]
fn a_run_stops_after_its_time_and_is_taken_up_again() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("a", 1, 1000), Node::file("b", 2, 64 << 20)]).plant(&scratch.src());
    Tree::of([Node::file("extra", 3, 10)]).plant(&scratch.dst());
    let run = || Run::dsync().args(["-a", "--delete"]).arg(slash(&scratch.src())).arg(scratch.dst());
    let slow = run().args(["--bwlimit=4", "--partial", "--time-limit=1"]).limit(Duration::from_secs(1800));
    let outcome = slow.run().expect_code(30);
    let said = "stopping at requested limit; what was finished is kept (exit code 30)";
    assert!(outcome.stderr_text().contains(said), "{}", outcome.account());
    assert!(scratch.dst().join("extra").exists() && !scratch.dst().join("b").exists());
    let _ = run().run().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    assert!(temporaries(&scratch.dst()).is_empty());
}

#[test]
fn times_that_have_passed_are_refused_before_anything_is_done() {
    needs_dsync!();
    let scratch = Scratch::new();
    fs::write(scratch.src().join("f"), "x").unwrap();
    for option in ["--stop-at=2020-01-01T00:00", "--stop-at=x", "--stop-after=0", "--stop-after=1m"] {
        let run = Run::dsync().args(["-a", option]).arg(slash(&scratch.src())).arg(scratch.dst());
        let _ = run.run().expect_code(1);
        assert!(!scratch.dst().exists(), "{option}");
    }
    // The last one counts.
    let run = Run::dsync().args(["-a", "--stop-at=2020-01-01", "--stop-after=60"]);
    let _ = run.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_quiet_success();
}
