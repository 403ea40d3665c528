//! The destination's own walk in the order of the source's listing, to find the stretch that a span
//! stands for.
//!
//! It begins where the comparison stands, so it never enters a directory beside the source's, and then
//! goes by the destination's names alone: what it finds is a guess at what the source would list. The
//! digests tell whether the guess is right ([`crate::span`]), so nothing here has to be.

use std::{cmp::Ordering, collections::HashMap, sync::Arc};

use dsync_fs::{
    Choice, Component, FilterSet, Kind, ListAhead, Metadata, RelPath, SharedPath, WalkedEntry, Within,
    is_notes_name, is_own_name,
};
use dsync_wire::{
    budget::{Held, Share},
    message::{Attributes, Entry, Span},
    options::SyncOptions,
};

use super::{
    super::{Site, weight::of_entry},
    comparison::Comparison,
    frontier::Ahead,
    listings::{Entries, Listings, WalkedPart, names},
};
use crate::{SyncError, source::listed_entry};

/// An item that the destination would list.
pub(super) struct OwnItem {
    /// Its directory.
    pub(super) path: Arc<RelPath>,
    pub(super) content: OwnContent,
}

pub(super) enum OwnContent {
    Entry(Entry),
    End { complete: bool },
}

/// The items of a stretch of the destination's tree, with the memory for them.
pub(super) struct OwnStretch {
    pub(super) items: Vec<OwnItem>,
    pub(super) held: Held,
}

/// The walk.
pub(super) struct OwnWalk {
    /// Lists the directory in which the walk began, of which the comparison has taken a part.
    first: Option<ListAhead>,
    /// Directories to come, the next one last.
    next: Vec<SharedPath>,
    current: Option<Current>,
    /// Whether a directory was not where the walk looked for it.
    is_astray: bool,
    /// An item beyond the last stretch.
    beyond: Option<OwnItem>,
    /// Memory of the directories to come.
    held: Held,
}

/// The directory that is being gone through.
struct Current {
    shared: SharedPath,
    path: Arc<RelPath>,
    within: Within,
    dir: Option<Arc<dsync_fs::Dir>>,
    entries: Arc<Entries>,
    /// The entry that comes next.
    at: usize,
    /// Whether no more entries are to be read.
    last: bool,
    complete: bool,
    /// Names up to this one have passed.
    after: Option<Vec<u8>>,
    children: Vec<SharedPath>,
}

/// The terms of a walk.
pub(super) struct Terms<'a> {
    pub(super) options: &'a SyncOptions,
    /// The rules by which the source lists.
    pub(super) filter: FilterSet,
    /// The source's owners.
    pub(super) owners: Guesses,
}

/// The source's numbers of owners and groups, guessed by the destination's: an entry that was equal
/// tells which belong together, however they are mapped.
#[derive(Default)]
pub(super) struct Guesses {
    users: HashMap<u32, u32>,
    groups: HashMap<u32, u32>,
}

impl Guesses {
    /// Learns from an entry that needs nothing.
    pub(super) fn learn(&mut self, here: &Metadata, source: &Attributes) {
        for (known, here, source) in
            [(&mut self.users, here.uid, source.uid), (&mut self.groups, here.gid, source.gid)]
        {
            let is_news = known.get(&here).copied().unwrap_or(here) != source;
            if is_news && (known.len() < MAX_GUESSES || known.contains_key(&here)) {
                known.insert(here, source);
            }
        }
    }

    /// Makes an entry one of the source's.
    fn guess(&self, metadata: &mut Metadata) {
        metadata.uid = self.users.get(&metadata.uid).copied().unwrap_or(metadata.uid);
        metadata.gid = self.groups.get(&metadata.gid).copied().unwrap_or(metadata.gid);
    }
}

impl OwnWalk {
    /// Begins where the comparison stands; `None` where the destination has nothing to compare.
    pub(super) fn begin(
        site: &Site<'_>,
        comparison: &mut Comparison<'_>,
        filter: &FilterSet,
    ) -> Result<Option<Self>, SyncError> {
        if comparison.ground.root().is_none() || comparison.ground.target.created {
            return Ok(None);
        }
        let Ahead { current, children, mut next } = comparison.ahead();
        let Some(listings) = comparison.frontier.listings() else { return Ok(None) };
        listings.begin_walk();
        let first = current.as_ref().map(|(shared, _)| listings.list_again(shared));
        let begun = current.map(|(shared, after)| {
            next.push(shared);
            (children, after)
        });
        let held = site.session.budget.take(Share::Paths, next.iter().map(path_bytes).sum())?;

        let mut walk = Self { first, next, current: None, is_astray: false, beyond: None, held };
        if let Some((children, after)) = begun {
            walk.enter(filter);
            if let Some(current) = &mut walk.current {
                (current.children, current.after) = (children, after);
            }
        }
        Ok(Some(walk))
    }

    /// Returns whether nothing is left.
    pub(super) fn is_over(&self) -> bool {
        self.beyond.is_none() && self.current.is_none() && self.next.is_empty()
    }

