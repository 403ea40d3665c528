//! An unprivileged user who owns a directory on the way, or in the tree, turns entries in it into
//! links and back during root's runs. At either end, and for each option that opens a directory,
//! nothing outside is read, written or removed.

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::{Path, PathBuf},
};

use dsync_tests::{
    Node, Outcome, Run, Scope, Scratch, Sshd, Tree, Via, assert_same, assert_unchanged,
    attack::{ATTACKER, assert_nothing_came_in, race, while_flipping},
    compare::temporaries,
    device::LoopDevice,
    needs_dsync, needs_root,
    run::{catch, send, until_met},
    scratch::slash,
    survey, tree,
    tree::noise,
    unfinished::finished_segments,
};
use rustix::process::Signal;

/// The way of a run between the ends; the attacker is at the end that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Local,
    Push,
    Pull,
}

const WAYS: [Way; 3] = [Way::Local, Way::Push, Way::Pull];

fn run(way: Way, options: &[String], from: &Path, to: &Path) -> Outcome {
    let sshd = Sshd::shared();
    let from = slash(from);
    let run = match way {
        Way::Local => Run::dsync().args(options).arg(from).arg(to),
        Way::Push => sshd.run(Via::Ssh).args(options).arg(from).arg(sshd.operand(to)),
        Way::Pull => sshd.run(Via::Ssh).args(options).arg(sshd.operand(from)).arg(to),
    };
    run.run()
}

/// Plants source, destination, a directory of the attacker's, and files that nobody may touch, with
/// the source's sizes and times.
fn plant(scratch: &Scratch) -> PathBuf {
    let names = ["d", "d/sub"];
    let files =
        names.iter().flat_map(|dir| ["f", "g"].map(|name| Node::file(format!("{dir}/{name}"), 7, 9000)));
    Tree::of(names.map(Node::dir).into_iter().chain(files)).plant(&scratch.src());
    let outside = scratch.at("outside");
    for path in ["d/f", "d/g", "d/sub/f", "d/sub/g", "f", "g", "sub/f", "sub/g"] {
        let like = scratch.src().join(if path.starts_with("d/") { path.into() } else { format!("d/{path}") });
        let now = fs::metadata(like).unwrap();
        let at = outside.join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(&at, vec![b'!'; usize::try_from(now.len()).unwrap()]).unwrap();
        tree::set_mtime(&at, (now.mtime(), now.mtime_nsec()));
    }
    fs::create_dir(scratch.dst()).unwrap();
    outside
}

#[test]
fn no_directory_that_an_option_names_is_led_elsewhere() {
    needs_root!();
    needs_dsync!();
    let options =
        ["--backup-dir", "--temp-dir", "--partial-dir", "--compare-dest", "--copy-dest", "--link-dest"];
    for (number, option) in options.into_iter().enumerate() {
        // Beside the destination or within it. Each kind of run meets each option at one of the
        // places.
        for (place, way) in
            ["beside", "dst/within"].into_iter().zip([WAYS[number % 3], WAYS[(number + 1) % 3]])
        {
            let scratch = Scratch::new();
            let outside = plant(&scratch);
            let shared = scratch.at(place);
            fs::create_dir_all(shared.join("dir/d/sub")).unwrap();
            chown(&shared, Some(ATTACKER), Some(ATTACKER)).unwrap();
            let before = survey(&outside);
            let what = format!("{option} {place} {way:?}");
            let mut given = vec!["-a".into(), format!("{option}={}", shared.join("dir").display())];
            given.extend(["--exclude=/within/".into(), "--delete".into()]);
            while_flipping(&shared.join("dir"), &outside, |flips| {
                race(flips, |turn| {
                    for path in ["d/f", "d/sub/g"] {
                        let at = scratch.src().join(path);
                        if option.ends_with("-dest") {
                            let _ = fs::remove_file(scratch.dst().join(path));
                        } else {
                            tree::set_mtime(&at, (1_300_000_000 + i64::try_from(turn).unwrap(), 0));
                        }
                    }
                    run(way, &given, &scratch.src(), &scratch.dst())
                });
            });
            assert_unchanged(&before, &outside);
            for path in ["f", "d/f", "d/sub/g"] {
                assert_eq!(fs::metadata(outside.join(path)).unwrap().nlink(), 1, "{what}: {path}");
            }
            // On a busy machine each run may have met the link at once, and refused it.
            if scratch.at("dst/d").exists() {
                assert_nothing_came_in(&scratch.at("dst/d"), &what);
            }
        }
    }
}

