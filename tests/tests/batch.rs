//! Batch files: what one run records is applied elsewhere, and no damage goes unnoticed.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
    process::{Command, Stdio},
};

use dsync_tests::{
    Content, Kind, Node, Run, Scope, Scratch, Sshd, Tree, Via, assert_same, assert_unchanged, mount::Mount,
    needs_dsync, needs_root, oracle, program, run::wait_for, scratch::slash, survey,
};
use rustix::process::Signal;

/// Plants a source and destinations that all have an older state of it.
fn plant(scratch: &Scratch, destinations: &[&str]) {
    Tree::of([
        Node::file("same", 1, 1000),
        Node::file("changed", 2, 700_000),
        Node::file("new", 3, 5_000_000),
        Node::file("empty", 4, 0),
        Node::dir("dir"),
        Node::file("dir/below", 5, 10),
        Node::new("link", Kind::Symlink(b"same".to_vec())),
        Node::new("fifo", Kind::Fifo),
    ])
    .plant(&scratch.src());
    fs::hard_link(scratch.src().join("changed"), scratch.src().join("dir/other name")).unwrap();
    // A directory of another second: rsync takes times of one second for equal.
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    fs::File::open(scratch.src().join("dir")).unwrap().set_modified(long_ago).unwrap();
    for name in destinations {
        old_state(&scratch.at(name));
    }
}

fn old_state(at: &Path) {
    Tree::of([
        Node::file("same", 1, 1000),
        Node::file("changed", 6, 600_000),
        Node::file("gone", 7, 10),
        Node::dir("dir"),
    ])
    .plant(at);
}

/// Returns an option with a file.
fn with(option: &str, file: &Path) -> OsString {
    let mut word = OsString::from(option);
    word.push("=");
    word.push(file);
    word
}

#[test]
fn a_recorded_run_is_applied_elsewhere_as_rsync_applies_its_own() {
    needs_dsync!();
    for options in
        [&["-aH", "--delete"][..], &["-a"], &["-rltD", "--delete-before"], &["-aHS", "-z"], &["-aHAX"]]
    {
        let scratch = Scratch::new();
        plant(&scratch, &["first", "second", "theirs first", "theirs second"]);
        let (batch, theirs) = (scratch.at("batch"), scratch.at("theirs"));
        let (first, second) = (scratch.at("first"), scratch.at("second"));

        let run = Run::dsync().args(options).arg(with("--write-batch", &batch));
        let _ = run.arg(slash(&scratch.src())).arg(&first).run().expect_quiet_success();
        let apply = || Run::dsync().args(options).arg(with("--read-batch", &batch)).arg(&second);
        let _ = apply().run().expect_quiet_success();
        assert_same(&first, &second, Scope::full());
        // Nothing is left to do.
        assert_eq!(apply().arg("-i").run().expect_quiet_success().stdout_text(), "");

        let rsync = |more: &[OsString]| {
            let words = options.iter().map(OsString::from).chain(more.iter().cloned());
            let _ = oracle::rsync(words).expect_code(0);
        };
        let to = |name: &str| scratch.at(name).into_os_string();
        rsync(&[with("--write-batch", &theirs), slash(&scratch.src()), to("theirs first")]);
        rsync(&[with("--read-batch", &theirs), to("theirs second")]);
        assert_same(&scratch.at("theirs second"), &second, Scope::full());
        assert_eq!(fs::metadata(&batch).unwrap().mode() & 0o7777, 0o600);
        // No script beside it.
        assert!(!scratch.at("batch.sh").exists() && scratch.at("theirs.sh").exists());
    }
}

#[test]
fn a_batch_of_a_push_is_applied_here_and_on_a_host() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch, &["pushed", "here", "there"]);
    let (sshd, batch) = (Sshd::shared(), scratch.at("batch"));
    let options = ["-aH", "--delete"];

    let run = sshd.run(Via::Tls).args(options).arg(with("--write-batch", &batch)).arg(slash(&scratch.src()));
    let _ = run.arg(sshd.operand(scratch.at("pushed"))).run().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.at("pushed"), Scope::full());

    let read = with("--read-batch", &batch);
    let _ = Run::dsync().args(options).arg(&read).arg(scratch.at("here")).run().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.at("here"), Scope::full());
    for via in [Via::Quic, Via::Ssh] {
        let there = sshd.operand(scratch.at("there"));
        let _ = sshd.run(via).args(options).arg(&read).arg(there).run().expect_quiet_success();
        assert_same(&scratch.src(), &scratch.at("there"), Scope::full());
        fs::remove_dir_all(scratch.at("there")).unwrap();
        old_state(&scratch.at("there"));
    }
}

