//! Stage 2: the merge-join of the source's listing with the destination's own, a directory at a time.
//!
//! Both listings are in byte order of names. Each source entry meets the destination entry of the same
//! name, or none; destination entries that no source entry meets are extraneous, and are noted for
//! deletion if the source said that its listing of the directory is complete (invariant S5). What each
//! pair means is decided by [`crate::plan`]; [`placing`] carries the decision out, except for file
//! content, which it asks the source for.

mod placing;
mod sweep;

use std::{
    collections::HashSet,
    iter::Peekable,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    vec,
};

use crossbeam_channel::{Receiver, Sender};
use dsync_fs::{
    Component, Dir, Extended, ExtendedScope, FilterSet, Kind, ListAhead, ListedPart, Metadata, RelPath,
    Spare, is_kept_name, is_temp_name, walk::default_readers,
};
use dsync_wire::{
    event::{Action, Changes, FileType, Planned},
    limits::MAX_OPERANDS,
    link::LinkError,
    message::{Cause, ControlMessage, Entry, EntryId, EntryKind, Listing, Operation, Problem, Tops},
    options::DeleteTiming,
};

use placing::{Old, Place, Placed, Way, link_text};
use sweep::Sweep;

use super::{
    Site,
    alternate::{Alternate, Alternates, Level},
    backup::Backups,
    credit::{Credit, PartTicket},
    delete::{Deletions, Found, Protection},
    directory::{Directory, settle},
    files::Pending,
    links::Links,
    owners::Owners,
    target::Target,
};
use crate::{
    SyncError,
    plan::{Standing, Verdict},
};

/// The planner's state.
pub(super) struct Planner<'a> {
    site: &'a Site<'a>,
    operand: PathBuf,
    protection: Protection,
    handover: Handover,
    owners: Owners,
    target: Option<Target>,
    alternates: Option<Alternates>,
    /// The transfer's root stands for what is in an operand; otherwise the root's entries are the operands.
    root_is_contents: bool,
    /// Number of the next listing message; `None` when they were released already.
    next_part: Option<u64>,
    /// Lists the destination's own directories; none where there is nothing to list.
    ahead: Option<ListAhead>,
    /// Directories that were listed as entries and whose own listing has not begun, the last one next.
    announced: Vec<Announced>,
    /// Those of the current directory.
    children: Vec<Announced>,
    current: Option<Merge>,
    links: Links,
    deletions: Deletions,
    /// Names of the root that the source was asked for and does not have.
    missing: HashSet<Component>,
    /// With `--delete-before`, until the deletions were made.
    sweep: Option<Sweep>,
}

/// The way of files that this end reads something of first: old files to sign or, in a local run, all. They go
/// together, so that many small ones wake a reader once.
struct Handover {
    readers: Sender<Vec<Arc<Pending>>>,
    files: Vec<Arc<Pending>>,
    bytes: u64,
}

/// A directory that the source will list.
struct Announced {
    id: EntryId,
    path: RelPath,
    wanted: Option<dsync_fs::Wanted>,
    /// What the destination has of it.
    state: Presence,
}

/// What the destination has of an announced directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// It was there and is to be compared.
    Old { dirty: bool },
    /// It was just made and is empty.
    New,
    /// It does not exist, because this is a dry run: everything in it is new.
    Imagined,
    /// It is left alone with all that is in it.
    Ignored,
}

impl Target {
    /// What there is of the root.
    fn presence(&self) -> Presence {
        match (&self.root, self.created) {
            (None, _) => Presence::Imagined,
            (Some(_), true) => Presence::New,
            (Some(_), false) => Presence::Old { dirty: false },
        }
    }
}

impl Announced {
    /// True when the destination has it and its entries are to be compared.
    fn is_old(&self) -> bool {
        matches!(self.state, Presence::Old { .. })
    }
}

/// A directory whose listing is arriving.
struct Merge {
    id: EntryId,
    directory: Option<Arc<Directory>>,
    /// The destination's entries from the current name on, as far as they were read.
    local: Peekable<vec::IntoIter<(Component, std::io::Result<Metadata>)>>,
    /// More of them are to come.
    local_goes_on: bool,
    /// True when all of the destination's entries could be read.
    local_complete: bool,
    last_name: Option<Vec<u8>>,
    /// Where entries of this directory may be as well.
    alternates: Level,
    extraneous: Vec<(Component, Kind)>,
    /// What goes because the source was asked for it and does not have it.
    missing: Vec<(Component, Kind)>,
    /// Parts that earlier runs left here, and the names of those that this run takes up.
    parts: (Vec<Component>, HashSet<Component>),
}

