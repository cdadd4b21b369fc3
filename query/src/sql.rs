//! SQL between its text and DataFusion's planner: refuses statements that are too deep or have no effect, rewrites
//! forms of other databases, and names columns.

mod capitals;
mod columns;
mod copies;
mod depth;
mod dialect;
mod expressions;
mod filters;
mod joins;
pub(crate) mod lists;
mod names;
mod orders;
mod readers;
mod refused;
mod replaced;
mod rewrite;
mod rows;
mod settings;
mod short_forms;
mod using;
mod uuids;
pub(crate) mod visit;
mod wildcards;
mod windows;

pub(crate) use capitals::{locations_of_names, quote_mixed_case};
pub(crate) use columns::{may_stand_for_columns, questions, written_out};
#[cfg(test)]
pub(crate) use dialect::EbbtideDialect;
pub(crate) use expressions::cast_of;
pub(crate) use filters::filtered;
pub(crate) use names::Heading;
pub(crate) use replaced::Replaced;
pub(crate) use short_forms::calls;
pub(crate) use using::Unambiguous;

use self::visit::visit_mut;
use crate::error::Result;
use datafusion::common::DataFusionError;
use datafusion::sql::parser::{CopyToSource, DFParserBuilder, ParserInput, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{Query, Statement};
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
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
        if is_small(stack) { poll() } else { stacker::grow(stack + SMALL, poll) }
    })
}

/// Whether a statement needs no additional stack.
pub(crate) fn is_small(stack: usize) -> bool {
    stack < SMALL
}

/// Parses one statement, with as much additional stack as [`stack_for`] says, and balances its conditions.
///
/// # Errors
/// Errors of the parser.
pub(crate) fn parse_one<'a>(input: impl Into<ParserInput<'a>>, stack: usize) -> Result<DfStatement, DataFusionError> {
    let builder = DFParserBuilder::new(input).with_dialect(&dialect::EbbtideDialect);
    let parse = || {
        let mut statements = builder.build()?.parse_statements()?;
        let Some(mut statement) = statements.pop_front() else {
            return Err(DataFusionError::Plan("there is no statement".to_owned()));
        };
        within(&mut statement, &mut |inner| {
            let balanced = match inner {
                Inner::Statement(statement) => visit_mut(statement, &mut depth::Balance),
                Inner::Query(query) => visit_mut(query, &mut depth::Balance),
            };
            balanced.map_err(|error| DataFusionError::External(Box::new(error)))
        })?;
        Ok(statement)
    };
    with_stack(stack, parse)
}

/// Does work with as much additional stack as [`stack_for`] says.
pub(crate) fn with_stack<T>(stack: usize, work: impl FnOnce() -> T) -> T {
    if is_small(stack) { work() } else { stacker::grow(stack + SMALL, work) }
}

/// What is put before `FROM t WHERE ...`.
const SELECT_ALL: &str = "SELECT * ";

/// As [`parse_one`]; a statement may begin with FROM, and then it selects all. `tokens` are those of the text, if they
/// are known.
///
/// # Errors
/// Of the parser.
pub(crate) fn parse_query(
    sql: &str,
    tokens: Option<Vec<TokenWithSpan>>,
    stack: usize,
) -> Result<DfStatement, DataFusionError> {
    let parsed = match tokens {
        Some(tokens) => parse_one(tokens, stack),
        None => parse_one(sql, stack),
    };
    let from = sql.get(..4).is_some_and(|word| word.eq_ignore_ascii_case("from"));
    match parsed {
        Err(_) if from => parse_one(format!("{SELECT_ALL}{sql}").as_str(), stack).map_err(moved),
        parsed => parsed,
    }
}

/// An error at its place without [`SELECT_ALL`].
fn moved(error: DataFusionError) -> DataFusionError {
    match error {
        DataFusionError::SQL(error, trace) => match *error {
            ParserError::ParserError(message) => {
                let place = message.rsplit_once(" at Line: 1, Column: ");
                let message = match place.and_then(|(text, column)| Some((text, column.parse::<usize>().ok()?))) {
                    Some((text, column)) => {
                        format!("{text} at Line: 1, Column: {}", column.saturating_sub(SELECT_ALL.len()).max(1))
                    }
                    None => message,
                };
                DataFusionError::SQL(Box::new(ParserError::ParserError(message)), trace)
            }
            other => DataFusionError::SQL(Box::new(other), trace),
        },
        DataFusionError::Diagnostic(diagnostic, inner) => {
            DataFusionError::Diagnostic(diagnostic, Box::new(moved(*inner)))
        }
        other => other,
    }
}

/// Whether a statement begins with EXPLAIN PLAN.
pub(crate) fn asks_for_plan(tokens: &[TokenWithSpan]) -> bool {
    let is = |at: usize, word: &str| matches!(tokens.get(at).map(|t| &t.token), Some(Token::Word(w)) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word));
    is(0, "EXPLAIN") && is(1, "PLAN")
}

/// A text that begins as a statement does, with `EXPLAIN PLAN` as `EXPLAIN`; all places stay what they are.
pub(crate) fn blanked(mut text: String, statement: &crate::statement::Statement) -> String {
    if asks_for_plan(&statement.tokens) {
        let span = statement.tokens[1].span;
        let offsets = crate::statement::lexer::Offsets::new(&statement.text);
        let range = offsets.of(span.start)..offsets.of(span.end);
        text.replace_range(range, "    ");
    }
    text
}

/// The statement within an EXPLAIN that is answered in words: one that asks for no form and is not run.
pub(crate) fn explained_in_words(statement: &DfStatement, tokens: &[TokenWithSpan]) -> Option<DfStatement> {
    let DfStatement::Explain(explain) = statement else { return None };
    let options = &explain.options;
    let plain = !options.analyze && !options.verbose && options.format.is_none();
    let inner = explain.statement.as_ref();
    let is_query = matches!(inner, DfStatement::Statement(inner) if matches!(inner.as_ref(), Statement::Query(_)));
    (plain && is_query && !asks_for_plan(tokens)).then(|| inner.clone())
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
    let (has_columns, has_uuids) = (may_stand_for_columns(tokens), uuids::may_cast(tokens));
    within(&mut statement, &mut |inner| {
        match inner {
            Inner::Statement(statement) => {
                refused::check(statement)?;
                if has_columns {
                    let query = if let Statement::Query(query) = &*statement { Some(query.as_ref()) } else { None };
                    columns::check(statement, query)?;
                }
                settings::check(statement)?;
                settings::rewrite(statement);
                visit_mut(statement, &mut readers::Readers)?;
                visit_mut(statement, &mut rewrite::Rewrite::default())?;
                visit_mut(statement, &mut names::Names)?;
                if has_uuids {
                    visit_mut(statement, &mut uuids::Uuids)?;
                }
            }
            Inner::Query(query) => {
                refused::check(query)?;
                if has_columns {
                    columns::check(query, None)?;
                }
                visit_mut(query, &mut readers::Readers)?;
                visit_mut(query, &mut rewrite::Rewrite::default())?;
                visit_mut(query, &mut names::Names)?;
                if has_uuids {
                    visit_mut(query, &mut uuids::Uuids)?;
                }
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
