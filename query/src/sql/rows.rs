//! Rows that are compared: `(a, b) IN ((1, 2), (3, 4))`, `(a, b) IN (SELECT ...)`, `(a, b) = (1, 2)` and `(a, b) > (1, 2)`.
//!
//! DataFusion takes rows for objects: it cannot order them, looks for none of them in subqueries, and takes nulls in them for values. So each
//! comparison becomes one of the members, which is null where those of SQL are.

use super::depth::balanced;
use super::expressions::filled;
use super::orders::count;
use super::refused::refused;
use super::visit::Flow;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, Query, SelectItem, SetExpr, TableFactor, UnaryOperator,
};
use std::ops::ControlFlow;

/// Members of a row at most: each makes a comparison of rows one level deeper.
const MEMBERS_MAX: usize = 16;
const EMPTY: &str = "rows without members";
/// Rows of a list at most.
const ROWS_MAX: usize = 10_000;

/// What is not supported.
type Refused = String;

/// Replaces a comparison of rows.
pub(super) fn in_expr(expr: &mut Expr) -> Flow {
    let replaced = match expr {
        Expr::InList { expr: row, list, negated } => match row.as_ref() {
            Expr::Tuple(row) => in_list(row, list, *negated),
            _ => return ControlFlow::Continue(()),
        },
        Expr::InSubquery { expr: row, subquery, negated } => match row.as_ref() {
            Expr::Tuple(row) => in_query(row, subquery, *negated),
            _ => return ControlFlow::Continue(()),
        },
        Expr::BinaryOp { left, op, right } => match (left.as_ref(), right.as_ref()) {
            (Expr::Tuple(left), Expr::Tuple(right)) => compared(left, op, right),
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

fn in_list(row: &[Expr], list: &[Expr], negated: bool) -> Result<Expr, Refused> {
    if list.len() > ROWS_MAX {
        return Err(format!("IN with more than {ROWS_MAX} rows; join with a table of VALUES"));
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

fn compared(left: &[Expr], op: &BinaryOperator, right: &[Expr]) -> Result<Expr, Refused> {
    match op {
        BinaryOperator::Eq => equal(left, right),
        BinaryOperator::NotEq => equal(left, right).map(not),
        BinaryOperator::Lt | BinaryOperator::LtEq => ordered(left, (&BinaryOperator::Lt, op), right),
        BinaryOperator::Gt | BinaryOperator::GtEq => ordered(left, (&BinaryOperator::Gt, op), right),
        other => Err(format!("{other} of rows; =, <>, <, <=, > and >= compare them")),
    }
}

fn equal(left: &[Expr], right: &[Expr]) -> Result<Expr, Refused> {
    same_length(left.len(), right.len())?;
    let pairs = left.iter().zip(right).map(|(left, right)| binary(left.clone(), &BinaryOperator::Eq, right.clone()));
    balanced(pairs.collect(), &BinaryOperator::And).ok_or_else(|| EMPTY.to_owned())
}

/// The first members that differ decide. `last` compares the last ones.
fn ordered(left: &[Expr], (op, last): (&BinaryOperator, &BinaryOperator), right: &[Expr]) -> Result<Expr, Refused> {
    same_length(left.len(), right.len())?;
    let mut pairs = left.iter().zip(right).rev();
    let Some((left_last, right_last)) = pairs.next() else { return Err(EMPTY.to_owned()) };
    let mut found = binary(left_last.clone(), last, right_last.clone());
    for (left, right) in pairs {
        let differs = binary(left.clone(), op, right.clone());
        let follows = binary(binary(left.clone(), &BinaryOperator::Eq, right.clone()), &BinaryOperator::And, found);
        found = binary(differs, &BinaryOperator::Or, follows);
    }
    // It follows from the rest, and lets a scan skip what lies before or after the first members.
    let bound = if *op == BinaryOperator::Lt { BinaryOperator::LtEq } else { BinaryOperator::GtEq };
    Ok(match (left.first(), right.first()) {
        (Some(left), Some(right)) => binary(binary(left.clone(), &bound, right.clone()), &BinaryOperator::And, found),
        _ => found,
    })
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
