//! Arguments of functions: their types, and errors about them.

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{AggregateUDF, ColumnarValue};
use std::sync::Arc;

/// An error about an argument of a function, such as `rate: argument 2 (time) is Utf8, a timestamp is wanted`.
pub(super) fn wrong<T>(function: &str, at: usize, what: &str, why: &str) -> Result<T> {
    plan_err!("{function}: argument {at} ({what}) {why}")
}

/// Whether an argument may be cast to a text without a change: a text, also one of a dictionary, or a null.
pub(super) fn is_text_or_null(kind: &DataType) -> bool {
    match kind {
        DataType::Dictionary(_, values) => values.is_string(),
        kind => kind.is_string() || kind.is_null(),
    }
}

/// Whether a type is that of differences of times.
pub(super) fn is_duration(kind: &DataType) -> bool {
    matches!(kind, DataType::Duration(_))
}

/// The results of a function for the rows of its arguments: a single value if these are constant.
pub(super) fn returned(results: ArrayRef, args: &[ColumnarValue]) -> Result<ColumnarValue> {
    let are_constant = args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    Ok(match are_constant {
        true => ColumnarValue::Scalar(ScalarValue::try_from_array(&results, 0)?),
        false => ColumnarValue::Array(results),
    })
}

pub(super) fn is_time(kind: &DataType) -> bool {
    matches!(kind, DataType::Timestamp(..) | DataType::Date32 | DataType::Date64)
}

/// The type in which aggregates compute with times of a type: dates are times in microseconds. `None` for other types.
pub(super) fn as_instant(kind: &DataType) -> Option<DataType> {
    match kind {
        DataType::Timestamp(..) => Some(kind.clone()),
        DataType::Date32 | DataType::Date64 => Some(DataType::Timestamp(TimeUnit::Microsecond, None)),
        _ => None,
    }
}

/// The types in which an aggregate of DataFusion takes arguments.
pub(super) fn coerced(given: &[DataType], function: &AggregateUDF) -> Result<Vec<DataType>> {
    let fields: Vec<FieldRef> = given.iter().map(|kind| Arc::new(Field::new("x", kind.clone(), true))).collect();
    Ok(fields_with_udf(&fields, function)?.iter().map(|field| field.data_type().clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Array, Int64Array};

    #[test]
    fn texts_may_be_those_of_a_dictionary() {
        let dictionary = |values| DataType::Dictionary(Box::new(DataType::Int32), Box::new(values));
        for text in [DataType::Utf8View, DataType::Null, dictionary(DataType::Utf8)] {
            assert!(is_text_or_null(&text), "{text}");
        }
        for other in [DataType::Binary, DataType::Int64, dictionary(DataType::Int64)] {
            assert!(!is_text_or_null(&other), "{other}");
        }
    }

    #[test]
    fn results_of_constants_are_constant() {
        let result = |values: Vec<i64>| -> ArrayRef { Arc::new(Int64Array::from(values)) };
        let constant = ColumnarValue::Scalar(ScalarValue::Int64(Some(1)));
        let constants = [constant.clone(), constant.clone()];
        assert!(matches!(returned(result(vec![7]), &constants), Ok(ColumnarValue::Scalar(_))));
        let none = [constant, ColumnarValue::Array(result(Vec::new()))];
        assert!(matches!(returned(result(Vec::new()), &none), Ok(ColumnarValue::Array(rows)) if rows.is_empty()));
    }
}
