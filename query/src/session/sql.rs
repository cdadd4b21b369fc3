//! SQL statements, from their text to a stream of rows.

use super::access::{self, Access};
use super::rewrites::{comparisons, resolved};
use super::statements::not_written;
use super::writes::{ToRun, planned_of};
use super::{Session, StatementStream};
use crate::context::{COLLECTIONS, StatementContext};
use crate::documents::cells::PlannedDocuments;
use crate::error::{QueryError, Result};
use crate::functions;
use crate::parsing::{Failure, parse};
use crate::planning::ReadsAtMost;
use crate::sql::{self, Heading, ParsedStatement};
use crate::statement::Statement;
use crate::timestamp_coercion::freeze_now;
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::TableReference;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{CreateMemoryTable, CreateView, DdlStatement, LogicalPlan, WriteOp};
use datafusion::physical_plan::{execute_stream, stream::RecordBatchStreamAdapter};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use ebbtide::{CollectionSnapshot, FileAccess, Replaces};
use ebbtide_ttl::Code;
use futures::StreamExt;
use std::path::Path;
use std::sync::Arc;

impl Session {
    pub(super) async fn sql(&self, statement: &Statement, text: &str) -> Result<StatementStream> {
        let stack = sql::stack_for(&statement.tokens)?.max(self.kept.stack());
        sql::on_stack(stack, Box::pin(self.sql_inner(statement, stack)))
            .await
            .map_err(|error| self.failed(error, statement, text))
    }

    pub(crate) fn failed(&self, error: Failure, statement: &Statement, text: &str) -> QueryError {
        match error {
            Failure::Plan(error) => self.explain(&error, statement, text),
            Failure::Query(error) => error,
        }
    }

    async fn sql_inner(&self, statement: &Statement, stack: usize) -> Result<StatementStream, Failure> {
        let context = self.begin();
        let ParsedStatement { statement: parsed, headings } = parse(statement, stack, &context)?;
        let mut parsed = parsed;
        check_files(&mut parsed, context.files())?;
        if context.is_of_several() && access::of_sql(&parsed) == Access::Write {
            return Err(not_written().into());
        }
        let text = (headings, statement.tokens.as_slice());
        let Some(ToRun { parsed, headings, tokens }) = self.prepared(parsed, text, &context).await? else {
            return Ok(StatementStream::message("done"));
        };
        if let Some(stream) = self.insert(&parsed, &context).await? {
            return Ok(stream);
        }
        if let Some(stream) = self.update_documents(&parsed, &context).await? {
            return Ok(stream);
        }
        if let DfStatement::Statement(inner) = &parsed {
            refuse_without_effect(inner)?;
        }
        let mut parsed = parsed;
        let temporary = take_temporary(&mut parsed);
        if let DfStatement::Explain(explain) = &mut parsed
            && sql::may_stand_for_columns(&tokens)
        {
            *explain.statement = self.with_columns(explain.statement.as_ref().clone(), &context).await?;
        }
        if is_query(&parsed) {
            let plan = self.query_to_plan(parsed, &tokens, &context).await?;
            return match plan {
                // SELECT INTO.
                LogicalPlan::Ddl(ddl) => self.create_or_drop(ddl, self.state(&context), &context).await,
                plan => self.run_plan(plan, &context, &headings).await,
            };
        }
        let state = self.state(&context);
        if let Some(explained) = sql::explained_in_words(&parsed, &tokens) {
            let plan = state.statement_to_plan(explained).await?;
            return self.in_words(plan, state, &context).await;
        }
        match state.statement_to_plan(parsed).await? {
            LogicalPlan::Dml(dml) if dml.op == WriteOp::Delete => match deleted_from(&dml.table_name, &context) {
                Some(collection) => self.delete(&collection, &dml.input, &state, &context).await,
                None => match documents_deleted_from(&dml.table_name, &context) {
                    Some(planned) => self.delete_documents(planned, &dml.input, &state, &context).await,
                    None => self.run_with(LogicalPlan::Dml(dml), state, &context, &[]).await,
                },
            },
            LogicalPlan::Ddl(ddl) => {
                spare_collections(&ddl, &context)?;
                if !temporary && let Some(done) = self.view(&ddl, statement, &context).await? {
                    return Ok(StatementStream::message(done));
                }
                self.create_or_drop(ddl, state, &context).await
            }
            LogicalPlan::Statement(inner) => {
                let plan = comparisons(LogicalPlan::Statement(inner), None, state.config_options())?;
                // Runs in the session's own context: settings and prepared statements outlive the statement.
                let (state, plan) = self.context.get()?.execute_logical_plan(plan).await?.into_parts();
                match plan {
                    LogicalPlan::EmptyRelation(_) => Ok(StatementStream::message("done")),
                    plan => self.run_with(plan, self.bind(state, &context), &context, &headings).await,
                }
            }
            plan => self.run_with(plan, state, &context, &headings).await,
        }
    }