    /// Takes all items up to the last one of a span. `None` if they are many more than the span has,
    /// or more than this end may hold: the walk is of no use then.
    pub(super) fn stretch(
        &mut self,
        (site, listings): (&Site<'_>, &mut Listings),
        span: &Span,
        terms: &Terms<'_>,
    ) -> Option<OwnStretch> {
        let held = site.session.budget.nothing(Share::Listings);
        let mut stretch = OwnStretch { items: Vec::new(), held };
        let most = span.items as usize + span.items as usize / 2 + SLACK;

        while let Some(item) = self.beyond.take().or_else(|| self.item(listings, terms)) {
            if item.is_beyond(span) {
                self.beyond = Some(item);
                break;
            }
            stretch.held.grow(item.weight()).ok()?;
            stretch.items.push(item);
            if stretch.items.len() > most || site.stopped() {
                return None;
            }
        }
        (!self.is_astray).then_some(stretch)
    }

    /// Returns the next item.
    fn item(&mut self, listings: &mut Listings, terms: &Terms<'_>) -> Option<OwnItem> {
        loop {
            if self.current.is_none() && !self.enter(&terms.filter) {
                return None;
            }
            let current = self.current.as_mut()?;

            match current.next_entry(terms) {
                Some(entry) => {
                    return Some(OwnItem {
                        path: Arc::clone(&current.path),
                        content: OwnContent::Entry(entry),
                    });
                }
                None if current.last => {
                    let Current { shared, path, complete, children, .. } = self.current.take()?;
                    self.first = None;
                    // Without room for them they are not looked at.
                    if self.held.grow(children.iter().map(path_bytes).sum()).is_ok() {
                        listings.walk_into(&shared, children.clone());
                        self.next.extend(children.into_iter().rev());
                    }
                    return Some(OwnItem { path, content: OwnContent::End { complete } });
                }
                None => {
                    let part = match &mut self.first {
                        Some(first) => first.next_part().map(WalkedPart::from),
                        None => listings.walk_part(&current.shared),
                    };
                    let Some(part) = part else {
                        self.is_astray = true;
                        return None;
                    };
                    current.take(part);
                }
            }
        }
    }

    /// Goes to the next directory.
    fn enter(&mut self, filter: &FilterSet) -> bool {
        let Some(shared) = self.next.pop() else { return false };
        self.held.shrink(path_bytes(&shared));
        let path = shared.to_path();
        let within = Within::new(filter, &path);
        self.current = Some(Current {
            shared,
            path: Arc::new(path),
            within,
            dir: None,
            entries: Arc::default(),
            at: 0,
            last: false,
            complete: true,
            after: None,
            children: Vec::new(),
        });
        true
    }
}

impl Current {
    /// Takes the next part of its entries.
    fn take(&mut self, part: WalkedPart) {
        self.dir = part.dir;
        (self.entries, self.at) = (part.entries, 0);
        self.last = part.last;
        self.complete &= part.complete;
    }

    /// Returns the next entry of the part that the source would list.
    fn next_entry(&mut self, terms: &Terms<'_>) -> Option<Entry> {
        let entries = Arc::clone(&self.entries);
        while let Some((name, metadata)) = entries.get(self.at) {
            self.at += 1;
            if let Some(entry) = metadata.as_ref().ok().and_then(|found| self.entry(name, *found, terms)) {
                return Some(entry);
            }
        }
        None
    }

    /// Returns the entry that the source would list; `None` if it would list none.
    fn entry(
        &mut self,
        name: &Component,
        mut metadata: Metadata,
        Terms { options, filter, owners }: &Terms<'_>,
    ) -> Option<Entry> {
        let (bytes, is_dir) = (name.as_bytes(), metadata.kind == Kind::Dir);
        let has_passed = self.after.as_deref().is_some_and(|after| bytes <= after);
        // Notes may have to go, for which the directory is compared.
        let is_own = is_own_name(bytes) && !is_notes_name(bytes);
        if has_passed || is_own || self.within.surely_excludes(filter, bytes, is_dir) {
            return None;
        }
        let link_target = match metadata.kind {
            Kind::Symlink if options.links => Some(self.dir.as_ref()?.read_link(name).ok()?),
            _ => None,
        };

        owners.guess(&mut metadata);
        let name = name.clone();
        let path = is_dir.then(|| self.shared.join(&name));
        let walked = WalkedEntry {
            name,
            metadata,
            link_target,
            followed: None,
            is_walked: is_dir,
            is_implied: false,
            choice: Choice::Copy,
        };
        let entry = listed_entry(&walked, None, None, options)?;
        self.children.extend(path);
        Some(entry)
    }
}

impl OwnItem {
    /// Returns whether it comes after the last item of a span.
    fn is_beyond(&self, span: &Span) -> bool {
        let of_directory = if self.path.as_bytes() == span.directory {
            Ordering::Equal
        } else {
            names(self.path.as_bytes()).cmp(names(&span.directory))
        };
        let of_name = || match (&self.content, &span.name) {
            (OwnContent::Entry(entry), Some(last)) => entry.name.cmp(last),
            (OwnContent::Entry(_), None) => Ordering::Less,
            (OwnContent::End { .. }, Some(_)) => Ordering::Greater,
            (OwnContent::End { .. }, None) => Ordering::Equal,
        };
        of_directory.then_with(of_name) == Ordering::Greater
    }

    /// Returns its bytes, those of its directory's path included.
    fn weight(&self) -> u64 {
        let content = match &self.content {
            OwnContent::Entry(entry) => of_entry(entry),
            OwnContent::End { .. } => self.path.as_bytes().len(),
        };
        (size_of::<Self>() + content) as u64
    }
}

/// Returns the bytes of a directory to come, here and where it is listed ahead.
fn path_bytes(path: &SharedPath) -> u64 {
    (3 * SharedPath::OVERHEAD + path.name_len()) as u64
}

/// Items that a stretch may have beyond one and a half times those of its span.
const SLACK: usize = 1024;
/// Owners whose number at the source is remembered.
const MAX_GUESSES: usize = 4096;
