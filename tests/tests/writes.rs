//! The ways in which new content replaces the old: in place, with backups, from alternate
//! directories, by shared extents. rsync's result with the same options is the reference, unless a
//! test says otherwise.

use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
};

use dsync_tests::{
    Content, Kind, Node, Outcome, Run, Scope, Scratch, Sshd, Style, Tree, Via, assert_same,
    mount::Mount,
    needs_dsync,
    scratch::slash,
    tree::{self, noise},
};

const MIB: u64 = 1 << 20;

/// Runs dsync and rsync with the same options on equal trees, and compares their output and their
/// results.
fn as_rsync(plant: impl Fn(&Path), options: &[&str]) -> Scratch {
    let scratch = Scratch::new();
    let mut listed = Vec::new();
    for (program, at) in [("rsync", "theirs"), ("", "ours")] {
        let at = scratch.at(at);
        fs::create_dir(&at).unwrap();
        plant(&at);
        let run = if program.is_empty() { Run::dsync() } else { Run::of(program) };
        let outcome = run.arg("-aii").args(options).args(["src/", "dst/"]).cwd(&at).run().expect_code(0);
        let mut lines: Vec<String> = outcome.stdout_text().lines().map(str::to_owned).collect();
        // Removals happen at another time.
        lines.sort();
        listed.push(lines);
    }
    assert_eq!(listed[0], listed[1], "rsync's list and dsync's with {options:?}");
    assert_same(&scratch.at("theirs"), &scratch.at("ours"), without_dir_times());
    scratch
}

/// Returns a scope without directory times: directories just written to have a time of their own.
fn without_dir_times() -> Scope {
    Scope { dir_times: false, root: false, ..Scope::full() }
}

/// Plants a tree in which every kind of replacement happens.
fn plant_replacements(at: &Path) {
    let old = |path: &str, len| Node { mtime: (1_200_000_000, 0), ..Node::file(path, 9, len) };
    Tree::of([
        Node::file("changed", 1, 500),
        Node::file("same", 2, 20),
        Node::symlink("link", "new"),
        Node::dir("becomes a directory"),
        Node::file("becomes a file", 3, 30),
        Node::dir("sub"),
        Node::file("sub/changed", 4, 40),
        Node::new("pipe", Kind::Fifo),
        Node::dir("tight"),
    ])
    .plant(&at.join("src"));
    Tree::of([
        old("changed", 600),
        Node::file("same", 2, 20),
        Node::symlink("link", "old"),
        old("becomes a directory", 7),
        Node::symlink("becomes a file", "x"),
        Node { mode: 0o700, ..Node::dir("tight") },
        Node::dir("sub"),
        old("sub/changed", 41),
        old("pipe", 3),
        old("extra", 5),
        old("kept~", 6),
        Node::dir("gone"),
        old("gone/inside", 8),
    ])
    .plant(&at.join("dst"));
}

#[test]
fn backups_are_those_of_rsync() {
    for options in [
        &["-b"][..],
        &["-b", "--suffix=.old"],
        &["--backup-dir=../kept"],
        &["-b", "--backup-dir=../kept", "--suffix=.old", "--delete"],
        &["--backup-dir=kept", "--delete"],
        &["-b", "--inplace"],
    ] {
        as_rsync(plant_replacements, options);
    }
}

/// Plants directories of unfinished files at both ends.
fn plant_parts(at: &Path) {
    let inside = |dir: &str| [Node::dir(dir), Node::file(format!("{dir}/f"), 7, 70)];
    Tree::of([Node::file("new", 1, 500), Node::dir("sub")].into_iter().chain(inside("parts")))
        .plant(&at.join("src"));
    let old = [Node::dir("gone"), Node::dir("sub"), Node::dir("sub/empty")];
    let dirs = ["parts", "gone/parts", "sub/parts"].map(inside);
    Tree::of(old.into_iter().chain(dirs.into_iter().flatten())).plant(&at.join("dst"));
}

