//! The table of roles in docs/server.md, cell by cell.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
};

use dsync_tests::{
    Run, needs_dsync,
    run::{is_alive, wait_for},
    scratch::slash,
    tree::{noise, set_mtime},
    unfinished::{finished_segments, hidden},
};
use rustix::process::Signal;

use crate::nas::{LONG_AGO, Nas};

/// Performs an operation through a key; returns whether it came to pass.
fn performed(operation: &str, nas: &Nas) -> bool {
    let content = |name: &str| fs::read_to_string(nas.there(name)).unwrap_or_default();
    let here = |name: &str| nas.scratch.src().join(name);
    nas.plant("file", "same", "same");
    match operation {
        "list" => nas.run().arg(nas.operand("tree/")).run().stdout_text().contains("file"),
        "read" => {
            let _ = nas.pull(&[]);
            fs::read_to_string(nas.scratch.at("got/file")).is_ok_and(|text| text == "same")
        }
        "create" => {
            fs::write(here("new"), "new").unwrap();
            let _ = nas.push(&[]);
            content("new") == "new"
        }
        "resume" => resumes(nas),
        "link" => {
            fs::hard_link(here("file"), here("another")).unwrap();
            let _ = nas.push(&["-H"]);
            nas.there("another").exists()
        }
        "replace" => {
            nas.plant("old", "content of the client", "old");
            let _ = nas.push(&[]);
            content("old") == "content of the client"
        }
        "truncate" => {
            nas.plant("old", "", "old");
            let _ = nas.push(&[]);
            content("old").is_empty()
        }
        "append" => {
            nas.plant("old", "old and new", "old");
            let _ = nas.push(&["--append"]);
            content("old") == "old and new"
        }
        "chmod" => {
            fs::set_permissions(here("file"), fs::Permissions::from_mode(0o600)).unwrap();
            fs::set_permissions(nas.there("file"), fs::Permissions::from_mode(0o640)).unwrap();
            let _ = nas.push(&[]);
            fs::metadata(nas.there("file")).unwrap().mode() & 0o7777 == 0o600
        }
        "rename over" => {
            nas.plant("old", "", "old");
            fs::remove_file(here("old")).unwrap();
            symlink("file", here("old")).unwrap();
            let _ = nas.push(&[]);
            nas.there("old").is_symlink()
        }
        "delete" => {
            fs::write(nas.there("extra"), "extra").unwrap();
            let _ = nas.push(&["--delete"]);
            !nas.there("extra").exists()
        }
        "take away" => {
            let _ = nas.pull(&["--remove-source-files"]);
            !nas.there("file").exists()
        }
        "verify" => verifies(nas),
        other => panic!("no test has the operation '{other}' of docs/server.md"),
    }
}

/// Records the tree from afar, lets a file rot, and returns whether a verification finds it.
fn verifies(nas: &Nas) -> bool {
    let verify = |words: &[&str]| {
        let run = Run::dsync().args(["verify", "--manifest"]).arg(nas.scratch.at("manifest"));
        let run = match &nas.server {
            Some(_) => run.env("XDG_CONFIG_HOME", nas.config("home")),
            None => run.arg("-e").arg(nas.shell()),
        };
        run.args(words).arg(nas.operand("tree")).run()
    };
    let recorded = verify(&["--record"]).code() == Some(0);
    nas.plant("file", "same", "lost");
    let found = verify(&[]);
    recorded && found.code() == Some(23) && found.stdout_text().starts_with("rot        file\n")
}

/// Kills a push in a large file and pushes again; returns whether the second run sent less than all.
fn resumes(nas: &Nas) -> bool {
    let big = noise(7, 24 << 20);
    fs::write(nas.scratch.src().join("big"), &big).unwrap();
    let slow = nas.run().args(["-a", "--bwlimit=8M"]).arg(slash(&nas.scratch.src())).arg(nas.operand("tree"));
    let mut slow = slow.start();
    wait_for(|| !slow.is_running() || finished_segments(&nas.tree()) >= 4);
    if !slow.is_running() {
        return false;
    }
    let sessions = nas.sessions(&slow);
    slow.signal(Signal::KILL);
    let _ = slow.wait();
    // Each session ends with its client, and gives up its hold on the part.
    wait_for(|| sessions.iter().all(|session| !is_alive(*session)));
    let sent = nas.push(&["--stats"]).expect_code(0).stat("Literal data");
    assert_eq!(fs::read(nas.there("big")).unwrap(), big);
    assert_eq!(hidden(&nas.tree()), 0);
    sent < big.len() as u64
}

/// Returns the rows of the table of docs/server.md: the operation, and for each role whether it is
/// allowed.
fn table() -> (Vec<String>, Vec<(String, Vec<bool>)>) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/server.md");
    let page = fs::read_to_string(page).unwrap();
    let table = page.split("<!-- table: roles -->\n").nth(1).unwrap();
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let mut lines = table.lines().take_while(|line| line.starts_with('|'));
    let roles = cells(lines.next().unwrap()).split_off(1);
    let rows = lines.skip(1).map(|line| {
        let mut cells = cells(line);
        let allowed = cells.split_off(1).iter().map(|cell| cell == "yes").collect();
        (cells.remove(0), allowed)
    });
    (roles, rows.collect())
}

