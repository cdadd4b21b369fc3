//! The layout of a chart: shapes with positions, drawn in the same way by SVG and PNG.

use super::ticks::{self, Tick};
use super::{Chart, Series, extent};

/// Red, green and blue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Colour(pub(super) u8, pub(super) u8, pub(super) u8);

#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A shape; y grows downwards, and the y of a text is its baseline.
pub(super) enum Shape {
    Line { points: Vec<(f64, f64)>, colour: Colour, width: f64, dashed: bool },
    Rect { x: f64, y: f64, width: f64, height: f64, colour: Colour },
    Dot { x: f64, y: f64, radius: f64, colour: Colour },
    Text { x: f64, y: f64, anchor: Anchor, bold: bool, colour: Colour, text: String },
}

/// A chart that has been laid out.
pub(super) struct Picture {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) title: String,
    pub(super) shapes: Vec<Shape>,
}

/// Okabe and Ito's colours, which colour-blind people can distinguish. Neighbours also differ in lightness, for
/// greyscale prints.
const COLOURS: [Colour; 7] = [
    Colour(0, 114, 178),
    Colour(230, 159, 0),
    Colour(0, 158, 115),
    Colour(213, 94, 0),
    Colour(86, 180, 233),
    Colour(204, 121, 167),
    Colour(70, 70, 70),
];
const INK: Colour = Colour(34, 34, 34);
const SOFT: Colour = Colour(96, 96, 96);
const GRID: Colour = Colour(226, 226, 226);

const WIDTH: f64 = 960.0;
const LINES_HEIGHT: f64 = 540.0;
/// Approximate width of a letter.
const LETTER: f64 = 7.0;
const LINE: f64 = 17.0;
const MARGIN: f64 = 18.0;
/// Maximum letters of a name in a legend or next to a bar.
const NAME_MAX: usize = 28;
/// Maximum number of lines: more cannot be distinguished.
const SERIES_MAX: usize = 24;
const BARS_MAX: usize = 60;
/// Lines with up to this many points get a dot at each point.
const DOTS_MAX: usize = 60;

