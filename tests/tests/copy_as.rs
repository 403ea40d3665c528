//! `--copy-as`: an end of a run works with another user's rights.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a test")]

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::Path,
};

use dsync_tests::{Outcome, Run, Scratch, needs_dsync, needs_root, program, scratch::slash, tree};

/// The user `daemon` of every Debian, who has one group of his name, and the group `mail`.
const DAEMON: (u32, u32) = (1, 1);
const MAIL: u32 = 8;

/// A direction of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Local,
    Push,
    Pull,
}

/// A source of root's with what `daemon` may read and what he may not, and a destination of his.
struct Place(Scratch);

impl Place {
    fn new() -> Self {
        let scratch = Scratch::new();
        let at = |path: &str| scratch.src().join(path);
        fs::write(at("open"), "open").unwrap();
        fs::write(at("secret"), "secret").unwrap();
        tree::set_mode(&at("secret"), 0o600);
        fs::write(at("mails"), "for mail").unwrap();
        chown(at("mails"), None, Some(MAIL)).unwrap();
        tree::set_mode(&at("mails"), 0o640);
        fs::create_dir(at("closed")).unwrap();
        fs::write(at("closed/f"), "f").unwrap();
        tree::set_mode(&at("closed"), 0o700);
        // A shell that leads to this host, as root.
        fs::write(scratch.at("shell"), "#!/bin/sh\nshift\nexec sh -c \"$*\"\n").unwrap();
        tree::set_mode(&scratch.at("shell"), 0o755);
        Self(scratch)
    }

    /// Makes an empty destination of this user's.
    fn destination(&self, name: &str, owner: u32) -> std::path::PathBuf {
        let to = self.0.at(name);
        fs::create_dir(&to).unwrap();
        chown(&to, Some(owner), Some(owner)).unwrap();
        to
    }

    fn run(&self, run: Run, way: Way, options: &[&str], to: &Path) -> Outcome {
        let remote = |path: &Path| {
            let mut operand = OsString::from("host:");
            operand.push(slash(path));
            operand
        };
        let (from, to) = match way {
            Way::Local => (slash(&self.0.src()), slash(to)),
            Way::Push => (slash(&self.0.src()), remote(to)),
            Way::Pull => (remote(&self.0.src()), slash(to)),
        };
        run.args(["-a"]).args(options).arg("-e").arg(self.0.at("shell")).arg(from).arg(to).run()
    }
}

fn dsync() -> Run {
    let mut path = OsString::from("--dsync-path=");
    path.push(program());
    Run::dsync().arg(path).arg("--transport=ssh")
}

/// Returns names below a directory with their owners, sorted.
fn owners(root: &Path) -> Vec<(String, u32, u32)> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let (path, facts) = (entry.path(), entry.metadata().unwrap());
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            found.push((name, facts.uid(), facts.gid()));
            left.extend(facts.is_dir().then_some(path));
        }
    }
    found.sort();
    found
}

#[test]
fn each_end_has_the_rights_of_its_user_as_with_rsync() {
    needs_dsync!();
    needs_root!();
    let place = Place::new();
    let [here, there] = ["--copy-as=daemon", "-M--copy-as=daemon"];
    let mut number = 0;
    for (way, options) in [
        (Way::Local, &[here][..]),
        (Way::Push, &[here]),
        (Way::Push, &[there]),
        (Way::Pull, &[here]),
        (Way::Pull, &[there]),
        (Way::Push, &[here, there]),
        (Way::Local, &["--copy-as=1:mail"]),
        (Way::Push, &["--copy-as=daemon:8"]),
        (Way::Pull, &["--copy-as=daemon:mail"]),
    ] {
        number += 1;
        let theirs = place.destination(&format!("theirs{number}"), DAEMON.0);
        let ours = place.destination(&format!("ours{number}"), DAEMON.0);
        let rsync = place.run(Run::of("rsync"), way, options, &theirs);
        let dsync = place.run(dsync(), way, options, &ours);
        let context = format!("{way:?} {options:?}\n{}\n{}", rsync.all_text(), dsync.all_text());
        assert_eq!(owners(&ours), owners(&theirs), "{context}");
        assert_eq!(dsync.code(), rsync.code(), "{context}");
    }
}

