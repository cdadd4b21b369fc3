//! Doubles in the order of DuckDB and PostgreSQL: NaN is above infinity, and all NaNs are equal.
//!
//! Arrow compares doubles by their bits, where a NaN may be negative and below all numbers. Processors produce such
//! NaNs (`0.0 / 0.0`). So everything that may produce a NaN is wrapped in [`CanonicalFloat`], which makes it positive; and
//! `min` and `max` are implemented here, because DataFusion's depend on the order of rows if there is a NaN. Those of intervals are
//! by their length; DataFusion's are by months, then by days.

use crate::timestamp_coercion::interval_nanos;
use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray};
use datafusion::arrow::datatypes::{
    DataType, FieldRef, Float16Type, Float32Type, Float64Type, IntervalMonthDayNano, IntervalMonthDayNanoType,
    IntervalUnit,
};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::logical_expr::function::{AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, Documentation, EmitTo, Expr, GroupsAccumulator,
    ReversedUDAF, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, SetMonotonicity, Signature, StatisticsArgs, Volatility,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// A type whose values are ordered here.
trait Ordered: ArrowPrimitiveType {
    /// Total order; of doubles, with NaN above everything and -0.0 below 0.0.
    fn order(a: Self::Native, b: Self::Native) -> Ordering;
}

/// A floating-point type of Arrow.
trait Float: Ordered {
    fn is_noncanonical_nan(value: Self::Native) -> bool;
    fn is_negative_zero(value: Self::Native) -> bool;
    fn nan() -> Self::Native;
}

impl Ordered for IntervalMonthDayNanoType {
    fn order(a: IntervalMonthDayNano, b: IntervalMonthDayNano) -> Ordering {
        let parts = |interval: IntervalMonthDayNano| (interval.months, interval.days);
        interval_nanos(a).cmp(&interval_nanos(b)).then_with(|| parts(a).cmp(&parts(b)))
    }
}

/// The order of two intervals: by their length; of equally long ones, by months, then days.
pub(super) fn order_of_intervals(a: IntervalMonthDayNano, b: IntervalMonthDayNano) -> Ordering {
    IntervalMonthDayNanoType::order(a, b)
}

macro_rules! float {
    ($of:ty, $native:ty) => {
        impl Float for $of {
            fn is_noncanonical_nan(value: $native) -> bool {
                value.is_nan() && value.to_bits() != Self::nan().to_bits()
            }

            fn is_negative_zero(value: $native) -> bool {
                value.to_bits() == (-<$native>::default()).to_bits()
            }

            fn nan() -> $native {
                <$native>::NAN
            }
        }

        impl Ordered for $of {
            fn order(a: $native, b: $native) -> Ordering {
                match (a.is_nan(), b.is_nan()) {
                    (false, false) => a.total_cmp(&b),
                    (a, b) => a.cmp(&b),
                }
            }
        }
    };
}

float!(Float64Type, f64);
float!(Float32Type, f32);
float!(Float16Type, <Float16Type as ArrowPrimitiveType>::Native);

fn canonical_of<T: Float>(array: &ArrayRef, zeros: bool) -> ArrayRef {
    let values = array.as_primitive::<T>();
    let is_odd = |value: &T::Native| T::is_noncanonical_nan(*value) || (zeros && T::is_negative_zero(*value));
    if !values.values().iter().any(is_odd) {
        return Arc::clone(array);
    }
    let canonical = |value: T::Native| match (T::is_noncanonical_nan(value), zeros && T::is_negative_zero(value)) {
        (true, _) => T::nan(),
        (false, true) => T::default_value(),
        (false, false) => value,
    };
    Arc::new(values.unary::<_, T>(canonical))
}

fn canonical(array: ArrayRef, zeros: bool) -> ArrayRef {
    match array.data_type() {
        DataType::Float64 => canonical_of::<Float64Type>(&array, zeros),
        DataType::Float32 => canonical_of::<Float32Type>(&array, zeros),
        DataType::Float16 => canonical_of::<Float16Type>(&array, zeros),
        _ => array,
    }
}

/// The same values with every NaN replaced by the canonical one.
pub(crate) fn canonical_array(array: ArrayRef) -> ArrayRef {
    canonical(array, false)
}

/// The same values with one NaN and one zero.
pub(super) fn equal_bits(array: ArrayRef) -> ArrayRef {
    canonical(array, true)
}

/// The same value with a NaN replaced by the canonical one.
pub(super) fn canonical_scalar(value: ScalarValue) -> ScalarValue {
    match value {
        ScalarValue::Float64(Some(value)) if value.is_nan() => ScalarValue::Float64(Some(f64::NAN)),
        ScalarValue::Float32(Some(value)) if value.is_nan() => ScalarValue::Float32(Some(f32::NAN)),
        other => other,
    }
}

/// Name of [`CanonicalFloat`] as a function; and of its variant that also replaces -0.0 by 0.0.
pub(super) const CANONICAL: &str = "canonical_nan";
const EQUAL: &str = "canonical_float";

/// Replaces every NaN by the canonical one and, for comparisons by bits, -0.0 by 0.0.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CanonicalFloat {
    zeros: bool,
    signature: Signature,
}

