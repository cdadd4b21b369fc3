//! The forms of INSERT, UPDATE and DELETE that no collection takes, and the names in them.

use crate::error::{QueryError, Result as QueryResult};
use datafusion::logical_expr::Expr;
use datafusion::sql::sqlparser::ast;
use ebbtide_ttl::Code;

/// Refuses the forms that no collection takes.
pub(crate) fn refuse_other_forms(insert: &ast::Insert) -> QueryResult<()> {
    let unusual = [
        (
            insert.returning.is_some() || insert.output.is_some(),
            "RETURNING: an INSERT returns the number of rows stored",
        ),
        (insert.partitioned.is_some() || !insert.after_columns.is_empty(), "PARTITION: collections have none"),
        (insert.table_alias.is_some() || insert.insert_alias.is_some(), "an alias for the collection of an INSERT"),
        (!insert.assignments.is_empty(), "INSERT ... SET: write INSERT INTO c (a, b) VALUES (1, 2)"),
        (insert.priority.is_some(), "a priority for an INSERT"),
        (insert.settings.is_some(), "SETTINGS"),
        (insert.format_clause.is_some(), "FORMAT: ebbtide import reads files"),
        (insert.multi_table_insert_type.is_some(), "an INSERT into several collections at once"),
    ];
    refuse_first(&unusual)
}

pub(super) fn refuse_first(unusual: &[(bool, &str)]) -> QueryResult<()> {
    match unusual.iter().find(|(is_used, _)| *is_used) {
        Some((_, what)) => Err(QueryError::new(Code::BadValue, format!("not supported: {what}"))),
        None => Ok(()),
    }
}

/// The name of a table in the collections' schema.
pub(crate) fn table_name(name: &ast::ObjectName) -> Option<String> {
    let parts: Option<Vec<String>> = name.0.iter().map(part).collect();
    match parts?.as_slice() {
        [name] => Some(name.clone()),
        [schema, name] if schema == crate::context::COLLECTIONS => Some(name.clone()),
        [catalog, schema, name] if catalog == crate::context::CATALOG && schema == crate::context::COLLECTIONS => {
            Some(name.clone())
        }
        _ => None,
    }
}

/// One part of a name, as the collections spell it.
pub(crate) fn part(part: &ast::ObjectNamePart) -> Option<String> {
    part.as_ident().map(|i| if i.quote_style.is_some() { i.value.clone() } else { i.value.to_lowercase() })
}

/// Whether an expression has a query in it.
pub(crate) fn has_subquery(expr: &Expr) -> bool {
    use datafusion::common::tree_node::TreeNode;
    expr.exists(|e| {
        Ok(matches!(e, Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_) | Expr::SetComparison(_)))
    })
    .unwrap_or(true)
}

/// The INSERT that a statement is, with the WITH before it.
pub(crate) fn insert_of(statement: &ast::Statement) -> Option<(&ast::Insert, Option<&ast::With>)> {
    match statement {
        ast::Statement::Insert(insert) => Some((insert, None)),
        // WITH ... INSERT INTO ... SELECT.
        ast::Statement::Query(query) => match query.body.as_ref() {
            ast::SetExpr::Insert(ast::Statement::Insert(insert)) => Some((insert, query.with.as_ref())),
            _ => None,
        },
        _ => None,
    }
}

/// The rows of an INSERT, as a query.
pub(crate) fn source_of(insert: &ast::Insert, with: Option<&ast::With>) -> QueryResult<Box<ast::Query>> {
    let Some(mut source) = insert.source.clone() else {
        return Err(QueryError::new(Code::FailedToParse, "INSERT needs rows: VALUES (...) or SELECT ..."));
    };
    if let Some(with) = with {
        if source.with.is_some() {
            return Err(QueryError::new(Code::BadValue, "WITH appears twice: before INSERT and before its SELECT"));
        }
        source.with = Some(with.clone());
    }
    Ok(source)
}
