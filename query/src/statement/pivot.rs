//! `PIVOT t ON station USING avg(temp) GROUP BY day` and `UNPIVOT t ON a, b INTO NAME station VALUE temp`, as in
//! DuckDB: their syntax, and the query that replaces them.

use super::error::SyntaxError;
use super::lexer::{Offsets, Piece};
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan};
use std::ops::Range;

/// The parts of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pivot {
    /// Whether it is UNPIVOT: columns become rows.
    un: bool,
    source: String,
    on: String,
    values: Option<Vec<String>>,
    using: Vec<String>,
    group: Option<String>,
    into: (String, String),
    /// ORDER BY and LIMIT.
    tail: String,
}

/// The words that begin a part, in the order of the parts.
const PARTS: [&str; 7] = ["ON", "IN", "USING", "GROUP", "INTO", "ORDER", "LIMIT"];

impl Pivot {
    /// Reads a statement that begins with PIVOT or UNPIVOT.
    pub(super) fn parse(piece: &Piece, un: bool) -> Result<Pivot, SyntaxError> {
        let usage = match un {
            false => "write PIVOT t ON station USING avg(temp) GROUP BY day",
            true => "write UNPIVOT t ON a, b INTO NAME station VALUE temp",
        };
        let tokens = &piece.tokens;
        let wrong = |at: usize, what: &str| {
            let place = tokens.get(at).or(tokens.last()).map(|t| t.span.start);
            SyntaxError::at(&piece.text, place.unwrap_or(Location::new(1, 1)), format!("{what}; {usage}"))
        };
        let mut parts: Vec<(usize, usize)> = Vec::new();
        for at in top_level(tokens, 1..tokens.len()) {
            if let Some(part) = PARTS.iter().position(|word| is(&tokens[at], word))
                && parts.last().is_none_or(|(last, _)| *last < part)
            {
                parts.push((part, at));
            }
        }
        let of = |word: &str| {
            let part = PARTS.iter().position(|part| *part == word);
            let found = parts.iter().position(|(known, _)| Some(*known) == part)?;
            let end = parts.get(found + 1).map_or(tokens.len(), |(_, at)| *at);
            Some(parts[found].1 + 1..end)
        };
        let text = |range: Range<usize>| slice(piece, range);
        let first = parts.first().map_or(tokens.len(), |(_, at)| *at);
        let Some(on) = of("ON").filter(|on| first > 1 && !on.is_empty()) else {
            return Err(wrong(first, "a source and ON with columns are expected"));
        };
        let inside = |list: Range<usize>| list.start + 1..list.end.saturating_sub(1).max(list.start + 1);
        let values = of("IN").map(|list| pieces(piece, inside(list)));
        let using = of("USING").map_or_else(Vec::new, |list| pieces(piece, list));
        let group = match of("GROUP") {
            Some(list) if tokens.get(list.start).is_some_and(|by| is(by, "BY")) => Some(text(list.start + 1..list.end)),
            Some(list) => return Err(wrong(list.start, "BY is expected")),
            None => None,
        };
        let into = match of("INTO") {
            None => ("name".to_owned(), "value".to_owned()),
            Some(list) => match &tokens[list.clone()] {
                [a, name, b, value] if is(a, "NAME") && is(b, "VALUE") => {
                    (name.token.to_string(), value.token.to_string())
                }
                _ => return Err(wrong(list.start, "INTO takes NAME and VALUE with a name each")),
            },
        };
        let tail = of("ORDER").map(|list| list.start - 1).or(of("LIMIT").map(|list| list.start - 1));
        let tail = tail.map(|from| text(from..tokens.len())).unwrap_or_default();
        Ok(Pivot { un, source: text(1..first), on: text(on), values, using, group, into, tail })
    }

    /// What is pivoted: the name of a table, or a query in parentheses.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// The query for what the statement leaves open: the values of PIVOT, or the names of the columns of UNPIVOT.
    pub(crate) fn question(&self) -> Option<String> {
        let Pivot { source, on, .. } = self;
        match self.un {
            true if on.contains('*') => Some(format!("SELECT {} FROM {source} LIMIT 0", self.columns())),
            false if self.values.is_none() => {
                Some(format!("SELECT DISTINCT {on} AS v FROM {source} WHERE ({on}) IS NOT NULL ORDER BY v"))
            }
            _ => None,
        }
    }

    /// `* EXCLUDE (time)` of `COLUMNS(* EXCLUDE (time))`.
    fn columns(&self) -> &str {
        let on = self.on.trim();
        match on.get(..7) {
            Some(word) if word.eq_ignore_ascii_case("columns") => {
                on[7..].trim().trim_start_matches('(').strip_suffix(')').unwrap_or(on)
            }
            _ => on,
        }
    }

