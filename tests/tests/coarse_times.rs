//! Filesystems that keep times in steps, as NTFS and exFAT do, set a file's two times together or not at all, as
//! many in user space do, or set no attributes: a second run finds nothing to do, and the content is there.

use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use dsync_tests::{
    Node, Run, Scope, Scratch, Stingy, Tree, assert_same, every_way, mount::Mount, needs_dsync,
    run::wait_for, scratch::slash, tree::set_mtime,
};

/// Nanoseconds of the source's times.
const NANOSECONDS: i64 = 123_456_789;

#[test]
fn what_was_copied_to_a_filesystem_with_coarser_times_is_found_unchanged() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("f", 1, 5000), Node::dir("d"), Node::file("d/g", 2, 10)]).plant(&scratch.src());
    for path in ["f", "d/g", "d", "."] {
        set_mtime(&scratch.src().join(path), (1_000_000_000, NANOSECONDS));
    }

    for step in [1, 100, 1_000, 1_000_000, 10_000_000, 1_000_000_000] {
        for options in [&["-rt", "-i"][..], &["-rt", "-i", "--inplace"], &["-rt", "-i", "--delay-updates"]] {
            every_way(&scratch, options, |copy, to| {
                let behind = scratch.at("behind");
                [to, &behind].into_iter().for_each(|directory| fs::create_dir(directory).unwrap());
                let Some(disk) = Stingy::mount_with_times_in(step, &behind, to) else { return };
                let _ = copy().run().expect_code(0);
                for path in ["f", "d/g", "d", "."] {
                    let found = fs::metadata(behind.join(path)).unwrap();
                    let kept = NANOSECONDS - NANOSECONDS % i64::from(step);
                    assert_eq!((found.mtime(), found.mtime_nsec()), (1_000_000_000, kept), "{path} {step}");
                }
                let again = copy().run().expect_code(0);
                assert_eq!(again.stdout_text(), "", "{step} {options:?}");
                drop(disk);
                [to, &behind].into_iter().for_each(|directory| fs::remove_dir_all(directory).unwrap());
            });
        }
    }
}

#[test]
fn what_gets_no_attributes_gets_its_content() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("f", 1, 5000), Node::dir("d"), Node::file("d/g", 2, 300_000)]).plant(&scratch.src());
    for options in [&["-r"][..], &["-rt"], &["-rtp", "--delay-updates"], &["-rp", "--inplace"]] {
        every_way(&scratch, options, |copy, to| {
            let behind = scratch.at("behind");
            [to, &behind].into_iter().for_each(|directory| fs::create_dir(directory).unwrap());
            let Some(disk) = Stingy::mount_without_attributes(&behind, to) else { return };
            let outcome = copy().run().expect_code(23);
            assert!(outcome.stderr_text().contains("cannot set attributes of 'f'"), "{}", outcome.account());
            assert_same(&scratch.src(), &behind, Scope::CONTENT);
            drop(disk);
            [to, &behind].into_iter().for_each(|directory| fs::remove_dir_all(directory).unwrap());
        });
    }
}

#[test]
fn a_name_that_no_call_takes_is_told_and_withholds_deletions() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("f", 1, 5000)]).plant(&scratch.src());
    every_way(&scratch, &["-rt", "--delete"], |copy, to| {
        let behind = scratch.at("behind");
        [to, &behind].into_iter().for_each(|directory| fs::create_dir(directory).unwrap());
        fs::write(behind.join("old"), "old").unwrap();
        let Some(disk) = Stingy::mount_with_long_names(&behind, to) else { return };
        let outcome = copy().run().expect_code(23);
        assert!(outcome.stderr_text().contains("File name too long"), "{}", outcome.account());
        assert!(behind.join("old").exists() && behind.join("f").exists());
        drop(disk);
        [to, &behind].into_iter().for_each(|directory| fs::remove_dir_all(directory).unwrap());
    });
}

#[test]
fn a_change_in_the_same_second_as_the_last_one_is_seen() {
    needs_dsync!();
    const LEN: usize = 24 << 20;
    let scratch = Scratch::new();
    let Some(_disk) = mount_with_whole_seconds(&scratch.src()) else { return };
    let path = scratch.src().join("database");
    for round in [1, 3, 5] {
        let _ = fs::remove_dir_all(scratch.dst());
        // So early in a second that all of this has the time of that second.
        wait_for(|| {
            thread::sleep(Duration::from_millis(1));
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_millis() < 100
        });
        fs::write(&path, vec![round; LEN]).unwrap();
        let run = Run::dsync().args(["-rt", "--bwlimit=32m"]).arg(slash(&scratch.src())).arg(scratch.dst());
        let mut running = run.start();
        wait_for(|| has_content(&scratch.dst()) || !running.is_running());
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        for at in [0, LEN as u64 - 4096] {
            file.write_all_at(&[round + 1; 4096], at).unwrap();
        }
        drop(file);
        let outcome = running.wait().expect_code(0);
        let copied = fs::read(scratch.dst().join("database")).unwrap();
        assert_eq!((copied[0], copied[LEN - 1]), (round + 1, round + 1), "{}", outcome.account());
    }
}

/// Mounts a filesystem whose inodes are too short for parts of seconds.
fn mount_with_whole_seconds(at: &Path) -> Option<Mount> {
    let image = at.with_extension("img");
    fs::File::create(&image).and_then(|file| file.set_len(256 << 20)).unwrap();
    let format = Run::of("mkfs.ext4").env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").args(["-q", "-I", "128"]);
    let _ = format.arg(&image).run().expect_code(0);
    fs::create_dir_all(at).unwrap();
    Mount::with(&["-o".as_ref(), "loop".as_ref(), image.as_os_str()], at)
}

/// Returns whether something was written of a file in a directory.
fn has_content(dir: &Path) -> bool {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.metadata().is_ok_and(|found| found.is_file() && found.blocks() > 0))
}
