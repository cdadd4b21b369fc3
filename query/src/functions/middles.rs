//! `median` and `percentile_cont` of times and of differences of times, exact to their unit. Those of numbers are DataFusion's.

use super::arguments::{as_instant, coerced, is_duration, wrong};
use super::floats::Extreme;
use crate::timestamp_coercion::is_interval;
use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type, Schema};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::median::median_udaf;
use datafusion::functions_aggregate::percentile_cont::percentile_cont_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, Documentation, Expr, GroupsAccumulator, Signature,
    Volatility,
};
use std::collections::HashMap;
use std::mem::take;
use std::sync::Arc;

/// `median` or `percentile_cont`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Middle {
    signature: Signature,
    /// DataFusion's function, for numbers.
    other: Arc<AggregateUDF>,
}

/// The functions.
pub(super) fn functions() -> [Arc<AggregateUDF>; 2] {
    [median_udaf(), percentile_cont_udaf()].map(|other| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(AggregateUDF::new_from_impl(Middle { signature, other }))
    })
}

fn is_timed(kind: &DataType) -> bool {
    matches!(kind, DataType::Timestamp(..)) || is_duration(kind)
}

/// The type of the values, if they are times or differences of times.
fn timed(fields: &[FieldRef]) -> Option<&DataType> {
    fields.first().map(|field| field.data_type()).filter(|kind| is_timed(kind))
}

