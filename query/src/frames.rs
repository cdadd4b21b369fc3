//! `sum`, `avg`, `count`, `min`, `max`, variances and standard deviations over frames of rows that come in order, and `lag`,
//! `lead` and `row_number`.
//!
//! DataFusion asks an accumulator for each row, with values in boxes, and looks for the ends of a frame by comparing such.
//! This module puts an operator of its own in the place of windows that have these functions, of whole numbers, doubles and
//! (for `lag` and `lead`) times; DataFusion computes the others above it. The ends of a frame go forward from row to row, so each row is added once and taken off once. What is no
//! longer in a frame is forgotten: a frame and the batches that wait for their answers are all that is in memory.
//!
//! Frames of months, and of days in a time zone, are the exception: months and days differ in length, so these frames can move back, and
//! can end before they begin. DataFusion computes such frames incorrectly, so the operator computes them for all functions, whatever the
//! settings are.
//!
//! Doubles are summed with what their additions round off, so that a value that leaves a frame leaves nothing behind. In
//! DataFusion's variances, an outlier that has left leaves results below zero.

mod exec;
mod keys;
mod other;
mod slide;
mod spec;

use crate::options::fast_paths;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use exec::FrameExec;
use std::sync::Arc;

/// Puts [`FrameExec`] in the place of windows that it answers.
#[derive(Debug)]
pub(crate) struct FastFrames;

impl PhysicalOptimizerRule for FastFrames {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let fast = fast_paths(config);
        let plan = plan.transform_up(|node| match FrameExec::of(&node, fast) {
            Some(exec) => Ok(Transformed::yes(Arc::new(exec) as Arc<dyn ExecutionPlan>)),
            None => Ok(match exec::apart(&node, fast)? {
                Some(apart) => Transformed::yes(apart),
                None => Transformed::no(node),
            }),
        });
        plan.map(|plan| plan.data)
    }

    fn name(&self) -> &'static str {
        "FastFrames"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
