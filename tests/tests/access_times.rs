//! Access times: `-U` copies those that the source had before the run read it, as rsync keeps them.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use dsync_tests::{
    Kind, Node, Scratch, Tree, every_way, needs_dsync, oracle,
    scratch::slash,
    tree::{noise, set_mtime},
};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};

const NAMES: [&str; 5] = ["small", "large", "link", "pipe", "first"];

/// An access time that no clock of the run could produce.
const READ_AT: (i64, i64) = (1_300_000_000, 987_654_321);

fn read_at(path: &Path, (tv_sec, tv_nsec): (i64, i64)) {
    let last_modification = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let times = Timestamps { last_access: Timespec { tv_sec, tv_nsec }, last_modification };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn atime(path: &Path) -> (i64, i64) {
    let metadata = fs::symlink_metadata(path).unwrap();
    (metadata.atime(), metadata.atime_nsec())
}

fn plant(at: &Path) {
    Tree::of([
        Node::file("small", 1, 3000),
        Node::file("large", 2, 3 << 20),
        Node::symlink("link", "small"),
        Node::new("pipe", Kind::Fifo),
        Node::file("first", 3, 100),
        Node::hard_link("second", "first"),
    ])
    .plant(at);
    NAMES.iter().for_each(|name| read_at(&at.join(name), READ_AT));
}

#[test]
fn access_times_are_those_from_before_the_run() {
    let scratch = Scratch::new();
    plant(&scratch.src());
    for options in [&["-aHU"][..], &["-aHU", "--inplace"]] {
        every_way(&scratch, options, |copy, to| {
            NAMES.iter().for_each(|name| read_at(&scratch.src().join(name), READ_AT));
            let _ = copy().run().expect_quiet_success();
            for name in NAMES {
                assert_eq!(atime(&to.join(name)).0, READ_AT.0, "{name}");
                let nanoseconds = [0, READ_AT.1][usize::from(!dsync_tests::is_stand_in())];
                assert_eq!(atime(&to.join(name)).1, nanoseconds, "{name}");
            }
            // A delta: the old file is read as well.
            fs::write(scratch.src().join("large"), noise(9, 3 << 20)).unwrap();
            read_at(&scratch.src().join("large"), (1_200_000_000, 5));
            let _ = copy().run().expect_quiet_success();
            assert_eq!(atime(&to.join("large")).0, 1_200_000_000);
            Tree::of([Node::file("large", 2, 3 << 20)]).plant(&scratch.src());
            if options.len() == 1 {
                fs::remove_dir_all(to).unwrap();
            }
        });
    }
}

#[test]
fn another_access_time_alone_is_set_and_itemized_as_rsync_does() {
    let scratch = Scratch::new();
    every_way(&scratch, &["-aUU"], |copy, to| {
        plant(&scratch.src());
        // Listing a link reads it.
        fs::remove_file(scratch.src().join("link")).unwrap();
        let _ = copy().run().expect_quiet_success();
        let again = copy().arg("-i").run().expect_quiet_success();
        assert_eq!(again.stdout_text(), "", "reading with -UU changed a time");
        let changed = ["small", "large", "pipe"];
        changed.iter().for_each(|name| read_at(&scratch.src().join(name), (1_250_000_000, 7)));
        let rsync =
            oracle::rsync(["-aUUni".as_ref(), slash(&scratch.src()).as_os_str(), slash(to).as_os_str()]);
        let listed = copy().arg("-i").run().expect_quiet_success().stdout_text();
        assert_eq!(listed, rsync.stdout_text());
        assert_eq!(listed.lines().count(), changed.len(), "{listed}");
        for name in changed {
            assert_eq!(atime(&to.join(name)).0, 1_250_000_000, "{name}");
        }
        let _ = copy().run().expect_quiet_success();
        fs::remove_dir_all(scratch.src()).unwrap();
    });
}

#[test]
fn without_the_option_access_times_do_not_matter() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch.src());
    every_way(&scratch, &["-a"], |copy, to| {
        let _ = copy().run().expect_quiet_success();
        assert_ne!(atime(&to.join("pipe")), READ_AT);
        read_at(&to.join("small"), READ_AT);
        let again = copy().arg("-ii").run().expect_quiet_success().stdout_text();
        assert!(!again.contains(".u."), "{again}");
        assert_eq!(atime(&to.join("small")), READ_AT);
    });
}

