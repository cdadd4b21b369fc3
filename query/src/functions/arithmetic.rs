//! Arithmetic that is exact or fails, with a single NaN.
//!
//! DataFusion's `+`, `-`, `*` and unary minus wrap around on integers. They are replaced by [`CheckedOperator`] functions, and
//! everything that may produce a NaN is wrapped in [`ONE_NAN`]. This is a function rewrite, so that it applies to
//! whatever is planned: queries, and the conditions of DELETE.

use super::arguments::is_duration;
use super::duration_parts::PART;
use super::floats::{CANONICAL, EQUAL_BITS, ONE_NAN};
use super::value_key::{self, VALUE_KEY};
use crate::timestamp_coercion::{is_interval, length_of};
use datafusion::arrow::compute::kernels::numeric;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::error::ArrowError;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue, exec_err, internal_err, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, lit, when,
};
use datafusion::physical_expr_common::datum::apply;
use std::sync::{Arc, LazyLock};

/// Functions of doubles that may return NaN although none of their arguments is.
const MAY_MAKE_NAN: [&str; 17] = [
    "acos", "acosh", "asin", "atanh", "cos", "exp", "ln", "log", "log10", "log2", "pow", "power", "sin", "sqrt", "tan",
    "cot", "nanvl",
];

const DATE_PART: &str = "date_part";

/// Aggregates whose result depends on the number of distinct values.
const COUNTS_DISTINCT: [&str; 7] = ["avg", "count", "median", "stddev", "stddev_pop", "var", "var_pop"];

/// Replaces operators by checked functions.
#[derive(Debug)]
pub(super) struct ExactArithmetic;

impl FunctionRewrite for ExactArithmetic {
    fn name(&self) -> &'static str {
        "exact_arithmetic"
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema, _config: &ConfigOptions) -> Result<Transformed<Expr>> {
        if !may_be_rewritten(&expr) {
            return Ok(Transformed::no(expr));
        }
        let kind = |expr: &Expr| expr.get_type(schema).unwrap_or(DataType::Null);
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_arithmetic(op) => {
                let (left_kind, right_kind) = (kind(&left), kind(&right));
                if left_kind.is_integer() && right_kind.is_integer() {
                    match CHECKED.iter().find(|(checked, _)| *checked == op) {
                        Some((_, function)) => Transformed::yes(call(function, vec![*left, *right])),
                        None => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
                    }
                } else if left_kind.is_floating() || right_kind.is_floating() {
                    // Only the final result of a formula has to be canonical: a NaN stays a NaN within it.
                    let (left, right) = (Box::new(without_canonical(*left)), Box::new(without_canonical(*right)));
                    Transformed::yes(one_nan(Expr::BinaryExpr(BinaryExpr { left, op, right })))
                } else {
                    Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right }))
                }
            }
            Expr::Negative(inner) if kind(&inner).is_signed_integer() && !matches!(*inner, Expr::Literal(..)) => {
                Transformed::yes(call(&NEGATED, vec![*inner]))
            }
            Expr::Negative(inner) if kind(&inner).is_floating() => {
                Transformed::yes(one_nan(Expr::Negative(Box::new(without_canonical(*inner)))))
            }
            Expr::ScalarFunction(made) if MAY_MAKE_NAN.contains(&made.func.name()) => {
                let expr = Expr::ScalarFunction(made);
                if kind(&expr).is_floating() { Transformed::yes(one_nan(expr)) } else { Transformed::no(expr) }
            }
            Expr::ScalarFunction(made) if made.func.name() == DATE_PART => {
                let of_length = matches!(made.args.as_slice(), [_, length] if is_duration(&kind(length)));
                match of_length {
                    true => Transformed::yes(call(&PART, made.args)),
                    false => Transformed::no(Expr::ScalarFunction(made)),
                }
            }
            // DataFusion's tells -0.0 from 0.0.
            Expr::ScalarFunction(made) if made.func.name() == "nullif" => match made.args.as_slice() {
                [value, other] if (kind(value).is_floating() || kind(other).is_floating()) && !value.is_volatile() => {
                    let null = lit(ScalarValue::Null);
                    Transformed::yes(when(value.clone().eq(other.clone()), null).otherwise(value.clone())?)
                }
                _ => Transformed::no(Expr::ScalarFunction(made)),
            },
            // DataFusion looks its values up by their bits.
            Expr::Case(mut case) if case.expr.is_some() => {
                let values = case.when_then_expr.iter_mut().map(|(when, _)| when).chain(&mut case.expr);
                let mut wrapped = false;
                for value in values.filter(|value| kind(value).is_floating() && !is_of_equal_bits(value)) {
                    **value = call(&EQUAL_BITS, vec![std::mem::take(value)]);
                    wrapped = true;
                }
                Transformed::new_transformed(Expr::Case(case), wrapped)
            }
            Expr::Cast(cast) if cast.field.data_type().is_floating() && kind(&cast.expr).is_string() => {
                Transformed::yes(one_nan(Expr::Cast(cast)))
            }
            Expr::Literal(ScalarValue::Float64(Some(value)), metadata)
                if value.is_nan() && value.is_sign_negative() =>
            {
                Transformed::yes(Expr::Literal(ScalarValue::Float64(Some(f64::NAN)), metadata))
            }
            Expr::AggregateFunction(mut count)
                if count.params.distinct
                    && COUNTS_DISTINCT.contains(&count.func.name())
                    && count.params.args.iter().any(|arg| has_equal_forms(&kind(arg))) =>
            {
                let (args, is_count) = (std::mem::take(&mut count.params.args), count.func.name() == "count");
                let equal = |arg: Expr| match kind(&arg) {
                    ty if ty.is_floating() => call(&EQUAL_BITS, vec![arg]),
                    ty if is_count && is_interval(&ty) => length_of(arg),
                    ty if is_count && value_key::is_for(&ty) => call(&VALUE_KEY, vec![arg]),
                    _ => arg,
                };
                count.params.args = args.into_iter().map(equal).collect();
                Transformed::yes(Expr::AggregateFunction(count))
            }
            other => Transformed::no(other),
        })
    }
}