#[test]
fn destination_of_a_local_run_alone_may_have_a_user() {
    needs_dsync!();
    needs_root!();
    let place = Place::new();
    // Hashes and attributes of a list are read by threads that the ends could share.
    for (name, more) in [("plain", &[][..]), ("hashed", &["-cX"]), ("again", &["-cX", "--no-W"])] {
        let to = place.destination(name, DAEMON.0);
        // The source is root's, who reads all of it.
        let options = [&["-M--copy-as=daemon"], more].concat();
        let _ = place.run(dsync(), Way::Local, &options, &to).expect_quiet_success();
        let all = ["closed", "closed/f", "mails", "open", "secret"];
        let expected = all.map(|name| (name.to_owned(), DAEMON.0, DAEMON.1));
        assert_eq!(owners(&to), expected);
    }
}

#[test]
fn what_the_user_may_not_write_stays_as_it_is() {
    needs_dsync!();
    needs_root!();
    for way in [Way::Local, Way::Push, Way::Pull] {
        let place = Place::new();
        let to = place.destination("to", DAEMON.0);
        fs::create_dir(to.join("closed")).unwrap();
        fs::write(to.join("closed/f"), "root's own").unwrap();
        let option = if way == Way::Pull { "--copy-as=daemon" } else { "-M--copy-as=daemon" };
        let outcome = place.run(dsync(), way, &[option, "--delete"], &to).expect_code(23);
        assert!(outcome.stderr_text().contains("closed"), "{}", outcome.all_text());
        assert_eq!(fs::read(to.join("closed/f")).unwrap(), b"root's own", "{way:?}");
        assert_eq!(fs::read(to.join("secret")).unwrap(), b"secret", "{way:?}");
    }
}

#[test]
fn nobody_but_root_names_a_user_and_only_one_that_there_is() {
    needs_dsync!();
    needs_root!();
    let place = Place::new();
    let to = place.destination("to", DAEMON.0);
    for (way, option, said) in [
        (Way::Local, "--copy-as=nosuch", "cannot work as user 'nosuch': there is no such user"),
        (Way::Push, "--copy-as=nosuch", "cannot work as user 'nosuch': there is no such user"),
        (Way::Pull, "--copy-as=nosuch", "cannot work as user 'nosuch': there is no such user"),
        (Way::Push, "-M--copy-as=nosuch", "cannot work as user 'nosuch': there is no such user"),
        (Way::Pull, "-M--copy-as=nosuch", "cannot work as user 'nosuch': there is no such user"),
        (Way::Local, "--copy-as=daemon:nosuch", "in group 'nosuch': there is no such group"),
        (Way::Local, "--copy-as=4000000001", "'4000000001': there is no such user"),
    ] {
        let outcome = place.run(dsync(), way, &[option], &to).expect_code(1);
        assert!(outcome.stderr_text().contains(said), "{way:?} {option}: {}", outcome.all_text());
    }
    for (way, option) in [
        (Way::Local, "--copy-as=daemon"),
        (Way::Push, "--copy-as=daemon"),
        (Way::Pull, "-M--copy-as=daemon"),
        (Way::Push, "-M--copy-as=nobody"),
    ] {
        let run = dsync().as_user(65_534, 65_534);
        let outcome = place.run(run, way, &[option], &to).expect_code(1);
        let text = outcome.stderr_text();
        assert!(text.contains("only root may work as another user"), "{way:?} {option}: {text}");
        assert!(text.contains("sudo dsync"), "{text}");
    }
    assert!(owners(&to).is_empty());
}

#[test]
fn the_key_of_one_directory_names_no_user() {
    needs_dsync!();
    needs_root!();
    let place = Place::new();
    let to = place.destination("to", DAEMON.0);
    let restricted = place.0.at("restricted");
    let text = format!(
        "#!/bin/sh\nexec '{}' --server --restrict '{}'\n",
        program().display(),
        place.0.path().display()
    );
    fs::write(&restricted, text).unwrap();
    tree::set_mode(&restricted, 0o755);
    let run = Run::dsync().args(["-a", "--transport=ssh", "-M--copy-as=daemon", "-e"]).arg(&restricted);
    let outcome = run.arg(slash(&place.0.src())).arg("host:to/").run().expect_code(42);
    assert!(outcome.stderr_text().contains("--copy-as"), "{}", outcome.all_text());
    assert!(owners(&to).is_empty());
}
