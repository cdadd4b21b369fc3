//! What a statement does to a database, for those who let only some users do it.

use super::{Session, StatementKind};
use crate::parsing::{parse, tree};
use crate::sql::{self, ParsedStatement};
use crate::statement::Statement;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::tokenizer::Token;

/// What a statement needs to be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// It reads, or changes the session alone.
    Read,
    /// It inserts, updates or deletes measurements or documents.
    Write,
    /// It creates, drops or renames collections or views, changes rules, ladders, holds or parameters, writes files, or does the
    /// work of the background.
    Administer,
}

impl Session {
    /// What a statement needs to be allowed. One that cannot be parsed needs [`Access::Read`]: it changes nothing.
    #[must_use]
    pub fn access(&self, statement: &Statement) -> Access {
        match &statement.kind {
            StatementKind::Sql if self.is_known_query(statement) => Access::Read,
            StatementKind::Sql => {
                let needed = |parsed: &DfStatement| of_sql(parsed).max(self.of_executed(parsed));
                self.parsed(statement, needed).unwrap_or(Access::Read)
            }
            StatementKind::Show(_)
            | StatementKind::Pivot(_)
            | StatementKind::Summarize(_)
            | StatementKind::Describe(_)
            | StatementKind::ExplainExpiry { .. } => Access::Read,
            _ => Access::Administer,
        }
    }

    /// What the prepared statement needs that an EXECUTE runs.
    fn of_executed(&self, statement: &DfStatement) -> Access {
        match statement {
            DfStatement::Explain(explain) => self.of_executed(&explain.statement),
            DfStatement::Statement(parsed) => match parsed.as_ref() {
                ast::Statement::Execute { name: Some(name), .. } if self.kept.writes(name) => Access::Write,
                _ => Access::Read,
            },
            _ => Access::Read,
        }
    }

    /// Whether a statement only reads, so that it may be run again: a query or a listing. One that cannot be parsed does not.
    #[must_use]
    pub fn is_read(&self, statement: &Statement) -> bool {
        match &statement.kind {
            StatementKind::Sql => self.is_known_query(statement) || self.parsed(statement, is_query).unwrap_or(false),
            _ => self.access(statement) == Access::Read,
        }
    }

    /// What is told of a statement for DataFusion, if it can be parsed.
    fn parsed<T>(&self, statement: &Statement, tell: impl FnOnce(&DfStatement) -> T) -> Option<T> {
        let stack = sql::stack_for(&statement.tokens).ok()?;
        sql::with_stack(stack, || {
            let ParsedStatement { statement: parsed, .. } = parse(statement, stack, &self.begin()).ok()?;
            Some(tell(&parsed))
        })
    }
}

/// Whether a statement changes what a database stores, so that it has to be open for writing; a prepared statement counts as one that
/// runs. One that cannot be parsed changes nothing.
#[must_use]
pub fn changes_database(statement: &Statement) -> bool {
    let changes = |parsed: &DfStatement| match parsed {
        DfStatement::Statement(parsed) => match parsed.as_ref() {
            ast::Statement::CreateView(view) => !view.temporary,
            ast::Statement::Drop { object_type: ast::ObjectType::View, .. } => true,
            parsed => of_parsed(parsed) == Access::Write,
        },
        DfStatement::Explain(explain) if explain.options.analyze => of_sql(&explain.statement) == Access::Write,
        _ => false,
    };
    match &statement.kind {
        // The most frequent ones need not be parsed.
        StatementKind::Sql if begins_with(statement, &["SELECT", "FROM", "VALUES", "SET"]) => false,
        StatementKind::Sql if begins_with(statement, &["INSERT", "UPDATE", "DELETE"]) => true,
        StatementKind::Sql => sql::stack_for(&statement.tokens)
            .is_ok_and(|stack| sql::with_stack(stack, || tree(&statement.text).is_some_and(|parsed| changes(&parsed)))),
        StatementKind::Show(_)
        | StatementKind::Pivot(_)
        | StatementKind::Summarize(_)
        | StatementKind::Describe(_)
        | StatementKind::ExplainExpiry { .. } => false,
        _ => true,
    }
}

