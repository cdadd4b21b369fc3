//! Statements about indexes.

use super::super::StatementKind;
use super::super::error::SyntaxError;
use super::super::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use ebbtide_ttl::Code;
use serde_json::{Map, Value, json};

impl Parser<'_> {
    /// `CREATE TTL INDEX i ON c (path) EXPIRE AFTER ...` and `CREATE INDEX i ON c (path, ...)`.
    pub(super) fn create_index(&mut self, is_ttl: bool) -> Result<StatementKind, SyntaxError> {
        self.next = 1;
        self.next += usize::from(is_ttl);
        self.need_word("INDEX")?;
        let index = self.name("the new index")?;
        self.need_word("ON")?;
        let collection = self.name("a collection")?;
        let document = Map::from_iter([
            ("createIndexes".to_owned(), json!(collection)),
            ("indexes".to_owned(), json!([self.index_spec(&index, is_ttl)?])),
        ]);
        let kind = if is_ttl { "TTL index" } else { "index" };
        Ok(StatementKind::Command { document, done: format!("{kind} {index} created on {collection}"), lenient: false })
    }

    /// What follows the name of the collection when an index is made.
    fn index_spec(&mut self, index: &str, is_ttl: bool) -> Result<Map<String, Value>, SyntaxError> {
        let mut key = Map::new();
        self.list(|p| {
            let field = p.path(if is_ttl { "the time field" } else { "a field" })?;
            let descending = p.take_word("DESC");
            if !descending {
                p.take_word("ASC");
            }
            if key.contains_key(&field) {
                return Err(p.error(format!("field '{field}' is given twice")));
            }
            key.insert(field, json!(if descending { -1 } else { 1 }));
            Ok(())
        })?;
        let mut spec = Map::from_iter([("key".to_owned(), Value::Object(key)), ("name".to_owned(), json!(index))]);
        loop {
            if is_ttl && !spec.contains_key("expireAfterSeconds") && self.take_word("EXPIRE") {
                self.need_word("AFTER")?;
                spec.insert("expireAfterSeconds".to_owned(), self.duration()?);
                self.expire_into(&mut spec)?;
            } else if is_ttl && !spec.contains_key("partialFilterExpression") && self.take_word("WHERE") {
                spec.insert("partialFilterExpression".to_owned(), self.predicate()?);
            } else if self.at_end() && is_ttl == spec.contains_key("expireAfterSeconds") {
                return Ok(spec);
            } else if is_ttl {
                return Err(self.expected(&["EXPIRE AFTER", "WHERE"]));
            } else if self.is_word("EXPIRE") {
                return Err(self.error("EXPIRE AFTER makes a TTL index: write CREATE TTL INDEX"));
            } else if self.is_word("WHERE") {
                let what = "WHERE has no effect on an index that expires nothing: leave it out; with CREATE TTL INDEX it says \
                            which documents expire";
                return Err(SyntaxError { code: Code::CannotCreateIndex, ..self.error(what) });
            } else {
                return Err(self.error(format!("expected the end of the statement, found {}", self.found())));
            }
        }
    }

    /// `INDEX i ON c` of the statements about TTL indexes.
    fn index_on(&mut self) -> Result<(String, String), SyntaxError> {
        self.next = 2;
        self.need_word("INDEX")?;
        let index = self.name("an index")?;
        self.need_word("ON")?;
        Ok((index, self.name("a collection")?))
    }

    /// Whether the statement goes on with `ON`, as Ebbtide's own statements about indexes do.
    pub(super) fn names_a_collection(&self) -> bool {
        let is_on = |token: &Token| matches!(token, Token::Word(w) if w.value.eq_ignore_ascii_case("ON"));
        self.piece.tokens.get(3).is_some_and(|token| is_on(&token.token))
    }

    pub(super) fn drop_index(&mut self, is_ttl: bool) -> Result<StatementKind, SyntaxError> {
        let (index, collection) = if is_ttl {
            self.index_on()?
        } else {
            self.next = 2;
            let index = self.name("an index")?;
            self.need_word("ON")?;
            (index, self.name("a collection")?)
        };
        let kind = if is_ttl { "TTL index" } else { "index" };
        let document =
            Map::from_iter([("dropIndexes".to_owned(), json!(collection)), ("index".to_owned(), json!(index))]);
        Ok(StatementKind::Command { document, done: format!("{kind} {index} dropped"), lenient: false })
    }

    pub(super) fn alter_index(&mut self) -> Result<StatementKind, SyntaxError> {
        let (index, collection) = self.index_on()?;
        self.need_word("EXPIRE")?;
        self.need_word("AFTER")?;
        let mut change = Map::from_iter([("name".to_owned(), json!(index))]);
        change.insert("expireAfterSeconds".to_owned(), self.duration()?);
        self.expire_into(&mut change)?;
        let document =
            Map::from_iter([("collMod".to_owned(), json!(collection)), ("index".to_owned(), Value::Object(change))]);
        Ok(StatementKind::Command { document, done: format!("TTL index {index} changed"), lenient: false })
    }
}
