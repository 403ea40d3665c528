//! `--watch`: what changes at the source is at the destination soon, until an interrupt.

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use dsync_tests::{
    Run, Running, Scope, Scratch, Sshd, Via, assert_same, mount::Mount, needs_dsync, needs_root, program,
    run::wait_for, scratch::slash,
};
use rustix::process::Signal;
use serde_json::Value;

/// Starts a watch of `src` and waits until its first run has made `dst/first`.
fn watch(scratch: &Scratch, run: Run, to: impl AsRef<std::ffi::OsStr>) -> Running {
    fs::write(scratch.at("src/first"), "first").unwrap();
    let run = run.args(["-a", "--delete", "--watch"]).arg(slash(&scratch.src())).arg(to);
    let running = run.start();
    wait_for(|| has(&scratch.at("dst/first"), "first"));
    running
}

fn has(path: &Path, content: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|found| found == content)
}

/// Changes the source in several ways and waits until the destination has followed.
fn change_all(scratch: &Scratch) {
    let (src, dst) = (|name: &str| scratch.src().join(name), |name: &str| scratch.dst().join(name));
    fs::create_dir_all(src("new/deep/er")).unwrap();
    fs::write(src("new/deep/er/file"), "1").unwrap();
    wait_for(|| has(&dst("new/deep/er/file"), "1"));
    // In a directory that came after the watch began.
    fs::write(src("new/deep/er/file"), "22").unwrap();
    wait_for(|| has(&dst("new/deep/er/file"), "22"));
    fs::set_permissions(src("new/deep/er/file"), fs::Permissions::from_mode(0o600)).unwrap();
    let mode = |path: PathBuf| fs::metadata(path).map(|found| found.permissions().mode() & 0o777);
    wait_for(|| mode(dst("new/deep/er/file")).is_ok_and(|mode| mode == 0o600));
    // Changes in a directory that was moved are seen as well.
    fs::rename(src("new/deep"), src("moved")).unwrap();
    wait_for(|| has(&dst("moved/er/file"), "22") && !dst("new/deep").exists());
    fs::write(src("moved/er/file"), "333").unwrap();
    wait_for(|| has(&dst("moved/er/file"), "333"));
    fs::remove_dir_all(src("moved")).unwrap();
    wait_for(|| !dst("moved").exists());
}

/// Ends a watch; the trees are equal, and the exit code is that of an interrupt.
fn end(scratch: &Scratch, running: Running) {
    running.signal(Signal::TERM);
    let outcome = running.wait().expect_code(20);
    assert!(outcome.stderr_text().contains("dsync: interrupted"), "{}", outcome.account());
    assert_same(&scratch.src(), &scratch.dst(), Scope { dir_times: false, ..Scope::full() });
}

#[test]
fn a_local_destination_and_a_remote_one_follow_each_change() {
    needs_dsync!();
    let scratch = Scratch::new();
    let running = watch(&scratch, Run::dsync(), scratch.dst());
    change_all(&scratch);
    end(&scratch, running);

    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    let running = watch(&scratch, sshd.run(Via::Ssh), sshd.operand(scratch.dst()));
    change_all(&scratch);
    end(&scratch, running);
}

/// Writes a file through a mapping, whose descriptor is closed before; half of it once there is a copy.
const MAPPER: &str = r#"
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDWR | O_CREAT, 0644);
    if (fd < 0 || ftruncate(fd, 8192)) return 1;
    char *map = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return 1;
    close(fd);
    memset(map, 'a', 4096);
    while (access(argv[2], F_OK)) usleep(10000);
    memset(map + 4096, 'b', 4096);
    return munmap(map, 8192);
}
"#;

