//! Walks of real directories: rsync's operand rule, order, gaps, depth.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    missing_docs
)]

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use dsync_fs::{
    Component, Dir, FilterSet, FollowLinks, Kind, RelPath, Spare, Walk, WalkOptions, WalkedDir,
    is_target_changed,
};

fn recursive() -> WalkOptions {
    WalkOptions { recursive: true, ..WalkOptions::default() }
}

fn open(operands: &[&str], at: &Path, options: WalkOptions) -> Walk {
    let operands: Vec<PathBuf> =
        operands.iter().map(|operand| PathBuf::from(format!("{}/{operand}", at.display()))).collect();
    let operands: Vec<&Path> = operands.iter().map(PathBuf::as_path).collect();
    Walk::open(&operands, options).unwrap()
}

/// Returns every path with its content: file text, link text, or `/` and the mode for a directory.
fn contents(walk: Walk) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for dir in walk {
        assert!(dir.problems.is_empty(), "{:?}", dir.problems);
        for entry in &dir.entries {
            let path = String::from_utf8(dir.path.join(&entry.name).as_bytes().to_vec()).unwrap();
            let text = match entry.metadata.kind {
                Kind::File => {
                    let file = dir.dir.open_source(&entry.name, entry.followed).unwrap();
                    assert_eq!(file.stamp(), entry.metadata.stamp());
                    let mut text = vec![0; file.len() as usize];
                    assert_eq!(file.read_full_at(0, &mut text).unwrap(), text.len());
                    String::from_utf8(text).unwrap()
                }
                Kind::Symlink => String::from_utf8(entry.link_target.clone().unwrap()).unwrap(),
                _ => format!("/{:o}", entry.metadata.mode),
            };
            assert!(found.insert(path, text).is_none());
        }
    }
    found
}

fn make(root: &Path, entries: &[(&str, &str)]) {
    for (path, text) in entries {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match text.strip_prefix("-> ") {
            Some(target) => symlink(target, path).unwrap(),
            None => fs::write(path, text).unwrap(),
        }
    }
}

fn two_trees(root: &Path) {
    make(
        root,
        &[
            ("one/f", "f of one"),
            ("one/d/x", "x of one"),
            ("one/d/only1", "1"),
            ("one/k/z", "k is a directory"),
            ("one/m", "m is a file"),
            ("one/l", "-> f"),
            ("one/e/same", "s1"),
            ("two/f", "f of two, longer"),
            ("two/d/x", "x of two"),
            ("two/d/only2", "2"),
            ("two/k", "k is a file"),
            ("two/m/q", "m is a directory"),
            ("two/l", "l is a file"),
            ("two/e/same", "s2"),
            ("two/d/deep/er/y", "y"),
            ("f", "top f"),
            ("d/t", "top d"),
            ("d/x", "x of top d"),
        ],
    );
    symlink("one", root.join("ln")).unwrap();
}