fn canonical_udf(zeros: bool) -> Arc<ScalarUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(CanonicalFloat { zeros, signature }))
}

/// Function that replaces every NaN by the canonical one.
pub(super) static ONE_NAN: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| canonical_udf(false));
/// Function that gives equal doubles equal bits.
pub(super) static EQUAL_BITS: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| canonical_udf(true));

/// The argument of one of these functions; any other expression as it is.
pub(crate) fn without_canonical_float(expr: &Arc<dyn PhysicalExpr>) -> &Arc<dyn PhysicalExpr> {
    match expr.downcast_ref::<ScalarFunctionExpr>().map(|call| (call.fun().name(), call.args())) {
        Some((EQUAL | CANONICAL, [value])) => value,
        _ => expr,
    }
}

/// Both.
#[cfg(feature = "workers")]
pub(super) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [&*ONE_NAN, &*EQUAL_BITS].into_iter().cloned()
}

impl ScalarUDFImpl for CanonicalFloat {
    fn name(&self) -> &str {
        if self.zeros { EQUAL } else { CANONICAL }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        Ok(given.first().cloned().unwrap_or(DataType::Float64))
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args.first().map(ToString::to_string).unwrap_or_default())
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args.first().map(|arg| arg.schema_name().to_string()).unwrap_or_default())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let zeros = self.zeros;
        match args.args.into_iter().next() {
            Some(ColumnarValue::Array(array)) => Ok(ColumnarValue::Array(canonical(array, zeros))),
            Some(ColumnarValue::Scalar(value)) => {
                let array = canonical(value.to_array()?, zeros);
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?))
            }
            None => internal_err!("{} is called without an argument", self.name()),
        }
    }
}

/// What aggregates that do not depend on the order of rows have in common with DataFusion's function `self.other`.
macro_rules! as_in_other {
    () => {
        fn value_from_stats(&self, args: &StatisticsArgs<'_>) -> Option<ScalarValue> {
            // The statistics of a Parquet file leave out NaN.
            if args.return_type.is_floating() { None } else { self.other.value_from_stats(args) }
        }

        fn reverse_expr(&self) -> ReversedUDAF {
            ReversedUDAF::Identical
        }

        fn order_sensitivity(&self) -> AggregateOrderSensitivity {
            AggregateOrderSensitivity::Insensitive
        }

        fn set_monotonicity(&self, kind: &DataType) -> SetMonotonicity {
            self.other.inner().set_monotonicity(kind)
        }

        fn documentation(&self) -> Option<&Documentation> {
            self.other.documentation()
        }
    };
}
pub(super) use as_in_other;

/// `min` or `max`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Extreme {
    greatest: bool,
    /// DataFusion's function, for types other than doubles and intervals.
    other: Arc<AggregateUDF>,
}

impl Extreme {
    pub(super) fn udaf(greatest: bool) -> Arc<AggregateUDF> {
        let other = if greatest { max_udaf() } else { min_udaf() };
        Arc::new(AggregateUDF::new_from_impl(Extreme { greatest, other }))
    }
}

/// Whether `a` is a better candidate than `b`.
fn is_better<T: Ordered>(greatest: bool, a: T::Native, b: T::Native) -> bool {
    let order = T::order(a, b);
    if greatest { order.is_gt() } else { order.is_lt() }
}

/// Whether `max`, or else `min`, prefers the first of two doubles.
pub(crate) fn double_is_wanted(greatest: bool, a: f64, b: f64) -> bool {
    is_better::<Float64Type>(greatest, a, b)
}

impl AggregateUDFImpl for Extreme {
    fn name(&self) -> &str {
        self.other.name()
    }

