//! Links on the way to the destination and to the directories of options: only trusted ones are
//! followed.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::{lchown, symlink},
    path::Path,
};

use dsync_tests::{
    Outcome, Run, Scratch, Sshd, Via, needs_dsync, needs_root, oracle, program, scratch::slash,
};

const OTHER: u32 = 65_534;

/// Plants a source, a directory, and links to it: `mine` is root's, `theirs` another user's,
/// `through` leads through that one.
fn plant(scratch: &Scratch) {
    fs::write(scratch.src().join("f"), "new").unwrap();
    fs::create_dir_all(scratch.at("real/sub")).unwrap();
    fs::create_dir(scratch.dst()).unwrap();
    symlink("real", scratch.at("mine")).unwrap();
    symlink("real", scratch.at("theirs")).unwrap();
    lchown(scratch.at("theirs"), Some(OTHER), None).unwrap();
    symlink(scratch.at("theirs/sub"), scratch.at("through")).unwrap();
}

fn assert_refused(outcome: Outcome, what: &str, scratch: &Scratch) {
    let outcome = outcome.expect_code(42);
    let text = outcome.stderr_text();
    let link = scratch.at("theirs").display().to_string();
    for part in [what, &link, "user 65534", "--insecure-links"] {
        assert!(text.contains(part), "{part}: {}", outcome.account());
    }
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn destination_is_reached_through_links_of_root_and_of_ones_own_only() {
    needs_root!();
    let scratch = Scratch::new();
    plant(&scratch);
    let run = |options: &[&str], to: &str| {
        Run::dsync().arg("-a").args(options).arg(slash(&scratch.src())).arg(scratch.at(to)).run()
    };
    let _ = run(&[], "mine/").expect_code(0);
    assert!(scratch.at("real/f").exists());
    let _ = fs::remove_file(scratch.at("real/f"));
    if dsync_tests::is_stand_in() {
        return;
    }
    let file = |to: &str| Run::dsync().arg("-a").arg(scratch.src().join("f")).arg(scratch.at(to)).run();
    for to in ["theirs", "theirs/", "theirs/sub", "theirs/new", "through", "through/new", "theirs/new/er"] {
        for options in [&[][..], &["-n"], &["--mkpath"]] {
            assert_refused(run(options, to), "destination", &scratch);
        }
        assert_refused(file(to), "destination", &scratch);
    }
    assert!(is_empty(&scratch.at("real/sub")) && !scratch.at("real/new").exists());
    for to in ["theirs/", "through", "theirs/new"] {
        let _ = run(&["--insecure-links"], to).expect_quiet_success();
    }
    assert!(["real/f", "real/sub/f", "real/new/f"].iter().all(|file| scratch.at(file).exists()));
}

#[test]
fn what_is_refused_is_what_rsync_refuses() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    // A user without privileges trusts his own links and root's.
    symlink("real", scratch.at("third")).unwrap();
    lchown(scratch.at("third"), Some(65_533), None).unwrap();
    for open in ["", "real", "real/sub"] {
        dsync_tests::tree::set_mode(&scratch.at(open), 0o777);
    }
    for to in ["mine/", "theirs/", "third/", "through/", "real/", "theirs/sub/../"] {
        for user in [0, OTHER] {
            let args = [OsString::from("-r"), slash(&scratch.src()), scratch.at(to).into_os_string()];
            let code = |run: Run| run.args(&args).as_user(user, user).run().code();
            let (ours, theirs) = (code(Run::dsync()), code(Run::of("rsync")));
            // Older ones follow all links.
            if oracle::is_since((3, 5, 0)) {
                assert_eq!(ours == Some(0), theirs == Some(0), "{to} by {user}: {ours:?} {theirs:?}");
            }
            assert!(matches!(ours, Some(0 | 42)), "{to} by {user}: {ours:?}");
        }
    }
}

