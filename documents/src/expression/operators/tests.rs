use super::super::tests::outcome;
use super::*;
use bson::{RawDocumentBuf, Timestamp, rawdoc};

type Outcome = std::result::Result<RawDocumentBuf, i32>;

/// The member `e` of each document is evaluated, and gives `r`, nothing, or an error.
fn check(cases: impl IntoIterator<Item = (RawDocumentBuf, Outcome)>) {
    let document = rawdoc! {
        "n": 5, "d": 0.5, "s": "x", "null": null, "list": [3, 1, null, 2], "object": { "a": 1, "b": 2 }, "text": "caf\u{e9} au lait",
    };
    for (expression, expected) in cases {
        assert_eq!(outcome(&expression, &document), expected, "{expression:?}");
    }
}

#[test]
fn the_table_is_sorted() {
    assert!(OPERATORS.is_sorted_by(|a, b| a.name < b.name));
}

#[test]
fn sets_have_each_value_once_in_order() {
    let fails = || rawdoc! { "$divide": [1, { "$ifNull": ["$none", 0] }] };
    check([
        (rawdoc! { "e": { "$setUnion": [[3, 1, 1], "$list"] } }, Ok(rawdoc! { "r": [null, 1, 2, 3] })),
        (rawdoc! { "e": { "$setUnion": [] } }, Ok(rawdoc! { "r": [] })),
        (rawdoc! { "e": { "$setUnion": ["$list", "$none"] } }, Ok(rawdoc! { "r": null })),
        (rawdoc! { "e": { "$setUnion": ["$list", "$s"] } }, Err(17043)),
        (rawdoc! { "e": { "$setIntersection": ["$list", [2, 3, 4.0]] } }, Ok(rawdoc! { "r": [2, 3] })),
        (rawdoc! { "e": { "$setIntersection": ["$list", []] } }, Ok(rawdoc! { "r": [] })),
        (rawdoc! { "e": { "$setIntersection": ["$null", "$s"] } }, Ok(rawdoc! { "r": null })),
        (rawdoc! { "e": { "$setIntersection": ["$s", "$null"] } }, Err(17047)),
        (rawdoc! { "e": { "$setDifference": ["$list", [1.0, 2]] } }, Ok(rawdoc! { "r": [3, null] })),
        (rawdoc! { "e": { "$setDifference": [[2, 2, 1], []] } }, Ok(rawdoc! { "r": [2, 1] })),
        (rawdoc! { "e": { "$setDifference": ["$s", "$none"] } }, Ok(rawdoc! { "r": null })),
        (rawdoc! { "e": { "$setDifference": ["$s", "$list"] } }, Err(17048)),
        (rawdoc! { "e": { "$setDifference": ["$list", "$s"] } }, Err(17049)),
        (rawdoc! { "e": { "$setEquals": [[1, 2, 1], [2.0, 1]] } }, Ok(rawdoc! { "r": true })),
        (rawdoc! { "e": { "$setEquals": [[1], [2], "$s"] } }, Ok(rawdoc! { "r": false })),
        (rawdoc! { "e": { "$setEquals": [[1], "$null"] } }, Err(17044)),
        (rawdoc! { "e": { "$setEquals": [[1]] } }, Err(17045)),
        (rawdoc! { "e": { "$setEquals": ["$list", "$list", "$s"] } }, Err(17044)),
        (rawdoc! { "e": { "$setEquals": ["$list", ["$n"], "$s", fails()] } }, Ok(rawdoc! { "r": false })),
        (rawdoc! { "e": { "$setEquals": ["$list", "$list", "$list", fails()] } }, Err(2)),
        (rawdoc! { "e": { "$setEquals": ["$s", fails()] } }, Err(17044)),
        (rawdoc! { "e": { "$setEquals": ["$list", "$s", fails()] } }, Err(17044)),
        // Constants are checked first, and the others compared with the first of them.
        (rawdoc! { "e": { "$setEquals": ["$list", "$s", [7], []] } }, Ok(rawdoc! { "r": false })),
        (rawdoc! { "e": { "$setEquals": ["$s", "$list", [7]] } }, Err(17044)),
        (rawdoc! { "e": { "$setEquals": [[7], "$s", []] } }, Err(17044)),
        (rawdoc! { "e": { "$setEquals": ["$list", [null, 3, 2, 1], "$list"] } }, Ok(rawdoc! { "r": true })),
        (rawdoc! { "e": { "$setEquals": ["$list", [7], null] } }, Err(5_887_502)),
        (rawdoc! { "e": { "$setEquals": ["$s", "x"] } }, Err(5_887_502)),
        (rawdoc! { "e": { "$setEquals": [[7], null] } }, Err(17044)),
        (rawdoc! { "e": { "$setIsSubset": [[1, 1.0, 2], "$list"] } }, Ok(rawdoc! { "r": true })),
        (rawdoc! { "e": { "$setIsSubset": ["$list", [1]] } }, Ok(rawdoc! { "r": false })),
        (rawdoc! { "e": { "$setIsSubset": ["$null", "$list"] } }, Err(17046)),
        (rawdoc! { "e": { "$setIsSubset": ["$list", "$null"] } }, Err(17042)),
        (rawdoc! { "e": { "$setIsSubset": ["$s", 4] } }, Err(17042)),
        (rawdoc! { "e": { "$setIsSubset": [4, "$s"] } }, Err(17046)),
        (rawdoc! { "e": { "$setIsSubset": [4, null] } }, Err(17046)),
    ]);
}

