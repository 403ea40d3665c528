//! The files that dsync makes for itself in a share belong to the client that left them: no client names
//! them, and none takes up those of another.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use dsync_tests::{
    Outcome, assert_unchanged, needs_dsync,
    run::{is_alive, wait_for},
    scratch::slash,
    survey,
    tree::{noise, set_mtime},
    unfinished::{finished_segments, hidden, kept},
};
use rustix::process::Signal;

use crate::nas::{LONG_AGO, Nas, user};

const WAYS: [fn(&str) -> Nas; 2] = [Nas::new, Nas::standing];

/// A name of each kind of file that dsync makes for itself.
const OWN: [&str; 6] = [
    ".dsync-part-00112233445566778899aabbccddeeff",
    ".dsync-note-00112233445566778899aabbccddeeff",
    ".dsync-done-00112233445566778899aabbccddeeff",
    ".dsync-tmp-00112233445566778899aabbccddeeff",
    ".dsync-away-00112233445566778899aabbccddeeff",
    ".dsync-lock-00000000000000000000000000000000",
];

/// Runs `dsync -a` with these words.
fn archive(nas: &Nas, words: &[&str], from: &str, to: &Path) -> Outcome {
    nas.run().arg("-a").args(words).arg(nas.operand(from)).arg(slash(to)).run()
}

#[test]
fn a_pull_gets_none_of_them_in_any_spelling() {
    needs_dsync!();
    for (way, role) in WAYS.into_iter().flat_map(|way| [(way, "read"), (way, "append"), (way, "full")]) {
        let nas = way(role);
        fs::create_dir_all(nas.there(OWN[3]).join("sub")).unwrap();
        fs::write(nas.there(OWN[3]).join("sub/file"), "private").unwrap();
        for name in OWN.into_iter().filter(|name| *name != OWN[3]) {
            fs::write(nas.there(name), "private").unwrap();
            symlink(name, nas.there(&format!("link{name}"))).unwrap();
        }
        symlink(OWN[3], nas.there("dir")).unwrap();
        let list = nas.scratch.at("list");
        fs::write(&list, OWN.map(|name| format!("{name}\n{name}/sub/file\n")).concat()).unwrap();
        let from_list = format!("--files-from={}", list.display());

        let mut pulls = vec![
            (vec![], "tree/.dsync-*".to_owned()),
            (vec!["-L"], "tree/".to_owned()),
            (vec!["-k"], "tree/".to_owned()),
            (vec!["-L"], "tree/dir/".to_owned()),
            (vec![from_list.as_str()], "tree".to_owned()),
            (vec![from_list.as_str(), "--no-relative"], "tree".to_owned()),
        ];
        let mut lists = Vec::new();
        for name in OWN {
            pulls.push((vec![], format!("tree/{name}")));
            pulls.push((vec!["-R"], format!("tree/./{name}")));
            pulls.push((vec![], format!("tree/{name}/")));
            pulls.push((vec![], format!("tree/{name}/sub/file")));
            // As a list, whose lines the server would read.
            lists.push(format!("--files-from=:tree/{name}"));
        }
        pulls.extend(lists.iter().map(|list| (vec![list.as_str()], "tree".to_owned())));
        for (words, from) in pulls {
            let got = nas.scratch.at("got");
            let pulled = archive(&nas, &words, &from, &got);
            let what = format!("{role}: {words:?} {from}\n{}", pulled.account());
            // A link that cannot be followed to a directory is copied as one.
            assert!(pulled.code() != Some(0) || words == ["-k"], "{what}");
            if got.exists() {
                assert!(survey(&got).into_values().all(|entry| entry.content != b"private"), "{what}");
                fs::remove_dir_all(&got).unwrap();
            }
        }
    }
}

