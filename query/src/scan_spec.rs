//! What a statement asks the engine for: columns of a collection, with the filters that the engine applies.

use crate::error::external;
use crate::named_columns::NamedColumns;
use crate::options::text_filters;
use crate::pushdown::PushdownRules;
use datafusion::arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::{Result, exec_datafusion_err, exec_err};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder};
use ebbtide::{ArchiveFetched, CollectionSnapshot, ScanRequest, TimeRange};
use ebbtide_buckets::{Schema, to_usize};
use ebbtide_ttl::{Cutoff, ExpiryMode, Timestamp};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A scan of a collection, or the input of an aggregate.
#[derive(Debug)]
pub(crate) struct ScanSpec {
    pub(crate) snapshot: CollectionSnapshot,
    /// The columns as the plan expects them.
    pub(crate) schema: SchemaRef,
    pub(crate) request: ScanRequest,
    /// The condition on metas, as EXPLAIN shows it.
    pub(crate) metas: Option<String>,
    /// What had been fetched of archives when it was made, if it reads them.
    fetched: Option<ArchiveUse>,
}

/// What a statement fetches of archives: what all do, from its beginning to its end.
#[derive(Debug)]
struct ArchiveUse {
    all: Arc<ArchiveFetched>,
    counted: [AtomicU64; 3],
}

impl ArchiveUse {
    fn new(all: &Arc<ArchiveFetched>) -> ArchiveUse {
        ArchiveUse { all: Arc::clone(all), counted: ArchiveUse::now(all).map(AtomicU64::new) }
    }

    fn now(all: &ArchiveFetched) -> [u64; 3] {
        [all.requests(), all.bytes(), all.cached_bytes()]
    }

    /// Adds what was fetched since the last call.
    fn count(&self, metrics: &ExecutionPlanMetricsSet) {
        let names = ["archive_requests", "archive_bytes_fetched", "archive_bytes_cached"];
        for ((name, now), counted) in names.into_iter().zip(ArchiveUse::now(&self.all)).zip(&self.counted) {
            let before = counted.fetch_max(now, Ordering::Relaxed);
            MetricBuilder::new(metrics).global_counter(name).add(to_usize(now.saturating_sub(before)));
        }
    }
}

/// The collection that a plan reads, as it was when the plan was made.
#[derive(Debug, Clone)]
pub(crate) struct PlannedCollection {
    pub(crate) name: String,
    pub(crate) schema: Arc<Schema>,
    /// The columns that plans may use: all of them ([`table_schema`]), or those that the statement names.
    pub(crate) arrow: SchemaRef,
    archived: bool,
}

impl PlannedCollection {
    pub(crate) fn new(snapshot: &CollectionSnapshot, named: Option<&NamedColumns>) -> Self {
        let schema = Arc::clone(snapshot.schema());
        let arrow = with_meta(&schema, schema.arrow_of(|field| named.is_none_or(|named| named.contains(field))));
        PlannedCollection { name: snapshot.name().to_owned(), arrow, schema, archived: snapshot.fetched().is_some() }
    }

    /// The collection in a snapshot that may be newer than the plan; an error if it no longer exists.
    pub(crate) fn in_snapshot(&self, snapshot: &ebbtide::Snapshot) -> Result<CollectionSnapshot> {
        let collection = collection_in(snapshot, &self.name)?;
        if !self.archived {
            return Ok(collection);
        }
        let name = &self.name;
        if collection.archives().is_empty() {
            return exec_err!("collection '{name}' has no archive any more");
        }
        let archived = collection.archived_collection().map_err(external)?;
        archived.ok_or_else(|| {
            exec_datafusion_err!(
                "the archives of '{name}' have changed since the statement was prepared: prepare it in another session"
            )
        })
    }

    /// Whether it is what has expired of the collection, in its archives.
    pub(crate) fn is_archived(&self) -> bool {
        self.archived
    }

    pub(crate) fn rules(&self) -> PushdownRules<'_> {
        let meta = self.schema.meta_type.as_ref().and(self.schema.meta.as_deref());
        PushdownRules { time: &self.schema.time, meta }
    }
}

