//! Views and tables that a session has created.

#[cfg(feature = "postgres")]
use datafusion::catalog::SchemaProvider;
use datafusion::catalog::TableProvider;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Views and tables that a session has created.
#[derive(Debug, Default)]
pub(crate) struct SessionTables {
    tables: RwLock<BTreeMap<String, Arc<dyn TableProvider>>>,
    changes: AtomicU64,
    /// The name of the catalog and the schema that PostgreSQL's clients ask, if the session is one of theirs.
    #[cfg(feature = "postgres")]
    pg_catalog: std::sync::OnceLock<(String, Arc<dyn SchemaProvider>)>,
}

impl SessionTables {
    pub(crate) fn names(&self) -> Vec<String> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn add_pg_catalog(&self, catalog: String, schema: Arc<dyn SchemaProvider>) {
        let _first = self.pg_catalog.set((catalog, schema));
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn pg_catalog(&self) -> Option<&(String, Arc<dyn SchemaProvider>)> {
        self.pg_catalog.get()
    }

    /// Number of times a table was created or removed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<String, Arc<dyn TableProvider>>) -> T) -> T {
        self.changes.fetch_add(1, Ordering::Relaxed);
        change(&mut self.tables.write().unwrap_or_else(PoisonError::into_inner))
    }
}
