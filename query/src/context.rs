//! What one statement sees: a snapshot at one instant, and a trace of what it reads.
//!
//! The context travels through DataFusion as an extension of the session's configuration: from the catalog, which is
//! made for each statement, into plans and streams. The snapshot lives as long as they do, so an idle session keeps no
//! dropped file on disk.

use crate::scan_spec::ScanSpec;
use crate::session_tables::SessionTables;
use chrono::{DateTime, Utc};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::execution::context::SessionState;
use datafusion::prelude::{SessionConfig, SessionContext};
use ebbtide::{Database, FileAccess, ScanReport, Snapshot};
use ebbtide_ttl::Timestamp;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Name of the catalog.
pub(crate) const CATALOG: &str = "db";
/// Schema of the collections.
pub(crate) const COLLECTIONS: &str = "public";
/// Schema of the system tables.
pub(crate) const SYSTEM: &str = "ebbtide";
/// The name of the schema that PostgreSQL's clients ask.
#[cfg(feature = "postgres")]
pub(crate) const PG_CATALOG: &str = "pg_catalog";

/// What a statement sees, and where it records what it read.
pub(crate) struct StatementContext {
    database: Database,
    snapshot: Snapshot,
    /// Those of further databases, if the session reads several: from number 1.
    others: Vec<Arc<StatementContext>>,
    /// The number of the database, if the session reads several.
    #[cfg(feature = "workers")]
    number: usize,
    /// The session, for planning while the statement runs.
    session: Arc<dyn SessionSource>,
    /// What the session has created.
    tables: Arc<SessionTables>,
    /// Whether files may be read and written by their paths.
    files: FileAccess,
    trace: Arc<ScanTrace>,
    /// Machines that answer parts of the statement.
    #[cfg(feature = "workers")]
    workers: Option<crate::workers::Workers>,
    /// Views that are being read, one from within the other, and all that have been.
    views: Mutex<(Vec<String>, BTreeSet<String>)>,
}

/// A session of DataFusion as a trait object: proving that a future which holds a `SessionContext` is `Send` takes the compiler
/// seconds (see `at_once`).
pub(crate) trait SessionSource: Send + Sync {
    fn config(&self) -> SessionConfig;

    fn state(&self) -> SessionState;
}

impl SessionSource for SessionContext {
    fn config(&self) -> SessionConfig {
        self.copied_config()
    }

    fn state(&self) -> SessionState {
        SessionContext::state(self)
    }
}

impl fmt::Debug for StatementContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatementContext").field("now", &self.snapshot.now()).finish_non_exhaustive()
    }
}

impl StatementContext {
    pub(crate) fn new(
        database: Database,
        snapshot: Snapshot,
        session: Arc<dyn SessionSource>,
        files: FileAccess,
    ) -> Self {
        StatementContext {
            database,
            snapshot,
            others: Vec::new(),
            #[cfg(feature = "workers")]
            number: 0,
            session,
            tables: Arc::default(),
            files,
            trace: Arc::default(),
            #[cfg(feature = "workers")]
            workers: None,
            views: Mutex::default(),
        }
    }

    /// The same in a session that has created these tables.
    pub(crate) fn with_tables(mut self, tables: &Arc<SessionTables>) -> Self {
        self.tables = Arc::clone(tables);
        self
    }

    /// The same with machines that answer parts of it.
    #[cfg(feature = "workers")]
    pub(crate) fn with_workers(mut self, workers: Option<crate::workers::Workers>) -> Self {
        self.workers = workers;
        self
    }

    /// The same over further databases, which see their own snapshots.
    pub(crate) fn with_others(mut self, others: Vec<StatementContext>) -> Self {
        for other in others {
            let trace = Arc::clone(&self.trace);
            #[cfg(feature = "workers")]
            let other = StatementContext { number: self.others.len() + 1, ..other };
            self.others.push(Arc::new(StatementContext { trace, ..other }));
        }
        self
    }

    /// Whether the statement is over several databases.
    pub(crate) fn is_of_several(&self) -> bool {
        !self.others.is_empty()
    }

    /// The number of its own database.
    #[cfg(feature = "workers")]
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// The contexts of all databases, in the order of their numbers.
    pub(crate) fn of_databases(self: &Arc<Self>) -> impl Iterator<Item = Arc<Self>> {
        std::iter::once(self).chain(&self.others).map(Arc::clone)
    }

    /// The context of a database by its number.
    pub(crate) fn of_database(self: &Arc<Self>, number: usize) -> Result<Arc<Self>> {
        let found = self.of_databases().nth(number);
        found.ok_or_else(|| internal_datafusion_err!("the statement is not over {} databases", number + 1))
    }

    /// What the statement sees of all databases.
    pub(crate) fn snapshots(&self) -> impl Iterator<Item = &Snapshot> {
        std::iter::once(&self.snapshot).chain(self.others.iter().map(|other| &other.snapshot))
    }

