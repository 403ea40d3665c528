//! One file's life, from its being asked for to its end.
//!
//! ```text
//! Asked --first segment--> Staged --content right, or given up--> Over
//!   ^ \_______whole file in a batch, or given up__________________^
//!   |                         |
//!   +----- asked for again ---+      at most MAX_ATTEMPTS requests, see Phase::again
//! ```
//!
//! Each phase has its own data and no other, so that a transition is one assignment, under the
//! file's lock, and drops the data of the phase before.

use std::sync::Arc;

use dsync_delta::{Layout, Signature};
use dsync_fs::{StagedFile, Stamp};
use dsync_wire::{
    limits::MAX_ATTEMPTS,
    message::{Cause, ControlMessage, EntryId, NeedTail, Timestamp},
};

use super::{
    kept::Part,
    stage::{self, Basis, Stage},
};

/// The phase of a file's life.
pub(super) enum Phase {
    /// The source was asked for it, or is about to be, and nothing of it has arrived.
    Asked {
        /// Requests before this one.
        attempt: u8,
        request: Request,
        /// The part that an earlier run left. Boxed: few files have one, and many wait.
        part: Option<Box<Part>>,
        /// The modification time that the source read it with, if that came before the first
        /// segment.
        early: Option<Timestamp>,
    },
    /// It arrives in segments.
    Staged { attempt: u8, request: Request, stage: Arc<Stage> },
    /// Its content is here, or will never be: what still arrives for it is void.
    Over,
}

/// The content that the source was asked for.
pub(super) enum Request {
    /// All of the file.
    Whole,
    /// A delta to a basis.
    Delta(Box<Signed>),
    /// The tail behind the old file, which is added to.
    Tail(NeedTail),
}

/// The basis of a delta, and the data that belongs to it until the first segment.
pub(super) struct Signed {
    pub(super) basis: Arc<Basis>,
    /// A copy of the basis that shares its extents, to be made the new file by writing what
    /// differs.
    pub(super) clone: Option<StagedFile>,
    pub(super) rounds: Rounds,
}

/// The sums of a basis that the source has.
pub(super) enum Rounds {
    /// Strong ones of long blocks; the weak ones wait until they are asked for.
    Strong(Signature),
    /// All of the first round.
    First,
    /// Those of shorter blocks, in whose layout the tokens count; then no more are asked for.
    Fine(Layout),
}

/// The next step for a file whose content is not right.
pub(super) enum Again {
    /// It is asked for by this message.
    Ask(ControlMessage),
    /// Another request would not help.
    Never,
    /// It was over before.
    Over,
}

impl Default for Phase {
    fn default() -> Self {
        Self::asked(0, Request::Whole)
    }
}

impl Phase {
    fn asked(attempt: u8, request: Request) -> Self {
        Self::Asked { attempt, request, part: None, early: None }
    }

    /// Returns the requests before the current one; `None` once the file is over.
    pub(super) fn attempt(&self) -> Option<u8> {
        match self {
            Self::Asked { attempt, .. } | Self::Staged { attempt, .. } => Some(*attempt),
            Self::Over => None,
        }
    }

    fn request(&self) -> Option<&Request> {
        match self {
            Self::Asked { request, .. } | Self::Staged { request, .. } => Some(request),
            Self::Over => None,
        }
    }

    /// Returns the basis that the source was told of.
    pub(super) fn basis(&self) -> Option<&Basis> {
        match self.request()? {
            Request::Delta(signed) => Some(&signed.basis),
            Request::Whole | Request::Tail(_) => None,
        }
    }

    /// Returns the request for the file's tail, if it asks for that.
    pub(super) fn tail(&self) -> Option<NeedTail> {
        match self.request()? {
            Request::Tail(tail) => Some(*tail),
            Request::Whole | Request::Delta(_) => None,
        }
    }

    /// Returns the state of the basis when it was signed.
    pub(super) fn basis_stamp(&self) -> Option<Stamp> {
        self.basis().map(|basis| basis.file.stamp())
    }

