//! The rules in force in one directory: those of the command, and those of the files that it has
//! looked for in this directory and above.
//!
//! A scope is entered from that of the directory above, by reading the directory's own files of
//! rules. The newest rules come first; a file's `!` drops what it would inherit. Anchored patterns
//! are relative to the directory of their file, all others to the root of the transfer. Of git's
//! files a directory inherits those of its own repository: one with a `.git` starts anew.
//!
//! Laws: a file of rules is a regular file in the tree, or a link that leads to one by a relative
//! path that stays in the tree. Its size, the number of files and the rules in force are bounded.
//! A rule that cannot be read or understood is an error, never a rule less: the caller then leaves
//! the directory alone. A directory, fifo, socket or device of that name is no file of rules.

mod reading;

use std::{
    io,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use self::reading::{GIT, Place, Reading};
use super::{
    FilterSet, Rule, Rules, What,
    git::{GitLines, Ignored},
    pattern::Pattern,
    syntax::{Ends, RuleSpec},
};
use crate::{component::RelPath, dir::Dir};

/// The rules in force in one directory. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    set: FilterSet,
    /// The directory where paths start, if files of rules are looked for.
    root: Option<Arc<Dir>>,
    /// Its absolute path, without slashes at the ends.
    root_path: Arc<[u8]>,
    slots: Arc<[Slot]>,
    /// Whether some rules stand in a file that has another name than those that are looked for.
    elsewhere: bool,
}

/// A file that is looked for in each directory, and its rules that are in force.
#[derive(Debug, Clone)]
struct Slot {
    spec: Arc<RuleSpec>,
    frame: Option<Arc<Frame>>,
}

/// The rules of one file.
#[derive(Debug)]
struct Frame {
    /// Path of the file.
    path: Arc<[u8]>,
    rules: Rules,
    /// Its lines, if it is one of git's; it then has no rules.
    git: Option<GitLines>,
    /// Bytes of a path that lead to the file's directory, with the slash.
    below: usize,
    /// The way from the file's directory to the transfer's root, with a slash at its end, if the
    /// file is above.
    above: Vec<u8>,
    inherits: Option<Arc<Self>>,
    /// Bytes of text, with those that are inherited.
    text_bytes: usize,
}

/// An entry that is judged.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Path below the transfer's root.
    pub path: &'a [u8],
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Whether the directory that it is in is being removed, so that perishable rules say nothing.
    pub perishing: bool,
}

/// The rule that decides on an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the entry is included.
    pub include: bool,
    /// The place of the rule.
    pub origin: RuleOrigin,
}

/// The place of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleOrigin {
    /// A rule of the command, by position.
    Command(usize),
    /// A line of a file; its path is relative to the transfer's root unless it begins with `/`.
    File {
        /// Path of the file.
        path: Arc<[u8]>,
        /// Number of the line, 1-based.
        line: u32,
    },
    /// The name of directories for unfinished files.
    OwnDirectory,
}

/// A file of rules that cannot be followed.
#[derive(Debug, thiserror::Error)]
#[error("cannot follow the rules of '{}'", path.escape_ascii())]
pub struct RuleFileError {
    /// Path of the file, as in [`RuleOrigin::File`].
    pub path: Vec<u8>,
    /// The reason.
    #[source]
    pub fault: RuleFileFault,
}

/// The reason why a file of rules cannot be followed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleFileFault {
    /// It cannot be read.
    #[error("it cannot be read")]
    Read(#[source] io::Error),
    /// A line is no rule, or its pattern is malformed.
    #[error("line {line} is no filter rule")]
    Line {
        /// Number of the line, 1-based.
        line: u32,
    },
    /// It is too long, or there are too many files or rules.
    #[error("it has more rules than are taken")]
    TooMuch,
    /// It is a link, or names another file, that leads out of the tree.
    #[error("it leads out of the tree")]
    LeadsOut,
}

