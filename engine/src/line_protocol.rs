//! InfluxDB line protocol: `measurement,tag=value field=1.5,other=2i 1704067200000000000`.

mod lines;

pub use lines::{LinePoint, Lines, Points};

use ebbtide_buckets::Cell;
use std::borrow::Cow;

/// The end of the error for a line that ends within a quoted text. The text may go on in the next line.
pub const OPEN_QUOTE: &str = "the quote is not closed";

/// One line.
#[derive(Debug, Clone)]
pub struct Point<'a> {
    /// What was measured; never empty.
    pub measurement: Cow<'a, str>,
    /// The names and values of its tags, in the order of the line.
    pub tags: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// The names and values of its fields, in the order of the line: bools, whole numbers, doubles and texts.
    pub fields: Vec<(Cow<'a, str>, Cell<'a>)>,
    /// The digits of its time, whose unit the line does not say.
    pub time: Option<&'a str>,
}

/// Reads a line; `None` for a comment. Unsigned numbers must fit into int64.
///
/// ```
/// let point = ebbtide::line_protocol::parse(b"cpu,host=a usage=0.5 1704067200000000000")?.unwrap();
/// assert_eq!((&*point.measurement, point.tags.len(), point.fields.len()), ("cpu", 1, 1));
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// What is wrong, and at which column.
pub fn parse(line: &[u8]) -> Result<Option<Point<'_>>, String> {
    let Some(text) = text_of(line)? else { return Ok(None) };
    let mut cursor = Cursor { text, at: 0 };
    let (measurement, tags) = cursor.head()?;
    if !cursor.spaces() {
        return Err(cursor.error("expected fields after a space"));
    }
    let mut fields = Vec::new();
    loop {
        let name = cursor.name()?;
        let value = cursor.value(&name)?;
        fields.push((name, value));
        if !cursor.take(b',') {
            break;
        }
    }
    Ok(Some(Point { measurement, tags, fields, time: cursor.time()? }))
}

/// A line as text; `None` for a comment.
fn text_of(line: &[u8]) -> Result<Option<&str>, String> {
    if line.first() == Some(&b'#') {
        return Ok(None);
    }
    std::str::from_utf8(line).map(Some).map_err(|e| format!("column {}: not UTF-8 text", e.valid_up_to() + 1))
}

type Head<'a> = (Cow<'a, str>, Vec<(Cow<'a, str>, Cow<'a, str>)>);

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// The measurement and its tags.
    fn head(&mut self) -> Result<Head<'a>, String> {
        let measurement = self.word(b", ", b", ");
        if measurement.is_empty() {
            return Err(self.error("the measurement's name is missing"));
        }
        let mut tags = Vec::new();
        while self.take(b',') {
            let name = self.word(b", =", b", =");
            if name.is_empty() || !self.take(b'=') {
                return Err(self.error("a tag is written name=value"));
            }
            let value = self.word(b", ", b", =");
            if value.is_empty() {
                return Err(self.error(&format!("tag '{name}' has no value")));
            }
            tags.push((name, value));
        }
        Ok((measurement, tags))
    }

    /// The name of a field, and the sign after it.
    fn name(&mut self) -> Result<Cow<'a, str>, String> {
        let name = self.word(b", =", b", =");
        if name.is_empty() || !self.take(b'=') {
            return Err(self.error("a field is written name=value"));
        }
        Ok(name)
    }

    /// The digits of the time, after which the line ends.
    fn time(&mut self) -> Result<Option<&'a str>, String> {
        match (self.spaces(), self.rest()) {
            (_, "") => Ok(None),
            (true, rest) if rest.bytes().all(|b| b.is_ascii_digit() || b == b'-') => Ok(Some(rest)),
            (_, rest) => Err(self.error(&format!("expected a time, not '{rest}'"))),
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn error(&self, what: &str) -> String {
        format!("column {}: {what}", self.text[..self.at].chars().count() + 1)
    }

    fn take(&mut self, wanted: u8) -> bool {
        let found = self.text.as_bytes().get(self.at) == Some(&wanted);
        self.at += usize::from(found);
        found
    }

    fn take_text(&mut self, wanted: &str) -> bool {
        let found = self.text.as_bytes()[self.at..].starts_with(wanted.as_bytes());
        self.at += if found { wanted.len() } else { 0 };
        found
    }

    fn spaces(&mut self) -> bool {
        let before = self.at;
        while self.take(b' ') {}
        self.at > before
    }

    /// Text up to one of `ends`; a backslash escapes any of `escaped`.
    fn word(&mut self, ends: &[u8], escaped: &[u8]) -> Cow<'a, str> {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let mut unescaped = String::new();
        let (mut at, mut begin) = (0, 0);
        while let Some(byte) = bytes.get(at).filter(|byte| !ends.contains(byte)) {
            if *byte == b'\\' && bytes.get(at + 1).is_some_and(|next| escaped.contains(next)) {
                unescaped.push_str(&rest[begin..at]);
                begin = at + 1;
                at += 1;
            }
            at += 1;
        }
        self.at += at;
        if begin == 0 {
            return Cow::Borrowed(&rest[..at]);
        }
        unescaped.push_str(&rest[begin..at]);
        Cow::Owned(unescaped)
    }

    fn value(&mut self, name: &str) -> Result<Cell<'a>, String> {
        if self.rest().starts_with('"') {
            return self.quoted(name);
        }
        let rest = self.rest();
        let raw = &rest[..rest.bytes().position(|byte| matches!(byte, b',' | b' ')).unwrap_or(rest.len())];
        let wrong = |what: &str| Err(self.error(&format!("field '{name}': {what}")));
        let value = match (raw, raw.as_bytes().last()) {
            ("", _) => return wrong("the value is missing"),
            (_, Some(b'i')) => match raw[..raw.len() - 1].parse() {
                Ok(number) => Cell::Int(number),
                Err(_) => return wrong(&format!("'{raw}' is not a 64-bit integer")),
            },
            (_, Some(b'u')) => match raw[..raw.len() - 1].parse::<u64>().map(i64::try_from) {
                Ok(Ok(number)) => Cell::Int(number),
                Ok(Err(_)) => return wrong(&format!("'{raw}' does not fit int64")),
                Err(_) => return wrong(&format!("'{raw}' is not an unsigned integer")),
            },
            ("t" | "T" | "true" | "True" | "TRUE", _) => Cell::Bool(true),
            ("f" | "F" | "false" | "False" | "FALSE", _) => Cell::Bool(false),
            _ => match raw.parse::<f64>() {
                Ok(number) if number.is_finite() && raw.starts_with(|c: char| !c.is_alphabetic()) => {
                    Cell::Double(number)
                }
                _ => return wrong(&format!("'{raw}' is not a value; text goes in double quotes")),
            },
        };
        self.at += raw.len();
        Ok(value)
    }

    fn quoted(&mut self, name: &str) -> Result<Cell<'a>, String> {
        let mut value = String::new();
        let mut characters = self.rest().char_indices().skip(1).peekable();
        while let Some((at, c)) = characters.next() {
            match (c, characters.peek()) {
                ('"', _) => {
                    self.at += at + 1;
                    return Ok(Cell::String(value.into()));
                }
                ('\\', Some((_, next @ ('"' | '\\')))) => {
                    value.push(*next);
                    characters.next();
                }
                _ => value.push(c),
            }
        }
        Err(self.error(&format!("field '{name}': {OPEN_QUOTE}")))
    }
}

#[cfg(test)]
mod tests;
