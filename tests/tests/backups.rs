//! Backups: no old entry moves before its backup stands, whatever takes its place, and the run's
//! own entries stay. rsync's trees are the reference wherever they keep all the old data.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, Permissions},
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use dsync_tests::{
    Facts, Kind, Node, Outcome, Run, Scope, Scratch, Sshd, Tree, Via, assert_same,
    compare::{self, compare, temporaries},
    mount::Mount,
    needs_dsync, needs_root, oracle,
    run::{catch, send, until_met, wait_for},
    scratch::slash,
    strace, survey,
};
use rustix::process::Signal;

const NEW: [&str; 6] = ["file", "symlink", "fifo", "device", "hard link", "directory"];
const OLD: [&str; 6] = ["file", "symlink", "fifo", "empty directory", "full directory", "nothing"];

/// Plants every type of entry in the place of every other, twice.
fn plant_product(at: &Path) {
    let (mut new, mut old) = (vec![Node::file("aaa", 1, 100), Node::dir("sub")], vec![Node::dir("sub")]);
    for (above, seed) in [("", 10), ("sub/", 60)] {
        for (kind, seed) in NEW.iter().zip(seed..) {
            for (replaced, seed) in OLD.iter().zip((seed * 10)..) {
                let path = format!("{above}{kind} over {replaced}");
                new.extend(entry(kind, &path, seed, 30));
                old.extend(entry(replaced, &path, seed + 5000, 40));
            }
        }
    }
    let old = old.into_iter().map(|node| Node { mtime: (1_200_000_000, 0), ..node });
    Tree::of(new.clone()).plant(&at.join("src"));
    Tree::of(new).plant(&at.join("other"));
    Tree::of(old).plant(&at.join("dst"));
}

fn entry(kind: &str, path: &str, seed: u64, len: u64) -> Vec<Node> {
    let below = |name: &str| format!("{path}/{name}");
    match kind {
        "file" => vec![Node::file(path, seed, len)],
        "symlink" => vec![Node::symlink(path, format!("text {seed}"))],
        "fifo" => vec![Node::new(path, Kind::Fifo)],
        "device" => vec![Node::new(path, Kind::CharDevice(1, 3))],
        "hard link" => vec![Node::hard_link(path, "aaa")],
        "empty directory" => vec![Node::dir(path)],
        "directory" => vec![Node::dir(path), Node::file(below("new"), seed, len)],
        "full directory" => vec![
            Node::dir(path),
            Node::file(below("f"), seed, len),
            Node::dir(below("deep")),
            Node::file(below("deep/g"), seed + 1, len),
            Node::symlink(below("deep/l"), "old"),
            Node::dir(below("empty")),
        ],
        _ => Vec::new(),
    }
}

/// Runs a program in a directory of its own on the entries that `plant` makes; returns the result.
fn product(
    run: Run,
    at: &Path,
    options: &[String],
    operands: [OsString; 2],
) -> (Outcome, BTreeMap<Vec<u8>, Facts>) {
    let outcome = run.arg("-aH").args(options).args(operands).cwd(at).run();
    let mut left = survey(at);
    left.retain(|path, _| path.starts_with(b"dst") || path.starts_with(b"kept"));
    (outcome, left)
}

