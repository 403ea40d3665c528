//! The bounds of a run: the destination takes from a source what the run asked for, and nothing
//! else.
//!
//! The law: an entry is taken if and only if an honest source of these operands, under these
//! options, could have listed it. The operands and the options are the words of the person who
//! started the run; the source's words about itself can only narrow them. The same holds for
//! deletions: a listing decides which entries of a directory are gone only where an operand stands
//! for that directory or for one above it.
//!
//! The rules are those by which [`dsync_fs::Walk`] lists, with the same filters, and by which the
//! lister sends. An option that selects entries, or the parts of them that are sent, has its one
//! place here. The tests compare this with walks of real trees.

mod paths;

use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use dsync_fs::{
    Component, FileList, FilterSet, InvalidRelative, Naming, OperandForm, OperandPaths, PathSorter, RelPath,
    RelativeForm, Standing, Within, Xattr, XattrRules, is_own_name, leads_out,
};
use dsync_wire::{
    error::PeerText,
    limits::MAX_MODE,
    message::{Asked, Attributes, DeviceNumber, Entry, EntryId, EntryKind, Extended, HardLink, IdName, Tops},
    name::Name,
    options::{ModeRule, SyncOptions},
};

pub(crate) use self::paths::{MOST_NAMES, too_many};
use self::paths::{Paths, Wild};
use crate::SyncError;

/// The entries that a run asks for.
#[derive(Debug, Clone)]
pub(crate) struct AskedFor {
    asked: Asked,
    list: Option<FileList>,
    wild: Wild,
    /// Whether the root is on the way to a path; not known of operands that only the peer has.
    root_on_the_way: Option<bool>,
}

impl AskedFor {
    /// Returns what operands stand for at the destination; with a list they are the directory in
    /// which its paths begin.
    ///
    /// # Errors
    /// As [`of_operands`].
    pub(crate) fn of(
        paths: &[PathBuf],
        list: Option<&FileList>,
        options: &SyncOptions,
    ) -> Result<Self, SyncError> {
        match list {
            Some(list) => Ok(Self::in_list(list.clone())),
            None => {
                let (asked, wild) = paths::of_wild(paths, options)?;
                let from_root = |path: &PathBuf| {
                    RelativeForm::of(path.as_os_str().as_bytes()).is_ok_and(|form| form.from_root)
                };
                let root_on_the_way = Some(options.relative && paths.iter().any(from_root));
                Ok(Self { asked, list: None, wild, root_on_the_way })
            }
        }
    }

    /// Returns what a list stands for.
    pub(crate) fn in_list(list: FileList) -> Self {
        let contents = list.is_contents();
        let asked = Asked { contents, names: Some(Vec::new()), paths: Vec::new() };
        let root_on_the_way = Some(list.root_on_the_way().is_some());
        Self { list: Some(list), root_on_the_way, ..asked.into() }
    }

    /// Returns what a list stands for that only the source has: any entry may come.
    pub(crate) fn in_unknown_list() -> Self {
        Asked { contents: true, names: None, paths: Vec::new() }.into()
    }

    /// Returns whether an operand, or a line, stands for the contents of the root.
    pub(crate) fn contents(&self) -> bool {
        self.asked.contents
    }

    /// Returns whether it may be one file alone, which the destination's operand may name anew. A
    /// list that only the source has may have one line.
    pub(crate) fn may_be_file(&self) -> bool {
        let Asked { contents, names, paths } = &self.asked;
        names.as_ref().is_none_or(|names| !contents && names.len() <= 1 && paths.len() <= 1)
    }

    /// Returns the list that this end has.
    pub(crate) fn list(&self) -> Option<&FileList> {
        self.list.as_ref()
    }

    /// Returns what a batch says that its run asked for. Lists and wildcards may have stood for any
    /// name.
    pub(crate) fn into_recorded(self) -> Asked {
        if self.list.is_some() || !self.wild.is_empty() {
            return Asked { names: None, paths: Vec::new(), ..self.asked };
        }
        self.asked.as_sent()
    }

    /// Returns what a destination at the other end is told; a list does not cross.
    pub(crate) fn into_sent(self) -> Asked {
        match self.list {
            Some(_) => Asked { names: None, ..self.asked },
            None => self.asked.as_sent(),
        }
    }
}

