use super::*;
use proptest::prelude::*;

fn nanos(text: &str) -> i128 {
    Timestamp::parse(text).unwrap().0
}

#[test]
fn times_are_read_in_the_usual_forms() {
    let expected = 1_706_702_400_000_000_000;
    for text in [
        "2024-01-31T12:00:00Z",
        "2024-01-31T12:00:00.000z",
        "2024-01-31T12:00:00",
        " 2024-01-31 12:00:00 ",
        "2024-01-31 12:00",
        "2024-01-31T13:00:00+01:00",
        "2024-01-31 13:00:00+01",
    ] {
        assert_eq!(nanos(text), expected, "{text}");
    }
    assert_eq!(nanos("1970-01-01"), 0);
    assert_eq!(nanos("1969-12-31T23:59:59.999999999Z"), -1);
    assert_eq!(nanos("2016-12-31T23:59:60Z"), nanos("2017-01-01T00:00:00Z"), "a leap second");
    for text in ["", "yesterday", "2024-02-30", "2024-01-31T25:00:00Z", "12:00"] {
        assert!(Timestamp::parse(text).unwrap_err().contains(text), "{text}");
    }
}

#[test]
fn times_are_shown_with_the_digits_they_need() {
    for text in ["2024-01-31T12:00:00Z", "1969-12-31T23:59:59.999Z", "2024-01-31T12:00:00.000000001Z"] {
        assert_eq!(Timestamp::parse(text).unwrap().to_string(), text);
    }
    let ends = [
        (i64::MAX, Precision::Ms, "+292278994-08-17T07:12:55.807Z"),
        (i64::MIN, Precision::Ms, "-292275055-05-16T16:47:04.192Z"),
        (i64::MAX, Precision::Us, "+294247-01-10T04:00:54.775807Z"),
        (i64::MIN, Precision::Us, "-290308-12-21T19:59:05.224192Z"),
    ];
    for (units, precision, text) in ends {
        assert_eq!(Timestamp::from_units(units, precision).to_string(), text);
        assert_eq!(Timestamp::parse(text), Ok(Timestamp::from_units(units, precision)));
    }
    for text in ["+292278994-13-01T00:00:00Z", "+292278994-02-30T00:00:00Z", "+292278994-02-01T24:00:00Z", "+1"] {
        assert!(Timestamp::parse(text).is_err(), "{text}");
    }
}

#[test]
fn units_are_floored_towards_minus_infinity() {
    let just_before = Timestamp::from_nanos(-1);
    assert_eq!(just_before.to_units(Precision::Ms), Some(-1));
    assert_eq!(Timestamp::from_nanos(1_999_999).to_units(Precision::Ms), Some(1));
    assert_eq!(Timestamp::from_nanos(1_999).to_units(Precision::Us), Some(1));
    assert_eq!(Timestamp::from_units(-3, Precision::Us), Timestamp::from_nanos(-3_000));
}

#[test]
fn units_that_do_not_fit_are_none_or_saturate() {
    let far = Timestamp::from_nanos(i128::from(i64::MAX) + 1);
    assert_eq!((far.to_units(Precision::Ns), far.to_units_saturating(Precision::Ns)), (None, i64::MAX));
    let past = Timestamp::from_nanos(i128::from(i64::MIN) - 1);
    assert_eq!((past.to_units(Precision::Ns), past.to_units_saturating(Precision::Ns)), (None, i64::MIN));
    assert!(far.to_units(Precision::Us).is_some());
}

#[test]
fn precisions_have_words() {
    for precision in [Precision::Ms, Precision::Us, Precision::Ns] {
        assert_eq!(precision.name().parse(), Ok(precision));
        assert_eq!(precision.nanos() * i128::from(precision.per_second()), NANOS_PER_SECOND);
    }
    assert!("s".parse::<Precision>().unwrap_err().contains("ms, us or ns"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// From the year 1 to 9999, to the nanosecond.
    #[test]
    fn instants_read_back_as_they_are_written(seconds in -62_135_596_800_i64..253_402_300_800, nanos in 0_i128..NANOS_PER_SECOND,
                                              coarse in prop::sample::select(vec![1_i128, 1_000, 1_000_000, NANOS_PER_SECOND])) {
        let instant = Timestamp::from_nanos(i128::from(seconds) * NANOS_PER_SECOND + nanos / coarse * coarse);
        prop_assert_eq!(Timestamp::parse(&instant.to_string()), Ok(instant));
    }

    /// In every unit, to the ends of 64 bits, of which the calendar of chrono holds a thousandth.
    #[test]
    fn stored_units_read_back_as_they_are_written(t: i64, shift in 0_u32..20,
                               p in prop::sample::select(vec![Precision::Ms, Precision::Us, Precision::Ns])) {
        let instant = Timestamp::from_units(t >> shift, p);
        prop_assert_eq!(Timestamp::parse(&instant.to_string()), Ok(instant));
    }

    #[test]
    fn units_survive_and_floor(t: i64, within in 0_i128..1_000_000,
                               p in prop::sample::select(vec![Precision::Ms, Precision::Us, Precision::Ns])) {
        let instant = Timestamp::from_nanos(Timestamp::from_units(t, p).0 + within % p.nanos());
        prop_assert_eq!((instant.to_units(p), instant.to_units_saturating(p)), (Some(t), t));
    }
}

#[test]
fn durations_and_units_convert_exactly_or_not_at_all() {
    for precision in [Precision::Ms, Precision::Us, Precision::Ns] {
        for units in [0, 1, 999, 1_000_000_007, i64::MAX] {
            assert_eq!(precision.units_in(precision.duration(units)), Some(units));
        }
        assert_eq!(precision.duration(-1), Duration::ZERO);
    }
    assert_eq!(Precision::Ms.units_in(Duration::from_nanos(1_500_000)), None);
    assert_eq!(Precision::Ns.units_in(Duration::from_secs(u64::MAX)), None);
    assert_eq!(Precision::Us.units_in(Duration::from_millis(3)), Some(3_000));
}

#[test]
fn the_first_and_the_last_instant_are_shown_read_and_not_left() {
    for nanos in [i128::MIN, i128::MIN + 1, i128::MAX - 1, i128::MAX] {
        let instant = Timestamp::from_nanos(nanos);
        assert_eq!(Timestamp::parse(&instant.to_string()), Ok(instant));
    }
    for beyond in ["+5391559471918239499999-01-01T00:00:00Z", "-9999999999999999999999-01-01T00:00:00Z"] {
        assert!(Timestamp::parse(beyond).is_err(), "{beyond}");
    }
    assert_eq!(Timestamp::from_nanos(i128::MAX).plus_seconds(1), Timestamp::from_nanos(i128::MAX));
    assert_eq!(Timestamp::from_nanos(i128::MIN).plus_seconds(-1), Timestamp::from_nanos(i128::MIN));
}