#[test]
fn directories_of_options_are_held_to_the_same_rule() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    let options =
        ["--backup-dir", "--temp-dir", "--partial-dir", "--compare-dest", "--copy-dest", "--link-dest"];
    for option in options {
        for dir in [scratch.at("theirs/sub").display().to_string(), "../theirs/sub".to_owned()] {
            if option == "--partial-dir" && !dir.starts_with('/') {
                continue;
            }
            let run = |more: &[&str]| {
                let run = Run::dsync().arg("-a").arg(format!("{option}={dir}")).args(more);
                run.arg(slash(&scratch.src())).arg(scratch.dst()).run()
            };
            // A local run keeps no unfinished files, so it does not open the directory.
            if option != "--partial-dir" {
                let outcome = run(&[]).expect_code(42);
                let text = outcome.stderr_text();
                assert!(text.contains(option) && text.contains("theirs' belongs to user 65534"), "{text}");
                assert!(is_empty(&scratch.dst()), "{option}");
            }
            let _ = run(&["--insecure-links"]).expect_quiet_success();
            fs::remove_file(scratch.dst().join("f")).unwrap();
        }
    }
}

#[test]
fn rule_is_the_destinations_and_so_is_the_leave() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    let sshd = Sshd::shared();
    let push = |options: &[&str]| {
        let run = sshd.run(Via::Ssh).arg("-a").args(options).arg(slash(&scratch.src()));
        run.arg(sshd.operand(scratch.at("theirs/"))).run()
    };
    let pull = |options: &[&str]| {
        let run = sshd.run(Via::Ssh).arg("-a").args(options).arg(sshd.operand(slash(&scratch.src())));
        run.arg(scratch.at("theirs/")).run()
    };
    let partial = format!("--partial-dir={}", scratch.at("theirs/parts").display());
    let kept = sshd.run(Via::Ssh).arg("-a").arg(&partial).arg(slash(&scratch.src()));
    assert_refused(kept.arg(sshd.operand(scratch.dst())).run(), "--partial-dir", &scratch);
    // As with rsync, the option applies to this end, and -M passes it to the other.
    for options in [&[][..], &["--insecure-links"]] {
        assert_refused(push(options), "destination", &scratch);
    }
    for options in [&[][..], &["-M--insecure-links"]] {
        assert_refused(pull(options), "destination", &scratch);
    }
    assert!(!scratch.at("real/f").exists());
    let _ = push(&["-M--insecure-links"]).expect_quiet_success();
    fs::remove_file(scratch.at("real/f")).unwrap();
    let _ = pull(&["--insecure-links"]).expect_quiet_success();
    assert!(scratch.at("real/f").exists());
    // A source is only read, so the owners of links to it do not matter.
    let read = Run::dsync().arg("-a").arg(slash(&scratch.at("theirs"))).arg(scratch.dst()).run();
    let _ = read.expect_quiet_success();
}

#[test]
fn link_of_another_that_is_swapped_in_during_the_run_is_not_followed() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    // A link of one's own is replaced by another's while the run opens it repeatedly: whichever it
    // meets, nothing reaches the target of the other.
    fs::create_dir(scratch.at("forbidden")).unwrap();
    let (own, other, name) = (scratch.at("own"), scratch.at("other"), scratch.at("way"));
    symlink("real", &name).unwrap();
    for _ in 0..20 {
        for (target, owner, from) in [("forbidden", Some(OTHER), &other), ("real", None, &own)] {
            symlink(target, from).unwrap();
            lchown(from, owner, None).unwrap();
            let run = Run::dsync().arg("-a").arg(slash(&scratch.src())).arg(name.join("sub")).start();
            fs::rename(from, &name).unwrap();
            let code = run.wait().code();
            assert!(matches!(code, Some(0 | 42)), "{code:?}");
        }
    }
    assert!(is_empty(&scratch.at("forbidden")));
}

