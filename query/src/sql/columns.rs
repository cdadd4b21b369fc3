//! DuckDB's `COLUMNS(*)` and `COLUMNS('regex')` in the list of a query, and `* RENAME (a AS b)`.
//!
//! Only the planner knows the columns of tables. So a question is planned first, which selects all columns of the same tables. Then the
//! items are written once for each of these columns.

use super::expressions::calls_in;
use super::joins::merges_any;
use super::orders;
use super::refused::refused;
use super::using::value_of;
use super::visit::{Flow, each_expr, each_outer_expr_mut};
use super::wildcards::{argument, expr_of, is_columns, wildcard_of};
use crate::error::{QueryError, Result as QueryResult};
use datafusion::arrow::array::StringArray;
use datafusion::arrow::compute::regexp_is_match_scalar;
use datafusion::common::{Column, DataFusionError, Result, plan_err};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArgExpr, GroupByExpr, Ident, Query, RenameSelectItem, Select, SelectItem, SetExpr, Statement, Value,
    Visit,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use ebbtide_ttl::Code;
use std::collections::HashSet;
use std::ops::ControlFlow;

const ARGUMENTS: &str = "COLUMNS takes *, a regular expression or a list of names: COLUMNS('^temp'), COLUMNS(['a'])";
const OPTIONS: &str =
    "COLUMNS(* ...) takes EXCLUDE and ILIKE, not REPLACE and RENAME; write an item for each such column";

/// Whether a statement of these tokens may have such items.
pub(crate) fn may_stand_for_columns(tokens: &[TokenWithSpan]) -> bool {
    tokens.iter().any(|token| match &token.token {
        Token::Word(word) => [Keyword::COLUMNS, Keyword::RENAME].contains(&word.keyword),
        _ => false,
    })
}

/// Refuses `COLUMNS` elsewhere than in the list of the outermost query.
///
/// # Errors
/// [`Code::BadValue`].
pub(super) fn check(statement: &impl Visit, outermost: Option<&Query>) -> QueryResult<()> {
    let mut all = 0;
    each_expr(statement, &mut |expr| all += usize::from(is_columns(expr)));
    let known: usize = match outermost.map(|query| query.body.as_ref()) {
        Some(SetExpr::Select(select)) => {
            select.projection.iter().filter_map(expr_of).map(|expr| calls_in(expr, is_columns).len()).sum()
        }
        _ => 0,
    };
    if all == known {
        return Ok(());
    }
    let message =
        "not supported: COLUMNS(...) elsewhere than in the list of the outermost SELECT of a query; name the columns";
    Err(QueryError::new(Code::BadValue, message))
}

/// Refuses such items beside joins that merge columns.
pub(super) fn check_joins(select: &Select) -> Flow {
    match merges_any(&select.from) && select.projection.iter().any(|item| wildcard_of(item).is_some()) {
        true => refused("COLUMNS(...) and * RENAME beside joins with USING; write ON a.x = b.x, or name the columns"),
        false => ControlFlow::Continue(()),
    }
}

/// For each item of a query that stands for columns, and for each `*` beside such items, a query of all columns that it may stand for.
pub(crate) fn questions(statement: &DfStatement) -> Vec<Option<DfStatement>> {
    let DfStatement::Statement(inner) = statement else { return Vec::new() };
    let Statement::Query(query) = inner.as_ref() else { return Vec::new() };
    let SetExpr::Select(select) = query.body.as_ref() else { return Vec::new() };
    if !select.projection.iter().any(|item| wildcard_of(item).is_some()) {
        return Vec::new();
    }
    let question = |item: &SelectItem| {
        let of_all = selecting(query, wildcard_of(item).or_else(|| star(item))?);
        Some(DfStatement::Statement(Box::new(Statement::Query(Box::new(of_all)))))
    };
    select.projection.iter().map(question).collect()
}