#[test]
fn lists_are_sorted_and_put_together() {
    check([
        (rawdoc! { "e": { "$sortArray": { "input": "$list", "sortBy": 1 } } }, Ok(rawdoc! { "r": [null, 1, 2, 3] })),
        (rawdoc! { "e": { "$sortArray": { "input": "$list", "sortBy": -1.0 } } }, Ok(rawdoc! { "r": [3, 2, 1, null] })),
        (
            rawdoc! { "e": { "$sortArray": {
                "input": [{ "a": { "b": 2 } }, { "a": { "b": 1 }, "c": 1 }, 7, { "a": { "b": 1 }, "c": 2 }],
                "sortBy": { "a.b": 1, "c": -1 },
            } } },
            Ok(rawdoc! { "r": [7, { "a": { "b": 1 }, "c": 2 }, { "a": { "b": 1 }, "c": 1 }, { "a": { "b": 2 } }] }),
        ),
        (rawdoc! { "e": { "$sortArray": { "input": "$none", "sortBy": 1 } } }, Ok(rawdoc! { "r": null })),
        (rawdoc! { "e": { "$sortArray": { "input": "$s", "sortBy": 1 } } }, Err(2_942_504)),
        (rawdoc! { "e": { "$sortArray": { "input": "$list", "sortBy": 2 } } }, Err(2_942_506)),
        (rawdoc! { "e": { "$sortArray": { "input": "$list", "sortBy": {} } } }, Err(2_942_505)),
        (rawdoc! { "e": { "$sortArray": { "input": "$list", "sortBy": "a" } } }, Err(2_942_507)),
        (rawdoc! { "e": { "$sortArray": { "input": "$list" } } }, Err(2_942_503)),
        (rawdoc! { "e": { "$sortArray": { "sortBy": 1 } } }, Err(2_942_502)),
        (rawdoc! { "e": { "$sortArray": { "x": 1 } } }, Err(2_942_501)),
        (rawdoc! { "e": { "$sortArray": "$list" } }, Err(2_942_500)),
        (rawdoc! { "e": { "$zip": { "inputs": ["$list", ["a", "b"]] } } }, Ok(rawdoc! { "r": [[3, "a"], [1, "b"]] })),
        (
            rawdoc! { "e": { "$zip": { "inputs": [[1, 2], ["a"]], "useLongestLength": true } } },
            Ok(rawdoc! { "r": [[1, "a"], [2, null]] }),
        ),
        (
            rawdoc! { "e": { "$zip": { "inputs": [[1, 2], ["a"]], "useLongestLength": true, "defaults": [0, "$s"] } } },
            Ok(rawdoc! { "r": [[1, "a"], [2, "x"]] }),
        ),
        (rawdoc! { "e": { "$zip": { "inputs": ["$list", "$none"] } } }, Ok(rawdoc! { "r": null })),
        (rawdoc! { "e": { "$zip": { "inputs": ["$list", "$s"] } } }, Err(34468)),
        (rawdoc! { "e": { "$zip": { "inputs": [] } } }, Err(34465)),
        (rawdoc! { "e": { "$zip": { "inputs": "$list" } } }, Err(34461)),
        (rawdoc! { "e": { "$zip": { "inputs": ["$list"], "defaults": 1 } } }, Err(34462)),
        (rawdoc! { "e": { "$zip": { "inputs": ["$list"], "useLongestLength": 1 } } }, Err(34463)),
        (rawdoc! { "e": { "$zip": { "inputs": ["$list"], "x": 1 } } }, Err(34464)),
        (rawdoc! { "e": { "$zip": { "inputs": ["$list"], "defaults": [1] } } }, Err(34466)),
        (
            rawdoc! { "e": { "$zip": { "inputs": ["$list"], "defaults": [1, 2], "useLongestLength": true } } },
            Err(34467),
        ),
        (rawdoc! { "e": { "$zip": 1 } }, Err(34460)),
    ]);
}

