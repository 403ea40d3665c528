//! The example command beside `rdiff`: the same jobs on the same files, both ways, over pipes. Both
//! rebuild the new file; ours sends no more literal bytes, in shorter signatures.
//!
//! `rdiff` is in Debian's package `rdiff`, which `cargo xtask test` installs.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::{
    cell::Cell,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use tempfile::TempDir;

/// Returns the example command, built from the sources at hand.
fn ours() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "dsync-delta", "--example", "delta"]);
    assert!(cargo.status().unwrap().success());
    let deps = std::env::current_exe().unwrap();
    deps.ancestors().nth(2).unwrap().join("examples/delta")
}

/// Runs a command from a file to a file through pipes, so that it knows no length, and each read gets
/// as much as happened to be written.
fn pipe(program: &Path, args: &[&str], input: &Path, output: &Path) -> String {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error} (Debian package rdiff)", program.display()));
    let (mut stdin, content) = (child.stdin.take().unwrap(), fs::read(input).unwrap());
    let found = thread::scope(|scope| {
        // A command that ends early says so by its status.
        scope.spawn(move || content.chunks(ODD).try_for_each(|chunk| stdin.write_all(chunk)));
        child.wait_with_output().unwrap()
    });
    fs::write(output, found.stdout).unwrap();
    let stderr = String::from_utf8(found.stderr).unwrap();
    assert!(found.status.success(), "{program:?} {args:?}: {stderr}");
    stderr
}

/// Bytes of a write into a pipe: no multiple of any block or buffer.
const ODD: usize = 7919;

/// Lengths and counts of one program's three steps.
#[derive(Debug)]
struct Sent {
    signature: u64,
    delta: u64,
    literal: u64,
}

/// Rebuilds `new` from `basis` and checks the result.
fn rebuild(program: &Path, dir: &Path, basis: &Path, new: &Path, block_len: u32) -> Sent {
    let rdiff = program.ends_with("rdiff");
    let (signature, delta, rebuilt) = (dir.join("signature"), dir.join("delta"), dir.join("rebuilt"));
    let block_len = block_len.to_string();
    let name = |path: &Path| path.to_str().unwrap().to_owned();
    let run = |args: &[&str], input: &Path, output: &Path| pipe(program, args, input, output);
    let apply = if rdiff { "patch" } else { "apply" };
    run(&["-b", &block_len, "signature", "-", "-"], basis, &signature);
    let counts = run(&["-s", "delta", &name(&signature), "-", "-"], new, &delta);
    run(&[apply, &name(basis), "-", "-"], &delta, &rebuilt);

    assert!(fs::read(&rebuilt).unwrap() == fs::read(new).unwrap(), "{program:?}");
    let len = |path: &Path| fs::metadata(path).unwrap().len();
    Sent { signature: len(&signature), delta: len(&delta), literal: literal_bytes(&counts) }
}

/// Finds the literal bytes in the counts of either program.
fn literal_bytes(counts: &str) -> u64 {
    let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
    let theirs = counts.split_once("literal[").and_then(|(_, rest)| rest.split_once("cmds, "));
    let ours = counts.split_once("literal_bytes: ");
    // rdiff names no literals if there are none.
    ours.or(theirs).map_or(0, |(_, rest)| number(rest).parse().unwrap())
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[7]
    };
    (0..len).map(step).collect()
}

/// Returns pairs of files: edited, shifted, grown, empty, tiny, unrelated.
fn pairs() -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
    let basis = noise(1, 3_000_000);
    let mut edited = basis.clone();
    for at in (0..30).map(|n| n * 99_991) {
        edited[at] ^= 1;
        edited.splice(at..at + 5, noise(at as u64, at % 11));
    }
    let shifted = [&noise(2, 13), &basis[..]].concat();
    let moved = [&basis[2_000_000..], &basis[..1_000_000], &basis[1_500_000..]].concat();
    let text = "a line of a log\n".repeat(20_000).into_bytes();
    let longer_text = [&text[..], b"one more\n"].concat();
    vec![
        ("identical", basis.clone(), basis.clone()),
        ("edited", basis.clone(), edited),
        ("shifted", basis.clone(), shifted),
        ("moved", basis.clone(), moved),
        ("truncated", basis.clone(), basis[..1_234_567].to_vec()),
        ("text", text, longer_text),
        ("unrelated", noise(3, 500_000), noise(4, 700_000)),
        ("empty", Vec::new(), noise(5, 5000)),
        ("tiny", b"old".to_vec(), b"new".to_vec()),
        ("both empty", Vec::new(), Vec::new()),
    ]
}

#[test]
fn same_jobs_as_rdiff_have_the_same_results_and_cost_less() {
    let (ours, rdiff) = (ours(), PathBuf::from("rdiff"));
    let dir = TempDir::new().unwrap();
    let (one, other) = (dir.path().join("one"), dir.path().join("other"));
    for (name, old, new) in pairs() {
        fs::write(&one, &old).unwrap();
        fs::write(&other, &new).unwrap();
        for (basis, new) in [(&one, &other), (&other, &one)] {
            for block_len in [2048, 4 << 20] {
                let theirs = rebuild(&rdiff, dir.path(), basis, new, block_len);
                let ours = rebuild(&ours, dir.path(), basis, new, block_len);
                assert!(ours.literal <= theirs.literal, "{name} {block_len}: {ours:?} {theirs:?}");
                // A header, an end, and 12 bytes for each frame of 64 KiB of literals.
                let frames = 200 + ours.literal / (64 << 10) * 12;
                assert!(ours.delta <= theirs.delta + frames, "{name} {block_len}: {ours:?} {theirs:?}");
                assert!(ours.signature <= theirs.signature / 2 + 150, "{name}: {ours:?} {theirs:?}");
            }
        }
    }
}

