//! What a body of line protocol says: points by collection, and the lines that say nothing.

use ebbtide::line_protocol::{Lines, OPEN_QUOTE, Points};
use ebbtide_ttl::Timestamp;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The time field of collections that line protocol creates.
pub(super) const TIME: &str = "time";
/// Their meta field, which has the tags as an object.
pub(super) const TAGS: &str = "tags";

/// Characters of a bad line, and of the reason, that an error shows.
const SHOWN: usize = 200;
/// Bad lines that are listed.
const LISTED_MAX: usize = 1_000;

/// The unit of the times of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// So many nanoseconds.
    Nanos(i64),
    /// Seconds, milliseconds, microseconds or nanoseconds, by their number of digits.
    Guessed,
}

impl Unit {
    const SECOND: i64 = 1_000_000_000;

    /// The unit that the parameter `precision` names in any of its generations.
    pub(super) fn named(name: &str) -> Option<Unit> {
        Some(Unit::Nanos(match name {
            "" | "n" | "ns" | "nanosecond" => 1,
            "u" | "us" | "\u{b5}" | "microsecond" => 1_000,
            "ms" | "millisecond" => 1_000_000,
            "s" | "second" => Unit::SECOND,
            "m" => 60 * Unit::SECOND,
            "h" => 3_600 * Unit::SECOND,
            "auto" => return Some(Unit::Guessed),
            _ => return None,
        }))
    }

    /// The instant of a time in this unit. A guess takes what lies within the years 1967 to 2128 in its unit, as InfluxDB 3 does.
    fn instant(self, units: i64) -> Timestamp {
        const LIMIT: u64 = 5_000_000_000;
        let nanos = match (self, units.unsigned_abs()) {
            (Unit::Nanos(nanos), _) => nanos,
            (Unit::Guessed, size) if size < LIMIT => Unit::SECOND,
            (Unit::Guessed, size) if size < LIMIT * 1_000 => 1_000_000,
            (Unit::Guessed, size) if size < LIMIT * 1_000_000 => 1_000,
            (Unit::Guessed, _) => 1,
        };
        Timestamp::from_nanos(i128::from(units) * i128::from(nanos))
    }
}

/// A line that is not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BadLine {
    /// Its number, from 1.
    pub(super) number: usize,
    /// Why not.
    pub(super) reason: String,
    /// The line, or its beginning.
    pub(super) text: String,
}

impl BadLine {
    pub(super) fn new(number: usize, reason: impl Into<String>, line: &[u8]) -> BadLine {
        // A character has at most four bytes.
        let text = String::from_utf8_lossy(&line[..line.len().min(4 * SHOWN + 4)]);
        BadLine { number, reason: beginning(&reason.into()), text: beginning(&text) }
    }
}

fn beginning(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Lines that are not stored. The first [`LISTED_MAX`] are kept, and the others are counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BadLines {
    #[serde(rename = "bad")]
    pub(super) listed: Vec<BadLine>,
    #[serde(default)]
    others: usize,
}

impl BadLines {
    pub(super) fn len(&self) -> usize {
        self.listed.len() + self.others
    }

    pub(super) fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }
}

impl Extend<BadLine> for BadLines {
    fn extend<T: IntoIterator<Item = BadLine>>(&mut self, lines: T) {
        for line in lines {
            match self.listed.len() < LISTED_MAX {
                true => self.listed.push(line),
                false => self.others += 1,
            }
        }
    }
}

impl FromIterator<BadLine> for BadLines {
    fn from_iter<T: IntoIterator<Item = BadLine>>(lines: T) -> BadLines {
        let mut bad = BadLines::default();
        bad.extend(lines);
        bad
    }
}

/// The points of a body by measurement, and the lines that have none.
#[derive(Debug, Default)]
pub(super) struct Body<'a> {
    pub(super) lines: Lines<'a>,
    pub(super) bad: BadLines,
}

