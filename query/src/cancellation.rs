//! Joins that yield to the runtime and can be cancelled.
//!
//! A join can produce millions of rows from the few that were read. DataFusion can cancel a statement only where it
//! reads, so the output of joins is counted as well: a stopped statement then ends soon.
//!
//! A nested loop join returns nothing until it has found enough rows, which may take hours: its condition checks
//! whether the statement was stopped.

use crate::error::QueryError;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{FieldRef, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{NestedLoopJoinExec, NestedLoopJoinExecBuilder};
use ebbtide_ttl::Code;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

tokio::task_local! {
    /// The handle of the statements that are planned in this task, if they have one of their own.
    static STATEMENT: Stop;
}

/// Stops the running statements of a session: see [`Session::stop_handle`](crate::Session::stop_handle).
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<Mutex<Arc<AtomicBool>>>);

impl Stop {
    /// Makes every nested loop join of the running statements end with [`Code::Interrupted`]. The other parts of a
    /// statement end when its future or stream is dropped, so drop that too.
    pub fn stop(&self) {
        self.flag().store(true, Ordering::Relaxed);
    }

    /// Lets the statements that start from now on run; those that were stopped stay so. Call it before each statement.
    pub fn reset(&self) {
        let mut flag = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if flag.load(Ordering::Relaxed) {
            *flag = Arc::default();
        }
    }

    /// Runs `work`, such as the start of a statement; the statements that are planned in it end with this handle, and not with
    /// that of their session.
    pub async fn scope<T>(self, work: impl Future<Output = T>) -> T {
        STATEMENT.scope(self, work).await
    }

    /// What the statements that run now look at.
    fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Puts a node above every join that yields after a number of batches, and makes join conditions check for
/// cancellation.
#[derive(Debug)]
pub(crate) struct YieldingJoins(pub(crate) Stop);

impl PhysicalOptimizerRule for YieldingJoins {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let yielding = plan.transform_up(|node| match node.name().ends_with("JoinExec") {
            true => {
                let node = match node.downcast_ref::<NestedLoopJoinExec>() {
                    Some(join) => Arc::new(self.stopping(join)?),
                    None => node,
                };
                Ok(Transformed::yes(Arc::new(CooperativeExec::new(node)) as Arc<dyn ExecutionPlan>))
            }
            false => Ok(Transformed::no(node)),
        });
        yielding.map(|plan| plan.data)
    }

    fn name(&self) -> &'static str {
        "YieldingJoins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl YieldingJoins {
    /// The same join, failing once the statement is stopped.
    fn stopping(&self, join: &NestedLoopJoinExec) -> Result<NestedLoopJoinExec> {
        let stop = STATEMENT.try_with(Stop::flag).unwrap_or_else(|_| self.0.flag());
        let filter = join.filter().map(|filter| {
            let condition = Condition { inner: Arc::clone(filter.expression()), stop: Arc::clone(&stop) };
            JoinFilter::new(Arc::new(condition), filter.column_indices().to_vec(), Arc::clone(filter.schema()))
        });
        NestedLoopJoinExecBuilder::from(join).with_filter(filter).build()
    }
}

/// A join condition that fails once the statement is stopped.
#[derive(Debug)]
struct Condition {
    inner: Arc<dyn PhysicalExpr>,
    stop: Arc<AtomicBool>,
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.inner.eq(&other.inner)
    }
}

impl Eq for Condition {}

impl Hash for Condition {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl PhysicalExpr for Condition {
    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.inner.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(DataFusionError::External(Box::new(QueryError::new(Code::Interrupted, "stopped"))));
        }
        self.inner.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.inner]
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        let inner = children.pop().unwrap_or_else(|| Arc::clone(&self.inner));
        Ok(Arc::new(Condition { inner, stop: Arc::clone(&self.stop) }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(f)
    }
}

#[cfg(test)]
mod tests;
