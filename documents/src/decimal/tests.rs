use super::*;
use proptest::prelude::*;

fn dec(text: &str) -> Decimal {
    Decimal::decode(text.parse().unwrap())
}

fn finite() -> impl Strategy<Value = Decimal> {
    let coefficient = prop_oneof![0..COEFFICIENT_END, 0u128..1000, Just(COEFFICIENT_END - 1)];
    let exponent = prop_oneof![EXPONENT_MIN..=EXPONENT_MAX, -40i32..40, Just(EXPONENT_MAX), Just(EXPONENT_MIN)];
    (any::<bool>(), coefficient, exponent).prop_map(|(negative, coefficient, exponent)| Decimal::Finite {
        negative,
        coefficient,
        exponent,
    })
}

#[test]
fn a_text_is_a_decimal() {
    let finite = |negative, coefficient, exponent| Some(Decimal::Finite { negative, coefficient, exponent });
    let long = "1".repeat(40);
    for (text, expected) in [
        ("1.50", finite(false, 150, -2)),
        ("-.5e-3", finite(true, 5, -4)),
        ("+7.E2", finite(false, 7, 2)),
        ("-0", finite(true, 0, 0)),
        ("1E-6176", finite(false, 1, -6176)),
        ("10E-6177", finite(false, 1, -6176)),
        ("0E-9999", finite(false, 0, EXPONENT_MIN)),
        ("1E+6144", finite(false, 10u128.pow(33), EXPONENT_MAX)),
        (long.as_str(), finite(false, 1_111_111_111_111_111_111_111_111_111_111_111, 6)),
        ("Infinity", Some(Decimal::Infinite { negative: false })),
        ("-INF", Some(Decimal::Infinite { negative: true })),
        ("nan", Some(Decimal::NaN)),
        ("1E+6145", None),
        ("1E-6177", None),
        ("1.1E-6176", None),
        ("1E+99999999999999999999", None),
        ("", None),
        (".", None),
        ("-", None),
        ("e5", None),
        ("1e", None),
        ("1e+", None),
        ("1 ", None),
        ("0x1", None),
        ("1,5", None),
        ("--1", None),
        ("\u{663}", None),
    ] {
        assert_eq!(Decimal::parse(text), expected, "{text}");
    }
}

#[test]
fn decodes_what_the_text_says() {
    let cases = [
        ("0", false, 0, 0),
        ("-0", true, 0, 0),
        ("1.50", false, 150, -2),
        ("-1.2E+4", true, 12, 3),
        ("9.999999999999999999999999999999999E+6144", false, COEFFICIENT_END - 1, 6111),
        ("1E-6176", false, 1, -6176),
    ];
    for (text, negative, coefficient, exponent) in cases {
        let decoded = Decimal::Finite { negative, coefficient, exponent };
        assert_eq!(dec(text), decoded, "{text}");
        assert_eq!(decoded.encode().to_string(), text);
    }
    assert_eq!(dec("NaN"), Decimal::NaN);
    assert_eq!(dec("-Infinity"), Decimal::Infinite { negative: true });
    assert_eq!(Decimal::NaN.encode().to_string(), "NaN");
    assert_eq!(Decimal::Infinite { negative: false }.encode().to_string(), "Infinity");
}

#[test]
fn a_coefficient_that_is_not_canonical_is_zero() {
    // 10^34 in the ordinary form, and anything in the other form.
    let too_large = (u128::try_from(EXPONENT_BIAS).unwrap() << 113) | COEFFICIENT_END;
    let other_form = (0b11u128 << 125) | 7;
    for bits in [too_large, other_form] {
        assert!(Decimal::decode(Decimal128::from_bytes(bits.to_le_bytes())).is_zero(), "{bits:x}");
    }
}

