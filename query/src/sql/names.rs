//! Names of columns: the columns of a result are headed as they were typed, and no two columns of a list have the same
//! name.
//!
//! DataFusion names a cast after its operand, and refuses lists in which two columns have the same name. So a column
//! that would clash with another one of its list is named by its own text; and so is an expression in an inner query,
//! where DataFusion would show its own form of it.

use super::columns::may_stand_for_columns;
use super::dialect::EbbtideDialect;
use super::expressions::call;
use super::lists::has_aggregate;
use super::using::{name_of, value_of};
use super::uuids::is_cast_to_uuid;
use super::visit::{Flow, each_expr, each_expr_mut, visit_mut};
use super::wildcards::wildcard_of;
use crate::error::QueryError;
use crate::functions::apart::APART;
use crate::statement::lexer::Offsets;
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, OrderBy, OrderByKind, Query, Select, SelectItem, SetExpr, Statement, TableFactor,
    TableWithJoins, Value, Visit, VisitorMut,
};
use datafusion::sql::sqlparser::parser::Parser;
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
    let query = match statement {
        Statement::Query(query) => query,
        Statement::Prepare { statement, .. } => match statement.as_ref() {
            Statement::Query(query) => query,
            _ => return Vec::new(),
        },
        _ => return Vec::new(),
    };
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
    let may_stand = may_stand_for_columns(tokens);
    let heading = |(item, range): (&SelectItem, &(usize, usize))| match item {
        item if may_stand && wildcard_of(item).is_some() => Heading::Star,
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
        sort_by_hidden(query);
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
        let tables = tables(select);
        make_unique(&mut select.projection, &tables);
        ControlFlow::Continue(())
    }
}

