//! From the text of a statement to its tree.

use crate::context::StatementContext;
use crate::error::QueryError;
use crate::files;
use crate::functions;
use crate::sql::{self, ParsedStatement, locations_of_names, quote_mixed_case};
use crate::statement::{self, Statement, StatementKind};
use datafusion::common::DataFusionError;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::resolve::resolve_table_references;
use std::cell::LazyCell;
use std::collections::HashSet;

/// Parses a statement for DataFusion.
pub(crate) fn parse(
    statement: &Statement,
    stack: usize,
    context: &StatementContext,
) -> Result<ParsedStatement, Failure> {
    let (parsed, desugared) = parse_first(statement, stack)?;
    // Looked for only where a word of SQL is a name with capitals too.
    let named = LazyCell::new(|| if desugared { HashSet::new() } else { locations_of_names(&parsed) });
    let quoted = quote_mixed_case(context, statement, &parsed, &tree, &|place| named.contains(&place));
    let parsed = if quoted == statement.text {
        parsed
    } else {
        parse_text(&sql::blanked(quoted, statement), statement, stack)?.0
    };
    Ok(sql::prepare(parsed, &statement.text, &statement.tokens)?)
}

/// Parses a statement before names are quoted, and says whether a call was written in another form for it.
fn parse_first(statement: &Statement, stack: usize) -> Result<(DfStatement, bool), Failure> {
    match sql::asks_for_plan(&statement.tokens) {
        true => parse_text(&sql::blanked(statement.text.clone(), statement), statement, stack),
        false => parse_text(&statement.text, statement, stack),
    }
}

fn parse_text(text: &str, statement: &Statement, stack: usize) -> Result<(DfStatement, bool), Failure> {
    let desugared = functions::desugar(text, &statement.tokens).map_err(|e| Failure::Query(e.into()))?;
    let tokens = (desugared.is_none() && text == statement.text).then(|| statement.all_tokens());
    Ok((sql::parse_query(desugared.as_deref().unwrap_or(text), tokens, stack)?, desugared.is_some()))
}

/// The tree of the first statement of a text, as it is parsed before names are quoted.
pub(crate) fn tree(text: &str) -> Option<DfStatement> {
    let statement = statement::parse(text).ok()?.into_iter().next()?;
    let stack = sql::stack_for(&statement.tokens).ok()?;
    let desugared = functions::desugar(&statement.text, &statement.tokens).ok()?;
    sql::parse_query(desugared.as_deref().unwrap_or(&statement.text), None, stack).ok()
}

/// Whether a statement needs no database: it reads files, or nothing at all, or its syntax is wrong, which any session says.
#[must_use]
pub fn reads_only_files(statement: &Statement) -> bool {
    let text = match &statement.kind {
        StatementKind::Sql => statement.text.clone(),
        StatementKind::Summarize(of) => format!("SELECT * FROM {of}"),
        StatementKind::Pivot(pivot) => format!("SELECT * FROM {}", pivot.source()),
        _ => return false,
    };
    let references = || {
        let statement = statement::parse(&text).ok()?.into_iter().next()?;
        let stack = sql::stack_for(&statement.tokens).ok()?;
        let (parsed, _) = parse_first(&statement, stack).ok()?;
        let prepared = sql::prepare(parsed, &statement.text, &statement.tokens).ok()?;
        Some(resolve_table_references(&prepared.statement, true).ok()?.0)
    };
    references().is_none_or(|tables| tables.iter().all(|table| files::is_file(table.table())))
}

/// Why planning or starting a statement failed: in DataFusion, whose error is still to be explained, or with a final
/// message.
#[derive(Debug)]
pub(crate) enum Failure {
    Plan(DataFusionError),
    Query(QueryError),
}

impl From<DataFusionError> for Failure {
    fn from(error: DataFusionError) -> Self {
        Failure::Plan(error)
    }
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        Failure::Query(error)
    }
}