/// A message of the source's listing, as the inbox passes it on.
pub(super) enum Listed {
    Tops(Tops),
    Missing(dsync_wire::name::Name),
    IdName(dsync_wire::message::IdName),
    Listing(Listing),
    End,
}

/// What is left to do when everything was planned and has arrived.
pub(super) struct Leftover {
    /// Holds the destination's lock.
    pub(super) target: Target,
    pub(super) links: Links,
    pub(super) deletions: Deletions,
}

/// Plans the whole tree; returns when every file that was asked for has arrived or failed.
pub(super) fn run(
    site: &Site<'_>,
    operand: PathBuf,
    filter: &Arc<FilterSet>,
    readers: Sender<Vec<Arc<Pending>>>,
    listing: &Receiver<Listed>,
) -> Result<Option<Leftover>, SyncError> {
    let protection = Protection::new(filter, &site.policy.options);
    let mut planner = Planner {
        site,
        operand,
        protection: protection.clone(),
        handover: Handover { readers, files: Vec::new(), bytes: 0 },
        owners: Owners::new(&site.policy.options)?,
        target: None,
        alternates: None,
        root_is_contents: false,
        next_part: Some(0),
        ahead: None,
        announced: Vec::new(),
        children: Vec::new(),
        current: None,
        links: Links::new(protection.clone())?,
        deletions: Deletions::new(protection)?,
        missing: HashSet::new(),
        sweep: Sweep::wanted(&site.policy.options)?,
    };
    for message in listing {
        if site.session.halt.stopped() {
            return Ok(None);
        }
        match message {
            Listed::Tops(tops) => planner.tops(tops)?,
            Listed::Missing(name) => planner.missing(&name)?,
            Listed::IdName(name) => planner.owners.learn(&name)?,
            Listed::Listing(listing) if planner.sweep.is_some() => planner.sweep(listing)?,
            Listed::Listing(listing) => planner.listing(&listing)?,
            Listed::End => {
                planner.end_sweep()?;
                return planner.end();
            }
        }
        if listing.is_empty() {
            planner.handover.flush()?;
        }
    }
    Ok(None)
}

impl Handover {
    fn add(&mut self, file: Arc<Pending>) -> Result<(), SyncError> {
        self.bytes = self.bytes.saturating_add(file.size);
        self.files.push(file);
        let full = self.files.len() >= MAX_TOGETHER || self.bytes >= MAX_BYTES_TOGETHER;
        if full { self.flush() } else { Ok(()) }
    }

    /// Hands over what is noted: to be called before the planner waits for anything.
    fn flush(&mut self) -> Result<(), SyncError> {
        if self.files.is_empty() {
            return Ok(());
        }
        self.bytes = 0;
        // They end early only when the run has failed.
        self.readers.send(std::mem::take(&mut self.files)).map_err(|_| SyncError::Link(LinkError::Closed))
    }
}

