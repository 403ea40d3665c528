//! Push and pull over every carrier against a throwaway sshd.

use std::{ffi::OsString, fs, os::unix::fs::PermissionsExt};

use dsync_tests::{
    Node, Run, Scope, Scratch, Sshd, Tree, Via, assert_rsync_agrees, assert_same, is_stand_in, needs_dsync,
    program,
    run::{until_met, wait_for},
    scratch::slash,
    skip, sshd,
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
        until_met(|| {
            let _ = fs::remove_dir_all(scratch.dst());
            let run = sshd.run(via).arg("-av").arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst()));
            let outcome = run.run().expect_code(0);
            let is_named = outcome.all_text().contains(&format!("over {word}"));
            // On a busy machine a near host may look far.
            assert!(is_named || via == Via::Auto, "no '{word}' in\n{}", outcome.account());
            is_named.then_some(())
        });
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
fn too_few_descriptors_for_a_connection_are_no_panic() {
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    fs::write(scratch.src().join("f"), "f").unwrap();
    for limit in 12..24 {
        for pulls in [false, true] {
            let (here, there) = (slash(&scratch.src()), sshd.operand(slash(&scratch.src())));
            let operands = if pulls {
                [there, scratch.dst().into_os_string()]
            } else {
                [here, sshd.operand(scratch.dst())]
            };
            let run = Run::of("prlimit").arg(format!("--nofile={limit}:{limit}")).arg(program());
            let run = run.args(["-a", "--retries=0"]).arg("-e").arg(sshd.shell());
            let outcome = run.arg("--dsync-path").arg(program()).args(operands).run();
            let is_told = !outcome.stderr_text().contains("panicked");
            assert!(is_told && outcome.code() != Some(12), "{limit}: {}", outcome.account());
        }
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
fn more_operands_than_their_names_can_be_sent_are_pushed() {
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    fs::create_dir_all(scratch.src()).unwrap();
    let files: Vec<_> = (0..5000).map(|number| scratch.src().join(number.to_string())).collect();
    files.iter().for_each(|file| fs::write(file, "x").unwrap());
    let run = sshd.run(Via::Tls).arg("-t").args(&files).arg(sshd.operand(slash(&scratch.dst())));
    let _ = run.run().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.dst(), Scope::CONTENT);
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

/// As the remote shell expands it for rsync.
#[test]
fn a_remote_path_starts_at_the_home_directory_of_a_user() {
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    let me = Run::of("id").arg("-un").run().stdout_text().trim().to_owned();
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let home =
        passwd.lines().find_map(|line| line.strip_prefix(&format!("{me}:"))?.split(':').nth(4)).unwrap();
    let home = Scratch::under(std::path::Path::new(home));
    let name = home.path().file_name().unwrap().to_str().unwrap().to_owned();
    let tilde = |below: &str| sshd.operand(format!("~{me}/{name}{below}"));
    Tree::sample().plant(&scratch.src());

    let up = sshd.run(Via::Auto).arg("-a").arg(slash(&scratch.src())).arg(tilde("/up"));
    let _ = up.run().expect_quiet_success();
    assert_same(&scratch.src(), &home.at("up"), Scope::full());
    for options in [&["-a"][..], &["-aR"]] {
        let ours = scratch.at("ours");
        let run = sshd.run(Via::Ssh).args(options).arg(tilde("/up/")).arg(&ours);
        let _ = run.run().expect_quiet_success();
        // With -R the path begins at the home, as that of ~/ does.
        let landed = if options == ["-aR"] { ours.join(&name).join("up") } else { ours.clone() };
        assert_same(&scratch.src(), &landed, Scope::full());
        let theirs = scratch.at("theirs");
        if options == ["-a"] {
            let run = Run::of("rsync").arg("-a").arg("-e").arg(sshd.shell()).arg(tilde("/up/")).arg(&theirs);
            let _ = run.run().expect_code(0);
            assert_same(&theirs, &ours, Scope::full());
        }
        fs::remove_dir_all(&ours).unwrap();
    }
    let list = home.at("list");
    fs::write(&list, "up\n").unwrap();
    let from_list = format!("--files-from=:~{me}/{name}/list");
    let listed = sshd.run(Via::Ssh).args(["-ar", &from_list]).arg(tilde("")).arg(scratch.at("listed"));
    let _ = listed.run().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.at("listed/up"), Scope::full());

    let nobody = sshd.operand("~no-such-user/x");
    for (from, to) in [(nobody.clone(), scratch.at("x").into()), (slash(&scratch.src()), nobody)] {
        let outcome = sshd.run(Via::Ssh).arg("-a").arg(from).arg(to).run().expect_code(1);
        assert!(outcome.stderr_text().contains("no user 'no-such-user'"), "{}", outcome.account());
    }
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
    // rsync expands patterns in remote paths; dsync uses them literally.
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
    // Inside a namespace the far host's address can be reached only by ssh, as behind a real jump
    // host.
    let namespace = dsync_tests::needs_namespace!();
    let (scratch, sshd) = (Scratch::new(), Sshd::start("127.0.0.1", Some(&namespace)));
    namespace.drop_udp();
    namespace.drop_tcp_but(sshd.port());
    Tree::sample().plant(&scratch.src());
    let mut operand = OsString::from(format!("{}-jumped:", sshd::ALIAS));
    operand.push(scratch.dst());
    let run = sshd.run(Via::Auto).within(&namespace).arg("-av").arg(slash(&scratch.src())).arg(operand);
    let outcome = run.run().expect_code(0);
    let why = "over ssh (ssh goes through another host)";
    assert!(outcome.all_text().contains(why), "{}", outcome.account());
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
}

#[test]
fn jump_host_has_the_ssh_pipe_only_even_where_its_far_end_could_be_reached() {
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    Tree::sample().plant(&scratch.src());
    let mut operand = OsString::from(format!("{}-jumped:", sshd::ALIAS));
    operand.push(scratch.dst());
    let run = |via| sshd.run(via).arg("-av").arg(slash(&scratch.src())).arg(&operand).run();
    let outcome = run(Via::Auto).expect_code(0);
    let why = "over ssh (ssh goes through another host)";
    assert!(outcome.all_text().contains(why), "{}", outcome.account());
    for via in [Via::Quic, Via::Tls] {
        let outcome = run(via).expect_code(35);
        assert!(
            outcome.stderr_text().contains("ssh goes through another host. Use --transport="),
            "{}",
            outcome.account()
        );
    }
}

#[test]
fn address_is_the_one_that_ssh_reached_whatever_the_server_says() {
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    Tree::sample().plant(&scratch.src());
    // Nobody answers there, so a client that believes it does not arrive.
    let liar = scratch.at("liar");
    let lie = "SSH_CONNECTION='203.0.113.1 1 203.0.113.2 22'";
    let text = format!("#!/bin/sh\nexport {lie}\nexec {} \"$@\"\n", program::program().display());
    fs::write(&liar, text).unwrap();
    dsync_tests::tree::set_mode(&liar, 0o755);
    // A shared connection belongs to another process; its configuration says where that goes.
    let shared = format!(
        "{} -o ControlMaster=auto -o ControlPersist=5 -o ControlPath={}",
        sshd.shell().to_str().unwrap(),
        scratch.at("control").display()
    );
    let script = scratch.at("wrapped");
    fs::write(&script, format!("#!/bin/sh\n{} \"$@\"\n", sshd.shell().to_str().unwrap())).unwrap();
    dsync_tests::tree::set_mode(&script, 0o755);
    for shell in [sshd.shell(), shared.clone().into(), shared.into(), script.into()] {
        for via in ["quic", "tls"] {
            let run = Run::dsync().arg("-e").arg(&shell).arg("--dsync-path").arg(&liar);
            let run = run.arg(format!("--transport={via}")).arg("-a").arg(slash(&scratch.src()));
            let _ = run.arg(sshd.operand(scratch.dst())).run().expect_quiet_success();
            assert_same(&scratch.src(), &scratch.dst(), Scope::full());
            fs::remove_dir_all(scratch.dst()).unwrap();
        }
    }
}

#[test]
fn remote_end_leaves_no_process_behind() {
    for via in Via::EACH {
        let (scratch, sshd) = (Scratch::new(), Sshd::shared());
        Tree::sample().plant(&scratch.src());
        let remote = sshd.remote();
        let run = sshd.run_serving(via, &remote.script).arg("-a").arg(slash(&scratch.src()));
        let _ = run.arg(sshd.operand(scratch.dst())).run().expect_quiet_success();
        remote.wait_for_id();
        remote.wait_until_gone();
    }
}

#[test]
fn what_lets_a_client_in_is_nowhere_to_be_read() {
    needs_dsync!();
    for via in [Via::Quic, Via::Tls] {
        let (scratch, sshd) = (Scratch::new(), Sshd::shared());
        Tree::of([Node::file("large", 1, 4 << 20)]).plant(&scratch.src());
        let (heard, shell) = (scratch.at("heard"), scratch.at("shell"));
        let text =
            format!("#!/bin/sh\ntee {} | ssh -F {} \"$@\"\n", heard.display(), sshd.config().display());
        fs::write(&shell, text).unwrap();
        fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).unwrap();
        let run = sshd.run(via).arg("-e").arg(&shell).args(["-avv", "--stats", "--bwlimit=2m"]);
        let run = run.env("DSYNC_LOG", "trace").arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst()));
        let running = run.start();
        wait_for(|| fs::read_dir(scratch.dst()).is_ok_and(|entries| entries.count() > 0));
        // The first message's last field.
        let heard = fs::read(&heard).unwrap();
        let end = 13 + usize::from(u16::from_le_bytes([heard[11], heard[12]]));
        let token = &heard[end - 32..end];
        for part in processes(&["cmdline", "environ"]) {
            assert!(!shows(&part, token), "{}", part.escape_ascii());
        }
        let outcome = running.wait().expect_code(0);
        // Only QUIC logs a handshake's steps.
        assert!(via == Via::Tls || outcome.stderr_text().contains("TRACE"), "{}", outcome.account());
        for said in [&outcome.stdout, &outcome.stderr] {
            assert!(!shows(said, token), "{}", outcome.account());
        }
    }
}

