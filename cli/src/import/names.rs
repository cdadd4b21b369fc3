//! Columns that the user adds: with a constant value, or with values from the names of files.

use crate::Failure;
use arrow::array::{ArrayRef, Float64Array, Int64Array, StringViewArray};
use ebbtide_ttl::Value;
use std::path::Path;
use std::sync::Arc;

/// The value of a column that the user adds.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Constant {
    Int(i64),
    Double(f64),
    Text(String),
}

impl Constant {
    /// The value in a number of rows.
    pub(super) fn column(&self, rows: usize) -> ArrayRef {
        match self {
            Constant::Int(number) => Arc::new(Int64Array::from_value(*number, rows)),
            Constant::Double(number) => Arc::new(Float64Array::from_value(*number, rows)),
            Constant::Text(text) => Arc::new(StringViewArray::from_iter_values(std::iter::repeat_n(text, rows))),
        }
    }

    /// The value in a document.
    pub(super) fn value(self) -> Value {
        match self {
            Constant::Int(number) => Value::Int(number),
            Constant::Double(number) => Value::Double(number),
            Constant::Text(text) => Value::String(text),
        }
    }
}

/// A piece of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// `*`
    Anything,
    /// `{name}`
    Capture(String),
}

/// A pattern on the names of files.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    text: String,
    pieces: Vec<Piece>,
}

impl Pattern {
    /// Reads `{station}_*.csv`.
    ///
    /// # Errors
    /// A pattern without a name in braces, or with one brace only.
    pub(super) fn new(text: &str) -> Result<Self, Failure> {
        let fail = |what: &str| Failure::usage(format!("--meta-from-name '{text}': {what}"));
        let mut pieces: Vec<Piece> = Vec::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            match first {
                '*' => {
                    pieces.push(Piece::Anything);
                    rest = &rest[1..];
                }
                '{' => {
                    let (name, after) = rest[1..].split_once('}').ok_or_else(|| fail("a brace is not closed"))?;
                    if name.is_empty() || pieces.contains(&Piece::Capture(name.to_owned())) {
                        return Err(fail("each pair of braces needs a different name"));
                    }
                    pieces.push(Piece::Capture(name.to_owned()));
                    rest = after;
                }
                _ => {
                    let end = rest.find(['*', '{']).unwrap_or(rest.len());
                    pieces.push(Piece::Text(rest[..end].to_owned()));
                    rest = &rest[end..];
                }
            }
        }
        if !pieces.iter().any(|p| matches!(p, Piece::Capture(_))) {
            return Err(fail("a column in braces is expected, such as '{station}.csv'"));
        }
        Ok(Pattern { text: text.to_owned(), pieces })
    }

    /// The names in braces.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|p| match p {
            Piece::Capture(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// The values of the names in a file's name.
    ///
    /// # Errors
    /// A name that does not match.
    pub(super) fn of(&self, path: &Path) -> Result<Vec<(String, String)>, Failure> {
        let parts = self.text.matches('/').count() + 1;
        let names: Vec<String> = path.iter().map(|p| p.to_string_lossy().into_owned()).collect();
        let end = names[names.len().saturating_sub(parts)..].join("/");
        let mut found = Vec::new();
        if matches(&self.pieces, &end, &mut found) {
            return Ok(found);
        }
        Err(Failure::new(format!("the name of {} does not match --meta-from-name '{}'", path.display(), self.text)))
    }
}

/// Whether pieces match a text. A name matches as few characters as possible, at least one, and no `/`.
fn matches(pieces: &[Piece], text: &str, found: &mut Vec<(String, String)>) -> bool {
    let Some((first, rest)) = pieces.split_first() else { return text.is_empty() };
    match first {
        Piece::Text(wanted) => text.strip_prefix(wanted.as_str()).is_some_and(|after| matches(rest, after, found)),
        Piece::Anything => ends(text).any(|end| matches(rest, &text[end..], found)),
        Piece::Capture(name) => ends(text).skip(1).take_while(|end| !text[..*end].contains('/')).any(|end| {
            let before = found.len();
            found.push((name.clone(), text[..end].to_owned()));
            let is_match = matches(rest, &text[end..], found);
            if !is_match {
                found.truncate(before);
            }
            is_match
        }),
    }
}

/// The positions of the characters of a text, and its end.
fn ends(text: &str) -> impl Iterator<Item = usize> {
    text.char_indices().map(|(at, _)| at).chain(std::iter::once(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_give_columns() {
        let of = |pattern: &str, path: &str| match Pattern::new(pattern).and_then(|p| p.of(Path::new(path))) {
            Ok(found) => found.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(" "),
            Err(failure) => failure.to_string(),
        };
        assert_eq!(of("{station}.csv", "data/ewr.csv"), "station=ewr");
        assert_eq!(of("{station}_*.csv.gz", "ewr_2013_01.csv.gz"), "station=ewr");
        assert_eq!(of("*_{region}_{station}.csv", "obs_eu_x_1.csv"), "region=eu station=x_1");
        assert_eq!(of("{country}/{station}.csv", "/data/ie/dublin.csv"), "country=ie station=dublin");
        assert_eq!(of("caf\u{e9}{n}.*", "caf\u{e9}\u{e9}.csv"), "n=\u{e9}");
        assert!(of("{station}.csv", "ewr.txt").contains("does not match"));
        for wrong in ["*.csv", "{a.csv", "{}.csv", "{a}{a}"] {
            assert!(Pattern::new(wrong).is_err(), "{wrong}");
        }
    }
}