#[test]
fn what_is_written_through_a_mapping_is_copied_once_the_mapping_ends() {
    needs_dsync!();
    let scratch = Scratch::new();
    let (code, mapper) = (scratch.at("mapper.c"), scratch.at("mapper"));
    fs::write(&code, MAPPER).unwrap();
    assert!(Command::new("cc").arg("-o").args([&mapper, &code]).status().unwrap().success());
    let running = watch(&scratch, Run::dsync(), scratch.dst());
    let mut writing =
        Command::new(&mapper).arg(scratch.src().join("map")).arg(scratch.at("go")).spawn().unwrap();
    let copied = || fs::read(scratch.dst().join("map")).unwrap_or_default();
    wait_for(|| copied().len() == 8192);
    fs::write(scratch.at("go"), "").unwrap();
    assert!(writing.wait().unwrap().success());
    wait_for(|| copied().ends_with(b"b"));
    end(&scratch, running);
}

#[test]
fn a_directory_on_the_way_that_may_only_be_searched_is_told() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    let file = scratch.at("box/file");
    fs::create_dir(scratch.at("box")).unwrap();
    fs::write(&file, "1").unwrap();
    fs::set_permissions(scratch.at("box"), fs::Permissions::from_mode(0o711)).unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir_all(scratch.dst()).unwrap();
    chown(scratch.dst(), Some(65_534), Some(65_534)).unwrap();
    let run = Run::dsync().as_user(65_534, 65_534).args(["-rt", "--watch"]).arg(&file).arg(scratch.dst());
    let running = run.start();
    // It is said behind the first run, which a signal would end before.
    wait_for(|| running.has_said("looked through every 60 s"));
    assert!(has(&scratch.dst().join("file"), "1"));
    running.signal(Signal::TERM);
    let _ = running.wait().expect_code(20);
}

#[test]
fn a_program_reads_a_stream_of_events_for_each_run() {
    needs_dsync!();
    let scratch = Scratch::new();
    let running = watch(&scratch, Run::dsync().arg("--json"), scratch.dst());
    fs::write(scratch.at("src/second"), "second").unwrap();
    wait_for(|| has(&scratch.at("dst/second"), "second"));
    running.signal(Signal::TERM);
    let outcome = running.wait().expect_code(20);

    let stdout = outcome.stdout_text();
    let events = stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut runs: Vec<Vec<Value>> = Vec::new();
    for event in events {
        if event["event"] == "start" {
            runs.push(Vec::new());
        }
        runs.last_mut().expect("a run begins with its start").push(event);
    }
    assert!(runs.len() >= 2, "{}", outcome.account());
    for run in &runs {
        assert_eq!(run.last().unwrap()["event"], "summary", "{}", outcome.account());
    }
    let names = |run: &[Value], name: &str| run.iter().any(|event| event["path"] == name);
    assert!(names(&runs[0], "first") && !names(&runs[0], "second"), "{}", outcome.account());
    assert!(runs[1..].iter().any(|run| names(run, "second")), "{}", outcome.account());
}

#[test]
fn more_changes_than_the_system_keeps_lead_to_another_look() {
    needs_dsync!();
    let scratch = Scratch::new();
    let running = watch(&scratch, Run::dsync(), scratch.dst());
    let kept = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let kept: u64 = kept.trim().parse().unwrap();
    running.signal(Signal::STOP);
    // One after the other on two names, as the system joins equal ones.
    for number in 0..kept.min(200_000) {
        fs::write(scratch.at(if number % 2 == 0 { "src/a" } else { "src/b" }), "x").unwrap();
    }
    fs::create_dir_all(scratch.at("src/late/er")).unwrap();
    fs::write(scratch.at("src/late/er/file"), "1").unwrap();
    running.signal(Signal::CONT);
    wait_for(|| has(&scratch.at("dst/late/er/file"), "1"));
    fs::write(scratch.at("src/late/er/file"), "2").unwrap();
    wait_for(|| has(&scratch.at("dst/late/er/file"), "2"));
    end(&scratch, running);
}

