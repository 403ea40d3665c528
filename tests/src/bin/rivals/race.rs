//! The picture of the README: a few tools on a few inputs, drawn from the full tables of a page.
//!
//! It is drawn from the written tables, not from new measurements, so that picture and page cannot
//! differ. A test compares the stored picture with the page. The SVG has its own background and
//! follows the reader's colour scheme.

use std::fmt::Write;

/// The tools of the picture, by their names in the tables and for readers. All of them encrypt the
/// data.
const TOOLS: [(&str, &str); 6] = [
    ("dsync-auto", "dsync"),
    ("qcp", "qcp"),
    ("rsync-ssh-aes128gcm", "rsync, ssh AES-128-GCM"),
    ("rsync-ssh", "rsync, ssh default"),
    ("scp", "scp"),
    ("tar-zstd-ssh", "tar | zstd | ssh"),
];

/// The inputs of the picture: the beginnings of their tables, and their titles.
const PANELS: [(&str, &str); 3] = [
    ("first copy of one incompressible file", "First copy of one file"),
    ("first copy of files of 1 MiB", "First copy of files of 1 MiB"),
    ("one file, 1 % of its", "Update of one file, 1 % changed"),
];

/// One bar: the tool's name for readers, median, best and worst seconds.
type Bar = (&'static str, f64, f64, f64);

/// Returns the picture of the section of `path` in `page`, or `None` where a table is missing.
pub(crate) fn drawn(page: &str, path: &str) -> Option<String> {
    let section = page.split(&format!("<!-- rivals {path} -->")).nth(1)?;
    let section = section.split(&format!("<!-- end of rivals {path} -->")).next()?;
    let panels: Vec<(String, Vec<Bar>)> =
        PANELS.iter().map(|panel| read(section, *panel)).collect::<Option<_>>()?;
    let notes = notes(section);
    let height =
        HEAD + panels.iter().map(|(_, bars)| height_of(bars)).sum::<i32>() + LINE * notes.len() as i32 + 10;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\">\n<title>Seconds that dsync and others take; shorter is better</title>\n\
         <style>{STYLE}</style>\n<rect class=\"ground\" x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n\
         <text class=\"head\" x=\"{LEFT}\" y=\"30\">Seconds, shorter is better; lines go from the best round to the worst</text>\n",
        WIDTH - 1,
        height - 1,
    );
    let mut top = HEAD;
    for (title, bars) in &panels {
        panel(&mut svg, title, bars, top);
        top += height_of(bars);
    }
    for (index, note) in notes.iter().enumerate() {
        let y = top + 4 + LINE * index as i32;
        let _ = writeln!(svg, "<text class=\"note\" x=\"{LEFT}\" y=\"{y}\">{}</text>", escaped(note));
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

/// Returns a panel's title with the input's size, and its bars, the shortest first.
fn read(section: &str, (begin, title): (&str, &str)) -> Option<(String, Vec<Bar>)> {
    let table = section.split("\n### ").find(|table| table.starts_with(begin))?;
    let size = table.lines().next()?.rsplit('(').next()?.trim_end_matches(')');
    let mut bars: Vec<Bar> = TOOLS.iter().filter_map(|tool| bar(table, *tool)).collect();
    bars.sort_by(|one, other| one.1.total_cmp(&other.1));
    Some((format!("{title}, {size}"), bars))
}

/// Returns a tool's bar, if its row has figures.
fn bar(table: &str, (tool, name): (&str, &'static str)) -> Option<Bar> {
    let row = table.lines().find(|line| line.starts_with(&format!("| {tool} |")))?;
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    let (best, worst) = cells.get(4)?.split_once('-')?;
    Some((name, cells.get(2)?.parse().ok()?, best.parse().ok()?, worst.parse().ok()?))
}

/// Returns the setting of the measurements in two lines, in the section's own words.
fn notes(section: &str) -> Vec<String> {
    let words = |key: &str| {
        let line = section.lines().find_map(|line| line.strip_prefix(key)).unwrap_or("?");
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let version = |key: &str| words(key).split("protocol").next().unwrap_or_default().trim().to_owned();
    let ssh = words("ssh:");
    vec![
        format!("{}; {}; {}", words("date:"), words("path:"), words("machine:")),
        format!(
            "{}; {}; median of {}",
            version("rsync:"),
            ssh.split(' ').next().unwrap_or_default(),
            words("rounds:")
        ),
    ]
}

fn panel(svg: &mut String, title: &str, bars: &[Bar], top: i32) {
    let longest = bars.iter().map(|bar| bar.3).fold(0.01, f64::max);
    let along = |seconds: f64| seconds / longest * f64::from(WIDTH - NAMES - FIGURE);
    let _ = writeln!(svg, "<text class=\"title\" x=\"{LEFT}\" y=\"{}\">{}</text>", top + 14, escaped(title));
    for (index, (name, median, best, worst)) in bars.iter().enumerate() {
        let y = top + TITLE + BAR * index as i32;
        let class = if *name == "dsync" { "ours" } else { "theirs" };
        let (text, middle, base) = (y + 13, y + BAR / 2 - 1, f64::from(NAMES));
        let _ = writeln!(
            svg,
            "<text class=\"{class}-name\" x=\"{}\" y=\"{text}\" text-anchor=\"end\">{}</text>\
             <rect class=\"{class}\" x=\"{NAMES}\" y=\"{}\" width=\"{:.1}\" height=\"{}\" rx=\"2\"/>\
             <path class=\"range\" d=\"M{:.1} {middle}H{:.1}\"/>\
             <text x=\"{:.1}\" y=\"{text}\">{median:.2}</text>",
            NAMES - 10,
            escaped(name),
            y + 1,
            along(*median),
            BAR - 4,
            base + along(*best),
            base + along(*worst),
            base + along(*worst) + 8.0,
        );
    }
}

fn height_of(bars: &[Bar]) -> i32 {
    TITLE + BAR * bars.len() as i32 + 16
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// Pixels: the whole width, the margin, the columns of names and figures, and the heights of head,
/// title, bar and note.
const WIDTH: i32 = 760;
const LEFT: i32 = 24;
const NAMES: i32 = 220;
const FIGURE: i32 = 70;
const HEAD: i32 = 50;
const TITLE: i32 = 24;
const BAR: i32 = 20;
const LINE: i32 = 16;
pub(crate) const STYLE: &str = "text{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1f2328}\
    .head{font-size:16px;font-weight:600}.title,.ours-name{font-weight:600}.note{font-size:11px;fill:#59636e}\
    .ground{fill:#ffffff;stroke:#d1d9e0}.ours{fill:#0969da}.theirs{fill:#afb8c1}\
    .range{stroke:#1f2328;stroke-width:1.5}\
    @media(prefers-color-scheme:dark){text{fill:#f0f6fc}.note{fill:#9198a1}.ground{fill:#0d1117;stroke:#3d444d}\
    .ours{fill:#58a6ff}.theirs{fill:#565e67}.range{stroke:#f0f6fc}}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picture_of_the_readme_is_that_of_the_page() {
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs");
        let page = std::fs::read_to_string(format!("{docs}/notebook/rivals.md")).unwrap();
        let kept = std::fs::read_to_string(format!("{docs}/race.svg")).unwrap();
        assert!(Some(kept) == drawn(&page, "lo"), "docs/race.svg is out of date: cargo xtask rivals --draw");
    }

    #[test]
    fn what_failed_has_no_bar_and_a_missing_table_no_picture() {
        let table = "x\n| scp | 1.21 | 211 | 1.21-1.22 | 0.71 |\n| qcp | failed | | | |\n";
        assert_eq!(bar(table, ("scp", "scp")), Some(("scp", 1.21, 1.21, 1.22)));
        assert_eq!(bar(table, ("qcp", "qcp")), None);
        assert_eq!(drawn("<!-- rivals lo --><!-- end of rivals lo -->", "lo"), None);
    }
}
