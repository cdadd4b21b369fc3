//! Members of an object are shown by the name that they are asked for by: `sensor.region`, where DataFusion says
//! `weather.sensor[region]`.

use datafusion::common::Result;
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan, LogicalPlanBuilder};
use std::collections::HashSet;

/// The plan with such names in its result; those that somebody has chosen stay, and so do those that would then be twice.
pub(crate) fn readable(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut below = &plan;
    let selected = loop {
        below = match below {
            LogicalPlan::Projection(projection) => break &projection.expr,
            LogicalPlan::Distinct(Distinct::On(distinct)) => break &distinct.select_expr,
            LogicalPlan::Distinct(Distinct::All(input)) => input,
            LogicalPlan::Sort(sort) => &sort.input,
            LogicalPlan::Limit(limit) => &limit.input,
            _ => return Ok(plan),
        };
    };
    let columns = plan.schema().columns();
    let shown = |(column, expr): (&datafusion::common::Column, &Expr)| {
        let member = if matches!(expr, Expr::Alias(_)) { None } else { member(&column.name) };
        member.unwrap_or_else(|| column.name.clone())
    };
    let names: Vec<String> = columns.iter().zip(selected).map(shown).collect();
    let distinct: HashSet<&String> = names.iter().collect();
    if distinct.len() < names.len() || names.iter().zip(&columns).all(|(name, column)| *name == column.name) {
        return Ok(plan);
    }
    let renamed: Vec<Expr> = columns
        .into_iter()
        .zip(names)
        .map(|(column, name)| if column.name == name { Expr::Column(column) } else { Expr::Column(column).alias(name) })
        .collect();
    LogicalPlanBuilder::from(plan).project(renamed)?.build()
}

/// `sensor.site.floor` for `weather.sensor[site][floor]`.
fn member(name: &str) -> Option<String> {
    let (column, members) = name.strip_suffix(']')?.split_once('[')?;
    let plain = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || c == '_');
    let column = column.rsplit('.').next()?;
    let path: Vec<&str> = std::iter::once(column).chain(members.split("][")).collect();
    path.iter().all(|word| plain(word)).then(|| path.join("."))
}
