//! Why a statement failed: a code for programs to match on and a message for people.

mod signatures;
mod subqueries;
mod tables;

use crate::statement::error::SyntaxError;
use datafusion::common::{DataFusionError, SchemaError};
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan};
use ebbtide::suggest;
use ebbtide_ttl::{Code, RuleError};
use std::fmt;

/// The result of a statement.
pub type Result<T, E = QueryError> = std::result::Result<T, E>;

/// Why a statement failed: a [`Code`] and a message that says what is wrong, where, and what may have been meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryError {
    code: Code,
    message: String,
}

impl QueryError {
    /// Creates an error.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        QueryError { code, message: message.into() }
    }

    /// The kind of error, under MongoDB's name for it where there is one.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// The message for people: what is wrong, where, and what may have been meant.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for QueryError {}

impl From<ebbtide::Error> for QueryError {
    fn from(error: ebbtide::Error) -> Self {
        QueryError::new(error.code(), error.to_string())
    }
}

impl From<RuleError> for QueryError {
    fn from(error: RuleError) -> Self {
        QueryError::new(error.code, error.message)
    }
}

impl From<SyntaxError> for QueryError {
    fn from(error: SyntaxError) -> Self {
        QueryError::new(error.code, error.to_string())
    }
}

impl From<DataFusionError> for QueryError {
    fn from(error: DataFusionError) -> Self {
        Explainer::default().explain(&error)
    }
}

impl From<datafusion::arrow::error::ArrowError> for QueryError {
    fn from(error: datafusion::arrow::error::ArrowError) -> Self {
        DataFusionError::from(error).into()
    }
}

/// Wraps an engine's error to pass it through DataFusion.
pub(crate) fn external(error: ebbtide::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

const KEYWORDS: [&str; 45] = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "ORDER",
    "BY",
    "HAVING",
    "LIMIT",
    "OFFSET",
    "JOIN",
    "LEFT",
    "RIGHT",
    "INNER",
    "FULL",
    "CROSS",
    "UNION",
    "INTERSECT",
    "EXCEPT",
    "WITH",
    "INSERT",
    "INTO",
    "VALUES",
    "DELETE",
    "UPDATE",
    "CREATE",
    "DROP",
    "ALTER",
    "SHOW",
    "DESCRIBE",
    "EXPLAIN",
    "ANALYZE",
    "SWEEP",
    "FLUSH",
    "COMPACT",
    "COLLECTION",
    "DISTINCT",
    "BETWEEN",
    "INTERVAL",
    "TIMESTAMP",
    "COPY",
    "PREPARE",
    "EXECUTE",
    "WINDOW",
    "PARTITION",
    "OVER",
];

/// What functions are called in other databases, and here.
const FOREIGN_NAMES: [(&str, &str); 4] = [
    ("time_bucket_gapfill", "date_bin_gapfill"),
    ("list", "array_agg"),
    ("group_concat", "string_agg"),
    ("listagg", "string_agg"),
];

/// Turns DataFusion's errors into ones that point at a place in the statement and suggest names that exist.
#[derive(Default)]
pub(crate) struct Explainer<'a> {
    /// The whole text of the statements.
    pub(crate) text: &'a str,
    /// Tokens of the failed statement. Their positions are relative to its start at `line` and `column`.
    pub(crate) tokens: &'a [TokenWithSpan],
    pub(crate) statement: &'a str,
    pub(crate) line: u64,
    pub(crate) column: u64,
    /// Tables that exist.
    pub(crate) tables: Vec<String>,
    /// System tables, in the schema `ebbtide`.
    pub(crate) system_tables: &'a [&'a str],
    /// Functions that exist.
    pub(crate) functions: Vec<String>,
    /// Table functions that exist.
    pub(crate) table_functions: Vec<String>,
    /// Members of the objects in collections.
    pub(crate) members: Vec<String>,
}

