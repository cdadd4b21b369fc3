//! Groups by the meta or its members, with numbers in the place of the texts.
//!
//! DataFusion hashes and compares the text of every row. A bucket has the rows of one series, so a scan returns long runs of rows with
//! the same text: one look-up for each run gives them a number, and DataFusion's operators group by that number. This works for every
//! aggregate function without ORDER BY, and groups beyond the memory go to disk as before.

use super::exec::groups_in;
use super::keys::{KnownTexts, Texts};
use crate::exec::BucketScanExec;
use crate::joined_metas::with_scan;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringViewArray, UInt16Array};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt16Type};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, apply_expression_roots};
use futures::StreamExt;
use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The same groups, by numbers of their texts; `None` if no text is the meta or a member of it, or its runs are short.
pub(super) fn encoded(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some((complete, repartition, partial)) = stages(node) else { return Ok(None) };
    let (input, group_by) = (partial.input(), partial.group_expr().expr());
    let mut texts = Vec::new();
    for (at, (expr, _)) in group_by.iter().enumerate() {
        if expr.data_type(&input.schema())? == DataType::Utf8View && has_long_runs(input, expr)? {
            texts.push(at);
        }
    }
    if texts.is_empty() {
        return Ok(None);
    }
    let codes: Vec<Codes> = texts.iter().map(|_| Codes::default()).collect();
    let exprs = texts.iter().map(|at| Arc::clone(&group_by[*at].0)).zip(codes.iter().cloned()).collect();
    let encode = Arc::new(EncodeTextsExec::new(Arc::clone(input), exprs));
    let (schema, first) = (encode.schema(), input.schema().fields().len());
    let of_rows = group_by.iter().enumerate().map(|(at, (expr, name))| {
        let number = texts.iter().position(|text| *text == at).map(|number| first + number);
        let expr = number.map_or_else(|| Arc::clone(expr), |number| column(&schema, number));
        (expr, name.clone())
    });
    let stage = |mode, of: &AggregateExec, by, input| {
        let (calls, filters) = (of.aggr_expr().to_vec(), of.filter_expr().to_vec());
        AggregateExec::try_new(mode, PhysicalGroupBy::new_single(by), calls, filters, input, Arc::clone(&schema))
    };
    let partial = Arc::new(stage(AggregateMode::Partial, partial, of_rows.collect(), encode)?);
    let of_groups: Vec<_> =
        group_by.iter().enumerate().map(|(at, (_, name))| (column(&partial.schema(), at), name.clone())).collect();
    let hashed = of_groups.iter().map(|(expr, _)| Arc::clone(expr)).collect();
    let parts = repartition.properties().output_partitioning().partition_count();
    let repartition = Arc::new(RepartitionExec::try_new(partial, Partitioning::Hash(hashed, parts))?);
    let complete = stage(AggregateMode::FinalPartitioned, complete, of_groups, repartition)?;
    let columns = texts.into_iter().zip(codes).collect();
    Ok(Some(Arc::new(DecodeTextsExec::new(Arc::new(complete), columns, node.schema()))))
}

fn column(schema: &SchemaRef, at: usize) -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new(schema.field(at).name(), at))
}

/// The operators of an aggregate: groups of each partition, the same groups brought together, and all of them.
fn stages(node: &Arc<dyn ExecutionPlan>) -> Option<(&AggregateExec, &Arc<dyn ExecutionPlan>, &AggregateExec)> {
    let complete = groups_in(node, AggregateMode::FinalPartitioned)?;
    let repartition = complete.input();
    let partial = groups_in(repartition.downcast_ref::<RepartitionExec>()?.input(), AggregateMode::Partial)?;
    // An aggregate with ORDER BY relies on the order of its input, which the new operator does not declare.
    let in_any_order = partial.aggr_expr().iter().all(|call| call.order_bys().is_empty());
    in_any_order.then_some((complete, repartition, partial))
}

/// Whether an expression is the meta of a scan or a member of it, and the same for long runs of rows.
fn has_long_runs(input: &Arc<dyn ExecutionPlan>, expr: &Arc<dyn PhysicalExpr>) -> Result<bool> {
    let found = Cell::new(false);
    with_scan(input, Arc::clone(expr), true, &|scan: &BucketScanExec, expr| {
        found.set(scan.has_long_runs(&expr));
        Ok(None)
    })?;
    Ok(found.get())
}

/// The numbers of the texts of a column. They are kept until the plan is dropped.
#[derive(Debug, Clone, Default)]
struct Codes(Arc<OnceLock<Arc<Texts>>>);

impl Codes {
    fn texts(&self, context: &TaskContext) -> Arc<Texts> {
        let texts = || Texts::of_few(MemoryConsumer::new("EncodeTextsExec").register(context.memory_pool()));
        Arc::clone(self.0.get_or_init(|| Arc::new(texts())))
    }
}