#[test]
fn a_list_that_is_put_together_does_not_fill_the_memory() {
    // A default of a megabyte for each of a hundred rows.
    let rows = rawdoc! { "$range": [0, { "$ifNull": ["$none", 100] }] };
    let text = rawdoc! { "$ifNull": ["$none", "x".repeat(1 << 20)] };
    let zip = rawdoc! { "inputs": [rows, []], "defaults": [0, text], "useLongestLength": true };
    check([(rawdoc! { "e": { "$zip": zip } }, Err(146))]);
}

#[test]
fn the_work_with_sets_counts_as_memory() {
    let many = |count: i32| rawdoc! { "$range": [0, { "$ifNull": ["$none", count] }] };
    for operator in ["$setUnion", "$setIntersection", "$setDifference", "$setEquals", "$setIsSubset"] {
        let of = |count: i32| {
            let mut expression = RawDocumentBuf::new();
            let lists = [many(count), rawdoc! { "$literal": [] }].into_iter().collect::<bson::RawArrayBuf>();
            expression.append(bson::raw::CString::try_from(operator).unwrap(), lists);
            outcome(&rawdoc! { "e": { "$type": expression } }, &RawDocumentBuf::new())
        };
        assert!(of(10_000).is_ok(), "{operator}");
        assert_eq!(of(100_000), Err(146), "{operator}");
    }
    let least = |count: i32| rawdoc! { "e": { "$minN": { "n": 1, "input": many(count) } } };
    check([
        (least(10_000), Ok(rawdoc! { "r": [0] })),
        (least(100_000), Err(146)),
        (rawdoc! { "e": { "$sortArray": { "input": many(100_000), "sortBy": 1 } } }, Err(146)),
    ]);
}

#[test]
fn of_equal_values_the_first_is_kept() {
    check([
        (rawdoc! { "e": { "$setUnion": [[1.0, 2], [1, 2_i64, 3]] } }, Ok(rawdoc! { "r": [1.0, 2, 3] })),
        (rawdoc! { "e": { "$setDifference": [[2.0, 1, 2, 1.0], [3]] } }, Ok(rawdoc! { "r": [2.0, 1] })),
        (rawdoc! { "e": { "$setIntersection": [[1, 2], [2.0]] } }, Ok(rawdoc! { "r": [2.0] })),
        (rawdoc! { "e": { "$maxN": { "n": 2, "input": [1, 2.0, 2] } } }, Ok(rawdoc! { "r": [2, 2.0] })),
        (rawdoc! { "e": { "$minN": { "n": 1, "input": [1.0, 1, null] } } }, Ok(rawdoc! { "r": [1.0] })),
    ]);
}

