//! Reads the files of rules of one directory.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read as _},
    os::{fd::AsFd as _, unix::ffi::OsStrExt as _},
    path::Path,
    sync::Arc,
};

use super::{
    super::{
        Rule, Rules, What,
        git::{GitFault, GitLines},
        pattern::{Build, Pattern},
        syntax::{CVS_PATTERNS, Ends, ParsedRule, RuleFault, RuleSpec},
    },
    FilterSet, Frame, RuleFileError, RuleFileFault, Slot, bytes_of,
};
use crate::{
    component::{Component, RelPath},
    dir::{Dir, Links},
    metadata::Kind,
    operator_files::open_operator_file,
};

/// The directory whose files of rules are read.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    Below { root: &'a Arc<Dir>, dir: &'a Dir, path: &'a RelPath },
    Above { dir: &'a Dir, way: &'a Path, root: &'a Path, above: &'a [u8] },
}

/// The files of rules of one directory while they are read.
pub(super) struct Reading<'a> {
    pub(super) set: &'a FilterSet,
    pub(super) slots: Vec<Slot>,
    pub(super) place: Place<'a>,
    /// Whether some rules stand in a file that has another name than those that are looked for.
    pub(super) elsewhere: bool,
}

/// The path of a file and its text.
type ReadFile = (Vec<u8>, Vec<u8>);

/// The text of a file, if there is one, and whether it was found behind a link.
type Sought = (Option<Vec<u8>>, bool);

/// The rules of a file and those that it names.
struct Draft {
    rules: Vec<Rule>,
    /// Whether a `!` was read, so that nothing is inherited.
    cleared: bool,
    /// Number of the slots that are older than this file.
    older_slots: usize,
    text_bytes: usize,
}

