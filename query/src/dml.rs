//! INSERT and DELETE on collections.
//!
//! An INSERT may name fields that the collection does not have yet, which DataFusion's planner would refuse: so its
//! source is planned as a separate query, and its rows go to the engine as one atomic batch. A DELETE also removes
//! hidden measurements, which no scan returns: so its condition is compiled and handed to the engine.

pub(crate) mod delete_sink;
pub(crate) mod forms;

use self::forms::{has_subquery, insert_of, part, refuse_first, refuse_other_forms, source_of, table_name};
use crate::cancellation::Flag;
use crate::documents::json::json_columns;
use crate::documents::values::documents_of;
use crate::documents::write::DocumentsInsert;
use crate::error::{QueryError, Result as QueryResult, external};
use crate::functions::as_in_plans;
use crate::pushdown::{MetaPredicate, PushdownRules, unqualified};
use crate::sql::cast_of;
use crate::timestamp_coercion::{rewrite_expr, simplifier};
use crate::zeros_in_lists;
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array,
};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DFSchema, DataFusionError, Result, TableReference, internal_err};
use datafusion::datasource::provider_as_source;
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::execution::context::SessionState;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{DmlStatement, Expr, LogicalPlan, TableProviderFilterPushDown, TableType, WriteOp};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr};
use datafusion::sql::sqlparser::ast;
use ebbtide::{Collection, CollectionSnapshot, Database, MetaFilter, RowPredicate};
use ebbtide_buckets::{BATCH_BYTES_MAX, FieldType, Schema, batch_bytes, timestamps};
use ebbtide_ttl::{Code, Precision, Timestamp, int_fits_double};
use futures::TryStreamExt;
use std::fmt;
use std::sync::Arc;

/// The target that every INSERT into a collection is planned with: plain, prepared or explained. DataFusion would cast
/// rows to the types of a table; this target takes them unchanged, so that nothing is altered before it is checked.
#[derive(Debug)]
pub(crate) struct InsertTarget {
    database: Database,
    stop: Arc<Flag>,
    into: Arc<Into>,
    rows: SchemaRef,
    /// The columns of the rows that are Extended JSON of what documents hold.
    json: Vec<bool>,
}

/// What rows are inserted into.
#[derive(Debug)]
pub(crate) enum Into {
    /// A time-series collection.
    Series(Insert),
    /// An ordinary collection.
    Documents(DocumentsInsert),
}

impl Into {
    fn collection(&self) -> &str {
        match self {
            Into::Series(insert) => &insert.collection,
            Into::Documents(insert) => &insert.collection,
        }
    }
}

impl InsertTarget {
    /// The plan that inserts the rows of `source`, unless it is stopped.
    pub(crate) fn plan((database, stop): (Database, Arc<Flag>), into: Into, source: Arc<LogicalPlan>) -> LogicalPlan {
        let name = TableReference::bare(into.collection().to_owned());
        let (rows, json) = (Arc::clone(source.schema().inner()), json_columns(&source));
        let target = InsertTarget { database, stop, into: Arc::new(into), rows, json };
        let target = provider_as_source(Arc::new(target));
        LogicalPlan::Dml(DmlStatement::new(name, target, WriteOp::Insert(InsertOp::Append), source))
    }
}

#[async_trait]
impl TableProvider for InsertTarget {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.rows)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        internal_err!("the target of an INSERT cannot be read")
    }

    async fn insert_into(
        &self,
        _state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        _op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (database, stop, into) = (self.database.clone(), Arc::clone(&self.stop), Arc::clone(&self.into));
        let sink = InsertSink { database, stop, into, schema: input.schema(), json: self.json.clone() };
        Ok(Arc::new(DataSinkExec::new(input, Arc::new(sink), None)))
    }
}

/// Inserts the rows of a plan as one atomic batch.
#[derive(Debug)]
struct InsertSink {
    database: Database,
    stop: Arc<Flag>,
    into: Arc<Into>,
    schema: SchemaRef,
    json: Vec<bool>,
}