#[test]
fn the_first_and_the_least_values_of_lists() {
    check([
        (rawdoc! { "e": { "$firstN": { "n": 2, "input": "$list" } } }, Ok(rawdoc! { "r": [3, 1] })),
        (rawdoc! { "e": { "$lastN": { "n": "$n", "input": "$list" } } }, Ok(rawdoc! { "r": [3, 1, null, 2] })),
        (rawdoc! { "e": { "$lastN": { "n": 2, "input": "$list" } } }, Ok(rawdoc! { "r": [null, 2] })),
        (rawdoc! { "e": { "$minN": { "n": 2, "input": "$list" } } }, Ok(rawdoc! { "r": [1, 2] })),
        (rawdoc! { "e": { "$maxN": { "n": 9, "input": "$list" } } }, Ok(rawdoc! { "r": [3, 2, 1] })),
        (rawdoc! { "e": { "$maxN": { "n": 1, "input": [] } } }, Ok(rawdoc! { "r": [] })),
        (rawdoc! { "e": { "$maxN": { "n": 1, "input": "$none" } } }, Err(5_788_200)),
        (rawdoc! { "e": { "$maxN": { "n": "$s", "input": "$list" } } }, Err(5_787_902)),
        (rawdoc! { "e": { "$maxN": { "n": "$d", "input": "$list" } } }, Err(5_787_903)),
        (rawdoc! { "e": { "$maxN": { "n": 0, "input": "$list" } } }, Err(5_787_908)),
        (rawdoc! { "e": { "$maxN": { "input": "$list" } } }, Err(5_787_906)),
        (rawdoc! { "e": { "$maxN": { "n": 1 } } }, Err(5_787_907)),
        (rawdoc! { "e": { "$maxN": { "n": 1, "output": "$list" } } }, Err(5_787_901)),
        (rawdoc! { "e": { "$maxN": "$list" } }, Err(5_787_900)),
        (rawdoc! { "e": { "$firstN": "$list" } }, Err(5_787_801)),
    ]);
}

