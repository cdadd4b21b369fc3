//! The types that a statement gives its parameters.

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use std::sync::Arc;

/// The types that a statement gives `$1`, `$2` and so on.
pub(crate) fn parameter_types(plan: &LogicalPlan, parameters: usize) -> Result<Vec<Option<DataType>>> {
    let mut types = plan.get_parameter_types()?;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Limit(limit) = node {
            for expr in limit.fetch.iter().chain(&limit.skip) {
                if let Expr::Placeholder(placeholder) = expr.as_ref() {
                    types.insert(placeholder.id.clone(), Some(DataType::Int64));
                }
            }
        }
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Some((id, kind)) = searched_list(expr, node) {
                    types.entry(id).or_default().get_or_insert(kind);
                }
                for id in texts(expr, node) {
                    types.entry(id).or_default().get_or_insert(DataType::Utf8);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok((1..=parameters).map(|number| types.remove(&format!("${number}")).flatten()).collect())
}

/// The parameter of `x = ANY($1)` and its type: a list of what is looked for in it.
fn searched_list(expr: &Expr, node: &LogicalPlan) -> Option<(String, DataType)> {
    let Expr::ScalarFunction(call) = expr else { return None };
    let ("array_has", [Expr::Placeholder(list), item]) = (call.func.name(), call.args.as_slice()) else { return None };
    let kind = type_in(item, node).filter(|kind| !kind.is_null())?;
    let kind = match &kind {
        DataType::Dictionary(_, value) => value.as_ref().clone(),
        kind if kind.is_string() => DataType::Utf8,
        _ => kind,
    };
    Some((list.id.clone(), DataType::new_list(kind, true)))
}

/// The parameters without a type that a function takes for texts, beside arguments with a type: `strftime(t, $1)`.
fn texts(expr: &Expr, node: &LogicalPlan) -> Vec<String> {
    let Expr::ScalarFunction(call) = expr else { return Vec::new() };
    if !call.args.iter().any(is_open) {
        return Vec::new();
    }
    let id = |arg: &Expr| match arg {
        Expr::Placeholder(placeholder) => Some(placeholder.id.clone()),
        _ => None,
    };
    // The format may stand before the time.
    if let ("to_char", [format, time]) = (call.func.name(), call.args.as_slice())
        && is_open(format)
        && type_in(time, node).is_some_and(|kind| kind.is_temporal())
    {
        return id(format).into_iter().collect();
    }
    let field = |arg: &Expr| {
        let kind = if is_open(arg) { DataType::Null } else { type_in(arg, node)? };
        Some(Arc::new(Field::new("", kind, true)))
    };
    let fields: Option<Vec<FieldRef>> = call.args.iter().map(field).collect();
    let Some(fields) = fields.filter(|fields| fields.iter().any(|field| !field.data_type().is_null())) else {
        return Vec::new();
    };
    let Ok(wanted) = fields_with_udf(&fields, call.func.as_ref()) else { return Vec::new() };
    let texts = call.args.iter().zip(&wanted).filter(|(arg, wanted)| is_open(arg) && wanted.data_type().is_string());
    texts.filter_map(|(arg, _)| id(arg)).collect()
}

fn is_open(arg: &Expr) -> bool {
    matches!(arg, Expr::Placeholder(Placeholder { field: None, .. }))
}

/// The type of an expression of a node.
fn type_in(expr: &Expr, node: &LogicalPlan) -> Option<DataType> {
    let schemas = node.inputs().into_iter().map(LogicalPlan::schema).chain([node.schema()]);
    schemas.into_iter().find_map(|schema| expr.get_type(schema).ok())
}
