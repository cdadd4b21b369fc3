//! Charts for the terminal: lines over time in braille dots, bars over names in blocks.

use super::{Chart, Series, extent};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use ebbtide_ttl::Timestamp;
use std::fmt::Write as _;

/// How a chart is drawn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) colour: bool,
}

const COLOURS: [&str; 6] = ["36", "33", "35", "32", "34", "31"];
const MARKS: [char; 6] = ['*', 'o', '+', 'x', '#', '@'];

/// Draws a result in characters.
pub(crate) fn draw(schema: &SchemaRef, batches: &[RecordBatch], style: Style) -> Result<String, String> {
    Ok(match Chart::of(schema, batches)? {
        Chart::Lines { series, is_time, .. } => plot(&series, is_time, style),
        Chart::Bars { columns, bars } => in_blocks(&bars, &columns, style),
    })
}

fn plot(series: &[Series], is_time: bool, style: Style) -> String {
    let all = || series.iter().flat_map(|s| &s.points);
    let (x_min, x_max) = extent(all().map(|p| p.0));
    let (mut y_min, mut y_max) = extent(all().map(|p| p.1));
    if (y_max - y_min).abs() < f64::EPSILON {
        (y_min, y_max) = (y_min - 1.0, y_max + 1.0);
    }
    let ticks = [y_max, f64::midpoint(y_min, y_max), y_min].map(short);
    let margin = ticks.iter().map(String::len).max().unwrap_or(1);
    let width = style.width.saturating_sub(margin + 3).max(20);
    let braille = style.colour || series.len() == 1;
    let mut canvas = Canvas::new(width, style.height, braille);
    for (number, one) in series.iter().enumerate() {
        let place = |p: &(f64, f64)| {
            let across = if x_max > x_min { (p.0 - x_min) / (x_max - x_min) } else { 0.5 };
            canvas.place(across, (p.1 - y_min) / (y_max - y_min))
        };
        let places: Vec<Option<(i64, i64)>> = one.points.iter().map(|p| p.1.is_finite().then(|| place(p))).collect();
        for (at, here) in places.iter().enumerate() {
            let Some(here) = *here else { continue };
            let from = at.checked_sub(1).and_then(|before| places[before]).unwrap_or(here);
            canvas.line(from, here, number);
        }
    }
    let mut text = String::new();
    for row in 0..style.height {
        let tick = match row {
            0 => &ticks[0],
            r if r == style.height / 2 => &ticks[1],
            r if r + 1 == style.height => &ticks[2],
            _ => "",
        };
        let _ = writeln!(text, "{tick:>margin$} \u{2524}{}", canvas.row(row, style.colour));
    }
    let _ = writeln!(text, "{:>margin$} \u{2514}{}", "", "\u{2500}".repeat(width));
    let (from, to) = (x_text(x_min, is_time), x_text(x_max, is_time));
    let gap = width.saturating_sub(from.len() + to.len());
    let _ = writeln!(text, "{:>margin$}  {from}{}{to}", "", " ".repeat(gap));
    if series.len() > 1 {
        let keys: Vec<String> = series
            .iter()
            .enumerate()
            .map(|(i, s)| match style.colour {
                true => format!("\x1b[{}m\u{2501}\u{2501}\x1b[0m {}", COLOURS[i % COLOURS.len()], s.name),
                false => format!("{} {}", MARKS[i % MARKS.len()], s.name),
            })
            .collect();
        let _ = writeln!(text, "{:>margin$}  {}", "", keys.join("   "));
    }
    text
}

fn x_text(x: f64, is_time: bool) -> String {
    if !is_time {
        return short(x);
    }
    #[expect(clippy::cast_possible_truncation, reason = "it was whole milliseconds of an i64 before")]
    let time = Timestamp::from_millis(x as i64).to_string();
    time.strip_suffix("T00:00:00Z").map_or_else(|| time.replace('T', " ").replace(":00Z", "Z"), str::to_owned)
}