impl ScanSpec {
    /// A scan of these columns (all if `None`) with these filters, in a snapshot that may be newer than the plan.
    pub(crate) fn new(
        planned: &PlannedCollection,
        snapshot: CollectionSnapshot,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
    ) -> Result<Self> {
        if snapshot.schema().time != planned.schema.time || snapshot.schema().meta != planned.schema.meta {
            return exec_err!(
                "collection '{}' was dropped and re-created after the statement was prepared; prepare it again",
                planned.name
            );
        }
        let schema = match projection {
            Some(columns) => Arc::new(planned.arrow.project(columns)?),
            None => Arc::clone(&planned.arrow),
        };
        let untyped = |field: &Field| field.data_type() == &DataType::Null;
        if schema.fields().iter().any(|f| untyped(f)) && snapshot.schema().meta_type.is_some() {
            return exec_err!(
                "the meta field of collection '{}' had no value yet when the statement was prepared; prepare the statement \
                 or create its view again",
                planned.name
            );
        }
        let pushed = planned.rules().split(filters, &planned.arrow, state)?;
        let request = ScanRequest {
            projection: Some(schema.fields().iter().filter(|f| !untyped(f)).map(|f| f.name().clone()).collect()),
            time: TimeRange::of_units(pushed.time.0, pushed.time.1, snapshot.schema().precision),
            bounds: pushed.bounds,
            texts: if text_filters(state.config_options()) { pushed.texts } else { Vec::new() },
            first: None,
            meta: None,
            include_hidden: false,
        };
        let metas = pushed.meta.as_ref().map(|meta| meta.text.clone());
        let request = ScanRequest { meta: pushed.meta.map(|m| m as Arc<dyn ebbtide::MetaFilter>), ..request };
        let fetched = snapshot.fetched().map(ArchiveUse::new);
        Ok(ScanSpec { snapshot, schema, request, metas, fetched })
    }

    /// Counts what was fetched of archives, if it reads them.
    pub(crate) fn count_fetched(&self, metrics: &ExecutionPlanMetricsSet) {
        self.fetched.iter().for_each(|fetched| fetched.count(metrics));
    }

    /// The collection, the instant, and what each rule hides: `collection=w, now=..., hides=[collection: t <= ...]`.
    pub(crate) fn cutoffs(&self) -> String {
        let snapshot = &self.snapshot;
        let mut text = format!("collection={}, now={}", snapshot.name(), snapshot.now());
        let cuts = cutoffs(snapshot);
        if snapshot.fetched().is_some() {
            text.push_str(", what has expired");
        } else if let Some(count) = snapshot.suspended() {
            let s = if count == 1 { "" } else { "s" };
            text.push_str(&format!(", expiry=suspended by {count} measurement{s} out of range"));
        } else if snapshot.options().expiry == ExpiryMode::Bucket {
            text.push_str(", expiry=bucket, hides=[]");
        } else if !cuts.is_empty() {
            text.push_str(&format!(", hides=[{}]", cuts.join("; ")));
        }
        text
    }
}

/// [`ScanSpec::cutoffs`], and the filters that the engine applies.
impl fmt::Display for ScanSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cutoffs())?;
        if let Some(metas) = &self.metas {
            write!(f, ", meta=[{metas}]")?;
        }
        let time = self.request.time;
        if time != TimeRange::default() {
            let show = |t: Option<Timestamp>| t.map(|t| t.to_string()).unwrap_or_default();
            write!(f, ", time=[{}..{}]", show(time.first()), show(time.last()))?;
        }
        Ok(())
    }
}

/// What each rule hides now: `collection: t <= 2024-01-01T00:00:00Z`.
fn cutoffs(c: &CollectionSnapshot) -> Vec<String> {
    let options = c.options();
    if options.expiry == ExpiryMode::Bucket {
        return Vec::new();
    }
    let text = |view: ebbtide_ttl::RuleView<'_>| {
        let cut = Cutoff::new(c.now(), view.expire_after_seconds, options.precision).last_hidden()?;
        let cut = Timestamp::from_units(cut, options.precision);
        Some(format!("{}: {} <= {cut}", view.label(), options.time_field))
    };
    c.rules().iter().filter_map(text).collect()
}

/// The columns of a collection: those of its schema, and the meta field even while no value has given it a type.
pub(crate) fn table_schema(schema: &Schema) -> SchemaRef {
    with_meta(schema, schema.arrow())
}

/// Adds the meta field while it has no type.
fn with_meta(schema: &Schema, arrow: SchemaRef) -> SchemaRef {
    let (Some(meta), None) = (&schema.meta, &schema.meta_type) else { return arrow };
    let mut fields = arrow.fields().to_vec();
    fields.insert(1, Arc::new(Field::new(meta, DataType::Null, true)));
    Arc::new(ArrowSchema::new(fields))
}

/// The collection of a plan; an error if it no longer exists.
pub(crate) fn collection_in(snapshot: &ebbtide::Snapshot, name: &str) -> Result<CollectionSnapshot> {
    snapshot.collection(name).map_err(external)
}
