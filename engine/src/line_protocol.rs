//! InfluxDB line protocol: `measurement,tag=value field=1.5,other=2i 1704067200000000000`.

use ebbtide_ttl::Value;
use std::borrow::Cow;

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct Point<'a> {
    /// What was measured; never empty.
    pub measurement: Cow<'a, str>,
    /// The names and values of its tags, in the order of the line.
    pub tags: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// The names and values of its fields, in the order of the line: bools, whole numbers, doubles and texts.
    pub fields: Vec<(Cow<'a, str>, Value)>,
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
    if line.first() == Some(&b'#') {
        return Ok(None);
    }
    let text = std::str::from_utf8(line).map_err(|e| format!("column {}: not UTF-8 text", e.valid_up_to() + 1))?;
    let mut cursor = Cursor { text, at: 0 };
    let measurement = cursor.word(b", ", b", ");
    if measurement.is_empty() {
        return Err(cursor.error("the measurement's name is missing"));
    }
    let mut tags = Vec::new();
    while cursor.take(b',') {
        let name = cursor.word(b", =", b", =");
        if name.is_empty() || !cursor.take(b'=') {
            return Err(cursor.error("a tag is written name=value"));
        }
        let value = cursor.word(b", ", b", =");
        if value.is_empty() {
            return Err(cursor.error(&format!("tag '{name}' has no value")));
        }
        tags.push((name, value));
    }
    if !cursor.spaces() {
        return Err(cursor.error("expected fields after a space"));
    }
    let mut fields = Vec::new();
    loop {
        let name = cursor.word(b", =", b", =");
        if name.is_empty() || !cursor.take(b'=') {
            return Err(cursor.error("a field is written name=value"));
        }
        let value = cursor.value(&name)?;
        fields.push((name, value));
        if !cursor.take(b',') {
            break;
        }
    }
    let time = match (cursor.spaces(), cursor.rest()) {
        (_, "") => None,
        (true, rest) if rest.bytes().all(|b| b.is_ascii_digit() || b == b'-') => Some(rest),
        (_, rest) => return Err(cursor.error(&format!("expected a time, not '{rest}'"))),
    };
    Ok(Some(Point { measurement, tags, fields, time }))
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
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

    fn value(&mut self, name: &str) -> Result<Value, String> {
        if self.rest().starts_with('"') {
            return self.quoted(name);
        }
        let rest = self.rest();
        let raw = &rest[..rest.bytes().position(|byte| matches!(byte, b',' | b' ')).unwrap_or(rest.len())];
        let wrong = |what: &str| Err(self.error(&format!("field '{name}': {what}")));
        let value = match raw {
            "" => return wrong("the value is missing"),
            "t" | "T" | "true" | "True" | "TRUE" => Value::Bool(true),
            "f" | "F" | "false" | "False" | "FALSE" => Value::Bool(false),
            _ => match (raw.strip_suffix('i'), raw.strip_suffix('u')) {
                (Some(digits), _) => match digits.parse() {
                    Ok(number) => Value::Int(number),
                    Err(_) => return wrong(&format!("'{raw}' is not a 64-bit integer")),
                },
                (None, Some(digits)) => match digits.parse::<u64>().map(i64::try_from) {
                    Ok(Ok(number)) => Value::Int(number),
                    Ok(Err(_)) => return wrong(&format!("'{raw}' does not fit int64")),
                    Err(_) => return wrong(&format!("'{raw}' is not an unsigned integer")),
                },
                (None, None) => match raw.parse::<f64>() {
                    Ok(number) if number.is_finite() && raw.starts_with(|c: char| !c.is_alphabetic()) => {
                        Value::Double(number)
                    }
                    _ => return wrong(&format!("'{raw}' is not a value; text goes in double quotes")),
                },
            },
        };
        self.at += raw.len();
        Ok(value)
    }

    fn quoted(&mut self, name: &str) -> Result<Value, String> {
        let mut value = String::new();
        let mut characters = self.rest().char_indices().skip(1).peekable();
        while let Some((at, c)) = characters.next() {
            match (c, characters.peek()) {
                ('"', _) => {
                    self.at += at + 1;
                    return Ok(Value::String(value));
                }
                ('\\', Some((_, next @ ('"' | '\\')))) => {
                    value.push(*next);
                    characters.next();
                }
                _ => value.push(c),
            }
        }
        Err(self.error(&format!("field '{name}': the quote is not closed on this line")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(line: &str) -> Point<'_> {
        parse(line.as_bytes()).unwrap_or_else(|e| panic!("{line}: {e}")).unwrap()
    }

    #[test]
    fn every_kind_of_value_and_escape_is_read() {
        let read = point(r#"my\ air\,x,host\ a=b\=c,r=eu f=1.5,i=-2i,u=7u,b=t,s="a \"b\" \\ c, d = e",n\=x=-1e3 -5"#);
        assert_eq!(read.measurement, "my air,x");
        let tag = |n: &'static str, v: &'static str| (Cow::from(n), Cow::from(v));
        assert_eq!(read.tags, [tag("host a", "b=c"), tag("r", "eu")]);
        let expected = [
            ("f", Value::Double(1.5)),
            ("i", Value::Int(-2)),
            ("u", Value::Int(7)),
            ("b", Value::Bool(true)),
            ("s", Value::String(r#"a "b" \ c, d = e"#.to_owned())),
            ("n=x", Value::Double(-1000.0)),
        ];
        let expected: Vec<_> = expected.into_iter().map(|(n, v)| (n.to_owned(), v)).collect();
        assert_eq!(format!("{:?}", read.fields), format!("{expected:?}"));
        assert_eq!(read.time, Some("-5"));
        assert_eq!(point("m v=1").time, None);
        assert_eq!(parse(b"# comment"), Ok(None));
    }

    #[test]
    fn mistakes_are_named_with_their_column() {
        let cases = [
            ("m", "column 2: expected fields"),
            (",a=b v=1", "column 1: the measurement's name is missing"),
            ("m,a v=1", "column 4: a tag is written name=value"),
            ("m,a= v=1", "tag 'a' has no value"),
            ("m v", "column 4: a field is written name=value"),
            ("m v=", "field 'v': the value is missing"),
            ("m v=abc", "'abc' is not a value"),
            ("m v=inf", "'inf' is not a value"),
            ("m v=1e400", "'1e400' is not a value"),
            ("m v=99999999999999999999i", "is not a 64-bit integer"),
            ("m v=18446744073709551615u", "does not fit int64"),
            ("m v=\"open 1", "the quote is not closed"),
            ("m v=1 soon", "expected a time, not 'soon'"),
        ];
        for (line, expected) in cases {
            let error = parse(line.as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
