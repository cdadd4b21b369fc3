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
