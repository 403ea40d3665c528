//! Carries out the plan for one entry: makes it, sets its attributes, asks for its content, or clears its way.

mod claims;
mod special;
mod way;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use dsync_fs::{Component, Dir, Kind, Metadata, RelPath, SharedPath, Wanted};
use dsync_wire::{
    event::{Action, Changes, FileType, Planned},
    message::{ControlMessage, Entry, EntryId, EntryKind, Operation},
    options::Append,
};

pub(super) use way::Way;

use super::{Announced, Planner, Presence, listed_path};
use crate::{
    SyncError,
    destination::{
        alternate::Alternate,
        credit::PartTicket,
        delayed,
        delete::{self, Doomed},
        directory::Directory,
        files::{Displaced, Pending},
        late::Late,
        secure,
        slot::{Slot, Tail, Twin},
    },
    plan::{Decision, file_type},
};

/// What there is of a file before it arrives.
pub(super) struct Old<'a> {
    pub(super) existing: Option<&'a Metadata>,
    pub(super) alternate: Option<Alternate>,
}

impl Old<'_> {
    /// What keeping it comes to: it may be left alone for another reason than being equal.
    fn kept(&self, decision: &Decision) -> Placed {
        let equal = decision.placed && self.existing.is_some() && self.alternate.is_none();
        if equal { Placed::Here } else { Placed::Open }
    }
}

/// Where an entry lands.
pub(super) struct Place<'a> {
    pub(super) directory: &'a Arc<Directory>,
    pub(super) name: &'a Component,
    pub(super) path: &'a RelPath,
    /// What has the name until the entry takes it.
    pub(super) displaced: Option<Kind>,
    /// An earlier run may have left a part of the file.
    pub(super) has_part: bool,
    /// What an earlier run left of the file, if that was complete, and the attributes that it gets.
    pub(super) finished: Option<(Component, Wanted)>,
    /// Its number, where other names will be linked to it.
    pub(super) first_name: Option<u64>,
}

/// What carrying a plan out has come to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Placed {
    /// The destination has the entry.
    Here,
    /// It is asked for, is not this run's, or could not get its attributes.
    Open,
    /// A link or another special entry could not be made.
    Failed,
}

