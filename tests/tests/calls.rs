//! The number of system calls per file: the main cost of a run of many small files.

use std::{collections::BTreeMap, ffi::OsString, fs};

use dsync_tests::{
    Node, Run, Scope, Scratch, Tree, assert_same, needs_dsync, needs_root, program, remote_shell,
    scratch::slash, strace,
};

/// Calls on files, without those of threads and of a connection.
const CALLS: &str = "openat,openat2,close,statx,fstat,newfstatat,lseek,pread64,pwrite64,ftruncate,fallocate,ioctl,\
    fadvise64,copy_file_range,fchmod,fchownat,utimensat,renameat,renameat2,linkat,unlinkat,getrandom,fsync,\
    fdatasync";

/// Returns the calls of a first copy of that many files in one directory.
fn counts(files: u64, far: bool) -> BTreeMap<String, u64> {
    let scratch = Scratch::new();
    Tree::of((0..files).map(|index| Node::file(format!("f{index:05}"), index, 3000))).plant(&scratch.src());
    let (outcome, calls) = strace::watch(CALLS, &scratch.at("trace"), |run| {
        let run = run.arg("-a");
        let (run, mut to) =
            if far { (over_a_pipe(&scratch, run), OsString::from("host:")) } else { (run, OsString::new()) };
        to.push(scratch.dst());
        run.arg(slash(&scratch.src())).arg(to)
    });
    let _ = outcome.expect_code(0);
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    let mut counts = BTreeMap::new();
    for call in calls {
        let name = call.split('(').next().unwrap_or_default();
        *counts.entry(name.to_owned()).or_default() += 1;
    }
    without_read_ahead(counts)
}

/// Leaves out the calls that only a slow read leads to: on a busy machine some files are opened
/// once more to ask the system for them ahead of their turn. `tests/slow_disk.rs` holds those.
fn without_read_ahead(mut counts: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let asked = counts.remove("fadvise64").unwrap_or(0);
    for call in ["openat", "close"] {
        counts.entry(call.to_owned()).and_modify(|count| *count -= asked);
    }
    counts
}

#[test]
fn long_file_is_asked_for_holes_once() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("long", 1, 64 << 20)]).plant(&scratch.src());
    let (outcome, calls) = strace::watch("lseek", &scratch.at("trace"), |run| {
        run.arg("-a").arg(slash(&scratch.src())).arg(scratch.dst())
    });
    let _ = outcome.expect_code(0);
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    let asked = calls.iter().filter(|call| call.contains("SEEK_HOLE")).count();
    assert!(asked <= 1, "{calls:?}");
}

#[test]
fn a_run_without_changes_reads_no_tables_of_the_system_and_syncs_nothing() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of((0..10).map(|index| Node::file(format!("f{index}"), index, 30))).plant(&scratch.src());
    let run = |calls| {
        let (outcome, calls) = strace::watch(calls, &scratch.at("trace"), |run| {
            run.arg("-a").arg(slash(&scratch.src())).arg(scratch.dst())
        });
        let _ = outcome.expect_code(0);
        calls
    };
    let is_sync =
        |call: &&String| ["syncfs(", "fsync(", "fdatasync("].iter().any(|sync| call.starts_with(sync));
    let first = run("openat,fsync,fdatasync,syncfs");
    assert!(first.iter().any(|call| is_sync(&call)), "{first:?}");
    let calls = run("openat,fsync,fdatasync,syncfs,clone3,clone");
    let tables = ["mountinfo", "/proc/self/cgroup"];
    let found: Vec<_> = calls
        .iter()
        .filter(|call| is_sync(call) || tables.iter().any(|table| call.contains(table)))
        .collect();
    assert!(found.is_empty(), "{found:?}");
    // Five of the run's, beside the calling one, and three of the command's that hear of signals.
    let threads = calls.iter().filter(|call| call.starts_with("clone")).count();
    assert!((6..=9).contains(&threads), "{threads} threads");
}

