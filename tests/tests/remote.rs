//! Push and pull over every carrier against a throwaway sshd.

use std::{ffi::OsString, fs};

use dsync_tests::{
    Node, Run, Scope, Scratch, Sshd, Tree, Via, assert_rsync_agrees, assert_same, is_stand_in, needs_dsync,
    program, scratch::slash, skip, sshd,
};

#[test]
fn push_is_identical_and_quiet_over_every_carrier() {
    for via in Via::EACH {
        let (scratch, sshd) = (Scratch::new(), Sshd::shared());
        Tree::sample().plant(&scratch.src());
        let run = sshd.run(via).arg("-a").arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst()));
        let outcome = run.run().expect_quiet_success();
        assert!(outcome.stdout.is_empty(), "expected no output\n{}", outcome.account());
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
        assert_rsync_agrees(&scratch.src(), &scratch.dst());
    }
}

#[test]
fn pull_is_identical_and_quiet_over_every_carrier() {
    for via in Via::EACH {
        let (scratch, sshd) = (Scratch::new(), Sshd::shared());
        Tree::sample().plant(&scratch.src());
        let run = sshd.run(via).arg("-a").arg(sshd.operand(slash(&scratch.src()))).arg(scratch.dst());
        let outcome = run.run().expect_quiet_success();
        assert!(outcome.stdout.is_empty(), "expected no output\n{}", outcome.account());
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
        assert_rsync_agrees(&scratch.src(), &scratch.dst());
    }
}

#[test]
fn carrier_is_the_one_asked_for_and_is_named() {
    needs_dsync!();
    for (via, word) in [(Via::Auto, "tls"), (Via::Quic, "quic"), (Via::Tls, "tls"), (Via::Ssh, "ssh")] {
        let (scratch, sshd) = (Scratch::new(), Sshd::shared());
        Tree::sample().plant(&scratch.src());
        let run = sshd.run(via).arg("-av").arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst()));
        let outcome = run.run().expect_code(0);
        assert!(outcome.all_text().to_lowercase().contains(word), "no '{word}' in\n{}", outcome.account());
    }
}

#[test]
fn single_file_is_pushed_and_pulled_by_name() {
    for via in Via::EACH {
        let (scratch, sshd) = (Scratch::new(), Sshd::shared());
        Tree::of([Node::file("file", 3, 100_000)]).plant(&scratch.src());
        let file = scratch.src().join("file");
        let _ = sshd
            .run(via)
            .arg("-a")
            .arg(&file)
            .arg(sshd.operand(scratch.at("up")))
            .run()
            .expect_quiet_success();
        let _ = sshd
            .run(via)
            .arg("-a")
            .arg(sshd.operand(&file))
            .arg(scratch.at("down"))
            .run()
            .expect_quiet_success();
        assert_same(&file, &scratch.at("up"), Scope::full());
        assert_same(&file, &scratch.at("down"), Scope::full());
    }
}

#[test]
fn several_sources_come_from_one_host() {
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    Tree::of([Node::file("x", 3, 1000)]).plant(&scratch.at("one"));
    Tree::of([Node::file("y", 4, 1000)]).plant(&scratch.at("two"));
    let run = sshd.run(Via::Auto).arg("-a").arg(sshd.operand(scratch.at("one")));
    let _ = run.arg(sshd.operand(scratch.at("two"))).arg(scratch.dst()).run().expect_quiet_success();
    assert_same(&scratch.at("one"), &scratch.dst().join("one"), Scope::full());
    assert_same(&scratch.at("two"), &scratch.dst().join("two"), Scope::full());
}

#[test]
fn relative_remote_path_starts_at_the_home_directory() {
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    let home = Scratch::under(&sshd::home());
    let name = home.path().file_name().unwrap();
    Tree::sample().plant(&scratch.src());
    let relative = |below: &str| {
        let mut path = OsString::from(name);
        path.push(below);
        sshd.operand(path)
    };
    let up = sshd.run(Via::Auto).arg("-a").arg(slash(&scratch.src())).arg(relative("/up"));
    let _ = up.run().expect_quiet_success();
    assert_same(&scratch.src(), &home.at("up"), Scope::full());
    let down = sshd.run(Via::Auto).arg("-a").arg(relative("/up/")).arg(scratch.at("down"));
    let _ = down.run().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.at("down"), Scope::full());
}

