//! Quotas of a key: what would exceed one fails with its name, and nothing half-written stays.

use std::{fs, os::unix::fs::MetadataExt, process::Command};

use dsync_tests::{
    Outcome, SlowDisk,
    hostile::{Item, bytes::listing_part},
    needs_dsync,
    run::wait_for,
    scratch::slash,
    tree::noise,
    unfinished::finished_segments,
};
use rustix::process::Signal;

use crate::{
    limits::{UNDERSTATED, WAYS, hostile},
    nas::Nas,
};

/// Asserts that a run ended by a quota.
fn exceeds(run: Outcome, words: &[&str]) {
    let run = run.expect_code(11);
    for part in words {
        assert!(run.stderr_text().contains(part), "{part}: {}", run.account());
    }
}

/// Returns the bytes and the number of all entries below the key's directory.
fn used(nas: &Nas) -> (u64, u64) {
    let found =
        Command::new("find").arg(nas.place()).args(["-mindepth", "1", "-printf", "%i %y %s\n"]).output();
    let text = String::from_utf8(found.unwrap().stdout).unwrap();
    let inodes: std::collections::BTreeSet<_> = text.lines().collect();
    let files = inodes.iter().filter_map(|line| line.split_once(" f "));
    (files.map(|(_, size)| size.parse::<u64>().unwrap()).sum(), inodes.len() as u64)
}

/// Returns all entries of the share with their types, inodes and lengths, once no session is writing
/// there. A directory may have a new time: a file was begun in it.
fn entries(nas: &Nas) -> String {
    let list = || {
        let mut find = Command::new("find");
        find.arg(nas.scratch.at("share"));
        find.args(["-type", "d", "-printf", "%P %i\\n", "-o", "-printf", "%P %i %y %T@ %s\\n"]);
        String::from_utf8(find.output().unwrap().stdout).unwrap()
    };
    wait_for(|| !list().contains(".dsync-lock"));
    let mut lines: Vec<_> = list().lines().map(str::to_owned).collect();
    lines.sort();
    lines.join("\n")
}

fn write(nas: &Nas, name: &str, seed: u64, len: usize) {
    fs::write(nas.scratch.src().join(name), noise(seed, len)).unwrap();
}

#[test]
fn files_beyond_the_quota_are_refused_by_its_name_and_leave_nothing() {
    needs_dsync!();
    for way in WAYS {
        let nas = way("full");
        nas.limit("max-bytes = '3M'");
        write(&nas, "one", 1, 2 << 20);
        let _ = nas.push(&[]).expect_quiet_success();
        write(&nas, "two", 2, (1 << 20) + 1);
        let before = entries(&nas);
        let words = [
            "/two'",
            "the limit 'max-bytes' allows 3145728 bytes; 2097152 are used, and this needs 1048577 more",
            "The old copy is untouched, unless --inplace was rewriting it.",
        ];
        for options in
            [&[][..], &["--inplace"], &["-S"], &["--append"], &["--preallocate"], &["--delay-updates"]]
        {
            exceeds(nas.push(options), &words);
            assert_eq!(before, entries(&nas));
        }
        // A dry run writes nothing, and a pull does not either.
        let _ = nas.push(&["-n"]).expect_quiet_success();
        let _ = nas.pull(&[]).expect_quiet_success();

        write(&nas, "two", 2, 1 << 20);
        let _ = nas.push(&[]).expect_quiet_success();
        assert_eq!(used(&nas).0, 3 << 20);
        // A removal makes room again.
        fs::remove_file(nas.scratch.src().join("one")).unwrap();
        write(&nas, "three", 3, 2 << 20);
        let _ = nas.push(&["--delete-before"]).expect_quiet_success();
        assert_eq!(used(&nas).0, 3 << 20);
    }
}

#[test]
fn a_replacement_counts_the_difference_in_every_way_of_writing() {
    needs_dsync!();
    let nas = Nas::standing("full");
    nas.limit("max-bytes = 2500000");
    for (round, options) in [&[][..], &["--inplace"], &["-S"], &["--append"], &["-W"], &["--inplace", "-S"]]
        .into_iter()
        .enumerate()
    {
        let _ = fs::remove_dir_all(nas.tree());
        let round = round as u64;
        for len in [2_000_000, 2_500_000] {
            write(&nas, "file", round, len);
            let _ = nas.push(options).expect_quiet_success();
            assert_eq!(used(&nas).0, len as u64);
        }
        write(&nas, "file", round, 2_500_001);
        let before = entries(&nas);
        exceeds(nas.push(options), &["/file'", "'max-bytes' allows 2500000 bytes", "needs 1 more"]);
        assert_eq!(before, entries(&nas));
        // Other content of the same length.
        if options != ["--append"] {
            write(&nas, "file", 100 + round, 2_500_000);
            let _ = nas.push(options).expect_quiet_success();
            assert_eq!(fs::read(nas.there("file")).unwrap(), noise(100 + round, 2_500_000));
        }
    }
}