/// A change of a file.
#[derive(Debug, Clone)]
enum Edit {
    Insert {
        at: usize,
        len: usize,
        seed: u64,
    },
    Remove {
        at: usize,
        len: usize,
    },
    Overwrite {
        at: usize,
        len: usize,
        seed: u64,
    },
    /// Puts a copy of one place at another.
    Copy {
        from: usize,
        len: usize,
        at: usize,
    },
    /// Repeats one byte, as sparse files do.
    Fill {
        at: usize,
        len: usize,
        byte: u8,
    },
}

fn edit() -> impl Strategy<Value = Edit> {
    let (place, len, seed) = (0..MOST, 0..20_000_usize, any::<u64>());
    prop_oneof![
        (place.clone(), len.clone(), seed).prop_map(|(at, len, seed)| Edit::Insert { at, len, seed }),
        (place.clone(), len.clone()).prop_map(|(at, len)| Edit::Remove { at, len }),
        (place.clone(), 0..300_usize, seed).prop_map(|(at, len, seed)| Edit::Overwrite { at, len, seed }),
        (place.clone(), len.clone(), place.clone()).prop_map(|(from, len, at)| Edit::Copy { from, len, at }),
        (place, len, any::<u8>()).prop_map(|(at, len, byte)| Edit::Fill { at, len, byte }),
    ]
}

fn changed(old: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut new = old.to_vec();
    for edit in edits {
        let place = |at: usize| at.min(new.len());
        let (at, end, with) = match edit {
            Edit::Insert { at, len, seed } => (place(*at), place(*at), noise(*seed, *len)),
            Edit::Remove { at, len } => (place(*at), place(at + len), Vec::new()),
            Edit::Overwrite { at, len, seed } => (place(*at), place(at + len), noise(*seed, *len)),
            Edit::Copy { from, len, at } => {
                (place(*at), place(*at), new[place(*from)..place(from + len)].to_vec())
            }
            Edit::Fill { at, len, byte } => (place(*at), place(*at), vec![*byte; *len]),
        };
        new.splice(at..end, with);
    }
    new
}

/// Longest file before its edits.
const MOST: usize = 200_000;
/// Pairs of files, each in both directions.
const CASES: u32 = 40;

#[test]
fn law_any_edits_cost_no_more_than_with_rdiff_in_either_direction() {
    let (ours, rdiff) = (ours(), PathBuf::from("rdiff"));
    let dir = TempDir::new().unwrap();
    let (one, other) = (dir.path().join("one"), dir.path().join("other"));
    let block_len = prop_oneof![Just(1024_u32), Just(2048), Just(8192)];
    let cases = (any::<u64>(), 0..MOST, prop::collection::vec(edit(), 0..8), block_len);
    let config = Config { failure_persistence: None, ..Config::with_cases(CASES) };
    let sums = Cell::new((0, 0));
    let law = |(seed, len, edits, block_len): (u64, usize, Vec<Edit>, u32)| {
        let old = noise(seed, len);
        // Where content repeats, two searches may find different places, and lose a block at an edit.
        let blocks = u64::from(block_len) * (edits.len() as u64 + 1);
        fs::write(&one, &old).unwrap();
        fs::write(&other, changed(&old, &edits)).unwrap();
        for (basis, new) in [(&one, &other), (&other, &one)] {
            let theirs = rebuild(&rdiff, dir.path(), basis, new, block_len);
            let ours = rebuild(&ours, dir.path(), basis, new, block_len);
            prop_assert!(ours.literal <= theirs.literal + blocks, "{ours:?} {theirs:?}");
            sums.set((sums.get().0 + ours.literal, sums.get().1 + theirs.literal));
            let frames = blocks + 200 + ours.literal / (64 << 10) * 12;
            prop_assert!(ours.delta <= theirs.delta + frames, "{ours:?} {theirs:?}");
            prop_assert!(ours.signature <= theirs.signature / 2 + 150, "{ours:?} {theirs:?}");
        }
        Ok(())
    };
    // Always the same cases: the sum over all of them is a verdict as well.
    let dice = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    TestRunner::new_with_rng(config, dice).run(&cases, law).unwrap();
    let (ours, theirs) = sums.get();
    assert!(ours <= theirs, "{ours} {theirs}");
}

#[test]
fn damaged_delta_leaves_the_old_file_alone() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("basis"), noise(1, 100_000)).unwrap();
    fs::write(path("new"), noise(1, 90_000)).unwrap();
    fs::write(path("target"), "old").unwrap();
    let run = |args: &[&str]| Command::new(ours()).args(args).output().unwrap();
    assert!(run(&["signature", &path("basis"), &path("signature")]).status.success());
    assert!(run(&["delta", &path("signature"), &path("new"), &path("delta")]).status.success());

    let mut delta = fs::read(path("delta")).unwrap();
    let middle = delta.len() / 2;
    delta[middle] ^= 1;
    fs::write(path("damaged"), delta).unwrap();
    let refused = run(&["apply", &path("basis"), &path("damaged"), &path("target")]);
    assert!(!refused.status.success());
    assert!(String::from_utf8(refused.stderr).unwrap().contains("damaged"));
    assert_eq!(fs::read(path("target")).unwrap(), b"old");

    assert!(run(&["apply", &path("basis"), &path("delta"), &path("target")]).status.success());
    assert_eq!(fs::read(path("target")).unwrap(), noise(1, 90_000));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 6);
}
