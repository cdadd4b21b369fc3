//! The grammar of Ebbtide's own statements, by recursive descent over the tokens of one statement.

use super::lexer::{Offsets, Piece};
use super::{Alteration, CreateAs, Listing, Pivot, StatementKind, SyntaxError};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Location, Token};
use ebbtide::{TIMESERIES_OPTIONS, suggest};
use ebbtide_ttl::{Code, parse_retention, unit_seconds};
use serde_json::{Map, Value, json};

/// Parses one statement.
pub(super) fn parse(piece: &Piece) -> Result<StatementKind, SyntaxError> {
    let mut p = Parser { piece, next: 0, depth: 0 };
    let kind = match p.words(2).as_slice() {
        [a, b] if a == "CREATE" && b == "COLLECTION" => p.create_collection()?,
        [a, b] if a == "CREATE" && (b == "TTL" || b == "INDEX") => p.create_index(b == "TTL")?,
        [a, b] if a == "CREATE" && b == "UNIQUE" => {
            p.next = 1;
            let what = "a unique index is not possible: only the _id of a document is unique; leave UNIQUE out for an index that \
                        finds documents";
            return Err(SyntaxError { code: Code::CannotCreateIndex, ..p.error(what) });
        }
        [a, b] if a == "DROP" && b == "COLLECTION" => p.drop_collection()?,
        [a, b] if a == "DROP" && (b == "TTL" || (b == "INDEX" && p.names_a_collection())) => {
            p.drop_index(b == "TTL")?
        }
        [a, b] if a == "ALTER" && (b == "COLLECTION" || b == "TABLE") => p.alter_collection()?,
        [a, b] if a == "ALTER" && b == "TTL" => p.alter_index()?,
        [a, b] if a == "CREATE" && b == "HOLD" => p.create_hold()?,
        [a, b] if a == "DROP" && b == "HOLD" => {
            p.next = 2;
            let name = p.name("a hold")?;
            let document = Map::from_iter([("dropHold".to_owned(), json!(name))]);
            StatementKind::Command { document, done: format!("hold {name} lifted"), lenient: false }
        }
        [a, b] if (a == "CREATE" || a == "ALTER") && b == "LADDER" => p.put_ladder()?,
        [a, b] if a == "DROP" && b == "LADDER" => p.drop_ladder()?,
        [a, b] if a == "SET" && b == "PARAMETER" => p.set_parameter()?,
        [a, b] if a == "EXPLAIN" && b == "EXPIRY" => p.explain_expiry()?,
        [a, b] if a == "SHOW" && is_listing(b) => p.show()?,
        [a, b] if (a == "CREATE" || a == "DROP" || a == "ALTER") && near_own(b) => {
            p.next = 1;
            return Err(p.expected(&["COLLECTION", "TTL"]));
        }
        [a, b] if a == "SHOW" && near_listing(b) => {
            p.next = 1;
            return Err(p.expected(&[
                "COLLECTIONS",
                "TTL",
                "INDEXES",
                "BUCKETS",
                "HOLDS",
                "LADDERS",
                "OPERATIONS",
                "SWEEPS",
                "PARAMETERS",
                "TABLES",
                "FUNCTIONS",
            ]));
        }
        [a, ..] if a == "SWEEP" => {
            p.next = 1;
            StatementKind::Sweep
        }
        [a, b] if a == "CONFIRM" && b == "CLOCK" => {
            p.next = 2;
            let document = Map::from_iter([("confirmClock".to_owned(), json!(1))]);
            StatementKind::Command { document, done: "the clock is confirmed".to_owned(), lenient: false }
        }
        [a, ..] if a == "FLUSH" => {
            p.next = 1;
            StatementKind::Flush
        }
        [a, ..] if a == "COMPACT" => {
            p.next = 1;
            StatementKind::Compact(if p.at_end() { None } else { Some(p.name("a collection")?) })
        }
        [a, b] if a == "CREATE" && b == "TABLE" => match p.create_table()? {
            Some(create) => return Ok(create),
            None => return Ok(StatementKind::Sql),
        },
        [a, b] if a == "COPY" && b == "COLLECTION" => {
            p.next = 2;
            let collection = p.name("a collection")?;
            p.need_word("TO")?;
            StatementKind::Alter { collection, change: Alteration::Copy(p.name("the new collection")?) }
        }
        [a, ..] if a == "PIVOT" || a == "UNPIVOT" => {
            return Ok(StatementKind::Pivot(Box::new(Pivot::parse(piece, a == "UNPIVOT")?)));
        }
        [a, ..] if a == "SUMMARIZE" || a == "SUMMARISE" => {
            p.next = 1;
            return p.summarized();
        }
        [a, ..] if (a == "DESCRIBE" || a == "DESC") && piece.tokens.len() == 2 && !is_text(piece, 1) => {
            p.next = 1;
            StatementKind::Describe(p.name("a collection")?)
        }
        _ => return Ok(StatementKind::Sql),
    };
    p.end()?;
    Ok(kind)
}

