//! The place of one entry, and the making of the entry there.
//!
//! An old entry keeps the name until the new one can take it: then the two change places and the
//! old one goes. All changes go through the run's [`Hands`](super::super::hands::Hands).

use std::{cell::Cell, io, sync::Arc};

use dsync_fs::{Component, Dir, Kind, RelPath, Wanted, Withheld, reap_left};
use dsync_wire::{
    event::{Action, FileType},
    message::{EntryId, Operation},
};

use super::super::{
    Site,
    alternate::Alternate,
    delayed,
    directory::Directory,
    late::Late,
    protection::Protection,
    removal::{self, Doomed},
    secure,
};
use crate::SyncError;

/// Linux's `EEXIST`: a name is taken where nothing may be replaced.
pub(super) const FILE_EXISTS: i32 = 17;

/// The place of an entry.
pub(super) struct Place<'a> {
    pub(super) site: &'a Site<'a>,
    pub(super) directory: &'a Arc<Directory>,
    pub(super) name: &'a Component,
    pub(super) path: &'a RelPath,
    pub(super) entry: EntryId,
    /// The rules for entries that stay when a directory gives way.
    pub(super) protection: &'a Protection,
    /// The type of the entry that has the name until this one takes it.
    pub(super) displaced: Option<Kind>,
    /// Its number as the first of several names.
    pub(super) first_name: Option<u64>,
}

/// A complete file that an earlier run left.
pub(super) struct Finished {
    /// The name that it has.
    pub(super) name: Component,
    /// The attributes that it gets.
    pub(super) wanted: Wanted,
}

/// Whether an entry is there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Placed {
    /// The destination has the entry.
    Here,
    /// It is asked for or is not this run's.
    Open,
    /// It could not get its attributes.
    Undressed,
    /// A link or another special entry could not be made.
    Failed,
}

/// The maker of a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    /// This planner, just now.
    Now,
    /// Another one, for another directory of the source.
    Before,
    /// Nobody: it failed, which is reported.
    Not,
}