/// Adds a column with the numbers of texts for each expression.
#[derive(Debug)]
struct EncodeTextsExec {
    input: Arc<dyn ExecutionPlan>,
    texts: Vec<(Arc<dyn PhysicalExpr>, Codes)>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// Puts texts back into columns that have their numbers.
#[derive(Debug)]
struct DecodeTextsExec {
    input: Arc<dyn ExecutionPlan>,
    columns: Vec<(usize, Codes)>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// The properties of an operator whose rows are in no particular order.
fn properties_of(input: &Arc<dyn ExecutionPlan>, schema: SchemaRef) -> Arc<PlanProperties> {
    let properties = input.properties();
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new(schema),
        Partitioning::UnknownPartitioning(properties.output_partitioning().partition_count()),
        properties.emission_type,
        properties.boundedness,
    ))
}

impl EncodeTextsExec {
    fn new(input: Arc<dyn ExecutionPlan>, texts: Vec<(Arc<dyn PhysicalExpr>, Codes)>) -> Self {
        let of_input = input.schema();
        let number = |(text, _): &(Arc<dyn PhysicalExpr>, Codes)| {
            Arc::new(Field::new(format!("number of {text}"), DataType::UInt16, true))
        };
        let fields = of_input.fields().iter().cloned().chain(texts.iter().map(number)).collect::<Vec<_>>();
        let schema = Arc::new(Schema::new_with_metadata(fields, of_input.metadata().clone()));
        let properties = properties_of(&input, schema);
        EncodeTextsExec { input, texts, properties, metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl DecodeTextsExec {
    fn new(input: Arc<dyn ExecutionPlan>, columns: Vec<(usize, Codes)>, schema: SchemaRef) -> Self {
        let properties = properties_of(&input, schema);
        DecodeTextsExec { input, columns, properties, metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl DisplayAs for EncodeTextsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.texts.iter().map(|(text, _)| text.to_string()).collect();
        write!(f, "EncodeTextsExec: texts=[{}]", texts.join(", "))
    }
}

impl DisplayAs for DecodeTextsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.schema();
        let columns: Vec<&str> = self.columns.iter().map(|(at, _)| schema.field(*at).name().as_str()).collect();
        write!(f, "DecodeTextsExec: columns=[{}]", columns.join(", "))
    }
}

impl ExecutionPlan for EncodeTextsExec {
    fn name(&self) -> &'static str {
        "EncodeTextsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        apply_expression_roots(self.texts.iter().map(|(text, _)| text), f)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([input]) = <[_; 1]>::try_from(children) else { return internal_err!("EncodeTextsExec has one input") };
        Ok(Arc::new(EncodeTextsExec::new(input, self.texts.clone())))
    }

    fn execute(&self, part: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let known = |(text, codes): &(_, Codes)| (Arc::clone(text), KnownTexts::new(codes.texts(&context)));
        let mut texts: Vec<(Arc<dyn PhysicalExpr>, KnownTexts)> = self.texts.iter().map(known).collect();
        let schema = self.schema();
        let baseline = BaselineMetrics::new(&self.metrics, part);
        let encoded = self.input.execute(part, context)?.map(move |batch| {
            let batch = batch?;
            let _timer = baseline.elapsed_compute().timer();
            let mut columns = batch.columns().to_vec();
            for (text, known) in &mut texts {
                columns.push(numbers(&text.evaluate(&batch)?.into_array(batch.num_rows())?, known)?);
            }
            baseline.record_output(batch.num_rows());
            Ok(RecordBatch::try_new(Arc::clone(&schema), columns)?)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), encoded)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// The number of each text.
fn numbers(texts: &ArrayRef, known: &mut KnownTexts) -> Result<ArrayRef> {
    let mut keys = vec![0_u64; texts.len()];
    if !known.put(texts.as_string_view(), &mut keys, 0) {
        return internal_err!("a scan has more metas than it said");
    }
    let numbers = keys.into_iter().map(|key| key as u16).collect::<Vec<u16>>();
    Ok(Arc::new(UInt16Array::new(numbers.into(), texts.nulls().cloned())))
}

impl ExecutionPlan for DecodeTextsExec {
    fn name(&self) -> &'static str {
        "DecodeTextsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([input]) = <[_; 1]>::try_from(children) else { return internal_err!("DecodeTextsExec has one input") };
        Ok(Arc::new(DecodeTextsExec::new(input, self.columns.clone(), self.schema())))
    }

    fn execute(&self, part: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let columns: Vec<_> = self.columns.iter().map(|(at, codes)| (*at, codes.texts(&context))).collect();
        let mut texts: Option<Vec<StringViewArray>> = None;
        let schema = self.schema();
        let baseline = BaselineMetrics::new(&self.metrics, part);
        let decoded = self.input.execute(part, context)?.map(move |batch| {
            let batch = batch?;
            let _timer = baseline.elapsed_compute().timer();
            let mut decoded = batch.columns().to_vec();
            // The first group is returned once all rows have been read.
            let texts = texts.get_or_insert_with(|| columns.iter().map(|(_, texts)| texts.so_far()).collect());
            for ((at, _), texts) in columns.iter().zip(texts) {
                decoded[*at] = take(texts, decoded[*at].as_primitive::<UInt16Type>(), None)?;
            }
            baseline.record_output(batch.num_rows());
            Ok(RecordBatch::try_new(Arc::clone(&schema), decoded)?)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), decoded)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
