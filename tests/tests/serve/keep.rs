//! The role `keep`: what is replaced or removed is where its client cannot reach, until its days are
//! over.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use dsync_tests::{
    Run, assert_unchanged, mount::Mount, needs_dsync, needs_root, run::wait_for, scratch::slash, survey,
    tree::set_mtime,
};

use crate::nas::{LONG_AGO, Nas};

/// The ways to a share.
const WAYS: [fn(&str) -> Nas; 2] = [Nas::new, Nas::standing];

/// Returns the directories of sessions that kept something, in order.
fn kept(nas: &Nas) -> Vec<PathBuf> {
    let listed = fs::read_dir(nas.scratch.at("share/.dsync-kept/web1")).into_iter().flatten();
    let mut found: Vec<_> = listed.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// Returns the content of the files of a name in the tree that is pushed to, of each session that kept
/// one.
fn content(nas: &Nas, path: &str) -> Vec<String> {
    content_below(nas, &format!("tree/{path}"))
}

/// Returns the content of the files of a path in the key's directory, of each session that kept one.
fn content_below(nas: &Nas, path: &str) -> Vec<String> {
    kept(nas).iter().filter_map(|dir| fs::read_to_string(dir.join(path)).ok()).collect()
}

/// Removes what the client has of a name, so that it is deleted at the share.
fn forget(nas: &Nas, path: &str) {
    fs::remove_file(nas.scratch.src().join(path)).unwrap();
}

#[test]
fn whatever_is_replaced_or_removed_is_kept_with_its_content() {
    needs_dsync!();
    for nas in WAYS.map(|way| way("keep")) {
        let here = |path: &str| nas.scratch.src().join(path);
        // Nothing is kept of a run that replaces nothing.
        nas.plant("same", "same", "same");
        fs::write(here("new"), "new").unwrap();
        let _ = nas.push(&["--delete"]).expect_quiet_success();
        assert_eq!(kept(&nas), Vec::<PathBuf>::new());

        for name in ["replaced", "linked", "typed", "removed", "truncated"] {
            nas.plant(name, name, name);
        }
        symlink("text", here("link")).unwrap();
        for dir in ["dir/deep", "file"] {
            fs::create_dir_all(here(dir)).unwrap();
            fs::write(here(dir).join("inner"), dir).unwrap();
        }
        let _ = nas.push(&[]).expect_quiet_success();
        assert_eq!(kept(&nas), Vec::<PathBuf>::new());

        fs::write(here("replaced"), "another content").unwrap();
        fs::write(here("truncated"), "").unwrap();
        for gone in ["linked", "typed", "removed", "link"] {
            forget(&nas, gone);
        }
        fs::hard_link(here("replaced"), here("linked")).unwrap();
        symlink("text", here("typed")).unwrap();
        symlink("other", here("link")).unwrap();
        for dir in ["dir", "file"] {
            fs::remove_dir_all(here(dir)).unwrap();
        }
        fs::write(here("file"), "a file now").unwrap();
        let _ = nas.push(&["-H", "--delete", "--force"]).expect_quiet_success();

        let sessions = kept(&nas);
        assert_eq!(sessions.len(), 1, "{sessions:?}");
        for name in ["replaced", "linked", "typed", "removed", "truncated"] {
            assert_eq!(content(&nas, name), [name], "{name}");
        }
        assert_eq!(fs::read_link(sessions[0].join("tree/link")).unwrap(), Path::new("text"));
        assert_eq!(content(&nas, "dir/deep/inner"), ["dir/deep"]);
        assert_eq!(content(&nas, "file/inner"), ["file"]);
        assert_eq!(fs::metadata(&sessions[0]).unwrap().mode() & 0o7777, 0o700);
        for (name, now) in [("replaced", "another content"), ("truncated", ""), ("file", "a file now")] {
            assert_eq!(fs::read_to_string(nas.there(name)).unwrap(), now);
        }
        for gone in ["removed", "dir"] {
            assert!(!nas.there(gone).exists(), "{gone}");
        }
    }
}

#[test]
fn a_file_that_gives_way_to_one_of_another_directory_is_kept_whatever_its_client_says_of_it() {
    needs_dsync!();
    for (way, option) in
        WAYS.into_iter().flat_map(|way| ["link", "compare", "copy"].map(|option| (way, option)))
    {
        let nas = way("keep");
        nas.plant("file", "evil", "good");
        // Of the size and time that the listing has, so that the quick check takes it for the same.
        let other = nas.place().join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("file"), "evil").unwrap();
        set_mtime(&other.join("file"), LONG_AGO);
        let _ = nas.push(&[&format!("--{option}-dest=../other")]).expect_code(0);
        let now = fs::read_to_string(nas.there("file")).ok();
        let kept = content(&nas, "file");
        assert!(now.as_deref() == Some("good") || kept == ["good"], "{option}: {now:?}, kept {kept:?}");
        assert_eq!(now.as_deref() == Some("good"), option == "copy", "{option}: {now:?}");
    }
}

