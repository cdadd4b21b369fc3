//! Prepared queries: parsed and checked once and run many times, each time over what is visible then.

use crate::catalog::CatalogVersion;
use crate::context::StatementContext;
use crate::error::{QueryError, Result};
use crate::parsing::{self, Failure};
use crate::session::{Session, StatementResult, StatementStream};
use crate::sql::{self, Heading, ParsedStatement};
use crate::statement::{Statement, StatementKind, parse};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::parser::Statement as DfStatement;
use ebbtide_ttl::Code;
use futures::TryStreamExt;
use futures::future::BoxFuture;
use std::sync::{Arc, Mutex, PoisonError};

/// A query with parameters, `$1` and so on, made by [`Session::prepare`].
///
/// Each run takes its own snapshot: it sees what has been inserted since the last one, and nothing that has expired.
/// After the schema of a collection has changed, or a view has been replaced, the query is planned again.
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
    headings: Vec<Heading>,
    /// Bytes of stack that planning needs.
    stack: usize,
    /// The catalog that it was planned against.
    version: CatalogVersion,
}

impl Template {
    /// From a plan that has not been analyzed.
    fn new(plan: LogicalPlan, headings: Vec<Heading>, stack: usize, version: CatalogVersion) -> Result<Self, Failure> {
        let names = plan.get_parameter_names()?;
        let parameters = names.len();
        match (1..=parameters).map(|n| format!("${n}")).find(|name| !names.contains(name)) {
            None => Ok(Template { plan, parameters, headings, stack, version }),
            Some(name) => {
                let message = format!("parameters must be numbered $1, $2, ... without gaps: {name} is missing");
                Err(QueryError::new(Code::FailedToParse, message).into())
            }
        }
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
            let plan = template.plan.clone().replace_params_with_values(&values.to_vec().into());
            let plan = plan.map_err(|e| explain(e.into()))?;
            let started = session.run_plan(plan, &context, &template.headings);
            sql::on_stack(template.stack, Box::pin(started)).await.map_err(explain)
        })
    }

    /// The types of `$1`, `$2` and so on; `None` for those that the query leaves open.
    ///
    /// # Errors
    /// If the query gives a parameter two types.
    pub fn parameter_types(&self) -> Result<Vec<Option<DataType>>> {
        let template = Arc::clone(&self.template.lock().unwrap_or_else(PoisonError::into_inner));
        let mut types = template.plan.get_parameter_types()?;
        let _all = template.plan.apply_with_subqueries(|node| {
            if let LogicalPlan::Limit(limit) = node {
                for expr in limit.fetch.iter().chain(&limit.skip) {
                    if let Expr::Placeholder(placeholder) = expr.as_ref() {
                        types.insert(placeholder.id.clone(), Some(DataType::Int64));
                    }
                }
            }
            Ok(TreeNodeRecursion::Continue)
        });
        Ok((1..=template.parameters).map(|number| types.remove(&format!("${number}")).flatten()).collect())
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

/// Refuses every statement other than a query.
fn check_query(statement: &DfStatement) -> Result<()> {
    if crate::session::is_query(statement) { Ok(()) } else { Err(not_a_query()) }
}

fn not_a_query() -> QueryError {
    let message = "expected one SELECT: only queries can be prepared; run other statements directly";
    QueryError::new(Code::BadValue, message)
}
