//! Runs over emulated paths.

use std::{fs, path::Path as Place, thread, time::Duration};

use dsync_tests::{
    Lab, Run, Scope, Scratch, Tree, Via, assert_same,
    lab::{Conditions, Path},
    needs_dsync, needs_lab,
    run::{Outcome, Running, until_met, wait_for},
    scratch::slash,
};
use rustix::process::Signal;

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

/// Returns a path on which TLS and QUIC carry a session together.
fn middle() -> Conditions {
    Conditions::of(200, Duration::from_millis(10))
}

/// Plants a tree of a few large files and many small ones, nothing of it compressible.
fn plant(place: &Place, mebibytes: usize) {
    let mut state = 7_u64;
    let mut noise = |length: usize| {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    };
    fs::create_dir_all(place).expect("the tree");
    for number in 0..4 {
        fs::write(place.join(format!("large-{number}")), noise(mebibytes << 18)).expect("a file");
    }
    for number in 0..200 {
        fs::write(place.join(format!("small-{number}")), noise(7 * number)).expect("a file");
    }
}

/// Starts a push over a new path that changes after `bytes` have arrived.
fn start_push(lab: &Lab, scratch: &Scratch, options: &[&str]) -> Running {
    let run = lab.sshd().run(Via::Auto).within(lab.near()).arg("-av").args(options);
    run.arg(slash(&scratch.src())).arg(lab.sshd().operand(scratch.dst())).start()
}

/// Pushes over new paths that change until the account shows what `seen` looks for: how long the
/// machine takes decides what a path shows.
fn push_until(mebibytes: usize, options: &[&str], change: impl Fn(&Lab), seen: impl Fn(&str, &Lab) -> bool) {
    let scratch = Scratch::new();
    plant(&scratch.src(), mebibytes);
    until_met(|| {
        let _ = fs::remove_dir_all(scratch.dst());
        let lab = Lab::create(&Path::over(middle())).expect("a lab, as before");
        change(&lab);
        let outcome = start_push(&lab, &scratch, options).wait().expect_code(0);
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
        seen(&outcome.stdout_text(), &lab).then_some(())
    });
}

#[test]
fn a_path_that_loses_nothing_keeps_tls() {
    needs_dsync!();
    drop(needs_lab!(Path::over(middle())));
    push_until(
        8,
        &[],
        |_| (),
        |text, lab| {
            text.contains("over tls (round trip") && !text.contains("then quic") && lab.counts()[0].loss == 0
        },
    );
}

#[test]
fn lanes_of_a_path_that_begins_to_lose_packets_move_to_quic() {
    needs_dsync!();
    drop(needs_lab!(Path::over(middle())));
    let lossy = Conditions { loss: 0.02, ..middle() };
    push_until(
        48,
        &[],
        |lab| lab.change_after(4 << 20, lossy),
        |text, lab| {
            text.contains("over tls (round trip")
                && text.contains("then quic: the path lost")
                && !text.contains("The connection was lost")
                && lab.counts()[0].loss > 0
        },
    );
}

#[test]
fn a_pull_moves_as_well_and_says_so() {
    needs_dsync!();
    drop(needs_lab!(Path::over(middle())));
    let scratch = Scratch::new();
    plant(&scratch.src(), 48);
    until_met(|| {
        let _ = fs::remove_dir_all(scratch.dst());
        let lossy = Conditions { loss: 0.02, ..middle() };
        let lab = Lab::create(&Path::over(lossy)).expect("a lab, as before");
        let run = lab.sshd().run(Via::Auto).within(lab.near()).args(["-av", "--json"]);
        let outcome =
            run.arg(lab.sshd().operand(slash(&scratch.src()))).arg(scratch.dst()).run().expect_code(0);
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
        let text = outcome.stdout_text();
        (text.contains(r#""moves":[{"to":"quic","why":"loss","per_million":"#)).then_some(())
    });
}

#[test]
fn tls_alone_asks_for_bbr_where_losses_hold_it_back_and_nowhere_else() {
    needs_dsync!();
    drop(needs_lab!(Path::over(middle())));
    let scratch = Scratch::new();
    plant(&scratch.src(), 16);
    for (loss, asks) in [(0.02, true), (0.0, false)] {
        until_met(|| {
            let _ = fs::remove_dir_all(scratch.dst());
            let lab = Lab::create(&Path::over(Conditions { loss, ..middle() })).expect("a lab, as before");
            let run = lab.sshd().run(Via::Tls).within(lab.near()).args(["-a", "--debug=connect"]);
            let run = run.arg(slash(&scratch.src())).arg(lab.sshd().operand(scratch.dst()));
            let outcome = run.run().expect_code(0);
            assert_same(&scratch.src(), &scratch.dst(), Scope::full());
            (outcome.stderr_text().contains("its lanes ask for BBR") == asks).then_some(())
        });
    }
}

#[test]
fn udp_that_dies_in_the_middle_is_not_missed() {
    needs_dsync!();
    drop(needs_lab!(Path::over(middle())));
    let without_udp = Conditions { udp_blocked: true, ..middle() };
    push_until(
        24,
        &["--timeout=3"],
        |lab| lab.change_after(4 << 20, without_udp),
        |text, lab| {
            text.contains("over tls (round trip")
                && !text.contains("The connection was lost")
                && lab.counts()[0].blocked > 0
        },
    );
}

#[test]
fn tcp_that_dies_in_the_middle_costs_one_connection() {
    needs_dsync!();
    drop(needs_lab!(Path::over(middle())));
    let change = |lab: &Lab| {
        let only_ssh = Conditions { only_tcp_port: Some(lab.sshd().port()), ..middle() };
        lab.change_after(4 << 20, only_ssh);
    };
    push_until(24, &["--timeout=5"], change, |text, lab| {
        text.contains("over quic")
            && text.contains("The connection was lost once")
            && lab.counts()[0].blocked > 0
    });
}

#[test]
fn a_run_that_is_stopped_while_it_moves_leaves_only_whole_files() {
    needs_dsync!();
    drop(needs_lab!(Path::over(middle())));
    let scratch = Scratch::new();
    plant(&scratch.src(), 48);
    let lossy = Conditions { loss: 0.02, ..middle() };
    let lab = Lab::create(&Path::over(lossy)).expect("a lab, as before");
    for (signal, losses) in [(Signal::INT, 40), (Signal::TERM, 400), (Signal::KILL, 800)] {
        let before = lab.counts()[0].loss;
        let mut running = start_push(&lab, &scratch, &[]);
        wait_for(|| lab.counts()[0].loss > before + losses || !running.is_running());
        running.signal(signal);
        // A fast one may have been done.
        let _ = running.wait();
    }
    let _ = start_push(&lab, &scratch, &[]).wait().expect_code(0);
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
}