#[test]
fn directory_of_unfinished_files_is_neither_copied_nor_removed() {
    for options in [
        &["--delete", "--partial-dir=parts"][..],
        &["--delete", "--partial-dir=parts/"],
        &["--delete", "--delete-excluded", "--partial-dir=parts"],
        &["--delete", "--partial-dir=parts", "--include=*/"],
        &["--delete", "--partial-dir=."],
        &["--partial-dir=parts"],
    ] {
        as_rsync(plant_parts, options);
    }
    let scratch = as_rsync(plant_parts, &["--delete", "--partial-dir=parts"]);
    assert!(scratch.at("ours/dst/parts/f").exists() && !scratch.at("ours/dst/gone").exists());
}

#[test]
fn files_that_were_written_elsewhere_are_those_of_rsync() {
    let plant = |at: &Path| {
        plant_replacements(at);
        fs::create_dir(at.join("dst/tmp")).unwrap();
    };
    for dir in ["tmp", "/dev/shm"] {
        as_rsync(plant, &["-T", dir]);
        as_rsync(plant, &["-T", dir, "--inplace"]);
        let scratch = as_rsync(plant, &["-T", dir, "--backup-dir=../kept"]);
        assert_eq!(fs::read_dir(scratch.at("ours/dst/tmp")).unwrap().count(), 0);
    }
    as_rsync(plant, &["-T", "/dev/shm", "-b", "--delete", "--backup-dir=../kept"]);
}

#[test]
fn files_that_get_their_names_at_the_end_are_those_of_rsync() {
    for options in [
        &["--delay-updates"][..],
        &["--delay-updates", "--delete", "--force"],
        &["--delay-updates", "-b", "--suffix=.old"],
        &["--delay-updates", "--backup-dir=../kept", "--delete-before"],
        &["--delay-updates", "--partial-dir=parts", "--delete-during"],
        &["--delay-updates", "--remove-source-files"],
        &["--delay-updates", "-T", "/dev/shm"],
        &["--delay-updates", "--existing"],
    ] {
        as_rsync(plant_replacements, options);
    }
    for option in ["link", "copy", "compare"] {
        let options = [format!("--{option}-dest=../first"), format!("--{option}-dest=../second")];
        let options: Vec<&str> = options.iter().map(String::as_str).chain(["--delay-updates"]).collect();
        let scratch = as_rsync(plant_alternates, &options);
        assert_same(&scratch.at("theirs/dst"), &scratch.at("ours/dst"), Scope::full());
    }
}

#[test]
fn removed_entries_are_kept_beside_the_others() {
    // rsync also lists entries that it then does not remove, so compare only the results.
    let scratch = Scratch::new();
    for (program, at) in [("rsync", "theirs"), ("", "ours")] {
        let at = scratch.at(at);
        fs::create_dir(&at).unwrap();
        plant_replacements(&at);
        for _ in 0..2 {
            let run = if program.is_empty() { Run::dsync() } else { Run::of(program) };
            let _ = run.args(["-ab", "--delete", "src/", "dst/"]).cwd(&at).run().expect_code(0);
        }
    }
    assert_same(&scratch.at("theirs"), &scratch.at("ours"), without_dir_times());
}

/// Plants files in every relation to those of two alternate directories.
fn plant_alternates(at: &Path) {
    let names = ["same", "other mode", "other time", "other content", "second"];
    let files = || names.iter().zip(1..).map(|(name, seed)| Node::file(*name, seed, 3000));
    Tree::of(files().chain([
        Node::file("new", 8, 10),
        Node::symlink("link", "text"),
        Node::symlink("other link", "text"),
        Node::dir("sub"),
        Node::file("sub/in", 9, 40),
        Node::file("standing", 10, 50),
        Node::file("up to date", 11, 60),
    ]))
    .plant(&at.join("src"));
    let first = [
        Node::file("same", 1, 3000),
        Node { mode: 0o600, ..Node::file("other mode", 2, 3000) },
        Node { mtime: (1_200_000_000, 0), ..Node::file("other time", 3, 3000) },
        Node { mtime: (1_200_000_000, 0), ..Node::file("other content", 77, 3001) },
        Node { mode: 0o600, ..Node::file("second", 5, 3000) },
        Node::symlink("link", "text"),
        Node::symlink("other link", "other"),
        Node::dir("sub"),
        Node::file("sub/in", 9, 40),
        Node::file("standing", 10, 50),
        Node::file("up to date", 11, 60),
    ];
    Tree::of(first).plant(&at.join("first"));
    Tree::of([Node::file("second", 5, 3000)]).plant(&at.join("second"));
    Tree::of([
        Node { mtime: (1_200_000_000, 0), ..Node::file("standing", 88, 51) },
        Node::file("up to date", 11, 60),
    ])
    .plant(&at.join("dst"));
}

