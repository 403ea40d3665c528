//! Somebody else flips directories into links and back during whole runs: nothing outside is read,
//! written or removed. Each race continues until it really was one; `DSYNC_CRASH=long` races for
//! longer.
//!
//! The system calls of a run show why. Below the operands each takes one name and follows no link,
//! or must resolve beneath its directory without links.

use std::{
    collections::BTreeMap,
    env, fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, symlink},
    },
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use dsync_tests::{
    Facts, Node, Outcome, Run, Scope, Scratch, Tree, assert_same, assert_unchanged, needs_dsync,
    run::until_met, scratch::slash, strace, survey, tree,
};
use rustix::fs::{CWD, RenameFlags, renameat_with};

/// The directories to flip.
const FLIPPED: [&str; 2] = ["d0", "d1"];

fn plant(root: &Path, seed: u64) {
    let names = ["d0", "d0/sub", "d0/sub/deep", "d1"];
    let dirs = names.map(Node::dir);
    let files = names.iter().enumerate().flat_map(|(index, dir)| {
        let seed = seed + index as u64;
        ["a", "secret"].map(|name| Node::file(format!("{dir}/{name}"), seed, 20_000 + seed))
    });
    Tree::of(dirs.into_iter().chain(files)).plant(root);
}

/// Flips each of the directories under `root` with a link to `outside` during `run`, which gets the
/// count so far.
fn while_flipping(root: &Path, outside: &Path, run: impl FnOnce(&AtomicU64)) {
    let (stop, flips) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for name in FLIPPED {
            let (dir, link) = (root.join(name), root.join(format!("{name} link")));
            let (stop, flips) = (&stop, &flips);
            scope.spawn(move || {
                while !stop.load(Ordering::Acquire) {
                    match renameat_with(CWD, &dir, CWD, &link, RenameFlags::EXCHANGE) {
                        Ok(()) => drop(flips.fetch_add(1, Ordering::AcqRel)),
                        // One of them is missing: a run has replaced it, or its parent is away.
                        Err(_) => drop(symlink(outside, &link)),
                    }
                    thread::sleep(Duration::from_micros(100));
                }
            });
        }
        // A failure ends the flipping too.
        let _stops = Stops(&stop);
        run(&flips);
    });
}

/// A guard that sets its flag when dropped.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Returns the numbers of runs and flips of a race.
fn rounds() -> (u64, u64) {
    let long = env::var_os("DSYNC_CRASH").is_some_and(|how| how == "long");
    if long { (200, 40_000) } else { (30, 4000) }
}

/// Repeats runs; each must end in an orderly way.
fn race(scratch: &Scratch, flips: &AtomicU64, between: impl FnMut(u64)) {
    race_with(scratch, flips, &["--delete".to_owned()], between);
}

fn race_with(scratch: &Scratch, flips: &AtomicU64, options: &[String], mut between: impl FnMut(u64)) {
    let (least_runs, least_flips) = rounds();
    let mut runs = 0;
    until_met(|| {
        runs += 1;
        between(runs);
        let run = Run::dsync().args(["-a", "--exclude=* link"]).args(options);
        let outcome = run.arg(slash(&scratch.src())).arg(scratch.dst()).run();
        assert!(matches!(outcome.code(), Some(0 | 23 | 24)), "{}", outcome.account());
        (runs >= least_runs && flips.load(Ordering::Acquire) >= least_flips).then_some(())
    });
}

fn outside(scratch: &Scratch) -> BTreeMap<Vec<u8>, Facts> {
    plant(&scratch.at("outside"), 900);
    survey(&scratch.at("outside"))
}

#[test]
fn flipped_directories_of_the_destination_let_nothing_out() {
    needs_dsync!();
    let scratch = Scratch::new();
    let before = outside(&scratch);
    plant(&scratch.src(), 1);
    plant(&scratch.dst(), 50);
    while_flipping(&scratch.dst(), &scratch.at("outside"), |flips| {
        race(&scratch, flips, |run| {
            // Every file is sent again, to be written and renamed again.
            for path in ["d0/a", "d0/sub/secret", "d0/sub/deep/a", "d1/secret"] {
                tree::set_mtime(&scratch.src().join(path), (1_300_000_000 + i64::try_from(run).unwrap(), 0));
            }
        });
    });
    assert_unchanged(&before, &scratch.at("outside"));
    // After the attack the next run repairs everything.
    let run = || Run::dsync().args(["-a", "--delete"]).arg(slash(&scratch.src())).arg(scratch.dst()).run();
    let _ = run().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    assert_unchanged(&before, &scratch.at("outside"));
}

/// Asserts that the attacker failed to place names of outside entries where the operator can reach
/// them.
fn assert_unlinked(outside: &Path) {
    for (path, _) in survey(outside) {
        let at = outside.join(std::ffi::OsStr::from_bytes(&path));
        let found = fs::symlink_metadata(&at).unwrap();
        assert!(found.is_dir() || found.nlink() == 1, "{} has another name", at.display());
    }
}