/// A number in a few characters.
fn short(value: f64) -> String {
    let text = match value.abs() {
        a if a >= 1e6 || (a > 0.0 && a < 1e-3) => format!("{value:.2e}"),
        a if a >= 1000.0 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    };
    if text.contains('.') && !text.contains('e') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Dots of several series: braille dots, or one mark per cell where series can only be distinguished by marks.
struct Canvas {
    width: usize,
    height: usize,
    braille: bool,
    cells: Vec<(u8, Option<usize>)>,
}

impl Canvas {
    fn new(width: usize, height: usize, braille: bool) -> Self {
        Canvas { width, height, braille, cells: vec![(0, None); width * height] }
    }

    fn size(&self) -> (usize, usize) {
        if self.braille { (self.width * 2, self.height * 4) } else { (self.width, self.height) }
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "fractions of a screen")]
    fn place(&self, across: f64, up: f64) -> (i64, i64) {
        let (width, height) = self.size();
        ((across * (width - 1) as f64).round() as i64, ((1.0 - up) * (height - 1) as f64).round() as i64)
    }

    fn line(&mut self, from: (i64, i64), to: (i64, i64), series: usize) {
        let steps = (to.0 - from.0).abs().max((to.1 - from.1).abs()).max(1);
        for step in 0..=steps {
            let x = from.0 + (to.0 - from.0) * step / steps;
            let y = from.1 + (to.1 - from.1) * step / steps;
            if let (Ok(x), Ok(y)) = (usize::try_from(x), usize::try_from(y)) {
                self.dot(x, y, series);
            }
        }
    }

    fn dot(&mut self, x: usize, y: usize, series: usize) {
        const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
        let (column, row) = if self.braille { (x / 2, y / 4) } else { (x, y) };
        if let Some(cell) = self.cells.get_mut(row * self.width + column) {
            if self.braille {
                cell.0 |= BITS[y % 4][x % 2];
            }
            cell.1 = Some(series);
        }
    }

    fn row(&self, row: usize, colour: bool) -> String {
        let mut text = String::new();
        for (dots, series) in &self.cells[row * self.width..(row + 1) * self.width] {
            let Some(series) = series else {
                text.push(' ');
                continue;
            };
            let mark = match self.braille {
                true => char::from_u32(0x2800 + u32::from(*dots)).unwrap_or('.'),
                false => MARKS[series % MARKS.len()],
            };
            if colour {
                let _ = write!(text, "\x1b[{}m{mark}\x1b[0m", COLOURS[series % COLOURS.len()]);
            } else {
                text.push(mark);
            }
        }
        text.trim_end().to_owned()
    }
}

/// Horizontal bars: for one column below its name, for several columns each in its own colour or shade.
fn in_blocks(all: &[(String, Vec<f64>)], columns: &[String], style: Style) -> String {
    const LINES_MAX: usize = 60;
    let labels = &all[..all.len().min((LINES_MAX / columns.len().max(1)).max(1))];
    let margin = labels.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(1).min(30);
    let values = || labels.iter().flat_map(|(_, values)| values).filter(|v| v.is_finite());
    let widest = values().map(|v| short(*v).len()).max().unwrap_or(1);
    let room = style.width.saturating_sub(margin + widest + 4).max(10);
    // Bars of negative numbers go to the left of the line, those of others to the right.
    let (least, greatest) = values().fold((0.0_f64, 0.0_f64), |(least, most), v| (least.min(*v), most.max(*v)));
    let most = greatest - least;
    let left = bar(-least / most, room, false).chars().count();
    let mut text = match columns {
        [one] => format!("{one}\n"),
        several => {
            let key = |(i, name): (usize, &String)| format!("{} {name}", painted("\u{2588}\u{2588}", i, style, true));
            format!("{}\n", several.iter().enumerate().map(key).collect::<Vec<_>>().join("   "))
        }
    };
    for (name, values) in labels {
        let mut name: String = name.chars().take(30).collect();
        for (column, value) in values.iter().enumerate() {
            let (bar, number) = match value.is_finite() {
                true => {
                    let is_fine = *value >= 0.0 && (columns.len() == 1 || style.colour);
                    (bar(value.abs() / most, room, is_fine), short(*value))
                }
                false => (String::new(), "NULL".to_owned()),
            };
            let gap = " ".repeat(if *value < 0.0 { left.saturating_sub(bar.chars().count()) } else { left });
            let bar = painted(&bar, column, style, columns.len() > 1);
            let _ = match *value < 0.0 {
                true => writeln!(text, "{name:>margin$} {gap}{bar}\u{2502} {number}"),
                false => writeln!(text, "{name:>margin$} {gap}\u{2502}{bar} {number}"),
            };
            name.clear();
        }
    }
    if all.len() > labels.len() {
        let _ = writeln!(text, "{:>margin$}  ({} more)", "", all.len() - labels.len());
    }
    text
}

/// A bar as long as a part of the room; in eighths of a cell, or in whole cells where shades distinguish the bars.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "widths")]
fn bar(part: f64, room: usize, fine: bool) -> String {
    if !part.is_finite() {
        return String::new(); // All values are zero.
    }
    if !fine {
        return "\u{2588}".repeat((part * room as f64).round() as usize);
    }
    let eighths = (part * room as f64 * 8.0).round() as usize;
    let rest = ["", "\u{258f}", "\u{258e}", "\u{258d}", "\u{258c}", "\u{258b}", "\u{258a}", "\u{2589}"][eighths % 8];
    format!("{}{rest}", "\u{2588}".repeat(eighths / 8))
}

/// A bar in the colour of its column; without colours and with several columns, in a shade.
fn painted(bar: &str, column: usize, style: Style, several: bool) -> String {
    const SHADES: [char; 4] = ['\u{2588}', '\u{2592}', '\u{2593}', '\u{2591}'];
    match (style.colour, several) {
        (true, _) => format!("\x1b[{}m{bar}\x1b[0m", COLOURS[column % COLOURS.len()]),
        (false, true) => bar.chars().map(|_| SHADES[column % SHADES.len()]).collect(),
        (false, false) => bar.to_owned(),
    }
}