#[test]
fn a_run_that_fails_is_made_again_and_one_that_cannot_begin_ends_the_watch() {
    needs_dsync!();
    let scratch = Scratch::new();
    // A remote shell that fails as long as there is a file, and counts.
    let (shell, broken, tries) = (scratch.at("shell"), scratch.at("broken"), scratch.at("tries"));
    let text = format!(
        "#!/bin/sh\nif test -e {}; then echo >>{}; exit 255; fi\nexec {} --server\n",
        broken.display(),
        tries.display(),
        program().display()
    );
    fs::write(&shell, text).unwrap();
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).unwrap();
    let through = || Run::dsync().args(["--transport=ssh", "--retries=0", "-e"]).arg(&shell);
    let to = format!("host:{}", scratch.dst().display());

    let running = watch(&scratch, through(), &to);
    fs::write(&broken, "").unwrap();
    fs::write(scratch.at("src/second"), "second").unwrap();
    wait_for(|| fs::read(&tries).is_ok_and(|tries| tries.len() >= 2));
    fs::remove_file(&broken).unwrap();
    wait_for(|| has(&scratch.at("dst/second"), "second"));
    running.signal(Signal::INT);
    let outcome = running.wait().expect_code(20);
    let said = outcome.stderr_text();
    assert!(said.contains("dsync: trying again in 1 s") && said.contains("in 2 s"), "{}", outcome.account());

    fs::write(&broken, "").unwrap();
    let run = through().args(["-a", "--watch"]).arg(slash(&scratch.src())).arg(&to);
    let outcome = run.run();
    assert!(outcome.code().is_some_and(|code| code != 0 && code != 20), "{}", outcome.account());
}

/// Starts a watch and waits until its first run has brought what `first` looks for.
fn begin(run: Run, options: &[&str], operands: &[&OsStr], first: impl FnMut() -> bool) -> Running {
    let running = run.args(["-rt", "--watch"]).args(options).args(operands).start();
    wait_for(first);
    running
}

/// Ends a watch with the exit code of an interrupt; returns the text of both its streams.
fn interrupt(running: Running) -> String {
    running.signal(Signal::TERM);
    let outcome = running.wait().expect_code(20);
    outcome.account()
}

/// Returns the inodes of the directories that a process watches.
fn watched(running: &Running) -> HashSet<u64> {
    let infos = fs::read_dir(format!("/proc/{}/fdinfo", running.id())).unwrap().flatten();
    let texts: String = infos.map(|info| fs::read_to_string(info.path()).unwrap_or_default()).collect();
    let inode = |line: &str| {
        let number = line.strip_prefix("inotify ")?.split(' ').find_map(|word| word.strip_prefix("ino:"))?;
        u64::from_str_radix(number, 16).ok()
    };
    texts.lines().filter_map(inode).collect()
}

fn inode(path: impl AsRef<Path>) -> u64 {
    fs::metadata(path).unwrap().ino()
}

/// Puts a link in the place of another one, as deployments do.
fn lead(scratch: &Scratch, to: &str, link: &str) {
    symlink(to, scratch.at("fresh-link")).unwrap();
    fs::rename(scratch.at("fresh-link"), scratch.at(link)).unwrap();
}

/// Puts a file in the place of another one, as editors do.
fn replace(scratch: &Scratch, path: &str, content: &str) {
    fs::write(scratch.at("fresh-file"), content).unwrap();
    fs::rename(scratch.at("fresh-file"), scratch.at(path)).unwrap();
}

#[test]
fn what_the_followed_links_lead_to_is_followed_too() {
    needs_dsync!();
    let sshd = Sshd::shared();
    for (option, remote) in [("-L", false), ("-L", true), ("-k", false), ("--copy-unsafe-links", false)] {
        let scratch = Scratch::new();
        for release in ["1", "2"] {
            fs::create_dir_all(scratch.at(&format!("releases/{release}/app"))).unwrap();
            fs::write(scratch.at(&format!("releases/{release}/app/number")), release).unwrap();
        }
        lead(&scratch, "1", "releases/current");
        symlink(scratch.at("releases/current/app"), scratch.at("src/app")).unwrap();
        // Around to the source itself, and to nothing else.
        symlink(scratch.at("src/app"), scratch.at("releases/1/app/again")).unwrap();
        let number = scratch.dst().join("app/number");
        let (run, to) = if remote {
            (sshd.run(Via::Ssh), sshd.operand(scratch.dst()))
        } else {
            (Run::dsync(), scratch.dst().into_os_string())
        };
        let source = slash(&scratch.src());
        let running = begin(run, &[option, "-l"], &[source.as_ref(), &to], || has(&number, "1"));

        fs::write(scratch.at("releases/1/app/number"), "1b").unwrap();
        wait_for(|| has(&number, "1b"));
        lead(&scratch, "2", "releases/current");
        wait_for(|| has(&number, "2"));
        fs::write(scratch.at("releases/2/app/number"), "2b").unwrap();
        wait_for(|| has(&number, "2b"));
        wait_for(|| !watched(&running).contains(&inode(scratch.at("releases/1/app"))));
        interrupt(running);
    }
}