#[test]
fn flipped_directories_beside_the_destination_let_nothing_out_or_in() {
    needs_dsync!();
    for option in ["--link-dest", "--copy-dest", "--compare-dest", "--backup-dir"] {
        let scratch = Scratch::new();
        plant(&scratch.src(), 1);
        plant(&scratch.at("beside"), 1);
        // With the source's sizes and times, so that they would be mistaken for its files, but with
        // other content.
        plant(&scratch.at("outside"), 1);
        for path in ["d0/a", "d0/secret", "a", "secret", "sub/a", "sub/secret", "sub/deep/a"] {
            let at = scratch.at("outside").join(path);
            let like = scratch.src().join(if path.starts_with("d0") {
                path.to_owned()
            } else {
                format!("d0/{path}")
            });
            let now = fs::metadata(&like).unwrap();
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(&at, vec![b'!'; usize::try_from(now.len()).unwrap()]).unwrap();
            tree::set_mtime(&at, (now.mtime(), now.mtime_nsec()));
        }
        let before = survey(&scratch.at("outside"));
        let options = ["-b".to_owned(), format!("{option}={}", scratch.at("beside").display())];
        let options = if option == "--backup-dir" { &options[..] } else { &options[1..] };
        while_flipping(&scratch.at("beside"), &scratch.at("outside"), |flips| {
            race_with(&scratch, flips, options, |run| {
                if option == "--backup-dir" {
                    for path in ["d0/a", "d0/sub/secret", "d1/secret"] {
                        let time = (1_300_000_000 + i64::try_from(run).unwrap(), 0);
                        tree::set_mtime(&scratch.src().join(path), time);
                    }
                } else {
                    let _ = fs::remove_dir_all(scratch.dst());
                }
            });
        });
        assert_unchanged(&before, &scratch.at("outside"));
        assert_unlinked(&scratch.at("outside"));
        for (path, facts) in survey(&scratch.dst()) {
            let source = fs::read(scratch.src().join(std::ffi::OsStr::from_bytes(&path)));
            let same = facts.kind != "file" || source.is_ok_and(|source| !source.starts_with(b"!!!!"));
            let read = fs::read(scratch.dst().join(std::ffi::OsStr::from_bytes(&path))).unwrap_or_default();
            assert!(
                same && !read.starts_with(b"!!!!"),
                "{option}: {} came from outside",
                path.escape_ascii()
            );
        }
    }
}

#[test]
fn flipped_directories_of_the_source_let_nothing_in() {
    needs_dsync!();
    let scratch = Scratch::new();
    let before = outside(&scratch);
    let secrets: Vec<_> =
        before.values().filter(|facts| facts.kind == "file").map(|facts| &facts.content).collect();
    plant(&scratch.src(), 1);
    while_flipping(&scratch.src(), &scratch.at("outside"), |flips| {
        race(&scratch, flips, |_| {
            let _ = fs::remove_dir_all(scratch.dst());
        });
    });
    for (path, facts) in survey(&scratch.dst()) {
        assert!(!secrets.contains(&&facts.content), "{} came from outside", path.escape_ascii());
    }
    assert_unchanged(&before, &scratch.at("outside"));
}

#[test]
fn own_links_on_the_way_to_the_operands_are_followed() {
    let scratch = Scratch::new();
    plant(&scratch.src(), 1);
    fs::create_dir(scratch.at("real")).unwrap();
    symlink("real", scratch.at("dst link")).unwrap();
    symlink("src", scratch.at("src link")).unwrap();
    let run = |from: &str, to: &str| -> Outcome {
        Run::dsync().arg("-a").arg(slash(&scratch.at(from))).arg(scratch.at(to)).run()
    };
    let _ = run("src link", "dst link").expect_quiet_success();
    assert_same(&scratch.src(), &scratch.at("real"), Scope::full());
    fs::write(scratch.src().join("d0/sub/new"), "new").unwrap();
    let _ = run("src link", "dst link/").expect_quiet_success();
    assert_same(&scratch.src(), &scratch.at("real"), Scope::full());
    assert!(scratch.at("dst link").is_symlink());
}

#[test]
fn below_the_operands_every_call_takes_one_name_and_follows_no_link() {
    needs_dsync!();
    let scratch = Scratch::new();
    for (root, seed) in [(scratch.src(), 1), (scratch.dst(), 50)] {
        plant(&root, seed);
        symlink("d0", root.join(format!("link {seed}"))).unwrap();
        fs::create_dir_all(root.join(format!("only {seed}/in/here"))).unwrap();
    }
    fs::create_dir(scratch.dst().join("link 1")).unwrap();
    fs::write(scratch.dst().join("only 1"), "in the way").unwrap();
    let (outcome, calls) = strace::watch("%file", &scratch.at("trace"), |run| {
        run.args(["-a", "--delete"]).arg(slash(&scratch.src())).arg(scratch.dst())
    });
    let _ = outcome.expect_quiet_success();
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    let mut below = 0;
    for call in calls.iter().filter(|call| !call.starts_with("execve(")) {
        for step in steps(call) {
            match judge(call, &step, scratch.path()) {
                Ok(counts) => below += u32::from(counts),
                Err(offence) => panic!("{offence}: {call}"),
            }
        }
    }
    assert!(below > 100, "only {below} calls were seen");
}

