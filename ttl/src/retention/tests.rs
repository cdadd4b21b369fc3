use super::*;

#[test]
fn all_forms_of_ten_years_are_the_same_seconds() {
    for text in [
        "315360000",
        "10 years",
        "10 YEAR",
        "10y",
        "3650d",
        "3650 days",
        "interval '3650 days'",
        "INTERVAL '10 years'",
        "interval 10 years",
        "P10Y",
        "p3650d",
        "P9Y365D",
        "PT87600H",
        "87600 hours",
        "9 years 364 days 24h",
        "10.0 years",
    ] {
        assert_eq!(parse_retention(text), Ok(10 * 365 * 86_400), "{text}");
    }
}

#[test]
fn parts_fractions_and_signs_are_exact() {
    for (text, seconds) in [
        ("1.5 hours", 5_400),
        ("1 day 12 hours", 129_600),
        ("P1DT12H", 129_600),
        ("P2W", 1_209_600),
        ("PT1.5M", 90),
        ("-1 day", -86_400),
        ("0", 0),
        ("9223372036854775807", i64::MAX),
        ("-9223372036854775808 s", i64::MIN),
    ] {
        assert_eq!(parse_retention(text), Ok(seconds), "{text}");
    }
}

#[test]
fn seconds_are_written_in_the_largest_unit_that_divides_them() {
    for (seconds, text) in [
        (0, "0 seconds"),
        (1, "1 second"),
        (90, "90 seconds"),
        (3_600, "1 hour"),
        (1_209_600, "2 weeks"),
        (90 * 86_400, "90 days"),
        (365 * 86_400, "1 year"),
        (-60, "-60 seconds"),
    ] {
        assert_eq!(retention_text(seconds), text);
        assert_eq!(parse_retention(text), Ok(seconds));
    }
}

#[test]
fn other_texts_are_refused_with_a_reason() {
    for (text, reason) in [
        ("", "write it as"),
        ("soon", "write it as"),
        ("P", "write it as"),
        ("PT", "write it as"),
        ("P10", "write it as"),
        ("P1H", "write it as"),
        ("10 fortnights", "'fortnights' is not a unit"),
        ("1 month", "no fixed length"),
        ("P1M", "no fixed length"),
        ("1 day 12", "write it as"),
        ("1 2 days", "a unit is missing"),
        ("0.1 s", "whole number of seconds"),
        ("1..5 h", "write it as"),
        ("9223372036854775808", "out of range"),
        ("99999999999999999999 years", "out of range"),
        ("9999999999999999999 years", "out of range"),
        ("interval '1 day", "write it as"),
        ("5 d\u{e9}j\u{e0}", "write it as"),
    ] {
        let message = parse_retention(text).unwrap_err().message;
        assert!(message.contains(reason) || (text == "1 day 12" && message.contains("unit")), "{text}: {message}");
    }
}
