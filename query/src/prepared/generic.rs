//! Generic plans: optimized once, for all values of a prepared query.
//!
//! Most of the time of a short query is spent on optimizing its plan, and the plan rarely depends on the values of its
//! parameters. A query that runs a second time is therefore optimized with parameters in place of the values. The optimizer
//! does not know the values, so its plan is right for all of them, with one exception: its rules for IN lists compare the
//! items of two lists as expressions, and take two parameters for two different values. A query with a parameter in a list, or
//! in a condition that may become one, therefore has a generic plan only if all its other conditions are plain comparisons. The
//! plan is kept if, with the current values put in, it equals the plan that the optimizer makes for these values. Otherwise
//! (a limit is a parameter, or a value has to be converted) the query is optimized in each run. Parameters are supported only
//! in conditions, and only beside immutable functions.

use crate::provider::CollectionTable;
use crate::pushdown;
use crate::timestamp_coercion::is_comparison;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue, internal_datafusion_err};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, Volatility};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use std::collections::BTreeSet;
use std::sync::Arc;

/// An optimized plan with parameters.
#[derive(Debug)]
pub(crate) struct GenericPlan {
    plan: LogicalPlan,
    /// The columns of its rows.
    pub(crate) columns: SchemaRef,
    types: Vec<DataType>,
    /// The settings that it was optimized with.
    options: Arc<ConfigOptions>,
}

impl GenericPlan {
    /// The generic plan of a query, which has not been analyzed, that is about to run with `values`; `None` if it depends
    /// on them. `optimize` returns the optimized plan of a query and its columns, or nothing if it is not plain.
    pub(crate) fn new<E>(
        query: &LogicalPlan,
        values: &[ScalarValue],
        options: &Arc<ConfigOptions>,
        optimize: impl Fn(LogicalPlan) -> Result<Option<(LogicalPlan, SchemaRef)>, E>,
    ) -> Result<Option<GenericPlan>, E>
    where
        E: From<datafusion::error::DataFusionError>,
    {
        if !values.iter().all(is_supported) {
            return Ok(None);
        }
        let types: Vec<DataType> = values.iter().map(ScalarValue::data_type).collect();
        let parameter = |id: String| Ok(pushdown::parameter(at(&types, &id)?.clone(), id));
        let typed = in_conditions(query.clone(), |expr| replaced(expr, parameter))?;
        let Some((plan, columns)) = optimize(typed)? else { return Ok(None) };
        // A condition that has gone may have been decided without the value.
        if !is_generic(&plan)? || placeholders(&plan)? != placeholders(query)? {
            return Ok(None);
        }
        let generic = GenericPlan { plan, columns, types, options: Arc::clone(options) };
        let custom = in_conditions(query.clone(), |expr| replaced(expr, |id| literal(values, &id)))?;
        let custom = optimize(custom)?;
        let is_the_same = custom.is_some_and(|(plan, columns)| {
            columns == generic.columns && generic.with_values(values).is_ok_and(|filled| filled == plan)
        });
        Ok(is_the_same.then_some(generic))
    }

    /// Whether it is the plan of the query with these values.
    pub(crate) fn fits(&self, values: &[ScalarValue]) -> bool {
        let fits = |(kind, value): (&DataType, &ScalarValue)| value.data_type() == *kind && is_supported(value);
        self.types.len() == values.len() && self.types.iter().zip(values).all(fits)
    }

    /// The optimized plan with these values.
    pub(crate) fn with_values(&self, values: &[ScalarValue]) -> Result<LogicalPlan> {
        let simplifier = || {
            let context = SimplifyContext::builder().with_config_options(Arc::clone(&self.options));
            ExprSimplifier::new(context.build())
        };
        in_conditions(self.plan.clone(), |expr| {
            expr.transform_up(|expr| match expr {
                Expr::Placeholder(placeholder) => Ok(Transformed::yes(literal(values, &placeholder.id)?)),
                expr if is_constant(&expr) => Ok(Transformed::yes(simplifier().simplify(expr)?)),
                expr => Ok(Transformed::no(expr)),
            })
        })
    }
}

/// Whether an expression has become a constant once its parameters are literals.
fn is_constant(expr: &Expr) -> bool {
    let is_literal = |expr: &Expr| matches!(expr, Expr::Literal(..));
    match expr {
        Expr::BinaryExpr(binary) => is_literal(&binary.left) && is_literal(&binary.right),
        Expr::Cast(cast) => is_literal(&cast.expr),
        _ => false,
    }
}

/// Whether a value may be put into a generic plan. Nulls may not: conditions are pushed down as if there were none. Nor may NaN:
/// the analyzer, which replaces each NaN by the same one, does not run again.
fn is_supported(value: &ScalarValue) -> bool {
    match value {
        ScalarValue::Float64(Some(value)) => !value.is_nan(),
        ScalarValue::Float32(Some(value)) => !value.is_nan(),
        value => !value.is_null(),
    }
}

/// The item for the parameter `$1`, `$2` and so on.
fn at<'a, T>(of_all: &'a [T], id: &str) -> Result<&'a T> {
    let number = id.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
    let found = number.and_then(|number| of_all.get(number.checked_sub(1)?));
    found.ok_or_else(|| internal_datafusion_err!("there is no parameter {id}"))
}

fn literal(values: &[ScalarValue], id: &str) -> Result<Expr> {
    Ok(Expr::Literal(at(values, id)?.clone(), None))
}

/// Replaces the placeholders of an expression.
fn replaced(expr: Expr, replacement: impl Fn(String) -> Result<Expr>) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| match expr {
        Expr::Placeholder(placeholder) => Ok(Transformed::yes(replacement(placeholder.id)?)),
        expr => Ok(Transformed::no(expr)),
    })
}

