//! The decision about one entry: a pure comparison of the source's entry with the destination's.
//!
//! Takes the run's policy, one [`Entry`] of the source's listing and the metadata of the
//! destination's entry of the same name, if it exists. Returns a [`Decision`]: exactly one action,
//! the attributes to set and the differences. It reads nothing (except through `content_equals`,
//! asked only under `checksum` when sizes are equal) and changes nothing, so a dry run and a real
//! run cannot differ.
//!
//! The quick check and the order of the rules are rsync's (`rsync.1`, "-c", "-u", "--existing").

mod permissions;
mod times;

use std::sync::Arc;

use dsync_fs::{Extended, ExtendedScope, Kind, Metadata, Origin, Privileges, Stamp, Wanted};
use dsync_wire::{
    event::{Action, Changes, FileType, WhyLeft},
    message::{Attributes, DeviceNumber, Entry, EntryKind, Timestamp},
    options::{Append, SyncOptions},
};

use permissions::{extended_changes, kept_mode, trusted_with};
use times::looks_rounded;
pub(crate) use times::{fs_timestamp, same_time, timestamp};

/// The destination's side of the policy.
pub(crate) struct Policy {
    /// The run's options.
    pub(crate) options: SyncOptions,
    /// Whether this process may change owners and make devices.
    pub(crate) privileged: bool,
    /// The process's file mode creation mask.
    pub(crate) umask: u16,
    /// Whether nothing that exists may change: an old directory keeps its attributes, whatever is
    /// added to it.
    pub(crate) adds_only: bool,
    /// Whether an entry may go without another one in its place.
    pub(crate) may_remove: bool,
}

/// An entry's owner, group and lists in the destination's numbers; `None` for each that is not set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Mapped {
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) extended: Option<Arc<Extended>>,
    /// The owner of the entry at both ends; `None` when the source's owner is not kept.
    pub(crate) kept_owner: Option<u32>,
    /// The group of the entry at both ends.
    pub(crate) kept_group: Option<u32>,
}

/// A way of writing into a file, of a run that was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupted {
    /// It added to the file: what the file has is a beginning of the source's.
    Adding,
    /// It wrote the file anew: the file has pieces of both, in no order.
    Rewriting,
}

/// The destination's entry of the same name. Each question is asked only where a decision needs it,
/// and at most once.
pub(crate) trait Standing {
    /// Returns whether it is a symbolic link of this text.
    fn link_equals(&self, target: &[u8]) -> bool;
    /// Returns how a killed run was writing into it, if one has left it half written.
    fn left_by(&self) -> Option<Interrupted> {
        None
    }
    /// Returns whether it is a file that a killed run has left half written.
    fn is_half_written(&self) -> bool {
        self.left_by().is_some()
    }
    /// Returns whether it is a file of this unkeyed hash; `stamp` is that of the comparison.
    fn content_equals(&self, content: &[u8; 32], stamp: Stamp) -> bool;
    /// Reads its lists and attributes; `None` when they cannot be read.
    fn extended(&self, scope: ExtendedScope) -> Option<Extended>;
    /// Returns the permissions that its directory's default list leaves to new entries; `None`
    /// without such a list.
    fn allowed_mode(&self) -> Option<u16>;
    /// Returns the permission bits that new directories inherit from their directory: its setgid
    /// bit.
    fn inherited_mode(&self) -> u16;
}

/// The type and attributes that are compared.
#[derive(Clone, Copy)]
struct Subject<'a> {
    kind: &'a EntryKind,
    attributes: &'a Attributes,
}

/// The decision about one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    /// The action that is reported.
    pub(crate) action: Action,
    /// The differences.
    pub(crate) changes: Changes,
    /// The attributes that the entry gets.
    pub(crate) wanted: Wanted,
    /// The type of an entry that is in the way and must be removed first.
    pub(crate) in_the_way: Option<Kind>,
    /// Whether the destination has the source's entry under this name, or will; `false` when the
    /// entry is skipped.
    pub(crate) placed: bool,
}

impl Decision {
    /// Keeps an entry with all of its attributes.
    fn as_it_is() -> Self {
        Self { placed: true, ..Self::skip() }
    }

    /// Leaves the entry alone whatever it is.
    fn skip() -> Self {
        Self {
            action: Action::Keep,
            changes: Changes::NONE,
            wanted: Wanted::default(),
            in_the_way: None,
            placed: false,
        }
    }
}

