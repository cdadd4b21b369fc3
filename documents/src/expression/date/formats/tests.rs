use crate::expression::tests::outcome;
use bson::{DateTime, RawDocumentBuf, rawdoc};

type Outcome = std::result::Result<RawDocumentBuf, i32>;

fn at(text: &str) -> Outcome {
    Ok(rawdoc! { "r": DateTime::parse_rfc3339_str(text).unwrap() })
}

/// `$dateFromString` of these arguments.
fn read(arguments: RawDocumentBuf) -> Outcome {
    let document = rawdoc! { "n": 5, "null": null, "s": "2024-02-29T10:00:00" };
    outcome(&rawdoc! { "e": { "$dateFromString": arguments } }, &document)
}

#[test]
fn a_text_is_read_in_a_format() {
    for (format, text, expected) in [
        ("%Y-%m-%d", "2024-02-29", Some("2024-02-29T00:00:00Z")),
        ("%d.%m.%Y %H:%M", "9.2.2024 7:05", Some("2024-02-09T07:05:00Z")),
        ("%Y%m%dT%H%M%S", "20240229T101112", Some("2024-02-29T10:11:12Z")),
        ("%Y-%m-%d %H:%M:%S.%L", "2024-02-29 10:11:12.5", Some("2024-02-29T10:11:12.5Z")),
        ("%Y-%m-%dT%H:%M%z", "2024-02-29T10:11+0130", Some("2024-02-29T08:41:00Z")),
        ("%Y-%m-%dT%H:%M%z", "2024-02-29T10:11-1", Some("2024-02-29T11:11:00Z")),
        ("%Y-%m-%dT%H:%M%z", "2024-02-29T10:11 GMT+01:00", Some("2024-02-29T09:11:00Z")),
        ("%Y-%m-%dT%H:%M%z", "2024-02-29T10:11Z", Some("2024-02-29T10:11:00Z")),
        ("%Y-%m-%dT%H:%M%Z", "2024-02-29T10:11+90", Some("2024-02-29T08:41:00Z")),
        ("%Y-%m-%dT%H:%M%Z", "2024-02-29T10:11-60", Some("2024-02-29T11:11:00Z")),
        ("%G-W%V-%u", "2020-W53-7", Some("2021-01-03T00:00:00Z")),
        ("%G", "2021", Some("2021-01-04T00:00:00Z")),
        ("%V/%G", "10/2020", Some("2020-03-02T00:00:00Z")),
        ("%d/%m/%Y %%", "29/02/2024 %", Some("2024-02-29T00:00:00Z")),
        ("\u{e9}%Y-%m-%d", "\u{e9}2024-02-29", Some("2024-02-29T00:00:00Z")),
        ("%Y-%m-%d", "2023-02-29", None),
        ("%Y-%m-%d", "2024-13-01", None),
        ("%Y-%m-%d", "2024-02-29 ", None),
        ("%Y-%m-%d", "2024-02", None),
        ("%Y-%m", "2024-02", None),
        ("%m-%d", "02-29", None),
        ("%Y-%m-%d %H", "2024-02-29 24", None),
        ("%Y-%m-%d %H:%M", "2024-02-29 10:1", None),
        ("%Y-%m-%d %z", "2024-02-29 Europe/Berlin", None),
        ("%Y-%m-%d %Z", "2024-02-29 60", None),
        ("%G-%m-%d", "2024-02-29", None),
        ("%Y-%V", "2024-10", None),
        ("%G-%V", "2020-54", None),
        ("%G-%u", "2020-8", None),
        ("%V", "10", None),
        ("", "", None),
        ("%Y-%m-%d", "a024-02-29", None),
    ] {
        let expected = expected.map_or(Err(241), at);
        assert_eq!(read(rawdoc! { "dateString": text, "format": format }), expected, "{format} {text}");
    }
}

