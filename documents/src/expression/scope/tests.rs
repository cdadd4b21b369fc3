use super::super::{Constants, Expression};
use super::*;
use bson::{RawArrayBuf, RawDocumentBuf, rawdoc};

/// The value of the member `e` of a document, or the number of its error.
fn evaluated(expression: &RawDocument, document: &RawDocument) -> std::result::Result<Value, i32> {
    let read = Expression::parse(expression.get("e").unwrap().unwrap()).map_err(|error| error.code)?;
    read.evaluate(document, 0).map_err(|error| error.code)
}

/// A list of the same text.
fn often(text: &str) -> RawArrayBuf {
    std::iter::repeat_n(text, 1000).collect()
}

#[test]
fn values_that_grow_without_end_are_refused() {
    let text = rawdoc! { "t": "x".repeat(1 << 16), "n": 1000 };
    let many = || rawdoc! { "$range": [0, "$n"] };
    for expression in [
        rawdoc! { "e": { "$reduce": { "input": many(), "initialValue": "x", "in": { "$concat": ["$$value", "$$value"] } } } },
        rawdoc! { "e": { "$reduce": { "input": many(), "initialValue": [1], "in": { "$concatArrays": ["$$value", "$$value"] } } } },
        rawdoc! { "e": { "$map": { "input": many(), "in": "$t" } } },
        rawdoc! { "e": { "$map": { "input": many(), "in": { "a": "$t" } } } },
        rawdoc! { "e": often("$t") },
        rawdoc! { "e": { "$concat": often("$t") } },
    ] {
        assert_eq!(evaluated(&expression, &text), Err(146), "{expression:?}");
    }
    // Code and symbols count as texts do.
    let long = || "x".repeat(1 << 16);
    for value in [RawBson::JavaScriptCode(long()), RawBson::Symbol(long())] {
        assert_eq!(evaluated(&rawdoc! { "e": often("$t") }, &rawdoc! { "t": value }), Err(146));
    }
    // What was let go is not counted any more.
    let sizes = rawdoc! { "e": { "$map": { "input": many(), "in": { "$let": { "vars": { "v": ["$t"] }, "in": { "$size": "$$v" } } } } } };
    let found = evaluated(&sizes, &text).unwrap().unwrap();
    assert_eq!(found.as_array().unwrap().into_iter().count(), 1000);
}

#[test]
fn values_with_too_many_levels_are_refused() {
    let nested = |levels: i32| {
        rawdoc! { "e": { "$reduce": { "input": { "$range": [0, levels] }, "initialValue": 1, "in": ["$$value"] } } }
    };
    assert!(evaluated(&nested(200), &rawdoc! {}).is_ok());
    assert_eq!(evaluated(&nested(201), &rawdoc! {}), Err(15));
    assert_eq!(evaluated(&nested(100_000), &rawdoc! {}), Err(15));
    let path = |names: usize| rawdoc! { "e": format!("${}", vec!["a"; names].join(".")) };
    assert_eq!(evaluated(&path(200), &rawdoc! {}), Ok(None));
    assert_eq!(evaluated(&path(201), &rawdoc! {}), Err(15));
}

#[test]
fn constants_of_a_command_have_a_limit() {
    let large = rawdoc! { "x": "x".repeat(1 << 16) };
    let constants = Constants::parse(&large, 0).unwrap();
    let list = often("$$x");
    let code = |expression: RawBsonRef<'_>| constants.expression(expression).map(drop).map_err(|error| error.code);
    assert_eq!(code(RawBsonRef::String("$$x")), Ok(()));
    // What is folded to something small, or is too large to be folded, does not count.
    let sizes: RawArrayBuf = std::iter::repeat_n(rawdoc! { "$size": { "$range": [0, 100_000] } }, 6).collect();
    assert_eq!(code(RawBsonRef::Array(&sizes)), Ok(()));
    assert_eq!(code(RawBsonRef::Document(&rawdoc! { "$range": [0, 400_000] })), Ok(()));
    assert_eq!(code(RawBsonRef::String("$$x")), Ok(()));
    assert_eq!(code(RawBsonRef::Array(&list)), Err(146));
    let mut doubled = RawDocumentBuf::new();
    doubled.append(bson::raw::cstr!("x0"), "x".repeat(1 << 16));
    for i in 1..20 {
        let name = bson::raw::CString::try_from(format!("x{i}")).unwrap();
        doubled.append(name, rawdoc! { "$concat": [format!("$$x{}", i - 1), format!("$$x{}", i - 1)] });
    }
    assert!(matches!(Constants::parse(&doubled, 0), Err(error) if error.code == 146));
}

