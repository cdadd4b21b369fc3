//! Aggregates that DataFusion answers wrongly, or not at all, over frames that move.
//!
//! Its variances subtract the values that leave a frame. Rounding can make the result negative, and its square root NaN. It has no
//! `bool_and` and `bool_or` for such frames. In any frame, the NaN that a processor computes from infinities is negative.

use super::floats::as_in_other;
use super::moments::{Moments, Spread};
use super::totals::{CanonicalAccumulator, CanonicalGroups};
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, FieldRef, Float64Type};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF, SetMonotonicity,
    Signature, StatisticsArgs,
};
use datafusion::prelude::SessionContext;
use std::collections::VecDeque;
use std::sync::Arc;

/// How a function is computed over a frame that moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Moving {
    Spread(Spread),
    /// Whether all values are true, or else one is.
    Truth {
        all: bool,
    },
    /// As DataFusion does.
    AsElsewhere,
}

const fn spread(is_of_sample: bool, is_root: bool) -> Moving {
    Moving::Spread(Spread { is_of_sample, is_root })
}

const FUNCTIONS: [(&str, Moving); 9] = [
    ("var", spread(true, false)),
    ("var_pop", spread(false, false)),
    ("stddev", spread(true, true)),
    ("stddev_pop", spread(false, true)),
    ("bool_and", Moving::Truth { all: true }),
    ("bool_or", Moving::Truth { all: false }),
    ("corr", Moving::AsElsewhere),
    ("covar_pop", Moving::AsElsewhere),
    ("covar_samp", Moving::AsElsewhere),
];

/// Puts functions of this module in the place of those of a session.
pub(super) fn register(context: &SessionContext) -> Result<()> {
    for (name, moving) in FUNCTIONS {
        let other = context.udaf(name)?;
        context.register_udaf(AggregateUDF::new_from_impl(MovingAggregate { other, moving }));
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct MovingAggregate {
    /// DataFusion's function.
    other: Arc<AggregateUDF>,
    moving: Moving,
}

impl AggregateUDFImpl for MovingAggregate {
    fn name(&self) -> &str {
        self.other.name()
    }

    fn aliases(&self) -> &[String] {
        self.other.aliases()
    }

    fn signature(&self) -> &Signature {
        self.other.signature()
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        self.other.return_type(given)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(CanonicalAccumulator(self.other.accumulator(args)?)))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match self.moving {
            Moving::Truth { all } => Ok(Box::new(SlidingTruth { all, yes: 0, no: 0 })),
            Moving::Spread(spread) if !args.is_distinct => {
                Ok(Box::new(SlidingSpread { spread, moments: Moments::default(), values: VecDeque::new() }))
            }
            _ => Ok(Box::new(CanonicalAccumulator(self.other.create_sliding_accumulator(args)?))),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.other.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.other.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(CanonicalGroups(self.other.create_groups_accumulator(args)?)))
    }

    as_in_other!();
}

/// A measure of spread of the values in a frame, which leave it in the order in which they came.
#[derive(Debug)]
struct SlidingSpread {
    spread: Spread,
    moments: Moments,
    values: VecDeque<f64>,
}

impl Accumulator for SlidingSpread {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in values[0].as_primitive::<Float64Type>().iter().flatten() {
            self.values.push_back(value);
            self.moments.add(value);
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let leaving = values[0].len() - values[0].null_count();
        for value in self.values.drain(..leaving) {
            self.moments.take_off(value);
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.moments.overflowed() {
            // What overflowed may have left the frame.
            self.moments = Moments::default();
            self.values.iter().for_each(|value| self.moments.add(*value));
        }
        Ok(ScalarValue::Float64(self.moments.spread(self.values.len() as u64, self.spread)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<f64>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("a variance over a moving window has no state")
    }

    fn merge_batch(&mut self, _states: &[ArrayRef]) -> Result<()> {
        internal_err!("a variance over a moving window has no state")
    }
}

/// How many values in a frame are true, and how many are not.
#[derive(Debug)]
struct SlidingTruth {
    all: bool,
    yes: usize,
    no: usize,
}

fn counted(values: &[ArrayRef]) -> (usize, usize) {
    let (values, yes) = (&values[0], values[0].as_boolean().true_count());
    (yes, values.len() - values.null_count() - yes)
}

impl Accumulator for SlidingTruth {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (yes, no) = counted(values);
        (self.yes, self.no) = (self.yes + yes, self.no + no);
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (yes, no) = counted(values);
        (self.yes, self.no) = (self.yes - yes, self.no - no);
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let holds = if self.all { self.no == 0 } else { self.yes > 0 };
        Ok(ScalarValue::Boolean((self.yes + self.no > 0).then_some(holds)))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("a condition over a moving window has no state")
    }

    fn merge_batch(&mut self, _states: &[ArrayRef]) -> Result<()> {
        internal_err!("a condition over a moving window has no state")
    }
}