/// A query of the same tables that selects `wildcard`.
fn selecting(query: &Query, wildcard: SelectItem) -> Query {
    let mut asked = query.clone();
    (asked.order_by, asked.limit_clause, asked.fetch) = (None, None, None);
    if let SetExpr::Select(select) = asked.body.as_mut() {
        select.projection = vec![wildcard];
        (select.distinct, select.into) = (None, None);
        (select.selection, select.having, select.qualify) = (None, None, None);
        select.group_by = GroupByExpr::Expressions(Vec::new(), Vec::new());
        select.named_window.clear();
    }
    asked
}

/// A `*`, without values that replace columns.
fn star(item: &SelectItem) -> Option<SelectItem> {
    let mut star = item.clone();
    let (SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options)) = &mut star else { return None };
    options.opt_replace = None;
    Some(star)
}

/// The query with the columns that were found for its items.
///
/// # Errors
/// What is wrong with the items.
pub(crate) fn written_out(mut statement: DfStatement, found: &[Option<Vec<Column>>]) -> Result<DfStatement> {
    let DfStatement::Statement(inner) = &mut statement else { return Ok(statement) };
    let Statement::Query(query) = inner.as_mut() else { return Ok(statement) };
    let SetExpr::Select(select) = query.body.as_mut() else { return Ok(statement) };
    let items = std::mem::take(&mut select.projection);
    let mut taken = HashSet::new();
    for (item, columns) in items.iter().zip(found) {
        match columns {
            None => taken.extend(name_of(item)),
            Some(columns) if wildcard_of(item).is_none() => {
                taken.extend(columns.iter().map(|column| column.name.clone()));
            }
            Some(_) => {}
        }
    }
    for (item, columns) in items.into_iter().zip(found) {
        match columns {
            Some(columns) if wildcard_of(&item).is_some() => {
                select.projection.extend(each_column(&item, columns, &mut taken)?);
            }
            _ => select.projection.push(item),
        }
    }
    // `ORDER BY ALL` counts them.
    match orders::in_query(query) {
        ControlFlow::Break(error) => Err(DataFusionError::External(error)),
        ControlFlow::Continue(()) => Ok(statement),
    }
}

/// The name of a column of the result, if it is clear.
fn name_of(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(value_of(alias)),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(value_of(name)),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(path)) => path.last().map(value_of),
        _ => None,
    }
}

/// An item once for each column that it stands for.
fn each_column(item: &SelectItem, columns: &[Column], taken: &mut HashSet<String>) -> Result<Vec<SelectItem>> {
    let renamed = renamed(item, columns)?;
    let (expr, chosen) = match expr_of(item) {
        Some(expr) => (expr.clone(), chosen(expr, columns)?),
        None => (Expr::Value(Value::Null.into()), columns.iter().collect()),
    };
    let made = chosen.into_iter().map(|column| {
        let written = |by: Expr| match expr_of(item) {
            Some(_) => replaced(expr.clone(), &by),
            None => by,
        };
        let name = match item {
            SelectItem::ExprWithAlias { alias, .. } => value_of(alias),
            _ => renamed.iter().find(|(from, _)| *from == column.name).map_or(&column.name, |(_, to)| to).clone(),
        };
        let text = || written(Expr::Identifier(Ident::new(column.name.clone()))).to_string();
        let name = free(name, text, taken);
        SelectItem::ExprWithAlias { expr: written(reference(column)), alias: Ident::with_quote('"', name) }
    });
    Ok(made.collect())
}

/// A name that no other column has: this one, or else the text of the column, or one of these with a number.
fn free(name: String, text: impl Fn() -> String, taken: &mut HashSet<String>) -> String {
    let mut free = if taken.contains(&name) { text() } else { name.clone() };
    let mut number = 0_usize;
    while taken.contains(&free) {
        number += 1;
        free = format!("{name}_{number}");
    }
    taken.insert(free.clone());
    free
}

fn reference(column: &Column) -> Expr {
    let path = column.relation.iter().flat_map(|table| table.to_vec()).chain([column.name.clone()]);
    let mut path: Vec<Ident> = path.map(|part| Ident::with_quote('"', part)).collect();
    match path.len() {
        1 => Expr::Identifier(path.remove(0)),
        _ => Expr::CompoundIdentifier(path),
    }
}

