//! Shares and keys of `dsync serve`: what each role does and does not do, and who gets no session
//! at all.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use dsync_tests::{
    Outcome, Run, Scratch, assert_unchanged, needs_dsync, program,
    run::{is_alive, send, wait_for},
    scratch::slash,
    survey,
    tree::{noise, set_mtime},
    unfinished::{finished_segments, hidden},
};
use rustix::process::Signal;

/// A time that both ends of each planted file have.
const LONG_AGO: (i64, i64) = (1_500_000_000, 0);

/// A share, and a remote shell that is sshd with the key's command.
struct Nas {
    scratch: Scratch,
}

impl Nas {
    /// Makes a share that key `web1` uses with this role.
    fn new(role: &str) -> Self {
        let nas = Self { scratch: Scratch::new() };
        fs::create_dir_all(nas.tree()).unwrap();
        nas.configure(&format!(
            "[keys.web1]\n[shares.nas]\npath = '{}'\n[shares.nas.keys.web1]\nrole = '{role}'\ndirectory = 'of-{{key}}'\n",
            nas.scratch.at("share").display()
        ));
        nas.command("--share nas --key web1");
        nas
    }

    fn configure(&self, text: &str) {
        fs::write(self.scratch.at("serve.toml"), text).unwrap();
        fs::set_permissions(self.scratch.at("serve.toml"), fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Writes the remote shell: the key's command, whatever it is told to run.
    fn command(&self, words: &str) {
        let (dsync, config) = (program().display().to_string(), self.scratch.at("serve.toml"));
        let text = format!(
            "#!/bin/sh\ncd /\nexport SSH_ORIGINAL_COMMAND=\"$*\"\nexec {dsync} serve --stdio {words} --config {}\n",
            config.display()
        );
        fs::write(self.shell(), text).unwrap();
        fs::set_permissions(self.shell(), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn shell(&self) -> PathBuf {
        self.scratch.at("forced")
    }

    /// Returns the key's directory.
    fn place(&self) -> PathBuf {
        self.scratch.at("share/of-web1")
    }

    /// Returns the tree in the key's directory that pushes go to.
    fn tree(&self) -> PathBuf {
        self.place().join("tree")
    }

    fn run(&self) -> Run {
        Run::dsync().args(["--transport=ssh", "-e"]).arg(self.shell())
    }

    fn push(&self, options: &[&str]) -> Outcome {
        self.run().arg("-a").args(options).arg(slash(&self.scratch.src())).arg("host:tree").run()
    }

    fn pull(&self, options: &[&str]) -> Outcome {
        let got = slash(&self.scratch.at("got"));
        self.run().arg("-a").args(options).arg("host:tree/").arg(got).run()
    }

    /// Plants a file at both ends, with one time.
    fn plant(&self, name: &str, here: &str, there: &str) {
        for (root, content) in [(self.scratch.src(), here), (self.tree(), there)] {
            fs::write(root.join(name), content).unwrap();
            set_mtime(&root.join(name), LONG_AGO);
        }
    }

    fn there(&self, name: &str) -> PathBuf {
        self.tree().join(name)
    }
}

/// Performs an operation through a key; returns whether it came to pass.
fn performed(operation: &str, nas: &Nas) -> bool {
    let content = |name: &str| fs::read_to_string(nas.there(name)).unwrap_or_default();
    let here = |name: &str| nas.scratch.src().join(name);
    nas.plant("file", "same", "same");
    match operation {
        "list" => nas.run().arg("host:tree/").run().stdout_text().contains("file"),
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
        other => panic!("no test has the operation '{other}' of docs/server.md"),
    }
}

/// Kills a push in a large file and pushes again; returns whether the second run sent less than all.
fn resumes(nas: &Nas) -> bool {
    let big = noise(7, 24 << 20);
    fs::write(nas.scratch.src().join("big"), &big).unwrap();
    let slow = nas.run().args(["-a", "--bwlimit=8M"]).arg(slash(&nas.scratch.src())).arg("host:tree");
    let mut slow = slow.start();
    wait_for(|| !slow.is_running() || finished_segments(&nas.tree()) >= 4);
    if !slow.is_running() {
        return false;
    }
    let sessions = slow.children();
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

#[test]
fn every_cell_of_the_table_of_roles_is_as_it_says() {
    needs_dsync!();
    let (roles, rows) = table();
    assert_eq!(roles, ["read", "append", "write", "full"]);
    assert!(rows.len() >= 12, "{rows:?}");
    for (operation, cells) in rows {
        assert_eq!(cells.len(), roles.len(), "{operation}");
        for (role, allowed) in roles.iter().zip(cells) {
            let nas = Nas::new(role);
            assert_eq!(performed(&operation, &nas), allowed, "{operation} with the role {role}");
        }
    }
}

#[test]
fn what_exceeds_a_role_ends_with_42_and_a_line_that_names_it() {
    needs_dsync!();
    for (role, options, demand) in [
        ("append", &["--delete"][..], "--delete and its like"),
        ("append", &["--inplace"], "--inplace"),
        ("write", &["--delete"], "--delete and its like"),
        ("write", &["--backup-dir=/old"], "--backup"),
        ("read", &[], "copying to there"),
    ] {
        let nas = Nas::new(role);
        nas.plant("old", "new content", "old");
        let before = survey(&nas.place());
        let refused = nas.push(options).expect_code(42);
        let text = refused.stderr_text();
        for part in [demand, "share 'nas'", &format!("the role '{role}'"), "another role"] {
            assert!(text.contains(part), "{part}: {}", refused.account());
        }
        // The client does not learn where the share is.
        assert!(!text.contains(&nas.scratch.at("share").display().to_string()), "{text}");
        assert_unchanged(&before, &nas.place());
    }
}

#[test]
fn a_key_stays_in_its_directory_which_is_made_for_it() {
    needs_dsync!();
    let nas = Nas::new("full");
    fs::remove_dir_all(nas.place()).unwrap();
    fs::write(nas.scratch.at("share/secret"), "secret").unwrap();
    fs::write(nas.scratch.src().join("new"), "new").unwrap();
    let _ = nas.push(&[]).expect_quiet_success();
    assert_eq!(fs::read(nas.there("new")).unwrap(), b"new");
    assert_eq!(fs::metadata(nas.place()).unwrap().mode() & 0o7777, 0o700);

    symlink("../../secret", nas.tree().join("door")).unwrap();
    for path in ["..", "../secret", "../../share/secret", "tree/door/"] {
        let refused = nas.run().arg("-a").arg(format!("host:{path}")).arg(slash(&nas.scratch.at("got")));
        let refused = refused.run().expect_code(42);
        assert!(refused.stderr_text().contains("leads out"), "{path}: {}", refused.account());
    }
    // An absolute path starts there as well.
    let absolute = format!("host:{}", nas.scratch.at("share/secret").display());
    let _ = nas.run().arg("-a").arg(absolute).arg(slash(&nas.scratch.at("got"))).run().expect_code(3);
    assert!(!nas.scratch.at("got/secret").exists());
}

#[test]
fn a_share_that_is_not_there_is_no_empty_directory() {
    needs_dsync!();
    for evidence in ["marker = '.here'", "mounted = true"] {
        let nas = Nas::new("full");
        let share = nas.scratch.at("share");
        fs::remove_dir_all(nas.place()).unwrap();
        fs::write(nas.scratch.src().join("new"), "new").unwrap();
        nas.configure(&format!(
            "[keys.web1]\n[shares.nas]\npath = '{}'\n{evidence}\n[shares.nas.keys.web1]\nrole = 'full'\ndirectory = '{{key}}'\n",
            share.display()
        ));
        let refused = nas.push(&["--mkpath"]).expect_code(5);
        assert!(refused.stderr_text().contains("share 'nas' is not there"), "{}", refused.account());
        assert_eq!(fs::read_dir(&share).unwrap().count(), 0, "{evidence}");
        let refused = nas.pull(&["--delete"]).expect_code(5);
        assert!(!nas.scratch.at("got").exists(), "{}", refused.account());
    }

    // The marker is what was missing.
    let nas = Nas::new("full");
    nas.configure(&format!(
        "[keys.web1]\n[shares.nas]\npath = '{}'\nmarker = '.here'\n[shares.nas.keys.web1]\nrole = 'full'\n",
        nas.scratch.at("share").display()
    ));
    fs::write(nas.scratch.at("share/.here"), "").unwrap();
    let _ = nas.push(&[]).expect_quiet_success();
}

#[test]
fn nobody_gets_a_session_by_a_slip_in_a_command_or_a_configuration() {
    needs_dsync!();
    let nas = Nas::new("full");
    fs::write(nas.scratch.src().join("new"), "new").unwrap();
    let before = survey(&nas.scratch.at("share"));
    for (words, code, text) in [
        ("--share nas --key web2", 42, "there is no key 'web2'"),
        ("--share nsa --key web1", 42, "there is no share 'nsa' for key 'web1'"),
        ("--share nas", 1, "--key"),
        ("--share nas --key web1 --chek", 1, "--chek"),
        ("--share nas --key web1 --check", 1, "--check"),
    ] {
        nas.command(words);
        let server = Run::of(nas.shell()).run().expect_code(code);
        assert!(server.stderr_text().contains(text), "{words}: {}", server.account());
        let _ = nas.push(&[]).expect_code(5);
    }

    nas.command("--share nas --key web1");
    let good = fs::read_to_string(nas.scratch.at("serve.toml")).unwrap();
    for (from, to, code, text) in [
        ("[keys.web1]", "[keys.web1]\nexpires = 2020-02-29", 42, "has expired"),
        ("role = 'full'", "role = 'full'\nquota = 5", 1, "serve.toml:6: this version knows no key 'quota'"),
        ("role = 'full'", "role = 'ful'", 1, "serve.toml:5: 'ful' is none of read, append, write, full"),
    ] {
        nas.configure(&good.replacen(from, to, 1));
        let server = Run::of(nas.shell()).run().expect_code(code);
        assert!(server.stderr_text().contains(text), "{to}: {}", server.account());
        let _ = nas.push(&[]).expect_code(5);
    }
    nas.configure(&good);
    fs::set_permissions(nas.scratch.at("serve.toml"), fs::Permissions::from_mode(0o666)).unwrap();
    let server = Run::of(nas.shell()).run().expect_code(1);
    assert!(server.stderr_text().contains("can be written by others"), "{}", server.account());
    assert_unchanged(&before, &nas.scratch.at("share"));
}

#[test]
fn check_says_what_each_key_may_do() {
    needs_dsync!();
    let nas = Nas::new("append");
    let config = nas.scratch.at("serve.toml");
    let more = "[keys.old]\nexpires = 2020-01-01\n[keys.idle]\n[shares.gone]\npath = '/nowhere/at/all'\n\
                [shares.gone.keys.old]\nrole = 'read'\n";
    nas.configure(&(fs::read_to_string(&config).unwrap() + more));
    let checked = Run::dsync().args(["serve", "--check", "--config"]).arg(&config).run().expect_code(1);
    let said = checked.stdout_text();
    for line in [
        "  web1: append, 'of-web1' in it: for copying from it and adding to it only",
        "  old: read, all of it: for copying from it only; expired since 2020-01-01: let in no more",
    ] {
        assert!(said.lines().any(|found| found == line), "{line}: {}", checked.account());
    }
    for warning in ["key 'idle' may use no share", "share 'gone' cannot be opened"] {
        assert!(checked.stderr_text().contains(warning), "{warning}: {}", checked.account());
    }
    // Nothing is made by looking.
    assert!(nas.place().join("tree").exists() && !Path::new("/nowhere").exists());
}

#[test]
fn a_session_that_is_killed_leaves_what_was_there() {
    needs_dsync!();
    let nas = Nas::new("write");
    let big = noise(8, 24 << 20);
    fs::write(nas.scratch.src().join("big"), &big).unwrap();
    fs::write(nas.there("big"), "old").unwrap();
    let slow = nas.run().args(["-a", "--bwlimit=8M"]).arg(slash(&nas.scratch.src())).arg("host:tree");
    let mut slow = slow.start();
    wait_for(|| !slow.is_running() || finished_segments(&nas.tree()) >= 2);
    let session = slow.children().into_iter().next().expect("the session's process");
    send(session, Signal::KILL);
    let _ = slow.wait();
    let now = fs::read(nas.there("big")).unwrap();
    assert!(now == b"old" || now == big, "{} bytes", now.len());
    let _ = nas.push(&[]).expect_quiet_success();
    assert_eq!(fs::read(nas.there("big")).unwrap(), big);
}
