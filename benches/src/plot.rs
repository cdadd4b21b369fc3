//! Lines on two logarithmic axes, as SVG.

/// A line of a plot.
#[derive(Debug, Clone)]
pub struct Line {
    /// Its name.
    pub name: &'static str,
    /// Its points, both coordinates above 0.
    pub points: Vec<(f64, f64)>,
}

const COLOURS: [&str; 5] = ["#0b6fa4", "#c2571a", "#3b8a3e", "#8a4fa3", "#7a6a00"];
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 220.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;

/// Draws lines under a title, with a grid line at each power of ten and the name of each line at its end.
#[must_use]
pub fn log_log(title: &str, x_name: &str, y_name: &str, lines: &[Line]) -> String {
    let decades = |of: fn(&(f64, f64)) -> f64| {
        let logs = || lines.iter().flat_map(|l| &l.points).map(|p| of(p).max(1e-6).log10());
        let least = logs().fold(f64::INFINITY, f64::min).floor();
        (least, logs().fold(f64::NEG_INFINITY, f64::max).ceil().max(least + 1.0))
    };
    let (x_axis, y_axis) = (decades(|p| p.0), decades(|p| p.1));
    let x = |log: f64| LEFT + (log - x_axis.0) / (x_axis.1 - x_axis.0) * (WIDTH - LEFT - RIGHT);
    let y = |log: f64| HEIGHT - BOTTOM - (log - y_axis.0) / (y_axis.1 - y_axis.0) * (HEIGHT - TOP - BOTTOM);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"16\">{title}</text>\n"
    );
    let mut put = |text: String| svg.extend([text.as_str(), "\n"]);
    let steps =
        |axis: (f64, f64)| std::iter::successors(Some(axis.0), |at| Some(at + 1.0)).take_while(move |at| *at <= axis.1);
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    for log in steps(x_axis) {
        let (at, label) = (x(log), number(log));
        put(format!("<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\" stroke=\"#ddd\"/>"));
        put(format!("<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>", bottom + 18.0));
    }
    for log in steps(y_axis) {
        let (at, label) = (y(log), number(log));
        put(format!("<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>"));
        put(format!("<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", LEFT - 8.0, at + 4.0));
    }
    put(format!(
        "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{x_name}</text>",
        f64::midpoint(LEFT, right),
        HEIGHT - 10.0
    ));
    put(format!("<text x=\"16\" y=\"{}\">{y_name}</text>", TOP - 8.0));
    // Names of lines that end close together are moved apart.
    let mut ends: Vec<(f64, &Line, &str)> = lines
        .iter()
        .zip(COLOURS.iter().cycle())
        .filter_map(|(line, colour)| Some((y(line.points.last()?.1.max(1e-6).log10()), line, *colour)))
        .collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free = TOP;
    for (end, line, colour) in ends {
        let points: Vec<String> =
            line.points.iter().map(|p| format!("{:.1},{:.1}", x(p.0.log10()), y(p.1.max(1e-6).log10()))).collect();
        put(format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            points.join(" ")
        ));
        let at = end.max(free);
        free = at + 16.0;
        put(format!("<text x=\"{}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>", right + 8.0, at + 4.0, line.name));
    }
    svg + "</svg>\n"
}

/// A power of ten in a readable form.
fn number(log: f64) -> String {
    match log {
        log if log >= 6.0 => format!("{} M", 10_f64.powf(log - 6.0)),
        log if log >= 3.0 => format!("{} k", 10_f64.powf(log - 3.0)),
        log => format!("{}", 10_f64.powf(log)),
    }
}
