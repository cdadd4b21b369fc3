//! Prepared queries: parsed and checked once and run many times, each time over what is visible then.

mod generic;
mod samples;
mod types;

pub(crate) use types::parameter_types;

use crate::catalog::CatalogVersion;
use crate::context::StatementContext;
use crate::error::{QueryError, Result};
use crate::options::fast_paths;
use crate::parsing::{self, Failure};
use crate::planning::{ReadsAtMost, is_plain};
use crate::session::{Session, StatementResult, StatementStream};
use crate::sql::{self, Heading, ParsedStatement};
use crate::statement::{Statement, StatementKind, parse};
use crate::timestamp_coercion;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::common::config::ConfigOptions;
use datafusion::logical_expr::LogicalPlan;
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
/// its plan does not depend on the values; otherwise it is optimized in each run. Preparing the same text again reuses the
/// plan while the session remembers it.
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
    query: Arc<PreparedQuery>,
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
    basis: PlanBasis,
    generic: Mutex<Generic>,
    /// Runs in sequence that were not short.
    long_runs: AtomicU32,
}

/// What a query was planned with: while it stays the same, the plan stays valid.
#[derive(Debug)]
struct PlanBasis {
    catalog: CatalogVersion,
    /// `SET` replaces the settings of a session by a changed copy while they are referred to here, so the same pointer means the
    /// same settings.
    options: Arc<ConfigOptions>,
}

impl PlanBasis {
    fn new(session: &Session, context: &Arc<StatementContext>) -> PlanBasis {
        let options = Arc::clone(context.config().options());
        PlanBasis { catalog: session.catalog_version(context), options }
    }

    fn is_current(&self, session: &Session, context: &Arc<StatementContext>) -> bool {
        Arc::ptr_eq(&self.options, context.config().options()) && self.catalog == session.catalog_version(context)
    }
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
    fn new(plan: LogicalPlan, headings: Vec<Heading>, stack: usize, basis: PlanBasis) -> Result<Self, Failure> {
        let names = plan.get_parameter_names()?;
        let parameters = names.len();
        match (1..=parameters).map(|n| format!("${n}")).find(|name| !names.contains(name)) {
            None => {
                // If a parameter has two types, nothing is known of any.
                let types = parameter_types(&plan, parameters).unwrap_or_default();
                // Deeply nested plans are dropped where there is not enough stack for them.
                let is_possible = sql::is_small(stack) && is_plain(&plan)? && may_be_generic(&plan)?;
                let runs = if is_possible { 0 } else { RUNS_WITHOUT.end };
                let (generic, long_runs) = (Mutex::new(Generic::Without(runs)), AtomicU32::new(0));
                Ok(Template { plan, parameters, types, headings, stack, basis, generic, long_runs })
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
        if let Some(started) = self.start_generic(session, values, context).await? {
            return Ok(started);
        }
        let plan = self.plan.clone().replace_params_with_values(&values.to_vec().into())?;
        session.run_plan(plan, context, &self.headings).await
    }

    /// Starts the query by its generic plan; `None` if it has none that fits these values.
    async fn start_generic(
        &self,
        session: &Session,
        values: &[ScalarValue],
        context: &Arc<StatementContext>,
    ) -> Result<Option<StatementStream>, Failure> {
        let config = context.config();
        let exact = self.in_types_of_columns(values);
        let Some(generic) = self.generic_plan(session, &exact, context, config.options()) else { return Ok(None) };
        let (plan, reads) = (generic.with_values(&exact)?, ReadsAtMost::Everything);
        session.run_optimized(plan, &generic.columns, (context, &config), reads).await
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
        let known = self.known_plan().filter(|generic| generic.fits(&exact));
        let Some(generic) = known else { return Ok(None) };
        let plan = generic.with_values(&exact)?;
        let started = session.run_optimized(plan, &generic.columns, (context, &config), ReadsAtMost::Little).await?;
        match &started {
            Some(_) => self.long_runs.store(0, Ordering::Relaxed),
            None => drop(self.long_runs.fetch_add(1, Ordering::Relaxed)),
        }
        Ok(started)
    }

    fn check_count(&self, values: &[ScalarValue]) -> Result<()> {
        if values.len() == self.parameters {
            return Ok(());
        }
        let (parameters, given) = (self.parameters, values.len());
        let message = format!("wrong number of values for the parameters: expected {parameters}, got {given}");
        Err(QueryError::new(Code::BadValue, message))
    }

    /// Whether this run is one for whose values a plan is looked for.
    fn looks_for_plan(&self) -> bool {
        match &mut *self.generic.lock().unwrap_or_else(PoisonError::into_inner) {
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
        if let Some(known) = self.known_plan() {
            return Some(known).filter(|known| known.fits(values));
        }
        if !self.looks_for_plan() {
            return None;
        }
        let optimize = |query| session.optimized(query, context, &self.headings);
        // Where the query is wrong, its plan for these values says so.
        let generic = Arc::new(GenericPlan::new(&self.plan, values, options, optimize).ok().flatten()?);
        *self.generic.lock().unwrap_or_else(PoisonError::into_inner) = Generic::Plan(Arc::clone(&generic));
        Some(generic)
    }

    /// The values in the types of what they are compared with, if they are the same values then.
    fn in_types_of_columns<'v>(&self, values: &'v [ScalarValue]) -> Cow<'v, [ScalarValue]> {
        let mut exact = Cow::Borrowed(values);
        for (at, (value, kind)) in values.iter().zip(&self.types).enumerate() {
            if let Some(kind) = kind
                && value.data_type() != *kind
                && let Some(converted) = converted(value, kind)
            {
                exact.to_mut()[at] = converted;
            }
        }
        exact
    }
}

/// A value in the type of what it is compared with, if the comparison stays the same: a text as another type of text or as
/// the instant that it stands for, an instant in another unit, an integer as another number.
fn converted(value: &ScalarValue, kind: &DataType) -> Option<ScalarValue> {
    let given = value.data_type();
    if let DataType::Timestamp(unit, zone) = kind {
        return timestamp_coercion::exactly(value, *unit, zone.clone());
    }
    if !((given.is_string() && kind.is_string()) || (given.is_integer() && kind.is_numeric() && !is_decimal(kind))) {
        return None;
    }
    let converted = value.cast_to(kind).ok()?;
    converted.cast_to(&given).is_ok_and(|back| back == *value).then_some(converted)
}

fn is_decimal(kind: &DataType) -> bool {
    matches!(
        kind,
        DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) | DataType::Decimal256(..)
    )
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