    fn signature(&self) -> &Signature {
        self.other.signature()
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        self.other.coerce_types(given)
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        self.other.return_type(given)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.accumulate(args, false)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.accumulate(args, true)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.other.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.other.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        let greatest = self.greatest;
        match args.return_field.data_type() {
            DataType::Float64 => Ok(Box::new(ExtremeGroups::<Float64Type> { greatest, values: Vec::new() })),
            DataType::Float32 => Ok(Box::new(ExtremeGroups::<Float32Type> { greatest, values: Vec::new() })),
            DataType::Float16 => Ok(Box::new(ExtremeGroups::<Float16Type> { greatest, values: Vec::new() })),
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                Ok(Box::new(ExtremeGroups::<IntervalMonthDayNanoType> { greatest, values: Vec::new() }))
            }
            _ => self.other.create_groups_accumulator(args),
        }
    }

    fn is_descending(&self) -> Option<bool> {
        self.other.is_descending()
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.other.simplify()
    }

    as_in_other!();
}

impl Extreme {
    fn accumulate(&self, args: AccumulatorArgs<'_>, sliding: bool) -> Result<Box<dyn Accumulator>> {
        fn of<T: Ordered>(greatest: bool, sliding: bool) -> Box<dyn Accumulator> {
            Box::new(ExtremeAccumulator::<T> { greatest, sliding, best: VecDeque::new(), seen: 0, removed: 0 })
        }
        let greatest = self.greatest;
        match args.return_field.data_type() {
            DataType::Float64 => Ok(of::<Float64Type>(greatest, sliding)),
            DataType::Float32 => Ok(of::<Float32Type>(greatest, sliding)),
            DataType::Float16 => Ok(of::<Float16Type>(greatest, sliding)),
            DataType::Interval(IntervalUnit::MonthDayNano) => Ok(of::<IntervalMonthDayNanoType>(greatest, sliding)),
            _ if sliding => self.other.create_sliding_accumulator(args),
            _ => self.other.accumulator(args),
        }
    }
}

/// The minimum or maximum of one group: candidates with their rows, the best one first; the others only matter when
/// rows leave a frame.
struct ExtremeAccumulator<T: Ordered> {
    greatest: bool,
    sliding: bool,
    best: VecDeque<(u64, T::Native)>,
    seen: u64,
    removed: u64,
}

impl<T: Ordered> fmt::Debug for ExtremeAccumulator<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtremeAccumulator")
            .field("greatest", &self.greatest)
            .field("best", &self.best)
            .finish_non_exhaustive()
    }
}

impl<T: Ordered> Accumulator for ExtremeAccumulator<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = canonical_array(Arc::clone(&values[0]));
        for value in values.as_primitive::<T>() {
            self.seen += 1;
            let Some(value) = value else { continue };
            while self.best.back().is_some_and(|(_, old)| !is_better::<T>(self.greatest, *old, value)) {
                self.best.pop_back();
            }
            if self.sliding || self.best.is_empty() {
                self.best.push_back((self.seen, value));
            }
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.removed += values[0].len() as u64;
        while self.best.front().is_some_and(|(row, _)| *row <= self.removed) {
            self.best.pop_front();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let best = self.best.front().map(|(_, value)| *value);
        ScalarValue::try_from_array(&PrimitiveArray::<T>::from_iter([best]), 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.best.capacity() * size_of::<(u64, T::Native)>()
    }
}

/// The minimum or maximum of each group.
struct ExtremeGroups<T: Ordered> {
    greatest: bool,
    values: Vec<Option<T::Native>>,
}

impl<T: Ordered> GroupsAccumulator for ExtremeGroups<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.values.resize(total, None);
        let greatest = self.greatest;
        for (at, value) in values[0].as_primitive::<T>().iter().enumerate() {
            let Some(value) = value.filter(|_| filter.is_none_or(|f| f.is_valid(at) && f.value(at))) else { continue };
            let best = &mut self.values[groups[at]];
            if best.is_none_or(|best| is_better::<T>(greatest, value, best)) {
                *best = Some(value);
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.update_batch(states, groups, None, total)
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let values = emit.take_needed(&mut self.values);
        Ok(canonical_array(Arc::new(PrimitiveArray::<T>::from_iter(values))))
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit)?])
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let passes = |at: usize| filter.is_none_or(|f| f.is_valid(at) && f.value(at));
        let values = values[0].as_primitive::<T>().iter().enumerate();
        Ok(vec![Arc::new(values.map(|(at, value)| value.filter(|_| passes(at))).collect::<PrimitiveArray<T>>())])
    }

    fn size(&self) -> usize {
        self.values.capacity() * size_of::<Option<T::Native>>()
    }
}