#[test]
fn neither_end_is_led_elsewhere() {
    needs_root!();
    needs_dsync!();
    for way in WAYS {
        // The tree itself, and the way to it, at the source and at the destination.
        for (end, place) in [("src", "src/d"), ("dst", "dst/d"), ("dst", "way/to")] {
            let scratch = Scratch::new();
            let outside = plant(&scratch);
            let flipped = scratch.at(place);
            fs::create_dir_all(flipped.join("sub")).unwrap();
            chown(flipped.parent().unwrap(), Some(ATTACKER), Some(ATTACKER)).unwrap();
            let to = if place == "way/to" { flipped.join("sub") } else { scratch.dst() };
            let before = survey(&outside);
            let given = ["-a", "--delete", "--exclude=/flipped"].map(str::to_owned);
            while_flipping(&flipped, &outside, |flips| {
                race(flips, |turn| {
                    if end == "src" {
                        let _ = fs::remove_dir_all(scratch.dst());
                    } else {
                        tree::set_mtime(
                            &scratch.src().join("d/f"),
                            (1_300_000_000 + i64::try_from(turn).unwrap(), 0),
                        );
                    }
                    run(way, &given, &scratch.src(), &to)
                });
            });
            assert_unchanged(&before, &outside);
            if end == "src" && scratch.dst().exists() {
                assert_nothing_came_in(&scratch.dst(), &format!("{place} {way:?}"));
            }
        }
    }
}

#[test]
fn no_file_of_rules_is_read_elsewhere() {
    needs_root!();
    needs_dsync!();
    for way in WAYS {
        let scratch = Scratch::new();
        let outside = plant(&scratch);
        chown(scratch.src(), Some(ATTACKER), Some(ATTACKER)).unwrap();
        // Rules from outside would show what the source's own rules hide.
        fs::write(scratch.src().join(".rsync-filter"), "- g\n").unwrap();
        fs::write(outside.join(".rsync-filter"), "+ g\n").unwrap();
        let before = survey(&outside);
        let given = ["-aF", "--exclude=/flipped"].map(str::to_owned);

        while_flipping(&scratch.src().join("d"), &outside, |flips| {
            race(flips, |_| {
                let _ = fs::remove_dir_all(scratch.dst());
                let outcome = run(way, &given, &scratch.src(), &scratch.dst());
                if scratch.dst().exists() {
                    assert_nothing_came_in(&scratch.dst(), &format!("{way:?}"));
                }
                // A link that was copied as one is not looked through.
                let came = survey(&scratch.dst());
                let hidden = [&b"d/g"[..], b"d/sub/g"].into_iter().any(|name| came.contains_key(name));
                assert!(!hidden, "{way:?}: {}", outcome.account());
                outcome
            });
        });
        assert_unchanged(&before, &outside);
    }
}

#[test]
fn a_log_is_written_nowhere_else() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    let outside = plant(&scratch);
    let shared = scratch.at("shared");
    fs::create_dir_all(shared.join("dir")).unwrap();
    chown(&shared, Some(ATTACKER), Some(ATTACKER)).unwrap();
    let before = survey(&outside);
    let log = shared.join("dir/f");
    let given = ["-a".to_owned(), format!("--log-file={}", log.display())];
    while_flipping(&shared.join("dir"), &outside, |flips| {
        race(flips, |_| run(Way::Local, &given, &scratch.src(), &scratch.dst()));
    });
    assert_unchanged(&before, &outside);
}

