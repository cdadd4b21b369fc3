use super::*;
use bson::Decimal128;

fn decimal(text: &str) -> Decimal {
    Decimal::decode(text.parse::<Decimal128>().unwrap())
}

#[test]
fn quotients_are_rounded_once_and_exact_ones_keep_the_exponent_they_can() {
    for (a, b, quotient) in [
        ("1", "3", "0.3333333333333333333333333333333333"),
        ("2", "3", "0.6666666666666666666666666666666667"),
        ("10", "4", "2.5"),
        ("100", "10", "10"),
        ("1.20", "2", "0.60"),
        ("-1", "8", "-0.125"),
        ("0", "-5", "-0"),
        ("1E+6000", "1E-6000", "Infinity"),
        ("1E-6000", "1E+6000", "0E-6176"),
        ("5", "0", "Infinity"),
        ("-5", "0", "-Infinity"),
        ("0", "0", "NaN"),
        ("Infinity", "Infinity", "NaN"),
        ("-Infinity", "2", "-Infinity"),
        ("1", "Infinity", "0E-6176"),
        ("9999999999999999999999999999999999", "7", "1428571428571428571428571428571428"),
        ("1", "9999999999999999999999999999999999", "1.000000000000000000000000000000000E-34"),
    ] {
        assert_eq!(decimal(a).divide(decimal(b)), decimal(quotient), "{a} / {b}");
    }
}

#[test]
fn remainders_have_the_sign_of_the_dividend() {
    for (a, b, rest) in [
        ("7", "3", "1"),
        ("-7", "3", "-1"),
        ("7.5", "-2", "1.5"),
        ("1E+30", "7", "1"),
        ("1", "1E+20", "1"),
        ("5", "Infinity", "5"),
        ("5", "0", "NaN"),
        ("Infinity", "5", "NaN"),
    ] {
        assert_eq!(decimal(a).remainder(decimal(b)), decimal(rest), "{a} mod {b}");
    }
}

#[test]
fn numbers_are_rounded_to_places_in_each_direction() {
    for (text, places, down, up, truncated, half) in [
        ("2.5", 0, "2", "3", "2", "2"),
        ("-2.5", 0, "-3", "-2", "-2", "-2"),
        ("3.5", 0, "3", "4", "3", "4"),
        ("2.51", 1, "2.5", "2.6", "2.5", "2.5"),
        ("2", 2, "2.00", "2.00", "2.00", "2.00"),
        ("1250", -2, "1.2E+3", "1.3E+3", "1.2E+3", "1.2E+3"),
        ("0.001", -20, "0E+20", "1E+20", "0E+20", "0E+20"),
        ("1E-6000", 0, "0", "1", "0", "0"),
        (
            "1E+40",
            0,
            "NaN",
            "NaN",
            "1.000000000000000000000000000000000E+40",
            "1.000000000000000000000000000000000E+40",
        ),
        ("-Infinity", 0, "NaN", "NaN", "-Infinity", "-Infinity"),
    ] {
        let directions = [Rounding::Down, Rounding::Up, Rounding::Truncated, Rounding::HalfToEven];
        for (rounding, expected) in directions.into_iter().zip([down, up, truncated, half]) {
            assert_eq!(decimal(text).rounded_to(places, rounding), decimal(expected), "{text} {places} {rounding:?}");
        }
    }
}