#[test]
fn operands_that_are_links_or_files_are_followed_by_their_names() {
    needs_dsync!();
    let scratch = Scratch::new();
    for (version, content) in [("one", "one"), ("two", "second")] {
        fs::create_dir(scratch.at(version)).unwrap();
        fs::write(scratch.at(version).join("version"), content).unwrap();
    }
    lead(&scratch, "one", "link");
    fs::write(scratch.at("file"), "1").unwrap();
    let at = |path: &str| scratch.dst().join(path);
    let (contents, link, file) = (slash(&scratch.at("link")), scratch.at("link"), scratch.at("file"));
    let to = scratch.dst();
    let operands = [contents.as_ref(), link.as_ref(), file.as_ref(), to.as_ref()];
    let running =
        begin(Run::dsync(), &["-l"], &operands, || has(&at("version"), "one") && has(&at("file"), "1"));

    replace(&scratch, "file", "2");
    wait_for(|| has(&at("file"), "2"));
    fs::write(scratch.at("file"), "33").unwrap();
    wait_for(|| has(&at("file"), "33"));
    lead(&scratch, "two", "link");
    wait_for(|| {
        has(&at("version"), "second") && fs::read_link(at("link")).is_ok_and(|text| text == Path::new("two"))
    });
    fs::write(scratch.at("two/version"), "three").unwrap();
    wait_for(|| has(&at("version"), "three"));
    interrupt(running);
}

#[test]
fn implied_directories_are_followed_with_links_on_the_way() {
    needs_dsync!();
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.at("src/real/deep")).unwrap();
    fs::create_dir_all(scratch.at("src/other/deep")).unwrap();
    fs::write(scratch.at("src/real/deep/file"), "real").unwrap();
    fs::write(scratch.at("src/other/deep/file"), "other").unwrap();
    lead(&scratch, "real", "src/way");
    let at = |path: &str| scratch.dst().join(path);
    let (source, to) = (scratch.at("src/./way/deep"), scratch.dst());
    let operands = [source.as_ref(), to.as_ref()];
    let running = begin(Run::dsync(), &["-R", "-p"], &operands, || has(&at("way/deep/file"), "real"));

    lead(&scratch, "other", "src/way");
    wait_for(|| has(&at("way/deep/file"), "other"));
    fs::set_permissions(scratch.at("src/other"), fs::Permissions::from_mode(0o700)).unwrap();
    wait_for(|| fs::metadata(at("way")).is_ok_and(|found| found.permissions().mode() & 0o777 == 0o700));
    interrupt(running);
}

#[test]
fn a_list_of_names_is_read_again_and_its_names_are_watched() {
    needs_dsync!();
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.at("src/deep/other")).unwrap();
    for name in ["deep/file", "deep/other/file", "late"] {
        fs::write(scratch.src().join(name), "1").unwrap();
    }
    replace(&scratch, "list", "deep/file\n");
    let (list, at) =
        (format!("--files-from={}", scratch.at("list").display()), |path: &str| scratch.dst().join(path));
    let (source, to) = (scratch.src(), scratch.dst());
    let operands = [source.as_ref(), to.as_ref()];
    let running = begin(Run::dsync(), &[&list, "--no-r"], &operands, || has(&at("deep/file"), "1"));

    replace(&scratch, "src/deep/file", "2");
    wait_for(|| has(&at("deep/file"), "2"));
    assert!(!watched(&running).contains(&inode(scratch.at("src/deep/other"))));
    replace(&scratch, "list", "deep/file\nlate\nmissing/yet\n");
    wait_for(|| has(&at("late"), "1"));
    fs::create_dir(scratch.at("src/missing")).unwrap();
    fs::write(scratch.at("src/missing/yet"), "1").unwrap();
    wait_for(|| has(&at("missing/yet"), "1"));

    // While there is no list nothing is copied, and nothing ends.
    fs::remove_file(scratch.at("list")).unwrap();
    fs::write(scratch.at("src/late"), "2").unwrap();
    replace(&scratch, "list", "late\n");
    wait_for(|| has(&at("late"), "2"));
    interrupt(running);
}