#[test]
fn operands_merge_as_rsync_merges_them() {
    if Command::new("rsync").arg("--version").output().is_err() {
        eprintln!("skipped: rsync is not installed");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    two_trees(root);
    let cases: &[&[&str]] = &[
        &["one"],
        &["one/"],
        &["one/."],
        &["one/d/.."],
        &["one/", "two/"],
        &["two/", "one/"],
        &["one", "two"],
        &["one/f"],
        &["one/f", "two/f"],
        &["two/f", "one/f"],
        &["one/d", "two/d"],
        &["two/d", "d", "one/d"],
        &["one/", "d", "two/"],
        &["d", "one/", "f"],
        &["f", "one/"],
        &["one/", "f"],
        &["one/k", "two/k"],
        &["two/k", "one/k"],
        &["ln"],
        &["ln/"],
        &["ln", "one"],
        &["one", "one"],
        &["one/", "one/"],
        &["one/m", "two/"],
        &["two/m", "one/"],
        &["one/l", "two/l"],
        &["two/l", "one/l"],
    ];
    for (number, case) in cases.iter().enumerate() {
        let out = root.join(format!("out{number}"));
        fs::create_dir(&out).unwrap();
        let status =
            Command::new("rsync").current_dir(root).arg("-a").args(*case).arg(&out).status().unwrap();
        assert!(status.success(), "{case:?}");
        let expected = contents(open(&[&format!("out{number}/")], root, recursive()));
        for readers in [0, 3] {
            let options = WalkOptions { readers, ..recursive() };
            assert_eq!(contents(open(case, root, options)), expected, "{case:?}");
        }
    }
}

/// Returns the result of a walk: the path of each directory, its entries' names, its completeness.
/// Joins parts.
fn given(walk: Walk) -> Vec<(RelPath, Vec<Component>, bool)> {
    let mut dirs: Vec<(RelPath, Vec<Component>, bool)> = Vec::new();
    let mut goes_on = false;
    for dir in walk {
        assert!(dir.problems.is_empty(), "{:?}", dir.problems);
        let names = dir.entries.into_iter().map(|entry| entry.name);
        if goes_on {
            let current = dirs.last_mut().unwrap();
            assert_eq!(current.0, dir.path);
            current.1.extend(names);
            current.2 = dir.complete;
        } else {
            dirs.push((dir.path, names.collect(), dir.complete));
        }
        goes_on = !dir.last;
    }
    assert!(!goes_on);
    dirs
}

/// Directories of very many names arrive in parts; their subdirectories are walked after the last
/// part.
#[test]
fn any_number_of_readers_gives_the_same_walk() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    for number in 0..5000 {
        let text = number.to_string();
        make(root, &[(&format!("one/wide/{number:x}"), &text), (&format!("two/wide/n{number}"), &text)]);
        if number % 250 == 0 {
            make(
                root,
                &[
                    (&format!("one/wide/dir{number}/in/deep"), ""),
                    (&format!("two/wide/dir{number}/in/too"), ""),
                ],
            );
        }
        if number < 300 {
            make(root, &[(&format!("two/{}/{}/f{number}", number % 7, number % 11), &text)]);
        }
    }
    let walked = |readers| given(open(&["one/", "two/"], root, WalkOptions { readers, ..recursive() }));
    let alone = walked(0);
    assert!(alone.iter().all(|(_, names, complete)| *complete && names.is_sorted()));
    assert!(alone.iter().any(|(path, names, _)| path.as_bytes() == b"wide" && names.len() > 9500));
    assert!(alone.iter().any(|(path, names, _)| path.as_bytes() == b"wide/dir250/in" && names.len() == 2));
    for readers in [1, 4] {
        assert!(walked(readers) == alone, "{readers} readers");
    }
    let mut half = open(&["one/", "two/"], root, WalkOptions { readers: 2, ..recursive() });
    half.next();
}

#[test]
fn the_shape_of_the_operands_is_reported() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    two_trees(root);
    let shape = |operands: &[&str]| {
        let walk = open(operands, root, recursive());
        (walk.root().is_some(), walk.named(), walk.single_file())
    };
    assert_eq!(shape(&["f"]), (false, 1, true));
    assert_eq!(shape(&["ln"]), (false, 1, true));
    assert_eq!(shape(&["one"]), (false, 1, false));
    assert_eq!(shape(&["one/"]), (true, 0, false));
    assert_eq!(shape(&["one/", "f"]), (true, 1, false));
    assert_eq!(shape(&["f", "one/f"]), (false, 1, false));
    assert_eq!(shape(&["f", "one", "two"]), (false, 3, false));
}

#[test]
fn a_root_without_contents_is_never_complete() {
    let scratch = tempfile::tempdir().unwrap();
    two_trees(scratch.path());
    let complete =
        |operands: &[&str], options| open(operands, scratch.path(), options).next().unwrap().complete;
    assert!(complete(&["one/"], recursive()));
    assert!(complete(&["one/", "f"], recursive()));
    assert!(!complete(&["one"], recursive()));
    assert!(!complete(&["one/", "missing"], recursive()));
    assert!(!complete(&["one/"], WalkOptions::default()));
}

#[test]
fn a_missing_operand_does_not_stop_the_others() {
    let scratch = tempfile::tempdir().unwrap();
    two_trees(scratch.path());
    let walk = open(&["nope", "one/f", "f/", "nope/"], scratch.path(), recursive());
    let problems: Vec<_> =
        walk.operand_problems().iter().map(|problem| (problem.index, problem.error.kind())).collect();
    use std::io::ErrorKind::{NotADirectory, NotFound};
    assert_eq!(problems, [(0, NotFound), (2, NotADirectory), (3, NotFound)]);
    assert_eq!(contents(walk).into_keys().collect::<Vec<_>>(), ["f"]);
}

