//! Statements about collections.

use super::super::error::SyntaxError;
use super::super::parser::Parser;
use super::super::{Alteration, CreateAs, StatementKind};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;
use ebbtide::TIMESERIES_OPTIONS;
use serde_json::{Map, Value, json};

impl Parser<'_> {
    pub(super) fn create_collection(&mut self) -> Result<StatementKind, SyntaxError> {
        self.next = 2;
        let lenient = self.take_word("IF");
        if lenient {
            self.need_word("NOT")?;
            self.need_word("EXISTS")?;
        }
        let name = self.name("the new collection")?;
        let mut document = Map::from_iter([("create".to_owned(), json!(name))]);
        let mut series = Map::new();
        let (mut expire, mut items) = (None, None);
        loop {
            if self.take_word("WITH") {
                for (key, value) in self.options()? {
                    self.check_option(&key)?;
                    let object = if TIMESERIES_OPTIONS.contains(&key.as_str()) { &mut series } else { &mut document };
                    if object.contains_key(&key) {
                        return Err(self.error(format!("option {key} is given twice")));
                    }
                    object.insert(key, value);
                }
            } else if self.is_word("EXPIRE") {
                if expire.is_some() {
                    return Err(self.error("expiry is given twice"));
                }
                self.next += 1;
                if self.is_word("ITEMS") {
                    if items.replace(self.expire_items()?).is_some() {
                        return Err(self.error("expiry is given twice"));
                    }
                    continue;
                }
                if !self.take_word("AFTER") {
                    return Err(self.expected(&["AFTER", "ITEMS"]));
                }
                expire = Some(self.duration()?);
                self.expire_into(&mut document)?;
            } else if self.at_end() || self.is_word("AS") {
                break;
            } else {
                return Err(self.expected(&["WITH", "EXPIRE", "AS"]));
            }
        }
        if let Some(items) = items
            && document.insert("defaultTTL".to_owned(), items).is_some()
        {
            return Err(self.error("expiry is given twice: EXPIRE ITEMS and defaultTTL"));
        }
        // Without anything of a time series it is an ordinary collection.
        let is_series = expire.is_some() || document.contains_key("expireAfterSeconds");
        if !series.is_empty() || is_series || self.is_word("AS") {
            document.insert("timeseries".to_owned(), Value::Object(series));
        }
        if let Some(seconds) = expire {
            if document.contains_key("expireAfterSeconds") {
                return Err(self.error("expiry is given twice: EXPIRE AFTER and expireAfterSeconds"));
            }
            document.insert("expireAfterSeconds".to_owned(), seconds);
        }
        if self.is_word("AS") {
            let query = self.query_behind_as()?;
            return Ok(StatementKind::CreateAs(Box::new(CreateAs { document, lenient, query })));
        }
        Ok(StatementKind::Command { document, done: format!("collection {name} created"), lenient })
    }

    /// `CREATE TABLE c AS SELECT ...`; other forms are left to SQL.
    pub(super) fn create_table(&mut self) -> Result<Option<StatementKind>, SyntaxError> {
        self.next = 2;
        let lenient = self.take_word("IF") && self.take_word("NOT") && self.take_word("EXISTS");
        let Ok(name) = self.name("the new collection") else { return Ok(None) };
        if !self.is_word("AS") {
            return Ok(None);
        }
        let document =
            Map::from_iter([("create".to_owned(), json!(name)), ("timeseries".to_owned(), Value::Object(Map::new()))]);
        let query = self.query_behind_as()?;
        Ok(Some(StatementKind::CreateAs(Box::new(CreateAs { document, lenient, query }))))
    }

    /// Takes the rest of the statement, behind AS.
    fn query_behind_as(&mut self) -> Result<String, SyntaxError> {
        self.next += 1;
        let Some(query) = self.rest().map(str::to_owned) else {
            return Err(self.error("expected a query after AS, found the end of the statement"));
        };
        self.next = self.piece.tokens.len();
        Ok(query)
    }

    pub(super) fn drop_collection(&mut self) -> Result<StatementKind, SyntaxError> {
        self.next = 2;
        let lenient = self.take_word("IF");
        if lenient {
            self.need_word("EXISTS")?;
        }
        let name = self.name("a collection")?;
        let document = Map::from_iter([("drop".to_owned(), json!(name))]);
        Ok(StatementKind::Command { document, done: format!("collection {name} dropped"), lenient })
    }

    pub(super) fn alter_collection(&mut self) -> Result<StatementKind, SyntaxError> {
        self.next = 2;
        let name = self.name("a collection")?;
        if self.is_word("ADD") {
            return Err(self.error("fields need no declaration: the first measurement that has a field adds it"));
        }
        if self.take_word("DROP") {
            let field = self.field()?;
            return Ok(StatementKind::Alter { collection: name, change: Alteration::DropField(field) });
        }
        if self.is_word("RENAME") && !matches!(self.peek_second(), Some(Token::Word(w)) if w.keyword == Keyword::TO) {
            self.next += 1;
            let from = self.field()?;
            self.need_word("TO")?;
            let to = self.path("the field")?;
            return Ok(StatementKind::Alter { collection: name, change: Alteration::RenameField { from, to } });
        }
        if self.take_word("RENAME") {
            self.next += 1;
            let Some(Token::Word(_)) = self.peek() else {
                return Err(self.error(format!("expected the new name of {name}, found {}", self.found())));
            };
            let new = self.name("a collection")?;
            let document =
                Map::from_iter([("renameCollection".to_owned(), json!(name)), ("to".to_owned(), json!(new))]);
            let done = format!("collection {name} is named {new} now");
            return Ok(StatementKind::Command { document, done, lenient: false });
        }
        let mut document = Map::from_iter([("collMod".to_owned(), json!(name))]);
        if self.at_end() {
            return Err(self.expected(&[
                "EXPIRE AFTER",
                "EXPIRE OFF",
                "SET",
                "RENAME TO",
                "RENAME FIELD",
                "DROP FIELD",
            ]));
        }
        let mut series = Map::new();
        while !self.at_end() {
            if !document.contains_key("expireAfterSeconds") && self.take_word("EXPIRE") {
                if self.is_word("ITEMS") {
                    let items = self.expire_items()?;
                    if document.insert("defaultTTL".to_owned(), items).is_some() {
                        return Err(self.error("expiry is given twice"));
                    }
                    continue;
                }
                let value = if self.take_word("OFF") {
                    json!("off")
                } else if self.take_word("AFTER") {
                    self.duration()?
                } else {
                    return Err(self.expected(&["AFTER", "OFF", "ITEMS"]));
                };
                document.insert("expireAfterSeconds".to_owned(), value);
                self.expire_into(&mut document)?;
            } else if self.take_word("SET") {
                if self.is_word("RETENTION") {
                    return Err(self.error("write EXPIRE AFTER 30 DAYS or EXPIRE OFF"));
                }
                let is_list = self.peek() == Some(&Token::LParen);
                for (key, value) in if is_list { self.options()? } else { vec![self.option(&[])?] } {
                    self.check_option(&key)?;
                    if TIMESERIES_OPTIONS.contains(&key.as_str()) {
                        series.insert(key, value);
                    } else {
                        document.insert(key, value);
                    }
                }
            } else {
                return Err(self.expected(&["EXPIRE", "SET", "RENAME", "DROP"]));
            }
        }
        if !series.is_empty() {
            document.insert("timeseries".to_owned(), Value::Object(series));
        }
        Ok(StatementKind::Command { document, done: format!("collection {name} changed"), lenient: false })
    }

    /// `[FIELD | COLUMN] a`.
    fn field(&mut self) -> Result<String, SyntaxError> {
        // A field may be called so too.
        let is_word = self.is_word("FIELD") || self.is_word("COLUMN");
        let is_name = matches!(self.peek_second(), Some(Token::Word(w)) if w.keyword != Keyword::TO);
        self.next += usize::from(is_word && is_name);
        self.path("a field")
    }
}
