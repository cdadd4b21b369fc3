//! Statements about ladders.

use super::super::StatementKind;
use super::super::error::SyntaxError;
use super::super::parser::Parser;
use serde_json::{Map, Value, json};

impl Parser<'_> {
    /// `CREATE LADDER ON c (STEP '10 minutes' FOR 90 DAYS, STEP '1 day' FOREVER) [FIELDS (a, b)]`; `ALTER LADDER` gives the whole
    /// new one, and may end with `FORCE`.
    pub(super) fn put_ladder(&mut self) -> Result<StatementKind, SyntaxError> {
        let is_change = self.words(1).first().is_some_and(|word| word == "ALTER");
        self.next = 2;
        self.need_word("ON")?;
        let collection = self.name("a collection")?;
        let mut rungs = Vec::new();
        self.list(|p| {
            p.need_word("STEP")?;
            let step = p.duration()?;
            let life = if p.take_word("FOREVER") {
                Value::Null
            } else if p.take_word("FOR") {
                p.duration()?
            } else {
                return Err(p.expected(&["FOR", "FOREVER"]));
            };
            rungs.push(json!({"step": step, "expireAfterSeconds": life}));
            Ok(())
        })?;
        let mut ladder = Map::from_iter([("rungs".to_owned(), Value::Array(rungs))]);
        if self.take_word("FIELDS") {
            let mut fields = Vec::new();
            self.list(|p| {
                fields.push(json!(p.name("a field")?));
                Ok(())
            })?;
            ladder.insert("fields".to_owned(), Value::Array(fields));
        }
        let force = is_change && self.take_word("FORCE");
        let done = format!("ladder {} on {collection}", if is_change { "changed" } else { "made" });
        Ok(ladder_command(&collection, Value::Object(ladder), force, done))
    }

    /// `DROP LADDER ON c [FORCE]`.
    pub(super) fn drop_ladder(&mut self) -> Result<StatementKind, SyntaxError> {
        self.next = 2;
        self.need_word("ON")?;
        let collection = self.name("a collection")?;
        let force = self.take_word("FORCE");
        Ok(ladder_command(&collection, json!("off"), force, format!("ladder of {collection} dropped")))
    }
}

fn ladder_command(collection: &str, ladder: Value, force: bool, done: String) -> StatementKind {
    let mut document = Map::from_iter([("collMod".to_owned(), json!(collection)), ("ladder".to_owned(), ladder)]);
    if force {
        document.insert("force".to_owned(), json!(true));
    }
    StatementKind::Command { document, done, lenient: false }
}
