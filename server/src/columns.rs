//! Columns as members of documents of BSON, without values between for scalars.

use crate::reply;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Float64Type, Int64Type, TimeUnit};
use bson::raw::{CString, RawArrayBuf, RawBson, RawBsonRef, RawDocumentBuf};
use bson::{Binary, spec::BinarySubtype};
use ebbtide::buckets::{time_values, value_at};
use ebbtide_documents::{DocumentWriter, append_value_key};
use ebbtide_ttl::{Precision, Timestamp, Value};

/// A column, and the name of its members.
pub(crate) struct Column<'a> {
    name: CString,
    array: &'a ArrayRef,
    cells: Cells<'a>,
}

enum Cells<'a> {
    Bools(&'a BooleanArray),
    Ints(&'a Int64Array),
    Doubles(&'a Float64Array),
    Texts(&'a StringViewArray),
    Times(&'a [i64], Precision),
    Others,
}

/// A value as BSON; nothing for null, which is the same as missing.
pub(crate) fn bson_of(value: &Value) -> Option<RawBson> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(b) => RawBson::Boolean(*b),
        Value::Int(i) => reply::number(*i),
        Value::Double(d) => RawBson::Double(*d),
        Value::String(text) => RawBson::String(text.clone()),
        Value::Date(t) => RawBson::DateTime(reply::date(*t)),
        Value::Binary(bytes) => RawBson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: bytes.clone() }),
        Value::Array(items) => {
            let mut list = RawArrayBuf::new();
            items.iter().for_each(|item| list.push(bson_of(item).unwrap_or(RawBson::Null)));
            RawBson::Array(list)
        }
        Value::Object(members) => {
            let mut document = RawDocumentBuf::new();
            for (name, value) in members {
                if let Some(value) = bson_of(value) {
                    reply::append(&mut document, name, value);
                }
            }
            RawBson::Document(document)
        }
    })
}

/// The columns of a batch that have a name which a document may have.
pub(crate) fn columns_of(batch: &RecordBatch) -> Vec<Column<'_>> {
    let named = batch.schema_ref().fields().iter().zip(batch.columns());
    named
        .filter_map(|(field, array)| Some(Column::new(CString::try_from(field.name().as_str()).ok()?, array)))
        .collect()
}

impl<'a> Column<'a> {
    fn new(name: CString, array: &'a ArrayRef) -> Column<'a> {
        let times = |precision| time_values(array).map_or(Cells::Others, |times| Cells::Times(times, precision));
        let cells = match array.data_type() {
            DataType::Boolean => Cells::Bools(array.as_boolean()),
            DataType::Int64 => Cells::Ints(array.as_primitive::<Int64Type>()),
            DataType::Float64 => Cells::Doubles(array.as_primitive::<Float64Type>()),
            DataType::Utf8View => Cells::Texts(array.as_string_view()),
            DataType::Timestamp(TimeUnit::Millisecond, _) => times(Precision::Ms),
            DataType::Timestamp(TimeUnit::Microsecond, _) => times(Precision::Us),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => times(Precision::Ns),
            _ => Cells::Others,
        };
        Column { name, array, cells }
    }

    pub(crate) fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Appends what a row has to its document: nothing for a null.
    pub(crate) fn append(&self, row: usize, document: &mut DocumentWriter) {
        if self.array.is_null(row) {
            return;
        }
        let name = &self.name;
        match &self.cells {
            Cells::Bools(bools) => document.append(name, bools.value(row)),
            Cells::Ints(ints) => document.append(name, reply::number(ints.value(row)).as_raw_bson_ref()),
            Cells::Doubles(doubles) => document.append(name, doubles.value(row)),
            Cells::Texts(texts) => document.append(name, texts.value(row)),
            Cells::Times(times, precision) => {
                document.append(name, RawBsonRef::DateTime(reply::date(Timestamp::from_units(times[row], *precision))));
            }
            Cells::Others => {
                if let Some(value) = bson_of(&value_at(self.array.as_ref(), row)) {
                    document.append(name, value.as_raw_bson_ref());
                }
            }
        }
    }

    /// Appends the key by which what a row has is sorted: nothing for a null.
    pub(crate) fn append_key(&self, row: usize, key: &mut Vec<u8>) {
        match &self.cells {
            Cells::Texts(texts) if texts.is_valid(row) => append_value_key(key, RawBsonRef::String(texts.value(row))),
            _ => {
                if let Some(value) = bson_of(&value_at(self.array.as_ref(), row)) {
                    append_value_key(key, value.as_raw_bson_ref());
                }
            }
        }
    }
}
