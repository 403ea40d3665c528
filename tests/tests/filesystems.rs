//! Names that filesystems show as attributes but that are none, or are copied in another way.

use std::{collections::BTreeMap, fs, path::Path};

use dsync_tests::{
    Node, Run, Scratch, Tree, mount::Mount, needs_dsync, needs_root, scratch::slash, survey, tree,
};

const TYPES: [&str; 4] = ["ext4", "xfs", "btrfs", "tmpfs"];

/// Makes a tree with lists, capabilities, labels and attributes of every name space.
fn dressed() -> Tree {
    let list = tree::acl(5, &[(0, 7), (71_234, 4)], &[(71_235, 6)]);
    Tree::of([
        Node { mode: 0o755, ..Node::file("capable", 1, 5000) }
            .with("security.capability", tree::CAPABILITY)
            .with("security.selinux", b"system_u:object_r:bin_t:s0\0"),
        Node { mode: 0o670, ..Node::file("listed", 2, 10) }
            .with("system.posix_acl_access", &list)
            .with("user.a", b"1")
            .with("trusted.overlay.origin", b"t"),
        Node { mode: 0o770, ..Node::dir("dir") }
            .with("system.posix_acl_access", &list)
            .with("system.posix_acl_default", &list),
        Node { mode: 0o660, ..Node::file("dir/plain", 3, 10) },
    ])
}

/// Returns the attributes of every entry, without those that XFS shows twice.
fn attributes(root: &Path) -> BTreeMap<Vec<u8>, BTreeMap<String, Vec<u8>>> {
    let once = |name: &String| !name.starts_with("trusted.SGI_ACL_");
    let facts = survey(root).into_iter();
    facts
        .map(|(path, facts)| (path, facts.xattrs.into_iter().filter(|(name, _)| once(name)).collect()))
        .collect()
}

fn copy(options: &[&str], from: &Path, to: &Path) -> String {
    let run = Run::dsync().args(options).arg("-i").arg(slash(from)).arg(to).run();
    run.expect_quiet_success().stdout_text()
}

fn mounts(scratch: &Scratch) -> Option<Vec<Mount>> {
    TYPES.iter().map(|kind| Mount::of_type(kind, &scratch.at(kind))).collect()
}

#[test]
fn lists_and_attributes_stay_whatever_filesystem_shows_them_how_often() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    let Some(mounts) = mounts(&scratch) else { return };
    for from in &mounts {
        let source = from.path().join("source");
        fs::create_dir(&source).unwrap();
        dressed().plant(&source);
        for to in &mounts {
            let copied = to.path().join(format!("from {}", from.path().file_name().unwrap().display()));
            let _ = copy(&["-aAX"], &source, &copied);
            for run in ["second", "third"] {
                assert_eq!(attributes(&copied), attributes(&source), "{run} from {source:?} to {copied:?}");
                assert_eq!(copy(&["-aAX"], &source, &copied), "", "{run} from {source:?} to {copied:?}");
            }
        }
    }
}

#[test]
fn attributes_without_lists_neither_bring_nor_take_a_list() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    let Some(mounts) = mounts(&scratch) else { return };
    let lists = |root: &Path| -> usize {
        let is_list = |name: &&String| name.starts_with("system.posix_acl_");
        attributes(root).values().map(|attributes| attributes.keys().filter(is_list).count()).sum()
    };
    for mount in &mounts {
        let at = |name: &str| mount.path().join(name);
        for name in ["listed", "bare"] {
            fs::create_dir(at(name)).unwrap();
        }
        dressed().plant(&at("listed"));
        Tree::of([Node::file("listed", 2, 10).with("user.b", b"2"), Node::dir("dir")]).plant(&at("bare"));
        let before = lists(&at("listed"));
        let _ = copy(&["-rlX"], &at("bare"), &at("listed"));
        assert_eq!(lists(&at("listed")), before, "taken on {mount:?}");
        let _ = copy(&["-rlX"], &at("listed"), &at("bare"));
        assert_eq!(lists(&at("bare")), 0, "brought on {mount:?}");
    }
}

#[test]
fn what_one_filesystem_alone_knows_is_kept_there_and_missed_elsewhere() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    let Some(btrfs) = Mount::of_type("btrfs", &scratch.at("btrfs")) else { return };
    let (source, there) = (btrfs.path().join("source"), btrfs.path().join("copy"));
    fs::create_dir(&source).unwrap();
    Tree::of([Node::file("packed", 1, 5000).with("btrfs.compression", b"zstd")]).plant(&source);
    let _ = copy(&["-aAX"], &source, &there);
    assert_eq!(attributes(&there), attributes(&source));
    assert!(attributes(&there)[&b"packed"[..]].contains_key("btrfs.compression"));
    assert_eq!(copy(&["-aAX"], &source, &there), "");
    let Some(elsewhere) = Mount::of_type("tmpfs", &scratch.at("tmpfs")) else { return };
    let outcome = Run::dsync().arg("-aAX").arg(slash(&source)).arg(elsewhere.path()).run().expect_code(23);
    assert!(
        outcome.stderr_text().contains("cannot set some ACLs or extended attributes of 'packed'"),
        "{}",
        outcome.account()
    );
    assert_eq!(fs::read(source.join("packed")).unwrap(), fs::read(elsewhere.path().join("packed")).unwrap());
}
