//! Numbers and names of the messages.
//!
//! A frame begins with the number of its message. Numbers of the control lane are below 64, those
//! of data lanes from 64 on, so one number names the same message everywhere. A number is never
//! reused. A test checks the table in `docs/wire.md` against this one.

use std::fmt;

use crate::message::{ControlMessage, DataMessage};

/// The number of a message, known or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(pub u8);

macro_rules! kinds {
    ($table:ident, $($(#[$doc:meta])* $constant:ident = $number:literal, $name:literal;)*) => {
        impl Kind {
            $($(#[$doc])* pub const $constant: Self = Self($number);)*
        }

        /// Numbers and names in the order of numbers.
        const $table: &[(Kind, &str)] = &[$((Kind::$constant, $name)),*];
    };
}

kinds! { CONTROL,
    /// [`ControlMessage::Hello`]
    HELLO = 1, "Hello";
    /// [`ControlMessage::Start`]
    START = 2, "Start";
    /// [`ControlMessage::Ready`]
    READY = 3, "Ready";
    /// [`ControlMessage::Fatal`]
    FATAL = 4, "Fatal";
    /// [`ControlMessage::Tops`]
    TOPS = 5, "Tops";
    /// [`ControlMessage::IdName`]
    ID_NAME = 6, "IdName";
    /// [`ControlMessage::Listing`]
    LISTING = 7, "Listing";
    /// [`ControlMessage::ListingEnd`]
    LISTING_END = 8, "ListingEnd";
    /// [`ControlMessage::Problem`]
    PROBLEM = 9, "Problem";
    /// [`ControlMessage::Need`]
    NEED = 10, "Need";
    /// [`ControlMessage::NeedDelta`]
    NEED_DELTA = 11, "NeedDelta";
    /// [`ControlMessage::Sums`]
    SUMS = 12, "Sums";
    /// [`ControlMessage::ListingDone`]
    LISTING_DONE = 13, "ListingDone";
    /// [`ControlMessage::NeedsEnd`]
    NEEDS_END = 14, "NeedsEnd";
    /// [`ControlMessage::Event`]
    EVENT = 15, "Event";
    /// [`ControlMessage::Progress`]
    PROGRESS = 16, "Progress";
    /// [`ControlMessage::Report`]
    REPORT = 17, "Report";
    /// [`ControlMessage::Alive`]
    ALIVE = 18, "Alive";
    /// [`ControlMessage::Bye`]
    BYE = 19, "Bye";
    /// [`ControlMessage::Refine`]
    REFINE = 20, "Refine";
    /// [`ControlMessage::Rest`]
    REST = 21, "Rest";
    /// [`ControlMessage::Missing`]
    MISSING = 22, "Missing";
    /// [`ControlMessage::Landed`]
    LANDED = 23, "Landed";
    /// [`ControlMessage::Removed`]
    REMOVED = 24, "Removed";
    /// [`ControlMessage::NeedTail`]
    NEED_TAIL = 25, "NeedTail";
    /// [`ControlMessage::StartPart`]
    START_PART = 26, "StartPart";
    /// [`ControlMessage::Names`]
    NAMES = 27, "Names";
    /// [`ControlMessage::Ruling`]
    RULING = 28, "Ruling";
    /// [`ControlMessage::RemovedPath`]
    REMOVED_PATH = 29, "RemovedPath";
    /// [`ControlMessage::Span`]
    SPAN = 30, "Span";
    /// [`ControlMessage::SpanAnswer`]
    SPAN_ANSWER = 31, "SpanAnswer";
    /// [`ControlMessage::Same`]
    SAME = 32, "Same";
}

kinds! { DATA,
    /// [`DataMessage::LaneStart`]
    LANE_START = 64, "LaneStart";
    /// [`DataMessage::Batch`]
    BATCH = 65, "Batch";
    /// [`DataMessage::Segment`]
    SEGMENT = 66, "Segment";
    /// [`DataMessage::Tokens`]
    TOKENS = 67, "Tokens";
    /// [`DataMessage::SegmentEnd`]
    SEGMENT_END = 68, "SegmentEnd";
    /// [`DataMessage::FileEnd`]
    FILE_END = 69, "FileEnd";
    /// [`DataMessage::LaneEnd`]
    LANE_END = 70, "LaneEnd";
    /// [`DataMessage::Holes`]
    HOLES = 71, "Holes";
}

impl Kind {
    /// Returns the messages of the control lane, in the order of their numbers.
    pub fn control() -> impl Iterator<Item = Self> {
        CONTROL.iter().map(|(kind, _)| *kind)
    }

    /// Returns the messages of data lanes, in the order of their numbers.
    pub fn data() -> impl Iterator<Item = Self> {
        DATA.iter().map(|(kind, _)| *kind)
    }

    /// Returns the message's name; `None` for a number unknown to this version.
    pub fn name(self) -> Option<&'static str> {
        CONTROL.iter().chain(DATA).find(|(kind, _)| *kind == self).map(|(_, name)| *name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "number {}", self.0),
        }
    }
}

impl ControlMessage {
    /// Returns the message's number.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Hello(_) => Kind::HELLO,
            Self::Start(_) => Kind::START,
            Self::Ready { .. } => Kind::READY,
            Self::Fatal(_) => Kind::FATAL,
            Self::Tops(_) => Kind::TOPS,
            Self::IdName(_) => Kind::ID_NAME,
            Self::Listing(_) => Kind::LISTING,
            Self::ListingEnd(_) => Kind::LISTING_END,
            Self::Problem(_) => Kind::PROBLEM,
            Self::Need { .. } => Kind::NEED,
            Self::NeedDelta(_) => Kind::NEED_DELTA,
            Self::Sums(_) => Kind::SUMS,
            Self::ListingDone { .. } => Kind::LISTING_DONE,
            Self::NeedsEnd => Kind::NEEDS_END,
            Self::Event(_) => Kind::EVENT,
            Self::Progress(_) => Kind::PROGRESS,
            Self::Report(_) => Kind::REPORT,
            Self::Alive => Kind::ALIVE,
            Self::Bye => Kind::BYE,
            Self::Refine(_) => Kind::REFINE,
            Self::Rest(_) => Kind::REST,
            Self::Missing(_) => Kind::MISSING,
            Self::Landed(_) => Kind::LANDED,
            Self::Removed { .. } => Kind::REMOVED,

            Self::NeedTail(_) => Kind::NEED_TAIL,
            Self::StartPart { .. } => Kind::START_PART,
            Self::Names(_) => Kind::NAMES,
            Self::Ruling(_) => Kind::RULING,
            Self::RemovedPath(_) => Kind::REMOVED_PATH,
            Self::Span(_) => Kind::SPAN,
            Self::SpanAnswer(_) => Kind::SPAN_ANSWER,
            Self::Same(_) => Kind::SAME,
        }
    }

    /// Returns the message's name, for messages to people.
    pub fn name(&self) -> &'static str {
        self.kind().name().unwrap_or("?")
    }
}

impl DataMessage {
    /// Returns the message's number.
    pub fn kind(&self) -> Kind {
        match self {
            Self::LaneStart { .. } => Kind::LANE_START,
            Self::Batch { .. } => Kind::BATCH,
            Self::Segment(_) => Kind::SEGMENT,
            Self::Tokens(_) => Kind::TOKENS,
            Self::SegmentEnd { .. } => Kind::SEGMENT_END,
            Self::FileEnd(_) => Kind::FILE_END,
            Self::LaneEnd => Kind::LANE_END,
            Self::Holes(_) => Kind::HOLES,
        }
    }

    /// Returns the message's name, for messages to people.
    pub fn name(&self) -> &'static str {
        self.kind().name().unwrap_or("?")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_unique() {
        let all: Vec<_> = CONTROL.iter().chain(DATA).collect();
        for (index, (kind, name)) in all.iter().enumerate() {
            assert!(all[..index].iter().all(|(other, others)| other < kind && others != name));
        }
    }

    #[test]
    fn unknown_numbers_are_shown_as_numbers() {
        assert_eq!(Kind(200).to_string(), "number 200");
        assert_eq!(Kind::LISTING.to_string(), "Listing");
    }
}
