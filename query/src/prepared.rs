//! Queries that are read and checked once and run often, each time over what is visible then.

use crate::catalog::CatalogVersion;
use crate::context::StatementContext;
use crate::error::{QueryError, Result};
use crate::session::{self, Failure, Session, StatementResult};
use crate::sql::{self, Heading, Parsed};
use crate::statement::{Statement, StatementKind, parse};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use ebbtide_ttl::Code;
use futures::TryStreamExt;
use futures::future::BoxFuture;
use std::sync::{Arc, Mutex, PoisonError};

/// A query with parameters, `$1` and so on, made by [`Session::prepare`].
///
/// Each run looks at a snapshot of its own: it sees what has been inserted since, and nothing that has expired. Once a
/// collection has got another schema, or a view has been made anew, the query is read again.
#[derive(Debug)]
pub struct Prepared<'a> {
    session: &'a Session,
    text: String,
    statement: Statement,
    template: Mutex<Arc<Template>>,
}

/// A query before values are put in.
#[derive(Debug)]
struct Template {
    plan: LogicalPlan,
    parameters: usize,
    headings: Vec<Heading>,
    /// What planning needs.
    stack: usize,
    /// Of the catalogue that it was read against.
    version: CatalogVersion,
}

impl Template {
    /// Of a plan that has not been analysed.
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
    /// Reads and checks a query, whose parameters are `$1`, `$2` and so on.
    ///
    /// # Errors
    /// Whatever is wrong with it, with its place; [`Code::BadValue`] if it is no query.
    pub async fn prepare(&self, sql: &str) -> Result<Prepared<'_>> {
        let statement = match parse(sql)?.as_slice() {
            [one] if one.kind == StatementKind::Sql => one.clone(),
            _ => return Err(not_a_query()),
        };
        let context = self.begin();
        let template = self.template(&statement, &context).await.map_err(|e| self.failed(e, &statement, sql))?;
        Ok(Prepared { session: self, text: sql.to_owned(), statement, template: Mutex::new(Arc::new(template)) })
    }

    /// Reads a query that is to be run with values for its parameters.
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
        let Parsed { statement, headings } = session::parse(statement, stack, context)?;
        check_query(&statement)?;
        let plan = self.state(context).statement_to_plan(statement).await?;
        Template::new(plan, headings, stack, self.catalog_version(context))
    }
}

impl Prepared<'_> {
    /// Runs the query with these values for `$1`, `$2` and so on, and gathers its rows.
    ///
    /// # Errors
    /// [`Code::BadValue`] unless there is one value for each parameter; else as for [`Session::execute`].
    pub fn execute<'b>(&'b self, values: &'b [ScalarValue]) -> BoxFuture<'b, Result<StatementResult>> {
        Box::pin(async move {
            let explain = |error| self.session.failed(error, &self.statement, &self.text);
            let context = self.session.begin();
            let template = self.template(&context).await.map_err(explain)?;
            if values.len() != template.parameters {
                let (parameters, given) = (template.parameters, values.len());
                let message = format!("the query has {parameters} parameters, and {given} values were given");
                return Err(QueryError::new(Code::BadValue, message));
            }
            let plan = template.plan.clone().replace_params_with_values(&values.to_vec().into());
            let plan = plan.map_err(|e| explain(e.into()))?;
            let started = self.session.run_plan(plan, &context, &template.headings);
            let started = sql::on_stack(template.stack, Box::pin(started)).await.map_err(explain)?;
            let batches = match started.stream {
                Some(stream) => stream.try_collect().await.map_err(|e| explain(e.into()))?,
                None => Vec::new(),
            };
            Ok(StatementResult { schema: started.schema, batches, message: started.message })
        })
    }

    /// The query as it is to be read in this context.
    async fn template(&self, context: &Arc<StatementContext>) -> Result<Arc<Template>, Failure> {
        let known = Arc::clone(&self.template.lock().unwrap_or_else(PoisonError::into_inner));
        if known.version == self.session.catalog_version(context) {
            return Ok(known);
        }
        let fresh = Arc::new(self.session.template(&self.statement, context).await?);
        *self.template.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&fresh);
        Ok(fresh)
    }
}

/// Whether a parsed statement only reads.
fn check_query(statement: &DfStatement) -> Result<()> {
    match statement {
        DfStatement::Statement(inner) if matches!(**inner, ast::Statement::Query(_)) => Ok(()),
        _ => Err(not_a_query()),
    }
}

fn not_a_query() -> QueryError {
    let message = "one SELECT is expected: only queries are prepared; run other statements as they are";
    QueryError::new(Code::BadValue, message)
}