#[test]
fn a_batch_of_a_pull_has_what_arrived() {
    needs_dsync!();
    for (options, via) in
        [(&["-aH", "--delete"][..], Via::Quic), (&["-rltDc"], Via::Tls), (&["-aHX", "-z"], Via::Ssh)]
    {
        let scratch = Scratch::new();
        plant(&scratch, &["pulled", "second"]);
        let (sshd, batch) = (Sshd::shared(), scratch.at("batch"));
        let run = sshd.run(via).args(options).arg(with("--write-batch", &batch));
        let run = run.arg(sshd.operand(slash(&scratch.src()))).arg(scratch.at("pulled"));
        let _ = run.run().expect_quiet_success();
        let read = Run::dsync().args(options).arg(with("--read-batch", &batch));
        let _ = read.arg(scratch.at("second")).run().expect_quiet_success();
        assert_same(&scratch.at("pulled"), &scratch.at("second"), Scope::full());
        for name in ["changed", "new", "empty", "dir/below"] {
            let whole = fs::read(scratch.src().join(name)).unwrap();
            assert_eq!(fs::read(scratch.at("second").join(name)).unwrap(), whole, "{options:?} {name}");
        }
    }
}

#[test]
fn only_recording_changes_neither_end() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch, &["old", "there"]);
    let (sshd, batch) = (Sshd::shared(), scratch.at("batch"));
    let options = ["-aH", "--delete"];
    let (source, before) = (survey(&scratch.src()), survey(&scratch.at("old")));

    for push in [false, true] {
        let (run, to) = if push {
            (sshd.run(Via::Ssh), sshd.operand(scratch.at("old")))
        } else {
            (Run::dsync(), scratch.at("old").into_os_string())
        };
        let only = with("--only-write-batch", &batch);
        let run = run.args(options).arg(only).arg("-v").arg(slash(&scratch.src())).arg(to);
        let text = run.run().expect_code(0).all_text();
        let named = format!(", in '{}' (", batch.display());
        assert!(text.contains("Recorded ") && text.contains(&named) && !text.contains("Dry run"), "{text}");
        assert_unchanged(&source, &scratch.src());
        assert_unchanged(&before, &scratch.at("old"));

        let _ = fs::remove_dir_all(scratch.at("new"));
        old_state(&scratch.at("new"));
        let read = with("--read-batch", &batch);
        let _ = Run::dsync().args(options).arg(read).arg(scratch.at("new")).run().expect_quiet_success();
        assert_same(&scratch.src(), &scratch.at("new"), Scope::full());
        fs::remove_file(&batch).unwrap();
    }
}

#[test]
fn files_that_would_leave_their_source_stay_in_a_run_that_only_records() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch, &["old"]);
    let source = survey(&scratch.src());
    let batch = scratch.at("batch");
    let run = Run::dsync().args(["-a", "--remove-source-files"]).arg(with("--only-write-batch", &batch));
    let _ = run.arg(slash(&scratch.src())).arg(scratch.at("old")).run().expect_code(0);
    assert_unchanged(&source, &scratch.src());
    let _ =
        Run::dsync().arg("-a").arg(with("--read-batch", &batch)).arg(scratch.at("old")).run().expect_code(0);

    for option in ["--write-batch", "--read-batch"] {
        let run = Run::dsync().args(["-a", "--remove-source-files"]).arg(with(option, &batch));
        let refused = run.args(["x", "y"]).run().expect_code(1);
        let expected = format!("'{option}' cannot be combined with '--remove-source-files'");
        assert!(refused.stderr_text().contains(&expected), "{}", refused.account());
    }
}

