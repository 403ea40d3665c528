//! The verdict on a finished run.
//!
//! The law: both ends of a session judge a run by the destination's report and by this rule, so that
//! the log of a server says what its client ends with.

use dsync_wire::event::Report;

use crate::exit_code;

/// The verdict on a finished run, from the best to the gravest.
///
/// ```
/// use dsync_engine::Verdict;
///
/// // The gravest of several runs decides.
/// let verdicts = [Verdict::Done, Verdict::Partial, Verdict::Vanished];
/// let gravest = verdicts.into_iter().max().unwrap_or(Verdict::Done);
/// assert_eq!((gravest, gravest.exit_code()), (Verdict::Partial, 23));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The destination is what was asked for.
    Done,
    /// Some entries vanished from the source, or kept changing, before they could be read.
    Vanished,
    /// Entries stayed because the limit on deletions was reached.
    DeletionLimit,
    /// Some entries failed, kept fewer attributes, became copies of what they should be links to, or
    /// were not deleted because the source could not be read completely.
    Partial,
}

impl Verdict {
    /// Returns the exit code that a command should end with: 0, 24, 25 or 23.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Done => exit_code::OK,
            Self::Vanished => exit_code::VANISHED,
            Self::DeletionLimit => exit_code::MAX_DELETE,
            Self::Partial => exit_code::PARTIAL,
        }
    }

    /// Returns the gravest verdict that the counts of a report allow.
    pub(crate) fn of(report: &Report) -> Self {
        let Report { failed, attributes_withheld, links_copied, deletions_withheld, .. } = *report;
        if failed > 0 || attributes_withheld > 0 || links_copied > 0 || deletions_withheld > 0 {
            Self::Partial
        } else if report.deletions_over_limit > 0 {
            Self::DeletionLimit
        } else if report.vanished > 0 {
            Self::Vanished
        } else {
            Self::Done
        }
    }
}