impl Explainer<'_> {
    /// An error of another crate that went through DataFusion or Arrow.
    fn explain_external(&self, inner: &(dyn std::error::Error + 'static)) -> QueryError {
        if let Some(error) = inner.downcast_ref::<ebbtide::Error>() {
            return QueryError::new(error.code(), error.to_string());
        }
        if let Some(error) = inner.downcast_ref::<QueryError>() {
            return error.clone();
        }
        if let Some(error) = inner.downcast_ref::<DataFusionError>() {
            return self.explain(error);
        }
        QueryError::new(Code::BadValue, inner.to_string())
    }

    pub(crate) fn explain(&self, error: &DataFusionError) -> QueryError {
        match error {
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => self.explain(inner),
            DataFusionError::Shared(inner) => self.explain(inner),
            DataFusionError::Collection(all) if !all.is_empty() => self.explain(&all[0]),
            DataFusionError::External(inner) => self.explain_external(inner.as_ref()),
            DataFusionError::ArrowError(inner, _) => match &**inner {
                datafusion::arrow::error::ArrowError::ExternalError(inner) => self.explain_external(inner.as_ref()),
                other => QueryError::new(Code::BadValue, plain(&other.to_string())),
            },
            DataFusionError::SQL(inner, _) => self.syntax(&inner.to_string()),
            DataFusionError::SchemaError(inner, _) => self.schema(inner),
            DataFusionError::Plan(message) => self.plan(message),
            DataFusionError::ResourcesExhausted(message) => QueryError::new(
                Code::ExceededMemoryLimit,
                format!("the statement ran out of memory: {}; raise --memory or select less", first_line(message)),
            ),
            DataFusionError::NotImplemented(message) => {
                if message.contains("does not support logical expression WindowFunction") {
                    let text = "a function with OVER stands in a condition; write QUALIFY in the place of WHERE, or compute it in the list of an inner query";
                    return QueryError::new(Code::BadValue, text);
                }
                let known = subqueries::in_words(message).map(str::to_owned);
                let what = known.or_else(|| only_growing_frames(message)).unwrap_or_else(|| plain(message));
                QueryError::new(Code::BadValue, format!("not supported: {what}"))
            }
            DataFusionError::Internal(message) => match signatures::in_words(message) {
                Some((name, text)) => self.at_word(Code::BadValue, name, text),
                None => QueryError::new(Code::InternalError, plain(message)),
            },
            other => QueryError::new(Code::BadValue, plain(&other.strip_backtrace())),
        }
    }

    /// The hint for an unknown function, from its name here or in other databases.
    fn function_like(&self, name: &str) -> String {
        let names = self.functions.iter().map(String::as_str).chain(FOREIGN_NAMES.map(|(there, _)| there));
        let near = suggest::nearest(name, names);
        let here =
            near.map(|near| FOREIGN_NAMES.iter().find(|(there, _)| *there == near).map_or(near, |(_, here)| here));
        here.map(|here| format!("; did you mean '{here}'?")).unwrap_or_default()
    }

    /// An error located at the first occurrence of `word` in the statement.
    fn at_word(&self, code: Code, word: &str, message: String) -> QueryError {
        let place = self.tokens.iter().find(|token| is_word(token, word));
        self.at_token(code, place, message)
    }

    /// An error located at the first occurrence of a column's name that is not in a `USING (...)`, which names it for several tables.
    fn at_column(&self, code: Code, name: &str, message: String) -> QueryError {
        let mut before = None;
        // Whether a token is within the parentheses.
        let mut within = false;
        let place = self.tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).find(|token| {
            within = match token.token {
                Token::LParen => within || before.is_some_and(|before| is_word(before, "USING")),
                Token::RParen => false,
                _ => within,
            };
            before = Some(*token);
            !within && is_word(token, name)
        });
        match place {
            Some(_) => self.at_token(code, place, message),
            None => self.at_word(code, name, message),
        }
    }

    fn at_token(&self, code: Code, place: Option<&TokenWithSpan>, message: String) -> QueryError {
        match place {
            Some(token) => QueryError::new(code, self.located(token.span.start, message).to_string()),
            None => QueryError::new(code, message),
        }
    }

    fn located(&self, location: Location, message: String) -> SyntaxError {
        SyntaxError::at(self.statement, location, message).shifted(self.text, self.line, self.column)
    }

    fn syntax(&self, message: &str) -> QueryError {
        let message = message.strip_prefix("sql parser error: ").unwrap_or(message);
        if message.contains("recursion limit exceeded") {
            let message = "the statement is nested too deeply: at most 50 levels of parentheses, calls and subqueries";
            return QueryError::new(Code::FailedToParse, message);
        }
        let Some((text, place)) = message.rsplit_once(" at Line: ") else {
            return QueryError::new(Code::FailedToParse, message);
        };
        let mut numbers = place.split(", Column: ").map(|n| n.trim().parse::<u64>().unwrap_or(1));
        let location = Location::new(numbers.next().unwrap_or(1), numbers.next().unwrap_or(1));
        let text = text.replacen("Expected: ", "expected ", 1).replace("found: EOF", "found the end of the statement");
        let at = self.tokens.iter().position(|t| t.span.start == location);
        // The typo is where the parser stopped or, if that was taken for a name, shortly before it.
        let near = at.and_then(|at| {
            (at.saturating_sub(2)..=at).rev().find_map(|i| match &self.tokens.get(i)?.token {
                Token::Word(w) if !KEYWORDS.contains(&w.value.to_uppercase().as_str()) => {
                    suggest::nearest(&w.value, KEYWORDS)
                }
                _ => None,
            })
        });
        let hint = match near {
            // After a frame; what else may be excluded is parsed.
            _ if text == "expected ), found: EXCLUDE" => {
                "; the frame of a window takes no EXCLUDE: subtract the row in the expression".to_owned()
            }
            Some(keyword) => format!("; did you mean {keyword}?"),
            None => String::new(),
        };
        QueryError::new(Code::FailedToParse, self.located(location, format!("{text}{hint}")).to_string())
    }

    fn schema(&self, error: &SchemaError) -> QueryError {
        match error {
            // The column that a subquery below OR becomes.
            SchemaError::FieldNotFound { field, .. }
                if field.name == "mark"
                    && field.relation.as_ref().is_some_and(|of| of.table().starts_with("__correlated_sq")) =>
            {
                let what = "a subquery with columns of the outer query below OR, in a query with groups; compute the condition in the list \
                            of an inner query";
                QueryError::new(Code::BadValue, format!("not supported: {what}"))
            }
            SchemaError::FieldNotFound { field, valid_fields } => {
                if let Some(table) = &field.relation
                    && !valid_fields.iter().any(|known| {
                        known.name == table.table()
                            || known.relation.as_ref().is_some_and(|of| of.table() == table.table())
                    })
                    && self.is_never_named(table.table())
                {
                    let tables = valid_fields.iter().filter_map(|known| Some(known.relation.as_ref()?.table()));
                    return self.no_table(table.table(), tables);
                }
                let mut names: Vec<&str> = Vec::new();
                for known in valid_fields {
                    if !names.contains(&known.name.as_str()) {
                        names.push(&known.name);
                    }
                }
                let mut message = format!("there is no column '{}'", field.name);
                let hint = suggest::hint(&field.name, names.iter().copied());
                let is_quoted = |t: &TokenWithSpan| matches!(&t.token, Token::Word(w) if w.value == field.name && w.quote_style.is_some());
                if self.tokens.iter().any(is_quoted) {
                    message.push_str(&format!(
                        "; double quotes are for names, text goes in single quotes: '{}'",
                        field.name
                    ));
                } else if !hint.is_empty() {
                    message.push_str(&hint);
                } else if !names.is_empty() {
                    message.push_str(&format!("; available: {}", names.join(", ")));
                }
                self.at_word(Code::BadValue, &field.name, message)
            }
            SchemaError::AmbiguousReference { field } if field.relation.is_none() => {
                let name = &field.name;
                let columns: Vec<String> = tables::named(self.tokens).iter().map(|of| format!("{of}.{name}")).collect();
                let hint = match columns.split_last() {
                    Some((last, others)) if (1..4).contains(&others.len()) => {
                        format!("write which one is meant: {} or {last}", others.join(", "))
                    }
                    _ => "write the name of its table and a dot before it".to_owned(),
                };
                let message = format!("column '{name}' is ambiguous: several tables have it; {hint}");
                self.at_column(Code::BadValue, name, message)
            }
            SchemaError::AmbiguousReference { field } => self.twice(&field.name),
            SchemaError::DuplicateQualifiedField { name, .. } | SchemaError::DuplicateUnqualifiedField { name } => {
                self.twice(name)
            }
        }
    }

    /// Whether a word stands before dots alone.
    fn is_never_named(&self, table: &str) -> bool {
        let mut places = self.tokens.iter().enumerate().filter(|(_, token)| is_word(token, table)).peekable();
        let is_dotted = |at: usize| self.tokens.get(at + 1).is_some_and(|next| next.token == Token::Period);
        places.peek().is_some() && places.all(|(at, _)| is_dotted(at))
    }

    /// An error about a column of a table that FROM does not have.
    fn no_table<'a>(&self, table: &str, tables: impl Iterator<Item = &'a str>) -> QueryError {
        let mut known: Vec<&str> = Vec::new();
        for table in tables {
            if !known.contains(&table) && !table.starts_with("__") {
                known.push(table);
            }
        }
        let hint = suggest::hint(table, known.iter().copied());
        let hint = match (hint.is_empty(), known.is_empty()) {
            (true, false) => format!("; there is {}", known.join(", ")),
            _ => hint,
        };
        self.at_word(Code::BadValue, table, format!("there is no table '{table}' in FROM{hint}"))
    }

    fn twice(&self, name: &str) -> QueryError {
        let message = format!(
            "two columns are called '{name}' where names must differ: in ROLLUP, CUBE, or a query within another one; leave one out, or \
             rename it with AS; or a table is joined with itself: give one of them another name, as in FROM w a JOIN w b"
        );
        self.at_word(Code::BadValue, name, message)
    }

    fn plan(&self, message: &str) -> QueryError {
        if let Some(what) = subqueries::in_words(message) {
            return QueryError::new(Code::BadValue, format!("not supported: {what}"));
        }
        if let Some((name, text)) = signatures::in_words(message) {
            return self.at_word(Code::BadValue, name, text);
        }
        if let Some(rest) = message.strip_prefix("table '")
            && let Some((name, _)) = rest.split_once("' not found")
        {
            let parts: Vec<&str> = name.split('.').collect();
            let (schema, name) = match parts.as_slice() {
                [_, "public", name @ ..] => (None, name.join(".")),
                [_, schema, name @ ..] => (Some(*schema), name.join(".")),
                _ => (None, name.to_owned()),
            };
            let (what, names): (_, Vec<&str>) = match schema {
                Some("ebbtide") => ("system table", self.system_tables.to_vec()),
                Some(_) => ("table", Vec::new()),
                None => ("collection", self.tables.iter().map(String::as_str).collect()),
            };
            let mut text = format!("{what} '{name}' does not exist");
            let hint = suggest::hint(&name, names.iter().copied());
            if !hint.is_empty() {
                text.push_str(&hint);
            } else if names.is_empty() && schema.is_none() {
                text.push_str(
                    "; there are no collections yet: CREATE COLLECTION makes one, and so does ebbtide import",
                );
            } else if (1..=12).contains(&names.len()) {
                text.push_str(&format!("; available: {}", names.join(", ")));
            }
            return self.at_word(Code::NamespaceNotFound, &name, text);
        }
        if let Some(rest) = message.strip_prefix("table function '")
            && let Some((name, _)) = rest.split_once('\'')
        {
            let hint = suggest::hint(name, self.table_functions.iter().map(String::as_str));
            return self.at_word(Code::BadValue, name, format!("there is no table function '{name}'{hint}"));
        }
        if let Some(rest) = message.strip_prefix("Invalid function '")
            && let Some((name, _)) = rest.split_once('\'')
        {
            if self.table_functions.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                return self.at_word(Code::BadValue, name, format!("{name} gives rows; call it after FROM"));
            }
            if self.functions.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                let text = format!("{name} does not take these arguments; SHOW FUNCTIONS {name} says what it is for");
                return self.at_word(Code::BadValue, name, text);
            }
            let hint = self.function_like(name);
            return self.at_word(Code::BadValue, name, format!("there is no function '{name}'{hint}"));
        }
        if let Some(rest) = message.strip_prefix("Field ")
            && let Some(name) = rest.strip_suffix(" not found in struct")
        {
            let hint = suggest::hint(name, self.members.iter().map(String::as_str));
            return self.at_word(Code::BadValue, name, format!("there is no member '{name}'{hint}"));
        }
        if let Some((name, _)) = message.strip_prefix('\'').and_then(|m| m.split_once("' is not a variable")) {
            let known = "COLLECTIONS, TTL, INDEXES, BUCKETS FOR c, HOLDS, LADDERS, PUBLICATIONS, OPERATIONS, SWEEPS, \
                         PARAMETERS, TABLES, FUNCTIONS";
            return QueryError::new(
                Code::BadValue,
                format!("unknown SHOW '{name}'; SHOW takes {known}, or the name of a setting"),
            );
        }
        if let Some((before, _)) = message.split_once("\" must appear in the GROUP BY clause")
            && let Some((_, column)) = before.rsplit_once('"')
        {
            let name = column.rsplit('.').next().unwrap_or(column);
            let text = format!("column '{name}' is neither in GROUP BY nor within an aggregate, such as max({name})");
            return self.at_word(Code::BadValue, name, text);
        }
        if message.contains("comparison operation Timestamp") && message.contains("Int64")
            || message.contains("comparison operation Int64") && message.contains("Timestamp")
        {
            let text = "a time is compared with an integer; write times in single quotes: '2013-06-01'";
            return QueryError::new(Code::BadValue, text);
        }
        let text = plain(coercion(message).unwrap_or(message));
        // The messages of our own functions begin with the function's name.
        let name = text.split([':', '(', ' ']).next().unwrap_or_default().to_owned();
        match self.functions.contains(&name) {
            true => self.at_word(Code::BadValue, &name, text),
            false => QueryError::new(Code::BadValue, text),
        }
    }
}

