//! The order of messages.
//!
//! Each inbox follows one direction of one lane and answers one question: may this message come
//! now? An end asks before it acts on a message. The answer never depends on time or on other
//! lanes. The inboxes ensure that:
//!
//! - `Hello` comes first, and `Start`, `Ready`, `Tops` and the report come once;
//! - listings are depth first, in contiguous parts, of directories that were listed themselves,
//!   with ascending names, within the depth limit, and add up to the announced totals;
//! - sums follow their announcement;
//! - tokens lie between their segment's header and its end;
//! - nothing follows a last message.
//!
//! Memory: a few words. A [`DestinationInbox`] also needs 16 bytes for each run of neighbouring
//! directories that are listed but whose own listing has not arrived (siblings of the current
//! directory and of its ancestors).

use std::{collections::HashSet, fmt};

use crate::{
    error::{DecodeError, PeerText},
    kind::Kind,
    limits::{MAX_OPEN_SIGNATURES, MAX_PATH_DEPTH},
    message::{ControlMessage, DataMessage, EntryId, EntryKind, Listing, ListingEnd},
    name::Name,
    version::FILE_KEYS,
};

/// The state of an inbox; shown in errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// The peer has sent nothing.
    Hello,
    /// The controller has not sent its request.
    Start,
    /// A part of the controller's request arrived; the rest must follow.
    StartParts,
    /// The peer has not agreed.
    Ready,
    /// The destination sends the list of paths to copy.
    Names,
    /// The source has not described its operands.
    Tops,
    /// The source is listing.
    Listing,
    /// One part of a directory's listing arrived; the rest must follow.
    ListingPart,
    /// Everything is listed; files arrive on data lanes.
    Files,
    /// The destination has sent its report.
    Bye,
    /// The destination requests files.
    Needs,
    /// The destination has all files and makes them durable.
    Report,
    /// The session's last message has arrived.
    Over,
    /// A data lane has not identified itself.
    LaneStart,
    /// A data lane is between files.
    Lane,
    /// A segment has begun on a data lane.
    SegmentStart,
    /// A data lane is inside a segment.
    Segment,
    /// A data lane's last message has arrived.
    LaneOver,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hello => "waiting for Hello",
            Self::Start => "waiting for Start",
            Self::StartParts => "inside a Start",
            Self::Ready => "waiting for Ready",
            Self::Names => "waiting for Names",
            Self::Tops => "waiting for Tops",
            Self::Listing => "listing",
            Self::ListingPart => "inside a directory's listing",
            Self::Files => "receiving files",
            Self::Bye => "waiting for Bye",
            Self::Needs => "serving requests",
            Self::Report => "waiting for Report",
            Self::Over => "session over",
            Self::LaneStart => "waiting for LaneStart",
            Self::Lane => "between files",
            Self::SegmentStart => "at the start of a segment",
            Self::Segment => "inside a segment",
            Self::LaneOver => "lane over",
        })
    }
}

/// The order of the controller's messages before the peer has a role: `Hello`, then `Start`, whole
/// or in parts.
#[derive(Debug, Clone)]
pub struct PeerInbox {
    state: State,
}

impl Default for PeerInbox {
    fn default() -> Self {
        Self::new()
    }
}

impl PeerInbox {
    /// Starts by waiting for `Hello`.
    pub fn new() -> Self {
        Self { state: State::Hello }
    }

    /// Checks that a message may come now. After `Start` the peer continues with
    /// [`SourceInbox::peer`] or [`DestinationInbox::peer`].
    ///
    /// # Errors
    /// [`DecodeError::Unexpected`].
    pub fn check(&mut self, message: &ControlMessage) -> Result<(), DecodeError> {
        self.state = match (self.state, message) {
            (state, ControlMessage::Fatal(_)) if state != State::Over => State::Over,
            (State::Hello, ControlMessage::Hello(_)) => State::Start,
            (State::Start, ControlMessage::Start(_)) => State::Over,
            (State::Start | State::StartParts, ControlMessage::StartPart { last, .. }) => {
                if *last {
                    State::Over
                } else {
                    State::StartParts
                }
            }
            (state, _) => return Err(unexpected(message.kind(), state)),
        };
        Ok(())
    }

    /// Returns the current state.
    pub fn state(&self) -> State {
        self.state
    }
}

/// The order of the destination's messages to the source.
#[derive(Debug, Clone)]
pub struct SourceInbox {
    state: State,
    controller: bool,
    /// Whether the destination sends a list.
    hears_names: bool,
    /// Whether the destination may name keys of files.
    hears_keys: bool,
    /// Entries whose signature is announced but not complete; at most [`MAX_OPEN_SIGNATURES`].
    open: HashSet<EntryId>,
}

