//! Values whose text form in PostgreSQL differs from that of the encoder of all types: floating-point numbers that are not finite
//! or -0, and times and intervals within arrays, which stand in quotes.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, Float32Type, Float64Type};
use arrow_pg::encoder::{Encoder, encode_value};
use bytes::{BufMut, BytesMut};
use pgwire::api::results::{DataRowEncoder, FieldFormat, FieldInfo};
use pgwire::error::PgWireResult;
use pgwire::messages::data::DataRow;
use pgwire::types::ToSqlText;
use pgwire::types::format::FormatOptions;
use postgres_types::{IsNull, ToSql, Type, to_sql_checked};
use std::error::Error;

type Written = Result<IsNull, Box<dyn Error + Sync + Send>>;

/// Encodes a value that is not null.
pub(super) fn encode(
    encoder: &mut DataRowEncoder,
    column: &ArrayRef,
    row: usize,
    field: &Field,
    info: &FieldInfo,
) -> PgWireResult<()> {
    let items = match column.data_type() {
        DataType::Float32 => {
            let value = Float(column.as_primitive::<Float32Type>().value(row));
            return Encoder::encode_field(encoder, &value, info);
        }
        DataType::Float64 => {
            let value = Float(column.as_primitive::<Float64Type>().value(row));
            return Encoder::encode_field(encoder, &value, info);
        }
        DataType::List(_) => column.as_list::<i32>().value(row),
        DataType::LargeList(_) => column.as_list::<i64>().value(row),
        DataType::FixedSizeList(..) => column.as_fixed_size_list().value(row),
        _ => return encode_value(encoder, column, row, field, info),
    };
    match items.data_type() {
        DataType::Float32 => {
            let values: Vec<_> = items.as_primitive::<Float32Type>().iter().map(|value| value.map(Float)).collect();
            Encoder::encode_field(encoder, &values, info)
        }
        DataType::Float64 => {
            let values: Vec<_> = items.as_primitive::<Float64Type>().iter().map(|value| value.map(Float)).collect();
            Encoder::encode_field(encoder, &values, info)
        }
        kind if kind.is_temporal() && info.format() == FieldFormat::Text => {
            encode_value(&mut Quoting(encoder), column, row, field, info)
        }
        _ => encode_value(encoder, column, row, field, info),
    }
}

/// A floating-point number.
#[derive(Debug)]
struct Float<T>(T);

impl<T: ToSqlText + Copy + Into<f64>> ToSqlText for Float<T> {
    fn to_sql_text(&self, kind: &Type, out: &mut BytesMut, options: &FormatOptions) -> Written {
        let value: f64 = self.0.into();
        let text: &[u8] = match value {
            f64::INFINITY => b"Infinity",
            f64::NEG_INFINITY => b"-Infinity",
            value if value == 0.0 && value.is_sign_negative() => b"-0",
            _ => return self.0.to_sql_text(kind, out, options),
        };
        out.put_slice(text);
        Ok(IsNull::No)
    }
}

impl<T: ToSql> ToSql for Float<T> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Written {
        self.0.to_sql(kind, out)
    }

    fn accepts(kind: &Type) -> bool {
        T::accepts(kind)
    }

    to_sql_checked!();
}

/// Puts the items of an array in quotes where they contain spaces. None of them contains a comma or a quote.
struct Quoting<'a>(&'a mut DataRowEncoder);

impl Encoder for Quoting<'_> {
    type Item = DataRow;

    fn encode_field<T: ToSql + ToSqlText>(&mut self, value: &T, info: &FieldInfo) -> PgWireResult<()> {
        let mut plain = BytesMut::new();
        value.to_sql_text(info.datatype(), &mut plain, info.format_options())?;
        let plain = String::from_utf8_lossy(&plain);
        let items = plain.trim_matches(['{', '}']).split(',');
        let quoted = items.map(|item| if item.contains(' ') { format!("\"{item}\"") } else { item.to_owned() });
        let text = format!("{{{}}}", quoted.collect::<Vec<_>>().join(","));
        self.0.encode_field_with_type_and_format(&text, &Type::TEXT, FieldFormat::Text, info.format_options())
    }

    fn take_row(&mut self) -> DataRow {
        self.0.take_row()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        FixedSizeListArray, Float32Array, Float64Array, IntervalMonthDayNanoArray, ListArray, TimestampMicrosecondArray,
    };
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::IntervalMonthDayNano;
    use std::sync::Arc;

    /// The text of a column's only value.
    fn text(column: ArrayRef) -> String {
        let field = Arc::new(Field::new("x", column.data_type().clone(), true));
        let kind = arrow_pg::datatypes::field_into_pg_type(&field).unwrap();
        let info = FieldInfo::new("x".to_owned(), None, None, kind, FieldFormat::Text);
        let mut encoder = DataRowEncoder::new(Arc::new(vec![info.clone()]));
        encode(&mut encoder, &column, 0, &field, &info).unwrap();
        String::from_utf8(encoder.take_row().data[4..].to_vec()).unwrap()
    }

    fn list(items: ArrayRef) -> ArrayRef {
        let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
        Arc::new(ListArray::new(field, OffsetBuffer::from_lengths([items.len()]), items, None))
    }

    #[test]
    fn floating_point_numbers_are_written_as_postgres_writes_them() {
        for (value, expected) in [
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
            (f64::NAN, "NaN"),
            (-0.0, "-0"),
            (0.0, "0"),
            (1.5, "1.5"),
        ] {
            assert_eq!(text(Arc::new(Float64Array::from(vec![value]))), expected);
            assert_eq!(text(Arc::new(Float32Array::from(vec![value as f32]))), expected);
        }
        let values = Float64Array::from(vec![Some(f64::INFINITY), None, Some(-0.0), Some(2.5)]);
        assert_eq!(text(list(Arc::new(values))), "{Infinity,NULL,-0,2.5}");
        let item = Arc::new(Field::new_list_field(DataType::Float32, true));
        let values = Arc::new(Float32Array::from(vec![f32::NEG_INFINITY, 0.0]));
        assert_eq!(text(Arc::new(FixedSizeListArray::new(item, 2, values, None))), "{-Infinity,0}");
    }

    #[test]
    fn times_and_intervals_within_arrays_stand_in_quotes() {
        let times = TimestampMicrosecondArray::from(vec![Some(0), None]);
        assert_eq!(text(list(Arc::new(times.clone()))), "{\"1970-01-01 00:00:00.000000\",NULL}");
        assert_eq!(text(list(Arc::new(times.with_timezone("UTC").slice(0, 1)))), "{\"1970-01-01 00:00:00.000000+00\"}");
        let days = IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(0, 1, 0)]);
        assert_eq!(text(list(Arc::new(days))), "{\"1 day\"}");
        assert_eq!(text(list(Arc::new(TimestampMicrosecondArray::from(Vec::<i64>::new())))), "{}");
    }
}