/// Options of a collection that are lengths of time.
const DURATIONS: [&str; 4] = ["expireAfterSeconds", "defaultTTL", "graceSeconds", "keepSeconds"];
/// Options of a collection that are not in `timeseries`.
const OTHER_OPTIONS: [&str; 7] =
    ["expireAfterSeconds", "defaultTTL", "graceSeconds", "maxBytes", "handOff", "expireInto", "keepSeconds"];

/// Whether a token is a text, such as the name of a file.
fn is_text(piece: &Piece, at: usize) -> bool {
    matches!(piece.tokens.get(at).map(|t| &t.token), Some(Token::SingleQuotedString(_)))
}

fn is_listing(word: &str) -> bool {
    matches!(
        word,
        "COLLECTIONS"
            | "TTL"
            | "INDEXES"
            | "BUCKETS"
            | "HOLDS"
            | "LADDERS"
            | "OPERATIONS"
            | "PARAMETERS"
            | "SWEEPS"
            | "TABLES"
            | "FUNCTIONS"
    )
}

/// Whether a word is a typo of one of Ebbtide's listings and not a word of SQL.
fn near_listing(word: &str) -> bool {
    let sql = ["TABLES", "COLUMNS", "ALL", "CREATE", "TIME", "VARIABLES", "TIMEZONE"];
    !sql.contains(&word)
        && suggest::nearest(
            word,
            [
                "COLLECTIONS",
                "INDEXES",
                "BUCKETS",
                "HOLDS",
                "LADDERS",
                "OPERATIONS",
                "PARAMETERS",
                "SWEEPS",
                "TABLES",
                "FUNCTIONS",
            ],
        )
        .is_some()
}

fn near_own(word: &str) -> bool {
    word != "COLLECTION" && suggest::nearest(word, ["COLLECTION"]).is_some()
}

fn ladder_command(collection: &str, ladder: Value, force: bool, done: String) -> StatementKind {
    let mut document = Map::from_iter([("collMod".to_owned(), json!(collection)), ("ladder".to_owned(), ladder)]);
    if force {
        document.insert("force".to_owned(), json!(true));
    }
    StatementKind::Command { document, done, lenient: false }
}

pub(super) struct Parser<'a> {
    piece: &'a Piece,
    next: usize,
    /// Number of conditions around the current one.
    pub(super) depth: usize,
}

