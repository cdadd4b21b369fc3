use super::super::tests::{parsed, value};
use super::*;
use bson::{RawDocument, RawDocumentBuf, rawdoc};

/// The value of the member `e` of a document for one with the date `t` and nothing else, or the number of its error.
fn evaluated(expression: &RawDocument) -> std::result::Result<Value, i32> {
    let document = rawdoc! { "t": DateTime::from_millis(1_000), "null": null };
    parsed(expression).unwrap().evaluate(&document, 0).map_err(|error| error.code)
}

fn text(text: &str) -> std::result::Result<Value, i32> {
    Ok(Some(RawBson::String(text.to_owned())))
}

#[test]
fn on_null_is_evaluated_only_where_there_is_no_date() {
    let of = |date: &str, on_null: RawDocumentBuf| {
        evaluated(&rawdoc! { "e": { "$dateToString": { "date": date, "format": "%S", "onNull": on_null } } })
    };
    let divided = || rawdoc! { "$divide": [1, { "$ifNull": ["$none", 0] }] };
    assert_eq!(of("$t", divided()), text("01"));
    assert_eq!(of("$none", divided()), Err(2));
    assert_eq!(of("$none", rawdoc! { "$concat": ["a", "b"] }), text("ab"));
}

#[test]
fn a_format_and_a_time_zone_are_checked_whatever_the_date_is() {
    let of = |members: RawDocumentBuf| {
        let mut arguments = rawdoc! { "date": "$none" };
        for (name, value) in members.iter().map(std::result::Result::unwrap) {
            arguments.append(name, value);
        }
        evaluated(&rawdoc! { "e": { "$dateToString": arguments } })
    };
    assert_eq!(of(rawdoc! { "format": { "$ifNull": ["$none", 5] } }), Err(18533));
    assert_eq!(of(rawdoc! { "format": { "$ifNull": ["$none", "%q"] } }), Err(18536));
    assert_eq!(of(rawdoc! { "format": { "$ifNull": ["$none", "%"] } }), Err(18535));
    assert_eq!(of(rawdoc! { "timezone": { "$ifNull": ["$none", "Nowhere"] } }), Err(40485));
    assert_eq!(of(rawdoc! { "format": "%%", "onNull": "none" }), text("none"));
    assert_eq!(of(rawdoc! { "timezone": "$null", "onNull": "none" }), text("none"));
    // What is no date fails before a time zone that is null.
    assert_eq!(evaluated(&rawdoc! { "e": { "$year": { "date": "x", "timezone": "$null" } } }), Err(16006));
}

#[test]
fn the_start_of_a_week_counts_for_weeks_alone() {
    for (unit, start, is_null, code) in [
        ("day", RawBson::Null, false, None),
        ("week", RawBson::Null, true, None),
        ("month", RawBson::String("someday".to_owned()), false, None),
        ("week", RawBson::String("someday".to_owned()), false, Some(5_439_016)),
        ("week", RawBson::Int32(1), false, Some(5_439_015)),
        ("fortnight", RawBson::Null, false, Some(5_439_014)),
    ] {
        for expression in [
            rawdoc! { "$dateTrunc": { "date": "$t", "unit": unit, "startOfWeek": start.clone() } },
            rawdoc! { "$dateDiff": { "startDate": "$t", "endDate": "$t", "unit": unit, "startOfWeek": start.clone() } },
        ] {
            let found = evaluated(&rawdoc! { "e": expression });
            assert_eq!(found.as_ref().err(), code.as_ref(), "{unit} {start:?}");
            assert_eq!(found == Ok(Some(RawBson::Null)), is_null, "{unit} {start:?}");
        }
    }
}

#[test]
fn a_distance_from_utc_has_two_digits_for_the_hours_and_two_for_the_minutes() {
    let hour = |zone: &str| {
        let found =
            evaluated(&rawdoc! { "e": { "$dateToString": { "date": "$t", "format": "%d %H:%M", "timezone": zone } } });
        found.map(|text| text.unwrap().as_str().unwrap().to_owned())
    };
    for (zone, expected) in [
        ("+01", "01 01:00"),
        ("-0130", "31 22:30"),
        ("+05:45", "01 05:45"),
        ("+24", "02 00:00"),
        ("+99:99", "05 04:39"),
    ] {
        assert_eq!(hour(zone).as_deref(), Ok(expected), "{zone}");
    }
    for zone in ["+", "+1", "+100", "+1:00", "+0:100", "+-100", "+01:0", "+01:00:00", "+٣٣"] {
        assert_eq!(hour(zone), Err(40485), "{zone}");
    }
}

