//! The one table of `docs/performance.md`, and its picture.
//!
//! The table is the record: a row that is measured again replaces its line, and the picture is drawn
//! from the written lines, so that picture and page cannot differ. A test compares them.

use std::{fmt::Write, fs, path::PathBuf};

use dsync_tests::Run;

use crate::{
    figures::Cells,
    machine_and_programs,
    race::{STYLE, escaped},
    report::replaced,
    requirements::{ALL, Faster, Requirement, What},
};

/// The head of the table.
pub(crate) const HEAD: &str = "| row | what | where | dsync s (range) | best rival s | times as fast | bar | CPU s, dsync : rival (bar) | of the limit | day, rounds |\n\
    |---|---|---|---|---|--:|---|---|---|---|";

/// The columns that the picture shows.
const RATIO: usize = 6;
const BAR: usize = 7;
const LIMIT: usize = 9;

/// Returns the line of a row.
pub(crate) fn line(row: &Requirement, cells: &Cells, day: &str) -> String {
    format!(
        "| {} | {} | {} | {} | {} | {} | {}{} | {} | {} | {day} |",
        row.name,
        what(row),
        row.place.text(),
        cells.ours,
        dash(&cells.best),
        dash(&cells.ratio),
        row.bar.text(),
        verdict(cells.holds),
        dash(&cells.cpu),
        dash(&cells.limit),
    )
}

/// Returns the words for a row or a bar that does not hold.
pub(crate) fn verdict(holds: bool) -> &'static str {
    if holds { "" } else { ": **missed**" }
}

fn dash(cell: &str) -> &str {
    if cell.is_empty() { "-" } else { cell }
}

fn what(row: &Requirement) -> String {
    match row.what {
        What::Faster(Faster { input, mib: 0, ours, .. }) => format!("{}, {ours}", input.describe()),
        What::Faster(Faster { input, mib, ours, .. }) => {
            format!("{}, {} MiB, {ours}", input.describe(), input.mebibytes(mib))
        }
        What::RunShare { mib } => format!("{mib} MiB, login included, share of the rate"),
        What::LateShare { mib } => format!("{mib} MiB, share of the rate in the second half"),
        What::Pump => "memory to memory over QUIC, six seconds with the start, Mbit/s".into(),
        What::Sharing { transport, seconds, ours_first } => {
            let order = if ours_first { "first" } else { "second" };
            format!(
                "beside one TCP CUBIC flow, {transport}, {seconds} s, dsync {order}: the smaller share, %"
            )
        }
        What::BandwidthLimit { mib_per_second, .. } => {
            format!("`--bwlimit` of {mib_per_second} MiB/s: deviation, %")
        }
    }
}

/// Returns the day, as the table writes it.
pub(crate) fn today() -> String {
    Run::of("date").arg("+%F").run().stdout_text().trim().to_owned()
}

/// Puts these lines in the table, in place of those of the same rows, with the machine and the programs
/// below, and draws the picture.
///
/// # Panics
/// If a page cannot be written.
pub(crate) fn write(lines: &[String]) {
    let file = docs().join("performance.md");
    let page = fs::read_to_string(&file).expect("docs/performance.md");
    let page = with(&page, lines, &machine_and_programs());
    fs::write(docs().join("figures.svg"), drawn(&page)).expect("docs/figures.svg");
    fs::write(file, page).expect("docs/performance.md");
}

fn docs() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs"))
}

/// Returns the page with these lines in its table, and what they were measured with.
fn with(page: &str, lines: &[String], measured_with: &[String]) -> String {
    let kept: Vec<String> = rows(page).map(str::to_owned).collect();
    let of = |lines: &[String], name: &str| lines.iter().find(|line| cell(line, 1) == name).cloned();
    let table = ALL.iter().filter_map(|row| of(lines, row.name).or_else(|| of(&kept, row.name)));
    let table = table.fold(format!("\n{HEAD}\n"), |text, line| text + &line + "\n");
    replaced(page, "figures", &format!("{table}\nThe last rows written: {}.\n", measured_with.join("; ")))
}

/// Returns the lines of the table's rows.
fn rows(page: &str) -> impl Iterator<Item = &str> {
    let section = page.split("<!-- rivals figures -->").nth(1).unwrap_or_default();
    let section = section.split("<!-- end of rivals figures -->").next().unwrap_or_default();
    section.lines().filter(|line| line.starts_with("| ")).skip(1)
}

fn cell(line: &str, column: usize) -> &str {
    line.split('|').nth(column).unwrap_or_default().trim()
}

/// Returns the first number of a cell.
fn number(line: &str, column: usize) -> Option<f64> {
    let text = cell(line, column).trim_start_matches([' ', '>', '<', '=']);
    text.split([' ', ':']).next()?.parse().ok()
}

