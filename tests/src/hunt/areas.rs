//! Areas of cases that options alone do not reach: links that are followed, files of rules, and lists of names.
//!
//! Some cases get one of these areas on top of what they have. Its choices come from dice of their
//! own, so that the other cases stay what they were.

use super::{case::Case, dice::Dice, options};
use crate::tree::{Kind, Node, Piece};

/// Options that follow or rewrite links, or look for a basis elsewhere.
pub(super) const LINKS: &[&str] = &["-L", "-k", "--copy-unsafe-links", "--munge-links", "-y"];

/// Options that read rules from files, or are rules themselves.
const RULES: &[&str] = &[
    "-F",
    "-FF",
    "-C",
    "--filter=: rules",
    "--filter=dir-merge .rsync-filter",
    "--filter=:n rules",
    "--filter=:e rules",
    "--filter=:- rules",
    "--filter=:w- rules",
    "--filter=:s rules",
    "--filter=:r rules",
    "--filter=:C",
    "--filter=. @/w/merged",
    "--filter=.- @/w/merged",
    "--exclude-from=@/w/merged",
    "--include-from=@/w/merged",
    "--filter=P *a*",
    "--filter=R a",
    "--filter=H b",
    "--filter=S b",
    "--filter=-s a",
    "--filter=-r a",
    "--filter=-p *.old",
    "--filter=-! */",
    "--filter=+ */",
    "--filter=- *",
];

/// Names of files of rules.
pub(super) const FILES: &[&str] = &["rules", "rules", ".rsync-filter", ".rsync-filter", ".cvsignore"];

/// Lines of such files; none is refused by either program.
const LINES: &[&str] = &[
    "- a\n",
    "- b\n",
    "+ b\n",
    "+ a\n",
    "- *.old\n",
    "- *~\n",
    "- sub/\n",
    "- /a\n",
    "- /sub/a\n",
    "+ /sub/***\n",
    "- **/b\n",
    "- sub/**\n",
    "- [ab]\n",
    "- a?\n",
    "P b\n",
    "P *\n",
    "R c\n",
    "H a\n",
    "S b\n",
    "-s a\n",
    "-r b\n",
    "-p c\n",
    "-! *a*\n",
    "+ */\n",
    "- *\n",
    "!\n",
    "# - a\n",
    "; - b\n",
    "\n",
    ": .more\n",
    "exclude c\n",
    "include,s c\n",
    "hide,! */\n",
];

/// Lines of files that hold patterns alone.
const PATTERNS: &[&str] = &[
    "a\n", "b\n", "*.old\n", "sub/\n", "/a\n", "sub/**\n", "*~\n", "# a\n", "\n", "[ab]\n", "- c\n", "+ a\n",
];

/// Lines of lists of names.
const LISTED: &[&str] = &[
    "a\n",
    "b\n",
    "c\n",
    "ab\n",
    "sub\n",
    "sub/\n",
    "sub/a\n",
    "sub//b\n",
    "./a\n",
    "/b\n",
    "./sub/./a\n",
    "a/b\n",
    "a/\n",
    "b/.\n",
    "b~\n",
    "a.old\n",
    "e f\n",
    ".h\n",
    "-n\n",
    ".\n",
    "./\n",
    "# a\n",
    "; a\n",
    "\n",
    "a\r\n",
    "d/../a\n",
    "missing\n",
    "sub/missing\n",
    "alt/a",
];

/// Adds an area to some cases.
pub(super) fn extend(case: &mut Case) {
    let mut dice = Dice::new(case.seed ^ OWN_DICE);
    if !dice.chance(40) {
        return;
    }
    match dice.below(3) {
        0 => links(case, &mut dice),
        1 => rules(case, &mut dice),
        _ => list(case, &mut dice),
    }
}

/// Sets the choices here apart from the case's others.
const OWN_DICE: u64 = 0x6172_6561;

fn add(case: &mut Case, option: &str) {
    // rsync gives a repeated letter another meaning.
    let is_letter = option.len() == 2 && case.has_letter(char::from(option.as_bytes()[1]));
    let is_new = option.contains('=') || !case.has(&[option]);
    if !is_letter && is_new {
        case.options.push(option.into());
    }
}

