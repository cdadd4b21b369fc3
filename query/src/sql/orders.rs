//! `ORDER BY ALL`, and orders by the place of a window over groups.

use super::lists::has_aggregate;
use super::refused::refused;
use super::visit::{Flow, each_expr};
use super::wildcards::wildcard_of;
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, OrderByExpr, OrderByKind, OrderByOptions, Query, SelectItem, SetExpr, Value,
};
use std::mem::replace;
use std::ops::ControlFlow;

pub(super) fn in_query(query: &mut Query) -> Flow {
    let Some(order) = &mut query.order_by else { return ControlFlow::Continue(()) };
    if let OrderByKind::All(options) = &order.kind {
        match count(&query.body) {
            Some(count) => order.kind = OrderByKind::Expressions((1..=count).map(|at| place(at, *options)).collect()),
            // DataFusion knows the columns of `*`, if there is nothing else.
            None if matches!(query.body.as_ref(), SetExpr::Select(_)) => {}
            None => return refused("ORDER BY ALL over * with UNION and the like; name the columns"),
        }
    }
    if let OrderByKind::Expressions(order) = &order.kind
        && let SetExpr::Select(select) = query.body.as_mut()
        && !matches!(&select.group_by, GroupByExpr::Expressions(groups, _) if groups.is_empty())
    {
        let places: Vec<usize> = order.iter().filter_map(place_of).collect();
        let items = select.projection.iter_mut().enumerate();
        for (_, item) in items.filter(|(at, _)| places.contains(&(at + 1))) {
            name_window(item);
        }
    }
    ControlFlow::Continue(())
}

/// The number of columns, if it is known without the tables.
pub(super) fn count(body: &SetExpr) -> Option<usize> {
    match body {
        SetExpr::Select(select) => {
            let is_star = |item: &SelectItem| match item {
                SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => true,
                item => wildcard_of(item).is_some(),
            };
            let is_known = !select.projection.is_empty() && !select.projection.iter().any(is_star);
            is_known.then_some(select.projection.len())
        }
        SetExpr::SetOperation { left, .. } => count(left),
        SetExpr::Query(query) => count(&query.body),
        SetExpr::Values(values) => values.rows.first().map(|row| row.content.len()),
        _ => None,
    }
}

fn place(at: usize, options: OrderByOptions) -> OrderByExpr {
    OrderByExpr { expr: Expr::Value(Value::Number(at.to_string(), false).into()), options, with_fill: None }
}

fn place_of(by: &OrderByExpr) -> Option<usize> {
    match &by.expr {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => digits.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Names a window after its text: DataFusion does not find the aggregates in one that is sorted by its place.
fn name_window(item: &mut SelectItem) {
    let SelectItem::UnnamedExpr(expr) = item else { return };
    let mut is_window = false;
    each_expr(expr, &mut |expr| is_window |= matches!(expr, Expr::Function(call) if call.over.is_some()));
    if is_window && has_aggregate(expr) {
        let alias = Ident::with_quote('"', expr.to_string());
        let expr = replace(expr, Expr::Value(Value::Null.into()));
        *item = SelectItem::ExprWithAlias { expr, alias };
    }
}
