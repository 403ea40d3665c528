//! A kernel without Landlock, where sessions of a server that is root see their share through a mount
//! namespace.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::Path,
    process::Command,
};

use dsync_tests::{Outcome, deeds, mount::Mount, needs_dsync, needs_root, scratch::slash};
use rustix::io::Errno;

use crate::{
    nas::{Nas, children},
    taken_over::{end_traced, refused, taken_server, without, words},
};

/// Becomes the server in a mount namespace that shares what is mounted with those below it.
const SHARING: &str = r#"mount --make-rshared / && exec "$@""#;

/// Adds a share that key `web1` may use as a whole.
fn add_share(nas: &Nas, name: &str, path: &Path, more: &str) {
    nas.limit(&format!(
        "[shares.{name}]\npath = '{}'\n{more}\nuser = 'root'\n[shares.{name}.keys.web1]\nrole = 'full'",
        path.display()
    ));
}

/// Pushes to a share by its name.
fn push_to(nas: &Nas, share: &str) -> Outcome {
    let there = format!("dsync://127.0.0.1:{}/{share}/", nas.port());
    nas.run().arg("-a").arg("--retries=0").arg(slash(&nas.scratch.src())).arg(there).run()
}

/// Returns the command of a server that has a mount namespace of its own, and what strace injects.
fn sharing(nas: &Nas) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", SHARING, "sh"])
        .args(words(&without(nas, "landlock_create_ruleset")));
    command
}

/// Returns the table of mounts that the server sees, without those of tests that run beside this one: a
/// mount ends here too when its directory is removed elsewhere.
fn mounts(nas: &Nas) -> Vec<String> {
    let server = children(nas.server.as_ref().unwrap().process.id())[0];
    let own = nas.scratch.path().to_str().unwrap();
    let all = own.rsplit_once('/').unwrap().0;
    let table = fs::read_to_string(format!("/proc/{server}/mountinfo")).unwrap();
    let stays = |line: &&str| line.contains(own) || !line.contains(&format!("{all}/"));
    table.lines().filter(stays).map(str::to_owned).collect()
}

/// Returns what each deed meets in a session of root's that sees its share only. Of another share there
/// is still a directory, which is empty and never written.
fn met(is_share: bool) -> BTreeMap<String, i32> {
    let missing = Errno::NOENT.raw_os_error();
    let mut met = refused(true);
    for error in met.values_mut() {
        if [Errno::ACCESS, Errno::XDEV].map(Errno::raw_os_error).contains(error) {
            *error = missing;
        }
    }

    // Landlock keeps even root's session from signals.
    let mut other = vec![("inside", 0), ("names", missing), ("signal", 0)];
    if is_share {
        let never = Errno::ROFS.raw_os_error();
        other.extend(["create", "mkdir", "symlink", "unlink"].map(|deed| (deed, never)));
        other.extend([("list", 0), ("rename", Errno::XDEV.raw_os_error())]);
    }
    met.extend(other.into_iter().map(|(deed, met)| (deed.to_owned(), met)));
    met
}

#[test]
fn code_of_an_attacker_reaches_nothing_beside_the_share_without_landlock_either() {
    needs_root!();
    needs_dsync!();
    // A directory that is no share, another share, and a root that changes places with no other.
    for (is_share, more) in [(false, ""), (true, ""), (false, "inject=pivot_root:error=EINVAL")] {
        let (mut nas, key) = Nas::offering("full");
        let outside = nas.scratch.at("outside");
        if is_share {
            add_share(&nas, "other", &outside, "");
        }
        let mut server = without(&nas, "landlock_create_ruleset");
        if !more.is_empty() {
            let rest: Vec<_> = server.get_args().map(ToOwned::to_owned).collect();
            server = Command::new("strace");
            server.args(["-e", more]).args(rest);
        }

        nas.stand_by(taken_server(&nas, &server));
        nas.know(&key);
        let _ = nas.push(&[]).expect_code(0);
        end_traced(&mut nas);

        let times = deeds::each_time(&nas.scratch.at("deeds"));
        for time in &times {
            assert_eq!(time, &met(is_share), "{is_share} {more}");
        }
        assert_eq!(fs::read(outside.join("secret")).unwrap(), b"secret");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        assert_eq!(fs::read(nas.there("f")).unwrap(), b"content");
    }
}

