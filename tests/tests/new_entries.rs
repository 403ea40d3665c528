//! The attributes that new entries inherit from their directory, and the fate of directories
//! replaced by links.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{chown, symlink},
    path::Path,
};

use dsync_tests::{
    Facts, Node, Scratch, Tree, every_way, needs_dsync, needs_root, oracle, scratch::slash, survey, tree,
};

fn plant(scratch: &Scratch) {
    Tree::of([
        Node { mode: 0o755, ..Node::dir("dir") },
        Node { mode: 0o2777, ..Node::dir("dir/open") },
        Node { mode: 0o6755, ..Node::file("dir/file", 1, 10) },
        Node { mode: 0o750, ..Node::dir("other") },
    ])
    .plant(&scratch.src());
    tree::set_mode(&scratch.src(), 0o2777);
}

/// Mode, group and lists of every entry.
type Rights = BTreeMap<Vec<u8>, (u32, u32, BTreeMap<String, Vec<u8>>)>;

fn rights(root: &Path) -> Rights {
    let all = |facts: Facts| (facts.mode, facts.owner.1, facts.xattrs);
    survey(root).into_iter().map(|(path, facts)| (path, all(facts))).collect()
}

/// Copies in every direction into directories that `prepare` makes, and compares with rsync's
/// result in another.
fn assert_as_rsync(options: &[&str], inside: &str, prepare: impl Fn(&Path)) -> Rights {
    let scratch = Scratch::new();
    plant(&scratch);
    let by_rsync = scratch.at("rsync");
    prepare(&by_rsync);
    let to = by_rsync.join(inside);
    let args = options.iter().map(std::ffi::OsString::from).chain([slash(&scratch.src()), slash(&to)]);
    let _ = oracle::rsync(args).expect_code(0);
    let wanted = rights(&to);
    let sshd = dsync_tests::Sshd::shared();
    for way in ["local", "push", "pull"] {
        let parent = scratch.at(way);
        prepare(&parent);
        let to = parent.join(inside);
        for _ in 0..2 {
            let (source, destination) = (slash(&scratch.src()), slash(&to));
            let run = match way {
                "local" => dsync_tests::Run::dsync().args(options).arg(source).arg(destination),
                "push" => {
                    sshd.run(dsync_tests::Via::Ssh).args(options).arg(source).arg(sshd.operand(destination))
                }
                _ => sshd.run(dsync_tests::Via::Ssh).args(options).arg(sshd.operand(source)).arg(destination),
            };
            let _ = run.run().expect_quiet_success();
            assert_eq!(rights(&to), wanted, "{way} {options:?}");
        }
    }
    wanted
}

#[test]
fn new_directories_in_a_setgid_directory_keep_its_group_for_what_follows() {
    needs_root!();
    needs_dsync!();
    let shared = |dir: &Path| {
        fs::create_dir(dir).unwrap();
        chown(dir, None, Some(4321)).unwrap();
        tree::set_mode(dir, 0o2775);
    };
    for options in [&["-r"][..], &["-rlt"], &["-rlt", "--chmod=D2750"], &["-rlt", "--delay-updates"]] {
        for inside in ["", "new"] {
            let wanted = assert_as_rsync(options, inside, shared);
            let (mode, group, _) = wanted[&b"dir/open"[..]];
            assert_eq!((mode & 0o2000, group), (0o2000, 4321));
        }
    }
}

#[test]
fn new_directory_without_the_bit_passes_no_group_on() {
    needs_root!();
    needs_dsync!();
    let others = |dir: &Path| {
        fs::create_dir(dir).unwrap();
        chown(dir, None, Some(4321)).unwrap();
    };
    // The root has the bit before (`2755`) or gets it of the source (`755`).
    for mode in [0o755, 0o2755] {
        for options in [&["-rp", "--chmod=F644"][..], &["-rlpt", "--chmod=F644", "--delay-updates"]] {
            let wanted = assert_as_rsync(options, "", |dir| {
                others(dir);
                tree::set_mode(dir, mode);
            });
            assert_eq!([&b"dir/open"[..], b"dir/file"].map(|path| wanted[path].1), [0, 0]);
        }
    }
}

#[test]
fn root_that_the_run_makes_has_what_its_parents_list_leaves() {
    needs_root!();
    needs_dsync!();
    let listed = |dir: &Path| {
        fs::create_dir(dir).unwrap();
        let list = tree::acl(7, &[(71_234, 7)], &[]);
        rustix::fs::lsetxattr(dir, "system.posix_acl_default", &list, rustix::fs::XattrFlags::empty())
            .unwrap();
    };
    for (options, inside) in
        [(&["-r"][..], "new"), (&["-rpog"], "new"), (&["-r", "--mkpath"], "new/er"), (&["-r"], "")]
    {
        let wanted = assert_as_rsync(options, inside, listed);
        assert!(wanted[&b""[..]].2.contains_key("system.posix_acl_default"));
    }
}

#[test]
fn directory_that_a_kept_link_leads_to_is_not_extraneous() {
    needs_dsync!();
    for timing in ["--delete-after", "--delete-during", "--delete-before"] {
        let scratch = Scratch::new();
        Tree::of([
            Node::dir("l"),
            Node::file("l/new", 1, 10),
            Node::dir("deep"),
            Node::dir("deep/l"),
            Node::file("deep/l/x", 2, 5),
        ])
        .plant(&scratch.src());
        every_way(&scratch, &["-aK", timing], |copy, to| {
            Tree::of([
                Node::dir("real"),
                Node::dir("real/dir"),
                Node::file("real/old", 3, 10),
                Node::dir("also"),
                Node::dir("also/here"),
                Node::file("also/old", 4, 10),
                Node::dir("deep"),
            ])
            .plant(to);
            symlink("real", to.join("l")).unwrap();
            symlink(to.join("also/here"), to.join("deep/l")).unwrap();
            let _ = copy().run().expect_quiet_success();
            for (there, path) in [(true, "l/new"), (true, "deep/l/x"), (false, "l/old"), (false, "also/old")]
            {
                assert_eq!(to.join(path).exists(), there, "{timing} {path}");
            }
            // The link is kept if its directory still existed when it became known as one of the
            // source's.
            assert!(
                timing == "--delete-during"
                    || to.join("real/new").exists() && to.join("also/here/x").exists()
            );
            assert_eq!(copy().arg("-i").run().expect_quiet_success().stdout_text(), "", "{timing}");
        });
    }
}