impl DisplayAs for InsertSink {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InsertSink: collection={}", self.into.collection())
    }
}

#[async_trait]
impl DataSink for InsertSink {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    async fn write_all(&self, data: SendableRecordBatchStream, _: &Arc<TaskContext>) -> Result<u64> {
        let batch = collect(data).await?;
        let failed = |e: QueryError| DataFusionError::External(Box::new(e));
        let (database, stop, name) = (self.database.clone(), Arc::clone(&self.stop), self.into.collection().to_owned());
        let stored = match self.into.as_ref() {
            Into::Series(into) => {
                let batch = insert_batch(into, &batch).map_err(failed)?;
                stop.write(database, move |db, stop| db.collection(&name)?.with_stop(stop).insert(&batch)).await
            }
            Into::Documents(into) => {
                let documents = documents_of(&batch, &into.columns, &self.json).map_err(failed)?;
                let conflict = into.conflict;
                stop.write(database, move |db, stop| db.documents(&name)?.with_stop(stop).store(documents, conflict))
                    .await
            }
        };
        stored.map_err(failed)
    }
}

/// All rows of an INSERT as one batch, since they are stored all at once or not at all. Fails as soon as they exceed
/// what one insert can hold.
async fn collect(mut rows: SendableRecordBatchStream) -> Result<RecordBatch> {
    let mut schema = rows.schema();
    let mut batches = Vec::new();
    let mut bytes = 0;
    while let Some(batch) = rows.try_next().await? {
        bytes += batch_bytes(&batch);
        if bytes > BATCH_BYTES_MAX {
            let what = format!(
                "the INSERT gives more than {BATCH_BYTES_MAX} bytes, which one statement cannot store at once: split it, \
                 by ranges of time for example; nothing was stored"
            );
            return Err(external(ebbtide::Error::new(Code::BSONObjectTooLarge, what)));
        }
        if batches.is_empty() {
            schema = batch.schema();
        }
        batches.push(batch);
    }
    Ok(concat_batches(&schema, &batches)?)
}

/// Stores rows whose columns are named as the fields of a collection.
pub(crate) fn insert_rows(collection: &Collection, rows: &RecordBatch) -> ebbtide::Result<u64> {
    let fields = rows.schema_ref().fields().iter();
    let columns: Vec<String> = fields.map(|field| field.name().clone()).collect();
    let schema = Arc::clone(collection.snapshot()?.schema());
    let insert = Insert { collection: String::new(), columns, schema };
    let rows = insert_batch(&insert, rows).map_err(|e| ebbtide::Error::new(e.code(), e.message()))?;
    collection.insert(&rows)
}

/// An INSERT into a collection, and the fields that its columns are stored in.
#[derive(Debug)]
pub(crate) struct Insert {
    collection: String,
    columns: Vec<String>,
    /// The collection's schema when the statement was planned.
    schema: Arc<Schema>,
}

impl Insert {
    /// The type of a column, if the collection has it.
    pub(crate) fn type_of(&self, at: usize) -> Option<DataType> {
        let arrow = self.schema.arrow();
        let field = arrow.field_with_name(self.columns.get(at)?).ok()?;
        Some(field.data_type().clone())
    }
}

/// Splits an INSERT into a collection into its target and its source; `None` for any other statement.
///
/// # Errors
/// [`Code::BadValue`] for forms of INSERT that only other databases have, and [`Code::TypeMismatch`] for numbers that
/// SQL would round before they are stored.
pub(crate) fn take_insert(
    statement: &ast::Statement,
    schema_of: impl Fn(&str) -> Option<Arc<Schema>>,
) -> QueryResult<Option<(Insert, Box<ast::Query>)>> {
    let Some((insert, with)) = insert_of(statement) else { return Ok(None) };
    let ast::TableObject::TableName(name) = &insert.table else { return Ok(None) };
    let Some(collection) = table_name(name) else { return Ok(None) };
    let Some(schema) = schema_of(&collection) else { return Ok(None) };
    refuse_unusual(insert)?;
    let mut columns: Vec<String> =
        insert.columns.iter().map(|c| c.0.last().and_then(part).unwrap_or_default()).collect();
    let mut source = source_of(insert, with)?;
    if columns.is_empty() {
        columns.push(schema.time.clone());
        columns.extend(schema.meta.clone());
        columns.extend(schema.fields.iter().map(|(name, _)| name.clone()));
    }
    let insert = Insert { collection, columns, schema };
    if let ast::SetExpr::Values(values) = source.body.as_mut() {
        check_values(&insert, values)?;
        for (at, name) in insert.columns.iter().enumerate() {
            if insert.is_time(name) {
                times_as_text(values, at);
            }
        }
    }
    Ok(Some((insert, source)))
}

