//! Bad input to whole runs: the exit code, and a message that names the object and the remedy.
//!
//! Rows B15 to B18 and B31 to B36 of the design's table; the command line's own rows are
//! transcripts of the `dsync-cli` crate, and those of the wire are in `hostile_peer`.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use dsync_tests::{
    Node, Outcome, Run, Scratch, Sshd, Tree, Via, needs_dsync, needs_root, program, scratch::slash, tree,
};

/// Asserts code and message, and that the message uses no internal terms.
fn expect(outcome: Outcome, code: i32, parts: &[&str]) {
    let outcome = outcome.expect_code(code);
    let text = outcome.stderr_text();
    for part in parts {
        assert!(text.contains(part), "no '{part}' on stderr\n{}", outcome.account());
    }
    for word in ["Err(", "Os {", "panicked", "unwrap"] {
        assert!(!text.contains(word), "'{word}' on stderr\n{}", outcome.account());
    }
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "control characters\n{}", outcome.account());
    assert!(outcome.stdout.is_empty(), "errors belong on stderr\n{}", outcome.account());
}

fn planted() -> Scratch {
    let scratch = Scratch::new();
    Tree::of([Node::file("f", 1, 10)]).plant(&scratch.src());
    scratch
}

/// Writes a program that can run at the remote end in dsync's place.
fn script(scratch: &Scratch, name: &str, text: &str) -> PathBuf {
    let path = scratch.at(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    tree::set_mode(&path, 0o755);
    path
}

#[test]
fn missing_source_is_named() {
    needs_dsync!();
    let (scratch, sshd) = (planted(), Sshd::shared());
    let missing = scratch.at("no such");
    let text = format!("source '{}': no such file or directory", missing.display());
    expect(Run::dsync().arg("-a").arg(&missing).arg(scratch.dst()).run(), 23, &[&text]);
    for via in Via::EACH {
        expect(sshd.run(via).arg("-a").arg(sshd.operand(&missing)).arg(scratch.dst()).run(), 23, &[&text]);
        expect(sshd.run(via).arg("-a").arg(&missing).arg(sshd.operand(scratch.dst())).run(), 23, &[&text]);
    }
    assert!(!scratch.dst().exists());

    // A destination whose parent is missing too changes nothing in that.
    for options in ["-a", "-an"] {
        let deep = scratch.at("not/there/either");
        let run = |way: Run| way.arg(options).arg(&missing);
        expect(run(Run::dsync()).arg(&deep).run(), 23, &[&text]);
        expect(run(sshd.run(Via::Ssh)).arg(sshd.operand(&deep)).run(), 23, &[&text]);
        let run = sshd.run(Via::Ssh).arg(options).arg(sshd.operand(&missing));
        expect(run.arg(&deep).run(), 23, &[&text]);
    }
}

#[test]
fn missing_sources_end_the_run_as_with_rsync_and_delete_nothing() {
    needs_dsync!();
    let sshd = Sshd::shared();
    for options in [
        &["-a"][..],
        &["-a", "--delete"],
        &["-a", "--delete-before"],
        &["-an", "--delete"],
        &["-aR"],
        &["-a", "--ignore-missing-args"],
        &["-a", "--delete-missing-args"],
    ] {
        for names in [&["none"][..], &["none/"], &["none/deeper"], &["none", "none2"], &["none", "src/f"]] {
            for way in ["rsync", "local", "push", "pull"] {
                let scratch = planted();
                fs::create_dir(scratch.dst()).unwrap();
                fs::write(scratch.dst().join("old"), "old").unwrap();
                let run = match way {
                    "rsync" => Run::of("rsync"),
                    "local" => Run::dsync(),
                    _ => sshd.run(Via::Tls),
                };
                let from = names.iter().map(|name| {
                    let path = scratch.at(name);
                    if way == "pull" { sshd.operand(path) } else { path.into() }
                });
                let to = if way == "push" { sshd.operand(scratch.dst()) } else { scratch.dst().into() };
                let outcome = run.args(options).args(from).arg(to).run();
                let is_fine = options.iter().any(|option| option.ends_with("-missing-args"));
                // rsync does not take a missing directory for a missing argument.
                if !(is_fine && way == "rsync" && names[0].contains('/')) {
                    let _ = outcome.expect_code(if is_fine { 0 } else { 23 });
                }
                assert!(scratch.dst().join("old").exists(), "{way} {options:?} {names:?}");
            }
        }
    }
}

#[test]
fn missing_parent_of_the_destination_is_named() {
    needs_dsync!();
    let (scratch, sshd) = (planted(), Sshd::shared());
    let deep = scratch.at("no/such/dst");
    let parts = ["destination parent '", "/no/such' does not exist. --mkpath makes it"];
    expect(Run::dsync().arg("-a").arg(slash(&scratch.src())).arg(&deep).run(), 3, &parts);
    expect(
        sshd.run(Via::Auto).arg("-a").arg(slash(&scratch.src())).arg(sshd.operand(&deep)).run(),
        3,
        &parts,
    );
    let _ = Run::dsync()
        .args(["-a", "--mkpath"])
        .arg(slash(&scratch.src()))
        .arg(&deep)
        .run()
        .expect_quiet_success();
    assert!(deep.join("f").exists());
}

#[test]
fn a_link_to_nowhere_on_the_way_to_the_destination_is_named() {
    needs_dsync!();
    let scratch = planted();
    std::os::unix::fs::symlink("nowhere", scratch.at("link")).unwrap();
    let run = Run::dsync().args(["-a", "--mkpath"]).arg(slash(&scratch.src())).arg(scratch.at("link/sub"));
    expect(run.run(), 3, &["a link on the way to it leads nowhere"]);
    assert!(!scratch.at("nowhere").exists());
}

#[test]
fn a_directory_of_backups_with_a_name_that_is_too_long_is_named_before_anything_is_done() {
    needs_dsync!();
    let scratch = planted();
    Tree::of([Node::file("f", 2, 20)]).plant(&scratch.dst());
    let long = format!("--backup-dir=../{}", "b".repeat(256));
    let run = Run::dsync().args(["-a", &long]).arg(slash(&scratch.src())).arg(scratch.dst());
    expect(run.run(), 1, &["--backup-dir", "File name too long"]);
    assert_eq!(fs::metadata(scratch.dst().join("f")).unwrap().len(), 20);
}

#[test]
fn directory_is_not_put_over_a_file() {
    needs_dsync!();
    let (scratch, sshd) = (planted(), Sshd::shared());
    fs::write(scratch.at("file"), "kept").unwrap();
    let text =
        format!("the destination has to be a directory, and '{}' is none", scratch.at("file").display());
    expect(Run::dsync().arg("-a").arg(slash(&scratch.src())).arg(scratch.at("file")).run(), 3, &[&text]);
    let run = sshd.run(Via::Auto).arg("-a").arg(slash(&scratch.src())).arg(sshd.operand(scratch.at("file")));
    expect(run.run(), 3, &[&text]);
    assert_eq!(fs::read(scratch.at("file")).unwrap(), b"kept");
}

#[test]
fn new_destination_is_not_made_for_a_run_that_an_options_directory_ends() {
    needs_dsync!();
    let sshd = Sshd::shared();
    let none_exists = "none of the alternate directories exists: '../none' (";
    for (option, code, words) in [
        ("--temp-dir=../none", 1, ["cannot use", "No such file or directory"]),
        ("--temp-dir=none", 1, ["cannot use", "No such file or directory"]),
        ("--temp-dir=../../src/f", 1, ["cannot use", "Not a directory"]),
        ("--partial-dir=@/src/f", 1, ["cannot use", "Not a directory"]),
        ("--backup-dir=../../src/f", 1, ["cannot use", "Not a directory"]),
        ("--link-dest=../../src/f", 1, ["cannot use", "Not a directory"]),
        ("--link-dest=../none", 3, [none_exists, "leave --link-dest out for a first copy"]),
        ("--copy-dest=../none", 3, [none_exists, "leave --copy-dest out for a first copy"]),
        ("--compare-dest=../none", 3, [none_exists, "leave --compare-dest out for a first copy"]),
    ] {
        for (dry, remote) in [("-n", false), ("-t", false), ("-n", true), ("-t", true)] {
            let scratch = planted();
            // With an older copy beside it, the one to be made is not the first.
            fs::create_dir_all(scratch.dst().join("older")).unwrap();
            let before = fs::metadata(scratch.dst()).unwrap().modified().unwrap();
            let run = if remote { sshd.run(Via::Tls) } else { Run::dsync() };
            let new = scratch.dst().join("new");
            let to = if remote { sshd.operand(&new) } else { new.clone().into() };
            let option = option.replace('@', &scratch.path().display().to_string());
            let run = run.args(["-a", dry]).arg(&option).arg(slash(&scratch.src())).arg(to);
            expect(run.run(), code, &[words[0], option.split('=').next().unwrap(), words[1]]);
            assert!(!new.exists(), "{option} {dry}");
            assert_eq!(fs::metadata(scratch.dst()).unwrap().modified().unwrap(), before, "{option} {dry}");
        }
    }
}

#[test]
fn destination_inside_the_source_is_refused() {
    needs_dsync!();
    let scratch = planted();
    std::os::unix::fs::symlink("src", scratch.at("alias")).unwrap();
    fs::create_dir(scratch.src().join("inner")).unwrap();
    let inside = ["destination '", "inside the source", "into itself"];
    let itself = ["destination '", "is the source itself", "another directory"];
    for (destination, words) in
        [("src/inner", inside), ("src", itself), ("alias/inner", inside), ("alias", itself)]
    {
        let run = Run::dsync().arg("-a").arg(slash(&scratch.src())).arg(scratch.at(destination));
        expect(run.run(), 42, &words);
    }
    // The positive twin: beside it is allowed, and so is a directory whose name merely starts the
    // same.
    let _ = Run::dsync()
        .arg("-a")
        .arg(slash(&scratch.src()))
        .arg(scratch.at("src2"))
        .run()
        .expect_quiet_success();
}

#[test]
fn unanswered_greeting_names_host_and_cure() {
    needs_dsync!();
    let (scratch, sshd) = (planted(), Sshd::shared());
    let run = |remote: &PathBuf| {
        let run = sshd.run_serving(Via::Auto, remote).arg("-a").arg(slash(&scratch.src()));
        run.arg(sshd.operand(scratch.dst())).run()
    };
    expect(
        run(&"/no/such/dsync".into()),
        127,
        &["/no/such/dsync", "dsync-test", "not found", "--dsync-path"],
    );
    let noisy = script(&scratch, "noisy", "echo 'Welcome \x1b[31mto\x07 this host'; cat >/dev/null");
    expect(
        run(&noisy),
        2,
        &["unexpected text from dsync-test before the greeting", "Welcome", "start-up files"],
    );
    let silent = script(&scratch, "silent", "exit 0");
    expect(run(&silent), 12, &["dsync-test"]);
    let angry = script(&scratch, "angry", "echo 'disk on fire' >&2; exit 7");
    expect(run(&angry), 12, &["disk on fire"]);
    assert!(!scratch.dst().exists());
}

#[test]
fn failures_of_ssh_itself_are_told_in_its_own_words() {
    needs_dsync!();
    let (scratch, sshd) = (planted(), Sshd::shared());
    let run = |shell: &str| {
        let run = Run::dsync().arg("-a").arg("-e").arg(shell).arg("--dsync-path").arg(program());
        run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst())).run()
    };
    expect(run("/no/such/ssh"), 14, &["/no/such/ssh"]);
    let config = sshd.config();
    let config = config.display();
    expect(run(&format!("ssh -F {config} -p 1")), 255, &["Connection refused"]);
    expect(run(&format!("ssh -F {config} -o PubkeyAuthentication=no")), 255, &["Permission denied"]);
    let known = scratch.at("known_hosts");
    let other = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJuZ3Vw3Jrr0pCTwvRW8CCpYtVwZb6yGq3V9a9k0m0m0";
    fs::write(&known, format!("[127.0.0.1]:{} {other}\n", sshd.port())).unwrap();
    expect(run(&format!("ssh -F {config} -o UserKnownHostsFile={}", known.display())), 255, &["ost key"]);
    expect(
        run(&format!("ssh -F {config} -o 'HostName=no-such-host.invalid'")),
        255,
        &["no-such-host.invalid"],
    );
}