/// Returns the type of an entry, without details.
pub(crate) fn file_type(kind: &EntryKind) -> Option<FileType> {
    Some(match kind {
        EntryKind::File { .. } => FileType::File,
        EntryKind::Directory => FileType::Directory,
        EntryKind::Symlink { .. } => FileType::Symlink,
        EntryKind::Fifo => FileType::Fifo,
        EntryKind::Socket => FileType::Socket,
        EntryKind::CharDevice { .. } => FileType::CharDevice,
        EntryKind::BlockDevice { .. } => FileType::BlockDevice,
        _ => return None,
    })
}

/// Returns the type of a destination entry.
pub(crate) fn file_type_of(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::File,
        Kind::Dir => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

impl Policy {
    /// Returns [`same_time`], or with a window whether whole seconds differ by no more than that.
    fn same_time(&self, a: Timestamp, b: Timestamp) -> bool {
        match self.options.modify_window {
            Some(window) => a.seconds.abs_diff(b.seconds) <= u64::from(window),
            None => same_time(a, b),
        }
    }

    /// Decides about `entry`, given the destination's entry of that name.
    pub(crate) fn decide(
        &self,
        entry: &Entry,
        mapped: &Mapped,
        existing: Option<&Metadata>,
        standing: &dyn Standing,
    ) -> Decision {
        let subject = Subject { kind: &entry.kind, attributes: &entry.attributes };
        if let EntryKind::File { size, .. } = &entry.kind
            && !self.selects_size(*size)
        {
            return Decision::skip();
        }
        if self.leaves_alone(&entry.kind, existing) {
            return Decision::skip();
        }
        let Some(existing) = existing else { return self.create(subject, mapped, None, standing) };
        if Some(file_type_of(existing.kind)) != file_type(&entry.kind) {
            return self.create(subject, mapped, Some(existing.kind), standing);
        }

        let newer = || timestamp(existing.mtime) > entry.attributes.mtime;
        let is_file = matches!(entry.kind, EntryKind::File { .. });
        if self.options.update && is_file && newer() && !standing.is_half_written() {
            return Decision::skip();
        }

        if existing.origin == Origin::Device {
            return Self::into_device(entry, existing);
        }
        let decision = self.compare(entry, mapped, existing, standing);
        match (&entry.kind, decision.action) {
            (EntryKind::Directory, Action::Retag) if self.adds_only => Decision::as_it_is(),
            (EntryKind::File { size, .. }, Action::Update)
                if self.options.writing.append != Append::No && existing.size >= *size =>
            {
                // One that a killed run has added all to may still lack its attributes.
                let goes_on = match standing.left_by() {
                    Some(Interrupted::Rewriting) => true,
                    Some(Interrupted::Adding) => existing.size == *size,
                    None => false,
                };
                if goes_on { decision } else { Decision::skip() }
            }
            _ => decision,
        }
    }

    /// Decides about a file whose content is written into a device. No time tells whether a device has
    /// it already, so it is always written; the device keeps its attributes.
    fn into_device(entry: &Entry, device: &Metadata) -> Decision {
        let is_longer = matches!(entry.kind, EntryKind::File { size, .. } if size != device.size);
        let changes = if is_longer { Changes::SIZE } else { Changes::CONTENT };
        Decision { action: Action::Update, changes, ..Decision::as_it_is() }
    }

    /// Decides about a directory that is made on the way to others, without the source's attributes.
    pub(crate) fn decide_way(&self, existing: Option<&Metadata>, standing: &dyn Standing) -> Decision {
        if existing.is_some_and(|existing| existing.kind == Kind::Dir)
            || self.leaves_alone(&EntryKind::Directory, existing)
        {
            return Decision::skip();
        }
        let mode = 0o777 & standing.allowed_mode().unwrap_or(!self.umask) | standing.inherited_mode();
        Decision {
            action: Action::Create,
            wanted: Wanted { mode: Some(mode), ..Wanted::default() },
            in_the_way: existing.map(|existing| existing.kind),
            // The source's directory is not copied, so nobody is told.
            ..Decision::skip()
        }
    }

    /// Returns whether the run copies entries of this type.
    pub(crate) fn copies(&self, kind: &EntryKind) -> bool {
        let options = &self.options;
        match kind {
            EntryKind::File { .. } => true,
            EntryKind::Directory => options.takes_directories() || options.relative,
            EntryKind::Symlink { .. } => options.links,
            EntryKind::Fifo | EntryKind::Socket => options.specials,
            EntryKind::CharDevice { .. } | EntryKind::BlockDevice { .. } => {
                // A source that may make a device here could write to it in the next session.
                options.devices && self.privileged && !options.writing.devices
            }
            _ => false,
        }
    }

    /// Returns why an entry is left alone that an option selects against; `None` for one without
    /// such a reason.
    pub(crate) fn why_left(&self, entry: &Entry, existing: Option<&Metadata>) -> Option<WhyLeft> {
        if let EntryKind::File { size, .. } = entry.kind
            && !self.selects_size(size)
        {
            let is_short = size < self.options.min_size;
            return Some(if is_short { WhyLeft::TooShort } else { WhyLeft::TooLong });
        }
        if self.leaves_alone(&entry.kind, existing) {
            return Some(if existing.is_some() { WhyLeft::Exists } else { WhyLeft::New });
        }
        let newer = |existing: &Metadata| timestamp(existing.mtime) > entry.attributes.mtime;
        let is_newer = self.options.update && existing.is_some_and(newer);
        (is_newer && matches!(entry.kind, EntryKind::File { .. })).then_some(WhyLeft::Newer)
    }

    /// Returns whether files of so many bytes are copied.
    pub(crate) fn selects_size(&self, size: u64) -> bool {
        (self.options.min_size..=self.options.max_size.unwrap_or(u64::MAX)).contains(&size)
    }

    /// Returns whether some files are left as they are although the source's differ: newer ones, longer ones
    /// under `append`, and those of other sizes than wanted.
    pub(crate) fn leaves_some_as_they_are(&self) -> bool {
        let options = &self.options;
        let limits_size = options.min_size > 0 || options.max_size.is_some();
        options.update || options.writing.append != Append::No || limits_size
    }

    /// Returns whether an entry is left alone because it exists, or because it does not, whatever
    /// else differs.
    pub(crate) fn leaves_alone(&self, kind: &EntryKind, existing: Option<&Metadata>) -> bool {
        match existing {
            None => self.options.existing,
            Some(existing) => {
                let is_directory = matches!(kind, EntryKind::Directory) && existing.kind == Kind::Dir;
                self.options.ignore_existing && !is_directory
            }
        }
    }

    /// Compares an entry with one of the same type; `Keep` when nothing differs.
    pub(crate) fn compare(
        &self,
        entry: &Entry,
        mapped: &Mapped,
        existing: &Metadata,
        standing: &dyn Standing,
    ) -> Decision {
        let subject = Subject { kind: &entry.kind, attributes: &entry.attributes };
        let mut changes = self.attribute_changes(subject, mapped, existing, standing);
        let same = match &entry.kind {
            EntryKind::File { size, .. } => self.same_file(*size, entry, existing, standing, &mut changes),
            EntryKind::Symlink { target } => standing.link_equals(target),
            EntryKind::CharDevice { device } | EntryKind::BlockDevice { device } => {
                device_number(existing.rdev) == *device
            }
            _ => true,
        };

        let action = if !(same && self.is_kept_right(existing)) {
            self.note_replacement(subject, &mut changes);
            Action::Update
        } else if changes.is_empty() {
            Action::Keep
        } else {
            Action::Retag
        };
        let mut mode = self.mode(subject, mapped, existing.mode);
        if action == Action::Update && !self.options.perms && matches!(entry.kind, EntryKind::File { .. }) {
            // The new content is trusted with the old one's special bits only if it is the same
            // owner's.
            let owner = mapped.kept_owner == Some(existing.uid);
            mode = trusted_with(mode, owner, mapped.kept_group == Some(existing.gid));
        }

        let wanted = self.wanted(subject, mapped, mode);
        Decision { action, changes, wanted, in_the_way: None, placed: true }
    }

    /// Returns `false` for a real link, device, fifo or socket where a file should stand for it.
    fn is_kept_right(&self, existing: &Metadata) -> bool {
        let faked = self.options.fake_super.destination && existing.origin == Origin::Inode;
        !faked || matches!(existing.kind, Kind::File | Kind::Dir)
    }

    /// Returns whether nothing but its time makes a file be copied, and that time looks like the
    /// source's on a filesystem that cannot hold it exactly: then every run copies the file.
    pub(crate) fn only_rounded(&self, entry: &Entry, existing: &Metadata, decision: &Decision) -> bool {
        let by_time = decision.action == Action::Update
            && matches!(entry.kind, EntryKind::File { .. })
            && existing.kind == Kind::File
            && !decision.changes.contains(Changes::SIZE)
            && !(self.options.checksum || self.options.ignore_times)
            && self.options.times;
        let [kept, changed] = [existing.mtime, existing.ctime].map(timestamp);
        // The filesystem's own time of the change shows what it can hold.
        by_time && changed.nanoseconds == 0 && looks_rounded(kept, entry.attributes.mtime)
    }

    /// Decides about the transfer's root, of which only the attributes are compared.
    pub(crate) fn decide_attributes(
        &self,
        kind: &EntryKind,
        attributes: &Attributes,
        mapped: &Mapped,
        existing: Option<&Metadata>,
        standing: &dyn Standing,
    ) -> Decision {
        let subject = Subject { kind, attributes };
        match existing {
            None => self.create(subject, mapped, None, standing),
            Some(existing) => {
                let changes = self.attribute_changes(subject, mapped, existing, standing);
                let action = if changes.is_empty() { Action::Keep } else { Action::Retag };
                if self.adds_only {
                    return Decision::as_it_is();
                }
                let wanted = self.wanted(subject, mapped, self.mode(subject, mapped, existing.mode));
                Decision { action, changes, wanted, in_the_way: None, placed: true }
            }
        }
    }

    /// Returns the decision for an entry that is made anew.
    fn create(
        &self,
        entry: Subject<'_>,
        mapped: &Mapped,
        in_the_way: Option<Kind>,
        standing: &dyn Standing,
    ) -> Decision {
        let mode = if self.options.perms {
            kept_mode(entry, mapped)
        } else {
            // As the kernel has it: a default list takes the place of the mask.
            let mode = entry.attributes.mode & 0o777 & standing.allowed_mode().unwrap_or(!self.umask);
            let is_directory = matches!(entry.kind, EntryKind::Directory);
            if is_directory { mode | standing.inherited_mode() } else { mode }
        };
        let wanted = self.wanted(entry, mapped, mode);
        Decision { action: Action::Create, changes: Changes::NONE, wanted, in_the_way, placed: true }
    }

    /// Compares by the quick check, or by content under `checksum`.
    fn same_file(
        &self,
        size: u64,
        entry: &Entry,
        existing: &Metadata,
        standing: &dyn Standing,
        changes: &mut Changes,
    ) -> bool {
        if existing.size != size {
            changes.insert(Changes::SIZE);
            return false;
        }
        if self.options.checksum {
            let EntryKind::File { content: Some(content), .. } = &entry.kind else { return false };
            return standing.content_equals(content, existing.stamp());
        }
        let (here, there) = (timestamp(existing.mtime), entry.attributes.mtime);
        let looks_same = self.options.size_only || !self.options.ignore_times && self.same_time(here, there);
        // Of the very size and time no note is true; a time within the window may be that of a kill.
        looks_same && (here == there || !standing.is_half_written())
    }

    /// Makes of a file that would stay one whose content is sent, though the old one's looks the same.
    pub(crate) fn replace(&self, decision: &mut Decision) {
        decision.action = Action::Update;
        decision.changes.insert(if self.options.times { Changes::CONTENT } else { Changes::TIME_NOW });
        if !self.options.perms {
            // Special bits are not for a content that the old file may not have.
            decision.wanted.mode = decision.wanted.mode.map(|mode| mode & 0o777);
        }
    }

    /// Adds the changes that a transfer itself makes.
    fn note_replacement(&self, entry: Subject<'_>, changes: &mut Changes) {
        let is_file = matches!(entry.kind, EntryKind::File { .. });
        if !is_file || self.options.checksum {
            changes.insert(Changes::CONTENT);
        }
        if !self.options.times {
            changes.insert(Changes::TIME_NOW);
        } else if !self.keeps_time(entry) {
            changes.insert(Changes::TIME);
        }
    }

    /// Returns the preserved attributes that differ.
    fn attribute_changes(
        &self,
        entry: Subject<'_>,
        mapped: &Mapped,
        existing: &Metadata,
        standing: &dyn Standing,
    ) -> Changes {
        let mut changes = Changes::NONE;
        // Whatever the inode says: damaged stored attributes must be written anew.
        let damaged = matches!(existing.origin, Origin::Damaged | Origin::Unreadable);
        if self.keeps_time(entry) && !self.same_time(timestamp(existing.mtime), entry.attributes.mtime) {
            changes.insert(Changes::TIME);
        }
        if self.atime(entry).is_some_and(|atime| !self.same_time(timestamp(existing.atime), atime)) {
            changes.insert(Changes::ACCESS_TIME);
        }

        let is_link = matches!(entry.kind, EntryKind::Symlink { .. });
        if !is_link && (damaged || self.mode(entry, mapped, existing.mode) != existing.mode) {
            changes.insert(Changes::PERMS);
        }
        if mapped.uid.is_some_and(|uid| uid != existing.uid || damaged) {
            changes.insert(Changes::OWNER);
        }

        if mapped.gid.is_some_and(|gid| gid != existing.gid) {
            changes.insert(Changes::GROUP);
        }
        if let Some(wanted) = &mapped.extended {
            changes.insert(extended_changes(wanted, kept_mode(entry, mapped), standing));
        }

        changes
    }

    /// Returns the attributes that a directory needs before anything is made in it; `None`, the
    /// rule, for nothing.
    ///
    /// A user must be allowed to list it and to write there. New entries take over its group if it
    /// has the setgid bit, so that bit and the group are set at once. All other permissions are set
    /// when the work in it is done.
    pub(crate) fn while_worked_in(&self, existing: &Metadata, wanted: &Wanted) -> Option<Wanted> {
        if self.adds_only {
            return None;
        }
        if self.options.fake_super.destination {
            return noted_while_worked_in(existing);
        }
        let full = if self.privileged { 0 } else { OWNER_WORKS };
        let setgid = wanted.mode.unwrap_or(existing.mode) & SETGID;
        let mode = existing.mode & !SETGID | setgid | full;
        let gid = wanted.gid.filter(|&gid| gid != existing.gid && setgid != 0);
        (mode != existing.mode || gid.is_some()).then(|| Wanted {
            mode: Some(mode),
            gid,
            ..Wanted::default()
        })
    }

    /// Returns the attributes that the entry gets.
    fn wanted(&self, entry: Subject<'_>, mapped: &Mapped, mode: u16) -> Wanted {
        let mode = (!matches!(entry.kind, EntryKind::Symlink { .. })).then_some(mode);
        let mtime = self.keeps_time(entry).then(|| fs_timestamp(entry.attributes.mtime));
        let atime = self.atime(entry).map(fs_timestamp);
        Wanted { mode, mtime, atime, uid: mapped.uid, gid: mapped.gid, extended: mapped.extended.clone() }
    }

    /// Returns the permissions of an entry that has `existing`.
    fn mode(&self, entry: Subject<'_>, mapped: &Mapped, existing: u16) -> u16 {
        if self.options.perms {
            return kept_mode(entry, mapped);
        }
        if !self.options.executability || !matches!(entry.kind, EntryKind::File { .. }) {
            return existing;
        }
        match (entry.attributes.mode & EXECUTES != 0, existing & EXECUTES != 0) {
            (false, _) => existing & !EXECUTES,
            // Who may read it may execute it.
            (true, false) => existing | (existing >> 2 & EXECUTES),
            (true, true) => existing,
        }
    }

    /// Returns the access time for the entry.
    fn atime(&self, entry: Subject<'_>) -> Option<Timestamp> {
        entry.attributes.atime.filter(|_| self.options.atimes)
    }

    /// Returns whether the entry's modification time is preserved.
    fn keeps_time(&self, entry: Subject<'_>) -> bool {
        self.options.times
            && match entry.kind {
                EntryKind::Directory => !self.options.omit_dir_times,
                EntryKind::Symlink { .. } => !self.options.omit_link_times,
                _ => true,
            }
    }
}

/// Returns the attributes that a directory needs under `--fake-super` before anything is made in it.
/// It keeps its permissions in a note from then on, and itself has those of its user as well.
fn noted_while_worked_in(existing: &Metadata) -> Option<Wanted> {
    // A directory with a note has these, unless somebody took them away by hand.
    let says_itself = matches!(existing.origin, Origin::Inode | Origin::Unreadable);
    let keeps_out = says_itself && existing.mode & OWNER_WORKS != OWNER_WORKS;
    let is_needed = keeps_out && !Privileges::current().is_root();
    is_needed.then(|| Wanted { mode: Some(existing.mode), ..Wanted::default() })
}

/// Permissions that the owner of a directory needs to list it and to work in it.
const OWNER_WORKS: u16 = 0o700;
/// The bit that makes new entries take over a directory's group.
pub(crate) const SETGID: u16 = 0o2000;
/// Permissions to execute, of anybody.
const EXECUTES: u16 = 0o111;

/// Returns the wire's form of a device number.
pub(crate) fn device_number(number: dsync_fs::DeviceNumber) -> DeviceNumber {
    DeviceNumber { major: number.major, minor: number.minor }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