#[test]
fn alternate_directories_are_used_as_by_rsync() {
    for option in ["link", "copy", "compare"] {
        let options = [format!("--{option}-dest=../first"), format!("--{option}-dest=../second")];
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let scratch = as_rsync(plant_alternates, &options);
        assert_same(&scratch.at("theirs/dst"), &scratch.at("ours/dst"), Scope::full());
        if option == "link" {
            let inode = |path: &str| fs::metadata(scratch.at(path)).unwrap().ino();
            for (linked, to) in [("same", "first"), ("second", "second"), ("standing", "first")] {
                assert_eq!(inode(&format!("ours/dst/{linked}")), inode(&format!("ours/{to}/{linked}")));
            }
            let own = fs::metadata(scratch.at("ours/dst/other mode")).unwrap();
            assert_eq!(own.nlink(), 1, "an alternate file must not get other attributes");
        }
    }
}

#[test]
fn what_a_run_leaves_alone_is_not_linked_to_an_alternate() {
    let scratch = as_rsync(plant_alternates, &["--link-dest=../first", "--min-size=100"]);
    for who in ["ours", "theirs"] {
        assert_eq!(fs::metadata(scratch.at(who).join("dst/up to date")).unwrap().nlink(), 1, "{who}");
    }
}

#[test]
fn a_link_to_an_equal_file_leaves_no_backup() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant_alternates(scratch.path());
    let run = Run::dsync().args(["-ab", "--link-dest=../first", "src/", "dst/"]).cwd(scratch.path());
    let _ = run.run().expect_quiet_success();
    assert_eq!(fs::metadata(scratch.at("dst/up to date")).unwrap().nlink(), 2);
    assert!(!scratch.at("dst/up to date~").exists());
    assert_eq!(fs::metadata(scratch.at("dst/standing~")).unwrap().len(), 51, "another file is kept");
}

#[test]
fn absent_alternate_directory_has_nothing() {
    as_rsync(plant_alternates, &["--link-dest=../none", "--link-dest=../first"]);
}

#[test]
fn first_of_a_row_of_copies_needs_no_alternate_directory() {
    needs_dsync!();
    let sshd = Sshd::shared();
    for (from, remote) in [("../latest", false), ("../latest", true), ("@/latest", false), ("@/latest", true)]
    {
        let scratch = Scratch::new();
        plant_alternates(scratch.path());
        let row = scratch.at("row");
        fs::create_dir(&row).unwrap();
        fs::write(row.join("log"), "a file of the script's").unwrap();
        let option = format!("--link-dest={}", from.replace('@', &row.display().to_string()));
        let copy = |day: &str| {
            let run = if remote { sshd.run(Via::Tls) } else { Run::dsync() };
            let run = run.args(["-a", &option]).arg(slash(&scratch.src()));
            let to = row.join(day);
            if remote { run.arg(sshd.operand(to)) } else { run.arg(to) }.run()
        };

        let first = copy("1").expect_code(0);
        assert!(first.stderr_text().contains("does not exist"), "{}", first.account());
        // Again into the same directory, after an interrupt perhaps: still the first.
        let _ = copy("1").expect_code(0);
        let second = copy("2").expect_code(3);
        assert!(second.stderr_text().contains("none of the alternate directories exists"));
        assert!(!row.join("2").exists());
    }
}