/// Records `tree` in `manifest`.
fn record(tree: &Path, manifest: &Path) -> Outcome {
    Run::dsync().args(["verify", "--record", "--manifest"]).arg(manifest).arg(tree).run()
}

#[test]
fn a_manifest_is_written_nowhere_else() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    let outside = plant(&scratch);
    let shared = scratch.at("shared");
    fs::create_dir_all(shared.join("dir")).unwrap();
    chown(&shared, Some(ATTACKER), Some(ATTACKER)).unwrap();
    let before = survey(&outside);
    while_flipping(&shared.join("dir"), &outside, |flips| {
        race(flips, |_| record(&scratch.src(), &shared.join("dir/f")));
    });
    assert_unchanged(&before, &outside);
}

#[test]
fn a_manifest_has_nothing_from_elsewhere() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    let outside = plant(&scratch);
    chown(scratch.src(), Some(ATTACKER), Some(ATTACKER)).unwrap();
    let foreign = |path: &str| blake3::hash(&fs::read(outside.join(path)).unwrap()).to_hex();
    let foreign = ["f", "g", "sub/f", "sub/g"].map(foreign);
    let manifest = scratch.at("manifest");
    while_flipping(&scratch.src().join("d"), &outside, |flips| {
        race(flips, |_| {
            let outcome = record(&scratch.src(), &manifest);
            let text = fs::read_to_string(&manifest).unwrap_or_default();
            for hash in &foreign {
                assert!(!text.contains(hash.as_str()), "{}: {text}", outcome.account());
            }
            outcome
        });
    });
}

#[test]
fn no_device_elsewhere_is_read_or_written() {
    needs_root!();
    needs_dsync!();
    let images = Scratch::new();
    let own = LoopDevice::create(images.path(), "own", &noise(1, 16 << 10));
    let secret = [b"!!", &noise(2, 16 << 10)[2..]].concat();
    let Some((own, other)) = own.zip(LoopDevice::create(images.path(), "other", &secret)) else { return };
    for way in WAYS {
        for (end, option) in [("src", "--copy-devices"), ("dst", "--write-devices")] {
            let scratch = Scratch::new();
            let outside = scratch.at("outside");
            let shared = scratch.at(end).join("d");
            for dir in [&outside, &shared, &scratch.src().join("d")] {
                fs::create_dir_all(dir).unwrap();
            }
            chown(scratch.at(end), Some(ATTACKER), Some(ATTACKER)).unwrap();
            own.node(&shared.join("disk"));
            other.node(&outside.join("disk"));
            if end == "dst" {
                fs::write(scratch.src().join("d/disk"), noise(3, 16 << 10)).unwrap();
            }
            let given = ["-rt".to_owned(), option.to_owned(), "--exclude=/flipped".to_owned()];
            while_flipping(&shared, &outside, |flips| {
                race(flips, |turn| {
                    if end == "src" {
                        let _ = fs::remove_dir_all(scratch.dst());
                    } else {
                        let time = (1_300_000_000 + i64::try_from(turn).unwrap(), 0);
                        tree::set_mtime(&scratch.src().join("d/disk"), time);
                    }
                    let outcome = run(way, &given, &scratch.src(), &scratch.dst());
                    if end == "src" && scratch.dst().exists() {
                        assert_nothing_came_in(&scratch.dst(), &format!("{option} {way:?}"));
                    }
                    outcome
                });
            });
            assert!(other.content() == secret, "{option} {way:?}: a device outside was written");
        }
    }
}

