//! Spans of the source's listing: answered by the destination's own tree, and put back where they
//! belong.
//!
//! The law: what is planned in the place of a span are the entries that the source would have listed,
//! in their order, whichever of them were sent. Those that were not are the destination's own, and
//! equal digests say that the source has the same. So planning does not know of spans.
//!
//! A span is answered as soon as it comes. The entries wait until all of the listing before them was
//! planned.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
    vec,
};

use dsync_fs::FilterSet;
use dsync_wire::{
    budget::Held,
    limits::{MAX_OPEN_SPANS, MAX_SPAN_PIECES},
    message::{Attributes, ControlMessage, Listing, ListingEnd, Same, Span, SpanAnswer},
    state::ListingOrder,
};

use super::{
    super::credit::PartTicket,
    Planner, Tree,
    own_walk::{Guesses, OwnContent, OwnItem, OwnStretch, OwnWalk, Terms},
};
use crate::{
    SyncError,
    misbehaved::{PeerMisbehaved, misbehaved},
    span::{Digester, Digests, End, Item, SpanKey},
};

/// The spans of a session.
pub(super) struct Spans {
    key: SpanKey,
    order: ListingOrder,
    own: Own,
    walks: Walks,
    filter: FilterSet,
    owners: Guesses,
    /// Those whose listing was not planned, in order.
    waiting: VecDeque<Waiting>,
}

/// The destination's own walk.
enum Own {
    /// It begins with the next span.
    Idle,
    Walking(Box<OwnWalk>),
    /// It went astray: it can begin again once no span waits.
    Lost,
    /// The destination has nothing that could be equal.
    Nothing,
}

/// The walks that a source may make this end begin. Each copies the paths of all directories to come and
/// lists the current one again, while a span that needs one is some bytes.
#[derive(Default)]
struct Walks {
    begun: u64,
    /// Items of the listing so far, sent or not.
    items: u64,
}

impl Walks {
    /// Counts one more; `false` if the listing so far is too short for it.
    fn begin(&mut self) -> bool {
        let may = self.begun < FREE_WALKS + self.items / ITEMS_PER_WALK;
        self.begun += u64::from(may);
        may
    }
}

/// A span that was answered.
struct Waiting {
    ticket: Arc<PartTicket>,
    /// Items of its listing that are to come.
    left: usize,
    /// The destination's pieces that the source may name.
    pieces: Pieces,
    /// Whether the pieces are all of it.
    is_equal: bool,
}

/// The pieces of a stretch of the destination's tree.
struct Pieces {
    /// The number of items of each.
    lens: Vec<usize>,
    /// The piece that comes next.
    next: usize,
    items: vec::IntoIter<OwnItem>,
    _held: Option<Held>,
}

impl Pieces {
    fn none() -> Self {
        Self { lens: Vec::new(), next: 0, items: Vec::new().into_iter(), _held: None }
    }

    fn of(OwnStretch { items, held }: OwnStretch, digests: &Digests) -> Self {
        let lens = digests.pieces.iter().map(|&(_, len)| len).collect();
        Self { lens, next: 0, items: items.into_iter(), _held: Some(held) }
    }

    /// Takes pieces that come after those that were taken before.
    fn take(&mut self, Same { first, count }: Same) -> Option<Vec<OwnItem>> {
        let (first, count) = (usize::try_from(first).ok()?, usize::try_from(count).ok()?);
        let passed = self.lens.get(self.next..first)?.iter().sum();
        let len = self.lens.get(first..first.checked_add(count)?)?.iter().sum();
        self.items.by_ref().take(passed).for_each(drop);
        self.next = first + count;
        Some(self.items.by_ref().take(len).collect())
    }
}

impl Spans {
    pub(super) fn new(key: SpanKey, filter: FilterSet, root_announced: bool) -> Self {
        Self {
            key,
            order: ListingOrder::new(root_announced),
            own: Own::Idle,
            walks: Walks::default(),
            filter,
            owners: Guesses::default(),
            waiting: VecDeque::new(),
        }
    }