impl Planner<'_> {
    /// Tells of the plan for an entry.
    pub(super) fn tell(
        &self,
        directory: &Directory,
        entry: &Entry,
        action: Action,
        changes: Changes,
        target: Vec<u8>,
    ) -> Result<(), SyncError> {
        let Some(kind) = file_type(&entry.kind) else { return Ok(()) };
        let size = if let EntryKind::File { size, .. } = entry.kind { size } else { 0 };
        let path = listed_path(directory, entry);
        self.site.account.planned(Planned { action, kind, changes, path, target, size })
    }

    /// Expects the listing of a directory that is not made, and ignores it.
    pub(super) fn announce_ignored(
        &mut self,
        entry: &Entry,
        id: EntryId,
        path: SharedPath,
    ) -> Result<(), SyncError> {
        if !matches!(entry.kind, EntryKind::Directory) {
            return Ok(());
        }
        self.announce(Announced { id, path, sets: None, wanted: None, state: Presence::Ignored })
    }

    /// Carries the plan for an entry out.
    pub(super) fn carry_out(
        &mut self,
        id: EntryId,
        part: &Arc<PartTicket>,
        place: &Place<'_>,
        entry: &Entry,
        decision: &Decision,
        old: Old<'_>,
    ) -> Result<Placed, SyncError> {
        match &entry.kind {
            EntryKind::Directory => {
                self.directory(id, part, place, decision, old.existing).map(|()| Placed::Open)
            }
            EntryKind::File { size, .. } => match &place.finished {
                Some(finished) => self.take_up(id, place, *size, finished),
                None => self.file(id, part, place, decision, *size, old),
            },
            kind => self.other(id, place, kind, decision, &old),
        }
    }

    /// Makes an entry under its name, or beside it where another has the name: then the two change places
    /// and the other one goes.
    fn make(
        &self,
        operation: Operation,
        place: &Place<'_>,
        dir: &Arc<Dir>,
        make: impl Fn(&Component) -> std::io::Result<()>,
    ) -> Result<bool, SyncError> {
        let Some(kind) = place.displaced else { return self.done(operation, place, make(place.name)) };
        let temp = match dsync_fs::temp_name().and_then(|temp| make(&temp).map(|()| temp)) {
            Ok(temp) => temp,
            Err(error) => return self.done(operation, place, Err(error)),
        };
        let secured =
            secure::secure(self.site, dir, &place.directory.path, place.name, Some(&self.protection));
        let taken = match secured {
            Ok(Ok(())) => Ok(dir.take_name(&temp, place.name)),
            Ok(Err(error)) => Ok(Err(error)),
            Err(fatal) => Err(fatal),
        };
        match taken {
            // As with rsync, only what goes with a directory is told.
            Ok(Ok(true)) if kind == Kind::Dir => {
                delete::remove(self.site, dir, place.doomed(&temp, kind), &self.protection)?;
                self.done(operation, place, Ok(()))
            }
            // What is to be kept has another name by now.
            Ok(Ok(true)) => self.done(operation, place, dir.remove_file(&temp)),
            Ok(Ok(false)) => self.done(operation, place, Ok(())),
            failed => {
                // What is left of it the next run removes.
                let _ = dir.remove_file(&temp).or_else(|_| dir.remove_empty_dir(&temp));
                // Of an old directory some may have gone to its backup.
                place.directory.touch();
                self.done(operation, place, failed?.map(|_| ()))
            }
        }
    }

    /// Makes or keeps a directory and announces that its listing will follow.
    fn directory(
        &mut self,
        id: EntryId,
        part: &PartTicket,
        place: &Place<'_>,
        decision: &Decision,
        existing: Option<&Metadata>,
    ) -> Result<(), SyncError> {
        let state = match decision.action {
            Action::Create | Action::Reuse | Action::Update if self.site.policy.options.dry_run => {
                Presence::Imagined
            }
            Action::Create | Action::Reuse => self.make_directory(place)?,
            _ => match existing {
                // Not there, and under `existing` not made.
                None => Presence::Ignored,
                Some(existing) if existing.kind == Kind::Dir => {
                    let opened = self.open_up(place, existing, decision);
                    Presence::Old { dirty: decision.action == Action::Retag || opened }
                }
                // Under `ignore_existing`.
                Some(_) => Presence::Covered,
            },
        };
        let wanted = decision.wanted.clone();
        let sets = wanted.extended.as_ref().and_then(|_| part.sets());
        let path = place.directory.shared.join(place.name);
        self.announce(Announced { id, path, sets, wanted: Some(wanted), state })
    }

    /// Lets the run work in a directory; returns whether its own permissions have to be set afterwards.
    fn open_up(&self, place: &Place<'_>, existing: &Metadata, decision: &Decision) -> bool {
        let Some(dir) = place.directory.dir.as_ref().filter(|_| !self.site.policy.options.dry_run) else {
            return false;
        };
        let early = self.site.policy.while_worked_in(existing, &decision.wanted);
        // What fails here fails again, and is told then.
        early.is_some_and(|early| dir.set_attributes(place.name, Kind::Dir, &early).is_ok())
    }

    fn make_directory(&self, place: &Place<'_>) -> Result<Presence, SyncError> {
        let Some(dir) = &place.directory.dir else { return Ok(Presence::Imagined) };
        // Open to this process only until it gets its own attributes.
        let made = self.make(Operation::CreateDirectory, place, dir, |name| dir.make_dir(name, 0o700))?;
        Ok(if made { Presence::New } else { Presence::Ignored })
    }

    /// Asks for a file's content, or sets its attributes.
    fn file(
        &mut self,
        id: EntryId,
        part: &Arc<PartTicket>,
        place: &Place<'_>,
        decision: &Decision,
        size: u64,
        old: Old<'_>,
    ) -> Result<Placed, SyncError> {
        // Other filesystems, too many links: a copy instead.
        if decision.action == Action::Link
            && let Some(placed) = self.link(id, place, old.alternate.as_ref())?
        {
            return Ok(placed);
        }
        match decision.action {
            Action::Retag => return self.retag(place, Kind::File, decision),
            Action::Create | Action::Update | Action::Reuse | Action::Link => {}
            // Found where it is compared with: the destination needs none of its own.
            Action::Keep => {
                return match (&old.alternate, old.existing) {
                    (Some(found), Some(old)) => self.drop_old(place, old.kind, found).map(|()| Placed::Open),
                    _ => Ok(old.kept(decision)),
                };
            }
            _ => return Ok(Placed::Open),
        }
        let site = self.site;
        site.account.progress.files_needed.fetch_add(1, Ordering::Relaxed);
        let file = self.pending(id, part, place, decision, size, old);
        let there = file.slot.tail.map_or(0, |tail| tail.from);
        site.account.progress.bytes_needed.fetch_add(size - there, Ordering::Relaxed);
        if site.policy.options.dry_run {
            return Ok(Placed::Open);
        }
        place.directory.hold();
        part.hold();
        let file = Arc::new(file);
        if let Some(number) = place.first_name {
            self.transfers.succession.begin(number);
        }
        // What bounds the files under way: a source that lists more meanwhile gets ahead of its credit.
        self.take_one(&self.transfers.awaited)?;
        // In a local run nothing comes by number.
        if !self.transfers.is_local() {
            self.transfers.files.insert(&file);
        }
        let append = site.policy.options.writing.append;
        let believed = file.slot.tail.filter(|_| append == Append::Believing && !self.transfers.is_local());
        if let Some(tail) = believed {
            let need = file.want_tail(tail.from, None);
            site.session.control.queue(&ControlMessage::NeedTail(need))?;
        } else if file.has_basis || place.has_part || self.transfers.is_local() {
            self.handover.add(file)?;
        } else {
            site.session.control.queue(&ControlMessage::Need { entry: id, attempt: 0 })?;
        }
        Ok(Placed::Open)
    }

    /// A file that is about to be asked for.
    pub(super) fn pending(
        &self,
        id: EntryId,
        part: &Arc<PartTicket>,
        place: &Place<'_>,
        decision: &Decision,
        size: u64,
        Old { existing, alternate }: Old<'_>,
    ) -> Pending {
        let options = &self.site.policy.options;
        let old_file = existing.filter(|old| old.kind == Kind::File);
        let is_basis = |old: &Metadata| !options.whole_file && dsync_delta::worthwhile(old.size, size);
        let goes_on = |old: &&Metadata| {
            let appends = options.writing.append != Append::No && decision.action == Action::Update;
            appends && alternate.is_none() && (1..size).contains(&old.size)
        };
        let tail = old_file.filter(goes_on).map(|old| Tail { from: old.size, stamp: old.stamp() });
        let has_basis = tail.is_some() || old_file.is_some_and(is_basis) || alternate.is_some();
        let twin =
            alternate.map(|found| Twin { equal: found.decision.action != Action::Update, dir: found.dir });
        let displaces = place.displaced == Some(Kind::Dir);
        Pending {
            entry: id,
            part: Arc::clone(part),
            action: decision.action,
            wanted: decision.wanted.clone(),
            size,
            slot: Slot {
                directory: Arc::clone(place.directory),
                name: place.name.clone(),
                in_place: options.writing.inplace && old_file.is_some(),
                tail,
                twin,
                has_backup: AtomicBool::new(false),
            },
            displaced: displaces.then(|| Displaced::new(self.protection.clone())),
            has_basis,
            first_name: place.first_name,
            phase: Mutex::default(),
        }
    }

    /// Gives a file of an alternate directory another name here; `None` when there can be none.
    fn link(
        &self,
        id: EntryId,
        place: &Place<'_>,
        alternate: Option<&Alternate>,
    ) -> Result<Option<Placed>, SyncError> {
        let (Some(dir), Some(found)) = (&place.directory.dir, alternate) else {
            return Ok(Some(self.placed()));
        };
        if self.site.policy.options.dry_run {
            return Ok(Some(self.placed()));
        }
        let link = |name: &Component| dir.make_hard_link(name, &found.dir, place.name);
        if self.site.delayed.get().is_some() {
            let made = self.make_late(id, place, FileType::File, link)?;
            return Ok(made.ok().map(|()| self.placed()));
        }
        let linked = if place.displaced.is_some() {
            // Tried before anything is moved out of the way; if there can be no link, a copy takes the name.
            let probe =
                dsync_fs::temp_name().and_then(|probe| link(&probe).and_then(|()| dir.remove_file(&probe)));
            if probe.is_err() {
                return Ok(None);
            }
            self.make(Operation::WriteFile, place, dir, link)?
        } else {
            let kept = self.keep_other(place, found)?;
            if kept.and_then(|()| link(place.name)).is_err() {
                return Ok(None);
            }
            self.done(Operation::WriteFile, place, Ok(()))?
        };
        Ok(Some(if linked { self.placed() } else { Placed::Failed }))
    }

    /// Backs up an old file before one of an alternate directory takes its place, unless they are the same.
    fn keep_other(&self, place: &Place<'_>, found: &Alternate) -> Result<std::io::Result<()>, SyncError> {
        if found.adds_nothing { Ok(Ok(())) } else { secure::keep(self.site, place.directory, place.name) }
    }

    /// Removes what has the name of a file that an alternate directory makes needless.
    fn drop_old(&self, place: &Place<'_>, old: Kind, found: &Alternate) -> Result<(), SyncError> {
        let Some(dir) = place.directory.dir.as_ref().filter(|_| !self.site.policy.options.dry_run) else {
            return Ok(());
        };
        if let Some(kind) = place.displaced {
            delete::remove(self.site, dir, place.doomed(place.name, kind), &self.protection)?;
            return self.done(Operation::Delete, place, Ok(())).map(|_| ());
        }
        if old == Kind::Dir {
            // It was empty and is gone already.
            return Ok(());
        }
        let kept = self.keep_other(place, found)?;
        let removed = kept.and_then(|()| dir.remove_file(place.name));
        self.done(Operation::Delete, place, removed).map(|_| ())
    }

    /// Where an entry is that was just made.
    fn placed(&self) -> Placed {
        if self.site.delayed.get().is_some() { Placed::Open } else { Placed::Here }
    }

    /// Makes an entry that gets its name at the end of the run.
    fn make_late(
        &self,
        id: EntryId,
        place: &Place<'_>,
        kind: FileType,
        make: impl Fn(&Component) -> std::io::Result<()>,
    ) -> Result<std::io::Result<()>, SyncError> {
        match dsync_fs::temp_name().and_then(|temp| make(&temp).map(|()| temp)) {
            Ok(temp) => self.note_late(id, place, kind, temp).map(Ok),
            Err(error) => Ok(Err(error)),
        }
    }

    fn note_late(
        &self,
        id: EntryId,
        place: &Place<'_>,
        kind: FileType,
        temp: Component,
    ) -> Result<(), SyncError> {
        let Some(delayed) = self.site.delayed.get() else { return Ok(()) };
        let late = Late {
            directory: place.directory.path.clone(),
            name: place.name.clone(),
            temp,
            entry: id,
            action: Action::Update,
            kind,
            size: 0,
            displaces: place.displaced == Some(Kind::Dir),
            first_name: place.first_name,
            basis: None,
        };
        delayed::note(self.site, delayed, place.directory, &late)
    }

    fn retag(&self, place: &Place<'_>, kind: Kind, decision: &Decision) -> Result<Placed, SyncError> {
        let Some(dir) = place.directory.dir.as_ref().filter(|_| !self.site.policy.options.dry_run) else {
            return Ok(Placed::Open);
        };
        let set = dir.set_attributes(place.name, kind, &decision.wanted);
        let set = set.map(|withheld| self.site.withheld(withheld));
        if set.is_ok() {
            self.site.touched(dir);
        }
        let set = self.report(Operation::SetAttributes, place, set)?;
        Ok(if set { Placed::Here } else { Placed::Open })
    }

    /// Notes that the directory was changed, or reports why it was not. True when it was.
    fn done(
        &self,
        operation: Operation,
        place: &Place<'_>,
        result: std::io::Result<()>,
    ) -> Result<bool, SyncError> {
        if result.is_ok() {
            place.directory.touch();
            if let Some(dir) = &place.directory.dir {
                self.site.touched(dir);
            }
        }
        self.report(operation, place, result)
    }

    fn report(
        &self,
        operation: Operation,
        place: &Place<'_>,
        result: std::io::Result<()>,
    ) -> Result<bool, SyncError> {
        match result {
            Ok(()) => Ok(true),
            Err(error) => {
                let cause = self.site.cause_or_fatal(operation, place.path, error)?;
                self.site.problem(operation, place.path, cause)?;
                Ok(false)
            }
        }
    }
}

impl<'a> Place<'a> {
    /// A free name.
    pub(super) fn of(directory: &'a Arc<Directory>, name: &'a Component, path: &'a RelPath) -> Self {
        Self { directory, name, path, displaced: None, has_part: false, finished: None, first_name: None }
    }

    /// What has the entry's name, or had it and is called `now`.
    fn doomed(&self, now: &'a Component, kind: Kind) -> Doomed<'a> {
        Doomed { parent: &self.directory.path, name: self.name, now, kind }
    }
}

/// The text of a symbolic link; of others nothing.
pub(super) fn link_text(entry: &Entry) -> Vec<u8> {
    if let EntryKind::Symlink { target } = &entry.kind { target.clone() } else { Vec::new() }
}