#[test]
fn other_programs_at_the_remote_end_are_recognized() {
    needs_dsync!();
    let (scratch, sshd) = (planted(), Sshd::shared());
    for (name, text) in [
        ("web", r"printf 'HTTP/1.1 400 Bad Request\r\n\r\n'"),
        ("rsyncd", r"printf '@RSYNCD: 31.0\n'; cat >/dev/null"),
        ("zeros", "head -c 100000 /dev/zero"),
        ("noise", "head -c 100000 /dev/urandom"),
    ] {
        let remote = script(&scratch, name, text);
        let run = sshd.run_serving(Via::Auto, &remote).arg("-a").arg(slash(&scratch.src()));
        let outcome = run.arg(sshd.operand(scratch.dst())).run();
        let code = outcome.code().unwrap_or(-1);
        assert!(code == 2 || code == 12, "{}", outcome.account());
        expect(outcome, code, &["dsync-test"]);
    }
    assert!(!scratch.dst().exists());
}

#[test]
fn remote_end_started_by_hand_ends_with_a_message() {
    needs_dsync!();
    let outcome = Run::dsync().arg("--server").run();
    assert!(matches!(outcome.code(), Some(1..=12)), "{}", outcome.account());
    assert!(!outcome.stderr_text().contains("panicked"), "{}", outcome.account());
}

