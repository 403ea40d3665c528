//! Runs over emulated paths.

use std::{fs, thread, time::Duration};

use dsync_tests::{
    Lab, Run, Scope, Scratch, Tree, Via, assert_same,
    lab::{Conditions, Path},
    needs_dsync, needs_lab,
    run::{Outcome, until_met, wait_for},
    scratch::slash,
};

fn ssh(lab: &Lab, command: &str) -> Outcome {
    let run = Run::of("ssh").arg("-F").arg(lab.sshd().config()).args([lab.host(), command]);
    run.within(lab.near()).run().expect_code(0)
}

#[test]
fn tree_crosses_a_lossy_path_and_both_directions_are_counted() {
    needs_dsync!();
    let conditions = Conditions { loss: 0.02, ..Conditions::of(50, Duration::from_millis(20)) };
    let lab = needs_lab!(Path::over(conditions));
    let scratch = Scratch::new();
    Tree::sample().plant(&scratch.src());
    // The number of packets in a run, and thus whether one is lost, depends on the machine's load.
    let outcome = until_met(|| {
        let _ = fs::remove_dir_all(scratch.dst());
        let run = lab.sshd().run(Via::Auto).within(lab.near()).arg("-av").arg(slash(&scratch.src()));
        let outcome = run.arg(lab.sshd().operand(scratch.dst())).run().expect_code(0);
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
        lab.counts().iter().all(|counts| counts.loss > 0).then_some(outcome)
    });
    for counts in lab.counts() {
        assert!(counts.delivered_packets > 20 && counts.loss > 0, "{counts:?}\n{}", outcome.account());
        assert!(counts.delivered_packets + counts.loss <= counts.offered_packets, "{counts:?}");
    }
}

#[test]
fn blocked_udp_never_arrives_and_the_run_does() {
    needs_dsync!();
    let lab = needs_lab!(Path::named("hotel").expect("a named path"));
    let scratch = Scratch::new();
    Tree::sample().plant(&scratch.src());
    // TCP has shown how short the path is, so the wait for UDP is short. A busy machine may see it
    // as longer.
    until_met(|| {
        let _ = fs::remove_dir_all(scratch.dst());
        let run = lab.sshd().run(Via::Auto).within(lab.near()).arg("-av").arg(slash(&scratch.src()));
        let outcome = run.arg(lab.sshd().operand(scratch.dst())).run().expect_code(0);
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
        assert!(lab.counts()[0].blocked > 0, "{:?}", lab.counts());
        let text = outcome.stdout_text();
        assert!(text.contains("(no answer on UDP 10.77.0.2:"), "{text}");
        (text.contains("over tls") && text.contains("within 0.5 s)")).then_some(())
    });
}

#[test]
fn cut_path_carries_nothing_and_a_mended_one_does() {
    let lab = needs_lab!(Path::over(Conditions::of(100, Duration::from_millis(2))));
    lab.cut(Duration::from_secs(3600));
    thread::scope(|scope| {
        let login = scope.spawn(|| ssh(&lab, "true"));
        wait_for(|| lab.counts()[0].cut > 0);
        assert_eq!(lab.counts()[0].delivered_packets, 0);
        lab.cut(Duration::ZERO);
        login.join().expect("the login");
    });
    let [out, _] = lab.counts();
    assert!(out.cut > 0 && out.delivered_packets > 0, "{out:?}");
}

#[test]
fn near_host_gets_another_address() {
    let lab = needs_lab!(Path::named("veth").expect("a named path"));
    let before = ssh(&lab, "echo $SSH_CONNECTION").stdout_text();
    lab.change_near_address();
    let after = ssh(&lab, "echo $SSH_CONNECTION").stdout_text();
    let client = |text: &str| text.split_whitespace().next().map(str::to_owned);
    assert!(client(&before) != client(&after) && client(&after).is_some(), "{before}{after}");
    assert!(lab.counts()[1].delivered_bytes > 0);
}