impl SourceInbox {
    /// Makes the inbox of a source that is the controller: waits for `Hello` and `Ready`.
    pub fn controller() -> Self {
        Self { controller: true, state: State::Hello, ..Self::peer() }
    }

    /// Makes the inbox of a source that is the peer, after `Start`: waits for requests.
    pub fn peer() -> Self {
        let (hears_names, hears_keys) = (false, false);
        Self { state: State::Needs, controller: false, hears_names, hears_keys, open: HashSet::new() }
    }

    /// Lets the destination name keys of files, as its features say. The inbox of a controller learns
    /// that of the `Hello`.
    pub fn allow_file_keys(&mut self, features: u64) {
        self.hears_keys = features & FILE_KEYS != 0;
    }

    /// Lets the destination send a list of paths before its requests.
    #[must_use]
    pub fn with_names(mut self) -> Self {
        self.hears_names = true;
        if self.state == State::Needs {
            self.state = State::Names;
        }
        self
    }

    /// Checks that a message may come now.
    ///
    /// # Errors
    /// [`DecodeError::Unexpected`], or [`DecodeError::Sums`], [`DecodeError::Asked`] or
    /// [`DecodeError::Limit`] if signatures are mixed up or too many are open.
    pub fn check(&mut self, message: &ControlMessage) -> Result<(), DecodeError> {
        use ControlMessage as M;
        self.state = match (self.state, message) {
            (state, M::Fatal(_)) if state != State::Over => State::Over,
            (State::Hello, M::Hello(hello)) => {
                self.allow_file_keys(hello.features);
                State::Ready
            }
            (State::Ready, M::Ready { .. }) => {
                if self.hears_names {
                    State::Names
                } else {
                    State::Needs
                }
            }
            (State::Names, M::Names(names)) => {
                if names.last {
                    State::Needs
                } else {
                    State::Names
                }
            }
            (state @ (State::Ready | State::Names | State::Needs | State::Report), M::Progress(_)) => state,
            (State::Needs, M::Need { .. } | M::NeedTail(_) | M::Rest(_)) => State::Needs,
            (State::Needs, M::NeedDelta(need)) if need.key.is_none() || self.hears_keys => {
                self.announce(need.entry)?
            }
            (State::Needs, M::Sums(sums)) => self.take_sums(sums.entry, sums.last)?,
            // Credit may trail the last request.
            (state @ (State::Needs | State::Report), M::ListingDone { .. } | M::Landed(_)) => state,
            (State::Needs, M::SpanAnswer(_)) => State::Needs,
            (state @ (State::Needs | State::Report), M::Event(_)) if self.controller => state,
            (State::Needs, M::NeedsEnd) if self.open.is_empty() => State::Report,
            (State::Report, M::Report(_)) => State::Over,
            (state, _) => return Err(unexpected(message.kind(), state)),
        };

        Ok(())
    }

    /// Returns the current state.
    pub fn state(&self) -> State {
        self.state
    }

    fn announce(&mut self, entry: EntryId) -> Result<State, DecodeError> {
        let limit = MAX_OPEN_SIGNATURES as u64;
        if !self.open.insert(entry) {
            return Err(DecodeError::Asked { entry });
        }
        match self.open.len() as u64 {
            value if value > limit => {
                let (kind, field) = (Kind::NEED_DELTA, "number of incomplete signatures");
                Err(DecodeError::Limit { kind, field, value, limit, offset: 0 })
            }
            _ => Ok(State::Needs),
        }
    }

    fn take_sums(&mut self, entry: EntryId, last: bool) -> Result<State, DecodeError> {
        let open = if last { self.open.remove(&entry) } else { self.open.contains(&entry) };
        if open { Ok(State::Needs) } else { Err(DecodeError::Sums { entry }) }
    }
}

/// The order of the source's messages to the destination on the control lane.
#[derive(Debug, Clone)]
pub struct DestinationInbox {
    state: State,
    listing: ListingOrder,
    /// Whether the source may send spans.
    hears_spans: bool,
    /// Whether the source may name missing operands: until it lists the first directory.
    hears_missing: bool,
}

impl DestinationInbox {
    /// Makes the inbox of a destination that is the controller: waits for `Hello` and `Ready`.
    pub fn controller() -> Self {
        Self {
            state: State::Hello,
            listing: ListingOrder::default(),
            hears_spans: false,
            hears_missing: true,
        }
    }

    /// Makes the inbox of a destination that is the peer, after `Start`: waits for `Tops`.
    pub fn peer() -> Self {
        Self { state: State::Tops, listing: ListingOrder::default(), hears_spans: false, hears_missing: true }
    }