/// Refuses the forms of INSERT that only other databases have.
fn refuse_unusual(insert: &ast::Insert) -> QueryResult<()> {
    let unusual = [
        (insert.overwrite, "INSERT OVERWRITE: measurements are only ever added; DELETE removes them"),
        (insert.replace_into, "REPLACE: measurements are only ever added; DELETE removes them"),
        (insert.or.is_some(), "INSERT OR ...: measurements are only ever added; DELETE removes them"),
        (insert.ignore, "INSERT IGNORE: measurements have no unique key"),
        (insert.on.is_some(), "ON CONFLICT: measurements have no unique key"),
    ];
    refuse_first(&unusual)?;
    refuse_other_forms(insert)
}

impl Insert {
    fn is_time(&self, name: &str) -> bool {
        name == self.schema.time || self.schema.field_type(name) == Some(&FieldType::Timestamp)
    }
}

/// Turns the times in a column of VALUES into text. `TIMESTAMP '...'` would be read in nanoseconds, which only reach
/// from 1677 to 2262; and a column of VALUES has a single type, also where text appears next to `now()`.
fn times_as_text(values: &mut ast::Values, at: usize) {
    let mut cells: Vec<&mut ast::Expr> = values.rows.iter_mut().filter_map(|row| row.content.get_mut(at)).collect();
    for cell in &mut cells {
        if let ast::Expr::TypedString(typed) = &**cell {
            **cell = ast::Expr::Value(typed.value.clone());
        }
    }
    let is_text = |cell: &ast::Expr| matches!(cell, ast::Expr::Value(value) if matches!(value.value, ast::Value::SingleQuotedString(_)));
    let is_null = |cell: &ast::Expr| matches!(cell, ast::Expr::Value(value) if value.value == ast::Value::Null);
    let is_number = |cell: &ast::Expr| number_text(cell).is_some();
    if !cells.iter().any(|cell| is_text(cell)) {
        return;
    }
    for cell in cells.into_iter().filter(|cell| !is_text(cell) && !is_null(cell) && !is_number(cell)) {
        let inner = std::mem::replace(cell, ast::Expr::Value(ast::Value::Null.into()));
        *cell = cast_of(inner, ast::DataType::Varchar(None));
    }
}

/// Refuses integers in VALUES that share a column with fractions and that a double cannot hold exactly: SQL gives a
/// column one type and would round them silently.
fn check_values(insert: &Insert, values: &ast::Values) -> QueryResult<()> {
    for (at, name) in insert.columns.iter().enumerate() {
        let numbers: Vec<Option<String>> =
            values.rows.iter().map(|row| row.content.get(at).and_then(number_text)).collect();
        if !numbers.iter().flatten().any(|text| text.contains(['.', 'e', 'E'])) {
            continue;
        }
        let is_rounded = |text: &&String| text.parse::<i64>().is_ok_and(|whole| !int_fits_double(whole));
        let mut rounded =
            numbers.iter().enumerate().filter_map(|(i, text)| Some((i, text.as_ref().filter(is_rounded)?)));
        if let Some((index, whole)) = rounded.next() {
            let message = format!(
                "index {index}: column '{name}': {whole} is in one column with fractions, and a double cannot hold it \
                 exactly"
            );
            return Err(QueryError::new(Code::TypeMismatch, message));
        }
    }
    Ok(())
}

