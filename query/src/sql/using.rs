//! Columns that a join with `USING` merges.
//!
//! DataFusion takes the left table's column for them, which is NULL in rows that only the right one has, and does not find them
//! in WHERE, in expressions and in inner queries. So unqualified names of such columns are replaced: by the left table's column, by the right table's column for a right join, and by the first of
//! both that is not NULL for a full join. For `*` it takes the column of the table whose name sorts first, so `*` becomes a list of the
//! tables' columns. A further `USING` compares the first table's column; it becomes a condition where another one is meant.
//! Where a list has such a column beside that of one of its tables, which DataFusion refuses, each gets a name of its own.

mod unambiguous;

pub(crate) use unambiguous::Unambiguous;

use self::unambiguous::checked;
use super::expressions::filled;
use super::joins::{Sides, constraint_mut, has_join, is_semi, merges_any, sides};
use super::refused::refused;
use super::visit::{Flow, each_outer_expr_mut};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Distinct, ExcludeSelectItem, Expr, GroupByExpr, Ident, JoinConstraint, ObjectName, OrderByKind,
    Query, ReplaceSelectElement, ReplaceSelectItem, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr,
    TableAlias, TableFactor, TableWithJoins, VisitMut, WildcardAdditionalOptions,
};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Replaces the names in the order of a query.
pub(super) fn in_query(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    if !merges_any(&select.from) {
        return;
    }
    // What is refused is refused at the SELECT.
    let mut from = select.from.clone();
    name_tables(&mut from);
    let Ok(merged) = Merged::of(&mut from) else { return };
    if let Some(order) = &mut query.order_by
        && let OrderByKind::Expressions(order) = &mut order.kind
        && merged.everywhere
    {
        let (alone, inside) =
            (merged.clone().in_order(&select.projection, true), merged.in_order(&select.projection, false));
        for by in order {
            let merged = if matches!(by.expr, Expr::Identifier(_)) { &alone } else { &inside };
            merged.replace_in(&mut by.expr);
        }
    }
}

/// Replaces the names in a SELECT.
pub(super) fn in_select(select: &mut Select) -> Flow {
    if !merges_any(&select.from) {
        return ControlFlow::Continue(());
    }
    name_tables(&mut select.from);
    let merged = match Merged::of(&mut select.from) {
        Ok(merged) => merged,
        Err(what) => return refused(&what),
    };
    if let Some(condition) = &mut select.selection {
        merged.replace_in(condition);
    }
    if merged.everywhere {
        for condition in [&mut select.having, &mut select.qualify].into_iter().flatten() {
            merged.replace_in(condition);
        }
        if let GroupByExpr::Expressions(groups, _) = &mut select.group_by {
            groups.iter_mut().for_each(|group| merged.replace_in(group));
        }
        if let Some(Distinct::On(keys)) = &mut select.distinct {
            keys.iter_mut().for_each(|key| merged.replace_in(key));
        }
        merged.replace_in(&mut select.named_window);
    }
    match merged.items(std::mem::take(&mut select.projection)) {
        Ok(items) => {
            select.projection = items;
            ControlFlow::Continue(())
        }
        Err(what) => refused(&what),
    }
}

/// Takes leading joins out of parentheses, and gives tables without a name one, so that their columns can be named.
fn name_tables(from: &mut [TableWithJoins]) {
    let mut count = 0;
    for from in from {
        while let TableFactor::NestedJoin { table_with_joins: inner, alias: None } = &from.relation {
            let TableWithJoins { relation, joins } = inner.as_ref().clone();
            from.relation = relation;
            from.joins.splice(0..0, joins);
        }
        for table in from.joins.iter_mut().map(|join| &mut join.relation).chain([&mut from.relation]) {
            let (TableFactor::Table { args: Some(_), alias, .. }
            | TableFactor::Derived { alias, .. }
            | TableFactor::Function { alias, .. }) = table
            else {
                continue;
            };
            if alias.is_none() {
                let name = Ident::with_quote('"', format!("__table_{count}"));
                *alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
                count += 1;
            }
        }
    }
}

/// The merged columns of the joins of a SELECT.
#[derive(Clone, Default)]
struct Merged {
    columns: Vec<Column>,
    /// Whether the names are to be replaced outside WHERE too: whether it is known by what.
    everywhere: bool,
    /// Whether a column may be another one than that of the first table, or is merged twice.
    has_others: bool,
    /// The tables whose columns `*` stands for; `None` if it cannot be determined which table has a column.
    tables: Option<Vec<Table>>,
    /// Whether a table may lack the row of a merged column, so that `*` is not what DataFusion makes of it.
    is_outer: bool,
    /// Whether `columns` are all that are merged, and DataFusion knows them as merged.
    is_complete: bool,
    /// How many tables there are, once all joins are known.
    count: usize,
}