#[test]
fn no_path_that_is_named_leads_elsewhere() {
    needs_root!();
    needs_dsync!();
    for way in WAYS {
        for (what, list) in [("list", "d/f\nd/sub/\nd/./sub/g\nd/\n"), ("relative", "")] {
            let scratch = Scratch::new();
            let outside = plant(&scratch);
            chown(scratch.src(), Some(ATTACKER), Some(ATTACKER)).unwrap();
            let before = survey(&outside);
            let file = scratch.at("list");
            fs::write(&file, list).unwrap();
            let mut given = vec!["-ar".to_owned(), "--exclude=/flipped".to_owned()];
            let from = if list.is_empty() {
                given.push("-R".to_owned());
                scratch.src().join("./d/sub")
            } else {
                given.push(format!("--files-from={}", file.display()));
                scratch.src()
            };

            while_flipping(&scratch.src().join("d"), &outside, |flips| {
                race(flips, |_| {
                    let _ = fs::remove_dir_all(scratch.dst());
                    let outcome = run(way, &given, &from, &scratch.dst());
                    if scratch.dst().exists() {
                        assert_nothing_came_in(&scratch.dst(), &format!("{way:?} by {what}"));
                    }
                    outcome
                });
            });
            assert_unchanged(&before, &outside);
        }
    }
}

/// Another user than the attacker.
const USER: u32 = 64_502;

/// Plants a setuid program at the source, and at the destination, in which everybody may make files, what looks
/// like the complete file of an earlier run of it. Returns the inode of that.
fn plant_complete(scratch: &Scratch, source_owner: u32, owner: u32, seed: u64) -> u64 {
    // A run that ended before it could give the file its name leaves it under this one.
    let name = format!(".dsync-done-{}", &blake3::hash(b"f").to_hex()[..32]);
    let node = |name: &str, owner, seed| Node {
        mode: 0o4755,
        owner: Some((owner, owner)),
        ..Node::file(name, seed, 9000)
    };
    Tree::of([node("f", source_owner, 1)]).plant(&scratch.src());
    Tree::of([node(&name, owner, seed)]).plant(&scratch.dst());
    fs::metadata(scratch.dst().join(name)).unwrap().ino()
}

#[test]
fn a_complete_file_is_taken_up_only_of_the_runs_user_or_of_the_new_owner() {
    needs_root!();
    needs_dsync!();
    for (source_owner, owner, options, is_taken) in [
        (0, ATTACKER, &["-a"][..], false),
        (0, ATTACKER, &["-a", "--no-partial"], false),
        (0, ATTACKER, &["-rpt", "--delay-updates"], false),
        (USER, ATTACKER, &["-a"], false),
        (ATTACKER, ATTACKER, &["-rpt"], false),
        (ATTACKER, ATTACKER, &["-a", "--chown=root:root"], false),
        (0, 0, &["-a"], true),
        (0, 0, &["-rpt", "--delay-updates"], true),
        (ATTACKER, 0, &["-a"], true),
        (ATTACKER, 0, &["-rpt"], true),
        (ATTACKER, ATTACKER, &["-a"], true),
    ] {
        for way in WAYS {
            let scratch = Scratch::new();
            let inode = plant_complete(&scratch, source_owner, owner, if is_taken { 1 } else { 2 });
            tree::set_mode(&scratch.dst(), 0o1777);
            // The attacker may neither write, rename nor remove it.
            fs::write(scratch.dst().join("f"), "old").unwrap();
            let given: Vec<_> = options.iter().map(|&option| option.to_owned()).collect();
            let outcome = run(way, &given, &scratch.src(), &scratch.dst()).expect_code(0);

            let what = format!("{options:?} {way:?} of {source_owner}, there {owner}\n{}", outcome.account());
            let content = |root: PathBuf| fs::read(root.join("f")).unwrap();
            assert!(content(scratch.dst()) == content(scratch.src()), "the content is another's: {what}");
            let now = fs::metadata(scratch.dst().join("f")).unwrap();
            assert_eq!(now.ino() == inode, is_taken, "{what}");
            assert_eq!(now.uid(), if options == ["-a"] { source_owner } else { 0 }, "{what}");
        }
    }
}

