//! Filters for the first rows of each partition, `row_number() OVER (PARTITION BY ... ORDER BY ...) <= k`, below the sort of the window.
//!
//! DataFusion sorts all rows, numbers them and then drops nearly all. Here an operator below the sort remembers the k least values
//! of the first sort key for each partition, and drops the rows that sort after all of these. What remains is sorted, numbered
//! and filtered as before, so the operator may let more rows pass than necessary, and does: it compares numbers of 63 bits that rise
//! with the key, and each thread knows its own rows only. Rows whose number equals the k-th pass, so `rank()` is right too.

mod codes;
mod exec;

pub(crate) use exec::TopKFilterExec;

use crate::options::fast_paths;
use codes::Codes;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use datafusion::physical_expr::window::{StandardWindowExpr, WindowExpr};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr, split_conjunction};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec, WindowUDFExpr};
use std::sync::Arc;

/// Puts a [`TopKFilterExec`] below the sort of a window if a filter above it keeps only the first rows of each partition.
#[derive(Debug)]
pub(crate) struct TopKFilters;

impl PhysicalOptimizerRule for TopKFilters {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        if !fast_paths(config) {
            return Ok(plan);
        }
        let fast = plan.transform_down(|node| {
            let Some(filter) = node.downcast_ref::<FilterExec>() else { return Ok(Transformed::no(node)) };
            for (column, k) in split_conjunction(filter.predicate()).into_iter().filter_map(at_most) {
                if let Some(input) = below_numbers(filter.input(), column, k)? {
                    return Ok(Transformed::yes(with_input(&node, input)?));
                }
            }
            Ok(Transformed::no(node))
        });
        fast.map(|plan| plan.data)
    }

    fn name(&self) -> &'static str {
        "TopKFilters"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The column and the greatest value of a condition such as `n <= 3`, if that is a number from 1 on.
fn at_most(condition: &Arc<dyn PhysicalExpr>) -> Option<(usize, usize)> {
    let binary = condition.downcast_ref::<BinaryExpr>()?;
    let (column, op, bound) = match (binary.left().downcast_ref::<Column>(), binary.right().downcast_ref::<Column>()) {
        (Some(column), None) => (column, *binary.op(), binary.right()),
        (None, Some(column)) => (column, binary.op().swap()?, binary.left()),
        _ => return None,
    };
    let bound = match bound.downcast_ref::<Literal>()?.value() {
        ScalarValue::UInt64(Some(bound)) => usize::try_from(*bound).ok()?,
        ScalarValue::Int64(Some(bound)) => usize::try_from(*bound).ok()?,
        _ => return None,
    };
    let greatest = match op {
        Operator::LtEq | Operator::Eq => bound,
        Operator::Lt => bound.checked_sub(1)?,
        _ => return None,
    };
    (greatest > 0).then_some((column.index(), greatest))
}

/// The plan with a filter below the sort, if this column of the plan is the number of a row in its partition.
fn below_numbers(plan: &Arc<dyn ExecutionPlan>, column: usize, k: usize) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(input) = plan.children().first().map(|input| Arc::clone(input)) else { return Ok(None) };
    let below = if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        match projection.expr().get(column).and_then(|projected| projected.expr.downcast_ref::<Column>()) {
            Some(column) => below_numbers(&input, column.index(), k)?,
            None => None,
        }
    } else if plan.is::<RepartitionExec>() || (plan.is::<CoalescePartitionsExec>() && plan.fetch().is_none()) {
        below_numbers(&input, column, k)?
    } else {
        match numbers(plan) {
            Some(window) if column >= input.schema().fields().len() => below_sort(&input, &window, k)?,
            _ => None,
        }
    };
    below.map(|input| with_input(plan, input)).transpose()
}

/// What rows are partitioned by, and what they are sorted by first within a partition.
#[derive(Debug, Clone)]
struct Partitions {
    partition_by: Vec<Arc<dyn PhysicalExpr>>,
    order: PhysicalSortExpr,
}

impl Partitions {
    /// The same of the rows before a projection.
    fn before(&self, projection: &ProjectionExec) -> Result<Partitions> {
        let before = |expr: &Arc<dyn PhysicalExpr>| {
            let substituted = Arc::clone(expr).transform_down(|expr| {
                let column = expr.downcast_ref::<Column>().and_then(|column| projection.expr().get(column.index()));
                Ok(match column {
                    Some(column) => Transformed::new(Arc::clone(&column.expr), true, TreeNodeRecursion::Jump),
                    None => Transformed::no(expr),
                })
            });
            substituted.map(|substituted| substituted.data)
        };
        let partition_by = self.partition_by.iter().map(before).collect::<Result<Vec<_>>>()?;
        Ok(Partitions { partition_by, order: PhysicalSortExpr { expr: before(&self.order.expr)?, ..self.order } })
    }
}

/// What a window is over that has only `row_number` and `rank`: other functions may depend on rows that are dropped.
fn numbers(plan: &Arc<dyn ExecutionPlan>) -> Option<Partitions> {
    let windows = match (plan.downcast_ref::<BoundedWindowAggExec>(), plan.downcast_ref::<WindowAggExec>()) {
        (Some(window), _) => window.window_expr(),
        (None, Some(window)) => window.window_expr(),
        _ => return None,
    };
    let is_number = |window: &Arc<dyn WindowExpr>| {
        let window = window.as_any().downcast_ref::<StandardWindowExpr>();
        let function =
            window.and_then(|window| window.get_standard_func_expr().as_any().downcast_ref::<WindowUDFExpr>());
        function.is_some_and(|function| matches!(function.fun().name(), "row_number" | "rank"))
    };
    let window = windows.first().filter(|_| windows.iter().all(is_number))?;
    Some(Partitions { partition_by: window.partition_by().to_vec(), order: window.order_by().first()?.clone() })
}

/// A sort with the filter below it, and below what distributes its rows.
fn below_sort(plan: &Arc<dyn ExecutionPlan>, window: &Partitions, k: usize) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(input) = plan.children().first().map(|input| Arc::clone(input)) else { return Ok(None) };
    let below = if plan.fetch().is_some() {
        None
    } else if plan.is::<SortPreservingMergeExec>() || plan.is::<CoalescePartitionsExec>() {
        below_sort(&input, window, k)?
    } else if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        below_sort(&input, &window.before(projection)?, k)?
    } else {
        let Some(sort) = plan.downcast_ref::<SortExec>() else { return Ok(None) };
        match sort.expr().get(window.partition_by.len()) {
            Some(order) if *order == window.order => {}
            _ => return Ok(None),
        }
        match Codes::of(&input.schema(), window)? {
            Some(codes) => Some(below_exchanges(&input, codes, k)?),
            None => None,
        }
    };
    below.map(|input| with_input(plan, input)).transpose()
}

fn below_exchanges(plan: &Arc<dyn ExecutionPlan>, codes: Codes, k: usize) -> Result<Arc<dyn ExecutionPlan>> {
    match plan.children().as_slice() {
        [input] if plan.is::<RepartitionExec>() || (plan.is::<CoalescePartitionsExec>() && plan.fetch().is_none()) => {
            with_input(plan, below_exchanges(input, codes, k)?)
        }
        _ => Ok(Arc::new(TopKFilterExec::new(Arc::clone(plan), codes, k))),
    }
}

fn with_input(plan: &Arc<dyn ExecutionPlan>, input: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    Arc::clone(plan).replace_children(vec![input], ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
}
