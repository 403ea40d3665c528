//! The end of a run in words: one paragraph about what was done, one line about what was not. And the
//! end of every command whose results did not all reach standard output.

use std::{io, path::Path, time::Duration};

use dsync_engine::{Carrier, DeleteLimit, Durability, Move, Report, Traffic, exit_code};

use crate::{
    console::{blame, print},
    escape::escape_text,
    messages::{self, meaning},
    numbers::{Bytes, counted, rate, with_commas},
    words::system_words,
};

/// Returns the exit code of a command whose results were printed. A failure of standard output is told; it
/// never takes the place of another failure's code.
pub(crate) fn printed(outcome: io::Result<()>, code: u8) -> u8 {
    let Err(error) = outcome else { return code };
    // A reader that stops early, as in `| head -1`, is normal. Anything else is reported.
    if error.kind() != io::ErrorKind::BrokenPipe {
        blame(&format!("cannot write to standard output: {}", system_words(&error)));
    }
    if code == exit_code::OK { messages::OUTPUT } else { code }
}

/// Prints the only result of this call; returns the exit code.
pub(crate) fn show(text: &[u8]) -> u8 {
    printed(print(text), exit_code::OK)
}

/// The contents of the paragraph.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Closing<'a> {
    /// The destination's account.
    pub(crate) report: &'a Report,
    /// Traffic of this end.
    pub(crate) traffic: Traffic,
    /// The carrier, and why it is not the preferred one; `None` for a local run.
    pub(crate) connection: Option<(Carrier, Option<&'a str>)>,
    /// The moves of data to another carrier.
    pub(crate) moves: &'a [Move],
    /// Number of broken connections; `files_done_before` counts the files finished over them.
    pub(crate) reconnects: u32,
    /// See `reconnects`.
    pub(crate) files_done_before: u64,
    /// Wall time.
    pub(crate) elapsed: Duration,
    /// Whether nothing was changed.
    pub(crate) dry_run: bool,
    /// The file of a run that was only recorded, with its bytes.
    pub(crate) recorded: Option<(&'a Path, u64)>,
    /// Whether the source was only looked at.
    pub(crate) lists_only: bool,
    /// Whether directories were copied.
    pub(crate) recursive: bool,
    /// The durability that the run promised.
    pub(crate) durability: Durability,
    /// The exit code of the run.
    pub(crate) exit_code: u8,
}

impl Closing<'_> {
    /// Returns the paragraph: a few sentences in one line.
    pub(crate) fn paragraph(&self) -> String {
        if self.lists_only {
            let (entries, bytes) = (self.report.listed.total(), Bytes(self.report.total_bytes));
            let (entries, seconds) = (counted(entries, "entry", "entries"), self.elapsed.as_secs_f64());
            return format!("Listed {entries}, {bytes}, in {seconds:.1} s.");
        }
        let sentences =
            [Some(self.transferred()), self.others(), self.before(), Some(self.carried()), self.kept()];
        let text = sentences.into_iter().flatten().collect::<Vec<_>>().join(" ");
        escape_text(&text).into_owned()
    }

    /// Returns what could not be done, with the exit code; `None` if everything was done.
    pub(crate) fn problems(&self, max_delete: Option<DeleteLimit>, all_or_nothing: bool) -> Option<String> {
        let report = self.report;
        if self.exit_code == exit_code::OK {
            return None;
        }

        let mut parts = Vec::new();
        if report.failed > 0 {
            parts.push(format!("{} failed", counted(report.failed, "entry", "entries")));
        }
        if report.attributes_withheld > 0 {
            let entries = counted(report.attributes_withheld, "entry", "entries");
            parts.push(format!(
                "{entries} copied without some owners, ACLs or extended attributes, which could not be set there"
            ));
        }
        if report.links_copied > 0 {
            let links = counted(report.links_copied, "hard link became a copy", "hard links became copies");
            parts.push(format!("{links}, because the destination cannot make hard links to those files"));
        }

        if report.vanished > 0 {
            parts.push(format!("{} vanished or kept changing", with_commas(report.vanished)));
        }
        if report.deletions_withheld > 0 {
            let deletions = counted(report.deletions_withheld, "deletion", "deletions");
            parts.push(format!("{deletions} withheld, because not all of the source could be read"));
        }
        if let (true, Some(limit)) = (report.deletions_over_limit > 0, max_delete) {
            let deletions = counted(report.deletions_over_limit, "deletion", "deletions");
            let limit = match limit {
                DeleteLimit::Percent(percent) => format!("{percent}%"),
                DeleteLimit::Entries(entries) => entries.to_string(),
                _ => "given".to_owned(),
            };
            // It is used up after a lost connection, as far as anybody knows.
            let lost = if self.reconnects > 0 { " when the connection was lost" } else { "" };
            parts.push(if all_or_nothing && lost.is_empty() {
                let exceed = if report.deletions_over_limit == 1 { "exceeds" } else { "exceed" };
                format!("{deletions} {exceed} the limit --max-delete={limit}; nothing extraneous was deleted")
            } else {
                format!("deletions stopped at the limit --max-delete={limit}{lost}: {deletions} not made")
            });
        }
        if parts.is_empty() {
            parts.push(meaning(self.exit_code).to_owned());
        }

        Some(format!("{} (exit code {})", parts.join(", "), self.exit_code))
    }

    /// Returns advice about work that this run did in vain.
    pub(crate) fn advice(&self) -> Option<String> {
        let files = counted(self.report.rounded_times, "file is", "files are");
        (self.report.rounded_times > 0).then(|| {
            format!(
                "{files} copied again only because the destination keeps times less exactly: \
                 --modify-window=1 allows for steps of 2 seconds, --size-only ignores times"
            )
        })
    }

    fn transferred(&self) -> String {
        let report = self.report;
        let verb = if self.dry_run { "Dry run, nothing was changed: would transfer" } else { "Transferred" };
        let (some, all) =
            (with_commas(report.files_transferred), counted(report.listed.files, "file", "files"));
        if let Some((file, bytes)) = self.recorded {
            let (transferred, file) = (Bytes(report.transferred_bytes), file.display());
            let bytes = Bytes(bytes);
            return format!(
                "Recorded {some} of {all}, {transferred}, in '{file}' ({bytes}); nothing else was changed."
            );
        }
        if report.files_transferred == 0 || self.dry_run {
            return format!("{verb} {some} of {all}, {}.", Bytes(report.transferred_bytes));
        }
        format!(
            "{verb} {some} of {all}, {}: {} literal, {} matched.",
            Bytes(report.transferred_bytes),
            Bytes(report.literal_bytes),
            Bytes(report.matched_bytes)
        )
    }

    fn others(&self) -> Option<String> {
        let parts: Vec<String> = [
            ("created", self.report.created.total()),
            ("deleted", self.report.deleted.total()),
            ("given new attributes", self.report.retagged),
        ]
        .into_iter()
        .filter(|&(_, number)| number > 0)
        .map(|(what, number)| format!("{} {what}", with_commas(number)))
        .collect();
        if parts.is_empty() { None } else { Some(format!("Of all entries {}.", parts.join(", "))) }
    }

    fn before(&self) -> Option<String> {
        let lost = match self.reconnects {
            0 => return None,
            1 => "The connection was lost once".to_owned(),
            times => format!("The connection was lost {times} times"),
        };
        let files = counted(self.files_done_before, "file", "files");
        Some(format!("{lost}; {files} had been finished before."))
    }

    fn carried(&self) -> String {
        let seconds = format!("{:.1} s", self.elapsed.as_secs_f64());
        let speed = Bytes(rate(self.report.transferred_bytes, self.elapsed));
        let Some((carrier, reason)) = self.connection else {
            return format!("Took {seconds} ({speed}/s).");
        };
        let reason = reason.map_or_else(String::new, |why| format!(" ({why})"));
        let moves = self.told_moves();
        let (sent, received) = (Bytes(self.traffic.sent_bytes), Bytes(self.traffic.received_bytes));
        format!("Sent {sent} and received {received} in {seconds} ({speed}/s) over {carrier}{reason}{moves}.")
    }

    /// Returns what is said of the moves: a run of many hours may have many.
    fn told_moves(&self) -> String {
        let told = self.moves.iter().take(TOLD_MOVES);
        let told = told.fold(String::new(), |told, moved| format!("{told}, {moved}"));
        match self.moves.len().saturating_sub(TOLD_MOVES) {
            0 => told,
            more => format!("{told}, and {more} further moves"),
        }
    }

    /// Returns whether all that the source named were directories, which are skipped without `-r`.
    fn skipped_all(&self) -> bool {
        let listed = &self.report.listed;
        !self.recursive && listed.total() == listed.directories
    }

    fn kept(&self) -> Option<String> {
        let text = match self.durability {
            _ if self.dry_run || self.skipped_all() => return None,
            Durability::None => "Not synced to disk: --durability=none.",
            _ if self.exit_code == exit_code::OK => "Everything is on disk.",
            _ => "What was copied is on disk.",
        };
        Some(text.to_owned())
    }
}

