//! Prepared `INSERT` and `DELETE`, which are kept as parsed statements.
//!
//! EXECUTE runs the statement with the values substituted, so that a prepared INSERT or DELETE gets the same checks as any other.
//! Prepared queries are left to DataFusion.

use crate::dml::cast_of;
use crate::error::{QueryError, Result};
use crate::sql::visit::{each_expr, each_expr_mut};
use datafusion::sql::sqlparser::ast::{self, Expr, Statement, Value};
use ebbtide_ttl::Code;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The prepared writes of a session.
#[derive(Debug, Default)]
pub(super) struct PreparedWrites {
    by_name: Mutex<HashMap<String, Write>>,
}

#[derive(Debug, Clone)]
struct Write {
    statement: Statement,
    types: Vec<ast::DataType>,
    parameters: usize,
}

impl PreparedWrites {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Write>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a statement that is being prepared if it writes. Returns whether it does.
    pub(super) fn keep(&self, name: &ast::Ident, types: &[ast::DataType], statement: &Statement) -> Result<bool> {
        let (name, mut writes) = (folded(name), self.lock());
        if writes.contains_key(&name) {
            return Err(QueryError::new(Code::BadValue, format!("prepared statement '{name}' already exists")));
        }
        let is_write = match statement {
            Statement::Insert(_) | Statement::Delete(_) => true,
            Statement::Query(query) => matches!(*query.body, ast::SetExpr::Insert(_) | ast::SetExpr::Delete(_)),
            _ => false,
        };
        if is_write {
            let parameters = count_parameters(statement)?;
            writes.insert(name, Write { statement: statement.clone(), types: types.to_vec(), parameters });
        }
        Ok(is_write)
    }

    /// Removes a statement. Returns whether it existed.
    pub(super) fn forget(&self, name: &ast::Ident) -> bool {
        self.lock().remove(&folded(name)).is_some()
    }

    /// The statement to run for an EXECUTE with these values; `None` if no prepared write has this name.
    pub(super) fn filled(&self, name: &ast::ObjectName, values: &[Expr]) -> Result<Option<Statement>> {
        let [ast::ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return Ok(None) };
        let Some(write) = self.lock().get(&folded(name)).cloned() else { return Ok(None) };
        let Write { mut statement, types, parameters } = write;
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
        each_expr_mut(&mut statement, &mut |expr| {
            if let Some(value) = parameter_number(expr).and_then(|number| value_of(number.checked_sub(1)?)) {
                *expr = value;
            }
        });
        Ok(Some(statement))
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