#[test]
fn files_of_patterns_are_held_to_the_same_rule() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    fs::write(scratch.at("real/sub/patterns"), "f\n").unwrap();
    for option in ["--exclude-from", "--include-from"] {
        let run = |more: &[&str]| {
            let run = Run::dsync()
                .arg("-a")
                .arg(format!("{option}={}", scratch.at("theirs/sub/patterns").display()));
            run.args(more).arg(slash(&scratch.src())).arg(scratch.dst()).run()
        };
        // As with rsync.
        let outcome = run(&[]).expect_code(11);
        assert!(outcome.stderr_text().contains("theirs' belongs to user 65534"), "{}", outcome.account());
        assert!(is_empty(&scratch.dst()));
        let _ = run(&["--insecure-links"]).expect_quiet_success();
    }
    assert!(scratch.dst().join("f").exists());
}

#[test]
fn a_manifest_is_written_and_read_through_no_link_of_others() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    let verify = |words: &[&str], manifest: &str| {
        let run = Run::dsync().arg("verify").args(words).arg("--manifest").arg(scratch.at(manifest));
        run.arg(scratch.src()).run()
    };
    let refused = |outcome: Outcome| {
        let outcome = outcome.expect_code(11);
        let text = outcome.stderr_text();
        for part in ["theirs' belongs to user 65534", "name the manifest by a path without it"] {
            assert!(text.contains(part), "{}", outcome.account());
        }
    };

    refused(verify(&["--record"], "theirs/sub/m"));
    refused(verify(&["--record"], "through/m"));
    // Without a name it stands beside the tree.
    refused(Run::dsync().args(["verify", "--record"]).arg(scratch.at("theirs/sub")).run());
    assert!(is_empty(&scratch.at("real/sub")) && !scratch.at("real/sub.dsync-manifest").exists());

    let _ = verify(&["--record"], "mine/sub/m").expect_code(0);
    let _ = verify(&[], "mine/sub/m").expect_code(0);
    refused(verify(&[], "theirs/sub/m"));
}

#[test]
fn link_of_another_that_leads_to_no_directory_is_replaced_by_the_one_file() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    fs::write(scratch.at("elsewhere"), "theirs").unwrap();
    for target in ["elsewhere", "nowhere"] {
        let to = scratch.at(&format!("to {target}"));
        symlink(target, &to).unwrap();
        lchown(&to, Some(OTHER), None).unwrap();
        let run = || Run::dsync().arg("-a").arg(scratch.src().join("f")).arg(&to).run();
        let _ = run().expect_quiet_success();
        assert!(fs::symlink_metadata(&to).unwrap().is_file());
        assert_eq!(fs::read(&to).unwrap(), b"new");
    }
    assert_eq!(fs::read(scratch.at("elsewhere")).unwrap(), b"theirs", "nothing is written through a link");
}

#[test]
fn link_that_a_source_may_have_made_leads_no_option_out_of_the_destination() {
    needs_dsync!();
    let options =
        ["--backup-dir", "--temp-dir", "--partial-dir", "--compare-dest", "--copy-dest", "--link-dest"];
    let sshd = Sshd::shared();
    for option in options {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.at("outside/sub")).unwrap();
        fs::create_dir(scratch.src().join("in")).unwrap();
        fs::write(scratch.src().join("f"), "new content").unwrap();
        symlink("../outside", scratch.src().join(".old")).unwrap();
        symlink(scratch.at("outside"), scratch.src().join("in/.old")).unwrap();
        // The source makes the link in one run, and the next run would go through it.
        let run = |options: &[&str]| {
            let run = sshd.run(Via::Ssh).arg("-a").args(options).arg(slash(&scratch.src()));
            run.arg(sshd.operand(scratch.dst())).run()
        };
        let _ = run(&[]).expect_code(0);
        symlink(scratch.dst().join("in"), scratch.at("above")).unwrap();
        fs::write(scratch.dst().join("f"), "old").unwrap();
        fs::write(scratch.at("outside/f"), "new content").unwrap();
        let at = |path: &str| scratch.at(path).display().to_string();
        let relative =
            [".old", ".old/sub", "in/.old", "../dst/in/.old/sub", "../above/.old"].map(str::to_owned);
        let absolute = [at("dst/.old"), at("above/.old/sub"), at("dst/in/../.old")];
        for dir in relative.into_iter().filter(|_| option != "--partial-dir").chain(absolute) {
            let outcome = run(&[&format!("{option}={dir}")]).expect_code(42);
            let text = outcome.stderr_text();
            for part in [option, ".old' is within the destination", "-M--insecure-links"] {
                assert!(text.contains(part), "{part}: {}", outcome.account());
            }
            assert_eq!(fs::read(scratch.dst().join("f")).unwrap(), b"old", "{option}={dir}");
            assert_eq!(fs::read_dir(scratch.at("outside")).unwrap().count(), 2, "{option}={dir}");
            assert!(is_empty(&scratch.at("outside/sub")), "{option}={dir}");
        }
        let dir = at("above/.old/sub");
        let _ = run(&["-M--insecure-links", &format!("{option}={dir}")]).expect_quiet_success();
    }
}

