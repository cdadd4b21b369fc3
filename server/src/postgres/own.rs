//! Statements that are about the connection, not about data: transactions, settings, what was prepared, `COPY`.

use super::error::{FEATURE_NOT_SUPPORTED, Refusal, SYNTAX_ERROR};
use super::lexer::{Placed, Token, tokens};
use super::settings::Settings;

/// A statement that is answered without the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Own {
    /// `BEGIN`, with what it says of the transaction.
    Begin {
        tag: &'static str,
        modes: Modes,
    },
    Commit,
    Rollback,
    Savepoint(String),
    Release(String),
    RollbackTo(String),
    /// `SET TRANSACTION`, or the default for those to come.
    SetTransaction {
        modes: Modes,
        is_session: bool,
    },
    Set {
        name: String,
        value: Option<String>,
        is_local: bool,
    },
    /// `RESET`; nothing for all.
    Reset(Option<String>),
    /// `SHOW`; nothing for all.
    Show(Option<String>),
    /// `DEALLOCATE`; nothing for all.
    Deallocate(Option<String>),
    /// `DISCARD ALL`.
    Discard,
    /// `CLOSE ALL`, `UNLISTEN`: there is nothing to close.
    Nothing(&'static str),
}

/// What is said of a transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Modes {
    pub(super) is_read_only: Option<bool>,
}

/// `COPY ... TO STDOUT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Copy {
    /// The query.
    pub(super) query: String,
    pub(super) form: CopyForm,
    pub(super) has_header: bool,
    pub(super) delimiter: Option<char>,
    /// What stands for null.
    pub(super) null: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyForm {
    Text,
    Csv,
    Binary,
}

/// What a text asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    Empty,
    Own(Own),
    Copy(Copy),
    /// Something for the engine.
    Sql,
}

fn unsupported(what: impl Into<String>) -> Refusal {
    Refusal::new(FEATURE_NOT_SUPPORTED, what)
}

fn unexpected(at: Option<&Token<'_>>, expected: &str) -> Refusal {
    let found = at.map_or_else(|| "the end".to_owned(), |token| format!("\"{}\"", token.text()));
    Refusal::new(SYNTAX_ERROR, format!("expected {expected}, found {found}"))
}

/// The tokens of a statement, one after the other.
struct Cursor<'a> {
    text: &'a str,
    tokens: Vec<Placed<'a>>,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn new(text: &'a str) -> Cursor<'a> {
        Cursor { text, tokens: tokens(text).collect(), at: 0 }
    }

    fn peek(&self) -> Option<&Token<'a>> {
        self.tokens.get(self.at).map(|(_, token, _)| token)
    }

    /// Takes these words if they come next.
    fn take(&mut self, words: &str) -> bool {
        let mut at = self.at;
        for word in words.split(' ') {
            if !self.tokens.get(at).is_some_and(|(_, token, _)| token.is(word)) {
                return false;
            }
            at += 1;
        }
        self.at = at;
        true
    }

    fn sign(&mut self, sign: char) -> bool {
        let is_next = self.peek() == Some(&Token::Sign(sign));
        self.at += usize::from(is_next);
        is_next
    }

    /// A name, folded unless it is quoted.
    fn name(&mut self, expected: &str) -> Result<String, Refusal> {
        let name = match self.peek() {
            Some(Token::Word(word)) => word.to_lowercase(),
            Some(Token::Name(name)) => name.clone(),
            other => return Err(unexpected(other, expected)),
        };
        self.at += 1;
        Ok(name)
    }

    fn end(&self) -> Result<(), Refusal> {
        match self.peek() {
            None => Ok(()),
            other => Err(unexpected(other, "the end of the statement")),
        }
    }

    fn ended(self, own: Own) -> Result<Asked, Refusal> {
        self.end().map(|()| Asked::Own(own))
    }

    /// What is left as it was written, of names and values, without quotes.
    fn rest(&mut self) -> String {
        let mut text = String::new();
        let mut end = None;
        for (begin, token, next) in &self.tokens[self.at..] {
            if end.is_some_and(|end| end < *begin) {
                text.push(' ');
            }
            text.push_str(&token.text());
            end = Some(*next);
        }
        self.at = self.tokens.len();
        text
    }

    fn modes(&mut self) -> Result<Modes, Refusal> {
        let mut modes = Modes::default();
        while self.peek().is_some() {
            if self.take("isolation level") {
                let is_same = self.take("read committed") || self.take("read uncommitted");
                if !is_same {
                    let what = format!(
                        "isolation level {}: each statement of a transaction sees one instant, its own (read committed); say \
                         what instant to read at in the statements themselves",
                        self.rest()
                    );
                    return Err(unsupported(what));
                }
            } else if self.take("read only") {
                modes.is_read_only = Some(true);
            } else if self.take("read write") {
                modes.is_read_only = Some(false);
            } else if !(self.take("not deferrable") || self.take("deferrable") || self.sign(',')) {
                return Err(unexpected(self.peek(), "a mode of transactions"));
            }
        }
        Ok(modes)
    }
}

