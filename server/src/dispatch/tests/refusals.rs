//! What commands refuse, with MongoDB's codes.

use super::*;
use bson::raw::RawArrayBuf;

fn filled(shared: &Shared) -> Client {
    let admin = client(shared, Some("admin"));
    let documents = RawArrayBuf::from_iter((0..6).map(|id| rawdoc! { "_id": id, "a": id % 3 }));
    assert_eq!(code(shared, &admin, &rawdoc! { "insert": "c", "documents": documents, "$db": "d" }), 0);
    admin
}

fn aggregated(last: RawDocumentBuf) -> RawDocumentBuf {
    rawdoc! { "aggregate": "c", "pipeline": [{ "$match": {} }, last], "cursor": {}, "$db": "d" }
}

#[test]
fn wrong_options_have_the_codes_of_mongodb() {
    let folder = tempfile::tempdir().unwrap();
    let shared = shared(folder.path());
    let admin = filled(&shared);
    let index = |index: RawDocumentBuf| rawdoc! { "createIndexes": "c", "indexes": [index], "$db": "d" };
    for (command, expected) in [
        (rawdoc! { "insert": "c", "documents": [{}], "ordered": 1, "$db": "d" }, 14),
        (rawdoc! { "update": "c", "updates": [{ "q": {}, "u": { "$set": { "a": 1 } }, "multi": 1 }], "$db": "d" }, 14),
        (rawdoc! { "update": "c", "updates": [{ "q": {}, "u": { "$set": { "a": 1 } }, "upsert": 1 }], "$db": "d" }, 14),
        (rawdoc! { "update": "c", "updates": [{ "q": {}, "u": 1 }], "$db": "d" }, 9),
        (rawdoc! { "delete": "c", "deletes": [{ "q": {}, "limit": 2 }], "$db": "d" }, 9),
        (rawdoc! { "find": "c", "singleBatch": 1, "$db": "d" }, 14),
        (rawdoc! { "find": "c", "allowDiskUse": 1, "$db": "d" }, 14),
        (rawdoc! { "find": 1, "$db": "d" }, 2),
        (rawdoc! { "find": ".x", "$db": "d" }, 73),
        (rawdoc! { "count": 1, "$db": "d" }, 73),
        (rawdoc! { "aggregate": 1.5, "pipeline": [], "cursor": {}, "$db": "d" }, 9),
        (rawdoc! { "find": "c", "maxTimeMS": "x", "$db": "d" }, 2),
        (rawdoc! { "find": "c", "maxTimeMS": 1e12, "$db": "d" }, 2),
        (rawdoc! { "find": "c", "hint": 1, "$db": "d" }, 9),
        (rawdoc! { "find": "c", "limit": -1.5, "$db": "d" }, 51024),
        (rawdoc! { "find": "c", "projection": { "a": 0, "z": { "$add": [1, 1] } }, "$db": "d" }, 31252),
        (rawdoc! { "count": "c", "limit": 1.7, "$db": "d" }, 9),
        (rawdoc! { "distinct": "c", "key": "", "$db": "d" }, 40352),
        (rawdoc! { "distinct": "c", "key": "a.", "$db": "d" }, 40353),
        (rawdoc! { "distinct": "c", "key": "$a", "$db": "d" }, 16410),
        (rawdoc! { "collStats": "c", "scale": 0, "$db": "d" }, 51024),
        (rawdoc! { "explain": { "find": "c" }, "verbosity": "foo", "$db": "d" }, 2),
        (rawdoc! { "dropIndexes": "c", "index": { "_id": 1 }, "$db": "d" }, 72),
        (rawdoc! { "dropIndexes": "c", "index": 1, "$db": "d" }, 14),
        (index(rawdoc! { "key": { "a": 1 }, "name": "n", "v": 3 }), 67),
        (index(rawdoc! { "key": { "a": 1 }, "name": "n", "v": "x" }), 14),
        (index(rawdoc! { "key": { "a": 1 }, "name": "_id_" }), 2),
        (index(rawdoc! { "key": { "_id": -1 }, "name": "n" }), 2),
        (index(rawdoc! { "key": { "a": 1 }, "name": "n", "collation": { "locale": "simple" } }), 0),
        (rawdoc! { "create": "plain", "capped": false, "$db": "d" }, 0),
    ] {
        assert_eq!(code(&shared, &admin, &command), expected, "{command:?}");
    }
}

