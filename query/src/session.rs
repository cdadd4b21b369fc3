//! A session: one user's statements, one after the other, each over one snapshot.

mod own;
mod writes;

use crate::catalog::{CATALOG, COLLECTIONS, Collections, Current, SYSTEM, Stamp, SystemTables, Watched};
use crate::dml::{self, Condition};
use crate::error::{Explainer, QueryError, Result};
use crate::instants::{freeze_now, rewrite_plan};
use crate::options::EbbtideOptions;
use crate::planning::Planning;
use crate::prepared::{Template, check_query};
use crate::provider::count_batch;
use crate::statement::{self, Statement, StatementKind};
use crate::stoppable::{Stop, YieldingJoins};
use crate::{directory_aggregate, functions, system};
use chrono::{DateTime, Utc};
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, Fields, Schema as ArrowSchema, SchemaRef};
use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider};
use datafusion::common::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::context::SessionState;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::{DdlStatement, LogicalPlan, PlanType, ToStringifiedPlan, WriteOp};
use datafusion::physical_plan::{execute_stream, stream::RecordBatchStreamAdapter};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::{DFParserBuilder, ExplainStatement, Statement as DfStatement};
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Location, Token};
use ebbtide::{Database, Snapshot};
use ebbtide_buckets::Schema;
use ebbtide_ttl::{Code, Timestamp};
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use serde_json::{Value, json};
use std::cell::LazyCell;
use std::collections::HashSet;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use tracing::Instrument;

/// Default of [`SessionSettings::memory_bytes`]: a gibibyte.
pub const DEFAULT_MEMORY_BYTES: usize = 1 << 30;

/// How a session behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSettings {
    /// The instant at which statements look; each statement's own reading of the clock if none.
    pub now: Option<Timestamp>,
    /// Memory that one statement's sorts, joins and groups may take before they go to disk.
    /// Default: [`DEFAULT_MEMORY_BYTES`].
    pub memory_bytes: usize,
    /// Threads that one statement uses; one for each core if none.
    pub partitions: Option<usize>,
}

impl Default for SessionSettings {
    fn default() -> Self {
        SessionSettings { now: None, memory_bytes: DEFAULT_MEMORY_BYTES, partitions: None }
    }
}

/// What a statement gave.
#[derive(Debug, Clone)]
pub struct StatementResult {
    /// Columns; empty if the statement gives no rows.
    pub schema: SchemaRef,
    /// Rows.
    pub batches: Vec<RecordBatch>,
    /// What was done, for people.
    pub message: Option<String>,
}

impl StatementResult {
    /// Rows in all batches.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

/// What a statement is giving: its rows come as a stream.
pub struct StatementStream {
    /// Columns; empty if the statement gives no rows.
    pub schema: SchemaRef,
    /// Rows, if the statement gives any.
    pub stream: Option<SendableRecordBatchStream>,
    /// What was done, for people.
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

/// Runs statements against a database.
pub struct Session {
    context: SessionContext,
    current: Arc<Current>,
    now: Option<Timestamp>,
    /// Ends joins that give nothing back for long.
    stop: Stop,
    /// Planning looks at `current`: one statement plans at a time.
    planning: tokio::sync::Mutex<()>,
    planner: Planning,
    /// INSERT and DELETE that were prepared.
    writes: writes::Writes,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("now", &self.now).finish_non_exhaustive()
    }
}

impl Session {
    /// A session with every default.
    ///
    /// # Errors
    /// If DataFusion cannot be set up.
    pub fn new(database: Database) -> Result<Self> {
        Self::with_settings(database, &SessionSettings::default())
    }

