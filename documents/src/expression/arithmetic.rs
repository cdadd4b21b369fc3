//! Numbers: sums, products, rounding, functions of real numbers.
//!
//! The result has the wider of its arguments' types: int32, int64, double, decimal128. What int32 does not hold becomes an int64,
//! and what int64 does not hold a double. Powers, roots, exponentials, logarithms and trigonometry of decimals are refused by
//! name.

use super::total::{DoubleSum, Total};
use super::{ExpressionError, Result, Value, is_nothing, null, type_of};
use crate::Decimal;
use crate::decimal::Rounding;
use crate::order::{Number, integer_of};
use bson::DateTime;
use bson::raw::{RawBson, RawBsonRef};

fn wrong(code: i32, message: String) -> ExpressionError {
    ExpressionError::new(code, message)
}

pub(super) fn number(value: &Value) -> Option<Number> {
    Number::of(value.as_ref()?.as_raw_bson_ref())
}

#[expect(clippy::cast_precision_loss, reason = "an int64 beside a double becomes the nearest double, as in MongoDB")]
pub(crate) fn real_of(number: Number) -> f64 {
    match number {
        Number::Int(i) => i as f64,
        Number::Double(d) => d,
        Number::Decimal(d) => d.nearest_f64(),
    }
}

pub(crate) fn decimal_of(number: Number) -> Decimal {
    match number {
        Number::Int(i) => Decimal::from_i64(i),
        Number::Double(d) => Decimal::from_f64(d),
        Number::Decimal(d) => d,
    }
}

/// The wider type of two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Width {
    Int32,
    Int64,
    Double,
    Decimal,
}

fn width(value: &RawBson) -> Width {
    match value.as_raw_bson_ref() {
        RawBsonRef::Int32(_) => Width::Int32,
        RawBsonRef::Int64(_) => Width::Int64,
        RawBsonRef::Decimal128(_) => Width::Decimal,
        _ => Width::Double,
    }
}

/// A whole number of a width; wider if it does not fit.
fn whole(i: i64, width: Width) -> RawBson {
    match i32::try_from(i) {
        Ok(narrow) if width == Width::Int32 => RawBson::Int32(narrow),
        _ => RawBson::Int64(i),
    }
}

/// Computes with two numbers.
fn combine(
    a: &RawBson,
    b: &RawBson,
    ints: fn(i64, i64) -> Option<i64>,
    doubles: fn(f64, f64) -> f64,
    decimals: fn(Decimal, Decimal) -> Decimal,
) -> Option<RawBson> {
    let (x, y) = (Number::of(a.as_raw_bson_ref())?, Number::of(b.as_raw_bson_ref())?);
    Some(match computed(x, y, ints, doubles, decimals) {
        Number::Int(i) => whole(i, width(a).max(width(b))),
        Number::Double(d) => RawBson::Double(d),
        Number::Decimal(d) => RawBson::Decimal128(d.encode()),
    })
}

/// Computes with decimals if one of the numbers is one, and with integers if both are and the result fits.
fn computed(
    x: Number,
    y: Number,
    ints: fn(i64, i64) -> Option<i64>,
    doubles: fn(f64, f64) -> f64,
    decimals: fn(Decimal, Decimal) -> Decimal,
) -> Number {
    let of_doubles = || Number::Double(doubles(real_of(x), real_of(y)));
    match (x, y) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => Number::Decimal(decimals(decimal_of(x), decimal_of(y))),
        (Number::Int(i), Number::Int(j)) => ints(i, j).map_or_else(of_doubles, Number::Int),
        _ => of_doubles(),
    }
}

fn without(a: Decimal, b: Decimal) -> Decimal {
    a.add(b.multiply(Decimal::from_i64(-1)))
}

impl Number {
    pub(crate) fn plus(self, other: Number) -> Number {
        computed(self, other, i64::checked_add, |a, b| a + b, Decimal::add)
    }

    pub(crate) fn minus(self, other: Number) -> Number {
        computed(self, other, i64::checked_sub, |a, b| a - b, without)
    }

    pub(crate) fn times(self, other: Number) -> Number {
        computed(self, other, i64::checked_mul, |a, b| a * b, Decimal::multiply)
    }

    /// The quotient, which is no integer.
    pub(crate) fn over(self, other: Number) -> Number {
        computed(self, other, |_, _| None, |a, b| a / b, Decimal::divide)
    }

    /// The number as a value: an integer as int64.
    pub(crate) fn value(self) -> RawBson {
        match self {
            Number::Int(i) => RawBson::Int64(i),
            Number::Double(d) => RawBson::Double(d),
            Number::Decimal(d) => RawBson::Decimal128(d.encode()),
        }
    }
}

/// The sum of two numbers; nothing for other values.
pub(crate) fn sum(a: &RawBson, b: &RawBson) -> Option<RawBson> {
    combine(a, b, i64::checked_add, |a, b| a + b, Decimal::add)
}

