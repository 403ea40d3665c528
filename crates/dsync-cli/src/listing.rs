//! One line on standard output for one entry: rsync's `-i` format and its `-v` list, byte for byte.
//!
//! Wrappers parse these lines, so their shape follows rsync 3.5.0 even where another would be
//! nicer: eleven characters `YXcstpoguax` and a space, `*deleting` padded to the same width,
//! directories with a trailing `/`, links with their target, and the root of the transfer as `./`.
//! [`crate::escape`] escapes names; the one difference from rsync is that a tab is escaped as well.

use std::{borrow::Cow, path::PathBuf};

use dsync_engine::{Action, Changes, Ended, FileType, Planned};

use crate::{
    catalogue::Catalogue,
    escape::{Escaped, eight_bit},
    format::{Field, Format},
    log::LocalClock,
    numbers::{Number, Style},
};

/// The lists to print, and their form.
#[derive(Debug, Clone, Default)]
pub(crate) struct Listing {
    /// `-v` times, or what `--info=name` says.
    pub(crate) verbose: u8,
    /// Number of `-i`.
    pub(crate) itemize: u8,
    /// Whether files go to a remote host: `<`, else `>`.
    pub(crate) sends: bool,
    /// Whether files come from a remote host.
    pub(crate) receives: bool,
    /// Whether deletions are listed, whatever else is.
    pub(crate) deletions: Option<bool>,
    /// `--out-format`.
    pub(crate) format: Option<Format>,
    /// The directory where the names of `%f` start; see [`Base`].
    pub(crate) base: Base,
    /// `-8`.
    pub(crate) eight_bit: bool,
    /// `--list-only`, instead of all else.
    pub(crate) catalogue: Option<Catalogue>,
    /// Whether groups are preserved, so that they are known.
    pub(crate) has_groups: bool,
    /// For `%t` and `%M`.
    pub(crate) clock: Option<LocalClock>,
}

/// The operands of a local source, from which `%f` makes paths.
#[derive(Debug, Clone, Default)]
pub(crate) struct Base(pub(crate) Vec<PathBuf>);

impl Base {
    /// Returns the path of an entry as the source's end names it; without an operand's directory
    /// where more than one could have it.
    fn path(&self, name: &[u8]) -> Vec<u8> {
        use std::os::unix::ffi::OsStrExt as _;

        let bytes = |path: &PathBuf| path.as_os_str().as_bytes().to_vec();
        let top = name.split(|&byte| byte == b'/').next().unwrap_or_default();
        let last = |path: &[u8]| path.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_vec();
        let mut candidates = self.0.iter().map(bytes).filter(|path| {
            let last = last(path);
            last.is_empty() || last == b"." || last == b".." || last == top
        });
        let (Some(path), None) = (candidates.next(), candidates.next()) else { return name.to_vec() };

        let last = last(&path);
        let mut prefix = path;
        if last == top && last != b"." && last != b".." {
            prefix.truncate(prefix.len() - last.len());
        } else if !prefix.ends_with(b"/") {
            prefix.push(b'/');
        }
        // rsync folds such beginnings away.
        while prefix.starts_with(b"./") {
            prefix.drain(..2);
        }
        [prefix.as_slice(), name].concat()
    }
}

impl Listing {
    /// Returns whether names are listed at all.
    pub(crate) fn lists(&self) -> bool {
        self.verbose > 0 || self.itemize > 0 || self.format.is_some() || self.catalogue.is_some()
    }

    /// Returns the line of an entry, without its end; `None` when it is not listed.
    pub(crate) fn line(&self, planned: &Planned, ended: &Ended) -> Option<Vec<u8>> {
        if let Some(catalogue) = &self.catalogue {
            return Some(catalogue.line(planned, &|name| self.shown(name)));
        }
        let own = self.format.as_ref();
        let itemizes = own.map_or(self.itemize > 0, |format| format.has(Field::Itemized));
        if planned.action == Action::Delete {
            let lists = self.deletions.unwrap_or_else(|| self.lists());
            let formatted = itemizes || own.is_some_and(|format| format.has(Field::Operation));
            return lists
                .then(|| if formatted { self.formatted(planned, ended) } else { self.deleting(planned) });
        }
        if itemizes {
            let kept = is_kept(planned) && self.itemize < 2 && self.verbose < 2;
            return (!kept).then(|| self.formatted(planned, ended));
        }
        self.verbose_line(planned, ended)
    }

