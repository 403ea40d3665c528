//! The outcome of a finished run.

use std::time::Duration;

use dsync_wire::{event::Report, link::Traffic};

use crate::{exit_code, observe::Connection};

/// The results of a finished run. A run that finished may still have failed for some entries:
/// [`exit_code`](Self::exit_code) tells.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// The destination's account.
    pub report: Report,
    /// The way in which the peer was reached; `None` for a local run.
    pub connection: Option<Connection>,
    /// Number of times that the connection broke and the run went on over another one.
    pub reconnects: u32,
    /// Files that were finished over connections that broke: the report is of the last one.
    pub files_done_before: u64,
    /// Bytes that this end sent and received over the carriers of all connections, before
    /// encryption.
    pub traffic: Traffic,
    /// Wall time from the start of the run to the last message.
    pub elapsed: Duration,
    /// Whether nothing was changed because the run was a dry run.
    pub dry_run: bool,
}

impl Summary {
    /// Returns the exit code that a command should end with: 0, or the gravest of 23 (some entries
    /// failed, kept fewer attributes or became copies of what they should be links to), 25
    /// (deletion limit) and 24 (some vanished or kept changing).
    pub fn exit_code(&self) -> u8 {
        let Report { failed, attributes_withheld, links_copied, deletions_withheld, .. } = self.report;
        if failed > 0 || attributes_withheld > 0 || links_copied > 0 || deletions_withheld > 0 {
            exit_code::PARTIAL
        } else if self.report.deletions_over_limit > 0 {
            exit_code::MAX_DELETE
        } else if self.report.vanished > 0 {
            exit_code::VANISHED
        } else {
            exit_code::OK
        }
    }
}