/// The digits of a number literal, with its sign.
fn number_text(cell: &ast::Expr) -> Option<String> {
    match cell {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Number(digits, _) => Some(digits.clone()),
            _ => None,
        },
        ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => number_text(expr).map(|text| format!("-{text}")),
        _ => None,
    }
}

/// Gives the rows of an INSERT the names of its columns, and turns texts into times where the collection expects times.
fn insert_batch(insert: &Insert, batch: &RecordBatch) -> QueryResult<RecordBatch> {
    let schema = &insert.schema;
    let (column_count, named_count) = (batch.num_columns(), insert.columns.len());
    if column_count > named_count {
        let message = format!(
            "the rows have {column_count} columns, but only {named_count} are named ({}); name them all: INSERT INTO {} (...) ...",
            insert.columns.join(", "),
            insert.collection
        );
        return Err(QueryError::new(Code::BadValue, message));
    }
    let names = &insert.columns[..column_count];
    if let Some(twice) = names.iter().enumerate().find(|(i, n)| names[..*i].contains(n)).map(|(_, n)| n) {
        return Err(QueryError::new(Code::BadValue, format!("column '{twice}' is named twice")));
    }
    let columns: QueryResult<Vec<ArrayRef>> = names
        .iter()
        .zip(batch.columns())
        .map(|(name, column)| {
            if insert.is_time(name) && column.data_type().is_string() {
                times(column, name, schema.precision)
            } else {
                Ok(Arc::clone(column))
            }
        })
        .collect();
    let columns = columns?;
    let field = |(name, column): (&String, &ArrayRef)| Field::new(name, column.data_type().clone(), true);
    let fields: Vec<Field> = names.iter().zip(&columns).map(field).collect();
    Ok(RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), columns)?)
}

/// Parses texts as times in the collection's unit.
fn times(column: &ArrayRef, name: &str, precision: Precision) -> QueryResult<ArrayRef> {
    let texts = datafusion::arrow::compute::cast(column, &DataType::Utf8)?;
    let texts = texts.as_string::<i32>();
    let mut units: Vec<Option<i64>> = Vec::with_capacity(texts.len());
    for (index, text) in texts.iter().enumerate() {
        let Some(text) = text else {
            units.push(None);
            continue;
        };
        let time = Timestamp::parse(text)
            .map_err(|e| QueryError::new(Code::BadValue, format!("index {index}: column '{name}': {e}")))?;
        let stored = time.to_units(precision).ok_or_else(|| {
            let message = format!("index {index}: column '{name}': {time} is out of range for {}", precision.name());
            QueryError::new(Code::BadValue, message)
        })?;
        units.push(Some(stored));
    }
    Ok(timestamps(units, precision))
}

/// A condition on rows, for the engine's delete.
pub(crate) struct Condition {
    predicate: Option<Arc<dyn PhysicalExpr>>,
    schema: SchemaRef,
    bounds: (Option<i64>, Option<i64>),
    precision: Precision,
    /// Which metas can match; all if `None`.
    metas: Option<Arc<MetaPredicate>>,
    /// Whether it is nothing but a range of times and a condition on metas.
    is_of_meta_and_time: bool,
}

