//! The promise of exit code 0 about the disk.

use std::{fs, path::Path};

use dsync_tests::{
    Node, Outcome, Run, Scope, Scratch, Sshd, Stingy, Tree, Via, assert_same, differences, needs_dsync,
    power::{Disk, Format},
    scratch::slash,
};

fn disk(scratch: &Scratch) -> Option<Disk> {
    Disk::create(scratch.path(), Format::Ext4, 128)
}

fn plant(scratch: &Scratch) {
    Tree::sample().plant(&scratch.src());
    let many = (0..200).map(|index| Node::file(format!("many {index}"), index, 3000));
    Tree::of(many).plant(&scratch.src());
}

fn copy(scratch: &Scratch, to: &Path, options: &[&str]) -> Outcome {
    Run::dsync().arg("-a").args(options).arg(slash(&scratch.src())).arg(to).run().expect_code(0)
}

#[test]
fn power_cut_after_a_plain_copy_loses_data() {
    // The control: without it the other tests could pass because the cut cuts nothing.
    let scratch = Scratch::new();
    let Some(disk) = disk(&scratch) else { return };
    plant(&scratch);
    let to = disk.path().join("dst");
    let _ = Run::of("cp").arg("-a").arg(scratch.src()).arg(&to).run().expect_code(0);
    disk.cut_power();
    assert!(!to.exists() || !differences(&scratch.src(), &to, Scope::CONTENT).is_empty());
}

#[test]
fn exit_zero_survives_a_power_cut() {
    needs_dsync!();
    for options in [&[][..], &["--durability=batch"], &["--durability=file"]] {
        let scratch = Scratch::new();
        let Some(disk) = disk(&scratch) else { return };
        plant(&scratch);
        let to = disk.path().join("dst");
        let _ = copy(&scratch, &to, options);
        disk.cut_power();
        assert_same(&scratch.src(), &to, Scope::full());
    }
}

/// A filesystem in user space hears of no sync but those of files and directories.
#[test]
fn exit_zero_survives_a_power_cut_below_a_filesystem_in_user_space() {
    needs_dsync!();
    for options in [&[][..], &["--durability=file"]] {
        let scratch = Scratch::new();
        let Some(disk) = disk(&scratch) else { return };
        let files = (0..40).map(|number| Node::file(format!("d/f{number}"), number, 3000));
        Tree::of([Node::dir("d")].into_iter().chain(files)).plant(&scratch.src());
        let (behind, to) = (disk.path().join("behind"), scratch.at("to"));
        fs::create_dir_all(behind.join("tree")).unwrap();
        fs::write(behind.join("tree/old"), "old").unwrap();
        fs::create_dir(&to).unwrap();
        let _ = Run::of("sync").run().expect_code(0);

        let Some(shown) = Stingy::mount(&behind, &to) else { return };
        let _ = copy(&scratch, &to.join("tree"), &[&["--no-o", "--no-g"], options].concat());
        let (files, directories) = shown.syncs();
        assert!(files >= 40 && directories >= 1, "{files} files and {directories} directories were synced");
        drop(shown);
        disk.cut_power();
        for number in 0..40 {
            let name = format!("d/f{number}");
            let there = fs::read(behind.join("tree").join(&name)).unwrap_or_default();
            assert!(there == fs::read(scratch.src().join(&name)).unwrap(), "{name} {options:?}");
        }
    }
}

#[test]
fn hard_links_survive_a_power_cut() {
    needs_dsync!();
    for options in [&["-H"][..], &["-H", "--durability=file"]] {
        let scratch = Scratch::new();
        let Some(disk) = disk(&scratch) else { return };
        plant(&scratch);
        let further =
            (0..200).map(|index| Node::hard_link(format!("again {index}"), format!("many {index}")));
        Tree::of(further).plant(&scratch.src());
        let to = disk.path().join("dst");
        let _ = copy(&scratch, &to, options);
        disk.cut_power();
        assert_same(&scratch.src(), &to, Scope { links: true, ..Scope::full() });
    }
}

