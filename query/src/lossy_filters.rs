//! Filters by casts and divisions that map several values to one: `time::date = '2024-01-02'`, `temp::int = 20`, `n / 2 = 3`.
//!
//! DataFusion concludes from such a filter that its column has a single value, the one to which the other side is cast, and omits
//! sorts by the column. It concludes nothing where it sees a function, so a function is put around what is cast.

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, internal_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

/// The function, which returns its argument.
pub(crate) static ANY_VALUE: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| Arc::new(ScalarUDF::from(AnyValue { signature: Signature::any(1, Volatility::Immutable) })));

#[derive(Debug, PartialEq, Eq, Hash)]
struct AnyValue {
    signature: Signature,
}

impl ScalarUDFImpl for AnyValue {
    fn name(&self) -> &'static str {
        "any_value_of"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        Ok(given.first().cloned().unwrap_or(DataType::Null))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(value) => Ok(value),
            None => internal_err!("{} is called without an argument", self.name()),
        }
    }
}

/// Puts the function into the filters of a plan that is optimized.
pub(crate) fn in_plan(plan: Cow<'_, LogicalPlan>) -> Result<Cow<'_, LogicalPlan>> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Filter(filter) = node {
            let schema = filter.input.schema();
            found |= filter.predicate.exists(|expr| is_lossy(expr, schema))?;
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if !found {
        return Ok(plan);
    }
    let rewritten = plan.into_owned().transform_up_with_subqueries(|node| {
        let LogicalPlan::Filter(mut filter) = node else { return Ok(Transformed::no(node)) };
        let schema = filter.input.schema();
        let predicate = filter.predicate.transform_up(|expr| match is_lossy(&expr, schema)? {
            true => Ok(Transformed::yes(expr.map_children(|value| Ok(Transformed::yes(any_value_of(value))))?.data)),
            false => Ok(Transformed::no(expr)),
        })?;
        filter.predicate = predicate.data;
        Ok(Transformed::new_transformed(LogicalPlan::Filter(filter), predicate.transformed))
    })?;
    Ok(Cow::Owned(rewritten.data))
}

fn any_value_of(value: Expr) -> Expr {
    match value {
        Expr::Literal(..) => value,
        value => Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&ANY_VALUE), vec![value])),
    }
}

/// Whether an expression is a division, which may leave a remainder, or a cast that may map several values to one.
fn is_lossy(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { op: Operator::Divide, .. }) => Ok(true),
        Expr::Cast(cast) => {
            let from = cast.expr.get_type(schema)?;
            Ok((from.is_numeric() || from.is_temporal()) && !keeps_values_apart(&from, cast.field.data_type()))
        }
        _ => Ok(false),
    }
}

fn keeps_values_apart(from: &DataType, to: &DataType) -> bool {
    use DataType::{Date32, Date64, Float32, Float64, Timestamp};
    if from == to {
        return true;
    }
    match (from, to) {
        (from, to) if from.is_integer() && to.is_integer() => true,
        (from, Float64) if from.is_integer() => from.primitive_width() < Some(8),
        (Float32, Float64) | (Date32 | Date64, Timestamp(..)) => true,
        (Timestamp(from, _), Timestamp(to, _)) => precision(*from) <= precision(*to),
        _ => false,
    }
}

/// Digits after the seconds.
fn precision(unit: TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}
