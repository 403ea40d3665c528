//! A source whose disk lets every reader wait: dsync asks it for many things at once.

use std::{fs, os::unix::fs::FileExt, path::Path, sync::Arc};

use dsync_tests::{
    Node, Outcome, Run, Scope, Scratch, SlowDisk, Sshd, Tree, Via, assert_same, every_way,
    run::until_met,
    scratch::slash,
    slow_disk::{ENOUGH, Gate, Reads},
};

/// Directories of the tree, and files in each.
const DIRS: u64 = 100;
const FILES: u64 = 5;
/// Bytes of a file: enough for a delta to be asked for.
const LEN: u64 = 20_000;

/// Plants a tree whose files have contents of their own for each `seed`.
fn plant(behind: &Path, seed: u64) {
    let nodes = (0..DIRS).flat_map(|dir| {
        let files =
            (0..FILES).map(move |file| Node::file(format!("d{dir}/f{file}"), seed + dir * FILES + file, LEN));
        std::iter::once(Node::dir(format!("d{dir}"))).chain(files)
    });
    Tree::of(nodes).plant(behind);
}

#[test]
fn content_and_names_are_asked_for_ahead() {
    let scratch = Scratch::new();
    let behind = scratch.at("behind");
    plant(&behind, 0);

    every_way(&scratch, &["-a"], |run, destination| {
        // How many wait at once depends on the machine as well.
        until_met(|| {
            let Some(disk) = SlowDisk::mount(&behind, &scratch.src()) else { return Some(()) };
            let _ = run().run().expect_quiet_success();
            assert_same(&behind, destination, Scope::full());

            let is_ahead = disk.reads_at_once() >= ENOUGH && disk.listings_at_once() >= ENOUGH;
            fs::remove_dir_all(destination).unwrap();
            is_ahead.then_some(())
        });
    });
}

/// Levels of a tree in which each directory has two.
const LEVELS: u32 = 7;

/// Returns the directories of that tree.
fn narrow_tree() -> Tree {
    let path = |number: u32, level: u32| -> String {
        let names: Vec<_> = (0..level).map(|bit| format!("d{}", number >> bit & 1)).collect();
        names.join("/")
    };
    let of_level = |level| (0..1_u32 << level).map(move |number| Node::dir(path(number, level)));
    Tree::of((1..=LEVELS).flat_map(of_level))
}

#[test]
fn directories_of_a_destination_are_read_before_their_parents_are_compared() {
    let scratch = Scratch::new();
    let (behind, old) = (scratch.at("behind"), scratch.at("old"));
    narrow_tree().plant(&behind);
    narrow_tree().plant(&scratch.src());
    fs::create_dir(&old).unwrap();

    let sshd = Sshd::shared();
    let ways = [(None, old.clone().into_os_string()), (Some(Via::Ssh), sshd.operand(&old))];
    for (via, destination) in ways {
        until_met(|| {
            let Some(disk) = SlowDisk::mount(&behind, &old) else { return Some(()) };
            let run = via.map_or_else(Run::dsync, |via| sshd.run(via));
            // The shown directory is for reading only.
            let run = run.args(["-an", "--no-times"]).arg(slash(&scratch.src())).arg(&destination);
            let _ = run.run().expect_quiet_success();
            (disk.listings_at_once() >= ENOUGH).then_some(())
        });
    }
}

#[test]
fn old_files_are_asked_for_ahead() {
    let scratch = Scratch::new();
    let behind = scratch.at("behind");
    plant(&behind, 0);
    plant(&scratch.src(), 7_000);
    fs::create_dir(scratch.at("old")).unwrap();
    let Some(disk) = SlowDisk::mount(&behind, &scratch.at("old")) else { return };

    let sshd = Sshd::shared();
    until_met(|| {
        let run = sshd.run(Via::Ssh).args(["-a", "--ignore-times", "--copy-dest"]).arg(scratch.at("old"));
        let run = run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst()));
        let _ = run.run().expect_quiet_success();
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
        fs::remove_dir_all(scratch.dst()).unwrap();
        (disk.reads_at_once() >= ENOUGH).then_some(())
    });
}