/// Checks backups in one place: rsync's spelling, and dsync's if that is elsewhere.
fn check_product(place: &dyn Fn(&Path) -> String, outside: bool) {
    let sshd = Sshd::shared();
    let alternates = ["--link-dest=../other", "--copy-dest=../other", "--compare-dest=../other"];
    let modes = ["--", "--delay-updates", "--inplace"].into_iter().chain(alternates);
    for mode in modes {
        for leave in ["--delete", "--force"] {
            let scratch = Scratch::new();
            let mut seen = Vec::new();
            for who in ["rsync", "local", "push"] {
                let (at, far) = (scratch.at(who), Scratch::under(Path::new("/dev/shm")));
                fs::create_dir(&at).unwrap();
                plant_product(&at);
                let mut options = vec![leave.to_owned(), place(if outside { far.path() } else { &at })];
                options.extend((mode != "--").then(|| mode.to_owned()));
                let here = ["src/", "dst/"].map(OsString::from);
                let (outcome, mut left) = match who {
                    "rsync" => product(Run::of("rsync"), &at, &options, here),
                    "local" => product(Run::dsync(), &at, &options, here),
                    _ => {
                        let operands = ["src/".into(), sshd.operand(slash(&at.join("dst")))];
                        product(sshd.run(Via::Auto), &at, &options, operands)
                    }
                };
                if outside {
                    let kept = survey(far.path()).into_iter();
                    left.extend(kept.map(|(path, facts)| ([b"kept/", &path[..]].concat(), facts)));
                }
                // Written in place, rsync's backups have neither time nor attributes.
                let scope = if mode == "--inplace" {
                    Scope::CONTENT
                } else {
                    Scope { dir_times: false, ..Scope::BELOW }
                };
                if who == "rsync" && outcome.code() != Some(0) {
                    // rsync sometimes fails by itself (`stat` of a backup, EINVAL); then only
                    // dsync's two kinds of run are compared.
                    continue;
                }
                let outcome = outcome.expect_code(0);
                seen.push(left);
                let mut found = compare(&seen[0], seen.last().unwrap(), scope);
                // rsync keeps no backup of a file that gives way to one of an alternate directory.
                let is_other = |line: &str| {
                    line.starts_with("extra: ") && line.contains("kept/") && line.ends_with(" over file'")
                };
                found.retain(|line| !(alternates.contains(&mode) && is_other(line)));
                assert!(found.is_empty(), "{who} {options:?}\n{}\n{}", found.join("\n"), outcome.account());
            }
        }
    }
}

#[test]
fn every_type_over_every_type_leaves_the_backups_of_rsync_in_a_tree_beside() {
    needs_dsync!();
    needs_root!();
    check_product(&|_| "--backup-dir=../kept".to_owned(), false);
}

#[test]
fn every_type_over_every_type_leaves_the_backups_of_rsync_in_a_tree_within() {
    needs_dsync!();
    needs_root!();
    check_product(&|_| "--backup-dir=kept".to_owned(), false);
}

#[test]
fn every_type_over_every_type_leaves_the_backups_of_rsync_in_an_absolute_tree() {
    needs_dsync!();
    needs_root!();
    check_product(&|at| format!("--backup-dir={}/kept", at.display()), false);
}

#[test]
fn every_type_over_every_type_leaves_the_backups_of_rsync_on_another_filesystem() {
    needs_dsync!();
    needs_root!();
    check_product(&|far| format!("--backup-dir={}", far.display()), true);
}

/// Returns the old content of [`plant_product`]: each file's content and each link's text.
fn old_content(at: &Path) -> Vec<Vec<u8>> {
    let facts = survey(at).into_values();
    let mut content: Vec<_> =
        facts.filter(|facts| ["file", "symlink"].contains(&facts.kind)).map(|facts| facts.content).collect();
    content.sort();
    content
}

#[test]
fn what_cannot_be_backed_up_keeps_its_name_and_is_backed_up_once_it_can_be() {
    needs_dsync!();
    needs_root!();
    for mode in [
        "--force",
        "--delay-updates",
        "--inplace",
        "--link-dest=../other",
        "--copy-dest=../other",
        "--delete-before",
    ] {
        let scratch = Scratch::new();
        plant_product(scratch.path());
        // Empty directories have nothing to keep.
        let is_empty = |path: &[u8]| path.ends_with(b"empty directory") || path.ends_with(b"/empty");
        let replaced = |path: &[u8]| !path.is_empty() && path != b"sub" && !is_empty(path);
        let old = old_content(&scratch.dst());
        let mut before = survey(&scratch.dst());
        before.retain(|path, _| replaced(path));
        // No directory can be made there, and nothing can be refused.
        symlink("nowhere/at all", scratch.at("kept")).unwrap();
        let run = || {
            let run = Run::dsync().args(["-aH", "--delete", "--backup-dir=../kept", mode, "src/", "dst/"]);
            run.cwd(scratch.path()).run()
        };
        for _ in 0..2 {
            let _ = run().expect_code(23);
            let after = survey(&scratch.dst());
            for (path, facts) in &before {
                let now = after.get(path);
                assert!(
                    now.is_some_and(|now| (now.kind, &now.content) == (facts.kind, &facts.content)),
                    "{mode} {}",
                    compare::show(path)
                );
            }
            assert_eq!(temporaries(&scratch.dst()), Vec::<String>::new(), "{mode}");
        }
        fs::remove_file(scratch.at("kept")).unwrap();
        let _ = run().expect_code(0);
        let kept = old_content(&scratch.at("kept"));
        assert!(old.iter().all(|content| kept.contains(content)), "{mode}");
    }
}