#[test]
fn a_destination_that_differs_gets_files_whole_or_keeps_its_own() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch, &["first", "other"]);
    let batch = scratch.at("batch");
    let run = Run::dsync().arg("-aH").arg(with("--write-batch", &batch));
    let _ = run.arg(slash(&scratch.src())).arg(scratch.at("first")).run().expect_quiet_success();

    // Another old file is no basis that the batch counts on.
    let other = scratch.at("other");
    Content::random(99, 300_000).write(&other.join("changed"));
    fs::write(other.join("same"), "not what the recorded run found").unwrap();
    let applied = Run::dsync().arg("-aH").arg(with("--read-batch", &batch)).arg(&other).run().expect_code(23);
    let said = applied.stderr_text();
    assert!(said.contains("'same': the batch does not have its content"), "{}", applied.account());
    assert_eq!(fs::read(other.join("same")).unwrap(), b"not what the recorded run found");
    for name in ["changed", "new", "empty", "dir/below", "dir/other name"] {
        assert_eq!(
            fs::read(other.join(name)).unwrap(),
            fs::read(scratch.src().join(name)).unwrap(),
            "{name}"
        );
    }
}

#[test]
fn rules_of_the_recorded_run_protect_where_none_are_given() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch, &["first", "second"]);
    for name in ["src", "second"] {
        fs::write(scratch.at(name).join("a '; touch pwned #"), "kept").unwrap();
    }
    let batch = scratch.at("batch");
    let options = ["-aH", "--delete"];
    // Words that a script made of the command line would run.
    let rules = ["--exclude=*'; touch pwned #", "--filter=- $(touch pwned)", "--exclude=a\nb"];
    let run = Run::dsync().cwd(scratch.path()).args(options).args(rules).arg(with("--write-batch", &batch));
    let _ = run.arg(slash(&scratch.src())).arg(scratch.at("first")).run().expect_quiet_success();

    let apply = || Run::dsync().cwd(scratch.path()).args(options).arg(with("--read-batch", &batch));
    let _ = apply().arg(scratch.at("second")).run().expect_quiet_success();
    assert_eq!(fs::read(scratch.at("second").join("a '; touch pwned #")).unwrap(), b"kept");
    assert!(!scratch.at("second").join("gone").exists());
    let _ = apply().args(rules).arg(scratch.at("second")).run().expect_quiet_success();
    let refused = apply().arg("--exclude=other").arg(scratch.at("second")).run().expect_code(1);
    assert!(refused.stderr_text().contains("the filter rules (or none)"), "{}", refused.account());
    assert!(!scratch.at("pwned").exists());
}

#[test]
fn names_with_quotes_and_spaces_are_recorded() {
    needs_dsync!();
    let scratch = Scratch::new();
    let odd = "it's \"odd\" $(touch pwned) `x` \\";
    fs::create_dir_all(scratch.at(odd)).unwrap();
    fs::write(scratch.at(odd).join("f 'q'"), "text").unwrap();
    let batch = scratch.at("b 'q'");
    let run = Run::dsync().cwd(scratch.path()).arg("-a").arg(with("--write-batch", &batch));
    let _ = run.arg(scratch.at(odd)).arg(scratch.at("first ' place")).run().expect_quiet_success();
    let run = Run::dsync().cwd(scratch.path()).arg("-a").arg(with("--read-batch", &batch));
    let _ = run.arg(scratch.at("second \" place")).run().expect_quiet_success();
    let (first, second) = (scratch.at("first ' place").join(odd), scratch.at("second \" place").join(odd));
    assert_same(&first, &second, Scope::full());
    assert!(!scratch.at("pwned").exists());
}

#[test]
fn options_that_decide_what_is_copied_have_to_be_those_of_the_recorded_run() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch, &["first"]);
    let batch = scratch.at("batch");
    let run = Run::dsync().arg("-aH").arg(with("--write-batch", &batch));
    let _ = run.arg(slash(&scratch.src())).arg(scratch.at("first")).run().expect_quiet_success();

    let second = scratch.at("second");
    for (options, expected) in [
        ("-r", "add -l -o -g -H --devices --specials"),
        ("-aHX", "leave out -X"),
        ("-acH", "leave out -c"),
        ("-a", "add -H"),
        ("-aHR", "leave out -R"),
    ] {
        let run = Run::dsync().arg(options).arg(with("--read-batch", &batch)).arg(&second).run();
        let refused = run.expect_code(1);
        assert!(refused.stderr_text().contains(expected), "{options}: {}", refused.account());
        assert!(!second.exists(), "{options}");
    }
    // The reader says what is done with the listing.
    let run =
        Run::dsync().args(["-aH", "--no-p", "--no-t", "-n", "--delete"]).arg(with("--read-batch", &batch));
    let _ = run.arg(scratch.at("first")).run().expect_code(0);
}

