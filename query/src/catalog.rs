//! The catalogue: collections of the present statement's snapshot, views and tables of the session, system tables.

use crate::provider::CollectionTable;
use crate::system::{SystemTable, TABLES};
use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::{Result, exec_err};
use ebbtide::{Database, ScanReport, ScanUnit, Snapshot};
use ebbtide_buckets::Schema;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// Name of the catalogue.
pub(crate) const CATALOG: &str = "db";
/// Schema of the collections.
pub(crate) const COLLECTIONS: &str = "public";
/// Schema of the system tables.
pub(crate) const SYSTEM: &str = "ebbtide";

/// The database, and the snapshot of the statement that is being planned.
pub(crate) struct Current {
    database: Database,
    snapshot: Mutex<Arc<Snapshot>>,
    /// Scans of a plan that is to be explained.
    watched: Mutex<Option<Vec<Watched>>>,
    /// How often the session has made or removed a view or a table.
    made: AtomicU64,
}

/// What a query was read against: as long as it is the same, the query reads the same.
#[derive(Debug, PartialEq)]
pub(crate) struct Stamp {
    made: u64,
    schemas: Vec<(String, Arc<Schema>)>,
}

/// What is read of a collection, and what expiry hid from it.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    /// The collection, the instant and the cut-offs.
    label: String,
    read: Read,
}

#[derive(Debug, Clone)]
enum Read {
    Scan {
        report: ScanReport,
        units: Vec<ScanUnit>,
        /// Read in place of `units` if the directory answers a part.
        rest: Arc<OnceLock<Vec<ScanUnit>>>,
    },
    Aggregate(Arc<Hidden>),
}

/// What expiry hid from an aggregate: as the engine says it, or the scan that was read in its place.
#[derive(Debug, Default)]
pub(crate) struct Hidden {
    pub(crate) report: OnceLock<ScanReport>,
    pub(crate) scan: OnceLock<Watched>,
}

impl Watched {
    pub(crate) fn scan(
        label: &str,
        report: ScanReport,
        units: Vec<ScanUnit>,
        rest: Arc<OnceLock<Vec<ScanUnit>>>,
    ) -> Self {
        Watched { label: label.to_owned(), read: Read::Scan { report, units, rest } }
    }

    pub(crate) fn aggregate(label: &str, hidden: Arc<Hidden>) -> Self {
        Watched { label: label.to_owned(), read: Read::Aggregate(hidden) }
    }

    /// Buckets and rows that were hidden; complete once the plan has run.
    fn hidden(&self) -> (u64, u64) {
        match &self.read {
            Read::Scan { report, units, rest } => {
                let read = rest.get().unwrap_or(units).iter().map(ScanUnit::rows_hidden).sum::<u64>();
                (report.buckets_hidden, report.rows_hidden + read)
            }
            Read::Aggregate(hidden) => match (hidden.scan.get(), hidden.report.get()) {
                (Some(scan), _) => scan.hidden(),
                (None, report) => report.map_or((0, 0), |r| (r.buckets_hidden, r.rows_hidden)),
            },
        }
    }

    pub(crate) fn describe(&self) -> String {
        let (buckets, rows) = self.hidden();
        format!("{}, buckets_hidden_by_ttl={buckets}, rows_hidden_by_ttl={rows}", self.label)
    }
}

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Current").finish_non_exhaustive()
    }
}

impl Current {
    pub(crate) fn new(database: Database) -> Self {
        let snapshot = Mutex::new(Arc::new(database.snapshot()));
        Current { database, snapshot, watched: Mutex::default(), made: AtomicU64::default() }
    }

    /// The same with the present snapshot for good.
    pub(crate) fn pinned(&self) -> Self {
        let snapshot = Mutex::new(self.snapshot());
        Current { database: self.database.clone(), snapshot, watched: Mutex::default(), made: AtomicU64::default() }
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn stamp(&self) -> Stamp {
        let snapshot = self.snapshot();
        let schema = |name: String| Some((Arc::clone(snapshot.collection(&name).ok()?.schema()), name));
        let schemas = snapshot.collections().into_iter().filter_map(schema).map(|(schema, name)| (name, schema));
        Stamp { made: self.made.load(Ordering::Relaxed), schemas: schemas.collect() }
    }

    /// From now on scans are gathered, for [`Current::watched`].
    pub(crate) fn watch(&self) {
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
    }

    /// The scans since [`Current::watch`]; no more are gathered.
    pub(crate) fn watched(&self) -> Vec<Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    }

    /// Gathers a scan, if scans are gathered.
    pub(crate) fn note(&self, scan: impl FnOnce() -> Watched) {
        if let Some(scans) = self.watched.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            scans.push(scan());
        }
    }

    pub(crate) fn set(&self, snapshot: Snapshot) {
        *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
    }
}

/// Collections, and what the session itself has made.
#[derive(Debug)]
pub(crate) struct Collections {
    current: Arc<Current>,
    made: RwLock<BTreeMap<String, Arc<dyn TableProvider>>>,
}

impl Collections {
    pub(crate) fn new(current: Arc<Current>) -> Self {
        Collections { current, made: RwLock::default() }
    }

    fn exists(&self, name: &str) -> bool {
        self.current.snapshot().collection(name).is_ok()
    }
}

#[async_trait]
impl SchemaProvider for Collections {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.current.snapshot().collections();
        names.extend(self.made.read().unwrap_or_else(PoisonError::into_inner).keys().cloned());
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Ok(collection) = self.current.snapshot().collection(name) {
            return Ok(Some(Arc::new(CollectionTable::new(name, &collection, Arc::clone(&self.current)))));
        }
        Ok(self.made.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned())
    }

    fn register_table(&self, name: String, table: Arc<dyn TableProvider>) -> Result<Option<Arc<dyn TableProvider>>> {
        if self.exists(&name) {
            return exec_err!("'{name}' is a collection already");
        }
        self.current.made.fetch_add(1, Ordering::Relaxed);
        Ok(self.made.write().unwrap_or_else(PoisonError::into_inner).insert(name, table))
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if self.exists(name) {
            return exec_err!("'{name}' is a collection: DROP COLLECTION removes it with all it holds");
        }
        self.current.made.fetch_add(1, Ordering::Relaxed);
        Ok(self.made.write().unwrap_or_else(PoisonError::into_inner).remove(name))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.exists(name) || self.made.read().unwrap_or_else(PoisonError::into_inner).contains_key(name)
    }
}

/// The system tables.
#[derive(Debug)]
pub(crate) struct SystemTables {
    current: Arc<Current>,
}

impl SystemTables {
    pub(crate) fn new(current: Arc<Current>) -> Self {
        SystemTables { current }
    }
}

#[async_trait]
impl SchemaProvider for SystemTables {
    fn table_names(&self) -> Vec<String> {
        TABLES.iter().map(|t| (*t).to_owned()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(name) = TABLES.iter().find(|t| **t == name) else { return Ok(None) };
        Ok(Some(Arc::new(SystemTable::new(name, Arc::clone(&self.current))?)))
    }

    fn table_exist(&self, name: &str) -> bool {
        TABLES.contains(&name)
    }
}
