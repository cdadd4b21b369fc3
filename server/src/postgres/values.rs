//! Values of parameters, in the text and in the binary form of PostgreSQL's types.

use super::error::{FEATURE_NOT_SUPPORTED, INVALID_BINARY, INVALID_TEXT, Refusal};
use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int64Array,
    StringArray, TimestampMicrosecondArray, new_null_array,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, TimeUnit};
use pgwire::api::Type;
use std::str::from_utf8;
use std::sync::Arc;

/// Microseconds, and days, from 1970 to 2000, which PostgreSQL counts from.
pub(super) const EPOCH_MICROS: i64 = 946_684_800_000_000;
const EPOCH_DAYS: i32 = 10_957;
/// Digits of a decimal at most.
const DECIMAL_DIGITS: usize = 38;

/// A parameter of a statement.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Parameter {
    /// Its type as the client knows it.
    pub(super) kind: Type,
    /// Its type in the statement, if that is known and the client has not named one.
    pub(super) inferred: Option<DataType>,
}

impl Parameter {
    /// Of a type that the client named, or of that in the statement, or text.
    pub(super) fn new(named: u32, inferred: Option<&DataType>) -> Result<Parameter, Refusal> {
        if named != 0 && named != Type::UNKNOWN.oid() {
            let what =
                || Refusal::new(FEATURE_NOT_SUPPORTED, format!("a parameter of the type with the number {named}"));
            return Ok(Parameter { kind: Type::from_oid(named).ok_or_else(what)?, inferred: None });
        }
        let kind = inferred.and_then(|kind| arrow_pg::datatypes::into_pg_type(kind).ok());
        let kind = kind.filter(|kind| *kind != Type::UNKNOWN && kind.oid() != Type::RECORD.oid());
        Ok(Parameter { kind: kind.unwrap_or(Type::TEXT), inferred: inferred.cloned() })
    }

    /// The value of parameter `number`, as an array of one.
    pub(super) fn value(&self, number: usize, bytes: Option<&[u8]>, is_binary: bool) -> Result<ArrayRef, Refusal> {
        let Some(bytes) = bytes else {
            return Ok(new_null_array(self.inferred.as_ref().unwrap_or(&DataType::Null), 1));
        };
        let said =
            |refusal: Refusal| Refusal { message: format!("parameter ${number}: {}", refusal.message), ..refusal };
        let array = if is_binary { self.of_binary(bytes) } else { self.of_text(bytes) };
        array.map_err(said)
    }

    fn of_text(&self, bytes: &[u8]) -> Result<ArrayRef, Refusal> {
        let text = from_utf8(bytes).map_err(|_| Refusal::new(INVALID_TEXT, "it is not UTF-8"))?;
        let wrong = || {
            let shown: String = text.chars().take(60).collect();
            Refusal::new(INVALID_TEXT, format!("invalid input syntax for type {}: \"{shown}\"", self.kind.name()))
        };
        if self.kind == Type::BYTEA {
            let bytes = text.strip_prefix("\\x").and_then(unhex).ok_or_else(wrong)?;
            return Ok(Arc::new(BinaryArray::from_vec(vec![&bytes])));
        }
        if self.kind == Type::BOOL {
            let value = match text.trim().to_ascii_lowercase().as_str() {
                "t" | "true" | "y" | "yes" | "on" | "1" => true,
                "f" | "false" | "n" | "no" | "off" | "0" => false,
                _ => return Err(wrong()),
            };
            return Ok(Arc::new(BooleanArray::from(vec![value])));
        }
        let text: ArrayRef = Arc::new(StringArray::from(vec![text]));
        let Some(kind) = self.inferred.clone().or_else(|| self.arrow()) else { return Ok(text) };
        let strict = CastOptions { safe: false, ..CastOptions::default() };
        match &kind {
            DataType::Decimal128(..) if self.inferred.is_none() => decimal(text_of(&text)).ok_or_else(wrong),
            kind if arrow::compute::can_cast_types(&DataType::Utf8, kind) => {
                cast_with_options(&text, kind, &strict).map_err(|_| wrong())
            }
            _ => Ok(text),
        }
    }

    /// The type that a value of a type that the client named becomes; nothing for text.
    fn arrow(&self) -> Option<DataType> {
        let kind = &self.kind;
        let micros = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
        Some(match *kind {
            Type::INT2 | Type::INT4 | Type::INT8 | Type::OID => DataType::Int64,
            Type::FLOAT4 => DataType::Float32,
            Type::FLOAT8 => DataType::Float64,
            Type::NUMERIC => DataType::Decimal128(38, 0),
            Type::DATE => DataType::Date32,
            Type::TIMESTAMP => micros(None),
            Type::TIMESTAMPTZ => micros(Some("UTC")),
            _ => return None,
        })
    }

