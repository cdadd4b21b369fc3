//! A collection as a table of DataFusion.
//!
//! The table keeps its name and schema, never data: each scan looks at the snapshot of the statement that is being
//! planned. So views and prepared statements see what is visible when they run, not when they were made.

use crate::catalog::{Current, Watched};
use crate::dml::DeleteSink;
use crate::error::external;
use crate::exec::BucketScanExec;
use crate::pushdown::Roles;
use async_trait::async_trait;
use datafusion::arrow::array::UInt64Array;
use datafusion::arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Result, exec_err, not_impl_err};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use ebbtide::{CollectionSnapshot, ScanRequest, ScanUnit};
use ebbtide_buckets::Schema;
use ebbtide_ttl::ExpiryMode;
use std::sync::{Arc, OnceLock};

/// A collection.
#[derive(Debug)]
pub(crate) struct CollectionTable {
    pub(crate) name: String,
    schema: Arc<Schema>,
    arrow: SchemaRef,
    current: Arc<Current>,
}

impl CollectionTable {
    pub(crate) fn new(name: &str, snapshot: &CollectionSnapshot, current: Arc<Current>) -> Self {
        let schema = Arc::clone(snapshot.schema());
        CollectionTable { name: name.to_owned(), arrow: table_schema(&schema), schema, current }
    }

    pub(crate) fn roles(&self) -> Roles<'_> {
        let meta = self.schema.meta_type.as_ref().and(self.schema.meta.as_deref());
        Roles { time: &self.schema.time, meta }
    }

    /// What the statement that is planned looks at.
    pub(crate) fn current(&self) -> &Current {
        &self.current
    }

    /// The schema, unless the collection has got another one since the table was made.
    pub(crate) fn schema_now(&self) -> Option<&Schema> {
        let snapshot = self.current.snapshot().collection(&self.name).ok()?;
        (*snapshot.schema() == self.schema).then_some(self.schema.as_ref())
    }

    /// The same table over the present snapshot for good.
    pub(crate) fn pinned(&self) -> Self {
        let (name, schema, arrow) = (self.name.clone(), Arc::clone(&self.schema), Arc::clone(&self.arrow));
        CollectionTable { name, schema, arrow, current: Arc::new(self.current.pinned()) }
    }

    /// What the engine is asked for by a scan of these columns under these filters.
    pub(crate) fn ask(&self, state: &dyn Session, projection: Option<&Vec<usize>>, filters: &[Expr]) -> Result<Asked> {
        let snapshot = self.current.snapshot().collection(&self.name).map_err(external)?;
        if snapshot.schema().time != self.schema.time || snapshot.schema().meta != self.schema.meta {
            return exec_err!("collection '{}' is another one than when the statement was prepared", self.name);
        }
        let schema = match projection {
            Some(columns) => Arc::new(self.arrow.project(columns)?),
            None => Arc::clone(&self.arrow),
        };
        let untyped = |field: &Field| field.data_type() == &DataType::Null;
        if schema.fields().iter().any(|f| untyped(f)) && snapshot.schema().meta_type.is_some() {
            return exec_err!(
                "the meta field of collection '{}' had no value yet when the statement was prepared; prepare it, or \
                 create its view, again",
                self.name
            );
        }
        let gathered = self.roles().gather(filters, &self.arrow, state)?;
        let cuts = describe(&snapshot);
        let mut label = cuts.clone();
        if let Some(meta) = &gathered.meta {
            label.push_str(&format!(", meta=[{}]", meta.text));
        }
        if gathered.time != (None, None) {
            let unit = self.schema.precision;
            let show =
                |t: Option<i64>| t.map(|t| ebbtide_ttl::Timestamp::from_units(t, unit).to_string()).unwrap_or_default();
            label.push_str(&format!(", time=[{}..{}]", show(gathered.time.0), show(gathered.time.1)));
        }
        let request = ScanRequest {
            projection: Some(schema.fields().iter().filter(|f| !untyped(f)).map(|f| f.name().clone()).collect()),
            time: gathered.time,
            meta: gathered.meta.map(|m| m as Arc<dyn ebbtide::MetaFilter>),
            bounds: gathered.bounds,
            include_hidden: false,
        };
        Ok(Asked { snapshot, schema, request, cuts, label, rest: Arc::default() })
    }
}