impl Reading<'_> {
    /// Reads the file of each slot; one that names further files adds slots.
    pub(super) fn slots(&mut self) -> Result<(), RuleFileError> {
        let mut at = 0;
        while let Some(slot) = self.slots.get(at) {
            let spec = Arc::clone(&slot.spec);
            if self.set.reads(&spec) && self.is_in_reach(at, &spec) {
                self.slot(at, &spec)?;
            }
            at += 1;
        }
        Ok(())
    }

    /// Returns whether the name of a slot reaches up to this directory.
    fn is_in_reach(&self, at: usize, spec: &RuleSpec) -> bool {
        let Place::Above { dir, way, root, .. } = self.place else { return true };
        // One that a file above states is looked for from that file's directory on.
        let is_of_file = at >= self.set.merges.len();
        if spec.is_git() || is_of_file {
            return true;
        }
        let Some(slash) = spec.pattern.iter().rposition(|&byte| byte == b'/') else { return false };
        let named = &spec.pattern[..slash];
        let named = &written(dir, named);
        match spec.pattern.first() {
            Some(b'/') => way.starts_with(Path::new(as_str(if named.is_empty() { b"/" } else { named }))),
            _ => {
                let ups = named.split(|&byte| byte == b'/').take_while(|step| *step == b"..").count();
                let only_ups = named.split(|&byte| byte == b'/').all(|step| step == b"..");
                only_ups && root.strip_prefix(way).is_ok_and(|rest| rest.components().count() <= ups)
            }
        }
    }

    fn slot(&mut self, at: usize, spec: &Arc<RuleSpec>) -> Result<(), RuleFileError> {
        if spec.is_git() {
            return self.git_slot(at, spec);
        }
        let Ok(name) = Component::new(spec.file_name()) else { return Ok(()) };
        let Some((path, text)) = self.read(&[name.as_bytes()], true)? else { return Ok(()) };
        let older_slots = self.slots.len();
        let mut draft = Draft { rules: Vec::new(), cleared: false, older_slots, text_bytes: 0 };
        self.file(&mut draft, (&path, &text), spec, 0)?;

        let own_only = spec.rule_file.unwrap_or_default().own_only;
        let inherits = self.slots.get_mut(at).and_then(|slot| slot.frame.take());
        let inherits = inherits.filter(|_| !draft.cleared && !own_only);
        let text_bytes = draft.text_bytes + inherits.as_ref().map_or(0, |frame| frame.text_bytes);
        if text_bytes > MAX_BYTES_IN_FORCE {
            return Err(RuleFileError { path, fault: RuleFileFault::TooMuch });
        }
        let (below, above) = self.ways();
        let frame = Frame {
            path: path.into(),
            rules: draft.rules.into(),
            git: None,
            below,
            above,
            inherits,
            text_bytes,
        };
        self.put(at, frame);
        Ok(())
    }

    /// Reads git's files of a directory: that of its name, and those of a repository that begins.
    fn git_slot(&mut self, at: usize, spec: &RuleSpec) -> Result<(), RuleFileError> {
        let inherited = self.slots.get_mut(at).and_then(|slot| slot.frame.take());
        let begins = self.begins_repository()?;
        // Above the tree, only its own repository counts.
        if matches!(self.place, Place::Above { .. }) && !begins && inherited.is_none() {
            return Ok(());
        }

        let mut frame = inherited;
        if begins {
            // An empty file as well: it marks the top of the repository.
            let excluded = self.repository_excludes()?.unwrap_or_default();
            frame = Some(self.git_frame((self.shown(&GIT_EXCLUDE), excluded), None)?);
        }
        if let Some(file) = self.read(&[spec.file_name()], true)? {
            frame = Some(self.git_frame(file, frame)?);
        }
        if let Some(slot) = self.slots.get_mut(at) {
            slot.frame = frame;
        }
        Ok(())
    }

    fn git_frame(
        &self,
        (path, text): ReadFile,
        inherits: Option<Arc<Frame>>,
    ) -> Result<Arc<Frame>, RuleFileError> {
        let weight = text.len() * GIT_WEIGHT;
        let text_bytes = weight + inherits.as_ref().map_or(0, |frame| frame.text_bytes);
        if text.len() > MAX_GIT_BYTES || text_bytes > MAX_BYTES_IN_FORCE {
            return Err(RuleFileError { path, fault: RuleFileFault::TooMuch });
        }
        let lines = GitLines::read(&text).map_err(|fault| RuleFileError {
            path: path.clone(),
            fault: match fault {
                GitFault::Line(line) => RuleFileFault::Line { line },
                GitFault::TooComplex => RuleFileFault::TooMuch,
            },
        })?;
        let (below, above) = self.ways();
        let path = path.into();

        Ok(Arc::new(Frame {
            path,
            rules: Rules::default(),
            git: Some(lines),
            below,
            above,
            inherits,
            text_bytes,
        }))
    }

    /// Returns whether the directory is the top of a repository or of one of its working trees.
    fn begins_repository(&self) -> Result<bool, RuleFileError> {
        let Ok(name) = Component::new(GIT) else { return Ok(false) };
        match self.dir().stat(&name) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(RuleFileError { path: self.shown(&[GIT]), fault: RuleFileFault::Read(error) }),
        }
    }

    /// Reads what a repository ignores besides its files; a `.git` that is a file or a link leads
    /// out of the tree, so nothing is read there.
    fn repository_excludes(&self) -> Result<Option<Vec<u8>>, RuleFileError> {
        use io::ErrorKind::{NotADirectory, NotFound};
        let fail = |fault| RuleFileError { path: self.shown(&GIT_EXCLUDE), fault };
        let mut way = RelPath::root();
        let [directories @ .., name] = GIT_EXCLUDE;
        for step in directories {
            way.push(&Component::new(step).map_err(|_| fail(RuleFileFault::LeadsOut))?);
        }

        let is_directory = |step: &[u8]| {
            let name = Component::new(step).ok();
            name.and_then(|name| self.dir().stat(&name).ok()).is_some_and(|found| found.kind == Kind::Dir)
        };
        if !is_directory(GIT) {
            return Ok(None);
        }
        match self.dir().open_beneath(&way) {
            Ok(dir) => match read_here(&dir, name).map_err(fail)? {
                Found::Text(text) => Ok(Some(text)),
                Found::None => Ok(None),
                Found::Link(_) => Err(fail(RuleFileFault::LeadsOut)),
            },
            Err(error) if matches!(error.kind(), NotFound | NotADirectory) => Ok(None),
            Err(error) => Err(fail(RuleFileFault::Read(error))),
        }
    }

    fn dir(&self) -> &Dir {
        match self.place {
            Place::Below { dir, .. } | Place::Above { dir, .. } => dir,
        }
    }

    /// Returns the way of this directory below and above the root.
    fn ways(&self) -> (usize, Vec<u8>) {
        match self.place {
            Place::Below { path, .. } if path.is_root() => (0, Vec::new()),
            Place::Below { path, .. } => (path.as_bytes().len() + 1, Vec::new()),
            Place::Above { above, .. } => (0, above.to_vec()),
        }
    }

    fn put(&mut self, at: usize, frame: Frame) {
        if let Some(slot) = self.slots.get_mut(at) {
            slot.frame = Some(Arc::new(frame));
        }
    }

    /// Takes the rules of one file.
    fn file(
        &mut self,
        draft: &mut Draft,
        (path, text): (&[u8], &[u8]),
        spec: &RuleSpec,
        depth: usize,
    ) -> Result<(), RuleFileError> {
        let shared: Arc<[u8]> = path.into();
        draft.text_bytes += text.len();
        if depth > MAX_MERGE_DEPTH || draft.text_bytes > MAX_BYTES_IN_FORCE {
            return Err(RuleFileError { path: path.to_vec(), fault: RuleFileFault::TooMuch });
        }
        for (line, text) in spec.rule_file.unwrap_or_default().lines_of(text) {
            let fail = |fault| RuleFileError { path: path.to_vec(), fault };
            let no_rule = |_: RuleFault| fail(RuleFileFault::Line { line });
            let rule = ParsedRule::read_in(text, spec).map_err(no_rule)?;
            self.rule(draft, rule, &(Arc::clone(&shared), line), depth)?;
        }
        Ok(())
    }

    fn rule(
        &mut self,
        draft: &mut Draft,
        rule: ParsedRule,
        origin: &(Arc<[u8]>, u32),
        depth: usize,
    ) -> Result<(), RuleFileError> {
        let fail = |fault| RuleFileError { path: origin.0.to_vec(), fault };

        match rule {
            ParsedRule::Clear => {
                draft.rules.clear();
                // A file that is named again later counts anew. One that a file above names stays
                // known, as with rsync.
                self.slots.truncate(draft.older_slots);
                draft.cleared = true;
            }
            ParsedRule::ExcludedFile(exclude, rule) => {
                // For both ends, also with --delete-excluded, as with rsync.
                let exclude = RuleSpec { ends: Ends::Both, ..exclude };
                self.rule(draft, ParsedRule::Rule(exclude), origin, depth)?;
                self.rule(draft, *rule, origin, depth)?;
            }
            ParsedRule::Cvs(spec) => {
                for pattern in CVS_PATTERNS.split(' ') {
                    let spec = RuleSpec { pattern: pattern.into(), perishable: true, ..spec.clone() };
                    let rule = compile(spec, origin, depth).map_err(|()| fail(RuleFileFault::TooMuch))?;
                    draft.rules.push(rule);
                }
            }
            ParsedRule::Merge(spec) => {
                self.elsewhere = true;
                let steps: Vec<_> = spec.pattern.split(|&byte| byte == b'/').collect();
                let read = self.read(&steps, false).map_err(|error| match error.fault {
                    RuleFileFault::LeadsOut => fail(RuleFileFault::LeadsOut),
                    _ => error,
                });
                match read? {
                    Some((path, text)) => self.file(draft, (&path, &text), &spec, depth + 1)?,
                    // rsync ends here as well: a rule less could delete.
                    None => return Err(fail(RuleFileFault::Line { line: origin.1 })),
                }
            }
            ParsedRule::Rule(spec) if spec.rule_file.is_some() => {
                self.add_slot(draft, &Arc::new(spec), origin).map_err(fail)?;
            }
            // Which attributes are copied does not depend on the directory.
            ParsedRule::Rule(spec) if spec.xattrs => {
                return Err(fail(RuleFileFault::Line { line: origin.1 }));
            }
            ParsedRule::Rule(spec) => {
                let line = RuleFileFault::Line { line: origin.1 };
                draft.rules.push(compile(spec, origin, depth).map_err(|()| fail(line))?);
            }
        }
        Ok(())
    }

    /// Takes the rule of a file for each directory. A second one of the same name says nothing, as
    /// with rsync.
    fn add_slot(
        &mut self,
        draft: &mut Draft,
        spec: &Arc<RuleSpec>,
        origin: &(Arc<[u8]>, u32),
    ) -> Result<(), RuleFileFault> {
        if self.slots.iter().any(|slot| slot.spec.file_name() == spec.file_name()) {
            return Ok(());
        }
        if self.slots.len() >= MAX_FILES {
            return Err(RuleFileFault::TooMuch);
        }
        let what = What::Files(self.slots.len());
        draft.rules.push(Rule::of(spec, what, Some(origin.clone())));
        self.slots.push(Slot::new(spec));
        Ok(())
    }

    /// Reads a file by its way from the directory; returns its path with the text, `None` if there
    /// is no such file. `own` is the file that is looked for in the directory itself.
    fn read(&mut self, steps: &[&[u8]], own: bool) -> Result<Option<ReadFile>, RuleFileError> {
        let found = match self.place {
            Place::Below { root, dir, path } => read_below(root, dir, path, steps, own),
            Place::Above { dir, way, .. } => read_above(dir, way, steps).map(|text| (text, false)),
        };

        let (text, is_behind_link) =
            found.map_err(|fault| RuleFileError { path: self.shown(steps), fault })?;
        self.elsewhere |= is_behind_link;
        Ok(text.map(|text| (self.shown(steps), text)))
    }

    /// Returns the path of a file for people.
    fn shown(&self, steps: &[&[u8]]) -> Vec<u8> {
        match self.place {
            Place::Below { path, .. } if path.is_root() => steps.join(&b'/'),
            Place::Below { path, .. } => [path.as_bytes(), &steps.join(&b'/')].join(&b'/'),
            Place::Above { way, .. } => {
                let way = bytes_of(way.to_path_buf());
                let head: &[u8] = if way.is_empty() { b"" } else { b"/" };
                [head, &way, b"/", &steps.join(&b'/')].concat()
            }
        }
    }
}