#[test]
fn linked_tree_is_pushed_and_pulled() {
    needs_dsync!();
    let sshd = Sshd::shared();
    for push in [true, false] {
        let scratch = Scratch::new();
        plant_alternates(scratch.path());
        let run =
            sshd.run(Via::Auto).args(["-a", "--stats", "--link-dest=../first", "--link-dest=../second"]);
        let run = if push {
            run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst()))
        } else {
            run.arg(sshd.operand(slash(&scratch.src()))).arg(scratch.dst())
        };
        let outcome = run.run().expect_code(0);
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
        assert_eq!(fs::metadata(scratch.dst().join("same")).unwrap().nlink(), 2);
        // The three that no directory has.
        assert_eq!(outcome.stat("Number of regular files transferred"), 3, "{}", outcome.account());
    }
}

#[test]
fn directory_of_unfinished_files_that_the_run_did_not_make_goes_only_as_it_is_listed() {
    needs_dsync!();
    let sshd = Sshd::shared();
    for mode in [0o755, 0o700] {
        for (options, goes) in [
            (&["--delete"][..], false),
            (&["--delete-excluded"], true),
            (&["--delete-excluded", "--delete-before"], true),
            (&["--delete-excluded", "--delete-during"], true),
            (&["--delete-excluded", "--delete-after"], true),
        ] {
            let (scratch, listed) = (Scratch::new(), ["-n", "-t"]);
            let old = || Node::new("f", Kind::File(Content::random(78, MIB)));
            Tree::of([old(), Node { mode, ..Node::dir("parts") }]).plant(&scratch.dst());
            Tree::of([Node { mtime: (1_500_000_000, 0), ..old() }]).plant(&scratch.src());
            let listed = listed.map(|dry| {
                let run = sshd.run(Via::Tls).args(["-ai", dry, "--partial-dir=parts"]).args(options);
                let run = run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst()));
                run.run().expect_code(0).stdout_text()
            });
            assert_eq!(listed[0], listed[1], "{mode:o} {options:?}");
            assert_eq!(listed[1].contains("*deleting   parts/\n"), goes, "{mode:o} {options:?}");
            // One that only the owner may enter is taken for that of an earlier run.
            let stays = !goes && mode != 0o700;
            assert_eq!(scratch.dst().join("parts").exists(), stays, "{mode:o} {options:?}");
        }
    }
}

/// Updates `dst/f` in place over `via` after `change`, and returns the run.
fn updated_in_place(push: Option<bool>, change: impl Fn(&Path)) -> (Scratch, Outcome) {
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    let old = || Node::new("f", Kind::File(Content::random(77, 8 * MIB)));
    Tree::of([old()]).plant(&scratch.dst());
    Tree::of([Node { mtime: (1_500_000_000, 0), ..old() }]).plant(&scratch.src());
    change(&scratch.src().join("f"));
    let inode = fs::metadata(scratch.dst().join("f")).unwrap().ino();
    fs::hard_link(scratch.dst().join("f"), scratch.at("witness")).unwrap();
    let (src, dst) = (slash(&scratch.src()), scratch.dst());
    let options = ["-a", "--stats", "--inplace"];
    let run = match push {
        None => Run::dsync().args(options).arg(src).arg(dst),
        Some(true) => sshd.run(Via::Auto).args(options).arg(src).arg(sshd.operand(dst)),
        Some(false) => sshd.run(Via::Auto).args(options).arg(sshd.operand(src)).arg(dst),
    };
    let outcome = run.run().expect_code(0);
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    assert_eq!(fs::metadata(scratch.dst().join("f")).unwrap().ino(), inode, "the file was replaced");
    assert_eq!(fs::read(scratch.at("witness")).unwrap(), fs::read(scratch.src().join("f")).unwrap());
    (scratch, outcome)
}