#[test]
fn file_that_cannot_be_read_has_its_own_name_where_it_was_to_get_another() {
    needs_dsync!();
    needs_root!();
    let scratch = Scratch::new();
    fs::write(scratch.at("secret"), "secret").unwrap();
    for (path, mode) in [("secret", 0o600), (".", 0o777)] {
        fs::set_permissions(scratch.at(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    let run = Run::dsync().args(["-a", "secret", "copy"]).cwd(scratch.path()).as_user(65_534, 65_534);
    expect(run.run(), 23, &["cannot read 'secret': Permission denied"]);
}

#[test]
fn an_operand_that_is_too_long_for_the_other_end_is_refused_before_a_shell_starts() {
    needs_dsync!();
    let scratch = Scratch::new();
    let long = format!("host:{}", "./".repeat(3000));
    let source = slash(&scratch.src()).into_string().unwrap();
    for operands in [[source.as_str(), &long], [&long, "here/"]] {
        let outcome = Run::dsync().args(["-a", "-e", "false"]).args(operands).cwd(scratch.path()).run();
        let outcome = outcome.expect_code(1);
        assert!(outcome.stderr_text().contains("more than 4,095 bytes"), "{}", outcome.account());
    }
}

#[test]
fn a_source_that_was_deleted_under_the_run_is_a_failure_and_no_vanished_file() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("f", 1, 10)]).plant(&scratch.dst());
    fs::create_dir(scratch.at("gone")).unwrap();
    let script = format!("cd gone && rmdir ../gone && exec {} -a --delete . ../dst", program().display());
    let run = Run::of("sh").args(["-c", &script]).cwd(scratch.path());
    let outcome = run.run().expect_code(23);
    assert!(scratch.dst().join("f").exists(), "{}", outcome.account());
}

