//! Names of columns: the columns of a result are headed as they were typed, and no two columns of a list have the same
//! name.
//!
//! DataFusion names a cast after its operand, and refuses lists in which two columns have the same name. So a column
//! that would clash with another one of its list is named by its own text; and so is an expression in an inner query,
//! where DataFusion would show its own form of it.

use super::rewrite::call;
use super::using;
use super::visit::{Flow, each_expr, visit_mut};
use crate::error::QueryError;
use crate::functions::apart::APART;
use crate::statement::lexer::Offsets;
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr, Statement, TableFactor, Value, Visit,
    VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

/// The heading of a column of the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Heading {
    /// This text.
    Typed(String),
    /// Its name.
    Name,
    /// `*`: as many columns as it stands for.
    Star,
}

/// The headings of a query's columns, from its tokens; empty if they cannot be determined.
pub(super) fn headings(statement: &Statement, text: &str, tokens: &[TokenWithSpan]) -> Vec<Heading> {
    let Statement::Query(query) = statement else { return Vec::new() };
    let Some(select) = first_select(&query.body) else { return Vec::new() };
    let items = items(tokens);
    if items.len() != select.projection.len() {
        return Vec::new();
    }
    let offsets = Offsets::new(text);
    let typed = |range: &(usize, usize)| {
        let tokens = tokens.get(range.0..=range.1)?;
        let slice = text.get(offsets.of(tokens.first()?.span.start)..offsets.of(tokens.last()?.span.end))?;
        Some(if slice.contains('\'') { slice.replace(['\n', '\t'], " ") } else { one_line(slice) })
    };
    let heading = |(item, range): (&SelectItem, &(usize, usize))| match item {
        SelectItem::UnnamedExpr(Expr::Identifier(_) | Expr::CompoundIdentifier(_)) => Heading::Name,
        SelectItem::UnnamedExpr(_) => typed(range).map_or(Heading::Name, Heading::Typed),
        SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => Heading::Star,
        _ => Heading::Name,
    };
    select.projection.iter().zip(&items).map(heading).collect()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn first_select(body: &SetExpr) -> Option<&Select> {
    let mut body = body;
    loop {
        body = match body {
            SetExpr::Select(select) => return Some(select),
            SetExpr::SetOperation { left, .. } => left,
            _ => return None,
        };
    }
}

/// The first and the last token of each item of the outermost list.
fn items(tokens: &[TokenWithSpan]) -> Vec<(usize, usize)> {
    const ENDS: [&str; 15] = [
        "FROM",
        "INTO",
        "WHERE",
        "GROUP",
        "HAVING",
        "ORDER",
        "LIMIT",
        "OFFSET",
        "UNION",
        "EXCEPT",
        "INTERSECT",
        "QUALIFY",
        "WINDOW",
        "FETCH",
        "PREWHERE",
    ];
    let word = |at: usize| match tokens.get(at).map(|token| &token.token) {
        Some(Token::Word(word)) if word.quote_style.is_none() => word.value.to_uppercase(),
        _ => String::new(),
    };
    let (mut depth, mut start, mut found) = (0_usize, None, Vec::new());
    for (at, token) in tokens.iter().enumerate() {
        match &token.token {
            Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
            Token::RParen | Token::RBracket | Token::RBrace => depth = depth.saturating_sub(1),
            Token::Comma if depth == 0 => {
                if let Some(from) = start {
                    found.push((from, at.saturating_sub(1)));
                    start = Some(at + 1);
                }
            }
            Token::Word(_) if depth == 0 && start.is_none() && word(at) == "SELECT" => {
                let mut from = at + 1;
                if matches!(word(from).as_str(), "ALL" | "DISTINCT") {
                    from += 1;
                    if word(from) == "ON" {
                        from = after_parentheses(tokens, from + 1);
                    }
                }
                start = Some(from);
            }
            Token::Word(_)
                if depth == 0 && start.is_some_and(|from| at > from) && ENDS.contains(&word(at).as_str()) =>
            {
                let is_distinct_from = word(at) == "FROM" && word(at.saturating_sub(1)) == "DISTINCT";
                let is_within_group = word(at) == "GROUP" && word(at.saturating_sub(1)) == "WITHIN";
                let of_star =
                    word(at) == "EXCEPT" && tokens.get(at.saturating_sub(1)).is_some_and(|t| t.token == Token::Mul);
                if !is_distinct_from && !is_within_group && !of_star {
                    found.extend(start.map(|from| (from, at - 1)));
                    return found;
                }
            }
            _ => {}
        }
    }
    found.extend(start.map(|from| (from, tokens.len().saturating_sub(1))));
    found
}

fn after_parentheses(tokens: &[TokenWithSpan], from: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(from) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// Names columns that would clash with another column.
pub(super) struct Names;

impl VisitorMut for Names {
    type Break = Box<QueryError>;

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> Flow {
        match statement {
            Statement::CreateView(view) => name_all(&mut view.query),
            Statement::CreateTable(table) => {
                if let Some(query) = &mut table.query {
                    name_all(query);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        for table in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            name_all(&mut table.query);
        }
        name_sorted_casts(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> Flow {
        keep_casts_apart(query);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> Flow {
        if let TableFactor::Derived { subquery, .. } = table {
            name_all(subquery);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        make_unique(&mut select.projection);
        ControlFlow::Continue(())
    }
}

/// Names the columns of an inner query, except for plain columns and casts of columns, which keep their column's name.
fn name_all(query: &mut Query) {
    let mut body = query.body.as_mut();
    loop {
        body = match body {
            SetExpr::Select(select) => {
                name_members(select);
                for item in &mut select.projection {
                    if let SelectItem::UnnamedExpr(expr) = item
                        && !is_column(expr)
                        && let text = expr.to_string()
                    {
                        give(item, text);
                    }
                }
                return;
            }
            SetExpr::SetOperation { left, .. } => left.as_mut(),
            SetExpr::Query(inner) => inner.body.as_mut(),
            _ => return,
        };
    }
}

/// Names the members of objects, such as `sensor.region`, after their last part, unless another column has this name.
fn name_members(select: &mut Select) {
    let tables: Vec<Ident> = select
        .from
        .iter()
        .flat_map(|from| std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)))
        .filter_map(|table| using::name_of(table)?.0.last()?.as_ident().cloned())
        .collect();
    let name = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(Expr::Identifier(name)) | SelectItem::ExprWithAlias { alias: name, .. } => {
            Some(name.clone())
        }
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last().cloned(),
        _ => None,
    };
    if select.projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)))
    {
        return;
    }
    let names: Vec<Option<Ident>> = select.projection.iter().map(name).collect();
    for (item, name) in select.projection.iter_mut().zip(&names) {
        let SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) = &*item else { continue };
        let of_table = tables.iter().any(|table| parts.first().is_some_and(|first| first.value == table.value));
        let is_single = names.iter().filter(|other| *other == name).count() == 1;
        if parts.len() > usize::from(of_table) + 1
            && is_single
            && let Some(name) = name
        {
            give(item, name.value.clone());
        }
    }
}

/// Names the casts of columns that the query is sorted by: to sort, DataFusion adds the column itself to the list.
fn name_sorted_casts(query: &mut Query) {
    let Some(order) = &query.order_by else { return };
    let OrderByKind::Expressions(order) = &order.kind else { return };
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    if !select.projection.iter().any(|item| matches!(item, SelectItem::UnnamedExpr(expr) if is_cast(expr))) {
        return;
    }
    let sorted: HashSet<String> = order.iter().map(|by| by.expr.to_string()).collect();
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) = &*item
            && is_cast(expr)
            && is_column(expr)
        {
            let text = expr.to_string();
            if sorted.contains(&bare(expr)) {
                give(item, text);
            }
        }
    }
}

