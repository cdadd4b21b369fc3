//! `explain`: what it says was looked at, skipped and hidden; and hints.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what it met")]

mod wire;

use bson::raw::RawArrayBuf;
use bson::{DateTime, RawDocument, RawDocumentBuf, rawdoc};
use wire::Wire;

const DAY: i64 = 86_400_000;
/// 2021-06-01.
const BEGIN: i64 = 1_622_505_600_000;

fn stats(reply: &RawDocument) -> &RawDocument {
    reply.get_document("executionStats").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_find_over_measurements_says_what_it_looked_at() {
    let mut wire = Wire::start().await;
    wire.run(
        &rawdoc! { "create": "c", "timeseries": { "timeField": "t", "metaField": "m", "granularity": "minutes" } },
    )
    .await;
    let documents: RawArrayBuf = (0..40_i64)
        .map(|i| rawdoc! { "t": DateTime::from_millis(BEGIN + i / 4 * DAY), "m": if i % 2 == 0 { "b" } else { "a" }, "n": i / 4 })
        .collect();
    wire.run(&rawdoc! { "insert": "c", "documents": documents }).await;
    wire.run(&rawdoc! { "compact": "c" }).await;
    // All that is older than a second is hidden, and not yet swept, where the rule applies.
    let index =
        rawdoc! { "key": { "t": 1 }, "name": "old", "expireAfterSeconds": 1, "partialFilterExpression": { "m": "b" } };
    wire.run(&rawdoc! { "setParameter": 1, "ttlMonitorEnabled": false, "$db": "admin" }).await;
    wire.run(&rawdoc! { "createIndexes": "c", "indexes": [index] }).await;
    let filter = rawdoc! { "t": { "$gte": DateTime::from_millis(BEGIN + 2 * DAY) }, "n": { "$gt": 5 } };
    let find = rawdoc! { "find": "c", "filter": filter.clone() };
    let reply = wire.run(&rawdoc! { "explain": find.clone(), "verbosity": "executionStats" }).await;
    assert_eq!(stats(&reply).get_i32("nReturned").unwrap(), 8);
    let stage = stats(&reply).get_document("executionStages").unwrap();
    assert_eq!(stage.get_i32("bucketsExamined").unwrap(), 8, "{stage:?}");
    let skipped = stage.get_document("bucketsSkipped").unwrap();
    assert_eq!(skipped, &*rawdoc! { "byTime": 2, "byMeta": 0, "byStatistics": 0 });
    assert_eq!(stage.get_i32("bucketsHidden").unwrap(), 10);
    assert_eq!(
        stage.get_array("rowsHidden").unwrap().get_document(0).unwrap(),
        &*rawdoc! { "rule": "old", "rows": 20 }
    );
    let planned = wire.run(&rawdoc! { "explain": find, "verbosity": "queryPlanner" }).await;
    assert!(planned.get("executionStats").unwrap().is_none());
    let delete = rawdoc! { "delete": "c", "deletes": [{ "q": filter, "limit": 0 }] };
    let reply = wire.run(&rawdoc! { "explain": delete }).await;
    let stage = stats(&reply).get_document("executionStages").unwrap();
    assert_eq!(stage.get_str("stage").unwrap(), "BATCHED_DELETE");
    assert_eq!(stage.get_i32("nWouldDelete").unwrap(), 8);
    assert_eq!(wire.run(&rawdoc! { "count": "c" }).await.get_i32("n").unwrap(), 20);
    let group = rawdoc! { "$group": { "_id": "$m", "n": { "$sum": 1 } } };
    let pipeline: RawArrayBuf = [group, rawdoc! { "$limit": 1 }].into_iter().collect();
    assert_eq!(wire.aggregate("c", &pipeline).await.unwrap(), [rawdoc! { "_id": "a", "n": 20 }]);
    let reply = wire.run(&rawdoc! { "aggregate": "c", "pipeline": pipeline, "explain": true }).await;
    let stages = reply.get_array("stages").unwrap();
    let cursor = stages.get_document(0).unwrap().get_document("$cursor").unwrap();
    assert!(cursor.get("groupedBy").unwrap().is_some());
    assert_eq!(stages.get_document(1).unwrap(), &*rawdoc! { "$limit": 1_i32 });
    wire.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_find_of_a_text_skips_rows_that_cannot_contain_it() {
    let mut wire = Wire::start().await;
    wire.run(&rawdoc! { "create": "c", "timeseries": { "timeField": "t", "metaField": "m" } }).await;
    let trace = |i: i64| format!("{:016x}", (i + 1).cast_unsigned().wrapping_mul(0xBF58_476D_1CE4_E5B9));
    for from in (0..20_000_i64).step_by(5_000) {
        let documents: RawArrayBuf = (from..from + 5_000)
            .map(|i| rawdoc! { "t": DateTime::from_millis(BEGIN + i), "m": "a", "trace": trace(i), "n": i })
            .collect();
        wire.run(&rawdoc! { "insert": "c", "documents": documents }).await;
    }
    wire.run(&rawdoc! { "compact": "c" }).await;
    for (filter, found, skips) in [
        (rawdoc! { "trace": trace(10_000) }, vec![10_000], true),
        (rawdoc! { "trace": { "$in": [trace(1), trace(19_999), 7_i32] } }, vec![1, 19_999], true),
        (rawdoc! { "trace": "a text that is nowhere" }, vec![], true),
        (rawdoc! { "trace": { "$gte": trace(10_000), "$lte": trace(10_000) } }, vec![10_000], false),
        (rawdoc! { "$or": [{ "trace": trace(10_000) }, { "n": 3_i32 }] }, vec![3, 10_000], false),
    ] {
        for find in [
            rawdoc! { "find": "c", "filter": filter.clone(), "sort": { "t": 1_i32 } },
            rawdoc! { "find": "c", "filter": filter.clone(), "limit": 5_i32 },
        ] {
            let reply = wire.run(&find).await;
            let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
            let numbers: Vec<i32> =
                batch.into_iter().map(|one| one.unwrap().as_document().unwrap().get_i32("n").unwrap()).collect();
            assert_eq!(numbers, found, "{find:?}");
        }
        let find = rawdoc! { "find": "c", "filter": filter };
        let reply = wire.run(&rawdoc! { "explain": find, "verbosity": "executionStats" }).await;
        let stage = stats(&reply).get_document("executionStages").unwrap();
        assert_eq!(stage.get("rowsSkippedByText").unwrap().is_some(), skips, "{stage:?}");
    }
    wire.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_find_over_documents_names_its_index_and_a_hint_must_exist() {
    let mut wire = Wire::start().await;
    let documents: RawArrayBuf = (0..20).map(|i| rawdoc! { "_id": i, "a": i % 4 }).collect();
    wire.run(&rawdoc! { "insert": "c", "documents": documents }).await;
    wire.run(&rawdoc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a_1" }] }).await;
    let explained = |filter: RawDocumentBuf| rawdoc! { "explain": { "find": "c", "filter": filter }, "verbosity": "executionStats" };
    let reply = wire.run(&explained(rawdoc! { "a": 2 })).await;
    let plan = reply.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap();
    assert_eq!(plan.get_document("inputStage").unwrap().get_str("indexName").unwrap(), "a_1");
    assert_eq!(stats(&reply).get_i32("totalDocsExamined").unwrap(), 5);
    let reply = wire.run(&explained(rawdoc! { "b": 2 })).await;
    assert_eq!(stats(&reply).get_i32("totalDocsExamined").unwrap(), 20);
    let hinted = |hint: bson::RawBson| rawdoc! { "find": "c", "filter": { "a": 2 }, "hint": hint };
    for hint in [bson::RawBson::from("a_1"), rawdoc! { "a": 1 }.into(), rawdoc! { "$natural": 1 }.into(), "_id_".into()]
    {
        wire.run(&hinted(hint)).await;
    }
    for (hint, code) in [(bson::RawBson::from("b_1"), 2), (rawdoc! { "b": 1 }.into(), 2), (5.into(), 9)] {
        assert_eq!(wire.ask(&hinted(hint)).await.get_i32("code").unwrap(), code);
    }
    wire.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hint_of_a_write_must_exist_and_the_other_writes_are_done() {
    let mut wire = Wire::start().await;
    wire.run(&rawdoc! { "insert": "c", "documents": [{ "_id": 1, "a": 1 }, { "_id": 2, "a": 2 }] }).await;
    wire.run(&rawdoc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a_1" }] }).await;
    let set = |a: i32, hint: &str| rawdoc! { "q": { "a": a }, "u": { "$set": { "b": 1 } }, "hint": hint };
    let updates = RawArrayBuf::from_iter([set(1, "b_1"), set(2, "a_1")]);
    let reply = wire.ask(&rawdoc! { "update": "c", "updates": updates, "ordered": false }).await;
    assert_eq!(reply.get_i32("nModified").unwrap(), 1);
    let refused = reply.get_array("writeErrors").unwrap().get_document(0).unwrap();
    assert_eq!((refused.get_i32("index").unwrap(), refused.get_i32("code").unwrap()), (0, 2));
    let deletes =
        |hint: RawDocumentBuf| rawdoc! { "delete": "c", "deletes": [{ "q": { "a": 1 }, "limit": 1, "hint": hint }] };
    let reply = wire.ask(&deletes(rawdoc! { "b": 1 })).await;
    assert_eq!(reply.get_i32("n").unwrap(), 0);
    assert!(reply.get_array("writeErrors").is_ok());
    assert_eq!(wire.run(&deletes(rawdoc! { "a": 1 })).await.get_i32("n").unwrap(), 1);
    let modify = |hint: &str| rawdoc! { "findAndModify": "c", "query": { "a": 2 }, "remove": true, "hint": hint };
    assert_eq!(wire.ask(&modify("b_1")).await.get_i32("code").unwrap(), 2);
    assert_eq!(wire.run(&modify("a_1")).await.get_document("value").unwrap().get_i32("b").unwrap(), 1);
    wire.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_take_conditions_of_expressions() {
    let mut wire = Wire::start().await;
    let documents: RawArrayBuf = (0..20).map(|i| rawdoc! { "_id": i, "a": i % 4, "b": i % 3 }).collect();
    wire.run(&rawdoc! { "insert": "c", "documents": documents }).await;
    let series = rawdoc! { "create": "w", "timeseries": { "timeField": "t", "metaField": "m" } };
    wire.run(&series).await;
    let measured: RawArrayBuf = (0..20)
        .map(|i| rawdoc! { "t": bson::DateTime::from_millis(1_700_000_000_000 + i64::from(i)), "m": "x", "a": i % 4, "b": i % 3 })
        .collect();
    wire.run(&rawdoc! { "insert": "w", "documents": measured }).await;
    let equal = rawdoc! { "$expr": { "$eq": ["$a", "$b"] }, "a": { "$gt": 0 } };
    // Of 0..20 these are 1, 2, 13 and 14.
    for name in ["c", "w"] {
        let find = rawdoc! {
            "find": name, "filter": equal.clone(), "sort": { "a": -1, "_id": -1 }, "skip": 1, "limit": 2,
            "projection": { "_id": 0, "a": 1 },
        };
        let reply = wire.run(&find).await;
        let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        let found: Vec<_> = batch.into_iter().map(|one| one.unwrap().as_document().unwrap().to_owned()).collect();
        assert_eq!(found, [rawdoc! { "a": 2 }, rawdoc! { "a": 1 }], "{name}");
        let count = |limit: i32| rawdoc! { "count": name, "query": equal.clone(), "limit": limit };
        assert_eq!(wire.run(&count(0)).await.get_i32("n").unwrap(), 4, "{name}");
        assert_eq!(wire.run(&count(3)).await.get_i32("n").unwrap(), 3, "{name}");
        let distinct = wire.run(&rawdoc! { "distinct": name, "key": "a", "query": equal.clone() }).await;
        let values = distinct.get_array("values").unwrap().into_iter().map(|value| value.unwrap().as_i32().unwrap());
        assert_eq!(values.collect::<Vec<_>>(), [1, 2], "{name}");
        let bound = rawdoc! { "find": name, "filter": { "$expr": { "$eq": ["$a", "$$x"] } }, "let": { "x": { "$add": [1, 2] } } };
        let reply = wire.run(&bound).await;
        assert_eq!(
            reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().into_iter().count(),
            5,
            "{name}"
        );
        let explained = wire.run(&rawdoc! { "explain": find }).await;
        let stages: Vec<_> = explained.get_array("stages").unwrap().into_iter().map(|one| one.unwrap()).collect();
        let cursor = stages[0].as_document().unwrap().get_document("$cursor").unwrap();
        let asked = cursor.get_document("queryPlanner").unwrap().get_document("parsedQuery").unwrap();
        assert_eq!(asked, rawdoc! { "a": { "$gt": 0 } }.as_ref() as &RawDocument, "{name}");
        let condition = stages[1].as_document().unwrap().get_document("$match").unwrap();
        assert_eq!(condition, rawdoc! { "$expr": { "$eq": ["$a", "$b"] } }.as_ref() as &RawDocument, "{name}");
        let wrong = rawdoc! { "find": name, "filter": { "$expr": { "$nobody": 1 } } };
        assert_ne!(wire.ask(&wrong).await.get_f64("ok").unwrap(), 1.0, "{name}");
    }
    wire.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn measurements_are_found_by_every_filter_that_a_stage_takes() {
    let mut wire = Wire::start().await;
    wire.run(&rawdoc! { "create": "c", "timeseries": { "timeField": "t", "metaField": "m" } }).await;
    let documents: RawArrayBuf = (0..20_i64)
        .map(|i| rawdoc! { "t": DateTime::from_millis(BEGIN + i * 1_000), "m": if i % 2 == 0 { "even" } else { "odd" }, "n": i, "l": [i, i + 1] })
        .collect();
    wire.run(&rawdoc! { "insert": "c", "documents": documents }).await;
    let regex = rawdoc! { "m": { "$regex": "^ev" } };
    for (filter, n) in [
        (regex.clone(), 10),
        (rawdoc! { "n": { "$mod": [3, 0] } }, 7),
        (rawdoc! { "l": { "$size": 2 } }, 20),
        (rawdoc! { "l": { "$all": [3, 4] } }, 1),
        (rawdoc! { "l": { "$elemMatch": { "$gt": 4, "$lt": 6 } } }, 2),
        (rawdoc! { "$or": [{ "n": 1 }, { "$expr": { "$eq": ["$n", 2] } }] }, 2),
        (rawdoc! { "$comment": "what it is for", "n": { "$lt": 5 } }, 5),
    ] {
        let count = wire.run(&rawdoc! { "count": "c", "query": filter.clone() }).await;
        assert_eq!(count.get_i32("n").unwrap(), n, "{filter:?}");
        let distinct = wire.run(&rawdoc! { "distinct": "c", "key": "n", "query": filter.clone() }).await;
        assert_eq!(distinct.get_array("values").unwrap().into_iter().count(), n as usize, "{filter:?}");
        let find = rawdoc! { "find": "c", "filter": filter.clone(), "sort": { "t": -1 }, "projection": { "n": 1, "_id": 0 }, "limit": 2 };
        let found = wire.run(&find).await;
        let batch = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        assert_eq!(batch.into_iter().count(), (n as usize).min(2), "{filter:?}");
        let explained = wire.run(&rawdoc! { "explain": find }).await;
        assert_eq!(explained.get_f64("ok").unwrap(), 1.0, "{filter:?}");
    }
    for (projection, expected) in [
        (rawdoc! { "l": { "$slice": 1 }, "n": 1, "_id": 0 }, rawdoc! { "n": 0_i32, "l": [0_i32] }),
        (rawdoc! { "l": { "$elemMatch": { "$gt": 0 } }, "_id": 0, "n": 1 }, rawdoc! { "n": 0_i32, "l": [1_i32] }),
        (rawdoc! { "k": { "$add": ["$n", 7] }, "_id": 0 }, rawdoc! { "k": 7_i32 }),
    ] {
        let find = rawdoc! { "find": "c", "filter": regex.clone(), "sort": { "$natural": 1 }, "projection": projection, "limit": 1 };
        let found = wire.run(&find).await;
        let batch = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        assert_eq!(batch.get_document(0).unwrap(), &*expected);
    }
    let newest = wire.run(&rawdoc! { "find": "c", "filter": regex, "sort": { "t": -1 }, "projection": { "n": 1, "_id": 0 }, "limit": 1 }).await;
    let batch = newest.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert_eq!(batch.get_document(0).unwrap(), &*rawdoc! { "n": 18_i32 });
    wire.stop().await;
}
