//! Sums and averages of doubles over a window that moves.
//!
//! DataFusion subtracts what leaves a window: an infinity or a NaN would stay in all later sums, and what was added to a large
//! value would be lost with it. Nothing is subtracted here.

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::Float64Type;
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::Accumulator;

/// The sum or the average of the values in a window, which leave it in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct SlidingTotal {
    average: bool,
    /// Sums of the older values: the last is of all of them, and each one before it lacks the oldest of the one after it.
    older: Vec<f64>,
    newer: Vec<f64>,
    /// Of the newer values.
    sum: f64,
}

impl SlidingTotal {
    pub(super) fn new(average: bool) -> SlidingTotal {
        SlidingTotal { average, ..SlidingTotal::default() }
    }

    fn forget_oldest(&mut self) {
        if self.older.is_empty() {
            let mut sum = 0.0;
            self.older.extend(self.newer.drain(..).rev().map(|value| {
                sum += value;
                sum
            }));
            self.sum = 0.0;
        }
        self.older.pop();
    }
}

impl Accumulator for SlidingTotal {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in values[0].as_primitive::<Float64Type>().iter().flatten() {
            self.newer.push(value);
            self.sum += value;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        (0..values[0].len() - values[0].null_count()).for_each(|_| self.forget_oldest());
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    #[expect(clippy::cast_precision_loss, reason = "an average is a double")]
    fn evaluate(&mut self) -> Result<ScalarValue> {
        let count = self.older.len() + self.newer.len();
        let sum = self.older.last().copied().unwrap_or_default() + self.sum;
        let total = if self.average { sum / count as f64 } else { sum };
        let total = if total.is_nan() { f64::NAN } else { total };
        Ok(ScalarValue::Float64((count > 0).then_some(total)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + (self.older.capacity() + self.newer.capacity()) * size_of::<f64>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("a sum over a moving window has no state")
    }

    fn merge_batch(&mut self, _states: &[ArrayRef]) -> Result<()> {
        internal_err!("a sum over a moving window has no state")
    }
}
