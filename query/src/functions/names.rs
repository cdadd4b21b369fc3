//! Names the columns of a result as they were written: `sensor.region` and `avg(temp)`, where DataFusion says
//! `weather.sensor[region]` and `avg(weather.temp)`.

use crate::sql::Heading;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan, LogicalPlanBuilder, Projection};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The plan with such names in its result, each once. Aliases are kept.
pub(crate) fn readable(plan: LogicalPlan, headings: &[Heading]) -> Result<LogicalPlan> {
    if let LogicalPlan::Copy(mut copy) = plan {
        copy.input = Arc::new(readable(Arc::unwrap_or_clone(copy.input), &[])?);
        return Ok(LogicalPlan::Copy(copy));
    }
    let columns = plan.schema().columns();
    let of_union: Vec<Expr> = columns.iter().cloned().map(Expr::Column).collect();
    let mut below = &plan;
    let selected = loop {
        below = match below {
            LogicalPlan::Projection(projection) => break &projection.expr,
            LogicalPlan::Distinct(Distinct::On(distinct)) => break &distinct.select_expr,
            LogicalPlan::Distinct(Distinct::All(input)) => input,
            LogicalPlan::Sort(sort) => &sort.input,
            LogicalPlan::Limit(limit) => &limit.input,
            LogicalPlan::Union(_) => break &of_union,
            _ => return Ok(plan),
        };
    };
    let typed = typed(headings, columns.len());
    let as_is = |(column, expr): (&Column, &Expr)| matches!(expr, Expr::Alias(_)) || is_word(&column.name);
    let is_known = |(at, pair): (usize, (&Column, &Expr))| typed[at].is_some() || as_is(pair);
    let (tables, fields) = match columns.iter().zip(selected).enumerate().all(is_known) {
        true => Default::default(),
        false => names_below(below)?,
    };
    let shown = |(column, expr): (&Column, &Expr)| match expr {
        _ if as_is((column, expr)) => column.name.clone(),
        // A field's own name, even if it looks like one that DataFusion made.
        Expr::Column(_) if fields.contains(&column.name) => column.name.clone(),
        _ => member(&column.name).unwrap_or_else(|| simplified(&column.name, &tables)),
    };
    let names: Vec<String> = columns
        .iter()
        .zip(selected)
        .enumerate()
        .map(|(at, pair)| typed.get(at).copied().flatten().map_or_else(|| shown(pair), str::to_owned))
        .collect();
    let names = unique(names, &columns);
    if names.iter().zip(&columns).all(|(name, column)| *name == column.name) {
        return Ok(plan);
    }
    let named = |(expr, (column, name)): (Expr, (&Column, &String))| match column.name == *name {
        true => expr,
        false => expr.unalias().alias(name),
    };
    let names = columns.iter().zip(&names);
    if let LogicalPlan::Projection(projection) = plan {
        let renamed = projection.expr.into_iter().zip(names).map(named).collect();
        return Ok(LogicalPlan::Projection(Projection::try_new(renamed, projection.input)?));
    }
    let renamed: Vec<Expr> = columns.iter().cloned().map(Expr::Column).zip(names).map(named).collect();
    LogicalPlanBuilder::from(plan).project(renamed)?.build()
}

/// The plan with each name of a column once, as a table needs it: of two tables that were joined, both may have a column of one name.
pub(crate) fn each_once(plan: LogicalPlan) -> Result<LogicalPlan> {
    let columns = plan.schema().columns();
    let names = unique(columns.iter().map(|column| column.name.clone()).collect(), &columns);
    if names.iter().zip(&columns).all(|(name, column)| *name == column.name) {
        return Ok(plan);
    }
    let named = |(column, name): (Column, String)| match column.name == name {
        true => Expr::Column(column),
        false => Expr::Column(column).alias(name),
    };
    let named: Vec<Expr> = columns.into_iter().zip(names).map(named).collect();
    LogicalPlanBuilder::from(plan).project(named)?.build()
}

