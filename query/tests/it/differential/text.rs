//! One statement in two dialects: a text contains marked parts in which Ebbtide and DuckDB differ.

const OPEN: char = '\u{1}';
const MIDDLE: char = '\u{2}';
const CLOSE: char = '\u{3}';

/// Which program a text is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Ebbtide,
    DuckDb,
}

/// A part that differs between Ebbtide and DuckDB. Both variants may contain such parts themselves.
pub(crate) fn both(ebbtide: impl AsRef<str>, duckdb: impl AsRef<str>) -> String {
    format!("{OPEN}{}{MIDDLE}{}{CLOSE}", ebbtide.as_ref(), duckdb.as_ref())
}

/// The text for one of the programs.
pub(crate) fn render(text: &str, dialect: Dialect) -> String {
    let mut rendered = String::with_capacity(text.len());
    // For each open part: whether its second variant has begun.
    let mut places: Vec<bool> = Vec::new();
    for c in text.chars() {
        match c {
            OPEN => places.push(false),
            MIDDLE => *places.last_mut().unwrap() = true,
            CLOSE => drop(places.pop()),
            _ if places.iter().all(|second| *second == (dialect == Dialect::DuckDb)) => rendered.push(c),
            _ => {}
        }
    }
    rendered
}

/// A text as an SQL literal.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