impl AggregateUDFImpl for Middle {
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
        let name = self.name();
        let Some(value) = given.first() else { return coerced(given, &self.other) };
        if value.is_string() {
            return wrong(name, 1, "value", "is text, numbers and times are wanted; x::double reads numbers from text");
        }
        if is_interval(value) {
            let why = "is an interval, numbers, times and differences of times are wanted";
            return wrong(name, 1, "value", why);
        }
        let kind = as_instant(value).or_else(|| is_duration(value).then(|| value.clone()));
        match (kind, &given[1..]) {
            (Some(kind), []) if !self.takes_fraction() => Ok(vec![kind]),
            (Some(kind), [fraction]) if self.takes_fraction() && (fraction.is_numeric() || fraction.is_null()) => {
                Ok(vec![kind, DataType::Float64])
            }
            _ => coerced(given, &self.other),
        }
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match given.first().filter(|kind| is_timed(kind)) {
            Some(kind) => Ok(kind.clone()),
            None => self.other.return_type(given),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match timed(args.expr_fields) {
            Some(kind) => {
                let fraction = fraction(self.name(), &args)?;
                let is_distinct = args.is_distinct;
                Ok(Box::new(TimesInOrder { kind: kind.clone(), fraction, is_distinct, values: Vec::new() }))
            }
            None => self.other.accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match timed(args.expr_fields) {
            Some(_) => self.accumulator(args),
            None => self.other.create_sliding_accumulator(args),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        if timed(args.input_fields).is_none() {
            return self.other.state_fields(args);
        }
        let item = Field::new_list_field(DataType::Int64, true);
        Ok(vec![Arc::new(Field::new_list(format_state_name(args.name, "values"), item, true))])
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        timed(args.expr_fields).is_none() && self.other.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        self.other.create_groups_accumulator(args)
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        let simplified = self.other.simplify()?;
        Some(Box::new(move |call, context| {
            let mut expr = simplified(call, context)?;
            if let Expr::AggregateFunction(call) = &mut expr {
                // DataFusion's depend on the order of rows if there is a NaN.
                let greatest = match call.func.name() {
                    "min" => Some(false),
                    "max" => Some(true),
                    _ => None,
                };
                if let Some(greatest) = greatest {
                    call.func = Extreme::udaf(greatest);
                }
            }
            Ok(expr)
        }))
    }

    fn supports_within_group_clause(&self) -> bool {
        self.takes_fraction()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.other.documentation()
    }
}

impl Middle {
    fn takes_fraction(&self) -> bool {
        self.other.supports_within_group_clause()
    }
}

/// The place of the wanted value among those in ascending order, from 0 to 1.
fn fraction(name: &str, args: &AccumulatorArgs<'_>) -> Result<f64> {
    let Some(given) = args.exprs.get(1) else { return Ok(0.5) };
    let no_row = RecordBatch::new_empty(Arc::new(Schema::empty()));
    match given.evaluate(&no_row) {
        Ok(ColumnarValue::Scalar(ScalarValue::Float64(Some(fraction)))) if (0.0..=1.0).contains(&fraction) => {
            let is_descending = args.order_bys.first().is_some_and(|key| key.options.descending);
            Ok(if is_descending { 1.0 - fraction } else { fraction })
        }
        _ => wrong(name, 2, "percentile", "must be a constant from 0 to 1"),
    }
}

/// The values of one group, as numbers of their unit.
#[derive(Debug)]
struct TimesInOrder {
    kind: DataType,
    fraction: f64,
    is_distinct: bool,
    values: Vec<i64>,
}

fn units(values: &ArrayRef) -> Result<ArrayRef> {
    Ok(cast(values, &DataType::Int64)?)
}

/// The value at a fraction of a sequence, rounded down between two; `None` if there are no values. The values get another order.
fn at_fraction(values: &mut [i64], fraction: f64) -> Option<i64> {
    let last = values.len().checked_sub(1)?;
    let place = fraction * last as f64;
    let part = place.fract();
    let (_, low, above) = values.select_nth_unstable((place.floor() as usize).min(last));
    let low = i128::from(*low);
    let high = above.iter().min().map_or(low, |high| i128::from(*high));
    let distance = high - low;
    // Half of a distance is exact, however long it is.
    let beyond = if part == 0.5 { distance / 2 } else { (distance as f64 * part).floor() as i128 };
    i64::try_from((low + beyond).min(high)).ok()
}

impl Accumulator for TimesInOrder {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.extend(units(&values[0])?.as_primitive::<Int64Type>().iter().flatten());
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let mut leaving: HashMap<i64, usize> = HashMap::new();
        for value in units(&values[0])?.as_primitive::<Int64Type>().iter().flatten() {
            *leaving.entry(value).or_default() += 1;
        }
        self.values.retain(|value| match leaving.get_mut(value) {
            Some(times) if *times > 0 => {
                *times -= 1;
                false
            }
            _ => true,
        });
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = if self.is_distinct {
            let mut values = self.values.clone();
            values.sort_unstable();
            values.dedup();
            at_fraction(&mut values, self.fraction)
        } else {
            at_fraction(&mut self.values, self.fraction)
        };
        ScalarValue::try_from_array(&cast(&Int64Array::from(vec![value]), &self.kind)?, 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values: ArrayRef = Arc::new(Int64Array::from(take(&mut self.values)));
        Ok(vec![SingleRowListArrayBuilder::new(values).build_list_scalar()])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for values in states[0].as_list::<i32>().iter().flatten() {
            self.update_batch(&[values])?;
        }
        Ok(())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<i64>()
    }
}

#[cfg(test)]
mod tests {
    use super::at_fraction;

    #[test]
    fn values_between_two_are_rounded_down() {
        let of = |values: &[i64], fraction| at_fraction(&mut values.to_vec(), fraction);
        assert_eq!(of(&[], 0.5), None);
        assert_eq!(of(&[7], 0.9), Some(7));
        assert_eq!(of(&[30, 10, 20], 0.5), Some(20));
        assert_eq!(of(&[4, 1], 0.5), Some(2));
        assert_eq!(of(&[-4, -1], 0.5), Some(-3));
        assert_eq!(of(&[0, 100], 0.25), Some(25));
        assert_eq!(of(&[0, 100], 1.0), Some(100));
        // A double holds neither number.
        assert_eq!(of(&[1_717_243_200_000_000_001, 1_717_243_200_000_000_003], 0.5), Some(1_717_243_200_000_000_002));
        assert_eq!(of(&[i64::MIN, i64::MAX], 0.5), Some(-1));
    }
}
