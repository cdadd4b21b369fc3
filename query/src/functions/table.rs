//! What table functions over a collection have in common: their argument, their tables, and the leaf of a plan that reads one.

use crate::at_once::scan_at_once;
use crate::context::{CATALOG, COLLECTIONS, StatementContext};
use crate::error::external;
use crate::leaf::{leaf_methods, leaf_properties};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableFunctionArgs, TableProvider};
use datafusion::common::{Result, plan_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use ebbtide::CollectionSnapshot;
use std::fmt;
use std::sync::Arc;

/// Batches that wait for whoever reads them.
const BATCHES_AHEAD: usize = 2;

/// An argument that is a text or a name.
pub(super) fn text_argument(argument: &Expr) -> Option<String> {
    match argument {
        Expr::Literal(value, _) => value.try_as_str().flatten().map(str::to_owned),
        Expr::Column(column) | Expr::OuterReferenceColumn(_, column) => Some(column.name.clone()),
        _ => None,
    }
}

/// A collection, in the snapshot of the statement that is planned.
pub(super) fn collection(args: &TableFunctionArgs<'_, '_>, name: &str) -> Result<CollectionSnapshot> {
    let context = StatementContext::of(args.session().config())?;
    match context.snapshot().collection(name) {
        Ok(snapshot) => Ok(snapshot),
        Err(_) if context.snapshot().has_collection(name) => plan_err!(
            "'{name}' is an ordinary collection, and this function reads time-series collections only; SELECT * FROM {name} reads \
             its documents"
        ),
        Err(_) => plan_err!("table '{CATALOG}.{COLLECTIONS}.{name}' not found"),
    }
}

/// The collection that is the one argument of a function.
pub(super) fn only_collection(args: &TableFunctionArgs<'_, '_>, function: &str) -> Result<CollectionSnapshot> {
    match args.exprs() {
        [argument] if let Some(name) = text_argument(argument) => collection(args, &name),
        _ => plan_err!("{function}(collection) takes the name of a collection: {function}('weather')"),
    }
}

/// What a call of a function is as a table. Like the collection's own table, it reads the snapshot of the statement that is
/// planned.
pub(super) trait Call: fmt::Debug + Send + Sync + 'static {
    /// What it reads in a plan.
    type Rows: Rows;

    /// Its columns.
    fn schema(&self) -> SchemaRef;

    /// What becomes of a condition.
    fn supports(&self, filter: &Expr) -> TableProviderFilterPushDown;

    /// The leaf of a plan that workers execute; `None` if the rows are read by the session.
    #[cfg(feature = "workers")]
    fn shared(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        Ok(None)
    }

    /// The rows that a plan reads.
    fn rows(&self, state: &dyn Session, projection: Option<&Vec<usize>>, filters: &[Expr]) -> Result<Self::Rows>;
}

/// Batches as they are read.
pub(crate) type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// The rows that a leaf of a plan reads. Its text is what EXPLAIN shows.
pub(super) trait Rows: fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// The name of the leaf.
    const LEAF: &'static str;
    /// Whether rows come before the last one is known.
    const EMISSION: EmissionType;
    /// Whether reading waits for another machine, which must not keep a thread of the runtime.
    const WAITS: bool = false;

    /// The columns.
    fn schema(&self) -> &SchemaRef;

    /// How many parts are read at the same time.
    fn parts(&self) -> usize {
        1
    }

    /// Begins to read a part.
    fn read(&self, part: usize, metrics: &ExecutionPlanMetricsSet) -> Result<Batches>;
}

/// A call as a table.
#[derive(Debug)]
pub(super) struct CallTable<C>(pub(super) C);

impl<C: Call> CallTable<C> {
    fn plan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        #[cfg(feature = "workers")]
        if StatementContext::of(state.config())?.workers().is_some()
            && let Some(leaf) = self.0.shared(state, projection, filters)?
        {
            return Ok(leaf);
        }
        let rows = self.0.rows(state, projection, filters)?;
        let properties = leaf_properties(rows.schema(), rows.parts(), C::Rows::EMISSION);
        Ok(Arc::new(CallExec { rows: Arc::new(rows), properties, metrics: ExecutionPlanMetricsSet::new() }))
    }
}

impl<C: Call> TableProvider for CallTable<C> {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(filters.iter().map(|filter| self.0.supports(filter)).collect())
    }

    scan_at_once!(plan);
}

/// The leaf.
#[derive(Debug)]
struct CallExec<R> {
    rows: Arc<R>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl<R: Rows> DisplayAs for CallExec<R> {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match kind {
            DisplayFormatType::TreeRender => f.write_str(&self.rows.to_string().replace(", ", "\n")),
            _ => write!(f, "{}: {}", R::LEAF, self.rows),
        }
    }
}

impl<R: Rows> ExecutionPlan for CallExec<R> {
    leaf_methods!();

    fn name(&self) -> &'static str {
        R::LEAF
    }

    fn execute(&self, partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let schema = Arc::clone(self.rows.schema());
        if !R::WAITS {
            let batches = counted(self.rows.read(partition, &self.metrics)?, baseline);
            return Ok(Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::iter(batches))));
        }
        let (rows, metrics) = (Arc::clone(&self.rows), self.metrics.clone());
        let mut stream = RecordBatchReceiverStream::builder(schema, BATCHES_AHEAD);
        let reader = stream.tx();
        stream.spawn_blocking(move || {
            for batch in counted(rows.read(partition, &metrics)?, baseline) {
                let is_last = batch.is_err();
                if reader.blocking_send(batch).is_err() || is_last {
                    break;
                }
            }
            Ok(())
        });
        Ok(stream.build())
    }
}

/// The batches of a unit that was opened, or the error why it could not be.
pub(super) fn batches_of(
    unit: ebbtide::Result<impl Iterator<Item = ebbtide::Result<RecordBatch>> + Send + 'static>,
) -> Batches {
    match unit {
        Ok(batches) => Box::new(batches.map(|batch| batch.map_err(external))),
        Err(error) => Box::new(std::iter::once(Err(external(error)))),
    }
}

fn counted(mut batches: Batches, baseline: BaselineMetrics) -> impl Iterator<Item = Result<RecordBatch>> + Send {
    std::iter::from_fn(move || {
        let timer = baseline.elapsed_compute().timer();
        let next = batches.next();
        timer.done();
        if let Some(Ok(batch)) = &next {
            baseline.record_output(batch.num_rows());
        }
        next
    })
}