    /// A session.
    ///
    /// # Errors
    /// If DataFusion cannot be set up.
    pub fn with_settings(database: Database, settings: &SessionSettings) -> Result<Self> {
        let mut config = SessionConfig::new()
            .with_information_schema(true)
            .with_create_default_catalog_and_schema(false)
            .with_default_catalog_and_schema(CATALOG, COLLECTIONS)
            .with_option_extension(EbbtideOptions::default());
        if let Some(partitions) = settings.partitions {
            config = config.with_target_partitions(partitions.max(1));
        }
        let pool = Arc::new(FairSpillPool::new(settings.memory_bytes));
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc()?;
        let mut rules = directory_aggregate::rules();
        let stop = Stop::default();
        rules.push(Arc::new(YieldingJoins(stop.clone())));
        let state = SessionStateBuilder::new().with_config(config).with_runtime_env(runtime).with_default_features();
        let state = state.with_physical_optimizer_rules(rules);
        let context = SessionContext::new_with_state(functions::with_planner(state).build());
        let current = Arc::new(Current::new(database));
        functions::register(&context, &current);
        let catalog = MemoryCatalogProvider::new();
        catalog.register_schema(COLLECTIONS, Arc::new(Collections::new(Arc::clone(&current))))?;
        catalog.register_schema(SYSTEM, Arc::new(SystemTables::new(Arc::clone(&current))))?;
        context.register_catalog(CATALOG, Arc::new(catalog));
        let planning = tokio::sync::Mutex::new(());
        Ok(Session {
            context,
            current,
            now: settings.now,
            stop,
            planning,
            planner: Planning::new(),
            writes: writes::Writes::default(),
        })
    }

    /// The database.
    #[must_use]
    pub fn database(&self) -> &Database {
        self.current.database()
    }

    /// Runs the one statement that `sql` holds.
    ///
    /// # Errors
    /// Whatever is wrong with the statement, with its place; nothing has been changed then.
    pub fn execute<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<StatementResult>> {
        Box::pin(async move {
            let mut statements = statement::parse(sql)?;
            match (statements.pop(), statements.len()) {
                (Some(statement), 0) => self.run(&statement, sql).await,
                (None, _) => Err(QueryError::new(Code::FailedToParse, "there is no statement")),
                (Some(_), more) => {
                    let message = format!("one statement is expected, there are {}", more + 1);
                    Err(QueryError::new(Code::FailedToParse, message))
                }
            }
        })
    }

    /// Runs a parsed statement of `text` and gathers its rows.
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