    fn formatted(&self, planned: &Planned, ended: &Ended) -> Vec<u8> {
        match &self.format {
            // As with rsync a column is as wide as the name is, not its escapes.
            Some(format) => {
                let fact = |field, style| self.fact((planned, ended), field, style);
                format.line(&fact, &|value| self.shown(value))
            }
            None => {
                let itemized = self.itemized(planned);
                [itemized.as_bytes(), b" ", &self.name(planned), &self.target(planned)].concat()
            }
        }
    }

    fn deleting(&self, planned: &Planned) -> Vec<u8> {
        [b"deleting ", self.name(planned).as_slice()].concat()
    }

    /// Returns what stands for a field of a format, not yet escaped.
    fn fact(&self, (planned, ended): (&Planned, &Ended), field: Field, style: Style) -> Vec<u8> {
        let facts = planned.facts.unwrap_or_default();
        match field {
            Field::Permissions if planned.facts.is_none() => b"---------".to_vec(),
            Field::Permissions => permissions(facts.mode).into_bytes(),
            Field::Modified => {
                let time = |clock: &LocalClock| clock.of_file(facts.mtime.seconds, "%Y/%m/%d-%H:%M:%S");
                self.clock.as_ref().map(time).unwrap_or_default().into_bytes()
            }
            Field::Owner => facts.uid.to_string().into_bytes(),
            Field::Group if !self.has_groups && planned.facts.is_some() => b"DEFAULT".to_vec(),
            Field::Group => facts.gid.to_string().into_bytes(),
            Field::Transferred => Number(ended.literal_bytes, style).to_string().into_bytes(),
            Field::Sums => Number(ended.signature_bytes, style).to_string().into_bytes(),
            Field::Itemized => self.itemized(planned).into_bytes(),
            Field::Length => {
                let is_link =
                    planned.kind == FileType::Symlink && !planned.changes.contains(Changes::HARD_LINK);
                let length = if is_link { planned.target.len() as u64 } else { planned.size };
                Number(length, style).to_string().into_bytes()
            }
            Field::Target => raw_target(planned),
            Field::Name => raw_name(planned),
            Field::Path => {
                let name: &[u8] = if planned.path.is_empty() { b"." } else { &planned.path };
                let at_source = !self.receives && planned.action != Action::Delete;
                if at_source { self.base.path(name) } else { name.to_vec() }
            }
            Field::Operation => match planned.action {
                Action::Delete => b"del.".to_vec(),
                _ if self.receives => b"recv".to_vec(),
                _ => b"send".to_vec(),
            },
            Field::Content => match facts.content {
                Some(hash) => hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into_bytes(),
                // As wide as a hash, as rsync's.
                None => vec![b' '; 64],
            },
            Field::Process => std::process::id().to_string().into_bytes(),
            Field::Time => self.clock.as_ref().map(LocalClock::now).unwrap_or_default().into_bytes(),

            Field::Nothing => Vec::new(),
        }
    }

    /// Returns the eleven characters of `-i`.
    fn itemized(&self, planned: &Planned) -> String {
        if planned.action == Action::Delete {
            return "*deleting  ".to_owned();
        }
        let (update, letter) = (self.update_letter(planned), type_letter(planned.kind));
        format!("{update}{letter}{}", attributes(planned))
    }

    fn verbose_line(&self, planned: &Planned, ended: &Ended) -> Option<Vec<u8>> {
        let is_directory = planned.kind == FileType::Directory;
        let level = if self.format.is_some() { self.verbose.max(1) } else { self.verbose };
        let listed_from = match planned.action {
            _ if is_kept(planned) && (is_directory || level < 2) => return None,
            _ if is_kept(planned) => return Some([&self.name(planned), b" is uptodate".as_slice()].concat()),
            // rsync does not list a file whose attributes alone are set, but does list a directory.
            Action::Retag if !is_directory => 2,
            _ => 1,
        };
        (level >= listed_from).then(|| match &self.format {
            Some(_) => self.formatted(planned, ended),
            None => [self.name(planned), self.target(planned)].concat(),
        })
    }

    /// Returns a name as it is printed.
    fn shown(&self, name: &[u8]) -> Vec<u8> {
        if self.eight_bit { eight_bit(name) } else { Escaped(name).to_string().into_bytes() }
    }

    fn name(&self, planned: &Planned) -> Vec<u8> {
        self.shown(&raw_name(planned))
    }

