//! Whole local runs of the command: the output on each stream, and the exit code.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::{
    ffi::OsStr,
    fs,
    io::Read as _,
    os::unix::{ffi::OsStrExt as _, fs::symlink},
    path::Path,
    process::{Command, Output, Stdio},
};

fn dsync(at: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dsync"));
    command.current_dir(at).stdin(Stdio::null());
    for name in ["DSYNC_LOG", "DSYNC_RSH", "RSYNC_RSH"] {
        command.env_remove(name);
    }
    command
}

/// Runs with words split at spaces and returns exit code, standard output and standard error.
fn run(at: &Path, line: &str) -> (i32, String, String) {
    told(&dsync(at).args(line.split_whitespace()).output().unwrap())
}

fn told(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// Makes a directory with a small tree `src`.
fn planted() -> tempfile::TempDir {
    let at = tempfile::tempdir().unwrap();
    fs::create_dir_all(at.path().join("src/sub")).unwrap();
    fs::write(at.path().join("src/a"), "one").unwrap();
    fs::write(at.path().join("src/sub/b"), "two").unwrap();
    symlink("a", at.path().join("src/link")).unwrap();
    at
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn success_without_options_is_silent() {
    let at = planted();
    assert_eq!(run(at.path(), "-a src/ dst"), (0, String::new(), String::new()));
    assert_eq!(fs::read(at.path().join("dst/sub/b")).unwrap(), b"two");
    assert_eq!(run(at.path(), "-a --delete src/ dst"), (0, String::new(), String::new()));
}

#[test]
fn itemized_lines_are_all_that_is_printed() {
    let at = planted();
    let (code, out, err) = run(at.path(), "-ai src/ dst");
    assert_eq!((code, err.as_str()), (0, ""));
    let expected =
        ["cL+++++++++ link -> a", "cd+++++++++ ./", "cd+++++++++ sub/", ">f+++++++++ a", ">f+++++++++ sub/b"];
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(sorted(&out), expected);
    assert_eq!(run(at.path(), "-ai src/ dst"), (0, String::new(), String::new()));
}

#[test]
fn verbose_list_ends_with_a_paragraph_on_standard_output() {
    let at = planted();
    let (code, out, err) = run(at.path(), "-av src/ dst");
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("\nsub/b\n") && out.contains("link -> a\n"), "{out}");
    let paragraph = out.lines().last().unwrap();
    assert!(
        paragraph.starts_with("Transferred 2 of 2 files, 6 bytes: 6 bytes literal, 0 bytes matched."),
        "{out}"
    );
    assert!(paragraph.ends_with("Everything is on disk."), "{out}");
}

#[test]
fn statistics_have_the_labels_of_rsync() {
    let at = planted();
    let (code, out, err) = run(at.path(), "-a --stats src/ dst");
    assert_eq!((code, err.as_str()), (0, ""));
    for line in [
        "Number of files: 5 (reg: 2, dir: 2, link: 1)",
        "Number of deleted files: 0",
        "Number of regular files transferred: 2",
        "Total file size: 7 bytes",
        "Total transferred file size: 6 bytes",
        "Literal data: 6 bytes",
        "Matched data: 0 bytes",
    ] {
        assert!(out.contains(&format!("{line}\n")), "no '{line}' in\n{out}");
    }
}

#[test]
fn quiet_keeps_errors() {
    let at = planted();
    let (code, out, err) = run(at.path(), "-aqvi --stats src/ dst");
    assert_eq!((code, out.as_str(), err.as_str()), (0, "", ""));
    let (code, out, err) = run(at.path(), "-aq nowhere/ dst");
    assert_eq!((code, out.as_str()), (3, ""));
    assert!(err.starts_with("dsync: error: source 'nowhere"), "{err}");
}

#[test]
fn unusable_ends_are_named() {
    let at = planted();
    let fails = |line: &str, code: i32, text: &str| {
        assert_eq!(run(at.path(), line), (code, String::new(), format!("dsync: error: {text}\n")), "{line}");
    };
    fails("-a nowhere dst", 3, "source 'nowhere': no such file or directory");
    fails("-a src/ no/such/dst", 3, "destination parent 'no/such' does not exist. --mkpath makes it.");
    fs::write(at.path().join("file"), "kept").unwrap();
    fails("-a src/ file", 3, "cannot put a directory over file 'file'");
    let inside = "destination 'src/sub' lies inside the source; this would copy it into itself";
    fails("-a src/ src/sub", 42, inside);
}

#[test]
fn complaint_about_an_operand_is_one_line_on_standard_error() {
    let at = planted();
    let output = dsync(at.path()).args(["-a", "src", "a\n\u{1b}b:dst"]).output().unwrap();
    let text = "dsync: error: host contains characters that are not allowed: '\\n', in 'a\\#012\\#033b:dst' \
                (for a local file write './a\\#012\\#033b:dst')\n"
        .to_owned();
    assert_eq!(told(&output), (1, String::new(), text));
    let output = dsync(at.path()).args(["-a", "no\nwhere\u{202e}", "dst"]).output().unwrap();
    let text =
        "dsync: error: source 'no\\#012where\\#342\\#200\\#256': no such file or directory\n".to_owned();
    assert_eq!(told(&output), (3, String::new(), text));
}

#[test]
fn names_are_escaped_as_rsync_does() {
    let at = planted();
    fs::write(at.path().join("src").join(OsStr::from_bytes(b"n\n\xff\x1b[m")), "x").unwrap();
    let (code, out, err) = run(at.path(), "-ai src/ dst");
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains(">f+++++++++ n\\#012\\#377\\#033[m\n"), "{out}");
}