#[test]
fn directory_of_backups_that_the_source_has_too_keeps_the_sources_time() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::dir("bk"), Node::file("z", 1, 50)]).plant(&scratch.src());
    Tree::of([Node::dir("bk"), Node::file("z", 2, 60)]).plant(&scratch.dst());
    let run = || Run::dsync().args(["-ai", "--backup-dir=bk", "src/", "dst/"]).cwd(scratch.path()).run();
    let _ = run().expect_code(0);
    assert!(scratch.at("dst/bk/z").exists());
    assert_eq!(run().expect_quiet_success().stdout_text(), "");
}

#[test]
fn extraneous_entry_that_cannot_be_backed_up_stays_and_is_told() {
    needs_dsync!();
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.src()).unwrap();
    Tree::of([Node::file("x", 1, 50)]).plant(&scratch.dst());
    symlink("nowhere/at all", scratch.at("kept")).unwrap();
    let args = ["-a", "--delete", "--allow-empty-source", "--backup-dir=../kept", "src/", "dst/"];
    let outcome = Run::dsync().args(args).cwd(scratch.path()).run().expect_code(23);
    assert!(outcome.stderr_text().contains("cannot delete 'x'"), "{}", outcome.account());
    assert!(scratch.at("dst/x").exists());
}

#[test]
fn a_directory_that_gives_way_is_backed_up_before_a_kill_at_any_step() {
    needs_dsync!();
    for mode in ["--force", "--delay-updates"] {
        for when in 1..14 {
            let scratch = Scratch::new();
            let old = [
                Node::dir("x"),
                Node::file("x/a", 1, 50),
                Node::dir("x/y"),
                Node::file("x/y/b", 2, 60),
                Node::file("z", 3, 70),
            ];
            Tree::of(old).plant(&scratch.dst());
            Tree::of([Node::file("x", 4, 80), Node::dir("z"), Node::symlink("z/l", "t")])
                .plant(&scratch.src());
            let old = old_content(&scratch.dst());
            let args = ["-a", "--delete", "--backup-dir=../kept", mode, "src/", "dst/"];
            let calls = "renameat,renameat2,linkat,unlinkat,rmdir,mkdirat";
            let killed = strace::inject(calls, &format!("signal=KILL:when={when}"));
            let _ = killed.args(args).cwd(scratch.path()).run();
            let _ = Run::dsync().args(args).cwd(scratch.path()).run().expect_code(0);
            let kept = old_content(&scratch.at("kept"));
            assert!(
                old.iter().all(|content| kept.contains(content)),
                "{mode}: call {when} was the last\n{kept:?}"
            );
            assert_eq!(temporaries(&scratch.dst()), Vec::<String>::new());
        }
    }
}

#[test]
fn a_name_too_long_for_its_suffix_is_no_obstacle_to_what_replaces_nothing() {
    needs_dsync!();
    let scratch = Scratch::new();
    let long = |letter: &str| letter.repeat(255);
    let (link, pipe, file) = (long("l"), long("p"), long("f"));
    Tree::of([Node::symlink(&link, "t"), Node::new(&pipe, Kind::Fifo), Node::file(&file, 1, 20)])
        .plant(&scratch.src());
    let run = || Run::dsync().args(["-ab", "src/", "dst/"]).cwd(scratch.path()).run();
    let _ = run().expect_quiet_success();
    Tree::of([Node { mtime: (1_500_000_000, 0), ..Node::file(&file, 2, 30) }]).plant(&scratch.src());
    for _ in 0..2 {
        let _ = run().expect_code(23);
        assert_eq!(fs::metadata(scratch.dst().join(&file)).unwrap().len(), 20, "it has no backup");
    }
}

#[test]
fn a_full_backup_disk_ends_with_11_and_all_that_is_old_is_somewhere() {
    needs_dsync!();
    let scratch = Scratch::new();
    let kept = scratch.at("kept");
    fs::create_dir(&kept).unwrap();
    let Some(_small) = Mount::tmpfs(&kept, "size=256k") else { return };
    let files = (0..8).map(|index| Node::file(format!("x/{index}"), index, 100_000));
    Tree::of([Node::dir("x")].into_iter().chain(files)).plant(&scratch.dst());
    Tree::of([Node::file("x", 99, 10)]).plant(&scratch.src());
    let old = old_content(&scratch.dst());
    for _ in 0..2 {
        let args = ["-a", "--delete", "--backup-dir=../kept", "src/", "dst/"];
        let _ = Run::dsync().args(args).cwd(scratch.path()).run().expect_code(11);
        let mut now = old_content(&scratch.dst());
        now.extend(old_content(&kept));
        assert!(old.iter().all(|content| now.contains(content)));
        assert!(scratch.dst().join("x").is_dir(), "it gave way before all was kept");
    }
}

