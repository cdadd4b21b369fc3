use super::*;
use bson::rawdoc;

pub(super) fn parsed(expression: &RawDocument) -> std::result::Result<Expression, ExpressionError> {
    Expression::parse(expression.get("e").unwrap().unwrap())
}

/// The value of the member `e` of a document, for another document, under `r`.
pub(super) fn value(expression: &RawDocument, document: &RawDocument) -> RawDocumentBuf {
    let mut result = RawDocumentBuf::new();
    if let Some(value) = parsed(expression).unwrap().evaluate(document, 0).unwrap() {
        result.append(bson::raw::cstr!("r"), value);
    }
    result
}

/// The value of the member `e` of a document, for another document, under `r`; or the number of its error.
pub(super) fn outcome(expression: &RawDocument, document: &RawDocument) -> std::result::Result<RawDocumentBuf, i32> {
    let value =
        parsed(expression).and_then(|expression| expression.evaluate(document, 0)).map_err(|error| error.code)?;
    let mut result = RawDocumentBuf::new();
    if let Some(value) = value {
        result.append(bson::raw::cstr!("r"), value);
    }
    Ok(result)
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
fn texts_are_trimmed_of_blanks_or_of_characters_that_are_named() {
    let document = rawdoc! { "t": "\u{a0} xéy ", "c": "éxx " };
    assert_eq!(value(&rawdoc! { "e": { "$trim": { "input": "$t" } } }, &document), rawdoc! { "r": "xéy" });
    let named = || rawdoc! { "input": "xéyéx", "chars": "$c" };
    assert_eq!(value(&rawdoc! { "e": { "$trim": named() } }, &document), rawdoc! { "r": "y" });
    assert_eq!(value(&rawdoc! { "e": { "$ltrim": named() } }, &document), rawdoc! { "r": "yéx" });
    assert_eq!(value(&rawdoc! { "e": { "$rtrim": named() } }, &document), rawdoc! { "r": "xéy" });
}

#[test]
fn numbers_widen_when_they_must() {
    let document = rawdoc! { "i": i32::MAX, "l": i64::MAX, "d": 0.5 };
    assert_eq!(value(&rawdoc! { "e": { "$add": ["$i", 1] } }, &document), rawdoc! { "r": 2_147_483_648_i64 });
    assert_eq!(value(&rawdoc! { "e": { "$add": ["$l", 1] } }, &document), rawdoc! { "r": 9_223_372_036_854_775_808.0 });
    assert_eq!(value(&rawdoc! { "e": { "$add": ["$i", "$d"] } }, &document), rawdoc! { "r": 2_147_483_647.5 });
    assert_eq!(value(&rawdoc! { "e": { "$add": [0.1, 0.2, 0.3] } }, &document), rawdoc! { "r": 0.6 });
    for (millis, more, sum) in [
        (854_274_684_249, 4_611_686_018_427_387_904.0, 4_611_686_872_702_072_153),
        (7, 0.5, 7),
        (7, 0.75, 8),
        (7, -0.5, 6),
        (-7, 1.5, -5),
        (-7, -2.5, -9),
    ] {
        let at = bson::DateTime::from_millis;
        assert_eq!(
            value(&rawdoc! { "e": { "$add": [at(millis), more] } }, &document),
            rawdoc! { "r": at(sum) },
            "{more}"
        );
    }
    for (base, exponent, power) in [(-1, -1, -1), (-1, -4, 1), (1, -3, 1), (0, 0, 1), (0, 7, 0), (-2, 3, -8)] {
        let pow = rawdoc! { "e": { "$pow": [{ "$ifNull": ["$none", base] }, exponent] } };
        assert_eq!(value(&pow, &document), rawdoc! { "r": power }, "{base} {exponent}");
    }
    assert_eq!(value(&rawdoc! { "e": { "$pow": [2, -1] } }, &document), rawdoc! { "r": 0.5 });
    assert_eq!(value(&rawdoc! { "e": { "$round": [2.345, 2] } }, &document), rawdoc! { "r": 2.35 });
    // 2.675 and 0.29 are doubles slightly below these decimals.
    assert_eq!(value(&rawdoc! { "e": { "$round": [2.675, 2] } }, &document), rawdoc! { "r": 2.67 });
    assert_eq!(value(&rawdoc! { "e": { "$trunc": [0.29, 2] } }, &document), rawdoc! { "r": 0.28 });
    assert_eq!(value(&rawdoc! { "e": { "$trunc": [-1e-20, 30] } }, &document), rawdoc! { "r": -9.999999999e-21 });
    assert_eq!(value(&rawdoc! { "e": { "$round": [12345, -2] } }, &document), rawdoc! { "r": 12300 });
    // What is rounded comes before the number of places.
    assert_eq!(value(&rawdoc! { "e": { "$round": ["$none", "$i.x"] } }, &document), rawdoc! { "r": null });
    assert_eq!(value(&rawdoc! { "e": { "$round": ["$none", 1.5] } }, &document), rawdoc! { "r": null });
}

#[test]
fn an_instant_moves_by_whole_milliseconds() {
    let at = bson::DateTime::from_millis;
    for (millis, by, after, before) in [
        (10, 0.5, 10, 10),
        (10, 0.6, 11, 10),
        (10, 1.5, 11, 9),
        (10, -0.5, 9, 10),
        (-10, 0.5, -9, -10),
        (-10, -0.6, -11, -10),
    ] {
        let document = rawdoc! { "t": at(millis), "by": by };
        assert_eq!(value(&rawdoc! { "e": { "$add": ["$t", "$by"] } }, &document), rawdoc! { "r": at(after) }, "{by}");
        assert_eq!(value(&rawdoc! { "e": { "$add": ["$by", "$t"] } }, &document), rawdoc! { "r": at(after) }, "{by}");
        assert_eq!(
            value(&rawdoc! { "e": { "$subtract": ["$t", "$by"] } }, &document),
            rawdoc! { "r": at(before) },
            "{by}"
        );
    }
}

#[test]
fn constants_are_seen_by_name_and_see_those_before_them() {
    let read = |values: RawDocumentBuf| Constants::parse(&values, 1000);
    let constants = read(rawdoc! {
        "x": 2, "y": { "$add": ["$$x", 1] }, "z": { "k": [{ "m": "$$y" }, 1] }, "now": "$$NOW", "gone": "$$REMOVE", "text": { "$literal": "$a" },
    });
    let constants = constants.unwrap();
    let value = |expression: RawDocumentBuf| {
        let read = constants.expression(expression.get("e").unwrap().unwrap()).unwrap();
        read.evaluate(&rawdoc! { "a": 7 }, 0).unwrap().unwrap_or(RawBson::Undefined)
    };
    assert_eq!(value(rawdoc! { "e": { "$multiply": ["$a", "$$x", "$$y"] } }), RawBson::Int32(42));
    assert_eq!(value(rawdoc! { "e": { "$arrayElemAt": ["$$z.k.m", 0] } }), RawBson::Int32(3));
    assert_eq!(value(rawdoc! { "e": "$$now" }), RawBson::DateTime(bson::DateTime::from_millis(1000)));
    assert_eq!(
        value(rawdoc! { "e": { "$ifNull": ["$$gone", "$$z.none", "$$text"] } }),
        RawBson::String("$a".to_owned())
    );
    assert_eq!(value(rawdoc! { "e": { "$let": { "vars": { "x": 5 }, "in": "$$x" } } }), RawBson::Int32(5));
    for (wrong, code) in [
        (rawdoc! { "x": "$a" }, 4_890_500),
        (rawdoc! { "x": ["$$ROOT"] }, 4_890_500),
        (rawdoc! { "x": "$$y", "y": 1 }, 17276),
        (rawdoc! { "X": 1 }, 9),
        (rawdoc! { "NOW": 1 }, 4_738_901),
        (rawdoc! { "x": { "$divide": [1, 0] } }, 2),
    ] {
        assert_eq!(read(wrong.clone()).unwrap_err().code, code, "{wrong:?}");
    }
}

#[test]
fn objects_are_made_of_pairs_and_of_objects() {
    let document = rawdoc! { "l": [["a", 1], ["b.c", 2], ["a", 3]], "o": [{ "k": "$d", "v": null }, { "v": 1, "k": "" }], "n": [] };
    let of = |list: &str| value(&rawdoc! { "e": { "$arrayToObject": list } }, &document);
    assert_eq!(of("$l"), rawdoc! { "r": { "a": 3, "b.c": 2 } });
    assert_eq!(of("$o"), rawdoc! { "r": { "$d": null, "": 1 } });
    assert_eq!(of("$n"), rawdoc! { "r": {} });
    assert_eq!(of("$none"), rawdoc! { "r": null });
    let merged = rawdoc! { "e": { "$mergeObjects": [{ "x": 1, "y": 2 }, null, { "z": 3, "x": { "$size": "$l" } }] } };
    assert_eq!(value(&merged, &document), rawdoc! { "r": { "x": 3, "y": 2, "z": 3 } });
    let field = rawdoc! { "e": { "$getField": { "field": "b.c", "input": { "$arrayToObject": "$l" } } } };
    assert_eq!(value(&field, &document), rawdoc! { "r": 2 });
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
fn dates_at_the_ends_of_the_calendar_and_days_that_were_left_out() {
    let at = bson::DateTime::from_millis;
    let first = chrono::NaiveDate::MIN.and_time(chrono::NaiveTime::MIN).and_utc().timestamp_millis();
    let code = |expression: RawDocumentBuf| {
        let document = rawdoc! { "t": at(first + 3_600_000) };
        parsed(&expression).unwrap().evaluate(&document, 0).map(drop).map_err(|error| error.code)
    };
    let day = |zone: &str| rawdoc! { "e": { "$dateTrunc": { "date": "$t", "unit": "day", "timezone": zone } } };
    assert_eq!(code(day("Asia/Tokyo")), Err(15));
    assert_eq!(code(day("UTC")), Ok(()));
    let month = |unit: &str| rawdoc! { "e": { "$dateSubtract": { "startDate": "$t", "unit": unit, "amount": 1, "timezone": "Asia/Tokyo" } } };
    assert_eq!(code(month("month")), Err(5_166_406));
    assert_eq!(code(month("day")), Err(5_166_406));
    // Samoa went from the 29th to the 31st, and from UTC-10 to UTC+14.
    let text = |text: &str| bson::DateTime::parse_rfc3339_str(text).unwrap();
    let added =
        rawdoc! { "e": { "$dateAdd": { "startDate": "$t", "unit": "day", "amount": 1, "timezone": "Pacific/Apia" } } };
    assert_eq!(
        value(&added, &rawdoc! { "t": text("2011-12-29T22:00:00Z") }),
        rawdoc! { "r": text("2011-12-30T22:00:00Z") }
    );
}

#[test]
fn a_text_of_a_date_ends_with_z_in_utc_alone() {
    let text = |zone: &str| {
        text_or_code(
            &rawdoc! { "e": { "$dateToString": { "date": "$a", "timezone": zone } } },
            bson::DateTime::from_millis(0),
        )
    };
    for zone in ["UTC", "GMT", "+00:00", "-00", "Etc/UTC", "Etc/GMT", "Zulu"] {
        assert_eq!(text(zone).as_deref(), Ok("1970-01-01T00:00:00.000Z"), "{zone}");
    }
    assert_eq!(text("Etc/GMT+10").as_deref(), Ok("1969-12-31T14:00:00.000"));
    assert_eq!(text("Africa/Abidjan").as_deref(), Ok("1970-01-01T00:00:00.000"));
    assert_eq!(text("+01:30").as_deref(), Ok("1970-01-01T01:30:00.000"));
}

#[test]
fn a_part_of_a_date_in_a_time_zone_that_is_missing_is_null() {
    let parts = [
        "$year",
        "$month",
        "$dayOfMonth",
        "$dayOfYear",
        "$dayOfWeek",
        "$isoDayOfWeek",
        "$isoWeek",
        "$isoWeekYear",
        "$week",
        "$hour",
        "$minute",
        "$second",
        "$millisecond",
    ];
    let document = rawdoc! { "t": bson::DateTime::from_millis(0), "z": "+05:00", "n": null };
    for part in parts {
        let of = |argument: RawDocumentBuf| {
            let mut expression = RawDocumentBuf::new();
            expression.append(bson::raw::CString::try_from(part).unwrap(), argument);
            rawdoc! { "e": expression }
        };
        for zone in ["$none", "$n", "$$REMOVE"] {
            let expression = of(rawdoc! { "date": "$t", "timezone": zone });
            assert_eq!(value(&expression, &document), rawdoc! { "r": null }, "{part} {zone}");
        }
        assert_ne!(value(&of(rawdoc! { "date": "$t" }), &document), rawdoc! { "r": null }, "{part}");
        let read = |argument: RawDocumentBuf| parsed(&of(argument)).unwrap_err().code;
        assert_eq!(read(rawdoc! { "date": "$t", "zone": "UTC" }), 40535, "{part}");
        assert_eq!(read(rawdoc! { "timezone": "UTC" }), 40539, "{part}");
    }
    assert_eq!(value(&rawdoc! { "e": { "$hour": { "date": "$t", "timezone": "$z" } } }, &document), rawdoc! { "r": 5 });
    assert_eq!(value(&rawdoc! { "e": { "$hour": { "$add": ["$t", 3_600_000] } } }, &document), rawdoc! { "r": 1 });
}

#[test]
fn what_is_wrong_has_the_number_that_mongodb_gives_it() {
    for (expression, code) in [
        (rawdoc! { "e": { "$frob": 1 } }, 168),
        (rawdoc! { "e": { "$cond": [1, 2] } }, 16020),
        (rawdoc! { "e": { "$dayOfWeek": ["$t", 1] } }, 40536),
        (rawdoc! { "e": { "$add": 1, "b": 2 } }, 15983),
        (rawdoc! { "e": "$a..b" }, 15998),
        (rawdoc! { "e": { "$dateTrunc": { "date": "$t" } } }, 5_439_009),
        (rawdoc! { "e": { "$getField": { "field": "a" } } }, 3_041_703),
        (rawdoc! { "e": { "$getField": { "input": "$a" } } }, 3_041_702),
        (rawdoc! { "e": { "$getField": { "name": "a" } } }, 3_041_701),
    ] {
        assert_eq!(parsed(&expression).unwrap_err().code, code, "{expression:?}");
    }
    for (expression, code) in [
        (rawdoc! { "e": { "$add": ["$s", 1] } }, 16554),
        (rawdoc! { "e": { "$divide": [1, "$zero"] } }, 2),
        (rawdoc! { "e": { "$size": "$s" } }, 17124),
        (rawdoc! { "e": { "$year": "$s" } }, 16006),
        (rawdoc! { "e": { "$toInt": "$s" } }, 241),
        (rawdoc! { "e": { "$round": ["$zero", "$s"] } }, 16004),
        (rawdoc! { "e": { "$round": ["$zero", 1.5] } }, 51082),
        (rawdoc! { "e": { "$trunc": ["$zero", 2_147_483_648_i64] } }, 51082),
        (rawdoc! { "e": { "$trunc": ["$zero", 101] } }, 51083),
        (rawdoc! { "e": { "$round": ["$s", null] } }, 51081),
        (rawdoc! { "e": { "$range": [1.5, "$zero"] } }, 34444),
        (rawdoc! { "e": { "$range": ["$zero", "$s"] } }, 34445),
        (rawdoc! { "e": { "$range": ["$zero", 2_147_483_648_i64] } }, 34446),
        (rawdoc! { "e": { "$slice": [["$s"], 1.5] } }, 28726),
        (rawdoc! { "e": { "$arrayElemAt": [["$s"], 1.5] } }, 28691),
        (rawdoc! { "e": { "$indexOfArray": [["$s"], 1, 1.5] } }, 40096),
        (rawdoc! { "e": { "$substrCP": ["$s", 2_147_483_648_i64, 1] } }, 34451),
        (rawdoc! { "e": { "$substrCP": ["$s", 0, "$s"] } }, 34452),
        (rawdoc! { "e": { "$arrayToObject": [[["$s"]]] } }, 40397),
        (rawdoc! { "e": { "$filter": { "input": ["$s"], "cond": true, "limit": -1 } } }, 327_392),
        (rawdoc! { "e": { "$filter": { "input": ["$s"], "cond": true, "limit": 4_294_967_296_i64 } } }, 327_391),
        (rawdoc! { "e": { "$arrayToObject": [["$s"]] } }, 40398),
        (rawdoc! { "e": { "$arrayToObject": [[["$s", 1], { "k": "a", "v": 1 }]] } }, 40396),
        (rawdoc! { "e": { "$arrayToObject": [[[1, "$s"]]] } }, 40395),
        (rawdoc! { "e": { "$arrayToObject": [[{ "k": "$s", "v": 1 }, ["$s", 1]]] } }, 40391),
        (rawdoc! { "e": { "$arrayToObject": [[{ "k": "$s", "v": 1, "x": 1 }]] } }, 40392),
        (rawdoc! { "e": { "$arrayToObject": [[{ "k": "$s", "x": 1 }]] } }, 40393),
        (rawdoc! { "e": { "$arrayToObject": [[{ "k": "$zero", "v": 1 }]] } }, 40394),
    ] {
        let error = parsed(&expression).unwrap().evaluate(&rawdoc! { "s": "x", "zero": 0 }, 0).unwrap_err();
        assert_eq!(error.code, code, "{expression:?}");
    }
}

#[test]
fn what_is_constant_fails_whether_or_not_it_is_asked_for() {
    for (expression, code) in [
        (rawdoc! { "e": { "$toInt": { "$ifNull": [null, 1_i64 << 62, "$a"] } } }, 241),
        (
            rawdoc! { "e": { "$switch": { "branches": [{ "case": { "$slice": [1, 2] }, "then": 1 }], "default": { "$year": -1 } } } },
            16006,
        ),
    ] {
        assert_eq!(parsed(&expression).unwrap().check_constants().unwrap_err().code, code, "{expression:?}");
    }
    let never =
        rawdoc! { "e": { "$switch": { "branches": [{ "case": null, "then": { "$year": -1 } }], "default": "$b" } } };
    assert_eq!(value(&never, &rawdoc! { "b": 1 }), rawdoc! { "r": 1 });
    for expression in
        [rawdoc! { "e": { "$ifNull": ["$a", 7] } }, rawdoc! { "e": { "$ifNull": [null, "$none", 7, "$b"] } }]
    {
        assert_eq!(value(&expression, &rawdoc! { "b": 1 }), rawdoc! { "r": 7 }, "{expression:?}");
    }
}

/// What an expression gives for a document with this value as `a`: a text, or the number of its error.
fn text_or_code(expression: &RawDocument, a: impl Into<RawBson>) -> std::result::Result<String, i32> {
    let mut document = RawDocumentBuf::new();
    document.append(bson::raw::cstr!("a"), a.into());
    let value = parsed(expression).unwrap().evaluate(&document, 0).map_err(|error| error.code)?;
    Ok(value.unwrap().as_str().unwrap().to_owned())
}

#[test]
fn a_date_has_a_text_only_if_its_year_has_four_digits() {
    let iso = || rawdoc! { "e": { "$toString": "$a" } };
    let formatted = |format: &str| rawdoc! { "e": { "$dateToString": { "date": "$a", "format": format } } };
    let (first, end) = (-62_167_219_200_000, 253_402_300_800_000);
    for (expression, millis, expected) in [
        (iso(), first, Ok("0000-01-01T00:00:00.000Z")),
        (iso(), end - 1, Ok("9999-12-31T23:59:59.999Z")),
        (iso(), first - 1, Err(18537)),
        (iso(), end, Err(18537)),
        (iso(), i64::MAX, Err(18537)),
        (rawdoc! { "e": { "$toUpper": "$a" } }, end, Err(18537)),
        (rawdoc! { "e": { "$strcasecmp": ["$a", "x"] } }, i64::MIN, Err(18537)),
        (rawdoc! { "e": { "$substrCP": ["$a", 0, 4] } }, first - 1, Err(18537)),
        (rawdoc! { "e": { "$dateToString": { "date": "$a" } } }, end, Err(18537)),
        (rawdoc! { "e": { "$dateToString": { "date": "$a", "timezone": "+05" } } }, end - 1, Err(18537)),
        (formatted("%j"), first - 1, Ok("365")),
        (formatted("%j"), end, Ok("001")),
        (formatted("%Y"), i64::MAX, Err(18537)),
        (formatted("%Y"), first, Ok("0000")),
        (formatted("%G"), first, Err(18537)),
        (formatted("%G"), end, Ok("9999")),
    ] {
        let actual = text_or_code(&expression, bson::DateTime::from_millis(millis));
        assert_eq!(actual, expected.map(str::to_owned), "{millis}: {expression:?}");
    }
}

#[test]
fn numbers_are_texts_of_their_own_in_operators_on_texts() {
    for (number, written, upper, lower) in [
        (f64::INFINITY, "Infinity", "INF", "inf"),
        (f64::NEG_INFINITY, "-Infinity", "-INF", "-inf"),
        (f64::NAN, "NaN", "NAN", "nan"),
        (1e300, "1e+300", "1E+300", "1e+300"),
        (-0.0, "-0", "-0", "-0"),
        (1_234_567.0, "1.23457e+06", "1.23457E+06", "1.23457e+06"),
    ] {
        for (operator, expected) in [("$toString", written), ("$toUpper", upper), ("$toLower", lower)] {
            let mut expression = RawDocumentBuf::new();
            expression.append(bson::raw::CString::try_from(operator).unwrap(), "$a");
            let actual = text_or_code(&rawdoc! { "e": expression }, number);
            assert_eq!(actual.as_deref(), Ok(expected), "{operator} of {number}");
        }
    }
}

#[test]
fn a_timestamp_is_a_text_in_operators_on_texts() {
    let part = rawdoc! { "e": { "$substrCP": ["$a", 0, 60] } };
    for (time, increment, expected) in [
        (5, 1, "Jan  1 00:00:05:1"),
        (1_795_986_883, 12, "Nov 29 21:14:43:12"),
        (u32::MAX, u32::MAX, "Feb  7 06:28:15:4294967295"),
    ] {
        let stamp = bson::Timestamp { time, increment };
        assert_eq!(text_or_code(&part, stamp).as_deref(), Ok(expected));
        assert_eq!(text_or_code(&rawdoc! { "e": { "$toUpper": "$a" } }, stamp), Ok(expected.to_uppercase()));
    }
}

#[test]
fn what_no_double_holds_is_not_converted_to_one() {
    let to_double = rawdoc! { "e": { "$toDouble": "$a" } };
    let convert = |a: RawBson| {
        let mut document = RawDocumentBuf::new();
        document.append(bson::raw::cstr!("a"), a);
        match parsed(&to_double).unwrap().evaluate(&document, 0) {
            Ok(value) => Ok(value.unwrap().as_f64().unwrap().to_string()),
            Err(error) => Err(error.code),
        }
    };
    for (text, expected) in [
        ("1E6144", Err(241)),
        ("1.7976931348623159E308", Err(241)),
        ("1.7976931348623158E308", Ok(f64::MAX)),
        ("-1E-400", Err(241)),
        ("2E-308", Err(241)),
        ("2.2250738585072014E-308", Ok(f64::MIN_POSITIVE)),
        ("0E-6176", Ok(0.0)),
        ("-Infinity", Ok(f64::NEG_INFINITY)),
        ("NaN", Ok(f64::NAN)),
        ("1.50", Ok(1.5)),
    ] {
        let expected = expected.map(|real: f64| real.to_string());
        let decimal: bson::Decimal128 = text.parse().unwrap();
        assert_eq!(convert(RawBson::Decimal128(decimal)), expected, "{text}");
        assert_eq!(convert(RawBson::String(text.to_owned())), expected, "'{text}'");
    }
    for (text, expected) in
        [("inf", Ok("inf".to_owned())), ("1e400", Err(241)), ("0e-400", Ok("0".to_owned())), ("e5", Err(241))]
    {
        assert_eq!(convert(RawBson::String(text.to_owned())), expected, "'{text}'");
    }
}