#[test]
fn parts_of_texts_are_found_and_replaced() {
    check([
        (rawdoc! { "e": { "$indexOfCP": ["$text", "au"] } }, Ok(rawdoc! { "r": 5 })),
        (rawdoc! { "e": { "$indexOfBytes": ["$text", "au"] } }, Ok(rawdoc! { "r": 6 })),
        (rawdoc! { "e": { "$indexOfCP": ["$text", "a", 2] } }, Ok(rawdoc! { "r": 5 })),
        // The end counts for where the text begins, or for all of its bytes.
        (rawdoc! { "e": { "$indexOfCP": ["$text", "lait", 0, 9] } }, Ok(rawdoc! { "r": 8 })),
        (rawdoc! { "e": { "$indexOfBytes": ["$text", "lait", 0, 10] } }, Ok(rawdoc! { "r": -1 })),
        (rawdoc! { "e": { "$indexOfCP": ["$text", "a", 40] } }, Ok(rawdoc! { "r": -1 })),
        (rawdoc! { "e": { "$indexOfCP": ["", ""] } }, Ok(rawdoc! { "r": 0 })),
        (rawdoc! { "e": { "$indexOfCP": ["$s", "", 1] } }, Ok(rawdoc! { "r": -1 })),
        (rawdoc! { "e": { "$indexOfBytes": ["$s", "", 1] } }, Ok(rawdoc! { "r": 1 })),
        (rawdoc! { "e": { "$indexOfBytes": ["$text", "", 4] } }, Ok(rawdoc! { "r": 4 })),
        (rawdoc! { "e": { "$indexOfBytes": ["$text", "a", 4, 2] } }, Ok(rawdoc! { "r": -1 })),
        (rawdoc! { "e": { "$indexOfCP": ["$none", 1] } }, Ok(rawdoc! { "r": null })),
        (rawdoc! { "e": { "$indexOfCP": ["$n", "a"] } }, Err(40093)),
        (rawdoc! { "e": { "$indexOfCP": ["$s", "$null"] } }, Err(40094)),
        (rawdoc! { "e": { "$indexOfBytes": ["$n", "a"] } }, Err(40091)),
        (rawdoc! { "e": { "$indexOfBytes": ["$s", "$n"] } }, Err(40092)),
        (rawdoc! { "e": { "$indexOfCP": ["$s", "a", "$d"] } }, Err(40096)),
        (rawdoc! { "e": { "$indexOfCP": ["$s", "a", -1] } }, Err(40097)),
        (rawdoc! { "e": { "$indexOfCP": ["$s"] } }, Err(28667)),
        (rawdoc! { "e": { "$substrBytes": ["$text", 0, 5] } }, Ok(rawdoc! { "r": "caf\u{e9}" })),
        (rawdoc! { "e": { "$substr": ["$text", 6, -1] } }, Ok(rawdoc! { "r": "au lait" })),
        (rawdoc! { "e": { "$substr": ["$text", 2.9, 1] } }, Ok(rawdoc! { "r": "f" })),
        (rawdoc! { "e": { "$substr": ["$n", 0, 9] } }, Ok(rawdoc! { "r": "5" })),
        (rawdoc! { "e": { "$substr": ["$none", 3, 1] } }, Ok(rawdoc! { "r": "" })),
        (rawdoc! { "e": { "$substrBytes": ["$text", 0, 4] } }, Err(28657)),
        (rawdoc! { "e": { "$substrBytes": ["$text", 4, 1] } }, Err(28656)),
        (rawdoc! { "e": { "$substrBytes": ["$text", -1, 1] } }, Err(50752)),
        (rawdoc! { "e": { "$substrBytes": ["$text", "$s", 1] } }, Err(16034)),
        (rawdoc! { "e": { "$substrBytes": ["$text", 0, "$null"] } }, Err(16035)),
        (rawdoc! { "e": { "$substrBytes": ["$list", 0, 1] } }, Err(16007)),
        (
            rawdoc! { "e": { "$replaceOne": { "input": "$text", "find": "a", "replacement": "A" } } },
            Ok(rawdoc! { "r": "cAf\u{e9} au lait" }),
        ),
        (
            rawdoc! { "e": { "$replaceAll": { "input": "$text", "find": "a", "replacement": "" } } },
            Ok(rawdoc! { "r": "cf\u{e9} u lit" }),
        ),
        (
            rawdoc! { "e": { "$replaceAll": { "input": "\u{e9}a", "find": "", "replacement": "-" } } },
            Ok(rawdoc! { "r": "-\u{e9}-a-" }),
        ),
        (
            rawdoc! { "e": { "$replaceOne": { "input": "$s", "find": "$null", "replacement": "" } } },
            Ok(rawdoc! { "r": null }),
        ),
        (rawdoc! { "e": { "$replaceOne": { "input": "$n", "find": "$null", "replacement": "" } } }, Err(51746)),
        (rawdoc! { "e": { "$replaceOne": { "input": "$s", "find": "$n", "replacement": "" } } }, Err(51745)),
        (rawdoc! { "e": { "$replaceOne": { "input": "$s", "find": "a", "replacement": "$n" } } }, Err(51744)),
        (rawdoc! { "e": { "$replaceAll": { "find": "a", "replacement": "" } } }, Err(51749)),
        (rawdoc! { "e": { "$replaceAll": { "input": "a", "replacement": "" } } }, Err(51748)),
        (rawdoc! { "e": { "$replaceAll": { "input": "a", "find": "" } } }, Err(51747)),
        (rawdoc! { "e": { "$replaceAll": { "x": 1 } } }, Err(51750)),
        (rawdoc! { "e": { "$replaceAll": "$s" } }, Err(51751)),
    ]);
    let long = rawdoc! { "input": "a".repeat(1 << 17), "find": "a", "replacement": "b".repeat(1 << 10) };
    check([(rawdoc! { "e": { "$replaceAll": long } }, Err(146))]);
}

