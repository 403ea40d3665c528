//! Trees that are changed before they are planted, so that a case is only a list of entries.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use super::dice::Dice;
use crate::tree::{self, Kind, Node, Piece, Tree};

/// Names that collide often: in several trees, as several types, and as the subject of patterns and
/// suffixes.
const NAMES: &[&str] =
    &["a", "b", "c", "ab", "a.old", "b~", "sub", "d", "alt", "e f", ".h", "-n", "a~", ".part", "bk", "x.old"];

/// Texts of links.
const TEXTS: &[&str] = &[
    "a",
    "b",
    "sub",
    "../a",
    "a/b",
    ".",
    "..",
    "missing",
    "../../alt/a",
    "@/w/d/a",
    "@/w/s/b",
    "@/w/away",
    "../sub",
    "/nowhere",
];

/// Names like dsync's own that are not temporary, and others that people fear.
const ODD: &[&str] =
    &[".dsync", "a.dsync-tmp-1", ".dsyncrc", "..a", "...", "a\\b", "*", "?", "[a]", "h:x", "~"];

/// Chooses a tree of some entries; `rich` ones have links, lists and attributes as well.
pub(super) fn tree(dice: &mut Dice, most: usize, rich: bool) -> Vec<Node> {
    let seed: Vec<u8> = (0..4).flat_map(|_| dice.number().to_le_bytes()).collect();
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let most = most.max(5);
    let drawn = if rich {
        tree::rich_trees(most, 60_000).new_tree(&mut runner).map(|tree| tree.current())
    } else {
        tree::trees(most, 60_000).new_tree(&mut runner).map(|tree| tree.current())
    };
    let mut nodes = drawn.expect("a generated tree").nodes;
    rename(dice, &mut nodes);
    for node in &mut nodes {
        refine(dice, node);
    }
    sound(nodes)
}

/// Renames most entries of a tree to those of another tree.
fn rename(dice: &mut Dice, nodes: &mut [Node]) {
    let mut known: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let wild = *dice.pick(&[0, 0, 10, 60]);
    let mut renamed = |path: &[u8]| {
        let parts = path.split(|&byte| byte == b'/').map(|part| {
            let new = known.entry(part.to_vec()).or_insert_with(|| match () {
                () if dice.chance(wild) => part.to_vec(),
                () if dice.chance(4) => dice.pick(ODD).as_bytes().to_vec(),
                () => dice.pick(NAMES).as_bytes().to_vec(),
            });
            new.clone()
        });
        parts.collect::<Vec<_>>().join(&b'/')
    };
    for node in nodes {
        node.path = renamed(&node.path);
        if let Kind::HardLink(first) = &mut node.kind {
            *first = renamed(first);
        }
    }
}

/// Limits an entry to what a shell can make too, and adds types that the generator of trees lacks.
fn refine(dice: &mut Dice, node: &mut Node) {
    match &node.kind {
        Kind::File(content) => node.kind = Kind::Spliced(pieces(dice, content.len)),
        Kind::Symlink(_) if dice.chance(70) => {
            node.kind = Kind::Symlink(dice.pick(TEXTS).as_bytes().to_vec());
        }
        Kind::Fifo if dice.chance(50) => node.kind = Kind::Socket,
        Kind::CharDevice(major, minor) if dice.chance(50) => node.kind = Kind::BlockDevice(*major, *minor),
        _ => {}
    }
}

fn pieces(dice: &mut Dice, len: u64) -> Vec<Piece> {
    if len == 0 {
        return Vec::new();
    }
    if dice.chance(80) {
        return vec![lines(dice, len)];
    }
    let third = len / 3;
    let gap = if dice.chance(50) { Piece::Hole(third + 70_000) } else { Piece::Zeros(third + 5_000) };
    let mut pieces = vec![lines(dice, third), gap, lines(dice, third)];
    pieces.rotate_left(dice.below(3));
    pieces
}

fn lines(dice: &mut Dice, len: u64) -> Piece {
    Piece::Lines { first: 1_000_000 * (dice.number() % 900 + 1), from: 0, len }
}

/// Changes a tree as people and programs do between two runs.
pub(super) fn mutated(dice: &mut Dice, nodes: &[Node], changes: usize) -> Vec<Node> {
    let mut nodes = nodes.to_vec();
    for _ in 0..changes {
        if nodes.is_empty() {
            break;
        }
        let at = dice.below(nodes.len());
        change(dice, &mut nodes, at);
    }
    sound(nodes)
}