impl Place<'_> {
    /// Returns the old entry, which has the name or had it and is called `now`.
    pub(super) fn doomed<'b>(&'b self, now: &'b Component, kind: Kind) -> Doomed<'b> {
        Doomed { parent: &self.directory.path, name: self.name, now, kind }
    }

    /// Makes an entry under its name, or beside it where another has the name: then the two change
    /// places and the other one goes.
    pub(super) fn make(
        &self,
        operation: Operation,
        dir: &Arc<Dir>,
        make: impl Fn(&Component) -> io::Result<()>,
    ) -> Result<bool, SyncError> {
        let Some(kind) = self.displaced else { return self.done(operation, make(self.name)) };
        let temp = match dsync_fs::temp_name().and_then(|temp| make(&temp).map(|()| temp)) {
            Ok(temp) => temp,
            Err(error) => return self.done(operation, Err(error)),
        };

        let hands = &self.site.hands;
        let secured = secure::secure(self.site, dir, &self.directory.path, self.name, Some(self.protection));
        let taken = secured.map(|secured| secured.and_then(|()| hands.take_name(dir, &temp, self.name)));
        match taken {
            // As with rsync, only the entries that are removed with a directory are reported.
            Ok(Ok(Some(old))) if kind == Kind::Dir => {
                let gone = removal::make_way(self.site, dir, self.doomed(&old, kind), self.protection)?;
                if gone.is_err() {
                    // Some of what was in it may be gone.
                    self.directory.touch();
                }
                self.done(operation, gone)
            }
            // An entry that must be kept has another name by now.
            Ok(Ok(Some(old))) => self.done(operation, hands.remove_file(dir, &old)),
            Ok(Ok(None)) => self.done(operation, Ok(())),
            failed => {
                // The next run removes its remains.
                let _ = hands.remove_file(dir, &temp).or_else(|_| hands.remove_empty_directory(dir, &temp));
                // Of an old directory some may have gone to its backup.
                self.directory.touch();
                self.done(operation, failed?.map(|_| ()))
            }
        }
    }

    /// Returns whether an entry of another spelling stands for the name, which was found free: the
    /// filesystem takes both for one. Reads the directory if anything has the name.
    pub(super) fn is_taken(&self, dir: &Dir) -> bool {
        dir.stat(self.name).is_ok() && dir.lists(self.name).is_ok_and(|is_listed| !is_listed)
    }

    /// Makes a directory. With `keep_dirlinks` two directories of the source may be one here, and the other one's
    /// planner be faster.
    pub(super) fn make_directory(&self, dir: &Arc<Dir>, mode: u16) -> Result<Made, SyncError> {
        let is_there = Cell::new(false);
        let make = |name: &Component| match self.site.hands.make_directory(dir, name, mode) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let found = dir.stat(name).is_ok_and(|found| found.kind == Kind::Dir);
                is_there.set(found && self.site.policy.options.keep_dirlinks);
                if is_there.get() { Ok(()) } else { Err(error) }
            }
            made => made,
        };
        let made = self.make(Operation::CreateDirectory, dir, make)?;
        Ok(match made {
            true if is_there.get() => Made::Before,
            true => Made::Now,
            false => Made::Not,
        })
    }

    /// Removes the empty directory that has the name. Returns whether the name is free.
    pub(super) fn clear(&self) -> Result<bool, SyncError> {
        let Some(dir) = &self.directory.dir else { return Ok(true) };
        let hands = &self.site.hands;
        // An entry that has come meanwhile keeps the directory.
        let _ = hands.reap(|| dir.open_child(self.name).map(|child| reap_left(&child)).is_ok());
        self.done(Operation::Delete, hands.remove_empty_directory(dir, self.name))
    }

    /// Sets the attributes of the entry that has the name already.
    pub(super) fn dress(&self, kind: Kind, wanted: &Wanted) -> Result<Placed, SyncError> {
        let Some(dir) = &self.directory.dir else { return Ok(Placed::Open) };
        let dress = || self.site.hands.dress(dir, self.name, kind, wanted);
        let set = if kind == Kind::File { self.site.carrying(dir, self.name, dress) } else { dress() };
        if set.is_ok() {
            self.site.touched(dir);
        }
        Ok(if self.dressed(set)? { Placed::Here } else { Placed::Undressed })
    }

    /// Sets the attributes of an old file. Returns `false`, and reports nothing, if they cannot be set.
    pub(super) fn dress_old(&self, wanted: &Wanted) -> Result<bool, SyncError> {
        let Some(dir) = &self.directory.dir else { return Ok(true) };
        let dress = || self.site.hands.dress(dir, self.name, Kind::File, wanted);
        let set = self.site.carrying(dir, self.name, dress);
        if !set.as_ref().is_ok_and(|withheld| withheld.plain.is_none()) {
            return Ok(false);
        }
        self.site.touched(dir);
        self.dressed(set)
    }

    /// Sets the attributes of a complete file of an earlier run, and names it now or at the end of
    /// the run. `is_new`: whether its name was found free.
    pub(super) fn take_up(&self, size: u64, finished: &Finished, is_new: bool) -> Result<Placed, SyncError> {
        let Some(dir) = &self.directory.dir else { return Ok(Placed::Open) };
        if is_new && self.is_taken(dir) {
            self.report(Operation::Commit, Err(io::Error::from_raw_os_error(FILE_EXISTS)))?;
            return Ok(Placed::Failed);
        }
        let Finished { name, wanted } = finished;
        let hands = &self.site.hands;
        if !self.dressed(hands.dress(dir, name, Kind::File, wanted))? {
            return Ok(Placed::Failed);
        }

        self.site.account.received(0, size, 0);
        if self.site.delayed.get().is_some() {
            self.note_late(FileType::File, name.clone(), true)?;
            return Ok(Placed::Open);
        }
        let backup = secure::keep(self.site, self.directory, self.name)?;
        let named = backup.and_then(|()| hands.rename(dir, name, self.name));
        Ok(if self.done(Operation::Commit, named)? { Placed::Here } else { Placed::Failed })
    }

    /// Links a file of an alternate directory here. Returns `None` when it cannot be linked.
    pub(super) fn link(&self, found: &Alternate) -> Result<Option<Placed>, SyncError> {
        let Some(dir) = &self.directory.dir else { return Ok(Some(self.made())) };
        let hands = &self.site.hands;
        let link = |name: &Component| self.link_as(dir, name, found);
        if self.site.delayed.get().is_some() {
            let made = self.make_late(FileType::File, false, link)?;
            return Ok(made.ok().map(|()| self.made()));
        }

        let linked = if self.displaced.is_some() {
            // Tried before anything is moved out of the way; if there can be no link, a copy takes
            // the name.
            let probe = dsync_fs::temp_name()
                .and_then(|probe| link(&probe).and_then(|()| hands.remove_file(dir, &probe)));
            if probe.is_err() {
                return Ok(None);
            }
            self.make(Operation::WriteFile, dir, link)?
        } else {
            let kept = self.keep_other(found)?;
            if kept.and_then(|()| link(self.name)).is_err() {
                return Ok(None);
            }
            self.done(Operation::WriteFile, Ok(()))?
        };
        Ok(Some(if linked { self.made() } else { Placed::Failed }))
    }

    /// Links a file of an alternate directory as `name`, and sets the access time, which all its names share.
    fn link_as(&self, dir: &Dir, name: &Component, found: &Alternate) -> io::Result<()> {
        self.site.carrying(&found.dir, self.name, || self.make_link(dir, name, found))
    }

    fn make_link(&self, dir: &Dir, name: &Component, found: &Alternate) -> io::Result<()> {
        let hands = &self.site.hands;
        hands.make_hard_link(dir, name, &found.dir, self.name)?;
        let Some(atime) = found.access_time else { return Ok(()) };
        // Only the owner may set that: where this fails a copy has it, and takes the name.
        let wanted = Wanted { atime: Some(atime), ..Wanted::default() };
        let set = hands.dress(dir, name, found.metadata.kind, &wanted).map(|_| ());
        if set.is_err() && name != self.name {
            hands.remove_file(dir, name)?;
        }
        set
    }

    /// Removes the old entry of a file that an alternate directory makes needless. Returns `false`, and
    /// reports nothing, if it cannot be removed and may stay.
    pub(super) fn drop_old(&self, old: Kind, found: &Alternate) -> Result<bool, SyncError> {
        let Some(dir) = &self.directory.dir else { return Ok(true) };
        if let Some(kind) = self.displaced {
            removal::remove(self.site, dir, self.doomed(self.name, kind), self.protection)?;
            return self.done(Operation::Delete, Ok(()));
        }
        if old == Kind::Dir {
            // It was empty and is gone already.
            return Ok(true);
        }
        let kept = self.keep_other(found)?;
        let removed = kept.and_then(|()| self.site.hands.remove_file(dir, self.name));
        if removed.is_err() && found.own.is_some() {
            return Ok(false);
        }
        self.done(Operation::Delete, removed).map(|_| true)
    }

    /// Backs up an old file before one of an alternate directory takes its place, unless they are the
    /// same to the run. That two files of equal size and time are the same is the client's word, which
    /// counts for nothing where what it replaces is kept from it.
    fn keep_other(&self, found: &Alternate) -> Result<io::Result<()>, SyncError> {
        if found.adds_nothing && self.site.keep.is_none() {
            return Ok(Ok(()));
        }
        secure::keep(self.site, self.directory, self.name)
    }

    /// Returns where an entry is that was just made.
    pub(super) fn made(&self) -> Placed {
        if self.site.delayed.get().is_some() { Placed::Open } else { Placed::Here }
    }

    /// Makes an entry that gets its name at the end of the run. `sent`: whether the run brings it.
    pub(super) fn make_late(
        &self,
        kind: FileType,
        sent: bool,
        make: impl Fn(&Component) -> io::Result<()>,
    ) -> Result<io::Result<()>, SyncError> {
        match dsync_fs::temp_name().and_then(|temp| make(&temp).map(|()| temp)) {
            Ok(temp) => self.note_late(kind, temp, sent).map(Ok),
            Err(error) => Ok(Err(error)),
        }
    }

    fn note_late(&self, kind: FileType, temp: Component, sent: bool) -> Result<(), SyncError> {
        let Some(delayed) = self.site.delayed.get() else { return Ok(()) };
        let late = Late {
            directory: self.directory.path.clone(),
            name: self.name.clone(),
            temp,
            entry: self.entry,
            action: Action::Update,
            kind,
            size: 0,
            displaces: self.displaced == Some(Kind::Dir),
            is_new: false,
            first_name: self.first_name,
            keeps_newer: None,
            basis: None,
            sent,
            cloned: false,
        };
        delayed::note(self.site, delayed, self.directory, &late)
    }

    /// Notes that the directory was changed, or reports why it was not. Returns whether it was.
    pub(super) fn done(&self, operation: Operation, result: io::Result<()>) -> Result<bool, SyncError> {
        if result.is_ok() {
            self.directory.touch();
            if let Some(dir) = &self.directory.dir {
                self.site.touched(dir);
            }
        }
        self.report(operation, result)
    }

    /// Reports why attributes could not be set, or which are lacking. Returns whether the others are set.
    fn dressed(&self, set: io::Result<Withheld>) -> Result<bool, SyncError> {
        let withheld = set.as_ref().copied().unwrap_or_default();
        self.site.withheld(self.path, withheld)?;
        self.report(Operation::SetAttributes, set.map(drop))
    }

    /// Reports why something could not be done. Returns whether it was done.
    pub(super) fn report(&self, operation: Operation, result: io::Result<()>) -> Result<bool, SyncError> {
        match result {
            Ok(()) => Ok(true),
            Err(error) => {
                let cause = self.site.cause_or_fatal(operation, self.path, error)?;
                self.site.problem(operation, self.path, cause)?;
                Ok(false)
            }
        }
    }
}
