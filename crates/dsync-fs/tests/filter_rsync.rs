//! The pattern language against the program that defined it: a walk lists the entries that `rsync`
//! would copy with the same rules. Skipped, with a message, if rsync is not installed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
    process::Command,
};

use dsync_fs::{FilterSet, Kind, Walk, WalkOptions};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};

const FILES: &[&str] = &[
    "a",
    "b",
    "ab",
    "a.o",
    "b.o",
    "a-b",
    "a]b",
    "a*b",
    "a?b",
    "a\\b",
    "[a]",
    "foo",
    "bar",
    "Foo",
    "x1",
    "-",
    "!a",
    "^",
    "a b",
    "dir/a",
    "dir/b.o",
    "dir/foo",
    "dir/sub/a",
    "dir/sub/foo",
    "dir/sub/b.o",
    "dir/sub/deep/a",
    "dir/sub/deep/foo",
    "foo.d/a",
    "foo.d/foo",
    "foo.d/bar/a",
    "foo.d/bar/foo/x1",
    "sub/dir/foo",
    "sub/dir/a",
    "sub/foo.d/bar/b.o",
    "a.d/a",
    "a.d/b/a",
    "a.d/b/b/foo",
    "b/b.d/ab",
    "t/a]b",
    "t/a*b",
    "empty/.keep",
];

/// Every form that the manual page names, and the corners between them.
const PATTERNS: &[&str] = &[
    "a",
    "/a",
    "a/",
    "/dir",
    "/dir/",
    "dir/",
    "foo",
    "/foo",
    "*.o",
    "/*.o",
    "dir/*.o",
    "/dir/*.o",
    "sub/foo",
    "/sub/foo",
    "dir/foo",
    "sub/dir",
    "sub/dir/",
    "*",
    "/*",
    "*/",
    "**",
    "/**",
    "**/",
    "***",
    "/***",
    "dir/*",
    "dir/**",
    "dir/***",
    "/dir/***",
    "/dir/**",
    "sub/*",
    "sub/**",
    "sub/***",
    "**/foo",
    "/**/foo",
    "**foo",
    "foo**",
    "foo***",
    "a**",
    "dir/**/foo",
    "dir/**/a",
    "dir**a",
    "/dir**a",
    "d*/**/a",
    "?",
    "??",
    "/?",
    "a?b",
    "a[*]b",
    "a\\*b",
    "a\\?b",
    "a\\b",
    "a\\\\b*",
    "[a]",
    "[ab]",
    "[!a]",
    "[^a]",
    "[a-c]",
    "[c-a]",
    "[]]",
    "a[]]b",
    "a[]*]b",
    "a[!]]b",
    "[-]",
    "[a-]",
    "[--a]",
    "[\\]]",
    "a[\\]]b",
    "[[:alpha:]]",
    "[[:upper:]]oo",
    "x[[:digit:]]",
    "[[:alpha:][:digit:]]1",
    "[![:alpha:]]",
    "[[:a]",
    "a[[:punct:]]b",
    "dir[/]a",
    "[/a]",
    "x[/]*",
    "dir?a",
    "dir/[!x]",
    "*/a",
    "*/*",
    "/*/*",
    "*/*/a",
    "**/a",
    "**/*/a",
    "**/",
    "a.d/***",
    "*.d/***",
    "*.d/",
    "*.d/**",
    "foo.d/***/",
    "/foo.d/*/",
    "foo.d/bar/***",
    "b/**",
    "/a.d/b",
    "a.d/b",
    "b/a",
    "d/b/a",
    ".d/b/a",
    "*d/b/a",
    "**d/b/a",
    "a//b",
    "/",
    "//",
    "dir//",
    "-",
    "!a",
    "[!]a]*",
    "*a*b*",
    "a*b",
    "a* b",
    "**.o",
    "*/**",
    "***/a",
    "s*b/d?r/f[o]o",
    "/s*b/d?r/f[o]o",
    "*r/foo",
    "r/foo",
    "?ir/foo",
    "/**/",
    "/**/a",
    "/*/**/a",
    "**/**/a",
    "**/dir/**",
    "/**/dir/",
    "dir/sub/",
    "/dir/sub/***",
    "dir/sub***",
    "*\\.o",
    "\\*.o",
    "[[:xdigit:]]?o",
];

fn has_rsync() -> bool {
    let found = Command::new("rsync").arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: rsync is not installed");
    }
    found
}

