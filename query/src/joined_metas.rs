//! Scans, and aggregates of the engine, that read only the series that a join needs.
//!
//! A join of measurements with a table of stations reads that table first. What it finds there is known before the first
//! measurement is read: the metas that can have a match. DataFusion's hash join makes a condition of them while it builds its
//! hash table; the scan of the other side evaluates it on the distinct metas, as it does those of a WHERE clause, and skips
//! the buckets of all others.

use crate::engine_aggregate::EngineAggregateExec;
use crate::exec::BucketScanExec;
use crate::options::fast_paths;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr, lit};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use std::sync::Arc;

/// Connects hash joins on the meta with the scans that they read.
#[derive(Debug)]
pub(crate) struct JoinsSelectMetas;

impl PhysicalOptimizerRule for JoinsSelectMetas {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        // A recursive query runs parts of its plan several times, each time with other rows on one side.
        if !fast_paths(config) || plan.exists(|node| Ok(node.is::<RecursiveQueryExec>()))? {
            return Ok(plan);
        }
        let connected = plan.transform_up(|node| {
            Ok(match node.downcast_ref::<HashJoinExec>().map(connected).transpose()?.flatten() {
                Some(join) => Transformed::yes(join),
                None => Transformed::no(node),
            })
        });
        connected.map(|plan| plan.data)
    }

    fn name(&self) -> &'static str {
        "JoinsSelectMetas"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The join with its scan connected; `None` if it is not one by the meta alone, or by a value computed from it.
fn connected(join: &HashJoinExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let [(_, key)] = join.on() else { return Ok(None) };
    let filter = Arc::new(DynamicFilterPhysicalExpr::new(vec![Arc::clone(key)], lit(true)));
    let right = with_leaf(join.right(), Arc::clone(key), true, &|leaf, key| {
        Ok(match leaf.downcast_ref::<EngineAggregateExec>() {
            Some(aggregate) => aggregate.with_join(key, &filter)?.map(|leaf| Arc::new(leaf) as Arc<dyn ExecutionPlan>),
            None => match leaf.downcast_ref::<BucketScanExec>() {
                Some(scan) => scan.with_join(key, &filter)?.map(|leaf| Arc::new(leaf) as Arc<dyn ExecutionPlan>),
                None => None,
            },
        })
    })?;
    let Some(right) = right else { return Ok(None) };
    let children = vec![Arc::clone(join.left()), right];
    let join = join.builder().with_new_children(children)?.build()?.with_dynamic_filter_expr(filter)?;
    Ok(Some(Arc::new(join)))
}

/// Another leaf in the place of one, which gets an expression on its columns; `None` to keep the leaf.
type Replace<'a> =
    dyn Fn(&Arc<dyn ExecutionPlan>, Arc<dyn PhysicalExpr>) -> Result<Option<Arc<dyn ExecutionPlan>>> + 'a;

/// The same for scans.
type ReplaceScan<'a> = dyn Fn(&BucketScanExec, Arc<dyn PhysicalExpr>) -> Result<Option<BucketScanExec>> + 'a;

/// [`with_leaf`] for scans.
pub(crate) fn with_scan(
    plan: &Arc<dyn ExecutionPlan>,
    key: Arc<dyn PhysicalExpr>,
    filtered: bool,
    replace: &ReplaceScan<'_>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    with_leaf(plan, key, filtered, &|leaf, key| match leaf.downcast_ref::<BucketScanExec>() {
        Some(scan) => Ok(replace(scan, key)?.map(|scan| Arc::new(scan) as Arc<dyn ExecutionPlan>)),
        None => Ok(None),
    })
}

/// The plan with another leaf, if each row comes from one of the leaf: `key` is an expression on the plan's columns. With `filtered`,
/// rows of the leaf may be missing.
fn with_leaf(
    plan: &Arc<dyn ExecutionPlan>,
    key: Arc<dyn PhysicalExpr>,
    filtered: bool,
    replace: &Replace<'_>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if plan.children().is_empty() {
        return replace(plan, key);
    }
    let key = match plan.downcast_ref::<ProjectionExec>() {
        Some(projection) => below(projection, key)?,
        None if plan.is::<RepartitionExec>() || plan.is::<CooperativeExec>() => key,
        None => match plan.downcast_ref::<FilterExec>() {
            Some(kept) if filtered => below_filter(kept, key)?,
            _ => return Ok(None),
        },
    };
    let children = plan.children();
    let [input] = children.as_slice() else { return Ok(None) };
    let Some(input) = with_leaf(input, key, filtered, replace)? else { return Ok(None) };
    replace_children_if_necessary(Arc::clone(plan), vec![input]).map(Some)
}

/// An expression on the columns of a projection as one on those of its input.
fn below(projection: &ProjectionExec, key: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
    let of_input = key.transform_up(|part| {
        let column = part.downcast_ref::<Column>().and_then(|column| projection.expr().get(column.index()));
        Ok(column.map_or_else(|| Transformed::no(part), |column| Transformed::yes(Arc::clone(&column.expr))))
    });
    of_input.map(|key| key.data)
}

/// An expression on the columns of a filter, which may leave out some, as one on those of its input.
fn below_filter(filter: &FilterExec, key: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
    let Some(columns) = filter.projection() else { return Ok(key) };
    let input = filter.input().schema();
    let of_input = key.transform_up(|part| {
        let at = part.downcast_ref::<Column>().and_then(|column| columns.get(column.index()).copied());
        Ok(at.map_or_else(
            || Transformed::no(part),
            |at| Transformed::yes(Arc::new(Column::new(input.field(at).name(), at)) as Arc<dyn PhysicalExpr>),
        ))
    });
    of_input.map(|key| key.data)
}