fn is_word(token: &TokenWithSpan, word: &str) -> bool {
    matches!(&token.token, Token::Word(w) if w.value.eq_ignore_ascii_case(word))
}

/// A function's own message about its arguments, without what DataFusion wraps around it.
fn coercion(message: &str) -> Option<&str> {
    let (_, text) = message.split_once("user-defined coercion failed with: ")?;
    Some(text.split_once(" No function matches the given name").map_or(text, |(text, _)| text).trim_end_matches('.'))
}

/// In the place of an error about an aggregate that cannot forget a value.
fn only_growing_frames(message: &str) -> Option<String> {
    let (_, call) = message.split_once("`retract_batch` is not implemented: ")?;
    let (name, _) = call.split_once('(')?;
    Some(format!(
        "{name} over frames that rows leave; begin the frame with UNBOUNDED PRECEDING, or join each row with those of its frame and \
         group by it"
    ))
}

fn first_line(message: &str) -> &str {
    message.lines().next().unwrap_or_default()
}

/// A message without the prefixes of the layers that it passed through.
fn plain(message: &str) -> String {
    let mut text = message.trim();
    loop {
        let stripped = [
            "Error during planning: ",
            "Execution error: ",
            "Optimizer rule ",
            "Arrow error: ",
            "External error: ",
            "Schema error: ",
            "Parser error: ",
            "type_coercion\ncaused by\n",
            "caused by\n",
            "This feature is not implemented: ",
        ]
        .iter()
        .find_map(|prefix| text.strip_prefix(prefix));
        match stripped {
            Some(rest) => text = rest.trim(),
            None => break,
        }
    }
    let text = text.split("\n\nbacktrace:").next().unwrap_or(text);
    // What precedes this line is about DataFusion's internals.
    let text = text.find("No function matches").map_or(text, |at| &text[at..]);
    if let Some(kind) = text.strip_prefix("Cannot access field at argument 1: type ") {
        let kind = match kind.split_once(" is not Struct").map_or(kind, |(kind, _)| kind) {
            "Utf8" | "Utf8View" | "LargeUtf8" => "a string",
            other => other,
        };
        return format!("only objects have members; the value before the dot is {kind} (DESCRIBE shows types)");
    }
    if let Some((_, rest)) = text.split_once("Error parsing timestamp from '")
        && let Some((given, "timestamp must contain at least 10 characters")) = rest.split_once("': ")
    {
        return format!("'{given}' is not a time; a time needs at least a date: '2013-06-01'");
    }
    if let Some((_, node)) = text.split_once("nsupported ast node ") {
        let what = node.split([' ', '(', '{']).next().unwrap_or_default().to_uppercase();
        return what;
    }
    let mut text = text.to_owned();
    let far_timestamp = text.to_lowercase().starts_with("timestamp ") && text.ends_with(" out of range");
    if far_timestamp || text.contains("representable i64 range") || text.contains("represented as nanoseconds") {
        text.push_str(
            "; functions and conversions that work in nanoseconds only reach from 1677 to 2262: exclude such times with a \
             condition",
        );
    } else if text.starts_with("Unary operator '-' only supports") {
        text.push_str("; swap the sides of a difference of times: b - a is -(a - b)");
    } else if text.contains("to Null not supported") {
        text.push_str("; the meta field has no type before its first value: INSERT that one by itself");
    }
    let mut chars = text.chars();
    match chars.next() {
        Some(first) if chars.clone().next().is_some_and(char::is_lowercase) => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => text,
    }
}