fn as_str(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}

/// Compiles a rule of the tree; one at a `depth` stands in a file that another file names.
fn compile(mut spec: RuleSpec, origin: &(Arc<[u8]>, u32), depth: usize) -> Result<Rule, ()> {
    // Such a rule protects also with --delete-excluded, as with rsync.
    if depth > 0 && spec.ends == Ends::Unstated {
        spec.ends = Ends::Both;
    }
    let pattern = Pattern::of_rule(&spec.pattern, Build::Lean).map_err(|_| ())?;
    Ok(Rule::of(&spec, What::Pattern(pattern), Some(origin.clone())))
}

/// The kind of entry that a name of rules stands for.
enum Found {
    None,
    Text(Vec<u8>),
    Link(Vec<u8>),
}

/// Reads a file in a directory above the tree.
fn read_above(dir: &Dir, way: &Path, steps: &[&[u8]]) -> Result<Option<Vec<u8>>, RuleFileFault> {
    let [name] = steps else { return Err(RuleFileFault::LeadsOut) };
    match read_here(dir, name)? {
        Found::Text(text) => Ok(Some(text)),
        Found::None => Ok(None),
        // Above the tree are the operator's own directories.
        Found::Link(_) => read_operators(dir, &way.join(as_str(&written(dir, name)))),
    }
}