#[test]
fn the_number_of_entries_has_a_limit_of_its_own() {
    needs_dsync!();
    for role in ["append", "full"] {
        let nas = Nas::new(role);
        // The tree, a directory in it and three more.
        nas.limit("max-files = 5");
        let src = nas.scratch.src();
        fs::create_dir(src.join("dir")).unwrap();
        write(&nas, "dir/a", 1, 10);
        std::os::unix::fs::symlink("a", src.join("dir/b")).unwrap();
        fs::hard_link(src.join("dir/a"), src.join("dir/again")).unwrap();
        fs::create_dir(src.join("empty")).unwrap();
        let _ = nas.push(&["-H"]).expect_quiet_success();
        assert_eq!(used(&nas), (10, 5));

        let words = ["the limit 'max-files' allows 5 entries; 5 are used, and this needs 1 more"];
        for entry in ["file", "link", "sub", "fifo"] {
            let path = src.join(entry);
            match entry {
                "file" => fs::write(&path, "").unwrap(),
                "link" => std::os::unix::fs::symlink("x", &path).unwrap(),
                "sub" => fs::create_dir(&path).unwrap(),
                _ => assert!(Command::new("mkfifo").arg(&path).status().unwrap().success()),
            }
            let before = entries(&nas);
            exceeds(nas.push(&["-H"]), &words);
            assert_eq!(before, entries(&nas));
            if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) }.unwrap();
        }
        // A further name is no entry of its own, and what is replaced makes room.
        fs::hard_link(src.join("dir/a"), src.join("dir/third")).unwrap();
        let _ = nas.push(&["-H"]).expect_quiet_success();
        if role == "full" {
            fs::remove_file(src.join("dir/b")).unwrap();
            write(&nas, "dir/b", 2, 5);
            let _ = nas.push(&["-H"]).expect_quiet_success();
        }
        assert_eq!(used(&nas).1, 5);
    }
}

#[test]
fn holes_count_and_an_unfinished_file_counts_once() {
    needs_dsync!();
    let nas = Nas::standing("full");
    // With room for the notes about an unfinished file.
    nas.limit("max-bytes = 16781312");
    let sparse = fs::File::create(nas.scratch.src().join("sparse")).unwrap();
    sparse.set_len((16 << 20) + 4097).unwrap();
    let before = entries(&nas);
    exceeds(nas.push(&["-S"]), &["/sparse'", "'max-bytes'"]);
    assert_eq!(before, entries(&nas));
    fs::remove_file(nas.scratch.src().join("sparse")).unwrap();

    // A killed client leaves a part, which the next session takes up although it fills the quota.
    write(&nas, "big", 4, 16 << 20);
    let slow = nas.run().args(["-a", "--bwlimit=4M", "--partial", "--retries=0"]);
    let mut slow = slow.arg(slash(&nas.scratch.src())).arg(nas.operand("tree")).start();
    wait_for(|| !slow.is_running() || finished_segments(&nas.tree()) >= 1);
    let sessions = nas.sessions(&slow);
    slow.signal(Signal::KILL);
    let _ = slow.wait();
    wait_for(|| sessions.iter().all(|session| !dsync_tests::run::is_alive(*session)));
    assert!(used(&nas).0 > 0);
    let resumed = nas.push(&["--partial", "--stats"]).expect_code(0);
    assert_eq!(fs::read(nas.there("big")).unwrap(), noise(4, 16 << 20));
    assert_eq!(used(&nas).0, 16 << 20, "{}", resumed.account());
}