/// A source made a link, a fifo or a device in an earlier run; the next run's log, patterns or list
/// have its name.
#[test]
fn no_log_and_no_list_is_what_a_source_may_have_put_there() {
    needs_dsync!();
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.at("outside/sub")).unwrap();
    fs::create_dir(scratch.src().join("in")).unwrap();
    fs::write(scratch.src().join("f"), "new").unwrap();
    fs::write(scratch.at("outside/secret"), "secret line\n").unwrap();
    symlink(scratch.at("outside/secret"), scratch.src().join("log")).unwrap();
    symlink(scratch.at("outside"), scratch.src().join("dir")).unwrap();
    symlink(scratch.at("outside/secret"), scratch.src().join("in/hidden")).unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(scratch.src().join("fifo")).status();
    assert!(fifo.unwrap().success());
    let shell = shell_at(&scratch);
    let run = |options: &[&str], from: &Path| {
        let run = Run::dsync().args(["-a", "--transport=ssh", "-e"]).arg(&shell).args(options).cwd(from);
        let run = run.arg(format!("--dsync-path={}", program().display()));
        run.arg(format!("h:{}/", scratch.src().display())).arg(scratch.dst()).run()
    };
    let _ = run(&[], &scratch.at("")).expect_code(0);

    let places =
        [("dst/log", "log"), ("dst/dir/secret", "dir"), ("dst/in/../log", "log"), ("dst/fifo", "fifo")];
    let from_here = places.map(|(file, part)| (scratch.at(""), file, part));
    let from_below = [(scratch.dst().join("in"), "hidden", "hidden")];
    for (from, file, part) in from_here.into_iter().chain(from_below) {
        let text_of = |option: &str, code: i32| {
            fs::write(scratch.src().join("f"), format!("new {file} {option}")).unwrap();
            let outcome = run(&[&format!("{option}={file}")], &from).expect_code(code);
            let text = outcome.stderr_text();
            assert!(text.contains("a source may have made it"), "{option}={file}: {}", outcome.account());
            assert!(text.contains(part) && !text.contains("secret line"), "{}", outcome.account());
        };
        text_of("--log-file", 0);
        text_of("--exclude-from", 11);
        text_of("--files-from", 1);
        assert_eq!(fs::read(scratch.at("outside/secret")).unwrap(), b"secret line\n", "{file}");
        assert_eq!(fs::read_dir(scratch.at("outside")).unwrap().count(), 2, "{file}");
    }

    // The twins: a file of the destination's own, and the leave to trust everybody.
    fs::write(scratch.dst().join("in/log"), "").unwrap();
    let _ = run(&["--log-file=dst/in/log"], &scratch.at("")).expect_quiet_success();
    assert!(!fs::read(scratch.dst().join("in/log")).unwrap().is_empty());
    let _ = run(&["--insecure-links", "--exclude-from=dst/log"], &scratch.at("")).expect_quiet_success();
}