/// What the engine is asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) snapshot: CollectionSnapshot,
    pub(crate) schema: SchemaRef,
    pub(crate) request: ScanRequest,
    /// The cut-offs, for people; and with them the filters.
    cuts: String,
    pub(crate) label: String,
    /// What is read if the directory answers a part.
    pub(crate) rest: Arc<OnceLock<Vec<ScanUnit>>>,
}

impl Asked {
    /// The cut-offs, for people.
    pub(crate) fn cuts(&self) -> &str {
        &self.cuts
    }
}

/// The columns of a collection: those of its schema, and the meta field also while no value has given it a type.
pub(crate) fn table_schema(schema: &Schema) -> SchemaRef {
    let arrow = schema.arrow();
    let (Some(meta), None) = (&schema.meta, &schema.meta_type) else { return arrow };
    let mut fields = arrow.fields().to_vec();
    fields.insert(1, Arc::new(Field::new(meta, DataType::Null, true)));
    Arc::new(ArrowSchema::new(fields))
}

/// The cut-offs of a collection, for people: `now=..., hides=[collection: t <= ...; nyc: t <= ...]`.
fn describe(snapshot: &CollectionSnapshot) -> String {
    let mut text = format!("collection={}, now={}", snapshot.name(), snapshot.now());
    if let Some(count) = snapshot.suspended() {
        text.push_str(&format!(", expiry=suspended by {count} measurements out of range"));
        return text;
    }
    let cuts = crate::system::cutoffs(snapshot);
    if snapshot.options().expiry == ExpiryMode::Bucket {
        text.push_str(", expiry=bucket, hides=[]");
    } else if !cuts.is_empty() {
        text.push_str(&format!(", hides=[{}]", cuts.join("; ")));
    }
    text
}

#[async_trait]
impl TableProvider for CollectionTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.arrow)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let roles = self.roles();
        Ok(filters.iter().map(|f| roles.supports(f)).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let asked = self.ask(state, projection, filters)?;
        let (units, report) = asked.snapshot.scan_reported(&asked.request).map_err(external)?;
        self.current.note(|| Watched::scan(&asked.cuts, report, units.clone(), Arc::clone(&asked.rest)));
        let partitions = state.config().target_partitions();
        Ok(Arc::new(BucketScanExec::new(Arc::new(asked), units, report, limit, partitions)))
    }

    async fn insert_into(
        &self,
        _state: &dyn Session,
        _input: Arc<dyn ExecutionPlan>,
        _op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // DataFusion has cast the rows to this table's types by now: `dml` plans an INSERT before that.
        not_impl_err!(
            "this form of INSERT into a collection; write INSERT INTO {} (...) VALUES ... or SELECT ...",
            self.name
        )
    }

    async fn delete_from(&self, _state: &dyn Session, _filters: Vec<Expr>) -> Result<Arc<dyn ExecutionPlan>> {
        // DELETE itself goes past DataFusion's plans (see `dml`): this is what EXPLAIN shows of it, and it refuses to run.
        let schema = Arc::new(ArrowSchema::empty());
        let input = Arc::new(datafusion::physical_plan::empty::EmptyExec::new(Arc::clone(&schema)));
        let sink = DeleteSink { collection: self.name.clone(), schema };
        Ok(Arc::new(DataSinkExec::new(input, Arc::new(sink), None)))
    }

    async fn update(
        &self,
        _state: &dyn Session,
        _assignments: Vec<(String, Expr)>,
        _filters: Vec<Expr>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        not_impl_err!("UPDATE: measurements do not change; DELETE them and INSERT others")
    }

    async fn truncate(&self, _state: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        not_impl_err!("TRUNCATE: DELETE FROM {} removes every measurement", self.name)
    }
}

/// A batch that says how many rows something concerned.
pub(crate) fn count_batch(count: u64) -> Result<datafusion::arrow::array::RecordBatch> {
    let schema = Arc::new(ArrowSchema::new(vec![Field::new("count", DataType::UInt64, false)]));
    Ok(datafusion::arrow::array::RecordBatch::try_new(schema, vec![Arc::new(UInt64Array::from(vec![count]))])?)
}
