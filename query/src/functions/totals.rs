//! `sum` and `avg`, with exact sums of integers.
//!
//! DataFusion's `sum` of integers wraps around, and its `avg` adds doubles. These two add 128-bit integers: a sum that
//! does not fit its column is an error, and an average converts the exact sum to a double before it divides. An average of times
//! is a time of the same type, rounded down; one of intervals is an interval. For other types they are DataFusion's, except for doubles in a moving window.

use super::arguments::{as_instant, coerced, wrong};
use super::floats::{as_in_other, canonical_array, canonical_scalar};
use super::mean_intervals::MeanInterval;
use super::sliding::SlidingTotal;
use crate::timestamp_coercion::is_interval;
use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Decimal128Array, Float64Array, Int64Array,
    PrimitiveArray, UInt64Array,
};
use datafusion::arrow::buffer::{BooleanBuffer, NullBuffer};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Int64Type, IntervalUnit, UInt64Type};
use datafusion::common::{Result, ScalarValue, exec_err, internal_err, not_impl_err};
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature, StatisticsArgs, Volatility,
};
use std::collections::HashMap;
use std::sync::Arc;

/// A sum of any number of 64-bit integers, as Arrow holds it.
const WIDE: DataType = DataType::Decimal128(38, 0);
const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// `sum` or `avg`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Total {
    average: bool,
    signature: Signature,
    /// DataFusion's function, for types other than integers and times.
    other: Arc<AggregateUDF>,
}

/// What is made of a sum of whole numbers.
#[derive(Debug, Clone)]
enum Made {
    Sum {
        signed: bool,
    },
    Average,
    /// The average as a time of this type.
    AverageTime(DataType),
}

impl Made {
    fn is_average(&self) -> bool {
        !matches!(self, Made::Sum { .. })
    }
}

impl Total {
    pub(super) fn udaf(average: bool) -> Arc<AggregateUDF> {
        let other = if average { avg_udaf() } else { sum_udaf() };
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(AggregateUDF::new_from_impl(Total { average, signature, other }))
    }

    /// What is made of whole numbers; `None` for types that are summed up by DataFusion's function.
    fn made(&self, fields: &[FieldRef]) -> Option<Made> {
        match (fields.first()?.data_type(), self.average) {
            (DataType::Int64, false) => Some(Made::Sum { signed: true }),
            (DataType::UInt64, false) => Some(Made::Sum { signed: false }),
            (DataType::Int64 | DataType::UInt64, true) => Some(Made::Average),
            (kind @ DataType::Timestamp(..), true) => Some(Made::AverageTime(kind.clone())),
            _ => None,
        }
    }

    fn averages_intervals(&self, fields: &[FieldRef]) -> bool {
        self.average && fields.first().is_some_and(|field| is_interval(field.data_type()))
    }
}

/// `sum`.
pub(crate) fn sum() -> Arc<AggregateUDF> {
    Total::udaf(false)
}

impl AggregateUDFImpl for Total {
    fn name(&self) -> &str {
        self.other.name()
    }

