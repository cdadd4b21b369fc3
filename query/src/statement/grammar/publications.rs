//! Statements about published tables.

use super::super::parser::Parser;
use super::super::{StatementKind, SyntaxError};
use datafusion::sql::sqlparser::tokenizer::Token;
use serde_json::{Map, json};

impl Parser<'_> {
    /// `PUBLISH c TO 'URL' [EVERY 1 MINUTE]`.
    pub(super) fn publish(&mut self) -> Result<StatementKind, SyntaxError> {
        self.next = 1;
        let collection = self.name("a collection")?;
        self.need_word("TO")?;
        let Some(Token::SingleQuotedString(url)) = self.peek() else {
            return Err(self.error(format!("expected the URL of a table in single quotes, found {}", self.found())));
        };
        let to = ("to".to_owned(), json!(url));
        let mut document = Map::from_iter([("publish".to_owned(), json!(collection)), to]);
        self.next += 1;
        if self.take_word("EVERY") {
            document.insert("everySeconds".to_owned(), self.duration()?);
        }
        Ok(StatementKind::Command { document, done: format!("collection {collection} published"), lenient: false })
    }

    /// `UNPUBLISH c`.
    pub(super) fn unpublish(&mut self) -> Result<StatementKind, SyntaxError> {
        self.next = 1;
        let collection = self.name("a collection")?;
        let document = Map::from_iter([("unpublish".to_owned(), json!(collection))]);
        let done = format!("collection {collection} is not published any more; its table stays");
        Ok(StatementKind::Command { document, done, lenient: false })
    }
}