    /// Keeps a view, or removes one, in the database; what was done, or `None` if the statement is about something else.
    async fn view(
        &self,
        ddl: &DdlStatement,
        statement: &Statement,
        context: &StatementContext,
    ) -> Result<Option<String>> {
        let known = |name: &str| context.view(name).is_some();
        match ddl {
            DdlStatement::CreateView(view) => {
                let name = view.name.table().to_owned();
                if context.reads_view(&name) {
                    let message = format!("view '{name}' cannot read itself");
                    return Err(QueryError::new(Code::BadValue, message));
                }
                let replaces = if view.or_replace { Replaces::View } else { Replaces::Nothing };
                let (text, done) = (statement.text.clone(), format!("view {name} created"));
                self.change(move |db| db.put_view(&name, &text, replaces)).await?;
                Ok(Some(done))
            }
            DdlStatement::DropView(drop) if known(drop.name.table()) => {
                let name = drop.name.table().to_owned();
                let done = format!("view {name} dropped");
                self.change(move |db| db.drop_view(&name)).await?;
                Ok(Some(done))
            }
            _ => Ok(None),
        }
    }

    async fn create_or_drop(
        &self,
        mut ddl: DdlStatement,
        state: SessionState,
        context: &StatementContext,
    ) -> Result<StatementStream, Failure> {
        if let DdlStatement::CreateView(CreateView { input, .. })
        | DdlStatement::CreateMemoryTable(CreateMemoryTable { input, .. }) = &mut ddl
        {
            *input = Arc::new(functions::each_once((**input).clone())?);
        }
        // A view keeps its text: `now()` in it is that of the statement that reads it.
        let now = if matches!(ddl, DdlStatement::CreateView(_)) { None } else { context.now() };
        let mut plan = comparisons(LogicalPlan::Ddl(ddl), now, state.config_options())?;
        if matches!(plan, LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(_))) {
            plan = functions::rewrite(plan, now, state.config_options())?;
            plan = freeze_now(plan, now, state.config_options())?;
        }
        let done = match &plan {
            LogicalPlan::Ddl(
                DdlStatement::CreateExternalTable(_) | DdlStatement::CreateMemoryTable(_) | DdlStatement::CreateView(_),
            ) => "done, for this session: it is gone when the session ends",
            _ => "done",
        };
        SessionContext::new_with_state(state).execute_logical_plan(plan).await?;
        Ok(StatementStream::message(done))
    }

    /// Runs a plan that has not been analyzed.
    pub(crate) async fn run_plan(
        &self,
        plan: LogicalPlan,
        context: &Arc<StatementContext>,
        headings: &[Heading],
    ) -> Result<StatementStream, Failure> {
        self.run_in(plan, context, (&context.config(), || self.state(context)), headings).await
    }

    /// Runs a plan that was [`optimized`](Self::optimized), and whose rows have these columns; `None` if it reads more
    /// than `at_most`.
    pub(crate) async fn run_optimized(
        &self,
        plan: LogicalPlan,
        columns: &SchemaRef,
        (context, config): (&Arc<StatementContext>, &SessionConfig),
        at_most: ReadsAtMost,
    ) -> Result<Option<StatementStream>, Failure> {
        let state = || self.state(context);
        let planned = self.planning.plan_optimized(plan, (context, config), state, at_most).await?;
        let Some((physical, task)) = planned else { return Ok(None) };
        let stream = execute_stream(physical, task)?;
        Ok(Some(StatementStream { schema: Arc::clone(columns), stream: Some(stream), message: None }))
    }

    /// A query that has not been analyzed, optimized without regard to what is stored, and the columns of its rows;
    /// `None` unless it is plain.
    pub(crate) fn optimized(
        &self,
        query: LogicalPlan,
        context: &Arc<StatementContext>,
        headings: &[Heading],
    ) -> Result<Option<(LogicalPlan, SchemaRef)>, Failure> {
        let config = context.config();
        let query = analyzed(query, context, &config, headings)?;
        let columns = Arc::clone(query.schema().inner());
        let plan = self.planning.optimized(query, context, &config)?;
        Ok(plan.map(|plan| {
            let columns = typed_as(columns, plan.schema().as_arrow());
            (plan, columns)
        }))
    }

    /// The columns of the rows of a plan that has not been analyzed.
    pub(crate) fn columns(
        &self,
        plan: LogicalPlan,
        context: &Arc<StatementContext>,
        headings: &[Heading],
    ) -> Result<SchemaRef, Failure> {
        let config = context.config();
        let plan = analyzed(plan, context, &config, headings)?;
        let columns = Arc::clone(plan.schema().inner());
        // Parameters without a type keep a plan from being analyzed.
        Ok(match self.planning.analyzed(plan, context, &config) {
            Ok(plan) => typed_as(columns, plan.schema().as_arrow()),
            Err(_) => columns,
        })
    }

    /// What a plan would do.
    async fn in_words(
        &self,
        plan: LogicalPlan,
        state: SessionState,
        context: &Arc<StatementContext>,
    ) -> Result<StatementStream, Failure> {
        let (now, config) = (context.now(), state.config_options());
        let plan = resolved(plan, now, config)?;
        let config = state.config().clone();
        let (physical, _) = self.planning.plan(plan, context, &config, || state).await?;
        Ok(StatementStream::batch(crate::words::explained(&physical)?, None))
    }

    pub(super) async fn run_with(
        &self,
        plan: LogicalPlan,
        state: SessionState,
        context: &Arc<StatementContext>,
        headings: &[Heading],
    ) -> Result<StatementStream, Failure> {
        let config = state.config().clone();
        self.run_in(plan, context, (&config, || state), headings).await
    }

    /// Runs a plan with this configuration, and a state that is only made if it is needed.
    async fn run_in(
        &self,
        plan: LogicalPlan,
        context: &Arc<StatementContext>,
        (config, state): (&SessionConfig, impl FnOnce() -> SessionState + Send),
        headings: &[Heading],
    ) -> Result<StatementStream, Failure> {
        let plan = analyzed(plan, context, config, headings)?;
        let schema = Arc::clone(plan.schema().inner());
        let is_analyze = matches!(plan, LogicalPlan::Analyze(_));
        let (physical, task) = self.planning.plan(plan, context, config, state).await?;
        let schema = typed_as(schema, &physical.schema());
        let mut stream = execute_stream(physical, task)?;
        if is_analyze {
            stream = with_hidden(stream, Arc::clone(context));
        }
        Ok(StatementStream { schema, stream: Some(stream), message: None })
    }
}

