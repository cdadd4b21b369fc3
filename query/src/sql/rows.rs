//! Rows that are compared: `(a, b) IN ((1, 2), (3, 4))`, `(a, b) IN (SELECT ...)`, `(a, b) = (1, 2)` and `(a, b) > (1, 2)`.
//!
//! DataFusion takes rows for objects: it can neither order them nor look them up in subqueries, and nulls in them are values. So a
//! comparison of rows becomes comparisons of their members, which follow SQL's rules for nulls.

use super::copies::Copies;
use super::depth::balanced;
use super::expressions::filled;
use super::orders::count;
use super::refused::refused;
use super::visit::{Flow, each_expr};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, Query, SelectItem, SetExpr, TableFactor, UnaryOperator,
};
use std::ops::ControlFlow;

/// Members of a row at most: the order of two rows takes a number of comparisons that grows with its square.
const MEMBERS_MAX: usize = 16;
const EMPTY: &str = "rows without members";
/// Rows of a list at most.
const ROWS_MAX: usize = 10_000;

/// What is not supported.
type Refused = String;

/// Refuses a row with rows in it that is compared: comparisons would become deeper than the stack that was reserved for them.
pub(super) fn check(expr: &Expr) -> Flow {
    let is_nested = match expr {
        Expr::InList { expr: row, list, .. } if is_row(row) => has_rows(row) || list.iter().any(has_rows),
        Expr::InSubquery { expr: row, .. } => has_rows(row),
        Expr::BinaryOp { left, right, .. } if is_row(left) && is_row(right) => has_rows(left) || has_rows(right),
        _ => false,
    };
    if is_nested { refused("a row within a row that is compared") } else { ControlFlow::Continue(()) }
}

fn is_row(expr: &Expr) -> bool {
    matches!(expr, Expr::Tuple(_))
}

/// Whether an expression is a row with rows in it.
fn has_rows(expr: &Expr) -> bool {
    let Expr::Tuple(members) = expr else { return false };
    let mut found = false;
    for member in members {
        each_expr(member, &mut |expr| found |= is_row(expr));
    }
    found
}

/// Replaces a comparison of rows.
pub(super) fn in_expr(expr: &mut Expr, copies: &mut Copies) -> Flow {
    let replaced = match expr {
        Expr::InList { expr: row, list, negated } => match row.as_ref() {
            Expr::Tuple(row) => in_list(row, list, *negated, copies),
            _ => return ControlFlow::Continue(()),
        },
        Expr::InSubquery { expr: row, subquery, negated } => match row.as_ref() {
            Expr::Tuple(row) => in_query(row, subquery, *negated),
            _ => return ControlFlow::Continue(()),
        },
        Expr::BinaryOp { left, op, right } => match (left.as_ref(), right.as_ref()) {
            (Expr::Tuple(left), Expr::Tuple(right)) => compared(left, op, right, copies),
            _ => return ControlFlow::Continue(()),
        },
        _ => return ControlFlow::Continue(()),
    };
    match replaced {
        Ok(replaced) => {
            *expr = Expr::Nested(Box::new(replaced));
            ControlFlow::Continue(())
        }
        Err(what) => refused(&what),
    }
}

fn in_list(row: &[Expr], list: &[Expr], negated: bool, copies: &mut Copies) -> Result<Expr, Refused> {
    if list.len() > ROWS_MAX {
        return Err(format!("IN with more than {ROWS_MAX} rows; join with a table of VALUES"));
    }
    for member in row {
        copies.add(member, list.len())?;
    }
    let same = |other: &Expr| match other {
        Expr::Tuple(other) => equal(row, other),
        other => Err(format!("a row that is compared with {other}; write a row of {} members", row.len())),
    };
    let found = balanced(list.iter().map(same).collect::<Result<_, _>>()?, &BinaryOperator::Or);
    let found = found.ok_or("IN without rows")?;
    Ok(if negated { not(found) } else { found })
}

