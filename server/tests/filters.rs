//! Filters on measurements, as all commands that read understand them.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what it met")]

mod wire;

use bson::raw::RawArrayBuf;
use bson::{DateTime, rawdoc};
use wire::Wire;

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_found_whatever_other_conditions_a_filter_has() {
    let mut wire = Wire::start().await;
    wire.run(&rawdoc! { "create": "c", "timeseries": { "timeField": "t", "metaField": "m" } }).await;
    let x = || rawdoc! { "site": "a", "floor": 2, "room": 1 };
    let documents: RawArrayBuf = [
        rawdoc! { "t": DateTime::from_millis(1), "n": 1, "m": { "site": "a", "room": 1 }, "s": "x" },
        rawdoc! { "t": DateTime::from_millis(2), "n": 2, "m": x(), "s": "x" },
    ]
    .into_iter()
    .collect();
    wire.run(&rawdoc! { "insert": "c", "documents": documents }).await;
    let matching = || rawdoc! { "$match": { "s": { "$regex": "x" } } };
    for filter in [
        rawdoc! { "m": x(), "s": { "$regex": "x" } },
        rawdoc! { "m": { "$in": [x()] }, "q": { "$not": { "$mod": [2, 0] } } },
        rawdoc! { "$or": [{ "m": x() }, { "s": { "$regex": "zz" } }] },
        rawdoc! { "m": { "$all": [x()] } },
    ] {
        let found = wire.run(&rawdoc! { "find": "c", "filter": filter.clone() }).await;
        let batch = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        assert_eq!(batch.into_iter().count(), 1, "{filter:?}");
        assert_eq!(batch.get_document(0).unwrap().get_i32("n").unwrap(), 2, "{filter:?}");
        let counted = wire.run(&rawdoc! { "count": "c", "query": filter.clone() }).await;
        assert_eq!(counted.get_i32("n").unwrap(), 1, "{filter:?}");
        let distinct = wire.run(&rawdoc! { "distinct": "c", "key": "n", "query": filter.clone() }).await;
        assert_eq!(distinct.get_array("values").unwrap(), &*RawArrayBuf::from_iter([2]), "{filter:?}");
        for second in [matching(), rawdoc! { "$sort": { "n": 1 } }] {
            let stages = RawArrayBuf::from_iter([
                rawdoc! { "$match": filter.clone() },
                second,
                rawdoc! { "$group": { "_id": null, "ids": { "$push": "$n" } } },
            ]);
            let grouped = wire.aggregate("c", &stages).await.unwrap();
            assert_eq!(grouped, [rawdoc! { "_id": null, "ids": [2] }], "{filter:?}");
        }
        let explained = wire.run(&rawdoc! { "explain": { "find": "c", "filter": filter.clone() } }).await;
        let stats = explained.get_document("executionStats").unwrap();
        assert_eq!(stats.get_i32("nReturned").unwrap(), 1, "{filter:?}");
    }
    // A delete takes no such conditions, and so its explanation does not.
    let delete = rawdoc! { "delete": "c", "deletes": [{ "q": { "s": { "$regex": "x" } }, "limit": 0 }] };
    assert_eq!(wire.ask(&rawdoc! { "explain": delete }).await.get_i32("code").unwrap(), 2);
    wire.stop().await;
}