#[test]
fn older_backups_of_another_type_give_way_and_directories_of_the_destination_do_not() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::dir("a"), Node::file("a/old", 1, 5), Node::file("b", 2, 6)]).plant(&scratch.at("kept"));
    Tree::of([Node::file("a", 3, 7), Node::dir("b"), Node::file("b/f", 4, 8)]).plant(&scratch.dst());
    let new = [Node::file("a", 5, 9), Node::dir("b"), Node::file("b/f", 6, 10)];
    Tree::of(new.map(|node| Node { mtime: (1_500_000_000, 0), ..node })).plant(&scratch.src());
    let run = |options: &[&str]| {
        Run::dsync().arg("-a").args(options).args(["src/", "dst/"]).cwd(scratch.path()).run()
    };
    let _ = run(&["--backup-dir=../kept"]).expect_quiet_success();
    assert_eq!(fs::metadata(scratch.at("kept/a")).unwrap().len(), 7);
    assert_eq!(fs::metadata(scratch.at("kept/b/f")).unwrap().len(), 8);
    assert_eq!(temporaries(&scratch.at("kept")), Vec::<String>::new());
    // A directory of that name beside its original is no backup.
    Tree::of([Node::dir("a~"), Node::file("a~/mine", 7, 11)]).plant(&scratch.dst());
    Tree::of([Node { mtime: (1_600_000_000, 0), ..Node::file("a", 8, 12) }]).plant(&scratch.src());
    let refused = run(&["-b"]).expect_code(23);
    let words = "cannot write 'a': a directory has its name or the name of its backup";
    assert!(refused.stderr_text().contains(words), "{}", refused.account());
    assert!(scratch.dst().join("a~/mine").exists());
    assert_eq!(fs::metadata(scratch.dst().join("a")).unwrap().len(), 9);
    // A backup whose place is the destination itself.
    Tree::of([Node::file("dst", 9, 13)]).plant(&scratch.dst());
    Tree::of([Node { mtime: (1_600_000_000, 0), ..Node::file("dst", 10, 14) }]).plant(&scratch.src());
    for (tree, code) in [("--backup-dir=..", 23), ("--backup-dir=.", 1)] {
        let _ = run(&[tree]).expect_code(code);
    }
    assert_eq!(fs::metadata(scratch.dst().join("dst")).unwrap().len(), 13);
}

#[test]
fn what_belongs_to_the_run_stays_however_it_is_written() {
    needs_dsync!();
    let timings = ["--delete-before", "--delete-during", "--delete-after", "--delete-delay"];
    for option in ["--backup-dir", "--temp-dir", "--partial-dir", "--link-dest", "--compare-dest"] {
        for (number, timing) in (0..).zip(timings) {
            for spelling in ["absolute", "own", "../dst/own", "./own/", "link", "bind", "../through/own"] {
                // To this option a component of that name means something else.
                if option == "--partial-dir" && spelling != "absolute" {
                    continue;
                }
                let scratch = Scratch::new();
                Tree::of([
                    Node::dir("own"),
                    Node::file("own/mine", 1, 10),
                    Node::file("gone", 2, 20),
                    Node::dir("full"),
                    Node::file("full/f", 3, 30),
                ])
                .plant(&scratch.dst());
                Tree::of([Node::file("new", 4, 40)]).plant(&scratch.src());
                symlink("dst", scratch.at("through")).unwrap();
                symlink("dst/own", scratch.at("link")).unwrap();
                fs::create_dir(scratch.at("bind")).unwrap();
                let _bound = match spelling {
                    "bind" if number > 0 => continue,
                    "bind" => match Mount::bind(&scratch.dst().join("own"), &scratch.at("bind")) {
                        Some(bound) => Some(bound),
                        None => continue,
                    },
                    _ => None,
                };
                let dir = match spelling {
                    "absolute" => scratch.dst().join("own").display().to_string(),
                    "link" | "bind" => format!("../{spelling}"),
                    other => other.to_owned(),
                };
                let args = [&format!("{option}={dir}"), timing, "src/", "dst/"];
                for dry_run in [true, false, false] {
                    let run = Run::dsync().arg("-ai").args(dry_run.then_some("-n")).args(args);
                    let outcome = run.cwd(scratch.path()).run().expect_code(0);
                    assert!(!outcome.stdout_text().contains("own"), "{args:?}\n{}", outcome.account());
                    assert!(scratch.dst().join("own/mine").exists(), "{args:?}\n{}", outcome.account());
                }
                assert!(!scratch.dst().join("gone").exists() && !scratch.dst().join("full").exists());
                assert!(!scratch.dst().join("own/own").exists(), "{args:?}");
                assert_eq!(option == "--backup-dir", scratch.dst().join("own/full/f").exists(), "{args:?}");
            }
        }
    }
}