#[test]
fn a_time_zone_is_that_of_texts_without_one() {
    let of = |text: &str, zone: &str| read(rawdoc! { "dateString": text, "timezone": zone });
    assert_eq!(of("2024-07-01T10:00:00", "Europe/Berlin"), at("2024-07-01T08:00:00Z"));
    assert_eq!(of("2024-07-01", "+01:30"), at("2024-06-30T22:30:00Z"));
    assert_eq!(of("2024-07-01T10:00:00", "UTC"), at("2024-07-01T10:00:00Z"));
    assert_eq!(of("2024-07-01T10:00:00+01:00", "+00:00"), at("2024-07-01T09:00:00Z"));
    assert_eq!(of("2024-07-01T10:00:00Z", "UTC"), Err(241));
    assert_eq!(of("2024-07-01 +0130", "GMT"), Err(241));
    let formatted = |zone: &str| {
        read(rawdoc! { "dateString": "2024-07-01 +01", "format": "%Y-%m-%d %z", "timezone": zone, "onError": "wrong" })
    };
    assert_eq!(formatted("-0000"), at("2024-06-30T23:00:00Z"));
    assert_eq!(formatted("Etc/UTC"), Ok(rawdoc! { "r": "wrong" }));
    assert_eq!(of("2024-07-01T10:00:00Z", "Europe/Berlin"), Err(241));
    assert_eq!(of("2024-07-01T10:00:00+02:00", "+02:00"), Err(241));
    assert_eq!(of("2024-07-01", "Nowhere"), Err(40485));
}

#[test]
fn what_is_missing_or_wrong_has_another_value() {
    let fails = || rawdoc! { "$divide": [1, { "$ifNull": ["$none", 0] }] };
    for (arguments, expected) in [
        (rawdoc! { "dateString": "$s" }, at("2024-02-29T10:00:00Z")),
        (rawdoc! { "dateString": "$s", "onError": fails(), "onNull": fails() }, at("2024-02-29T10:00:00Z")),
        (rawdoc! { "dateString": "$none" }, Ok(rawdoc! { "r": null })),
        (rawdoc! { "dateString": "$none", "onNull": "none", "onError": "wrong" }, Ok(rawdoc! { "r": "none" })),
        (rawdoc! { "dateString": "$none", "onNull": "$none" }, Ok(rawdoc! {})),
        (rawdoc! { "dateString": "soon" }, Err(241)),
        (rawdoc! { "dateString": "soon", "onError": "wrong" }, Ok(rawdoc! { "r": "wrong" })),
        (rawdoc! { "dateString": "$n", "onError": "wrong" }, Ok(rawdoc! { "r": "wrong" })),
        (rawdoc! { "dateString": "$n", "timezone": "$none" }, Err(241)),
        (rawdoc! { "dateString": "$s", "timezone": "$none", "onNull": "none" }, Ok(rawdoc! { "r": null })),
        (rawdoc! { "dateString": "$s", "format": "$null", "onNull": "none" }, Ok(rawdoc! { "r": null })),
        // Formats and time zones are checked whatever the text is.
        (rawdoc! { "dateString": "$none", "format": "$n", "onNull": "none", "onError": "wrong" }, Err(40684)),
        (rawdoc! { "dateString": "$none", "format": "%q", "onNull": "none", "onError": "wrong" }, Err(18536)),
        (rawdoc! { "dateString": "$none", "format": "%", "onNull": "none", "onError": "wrong" }, Err(18535)),
        (rawdoc! { "dateString": "$none", "timezone": "$s", "onNull": "none", "onError": "wrong" }, Err(40485)),
        (rawdoc! { "dateString": "$none", "timezone": "$n", "onNull": "none", "onError": "wrong" }, Err(40517)),
        (rawdoc! { "format": "%Y" }, Err(40542)),
        (rawdoc! { "date": "$s" }, Err(40541)),
    ] {
        assert_eq!(read(arguments.clone()), expected, "{arguments:?}");
    }
    assert_eq!(outcome(&rawdoc! { "e": { "$dateFromString": "$s" } }, &RawDocumentBuf::new()), Err(40540));
}
