//! Stage 1 at the source: walks the operands and sends their entries, a directory at a time.

use std::{
    collections::HashSet,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::{Arc, atomic::AtomicU8},
};

use dsync_fs::{
    Choice, DirRef, ExtendedScope, Kind, Metadata, Origin, RelPath, SpoolError, Walk, WalkOperation,
    WalkRuled, WalkRuling, WalkedDir, WalkedEntry, XattrRules,
};
use dsync_wire::{
    limits::{MAX_ID_NAME, MAX_LISTING_ENTRIES},
    link::LinkError,
    message::{
        Acl, Attributes, Cause, ControlMessage, DeviceNumber, Entry, EntryId, EntryKind, Extended, IdName,
        Listing, ListingEnd, Operation, Problem, Tops, Xattr,
    },
    name::Name,
    options::{ModeRule, SyncOptions},
    ruling::{Ruled, Ruling},
};
use rayon::prelude::*;

use super::{
    Shared,
    catalogue::{Home, Kept, NEVER, Part, Rights, Witness},
    expected::Expected,
    first_names::FirstNames,
    read,
    spans::Outlet,
};
use crate::{
    Manifest, SyncError,
    content::Contents,
    munge,
    plan::{device_number, timestamp},
    rules, set_bytes,
    span::SpanKey,
};

/// The lister's state.
struct Lister<'a> {
    shared: &'a Shared<'a>,
    names: dsync_fs::Names,
    known_ids: HashSet<(bool, u32)>,
    first_names: FirstNames,
    /// Numbers of directories that are still to be walked, the last one next; `None` for one that
    /// was not listed as an entry.
    directories: Vec<Option<EntryId>>,
    /// Those of the current directory.
    children: Vec<Option<EntryId>>,
    /// The current directory, while parts of it are to come.
    current: Option<Option<EntryId>>,
    next_entry: u64,
    bytes: u64,
    outlet: Outlet,
    /// The rules by which some extended attributes are left out.
    xattr_rules: XattrRules,
    /// The entries as a manifest has them.
    expected: Option<Expected>,
}

/// Names the operands that are missing, for the destination to remove what has their names.
fn send_missing(shared: &Shared<'_>, walk: &Walk) -> Result<(), SyncError> {
    let send = |path: &RelPath| match path.components().map(Name::new).collect() {
        Ok(names) => shared.session.control.queue(&ControlMessage::Missing(names)),
        Err(_) => Ok(()),
    };
    for path in walk.operand_problems().iter().filter_map(|problem| problem.missing.as_ref()) {
        send(path)?;
    }
    for lost in walk.lost() {
        lost.map_err(kept)?.missing.iter().try_for_each(send)?;
    }
    shared.session.control.flush()
}

/// Reports the paths of a list that are not walked.
fn report_lost(shared: &Shared<'_>, walk: &Walk) -> Result<(), SyncError> {
    let ignore_missing = shared.session.options.ignores_missing_args();
    for lost in walk.lost() {
        let lost = lost.map_err(kept)?;
        let (operation, cause) = match lost.errno {
            // The user named it: that it is missing is an error, not a change during the run.
            Some(_) if lost.is_missing() && ignore_missing => continue,
            Some(_) if lost.leads_out() => (looking_at(lost.is_link), Cause::LeadsOut),
            Some(errno) => (looking_at(lost.is_link), Cause::Os(errno)),
            None => (Operation::ReadDirectory, Cause::Skipped),
        };
        let problem = Problem::new(operation, lost.path, cause);
        shared.session.control.queue(&ControlMessage::Problem(problem))?;
    }
    shared.session.control.flush()
}

/// Returns whether the one operand is missing, whose name it is that goes at the destination: it may have
/// another name there, like a single file that is copied.
fn lacks_one(operands: &[PathBuf], walk: &Walk) -> bool {
    let ([operand], [only]) = (operands, walk.operand_problems()) else { return false };
    let has_slash = [&b"/"[..], b"/."].iter().any(|end| operand.as_os_str().as_bytes().ends_with(end));
    !has_slash && only.missing.as_ref().is_some_and(|missing| missing.depth() == 1)
}

/// Returns the operation that fails for an operand, or for a link that is one and cannot be followed.
fn looking_at(is_link: bool) -> Operation {
    if is_link { Operation::FollowLink } else { Operation::Stat }
}

/// Returns the error of a list that cannot be read back.
fn kept(source: SpoolError) -> SyncError {
    SyncError::FileList { path: None, source: source.into() }
}

