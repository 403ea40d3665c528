//! Stage 2: the merge-join of the source's listing with the destination's own, a directory at a time.
//!
//! Both listings are in byte order of names. Each source entry meets the destination entry of the same
//! name, or none; destination entries that no source entry meets are extraneous, and are noted for
//! deletion if the source said that its listing of the directory is complete (invariant S5). What each
//! pair means is decided by [`crate::plan`]; [`placing`] carries the decision out, except for file
//! content, which it asks the source for.

mod following;
mod handover;
mod merge;
mod placing;
mod sweep;

use std::{
    collections::HashSet,
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    vec,
};

use crossbeam_channel::{Receiver, Sender};
use dsync_fs::{
    Component, Dir, Extended, ExtendedScope, FilterSet, Kind, LeadsOut, ListAhead, Metadata, OwnPlaces,
    RelPath, SharedPath, SpoolHome, UntrustedLink, walk::default_readers,
};
use dsync_wire::{
    budget::{Held, Share},
    event::{Action, FileType, Planned},
    limits::MAX_OPERANDS,
    message::{
        Asked, Cause, ControlMessage, Entry, EntryId, EntryKind, IdName, Listing, Operation, Problem, Tops,
    },
};

use handover::Handover;
use merge::{Merge, check_order};
use placing::{Old, Place, Placed, Way, link_text};
use sweep::Sweep;

use super::{
    Site,
    alternate::{Alternate, Alternates},
    asked::Bounds,
    backup::{self, Backups},
    commit::Outbox,
    credit::{Credit, PartTicket},
    delete::{Deletions, Protection},
    directory::{Directory, SETGID},
    files::Pending,
    homes::Around,
    landed::Unsent,
    late::Delayed,
    links::Links,
    owners::Owners,
    target::Target,
    transfers::Transfers,
    weight,
};
use crate::{
    SyncError,
    grant::Start,
    misbehaved::{PeerMisbehaved, misbehaved},
    plan::{Decision, Standing},
    schedule::{Point, point},
};

/// The planner's state.
pub(super) struct Planner<'a> {
    site: &'a Site<'a>,
    transfers: &'a Transfers<'a>,
    /// Where the operand starts.
    start: Start,
    /// Directories that belong to the run.
    own: Arc<OwnPlaces>,
    /// Where lists go that outgrow memory.
    spools: SpoolHome,
    operand: PathBuf,
    protection: Protection,
    handover: Handover,
    outbox: Outbox<'a>,
    owners: Owners,
    target: Option<Target>,
    alternates: Option<Alternates>,
    /// What the source may send.
    bounds: Bounds<'a>,
    /// Number of the next listing message; `None` when they were released already.
    next_part: Option<u64>,
    /// Lists the destination's own directories; none where there is nothing to list.
    ahead: Option<ListAhead>,
    /// Directories that were listed as entries and whose own listing has not begun, the last one next.
    announced: Vec<Announced>,
    /// Those of the current directory.
    children: Vec<Announced>,
    /// What both take.
    waiting: Held,
    current: Option<Merge>,
    links: Links,
    deletions: Deletions,
    /// Names of the root that the source was asked for and does not have.
    missing: HashSet<Component>,
    /// Directories in which a first pass would have removed something; of a dry run only.
    swept: HashSet<RelPath>,
    /// What they take.
    swept_held: Held,
    /// With `--delete-before`, until the deletions were made.
    sweep: Option<Sweep>,
    /// Directories that belong to the run's backups, as far as the source has directories of their names.
    own_paths: Vec<RelPath>,
}

/// A directory that the source will list.
pub(super) struct Announced {
    id: EntryId,
    /// Below the root; of one that is ignored, nothing.
    pub(super) path: SharedPath,
    /// What its attributes take.
    sets: Option<Arc<Held>>,
    wanted: Option<dsync_fs::Wanted>,
    /// What the destination has of it.
    state: Presence,
}

/// What the destination has of an announced directory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// It was there and is to be compared.
    Old { dirty: bool },
    /// It was just made and is empty.
    New,
    /// It does not exist, because this is a dry run: everything in it is new.
    Imagined,
    /// It is left alone with all that is in it.
    Ignored,
    /// An entry that is no directory has its name and is left alone.
    Covered,
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

