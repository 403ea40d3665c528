//! `docs/recipes.md` and `docs/troubleshooting.md`: every command in them is run.
//!
//! A recipe is a section; its `sh` blocks run one after the other in a home of its own, then its
//! checks, which the page keeps in comments. In troubleshooting a heading is a message and the block
//! below it must print that.

use std::{env, fs, os::unix::fs::PermissionsExt, path::Path};

use dsync_tests::{Run, Scratch, Sshd, needs_dsync, program};

/// A section of a page.
struct Section {
    title: String,
    script: String,
    checks: Vec<String>,
}

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    fs::read_to_string(path).expect("the page")
}

fn sections(name: &str, mark: &str) -> Vec<Section> {
    let text = page(name);
    let heading = format!("\n{mark} ");
    let parts = text.split(&heading).skip(1);
    parts
        .map(|part| {
            let blocks = part.split("```sh\n").skip(1);
            let script = blocks.map(|block| block.split("```").next().unwrap_or_default()).collect();
            let checks = part.split("<!-- check: ").skip(1);
            let checks = checks.map(|check| check.split(" -->").next().unwrap_or_default().to_owned());
            let title = part.lines().next().unwrap_or_default().to_owned();
            Section { title, script, checks: checks.collect() }
        })
        .filter(|section| !section.script.is_empty())
        .collect()
}

/// Plants a home with documents, and a host `nas` whose home is the directory `nas` of it.
fn plant(home: &Path, sshd: &Sshd) {
    let script = |name: &str, text: &str| {
        let path = home.join("bin").join(name);
        fs::create_dir_all(home.join("bin")).expect("a directory");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a script");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("its mode");
    };
    for (name, text) in [
        ("letter.txt", "letter"),
        ("old.txt", "old"),
        ("draft.tmp", "draft"),
        ("cache/big", "big"),
        ("deep/er/f", "f"),
    ] {
        let path = home.join("documents").join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, text).expect("a file");
    }
    let noise: Vec<u8> =
        (0..5_u32 << 18).flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    fs::write(home.join("documents/film.raw"), noise).expect("a file");
    fs::create_dir(home.join("nas")).expect("a directory");

    let config = fs::read_to_string(sshd.config()).expect("ssh_config");
    let config = config.replace("Host dsync-test\n", "Host nas jump dsync-test\n");
    fs::write(home.join("ssh_config"), config).expect("ssh_config");
    let (home, dsync) = (home.display(), program().display());
    script("ssh", &format!("exec /usr/bin/ssh -F {home}/ssh_config \"$@\""));
    // The remote end starts in the host's home. A path that the line itself gives comes later and wins.
    script("remote-dsync", &format!("cd {home}/nas && exec {dsync} \"$@\""));
    let remote = format!("--dsync-path={home}/bin/remote-dsync");
    // A host whose shell does not find the program.
    let bare = format!("shift\ncd {home}/nas && HOME={home}/nas PATH=/usr/bin:/bin exec sh -c \"$*\"");
    script("bare", &bare);
    let bare = format!("*--deploy*) set -- --transport=ssh -e {home}/bin/bare \"$@\" ;;");
    let explains = format!("'explain '*) shift; set -- explain {remote} \"$@\" ;;");
    let verifies = format!("'verify '*) shift; set -- verify {remote} \"$@\" ;;");
    let with_path = format!("{explains}\n{verifies}\n*nas:*) set -- {remote} \"$@\" ;;");
    script("dsync", &format!("case \"$*\" in {bare} {with_path} esac\nexec {dsync} \"$@\""));
    script("docker", "shift 3\nexec \"$@\"");
}

/// Runs a script as a person's shell would.
fn shell(script: &str, home: &Path) -> dsync_tests::Outcome {
    let path = format!("{}:{}", home.join("bin").display(), env::var("PATH").expect("PATH"));
    let script = format!("set -e\n{script}");
    Run::of("sh").args(["-c", &script]).cwd(home).env("HOME", home.as_os_str()).env("PATH", path).run()
}

#[test]
fn recipes_do_what_they_say() {
    needs_dsync!();
    let sshd = Sshd::shared();
    let recipes = sections("recipes.md", "##");
    assert!(recipes.len() >= 10, "{} recipes", recipes.len());
    for recipe in recipes {
        let scratch = Scratch::new();
        plant(scratch.path(), sshd);
        let outcome = shell(&recipe.script, scratch.path());
        assert_eq!(outcome.code(), Some(0), "{}\n{}", recipe.title, outcome.account());
        assert!(!recipe.checks.is_empty(), "{} has no check", recipe.title);
        for check in &recipe.checks {
            let outcome = shell(check, scratch.path());
            assert_eq!(outcome.code(), Some(0), "{}: {check}\n{}", recipe.title, outcome.account());
        }
    }
}

#[test]
fn messages_are_those_that_troubleshooting_explains() {
    needs_dsync!();
    let sshd = Sshd::shared();
    let messages = sections("troubleshooting.md", "##");
    assert!(messages.len() >= 9, "{} messages", messages.len());
    for message in messages {
        let scratch = Scratch::new();
        plant(scratch.path(), sshd);
        let outcome = shell(&format!("{{\n{}}} || true\n", message.script), scratch.path());
        let said = outcome.all_text();
        for part in message.title.trim_matches('`').split("...") {
            assert!(said.contains(part.trim()), "'{part}' is not said:\n{}", outcome.account());
        }
    }
}