/// Lists the whole tree; with a key spans may stand for parts of it.
pub(super) fn run(
    shared: &Shared<'_>,
    (operands, walk): (&[PathBuf], Walk),
    manifest: Option<&Manifest>,
    key: Option<SpanKey>,
) -> Result<(), SyncError> {
    let mut lister = Lister::new(shared, key, rules::of_xattrs(&shared.session.options)?);
    lister.expected = manifest.map(Expected::new).transpose()?;
    let options = &shared.session.options;
    if walk.root().is_some() && !options.takes_directories() {
        // A directory without `recursive` or `dirs` is left out like a named operand, not copied without its
        // content.
        lister.send_problem(Operation::ReadDirectory, &RelPath::root(), Cause::Skipped)?;
    }

    let root = walk.root().copied().filter(|_| options.takes_directories());
    let mut extended = None;
    if let Some(root) = &root {
        lister.announce_ids(root)?;
        extended = lister.root_extended(&walk)?.map(Arc::new);
    }

    let root_attributes = root.as_ref().map(|root| attributes(root, extended, options));
    let removes_one = options.delete_missing_args && lacks_one(operands, &walk);
    let single_file = walk.single_file() || removes_one;
    let tops = Tops { root: root_attributes, named: walk.named(), single_file };
    shared.session.control.send(&ControlMessage::Tops(tops))?;
    let ignore_missing = options.ignores_missing_args();
    if options.delete_missing_args {
        send_missing(shared, &walk)?;
    }

    lister.rulings(walk.rulings())?;
    for path in walk.skipped() {
        lister.send_problem(Operation::ReadDirectory, path, Cause::Skipped)?;
    }
    let problems = walk.operand_problems().iter();
    for problem in problems.filter(|problem| !(ignore_missing && problem.is_missing())) {
        let path =
            operands.get(problem.index).map_or_else(Vec::new, |path| path.as_os_str().as_bytes().to_vec());
        // The user named it: that it is missing is an error, not a change during the run.
        let cause = problem.error.raw_os_error().map_or(Cause::Unrepresentable, Cause::Os);
        let is_link = problem.operation == WalkOperation::FollowLink;
        let problem = Problem::new(looking_at(is_link), path, cause);
        shared.session.control.send(&ControlMessage::Problem(problem))?;
    }
    report_lost(shared, &walk)?;
    for dir in walk {
        if shared.session.halt.stopped() {
            return Ok(());
        }
        lister.directory(&dir)?;
    }

    lister.outlet.end(shared)?;
    let end = ListingEnd { entries: lister.next_entry - u64::from(root.is_none()), bytes: lister.bytes };
    shared.session.control.send(&ControlMessage::ListingEnd(end))
}

impl<'a> Lister<'a> {
    fn new(shared: &'a Shared<'a>, key: Option<SpanKey>, xattr_rules: XattrRules) -> Self {
        Self {
            shared,
            names: dsync_fs::Names::new(),
            known_ids: HashSet::new(),
            first_names: FirstNames::default(),
            directories: vec![Some(EntryId(0))],
            children: Vec::new(),
            current: None,
            next_entry: 1,
            bytes: 0,
            outlet: Outlet::new(key),
            xattr_rules,
            expected: None,
        }
    }

    /// Lists and attributes of the root.
    fn root_extended(&mut self, walk: &Walk) -> Result<Option<Extended>, SyncError> {
        if self.scope().is_empty() {
            return Ok(None);
        }
        match walk.root_extended(self.scope()) {
            Ok(extended) => {
                let extended = extended.map(|extended| wire_extended(extended.ruled(&self.xattr_rules)));
                self.announce_named(extended.as_ref())?;
                Ok(extended)
            }
            Err(error) => {
                self.send_problem(Operation::ReadAttributes, &RelPath::root(), read::cause(&error))?;
                Ok(None)
            }
        }
    }

    /// Sends the entries of one directory, or of a part of it.
    fn directory(&mut self, dir: &WalkedDir) -> Result<(), SyncError> {
        for problem in &dir.problems {
            self.problem(problem.operation, problem.path.as_bytes(), &problem.error)?;
        }
        self.rulings(&dir.rulings)?;
        // The walk goes depth first: its next directory is always the one that was noted last.
        let number = self.current.take().unwrap_or_else(|| self.directories.pop().flatten());
        if let Some(number) = number {
            self.entries(number, dir)?;
        }
        if dir.last {
            self.directories.extend(self.children.drain(..).rev());
        } else {
            self.current = Some(number);
        }
        Ok(())
    }

