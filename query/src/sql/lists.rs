//! `ARRAY(SELECT ...)`: the values of a query as a list.
//!
//! DataFusion takes it for a call without arguments. It becomes a subquery with an aggregate, and an empty list where that has no row.

use super::expressions::{call, filled};
use super::visit::each_expr;
use datafusion::functions_aggregate::all_default_aggregate_functions;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArgumentClause, FunctionArguments, GroupByExpr, Ident, OrderBy, OrderByKind, Query, Select,
    SelectItem, SetExpr, TableFactor, Value, Visit,
};
use std::collections::HashSet;
use std::sync::LazyLock;

/// What is refused: the order of the inner query would be lost.
pub(super) const REFUSED: &str = "ARRAY(SELECT ...) of a query that has ORDER BY beside LIMIT, DISTINCT, GROUP BY, UNION or an aggregate; \
     write ARRAY(SELECT x FROM (SELECT ...) AS q ORDER BY x)";

/// The query of `ARRAY(SELECT ...)`.
pub(crate) fn query_of(function: &Function) -> Option<&Query> {
    match &function.args {
        FunctionArguments::Subquery(query) => {
            let name = function.name.0.last()?.as_ident()?;
            name.value.eq_ignore_ascii_case("array").then_some(query.as_ref())
        }
        _ => None,
    }
}

/// The list of a query's values; `None` if it is [`REFUSED`].
pub(super) fn list(query: &Query) -> Option<Expr> {
    let mut query = query.clone();
    let values = match plain_item(&query) {
        Some((item, alias)) => {
            let order = order_by(&mut query, &item, alias.as_ref())?;
            let mut values = call("array_agg", vec![item]);
            if let Expr::Function(Function { args: FunctionArguments::List(list), .. }) = &mut values {
                list.clauses.extend(order);
            }
            if let SetExpr::Select(select) = query.body.as_mut() {
                select.projection = vec![SelectItem::UnnamedExpr(values)];
            }
            Expr::Subquery(Box::new(query))
        }
        None if query.order_by.is_none() => {
            let mut values = filled("(SELECT array_agg(__item) FROM (SELECT 1) AS __items (__item))", &[])?;
            if let Expr::Subquery(outer) = &mut values
                && let SetExpr::Select(select) = outer.body.as_mut()
                && let [from] = select.from.as_mut_slice()
                && let TableFactor::Derived { subquery, .. } = &mut from.relation
            {
                **subquery = query;
            }
            values
        }
        None => return None,
    };
    filled("coalesce($1, make_array())", &[values])
}

/// The only column of a query whose rows are those that it reads, and its alias.
fn plain_item(query: &Query) -> Option<(Expr, Option<Ident>)> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let Select { distinct, having, qualify, .. } = select.as_ref();
    let item = match select.projection.as_slice() {
        [SelectItem::UnnamedExpr(item)] => (item.clone(), None),
        [SelectItem::ExprWithAlias { expr, alias }] => (expr.clone(), Some(alias.clone())),
        _ => return None,
    };
    let is_plain = query.with.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && distinct.is_none()
        && having.is_none()
        && qualify.is_none()
        && matches!(&select.group_by, GroupByExpr::Expressions(groups, _) if groups.is_empty());
    (is_plain && !has_aggregate(&item.0)).then_some(item)
}

/// Takes the order of a query, as that of an aggregate of its column; `None` if it is of another kind.
fn order_by(query: &mut Query, item: &Expr, alias: Option<&Ident>) -> Option<Option<FunctionArgumentClause>> {
    let Some(OrderBy { kind, interpolate: None }) = query.order_by.take() else { return Some(None) };
    let OrderByKind::Expressions(mut order) = kind else { return None };
    for by in &mut order {
        let is_item = match &by.expr {
            Expr::Value(value) => matches!(&value.value, Value::Number(place, _) if place == "1"),
            Expr::Identifier(name) => alias.is_some_and(|alias| alias.value == name.value),
            _ => false,
        };
        if is_item {
            by.expr = item.clone();
        }
    }
    Some(Some(FunctionArgumentClause::OrderBy(order)))
}

/// Whether there is an aggregate, or a function over a window, at any depth.
pub(crate) fn has_aggregate(within: &impl Visit) -> bool {
    let mut found = false;
    each_expr(within, &mut |expr| {
        if let Expr::Function(function) = expr {
            found |= function.over.is_some() || is_aggregate(function);
        }
    });
    found
}

/// Whether a call is one of an aggregate, though it may be over a window.
pub(super) fn is_aggregate(call: &Function) -> bool {
    static NAMES: LazyLock<HashSet<String>> = LazyLock::new(|| {
        const OWN: [&str; 8] = ["first", "last", "delta", "increase", "rate", "time_weighted_avg", "histogram", "mode"];
        let mut names: HashSet<String> = OWN.map(str::to_owned).into_iter().collect();
        for aggregate in all_default_aggregate_functions() {
            names.extend(aggregate.aliases().iter().cloned());
            names.insert(aggregate.name().to_owned());
        }
        names
    });
    let name = call.name.0.last().and_then(|part| part.as_ident());
    call.filter.is_some()
        || !call.within_group.is_empty()
        || name.is_some_and(|name| NAMES.contains(&name.value.to_ascii_lowercase()))
}
