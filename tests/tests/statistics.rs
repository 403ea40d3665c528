//! `--stats` and the line about deltas are rsync's, byte for byte; what dsync adds stands apart.

use std::{ffi::OsString, fs, os::unix::fs::symlink};

use dsync_tests::{Run, Scratch, Sshd, Via, needs_dsync, rsync, scratch::slash};

fn plant(scratch: &Scratch) {
    fs::create_dir_all(scratch.src().join("sub/deep")).unwrap();
    fs::write(scratch.src().join("a"), "content").unwrap();
    fs::write(scratch.src().join("sub/b"), vec![b'x'; 123_456]).unwrap();
    symlink("a", scratch.src().join("link")).unwrap();
    fs::create_dir_all(scratch.dst().join("gone/far")).unwrap();
    fs::write(scratch.dst().join("gone/far/c"), "c").unwrap();
    fs::write(scratch.dst().join("a"), "other").unwrap();
}

/// Returns the words for one program on trees of its own.
fn words(options: &[&str], scratch: &Scratch) -> Vec<OsString> {
    let options = options.iter().map(OsString::from);
    options.chain([slash(&scratch.src()), scratch.dst().into()]).collect()
}

/// Returns the statistics up to rsync's last line. What depends on time and on the protocol is left
/// out behind its label.
fn block(text: &str) -> Vec<String> {
    let varies =
        ["File list size: ", "File list generation time: ", "File list transfer time: ", "Total bytes "];
    let from = text.lines().skip_while(|line| !line.starts_with("Number of files:"));
    let mut lines = Vec::new();
    for line in from {
        let known = varies.iter().find(|label| line.starts_with(*label)).map(|label| (*label).to_owned());
        let words = |from: &str| {
            let letters = |c: char| !c.is_ascii_digit() && c != ',' && c != '.';
            from.split(' ')
                .map(|word| word.chars().filter(|&c| letters(c)).collect::<String>())
                .collect::<Vec<_>>()
        };
        match () {
            () if line.starts_with("sent ") => lines.push(words(line).join(" ")),
            () if line.starts_with("total size is ") => {
                let (total, speedup) = line.split_once("  ").unwrap();
                lines.extend([total.to_owned(), words(speedup).join(" ")]);
                return lines;
            }
            () => lines.push(known.unwrap_or_else(|| line.to_owned())),
        }
    }
    lines
}

#[test]
fn statistics_are_those_of_rsync() {
    needs_dsync!();
    for options in [
        &["-a", "--stats"][..],
        &["-a", "--stats", "--delete"],
        &["-an", "--stats", "--delete"],
        &["-rl", "--stats", "--no-h"],
        &["-rlv", "--stats", "--exclude=b"],
        &["-a", "--info=stats2"],
    ] {
        let (theirs, ours) = (Scratch::new(), Scratch::new());
        plant(&theirs);
        plant(&ours);
        let theirs = rsync(words(options, &theirs)).expect_code(0);
        let ours = Run::dsync().args(words(options, &ours)).run().expect_code(0);
        let (expected, found) = (block(&theirs.stdout_text()), block(&ours.stdout_text()));
        assert!(expected.len() > 10, "{}", theirs.account());
        assert_eq!(found, expected, "{options:?}\n{}", ours.account());
    }
}

#[test]
fn line_about_deltas_is_that_of_rsync() {
    needs_dsync!();
    const ENABLED: &str = "delta-transmission enabled";
    const DISABLED: &str = "delta-transmission disabled for local transfer or --whole-file";
    let scratch = Scratch::new();
    plant(&scratch);
    let line = |text: &str| text.lines().find(|line| line.starts_with("delta-")).map(str::to_owned);
    for options in [&["-rnvv"][..], &["-rnvvW"], &["-rnv"], &["-qrnvv"]] {
        let theirs = rsync(words(options, &scratch)).expect_code(0);
        let ours = Run::dsync().args(words(options, &scratch)).run().expect_code(0);
        assert_eq!(line(&ours.stdout_text()), line(&theirs.stdout_text()), "{}", ours.account());
    }
    let sshd = Sshd::shared();
    for (options, expected) in [("-rnvv", ENABLED), ("-rnvvW", DISABLED)] {
        let push =
            sshd.run(Via::Ssh).arg(options).arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst()));
        let outcome = push.run().expect_code(0);
        assert_eq!(line(&outcome.stdout_text()).as_deref(), Some(expected), "{}", outcome.account());
    }
}