    /// Tells why entries take part or not.
    fn rulings(&self, rulings: &[WalkRuling]) -> Result<(), SyncError> {
        for WalkRuling { path, is_dir, why } in rulings {
            let why = match why {
                WalkRuled::Hidden(origin) => Ruled::Hidden(rules::place(origin)),
                WalkRuled::Shown(origin) => Ruled::Shown(rules::place(origin)),
                WalkRuled::OtherFilesystem => Ruled::OtherFilesystem,
                WalkRuled::NotRecursive => Ruled::NotRecursive,
                WalkRuled::Pruned => Ruled::Pruned,
            };
            let ruling = Ruling::new(path.as_bytes().to_vec(), *is_dir, why);
            self.shared.session.control.queue(&ControlMessage::Ruling(ruling))?;
        }
        Ok(())
    }

    /// Sends entries in messages of bounded size.
    fn entries(&mut self, number: EntryId, dir: &WalkedDir) -> Result<(), SyncError> {
        let mut draft = Draft::default();
        for walked in dir.entries.chunks(self.batch_len()) {
            for (walked, details) in walked.iter().zip(self.details(&dir.dir, walked)?) {
                let Some(entry) = self.entry(dir, walked, details)? else { continue };
                let lacks_sets = !self.scope().is_empty() && entry.attributes.extended.is_none();
                if draft.is_full_for(&entry) || draft.entries.len() >= self.outlet.room() {
                    self.send(number, dir, std::mem::take(&mut draft), false)?;
                }
                draft.add(walked, entry);
                if self.shared.session.options.remove_source_files {
                    // Only the source has the attributes that it could not send.
                    let witness = Witness::of(&walked.metadata);
                    draft.witnesses.push(witness.map(|witness| witness.staying(lacks_sets)));
                }
                self.next_entry += 1;
            }
        }
        self.send(number, dir, draft, dir.last)
    }

    /// Checks the next entry and sends whatever must be known before it; `None` when it cannot be
    /// sent.
    fn entry(
        &mut self,
        dir: &WalkedDir,
        walked: &WalkedEntry,
        details: Details,
    ) -> Result<Option<Entry>, SyncError> {
        let path = || dir.path.join(&walked.name);
        // Details that were not read to their end, because the run stopped, are no failure of the
        // entry.
        if self.shared.session.halt.stopped() {
            return Err(SyncError::Link(LinkError::Closed));
        }

        if walked.choice == Choice::Hide {
            return Ok(hidden(walked));
        }
        let details = match self.as_demanded(&path(), walked, details)? {
            Ok(details) => details,
            Err(cause) => {
                self.send_problem(Operation::ReadFile, &path(), cause)?;
                self.note_directory(walked, None);
                return Ok(None);
            }
        };
        // A file without a hash differs: if its content is needed, the request for it fails and is
        // told. A dry run makes none.
        if let (Err(cause), true) = (&details.content, self.shared.session.options.dry_run) {
            self.send_problem(Operation::ReadFile, &path(), *cause)?;
        }
        let content = details.content.ok().flatten();
        let extended = match details.extended {
            Ok(extended) => extended.map(wire_extended),
            Err(cause) => {
                self.send_problem(Operation::ReadAttributes, &path(), cause)?;
                None
            }
        };

        self.announce_named(extended.as_ref())?;
        let Some(mut entry) = entry(walked, content, extended.map(Arc::new), &self.shared.session.options)
        else {
            self.send_problem(Operation::Stat, &path(), Cause::Unrepresentable)?;
            self.note_directory(walked, None);
            return Ok(None);
        };

        if self.replaces_unsafe_link(walked) {
            self.send_problem(Operation::FollowLink, &path(), Cause::Skipped)?;
        }

        self.announce_ids(&walked.metadata)?;
        if self.shared.session.options.hard_links {
            // Where a manifest has two contents of one inode, each name is held to its own.
            let demanded = content.filter(|_| self.expected.is_some());
            entry.hard_link = self.first_names.link_of(&walked.metadata, demanded, EntryId(self.next_entry));
        }
        self.note_directory(walked, Some(EntryId(self.next_entry)));
        self.count(walked, &entry);
        Ok(Some(entry))
    }

