//! Rows that are compared: `(a, b) IN ((1, 2), (3, 4))`, `(a, b) IN (SELECT ...)`, `(a, b) = (1, 2)`, `(a, b) > (1, 2)` and the like.
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
    BinaryOperator, CaseWhen, Expr, Ident, Query, SelectItem, SetExpr, TableFactor, UnaryOperator,
};
use std::ops::ControlFlow;

/// Members of a row at most: the order of two rows takes a number of comparisons that grows with its square.
const MEMBERS_MAX: usize = 16;
const EMPTY: &str = "rows without members";
/// Rows of a list at most.
const ROWS_MAX: usize = 10_000;

/// What is not supported.
type Refused = String;

const NESTED: &str = "a row within a row that is compared";
const EXCLUDED: &str = "(a, b) NOT IN (SELECT x, y ...) elsewhere than in the WHERE of a SELECT, alone or joined by AND; write NOT EXISTS (SELECT 1 ... WHERE x = a AND y = b)";

/// Refuses a row with rows in it that is compared: comparisons would become deeper than the stack that was reserved for them.
pub(super) fn check(expr: &Expr) -> Flow {
    let is_nested = match expr {
        Expr::InList { expr: row, list, .. } if is_row(row) => has_rows(row) || list.iter().any(has_rows),
        Expr::InSubquery { expr: row, .. } => has_rows(row),
        Expr::AnyOp { left: row, right, .. } | Expr::AllOp { left: row, right, .. } => {
            query_of(right).is_some() && has_rows(row)
        }
        Expr::BinaryOp { left, right, .. } if is_row(left) && is_row(right) => has_rows(left) || has_rows(right),
        Expr::Between { expr: row, low, high, .. } if is_row(row) => [row, low, high].iter().any(|row| has_rows(row)),
        Expr::Case { operand: Some(row), conditions, .. } if is_row(row) => {
            has_rows(row) || conditions.iter().any(|case| has_rows(&case.condition))
        }
        _ => false,
    };
    if is_nested { refused(NESTED) } else { ControlFlow::Continue(()) }
}

/// Replaces `(a, b) NOT IN (SELECT x, y ...)` among the conditions of a WHERE that all have to be true. There, rows for which it is
/// null are left out like those for which it is false.
pub(super) fn in_condition(condition: &mut Expr, copies: &mut Copies) -> Flow {
    match condition {
        Expr::Nested(inner) => return in_condition(inner, copies),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            in_condition(left, copies)?;
            return in_condition(right, copies);
        }
        _ => {}
    }
    let Some((row, query)) = excluded(condition) else { return ControlFlow::Continue(()) };
    if has_rows(row) {
        return refused(NESTED);
    }
    match not_in_query(row, query, copies) {
        Ok(replaced) => {
            *condition = replaced;
            ControlFlow::Continue(())
        }
        Err(what) => refused(&what),
    }
}

/// The row that a query must not have for a condition to be true, and the query.
fn excluded(condition: &Expr) -> Option<(&Expr, &Query)> {
    match condition {
        Expr::InSubquery { expr: row, subquery, negated: true } if is_row(row) => {
            Some((row.as_ref(), subquery.as_ref()))
        }
        Expr::AllOp { left: row, compare_op: BinaryOperator::NotEq, right } if is_row(row) => {
            Some((row.as_ref(), query_of(right)?))
        }
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => sought(expr),
        _ => None,
    }
}

/// The row that a query must have for a condition to be true, and the query.
fn sought(condition: &Expr) -> Option<(&Expr, &Query)> {
    match condition {
        Expr::Nested(inner) => sought(inner),
        Expr::InSubquery { expr: row, subquery, negated: false } if is_row(row) => {
            Some((row.as_ref(), subquery.as_ref()))
        }
        Expr::AnyOp { left: row, compare_op: BinaryOperator::Eq, right, .. } if is_row(row) => {
            Some((row.as_ref(), query_of(right)?))
        }
        _ => None,
    }
}

