//! A share whose user may not use it: what `--check`, the log and the client are told.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown, symlink},
};

use dsync_tests::{Outcome, Run, mount::Mount, needs_dsync, needs_root, run::wait_for};

use crate::nas::Nas;

/// The number of the user of these shares.
const NOBODY: u32 = 65_534;

/// Makes a share with a marker for a server whose sessions become nobody.
fn nobodys(role: &str) -> Nas {
    let (mut nas, server) = Nas::offering(role);
    let text = fs::read_to_string(nas.scratch.at("serve.toml")).unwrap();
    nas.configure(&text.replacen("user = 'root'", "user = 'nobody'\nmarker = '.here'", 1));
    fs::write(nas.scratch.at("share/.here"), "").unwrap();
    fs::write(nas.scratch.src().join("file"), "content").unwrap();
    fs::set_permissions(nas.scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    nas.stand();
    nas.know(&server);
    nas
}

fn check(nas: &Nas) -> Outcome {
    Run::dsync().args(["serve", "--check", "--config"]).arg(nas.scratch.at("serve.toml")).run()
}

#[test]
fn a_share_that_its_user_may_not_enter_is_no_missing_disk_and_fails_the_check() {
    needs_root!();
    needs_dsync!();
    let nas = nobodys("append");
    let share = nas.scratch.at("share");
    let cause = "the directory of share 'nas' cannot be opened: Permission denied for user 'nobody'";

    fs::set_permissions(&share, fs::Permissions::from_mode(0o700)).unwrap();
    let checked = check(&nas).expect_code(1);
    assert!(checked.stderr_text().contains(cause), "{}", checked.account());
    let refused = nas.push(&[]).expect_code(3);
    assert!(refused.stderr_text().contains("cannot be opened"), "{}", refused.account());
    assert!(!refused.stderr_text().contains("disk"), "{}", refused.account());
    assert!(nas.log().contains(cause) && !nas.log().contains("disk"), "{}", nas.log());
}

#[test]
fn check_tells_of_a_link_where_a_keys_directories_are() {
    needs_dsync!();
    let (nas, _) = Nas::offering("keep");
    let _ = check(&nas).expect_code(0);
    let share = nas.scratch.at("share");
    // Missing ones are made, and a link is not followed.
    for (place, shown) in [("of-web1", "of-web1"), (".dsync-kept", ".dsync-kept/web1")] {
        let (place, aside) = (share.join(place), share.join("aside"));
        fs::create_dir_all(&place).unwrap();
        fs::rename(&place, &aside).unwrap();
        symlink("aside", &place).unwrap();
        let checked = check(&nas).expect_code(1);
        let words = format!("key 'web1': the directory '{shown}' in share 'nas' cannot be used");
        assert!(checked.stderr_text().contains(&words), "{}", checked.account());
        fs::remove_file(&place).unwrap();
        fs::rename(&aside, &place).unwrap();
        let _ = check(&nas).expect_code(0);
    }
}

#[test]
fn check_tells_of_kept_entries_on_another_filesystem() {
    needs_root!();
    needs_dsync!();
    let (nas, _) = Nas::offering("keep");
    let place = nas.scratch.at("share/.dsync-kept");
    fs::create_dir(&place).unwrap();
    let Some(_mount) = Mount::tmpfs(&place, "size=1m") else { return };
    let checked = check(&nas).expect_code(1);
    let words =
        "the directory '.dsync-kept/web1' in share 'nas' is on another filesystem than what the key replaces";
    assert!(checked.stderr_text().contains(words), "{}", checked.account());
    // Other roles keep nothing.
    let text = fs::read_to_string(nas.scratch.at("serve.toml")).unwrap();
    nas.configure(&text.replacen("role = 'keep'", "role = 'full'", 1));
    let _ = check(&nas).expect_code(0);
}

#[test]
fn check_tells_of_what_a_shares_user_may_not_write_or_read() {
    needs_root!();
    needs_dsync!();
    for role in ["append", "read", "keep"] {
        let nas = nobodys(role);
        let share = nas.scratch.at("share");
        fs::remove_dir_all(nas.place()).unwrap();
        // The key's directory is made there, whatever its role.
        fs::set_permissions(&share, fs::Permissions::from_mode(0o755)).unwrap();
        let checked = check(&nas).expect_code(1);
        let said = format!("user 'nobody' cannot {{}} '{}', as key 'web1' may", share.display());
        let does = if role == "read" { "read" } else { "write to" };
        assert!(checked.stderr_text().contains(&said.replace("{}", does)), "{role}: {}", checked.account());

        fs::create_dir(nas.place()).unwrap();
        fs::set_permissions(nas.place(), fs::Permissions::from_mode(0o755)).unwrap();
        let of_read = check(&nas);
        assert_eq!(of_read.code(), Some(i32::from(role != "read")), "{role}: {}", of_read.account());

        // The nearest that works: the directory is the user's. What is kept needs the share itself.
        chown(nas.place(), Some(NOBODY), None).unwrap();
        assert_eq!(check(&nas).code(), Some(i32::from(role == "keep")), "{role}");
        chown(&share, Some(NOBODY), None).unwrap();
        let _ = check(&nas).expect_code(0);
        if role != "read" {
            let _ = nas.push(&["--mkpath"]).expect_quiet_success();
        }
    }
}

#[test]
fn a_server_without_root_tells_of_the_shares_of_other_users_and_fails_its_check() {
    needs_root!();
    needs_dsync!();
    let (nas, _) = Nas::offering("append");
    let config = nas.scratch.at("serve.toml");
    let text = fs::read_to_string(&config).unwrap();
    for place in [nas.scratch.at("server.key"), config.clone(), nas.place()] {
        chown(place, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    fs::set_permissions(nas.scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let serve = |words: &[&str]| {
        let run = Run::dsync().arg("serve").args(words).arg("--config").arg(&config);
        run.as_user(NOBODY, NOBODY)
    };
    let words = "share 'nas': cannot become user 'daemon': the server does not run as root";

    fs::write(&config, text.replacen("user = 'root'", "user = 'daemon'", 1)).unwrap();
    let checked = serve(&["--check"]).run().expect_code(1);
    assert!(checked.stderr_text().contains(words), "{}", checked.account());
    let mut running = serve(&[]).start();
    wait_for(|| !running.is_running() || running.has_said("listening on"));
    assert!(running.has_said(words));
    running.kill();
    let _ = running.wait();

    // The nearest that works: the server's own user.
    fs::write(&config, text.replacen("user = 'root'", "user = 'nobody'", 1)).unwrap();
    let _ = serve(&["--check"]).run().expect_code(0);
    // Root could become each of them.
    fs::write(&config, text.replacen("user = 'root'", "user = 'daemon'", 1)).unwrap();
    chown(&config, Some(0), Some(0)).unwrap();
    chown(nas.scratch.at("server.key"), Some(0), Some(0)).unwrap();
    assert!(!check(&nas).stderr_text().contains("cannot become"));
}
