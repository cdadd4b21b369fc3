//! Parses Ebbtide's own statements: collections, TTL indexes, listings and maintenance. Everything else is SQL for
//! DataFusion.
//!
//! Parsing only checks the form of a statement. What a statement may say (which options exist, what an index may filter
//! on) is checked by the engine: statements become the same command documents that programs send.

pub(crate) mod error;
mod grammar;
pub(crate) mod lexer;
mod parameterized;
mod parsed;
mod parser;
mod pivot;
mod predicate;
#[cfg(test)]
mod tests;
mod values;

pub use error::SyntaxError;
pub use lexer::is_incomplete;
pub(crate) use parameterized::{OpenQuery, ParameterizedQuery};
pub use parsed::{Statement, parse};
pub use pivot::Pivot;

use serde_json::{Map, Value};

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

impl StatementKind {
    /// Whether DataFusion runs it, at least in part.
    pub(crate) fn is_query(&self) -> bool {
        use StatementKind::{CreateAs, Describe, Pivot, Show, Sql, Summarize};
        matches!(self, Sql | Show(_) | CreateAs(_) | Pivot(_) | Summarize(_) | Describe(_))
    }
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
