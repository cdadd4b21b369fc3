//! Prepared queries: parsed and checked once and run many times, each time over what is visible then.

mod generic;

use crate::catalog::CatalogVersion;
use crate::context::StatementContext;
use crate::error::{QueryError, Result};
use crate::options::fast_paths;
use crate::parsing::{self, Failure};
use crate::planning::ReadsAtMost;
use crate::session::{Session, StatementResult, StatementStream};
use crate::sql::{self, Heading, ParsedStatement};
use crate::statement::{Statement, StatementKind, parse};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::parser::Statement as DfStatement;
use ebbtide_ttl::Code;
use futures::TryStreamExt;
use futures::future::BoxFuture;
use generic::{GenericPlan, may_be_generic};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A query with parameters, `$1` and so on, made by [`Session::prepare`].
///
/// Each run takes its own snapshot: it sees what has been inserted since the last one, and nothing that has expired.
/// After the schema of a collection has changed, or a view has been replaced, the query is planned again.
///
/// A query that runs again is optimized once for all values of the same types, if its parameters are in conditions and
/// its plan does not depend on the values; otherwise it is optimized in each run.
///
/// # Examples
///
/// ```
/// use ebbtide::Database;
/// use ebbtide_query::{ScalarValue, Session};
///
/// # let folder = tempfile::tempdir()?;
/// # let runtime = tokio::runtime::Runtime::new()?;
/// # runtime.block_on(async {
/// let session = Session::new(Database::open(folder.path().join("weather"))?)?;
/// session.execute("CREATE COLLECTION w WITH (timeField = 't', metaField = 's')").await?;
/// session.execute("INSERT INTO w (t, s, temp) VALUES (now(), 'roof', 21.5), (now(), 'yard', 19.0)").await?;
///
/// let warmer = session.prepare("SELECT s FROM w WHERE temp > $1").await?;
/// assert_eq!(warmer.execute(&[ScalarValue::from(20.0)]).await?.rows(), 1);
/// assert_eq!(warmer.execute(&[ScalarValue::from(15.0)]).await?.rows(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PreparedStatement<'a> {
    session: &'a Session,
    query: PreparedQuery,
}

/// What [`PreparedStatement`] keeps beside its session, for those who keep both: made by [`Session::prepare_query`].
#[derive(Debug)]
pub struct PreparedQuery {
    text: String,
    statement: Statement,
    template: Mutex<Arc<Template>>,
}

/// A query before values are substituted.
#[derive(Debug)]
struct Template {
    plan: LogicalPlan,
    parameters: usize,
    /// The types that the query gives its parameters.
    types: Vec<Option<DataType>>,
    headings: Vec<Heading>,
    /// Bytes of stack that planning needs.
    stack: usize,
    /// The catalog that it was planned against.
    version: CatalogVersion,
    generic: Mutex<Generic>,
    /// Runs in sequence that were not short.
    long_runs: AtomicU32,
}

/// The runs for whose values a generic plan is looked for: not the first, since many queries are prepared and run once.
const RUNS_WITHOUT: Range<u32> = 1..3;
/// After this many runs in sequence that were not short, none is expected to be.
const LONG_RUNS: u32 = 3;

/// What is known of a query's generic plan.
#[derive(Debug)]
enum Generic {
    /// There was none for the values of this number of runs.
    Without(u32),
    Plan(Arc<GenericPlan>),
}

impl Template {
    /// From a plan that has not been analyzed.
    fn new(plan: LogicalPlan, headings: Vec<Heading>, stack: usize, version: CatalogVersion) -> Result<Self, Failure> {
        let names = plan.get_parameter_names()?;
        let parameters = names.len();
        match (1..=parameters).map(|n| format!("${n}")).find(|name| !names.contains(name)) {
            None => {
                // If a parameter has two types, nothing is known of any.
                let types = parameter_types(&plan, parameters).unwrap_or_default();
                // Deeply nested plans are dropped where there is not enough stack for them.
                let is_possible = sql::is_small(stack) && may_be_generic(&plan)?;
                let runs = if is_possible { 0 } else { RUNS_WITHOUT.end };
                let (generic, long_runs) = (Mutex::new(Generic::Without(runs)), AtomicU32::new(0));
                Ok(Template { plan, parameters, types, headings, stack, version, generic, long_runs })
            }
            Some(name) => {
                let message = format!("parameters must be numbered $1, $2, ... without gaps: {name} is missing");
                Err(QueryError::new(Code::FailedToParse, message).into())
            }
        }
    }
}