/// An expression with another one in the place of each call of `COLUMNS`.
fn replaced(mut expr: Expr, by: &Expr) -> Expr {
    each_outer_expr_mut(&mut expr, &mut |expr| {
        if is_columns(expr) {
            *expr = by.clone();
        }
    });
    expr
}

/// The columns that the calls in an expression stand for.
fn chosen<'a>(expr: &Expr, columns: &'a [Column]) -> Result<Vec<&'a Column>> {
    let calls = calls_in(expr, is_columns);
    if calls.windows(2).any(|calls| calls[0].to_string() != calls[1].to_string()) {
        return plan_err!("COLUMNS with several arguments in one expression; write an item for each");
    }
    let Some(argument) = calls.first().and_then(argument) else { return plan_err!("{ARGUMENTS}") };
    let is_chosen: Vec<bool> = match &argument {
        FunctionArgExpr::Expr(Expr::Value(value)) => match &value.value {
            Value::SingleQuotedString(pattern) => matching(pattern, columns)?,
            _ => return plan_err!("{ARGUMENTS}"),
        },
        FunctionArgExpr::Expr(Expr::Array(list)) => {
            let names = list.elem.iter().map(text_of).collect::<Option<Vec<&str>>>();
            let Some(names) = names else { return plan_err!("{ARGUMENTS}") };
            if let Some(unknown) = names.iter().find(|name| !columns.iter().any(|column| column.name == **name)) {
                return plan_err!("there is no column '{unknown}' for COLUMNS; there are {}", names_of(columns));
            }
            columns.iter().map(|column| names.contains(&column.name.as_str())).collect()
        }
        FunctionArgExpr::Expr(_) => return plan_err!("{ARGUMENTS}"),
        FunctionArgExpr::WildcardWithOptions(options)
            if options.opt_replace.is_some() || options.opt_rename.is_some() =>
        {
            return plan_err!("{OPTIONS}");
        }
        _ => vec![true; columns.len()],
    };
    let chosen: Vec<&Column> = columns.iter().zip(is_chosen).filter(|(_, is)| *is).map(|(column, _)| column).collect();
    match chosen.is_empty() {
        true => plan_err!("no column matches {}; there are {}", calls[0], names_of(columns)),
        false => Ok(chosen),
    }
}

fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.as_str()),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a regular expression is found in the name of each column.
fn matching(pattern: &str, columns: &[Column]) -> Result<Vec<bool>> {
    let names = StringArray::from_iter_values(columns.iter().map(|column| column.name.as_str()));
    match regexp_is_match_scalar(&names, pattern, None) {
        Ok(found) => Ok(found.values().iter().collect()),
        Err(error) => plan_err!("'{pattern}' in COLUMNS is not a regular expression: {error}"),
    }
}

fn names_of(columns: &[Column]) -> String {
    columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// The names that `* RENAME` gives to columns.
fn renamed(item: &SelectItem, columns: &[Column]) -> Result<Vec<(String, String)>> {
    let (SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options)) = item else {
        return Ok(Vec::new());
    };
    let renamed = match &options.opt_rename {
        Some(RenameSelectItem::Single(one)) => std::slice::from_ref(one),
        Some(RenameSelectItem::Multiple(several)) => several.as_slice(),
        None => return Ok(Vec::new()),
    };
    if options.opt_replace.is_some() {
        return plan_err!(
            "* takes REPLACE or RENAME, not both; EXCLUDE the replaced column, and write it as an item of its own"
        );
    }
    let renamed = renamed.iter().map(|one| (value_of(&one.ident), value_of(&one.alias))).collect::<Vec<_>>();
    if let Some((unknown, _)) = renamed.iter().find(|(from, _)| !columns.iter().any(|column| column.name == *from)) {
        return plan_err!("there is no column '{unknown}' for RENAME; there are {}", names_of(columns));
    }
    Ok(renamed)
}
