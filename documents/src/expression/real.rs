//! Functions of real numbers: logarithms to any base, trigonometry, random numbers.

use super::arithmetic::{no_decimals, number, single};
use super::{ExpressionError, Result, Value, is_nothing, null, real_of, type_of};
use crate::Decimal;
use crate::order::Number;
use bson::raw::RawBson;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// Pi / 180, to 34 digits.
const DEGREE: Decimal =
    Decimal::Finite { negative: false, coefficient: 1_745_329_251_994_329_576_923_690_768_488_613, exponent: -35 };
/// 180 / pi, to 34 digits.
const RADIAN: Decimal =
    Decimal::Finite { negative: false, coefficient: 5_729_577_951_308_232_087_679_815_481_410_517, exponent: -32 };
/// The bits of the double 1.0, whose fraction is 0.
const ONE: u64 = 1.0_f64.to_bits();
/// Bits of a double before its fraction.
const BITS_BEFORE_FRACTION: u32 = 12;

fn wrong(code: i32, message: String) -> ExpressionError {
    ExpressionError::new(code, message)
}

fn double(x: f64) -> Result<Value> {
    Ok(Some(RawBson::Double(x)))
}

fn is_decimal(number: Number) -> bool {
    matches!(number, Number::Decimal(_))
}

/// `$log`.
pub(super) fn log(name: &'static str, values: &[Value]) -> Result<Value> {
    if is_nothing(&values[0]) || is_nothing(&values[1]) {
        return null();
    }
    let x = number(&values[0])
        .ok_or_else(|| wrong(28756, format!("$log's argument must be numeric, not {}", type_of(&values[0]))))?;
    let base = number(&values[1])
        .ok_or_else(|| wrong(28757, format!("$log's base must be numeric, not {}", type_of(&values[1]))))?;
    if is_decimal(x) || is_decimal(base) {
        return Err(no_decimals(name));
    }
    let (x, base) = (real_of(x), real_of(base));
    if x <= 0.0 {
        return Err(wrong(28758, format!("$log's argument must be a positive number, but is {x}")));
    }
    if base <= 0.0 || base == 1.0 {
        return Err(wrong(28759, format!("$log's base must be a positive number not equal to 1, but is {base}")));
    }
    double(x.ln() / base.ln())
}

/// `$sin` and its kind.
pub(super) fn trigonometric(name: &'static str, values: &[Value]) -> Result<Value> {
    let Some((number, _)) = single(name, values)? else { return null() };
    if is_decimal(number) {
        return Err(no_decimals(name));
    }
    let x = real_of(number);
    let (is_valid, valid) = match name {
        "$sin" | "$cos" | "$tan" => (x.is_finite(), "(-inf,inf)"),
        "$asin" | "$acos" | "$atanh" => ((-1.0..=1.0).contains(&x), "[-1,1]"),
        "$acosh" => (x >= 1.0, "[1,inf]"),
        _ => (true, "[-inf,inf]"),
    };
    if !is_valid && !x.is_nan() {
        return Err(wrong(50989, format!("cannot apply {name} to {x}, value must be in {valid}")));
    }
    double(match name {
        "$sin" => x.sin(),
        "$cos" => x.cos(),
        "$tan" => x.tan(),
        "$asin" => x.asin(),
        "$acos" => x.acos(),
        "$atan" => x.atan(),
        "$sinh" => x.sinh(),
        "$cosh" => x.cosh(),
        "$tanh" => x.tanh(),
        "$asinh" => x.asinh(),
        "$acosh" => x.acosh(),
        _ => x.atanh(),
    })
}

/// `$atan2`.
pub(super) fn angle_of_point(name: &'static str, values: &[Value]) -> Result<Value> {
    let mut point = [0.0; 2];
    for ((coordinate, value), code) in point.iter_mut().zip(values).zip([51044, 51045]) {
        if is_nothing(value) {
            return null();
        }
        let refused = || wrong(code, format!("{name} only supports numeric types, not {}", type_of(value)));
        let given = number(value).ok_or_else(refused)?;
        if is_decimal(given) {
            return Err(no_decimals(name));
        }
        *coordinate = real_of(given);
    }
    let [y, x] = point;
    double(y.atan2(x))
}

/// `$degreesToRadians` and `$radiansToDegrees`.
pub(super) fn angle(name: &'static str, values: &[Value]) -> Result<Value> {
    let Some((number, _)) = single(name, values)? else { return null() };
    let is_to_radians = name == "$degreesToRadians";
    if let Number::Decimal(d) = number {
        let product = d.multiply(if is_to_radians { DEGREE } else { RADIAN });
        return Ok(Some(RawBson::Decimal128(product.encode())));
    }
    let x = real_of(number);
    double(if is_to_radians { x.to_radians() } else { x.to_degrees() })
}

/// `$rand`: a number of at least 0 and below 1.
pub(super) fn random(_: &'static str, _: &[Value]) -> Result<Value> {
    let bits = RandomState::new().hash_one(0_u8);
    double(f64::from_bits(ONE | (bits >> BITS_BEFORE_FRACTION)) - 1.0)
}