fn links(case: &mut Case, dice: &mut Dice) {
    for _ in 0..*dice.pick(&[1, 1, 2]) {
        add(case, dice.pick::<&str>(LINKS));
    }
    // A link that leads to where the destination is would copy what the run writes.
    for node in &mut case.world {
        let is_top = node.path.split(|&byte| byte == b'/').count() == 3;
        if is_top && matches!(&node.kind, Kind::Symlink(text) if text == b"..") {
            node.kind = Kind::Symlink(b"../out".to_vec());
        }
    }
}

fn rules(case: &mut Case, dice: &mut Dice) {
    for _ in 0..*dice.pick(&[1, 1, 2, 3]) {
        add(case, dice.pick::<&str>(RULES));
    }
    let is_directory = |node: &&Node| matches!(node.kind, Kind::Dir);
    let is_in_trees = |node: &&Node| ["w/s", "w/d"].iter().any(|at| node.path.starts_with(at.as_bytes()));
    let nodes = case.world.iter().filter(is_directory).filter(is_in_trees);
    let mut places: Vec<Vec<u8>> = nodes.map(|node| node.path.clone()).collect();
    places.retain(|_| dice.chance(45));
    for place in places {
        let name = *dice.pick(FILES);
        if dice.chance(8) {
            let path = [&place[..], b"/", name.as_bytes()].concat();
            case.world
                .push(Node::new(path, Kind::Symlink(dice.pick(&["a", "../rules", "b"]).as_bytes().to_vec())));
            continue;
        }
        let lines = if name == ".cvsignore" { PATTERNS } else { LINES };
        let path = [&place[..], b"/", name.as_bytes()].concat();
        let node = text(dice, path, lines);
        case.world.push(node);
    }
    let node = text(dice, b"w/merged".to_vec(), PATTERNS);
    case.world.push(node);
    end_with_zeros(case, dice, FILES);
}

fn list(case: &mut Case, dice: &mut Dice) {
    let is_tree = case.operands.len() == 2 && case.operands[0].ends_with("s/");
    if !is_tree || case.has(&["--old-dirs", "-d"]) {
        return;
    }
    let is_pull = case.operands[0].contains(':');
    let at = if is_pull && dice.chance(40) { ":@/w/list" } else { "@/w/list" };
    case.options.push(format!("--files-from={at}"));
    if dice.chance(40) {
        // It stands after `-a`, so that it means that directories are gone into.
        add(case, "--recursive");
    }
    if dice.chance(15) {
        add(case, "--no-relative");
    }
    let node = text(dice, b"w/list".to_vec(), LISTED);
    case.world.push(node);
    end_with_zeros(case, dice, &[]);
}

/// Lets the lines of some cases' files end with zeros, as `--from0` has it; those of these names, which
/// are in trees, in some of these cases only.
fn end_with_zeros(case: &mut Case, dice: &mut Dice, names: &[&str]) {
    if !dice.chance(15) {
        return;
    }
    add(case, dice.pick::<&str>(&["--from0", "-0"]));
    let are_all = dice.chance(50);
    let is_named = |path: &[u8]| {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        names.iter().any(|wanted| wanted.as_bytes() == name)
    };

    for node in &mut case.world {
        let is_one = [&b"w/list"[..], b"w/merged"].contains(&&node.path[..]);
        let Kind::Spliced(pieces) = &mut node.kind else { continue };
        if is_one || are_all && is_named(&node.path) {
            *pieces = pieces.iter().flat_map(|piece| with_zero(*piece)).collect();
        }
    }
}

/// Returns a line whose end is a zero.
fn with_zero(piece: Piece) -> Vec<Piece> {
    match piece {
        Piece::Text(words) => match words.strip_suffix('\n') {
            Some(words) => vec![Piece::Text(words), Piece::Text("\0")],
            None => vec![piece],
        },
        _ => vec![piece],
    }
}

/// Returns a file of some of these lines.
fn text(dice: &mut Dice, path: Vec<u8>, lines: &[&'static str]) -> Node {
    let count = *dice.pick(&[1, 1, 2, 3, 4]);
    let pieces = (0..count).map(|_| Piece::Text(dice.pick::<&str>(lines))).collect();
    Node::new(path, Kind::Spliced(pieces))
}

/// Returns whether an area other than links is part of the case.
pub(super) fn selects(case: &Case) -> bool {
    let is_of_rules = |option: &String| {
        RULES.iter().any(|rule| options::name(rule) == options::name(option)) || option == "--files-from"
    };
    case.options.iter().any(is_of_rules) || case.has(&["--files-from"])
}
