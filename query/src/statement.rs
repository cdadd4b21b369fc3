//! Parses Ebbtide's own statements: collections, TTL indexes, listings and maintenance. Everything else is SQL for
//! DataFusion.
//!
//! Parsing only checks the form of a statement. What a statement may say (which options exist, what an index may filter
//! on) is checked by the engine: statements become the same command documents that programs send.

mod grammar;
pub(crate) mod lexer;
mod parser;
mod pivot;
mod predicate;
#[cfg(test)]
mod tests;
mod values;

pub use lexer::is_incomplete;
pub use pivot::Pivot;

use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan};
use ebbtide_ttl::Code;
use serde_json::{Map, Value};
use std::fmt;

/// A syntax error, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    /// [`Code::FailedToParse`], or [`Code::IDLUnknownField`] for an option that does not exist.
    pub code: Code,
    /// What is wrong and, if it can be guessed, what was meant.
    pub message: String,
    /// Line in the whole text, counted from 1; 0 if unknown.
    pub line: u64,
    /// Column in that line in characters, counted from 1.
    pub column: u64,
    /// The text of that line.
    pub source: String,
}

impl SyntaxError {
    /// An error at a position in a text.
    pub(crate) fn at(text: &str, location: Location, message: impl Into<String>) -> Self {
        let line = usize::try_from(location.line.saturating_sub(1)).unwrap_or(usize::MAX);
        let source = text.lines().nth(line).unwrap_or_default().to_owned();
        let (line, column) = (location.line, location.column);
        SyntaxError { code: Code::FailedToParse, message: message.into(), line, column, source }
    }

    /// The same error, with its position in the text that a statement was cut from.
    pub(crate) fn shifted(mut self, whole: &str, line: u64, column: u64) -> Self {
        if self.line == 0 {
            return self;
        }
        if self.line == 1 {
            self.column += column;
        }
        self.line += line;
        let index = usize::try_from(self.line - 1).unwrap_or(usize::MAX);
        if let Some(source) = whole.lines().nth(index) {
            source.clone_into(&mut self.source);
        }
        self
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return f.write_str(&self.message);
        }
        write!(f, "{} (line {}, column {})", self.message, self.line, self.column)?;
        // Long lines are cut around the position, so that the caret stays on the screen.
        let column = usize::try_from(self.column.saturating_sub(1)).unwrap_or(0);
        let from = column.saturating_sub(50);
        let shown: String = self.source.chars().skip(from).take(74).map(|c| if c == '\t' { ' ' } else { c }).collect();
        write!(f, "\n  {}\n  {}^", shown.trim_end(), " ".repeat(column - from))
    }
}

/// One statement of a text.
#[derive(Debug, Clone)]
pub struct Statement {
    /// The statement as it was typed, without its semicolon.
    pub text: String,
    /// What it asks for.
    pub kind: StatementKind,
    pub(crate) tokens: Vec<TokenWithSpan>,
    /// White space and comments between the tokens, each with the number of tokens before it.
    spaces: Vec<(usize, TokenWithSpan)>,
    pub(crate) line: u64,
    pub(crate) column: u64,
}

impl Statement {
    /// What it begins with, in capitals: its first word, or two words after CREATE, ALTER and DROP.
    #[must_use]
    pub fn first_words(&self) -> String {
        let words = self.tokens.iter().map_while(|token| match &token.token {
            Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_uppercase()),
            _ => None,
        });
        let words: Vec<String> = words.take(2).collect();
        match words.first().map(String::as_str) {
            Some("CREATE" | "ALTER" | "DROP") => words.join(" "),
            first => first.unwrap_or_default().to_owned(),
        }
    }

    /// Its tokens with white space and comments, as a tokenizer returns them.
    pub(crate) fn all_tokens(&self) -> Vec<TokenWithSpan> {
        let mut all = Vec::with_capacity(self.tokens.len() + self.spaces.len());
        let mut spaces = self.spaces.iter().peekable();
        for (at, token) in self.tokens.iter().enumerate() {
            all.push(token.clone());
            while let Some((_, space)) = spaces.next_if(|(before, _)| *before == at + 1) {
                all.push(space.clone());
            }
        }
        all
    }
}