#[test]
fn sessions_without_landlock_use_each_share_as_their_role_says_and_leave_no_mount() {
    needs_root!();
    needs_dsync!();
    for role in ["full", "append", "read"] {
        let (mut nas, key) = Nas::offering(role);
        fs::create_dir_all(nas.scratch.src().join("a/b")).unwrap();
        for file in ["f", "a/b/f"] {
            fs::write(nas.scratch.src().join(file), file).unwrap();
        }
        fs::write(nas.there("g"), "there").unwrap();
        nas.stand_by(sharing(&nas));
        nas.know(&key);
        let before = mounts(&nas);

        if role == "read" {
            let _ = nas.push(&[]).expect_code(42);
        } else {
            let _ = nas.push(&[]).expect_quiet_success();
            assert_eq!(fs::read(nas.there("a/b/f")).unwrap(), b"a/b/f", "{role}");
        }
        let _ = nas.pull(&[]).expect_quiet_success();
        assert_eq!(fs::read(nas.scratch.at("got/g")).unwrap(), b"there", "{role}");
        assert_eq!(mounts(&nas), before, "{role}");
        end_traced(&mut nas);
    }
}

#[test]
fn every_kind_of_path_of_a_share_is_the_same_without_landlock() {
    needs_root!();
    needs_dsync!();
    let (mut nas, key) = Nas::offering("full");
    fs::write(nas.scratch.src().join("f"), "content").unwrap();
    let scratch = nas.scratch.path().to_owned();
    let at = |path: &str| scratch.join(path);
    for dir in ["share/below", "far/away", "disk", "unmounted", "whole dir"] {
        fs::create_dir_all(at(dir)).unwrap();
    }
    symlink(at("far"), at("link")).unwrap();
    let Some(disk) = Mount::tmpfs(&at("disk"), "size=1m") else { return };
    fs::create_dir(at("disk/deep")).unwrap();
    let Some(deep) = Mount::tmpfs(&at("disk/deep"), "size=1m") else { return };

    for (name, path, more) in [
        ("top", "share", ""),
        ("below", "share/below", ""),
        ("link", "link/away", ""),
        ("disk", "disk", "mounted = true"),
        ("unmounted", "unmounted", "mounted = true"),
        ("gone", "gone/gone", ""),
        ("blank", "whole dir", ""),
    ] {
        add_share(&nas, name, &at(path), more);
    }
    nas.stand_by(without(&nas, "landlock_create_ruleset"));
    nas.know(&key);
    for (share, found) in [
        ("top", at("share/f")),
        ("below", at("share/below/f")),
        ("link", at("far/away/f")),
        ("disk", disk.path().join("f")),
        ("disk/deep", deep.path().join("f")),
        ("blank", at("whole dir/f")),
    ] {
        let _ = push_to(&nas, share).expect_quiet_success();
        assert_eq!(fs::read(found).unwrap(), b"content", "{share}");
    }
    let _ = nas.push(&[]).expect_quiet_success();
    for (share, why) in [("unmounted", "nothing is mounted"), ("gone", "cannot be opened")] {
        let refused = push_to(&nas, share).expect_code(3);
        assert!(refused.stderr_text().contains(why), "{share}: {}", refused.account());
    }
    assert_eq!(fs::read_dir(at("unmounted")).unwrap().count(), 0);
    assert!(!at("gone").exists());
    end_traced(&mut nas);
}