fn product(a: &RawBson, b: &RawBson) -> Option<RawBson> {
    combine(a, b, i64::checked_mul, |a, b| a * b, Decimal::multiply)
}

/// Takes the sum as `$sum` does: the order of the arguments does not matter.
pub(super) fn add(_: &'static str, values: &[Value]) -> Result<Value> {
    let mut total = Total::<DoubleSum>::default();
    let mut date = None;
    for value in values {
        match value {
            value if is_nothing(value) => return null(),
            Some(RawBson::DateTime(instant)) => {
                if date.replace(instant.timestamp_millis()).is_some() {
                    return Err(wrong(16612, "only one date allowed in an $add expression".to_owned()));
                }
            }
            Some(other) if number(value).is_some() => total.take(other.as_raw_bson_ref()),
            _ => {
                let message = format!("$add only supports numeric or date types, not {}", type_of(value));
                return Err(wrong(16554, message));
            }
        }
    }
    let Some(date) = date else { return Ok(Some(total.sum())) };
    let millis = match Number::of(total.sum().as_raw_bson_ref()) {
        Some(Number::Double(d)) => later(date, d),
        Some(Number::Decimal(_)) => {
            total.take(RawBsonRef::Int64(date));
            Number::of(total.sum().as_raw_bson_ref()).and_then(whole_millis)
        }
        sum => sum.and_then(whole_millis).and_then(|millis| date.checked_add(millis)),
    };
    let millis = millis.ok_or_else(|| wrong(15, "date overflow in $add".to_owned()))?;
    Ok(Some(RawBson::DateTime(DateTime::from_millis(millis))))
}

/// The nearest to the sum, and of two the one closer to 0, as in MongoDB.
fn later(date: i64, millis: f64) -> Option<i64> {
    let (whole, fraction) = (integer_of(millis.trunc())?, millis.fract());
    let sum = date.checked_add(whole)?;
    let side = if fraction < 0.0 { -1 } else { 1 };
    let is_next = fraction.abs() > 0.5 || (fraction.abs() == 0.5 && sum.signum() == -side);
    if is_next { sum.checked_add(side) } else { Some(sum) }
}

/// Cuts off the fraction of a double, and rounds a decimal half to even, as MongoDB does with milliseconds.
fn whole_millis(number: Number) -> Option<i64> {
    match number {
        Number::Int(i) => Some(i),
        Number::Double(d) => integer_of(d.trunc()),
        Number::Decimal(d) => d.rounded_to(0, Rounding::HalfToEven).to_i64(),
    }
}

pub(crate) fn subtract(_: &'static str, values: &[Value]) -> Result<Value> {
    let (Some(a), Some(b)) = (&values[0], &values[1]) else { return null() };
    if is_nothing(&values[0]) || is_nothing(&values[1]) {
        return null();
    }
    let refused = || {
        let message = format!("can't $subtract {} from {}", type_of(&values[1]), type_of(&values[0]));
        wrong(14, message)
    };
    match (a, b) {
        (RawBson::DateTime(a), RawBson::DateTime(b)) => {
            let difference = a.timestamp_millis().checked_sub(b.timestamp_millis());
            let overflow = || wrong(15, "overflow in $subtract".to_owned());
            Ok(Some(RawBson::Int64(difference.ok_or_else(overflow)?)))
        }
        (RawBson::DateTime(date), b) => {
            let number = Number::of(b.as_raw_bson_ref()).ok_or_else(refused)?;
            let millis = whole_millis(number).and_then(|millis| date.timestamp_millis().checked_sub(millis));
            let millis = millis.ok_or_else(|| wrong(15, "date overflow in $subtract".to_owned()))?;
            Ok(Some(RawBson::DateTime(DateTime::from_millis(millis))))
        }
        (a, b) => combine(a, b, i64::checked_sub, |a, b| a - b, without).map(Some).ok_or_else(refused),
    }
}

pub(crate) fn multiply(_: &'static str, values: &[Value]) -> Result<Value> {
    let mut total = RawBson::Int32(1);
    for value in values {
        let Some(other) = value.as_ref().filter(|_| !is_nothing(value)) else { return null() };
        let refused = || wrong(14, format!("$multiply only supports numeric types, not {}", type_of(value)));
        total = product(&total, other).ok_or_else(refused)?;
    }
    Ok(Some(total))
}

/// The two numbers of an operator; nothing if one of them is missing or null.
fn pair(name: &str, code: i32, values: &[Value]) -> Result<Option<(Number, Number)>> {
    if is_nothing(&values[0]) || is_nothing(&values[1]) {
        return Ok(None);
    }
    match (number(&values[0]), number(&values[1])) {
        (Some(a), Some(b)) => Ok(Some((a, b))),
        _ => {
            let (a, b) = (type_of(&values[0]), type_of(&values[1]));
            Err(wrong(code, format!("{name} only supports numeric types, not {a} and {b}")))
        }
    }
}