impl<'a> Body<'a> {
    /// Reads a body. Points without a time get `now`.
    pub(super) fn read(text: &'a [u8], unit: Unit, now: Timestamp) -> Body<'a> {
        let mut body = Body::default();
        let (mut rest, mut number) = (text, 0);
        // What may be read again to find where quotes close: each line that is bad could go on to the end.
        let mut again = 4 * text.len();
        while !rest.is_empty() {
            number += 1;
            let (line, mut after) = split_line(rest, 0);
            let mut read = body.read_line(line, (number, unit, now));
            if let Err(reason) = &read
                && reason.ends_with(OPEN_QUOTE)
                && let Some(end) = body.read_on(rest, (number, unit, now), &mut again)
            {
                number += memchr::memchr_iter(b'\n', &rest[..end]).count();
                (read, after) = (Ok(()), &rest[(end + 1).min(rest.len())..]);
            }
            body.bad.extend(read.err().map(|reason| BadLine::new(number, reason, line)));
            rest = after;
        }
        body
    }

    fn read_line(&mut self, line: &'a [u8], (number, unit, now): (usize, Unit, Timestamp)) -> Result<(), String> {
        match line.trim_ascii() {
            [] => Ok(()),
            line => self.lines.read(line, number, |time| instant(time, unit, now)),
        }
    }

    /// Reads a line whose quoted text goes on in the lines after it, up to its end, which is returned.
    fn read_on(&mut self, text: &'a [u8], of: (usize, Unit, Timestamp), again: &mut usize) -> Option<usize> {
        let mut end = split_line(text, 0).0.len();
        loop {
            let quote = end + memchr::memchr(b'"', &text[end..])?;
            end = split_line(text, quote).0.len();
            *again = again.checked_sub(end)?;
            match self.read_line(&text[..end], of) {
                Ok(()) => return Some(end),
                Err(reason) if reason.ends_with(OPEN_QUOTE) => {}
                Err(_) => return None,
            }
        }
    }

    /// How many points there are.
    pub(super) fn len(&self) -> usize {
        self.lines.measurements().map(Points::len).sum()
    }
}

/// The text up to the first line end from `from` on, and what comes after it.
fn split_line(text: &[u8], from: usize) -> (&[u8], &[u8]) {
    match memchr::memchr(b'\n', &text[from..]) {
        Some(at) => (&text[..from + at], &text[from + at + 1..]),
        None => (text, &[]),
    }
}

/// The lines of a text that are not empty, with their numbers from 1.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut rest = Some(text);
    let lines = std::iter::from_fn(move || {
        let text = rest?;
        let (line, after) = match memchr::memchr(b'\n', text) {
            Some(end) => (&text[..end], Some(&text[end + 1..])),
            None => (text, None),
        };
        rest = after;
        Some(line.trim_ascii())
    });
    lines.enumerate().filter(|(_, line)| !line.is_empty()).map(|(at, line)| (at + 1, line))
}

fn instant(digits: Option<&str>, unit: Unit, now: Timestamp) -> Result<Timestamp, String> {
    let Some(digits) = digits else { return Ok(now) };
    let units = digits.parse().map_err(|_| format!("the time {digits} is not a 64-bit integer"))?;
    Ok(unit.instant(units))
}

