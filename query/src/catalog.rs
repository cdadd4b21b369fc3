//! The catalog of one statement: the collections of its snapshot, the views and tables of its session, and the system
//! tables.

#[cfg(feature = "postgres")]
use crate::context::PG_CATALOG;
use crate::context::{CATALOG, COLLECTIONS, SYSTEM, StatementContext};
use crate::documents::table::DocumentsTable;
use crate::named_columns::NamedColumns;
use crate::provider::CollectionTable;
use crate::session_tables::SessionTables;
use crate::several::{Named, Part, together};
use crate::system::{SystemTable, TABLES};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::common::alias::AliasGenerator;
use datafusion::common::{Result, exec_err};
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::TableType;
use ebbtide::{DocumentColumns, Snapshot};
use ebbtide_buckets::Schema;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a query was planned against: while it stays equal, the plan stays valid.
#[derive(Debug, PartialEq)]
pub(crate) struct CatalogVersion {
    changes: u64,
    databases: Vec<DatabaseVersion>,
}

/// What there is in a database.
#[derive(Debug, PartialEq)]
struct DatabaseVersion {
    schemas: Vec<(String, Arc<Schema>)>,
    documents: Vec<(String, Arc<DocumentColumns>)>,
    views: Arc<BTreeMap<String, String>>,
}

impl DatabaseVersion {
    fn of(snapshot: &Snapshot) -> DatabaseVersion {
        let schema = |name: String| Some((Arc::clone(snapshot.collection(&name).ok()?.schema()), name));
        let schemas = snapshot.collections().into_iter().filter_map(schema).map(|(schema, name)| (name, schema));
        let planned = |name: String| Some((Arc::clone(snapshot.documents(&name).ok()?.columns()), name));
        let documents = snapshot.document_collections().into_iter().filter_map(planned);
        DatabaseVersion {
            documents: documents.map(|(columns, name)| (name, columns)).collect(),
            schemas: schemas.collect(),
            views: Arc::clone(snapshot.views()),
        }
    }
}

/// The catalog of a statement.
#[derive(Debug, Clone)]
pub(crate) struct StatementCatalog {
    collections: Arc<Collections>,
    system: Arc<SystemTables>,
}

impl StatementCatalog {
    pub(crate) fn new(context: &Arc<StatementContext>, tables: &Arc<SessionTables>) -> Self {
        let (context, tables) = (Arc::clone(context), Arc::clone(tables));
        let system = Arc::new(SystemTables { context: Arc::clone(&context) });
        StatementCatalog { collections: Arc::new(Collections { context, tables, named: None }), system }
    }

    /// With only those columns of collections that the statement names. Workers read columns by their number among all.
    pub(crate) fn naming(mut self, named: Option<Arc<NamedColumns>>) -> Self {
        #[cfg(feature = "workers")]
        let named = named.filter(|_| self.collections.context.workers().is_none());
        if named.is_some() {
            let Collections { context, tables, .. } = self.collections.as_ref();
            let (context, tables) = (Arc::clone(context), Arc::clone(tables));
            self.collections = Arc::new(Collections { context, tables, named });
        }
        self
    }

    /// The name that clients know it by.
    fn name(&self) -> &str {
        #[cfg(feature = "postgres")]
        if let Some((name, _)) = self.collections.tables.pg_catalog() {
            return name;
        }
        CATALOG
    }

    pub(crate) fn version(context: &StatementContext, tables: &SessionTables) -> CatalogVersion {
        CatalogVersion { changes: tables.changes(), databases: context.snapshots().map(DatabaseVersion::of).collect() }
    }
}

impl CatalogProviderList for StatementCatalog {
    fn register_catalog(&self, _: String, catalog: Arc<dyn CatalogProvider>) -> Option<Arc<dyn CatalogProvider>> {
        Some(catalog)
    }

    fn catalog_names(&self) -> Vec<String> {
        vec![self.name().to_owned()]
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        (name == CATALOG || name == self.name()).then(|| Arc::new(self.clone()) as _)
    }
}

impl CatalogProvider for StatementCatalog {
    fn schema_names(&self) -> Vec<String> {
        vec![COLLECTIONS.to_owned(), SYSTEM.to_owned()]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        match name {
            COLLECTIONS => Some(Arc::clone(&self.collections) as _),
            SYSTEM => Some(Arc::clone(&self.system) as _),
            #[cfg(feature = "postgres")]
            PG_CATALOG => self.collections.tables.pg_catalog().map(|(_, schema)| Arc::clone(schema)),
            _ => None,
        }
    }
}

/// A state that plans for a statement: its catalogue is of the statement's snapshot, and so is its `now()`.
pub(crate) fn bind(
    mut state: SessionState,
    context: &Arc<StatementContext>,
    tables: &Arc<SessionTables>,
) -> SessionState {
    state.config_mut().set_extension(Arc::clone(context));
    state.register_catalog_list(Arc::new(StatementCatalog::new(context, tables)));
    start(&mut state, context);
    state
}