/// Lays out a chart below a title.
pub(super) fn lay_out(chart: &Chart, title: &str) -> Picture {
    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut page = Page { shapes: Vec::new(), top: MARGIN };
    page.title(&title);
    let height = match chart {
        Chart::Lines { series, is_time, x_name, y_name } => page.lines(series, *is_time, x_name, y_name),
        Chart::Bars { columns, bars } => page.bars(columns, bars),
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some hundred to some thousand")]
    Picture { width: WIDTH as u32, height: height.ceil() as u32, title, shapes: page.shapes }
}

struct Page {
    shapes: Vec<Shape>,
    /// Top of the free space.
    top: f64,
}

impl Page {
    fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, colour: Colour, text: impl Into<String>) {
        self.shapes.push(Shape::Text { x, y, anchor, bold: false, colour, text: text.into() });
    }

    fn line(&mut self, points: Vec<(f64, f64)>, colour: Colour, width: f64) {
        self.shapes.push(Shape::Line { points, colour, width, dashed: false });
    }

    /// Up to three lines of the title.
    fn title(&mut self, title: &str) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "letters in a line")]
        let room = ((WIDTH - 2.0 * MARGIN) / LETTER) as usize;
        let mut lines: Vec<String> = Vec::new();
        for word in title.split(' ').filter(|w| !w.is_empty()) {
            match lines.last_mut() {
                Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                    line.push(' ');
                    line.push_str(word);
                }
                _ => lines.push(cut(word, room)),
            }
        }
        if lines.len() > 3 {
            lines.truncate(3);
            lines[2] = lines[2].chars().take(room - 4).chain(" ...".chars()).collect();
        }
        for text in lines {
            self.top += LINE;
            let y = self.top - 4.0;
            self.shapes.push(Shape::Text { x: MARGIN, y, anchor: Anchor::Start, bold: true, colour: INK, text });
        }
        self.top += 10.0;
    }

    #[expect(clippy::cast_precision_loss, reason = "numbers of letters and series")]
    fn lines(&mut self, all: &[Series], is_time: bool, x_name: &str, y_name: &str) -> f64 {
        let series = &all[..all.len().min(SERIES_MAX)];
        let points = || series.iter().flat_map(|s| &s.points);
        let (mut x_low, mut x_high) = extent(points().filter(|p| p.1.is_finite()).map(|p| p.0));
        if x_low >= x_high {
            let some = if is_time { 1_800_000.0 } else { 1.0 };
            (x_low, x_high) = (x_low - some, x_high + some);
        }
        let (mut y_low, mut y_high) = extent(points().map(|p| p.1));
        if y_low >= 0.0 && y_low <= 0.25 * y_high {
            y_low = 0.0;
        }
        if y_low >= y_high {
            let some = (y_low.abs() * 0.1).max(1.0);
            (y_low, y_high) = (y_low - some, y_high + some);
        }
        let marks = ticks::values(y_low, y_high, 6);
        if let (Some(first), Some(last)) = (marks.first(), marks.last()) {
            (y_low, y_high) = (first.at.min(y_low), last.at.max(y_high));
        }

        let letters = marks.iter().map(|t| t.label.chars().count()).max().unwrap_or(1);
        let legend = series.iter().map(|s| s.name.chars().count()).max().unwrap_or(0).min(NAME_MAX);
        let legend = if all.len() > 1 { 44.0 + legend as f64 * LETTER } else { 0.0 };
        let (left, right) = (MARGIN + 8.0 + letters as f64 * LETTER, WIDTH - MARGIN - legend - 10.0);
        self.text((MARGIN, self.top + 10.0), Anchor::Start, SOFT, cut(y_name, 100));
        let top = self.top + 24.0;
        let height = LINES_HEIGHT.max(top + series.len() as f64 * LINE + 90.0);
        let bottom = height - 60.0;
        let place = |(x, y): (f64, f64)| {
            let across = (x - x_low) / (x_high - x_low);
            // Halved first: the difference of the largest doubles overflows.
            let up = (y / 2.0 - y_low / 2.0) / (y_high / 2.0 - y_low / 2.0);
            (left + across * (right - left), bottom - up * (bottom - top))
        };
        for mark in &marks {
            let y = place((x_low, mark.at)).1;
            self.line(vec![(left, y), (right, y)], GRID, 1.0);
            self.text((left - 8.0, y + 4.0), Anchor::End, SOFT, mark.label.clone());
        }
        let across = if is_time { ticks::times(x_low, x_high, 12) } else { ticks::values(x_low, x_high, 8) };
        for mark in across.iter().filter(|m| m.at >= x_low && m.at <= x_high) {
            self.across(mark, place((mark.at, y_low)).0, (top, bottom));
        }
        self.line(vec![(left, bottom), (right, bottom)], SOFT, 1.0);
        let name = if is_time { format!("{x_name} (UTC)") } else { x_name.to_owned() };
        self.text((right, bottom + 2.0 * LINE + 16.0), Anchor::End, SOFT, cut(&name, 60));

        for (number, one) in series.iter().enumerate() {
            let (colour, dashed) = look(number);
            self.series(one, &place, colour, dashed);
            if all.len() > 1 {
                let (x, y) = (right + 24.0, top + 8.0 + number as f64 * LINE);
                let points = vec![(x, y - 4.0), (x + 22.0, y - 4.0)];
                self.shapes.push(Shape::Line { points, colour, width: 2.5, dashed });
                self.text((x + 30.0, y), Anchor::Start, INK, cut(&one.name, NAME_MAX));
            }
        }
        if all.len() > series.len() {
            let text = format!("{} more", all.len() - series.len());
            self.text((right + 54.0, top + 8.0 + series.len() as f64 * LINE), Anchor::Start, SOFT, text);
        }
        height
    }

    fn across(&mut self, mark: &Tick, x: f64, (top, bottom): (f64, f64)) {
        self.line(vec![(x, top), (x, bottom)], GRID, 1.0);
        self.line(vec![(x, bottom), (x, bottom + 5.0)], SOFT, 1.0);
        self.text((x, bottom + LINE + 2.0), Anchor::Middle, SOFT, mark.label.clone());
        if let Some(below) = &mark.below {
            self.text((x, bottom + 2.0 * LINE + 1.0), Anchor::Middle, SOFT, below.clone());
        }
    }

    /// A line that is interrupted where values are missing, with dots if there are few points or a point has no
    /// neighbours.
    fn series(&mut self, one: &Series, place: &dyn Fn((f64, f64)) -> (f64, f64), colour: Colour, dashed: bool) {
        let few = one.points.len() <= DOTS_MAX;
        for run in one.points.split(|p| !p.1.is_finite()).filter(|run| !run.is_empty()) {
            let places = thinned(run.iter().map(|p| place(*p)));
            if few || places.len() == 1 {
                let radius = if places.len() == 1 { 3.0 } else { 2.5 };
                self.shapes.extend(places.iter().map(|(x, y)| Shape::Dot { x: *x, y: *y, radius, colour }));
            }
            if places.len() > 1 {
                self.shapes.push(Shape::Line { points: places, colour, width: 1.8, dashed });
            }
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "numbers of letters and bars")]
    fn bars(&mut self, columns: &[String], all: &[(String, Vec<f64>)]) -> f64 {
        let several = columns.len() > 1;
        let thick = if several { 13.0 } else { 18.0 };
        let step = 8.0 + thick * columns.len() as f64;
        let bars = &all[..all.len().min((BARS_MAX / columns.len()).max(1))];
        if several {
            self.top += LINE;
            let mut x = MARGIN;
            for (number, name) in columns.iter().enumerate() {
                let (name, y) = (cut(name, NAME_MAX), self.top - 4.0);
                let colour = look(number).0;
                self.shapes.push(Shape::Rect { x, y: y - 10.0, width: 12.0, height: 12.0, colour });
                let wide = 44.0 + name.chars().count() as f64 * LETTER;
                self.text((x + 18.0, y), Anchor::Start, INK, name);
                x += wide;
            }
        }
        let (low, high) = extent(bars.iter().flat_map(|(_, values)| values.iter().copied()));
        let (mut low, mut high) = (low.min(0.0), high.max(0.0));
        if low >= high {
            high = 1.0;
        }
        let marks = ticks::values(low, high, 6);
        if let (Some(first), Some(last)) = (marks.first(), marks.last()) {
            (low, high) = (first.at.min(low), last.at.max(high));
        }
        let letters = bars.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(1).min(NAME_MAX);
        let (left, right) = (MARGIN + 10.0 + letters as f64 * LETTER, WIDTH - MARGIN - 80.0);
        let (top, bottom) = (self.top + 6.0, self.top + 6.0 + bars.len() as f64 * step + 6.0);
        let place = |value: f64| left + (value / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0) * (right - left);
        for mark in &marks {
            let x = place(mark.at);
            self.line(vec![(x, top), (x, bottom)], GRID, 1.0);
            self.text((x, bottom + LINE), Anchor::Middle, SOFT, mark.label.clone());
        }
        let zero = place(0.0);
        let digits = 10f64.powf((high.abs().max(low.abs())).log10().floor() - 2.0).min(1.0);
        for (number, (label, values)) in bars.iter().enumerate() {
            let y = top + 6.0 + number as f64 * step;
            self.text((left - 10.0, y + (step - 8.0) / 2.0 + 4.0), Anchor::End, INK, cut(label, NAME_MAX));
            for (column, value) in values.iter().enumerate().filter(|(_, v)| v.is_finite()) {
                let (y, end) = (y + column as f64 * thick, place(*value));
                let (x, width) = (zero.min(end), (end - zero).abs());
                let (colour, height) = (look(column).0, thick - if several { 1.0 } else { 0.0 });
                self.shapes.push(Shape::Rect { x, y, width, height, colour });
                let middle = y + thick / 2.0 + 4.0;
                self.text((zero.max(end) + 6.0, middle), Anchor::Start, SOFT, ticks::shortest(*value, digits));
            }
        }
        self.line(vec![(zero, top), (zero, bottom)], SOFT, 1.0);
        let name = if several { "" } else { &columns[0] };
        let more = match all.len() - bars.len() {
            0 => name.to_owned(),
            more => format!("{name} ({more} more)"),
        };
        self.text((right, bottom + 2.0 * LINE + 2.0), Anchor::End, SOFT, cut(&more, 60));
        bottom + 2.0 * LINE + 18.0
    }
}

