//! `--stats`: rsync's block and its two lines of totals, byte for byte, then dsync's additions.
//!
//! rsync's size and times of the file list are 0, because dsync has no such list: entries are
//! compared while they are listed.

use std::time::Duration;

use dsync_engine::{Carrier, Report, Traffic, TypeCounts};

use crate::numbers::{Number, Style};

/// Returns the block, each line with its end.
pub(crate) fn block(
    report: &Report,
    traffic: Traffic,
    carrier: Option<Carrier>,
    (elapsed, dry_run): (Duration, bool),
    style: Style,
) -> String {
    let number = |value| Number(value, style).to_string();
    let lines = [
        format!("Number of files: {}", counts(&report.listed, style)),
        format!("Number of created files: {}", counts(&report.created, style)),
        format!("Number of deleted files: {}", counts(&report.deleted, style)),
        format!("Number of regular files transferred: {}", count(report.files_transferred, style)),
        format!("Total file size: {} bytes", number(report.total_bytes)),
        format!("Total transferred file size: {} bytes", number(report.transferred_bytes)),
        format!("Literal data: {} bytes", number(report.literal_bytes)),
        format!("Matched data: {} bytes", number(report.matched_bytes)),
        "File list size: 0".to_owned(),
        "File list generation time: 0.000 seconds".to_owned(),
        "File list transfer time: 0.000 seconds".to_owned(),
        format!("Total bytes sent: {}", number(traffic.sent_bytes)),
        format!("Total bytes received: {}", number(traffic.received_bytes)),
        String::new(),
        totals(report, traffic, (elapsed, dry_run), style),
        String::new(),
        format!("Number of entries with new attributes only: {}", count(report.retagged, style)),
        format!("Signature data: {} bytes", number(report.signature_bytes)),
        format!("Sync calls: {}", count(report.syncs, style)),
        format!(
            "Carrier: {}",
            carrier.map_or_else(|| "none (local)".to_owned(), |carrier| carrier.to_string())
        ),
        format!("Elapsed time: {:.3} seconds", elapsed.as_secs_f64()),
    ];

    lines.iter().fold(String::new(), |text, line| text + line + "\n")
}

/// Returns rsync's two lines of totals.
pub(crate) fn totals(
    report: &Report,
    traffic: Traffic,
    (elapsed, dry_run): (Duration, bool),
    style: Style,
) -> String {
    let number = |value| Number(value, style).to_string();
    let (sent, received) = (traffic.sent_bytes, traffic.received_bytes);
    let bytes = sent.saturating_add(received);
    // As rsync: half a second more, so that a short run has no absurd rate.
    let per_second = u128::from(bytes) * 100_000 / (elapsed.as_millis() + 500);
    let speedup = u128::from(report.total_bytes) * 100 / u128::from(bytes.max(1));
    let note = if dry_run { " (DRY RUN)" } else { "" };
    format!(
        "sent {} bytes  received {} bytes  {} bytes/sec\ntotal size is {}  speedup is {}{note}",
        number(sent),
        number(received),
        hundredths(per_second, style),
        number(report.total_bytes),
        hundredths(speedup, style),
    )
}

/// Formats a number of hundredths with two digits behind the point; a long one in the short form of
/// `-h` has its own.
fn hundredths(value: u128, style: Style) -> String {
    let whole = u64::try_from(value / 100).unwrap_or(u64::MAX);
    let text = Number(whole, style).to_string();
    if text.contains('.') { text } else { format!("{text}.{:02}", value % 100) }
}

/// Formats a number of entries, which `-h` does not shorten.
fn count(value: u64, style: Style) -> Number {
    Number(value, if style == Style::Plain { Style::Plain } else { Style::Commas })
}

/// Formats counts as in `5 (reg: 3, dir: 2)`.
fn counts(counts: &TypeCounts, style: Style) -> String {
    let kinds = [
        ("reg", counts.files),
        ("dir", counts.directories),
        ("link", counts.symlinks),
        ("dev", counts.devices),
        ("special", counts.specials),
    ];
    let parts: Vec<String> = kinds
        .iter()
        .filter(|&&(_, number)| number > 0)
        .map(|&(kind, number)| format!("{kind}: {}", count(number, style)))
        .collect();
    let total = count(counts.total(), style);
    if parts.is_empty() { total.to_string() } else { format!("{total} ({})", parts.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_has_the_labels_of_rsync() {
        let report = Report::default()
            .listed(TypeCounts::default().files(1200).directories(1).symlinks(2).devices(0).specials(1))
            .created(TypeCounts::default().symlinks(1))
            .files_transferred(1)
            .total_bytes(1_234_567)
            .transferred_bytes(3)
            .literal_bytes(3);
        let text =
            block(&report, Traffic::new(284, 72), None, (Duration::from_millis(1500), true), Style::Commas);
        let expected = "\
Number of files: 1,204 (reg: 1,200, dir: 1, link: 2, special: 1)
Number of created files: 1 (link: 1)
Number of deleted files: 0
Number of regular files transferred: 1
Total file size: 1,234,567 bytes
Total transferred file size: 3 bytes
Literal data: 3 bytes
Matched data: 0 bytes
File list size: 0
File list generation time: 0.000 seconds
File list transfer time: 0.000 seconds
Total bytes sent: 284
Total bytes received: 72

sent 284 bytes  received 72 bytes  178.00 bytes/sec
total size is 1,234,567  speedup is 3,467.88 (DRY RUN)

Number of entries with new attributes only: 0
Signature data: 0 bytes
Sync calls: 0
Carrier: none (local)
Elapsed time: 1.500 seconds
";
        assert_eq!(text, expected);
        let human = block(
            &report,
            Traffic::new(0, 0),
            Some(Carrier::Quic),
            (Duration::ZERO, false),
            Style::Thousands,
        );
        assert!(
            human.contains("Total file size: 1.23M bytes\n") && human.contains("Number of files: 1,204 (")
        );
        assert!(human.contains("Carrier: quic\n"));
    }
}