#[test]
fn what_takes_long_is_not_computed_when_it_is_read() {
    let constants = Constants::default();
    let read = |count: usize| {
        let sizes = std::iter::repeat_n(rawdoc! { "$size": { "$range": [0, 100_000] } }, count);
        constants.expression(RawBsonRef::Array(&sizes.collect::<RawArrayBuf>())).unwrap()
    };
    assert!(read(2).constant().is_some());
    let many = read(100);
    assert!(many.constant().is_none());
    let sizes: RawArrayBuf = std::iter::repeat_n(100_000_i32, 100).collect();
    assert_eq!(many.evaluate(&rawdoc! {}, 0), Ok(Some(RawBson::Array(sizes))));
    // Nor does a search that is not evaluated take time.
    let search = rawdoc! { "$regexFindAll": { "input": "aaa", "regex": "a" } };
    let read = Constants::default().expression(RawBsonRef::Document(&search)).unwrap();
    assert!(read.constant().is_none());
}

#[test]
fn an_evaluation_ends() {
    let many = || rawdoc! { "$range": [0, "$n"] };
    let sum = rawdoc! { "$sum": { "$map": { "input": many(), "as": "y", "in": { "$multiply": ["$$x", "$$y"] } } } };
    let products = rawdoc! { "e": { "$sum": { "$map": { "input": many(), "as": "x", "in": sum } } } };
    assert_eq!(evaluated(&products, &rawdoc! { "n": 4 }), Ok(Some(RawBson::Int32(36))));
    assert_eq!(evaluated(&products, &rawdoc! { "n": 10_000 }), Err(146));
    // It asks whether the command was ended.
    let asked = std::cell::Cell::new(0);
    let is_ended = || {
        asked.set(asked.get() + 1);
        asked.get() == 3
    };
    let read = Expression::parse(products.get("e").unwrap().unwrap()).unwrap();
    let ended = read.evaluate_at(&rawdoc! { "n": 10_000 }, Moment { stop: Stop(&is_ended), ..Moment::at(0) });
    assert_eq!((ended.unwrap_err().code, asked.get()), (50, 3));
    let more = rawdoc! { "$map": { "input": { "$range": [0, 10_000] }, "in": { "$add": ["$$this", 1] } } };
    let ended = Constants::parse_unless(&rawdoc! { "x": more }, 0, &|| true);
    assert_eq!(ended.unwrap_err().code, 50);
    // Copies are steps where nothing is kept, too.
    let texts = |n: i32| rawdoc! { "t": "x".repeat(1 << 16), "n": n };
    for condition in [
        rawdoc! { "$and": ["$t", "$none"] },
        rawdoc! { "$and": [many(), "$none"] },
        rawdoc! { "$cond": ["$t", "$none", 1] },
        rawdoc! { "$ifNull": ["$t", 1] },
        rawdoc! { "$getField": "n" },
    ] {
        let filtered = rawdoc! { "e": { "$filter": { "input": many(), "cond": condition } } };
        assert!(evaluated(&filtered, &texts(100)).is_ok());
        assert_eq!(evaluated(&filtered, &texts(10_000)), Err(146), "{filtered:?}");
    }
}