    /// Checks a query that was parsed from `text`. A query that the session has prepared shortly before is the same one.
    ///
    /// # Errors
    /// As for [`Session::prepare`].
    pub async fn prepare_query(&self, statement: Statement, text: &str) -> Result<Arc<PreparedQuery>> {
        if let Some(known) = self.prepared_before(&statement, text) {
            let explain = |error| self.failed(error, &statement, text);
            known.template(self, &self.begin()).await.map_err(explain)?;
            return Ok(known);
        }
        let prepared = self.prepare_new(statement, text).await?;
        self.keep_prepared(&prepared);
        Ok(prepared)
    }

    pub(crate) async fn prepare_new(&self, statement: Statement, text: &str) -> Result<Arc<PreparedQuery>> {
        let context = self.begin();
        let template = self.template(&statement, &context).await.map_err(|e| self.failed(e, &statement, text))?;
        Ok(Arc::new(PreparedQuery { text: text.to_owned(), statement, template: Mutex::new(Arc::new(template)) }))
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
        Template::new(plan, headings, stack, PlanBasis::new(self, context))
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
            session.check_clock()?;
            let context = session.begin();
            let template = self.template(session, &context).await.map_err(explain)?;
            template.check_count(values)?;
            if template.parameters == 0
                && template.known_plan().is_none()
                && let Some(started) = session.start_repeated(&self.statement).await
            {
                return Ok(started);
            }
            let values = with_lists(values, &template.types).map_err(|e| explain(e.into()))?;
            let started = template.start(session, &values, &context);
            sql::on_stack(template.stack, Box::pin(started)).await.map_err(explain)
        })
    }

    /// Starts the query by its generic plan; `None` if it has none that fits these values, or cannot be started.
    pub(crate) async fn start_generic(&self, session: &Session, values: &[ScalarValue]) -> Option<StatementStream> {
        let context = session.begin();
        let template = self.template(session, &context).await.ok()?;
        let started = template.start_generic(session, values, &context).await;
        started.inspect_err(|error| tracing::debug!(?error, "a generic plan was not started")).ok().flatten()
    }

    /// Notes that the query has been run before it was prepared. With more columns than this it gets no generic plan.
    pub(crate) fn has_run(&self, columns_max: usize) {
        let is_narrow = self.column_count() <= columns_max;
        let template = self.current_template();
        if let Generic::Without(runs) = &mut *template.generic.lock().unwrap_or_else(PoisonError::into_inner) {
            *runs = if is_narrow { runs.saturating_add(1) } else { RUNS_WITHOUT.end };
        }
    }

    pub(crate) fn has_generic_plan(&self) -> bool {
        self.current_template().known_plan().is_some()
    }

    /// Whether no generic plan is looked for any more.
    pub(crate) fn has_no_generic_plan(&self) -> bool {
        let template = self.current_template();
        let generic = template.generic.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(&*generic, Generic::Without(runs) if *runs >= RUNS_WITHOUT.end)
    }

    /// The number of columns of its rows.
    pub(crate) fn column_count(&self) -> usize {
        self.current_template().plan.schema().fields().len()
    }

    /// The columns of the rows, if there is a generic plan that is up to date.
    pub(crate) fn known_columns(&self, session: &Session) -> Option<SchemaRef> {
        let (context, template) = (session.begin(), self.current_template());
        let generic = template.known_plan()?;
        template.basis.is_current(session, &context).then(|| Arc::clone(&generic.columns))
    }

    fn current_template(&self) -> Arc<Template> {
        Arc::clone(&self.template.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The statement that it was prepared from, and the whole text that this was parsed from.
    pub(crate) fn source(&self) -> (&Statement, &str) {
        (&self.statement, &self.text)
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
            session.check_clock()?;
            let context = session.begin();
            let template = self.current_template();
            if !template.basis.is_current(session, &context) || values.len() != template.parameters {
                return Ok(None);
            }
            let explain = |error| session.failed(error, &self.statement, &self.text);
            let values = with_lists(values, &template.types).map_err(|e| explain(e.into()))?;
            let started = template.start_short(session, &values, &context);
            sql::on_stack(template.stack, Box::pin(started)).await.map_err(explain)
        })
    }

    /// The types of `$1`, `$2` and so on; `None` for those that the query leaves open.
    ///
    /// # Errors
    /// If the query gives a parameter two types.
    pub fn parameter_types(&self) -> Result<Vec<Option<DataType>>> {
        let template = self.current_template();
        Ok(parameter_types(&template.plan, template.parameters)?)
    }

    /// The columns of the rows, if its parameters have the types that the query gives them.
    ///
    /// # Errors
    /// What is wrong with the query.
    pub async fn columns(&self, session: &Session) -> Result<SchemaRef> {
        self.columns_with(session, None).await
    }

    /// The columns of the rows with these values for the parameters, or, without any, as [`columns`](Self::columns) does.
    ///
    /// # Errors
    /// What is wrong with the query, or with the values.
    pub async fn columns_with(&self, session: &Session, values: Option<&[ScalarValue]>) -> Result<SchemaRef> {
        let explain = |error| session.failed(error, &self.statement, &self.text);
        let context = session.begin();
        let template = self.template(session, &context).await.map_err(explain)?;
        if let Some(values) = values {
            template.check_count(values)?;
        }
        // Its parameters are in conditions, so the columns do not depend on the values.
        if let Some(generic) = template.known_plan() {
            return Ok(Arc::clone(&generic.columns));
        }
        let null = |kind: Option<DataType>| match kind {
            Some(kind) => ScalarValue::try_new_null(&kind),
            None => Ok(ScalarValue::Null),
        };
        let values = match values {
            Some(values) => with_lists(values, &template.types).map_err(|e| explain(e.into()))?.into_owned(),
            None => self.parameter_types()?.into_iter().map(null).collect::<Result<_, _>>()?,
        };
        let plan = template.plan.clone().replace_params_with_values(&values.into()).map_err(|e| explain(e.into()))?;
        sql::with_stack(template.stack, || session.columns(plan, &context, &template.headings)).map_err(explain)
    }

    /// The plan of the query for this context.
    async fn template(&self, session: &Session, context: &Arc<StatementContext>) -> Result<Arc<Template>, Failure> {
        let cached = self.current_template();
        if cached.basis.is_current(session, context) {
            return Ok(cached);
        }
        let fresh = Arc::new(session.template(&self.statement, context).await?);
        *self.template.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&fresh);
        Ok(fresh)
    }
}

/// Whether a statement is planned for this machine alone, with the fast paths.
fn is_local(context: &StatementContext, options: &ConfigOptions) -> bool {
    !context.is_distributed() && !context.is_of_several() && fast_paths(options)
}

/// The values, and for a text in the place of a list the list that it stands for.
fn with_lists<'v>(
    values: &'v [ScalarValue],
    types: &[Option<DataType>],
) -> datafusion::error::Result<Cow<'v, [ScalarValue]>> {
    let mut listed = Cow::Borrowed(values);
    for (at, (value, kind)) in values.iter().zip(types).enumerate() {
        if let (Some(kind @ DataType::List(_)), Some(text)) = (kind, value.try_as_str().flatten()) {
            listed.to_mut()[at] = crate::array_text::list(text, kind)?;
        }
    }
    Ok(listed)
}

/// Refuses every statement other than a query.
fn check_query(statement: &DfStatement) -> Result<()> {
    if crate::session::is_query(statement) { Ok(()) } else { Err(not_a_query()) }
}

fn not_a_query() -> QueryError {
    let message = "expected one SELECT: only queries can be prepared; run other statements directly";
    QueryError::new(Code::BadValue, message)
}