#[test]
fn no_batch_is_what_a_source_may_have_put_there() {
    needs_dsync!();
    let scratch = Scratch::new();
    for dir in ["outside", "dst/in"] {
        fs::create_dir_all(scratch.at(dir)).unwrap();
    }
    fs::write(scratch.src().join("f"), "new").unwrap();
    symlink("../outside", scratch.dst().join("dir")).unwrap();
    symlink("../outside/batch", scratch.dst().join("link")).unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(scratch.dst().join("fifo")).status();
    assert!(fifo.unwrap().success());
    let dsync = |options: &[&str], operands: &[&str]| {
        Run::dsync().arg("-a").args(options).args(operands).cwd(&scratch.at("")).run()
    };
    let write = |options: &[&str], file: &str| {
        let only = format!("--only-write-batch={file}");
        dsync(&[options, &[&only]].concat(), &["src/", "dst/"])
    };
    let read = |options: &[&str], file: &str| {
        let batch = format!("--read-batch={file}");
        dsync(&[options, &[&batch]].concat(), &["dst/"])
    };

    let absolute = scratch.dst().join("dir/batch").display().to_string();
    for file in ["dst/dir/batch", "dst/in/../dir/batch", &absolute] {
        let refused = write(&[], file).expect_code(11);
        assert!(refused.stderr_text().contains("a source may have made it"), "{}", refused.account());
        assert_eq!(fs::read_dir(scratch.at("outside")).unwrap().count(), 0, "{file}");
    }

    // The twins: a batch in the destination itself, one elsewhere, and the leave to trust everybody.
    for (options, file) in
        [(&[][..], "dst/in/batch"), (&[], "outside/batch"), (&["--insecure-links"], "dst/dir/b")]
    {
        let _ = write(options, file).expect_code(0);
        assert!(fs::metadata(scratch.at(file)).unwrap().len() > 0, "{file}");
    }

    for file in ["dst/dir/batch", "dst/link", "dst/fifo"] {
        let refused = read(&[], file).expect_code(11);
        assert!(refused.stderr_text().contains("a source may have made it"), "{}", refused.account());
        assert!(!scratch.dst().join("f").exists(), "{file}");
    }
    for (options, file) in [(&[][..], "dst/in/batch"), (&["--insecure-links"], "dst/link")] {
        let _ = read(options, file).expect_code(0);
        assert_eq!(fs::read(scratch.dst().join("f")).unwrap(), b"new");
        fs::remove_file(scratch.dst().join("f")).unwrap();
    }
}

/// A push whose list the destination's end reads, in the destination itself.
#[test]
fn no_list_at_a_remote_destination_is_what_a_source_may_have_put_there() {
    needs_dsync!();
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.at("outside")).unwrap();
    fs::create_dir(scratch.dst()).unwrap();
    for (file, text) in [("src/f", "new"), ("outside/list", "f\n"), ("dst/list", "f\n")] {
        fs::write(scratch.at(file), text).unwrap();
    }
    symlink("../outside/list", scratch.dst().join("link")).unwrap();
    symlink("../outside", scratch.dst().join("dir")).unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(scratch.dst().join("fifo")).status();
    assert!(fifo.unwrap().success());
    let shell = shell_at(&scratch);
    let push = |options: &[&str], list: &str| {
        let run = Run::dsync().args(["-a", "--transport=ssh", "-e"]).arg(&shell).args(options);
        let run = run.arg(format!("--dsync-path={}", program().display()));
        let run = run.arg(format!("--files-from=:{}", scratch.dst().join(list).display()));
        run.arg(scratch.src()).arg(format!("h:{}", scratch.dst().display())).run()
    };

    for list in ["link", "dir/list", "fifo", "../dst/link"] {
        let outcome = push(&[], list).expect_code(1);
        assert!(outcome.stderr_text().contains("a source may have made it"), "{list}: {}", outcome.account());
        assert!(!scratch.dst().join("f").exists(), "{list}");
    }
    for (options, list) in [(&[][..], "list"), (&["-M--insecure-links"], "link")] {
        let _ = push(options, list).expect_quiet_success();
        fs::remove_file(scratch.dst().join("f")).unwrap();
    }
}

