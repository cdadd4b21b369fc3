use crate::expression::tests::outcome;
use bson::{DateTime, RawDocumentBuf, rawdoc};

type Outcome = std::result::Result<RawDocumentBuf, i32>;

fn at(text: &str) -> Outcome {
    Ok(rawdoc! { "r": DateTime::parse_rfc3339_str(text).unwrap() })
}

fn null() -> Outcome {
    Ok(rawdoc! { "r": null })
}

fn made_of(parts: RawDocumentBuf) -> Outcome {
    outcome(&rawdoc! { "e": { "$dateFromParts": parts } }, &rawdoc! { "n": 5, "null": null, "s": "x" })
}

#[test]
fn dates_are_made_of_parts_that_carry() {
    for (parts, expected) in [
        (rawdoc! { "year": 2024 }, at("2024-01-01T00:00:00Z")),
        (
            rawdoc! { "year": 2024, "month": 2, "day": 29, "hour": 10, "minute": 11, "second": 12, "millisecond": 13 },
            at("2024-02-29T10:11:12.013Z"),
        ),
        (rawdoc! { "year": 2024, "month": 14, "day": 31 }, at("2025-03-03T00:00:00Z")),
        (rawdoc! { "year": 2024, "month": 0, "day": 0 }, at("2023-11-30T00:00:00Z")),
        (rawdoc! { "year": 2024, "hour": 25, "minute": -1, "second": 61 }, at("2024-01-02T01:00:01Z")),
        (rawdoc! { "year": 2024_i64, "month": 2.0, "millisecond": -1 }, at("2024-01-31T23:59:59.999Z")),
        (rawdoc! { "isoWeekYear": 2020 }, at("2019-12-30T00:00:00Z")),
        (rawdoc! { "isoWeekYear": 2020, "isoWeek": 53, "isoDayOfWeek": 7 }, at("2021-01-03T00:00:00Z")),
        (rawdoc! { "isoWeekYear": 2017, "isoWeek": 54, "isoDayOfWeek": 9, "hour": 6 }, at("2018-01-16T06:00:00Z")),
        (rawdoc! { "isoWeekYear": 2018, "isoWeek": 0, "isoDayOfWeek": 0 }, at("2017-12-24T00:00:00Z")),
        (rawdoc! { "year": 2024, "month": 7, "timezone": "Europe/Berlin" }, at("2024-06-30T22:00:00Z")),
        (rawdoc! { "year": 2024, "timezone": "+05:30" }, at("2023-12-31T18:30:00Z")),
        (rawdoc! { "year": "$n" }, at("0005-01-01T00:00:00Z")),
        (rawdoc! { "year": 2024, "month": "$none" }, null()),
        (rawdoc! { "year": "$null" }, null()),
        (rawdoc! { "year": 2024, "timezone": "$null" }, null()),
        (rawdoc! { "isoWeekYear": 2024, "isoWeek": null }, null()),
        (rawdoc! { "year": 2024, "month": "$s" }, Err(40515)),
        (rawdoc! { "year": 2024, "second": 1.5 }, Err(40515)),
        (rawdoc! { "year": 2024, "month": 32768 }, Err(31034)),
        (rawdoc! { "year": 2024, "hour": -32769 }, Err(31034)),
        (rawdoc! { "year": 0 }, Err(40523)),
        (rawdoc! { "year": 10000 }, Err(40523)),
        (rawdoc! { "isoWeekYear": 0 }, Err(31095)),
        (rawdoc! { "year": 2024, "timezone": "$n" }, Err(40517)),
        (rawdoc! { "year": 2024, "timezone": "$s" }, Err(40485)),
        (rawdoc! { "year": 2024, "second": i64::MAX }, Err(159)),
        (rawdoc! { "month": 1 }, Err(40516)),
        (rawdoc! { "year": 2024, "isoWeek": 1 }, Err(40489)),
        (rawdoc! { "isoWeekYear": 2024, "day": 1 }, Err(40525)),
        (rawdoc! { "years": 2024 }, Err(40518)),
    ] {
        assert_eq!(made_of(parts.clone()), expected, "{parts:?}");
    }
    assert_eq!(outcome(&rawdoc! { "e": { "$dateFromParts": 1 } }, &RawDocumentBuf::new()), Err(40519));
}

#[test]
fn dates_are_taken_apart() {
    let document = rawdoc! { "t": DateTime::from_millis(1_609_635_723_004), "n": 5, "null": null };
    let parts = rawdoc! { "year": 2021, "month": 1, "day": 3, "hour": 1, "minute": 2, "second": 3, "millisecond": 4 };
    let weeks = rawdoc! {
        "isoWeekYear": 2020, "isoWeek": 53, "isoDayOfWeek": 7, "hour": 1, "minute": 2, "second": 3, "millisecond": 4,
    };
    let berlin = rawdoc! { "year": 2021, "month": 1, "day": 3, "hour": 2, "minute": 2, "second": 3, "millisecond": 4 };
    for (arguments, expected) in [
        (rawdoc! { "date": "$t" }, Ok(rawdoc! { "r": parts.clone() })),
        (rawdoc! { "date": "$t", "iso8601": false }, Ok(rawdoc! { "r": parts })),
        (rawdoc! { "date": "$t", "iso8601": true }, Ok(rawdoc! { "r": weeks })),
        (rawdoc! { "date": "$t", "timezone": "Europe/Berlin" }, Ok(rawdoc! { "r": berlin })),
        (rawdoc! { "date": "$none" }, null()),
        (rawdoc! { "date": "$n", "timezone": "$null" }, null()),
        (rawdoc! { "date": "$n", "iso8601": "$null" }, null()),
        (rawdoc! { "date": "$n" }, Err(16006)),
        (rawdoc! { "date": "$t", "iso8601": 1 }, Err(40521)),
        (rawdoc! { "date": "$t", "timezone": 1 }, Err(40517)),
        (rawdoc! { "timezone": "UTC" }, Err(40522)),
        (rawdoc! { "date": "$t", "zone": "UTC" }, Err(40520)),
    ] {
        let expression = rawdoc! { "e": { "$dateToParts": arguments } };
        assert_eq!(outcome(&expression, &document), expected, "{expression:?}");
    }
    assert_eq!(outcome(&rawdoc! { "e": { "$dateToParts": "$t" } }, &document), Err(40524));
}