/// Why points are none of a collection with these fields, by their layout, and of those with tags.
pub(super) fn unfit(
    points: &Points<'_>,
    time: &str,
    meta: Option<&str>,
) -> (Vec<Option<String>>, Option<&'static str>) {
    let unfit = |names: &Vec<Cow<'_, str>>| {
        let taken = names.iter().find(|name| **name == time || Some(&***name) == meta)?;
        Some(format!("field '{taken}' has the name of the collection's time or meta field"))
    };
    let without_meta = meta.is_none().then_some("the collection has no meta field for tags");
    (points.layouts().iter().map(unfit).collect(), without_meta)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide::buckets::{Cell, Measurement};
    use ebbtide::line_protocol::LinePoint;

    #[test]
    fn times_are_in_the_unit_that_is_named_or_guessed() {
        let at = |name: &str, units| Unit::named(name).unwrap().instant(units).to_string();
        for (name, units) in [
            ("", 1_704_067_200_000_000_000),
            ("ns", 1_704_067_200_000_000_000),
            ("u", 1_704_067_200_000_000),
            ("ms", 1_704_067_200_000),
            ("second", 1_704_067_200),
            ("m", 28_401_120),
            ("h", 473_352),
            ("auto", 1_704_067_200),
            ("auto", 1_704_067_200_000),
            ("auto", 1_704_067_200_000_000),
            ("auto", 1_704_067_200_000_000_000),
        ] {
            assert_eq!(at(name, units), "2024-01-01T00:00:00Z", "{name} {units}");
        }
        assert_eq!(at("s", -1), "1969-12-31T23:59:59Z");
        assert!(Unit::named("fortnight").is_none());
    }

    #[test]
    fn lines_are_counted_with_empty_ones_and_comments() {
        let text = b"# a\r\ncpu,host=a v=1i 5\r\n\n  cpu v=2i\nmem v=t 7\nbad\ncpu v=1,v=2\ncpu,a=1,a=2 v=1\ncpu v=1 99999999999999999999";
        let now = Timestamp::from_nanos(9);
        let body = Body::read(text, Unit::Nanos(1), now);
        let found = |points: &Points<'_>| {
            let points = points.as_measurements(TIME).map(|point| (point.number(), time_of(point)));
            points.collect::<Vec<_>>()
        };
        let names: Vec<_> = body.lines.measurements().map(|points| (points.name(), found(points))).collect();
        let five = Timestamp::from_nanos(5);
        assert_eq!(names, [("cpu", vec![(2, five), (4, now)]), ("mem", vec![(5, Timestamp::from_nanos(7))])]);
        assert_eq!(body.len(), 3);
        let bad: Vec<_> = body.bad.listed.iter().map(|bad| (bad.number, bad.reason.as_str())).collect();
        assert_eq!(
            bad[1..],
            [
                (7, "there are two fields 'v'"),
                (8, "there are two tags 'a'"),
                (9, "the time 99999999999999999999 is not a 64-bit integer")
            ]
        );
        assert!(bad[0].0 == 6 && body.bad.listed[0].text == "bad", "{bad:?}");
        assert!(BadLine::new(1, "", "ü".repeat(300).as_bytes()).text.ends_with("ü ..."));
    }

    #[test]
    fn a_quoted_text_may_have_line_ends() {
        let read = |text: &'static str| {
            let body = Body::read(text.as_bytes(), Unit::Nanos(1), Timestamp::from_nanos(0));
            let points = body.lines.measurements().flat_map(|points| points.as_measurements(TIME));
            let numbers: Vec<usize> = points.map(|point| point.number()).collect();
            (numbers, body.bad.listed.iter().map(|bad| bad.number).collect::<Vec<usize>>())
        };
        assert_eq!(read("m v=\"a\nb\" 1\nm v=1i 2"), (vec![1, 3], vec![]));
        assert_eq!(read("m v=\"a\n\nb\\\"\n\" 1\nm v=1i"), (vec![1, 5], vec![]));
        // A line that is bad is bad alone.
        assert_eq!(read("m v=\"a\nm v=1i 2\nm v=\"b\" 3"), (vec![2, 3], vec![1]));
        assert_eq!(read("m v=\"a\nm v=\"b\" 3\n"), (vec![2], vec![1]));
        assert_eq!(read("m v=\"a"), (vec![], vec![1]));
    }

    #[test]
    fn many_bad_lines_take_little_memory_and_time() {
        let text = "m v=\"\nm v=\"b\"\n".repeat(50_000);
        let body = Body::read(text.as_bytes(), Unit::Nanos(1), Timestamp::from_nanos(0));
        assert_eq!((body.len(), body.bad.len(), body.bad.listed.len()), (50_000, 50_000, LISTED_MAX));
    }

    fn time_of(point: LinePoint<'_>) -> Timestamp {
        match point.members().unwrap().next() {
            Some(Ok((TIME, Cell::Date(at)))) => at,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_point_is_a_measurement_unless_a_name_is_taken() {
        let body =
            Body::read(b"m,a=b v=1i\nm v=1i\nm time=1i\nm v=1i,tags=1i", Unit::Nanos(1), Timestamp::from_nanos(0));
        let points = body.lines.measurements().next().unwrap();
        let (layouts, no_meta) = unfit(points, TIME, Some(TAGS));
        let of: Vec<_> = points.as_measurements(TIME).map(|point| layouts[point.layout()].as_deref()).collect();
        assert!(of[..2] == [None, None] && no_meta.is_none());
        assert!(of[2].unwrap().contains("'time'") && of[3].unwrap().contains("'tags'"), "{of:?}");
        assert!(unfit(points, TIME, None).1.unwrap().contains("no meta field"));
        let tags: Vec<_> = points.as_measurements(TIME).map(|point| point.has_tags()).collect();
        assert_eq!(tags, [true, false, false, false]);
    }
}