#[test]
fn what_is_left_out_takes_no_watch_until_it_takes_part() {
    needs_dsync!();
    let scratch = Scratch::new();
    for name in ["node_modules/a/b", "kept/node_modules/c", "kept/below", "by_file/below"] {
        fs::create_dir_all(scratch.src().join(name)).unwrap();
    }
    fs::write(scratch.at("src/.rules"), "- /by_file\n").unwrap();
    fs::write(scratch.at("src/by_file/below/file"), "1").unwrap();
    let at = |path: &str| scratch.dst().join(path);
    let (source, to) = (slash(&scratch.src()), scratch.dst());
    let options = ["--exclude=node_modules", "--filter=: .rules"];
    let running =
        begin(Run::dsync(), &options, &[source.as_ref(), to.as_ref()], || at("kept/below").is_dir());
    wait_for(|| watched(&running).contains(&inode(scratch.at("src/kept/below"))));
    let inodes =
        |names: &[&str]| names.iter().map(|name| inode(scratch.src().join(name))).collect::<Vec<_>>();
    let modules = inodes(&[
        "node_modules",
        "node_modules/a",
        "node_modules/a/b",
        "kept/node_modules",
        "kept/node_modules/c",
    ]);
    let by_file = inodes(&["by_file", "by_file/below"]);
    let has_any = |of: &[u64]| of.iter().any(|inode| watched(&running).contains(inode));
    assert!(!has_any(&modules) && !has_any(&by_file));

    replace(&scratch, "src/.rules", "- nothing\n");
    wait_for(|| has(&at("by_file/below/file"), "1"));
    fs::write(scratch.at("src/by_file/below/file"), "2").unwrap();
    wait_for(|| has(&at("by_file/below/file"), "2"));
    replace(&scratch, "src/.rules", "- /by_file\n");
    wait_for(|| !has_any(&by_file));
    assert!(!has_any(&modules));
    interrupt(running);
}

#[test]
fn changes_of_what_rules_leave_out_begin_no_run() {
    needs_dsync!();
    let scratch = Scratch::new();
    fs::create_dir(scratch.at("src/sub")).unwrap();
    fs::write(scratch.at("src/sub/.rules"), "- *.log\n").unwrap();
    // Each run writes to both, and to the destination's own directory.
    let (copy, log) = (scratch.at("src/copy"), scratch.at("src/sub/run.log"));
    let log = format!("--log-file={}", log.display());
    let options = ["-v", "--exclude=/copy", "--filter=: .rules", &log];
    let source = slash(&scratch.src());
    let running =
        begin(Run::dsync(), &options, &[source.as_ref(), copy.as_ref()], || copy.join("sub").is_dir());
    for number in ["1", "2", "3"] {
        // Long enough for several runs, if anything begins them.
        std::thread::sleep(Duration::from_secs(2));
        replace(&scratch, "src/sub/passing.log", number);
        replace(&scratch, "src/sub/file", number);
        wait_for(|| has(&copy.join("sub/file"), number));
    }
    let text = interrupt(running);
    let runs = text.matches("Transferred ").count();
    // The last one may have been interrupted before its summary.
    assert!((3..=4).contains(&runs), "{runs} runs: {text}");
    assert!(!copy.join("sub/passing.log").exists());
}

