//! The outcome of a finished run.

use std::time::Duration;

use dsync_wire::{event::Report, link::Traffic};

use crate::{Verdict, observe::Connection};

/// The results of a finished run. A run that finished may still have failed for some entries:
/// [`exit_code`](Self::exit_code) tells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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
    /// Returns the gravest verdict that the counts allow.
    ///
    /// ```
    /// use dsync_engine::{Summary, Verdict};
    ///
    /// fn report(summary: &Summary) -> &'static str {
    ///     match summary.verdict() {
    ///         Verdict::Done => "all is there",
    ///         Verdict::Vanished => "the source changed meanwhile: run it again",
    ///         _ => "not all is there",
    ///     }
    /// }
    /// ```
    pub fn verdict(&self) -> Verdict {
        Verdict::of(&self.report)
    }

    /// Returns the exit code that a command should end with: that of the [`verdict`](Self::verdict).
    ///
    /// ```
    /// # use dsync_engine::{CancelToken, Destination, Job, Silent, Source, Summary};
    /// # let home = tempfile::tempdir()?;
    /// # let (from, to) = (home.path().join("from"), home.path().join("to"));
    /// # std::fs::create_dir(&from)?;
    /// # std::fs::write(from.join("note"), "short")?;
    /// # let source = Source::Local { paths: vec![from.join("note")] };
    /// # let job = Job::new(source, Destination::Local { path: to.join("") });
    /// let summary: Summary = job.run(&Silent, &CancelToken::new())?;
    /// // Scripts know rsync's numbers: 0, 23, 24 or 25.
    /// assert_eq!(summary.exit_code(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn exit_code(&self) -> u8 {
        self.verdict().exit_code()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gravest_count_decides() {
        let of = |report: Report| {
            let summary = Summary {
                report,
                connection: None,
                reconnects: 0,
                files_done_before: 0,
                traffic: Traffic::new(0, 0),
                elapsed: Duration::ZERO,
                dry_run: false,
            };
            (summary.verdict(), summary.exit_code())
        };
        let report = Report::default();
        assert_eq!(of(report.clone()), (Verdict::Done, 0));
        assert_eq!(of(report.clone().vanished(1)), (Verdict::Vanished, 24));
        assert_eq!(of(report.clone().vanished(1).deletions_over_limit(1)), (Verdict::DeletionLimit, 25));
        let partial = [
            report.clone().failed(1),
            report.clone().attributes_withheld(1),
            report.clone().links_copied(1),
            report.clone().deletions_withheld(1),
        ];
        for partial in partial {
            assert_eq!(of(partial.vanished(1).deletions_over_limit(1)), (Verdict::Partial, 23));
        }
    }
}