/// What a statement asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum StatementKind {
    /// SQL for DataFusion.
    Sql,
    /// A command document for the engine.
    Command {
        /// The document.
        document: Map<String, Value>,
        /// Shown after success.
        done: String,
        /// Succeed without doing anything if the collection already exists (`IF NOT EXISTS`) or does not exist (`IF
        /// EXISTS`).
        lenient: bool,
    },
    /// `SHOW ...`: a listing.
    Show(Listing),
    /// `CREATE COLLECTION c ... AS SELECT ...`, and `CREATE TABLE c AS SELECT ...`.
    CreateAs(Box<CreateAs>),
    /// `COPY COLLECTION c TO d`, `ALTER COLLECTION c RENAME FIELD a TO b`, `ALTER COLLECTION c DROP FIELD a`.
    Alter {
        /// The collection.
        collection: String,
        /// What happens to it.
        change: Alteration,
    },
    /// `PIVOT` or `UNPIVOT`.
    Pivot(Box<Pivot>),
    /// `SUMMARIZE` of a table's name or a query in parentheses.
    Summarize(String),
    /// `DESCRIBE c`.
    Describe(String),
    /// `EXPLAIN EXPIRY FOR c [AT t] [WITH (...)]`.
    ExplainExpiry {
        /// The collection.
        collection: String,
        /// The instant to start from; now if `None`.
        at: Option<String>,
        /// Rules to assume instead of the current ones; empty for the current ones.
        proposed: Map<String, Value>,
    },
    /// `SWEEP`.
    Sweep,
    /// `FLUSH`.
    Flush,
    /// `COMPACT [c]`.
    Compact(Option<String>),
}

/// A collection that is made of a query's rows.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateAs {
    /// The command document that makes the collection, without what the rows are to decide.
    pub document: Map<String, Value>,
    /// Success without a row if the collection exists already.
    pub lenient: bool,
    /// The query.
    pub query: String,
}

/// A change of a collection for which there is no command document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Alteration {
    /// A field gets another name.
    RenameField {
        /// The name now.
        from: String,
        /// The name afterwards.
        to: String,
    },
    /// A field goes, with its values.
    DropField(String),
    /// Another collection of this name gets the same options, rules and visible measurements.
    Copy(String),
}

/// What `SHOW` lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listing {
    /// Every collection.
    Collections,
    /// All TTL rules, or those of one collection.
    Ttl(Option<String>),
    /// All indexes, or those of one collection.
    Indexes(Option<String>),
    /// The buckets of a collection.
    Buckets(String),
    /// Operations in progress.
    Operations,
    /// Every legal hold, active or lifted.
    Holds,
    /// Every rung of every ladder.
    Ladders,
    /// Every published collection.
    Publications,
    /// Recent drops by the sweeper.
    Sweeps,
    /// The sweeper's parameters.
    Parameters,
    /// All functions, or those whose name matches a pattern.
    Functions(Option<String>),
    /// Everything that can be selected from: collections, views, tables of the session and system tables.
    Tables,
}

/// Splits a text into statements and parses those that are Ebbtide's own.
///
/// # Errors
/// The first syntax error, with its position. Errors in the SQL that DataFusion runs are found when it is planned.
pub fn parse(text: &str) -> Result<Vec<Statement>, SyntaxError> {
    lexer::split(text)?
        .into_iter()
        .map(|piece| {
            let kind = grammar::parse(&piece).map_err(|e| e.shifted(text, piece.line, piece.column))?;
            let lexer::Piece { text, line, column, tokens, spaces } = piece;
            Ok(Statement { text, kind, tokens, spaces, line, column })
        })
        .collect()
}