#[test]
fn a_mount_keeps_its_restrictions_in_a_session_without_landlock() {
    needs_root!();
    needs_dsync!();
    let (mut nas, key) = Nas::offering("full");
    fs::write(nas.scratch.src().join("f"), "content").unwrap();
    fs::create_dir_all(nas.scratch.at("original/deep")).unwrap();
    fs::create_dir(nas.scratch.at("locked")).unwrap();
    let Some(locked) = Mount::bind(&nas.scratch.at("original"), &nas.scratch.at("locked")) else { return };
    locked.remount("bind,ro");
    add_share(&nas, "locked", locked.path(), "");
    nas.stand_by(without(&nas, "landlock_create_ruleset"));
    nas.know(&key);
    let refused = push_to(&nas, "locked");
    assert_eq!(refused.code(), Some(11), "{}", refused.account());
    assert_eq!(fs::read_dir(nas.scratch.at("original")).unwrap().count(), 1);
    end_traced(&mut nas);
}

#[test]
fn a_link_that_a_user_plants_on_the_way_to_a_share_shows_nothing_new() {
    needs_root!();
    needs_dsync!();
    let (mut nas, key) = Nas::offering("full");
    // Everybody may read the directory that nobody else reaches.
    fs::create_dir_all(nas.scratch.at("private/open")).unwrap();
    fs::write(nas.scratch.at("private/open/secret"), "secret").unwrap();
    fs::set_permissions(nas.scratch.at("private"), fs::Permissions::from_mode(0o700)).unwrap();
    symlink(nas.scratch.at("private/open"), nas.scratch.at("planted")).unwrap();
    add_share(&nas, "planted", &nas.scratch.at("planted"), "");
    let config = fs::read_to_string(nas.scratch.at("serve.toml")).unwrap();
    let last = config.rfind("user = 'root'").unwrap();
    let (before, after) = config.split_at(last);
    nas.configure(&format!("{before}{}", after.replacen("root", "nobody", 1)));

    nas.stand_by(without(&nas, "landlock_create_ruleset"));
    nas.know(&key);
    let there = format!("dsync://127.0.0.1:{}/planted/", nas.port());
    let pulled = nas.run().arg("-a").arg("--retries=0").arg(there).arg(slash(&nas.scratch.at("got"))).run();
    let _ = pulled.expect_code(3);
    assert!(!nas.scratch.at("got/secret").exists());
    end_traced(&mut nas);
}

#[test]
fn sessions_become_the_shares_user_in_a_mount_namespace_too() {
    needs_root!();
    needs_dsync!();
    let (mut nas, key) = Nas::offering("full");
    fs::write(nas.scratch.src().join("f"), "content").unwrap();
    fs::remove_dir_all(nas.place()).unwrap();
    fs::set_permissions(nas.scratch.at("share"), fs::Permissions::from_mode(0o777)).unwrap();
    let config = fs::read_to_string(nas.scratch.at("serve.toml")).unwrap();
    nas.configure(&config.replacen("user = 'root'", "user = 'nobody'", 1));
    // A mask of the server's that would close the directories of the new root to its users.
    let mut masked = Command::new("sh");
    masked.args(["-c", "umask 077 && exec \"$@\"", "sh"]).args(words(&sharing(&nas)));
    nas.stand_by(masked);
    nas.know(&key);
    let _ = nas.push(&["--mkpath"]).expect_quiet_success();
    assert_eq!(fs::metadata(nas.there("f")).unwrap().uid(), 65534);
    end_traced(&mut nas);
}

#[test]
fn without_the_right_to_mount_the_layer_is_missing_and_said_to_be() {
    needs_root!();
    needs_dsync!();
    let (mut nas, key) = Nas::offering("full");
    fs::write(nas.scratch.src().join("f"), "content").unwrap();
    let mut confined = Command::new("setpriv");
    confined.arg("--bounding-set=-sys_admin").args(words(&without(&nas, "landlock_create_ruleset")));
    nas.stand_by(confined);
    let said = "sessions have no mount namespace in its place either: ";
    assert!(nas.log().contains(said), "{}", nas.log());
    nas.know(&key);
    let pushed = nas.push(&["-v"]).expect_code(0);
    let note = "without a mount namespace in place of Landlock";
    assert!(pushed.stderr_text().contains(note), "{}", pushed.account());
    assert_eq!(fs::read(nas.there("f")).unwrap(), b"content");
    end_traced(&mut nas);
}
