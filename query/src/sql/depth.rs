//! Limits the depth of statements: deeper ones are refused before they are parsed.
//!
//! Parsing, planning, running and dropping a statement recurse over its expressions. The parser itself counts
//! parentheses, but a chain of operators is as deep as it is long. Chains of AND and OR become balanced trees here, so
//! that they may be long; all other chains are limited.

use super::visit::Flow;
use crate::error::{QueryError, Result};
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Value, VisitorMut};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use ebbtide_ttl::Code;
use std::ops::ControlFlow;

/// Maximum number of operators, joins, set operations and tables of WITH that are nested or chained.
const DEPTH_MAX: usize = 250;
/// Maximum number of conditions joined by AND and OR in a statement.
const CONDITIONS_MAX: usize = 100_000;
/// Bytes of stack for parsing a condition before chains are balanced, with a margin.
const BYTES_PER_CONDITION: usize = 2 << 10;
/// Bytes of stack for planning a level of depth, with a margin.
const BYTES_PER_LEVEL: usize = 64 << 10;

/// A pair of parentheses, or the statement itself.
#[derive(Default)]
struct Level {
    /// Operators in the current chain.
    operators: usize,
    /// Joins and set operations, which form one chain whatever is between them.
    tables: usize,
    from: bool,
}

/// Refuses statements that are too deep to be planned, and returns the bytes of stack that others need.
///
/// # Errors
/// [`Code::FailedToParse`].
pub(super) fn check(tokens: &[TokenWithSpan]) -> Result<usize> {
    let mut levels = vec![Level::default()];
    let (mut conditions, mut deepest) = (0, 0);
    let word = |at: usize| match tokens.get(at).map(|token| &token.token) {
        Some(Token::Word(word)) if word.quote_style.is_none() => word.value.to_uppercase(),
        _ => String::new(),
    };
    for (at, token) in tokens.iter().enumerate() {
        match token.token {
            Token::LParen => levels.push(Level::default()),
            Token::RParen if levels.len() > 1 => drop(levels.pop()),
            _ => {}
        }
        let Some(level) = levels.last_mut() else { break };
        match &token.token {
            Token::LParen | Token::RParen => {}
            Token::Comma if level.from => level.tables += 1,
            Token::Comma => level.operators = 0,
            Token::Word(_) => match word(at).as_str() {
                "AND" | "OR" => {
                    conditions += 1;
                    level.operators = 0;
                }
                "FROM" => (level.from, level.operators) = (true, 0),
                "JOIN" | "UNION" | "EXCEPT" | "INTERSECT" => (level.tables, level.operators) = (level.tables + 1, 0),
                "AS" if matches!(tokens.get(at + 1).map(|t| &t.token), Some(Token::LParen)) => level.tables += 1,
                "SELECT" | "WHERE" | "GROUP" | "HAVING" | "ORDER" | "LIMIT" | "QUALIFY" => {
                    (level.from, level.operators) = (false, 0);
                }
                "WHEN" | "THEN" | "ELSE" | "ON" | "VALUES" => level.operators = 0,
                "IS" | "NOT" | "LIKE" | "ILIKE" | "AT" | "COLLATE" | "IN" | "BETWEEN" | "OVERLAPS" => {
                    level.operators += 1
                }
                _ => {}
            },
            Token::LBracket => level.operators += 1,
            other if is_operator(other) => level.operators += 1,
            _ => {}
        }
        let depth: usize = levels.iter().map(|level| 1 + level.operators + level.tables).sum();
        deepest = deepest.max(depth);
        if depth > DEPTH_MAX {
            return Err(too_deep(&format!(
                "more than {DEPTH_MAX} operators, joins or subqueries are nested or chained"
            )));
        }
    }
    if conditions > CONDITIONS_MAX {
        return Err(too_deep(&format!(
            "more than {CONDITIONS_MAX} conditions are joined by AND or OR; write x IN (...)"
        )));
    }
    Ok(conditions * BYTES_PER_CONDITION + deepest * BYTES_PER_LEVEL)
}

fn too_deep(why: &str) -> QueryError {
    QueryError::new(Code::FailedToParse, format!("the statement is nested too deeply: {why}"))
}

fn is_operator(token: &Token) -> bool {
    !matches!(
        token,
        Token::Word(_)
            | Token::Number(..)
            | Token::Char(_)
            | Token::Comma
            | Token::SemiColon
            | Token::Period
            | Token::RBracket
            | Token::LBracket
            | Token::RParen
            | Token::LBrace
            | Token::RBrace
            | Token::Placeholder(_)
            | Token::SingleQuotedString(_)
            | Token::DoubleQuotedString(_)
            | Token::Whitespace(_)
            | Token::EOF
    )
}

/// Turns long chains of AND and of OR into balanced trees before they are visited.
pub(super) struct Balance;

impl VisitorMut for Balance {
    type Break = Box<QueryError>;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        balance(expr);
        ControlFlow::Continue(())
    }
}

/// Turns a long chain of one operator, AND or OR, into a balanced tree.
fn balance(expr: &mut Expr) {
    let Expr::BinaryOp { op, .. } = expr else { return };
    let op = op.clone();
    if !matches!(op, BinaryOperator::And | BinaryOperator::Or) || chain(expr, &op) < 16 {
        return;
    }
    let mut terms = Vec::new();
    let mut rest = std::mem::replace(expr, Expr::Value(Value::Null.into()));
    // Chains lean to the left.
    loop {
        match rest {
            Expr::BinaryOp { left, op: found, right } if found == op => {
                terms.push(*right);
                rest = *left;
            }
            first => {
                terms.push(first);
                break;
            }
        }
    }
    terms.reverse();
    if let Some(tree) = balanced(terms, &op) {
        *expr = tree;
    }
}

/// Terms with an operator between them, as a balanced tree; `None` for no terms.
pub(super) fn balanced(mut terms: Vec<Expr>, op: &BinaryOperator) -> Option<Expr> {
    while terms.len() > 1 {
        let mut pairs = Vec::with_capacity(terms.len().div_ceil(2));
        let mut left = terms.into_iter();
        while let Some(first) = left.next() {
            pairs.push(match left.next() {
                Some(second) => Expr::BinaryOp { left: Box::new(first), op: op.clone(), right: Box::new(second) },
                None => first,
            });
        }
        terms = pairs;
    }
    terms.pop()
}

/// The length of a chain of one operator.
fn chain(mut expr: &Expr, op: &BinaryOperator) -> usize {
    let mut length = 0;
    while let Expr::BinaryOp { left, op: found, .. } = expr
        && found == op
    {
        length += 1;
        expr = left;
    }
    length
}
