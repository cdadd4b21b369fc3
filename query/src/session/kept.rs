//! Statements that PREPARE keeps, as they were parsed.
//!
//! EXECUTE runs the statement with the values substituted, so that it does what the text with the values does. DataFusion would convert each
//! value to the type that it infers for the parameter.

use crate::error::{QueryError, Result};
use crate::sql::visit::{each_expr, each_expr_mut};
use crate::sql::{Heading, cast_of, stack_for};
use datafusion::sql::sqlparser::ast::{self, Expr, Statement, Value};
use datafusion::sql::sqlparser::tokenizer::TokenWithSpan;
use ebbtide_ttl::Code;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The prepared statements of a session.
#[derive(Debug, Default)]
pub(super) struct KeptStatements {
    by_name: Mutex<HashMap<String, Kept>>,
}

#[derive(Debug, Clone)]
struct Kept {
    typed: Typed,
    types: Vec<ast::DataType>,
    parameters: usize,
    /// The additional stack that it needs.
    stack: usize,
}

/// A statement, and what is known of its text.
#[derive(Debug, Clone)]
pub(super) struct Typed {
    pub(super) statement: Statement,
    pub(super) headings: Vec<Heading>,
    pub(super) tokens: Vec<TokenWithSpan>,
}

/// What a statement that is prepared does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prepared {
    Query,
    Write,
}

impl Prepared {
    /// `None` for statements that are not kept.
    fn of(statement: &Statement) -> Option<Prepared> {
        match statement {
            Statement::Insert(_) | Statement::Delete(_) => Some(Prepared::Write),
            Statement::Query(query) if matches!(*query.body, ast::SetExpr::Insert(_) | ast::SetExpr::Delete(_)) => {
                Some(Prepared::Write)
            }
            Statement::Query(_) => Some(Prepared::Query),
            _ => None,
        }
    }
}

impl KeptStatements {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Kept>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a query, or a statement that writes, that is being prepared; `None` for others.
    pub(super) fn keep(&self, name: &ast::Ident, types: &[ast::DataType], typed: Typed) -> Result<Option<Prepared>> {
        let (name, mut kept) = (folded(name), self.lock());
        if kept.contains_key(&name) {
            return Err(QueryError::new(Code::BadValue, format!("prepared statement '{name}' already exists")));
        }
        let Some(prepared) = Prepared::of(&typed.statement) else { return Ok(None) };
        let parameters = count_parameters(&typed.statement)?;
        let stack = stack_for(&typed.tokens)?;
        kept.insert(name, Kept { typed, types: types.to_vec(), parameters, stack });
        Ok(Some(prepared))
    }

    /// The most additional stack that one of them needs.
    pub(super) fn stack(&self) -> usize {
        self.lock().values().map(|kept| kept.stack).max().unwrap_or_default()
    }

    /// Whether a kept statement of this name writes.
    pub(super) fn writes(&self, name: &ast::ObjectName) -> bool {
        let [ast::ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return false };
        let kept = self.lock();
        kept.get(&folded(name)).is_some_and(|kept| Prepared::of(&kept.typed.statement) == Some(Prepared::Write))
    }

    /// Removes a statement. Returns whether it existed.
    pub(super) fn forget(&self, name: &ast::Ident) -> bool {
        self.lock().remove(&folded(name)).is_some()
    }

    /// The statement to run for an EXECUTE with these values; `None` if none of this name is kept.
    pub(super) fn filled(&self, name: &ast::ObjectName, values: &[Expr]) -> Result<Option<Typed>> {
        let [ast::ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return Ok(None) };
        let Some(kept) = self.lock().get(&folded(name)).cloned() else { return Ok(None) };
        let Kept { mut typed, types, parameters, .. } = kept;
        if values.len() != parameters {
            let message = format!("wrong number of values for '{name}': expected {parameters}, got {}", values.len());
            return Err(QueryError::new(Code::BadValue, message));
        }
        let value_of = |number: usize| {
            let value = values.get(number).cloned()?;
            Some(match (types.get(number), &value) {
                (Some(kind), _) => cast_of(value, kind.clone()),
                (None, Expr::Value(_) | Expr::TypedString(_) | Expr::UnaryOp { .. } | Expr::Function(_)) => value,
                (None, _) => Expr::Nested(Box::new(value)),
            })
        };
        each_expr_mut(&mut typed.statement, &mut |expr| {
            if let Some(value) = parameter_number(expr).and_then(|number| value_of(number.checked_sub(1)?)) {
                *expr = value;
            }
        });
        Ok(Some(typed))
    }
}

/// The number of parameters of a statement: `$1`, `$2` and so on, without gaps.
fn count_parameters(statement: &Statement) -> Result<usize> {
    let mut numbers = Vec::new();
    let mut odd = None;
    each_expr(statement, &mut |expr| match (expr, parameter_number(expr)) {
        (_, Some(number)) => numbers.push(number),
        (Expr::Value(value), None) => {
            if let Value::Placeholder(name) = &value.value {
                odd = Some(name.clone());
            }
        }
        _ => {}
    });
    let count = numbers.iter().max().copied().unwrap_or_default();
    let missing = (1..=count).find(|number| !numbers.contains(number)).map(|number| format!("${number} is missing"));
    match odd.map(|name| format!("found {name}")).or(missing) {
        Some(what) => {
            let message = format!("parameters must be numbered $1, $2, ... without gaps: {what}");
            Err(QueryError::new(Code::FailedToParse, message))
        }
        None => Ok(count),
    }
}

pub(super) fn parameter_number(expr: &Expr) -> Option<usize> {
    let Expr::Value(value) = expr else { return None };
    let Value::Placeholder(name) = &value.value else { return None };
    name.strip_prefix('$')?.parse().ok().filter(|number| *number > 0)
}

fn folded(name: &ast::Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() }
}