impl Planner<'_> {
    /// Opens the destination and begins with its root directory.
    fn tops(&mut self, tops: Tops) -> Result<(), SyncError> {
        let target = Target::open(&self.operand, &tops, self.site.session)?;
        self.site.set_root(&target);
        self.open_others(&target)?;
        self.root_is_contents = tops.root.is_some();
        let state = target.presence();
        self.target = Some(target);
        if self.sweep.is_some() {
            self.begin_sweep(tops, state);
            return Ok(());
        }
        self.root_directory(&tops)
    }

    /// Plans the root directory itself.
    fn root_directory(&mut self, tops: &Tops) -> Result<(), SyncError> {
        let Some(target) = self.target.take() else { return Ok(()) };
        let state = target.presence();
        let (wanted, state) = match (&tops.root, &target.root) {
            (Some(attributes), root) => {
                let existing = root.as_deref().filter(|_| !target.created);
                self.root_entry(attributes, existing, state)?
            }
            (None, _) => (None, state),
        };
        self.target = Some(target);
        self.list_own(Announced { id: EntryId(0), path: RelPath::root(), wanted, state });
        Ok(())
    }

    /// Begins to list the destination's own directories, from the root on.
    fn list_own(&mut self, root: Announced) {
        if let Some(own) = self.target.as_ref().and_then(|target| target.root.as_ref()) {
            let open = usize::try_from(self.site.open_directories.limit() / 4).unwrap_or(usize::MAX);
            self.ahead = Some(ListAhead::new(Arc::clone(own), default_readers(), open));
        }
        self.expect(vec![root]);
    }

    /// Opens the directories beside the destination that the run uses.
    fn open_others(&mut self, target: &Target) -> Result<(), SyncError> {
        let Some(root) = &target.root else { return Ok(()) };
        let policy = &self.site.policy.options.writing;
        if let Some(options) = &policy.alternates {
            self.alternates = Some(Alternates::open(options, root)?);
        }
        if let Some(backup) = policy.backup.as_ref().filter(|_| !self.site.policy.options.dry_run) {
            let _ = self.site.backups.set(Backups::new(root, backup));
        }
        Ok(())
    }

    /// Compares the root directory's own attributes.
    fn root_entry(
        &mut self,
        attributes: &dsync_wire::message::Attributes,
        root: Option<&Dir>,
        state: Presence,
    ) -> Result<(Option<dsync_fs::Wanted>, Presence), SyncError> {
        let mapped = self.owners.of(attributes);
        let existing = root.and_then(|dir| dir.metadata().ok());
        let verdict = self.site.policy.decide_attributes(
            &EntryKind::Directory,
            attributes,
            &mapped,
            existing.as_ref(),
            &Here { dir: root, name: None },
        );
        self.site.account.amend(|report| report.listed.directories += 1);
        self.site.account.planned(Planned {
            action: verdict.action,
            kind: FileType::Directory,
            changes: verdict.changes,
            path: Vec::new(),
            target: Vec::new(),
            size: 0,
        })?;
        let state = match state {
            Presence::Old { .. } => Presence::Old { dirty: verdict.action == Action::Retag },
            other => other,
        };
        Ok((Some(verdict.wanted), state))
    }

    /// Notes a name that is to go.
    fn missing(&mut self, name: &dsync_wire::name::Name) -> Result<(), SyncError> {
        if !self.site.policy.options.delete_missing_args || self.missing.len() >= MAX_OPERANDS {
            return Err(SyncError::Protocol { detail: "missing operands that nobody asked for".to_owned() });
        }
        let renamed = self.target.as_ref().and_then(|target| target.rename.clone());
        let name = renamed.map_or_else(|| Component::new(name.as_bytes()), Ok);
        self.missing.insert(name.map_err(super::stage::protocol)?);
        Ok(())
    }

    /// Merges one part of a directory's listing.
    fn listing(&mut self, listing: &Listing) -> Result<(), SyncError> {
        let part = Arc::new(PartTicket::new(self.next_part));
        self.next_part = self.next_part.map(|part| part + 1);
        let mut merge = self.turn_to_merge(listing.dir)?;
        for entry in &listing.entries {
            let id = self.site.next_entry();
            self.site.account.count_listed(entry);
            check_order(&mut merge, entry, id)?;
            self.learn_names(entry, id)?;
            if let Some(directory) = merge.directory.clone() {
                self.entry(&mut merge, &directory, &part, id, entry)?;
            } else {
                self.announce_ignored(entry, id);
            }
            if self.next_part.is_some() {
                self.site.account.progress.entries_checked.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.end_part(merge, listing)?;
        part.release(&self.site.session.control)?;
        // What was queued while planning this part goes in one write.
        self.site.session.control.flush()
    }

    /// The directory that a part of a listing is of: the current one, or the next.
    fn turn_to_merge(&mut self, id: EntryId) -> Result<Merge, SyncError> {
        if let Some(merge) = self.current.take().filter(|merge| merge.id == id) {
            return Ok(merge);
        }
        let mut merge = self.begin(id)?;
        let alternates = self.alternates.as_ref().filter(|_| self.sweep.is_none());
        if let (Some(alternates), Some(directory)) = (alternates, &merge.directory) {
            merge.alternates = alternates.level(&directory.path);
        }
        Ok(merge)
    }

    /// Ends a part of a listing, and with the last one its directory.
    fn end_part(&mut self, merge: Merge, listing: &Listing) -> Result<(), SyncError> {
        if !listing.last {
            self.current = Some(merge);
            return Ok(());
        }
        self.finish(merge, listing.complete)?;
        let children = std::mem::take(&mut self.children);
        self.expect(children);
        Ok(())
    }

    /// Takes what the source says of an entry's other names.
    fn learn_names(&mut self, entry: &Entry, id: EntryId) -> Result<(), SyncError> {
        if entry.hard_link.is_some() && !self.site.policy.options.hard_links {
            return Err(SyncError::Protocol { detail: format!("entry {}: hard link not asked for", id.0) });
        }
        self.links.learn(entry, id)
    }

    /// Opens the directory whose listing begins.
    fn begin(&mut self, id: EntryId) -> Result<Merge, SyncError> {
        let announced = self.turn_to(id)?;
        let empty = |directory| Merge {
            id,
            directory,
            local: Vec::new().into_iter().peekable(),
            local_goes_on: false,
            local_complete: true,
            last_name: None,
            alternates: Level::default(),
            extraneous: Vec::new(),
            missing: Vec::new(),
            parts: Default::default(),
        };
        let Announced { path, wanted, state, .. } = announced;
        let dirty = match state {
            Presence::Ignored => return Ok(empty(None)),
            Presence::Imagined => {
                self.take_one(&self.site.open_directories)?;
                return Ok(empty(Some(Arc::new(Directory::new(path, None, wanted, false)))));
            }
            Presence::New => true,
            Presence::Old { dirty } => dirty,
        };
        if !self.take_one(&self.site.open_directories)? {
            return Ok(empty(None));
        }
        let (opened, listed) = match state {
            Presence::New => (self.open(&path), None),
            _ => match self.ahead.as_mut().and_then(ListAhead::next_part) {
                Some(ListedPart { dir: None, error, .. }) => (Err(error.unwrap_or_else(gone)), None),
                Some(mut part) => (part.dir.take().ok_or_else(gone), Some(part)),
                None => (Err(gone()), None),
            },
        };
        let dir = match opened {
            Ok(dir) => dir,
            Err(error) => {
                self.site.open_directories.release();
                let cause = self.site.cause_or_fatal(Operation::ReadDestination, &path, error)?;
                self.site.problem(Operation::ReadDestination, &path, cause)?;
                return Ok(empty(None));
            }
        };
        let directory = Arc::new(Directory::new(path, Some(dir), wanted, dirty));
        let mut merge = empty(Some(Arc::clone(&directory)));
        if let Some(part) = listed {
            self.take_local(&mut merge, &directory, part)?;
        }
        Ok(merge)
    }

    /// Takes one of what a bound admits, waiting for it; false when the run has ended.
    fn take_one(&mut self, credit: &Credit) -> Result<bool, SyncError> {
        if credit.try_take(1) {
            return Ok(true);
        }
        // What is taken may be given back only when these files have come.
        self.handover.flush()?;
        self.site.session.control.flush()?;
        Ok(credit.take(1, &self.site.session.halt))
    }

    /// Notes directories that come next, and has them listed meanwhile.
    fn expect(&mut self, directories: Vec<Announced>) {
        if let Some(ahead) = &mut self.ahead {
            let old = directories.iter().filter(|directory| directory.is_old());
            ahead.expect(old.map(|directory| directory.path.clone()));
        }
        self.announced.extend(directories.into_iter().rev());
    }

    /// Goes to the directory whose listing begins; those that the source passes over are settled.
    fn turn_to(&mut self, id: EntryId) -> Result<Announced, SyncError> {
        while let Some(announced) = self.announced.pop() {
            if announced.id == id {
                return Ok(announced);
            }
            if announced.is_old() {
                while self.ahead.as_mut().and_then(ListAhead::next_part).is_some_and(|part| !part.last) {}
            }
            self.settle_unlisted(&announced)?;
        }
        Err(SyncError::Protocol { detail: format!("parent {} is not a directory", id.0) })
    }

    /// Takes a part of the destination's own entries.
    fn take_local(
        &mut self,
        merge: &mut Merge,
        directory: &Directory,
        part: ListedPart,
    ) -> Result<(), SyncError> {
        if let Some(error) = part.error {
            let cause = self.site.cause_or_fatal(Operation::ReadDestination, &directory.path, error)?;
            self.site.problem(Operation::ReadDestination, &directory.path, cause)?;
        }
        self.deletions.compare(part.entries.len());
        merge.local = part.entries.into_iter().peekable();
        merge.local_goes_on = !part.last;
        merge.local_complete &= part.complete;
        Ok(())
    }

    /// Takes the destination's next entry if it is one that is asked for.
    fn next_local(
        &mut self,
        merge: &mut Merge,
        directory: &Directory,
        is_wanted: impl Fn(&Component) -> bool,
    ) -> Result<Option<(Component, std::io::Result<Metadata>)>, SyncError> {
        while merge.local_goes_on && merge.local.peek().is_none() {
            match self.ahead.as_mut().and_then(ListAhead::next_part) {
                Some(part) => self.take_local(merge, directory, part)?,
                None => merge.local_goes_on = false,
            }
        }
        Ok(merge.local.next_if(|(name, _)| is_wanted(name)))
    }

    fn open(&self, path: &RelPath) -> std::io::Result<Arc<Dir>> {
        match self.target.as_ref().and_then(|target| target.root.as_ref()) {
            Some(root) if path.is_root() => Ok(Arc::clone(root)),
            Some(root) => root.open_beneath(path).map(Arc::new),
            None => Err(std::io::ErrorKind::NotFound.into()),
        }
    }

    /// Finds the destination's entry of this name; what comes before it is extraneous.
    fn meet(
        &mut self,
        merge: &mut Merge,
        directory: &Directory,
        name: &Component,
    ) -> Result<Option<Metadata>, SyncError> {
        // The one source file that gets another name is the only one: all others are extraneous.
        let renamed = self.target.as_ref().is_some_and(|target| target.rename.is_some());
        while let Some((found, metadata)) =
            self.next_local(merge, directory, |found| renamed || found <= name)?
        {
            if found == *name {
                return Ok(metadata.ok());
            }
            self.extraneous(merge, directory, found, known(&metadata))?;
        }
        Ok(None)
    }

    /// Notes a destination entry that the source does not have; removes leftovers of killed runs.
    fn extraneous(
        &self,
        merge: &mut Merge,
        directory: &Directory,
        name: Component,
        found: Option<Found>,
    ) -> Result<(), SyncError> {
        let Some(found) = found else { return Ok(()) };
        let options = &self.site.policy.options;
        if is_temp_name(name.as_bytes()) {
            // This run holds the lock, and its own temporaries are younger than this listing.
            if let (false, Some(dir)) = (options.dry_run, &directory.dir)
                && dir.remove_tree(&name, Spare::NOTHING, &mut |_, _| {}).is_ok()
            {
                directory.touch();
            }
            return Ok(());
        }
        let sweeping = self.sweep.is_some();
        if options.delete && is_kept_name(name.as_bytes()) {
            if !sweeping {
                merge.parts.0.push(name);
            }
            return Ok(());
        }
        let missing = directory.path.is_root() && self.missing.contains(&name);
        // After a sweep, what was to go has gone.
        let over = options.delete_timing == DeleteTiming::Before && options.delete && !sweeping;
        if over || !(options.delete || missing) || self.protection.covers(directory, &name, found) {
            return Ok(());
        }
        if !missing {
            merge.extraneous.push((name, found.kind));
        } else if found.kind == Kind::Dir && !options.delete && !options.force && is_filled(directory, &name)
        {
            let path = directory.path.join(&name);
            self.site.problem(Operation::Delete, &path, Cause::DirectoryInTheWay)?;
        } else {
            merge.missing.push((name, found.kind));
        }
        Ok(())
    }

    /// Ends a directory: notes its deletions, releases it.
    fn finish(&mut self, mut merge: Merge, complete: bool) -> Result<(), SyncError> {
        let Some(directory) = merge.directory.take() else { return Ok(()) };
        while let Some((name, metadata)) = self.next_local(&mut merge, &directory, |_| true)? {
            self.extraneous(&mut merge, &directory, name, known(&metadata))?;
        }
        self.links.end_directory()?;
        self.deletions.note(self.site, &directory, std::mem::take(&mut merge.missing))?;
        if complete && merge.local_complete {
            self.guard_empty_source(&merge, &directory)?;
            self.deletions.note(self.site, &directory, std::mem::take(&mut merge.extraneous))?;
            self.remove_parts(&merge, &directory);
        }
        directory.release(self.site)
    }

    /// With `delete`, removes parts of files that are not asked for any more.
    fn remove_parts(&self, merge: &Merge, directory: &Directory) {
        let (parts, taken_up) = &merge.parts;
        let Some(dir) = directory.dir.as_ref().filter(|_| !self.site.policy.options.dry_run) else { return };
        for name in parts.iter().filter(|name| !taken_up.contains(name)) {
            if dir.remove_file(name).is_ok() {
                directory.touch();
            }
        }
    }

    /// An operand without any entry is more often a disk that is not mounted than a tree that was emptied.
    fn guard_empty_source(&self, merge: &Merge, directory: &Directory) -> Result<(), SyncError> {
        let is_operand = match self.root_is_contents {
            true => directory.path.is_root(),
            false => directory.path.depth() == 1,
        };
        let empties = merge.last_name.is_none() && !merge.extraneous.is_empty();
        if !is_operand || !empties || self.site.policy.options.allow_empty_source {
            return Ok(());
        }
        Err(SyncError::EmptySource {
            path: self.site.display_path(&directory.path),
            entries: merge.extraneous.len() as u64,
        })
    }

    /// Plans one entry and carries the plan out.
    fn entry(
        &mut self,
        merge: &mut Merge,
        directory: &Arc<Directory>,
        part: &Arc<PartTicket>,
        id: EntryId,
        entry: &Entry,
    ) -> Result<(), SyncError> {
        let name = self.own_name(entry, id)?;
        let existing = self.meet(merge, directory, &name)?;
        let existing = self.through_own_link(directory, &name, entry, existing);
        let path = directory.path.join(&name);
        if self.is_passed_over(directory, entry, id, &path)? {
            return Ok(());
        }
        let mut place =
            Place { directory, name: &name, path: &path, displaced: None, has_part: false, first_name: None };
        let group = self.links.group_of(entry, id);
        let first = group.and_then(|group| self.links.first_name(self.site, group));
        if first.is_some_and(|first| first.is_of(existing.as_ref())) {
            self.landed(id, part, &place, existing.as_ref())?;
            return self.tell(directory, entry, Action::Keep, Changes::HARD_LINK, link_text(entry));
        }
        let mut verdict = self.decide(&place, entry, existing.as_ref());
        // A further name becomes one of the first, whatever alternate directories have.
        let alternate = match first {
            Some(_) => None,
            None => self.alternate(merge, &place, entry, existing.as_ref(), &mut verdict),
        };
        match verdict.in_the_way.map_or(Ok(Way::Free), |kind| self.clear_way(&place, entry, kind))? {
            Way::Free => {}
            Way::Taken => place.displaced = verdict.in_the_way,
            Way::Blocked => {
                self.announce_ignored(entry, id);
                return Ok(());
            }
        }
        match (group, first) {
            (Some(_), Some(first)) if verdict.placed => {
                return self.follow(id, &place, entry, &verdict, &first);
            }
            (Some(group), _) if verdict.placed => {
                let stays =
                    existing.as_ref().filter(|_| matches!(verdict.action, Action::Keep | Action::Retag));
                place.first_name = self.links.place(group, &path, stays)?;
            }
            _ => {}
        }
        self.tell(directory, entry, verdict.action, verdict.changes, link_text(entry))?;
        if let EntryKind::File { size, .. } = entry.kind {
            place.has_part = self.claim_part(merge, &place, &verdict, size);
        }
        let placed = self.carry_out(
            id,
            part,
            &place,
            entry,
            &verdict,
            Old { existing: existing.as_ref(), alternate },
        )?;
        if let (Some(group), Placed::Failed) = (group, placed) {
            self.links.displace(group);
        }
        if placed == Placed::Here {
            self.landed(id, part, &place, existing.as_ref())?;
        }
        Ok(())
    }

    /// Has the source hear of an entry that needed no content.
    fn landed(
        &self,
        id: EntryId,
        part: &Arc<PartTicket>,
        place: &Place<'_>,
        existing: Option<&Metadata>,
    ) -> Result<(), SyncError> {
        if let Some(dir) = place.directory.dir.as_ref().filter(|_| self.site.removes_source()) {
            self.site.touched(dir);
        }
        self.site.stands(id, part, existing)
    }

    /// The name that an entry has at the destination.
    fn own_name(&self, entry: &Entry, id: EntryId) -> Result<Component, SyncError> {
        match self.target.as_ref().and_then(|target| target.rename.clone()) {
            // A second entry would get the same name as the first.
            Some(_) if id.0 > 1 || matches!(entry.kind, EntryKind::Directory) => {
                Err(SyncError::Protocol { detail: format!("entry {}: not a single file", id.0) })
            }
            Some(renamed) => Ok(renamed),
            None => Component::new(entry.name.as_bytes()).map_err(super::stage::protocol),
        }
    }

    /// True when the run does not copy the entry, which is told.
    fn is_passed_over(
        &mut self,
        directory: &Directory,
        entry: &Entry,
        id: EntryId,
        path: &RelPath,
    ) -> Result<bool, SyncError> {
        let safe_links = self.site.policy.options.safe_links;
        let operation = match &entry.kind {
            EntryKind::Symlink { target } if safe_links && leads_out(path, target) => Operation::CreateLink,
            kind if self.is_copied(kind) => return Ok(false),
            EntryKind::Directory => Operation::ReadDirectory,
            _ => Operation::Stat,
        };
        self.announce_ignored(entry, id);
        let path = listed_path(directory, entry);
        self.site.account.problem(Problem { operation, path, cause: Cause::Skipped })?;
        Ok(true)
    }

    /// What the destination has: under `keep_dirlinks` a directory where a link leads to one.
    fn through_own_link(
        &self,
        directory: &Directory,
        name: &Component,
        entry: &Entry,
        existing: Option<Metadata>,
    ) -> Option<Metadata> {
        let is_link = existing.as_ref().is_some_and(|existing| existing.kind == Kind::Symlink);
        let wanted = self.site.policy.options.keep_dirlinks && matches!(entry.kind, EntryKind::Directory);
        match &directory.dir {
            Some(dir) if is_link && wanted => {
                dir.open_child_or_own_link(name).and_then(|dir| dir.metadata()).ok().or(existing)
            }
            _ => existing,
        }
    }

    /// True when the run copies entries of this type.
    fn is_copied(&self, kind: &EntryKind) -> bool {
        let options = &self.site.policy.options;
        match kind {
            EntryKind::File { .. } => true,
            EntryKind::Directory => options.recursive,
            EntryKind::Symlink { .. } => options.links,
            EntryKind::Fifo | EntryKind::Socket => options.specials,
            EntryKind::CharDevice { .. } | EntryKind::BlockDevice { .. } => {
                options.devices && self.site.policy.privileged
            }
            _ => false,
        }
    }

    fn decide(&mut self, place: &Place<'_>, entry: &Entry, existing: Option<&Metadata>) -> Verdict {
        let mapped = self.owners.of(&entry.attributes);
        let here = Here { dir: place.directory.dir.as_deref(), name: Some(place.name) };
        let verdict = self.site.policy.decide(entry, &mapped, existing, &here);
        if existing.is_some_and(|existing| self.site.policy.only_rounded(entry, existing, &verdict)) {
            self.site.account.amend(|report| report.rounded_times += 1);
        }
        verdict
    }

    /// Looks for the entry in the alternate directories, and changes the verdict if one has it.
    fn alternate(
        &mut self,
        merge: &Merge,
        place: &Place<'_>,
        entry: &Entry,
        existing: Option<&Metadata>,
        verdict: &mut Verdict,
    ) -> Option<Alternate> {
        self.alternates.as_ref()?;
        let skipped = existing.is_none() && verdict.action == Action::Keep;
        let skipped = skipped || existing.is_some() && self.site.policy.options.ignore_existing;
        if skipped {
            return None;
        }
        let mapped = self.owners.of(&entry.attributes);
        let found = merge.alternates.find(&self.site.policy, entry, &mapped, place.name)?;
        let better = self.alternates.as_ref()?.verdict(&found, existing)?;
        *verdict = Verdict { in_the_way: verdict.in_the_way, ..better };
        Some(found)
    }

    /// Gives a directory its attributes that the source does not list.
    fn settle_unlisted(&self, announced: &Announced) -> Result<(), SyncError> {
        let dirty = match announced.state {
            Presence::New => true,
            Presence::Old { dirty } => dirty,
            Presence::Imagined | Presence::Ignored => false,
        };
        if dirty && let Ok(dir) = self.open(&announced.path) {
            settle(self.site, &announced.path, Some(&dir), announced.wanted.as_ref())?;
        }
        Ok(())
    }

    /// Ends planning: settles directories that were never listed, waits for the files.
    fn end(mut self) -> Result<Option<Leftover>, SyncError> {
        self.handover.flush()?;
        for announced in std::mem::take(&mut self.announced) {
            self.settle_unlisted(&announced)?;
        }
        self.site.account.progress.totals_final.store(true, Ordering::Release);
        if !self.site.awaited.drained(&self.site.session.halt) {
            return Ok(None);
        }
        self.site.needs_ended.store(true, Ordering::Release);
        self.site.session.control.send(&ControlMessage::NeedsEnd)?;
        let Some(target) = self.target else {
            return Err(SyncError::Protocol { detail: "listing without operands".to_owned() });
        };
        Ok(Some(Leftover { target, links: self.links, deletions: self.deletions }))
    }
}

/// True unless the directory is known to be empty.
fn is_filled(directory: &Directory, name: &Component) -> bool {
    let child = directory.dir.as_ref().and_then(|dir| dir.open_child(name).ok());
    child.is_none_or(|child| !child.list().entries.is_empty())
}

fn gone() -> std::io::Error {
    std::io::ErrorKind::NotFound.into()
}

/// What stands at a name of the destination; without a name, the directory itself.
pub(super) struct Here<'a> {
    pub(super) dir: Option<&'a Dir>,
    pub(super) name: Option<&'a Component>,
}

