//! Cells of Arrow as Python objects.

use crate::errors;
use crate::values::datetime_of;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DecimalType,
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType, Float16Type,
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Time32MillisecondType, Time32SecondType,
    Time64MicrosecondType, Time64NanosecondType, TimeUnit, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use chrono::{NaiveTime, TimeDelta, Timelike};
use ebbtide_query::output;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use std::sync::Arc;

/// Appends the rows of a batch to a list, each as a tuple.
pub(crate) fn tuples(rows: &Bound<'_, PyList>, batch: &RecordBatch) -> PyResult<()> {
    let py = rows.py();
    let plain = |column: &ArrayRef| match column.data_type() {
        DataType::Dictionary(_, values) => cast(column, values),
        _ => Ok(Arc::clone(column)),
    };
    let columns = batch.columns().iter().map(plain).collect::<Result<Vec<_>, _>>();
    let columns = columns.map_err(|error| errors::internal(py, &error.to_string()))?;
    for row in 0..batch.num_rows() {
        let cells = columns.iter().map(|column| cell(py, column.as_ref(), row));
        rows.append(PyTuple::new(py, cells.collect::<PyResult<Vec<_>>>()?)?)?;
    }
    Ok(())
}

/// The value of a cell.
fn cell<'py>(py: Python<'py>, column: &dyn Array, row: usize) -> PyResult<Bound<'py, PyAny>> {
    if column.is_null(row) {
        return Ok(py.None().into_bound(py));
    }
    macro_rules! number {
        ($kind:ty) => {
            column.as_primitive::<$kind>().value(row).into_bound_py_any(py)
        };
    }
    match column.data_type() {
        DataType::Boolean => column.as_boolean().value(row).into_bound_py_any(py),
        DataType::Int8 => number!(Int8Type),
        DataType::Int16 => number!(Int16Type),
        DataType::Int32 => number!(Int32Type),
        DataType::Int64 => number!(Int64Type),
        DataType::UInt8 => number!(UInt8Type),
        DataType::UInt16 => number!(UInt16Type),
        DataType::UInt32 => number!(UInt32Type),
        DataType::UInt64 => number!(UInt64Type),
        DataType::Float16 => column.as_primitive::<Float16Type>().value(row).to_f64().into_bound_py_any(py),
        DataType::Float32 => number!(Float32Type),
        DataType::Float64 => number!(Float64Type),
        DataType::Binary => Ok(PyBytes::new(py, column.as_binary::<i32>().value(row)).into_any()),
        DataType::LargeBinary => Ok(PyBytes::new(py, column.as_binary::<i64>().value(row)).into_any()),
        DataType::BinaryView => Ok(PyBytes::new(py, column.as_binary_view().value(row)).into_any()),
        DataType::FixedSizeBinary(_) => Ok(PyBytes::new(py, column.as_fixed_size_binary().value(row)).into_any()),
        DataType::Timestamp(..) => match output::instant(column, row) {
            Some(instant) => datetime_of(py, instant),
            None => Err(errors::internal(py, "a time that is none")),
        },
        DataType::Date32 => {
            let days = column.as_primitive::<Date32Type>();
            days.value_as_date(row).into_bound_py_any(py)
        }
        DataType::Decimal128(precision, scale) => {
            let number = column.as_primitive::<Decimal128Type>().value(row);
            decimal(py, &Decimal128Type::format_decimal(number, *precision, *scale))
        }
        DataType::Decimal32(precision, scale) => {
            let number = column.as_primitive::<Decimal32Type>().value(row);
            decimal(py, &Decimal32Type::format_decimal(number, *precision, *scale))
        }
        DataType::Decimal64(precision, scale) => {
            let number = column.as_primitive::<Decimal64Type>().value(row);
            decimal(py, &Decimal64Type::format_decimal(number, *precision, *scale))
        }
        DataType::Decimal256(precision, scale) => {
            let number = column.as_primitive::<Decimal256Type>().value(row);
            decimal(py, &Decimal256Type::format_decimal(number, *precision, *scale))
        }
        DataType::Duration(unit) => {
            let micros = match unit {
                TimeUnit::Second => column.as_primitive::<DurationSecondType>().value(row).checked_mul(1_000_000),
                TimeUnit::Millisecond => column.as_primitive::<DurationMillisecondType>().value(row).checked_mul(1_000),
                TimeUnit::Microsecond => Some(column.as_primitive::<DurationMicrosecondType>().value(row)),
                TimeUnit::Nanosecond => {
                    Some(column.as_primitive::<DurationNanosecondType>().value(row).div_euclid(1_000))
                }
            };
            let far = || PyOverflowError::new_err("a duration is longer than a timedelta can be: read it as Arrow");
            TimeDelta::microseconds(micros.ok_or_else(far)?).into_bound_py_any(py)
        }
        DataType::Time32(TimeUnit::Second) => time(py, column.as_primitive::<Time32SecondType>().value_as_time(row)),
        DataType::Time32(_) => time(py, column.as_primitive::<Time32MillisecondType>().value_as_time(row)),
        DataType::Time64(TimeUnit::Nanosecond) => {
            time(py, column.as_primitive::<Time64NanosecondType>().value_as_time(row))
        }
        DataType::Time64(_) => time(py, column.as_primitive::<Time64MicrosecondType>().value_as_time(row)),
        DataType::Dictionary(_, values) => {
            let plain =
                cast(&column.slice(row, 1), values).map_err(|error| errors::internal(py, &error.to_string()))?;
            cell(py, plain.as_ref(), 0)
        }
        DataType::FixedSizeList(..) => list(py, column.as_fixed_size_list().value(row).as_ref()),
        DataType::List(_) => list(py, column.as_list::<i32>().value(row).as_ref()),
        DataType::LargeList(_) => list(py, column.as_list::<i64>().value(row).as_ref()),
        DataType::Struct(fields) => {
            let (members, dict) = (column.as_struct(), PyDict::new(py));
            for (field, member) in fields.iter().zip(members.columns()) {
                dict.set_item(field.name(), cell(py, member.as_ref(), row)?)?;
            }
            Ok(dict.into_any())
        }
        // Text, and what Python has no type for: intervals and the like, as they are shown in a table.
        _ => output::text(column, row).into_bound_py_any(py),
    }
}

fn decimal<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("decimal")?.call_method1("Decimal", (text,))
}

/// A time of day, rounded down to microseconds.
fn time(py: Python<'_>, time: Option<NaiveTime>) -> PyResult<Bound<'_, PyAny>> {
    let time = time.and_then(|time| time.with_nanosecond(time.nanosecond() / 1_000 * 1_000));
    time.ok_or_else(|| errors::internal(py, "a time that is none"))?.into_bound_py_any(py)
}

fn list<'py>(py: Python<'py>, items: &dyn Array) -> PyResult<Bound<'py, PyAny>> {
    let items = (0..items.len()).map(|row| cell(py, items, row)).collect::<PyResult<Vec<_>>>()?;
    Ok(PyList::new(py, items)?.into_any())
}