pub(super) fn no_decimals(name: &str) -> ExpressionError {
    wrong(115, format!("{name} of a decimal128 is not available: convert it with $toDouble"))
}

pub(crate) fn divide(name: &'static str, values: &[Value]) -> Result<Value> {
    let Some((a, b)) = pair(name, 14, values)? else { return null() };
    if is_zero(b) {
        return Err(wrong(2, "can't $divide by zero".to_owned()));
    }
    match (a, b) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => Ok(decimal(decimal_of(a).divide(decimal_of(b)))),
        _ => Ok(Some(RawBson::Double(real_of(a) / real_of(b)))),
    }
}

pub(super) fn modulo(name: &'static str, values: &[Value]) -> Result<Value> {
    let Some((a, b)) = pair(name, 16611, values)? else { return null() };
    let is_decimal = [a, b].iter().any(|number| matches!(number, Number::Decimal(_)));
    if is_zero(b) {
        return Err(wrong(if is_decimal { 5_733_415 } else { 16610 }, "can't $mod by zero".to_owned()));
    }
    match (a, b) {
        _ if is_decimal => Ok(decimal(decimal_of(a).remainder(decimal_of(b)))),
        (Number::Int(a), Number::Int(b)) => {
            let wider = values.iter().flatten().map(width).max().unwrap_or(Width::Int64);
            Ok(Some(whole(a.wrapping_rem(b), wider)))
        }
        // Doubles that are whole numbers are taken as such, with an int64 as the result.
        (a, b) => match (a.to_i64(), b.to_i64()) {
            (Some(x), Some(y)) if is_double(a) && is_double(b) => {
                Ok(Some(RawBson::Double(real_of(Number::Int(x.wrapping_rem(y))))))
            }
            _ => Ok(Some(RawBson::Double(real_of(a) % real_of(b)))),
        },
    }
}

fn decimal(number: Decimal) -> Value {
    Some(RawBson::Decimal128(number.encode()))
}

fn is_zero(number: Number) -> bool {
    match number {
        Number::Decimal(d) => d.is_zero(),
        other => real_of(other) == 0.0,
    }
}

fn is_double(number: Number) -> bool {
    matches!(number, Number::Double(_))
}

/// The number of an operator of one; nothing if it is missing or null.
pub(super) fn single<'v>(name: &str, values: &'v [Value]) -> Result<Option<(Number, &'v RawBson)>> {
    let Some(value) = values[0].as_ref().filter(|_| !is_nothing(&values[0])) else { return Ok(None) };
    match Number::of(value.as_raw_bson_ref()) {
        Some(number) => Ok(Some((number, value))),
        None => Err(wrong(28765, format!("{name} only supports numeric types, not {}", type_of(&values[0])))),
    }
}

pub(super) fn abs(name: &'static str, values: &[Value]) -> Result<Value> {
    let Some((number, value)) = single(name, values)? else { return null() };
    Ok(Some(match number {
        Number::Int(i) => match i.checked_abs() {
            Some(positive) => whole(positive, width(value)),
            None => return Err(wrong(28680, "can't take $abs of long long min".to_owned())),
        },
        Number::Double(d) => RawBson::Double(d.abs()),
        Number::Decimal(d) => return Ok(decimal(d.abs())),
    }))
}

/// `$floor` and `$ceil`.
pub(super) fn round_to_whole(name: &'static str, values: &[Value]) -> Result<Value> {
    let Some((number, value)) = single(name, values)? else { return null() };
    Ok(Some(match number {
        Number::Int(_) => value.clone(),
        Number::Double(d) => RawBson::Double(if name == "$floor" { d.floor() } else { d.ceil() }),
        Number::Decimal(d) => {
            return Ok(decimal(d.rounded_to(0, if name == "$floor" { Rounding::Down } else { Rounding::Up })));
        }
    }))
}

/// The number of places of `$round` and `$trunc`; nothing for null.
fn decimal_places(name: &str, places: &Value) -> Result<Option<i32>> {
    if is_nothing(places) {
        return Ok(None);
    }
    let given = number(places)
        .ok_or_else(|| wrong(16004, format!("can't convert from BSON type {} to long", type_of(places))))?;
    let whole = given.to_i64().and_then(|whole| i32::try_from(whole).ok());
    let whole = whole.ok_or_else(|| wrong(51082, format!("precision argument to {name} must be a integral value")))?;
    if !(-20..=100).contains(&whole) {
        let message = format!("cannot apply {name} with precision value {whole} value must be in [-20, 100]");
        return Err(wrong(51083, message));
    }
    Ok(Some(whole))
}