impl Scope {
    /// Begins at the root of a transfer, before any file of the root is read; `root` is its
    /// directory, of which only `named` entries may take part.
    pub fn begin(set: &FilterSet, root: Option<&Arc<Dir>>, named: bool) -> Self {
        let reads = !set.merges.is_empty();
        let root_path = match root.filter(|_| reads || set.is_absolute) {
            Some(root) => root.typed_path().map(bytes_of).unwrap_or_default(),
            None => Vec::new(),
        };
        let above = set.above.iter().find(|above| above.root == root_path && above.named == named);
        let slots = match above {
            Some(above) => above.slots.iter().cloned().collect(),
            None => set.merges.iter().map(Slot::new).collect(),
        };
        Self {
            set: set.clone(),
            root: root.filter(|_| reads).cloned(),
            slots,
            root_path: root_path.into(),
            elsewhere: false,
        }
    }

    /// Returns whether files of rules are looked for at this end.
    pub fn reads_files(&self) -> bool {
        self.slots.iter().any(|slot| self.set.reads(&slot.spec))
    }

    /// Enters a directory at this path: reads its files of rules.
    ///
    /// # Errors
    /// [`RuleFileError`]; the directory and all below must then be left alone.
    pub fn enter(&self, dir: &Dir, path: &RelPath) -> Result<Self, RuleFileError> {
        if !self.reads_files() {
            return Ok(self.clone());
        }
        let Some(root) = &self.root else { return Ok(self.clone()) };
        let mut reading = Reading {
            set: &self.set,
            slots: self.slots.iter().map(inherited).collect(),
            place: Place::Below { root, dir, path },
            elsewhere: self.elsewhere,
        };
        reading.slots()?;
        Ok(Self { slots: reading.slots.into(), elsewhere: reading.elsewhere, ..self.clone() })
    }

    /// Enters a directory that has no files of rules.
    #[must_use]
    pub fn below(&self) -> Self {
        let slots = self.slots.iter().map(inherited).collect();
        Self { slots, ..self.clone() }
    }

    /// Returns the verdict of the first rule that matches; `None` if none does.
    pub fn verdict(&self, subject: Subject<'_>) -> Option<Verdict> {
        if subject.path.is_empty() {
            return None;
        }
        let decided = self.decide(&self.set.rules, None, subject);
        decided.or_else(|| {
            let own = self.set.is_own_directory(subject.path, subject.is_dir);
            own.then_some(Verdict { include: false, origin: RuleOrigin::OwnDirectory })
        })
    }

