//! `WHERE` of a TTL index and of a hold: a predicate over the meta field, turned into the filter document that programs send. Which
//! operators and fields are allowed is checked by the engine.

use super::error::SyntaxError;
use super::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use ebbtide_ttl::Code;
use serde_json::{Value, json};

/// Maximum number of parentheses around a condition: each takes a level of the stack here and in the engine.
const DEPTH_MAX: usize = 50;

impl Parser<'_> {
    /// A field name, with dots before members.
    pub(super) fn path(&mut self, what: &str) -> Result<String, SyntaxError> {
        let mut path = self.name(what)?;
        while self.take(&Token::Period) {
            path.push('.');
            path.push_str(&self.name("a member")?);
        }
        Ok(path)
    }

    /// Conditions joined by OR.
    pub(super) fn predicate(&mut self) -> Result<Value, SyntaxError> {
        let mut parts = vec![self.conjunction()?];
        while self.take_word("OR") {
            parts.push(self.conjunction()?);
        }
        Ok(join("$or", parts))
    }

    fn conjunction(&mut self) -> Result<Value, SyntaxError> {
        let mut parts = vec![self.condition()?];
        while self.take_word("AND") {
            parts.push(self.condition()?);
        }
        Ok(join("$and", parts))
    }

    fn condition(&mut self) -> Result<Value, SyntaxError> {
        if self.depth == DEPTH_MAX {
            return Err(
                self.error(format!("the condition is nested too deeply: more than {DEPTH_MAX} levels of parentheses"))
            );
        }
        self.depth += 1;
        let condition = self.one_condition();
        self.depth -= 1;
        condition
    }

    fn one_condition(&mut self) -> Result<Value, SyntaxError> {
        if self.take(&Token::LParen) {
            let inner = self.predicate()?;
            self.need(&Token::RParen)?;
            return Ok(inner);
        }
        if self.is_word("NOT") {
            return Err(self.negated());
        }
        let path = self.path("the meta field")?;
        if self.take_word("IS") {
            let not = self.take_word("NOT");
            self.need_word("NULL")?;
            return Ok(if not { json!({ path: {"$exists": true} }) } else { json!({ path: null }) });
        }
        if self.is_word("NOT") || self.peek() == Some(&Token::Neq) {
            return Err(self.negated());
        }
        if self.take_word("IN") {
            self.need(&Token::LParen)?;
            let mut values = vec![self.compared()?];
            while self.take(&Token::Comma) {
                values.push(self.compared()?);
            }
            self.need(&Token::RParen)?;
            return Ok(json!({ path: {"$in": values} }));
        }
        if self.take_word("BETWEEN") {
            let low = self.compared()?;
            self.need_word("AND")?;
            let high = self.compared()?;
            return Ok(json!({ path: {"$gte": low, "$lte": high} }));
        }
        let operator = match self.peek() {
            Some(Token::Eq | Token::DoubleEq) => "$eq",
            Some(Token::Lt) => "$lt",
            Some(Token::LtEq) => "$lte",
            Some(Token::Gt) => "$gt",
            Some(Token::GtEq) => "$gte",
            _ => return Err(self.expected(&["=", "<", "<=", ">", ">=", "IN", "BETWEEN", "IS NULL", "IS NOT NULL"])),
        };
        let token = self.peek().cloned();
        if let Some(token) = token {
            self.take(&token);
        }
        let value = self.compared()?;
        Ok(if operator == "$eq" { json!({ path: value }) } else { json!({ path: {operator: value} }) })
    }

    /// The error for a condition that says which values are not meant.
    fn negated(&self) -> SyntaxError {
        let message = "<> and NOT are not possible here: write =, <, <=, >, >=, IN, BETWEEN, IS NULL or IS NOT NULL, joined by \
                       AND and OR";
        SyntaxError { code: Code::CannotCreateIndex, ..self.error(message) }
    }

    /// A literal that is not null.
    fn compared(&mut self) -> Result<Value, SyntaxError> {
        let value = self.literal()?;
        if value.is_null() {
            return Err(self.error("a comparison with NULL is never true; write IS NULL or IS NOT NULL"));
        }
        Ok(value)
    }
}

fn join(operator: &str, mut parts: Vec<Value>) -> Value {
    match parts.len() {
        1 => parts.swap_remove(0),
        _ => json!({ operator: parts }),
    }
}