#[test]
fn an_entry_is_kept_under_its_path_in_the_keys_directory_wherever_the_run_goes() {
    needs_dsync!();
    for nas in WAYS.map(|way| way("keep")) {
        let here = |path: &str| nas.scratch.src().join(path);
        fs::create_dir_all(here("docs/deep")).unwrap();
        fs::write(here("docs/deep/f"), "0").unwrap();
        let from = |path: &str| here(path).into_os_string();
        let mut relative = from("");
        relative.push("./docs/deep/f");
        let file = from("docs/deep/f");
        let mut age = 0;
        for (option, source, to, path) in [
            // A directory that the first run makes, and one that was there.
            ("--mkpath", slash(&here("docs/deep")), "made/new/", "made/new/f"),
            ("-a", slash(&here("docs/deep")), ".", "f"),
            ("--mkpath", file.clone(), "made/newname", "made/newname"),
            ("-a", file.clone(), "newname", "newname"),
            ("-R", relative.clone(), "made", "made/docs/deep/f"),
            ("-a", file.clone(), "made/./new/../../door/again", "made/again"),
        ] {
            for round in 0..2 {
                age += 1;
                fs::write(here("docs/deep/f"), format!("{path} {round}")).unwrap();
                set_mtime(&here("docs/deep/f"), (LONG_AGO.0 + age, 0));
                if fs::symlink_metadata(nas.place().join("door")).is_err() && nas.place().is_dir() {
                    symlink("made", nas.place().join("door")).unwrap();
                }
                let pushed = nas.run().args(["-a", option]).arg(&source).arg(nas.operand(to)).run();
                let _ = pushed.expect_quiet_success();
            }
            let kept = content_below(&nas, path);
            assert_eq!(kept.last(), Some(&format!("{path} 0")), "{option} {to}: {kept:?}");
        }
    }
}

#[test]
fn each_session_keeps_its_own_and_none_replaces_what_is_kept() {
    needs_dsync!();
    let nas = Nas::new("keep");
    for content in ["one", "two longer", "three still longer"] {
        fs::write(nas.scratch.src().join("file"), content).unwrap();
        let _ = nas.push(&[]).expect_quiet_success();
    }
    assert_eq!(content(&nas, "file"), ["one", "two longer"]);
}

#[test]
fn a_directory_that_is_closed_is_emptied_into_one_that_can_be_cleaned() {
    needs_dsync!();
    let nas = Nas::new("keep");
    let closed = nas.scratch.src().join("closed");
    fs::write(nas.scratch.src().join("other"), "other").unwrap();
    fs::create_dir(&closed).unwrap();
    fs::write(closed.join("file"), "old").unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    let _ = nas.push(&[]).expect_quiet_success();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_dir_all(&closed).unwrap();
    let _ = nas.push(&["--delete"]).expect_quiet_success();
    assert_eq!(content(&nas, "closed/file"), ["old"]);
    let mode = fs::metadata(kept(&nas)[0].join("tree/closed")).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o700);
}

#[test]
fn a_client_neither_reaches_what_is_kept_nor_gets_around_the_keeping() {
    needs_dsync!();
    for nas in WAYS.map(|way| way("keep")) {
        nas.plant("old", "new content", "old");
        let _ = nas.push(&[]).expect_quiet_success();
        let before = survey(&nas.scratch.at("share/.dsync-kept"));
        symlink("../../.dsync-kept", nas.there("door")).unwrap();
        for path in ["../.dsync-kept/", "tree/../../.dsync-kept/web1/", "tree/door/"] {
            let away = nas.operand(path);
            let pulled = nas.run().arg("-a").arg(&away).arg(slash(&nas.scratch.at("got"))).run();
            let _ = pulled.expect_code(42);
            let pushed = nas.run().args(["-a", "--delete"]).arg(slash(&nas.scratch.src())).arg(&away).run();
            let _ = pushed.expect_code(42);
        }
        for (option, demand) in [
            ("--inplace", "--inplace"),
            ("--append", "--inplace"),
            ("--backup", "--backup"),
            ("--backup-dir=old", "--backup"),
            ("--delay-updates", "--delay-updates"),
            ("--partial-dir=parts", "--partial-dir"),
        ] {
            let refused = nas.push(&[option]).expect_code(42);
            for part in [demand, "the role 'keep'"] {
                assert!(refused.stderr_text().contains(part), "{part}: {}", refused.account());
            }
        }
        assert_unchanged(&before, &nas.scratch.at("share/.dsync-kept"));
    }
}

