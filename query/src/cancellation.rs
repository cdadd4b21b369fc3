//! How statements are stopped.
//!
//! A statement that reads ends when its future or stream is dropped. A write runs on a thread of its own and looks at a flag until
//! it is committed; from then on it cannot be stopped, and whoever waits for it gets its result.
//!
//! A join can produce millions of rows from the few that were read. DataFusion can cancel a statement only where it
//! reads, and only once in 128 batches. What is above the join may take long for each batch. So the output of joins is
//! counted as well, and each batch of it checks whether the statement was stopped.
//!
//! A nested loop join returns nothing until it has found enough rows, which may take hours: its condition checks the same.

use crate::error::QueryError;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{FieldRef, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{NestedLoopJoinExec, NestedLoopJoinExecBuilder};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use ebbtide::Database;
use ebbtide_ttl::Code;
use futures::StreamExt;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

tokio::task_local! {
    /// The handle of the statements that are planned in this task, if they have one of their own.
    static STATEMENT: Stop;
}

/// Stops the running statements of a session: see [`Session::stop_handle`](crate::Session::stop_handle).
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<Mutex<Arc<Flag>>>);

impl Stop {
    /// Makes the writes and every join of the running statements end with [`Code::Interrupted`]. The other parts of
    /// a statement end when its future or stream is dropped, so drop that too if this returns `true`. It returns `false` if a
    /// statement has begun to commit what it writes: then wait for its result, which tells whether it was done. It comes soon.
    pub fn stop(&self) -> bool {
        self.flag().stop()
    }

    /// The result of `work`, which runs a statement with this handle. If `ended` comes first, the statement is stopped, and the
    /// error is what `ended` gives, unless the statement takes effect all the same.
    ///
    /// # Errors
    /// What `ended` gives: then the statement has had no effect.
    pub async fn unless<T, E>(
        &self,
        ended: impl Future<Output = E>,
        work: impl Future<Output = T>,
    ) -> std::result::Result<T, E> {
        let mut work = std::pin::pin!(work);
        let why = tokio::select! {
            biased;
            why = ended => why,
            done = &mut work => return Ok(done),
        };
        if self.stop() { Err(why) } else { Ok(work.await) }
    }

    /// Lets the statements that start from now on run; those that were stopped stay so. Call it before each statement.
    pub fn reset(&self) {
        let mut flag = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if flag.state.load(Ordering::SeqCst) != 0 {
            *flag = Arc::default();
        }
    }

    /// Runs `work`, such as the start of a statement; the statements that are planned in it end with this handle, and not with
    /// that of their session.
    pub async fn scope<T>(self, work: impl Future<Output = T>) -> T {
        STATEMENT.scope(self, work).await
    }

    /// What the statements that run now look at.
    fn flag(&self) -> Arc<Flag> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What a statement that is planned now looks at: the handle of its own if it has one, or else this.
    pub(crate) fn of_statement(&self) -> Arc<Flag> {
        STATEMENT.try_with(Stop::flag).unwrap_or_else(|_| self.flag())
    }
}

/// A statement was stopped.
const STOPPED: u8 = 1;
/// A statement has begun to commit what it writes.
const COMMITS: u8 = 2;

/// Whether a statement was stopped, and whether that is too late.
#[derive(Debug, Default)]
pub(crate) struct Flag {
    state: AtomicU8,
    told: Notify,
}

impl Flag {
    /// Returns whether the statement has committed nothing, and will not.
    fn stop(&self) -> bool {
        let before = self.state.fetch_or(STOPPED, Ordering::SeqCst);
        self.told.notify_waiters();
        before & COMMITS == 0
    }

    fn is_stopped(&self) -> bool {
        self.state.load(Ordering::SeqCst) & STOPPED != 0
    }