#[test]
fn damage_of_every_kind_is_told_before_anything_is_changed() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch, &["first", "second"]);
    let batch = scratch.at("batch");
    let run = Run::dsync().arg("-aH").arg(with("--write-batch", &batch));
    let _ = run.arg(slash(&scratch.src())).arg(scratch.at("first")).run().expect_quiet_success();
    let whole = fs::read(&batch).unwrap();
    let before = survey(&scratch.at("second"));
    let rsync = scratch.at("of rsync");
    let words = [OsString::from("-a"), with("--write-batch", &rsync), slash(&scratch.src())];
    let _ = oracle::rsync(words.into_iter().chain([scratch.at("theirs").into_os_string()])).expect_code(0);

    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    let mut newer = whole.clone();
    newer[8] = 2;
    for (bytes, code, expected) in [
        (whole[..whole.len() - 1].to_vec(), 12, "it was cut short"),
        (whole[..whole.len() / 2].to_vec(), 12, "it was cut short"),
        (whole[..20].to_vec(), 12, "it was cut short"),
        (flipped(whole.len() / 2), 12, "it was changed or damaged"),
        (flipped(whole.len() - 1), 12, "it was changed or damaged"),
        ([&whole[..], b"more"].concat(), 12, "it was changed or damaged"),
        (newer, 2, "it has version 2 of the format"),
        (b"no batch at all".to_vec(), 1, "it is no batch file of dsync"),
        (Vec::new(), 1, "it is no batch file of dsync"),
        (fs::read(&rsync).unwrap(), 1, "it is a batch file of rsync"),
    ] {
        let damaged = scratch.at("damaged");
        fs::write(&damaged, bytes).unwrap();
        let run = Run::dsync().arg("-aH").arg(with("--read-batch", &damaged)).arg(scratch.at("second")).run();
        let refused = run.expect_code(code);
        let said = refused.stderr_text();
        assert!(said.contains(expected) && said.contains("/damaged'"), "{}", refused.account());
        assert_unchanged(&before, &scratch.at("second"));
    }
    for (file, code) in [(scratch.src(), 11), ("/dev/null".into(), 11), (scratch.at("missing"), 11)] {
        let run = Run::dsync().arg("-aH").arg(with("--read-batch", &file)).arg(scratch.at("second")).run();
        let _ = run.expect_code(code);
        assert_unchanged(&before, &scratch.at("second"));
    }
    // Nor is anything but a file replaced by a batch.
    symlink("first", scratch.at("a link")).unwrap();
    let run = Run::dsync().arg("-a").arg(with("--write-batch", &scratch.at("a link")));
    let _ = run.arg(slash(&scratch.src())).arg(scratch.at("x")).run().expect_code(11);
    assert!(!scratch.at("x").exists());
}

#[test]
fn a_batch_comes_through_a_pipe() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch, &["first", "second"]);
    let batch = scratch.at("batch");
    let run = Run::dsync().args(["-aH", "--delete"]).arg(with("--write-batch", &batch));
    let _ = run.arg(slash(&scratch.src())).arg(scratch.at("first")).run().expect_quiet_success();

    let mut cat = Command::new("cat").arg(&batch).stdout(Stdio::piped()).spawn().unwrap();
    let input = cat.stdout.take().unwrap();
    let mut dsync = Command::new(program());
    let done = dsync
        .args(["-aH", "--delete", "--read-batch=-"])
        .arg(scratch.at("second"))
        .stdin(input)
        .status()
        .unwrap();
    assert!(done.success() && cat.wait().unwrap().success());
    assert_same(&scratch.at("first"), &scratch.at("second"), Scope::full());
}

#[test]
fn words_that_make_no_sense_with_a_batch_are_refused() {
    needs_dsync!();
    for (words, code, expected) in [
        ("-a --read-batch=b x y", 1, "--read-batch takes one operand"),
        ("-a --read-batch=b", 1, "usage: dsync"),
        ("-a --read-batch=b --files-from=x y", 1, "'--read-batch' cannot be combined with '--files-from'"),
        ("-a --read-batch=b --write-batch=c y", 1, "'--read-batch' cannot be combined with '--write-batch'"),
        ("-a --write-batch=b --only-write-batch=c x y", 1, "'--write-batch' cannot be combined with"),
        ("-a --write-batch=b --list-only x", 1, "'--write-batch' cannot be combined with '--list-only'"),
        ("-a --only-write-batch=b h:x y", 4, "--only-write-batch with a remote source"),
        ("-a --inplace --write-batch=b h:x y", 4, "written in place is not supported by dsync"),
    ] {
        let refused = Run::dsync().args(words.split(' ')).run().expect_code(code);
        assert!(refused.stderr_text().contains(expected), "{words}: {}", refused.account());
    }
}

