//! SQL between its text and DataFusion's planner: refuses statements that are too deep or have no effect, rewrites
//! forms of other databases, and names columns.

mod depth;
mod dialect;
mod names;
mod refused;
mod rewrite;
mod settings;

pub(crate) use names::Heading;
pub(crate) use rewrite::calls;

use crate::error::Result;
use datafusion::common::DataFusionError;
use datafusion::sql::parser::{CopyToSource, DFParserBuilder, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{Query, Statement, VisitMut};
use datafusion::sql::sqlparser::tokenizer::TokenWithSpan;
use futures::future::BoxFuture;
use std::future::poll_fn;

/// A statement as DataFusion parses it, and the headings of its columns.
#[derive(Debug)]
pub(crate) struct ParsedStatement {
    pub(crate) statement: DfStatement,
    pub(crate) headings: Vec<Heading>,
}

/// Bytes of stack that a statement of these tokens needs until it runs.
///
/// # Errors
/// [`ebbtide_ttl::Code::FailedToParse`] if the statement is nested too deeply.
pub(crate) fn stack_for(tokens: &[TokenWithSpan]) -> Result<usize> {
    depth::check(tokens)
}

/// Bytes of stack that every thread is assumed to have left.
const SMALL: usize = 1 << 20;

/// Polls a future with as much additional stack as [`stack_for`] says.
pub(crate) fn on_stack<T>(stack: usize, mut work: BoxFuture<'_, T>) -> impl Future<Output = T> + Send {
    poll_fn(move |context| {
        let mut poll = || work.as_mut().poll(context);
        if stack < SMALL { poll() } else { stacker::grow(stack + SMALL, poll) }
    })
}

/// Parses one statement, with as much additional stack as [`stack_for`] says, and balances its conditions.
///
/// # Errors
/// Errors of the parser.
pub(crate) fn parse_one(sql: &str, stack: usize) -> Result<DfStatement, DataFusionError> {
    let parse = || {
        let mut statements =
            DFParserBuilder::new(sql).with_dialect(&dialect::EbbtideDialect).build()?.parse_statements()?;
        let Some(mut statement) = statements.pop_front() else {
            return Err(DataFusionError::Plan("there is no statement".to_owned()));
        };
        within(&mut statement, &mut |inner| {
            let _all = match inner {
                Inner::Statement(statement) => statement.visit(&mut depth::Balance),
                Inner::Query(query) => query.visit(&mut depth::Balance),
            };
            Ok::<_, DataFusionError>(())
        })?;
        Ok(statement)
    };
    if stack < SMALL { parse() } else { stacker::grow(stack + SMALL, parse) }
}

/// Checks and rewrites a parsed statement for the planner.
///
/// # Errors
/// [`ebbtide_ttl::Code::BadValue`] for parts that would have no effect.
pub(crate) fn prepare(mut statement: DfStatement, text: &str, tokens: &[TokenWithSpan]) -> Result<ParsedStatement> {
    let headings = match &statement {
        DfStatement::Statement(inner) => names::headings(inner, text, tokens),
        _ => Vec::new(),
    };
    within(&mut statement, &mut |inner| {
        match inner {
            Inner::Statement(statement) => {
                refused::check(statement)?;
                settings::check(statement)?;
                settings::rewrite(statement);
                let _all = statement.visit(&mut rewrite::Rewrite);
                let _all = statement.visit(&mut names::Names);
            }
            Inner::Query(query) => {
                refused::check(query)?;
                let _all = query.visit(&mut rewrite::Rewrite);
                let _all = query.visit(&mut names::Names);
            }
        }
        Ok::<_, crate::QueryError>(())
    })?;
    Ok(ParsedStatement { statement, headings })
}

/// The parser's statement inside one of DataFusion's.
enum Inner<'a> {
    Statement(&'a mut Statement),
    Query(&'a mut Query),
}

fn within<E>(statement: &mut DfStatement, work: &mut impl FnMut(Inner<'_>) -> Result<(), E>) -> Result<(), E> {
    match statement {
        DfStatement::Statement(inner) => work(Inner::Statement(inner)),
        DfStatement::Explain(explain) => within(&mut explain.statement, work),
        DfStatement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => work(Inner::Query(query)),
            CopyToSource::Relation(_) => Ok(()),
        },
        DfStatement::CreateExternalTable(_) | DfStatement::Reset(_) => Ok(()),
    }
}