#[test]
fn a_backup_tree_that_the_source_has_too_is_not_emptied_into_itself() {
    needs_dsync!();
    for timing in ["--delete-before", "--delete-during", "--delete-after"] {
        let scratch = Scratch::new();
        let old = [
            Node::dir("own"),
            Node::file("own/mine", 1, 10),
            Node::dir("own/own"),
            Node::file("own/own/m", 2, 5),
            Node::file("gone", 2, 20),
        ];
        Tree::of(old).plant(&scratch.dst());
        Tree::of([Node::dir("own"), Node::file("own/theirs", 4, 40)]).plant(&scratch.src());
        for _ in 0..2 {
            let run =
                Run::dsync().args(["-a", "--backup-dir=own", timing, "src/", "dst/"]).cwd(scratch.path());
            let _ = run.run().expect_quiet_success();
        }
        let mut left = survey(&scratch.dst());
        left.remove(&b""[..]);
        let left: Vec<_> = left.keys().map(|path| compare::show(path)).collect();
        assert_eq!(
            left,
            ["'own'", "'own/gone'", "'own/mine'", "'own/own'", "'own/own/m'", "'own/theirs'"],
            "{timing}"
        );
    }
}

#[test]
fn a_tree_of_backups_below_what_gives_way_stays_with_it() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::dir("x"), Node::dir("x/own"), Node::file("x/own/mine", 1, 10), Node::file("x/f", 2, 20)])
        .plant(&scratch.dst());
    Tree::of([Node::file("x", 3, 30)]).plant(&scratch.src());
    let args = ["-a", "--delete", "--backup-dir=x/own", "src/", "dst/"];
    let _ = Run::dsync().args(args).cwd(scratch.path()).run().expect_code(23);
    assert!(scratch.dst().join("x/own/mine").exists() && scratch.dst().join("x/f").exists());
}

/// Rewrites a file continuously while `run` runs.
fn while_changing<T>(path: &Path, run: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut step = 0_u64;
            while !stop.load(Ordering::Acquire) {
                step += 1;
                file.write_all_at(&step.to_le_bytes(), step * 7_919_777 % (16 << 20)).unwrap();
            }
        });
        let result = run();
        stop.store(true, Ordering::Release);
        result
    })
}

#[test]
fn the_backup_of_a_file_written_in_place_is_of_the_old_content_however_often_it_is_tried() {
    needs_dsync!();
    let sshd = Sshd::shared();
    for (push, extra) in [(false, "-W"), (true, "-W"), (false, "--append"), (false, "--no-whole-file")] {
        let scratch = Scratch::new();
        let old = Node { mtime: (1_200_000_000, 0), ..Node::file("busy", 3, 12 << 20) };
        Tree::of([old]).plant(&scratch.dst());
        Tree::of([Node::file("busy", 1, (16 << 20) + 8)]).plant(&scratch.src());
        let old = compare::sum(&scratch.dst().join("busy"));
        let _ = while_changing(&scratch.src().join("busy"), || {
            let run = if push { sshd.run(Via::Auto) } else { Run::dsync() };
            let run = run.args(["-ab", "--inplace", extra]).arg(slash(&scratch.src()));
            let run = if push { run.arg(sshd.operand(scratch.dst())) } else { run.arg(scratch.dst()) };
            run.run()
        });
        // Over a link nothing is written before everything has arrived, so there may be no backup
        // yet.
        let kept = scratch.dst().join("busy~");
        assert!(push || kept.exists());
        assert!(!kept.exists() || compare::sum(&kept) == old, "{extra}: the backup is of what the run wrote");
    }
}

