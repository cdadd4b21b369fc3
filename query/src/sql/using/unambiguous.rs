//! Names of merged columns that further tables may have too.
//!
//! Only the planner knows the columns of tables. So where there are further tables, an operator holds the number of tables that a merged
//! column comes from, and [`Unambiguous`] refuses the name if more have one.

use datafusion::common::{Column, DFSchema, DataFusionError, Result, SchemaError};
use datafusion::logical_expr::Expr as PlannedExpr;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Value};
use std::collections::HashSet;

/// What the operator begins with; the number of tables follows.
const MERGED: &str = "merged from ";

/// The value of a merged column of so many tables.
pub(super) fn checked(value: Expr, name: String, tables: usize) -> Expr {
    Expr::BinaryOp {
        left: Box::new(value),
        op: BinaryOperator::Custom(format!("{MERGED}{tables}")),
        right: Box::new(Expr::Value(Value::SingleQuotedString(name).into())),
    }
}

/// Plans the operator as its left side.
#[derive(Debug)]
pub(crate) struct Unambiguous;

impl ExprPlanner for Unambiguous {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let tables = match &expr.op {
            BinaryOperator::Custom(op) => op.strip_prefix(MERGED).and_then(|tables| tables.parse::<usize>().ok()),
            _ => None,
        };
        let (Some(tables), PlannedExpr::Literal(name, _)) = (tables, &expr.right) else {
            return Ok(PlannerResult::Original(expr));
        };
        let name = name.try_as_str().flatten().unwrap_or_default();
        let columns = schema.columns_with_unqualified_name(name);
        if columns.iter().filter_map(|column| column.relation.as_ref()).collect::<HashSet<_>>().len() > tables {
            let field = Box::new(Column::new_unqualified(name));
            let error = SchemaError::AmbiguousReference { field };
            return Err(DataFusionError::SchemaError(Box::new(error), Box::new(None)));
        }
        Ok(PlannerResult::Planned(expr.left))
    }
}
