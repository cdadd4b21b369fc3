//! Cases of projections.

use super::Projection;
use crate::cases::{NOW_MS, cases, check, doc};
use crate::json::canonical_text;
use bson::rawdoc;

#[test]
fn projections_do_what_mongodb_does() {
    for case in cases(include_str!("../../tests/projections.json")) {
        let actual = Projection::parse(&doc(&case["projection"]))
            .map(|projection| canonical_text(&projection.apply(&doc(&case["document"]), NOW_MS)));
        check(&case, actual, |result| canonical_text(&doc(result)));
    }
}

#[test]
fn a_projection_tells_what_it_needs() {
    let parse = |projection: bson::RawDocumentBuf| Projection::parse(&projection).unwrap();
    assert!(parse(rawdoc! {}).is_whole());
    assert!(!parse(rawdoc! { "_id": 0 }).is_whole());
    assert!(parse(rawdoc! { "_ts": 1 }).shows_written());
    for other in [rawdoc! { "_ts": 0 }, rawdoc! { "a": 1 }, rawdoc! { "_ts.x": 1 }, rawdoc! { "_ts": { "$slice": 1 } }]
    {
        assert!(!parse(other).shows_written());
    }
}

#[test]
fn elements_are_chosen_where_all_other_fields_stay() {
    let chosen = rawdoc! { "l": { "$slice": 1 }, "m": { "$elemMatch": { "x": 1 } } };
    let document = rawdoc! { "_id": 1, "m": [{ "x": 2 }, { "x": 1 }], "l": [1, 2], "n": 3 };
    let expected = rawdoc! { "_id": 1, "m": [{ "x": 1 }], "l": [1], "n": 3 };
    assert_eq!(Projection::of_elements(&chosen).unwrap().apply(&document, 0), expected);
    let only = rawdoc! { "m": { "$elemMatch": { "x": 7 } } };
    let expected = rawdoc! { "_id": 1, "l": [1, 2], "n": 3 };
    assert_eq!(Projection::of_elements(&only).unwrap().apply(&document, 0), expected);
}

#[test]
fn a_slice_of_a_find_is_told_from_the_expression() {
    let arguments =
        rawdoc! { "a": 1, "b": -1, "c": [1, 2], "d": [1, 0], "e": ["$l", 1], "f": [1], "g": ["$l", 0, 1], "h": "$l" };
    let is_slice = |name: &str| Projection::is_slice(arguments.get(name).unwrap().unwrap());
    assert_eq!(
        ["a", "b", "c", "d", "e", "f", "g", "h"].map(is_slice),
        [true, true, true, false, false, false, false, false]
    );
}
