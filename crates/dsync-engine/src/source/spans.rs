//! The source's listing on its way to the control lane: as it is, or as spans.
//!
//! A span tells a stretch of the listing by its digest. Its parts stay here until the destination has
//! said which of them its own tree has as well; the others are sent then. `docs/wire.md` (6.4) has the
//! protocol, and [`crate::span`] the digests.
//!
//! The listing goes as it is at first, and whenever spans have not paid for themselves: then for twice
//! as long each time.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Condvar, Mutex},
};

use dsync_wire::{
    limits::MAX_OPEN_SPANS,
    message::{ControlMessage, Digest, Entry, Listing, Same, Span, SpanAnswer},
};

use super::{
    Shared,
    catalogue::{Part, PartOf},
};
use crate::{
    SyncError,
    halt::{lock, wait},
    misbehaved::{PeerMisbehaved, misbehaved},
    session::ControlOut,
    span::{Digester, Digests, End, Item, SpanKey},
};

/// The spans of a session, shared by the lister, which sends them, and the inbox, which hears the
/// answers.
#[derive(Default)]
pub(super) struct Spans {
    state: Mutex<State>,
    /// Told of each span that is settled.
    settled: Condvar,
}

#[derive(Default)]
struct State {
    /// Those without an answer, the oldest first.
    open: VecDeque<Open>,
    /// The listing of one that was answered is being sent.
    settling: bool,
    /// The destination has nothing from here on.
    over: bool,
    /// Number of spans in a row that had to be listed for more than half.
    missed: u32,
}

/// A part of a stretch: the path of its directory, and its listing.
type Told = (Vec<u8>, Listing);

/// A stretch of the listing that is being gathered.
#[derive(Default)]
struct Stretch {
    parts: Vec<Told>,
    items: usize,
}

/// A stretch of the listing that was told by its digest.
struct Open {
    stretch: Stretch,
    digests: Digests,
}

/// The form of the next stretch.
enum Next {
    Span,
    Plain { items: usize },
}

/// The lister's way to the control lane.
pub(super) struct Outlet {
    /// Absent where everything goes as it is.
    key: Option<SpanKey>,
    /// Items that go as they are before the next span.
    plain: usize,
    stretch: Stretch,
    /// Items of the next span.
    target: usize,
    /// Items that go as they are the next time that spans do not pay.
    pause: usize,
}

impl Outlet {
    /// Begins; with a key spans may be sent.
    pub(super) fn new(key: Option<SpanKey>) -> Self {
        Self { key, plain: FIRST_ITEMS, stretch: Stretch::default(), target: FIRST_ITEMS, pause: MAX_ITEMS }
    }

    /// Returns how many entries the next part may have.
    pub(super) fn room(&self) -> usize {
        match (&self.key, self.plain) {
            (None, _) => usize::MAX,
            (Some(_), 0) => self.target.saturating_sub(self.stretch.items).max(1),
            (Some(_), plain) => plain,
        }
    }

    /// Sends a part of the listing of the directory at this path, or keeps it for a span.
    pub(super) fn send(
        &mut self,
        shared: &Shared<'_>,
        part: Part,
        listing: Listing,
        path: &[u8],
    ) -> Result<(), SyncError> {
        if self.key.is_some() && self.plain == 0 && self.stretch.parts.is_empty() {
            self.turn(shared)?;
        }

        let control = &shared.session.control;
        let is_plain = self.key.is_none() || self.plain > 0;
        let place = if is_plain {
            PartOf::Listing
        } else if self.stretch.parts.is_empty() {
            PartOf::NewSpan
        } else {
            PartOf::SameSpan
        };
        if !shared.catalogue.add(part, place, &shared.session.halt, || control.flush())? {
            return Ok(());
        }
        let items = items_of(&listing);
        if is_plain {
            self.plain = self.plain.saturating_sub(items);
            control.queue(&ControlMessage::Listing(listing))?;
            return control.flush_now_and_then();
        }
        self.stretch.items += items;
        self.stretch.parts.push((path.to_vec(), listing));
        if self.stretch.items >= self.target { self.close(shared) } else { Ok(()) }
    }

    /// Sends what is left, and waits until the whole listing was sent.
    pub(super) fn end(&mut self, shared: &Shared<'_>) -> Result<(), SyncError> {
        if !self.stretch.parts.is_empty() {
            self.close(shared)?;
        }
        shared.spans.wait_for(shared, 0)
    }

    /// Decides how the next stretch goes. What goes as it is follows all spans.
    fn turn(&mut self, shared: &Shared<'_>) -> Result<(), SyncError> {
        match shared.spans.next(self.pause) {
            Next::Span => Ok(()),
            Next::Plain { items } => {
                self.plain = items;
                self.pause = self.pause.saturating_mul(2);
                self.target = FIRST_ITEMS;
                shared.spans.wait_for(shared, 0)
            }
        }
    }

    /// Sends the span of the stretch.
    fn close(&mut self, shared: &Shared<'_>) -> Result<(), SyncError> {
        let stretch = std::mem::take(&mut self.stretch);
        let Some(key) = &self.key else { return Ok(()) };
        let mut digester = Digester::new(key, End::Source);
        for (path, listing) in &stretch.parts {
            listing.entries.iter().for_each(|entry| digester.push(path, Item::Entry(entry)));
            if listing.last {
                digester.push(path, Item::End { complete: listing.complete });
            }
        }
        let digests = digester.finish();
        let Some((directory, last)) = stretch.parts.last() else { return Ok(()) };
        let name = last.entries.last().filter(|_| !last.last).map(|entry| entry.name.clone());
        let items = u32::try_from(stretch.items).unwrap_or(u32::MAX);
        let span = Span { items, directory: directory.clone(), name, digest: digests.whole };

        self.target = (2 * self.target).min(MAX_ITEMS);
        shared.spans.wait_for(shared, MAX_OPEN_SPANS - 1)?;
        // First noted, then sent: the answer may be fast.
        lock(&shared.spans.state).open.push_back(Open { stretch, digests });
        shared.session.control.send(&ControlMessage::Span(span))
    }
}