#[test]
fn an_access_time_without_other_times_is_kept() {
    let scratch = Scratch::new();
    plant(&scratch.src());
    set_mtime(&scratch.src().join("small"), (1_000_000_000, 0));
    read_at(&scratch.src().join("small"), READ_AT);
    every_way(&scratch, &["-rU"], |copy, to| {
        read_at(&scratch.src().join("small"), READ_AT);
        let _ = copy().run().expect_code(0);
        assert_eq!(atime(&to.join("small")).0, READ_AT.0);
        assert_ne!(fs::metadata(to.join("small")).unwrap().mtime(), 1_000_000_000);
    });
}

#[test]
fn a_copy_that_is_compared_by_content_keeps_its_access_time() {
    let scratch = Scratch::new();
    every_way(&scratch, &["-acU"], |copy, to| {
        plant(&scratch.src());
        let _ = copy().run().expect_quiet_success();
        // Earlier than the change time, so that the system would record each access.
        for at in [&scratch.src(), to] {
            NAMES.iter().for_each(|name| read_at(&at.join(name), (900_000_000, 0)));
        }
        let _ = copy().run().expect_quiet_success();
        for name in ["small", "large", "first"] {
            assert_eq!(atime(&to.join(name)).0, 900_000_000, "{name}");
        }
        fs::remove_dir_all(scratch.src()).unwrap();
    });
}

#[test]
fn a_file_that_was_only_read_is_linked_from_an_alternate_directory() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch.src());
    let number = |path: &Path| fs::symlink_metadata(path).unwrap().ino();
    for options in [&["-aU"][..], &["-aU", "--delay-updates"]] {
        every_way(&scratch, &[options, &["--link-dest=../alt"]].concat(), |copy, to| {
            let alternate = to.parent().unwrap().join("alt");
            plant(&alternate);
            NAMES.iter().for_each(|name| read_at(&scratch.src().join(name), (1_400_000_000, 5)));
            let _ = copy().run().expect_quiet_success();
            for name in NAMES {
                let (old, new) = (alternate.join(name), to.join(name));
                assert_eq!(number(&old), number(&new), "{name} {options:?}");
                assert_eq!(atime(&new), (1_400_000_000, 5), "{name}");
            }
            let again = copy().arg("-i").run().expect_quiet_success().stdout_text();
            // Reading the text of a link changes its time, for whoever reads it.
            let others: Vec<_> = again.lines().filter(|line| !line.starts_with(".L")).collect();
            assert!(others.is_empty(), "{again}");
            [&alternate, to].iter().for_each(|made| fs::remove_dir_all(made).unwrap());
        });
    }
}

#[test]
fn an_old_file_that_others_are_made_from_keeps_its_access_time() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("large-2", 2, 3 << 20)]).plant(&scratch.src());
    // Equal, and of another content under the same name; alike by its name; the same at another.
    for (option, old, len) in [
        ("--copy-dest=../alt", "alt/large-2", 3 << 20),
        ("--copy-dest=../alt", "alt/large-2", 3_000_000),
        ("--fuzzy", "large-1", 3_000_000),
        ("--detect-renamed", "large-1", 3 << 20),
    ] {
        every_way(&scratch, &["-aU", option], |copy, to| {
            let in_alternate = old.starts_with("alt");
            let old = if in_alternate { to.parent().unwrap() } else { to }.join(old);
            let (above, name) = (old.parent().unwrap(), old.file_name().unwrap());
            fs::create_dir_all(above).unwrap();
            Tree::of([Node::file(name.to_str().unwrap(), 2, len)]).plant(above);
            // Earlier than the change time, so that the system would record each access.
            read_at(&old, (900_000_000, 0));
            let _ = copy().run().expect_code(0);
            assert_eq!(atime(&old).0, 900_000_000, "{option} {len}");
            assert!(fs::read(to.join("large-2")).unwrap() == fs::read(scratch.at("src/large-2")).unwrap());
            fs::remove_dir_all(to).unwrap();
            let _ = fs::remove_dir_all(above);
        });
    }
}