fn query_of(expr: &Expr) -> Option<&Query> {
    match expr {
        Expr::Subquery(query) => Some(query),
        _ => None,
    }
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
    let is_any = matches!(expr, Expr::AnyOp { .. });
    let replaced = match expr {
        Expr::InList { expr: row, list, negated } => match row.as_ref() {
            Expr::Tuple(row) => in_list(row, list, *negated, copies),
            _ => return ControlFlow::Continue(()),
        },
        Expr::InSubquery { expr: row, subquery, negated } => match row.as_ref() {
            Expr::Tuple(_) if *negated => Err(EXCLUDED.to_owned()),
            Expr::Tuple(row) => in_query(row, subquery, &equal_to_column),
            _ => return ControlFlow::Continue(()),
        },
        Expr::AnyOp { left: row, compare_op: op, right, .. } | Expr::AllOp { left: row, compare_op: op, right } => {
            match (row.as_ref(), query_of(right), &*op) {
                (Expr::Tuple(row), Some(query), BinaryOperator::Eq) if is_any => in_query(row, query, &equal_to_column),
                (Expr::Tuple(_), Some(_), BinaryOperator::NotEq) if !is_any => Err(EXCLUDED.to_owned()),
                (Expr::Tuple(_), Some(_), op) => Err(format!("{op} ANY and ALL of rows; there are = ANY and <> ALL")),
                _ => return ControlFlow::Continue(()),
            }
        }
        Expr::BinaryOp { left, op, right } => match (left.as_ref(), right.as_ref()) {
            (Expr::Tuple(left), Expr::Tuple(right)) => compared(left, op, right, copies),
            _ => return ControlFlow::Continue(()),
        },
        Expr::Between { expr: row, negated, low, high } => match (row.as_ref(), low.as_ref(), high.as_ref()) {
            (Expr::Tuple(row), Expr::Tuple(low), Expr::Tuple(high)) => {
                between(row, low, high, copies).map(|found| if *negated { not(found) } else { found })
            }
            _ => return ControlFlow::Continue(()),
        },
        // A row within these rows stays an object: of objects too, members that are null are equal.
        Expr::IsDistinctFrom(left, right) => match (left.as_ref(), right.as_ref()) {
            (Expr::Tuple(left), Expr::Tuple(right)) => {
                each_pair(left, right, Expr::IsDistinctFrom, &BinaryOperator::Or)
            }
            _ => return ControlFlow::Continue(()),
        },
        Expr::IsNotDistinctFrom(left, right) => match (left.as_ref(), right.as_ref()) {
            (Expr::Tuple(left), Expr::Tuple(right)) => {
                each_pair(left, right, Expr::IsNotDistinctFrom, &BinaryOperator::And)
            }
            _ => return ControlFlow::Continue(()),
        },
        Expr::Case { operand, conditions, .. } => {
            let Some(Expr::Tuple(row)) = operand.as_deref() else { return ControlFlow::Continue(()) };
            return match in_cases(row, conditions, copies) {
                Ok(()) => {
                    *operand = None;
                    ControlFlow::Continue(())
                }
                Err(what) => refused(&what),
            };
        }
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
    let same = list.iter().map(|other| equal_to(row, other));
    let found = balanced(same.collect::<Result<_, _>>()?, &BinaryOperator::Or);
    let found = found.ok_or("IN without rows")?;
    Ok(if negated { not(found) } else { found })
}

/// Whether a row is equal to another expression, which must be a row too.
fn equal_to(row: &[Expr], other: &Expr) -> Result<Expr, Refused> {
    match other {
        Expr::Tuple(other) => equal(row, other),
        other => Err(format!("a row that is compared with {other}; write a row of {} members", row.len())),
    }
}

/// `CASE (a, b) WHEN (1, 2) ...` is `CASE WHEN (a, b) = (1, 2) ...`.
fn in_cases(row: &[Expr], cases: &mut [CaseWhen], copies: &mut Copies) -> Result<(), Refused> {
    for member in row {
        copies.add(member, cases.len())?;
    }
    for case in cases {
        case.condition = Expr::Nested(Box::new(equal_to(row, &case.condition)?));
    }
    Ok(())
}

/// That a column of a query is equal to the member of a row in its place.
fn equal_to_column(at: usize) -> String {
    format!("__rows.__c{at} = ${at}")
}

/// `(a, b) NOT IN (SELECT x, y ...)` is true if for each row of the query the comparison with one member is false.
fn not_in_query(row: &Expr, query: &Query, copies: &mut Copies) -> Result<Expr, Refused> {
    let Expr::Tuple(row) = row else { return Err(EXCLUDED.to_owned()) };
    for member in row {
        copies.add(member, 1)?;
    }
    let is_not_false = |at: usize| format!("({} OR __rows.__c{at} IS NULL OR ${at} IS NULL)", equal_to_column(at));
    let mut exists = in_query(row, query, &is_not_false)?;
    if let Expr::Exists { negated, .. } = &mut exists {
        *negated = true;
    }
    Ok(exists)
}

/// `(a, b) IN (SELECT x, y ...)` is whether a row of the query exists for which these conditions hold, one for each place.
fn in_query(row: &[Expr], query: &Query, condition: &dyn Fn(usize) -> String) -> Result<Expr, Refused> {
    same_length(row.len(), count(&query.body).unwrap_or(row.len()))?;
    let columns: Vec<String> = (1..=row.len()).map(|at| format!("__c{at}")).collect();
    let conditions: Vec<String> = (1..=row.len()).map(condition).collect();
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

fn between(row: &[Expr], low: &[Expr], high: &[Expr], copies: &mut Copies) -> Result<Expr, Refused> {
    for member in row {
        copies.add(member, 1)?;
    }
    let from = compared(row, &BinaryOperator::GtEq, low, copies)?;
    Ok(binary(from, &BinaryOperator::And, compared(row, &BinaryOperator::LtEq, high, copies)?))
}

fn equal(left: &[Expr], right: &[Expr]) -> Result<Expr, Refused> {
    let is_equal = |left, right| Expr::BinaryOp { left, op: BinaryOperator::Eq, right };
    each_pair(left, right, is_equal, &BinaryOperator::And)
}

/// Comparisons of the members of two rows, with an operator between them.
fn each_pair(
    left: &[Expr],
    right: &[Expr],
    compare: fn(Box<Expr>, Box<Expr>) -> Expr,
    op: &BinaryOperator,
) -> Result<Expr, Refused> {
    same_length(left.len(), right.len())?;
    let pairs = left.iter().zip(right).map(|(left, right)| {
        let compared = compare(side(left.clone()), side(right.clone()));
        if matches!(compared, Expr::BinaryOp { .. }) { compared } else { Expr::Nested(Box::new(compared)) }
    });
    balanced(pairs.collect(), op).ok_or_else(|| EMPTY.to_owned())
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

/// A side of a comparison, in parentheses unless it needs none.
fn side(expr: Expr) -> Box<Expr> {
    match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_) | Expr::Nested(_) => Box::new(expr),
        other => Box::new(Expr::Nested(Box::new(other))),
    }
}

fn binary(left: Expr, op: &BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: side(left), op: op.clone(), right: side(right) }
}

fn not(expr: Expr) -> Expr {
    Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(Expr::Nested(Box::new(expr))) }
}
