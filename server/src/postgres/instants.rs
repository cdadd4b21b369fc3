//! The forms in which instants in UTC are sent to clients. They are written digit by digit: a format string would be parsed anew
//! for each value.

use super::values::EPOCH_MICROS;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use bytes::{BufMut, BytesMut};
use chrono::{DateTime, Datelike, NaiveDateTime, Timelike};
use pgwire::types::ToSqlText;
use pgwire::types::format::FormatOptions;
use postgres_types::{IsNull, ToSql, Type, to_sql_checked};
use std::error::Error;

/// An instant of the years 0 to 9999.
#[derive(Debug)]
pub(super) struct Instant {
    micros: i64,
    parts: NaiveDateTime,
}

impl Instant {
    /// A value of a column; `None` if it is no such instant.
    pub(super) fn of(column: &ArrayRef, row: usize) -> Option<Instant> {
        let DataType::Timestamp(unit, zone) = column.data_type() else { return None };
        if zone.as_deref().is_some_and(|zone| zone != "UTC") {
            return None;
        }
        let micros = match unit {
            TimeUnit::Second => column.as_primitive::<TimestampSecondType>().value(row).checked_mul(1_000_000)?,
            TimeUnit::Millisecond => column.as_primitive::<TimestampMillisecondType>().value(row).checked_mul(1_000)?,
            TimeUnit::Microsecond => column.as_primitive::<TimestampMicrosecondType>().value(row),
            TimeUnit::Nanosecond => column.as_primitive::<TimestampNanosecondType>().value(row).div_euclid(1_000),
        };
        let parts = DateTime::from_timestamp_micros(micros)?.naive_utc();
        (0..=9999).contains(&parts.year()).then_some(Instant { micros, parts })
    }
}

/// `2024-05-06 07:08:09.000000`, with `+00` in a type with a time zone.
impl ToSqlText for Instant {
    fn to_sql_text(
        &self,
        kind: &Type,
        out: &mut BytesMut,
        _options: &FormatOptions,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let Instant { micros, parts } = self;
        number::<4>(out, "", parts.year().unsigned_abs());
        number::<2>(out, "-", parts.month());
        number::<2>(out, "-", parts.day());
        number::<2>(out, " ", parts.hour());
        number::<2>(out, ":", parts.minute());
        number::<2>(out, ":", parts.second());
        number::<6>(out, ".", u32::try_from(micros.rem_euclid(1_000_000))?);
        if *kind == Type::TIMESTAMPTZ {
            out.put_slice(b"+00");
        }
        Ok(IsNull::No)
    }
}

/// Appends what comes before a number, and its digits.
fn number<const DIGITS: usize>(out: &mut BytesMut, before: &str, mut number: u32) {
    out.put_slice(before.as_bytes());
    let mut digits = [b'0'; DIGITS];
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
    }
    out.put_slice(&digits);
}

impl ToSql for Instant {
    fn to_sql(&self, _kind: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_i64(self.micros - EPOCH_MICROS);
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::TIMESTAMP | Type::TIMESTAMPTZ)
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray,
    };
    use arrow::datatypes::Field;
    use arrow_pg::encoder::{Encoder, encode_value};
    use pgwire::api::results::{DataRowEncoder, FieldFormat, FieldInfo};
    use proptest::prelude::*;
    use std::sync::Arc;

    /// What a column's only value is sent as, by this module and by the encoder of all types.
    fn both(column: &ArrayRef, format: FieldFormat) -> (Option<Vec<u8>>, Vec<u8>) {
        let field = Field::new("t", column.data_type().clone(), false);
        let kind = arrow_pg::datatypes::field_into_pg_type(&Arc::new(field.clone())).unwrap();
        let info = FieldInfo::new("t".to_owned(), None, None, kind, format);
        let mut encoder = DataRowEncoder::new(Arc::new(vec![info.clone()]));
        let ours = Instant::of(column, 0).map(|instant| {
            Encoder::encode_field(&mut encoder, &instant, &info).unwrap();
            encoder.take_row().data.to_vec()
        });
        encode_value(&mut encoder, column, 0, &field, &info).unwrap();
        (ours, encoder.take_row().data.to_vec())
    }

    proptest! {
        #[test]
        fn whole_microseconds_are_sent_as_by_the_encoder_of_all_types(
            micros in prop_oneof![
                Just(0_i64), Just(-1), Just(EPOCH_MICROS), -62_167_219_200_000_000..253_402_300_800_000_000_i64
            ],
            has_zone: bool,
        ) {
            let zone = || has_zone.then_some("UTC");
            let columns: [ArrayRef; 4] = [
                Arc::new(TimestampSecondArray::from(vec![micros.div_euclid(1_000_000)]).with_timezone_opt(zone())),
                Arc::new(TimestampMillisecondArray::from(vec![micros.div_euclid(1_000)]).with_timezone_opt(zone())),
                Arc::new(TimestampMicrosecondArray::from(vec![micros]).with_timezone_opt(zone())),
                Arc::new(TimestampNanosecondArray::from(vec![micros % 9_000_000_000_000_000 * 1_000]).with_timezone_opt(zone())),
            ];
            for column in &columns {
                for format in [FieldFormat::Text, FieldFormat::Binary] {
                    let (ours, expected) = both(column, format);
                    prop_assert_eq!(ours.as_ref(), Some(&expected), "{:?} {:?}", column, format);
                }
            }
        }
    }

    #[test]
    fn nanoseconds_are_rounded_down_in_both_forms() {
        let column: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![-1]));
        let (text, binary) =
            (both(&column, FieldFormat::Text).0.unwrap(), both(&column, FieldFormat::Binary).0.unwrap());
        assert_eq!(&text[4..], b"1969-12-31 23:59:59.999999");
        assert_eq!(binary[4..], (-1 - EPOCH_MICROS).to_be_bytes());
    }

    #[test]
    fn other_years_and_zones_are_left_to_the_encoder_of_all_types() {
        let columns: [ArrayRef; 4] = [
            Arc::new(TimestampMicrosecondArray::from(vec![253_402_300_800_000_000])),
            Arc::new(TimestampMicrosecondArray::from(vec![-62_167_219_200_000_001])),
            Arc::new(TimestampSecondArray::from(vec![i64::MAX])),
            Arc::new(TimestampSecondArray::from(vec![0]).with_timezone("+02:00")),
        ];
        assert!(columns.iter().all(|column| Instant::of(column, 0).is_none()));
    }
}
