//! Indexes the destination's files when new ones come that may have been moved or copied there: at
//! the first with `--detect-renamed`, else when there are enough of them for a tree of its size.
//!
//! The law: only files are indexed whose path the source could have listed in this run
//! ([`Bounds::could_list`]). A basis' sums go to the source, and it gets those of no file that it
//! could not have offered a new version of. Nothing is read where no file is new, and a tree that
//! cannot be indexed, or not within the session's memory, costs what an index would have saved.

use std::sync::Arc;

use dsync_fs::{
    Component, Dir, FileIndex, FileIndexBuilder, IndexedAt, Kind, ListAhead, ListedPart, Metadata,
    SharedPath, Sought, SpoolError, Timestamp, default_readers,
};
use dsync_wire::{
    budget::{Held, OverBudget, Share},
    message::EntryId,
    options::DetectRenamed,
};

use super::{
    super::{
        Site,
        alternate::Alternates,
        asked::{Bounds, Judged, Unasked},
        elsewhere::{Elsewhere, FoundElsewhere, Tree},
    },
    ground::Ground,
    subject::Subject,
};

/// The files that may be a basis, once they are worth a look.
#[derive(Default)]
pub(super) struct Renamed {
    files: Files,
    /// Bytes of the new files so far.
    new_bytes: u64,
    /// The bytes of new files that the next look waits for; 0 before the first one.
    next_look: u64,
}

#[derive(Default)]
enum Files {
    #[default]
    Unread,
    /// There is nothing, or it could not be indexed.
    Nothing,
    Indexed(Arc<Elsewhere>),
}

impl Renamed {
    /// Returns an old file of another place that a new file of this size may have been moved or
    /// copied from.
    pub(super) fn find(
        &mut self,
        site: &Site<'_>,
        (ground, bounds): (&Ground, &Bounds<'_>),
        subject: &Subject<'_>,
        size: u64,
    ) -> Option<FoundElsewhere> {
        if size < MIN_BYTES || ground.renames() {
            return None;
        }
        let is_asked = site.policy.options.detect_renamed == DetectRenamed::Always;
        self.new_bytes = self.new_bytes.saturating_add(size);
        if let Files::Unread = self.files {
            let most_entries = if is_asked { u64::MAX } else { self.allowance()? };
            self.files = index(site, (ground, bounds), most_entries);
        }
        let Files::Indexed(elsewhere) = &self.files else { return None };

        let mtime = subject.entry.attributes.mtime;
        elsewhere.find(&Sought {
            size,
            mtime: Timestamp { seconds: mtime.seconds, nanoseconds: mtime.nanoseconds },
            name: &subject.name,
            directory: &subject.directory.path,
            // Of another time its content is likely to be another one as well.
            of_any_time: is_asked && dsync_delta::worthwhile(size, size),
        })
    }

    /// Returns the number of entries that the new files so far are worth a look at; `None` before the
    /// next look. After one that found more of them, twice as much has to be new.
    fn allowance(&mut self) -> Option<u64> {
        if self.new_bytes < self.next_look.max(WORTH_A_LOOK) {
            return None;
        }
        self.next_look = self.new_bytes.saturating_mul(2);
        Some(self.new_bytes / BYTES_OF_A_LOOK)
    }
}

/// The reason why there is no index.
enum NoIndex {
    Spool(SpoolError),
    Memory,
    Stopped,
    /// The tree has more entries than were to be looked at.
    TooMany,
}

impl From<SpoolError> for NoIndex {
    fn from(error: SpoolError) -> Self {
        Self::Spool(error)
    }
}

impl From<OverBudget> for NoIndex {
    fn from(_: OverBudget) -> Self {
        Self::Memory
    }
}

/// Indexes the destination, unless this run has made it, and the directories beside it.
fn index(site: &Site<'_>, (ground, bounds): (&Ground, &Bounds<'_>), most_entries: u64) -> Files {
    let own = ground.root().filter(|_| !ground.target.created);
    let own = own.map(|root| Tree { root: Arc::clone(root), named: Vec::new() });
    let trees: Vec<Tree> = own.into_iter().chain(beside(ground)).collect();
    if trees.is_empty() {
        return Files::Nothing;
    }

    let indexing = Indexing::new(site, (ground, bounds), most_entries);
    match indexing.and_then(|indexing| indexing.run(&trees)) {
        Ok(index) => Files::Indexed(Arc::new(Elsewhere { trees, index })),
        Err(NoIndex::TooMany) => Files::Unread,
        Err(why) => {
            match why {
                NoIndex::Spool(error) => tracing::debug!(%error, "moved files cannot be looked for"),
                NoIndex::Memory => tracing::debug!("there is too little memory to look for moved files"),
                NoIndex::Stopped | NoIndex::TooMany => {}
            }
            Files::Nothing
        }
    }
}

/// Returns the alternate directories (`--link-dest` and its like).
fn beside(ground: &Ground) -> impl Iterator<Item = Tree> {
    let roots = ground.alternates.iter().flat_map(Alternates::named_roots);
    roots.filter_map(|(named, root)| {
        Some(Tree { root: Arc::new(root.duplicate().ok()?), named: named.to_vec() })
    })
}

/// The walk that fills an index.
struct Indexing<'a> {
    site: &'a Site<'a>,
    ground: &'a Ground,
    bounds: &'a Bounds<'a>,
    builder: FileIndexBuilder,
    /// Entries that may still be looked at.
    entries_left: u64,
    /// Directories to come, the next one last.
    next: Vec<Waiting>,
    /// Memory of the index and of the directories to come.
    held: Held,
}

