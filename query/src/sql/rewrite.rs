//! Rewrites SQL of other databases into DataFusion's: `x ^ y`, `year(t)`, `max_by(v, t)`, `FETCH FIRST`, and so on.

use super::expressions::filled;
use super::lists;
use super::refused::refused;
use super::visit::Flow;
use super::windows::Windows;
use super::{orders, replaced, using};
use crate::dml::cast_of;
use crate::error::QueryError;
use crate::functions::intervals::in_words;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, DataType, ExactNumberInfo, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Ident, JoinConstraint, JoinOperator, LimitClause, ObjectName, ObjectNamePart, Query, Select,
    SelectFlavor, SelectItem, SetExpr, Subscript, UnaryOperator, Value, VisitorMut, WildcardAdditionalOptions,
};
use std::ops::ControlFlow;

/// Calls, their number of arguments, and what they stand for. `$1` and so on are the arguments; FILTER and OVER of a
/// call are moved to the call that the text begins with.
const CALLS: [(&str, usize, &str); 39] = [
    ("year", 1, "date_part('year', $1)"),
    ("quarter", 1, "date_part('quarter', $1)"),
    ("month", 1, "date_part('month', $1)"),
    ("week", 1, "date_part('week', $1)"),
    ("weekofyear", 1, "date_part('week', $1)"),
    ("day", 1, "date_part('day', $1)"),
    ("dayofmonth", 1, "date_part('day', $1)"),
    ("dayofweek", 1, "date_part('dow', $1)"),
    ("weekday", 1, "date_part('dow', $1)"),
    ("dayofyear", 1, "date_part('doy', $1)"),
    ("hour", 1, "date_part('hour', $1)"),
    ("minute", 1, "date_part('minute', $1)"),
    ("second", 1, "date_part('second', $1)"),
    ("millisecond", 1, "date_part('millisecond', $1)"),
    ("microsecond", 1, "date_part('microsecond', $1)"),
    ("epoch", 1, "date_part('epoch', $1)"),
    ("date", 1, "CAST($1 AS DATE)"),
    ("dayname", 1, "to_char($1, '%A')"),
    ("monthname", 1, "to_char($1, '%B')"),
    ("last_day", 1, "CAST(date_trunc('month', $1) + INTERVAL '1 month' - INTERVAL '1 day' AS DATE)"),
    ("epoch_ms", 1, "CAST(round(date_part('epoch', $1) * 1000) AS BIGINT)"),
    ("strftime", 2, "to_char($1, $2)"),
    ("max_by", 2, "last_value($1 ORDER BY $2) FILTER (WHERE $1 IS NOT NULL AND $2 IS NOT NULL)"),
    ("arg_max", 2, "last_value($1 ORDER BY $2) FILTER (WHERE $1 IS NOT NULL AND $2 IS NOT NULL)"),
    ("argmax", 2, "last_value($1 ORDER BY $2) FILTER (WHERE $1 IS NOT NULL AND $2 IS NOT NULL)"),
    ("min_by", 2, "first_value($1 ORDER BY $2) FILTER (WHERE $1 IS NOT NULL AND $2 IS NOT NULL)"),
    ("arg_min", 2, "first_value($1 ORDER BY $2) FILTER (WHERE $1 IS NOT NULL AND $2 IS NOT NULL)"),
    ("argmin", 2, "first_value($1 ORDER BY $2) FILTER (WHERE $1 IS NOT NULL AND $2 IS NOT NULL)"),
    ("count_if", 1, "count(*) FILTER (WHERE $1)"),
    ("percentile", 2, "percentile_cont($2) WITHIN GROUP (ORDER BY $1)"),
    ("quantile", 2, "percentile_cont($2) WITHIN GROUP (ORDER BY $1)"),
    ("percentile_cont", 2, "percentile_cont($2) WITHIN GROUP (ORDER BY $1)"),
    ("quantile_cont", 2, "percentile_cont($2) WITHIN GROUP (ORDER BY $1)"),
    (
        "width_bucket",
        4,
        "CASE WHEN $1 < $2 THEN 0 WHEN $1 >= $3 THEN $4 + 1 \
         ELSE CAST(floor(CAST($1 - $2 AS DOUBLE) / CAST($3 - $2 AS DOUBLE) * $4) AS BIGINT) + 1 END",
    ),
    ("stdev", 1, "stddev($1)"),
    ("average", 1, "avg($1)"),
    ("mod", 2, "($1 % $2)"),
    ("sign", 1, "signum($1)"),
    ("variance", 1, "var($1)"),
];