/// Reads a file of the tree by a way that starts at a directory in it. Follows links that stay in
/// the tree; no directory on the way may be a link.
fn read_below(
    root: &Dir,
    dir: &Dir,
    path: &RelPath,
    steps: &[&[u8]],
    own: bool,
) -> Result<Sought, RuleFileFault> {
    let mut way: Vec<Vec<u8>> = path.components().map(<[u8]>::to_vec).collect();
    let mut steps: Vec<Vec<u8>> = steps.iter().map(|step| step.to_vec()).collect();
    let mut at_start = own;

    for links in 0..=MAX_LINKS {
        let name = go(&mut way, &steps)?;
        let found = if std::mem::take(&mut at_start) {
            read_here(dir, &name)?
        } else {
            let mut parent = RelPath::root();
            for step in &way {
                parent.push(&Component::new(step).map_err(|_| RuleFileFault::LeadsOut)?);
            }
            match root.open_beneath(&parent) {
                Ok(parent) => read_here(&parent, &name)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => Found::None,
                Err(error) => return Err(RuleFileFault::Read(error)),
            }
        };
        match found {
            Found::Text(text) => return Ok((Some(text), links > 0)),
            Found::None => return Ok((None, links > 0)),
            Found::Link(target) if target.starts_with(b"/") => return Err(RuleFileFault::LeadsOut),
            Found::Link(target) => steps = target.split(|&byte| byte == b'/').map(<[u8]>::to_vec).collect(),
        }
    }
    Err(RuleFileFault::LeadsOut)
}