/// A directory to come.
struct Waiting {
    path: SharedPath,
    /// Whether it is the destination's, not one of a tree beside it.
    is_own: bool,
    at: IndexedAt,
}

impl<'a> Indexing<'a> {
    fn new(
        site: &'a Site<'_>,
        (ground, bounds): (&'a Ground, &'a Bounds<'_>),
        most_entries: u64,
    ) -> Result<Self, NoIndex> {
        let held = site.session.budget.take(Share::Paths, INDEX_BYTES)?;
        let builder = FileIndexBuilder::new(&ground.spools);
        Ok(Self { site, ground, bounds, builder, entries_left: most_entries, next: Vec::new(), held })
    }

    fn run(mut self, trees: &[Tree]) -> Result<FileIndex, NoIndex> {
        for (number, tree) in (0..).zip(trees) {
            let is_own = self.ground.root().is_some_and(|root| Arc::ptr_eq(root, &tree.root));
            self.tree((number, is_own), &tree.root)?;
        }
        Ok(self.builder.seal()?)
    }

    fn tree(&mut self, (number, is_own): (u16, bool), root: &Arc<Dir>) -> Result<(), NoIndex> {
        let open = usize::try_from(self.site.open.count.limit() / 4).unwrap_or(usize::MAX);
        let mut ahead = ListAhead::new(Arc::clone(root), default_readers(), open, self.ground.spools.clone());
        let device = root.device().ok();
        let path = SharedPath::root();
        self.held.grow(bytes_of(&path))?;
        ahead.expect([path.clone()].into_iter());
        self.next.push(Waiting { path, is_own, at: self.builder.tree(number) });

        while let Some(directory) = self.next.pop() {
            self.held.shrink(bytes_of(&directory.path));
            let Ok(mut judged) = self.judged(&directory.path) else { return Ok(()) };
            let mut children = Vec::new();
            while let Some(part) = ahead.next_part() {
                let is_last = part.last;
                self.part((&directory, &mut judged), part, device, &mut children)?;
                if is_last {
                    break;
                }
            }
            self.site.session.note_progress();
            if self.site.stopped() {
                return Err(NoIndex::Stopped);
            }
            ahead.expect(children.iter().map(|child| child.path.clone()));
            self.next.extend(children.into_iter().rev());
        }
        Ok(())
    }

    /// Adds the entries of a part of a directory.
    fn part(
        &mut self,
        (directory, judged): (&Waiting, &mut Judged),
        part: ListedPart,
        device: Option<u64>,
        children: &mut Vec<Waiting>,
    ) -> Result<(), NoIndex> {
        let entries = part.entries.len() as u64;
        self.entries_left = self.entries_left.checked_sub(entries).ok_or(NoIndex::TooMany)?;

        let is_gone = |name: &Component| self.site.hands.is_gone(|| directory.path.join(name).to_path());
        for (name, metadata) in part.entries {
            let Ok(metadata) = metadata else { continue };
            // Nothing of a tree beside the destination goes.
            if directory.is_own && is_gone(&name) {
                continue;
            }
            let is_dir = metadata.kind == Kind::Dir;
            let may_be = is_dir || metadata.kind == Kind::File && metadata.size >= MIN_BYTES;
            if !may_be || !self.bounds.could_list(judged, name.as_bytes(), is_dir) {
                continue;
            }
            if is_dir {
                children.extend(self.child(directory, &name, &metadata, device)?);
            } else {
                self.builder.file(directory.at, &name, metadata.size, metadata.mtime)?;
            }
        }
        Ok(())
    }

    /// Adds a directory; `None` for one that is the run's own, is passed over, or lies on another
    /// filesystem with `-x`.
    fn child(
        &mut self,
        directory: &Waiting,
        name: &Component,
        metadata: &Metadata,
        device: Option<u64>,
    ) -> Result<Option<Waiting>, NoIndex> {
        let is_mount = device.is_some_and(|device| device != metadata.dev);
        if self.ground.own.has(metadata) || is_mount && self.site.policy.options.one_file_system {
            return Ok(None);
        }
        let path = directory.path.join(name);
        if self.judged(&path).is_err() {
            return Ok(None);
        }

        self.held.grow(bytes_of(&path))?;
        let at = self.builder.directory(directory.at, name)?;
        Ok(Some(Waiting { path, is_own: directory.is_own, at }))
    }

    /// Begins to judge the entries of a directory.
    fn judged(&self, path: &SharedPath) -> Result<Judged, Unasked> {
        // Only the root has a number of its own there.
        self.bounds.directory(EntryId(u64::from(!path.is_root())), &path.to_path())
    }
}

/// Returns the bytes of a directory to come, here and where it is listed ahead.
fn bytes_of(path: &SharedPath) -> u64 {
    (3 * SharedPath::OVERHEAD + path.name_len()) as u64
}

/// Files below this size are sent: that takes fewer bytes than the sums of an old one and the answer.
pub(super) const MIN_BYTES: u64 = 256;
/// Bytes of new files before a run looks for old ones unasked.
const WORTH_A_LOOK: u64 = 1 << 20;
/// Bytes of new files for each entry that a run may look at unasked. An entry takes 2 µs, and a path
/// of half a gigabit a second carries so much meanwhile. So a look that finds nothing takes no longer
/// than sending what is new over such a path, and all looks of a run together at most twice that.
const BYTES_OF_A_LOOK: u64 = 128;
/// Memory of an index: one run of keys, and the buffers of two spools.
const INDEX_BYTES: u64 = 5 << 20;