fn change(dice: &mut Dice, nodes: &mut Vec<Node>, at: usize) {
    let node = &mut nodes[at];
    match dice.below(14) {
        0 | 1 => drop(nodes.remove(at)),
        2 => node.mode = *dice.pick(&[0o600, 0o755, 0o4711, 0o2750, 0o1777, 0, 0o444]),
        3 => {
            node.mtime =
                *dice.pick(&[(1_000_000_001, 0), (1_000_000_000, 5), (-77, 999_999_999), (5_000_000_000, 1)]);
        }
        4 => node.owner = *dice.pick(&[None, Some((1, 2)), Some((0, 0)), Some((70_001, 70_002))]),
        5 => node.kind = kind(dice),
        6 => {
            let (name, value) = dice.pick(&[("user.a", "new"), ("user.new", "x"), ("trusted.t", "y")]);
            let takes = matches!(node.kind, Kind::Dir | Kind::Spliced(_));
            node.xattrs.retain(|(other, _)| other != name);
            if takes {
                node.xattrs.push(((*name).to_owned(), value.as_bytes().to_vec()));
            }
        }
        7 => node.xattrs.clear(),
        8 => {
            let path = [&node.path[..], dice.pick(&["~", ".old", "x", "/a", "/b"]).as_bytes()].concat();
            let new = Node::new(path, kind(dice));
            nodes.insert(at + 1, new);
        }
        _ => edit(dice, node),
    }
}

fn kind(dice: &mut Dice) -> Kind {
    match dice.below(8) {
        0..=2 => Kind::Dir,
        3 | 4 => Kind::Spliced(vec![lines(dice, 100)]),
        5 => Kind::Symlink(dice.pick(TEXTS).as_bytes().to_vec()),
        6 => Kind::Fifo,
        _ => Kind::Spliced(Vec::new()),
    }
}

/// Edits a file's content; in some cases its time stays, as with tools that restore it.
fn edit(dice: &mut Dice, node: &mut Node) {
    let Kind::Spliced(pieces) = &mut node.kind else {
        node.mtime.0 += 1;
        return;
    };
    let len = *dice.pick(&[1, 10, 500, 5_000, 70_000]);
    match dice.below(6) {
        0 => pieces.push(lines(dice, len)),
        1 => pieces.insert(0, lines(dice, len)),
        2 => drop(pieces.pop()),
        3 => pieces.push(Piece::Zeros(len)),
        _ => {
            let at = dice.below(pieces.len().max(1));
            match pieces.get_mut(at) {
                Some(Piece::Lines { from, .. }) if dice.chance(50) => *from += 7,
                Some(Piece::Lines { len, .. }) if dice.chance(50) => *len -= *len / 3,
                Some(piece) => *piece = lines(dice, piece.length()),
                None => pieces.push(lines(dice, len)),
            }
        }
    }
    if dice.chance(80) {
        node.mtime = (node.mtime.0 + *dice.pick(&[1, 1, 1000, -1000]), node.mtime.1);
    }
}

/// Bytes of the longest name that a filesystem accepts.
const LONGEST_NAME: usize = 255;

/// Keeps the entries that can be planted: their directory exists, and their name is free and not
/// too long.
pub(super) fn sound(nodes: Vec<Node>) -> Vec<Node> {
    let mut taken = BTreeSet::new();
    let mut dirs = BTreeSet::new();
    let mut linkable = BTreeSet::new();
    let mut kept = Vec::new();
    for node in nodes {
        let parent = node.path.iter().rposition(|&byte| byte == b'/').map(|at| node.path[..at].to_vec());
        let is_placed = parent.is_none_or(|parent| dirs.contains(&parent));
        let is_linked = match &node.kind {
            Kind::HardLink(first) => linkable.contains(first),
            _ => true,
        };
        let is_short =
            node.path.rsplit(|&byte| byte == b'/').next().is_some_and(|name| name.len() <= LONGEST_NAME);
        if !is_placed || !is_linked || !is_short || node.path.is_empty() || !taken.insert(node.path.clone()) {
            continue;
        }
        match node.kind {
            Kind::Dir => drop(dirs.insert(node.path.clone())),
            Kind::HardLink(_) => {}
            _ => drop(linkable.insert(node.path.clone())),
        }
        kept.push(fitting(node));
    }
    kept
}

/// Drops the attributes that an entry of its type cannot have.
fn fitting(mut node: Node) -> Node {
    let is_dir = matches!(node.kind, Kind::Dir);
    let is_link = matches!(node.kind, Kind::Symlink(_));
    let is_file = matches!(node.kind, Kind::File(_) | Kind::Spliced(_));
    node.xattrs.retain(|(name, _)| match name.as_str() {
        "system.posix_acl_default" => is_dir,
        "security.capability" => is_file,
        name if name.starts_with("system.") => !is_link,
        name if name.starts_with("user.") => is_dir || is_file,
        _ => true,
    });
    node
}

/// Moves a tree below a directory.
pub(super) fn below(prefix: &str, nodes: &[Node]) -> Vec<Node> {
    let moved = |path: &[u8]| [prefix.as_bytes(), b"/", path].concat();
    let mut nodes = nodes.to_vec();
    for node in &mut nodes {
        node.path = moved(&node.path);
        if let Kind::HardLink(first) = &mut node.kind {
            *first = moved(first);
        }
    }
    nodes
}

/// Returns the tree with the texts of its links as they are under a world's root.
pub(super) fn rooted(nodes: &[Node], root: &[u8]) -> Tree {
    let mut nodes = nodes.to_vec();
    for node in &mut nodes {
        if let Kind::Symlink(text) = &mut node.kind
            && let Some(rest) = text.strip_prefix(b"@/")
        {
            *text = [root, b"/", rest].concat();
        }
    }
    Tree { nodes }
}
