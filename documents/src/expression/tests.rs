use super::*;
use bson::rawdoc;

fn parsed(expression: &RawDocument) -> std::result::Result<Expression, ExpressionError> {
    Expression::parse(expression.get("e").unwrap().unwrap())
}

/// The value of the member `e` of a document, for another document, under `r`.
fn value(expression: &RawDocument, document: &RawDocument) -> RawDocumentBuf {
    let mut result = RawDocumentBuf::new();
    if let Some(value) = parsed(expression).unwrap().evaluate(document, 0).unwrap() {
        result.append(bson::raw::cstr!("r"), value);
    }
    result
}

#[test]
fn paths_go_through_objects_and_lists() {
    let document = rawdoc! { "a": [{ "b": 1 }, { "c": 2 }, [{ "b": 3 }], 5], "o": { "p": { "q": "x" } } };
    assert_eq!(value(&rawdoc! { "e": "$a.b" }, &document), rawdoc! { "r": [1] });
    assert_eq!(value(&rawdoc! { "e": "$o.p.q" }, &document), rawdoc! { "r": "x" });
    assert_eq!(value(&rawdoc! { "e": "$o.z.q" }, &document), rawdoc! {});
    assert_eq!(value(&rawdoc! { "e": ["$o.z", 1] }, &document), rawdoc! { "r": [null, 1] });
    assert_eq!(value(&rawdoc! { "e": { "x": "$o.z", "y": 1 } }, &document), rawdoc! { "r": { "y": 1 } });
}

#[test]
fn variables_are_seen_where_they_are_bound() {
    let document = rawdoc! { "l": [1, 2, 3], "n": 10 };
    let map = rawdoc! { "e": { "$map": { "input": "$l", "as": "x", "in": { "$let": {
        "vars": { "y": { "$multiply": ["$$x", 2] } }, "in": { "$add": ["$$x", "$$y", "$n"] }
    } } } } };
    assert_eq!(value(&map, &document), rawdoc! { "r": [13, 16, 19] });
    let nested = rawdoc! { "e": { "$reduce": { "input": "$l", "initialValue": [], "in": { "$concatArrays": [
        "$$value", { "$filter": { "input": "$l", "cond": { "$lt": ["$$this", 2] } } }, ["$$this"]
    ] } } } };
    assert_eq!(value(&nested, &document), rawdoc! { "r": [1, 1, 1, 2, 1, 3] });
    assert_eq!(parsed(&rawdoc! { "e": "$$x" }).unwrap_err().code, 17276);
}

#[test]
fn numbers_widen_when_they_must() {
    let document = rawdoc! { "i": i32::MAX, "l": i64::MAX, "d": 0.5 };
    assert_eq!(value(&rawdoc! { "e": { "$add": ["$i", 1] } }, &document), rawdoc! { "r": 2_147_483_648_i64 });
    assert_eq!(value(&rawdoc! { "e": { "$add": ["$l", 1] } }, &document), rawdoc! { "r": 9_223_372_036_854_775_808.0 });
    assert_eq!(value(&rawdoc! { "e": { "$add": ["$i", "$d"] } }, &document), rawdoc! { "r": 2_147_483_647.5 });
    assert_eq!(value(&rawdoc! { "e": { "$round": [2.345, 2] } }, &document), rawdoc! { "r": 2.34 });
    assert_eq!(value(&rawdoc! { "e": { "$round": [12345, -2] } }, &document), rawdoc! { "r": 12300 });
}

#[test]
fn bins_of_time_begin_in_their_zone() {
    let at = |text: &str| bson::DateTime::parse_rfc3339_str(text).unwrap();
    let truncated = |unit: &str, bins: i32, zone: &str| {
        let expression =
            rawdoc! { "e": { "$dateTrunc": { "date": "$t", "unit": unit, "binSize": bins, "timezone": zone } } };
        value(&expression, &rawdoc! { "t": at("2021-03-28T01:30:10.5Z") }).get_datetime("r").unwrap()
    };
    assert_eq!(truncated("day", 1, "Europe/Berlin"), at("2021-03-27T23:00:00Z"));
    assert_eq!(truncated("hour", 1, "+05:30"), at("2021-03-28T01:30:00Z"));
    assert_eq!(truncated("month", 3, "UTC"), at("2021-01-01T00:00:00Z"));
    assert_eq!(truncated("week", 1, "UTC"), at("2021-03-28T00:00:00Z"));
    assert_eq!(truncated("minute", 15, "UTC"), at("2021-03-28T01:30:00Z"));
}

#[test]
fn what_is_wrong_has_the_number_that_mongodb_gives_it() {
    for (expression, code) in [
        (rawdoc! { "e": { "$frob": 1 } }, 168),
        (rawdoc! { "e": { "$cond": [1, 2] } }, 16020),
        (rawdoc! { "e": { "$add": 1, "b": 2 } }, 15983),
        (rawdoc! { "e": "$a..b" }, 15998),
        (rawdoc! { "e": { "$dateTrunc": { "date": "$t" } } }, 5_439_009),
    ] {
        assert_eq!(parsed(&expression).unwrap_err().code, code, "{expression:?}");
    }
    for (expression, code) in [
        (rawdoc! { "e": { "$add": ["$s", 1] } }, 16554),
        (rawdoc! { "e": { "$divide": [1, "$zero"] } }, 2),
        (rawdoc! { "e": { "$size": "$s" } }, 17124),
        (rawdoc! { "e": { "$year": "$s" } }, 16006),
        (rawdoc! { "e": { "$toInt": "$s" } }, 241),
    ] {
        let error = parsed(&expression).unwrap().evaluate(&rawdoc! { "s": "x", "zero": 0 }, 0).unwrap_err();
        assert_eq!(error.code, code, "{expression:?}");
    }
}