    /// The text of a view: that of the first database which has one of this name.
    pub(crate) fn view(&self, name: &str) -> Option<&String> {
        self.snapshots().find_map(|snapshot| snapshot.views().get(name))
    }

    /// The columns of a table or a view that the session has created.
    pub(crate) fn session_table(&self, name: &str) -> Option<SchemaRef> {
        self.tables.get(name).map(|table| table.schema())
    }

    /// Machines that answer parts of the statement.
    #[cfg(feature = "workers")]
    pub(crate) fn workers(&self) -> Option<&crate::workers::Workers> {
        self.workers.as_ref()
    }

    /// Whether other machines answer parts of it.
    pub(crate) fn is_distributed(&self) -> bool {
        #[cfg(feature = "workers")]
        return self.workers.is_some();
        #[cfg(not(feature = "workers"))]
        return false;
    }

    /// The files that the statement may name.
    pub(crate) fn files(&self) -> &FileAccess {
        &self.files
    }

    /// The context of the statement that a configuration was made for.
    pub(crate) fn of(config: &SessionConfig) -> Result<Arc<Self>> {
        config
            .get_extension::<StatementContext>()
            .ok_or_else(|| internal_datafusion_err!("a collection is used outside a statement"))
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The value of `now()`; `None` if it is outside the range of chrono.
    pub(crate) fn now(&self) -> Option<DateTime<Utc>> {
        chrono_time(self.snapshot.now())
    }

    /// The session's configuration, with this context.
    pub(crate) fn config(self: &Arc<Self>) -> SessionConfig {
        self.session.config().with_extension(Arc::clone(self))
    }

    /// The session's state, planning for this statement.
    pub(crate) fn state(self: &Arc<Self>) -> SessionState {
        let mut state = self.session.state();
        state.config_mut().set_extension(Arc::clone(self));
        state
    }

    /// Notes that a view is being read; `false` if it is within itself.
    pub(crate) fn enter_view(&self, name: &str) -> bool {
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        if views.0.iter().any(|view| view == name) {
            return false;
        }
        views.0.push(name.to_owned());
        views.1.insert(name.to_owned());
        true
    }

    /// Notes that the view that was entered last has been read.
    pub(crate) fn leave_view(&self) {
        self.views.lock().unwrap_or_else(PoisonError::into_inner).0.pop();
    }

    /// Whether the statement reads a view.
    pub(crate) fn reads_view(&self, name: &str) -> bool {
        self.views.lock().unwrap_or_else(PoisonError::into_inner).1.contains(name)
    }

    pub(crate) fn trace(&self) -> &ScanTrace {
        &self.trace
    }
}

fn chrono_time(now: Timestamp) -> Option<DateTime<Utc>> {
    let seconds = i64::try_from(now.nanos().div_euclid(1_000_000_000)).ok()?;
    let nanos = u32::try_from(now.nanos().rem_euclid(1_000_000_000)).ok()?;
    DateTime::from_timestamp(seconds, nanos)
}

/// What a statement read from collections, and what expiry hid from it. Complete once the statement has run.
#[derive(Debug, Default)]
pub(crate) struct ScanTrace(Mutex<Vec<Arc<ScanRecord>>>);

/// One scan or aggregate of a collection.
#[derive(Debug)]
pub(crate) struct ScanRecord {
    spec: Arc<ScanSpec>,
    buckets_hidden: AtomicU64,
    rows_hidden: AtomicU64,
}

impl ScanTrace {
    /// Records that a collection is read.
    pub(crate) fn record(&self, spec: &Arc<ScanSpec>, report: &ScanReport) -> Arc<ScanRecord> {
        let record = Arc::new(ScanRecord {
            spec: Arc::clone(spec),
            buckets_hidden: AtomicU64::new(report.buckets_hidden),
            rows_hidden: AtomicU64::new(report.rows_hidden),
        });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&record));
        record
    }

    /// One line for each scan; `None` if no collection was read.
    pub(crate) fn describe(&self) -> Option<String> {
        let records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<String> = records.iter().map(|record| record.describe()).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

impl ScanRecord {
    /// Adds the number of rows that expiry hid in a unit that has been read.
    pub(crate) fn add_rows_hidden(&self, rows: u64) {
        self.rows_hidden.fetch_add(rows, Ordering::Relaxed);
    }

    fn describe(&self) -> String {
        let (buckets, rows) = (&self.buckets_hidden, &self.rows_hidden);
        format!(
            "{}, buckets_hidden_by_ttl={}, rows_hidden_by_ttl={}",
            self.spec.cutoffs(),
            buckets.load(Ordering::Relaxed),
            rows.load(Ordering::Relaxed)
        )
    }
}