#[test]
fn a_filesystem_that_is_not_entered_takes_no_watch() {
    needs_dsync!();
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.at("src/mounted")).unwrap();
    let Some(_mounted) = Mount::tmpfs(&scratch.at("src/mounted"), "size=1m") else { return };
    fs::create_dir(scratch.at("src/mounted/below")).unwrap();
    let (source, to) = (slash(&scratch.src()), scratch.dst());
    fs::write(scratch.at("src/first"), "1").unwrap();
    let first = || has(&scratch.at("dst/first"), "1");
    let running = begin(Run::dsync(), &["-x"], &[source.as_ref(), to.as_ref()], first);
    let other = fs::metadata(scratch.at("src/mounted")).unwrap().dev();
    let devices = |running: &Running| {
        let infos = fs::read_dir(format!("/proc/{}/fdinfo", running.id())).unwrap().flatten();
        infos.map(|info| fs::read_to_string(info.path()).unwrap_or_default()).collect::<String>()
    };
    let kernel_device = (rustix::fs::major(other) << 20) | rustix::fs::minor(other);
    assert!(!devices(&running).contains(&format!("sdev:{kernel_device:x} ")));
    interrupt(running);
}

#[test]
fn a_source_that_goes_and_comes_back_is_followed_and_nothing_is_deleted_meanwhile() {
    needs_dsync!();
    let scratch = Scratch::new();
    let running = watch(&scratch, Run::dsync(), scratch.dst());
    fs::rename(scratch.src(), scratch.at("away")).unwrap();
    fs::write(scratch.at("away/second"), "second").unwrap();
    fs::rename(scratch.at("away"), scratch.src()).unwrap();
    wait_for(|| has(&scratch.at("dst/second"), "second"));
    assert!(has(&scratch.at("dst/first"), "first"));

    // Away until a run has failed for it, which is made again when the source is there.
    fs::rename(scratch.src(), scratch.at("away")).unwrap();
    wait_for(|| !watched(&running).is_empty());
    fs::write(scratch.at("away/third"), "third").unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert!(has(&scratch.at("dst/first"), "first"));
    fs::rename(scratch.at("away"), scratch.src()).unwrap();
    wait_for(|| has(&scratch.at("dst/third"), "third"));
    end(&scratch, running);
}

#[test]
fn a_source_that_is_unmounted_empties_nothing_and_is_followed_when_it_is_mounted_again() {
    needs_dsync!();
    let scratch = Scratch::new();
    let Some(disk) = Mount::tmpfs(&scratch.src(), "size=1m") else { return };
    let running = watch(&scratch, Run::dsync(), scratch.dst());
    // No watch keeps it busy.
    wait_for(|| Run::of("umount").arg(disk.path()).run().code() == Some(0));
    drop(disk);
    std::thread::sleep(Duration::from_secs(2));
    assert!(has(&scratch.at("dst/first"), "first"));

    let Some(_disk) = Mount::tmpfs(&scratch.src(), "size=1m") else { return };
    fs::write(scratch.at("src/first"), "again").unwrap();
    wait_for(|| has(&scratch.at("dst/first"), "again"));
    fs::write(scratch.at("src/second"), "second").unwrap();
    wait_for(|| has(&scratch.at("dst/second"), "second"));
    end(&scratch, running);
}

#[test]
fn more_directories_than_watches_are_told_with_the_cure() {
    needs_dsync!();
    needs_root!();
    let scratch = Scratch::new();
    for number in 0..30 {
        fs::create_dir(scratch.src().join(number.to_string())).unwrap();
    }
    fs::write(scratch.at("src/29/file"), "1").unwrap();
    let limited = r#"echo 20 >/proc/sys/user/max_inotify_watches && exec "$@""#;
    let run = Run::dsync().behind(["unshare", "--user", "--map-root-user", "sh", "-c", limited, "sh"]);
    let (source, to) = (slash(&scratch.src()), scratch.dst());
    let first = || has(&scratch.at("dst/29/file"), "1");
    let running = begin(run, &[], &[source.as_ref(), to.as_ref()], first);
    // The first directories have their watches, and what changes there is followed at once.
    fs::write(scratch.at("src/file"), "1").unwrap();
    wait_for(|| has(&scratch.at("dst/file"), "1"));
    let said = interrupt(running);
    assert!(
        said.contains("more directories than fs.inotify.max_user_watches (raise it as root: sysctl"),
        "{said}"
    );
    assert!(said.contains("the source is looked through every 60 s"), "{said}");
    assert_eq!(said.matches("not everything can be watched").count(), 1, "{said}");
}