/// `$round`, which rounds halves to even, and `$trunc`, to a number of places.
pub(super) fn round(name: &'static str, values: &[Value]) -> Result<Value> {
    let Some((number, value)) = single(name, values).map_err(|e| wrong(51081, e.message))? else { return null() };
    let Some(places) = values.get(1).map_or(Ok(Some(0)), |places| decimal_places(name, places))? else {
        return null();
    };
    let is_round = name == "$round";
    Ok(Some(match number {
        Number::Int(_) if places >= 0 => value.clone(),
        Number::Int(i) => {
            let unit = 10_i128.pow(places.unsigned_abs());
            let (i, rest) = (i128::from(i), i128::from(i) % unit);
            let down = i - rest;
            let is_up = is_round && (rest.abs() * 2 > unit || (rest.abs() * 2 == unit && (down / unit) % 2 != 0));
            let rounded = if is_up { down + unit * rest.signum() } else { down };
            match i64::try_from(rounded) {
                Ok(rounded) => whole(rounded, width(value)),
                Err(_) => return Err(wrong(51080, "invalid conversion from Decimal128 result in $round".to_owned())),
            }
        }
        Number::Double(d) => RawBson::Double(round_double(d, places, is_round)),
        Number::Decimal(d) => {
            return Ok(decimal(
                d.rounded_to(places, if is_round { Rounding::HalfToEven } else { Rounding::Truncated }),
            ));
        }
    }))
}

/// Rounds the exact decimal value of a double.
fn round_double(d: f64, places: i32, is_round: bool) -> f64 {
    if !d.is_finite() || d == 0.0 {
        return d;
    }
    if places == 0 {
        return if is_round { d.round_ties_even() } else { d.trunc() };
    }
    if places > 0 {
        let places = usize::try_from(places).unwrap_or(0);
        if is_round {
            return format!("{d:.places$}").parse().unwrap_or(d);
        }
        // No double is so near to a number of `places` digits that these are rounded up to it.
        const MORE: usize = 20;
        let text = format!("{d:.digits$}", digits = places + MORE);
        return text.get(..text.len() - MORE).and_then(|kept| kept.parse().ok()).unwrap_or(d);
    }
    let unit = 10_f64.powi(-places);
    let scaled = d / unit;
    (if is_round { scaled.round_ties_even() } else { scaled.trunc() }) * unit
}

pub(super) fn power(name: &'static str, values: &[Value]) -> Result<Value> {
    if is_nothing(&values[0]) || is_nothing(&values[1]) {
        return null();
    }
    let base = number(&values[0])
        .ok_or_else(|| wrong(28762, format!("$pow's base must be numeric, not {}", type_of(&values[0]))))?;
    let exponent = number(&values[1])
        .ok_or_else(|| wrong(28763, format!("$pow's exponent must be numeric, not {}", type_of(&values[1]))))?;
    let wider = values.iter().flatten().map(width).max().unwrap_or(Width::Double);
    match (base, exponent) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => Err(no_decimals(name)),
        (base, exponent) if real_of(base) == 0.0 && real_of(exponent) < 0.0 => {
            Err(wrong(28764, "$pow cannot take a base of 0 and a negative exponent".to_owned()))
        }
        (Number::Int(base), Number::Int(exponent)) => {
            // Those that stay whole for any exponent.
            let steps = match base {
                1 | -1 => exponent.rem_euclid(2),
                0 => exponent.signum(),
                _ => exponent,
            };
            let exact = u32::try_from(steps).ok().and_then(|exponent| base.checked_pow(exponent));
            Ok(Some(match exact {
                Some(exact) => whole(exact, wider),
                None => RawBson::Double(real_of(Number::Int(base)).powf(real_of(Number::Int(exponent)))),
            }))
        }
        (base, exponent) => Ok(Some(RawBson::Double(real_of(base).powf(real_of(exponent))))),
    }
}

/// `$sqrt`, `$exp`, `$ln`, `$log10`.
pub(super) fn real(name: &'static str, values: &[Value]) -> Result<Value> {
    let Some((number, _)) = single(name, values)? else { return null() };
    if matches!(number, Number::Decimal(_)) {
        return Err(no_decimals(name));
    }
    let d = real_of(number);
    let result = match name {
        "$sqrt" if d < 0.0 => {
            return Err(wrong(28714, "$sqrt's argument must be greater than or equal to 0".to_owned()));
        }
        "$ln" if d <= 0.0 => return Err(wrong(28766, format!("$ln's argument must be a positive number, but is {d}"))),
        "$log10" if d <= 0.0 => {
            return Err(wrong(28761, format!("$log10's argument must be a positive number, but is {d}")));
        }
        "$sqrt" => d.sqrt(),
        "$exp" => d.exp(),
        "$ln" => d.ln(),
        _ => d.log10(),
    };
    Ok(Some(RawBson::Double(result)))
}
