//! The newest row of each series, of the newest rows in each share.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use datafusion::arrow::compute::{cast, concat_batches, take_record_batch};
use datafusion::arrow::datatypes::{DataType, Int64Type, SchemaRef};
use datafusion::arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_datafusion_err, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Distribution, EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::TryStreamExt;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Keeps the newest row of each series. There are few rows: one for each series and share.
#[derive(Debug)]
pub(super) struct NewestExec {
    input: Arc<dyn ExecutionPlan>,
    /// The column of times.
    pub(super) time: usize,
    /// The column of metas; all rows are of one series without.
    pub(super) meta: Option<usize>,
    properties: Arc<PlanProperties>,
}

impl NewestExec {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>, time: usize, meta: Option<usize>) -> Result<NewestExec> {
        let columns = input.schema().fields().len();
        if time >= columns || meta.is_some_and(|meta| meta >= columns) {
            return internal_err!("the newest rows are sought by columns that are not there");
        }
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        ));
        Ok(NewestExec { input, time, meta, properties })
    }

    /// What is kept, in words.
    pub(super) fn words(&self) -> String {
        match self.meta {
            Some(meta) => format!("keeps the newest row of each {}", self.input.schema().field(meta).name()),
            None => "keeps the newest row".to_owned(),
        }
    }
}

impl DisplayAs for NewestExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.input.schema();
        let meta = self.meta.map_or("", |meta| schema.field(meta).name().as_str());
        write!(f, "NewestExec: of each {meta}")
    }
}

impl ExecutionPlan for NewestExec {
    fn name(&self) -> &'static str {
        "NewestExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match <[_; 1]>::try_from(children) {
            Ok([input]) => Ok(Arc::new(NewestExec::new(input, self.time, self.meta)?)),
            Err(_) => internal_err!("NewestExec has one input"),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition > 0 {
            return internal_err!("NewestExec has one partition");
        }
        let (schema, time, meta) = (self.input.schema(), self.time, self.meta);
        let rows = self.input.execute(0, context)?;
        let of_schema = Arc::clone(&schema);
        let found = async move {
            let batches: Vec<RecordBatch> = rows.try_collect().await?;
            newest(&concat_batches(&of_schema, &batches)?, time, meta)
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::once(found))))
    }
}

/// The newest row of each meta, in the order of metas. Of rows of one time the last is taken.
fn newest(rows: &RecordBatch, time: usize, meta: Option<usize>) -> Result<RecordBatch> {
    let times = cast(rows.column(time), &DataType::Int64)?;
    let times = times.as_primitive::<Int64Type>();
    let metas = meta.map(|meta| keys(rows.column(meta))).transpose()?;
    let mut found: BTreeMap<Option<&OwnedRow>, (i64, u32)> = BTreeMap::new();
    for (at, time) in times.values().iter().enumerate() {
        let number = u32::try_from(at).map_err(|_| internal_datafusion_err!("there are more series than numbers"))?;
        let best = found.entry(metas.as_ref().map(|metas| &metas[at])).or_insert((*time, number));
        if *time >= best.0 {
            *best = (*time, number);
        }
    }
    Ok(take_record_batch(rows, &UInt32Array::from_iter_values(found.into_values().map(|(_, row)| row)))?)
}

fn keys(metas: &ArrayRef) -> Result<Vec<OwnedRow>> {
    let converter = RowConverter::new(vec![SortField::new(metas.data_type().clone())])?;
    let rows = converter.convert_columns(&[Arc::clone(metas)])?;
    Ok(rows.iter().map(|row| row.owned()).collect())
}

/// The columns that a leaf reads so that the newest rows can be told from its rows: those that are wanted, and then those.
pub(super) fn columns(wanted: Option<&Vec<usize>>, schema: &SchemaRef, needed: &[usize]) -> Vec<usize> {
    let mut columns = wanted.cloned().unwrap_or_else(|| (0..schema.fields().len()).collect());
    for column in needed {
        if !columns.contains(column) {
            columns.push(*column);
        }
    }
    columns
}
