//! Statements about holds.

use super::super::StatementKind;
use super::super::error::SyntaxError;
use super::super::parser::Parser;
use serde_json::{Map, json};

impl Parser<'_> {
    /// `CREATE HOLD h ON c [WHERE ...] [FROM t] [TO t] REASON '...'`.
    pub(super) fn create_hold(&mut self) -> Result<StatementKind, SyntaxError> {
        self.next = 2;
        let name = self.name("the new hold")?;
        self.need_word("ON")?;
        let collection = self.name("a collection")?;
        let mut document =
            Map::from_iter([("createHold".to_owned(), json!(name)), ("collection".to_owned(), json!(collection))]);
        loop {
            let (option, value) = if self.take_word("WHERE") {
                ("filter", self.predicate()?)
            } else if self.take_word("FROM") {
                ("from", self.literal()?)
            } else if self.take_word("TO") {
                ("to", self.literal()?)
            } else if self.take_word("REASON") {
                ("reason", self.literal()?)
            } else if self.at_end() && document.contains_key("reason") {
                break;
            } else if self.at_end() {
                return Err(self.error("REASON is missing: say why this is kept, as in REASON 'court order 42'"));
            } else {
                return Err(self.expected(&["WHERE", "FROM", "TO", "REASON"]));
            };
            if document.insert(option.to_owned(), value).is_some() {
                return Err(self.error(format!("{option} is given twice")));
            }
        }
        Ok(StatementKind::Command { document, done: format!("hold {name} made on {collection}"), lenient: false })
    }

    /// `DROP HOLD h`.
    pub(super) fn drop_hold(&mut self) -> Result<StatementKind, SyntaxError> {
        self.next = 2;
        let name = self.name("a hold")?;
        let document = Map::from_iter([("dropHold".to_owned(), json!(name))]);
        Ok(StatementKind::Command { document, done: format!("hold {name} lifted"), lenient: false })
    }
}
