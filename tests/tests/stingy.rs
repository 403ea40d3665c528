//! Reads that return less than requested and writes that take less than passed: the content is
//! right anyway. Reads that fail in the middle of a file: the file is left out, or made without
//! that part.

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use dsync_tests::{
    Node, Scope, Scratch, Stingy, Tree, assert_same, compare, every_way, needs_dsync,
    tree::{noise, set_mtime},
};

/// Offset in the large file from which it cannot be read.
const READABLE: u64 = 2_000_000;

fn plant(root: &Path) {
    Tree::of([
        Node::dir("dir"),
        Node::file("dir/byte", 1, 1),
        Node::file("dir/empty", 2, 0),
        Node::file("dir/page", 3, 4096),
        Node::file("dir/small", 4, 70_001),
        Node::file("large", 5, 9_000_003),
    ])
    .plant(root);
    // Zeros between data, which --sparse leaves out.
    let file = fs::OpenOptions::new().write(true).open(root.join("dir/small")).unwrap();
    file.write_all_at(&[0; 30_000], 20_000).unwrap();
    set_mtime(&root.join("dir/small"), (1_300_000_000, 0));
}

/// Mounts on a directory that may not exist yet.
fn mount_readable_to(readable: u64, behind: &Path, at: &Path) -> Option<Stingy> {
    let _ = fs::create_dir(at);
    Stingy::mount_readable_to(readable, behind, at)
}

fn mount(behind: &Path, at: &Path) -> Option<Stingy> {
    mount_readable_to(u64::MAX, behind, at)
}

/// Makes older versions of files from copies of them: the end is missing, and a few bytes of the
/// large one differ.
fn age(root: &Path) {
    for (name, len, damaged) in
        [("dir/small", 60_000, &[][..]), ("large", 8_900_001, &[0, 3_000_000, 8_500_000])]
    {
        let path = root.join(name);
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(len).unwrap();
        for &at in damaged {
            file.write_all_at(&noise(at + 9, 100), at).unwrap();
        }
        set_mtime(&path, (1_000_000_000, 0));
    }
}

/// Plants older versions of the files behind a mount.
fn plant_old(at: &Path) -> PathBuf {
    let behind = at.with_extension("behind");
    plant(&behind);
    age(&behind);
    behind
}

#[test]
fn source_that_reads_short_is_copied_whole() {
    let scratch = Scratch::new();
    let behind = scratch.at("behind");
    plant(&behind);
    let Some(source) = Stingy::mount(&behind, &scratch.src()) else { return };
    every_way(&scratch, &["-a"], |run, destination| {
        for options in [&[][..], &[], &["--inplace"], &["--append-verify"]] {
            let seen = source.short_reads();
            let outcome = run().args(options).run().expect_quiet_success();
            assert_same(&behind, destination, Scope::full());
            assert!(source.short_reads() > seen, "no read was short\n{}", outcome.account());
            age(destination);
        }
    });
}

#[test]
fn destination_that_writes_short_holds_what_was_sent() {
    for options in [&["-a"][..], &["-a", "--sparse"]] {
        let scratch = Scratch::new();
        plant(&scratch.src());
        every_way(&scratch, options, |run, at| {
            let behind = at.with_extension("behind");
            fs::create_dir(&behind).unwrap();
            let Some(destination) = mount(&behind, at) else { return };
            let outcome = run().run().expect_quiet_success();
            assert_same(&scratch.src(), &behind, Scope::full());
            let written = destination.short_writes();
            assert!(written > 0, "no write was short\n{}", outcome.account());
            // Equal content is recognised.
            let outcome = run().arg("--checksum").run().expect_quiet_success();
            assert!(destination.short_reads() > 0, "no read was short\n{}", outcome.account());
            assert_eq!(destination.short_writes(), written, "{}", outcome.account());
        });
    }
}