impl Standing for Here<'_> {
    fn link_equals(&self, target: &[u8]) -> bool {
        let (Some(dir), Some(name)) = (self.dir, self.name) else { return false };
        dir.read_link(name).is_ok_and(|here| here == target)
    }

    fn content_equals(&self, content: &[u8; 32]) -> bool {
        let (Some(dir), Some(name)) = (self.dir, self.name) else { return false };
        let hash = dir.open_source(name).and_then(|file| crate::content::hash(&file));
        hash.is_ok_and(|here| here == *content)
    }

    fn extended(&self, scope: ExtendedScope) -> Option<Extended> {
        match self.name {
            Some(name) => self.dir?.extended(name, scope).ok(),
            None => self.dir?.own_extended(scope).ok(),
        }
    }
}

/// True when a link at `path` below the transfer's root is not safe by its text alone, as rsync judges it: it
/// is absolute, begins with more `..` than there are directories above it, or goes up again later on, where
/// the directory it passes through may be a link itself.
fn leads_out(path: &RelPath, target: &[u8]) -> bool {
    let mut above = path.depth().saturating_sub(1);
    let mut goes_down = false;
    for step in target.split(|&byte| byte == b'/') {
        match (step, above.checked_sub(1)) {
            (b"" | b".", _) => {}
            (b"..", Some(left)) if !goes_down => above = left,
            (b"..", _) => return true,
            _ => goes_down = true,
        }
    }
    target.is_empty() || target.starts_with(b"/")
}

/// The path of an entry as the source names it.
fn listed_path(directory: &Directory, entry: &Entry) -> Vec<u8> {
    let mut path = directory.path.as_bytes().to_vec();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(entry.name.as_bytes());
    path
}

/// What a listed entry is; `None` when it vanished or could not be looked at.
fn known(metadata: &std::io::Result<Metadata>) -> Option<Found> {
    let metadata = metadata.as_ref().ok()?;
    Some(Found { kind: metadata.kind, device: metadata.dev })
}

/// Names of one directory ascend strictly, so none comes twice.
fn check_order(merge: &mut Merge, entry: &Entry, id: EntryId) -> Result<(), SyncError> {
    let name = entry.name.as_bytes();
    if merge.last_name.as_deref().is_some_and(|last| last >= name) {
        return Err(SyncError::Protocol { detail: format!("entry {}: names are not in order", id.0) });
    }
    merge.last_name = Some(name.to_vec());
    Ok(())
}

/// Files that are handed over together: so many of one directory that two readers seldom want its lock at once.
const MAX_TOGETHER: usize = 256;
/// Bytes of files that are handed over together, before the last is added: a few milliseconds of copying.
const MAX_BYTES_TOGETHER: u64 = 4 << 20;