/// What a statement asks for.
pub(super) fn asked(text: &str) -> Result<Asked, Refusal> {
    let mut cursor = Cursor::new(text);
    let Some(Token::Word(first)) = cursor.peek() else {
        return Ok(if cursor.peek().is_none() { Asked::Empty } else { Asked::Sql });
    };
    match first.to_ascii_lowercase().as_str() {
        "begin" | "start" | "commit" | "end" | "rollback" | "abort" | "savepoint" | "release" => transaction(cursor),
        "set" => set(cursor),
        "reset" => reset(cursor),
        "show" => show(cursor),
        "deallocate" => deallocate(cursor),
        "discard" => {
            cursor.take("discard");
            if !cursor.take("all") {
                return Err(unsupported("of DISCARD there is DISCARD ALL"));
            }
            cursor.ended(Own::Discard)
        }
        "close" if cursor.take("close all") => cursor.ended(Own::Nothing("CLOSE CURSOR ALL")),
        "unlisten" => Ok(Asked::Own(Own::Nothing("UNLISTEN"))),
        "listen" | "notify" => Err(unsupported("there are no notifications here")),
        "declare" | "fetch" | "move" | "close" => {
            let what = "there are no cursors of SQL here: rows are streamed, and a driver that fetches some at a time does so by \
                        the protocol";
            Err(unsupported(what))
        }
        "copy" => copy(cursor),
        _ => Ok(Asked::Sql),
    }
}

fn transaction(mut cursor: Cursor<'_>) -> Result<Asked, Refusal> {
    if cursor.take("start") {
        if !cursor.take("transaction") {
            return Err(unexpected(cursor.peek(), "TRANSACTION"));
        }
        return Ok(Asked::Own(Own::Begin { tag: "START TRANSACTION", modes: cursor.modes()? }));
    }
    if cursor.take("begin") {
        let _optional = cursor.take("work") || cursor.take("transaction");
        return Ok(Asked::Own(Own::Begin { tag: "BEGIN", modes: cursor.modes()? }));
    }
    if cursor.take("savepoint") {
        let name = cursor.name("a name")?;
        return cursor.ended(Own::Savepoint(name));
    }
    if cursor.take("release") {
        cursor.take("savepoint");
        let name = cursor.name("a name")?;
        return cursor.ended(Own::Release(name));
    }
    let is_commit = cursor.take("commit") || cursor.take("end");
    if !is_commit {
        let _either = cursor.take("rollback") || cursor.take("abort");
    }
    if cursor.take("prepared") {
        return Err(unsupported("there are no prepared transactions here"));
    }
    let _optional = cursor.take("work") || cursor.take("transaction");
    if !is_commit && cursor.take("to") {
        cursor.take("savepoint");
        let name = cursor.name("a name")?;
        return cursor.ended(Own::RollbackTo(name));
    }
    if cursor.take("and") && !cursor.take("no chain") {
        return Err(unsupported("AND CHAIN is not known here: say BEGIN"));
    }
    cursor.ended(if is_commit { Own::Commit } else { Own::Rollback })
}

