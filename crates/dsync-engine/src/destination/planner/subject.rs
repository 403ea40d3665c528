//! An entry of the source's listing on its way through the planner, and the state that was found of
//! it.

use std::sync::Arc;

use dsync_fs::{Component, Kind, Metadata, RelPath, SharedPath};
use dsync_wire::{
    event::{Action, Changes, Facts, Planned},
    message::{Attributes, Cause, Entry, EntryId, EntryKind, Operation, Problem},
    options::SyncOptions,
};

use super::{
    super::{Site, credit::PartTicket, directory::Directory, links::FirstName, protection::Protection},
    merge::entry_path,
    place::Place,
};
use crate::plan::file_type;

/// The entries of the same part of the listing, and an entry's position among them.
#[derive(Clone, Copy)]
pub(super) struct Siblings<'a> {
    pub(super) entries: &'a [Entry],
    pub(super) position: usize,
}

/// An entry that is being planned.
pub(super) struct Subject<'a> {
    pub(super) id: EntryId,
    pub(super) entry: &'a Entry,
    pub(super) siblings: Siblings<'a>,
    /// The part of the listing that it came with.
    pub(super) part: &'a Arc<PartTicket>,
    /// The destination's directory that it goes to.
    pub(super) directory: &'a Arc<Directory>,
    /// Its name there.
    pub(super) name: Component,
    pub(super) path: RelPath,
    /// The text of the destination's link of this name, if the listing was made of it.
    pub(super) own_text: Option<&'a [u8]>,
}

/// The state of an entry before it is planned.
pub(super) struct Found {
    /// The destination's entry of its name, through a link that may be followed.
    pub(super) existing: Option<Metadata>,
    /// Set when that is a link which may neither be followed nor give way.
    pub(super) untrusted: bool,
    /// The names of the same file, if it has several.
    pub(super) group: Option<usize>,
    /// The one of them that the others are linked to, if it is planned already.
    pub(super) first: Option<FirstName>,
}

impl Subject<'_> {
    /// Returns where the entry goes; `displaced` has the name until it takes it.
    pub(super) fn place<'b>(
        &'b self,
        site: &'b Site<'b>,
        protection: &'b Protection,
        displaced: Option<Kind>,
    ) -> Place<'b> {
        Place {
            site,
            directory: self.directory,
            name: &self.name,
            path: &self.path,
            entry: self.id,
            protection,
            displaced,
            first_name: None,
        }
    }

    /// Looks at the destination's entry of its name; `None` without one, or where it cannot be looked at.
    pub(super) fn existing(&self) -> Option<Metadata> {
        self.directory.dir.as_ref()?.stat(&self.name).ok()
    }

    /// Returns its path for the paths of its own entries.
    pub(super) fn shared(&self) -> SharedPath {
        self.directory.shared.join(&self.name)
    }

    /// Returns its path as the source has it.
    pub(super) fn listed_path(&self) -> Vec<u8> {
        entry_path(self.directory.path.as_bytes(), self.entry)
    }

    /// Returns the size of a file.
    pub(super) fn file_size(&self) -> Option<u64> {
        if let EntryKind::File { size, .. } = self.entry.kind { Some(size) } else { None }
    }

    /// Returns a problem with its name at the destination.
    pub(super) fn problem(&self, operation: Operation, cause: Cause) -> Problem {
        Problem::new(operation, self.path.as_bytes().to_vec(), cause)
    }

    /// Counts the plan for the entry. Returns it, to be told.
    pub(super) fn plan(
        &self,
        site: &Site<'_>,
        action: Action,
        changes: Changes,
        target: Vec<u8>,
    ) -> Option<Planned> {
        let kind = file_type(&self.entry.kind)?;
        let size = self.file_size().unwrap_or(0);
        let facts = self.facts(&site.policy.options);
        let planned = Planned::new(action, kind, self.listed_path())
            .changes(changes)
            .target(target)
            .size(size)
            .facts(facts);
        site.account.count(&planned);
        Some(planned)
    }

    /// Returns what is told of the entry, if its end is.
    pub(super) fn facts(&self, options: &SyncOptions) -> Option<Facts> {
        let content = self.listed_content().filter(|_| options.event_contents);
        options.event_ends.then(|| facts(&self.entry.attributes).content(content))
    }

    /// Returns the hash of a file's content, if the listing has it.
    pub(super) fn listed_content(&self) -> Option<[u8; 32]> {
        if let EntryKind::File { content, .. } = self.entry.kind { content } else { None }
    }

    /// Returns the text of a symbolic link; of other entries nothing.
    pub(super) fn link_text(&self) -> Vec<u8> {
        if let EntryKind::Symlink { target } = &self.entry.kind { target.clone() } else { Vec::new() }
    }
}

/// Returns what is told of an entry at the source.
pub(super) fn facts(attributes: &Attributes) -> Facts {
    let Attributes { mode, mtime, uid, gid, .. } = *attributes;
    Facts::default().number(0).mode(mode).mtime(mtime).uid(uid).gid(gid)
}
