//! Distinct rows, and counts of rows by group, in small hash tables.
//!
//! DataFusion looks each row up in one table of all groups: with millions of groups, nearly every look-up misses the processor's
//! cache. Here a row becomes one number of 64 or 128 bits (`keys.rs`), and its hash chooses one of 256 tables (`tables.rs`). A thread
//! collects hundreds of rows of a table before it looks them up, so that much of the table is in the cache meanwhile. All
//! threads share the tables, so rows are not copied from one thread to another.
//!
//! `SELECT DISTINCT`, `count(DISTINCT ...)` and `GROUP BY` with `count(*)` or without aggregates run so, by up to four columns of
//! numbers, times, booleans and texts that take at most 128 bits together. If the groups need more memory than there is, or the
//! columns have too many different texts, DataFusion's operators finish the work. They can use files.
//!
//! Other aggregates by texts of the meta stay with DataFusion, but get numbers for the texts (`encoded.rs`).

mod encoded;
mod exec;
mod keys;
mod tables;
#[cfg(test)]
mod tests;

pub(crate) use exec::GroupsExec;
pub(crate) use keys::{KnownTexts, Layout, Rows, Texts};

use crate::options::fast_paths;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::tree_node::PlanContext;
use datafusion::physical_plan::union::UnionExec;
use std::sync::Arc;

/// Puts [`GroupsExec`] in the place of DataFusion's operators, or encodes the texts of their groups.
#[derive(Debug)]
pub(crate) struct HashGroups;

impl PhysicalOptimizerRule for HashGroups {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        if !fast_paths(config) {
            return Ok(plan);
        }
        // A recursive query executes parts of its plan several times, and the numbers of texts hold for one execution.
        let encodes = !plan.exists(|node| Ok(node.is::<RecursiveQueryExec>()))?;
        // A join may rely on DataFusion's hash of a group to find it in the same partition of both inputs.
        let fast = PlanContext::new_default(plan).transform_down(|mut node: PlanContext<bool>| {
            let relied_upon = node.data;
            let fast = match GroupsExec::of(&node.plan).filter(|_| !relied_upon) {
                Some(exec) => Some(Arc::new(exec) as Arc<dyn ExecutionPlan>),
                None if encodes && !relied_upon => encoded::encoded(&node.plan)?,
                None => None,
            };
            let replaced = fast.is_some();
            if let Some(fast) = fast {
                node = PlanContext::new_default(fast);
            }
            let plan = &node.plan;
            let redistributes = plan.is::<RepartitionExec>()
                || plan.is::<CoalescePartitionsExec>()
                || plan.is::<SortPreservingMergeExec>();
            let compares = node.children.len() > 1 && !plan.is::<UnionExec>();
            node.children.iter_mut().for_each(|child| child.data = !redistributes && (relied_upon || compares));
            Ok(if replaced { Transformed::yes(node) } else { Transformed::no(node) })
        });
        fast.map(|node| node.data.plan)
    }

    fn name(&self) -> &'static str {
        "HashGroups"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