/// A message of the source's listing, as the inbox passes it on.
pub(super) enum Listed {
    Tops(Tops),
    Missing(dsync_wire::name::Name),
    IdName(IdName),
    /// With what its attribute sets take.
    Listing(Listing, Option<Arc<Held>>),
    End,
}

/// A message that waits for the planner, and what it takes until it is planned.
pub(super) struct Waiting {
    pub(super) message: Listed,
    pub(super) _held: Held,
}

/// What is left to do when everything was planned and has arrived.
pub(super) struct Leftover {
    /// Holds the destination's lock.
    pub(super) target: Target,
    pub(super) links: Links,
    pub(super) deletions: Deletions,
}

/// Plans the whole tree; returns when every file that was asked for has arrived or failed.
pub(super) fn run<'a>(
    transfers: &'a Transfers<'a>,
    (operand, start, spools): (PathBuf, Start, SpoolHome),
    filter: &Arc<FilterSet>,
    asked: Asked,
    readers: Sender<Vec<Arc<Pending>>>,
    outbox: Outbox<'a>,
    listing: &Receiver<Waiting>,
) -> Result<Option<Leftover>, SyncError> {
    let site = transfers.site;
    let own = Arc::<OwnPlaces>::default();
    let protection = Protection::new(filter, &site.policy.options, &own);
    let mut planner = Planner {
        site,
        transfers,
        start,
        operand,
        protection: protection.clone(),
        handover: Handover::new(readers),
        outbox,
        owners: Owners::new(&site.policy.options)?,
        target: None,
        alternates: None,
        bounds: Bounds::new(asked, filter, &site.policy.options),
        next_part: Some(0),
        ahead: None,
        announced: Vec::new(),
        children: Vec::new(),
        waiting: site.session.budget.take(Share::Paths, 0)?,
        current: None,
        links: Links::new(protection.clone(), &site.session.budget, &spools)?,
        deletions: Deletions::new(protection, &spools),
        missing: HashSet::new(),
        swept: HashSet::new(),
        sweep: Sweep::wanted(&site.policy.options, &spools),
        own_paths: Vec::new(),
        own,
        spools,
    };
    for Waiting { message, _held } in listing {
        point(Point::Receive);
        if site.session.halt.stopped() {
            return Ok(None);
        }
        match message {
            Listed::Tops(tops) => planner.tops(tops)?,
            Listed::Missing(name) => planner.missing(&name)?,
            Listed::IdName(name) => planner.id_name(&name)?,
            Listed::Listing(listing, _) if planner.sweep.is_some() => planner.sweep(listing)?,
            Listed::Listing(listing, sets) => planner.listing(&listing, sets)?,
            Listed::End => {
                planner.end_sweep()?;
                return planner.end();
            }
        }
        if listing.is_empty() {
            planner.handover.flush()?;
            site.session.control.flush()?;
        }
    }
    Ok(None)
}