#[test]
fn the_home_of_temporaries_may_be_a_destination_that_is_still_to_be_made() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::dir("d"), Node::file("d/f", 1, 10)]).plant(&scratch.src());
    for (number, directory) in [".", "./", "./."].iter().enumerate() {
        let to = scratch.at(&format!("new{number}"));
        let run = Run::dsync().arg("-a").arg(format!("--temp-dir={directory}")).arg(slash(&scratch.src()));
        let outcome = run.arg(&to).run().expect_code(0);
        let names = fs::read_dir(&to).unwrap().count();
        assert!(names == 1 && to.join("d/f").exists(), "{}", outcome.account());
    }
}

#[test]
fn one_name_for_two_files_that_a_run_writes_is_refused() {
    needs_dsync!();
    let scratch = Scratch::new();
    fs::write(scratch.src().join("f"), "").unwrap();
    let options = ["--write-batch", "--write-manifest", "--log-file"];
    for (index, one) in options.iter().enumerate() {
        for other in &options[index + 1..] {
            let run = Run::dsync().arg("-a").arg(format!("{one}=x")).arg(format!("{other}=./x"));
            let outcome = run.args(["src/", "dst/"]).cwd(scratch.path()).run().expect_code(1);
            let said = format!("{one} and {other} name the same file");
            assert!(outcome.stderr_text().contains(&said), "{}", outcome.account());
            assert!(!scratch.at("x").exists());
        }
    }
}