/// A merged column.
#[derive(Clone)]
struct Column {
    name: Ident,
    /// What it is replaced by.
    expr: Expr,
    /// The first table that has it, by its place.
    first: usize,
    /// Whether it is another column than that of the first table.
    is_other: bool,
    /// How many tables it is of, if that is known.
    count: Option<usize>,
}

/// A table, and the columns in which it is merged with one before it.
#[derive(Clone)]
struct Table {
    name: ObjectName,
    merged: Vec<Ident>,
}

impl Merged {
    /// A `USING` that DataFusion would get wrong becomes a condition.
    ///
    /// # Errors
    /// What is refused.
    fn of(from: &mut [TableWithJoins]) -> Result<Merged, String> {
        let mut all = Merged { tables: Some(Vec::new()), is_complete: true, ..Merged::default() };
        let mut at = 0;
        for from in from {
            let mut one = Merged::of_joins(from, at)?;
            at += 1 + from.joins.len();
            all.everywhere |= one.everywhere;
            all.is_outer |= one.is_outer;
            all.is_complete &= one.is_complete;
            all.tables = all.tables.take().zip(one.tables.take()).map(|(mut all, more)| {
                all.extend(more);
                all
            });
            for column in one.columns {
                // A name that two lists of joins have is ambiguous.
                match all.columns.iter().position(|known| is_same(&known.name, &column.name)) {
                    Some(known) => drop(all.columns.remove(known)),
                    None => all.columns.push(column),
                }
            }
        }
        all.count = at;
        Ok(all)
    }

    /// The columns of a table, at this place, and those that are joined to it.
    fn of_joins(from: &mut TableWithJoins, at: usize) -> Result<Merged, String> {
        let first = name_of(&from.relation);
        let tables = first.clone().map(|name| vec![Table { name, merged: Vec::new() }]);
        let is_outer = has_join(&from.relation, &|sides| sides != Sides::Inner);
        let mut merged = Merged { tables, is_outer, is_complete: true, ..Merged::default() };
        for (place, join) in from.joins.iter_mut().enumerate() {
            if [&from.relation, &join.relation].into_iter().any(|table| has_join(table, &Sides::has_right)) {
                return Err("RIGHT and FULL joins with USING or NATURAL in parentheses; write ON a.x = b.x".to_owned());
            }
            let right = name_of(&join.relation);
            let Some(sides) = sides(&join.join_operator) else {
                if !is_semi(&join.join_operator) {
                    merged.tables = None;
                }
                continue;
            };
            let mut names = Vec::new();
            match constraint_mut(&mut join.join_operator) {
                Some(JoinConstraint::Natural) => {
                    if sides.has_right() || merged.has_others {
                        return Err("NATURAL RIGHT and FULL joins, and NATURAL after one; write USING (x)".to_owned());
                    }
                    merged.is_outer |= sides != Sides::Inner;
                    (merged.tables, merged.is_complete) = (None, false);
                    merged.columns.iter_mut().for_each(|column| column.count = None);
                }
                Some(constraint @ JoinConstraint::Using(_)) => {
                    if let JoinConstraint::Using(of) = &*constraint {
                        names.extend(of.iter().filter_map(|name| name.0.last()?.as_ident()).cloned());
                    }
                    // Of several tables on the left, any may have a column.
                    let left = first.as_ref().filter(|_| place == 0);
                    if let Some(condition) = merged.merge(&names, (left, right.as_ref()), sides, at)? {
                        *constraint = JoinConstraint::On(condition);
                        merged.is_complete = false;
                    }
                }
                Some(JoinConstraint::On(condition)) if merged.everywhere => {
                    merged.count = place + 2;
                    merged.replace_in(condition);
                }
                _ => {}
            }
            merged.is_outer |= has_join(&join.relation, &|sides| sides != Sides::Inner);
            merged.tables = merged.tables.take().zip(right).map(|(mut tables, name)| {
                tables.push(Table { name, merged: names });
                tables
            });
        }
        Ok(merged)
    }