#[test]
fn fields_are_set_and_removed() {
    check([
        (
            rawdoc! { "e": { "$setField": { "field": "a", "input": "$object", "value": "$n" } } },
            Ok(rawdoc! { "r": { "a": 5, "b": 2 } }),
        ),
        (
            rawdoc! { "e": { "$setField": { "field": { "$literal": "$c.d" }, "input": "$object", "value": 3 } } },
            Ok(rawdoc! { "r": { "a": 1, "b": 2, "$c.d": 3 } }),
        ),
        (
            rawdoc! { "e": { "$setField": { "field": "a", "input": "$object", "value": "$$REMOVE" } } },
            Ok(rawdoc! { "r": { "b": 2 } }),
        ),
        (rawdoc! { "e": { "$unsetField": { "field": "b", "input": "$object" } } }, Ok(rawdoc! { "r": { "a": 1 } })),
        (
            rawdoc! { "e": { "$setField": { "field": "a", "input": "$none", "value": { "$divide": [1, "$none2"] } } } },
            Ok(rawdoc! { "r": null }),
        ),
        (rawdoc! { "e": { "$setField": { "field": "a", "input": "$s", "value": 1 } } }, Err(4_161_105)),
        (rawdoc! { "e": { "$setField": { "field": "$a", "input": "$s", "value": 1 } } }, Err(4_161_108)),
        (rawdoc! { "e": { "$setField": { "field": 5, "input": "$s", "value": 1 } } }, Err(4_161_107)),
        (rawdoc! { "e": { "$setField": { "field": ["a"], "input": "$s", "value": 1 } } }, Err(4_161_106)),
        (rawdoc! { "e": { "$setField": { "input": "$s", "value": 1 } } }, Err(4_161_102)),
        (rawdoc! { "e": { "$setField": { "field": "a", "value": 1 } } }, Err(4_161_109)),
        (rawdoc! { "e": { "$setField": { "field": "a", "input": "$s" } } }, Err(4_161_103)),
        (rawdoc! { "e": { "$unsetField": { "field": "a", "input": "$s", "value": 1 } } }, Err(4_161_101)),
        (rawdoc! { "e": { "$setField": "a" } }, Err(4_161_100)),
    ]);
}