/// Makes names unique. A name that occurs more than once is replaced by DataFusion's name of the column, and gets a number if that
/// is not unique either.
fn unique(names: Vec<String>, columns: &[Column]) -> Vec<String> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for name in &names {
        *counts.entry(name.clone()).or_default() += 1;
    }
    let full = |(name, column): (String, &Column)| if counts[&name] == 1 { name } else { column.name.clone() };
    let mut names: Vec<String> = names.into_iter().zip(columns).map(full).collect();
    let known: HashSet<String> = names.iter().cloned().collect();
    if known.len() == names.len() {
        return names;
    }
    let mut taken = HashSet::new();
    for name in &mut names {
        if taken.contains(name.as_str()) {
            let numbered = (1..).map(|n| format!("{name}_{n}"));
            if let Some(free) = numbered.into_iter().find(|free| !known.contains(free) && !taken.contains(free)) {
                *name = free;
            }
        }
        taken.insert(name.clone());
    }
    names
}

/// Whether a name consists of letters, digits and `_`.
fn is_word(name: &str) -> bool {
    name.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// The names of the tables of a plan, and of their fields.
fn names_below(plan: &LogicalPlan) -> Result<(HashSet<String>, HashSet<String>)> {
    let (mut tables, mut fields) = (HashSet::new(), HashSet::new());
    plan.apply(|node| {
        let name = match node {
            LogicalPlan::TableScan(scan) => {
                fields.extend(scan.source.schema().fields().iter().map(|field| field.name().clone()));
                &scan.table_name
            }
            LogicalPlan::SubqueryAlias(alias) => &alias.alias,
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        tables.extend([Some(name.table()), name.schema(), name.catalog()].into_iter().flatten().map(str::to_owned));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok((tables, fields))
}

/// The typed headings of columns: the positions of those before the first and after the last `*` are known.
fn typed(headings: &[Heading], columns: usize) -> Vec<Option<&str>> {
    let mut typed = vec![None; columns];
    let first = headings.iter().position(|h| *h == Heading::Star).unwrap_or(headings.len());
    let last = headings.iter().rposition(|h| *h == Heading::Star).map_or(headings.len(), |at| at + 1);
    if (first == headings.len() && columns != headings.len()) || first + (headings.len() - last) > columns {
        return typed;
    }
    let before = headings[..first].iter().enumerate();
    let after = headings[last..].iter().enumerate().map(|(at, h)| (columns - (headings.len() - last) + at, h));
    for (at, heading) in before.chain(after) {
        if let Heading::Typed(text) = heading {
            typed[at] = Some(text.as_str());
        }
    }
    typed
}

/// `sensor.site.floor` for `weather.sensor[site][floor]`.
fn member(name: &str) -> Option<String> {
    let (column, members) = name.strip_suffix(']')?.split_once('[')?;
    let plain = |word: &str| !word.is_empty() && is_word(word);
    let column = column.rsplit('.').next()?;
    let path: Vec<&str> = std::iter::once(column).chain(members.split("][")).collect();
    path.iter().all(|word| plain(word)).then(|| path.join("."))
}

/// `avg(temp)` for `avg(weather.temp)`, and `round(temp, 1)` for `round(weather.temp,Int64(1))`: a call without the
/// tables of its columns, and with literals as they are written.
fn simplified(name: &str, tables: &HashSet<String>) -> String {
    const LITERALS: [&str; 6] = ["Utf8(\"", "Utf8View(\"", "Int64(", "UInt64(", "Float64(", "Boolean("];
    let mut result = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(next) = rest.chars().next() {
        if let Some(word) = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|w| !w.is_empty()) {
            let after_word = &rest[word.len()..];
            let literal = LITERALS.iter().find_map(|start| {
                let inside = rest.strip_prefix(start)?;
                let (quote, end) = if start.ends_with('"') { ("'", "\")") } else { ("", ")") };
                inside.split_once(end).map(|(value, rest)| (format!("{quote}{value}{quote}"), rest))
            });
            match (literal, after_word.strip_prefix('.').filter(|_| tables.contains(word))) {
                (Some((value, after_word)), _) => {
                    result.push_str(&value);
                    rest = after_word;
                }
                (None, Some(column)) => rest = column,
                (None, None) => {
                    result.push_str(word);
                    rest = after_word;
                }
            }
            continue;
        }
        rest = &rest[next.len_utf8()..];
        result.push(next);
        if next == ',' && !rest.starts_with(' ') {
            result.push(' ');
        }
    }
    result
}