#[test]
fn pattern_of_a_file_is_blamed_by_line_and_not_repeated() {
    let at = planted();
    fs::write(at.path().join("list"), "ok\n[secret\n").unwrap();
    let text = "dsync: error: bad pattern at list:2 column 1: '[' without ']'\n".to_owned();
    assert_eq!(run(at.path(), "-a --exclude-from=list src/ dst"), (1, String::new(), text));
    let text = "dsync: error: bad pattern at '[x' column 1: '[' without ']'\n".to_owned();
    assert_eq!(run(at.path(), "-a --exclude=[x src/ dst"), (1, String::new(), text));
}

#[test]
fn log_filter_that_cannot_be_read_is_named_and_the_run_goes_on() {
    let at = planted();
    let output = dsync(at.path()).env("DSYNC_LOG", "=,=").args(["-a", "src/", "dst"]).output().unwrap();
    let text =
        "dsync: DSYNC_LOG='=,=' is not a filter, nothing is logged: invalid filter directive\n".to_owned();
    assert_eq!(told(&output), (0, String::new(), text));
    let output = dsync(at.path()).env("DSYNC_LOG", "").args(["-a", "src/", "dst"]).output().unwrap();
    assert_eq!(told(&output), (0, String::new(), String::new()));
}

#[test]
fn skipped_entries_are_told_in_the_words_of_rsync() {
    let at = planted();
    let (code, out, err) = run(at.path(), "-r src/ dst");
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out, "skipping non-regular file \"link\"\n");
}

#[test]
fn options_of_rsync_without_effect_change_no_tree_and_no_list() {
    let at = planted();
    let plain = run(at.path(), "-ain src/ dst").1;
    for option in [
        "--timeout=0",
        "--no-timeout",
        "--contimeout=0",
        "--no-inc-recursive",
        "--no-i-r",
        "-s",
        "--protect-args",
        "--no-s",
        "--fsync",
        "--no-motd",
        "--super",
        "--blocking-io",
        "--no-blocking-io",
        "--old-args",
        "--protocol=31",
        "--skip-compress=gz/zip",
        "--zt=2",
        "--checksum-seed=1",
        "--trust-sender",
        "--no-iconv",
        "--qsort",
        "--no-implied-dirs",
    ] {
        let expected = (0, plain.clone(), String::new());
        assert_eq!(run(at.path(), &format!("-ain {option} src/ dst")), expected, "{option}");
    }
    let (code, _, err) = run(at.path(), "-avvn --fsync src/ dst");
    assert_eq!(code, 0);
    assert!(err.contains("dsync: --fsync changes nothing: dsync syncs by default"), "{err}");
}

