//! `PREPARE`, `EXECUTE` and `DEALLOCATE` of statements that write.
//!
//! They are kept as they were parsed. To execute one is to run its text with the values in their places, so that whatever
//! is checked of an INSERT or a DELETE is checked of a prepared one too. Queries are left to DataFusion.

use crate::dml::cast_of;
use crate::error::{QueryError, Result};
use datafusion::sql::sqlparser::ast::{self, Expr, Statement, Value};
use ebbtide_ttl::Code;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The prepared writes of a session.
#[derive(Debug, Default)]
pub(super) struct Writes {
    by_name: Mutex<HashMap<String, Write>>,
}

#[derive(Debug, Clone)]
struct Write {
    statement: Statement,
    types: Vec<ast::DataType>,
    places: usize,
}

impl Writes {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Write>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a statement that is being prepared, if it writes.
    pub(super) fn keep(&self, name: &ast::Ident, types: &[ast::DataType], statement: &Statement) -> Result<bool> {
        let (name, mut writes) = (folded(name), self.lock());
        if writes.contains_key(&name) {
            return Err(QueryError::new(Code::BadValue, format!("prepared statement '{name}' exists already")));
        }
        let is_write = match statement {
            Statement::Insert(_) | Statement::Delete(_) => true,
            Statement::Query(query) => matches!(*query.body, ast::SetExpr::Insert(_) | ast::SetExpr::Delete(_)),
            _ => false,
        };
        if is_write {
            let places = places_of(statement)?;
            writes.insert(name, Write { statement: statement.clone(), types: types.to_vec(), places });
        }
        Ok(is_write)
    }

    /// Forgets a statement; whether it was there.
    pub(super) fn forget(&self, name: &ast::Ident) -> bool {
        self.lock().remove(&folded(name)).is_some()
    }

    /// The statement to run for an EXECUTE with these values; `None` if no write has this name.
    pub(super) fn filled(&self, name: &ast::ObjectName, values: &[Expr]) -> Result<Option<Statement>> {
        let [ast::ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return Ok(None) };
        let Some(write) = self.lock().get(&folded(name)).cloned() else { return Ok(None) };
        let Write { mut statement, types, places } = write;
        if values.len() != places {
            let message = format!("'{name}' has {places} places for values, and {} values were given", values.len());
            return Err(QueryError::new(Code::BadValue, message));
        }
        let value_of = |place: usize| {
            let value = values.get(place).cloned()?;
            Some(match (types.get(place), &value) {
                (Some(kind), _) => cast_of(value, kind.clone()),
                (None, Expr::Value(_) | Expr::TypedString(_) | Expr::UnaryOp { .. } | Expr::Function(_)) => value,
                (None, _) => Expr::Nested(Box::new(value)),
            })
        };
        let _all = ast::visit_expressions_mut(&mut statement, |expr| {
            if let Some(value) = place_of(expr).and_then(|place| value_of(place.checked_sub(1)?)) {
                *expr = value;
            }
            ControlFlow::<()>::Continue(())
        });
        Ok(Some(statement))
    }
}

/// How many places for values a statement has: `$1`, `$2` and so on, without gaps.
fn places_of(statement: &Statement) -> Result<usize> {
    let mut places = Vec::new();
    let mut odd = None;
    let _all = ast::visit_expressions(statement, |expr| {
        match (expr, place_of(expr)) {
            (_, Some(place)) => places.push(place),
            (Expr::Value(value), None) => {
                if let Value::Placeholder(name) = &value.value {
                    odd = Some(name.clone());
                }
            }
            _ => {}
        }
        ControlFlow::<()>::Continue(())
    });
    let count = places.iter().max().copied().unwrap_or_default();
    let missing = (1..=count).find(|place| !places.contains(place)).map(|place| format!("${place} is not there"));
    match odd.map(|name| format!("found {name}")).or(missing) {
        Some(what) => {
            let message = format!("places for values are $1, $2 and so on without gaps: {what}");
            Err(QueryError::new(Code::FailedToParse, message))
        }
        None => Ok(count),
    }
}

fn place_of(expr: &Expr) -> Option<usize> {
    let Expr::Value(value) = expr else { return None };
    let Value::Placeholder(name) = &value.value else { return None };
    name.strip_prefix('$')?.parse().ok().filter(|place| *place > 0)
}

fn folded(name: &ast::Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() }
}