    /// The query that replaces the statement; `found` is the answer to its question, as SQL. `filtered` makes the aggregates of an expression
    /// ones of the rows of a condition.
    pub(crate) fn query(&self, found: Option<Vec<(String, String)>>, filtered: fn(&str, &str) -> String) -> String {
        let Pivot { source, on, tail, .. } = self;
        if self.un {
            let columns = found.map(|found| found.into_iter().map(|(column, _)| column).collect::<Vec<_>>().join(", "));
            let columns = columns.unwrap_or_else(|| on.clone());
            let (name, value) = &self.into;
            return format!("SELECT * FROM {source} UNPIVOT ({value} FOR {name} IN ({columns})) {tail}");
        }
        let count = ["count(*)".to_owned()];
        let using = if self.using.is_empty() { &count[..] } else { &self.using[..] };
        // The text of each value, and the name of its column.
        let values: Vec<(String, String)> = match found {
            Some(found) => {
                found.into_iter().map(|(value, name)| (value, unquoted(&name).replace("\"\"", "\""))).collect()
            }
            None => self.values.iter().flatten().map(|value| with_name(value)).collect(),
        };
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        let Some(group) = &self.group else {
            let values: Vec<String> =
                values.iter().map(|(value, name)| format!("{value} AS {}", quoted(name))).collect();
            let (using, values) = (using.join(", "), values.join(", "));
            return format!("SELECT * FROM {source} PIVOT ({using} FOR {on} IN ({values})) {tail}");
        };
        let mut cells = Vec::new();
        for (value, name) in &values {
            for call in using {
                let (call, suffix) = alias(call);
                let suffix = suffix.or((using.len() > 1).then_some(call));
                let name = suffix.map_or_else(|| name.clone(), |suffix| format!("{name}_{}", unquoted(suffix)));
                let cell = filtered(call, &format!("({on}) = {value}"));
                cells.push(format!("{cell} AS {}", quoted(&name)));
            }
        }
        let cells = cells.iter().map(|cell| format!(", {cell}")).collect::<String>();
        format!("SELECT {group}{cells} FROM {source} GROUP BY {group} {tail}")
    }
}

fn is(token: &TokenWithSpan, word: &str) -> bool {
    matches!(&token.token, Token::Word(w) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
}

/// The tokens of a range that are in no parentheses; an opening one is.
fn top_level(tokens: &[TokenWithSpan], range: Range<usize>) -> Vec<usize> {
    let mut depth = 0_usize;
    range
        .filter(|at| {
            let outside = depth == 0;
            match tokens[*at].token {
                Token::LParen | Token::LBracket => depth += 1,
                Token::RParen | Token::RBracket => depth = depth.saturating_sub(1),
                _ => {}
            }
            outside
        })
        .collect()
}

fn slice(piece: &Piece, range: Range<usize>) -> String {
    let Some(tokens) = piece.tokens.get(range).filter(|tokens| !tokens.is_empty()) else { return String::new() };
    let offsets = Offsets::new(&piece.text);
    let (from, to) = (offsets.of(tokens[0].span.start), offsets.of(tokens[tokens.len() - 1].span.end));
    piece.text.get(from..to).unwrap_or_default().to_owned()
}

/// The parts of a list between its commas.
fn pieces(piece: &Piece, range: Range<usize>) -> Vec<String> {
    let commas =
        top_level(&piece.tokens, range.clone()).into_iter().filter(|at| piece.tokens[*at].token == Token::Comma);
    let mut from = range.start;
    let mut parts = Vec::new();
    for end in commas.chain([range.end]) {
        parts.push(slice(piece, from..end));
        from = end + 1;
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// An expression, and the name after its AS.
fn alias(text: &str) -> (&str, Option<&str>) {
    let lower = text.to_lowercase();
    match lower.rfind(" as ") {
        Some(at) if !text[at + 4..].contains([')', '\'']) => (text[..at].trim(), Some(text[at + 4..].trim())),
        _ => (text, None),
    }
}

/// A value, and the name of its column.
fn with_name(value: &str) -> (String, String) {
    let (value, name) = alias(value);
    let plain = value.strip_prefix('\'').and_then(|v| v.strip_suffix('\'')).map(|v| v.replace("''", "'"));
    let name = name.map(|name| unquoted(name).to_owned()).or(plain).unwrap_or_else(|| value.to_owned());
    (value.to_owned(), name)
}

fn unquoted(name: &str) -> &str {
    name.strip_prefix('"').and_then(|name| name.strip_suffix('"')).unwrap_or(name)
}