#[test]
fn what_is_kept_of_replaced_files_counts_for_its_key() {
    needs_dsync!();
    let nas = Nas::standing("keep");
    nas.limit("max-bytes = 2500");
    write(&nas, "file", 1, 1000);
    let _ = nas.push(&[]).expect_quiet_success();
    write(&nas, "file", 2, 1001);
    let _ = nas.push(&[]).expect_quiet_success();
    write(&nas, "file", 3, 1002);
    let before = entries(&nas);
    exceeds(
        nas.push(&[]),
        &["/file'", "'max-bytes' allows 2500 bytes; 2001 are used, and this needs 1002 more"],
    );
    assert_eq!(before, entries(&nas));
}

#[test]
fn a_key_with_a_quota_has_one_session_at_a_time() {
    needs_dsync!();
    for way in WAYS {
        let nas = way("full");
        nas.limit("max-files = 1000");
        write(&nas, "big", 5, 8 << 20);
        let slow = nas.run().args(["-a", "--bwlimit=1M", "--timeout=3600", "--retries=0"]);
        let mut slow = slow.arg(slash(&nas.scratch.src())).arg(nas.operand("one")).start();
        wait_for(|| !slow.is_running() || nas.place().join("one").exists());
        slow.signal(Signal::STOP);
        let refused = nas.push(&[]).expect_code(41);
        let words = "the directory of key web1 in share nas has a session already";
        assert!(refused.stderr_text().contains(words), "{}", refused.account());
        slow.signal(Signal::KILL);
        let _ = slow.wait();
    }
}

#[test]
fn a_destination_that_the_quota_has_no_room_for_ends_with_11() {
    needs_dsync!();
    for way in WAYS {
        let nas = way("full");
        nas.limit("max-files = 1");
        write(&nas, "file", 5, 10);
        let before = entries(&nas);
        // `tree` is the one entry.
        let push = |options: &[&str], to: &str| {
            nas.run().arg("-a").args(options).arg(slash(&nas.scratch.src())).arg(nas.operand(to)).run()
        };
        let words = [
            "the limit 'max-files' allows 1 entry; 1 is used, and this needs 1 more",
            "Remove something there or have the administrator there raise the limit",
        ];
        exceeds(push(&[], "more"), &words);
        exceeds(push(&["--mkpath"], "tree/new/er"), &words);
        assert_eq!(entries(&nas), before);
    }
}

#[test]
fn counting_what_a_quota_has_used_may_take_long() {
    needs_dsync!();
    for way in WAYS {
        let nas = way("full");
        nas.limit("max-files = 1000");
        // Each of the directories takes 20 ms or more to list.
        let (behind, slow) = (nas.scratch.at("behind"), nas.place().join("old"));
        (0..100).for_each(|number| fs::create_dir_all(behind.join(number.to_string())).unwrap());
        fs::create_dir_all(&slow).unwrap();
        let Some(_mounted) = SlowDisk::mount(&behind, &slow) else { return };
        write(&nas, "file", 5, 1000);
        let _ = nas.push(&[]).expect_quiet_success();
        assert_eq!(fs::read(nas.there("file")).unwrap(), noise(5, 1000));
    }
}

#[test]
fn a_client_that_understates_a_file_gets_no_more_room() {
    needs_dsync!();
    for deed in UNDERSTATED {
        let nas = Nas::new("full");
        nas.limit("max-bytes = 1000");
        let before = entries(&nas);
        let (mut server, mut session) = hostile(&nas);
        session.tops();
        session.control(&listing_part(0, 1, &[Item::file("new", 5)]));
        assert_eq!(session.expect(10), [1, 0]);
        deed(&mut session);
        let fatal = session.fatal();
        assert!(fatal.code == 11 && fatal.text.contains("the limit 'max-bytes'"), "{}", fatal.text);
        drop(session);
        assert_eq!(server.wait().unwrap().code(), Some(11));
        assert_eq!(before, entries(&nas));
    }
}

#[test]
fn what_cannot_be_counted_is_not_written_to() {
    needs_dsync!();
    if dsync_tests::skip::is_root() {
        return;
    }
    let nas = Nas::new("full");
    nas.limit("max-bytes = 1000");
    let locked = nas.there("locked");
    fs::create_dir_all(&locked).unwrap();
    fs::set_permissions(&locked, std::os::unix::fs::PermissionsExt::from_mode(0o300)).unwrap();
    write(&nas, "new", 1, 10);
    exceeds(nas.push(&[]), &["'tree/locked' in it cannot be counted for the key's quota"]);
    assert!(!nas.there("new").exists() && fs::metadata(&locked).unwrap().size() > 0);
}
