//! The tables, on the terminal and in `docs/notebook/rivals.md`.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    input::Input,
    meter::{Measure, median},
    plot, race,
};

/// One input and the results of all tools.
pub(crate) struct Race {
    pub(crate) input: Input,
    pub(crate) bytes: u64,
    pub(crate) rows: Vec<Row>,
}

/// One tool's rounds, or the reason why there are none.
pub(crate) struct Row {
    pub(crate) tool: &'static str,
    pub(crate) result: Result<Vec<Measure>, String>,
}

impl Race {
    /// Returns the title of the race, with the input's size.
    pub(crate) fn title(&self) -> String {
        format!("{} ({:.0} MiB)", self.input.describe(), mib(self.bytes as f64))
    }

    /// Returns the MiB per second of the tools that finished, in the order of the race.
    pub(crate) fn rates(&self) -> Vec<(&'static str, f64)> {
        let rated = |row: &Row| {
            let measures = row.result.as_ref().ok()?;
            Some((row.tool, mib(self.bytes as f64) / of(measures, |measure| measure.wall.as_secs_f64())))
        };
        self.rows.iter().filter_map(rated).collect()
    }

    /// Returns the table with its title.
    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "\n### {}\n\n\
             | tool | median s | MiB/s | best-worst s | cpu here s | cpu there s | wire MiB | peak MiB here | there |\n\
             |---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
            self.title()
        );
        for row in &self.rows {
            let line = match &row.result {
                Ok(measures) => self.figures(measures),
                Err(why) => format!("{why} | | | | | | |"),
            };
            let _ = writeln!(text, "| {} | {line} |", row.tool);
        }
        text
    }

    fn figures(&self, all: &[Measure]) -> String {
        let wall = of(all, |measure| measure.wall.as_secs_f64());
        let walls = all.iter().map(|measure| measure.wall.as_secs_f64());
        let (best, worst) =
            walls.fold((f64::MAX, 0.0_f64), |(best, worst), wall| (best.min(wall), worst.max(wall)));
        format!(
            "{wall:.2} | {:.0} | {best:.2}-{worst:.2} | {:.2} | {:.2} | {:.1} | {:.0} | {:.0}",
            mib(self.bytes as f64) / wall,
            of(all, |measure| measure.cpu_here),
            of(all, |measure| measure.cpu_there),
            mib(of(all, |measure| measure.wire_bytes as f64)),
            mib(of(all, |measure| measure.peak_here as f64)),
            mib(of(all, |measure| measure.peak_there as f64)),
        )
    }
}

fn of(all: &[Measure], get: fn(&Measure) -> f64) -> f64 {
    median(all.iter().map(get).collect())
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

/// Replaces the races of one path, with their plot, in `docs/notebook/rivals.md`. Redraws the
/// README's picture.
///
/// # Panics
/// If the page cannot be written.
pub(crate) fn write(path_name: &str, setting: &str, races: &[Race]) {
    let notebook = docs().join("notebook");
    let plot = format!("rivals-{path_name}.svg");
    plot::draw(&notebook.join(&plot), path_name, races);
    let mut section =
        format!("\n## Rivals: {path_name}\n\n![MiB/s of each tool]({plot})\n\n```text\n{setting}\n```\n");
    races.iter().for_each(|race| section.push_str(&race.table()));
    let page = notebook.join("rivals.md");
    let text = fs::read_to_string(&page).expect("docs/notebook/rivals.md");
    fs::write(&page, replaced(&text, path_name, &section)).expect("docs/notebook/rivals.md");
    draw();
}

/// Draws the README's picture from the tables of the loopback, if they are complete.
///
/// # Panics
/// If the picture cannot be written.
pub(crate) fn draw() {
    let text = fs::read_to_string(docs().join("notebook/rivals.md")).expect("docs/notebook/rivals.md");
    match race::drawn(&text, "lo") {
        Some(picture) => fs::write(docs().join("race.svg"), picture).expect("docs/race.svg"),
        None => eprintln!("rivals: docs/race.svg stays: the page lacks a table that it shows"),
    }
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// Returns the page with the section between its marks replaced, or added at the end.
pub(crate) fn replaced(page: &str, name: &str, section: &str) -> String {
    let (begin, end) = (format!("<!-- rivals {name} -->"), format!("<!-- end of rivals {name} -->"));
    let section = format!("{begin}{section}{end}");
    match (page.find(&begin), page.find(&end)) {
        (Some(from), Some(to)) if from < to => {
            format!("{}{section}{}", &page[..from], &page[to + end.len()..])
        }
        _ => format!("{}\n\n{section}\n", page.trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_is_added_once_and_then_replaced() {
        let once = replaced("# Page\n", "lo", "\nold\n");
        assert_eq!(once, "# Page\n\n<!-- rivals lo -->\nold\n<!-- end of rivals lo -->\n");
        let other = replaced(&once, "wan", "\nfar\n");
        assert!(other.starts_with(once.trim_end()) && other.contains("far"));
        assert_eq!(replaced(&other, "lo", "\nnew\n"), other.replace("old", "new"));
    }
}
