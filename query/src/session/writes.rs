//! INSERT, UPDATE and DELETE on collections; `PREPARE`, `EXECUTE` and `DEALLOCATE`.

use super::access::{self, Access};
use super::kept::{Prepared, Typed, parameter_number};
use super::rewrites::resolved;
use super::{Session, StatementStream};
use crate::context::StatementContext;
use crate::dml::{self, Condition};
use crate::documents::cells::PlannedDocuments;
use crate::documents::write as documents;
use crate::error::{QueryError, Result};
use crate::parsing::Failure;
use crate::prepared::parameter_types;
use crate::provider::count_batch;
use crate::sql::{Heading, parse_one};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::DataType;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{LogicalPlan, PlanType, ToStringifiedPlan};
use datafusion::physical_plan::execute_stream;
use datafusion::sql::parser::{ExplainStatement, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{self};
use datafusion::sql::sqlparser::tokenizer::TokenWithSpan;
use ebbtide::CollectionSnapshot;
use ebbtide_buckets::Schema;
use ebbtide_ttl::Code;
use futures::TryStreamExt;
use std::borrow::Cow;
use std::sync::Arc;

/// A parsed statement, and what is known of its text.
pub(super) struct ToRun<'a> {
    pub(super) parsed: DfStatement,
    pub(super) headings: Vec<Heading>,
    pub(super) tokens: Cow<'a, [TokenWithSpan]>,
}