#[test]
fn sums() {
    let cases = [
        ("1", "2", "3"),
        ("1.0", "2.00", "3.00"),
        ("0.1", "0.2", "0.3"),
        ("1", "-1", "0"),
        ("1.00", "-1", "0.00"),
        ("-0", "-0", "-0"),
        ("-0", "0", "0"),
        ("0E+5", "7", "7"),
        ("1E+10", "0E-50", "10000000000.00000000000000000000000"),
        ("9999999999999999999999999999999999", "1", "1.000000000000000000000000000000000E+34"),
        ("9999999999999999999999999999999999", "0.5", "1.000000000000000000000000000000000E+34"),
        ("9999999999999999999999999999999998", "0.5", "9999999999999999999999999999999998"),
        ("9999999999999999999999999999999998", "0.50001", "9999999999999999999999999999999999"),
        ("1E+100", "1E-100", "1.000000000000000000000000000000000E+100"),
        ("1E+100", "-1E-100", "1.000000000000000000000000000000000E+100"),
        ("1E+6000", "-1E-6000", "1.000000000000000000000000000000000E+6000"),
        ("1000000000000000000000000000000000", "-0.1", "999999999999999999999999999999999.9"),
        ("1000000000000000000000000000000000", "-0.01", "1000000000000000000000000000000000"),
        ("9.999999999999999999999999999999999E+6144", "9E+6144", "Infinity"),
        ("Infinity", "-Infinity", "NaN"),
        ("-Infinity", "5", "-Infinity"),
        ("NaN", "5", "NaN"),
    ];
    for (a, b, sum) in cases {
        assert_eq!(dec(a).add(dec(b)).encode().to_string(), sum, "{a} + {b}");
        assert_eq!(dec(b).add(dec(a)).encode().to_string(), sum, "{b} + {a}");
    }
}

#[test]
fn products() {
    let cases = [
        ("2", "3", "6"),
        ("1.5", "1.5", "2.25"),
        ("-2", "0", "-0"),
        ("10", "1E+5", "1.0E+6"),
        (
            "9999999999999999999999999999999999",
            "9999999999999999999999999999999999",
            "9.999999999999999999999999999999998E+67",
        ),
        ("1E-6176", "0.5", "0E-6176"),
        ("3E-6176", "0.5", "2E-6176"),
        ("1E-6176", "0.51", "1E-6176"),
        ("1E-6000", "1E-6000", "0E-6176"),
        ("1E-6176", "99999E-2", "1.000E-6173"),
        ("9.9", "1E-6176", "1.0E-6175"),
        ("1E+6111", "1E+10", "1.0000000000E+6121"),
        ("1E+6111", "1E+40", "Infinity"),
        ("0", "Infinity", "NaN"),
        ("-3", "Infinity", "-Infinity"),
        ("NaN", "0", "NaN"),
    ];
    for (a, b, product) in cases {
        assert_eq!(dec(a).multiply(dec(b)).encode().to_string(), product, "{a} * {b}");
        assert_eq!(dec(b).multiply(dec(a)).encode().to_string(), product, "{b} * {a}");
    }
}

#[test]
fn doubles_have_fifteen_digits() {
    let cases = [
        (0.1, "0.100000000000000"),
        (1.0, "1.00000000000000"),
        (-2.5, "-2.50000000000000"),
        (1e300, "1.00000000000000E+300"),
        (123456789012345680.0, "1.23456789012346E+17"),
        (9999999999999995.0, "1.00000000000000E+16"),
        (1000000000000005.0, "1.00000000000000E+15"),
        (1000000000000015.0, "1.00000000000002E+15"),
        (5e-324, "4.94065645841247E-324"),
        (0.0, "0"),
        (-0.0, "-0"),
        (f64::NAN, "NaN"),
        (f64::NEG_INFINITY, "-Infinity"),
    ];
    for (d, text) in cases {
        assert_eq!(Decimal::from_f64(d).encode().to_string(), text, "{d}");
    }
}

