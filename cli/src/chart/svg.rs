//! Pictures as SVG: text stays text, and lines stay sharp at every size.

use super::picture::{Anchor, Colour, Picture, Shape};
use std::fmt::Write as _;

/// Writes a picture.
pub(super) fn write(picture: &Picture) -> String {
    let (width, height) = (picture.width, picture.height);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"Helvetica, Arial, 'Liberation Sans', sans-serif\" font-size=\"12\">\n\
         <title>{}</title>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n",
        escaped(&picture.title)
    );
    for shape in &picture.shapes {
        let _ = match shape {
            Shape::Line { points, colour, width, dashed } => {
                let places: Vec<String> = points.iter().map(|(x, y)| format!("{},{}", short(*x), short(*y))).collect();
                let dash = if *dashed { " stroke-dasharray=\"6 4\"" } else { "" };
                writeln!(
                    text,
                    "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\" \
                     stroke-linejoin=\"round\" stroke-linecap=\"round\"{dash}/>",
                    places.join(" "),
                    hex(*colour)
                )
            }
            Shape::Rect { x, y, width, height, colour } => writeln!(
                text,
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>",
                short(*x),
                short(*y),
                short(*width),
                short(*height),
                hex(*colour)
            ),
            Shape::Dot { x, y, radius, colour } => writeln!(
                text,
                "<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{}\"/>",
                short(*x),
                short(*y),
                short(*radius),
                hex(*colour)
            ),
            Shape::Text { x, y, anchor, bold, colour, text: words } => {
                let anchor = match anchor {
                    Anchor::Start => "start",
                    Anchor::Middle => "middle",
                    Anchor::End => "end",
                };
                let weight = if *bold { " font-weight=\"bold\"" } else { "" };
                writeln!(
                    text,
                    "<text x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\" fill=\"{}\"{weight}>{}</text>",
                    short(*x),
                    short(*y),
                    hex(*colour),
                    escaped(words)
                )
            }
        };
    }
    text.push_str("</svg>\n");
    text
}

fn hex(colour: Colour) -> String {
    format!("#{:02x}{:02x}{:02x}", colour.0, colour.1, colour.2)
}

fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Escapes text for XML, which cannot contain control characters.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
