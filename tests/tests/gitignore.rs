//! `--gitignore` leaves out what git ignores, and protects it.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use dsync_tests::{Run, Scratch, every_way, scratch::slash};
use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner},
};

/// Plants files, each with its text after a `=`.
fn plant(at: &Path, files: &[&str]) {
    for file in files {
        let (path, text) = file.split_once('=').unwrap_or((file, ""));
        write(&at.join(path), text);
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Runs git without anybody's own settings.
fn git(at: &Path, args: &[&str]) -> Vec<u8> {
    let output = Command::new("git")
        .args(args)
        .current_dir(at)
        .env("HOME", "/nonexistent")
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Returns the files that git does not ignore, below a directory of a repository.
fn wanted(at: &Path) -> BTreeSet<Vec<u8>> {
    let list = git(at, &["ls-files", "-co", "--exclude-standard", "-z"]);
    list.split(|&byte| byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
}

/// Returns the files below a directory, without those of repositories.
fn files(at: &Path) -> BTreeSet<Vec<u8>> {
    fn walk(root: &Path, at: &Path, found: &mut BTreeSet<Vec<u8>>) {
        for entry in fs::read_dir(at).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if entry.file_name() == ".git" {
                continue;
            }
            if entry.file_type().unwrap().is_dir() {
                walk(root, &path, found);
            } else {
                found.insert(path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec());
            }
        }
    }
    let mut found = BTreeSet::new();
    walk(at, at, &mut found);
    found
}

fn shown(names: &BTreeSet<Vec<u8>>) -> Vec<String> {
    names.iter().map(|name| name.escape_ascii().to_string()).collect()
}

/// Copies a tree and returns what git and dsync see differently.
fn difference(source: &Path, destination: &Path) -> Option<String> {
    let outcome = Run::dsync().args(["-r", "--gitignore"]).arg(slash(source)).arg(destination).run();
    if outcome.code() != Some(0) {
        return Some(outcome.account());
    }
    let (wanted, copied) = (wanted(source), files(destination));
    (wanted != copied).then(|| format!("git: {:?}\ndsync: {:?}", shown(&wanted), shown(&copied)))
}

/// A case: the files, and the files that have lines.
type Case = (Vec<String>, Vec<(String, String)>);

/// Names that patterns may meet, and some that mean something in patterns.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => prop::sample::select(vec!["a", "b", "ab", "a.o", "b.o", "out", "A"]).prop_map(str::to_owned),
        2 => prop::sample::select(vec!["a b", "b ", "#a", "!a", "{a,b}", "[a]", "a]", "a-b", "*", "\\a", "^", "é", "a\t"])
            .prop_map(str::to_owned),
    ]
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(name(), 1..4).prop_map(|names| names.join("/"))
}

/// Pieces of a pattern.
fn piece() -> impl Strategy<Value = String> {
    const ODD: [&str; 24] = [
        "*",
        "**",
        "a*",
        "*b",
        "?",
        "??",
        "[ab]",
        "[!a]",
        "[^a]",
        "[a-c].o",
        "[[:alpha:]]",
        "[[:digit:][:upper:]]",
        "[]a]",
        "[a\\]]",
        "{a,b}",
        "\\a",
        "\\*",
        "[a",
        "[!!]",
        "[z-a]",
        "a[-b]b",
        "[+--]",
        "*.o",
        "[*]",
    ];
    prop_oneof![3 => name(), 2 => prop::sample::select(&ODD[..]).prop_map(str::to_owned)]
}

fn line() -> impl Strategy<Value = String> {
    let pieces = prop::collection::vec(piece(), 1..4);
    let start = prop::sample::select(vec!["", "", "", "!", "!", "/", "!/", "**/", "#", "\\#", "\\!", " "]);
    let end = prop::sample::select(vec!["", "", "", "/", "/**", "/*", " ", "\\ ", "\r", "\\"]);
    (start, pieces, end, prop::bool::weighted(0.6)).prop_map(|(start, pieces, end, one)| {
        let pieces = if one { pieces[0].clone() } else { pieces.join("/") };
        format!("{start}{pieces}{end}")
    })
}

fn cases() -> impl Strategy<Value = Case> {
    let lines = prop::collection::vec(line(), 1..6).prop_map(|lines| lines.join("\n"));
    let place = prop_oneof![
        3 => Just(".gitignore".to_owned()),
        1 => Just(".git/info/exclude".to_owned()),
        3 => path().prop_map(|path| format!("{path}/.gitignore")),
    ];
    (prop::collection::vec(path(), 1..20), prop::collection::vec((place, lines), 1..4))
}

/// Writes what fits: a path may lead through a file of another.
fn make((paths, rules): &Case, at: &Path) {
    fs::create_dir(at).unwrap();
    git(at, &["init", "-q"]);
    let rules = rules.iter().map(|(path, text)| (path.as_str(), text.as_str()));
    for (path, text) in rules.chain(paths.iter().map(|path| (path.as_str(), ""))) {
        let path = at.join(path);
        if fs::create_dir_all(path.parent().unwrap()).is_ok() && !path.is_dir() {
            fs::write(path, text).unwrap();
        }
    }
}

#[test]
fn generated_trees_arrive_without_what_git_ignores() {
    let config = Config { cases: 80, max_shrink_iters: 300, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[23; 32]);
    TestRunner::new_with_rng(config, rng)
        .run(&cases(), |case| {
            let scratch = Scratch::new();
            make(&case, &scratch.at("repository"));
            let found = difference(&scratch.at("repository"), &scratch.at("copy"));
            found.map_or(Ok(()), |text| Err(TestCaseError::fail(text)))
        })
        .unwrap_or_else(|error| panic!("{error}"));
}

/// A repository in a repository, and rules above the operand.
#[test]
fn each_repository_has_its_own_rules() {
    let scratch = Scratch::new();
    let top = scratch.at("top");
    plant(
        &top,
        &[".gitignore=*.o\n/sub/x\n", "a.o", "sub/a.o", "sub/x", "sub/y", "sub/.gitignore=y\n", "sub/z"],
    );
    plant(&top, &["inner/a.o", "inner/b", "inner/.gitignore=b\n", "inner/c"]);
    git(&top, &["init", "-q"]);
    git(&top.join("inner"), &["init", "-q"]);
    plant(&top, &[".git/info/exclude=z\n"]);

    for part in ["sub", "inner"] {
        assert_eq!(difference(&top.join(part), &scratch.at(part)), None);
    }
    let outcome = Run::dsync().args(["-a", "--gitignore"]).arg(&top).arg(scratch.at("whole")).run();
    assert_eq!(outcome.code(), Some(0), "{}", outcome.account());
    let copied = shown(&files(&scratch.at("whole/top")));
    assert_eq!(copied, [".gitignore", "inner/.gitignore", "inner/a.o", "inner/c", "sub/.gitignore"]);
    assert!(scratch.at("whole/top/.git/info/exclude").exists(), "the repository itself is copied");
}

/// The destination's files protect there, in all directions.
#[test]
fn ignored_files_stay_at_the_destination_unless_excluded_ones_go() {
    for (options, left) in [
        (&["-a", "--gitignore", "--delete"][..], &[".gitignore", "kept.o", "new", "sub/kept.o"][..]),
        (&["-a", "--gitignore", "--delete", "--delete-excluded"], &[".gitignore", "new"]),
    ] {
        let scratch = Scratch::new();
        plant(&scratch.src(), &[".gitignore=*.o\n!keep.o\n", "left-out.o", "new"]);
        every_way(&scratch, options, |run, destination| {
            plant(
                destination,
                &[".gitignore=*.o\n!keep.o\n", "kept.o", "sub/kept.o", "sub/old", "old", "keep.o"],
            );
            let dry = run().arg("-n").run();
            assert_eq!(dry.code(), Some(0), "{}", dry.account());
            assert!(destination.join("old").exists(), "a dry run removes nothing");
            let outcome = run().run();
            assert_eq!(outcome.code(), Some(0), "{}", outcome.account());
            assert_eq!(shown(&files(destination)), left, "{options:?}");
        });
    }
}

/// `!` takes back from git's files alone, and the rules before them decide first.
#[test]
fn other_rules_come_first_and_are_not_taken_back() {
    let scratch = Scratch::new();
    plant(&scratch.src(), &[".gitignore=*.o\n!b.o\n", "a.o", "b.o", "c.o", "d"]);
    let copied = |options: &[&str], name: &str| {
        let destination: PathBuf = scratch.at(name);
        let run = Run::dsync().args(["-a", "--gitignore"]).args(options);
        let outcome = run.arg(slash(&scratch.src())).arg(&destination).run();
        assert_eq!(outcome.code(), Some(0), "{}", outcome.account());
        shown(&files(&destination))
    };
    assert_eq!(copied(&[], "alone"), [".gitignore", "b.o", "d"]);
    assert_eq!(copied(&["--include=a.o"], "include"), [".gitignore", "a.o", "b.o", "d"]);
    assert_eq!(copied(&["--exclude=b.o"], "exclude"), [".gitignore", "d"]);
    assert_eq!(copied(&["--no-gitignore"], "off"), [".gitignore", "a.o", "b.o", "c.o", "d"]);
}

/// A line that cannot be read leaves its directory alone, at both ends, and is named.
#[test]
fn line_that_cannot_be_read_is_named_and_nothing_goes() {
    let scratch = Scratch::new();
    plant(&scratch.src(), &["d/a", "e"]);
    fs::write(scratch.src().join("d/.gitignore"), b"x\n\xff\n").unwrap();
    plant(&scratch.dst(), &["d/old", "old"]);
    let run = Run::dsync().args(["-a", "--gitignore", "--delete"]);
    let outcome = run.arg(slash(&scratch.src())).arg(scratch.dst()).run();
    assert_eq!(outcome.code(), Some(23), "{}", outcome.account());
    assert!(outcome.account().contains("d/.gitignore"), "{}", outcome.account());
    assert!(outcome.account().contains("line 2"), "{}", outcome.account());
    assert_eq!(shown(&files(&scratch.dst())), ["d/old", "e", "old"]);
}
