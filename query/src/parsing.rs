//! From the text of a statement to its tree.

use crate::context::StatementContext;
use crate::error::QueryError;
use crate::functions;
use crate::sql::{self, ParsedStatement, locations_of_names, quote_mixed_case};
use crate::statement::Statement;
use datafusion::common::DataFusionError;
use datafusion::sql::parser::Statement as DfStatement;
use std::cell::LazyCell;
use std::collections::HashSet;

/// Parses a statement for DataFusion.
pub(crate) fn parse(
    statement: &Statement,
    stack: usize,
    context: &StatementContext,
) -> Result<ParsedStatement, Failure> {
    let parse = |text: &str| -> Result<(DfStatement, bool), Failure> {
        let desugared = functions::desugar(text).map_err(|e| Failure::Query(e.into()))?;
        Ok((sql::parse_query(desugared.as_deref().unwrap_or(text), stack)?, desugared.is_some()))
    };
    let text = sql::without_plan(statement);
    let (parsed, desugared) = parse(&text)?;
    // Looked for only where a word of SQL is a name with capitals too.
    let named = LazyCell::new(|| if desugared { HashSet::new() } else { locations_of_names(&parsed) });
    let quoted = quote_mixed_case(context.snapshot(), statement, &|place| named.contains(&place));
    let parsed = if quoted == statement.text { parsed } else { parse(&sql::blanked(quoted, statement))?.0 };
    Ok(sql::prepare(parsed, &statement.text, &statement.tokens)?)
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