#[test]
fn file_written_in_place_keeps_its_inode_and_its_delta() {
    needs_dsync!();
    for push in [None, Some(true), Some(false)] {
        let (_, outcome) = updated_in_place(push, |path| {
            let mut new = fs::read(path).unwrap();
            // Everything behind is shifted, two parts change places, and there are zeros.
            new.splice(100_000..100_000, noise(5, 1000));
            new.rotate_left(3_000_000);
            new.extend([0; 300_000]);
            fs::write(path, new).unwrap();
        });
        if push.is_some() {
            assert!(outcome.stat("Literal data") < MIB, "the delta was lost\n{}", outcome.account());
        }
    }
}

#[test]
fn file_written_in_place_shrinks_and_may_be_small_or_empty() {
    needs_dsync!();
    for len in [0, 5, 3 * MIB + 17] {
        for push in [None, Some(true)] {
            let _ = updated_in_place(push, |path| {
                fs::OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
                tree::set_mtime(path, (1_600_000_000, 0));
            });
        }
    }
}

#[test]
fn options_that_exclude_each_other_are_refused_as_by_rsync() {
    let scratch = Scratch::new();
    plant_alternates(scratch.path());
    for options in [
        &["-b", "--suffix=a/b"][..],
        &["-b", "--suffix="],
        &["--link-dest=../first", "--copy-dest=../first"],
        &["--inplace", "--partial-dir=parts"],
        &["--inplace", "--delay-updates"],
        &["-T", "none"],
        &["--temp-dir=../src/same"],
    ] {
        for run in [Run::dsync(), Run::of("rsync")] {
            let _ =
                run.arg("-a").args(options).args(["src/", "dst/"]).cwd(scratch.path()).run().expect_code(1);
        }
    }
}

#[test]
fn preallocated_file_is_the_same_file() {
    let scratch = Scratch::new();
    let content = Content { seed: 3, len: 3 * MIB, style: Style::Holes };
    Tree::of([
        Node::new("sparse", Kind::File(content)),
        Node::file("empty", 1, 0),
        Node::file("small", 2, 9),
    ])
    .plant(&scratch.src());
    let run = Run::dsync().args(["-a", "--preallocate"]).arg(slash(&scratch.src())).arg(scratch.dst());
    let _ = run.run().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.dst(), Scope::CONTENT);
    assert!(fs::metadata(scratch.dst().join("sparse")).unwrap().blocks() * 512 >= 3 * MIB);
}

/// Mounts a filesystem that shares extents; returns `None` with the test recorded as skipped.
fn sharing_filesystem(scratch: &Scratch) -> Option<Mount> {
    let (image, at) = (scratch.at("xfs.img"), scratch.at("xfs"));
    fs::create_dir(&at).unwrap();
    fs::File::create(&image).unwrap().set_len(400 * MIB).unwrap();
    let _ = Run::of("mkfs.xfs")
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .args(["-q", "-m", "reflink=1"])
        .arg(&image)
        .run()
        .expect_code(0);
    Mount::with(&["-o".as_ref(), "loop".as_ref(), image.as_os_str()], &at)
}

#[test]
fn update_on_a_filesystem_that_shares_extents_writes_what_changed() {
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    let Some(xfs) = sharing_filesystem(&scratch) else { return };
    let old = || Node::new("f", Kind::File(Content::random(77, 64 * MIB)));
    Tree::of([Node { mtime: (1_500_000_000, 0), ..old() }]).plant(&scratch.src());
    let source = fs::OpenOptions::new().write(true).open(scratch.src().join("f")).unwrap();
    let mut changed = 0;
    for block in (0..64 * MIB / 4096).step_by(100) {
        source.write_all_at(&noise(block + 1, 4096), block * 4096).unwrap();
        changed += 4096;
    }
    for (name, run, from) in [
        ("local", Run::dsync(), slash(&scratch.src())),
        ("remote", sshd.run(Via::Auto), sshd.operand(slash(&scratch.src()))),
    ] {
        let dst = xfs.path().join(name);
        Tree::of([old()]).plant(&dst);
        let outcome = run.counting_io().arg("-a").arg(from).arg(&dst).run().expect_code(0);
        assert_same(&scratch.src(), &dst, Scope::full());
        let written = outcome.stat("wchar");
        assert!(written <= 2 * changed, "{name}: {written} bytes written for {changed} changed");
    }
}