#[test]
fn compares_exactly() {
    use Ordering::{Equal, Greater, Less};
    let doubles = [
        ("0.1", 0.1, Less),
        ("0.1000000000000000055511151231257827", 0.1, Less),
        ("0.1000000000000000055511151231257828", 0.1, Greater),
        ("0.5", 0.5, Equal),
        ("-0.1", -0.1, Greater),
        ("9007199254740993", 9007199254740992.0, Greater),
        ("1E+400", f64::MAX, Greater),
        ("1E+400", f64::INFINITY, Less),
        ("-1E+400", f64::NEG_INFINITY, Greater),
        ("1E-400", 0.0, Greater),
        ("-1E-400", 0.0, Less),
        ("1E-400", 5e-324, Less),
        ("-0", 0.0, Equal),
        ("Infinity", f64::INFINITY, Equal),
        ("NaN", f64::NAN, Equal),
        ("NaN", f64::NEG_INFINITY, Less),
        ("-Infinity", f64::NAN, Greater),
    ];
    for (text, d, order) in doubles {
        assert_eq!(dec(text).compare_f64(d), order, "{text} and {d}");
    }
    let decimals = [
        ("1", "1.00", Equal),
        ("0", "-0E+10", Equal),
        ("1E+6111", "1", Greater),
        ("-1E+6111", "1", Less),
        ("-2", "-1", Less),
        ("12E+3", "1.2E+4", Equal),
        ("NaN", "-Infinity", Less),
        ("NaN", "NaN", Equal),
    ];
    for (a, b, order) in decimals {
        assert_eq!(dec(a).compare(dec(b)), order, "{a} and {b}");
    }
}

#[test]
fn whole_numbers() {
    let cases = [
        ("1.0", Some(1), Some(1)),
        ("1.5", None, Some(1)),
        ("-1.5", None, Some(-1)),
        ("9223372036854775807", Some(i64::MAX), Some(i64::MAX)),
        ("9223372036854775808", None, None),
        ("-9223372036854775808.5", None, Some(i64::MIN)),
        ("1E+18", Some(1_000_000_000_000_000_000), Some(1_000_000_000_000_000_000)),
        ("1E+6000", None, None),
        ("1E-6000", None, Some(0)),
        ("0E+6111", Some(0), Some(0)),
        ("NaN", None, None),
        ("Infinity", None, None),
    ];
    for (text, exact, truncated) in cases {
        assert_eq!(dec(text).to_i64(), exact, "{text}");
        assert_eq!(dec(text).truncate_to_i64(), truncated, "{text}");
    }
}

proptest! {
    #[test]
    fn encoding_is_undone_by_decoding(decimal in finite()) {
        prop_assert_eq!(Decimal::decode(decimal.encode()), decimal);
        prop_assert_eq!(dec(&decimal.encode().to_string()), decimal);
    }

    #[test]
    fn any_sixteen_bytes_decode(bytes: [u8; 16]) {
        let decimal = Decimal::decode(Decimal128::from_bytes(bytes));
        prop_assert_eq!(Decimal::decode(decimal.encode()), decimal);
    }

    #[test]
    fn small_arithmetic_is_that_of_integers(a in -1_000_000_000i64..1_000_000_000, b in -1_000_000_000i64..1_000_000_000) {
        let (x, y) = (Decimal::from_i64(a), Decimal::from_i64(b));
        prop_assert_eq!(x.add(y).to_i64(), Some(a + b));
        prop_assert_eq!(x.multiply(y).to_i64(), Some(a * b));
        prop_assert_eq!(x.compare(y), a.cmp(&b));
    }

    #[test]
    fn a_sum_lies_between(a in finite(), b in finite()) {
        let sum = a.add(b);
        prop_assert_eq!(sum.compare(b.add(a)), Ordering::Equal);
        if !a.is_negative() && !b.is_negative() {
            prop_assert!(sum.compare(a).is_ge() && sum.compare(b).is_ge());
        }
    }

    #[test]
    fn a_double_is_the_nearest_of_what_lies_around_it(d in any::<f64>()) {
        prop_assume!(d.is_finite());
        let near = Decimal::from_f64(d);
        let (floor, _) = near.floor_f64();
        prop_assert!(near.compare_f64(floor).is_ge());
        prop_assert!(near.compare_f64(floor.next_up()).is_lt());
    }

    #[test]
    fn the_floor_of_a_decimal_is_next_below_it(a in finite()) {
        let (floor, is_exact) = a.floor_f64();
        prop_assert_eq!(a.compare_f64(floor), if is_exact { Ordering::Equal } else { Ordering::Greater });
        prop_assert_eq!(a.compare_f64(floor.next_up()), Ordering::Less);
    }
}
