//! The fourth step: carries out the decision. Every change of the disk goes through the run's
//! hands.

use dsync_fs::{Kind, Metadata, Wanted};
use dsync_wire::{
    event::{Action, Changes, LeftAlone, Planned},
    message::EntryKind,
};

use super::{
    super::{
        hands::Hands,
        landed::brings,
        links::{FirstName, Further, Told},
        settle::Outcome,
        succession::{Heir, Turn},
    },
    Planner,
    decide::{Course, Placing},
    frontier::{Announced, Presence},
    place::{Made, Placed},
    requests::{Request, tell_displaced},
    reserve::{Reserved, keeps_newer, request},
    special::kind_of,
    subject::{Found, Subject},
    way::Way,
};
use crate::{
    SyncError,
    plan::{Decision, Policy, SETGID, file_type},
};

/// The mode of a new directory until it gets its own.
const OWNER_ONLY: u16 = 0o700;

impl Planner<'_> {
    /// Carries out the decision on an entry.
    pub(super) fn act(
        &mut self,
        subject: &Subject<'_>,
        found: &Found,
        course: Course,
        reserved: Option<Reserved>,
    ) -> Result<(), SyncError> {
        // Its name could not be freed.
        let Some(reserved) = reserved else { return self.ignore(subject) };

        match course {
            Course::Ignore(problem) => {
                self.ignore(subject)?;
                problem.map_or(Ok(()), |problem| self.site.account.problem(problem))
            }
            Course::Stay { first, .. } => self.stay(subject, found, first, reserved),
            Course::Follow { first, mut decision, way, as_there } => {
                if as_there {
                    (decision.action, decision.changes) = (Action::Link, Changes::NONE);
                }
                self.follow(subject, found, (&decision, &way), &first)?;
                self.stand_by(found, first, reserved)
            }
            Course::Place(placing) => self.place(subject, found, &placing, reserved),
        }
    }

    /// Passes over an entry; the listing of a directory will come and is ignored.
    fn ignore(&mut self, subject: &Subject<'_>) -> Result<(), SyncError> {
        match subject.entry.kind {
            EntryKind::Directory => {
                self.comparison.frontier.announce(Announced::ignored(subject.id, subject.shared()))
            }
            _ => Ok(()),
        }
    }

    /// Leaves a name alone that is one of the first name's inode.
    fn stay(
        &mut self,
        subject: &Subject<'_>,
        found: &Found,
        first: FirstName,
        reserved: Reserved,
    ) -> Result<(), SyncError> {
        let place = subject.place(self.site, &self.comparison.protection, None);
        self.requests.landed(subject.id, subject.part, &place, found.existing.as_ref(), false)?;
        let planned = subject.plan(self.site, Action::Keep, Changes::HARD_LINK, subject.link_text());
        planned.map_or(Ok(()), |planned| self.site.account.carried_out(planned))?;
        self.stand_by(found, first, reserved)
    }

    /// Notes that an entry is linked to the first of its names at the end of the run.
    fn follow(
        &mut self,
        subject: &Subject<'_>,
        found: &Found,
        (decision, way): (&Decision, &Way),
        first: &FirstName,
    ) -> Result<(), SyncError> {
        let Some(kind) = file_type(&subject.entry.kind) else { return Ok(()) };
        let action = match decision.action {
            action @ (Action::Create | Action::Link) => action,
            _ => Action::Update,
        };
        let mut changes = decision.changes;
        changes.insert(Changes::HARD_LINK);
        if action == Action::Update && !self.site.policy.options.times {
            changes.insert(Changes::TIME_NOW);
        }
        let target = self.links.path(&self.transfers.succession, first)?;
        let Some(planned) = subject.plan(self.site, action, changes, target) else { return Ok(()) };
        let told_later = self
            .site
            .account
            .tells_ends()
            .then_some((changes, planned.facts))
            .map(|(changes, facts)| Told { changes, size: planned.size, facts: facts.unwrap_or_default() });
        if told_later.is_none() {
            // It is counted when it is made.
            self.site.account.carried_out_by(planned, false)?;
        }

        let displaced = way.displaced();
        match self.site.hands {
            Hands::Working => {
                let displaces = displaced == Some(Kind::Dir);
                let (entry, name) = (subject.id, subject.name.clone());
                let keeps_newer = keeps_newer(subject, found.existing.as_ref(), &self.site.policy.options);
                let further = Further { entry, name, action, kind, displaces, keeps_newer, told: told_later };
                self.links.note(subject.directory, further, first)
            }
            Hands::Idle(_) => {
                self.site.account.link_made(true);
                if let Some(kind) = decision.in_the_way {
                    self.site.tell_gives_way(subject.listed_path(), kind)?;
                }
                tell_displaced(self.site, &subject.place(self.site, &self.comparison.protection, displaced))
            }
        }
    }

    /// Keeps a name ready while the first one's content is awaited: if that fails, this one is
    /// asked for.
    fn stand_by(&self, found: &Found, first: FirstName, reserved: Reserved) -> Result<(), SyncError> {
        let Some(Request { file, .. }) = reserved.request else { return Ok(()) };
        let same_inode = found.existing.as_ref().is_some_and(|existing| first.is_of(existing));
        match self.transfers.succession.wait(first.number(), Heir { file, same_inode })? {
            Turn::Waits => Ok(()),
            Turn::Now(file) => self.transfers.take_over(&file),
            Turn::Needless(file) => self.transfers.settle(&file, Outcome::Needless),
        }
    }

    /// Makes, changes or keeps an entry by itself.
    fn place(
        &mut self,
        subject: &Subject<'_>,
        found: &Found,
        placing: &Placing,
        reserved: Reserved,
    ) -> Result<(), SyncError> {
        let decision = &placing.decision;
        // Skipped entries are not reported as up to date: they may not exist at all.
        let mut planned = if decision.placed || placing.alternate.is_some() {
            let target = reserved.made_from().unwrap_or_else(|| subject.link_text());
            subject.plan(self.site, decision.action, decision.changes, target)
        } else {
            self.tell_left_alone(subject, found)?;
            None
        };

        // The content of a complete file was sent to an earlier run that could not finish it.
        let sent = reserved.finished.is_some() || brings(&subject.entry.kind, decision.action);
        let first_name = reserved.first_name;
        let placed = match &subject.entry.kind {
            EntryKind::Directory => self.directory(subject, placing, found.existing.as_ref())?,
            EntryKind::File { size, .. } => {
                self.file(subject, found, placing, reserved, (*size, &mut planned))?
            }
            kind => self.special(subject, found, placing, &reserved, kind)?,
        };

        // Those that are asked for were announced.
        let failed = matches!(placed, Placed::Failed | Placed::Undressed);
        match planned {
            Some(planned) if failed => self.site.account.take_back(&planned),
            Some(planned) => self.site.account.carried_out(planned)?,
            None => {}
        }
        if !failed {
            self.tell_gives_way(subject, found, placing)?;
        }

        if let (Some(group), Placed::Failed) = (found.group, placed) {
            self.links.displace(group);
        }
        if let (Some(number), Placed::Here | Placed::Undressed) = (first_name, placed) {
            self.note_inode(subject, found, placing, number)?;
        }
        if placed != Placed::Here {
            return Ok(());
        }
        let mut place = subject.place(self.site, &self.comparison.protection, None);
        place.first_name = first_name;
        self.requests.landed(subject.id, subject.part, &place, found.existing.as_ref(), sent)
    }

    /// Tells a run that explains the path what goes for the entry: one of another type, or a file of which an
    /// alternate directory has the same.
    fn tell_gives_way(
        &self,
        subject: &Subject<'_>,
        found: &Found,
        placing: &Placing,
    ) -> Result<(), SyncError> {
        let Placing { decision, alternate, .. } = placing;
        let Some(existing) = &found.existing else { return Ok(()) };
        let is_file = matches!(subject.entry.kind, EntryKind::File { .. });
        let is_dropped = is_file && decision.action == Action::Keep && alternate.is_some();
        if !is_dropped && decision.in_the_way.is_none() {
            return Ok(());
        }
        self.site.tell_gives_way(subject.listed_path(), existing.kind)
    }

    /// Notes the inode of a first name that is there: the one that was compared, or that was just made.
    fn note_inode(
        &self,
        subject: &Subject<'_>,
        found: &Found,
        placing: &Placing,
        number: u64,
    ) -> Result<(), SyncError> {
        let action = placing.decision.action;
        if let (Hands::Idle(_), Action::Link, Some(other)) = (&self.site.hands, action, &placing.alternate) {
            // No name can be linked to another filesystem.
            let is_linked = self.comparison.ground.device_of(subject.directory) == Some(other.metadata.dev);
            let note = || self.transfers.succession.note_inode(number, &other.metadata.stamp(), false);
            return if is_linked { Ok(note()?) } else { Ok(()) };
        }

        let dir = subject.directory.dir.as_ref().filter(|dir| dir.numbers_inodes());
        let Some(dir) = dir else { return Ok(()) };
        let stays = matches!(action, Action::Keep | Action::Retag);
        let now = match found.existing.filter(|_| stays) {
            Some(existing) => existing,
            None => match dir.stat(&subject.name) {
                Ok(made) => made,
                // Without its stamp nothing is known of it.
                Err(_) => return Ok(()),
            },
        };
        Ok(self.transfers.succession.note_inode(number, &now.stamp(), false)?)
    }

    /// Tells why an entry is left alone, if anybody listens.
    fn tell_left_alone(&self, subject: &Subject<'_>, found: &Found) -> Result<(), SyncError> {
        let account = &self.site.account;
        if !account.hears_all() {
            return Ok(());
        }
        let why = self.site.policy.why_left(subject.entry, found.existing.as_ref());
        match (why, file_type(&subject.entry.kind)) {
            (Some(why), Some(kind)) => account.left_alone(LeftAlone::new(kind, subject.listed_path(), why)),
            _ => Ok(()),
        }
    }

    /// Makes or keeps a directory and announces that its listing will follow.
    fn directory(
        &mut self,
        subject: &Subject<'_>,
        placing: &Placing,
        existing: Option<&Metadata>,
    ) -> Result<Placed, SyncError> {
        let decision = &placing.decision;
        let makes = matches!(decision.action, Action::Create | Action::Reuse);
        let state = match decision.action {
            Action::Create | Action::Reuse => self.make_directory(subject, placing)?,
            _ => match existing {
                // Not there, and under `existing` not made.
                None => Presence::Ignored,
                Some(existing) if existing.kind == Kind::Dir => {
                    let opened = self.open_up(subject, existing, decision);
                    Presence::Old { dirty: decision.action == Action::Retag || opened }
                }
                // Under `ignore_existing`.
                Some(_) => Presence::Covered,
            },
        };

        let wanted = decision.wanted.clone();
        let sets = wanted.extended.as_ref().and_then(|_| subject.part.sets());
        let (id, path) = (subject.id, subject.shared());
        let expected = self.comparison.bounds.may_list(&subject.path);
        let placed = if makes && matches!(state, Presence::Ignored) { Placed::Failed } else { Placed::Open };
        let wanted = Some(wanted);
        self.comparison.frontier.announce(Announced { id, path, sets, wanted, state, expected })?;
        Ok(placed)
    }

    fn make_directory(&self, subject: &Subject<'_>, placing: &Placing) -> Result<Presence, SyncError> {
        let Some(dir) = &subject.directory.dir else { return Ok(Presence::Imagined) };
        let place = subject.place(self.site, &self.comparison.protection, placing.way.displaced());
        let at_once = self.at_once(subject, &placing.decision);
        // Open to this process only until it gets its own attributes, where those are the source's.
        let mode = at_once.as_ref().and_then(|early| early.mode).unwrap_or(OWNER_ONLY);
        let made = place.make_directory(dir, mode)?;
        if let Some(early) = at_once.filter(|_| made == Made::Now) {
            // A failure here happens again later, and is reported then.
            let _ = self.site.hands.dress(dir, &subject.name, Kind::Dir, &early);
        }
        Ok(match (made, &self.site.hands) {
            (Made::Not, _) => Presence::Ignored,
            (Made::Before, _) => Presence::Old { dirty: true },
            (Made::Now, Hands::Working) => Presence::New,
            (Made::Now, Hands::Idle(_)) => Presence::Imagined,
        })
    }

    /// Returns the attributes that a new directory gets before the work in it. Where no later session of a
    /// run that was cut off would correct its mode, it has it at once: only its time, its lists and a setgid
    /// bit of its own wait for the end.
    fn at_once(&self, subject: &Subject<'_>, decision: &Decision) -> Option<Wanted> {
        let Policy { adds_only, options, .. } = &self.site.policy;
        let is_left = !options.perms || subject.entry.implied && options.no_implied_dirs;
        if *adds_only || is_left {
            let wanted = &decision.wanted;
            let passed_on = subject.directory.inherited_mode() & SETGID;
            let mode = wanted.mode.map(|mode| mode & !(SETGID & !passed_on) | OWNER_ONLY);
            return Some(Wanted { mode, uid: wanted.uid, gid: wanted.gid, ..Wanted::default() });
        }
        let is_given = self.passes_on_too_much(subject, decision);
        is_given.then(|| Wanted { mode: Some(OWNER_ONLY), ..Wanted::default() })
    }

    /// Returns whether a new directory has a setgid bit from the one above that it is not to keep. What
    /// is made in it would take over its group and the bit.
    fn passes_on_too_much(&self, subject: &Subject<'_>, decision: &Decision) -> bool {
        let loses = decision.wanted.mode.is_some_and(|mode| mode & SETGID == 0);
        let is_noted = self.site.policy.options.fake_super.destination;
        loses && !is_noted && subject.directory.inherited_mode() & SETGID != 0
    }

    /// Lets the run work in a directory. Returns whether its own permissions have to be set
    /// afterwards.
    fn open_up(&self, subject: &Subject<'_>, existing: &Metadata, decision: &Decision) -> bool {
        let Some(dir) = &subject.directory.dir else { return false };
        let early = self.site.policy.while_worked_in(existing, &decision.wanted);
        let open_up = |early: &Wanted| {
            if let Some(backups) = self.site.backups.get() {
                backups.note_access(&subject.path, early, || dir.open_child(&subject.name));
            }
            self.site.hands.dress(dir, &subject.name, Kind::Dir, early).is_ok()
        };
        // A failure here happens again later, and is reported then.
        early.as_ref().is_some_and(open_up)
    }

    /// Takes up an earlier run's file, asks for the content, or sets the attributes.
    fn file(
        &mut self,
        subject: &Subject<'_>,
        found: &Found,
        placing: &Placing,
        reserved: Reserved,
        (size, planned): (u64, &mut Option<Planned>),
    ) -> Result<Placed, SyncError> {
        let Placing { decision, alternate, way, .. } = placing;
        let mut place = subject.place(self.site, &self.comparison.protection, way.displaced());
        place.first_name = reserved.first_name;
        if let Some(finished) = &reserved.finished {
            return place.take_up(size, finished, found.existing.is_none());
        }
        if let Some(request) = reserved.request {
            return self.requests.send(&place, request, planned.take()).map(|()| Placed::Open);
        }

        self.note_compared(subject, found, placing)?;
        match (decision.action, alternate) {
            (Action::Link, Some(other)) => {
                if let Some(placed) = place.link(other)? {
                    return Ok(placed);
                }
                if let Some(own) = &other.own
                    && let Some(placed) = self.leave_own(subject, found, own, planned)?
                {
                    return Ok(placed);
                }
                let mut place = subject.place(self.site, &self.comparison.protection, way.displaced());
                place.first_name = reserved.first_name;
                // Other filesystems, too many links: a copy instead.
                let file = request(subject, &place, decision, size, found.existing.as_ref(), Some(other));
                let file = self.requests.admit(file)?;
                let request = Request { file, has_part: false };
                self.requests.send(&place, request, planned.take()).map(|()| Placed::Open)
            }
            (Action::Retag, _) => place.dress(Kind::File, &decision.wanted),
            (Action::Keep, Some(other)) => {
                // Found where it is compared with: the destination needs none of its own.
                if let Some(old) = &found.existing
                    && !place.drop_old(old.kind, other)?
                    && let Some(own) = &other.own
                {
                    if let Some(placed) = self.leave_own(subject, found, own, planned)? {
                        return Ok(placed);
                    }
                    // It fails once more, and is reported.
                    let place = subject.place(self.site, &self.comparison.protection, None);
                    return place.dress(Kind::File, &own.wanted);
                }
                Ok(Placed::Open)
            }
            (Action::Keep, None) => Ok(kept(found, placing)),
            _ => Ok(Placed::Open),
        }
    }

    /// Leaves an old file where an equal one of an alternate directory could not take its place, with the
    /// attributes that it gets without that. Returns `None` if these cannot be set: another user's file may
    /// still be replaced.
    fn leave_own(
        &mut self,
        subject: &Subject<'_>,
        found: &Found,
        own: &Decision,
        planned: &mut Option<Planned>,
    ) -> Result<Option<Placed>, SyncError> {
        if own.action == Action::Retag {
            let place = subject.place(self.site, &self.comparison.protection, None);
            if !place.dress_old(&own.wanted)? {
                return Ok(None);
            }
        }

        if let Some(other) = planned.take() {
            self.site.account.take_back(&other);
            *planned = subject.plan(self.site, own.action, own.changes, subject.link_text());
        }
        // Its further names are compared with the inode that stays.
        if let Some(group) = found.group {
            self.links.place(group, &subject.path, found.existing.as_ref(), true)?;
        }
        Ok(Some(Placed::Here))
    }

    /// Notes the content of a file that stays because its content was compared, if the tree is told of
    /// at the end.
    fn note_compared(
        &self,
        subject: &Subject<'_>,
        found: &Found,
        placing: &Placing,
    ) -> Result<(), SyncError> {
        let Placing { decision, alternate, .. } = placing;
        let is_compared = self.site.policy.options.checksum && decision.placed && alternate.is_none();
        let stays = is_compared && matches!(decision.action, Action::Keep | Action::Retag);
        let (Some(tree), true) = (&self.site.present, stays) else { return Ok(()) };
        let (Some(existing), Some(hash)) = (&found.existing, subject.listed_content()) else {
            return Ok(());
        };
        let mtime = decision.wanted.mtime.filter(|_| decision.action == Action::Retag);
        tree.note(&existing.stamp(), mtime, &hash)
    }

    /// Makes, replaces or keeps a link, device, fifo or socket.
    fn special(
        &self,
        subject: &Subject<'_>,
        found: &Found,
        placing: &Placing,
        reserved: &Reserved,
        kind: &EntryKind,
    ) -> Result<Placed, SyncError> {
        let Placing { decision, alternate, way, .. } = placing;
        let mut place = subject.place(self.site, &self.comparison.protection, way.displaced());
        place.first_name = reserved.first_name;

        if let (Action::Link, Some(other)) = (decision.action, alternate)
            && let Some(placed) = place.link(other)?
        {
            return Ok(placed);
        }
        match decision.action {
            Action::Retag => place.dress(kind_of(kind), &decision.wanted),
            Action::Create | Action::Update | Action::Reuse | Action::Link => {
                place.make_special(kind, decision)
            }
            _ => Ok(kept(found, placing)),
        }
    }
}

/// Returns where an entry is that is left alone: that may have another reason than being equal.
fn kept(found: &Found, placing: &Placing) -> Placed {
    let equal = placing.decision.placed && found.existing.is_some() && placing.alternate.is_none();
    if equal { Placed::Here } else { Placed::Open }
}