#[test]
fn options_that_make_sense_work_in_a_watch() {
    needs_dsync!();
    for options in [
        &["--delete", "--max-delete=10", "--delay-updates"][..],
        &["--log-file=LOG", "-q"],
        &["--bwlimit=50m", "--stop-after=600"],
        &["--inplace", "-c", "--state", "--state-dir=STATE"],
        &["-m", "--backup", "--suffix=.old", "--write-manifest=LOG"],
        &["-z", "-y", "--partial", "--temp-dir=STATE", "-v", "--stats"],
        &["--json", "--checksum"],
        &["--delete", "--delete-excluded", "--exclude=/none", "--exclude-from=LIST"],
    ] {
        let scratch = Scratch::new();
        fs::create_dir(scratch.at("state")).unwrap();
        fs::write(scratch.at("exclude"), "*.tmp\n").unwrap();
        let place = |option: &&str| {
            let path = |name: &str| scratch.at(name).display().to_string();
            option
                .replace("LOG", &path("log"))
                .replace("STATE", &path("state"))
                .replace("LIST", &path("exclude"))
        };
        let options: Vec<String> = options.iter().map(place).collect();
        let running = watch(&scratch, Run::dsync().args(&options), scratch.dst());
        fs::write(scratch.at("src/second"), "second").unwrap();
        wait_for(|| has(&scratch.at("dst/second"), "second"));
        fs::write(scratch.at("src/second"), "2").unwrap();
        wait_for(|| has(&scratch.at("dst/second"), "2"));
        let said = interrupt(running);
        assert!(!said.contains("trying again"), "{said}");
    }
}