/// Most moves to another carrier that are told one by one.
const TOLD_MOVES: usize = 4;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dsync_engine::{MoveCause, TypeCounts};

    use super::*;

    fn report() -> Report {
        Report::default()
            .listed(TypeCounts::default().files(5).directories(2))
            .created(TypeCounts::default().files(2))
            .deleted(TypeCounts::default().files(1))
            .files_transferred(3)
            .transferred_bytes(12_300_000)
            .literal_bytes(1_200_000)
            .matched_bytes(11_100_000)
    }

    fn closing(report: &Report) -> Closing<'_> {
        Closing {
            report,
            traffic: Traffic::new(1_300_000, 45_000),
            connection: Some((Carrier::Quic, None)),
            moves: &[],
            elapsed: Duration::from_millis(1200),
            reconnects: 0,
            files_done_before: 0,
            dry_run: false,
            recorded: None,
            lists_only: false,
            recursive: true,
            durability: Durability::Batch,
            exit_code: 0,
        }
    }

    #[test]
    fn paragraph_says_what_was_done_how_and_whether_it_is_safe() {
        let report = report();
        assert_eq!(
            closing(&report).paragraph(),
            "Transferred 3 of 5 files, 12.3 MB: 1.2 MB literal, 11.1 MB matched. Of all entries 2 created, \
             1 deleted. Sent 1.3 MB and received 45.0 kB in 1.2 s (10.2 MB/s) over quic. Everything is on disk."
        );
    }

    #[test]
    fn paragraph_names_the_reason_of_the_carrier_and_missing_syncs() {
        let report = report();
        let connection = Some((Carrier::Ssh, Some("no answer on UDP within 2 s")));
        let text = Closing { connection, durability: Durability::None, ..closing(&report) }.paragraph();
        assert!(text.contains("over ssh (no answer on UDP within 2 s)."), "{text}");

        let connection = Some((Carrier::Tls, Some("round trip 17.0 ms")));
        let cause = MoveCause::Loss { per_million: 9_876 };
        let moves = [Move::new(Carrier::Quic, cause), Move::new(Carrier::Tls, MoveCause::Clean)];
        let moved = Closing { connection, moves: &moves, ..closing(&report) }.paragraph();
        let told = "over tls (round trip 17.0 ms), then quic: the path lost 0.99 % of the packets, then tls: the \
                    path loses nothing any more.";
        assert!(moved.contains(told), "{moved}");
        let moved = Closing { connection, moves: &moves.repeat(9), ..closing(&report) }.paragraph();
        assert!(moved.contains("loses nothing any more, and 14 further moves."), "{moved}");
        assert!(text.ends_with("Not synced to disk: --durability=none."), "{text}");
    }

    #[test]
    fn dry_run_claims_nothing() {
        let report = report().literal_bytes(0).matched_bytes(0);
        let text = Closing { dry_run: true, connection: None, ..closing(&report) }.paragraph();
        assert_eq!(
            text,
            "Dry run, nothing was changed: would transfer 3 of 5 files, 12.3 MB. Of all entries 2 created, \
             1 deleted. Took 1.2 s (10.2 MB/s)."
        );
    }

    #[test]
    fn run_that_is_only_recorded_names_its_file() {
        let report = report();
        let recorded = Some((Path::new("batch"), 12_400_000));
        let text = Closing { dry_run: true, recorded, connection: None, ..closing(&report) }.paragraph();
        let expected =
            "Recorded 3 of 5 files, 12.3 MB, in 'batch' (12.4 MB); nothing else was changed. Of all";
        assert!(text.starts_with(expected), "{text}");
    }

    #[test]
    fn problems_are_counted_and_end_with_the_code() {
        let good = report();
        assert_eq!(closing(&good).problems(None, false), None);
        let bad = report().failed(3).vanished(1);
        let line = Closing { exit_code: 23, ..closing(&bad) }.problems(None, false);
        assert_eq!(line.unwrap(), "3 entries failed, 1 vanished or kept changing (exit code 23)");
        let rounded = report().rounded_times(2);
        assert!(closing(&rounded).advice().unwrap().starts_with("2 files are copied again only because"));
        assert_eq!(closing(&good).advice(), None);
        let over = report().deletions_over_limit(7);
        let line = Closing { exit_code: 25, ..closing(&over) }.problems(Some(DeleteLimit::Entries(5)), true);
        assert_eq!(
            line.unwrap(),
            "7 deletions exceed the limit --max-delete=5; nothing extraneous was deleted (exit code 25)"
        );
        let line = Closing { exit_code: 25, ..closing(&over) }.problems(Some(DeleteLimit::Entries(5)), false);
        assert_eq!(
            line.unwrap(),
            "deletions stopped at the limit --max-delete=5: 7 deletions not made (exit code 25)"
        );
    }
}