    fn of_binary(&self, bytes: &[u8]) -> Result<ArrayRef, Refusal> {
        let name = self.kind.name();
        let wrong =
            || Refusal::new(INVALID_BINARY, format!("invalid binary value for type {name}, of {} bytes", bytes.len()));
        let text = |bytes: &[u8]| -> Result<ArrayRef, Refusal> {
            let text = from_utf8(bytes).map_err(|_| Refusal::new(INVALID_TEXT, "it is not UTF-8"))?;
            Ok(Arc::new(StringArray::from(vec![text])))
        };
        fn fixed<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
            bytes.try_into().ok()
        }
        let long = || fixed(bytes).map(i64::from_be_bytes).ok_or_else(wrong);
        let whole = |value: i64| -> ArrayRef { Arc::new(Int64Array::from(vec![value])) };
        let micros = || -> Result<_, Refusal> {
            let micros = long()?.checked_add(EPOCH_MICROS).ok_or_else(wrong)?;
            Ok(TimestampMicrosecondArray::from(vec![micros]))
        };
        Ok(match self.kind {
            Type::BOOL => Arc::new(BooleanArray::from(vec![fixed::<1>(bytes).ok_or_else(wrong)?[0] != 0])),
            Type::INT2 => whole(fixed(bytes).map(i16::from_be_bytes).ok_or_else(wrong)?.into()),
            Type::INT4 => whole(fixed(bytes).map(i32::from_be_bytes).ok_or_else(wrong)?.into()),
            Type::OID => whole(fixed(bytes).map(u32::from_be_bytes).ok_or_else(wrong)?.into()),
            Type::INT8 => whole(long()?),
            Type::FLOAT4 => Arc::new(Float32Array::from(vec![fixed(bytes).map(f32::from_be_bytes).ok_or_else(wrong)?])),
            Type::FLOAT8 => Arc::new(Float64Array::from(vec![fixed(bytes).map(f64::from_be_bytes).ok_or_else(wrong)?])),
            Type::TIMESTAMP => Arc::new(micros()?),
            Type::TIMESTAMPTZ => Arc::new(micros()?.with_timezone("UTC")),
            Type::DATE => {
                let days = fixed(bytes).map(i32::from_be_bytes).and_then(|days| days.checked_add(EPOCH_DAYS));
                Arc::new(Date32Array::from(vec![days.ok_or_else(wrong)?]))
            }
            Type::BYTEA => Arc::new(BinaryArray::from_vec(vec![bytes])),
            Type::NUMERIC => numeric(bytes).as_deref().and_then(decimal).ok_or_else(wrong)?,
            Type::JSONB => text(bytes.strip_prefix(&[1]).ok_or_else(wrong)?)?,
            Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::JSON | Type::UNKNOWN => text(bytes)?,
            _ => {
                let what = format!("values of type {name} are not known in binary form: send text");
                return Err(Refusal::new(FEATURE_NOT_SUPPORTED, what));
            }
        })
    }
}

fn text_of(array: &ArrayRef) -> &str {
    array.as_any().downcast_ref::<StringArray>().map_or("", |array| array.value(0))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(from_utf8(pair).ok().filter(|pair| pair.len() == 2)?, 16).ok()).collect()
}

/// A decimal, or a floating-point number if it has too many digits or is none.
fn decimal(text: &str) -> Option<ArrayRef> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{fraction}");
    let count = digits.trim_start_matches(['-', '+']).len();
    if (1..=DECIMAL_DIGITS).contains(&count)
        && !fraction.starts_with(['-', '+'])
        && let (Ok(value), Ok(scale)) = (digits.parse::<i128>(), i8::try_from(fraction.len()))
    {
        let array = Decimal128Array::from(vec![value]).with_precision_and_scale(DECIMAL_DIGITS as u8, scale).ok()?;
        return Some(Arc::new(array));
    }
    Some(Arc::new(Float64Array::from(vec![text.trim().parse::<f64>().ok()?])))
}