#[test]
fn old_copies_that_read_and_write_short_are_made_new() {
    for options in [&["-a"][..], &["-a", "--inplace"], &["-a", "--append-verify"]] {
        let scratch = Scratch::new();
        plant(&scratch.src());
        every_way(&scratch, options, |run, at| {
            let behind = plant_old(at);
            let Some(destination) = mount(&behind, at) else { return };
            let outcome = run().arg("--no-whole-file").run().expect_quiet_success();
            assert_same(&scratch.src(), &behind, Scope::full());
            // A local run does not read the old copy that it replaces.
            let reads = options.len() > 1 || !at.ends_with("local");
            assert!(!reads || destination.short_reads() > 0, "no read was short\n{}", outcome.account());
            assert!(destination.short_writes() > 0, "no write was short\n{}", outcome.account());
            assert_eq!(compare::temporaries(&behind), Vec::<String>::new());
        });
    }
}

#[test]
fn source_file_unreadable_from_its_middle_ends_with_23_and_the_old_copy_stays() {
    needs_dsync!();
    let scratch = Scratch::new();
    let behind = scratch.at("behind");
    plant(&behind);
    let Some(_source) = Stingy::mount_readable_to(READABLE, &behind, &scratch.src()) else { return };
    every_way(&scratch, &["-a"], |run, destination| {
        for old in [None, Some(b"the old copy")] {
            if let Some(old) = old {
                fs::write(destination.join("large"), old).unwrap();
            }
            let outcome = run().run().expect_code(23);
            let told = "cannot read 'large': Input/output error";
            assert!(outcome.stderr_text().contains(told), "{}", outcome.account());
            assert_eq!(fs::read(destination.join("large")).ok().as_deref(), old.map(|old| &old[..]));
            assert_same(&behind.join("dir"), &destination.join("dir"), Scope::full());
            assert_eq!(compare::temporaries(destination), Vec::<String>::new());
        }
    });
}

#[test]
fn old_copy_unreadable_from_its_middle_is_replaced_or_ends_with_11_where_it_is_rewritten() {
    needs_dsync!();
    for (options, code) in [(&["-a"][..], 0), (&["-a", "--inplace"], 11)] {
        let scratch = Scratch::new();
        plant(&scratch.src());
        every_way(&scratch, options, |run, at| {
            let behind = plant_old(at);
            let Some(destination) = mount_readable_to(READABLE, &behind, at) else { return };
            let outcome = run().run().expect_code(code);
            if code == 0 {
                assert_same(&scratch.src(), &behind, Scope::full());
            } else {
                assert!(
                    outcome.stderr_text().contains("/large': Input/output error"),
                    "{}",
                    outcome.account()
                );
            }
            let reads = options.len() > 1 || !at.ends_with("local");
            assert_eq!(destination.failed_reads() > 0, reads, "{}", outcome.account());
            let mut left = compare::temporaries(&behind);
            // A file that is neither old nor new has its note until it is written again.
            left.retain(|name| code == 0 || !name.contains(".dsync-note-"));
            assert_eq!(left, Vec::<String>::new());
        });
    }
}

#[test]
fn a_file_that_ends_before_its_size_says_is_not_copied_and_stays() {
    needs_dsync!();
    let scratch = Scratch::new();
    for len in [1 << 20, 20 << 20] {
        let behind = scratch.at("behind");
        Tree::of([Node::file("f", 1, len)]).plant(&behind);
        fs::create_dir_all(scratch.src()).unwrap();
        let Some(mounted) = Stingy::mount_ending_at(len / 3, &behind, &scratch.src()) else { return };
        for options in [&["-rt", "--remove-source-files"][..], &["-rt", "-S"], &["-rt", "--append"]] {
            every_way(&scratch, options, |copy, to| {
                let outcome = copy().run().expect_code(24);
                assert!(outcome.stderr_text().contains("'f'"), "{}", outcome.account());
                assert!(!to.join("f").exists(), "{}", outcome.account());
                assert_eq!(fs::metadata(behind.join("f")).unwrap().len(), len, "{}", outcome.account());
            });
        }
        drop(mounted);
        fs::remove_dir_all(&behind).unwrap();
    }
}
