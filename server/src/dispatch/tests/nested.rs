//! Pipelines that read other collections.

use super::*;
use bson::DateTime;
use bson::raw::{RawArrayBuf, RawBson};

fn found(reply: &RawDocument) -> Vec<RawDocumentBuf> {
    let cursor = reply.get_document("cursor").unwrap_or_else(|_| panic!("{reply:?}"));
    let batch = cursor.get_array("firstBatch").unwrap();
    batch.into_iter().map(|document| document.unwrap().as_document().unwrap().to_owned()).collect()
}

/// An ordinary collection, and three measurements. One of these has expired.
fn filled(shared: &Shared) {
    let admin = client(shared, Some("admin"));
    let series = rawdoc! { "timeField": "t", "metaField": "m" };
    let old = rawdoc! { "t": DateTime::from_millis(1_000_000_000_000), "m": "a", "v": 1 };
    let measurement = |m: &str, v: i32| rawdoc! { "t": DateTime::from_millis(2_000_000_000_000), "m": m, "v": v };
    for command in [
        rawdoc! { "create": "w", "timeseries": series, "expireAfterSeconds": 3600, "$db": "d" },
        rawdoc! { "insert": "w", "documents": [old, measurement("a", 2), measurement("b", 3)], "$db": "d" },
        rawdoc! { "insert": "c", "documents": [{ "_id": 1, "k": "a" }, { "_id": 2, "k": "x" }], "$db": "d" },
    ] {
        let reply = answer(shared, &admin, &command);
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{reply:?}");
    }
}

fn aggregate(collection: &str, stages: RawArrayBuf) -> RawDocumentBuf {
    rawdoc! { "aggregate": collection, "pipeline": stages, "cursor": {}, "$db": "d" }
}

#[test]
fn other_collections_are_read_without_what_has_expired() {
    let folder = tempfile::tempdir().unwrap();
    let shared = shared(folder.path());
    filled(&shared);
    let reader = client(&shared, Some("read"));
    let ask = |collection: &str, stages: &[RawDocumentBuf]| {
        let stages: RawArrayBuf = stages.iter().cloned().map(RawBson::Document).collect();
        found(&answer(&shared, &reader, &aggregate(collection, stages)))
    };
    let values = rawdoc! { "$project": { "_id": 0, "v": 1, "k": 1 } };
    let united = [rawdoc! { "k": "a" }, rawdoc! { "k": "x" }, rawdoc! { "v": 2 }, rawdoc! { "v": 3 }];
    assert_eq!(ask("c", &[rawdoc! { "$unionWith": "w" }, values.clone()]), united);
    let sum = rawdoc! { "$group": { "_id": "$m", "s": { "$sum": "$v" } } };
    let grouped = rawdoc! { "$unionWith": { "coll": "w", "pipeline": [sum.clone()] } };
    let sums = [rawdoc! { "_id": "a", "s": 2 }, rawdoc! { "_id": "b", "s": 3 }];
    assert_eq!(ask("c", &[rawdoc! { "$match": { "_id": 7 } }, grouped.clone()]), sums);
    assert_eq!(ask("w", &[sum.clone(), grouped, rawdoc! { "$skip": 2 }]), sums);
    assert_eq!(ask("c", &[rawdoc! { "$unionWith": "none" }, values]), united[..2]);
    let within = rawdoc! { "$facet": { "a": [{ "$unionWith": "none" }, { "$count": "n" }] } };
    assert_eq!(ask("c", &[within]), [rawdoc! { "a": [{ "n": 2 }] }]);
    let joined = rawdoc! { "$lookup": {
        "from": "w", "let": { "k": "$k" }, "as": "r",
        "pipeline": [{ "$match": { "$expr": { "$eq": ["$m", "$$k"] } } }, { "$project": { "v": 1 } }],
    } };
    let expected = [rawdoc! { "_id": 1, "k": "a", "r": [{ "v": 2 }] }, rawdoc! { "_id": 2, "k": "x", "r": [] }];
    assert_eq!(ask("c", &[joined]), expected);
    let facets = rawdoc! { "$facet": { "a": [sum], "n": [{ "$unionWith": "c" }, { "$count": "n" }] } };
    let expected = rawdoc! { "a": [{ "_id": "a", "s": 2 }, { "_id": "b", "s": 3 }], "n": [{ "n": 4 }] };
    assert_eq!(ask("w", &[facets]), [expected]);
    let buckets = ask("w", &[rawdoc! { "$bucketAuto": { "groupBy": "$v", "buckets": 1 } }]);
    assert_eq!(buckets, [rawdoc! { "_id": { "min": 2, "max": 3 }, "count": 2 }]);
}