/// The columns of a plan with the types that analysis gave them: branches of CASE and inputs of UNION get a common one.
fn typed_as(columns: SchemaRef, analyzed: &Schema) -> SchemaRef {
    let types = || columns.fields().iter().zip(analyzed.fields());
    if columns.fields().len() != analyzed.fields().len() || types().all(|(a, b)| a.data_type() == b.data_type()) {
        return columns;
    }
    let fields = types().map(|(field, of)| field.as_ref().clone().with_data_type(of.data_type().clone()));
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), columns.metadata().clone()))
}

/// A plan with our own functions and times resolved, and columns that can be shown.
fn analyzed(
    plan: LogicalPlan,
    context: &StatementContext,
    config: &SessionConfig,
    headings: &[Heading],
) -> Result<LogicalPlan, Failure> {
    let (now, options) = (context.now(), config.options());
    let plan = resolved(plan, now, options)?;
    Ok(functions::readable(plan, headings)?)
}

/// Whether a statement is a query, and is not explained.
pub(crate) fn is_query(statement: &DfStatement) -> bool {
    matches!(statement, DfStatement::Statement(inner) if matches!(inner.as_ref(), ast::Statement::Query(_)))
}

/// The collection that a DELETE refers to; `None` if it is another table.
fn deleted_from(name: &TableReference, context: &StatementContext) -> Option<CollectionSnapshot> {
    let is_public = name.schema().is_none_or(|schema| schema == COLLECTIONS);
    context.snapshot().collection(name.table()).ok().filter(|_| is_public)
}

/// The ordinary collection that a DELETE refers to.
fn documents_deleted_from(name: &TableReference, context: &StatementContext) -> Option<PlannedDocuments> {
    let is_public = name.schema().is_none_or(|schema| schema == COLLECTIONS);
    planned_of(context, name.table()).filter(|_| is_public)
}

