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
        (rawdoc! { "aggregate": {}, "pipeline": [], "cursor": {}, "$db": "d" }, 14),
        (rawdoc! { "find": "c", "maxTimeMS": "x", "$db": "d" }, 2),
        (rawdoc! { "find": "c", "maxTimeMS": 1e12, "$db": "d" }, 2),
        (rawdoc! { "find": "c", "hint": 1, "$db": "d" }, 9),
        (rawdoc! { "find": "c", "limit": -1.5, "$db": "d" }, 51024),
        (rawdoc! { "find": "c", "projection": { "a": 0, "z": { "$add": [1, 1] } }, "$db": "d" }, 31252),
        (rawdoc! { "find": "c", "projection": { "a": 0, "z": "$a" }, "$db": "d" }, 31310),
        (aggregated(rawdoc! { "$project": { "a": 0, "z": { "$add": [1, 1] } } }), 31252),
        (aggregated(rawdoc! { "$project": { "a": 0, "z": "$a" } }), 31310),
        (rawdoc! { "count": "c", "limit": 1.7, "$db": "d" }, 9),
        (rawdoc! { "distinct": "c", "key": "", "$db": "d" }, 40352),
        (rawdoc! { "distinct": "c", "key": "a.", "$db": "d" }, 40353),
        (rawdoc! { "distinct": "c", "key": "$a", "$db": "d" }, 16410),
        (rawdoc! { "distinct": "nothing", "key": "a.", "$db": "d" }, 40353),
        (rawdoc! { "distinct": "nothing", "key": "a", "query": { "$foo": 1 }, "$db": "d" }, 2),
        (rawdoc! { "distinct": "a$b", "key": "a", "$db": "d" }, 73),
        (rawdoc! { "collStats": "c", "scale": 0, "$db": "d" }, 51024),
        (rawdoc! { "collStats": "c", "scale": 0.5, "$db": "d" }, 51024),
        (rawdoc! { "explain": { "find": "c" }, "verbosity": "foo", "$db": "d" }, 2),
        (rawdoc! { "dropIndexes": "c", "index": { "_id": 1 }, "$db": "d" }, 72),
        (rawdoc! { "dropIndexes": "c", "index": 1, "$db": "d" }, 14),
        (rawdoc! { "dropIndexes": "c", "index": ["a", 1], "$db": "d" }, 14),
        (rawdoc! { "dropIndexes": "c", "index": ["_id_"], "$db": "d" }, 72),
        (rawdoc! { "killOp": 1, "$db": "admin" }, 4),
        (rawdoc! { "killOp": 1, "op": 1, "$db": "d" }, 13),
        (rawdoc! { "renameCollection": "d.c", "to": "d.e", "$db": "d" }, 13),
        (index(rawdoc! { "key": { "a": 1 } }), 9),
        (index(rawdoc! { "name": "n" }), 9),
        (index(rawdoc! { "key": { "a": 1 }, "name": 1 }), 14),
        (index(rawdoc! { "key": 1, "name": "n" }), 14),
        (index(rawdoc! { "key": { "a": 1 }, "name": "n", "v": 3 }), 67),
        (index(rawdoc! { "key": { "a": 1 }, "name": "n", "v": "x" }), 14),
        (index(rawdoc! { "key": { "a": 1 }, "name": "_id_" }), 2),
        (index(rawdoc! { "key": { "_id": -1 }, "name": "n" }), 2),
    ] {
        assert_eq!(code(&shared, &admin, &command), expected, "{command:?}");
    }
}

#[test]
fn what_mongodb_takes_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let shared = shared(folder.path());
    let admin = filled(&shared);
    let one = rawdoc! { "q": {}, "u": { "$set": { "a": 1 } }, "multi": null, "upsert": null };
    let simple = rawdoc! { "key": { "a": 1 }, "name": "n", "v": 1.0, "collation": { "locale": "simple" } };
    for command in [
        rawdoc! { "insert": "c", "documents": [{}], "ordered": null, "$db": "d" },
        rawdoc! { "update": "c", "updates": [one], "ordered": null, "let": {}, "$db": "d" },
        rawdoc! { "delete": "c", "deletes": [{ "q": { "_id": 99 }, "limit": 1.0 }], "comment": [1], "$db": "d" },
        rawdoc! { "findAndModify": "c", "query": { "_id": 1 }, "update": { "$set": { "a": 1 } }, "new": 1, "$db": "d" },
        rawdoc! { "find": "c", "maxTimeMS": 0, "hint": "_id_", "let": {}, "collation": {}, "$db": "d" },
        rawdoc! { "find": "c", "maxTimeMS": 1000.0, "hint": { "_id": 1 }, "readConcern": {}, "$db": "d" },
        rawdoc! { "count": "c", "limit": -2, "hint": {}, "collation": { "locale": "simple" }, "$db": "d" },
        rawdoc! { "distinct": "c", "key": "a", "hint": { "_id": 1.0 }, "$db": "d" },
        rawdoc! { "aggregate": "c", "pipeline": [], "cursor": { "batchSize": 1.5 }, "explain": false, "$db": "d" },
        rawdoc! { "listDatabases": 1, "nameOnly": 1, "$db": "admin" },
        rawdoc! { "listCollections": 1, "nameOnly": null, "$db": "d" },
        rawdoc! { "createIndexes": "c", "indexes": [simple], "$db": "d" },
        rawdoc! { "create": "plain", "capped": false, "$db": "d" },
        rawdoc! { "collStats": "c", "scale": 1.5, "$db": "d" },
    ] {
        assert_eq!(code(&shared, &admin, &command), 0, "{command:?}");
    }
}

#[test]
fn dropped_indexes_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let shared = shared(folder.path());
    let admin = filled(&shared);
    let indexes = [rawdoc! { "key": { "a": 1 }, "name": "a" }, rawdoc! { "key": { "b": 1 }, "name": "b" }];
    let create = rawdoc! { "createIndexes": "c", "indexes": RawArrayBuf::from_iter(indexes), "$db": "d" };
    assert_eq!(code(&shared, &admin, &create), 0);
    let drop = |index: RawDocumentBuf| {
        let mut command = rawdoc! { "dropIndexes": "c", "$db": "d" };
        index.iter().map(std::result::Result::unwrap).for_each(|(name, value)| command.append(name, value));
        command
    };
    assert_eq!(code(&shared, &admin, &drop(rawdoc! { "index": ["a", "a"] })), 27);
    assert_eq!(code(&shared, &admin, &drop(rawdoc! { "index": ["a", "*"] })), 27);
    let all = answer(&shared, &admin, &drop(rawdoc! { "index": ["*"] }));
    assert_eq!(all.get_i32("nIndexesWas").unwrap(), 3);
    assert_eq!(all.get_str("msg").unwrap(), "non-_id indexes dropped for collection");
    let none = answer(&shared, &admin, &drop(rawdoc! { "index": [] }));
    assert_eq!((none.get_i32("nIndexesWas").unwrap(), none.get("msg").unwrap()), (1, None));
    assert_eq!(code(&shared, &admin, &create), 0);
    let dropped = answer(&shared, &admin, &rawdoc! { "drop": "c", "$db": "d" });
    assert_eq!((dropped.get_i32("nIndexesWas").unwrap(), dropped.get_str("ns").unwrap()), (3, "d.c"));
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