#[test]
fn stages_that_write_check_their_arguments_first() {
    let folder = tempfile::tempdir().unwrap();
    let shared = shared(folder.path());
    let admin = filled(&shared);
    for (stage, expected) in [
        (rawdoc! { "$out": {} }, 16994),
        (rawdoc! { "$out": { "db": "d" } }, 16994),
        (rawdoc! { "$out": { "db": 1, "coll": "x" } }, 13111),
        (rawdoc! { "$out": 1 }, 16990),
        (rawdoc! { "$out": "" }, 73),
        (rawdoc! { "$out": "system.x" }, 17385),
        (rawdoc! { "$merge": 1 }, 14),
        (rawdoc! { "$merge": {} }, 40414),
        (rawdoc! { "$merge": { "into": 1 } }, 51178),
        (rawdoc! { "$merge": { "into": "" } }, 5_786_800),
        (rawdoc! { "$merge": { "into": { "db": "d" } } }, 5_786_801),
        (rawdoc! { "$merge": { "into": { "db": 1, "coll": "x" } } }, 14),
        (rawdoc! { "$merge": { "into": { "coll": "x", "y": 1 } } }, 40415),
        (rawdoc! { "$merge": { "into": "x", "on": 1 } }, 51186),
        (rawdoc! { "$merge": { "into": "x", "on": [] } }, 51187),
        (rawdoc! { "$merge": { "into": "x", "on": [1] } }, 51134),
        (rawdoc! { "$merge": { "into": "x", "on": ["_id", "_id"] } }, 31465),
        (rawdoc! { "$merge": { "into": "x", "on": "a" } }, 51183),
        (rawdoc! { "$merge": { "into": "x", "whenMatched": "foo" } }, 2),
        (rawdoc! { "$merge": { "into": "x", "whenMatched": 1 } }, 51191),
        (rawdoc! { "$merge": { "into": "x", "whenMatched": [] } }, 115),
        (rawdoc! { "$merge": { "into": "x", "whenNotMatched": 1 } }, 14),
        (rawdoc! { "$merge": { "into": "x", "let": {} } }, 51199),
        (rawdoc! { "$merge": { "into": "x", "whenMatched": "fail", "whenNotMatched": "discard" } }, 51181),
        (rawdoc! { "$unionWith": "" }, 73),
        (rawdoc! { "$set": {} }, 0),
        (rawdoc! { "$merge": { "into": { "coll": "x" }, "on": ["_id"] } }, 0),
    ] {
        assert_eq!(code(&shared, &admin, &aggregated(stage.clone())), expected, "{stage:?}");
    }
}

#[test]
fn of_a_number_the_whole_part_counts() {
    let folder = tempfile::tempdir().unwrap();
    let shared = shared(folder.path());
    let admin = filled(&shared);
    let found = |command: RawDocumentBuf| {
        let reply = answer(&shared, &admin, &command);
        let cursor = reply.get_document("cursor").unwrap_or_else(|_| panic!("{reply:?}"));
        let batch = cursor.get_array("firstBatch").unwrap().into_iter();
        batch.map(|one| one.unwrap().as_document().unwrap().get_i32("_id").unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(found(rawdoc! { "find": "c", "skip": 1.5, "limit": 2.9, "$db": "d" }), [1, 2]);
    assert_eq!(found(rawdoc! { "find": "c", "batchSize": 1.5, "$db": "d" }), [0]);
    assert_eq!(answer(&shared, &admin, &rawdoc! { "count": "c", "skip": 1.5, "$db": "d" }).get_i32("n").unwrap(), 5);
}

#[test]
fn a_cursor_is_of_one_collection() {
    let folder = tempfile::tempdir().unwrap();
    let shared = shared(folder.path());
    let admin = filled(&shared);
    let found = answer(&shared, &admin, &rawdoc! { "find": "c", "batchSize": 1, "$db": "d" });
    let id = found.get_document("cursor").unwrap().get_i64("id").unwrap();
    let more = |collection: &str| rawdoc! { "getMore": id, "collection": collection, "$db": "d" };
    assert_eq!(code(&shared, &admin, &more("other")), 13);
    assert_eq!(code(&shared, &admin, &more("c")), 0);
}
