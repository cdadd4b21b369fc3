//! `FROM read_csv('x.csv', delim = ';')` becomes the name of a table that encodes the call.

use super::visit::Flow;
use crate::error::{QueryError, Result};
use crate::files;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, TableAlias, TableFactor, UnaryOperator,
    Value, VisitorMut,
};
use ebbtide_ttl::Code;
use serde_json::Value as Json;
use std::ops::ControlFlow;

/// Replaces calls by names.
pub(super) struct Readers;

impl VisitorMut for Readers {
    type Break = Box<QueryError>;

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> Flow {
        match named(table) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

fn wrong(function: &str, what: &str) -> QueryError {
    QueryError::new(Code::BadValue, format!("{function}: {what}; write {function}('x.csv', delim = ';')"))
}

fn named(table: &mut TableFactor) -> Result<()> {
    let TableFactor::Table { name, alias, args, .. } = table else { return Ok(()) };
    let Some(given) = args else {
        // The alias of a file is the first part of its name: 'x/ireland.csv' is ireland.
        if let Some(Ident { value: path, quote_style: Some('\''), .. }) = name.0.first().and_then(|p| p.as_ident())
            && alias.is_none()
            && let Some(stem) = stem(path)
        {
            *alias = Some(alias_of(stem));
        }
        return Ok(());
    };
    let Some(function) = name.0.first().and_then(|p| p.as_ident()).map(|i| i.value.clone()) else { return Ok(()) };
    if name.0.len() != 1 || !files::is_reader(&function) {
        return Ok(());
    }
    let (mut paths, mut options) = (Vec::new(), Vec::new());
    for arg in &given.args {
        let (option, value) = match arg {
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => (Some(name.value.clone()), value),
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::BinaryOp { left, op: BinaryOperator::Eq, right })) => {
                match left.as_ref() {
                    Expr::Identifier(name) => (Some(name.value.clone()), right.as_ref()),
                    _ => return Err(wrong(&function, "an option is a name and a value")),
                }
            }
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => (None, value),
            _ => return Err(wrong(&function, "it takes paths, and options as a name and a value")),
        };
        let value = json(value).ok_or_else(|| wrong(&function, &format!("'{value}' is not a plain value")))?;
        match (option, value) {
            (Some(option), value) => options.push((option, value)),
            (None, Json::String(path)) => paths.push(path),
            (None, Json::Array(all)) => paths.extend(all.iter().filter_map(|p| Some(p.as_str()?.to_owned()))),
            (None, other) => return Err(wrong(&function, &format!("a path is a text, not {other}"))),
        }
    }
    if alias.is_none() {
        *alias = Some(alias_of(match paths.as_slice() {
            [path] => stem(path).unwrap_or(&function),
            _ => &function,
        }));
    }
    *name = ObjectName::from(vec![Ident::with_quote('"', files::table_of_call(&function, paths, options)?)]);
    *args = None;
    Ok(())
}

/// What a table of a file is called: the file's name up to its first point, if that is a plain one.
fn stem(path: &str) -> Option<&str> {
    let stem = path.rsplit(['/', '\\']).next()?.split('.').next()?;
    (!stem.is_empty() && !stem.contains(['*', '?', '['])).then_some(stem)
}

fn alias_of(name: &str) -> TableAlias {
    TableAlias { explicit: true, name: Ident::with_quote('"', name.to_lowercase()), columns: Vec::new(), at: None }
}

/// The value of a literal, or of a list of them.
fn json(value: &Expr) -> Option<Json> {
    match value {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => Some(Json::String(text.clone())),
            Value::Boolean(truth) => Some(Json::Bool(*truth)),
            Value::Number(digits, _) => serde_json::from_str(digits).ok(),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match json(expr)? {
            Json::Number(number) => serde_json::from_str(&format!("-{number}")).ok(),
            _ => None,
        },
        Expr::Array(list) => list.elem.iter().map(json).collect::<Option<Vec<Json>>>().map(Json::Array),
        _ => None,
    }
}