/// Holds every cell of the table to runs by one way.
fn every_cell(way: impl Fn(&str) -> Nas) {
    let (roles, rows) = table();
    assert_eq!(roles, ["read", "append", "keep", "write", "full"]);
    assert!(rows.len() >= 12, "{rows:?}");
    for (operation, cells) in rows {
        assert_eq!(cells.len(), roles.len(), "{operation}");
        for (role, allowed) in roles.iter().zip(cells) {
            let nas = way(role);
            let found = performed(&operation, &nas);
            assert_eq!(found, allowed, "{operation} with the role {role}\n{}", nas.log());
        }
    }
}

#[test]
fn every_cell_of_the_table_of_roles_is_as_it_says() {
    needs_dsync!();
    every_cell(Nas::new);
}

#[test]
fn every_cell_of_the_table_is_the_same_over_a_port() {
    needs_dsync!();
    every_cell(Nas::standing);
}

#[test]
fn every_cell_of_the_table_is_the_same_behind_sshd() {
    needs_dsync!();
    every_cell(Nas::through_sshd);
}

/// Plants files at both ends and, beside the tree, equal ones that an alternate directory is to have.
fn plant_alternates(nas: &Nas) {
    fs::create_dir(nas.place().join("other")).unwrap();
    for (name, there) in [("same", "same"), ("differs", "old one")] {
        nas.plant(name, "same", there);
        fs::write(nas.place().join("other").join(name), "same").unwrap();
        set_mtime(&nas.place().join("other").join(name), LONG_AGO);
    }
}

#[test]
fn no_name_goes_for_an_alternate_where_none_may_be_removed() {
    needs_dsync!();
    for (way, refused) in [Nas::new, Nas::standing].into_iter().flat_map(|way| [(way, false), (way, true)]) {
        let nas = way(if refused { "full" } else { "write" });
        if refused {
            nas.limit("refuse = ['delete']");
        }
        plant_alternates(&nas);
        let pushed = nas.push(&["--compare-dest=../other"]).expect_code(0);
        for name in ["same", "differs"] {
            assert_eq!(fs::read_to_string(nas.there(name)).unwrap(), "same", "{name}\n{}", pushed.account());
        }
        let _ = nas.push(&["--delete"]).expect_code(42);
    }
}

#[test]
fn where_entries_are_only_added_an_alternate_changes_none_that_is_there() {
    needs_dsync!();
    for (way, option) in [Nas::new, Nas::standing]
        .into_iter()
        .flat_map(|way| ["link", "compare", "copy"].map(|option| (way, option)))
    {
        let nas = way("append");
        plant_alternates(&nas);
        let other = nas.place().join("other/same");
        let before = fs::metadata(&other).unwrap();
        let option = format!("--{option}-dest=../other");
        let pushed = nas.push(&[&option, "-i"]).expect_code(23);
        let said = format!("{option}\n{}", pushed.account());
        assert_eq!(pushed.stderr_text().matches("it is there already and differs").count(), 1, "{said}");
        assert_eq!(fs::read_to_string(nas.there("differs")).unwrap(), "old one", "{said}");
        assert_eq!(fs::read_to_string(nas.there("same")).unwrap(), "same", "{said}");
        fs::remove_file(nas.scratch.src().join("differs")).unwrap();
        let _ = nas.push(&[&option]).expect_quiet_success();

        // Nor does the other file change that a new name is linked to, by its access time.
        let file = fs::File::open(nas.scratch.src().join("same")).unwrap();
        let times = fs::FileTimes::new().set_accessed(std::time::SystemTime::UNIX_EPOCH);
        file.set_times(times).unwrap();
        fs::remove_file(nas.there("same")).unwrap();
        let _ = nas.push(&[&option, "-U"]).expect_code(0);
        assert_eq!(fs::metadata(&other).unwrap().atime(), before.atime(), "{option}");
    }
}

#[test]
fn where_entries_are_only_added_directories_of_a_run_that_was_cut_off_have_their_modes() {
    needs_dsync!();
    for way in [Nas::new, Nas::standing] {
        let nas = way("append");
        let here = |path: &str| nas.scratch.src().join(path);
        for (dir, mode) in [("open", 0o755), ("open/deep", 0o750), ("odd", 0o1705)] {
            fs::create_dir(here(dir)).unwrap();
            fs::set_permissions(here(dir), fs::Permissions::from_mode(mode)).unwrap();
            fs::write(here(dir).join("big"), noise(u64::from(mode), 24 << 20)).unwrap();
        }
        let slow =
            nas.run().args(["-a", "--bwlimit=8M"]).arg(slash(&nas.scratch.src())).arg(nas.operand("tree"));
        let mut slow = slow.start();
        let all = || ["open/deep", "odd"].into_iter().all(|dir| nas.there(dir).exists());
        wait_for(|| !slow.is_running() || all());
        let sessions = nas.sessions(&slow);
        slow.signal(Signal::KILL);
        let _ = slow.wait();
        wait_for(|| sessions.iter().all(|session| !is_alive(*session)));
        assert!(all());

        let _ = nas.push(&[]).expect_quiet_success();
        for (dir, mode) in [("open", 0o755), ("open/deep", 0o750), ("odd", 0o1705)] {
            assert_eq!(fs::metadata(nas.there(dir)).unwrap().mode() & 0o7777, mode, "{dir}");
            assert_eq!(fs::read(nas.there(dir).join("big")).unwrap().len(), 24 << 20);
        }
    }
}
