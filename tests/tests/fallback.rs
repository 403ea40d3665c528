//! UDP that gets no answer costs two seconds, not the run.

use std::time::Duration;

use dsync_tests::{
    Scope, Scratch, Sshd, Tree, Via, assert_same, needs_dsync, needs_namespace, scratch::slash,
};

#[test]
fn blocked_udp_falls_back_to_ssh_within_two_seconds_and_says_so() {
    needs_dsync!();
    let namespace = needs_namespace!();
    let sshd = Sshd::start("127.0.0.1", Some(&namespace));
    let copy = |via| {
        let scratch = Scratch::new();
        Tree::sample().plant(&scratch.src());
        let run = sshd.run(via).within(&namespace).arg("-av").arg(slash(&scratch.src()));
        let outcome = run.arg(sshd.operand(scratch.dst())).run().expect_code(0);
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
        outcome
    };
    let open = copy(Via::Auto);
    assert!(open.all_text().to_lowercase().contains("quic"), "{}", open.account());
    namespace.drop_udp();
    let direct = copy(Via::Ssh);
    let fallen_back = copy(Via::Auto);
    let text = fallen_back.all_text().to_lowercase();
    assert!(text.contains("ssh") && text.contains("udp"), "{}", fallen_back.account());
    // Two seconds of waiting, and as much again for a busy machine.
    assert!(fallen_back.elapsed < direct.elapsed + Duration::from_secs(4), "{}", fallen_back.account());
}

#[test]
fn blocked_udp_falls_back_when_pulling_too() {
    needs_dsync!();
    let namespace = needs_namespace!();
    namespace.drop_udp();
    let (scratch, sshd) = (Scratch::new(), Sshd::start("127.0.0.1", Some(&namespace)));
    Tree::sample().plant(&scratch.src());
    let run = sshd.run(Via::Auto).within(&namespace).arg("-a").arg(sshd.operand(slash(&scratch.src())));
    let _ = run.arg(scratch.dst()).run().expect_code(0);
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
}

#[test]
fn quic_alone_ends_with_35_where_udp_is_blocked() {
    needs_dsync!();
    let namespace = needs_namespace!();
    namespace.drop_udp();
    let (scratch, sshd) = (Scratch::new(), Sshd::start("127.0.0.1", Some(&namespace)));
    Tree::sample().plant(&scratch.src());
    let run = sshd.run(Via::Quic).within(&namespace).arg("-a").arg(slash(&scratch.src()));
    let outcome = run.arg(sshd.operand(scratch.dst())).run().expect_code(35);
    let text = outcome.stderr_text();
    assert!(text.contains("no answer on UDP") && text.contains("--transport=ssh"), "{}", outcome.account());
    assert!(!scratch.dst().exists());
}

#[test]
fn bytes_said_to_be_sent_are_those_that_crossed_the_wire() {
    needs_dsync!();
    let namespace = needs_namespace!();
    let sshd = Sshd::start("127.0.0.1", Some(&namespace));
    let scratch = Scratch::new();
    Tree::of([dsync_tests::Node::file("f", 1, 4 << 20)]).plant(&scratch.src());
    for via in Via::BOTH {
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
