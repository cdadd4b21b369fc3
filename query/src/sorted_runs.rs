//! Sorts rows that come in long runs which are in order already.
//!
//! A bucket has the rows of one series in order of time, so a scan returns such runs, and a window over each series asks for
//! their order. DataFusion's sort compares rows and copies each by itself. This module puts an operator of its own in the
//! place of sorts by time, or by other columns and then by time: it sorts the runs by their first rows, copies them as they
//! are, and merges only those whose times overlap. Rows whose runs are short, or that need more memory than there is, go
//! through DataFusion's sort, which can use files.

mod exec;
mod runs;

pub(crate) use exec::SortRunsExec;

use crate::options::fast_paths;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;

/// Puts [`SortRunsExec`] in the place of sorts of what a scan returns.
#[derive(Debug)]
pub(crate) struct SortRuns;

impl PhysicalOptimizerRule for SortRuns {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        if !fast_paths(config) {
            return Ok(plan);
        }
        let fast = plan.transform_up(|node| match SortRunsExec::of(&node) {
            Some(exec) => Ok(Transformed::yes(Arc::new(exec) as Arc<dyn ExecutionPlan>)),
            None => Ok(Transformed::no(node)),
        });
        fast.map(|plan| plan.data)
    }

    fn name(&self) -> &'static str {
        "SortRuns"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