/// Returns the room in bytes offered for each list of names and each value, as far as it is
/// visible: `getxattrat` gets it in a structure.
fn offered(calls: &[String]) -> Vec<usize> {
    let room = |call: &String| {
        let (call, _) = call.rsplit_once(" = ")?;
        let (name, arguments) = call.trim_end().strip_suffix(')')?.split_once('(')?;
        match name {
            "flistxattr" | "fgetxattr" | "llistxattr" | "lgetxattr" | "listxattrat" => {
                arguments.rsplit_once(", ")?.1.parse().ok()
            }
            // `listxattrat`, for a strace that does not know it.
            "syscall_0x1d1" => {
                usize::from_str_radix(arguments.split(", ").nth(4)?.strip_prefix("0x")?, 16).ok()
            }
            _ => None,
        }
    };
    calls.iter().filter_map(room).collect()
}

#[test]
fn attributes_are_asked_for_with_room_for_small_ones_first() {
    needs_root!();
    let scratch = Scratch::new();
    let long = |number: usize| format!("user.{number:060}");
    let many = (0..12).fold(Node::file("many", 1, 10), |node, number| node.with(&long(number), b"x"));
    for (node, most) in [(Node::file("few", 1, 10).with("user.a", b"b"), 512), (many, 64 << 10)] {
        Tree::of([node]).plant(&scratch.src());
        let (outcome, calls) = strace::watch("all", &scratch.at("trace"), |run| {
            run.arg("-aX").arg(slash(&scratch.src())).arg(scratch.dst())
        });
        let _ = outcome.expect_code(0);
        assert_same(&scratch.src(), &scratch.dst(), Scope::EVERYTHING);
        let offered = offered(&calls);
        assert_eq!(
            (offered.first().copied(), offered.iter().copied().max()),
            (Some(512), Some(most)),
            "{offered:?}"
        );
    }
}

/// Makes a run whose other end is a child of this one, so that both are traced.
fn over_a_pipe(scratch: &Scratch, run: Run) -> Run {
    let shell = remote_shell::write(scratch.at("shell"), remote_shell::PLAIN);
    run.arg("--transport=ssh").arg("-e").arg(shell).arg("--dsync-path").arg(program())
}

/// Returns the calls for each further file, in hundredths.
fn calls_per_file(far: bool) -> BTreeMap<String, u64> {
    let (few, many) = (counts(200, far), counts(1200, far));
    let per_file = many.into_iter().map(|(call, count)| {
        let more = count.saturating_sub(few.get(&call).copied().unwrap_or(0));
        (call, (more + 5) / 10)
    });
    per_file.filter(|&(_, hundredths)| hundredths > 0).collect()
}

/// Checks that no call is made more often than this per file.
fn assert_at_most(found: &BTreeMap<String, u64>, allowed: &[(&str, u64)]) {
    for (call, &hundredths) in found {
        let limit = allowed.iter().find(|(name, _)| name == call).map_or(0, |(_, count)| *count);
        // A few belong to batches of files.
        assert!(hundredths <= 100 * limit + 3, "{call}: {hundredths} for 100 files; all: {found:?}");
    }
}

#[test]
fn small_file_costs_few_calls_in_a_local_copy() {
    needs_dsync!();
    let found = calls_per_file(false);
    assert_at_most(
        &found,
        &[
            ("openat", 2),
            // Listing it, opening it, checking it after the read, and the new file's owner.
            ("statx", 4),
            ("copy_file_range", 1),
            ("fchmod", 1),
            ("utimensat", 1),
            ("close", 2),
            ("renameat2", 1),
        ],
    );
    assert!(found["renameat2"] >= 99, "{found:?}");
}

#[test]
fn small_file_costs_few_calls_between_two_ends() {
    needs_dsync!();
    let found = calls_per_file(true);
    assert_at_most(
        &found,
        &[
            ("openat", 2),
            ("statx", 4),
            ("pread64", 1),
            ("pwrite64", 1),
            ("fchmod", 1),
            ("utimensat", 1),
            ("close", 2),
            ("renameat2", 1),
        ],
    );
    assert!(found["renameat2"] >= 99, "{found:?}");
}

/// Returns such calls of a run that finds nothing to do and may open so many files.
fn watch_without_changes(scratch: &Scratch, calls: &str, limit: u32, far: bool) -> Vec<String> {
    let run = Run::of("prlimit").arg(format!("--nofile={limit}:{limit}"));
    let run = run.args(["strace", "-f", "-qq", "-e"]).arg(format!("trace={calls}"));
    let run = run.arg("-o").arg(scratch.at("trace")).arg(program()).arg("-ai");
    let (run, mut to) =
        if far { (over_a_pipe(scratch, run), OsString::from("host:")) } else { (run, OsString::new()) };
    to.push(scratch.dst());
    let _ = run.arg(slash(&scratch.src())).arg(to).run().expect_quiet_success();
    strace::whole_calls(&fs::read_to_string(scratch.at("trace")).unwrap())
}

