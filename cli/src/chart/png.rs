//! Pictures as PNG, with two pixels per unit. Letters that the font lacks are drawn as boxes; SVG has them all.

use super::picture::{Anchor, Colour, Picture, Shape};
use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};
use std::io::Write;
use tiny_skia::{FillRule, LineCap, LineJoin, Paint, PathBuilder, Pixmap, Rect, Stroke, StrokeDash, Transform};

/// Pixels per unit of the picture.
const SCALE: u8 = 2;
/// Text of 12 units.
const HEIGHT: RasterHeight = RasterHeight::Size24;
/// Distance from the top of a letter's box to its baseline, in pixels.
const BASELINE: i32 = 19;

/// Draws a picture.
#[expect(clippy::cast_possible_truncation, reason = "places in a picture")]
pub(super) fn draw(picture: &Picture) -> Result<Vec<u8>, String> {
    let scale = f32::from(SCALE);
    let size = |units: u32| units * u32::from(SCALE);
    let mut pixmap = Pixmap::new(size(picture.width), size(picture.height))
        .ok_or("the picture is too large; write it as .svg, or select fewer rows")?;
    pixmap.fill(tiny_skia::Color::WHITE);
    let transform = Transform::from_scale(scale, scale);
    for shape in &picture.shapes {
        match shape {
            Shape::Line { points, colour, width, dashed } => {
                let mut path = PathBuilder::new();
                for (i, (x, y)) in points.iter().enumerate() {
                    let (x, y) = (*x as f32, *y as f32);
                    if i == 0 { path.move_to(x, y) } else { path.line_to(x, y) }
                }
                let stroke = Stroke {
                    width: *width as f32,
                    line_cap: LineCap::Round,
                    line_join: LineJoin::Round,
                    dash: if *dashed { StrokeDash::new(vec![6.0, 4.0], 0.0) } else { None },
                    ..Stroke::default()
                };
                if let Some(path) = path.finish() {
                    pixmap.stroke_path(&path, &paint(*colour), &stroke, transform, None);
                }
            }
            Shape::Rect { x, y, width, height, colour } => {
                if let Some(rect) = Rect::from_xywh(*x as f32, *y as f32, *width as f32, *height as f32) {
                    pixmap.fill_rect(rect, &paint(*colour), transform, None);
                }
            }
            Shape::Dot { x, y, radius, colour } => {
                if let Some(path) = PathBuilder::from_circle(*x as f32, *y as f32, *radius as f32) {
                    pixmap.fill_path(&path, &paint(*colour), FillRule::Winding, transform, None);
                }
            }
            Shape::Text { x, y, anchor, bold, colour, text } => {
                let place = ((x * f64::from(SCALE)) as i32, (y * f64::from(SCALE)) as i32);
                write(&mut pixmap, place, *anchor, *bold, *colour, text);
            }
        }
    }
    encode(&pixmap).map_err(|e| format!("the picture could not be encoded: {e}"))
}

/// A PNG file of opaque pixels. Crates that write PNG would add a second implementation of deflate; this takes 30
/// lines.
fn encode(pixmap: &Pixmap) -> std::io::Result<Vec<u8>> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = [pixmap.width().to_be_bytes(), pixmap.height().to_be_bytes()].concat();
    // Eight bits each for red, green and blue; the only compression and filter methods that exist; not interlaced.
    header.extend([8, 2, 0, 0, 0]);
    put_chunk(&mut file, *b"IHDR", &header)?;
    let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    for row in pixmap.pixels().chunks(pixmap.width() as usize) {
        // Each row begins with the number of its filter: none.
        let bytes = std::iter::once(0).chain(row.iter().flat_map(|p| [p.red(), p.green(), p.blue()]));
        packed.write_all(&bytes.collect::<Vec<u8>>())?;
    }
    put_chunk(&mut file, *b"IDAT", &packed.finish()?)?;
    put_chunk(&mut file, *b"IEND", &[])?;
    Ok(file)
}

/// A chunk: its length, type and bytes, and the checksum of type and bytes.
fn put_chunk(file: &mut Vec<u8>, kind: [u8; 4], bytes: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(std::io::Error::other)?;
    file.extend(length.to_be_bytes());
    let start = file.len();
    file.extend(kind);
    file.extend_from_slice(bytes);
    let crc = crc32fast::hash(&file[start..]);
    file.extend(crc.to_be_bytes());
    Ok(())
}

fn paint(colour: Colour) -> Paint<'static> {
    let mut paint = Paint::default();
    paint.set_color_rgba8(colour.0, colour.1, colour.2, 255);
    paint
}

fn write(pixmap: &mut Pixmap, (x, y): (i32, i32), anchor: Anchor, bold: bool, colour: Colour, text: &str) {
    let weight = if bold { FontWeight::Bold } else { FontWeight::Regular };
    let advance = i32::try_from(get_raster_width(weight, HEIGHT)).unwrap_or(0);
    let length = i32::try_from(text.chars().count()).unwrap_or(0) * advance;
    let mut left = match anchor {
        Anchor::Start => x,
        Anchor::Middle => x - length / 2,
        Anchor::End => x - length,
    };
    for letter in text.chars() {
        match get_raster(letter, weight, HEIGHT) {
            Some(glyph) => {
                for (dy, row) in (0..).zip(glyph.rows()) {
                    for (dx, strength) in (0..).zip(row) {
                        blend(pixmap, (left + dx, y - BASELINE + dy), colour, *strength);
                    }
                }
            }
            None => {
                for at in 2..advance - 2 {
                    blend(pixmap, (left + at, y), colour, 255);
                    blend(pixmap, (left + at, y - 16), colour, 255);
                }
                for up in 0..16 {
                    blend(pixmap, (left + 2, y - up), colour, 255);
                    blend(pixmap, (left + advance - 3, y - up), colour, 255);
                }
            }
        }
        left += advance;
    }
}

/// Blends a colour over a pixel; a `strength` of 255 replaces the pixel.
fn blend(pixmap: &mut Pixmap, (x, y): (i32, i32), colour: Colour, strength: u8) {
    let (Ok(x), Ok(y)) = (u32::try_from(x), u32::try_from(y)) else { return };
    if strength == 0 || x >= pixmap.width() || y >= pixmap.height() {
        return;
    }
    let at = (y * pixmap.width() + x) as usize;
    let Some(pixel) = pixmap.pixels_mut().get_mut(at) else { return };
    let mix = |over: u8, under: u8| {
        let sum = u16::from(over) * u16::from(strength) + u16::from(under) * u16::from(255 - strength);
        u8::try_from(sum / 255).unwrap_or(u8::MAX)
    };
    let (red, green, blue) = (mix(colour.0, pixel.red()), mix(colour.1, pixel.green()), mix(colour.2, pixel.blue()));
    if let Some(mixed) = tiny_skia::PremultipliedColorU8::from_rgba(red, green, blue, 255) {
        *pixel = mixed;
    }
}