impl Spans {
    /// Settles the oldest span by its answer: sends what the destination does not have.
    pub(super) fn answer(&self, control: &ControlOut, answer: &SpanAnswer) -> Result<(), SyncError> {
        let mut state = lock(&self.state);
        let Some(open) = state.open.pop_front() else {
            return Err(misbehaved(PeerMisbehaved::UnaskedAnswer));
        };
        state.settling = true;
        state.over |= matches!(answer, SpanAnswer::Nothing);
        drop(state);

        let items = open.stretch.items;
        let same = match answer {
            SpanAnswer::Equal => items,
            SpanAnswer::Nothing => open.send_others(control, &[])?,
            SpanAnswer::Pieces(pieces) => open.send_others(control, pieces)?,
        };
        control.flush()?;
        let mut state = lock(&self.state);
        state.missed = if 2 * same < items { state.missed + 1 } else { 0 };
        state.settling = false;
        self.settled.notify_all();
        Ok(())
    }

    /// Decides how the next stretch goes.
    fn next(&self, pause: usize) -> Next {
        let mut state = lock(&self.state);
        if state.over {
            return Next::Plain { items: usize::MAX };
        }
        if state.missed < MOST_MISSED {
            return Next::Span;
        }
        // One more that misses is enough for the next pause.
        state.missed = MOST_MISSED - 1;
        Next::Plain { items: pause }
    }

    /// Waits until at most `most` spans are not settled, or the run has ended.
    fn wait_for(&self, shared: &Shared<'_>, most: usize) -> Result<(), SyncError> {
        let is_over = |state: &State| state.open.len() + usize::from(state.settling) > most;
        let mut state = lock(&self.state);
        while is_over(&state) && !shared.session.halt.stopped() {
            state = wait(&self.settled, state);
        }
        Ok(())
    }
}

impl Open {
    /// Sends the pieces that are not among those of the destination. Returns the number of items of the
    /// others.
    fn send_others(self, control: &ControlOut, theirs: &[Digest]) -> Result<usize, SyncError> {
        let numbers: HashMap<_, _> = theirs.iter().zip(0_u32..).collect();
        let parts = self.stretch.parts.into_iter();
        let mut items = parts.enumerate().flat_map(|(part, (_, listing))| items(part, listing));
        let mut reply = Reply { control, same: None, listing: None };
        let (mut next, mut same) = (0, 0);

        for (digest, len) in self.digests.pieces {
            // In another order they would stand for another listing.
            match numbers.get(&digest).filter(|&&number| number >= next) {
                Some(&number) => {
                    items.by_ref().take(len).for_each(drop);
                    reply.same(number)?;
                    (next, same) = (number + 1, same + len);
                }
                None => items.by_ref().take(len).try_for_each(|item| reply.item(item))?,
            }
        }
        reply.flush()?;
        Ok(same)
    }
}

/// An item that may have to be sent: the number of its part, the part without entries, and the entry;
/// `None` for the end of the directory.
type Owned = (usize, Listing, Option<Entry>);

/// Returns the items of a part of a listing.
fn items(part: usize, listing: Listing) -> impl Iterator<Item = Owned> {
    let Listing { dir, last, complete, left_out, entries } = listing;
    let empty = move || Listing { dir, last: false, complete: false, left_out, entries: Vec::new() };
    let end = last.then(move || (part, Listing { last, complete, ..empty() }, None));
    entries.into_iter().map(move |entry| (part, empty(), Some(entry))).chain(end)
}

fn items_of(listing: &Listing) -> usize {
    listing.entries.len() + usize::from(listing.last)
}

/// The messages that settle a span, neighbours joined.
struct Reply<'a> {
    control: &'a ControlOut,
    same: Option<Same>,
    /// With the number of its part.
    listing: Option<(usize, Listing)>,
}

impl Reply<'_> {
    fn same(&mut self, number: u32) -> Result<(), SyncError> {
        match &mut self.same {
            Some(same) if same.first + same.count == number => same.count += 1,
            _ => {
                self.flush()?;
                self.same = Some(Same { first: number, count: 1 });
            }
        }
        Ok(())
    }

    fn item(&mut self, (part, empty, entry): Owned) -> Result<(), SyncError> {
        if self.listing.as_ref().is_none_or(|(other, _)| *other != part) {
            self.flush()?;
        }
        let (_, listing) = self.listing.get_or_insert_with(|| (part, empty.clone()));
        (listing.last, listing.complete) = (empty.last, empty.complete);
        listing.entries.extend(entry);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SyncError> {
        if let Some(same) = self.same.take() {
            self.control.queue(&ControlMessage::Same(same))?;
        }
        match self.listing.take() {
            Some((_, listing)) => self.control.queue(&ControlMessage::Listing(listing)),
            None => Ok(()),
        }
    }
}

/// Items that go as they are at first, and those of the first span: a small tree needs no answer, and a
/// destination that differs is found out early.
const FIRST_ITEMS: usize = 256;
/// Items of the longest span: half of the entries that may wait for the destination.
const MAX_ITEMS: usize = crate::limits::MAX_UNRELEASED_ENTRIES / 2;
/// Spans in a row that are listed for more than half before the listing goes as it is.
const MOST_MISSED: u32 = 3;