#[test]
fn what_cannot_be_kept_stays() {
    needs_dsync!();
    let nas = Nas::new("keep");
    nas.plant("old", "new content", "old");
    nas.plant("extra", "extra", "extra");
    forget(&nas, "extra");
    // Nothing can be made in what is no directory.
    fs::write(nas.scratch.at("share/.dsync-kept"), "").unwrap();
    let before = survey(&nas.tree());
    let refused = nas.push(&["--delete"]).expect_code(3);
    assert!(refused.stderr_text().contains("cannot be used"), "{}", refused.account());
    // The system's reason is for the administrator, whose command may ask for it.
    assert!(!refused.stderr_text().contains("Not a directory"), "{}", refused.account());
    let logged = Run::of(nas.shell()).env("DSYNC_LOG", "error").run().expect_code(3);
    assert!(logged.stderr_text().contains("Not a directory"), "{}", logged.account());
    assert_unchanged(&before, &nas.tree());
}

#[test]
fn where_kept_entries_would_be_on_another_filesystem_nothing_is_replaced_and_nothing_is_left() {
    needs_root!();
    needs_dsync!();
    for nas in WAYS.map(|way| way("keep")) {
        let place = nas.scratch.at("share/.dsync-kept");
        fs::create_dir(&place).unwrap();
        let Some(_mount) = Mount::tmpfs(&place, "size=1m") else { return };
        nas.plant("old", "new content", "old");
        nas.plant("extra", "extra", "extra");
        forget(&nas, "extra");
        symlink("there", nas.there("link")).unwrap();
        symlink("here", nas.scratch.src().join("link")).unwrap();
        let before = survey(&nas.tree());
        let _ = nas.push(&["--delete"]).expect_code(23);
        assert_unchanged(&before, &nas.tree());
        let left: Vec<_> = kept(&nas).iter().flat_map(|session| survey(session).into_keys()).collect();
        // Of the directory on the way alone.
        assert!(left.iter().all(|path| path.is_empty() || path == b"tree"), "{left:?}");
    }
}

#[test]
fn a_dry_run_keeps_nothing_and_says_the_same() {
    needs_dsync!();
    let nas = Nas::new("keep");
    nas.plant("old", "new content", "old");
    fs::write(nas.there("extra"), "extra").unwrap();
    let before = survey(&nas.tree());
    let dry = nas.push(&["--delete", "-i", "-n"]).expect_code(0);
    assert_unchanged(&before, &nas.tree());
    assert_eq!(kept(&nas), Vec::<PathBuf>::new());
    let wet = nas.push(&["--delete", "-i"]).expect_code(0);
    assert_eq!(dry.stdout_text(), wet.stdout_text());
    assert_eq!((content(&nas, "old"), content(&nas, "extra")), (vec!["old".into()], vec!["extra".into()]));
}

/// Plants kept directories of long ago, of today and of nobody.
fn plant_kept(nas: &Nas) -> [PathBuf; 3] {
    let place = nas.scratch.at("share/.dsync-kept/web1");
    let made = ["2020-02-29T10-00-00.000Z", "9999-01-01T10-00-00.000Z", "notes"].map(|name| place.join(name));
    for dir in &made {
        fs::create_dir_all(dir.join("sub")).unwrap();
        fs::write(dir.join("sub/file"), "kept").unwrap();
    }
    made
}

#[test]
fn what_is_kept_goes_when_its_days_are_over_and_no_sooner() {
    needs_dsync!();
    // Without a server: one cleans when it starts.
    let (nas, _) = Nas::offering("keep");
    let [old, young, foreign] = plant_kept(&nas);
    let config = nas.scratch.at("serve.toml");
    let clean = || Run::dsync().args(["serve", "--clean", "--config"]).arg(&config).run();
    let said = clean().expect_code(0);
    assert!(said.stderr_text().contains("cleaned share=nas removed=1 days=30"), "{}", said.account());
    assert!(!old.exists() && young.join("sub/file").exists() && foreign.join("sub/file").exists());
    assert_eq!(clean().expect_code(0).stderr_text(), "");

    // A share that is not there is left alone.
    let [old, ..] = plant_kept(&nas);
    let text = fs::read_to_string(&config).unwrap();
    nas.configure(&text.replacen("keep-days", "marker = '.here'\nkeep-days", 1));
    let failed = clean().expect_code(3);
    assert!(failed.stderr_text().contains("is not there"), "{}", failed.account());
    assert!(old.exists());
}