/// Sets the instant of a state's `now()` to the statement's.
pub(crate) fn start(state: &mut SessionState, context: &StatementContext) {
    let options = Arc::clone(state.config_options());
    let props = state.execution_props_mut();
    // What `mark_start_execution` does, but for reading the clock of the machine, which may be before 1970.
    props.query_execution_start_time = Some(context.now().unwrap_or(DateTime::<Utc>::MAX_UTC));
    props.alias_generator = Arc::new(AliasGenerator::new());
    props.config_options = Some(options);
}

/// The names of the collections and views of databases.
pub(crate) fn names_in<'a>(snapshots: impl Iterator<Item = &'a Snapshot>) -> BTreeSet<String> {
    let names = |snapshot: &'a Snapshot| snapshot.all_collections().into_iter().chain(snapshot.views().keys().cloned());
    snapshots.flat_map(names).collect()
}

/// Collections, and the views and tables that the session created.
#[derive(Debug)]
struct Collections {
    context: Arc<StatementContext>,
    tables: Arc<SessionTables>,
    /// The columns that collections have here; all if there is none.
    named: Option<Arc<NamedColumns>>,
}

impl Collections {
    fn exists(&self, name: &str) -> bool {
        self.context.snapshots().any(|snapshot| snapshot.has_collection(name))
    }

    /// The collection of a database.
    fn collection(&self, snapshot: &Snapshot, name: &str) -> Option<Arc<dyn TableProvider>> {
        if let Ok(collection) = snapshot.collection(name) {
            return Some(Arc::new(CollectionTable::new(&collection, self.named.as_deref())));
        }
        snapshot.documents(name).ok().map(|documents| Arc::new(DocumentsTable::new(&documents)) as _)
    }

    /// The collection of all databases.
    fn collection_of_all(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if !self.context.is_of_several() {
            return Ok(self.collection(self.context.snapshot(), name));
        }
        let part = |snapshot: &Snapshot| {
            let table = self.collection(snapshot, name)?;
            Some(match snapshot.collection(name) {
                Ok(collection) => Part::of_collection(table, collection.schema()),
                Err(_) => Part::of_documents(table, snapshot.documents(name).ok()?.columns()),
            })
        };
        let parts: Vec<_> = self.context.snapshots().map(part).collect();
        if parts.iter().all(Option::is_none) {
            return Ok(None);
        }
        let (label, collection) = (name.to_owned(), name.to_owned());
        together(&Named { label, collection, has: Snapshot::has_collection }, parts).map(Some)
    }
}

#[async_trait]
impl SchemaProvider for Collections {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.tables.names();
        names.extend(names_in(self.context.snapshots()));
        names
    }

    /// Listings ask for this alone: a view whose collection is gone is listed all the same.
    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        if self.context.view(name).is_some() {
            return Ok(Some(TableType::View));
        }
        Ok(self.table(name).await?.map(|table| table.table_type()))
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(collection) = self.collection_of_all(name)? {
            return Ok(Some(collection));
        }
        if let Some(text) = self.context.view(name) {
            let state = bind(self.context.state(), &self.context, &self.tables);
            return crate::views::table(name, text, &self.context, &state).await.map(Some);
        }
        match self.tables.get(name) {
            Some(table) => Ok(Some(table)),
            None if !crate::files::is_file(name) => Ok(None),
            None => crate::files::table(name, self.context.files(), &self.context.state()).await,
        }
    }

    fn register_table(&self, name: String, table: Arc<dyn TableProvider>) -> Result<Option<Arc<dyn TableProvider>>> {
        if self.exists(&name) {
            return exec_err!("'{name}' already exists as a collection");
        }
        if self.context.view(&name).is_some() {
            return exec_err!("'{name}' is a view already");
        }
        Ok(self.tables.change(|tables| tables.insert(name, table)))
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if self.exists(name) {
            return exec_err!("'{name}' is a collection: DROP COLLECTION removes it and everything in it");
        }
        Ok(self.tables.change(|tables| tables.remove(name)))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.exists(name) || self.context.view(name).is_some() || self.tables.get(name).is_some()
    }
}

/// The system tables.
#[derive(Debug)]
struct SystemTables {
    context: Arc<StatementContext>,
}

#[async_trait]
impl SchemaProvider for SystemTables {
    fn table_names(&self) -> Vec<String> {
        TABLES.iter().map(|t| (*t).to_owned()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(name) = TABLES.iter().find(|t| **t == name) else { return Ok(None) };
        if !self.context.is_of_several() {
            return Ok(Some(Arc::new(SystemTable::new(name, &self.context)?)));
        }
        let of_one = |context: Arc<StatementContext>| SystemTable::new(name, &context);
        let mut tables = self.context.of_databases().map(of_one).collect::<Result<Vec<_>>>()?;
        SystemTable::share_unit(&mut tables);
        let parts = tables.into_iter().map(|table| Some(Part::new(Arc::new(table)))).collect();
        let (label, collection) = (format!("{SYSTEM}.{name}"), String::new());
        together(&Named { label, collection, has: |_, _| true }, parts).map(Some)
    }

    fn table_exist(&self, name: &str) -> bool {
        TABLES.contains(&name)
    }
}
