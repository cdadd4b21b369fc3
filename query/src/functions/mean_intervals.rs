//! `avg` of intervals: their sum, divided as PostgreSQL divides an interval.

use super::intervals::quotient;
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{IntervalMonthDayNano, IntervalMonthDayNanoType, UInt64Type};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::Accumulator;

/// The intervals of one group.
#[derive(Debug, Default)]
pub(super) struct MeanInterval {
    months: i128,
    days: i128,
    nanos: i128,
    count: i128,
}

impl MeanInterval {
    /// Adds intervals, or takes them off with a `sign` of -1.
    fn add(&mut self, intervals: &ArrayRef, sign: i128) {
        for interval in intervals.as_primitive::<IntervalMonthDayNanoType>().iter().flatten() {
            self.months += sign * i128::from(interval.months);
            self.days += sign * i128::from(interval.days);
            self.nanos += sign * i128::from(interval.nanoseconds);
        }
    }

    fn sum(&self) -> Result<IntervalMonthDayNano> {
        let parts = (i32::try_from(self.months), i32::try_from(self.days), i64::try_from(self.nanos));
        match parts {
            (Ok(months), Ok(days), Ok(nanos)) => Ok(IntervalMonthDayNano::new(months, days, nanos)),
            _ => exec_err!("avg: overflow: the sum of the intervals does not fit an interval"),
        }
    }
}

fn values_of(intervals: &ArrayRef) -> i128 {
    (intervals.len() - intervals.null_count()) as i128
}

impl Accumulator for MeanInterval {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.count += values_of(&values[0]);
        self.add(&values[0], 1);
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.count -= values_of(&values[0]);
        self.add(&values[0], -1);
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.count == 0 {
            return Ok(ScalarValue::IntervalMonthDayNano(None));
        }
        match quotient(self.sum()?, self.count as f64) {
            Some(mean) => Ok(ScalarValue::IntervalMonthDayNano(Some(mean))),
            None => exec_err!("avg: overflow: the average of the intervals does not fit an interval"),
        }
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let count = u64::try_from(self.count).unwrap_or_default();
        Ok(vec![ScalarValue::UInt64(Some(count)), ScalarValue::IntervalMonthDayNano(Some(self.sum()?))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for count in states[0].as_primitive::<UInt64Type>().iter().flatten() {
            self.count += i128::from(count);
        }
        self.add(&states[1], 1);
        Ok(())
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}
