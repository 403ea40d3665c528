//! `--stats`: rsync's block, label for label, and dsync's additions.
//!
//! rsync's size and times of the file list are left out, because dsync has no such list: entries
//! are compared while they are listed.

use std::time::Duration;

use dsync_engine::{Carrier, Report, Traffic, TypeCounts};

use crate::numbers::{Number, Style};

/// Returns the block, each line with its end.
pub(crate) fn block(
    report: &Report,
    traffic: Traffic,
    carrier: Option<Carrier>,
    elapsed: Duration,
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
        format!("Total bytes sent: {}", number(traffic.sent_bytes)),
        format!("Total bytes received: {}", number(traffic.received_bytes)),
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
        let report = Report {
            listed: TypeCounts { files: 1200, directories: 1, symlinks: 2, devices: 0, specials: 1 },
            created: TypeCounts { symlinks: 1, ..TypeCounts::default() },
            files_transferred: 1,
            total_bytes: 1_234_567,
            transferred_bytes: 3,
            literal_bytes: 3,
            ..Report::default()
        };
        let text = block(&report, Traffic::new(284, 72), None, Duration::from_millis(1500), Style::Commas);
        let expected = "\
Number of files: 1,204 (reg: 1,200, dir: 1, link: 2, special: 1)
Number of created files: 1 (link: 1)
Number of deleted files: 0
Number of regular files transferred: 1
Total file size: 1,234,567 bytes
Total transferred file size: 3 bytes
Literal data: 3 bytes
Matched data: 0 bytes
Total bytes sent: 284
Total bytes received: 72
Number of entries with new attributes only: 0
Signature data: 0 bytes
Sync calls: 0
Carrier: none (local)
Elapsed time: 1.500 seconds
";
        assert_eq!(text, expected);
        let human = block(&report, Traffic::new(0, 0), Some(Carrier::Quic), Duration::ZERO, Style::Thousands);
        assert!(
            human.contains("Total file size: 1.23M bytes\n") && human.contains("Number of files: 1,204 (")
        );
        assert!(human.contains("Carrier: quic\n"));
    }
}