#[test]
fn an_interrupt_ends_a_long_removal_between_two_entries() {
    needs_dsync!();
    const FILES: usize = 4000;
    for (options, call) in
        [(&["--delete"][..], "unlinkat"), (&["--delete", "--backup-dir=../kept"], "renameat")]
    {
        for old in ["gone", "replaced"] {
            let scratch = Scratch::new();
            let files = (0..FILES).map(|index| Node::file(format!("{old}/{index}"), 1, 1));
            Tree::of([Node::dir(old)].into_iter().chain(files)).plant(&scratch.dst());
            Tree::of([Node::file("replaced", 2, 10)]).plant(&scratch.src());
            let left = || {
                let directories = fs::read_dir(scratch.dst()).unwrap().flatten();
                directories.map(|dir| fs::read_dir(dir.path()).map_or(0, Iterator::count)).max().unwrap_or(0)
            };
            // Ten milliseconds per call: forty seconds in all.
            let run =
                strace::inject(call, "delay_enter=10000").arg("-a").args(options).args(["src/", "dst/"]);
            let running = run.cwd(scratch.path()).start();
            wait_for(|| (1..FILES).contains(&left()));
            for pid in running.children() {
                send(pid, Signal::INT);
            }
            let _ = running.wait().expect_code(20);
            assert!(left() > FILES / 4, "{options:?} {old}: {} are left", left());
        }
    }
}

#[test]
fn option_that_names_a_file_where_a_directory_is_needed_ends_the_run_before_it_begins() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("f", 1, 10)]).plant(&scratch.src());
    Tree::of([Node::file("f", 2, 20), Node::file("taken", 3, 3)]).plant(&scratch.dst());
    for option in ["--backup-dir", "--compare-dest", "--copy-dest", "--link-dest", "--temp-dir"] {
        for place in ["taken", "../dst/taken", "taken/below"] {
            for dry in ["-a", "-an"] {
                let run = Run::dsync().arg(dry).arg(format!("{option}={place}"));
                let outcome = run.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_code(1);
                let said = outcome.stderr_text();
                assert!(said.contains(place) && said.contains(option), "{}", outcome.account());
            }
        }
    }
    assert_eq!(fs::metadata(scratch.dst().join("f")).expect("the old file").len(), 20);
}

#[test]
fn an_interrupt_ends_the_comparison_of_a_file_by_its_content() {
    needs_dsync!();
    let scratch = Scratch::new();
    let plant = |root: &str, size: u64| {
        fs::create_dir_all(scratch.at(root)).expect("a directory");
        let file = fs::File::create(scratch.at(root).join("huge")).expect("a file");
        file.set_len(size).expect("a length");
        file.set_modified(std::time::UNIX_EPOCH).expect("a time");
    };
    // Holes: reading them takes half an hour, more than the limit of a run.
    plant("src", 8 << 40);
    plant("dst", 8 << 40);
    for options in [&["-a", "-c"][..], &["-a", "--append-verify", "--ignore-times"]] {
        let run = Run::dsync().args(options).arg(slash(&scratch.src())).arg(scratch.dst()).start();
        let io = format!("/proc/{}/io", run.id());
        let read = || {
            let text = fs::read_to_string(&io).unwrap_or_default();
            text.lines()
                .find_map(|line| line.strip_prefix("rchar: ")?.parse::<u64>().ok())
                .unwrap_or_default()
        };
        wait_for(|| read() > 64 << 20);
        run.signal(Signal::INT);
        let _ = run.wait().expect_code(20);
        // One byte more, for the second kind of run.
        fs::File::options()
            .write(true)
            .open(scratch.src().join("huge"))
            .expect("a file")
            .set_len((8 << 40) + 1)
            .expect("a length");
    }
}

#[test]
fn directories_that_are_named_as_backups_are_stay_with_what_is_in_them() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("f", 1, 5)]).plant(&scratch.src());
    let old = [Node::dir("empty~"), Node::dir("full~"), Node::file("full~/mine", 2, 6), Node::dir("gone")];
    for root in ["dst", "rsync"] {
        Tree::of(old.clone()).plant(&scratch.at(root));
    }
    let args = |root: &str| ["-ab".into(), "--delete".into(), slash(&scratch.src()), scratch.at(root).into()];
    let _ = Run::dsync().args(args("dst")).run().expect_quiet_success();
    let _ = oracle::rsync(args("rsync")).expect_code(0);
    assert!(scratch.dst().join("full~/mine").exists() && scratch.dst().join("empty~").exists());
    dsync_tests::assert_same(&scratch.at("rsync"), &scratch.dst(), Scope { dir_times: false, ..Scope::ALL });
}