impl Template {
    async fn start(
        &self,
        session: &Session,
        values: &[ScalarValue],
        context: &Arc<StatementContext>,
    ) -> Result<StatementStream, Failure> {
        let config = context.config();
        let exact = self.in_types_of_columns(values);
        if let Some(generic) = self.generic_plan(session, &exact, context, config.options()) {
            let (plan, reads) = (generic.with_values(&exact)?, ReadsAtMost::Everything);
            if let Some(started) = session.run_optimized(plan, &generic.columns, (context, &config), reads).await? {
                return Ok(started);
            }
        }
        let plan = self.plan.clone().replace_params_with_values(&values.to_vec().into())?;
        session.run_plan(plan, context, &self.headings).await
    }

    /// Starts the query if its generic plan is known and reads little with these values.
    async fn start_short(
        &self,
        session: &Session,
        values: &[ScalarValue],
        context: &Arc<StatementContext>,
    ) -> Result<Option<StatementStream>, Failure> {
        let config = context.config();
        if self.long_runs.load(Ordering::Relaxed) >= LONG_RUNS || !is_local(context, config.options()) {
            return Ok(None);
        }
        let exact = self.in_types_of_columns(values);
        let known = self.known_plan().filter(|generic| generic.fits(&exact, config.options()));
        let Some(generic) = known else { return Ok(None) };
        let plan = generic.with_values(&exact)?;
        let started = session.run_optimized(plan, &generic.columns, (context, &config), ReadsAtMost::Little).await?;
        match &started {
            Some(_) => self.long_runs.store(0, Ordering::Relaxed),
            None => drop(self.long_runs.fetch_add(1, Ordering::Relaxed)),
        }
        Ok(started)
    }

    /// Whether this run is one for whose values a plan is looked for.
    fn looks_for_plan(&self, options: &Arc<ConfigOptions>) -> bool {
        let mut known = self.generic.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(&*known, Generic::Plan(plan) if !plan.has_settings(options)) {
            *known = Generic::Without(RUNS_WITHOUT.start);
        }
        match &mut *known {
            Generic::Without(runs) => {
                let looks = RUNS_WITHOUT.contains(runs);
                *runs = runs.saturating_add(1);
                looks
            }
            Generic::Plan(_) => false,
        }
    }

    fn known_plan(&self) -> Option<Arc<GenericPlan>> {
        match &*self.generic.lock().unwrap_or_else(PoisonError::into_inner) {
            Generic::Plan(generic) => Some(Arc::clone(generic)),
            Generic::Without(_) => None,
        }
    }

    /// The generic plan, if it fits these values.
    fn generic_plan(
        &self,
        session: &Session,
        values: &[ScalarValue],
        context: &Arc<StatementContext>,
        options: &Arc<ConfigOptions>,
    ) -> Option<Arc<GenericPlan>> {
        if !is_local(context, options) {
            return None;
        }
        if let Some(known) = self.known_plan().filter(|known| known.has_settings(options)) {
            return Some(known).filter(|known| known.fits(values, options));
        }
        if !self.looks_for_plan(options) {
            return None;
        }
        let optimize = |query| session.optimized(query, context, &self.headings);
        // Where the query is wrong, its plan for these values says so.
        let generic = Arc::new(GenericPlan::new(&self.plan, values, options, optimize).ok().flatten()?);
        *self.generic.lock().unwrap_or_else(PoisonError::into_inner) = Generic::Plan(Arc::clone(&generic));
        Some(generic)
    }