#[test]
fn files_that_are_removed_after_their_copy_lead_to_no_endless_runs() {
    needs_dsync!();
    let scratch = Scratch::new();
    let (source, to) = (slash(&scratch.src()), scratch.dst());
    fs::write(scratch.at("src/first"), "1").unwrap();
    let first = || has(&scratch.at("dst/first"), "1");
    let options = ["--remove-source-files", "--json"];
    let running = begin(Run::dsync(), &options, &[source.as_ref(), to.as_ref()], first);
    wait_for(|| !scratch.at("src/first").exists());
    fs::write(scratch.at("src/second"), "2").unwrap();
    wait_for(|| has(&scratch.at("dst/second"), "2") && !scratch.at("src/second").exists());
    let said = interrupt(running);
    assert!(said.matches(r#""event":"start""#).count() <= 6, "{said}");
}

#[test]
fn a_watch_does_not_go_beyond_the_limit_on_deletions_by_itself() {
    needs_dsync!();
    let scratch = Scratch::new();
    fs::create_dir(scratch.at("src/sub")).unwrap();
    fs::write(scratch.at("src/stays"), "x").unwrap();
    for number in 0..9 {
        fs::write(scratch.at(&format!("src/sub/file{number}")), "x").unwrap();
    }
    let sub = scratch.dst().join("sub");
    let count = || fs::read_dir(&sub).map_or(0, Iterator::count);
    let (from, to) = (slash(&scratch.src()), scratch.dst());
    let options = ["--delete", "--max-delete=2"];
    let running = begin(Run::dsync(), &options, &[from.as_ref(), to.as_ref()], || {
        (0..9).all(|number| has(&sub.join(format!("file{number}")), "x"))
    });
    // One change, so one run.
    fs::rename(scratch.at("src/sub"), scratch.at("away")).unwrap();
    wait_for(|| count() == 7);
    // The next change has a run of its own, and it is the only one since.
    fs::write(scratch.at("src/new"), "x").unwrap();
    wait_for(|| has(&to.join("new"), "x") && count() < 7);
    let said = interrupt(running);
    assert!(count() >= 5, "{said}");
    assert!(said.contains("not trying again before something changes, because of --max-delete"), "{said}");
    assert!(!said.contains("trying again in"), "{said}");
}

#[test]
fn an_entry_that_fails_does_not_hold_up_the_others() {
    needs_dsync!();
    let scratch = Scratch::new();
    symlink("nowhere", scratch.at("src/dangling")).unwrap();
    fs::write(scratch.at("src/first"), "1").unwrap();
    let (source, to) = (slash(&scratch.src()), scratch.dst());
    let first = || has(&scratch.at("dst/first"), "1");
    let running = begin(Run::dsync(), &["-L"], &[source.as_ref(), to.as_ref()], first);
    for content in ["2", "33", "444", "5555"] {
        fs::write(scratch.at("src/first"), content).unwrap();
        wait_for(|| has(&scratch.at("dst/first"), content));
    }
    fs::write(scratch.at("src/nowhere"), "there").unwrap();
    wait_for(|| has(&scratch.at("dst/dangling"), "there"));
    interrupt(running);
}

#[test]
fn a_watch_ends_once_nobody_reads_what_it_prints() {
    needs_dsync!();
    for options in ["-av", "-ai"] {
        let scratch = Scratch::new();
        fs::write(scratch.src().join("f"), "f").unwrap();
        let words = format!("exec \"$1\" {options} --watch src/ dst/ >/dev/full");
        let run = Run::of("sh").args(["-c", &words, "sh"]).arg(program()).cwd(scratch.path());
        let outcome = run.run().expect_code(13);
        assert!(outcome.stderr_text().contains("the watch ends"), "{}", outcome.account());
        assert!(has(&scratch.dst().join("f"), "f"), "{}", outcome.account());
    }
}

#[test]
fn a_watch_that_makes_no_sense_is_refused_with_reason_and_cure() {
    needs_dsync!();
    let scratch = Scratch::new();
    fs::write(scratch.at("src/file"), "x").unwrap();
    let run = |options: &[&str], from: &OsStr| {
        Run::dsync().args(["-a", "--watch"]).args(options).arg(from).arg(scratch.dst()).run()
    };
    for (option, with, cure) in [
        ("-n", "--dry-run (-n)", "for one look leave --watch out"),
        ("--list-only", "--list-only", "for one list leave --watch out"),
        ("--progress", "--progress (-P)", "-v or --json tells what each one did"),
        ("-P", "--progress (-P)", "-v or --json tells what each one did"),
        ("--write-batch=b", "--write-batch", "record a single run without --watch"),
        ("--only-write-batch=b", "--only-write-batch", "record a single run without --watch"),
        ("--files-from=-", "--files-from=-", "put it into a file"),
        ("--files-from=/dev/stdin", "a list of --files-from that is a pipe", "put it into a file"),
    ] {
        let outcome = run(&[option], scratch.src().as_ref()).expect_code(1);
        let said = outcome.stderr_text();
        assert!(said.contains(&format!("--watch does not work with {with}: ")), "{}", outcome.account());
        assert!(said.contains(cure), "{}", outcome.account());
    }
    let batch =
        Run::dsync().args(["-a", "--watch", "--read-batch=b"]).arg(scratch.dst()).run().expect_code(1);
    assert!(batch.stderr_text().contains("apply it without --watch"), "{}", batch.account());
    let push =
        Run::dsync().args(["-a", "--watch", "--files-from=:list"]).arg(scratch.src()).arg("host:x").run();
    let push = push.expect_code(1);
    assert!(push.stderr_text().contains("put the list into a file here"), "{}", push.account());
    for source in ["host:src/", "host::share/src/", "dsync://host/share/src/"] {
        let pull = run(&[], source.as_ref()).expect_code(4);
        let said = pull.stderr_text();
        assert!(
            said.contains("--watch of a remote source (no host tells another one what changes"),
            "{said}"
        );
        assert!(said.contains("run dsync at the host that has the source, as a push"), "{said}");
    }
    let outcome = run(&[], scratch.at("src/none").as_ref()).expect_code(23);
    assert!(outcome.stderr_text().contains("src/none"), "{}", outcome.account());
    assert!(!scratch.dst().exists() || fs::read_dir(scratch.dst()).unwrap().next().is_none());
}