#[test]
fn empty_remote_path_is_the_home_directory() {
    let sshd = Sshd::shared();
    let home = Scratch::under(&sshd::home());
    Tree::of([Node::file("f", 1, 5)]).plant(&home.src());
    let name = format!("{}-file", home.path().file_name().unwrap().to_str().unwrap());
    fs::rename(home.src().join("f"), home.path().join(&name)).unwrap();
    let outcome = sshd.run(Via::Auto).arg("-a").arg(home.path().join(&name)).arg(sshd.operand("")).run();
    let landed = sshd::home().join(&name);
    let there = landed.is_file();
    let _ = fs::remove_file(&landed);
    let _ = outcome.expect_quiet_success();
    assert!(there, "the file is not in the home directory");
}

#[test]
fn odd_bytes_in_remote_paths_reach_no_shell() {
    // rsync expands patterns in remote paths; dsync takes them as they are.
    needs_dsync!();
    for via in Via::EACH {
        let (scratch, sshd) = (Scratch::new(), Sshd::shared());
        Tree::sample().plant(&scratch.src());
        let odd = scratch.at("a b;touch hacked'\"$(x)*\\ \n-é");
        let _ = sshd
            .run(via)
            .arg("-a")
            .arg(slash(&scratch.src()))
            .arg(sshd.operand(&odd))
            .run()
            .expect_quiet_success();
        assert_same(&scratch.src(), &odd, Scope::full());
        let _ = sshd
            .run(via)
            .arg("-a")
            .arg(sshd.operand(slash(&odd)))
            .arg(scratch.dst())
            .run()
            .expect_quiet_success();
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    }
}

#[test]
fn bracketed_address_reaches_an_ipv6_host() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        skip::record(skip::Reason::NeedsIpv6);
        return;
    }
    let (scratch, sshd) = (Scratch::new(), Sshd::start("::1", None));
    Tree::sample().plant(&scratch.src());
    for (via, word) in [(Via::Quic, "quic"), (Via::Tls, "tls"), (Via::Ssh, "ssh")] {
        let mut operand = OsString::from("[::1]:");
        operand.push(scratch.dst());
        let outcome = sshd.run(via).arg("-av").arg(slash(&scratch.src())).arg(operand).run().expect_code(0);
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
        if !is_stand_in() {
            let named = outcome.all_text().contains(&format!("over {word}"));
            assert!(named, "no {word} over IPv6\n{}", outcome.account());
        }
    }
}

#[test]
fn login_name_before_the_host_is_used() {
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    Tree::of([Node::file("f", 1, 5)]).plant(&scratch.src());
    let mut operand = OsString::from("no-such-user@");
    operand.push(sshd.operand(scratch.dst()));
    let outcome = sshd.run(Via::Auto).arg("-a").arg(slash(&scratch.src())).arg(operand).run();
    assert!(matches!(outcome.code(), Some(5 | 255 | 12)), "{}", outcome.account());
    assert!(!scratch.dst().exists());
}

#[test]
fn remote_program_is_found_on_the_path() {
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    Tree::sample().plant(&scratch.src());
    let run = Run::dsync().arg("-a").arg("-e").arg(sshd.shell());
    let _ = run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst())).run().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    assert_eq!(program().file_name().unwrap(), "dsync");
}

#[test]
fn jump_host_ends_in_the_ssh_pipe() {
    needs_dsync!();
    // Inside a namespace the far host's address cannot be reached but by ssh, as behind a real jump host.
    let namespace = dsync_tests::needs_namespace!();
    let (scratch, sshd) = (Scratch::new(), Sshd::start("127.0.0.1", Some(&namespace)));
    namespace.drop_udp();
    namespace.drop_tcp_but(sshd.port());
    Tree::sample().plant(&scratch.src());
    let mut operand = OsString::from(format!("{}-jumped:", sshd::ALIAS));
    operand.push(scratch.dst());
    let run = sshd.run(Via::Auto).within(&namespace).arg("-av").arg(slash(&scratch.src())).arg(operand);
    let outcome = run.run().expect_code(0);
    assert!(outcome.all_text().contains("over ssh (no answer"), "{}", outcome.account());
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
}

#[test]
fn remote_end_leaves_no_process_behind() {
    for via in Via::EACH {
        let (scratch, sshd) = (Scratch::new(), Sshd::shared());
        Tree::sample().plant(&scratch.src());
        let remote = sshd.remote();
        let run = sshd.run_serving(via, &remote.script).arg("-a").arg(slash(&scratch.src()));
        let _ = run.arg(sshd.operand(scratch.dst())).run().expect_quiet_success();
        let pid = remote.wait_for_id();
        let since = std::time::Instant::now();
        while fs::exists(format!("/proc/{pid}")).unwrap() {
            assert!(since.elapsed().as_secs() < 10, "the remote end {pid} is still there");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