fn make_tree(root: &Path) {
    for file in FILES {
        // "b" is a file at the root in one place and a directory in another.
        let path = root.join(file.replace("b/b.d", "bd/b.d"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
}

/// Returns the paths that rsync would copy, directories with a trailing slash.
fn by_rsync(root: &Path, rules: &[(bool, Vec<u8>)]) -> BTreeSet<Vec<u8>> {
    let mut operand = root.as_os_str().to_owned();
    operand.push("/");
    let mut command = Command::new("rsync");
    command.args(["-rn", "--8-bit-output", "--out-format=%n"]);
    for (include, pattern) in rules {
        let mut argument = OsString::from(if *include { "--filter=+ " } else { "--filter=- " });
        argument.push(OsString::from_vec(pattern.clone()));
        command.arg(argument);
    }
    let output = command.arg(operand).arg(root.with_extension("none")).output().unwrap();
    assert!(output.status.success(), "{rules:?}: {}", String::from_utf8_lossy(&output.stderr));
    let lines = output.stdout.split(|&byte| byte == b'\n');
    lines
        .filter(|line| !line.is_empty() && *line != b"./")
        .filter(|line| !line.starts_with(b"created directory"))
        .map(unescape)
        .collect()
}

/// Undoes rsync's one escape: a backslash before `#` and three digits.
fn unescape(line: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(line).replace("\\#134", "\\").into_bytes()
}

fn by_walk(root: &Path, rules: &[(bool, Vec<u8>)]) -> Option<BTreeSet<Vec<u8>>> {
    let rules: Vec<_> = rules.iter().map(|(include, pattern)| (*include, pattern.as_slice())).collect();
    let filter = FilterSet::compile(&rules).ok()?;
    let mut operand = root.as_os_str().to_owned();
    operand.push("/");
    let options = WalkOptions { recursive: true, filter, ..WalkOptions::default() };
    let mut found = BTreeSet::new();
    for dir in Walk::open(&[Path::new(&operand)], options).unwrap() {
        assert!(dir.problems.is_empty() && dir.complete);
        for entry in &dir.entries {
            let mut path = dir.path.join(&entry.name).as_bytes().to_vec();
            if entry.metadata.kind == Kind::Dir {
                path.push(b'/');
            }
            found.insert(path);
        }
    }
    Some(found)
}

fn show(paths: &BTreeSet<Vec<u8>>) -> Vec<String> {
    paths.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
}

fn compare(root: &Path, rules: &[(bool, Vec<u8>)]) {
    let Some(walked) = by_walk(root, rules) else { return };
    let expected = by_rsync(root, rules);
    let rules: Vec<_> =
        rules.iter().map(|(include, text)| (include, String::from_utf8_lossy(text))).collect();
    let (extra, missing) = (show(&(&walked - &expected)), show(&(&expected - &walked)));
    assert!(extra.is_empty() && missing.is_empty(), "{rules:?}: extra {extra:?}, missing {missing:?}");
}

#[test]
fn every_pattern_form_selects_what_rsync_selects() {
    if !has_rsync() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("tree");
    make_tree(&root);
    assert!(by_rsync(&root, &[]).len() > FILES.len(), "rsync's output was not understood");
    compare(&root, &[]);
    for pattern in PATTERNS {
        let pattern = pattern.as_bytes().to_vec();
        compare(&root, &[(false, pattern.clone())]);
        compare(&root, &[(true, b"*/".to_vec()), (true, pattern.clone()), (false, b"*".to_vec())]);
    }
    let sets: &[&[(bool, &str)]] = &[
        &[(true, "*.o"), (false, "dir/**")],
        &[(false, "dir/"), (true, "dir/foo")],
        &[(true, "/dir/"), (true, "/dir/sub/***"), (false, "*")],
        &[(true, "foo.d/***"), (false, "/*"), (false, "*.o")],
        &[(false, "/sub/*/a"), (true, "sub"), (false, "b*")],
    ];
    for set in sets {
        let set: Vec<_> =
            set.iter().map(|(include, pattern)| (*include, pattern.as_bytes().to_vec())).collect();
        compare(&root, &set);
    }
}

/// Compares random rule sets, with patterns made of `pieces`.
fn random_rules_agree(cases: u32, pieces: impl Strategy<Value = &'static str>) {
    if !has_rsync() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("tree");
    make_tree(&root);
    let pattern = prop::collection::vec(pieces, 1..8).prop_map(|pieces| pieces.concat().into_bytes());
    let rules = prop::collection::vec((any::<bool>(), pattern), 1..3);
    let config = Config { failure_persistence: None, ..Config::with_cases(cases) };
    TestRunner::new(config)
        .run(&rules, |rules| {
            compare(&root, &rules);
            Ok(())
        })
        .unwrap();
}

/// 40 cases, about 1 s.
#[test]
fn random_patterns_select_what_rsync_selects() {
    let pieces = prop_oneof![
        4 => prop::sample::select(vec!["a", "b", "d", "dir", "sub", "foo", "bar", ".d", ".o", "o"]),
        3 => prop::sample::select(vec!["*", "**", "***", "?"]),
        3 => Just("/"),
        1 => prop::sample::select(vec!["[ab]", "[!a]", "[a-f]", "[^.]", "[[:alpha:]]", "\\", "[", "]", "-", "!"]),
    ];
    random_rules_agree(40, pieces);
}

/// 40 cases, about 1 s.
#[test]
fn random_classes_select_what_rsync_selects() {
    let pieces = prop_oneof![
        3 => prop::sample::select(vec!["[", "]"]),
        3 => prop::sample::select(vec!["a", "b", "o", "-", "!", "^", "\\", ":", "/", "]"]),
        1 => prop::sample::select(vec!["[:alpha:]", "[:digit:]", "[:punct:]", "[:space:]", "[:graph:]", "*", "?"]),
    ];
    random_rules_agree(40, pieces);
}

/// Names of any bytes: the shortest test that the comparison uses `OsStr` and not UTF-8.
#[test]
fn bytes_that_are_no_utf8_match_themselves() {
    let name = OsString::from_vec(vec![b'a', 0xff, 0xfe, b'\n', b'z']);
    let set = FilterSet::compile(&[(false, name.as_bytes())]).unwrap();
    assert!(set.excludes(name.as_bytes(), false));
    let set = FilterSet::compile(&[(false, &b"a??\nz"[..])]).unwrap();
    assert!(set.excludes(name.as_bytes(), false));
    let set = FilterSet::compile(&[(false, &b"a[\xf0-\xff]*"[..])]).unwrap();
    assert!(set.excludes(name.as_bytes(), false));
}