/// Checks that one path of a call is a legal step below the operands `src` and `dst` in `scratch`;
/// returns `false` for a path elsewhere.
fn judge(call: &str, step: &Step, scratch: &Path) -> Result<bool, &'static str> {
    let path = Path::new(&step.path);
    let operands = [scratch.to_owned(), scratch.join("src"), scratch.join("dst")];
    if (path.is_absolute() && !path.starts_with(scratch)) || operands.iter().any(|operand| path == operand) {
        return Ok(false);
    }
    let beneath = call.contains("RESOLVE_BENEATH") && call.contains("RESOLVE_NO_SYMLINKS");
    match step.path.as_str() {
        _ if path.is_absolute() || step.from == "AT_FDCWD" => Err("a path below an operand"),
        "" | "." => Ok(true),
        _ if beneath => Ok(true),
        _ if follows_links(call) => Err("a call that follows links"),
        names if names.contains('/') => Err("more than one name"),
        _ => Ok(true),
    }
}

#[test]
fn judge_knows_what_is_forbidden() {
    let verdict =
        |call: &str| steps(call).iter().try_for_each(|step| judge(call, step, Path::new("/s")).map(drop));
    for allowed in [
        r#"openat(AT_FDCWD, "/s/src/", O_RDONLY|O_DIRECTORY) = 5"#,
        r#"openat(AT_FDCWD, "/etc/passwd", O_RDONLY) = 5"#,
        r#"openat(5, "a\"b, c", O_RDONLY|O_NOFOLLOW) = 6"#,
        r#"openat2(5, "a/b", {flags=O_RDONLY, resolve=RESOLVE_BENEATH|RESOLVE_NO_SYMLINKS}, 24) = 6"#,
        r#"renameat(5, "a", 6, "b") = 0"#,
        r#"symlinkat("/any/where", 5, "a") = 0"#,
        r#"statx(5, "", AT_EMPTY_PATH, STATX_ALL, {}) = 0"#,
    ] {
        assert_eq!(verdict(allowed), Ok(()), "{allowed}");
    }
    for forbidden in [
        r#"openat(AT_FDCWD, "/s/src/a", O_RDONLY|O_NOFOLLOW) = 5"#,
        r#"openat(AT_FDCWD, "a", O_RDONLY|O_NOFOLLOW) = 5"#,
        r#"openat(5, "a", O_RDONLY) = 6"#,
        r#"openat(5, "a/b", O_RDONLY|O_NOFOLLOW) = 6"#,
        r#"renameat(5, "a", 6, "b/c") = 0"#,
        r#"symlinkat("x", 5, "a/b") = 0"#,
        r#"utimensat(5, "a", [], 0) = 0"#,
        r#"chmod("/s/dst/a", 0644) = 0"#,
    ] {
        assert!(verdict(forbidden).is_err(), "{forbidden}");
    }
}

/// A path in a call and the descriptor where it starts.
struct Step {
    from: String,
    path: String,
}

/// Returns the paths in a call as strace writes it, without the text of a link that is made or
/// read.
fn steps(call: &str) -> Vec<Step> {
    let Some((name, arguments)) = call.split_once('(') else { return Vec::new() };
    let mut from = String::from("AT_FDCWD");
    let mut found = Vec::new();
    let mut rest = arguments;
    while let Some(quote) = rest.find('"') {
        let before = rest[..quote].trim_end_matches([',', ' ']);
        if let Some(last) = before.rsplit(", ").next().filter(|last| !last.is_empty()) {
            from = last.to_owned();
        }
        let tail = &rest[quote + 1..];
        let mut escaped = false;
        let end = tail
            .find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            })
            .unwrap_or(tail.len());
        found.push(Step {
            from: std::mem::replace(&mut from, "AT_FDCWD".into()),
            path: tail[..end].to_owned(),
        });
        rest = tail.get(end + 1..).unwrap_or("");
    }
    match name {
        "symlinkat" | "symlink" => drop(found.drain(..1)),
        "readlinkat" | "readlink" => found.truncate(1),
        _ if name.contains("xattr") => found.truncate(1),
        _ => {}
    }
    found
}

/// Returns whether a call would follow a link in the place of the name.
fn follows_links(call: &str) -> bool {
    let name = call.split('(').next().unwrap_or(call);
    match name {
        // These work on the name itself.
        "mkdirat" | "unlinkat" | "renameat" | "renameat2" | "symlinkat" | "mknodat" | "readlinkat" => false,
        "linkat" => call.contains("AT_SYMLINK_FOLLOW"),
        "openat" | "openat2" => !call.contains("O_NOFOLLOW"),
        _ => !call.contains("AT_SYMLINK_NOFOLLOW"),
    }
}
