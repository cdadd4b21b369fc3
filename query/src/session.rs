//! A session: the statements of one user, one after the other, each over its own snapshot.

mod access;
mod create;
mod kept;
mod lookup;
mod rewrites;
mod short;
mod sql;
mod statements;
mod text_cache;
mod writes;

use crate::cancellation::{Stop, YieldingJoins};
use crate::catalog::{self, CatalogVersion, StatementCatalog};
use crate::context::{CATALOG, COLLECTIONS, StatementContext};
use crate::documents::cells::PlannedDocuments;
use crate::error::{Explainer, QueryError, Result};
use crate::filter_projections::SplitFilters;
use crate::first_rows::ScansOfFirstRows;
use crate::frames::FastFrames;
use crate::groups::HashGroups;
use crate::joined_metas::JoinsSelectMetas;
use crate::late_context::LateContext;
use crate::like::LikeInOrder;
use crate::options::EbbtideOptions;
use crate::planning::Planning;
use crate::session_tables::SessionTables;
use crate::sorted_runs::SortRuns;
use crate::statement::{self, Statement, StatementKind};
use crate::top_k_filter::TopKFilters;
use crate::{barriers, functions, system};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Fields, Schema as ArrowSchema, SchemaRef};
use datafusion::common::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::context::SessionState;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::{SessionConfig, SessionContext};
use ebbtide::{Database, FileAccess, Snapshot};
use ebbtide_ttl::{Code, Timestamp};
use futures::TryStreamExt;
use futures::future::BoxFuture;
use kept::KeptStatements;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use text_cache::TextCache;
use tracing::Instrument;

pub use access::{Access, changes_database, may_return_rows, returns_rows};
pub(crate) use sql::is_query;

/// Default of [`SessionSettings::memory_bytes`]: a gibibyte.
pub const DEFAULT_MEMORY_BYTES: usize = 1 << 30;

/// Settings of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSettings {
    /// The instant that statements read at and that `now()` returns. Default: `None`, each statement reads the clock.
    pub now: Option<Timestamp>,
    /// Bytes of memory that the sorts, joins and groups of the session's running statements may take together before
    /// they spill to disk. Default: [`DEFAULT_MEMORY_BYTES`].
    pub memory_bytes: usize,
    /// Number of threads that a statement uses, at least 1. Default: `None`, one for each core.
    pub partitions: Option<usize>,
    /// The files that statements may read and write by their paths: `FROM 'x.csv'`, `read_csv`, external tables, `COPY ... TO`,
    /// and folders as archives and published tables. A server restricts its clients to folders that its operator names. Default: all.
    pub files: FileAccess,
    /// The client of PostgreSQL's protocol that the session is for, if it is: it finds `pg_catalog` there. Default: `None`.
    #[cfg(feature = "postgres")]
    pub postgres: Option<crate::postgres::PostgresClient>,
    /// Machines that answer parts of the queries, if the database is a replica of a copy in a store. Default: `None`.
    #[cfg(feature = "workers")]
    pub workers: Option<crate::workers::Workers>,
}

/// Memory that the statements of several sessions share, for [`Session::sharing`].
#[derive(Debug, Clone)]
pub struct SharedMemory(Arc<RuntimeEnv>);

impl SharedMemory {
    /// So many bytes, which sorts, joins and groups take together before they spill to disk.
    ///
    /// # Errors
    /// If DataFusion cannot be set up.
    pub fn new(bytes: usize) -> Result<Self> {
        let pool = Arc::new(FairSpillPool::new(bytes));
        Ok(SharedMemory(RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc()?))
    }
}

impl Default for SessionSettings {
    fn default() -> Self {
        SessionSettings {
            now: None,
            memory_bytes: DEFAULT_MEMORY_BYTES,
            partitions: None,
            files: FileAccess::All,
            #[cfg(feature = "postgres")]
            postgres: None,
            #[cfg(feature = "workers")]
            workers: None,
        }
    }
}

/// The result of a statement, with all rows in memory.
#[derive(Debug, Clone)]
pub struct StatementResult {
    /// The columns; empty if the statement returns no rows.
    pub schema: SchemaRef,
    /// The rows.
    pub batches: Vec<RecordBatch>,
    /// What was done, as a message for people.
    pub message: Option<String>,
}