    /// Checks a part of the listing, sent or not, before it is planned.
    pub(super) fn check(&mut self, listing: &Listing) -> Result<(), SyncError> {
        self.walks.items += listing.entries.len() as u64 + u64::from(listing.last);
        Ok(self.order.check(listing)?)
    }

    /// Checks that the listing may end now.
    pub(super) fn end(&self, end: &ListingEnd) -> Result<(), SyncError> {
        if !self.waiting.is_empty() {
            return Err(misbehaved(PeerMisbehaved::SpanOutOfPlace));
        }
        Ok(self.order.end(end)?)
    }

    /// Learns from an entry that needs nothing.
    pub(super) fn learn(&mut self, here: &dsync_fs::Metadata, source: &Attributes) {
        self.owners.learn(here, source);
    }
}

impl Planner<'_> {
    /// Answers a span, and plans it if that settles it.
    pub(super) fn span(&mut self, span: &Span) -> Result<(), SyncError> {
        let Some(mut spans) = self.spans.take() else {
            return Err(misbehaved(PeerMisbehaved::SpanOutOfPlace));
        };
        if spans.waiting.len() >= MAX_OPEN_SPANS {
            return Err(misbehaved(PeerMisbehaved::SpanOutOfPlace));
        }
        let (answer, pieces) = self.compare_span(&mut spans, span)?;
        self.site.session.control.send(&ControlMessage::SpanAnswer(answer.clone()))?;

        let ticket = Arc::new(PartTicket::new(self.next_part));
        self.next_part = self.next_part.map(|part| part + 1);
        let is_equal = answer == SpanAnswer::Equal;
        spans.waiting.push_back(Waiting { ticket, left: span.items as usize, pieces, is_equal });
        self.spans = Some(spans);
        self.settle_spans()
    }

    /// Compares a span with the same stretch of this end's tree.
    fn compare_span(&mut self, spans: &mut Spans, span: &Span) -> Result<(SpanAnswer, Pieces), SyncError> {
        let can_begin =
            matches!(spans.own, Own::Idle) || matches!(spans.own, Own::Lost) && spans.waiting.is_empty();
        if can_begin && spans.walks.begin() {
            spans.own = OwnWalk::begin(self.site, &mut self.comparison, &spans.filter)?
                .map_or(Own::Nothing, |walk| Own::Walking(Box::new(walk)));
        }
        let unknown = SpanAnswer::Pieces(Vec::new());
        let walk = match &mut spans.own {
            Own::Walking(walk) => walk,
            Own::Nothing => return Ok((SpanAnswer::Nothing, Pieces::none())),
            Own::Idle | Own::Lost => return Ok((unknown, Pieces::none())),
        };

        let owners = std::mem::take(&mut spans.owners);
        let terms = Terms { options: &self.site.policy.options, filter: spans.filter.clone(), owners };
        let listings = self.comparison.frontier.listings();
        let stretch = listings.and_then(|listings| walk.stretch((self.site, listings), span, &terms));
        spans.owners = terms.owners;
        let Some(stretch) = stretch else {
            spans.own = Own::Lost;
            return Ok((unknown, Pieces::none()));
        };
        if stretch.items.is_empty() && walk.is_over() {
            spans.own = Own::Nothing;
            return Ok((SpanAnswer::Nothing, Pieces::none()));
        }

        let digests = digests(&spans.key, &stretch);
        let answer = if digests.whole == span.digest && stretch.items.len() == span.items as usize {
            SpanAnswer::Equal
        } else if digests.pieces.len() > MAX_SPAN_PIECES {
            return Ok((unknown, Pieces::none()));
        } else {
            SpanAnswer::Pieces(digests.pieces.iter().map(|&(digest, _)| digest).collect())
        };
        Ok((answer, Pieces::of(stretch, &digests)))
    }

    /// Plans a part of the listing that was sent: of the oldest span that waits, if one does.
    pub(super) fn listing_sent(
        &mut self,
        listing: &Listing,
        sets: Option<Arc<Held>>,
    ) -> Result<(), SyncError> {
        let waiting = self.spans.as_mut().and_then(|spans| spans.waiting.front_mut());
        let Some(waiting) = waiting else {
            if let Some(spans) = &mut self.spans
                && !matches!(spans.own, Own::Nothing)
            {
                spans.own = Own::Idle;
            }
            let part = Arc::new(PartTicket::new(self.next_part).holding(sets));
            self.next_part = self.next_part.map(|part| part + 1);
            self.listing(listing, Tree::Source, &part)?;
            part.release(&self.site.session.control)?;
            return self.site.session.control.flush_now_and_then();
        };

        let items = listing.entries.len() + usize::from(listing.last);
        let left = waiting.left.checked_sub(items);
        waiting.left = left.ok_or_else(|| misbehaved(PeerMisbehaved::SpanOutOfPlace))?;
        let ticket = Arc::clone(&waiting.ticket);
        self.listing(listing, Tree::Source, &ticket)?;
        self.settle_spans()
    }

    /// Plans pieces of the oldest span that waits, which both ends have.
    pub(super) fn same(&mut self, same: Same) -> Result<(), SyncError> {
        let out_of_place = || misbehaved(PeerMisbehaved::SpanOutOfPlace);
        let waiting = self.spans.as_mut().and_then(|spans| spans.waiting.front_mut());
        let waiting = waiting.ok_or_else(out_of_place)?;
        let items = waiting.pieces.take(same).ok_or_else(out_of_place)?;
        waiting.left = waiting.left.checked_sub(items.len()).ok_or_else(out_of_place)?;
        let ticket = Arc::clone(&waiting.ticket);
        self.plan_own(items, &ticket)?;
        self.settle_spans()
    }

    /// Plans and releases the oldest spans, as far as nothing of them is to come.
    fn settle_spans(&mut self) -> Result<(), SyncError> {
        loop {
            let Some(spans) = &mut self.spans else { return Ok(()) };
            let is_settled = |oldest: &Waiting| oldest.is_equal || oldest.left == 0;
            if !spans.waiting.front().is_some_and(is_settled) {
                return Ok(());
            }
            let Some(settled) = spans.waiting.pop_front() else { return Ok(()) };
            if settled.is_equal {
                self.plan_own(settled.pieces.items.collect(), &settled.ticket)?;
            }
            settled.ticket.release(&self.site.session.control)?;
            self.site.session.control.flush()?;
        }
    }

    /// Plans items of this end's tree in the place of the source's listing.
    fn plan_own(&mut self, items: Vec<OwnItem>, part: &Arc<PartTicket>) -> Result<(), SyncError> {
        let mut items = items.into_iter().peekable();
        while let Some(OwnItem { path, content }) = items.next() {
            if self.site.stopped() {
                return Ok(());
            }
            let dir = self.comparison.due(&path).ok_or_else(|| misbehaved(PeerMisbehaved::SpanOutOfPlace))?;
            let mut listing =
                Listing { dir, last: false, complete: false, left_out: false, entries: Vec::new() };
            add(&mut listing, content);
            while let Some(item) = items.next_if(|item| !listing.last && item.path == path) {
                add(&mut listing, item.content);
            }
            let entries = listing.entries.len() as u64;
            self.site.account.progress.entries_listed.fetch_add(entries, Ordering::AcqRel);
            self.listing(&listing, Tree::Own, part)?;
        }
        Ok(())
    }
}

/// Adds an item to a listing.
fn add(listing: &mut Listing, content: OwnContent) {
    match content {
        OwnContent::Entry(entry) => listing.entries.push(entry),
        OwnContent::End { complete } => (listing.last, listing.complete) = (true, complete),
    }
}

/// Walks that may begin however short the listing is: a source's first spans may all miss.
const FREE_WALKS: u64 = 16;
/// Items of the listing for each further one. A source whose spans do not pay sends none for many times
/// as many.
const ITEMS_PER_WALK: u64 = 4096;

fn digests(key: &SpanKey, stretch: &OwnStretch) -> Digests {
    let mut digester = Digester::new(key, End::Destination);
    for OwnItem { path, content } in &stretch.items {
        let item = match content {
            OwnContent::Entry(entry) => Item::Entry(entry),
            OwnContent::End { complete } => Item::End { complete: *complete },
        };
        digester.push(path.as_bytes(), item);
    }
    digester.finish()
}
