//! Statements about published tables.

use super::super::parser::Parser;
use super::super::{StatementKind, SyntaxError};
use datafusion::sql::sqlparser::tokenizer::Token;
use serde_json::{Map, json};

impl Parser<'_> {
    /// `PUBLISH c [RUNG 1 HOUR] TO 'URL' [EVERY 1 MINUTE]`.
    pub(super) fn publish(&mut self) -> Result<StatementKind, SyntaxError> {
        self.next = 1;
        let collection = self.name("a collection")?;
        let rung = if self.take_word("RUNG") { Some(self.duration()?) } else { None };
        if rung.is_none() && !self.is_word("TO") {
            return Err(self.expected(&["TO", "RUNG"]));
        }
        self.need_word("TO")?;
        let Some(Token::SingleQuotedString(url)) = self.peek() else {
            return Err(self.error(format!("expected the URL of a table in single quotes, found {}", self.found())));
        };
        let to = ("to".to_owned(), json!(url));
        let mut document = Map::from_iter([("publish".to_owned(), json!(collection)), to]);
        let what = if rung.is_some() { "rung of collection" } else { "collection" };
        document.extend(rung.map(|step| ("rung".to_owned(), step)));
        self.next += 1;
        if self.take_word("EVERY") {
            document.insert("everySeconds".to_owned(), self.duration()?);
        }
        Ok(StatementKind::Command { document, done: format!("{what} {collection} published"), lenient: false })
    }

    /// `UNPUBLISH c [RUNG 1 HOUR]`.
    pub(super) fn unpublish(&mut self) -> Result<StatementKind, SyntaxError> {
        self.next = 1;
        let collection = self.name("a collection")?;
        let mut document = Map::from_iter([("unpublish".to_owned(), json!(collection))]);
        let is_rung = self.take_word("RUNG");
        if is_rung {
            document.insert("rung".to_owned(), self.duration()?);
        }
        let what = if is_rung { "rung of collection" } else { "collection" };
        let done = format!("{what} {collection} is not published any more; its table stays");
        Ok(StatementKind::Command { document, done, lenient: false })
    }
}
