//! `* REPLACE (x AS c)` where there is no column `c`, which DataFusion does not notice.
//!
//! Only the planner knows the columns of tables. So an operator holds the name of the column beside its new value, and [`Replaced`] looks it up.

use super::using::value_of;
use datafusion::common::{Column, DFSchema, DataFusionError, Result, SchemaError};
use datafusion::logical_expr::Expr as PlannedExpr;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, SelectItem, Value};
use std::mem::replace;

const REPLACES: &str = "replaces the column";

/// Puts the operator into the items of a list.
pub(super) fn in_items(items: &mut [SelectItem]) {
    for item in items {
        let (SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options)) = item else { continue };
        for replaced in options.opt_replace.iter_mut().flat_map(|replaced| &mut replaced.items) {
            let name = Expr::Value(Value::SingleQuotedString(value_of(&replaced.column_name)).into());
            let value = replace(&mut replaced.expr, Expr::Value(Value::Null.into()));
            replaced.expr = Expr::BinaryOp {
                left: Box::new(Expr::Nested(Box::new(value))),
                op: BinaryOperator::Custom(REPLACES.to_owned()),
                right: Box::new(name),
            };
        }
    }
}

/// Plans the operator as its left side.
#[derive(Debug)]
pub(crate) struct Replaced;

impl ExprPlanner for Replaced {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let is_it = matches!(&expr.op, BinaryOperator::Custom(op) if op == REPLACES);
        let PlannedExpr::Literal(name, _) = &expr.right else { return Ok(PlannerResult::Original(expr)) };
        if !is_it {
            return Ok(PlannerResult::Original(expr));
        }
        let name = name.try_as_str().flatten().unwrap_or_default();
        if !schema.fields().iter().any(|field| field.name().eq_ignore_ascii_case(name)) {
            let error = SchemaError::FieldNotFound {
                field: Box::new(Column::new_unqualified(name)),
                valid_fields: schema.columns(),
            };
            return Err(DataFusionError::SchemaError(Box::new(error), Box::new(None)));
        }
        Ok(PlannerResult::Planned(expr.left))
    }
}
