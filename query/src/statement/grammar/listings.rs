//! `SHOW` and `EXPLAIN EXPIRY`.

use super::super::error::SyntaxError;
use super::super::parser::Parser;
use super::super::{Listing, StatementKind};
use datafusion::sql::sqlparser::tokenizer::Token;
use ebbtide::suggest;
use serde_json::{Map, Value};

/// What `SHOW` lists.
pub(super) const LISTINGS: [&str; 12] = [
    "COLLECTIONS",
    "TTL",
    "INDEXES",
    "BUCKETS",
    "HOLDS",
    "LADDERS",
    "PUBLICATIONS",
    "OPERATIONS",
    "SWEEPS",
    "PARAMETERS",
    "TABLES",
    "FUNCTIONS",
];

/// Whether a word is a typo of one of Ebbtide's listings and not a word of SQL.
pub(super) fn near_listing(word: &str) -> bool {
    let sql = ["TABLES", "COLUMNS", "ALL", "CREATE", "TIME", "VARIABLES", "TIMEZONE"];
    !sql.contains(&word) && suggest::nearest(word, LISTINGS.into_iter().filter(|listing| *listing != "TTL")).is_some()
}

impl Parser<'_> {
    pub(super) fn show(&mut self) -> Result<StatementKind, SyntaxError> {
        self.next = 1;
        let listing = if self.take_word("COLLECTIONS") {
            Listing::Collections
        } else if self.take_word("TTL") {
            Listing::Ttl(if self.take_word("FOR") { Some(self.name("a collection")?) } else { None })
        } else if self.take_word("INDEXES") {
            Listing::Indexes(if self.take_word("FOR") { Some(self.name("a collection")?) } else { None })
        } else if self.take_word("BUCKETS") {
            self.need_word("FOR")?;
            Listing::Buckets(self.name("a collection")?)
        } else if self.take_word("HOLDS") {
            Listing::Holds
        } else if self.take_word("LADDERS") {
            Listing::Ladders
        } else if self.take_word("PUBLICATIONS") {
            Listing::Publications
        } else if self.take_word("OPERATIONS") {
            Listing::Operations
        } else if self.take_word("SWEEPS") {
            Listing::Sweeps
        } else if self.take_word("TABLES") {
            Listing::Tables
        } else if self.take_word("FUNCTIONS") {
            self.take_word("LIKE");
            match self.peek() {
                Some(Token::SingleQuotedString(pattern)) => {
                    let pattern = pattern.clone();
                    self.next += 1;
                    Listing::Functions(Some(pattern))
                }
                Some(Token::Word(_)) => Listing::Functions(Some(self.name("a function")?)),
                _ => Listing::Functions(None),
            }
        } else {
            self.need_word("PARAMETERS")?;
            Listing::Parameters
        };
        Ok(StatementKind::Show(listing))
    }

    pub(super) fn explain_expiry(&mut self) -> Result<StatementKind, SyntaxError> {
        self.next = 2;
        self.need_word("FOR")?;
        let collection = self.name("a collection")?;
        let mut at = None;
        let mut proposed = Map::new();
        loop {
            if at.is_none() && self.take_word("AT") {
                self.take_word("TIMESTAMP");
                at = match self.literal()? {
                    Value::String(text) => Some(text),
                    _ => return Err(self.error("expected a time in quotes")),
                };
            } else if proposed.is_empty() && self.take_word("WITH") {
                proposed = self.options()?.into_iter().collect();
            } else if self.at_end() {
                break;
            } else {
                return Err(self.expected(&["AT", "WITH"]));
            }
        }
        Ok(StatementKind::ExplainExpiry { collection, at, proposed })
    }
}
