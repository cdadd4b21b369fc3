//! Cells of Arrow as Python objects.

use crate::errors;
use crate::values::datetime_of;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, DecimalType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use ebbtide_query::output;
use pyo3::IntoPyObjectExt;
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
        DataType::Float32 => number!(Float32Type),
        DataType::Float64 => number!(Float64Type),
        DataType::Binary => Ok(PyBytes::new(py, column.as_binary::<i32>().value(row)).into_any()),
        DataType::LargeBinary => Ok(PyBytes::new(py, column.as_binary::<i64>().value(row)).into_any()),
        DataType::BinaryView => Ok(PyBytes::new(py, column.as_binary_view().value(row)).into_any()),
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
            py.import("decimal")?.call_method1("Decimal", (Decimal128Type::format_decimal(number, *precision, *scale),))
        }
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

fn list<'py>(py: Python<'py>, items: &dyn Array) -> PyResult<Bound<'py, PyAny>> {
    let items = (0..items.len()).map(|row| cell(py, items, row)).collect::<PyResult<Vec<_>>>()?;
    Ok(PyList::new(py, items)?.into_any())
}
