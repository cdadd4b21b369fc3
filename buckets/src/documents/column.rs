//! One field's values while documents are read.

use crate::build::{NULL, build_array};
use crate::schema::FieldType;
use arrow::array::{ArrayBuilder, ArrayRef, Float64Builder, Int64Array, Int64Builder, PrimitiveBuilder};
use arrow::datatypes::ArrowPrimitiveType;
use ebbtide_ttl::{Precision, Value, exact_int};
use std::sync::Arc;

/// The values of a field so far, one for each document up to the last that had one. Numbers are taken as they come, since most
/// fields hold numbers; anything else is looked at again when its type is known.
#[derive(Debug, Default)]
pub(super) enum Column<'a> {
    /// No value yet.
    #[default]
    Empty,
    /// With the documents that had -0.0, which tells itself from 0 only among doubles.
    Ints(Int64Builder, Vec<usize>),
    Doubles(Float64Builder),
    Others(Vec<&'a Value>),
}

impl<'a> Column<'a> {
    /// A column of a field whose type is known, with room for the given number of documents.
    pub(super) fn of(ty: &FieldType, rows: usize) -> Column<'a> {
        match ty {
            FieldType::Int64 => Column::Ints(Int64Builder::with_capacity(rows), Vec::new()),
            FieldType::Double => Column::Doubles(Float64Builder::with_capacity(rows)),
            _ => Column::Empty,
        }
    }

    /// Appends the value of document `row`. Its type was checked: where doubles come after whole numbers,
    /// they become doubles.
    #[expect(clippy::cast_precision_loss, reason = "ints that a double cannot hold were refused before")]
    pub(super) fn put(&mut self, row: usize, value: &'a Value) {
        match (&mut *self, value) {
            (_, Value::Null) => {}
            (Column::Doubles(doubles), Value::Double(d)) => append(doubles, row, *d),
            (Column::Doubles(doubles), Value::Int(i)) => append(doubles, row, *i as f64),
            (Column::Ints(ints, _), Value::Int(i)) => append(ints, row, *i),
            (Column::Ints(ints, negative_zeros), Value::Double(d)) => match exact_int(*d) {
                Some(i) => {
                    append(ints, row, i);
                    negative_zeros.extend((i == 0 && d.is_sign_negative()).then_some(row));
                }
                None => {
                    *self = Column::Doubles(widened(&ints.finish(), negative_zeros));
                    self.put(row, value);
                }
            },
            (Column::Others(values), _) => {
                values.resize(row, &NULL);
                values.push(value);
            }
            (Column::Empty, Value::Int(_) | Value::Double(_)) => {
                *self = match value {
                    Value::Int(_) => Column::Ints(Int64Builder::new(), Vec::new()),
                    _ => Column::Doubles(Float64Builder::new()),
                };
                self.put(row, value);
            }
            (Column::Empty, _) => {
                *self = Column::Others(Vec::new());
                self.put(row, value);
            }
            (Column::Ints(..) | Column::Doubles(_), _) => {}
        }
    }

    /// The column of all `rows` documents, for a field that came to have this type.
    pub(super) fn finish(self, ty: &FieldType, rows: usize, precision: Precision) -> ArrayRef {
        match (self, ty) {
            (Column::Ints(mut ints, _), FieldType::Int64) => {
                pad(&mut ints, rows);
                Arc::new(ints.finish())
            }
            (Column::Doubles(mut doubles), FieldType::Double) => {
                pad(&mut doubles, rows);
                Arc::new(doubles.finish())
            }
            (Column::Others(mut values), ty) => {
                values.resize(rows, &NULL);
                build_array(ty, &values, precision)
            }
            (_, ty) => build_array(ty, &vec![&NULL; rows], precision),
        }
    }
}

fn append<T: ArrowPrimitiveType>(column: &mut PrimitiveBuilder<T>, row: usize, value: T::Native) {
    pad(column, row);
    column.append_value(value);
}

/// Makes the documents up to `rows` that had no value nulls.
fn pad<T: ArrowPrimitiveType>(column: &mut PrimitiveBuilder<T>, rows: usize) {
    let missing = rows - column.len();
    if missing > 0 {
        column.append_nulls(missing);
    }
}

#[expect(clippy::cast_precision_loss, reason = "ints that a double cannot hold were refused before")]
fn widened(ints: &Int64Array, negative_zeros: &[usize]) -> Float64Builder {
    let mut doubles = Float64Builder::new();
    doubles.extend(ints.iter().map(|i| i.map(|i| i as f64)));
    negative_zeros.iter().for_each(|row| doubles.values_slice_mut()[*row] = -0.0);
    doubles
}