impl Parser<'_> {
    /// The first words of the statement in upper case; stops at anything else.
    fn words(&self, count: usize) -> Vec<String> {
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

    fn peek_second(&self) -> Option<&Token> {
        self.piece.tokens.get(self.next + 1).map(|t| &t.token)
    }

    fn at_end(&self) -> bool {
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

    fn found(&self) -> String {
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

    fn end(&self) -> Result<(), SyntaxError> {
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

    /// A retention in seconds: `n UNIT`, `INTERVAL 'n UNIT'`, a text of that form, or ISO 8601's `P10Y`. A number that
    /// is not a whole number of seconds in range is left to the engine to refuse.
    fn duration(&mut self) -> Result<Value, SyntaxError> {
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
            _ => Err(self.error(format!("expected a retention such as 30 DAYS or 10 YEARS, found {}", self.found()))),
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

    /// `(key = value, ...)`, with keys in their canonical spelling.
    fn options(&mut self) -> Result<Vec<(String, Value)>, SyntaxError> {
        self.need(&Token::LParen)?;
        let mut options: Vec<(String, Value)> = Vec::new();
        loop {
            let option = self.option(&options)?;
            options.push(option);
            if self.take(&Token::RParen) {
                return Ok(options);
            }
            if !self.take(&Token::Comma) {
                return Err(self.expected(&["','", "')'"]));
            }
        }
    }

    /// `key = value`, with the key in its canonical spelling. `given` are the options before it.
    fn option(&mut self, given: &[(String, Value)]) -> Result<(String, Value), SyntaxError> {
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

    /// What is summarized: the name of a table, or a query.
    fn summarized(&self) -> Result<StatementKind, SyntaxError> {
        let Some(first) = self.piece.tokens.get(self.next) else {
            return Err(self.error("expected a collection or a query, found the end of the statement"));
        };
        let text = &self.piece.text[Offsets::new(&self.piece.text).of(first.span.start)..];
        let is_query = ["SELECT", "WITH", "FROM", "VALUES"].iter().any(|word| self.is_word(word));
        Ok(StatementKind::Summarize(if is_query { format!("({text})") } else { text.to_owned() }))
    }

    fn create_collection(&mut self) -> Result<StatementKind, SyntaxError> {
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
    fn create_table(&mut self) -> Result<Option<StatementKind>, SyntaxError> {
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
        let Some(first) = self.piece.tokens.get(self.next) else {
            return Err(self.error("expected a query after AS, found the end of the statement"));
        };
        let from = Offsets::new(&self.piece.text).of(first.span.start);
        self.next = self.piece.tokens.len();
        Ok(self.piece.text[from..].to_owned())
    }

    /// `ITEMS [AFTER 30 MINUTES | OFF]` as the value of `defaultTTL`.
    fn expire_items(&mut self) -> Result<Value, SyntaxError> {
        self.need_word("ITEMS")?;
        if self.take_word("OFF") {
            return Ok(json!("off"));
        }
        if self.take_word("AFTER") { self.duration() } else { Ok(json!(-1)) }
    }

    fn drop_collection(&mut self) -> Result<StatementKind, SyntaxError> {
        self.next = 2;
        let lenient = self.take_word("IF");
        if lenient {
            self.need_word("EXISTS")?;
        }
        let name = self.name("a collection")?;
        let document = Map::from_iter([("drop".to_owned(), json!(name))]);
        Ok(StatementKind::Command { document, done: format!("collection {name} dropped"), lenient })
    }

    /// `CREATE TTL INDEX i ON c (path) EXPIRE AFTER ...` and `CREATE INDEX i ON c (path, ...)`.
    fn create_index(&mut self, is_ttl: bool) -> Result<StatementKind, SyntaxError> {
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
        self.need(&Token::LParen)?;
        let mut key = Map::new();
        loop {
            let field = self.path(if is_ttl { "the time field" } else { "a field" })?;
            let descending = self.take_word("DESC");
            if !descending {
                self.take_word("ASC");
            }
            if key.contains_key(&field) {
                return Err(self.error(format!("field '{field}' is given twice")));
            }
            key.insert(field, json!(if descending { -1 } else { 1 }));
            if self.take(&Token::RParen) {
                break;
            }
            if !self.take(&Token::Comma) {
                return Err(self.expected(&["','", "')'"]));
            }
        }
        let mut spec = Map::from_iter([("key".to_owned(), Value::Object(key)), ("name".to_owned(), json!(index))]);
        loop {
            if is_ttl && !spec.contains_key("expireAfterSeconds") && self.take_word("EXPIRE") {
                self.need_word("AFTER")?;
                spec.insert("expireAfterSeconds".to_owned(), self.duration()?);
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
    fn names_a_collection(&self) -> bool {
        let is_on = |token: &Token| matches!(token, Token::Word(w) if w.value.eq_ignore_ascii_case("ON"));
        self.piece.tokens.get(3).is_some_and(|token| is_on(&token.token))
    }

    fn drop_index(&mut self, is_ttl: bool) -> Result<StatementKind, SyntaxError> {
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

    /// `INTO 'URL'` behind a retention, and how long what is moved there is kept.
    fn expire_into(&mut self, document: &mut Map<String, Value>) -> Result<(), SyntaxError> {
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
            let keep = self.duration()?;
            if document.insert("keepSeconds".to_owned(), keep).is_some() {
                return Err(self.error("how long the archive keeps is given twice: KEEP and keepSeconds"));
            }
        }
        Ok(())
    }

    fn alter_index(&mut self) -> Result<StatementKind, SyntaxError> {
        let (index, collection) = self.index_on()?;
        self.need_word("EXPIRE")?;
        self.need_word("AFTER")?;
        let seconds = self.duration()?;
        let document = Map::from_iter([
            ("collMod".to_owned(), json!(collection)),
            ("index".to_owned(), json!({"name": index, "expireAfterSeconds": seconds})),
        ]);
        Ok(StatementKind::Command { document, done: format!("TTL index {index} changed"), lenient: false })
    }

    fn alter_collection(&mut self) -> Result<StatementKind, SyntaxError> {
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

    /// `CREATE HOLD h ON c [WHERE ...] [FROM t] [TO t] REASON '...'`.
    fn create_hold(&mut self) -> Result<StatementKind, SyntaxError> {
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
            } else {
                return Err(self.expected(&["WHERE", "FROM", "TO", "REASON"]));
            };
            if document.insert(option.to_owned(), value).is_some() {
                return Err(self.error(format!("{option} is given twice")));
            }
        }
        Ok(StatementKind::Command { document, done: format!("hold {name} made on {collection}"), lenient: false })
    }

    /// `CREATE LADDER ON c (STEP '10 minutes' FOR 90 DAYS, STEP '1 day' FOREVER) [FIELDS (a, b)]`; `ALTER LADDER` gives the whole
    /// new one, and may end with `FORCE`.
    fn put_ladder(&mut self) -> Result<StatementKind, SyntaxError> {
        let is_change = self.words(1).first().is_some_and(|word| word == "ALTER");
        self.next = 2;
        self.need_word("ON")?;
        let collection = self.name("a collection")?;
        let mut rungs = Vec::new();
        self.need(&Token::LParen)?;
        loop {
            self.need_word("STEP")?;
            let step = self.duration()?;
            let life = if self.take_word("FOREVER") {
                Value::Null
            } else if self.take_word("FOR") {
                self.duration()?
            } else {
                return Err(self.expected(&["FOR", "FOREVER"]));
            };
            rungs.push(json!({"step": step, "expireAfterSeconds": life}));
            if self.take(&Token::RParen) {
                break;
            }
            if !self.take(&Token::Comma) {
                return Err(self.expected(&["','", "')'"]));
            }
        }
        let mut ladder = Map::from_iter([("rungs".to_owned(), Value::Array(rungs))]);
        if self.take_word("FIELDS") {
            self.need(&Token::LParen)?;
            let mut fields = vec![json!(self.name("a field")?)];
            while self.take(&Token::Comma) {
                fields.push(json!(self.name("a field")?));
            }
            self.need(&Token::RParen)?;
            ladder.insert("fields".to_owned(), Value::Array(fields));
        }
        let force = is_change && self.take_word("FORCE");
        let done = format!("ladder {} on {collection}", if is_change { "changed" } else { "made" });
        Ok(ladder_command(&collection, Value::Object(ladder), force, done))
    }

    /// `DROP LADDER ON c [FORCE]`.
    fn drop_ladder(&mut self) -> Result<StatementKind, SyntaxError> {
        self.next = 2;
        self.need_word("ON")?;
        let collection = self.name("a collection")?;
        let force = self.take_word("FORCE");
        Ok(ladder_command(&collection, json!("off"), force, format!("ladder of {collection} dropped")))
    }

    fn set_parameter(&mut self) -> Result<StatementKind, SyntaxError> {
        self.next = 2;
        let name = self.name("a parameter")?;
        if !self.take(&Token::Eq) {
            self.need_word("TO").map_err(|_| self.expected(&["'='"]))?;
        }
        let value = self.literal()?;
        let done = format!("{name} is now {value}");
        let document = Map::from_iter([("setParameter".to_owned(), json!(1)), (name, value)]);
        Ok(StatementKind::Command { document, done, lenient: false })
    }

    fn show(&mut self) -> Result<StatementKind, SyntaxError> {
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

    fn explain_expiry(&mut self) -> Result<StatementKind, SyntaxError> {
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

/// A number literal: an integer if it has neither fraction nor exponent and fits, otherwise a double.
fn number(digits: &str, negative: bool) -> Option<Value> {
    let text = if negative { format!("-{digits}") } else { digits.to_owned() };
    text.parse::<i64>().map(Value::from).ok().or_else(|| text.parse::<f64>().ok().map(Value::from))
}