impl StatementResult {
    /// The number of rows in all batches.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

/// The result of a statement, with its rows as a stream.
pub struct StatementStream {
    /// The columns; empty if the statement returns no rows.
    pub schema: SchemaRef,
    /// The rows; `None` if the statement returns no rows.
    pub stream: Option<SendableRecordBatchStream>,
    /// What was done, as a message for people.
    pub message: Option<String>,
}

impl StatementStream {
    fn message(text: impl Into<String>) -> Self {
        StatementStream { schema: Arc::new(ArrowSchema::empty()), stream: None, message: Some(text.into()) }
    }

    fn batch(batch: RecordBatch, message: Option<String>) -> Self {
        let schema = batch.schema();
        let stream = futures::stream::once(async move { Ok(batch) });
        let stream: SendableRecordBatchStream = Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), stream));
        StatementStream { schema, stream: Some(stream), message }
    }
}

/// Runs SQL statements against a database, each over its own snapshot.
///
/// A session keeps settings (`SET`), prepared statements, and the views and tables that it created. Its calls need a
/// tokio runtime.
///
/// # Examples
///
/// ```
/// use ebbtide::Database;
/// use ebbtide_query::Session;
/// use ebbtide_query::output::{TableStyle, render};
///
/// # let folder = tempfile::tempdir()?;
/// # let runtime = tokio::runtime::Runtime::new()?;
/// # runtime.block_on(async {
/// let session = Session::new(Database::open(folder.path().join("weather"))?)?;
/// session.execute("CREATE COLLECTION w WITH (timeField = 't', metaField = 's') EXPIRE AFTER 7 DAYS").await?;
/// session.execute("INSERT INTO w (t, s, temp) VALUES (now(), 'roof', 21.5), (now(), 'yard', 19.0)").await?;
///
/// let result = session.execute("SELECT s, temp FROM w ORDER BY temp").await?;
/// assert_eq!(result.rows(), 2);
/// println!("{}", render(&result.schema, &result.batches, TableStyle::default()));
///
/// // An error has a code, and a message with the position of the mistake and a suggestion.
/// let error = session.execute("SELECT tmp FROM w").await.unwrap_err();
/// assert!(error.message().contains("did you mean 'temp'?"), "{error}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Session {
    context: Arc<LateContext>,
    database: Database,
    /// Further databases: a collection has the rows of all.
    others: Vec<Database>,
    tables: Arc<SessionTables>,
    now: Option<Timestamp>,
    files: FileAccess,
    /// Ends joins that return nothing for a long time.
    stop: Stop,
    planning: Planning,
    #[cfg(feature = "workers")]
    workers: Option<crate::workers::Workers>,
    /// Statements that PREPARE keeps.
    kept: KeptStatements,
    /// Queries that it has run.
    text_cache: TextCache,
    /// PostgreSQL's names of types, if it is for one of its clients.
    types: Option<Arc<dyn TypePlanner>>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("now", &self.now).field("text_cache", &self.text_cache).finish_non_exhaustive()
    }
}

impl Session {
    /// A session with default settings.
    ///
    /// # Errors
    /// If DataFusion cannot be set up.
    pub fn new(database: Database) -> Result<Self> {
        Self::with_settings(database, &SessionSettings::default())
    }

    /// A session with these settings.
    ///
    /// # Errors
    /// If DataFusion cannot be set up.
    pub fn with_settings(database: Database, settings: &SessionSettings) -> Result<Self> {
        Self::sharing(database, settings, &SharedMemory::new(settings.memory_bytes)?)
    }