/// Names the columns of an inner query, except for plain columns and casts of columns, which keep their column's name. Casts to `uuid`
/// become calls, which DataFusion does not name so.
fn name_all(query: &mut Query) {
    let mut body = query.body.as_mut();
    loop {
        body = match body {
            SetExpr::Select(select) => {
                name_members(select);
                for item in &mut select.projection {
                    if let SelectItem::UnnamedExpr(expr) = item
                        && (!is_column(expr) || is_cast_to_uuid(expr))
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

/// The names of the tables of a SELECT.
fn tables(select: &Select) -> Vec<String> {
    let of_joins = |from: &TableWithJoins| {
        let joined = from.joins.iter().map(|join| &join.relation);
        std::iter::once(&from.relation)
            .chain(joined)
            .filter_map(|table| Some(value_of(name_of(table)?.0.last()?.as_ident()?)))
            .collect::<Vec<_>>()
    };
    select.from.iter().flat_map(of_joins).collect()
}

/// Names the members of objects, such as `sensor.region`, after their last part, unless another column has this name.
fn name_members(select: &mut Select) {
    let tables = tables(select);
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
    let names: Vec<Option<String>> = select.projection.iter().map(|item| name(item).as_ref().map(value_of)).collect();
    for (item, name) in select.projection.iter_mut().zip(&names) {
        let SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) = &*item else { continue };
        let of_table = parts.first().is_some_and(|first| tables.contains(&value_of(first)));
        let is_single = names.iter().filter(|other| *other == name).count() == 1;
        if parts.len() > usize::from(of_table) + 1
            && is_single
            && let Some(name) = name
        {
            give(item, name.clone());
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
    let mut sorted: Vec<Vec<String>> = Vec::new();
    each_expr(order, &mut |expr| sorted.extend(column(expr)));
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) = &*item
            && is_cast(expr)
            && is_column(expr)
        {
            let text = expr.to_string();
            let cast = column(expr).unwrap_or_default();
            // Names with a table and without one may be of the same column.
            if sorted.iter().any(|sorted| sorted.iter().rev().zip(cast.iter().rev()).all(|(a, b)| a == b)) {
                give(item, text);
            }
        }
    }
}

/// Sorts by columns of tables whose names columns of the result have too: `SELECT temp::int AS temp FROM w ORDER BY w.temp`. To sort,
/// DataFusion adds them to the list, where they would clash. So an inner query returns them under other names.
fn sort_by_hidden(query: &mut Query) {
    let Some(OrderBy { kind: OrderByKind::Expressions(order), interpolate: None }) = &mut query.order_by else {
        return;
    };
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let (aliases, tables) = (aliases(&select.projection), tables(select));
    let clashes = |expr: &Expr| {
        let mut clashes = false;
        each_expr(expr, &mut |expr| {
            clashes |= column(expr).is_some_and(|of| of.len() > 1 && is_alias(&of, &aliases, &tables));
        });
        clashes && !has_aggregate(expr)
    };
    let groups_by_all = matches!(select.group_by, GroupByExpr::All(_));
    if groups_by_all || select.distinct.is_some() || select.into.is_some() || !order.iter().any(|by| clashes(&by.expr))
    {
        return;
    }
    // What the order refers to beside such columns: places and names of the result stay what they are.
    let names: HashSet<String> = select.projection.iter().filter_map(output).collect();
    let is_of_result = |expr: &Expr| {
        let mut found = matches!(expr, Expr::Value(_));
        each_expr(expr, &mut |expr| found |= matches!(expr, Expr::Identifier(name) if names.contains(&value_of(name))));
        found
    };
    let mut hidden = Vec::new();
    for by in order {
        if clashes(&by.expr) || !is_of_result(&by.expr) {
            let alias = Ident::new(format!("__by_{}", hidden.len()));
            let expr = std::mem::replace(&mut by.expr, Expr::Identifier(alias.clone()));
            select.projection.push(SelectItem::ExprWithAlias { expr, alias: alias.clone() });
            hidden.push(alias.value);
        }
    }
    let outer = format!("SELECT * EXCLUDE ({}) FROM (SELECT 1) AS __sorted", hidden.join(", "));
    let parsed = Parser::new(&EbbtideDialect).try_with_sql(&outer).and_then(|mut parser| parser.parse_query());
    let Ok(mut outer) = parsed.map(|query| *query.body) else { return };
    if let SetExpr::Select(outer) = &mut outer
        && let [from] = outer.from.as_mut_slice()
        && let TableFactor::Derived { subquery, .. } = &mut from.relation
    {
        std::mem::swap(&mut query.body, &mut subquery.body);
    }
    *query.body = outer;
}

/// The names that columns of the result have instead of those of the tables' columns.
fn aliases(items: &[SelectItem]) -> HashSet<String> {
    let mut found = HashSet::new();
    for item in items {
        match item {
            SelectItem::ExprWithAlias { expr, alias } => {
                let is_own = matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
                    && column(expr).is_some_and(|parts| parts.last() == Some(&value_of(alias)));
                found.extend((!is_own).then(|| value_of(alias)));
            }
            SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => {
                let replaced = options.opt_replace.iter().flat_map(|replaced| &replaced.items);
                found.extend(replaced.map(|item| value_of(&item.column_name)));
            }
            _ => {}
        }
    }
    found
}

/// Whether the column of a table, not a member of it, has one of the names.
fn is_alias(column: &[String], aliases: &HashSet<String>, tables: &[String]) -> bool {
    match column {
        [name] => aliases.contains(name),
        [.., table, name] => tables.contains(table) && aliases.contains(name),
        [] => false,
    }
}

/// The name of a column of the result, if it is known.
fn output(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(value_of(alias)),
        SelectItem::UnnamedExpr(expr @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_))) => column(expr)?.pop(),
        _ => None,
    }
}

/// The names of a column, or of one that is cast.
fn column(expr: &Expr) -> Option<Vec<String>> {
    match expr {
        Expr::Identifier(name) => Some(vec![value_of(name)]),
        Expr::CompoundIdentifier(parts) => Some(parts.iter().map(value_of).collect()),
        Expr::Cast { expr, .. } | Expr::AtTimeZone { timestamp: expr, .. } | Expr::Nested(expr) => column(expr),
        _ => None,
    }
}

/// Whether an expression becomes a cast in a plan.
fn is_cast(expr: &Expr) -> bool {
    matches!(expr, Expr::Cast { .. } | Expr::AtTimeZone { .. })
}

fn is_column(expr: &Expr) -> bool {
    column(expr).is_some()
}

fn give(item: &mut SelectItem, name: String) {
    if let SelectItem::UnnamedExpr(expr) = item {
        let expr = std::mem::replace(expr, Expr::Value(Value::Null.into()));
        *item = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', name) };
    }
}

/// Renames items that would clash with another item of their list.
fn make_unique(items: &mut [SelectItem], tables: &[String]) {
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
            SelectItem::UnnamedExpr(Expr::Subquery(query)) => Some((name_of_value(query)?, false)),
            SelectItem::UnnamedExpr(expr) => {
                let bare = match (column(expr).as_deref(), tables) {
                    // With one table, its name makes no difference.
                    (Some([table, name]), [only]) if table == only => {
                        by_value(&Expr::Identifier(Ident::with_quote('"', name.clone())))
                    }
                    _ => bare(expr),
                };
                let is_cast = has_casts(expr) && by_value(expr) != bare;
                Some((bare, is_cast))
            }
            _ => None,
        })
        .collect();
    let plain: HashSet<&String> =
        calls.iter().flatten().filter(|(_, is_cast)| !is_cast).map(|(called, _)| called).collect();
    let aliases = aliases(items);
    let mut taken: HashSet<String> = HashSet::new();
    for (item, called) in items.iter_mut().zip(&calls) {
        let Some((called, is_cast)) = called else { continue };
        let SelectItem::UnnamedExpr(expr) = &*item else { continue };
        let column = column(expr);
        let of_star = all && column.is_some();
        let of_alias = column.as_ref().is_some_and(|column| is_alias(column, &aliases, tables));
        let clashes = match is_cast {
            true => any || plain.contains(called) || taken.contains(called),
            false => of_star || of_alias || taken.contains(called),
        };
        // A name would be one for all the columns that it stands for.
        if !clashes || wildcard_of(item).is_some() {
            taken.insert(called.clone());
            continue;
        }
        let name = column.and_then(|mut parts| parts.pop()).filter(|_| !is_cast);
        let text = name.unwrap_or_else(|| expr.to_string());
        let numbered = |n: usize| if n == 0 { text.clone() } else { format!("{text}_{n}") };
        let from = usize::from(!is_cast);
        let is_free = |name: &String| !taken.contains(name) && !aliases.contains(name);
        let name = (from..).map(numbered).find(is_free).unwrap_or_default();
        taken.insert(name.clone());
        give(item, name);
    }
}

