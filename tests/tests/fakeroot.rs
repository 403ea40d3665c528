//! Runs under fakeroot, which stands before the C library: packages and images are made there.

use std::{fs, os::unix::fs::chown};

use dsync_tests::{Node, Outcome, Run, Scratch, Tree, needs_dsync, needs_root, program};

/// The user that pretends to be root.
const NOBODY: u32 = 64_124;

/// Runs a script under fakeroot as a user, in that user's directory; the programs are `$DSYNC` and
/// `$RSYNC`.
fn pretend(scratch: &Scratch, script: &str) -> Outcome {
    let home = scratch.at("home");
    let run = Run::of("fakeroot").args(["-s", "state", "-i", "state"]).args(["sh", "-ec", script]).cwd(&home);
    let run = run.env("DSYNC", program()).env("RSYNC", "rsync").env("HOME", &home);
    run.as_user(NOBODY, NOBODY).run()
}

fn home(scratch: &Scratch) {
    let home = scratch.at("home");
    fs::create_dir(&home).unwrap();
    fs::write(home.join("state"), "").unwrap();
    for path in [home.clone(), home.join("state")] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    dsync_tests::tree::set_mode(scratch.path(), 0o755);
}

/// Script that makes one of everything that only root may make.
const MAKE: &str = "umask 022; mkdir src; cd src; mknod null c 1 3; mknod disk b 8 300; mkfifo fifo; \
    echo x > file; chown 3:4 file; chmod 4755 file; setfattr -n trusted.t -v 1 file; ln file 'another name'; \
    ln -s file link; chown -h 5:6 link; mkdir dir; chown 7:8 dir; chmod 2711 dir; cd ..; ";

/// Script that prints type, mode, owner, device number and name of every entry.
const TELL: &str = "for dir in src copy; do (cd $dir; find . -mindepth 1 -exec stat -c '%F %a %u:%g %t,%T %n' {} + \
    | sort > ../$dir.txt); done; cat src.txt; cmp src.txt copy.txt; ";

#[test]
fn devices_and_owners_are_what_fakeroot_says_they_are() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    home(&scratch);
    let outcome = pretend(
        &scratch,
        &format!(
            "{MAKE} \"$DSYNC\" -aHX src/ copy/; {TELL} \"$DSYNC\" -aHXi src/ copy/; \
             \"$RSYNC\" -aHXni --delete src/ copy/ >&2; getfattr -n trusted.t copy/file"
        ),
    );
    let text = outcome.stdout_text();
    let outcome = outcome.expect_code(0);
    assert_eq!(outcome.stderr_text(), "", "rsync finds a difference");
    for line in [
        "block special file 644 0:0 8,12c ./disk",
        "character special file 644 0:0 1,3 ./null",
        "directory 2711 7:8 0,0 ./dir",
        "regular file 4755 3:4 0,0 ./another name",
        "symbolic link 777 5:6 0,0 ./link",
        "fifo 644 0:0 0,0 ./fifo",
        "trusted.t=\"1\"",
    ] {
        assert!(text.lines().any(|told| told == line), "{line}: {text}");
    }
    // Itemized changes would be in between.
    assert!(!text.contains("+++") && !text.contains(".f."), "{text}");
}

#[test]
fn updates_and_deletions_leave_nothing_of_what_was_replaced() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    home(&scratch);
    let change =
        "rm src/null; echo file > src/null; rm src/file; mknod src/file c 5 1; chown 9:9 src/dir src/null; ";
    let outcome = pretend(
        &scratch,
        &format!("{MAKE} \"$DSYNC\" -aHX src/ copy/; {change} \"$DSYNC\" -aHX --delete src/ copy/; {TELL}"),
    );
    let text = outcome.stdout_text();
    let outcome = outcome.expect_quiet_success();
    for line in ["regular file 644 9:9 0,0 ./null", "character special file 644 0:0 5,1 ./file"] {
        assert!(text.lines().any(|told| told == line), "{}", outcome.account());
    }
    // Outside, nothing belongs to root.
    let all = dsync_tests::survey(&scratch.at("home/copy"));
    assert!(all.values().all(|facts| facts.owner == (NOBODY, NOBODY)));
}

#[test]
fn many_threads_ask_fakeroot_at_once() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    home(&scratch);
    let dirs = (0..20).map(|dir| Node::dir(format!("d{dir}")));
    let files =
        (0..20).flat_map(|dir| (0..50).map(move |file| Node::file(format!("d{dir}/f{file}"), file, 100)));
    Tree::of(dirs.chain(files)).plant(&scratch.src());
    dsync_tests::tree::set_mode(&scratch.src(), 0o755);
    let source = scratch.src().display().to_string();
    let script = format!(
        "cp -r {source} src; chown -R 3:4 src; \"$DSYNC\" -a src/ copy/; \"$DSYNC\" -ai src/ copy/; {TELL}"
    );
    let _ = pretend(&scratch, &script).expect_quiet_success();
}