    /// A session with these settings, and with memory that other sessions use too instead of
    /// [`SessionSettings::memory_bytes`].
    ///
    /// # Errors
    /// If DataFusion cannot be set up.
    pub fn sharing(database: Database, settings: &SessionSettings, memory: &SharedMemory) -> Result<Self> {
        let mut config = SessionConfig::new()
            .with_information_schema(true)
            .with_create_default_catalog_and_schema(false)
            .with_default_catalog_and_schema(CATALOG, COLLECTIONS)
            .with_option_extension(EbbtideOptions::default());
        // DataFusion pushes a limit below windows with the rows ahead that one of them needs; windows over windows need the sum.
        config.options_mut().optimizer.enable_window_limits = false;
        if let Some(partitions) = settings.partitions {
            config = config.with_target_partitions(partitions.max(1));
        }
        // `now()` is an instant there: a client would read a time without a zone as one of its own zone.
        #[cfg(feature = "postgres")]
        if settings.postgres.is_some() {
            config.options_mut().execution.time_zone = Some("UTC".to_owned());
        }
        let runtime = Arc::clone(&memory.0);
        let stop = Stop::default();
        let planning = Planning::new(Arc::clone(&runtime))?;
        let state = SessionStateBuilder::new().with_config(config).with_runtime_env(runtime).with_default_features();
        // Scans take conditions from logical plans. Pushed down once more, a condition on one side of an outer join may end at
        // the other side, if both have a column of that name.
        let mut rules = PhysicalOptimizer::new().rules;
        rules.retain(|rule| !rule.name().starts_with("FilterPushdown"));
        SplitFilters::add_to(&mut rules);
        barriers::add_to(&mut rules);
        rules.push(Arc::new(LikeInOrder));
        rules.push(Arc::new(JoinsSelectMetas));
        rules.push(Arc::new(ScansOfFirstRows));
        rules.push(Arc::new(YieldingJoins(stop.clone())));
        rules.push(Arc::new(TopKFilters));
        rules.push(Arc::new(FastFrames));
        rules.push(Arc::new(SortRuns));
        rules.push(Arc::new(HashGroups));
        let state = state.with_physical_optimizer_rules(rules);
        #[cfg(feature = "postgres")]
        let types = settings.postgres.as_ref().map(|_| crate::postgres::types());
        #[cfg(not(feature = "postgres"))]
        let types: Option<Arc<dyn TypePlanner>> = None;
        let state = match &types {
            Some(types) => state.with_type_planner(Arc::clone(types)),
            None => state,
        };
        let tables = Arc::default();
        #[cfg(feature = "postgres")]
        let postgres = settings.postgres.clone().map(|client| (client, database.clone(), Arc::clone(&tables)));
        let complete = move |context: &SessionContext| {
            functions::register(context)?;
            #[cfg(feature = "postgres")]
            if let Some((client, database, tables)) = &postgres {
                crate::postgres::register(context, database, tables, client)?;
            }
            Ok(())
        };
        let context = Arc::new(LateContext::new(functions::with_planner(state).build(), complete)?);
        let (now, files, kept) = (settings.now, settings.files.clone(), KeptStatements::default());
        Ok(Session {
            context,
            database,
            others: Vec::new(),
            tables,
            now,
            files,
            stop,
            planning,
            #[cfg(feature = "workers")]
            workers: settings.workers.clone(),
            kept,
            text_cache: TextCache::default(),
            types,
        })
    }

    /// A session that reads further databases too, such as the replicas of databases that each have some of the series. A
    /// collection has the rows and the columns of all databases; so do `latest()` and the other functions over collections, and the
    /// listings. All databases are read at the same instant.
    ///
    /// # Errors
    /// [`Code::InvalidOptions`] if one of the databases can be written to, or two are copies of one: its rows would count twice.
    pub fn beside(mut self, others: Vec<Database>) -> Result<Self> {
        let refused = |database: &Database, what: &str| {
            let replica = database.replica_status().map(|replica| replica.url);
            let name = replica.unwrap_or_else(|| database.path().display().to_string());
            QueryError::new(Code::InvalidOptions, format!("{name} {what}"))
        };
        for other in others {
            if let Some(written) = [&self.database, &other].into_iter().find(|database| !database.is_read_only()) {
                return Err(refused(
                    written,
                    "is open for writing: of several databases that are read as one, none may be",
                ));
            }
            if self.databases().any(|database| database.is_copy_of(&other)) {
                return Err(refused(
                    &other,
                    "is another copy of a database that is read already: its rows would count twice",
                ));
            }
            self.others.push(other);
        }
        Ok(self)
    }

    /// The database; if there are several, the first.
    #[must_use]
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Runs the one statement in `sql` and collects its rows in memory.
    ///
    /// # Errors
    /// What is wrong with the statement, and where; in that case nothing has been changed. [`Code::FailedToParse`]
    /// unless `sql` contains exactly one statement.
    pub fn execute<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<StatementResult>> {
        Box::pin(async move {
            let mut statements = statement::parse(sql)?;
            match (statements.pop(), statements.len()) {
                (Some(statement), 0) => self.run(&statement, sql).await,
                (None, _) => Err(QueryError::new(Code::FailedToParse, "there is no statement")),
                (Some(_), more) => {
                    let message = format!("expected one statement, found {}", more + 1);
                    Err(QueryError::new(Code::FailedToParse, message))
                }
            }
        })
    }