fn set(mut cursor: Cursor<'_>) -> Result<Asked, Refusal> {
    cursor.take("set");
    if cursor.take("session characteristics as transaction") {
        return Ok(Asked::Own(Own::SetTransaction { modes: cursor.modes()?, is_session: true }));
    }
    if cursor.take("transaction") {
        return Ok(Asked::Own(Own::SetTransaction { modes: cursor.modes()?, is_session: false }));
    }
    let is_local = cursor.take("local");
    if !is_local && cursor.take("session") && !matches!(cursor.peek(), Some(Token::Word(_) | Token::Name(_))) {
        return Err(unexpected(cursor.peek(), "a parameter"));
    }
    let name = if cursor.take("time zone") { "timezone".to_owned() } else { cursor.name("a parameter")? };
    // Those with a dot are the engine's.
    if !Settings::is_known(&name) && matches!(cursor.peek(), Some(Token::Sign('.'))) {
        return Ok(Asked::Sql);
    }
    let _optional = cursor.sign('=') || cursor.take("to");
    if cursor.peek().is_none() {
        return Err(unexpected(None, "a value"));
    }
    let is_default =
        matches!(cursor.tokens[cursor.at..], [(_, Token::Word(word), _)] if word.eq_ignore_ascii_case("default"));
    let value = (!is_default).then(|| cursor.rest());
    Ok(Asked::Own(Own::Set { name, value, is_local }))
}

fn reset(mut cursor: Cursor<'_>) -> Result<Asked, Refusal> {
    cursor.take("reset");
    if cursor.take("all") {
        return cursor.ended(Own::Reset(None));
    }
    let name = if cursor.take("time zone") { "timezone".to_owned() } else { cursor.name("a parameter")? };
    match cursor.peek() {
        Some(Token::Sign('.')) => Ok(Asked::Sql),
        _ => cursor.ended(Own::Reset(Some(name))),
    }
}

fn show(mut cursor: Cursor<'_>) -> Result<Asked, Refusal> {
    cursor.take("show");
    if cursor.take("all") && cursor.peek().is_none() {
        return Ok(Asked::Own(Own::Show(None)));
    }
    let name = cursor.rest();
    Ok(if Settings::is_known(&name) { Asked::Own(Own::Show(Some(name))) } else { Asked::Sql })
}

fn deallocate(mut cursor: Cursor<'_>) -> Result<Asked, Refusal> {
    cursor.take("deallocate");
    cursor.take("prepare");
    if cursor.take("all") {
        return cursor.ended(Own::Deallocate(None));
    }
    let name = cursor.name("a name")?;
    cursor.ended(Own::Deallocate(Some(name)))
}

fn copy(mut cursor: Cursor<'_>) -> Result<Asked, Refusal> {
    cursor.take("copy");
    // `COPY COLLECTION a TO b` is a statement of the engine; `COPY collection TO ...` copies a table of that name.
    if let [(_, first, _), (_, Token::Word(_) | Token::Name(_), _), ..] = &cursor.tokens[cursor.at..]
        && first.is("collection")
        && !(cursor.tokens[cursor.at + 1].1.is("to") || cursor.tokens[cursor.at + 1].1.is("from"))
    {
        return Ok(Asked::Sql);
    }
    let query = if cursor.sign('(') {
        let (_, _, begin) = cursor.tokens[cursor.at - 1];
        let mut depth = 1_usize;
        while depth > 0 {
            match cursor.peek() {
                Some(Token::Sign('(')) => depth += 1,
                Some(Token::Sign(')')) => depth -= 1,
                Some(_) => {}
                None => return Err(unexpected(None, "the query's closing parenthesis")),
            }
            cursor.at += 1;
        }
        let (end, _, _) = cursor.tokens[cursor.at - 1];
        cursor.text[begin..end].to_owned()
    } else {
        copied_table(&mut cursor)?
    };
    if cursor.take("from") {
        let what =
            "COPY ... FROM is not known here: write with INSERT, with line protocol, or with POST /collections/NAME";
        return Err(unsupported(what));
    }
    if !(cursor.take("to stdout")) {
        return Err(unsupported(
            "COPY writes to STDOUT alone: statements that come over the network use no files of the server",
        ));
    }
    cursor.take("with");
    let mut copy = Copy { query, form: CopyForm::Text, has_header: false, delimiter: None, null: None };
    let is_list = cursor.sign('(');
    while cursor.peek().is_some() && !(is_list && cursor.sign(')')) {
        copy_option(&mut cursor, &mut copy, is_list)?;
        cursor.sign(',');
    }
    cursor.end()?;
    Ok(Asked::Copy(copy))
}

