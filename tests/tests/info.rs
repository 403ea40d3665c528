//! `--info`: the kinds of lines that tell of more than entries, beside rsync's.

use std::{fs, os::unix::fs::symlink, path::Path};

use dsync_tests::{Outcome, Run, Scratch, Sshd, Via, needs_dsync, oracle, scratch::slash};

/// Makes a source and an older destination with more in it.
fn plant(at: &Path) {
    for file in ["src/f", "src/same", "src/d/g", "dst/f", "dst/same", "dst/d/g", "dst/more", "dst/gone/in/q"]
    {
        let path = at.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, file).unwrap();
        let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    }
    fs::copy(at.join("dst/same"), at.join("src/same")).unwrap();
    let time = fs::metadata(at.join("dst/same")).unwrap().modified().unwrap();
    fs::File::options().write(true).open(at.join("src/same")).unwrap().set_modified(time).unwrap();
    fs::write(at.join("src/f"), "another").unwrap();
    fs::write(at.join("src/d/g"), "another").unwrap();
    symlink("f", at.join("src/link")).unwrap();
    symlink("other", at.join("dst/link")).unwrap();
}

/// Returns the lines that begin so, sorted: what the two ends say is in no order.
fn lines(outcome: &Outcome, begin: &str) -> Vec<String> {
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let mut lines: Vec<_> = text.lines().filter(|line| line.starts_with(begin)).map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// Runs dsync here, as a push and as a pull, each in a new tree, and returns what each printed.
fn in_each_direction(options: &[&str]) -> Vec<(&'static str, Outcome)> {
    let sshd = Sshd::shared();
    ["local", "push", "pull"]
        .map(|direction| {
            let scratch = Scratch::new();
            plant(scratch.path());
            let (src, dst) = (slash(&scratch.src()), slash(&scratch.dst()));
            let run = match direction {
                "local" => Run::dsync().args(options).args([src, dst]),
                "push" => sshd.run(Via::Ssh).args(options).arg(src).arg(sshd.operand(dst)),
                _ => sshd.run(Via::Ssh).args(options).arg(sshd.operand(src)).arg(dst),
            };
            (direction, run.run())
        })
        .into()
}

#[test]
fn backups_are_told_as_by_rsync() {
    needs_dsync!();
    for (more, count) in [
        (&["--info=backup"][..], 5),
        (&["--info=backup", "--inplace"], 5),
        (&["--info=backup", "--delay-updates"], 5),
        (&["--info=backup", "--backup-dir=kept"], 5),
        (&["--info=backup", "--backup-dir=./kept/"], 5),
        (&["--info=backup2", "--backup-dir=../kept", "--suffix=.old"], 5),
        (&["-vv"], 5),
        (&["-vv", "--info=backup0"], 0),
        (&["-vi"], 0),
    ] {
        let options = [&["-ab", "--delete"], more].concat();
        let at = Scratch::new();
        plant(at.path());
        let rsync = oracle::rsync(options.iter().map(Into::into).chain([slash(&at.src()), slash(&at.dst())]));
        let wanted = lines(&rsync, "backed up");
        assert_eq!(wanted.len(), count, "{options:?} {}", rsync.account());
        for (direction, dsync) in in_each_direction(&options) {
            assert_eq!(dsync.code(), Some(0), "{}", dsync.account());
            assert_eq!(lines(&dsync, "backed up"), wanted, "{direction} {options:?} {}", dsync.account());
        }
    }
}

/// A dry run makes no backups and so names none; a quiet run prints none, but for its log.
#[test]
fn backups_that_are_not_made_are_not_told_and_the_log_has_them_in_a_quiet_run() {
    needs_dsync!();
    for (direction, dsync) in in_each_direction(&["-abn", "--delete", "--info=backup"]) {
        assert_eq!(lines(&dsync, "backed up"), [""; 0], "{direction} {}", dsync.account());
    }
    let at = Scratch::new();
    plant(at.path());
    let log = format!("--log-file={}", at.at("log").display());
    let run = Run::dsync().args(["-abq", "--info=backup", &log]).arg(slash(&at.src())).arg(slash(&at.dst()));
    let _ = run.run().expect_quiet_success();
    let log = fs::read_to_string(at.at("log")).unwrap();
    assert!(log.contains("] backed up d/g to d/g~\n"), "{log}");
}

#[test]
fn removals_at_the_source_are_told_as_by_rsync() {
    needs_dsync!();
    for (more, count) in [
        (&["--info=remove"][..], 4),
        (&["-vv"], 4),
        (&["-vv", "--info=remove0"], 0),
        (&["-vi"], 0),
        (&["-n", "--info=remove"], 0),
    ] {
        let options = [&["-a", "--remove-source-files"], more].concat();
        let at = Scratch::new();
        plant(at.path());
        let rsync = oracle::rsync(options.iter().map(Into::into).chain([slash(&at.src()), slash(&at.dst())]));
        let wanted = lines(&rsync, "sender removed");
        assert_eq!(wanted.len(), count, "{options:?} {}", rsync.account());
        for (direction, dsync) in in_each_direction(&options) {
            assert_eq!(dsync.code(), Some(0), "{}", dsync.account());
            assert_eq!(
                lines(&dsync, "sender removed"),
                wanted,
                "{direction} {options:?} {}",
                dsync.account()
            );
        }
    }
}

/// A file that has changed since it was listed, as one that is its own copy, stays and is not told.
#[test]
fn what_stays_at_the_source_is_not_told() {
    needs_dsync!();
    let at = Scratch::new();
    plant(at.path());
    fs::remove_file(at.dst().join("f")).unwrap();
    fs::hard_link(at.src().join("f"), at.dst().join("f")).unwrap();
    let run = Run::dsync().args(["-a", "--remove-source-files", "--info=remove"]);
    let outcome = run.arg(slash(&at.src())).arg(slash(&at.dst())).run().expect_code(23);
    let told = lines(&outcome, "sender removed");
    assert_eq!(
        told,
        ["sender removed d/g", "sender removed link", "sender removed same"],
        "{}",
        outcome.account()
    );
}

#[test]
fn a_list_is_told_of_in_rsyncs_words_when_it_is_asked_for() {
    needs_dsync!();
    let rsync = |options: &[&str]| {
        let at = Scratch::new();
        plant(at.path());
        let operands = [slash(&at.src()), slash(&at.dst())];
        oracle::rsync(options.iter().map(Into::into).chain(operands)).stdout_text()
    };
    assert_eq!(rsync(&["-a", "--info=flist"]), "sending incremental file list\n");
    for (direction, dsync) in in_each_direction(&["-a", "--info=flist"]) {
        let does = if direction == "pull" { "receiving" } else { "sending" };
        assert_eq!(dsync.stdout_text(), format!("{does} incremental file list\n"), "{direction}");
    }
    for (direction, dsync) in in_each_direction(&["-av", "--info=flist0"]) {
        assert_eq!(lines(&dsync, "sending"), [""; 0], "{direction}");
    }
}

/// rsync's own hash is another one (xxh128), and so is its width.
#[test]
fn hash_of_each_file_is_printed_with_c_and_blanks_for_what_has_none() {
    needs_dsync!();
    for (direction, dsync) in in_each_direction(&["-ac", "--out-format=%C %n"]) {
        let at = Scratch::new();
        plant(at.path());
        let text = dsync.stdout_text();
        for file in ["f", "d/g"] {
            let hash = dsync_tests::compare::sum(&at.src().join(file));
            let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(text.contains(&format!("{hash} {file}\n")), "{direction}: {text}");
        }
        assert!(text.contains(&format!("{:64} link\n", "")), "{direction}: {text}");
    }
}

#[test]
fn a_log_whose_name_the_copy_takes_is_told() {
    needs_dsync!();
    let scratch = Scratch::new();
    fs::write(scratch.src().join("log"), "an old log").unwrap();
    fs::create_dir_all(scratch.dst()).unwrap();
    let run = Run::dsync().args(["-a", "--log-file=dst/log", "src/", "dst/"]).cwd(scratch.path()).run();
    let outcome = run.expect_code(0);
    let said = "cannot write log file 'dst/log': it was removed or replaced meanwhile";
    assert!(outcome.stderr_text().contains(said), "{}", outcome.account());
    assert_eq!(fs::read(scratch.dst().join("log")).unwrap(), b"an old log");
}
