//! One line on standard output for one entry: rsync's `-i` format and its `-v` list, byte for byte.
//!
//! Wrappers parse these lines, so their shape follows rsync 3.5.0 even where another would be
//! nicer: eleven characters `YXcstpoguax` and a space, `*deleting` padded to the same width,
//! directories with a trailing `/`, links with their target, and the root of the transfer as `./`.
//! [`crate::escape`] escapes names; the one difference from rsync is that a tab is escaped as well.

use std::borrow::Cow;

use dsync_engine::{Action, Changes, FileType, Planned};

use crate::escape::Escaped;

/// The entries and the format of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listing {
    /// Number of `-v`.
    pub(crate) verbose: u8,
    /// Number of `-i`.
    pub(crate) itemize: u8,
    /// Whether files go to a remote host: `<`, else `>`.
    pub(crate) sends: bool,
}

impl Listing {
    /// Returns the line of an entry, without its end; `None` if it is not listed.
    pub(crate) fn line(&self, planned: &Planned) -> Option<String> {
        if self.itemize > 0 { self.itemized(planned) } else { self.verbose_line(planned) }
    }

    fn itemized(&self, planned: &Planned) -> Option<String> {
        if planned.action == Action::Delete {
            return Some(format!("*deleting   {}", name(planned)));
        }
        if is_kept(planned) && self.itemize < 2 && self.verbose < 2 {
            return None;
        }
        let (update, letter) = (self.update_letter(planned), type_letter(planned.kind));
        Some(format!("{update}{letter}{} {}{}", attributes(planned), name(planned), target(planned)))
    }

    fn verbose_line(&self, planned: &Planned) -> Option<String> {
        let is_directory = planned.kind == FileType::Directory;
        let listed_from = match planned.action {
            Action::Delete => return (self.verbose > 0).then(|| format!("deleting {}", name(planned))),
            _ if is_kept(planned) && (is_directory || self.verbose < 2) => return None,
            _ if is_kept(planned) => return Some(format!("{} is uptodate", name(planned))),
            // rsync does not list a file of which only attributes are set, but does list a
            // directory.
            Action::Retag if !is_directory => 2,
            _ => 1,
        };
        (self.verbose >= listed_from).then(|| format!("{}{}", name(planned), target(planned)))
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

fn name(planned: &Planned) -> String {
    let slash = if planned.kind == FileType::Directory { "/" } else { "" };
    let path: &[u8] = if planned.path.is_empty() { b"." } else { &planned.path };
    format!("{}{slash}", Escaped(path))
}

fn target(planned: &Planned) -> String {
    if planned.changes.contains(Changes::HARD_LINK) && planned.action != Action::Keep {
        format!(" => {}", Escaped(&planned.target))
    } else if planned.kind == FileType::Symlink {
        format!(" -> {}", Escaped(&planned.target))
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(action: Action, kind: FileType, changes: &[Changes], path: &str) -> Planned {
        let mut set = Changes::NONE;
        changes.iter().for_each(|&change| set.insert(change));
        let target = if kind == FileType::Symlink { b"a".to_vec() } else { Vec::new() };
        Planned { action, kind, changes: set, path: path.into(), target, size: 0 }
    }

    fn line(verbose: u8, itemize: u8, planned: &Planned) -> Option<String> {
        Listing { verbose, itemize, sends: false }.line(planned)
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
            Planned { target: b"a".to_vec(), ..planned(action, kind, &changes, "b") }
        };
        for (planned, expected) in [
            (linked(Create, F::File, &[]), "hf+++++++++ b => a"),
            (linked(Create, F::Symlink, &[]), "hL+++++++++ b => a"),
            (linked(Update, F::File, &[]), "hf          b => a"),
            (linked(Update, F::File, &[C::SIZE, C::TIME]), "hf.st...... b => a"),
            (Planned { target: Vec::new(), ..linked(Keep, F::File, &[]) }, "hf          b"),
            (linked(Keep, F::Symlink, &[]), "hL          b -> a"),
        ] {
            assert_eq!(line(0, 2, &planned).as_deref(), Some(expected));
        }
        let kept = planned(Keep, F::File, &[], "a");
        assert_eq!(line(0, 2, &kept).as_deref(), Some(".f          a"));
        assert_eq!(line(0, 1, &kept), None);
    }

    #[test]
    fn files_that_are_sent_point_the_other_way() {
        let sends = Listing { verbose: 0, itemize: 1, sends: true };
        let file = planned(Action::Create, FileType::File, &[], "a");
        assert_eq!(sends.line(&file).as_deref(), Some("<f+++++++++ a"));
        let directory = planned(Action::Create, FileType::Directory, &[], "d");
        assert_eq!(sends.line(&directory).as_deref(), Some("cd+++++++++ d/"));
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