/// The digits of a number in PostgreSQL's binary form: groups of four, and where the point is.
fn numeric(bytes: &[u8]) -> Option<String> {
    let (head, groups) = bytes.split_at_checked(8)?;
    let short = |at: usize| Some(i16::from_be_bytes([*head.get(at)?, *head.get(at + 1)?]));
    let (count, weight, sign, scale) = (short(0)?, short(2)?, short(4)? as u16, short(6)?);
    let (count, scale) = (usize::try_from(count).ok()?, usize::try_from(scale).ok()?);
    match sign {
        0xC000 => return Some("NaN".to_owned()),
        0xD000 => return Some("inf".to_owned()),
        0xF000 => return Some("-inf".to_owned()),
        _ => {}
    }
    if groups.len() != count * 2 {
        return None;
    }
    let group = |place: i32| {
        // Groups count down from the weight of the first one.
        let at = usize::try_from(i32::from(weight) - place).ok().filter(|at| *at < count);
        at.map_or(0, |at| u16::from_be_bytes([groups[2 * at], groups[2 * at + 1]]))
    };
    let mut text = if sign == 0x4000 { "-".to_owned() } else { String::new() };
    let whole: String = (0..=i32::from(weight)).rev().map(|place| format!("{:04}", group(place))).collect();
    let whole = whole.trim_start_matches('0');
    text.push_str(if whole.is_empty() { "0" } else { whole });
    if scale > 0 {
        let places = i32::try_from(scale.div_ceil(4)).ok()?;
        let fraction: String = (1..=places).map(|place| format!("{:04}", group(-place))).collect();
        text.push('.');
        text.push_str(fraction.get(..scale)?);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::util::display::array_value_to_string;

    fn shown(kind: Type, bytes: &[u8], is_binary: bool) -> Result<String, &'static str> {
        let parameter = Parameter { kind, inferred: None };
        let value = parameter.value(1, Some(bytes), is_binary).map_err(|refusal| refusal.state)?;
        Ok(format!("{} {}", value.data_type(), array_value_to_string(&value, 0).unwrap()))
    }

    #[test]
    fn values_in_binary_form_are_read() {
        for (kind, bytes, expected) in [
            (Type::BOOL, &[1][..], "Boolean true"),
            (Type::INT2, &(-2_i16).to_be_bytes(), "Int64 -2"),
            (Type::INT8, &i64::MIN.to_be_bytes(), "Int64 -9223372036854775808"),
            (Type::FLOAT8, &0.1_f64.to_be_bytes(), "Float64 0.1"),
            (Type::DATE, &1_i32.to_be_bytes(), "Date32 2000-01-02"),
            (Type::TIMESTAMPTZ, &1_i64.to_be_bytes(), "Timestamp(µs, \"UTC\") 2000-01-01T00:00:00.000001Z"),
            (Type::TEXT, b"it's", "Utf8 it's"),
            (Type::JSONB, b"\x01{}", "Utf8 {}"),
            (Type::BYTEA, &[0, 255], "Binary 00ff"),
            // 12345.678: groups 1, 2345, 6780.
            (Type::NUMERIC, &[0, 3, 0, 1, 0, 0, 0, 3, 0, 1, 9, 41, 26, 124], "Decimal128(38, 3) 12345.678"),
            // -0.0001
            (Type::NUMERIC, &[0, 1, 255, 255, 64, 0, 0, 4, 0, 1], "Decimal128(38, 4) -0.0001"),
            (Type::NUMERIC, &[0, 0, 0, 0, 0, 0, 0, 0], "Decimal128(38, 0) 0"),
            (Type::NUMERIC, &[0, 0, 0, 0, 192, 0, 0, 0], "Float64 NaN"),
        ] {
            assert_eq!(shown(kind.clone(), bytes, true).as_deref(), Ok(expected), "{kind}");
        }
        for (kind, bytes) in [
            (Type::INT8, &[0; 4][..]),
            (Type::NUMERIC, &[0, 9]),
            (Type::BOOL, &[]),
            (Type::TIMESTAMP, &i64::MAX.to_be_bytes()),
        ] {
            assert_eq!(shown(kind.clone(), bytes, true), Err(INVALID_BINARY), "{kind}");
        }
        assert_eq!(shown(Type::POINT, &[], true), Err(FEATURE_NOT_SUPPORTED));
    }

    #[test]
    fn values_in_text_form_are_read() {
        for (kind, text, expected) in [
            (Type::INT4, "-7", "Int64 -7"),
            (Type::BOOL, "T", "Boolean true"),
            (Type::FLOAT8, "NaN", "Float64 NaN"),
            (Type::NUMERIC, "-1.50", "Decimal128(38, 2) -1.50"),
            (Type::NUMERIC, "1e3", "Float64 1000.0"),
            (Type::TIMESTAMPTZ, "2024-01-02 03:04:05.5+01", "Timestamp(µs, \"UTC\") 2024-01-02T02:04:05.500Z"),
            (Type::BYTEA, "\\x00fF", "Binary 00ff"),
            (Type::VARCHAR, "7", "Utf8 7"),
        ] {
            assert_eq!(shown(kind.clone(), text.as_bytes(), false).as_deref(), Ok(expected), "{kind}");
        }
        for (kind, text) in [(Type::INT4, "seven"), (Type::BOOL, "2"), (Type::BYTEA, "\\x0"), (Type::DATE, "never")] {
            assert_eq!(shown(kind.clone(), text.as_bytes(), false), Err(INVALID_TEXT), "{kind}");
        }
    }

    #[test]
    fn a_parameter_without_a_type_has_that_of_the_statement() {
        let parameter = Parameter::new(0, Some(&DataType::Int32)).unwrap();
        assert_eq!(parameter.kind, Type::INT4);
        let value = parameter.value(1, Some(b"5"), false).unwrap();
        assert_eq!(value.data_type(), &DataType::Int32);
        assert_eq!(Parameter::new(0, None).unwrap().kind, Type::TEXT);
        let error = parameter.value(2, Some(b"x"), false).unwrap_err();
        assert_eq!(error.message, "parameter $2: invalid input syntax for type int4: \"x\"");
        assert!(parameter.value(1, None, false).unwrap().is_null(0));
    }
}