    /// Lets the source send spans. Listings then have gaps that only a comparison of trees can fill, so
    /// whoever fills them checks their law with a [`ListingOrder`], and this inbox does not.
    pub fn allow_spans(&mut self) {
        self.hears_spans = true;
    }

    /// Checks that a message may come now.
    ///
    /// # Errors
    /// [`DecodeError::Unexpected`], or a fault in a listing's place, names, depth or totals.
    pub fn check(&mut self, message: &ControlMessage) -> Result<(), DecodeError> {
        use ControlMessage as M;
        use State as S;
        self.state = match (self.state, message) {
            (state, M::Fatal(_)) if state != S::Over => S::Over,
            (S::Hello, M::Hello(_)) => S::Ready,
            (S::Ready, M::Ready { .. }) => S::Tops,
            (state, M::Alive) if !matches!(state, S::Hello | S::Over) => state,
            (state, M::Problem(_)) if !matches!(state, S::Hello | S::Ready | S::Over) => state,
            (state @ (S::Tops | S::Listing | S::ListingPart), M::IdName(_)) => state,
            (state @ (S::Listing | S::ListingPart), M::Ruling(_)) => state,
            (S::Listing, M::Missing(_)) if self.hears_missing => S::Listing,
            (
                state @ (S::Listing | S::ListingPart | S::Files),
                M::Refine(_) | M::Removed { .. } | M::RemovedPath(_),
            ) => state,
            (S::Tops, M::Tops(tops)) => {
                self.listing = ListingOrder::new(tops.root.is_some());
                S::Listing
            }
            // Whether a directory has ended is known where the gaps are filled.
            (S::Listing | S::ListingPart, M::Span(_) | M::Same(_)) if self.hears_spans => S::Listing,
            (S::Listing | S::ListingPart, M::ListingEnd(_)) if self.hears_spans => S::Files,
            (S::Listing | S::ListingPart, M::Listing(listing)) if self.hears_spans => {
                if listing.last {
                    S::Listing
                } else {
                    S::ListingPart
                }
            }
            (S::Listing | S::ListingPart, M::Listing(listing)) => {
                self.listing.check(listing)?;
                if listing.last { S::Listing } else { S::ListingPart }
            }
            (S::Listing, M::ListingEnd(end)) => {
                self.listing.end(end)?;
                S::Files
            }
            (S::Bye, M::Bye) => S::Over,
            (state, _) => return Err(unexpected(message.kind(), state)),
        };
        self.hears_missing &= !matches!(message, M::Listing(_) | M::Span(_) | M::Same(_));

        Ok(())
    }

    /// Records that this end is about to send its report; only now may `Bye` come.
    pub fn report_sent(&mut self) {
        if self.state == State::Files {
            self.state = State::Bye;
        }
    }

    /// Returns the current state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the number of the next listed entry.
    pub fn next_entry(&self) -> EntryId {
        EntryId(self.listing.next)
    }
}

/// The law of listings: see [`crate::message::Listing`].
#[derive(Debug, Clone, Default)]
pub struct ListingOrder {
    /// Number of the next entry.
    next: u64,
    root_announced: bool,
    /// Total size of files and link texts so far.
    bytes: u64,
    /// Directories whose listing has not arrived, by depth. The last run of each depth is the next.
    due: Vec<Vec<Run>>,
    /// The directory whose listing is incomplete.
    open: Option<OpenListing>,
}

#[derive(Debug, Clone)]
struct OpenListing {
    dir: EntryId,
    /// Depth of the directory; 0 is the root.
    depth: usize,
    last_name: Option<Name>,
    /// Its directories so far.
    directories: Vec<Run>,
}

/// Consecutively listed entries: `first..end`.
#[derive(Debug, Clone, Copy)]
struct Run {
    first: u64,
    end: u64,
}

impl ListingOrder {
    /// Starts by waiting for the root's listing.
    pub fn new(root_announced: bool) -> Self {
        Self { next: 1, root_announced, bytes: 0, due: vec![vec![Run { first: 0, end: 1 }]], open: None }
    }

    /// Checks that a part of a listing may come now.
    ///
    /// # Errors
    /// A fault in its place, names or depth.
    pub fn check(&mut self, listing: &Listing) -> Result<(), DecodeError> {
        let mut open = match self.open.take() {
            Some(open) if open.dir == listing.dir => open,
            Some(_) => return Err(self.wrong_parent(listing)),
            None => self.turn_to(listing)?,
        };

        if !listing.entries.is_empty() && open.depth >= MAX_PATH_DEPTH {
            return Err(DecodeError::Depth { depth: open.depth as u64 + 1, limit: MAX_PATH_DEPTH as u64 });
        }
        for entry in &listing.entries {
            if open.last_name.as_ref().is_some_and(|last| *last >= entry.name) {
                let name = PeerText::new(entry.name.as_bytes());
                return Err(DecodeError::NameOrder { entry: EntryId(self.next), name });
            }
            // Within a part the decoder has checked the order.
            open.last_name = None;
            match &entry.kind {
                EntryKind::Directory => open.add(self.next),
                EntryKind::File { size, .. } => self.bytes = self.bytes.saturating_add(*size),
                EntryKind::Symlink { target } => self.bytes = self.bytes.saturating_add(target.len() as u64),
                _ => {}
            }
            self.next = self.next.saturating_add(1);
        }
        if listing.last {
            open.directories.reverse();
            self.due.push(open.directories);
        } else {
            open.last_name = listing.entries.last().map(|entry| entry.name.clone()).or(open.last_name);
            self.open = Some(open);
        }

        Ok(())
    }

