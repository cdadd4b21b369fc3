//! Calls of table functions in FROM, each a table with a name of its own.
//!
//! DataFusion gives all calls of a function one name, and takes tables with one name and the same columns for the same table: of two
//! subqueries over `latest('a')` and `latest('b')`, or over `generate_series(1, 3)` and `generate_series(1, 5)`, it would run one.

use datafusion::common::{DFSchema, Result, TableReference};
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{self, FunctionArg, FunctionArgExpr, TableFactor};

/// Plans calls of table functions.
#[derive(Debug)]
pub(super) struct Calls;

impl RelationPlanner for Calls {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let Some((function, args)) = call_of(&relation) else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let text: Vec<String> = args.iter().map(ToString::to_string).collect();
        let name = format!("{function}({})", text.join(", "));
        let empty = DFSchema::empty();
        let args = args.into_iter().map(|arg| context.sql_expr_to_logical_expr(arg, &empty));
        let args = args.collect::<Result<Vec<Expr>>>()?;
        let source = context.context_provider().get_table_function_source(&function, args)?;
        let plan = LogicalPlanBuilder::scan(TableReference::bare(name), source, None)?.build()?;
        let TableFactor::Table { alias, .. } = relation else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
    }
}

/// The function that a relation calls, and its arguments.
fn call_of(relation: &TableFactor) -> Option<(String, Vec<ast::Expr>)> {
    let TableFactor::Table { name, args: Some(args), .. } = relation else { return None };
    let function = name.0.first()?.as_ident()?.to_string();
    let arg = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    Some((function, args.args.iter().map(arg).collect::<Option<Vec<_>>>()?))
}