#[test]
fn without_recursion_only_named_entries_are_listed() {
    let scratch = tempfile::tempdir().unwrap();
    two_trees(scratch.path());
    let listed = |options: WalkOptions| {
        let walk = open(&["one/", "d", "f"], scratch.path(), options);
        let skipped: Vec<_> = walk.skipped().iter().map(|path| path.as_bytes().to_vec()).collect();
        let dirs: Vec<WalkedDir> = walk.collect();
        assert_eq!(dirs.len(), 1);
        let names: Vec<_> = dirs[0].entries.iter().map(|entry| entry.name.as_bytes().to_vec()).collect();
        (names, skipped)
    };
    assert_eq!(listed(WalkOptions::default()), (vec![b"f".to_vec()], vec![b"d".to_vec()]));
    let (names, skipped) = listed(WalkOptions { dirs: true, ..WalkOptions::default() });
    assert!(names.contains(&b"d".to_vec()) && skipped.is_empty(), "{names:?} {skipped:?}");
}

#[test]
fn names_of_any_bytes_come_in_byte_order_and_parents_before_children() {
    let scratch = tempfile::tempdir().unwrap();
    let mut names: Vec<Vec<u8>> =
        (1..=255u8).filter(|&byte| byte != b'/' && byte != b'.').map(|byte| vec![byte]).collect();
    names.push(vec![0xff; 255]);
    names.push(b"a\nb".to_vec());
    names.push(b"...".to_vec());
    for (index, name) in names.iter().enumerate() {
        let path = scratch.path().join(OsStr::from_bytes(name));
        if index % 5 == 0 {
            fs::create_dir_all(path.join("in")).unwrap();
        } else {
            fs::write(path, "").unwrap();
        }
    }
    names.sort();
    let mut operand = scratch.path().as_os_str().to_owned();
    operand.push("/");
    let mut walk = Walk::open(&[Path::new(&operand)], recursive()).unwrap();
    let root = walk.next().unwrap();
    let listed: Vec<_> = root.entries.iter().map(|entry| entry.name.as_bytes().to_vec()).collect();
    assert_eq!(listed, names);
    let paths: Vec<RelPath> = walk.map(|dir| dir.path).collect();
    let mut announced: Vec<RelPath> = Vec::new();
    for path in paths {
        let parent = path.parent().unwrap();
        assert!(parent.is_root() || announced.contains(&parent));
        announced.push(path);
    }
    assert_eq!(announced.len(), names.len().div_ceil(5) * 2);
}

/// Entries are left out by rule and because they are dsync's own; a rule leaves no gap.
#[test]
fn filtered_and_temporary_entries_are_not_listed() {
    let scratch = tempfile::tempdir().unwrap();
    let temp = format!(".dsync-tmp-{}", "0123456789abcdef".repeat(2));
    make(
        scratch.path(),
        &[
            ("s/a.o", ""),
            ("s/a.c", ""),
            ("s/target/x", ""),
            ("s/sub/target", ""),
            (&format!("s/{temp}"), ""),
            ("s/.dsync-tmp-short", ""),
        ],
    );
    let filter = FilterSet::compile(&[(false, b"*.o"), (false, b"target/")]).unwrap();
    let options = WalkOptions { filter, ..recursive() };
    let walk = open(&["s/"], scratch.path(), options.clone());
    let found: Vec<_> = contents(walk).into_keys().collect();
    assert_eq!(found, [".dsync-tmp-short", "a.c", "sub", "sub/target"]);
    assert!(open(&["s/"], scratch.path(), options.clone()).all(|dir| dir.complete));
    assert_eq!(open(&["s/a.o", "s/a.c"], scratch.path(), options).named(), 1);
}