#[test]
fn link_that_arrives_in_the_run_itself_takes_no_backup_out() {
    needs_dsync!();
    let scratch = Scratch::new();
    fs::create_dir(scratch.at("outside")).unwrap();
    fs::create_dir(scratch.dst()).unwrap();
    fs::write(scratch.dst().join("authorized_keys"), "old").unwrap();
    fs::write(scratch.dst().join("z"), "old").unwrap();
    fs::write(scratch.src().join("z"), "new content").unwrap();
    symlink("../outside", scratch.src().join(".old")).unwrap();
    for dir in [".old", ".old/deep"] {
        let run = Run::dsync().args(["-a", "--delete"]).arg(format!("--backup-dir={dir}"));
        let outcome = run.arg(slash(&scratch.src())).arg(scratch.dst()).run();
        assert!(matches!(outcome.code(), Some(23 | 42)), "{}", outcome.account());
        assert!(is_empty(&scratch.at("outside")), "{}", outcome.account());
        for kept in ["authorized_keys", "z"] {
            assert_eq!(fs::read(scratch.dst().join(kept)).unwrap(), b"old", "{}", outcome.account());
        }
    }
}

/// Writes a remote shell that stays here: it drops its options and the host, and starts in a
/// directory as a login does.
fn shell_at(scratch: &Scratch) -> std::path::PathBuf {
    let shell = scratch.at("shell");
    let home = scratch.at("").display().to_string();
    fs::write(
        &shell,
        format!("#!/bin/sh\nwhile [ \"$1\" != h ]; do shift; done\nshift\ncd '{home}'\nexec sh -c \"$*\"\n"),
    )
    .unwrap();
    dsync_tests::tree::set_mode(&shell, 0o755);
    shell
}

#[test]
fn every_spelling_of_an_operand_is_judged_as_by_rsync_in_every_direction() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    symlink("src", scratch.at("source of theirs")).unwrap();
    lchown(scratch.at("source of theirs"), Some(OTHER), None).unwrap();
    let shell = shell_at(&scratch);
    let at = |path: &str| scratch.at(path).display().to_string();
    let spellings: Vec<String> = [
        "mine/",
        "theirs/",
        "theirs",
        "theirs/sub",
        "./theirs/sub/",
        "theirs//sub",
        "theirs/../dst",
        "theirs/sub/../..",
        "through",
        "through/",
        "through/.",
        "dst/../theirs/sub",
        "theirs/new",
        "mine/new",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain([at("theirs/sub"), at("dst/../through"), at("mine/sub")])
    .collect();
    let check = |from: &str, to: &str, options: &[&str]| {
        let codes = [Run::of("rsync"), Run::dsync().args(["--transport=ssh", "--dsync-path"]).arg(program())]
            .map(|run| {
                let run = run.arg("-r").args(options).arg("-e").arg(&shell).arg(from).arg(to);
                run.cwd(&scratch.at("")).run().code()
            });
        if oracle::is_since((3, 5, 0)) {
            assert_eq!(codes[0] == Some(0), codes[1] == Some(0), "{from} {to} {options:?}: {codes:?}");
        }
        assert!(matches!(codes[1], Some(0 | 42)), "{from} {to} {options:?}: {codes:?}");
    };
    for to in &spellings {
        for leave in [&[][..], &["--insecure-links"]] {
            check("src/", to, leave);
            check("src/", &format!("h:{to}"), leave);
            check("h:src/", to, leave);
        }
        check("src/", &format!("h:{to}"), &["-M--insecure-links"]);
        check("h:src/", to, &["-M--insecure-links"]);
    }
    for from in ["mine/", "source of theirs/", "theirs/../src/"] {
        check(from, "dst/", &[]);
        check(&format!("h:{from}"), "dst/", &[]);
        check(from, "h:dst/", &[]);
    }
}

