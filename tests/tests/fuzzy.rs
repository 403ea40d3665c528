//! `--fuzzy`: new files are made from old ones of other names, and are the source's whatever those
//! were.

use std::fs;

use dsync_tests::{
    Node, Outcome, Scope, Scratch, Sshd, Tree, Via, assert_same, needs_dsync, scratch::slash, tree::noise,
};

const LEN: usize = 1 << 20;

/// Copies `src` to `dst` over a shell and returns the outcome; the trees are equal then.
fn push(scratch: &Scratch, options: &[&str]) -> Outcome {
    let sshd = Sshd::shared();
    let run = sshd.run(Via::Ssh).args(["-a", "--stats"]).args(options).arg(slash(&scratch.src()));
    let outcome = run.arg(sshd.operand(scratch.dst())).run().expect_code(0);
    assert_same(&scratch.src(), &scratch.dst(), Scope { dir_times: false, ..Scope::full() });
    outcome
}

/// Plants a file in the source, and one that differs by little, of another name, at `old`.
fn plant(scratch: &Scratch, name: &str, old: &str) {
    let mut content = noise(7, LEN);
    fs::create_dir_all(scratch.src().join("d")).unwrap();
    fs::write(scratch.src().join("d").join(name), &content).unwrap();
    let old = scratch.path().join(old);
    fs::create_dir_all(old.parent().unwrap()).unwrap();
    content[LEN / 2] ^= 1;
    fs::write(&old, content).unwrap();
    dsync_tests::tree::set_mtime(&old, (1_300_000_000, 0));
}

#[test]
fn a_new_file_is_made_from_the_most_similar_one() {
    needs_dsync!();
    for (options, name, old, matches) in [
        (&["-y"][..], "app-1.3.tar", "dst/d/app-1.2.tar", true),
        (&["--fuzzy"], "app-1.3.tar", "dst/d/app-1.2.tar", true),
        (&["-y", "--inplace"], "app-1.3.tar", "dst/d/app-1.2.tar", true),
        (&["-y", "--delay-updates"], "app-1.3.tar", "dst/d/app-1.2.tar", true),
        (&[], "app-1.3.tar", "dst/d/app-1.2.tar", false),
        (&["-y", "--no-fuzzy"], "app-1.3.tar", "dst/d/app-1.2.tar", false),
        (&["-yW"], "app-1.3.tar", "dst/d/app-1.2.tar", false),
        (&["-y"], "app-1.3.tar", "dst/d/a name that has nothing to do with it", false),
        (&["-y"], "app-1.3.tar", "dst/other/app-1.2.tar", false),
        (&["-y", "--link-dest=../alt"], "app-1.3.tar", "alt/d/app-1.2.tar", false),
        (&["-yy", "--link-dest=../alt"], "app-1.3.tar", "alt/d/app-1.2.tar", true),
        (&["-yy", "--compare-dest=../alt"], "app-1.3.tar", "alt/d/app-1.2.tar", true),
    ] {
        let scratch = Scratch::new();
        plant(&scratch, name, old);
        let old_content = fs::read(scratch.path().join(old)).unwrap();
        let sshd = Sshd::shared();
        let run = sshd.run(Via::Ssh).args(["-a", "--stats"]).args(options).arg(slash(&scratch.src()));
        let outcome = run.arg(sshd.operand(scratch.dst())).run().expect_code(0);
        let matched = outcome.stat("Matched data");
        assert_eq!(matched > LEN as u64 / 2, matches, "{options:?} {old}: {}", outcome.account());
        let new = |root: std::path::PathBuf| fs::read(root.join("d").join(name)).unwrap();
        assert!(new(scratch.src()) == new(scratch.dst()), "{options:?} {old}");
        // The basis itself is never touched.
        assert!(fs::read(scratch.path().join(old)).unwrap() == old_content, "{options:?} {old}");
    }
}

#[test]
fn a_file_of_the_same_size_and_time_is_the_basis_whatever_its_name() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch, "new", "dst/d/quite another name than that of the new file");
    fs::write(scratch.at("dst/d/neu"), noise(9, LEN)).unwrap();
    for path in ["src/d/new", "dst/d/quite another name than that of the new file"] {
        dsync_tests::tree::set_mtime(&scratch.at(path), (1_400_000_000, 5));
    }
    let outcome = push(&scratch, &["-y", "--delete"]);
    assert!(outcome.stat("Matched data") > LEN as u64 / 2, "{}", outcome.account());
}

#[test]
fn many_similar_files_and_a_pull_end_with_the_sources_content() {
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    let files = |from: u64| (from..from + 20).map(|n| Node::file(format!("log.{n}"), n / 2, 40_000 + n));
    Tree::of(files(10)).plant(&scratch.src());
    Tree::of(files(0)).plant(&scratch.dst());
    for options in [&["-ayn"][..], &["-ay", "--delete-before"], &["-ay", "--delete"]] {
        let run = sshd.run(Via::Auto).args(options).arg(sshd.operand(slash(&scratch.src())));
        let _ = run.arg(scratch.dst()).run().expect_quiet_success();
    }
    assert_same(&scratch.src(), &scratch.dst(), Scope { dir_times: false, ..Scope::full() });
    // A local run takes the option too.
    let run = dsync_tests::Run::dsync().args(["-ay"]).arg(slash(&scratch.src())).arg(scratch.at("local"));
    let _ = run.run().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.at("local"), Scope { dir_times: false, ..Scope::full() });
}