    /// Counts the bytes of an entry.
    fn count(&mut self, walked: &WalkedEntry, entry: &Entry) {
        let size = if walked.metadata.kind == Kind::File { walked.metadata.size } else { 0 };
        self.shared.session.note_length(size);
        let text_len = if let EntryKind::Symlink { target } = &entry.kind { target.len() as u64 } else { 0 };
        // Sparse files may add up to more than 64 bits hold.
        self.bytes = self.bytes.saturating_add(size).saturating_add(text_len);
    }

    /// Returns the details of an entry with the content that a manifest demands, or why it is not listed.
    fn as_demanded(
        &mut self,
        path: &RelPath,
        walked: &WalkedEntry,
        details: Details,
    ) -> Result<Result<Details, Cause>, SyncError> {
        let Some(expected) = &mut self.expected else { return Ok(Ok(details)) };
        let content = expected.content_of(path.as_bytes(), walked)?;
        Ok(content.map(|content| Details { content: Ok(content), ..details }))
    }

    /// Returns whether an entry takes the place of a link that leads out. A directory under
    /// `copy_dirlinks` may be in the place of any link, and is not told.
    fn replaces_unsafe_link(&self, walked: &WalkedEntry) -> bool {
        let options = &self.shared.session.options;
        let any_link = options.copy_links || options.copy_dirlinks && walked.metadata.kind == Kind::Dir;
        walked.followed.is_some() && options.copy_unsafe_links && !any_link
    }

    /// Notes a directory that the walk will enter.
    fn note_directory(&mut self, walked: &WalkedEntry, number: Option<EntryId>) {
        if walked.is_walked {
            self.children.push(number);
        }
    }

    /// Sends a part of a directory's listing.
    fn send(&mut self, number: EntryId, dir: &WalkedDir, draft: Draft, last: bool) -> Result<(), SyncError> {
        let Draft { entries, kept, witnesses, .. } = draft;
        self.shared.session.tally.add_entries(entries.len() as u64);
        let first = self.next_entry - entries.len() as u64;
        let requests = entries.iter().map(|entry| AtomicU8::new(first_request(entry))).collect();
        let left_out = dir.left_out && self.shared.tells_left_out;
        let listing = Listing { dir: number, last, complete: last && dir.complete, left_out, entries };
        let set_bytes = if self.scope().is_empty() { 0 } else { set_bytes::of_sets(&listing) };
        let home = Home::Directory(dir.dir.clone());
        let part = Part { home, first, entries: kept, witnesses, requests, set_bytes };
        self.outlet.send(self.shared, part, listing, dir.path.as_bytes())
    }

    fn scope(&self) -> ExtendedScope {
        let options = &self.shared.session.options;
        ExtendedScope { acls: options.acls, xattrs: options.xattrs, users_only: false }
    }

    /// Returns the number of entries whose details are read together: few if each may be large.
    fn batch_len(&self) -> usize {
        if self.scope().is_empty() { MAX_LISTING_ENTRIES } else { EXTENDED_BATCH }
    }

    /// Reads the details of entries that the walk did not read.
    fn details(&self, dir: &DirRef, walked: &[WalkedEntry]) -> Result<Vec<Details>, SyncError> {
        // A manifest has the contents.
        let reads = self.shared.session.options.checksum && self.expected.is_none();
        let scope = self.scope();
        if scope.is_empty() && !reads {
            return Ok(walked.iter().map(|_| Details::default()).collect());
        }
        let contents = self.shared.session.contents();
        let read = |entry: &WalkedEntry| Details {
            content: match entry.metadata.kind {
                Kind::File if reads => content(dir, entry, contents).map(Some),
                _ => Ok(None),
            },
            extended: if scope.is_empty() {
                Ok(None)
            } else {
                dir.extended(&entry.name, &entry.metadata, entry.followed, scope)
                    .map(|extended| Some(extended.ruled(&self.xattr_rules)))
                    .map_err(|error| read::cause(&error))
            },
        };

        // Nothing of a hidden entry is read.
        let details = |entry: &WalkedEntry| match entry.choice {
            Choice::Hide => Details::default(),
            _ => read(entry),
        };
        self.shared.session.workers.install(|| walked.par_iter().map(details).collect())
    }

    /// Sends the names of those whom access control lists name.
    fn announce_named(&mut self, extended: Option<&Extended>) -> Result<(), SyncError> {
        let lists = extended.into_iter().flat_map(|extended| [&extended.access, &extended.default]);
        for acl in lists.flatten() {
            for (group, named) in [(false, &acl.users), (true, &acl.groups)] {
                named.iter().try_for_each(|&(id, _)| self.announce(group, id))?;
            }
        }
        Ok(())
    }