/// Whether an expression, without those inside it, is replaced if its types ask for that.
pub(super) fn may_be_rewritten(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(binary) => is_arithmetic(binary.op),
        Expr::Negative(_) => true,
        Expr::ScalarFunction(call) => {
            ["nullif", DATE_PART].contains(&call.func.name()) || MAY_MAKE_NAN.contains(&call.func.name())
        }
        Expr::Cast(cast) => cast.field.data_type().is_floating(),
        Expr::Literal(ScalarValue::Float64(Some(value)), _) => value.is_nan(),
        Expr::AggregateFunction(call) => call.params.distinct && COUNTS_DISTINCT.contains(&call.func.name()),
        Expr::Case(case) => case.expr.is_some(),
        _ => false,
    }
}

/// Whether values of a type may be equal that DataFusion counts as two, or takes much memory to count.
fn has_equal_forms(kind: &DataType) -> bool {
    kind.is_floating() || kind.is_nested() || is_interval(kind)
}

fn is_arithmetic(op: Operator) -> bool {
    matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide | Operator::Modulo)
}

fn one_nan(expr: Expr) -> Expr {
    call(&ONE_NAN, vec![expr])
}

pub(super) fn call(function: &Arc<ScalarUDF>, args: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), args))
}

/// Whether an expression is a call of [`EQUAL_BITS`].
fn is_of_equal_bits(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func == *EQUAL_BITS)
}

fn without_canonical(expr: Expr) -> Expr {
    match expr {
        Expr::ScalarFunction(mut call) if call.func.name() == CANONICAL && call.args.len() == 1 => call.args.remove(0),
        other => other,
    }
}

/// An operator on integers that fails if its result does not fit.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedOperator {
    /// `None` for the unary minus.
    op: Option<Operator>,
    signature: Signature,
}

fn checked(op: Option<Operator>) -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(CheckedOperator { op, signature }))
}

static CHECKED: LazyLock<[(Operator, Arc<ScalarUDF>); 3]> =
    LazyLock::new(|| [Operator::Plus, Operator::Minus, Operator::Multiply].map(|op| (op, checked(Some(op)))));
static NEGATED: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| checked(None));

/// The checked functions.
#[cfg(feature = "workers")]
pub(super) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    CHECKED.iter().map(|(_, function)| function).chain([&*NEGATED]).cloned()
}

impl ScalarUDFImpl for CheckedOperator {
    fn name(&self) -> &'static str {
        match self.op {
            Some(Operator::Plus) => "checked_add",
            Some(Operator::Minus) => "checked_subtract",
            Some(_) => "checked_multiply",
            None => "checked_negate",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match (given, &self.op) {
            ([left, right], Some(op)) => {
                let (left, right) = BinaryTypeCoercer::new(left, op, right).get_input_types()?;
                Ok(vec![left, right])
            }
            ([_], None) => Ok(given.to_vec()),
            _ => plan_err!("{} is given {} arguments", self.name(), given.len()),
        }
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match (given, &self.op) {
            ([left, right], Some(op)) => BinaryTypeCoercer::new(left, op, right).get_result_type(),
            _ => Ok(given.first().cloned().unwrap_or(DataType::Int64)),
        }
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(match (args, &self.op) {
            ([left, right], Some(op)) => format!("{} {op} {}", left.schema_name(), right.schema_name()),
            ([arg, ..], _) => format!("(- {})", arg.schema_name()),
            ([], _) => self.name().to_owned(),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let result = match (args.args.as_slice(), &self.op) {
            ([left, right], Some(Operator::Plus)) => apply(left, right, numeric::add),
            ([left, right], Some(Operator::Minus)) => apply(left, right, numeric::sub),
            ([left, right], Some(Operator::Multiply)) => apply(left, right, numeric::mul),
            ([ColumnarValue::Array(array)], None) => {
                numeric::neg(array.as_ref()).map(ColumnarValue::Array).map_err(Into::into)
            }
            ([ColumnarValue::Scalar(value)], None) => value
                .to_array()
                .and_then(|array| Ok(numeric::neg(array.as_ref())?))
                .and_then(|array| Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?))),
            _ => return internal_err!("{} is given {} arguments", self.name(), args.args.len()),
        };
        match result {
            Err(datafusion::common::DataFusionError::ArrowError(error, _)) => match *error {
                ArrowError::ArithmeticOverflow(what) => {
                    let what = what.split_once("on: ").map_or(what.as_str(), |(_, what)| what).to_owned();
                    exec_err!(
                        "overflow: {what} does not fit {}; cast an operand with ::double to compute with doubles",
                        args.return_field.data_type()
                    )
                }
                other => Err(other.into()),
            },
            other => other,
        }
    }
}