#[test]
fn measurements_are_reached_without_what_has_expired() {
    let folder = tempfile::tempdir().unwrap();
    let shared = shared(folder.path());
    filled(&shared);
    let reader = client(&shared, Some("read"));
    let graph = rawdoc! { "$graphLookup": {
        "from": "w", "startWith": "$k", "connectFromField": "next", "connectToField": "m", "as": "r",
        "restrictSearchWithMatch": { "v": { "$lt": 9 } },
    } };
    let shown = rawdoc! { "$project": { "r": "$r.v" } };
    let stages = RawArrayBuf::from_iter([graph, shown]);
    let expected = [rawdoc! { "_id": 1, "r": [2] }, rawdoc! { "_id": 2, "r": [] }];
    assert_eq!(found(&answer(&shared, &reader, &aggregate("c", stages))), expected);
    let redact = rawdoc! { "$redact": { "$cond": [{ "$eq": ["$k", "x"] }, "$$PRUNE", "$$KEEP"] } };
    let kept = found(&answer(&shared, &reader, &aggregate("c", RawArrayBuf::from_iter([redact]))));
    assert_eq!(kept, [rawdoc! { "_id": 1, "k": "a" }]);
}

#[test]
fn a_pipeline_may_unite_many_collections() {
    let folder = tempfile::tempdir().unwrap();
    let shared = shared(folder.path());
    filled(&shared);
    let reader = client(&shared, Some("read"));
    let now = rawdoc! { "$project": { "now": "$$NOW" } };
    let union = rawdoc! { "$unionWith": { "coll": "c", "pipeline": [{ "$match": { "_id": 1 } }, now.clone()] } };
    let mut stages = RawArrayBuf::from_iter([now]);
    for _ in 0..40 {
        stages.push(union.clone());
    }
    stages.push(rawdoc! { "$group": { "_id": "$now", "n": { "$sum": 1 } } });
    // All of them see one instant.
    let groups = found(&answer(&shared, &reader, &aggregate("c", stages)));
    let counts: Vec<i32> = groups.iter().map(|group| group.get_i32("n").unwrap()).collect();
    assert_eq!(counts, [42]);
}

#[test]
fn the_plan_of_a_union_is_that_of_the_first_collection() {
    let folder = tempfile::tempdir().unwrap();
    let shared = shared(folder.path());
    filled(&shared);
    let admin = client(&shared, Some("admin"));
    answer(&shared, &admin, &rawdoc! { "profile": 2, "$db": "d" });
    let stages = RawArrayBuf::from_iter([rawdoc! { "$match": { "_id": 1 } }, rawdoc! { "$unionWith": "c" }]);
    assert_eq!(found(&answer(&shared, &admin, &aggregate("c", stages))).len(), 3);
    let records = shared.profiler.records("d");
    assert_eq!(records.last().unwrap().get_str("planSummary").unwrap(), "IDHACK");
}

#[test]
fn pipelines_that_read_other_collections_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let shared = shared(folder.path());
    filled(&shared);
    let reader = client(&shared, Some("read"));
    for collection in ["c", "w", "none"] {
        let stages = RawArrayBuf::from_iter([
            rawdoc! { "$match": { "k": "a" } },
            rawdoc! { "$unionWith": "w" },
            rawdoc! { "$facet": { "a": [{ "$count": "n" }] } },
        ]);
        let explained = answer(&shared, &reader, &rawdoc! { "explain": aggregate(collection, stages), "$db": "d" });
        let shown = explained.get_array("stages").unwrap_or_else(|_| panic!("{explained:?}"));
        let names: Vec<String> = shown
            .into_iter()
            .map(|stage| stage.unwrap().as_document().unwrap().iter().next().unwrap().unwrap().0.to_string())
            .collect();
        assert_eq!(names, ["$cursor", "$unionWith", "$facet"], "{collection}");
    }
}

#[test]
fn a_reader_writes_nothing_from_within_a_stage() {
    let folder = tempfile::tempdir().unwrap();
    let shared = shared(folder.path());
    filled(&shared);
    let reader = client(&shared, Some("read"));
    for (stage, expected) in [
        (rawdoc! { "$facet": { "a": [{ "$out": "x" }] } }, 40600),
        (rawdoc! { "$unionWith": { "coll": "w", "pipeline": [{ "$merge": "x" }] } }, 31441),
        (rawdoc! { "$lookup": { "from": "w", "as": "r", "pipeline": [{ "$out": "x" }] } }, 51047),
        (rawdoc! { "$out": "x" }, 13),
    ] {
        assert_eq!(code(&shared, &reader, &aggregate("c", RawArrayBuf::from_iter([stage]))), expected);
    }
}

#[test]
fn what_is_no_collection_of_documents_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let shared = shared(folder.path());
    filled(&shared);
    let reader = client(&shared, Some("read"));
    for name in ["system.buckets.w", "system.profile"] {
        let lookup = rawdoc! { "$lookup": { "from": name, "localField": "k", "foreignField": "m", "as": "r" } };
        let facet = rawdoc! { "$facet": { "a": [{ "$unionWith": name }] } };
        let graph = rawdoc! { "$graphLookup": {
            "from": name, "startWith": 1, "connectFromField": "a", "connectToField": "b", "as": "r",
        } };
        for stage in [lookup, facet, graph] {
            assert_eq!(code(&shared, &reader, &aggregate("c", RawArrayBuf::from_iter([stage]))), 115, "{name}");
        }
    }
}
