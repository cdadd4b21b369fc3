use super::super::tests::outcome;
use bson::{RawDocumentBuf, Regex, rawdoc};

type Outcome = std::result::Result<RawDocumentBuf, i32>;

fn check(cases: impl IntoIterator<Item = (RawDocumentBuf, Outcome)>) {
    let document = rawdoc! { "s": "caf\u{e9} 12-34\n", "n": 5, "p": "[0-9]+", "wrong": "(" };
    for (expression, expected) in cases {
        assert_eq!(outcome(&expression, &document), expected, "{expression:?}");
    }
}

fn regex(pattern: &str, options: &str) -> Regex {
    Regex { pattern: pattern.try_into().unwrap(), options: options.try_into().unwrap() }
}

#[test]
fn matches_have_their_place_in_code_points_and_their_groups() {
    check([
        (rawdoc! { "e": { "$regexMatch": { "input": "$s", "regex": "$p" } } }, Ok(rawdoc! { "r": true })),
        (rawdoc! { "e": { "$regexMatch": { "input": "$s", "regex": "CAF" } } }, Ok(rawdoc! { "r": false })),
        (
            rawdoc! { "e": { "$regexMatch": { "input": "$s", "regex": "CAF", "options": "i" } } },
            Ok(rawdoc! { "r": true }),
        ),
        (rawdoc! { "e": { "$regexMatch": { "input": "$s", "regex": regex("CAF", "i") } } }, Ok(rawdoc! { "r": true })),
        (
            rawdoc! { "e": { "$regexFind": { "input": "$s", "regex": "([0-9])([0-9])|(x)" } } },
            Ok(rawdoc! { "r": { "match": "12", "idx": 5, "captures": ["1", "2", null] } }),
        ),
        (rawdoc! { "e": { "$regexFind": { "input": "$s", "regex": "z" } } }, Ok(rawdoc! { "r": null })),
        (
            rawdoc! { "e": { "$regexFindAll": { "input": "$s", "regex": "$p" } } },
            Ok(rawdoc! { "r": [
                { "match": "12", "idx": 5, "captures": [] }, { "match": "34", "idx": 8, "captures": [] },
            ] }),
        ),
        (
            rawdoc! { "e": { "$regexFindAll": { "input": "\u{e9}b", "regex": "b*" } } },
            Ok(
                rawdoc! { "r": [{ "match": "", "idx": 0, "captures": [] }, { "match": "b", "idx": 1, "captures": [] }] },
            ),
        ),
        (
            rawdoc! { "e": { "$regexFindAll": { "input": "", "regex": "" } } },
            Ok(rawdoc! { "r": [{ "match": "", "idx": 0, "captures": [] }] }),
        ),
    ]);
}

#[test]
fn an_end_before_the_last_line_feed_does_not_take_it_into_the_match() {
    check([
        (
            rawdoc! { "e": { "$regexFind": { "input": "$s", "regex": "((34)$)" } } },
            Ok(rawdoc! { "r": { "match": "34", "idx": 8, "captures": ["34", "34"] } }),
        ),
        (
            rawdoc! { "e": { "$regexFind": { "input": "$s", "regex": "4\\n$" } } },
            Ok(rawdoc! { "r": { "match": "4\n", "idx": 9, "captures": [] } }),
        ),
        (
            rawdoc! { "e": { "$regexFindAll": { "input": "a\n", "regex": "a*\\Z" } } },
            Ok(
                rawdoc! { "r": [{ "match": "a", "idx": 0, "captures": [] }, { "match": "", "idx": 1, "captures": [] }] },
            ),
        ),
    ]);
}

#[test]
fn groups_within_each_other_do_not_fill_the_memory() {
    let of = |operator: &str, groups: usize| {
        let regex = format!("{}.*{}", "(".repeat(groups), ")".repeat(groups));
        let input = rawdoc! { "$ifNull": ["$none", "x".repeat(1 << 16)] };
        let mut expression = RawDocumentBuf::new();
        let name = bson::raw::CString::try_from(operator).unwrap();
        expression.append(name, rawdoc! { "input": input, "regex": regex });
        outcome(&rawdoc! { "e": { "$type": expression } }, &RawDocumentBuf::new())
    };
    for (operator, expected) in [("$regexFind", "object"), ("$regexFindAll", "array")] {
        assert_eq!(of(operator, 10), Ok(rawdoc! { "r": expected }), "{operator}");
        assert_eq!(of(operator, 100), Err(146), "{operator}");
    }
    assert_eq!(of("$regexMatch", 100), Ok(rawdoc! { "r": "bool" }));
}

#[test]
fn what_is_null_has_no_match() {
    for (operator, nothing) in [
        ("$regexMatch", rawdoc! { "r": false }),
        ("$regexFind", rawdoc! { "r": null }),
        ("$regexFindAll", rawdoc! { "r": [] }),
    ] {
        let of = |arguments: RawDocumentBuf| {
            let mut expression = RawDocumentBuf::new();
            expression.append(bson::raw::CString::try_from(operator).unwrap(), arguments);
            rawdoc! { "e": expression }
        };
        check([
            (of(rawdoc! { "input": "$none", "regex": "a" }), Ok(nothing.clone())),
            (of(rawdoc! { "input": "$s", "regex": "$none" }), Ok(nothing.clone())),
            (of(rawdoc! { "input": "$s", "regex": null, "options": null }), Ok(nothing)),
            (of(rawdoc! { "input": "$n", "regex": "a" }), Err(51104)),
            (of(rawdoc! { "input": "$s", "regex": "$n" }), Err(51105)),
            (of(rawdoc! { "input": "$s", "regex": "a", "options": 1 }), Err(51106)),
            (of(rawdoc! { "input": "$s", "regex": regex("a", "i"), "options": "i" }), Err(51107)),
            (of(rawdoc! { "input": "$s", "regex": "$none", "options": "y" }), Err(51108)),
            (of(rawdoc! { "input": "$s", "regex": "a\0b" }), Err(51109)),
            (of(rawdoc! { "input": "$s", "regex": "a", "options": "\0" }), Err(51110)),
            (of(rawdoc! { "input": "$s", "regex": "$wrong" }), Err(51111)),
            (of(rawdoc! { "input": "$s" }), Err(31023)),
            (of(rawdoc! { "regex": "a" }), Err(31022)),
            (of(rawdoc! { "input": "$s", "regex": "a", "x": 1 }), Err(31024)),
        ]);
    }
    check([(rawdoc! { "e": { "$regexMatch": "$s" } }, Err(51103))]);
}

#[test]
fn a_wrong_regular_expression_that_is_constant_fails_without_documents() {
    let parsed = |regex: &str| {
        let search = rawdoc! { "e": { "$regexMatch": { "input": "$s", "regex": regex } } };
        super::super::tests::parsed(&search).unwrap().check_constants().map_err(|error| error.code)
    };
    assert_eq!(parsed("("), Err(51111));
    assert_eq!(parsed("a"), Ok(()));
    assert_eq!(parsed("$p"), Ok(()));
}