/// Returns these files of every process.
fn processes(names: &[&str]) -> Vec<Vec<u8>> {
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    processes
        .flat_map(|process| names.iter().filter_map(move |name| fs::read(process.join(name)).ok()))
        .collect()
}

/// Returns whether a text shows the secret, or its first half, in a form that programs use.
fn shows(text: &[u8], secret: &[u8]) -> bool {
    let half = &secret[..16];
    let hex: String = half.iter().map(|byte| format!("{byte:02x}")).collect();
    let list = half.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
    let lower = text.to_ascii_lowercase();
    let holds = |text: &[u8], form: &[u8]| text.windows(form.len()).any(|window| window == form);
    holds(text, half) || holds(&lower, hex.as_bytes()) || holds(text, list.as_bytes())
}

/// Nothing else passes on its lane: a list of names, and a listing of them.
#[test]
fn a_message_may_be_on_its_way_for_longer_than_a_peer_may_be_silent() {
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    // Names that cannot be compressed to less than 40 bytes.
    let mut state = 1u64;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(
            b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"[(state >> 58) as usize],
        )
    };
    let names = Vec::from_iter((0..3000).map(|_| (0..60).map(|_| letter()).collect::<String>()));
    names[..1200].iter().for_each(|name| fs::write(scratch.src().join(name), "").unwrap());
    fs::write(scratch.at("list"), names.join("\n")).unwrap();
    let list = format!("--files-from={}", scratch.at("list").display());

    let pull = sshd.run(Via::Ssh).args(["-a", "--timeout=15", "--bwlimit=8", "--retries=0"]);
    let pull = pull.args(["--ignore-missing-args", &list]).arg(sshd.operand(slash(&scratch.src())));
    let pull = pull.arg(scratch.at("pulled")).start();
    let push = sshd.run(Via::Ssh).args(["-a", "--timeout=15", "--bwlimit=3", "--retries=0"]);
    let push = push.arg(slash(&scratch.src())).arg(sshd.operand(scratch.at("pushed"))).start();
    for (run, to) in [(pull, "pulled"), (push, "pushed")] {
        let outcome = run.wait().expect_code(0);
        assert_eq!(fs::read_dir(scratch.at(to)).unwrap().count(), 1200, "{}", outcome.account());
    }
}