/// `(a, b) IN (SELECT x, y ...)` is whether a row of the query with these members exists.
fn in_query(row: &[Expr], query: &Query, negated: bool) -> Result<Expr, Refused> {
    if negated {
        return Err("(a, b) NOT IN (SELECT x, y ...); write NOT EXISTS (SELECT 1 ... WHERE x = a AND y = b)".to_owned());
    }
    same_length(row.len(), count(&query.body).unwrap_or(row.len()))?;
    let columns: Vec<String> = (1..=row.len()).map(|at| format!("__c{at}")).collect();
    let conditions: Vec<String> = (1..=row.len()).map(|at| format!("__rows.__c{at} = ${at}")).collect();
    let (columns, conditions) = (columns.join(", "), conditions.join(" AND "));
    let text = format!("EXISTS (SELECT 1 AS found FROM (SELECT 1) AS __rows ({columns}) WHERE {conditions})");
    let mut exists = filled(&text, row);
    if let Some(Expr::Exists { subquery: outer, .. }) = &mut exists
        && let SetExpr::Select(select) = outer.body.as_mut()
        && let [from] = select.from.as_mut_slice()
        && let TableFactor::Derived { subquery, .. } = &mut from.relation
    {
        **subquery = with_names(query);
    }
    exists.ok_or_else(|| "this comparison of a row with a query".to_owned())
}

/// A query whose columns have names that differ, as those of a table must.
fn with_names(query: &Query) -> Query {
    let mut query = query.clone();
    if let SetExpr::Select(select) = query.body.as_mut() {
        for (at, item) in select.projection.iter_mut().enumerate() {
            if let SelectItem::UnnamedExpr(expr) = item {
                let alias = Ident::new(format!("__c{}", at + 1));
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
            }
        }
    }
    query
}

fn compared(left: &[Expr], op: &BinaryOperator, right: &[Expr], copies: &mut Copies) -> Result<Expr, Refused> {
    let strict = match op {
        BinaryOperator::Eq => return equal(left, right),
        BinaryOperator::NotEq => return equal(left, right).map(not),
        BinaryOperator::Lt | BinaryOperator::LtEq => BinaryOperator::Lt,
        BinaryOperator::Gt | BinaryOperator::GtEq => BinaryOperator::Gt,
        other => return Err(format!("{other} of rows; =, <>, <, <=, > and >= compare them")),
    };
    same_length(left.len(), right.len())?;
    for member in left.iter().chain(right) {
        copies.add(member, left.len())?;
    }
    ordered(left, (&strict, op), right).ok_or_else(|| EMPTY.to_owned())
}

fn equal(left: &[Expr], right: &[Expr]) -> Result<Expr, Refused> {
    same_length(left.len(), right.len())?;
    let pairs = left.iter().zip(right).map(|(left, right)| binary(left.clone(), &BinaryOperator::Eq, right.clone()));
    balanced(pairs.collect(), &BinaryOperator::And).ok_or_else(|| EMPTY.to_owned())
}

/// The first members that differ decide, so one of these is true: they do and all before them are equal. `last` compares the last ones.
/// `None` for rows without members.
fn ordered(left: &[Expr], (op, last): (&BinaryOperator, &BinaryOperator), right: &[Expr]) -> Option<Expr> {
    let pairs = || left.iter().zip(right);
    let decided_at = |(at, (left_member, right_member)): (usize, (&Expr, &Expr))| {
        let op = if at + 1 == left.len() { last } else { op };
        let before = pairs().take(at).map(|(left, right)| binary(left.clone(), &BinaryOperator::Eq, right.clone()));
        let differs = binary(left_member.clone(), op, right_member.clone());
        balanced(before.chain([differs]).collect(), &BinaryOperator::And)
    };
    let found = balanced(pairs().enumerate().filter_map(decided_at).collect(), &BinaryOperator::Or)?;
    // It follows from the rest, and lets a scan skip what lies before or after the first members.
    let bound = if *op == BinaryOperator::Lt { BinaryOperator::LtEq } else { BinaryOperator::GtEq };
    let (first_left, first_right) = pairs().next()?;
    Some(binary(binary(first_left.clone(), &bound, first_right.clone()), &BinaryOperator::And, found))
}

fn same_length(left: usize, right: usize) -> Result<(), Refused> {
    match left == right {
        true if left <= MEMBERS_MAX => Ok(()),
        true => Err(format!("rows of more than {MEMBERS_MAX} members that are compared")),
        false => Err(format!("a row of {left} members that is compared with one of {right}")),
    }
}

fn binary(left: Expr, op: &BinaryOperator, right: Expr) -> Expr {
    let side = |side: Expr| match side {
        side @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_) | Expr::Nested(_)) => Box::new(side),
        other => Box::new(Expr::Nested(Box::new(other))),
    };
    Expr::BinaryOp { left: side(left), op: op.clone(), right: side(right) }
}

fn not(expr: Expr) -> Expr {
    Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(Expr::Nested(Box::new(expr))) }
}
