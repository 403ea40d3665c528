//! Operands that name shares, beside each other and beside options: they mean what the same paths mean to
//! rsync and to a run of this machine, and what cannot be meant is named as it was typed.

use std::{collections::BTreeSet, fs, path::Path};

use dsync_tests::{Run, needs_dsync, scratch::slash};

use crate::nas::Nas;

/// Makes a share with `src/dir/sub/deep` and `src/a` in the key's directory.
fn planted() -> Nas {
    let nas = Nas::standing("full");
    fs::create_dir_all(nas.place().join("src/dir/sub")).unwrap();
    fs::write(nas.place().join("src/dir/sub/deep"), "deep").unwrap();
    fs::write(nas.place().join("src/a"), "a").unwrap();
    nas
}

/// Returns the files below a directory.
fn files(at: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut left = vec![at.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().unwrap().is_dir() {
                left.push(entry.path());
            } else {
                found.insert(entry.path().strip_prefix(at).unwrap().display().to_string());
            }
        }
    }
    found
}

#[test]
fn relative_paths_of_a_share_are_cut_where_those_of_a_directory_are() {
    needs_dsync!();
    let nas = planted();
    let paths = [
        "./src/./dir/sub",
        "././src/./dir/sub",
        "./src/dir/./sub",
        "src/./dir/sub",
        "src/./dir/./sub",
        "./src/dir/sub",
        "src/dir/sub",
        "./src",
        ".",
    ];
    for (number, path) in paths.into_iter().enumerate() {
        let [here, there] = ["here", "there"].map(|way| nas.scratch.at(&format!("{way}{number}")));
        let _ = Run::dsync().cwd(&nas.place()).args(["-aR", path]).arg(slash(&here)).run().expect_code(0);
        let _ = nas.run().arg("-aR").arg(nas.operand(path)).arg(slash(&there)).run().expect_code(0);
        assert!(!files(&here).is_empty());
        assert_eq!(files(&here), files(&there), "{path}");
    }
}

#[test]
fn two_colons_name_the_server_of_the_source_before() {
    needs_dsync!();
    let nas = planted();
    let got = nas.scratch.at("got");
    let run = nas.run().arg("-a").arg(nas.operand("src/dir/")).args(["::nas/src/a"]).arg(slash(&got));
    let _ = run.run().expect_quiet_success();
    assert_eq!(files(&got), ["a", "sub/deep"].map(String::from).into());
}

/// Runs a command at a share that has to fail with 1, and returns its words.
fn refused(run: Run) -> String {
    run.run().expect_code(1).stderr_text()
}

#[test]
fn sources_of_two_shares_are_refused_as_such() {
    needs_dsync!();
    let nas = planted();
    let other = nas.operand("x").replace("/nas/", "/other/");
    let run = || nas.run().arg("-a").arg(nas.operand("src/a"));
    let said = refused(run().arg(&other).arg(nas.scratch.at("got")));
    assert!(said.contains(&format!("must be in one share, and '{other}' is not in")), "{said}");
    let said = refused(run().arg("x").arg(nas.scratch.at("got")));
    assert!(said.contains("a path there is written '::nas/x'"), "{said}");
    // The last one is the destination.
    for destination in [other.as_str(), "host:x"] {
        let said = refused(run().arg(destination));
        assert!(said.contains("both source and destination are remote"), "{said}");
    }
}