    /// Sends the names of owner and group before the first entry that has them.
    fn announce_ids(&mut self, metadata: &Metadata) -> Result<(), SyncError> {
        let options = &self.shared.session.options;
        let wanted = [(false, metadata.uid, options.owner), (true, metadata.gid, options.group)];
        let preserved = wanted.into_iter().filter(|&(_, _, preserved)| preserved);
        preserved.map(|(group, id, _)| (group, id)).try_for_each(|(group, id)| self.announce(group, id))
    }

    /// Sends the name of a user or group, once.
    fn announce(&mut self, group: bool, id: u32) -> Result<(), SyncError> {
        if self.shared.session.options.numeric_ids || !self.known_ids.insert((group, id)) {
            return Ok(());
        }
        let name = if group { self.names.group_name(id) } else { self.names.user_name(id) };
        let sendable = |name: &Vec<u8>| (1..=MAX_ID_NAME).contains(&name.len()) && !name.contains(&0);
        match name.filter(sendable) {
            Some(name) => {
                self.shared.session.control.send(&ControlMessage::IdName(IdName { group, id, name }))
            }
            None => Ok(()),
        }
    }

    fn problem(&self, step: WalkOperation, path: &[u8], error: &std::io::Error) -> Result<(), SyncError> {
        let operation = match step {
            WalkOperation::ReadDirectory => Operation::ReadDirectory,
            WalkOperation::ReadLink => Operation::ReadLink,
            WalkOperation::FollowLink => Operation::FollowLink,
            WalkOperation::OpenDevice => Operation::ReadFile,
            WalkOperation::ReadRules => Operation::ReadRules,
            _ => Operation::Stat,
        };
        let cause = match error.raw_os_error() {
            // A link to nothing is there: nothing has vanished.
            Some(number) if operation == Operation::FollowLink => Cause::Os(number),
            // Nor what an operand stands for: all of the source is missing.
            Some(number) if path.is_empty() => Cause::Os(number),
            _ => read::cause(error),
        };
        let problem = Problem::new(operation, path.to_vec(), cause);
        self.shared.session.control.send(&ControlMessage::Problem(problem))
    }

    fn send_problem(&self, operation: Operation, path: &RelPath, cause: Cause) -> Result<(), SyncError> {
        let problem = Problem::new(operation, path.as_bytes().to_vec(), cause);
        self.shared.session.control.send(&ControlMessage::Problem(problem))
    }
}

/// The data of an entry beyond its metadata.
struct Details {
    /// Hash of a regular file, with `checksum` only.
    content: Result<Option<[u8; 32]>, Cause>,
    /// Lists and attributes, where they are copied.
    extended: Result<Option<dsync_fs::Extended>, Cause>,
}

impl Default for Details {
    fn default() -> Self {
        Self { content: Ok(None), extended: Ok(None) }
    }
}

/// A listing message that is being filled.
#[derive(Default)]
struct Draft {
    entries: Vec<Entry>,
    /// The same entries for the catalogue.
    kept: Vec<Kept>,
    witnesses: Vec<Option<Witness>>,
    /// Estimated size.
    bytes: usize,
    /// The last set of lists and attributes: neighbours often have the same.
    last_set: Option<Arc<Extended>>,
}

impl Draft {
    fn is_full_for(&self, entry: &Entry) -> bool {
        let full =
            self.entries.len() >= MAX_LISTING_ENTRIES || self.bytes + self.weight(entry) > MAX_PART_BYTES;
        full && !self.entries.is_empty()
    }

    fn add(&mut self, walked: &WalkedEntry, mut entry: Entry) {
        self.bytes += self.weight(&entry);
        if let Some(set) = &mut entry.attributes.extended {
            match &self.last_set {
                Some(last) if last == set => *set = Arc::clone(last),
                _ => self.last_set = Some(Arc::clone(set)),
            }
        }
        let size = if let EntryKind::File { size, .. } = entry.kind { size } else { 0 };
        let rights = Rights::of(&walked.metadata, entry.attributes.extended.is_some());
        self.kept.push(Kept { name: walked.name.clone(), size, followed: walked.followed, rights });
        self.entries.push(entry);
    }

    /// Returns about the number of bytes that an entry adds. A set that equals the previous entry's
    /// adds none.
    fn weight(&self, entry: &Entry) -> usize {
        let text = if let EntryKind::Symlink { target } = &entry.kind { target.len() } else { 0 };
        let set = entry.attributes.extended.as_ref().filter(|set| self.last_set.as_ref() != Some(set));
        ENTRY_BYTES + entry.name.as_bytes().len() + text + set.map_or(0, |set| set.max_encoded_len())
    }
}