/// DROP TABLE is for tables of the session. DataFusion would say that no table of that name exists.
fn spare_collections(ddl: &DdlStatement, context: &StatementContext) -> Result<()> {
    let name = match ddl {
        DdlStatement::DropTable(drop) => &drop.name,
        DdlStatement::DropView(drop) => &drop.name,
        _ => return Ok(()),
    };
    let is_public = name.schema().is_none_or(|s| s == COLLECTIONS);
    if is_public && context.snapshots().any(|snapshot| snapshot.has_collection(name.table())) {
        let message = format!("'{}' is a collection: DROP COLLECTION removes it and everything in it", name.table());
        return Err(QueryError::new(Code::BadValue, message));
    }
    if matches!(ddl, DdlStatement::DropTable(_)) && is_public && context.view(name.table()).is_some() {
        let message = format!("'{}' is a view: DROP VIEW removes it", name.table());
        return Err(QueryError::new(Code::BadValue, message));
    }
    Ok(())
}

/// Refuses what a statement may not do with files, beside reading them as tables; the paths that it may use are those that were checked.
fn check_files(statement: &mut DfStatement, files: &FileAccess) -> Result<()> {
    let (what, paths) = match statement {
        DfStatement::CopyTo(copy) => ("COPY ... TO", std::slice::from_mut(&mut copy.target)),
        DfStatement::CreateExternalTable(table) => ("CREATE EXTERNAL TABLE", table.locations.as_mut_slice()),
        DfStatement::Explain(explain) => return check_files(&mut explain.statement, files),
        DfStatement::Statement(inner) => {
            let what = match inner.as_ref() {
                // Where statements that need more memory than there is keep their rows.
                ast::Statement::Set(set) if set.to_string().to_lowercase().contains("datafusion.runtime") => {
                    "SET datafusion.runtime"
                }
                ast::Statement::Copy { .. } => "COPY",
                _ => return Ok(()),
            };
            if files.is_unrestricted() {
                return Ok(());
            }
            let message = format!("{what} is not allowed in statements that come over the network");
            return Err(QueryError::new(Code::IllegalOperation, message));
        }
        _ => return Ok(()),
    };
    if !files.is_unrestricted() {
        for path in paths {
            *path = files.check(what, Path::new(path.as_str()))?.to_string_lossy().into_owned();
        }
    }
    Ok(())
}

/// Refuses statements that DataFusion would report as done although they have no effect, or none beyond this session.
fn refuse_without_effect(statement: &ast::Statement) -> Result<()> {
    let message = match statement {
        ast::Statement::CreateTable(create) if create.query.is_none() && !create.external => format!(
            "CREATE TABLE would not be stored: measurements are kept in collections, whose fields are created by the \
             first INSERT that has them; write CREATE COLLECTION {} WITH (timeField = 'time', metaField = 'sensor')",
            create.name
        ),
        ast::Statement::CreateSchema { .. } | ast::Statement::CreateDatabase { .. } => {
            "collections are not grouped into schemas or databases: a database is a folder; use --db to open another one".to_owned()
        }
        ast::Statement::StartTransaction { .. } | ast::Statement::Commit { .. } | ast::Statement::Rollback { .. } => {
            "there are no transactions: each INSERT and DELETE is atomic by itself, and a query sees one \
             instant"
                .to_owned()
        }
        _ => return Ok(()),
    };
    Err(QueryError::new(Code::BadValue, message))
}

/// Appends to the result of EXPLAIN ANALYZE what expiry hid from each scan: where statistics answered, the plan no
/// longer contains the scan.
fn with_hidden(stream: SendableRecordBatchStream, context: Arc<StatementContext>) -> SendableRecordBatchStream {
    let schema = stream.schema();
    let names = Arc::clone(&schema);
    let last = futures::stream::once(async move {
        context.trace().describe().map(|text| {
            let cells: [ArrayRef; 2] =
                [Arc::new(StringArray::from(vec!["Hidden by TTL"])), Arc::new(StringArray::from(vec![text]))];
            Ok(RecordBatch::try_new(names, cells.to_vec())?)
        })
    });
    let last = last.filter_map(std::future::ready);
    Box::pin(RecordBatchStreamAdapter::new(schema, stream.chain(last)))
}

/// Removes TEMPORARY from a statement that creates a table or a view, since DataFusion does not support it, and returns
/// whether it was there. What DataFusion creates belongs to the session anyway.
fn take_temporary(statement: &mut DfStatement) -> bool {
    let DfStatement::Statement(inner) = statement else { return false };
    match inner.as_mut() {
        ast::Statement::CreateTable(table) => std::mem::take(&mut table.temporary),
        ast::Statement::CreateView(view) => std::mem::take(&mut view.temporary),
        _ => false,
    }
}