impl From<Asked> for AskedFor {
    fn from(asked: Asked) -> Self {
        Self { asked, list: None, wild: Wild::default(), root_on_the_way: None }
    }
}

/// Returns what operands stand for at the destination.
///
/// # Errors
/// [`SyncError::SourceUnreadable`] for one that cannot be a path.
pub(crate) fn of_operands(paths: &[PathBuf], options: &SyncOptions) -> Result<Asked, SyncError> {
    let mut asked = Asked::default();
    let mut names = Vec::new();

    for path in paths {
        let invalid = |error| SyncError::SourceUnreadable {
            path: path.clone(),
            source: std::io::Error::new(std::io::ErrorKind::InvalidInput, error),
        };
        if options.relative {
            let form = RelativeForm::of(path.as_os_str().as_bytes()).map_err(|error| match error {
                InvalidRelative::Name(error) => invalid(error),
                _ => upwards(path),
            })?;
            let mut below = form.path.as_bytes().to_vec();
            if below.is_empty() {
                asked.contents = true;
                continue;
            }
            below.extend(form.contents.then_some(b'/'));
            asked.paths.push(below);
            continue;
        }
        match OperandForm::of(path).map_err(invalid)? {
            OperandForm::Contents(_) => asked.contents = true,
            // Both types have the same rules.
            OperandForm::Entry { name, .. } => names.extend(Name::new(name.as_bytes())),
        }
    }
    asked.names = Some(names);
    Ok(asked)
}

/// Returns the error of an operand that a relative run cannot have.
pub(crate) fn upwards(path: &Path) -> SyncError {
    let why = format!(
        "'{}' has '..' in the part that is copied with its directories: write './' where that part is to begin",
        path.display()
    );
    SyncError::InvalidOption { option: "sources", why }
}

/// Returns the rules by which a source leaves entries out: the run's own, and not the destination's
/// unfinished files.
pub(crate) fn listed_by(filter: FilterSet, options: &SyncOptions) -> FilterSet {
    let parts = options.writing.partial_dir.as_deref().and_then(|dir| Component::new(dir).ok());
    match parts {
        Some(name) => filter.without_directories(name),
        None => filter,
    }
}

/// The bounds on what a source of the run may send.
pub(super) struct Bounds<'a> {
    options: &'a SyncOptions,
    filter: FilterSet,
    /// The rules by which the source leaves extended attributes out.
    xattr_rules: XattrRules,
    /// Whether an operand stands for its content.
    contents: bool,
    /// The names that the other operands have, in order, each once; `None` when any may come.
    names: Option<Vec<Name>>,
    /// The operands with wildcards.
    wild: Wild,
    /// The paths of a relative run's operands, or of a list, if they are known.
    paths: Option<Paths>,
    /// Whether entries are judged by their paths: in a relative run, and with a list.
    by_path: bool,
    /// There is one operand and it is a name.
    single: bool,
    /// The permission bits that the run's changes can give; `None` without any.
    modes: Option<Modes>,
    /// Whether the source has announced the root's attributes: then it could open the directory
    /// that is listed as the root.
    has_root: bool,
    /// Whether the source may announce the root without listing its content: a path has it on its
    /// way.
    root_on_the_way: bool,
    /// Entries that operands name and that are to come.
    named_left: u32,
    /// The last attribute set that was found to be right: neighbours often have the same.
    last_set: Option<Arc<Extended>>,
    /// Whether the client's rights are limited: then no operand of its names dsync's own files, which
    /// are those of other clients too.
    confined: bool,
}

/// Something that the source sent and nobody asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unasked {
    /// The part of an entry; `None` for the entry itself.
    pub(super) part: Option<&'static str>,
    /// The rule that it breaks.
    pub(super) rule: &'static str,
}

/// A directory whose entries are judged.
#[derive(Default)]
pub(super) struct Judged {
    is_root: bool,
    /// Number of directories of the tree above its entries.
    depth: usize,
    /// Whether its entries are listed without being named.
    is_covered: bool,
    /// The path of a relative run's directory.
    path: RelPath,
    within: Within,
}

impl Unasked {
    fn entry(rule: &'static str) -> Self {
        Self { part: None, rule }
    }

    fn part(part: &'static str, rule: &'static str) -> Self {
        Self { part: Some(part), rule }
    }