/// Changes the conditions of a plan that have placeholders; the types of its columns stay.
fn in_conditions(plan: LogicalPlan, change: impl Fn(Expr) -> Result<Transformed<Expr>>) -> Result<LogicalPlan> {
    let changed = plan.transform_up(|plan| match plan {
        LogicalPlan::Filter(mut filter) if has_placeholder(&filter.predicate) => {
            filter.predicate = change(filter.predicate)?.data;
            Ok(Transformed::yes(LogicalPlan::Filter(filter)))
        }
        LogicalPlan::TableScan(mut scan) if scan.filters.iter().any(has_placeholder) => {
            let filters = std::mem::take(&mut scan.filters).into_iter();
            scan.filters = filters.map(|filter| Ok(change(filter)?.data)).collect::<Result<_>>()?;
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        }
        plan => Ok(Transformed::no(plan)),
    });
    Ok(changed?.data)
}

fn has_placeholder(expr: &Expr) -> bool {
    expr.exists(|expr| Ok(matches!(expr, Expr::Placeholder(_)))).unwrap_or(true)
}

/// Whether a query may have a generic plan. It must read only collections, call only immutable functions, and have parameters
/// only in conditions; and a parameter outside plain comparisons must be in a list that is the only one.
pub(crate) fn may_be_generic(query: &LogicalPlan) -> Result<bool> {
    let mut possible = true;
    // Conditions that are no plain comparisons.
    let mut others = Vec::new();
    query.apply(|node| {
        let is_condition = matches!(node, LogicalPlan::Filter(_));
        if let LogicalPlan::TableScan(scan) = node {
            possible &= source_as_provider(&scan.source)?.is::<CollectionTable>();
        }
        if let LogicalPlan::Filter(filter) = node {
            others
                .extend(split_conjunction(&filter.predicate).into_iter().filter(|one| !is_comparison_of_operands(one)));
        }
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                possible &= match expr {
                    Expr::Placeholder(_) => is_condition,
                    Expr::ScalarFunction(call) => call.func.signature().volatility == Volatility::Immutable,
                    expr => !matches!(expr, Expr::ScalarVariable(..)),
                };
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    let are_closed = !others.iter().any(|other| has_placeholder(other));
    Ok(possible && (are_closed || matches!(others.as_slice(), [only] if is_list(only))))
}

/// Whether a condition is an IN list of operands, or comparisons with `OR` between them.
fn is_list(condition: &Expr) -> bool {
    match condition {
        Expr::InList(list) => is_operand(&list.expr) && list.list.iter().all(is_operand),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            [left, right].iter().all(|side| is_comparison_of_operands(side) || is_disjunction(side))
        }
        _ => false,
    }
}

fn is_disjunction(condition: &Expr) -> bool {
    matches!(condition, Expr::BinaryExpr(BinaryExpr { op: Operator::Or, .. })) && is_list(condition)
}

/// Whether a condition compares operands. It is not one of these if it asks whether a condition is true, since that condition may
/// become a list: `(a <> 1 AND a <> 2) = false`.
fn is_comparison_of_operands(condition: &Expr) -> bool {
    let is_truth = |side: &Expr| matches!(side, Expr::Literal(ScalarValue::Boolean(_), _));
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            is_comparison(*op) && [left, right].iter().all(|side| is_operand(side) && !is_truth(side))
        }
        Expr::Between(between) => [&between.expr, &between.low, &between.high].iter().all(|one| is_operand(one)),
        Expr::IsNull(operand) | Expr::IsNotNull(operand) => is_operand(operand),
        _ => false,
    }
}

fn is_operand(expr: &Expr) -> bool {
    match expr {
        Expr::Column(_) | Expr::Literal(..) | Expr::Placeholder(_) => true,
        Expr::Cast(cast) => is_operand(&cast.expr),
        // A member of an object.
        Expr::ScalarFunction(call) => call.name() == "get_field" && call.args.iter().all(is_operand),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) => {
            is_operand(left) && is_operand(right)
        }
        _ => false,
    }
}

/// The parameters of a plan.
fn placeholders(plan: &LogicalPlan) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    plan.apply(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::Placeholder(placeholder) = expr {
                    found.insert(placeholder.id.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(found)
}

/// Whether an optimized plan is one for all values: its conditions take them as they are.
fn is_generic(plan: &LogicalPlan) -> Result<bool> {
    let mut generic = true;
    plan.apply(|node| {
        let takes = matches!(node, LogicalPlan::Filter(_) | LogicalPlan::TableScan(_));
        node.apply_expressions(|expr| {
            generic &= if takes { takes_any_value(expr)? } else { !has_placeholder(expr) };
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if generic { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(generic)
}

/// Whether the parameters of a condition are compared, or joined to texts, and are not converted to anything but texts:
/// another conversion may not be exact, and what then has to be done depends on the value.
fn takes_any_value(condition: &Expr) -> Result<bool> {
    let mut takes = true;
    condition.apply(|expr| {
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { op, .. }) if is_comparison(*op) => TreeNodeRecursion::Continue,
            Expr::BinaryExpr(BinaryExpr { op: Operator::And | Operator::Or | Operator::StringConcat, .. }) => {
                TreeNodeRecursion::Continue
            }
            Expr::InList(list) if !has_placeholder(&list.expr) => TreeNodeRecursion::Continue,
            Expr::Between(_) | Expr::Not(_) | Expr::Placeholder(_) => TreeNodeRecursion::Continue,
            Expr::Cast(cast) if cast.field.data_type().is_string() => TreeNodeRecursion::Continue,
            expr if has_placeholder(expr) => {
                takes = false;
                TreeNodeRecursion::Stop
            }
            _ => TreeNodeRecursion::Jump,
        })
    })?;
    Ok(takes)
}