/// Whether an expression becomes a cast in a plan.
fn is_cast(expr: &Expr) -> bool {
    matches!(expr, Expr::Cast { .. } | Expr::AtTimeZone { .. })
}

fn is_column(expr: &Expr) -> bool {
    match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => true,
        Expr::Cast { expr, .. } | Expr::AtTimeZone { timestamp: expr, .. } | Expr::Nested(expr) => is_column(expr),
        _ => false,
    }
}

fn give(item: &mut SelectItem, name: String) {
    if let SelectItem::UnnamedExpr(expr) = item {
        let expr = std::mem::replace(expr, Expr::Value(Value::Null.into()));
        *item = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', name) };
    }
}

/// Renames items that would clash with another item of their list.
fn make_unique(items: &mut [SelectItem]) {
    if items.len() < 2 {
        return;
    }
    let is_star = |item: &SelectItem| matches!(item, SelectItem::Wildcard(options) if options.opt_exclude.is_none() && options.opt_except.is_none() && options.opt_rename.is_none());
    let all = items.iter().any(is_star);
    let any = items.iter().any(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)));
    // DataFusion's name of each item: its text without casts and parentheses.
    let calls: Vec<Option<(String, bool)>> = items
        .iter()
        .map(|item| match item {
            SelectItem::UnnamedExpr(expr) => {
                let bare = bare(expr);
                let is_cast = has_casts(expr) && expr.to_string() != bare;
                Some((bare, is_cast))
            }
            _ => None,
        })
        .collect();
    let plain: HashSet<&String> =
        calls.iter().flatten().filter(|(_, is_cast)| !is_cast).map(|(called, _)| called).collect();
    let mut taken: HashSet<String> = HashSet::new();
    for (item, called) in items.iter_mut().zip(&calls) {
        let Some((called, is_cast)) = called else { continue };
        let SelectItem::UnnamedExpr(expr) = &*item else { continue };
        let of_star = all && is_column(expr);
        let clashes = match is_cast {
            true => any || plain.contains(called) || taken.contains(called),
            false => of_star || taken.contains(called),
        };
        if !clashes {
            taken.insert(called.clone());
            continue;
        }
        let text = if *is_cast { expr.to_string() } else { called.rsplit('.').next().unwrap_or(called).to_owned() };
        let numbered = |n: usize| if n == 0 { text.clone() } else { format!("{text}_{n}") };
        let from = usize::from(!is_cast);
        let name = (from..).map(numbered).find(|name| !taken.contains(name)).unwrap_or_default();
        taken.insert(name.clone());
        give(item, name);
    }
}