#[test]
fn functions_of_real_numbers() {
    check([
        (rawdoc! { "e": { "$log": [8, { "$add": ["$n", -3] }] } }, Ok(rawdoc! { "r": 3.0 })),
        (rawdoc! { "e": { "$log": ["$none", "$s"] } }, Ok(rawdoc! { "r": null })),
        (rawdoc! { "e": { "$log": ["$s", 2] } }, Err(28756)),
        (rawdoc! { "e": { "$log": ["$n", "$s"] } }, Err(28757)),
        (rawdoc! { "e": { "$log": [0, 2] } }, Err(28758)),
        (rawdoc! { "e": { "$log": ["$n", 1] } }, Err(28759)),
        (rawdoc! { "e": { "$sin": 0 } }, Ok(rawdoc! { "r": 0.0 })),
        (rawdoc! { "e": { "$cos": 0 } }, Ok(rawdoc! { "r": 1.0 })),
        (rawdoc! { "e": { "$tan": "$null" } }, Ok(rawdoc! { "r": null })),
        (rawdoc! { "e": { "$cosh": 0_i64 } }, Ok(rawdoc! { "r": 1.0 })),
        (rawdoc! { "e": { "$atanh": 1 } }, Ok(rawdoc! { "r": f64::INFINITY })),
        (rawdoc! { "e": { "$acosh": 1 } }, Ok(rawdoc! { "r": 0.0 })),
        (rawdoc! { "e": { "$atan2": [0, 1] } }, Ok(rawdoc! { "r": 0.0 })),
        (rawdoc! { "e": { "$degreesToRadians": 180 } }, Ok(rawdoc! { "r": std::f64::consts::PI })),
        (rawdoc! { "e": { "$radiansToDegrees": f64::INFINITY } }, Ok(rawdoc! { "r": f64::INFINITY })),
        (rawdoc! { "e": { "$sin": "$s" } }, Err(28765)),
        (rawdoc! { "e": { "$sin": f64::INFINITY } }, Err(50989)),
        (rawdoc! { "e": { "$asin": 1.5 } }, Err(50989)),
        (rawdoc! { "e": { "$acosh": "$d" } }, Err(50989)),
        (rawdoc! { "e": { "$atanh": -2 } }, Err(50989)),
        (rawdoc! { "e": { "$atan2": ["$none", "$s"] } }, Ok(rawdoc! { "r": null })),
        (rawdoc! { "e": { "$atan2": ["$s", 1] } }, Err(51044)),
        (rawdoc! { "e": { "$atan2": [1, "$s"] } }, Err(51045)),
        (rawdoc! { "e": { "$sin": [1, 2] } }, Err(16020)),
    ]);
}

#[test]
fn a_random_number_is_another_one_each_time() {
    let expression = super::super::tests::parsed(&rawdoc! { "e": { "$add": [{ "$rand": {} }, 0] } }).unwrap();
    let number = || expression.evaluate(&RawDocumentBuf::new(), 0).unwrap().unwrap().as_f64().unwrap();
    let numbers: Vec<f64> = (0..100).map(|_| number()).collect();
    assert!(numbers.iter().all(|x| (0.0..1.0).contains(x)), "{numbers:?}");
    assert!(numbers.windows(2).all(|pair| pair[0].to_bits() != pair[1].to_bits()), "{numbers:?}");
    check([
        (rawdoc! { "e": { "$rand": 1 } }, Err(10065)),
        (rawdoc! { "e": { "$rand": { "x": 1 } } }, Err(3_040_501)),
        (rawdoc! { "e": { "$rand": ["$n"] } }, Err(3_040_501)),
        (rawdoc! { "e": { "$type": { "$rand": [] } } }, Ok(rawdoc! { "r": "double" })),
    ]);
}

#[test]
fn sizes_and_timestamps() {
    let stamp = || Timestamp { time: 7, increment: 3 };
    check([
        (rawdoc! { "e": { "$bsonSize": "$object" } }, Ok(rawdoc! { "r": 19 })),
        (rawdoc! { "e": { "$bsonSize": "$none" } }, Ok(rawdoc! { "r": null })),
        (rawdoc! { "e": { "$bsonSize": "$n" } }, Err(31393)),
        (rawdoc! { "e": { "$binarySize": "$text" } }, Ok(rawdoc! { "r": 13 })),
        (rawdoc! { "e": { "$binarySize": "$n" } }, Err(51276)),
        (rawdoc! { "e": { "$tsSecond": stamp() } }, Ok(rawdoc! { "r": 7_i64 })),
        (rawdoc! { "e": { "$tsIncrement": stamp() } }, Ok(rawdoc! { "r": 3_i64 })),
        (rawdoc! { "e": { "$tsSecond": "$null" } }, Ok(rawdoc! { "r": null })),
        (rawdoc! { "e": { "$tsSecond": "$n" } }, Err(5_687_301)),
        (rawdoc! { "e": { "$tsIncrement": "$n" } }, Err(5_687_302)),
    ]);
}