impl Planner<'_> {
    /// Opens the destination and begins with its root directory.
    fn tops(&mut self, tops: Tops) -> Result<(), SyncError> {
        self.bounds.tops(&tops).map_err(|unasked| unasked.at(b""))?;
        let contents = self.bounds.is_contents();
        let target = Target::open(&self.operand, &tops, contents, (self.site.session, &self.start))?;
        let _ = self.site.tree.root.set(target.path.clone());
        self.open_others(&target)?;
        let state = target.presence();
        self.target = Some(target);
        if self.sweep.is_some() {
            return self.begin_sweep(tops, state);
        }
        self.root_directory(&tops)
    }

    /// Plans the root directory itself.
    fn root_directory(&mut self, tops: &Tops) -> Result<(), SyncError> {
        let Some(target) = self.target.take() else { return Ok(()) };
        let state = target.presence();
        let (wanted, state) = match (&tops.root, &target.root) {
            (Some(attributes), root) => {
                self.root_entry(attributes, root.as_deref(), target.created, state)?
            }
            (None, _) => (None, state),
        };
        self.target = Some(target);
        self.list_own(Announced { id: EntryId(0), path: SharedPath::root(), sets: None, wanted, state })
    }

    /// Begins to list the destination's own directories, from the root on.
    fn list_own(&mut self, root: Announced) -> Result<(), SyncError> {
        if let Some(own) = self.target.as_ref().and_then(|target| target.root.as_ref()) {
            let open = usize::try_from(self.site.open.count.limit() / 4).unwrap_or(usize::MAX);
            self.ahead = Some(ListAhead::new(Arc::clone(own), default_readers(), open, self.spools.clone()));
        }
        self.waiting.grow(weight::of_announced(&root))?;
        self.expect(vec![root]);
        Ok(())
    }

    /// Notes a directory whose listing will come.
    fn announce(&mut self, announced: Announced) -> Result<(), SyncError> {
        self.waiting.grow(weight::of_announced(&announced))?;
        self.children.push(announced);
        Ok(())
    }

    /// Opens the directories beside the destination that the run uses.
    fn open_others(&mut self, target: &Target) -> Result<(), SyncError> {
        let policy = &self.site.policy.options.writing;
        let Some(root) = &target.root else {
            if let (Some(options), Some((base, below))) =
                (&policy.alternates, target.missing(&self.site.policy.options, &self.start))
            {
                self.alternates = Some(Alternates::open(options, &base, &below)?);
            }
            return Ok(());
        };
        // What cannot be looked at is no place of the run's.
        let _ = self.own.add(root);
        if let Some(options) = &policy.alternates {
            let alternates = self.alternates.insert(Alternates::open(options, root, Path::new(""))?);
            alternates.roots().for_each(|dir| _ = self.own.add(dir));
        }
        if let Some(backup) = &policy.backup {
            let _ = backup::add_tree(root, backup, &self.own);
        }
        let around = Around {
            own: &self.own,
            spools: &self.spools,
            dry_run: self.site.policy.options.dry_run,
            local: self.transfers.is_local(),
        };
        self.site.homes.open(root, &around)?;
        if policy.delay_updates && !self.site.policy.options.dry_run {
            let _ = self.site.delayed.set(Delayed::new(root));
        }
        if let Some(dir) = policy.backup.as_ref().and_then(|backup| backup.dir.as_deref()) {
            refuse_unusable(PathRole::Backups, root, dir)?;
        }
        if let Some(backup) = policy.backup.as_ref().filter(|_| !self.site.policy.options.dry_run) {
            let _ = self.site.backups.set(Backups::new(root, backup, &self.own));
        }
        Ok(())
    }

    /// Compares the root directory's own attributes.
    fn root_entry(
        &mut self,
        attributes: &dsync_wire::message::Attributes,
        root: Option<&Dir>,
        created: bool,
        state: Presence,
    ) -> Result<(Option<dsync_fs::Wanted>, Presence), SyncError> {
        let mapped = self.owners.of(attributes);
        let existing = root.and_then(|dir| dir.metadata().ok());
        let existing = existing.map(|existing| self.as_swept(&RelPath::root(), existing));
        let made = Made(existing.map(|made| made.mode));
        let stopped = &**self.site.session.halt.stop_flag();
        let here = Here { dir: root, name: None, within: None, stopped };
        let (existing, standing): (_, &dyn Standing) =
            if created { (None, &made) } else { (existing, &here) };
        let decision = self.site.policy.decide_attributes(
            &EntryKind::Directory,
            attributes,
            &mapped,
            existing.as_ref(),
            standing,
        );
        self.site.account.amend(|report| report.listed.directories += 1);
        self.site.account.planned(Planned {
            action: decision.action,
            kind: FileType::Directory,
            changes: decision.changes,
            path: Vec::new(),
            target: Vec::new(),
            size: 0,
        })?;
        let state = match state {
            Presence::Old { .. } => {
                let opened = self.open_up_root(root, existing.as_ref(), &decision);
                Presence::Old { dirty: decision.action == Action::Retag || opened }
            }
            other => other,
        };
        Ok((Some(decision.wanted), state))
    }

    /// Lets the run work in its root; returns whether the root's own permissions have to be set afterwards.
    fn open_up_root(&self, root: Option<&Dir>, existing: Option<&Metadata>, decision: &Decision) -> bool {
        let (Some(root), Some(existing)) = (root, existing) else { return false };
        let early = self.site.policy.while_worked_in(existing, &decision.wanted);
        let early = early.filter(|_| !self.site.policy.options.dry_run);
        // What fails here fails again, and is told then.
        early.is_some_and(|early| root.set_own_attributes(&early).is_ok())
    }

    /// Notes a name that is to go.
    fn missing(&mut self, name: &dsync_wire::name::Name) -> Result<(), SyncError> {
        self.bounds.missing(name).map_err(|unasked| unasked.at(name.as_bytes()))?;
        if self.missing.len() >= MAX_OPERANDS.max(self.bounds.named()) {
            return Err(misbehaved(PeerMisbehaved::TooManyMissing));
        }
        let renamed = self.target.as_ref().and_then(|target| target.rename.clone());
        let name = renamed.map_or_else(|| Component::new(name.as_bytes()), Ok);
        self.missing.insert(name.map_err(misbehaved)?);
        Ok(())
    }

    /// Takes the name of a user or group.
    fn id_name(&mut self, name: &IdName) -> Result<(), SyncError> {
        self.bounds.id_name(name).map_err(|unasked| unasked.at(&name.name))?;
        self.owners.learn(name)
    }

    /// Judges a part of a listing before anything of it is looked at.
    fn judge(&mut self, merge: &mut Merge, listing: &Listing) -> Result<(), SyncError> {
        if listing.complete {
            self.bounds.whole(&merge.judged).map_err(|unasked| unasked.at(merge.path()))?;
        }
        for entry in &listing.entries {
            let judged = self.bounds.entry(&mut merge.judged, entry);
            judged.map_err(|unasked| unasked.at(&entry_path(merge.path(), entry)))?;
        }
        Ok(())
    }

    /// Merges one part of a directory's listing.
    fn listing(&mut self, listing: &Listing, sets: Option<Arc<Held>>) -> Result<(), SyncError> {
        self.owners.forget_sets();
        let part = Arc::new(PartTicket::new(self.next_part).holding(sets));
        let is_new = self.next_part.is_some();
        self.next_part = self.next_part.map(|part| part + 1);
        let mut merge = self.turn_to_merge(listing.dir)?;
        // What was swept was judged then.
        if is_new {
            self.judge(&mut merge, listing)?;
        }
        for entry in &listing.entries {
            let id = self.transfers.next_entry();
            self.site.account.count_listed(entry);
            check_order(&mut merge, entry, id)?;
            self.learn_names(entry, id)?;
            if let Some(directory) = merge.directory.clone() {
                self.entry(&mut merge, &directory, &part, id, entry)?;
            } else {
                self.tell_covered(&mut merge)?;
                let path = merge.path_of(entry);
                self.announce_ignored(entry, id, path)?;
            }
            if self.next_part.is_some() {
                self.site.account.progress.entries_checked.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.end_part(merge, listing)?;
        part.release(&self.site.session.control)?;
        self.site.session.control.flush_now_and_then()
    }

    /// Takes what the source says of an entry's other names.
    fn learn_names(&mut self, entry: &Entry, id: EntryId) -> Result<(), SyncError> {
        self.links.learn(entry, id)
    }

    /// Takes one of what a bound admits, waiting for it; false when the run has ended.
    fn take_one(&mut self, credit: &Credit) -> Result<bool, SyncError> {
        self.take_some(credit, 1)
    }

    /// Takes some of what a bound admits, waiting for it; false when the run has ended.
    fn take_some(&mut self, credit: &Credit, amount: u64) -> Result<bool, SyncError> {
        if credit.try_take(amount) {
            return Ok(true);
        }
        // What is taken may be given back only when these files have come.
        self.handover.flush()?;
        self.site.session.control.flush()?;
        Ok(credit.take(amount, &self.site.session.halt))
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
        let path = directory.path.join(&name);
        let Some(existing) = self.followed(directory, (&name, &path), entry, id, existing)? else {
            return Ok(());
        };
        let mut place = Place::of(directory, &name, &path);
        if self.is_passed_over(directory, entry, id, (&path, existing.as_ref()))?
            || self.must_stay(&place, entry, id, existing.as_ref())?
        {
            return Ok(());
        }
        let group = self.links.group_of(entry, id);
        let first = group.and_then(|group| self.links.first_name(&self.transfers.succession, group));
        if let (Some(first), Some(existing)) = (&first, &existing)
            && first.is_of(existing)
        {
            return self.stay(id, part, &place, entry, existing, first);
        }
        let mut decision = self.decide(&place, entry, existing.as_ref());
        // A further name becomes one of the first, whatever alternate directories have.
        let alternate = match first {
            Some(_) => None,
            None => self.alternate(merge, &place, entry, existing.as_ref(), &mut decision),
        };
        match decision.in_the_way.map_or(Ok(Way::Free), |kind| self.clear_way(&place, entry, kind))? {
            Way::Free => {}
            Way::Taken => place.displaced = decision.in_the_way,
            Way::Blocked => {
                self.announce_ignored(entry, id, directory.shared.join(&name))?;
                return Ok(());
            }
        }
        match (group, first) {
            (Some(_), Some(first)) if decision.placed => {
                self.follow(id, &place, entry, &decision, &first)?;
                return self.stand_by(id, part, &place, entry, (&decision, existing.as_ref()), &first);
            }
            (Some(group), _) if decision.placed => {
                let stays = existing.as_ref().filter(|existing| self.keeps_inode(&decision, existing));
                place.first_name = self.links.place(group, &path, stays)?;
            }
            _ => {}
        }
        // What is left alone is not up to date, and may not even be there.
        if decision.placed || alternate.is_some() {
            self.tell(directory, entry, decision.action, decision.changes, link_text(entry))?;
        }
        self.claim(merge, &mut place, entry, &decision, first.is_none() && alternate.is_none());
        let old = Old { existing: existing.as_ref(), alternate };
        let placed = self.carry_out(id, part, &place, entry, &decision, old)?;
        if let (Some(group), Placed::Failed) = (group, placed) {
            self.links.displace(group);
        }
        if placed != Placed::Here {
            return Ok(());
        }
        self.landed(id, part, &place, existing.as_ref())
    }

    /// True when what has the name goes on having it.
    fn keeps_inode(&self, decision: &Decision, existing: &Metadata) -> bool {
        match decision.action {
            Action::Keep | Action::Retag => true,
            // The source removes a name only when its content is here as well.
            Action::Update => {
                let in_place = self.site.policy.options.writing.inplace && existing.kind == Kind::File;
                in_place && !self.site.policy.options.remove_source_files
            }
            _ => false,
        }
    }

    /// Tells the source that an entry needed no content, once the disk has it.
    fn landed(
        &mut self,
        id: EntryId,
        part: &Arc<PartTicket>,
        place: &Place<'_>,
        existing: Option<&Metadata>,
    ) -> Result<(), SyncError> {
        if !self.site.removes_source() {
            return Ok(());
        }
        if let Some(dir) = &place.directory.dir {
            self.site.touched(dir);
        }
        self.outbox.submit_unsent(Unsent::new(id, part, existing))
    }

    /// The name that an entry has at the destination.
    fn own_name(&self, entry: &Entry, id: EntryId) -> Result<Component, SyncError> {
        match self.target.as_ref().and_then(|target| target.rename.clone()) {
            // A second entry would get the same name as the first.
            Some(_) if id.0 > 1 || matches!(entry.kind, EntryKind::Directory) => {
                Err(misbehaved(PeerMisbehaved::NotASingleFile { entry: id }))
            }
            Some(renamed) => Ok(renamed),
            None => Component::new(entry.name.as_bytes()).map_err(misbehaved),
        }
    }

    /// True when the run does not copy the entry, which is told of what it would not leave alone anyway.
    fn is_passed_over(
        &mut self,
        directory: &Directory,
        entry: &Entry,
        id: EntryId,
        (path, existing): (&RelPath, Option<&Metadata>),
    ) -> Result<bool, SyncError> {
        let safe_links = self.site.policy.options.safe_links;
        let leads_out = |target: &[u8]| safe_links && leads_out(path, target);
        let operation = match &entry.kind {
            EntryKind::Symlink { target } if self.is_copied(&entry.kind) && leads_out(target) => {
                Operation::CreateLink
            }
            kind if self.is_copied(kind) => return Ok(false),
            EntryKind::Directory => Operation::ReadDirectory,
            _ => Operation::Stat,
        };
        let name = path.file_name();
        let shared = name.map_or_else(SharedPath::root, |name| directory.shared.join(&name));
        self.announce_ignored(entry, id, shared)?;
        if !self.site.policy.leaves_alone(&entry.kind, existing) {
            let path = listed_path(directory, entry);
            self.site.account.problem(Problem { operation, path, cause: Cause::Skipped })?;
        }
        Ok(true)
    }

    /// Returns what the destination has, through a link that may be followed. `None` when it has one that may neither be followed
    /// nor give way, which is told: as rsync has it, and the message says what may be done.
    fn followed(
        &mut self,
        directory: &Directory,
        (name, path): (&Component, &RelPath),
        entry: &Entry,
        id: EntryId,
        existing: Option<Metadata>,
    ) -> Result<Option<Option<Metadata>>, SyncError> {
        match self.through_own_link(directory, name, entry, existing) {
            Ok(existing) => Ok(Some(existing.map(|existing| self.as_swept(path, existing)))),
            Err(error) => {
                tracing::debug!(%error, "a link is not followed");
                self.site.problem(Operation::CreateDirectory, path, Cause::Os(TOO_MANY_LINKS))?;
                self.announce_ignored(entry, id, directory.shared.join(name))?;
                Ok(None)
            }
        }
    }

    /// Returns what the destination has: under `keep_dirlinks` a directory where a link leads to one. The inner error is of a
    /// link that may neither be followed nor give way, which is the operator's to decide.
    fn through_own_link(
        &self,
        directory: &Directory,
        name: &Component,
        entry: &Entry,
        existing: Option<Metadata>,
    ) -> Result<Option<Metadata>, io::Error> {
        let is_link = existing.as_ref().is_some_and(|existing| existing.kind == Kind::Symlink);
        let wanted = self.site.policy.options.keep_dirlinks && matches!(entry.kind, EntryKind::Directory);
        let root = self.target.as_ref().and_then(|to| to.root.as_ref());
        let (Some(dir), Some(root), true) = (&directory.dir, root, is_link && wanted) else {
            return Ok(existing);
        };
        match dir.open_child_or_own_link(name, root) {
            Ok(opened) => {
                self.protection.note_led_to(root, &opened);
                Ok(opened.metadata().ok().or(existing))
            }
            Err(error) if UntrustedLink::of(&error).is_some_and(UntrustedLink::is_in_a_directorys_place) => {
                Err(error)
            }
            Err(_) => Ok(existing),
        }
    }

    /// Reports an entry that is there, differs and may not change; returns whether it is one.
    fn must_stay(
        &mut self,
        place: &Place<'_>,
        entry: &Entry,
        id: EntryId,
        existing: Option<&Metadata>,
    ) -> Result<bool, SyncError> {
        let Some(existing) = existing.filter(|_| self.site.policy.adds_only) else { return Ok(false) };
        if self.decide(place, entry, Some(existing)).action == Action::Keep {
            return Ok(false);
        }
        self.site.problem(Operation::Commit, place.path, Cause::Os(FILE_EXISTS))?;
        self.announce_ignored(entry, id, place.directory.shared.join(place.name))?;
        Ok(true)
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

    fn decide(&mut self, place: &Place<'_>, entry: &Entry, existing: Option<&Metadata>) -> Decision {
        let mapped = self.owners.of(&entry.attributes);
        let within = Some(&**place.directory);
        let stopped = &**self.site.session.halt.stop_flag();
        let here = Here { dir: place.directory.dir.as_deref(), name: Some(place.name), within, stopped };
        let decision = self.site.policy.decide(entry, &mapped, existing, &here);
        if existing.is_some_and(|existing| self.site.policy.only_rounded(entry, existing, &decision)) {
            self.site.account.amend(|report| report.rounded_times += 1);
        }
        decision
    }

    /// Looks for the entry in the alternate directories, and changes the decision if one has it.
    fn alternate(
        &mut self,
        merge: &Merge,
        place: &Place<'_>,
        entry: &Entry,
        existing: Option<&Metadata>,
        decision: &mut Decision,
    ) -> Option<Alternate> {
        let alternates = self.alternates.as_ref().filter(|_| decision.placed)?;
        let mapped = self.owners.of(&entry.attributes);
        let mut found = merge.alternates.find(self.site, entry, &mapped, place.name)?;
        let better = alternates.decision(&found, existing)?;
        found.adds_nothing = matches!(decision.action, Action::Keep | Action::Retag);
        // What is made here gets what it would get without an alternate, whose permissions may be any.
        *decision = Decision { in_the_way: decision.in_the_way, wanted: decision.wanted.clone(), ..better };
        Some(found)
    }

    /// Ends planning: settles directories that were never listed, waits for the files.
    fn end(mut self) -> Result<Option<Leftover>, SyncError> {
        self.handover.flush()?;
        self.site.session.control.flush()?;
        for announced in std::mem::take(&mut self.announced) {
            self.settle_unlisted(&announced)?;
        }
        self.site.account.progress.totals_final.store(true, Ordering::Release);
        if !self.transfers.awaited.drained(&self.site.session.halt) {
            return Ok(None);
        }
        self.transfers.ending.needs_ended.store(true, Ordering::Release);
        self.site.session.control.send(&ControlMessage::NeedsEnd)?;
        let Some(target) = self.target else {
            return Err(misbehaved(PeerMisbehaved::NoOperands));
        };
        Ok(Some(Leftover { target, links: self.links, deletions: self.deletions }))
    }
}

/// Linux's `EEXIST`: a name is taken where nothing may be replaced.
const FILE_EXISTS: i32 = 17;

/// What stands at a name of the destination; without a name, the directory itself.
pub(super) struct Here<'a> {
    pub(super) dir: Option<&'a Dir>,
    pub(super) name: Option<&'a Component>,
    /// The directory where it is planned, if it may be made there.
    pub(super) within: Option<&'a Directory>,
    /// Set when the run ends.
    pub(super) stopped: &'a AtomicBool,
}

impl Standing for Here<'_> {
    fn link_equals(&self, target: &[u8]) -> bool {
        let (Some(dir), Some(name)) = (self.dir, self.name) else { return false };
        dir.read_link(name).is_ok_and(|here| here == target)
    }

    fn content_equals(&self, content: &[u8; 32]) -> bool {
        let (Some(dir), Some(name)) = (self.dir, self.name) else { return false };
        // To look at a copy is no access that its access time tells of.
        let hash = dir.open_source_noatime(name).and_then(|file| crate::content::hash(&file, self.stopped));
        hash.is_ok_and(|here| here == *content)
    }

    fn extended(&self, scope: ExtendedScope) -> Option<Extended> {
        match self.name {
            Some(name) => self.dir?.extended(name, scope).ok(),
            None => self.dir?.own_extended(scope).ok(),
        }
    }

    fn allowed_mode(&self) -> Option<u16> {
        self.within?.allowed_mode()
    }

    fn inherited_mode(&self) -> u16 {
        self.within.map_or(0, Directory::inherited_mode)
    }
}