/// 2,000 levels of 100 bytes: far beyond `PATH_MAX`; descriptors stay few.
#[test]
fn a_very_deep_tree_is_walked_and_its_files_reached_again() {
    let scratch = tempfile::tempdir().unwrap();
    let root = Arc::new(Dir::open_operand(scratch.path()).unwrap());
    let name = Component::new(&[b'd'; 100]).unwrap();
    let mut dir = Arc::clone(&root);
    let mut path = RelPath::root();
    for _ in 0..2000 {
        dir.make_dir(&name, 0o755).unwrap();
        dir = Arc::new(dir.open_child(&name).unwrap());
        path.push(&name);
    }
    let leaf = Component::new(b"leaf").unwrap();
    dir.make_symlink(&leaf, b"target", &dsync_fs::Wanted::default()).unwrap();
    drop(dir);
    let dirs: Vec<WalkedDir> = open(&["."], scratch.path(), recursive()).collect();
    assert_eq!(dirs.len(), 2001);
    assert!(dirs.iter().all(|dir| dir.complete && dir.problems.is_empty()));
    assert_eq!(dirs[2000].path, path);
    assert_eq!(dirs[2000].dir.read_link(&leaf).unwrap(), b"target");
    assert!(dirs[700].dir.stat(&name).is_ok());
    assert!(root.open_beneath(&path).unwrap().stat(&leaf).is_ok());
    let open_files = fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(open_files < 500, "{open_files} descriptors");
    let mut visited = 0;
    root.list_tree(&name, Spare::NOTHING, &mut |_, _| visited += 1).unwrap();
    assert_eq!(visited, 2001);
    let mut removed = Vec::new();
    root.remove_tree(&name, Spare::NOTHING, &mut |path, _| removed.push(path.clone())).unwrap();
    assert_eq!(removed.len(), 2001);
    assert_eq!(removed[0], path.join(&leaf));
    assert!(root.list().entries.is_empty());
}

#[test]
fn an_unreadable_directory_is_a_problem_and_a_gap() {
    let scratch = tempfile::tempdir().unwrap();
    make(scratch.path(), &[("s/a", ""), ("s/gone/x", ""), ("s/z", "")]);
    let mut walk = open(&["s/"], scratch.path(), recursive());
    let root = walk.next().unwrap();
    assert!(root.complete);
    fs::remove_dir_all(scratch.path().join("s/gone")).unwrap();
    let gone = walk.next().unwrap();
    assert!(!gone.complete && gone.entries.is_empty());
    assert_eq!(gone.problems.len(), 1);
    assert_eq!(gone.problems[0].path.as_bytes(), b"gone");
    assert_eq!(gone.problems[0].error.kind(), std::io::ErrorKind::NotFound);
    assert!(walk.next().is_none());
}

/// Returns the number of entries of a tree that a pruning walk lists, each checked against what
/// there is below it.
fn pruned(root: &Path, options: WalkOptions) -> BTreeMap<String, Kind> {
    let walk = open(&["src/"], root, WalkOptions { prune: true, ..options });
    let entries = walk.flat_map(|dir| {
        assert!(dir.complete && dir.problems.is_empty(), "{:?}", dir.problems);
        let of = |entry: &dsync_fs::WalkedEntry| {
            let path = String::from_utf8(dir.path.join(&entry.name).as_bytes().to_vec()).unwrap();
            (path, entry.metadata.kind)
        };
        dir.entries.iter().map(of).collect::<Vec<_>>()
    });
    entries.collect()
}

#[test]
fn pruning_walk_leaves_out_exactly_the_directories_without_other_entries() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    // Every shape of three levels with two names: bit by bit, a directory or a file.
    for shape in 0..64u32 {
        let top = root.join("src").join(shape.to_string());
        for (bit, path) in ["a", "b", "a/a", "a/b", "b/a", "b/b"].iter().enumerate() {
            let deep = top.join(path).join("deep");
            fs::create_dir_all(&deep).unwrap();
            if shape & (1 << bit) != 0 {
                fs::write(deep.join("file"), "").unwrap();
            }
        }
    }
    for readers in [0, 3] {
        let found = pruned(root, WalkOptions { readers, ..recursive() });
        let all = contents(open(&["src/"], root, recursive()));
        for path in all.keys() {
            let below = format!("{path}/");
            let holds_file = path.ends_with("file")
                || all.keys().any(|other| other.starts_with(&below) && other.ends_with("file"));
            assert_eq!(found.contains_key(path), holds_file, "{path}");
        }
    }
}

#[test]
fn pruning_walk_goes_by_what_the_filters_leave() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    make(root, &[("src/x/y/f.o", ""), ("src/z/f.o", ""), ("src/z/kept/g", ""), ("src/w/.dsync-part-0", "")]);
    let filter = FilterSet::compile(&[(false, b"*.o")]).unwrap();
    let found = pruned(root, WalkOptions { filter, ..recursive() });
    assert_eq!(
        found.keys().map(String::as_str).collect::<Vec<_>>(),
        ["w", "w/.dsync-part-0", "z", "z/kept", "z/kept/g"]
    );
    let found = pruned(root, WalkOptions { dirs: true, ..WalkOptions::default() });
    assert!(found.is_empty(), "{found:?}");
}

