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
    assert_eq!((code, out.as_str()), (23, ""));
    assert!(err.starts_with("dsync: error: source 'nowhere"), "{err}");
}

#[test]
fn unusable_ends_are_named() {
    let at = planted();
    let fails = |line: &str, code: i32, text: &str| {
        assert_eq!(run(at.path(), line), (code, String::new(), format!("dsync: error: {text}\n")), "{line}");
    };
    fails("-a nowhere dst", 23, "source 'nowhere': no such file or directory");
    fails(
        "-aR src/../file dst",
        1,
        "sources: 'src/../file' has '..' in the part that is copied with its directories: write './' where that part is to begin",
    );
    fails("-a src/ no/such/dst", 3, "destination parent 'no/such' does not exist. --mkpath makes it.");
    fs::write(at.path().join("file"), "kept").unwrap();
    fails("-a src/ file", 3, "the destination has to be a directory, and 'file' is none");
    fails("-a src/ file/x", 3, "the destination has to be a directory, and 'file' is none");
    fails("-a file file/", 3, "the destination has to be a directory, and 'file' is none");
    fails("-a file src file", 3, "the destination has to be a directory, and 'file' is none");
    std::os::unix::fs::symlink("nowhere", at.path().join("link")).unwrap();
    for mkpath in ["", " --mkpath"] {
        let line = format!("-a{mkpath} src/ link");
        fails(&line, 3, "cannot use destination 'link': it is a link that leads nowhere");
    }
    fs::write(at.path().join("list"), "f\0g\0").unwrap();
    let zeros = "cannot read the list of files 'list': a line has a NUL byte, which no name has; -0 is for lists \
                 whose names end with one";
    let (code, _, said) = run(at.path(), "-a --files-from=list src dst");
    assert_eq!(said, format!("dsync: error: {zeros}\n"));
    assert!([1, 11].contains(&code), "{code}");
    let itself = "it is the destination itself, where a backup without a suffix has its original's name";
    fs::create_dir(at.path().join("there")).unwrap();
    for dir in [".", "../there"] {
        let line = format!("-a --backup-dir={dir} src/ there");
        let (code, _, said) = run(at.path(), &line);
        assert!(said.contains(itself) && code != 0, "{said}");
        let (dry, _, foreseen) = run(at.path(), &format!("-n {line}"));
        assert_eq!((dry, foreseen), (code, said));
    }
    assert_eq!(run(at.path(), "-a --backup-dir=. --suffix=.old src/ there").0, 0);
    let inside = "destination 'src/sub' lies inside the source; this would copy it into itself. Exclude it \
                  (--exclude=/NAME/), or name one elsewhere.";
    fails("-a src/ src/sub", 42, inside);
    let itself = "destination 'src/' is the source itself; there is nothing to copy. Name another directory.";
    fails("-a src/ src/", 42, itself);
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
    assert_eq!(told(&output), (23, String::new(), text));
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
fn pattern_that_matches_nothing_is_told_once_and_the_text_of_a_file_never() {
    let at = planted();
    fs::write(at.path().join("list"), "ok\n[secret\n").unwrap();
    let warning = |text: &str| (0, String::new(), format!("dsync: the pattern {text}\n"));
    for (line, text) in [
        ("--exclude-from=list", "at list:2 matches nothing: '[' without ']'"),
        ("--exclude=[x", "'[x' matches nothing: '[' without ']'"),
        ("--filter=-!_[[:foo:]] --include=*", "'[[:foo:]]' matches nothing: unknown character class"),
        (
            "--exclude=*\\ --exclude-from=list",
            "'*\\' matches nothing: a backslash at the end escapes nothing; the same holds for 1 more",
        ),
    ] {
        assert_eq!(run(at.path(), &format!("-a {line} src/ dst")), warning(text), "{line}");
        assert!(line.contains("-!") || at.path().join("dst/sub/b").exists(), "{line}");
        let _ = fs::remove_dir_all(at.path().join("dst"));
    }
    // A list that is dropped, names of files, and rules of files in the tree are not told.
    fs::write(at.path().join("src/.rules"), "- [x\n").unwrap();
    for line in ["--exclude=[x --exclude=!", "--filter=:_[x", "--filter=:_.rules"] {
        assert_eq!(
            run(at.path(), &format!("-a {line} src/ dst")),
            (0, String::new(), String::new()),
            "{line}"
        );
    }
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
        "--address=127.0.0.1",
        "--early-input=file",
        "--no-msgs2stderr",
        "--zc=zlibx",
        "--zc=zlib --zl=9",
        "--zc=lz4 --zl=9",
        "--zl=0",
        "--filter=",
        "--include= --exclude=",
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
    for source in ["src", "src/", "./src"] {
        let _ = run(at.path(), &format!("{source} new"));
        assert!(!at.path().join("new").exists(), "{source}");
    }
}

#[test]
fn file_with_the_name_of_a_command_is_named_with_its_cure() {
    let at = planted();
    fs::write(at.path().join("fleet"), "x").unwrap();
    fs::write(at.path().join("serve"), "x").unwrap();
    let text = "dsync: error: 'fleet' is the name of a command that this version does not have; the 'fleet' that is \
                here is written './fleet'\n";
    assert_eq!(run(at.path(), "fleet dst"), (4, String::new(), text.to_owned()));
    assert_eq!(run(at.path(), "./fleet dst"), (0, String::new(), String::new()));
    assert_eq!(run(at.path(), "-c fleet other"), (0, String::new(), String::new()));
    let (code, _, text) = run(at.path(), "serve dst");
    assert!(code == 1 && text.contains("the 'serve' that is here is written './serve'"), "{text}");
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
    assert_eq!((code, out.as_str()), (255, ""));
    let mut lines: Vec<&str> = said.lines().collect();
    let last = format!("dsync: error: sh exited 255: Host key verification failed. {AS_SSH}");
    lines.push(&last);
    assert_eq!(err.lines().collect::<Vec<_>>(), lines);
    let (_, _, err) = behind(at.path(), "one line", 255, &["-a", "src/", "host:dst"]);
    assert_eq!(err, format!("dsync: error: sh exited 255: one line. {AS_SSH}\n"));
}

/// The advice after a failed login.
const AS_SSH: &str =
    "dsync logs in as ssh does: when 'ssh HOST true' works, with the same user and -e, so does this.";

#[test]
fn file_that_reads_as_a_host_is_named_when_the_host_cannot_be_reached() {
    let at = planted();
    fs::write(at.path().join("a:b"), "x").unwrap();
    let (code, _, err) = behind(at.path(), "no such host", 255, &["a:b", "dst"]);
    assert_eq!(code, 255);
    let hint = "There is a file 'a:b' here: for that write './a:b'.";
    assert!(err.ends_with(&format!("no such host. {AS_SSH} {hint}\n")), "{err}");
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

/// Runs rsync with the same words, on a tree like that of `planted`; `None` where there is none.
fn rsync(at: &Path, words: &[&str]) -> Option<Vec<u8>> {
    let output = Command::new("rsync").current_dir(at).env("LC_ALL", "C.UTF-8").args(words).output().ok()?;
    Some(output.stdout)
}

/// Plants a source and a destination that differ in every way that a format shows.
fn differing() -> tempfile::TempDir {
    let at = planted();
    fs::create_dir_all(at.path().join("dst/gone")).unwrap();
    fs::write(at.path().join("dst/gone/file"), "x").unwrap();
    fs::write(at.path().join("dst/old"), "x").unwrap();
    fs::write(at.path().join("src").join(OsStr::from_bytes(b"n\xff\n\xc3\xa9")), "name").unwrap();
    for (dir, seconds) in [("src", 1_000_000_000), ("dst", 1_100_000_000)] {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        fs::File::open(at.path().join(dir)).unwrap().set_modified(time).unwrap();
    }
    at
}

#[test]
fn formats_are_printed_as_rsync_prints_them() {
    let formats = ["%i %n%L", "[%n]", "%o %f %m", "%o|%-12n|%6n|%i", "%z %a %h %u %P", "%i %''l|%n%L", ""];
    for format in formats.into_iter().chain(["%B|%-11B|%U|%5G|%M|%n", "%i|%B|%G"]) {
        for more in ["-a", "-av", "-ai", "-a8"] {
            let sorted = |out: &[u8]| {
                let mut lines: Vec<Vec<u8>> = out.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
                // Lengths of directories are the filesystem's; the sentences around the list are
                // each program's own.
                let own = [&b"sending"[..], b"sent ", b"total ", b"Transferred", b"created "];
                lines.retain(|line| !line.is_empty() && !own.iter().any(|own| line.starts_with(own)));
                lines.retain(|line| !(format.contains('l') && line.ends_with(b"/")));
                lines.sort_unstable();
                lines
            };
            let out_format = format!("--out-format={format}");
            let words = [more, "--delete", &out_format, "src/", "dst"];
            // A copy has the same times, also where the clock goes on to the next second.
            let (ours, theirs) = (differing(), tempfile::tempdir().unwrap());
            let copy = [Path::new("-aT"), ours.path(), theirs.path()];
            assert!(Command::new("cp").args(copy).status().unwrap().success());
            let Some(expected) = rsync(theirs.path(), &words) else { return };
            let output = dsync(ours.path()).args(words).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            let show = |lines: Vec<Vec<u8>>| {
                lines.iter().map(|line| line.escape_ascii().to_string()).collect::<Vec<_>>().join("\n")
            };
            assert_eq!(show(sorted(&output.stdout)), show(sorted(&expected)), "{words:?}");
        }
    }
}

#[test]
fn log_file_has_the_lines_of_rsync_with_time_and_process() {
    let at = planted();
    fs::create_dir_all(at.path().join("dst/gone")).unwrap();
    for round in 1..=2 {
        let output = dsync(at.path())
            .env("TZ", "UTC-05:30")
            .args(["-aq", "--delete", "--log-file=log", "src/", "dst"])
            .output()
            .unwrap();
        assert_eq!(told(&output), (0, String::new(), String::new()));
        let text = fs::read_to_string(at.path().join("log")).unwrap();
        let starts = text.lines().filter(|line| line.ends_with("] building file list")).count();
        assert_eq!(starts, round, "{text}");
    }
    let text = fs::read_to_string(at.path().join("log")).unwrap();
    for line in text.lines() {
        let (stamp, rest) = line.split_at(20);
        let shape: String = stamp.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000/00/00 00:00:00 ", "{line}");
        let number = rest.strip_prefix('[').and_then(|rest| rest.split_once("] ")).unwrap().0;
        assert!(number.parse::<u32>().is_ok(), "{line}");
    }
    for line in ["*deleting   gone/", ">f+++++++++ sub/b", "cL+++++++++ link -> a"] {
        assert!(text.contains(&format!("] {line}\n")), "{line}: {text}");
    }
    let last = text.lines().last().unwrap();
    assert!(last.contains("] sent ") && last.ends_with(" bytes  total size 7"), "{text}");
}

#[test]
fn log_file_has_problems_and_why_the_run_ended() {
    let at = planted();
    let (code, _, err) = run(at.path(), "-a --log-file=log --log-file-format=%n nowhere dst");
    assert_eq!(code, 23);
    let text = fs::read_to_string(at.path().join("log")).unwrap();
    assert!(text.ends_with(&format!("] {err}")), "{text}");
    let text =
        "dsync: cannot write log file 'no/log': No such file or directory; the run goes on without it\n";
    assert_eq!(run(at.path(), "-a --log-file=no/log src/ dst"), (0, String::new(), text.to_owned()));
    if Path::new("/dev/full").exists() {
        let (code, _, err) = run(at.path(), "-a --log-file=/dev/full src/ dst");
        assert!(code == 0 && err.contains("cannot write log file '/dev/full': the disk is full"), "{err}");
    }
}

#[test]
fn kinds_of_lines_are_chosen_one_by_one() {
    let lines = |words: &str| {
        let at = differing();
        fs::remove_file(at.path().join("src").join(OsStr::from_bytes(b"n\xff\n\xc3\xa9"))).unwrap();
        let (code, out, err) = run(at.path(), &format!("-a --delete {words} src/ dst"));
        assert_eq!((code, err.as_str()), (0, ""), "{words}");
        out
    };
    assert_eq!(lines("--info=copy,progress2"), "");
    assert_eq!(lines("--info=flist2"), "sending incremental file list\n");
    assert_eq!(sorted(&lines("--info=del")), ["deleting gone/", "deleting gone/file", "deleting old"]);
    assert!(!lines("-v --info=del0").contains("deleting"));
    assert!(lines("-i --info=none").contains("*deleting   old\n"));
    assert!(lines("--out-format=%n --info=del0").contains("deleting old\n"));
    let names = lines("--info=name");
    assert!(names.contains("sub/b\n") && !names.contains("Transferred"), "{names}");
    let quiet = lines("-v --info=name0,stats0");
    assert_eq!(sorted(&quiet), ["deleting gone/", "deleting gone/file", "deleting old"]);
    let stats = lines("--info=stats2");
    assert!(stats.contains("Number of files: ") && stats.contains("Transferred "), "{stats}");
    assert_eq!(run(planted().path(), "-r --info=nonreg0 src/ dst").1, "");
}

#[test]
fn list_goes_to_standard_error_when_it_is_asked_to() {
    let at = planted();
    let (code, out, err) = run(at.path(), "-ai --stderr=all src/ dst");
    assert_eq!((code, out.as_str()), (0, ""));
    assert!(err.contains(">f+++++++++ a\n"), "{err}");
}

#[test]
fn alternate_directory_that_does_not_exist_is_told_and_costs_no_more() {
    let at = planted();
    fs::create_dir(at.path().join("full")).unwrap();
    for (option, more) in [("--link-dest", "-q"), ("--copy-dest", ""), ("--compare-dest", "-n")] {
        for round in 1..=2 {
            let (code, out, err) =
                run(at.path(), &format!("-a {option}=../none {option}=../full {more} src/ dst"));
            let text = "dsync: alternate directory '../none' does not exist (a relative one starts at the destination): nothing is taken from it\n";
            assert_eq!((code, out.as_str(), err.as_str()), (0, "", text), "{option} {round}");
        }
    }
    assert_eq!(run(at.path(), "-a --link-dest=../full src/ dst").2, "");
}

#[test]
fn rule_that_is_none_is_named_with_what_to_do() {
    let at = planted();
    for (content, option, says) in [
        ("* a\n", "--filter=merge_", "filter rule at list:1: no rule begins like this; '- PATTERN'"),
        ("- a\0- b\0", "--filter=merge_", "; -0 is for files whose patterns end with one"),
        ("\0- b", "--filter=merge_", "filter rule at list:1: a NUL byte cannot"),
        ("\0- b", "--filter=merge_", "; -0 is for files whose rules end with one"),
        ("a\0b\0", "--exclude-from=", "; -0 is for files whose patterns end with one"),
        ("a\0b\0", "--include-from=", "bad pattern at list:1 column 2: a NUL byte cannot"),
    ] {
        fs::write(at.path().join("list"), content).unwrap();
        let (code, _, err) = run(at.path(), &format!("-a {option}list src/ dst"));
        assert!(code == 1 && err.contains(says), "{option}: {code} {err}");
        assert!(!at.path().join("dst").exists(), "{err}");
    }
    let (code, _, err) = run(at.path(), "-a --filter=*x src/ dst");
    assert!(code == 1 && err.contains("filter rule '*x': no rule begins like this"), "{err}");
}

#[test]
fn filter_rules_decide_as_those_of_rsync() {
    for rules in [
        &["-f", "- *"][..],
        &["-f", "+ sub/", "-f", "+ b", "-f", "- *"],
        &["--filter=merge rules"],
        &["-f", "exclude_sub", "--include=sub", "-f", "- link"],
        &["-0", "--exclude-from=zeros"],
        &["--exclude=*", "-f", "clear", "-f", ".- patterns"],
    ] {
        let at = planted();
        fs::write(at.path().join("rules"), "# rules\n+ a\n- link\n").unwrap();
        fs::write(at.path().join("zeros"), "link\0sub/b\0").unwrap();
        fs::write(at.path().join("patterns"), "a\n").unwrap();
        let words = [&["-an", "--out-format=%n"], rules, &["src/", "dst"]].concat();
        let Some(expected) = rsync(at.path(), &words) else { return };
        let output = dsync(at.path()).args(&words).output().unwrap();
        let lines = |bytes: &[u8]| {
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        assert_eq!(lines(&output.stdout), lines(&expected), "{rules:?}: {output:?}");
    }
}

#[test]
fn another_program_of_the_name_at_the_remote_end_is_told() {
    let at = planted();
    // Dovecot's, given `--server`.
    let said = "Fatal: Missing mirror or backup parameter";
    let (code, _, err) = behind(at.path(), said, 75, &["-a", "src/", "nas:dst"]);
    assert_eq!(code, 12, "{err}");
    assert!(err.contains("belongs to Dovecot") && err.contains("--dsync-path"), "{err}");
}