    /// Merges the columns of a join. Its condition, if DataFusion would take another one.
    fn merge(
        &mut self,
        names: &[Ident],
        (left, right): (Option<&ObjectName>, Option<&ObjectName>),
        sides: Sides,
        at: usize,
    ) -> Result<Option<Expr>, String> {
        let both = |left: &Expr, op, right: &Expr| Expr::BinaryOp {
            left: Box::new(left.clone()),
            op,
            right: Box::new(right.clone()),
        };
        let (mut condition, mut is_needed) = (Some(None), false);
        self.has_others |= sides.has_right();
        self.is_outer |= sides != Sides::Inner;
        for name in names {
            let known = self.columns.iter().position(|known| is_same(&known.name, name));
            let of_left = match known {
                Some(known) => Some(self.columns[known].expr.clone()),
                None => left.map(|table| column(table, name)),
            };
            let of_right = right.map(|table| column(table, name));
            is_needed |= known.is_some_and(|known| self.columns[known].is_other);
            // DataFusion takes a name that is merged twice for ambiguous.
            self.has_others |= known.is_some();
            self.everywhere |= sides.has_right() || known.is_some() || left.is_some();
            condition = condition.zip(of_left.as_ref().zip(of_right.as_ref())).map(|(all, (left, right))| {
                let one = both(left, BinaryOperator::Eq, right);
                Some(all.map_or(one.clone(), |all| both(&all, BinaryOperator::And, &one)))
            });
            let expr = match sides {
                Sides::Inner | Sides::Left => of_left,
                Sides::Right => of_right,
                Sides::Both => {
                    of_left.zip(of_right).and_then(|(left, right)| filled("coalesce($1, $2)", &[left, right]))
                }
            };
            match (expr, known.map(|known| &mut self.columns[known])) {
                (None, _) if sides.has_right() => return Err(undetermined(name)),
                (None, _) => self.is_complete = false,
                (Some(expr), Some(known)) => {
                    (known.expr, known.is_other) = (expr, known.is_other || sides.has_right());
                    known.count = known.count.zip(right).map(|(count, _)| count + 1);
                }
                (Some(expr), None) => {
                    if left.is_none() {
                        (self.tables, self.is_complete) = (None, false);
                    }
                    let (name, is_other, count) = (name.clone(), sides.has_right(), left.and(right).map(|_| 2));
                    self.columns.push(Column { name, expr, first: at, is_other, count });
                }
            }
        }
        match condition {
            _ if !is_needed => Ok(None),
            Some(condition) => Ok(condition),
            None => {
                let is_known = |name: &&Ident| self.column(name).is_some_and(|known| known.first != at);
                let open = names.iter().find(|name| !is_known(name)).or(names.first());
                Err(open.map(undetermined).unwrap_or_default())
            }
        }
    }

    fn column(&self, name: &Ident) -> Option<&Column> {
        self.columns.iter().find(|column| is_same(&column.name, name))
    }

    /// What a name is replaced by, if it is that of a merged column.
    fn value(&self, name: &Ident) -> Option<Expr> {
        let column = self.column(name)?;
        let value = column.expr.clone();
        Some(match column.count {
            Some(count) if count < self.count => checked(value, value_of(name), count),
            _ => value,
        })
    }

    fn replace_in(&self, node: &mut impl VisitMut) {
        // Inner queries may have tables with such columns.
        each_outer_expr_mut(node, &mut |expr| {
            if let Expr::Identifier(name) = expr
                && let Some(value) = self.value(name)
            {
                *expr = value;
            }
        });
    }