    /// Starts a parsed statement of `text`; its rows come as they are found.
    ///
    /// # Errors
    /// As for [`Session::execute`]; errors of execution come through the stream.
    pub fn start<'a>(&'a self, statement: &'a Statement, text: &'a str) -> BoxFuture<'a, Result<StatementStream>> {
        let span = tracing::debug_span!("query", statement = statement.text);
        let work = async move {
            let _planning = self.begin().await;
            match &statement.kind {
                StatementKind::Sql => self.sql(statement, text).await,
                StatementKind::Command { document, done, lenient } => self.command(document, done, *lenient).await,
                StatementKind::Show(listing) => self.show(listing).await,
                StatementKind::Describe(name) => self.describe(name, statement, text).await,
                StatementKind::ExplainExpiry { collection, at, proposed } => {
                    self.explain_expiry(collection, at.as_deref(), proposed)
                }
                StatementKind::Sweep => {
                    let report = self.blocking(|db| db.sweep()).await?;
                    let message = report.held.map(|held| format!("nothing was dropped: {held}"));
                    Ok(StatementStream::batch(system::sweep_row(&report.counts)?, message))
                }
                StatementKind::Flush => {
                    self.blocking(|db| db.flush()).await?;
                    Ok(StatementStream::message("open buckets are sealed"))
                }
                StatementKind::Compact(name) => {
                    let name = name.clone();
                    if let Some(name) = &name {
                        self.collection(name)?;
                    }
                    self.blocking(move |db| db.compact(name.as_deref())).await?;
                    Ok(StatementStream::message("compacted"))
                }
            }
        };
        Box::pin(work.instrument(span))
    }

    /// Waits until no other statement is planned, and looks at what there is.
    pub(crate) async fn begin(&self) -> tokio::sync::MutexGuard<'_, ()> {
        let planning = self.planning.lock().await;
        self.current.set(self.snapshot());
        planning
    }

    /// A snapshot of the database as a statement of this session would see it: at [`SessionSettings::now`], or now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let database = self.current.database();
        self.now.map_or_else(|| database.snapshot(), |now| database.snapshot_at(now))
    }

    /// Stops the running statement, from another thread.
    #[must_use]
    pub fn stop_handle(&self) -> Stop {
        self.stop.clone()
    }

    /// An error that the stream of [`start`](Self::start) returned, with the place in `text` where it can be told. `text`
    /// is the whole text that `statement` was parsed from.
    #[must_use]
    pub fn explain(&self, error: &DataFusionError, statement: &Statement, text: &str) -> QueryError {
        let explainer = Explainer {
            text,
            tokens: &statement.tokens,
            statement: &statement.text,
            line: statement.line,
            column: statement.column,
            tables: self.table_names(),
            functions: self.function_names(),
            members: self.member_names(),
        };
        explainer.explain(error)
    }

    /// Names of collections, views and tables.
    #[must_use]
    pub fn table_names(&self) -> Vec<String> {
        let catalog = self.context.catalog(CATALOG);
        catalog.and_then(|c| c.schema(COLLECTIONS)).map(|s| s.table_names()).unwrap_or_default()
    }

    /// Names of functions.
    #[must_use]
    pub fn function_names(&self) -> Vec<String> {
        let state = self.context.state();
        let mut names: Vec<String> = state.scalar_functions().keys().cloned().collect();
        names.extend(state.aggregate_functions().keys().cloned());
        names.extend(state.window_functions().keys().cloned());
        names.extend(functions::TABLE_FUNCTIONS.map(str::to_owned));
        names.retain(|name| name != functions::MARK);
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
        let snapshot = self.current.snapshot();
        let mut names = Vec::new();
        for collection in snapshot.collections().iter().filter_map(|name| snapshot.collection(name).ok()) {
            gather(collection.schema().arrow().fields(), 0, &mut names);
        }
        names
    }

    async fn sql(&self, statement: &Statement, text: &str) -> Result<StatementStream> {
        self.sql_inner(statement).await.map_err(|error| self.failed(error, statement, text))
    }

    pub(crate) fn failed(&self, error: Failure, statement: &Statement, text: &str) -> QueryError {
        match error {
            Failure::Plan(error) => self.explain(&error, statement, text),
            Failure::Query(error) => error,
        }
    }

    /// What a query that is read now is read against.
    pub(crate) fn stamp(&self) -> Stamp {
        self.current.stamp()
    }

    /// Reads a query that is to be run with values in its places.
    pub(crate) async fn template(&self, statement: &Statement) -> Result<Template, Failure> {
        let parsed = self.parse(statement)?;
        check_query(&parsed)?;
        let plan = self.state(chrono_time(self.current.snapshot().now())).statement_to_plan(parsed).await?;
        Template::new(plan, self.stamp())
    }

    /// A statement as DataFusion reads it.
    fn parse(&self, statement: &Statement) -> Result<DfStatement, Failure> {
        let parse = |sql: &str| -> Result<(DfStatement, bool), Failure> {
            let desugared = functions::desugar(sql).map_err(|e| Failure::Query(e.into()))?;
            Ok((parse_one(desugared.as_deref().unwrap_or(sql))?, desugared.is_some()))
        };
        let (parsed, desugared) = parse(&statement.text)?;
        // Looked for only where a word of SQL is a name with capitals too.
        let named = LazyCell::new(|| if desugared { HashSet::new() } else { places_of_names(&parsed) });
        let quoted = self.quote_mixed_case(statement, &|place| named.contains(&place));
        if quoted == statement.text { Ok(parsed) } else { Ok(parse(&quoted)?.0) }
    }

    async fn sql_inner(&self, statement: &Statement) -> Result<StatementStream, Failure> {
        let now = chrono_time(self.current.snapshot().now());
        let parsed = self.parse(statement)?;
        let Some(parsed) = self.prepared_write(parsed, now).await? else {
            return Ok(StatementStream::message("done"));
        };
        if let Some(stream) = self.insert(&parsed, now).await? {
            return Ok(stream);
        }
        if let DfStatement::Statement(inner) = &parsed {
            refuse_without_effect(inner)?;
        }
        let state = self.state(now);
        let plan = state.statement_to_plan(parsed).await?;
        let (plan, state) = match plan {
            LogicalPlan::Dml(dml) if dml.op == WriteOp::Delete && dml.table_name.table() != "" => {
                let name = dml.table_name.table().to_owned();
                if let Ok(collection) = self.current.snapshot().collection(&name)
                    && dml.table_name.schema().is_none_or(|s| s == COLLECTIONS)
                {
                    return self.delete(&collection, &dml.input, &state, now).await;
                }
                (LogicalPlan::Dml(dml), state)
            }
            LogicalPlan::Ddl(ddl) => {
                self.spare_collections(&ddl)?;
                // What a view selects stays as it is written: its instants are those of its readers.
                let now = if matches!(ddl, DdlStatement::CreateView(_)) { None } else { now };
                let mut plan = rewrite_plan(LogicalPlan::Ddl(ddl), now, state.config_options())?;
                if matches!(plan, LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(_))) {
                    plan = functions::rewrite(plan, now, state.config_options())?;
                    plan = freeze_now(plan, now, state.config_options())?;
                }
                self.context.execute_logical_plan(plan).await?;
                return Ok(StatementStream::message("done"));
            }
            LogicalPlan::Statement(inner) => {
                let plan = rewrite_plan(LogicalPlan::Statement(inner), None, state.config_options())?;
                let frame = self.context.execute_logical_plan(plan).await?;
                let (state, plan) = frame.into_parts();
                if matches!(plan, LogicalPlan::EmptyRelation(_)) {
                    return Ok(StatementStream::message("done"));
                }
                (plan, stamped(state, now))
            }
            plan => (plan, state),
        };
        self.run_with(plan, state, now).await
    }

    /// Runs a plan that has not been analysed, over the snapshot that was looked at last.
    pub(crate) async fn run_plan(&self, plan: LogicalPlan) -> Result<StatementStream, Failure> {
        let now = chrono_time(self.current.snapshot().now());
        self.run_with(plan, self.state(now), now).await
    }

    async fn run_with(
        &self,
        plan: LogicalPlan,
        state: SessionState,
        now: Option<DateTime<Utc>>,
    ) -> Result<StatementStream, Failure> {
        let plan = functions::rewrite(rewrite_plan(plan, now, state.config_options())?, now, state.config_options())?;
        let plan = functions::readable(plan)?;
        let schema = Arc::clone(plan.schema().inner());
        let analysed = matches!(plan, LogicalPlan::Analyze(_));
        let watch = || {
            if analysed {
                self.current.watch();
            }
        };
        watch();
        let (physical, context) = self.planner.plan(plan, state, watch).await?;
        let mut stream = execute_stream(physical, context)?;
        let watched = self.current.watched();
        if !watched.is_empty() {
            stream = with_hidden(stream, watched);
        }
        Ok(StatementStream { schema, stream: Some(stream), message: None })
    }

    /// DROP TABLE is for tables of the session; DataFusion would say that there is none of that name.
    fn spare_collections(&self, ddl: &DdlStatement) -> Result<()> {
        let name = match ddl {
            DdlStatement::DropTable(drop) => &drop.name,
            DdlStatement::DropView(drop) => &drop.name,
            _ => return Ok(()),
        };
        let ours = name.schema().is_none_or(|s| s == COLLECTIONS);
        if ours && self.current.snapshot().collection(name.table()).is_ok() {
            let message = format!("'{}' is a collection: DROP COLLECTION removes it with all it holds", name.table());
            return Err(QueryError::new(Code::BadValue, message));
        }
        Ok(())
    }

    /// The instant of [`SessionSettings::now`], if the session reads as of one.
    #[must_use]
    pub fn reads_at(&self) -> Option<Timestamp> {
        self.now
    }

    /// A state whose `now()` is the snapshot's.
    fn state(&self, now: Option<DateTime<Utc>>) -> SessionState {
        stamped(self.context.state(), now)
    }

    /// Keeps a write that is prepared (`None` then), and puts one that is executed in the place of its EXECUTE.
    async fn prepared_write(
        &self,
        parsed: DfStatement,
        now: Option<DateTime<Utc>>,
    ) -> Result<Option<DfStatement>, Failure> {
        let DfStatement::Statement(inner) = parsed else { return Ok(Some(parsed)) };
        match inner.as_ref() {
            ast::Statement::Prepare { name, data_types, statement } => {
                if !self.writes.keep(name, data_types, statement)? {
                    return Ok(Some(DfStatement::Statement(inner)));
                }
                let outcome = self.reserve(name, statement, now).await;
                if outcome.is_err() {
                    self.writes.forget(name);
                }
                outcome.map(|()| None)
            }
            ast::Statement::Execute { name: Some(name), parameters, .. } => {
                let filled = self.writes.filled(name, parameters)?;
                Ok(Some(DfStatement::Statement(filled.map_or(inner, Box::new))))
            }
            ast::Statement::Deallocate { name, .. } => {
                self.writes.forget(name);
                Ok(Some(DfStatement::Statement(inner)))
            }
            _ => Ok(Some(DfStatement::Statement(inner))),
        }
    }

    /// Checks a write that is being prepared, and takes its name among DataFusion's prepared statements.
    async fn reserve(
        &self,
        name: &ast::Ident,
        write: &ast::Statement,
        now: Option<DateTime<Utc>>,
    ) -> Result<(), Failure> {
        let state = self.state(now);
        let checked = match dml::take_insert(write, |name| self.schema_of(name))? {
            Some((_, source)) => ast::Statement::Query(source),
            None => write.clone(),
        };
        state.statement_to_plan(DfStatement::Statement(Box::new(checked))).await?;
        let reserved = state.statement_to_plan(parse_one(&format!("PREPARE {name} AS SELECT 1"))?).await?;
        self.context.execute_logical_plan(reserved).await?;
        Ok(())
    }

    fn schema_of(&self, collection: &str) -> Option<Arc<Schema>> {
        self.current.snapshot().collection(collection).ok().map(|c| Arc::clone(c.schema()))
    }

    /// Runs or explains an INSERT into a collection; `None` if the statement is another one.
    async fn insert(
        &self,
        parsed: &DfStatement,
        now: Option<DateTime<Utc>>,
    ) -> Result<Option<StatementStream>, Failure> {
        let (inner, explain) = match parsed {
            DfStatement::Statement(inner) => (inner, None),
            DfStatement::Explain(explain) => match explain.statement.as_ref() {
                DfStatement::Statement(inner) => (inner, Some(explain)),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        let Some((insert, source)) = dml::take_insert(inner, |name| self.schema_of(name))? else { return Ok(None) };
        let state = self.state(now);
        let source = DfStatement::Statement(Box::new(ast::Statement::Query(source)));
        let into = |source| Arc::new(dml::InsertTarget::plan(self.current.database().clone(), insert, source));
        let Some(explain) = explain else {
            let source = state.statement_to_plan(source).await?;
            let source =
                functions::rewrite(rewrite_plan(source, now, state.config_options())?, now, state.config_options())?;
            let plan = Arc::unwrap_or_clone(into(Arc::new(source)));
            let physical = state.create_physical_plan(&plan).await?;
            let batches = execute_stream(physical, state.task_ctx())?;
            let schema = batches.schema();
            // Stored before anything is told of it, whether or not somebody reads the count.
            let batches: Vec<RecordBatch> = batches.try_collect().await?;
            return Ok(Some(StatementStream::batch(
                concat_batches(&schema, &batches).map_err(QueryError::from)?,
                None,
            )));
        };
        let explained = ExplainStatement { options: explain.options.clone(), statement: Box::new(source) };
        let plan = match state.statement_to_plan(DfStatement::Explain(explained)).await? {
            LogicalPlan::Analyze(mut analyze) => {
                analyze.input = into(analyze.input);
                LogicalPlan::Analyze(analyze)
            }
            LogicalPlan::Explain(mut explain) => {
                explain.plan = into(explain.plan);
                explain.stringified_plans = vec![explain.plan.to_stringified(PlanType::InitialLogicalPlan)];
                LogicalPlan::Explain(explain)
            }
            other => other,
        };
        self.run_with(plan, state, now).await.map(Some)
    }

    async fn delete(
        &self,
        collection: &ebbtide::CollectionSnapshot,
        input: &LogicalPlan,
        state: &SessionState,
        now: Option<DateTime<Utc>>,
    ) -> Result<StatementStream, Failure> {
        let condition = Condition::of(input, collection, state, now)?;
        let name = collection.name().to_owned();
        let deleted = self.blocking(move |db| db.collection(&name)?.delete_where(&condition)).await?;
        Ok(StatementStream::batch(count_batch(deleted)?, None))
    }

    /// SQL folds bare words to lower case. A word that is exactly the name of a collection or column with capitals
    /// (`sensorId`) is quoted, so that one need not; one that SQL knows too (`DATE`) is where something is `named` or behind a point.
    fn quote_mixed_case(&self, statement: &Statement, named: &dyn Fn(Location) -> bool) -> String {
        let snapshot = self.current.snapshot();
        let mut names: Vec<String> = Vec::new();
        for name in snapshot.collections() {
            if let Ok(collection) = snapshot.collection(&name) {
                let schema = collection.schema();
                names.push(schema.time.clone());
                names.extend(schema.meta.clone());
                names.extend(schema.fields.iter().map(|(n, _)| n.clone()));
            }
            names.push(name);
        }
        names.retain(|n| n.chars().any(char::is_uppercase));
        if names.is_empty() {
            return statement.text.clone();
        }
        let mut lines: Vec<String> = statement.text.split('\n').map(str::to_owned).collect();
        for (at, token) in statement.tokens.iter().enumerate().rev() {
            let Token::Word(word) = &token.token else { continue };
            let next = statement.tokens.get(at + 1).map(|t| &t.token);
            let is_call = matches!(next, Some(Token::LParen | Token::SingleQuotedString(_)));
            let is_insert_target = at > 0 && is_keyword(&statement.tokens[at - 1].token, "INTO");
            if word.quote_style.is_some() || !names.contains(&word.value) || (is_call && !is_insert_target) {
                continue;
            }
            let is_member = at > 0 && statement.tokens[at - 1].token == Token::Period;
            if word.keyword != Keyword::NoKeyword && !is_member && !named(token.span.start) {
                continue;
            }
            let line = usize::try_from(token.span.start.line - 1).unwrap_or(usize::MAX);
            let column = usize::try_from(token.span.start.column - 1).unwrap_or(usize::MAX);
            let Some(text) = lines.get_mut(line) else { continue };
            let Some(start) = text.char_indices().nth(column).map(|(i, _)| i) else { continue };
            let end = start + word.value.len();
            if text.get(start..end) == Some(word.value.as_str()) {
                text.replace_range(start..end, &format!("\"{}\"", word.value));
            }
        }
        lines.join("\n")
    }
}

/// Where a statement names columns and tables.
fn places_of_names(statement: &DfStatement) -> HashSet<Location> {
    let inner = match statement {
        DfStatement::Statement(inner) => inner,
        DfStatement::Explain(explain) => return places_of_names(&explain.statement),
        _ => return HashSet::new(),
    };
    let mut places = HashSet::new();
    if let ast::Statement::Insert(insert) = inner.as_ref() {
        places.extend(insert.columns.iter().flat_map(|name| &name.0).filter_map(|part| part.as_ident()).map(start_of));
    }
    let _goes_on = ast::visit_relations(inner, |name| {
        places.extend(name.0.iter().filter_map(|part| part.as_ident()).map(start_of));
        ControlFlow::<()>::Continue(())
    });
    let _goes_on = ast::visit_expressions(inner, |expr| {
        match expr {
            ast::Expr::Identifier(name) => places.extend([start_of(name)]),
            ast::Expr::CompoundIdentifier(names) => places.extend(names.iter().map(start_of)),
            _ => {}
        }
        ControlFlow::<()>::Continue(())
    });
    places
}

fn start_of(name: &ast::Ident) -> Location {
    name.span.start
}

fn is_keyword(token: &Token, keyword: &str) -> bool {
    matches!(token, Token::Word(w) if w.value.eq_ignore_ascii_case(keyword))
}

/// Refuses what DataFusion would do for this session alone, or not at all, and call done.
fn refuse_without_effect(statement: &ast::Statement) -> Result<()> {
    let message = match statement {
        ast::Statement::CreateTable(create) if create.query.is_none() && !create.external => format!(
            "CREATE TABLE makes nothing that lasts: measurements are kept in collections, whose fields come with the \
             first insert; write CREATE COLLECTION {} WITH (timeField = 'time', metaField = 'sensor')",
            create.name
        ),
        ast::Statement::CreateIndex(_) => {
            "CREATE INDEX makes nothing: measurements are found by meta and time without \
                                           one; write CREATE TTL INDEX name ON collection (time) EXPIRE AFTER 1 DAY \
                                           WHERE meta = 'a' for a rule of expiry"
                .to_owned()
        }
        ast::Statement::CreateSchema { .. } | ast::Statement::CreateDatabase { .. } => {
            "collections have no schemas: a database is a folder, and --db names another one".to_owned()
        }
        ast::Statement::StartTransaction { .. } | ast::Statement::Commit { .. } | ast::Statement::Rollback { .. } => {
            "there are no transactions: an INSERT or a DELETE is stored as a whole by itself, and a query sees one \
             instant"
                .to_owned()
        }
        _ => return Ok(()),
    };
    Err(QueryError::new(Code::BadValue, message))
}

/// Ends what EXPLAIN ANALYZE gives with what expiry hid from each scan: a plan has no scan left in it where statistics
/// answered.
fn with_hidden(stream: SendableRecordBatchStream, scans: Vec<Watched>) -> SendableRecordBatchStream {
    let schema = stream.schema();
    let names = Arc::clone(&schema);
    let last = futures::stream::once(async move {
        let text = scans.iter().map(Watched::describe).collect::<Vec<_>>().join("\n");
        let cells: [ArrayRef; 2] =
            [Arc::new(StringArray::from(vec!["Hidden by TTL"])), Arc::new(StringArray::from(vec![text]))];
        Ok(RecordBatch::try_new(names, cells.to_vec())?)
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, stream.chain(last)))
}

/// Why planning or starting failed: by DataFusion, whose errors are still to be explained, or by us.
#[derive(Debug)]
pub(crate) enum Failure {
    Plan(DataFusionError),
    Query(QueryError),
}

impl From<DataFusionError> for Failure {
    fn from(error: DataFusionError) -> Self {
        Failure::Plan(error)
    }
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        Failure::Query(error)
    }
}

fn parse_one(sql: &str) -> Result<DfStatement, DataFusionError> {
    let dialect = GenericDialect {};
    let mut statements = DFParserBuilder::new(sql).with_dialect(&dialect).build()?.parse_statements()?;
    statements.pop_front().ok_or_else(|| DataFusionError::Plan("there is no statement".to_owned()))
}

fn stamped(mut state: SessionState, now: Option<DateTime<Utc>>) -> SessionState {
    state.mark_start_execution();
    if let Some(now) = now {
        state.execution_props_mut().query_execution_start_time = Some(now);
    }
    state
}

fn chrono_time(now: Timestamp) -> Option<DateTime<Utc>> {
    let seconds = i64::try_from(now.nanos().div_euclid(1_000_000_000)).ok()?;
    let nanos = u32::try_from(now.nanos().rem_euclid(1_000_000_000)).ok()?;
    DateTime::from_timestamp(seconds, nanos)
}

/// Runs the SQL of conformance cases.
impl Session {
    /// Rows of a statement as JSON objects by column name.
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