    /// Returns the error that ends the run, for the entry at this path of the source's listing.
    pub(super) fn at(self, path: &[u8]) -> SyncError {
        let name = match path {
            [] => "the destination directory itself".to_owned(),
            path => format!("'{}'", PeerText::new(path)),
        };
        let what = self.part.map_or_else(|| name.clone(), |part| format!("{part} of {name}"));
        SyncError::NotAskedFor { what, rule: self.rule }
    }
}

impl<'a> Bounds<'a> {
    /// Derives the bounds from the operands' meaning and the options.
    pub(super) fn new(asked: impl Into<AskedFor>, filter: &FilterSet, options: &'a SyncOptions) -> Self {
        let AskedFor { asked: Asked { contents, mut names, paths }, list, wild, root_on_the_way } =
            asked.into();
        let is_single = |path: &Vec<u8>| !path.contains(&b'/');
        let single = match paths.as_slice() {
            _ if !wild.is_empty() => wild.is_only,
            [] => !contents && names.as_ref().is_some_and(|names| names.len() == 1),
            [only] => !contents && is_single(only),
            _ => false,
        };
        let by_path = options.relative || list.is_some();
        let operands = || Paths::Operands(operand_paths(&paths), wild.patterns.clone());
        let of_operands = || (options.relative && names.is_some()).then(operands);
        let paths = list.map_or_else(of_operands, |list| Some(Paths::List(list)));
        if let Some(names) = &mut names {
            names.sort_unstable();
            names.dedup();
        }

        Self {
            options,
            filter: listed_by(filter.clone(), options),
            xattr_rules: filter.xattr_rules(),
            contents,
            names,
            wild,
            paths,
            by_path,
            single,
            modes: Modes::of(&options.mode_rules),
            has_root: false,
            root_on_the_way: root_on_the_way.unwrap_or(options.relative) && !options.no_implied_dirs,
            named_left: 0,
            last_set: None,
            confined: false,
        }
    }

    /// Refuses dsync's own names also where operands have them.
    pub(super) fn confined(self, confined: bool) -> Self {
        Self { confined, ..self }
    }

    /// Returns whether the root stands for the content of an operand, so that `delete` is for the
    /// whole of the destination.
    pub(super) fn is_contents(&self) -> bool {
        self.contents
    }

    /// Returns whether the known operands have so many names. A list is read no further than that.
    fn has_named(&self, count: u32) -> bool {
        let Some(last) = count.checked_sub(1) else { return true };
        match &self.paths {
            Some(paths) => {
                let (typed, root) = (paths.typed(), RelPath::root());
                typed.names(&root, 0..typed.len()).nth(last as usize).is_some()
            }
            None => self.names.as_ref().is_some_and(|names| names.len() >= count as usize),
        }
    }

    /// Returns whether several operands, or lines of a list, name entries.
    pub(super) fn has_several_names(&self) -> bool {
        match &self.paths {
            Some(paths) => paths.typed().len() > 1,
            None => self.names.as_ref().is_none_or(|names| names.len() > 1),
        }
    }

    /// Returns whether an operand stands for a directory of this path, so that it is expected to
    /// have entries.
    pub(super) fn is_operand(&self, path: &RelPath) -> bool {
        match &self.paths {
            _ if self.contents && path.is_root() => true,
            Some(paths) => paths.standing(path.as_bytes()).named,
            None => !self.contents && path.depth() == 1,
        }
    }

    /// Judges the source's words on its operands.
    pub(super) fn tops(&mut self, tops: &Tops) -> Result<(), Unasked> {
        if let Some(attributes) = &tops.root {
            if !self.contents && !self.root_on_the_way {
                return Err(Unasked::part("attributes", NOT_CONTENTS));
            }
            self.attributes(attributes, &EntryKind::Directory)?;
        }
        let is_known = self.names.is_some() && self.wild.is_empty();
        if is_known && !self.has_named(tops.named) {
            return Err(Unasked::part("more entries", "the operands are fewer"));
        }
        if tops.single_file && !self.single {
            return Err(Unasked::part("word that a file takes the place", "there is more than one operand"));
        }
        if tops.single_file && !self.wild.is_empty() && (tops.named > 1 || tops.root.is_some()) {
            return Err(Unasked::part("word that a file takes the place", "it has named more than one"));
        }
        (self.has_root, self.named_left) = (tops.root.is_some(), tops.named);
        Ok(())
    }

