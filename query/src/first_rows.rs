//! Scans for `ORDER BY ... LIMIT`, which read only the buckets that may contain the first rows.
//!
//! The engine knows between which times and values the rows of each bucket are. For the ten latest rows it reads the newest
//! buckets; for the hundred greatest values, those with the greatest maximum.

use crate::functions::without_canonical_float;
use crate::joined_metas::with_scan;
use crate::options::fast_paths;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::sorts::sort::SortExec;
use ebbtide::FirstRows;
use std::sync::Arc;

/// Tells scans which rows are needed.
#[derive(Debug)]
pub(crate) struct ScansOfFirstRows;

impl PhysicalOptimizerRule for ScansOfFirstRows {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        if !fast_paths(config) {
            return Ok(plan);
        }
        let told = plan.transform_up(|node| {
            Ok(match node.downcast_ref::<SortExec>().map(first_of).transpose()?.flatten() {
                Some(input) => Transformed::yes(replace_children_if_necessary(node, vec![input])?),
                None => Transformed::no(node),
            })
        });
        told.map(|plan| plan.data)
    }

    fn name(&self) -> &'static str {
        "ScansOfFirstRows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The input of a sort that keeps its first rows, with a scan that reads less; `None` if it sorts by something other than a
/// column of a scan first, or all buckets may contain some of these rows.
fn first_of(sort: &SortExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(rows) = sort.fetch() else { return Ok(None) };
    let first = sort.expr().first();
    let options = first.options;
    with_scan(sort.input(), Arc::clone(&first.expr), false, &|scan, key| {
        let Some(column) = without_canonical_float(&key).downcast_ref::<Column>() else { return Ok(None) };
        scan.with_first(FirstRows {
            column: scan.schema().field(column.index()).name().clone(),
            descending: options.descending,
            nulls_first: options.nulls_first,
            rows: rows as u64,
        })
    })
}