#[test]
fn update_and_deletion_survive_a_power_cut() {
    needs_dsync!();
    for options in [&["--delete"][..], &["--delete", "--durability=file"]] {
        let scratch = Scratch::new();
        let Some(disk) = disk(&scratch) else { return };
        plant(&scratch);
        let to = disk.path().join("dst");
        let _ = copy(&scratch, &to, options);
        let src = scratch.src();
        fs::remove_file(src.join("many 7")).unwrap();
        fs::write(src.join("many 8"), "other content now").unwrap();
        fs::remove_dir(src.join("empty dir")).unwrap();
        fs::remove_file(src.join("link")).unwrap();
        std::os::unix::fs::symlink("elsewhere", src.join("link")).unwrap();
        dsync_tests::tree::set_mode(&src.join("many 9"), 0o600);
        fs::create_dir(src.join("new dir")).unwrap();
        let _ = copy(&scratch, &to, options);
        disk.cut_power();
        assert_same(&src, &to, Scope::full());
    }
}

#[test]
fn pushed_tree_survives_a_power_cut_of_the_remote_host() {
    needs_dsync!();
    for via in Via::EACH {
        let (scratch, sshd) = (Scratch::new(), Sshd::shared());
        let Some(disk) = disk(&scratch) else { return };
        plant(&scratch);
        let to = disk.path().join("dst");
        let _ = sshd
            .run(via)
            .arg("-a")
            .arg(slash(&scratch.src()))
            .arg(sshd.operand(&to))
            .run()
            .expect_quiet_success();
        disk.cut_power();
        assert_same(&scratch.src(), &to, Scope::full());
    }
}

#[test]
fn power_cut_during_an_update_leaves_each_name_old_or_new() {
    needs_dsync!();
    for (moment, options) in
        [(20, ""), (60, ""), (150, ""), (300, ""), (30, "--durability=file"), (90, "--durability=file")]
    {
        let scratch = Scratch::new();
        let Some(disk) = disk(&scratch) else { return };
        let tree = |seed, mtime| {
            Tree::of((0..60_u64).map(move |index| Node {
                mtime: (mtime, 0),
                ..Node::file(format!("f{index}"), seed + index, 300_000)
            }))
        };
        tree(0, 1_000_000_000).plant(&scratch.at("old"));
        tree(1000, 1_000_000_001).plant(&scratch.src());
        let to = disk.path().join("dst");
        let _ = Run::of("cp").arg("-a").arg(scratch.at("old")).arg(&to).run().expect_code(0);
        let _ = Run::of("sync").run().expect_code(0);
        let run = Run::dsync().arg("-a").args(Some(options).filter(|option| !option.is_empty()));
        let running = run.arg(slash(&scratch.src())).arg(&to).start();
        std::thread::sleep(std::time::Duration::from_millis(moment));
        // Killed first, because a live process would keep the dead filesystem busy.
        running.signal(rustix::process::Signal::KILL);
        let _ = running.wait();
        disk.cut_power();
        for index in 0..60 {
            let name = format!("f{index}");
            let [old, new, now] = [scratch.at("old"), scratch.src(), to.clone()]
                .map(|dir| dsync_tests::compare::sum(&dir.join(&name)));
            assert!(now == old || now == new, "{name} is neither old nor new after a cut at {moment} ms");
        }
        let _ = copy(&scratch, &to, &[]);
        assert_same(&scratch.src(), &to, Scope::full());
        assert_eq!(dsync_tests::compare::temporaries(&to), Vec::<String>::new());
    }
}

#[test]
fn summary_says_when_nothing_was_synced() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    let outcome = copy(&scratch, &scratch.dst(), &["-v", "--durability=none"]);
    assert!(outcome.all_text().contains("--durability=none"), "{}", outcome.account());
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
}