/// DataFusion's name of a subquery for one value, which is that of its column; plain columns have a table before it.
fn name_of_value(query: &Query) -> Option<String> {
    match first_select(&query.body)?.projection.as_slice() {
        [SelectItem::UnnamedExpr(expr)] if !is_column(expr) => Some(bare(expr)),
        [item] => Some(format!("(SELECT {})", output(item)?)),
        _ => None,
    }
}

/// Gives casts a name of their own within calls, and in GROUP BY, that differ in their casts alone.
fn keep_casts_apart(query: &mut Query) {
    if !has_casts(query) {
        return;
    }
    let mut forms: HashMap<String, HashSet<String>> = HashMap::new();
    let mut note = |expr: &Expr| {
        forms.entry(bare(expr)).or_default().insert(by_value(expr));
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

/// The text of an expression without its casts and parentheses, with names [by value](by_value).
fn bare(expr: &Expr) -> String {
    if !has_casts(expr) {
        return by_value(expr);
    }
    let mut expr = expr.clone();
    let _infallible = visit_mut(&mut expr, &mut WithoutCasts);
    by_value(&expr)
}

/// The text of an expression in which names are the same if the planner takes them for the same: `temp`, `TEMP` and `"temp"`.
fn by_value(expr: &Expr) -> String {
    let text = expr.to_string();
    if !text.bytes().any(|byte| matches!(byte, b'"' | b'`') || byte.is_ascii_uppercase()) {
        return text;
    }
    let mut expr = expr.clone();
    each_expr_mut(&mut expr, &mut |expr| {
        let names = match expr {
            Expr::Identifier(name) => std::slice::from_mut(name),
            Expr::CompoundIdentifier(names) => names.as_mut_slice(),
            _ => return,
        };
        for name in names {
            let value = value_of(name);
            let is_bare = value.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit());
            *name = if is_bare { Ident::new(value) } else { Ident::with_quote('"', value) };
        }
    });
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