    /// The values, with texts and instants in the types of what they are compared with, if they are the same values then.
    fn in_types_of_columns<'v>(&self, values: &'v [ScalarValue]) -> Cow<'v, [ScalarValue]> {
        let is_instant = |kind: &DataType| matches!(kind, DataType::Timestamp(..));
        let mut exact = Cow::Borrowed(values);
        for (at, (value, kind)) in values.iter().zip(&self.types).enumerate() {
            let given = value.data_type();
            if let Some(kind) = kind
                && given != *kind
                && ((given.is_string() && kind.is_string()) || (is_instant(&given) && is_instant(kind)))
                && let Ok(converted) = value.cast_to(kind)
                && converted.cast_to(&given).is_ok_and(|back| back == *value)
            {
                exact.to_mut()[at] = converted;
            }
        }
        exact
    }
}

impl Session {
    /// Parses and checks one query, whose parameters are `$1`, `$2` and so on.
    ///
    /// # Errors
    /// What is wrong with the query, and where; [`Code::BadValue`] if it is not a query.
    pub async fn prepare(&self, sql: &str) -> Result<PreparedStatement<'_>> {
        let statement = match parse(sql)?.as_slice() {
            [one] if one.kind == StatementKind::Sql => one.clone(),
            _ => return Err(not_a_query()),
        };
        Ok(PreparedStatement { session: self, query: self.prepare_query(statement, sql).await? })
    }

    /// Checks a query that was parsed from `text`.
    ///
    /// # Errors
    /// As for [`Session::prepare`].
    pub async fn prepare_query(&self, statement: Statement, text: &str) -> Result<PreparedQuery> {
        let context = self.begin();
        let template = self.template(&statement, &context).await.map_err(|e| self.failed(e, &statement, text))?;
        Ok(PreparedQuery { text: text.to_owned(), statement, template: Mutex::new(Arc::new(template)) })
    }

    /// Plans a query with placeholders for its parameters.
    async fn template(&self, statement: &Statement, context: &Arc<StatementContext>) -> Result<Template, Failure> {
        let stack = sql::stack_for(&statement.tokens)?;
        sql::on_stack(stack, Box::pin(self.template_of(statement, stack, context))).await
    }

    async fn template_of(
        &self,
        statement: &Statement,
        stack: usize,
        context: &Arc<StatementContext>,
    ) -> Result<Template, Failure> {
        let tokens = &statement.tokens;
        let ParsedStatement { statement, headings } = parsing::parse(statement, stack, context)?;
        check_query(&statement)?;
        let plan = self.query_to_plan(statement, tokens, context).await?;
        Template::new(plan, headings, stack, self.catalog_version(context))
    }
}

impl PreparedStatement<'_> {
    /// Runs the query with these values for `$1`, `$2` and so on, and collects its rows in memory.
    ///
    /// # Errors
    /// [`Code::BadValue`] unless there is exactly one value per parameter; otherwise as for [`Session::execute`].
    pub fn execute<'b>(&'b self, values: &'b [ScalarValue]) -> BoxFuture<'b, Result<StatementResult>> {
        Box::pin(async move {
            let started = self.start(values).await?;
            let explain = |error| self.session.explain(&error, &self.query.statement, &self.query.text);
            let batches = match started.stream {
                Some(stream) => stream.try_collect().await.map_err(explain)?,
                None => Vec::new(),
            };
            Ok(StatementResult { schema: started.schema, batches, message: started.message })
        })
    }

    /// Starts the query with these values; its rows are streamed as they are found, as by [`Session::start`].
    ///
    /// # Errors
    /// As for [`PreparedStatement::execute`]; errors during execution are returned by the stream.
    pub fn start<'b>(&'b self, values: &'b [ScalarValue]) -> BoxFuture<'b, Result<StatementStream>> {
        self.query.start(self.session, values)
    }
}

