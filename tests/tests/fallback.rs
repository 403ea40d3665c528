//! A port that gets no answer costs a second and a half, not the run.
//!
//! A run's choice depends on how fast the ports answer. On a busy machine a near port looks far, or
//! silent. Such a run reports that, must succeed anyway, and is repeated.

use std::time::Duration;

use dsync_tests::{
    Namespace, Outcome, Scope, Scratch, Sshd, Tree, Via, assert_same, needs_dsync, needs_namespace,
    run::until_met, scratch::slash,
};

/// Pushes a tree within the namespace and checks it.
fn push(sshd: &Sshd, namespace: &Namespace, via: Via) -> Outcome {
    let scratch = Scratch::new();
    Tree::sample().plant(&scratch.src());
    let run = sshd.run(via).within(namespace).arg("-av").arg(slash(&scratch.src()));
    let outcome = run.arg(sshd.operand(scratch.dst())).run().expect_code(0);
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    outcome
}

/// Pushes until a run has made this choice for this reason.
fn push_choosing(sshd: &Sshd, namespace: &Namespace, choice: &str) -> Outcome {
    until_met(|| {
        let outcome = push(sshd, namespace, Via::Auto);
        outcome.all_text().contains(choice).then_some(outcome)
    })
}

/// Pushes over one carrier, which must fail; returns the message.
fn refused(sshd: &Sshd, namespace: &Namespace, via: Via) -> String {
    let scratch = Scratch::new();
    Tree::sample().plant(&scratch.src());
    let run = sshd.run(via).within(namespace).arg("-a").arg(slash(&scratch.src()));
    let outcome = run.arg(sshd.operand(scratch.dst())).run().expect_code(35);
    assert!(!scratch.dst().exists());
    outcome.stderr_text()
}

#[test]
fn a_short_path_takes_tls_and_blocked_ports_leave_the_ssh_pipe() {
    needs_dsync!();
    let namespace = needs_namespace!();
    let sshd = Sshd::start("127.0.0.1", Some(&namespace));
    push_choosing(&sshd, &namespace, "over tls (round trip 0.");
    namespace.drop_udp();
    let direct = push(&sshd, &namespace, Via::Ssh);
    // The path is as short as before.
    push_choosing(&sshd, &namespace, "over tls (round trip");
    // Nothing replaces it: a remote end that is only busy gets more time.
    let text = refused(&sshd, &namespace, Via::Quic);
    assert!(text.contains("no answer on UDP 127.0.0.1:") && text.contains("within 10 s"), "{text}");
    namespace.drop_tcp_but(sshd.port());
    let fallen_back = push(&sshd, &namespace, Via::Auto);
    let text = fallen_back.all_text();
    assert!(text.contains("over ssh (no answer on UDP 127.0.0.1:"), "{text}");
    assert!(text.contains("no answer on TCP 127.0.0.1:"), "{text}");
    // One wait for both. Without it the system's own would end it, after two minutes for TCP.
    assert_eq!(text.matches("within 1.5 s").count(), 2, "{text}");
    assert!(fallen_back.elapsed < direct.elapsed + Duration::from_secs(100), "{}", fallen_back.account());
    let text = refused(&sshd, &namespace, Via::Tls);
    assert!(text.contains("no answer on TCP 127.0.0.1:") && text.contains("--transport=ssh"), "{text}");
}

#[test]
fn blocked_ports_leave_the_ssh_pipe_when_pulling_too() {
    needs_dsync!();
    let namespace = needs_namespace!();
    let (scratch, sshd) = (Scratch::new(), Sshd::start("127.0.0.1", Some(&namespace)));
    namespace.drop_udp();
    namespace.drop_tcp_but(sshd.port());
    Tree::sample().plant(&scratch.src());
    let run = sshd.run(Via::Auto).within(&namespace).arg("-a").arg(sshd.operand(slash(&scratch.src())));
    let _ = run.arg(scratch.dst()).run().expect_code(0);
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
}

#[test]
fn blocked_tcp_leaves_quic() {
    needs_dsync!();
    let namespace = needs_namespace!();
    let sshd = Sshd::start("127.0.0.1", Some(&namespace));
    namespace.drop_tcp_but(sshd.port());
    push_choosing(&sshd, &namespace, "over quic (no answer over TCP)");
}

#[test]
fn a_rate_limit_holds_on_every_carrier_and_in_both_directions() {
    needs_dsync!();
    let sshd = Sshd::shared();
    let scratch = Scratch::new();
    // Incompressible content, so that the number of sent bytes is known.
    Tree::of([dsync_tests::Node::file("f", 1, 3 << 20)]).plant(&scratch.src());
    std::thread::scope(|scope| {
        for via in Via::EACH {
            for push in [true, false] {
                let (scratch, sshd) = (&scratch, &sshd);
                scope.spawn(move || {
                    let to = scratch.at(&format!("{via:?}-{push}"));
                    let run = sshd.run(via).args(["-a", "--bwlimit=1m"]);
                    let run = if push {
                        run.arg(slash(&scratch.src())).arg(sshd.operand(&to))
                    } else {
                        run.arg(sshd.operand(slash(&scratch.src()))).arg(&to)
                    };
                    let outcome = run.run().expect_code(0);
                    assert_same(&scratch.src(), &to, Scope::full());
                    // Less the burst at the start; any longer time depends on the machine.
                    assert!(outcome.elapsed > Duration::from_millis(2700), "{}", outcome.account());
                });
            }
        }
    });
}

#[test]
fn bytes_said_to_be_sent_are_those_that_crossed_the_wire() {
    needs_dsync!();
    let namespace = needs_namespace!();
    let sshd = Sshd::start("127.0.0.1", Some(&namespace));
    let scratch = Scratch::new();
    Tree::of([dsync_tests::Node::file("f", 1, 4 << 20)]).plant(&scratch.src());
    for via in Via::EACH {
        let before = namespace.wire_bytes();
        let run = sshd.run(via).within(&namespace).args(["-a", "--stats"]).arg(slash(&scratch.src()));
        let to = scratch.at(&format!("{via:?}"));
        let outcome = run.arg(sshd.operand(to)).run().expect_code(0);
        let crossed = namespace.wire_bytes() - before;
        let said = outcome.stat("Total bytes sent") + outcome.stat("Total bytes received");
        assert!(crossed > 4 << 20, "{crossed} bytes crossed the loopback");
        assert!(said <= crossed, "{said} bytes said, {crossed} seen");
        assert!(crossed < said + said / 4 + 200_000, "{said} bytes said, {crossed} seen");
    }
}
