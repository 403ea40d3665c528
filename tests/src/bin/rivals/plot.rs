//! The plot of the races on one path: a panel for each input, a bar for each tool.

use std::path::Path;

use plotters::{
    coord::Shift,
    prelude::{
        BLACK, DrawingArea, IntoDrawingArea, IntoTextStyle, RGBColor, Rectangle, SVGBackend, Text, WHITE,
    },
    style::Color,
};

use crate::report::Race;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws the plot into a file.
///
/// # Panics
/// If it cannot be written.
pub(crate) fn draw(file: &Path, path_name: &str, races: &[Race]) {
    let height: i32 = HEAD + races.iter().map(panel_height).sum::<i32>();
    let root = SVGBackend::new(file, (WIDTH as u32, height as u32)).into_drawing_area();
    let drawn = (|| {
        root.fill(&WHITE)?;
        text(&root, &format!("Path {path_name}: MiB/s of the input, median of the rounds"), (8, 8), 18)?;
        let mut top = HEAD;
        for race in races {
            panel(&root, race, top)?;
            top += panel_height(race);
        }
        root.present()
    })();
    drawn.expect("the plot");
}

type Drawn = Result<(), plotters::drawing::DrawingAreaErrorKind<std::io::Error>>;

fn panel(root: &Area<'_>, race: &Race, top: i32) -> Drawn {
    text(root, &race.title(), (8, top + 6), 15)?;
    let rates = race.rates();
    let most = rates.iter().map(|(_, rate)| *rate).fold(1.0, f64::max);
    for (index, (tool, rate)) in rates.iter().enumerate() {
        let y = top + TITLE + BAR * index as i32;
        let length = (rate / most * f64::from(WIDTH - NAMES - FIGURE)) as i32;
        let color = if tool.starts_with("dsync") { OURS } else { THEIRS };
        root.draw(&Rectangle::new([(NAMES, y + 2), (NAMES + length.max(1), y + BAR - 2)], color.filled()))?;
        text(root, tool, (20, y + 2), 12)?;
        text(root, &format!("{rate:.0}"), (NAMES + length + 6, y + 2), 12)?;
    }
    Ok(())
}

fn panel_height(race: &Race) -> i32 {
    TITLE + BAR * race.rates().len() as i32 + 10
}

fn text(root: &Area<'_>, text: &str, at: (i32, i32), size: i32) -> Drawn {
    root.draw(&Text::new(text.to_owned(), at, ("sans-serif", size).into_text_style(root).color(&BLACK)))
}

/// Pixels: the whole width, the columns of names and of figures, the heights of head, panel title
/// and bar.
const WIDTH: i32 = 900;
const NAMES: i32 = 180;
const FIGURE: i32 = 60;
const HEAD: i32 = 36;
const TITLE: i32 = 28;
const BAR: i32 = 18;
const OURS: RGBColor = RGBColor(0x1f, 0x6f, 0xb4);
const THEIRS: RGBColor = RGBColor(0xa0, 0xa8, 0xb0);