/// A root that the run has made, with all permissions that the system gave it: what its parent's default list or the
/// mask left of all, and what it took over. `None` where it is not made.
struct Made(Option<u16>);

impl Standing for Made {
    fn link_equals(&self, _: &[u8]) -> bool {
        false
    }

    fn content_equals(&self, _: &[u8; 32]) -> bool {
        false
    }

    fn extended(&self, _: ExtendedScope) -> Option<Extended> {
        None
    }

    fn allowed_mode(&self) -> Option<u16> {
        self.0.map(|mode| mode & 0o777)
    }

    fn inherited_mode(&self) -> u16 {
        self.0.map_or(0, |mode| mode & SETGID)
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

/// Refuses a directory that is made only when it is needed, if it is something else or another user's link is on the way.
fn refuse_unusable(role: PathRole, root: &Dir, dir: &[u8]) -> Result<(), SyncError> {
    let path = Path::new(OsStr::from_bytes(dir));
    match root.open_operand_here(path) {
        Err(error)
            if UntrustedLink::of(&error).is_some()
                || LeadsOut::of(&error).is_some()
                || error.kind() == io::ErrorKind::NotADirectory =>
        {
            Err(SyncError::of_path(role, path, error, |path, source| SyncError::DirectoryUnusable {
                role,
                path,
                source,
            }))
        }
        _ => Ok(()),
    }
}

/// Linux' error number for a link that may not be followed.
const TOO_MANY_LINKS: i32 = 40;

/// The path of an entry as the source names it.
fn listed_path(directory: &Directory, entry: &Entry) -> Vec<u8> {
    entry_path(directory.path.as_bytes(), entry)
}

/// Returns the path of an entry of the directory at this path.
fn entry_path(directory: &[u8], entry: &Entry) -> Vec<u8> {
    let mut path = directory.to_vec();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(entry.name.as_bytes());
    path
}