impl Session {
    /// Keeps a statement that is being prepared, and returns `None`; replaces an EXECUTE by the statement that it runs.
    pub(super) async fn prepared<'a>(
        &self,
        parsed: DfStatement,
        (headings, tokens): (Vec<Heading>, &'a [TokenWithSpan]),
        context: &Arc<StatementContext>,
    ) -> Result<Option<ToRun<'a>>, Failure> {
        let tokens = Cow::Borrowed(tokens);
        let inner = match parsed {
            DfStatement::Statement(inner) => inner,
            DfStatement::Explain(mut explain) => {
                if let DfStatement::Statement(inner) = explain.statement.as_ref()
                    && let Some(typed) = self.executed(inner)?
                {
                    *explain.statement = DfStatement::Statement(Box::new(typed.statement));
                }
                return Ok(Some(ToRun { parsed: DfStatement::Explain(explain), headings, tokens }));
            }
            parsed => return Ok(Some(ToRun { parsed, headings, tokens })),
        };
        if let Some(Typed { statement, headings, tokens: kept }) = self.executed(&inner)? {
            // The values may name columns too.
            let tokens = [kept.as_slice(), &tokens].concat();
            let parsed = DfStatement::Statement(Box::new(statement));
            return Ok(Some(ToRun { parsed, headings, tokens: Cow::Owned(tokens) }));
        }
        match inner.as_ref() {
            ast::Statement::Prepare { name, data_types, statement } => {
                let typed = Typed {
                    statement: statement.as_ref().clone(),
                    headings: headings.clone(),
                    tokens: tokens.to_vec(),
                };
                let Some(prepared) = self.kept.keep(name, data_types, typed)? else {
                    if access::of_parsed(statement) != Access::Read {
                        let message = "not supported: PREPARE of this statement; it takes queries, INSERT and DELETE";
                        return Err(QueryError::new(Code::BadValue, message).into());
                    }
                    return Ok(Some(ToRun { parsed: DfStatement::Statement(inner), headings, tokens }));
                };
                let outcome = match prepared {
                    Prepared::Query => self.reserve(DfStatement::Statement(inner.clone()), context).await,
                    Prepared::Write => self.reserve_write(name, statement, context).await,
                };
                if outcome.is_err() {
                    self.kept.forget(name);
                }
                outcome.map(|()| None)
            }
            ast::Statement::Deallocate { name, .. } => {
                self.kept.forget(name);
                Ok(Some(ToRun { parsed: DfStatement::Statement(inner), headings, tokens }))
            }
            _ => Ok(Some(ToRun { parsed: DfStatement::Statement(inner), headings, tokens })),
        }
    }

    /// The statement that an EXECUTE runs, if it was kept.
    fn executed(&self, statement: &ast::Statement) -> Result<Option<Typed>> {
        match statement {
            ast::Statement::Execute { name: Some(name), parameters, .. } => self.kept.filled(name, parameters),
            _ => Ok(None),
        }
    }

    /// Checks a write that is being prepared, and reserves its name among DataFusion's prepared statements.
    async fn reserve_write(
        &self,
        name: &ast::Ident,
        write: &ast::Statement,
        context: &Arc<StatementContext>,
    ) -> Result<(), Failure> {
        let source = match documents::take_insert(write, |name| planned_of(context, name))? {
            Some((_, source)) => Some(source),
            None => dml::take_insert(write, |name| schema_of(context, name))?.map(|(_, source)| source),
        };
        let checked = source.map_or_else(|| write.clone(), ast::Statement::Query);
        self.state(context).statement_to_plan(DfStatement::Statement(Box::new(checked))).await?;
        self.reserve(parse_one(format!("PREPARE {name} AS SELECT 1").as_str(), 0)?, context).await
    }

    /// Gives a PREPARE to DataFusion, which checks it and keeps its name.
    async fn reserve(&self, prepare: DfStatement, context: &Arc<StatementContext>) -> Result<(), Failure> {
        let plan = self.state(context).statement_to_plan(prepare).await?;
        self.context.get()?.execute_logical_plan(plan).await?;
        Ok(())
    }

    /// Runs or explains an INSERT into a collection; `None` for any other statement.
    pub(super) async fn insert(
        &self,
        parsed: &DfStatement,
        context: &Arc<StatementContext>,
    ) -> Result<Option<StatementStream>, Failure> {
        let (inner, explain) = match parsed {
            DfStatement::Statement(inner) => (inner, None),
            DfStatement::Explain(explain) => match explain.statement.as_ref() {
                DfStatement::Statement(inner) => (inner, Some(explain)),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        let planned_of = |name: &str| planned_of(context, name);
        let (into, source) = match documents::take_insert(inner, planned_of)? {
            Some((insert, source)) => (dml::Into::Documents(insert), source),
            None => match dml::take_insert(inner, |name| schema_of(context, name))? {
                Some((insert, source)) => (dml::Into::Series(insert), source),
                None => return Ok(None),
            },
        };
        let state = self.state(context);
        let source = DfStatement::Statement(Box::new(ast::Statement::Query(source)));
        let target = (self.database.clone(), self.stop.of_statement());
        let into = |source| Arc::new(dml::InsertTarget::plan(target, into, source));
        let Some(explain) = explain else {
            let source = state.statement_to_plan(source).await?;
            let (now, config) = (context.now(), state.config_options());
            let source = resolved(source, now, config)?;
            let plan = Arc::unwrap_or_clone(into(Arc::new(source)));
            let physical = state.create_physical_plan(&plan).await?;
            let batches = execute_stream(physical, state.task_ctx())?;
            let schema = batches.schema();
            // The rows are stored before the result is returned, whether or not anybody reads the count.
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
        self.run_with(plan, state, context, &[]).await.map(Some)
    }

    pub(super) async fn delete(
        &self,
        collection: &CollectionSnapshot,
        input: &LogicalPlan,
        state: &SessionState,
        context: &Arc<StatementContext>,
    ) -> Result<StatementStream, Failure> {
        let condition = Condition::of(input, collection, state, context.now())?;
        let name = collection.name().to_owned();
        let deleted =
            self.write(move |db, stop| db.collection(&name)?.with_stop(stop).delete_where(&condition)).await?;
        Ok(StatementStream::batch(count_batch(deleted.measurements)?, None))
    }
}

impl Session {
    /// The types of `$1`, `$2` and so on in a statement that writes: of the columns that an INSERT puts them into, and of what a
    /// DELETE compares them with. `None` for those that it leaves open.
    pub async fn write_parameters(&self, statement: &crate::statement::Statement) -> Vec<Option<DataType>> {
        let mut types = vec![None; statement.parameter_count()];
        let context = self.begin();
        let Ok(stack) = crate::sql::stack_for(&statement.tokens) else { return types };
        let parsed = crate::sql::with_stack(stack, || crate::parsing::parse(statement, stack, &context));
        let Ok(DfStatement::Statement(inner)) = parsed.map(|parsed| parsed.statement) else { return types };
        if let Ok(Some((insert, source))) = dml::take_insert(&inner, |name| schema_of(&context, name)) {
            let ast::SetExpr::Values(values) = source.body.as_ref() else { return types };
            for (at, expr) in values.rows.iter().flat_map(|row| row.iter().enumerate()) {
                if let Some(kind) = parameter_number(expr).and_then(|number| types.get_mut(number - 1)) {
                    *kind = insert.type_of(at);
                }
            }
            return types;
        }
        let plan = self.state(&context).statement_to_plan(DfStatement::Statement(inner)).await;
        plan.and_then(|plan| parameter_types(&plan, types.len())).unwrap_or(types)
    }
}

impl Session {
    /// Runs an UPDATE of an ordinary collection; `None` for any other statement.
    pub(super) async fn update_documents(
        &self,
        parsed: &DfStatement,
        context: &Arc<StatementContext>,
    ) -> Result<Option<StatementStream>, Failure> {
        let DfStatement::Statement(inner) = parsed else { return Ok(None) };
        let Some((planned, names, select)) = documents::take_update(inner, |name| planned_of(context, name))? else {
            return Ok(None);
        };
        let state = self.state(context);
        let plan = state.statement_to_plan(parse_one(select.as_str(), 0)?).await?;
        let change = documents::Change::of(planned, &plan, Some(names), &state, context.now())?;
        let updated = self.write(move |db, stop| change.run(&db, stop)).await?;
        Ok(Some(StatementStream::batch(count_batch(updated)?, None)))
    }

    /// Runs a DELETE of an ordinary collection.
    pub(super) async fn delete_documents(
        &self,
        planned: PlannedDocuments,
        input: &LogicalPlan,
        state: &SessionState,
        context: &Arc<StatementContext>,
    ) -> Result<StatementStream, Failure> {
        let change = documents::Change::of(planned, input, None, state, context.now())?;
        let deleted = self.write(move |db, stop| change.run(&db, stop)).await?;
        Ok(StatementStream::batch(count_batch(deleted)?, None))
    }
}

/// The columns of an ordinary collection, if this is one.
pub(super) fn planned_of(context: &StatementContext, collection: &str) -> Option<PlannedDocuments> {
    Some(PlannedDocuments::new(&context.snapshot().documents(collection).ok()?))
}

fn schema_of(context: &StatementContext, collection: &str) -> Option<Arc<Schema>> {
    Some(Arc::clone(context.snapshot().collection(collection).ok()?.schema()))
}