    /// What names in ORDER BY stand for: first for columns of the result. DataFusion only finds these if a name is `alone`.
    fn in_order(mut self, projection: &[SelectItem], alone: bool) -> Merged {
        let columns = std::mem::take(&mut self.columns);
        let is_shown_twice = |column: &Column| projection.iter().any(|item| self.shows(item, column));
        let shown = columns.iter().filter_map(|column| {
            let name = &column.name;
            let is_merged = |item: &&SelectItem| is_name(item, column);
            let shown = projection.iter().filter(is_merged).chain(projection).find_map(|item| match item {
                SelectItem::UnnamedExpr(Expr::Identifier(shown)) if is_same(shown, name) => {
                    Some((!alone || is_shown_twice(column)).then(|| column.expr.clone()))
                }
                SelectItem::ExprWithAlias { alias, .. } if is_same(alias, name) => Some(None),
                SelectItem::UnnamedExpr(expr @ Expr::CompoundIdentifier(parts)) => {
                    parts.last().is_some_and(|last| is_same(last, name)).then(|| Some(expr.clone()))
                }
                SelectItem::Wildcard(_) => Some((!alone).then(|| column.expr.clone())),
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(table), _) => {
                    self.has(table, column).then(|| Some(self::column(table, name)))
                }
                _ => None,
            });
            match shown {
                Some(expr) => Some(Column { expr: expr?, count: None, ..column.clone() }),
                None => Some(column.clone()),
            }
        });
        let columns = shown.collect();
        self.columns = columns;
        self
    }

    /// Whether a table has a merged column.
    fn has(&self, table: &ObjectName, column: &Column) -> bool {
        let is_it = |known: &Table| {
            known.name.0.len() == table.0.len()
                && known
                    .name
                    .0
                    .iter()
                    .zip(&table.0)
                    .all(|(a, b)| a.as_ident().zip(b.as_ident()).is_some_and(|(a, b)| is_same(a, b)))
        };
        let mut tables = self.tables.iter().flatten().enumerate();
        tables.any(|(at, known)| {
            is_it(known) && (at == column.first || known.merged.iter().any(|name| is_same(name, &column.name)))
        })
    }

    /// Whether an item is `t.*` of a table with this merged column.
    fn shows(&self, item: &SelectItem, column: &Column) -> bool {
        match item {
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(table), _) => {
                self.has(table, column)
            }
            _ => false,
        }
    }

    /// Whether an expression is a merged column of one table, such as `p.x`.
    fn is_of_table(&self, expr: &Expr, column: &Column) -> bool {
        match expr {
            Expr::CompoundIdentifier(parts) => parts.split_last().is_some_and(|(name, table)| {
                is_same(name, &column.name) && self.has(&ObjectName::from(table.to_vec()), column)
            }),
            _ => false,
        }
    }

    /// The merged columns that a list has beside one of a table.
    fn doubled(&self, items: &[SelectItem]) -> Vec<&Column> {
        let is_of_table = |item: &SelectItem, column: &Column| match item {
            SelectItem::UnnamedExpr(expr) => self.is_of_table(expr, column),
            item => self.shows(item, column),
        };
        let is_doubled = |column: &&Column| {
            items.iter().any(|item| is_name(item, column)) && items.iter().any(|item| is_of_table(item, column))
        };
        self.columns.iter().filter(is_doubled).collect()
    }

    /// The list of a SELECT.
    fn items(&self, items: Vec<SelectItem>) -> Result<Vec<SelectItem>, String> {
        let is_expanded = |item: &SelectItem| matches!(item, SelectItem::Wildcard(options) if has_no_options(options));
        let has_star = items.iter().any(is_expanded);
        let mut names: HashSet<String> = items.iter().filter_map(alias).map(value_of).collect();
        let shown = self.columns.iter().filter(|column| has_star || items.iter().any(|item| self.shows(item, column)));
        names.extend(shown.map(|column| value_of(&column.name)));
        let doubled = self.doubled(&items);
        let is_named = |name: &Ident| self.everywhere || doubled.iter().any(|column| is_same(&column.name, name));
        let mut list = Vec::with_capacity(items.len());
        for item in items {
            match item {
                SelectItem::Wildcard(options) => self.star(options, &mut list)?,
                SelectItem::UnnamedExpr(Expr::Identifier(name)) if is_named(&name) && self.column(&name).is_some() => {
                    let expr = self.value(&name).unwrap_or_else(|| Expr::Identifier(name.clone()));
                    let alias = if names.insert(value_of(&name)) { name } else { numbered(&name, &mut names) };
                    list.push(SelectItem::ExprWithAlias { expr, alias });
                }
                // As beside a `*` that stays one.
                SelectItem::UnnamedExpr(expr @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_)))
                    if has_star || doubled.iter().any(|column| self.is_of_table(&expr, column)) =>
                {
                    let name = match &expr {
                        Expr::Identifier(name) => name.clone(),
                        Expr::CompoundIdentifier(parts) => parts.last().cloned().unwrap_or_else(|| Ident::new("")),
                        _ => Ident::new(""),
                    };
                    list.push(SelectItem::ExprWithAlias { expr, alias: numbered(&name, &mut names) });
                }
                // Its column is named as it was typed, and not after what the names in it are replaced by.
                SelectItem::UnnamedExpr(mut expr) if self.everywhere => {
                    let typed = expr.clone();
                    self.replace_in(&mut expr);
                    if expr == typed {
                        list.push(SelectItem::UnnamedExpr(expr));
                        continue;
                    }
                    let name = Ident::with_quote('"', typed.to_string());
                    let alias = if names.insert(value_of(&name)) { name } else { numbered(&name, &mut names) };
                    list.push(SelectItem::ExprWithAlias { expr, alias });
                }
                mut item => {
                    if self.everywhere {
                        self.replace_in(&mut item);
                    }
                    list.push(item);
                }
            }
        }
        Ok(list)
    }

    /// The merged columns that `*` leaves out; `None` if it has other options.
    fn left_out(&self, options: &WildcardAdditionalOptions) -> Option<Vec<Ident>> {
        let mut others = options.clone();
        let names = match others.opt_exclude.take() {
            None => Vec::new(),
            Some(ExcludeSelectItem::Single(name)) => vec![name],
            Some(ExcludeSelectItem::Multiple(names)) => names,
        };
        let merged = |name: ObjectName| match name.0.as_slice() {
            [part] => part.as_ident().filter(|name| self.column(name).is_some()).cloned(),
            _ => None,
        };
        if has_no_options(&others) { names.into_iter().map(merged).collect() } else { None }
    }

    /// Adds what `*` stands for to a list.
    fn star(&self, mut options: WildcardAdditionalOptions, list: &mut Vec<SelectItem>) -> Result<(), String> {
        let replaced = |columns: &mut dyn Iterator<Item = &Column>| {
            let one = |of: &Column| {
                Box::new(ReplaceSelectElement { expr: of.expr.clone(), column_name: plain(&of.name), as_keyword: true })
            };
            let items: Vec<Box<ReplaceSelectElement>> = columns.map(one).collect();
            (!items.is_empty()).then_some(ReplaceSelectItem { items })
        };
        match self.tables.as_ref().zip(self.left_out(&options)) {
            Some((tables, left_out)) => {
                let is_left_out = |of: &Column| left_out.iter().any(|name| is_same(name, &of.name));
                for (at, table) in tables.iter().enumerate() {
                    let of_table = || self.columns.iter().filter(move |of| of.first == at);
                    let left_out = of_table().filter(|of| is_left_out(of)).map(|of| &of.name);
                    let merged: Vec<ObjectName> =
                        table.merged.iter().chain(left_out).map(|name| ObjectName::from(plain(name))).collect();
                    let options = WildcardAdditionalOptions {
                        opt_exclude: (!merged.is_empty()).then_some(ExcludeSelectItem::Multiple(merged)),
                        opt_replace: replaced(&mut of_table().filter(|of| of.is_other && !is_left_out(of))),
                        ..WildcardAdditionalOptions::default()
                    };
                    let of = SelectItemQualifiedWildcardKind::ObjectName(table.name.clone());
                    list.push(SelectItem::QualifiedWildcard(of, options));
                }
            }
            _ if !self.is_outer => list.push(SelectItem::Wildcard(options)),
            _ if self.is_complete && options.opt_replace.is_none() && options.opt_rename.is_none() => {
                options.opt_replace = replaced(&mut self.columns.iter());
                list.push(SelectItem::Wildcard(options));
            }
            _ => return Err("* over these outer joins with USING or NATURAL; name the columns".to_owned()),
        }
        Ok(())
    }
}