/// A run that was killed, or a disk that failed, between a backup and the change of a name leaves the backup
/// as a further name of the entry, and so does `cp -al`.
#[test]
fn an_entry_that_is_its_backup_too_is_removed_all_the_same() {
    needs_dsync!();
    let sshd = Sshd::shared();
    for (options, kept) in [(&["-b"][..], "d/"), (&["--backup-dir=../bk"], "bk/")] {
        for timing in ["--delete", "--delete-before", "--delete-during", "--delay-updates"] {
            for way in ["local", "push"] {
                let scratch = Scratch::new();
                let name = |path: &str| scratch.at(&format!("{path}{}", if kept == "d/" { "~" } else { "" }));
                for dir in ["s", "d/x", "d/way", "bk/x", "bk/way"] {
                    fs::create_dir_all(scratch.at(dir)).unwrap();
                }
                fs::write(scratch.at("s/way"), "a file").unwrap();
                // Beside what gives way a backup would be in it.
                let doomed =
                    if kept == "bk/" { &["gone", "x/one", "way/old"][..] } else { &["gone", "x/one"] };
                for path in doomed {
                    fs::write(scratch.at(&format!("d/{path}")), path).unwrap();
                    let backup = name(&format!("{kept}{path}"));
                    fs::hard_link(scratch.at(&format!("d/{path}")), &backup).unwrap();
                }

                let (src, dst) = (slash(&scratch.at("s")), slash(&scratch.at("d")));
                let push =
                    || sshd.run(Via::Ssh).arg("-ai").args(options).args(["--delete", timing]).arg(&src);
                let here = || Run::dsync().arg("-ai").args(options).args(["--delete", timing]).arg(&src);
                let run = || if way == "local" { here().arg(&dst) } else { push().arg(sshd.operand(&dst)) };
                let outcome = run().run().expect_code(0);
                let what = format!("{options:?} {timing} {way}\n{}", outcome.account());
                assert_eq!(outcome.stdout_text().matches("*deleting   x/one\n").count(), 1, "{what}");
                assert_eq!(fs::read_to_string(scratch.at("d/way")).unwrap(), "a file", "{what}");
                assert!(!scratch.at("d/gone").exists() && !scratch.at("d/x/one").exists(), "{what}");
                assert_eq!(fs::read_to_string(name(&format!("{kept}gone"))).unwrap(), "gone", "{what}");
                let again = run().run().expect_code(0);
                assert!(!again.stdout_text().contains("deleting   gone"), "{what}{}", again.account());
            }
        }
    }
}

#[test]
fn directories_of_backups_admit_whom_their_originals_admitted_before_the_run() {
    needs_dsync!();
    needs_root!();
    let sshd = Sshd::shared();
    for (old, new) in [(0o700, 0o755), (0o444, 0o755), (0o711, 0o511), (0o2750, 0o444)] {
        for remote in [false, true] {
            let scratch = Scratch::new();
            for (root, mode, owner, seed) in [("src", new, 0, 1), ("dst", old, 3, 2)] {
                let files =
                    [Node::file("p/f", seed, 200_000 + seed), Node::file("p/q/f", seed, 3_000_000 + seed)];
                let dirs = [Node::dir("p"), Node::dir("p/q")];
                Tree::of(dirs.into_iter().chain(files)).plant(&scratch.at(root));
                for dir in ["p/q", "p"] {
                    chown(scratch.at(root).join(dir), Some(owner), Some(owner)).unwrap();
                    fs::set_permissions(scratch.at(root).join(dir), Permissions::from_mode(mode)).unwrap();
                }
            }
            let (run, to) = match remote {
                true => (sshd.run(Via::Ssh), sshd.operand(scratch.dst())),
                false => (Run::dsync(), scratch.dst().into()),
            };
            let run = run.args(["-a", "--backup-dir=../kept"]).arg(slash(&scratch.src())).arg(to);
            let _ = run.run().expect_quiet_success();
            assert_same(&scratch.src(), &scratch.dst(), Scope::ALL);
            for dir in ["p", "p/q"] {
                let kept = fs::metadata(scratch.at("kept").join(dir)).unwrap();
                assert_eq!(
                    (kept.mode() & 0o7777, kept.uid(), kept.gid()),
                    (old, 3, 3),
                    "{dir} {new:o} {remote}"
                );
            }
        }
    }
}