/// Whether a statement may return rows, as far as can be told before it runs. What an EXECUTE returns is told of the PREPARE.
#[must_use]
pub fn may_return_rows(statement: &Statement) -> bool {
    const WITHOUT_ROWS: [&str; 6] = ["CREATE", "DEALLOCATE", "DROP", "EXECUTE", "RESET", "SET"];
    match &statement.kind {
        StatementKind::Sql if begins_with(statement, &WITHOUT_ROWS) => false,
        StatementKind::Sql => begins_with(statement, &["EXPLAIN"]) || !changes_database(statement),
        StatementKind::Command { .. }
        | StatementKind::CreateAs(_)
        | StatementKind::Alter { .. }
        | StatementKind::Flush
        | StatementKind::Compact(_) => false,
        StatementKind::Show(_)
        | StatementKind::Pivot(_)
        | StatementKind::Summarize(_)
        | StatementKind::Describe(_)
        | StatementKind::ExplainExpiry { .. }
        | StatementKind::Sweep => true,
    }
}

/// Whether a statement is a query or a listing, by its first word: it returns rows unless it fails.
#[must_use]
pub fn returns_rows(statement: &Statement) -> bool {
    match &statement.kind {
        StatementKind::Sql => begins_with(statement, &["SELECT", "FROM", "VALUES"]) && !has_word(statement, "INTO"),
        StatementKind::Show(_)
        | StatementKind::Pivot(_)
        | StatementKind::Summarize(_)
        | StatementKind::Describe(_)
        | StatementKind::ExplainExpiry { .. } => true,
        _ => false,
    }
}

fn has_word(statement: &Statement, known: &str) -> bool {
    statement
        .tokens
        .iter()
        .any(|found| matches!(&found.token, Token::Word(word) if word.value.eq_ignore_ascii_case(known)))
}

fn begins_with(statement: &Statement, words: &[&str]) -> bool {
    match statement.tokens.first().map(|first| &first.token) {
        Some(Token::Word(word)) => words.iter().any(|known| word.value.eq_ignore_ascii_case(known)),
        _ => false,
    }
}

fn is_query(statement: &DfStatement) -> bool {
    match statement {
        DfStatement::Statement(parsed) => match parsed.as_ref() {
            ast::Statement::Query(query) => of_query(query) == Access::Read,
            _ => false,
        },
        _ => false,
    }
}

pub(super) fn of_sql(statement: &DfStatement) -> Access {
    match statement {
        DfStatement::Statement(parsed) => of_parsed(parsed),
        DfStatement::Explain(explain) => of_sql(&explain.statement),
        // COPY TO, which writes a file, among them.
        _ => Access::Administer,
    }
}

pub(super) fn of_parsed(statement: &ast::Statement) -> Access {
    use ast::Statement as Parsed;
    match statement {
        Parsed::Query(query) => of_query(query),
        Parsed::Explain { statement, .. } | Parsed::Prepare { statement, .. } => of_parsed(statement),
        // The session knows what an EXECUTE runs.
        Parsed::Execute { .. } | Parsed::Deallocate { .. } => Access::Read,
        Parsed::Set(_)
        | Parsed::Reset(_)
        | Parsed::ShowVariable { .. }
        | Parsed::ShowVariables { .. }
        | Parsed::ShowTables { .. }
        | Parsed::ShowColumns { .. }
        | Parsed::ShowFunctions { .. }
        | Parsed::ExplainTable { .. }
        | Parsed::StartTransaction { .. }
        | Parsed::Commit { .. }
        | Parsed::Rollback { .. } => Access::Read,
        Parsed::Insert(_) | Parsed::Update(_) | Parsed::Delete(_) | Parsed::Merge(_) | Parsed::Truncate(_) => {
            Access::Write
        }
        _ => Access::Administer,
    }
}

fn of_query(query: &ast::Query) -> Access {
    let with = query.with.iter().flat_map(|with| &with.cte_tables).map(|table| of_query(&table.query));
    with.fold(of_body(&query.body), Access::max)
}

fn of_body(body: &ast::SetExpr) -> Access {
    match body {
        // SELECT INTO makes a table of the session.
        ast::SetExpr::Select(select) if select.into.is_some() => Access::Administer,
        ast::SetExpr::Select(_) | ast::SetExpr::Values(_) | ast::SetExpr::Table(_) => Access::Read,
        ast::SetExpr::Query(query) => of_query(query),
        ast::SetExpr::SetOperation { left, right, .. } => of_body(left).max(of_body(right)),
        ast::SetExpr::Insert(statement) | ast::SetExpr::Update(statement) | ast::SetExpr::Delete(statement) => {
            of_parsed(statement).max(Access::Write)
        }
        _ => Access::Administer,
    }
}
