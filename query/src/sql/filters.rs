//! `FILTER` for all aggregates of an expression.

use super::dialect::EbbtideDialect;
use super::expressions::add_filter;
use super::lists::{has_aggregate, is_aggregate};
use super::short_forms::calls;
use datafusion::sql::sqlparser::ast::{Expr, Function};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

/// An expression, as text, whose aggregates are of the rows of a condition alone.
pub(crate) fn filtered(expr: &str, condition: &str) -> String {
    let single = || format!("{expr} FILTER (WHERE {condition})");
    let (Ok(mut parsed), Ok(condition)) = (parsed(expr), parsed(condition)) else { return single() };
    let is_one = matches!(&parsed, Expr::Function(call) if call.filter.is_none() && aggregates(call));
    match !is_one && add_filter(&mut parsed, &condition, aggregates) {
        true => parsed.to_string(),
        false => single(),
    }
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
