//! Queries that are read and checked once and run often, each time over what is visible then.

use crate::catalog::Stamp;
use crate::error::{QueryError, Result};
use crate::session::{Failure, Session, StatementResult};
use crate::statement::{Statement, StatementKind, parse};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use ebbtide_ttl::Code;
use futures::TryStreamExt;
use futures::future::BoxFuture;
use std::sync::{Arc, Mutex, PoisonError};

/// A query with places for values, `$1` and so on, made by [`Session::prepare`].
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
pub(crate) struct Template {
    plan: LogicalPlan,
    params: usize,
    /// Of the catalogue that it was read against.
    stamp: Stamp,
}

impl Template {
    /// Of a plan that has not been analysed.
    pub(crate) fn new(plan: LogicalPlan, stamp: Stamp) -> Result<Self, Failure> {
        let names = plan.get_parameter_names()?;
        let params = names.len();
        match (1..=params).map(|n| format!("${n}")).find(|name| !names.contains(name)) {
            None => Ok(Template { plan, params, stamp }),
            Some(name) => {
                let message = format!("places for values are $1, $2 and so on without gaps: {name} is not there");
                Err(QueryError::new(Code::FailedToParse, message).into())
            }
        }
    }
}

impl Session {
    /// Reads and checks a query, whose places for values are `$1`, `$2` and so on.
    ///
    /// # Errors
    /// Whatever is wrong with it, with its place; [`Code::BadValue`] if it is no query.
    pub async fn prepare(&self, sql: &str) -> Result<Prepared<'_>> {
        let statement = match parse(sql)?.as_slice() {
            [one] if one.kind == StatementKind::Sql => one.clone(),
            _ => return Err(not_a_query()),
        };
        let _planning = self.begin().await;
        let template = self.template(&statement).await.map_err(|e| self.failed(e, &statement, sql))?;
        Ok(Prepared { session: self, text: sql.to_owned(), statement, template: Mutex::new(Arc::new(template)) })
    }
}

impl Prepared<'_> {
    /// Runs the query with these values in the places of `$1`, `$2` and so on, and gathers its rows.
    ///
    /// # Errors
    /// [`Code::BadValue`] unless there is one value for each place; else as for [`Session::execute`].
    pub fn execute<'b>(&'b self, values: &'b [ScalarValue]) -> BoxFuture<'b, Result<StatementResult>> {
        Box::pin(async move {
            let explain = |error| self.session.failed(error, &self.statement, &self.text);
            let started = {
                let _planning = self.session.begin().await;
                let template = self.template().await.map_err(explain)?;
                if values.len() != template.params {
                    let (places, given) = (template.params, values.len());
                    let message = format!("the query has {places} places for values, and {given} values were given");
                    return Err(QueryError::new(Code::BadValue, message));
                }
                let plan = template.plan.clone().replace_params_with_values(&values.to_vec().into());
                let plan = plan.map_err(|e| explain(e.into()))?;
                self.session.run_plan(plan).await.map_err(explain)?
            };
            let batches = match started.stream {
                Some(stream) => stream.try_collect().await.map_err(|e| explain(e.into()))?,
                None => Vec::new(),
            };
            Ok(StatementResult { schema: started.schema, batches, message: started.message })
        })
    }

    /// The query as it is to be read now.
    async fn template(&self) -> Result<Arc<Template>, Failure> {
        let known = Arc::clone(&self.template.lock().unwrap_or_else(PoisonError::into_inner));
        if known.stamp == self.session.stamp() {
            return Ok(known);
        }
        let fresh = Arc::new(self.session.template(&self.statement).await?);
        *self.template.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&fresh);
        Ok(fresh)
    }
}

/// Whether a parsed statement only reads.
pub(crate) fn check_query(statement: &DfStatement) -> Result<()> {
    match statement {
        DfStatement::Statement(inner) if matches!(**inner, ast::Statement::Query(_)) => Ok(()),
        _ => Err(not_a_query()),
    }
}

fn not_a_query() -> QueryError {
    let message = "one SELECT is expected: only queries are prepared; run other statements as they are";
    QueryError::new(Code::BadValue, message)
}
