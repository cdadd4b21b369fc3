//! Calls of table functions in FROM, each a table with a name of its own.
//!
//! DataFusion gives all calls of a function one name, and takes tables with one name and the same columns for the same table: of two
//! subqueries over `latest('a')` and `latest('b')`, or over `generate_series(1, 3)` and `generate_series(1, 5)`, it would run one.

use datafusion::common::{DFSchema, Result, TableReference};
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{self, FunctionArg, FunctionArgExpr, TableAlias, TableFactor};

/// Plans calls of table functions.
#[derive(Debug)]
pub(super) struct Calls;

impl RelationPlanner for Calls {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let Some((function, args, alias)) = call_of(&relation, context)? else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let text: Vec<String> = args.iter().map(ToString::to_string).collect();
        let name = format!("{function}({})", text.join(", "));
        let empty = DFSchema::empty();
        let args = args.into_iter().map(|arg| context.sql_expr_to_logical_expr(arg, &empty));
        let args = args.collect::<Result<Vec<Expr>>>()?;
        let source = context.context_provider().get_table_function_source(&function, args)?;
        let plan = LogicalPlanBuilder::scan(TableReference::bare(name), source, None)?;
        // Without an alias, `LATERAL f(...)` goes by the name of the function.
        let plan = match (&relation, &alias) {
            (TableFactor::Function { .. }, None) => plan.alias(TableReference::bare(function))?,
            _ => plan,
        };
        let plan = plan.build()?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
    }
}

/// A function, its arguments, and the alias of its rows.
type Call = (String, Vec<ast::Expr>, Option<TableAlias>);

/// What a relation calls, as `f(...)` or `LATERAL f(...)`.
fn call_of(relation: &TableFactor, context: &dyn RelationPlannerContext) -> Result<Option<Call>> {
    let (function, args, alias) = match relation {
        TableFactor::Table { name, args: Some(args), alias, .. } => {
            let function = name.0.first().and_then(|part| part.as_ident());
            (function.map(ToString::to_string), &args.args, alias)
        }
        // Unlike the other form, this one takes the name as that of a table.
        TableFactor::Function { name, args, alias, .. } => {
            (Some(context.object_name_to_table_reference(name.clone())?.table().to_owned()), args, alias)
        }
        _ => return Ok(None),
    };
    let takes_named = matches!(relation, TableFactor::Function { .. });
    let arg = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        FunctionArg::Named { arg: FunctionArgExpr::Expr(expr), .. } if takes_named => Some(expr.clone()),
        _ => None,
    };
    let args = args.iter().map(arg).collect::<Option<Vec<_>>>();
    Ok(function.zip(args).map(|(function, args)| (function, args, alias.clone())))
}