#[test]
fn a_date_is_not_moved_farther_than_two_dates_can_be_apart() {
    let moved = |name: &str, unit: &str, amount: i64| {
        let mut expression = RawDocumentBuf::new();
        let name = bson::raw::CString::try_from(name).unwrap();
        expression.append(name, rawdoc! { "startDate": "$t", "unit": unit, "amount": amount });
        evaluated(&rawdoc! { "e": expression }).map(|found| found.is_some())
    };
    assert_eq!(moved("$dateAdd", "year", 1_000_000_000), Err(5_976_500));
    assert_eq!(moved("$dateAdd", "second", i64::MAX), Err(5_976_500));
    assert_eq!(moved("$dateAdd", "year", 1_000_000), Err(5_166_406));
    assert_eq!(moved("$dateAdd", "millisecond", i64::MAX), Err(5_166_406));
    assert_eq!(moved("$dateSubtract", "day", i64::MIN), Err(6_045_000));
    assert_eq!(moved("$dateSubtract", "day", 1), Ok(true));
    assert_eq!(moved("$dateAdd", "eon", 1), Err(9));
}

#[test]
fn dates_are_read_in_the_forms_of_iso_8601() {
    let read = |text: &str| {
        let found = value(&rawdoc! { "e": { "$toDate": "$s" } }, &rawdoc! { "s": text });
        found.get_datetime("r").unwrap().try_to_rfc3339_string().unwrap()
    };
    for (text, expected) in [
        ("2024-02-29", "2024-02-29T00:00:00Z"),
        ("2024-02", "2024-02-01T00:00:00Z"),
        ("2024/2/9", "2024-02-09T00:00:00Z"),
        ("20240229", "2024-02-29T00:00:00Z"),
        (" 2024-02-29 10:11 ", "2024-02-29T10:11:00Z"),
        ("2024-02-29T10:11Z", "2024-02-29T10:11:00Z"),
        ("2024-02-29t10:11:12.5z", "2024-02-29T10:11:12.5Z"),
        ("2024-02-29T10:11:12.1239+01:00", "2024-02-29T09:11:12.123Z"),
        ("2024-02-29 10:11:12 -0130", "2024-02-29T11:41:12Z"),
        ("2024-02-29T10:11+18", "2024-02-28T16:11:00Z"),
        ("2024-02-29T10:11:12 UTC", "2024-02-29T10:11:12Z"),
        ("20240229T101112Z", "2024-02-29T10:11:12Z"),
        ("20240229T1011", "2024-02-29T10:11:00Z"),
        ("1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z"),
        ("2024-2-9", "2024-02-09T00:00:00Z"),
        ("24-2-9", "2024-02-09T00:00:00Z"),
        ("69-12-31 10:11", "2069-12-31T10:11:00Z"),
        ("70-01-01", "1970-01-01T00:00:00Z"),
        ("5-1-1", "2005-01-01T00:00:00Z"),
        ("0024-02-09", "0024-02-09T00:00:00Z"),
        ("2020-W53-7", "2021-01-03T00:00:00Z"),
        ("2020W537", "2021-01-03T00:00:00Z"),
        ("2020-W53", "2020-12-28T00:00:00Z"),
        ("2020W53T10:11Z", "2020-12-28T10:11:00Z"),
        ("2021-W53-1", "2022-01-03T00:00:00Z"),
        ("2021-W01-0", "2021-01-03T00:00:00Z"),
        ("2024-02-29T10", "2024-02-29T10:00:00Z"),
        ("2024-02-29 T9", "2024-02-29T09:00:00Z"),
        ("2024-02-29T10Z", "2024-02-29T10:00:00Z"),
        ("2024-02-29T10+01", "2024-02-29T09:00:00Z"),
        ("2024-02-29 +5:45", "2024-02-28T18:15:00Z"),
        ("2024-02-29+0545", "2024-02-28T18:15:00Z"),
        ("2024-02-29-530", "2024-02-29T05:30:00Z"),
        ("2024-02 Z", "2024-02-01T00:00:00Z"),
        ("20240229 GMT-01:30", "2024-02-29T01:30:00Z"),
    ] {
        assert_eq!(read(text), expected, "{text}");
    }
}

#[test]
fn what_is_no_date_is_not_read_as_one() {
    for text in [
        "",
        "2024",
        "24-02",
        "24/2/9",
        "24-02-30",
        "9-2-2024",
        "2024-02-301",
        "2024-02-30",
        "2024-13-01",
        "2024-001",
        "2024/02",
        "2024-02-29T",
        "2024-02-29T100",
        "2024-02-29 10",
        "2024-02-29 1011",
        "2024-02-2910:11",
        "2024-02-29T 10:11",
        "2024-02-29 -60",
        "2024-02-29 +15:",
        "2024-02-29 Europe/Berlin",
        "2020-W54-1",
        "2020-W00",
        "2020-W5",
        "2020-W53-8",
        "2020-W53-71",
        "2020-w53-7",
        "20-W53-7",
        "2024-02-29T24:00:00Z",
        "2024-02-29T10:11:60Z",
        "2024-02-29T10:11.5Z",
        "2024-02-29T10:11:12.Z",
        "2024-02-29T10:11:12+25:00",
        "2024-02-29T10:11:12+01:60",
        "2024-02-29T10:11:12+é1",
        "2024-02-29T10:11:12 noon",
        "+12024-02-29T10:11:12Z",
        "٢٠٢٤-02-29",
    ] {
        assert_eq!(millis_of_text(text), None, "{text}");
    }
}
