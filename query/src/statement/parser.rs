//! The tokens of one statement and what is read of them in many places: words, names, values and lists.

use super::error::SyntaxError;
use super::lexer::{Offsets, Piece};
use datafusion::sql::sqlparser::tokenizer::{Location, Token};
use ebbtide::suggest;
use serde_json::{Value, json};

/// Reads the tokens of a statement from left to right.
pub(super) struct Parser<'a> {
    pub(super) piece: &'a Piece,
    /// The current token.
    pub(super) next: usize,
    /// Number of conditions around the current one.
    pub(super) depth: usize,
}

impl Parser<'_> {
    /// The first words of the statement in upper case; stops at anything else.
    pub(super) fn words(&self, count: usize) -> Vec<String> {
        self.piece
            .tokens
            .iter()
            .take(count)
            .map_while(|t| match &t.token {
                Token::Word(w) if w.quote_style.is_none() => Some(w.value.to_uppercase()),
                _ => None,
            })
            .collect()
    }

    pub(super) fn peek(&self) -> Option<&Token> {
        self.piece.tokens.get(self.next).map(|t| &t.token)
    }

    pub(super) fn peek_second(&self) -> Option<&Token> {
        self.piece.tokens.get(self.next + 1).map(|t| &t.token)
    }

    pub(super) fn at_end(&self) -> bool {
        self.peek().is_none()
    }

    fn place(&self) -> Location {
        match self.piece.tokens.get(self.next) {
            Some(token) => token.span.start,
            None => self.piece.tokens.last().map_or(Location::new(1, 1), |t| t.span.end),
        }
    }

    pub(super) fn error(&self, message: impl Into<String>) -> SyntaxError {
        SyntaxError::at(&self.piece.text, self.place(), message)
    }

    pub(super) fn found(&self) -> String {
        self.peek().map_or("the end of the statement".to_owned(), |t| format!("'{t}'"))
    }

    /// An error that says what is expected here, with a hint if the word found is similar.
    pub(super) fn expected(&self, words: &[&str]) -> SyntaxError {
        let list = match words {
            [one] => (*one).to_owned(),
            [init @ .., last] => format!("{} or {last}", init.join(", ")),
            [] => String::new(),
        };
        let hint = match self.peek() {
            Some(Token::Word(w)) => suggest::nearest(&w.value, words.iter().copied()),
            _ => None,
        };
        let hint = hint.map(|h| format!("; did you mean {h}?")).unwrap_or_default();
        self.error(format!("expected {list}, found {}{hint}", self.found()))
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Token::Word(w)) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
    }

    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.next += usize::from(found);
        found
    }

    pub(super) fn need_word(&mut self, word: &str) -> Result<(), SyntaxError> {
        if self.take_word(word) { Ok(()) } else { Err(self.expected(&[word])) }
    }

    pub(super) fn take(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        self.next += usize::from(found);
        found
    }

    pub(super) fn need(&mut self, token: &Token) -> Result<(), SyntaxError> {
        if self.take(token) { Ok(()) } else { Err(self.expected(&[&format!("'{token}'")])) }
    }

    pub(super) fn end(&self) -> Result<(), SyntaxError> {
        if self.at_end() {
            return Ok(());
        }
        Err(self.error(format!("expected the end of the statement, found {}", self.found())))
    }

    /// A name: a bare or double-quoted word, with its case kept.
    pub(super) fn name(&mut self, what: &str) -> Result<String, SyntaxError> {
        match self.peek() {
            Some(Token::Word(w)) => {
                let name = w.value.clone();
                self.next += 1;
                Ok(name)
            }
            _ => Err(self.error(format!("expected the name of {what}, found {}", self.found()))),
        }
    }

    /// A number, text, true, false or null.
    pub(super) fn literal(&mut self) -> Result<Value, SyntaxError> {
        let negative = self.take(&Token::Minus);
        let value = match self.peek() {
            Some(Token::Number(digits, _)) => number(digits, negative).ok_or_else(|| self.error("not a number"))?,
            Some(Token::SingleQuotedString(text)) if !negative => Value::String(text.clone()),
            Some(Token::Word(w)) if !negative && w.quote_style.is_none() => match w.value.to_uppercase().as_str() {
                "TRUE" => Value::Bool(true),
                "FALSE" => Value::Bool(false),
                "NULL" => Value::Null,
                "TIMESTAMP" | "DATE" => {
                    self.next += 1;
                    let Some(Token::SingleQuotedString(text)) = self.peek() else {
                        return Err(self.error(format!("expected a time in single quotes, found {}", self.found())));
                    };
                    json!({ "$date": text })
                }
                _ => {
                    return Err(
                        self.error(format!("expected a value, found {}; text goes in single quotes", self.found()))
                    );
                }
            },
            _ => return Err(self.error(format!("expected a value, found {}", self.found()))),
        };
        self.next += 1;
        Ok(value)
    }

    /// `(item, ...)`.
    pub(super) fn list(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<(), SyntaxError>,
    ) -> Result<(), SyntaxError> {
        self.need(&Token::LParen)?;
        loop {
            item(self)?;
            if self.take(&Token::RParen) {
                return Ok(());
            }
            if !self.take(&Token::Comma) {
                return Err(self.expected(&["','", "')'"]));
            }
        }
    }

    /// The text from the current token on; `None` at the end.
    pub(super) fn rest(&self) -> Option<&str> {
        let first = self.piece.tokens.get(self.next)?;
        Some(&self.piece.text[Offsets::new(&self.piece.text).of(first.span.start)..])
    }
}

/// A number literal: an integer if it has neither fraction nor exponent and fits, otherwise a double.
fn number(digits: &str, negative: bool) -> Option<Value> {
    let text = if negative { format!("-{digits}") } else { digits.to_owned() };
    text.parse::<i64>().map(Value::from).ok().or_else(|| text.parse::<f64>().ok().map(Value::from))
}
