//! Assistance while typing: completion, highlighting, and whether a statement is complete.

use super::{commands, highlight};
use arrow::datatypes::{DataType, Field};
use ebbtide_query::Session;
use ebbtide_query::statement;
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper};
use std::borrow::Cow;
use std::collections::HashSet;

const WORDS: [&str; 80] = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "ORDER BY",
    "HAVING",
    "LIMIT",
    "OFFSET",
    "JOIN",
    "LEFT JOIN",
    "ASOF JOIN",
    "ASOF LEFT JOIN",
    "ON",
    "AS",
    "AND",
    "OR",
    "NOT",
    "IN",
    "IS NULL",
    "IS NOT NULL",
    "BETWEEN",
    "LIKE",
    "DISTINCT",
    "UNION ALL",
    "WITH",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "INTERVAL",
    "TIMESTAMP",
    "OVER",
    "PARTITION BY",
    "DESC",
    "ASC",
    "INSERT INTO",
    "VALUES",
    "DELETE FROM",
    "EXPLAIN",
    "EXPLAIN ANALYZE",
    "EXPLAIN EXPIRY FOR",
    "CREATE COLLECTION",
    "CREATE TTL INDEX",
    "CREATE VIEW",
    "DROP COLLECTION",
    "DROP TTL INDEX",
    "CREATE INDEX",
    "DROP INDEX",
    "ALTER COLLECTION",
    "RENAME TO",
    "RENAME FIELD",
    "DROP FIELD",
    "COPY COLLECTION",
    "ALTER TTL INDEX",
    "EXPIRE AFTER",
    "EXPIRE OFF",
    "SECONDS",
    "MINUTES",
    "HOURS",
    "DAYS",
    "WEEKS",
    "SHOW COLLECTIONS",
    "SHOW TTL",
    "SHOW INDEXES",
    "SHOW BUCKETS FOR",
    "SHOW OPERATIONS",
    "SHOW SWEEPS",
    "SHOW PARAMETERS",
    "SHOW TABLES",
    "SET PARAMETER",
    "SWEEP",
    "FLUSH",
    "COMPACT",
    "DESCRIBE",
    "PIVOT",
    "SUMMARIZE",
    "UNPIVOT",
    "timeField",
    "metaField",
];

/// The words that can be completed and highlighted.
#[derive(Default)]
pub(super) struct Assistant {
    names: Vec<String>,
    /// Of these, what can follow FROM.
    collections: Vec<String>,
    functions: HashSet<String>,
    keywords: HashSet<&'static str>,
    colour: bool,
}

impl Assistant {
    pub(super) fn new(colour: bool) -> Self {
        let keywords = WORDS.iter().flat_map(|w| w.split(' ')).collect();
        Assistant { colour, keywords, ..Assistant::default() }
    }

    /// Reads the current names from the session.
    pub(super) fn refresh(&mut self, session: Option<&Session>) {
        self.names = WORDS.iter().copied().chain(commands::names()).map(str::to_owned).collect();
        let Some(session) = session else { return };
        self.collections = session.table_names();
        self.collections.extend(ebbtide_query::system::TABLES.iter().map(|t| format!("ebbtide.{t}")));
        self.collections.extend(ebbtide_query::TABLE_FUNCTIONS.map(str::to_owned));
        self.names.extend(self.collections.iter().cloned());
        for snapshot in session.snapshots() {
            for name in snapshot.collections() {
                if let Ok(collection) = snapshot.collection(&name) {
                    for field in collection.schema().arrow().fields() {
                        members(&mut self.names, "", field);
                    }
                }
            }
            for name in snapshot.document_collections() {
                if let Ok(collection) = snapshot.documents(&name) {
                    self.names.extend(collection.columns().iter().map(|column| column.name.clone()));
                }
            }
        }
        let functions = session.function_names().into_iter();
        self.functions = functions.chain(ebbtide_query::TABLE_FUNCTIONS.map(str::to_owned)).collect();
        self.names.extend(self.functions.iter().cloned());
        self.names.sort();
        self.names.dedup();
    }
}

/// A field and, if it is an object, its members, as written in a statement.
fn members(names: &mut Vec<String>, before: &str, field: &Field) {
    let path = format!("{before}{}", field.name());
    if let DataType::Struct(inner) = field.data_type() {
        for field in inner {
            members(names, &format!("{path}."), field);
        }
    }
    names.push(path);
}

/// Whether a collection's name is expected next.
fn names_collection(before: &str) -> bool {
    let last = before.split_whitespace().next_back().unwrap_or_default().to_uppercase();
    [
        "FROM",
        "JOIN",
        "INTO",
        "FOR",
        "COLLECTION",
        "COMPACT",
        "DESCRIBE",
        "SUMMARIZE",
        "PIVOT",
        "UNPIVOT",
        "\\D",
        "\\DT",
        ".SCHEMA",
    ]
    .contains(&last.as_str())
}

impl Assistant {
    /// A name as it is inserted into the line: keywords in the user's case, and with what follows if it is the only
    /// candidate.
    fn written(&self, name: &str, typed: &str, only: bool) -> String {
        let word = WORDS.contains(&name) && name.chars().all(|c| c.is_uppercase() || c == ' ');
        let text = if word && !typed.chars().any(char::is_uppercase) { name.to_lowercase() } else { name.to_owned() };
        match only {
            true if self.functions.contains(name) => format!("{text}("),
            true if word => format!("{text} "),
            _ => text,
        }
    }
}

impl Completer for Assistant {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = line.get(..at).unwrap_or(line);
        let outside = |c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.' | '\\'));
        let start = before.char_indices().rfind(|(_, c)| outside(*c)).map_or(0, |(i, c)| i + c.len_utf8());
        let word = before.get(start..).unwrap_or_default().to_lowercase();
        if word.is_empty() {
            return Ok((at, Vec::new()));
        }
        // Commands are only valid at the beginning.
        let fits = |n: &&String| n.to_lowercase().starts_with(&word) && (start == 0 || !n.starts_with(['.', '\\']));
        let names = if names_collection(&before[..start]) { &self.collections } else { &self.names };
        let candidates: Vec<&String> = names.iter().filter(fits).collect();
        let only = candidates.len() == 1;
        let typed = before.get(start..).unwrap_or_default();
        let pair = |name: &String| Pair { display: name.clone(), replacement: self.written(name, typed, only) };
        Ok((start, candidates.into_iter().map(pair).collect()))
    }
}

impl Validator for Assistant {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let text = context.input();
        let own = text.trim_start().starts_with(['.', '\\']) || matches!(text.trim(), "" | "help" | "exit" | "quit");
        if own || !statement::is_incomplete(text) {
            return Ok(ValidationResult::Valid(None));
        }
        Ok(ValidationResult::Incomplete)
    }
}

impl Hinter for Assistant {
    type Hint = String;
}

impl Highlighter for Assistant {
    fn highlight<'l>(&self, line: &'l str, _: usize) -> Cow<'l, str> {
        if !self.colour || line.starts_with(['.', '\\']) {
            return Cow::Borrowed(line);
        }
        Cow::Owned(highlight::paint(line, |word| match word.to_uppercase() {
            upper if self.keywords.contains(upper.as_str()) => Some(highlight::Word::Keyword),
            _ if self.functions.contains(&word.to_lowercase()) => Some(highlight::Word::Function),
            _ => None,
        }))
    }

    fn highlight_char(&self, _: &str, _: usize, kind: CmdKind) -> bool {
        self.colour && kind != CmdKind::MoveCursor
    }
}

impl Helper for Assistant {}

#[cfg(test)]
mod tests;