/// Another filesystem's root is listed as an entry but not entered.
#[test]
fn one_file_system_stops_at_a_mount_point() {
    let mut walk = Walk::open(
        &[Path::new("/proc/..")],
        WalkOptions {
            one_file_system: true,
            filter: FilterSet::compile(&[(true, b"/proc"), (false, b"*")]).unwrap(),
            ..recursive()
        },
    )
    .unwrap();
    let root = walk.next().unwrap();
    assert_eq!(root.entries.len(), 1);
    if root.entries[0].metadata.dev == walk.root().unwrap().dev {
        eprintln!("skipped: /proc is not mounted");
        return;
    }
    let proc = walk.next().unwrap();
    assert!(proc.entries.is_empty() && !proc.complete && proc.problems.is_empty());
}

/// Returns the paths of a walk's entries, and those of its problems, in order.
fn followed(operands: &[&str], at: &Path, follow: FollowLinks) -> (Vec<String>, Vec<String>) {
    let (mut entries, mut problems) = (Vec::new(), Vec::new());
    let text = |path: &RelPath| String::from_utf8(path.as_bytes().to_vec()).unwrap();
    for dir in open(operands, at, WalkOptions { follow, ..recursive() }) {
        entries.extend(dir.entries.iter().map(|entry| text(&dir.path.join(&entry.name))));
        problems.extend(dir.problems.iter().map(|problem| text(&problem.path)));
    }
    (entries, problems)
}

#[test]
fn a_walk_that_follows_links_ends_and_names_each_circle() {
    let scratch = tempfile::tempdir().unwrap();
    let at = scratch.path();
    make(at, &[("src/a/f", "1"), ("src/b/g", "2")]);
    for (text, link) in
        [("../b", "src/a/to_b"), ("../a", "src/b/to_a"), (".", "src/self"), ("none", "src/none")]
    {
        symlink(text, at.join(link)).unwrap();
    }
    let follow = FollowLinks { all: true, ..FollowLinks::default() };
    let (entries, problems) = followed(&["src/"], at, follow);
    assert_eq!(entries, ["a", "b", "a/f", "a/to_b", "a/to_b/g", "b/g", "b/to_a", "b/to_a/f"]);
    assert_eq!(problems, ["none", "self", "a/to_b/to_a", "b/to_a/to_b"]);
    // The directory of a named entry is not part of the tree.
    let (entries, problems) = followed(&["src/a"], at, follow);
    assert_eq!(entries, ["a", "a/f", "a/to_b", "a/to_b/g"]);
    assert_eq!(problems, ["a/to_b/to_a"]);
}

#[test]
fn directories_behind_many_links_are_not_walked() {
    let scratch = tempfile::tempdir().unwrap();
    let at = scratch.path();
    for level in 0..60 {
        make(at, &[(&format!("{level}/f"), "x")]);
        symlink(format!("../{}", level + 1), at.join(format!("{level}/next"))).unwrap();
    }
    let (entries, problems) =
        followed(&["0/"], at, FollowLinks { to_directories: true, ..FollowLinks::default() });
    // The file and the link of 40 directories more, the last link not.
    assert_eq!((entries.len(), problems.len()), (41 * 2 - 1, 1), "{problems:?}");
}

#[test]
fn a_directory_behind_a_link_is_opened_again_after_many_others() {
    let scratch = tempfile::tempdir().unwrap();
    let at = scratch.path();
    make(at, &[("out/deep/er/file", "found")]);
    for number in 0..100 {
        make(at, &[(&format!("src/z{number}/f"), "")]);
    }
    symlink("../out", at.join("src/link")).unwrap();
    let follow = FollowLinks { leading_out: true, ..FollowLinks::default() };
    let dirs: Vec<WalkedDir> = open(&["src/"], at, WalkOptions { follow, ..recursive() }).collect();
    let deepest = dirs.iter().find(|dir| dir.path.as_bytes() == b"link/deep/er").unwrap();
    let name = Component::new(b"file").unwrap();
    assert_eq!(deepest.dir.open_source(&name, None).unwrap().len(), 5);
    // Another directory in the link's place is not taken for it.
    fs::rename(at.join("out"), at.join("moved")).unwrap();
    make(at, &[("out/deep/er/file", "another")]);
    for dir in &dirs {
        let _ = dir.dir.stat(&name);
    }
    assert!(is_target_changed(&deepest.dir.open_source(&name, None).unwrap_err()));
}
