//! Columns that a join with `USING` merges.
//!
//! DataFusion takes the left table's column for them, which is NULL in rows that only the right one has, and does not find them
//! in WHERE. So unqualified names of such columns are replaced: by the right table's column for a right join, and by the first of
//! both that is not NULL for a full join.

use super::rewrite::filled;
use super::visit::{Flow, visit_mut};
use crate::error::QueryError;
use datafusion::sql::sqlparser::ast::{
    Distinct, ExcludeSelectItem, Expr, GroupByExpr, Ident, Join, JoinConstraint, JoinOperator, ObjectName, OrderByKind,
    Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableFactor, VisitMut, VisitorMut,
    WildcardAdditionalOptions,
};
use std::ops::ControlFlow;

/// Replaces the names in a query.
pub(super) fn in_query(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let Some(merged) = Merged::of(select).filter(|merged| merged.everywhere) else { return };
    let is_selected = |name: &Ident| {
        select.projection.iter().any(|item| match item {
            SelectItem::UnnamedExpr(Expr::Identifier(selected)) | SelectItem::ExprWithAlias { alias: selected, .. } => {
                is_same(selected, name)
            }
            SelectItem::Wildcard(_) => true,
            _ => false,
        })
    };
    if let Some(order) = &mut query.order_by
        && let OrderByKind::Expressions(order) = &mut order.kind
    {
        for by in order {
            match &by.expr {
                Expr::Identifier(name) if is_selected(name) => {}
                _ => merged.replace_in(&mut by.expr),
            }
        }
    }
}

/// Replaces the names in a SELECT.
pub(super) fn in_select(select: &mut Select) {
    let Some(merged) = Merged::of(select) else { return };
    if let Some(condition) = &mut select.selection {
        merged.replace_in(condition);
    }
    if !merged.everywhere {
        return;
    }
    for condition in [&mut select.having, &mut select.qualify].into_iter().flatten() {
        merged.replace_in(condition);
    }
    if let GroupByExpr::Expressions(groups, _) = &mut select.group_by {
        groups.iter_mut().for_each(|group| merged.replace_in(group));
    }
    if let Some(Distinct::On(keys)) = &mut select.distinct {
        keys.iter_mut().for_each(|key| merged.replace_in(key));
    }
    let items = std::mem::take(&mut select.projection);
    select.projection = items.into_iter().flat_map(|item| merged.item(item)).collect();
}

/// The merged columns of the joins of a SELECT.
#[derive(Default)]
struct Merged {
    columns: Vec<(Ident, Expr)>,
    /// Whether the names are to be replaced outside WHERE too.
    everywhere: bool,
    /// The tables of the join, if there is only one.
    tables: Option<[ObjectName; 2]>,
}

impl Merged {
    /// `None` if there are none, or they cannot be determined.
    fn of(select: &Select) -> Option<Merged> {
        let [from] = select.from.as_slice() else { return None };
        let left = name_of(&from.relation);
        let mut merged = Merged::default();
        for (at, join) in from.joins.iter().enumerate() {
            let Some((names, sides)) = using(join) else { continue };
            let right = name_of(&join.relation)?;
            for name in names {
                let known = merged.columns.iter().position(|(known, _)| is_same(known, name));
                let of_left = match known {
                    Some(known) => merged.columns[known].1.clone(),
                    // Of several tables on the left, any may have it.
                    None if at == 0 => column(left.as_ref()?, name),
                    None => return None,
                };
                let column = match sides {
                    Sides::Left => of_left,
                    Sides::Right => column(&right, name),
                    Sides::Both => filled("coalesce($1, $2)", &[of_left, column(&right, name)])?,
                };
                merged.everywhere |= sides != Sides::Left;
                match known {
                    Some(known) => merged.columns[known].1 = column,
                    None => merged.columns.push((name.clone(), column)),
                }
            }
        }
        if let ([join], Some(left)) = (from.joins.as_slice(), left) {
            merged.tables = name_of(&join.relation).map(|right| [left, right]);
        }
        (!merged.columns.is_empty()).then_some(merged)
    }

    fn column(&self, name: &Ident) -> Option<&Expr> {
        self.columns.iter().find(|(known, _)| is_same(known, name)).map(|(_, column)| column)
    }

    fn replace_in(&self, node: &mut impl VisitMut) {
        let _infallible = visit_mut(node, &mut Replace { merged: self, depth: 0 });
    }

    fn item(&self, item: SelectItem) -> Vec<SelectItem> {
        match (item, &self.tables) {
            (SelectItem::UnnamedExpr(Expr::Identifier(name)), _) if self.column(&name).is_some() => {
                let expr = self.column(&name).cloned().unwrap_or_else(|| Expr::Identifier(name.clone()));
                vec![SelectItem::ExprWithAlias { expr, alias: name }]
            }
            (SelectItem::Wildcard(options), Some(tables)) if has_no_options(&options) => {
                let names = || self.columns.iter().map(|(name, _)| ObjectName::from(name.clone())).collect();
                let options = || WildcardAdditionalOptions {
                    opt_exclude: Some(ExcludeSelectItem::Multiple(names())),
                    ..WildcardAdditionalOptions::default()
                };
                let rest = tables.iter().map(|table| {
                    SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(table.clone()), options())
                });
                let columns = self.columns.iter().cloned();
                columns.map(|(alias, expr)| SelectItem::ExprWithAlias { expr, alias }).chain(rest).collect()
            }
            (mut item, _) => {
                self.replace_in(&mut item);
                vec![item]
            }
        }
    }
}

fn has_no_options(options: &WildcardAdditionalOptions) -> bool {
    let plain = WildcardAdditionalOptions { wildcard_token: options.wildcard_token.clone(), ..Default::default() };
    *options == plain
}

/// The tables that have a value in each row of a join.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sides {
    Left,
    Right,
    Both,
}

fn using(join: &Join) -> Option<(Vec<&Ident>, Sides)> {
    let (constraint, sides) = match &join.join_operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint) => (constraint, Sides::Left),
        JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => (constraint, Sides::Right),
        JoinOperator::FullOuter(constraint) => (constraint, Sides::Both),
        _ => return None,
    };
    let JoinConstraint::Using(names) = constraint else { return None };
    let names: Option<Vec<&Ident>> = names.iter().map(|name| name.0.last()?.as_ident()).collect();
    names.map(|names| (names, sides))
}

/// The name by which a table's columns are qualified.
pub(super) fn name_of(table: &TableFactor) -> Option<ObjectName> {
    match table {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. } => Some(ObjectName::from(alias.name.clone())),
        TableFactor::Table { name, args: None, .. } => Some(name.clone()),
        _ => None,
    }
}

fn column(table: &ObjectName, name: &Ident) -> Expr {
    let parts = table.0.iter().filter_map(|part| part.as_ident()).chain([name]);
    Expr::CompoundIdentifier(parts.cloned().collect())
}

fn is_same(a: &Ident, b: &Ident) -> bool {
    a.value.eq_ignore_ascii_case(&b.value)
}

/// Replaces names, but for those of inner queries, which may have tables with such columns.
struct Replace<'a> {
    merged: &'a Merged,
    depth: usize,
}

impl VisitorMut for Replace<'_> {
    type Break = Box<QueryError>;

    fn pre_visit_query(&mut self, _query: &mut Query) -> Flow {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> Flow {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if self.depth == 0
            && let Expr::Identifier(name) = expr
            && let Some(column) = self.merged.column(name)
        {
            *expr = column.clone();
        }
        ControlFlow::Continue(())
    }
}