    /// Returns whether the first rule that matches is an exclude.
    pub fn excludes(&self, subject: Subject<'_>) -> bool {
        !self.set.is_empty() && self.verdict(subject).is_some_and(|verdict| !verdict.include)
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// Returns whether the rules change with the entry of this name in a directory that was entered: a
    /// file that is looked for, or the mark of a repository.
    pub(crate) fn depends_on(&self, name: &[u8]) -> bool {
        let mut specs = self.slots.iter().map(|slot| &slot.spec).filter(|spec| self.set.reads(spec));
        specs.any(|spec| spec.file_name() == name || spec.is_git() && name == GIT)
    }

    /// Returns whether the rules change with files of any name: one that is looked for is a link, or
    /// names another file.
    pub(crate) fn depends_on_others(&self) -> bool {
        self.elsewhere
    }

    /// Returns the rules without the open directory where paths start: they judge, and enter nothing.
    pub(crate) fn without_root(&self) -> Self {
        Self { root: None, ..self.clone() }
    }

    /// Returns the number of bytes of the rules that this directory has in force.
    pub fn text_bytes(&self) -> usize {
        self.slots.iter().filter_map(|slot| slot.frame.as_ref()).map(|frame| frame.text_bytes).sum()
    }

    fn decide(&self, rules: &Rules, frame: Option<&Frame>, subject: Subject<'_>) -> Option<Verdict> {
        rules.that_may_match(subject.path).find_map(|(at, rule)| {
            if !self.set.applies(rule.ends) || rule.perishable && subject.perishing {
                return None;
            }
            match &rule.what {
                What::Nothing => None,
                What::Files(slot) => self.decide_by_files(*slot, subject),
                What::Pattern(pattern) => {
                    let origin = || match &rule.origin {
                        Some((path, line)) => RuleOrigin::File { path: Arc::clone(path), line: *line },
                        None => RuleOrigin::Command(at),
                    };
                    let matches = self.matches(rule, pattern, frame, subject);
                    matches.then(|| Verdict { include: rule.include, origin: origin() })
                }
            }
        })
    }

    fn decide_by_files(&self, slot: usize, subject: Subject<'_>) -> Option<Verdict> {
        let slot = self.slots.get(slot)?;
        if !self.set.reads(&slot.spec) {
            return None;
        }
        let mut frame = slot.frame.as_deref();
        while let Some(here) = frame {
            match here.git.as_ref().map(|lines| self.judge(lines, here, subject)) {
                Some(Ignored::Yes(line)) => {
                    let origin = RuleOrigin::File { path: Arc::clone(&here.path), line };
                    return Some(Verdict { include: false, origin });
                }
                // The other rules decide, as git has no say in them.
                Some(Ignored::No) => return None,
                Some(Ignored::Unstated) | None => {}
            }
            let decided = self.decide(&here.rules, Some(here), subject);
            if decided.is_some() {
                return decided;
            }
            frame = here.inherits.as_deref();
        }
        None
    }

    /// Asks a file of git's about an entry.
    fn judge(&self, lines: &GitLines, frame: &Frame, Subject { path, is_dir, .. }: Subject<'_>) -> Ignored {
        match () {
            () if !self.set.applies(Ends::Unstated) => Ignored::Unstated,
            () if frame.above.is_empty() => lines.judge(path.get(frame.below..).unwrap_or_default(), is_dir),
            () => lines.judge(&[&frame.above, path].concat(), is_dir),
        }
    }

    fn matches(&self, rule: &Rule, pattern: &Pattern, frame: Option<&Frame>, subject: Subject<'_>) -> bool {
        let Subject { path, is_dir, .. } = subject;
        let matched = (is_dir || !pattern.directories_only)
            && match frame {
                _ if rule.absolute => {
                    let separator: &[u8] = if self.root_path.is_empty() { b"" } else { b"/" };
                    pattern.matches(&[&self.root_path, separator, path].concat(), is_dir)
                }
                Some(frame) if pattern.anchored && !frame.above.is_empty() => {
                    pattern.matches(&[&frame.above, path].concat(), is_dir)
                }
                Some(frame) if pattern.anchored => {
                    pattern.matches(path.get(frame.below..).unwrap_or_default(), is_dir)
                }
                _ => pattern.matches(path, is_dir),
            };
        matched != rule.negated
    }
}

impl Slot {
    fn new(spec: &Arc<RuleSpec>) -> Self {
        Self { spec: Arc::clone(spec), frame: None }
    }
}

/// Returns what the directories below have of a file's rules.
fn inherited(slot: &Slot) -> Slot {
    let frame = slot.frame.clone().filter(|_| !slot.spec.rule_file.unwrap_or_default().own_only);
    Slot { spec: Arc::clone(&slot.spec), frame }
}

/// The rules of files above a transfer's root.
#[derive(Debug, Clone)]
pub(super) struct Above {
    /// Absolute path of the root as it was typed, without slashes at the ends.
    root: Vec<u8>,
    /// Whether the root's own files are among them.
    named: bool,
    slots: Vec<Slot>,
}

impl FilterSet {
    /// Reads the files of rules in the directories above `root`, as far up as their names in the
    /// command say: `/NAME` from the top of the tree on, which is `floor` where there is one.
    /// Where only `named` entries of the root take part, those of the root are read as well. Git's
    /// files are read from the top of the root's repository on.
    ///
    /// # Errors
    /// [`RuleFileError`].
    pub fn read_above(&mut self, root: &Dir, floor: Option<&Dir>, named: bool) -> Result<(), RuleFileError> {
        let fail = |fault| RuleFileError { path: b"/".to_vec(), fault };
        let wants =
            |spec: &&Arc<RuleSpec>| self.reads(spec) && (spec.is_git() || spec.pattern.contains(&b'/'));
        if !self.merges.iter().any(|spec| wants(&spec)) {
            return Ok(());
        }
        let path = root.typed_path().map_err(|error| fail(RuleFileFault::Read(error)))?;
        let top = match floor {
            Some(floor) => floor.real_path().map_err(|error| fail(RuleFileFault::Read(error)))?,
            None => PathBuf::from("/"),
        };

        // Rules are of names as the tree has them.
        let in_tree = |path: Vec<u8>| match root.spelling() {
            Some(spelling) => spelling.path_to_there(&path),
            None => path,
        };
        let mut slots: Vec<_> = self.merges.iter().map(Slot::new).collect();
        let mut ways: Vec<_> = path.ancestors().filter(|way| way.starts_with(&top)).collect();
        ways.reverse();
        if !named {
            ways.retain(|way| *way != path);
        }
        for way in ways {
            let above = path.strip_prefix(way).map(Path::to_path_buf).map(bytes_of).unwrap_or_default();
            let mut above = in_tree(above);
            if !above.is_empty() {
                above.push(b'/');
            }
            let dir = match floor {
                Some(floor) => {
                    let below = way.strip_prefix(&top).unwrap_or_else(|_| Path::new(""));
                    floor.open_operand_above(&Path::new(".").join(below))
                }
                None => Dir::open_operand(way).map(|dir| dir.with_spelling(root.spelling().copied())),
            };
            // One that may only be passed through has no rules that this user could know of.
            let Ok(dir) = dir else { continue };
            for slot in &mut slots {
                slot.frame.take_if(|_| slot.spec.rule_file.unwrap_or_default().own_only);
            }
            let place = Place::Above { dir: &dir, way, root: &path, above: &above };
            let mut reading = Reading { set: self, slots, place, elsewhere: false };
            reading.slots()?;
            slots = reading.slots;
        }

        let mut all = self.above.to_vec();
        all.push(Above { root: in_tree(bytes_of(path)), named, slots });
        self.above = all.into();
        Ok(())
    }
}

fn bytes_of(path: PathBuf) -> Vec<u8> {
    let bytes = path.into_os_string().into_vec();
    bytes.strip_prefix(b"/").map(<[u8]>::to_vec).unwrap_or(bytes)
}

impl Rule {
    pub(super) fn of(spec: &RuleSpec, what: What, origin: Option<(Arc<[u8]>, u32)>) -> Self {
        let &RuleSpec { include, ends, negated, absolute, perishable, .. } = spec;
        // A file for each directory reads its own sides.
        let ends = if spec.rule_file.is_some() && ends == Ends::Unstated { Ends::Both } else { ends };
        Self { include, ends, negated, absolute, perishable, what, origin }
    }
}

impl FilterSet {
    /// Returns whether a file for each directory is read at this end.
    fn reads(&self, spec: &RuleSpec) -> bool {
        spec.ends == Ends::Unstated || self.applies(spec.ends)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::{component::Component, filter::ParsedRule};

    struct Tree {
        at: tempfile::TempDir,
        root: Arc<Dir>,
    }

    impl Tree {
        fn new(files: &[(&str, &[u8])]) -> Self {
            let at = tempfile::tempdir().unwrap();
            for (path, text) in files {
                let path = at.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            let root = Arc::new(Dir::open_operand(at.path()).unwrap());
            Self { at, root }
        }

        fn set(rules: &[&str]) -> FilterSet {
            let rules = rules.iter().map(|rule| match ParsedRule::read(rule.as_bytes()).unwrap() {
                ParsedRule::Rule(spec) => spec,
                other => panic!("{other:?}"),
            });
            FilterSet::of(&rules.collect::<Vec<_>>()).unwrap()
        }

        /// Enters a directory from the root on.
        fn scope(&self, set: &FilterSet, path: &str) -> Result<Scope, RuleFileError> {
            let mut scope = Scope::begin(set, Some(&self.root), false);
            let mut here = RelPath::root();
            scope = scope.enter(&self.root, &here)?;
            for name in path.split('/').filter(|name| !name.is_empty()) {
                here.push(&Component::new(name.as_bytes()).unwrap());
                scope = scope.enter(&self.root.open_beneath(&here).unwrap(), &here)?;
            }
            Ok(scope)
        }

        fn fault(&self, rules: &[&str]) -> String {
            let error = self.scope(&Self::set(rules), "").unwrap_err();
            format!("{}: {}", error.path.escape_ascii(), error.fault)
        }
    }

    fn verdict(scope: &Scope, path: &str) -> Option<(bool, String)> {
        let verdict = scope.verdict(Subject { path: path.as_bytes(), is_dir: false, perishing: false })?;
        let origin = match verdict.origin {
            RuleOrigin::File { path, line } => format!("{}:{line}", path.escape_ascii()),
            other => format!("{other:?}"),
        };
        Some((verdict.include, origin))
    }

    #[test]
    fn newest_rules_come_first_and_name_their_lines() {
        let tree =
            Tree::new(&[(".f", b"# no\n- a\n- b\n"), ("d/.f", b"+ b\n- /c\n"), ("d/e/.f", b"!\n- z\n")]);
        let set = Tree::set(&["+ first", ": .f", "- last"]);
        let scope = tree.scope(&set, "d").unwrap();
        assert_eq!(verdict(&scope, "d/a"), Some((false, ".f:2".into())));
        assert_eq!(verdict(&scope, "d/b"), Some((true, "d/.f:1".into())));
        assert_eq!(verdict(&scope, "d/c"), Some((false, "d/.f:2".into())));
        assert_eq!(verdict(&scope, "d/last"), Some((false, "Command(2)".into())));
        assert_eq!(verdict(&scope, "d/first"), Some((true, "Command(0)".into())));
        let scope = tree.scope(&set, "d/e").unwrap();
        assert_eq!(verdict(&scope, "d/e/a"), None);
        assert_eq!(verdict(&scope, "d/e/z"), Some((false, "d/e/.f:2".into())));
    }

    #[test]
    fn file_that_names_itself_or_is_too_large_ends() {
        let long = vec![b'x'; (128 << 10) + 1];
        let tree = Tree::new(&[(".self", b": .self\n- a\n"), (".again", b". .again\n"), (".long", &long)]);
        let scope = tree.scope(&Tree::set(&[": .self"]), "").unwrap();
        assert_eq!(verdict(&scope, "a"), Some((false, ".self:2".into())));
        assert_eq!(tree.fault(&[": .again"]), ".again: it has more rules than are taken");
        assert_eq!(tree.fault(&[": .long"]), ".long: it has more rules than are taken");
        let chain: Vec<_> = (0..70).map(|n| (format!(".n{n}"), format!(": .n{}\n", n + 1))).collect();
        let files: Vec<_> = chain.iter().map(|(name, text)| (name.as_str(), text.as_bytes())).collect();
        assert!(Tree::new(&files).fault(&[": .n0"]).ends_with("it has more rules than are taken"));
    }

    #[test]
    fn rules_come_from_files_of_the_tree_only() {
        let tree = Tree::new(&[
            ("rules", b"- a\n"),
            (".abs", b". /etc/passwd\n"),
            (".up", b". ../x\n"),
            (".no", b". x\n"),
        ]);
        let link = |to: &str, name: &str| symlink(to, tree.at.path().join(name)).unwrap();
        link("rules", ".near");
        link("/etc/passwd", ".far");
        link("../rules", ".out");
        link(".loop", ".loop");
        link("gone", ".gone");
        fs::create_dir(tree.at.path().join(".dir")).unwrap();
        assert!(
            std::process::Command::new("mkfifo")
                .arg(tree.at.path().join(".pipe"))
                .status()
                .unwrap()
                .success()
        );

        let scope = tree.scope(&Tree::set(&[": .near"]), "").unwrap();
        assert_eq!(verdict(&scope, "a"), Some((false, ".near:1".into())));
        for name in [".far", ".out", ".loop", ".abs", ".up"] {
            let expected = format!("{name}: it leads out of the tree");
            assert_eq!(tree.fault(&[&format!(": {name}")]), expected);
        }
        assert_eq!(tree.fault(&[": .no"]), ".no: line 1 is no filter rule");
        // As rsync reads them: nothing.
        for name in [".dir", ".pipe", ".gone", ".none"] {
            let scope = tree.scope(&Tree::set(&[&format!(": {name}")]), "").unwrap();
            assert_eq!(verdict(&scope, "a"), None, "{name}");
        }
    }

    #[test]
    fn other_end_and_unread_files_leave_only_sure_excludes() {
        let set = Tree::set(&["- sure", ":- .f", "- too", ": .g", "- not"]);
        assert!(set.surely_excludes(b"d/sure", false) && set.surely_excludes(b"too", false));
        assert!(!set.surely_excludes(b"not", false) && !set.surely_excludes(b"d", true));
        let set = Tree::set(&["H a", "P b", "- c"]).deleting_excluded(true);
        assert!(set.excludes(b"a", false) && !set.excludes(b"b", false) && set.excludes(b"c", false));
        let set = set.at_destination();
        assert!(!set.excludes(b"a", false) && set.excludes(b"b", false) && !set.excludes(b"c", false));
    }
}
