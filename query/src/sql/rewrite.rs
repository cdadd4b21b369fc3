//! Rewrites SQL of other databases into DataFusion's: `x ^ y`, `year(t)`, `max_by(v, t)`, `FETCH FIRST`, and so on.

use super::copies::Copies;
use super::expressions::{cast_of, filled};
use super::lists;
use super::refused::refused;
use super::short_forms::expand;
use super::visit::Flow;
use super::windows::Windows;
use super::{columns, orders, replaced, rows, using};
use crate::error::QueryError;
use crate::functions::intervals::in_words;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, DataType, ExactNumberInfo, Expr, Function, FunctionArguments, Ident, JoinConstraint,
    JoinOperator, LimitClause, ObjectName, ObjectNamePart, Query, Select, SelectFlavor, SelectItem, SetExpr, Subscript,
    UnaryOperator, Value, VisitorMut, WildcardAdditionalOptions,
};
use std::ops::ControlFlow;

/// Rewrites the statement that it visits.
#[derive(Default)]
pub(super) struct Rewrite {
    windows: Windows,
    copies: Copies,
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
        columns::check_joins(select)?;
        replaced::in_items(&mut select.projection);
        using::in_select(select)?;
        if let Some(condition) = &mut select.selection {
            rows::in_condition(condition, &mut self.copies)?;
        }
        self.windows.enter_select(select)
    }

    fn post_visit_select(&mut self, _select: &mut Select) -> Flow {
        self.windows.leave_select();
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        rows::check(expr)?;
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
        rows::in_expr(expr, &mut self.copies)?;
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
                match expand(call, &mut self.copies) {
                    Ok(Some(expanded)) => *expr = expanded,
                    Ok(None) => {}
                    Err(what) => return refused(what),
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