#[test]
fn a_push_makes_none_of_them_in_any_spelling() {
    needs_dsync!();
    for (way, role) in WAYS.into_iter().flat_map(|way| [(way, "append"), (way, "keep"), (way, "full")]) {
        let nas = way(role);
        fs::create_dir_all(nas.tree()).unwrap();
        let here = nas.scratch.at("here");
        fs::create_dir_all(here.join("plain")).unwrap();
        for name in OWN {
            fs::create_dir_all(here.join(name)).unwrap();
            fs::write(here.join(name).join("file"), "planted").unwrap();
        }
        fs::write(here.join("plain/file"), "planted").unwrap();
        let before = survey(&nas.place());

        for name in OWN {
            let named = here.join(name);
            let below = PathBuf::from(format!("{}/./{name}/file", here.display()));
            let plain = here.join("plain/file");
            for (words, from, to) in [
                (&[][..], &named, "tree/".to_owned()),
                (&["-R"], &below, "tree/".to_owned()),
                (&[], &plain, format!("tree/{name}")),
                (&[], &plain, format!("tree/{name}/")),
                (&["--mkpath"], &plain, format!("tree/{name}/deep/")),
                (&["--temp-dir=.", "--link-dest", name], &plain, "tree/".to_owned()),
            ] {
                let pushed = nas.run().arg("-a").args(words).arg(from).arg(nas.operand(&to)).run();
                let what = format!("{role}: {words:?} {} {to}\n{}", from.display(), pushed.account());
                assert_ne!(pushed.code(), Some(0), "{what}");
                assert!(pushed.stderr_text().contains("dsync's own files"), "{what}");
                assert_unchanged(&before, &nas.place());
            }
        }
    }
}

/// Cuts a push off once some of a large file has arrived.
fn cut_off(nas: &Nas, from: &Path) {
    let slow = nas.run().args(["-a", "--bwlimit=8M"]).arg(slash(from)).arg(nas.operand("tree"));
    let mut slow = slow.start();
    wait_for(|| !slow.is_running() || finished_segments(&nas.tree()) >= 4);
    assert!(slow.is_running());
    let sessions = nas.sessions(&slow);
    slow.signal(Signal::KILL);
    let _ = slow.wait();
    wait_for(|| sessions.iter().all(|session| !is_alive(*session)));
    assert!(kept(&nas.tree(), ".dsync-part-").is_some());
}

#[test]
fn what_one_client_left_unfinished_is_not_taken_up_by_another() {
    needs_dsync!();
    let nas = Nas::new("append");
    let share = nas.scratch.at("share");
    let key = |key: &str| format!("[shares.nas.keys.{key}]\nrole = 'append'\ndirectory = 'of-web1'\n");
    nas.configure(&format!(
        "[keys.web1]\n[keys.web2]\n[shares.nas]\npath = '{}'\n{}{}{}",
        share.display(),
        user(),
        key("web1"),
        key("web2")
    ));

    // The same file but for its content, as far as anybody is told.
    let (theirs, own) = (nas.scratch.at("theirs"), nas.scratch.src());
    fs::create_dir(&theirs).unwrap();
    for (dir, seed) in [(&theirs, 1), (&own, 2)] {
        fs::write(dir.join("big"), noise(seed, 24 << 20)).unwrap();
        set_mtime(&dir.join("big"), LONG_AGO);
    }
    nas.command("--share nas --key web2");
    cut_off(&nas, &theirs);
    let left = [".dsync-part-", ".dsync-note-"].map(|prefix| kept(&nas.tree(), prefix).unwrap());
    let aside = left.clone().map(|path| nas.scratch.at("aside").join(path.file_name().unwrap()));
    fs::create_dir(nas.scratch.at("aside")).unwrap();
    let rename = |from: &[PathBuf], to: &[PathBuf]| {
        from.iter().zip(to).for_each(|(from, to)| fs::rename(from, to).unwrap());
    };
    rename(&left, &aside);
    nas.command("--share nas --key web1");
    cut_off(&nas, &own);
    // They have different names, so neither is taken for the other.
    assert!(left.iter().all(|path| !path.exists()));
    rename(&aside, &left);
    let sent = nas.push(&["--stats"]).expect_code(0).stat("Literal data");
    assert!(sent < 24 << 20, "its own part was taken up: {sent}");
    assert_eq!(fs::read(nas.there("big")).unwrap(), noise(2, 24 << 20));
    assert!(left.iter().all(|path| path.exists()));
    assert_eq!(hidden(&nas.tree()), 2);
}