    fn target(&self, planned: &Planned) -> Vec<u8> {
        self.shown(&raw_target(planned))
    }

    fn update_letter(&self, planned: &Planned) -> char {
        match (planned.action, planned.kind) {
            _ if planned.changes.contains(Changes::HARD_LINK) => 'h',
            (Action::Create | Action::Update, FileType::File) if self.sends => '<',
            (Action::Create | Action::Update, FileType::File) => '>',
            (Action::Create | Action::Update, _) | (Action::Reuse, _) => 'c',
            (Action::Link, _) => 'h',
            _ => '.',
        }
    }
}

/// Returns whether rsync treats the entry as up to date, be it elsewhere.
fn is_kept(planned: &Planned) -> bool {
    match planned.action {
        Action::Keep | Action::Link => true,
        Action::Reuse => planned.changes.is_empty(),
        _ => false,
    }
}

fn type_letter(kind: FileType) -> char {
    match kind {
        FileType::File => 'f',
        FileType::Directory => 'd',
        FileType::Symlink => 'L',
        FileType::CharDevice | FileType::BlockDevice => 'D',
        FileType::Fifo | FileType::Socket => 'S',
        _ => '?',
    }
}

/// Returns the nine characters `cstpoguax`.
fn attributes(planned: &Planned) -> Cow<'static, str> {
    let changes = planned.changes;
    match planned.action {
        Action::Create => return "+++++++++".into(),
        Action::Keep | Action::Link => return "         ".into(),
        Action::Retag | Action::Reuse if changes.is_empty() => return "         ".into(),
        _ if changes == Changes::HARD_LINK => return "         ".into(),
        _ => {}
    }
    let mark = |change: Changes, letter: char| if changes.contains(change) { letter } else { '.' };
    let time = if changes.contains(Changes::TIME) { 't' } else { mark(Changes::TIME_NOW, 'T') };
    let marks = [
        mark(Changes::CONTENT, 'c'),
        mark(Changes::SIZE, 's'),
        time,
        mark(Changes::PERMS, 'p'),
        mark(Changes::OWNER, 'o'),
        mark(Changes::GROUP, 'g'),
        mark(Changes::ACCESS_TIME, 'u'),
        mark(Changes::ACL, 'a'),
        mark(Changes::XATTRS, 'x'),
    ];
    marks.into_iter().collect::<String>().into()
}

/// Returns permission bits in letters, as `rwsr-x--T`.
pub(crate) fn permissions(mode: u16) -> String {
    let class = |shift: u16, special: u16, letter: char| {
        let bits = mode >> shift;
        let bit = |mask: u16, letter: char| if bits & mask == 0 { '-' } else { letter };
        let last = match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, _) => bit(1, 'x'),
        };
        [bit(4, 'r'), bit(2, 'w'), last]
    };
    [class(6, 0o4000, 's'), class(3, 0o2000, 's'), class(0, 0o1000, 't')].concat().into_iter().collect()
}

/// Says in words why something is done with an entry: what it differs in.
pub(crate) fn reasons(planned: &Planned) -> String {
    let differs = [
        (Changes::CONTENT, "content"),
        (Changes::SIZE, "size"),
        (Changes::TIME, "time"),
        (Changes::TIME_NOW, "time of the transfer"),
        (Changes::PERMS, "permissions"),
        (Changes::OWNER, "owner"),
        (Changes::GROUP, "group"),
        (Changes::ACCESS_TIME, "access time"),
        (Changes::ACL, "access control list"),
        (Changes::XATTRS, "extended attributes"),
        (Changes::HARD_LINK, "another name of a file"),
    ];

    let words: Vec<&str> = differs
        .iter()
        .filter(|(change, _)| planned.changes.contains(*change))
        .map(|&(_, word)| word)
        .collect();

    match (planned.action, words.is_empty()) {
        (_, false) => words.join(", "),
        (Action::Keep, true) => "up to date or left alone by an option".to_owned(),
        (Action::Create, true) => "not there".to_owned(),
        (Action::Delete, true) => "not at the source".to_owned(),
        (Action::Update, true) => "asked for whatever it is like".to_owned(),
        (_, true) => "equal to an entry of an alternate directory".to_owned(),
    }
}