/// Returns the number of requests that an entry begins with: a hidden one is never found.
fn first_request(entry: &Entry) -> u8 {
    if entry.kind == EntryKind::Hidden { NEVER } else { 0 }
}

/// Returns the wire's form of a walked entry; `None` for one whose name or time it cannot express.
pub(crate) fn entry(
    walked: &WalkedEntry,
    content: Option<[u8; 32]>,
    extended: Option<Arc<Extended>>,
    options: &SyncOptions,
) -> Option<Entry> {
    let metadata = &walked.metadata;
    // The destination learns nothing of parts that are not copied.
    let device = || if options.devices { device_number(metadata.rdev) } else { DeviceNumber::default() };
    let kind = match metadata.kind {
        Kind::File => EntryKind::File { size: metadata.size, content },
        Kind::Dir => EntryKind::Directory,
        Kind::Symlink if !options.links => EntryKind::Symlink { target: Vec::new() },
        Kind::Symlink => EntryKind::Symlink { target: munge::off(walked.link_target.clone()?, options) },
        Kind::Fifo => EntryKind::Fifo,
        Kind::Socket => EntryKind::Socket,
        Kind::CharDevice => EntryKind::CharDevice { device: device() },
        Kind::BlockDevice => EntryKind::BlockDevice { device: device() },
    };

    let name = Name::try_from(walked.name.as_bytes()).ok()?;
    if !timestamp(metadata.mtime).is_valid() {
        return None;
    }

    let attributes = attributes(metadata, extended, options);
    Some(Entry { name, kind, attributes, hard_link: None, implied: walked.is_implied })
}

/// Returns an entry of which only the name is told.
fn hidden(walked: &WalkedEntry) -> Option<Entry> {
    let name = Name::try_from(walked.name.as_bytes()).ok()?;
    let (kind, attributes) = (EntryKind::Hidden, Attributes::default());
    Some(Entry { name, kind, attributes, hard_link: None, implied: false })
}

fn attributes(metadata: &Metadata, extended: Option<Arc<Extended>>, options: &SyncOptions) -> Attributes {
    let Metadata { kind, mut mode, uid, gid, .. } = *metadata;
    if kind != Kind::Symlink {
        mode = ModeRule::apply(&options.mode_rules, mode, kind == Kind::Dir);
    }
    // One that cannot travel is no reason to leave the entry out.
    let atime = (options.atimes && kind != Kind::Dir).then(|| timestamp(metadata.atime));
    let atime = atime.filter(|time| time.is_valid());
    let (uid, gid) = (if options.owner { uid } else { 0 }, if options.group { gid } else { 0 });
    Attributes { mode, mtime: timestamp(metadata.mtime), atime, uid, gid, extended }
}

/// Returns the wire's form of the lists and attributes that were read.
fn wire_extended(read: dsync_fs::Extended) -> Extended {
    let dsync_fs::Acls { access, default } = read.acls.unwrap_or_default();
    let xattr = |xattr: dsync_fs::Xattr| Xattr { name: xattr.name.into_bytes(), value: xattr.value };
    let xattrs = read.xattrs.unwrap_or_default().into_iter().map(xattr).collect();
    Extended { access: access.map(wire_acl), default: default.map(wire_acl), xattrs }
}

fn wire_acl(acl: dsync_fs::Acl) -> Acl {
    let dsync_fs::Acl { user, group, mask, other, users, groups } = acl;
    Acl { user, group, mask, other, users, groups }
}

/// Returns the unkeyed hash of a file's content.
fn content(dir: &DirRef, entry: &WalkedEntry, contents: Contents<'_>) -> Result<[u8; 32], Cause> {
    let stamp = || (entry.metadata.origin != Origin::Device).then(|| entry.metadata.stamp());
    let open = || dir.open_source(&entry.name, entry.followed);
    contents.hash(stamp, open).map_err(|error| read::cause(&error))
}

/// Fixed part of an entry's estimated size.
const ENTRY_BYTES: usize = 48;
/// Entries whose lists and attributes are read together: enough for all processors, and at 512 KiB
/// for each at the most 32 MiB.
const EXTENDED_BATCH: usize = 64;
/// Estimated bytes of one listing message: well under the frame limit, and small enough that the
/// destination starts on a large directory before it is listed to its end.
const MAX_PART_BYTES: usize = 128 << 10;