/// Makes a pull that loses its connection while a large file comes, so that the small ones before it wait.
/// Returns their inodes.
fn leave_complete(scratch: &Scratch, options: &[&str]) -> HashSet<u64> {
    let sshd = Sshd::shared();
    until_met(|| {
        let _ = fs::remove_dir_all(scratch.dst());
        let remote = sshd.remote();
        let run = sshd.run_serving(Via::Ssh, &remote.script).args(options);
        let run = run.args(["--delay-updates", "--bwlimit=16m", "--no-compress", "--retries=0"]);
        let running = run.arg(sshd.operand(slash(&scratch.src()))).arg(scratch.dst()).start();
        let caught = catch(running.id(), || (1..6).contains(&finished_segments(&scratch.dst())));
        if caught {
            send(remote.wait_for_id(), Signal::KILL);
            running.signal(Signal::CONT);
        }
        let _ = running.wait();
        let entries = fs::read_dir(scratch.dst()).into_iter().flatten().flatten();
        let done = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(".dsync-done-"));
        let done: HashSet<_> = done.map(|entry| entry.metadata().unwrap().ino()).collect();
        (done.len() == 20).then_some(done)
    })
}

#[test]
fn complete_files_that_a_run_left_are_taken_up_whosever_they_are_to_be() {
    needs_root!();
    needs_dsync!();
    for options in [&["-a"][..], &["-rpt"], &["-a", "--chown=root:root"], &["-a", "--fake-super"]] {
        let scratch = Scratch::new();
        let small = (0..20).map(|number| Node {
            mode: 0o4755,
            owner: Some((ATTACKER, USER)),
            ..Node::file(format!("f{number}"), number, 3000)
        });
        Tree::of(small.chain([Node::file("z", 100, 16 << 20)])).plant(&scratch.src());
        let done = leave_complete(&scratch, options);
        let run = Run::dsync().args(options).arg(slash(&scratch.src())).arg(scratch.dst());
        let outcome = run.run().expect_code(0);

        for number in 0..20 {
            let name = format!("f{number}");
            let inode = fs::metadata(scratch.dst().join(&name)).unwrap().ino();
            assert!(done.contains(&inode), "{name} was copied again\n{}", outcome.account());
        }
        assert_same(&scratch.src(), &scratch.dst(), Scope { root: false, ..Scope::CONTENT });
        assert_eq!(temporaries(&scratch.dst()), [""; 0], "{}", outcome.account());
    }
}

#[test]
fn a_users_run_takes_up_no_complete_file_of_another_user() {
    needs_root!();
    needs_dsync!();
    for source_owner in [0, USER, ATTACKER] {
        for (mode, owner) in [(0o1777, ATTACKER), (0o777, ATTACKER), (0o1777, USER)] {
            for options in [&["-a"][..], &["-rlptO"], &["-a", "--super"]] {
                let scratch = Scratch::new();
                let seed = if owner == USER { 1 } else { 2 };
                let inode = plant_complete(&scratch, source_owner, owner, seed);
                tree::set_mode(&scratch.src(), 0o755);
                tree::set_mode(&scratch.dst(), mode);
                let run = Run::dsync().as_user(USER, USER).args(options);
                // It may not set the attributes of the directory, nor, with some of the options, the owner.
                let outcome = run.arg(scratch.src().join("f")).arg(scratch.dst()).run();

                let what =
                    format!("{options:?} {mode:o} of {source_owner}, there {owner}\n{}", outcome.account());
                assert!(matches!(outcome.code(), Some(0 | 23)), "{what}");
                let content = |root: PathBuf| fs::read(root.join("f")).unwrap_or_default();
                assert!(content(scratch.dst()) == content(scratch.src()), "the content is another's: {what}");
                let now = fs::metadata(scratch.dst().join("f")).unwrap();
                assert_eq!((now.ino() == inode, now.uid()), (owner == USER, USER), "{what}");
            }
        }
    }
}