impl PreparedQuery {
    /// Starts the query in the session that made it, as [`PreparedStatement::start`] does.
    ///
    /// # Errors
    /// As for [`PreparedStatement::start`].
    pub fn start<'b>(
        &'b self,
        session: &'b Session,
        values: &'b [ScalarValue],
    ) -> BoxFuture<'b, Result<StatementStream>> {
        Box::pin(async move {
            let explain = |error| session.failed(error, &self.statement, &self.text);
            let context = session.begin();
            let template = self.template(session, &context).await.map_err(explain)?;
            if values.len() != template.parameters {
                let (parameters, given) = (template.parameters, values.len());
                let message = format!("wrong number of values for the parameters: expected {parameters}, got {given}");
                return Err(QueryError::new(Code::BadValue, message));
            }
            let started = template.start(session, values, &context);
            sql::on_stack(template.stack, Box::pin(started)).await.map_err(explain)
        })
    }

    /// Starts the query if its plan is known and reads few rows, so that its rows can be read on a thread that must not be
    /// blocked for long; `None` otherwise.
    ///
    /// # Errors
    /// As for [`PreparedStatement::start`].
    pub fn start_short<'b>(
        &'b self,
        session: &'b Session,
        values: &'b [ScalarValue],
    ) -> BoxFuture<'b, Result<Option<StatementStream>>> {
        Box::pin(async move {
            let context = session.begin();
            let template = Arc::clone(&self.template.lock().unwrap_or_else(PoisonError::into_inner));
            if template.version != session.catalog_version(&context) || values.len() != template.parameters {
                return Ok(None);
            }
            let started = template.start_short(session, values, &context);
            let started = sql::on_stack(template.stack, Box::pin(started)).await;
            started.map_err(|error| session.failed(error, &self.statement, &self.text))
        })
    }

    /// The types of `$1`, `$2` and so on; `None` for those that the query leaves open.
    ///
    /// # Errors
    /// If the query gives a parameter two types.
    pub fn parameter_types(&self) -> Result<Vec<Option<DataType>>> {
        let template = Arc::clone(&self.template.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(parameter_types(&template.plan, template.parameters)?)
    }

    /// The columns of the rows, if its parameters have the types that the query gives them.
    ///
    /// # Errors
    /// What is wrong with the query.
    pub async fn columns(&self, session: &Session) -> Result<SchemaRef> {
        let explain = |error| session.failed(error, &self.statement, &self.text);
        let context = session.begin();
        let template = self.template(session, &context).await.map_err(explain)?;
        let null = |kind: Option<DataType>| match kind {
            Some(kind) => ScalarValue::try_new_null(&kind),
            None => Ok(ScalarValue::Null),
        };
        let nulls: Vec<ScalarValue> = self.parameter_types()?.into_iter().map(null).collect::<Result<_, _>>()?;
        let plan = template.plan.clone().replace_params_with_values(&nulls.into()).map_err(|e| explain(e.into()))?;
        sql::with_stack(template.stack, || session.columns(plan, &context, &template.headings)).map_err(explain)
    }

    /// The plan of the query for this context.
    async fn template(&self, session: &Session, context: &Arc<StatementContext>) -> Result<Arc<Template>, Failure> {
        let cached = Arc::clone(&self.template.lock().unwrap_or_else(PoisonError::into_inner));
        if cached.version == session.catalog_version(context) {
            return Ok(cached);
        }
        let fresh = Arc::new(session.template(&self.statement, context).await?);
        *self.template.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&fresh);
        Ok(fresh)
    }
}

/// Whether a statement is planned for this machine alone, with the fast paths.
fn is_local(context: &StatementContext, options: &ConfigOptions) -> bool {
    !context.is_distributed() && fast_paths(options)
}

/// The types that a query gives `$1`, `$2` and so on.
fn parameter_types(plan: &LogicalPlan, parameters: usize) -> datafusion::error::Result<Vec<Option<DataType>>> {
    let mut types = plan.get_parameter_types()?;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Limit(limit) = node {
            for expr in limit.fetch.iter().chain(&limit.skip) {
                if let Expr::Placeholder(placeholder) = expr.as_ref() {
                    types.insert(placeholder.id.clone(), Some(DataType::Int64));
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok((1..=parameters).map(|number| types.remove(&format!("${number}")).flatten()).collect())
}

/// Refuses every statement other than a query.
fn check_query(statement: &DfStatement) -> Result<()> {
    if crate::session::is_query(statement) { Ok(()) } else { Err(not_a_query()) }
}

fn not_a_query() -> QueryError {
    let message = "expected one SELECT: only queries can be prepared; run other statements directly";
    QueryError::new(Code::BadValue, message)
}
