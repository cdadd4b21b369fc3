//! `archived('collection')`: what has expired and was moved to the collection's archives, and what is still stored here until it is.
//! It is read as the collection is, by the directories of its files; row by row by workers, and where
//! [`CollectionSnapshot::archived_collection`] returns nothing.

use super::table::{Batches, Call, CallTable, Rows, batches_of, only_collection};
#[cfg(feature = "workers")]
use crate::context::StatementContext;
use crate::error::external;
use crate::exec::conform;
use crate::provider::CollectionTable;
use crate::scan_spec::ScanSpec;
#[cfg(feature = "workers")]
use crate::workers::{Reads, shared_scan};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
#[cfg(feature = "workers")]
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};
use ebbtide::{ArchiveFetched, ArchivePart, ArchivedScan, CollectionSnapshot, Snapshot};
use ebbtide_buckets::to_usize;
use std::fmt;
use std::sync::Arc;

/// The table function.
#[derive(Debug)]
pub(super) struct Archived;

impl TableFunctionImpl for Archived {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let snapshot = only_collection(&args, "archived")?;
        with_archive(&snapshot)?;
        let by_rows = || CallTable(ArchivedCall(CollectionTable::new(&snapshot, None)));
        #[cfg(feature = "workers")]
        if StatementContext::of(args.session().config())?.workers().is_some() {
            return Ok(Arc::new(by_rows()));
        }
        match snapshot.archived_collection() {
            Ok(Some(archived)) => Ok(Arc::new(CollectionTable::new(&archived, None))),
            // A place that does not answer is reported by the plan, if that reads it.
            Ok(None) | Err(_) => Ok(Arc::new(by_rows())),
        }
    }
}

/// Whether a database has a collection of this name with an archive.
pub(super) fn has_archive(snapshot: &Snapshot, name: &str) -> bool {
    snapshot.collection(name).is_ok_and(|collection| !collection.archives().is_empty())
}

/// A collection that has an archive.
pub(super) fn with_archive(snapshot: &CollectionSnapshot) -> Result<&CollectionSnapshot> {
    if snapshot.archives().is_empty() {
        let name = snapshot.name();
        return plan_err!(
            "collection '{name}' has no archive: ALTER COLLECTION {name} EXPIRE AFTER 30 DAYS INTO 'URL' gives it one"
        );
    }
    Ok(snapshot)
}

/// The archived measurements of a collection.
#[derive(Debug)]
struct ArchivedCall(CollectionTable);

impl Call for ArchivedCall {
    type Rows = ArchivedRows;

    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    /// Conditions leave out files and parts of files, not single rows.
    fn supports(&self, filter: &Expr) -> TableProviderFilterPushDown {
        match self.0.planned.rules().supports(filter) {
            TableProviderFilterPushDown::Unsupported => TableProviderFilterPushDown::Unsupported,
            _ => TableProviderFilterPushDown::Inexact,
        }
    }

    #[cfg(feature = "workers")]
    fn shared(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        shared_scan(&self.0, Reads::Archived, state, (projection, filters), None).map(Some)
    }

    fn rows(&self, state: &dyn Session, projection: Option<&Vec<usize>>, filters: &[Expr]) -> Result<ArchivedRows> {
        let parts = state.config().target_partitions().max(1);
        Ok(ArchivedRows { spec: Arc::new(self.0.spec(state, projection, filters)?), parts })
    }
}

/// What has expired of a collection: what is still stored here, and then the archives.
#[derive(Debug)]
struct ArchivedRows {
    spec: Arc<ScanSpec>,
    parts: usize,
}

impl fmt::Display for ArchivedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spec.fmt(f)
    }
}

impl Rows for ArchivedRows {
    const LEAF: &'static str = "ArchivedExec";
    const EMISSION: EmissionType = EmissionType::Incremental;
    const WAITS: bool = true;

    fn schema(&self) -> &SchemaRef {
        &self.spec.schema
    }

    fn parts(&self) -> usize {
        self.parts
    }

    fn read(&self, part: usize, metrics: &ExecutionPlanMetricsSet) -> Result<Batches> {
        batches_of_archives(&self.spec, metrics, ArchivePart { number: part, of: self.parts }, true, |_| true)
    }
}

/// A part of what has expired of a collection: in the first, what is still stored here, if `has_stored`; and then row groups of the
/// files of archives that are chosen by their names.
pub(crate) fn batches_of_archives(
    spec: &Arc<ScanSpec>,
    metrics: &ExecutionPlanMetricsSet,
    part: ArchivePart,
    has_stored: bool,
    is_chosen: impl Fn(&str) -> bool + Send + 'static,
) -> Result<Batches> {
    let (spec, counts) = (Arc::clone(spec), Counts::new(metrics));
    let is_first = part.number == 0;
    let stored =
        if has_stored && is_first { spec.snapshot.unarchived(&spec.request).map_err(external)? } else { Vec::new() };
    let stored = stored.into_iter().flat_map(|unit| batches_of(unit.unit.read()));
    // The archives are asked when it is their turn.
    let archive = Arc::clone(&spec);
    let archived = std::iter::once_with(move || archive.snapshot.archived(&archive.request));
    let archived = archived.flat_map(move |scan| match scan {
        Ok(mut scan) => {
            scan.units.retain(|unit| is_chosen(&unit.file.name));
            if is_first {
                counts.files.add(scan.units.len());
                counts.files_skipped.add(to_usize(scan.files_skipped));
            }
            batches_of_archive(scan.part(part), counts.clone())
        }
        Err(error) => Box::new(std::iter::once(Err(external(error)))),
    });
    Ok(Box::new(stored.chain(archived).map(move |batch| conform(&batch?, &spec.schema))))
}

/// What `EXPLAIN ANALYZE` shows of an archive.
#[derive(Clone)]
struct Counts {
    files: Count,
    files_skipped: Count,
    requests: Count,
    bytes: Count,
    cached: Count,
}

impl Counts {
    fn new(metrics: &ExecutionPlanMetricsSet) -> Counts {
        let count = |name| MetricBuilder::new(metrics).counter(name, 0);
        Counts {
            files: count("archive_files"),
            files_skipped: count("archive_files_skipped"),
            requests: count("archive_requests"),
            bytes: count("archive_bytes_fetched"),
            cached: count("archive_bytes_cached"),
        }
    }
}

/// A scan of an archive under way: what it fetched is counted when it ends, wherever that is.
struct Fetching {
    counts: Counts,
    fetched: Arc<ArchiveFetched>,
}

impl Drop for Fetching {
    fn drop(&mut self) {
        self.counts.requests.add(to_usize(self.fetched.requests()));
        self.counts.bytes.add(to_usize(self.fetched.bytes()));
        self.counts.cached.add(to_usize(self.fetched.cached_bytes()));
    }
}

fn batches_of_archive(scan: ArchivedScan, counts: Counts) -> Batches {
    let fetching = Fetching { counts, fetched: scan.fetched };
    Box::new(scan.units.into_iter().flat_map(move |unit| {
        let _counted = &fetching;
        batches_of(unit.read())
    }))
}
