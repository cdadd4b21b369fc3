//! `FROM t PIVOT (avg(temp) FOR station IN ('a', 'b'))` and `FROM t UNPIVOT (temp FOR station IN (a, b))`.
//!
//! A pivot groups by the columns that it does not name, with an aggregate of the rows of each value. An unpivot makes two
//! lists of each row, of names and of values, and takes them apart.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, plan_err};
use datafusion::functions_nested::expr_fn::make_array;
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::utils::find_aggregate_exprs;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlanBuilder, lit};
use datafusion::sql::sqlparser::ast::{
    self, ExprWithAlias, Ident, NullInclusion, PivotValueSource, TableAlias, TableFactor,
};
use std::collections::HashSet;

/// Plans both.
#[derive(Debug)]
pub(super) struct Pivots;

impl RelationPlanner for Pivots {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let (plan, alias) = match relation {
            TableFactor::Pivot {
                table,
                aggregate_functions,
                value_column,
                value_source,
                default_on_null: None,
                alias,
            } => (pivot(*table, aggregate_functions, value_column, value_source, context)?, alias),
            TableFactor::Unpivot { table, value, name, columns, null_inclusion, alias } => {
                let nulls = null_inclusion == Some(NullInclusion::IncludeNulls);
                (unpivot(*table, &value, &name, columns, nulls, context)?, alias)
            }
            other => return Ok(RelationPlanning::Original(Box::new(other))),
        };
        Ok(RelationPlanning::Planned(Box::new(planned(plan, alias)?)))
    }
}

fn planned(plan: LogicalPlanBuilder, alias: Option<TableAlias>) -> Result<PlannedRelation> {
    Ok(PlannedRelation::new(plan.build()?, alias))
}

fn pivot(
    table: TableFactor,
    aggregates: Vec<ExprWithAlias>,
    on: Vec<ast::Expr>,
    values: PivotValueSource,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlanBuilder> {
    let input = context.plan(table)?;
    let schema = input.schema().as_ref().clone();
    let PivotValueSource::List(values) = values else {
        return plan_err!(
            "PIVOT needs its values: FOR station IN ('a', 'b'); PIVOT t ON station USING avg(temp) looks for them itself"
        );
    };
    let Ok([on]) = <[ast::Expr; 1]>::try_from(on) else {
        return plan_err!("PIVOT takes one column after FOR");
    };
    let on = context.sql_to_expr(on, &schema)?;
    let mut named: HashSet<Column> = on.column_refs().into_iter().cloned().collect();
    let single = aggregates.len() == 1;
    let mut calls = Vec::new();
    for aggregate in aggregates {
        let text = aggregate.expr.to_string();
        let call = context.sql_to_expr(aggregate.expr, &schema)?.unalias();
        if find_aggregate_exprs([&call]).is_empty() {
            return plan_err!("PIVOT takes aggregates, such as avg(temp); {text} is none");
        }
        named.extend(call.column_refs().into_iter().cloned());
        let suffix = aggregate.alias.map(|alias| alias.value);
        calls.push((call, suffix.or((!single).then_some(text))));
    }
    let groups: Vec<Expr> = schema.columns().into_iter().filter(|c| !named.contains(c)).map(Expr::Column).collect();
    let mut cells = Vec::new();
    for value in values {
        let text = match &value.expr {
            ast::Expr::Value(literal) => match &literal.value {
                ast::Value::SingleQuotedString(text) => text.clone(),
                other => other.to_string(),
            },
            other => other.to_string(),
        };
        let name = value.alias.map_or(text, |alias| alias.value);
        let value = context.sql_to_expr(value.expr, &DFSchema::empty())?;
        let is_value = match &value {
            Expr::Literal(value, _) if value.is_null() => on.clone().is_null(),
            _ => on.clone().eq(value),
        };
        for (call, suffix) in &calls {
            let name = suffix.as_ref().map_or_else(|| name.clone(), |suffix| format!("{name}_{suffix}"));
            cells.push(filtered(call.clone(), &is_value)?.alias(name));
        }
    }
    // What is computed from aggregates is a projection above them.
    let aggregates = find_aggregate_exprs(&cells);
    let cells = cells.into_iter().map(of_aggregates).collect::<Result<Vec<_>>>()?;
    let columns: Vec<Expr> = groups.iter().cloned().chain(cells).collect();
    LogicalPlanBuilder::from(input).aggregate(groups, aggregates)?.project(columns)
}

/// An expression whose aggregates are of the rows of a condition.
fn filtered(call: Expr, condition: &Expr) -> Result<Expr> {
    let filtered = call.transform_down(|expr| {
        let Expr::AggregateFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
        let filter = call.params.filter.take().map_or(condition.clone(), |filter| filter.and(condition.clone()));
        call.params.filter = Some(Box::new(filter));
        Ok(Transformed::new(Expr::AggregateFunction(call), true, TreeNodeRecursion::Jump))
    });
    Ok(filtered?.data)
}

/// An expression over the columns that aggregates become.
fn of_aggregates(cell: Expr) -> Result<Expr> {
    let columns = cell.transform_down(|expr| match &expr {
        Expr::AggregateFunction(_) => {
            Ok(Transformed::yes(Expr::Column(Column::new_unqualified(expr.schema_name().to_string()))))
        }
        _ => Ok(Transformed::no(expr)),
    });
    Ok(columns?.data)
}

fn unpivot(
    table: TableFactor,
    value: &ast::Expr,
    name: &Ident,
    columns: Vec<ExprWithAlias>,
    nulls: bool,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlanBuilder> {
    let input = context.plan(table)?;
    let schema = input.schema().as_ref().clone();
    let ast::Expr::Identifier(value) = value else {
        return plan_err!("UNPIVOT takes one name for the values: UNPIVOT (temp FOR station IN (a, b)), not {value}");
    };
    let (value, name) = (context.normalize_ident(value.clone()), context.normalize_ident(name.clone()));
    let (mut names, mut cells) = (Vec::new(), Vec::new());
    let mut taken: HashSet<Column> = HashSet::new();
    let mut common: Option<DataType> = None;
    for column in columns {
        let cell = context.sql_to_expr(column.expr, &schema)?;
        let kind = cell.get_type(&schema)?;
        common = Some(match common {
            None => kind,
            Some(known) if known == kind => known,
            Some(known) => match comparison_coercion(&known, &kind) {
                Some(common) if known.is_string() == kind.is_string() => common,
                _ => return plan_err!("the columns of UNPIVOT have no type in common: {known} and {kind}; cast them"),
            },
        });
        let called = match (&column.alias, &cell) {
            (Some(alias), _) => alias.value.clone(),
            (None, Expr::Column(column)) => column.name.clone(),
            (None, cell) => cell.schema_name().to_string(),
        };
        taken.extend(cell.column_refs().into_iter().cloned());
        names.push(lit(called));
        cells.push(cell);
    }
    let common = common.unwrap_or(DataType::Null);
    let cells = cells.into_iter().map(|cell| cell.cast_to(&common, &schema)).collect::<Result<Vec<_>>>()?;
    let rest = schema.columns().into_iter().filter(|column| !taken.contains(column)).map(Expr::Column);
    let lists = [make_array(names).alias(&name), make_array(cells).alias(&value)];
    let plan = LogicalPlanBuilder::from(input).project(rest.chain(lists).collect::<Vec<_>>())?;
    let both = vec![Column::from_name(&name), Column::from_name(&value)];
    let plan = plan.unnest_columns_with_options(both, Default::default())?;
    if nulls { Ok(plan) } else { plan.filter(Expr::Column(Column::from_name(&value)).is_not_null()) }
}