#[test]
fn a_share_that_is_not_cleaned_whole_tells_which_entry_stays_and_why() {
    needs_root!();
    needs_dsync!();
    let nas = Nas::new("keep");
    let config = nas.scratch.at("serve.toml");
    let text = fs::read_to_string(&config).unwrap();
    nas.configure(&text.replacen("user = 'root'", "user = 'nobody'", 1));
    fs::set_permissions(nas.scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let key = nas.scratch.at("share/.dsync-kept/web1");
    fs::create_dir_all(key.join("2020-01-01T00-00-00.000Z")).unwrap();
    fs::write(key.join("2020-01-01T00-00-00.000Z/f"), "f").unwrap();

    let clean = || Run::dsync().args(["serve", "--clean", "--config"]).arg(&config).run().expect_code(23);
    let entry = "cannot remove '.dsync-kept/web1/2020-01-01T00-00-00.000Z/f'";
    let said = clean().stderr_text();
    assert!(said.contains(&format!("{entry}: Permission denied for user 'nobody'")), "{said}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o711)).unwrap();
    let said = clean().stderr_text();
    assert!(said.contains("cannot list '.dsync-kept/web1': Permission denied for user 'nobody'"), "{said}");
}

#[test]
fn a_server_cleans_by_itself() {
    needs_dsync!();
    let (mut nas, _) = Nas::offering("keep");
    let [old, young, _] = plant_kept(&nas);
    nas.stand();
    wait_for(|| nas.log().contains("cleaned share=nas removed=1"));
    assert!(!old.exists() && young.exists());
}

#[test]
fn a_share_that_cannot_be_written_is_read_and_replaces_nothing_that_cannot_be_kept() {
    needs_root!();
    needs_dsync!();
    for nas in WAYS.map(|way| way("keep")) {
        let Some(mount) = Mount::tmpfs(&nas.scratch.at("share"), "size=1m,nr_inodes=16") else { return };
        fs::create_dir_all(nas.tree()).unwrap();
        fs::write(nas.tree().join("file"), "old").unwrap();
        fs::write(nas.scratch.src().join("file"), "a new one").unwrap();

        mount.remount("ro");
        let _ = nas.pull(&[]).expect_code(0);
        assert_eq!(fs::read_to_string(nas.scratch.at("got/file")).unwrap(), "old");
        let outcome = nas.push(&[]).expect_code(11);
        assert!(outcome.stderr_text().contains("Read-only file system"), "{}", outcome.account());

        // No inode is left for the directory of what is kept.
        mount.remount("rw");
        let filled =
            (0..40).take_while(|number| fs::write(nas.tree().join(format!("x{number}")), "").is_ok());
        assert!(filled.count() < 40);
        let outcome = nas.push(&[]).expect_code(11);
        assert!(outcome.stderr_text().contains("No space left on device"), "{}", outcome.account());
        assert_eq!(fs::read_to_string(nas.tree().join("file")).unwrap(), "old");
    }
}

#[test]
fn no_attribute_of_a_kept_file_changes_through_a_further_name_of_it() {
    needs_dsync!();
    for nas in WAYS.map(|way| way("keep")) {
        nas.plant("first", "good", "good");
        fs::hard_link(nas.scratch.src().join("first"), nas.scratch.src().join("second")).unwrap();
        let _ = nas.push(&["-H"]).expect_quiet_success();
        forget(&nas, "first");
        fs::write(nas.scratch.src().join("first"), "evil").unwrap();
        let _ = nas.push(&[]).expect_quiet_success();
        let old = kept(&nas)[0].join("tree/first");
        let facts = || fs::metadata(&old).map(|kept| (kept.mode(), kept.mtime())).unwrap();
        let before = facts();

        let second = nas.scratch.src().join("second");
        fs::set_permissions(&second, fs::Permissions::from_mode(0o600)).unwrap();
        let _ = nas.push(&[]).expect_quiet_success();
        set_mtime(&second, (5, 0));
        let _ = nas.push(&["-c"]).expect_quiet_success();
        assert_eq!(facts(), before);
        let there = fs::metadata(nas.there("second")).unwrap();
        assert_eq!((there.mode() & 0o777, there.mtime()), (0o600, 5));
        assert_eq!(fs::read_to_string(nas.there("second")).unwrap(), "good");
        assert!(nas.push(&["-i"]).expect_code(0).stdout_text().is_empty());
    }
}
