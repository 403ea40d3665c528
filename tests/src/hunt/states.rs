//! States and options that the other choices do not reach: directories that lock their owner out,
//! several alternate directories, the destination as one, parts of `-a` taken back, long files that are changed a little,
//! kinds of lines that are chosen.
//!
//! The choices come from dice of their own, so that the other cases stay what they were.

use super::{case::Case, dice::Dice, model, options};
use crate::tree::{Kind, Node, Piece};

/// Sets the choices here apart from the case's others.
const OWN_DICE: u64 = 0x7374_6174_6573;

/// Modes that deny their owner to write, to read or to enter.
const LOCKED: &[u32] = &[0o500, 0o555, 0o300, 0o600, 0o400, 0o200, 0o100, 0, 0o1500, 0o2550];

/// Further options; none of them names a directory.
const OPTIONS: &[&str] = &[
    "--no-o",
    "--no-g",
    "--no-p",
    "--no-t",
    "--no-l",
    "--no-D",
    "--no-devices",
    "--no-specials",
    "--no-whole-file",
    "--block-size=700",
    "--max-delete=0",
    "--max-delete=1",
    "--chmod=F=",
    "--chmod=a=rX",
    "--chmod=Dg+s,Fo-r",
    "--chmod=u=rwX,go=",
    "--usermap=1:7,*:8",
    "--usermap=0-65533:9",
    "--groupmap=2:0,*:3",
    "--chown=:5",
    "--chown=3",
    "--compress-level=9",
    "-yy",
    "--no-implied-dirs",
    "--partial",
    "--no-inc-recursive",
    "--omit-dir-times",
    "--exclude=sub/**",
    "--include=*/",
    "--max-size=100b",
    "--min-size=1",
];

/// Choices of kinds of lines, which leave what a run does and the lines of `-i` as they are.
const INFO: &[&str] = &[
    "--info=none",
    "--info=del0",
    "--info=name0",
    "--info=name2",
    "--info=del",
    "--info=skip",
    "--info=nonreg0",
    "--info=symsafe",
    "--info=backup,remove",
    "--info=copy,misc,mount",
    "--info=stats0,flist0",
];

/// The destination as its own alternate directory.
const OWN_ALTERNATES: &[&str] = &["--link-dest=.", "--link-dest=../d", "--copy-dest=.", "--compare-dest=."];

/// Bytes of a file that is long enough for a delta of several blocks.
const LONG_BYTES: u64 = 1_500_000;

/// Adds some of these to some cases.
pub(super) fn extend(case: &mut Case) {
    let mut dice = Dice::new(case.seed ^ OWN_DICE);
    if dice.chance(if case.is_nobody { 35 } else { 5 }) {
        lock_roots(case, &mut dice);
    }
    if dice.chance(15) {
        for _ in 0..*dice.pick(&[1, 1, 2]) {
            add(case, dice.pick::<&str>(OPTIONS));
        }
    }
    if dice.chance(40) {
        second_alternate(case, &mut dice);
    }
    if dice.chance(5) {
        long_file(case, &mut dice);
    }
    if dice.chance(6) {
        add(case, dice.pick::<&str>(INFO));
    }
    if dice.chance(3) {
        add(case, dice.pick::<&str>(OWN_ALTERNATES));
    }
}

/// Adds an option, unless another one has its name or its letter.
fn add(case: &mut Case, option: &str) {
    let is_letter = option.len() == 2 && case.has_letter(char::from(option.as_bytes()[1]));
    let has_it = case.has(&[options::name(option)]) || option == "-yy" && case.has(&["-y", "--fuzzy"]);
    if !is_letter && !has_it && !options::clashes(&case.options, option) {
        case.options.push(option.into());
    }
}

/// Locks the owner out of roots, and sometimes out of the directory above them.
fn lock_roots(case: &mut Case, dice: &mut Dice) {
    let mut roots: Vec<&[u8]> = vec![b"w/s", b"w/d", b"w/d/s", b"w/s2"];
    if dice.chance(10) {
        roots.push(b"w");
    }
    for root in roots {
        let mode = *dice.pick(LOCKED);
        if dice.chance(60)
            && let Some(node) = case.world.iter_mut().find(|node| node.path == root)
        {
            node.mode = mode;
        }
    }
}

/// Adds a second alternate directory of its kind to a case that has one.
fn second_alternate(case: &mut Case, dice: &mut Dice) {
    let of_one = ["--link-dest=", "--copy-dest=", "--compare-dest="];
    let Some(kind) =
        of_one.into_iter().find(|kind| case.options.iter().any(|option| option.starts_with(kind)))
    else {
        return;
    };
    let in_source = |node: &&Node| node.path.starts_with(b"w/s/");
    let nodes = case.world.iter().filter(in_source).cloned().map(|mut node| {
        let moved = |path: &[u8]| path.strip_prefix(b"w/s/").unwrap_or(path).to_vec();
        node.path = moved(&node.path);
        if let Kind::HardLink(first) = &mut node.kind {
            *first = moved(first);
        }
        node
    });
    let nodes: Vec<Node> = nodes.collect();
    let changes = *dice.pick(&[0, 1, 3]);
    let nodes = model::mutated(dice, &nodes, changes);
    case.world.push(Node::dir("w/alt2"));
    case.world.extend(model::below("w/alt2", &nodes));
    let spelled = *dice.pick(&["@/w/alt2", "../alt2", "../here/alt2/"]);
    case.options.push(format!("{kind}{spelled}"));
}

/// Adds a file of many blocks, and an old one that differs a little.
fn long_file(case: &mut Case, dice: &mut Dice) {
    let lines = |from, len| Piece::Lines { first: 7_000_000, from, len };
    let third = LONG_BYTES / 3;
    let old = match dice.below(4) {
        0 => vec![lines(0, LONG_BYTES), Piece::Zeros(5_000)],
        1 => vec![lines(third, third), lines(0, third)],
        2 => vec![Piece::Hole(third), lines(0, LONG_BYTES)],
        _ => vec![lines(0, third), lines(third + 77, LONG_BYTES - third)],
    };
    let new =
        if dice.chance(30) { vec![lines(0, third), Piece::Hole(third)] } else { vec![lines(0, LONG_BYTES)] };
    for (path, pieces, seconds) in [("w/s/long", new, 1_000_000_700), ("w/d/long", old, 1_000_000_600)] {
        let node = Node::new(path, Kind::Spliced(pieces));
        case.world.push(Node { mtime: (seconds, 0), ..node });
    }
}
