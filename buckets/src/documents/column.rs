//! One field's values while documents are read.

use super::cell::Cell;
use crate::build::{NULL, build_array, timestamps};
use crate::schema::FieldType;
use arrow::array::{
    ArrayBuilder, ArrayRef, BinaryBuilder, BooleanBuilder, Float64Builder, Int64Array, Int64Builder, PrimitiveBuilder,
    StringViewBuilder,
};
use arrow::datatypes::ArrowPrimitiveType;
use ebbtide_ttl::{Precision, Value, exact_int};
use std::borrow::Cow;
use std::sync::Arc;

/// The values of a field so far, one for each document up to the last that had one. Scalars are taken as they come; lists and
/// objects are looked at again when their type is known.
#[derive(Debug, Default)]
pub(super) enum Column<'a> {
    /// No value yet.
    #[default]
    Empty,
    Bools(BooleanBuilder),
    /// With the documents that had -0.0, which tells itself from 0 only among doubles.
    Ints(Int64Builder, Vec<usize>),
    Doubles(Float64Builder),
    Strings(StringViewBuilder),
    /// In units of the precision.
    Times(Int64Builder),
    Binaries(BinaryBuilder),
    Nested(Vec<Cow<'a, Value>>),
}

impl<'a> Column<'a> {
    /// A column of a field whose type is known, with room for the given number of documents.
    pub(super) fn of(ty: &FieldType, rows: usize) -> Column<'a> {
        match ty {
            FieldType::Unknown => Column::Empty,
            FieldType::Bool => Column::Bools(BooleanBuilder::with_capacity(rows)),
            FieldType::Int64 => Column::Ints(Int64Builder::with_capacity(rows), Vec::new()),
            FieldType::Double => Column::Doubles(Float64Builder::with_capacity(rows)),
            FieldType::String => Column::Strings(StringViewBuilder::with_capacity(rows)),
            FieldType::Timestamp => Column::Times(Int64Builder::with_capacity(rows)),
            FieldType::Binary => Column::Binaries(BinaryBuilder::with_capacity(rows, 0)),
            FieldType::List(_) | FieldType::Object(_) => Column::Nested(Vec::with_capacity(rows)),
        }
    }

    /// Appends the value of document `row`. Its type was checked: where doubles come after whole numbers,
    /// they become doubles.
    #[expect(clippy::cast_precision_loss, reason = "ints that a double cannot hold were refused before")]
    pub(super) fn put(&mut self, row: usize, value: Cell<'a>, precision: Precision) {
        match (&mut *self, value) {
            (_, Cell::Null) => {}
            (Column::Empty, value) => {
                *self = match value {
                    Cell::Null => Column::Empty,
                    Cell::Bool(_) => Column::Bools(BooleanBuilder::new()),
                    Cell::Int(_) => Column::Ints(Int64Builder::new(), Vec::new()),
                    Cell::Double(_) => Column::Doubles(Float64Builder::new()),
                    Cell::String(_) => Column::Strings(StringViewBuilder::new()),
                    Cell::Date(_) => Column::Times(Int64Builder::new()),
                    Cell::Binary(_) => Column::Binaries(BinaryBuilder::new()),
                    Cell::Nested(_) => Column::Nested(Vec::new()),
                };
                self.put(row, value, precision);
            }
            (Column::Doubles(doubles), Cell::Double(d)) => append(doubles, row, d),
            (Column::Doubles(doubles), Cell::Int(i)) => append(doubles, row, i as f64),
            (Column::Ints(ints, _), Cell::Int(i)) => append(ints, row, i),
            (Column::Ints(ints, negative_zeros), Cell::Double(d)) => match exact_int(d) {
                Some(i) => {
                    append(ints, row, i);
                    negative_zeros.extend((i == 0 && d.is_sign_negative()).then_some(row));
                }
                None => {
                    *self = Column::Doubles(widened(&ints.finish(), negative_zeros));
                    self.put(row, Cell::Double(d), precision);
                }
            },
            (Column::Bools(bools), Cell::Bool(b)) => {
                bools.append_nulls(row - bools.len());
                bools.append_value(b);
            }
            (Column::Strings(texts), Cell::String(text)) => {
                (texts.len()..row).for_each(|_| texts.append_null());
                texts.append_value(&*text);
            }
            (Column::Times(times), Cell::Date(t)) => {
                if let Some(units) = t.to_units(precision) {
                    append(times, row, units);
                }
            }
            (Column::Binaries(binaries), Cell::Binary(bytes)) => {
                (binaries.len()..row).for_each(|_| binaries.append_null());
                binaries.append_value(&*bytes);
            }
            (Column::Nested(values), Cell::Nested(value)) => {
                values.resize(row, Cow::Borrowed(&NULL));
                values.push(value);
            }
            _ => {}
        }
    }

    /// The column of all `rows` documents, for a field that came to have this type.
    pub(super) fn finish(self, ty: &FieldType, rows: usize, precision: Precision) -> ArrayRef {
        match (self, ty) {
            (Column::Bools(mut bools), FieldType::Bool) => {
                bools.append_nulls(rows - bools.len());
                Arc::new(bools.finish())
            }
            (Column::Ints(mut ints, _), FieldType::Int64) => {
                pad(&mut ints, rows);
                Arc::new(ints.finish())
            }
            (Column::Doubles(mut doubles), FieldType::Double) => {
                pad(&mut doubles, rows);
                Arc::new(doubles.finish())
            }
            (Column::Strings(mut texts), FieldType::String) => {
                (texts.len()..rows).for_each(|_| texts.append_null());
                Arc::new(texts.finish())
            }
            (Column::Times(mut times), FieldType::Timestamp) => {
                pad(&mut times, rows);
                timestamps(times.finish().iter(), precision)
            }
            (Column::Binaries(mut binaries), FieldType::Binary) => {
                (binaries.len()..rows).for_each(|_| binaries.append_null());
                Arc::new(binaries.finish())
            }
            (Column::Nested(mut values), ty) => {
                values.resize(rows, Cow::Borrowed(&NULL));
                build_array(ty, &values.iter().map(AsRef::as_ref).collect::<Vec<_>>(), precision)
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
