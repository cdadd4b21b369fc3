//! `array_sort` of intervals, by their length. DataFusion sorts them by months first.
//!
//! `quantile_disc`, `max(x, n)` and `min(x, n)` stand for texts that sort lists.

use super::floats::order_of_intervals;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray, PrimitiveArray, UInt64Array};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{SortOptions, take};
use datafusion::arrow::datatypes::{DataType, FieldRef, IntervalMonthDayNanoType, IntervalUnit};
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use datafusion::prelude::SessionContext;
use std::cmp::Ordering;
use std::sync::Arc;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// Puts the function in the place of DataFusion's.
pub(super) fn register(context: &SessionContext) -> Result<()> {
    let inner = context.udf("array_sort")?;
    context.register_udf(ScalarUDF::from(SortedList { inner }));
    Ok(())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SortedList {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for SortedList {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        self.inner.return_type(given)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let lists = match args.args.as_slice() {
            [lists, options @ ..] if is_of_intervals(&lists.data_type()) => options_of(options).map(|how| (lists, how)),
            _ => None,
        };
        let Some((lists, options)) = lists else { return self.inner.invoke_with_args(args) };
        match lists {
            ColumnarValue::Array(lists) => Ok(ColumnarValue::Array(sorted(lists.as_list(), options)?)),
            ColumnarValue::Scalar(list) => {
                let sorted = sorted(list.to_array()?.as_list(), options)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&sorted, 0)?))
            }
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

fn is_of_intervals(kind: &DataType) -> bool {
    matches!(kind, DataType::List(item) if *item.data_type() == INTERVAL)
}

/// The order that constant arguments describe; `None` if DataFusion's function has to refuse them.
fn options_of(given: &[ColumnarValue]) -> Option<SortOptions> {
    let word = |at: usize| match given.get(at) {
        None => Some(String::new()),
        Some(ColumnarValue::Scalar(word)) => word.try_as_str().flatten().map(str::to_uppercase),
        Some(ColumnarValue::Array(_)) => None,
    };
    let descending = match word(0)?.as_str() {
        "" | "ASC" => false,
        "DESC" => true,
        _ => return None,
    };
    match word(1)?.as_str() {
        "" | "NULLS FIRST" => Some(SortOptions { descending, nulls_first: true }),
        "NULLS LAST" => Some(SortOptions { descending, nulls_first: false }),
        _ => None,
    }
}

fn sorted(lists: &ListArray, options: SortOptions) -> Result<ArrayRef> {
    let DataType::List(item) = lists.data_type() else { return Ok(Arc::new(lists.clone())) };
    let values = lists.values().as_primitive::<IntervalMonthDayNanoType>();
    let mut order: Vec<u64> = Vec::with_capacity(values.len());
    let mut lengths = Vec::with_capacity(lists.len());
    for ends in lists.offsets().windows(2) {
        let (from, to) = (ends[0] as usize, ends[1] as usize);
        let mut places: Vec<usize> = (from..to).collect();
        places.sort_by(|a, b| compared(values, *a, *b, options));
        order.extend(places.into_iter().map(|place| place as u64));
        lengths.push(to - from);
    }
    let values = take(values, &UInt64Array::from(order), None)?;
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, lists.nulls().cloned())?))
}

fn compared(values: &PrimitiveArray<IntervalMonthDayNanoType>, a: usize, b: usize, options: SortOptions) -> Ordering {
    match (values.is_null(a), values.is_null(b)) {
        (false, false) => {
            let order = order_of_intervals(values.value(a), values.value(b));
            if options.descending { order.reverse() } else { order }
        }
        (a, b) if options.nulls_first => b.cmp(&a),
        (a, b) => a.cmp(&b),
    }
}