/// Returns the calls of a run that finds nothing to do over that many directories, each with nine files
/// and a link.
fn calls_without_changes(directories: u64) -> BTreeMap<String, u64> {
    let scratch = Scratch::new();
    let nodes = (0..directories).flat_map(|at| {
        let files = (0..9).map(move |file| Node::file(format!("d{at:04}/f{file}"), file, 30));
        [Node::dir(format!("d{at:04}")), Node::symlink(format!("d{at:04}/link"), "f0")]
            .into_iter()
            .chain(files)
    });
    Tree::of(nodes).plant(&scratch.src());
    let _ = Run::dsync().arg("-a").arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_code(0);
    let mut counts = BTreeMap::new();
    for call in watch_without_changes(&scratch, "openat,openat2,statx,readlinkat", 8192, false) {
        let name = if call.starts_with("open") { "open" } else { call.split('(').next().unwrap_or_default() };
        *counts.entry(name.to_owned()).or_default() += 1;
    }
    counts
}

#[test]
fn an_entry_without_changes_is_looked_at_once_at_each_end() {
    needs_dsync!();
    let (few, many) = (calls_without_changes(50), calls_without_changes(550));
    let each: BTreeMap<_, _> = many.iter().map(|(call, count)| (call.as_str(), count - few[call])).collect();
    // Five hundred directories of eleven entries, themselves included, at two ends.
    let at_most = |call: &str, counted: u64| assert!(each[call] <= counted + 50, "{call}: {each:?}");
    at_most("readlinkat", 2 * 500);
    at_most("open", 2 * 500);
    // A directory at the destination twice: as an entry, and as itself.
    at_most("statx", 2 * 500 * 11 + 500);
}

#[test]
fn a_file_of_another_time_that_stays_is_not_looked_at_for_notes() {
    needs_dsync!();
    // Names before and behind those of notes.
    let nodes =
        || (0..500).flat_map(|at| ["+", "f"].map(|name| Node::file(format!("{name}{at:03}"), at, 30)));
    for options in [&["-au"][..], &["-a", "--size-only"], &["-au", "--inplace"]] {
        for far in [false, true] {
            let scratch = Scratch::new();
            Tree::of(nodes()).plant(&scratch.src());
            let newer = nodes().map(|node| Node { mtime: (node.mtime.0 + 100, 0), ..node });
            Tree::of(newer).plant(&scratch.dst());
            let (outcome, calls) = strace::watch("openat,openat2", &scratch.at("trace"), |run| {
                let run = run.args(options).arg("--no-times");
                let (run, mut to) = if far {
                    (over_a_pipe(&scratch, run), OsString::from("host:"))
                } else {
                    (run, OsString::new())
                };
                to.push(scratch.dst());
                run.arg(slash(&scratch.src())).arg(to)
            });
            let _ = outcome.expect_code(0);
            let looks = calls.iter().filter(|call| call.contains(".dsync-note-")).count();
            assert_eq!(looks, 0, "{options:?} {far}: {} opens", calls.len());
        }
    }
}

#[test]
fn a_run_without_changes_leaves_descriptors_to_others() {
    needs_dsync!();
    let scratch = Scratch::new();
    let nodes = (0..40).flat_map(|at| {
        let inner = (0..40).flat_map(move |sub| {
            let dir = format!("d{at:02}/e{sub:02}");
            [Node::dir(&dir), Node::file(format!("{dir}/f"), at, 3)]
        });
        [Node::dir(format!("d{at:02}"))].into_iter().chain(inner)
    });
    Tree::of(nodes).plant(&scratch.src());
    let _ = Run::dsync().arg("-a").arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_code(0);

    let opened = |call: &String| call.rsplit_once("= ")?.1.split(' ').next()?.parse::<u32>().ok();
    // A process whose limit nobody has raised may do several such runs at once.
    for (limit, most) in [(1024, 256), (128, 128), (64, 64)] {
        for far in [false, true] {
            let calls = watch_without_changes(&scratch, "openat,openat2", limit, far);
            let highest = calls.iter().filter_map(opened).max().unwrap_or(0);
            assert!(highest < most, "{highest} of {limit}");
        }
    }
}