#[test]
fn a_dry_run_records_nothing() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch, &["first"]);
    let run = Run::dsync().arg("-an").arg(with("--write-batch", &scratch.at("batch")));
    let _ = run.arg(slash(&scratch.src())).arg(scratch.at("first")).run().expect_code(0);
    assert!(!scratch.at("batch").exists());
}

#[test]
fn a_full_disk_leaves_no_batch_and_the_old_one_stays() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch, &["first"]);
    fs::create_dir(scratch.at("small")).unwrap();
    let Some(_small) = Mount::tmpfs(&scratch.at("small"), "size=1m") else { return };
    let batch = scratch.at("small").join("batch");
    fs::write(&batch, "the old one").unwrap();
    let run = Run::dsync().arg("-a").arg(with("--write-batch", &batch));
    let failed = run.arg(slash(&scratch.src())).arg(scratch.at("first")).run().expect_code(11);
    assert!(failed.stderr_text().contains("the disk is full"), "{}", failed.account());
    assert_eq!(fs::read(&batch).unwrap(), b"the old one");
    assert_eq!(fs::read_dir(scratch.at("small")).unwrap().count(), 1);
}

#[test]
fn a_killed_run_leaves_no_batch_and_a_killed_reader_whole_files() {
    needs_dsync!();
    let scratch = Scratch::new();
    let tree = (0..400).map(|number| Node::file(format!("f{number:03}"), number, 20_000));
    Tree::of(tree).plant(&scratch.src());
    let batch = scratch.at("batch");
    let run = || Run::dsync().arg("-a").arg(with("--write-batch", &batch));
    let copies = |name: &str| fs::read_dir(scratch.at(name)).map_or(0, Iterator::count);

    let mut writing = run().arg("--bwlimit=1000").arg(slash(&scratch.src())).arg(scratch.at("cut")).start();
    wait_for(|| copies("cut") > 1 || !writing.is_running());
    writing.signal(Signal::KILL);
    if writing.wait().code().is_none() {
        assert!(!batch.exists());
    }

    let _ = run().arg(slash(&scratch.src())).arg(scratch.at("first")).run().expect_quiet_success();
    let read = || Run::dsync().arg("-a").arg(with("--read-batch", &batch));
    let mut reading = read().arg("--bwlimit=1000").arg(scratch.at("second")).start();
    wait_for(|| copies("second") > 1 || !reading.is_running());
    reading.signal(Signal::KILL);
    let _ = reading.wait();
    for entry in fs::read_dir(scratch.at("second")).unwrap() {
        let name = entry.unwrap().file_name();
        if name.to_string_lossy().starts_with('f') {
            let whole = fs::read(scratch.src().join(&name)).unwrap();
            assert_eq!(fs::read(scratch.at("second").join(&name)).unwrap(), whole, "{name:?}");
        }
    }
    let _ = read().arg(scratch.at("second")).run().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.at("second"), Scope::full());
    assert_eq!(fs::metadata(&batch).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn links_of_a_recorded_run_are_munged_where_its_own_were() {
    needs_dsync!();
    let sshd = Sshd::shared();
    for pulls in [false, true] {
        let scratch = Scratch::new();
        std::os::unix::fs::symlink("target", scratch.src().join("link")).unwrap();
        let source = slash(&scratch.src());
        let run = if pulls { sshd.run(Via::Ssh) } else { Run::dsync() };
        let run = run.args(["-a", "--munge-links"]).arg(with("--write-batch", &scratch.at("batch")));
        let run = run.arg(if pulls { sshd.operand(&source) } else { source }).arg(scratch.dst());
        let _ = run.run().expect_quiet_success();
        let read = Run::dsync().args(["-a", "--munge-links"]).arg(with("--read-batch", &scratch.at("batch")));
        let _ = read.arg(scratch.at("second")).run().expect_quiet_success();
        assert_same(&scratch.dst(), &scratch.at("second"), Scope::full());
        let text = fs::read_link(scratch.at("second/link")).unwrap();
        assert_eq!(text.starts_with("/rsyncd-munged"), pulls, "{text:?}");
    }
}