/// Long enough that strong sums go first.
const LONG: u64 = 192 << 20;

/// Plants an image and its old version in `new` and `old`; returns the bytes that differ.
fn plant_images(behind: &Path) -> u64 {
    Tree::of([Node::dir("new"), Node::file("new/image", 1, LONG)]).plant(behind);
    fs::create_dir(behind.join("old")).unwrap();
    fs::copy(behind.join("new/image"), behind.join("old/image")).unwrap();
    let image = fs::File::options().write(true).open(behind.join("new/image")).unwrap();
    let places = (0..LONG).step_by(5 << 20);
    places.map(|at| image.write_at(&[7; 5000], at).unwrap() as u64).sum()
}

/// Copies the image with the help of the old one, both from `disk`.
fn copy_image(scratch: &Scratch, disk: &Path) -> Outcome {
    let sshd = Sshd::shared();
    let run =
        sshd.run(Via::Ssh).args(["-a", "--stats", "--ignore-times", "--copy-dest"]).arg(disk.join("old"));
    let run = run.arg(slash(&disk.join("new"))).arg(sshd.operand(scratch.dst()));
    let outcome = run.run().expect_code(0);
    assert_same(&disk.join("new"), &scratch.dst(), Scope::full());
    outcome
}

#[test]
fn a_long_old_file_is_searched_while_it_is_signed() {
    let scratch = Scratch::new();
    let (behind, disk) = (scratch.at("behind"), scratch.at("disk"));
    let changed = plant_images(&behind);
    fs::create_dir(&disk).unwrap();
    // The last quarter of the old file cannot be read before the source has begun with the new one.
    let gate = Gate::new("old/image", LONG / 4 * 3, "new/image");
    let Some(_mounted) = SlowDisk::mount_with(&behind, &disk, Reads::Gated(Arc::clone(&gate))) else {
        return;
    };
    let outcome = copy_image(&scratch, &disk);

    let state = gate.state();
    assert!(state.passed > 0 && state.stuck == 0, "{state:?}\n{}", outcome.account());
    let literal = outcome.stat("Literal data");
    assert!(literal < 10 * changed, "{literal} literal bytes for {changed}");
}

#[test]
fn a_long_old_file_that_cannot_be_read_to_its_end_does_no_harm() {
    let scratch = Scratch::new();
    let (behind, disk) = (scratch.at("behind"), scratch.at("disk"));
    plant_images(&behind);
    fs::create_dir(&disk).unwrap();
    let broken = Reads::Broken("old/image".into(), LONG / 4 * 3);
    let Some(_mounted) = SlowDisk::mount_with(&behind, &disk, broken) else { return };

    let outcome = copy_image(&scratch, &disk);
    let literal = outcome.stat("Literal data");
    assert!(literal > LONG / 4, "{literal} literal bytes: the end was read\n{}", outcome.account());
}

#[test]
fn a_new_file_that_cannot_be_read_while_the_old_one_is_signed_fails_alone() {
    let scratch = Scratch::new();
    let (behind, disk) = (scratch.at("behind"), scratch.at("disk"));
    plant_images(&behind);
    fs::create_dir(&disk).unwrap();
    let broken = Reads::Broken("new/image".into(), 0);
    let Some(_mounted) = SlowDisk::mount_with(&behind, &disk, broken) else { return };

    let sshd = Sshd::shared();
    let run = sshd.run(Via::Ssh).args(["-a", "--ignore-times", "--copy-dest"]).arg(disk.join("old"));
    let outcome = run.arg(slash(&disk.join("new"))).arg(sshd.operand(scratch.dst())).run().expect_code(23);
    let text = outcome.stderr_text();
    assert!(text.contains("Input/output error") && !text.contains("protocol error"), "{}", outcome.account());
}