    /// Finds the directory of a first part: the next one due, depth first. Directories passed over
    /// will not be listed.
    fn turn_to(&mut self, listing: &Listing) -> Result<OpenListing, DecodeError> {
        let dir = listing.dir;
        while let Some(level) = self.due.last_mut() {
            while let Some(run) = level.pop() {
                if !(run.first..run.end).contains(&dir.0) {
                    continue;
                }
                if dir.0 + 1 < run.end {
                    level.push(Run { first: dir.0 + 1, end: run.end });
                }
                let depth = self.due.len() - 1;
                return Ok(OpenListing { dir, depth, last_name: None, directories: Vec::new() });
            }
            self.due.pop();
        }
        Err(self.wrong_parent(listing))
    }

    fn wrong_parent(&self, listing: &Listing) -> DecodeError {
        DecodeError::Parent { entry: EntryId(self.next), parent: listing.dir }
    }

    /// Checks that the listing may end now.
    ///
    /// # Errors
    /// [`DecodeError::Unexpected`] inside a directory; [`DecodeError::ListingTotals`].
    pub fn end(&self, end: &ListingEnd) -> Result<(), DecodeError> {
        if self.open.is_some() {
            return Err(unexpected(Kind::LISTING_END, State::ListingPart));
        }
        let entries = self.next - 1 + u64::from(self.root_announced);
        for (got, declared, unit) in [(entries, end.entries, "entries"), (self.bytes, end.bytes, "bytes")] {
            if got != declared {
                return Err(DecodeError::ListingTotals { got, declared, unit });
            }
        }
        Ok(())
    }
}

impl OpenListing {
    fn add(&mut self, directory: u64) {
        match self.directories.last_mut() {
            Some(run) if run.end == directory => run.end += 1,
            _ => self.directories.push(Run { first: directory, end: directory + 1 }),
        }
    }
}

/// The order of the source's messages on one data lane.
#[derive(Debug, Clone)]
pub struct LaneInbox {
    state: State,
    data_lanes: usize,
}

impl LaneInbox {
    /// Makes the inbox of a lane in a session with `data_lanes` of them: waits for `LaneStart`.
    pub fn new(data_lanes: usize) -> Self {
        Self { state: State::LaneStart, data_lanes }
    }

    /// Checks that a message may come now.
    ///
    /// # Errors
    /// [`DecodeError::Unexpected`], or [`DecodeError::Limit`] for a lane number beyond the
    /// session's.
    pub fn check(&mut self, message: &DataMessage) -> Result<(), DecodeError> {
        use DataMessage as M;
        self.state = match (self.state, message) {
            (State::LaneStart, M::LaneStart { lane }) => {
                if usize::from(*lane) >= self.data_lanes {
                    return Err(DecodeError::Limit {
                        kind: Kind::LANE_START,
                        field: "lane number",
                        value: u64::from(*lane),
                        limit: (self.data_lanes as u64).saturating_sub(1),
                        offset: 0,
                    });
                }
                State::Lane
            }
            (State::Lane, M::Batch { .. } | M::FileEnd(_)) => State::Lane,
            (State::Lane, M::Segment(_)) => State::SegmentStart,
            (State::SegmentStart, M::Holes(_)) | (State::SegmentStart | State::Segment, M::Tokens(_)) => {
                State::Segment
            }
            (State::SegmentStart | State::Segment, M::SegmentEnd { .. }) => State::Lane,
            (State::Lane, M::LaneEnd) => State::LaneOver,
            (state, _) => return Err(unexpected(message.kind(), state)),
        };

        Ok(())
    }

    /// Returns whether the lane's last message has arrived. Only then is its end a clean one.
    pub fn is_over(&self) -> bool {
        self.state == State::LaneOver
    }

    /// Returns the current state.
    pub fn state(&self) -> State {
        self.state
    }
}

fn unexpected(kind: Kind, state: State) -> DecodeError {
    DecodeError::Unexpected { kind, state }
}
