//! Runs that work below one another, or in one directory by two names: each leaves alone the
//! entries of a live run.

use std::{fs, os::unix::fs::symlink};

use dsync_tests::{
    Node, Run, Running, Scratch, Tree,
    compare::temporaries,
    needs_dsync,
    run::{catch, until_met},
    scratch::slash,
    unfinished,
};
use rustix::process::Signal;

/// Starts a run into `dst/sub` and stops it in the middle of a file: it has then locked its directory.
/// A run that is stopped before may lose its lock file, makes another, and has nothing else to lose.
fn stopped_within(scratch: &Scratch) -> Running {
    // Of one segment: a longer one has a part in the place of a temporary.
    Tree::of([Node::file("long", 7, 1 << 20)]).plant(&scratch.at("inner"));
    fs::create_dir_all(scratch.at("dst/sub")).expect("a directory");
    until_met(|| {
        let _ = fs::remove_file(scratch.at("dst/sub/long"));
        let run = Run::dsync().args(["-a", "--bwlimit=500K"]).arg(slash(&scratch.at("inner")));
        let running = run.arg(scratch.at("dst/sub")).start();
        if catch(running.id(), || unfinished::kept(&scratch.at("dst/sub"), ".dsync-tmp-").is_some()) {
            return Some(running);
        }
        let _ = running.wait();
        None
    })
}

#[test]
fn run_above_another_leaves_its_temporaries_alone() {
    needs_dsync!();
    for options in [&["-a"][..], &["-a", "--delete", "--exclude=/long"]] {
        let scratch = Scratch::new();
        let inner = stopped_within(&scratch);
        let hidden = unfinished::hidden(&scratch.at("dst/sub"));
        Tree::of([Node::dir("sub"), Node::file("sub/theirs", 1, 10)]).plant(&scratch.src());
        let outer = Run::dsync().args(options).arg(slash(&scratch.src())).arg(scratch.dst());
        let _ = outer.run().expect_quiet_success();
        assert_eq!(unfinished::hidden(&scratch.at("dst/sub")), hidden, "{options:?}");
        inner.signal(Signal::CONT);
        let _ = inner.wait().expect_quiet_success();
        assert_eq!(fs::read(scratch.at("inner/long")).ok(), fs::read(scratch.at("dst/sub/long")).ok());
    }
}

#[test]
fn what_a_killed_run_left_goes_with_the_next_run_above() {
    needs_dsync!();
    let scratch = Scratch::new();
    let inner = stopped_within(&scratch);
    inner.signal(Signal::KILL);
    let _ = inner.wait();
    assert!(!temporaries(&scratch.dst()).is_empty());
    Tree::of([Node::dir("sub")]).plant(&scratch.src());
    let outer = Run::dsync().args(["-a", "--delete"]).arg(slash(&scratch.src())).arg(scratch.dst());
    let _ = outer.run().expect_quiet_success();
    assert_eq!(temporaries(&scratch.dst()), Vec::<String>::new());
}

#[test]
fn directory_with_two_names_gets_the_files_of_both() {
    needs_dsync!();
    let scratch = Scratch::new();
    let files = |dir: &'static str, seed| {
        (0..60_u64).map(move |n| Node::file(format!("{dir}/{dir}{n}"), seed + n, 3000))
    };
    let dirs = [Node::dir("a"), Node::dir("b")];
    Tree::of(dirs.into_iter().chain(files("a", 1)).chain(files("b", 100))).plant(&scratch.src());
    for _ in 0..12 {
        let _ = fs::remove_dir_all(scratch.dst());
        fs::create_dir_all(scratch.at("dst/b")).expect("a directory");
        symlink("b", scratch.at("dst/a")).expect("a link");
        let run = Run::dsync().args(["-aK"]).arg(slash(&scratch.src())).arg(scratch.dst());
        let _ = run.run().expect_quiet_success();
        for dir in ["a", "b"] {
            for n in 0..60 {
                let path = format!("{dir}{n}");
                let (there, here) =
                    (scratch.at(&format!("src/{dir}/{path}")), scratch.at(&format!("dst/b/{path}")));
                assert_eq!(fs::read(there).ok(), fs::read(here).ok(), "{path}");
            }
        }
        assert_eq!(temporaries(&scratch.dst()), Vec::<String>::new());
    }
}

#[test]
fn new_directories_in_one_with_two_names_get_the_files_of_both() {
    needs_dsync!();
    for _ in 0..3 {
        let scratch = Scratch::new();
        for number in 0..300 {
            for (directory, file) in [("a", "one"), ("link", "two")] {
                let at = scratch.src().join(format!("{directory}/{number}"));
                fs::create_dir_all(&at).unwrap();
                fs::write(at.join(file), file).unwrap();
            }
        }
        fs::create_dir_all(scratch.dst().join("a")).unwrap();
        symlink("a", scratch.dst().join("link")).unwrap();

        let run = Run::dsync().args(["-aK"]).arg(slash(&scratch.src())).arg(scratch.dst());
        let _ = run.run().expect_quiet_success();
        for number in 0..300 {
            for file in ["one", "two"] {
                assert!(scratch.dst().join(format!("a/{number}/{file}")).exists(), "{number}/{file}");
            }
        }
    }
}