    fn aliases(&self) -> &[String] {
        self.other.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        if let [kind] = given {
            if kind.is_signed_integer() {
                return Ok(vec![DataType::Int64]);
            }
            if kind.is_unsigned_integer() {
                return Ok(vec![DataType::UInt64]);
            }
            if kind.is_string() {
                let name = self.name();
                let why = format!("is text, numbers are wanted; {name}(x::double) reads numbers from text");
                return wrong(name, 1, "value", &why);
            }
            if *kind == DataType::Boolean {
                let name = self.name();
                let why = format!(
                    "is a boolean, numbers are wanted; {name}(x::int) takes true for 1, and count(*) FILTER (WHERE x) counts what is true"
                );
                return wrong(name, 1, "value", &why);
            }
        }
        let own = |kind: &DataType| if is_interval(kind) { Some(INTERVAL) } else { as_instant(kind) };
        match given {
            [kind] if self.average => own(kind).map_or_else(|| coerced(given, &self.other), |own| Ok(vec![own])),
            _ => coerced(given, &self.other),
        }
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match given {
            [kind @ (DataType::Timestamp(..) | DataType::Interval(_))] if self.average => Ok(kind.clone()),
            _ => self.other.return_type(given),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match self.made(args.expr_fields) {
            Some(made) => {
                let seen = args.is_distinct.then(HashMap::new);
                Ok(Box::new(Sum { made, sum: 0, count: 0, seen }))
            }
            None if self.averages_intervals(args.expr_fields) && args.is_distinct => {
                not_impl_err!(
                    "avg(DISTINCT x) of intervals beside other aggregates; write avg(x) over SELECT DISTINCT x"
                )
            }
            None if self.averages_intervals(args.expr_fields) => Ok(Box::new(MeanInterval::default())),
            None => Ok(Box::new(CanonicalAccumulator(self.other.accumulator(args)?))),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match self.made(args.expr_fields) {
            Some(_) => self.accumulator(args),
            None if self.averages_intervals(args.expr_fields) => self.accumulator(args),
            None if !args.is_distinct
                && args.expr_fields.iter().all(|field| *field.data_type() == DataType::Float64) =>
            {
                Ok(Box::new(SlidingTotal::new(self.average)))
            }
            None => Ok(Box::new(CanonicalAccumulator(self.other.create_sliding_accumulator(args)?))),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let is_interval = self.averages_intervals(args.input_fields);
        if self.made(args.input_fields).is_none() && !is_interval {
            return self.other.state_fields(args);
        }
        let kind = if is_interval { INTERVAL } else { WIDE };
        let sum = Field::new(format_state_name(args.name, "sum"), kind, true);
        Ok(match (args.is_distinct, self.average) {
            (true, _) => {
                let item = Field::new_list_field(WIDE, true);
                vec![Arc::new(Field::new_list(format_state_name(args.name, "distinct"), item, false))]
            }
            (false, true) => {
                vec![Arc::new(Field::new(format_state_name(args.name, "count"), DataType::UInt64, true)), Arc::new(sum)]
            }
            (false, false) => vec![Arc::new(sum)],
        })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        match self.made(args.expr_fields) {
            Some(_) => !args.is_distinct,
            None => !self.averages_intervals(args.expr_fields) && self.other.groups_accumulator_supported(args),
        }
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        match self.made(args.expr_fields) {
            Some(made) => Ok(Box::new(Sums { made, sums: Vec::new(), counts: Vec::new() })),
            None => Ok(Box::new(CanonicalGroups(self.other.create_groups_accumulator(args)?))),
        }
    }

    as_in_other!();
}

/// A sum in the type of its column.
fn fitting(sum: i128, signed: bool) -> Result<ScalarValue> {
    let fitted = match signed {
        true => i64::try_from(sum).ok().map(|sum| ScalarValue::Int64(Some(sum))),
        false => u64::try_from(sum).ok().map(|sum| ScalarValue::UInt64(Some(sum))),
    };
    match fitted {
        Some(sum) => Ok(sum),
        None => beyond(sum),
    }
}

/// The error about a sum of whole numbers that does not fit.
pub(crate) fn beyond<T>(sum: i128) -> Result<T> {
    exec_err!(
        "sum: overflow: {sum} does not fit a 64-bit integer; sum(x::double) is a double, and \
         sum(x::decimal(38, 0)) is exact"
    )
}

#[expect(clippy::cast_precision_loss, reason = "an average is a double")]
fn divided(sum: i128, count: u64) -> f64 {
    sum as f64 / count as f64
}

/// The average of times, rounded down; it lies between them.
fn average_units(sum: i128, count: u64) -> Option<i64> {
    i64::try_from(sum.checked_div_euclid(i128::from(count))?).ok()
}

fn each_whole(values: &ArrayRef, mut add: impl FnMut(usize, i128)) -> Result<()> {
    fn each<T: ArrowPrimitiveType>(values: &PrimitiveArray<T>, mut add: impl FnMut(usize, i128))
    where
        T::Native: Into<i128>,
    {
        match values.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => values.values().iter().enumerate().for_each(|(at, value)| add(at, (*value).into())),
            Some(nulls) => nulls.valid_indices().for_each(|at| add(at, values.value(at).into())),
        }
    }
    match values.data_type() {
        DataType::Int64 => each(values.as_primitive::<Int64Type>(), &mut add),
        DataType::UInt64 => each(values.as_primitive::<UInt64Type>(), &mut add),
        DataType::Decimal128(..) => each(values.as_primitive::<Decimal128Type>(), &mut add),
        DataType::Timestamp(..) => each(cast(values, &DataType::Int64)?.as_primitive::<Int64Type>(), &mut add),
        other => return internal_err!("a sum of integers was given {other}"),
    }
    Ok(())
}

/// The sum of one group.
#[derive(Debug)]
struct Sum {
    made: Made,
    sum: i128,
    count: u64,
    /// For DISTINCT: the values, and how often each one occurs.
    seen: Option<HashMap<i128, u64>>,
}

impl Accumulator for Sum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let Sum { sum, count, seen, .. } = self;
        each_whole(&values[0], |_, value| {
            let times = seen.as_mut().map(|seen| seen.entry(value).or_default());
            if times.as_ref().is_none_or(|times| **times == 0) {
                *sum += value;
                *count += 1;
            }
            if let Some(times) = times {
                *times += 1;
            }
        })
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let Sum { sum, count, seen, .. } = self;
        each_whole(&values[0], |_, value| {
            if let Some(seen) = seen {
                if let Some(times) = seen.get_mut(&value).filter(|times| **times > 1) {
                    *times -= 1;
                    return;
                }
                seen.remove(&value);
            }
            *sum -= value;
            *count -= 1;
        })
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        match (&self.made, self.count) {
            (Made::AverageTime(kind), count) => {
                let units = Int64Array::from(vec![average_units(self.sum, count)]);
                ScalarValue::try_from_array(&cast(&units, kind)?, 0)
            }
            (Made::Average, 0) => Ok(ScalarValue::Float64(None)),
            (Made::Average, count) => Ok(ScalarValue::Float64(Some(divided(self.sum, count)))),
            (Made::Sum { signed: true }, 0) => Ok(ScalarValue::Int64(None)),
            (Made::Sum { signed: false }, 0) => Ok(ScalarValue::UInt64(None)),
            (Made::Sum { signed }, _) => fitting(self.sum, *signed),
        }
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let wide = |value: Option<i128>| ScalarValue::Decimal128(value, 38, 0);
        if let Some(seen) = &self.seen {
            let values: Vec<ScalarValue> = seen.keys().map(|value| wide(Some(*value))).collect();
            return Ok(vec![ScalarValue::List(ScalarValue::new_list_nullable(&values, &WIDE))]);
        }
        let sum = wide((self.count > 0).then_some(self.sum));
        Ok(if self.made.is_average() { vec![ScalarValue::UInt64(Some(self.count)), sum] } else { vec![sum] })
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        if self.seen.is_some() {
            for values in states[0].as_list::<i32>().iter().flatten() {
                self.update_batch(&[values])?;
            }
            return Ok(());
        }
        let Sum { made, sum, count, .. } = self;
        if made.is_average() {
            each_whole(&states[0], |_, more| *count += u64::try_from(more).unwrap_or_default())?;
            return each_whole(&states[1], |_, value| *sum += value);
        }
        each_whole(&states[0], |_, value| {
            *sum += value;
            *count += 1;
        })
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.seen.as_ref().map_or(0, |seen| seen.capacity() * size_of::<(i128, u64)>())
    }
}