/// Makes a run whose remote end is killed when `a` is new and `m`, a large file after it, has not come yet.
fn lose_connection_after_a(scratch: &Scratch, options: &[&str], push: bool, plant: impl Fn()) -> Outcome {
    let sshd = Sshd::shared();
    until_met(|| {
        plant();
        let (src, dst, remote) = (slash(&scratch.src()), slash(&scratch.dst()), sshd.remote());
        let run = sshd.run_serving(Via::Ssh, &remote.script).args(["-a", "--bwlimit=12m"]).args(options);
        let run =
            if push { run.arg(&src).arg(sshd.operand(&dst)) } else { run.arg(sshd.operand(&src)).arg(&dst) };
        let running = run.start();
        let writer = if push { remote.wait_for_id() } else { running.id() };
        let size = |path: &str| fs::metadata(scratch.at(path)).map(|now| now.len()).ok();
        let is_between = || size("dst/a") == size("src/a") && size("dst/m") != size("src/m");
        let caught = catch(writer, is_between);
        if caught {
            send(remote.wait_for_id(), Signal::KILL);
            send(writer, Signal::CONT);
        }
        let outcome = running.wait();
        (caught && outcome.stderr_text().contains("reconnecting (1 of 5)")).then_some(outcome)
    })
}

/// Breaks the connection of a run that replaces `a`, which is the same inode as the older backup of a file that
/// the run comes to later, and so gives that backup the change time of this run. Checks both new backups.
fn keep_beside_older_backup(options: &[&str], backup: &str, push: bool) {
    let scratch = Scratch::new();
    let name = if backup.contains('z') { "z" } else { "m" };
    // The old file is the beginning of the new one, as `--append` needs it.
    let old = Node { mtime: (1_200_000_000, 0), ..Node::file(name, 4, 200) };
    let plant = || {
        ["src", "dst", "kept"].iter().for_each(|dir| _ = fs::remove_dir_all(scratch.at(dir)));
        Tree::of([Node::file("a", 3, 300), Node::file("m", 4, 12 << 20)]).plant(&scratch.src());
        Tree::of([Node { mtime: (1_200_000_000, 0), ..Node::file("a", 3, 100) }, old.clone()])
            .plant(&scratch.dst());
        fs::create_dir(scratch.at("kept")).unwrap();
        fs::hard_link(scratch.at("dst/a"), scratch.at(backup)).unwrap();
    };
    plant();
    let sum = |path: &str| compare::sum(&scratch.at(path));
    let (oldest, second) = (sum(backup), sum(&format!("dst/{name}")));

    let outcome = lose_connection_after_a(&scratch, options, push, plant).expect_code(0);
    let what = format!("{options:?} push={push}\n{}", outcome.account());
    assert!(sum(backup) == second, "the old {name} has no backup: {what}");
    assert!(sum(&backup.replace(name, "a")) == oldest, "a has another backup: {what}");
    assert!(sum("dst/a") == sum("src/a") && sum("dst/m") == sum("src/m"), "{what}");
    assert!(name == "m" || !scratch.at("dst/z").exists(), "{what}");
}

/// An earlier run replaced one of two names of a file.
#[test]
fn an_older_backup_that_is_another_file_too_is_not_taken_for_this_runs() {
    needs_dsync!();
    for (options, backup, push) in [
        (&["-b"][..], "dst/m~", true),
        (&["--backup-dir=../kept"], "kept/m", false),
        (&["-b", "--delete-after"], "dst/z~", false),
        (&["--backup-dir=../kept", "--delete-after"], "kept/z", true),
    ] {
        keep_beside_older_backup(options, backup, push);
    }
}

#[test]
fn an_older_backup_of_what_is_rewritten_in_place_is_not_taken_for_this_runs() {
    needs_dsync!();
    for (options, backup, push) in [
        (&["-b", "--inplace"][..], "dst/m~", false),
        (&["--backup-dir=../kept", "--inplace"], "kept/m", true),
        (&["-b", "--append"], "dst/m~", true),
        (&["--backup-dir=../kept", "--append-verify"], "kept/m", false),
    ] {
        keep_beside_older_backup(options, backup, push);
    }
}