#[test]
fn a_conversion_that_fails_has_another_value() {
    let decimal = |text: &str| text.parse::<bson::Decimal128>().unwrap();
    let id = "65a0b1c2d3e4f5061728394a";
    let fails = || rawdoc! { "$divide": [1, { "$ifNull": ["$none", 0] }] };
    check([
        (rawdoc! { "e": { "$convert": { "input": "$s", "to": "int" } } }, Err(241)),
        (rawdoc! { "e": { "$convert": { "input": "$s", "to": "int", "onError": "$n" } } }, Ok(rawdoc! { "r": 5 })),
        (rawdoc! { "e": { "$convert": { "input": "$s", "to": "int", "onError": "$none" } } }, Ok(rawdoc! {})),
        (rawdoc! { "e": { "$convert": { "input": "12", "to": 16.0 } } }, Ok(rawdoc! { "r": 12 })),
        (
            rawdoc! { "e": { "$convert": { "input": "$n", "to": "string", "onError": fails() } } },
            Ok(rawdoc! { "r": "5" }),
        ),
        (rawdoc! { "e": { "$convert": { "input": "$none", "to": "int" } } }, Ok(rawdoc! { "r": null })),
        (rawdoc! { "e": { "$convert": { "input": "$none", "to": "int", "onNull": 0 } } }, Ok(rawdoc! { "r": 0 })),
        (rawdoc! { "e": { "$convert": { "input": "$n", "to": "$none", "onNull": 0 } } }, Ok(rawdoc! { "r": null })),
        (rawdoc! { "e": { "$convert": { "input": "$none", "to": "bogus", "onNull": 0 } } }, Err(2)),
        (rawdoc! { "e": { "$convert": { "input": "$n", "to": "bogus", "onError": 0 } } }, Err(2)),
        (rawdoc! { "e": { "$convert": { "input": "$n", "to": "object", "onError": 0 } } }, Ok(rawdoc! { "r": 0 })),
        (rawdoc! { "e": { "$convert": { "input": "$n", "to": "missing" } } }, Err(241)),
        (rawdoc! { "e": { "$convert": { "input": "$n", "to": 1.5 } } }, Err(9)),
        (rawdoc! { "e": { "$convert": { "input": "$n", "to": 99 } } }, Err(9)),
        (rawdoc! { "e": { "$convert": { "input": "$n", "to": { "$ifNull": ["$none", true] } } } }, Err(9)),
        // An argument that fails is no conversion that fails.
        (rawdoc! { "e": { "$convert": { "input": { "$toInt": "$s" }, "to": "int", "onError": 1 } } }, Err(241)),
        (rawdoc! { "e": { "$convert": { "input": fails(), "to": "int", "onError": 1 } } }, Err(2)),
        (rawdoc! { "e": { "$convert": { "to": "int" } } }, Err(9)),
        (rawdoc! { "e": { "$convert": { "input": 1 } } }, Err(9)),
        (rawdoc! { "e": { "$convert": 1 } }, Err(9)),
        (rawdoc! { "e": { "$toDecimal": "-1.50E+3" } }, Ok(rawdoc! { "r": decimal("-1.50E+3") })),
        (rawdoc! { "e": { "$toDecimal": "$d" } }, Ok(rawdoc! { "r": decimal("0.500000000000000") })),
        (rawdoc! { "e": { "$toDecimal": true } }, Ok(rawdoc! { "r": decimal("1") })),
        (rawdoc! { "e": { "$toDecimal": "$s" } }, Err(241)),
        (rawdoc! { "e": { "$toDecimal": "$list" } }, Err(241)),
        (rawdoc! { "e": { "$toObjectId": id } }, Ok(rawdoc! { "r": bson::oid::ObjectId::parse_str(id).unwrap() })),
        (rawdoc! { "e": { "$toObjectId": "$s" } }, Err(241)),
        (rawdoc! { "e": { "$toObjectId": "$n" } }, Err(241)),
        (rawdoc! { "e": { "$toObjectId": [1, 2] } }, Err(50723)),
    ]);
}