/// Returns the picture: how many times as fast as the best rival each race is, on a scale where each
/// step doubles, with its bar; and beside it the share of the physical limit.
fn drawn(page: &str) -> String {
    let races: Vec<_> = rows(page)
        .filter_map(|line| {
            Some((cell(line, 1), number(line, RATIO)?, number(line, BAR)?, number(line, LIMIT)))
        })
        .collect();
    let height = TOP + LINE * races.len() as i32 + 12;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\">\n<title>dsync beside the best rival, and beside the physical limit</title>\n\
         <style>{STYLE}</style>\n<rect class=\"ground\" x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n\
         <text class=\"title\" x=\"{LEFT}\" y=\"24\">Times as fast as the best rival; the mark is the bar</text>\
         <text class=\"title\" x=\"{LIMITS}\" y=\"24\">Share of the limit</text>\n",
        WIDTH - 1,
        height - 1,
    );

    for power in -1..=5 {
        let (x, times) = (along(2_f64.powi(power)), 2_f64.powi(power));
        let _ = writeln!(
            svg,
            "<text class=\"note\" x=\"{x:.1}\" y=\"42\" text-anchor=\"middle\">{times}</text>\
             <path class=\"range\" opacity=\".15\" d=\"M{x:.1} 46V{}\"/>",
            height - 8
        );
    }
    for (index, (name, ratio, bar, limit)) in races.iter().enumerate() {
        draw_row(&mut svg, TOP + LINE * index as i32, name, (*ratio, *bar), *limit);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_row(svg: &mut String, top: i32, name: &str, (ratio, bar): (f64, f64), limit: Option<f64>) {
    let (from, to) = (along(1.0).min(along(ratio)), along(1.0).max(along(ratio)));
    let class = if ratio >= bar { "ours" } else { "theirs" };
    let text = top + 11;
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{text}\" text-anchor=\"end\">{}</text>\
         <rect class=\"{class}\" x=\"{from:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{}\" rx=\"2\"/>\
         <path class=\"range\" d=\"M{:.1} {}V{}\"/><text x=\"{:.1}\" y=\"{text}\">{ratio:.2}</text>",
        LEFT + NAMES - 8,
        escaped(name),
        (to - from).max(1.0),
        LINE - 6,
        along(bar),
        top - 2,
        top + LINE - 4,
        to.max(along(bar)) + 6.0,
    );

    if let Some(limit) = limit {
        let width = limit.min(1.5) * SHARE;
        let _ = writeln!(
            svg,
            "<rect class=\"ours\" x=\"{LIMITS}\" y=\"{top}\" width=\"{width:.1}\" height=\"{}\" rx=\"2\"/>\
             <text x=\"{:.1}\" y=\"{text}\">{limit:.2}</text>",
            LINE - 6,
            f64::from(LIMITS) + width + 6.0,
        );
    }
}

/// Returns where a number of times is on the scale.
fn along(times: f64) -> f64 {
    f64::from(LEFT + NAMES) + (times.log2() - FIRST_POWER).max(0.0) * DOUBLE
}

/// Pixels: the whole width, the margin, the column of names, where the limits begin, what a share of 1
/// takes there, what twice as fast takes, and the heights of the head and a row. The scale begins at a
/// quarter.
const WIDTH: i32 = 860;
const LEFT: i32 = 24;
const NAMES: i32 = 130;
const LIMITS: i32 = 690;
const SHARE: f64 = 80.0;
const DOUBLE: f64 = 66.0;
const FIRST_POWER: f64 = -2.0;
const TOP: i32 = 54;
const LINE: i32 = 18;

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> String {
        fs::read_to_string(docs().join("performance.md")).unwrap()
    }

    #[test]
    fn picture_of_the_table_is_that_of_the_page() {
        let kept = fs::read_to_string(docs().join("figures.svg")).unwrap();
        assert!(kept == drawn(&page()), "docs/figures.svg is out of date: cargo xtask figures --write NAME");
    }

    #[test]
    fn every_row_of_the_table_is_a_requirement_with_its_bar() {
        for line in rows(&page()) {
            let row = ALL.iter().find(|row| row.name == cell(line, 1));
            let row = row.unwrap_or_else(|| panic!("no requirement: {line}"));
            assert!(cell(line, BAR).starts_with(&row.bar.text()), "{line}");
        }
    }

    #[test]
    fn a_measured_row_replaces_its_line_and_leaves_the_others() {
        let cells = |ours: &str| Cells { ours: ours.into(), holds: true, ..Cells::default() };
        let made = |index: usize, ours: &str| line(&ALL[index], &cells(ours), "2026-11-30");
        let page = with("# Page\n", &[made(0, "1.00"), made(1, "2.00")], &["a machine".into()]);
        let again = with(&page, &[made(1, "3.00")], &["another".into()]);
        assert_eq!(rows(&again).collect::<Vec<_>>(), [made(0, "1.00"), made(1, "3.00")]);
        assert!(again.contains("another") && !again.contains("a machine"));
        assert_eq!(page, with(&page, &[], &["a machine".into()]));
    }
}