#[test]
fn directory_without_recursion_is_skipped_and_nothing_is_claimed() {
    let at = planted();
    assert_eq!(run(at.path(), "src dst"), (0, "skipping directory src\n".to_owned(), String::new()));
    assert_eq!(run(at.path(), "src/ dst"), (0, "skipping directory .\n".to_owned(), String::new()));
    let (code, out, _) = run(at.path(), "-v src dst");
    assert!(code == 0 && !out.contains("on disk"), "{out}");
}

#[test]
fn file_with_the_name_of_a_command_is_named_with_its_cure() {
    let at = planted();
    fs::write(at.path().join("serve"), "x").unwrap();
    let text = "dsync: error: 'serve' is the name of a command that this version does not have; the 'serve' that is \
                here is written './serve'\n";
    assert_eq!(run(at.path(), "serve dst"), (4, String::new(), text.to_owned()));
    assert_eq!(run(at.path(), "./serve dst"), (0, String::new(), String::new()));
    assert_eq!(run(at.path(), "-c serve other"), (0, String::new(), String::new()));
}

/// Runs with a shell that says `text` on standard error and ends with `code`.
fn behind(at: &Path, text: &str, code: u8, words: &[&str]) -> (i32, String, String) {
    fs::write(at.join("ssh"), format!("printf '%s\\n' '{text}' >&2; exit {code}\n")).unwrap();
    told(&dsync(at).args(["-e", "sh ssh"]).args(words).output().unwrap())
}

#[test]
fn all_that_the_remote_shell_said_is_passed_through_when_it_fails() {
    let at = planted();
    let said = "WARNING: HOST IDENTIFICATION HAS CHANGED!\n  remove with:\n  ssh-keygen -R host\nHost key verification failed.";
    let (code, out, err) = behind(at.path(), said, 255, &["-a", "src/", "host:dst"]);
    assert_eq!((code, out.as_str()), (5, ""));
    let mut lines: Vec<&str> = said.lines().collect();
    lines.push("dsync: error: sh exited 255: Host key verification failed.");
    assert_eq!(err.lines().collect::<Vec<_>>(), lines);
    let (_, _, err) = behind(at.path(), "one line", 255, &["-a", "src/", "host:dst"]);
    assert_eq!(err, "dsync: error: sh exited 255: one line\n");
}

#[test]
fn file_that_reads_as_a_host_is_named_when_the_host_cannot_be_reached() {
    let at = planted();
    fs::write(at.path().join("a:b"), "x").unwrap();
    let (code, _, err) = behind(at.path(), "no such host", 255, &["a:b", "dst"]);
    assert_eq!(code, 5);
    assert!(err.ends_with("no such host. There is a file 'a:b' here: for that write './a:b'.\n"), "{err}");
}

#[test]
fn log_says_why_an_entry_is_copied() {
    let at = planted();
    let output =
        dsync(at.path()).env("DSYNC_LOG", "dsync=debug").args(["-a", "src/", "dst"]).output().unwrap();
    let (code, out, err) = told(&output);
    assert_eq!((code, out.as_str()), (0, ""));
    assert!(err.contains(r#"plan path=sub/b action=Create why="not there""#), "{err}");
}

#[test]
fn closed_standard_output_does_not_stop_the_run() {
    let at = planted();
    for index in 0..600 {
        fs::write(at.path().join(format!("src/file-{index:04}-with-a-name-that-fills-the-pipe")), "x")
            .unwrap();
    }
    let mut command = dsync(at.path());
    let mut child = command
        .args(["-av", "--durability=none", "src/", "dst"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(13), ""));
    assert_eq!(fs::read_dir(at.path().join("dst")).unwrap().count(), 603);
}

#[test]
fn full_device_behind_standard_output_is_reported() {
    let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else { return };
    let at = planted();
    let output = dsync(at.path()).args(["-av", "src/", "dst"]).stdout(full).output().unwrap();
    let (code, _, err) = told(&output);
    assert_eq!(code, 13);
    assert_eq!(
        err,
        "dsync: error: cannot write to standard output: the disk is full (No space left on device)\n"
    );
    assert!(at.path().join("dst/sub/b").exists());
}

#[test]
fn dry_run_prints_the_plan_and_changes_nothing() {
    let at = planted();
    let (code, plan, err) = run(at.path(), "-ain src/ dst");
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(!at.path().join("dst").exists());
    assert_eq!(run(at.path(), "-ai src/ dst").1, plan);
}