/// Names of calls, and what they stand for.
pub(crate) fn calls() -> impl Iterator<Item = (&'static str, &'static str)> {
    CALLS.iter().map(|(name, _, meaning)| (*name, *meaning))
}

/// Rewrites the statement that it visits.
#[derive(Default)]
pub(super) struct Rewrite {
    windows: Windows,
}

impl VisitorMut for Rewrite {
    type Break = Box<QueryError>;

    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        self.windows.enter_query();
        orders::in_query(query)?;
        using::in_query(query);
        if let Some(fetch) = query.fetch.take() {
            let one = || Expr::Value(Value::Number("1".to_owned(), false).into());
            let quantity = Some(fetch.quantity.clone().unwrap_or_else(one));
            match &mut query.limit_clause {
                Some(LimitClause::LimitOffset { limit: limit @ None, .. }) => *limit = quantity,
                clause @ None => {
                    *clause = Some(LimitClause::LimitOffset { limit: quantity, offset: None, limit_by: Vec::new() });
                }
                Some(_) => query.fetch = Some(fetch),
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> Flow {
        self.windows.leave_query();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        if select.flavor == SelectFlavor::FromFirstNoSelect && select.projection.is_empty() {
            select.projection.push(SelectItem::Wildcard(WildcardAdditionalOptions::default()));
        }
        for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
            name_side(&mut join.join_operator);
        }
        replaced::in_items(&mut select.projection);
        using::in_select(select)?;
        self.windows.enter_select(select)
    }

    fn post_visit_select(&mut self, _select: &mut Select) -> Flow {
        self.windows.leave_select();
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if let Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner } = expr
            && is_power(inner)
        {
            // A sign binds tighter than a power, as in PostgreSQL.
            let mut power = std::mem::replace(inner.as_mut(), null());
            let mut base = &mut power;
            while let Expr::BinaryOp { left, op: BinaryOperator::BitwiseXor, .. } = base {
                base = left;
            }
            let unsigned = std::mem::replace(base, null());
            *base = Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(unsigned) };
            *expr = power;
        }
        if let Expr::CompoundFieldAccess { root, access_chain } = expr {
            name_members(root, access_chain);
        }
        match expr {
            Expr::Function(call) => self.windows.in_call(call),
            _ => ControlFlow::Continue(()),
        }
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        match expr {
            Expr::TypedString(typed) if matches!(typed.data_type, DataType::Timestamp(..)) => {
                if let Value::SingleQuotedString(text) = &mut typed.value.value {
                    with_seconds(text);
                }
            }
            Expr::Interval(interval) if interval.leading_field.is_none() => {
                if let Expr::Value(value) = interval.value.as_mut()
                    && let Value::SingleQuotedString(text) = &mut value.value
                    && let Some(words) = in_words(text)
                {
                    *text = words;
                }
            }
            Expr::BinaryOp { left, op: BinaryOperator::BitwiseXor, right } => {
                let double = |side: &mut Expr| {
                    let side = std::mem::replace(side, null());
                    cast_of(side, DataType::Double(ExactNumberInfo::None))
                };
                let sides = [double(left.as_mut()), double(right.as_mut())];
                if let Some(power) = filled("power($1, $2)", &sides) {
                    *expr = power;
                }
            }
            Expr::Function(call) => {
                if let Some(query) = lists::query_of(call) {
                    let Some(list) = lists::list(query) else { return refused(lists::REFUSED) };
                    *expr = list;
                    return ControlFlow::Continue(());
                }
                if call.name.to_string().eq_ignore_ascii_case("list") {
                    call.name = ObjectName::from(Ident::new("array_agg"));
                }
                if let Some(expanded) = expand(call) {
                    *expr = expanded;
                }
            }
            Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } => {
                if let Expr::Subquery(query) = right.as_mut() {
                    name_compared(query);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Makes names of the words in a path that the parser takes for calls, such as `user`, and members of what is not a name itself
/// (`list[1].x`) members by their text, which is what DataFusion reads.
fn name_members(root: &mut Expr, access_chain: &mut [AccessExpr]) {
    if let Some(name) = bare_word(root).filter(|name| name.value.eq_ignore_ascii_case("user")) {
        *root = Expr::Identifier(name);
    }
    let mut is_path = matches!(root, Expr::Identifier(_));
    for access in access_chain {
        match access {
            AccessExpr::Dot(member) if let Some(name) = bare_word(member) => match is_path {
                true => *member = Expr::Identifier(name),
                false => {
                    let index = Expr::Value(Value::SingleQuotedString(name.value).into());
                    *access = AccessExpr::Subscript(Subscript::Index { index });
                }
            },
            _ => is_path = false,
        }
    }
}

/// The name that a word is, in quotes and as it is folded: it may be a word that begins something else.
fn bare_word(expr: &Expr) -> Option<Ident> {
    let name = match expr {
        Expr::Identifier(name) => name,
        Expr::Function(Function { name, args: FunctionArguments::None, over: None, filter: None, .. }) => {
            match name.0.as_slice() {
                [ObjectNamePart::Identifier(name)] => name,
                _ => return None,
            }
        }
        _ => return None,
    };
    let folded = if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() };
    Some(Ident { value: folded, quote_style: Some('"'), span: name.span })
}

/// Gives the column of a subquery after ANY or ALL a name that the outer query has not. DataFusion would take the outer query's column of
/// the same table and name for it.
fn name_compared(query: &mut Query) {
    if let SetExpr::Select(select) = query.body.as_mut()
        && let [item @ SelectItem::UnnamedExpr(_)] = select.projection.as_mut_slice()
        && let SelectItem::UnnamedExpr(expr) = item
    {
        let expr = std::mem::replace(expr, null());
        *item = SelectItem::ExprWithAlias { expr, alias: Ident::new("__compared") };
    }
}

/// `SEMI JOIN` and `ANTI JOIN` are of the left side.
fn name_side(join: &mut JoinOperator) {
    *join = match std::mem::replace(join, JoinOperator::CrossJoin(JoinConstraint::None)) {
        JoinOperator::Semi(constraint) => JoinOperator::LeftSemi(constraint),
        JoinOperator::Anti(constraint) => JoinOperator::LeftAnti(constraint),
        other => other,
    };
}

fn null() -> Expr {
    Expr::Value(Value::Null.into())
}

fn is_power(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryOp { op: BinaryOperator::BitwiseXor, .. })
}

/// Adds the seconds to `2024-05-05 05:00`: Arrow requires them.
fn with_seconds(text: &mut String) {
    let minutes = text.as_bytes().get(13) == Some(&b':') && text.is_ascii();
    if minutes && matches!(text.as_bytes().get(16), None | Some(b'Z' | b'z' | b'+' | b'-')) {
        text.insert_str(16, ":00");
    }
}

/// What a call stands for; `None` if it is not one of [`CALLS`].
fn expand(call: &Function) -> Option<Expr> {
    let [ObjectNamePart::Identifier(Ident { value: name, quote_style: None, .. })] = call.name.0.as_slice() else {
        return None;
    };
    let FunctionArguments::List(list) = &call.args else { return None };
    let (_, _, text) =
        CALLS.iter().find(|(known, arity, _)| name.eq_ignore_ascii_case(known) && *arity == list.args.len())?;
    if list.duplicate_treatment.is_some() || !list.clauses.is_empty() || !call.within_group.is_empty() {
        return None;
    }
    let arg = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    let mut args = list.args.iter().map(arg).collect::<Option<Vec<Expr>>>()?;
    let is_text = |expr: &Expr| matches!(expr, Expr::Value(v) if matches!(v.value, Value::SingleQuotedString(_)));
    // The format may come first. If it is no text here, the types tell: `functions::casts` swaps the two.
    if name.eq_ignore_ascii_case("strftime") && is_text(&args[0]) && !is_text(&args[1]) {
        args.swap(0, 1);
    }
    let mut expanded = filled(text, &args)?;
    match &mut expanded {
        Expr::Function(root) => {
            root.over.clone_from(&call.over);
            root.null_treatment = root.null_treatment.or(call.null_treatment);
            root.filter = match (root.filter.take(), call.filter.clone()) {
                (Some(ours), Some(given)) => {
                    let given = Box::new(Expr::Nested(given));
                    Some(Box::new(Expr::BinaryOp { left: ours, op: BinaryOperator::And, right: given }))
                }
                (ours, given) => ours.or(given),
            };
        }
        _ if call.over.is_some() || call.filter.is_some() => return None,
        _ => {}
    }
    Some(expanded)
}