/// Goes a way by its words alone; returns the last name.
fn go(way: &mut Vec<Vec<u8>>, steps: &[Vec<u8>]) -> Result<Vec<u8>, RuleFileFault> {
    let Some((name, steps)) = steps.split_last() else { return Err(RuleFileFault::LeadsOut) };
    for (at, step) in steps.iter().enumerate() {
        match step.as_slice() {
            b"" if at == 0 => return Err(RuleFileFault::LeadsOut),
            b"" | b"." => {}
            b".." => {
                way.pop().ok_or(RuleFileFault::LeadsOut)?;
            }
            _ => way.push(step.clone()),
        }
    }
    Ok(name.clone())
}

fn read_here(dir: &Dir, name: &[u8]) -> Result<Found, RuleFileFault> {
    let Ok(name) = Component::new(name) else { return Err(RuleFileFault::LeadsOut) };
    let kind = match dir.stat(&name) {
        Ok(found) => found.kind,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::None),
        Err(error) => return Err(RuleFileFault::Read(error)),
    };
    match kind {
        Kind::File => {}
        Kind::Symlink => return dir.read_link(&name).map(Found::Link).map_err(RuleFileFault::Read),
        _ => return Ok(Found::None),
    }
    let file = match dir.open_source(&name) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::None),
        Err(error) => return Err(RuleFileFault::Read(error)),
    };
    let text = read_bounded(file.as_fd().try_clone_to_owned().map(File::from))?;
    Ok(Found::Text(lines_of(dir, text)))
}

/// Reads a file by the operator's own path, through links of root and of the own user.
fn read_operators(dir: &Dir, path: &Path) -> Result<Option<Vec<u8>>, RuleFileFault> {
    match open_operator_file(path, Links::Trusted) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        file => read_bounded(file).map(|text| Some(lines_of(dir, text))),
    }
}

/// Returns names of a path as the disk has them.
fn written(dir: &Dir, path: &[u8]) -> Vec<u8> {
    dir.spelling().map_or_else(|| path.to_vec(), |spelling| spelling.path_to_here(path))
}

/// Returns the lines of a file on the disk as the rules of the tree's names.
fn lines_of(dir: &Dir, text: Vec<u8>) -> Vec<u8> {
    match dir.spelling() {
        Some(spelling) => spelling.lines_to_there(&text),
        None => text,
    }
}

fn read_bounded(file: io::Result<File>) -> Result<Vec<u8>, RuleFileFault> {
    let mut text = Vec::new();
    let read = file.and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut text));
    let is_long = read.map_err(RuleFileFault::Read)? as u64 > MAX_FILE_BYTES;
    if is_long { Err(RuleFileFault::TooMuch) } else { Ok(text) }
}

/// Longest file of rules in bytes: some thousand patterns.
const MAX_FILE_BYTES: u64 = 128 << 10;
/// Bytes of other rules' text that a byte of git's counts for: its matchers are larger, of classes up
/// to the 20 MB at which the crate refuses them.
const GIT_WEIGHT: usize = 8;
/// Longest file of git's, whose weight is all that may be in force.
const MAX_GIT_BYTES: usize = 64 << 10;
/// The entry that makes a directory a repository.
pub(super) const GIT: &[u8] = b".git";
/// The file of a repository that only its owner's copy has.
const GIT_EXCLUDE: [&[u8]; 3] = [GIT, b"info", b"exclude"];
/// Most text in force in one directory for one name.
const MAX_BYTES_IN_FORCE: usize = 512 << 10;
/// Most names that are looked for in each directory.
const MAX_FILES: usize = 64;
/// Most files that name each other.
const MAX_MERGE_DEPTH: usize = 8;
/// Most links on the way to a file.
const MAX_LINKS: usize = 8;