    /// Moves on to the next request, or to the end. Returns the next step and the phase before.
    ///
    /// A file is asked for [`MAX_ATTEMPTS`] times at the most: again when it changed while the
    /// source read it, and again without a basis when its content is not the source's.
    pub(super) fn again(&mut self, entry: EntryId, cause: Cause) -> (Again, Self) {
        let Some(attempt) = self.attempt().map(|attempt| attempt + 1) else {
            return (Again::Over, Self::Over);
        };
        let retryable = matches!(cause, Cause::Changed | Cause::ContentMismatch);
        if !retryable || attempt >= MAX_ATTEMPTS {
            return (Again::Never, std::mem::replace(self, Self::Over));
        }

        // A beginning that is another one is of no use; one that changed may be as it was.
        let tail = self.tail().filter(|_| cause == Cause::Changed);
        let tail = tail.map(|tail| NeedTail { attempt, ..tail });
        let message = tail.map_or(ControlMessage::Need { entry, attempt }, ControlMessage::NeedTail);
        let request = tail.map_or(Request::Whole, Request::Tail);
        (Again::Ask(message), std::mem::replace(self, Self::asked(attempt, request)))
    }
}

impl Request {
    /// Takes the material of the first segment's stage.
    pub(super) fn sources(&mut self, part: Option<Part>) -> stage::Sources {
        let none = stage::Sources { basis: None, fine: None, clone: None, tail_from: None, part };
        match self {
            Self::Whole => none,
            Self::Tail(tail) => stage::Sources { tail_from: Some(tail.from), ..none },
            Self::Delta(signed) => {
                let Signed { basis, clone, rounds } = &mut **signed;
                let fine = if let Rounds::Fine(layout) = rounds { Some(*layout) } else { None };
                stage::Sources { basis: Some(Arc::clone(basis)), fine, clone: clone.take(), ..none }
            }
        }
    }
}

impl Rounds {
    /// Takes the weak sums for a source that asks; `None` when it has them, or is past the need for
    /// them.
    pub(super) fn weak(&mut self) -> Option<Signature> {
        match std::mem::replace(self, Self::First) {
            Self::Strong(weak) => Some(weak),
            Self::First => None,
            Self::Fine(layout) => {
                *self = Self::Fine(layout);
                None
            }
        }
    }

    /// Goes on to shorter blocks; `None` when the source has their sums already. Weak sums come
    /// before or never.
    pub(super) fn refine(&mut self, fine: Layout) -> Option<()> {
        let before = std::mem::replace(self, Self::Fine(fine));
        (!matches!(before, Self::Fine(_))).then_some(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn attempts(cause: Cause) -> Vec<u8> {
        let mut phase = Phase::default();
        std::iter::from_fn(|| match phase.again(EntryId(7), cause).0 {
            Again::Ask(ControlMessage::Need { attempt, .. }) => Some(attempt),
            Again::Ask(_) | Again::Never | Again::Over => None,
        })
        .collect()
    }

    #[test]
    fn a_file_is_asked_for_three_times_at_the_most() {
        let further = attempts(Cause::ContentMismatch);
        assert_eq!(further, [1, 2]);
        assert_eq!(further.len() + 1, usize::from(MAX_ATTEMPTS));
        assert_eq!(attempts(Cause::Changed), further);
        assert!(attempts(Cause::Vanished).is_empty());
    }

    #[test]
    fn what_is_over_is_not_asked_for_again() {
        let mut phase = Phase::default();
        assert!(matches!(phase.again(EntryId(7), Cause::Vanished).0, Again::Never));
        assert_eq!(phase.attempt(), None);
        assert!(matches!(phase.again(EntryId(7), Cause::Changed).0, Again::Over));
    }

    #[test]
    fn the_end_is_asked_for_again_only_while_the_beginning_may_be_right() {
        let tail = NeedTail { entry: EntryId(7), attempt: 0, from: 5, content: None };
        let mut phase = Phase::asked(0, Request::Tail(tail));
        let message = phase.again(EntryId(7), Cause::Changed).0;
        assert!(matches!(
            message,
            Again::Ask(ControlMessage::NeedTail(NeedTail { attempt: 1, from: 5, .. }))
        ));
        let message = phase.again(EntryId(7), Cause::ContentMismatch).0;
        assert!(matches!(message, Again::Ask(ControlMessage::Need { attempt: 2, .. })));
    }

    #[test]
    fn weak_sums_are_sent_once_and_not_after_fine_ones() {
        let layout = Layout::new(1 << 20, dsync_delta::BlockLen::new(1 << 10).unwrap());
        let mut rounds = Rounds::First;
        assert!(rounds.weak().is_none() && rounds.refine(layout).is_some());
        assert!(rounds.weak().is_none() && rounds.refine(layout).is_none());
    }
}