/// `t` or `t (a, b)` as a query.
fn copied_table(cursor: &mut Cursor<'_>) -> Result<String, Refusal> {
    let begin = cursor.tokens.get(cursor.at).map_or(0, |(begin, _, _)| *begin);
    let mut end = begin;
    while let Some((_, token, next)) = cursor.tokens.get(cursor.at)
        && !(token.is("to") || token.is("from") || *token == Token::Sign('('))
    {
        (end, cursor.at) = (*next, cursor.at + 1);
    }
    let table = &cursor.text[begin..end];
    if !cursor.sign('(') {
        return Ok(format!("SELECT * FROM {table}"));
    }
    let from = end;
    while let Some((_, token, next)) = cursor.tokens.get(cursor.at) {
        let is_last = *token == Token::Sign(')');
        (end, cursor.at) = (*next, cursor.at + 1);
        if is_last {
            break;
        }
    }
    let columns = cursor.text[from..end].trim().trim_start_matches('(').trim_end_matches(')');
    Ok(format!("SELECT {columns} FROM {table}"))
}

/// One option; in the form without parentheses, HEADER has no value, and AS may come before other values.
fn copy_option(cursor: &mut Cursor<'_>, copy: &mut Copy, is_list: bool) -> Result<(), Refusal> {
    let option = cursor.name("an option of COPY")?;
    let value = |cursor: &mut Cursor<'_>| {
        let _optional = !is_list && cursor.take("as");
        match cursor.peek().cloned() {
            Some(Token::Sign(_)) | None => Err(unexpected(cursor.peek(), "a value")),
            Some(token) => {
                cursor.at += 1;
                Ok(token.text())
            }
        }
    };
    match option.as_str() {
        "csv" => copy.form = CopyForm::Csv,
        "binary" => copy.form = CopyForm::Binary,
        "format" => {
            copy.form = match value(cursor)?.to_ascii_lowercase().as_str() {
                "text" => CopyForm::Text,
                "csv" => CopyForm::Csv,
                "binary" => CopyForm::Binary,
                other => return Err(unsupported(format!("COPY has the formats text, csv and binary, not {other}"))),
            }
        }
        "header" => {
            let is_bare = !is_list || matches!(cursor.peek(), None | Some(Token::Sign(_)));
            copy.has_header = is_bare || !matches!(value(cursor)?.as_str(), "false" | "off" | "0");
        }
        "delimiter" => {
            let text = value(cursor)?;
            let mut chars = text.chars();
            copy.delimiter = chars.next().filter(|c| c.is_ascii() && chars.next().is_none());
            if copy.delimiter.is_none() {
                return Err(unsupported("COPY delimiter must be a single one-byte character"));
            }
        }
        "null" => copy.null = Some(value(cursor)?),
        "encoding" => {
            let _utf8 = value(cursor)?;
        }
        "quote" | "escape" => {
            let text = value(cursor)?;
            if text != "\"" {
                return Err(unsupported(format!("COPY quotes with \" alone, not with {text}")));
            }
        }
        other => return Err(unsupported(format!("the option {other} of COPY is not known here"))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(text: &str) -> Own {
        match asked(text).unwrap() {
            Asked::Own(own) => own,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn statements_of_a_connection_are_told_from_those_for_the_engine() {
        for text in [
            "SELECT 1",
            "show collections",
            "SHOW TTL",
            "set ebbtide.fast_paths = false",
            "(select 1)",
            "COMPACT w",
            "copy collection a to b",
            "COPY COLLECTION \"to\" TO b",
            "end_of_day()",
        ] {
            assert_eq!(asked(text).unwrap(), Asked::Sql, "{text}");
        }
        assert_eq!(asked("  -- nothing\n").unwrap(), Asked::Empty);
        let read_only = |is_read_only| Modes { is_read_only };
        for (text, expected) in [
            ("begin", Own::Begin { tag: "BEGIN", modes: read_only(None) }),
            (
                "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY",
                Own::Begin { tag: "BEGIN", modes: read_only(Some(true)) },
            ),
            (
                "start transaction read write, not deferrable",
                Own::Begin { tag: "START TRANSACTION", modes: read_only(Some(false)) },
            ),
            ("COMMIT WORK", Own::Commit),
            ("end", Own::Commit),
            ("rollback and no chain", Own::Rollback),
            ("ROLLBACK TO SAVEPOINT \"A\"", Own::RollbackTo("A".to_owned())),
            ("release A", Own::Release("a".to_owned())),
            (
                "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
                Own::SetTransaction { modes: read_only(Some(true)), is_session: true },
            ),
            (
                "set local statement_timeout to '5s'",
                Own::Set { name: "statement_timeout".to_owned(), value: Some("5s".to_owned()), is_local: true },
            ),
            (
                "SET DateStyle = ISO, MDY",
                Own::Set { name: "datestyle".to_owned(), value: Some("ISO, MDY".to_owned()), is_local: false },
            ),
            (
                "set time zone 'UTC'",
                Own::Set { name: "timezone".to_owned(), value: Some("UTC".to_owned()), is_local: false },
            ),
            (
                "set session application_name to default",
                Own::Set { name: "application_name".to_owned(), value: None, is_local: false },
            ),
            ("SHOW transaction isolation level", Own::Show(Some("transaction isolation level".to_owned()))),
            ("show all", Own::Show(None)),
            ("reset all", Own::Reset(None)),
            ("DEALLOCATE PREPARE p1", Own::Deallocate(Some("p1".to_owned()))),
            ("UNLISTEN *", Own::Nothing("UNLISTEN")),
        ] {
            assert_eq!(own(text), expected, "{text}");
        }
        for text in [
            "BEGIN ISOLATION LEVEL SERIALIZABLE",
            "LISTEN x",
            "COMMIT PREPARED 'x'",
            "DECLARE c CURSOR FOR SELECT 1",
            "commit and chain",
        ] {
            assert_eq!(asked(text).unwrap_err().state, FEATURE_NOT_SUPPORTED, "{text}");
        }
    }

    #[test]
    fn copies_are_queries_with_a_form() {
        let of = |text| match asked(text) {
            Ok(Asked::Copy(copy)) => copy,
            other => panic!("{text}: {other:?}"),
        };
        let copy = of("COPY (SELECT ')' , (1) FROM w) TO STDOUT WITH (FORMAT csv, HEADER, DELIMITER ';', NULL 'x')");
        assert_eq!(copy.query, "SELECT ')' , (1) FROM w");
        assert_eq!(
            (copy.form, copy.has_header, copy.delimiter, copy.null.as_deref()),
            (CopyForm::Csv, true, Some(';'), Some("x"))
        );
        assert_eq!(of("copy public.\"W\" to stdout (format 'binary')").query, "SELECT * FROM public.\"W\"");
        assert_eq!(of("copy w (a, \"B\") to stdout csv header").query, "SELECT a, \"B\" FROM w");
        let copy = of("COPY (SELECT 1) TO STDOUT CSV HEADER DELIMITER AS ';' NULL AS 'NA' QUOTE '\"'");
        assert_eq!(
            (copy.form, copy.has_header, copy.delimiter, copy.null.as_deref()),
            (CopyForm::Csv, true, Some(';'), Some("NA"))
        );
        assert_eq!(of("copy collection to stdout").query, "SELECT * FROM collection");
        assert!(!of("copy w to stdout with (header false, format text)").has_header);
        for text in ["copy w from stdin", "copy w to '/tmp/x'", "copy w to stdout (quote 'x')"] {
            assert_eq!(asked(text).unwrap_err().state, FEATURE_NOT_SUPPORTED, "{text}");
        }
        assert_eq!(asked("copy (select 1 to stdout").unwrap_err().state, SYNTAX_ERROR);
    }
}