    /// Judges an operand's name that the source does not have. One that wildcards only could stand
    /// for was never missing.
    pub(super) fn missing(&self, path: &[u8]) -> Result<(), Unasked> {
        let is_named = || match &self.paths {
            Some(paths) => paths.typed().standing(path).named,
            None if self.by_path => true,
            None => Name::new(path).is_ok_and(|name| self.is_typed(&name)),
        };
        match () {
            () if !self.options.delete_missing_args => {
                Err(Unasked::part("the absence", "what is missing is not to be deleted"))
            }
            () if !is_named() => Err(Unasked::part("the absence", NOT_NAMED)),
            () if self.confined && path.split(|&byte| byte == b'/').any(is_own_name) => {
                Err(Unasked::part("the absence", OWN_NAME))
            }
            () => Ok(()),
        }
    }

    /// Judges the name of a user or group.
    pub(super) fn id_name(&self, name: &IdName) -> Result<(), Unasked> {
        let options = self.options;
        let preserved = if name.group { options.group } else { options.owner };
        match () {
            () if options.numeric_ids => Err(Unasked::entry("owners and groups go by their numbers")),
            () if preserved || options.acls => Ok(()),
            () if name.group => Err(Unasked::entry("groups are not copied")),
            () => Err(Unasked::entry("owners are not copied")),
        }
    }

    /// Begins a directory that the source lists, at this path.
    pub(super) fn directory(&self, id: EntryId, path: &RelPath) -> Result<Judged, Unasked> {
        let is_root = id == EntryId(0);
        let (recursive, relative) = (self.options.recursive, self.by_path);
        let standing = self.paths.as_ref().map(|paths| paths.standing(path.as_bytes()));
        let is_covered = match (&self.paths, standing) {
            _ if is_root => self.lists_contents(),
            (Some(paths), Some(standing)) => {
                standing.contents || recursive && (self.contents || paths.covers(path))
            }
            // Too many operands to know.
            _ => recursive || relative && self.options.dirs,
        };
        if !is_root && !is_covered && !standing.map_or(relative, |standing| standing.on_the_way) {
            return Err(Unasked::part("the entries", "directories are copied without what is in them"));
        }
        let path_of = |path: &RelPath| if relative { path.clone() } else { RelPath::root() };
        Ok(Judged {
            is_root,
            depth: path.depth(),
            is_covered,
            path: path_of(path),
            within: Within::new(&self.filter, path),
        })
    }

    /// Returns whether an honest source may list the entries of a directory.
    pub(super) fn may_list(&self, path: &RelPath) -> bool {
        let is_simple = self.options.recursive && !self.by_path;
        is_simple || self.by_path && self.directory(EntryId(1), path).is_ok()
    }

    /// Returns whether an honest source could list an entry of this name in a directory.
    pub(super) fn could_list(&self, directory: &mut Judged, name: &[u8], is_dir: bool) -> bool {
        let Ok(listed) = Name::new(name) else { return false };
        let (is_named, is_way) = match &self.paths {
            Some(paths) => {
                let Standing { named, on_the_way, .. } = paths.standing(&directory.path_of(name));
                (named, is_dir && on_the_way)
            }
            // Any may come.
            None if self.by_path => (true, false),
            None => (directory.is_root && self.is_named(&listed), false),
        };
        let is_covered = if directory.is_root { self.lists_contents() } else { directory.is_covered };

        (is_named || is_way || is_covered)
            && !is_own_name(name)
            && (is_way || !directory.within.surely_excludes(&self.filter, name, is_dir))
    }

    /// Judges the source's word that it lists all of a directory, so that entries which it does not
    /// list may be deleted.
    pub(super) fn whole(&self, directory: &Judged) -> Result<(), Unasked> {
        let listed = directory.is_covered;
        let rule = if self.contents || !directory.is_root { "it is not listed" } else { NOT_CONTENTS };
        if listed { Ok(()) } else { Err(Unasked::part("word that it lists all", rule)) }
    }

