//! Retentions, and the options of a collection.

use super::super::error::SyntaxError;
use super::super::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use ebbtide::{REFUSED_OPTIONS, TIMESERIES_OPTIONS, suggest};
use ebbtide_ttl::{Code, parse_retention, unit_seconds};
use serde_json::{Map, Value, json};

/// Options of a collection that are lengths of time.
const DURATIONS: [&str; 4] = ["expireAfterSeconds", "defaultTTL", "graceSeconds", "keepSeconds"];
/// Options of a collection that are not in `timeseries`.
const OTHER_OPTIONS: [&str; 7] =
    ["expireAfterSeconds", "defaultTTL", "graceSeconds", "maxBytes", "handOff", "expireInto", "keepSeconds"];

impl Parser<'_> {
    /// A retention in seconds: `n UNIT`, `INTERVAL 'n UNIT'`, a text of that form, or ISO 8601's `P10Y`. A number that
    /// is not a whole number of seconds in range is left to the engine to refuse.
    pub(super) fn duration(&mut self) -> Result<Value, SyntaxError> {
        let interval = self.take_word("INTERVAL");
        match self.peek() {
            Some(Token::Minus | Token::Number(..)) => self.amount(),
            Some(Token::SingleQuotedString(text)) => {
                let mut text = text.clone();
                if let (true, Some(Token::Word(unit))) = (interval, self.peek_second())
                    && unit_seconds(&unit.value).is_some()
                {
                    text = format!("{text} {}", unit.value);
                    let seconds = self.retention(&text)?;
                    self.next += 1;
                    return Ok(seconds);
                }
                self.retention(&text)
            }
            Some(Token::Word(w)) if w.value.eq_ignore_ascii_case("OFF") => {
                Err(self.error("OFF stands alone: EXPIRE OFF"))
            }
            Some(Token::Word(w))
                if w.value.starts_with(['P', 'p']) && w.value.contains(|c: char| c.is_ascii_digit()) =>
            {
                self.retention(&w.value.clone())
            }
            _ => {
                Err(self
                    .error(format!("expected a length of time such as 30 DAYS or 10 YEARS, found {}", self.found())))
            }
        }
    }

    /// Whether the next tokens are a retention with a unit, not a plain value.
    fn is_retention(&self) -> bool {
        match self.peek() {
            Some(Token::Number(..)) => matches!(self.peek_second(), Some(Token::Word(_))),
            Some(Token::SingleQuotedString(text)) => parse_retention(text).is_ok(),
            _ => self.is_word("INTERVAL"),
        }
    }

    /// A retention that the current token holds as text.
    fn retention(&mut self, text: &str) -> Result<Value, SyntaxError> {
        let seconds = parse_retention(text).map_err(|e| SyntaxError { code: e.code, ..self.error(e.message) })?;
        self.next += 1;
        Ok(json!(seconds))
    }

    /// `n UNIT` in seconds.
    fn amount(&mut self) -> Result<Value, SyntaxError> {
        let amount = self.literal()?;
        let seconds = match self.peek() {
            Some(Token::Word(w)) => unit_seconds(&w.value),
            _ => None,
        };
        let Some(seconds) = seconds else {
            if self.is_word("MONTH") || self.is_word("MONTHS") {
                return Err(self.error("a month has no fixed length; write it in days"));
            }
            return Err(self.expected(&["SECONDS", "MINUTES", "HOURS", "DAYS", "WEEKS", "YEARS"]));
        };
        self.next += 1;
        #[expect(clippy::cast_precision_loss, reason = "a number of seconds in a year")]
        let product = match amount.as_i64().map(|n| n.checked_mul(seconds)) {
            Some(Some(whole)) => json!(whole),
            _ => json!(amount.as_f64().unwrap_or(f64::MAX) * seconds as f64),
        };
        Ok(product)
    }

    /// `ITEMS [AFTER 30 MINUTES | OFF]` as the value of `defaultTTL`.
    pub(super) fn expire_items(&mut self) -> Result<Value, SyntaxError> {
        self.need_word("ITEMS")?;
        if self.take_word("OFF") {
            return Ok(json!("off"));
        }
        if self.take_word("AFTER") { self.duration() } else { Ok(json!(-1)) }
    }

    /// `INTO 'URL'` behind a retention, and how long what is moved there is kept.
    pub(super) fn expire_into(&mut self, document: &mut Map<String, Value>) -> Result<(), SyntaxError> {
        if !self.take_word("INTO") {
            return Ok(());
        }
        let Some(Token::SingleQuotedString(url)) = self.peek() else {
            return Err(self.error(format!("expected the URL of an archive in single quotes, found {}", self.found())));
        };
        if document.insert("expireInto".to_owned(), json!(url)).is_some() {
            return Err(self.error("the archive is given twice: INTO and expireInto"));
        }
        self.next += 1;
        if self.take_word("KEEP") {
            let keep = if self.take_word("OFF") { json!("off") } else { self.duration()? };
            if document.insert("keepSeconds".to_owned(), keep).is_some() {
                return Err(self.error("how long the archive keeps is given twice: KEEP and keepSeconds"));
            }
        }
        Ok(())
    }

    /// Refuses an option that no collection has. What MongoDB has is left to the engine, which says why it is refused.
    pub(super) fn check_option(&self, key: &str) -> Result<(), SyntaxError> {
        let known = || TIMESERIES_OPTIONS.iter().copied().chain(OTHER_OPTIONS);
        if known().any(|known| known == key) || REFUSED_OPTIONS.contains(&key) {
            return Ok(());
        }
        let message = format!("unknown option '{key}'; a collection has {}", known().collect::<Vec<_>>().join(", "));
        Err(SyntaxError { code: Code::IDLUnknownField, line: 0, ..self.error(message) })
    }

    /// `(key = value, ...)`, with keys in their canonical spelling.
    pub(super) fn options(&mut self) -> Result<Vec<(String, Value)>, SyntaxError> {
        let mut options = Vec::new();
        self.list(|p| {
            options.push(p.option(&options)?);
            Ok(())
        })?;
        Ok(options)
    }

    /// `key = value`, with the key in its canonical spelling. `given` are the options before it.
    pub(super) fn option(&mut self, given: &[(String, Value)]) -> Result<(String, Value), SyntaxError> {
        let place = self.next;
        let key = match self.peek() {
            Some(Token::SingleQuotedString(text)) => {
                let text = text.clone();
                self.next += 1;
                text
            }
            _ => self.name("an option")?,
        };
        let known = TIMESERIES_OPTIONS.iter().copied().chain(OTHER_OPTIONS);
        let plain = |s: &str| s.replace('_', "").to_lowercase();
        let key = match known.clone().find(|k| plain(k) == plain(&key)) {
            Some(known) => known.to_owned(),
            None => {
                if let Some(near) = suggest::nearest(&key, known) {
                    self.next = place;
                    let error = self.error(format!("unknown option '{key}'; did you mean {near}?"));
                    return Err(SyntaxError { code: Code::IDLUnknownField, ..error });
                }
                key
            }
        };
        if given.iter().any(|(k, _)| *k == key) {
            self.next = place;
            return Err(self.error(format!("option {key} is given twice")));
        }
        self.need(&Token::Eq)?;
        let value = match self.peek() {
            _ if DURATIONS.contains(&key.as_str()) && self.is_retention() => self.duration()?,
            Some(Token::Word(w)) if !matches!(w.value.to_uppercase().as_str(), "TRUE" | "FALSE" | "NULL") => {
                let text = w.value.clone();
                self.next += 1;
                Value::String(text)
            }
            _ => self.literal()?,
        };
        Ok((key, value))
    }
}