    /// Runs a parsed statement of `text` and collects its rows in memory.
    ///
    /// # Errors
    /// As for [`Session::execute`].
    pub fn run<'a>(&'a self, statement: &'a Statement, text: &'a str) -> BoxFuture<'a, Result<StatementResult>> {
        Box::pin(async move {
            let started = self.start(statement, text).await?;
            let batches = match started.stream {
                Some(stream) => stream.try_collect().await.map_err(|e| self.explain(&e, statement, text))?,
                None => Vec::new(),
            };
            Ok(StatementResult { schema: started.schema, batches, message: started.message })
        })
    }

    /// Starts a parsed statement of `text`; its rows are streamed as they are found.
    ///
    /// # Errors
    /// As for [`Session::execute`]; errors during execution are returned by the stream. [`Session::explain`] turns them
    /// into a [`QueryError`].
    pub fn start<'a>(&'a self, statement: &'a Statement, text: &'a str) -> BoxFuture<'a, Result<StatementStream>> {
        let span = tracing::debug_span!("query", statement = statement.text);
        let work = async move {
            if statement.kind.is_query() {
                self.check_clock()?;
            }
            match &statement.kind {
                StatementKind::Sql => match self.start_repeated(statement).await {
                    Some(started) => Ok(started),
                    None => self.sql(statement, text).await,
                },
                StatementKind::Command { document, done, lenient } => self.command(document, done, *lenient).await,
                StatementKind::Show(listing) => self.show(listing).await,
                StatementKind::CreateAs(create) => self.create_as(create, statement, text).await,
                StatementKind::Alter { collection, change } => self.alter(collection, change).await,
                StatementKind::Pivot(pivot) => self.pivot(pivot).await,
                StatementKind::Summarize(source) => self.summarize(source).await,
                StatementKind::Describe(name) => self.describe(name, statement, text).await,
                StatementKind::ExplainExpiry { collection, at, proposed } => {
                    self.explain_expiry(collection, at.as_deref(), proposed)
                }
                StatementKind::Sweep => {
                    let report = self.blocking(|db| db.sweep()).await?;
                    if let Some(held) = report.held {
                        return Err(statements::held_sweep(&held, report.counts.deleted_buckets));
                    }
                    Ok(StatementStream::batch(system::sweep_row(&report.counts)?, None))
                }
                StatementKind::Flush => {
                    self.blocking(|db| db.flush()).await?;
                    Ok(StatementStream::message("open buckets are sealed"))
                }
                StatementKind::Compact(name) => {
                    let name = name.clone();
                    if let Some(name) = &name {
                        self.must_exist(name)?;
                    }
                    self.blocking(move |db| db.compact(name.as_deref())).await?;
                    Ok(StatementStream::message("compacted"))
                }
            }
        };
        Box::pin(work.instrument(span))
    }

    /// A snapshot of the database, the first if there are several, as a statement of this session would see it: at [`SessionSettings::now`], or now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.now.map_or_else(|| self.database.snapshot(), |now| self.database.snapshot_at(now))
    }

    /// Checks that queries can run: the clock of this machine is not before 1970.
    pub(crate) fn check_clock(&self) -> Result<()> {
        self.context.check_clock()
    }

    /// The context of a statement that starts now.
    pub(crate) fn begin(&self) -> Arc<StatementContext> {
        let session = &self.context;
        let context = |database: &Database, snapshot: Snapshot| {
            #[cfg(feature = "workers")]
            let workers = self.workers.clone().filter(|_| snapshot.position().is_some());
            let context =
                StatementContext::new(database.clone(), snapshot, Arc::clone(session) as _, self.files.clone())
                    .with_tables(&self.tables);
            #[cfg(feature = "workers")]
            let context = context.with_workers(workers);
            context
        };
        let snapshot = self.snapshot();
        let others = self.others.iter().map(|other| context(other, other.snapshot_at(snapshot.now()))).collect();
        Arc::new(context(&self.database, snapshot).with_others(others))
    }

    /// All databases.
    fn databases(&self) -> impl Iterator<Item = &Database> {
        std::iter::once(&self.database).chain(&self.others)
    }

    /// Snapshots of all databases, as a statement of this session would see them: [`Session::snapshot`] is the first.
    #[must_use]
    pub fn snapshots(&self) -> Vec<Snapshot> {
        let first = self.snapshot();
        let others: Vec<Snapshot> = self.others.iter().map(|other| other.snapshot_at(first.now())).collect();
        std::iter::once(first).chain(others).collect()
    }

    /// The state that a statement is planned with: its catalog is the statement's snapshot, and its `now()` the
    /// snapshot's instant.
    pub(crate) fn state(&self, context: &Arc<StatementContext>) -> SessionState {
        self.bind(context.state(), context)
    }

    fn bind(&self, state: SessionState, context: &Arc<StatementContext>) -> SessionState {
        catalog::bind(state, context, &self.tables)
    }

    /// The version of the catalog that a query is planned against in this context.
    pub(crate) fn catalog_version(&self, context: &StatementContext) -> CatalogVersion {
        StatementCatalog::version(context, &self.tables)
    }

    /// A handle that stops the running statements from another thread.
    #[must_use]
    pub fn stop_handle(&self) -> Stop {
        self.stop.clone()
    }

    /// Converts an error from the stream of [`start`](Self::start), adding the place in `text` where it is known.
    /// `text` is the whole text that `statement` was parsed from.
    #[must_use]
    pub fn explain(&self, error: &DataFusionError, statement: &Statement, text: &str) -> QueryError {
        let explainer = Explainer {
            text,
            tokens: &statement.tokens,
            statement: &statement.text,
            line: statement.line,
            column: statement.column,
            tables: self.table_names(),
            system_tables: &system::TABLES,
            functions: self.function_names(),
            table_functions: self.context.state().table_functions().keys().cloned().collect(),
            members: self.member_names(),
        };
        explainer.explain(error)
    }

    /// Names of the collections, and of the views and tables of this session.
    #[must_use]
    pub fn table_names(&self) -> Vec<String> {
        let mut names = self.tables.names();
        names.extend(catalog::names_in(self.snapshots().iter()));
        names
    }

    /// Whether a statement of this session has created a view or a table of its own, even if that is gone.
    #[must_use]
    pub fn has_own_tables(&self) -> bool {
        self.tables.changes() > 0
    }

    /// Names of all functions, sorted.
    #[must_use]
    pub fn function_names(&self) -> Vec<String> {
        let state = self.context.state();
        let mut names: Vec<String> = state.scalar_functions().keys().cloned().collect();
        names.extend(state.aggregate_functions().keys().cloned());
        names.extend(state.window_functions().keys().cloned());
        names.extend(functions::TABLE_FUNCTIONS.map(str::to_owned));
        names.extend(crate::sql::calls().map(|(name, _)| name.to_owned()));
        names.retain(|name| !functions::INTERNAL.contains(&name.as_str()));
        names.sort();
        names.dedup();
        names
    }

    /// Names of the members of objects, at any depth.
    fn member_names(&self) -> Vec<String> {
        fn gather(fields: &Fields, depth: usize, names: &mut Vec<String>) {
            for field in fields {
                if depth > 0 {
                    names.push(field.name().clone());
                }
                if let DataType::Struct(inner) = field.data_type() {
                    gather(inner, depth + 1, names);
                }
            }
        }
        let mut names = Vec::new();
        for snapshot in self.snapshots() {
            for collection in snapshot.collections().iter().filter_map(|name| snapshot.collection(name).ok()) {
                gather(collection.schema().arrow().fields(), 0, &mut names);
            }
            for documents in snapshot.document_collections().iter().filter_map(|name| snapshot.documents(name).ok()) {
                gather(PlannedDocuments::new(&documents).arrow.fields(), 0, &mut names);
            }
        }
        names
    }

    /// The value of [`SessionSettings::now`]; `None` if each statement reads the clock.
    #[must_use]
    pub fn reads_at(&self) -> Option<Timestamp> {
        self.now
    }
}

#[cfg(test)]
impl Session {
    /// Makes the session of DataFusion anew.
    pub(crate) fn replace_context(&mut self, make: impl FnOnce(SessionState) -> LateContext) {
        self.context = Arc::new(make(self.context.state()));
    }
}

/// Used by conformance cases.
impl Session {
    /// Runs one statement and returns its rows as JSON objects, keyed by column name.
    ///
    /// # Errors
    /// As for [`Session::execute`].
    pub fn rows_as_json<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<Vec<Value>>> {
        Box::pin(async move {
            let result = self.execute(sql).await?;
            let mut rows = Vec::with_capacity(result.rows());
            for batch in &result.batches {
                rows.extend(crate::output::json_rows(batch)?);
            }
            Ok(rows.into_iter().map(|row| json!(row)).collect())
        })
    }
}