    /// Judges an entry of a directory.
    pub(super) fn entry(&mut self, directory: &mut Judged, entry: &Entry) -> Result<(), Unasked> {
        let is_named = self.names_entry(directory, entry)?;
        if directory.is_root && !self.lists_contents() {
            if !is_named {
                return Err(Unasked::entry(NOT_NAMED));
            }
            let left = self.named_left.checked_sub(1);
            self.named_left = left.ok_or_else(|| Unasked::entry("the source said that no operand has it"))?;
        }
        let name = entry.name.as_bytes();
        if is_own_name(name) && (!is_named || self.confined) {
            return Err(Unasked::entry(OWN_NAME));
        }

        let is_way = entry.implied;
        let is_dir = matches!(entry.kind, EntryKind::Directory);
        // The type of a hidden entry is not told.
        let types: &[bool] = if matches!(entry.kind, EntryKind::Hidden) { &[false, true] } else { &[is_dir] };
        let mut excluded = |&is_dir: &bool| directory.within.surely_excludes(&self.filter, name, is_dir);
        if !is_way && types.iter().all(&mut excluded) {
            return Err(Unasked::entry("the filters exclude it"));
        }
        self.followed(directory, entry)?;
        self.details(entry)?;
        self.attributes(&entry.attributes, &entry.kind)
    }

    /// Judges a symbolic link where links are followed.
    fn followed(&self, directory: &Judged, entry: &Entry) -> Result<(), Unasked> {
        let EntryKind::Symlink { target } = &entry.kind else { return Ok(()) };
        if self.options.copy_links {
            return Err(Unasked::entry("links are replaced by what they lead to"));
        }
        if self.options.copy_unsafe_links && self.options.links && leads_out(directory.depth, target) {
            return Err(Unasked::entry("links that lead out are replaced by what they lead to"));
        }
        Ok(())
    }

    /// Judges the place of an entry among the operands. Returns whether one of them names it, or
    /// something below it.
    fn names_entry(&self, directory: &Judged, entry: &Entry) -> Result<bool, Unasked> {
        if !self.by_path {
            if entry.implied {
                return Err(Unasked::part("the word that it is on the way", "operands have no paths"));
            }
            return Ok(directory.is_root && self.is_named(&entry.name));
        }
        let Some(paths) = &self.paths else { return Ok(true) };
        let path = directory.path_of(entry.name.as_bytes());
        let Standing { named, on_the_way, .. } = paths.standing(&path);
        match entry.implied {
            true if !on_the_way => Err(Unasked::part("the word that it is on the way", NOT_NAMED)),
            false if !directory.is_covered && !named => Err(Unasked::entry(NOT_NAMED)),
            _ => Ok(named || on_the_way),
        }
    }

    fn is_named(&self, name: &Name) -> bool {
        self.is_typed(name) || self.wild.names(name)
    }

    fn is_typed(&self, name: &Name) -> bool {
        self.names.as_ref().is_none_or(|names| names.binary_search(name).is_ok())
    }

    /// Returns whether the content of an operand is listed as the root's entries.
    fn lists_contents(&self) -> bool {
        self.contents && self.has_root && self.options.takes_directories()
    }

    /// Judges the parts that belong to an entry's type, and its other names.
    fn details(&self, entry: &Entry) -> Result<(), Unasked> {
        let options = self.options;
        if !options.hard_links && matches!(entry.hard_link, Some(HardLink::First | HardLink::To(_))) {
            return Err(Unasked::part("other names", "hard links are not copied as such"));
        }

        let none = DeviceNumber::default();
        match &entry.kind {
            EntryKind::Hidden if !options.names_hidden => {
                Err(Unasked::entry("no entries are named that are left out"))
            }
            EntryKind::File { content: Some(_), .. } if !options.checksum => {
                Err(Unasked::part("a checksum", "files are not compared by content"))
            }
            EntryKind::Symlink { target } if options.links == target.is_empty() => Err(if options.links {
                Unasked::part("an empty link text", "a link has one")
            } else {
                Unasked::part("the link text", "links are not copied")
            }),
            EntryKind::CharDevice { .. } | EntryKind::BlockDevice { .. } if options.copy_devices => {
                Err(Unasked::entry("devices are copied as files of their content"))
            }
            EntryKind::CharDevice { device } | EntryKind::BlockDevice { device }
                if !options.devices && *device != none =>
            {
                Err(Unasked::part("the device number", "devices are not copied"))
            }
            _ => Ok(()),
        }
    }

