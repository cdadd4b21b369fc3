//! What a body of line protocol says: documents by collection, and the lines that say nothing.

use ebbtide::line_protocol::{self, Point};
use ebbtide_ttl::{Timestamp, Value};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::HashSet;

/// The time field of collections that line protocol creates.
pub(super) const TIME: &str = "time";
/// Their meta field, which has the tags as an object.
pub(super) const TAGS: &str = "tags";

/// Names that are compared with each other; more are hashed.
const COMPARED_MAX: usize = 24;

/// Characters of a bad line that an error shows.
const SHOWN: usize = 200;

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
        let text = String::from_utf8_lossy(line);
        let shown: String = text.chars().take(SHOWN).collect();
        let text = if shown.len() < text.len() { format!("{shown} ...") } else { shown };
        BadLine { number, reason: reason.into(), text }
    }
}

/// The points of one measurement.
#[derive(Debug, Default)]
pub(super) struct Points<'a> {
    pub(super) points: Vec<Point<'a>>,
    pub(super) instants: Vec<Timestamp>,
    /// The numbers of their lines.
    pub(super) lines: Vec<usize>,
}

/// The points of a body by measurement, and the lines that have none.
#[derive(Debug, Default)]
pub(super) struct Body<'a> {
    pub(super) measurements: BTreeMap<Cow<'a, str>, Points<'a>>,
    pub(super) bad: Vec<BadLine>,
}

impl<'a> Body<'a> {
    /// Reads a body. Points without a time get `now`.
    pub(super) fn read(text: &'a [u8], unit: Unit, now: Timestamp) -> Body<'a> {
        let mut body = Body::default();
        for (number, line) in lines(text) {
            match point(line, unit, now) {
                Ok(None) => {}
                Ok(Some((point, instant))) => {
                    let points = body.measurements.entry(point.measurement.clone()).or_default();
                    points.points.push(point);
                    points.instants.push(instant);
                    points.lines.push(number);
                }
                Err(reason) => body.bad.push(BadLine::new(number, reason, line)),
            }
        }
        body
    }

    /// How many points there are.
    pub(super) fn len(&self) -> usize {
        self.measurements.values().map(|points| points.points.len()).sum()
    }
}

/// The lines of a text that are not empty, with their numbers from 1.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = text.split(|byte| *byte == b'\n').map(|line| line.trim_ascii());
    lines.enumerate().filter(|(_, line)| !line.is_empty()).map(|(at, line)| (at + 1, line))
}

fn point(line: &[u8], unit: Unit, now: Timestamp) -> Result<Option<(Point<'_>, Timestamp)>, String> {
    let Some(point) = line_protocol::parse(line)? else { return Ok(None) };
    for (what, twice) in [("tags", twice(&point.tags)), ("fields", twice(&point.fields))] {
        if let Some(twice) = twice {
            return Err(format!("there are two {what} '{twice}'"));
        }
    }
    let instant = match &point.time {
        None => now,
        Some(digits) => {
            let units = digits.parse().map_err(|_| format!("the time {digits} is not a 64-bit integer"))?;
            unit.instant(units)
        }
    };
    Ok(Some((point, instant)))
}

/// The first name that comes a second time.
fn twice<'m, T>(members: &'m [(Cow<'_, str>, T)]) -> Option<&'m str> {
    let mut names = members.iter().map(|(name, _)| &**name).enumerate();
    if members.len() <= COMPARED_MAX {
        return names.find(|(at, name)| members[..*at].iter().any(|(other, _)| other == name)).map(|(_, name)| name);
    }
    let mut seen = HashSet::new();
    names.find(|(_, name)| !seen.insert(*name)).map(|(_, name)| name)
}

/// The document of a point in a collection with these fields.
///
/// # Errors
/// If a name of it is taken.
pub(super) fn document(point: &Point<'_>, at: Timestamp, time: &str, meta: Option<&str>) -> Result<Value, String> {
    let mut members = vec![(time.into(), Value::Date(at))];
    match meta {
        Some(meta) if !point.tags.is_empty() => {
            let tags =
                point.tags.iter().map(|(name, value)| ((&**name).into(), Value::String(value.clone().into_owned())));
            members.push((meta.into(), Value::Object(tags.collect())));
        }
        None if !point.tags.is_empty() => return Err("the collection has no meta field for tags".to_owned()),
        _ => {}
    }
    for (name, value) in &point.fields {
        if name == time || Some(&**name) == meta {
            return Err(format!("field '{name}' has the name of the collection's time or meta field"));
        }
        members.push(((&**name).into(), value.clone()));
    }
    Ok(Value::Object(members))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let numbers = |name: &str| body.measurements[name].lines.clone();
        assert_eq!((numbers("cpu"), numbers("mem"), body.len()), (vec![2, 4], vec![5], 3));
        assert_eq!(body.measurements["cpu"].instants, [Timestamp::from_nanos(5), now]);
        let bad: Vec<_> = body.bad.iter().map(|bad| (bad.number, bad.reason.as_str())).collect();
        assert_eq!(
            bad[1..],
            [
                (7, "there are two fields 'v'"),
                (8, "there are two tags 'a'"),
                (9, "the time 99999999999999999999 is not a 64-bit integer")
            ]
        );
        assert!(bad[0].0 == 6 && body.bad[0].text == "bad", "{bad:?}");
        assert!(BadLine::new(1, "", "ü".repeat(300).as_bytes()).text.ends_with("ü ..."));
    }

    #[test]
    fn a_point_becomes_a_document_unless_a_name_is_taken() {
        let of = |line: &str, meta| {
            let point = line_protocol::parse(line.as_bytes()).unwrap().unwrap();
            document(&point, Timestamp::from_nanos(0), TIME, meta)
        };
        let made = of("m,a=b v=1i", Some(TAGS)).unwrap();
        assert_eq!(format!("{made:?}").matches("tags").count(), 1);
        assert!(of("m v=1i", None).is_ok());
        assert!(of("m,a=b v=1i", None).unwrap_err().contains("no meta field"));
        assert!(of("m time=1i", Some(TAGS)).unwrap_err().contains("'time'"));
        assert!(of("m tags=1i", Some(TAGS)).unwrap_err().contains("'tags'"));
    }
}