#[test]
fn a_list_at_the_source_and_a_restricted_key_follow_no_link_of_others_either() {
    needs_root!();
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    for dir in ["src/in", "src/lists", "outside"] {
        fs::create_dir_all(scratch.at(dir)).unwrap();
        fs::write(scratch.at(dir).join("f"), dir).unwrap();
    }
    for (name, text) in [("theirs", "../outside"), ("within", "in")] {
        symlink(text, scratch.src().join(name)).unwrap();
        lchown(scratch.src().join(name), Some(OTHER), None).unwrap();
    }
    let forced = scratch.at("forced");
    let floor = scratch.src().display().to_string();
    let text = format!("#!/bin/sh\ncd /\nexec {} --server --restrict '{floor}',ro\n", program().display());
    fs::write(&forced, text).unwrap();
    dsync_tests::tree::set_mode(&forced, 0o755);

    for line in ["theirs/f", "theirs/", "theirs/./f", "theirs/./", "theirs/sub/../f"] {
        for relative in ["-R", "--no-R"] {
            fs::write(scratch.src().join("lists/list"), format!("{line}\nwithin/f\n")).unwrap();
            let list = format!("--files-from=:{floor}/lists/list");
            let free = sshd.run(Via::Ssh).arg(list).arg(sshd.operand(slash(&scratch.src())));
            let list = "--files-from=:lists/list";
            let held = Run::dsync().args(["--transport=ssh", "-e"]).arg(&forced).arg(list).arg("h:");
            for run in [free, held] {
                let _ = fs::remove_dir_all(scratch.dst());
                let outcome = run.args(["-a", relative]).arg(slash(&scratch.dst())).run();
                let code = outcome.code();
                assert!(matches!(code, Some(3 | 23 | 42)), "{line} {relative}: {}", outcome.account());
                let came = dsync_tests::survey(&scratch.dst());
                let foreign = came.keys().any(|path| {
                    fs::read(dsync_tests::tree::at(&scratch.dst(), path)).is_ok_and(|text| text == b"outside")
                });
                assert!(!foreign, "{line} {relative}: {}", outcome.account());
            }
        }
    }
}

#[test]
fn a_named_path_leads_out_of_the_source_through_no_link_of_others() {
    needs_root!();
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    for dir in ["src/in", "outside"] {
        fs::create_dir_all(scratch.at(dir)).unwrap();
        fs::write(scratch.at(dir).join("f"), dir).unwrap();
    }
    let links = [("theirs", "../outside"), ("mine", "../outside"), ("within", "in"), ("back", "../src/in")];
    for (name, text) in links {
        symlink(text, scratch.src().join(name)).unwrap();
        if name != "mine" {
            lchown(scratch.src().join(name), Some(OTHER), None).unwrap();
        }
    }
    let list = scratch.at("list");
    let copied = |name: &str| scratch.dst().join(name).exists();
    let refused = |outcome: Outcome, words: &str| {
        let outcome = outcome.expect_code(23);
        let text = outcome.stderr_text();
        assert!(text.contains(words) && text.contains("belongs to another user"), "{}", outcome.account());
    };

    for line in ["theirs/f", "theirs/", "theirs/./f", "theirs/./"] {
        let _ = fs::remove_dir_all(scratch.dst());
        fs::write(&list, format!("{line}\nwithin/f\nback/f\nmine/f\n")).unwrap();
        let words = ["-a".to_owned(), format!("--files-from={}", list.display())];
        let (from, to) = (slash(&scratch.src()), slash(&scratch.dst()));
        refused(Run::dsync().args(&words).arg(&from).arg(&to).run(), "theirs");
        assert!(copied("within/f") && copied("back/f") && copied("mine/f") && !copied("theirs/f"), "{line}");
        assert!(!copied("f"), "{line}");
        let pull = sshd.run(Via::Ssh).args(&words).arg(sshd.operand(&from)).arg(&to);
        refused(pull.run(), "theirs");
        // Whoever asks for links to be followed gets what they lead to.
        let _ = Run::dsync().arg("-k").args(&words).arg(&from).arg(&to).run().expect_code(0);
        assert!(copied("theirs/f") || copied("f") || line == "theirs/", "{line}");
    }
    let _ = fs::remove_dir_all(scratch.dst());
    let relative = |name: &str| {
        let from = format!("{}/./{name}", scratch.src().display());
        Run::dsync().arg("-aR").arg(from).arg(scratch.dst()).run()
    };
    let _ = relative("within/f").expect_code(0);
    let _ = relative("mine/f").expect_code(0);
    let outcome = relative("theirs/f");
    assert!(outcome.code() != Some(0) && !copied("theirs"), "{}", outcome.account());
}
