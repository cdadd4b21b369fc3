//! Views, which the database keeps as the statements that made them.
//!
//! A statement that reads a view reads its text again, over its own snapshot and at its own instant: nothing that a view
//! names is kept, so expired measurements are as invisible through it as without it.

use crate::context::StatementContext;
use crate::error::QueryError;
use crate::functions::each_once;
use crate::parsing::{Failure, parse};
use crate::{sql, statement};
use datafusion::catalog::TableProvider;
use datafusion::common::DataFusionError;
use datafusion::datasource::ViewTable;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use ebbtide_ttl::Code;
use std::sync::Arc;

/// The table that a view stands for. `state` plans its statement, and has the catalog of the statement that reads it.
pub(crate) async fn table(
    name: &str,
    text: &str,
    context: &Arc<StatementContext>,
    state: &SessionState,
) -> Result<Arc<dyn TableProvider>, DataFusionError> {
    let external = |error: QueryError| DataFusionError::External(Box::new(error));
    if !context.enter_view(name) {
        let message = format!("view '{name}' reads itself: DROP VIEW {name}, or change one that it reads");
        return Err(external(QueryError::new(Code::BadValue, message)));
    }
    let read = read(text, context, state).await;
    context.leave_view();
    match read {
        Ok(input) => Ok(Arc::new(ViewTable::new(input, Some(text.to_owned())))),
        Err(failure) => {
            let error = match failure {
                Failure::Plan(error) => QueryError::from(error),
                Failure::Query(error) => error,
            };
            // Other collections were not looked up here.
            let message = error.message().split("; there are no collections yet").next().unwrap_or_default();
            Err(external(QueryError::new(error.code(), format!("view '{name}': {message}"))))
        }
    }
}

async fn read(text: &str, context: &Arc<StatementContext>, state: &SessionState) -> Result<LogicalPlan, Failure> {
    let statements = statement::parse(text).map_err(QueryError::from)?;
    let damaged = || QueryError::new(Code::FailedToParse, "its statement is not CREATE VIEW");
    let statement = statements.first().ok_or_else(damaged)?;
    let stack = sql::stack_for(&statement.tokens)?;
    let parsed = parse(statement, stack, context)?;
    // A view may be deeper than the statement that reads it.
    match sql::on_stack(stack, Box::pin(state.statement_to_plan(parsed.statement))).await? {
        LogicalPlan::Ddl(DdlStatement::CreateView(view)) => Ok(each_once(Arc::unwrap_or_clone(view.input))?),
        _ => Err(damaged().into()),
    }
}