    /// Judges the parts that every type of entry has.
    fn attributes(&mut self, attributes: &Attributes, kind: &EntryKind) -> Result<(), Unasked> {
        let options = self.options;
        let Attributes { mode, atime, uid, gid, ref extended, .. } = *attributes;
        if uid != 0 && !options.owner {
            return Err(Unasked::part("the owner", "owners are not copied"));
        }
        if gid != 0 && !options.group {
            return Err(Unasked::part("the group", "groups are not copied"));
        }
        if atime.is_some() && !options.atimes {
            return Err(Unasked::part("the access time", "access times are not copied"));
        }
        let is_link = matches!(kind, EntryKind::Symlink { .. });
        let is_dir = matches!(kind, EntryKind::Directory);
        if !is_link && self.modes.as_ref().is_some_and(|modes| !modes.has(mode, is_dir)) {
            return Err(Unasked::part("the permissions", "the changes of modes make others"));
        }
        extended.as_ref().map_or(Ok(()), |set| self.extended(set))
    }

    /// Judges lists and extended attributes.
    fn extended(&mut self, set: &Arc<Extended>) -> Result<(), Unasked> {
        if self.last_set.as_ref().is_some_and(|last| Arc::ptr_eq(last, set)) {
            return Ok(());
        }
        let options = self.options;
        if !options.acls && !options.xattrs {
            return Err(Unasked::part("an attribute set", "neither ACLs nor extended attributes are copied"));
        }
        if !options.acls && (set.access.is_some() || set.default.is_some()) {
            return Err(Unasked::part("an access control list", "ACLs are not copied"));
        }
        if !options.xattrs && !set.xattrs.is_empty() {
            return Err(Unasked::part("extended attributes", "extended attributes are not copied"));
        }
        if set.xattrs.iter().any(|xattr| !Xattr::is_ever_copied(&xattr.name)) {
            return Err(Unasked::part("an extended attribute", "no source copies one of that name"));
        }
        if set.xattrs.iter().any(|xattr| self.xattr_rules.excludes(&xattr.name)) {
            return Err(Unasked::part("an extended attribute", "the filters exclude its name"));
        }
        self.last_set = Some(Arc::clone(set));
        Ok(())
    }
}

/// Returns the paths that were sent, or made of operands.
fn operand_paths(sent: &[Vec<u8>]) -> OperandPaths {
    let mut paths = PathSorter::default();
    for path in sent {
        let naming = if path.ends_with(b"/") { Naming::Contents } else { Naming::Entry };
        // The codec has checked them.
        let parsed = RelPath::parse(path.strip_suffix(b"/").unwrap_or(path));
        // A message has fewer bytes than stay in memory.
        parsed.iter().for_each(|path| _ = paths.push(path, 0, naming));
    }
    paths.seal().unwrap_or_default()
}

/// Judges the word on where a file has holes.
pub(super) fn holes(options: &SyncOptions) -> Result<(), Unasked> {
    let rule = "all zeros become holes";
    if options.writing.sparse { Err(Unasked::part("holes", rule)) } else { Ok(()) }
}

impl Judged {
    /// Returns the path of an entry in a relative run, or in one with a list.
    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        let mut path = self.path.as_bytes().to_vec();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        path
    }

    /// Returns the directory's path, as far as it is needed to judge the directory's entries.
    pub(super) fn path(&self) -> &[u8] {
        self.within.directory()
    }
}

/// The permission bits that the run's changes can give.
struct Modes {
    files: Vec<bool>,
    directories: Vec<bool>,
}

impl Modes {
    fn of(rules: &[ModeRule]) -> Option<Self> {
        if rules.is_empty() {
            return None;
        }
        let given = |is_dir| {
            let mut given = vec![false; usize::from(MAX_MODE) + 1];
            for mode in 0..=MAX_MODE {
                let becomes = usize::from(ModeRule::apply(rules, mode, is_dir));
                if let Some(given) = given.get_mut(becomes) {
                    *given = true;
                }
            }
            given
        };
        Some(Self { files: given(false), directories: given(true) })
    }

    fn has(&self, mode: u16, is_dir: bool) -> bool {
        let given = if is_dir { &self.directories } else { &self.files };
        given.get(usize::from(mode)).copied().unwrap_or(false)
    }
}

const OWN_NAME: &str = "names of dsync's own files are never copied";
const NOT_NAMED: &str = "no operand names it";
const NOT_CONTENTS: &str = "no operand stands for what is in it (none ends in '/')";

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests;