/// Returns the name, with a `/` behind a directory's.
fn raw_name(planned: &Planned) -> Vec<u8> {
    let slash: &[u8] = if planned.kind == FileType::Directory { b"/" } else { b"" };
    let path: &[u8] = if planned.path.is_empty() { b"." } else { &planned.path };
    [path, slash].concat()
}

/// Returns the target of a link, or what a file is made from, with its arrow; empty for anything else.
fn raw_target(planned: &Planned) -> Vec<u8> {
    if planned.changes.contains(Changes::HARD_LINK) && planned.action != Action::Keep {
        [b" => ", planned.target.as_slice()].concat()
    } else if planned.kind == FileType::Symlink && planned.action != Action::Delete {
        [b" -> ", planned.target.as_slice()].concat()
    } else if planned.is_made_from() {
        [b" <- ", planned.target.as_slice()].concat()
    } else {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(action: Action, kind: FileType, changes: &[Changes], path: &str) -> Planned {
        let mut set = Changes::NONE;
        changes.iter().for_each(|&change| set.insert(change));
        let target = if kind == FileType::Symlink { b"a".to_vec() } else { Vec::new() };
        Planned::new(action, kind, path).changes(set).target(target).size(0).facts(None)
    }

    fn line(verbose: u8, itemize: u8, planned: &Planned) -> Option<String> {
        let listing = Listing { verbose, itemize, ..Listing::default() };
        listing.line(planned, &Ended::default()).map(|line| String::from_utf8_lossy(&line).into_owned())
    }

    /// Each line as rsync 3.5.0 printed it for such a change.
    #[test]
    fn itemized_lines_are_those_of_rsync() {
        use {Action::*, Changes as C, FileType as F};
        let cases = [
            (planned(Create, F::Directory, &[], ""), "cd+++++++++ ./"),
            (planned(Create, F::File, &[], "a"), ">f+++++++++ a"),
            (planned(Create, F::Symlink, &[], "l"), "cL+++++++++ l -> a"),
            (planned(Create, F::CharDevice, &[], "c"), "cD+++++++++ c"),
            (planned(Create, F::Fifo, &[], "p"), "cS+++++++++ p"),
            (planned(Create, F::Directory, &[], "d"), "cd+++++++++ d/"),
            (planned(Create, F::File, &[], "d/x"), ">f+++++++++ d/x"),
            (planned(Create, F::File, &[], "new\nline"), ">f+++++++++ new\\#012line"),
            (planned(Create, F::File, &[], "esc\\#123x"), ">f+++++++++ esc\\#134#123x"),
            (planned(Retag, F::File, &[C::PERMS], "a"), ".f...p..... a"),
            (planned(Retag, F::File, &[C::ACL], "a"), ".f.......a. a"),
            (planned(Retag, F::Directory, &[C::PERMS, C::ACL, C::XATTRS], "d"), ".d...p...ax d/"),
            (planned(Update, F::File, &[C::TIME], "b"), ">f..t...... b"),
            (planned(Update, F::File, &[C::SIZE], "f"), ">f.s....... f"),
            (planned(Update, F::File, &[C::SIZE, C::TIME_NOW], "f"), ">f.sT...... f"),
            (planned(Update, F::File, &[C::CONTENT, C::SIZE], "f"), ">fcs....... f"),
            (planned(Update, F::File, &[], "f"), ">f......... f"),
            (planned(Retag, F::Symlink, &[C::TIME], "l"), ".L..t...... l -> a"),
            (planned(Update, F::Symlink, &[C::CONTENT], "l"), "cLc........ l -> a"),
            (planned(Update, F::Symlink, &[C::CONTENT, C::TIME_NOW], "l"), "cLc.T...... l -> a"),
            (planned(Update, F::BlockDevice, &[C::CONTENT], "c"), "cDc........ c"),
            (planned(Retag, F::Fifo, &[C::OWNER], "p"), ".S....o.... p"),
            (planned(Retag, F::Directory, &[C::PERMS], "d"), ".d...p..... d/"),
            (planned(Retag, F::Directory, &[C::TIME, C::OWNER, C::GROUP], ""), ".d..t.og... ./"),
            (planned(Delete, F::File, &[], "d/x"), "*deleting   d/x"),
            (planned(Delete, F::Directory, &[], "d"), "*deleting   d/"),
        ];
        for (planned, expected) in cases {
            assert_eq!(line(0, 1, &planned).as_deref(), Some(expected));
        }
        let linked = |action, kind, changes: &[C]| {
            let changes = [changes, &[C::HARD_LINK]].concat();
            planned(action, kind, &changes, "b").target(b"a".to_vec())
        };
        for (planned, expected) in [
            (linked(Create, F::File, &[]), "hf+++++++++ b => a"),
            (linked(Create, F::Symlink, &[]), "hL+++++++++ b => a"),
            (linked(Update, F::File, &[]), "hf          b => a"),
            (linked(Update, F::File, &[C::SIZE, C::TIME]), "hf.st...... b => a"),
            (linked(Keep, F::File, &[]).target(Vec::new()), "hf          b"),
            (linked(Keep, F::Symlink, &[]), "hL          b -> a"),
        ] {
            assert_eq!(line(0, 2, &planned).as_deref(), Some(expected));
        }
        let moved = planned(Create, F::File, &[], "new/a").target(b"old/a".to_vec());
        assert_eq!(line(0, 1, &moved).as_deref(), Some(">f+++++++++ new/a <- old/a"));
        let kept = planned(Keep, F::File, &[], "a");
        assert_eq!(line(0, 2, &kept).as_deref(), Some(".f          a"));
        assert_eq!(line(0, 1, &kept), None);
    }

    #[test]
    fn files_that_are_sent_point_the_other_way() {
        let sends = Listing { itemize: 1, sends: true, ..Listing::default() };
        let line = |planned: &Planned| {
            sends.line(planned, &Ended::default()).map(|line| String::from_utf8_lossy(&line).into_owned())
        };
        let file = planned(Action::Create, FileType::File, &[], "a");
        assert_eq!(line(&file).as_deref(), Some("<f+++++++++ a"));
        let directory = planned(Action::Create, FileType::Directory, &[], "d");
        assert_eq!(line(&directory).as_deref(), Some("cd+++++++++ d/"));
    }

    #[test]
    fn permissions_are_letters_as_in_a_list() {
        for (mode, letters) in [
            (0o644, "rw-r--r--"),
            (0o4751, "rwsr-x--x"),
            (0o1777, "rwxrwxrwt"),
            (0o7000, "--S--S--T"),
            (0o2010, "-----s---"),
        ] {
            assert_eq!(permissions(mode), letters);
        }
    }

    #[test]
    fn paths_are_those_of_the_source() {
        let path = |operands: &[&str], name: &str| {
            let base = Base(operands.iter().map(PathBuf::from).collect());
            String::from_utf8(base.path(name.as_bytes())).unwrap_or_default()
        };
        // Each as rsync 3.5.0 printed `%f`.
        assert_eq!(path(&["o1/"], "."), "o1/.");
        assert_eq!(path(&["o1/"], "sub/b"), "o1/sub/b");
        assert_eq!(path(&["d2"], "d2/sub/b"), "d2/sub/b");
        assert_eq!(path(&["/x/d2"], "d2/sub"), "/x/d2/sub");
        assert_eq!(path(&["."], "a"), "a");
        // Both could have it.
        assert_eq!(path(&["o1/", "o2/"], "a"), "a");
        assert_eq!(path(&["/x/a", "/y/b"], "b/c"), "/y/b/c");
    }

    #[test]
    fn verbose_list_is_that_of_rsync() {
        use {Action::*, Changes as C, FileType as F};
        let shown = |verbose, planned: &Planned| line(verbose, 0, planned).unwrap_or_default();
        let tagged = planned(Retag, F::File, &[C::PERMS], "a");
        assert_eq!([shown(0, &tagged), shown(1, &tagged), shown(2, &tagged)], ["", "", "a"]);
        let directory = planned(Retag, F::Directory, &[C::PERMS], "d");
        assert_eq!([shown(0, &directory), shown(1, &directory)], ["", "d/"]);
        let kept = planned(Keep, F::File, &[], "a");
        assert_eq!([shown(1, &kept), shown(2, &kept)], ["", "a is uptodate"]);
        assert_eq!(shown(2, &planned(Keep, F::Directory, &[], "d")), "");
        assert_eq!(shown(1, &planned(Create, F::Symlink, &[], "l2")), "l2 -> a");
        assert_eq!(shown(1, &planned(Update, F::File, &[C::TIME], "b")), "b");
        assert_eq!(shown(1, &planned(Delete, F::Directory, &[], "d")), "deleting d/");
        assert_eq!(shown(0, &planned(Delete, F::Directory, &[], "d")), "");
    }
}
