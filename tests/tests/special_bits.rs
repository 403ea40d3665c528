//! The setuid, setgid and sticky bits and capabilities of a file: they stay only with the owner who
//! granted them.

use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::Path,
};

use dsync_tests::{
    Run, Scratch, Sshd, Via,
    mount::Mount,
    needs_dsync, needs_root,
    run::Outcome,
    scratch::slash,
    tree::{self, set_mode},
};
use rustix::fs::XattrFlags;

const ALICE: u32 = 64_201;
const BOB: u32 = 64_202;
const CAPABILITY: &str = "security.capability";
/// `cap_net_raw+ep`, as the kernel keeps it.
const NET_RAW: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn plant(path: &Path, content: &str, owner: u32, mode: u32) {
    fs::write(path, content).unwrap();
    chown(path, Some(owner), Some(owner)).unwrap();
    set_mode(path, mode);
}

fn bits(path: &Path) -> (u32, u32, u32) {
    let found = fs::metadata(path).unwrap();
    (found.mode() & 0o7777, found.uid(), found.gid())
}

fn has_capability(path: &Path) -> bool {
    rustix::fs::lgetxattr(path, CAPABILITY, &mut [0_u8; 64]).is_ok()
}

fn over_each_carrier(scratch: &Scratch, options: &[&str], check: impl Fn(&Outcome)) {
    let sshd = Sshd::shared();
    let from = slash(&scratch.src());
    for carrier in ["local", "push", "pull"] {
        let run = match carrier {
            "local" => Run::dsync().args(options).arg(&from).arg(scratch.dst()),
            "push" => sshd.run(Via::Ssh).args(options).arg(&from).arg(sshd.operand(scratch.dst())),
            _ => sshd.run(Via::Ssh).args(options).arg(sshd.operand(&from)).arg(scratch.dst()),
        };
        check(&run.run().expect_code(0));
        fs::remove_dir_all(scratch.dst()).unwrap();
        fs::create_dir(scratch.dst()).unwrap();
    }
}

#[test]
fn bits_of_a_file_stay_only_with_its_owner_and_group() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    fs::create_dir(scratch.dst()).unwrap();
    for mode in [0o4755, 0o2755, 0o1755, 0o6711] {
        plant(&scratch.src().join(format!("{mode:o}")), "content", ALICE, mode);
    }
    let dir = scratch.src().join("dir");
    fs::create_dir(&dir).unwrap();
    set_mode(&dir, 0o3777);
    let each = |expected: &dyn Fn(u32) -> u32| {
        for mode in [0o4755, 0o2755, 0o1755, 0o6711] {
            let (found, ..) = bits(&scratch.dst().join(format!("{mode:o}")));
            assert_eq!(found, expected(mode), "{mode:o} became {found:o}");
        }
    };
    for options in ["-rt", "-rp", "-rpt", "-rptg"] {
        over_each_carrier(&scratch, &[options], |_| each(&|mode| mode & 0o777));
    }
    over_each_carrier(&scratch, &["-rpto"], |_| each(&|mode| mode & 0o5777));
    for options in ["-a", "-rpog"] {
        over_each_carrier(&scratch, &[options], |_| {
            each(&|mode| mode);
            // Entries made in a directory are another matter.
            assert_eq!(bits(&scratch.dst().join("dir")).0, 0o3777);
        });
    }
    // Bits kept by an earlier run are removed, and the next run finds nothing to do.
    let run = |options: &[&str]| {
        Run::dsync().args(options).arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_code(0)
    };
    let _ = run(&["-a"]);
    let _ = run(&["-rpt"]);
    each(&|mode| mode & 0o777);
    assert_eq!(run(&["-rpti"]).stdout_text(), "");
}