/// The colour of a series, and whether its line is dashed, which it is when colours repeat.
fn look(number: usize) -> (Colour, bool) {
    (COLOURS[number % COLOURS.len()], (number / COLOURS.len()) % 2 == 1)
}

/// Keeps the first, lowest, highest and last of the points within one unit of x: more would not be visible.
fn thinned(places: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut out: Vec<(f64, f64)> = Vec::new();
    // Index in `out` of the current unit's first point; a unit has at most four points.
    let mut begin = 0;
    for place in places {
        if out.get(begin).is_none_or(|first| first.0.floor() < place.0.floor()) {
            begin = out.len();
        }
        out.push(place);
        if out.len() - begin > 4 {
            let unit = &out[begin..];
            let least = unit.iter().copied().reduce(|a, b| if b.1 < a.1 { b } else { a }).unwrap_or(place);
            let most = unit.iter().copied().reduce(|a, b| if b.1 > a.1 { b } else { a }).unwrap_or(place);
            let first = unit[0];
            out.truncate(begin);
            let middle = if least.0 <= most.0 { [least, most] } else { [most, least] };
            out.extend([first, middle[0], middle[1], place]);
        }
    }
    out
}

/// Cuts a text to a maximum number of letters.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(3)).chain("...".chars()).collect()
}