    /// Begins to commit; `false` if the statement was stopped before.
    fn commit(&self) -> bool {
        let begin = |state| (state & STOPPED == 0).then_some(state | COMMITS);
        self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, begin).is_ok()
    }

    /// What `work` gives, unless the statement is stopped.
    pub(crate) async fn or_stopped<T>(&self, work: impl Future<Output = T>) -> std::result::Result<T, QueryError> {
        let told = self.told.notified();
        let stopped = async {
            if !self.is_stopped() {
                told.await;
            }
        };
        tokio::select! {
            biased;
            () = stopped => Err(stopped_error()),
            done = work => Ok(done),
        }
    }

    /// Runs a write off the threads that serve queries. It ends with [`Code::Interrupted`] if the statement is stopped, or
    /// nobody waits for it any more, before it is committed.
    pub(crate) async fn write<T: Send + 'static>(
        self: Arc<Self>,
        database: Database,
        work: impl FnOnce(Database, ebbtide::Stop) -> ebbtide::Result<T> + Send + 'static,
    ) -> std::result::Result<T, QueryError> {
        let waiting = Arc::new(());
        let (flag, waits) = (Arc::clone(&self), Arc::downgrade(&waiting));
        let is_dropped = move || waits.strong_count() == 0;
        let dropped = is_dropped.clone();
        let stop = ebbtide::Stop::when(move || flag.is_stopped() || dropped());
        let stop = stop.before_commit(move || is_dropped() || !self.commit());
        let outcome = tokio::task::spawn_blocking(move || work(database, stop)).await;
        drop(waiting);
        match outcome {
            Ok(outcome) => Ok(outcome?),
            Err(error) => Err(QueryError::new(Code::InternalError, error.to_string())),
        }
    }
}

fn stopped_error() -> QueryError {
    QueryError::new(Code::Interrupted, "stopped")
}

fn stopped<T>() -> Result<T> {
    Err(DataFusionError::External(Box::new(stopped_error())))
}

/// Puts nodes above every join: one that yields after a number of batches, and one that fails once the statement is stopped. The
/// conditions of joins fail then too.
#[derive(Debug)]
pub(crate) struct YieldingJoins(pub(crate) Stop);

impl PhysicalOptimizerRule for YieldingJoins {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let yielding = plan.transform_up(|node| match node.name().ends_with("JoinExec") {
            true => {
                let stop = self.0.of_statement();
                let node: Arc<dyn ExecutionPlan> = match node.downcast_ref::<NestedLoopJoinExec>() {
                    Some(join) => Arc::new(stopping(join, &stop)?),
                    None => node,
                };
                let input: Arc<dyn ExecutionPlan> = Arc::new(CooperativeExec::new(node));
                Ok(Transformed::yes(Arc::new(StoppableExec { input, stop }) as Arc<dyn ExecutionPlan>))
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

/// The same join, whose condition fails once the statement is stopped.
fn stopping(join: &NestedLoopJoinExec, stop: &Arc<Flag>) -> Result<NestedLoopJoinExec> {
    let filter = join.filter().map(|filter| {
        let condition = Condition { inner: Arc::clone(filter.expression()), stop: Arc::clone(stop) };
        JoinFilter::new(Arc::new(condition), filter.column_indices().to_vec(), Arc::clone(filter.schema()))
    });
    NestedLoopJoinExecBuilder::from(join).with_filter(filter).build()
}

/// Passes rows on until the statement is stopped.
#[derive(Debug)]
struct StoppableExec {
    input: Arc<dyn ExecutionPlan>,
    stop: Arc<Flag>,
}

impl DisplayAs for StoppableExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoppableExec")
    }
}

impl ExecutionPlan for StoppableExec {
    fn name(&self) -> &'static str {
        "StoppableExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([input]) = <[_; 1]>::try_from(children) else { return internal_err!("StoppableExec has one input") };
        Ok(Arc::new(StoppableExec { input, stop: Arc::clone(&self.stop) }))
    }

    fn execute(&self, part: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let stop = Arc::clone(&self.stop);
        let rows = self.input.execute(part, context)?;
        let rows = rows.map(move |batch| if stop.is_stopped() { stopped() } else { batch });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

/// A join condition that fails once the statement is stopped.
#[derive(Debug)]
struct Condition {
    inner: Arc<dyn PhysicalExpr>,
    stop: Arc<Flag>,
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
        if self.stop.is_stopped() {
            return stopped();
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