/// The sums of groups.
#[derive(Debug)]
struct Sums {
    made: Made,
    sums: Vec<i128>,
    /// Number of values added; a sum of no values is null.
    counts: Vec<u64>,
}

fn passes(filter: Option<&BooleanArray>, at: usize) -> bool {
    filter.is_none_or(|filter| filter.is_valid(at) && filter.value(at))
}

fn nulls_of(counts: &[u64]) -> NullBuffer {
    NullBuffer::new(BooleanBuffer::from_iter(counts.iter().map(|count| *count > 0)))
}

fn wide_array(sums: Vec<i128>, nulls: NullBuffer) -> Result<ArrayRef> {
    Ok(Arc::new(Decimal128Array::new(sums.into(), Some(nulls)).with_precision_and_scale(38, 0)?))
}

impl GroupsAccumulator for Sums {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.sums.resize(total, 0);
        self.counts.resize(total, 0);
        let Sums { sums, counts, .. } = self;
        each_whole(&values[0], |at, value| {
            if passes(filter, at) {
                sums[groups[at]] += value;
                counts[groups[at]] += 1;
            }
        })
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        if !self.made.is_average() {
            return self.update_batch(states, groups, None, total);
        }
        self.sums.resize(total, 0);
        self.counts.resize(total, 0);
        let Sums { sums, counts, .. } = self;
        each_whole(&states[0], |at, more| counts[groups[at]] += u64::try_from(more).unwrap_or_default())?;
        each_whole(&states[1], |at, value| sums[groups[at]] += value)
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let (sums, counts) = (emit.take_needed(&mut self.sums), emit.take_needed(&mut self.counts));
        let nulls = Some(nulls_of(&counts));
        match &self.made {
            Made::AverageTime(kind) => {
                let units = sums.into_iter().zip(counts).map(|(sum, count)| average_units(sum, count));
                Ok(cast(&units.collect::<Int64Array>(), kind)?)
            }
            Made::Average => {
                let values: Vec<f64> = sums.into_iter().zip(counts).map(|(sum, count)| divided(sum, count)).collect();
                Ok(Arc::new(Float64Array::new(values.into(), nulls)))
            }
            Made::Sum { signed: true } => {
                let values: Result<Vec<i64>> =
                    sums.into_iter().map(|sum| i64::try_from(sum).or_else(|_| beyond(sum))).collect();
                Ok(Arc::new(Int64Array::new(values?.into(), nulls)))
            }
            Made::Sum { signed: false } => {
                let values: Result<Vec<u64>> =
                    sums.into_iter().map(|sum| u64::try_from(sum).or_else(|_| beyond(sum))).collect();
                Ok(Arc::new(UInt64Array::new(values?.into(), nulls)))
            }
        }
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        let (sums, counts) = (emit.take_needed(&mut self.sums), emit.take_needed(&mut self.counts));
        let sums = wide_array(sums, nulls_of(&counts))?;
        Ok(if self.made.is_average() { vec![Arc::new(UInt64Array::from(counts)), sums] } else { vec![sums] })
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let rows = values[0].len();
        let (mut sums, mut counts) = (vec![0; rows], vec![0; rows]);
        each_whole(&values[0], |at, value| {
            if passes(filter, at) {
                (sums[at], counts[at]) = (value, 1);
            }
        })?;
        let sums = wide_array(sums, nulls_of(&counts))?;
        Ok(if self.made.is_average() { vec![Arc::new(UInt64Array::from(counts)), sums] } else { vec![sums] })
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.counts.capacity() * size_of::<u64>()
    }
}

/// An accumulator that returns the canonical NaN: adding infinities produces a negative one.
#[derive(Debug)]
pub(super) struct CanonicalAccumulator(pub(super) Box<dyn Accumulator>);

impl Accumulator for CanonicalAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.0.evaluate().map(canonical_scalar)
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.0.supports_retract_batch()
    }
}

/// The same for groups.
pub(super) struct CanonicalGroups(pub(super) Box<dyn GroupsAccumulator>);

impl GroupsAccumulator for CanonicalGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.0.update_batch(values, groups, filter, total)
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        self.0.evaluate(emit).map(canonical_array)
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        self.0.state(emit)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.0.merge_batch(states, groups, total)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.0.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}
