//! `-i`: lines beside rsync's over types, what differs, and options, in every direction.

use std::path::Path;

use dsync_tests::{
    Kind, Node, Outcome, Run, Scratch, Sshd, Tree, Via, needs_dsync, needs_root, oracle, scratch::slash,
};

const NEW: (i64, i64) = (1_500_000_000, 0);
const OLD: (i64, i64) = (1_000_000_000, 0);

const TYPES: [&str; 4] = ["file", "dir", "link", "pipe"];
const DIFFERENCES: [&str; 8] = ["new", "same", "content", "time", "mode", "owner", "group", "type"];

/// Returns an entry of a type as the source has it or, with `differs`, as the destination does.
fn node(kind: &str, path: &str, differs: &str) -> Node {
    let text = if differs == "content" { "other" } else { "a" };
    let made = match kind {
        "file" => Node::file(path, if differs == "content" { 2 } else { 1 }, 20),
        "dir" => Node::dir(path),
        "link" => Node::symlink(path, text),
        _ => Node::new(path, Kind::Fifo),
    };
    let changed = matches!((differs, kind), ("time", _) | ("content", "file"));
    let mtime = if changed { OLD } else { NEW };
    let mode = if differs == "mode" && kind != "link" { 0o700 } else { made.mode };
    let owner = match differs {
        "owner" => (1234, 0),
        "group" => (0, 1234),
        _ => (0, 0),
    };
    Node { mtime, mode, owner: Some(owner), ..made }
}

/// Plants each type with each difference; some of all in a third tree, and names of one file.
fn plant(at: &Path) {
    let (mut src, mut dst, mut alternate) = (Vec::new(), Vec::new(), Vec::new());
    for (kind, other) in TYPES.into_iter().zip(["dir", "file", "dir", "link"]) {
        for differs in DIFFERENCES {
            let path = format!("{kind} {differs}");
            src.push(node(kind, &path, ""));
            match differs {
                "new" => alternate.push(node(kind, &path, "")),
                "type" => dst.push(node(other, &path, "")),
                _ => dst.push(node(kind, &path, differs)),
            }
        }
        let path = format!("{kind} elsewhere");
        src.push(node(kind, &path, ""));
        alternate.push(node(kind, &path, "owner"));
    }
    dst.extend(
        ["dir over", "dir over/in", "dir over/in/deep", "dir empty", "extra", "extra/in"].map(Node::dir),
    );
    dst.push(Node::file("dir over/in/f", 1, 1));
    src.extend(["dir over", "dir empty"].map(|path| node("file", path, "")));

    src.extend([
        node("file", "one", ""),
        Node::hard_link("one more", "one"),
        Node::hard_link("one new", "one"),
    ]);
    dst.extend([node("file", "one", ""), node("file", "one more", "")]);
    for (tree, at) in [(src, at.join("src")), (dst, at.join("dst")), (alternate, at.join("other"))] {
        Tree::of(tree).plant(&at);
    }
}

/// Returns the lines of entries, sorted: rsync deletes before it makes, and has its own order.
fn lines(outcome: &Outcome) -> Vec<String> {
    let text = outcome.stdout_text();
    let is_line = |line: &&str| {
        line.starts_with(['<', '>', 'c', 'h', '.', '*'])
            && !line.ends_with(" ./")
            && !line.starts_with("cannot ")
    };
    let mut lines: Vec<_> = text.lines().filter(is_line).map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

const OPTIONS: [&str; 33] = [
    "-a",
    "-a --delete",
    "-a --force",
    "-a --delete -n",
    "-aH",
    "-aH --no-t",
    "-aHAX",
    "-r",
    "-rl",
    "-rlD --no-g",
    "-rlpt",
    "-a --no-o",
    "-aO",
    "-aJ",
    "-aOJ --no-p",
    "-ac",
    "-au",
    "-aI",
    "-a --size-only",
    "-rlDc",
    "-a --link-dest=../other",
    "-a --copy-dest=../other",
    "-a --compare-dest=../other",
    "-aH --no-t --link-dest=../other",
    "-r --copy-dest=../other",
    "-rlDog --copy-dest=../other",
    "-rlDog --link-dest=../other -n",
    "-a --existing",
    "-a --ignore-existing",
    "-ai",
    "-aE --no-p",
    "-a --delete -b --backup-dir=../kept",
    "-a --chmod=F600",
];

/// Runs rsync, or dsync in a direction, in a new tree.
fn run(sshd: &Sshd, direction: &str, options: &str) -> Outcome {
    let at = Scratch::new();
    plant(at.path());
    let (src, dst) = (slash(&at.src()), slash(&at.dst()));
    let words: Vec<&str> = options.split(' ').chain(["-i"]).collect();
    match direction {
        "rsync" => oracle::rsync(words.iter().map(Into::into).chain([src, dst])),
        "push" => sshd.run(Via::Ssh).args(&words).arg(src).arg(sshd.operand(dst)).run(),
        "pull" => sshd.run(Via::Ssh).args(&words).arg(sshd.operand(src)).arg(dst).run(),
        _ => Run::dsync().args(&words).arg(src).arg(dst).run(),
    }
}

#[test]
fn every_type_with_every_difference_is_itemized_as_by_rsync() {
    needs_dsync!();
    needs_root!();
    let sshd = Sshd::shared();
    let mut wrong = Vec::new();
    for (number, options) in OPTIONS.into_iter().enumerate() {
        let rsync = run(sshd, "rsync", options);
        let listed = lines(&rsync);
        assert!(!listed.is_empty(), "{}", rsync.account());

        for direction in ["local", ["push", "pull"][number % 2]] {
            let made = lines(&run(sshd, direction, options));
            // Lines about another host's files begin with '<'.
            let wanted = listed.iter().map(|line| match (direction, line.strip_prefix('>')) {
                ("push", Some(rest)) => format!("<{rest}"),
                _ => line.clone(),
            });
            let wanted: Vec<_> = wanted.collect();
            let missing = wanted.iter().filter(|line| !made.contains(line)).map(|line| format!("- {line}"));
            let more = made.iter().filter(|line| !wanted.contains(line)).map(|line| format!("+ {line}"));
            let differ: Vec<_> = missing.chain(more).collect();
            if !differ.is_empty() || made.len() != wanted.len() {
                wrong.push(format!("{direction} {options}:\n{}", differ.join("\n")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
