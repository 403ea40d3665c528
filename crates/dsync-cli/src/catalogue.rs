//! `--list-only`, or a single operand: the source's entries, a line each in rsync's format.
//!
//! Type and permissions as ls(1) writes them, size, modification time, name. As with rsync a
//! directory has no `/` behind its name, and a link's target is shown under `-l` only.

use dsync_engine::{FileType, Planned};

use crate::{
    listing::permissions,
    log::LocalClock,
    numbers::{Number, Style},
};

/// The form of the list.
#[derive(Debug, Clone)]
pub(crate) struct Catalogue {
    pub(crate) style: Style,
    /// Whether links are shown with their targets.
    pub(crate) targets: bool,
    pub(crate) clock: LocalClock,
}

impl Catalogue {
    /// Returns the line of an entry; `shown` makes names printable.
    pub(crate) fn line(&self, entry: &Planned, shown: &dyn Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
        let facts = entry.facts.unwrap_or_default();
        let is_link = entry.kind == FileType::Symlink;
        let size = Number(if is_link { entry.target.len() as u64 } else { entry.size }, self.style);
        // rsync's columns.
        let width = if self.style == Style::Plain { 11 } else { 14 };
        let time = self.clock.of_file(facts.mtime.seconds, "%Y/%m/%d %H:%M:%S");
        let (letter, mode) = (type_letter(entry.kind), permissions(facts.mode));

        let mut line = format!("{letter}{mode} {:>width$} {time} ", size.to_string()).into_bytes();
        line.extend(shown(if entry.path.is_empty() { b"." } else { &entry.path }));
        if is_link && self.targets {
            line.extend(b" -> ");
            line.extend(shown(&entry.target));
        }
        line
    }
}

fn type_letter(kind: FileType) -> char {
    match kind {
        FileType::File => '-',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
        _ => '?',
    }
}