#[test]
fn what_the_old_content_was_trusted_with_the_new_one_is_not() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    fs::create_dir(scratch.dst()).unwrap();
    let (new, old) = (scratch.src().join("f"), scratch.dst().join("f"));
    for options in [
        &["-rt"][..],
        &["-r"],
        &["-rE"],
        &["-rt", "--inplace"],
        &["-rt", "--append"],
        &["-rto"],
        &["-rc", "--delay-updates"],
    ] {
        plant(&new, "content that is new and longer", BOB, 0o755);
        plant(&old, "content", ALICE, 0o6755);
        let run = |more: &[&str]| {
            Run::dsync().args(options).args(more).arg(slash(&scratch.src())).arg(scratch.dst()).run()
        };
        let _ = run(&[]).expect_code(0);
        assert_eq!(bits(&old).0, 0o755, "{options:?}");
        // An old file of the same owner is trusted as before.
        plant(&new, "content that is newer and even longer", ALICE, 0o755);
        fs::remove_file(&old).unwrap();
        plant(&old, "content", ALICE, 0o4755);
        let _ = run(&["-o"]).expect_code(0);
        assert_eq!((bits(&old).0, bits(&old).1), (0o4755, ALICE), "{options:?}");
    }
}

#[test]
fn user_keeps_the_bits_of_what_is_ones_own_and_of_nothing_else() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    fs::create_dir(scratch.dst()).unwrap();
    for dir in [scratch.at(""), scratch.src()] {
        set_mode(&dir, 0o755);
    }
    chown(scratch.dst(), Some(ALICE), Some(ALICE)).unwrap();
    plant(&scratch.src().join("alices"), "x", ALICE, 0o6755);
    plant(&scratch.src().join("bobs"), "x", BOB, 0o6755);
    plant(&scratch.src().join("roots"), "x", 0, 0o4755);
    let run = |options: &str| {
        let run = Run::dsync().arg(options).arg(slash(&scratch.src())).arg(scratch.dst());
        run.as_user(ALICE, ALICE).run().expect_code(0)
    };
    let found = || ["alices", "bobs", "roots"].map(|name| bits(&scratch.dst().join(name)).0);
    let _ = run("-a");
    assert_eq!(found(), [0o6755, 0o755, 0o755]);
    assert_eq!(run("-ai").stdout_text(), "", "a run that finds the same difference for ever");
    let _ = run("-rpt");
    assert_eq!(found(), [0o755, 0o755, 0o755]);
}

#[test]
fn capabilities_of_a_file_stay_only_with_its_owner() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    fs::create_dir(scratch.dst()).unwrap();
    let from = scratch.src().join("f");
    plant(&from, "content", ALICE, 0o755);
    rustix::fs::lsetxattr(&from, CAPABILITY, &NET_RAW, XattrFlags::empty()).unwrap();
    rustix::fs::lsetxattr(&from, "user.note", b"kept", XattrFlags::empty()).unwrap();
    for (options, kept) in
        [("-rtX", false), ("-rptX", false), ("-rptgX", false), ("-rptoX", true), ("-aX", true)]
    {
        over_each_carrier(&scratch, &[options], |outcome| {
            let to = scratch.dst().join("f");
            assert_eq!(has_capability(&to), kept, "{}", outcome.account());
            assert!(rustix::fs::lgetxattr(&to, "user.note", &mut [0_u8; 9]).is_ok(), "{}", outcome.account());
        });
    }
}

#[test]
fn a_file_that_is_rewritten_in_place_has_neither_bit_while_it_is_neither_old_nor_new() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    fs::create_dir(scratch.dst()).unwrap();
    // The disk fills up before the new content is complete, so that the intermediate state is
    // visible.
    let Some(_disk) = Mount::tmpfs(&scratch.dst(), "size=1m") else { return };
    let content = tree::noise(1, 4 << 20);
    fs::write(scratch.src().join("f"), &content).unwrap();
    // No space is reserved for a file with a hole.
    fs::File::options()
        .write(true)
        .open(scratch.src().join("f"))
        .and_then(|file| file.set_len(8 << 20))
        .unwrap();
    let to = scratch.dst().join("f");
    for options in [["-a", "--inplace"], ["-a", "--append"]] {
        fs::write(&to, &content[..100_000]).unwrap();
        set_mode(&to, 0o6755);
        let run = Run::dsync().args(options).arg(slash(&scratch.src())).arg(scratch.dst()).run();
        assert_ne!(run.code(), Some(0), "{}", run.account());
        assert_eq!(bits(&to).0 & 0o6000, 0, "{options:?}: {}", run.account());
    }
}
