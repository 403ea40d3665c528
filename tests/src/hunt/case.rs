//! Cases: what a run finds, and the options that it gets.

use super::{
    areas,
    dice::Dice,
    disturbed, live,
    model::{below, mutated, sound, tree},
    options, states,
    world::HOST,
};
use crate::tree::{Kind, Node};

/// A case, made from its seed alone. Paths are relative to the world's root, `@` in options and
/// operands; `%` is a directory on another filesystem.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub seed: u64,
    pub carrier: Carrier,
    /// Whether the remote end is bound to the root of the host with all rights: the same must come of it.
    pub is_confined: bool,
    /// Whether it runs as a user without privileges.
    pub is_nobody: bool,
    pub umask: u32,
    pub options: Vec<String>,
    /// The sources and the destination.
    pub operands: Vec<String>,
    /// Directory where it is started.
    pub cwd: &'static str,
    /// Entries that exist before the run.
    pub world: Vec<Node>,
    /// Entries that exist on the other filesystem.
    pub other: Vec<Node>,
    /// Whether the source changes during the run; then only what must always hold is judged.
    pub is_live: bool,
    /// Whether a run is disturbed and made again as well.
    pub is_disturbed: bool,
}

/// The connection between the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Carrier {
    Local,
    Push(&'static str),
    Pull(&'static str),
}

impl Carrier {
    pub(super) fn label(self) -> String {
        match self {
            Self::Local => "local".into(),
            Self::Push(transport) => format!("push-{transport}"),
            Self::Pull(transport) => format!("pull-{transport}"),
        }
    }

    /// Every carrier.
    pub(super) const EACH: [Self; 7] = [
        Self::Local,
        Self::Push("ssh"),
        Self::Pull("ssh"),
        Self::Push("tls"),
        Self::Pull("tls"),
        Self::Push("quic"),
        Self::Pull("quic"),
    ];
}

/// Letters of options that cases have by their long names too.
const LONG: &[(char, &str)] = &[('O', "--omit-dir-times"), ('J', "--omit-link-times"), ('y', "--fuzzy")];

/// Makes the dice of [`Case::add_own`] others than those of the rest.
const OWN: u64 = 0x006f_776e;

/// The user without privileges.
pub(super) const NOBODY: u32 = 65_534;

impl Case {
    /// Makes the case of a seed; it has none of the options in `without`.
    pub(super) fn of(seed: u64, without: &[String]) -> Self {
        let mut dice = Dice::new(seed);
        let carrier = if dice.chance(60) { Carrier::Local } else { *dice.pick(&Carrier::EACH) };
        let is_root = crate::skip::is_root();
        let is_nobody = is_root && dice.chance(15);
        let options = options::choose(&mut dice, without);
        let mut case = Self {
            seed,
            carrier,
            is_confined: false,
            is_nobody,
            umask: *dice.pick(&[0o22, 0o22, 0o22, 0o2, 0o77, 0]),
            options,
            operands: Vec::new(),
            cwd: "w",
            world: Vec::new(),
            other: Vec::new(),
            is_live: false,
            is_disturbed: disturbed::selects(seed),
        };
        case.furnish(&mut dice);
        if dice.chance(6) && case.may_be_live() {
            live::enliven(&mut case, &mut dice);
        }
        case.add_own(&mut Dice::new(seed ^ OWN), without);
        case
    }

    /// Adds what only dsync has and what may change no result. It is drawn apart, so that the rest of a
    /// seed's case does not depend on it.
    fn add_own(&mut self, dice: &mut Dice, without: &[String]) {
        // A bound end touches no device and keeps no link, and takes an absolute one for one that leads out.
        let is_refused = self.has(&["--write-devices", "--copy-devices", "--no-implied-dirs"]);
        let is_refused = is_refused || self.has_letter('K');
        let is_absolute = |node: &Node| matches!(&node.kind, Kind::Symlink(text) if text.starts_with(b"@"));
        let leads_out = self.follows() && self.world.iter().any(is_absolute);
        self.is_confined = self.carrier != Carrier::Local && !is_refused && !leads_out && dice.chance(40);
        for option in ["--detect-renamed", "--state"] {
            let is_left_out = self.is_live || without.iter().any(|word| word == option);
            if dice.chance(12) && !is_left_out {
                self.options.push(option.into());
            }
        }
    }

    /// Returns whether links of the source are followed, or some.
    pub(super) fn follows(&self) -> bool {
        self.has_letter('L') || self.has_letter('k') || self.has(&["--copy-unsafe-links"])
    }

    /// Returns whether an option of one of these names is given.
    pub(super) fn has(&self, names: &[&str]) -> bool {
        self.options.iter().any(|option| names.contains(&options::name(option)))
    }

    /// Returns whether the letter is given, alone or among others.
    pub(super) fn has_letter(&self, letter: char) -> bool {
        let is_letters = |option: &&String| option.starts_with('-') && !option.starts_with("--");
        let archive = "rlptgoD".contains(letter);
        if self.has(&[&format!("--no-{letter}")]) {
            return false;
        }
        let is_long = |(short, long): &(char, &str)| *short == letter && self.has(&[long]);
        if LONG.iter().any(is_long) {
            return true;
        }
        self.options
            .iter()
            .filter(is_letters)
            .any(|option| option.contains(letter) || archive && option.contains('a'))
    }

    /// Returns whether anything is deleted.
    pub(super) fn deletes(&self) -> bool {
        self.has(options::DELETING)
    }

    /// Drops entries that cannot be planted.
    pub(super) fn settle(&mut self) {
        self.world = sound(std::mem::take(&mut self.world));
        self.other = sound(std::mem::take(&mut self.other));
        // Only dsync regards a file as newer if the difference is below a second.
        if self.has(&["-u"]) {
            let nodes = self.world.iter_mut().chain(&mut self.other);
            nodes.for_each(|node| node.mtime = (node.mtime.0.div_euclid(4) * 4, 0));
        }
    }

    /// Plants the trees and chooses the operands.
    fn furnish(&mut self, dice: &mut Dice) {
        let rich = self.has(&["-H", "-A", "-X", "-aHAX"]) || dice.chance(25);
        let most = *dice.pick(&[6, 10, 14, 24]);
        let source = tree(dice, most, rich);
        let (sources, destination, single) = self.operate(dice, &source);
        self.world = vec![Node::dir("w"), Node::symlink("w/here", "."), Node::symlink("w/away", "out")];
        self.world.push(Node::symlink("w/to-d", "d"));
        self.world.push(Node::dir("w/out"));
        for (index, prefix) in sources.iter().enumerate() {
            let changes = *dice.pick(&[0, 1, 3, 6]);
            let nodes = if index == 0 { source.clone() } else { mutated(dice, &source, 6) };
            let nodes = if single { nodes } else { mutated(dice, &nodes, changes) };
            self.add_root(dice, prefix);
            self.world.extend(below(prefix, &nodes));
        }
        if let Some(prefix) = destination {
            self.add_root(dice, "w/d");
            self.add_root(dice, prefix);
            let changes = *dice.pick(&[0, 1, 3, 8]);
            let old = if dice.chance(15) { Vec::new() } else { mutated(dice, &source, changes) };
            self.world.extend(below(prefix, &old));
            if dice.chance(50) {
                let extra = tree(dice, 6, rich);
                self.world.extend(below(prefix, &extra));
            }
        }
        self.add_places(dice, &source);
        areas::extend(self);
        states::extend(self);
        if self.is_nobody {
            self.own(dice);
        }
        self.settle();
    }

    fn add_root(&mut self, dice: &mut Dice, path: &str) {
        let mode = *dice.pick(&[0o755, 0o755, 0o755, 0o700, 0o2775, 0o1777]);
        let mtime = (1_100_000_000 + i64::try_from(dice.below(5)).expect("small"), 5);
        self.world.push(Node { mode, mtime, ..Node::dir(path) });
    }

    /// Chooses the operands. Returns where the sources are, where to plant the destination, if at
    /// all, and whether the source is a single file.
    fn operate(
        &mut self,
        dice: &mut Dice,
        source: &[Node],
    ) -> (Vec<&'static str>, Option<&'static str>, bool) {
        let file = source.iter().find(|node| !matches!(node.kind, Kind::Dir) && !node.path.contains(&b'/'));
        let file = file.and_then(|node| String::from_utf8(node.path.clone()).ok());
        let file = file.filter(|name| !name.contains(['@', '%', ':']));
        let (mut from, to, at): (Vec<String>, &str, _) = match (dice.below(20), file) {
            (0..=8, _) => (vec!["s/".into()], "d/", Some("w/d")),
            (9, _) => (vec!["s/".into()], "d", Some("w/d")),
            (10, _) => (vec!["s".into()], "d/", Some("w/d/s")),
            (11, _) => (vec!["s".into()], "d", Some("w/d/s")),
            (12, _) => (vec!["s/.".into()], "d", Some("w/d")),
            (13, _) => (vec!["s/".into(), "s2/".into()], "d/", Some("w/d")),
            (14, _) => (vec!["s".into(), "s2".into()], "d", Some("w/d/s2")),
            (15, _) => (vec!["./s/".into()], "to-d/", Some("w/d")),
            (16, _) => (vec!["s/".into()], *dice.pick(&["d/", "d"]), None),
            (17, _) => {
                self.cwd = "w/d";
                (vec!["../s/".into()], ".", Some("w/d"))
            }
            (_, Some(file)) => {
                let to = *dice.pick(&["d/", "d", "d/a", "d/new", "d/sub"]);
                (vec![format!("s/{file}")], to, if dice.chance(80) { Some("w/d") } else { None })
            }
            _ => (vec!["s/./".into()], "./d/", Some("w/d")),
        };
        let single = from[0].starts_with("s/") && !matches!(from[0].as_str(), "s/" | "s/." | "s/./");
        let mut to = to.to_owned();
        let absolute = |cwd: &str, operand: &str| match (cwd, operand.strip_prefix("../")) {
            ("w/d", Some(rest)) => format!("@/w/{rest}"),
            ("w/d", None) => "@/w/d".to_owned(),
            _ => format!("@/w/{operand}"),
        };
        let always = dice.chance(25);
        let is_relative = self.has_letter('R');
        if always || matches!(self.carrier, Carrier::Pull(_)) || is_relative && self.cwd == "w/d" {
            from = from.iter().map(|operand| absolute(self.cwd, operand)).collect();
        }
        if is_relative {
            // Without the mark the path would begin at the system's root, where others work.
            from = from.iter().map(|operand| operand.replacen("@/w/", "@/w/./", 1)).collect();
        }
        if always || matches!(self.carrier, Carrier::Push(_)) {
            to = absolute(self.cwd, &to);
        }
        match self.carrier {
            Carrier::Push(_) => to = format!("{HOST}:{to}"),
            Carrier::Pull(_) => from = from.iter().map(|operand| format!("{HOST}:{operand}")).collect(),
            Carrier::Local => {}
        }
        let sources = if from.len() > 1 { vec!["w/s", "w/s2"] } else { vec!["w/s"] };
        self.operands = from.into_iter().chain([to]).collect();
        (sources, at, single)
    }

    /// Plants the directories that options name, and entries that may be in their way.
    fn add_places(&mut self, dice: &mut Dice, source: &[Node]) {
        for option in self.options.clone() {
            let name = options::name(&option);
            let Some(value) = option.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')) else {
                continue;
            };
            if !options::DIRECTORIES.contains(&name) {
                continue;
            }
            let is_alternate = ["--link-dest", "--copy-dest", "--compare-dest"].contains(&name);
            // Without it, dsync refuses the run.
            let is_needed = name == "--temp-dir" || is_alternate;
            let percent = if is_needed { 97 } else { 50 };
            if !dice.chance(percent) {
                continue;
            }
            let place = options::place(value);
            let nodes = match () {
                () if is_alternate => {
                    let changes = *dice.pick(&[0, 1, 2, 6]);
                    mutated(dice, source, changes)
                }
                () if dice.chance(50) => tree(dice, 6, false),
                () => Vec::new(),
            };
            let (list, place) = match place.strip_prefix("%/") {
                Some(place) => (&mut self.other, place.to_owned()),
                None => (&mut self.world, place),
            };
            let parents: Vec<usize> = place.match_indices('/').map(|(at, _)| at).collect();
            list.extend(parents.into_iter().map(|at| Node::dir(&place[..at])));
            list.push(Node::dir(&place));
            list.extend(below(&place, &nodes));
        }
    }

    /// Makes the user without privileges the owner of all entries except a few.
    fn own(&mut self, dice: &mut Dice) {
        for (index, node) in self.world.iter_mut().chain(&mut self.other).enumerate() {
            let is_foreign = index > 8 && dice.chance(6);
            if is_foreign {
                node.owner = Some((0, 0));
                node.mode &= *dice.pick(&[0o700, 0o755, 0o777]);
            } else {
                node.owner = Some((NOBODY, NOBODY));
            }
        }
    }

    /// Returns whether the destination will equal the one source.
    fn may_be_live(&self) -> bool {
        !areas::selects(self) && !self.has(areas::LINKS) && self.has_one_tree()
    }

    /// Returns whether the entries of one directory are to go into another.
    pub(super) fn has_one_tree(&self) -> bool {
        let destination = self.operands.last().map(|operand| {
            operand.trim_start_matches(HOST).trim_start_matches(":@/w/").trim_start_matches("@/w/")
        });
        let source = &self.operands[0];
        self.operands.len() == 2
            && (source.ends_with("s/") || source.ends_with("s/."))
            && matches!(destination, Some("d/" | "d" | "." | "to-d/"))
    }
}