/// Gives casts a name of their own within calls, and in GROUP BY, that differ in their casts alone.
fn keep_casts_apart(query: &mut Query) {
    if !has_casts(query) {
        return;
    }
    let mut forms: HashMap<String, HashSet<String>> = HashMap::new();
    let mut note = |expr: &Expr| {
        forms.entry(bare(expr)).or_default().insert(expr.to_string());
    };
    each_expr(query, &mut |expr| {
        if matches!(expr, Expr::Function(_)) {
            note(expr);
        }
    });
    if let SetExpr::Select(select) = query.body.as_ref()
        && let GroupByExpr::Expressions(groups, _) = &select.group_by
    {
        groups.iter().for_each(&mut note);
    }
    let alike: HashSet<String> = forms.into_iter().filter(|(_, forms)| forms.len() > 1).map(|(bare, _)| bare).collect();
    if !alike.is_empty() {
        let _infallible = visit_mut(query, &mut Apart { alike, within: Vec::new() });
    }
}

/// Puts [`APART`] around the casts of what is `alike` without them.
struct Apart {
    alike: HashSet<String>,
    /// Whether each expression that is being visited is one of those.
    within: Vec<bool>,
}

impl VisitorMut for Apart {
    type Break = Box<QueryError>;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        let is_alike = (matches!(expr, Expr::Function(_)) || is_cast(expr)) && self.alike.contains(&bare(expr));
        self.within.push(is_alike);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if is_cast(expr) && self.within.contains(&true) {
            let name = Expr::Value(Value::SingleQuotedString(expr.to_string()).into());
            let cast = std::mem::replace(expr, Expr::Value(Value::Null.into()));
            *expr = call(APART, vec![cast, name]);
        }
        self.within.pop();
        ControlFlow::Continue(())
    }
}

/// Whether there is a cast, or an expression in parentheses, at any depth.
fn has_casts(within: &impl Visit) -> bool {
    let mut found = false;
    each_expr(within, &mut |expr| found |= is_cast(expr) || matches!(expr, Expr::Nested(_)));
    found
}

/// The text of an expression without its casts and parentheses.
fn bare(expr: &Expr) -> String {
    if !has_casts(expr) {
        return expr.to_string();
    }
    let mut expr = expr.clone();
    let _infallible = visit_mut(&mut expr, &mut WithoutCasts);
    expr.to_string()
}

/// Takes casts and parentheses off.
struct WithoutCasts;

impl VisitorMut for WithoutCasts {
    type Break = Box<QueryError>;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if let Expr::Cast { expr: inner, .. } | Expr::AtTimeZone { timestamp: inner, .. } | Expr::Nested(inner) = expr {
            let inner = std::mem::replace(inner.as_mut(), Expr::Value(Value::Null.into()));
            *expr = inner;
        }
        ControlFlow::Continue(())
    }
}
