//! `FILTER` for all aggregates of an expression.

use super::dialect::EbbtideDialect;
use super::lists::{has_aggregate, is_aggregate};
use super::short_forms::calls;
use super::visit::{Flow, visit_mut};
use crate::error::QueryError;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Function, Query, VisitorMut};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;
use std::ops::ControlFlow;

/// An expression, as text, whose aggregates are of the rows of a condition alone.
pub(crate) fn filtered(expr: &str, condition: &str) -> String {
    let single = || format!("{expr} FILTER (WHERE {condition})");
    let (Ok(mut parsed), Ok(condition)) = (parsed(expr), parsed(condition)) else { return single() };
    match &parsed {
        Expr::Function(call) if call.filter.is_none() && aggregates(call) => single(),
        _ if restrict(&mut parsed, condition) => parsed.to_string(),
        _ => single(),
    }
}

/// Adds a condition to all aggregates of an expression, and returns whether there are any.
pub(super) fn restrict(expr: &mut Expr, condition: Expr) -> bool {
    let mut filter = Filter { condition, depth: 0, is_found: false };
    let _infallible = visit_mut(expr, &mut filter);
    filter.is_found
}

fn parsed(text: &str) -> Result<Expr, ParserError> {
    let mut parser = Parser::new(&EbbtideDialect).try_with_sql(text)?;
    let expr = parser.parse_expr()?;
    parser.expect_token(&Token::EOF)?;
    Ok(expr)
}

/// Whether a call is one of an aggregate, or stands for one.
fn aggregates(call: &Function) -> bool {
    let name = call.name.to_string();
    let is_short = |(known, meaning): (&str, &str)| {
        name.eq_ignore_ascii_case(known) && parsed(meaning).is_ok_and(|meant| has_aggregate(&meant))
    };
    let is_list = name.eq_ignore_ascii_case("list");
    call.over.is_none() && (is_aggregate(call) || is_list || calls().any(is_short))
}

/// Adds the condition to calls of aggregates, but not to those of subqueries.
struct Filter {
    condition: Expr,
    depth: usize,
    is_found: bool,
}

impl VisitorMut for Filter {
    type Break = Box<QueryError>;

    fn pre_visit_query(&mut self, _query: &mut Query) -> Flow {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> Flow {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if self.depth == 0
            && let Expr::Function(call) = expr
            && aggregates(call)
        {
            let condition = self.condition.clone();
            call.filter = Some(Box::new(match call.filter.take() {
                Some(given) => {
                    let left = Box::new(Expr::Nested(given));
                    Expr::BinaryOp { left, op: BinaryOperator::And, right: Box::new(condition) }
                }
                None => condition,
            }));
            self.is_found = true;
        }
        ControlFlow::Continue(())
    }
}