fn undetermined(name: &Ident) -> String {
    format!(
        "USING ({name}) where it is not clear which table on the left has the column; write ON a.{name} = b.{name}, with a name for \
         each table"
    )
}

/// A name for a column beside another one of its name.
fn numbered(name: &Ident, names: &mut HashSet<String>) -> Ident {
    let name = value_of(name);
    let free = (1..).map(|n| format!("{name}_{n}")).find(|name| !names.contains(name)).unwrap_or_default();
    names.insert(free.clone());
    Ident::with_quote('"', free)
}

/// Whether an item is the name of a merged column alone.
fn is_name(item: &SelectItem, column: &Column) -> bool {
    matches!(item, SelectItem::UnnamedExpr(Expr::Identifier(name)) if is_same(name, &column.name))
}

fn alias(item: &SelectItem) -> Option<&Ident> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias),
        _ => None,
    }
}

fn has_no_options(options: &WildcardAdditionalOptions) -> bool {
    let plain = WildcardAdditionalOptions { wildcard_token: options.wildcard_token.clone(), ..Default::default() };
    *options == plain
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

/// A name as the planner knows it.
pub(super) fn value_of(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_ascii_lowercase(),
    }
}

fn is_same(a: &Ident, b: &Ident) -> bool {
    value_of(a) == value_of(b)
}

/// The name where the planner does not fold it to small letters.
fn plain(name: &Ident) -> Ident {
    Ident::with_quote('"', value_of(name))
}