impl Condition {
    /// Compiles the condition of a DELETE from its plan before optimization.
    pub(crate) fn of(
        input: &LogicalPlan,
        collection: &CollectionSnapshot,
        state: &SessionState,
        now: Option<DateTime<Utc>>,
    ) -> QueryResult<Self> {
        let unsupported = |what: &str| QueryError::new(Code::BadValue, format!("not supported: DELETE with {what}"));
        let expr = match input {
            LogicalPlan::TableScan(_) => None,
            LogicalPlan::Filter(filter) if matches!(&*filter.input, LogicalPlan::TableScan(_)) => {
                Some(filter.predicate.clone())
            }
            LogicalPlan::Limit(_) => return Err(unsupported("LIMIT")),
            _ => return Err(unsupported("anything other than a condition on its own rows")),
        };
        let full = crate::scan_spec::table_schema(collection.schema());
        let mut condition = Condition {
            predicate: None,
            schema: Arc::new(ArrowSchema::empty()),
            bounds: (None, None),
            precision: collection.options().precision,
            metas: None,
            is_of_meta_and_time: true,
        };
        let Some(expr) = expr else { return Ok(condition) };
        if has_subquery(&expr) {
            return Err(unsupported("a subquery in its condition; SELECT the values first"));
        }
        let expr = unqualified(expr)?;
        let df_schema = DFSchema::try_from(full.as_ref().clone())?;
        let expr = as_in_plans(rewrite_expr(expr, &df_schema, now, state.config_options())?, &df_schema, state)?;
        let names = expr.column_refs();
        let fields: Vec<_> =
            full.fields().iter().filter(|f| names.iter().any(|c| c.name == *f.name())).cloned().collect();
        let schema = Arc::new(ArrowSchema::new(fields));
        let rules = PushdownRules { time: &collection.schema().time, meta: collection.schema().meta.as_deref() };
        let parts: Vec<Expr> = datafusion::logical_expr::utils::split_conjunction(&expr).into_iter().cloned().collect();
        let is_exact = |part: &Expr| rules.supports(part) == TableProviderFilterPushDown::Exact;
        condition.is_of_meta_and_time = parts.iter().all(is_exact);
        match rules.split(&parts, &full, state) {
            Ok(pushed) => (condition.bounds, condition.metas) = (pushed.time, pushed.meta),
            Err(_) => condition.is_of_meta_and_time = false,
        }
        let df_schema = df_schema_of(&schema)?;
        let simplifier = simplifier(&df_schema, now, state.config_options());
        let simple = simplifier.simplify(simplifier.coerce(expr, &df_schema)?)?;
        condition.predicate = Some(state.create_physical_expr(zeros_in_lists::with_both(simple)?, &df_schema)?);
        condition.schema = schema;
        Ok(condition)
    }
}

fn df_schema_of(schema: &SchemaRef) -> Result<DFSchema> {
    DFSchema::try_from(schema.as_ref().clone())
}

impl RowPredicate for Condition {
    fn columns(&self) -> Vec<String> {
        self.schema.fields().iter().map(|f| f.name().clone()).collect()
    }

    fn time_bounds(&self) -> (Option<Timestamp>, Option<Timestamp>) {
        let instant = |units: Option<i64>| units.map(|u| Timestamp::from_units(u, self.precision));
        (instant(self.bounds.0), instant(self.bounds.1))
    }

    fn is_of_meta_and_time(&self) -> bool {
        self.is_of_meta_and_time
    }

    fn select_metas(&self, metas: &ArrayRef) -> ebbtide::Result<BooleanArray> {
        match &self.metas {
            Some(predicate) => Ok(predicate.select(metas)?),
            None => Ok(BooleanArray::from(vec![true; metas.len()])),
        }
    }

    fn select(&self, batch: &RecordBatch) -> ebbtide::Result<BooleanArray> {
        let Some(predicate) = &self.predicate else { return Ok(BooleanArray::from(vec![true; batch.num_rows()])) };
        let fail = |message: String| ebbtide::Error::new(Code::BadValue, message);
        let column = |field: &Field| match field.data_type() {
            DataType::Null => Some(new_null_array(&DataType::Null, batch.num_rows())),
            _ => batch.column_by_name(field.name()).cloned(),
        };
        let columns: Option<Vec<ArrayRef>> = self.schema.fields().iter().map(|f| column(f)).collect();
        let columns = columns.ok_or_else(|| fail("a column of the condition no longer exists".to_owned()))?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(|e| fail(e.to_string()))?;
        let value = predicate.evaluate(&batch).and_then(|v| v.into_array(batch.num_rows()));
        let array = value.map_err(|e| fail(QueryError::from(e).to_string()))?;
        array
            .as_any()
            .downcast_ref::<BooleanArray>()
            .cloned()
            .ok_or_else(|| fail("the condition of DELETE is not a boolean".to_owned()))
    }
}
