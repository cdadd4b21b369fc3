use crate::db::Database;
use crate::error::{Error, Result};
use crate::fs::sim::SimFs;
use ebbtide_ttl::{Code, Timestamp, VirtualClock};
use serde_json::{Value as Json, json};
use std::sync::Arc;

fn database() -> Database {
    let clock = VirtualClock::new(Timestamp::parse("2024-01-01T00:00:00Z").unwrap());
    Database::builder("/db").fs(Arc::new(SimFs::new("/db"))).clock(Arc::new(clock)).open().unwrap()
}

/// A database with a collection `w` of three measurements.
fn weather() -> Database {
    let db = database();
    let options = json!({"timeField": "t", "metaField": "m"});
    run(&db, json!({"create": "w", "timeseries": options, "expireAfterSeconds": 60}));
    let at = |second: u32| json!({"$date": format!("2024-01-01T00:00:0{second}Z")});
    let documents = json!([
        {"t": at(2), "m": {"s": "b", "f": 1}, "v": 1, "o": {"x": 1, "y": 2}},
        {"t": at(1), "m": {"s": "a"}, "v": 3},
        {"t": at(3), "m": {"s": "a"}, "v": 2, "z": "text"},
    ]);
    assert_eq!(run(&db, json!({"insert": "w", "documents": documents}))["n"], 3);
    db
}

fn attempt(db: &Database, command: Json) -> Result<Json> {
    db.run_command(&command)
}

#[track_caller]
fn run(db: &Database, command: Json) -> Json {
    let reply = attempt(db, command).unwrap();
    assert_eq!(reply["ok"], 1);
    reply
}

#[track_caller]
fn fails(db: &Database, command: Json, code: Code) -> Error {
    let error = attempt(db, command.clone()).expect_err(&command.to_string());
    assert_eq!(error.code(), code, "{command}: {error}");
    error
}

#[track_caller]
fn found(db: &Database, command: Json) -> Json {
    run(db, command)["cursor"]["firstBatch"].take()
}

#[test]
fn an_unknown_command_is_named_with_one_that_may_be_meant() {
    let db = database();
    let message = |command: Json| fails(&db, command, Code::CommandNotFound).to_string();
    assert!(message(json!({"Ping": 1})).contains("did you mean 'ping'"));
    assert!(message(json!({"creatIndexes": "w"})).contains("did you mean 'createIndexes'"));
    assert!(message(json!({"aggregate": "w"})).contains("'aggregate'"));
    message(json!({}));
    fails(&db, json!("ping"), Code::TypeMismatch);
    run(&db, json!({"ping": 1, "comment": "hello"}));
}

#[test]
fn a_pipeline_leads_to_the_server() {
    let error = fails(&weather(), json!({"aggregate": "w", "pipeline": []}), Code::CommandNotFound).to_string();
    assert!(error.contains("ebbtide serve") && !error.contains("create"), "{error}");
}

#[test]
fn unknown_options_are_refused_at_every_level() {
    let db = weather();
    for command in [
        json!({"ping": 1, "zzz": 1}),
        json!({"find": "w", "zzz": 1}),
        json!({"create": "x", "zzz": 1, "timeseries": {"timeField": "t"}}),
        json!({"create": "x", "timeseries": {"timeField": "t", "zzz": 1}}),
        json!({"collMod": "w", "timeseries": {"zzz": 1}}),
        json!({"collMod": "w", "index": {"zzz": 1}}),
        json!({"delete": "w", "deletes": [{"q": {}, "limit": 0, "zzz": 1}]}),
        json!({"createIndexes": "w", "indexes": [{"key": {"t": 1}, "zzz": 1}]}),
    ] {
        let error = fails(&db, command, Code::IDLUnknownField);
        assert!(error.to_string().contains("'zzz'"), "{error}");
    }
    let error = fails(&db, json!({"find": "w", "limits": 1}), Code::IDLUnknownField);
    assert!(error.to_string().contains("did you mean 'limit'"), "{error}");
}

#[test]
fn create_checks_its_options() {
    let db = database();
    let create = |more: Json| {
        let mut command = json!({"create": "w"});
        command.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        command
    };
    for (more, code) in [
        (json!({"expireAfterSeconds": 10}), Code::InvalidOptions),
        (json!({"timeseries": 5}), Code::TypeMismatch),
        (json!({"timeseries": null}), Code::TypeMismatch),
        (json!({"timeseries": {}}), Code::InvalidOptions),
        (json!({"timeseries": {"timeField": 5}}), Code::TypeMismatch),
        (json!({"timeseries": {"timeField": "a.b"}}), Code::InvalidOptions),
        (json!({"timeseries": {"timeField": "t", "metaField": "t"}}), Code::InvalidOptions),
        (json!({"timeseries": {"timeField": "t", "granularity": "weeks"}}), Code::BadValue),
        (json!({"timeseries": {"timeField": "t", "precision": "s"}}), Code::BadValue),
        (json!({"timeseries": {"timeField": "t", "precision": 3}}), Code::TypeMismatch),
        (json!({"timeseries": {"timeField": "t", "expiry": "never"}}), Code::BadValue),
        (json!({"timeseries": {"timeField": "t"}, "capped": true, "size": 1000}), Code::InvalidOptions),
        (json!({"timeseries": {"timeField": "t"}, "validator": {}}), Code::InvalidOptions),
        (json!({"timeseries": {"timeField": "t"}, "expireAfterSeconds": "off"}), Code::TypeMismatch),
        (json!({"timeseries": {"timeField": "t"}, "expireAfterSeconds": 1.5}), Code::InvalidOptions),
        (json!({"viewOn": "x", "pipeline": []}), Code::InvalidOptions),
    ] {
        fails(&db, create(more), code);
    }
    fails(&db, json!({"create": 5, "timeseries": {"timeField": "t"}}), Code::TypeMismatch);
    fails(&db, json!({"create": "", "timeseries": {"timeField": "t"}}), Code::InvalidNamespace);
    assert_eq!(found(&db, json!({"listCollections": 1})), json!([]));
}

#[test]
fn list_collections_shows_every_effective_option() {
    let db = database();
    run(&db, json!({"create": "b", "timeseries": {"timeField": "t"}}));
    let custom = json!({"timeField": "t", "metaField": "m", "bucketMaxSpanSeconds": 60, "bucketRoundingSeconds": 60});
    run(&db, json!({"create": "a", "timeseries": custom, "expireAfterSeconds": 60.0}));
    let preset = json!({"timeField": "t", "granularity": "seconds", "bucketMaxSpanSeconds": 3600, "precision": "ms",
        "expiry": "exact", "outOfRange": "suspend", "ids": "drop"});
    let listed = found(&db, json!({"listCollections": 1}));
    assert_eq!(listed[0]["name"], "a");
    assert_eq!(listed[0]["options"]["expireAfterSeconds"], 60);
    assert_eq!(listed[0]["options"]["timeseries"]["bucketRoundingSeconds"], 60);
    assert!(listed[0]["options"]["timeseries"].get("granularity").is_none());
    assert_eq!(listed[1]["options"], json!({"timeseries": preset}));
    let only = found(&db, json!({"listCollections": 1, "filter": {"name": "b"}, "nameOnly": true}));
    assert_eq!(only, json!([{"name": "b", "type": "timeseries"}]));
    // What is shown is what `create` takes.
    run(&db, json!({"create": "b", "timeseries": preset}));
    fails(&db, json!({"create": "b", "timeseries": preset, "expireAfterSeconds": 1}), Code::NamespaceExists);
}

#[test]
fn coll_mod_changes_what_may_change() {
    let db = weather();
    let options = || found(&db, json!({"listCollections": 1}))[0]["options"].take();
    run(
        &db,
        json!({"collMod": "w", "expireAfterSeconds": "off", "timeseries": {"granularity": "minutes",
        "expiry": "bucket", "outOfRange": "expire"}}),
    );
    let now = options();
    assert!(now.get("expireAfterSeconds").is_none());
    assert_eq!(now["timeseries"]["granularity"], "minutes");
    assert_eq!(now["timeseries"]["expiry"], "bucket");
    for (change, code) in [
        (json!({"timeseries": {"granularity": "seconds"}}), Code::InvalidOptions),
        (json!({"timeseries": {"timeField": "x"}}), Code::InvalidOptions),
        (json!({"timeseries": {"metaField": "x"}}), Code::InvalidOptions),
        (json!({"timeseries": {"precision": "ns"}}), Code::InvalidOptions),
        (json!({"timeseries": 5}), Code::TypeMismatch),
        (json!({"expireAfterSeconds": "on"}), Code::InvalidOptions),
        (json!({"expireAfterSeconds": {}}), Code::TypeMismatch),
        (json!({"expireAfterSeconds": 5, "timeseries": {"granularity": "seconds"}}), Code::InvalidOptions),
        (json!({"expireAfterSeconds": 5, "index": {"name": "r", "expireAfterSeconds": 5}}), Code::IndexNotFound),
        (json!({"validator": {}}), Code::InvalidOptions),
    ] {
        let mut command = json!({"collMod": "w"});
        command.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        fails(&db, command, code);
        assert_eq!(options(), now);
    }
    run(&db, json!({"collMod": "w", "timeseries": {"timeField": "t", "precision": "ms"}}));
    fails(&db, json!({"collMod": "x"}), Code::NamespaceNotFound);
}

#[test]
fn insert_stores_all_or_none_and_a_lenient_one_the_good_ones() {
    let db = database();
    run(&db, json!({"create": "w", "timeseries": {"timeField": "t"}}));
    let date = json!({"$date": "2024-01-01T00:00:00Z"});
    let documents =
        json!([{"t": date, "v": 1}, {"t": {"$date": "soon"}}, {"t": 5}, {"t": date, "v": "x"}, {"t": date}]);
    let error = fails(&db, json!({"insert": "w", "documents": documents}), Code::BadValue);
    assert_eq!(error.index(), Some(1));
    assert!(error.to_string().contains("index 1"), "{error}");
    assert_eq!(run(&db, json!({"collStats": "w"}))["count"], 0);

    let reply = run(&db, json!({"insert": "w", "documents": documents, "ordered": false}));
    assert_eq!(reply["n"], 2);
    let errors: Vec<_> =
        reply["writeErrors"].as_array().unwrap().iter().map(|e| (&e["index"], &e["codeName"])).collect();
    let wanted = [(json!(1), json!("BadValue")), (json!(2), json!("BadValue")), (json!(3), json!("TypeMismatch"))];
    assert_eq!(errors, wanted.iter().map(|(i, c)| (i, c)).collect::<Vec<_>>());

    assert_eq!(run(&db, json!({"insert": "w", "documents": []}))["n"], 0);
    fails(&db, json!({"insert": "w"}), Code::IDLFailedToParse);
    fails(&db, json!({"insert": "w", "documents": {}}), Code::TypeMismatch);
    fails(&db, json!({"insert": "w", "documents": [1]}), Code::TypeMismatch);
    fails(&db, json!({"insert": "w", "documents": [], "ordered": 1}), Code::TypeMismatch);
    fails(&db, json!({"insert": "x", "documents": []}), Code::NamespaceNotFound);
}

#[test]
fn delete_takes_many_and_is_checked_first() {
    let db = weather();
    let delete = |deletes: Json| json!({"delete": "w", "deletes": deletes});
    fails(&db, delete(json!([{"q": {}, "limit": 0}, {"q": {}, "limit": 1}])), Code::InvalidOptions);
    fails(&db, delete(json!([{"q": {}}])), Code::IDLFailedToParse);
    fails(&db, delete(json!([{"limit": 0}])), Code::IDLFailedToParse);
    fails(&db, delete(json!([{"q": {"$where": 1}, "limit": 0}])), Code::BadValue);
    assert_eq!(run(&db, json!({"collStats": "w"}))["count"], 3);
    assert_eq!(run(&db, delete(json!([{"q": {"m.s": "a"}, "limit": 0}, {"q": {"v": 9}, "limit": 0}])))["n"], 2);
    assert_eq!(run(&db, json!({"collStats": "w"}))["count"], 1);
}

#[test]
fn find_filters_sorts_and_cuts() {
    let db = weather();
    let vs = |more: Json| -> Vec<i64> {
        let mut command = json!({"find": "w"});
        command.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        found(&db, command).as_array().unwrap().iter().map(|d| d["v"].as_i64().unwrap()).collect()
    };
    for sealed in [false, true] {
        if sealed {
            db.flush().unwrap();
        }
        assert_eq!(vs(json!({})), [3, 1, 2]); // By time.
        assert_eq!(vs(json!({"sort": {"v": -1}})), [3, 2, 1]);
        assert_eq!(vs(json!({"sort": {"m.f": 1, "v": 1}})), [2, 3, 1]); // Missing first.
        assert_eq!(vs(json!({"sort": {"z": -1, "t": -1}})), [2, 1, 3]);
        assert_eq!(vs(json!({"sort": {"v": 1}, "skip": 1, "limit": 1})), [2]);
        assert_eq!(vs(json!({"limit": 0})), [3, 1, 2]);
        assert_eq!(vs(json!({"filter": {"m": {"s": "a"}, "v": {"$gte": 3}}})), [3]);
        assert_eq!(vs(json!({"filter": {"m.s": {"$ne": "a"}}})), [1]);
        assert_eq!(vs(json!({"filter": {"t": {"$gt": {"$date": "2024-01-01T00:00:01Z"}}}})), [1, 2]);
        assert_eq!(vs(json!({"filter": {"nothing": 5}})), [0_i64; 0]);
    }
    fails(&db, json!({"find": "w", "sort": "v"}), Code::TypeMismatch);
    fails(&db, json!({"find": "w", "sort": {"v": 2}}), Code::BadValue);
    fails(&db, json!({"find": "w", "limit": -1}), Code::BadValue);
    fails(&db, json!({"find": "w", "limit": "1"}), Code::TypeMismatch);
    fails(&db, json!({"find": "w", "filter": []}), Code::TypeMismatch);
    fails(&db, json!({"find": "x"}), Code::NamespaceNotFound);
}

#[test]
fn documents_have_time_and_meta_first_and_no_nulls() {
    let db = weather();
    let all = found(&db, json!({"find": "w", "filter": {"v": {"$in": [1, 3]}}}));
    let wanted = json!([
        {"t": {"$date": "2024-01-01T00:00:01Z"}, "m": {"s": "a"}, "v": 3},
        {"t": {"$date": "2024-01-01T00:00:02Z"}, "m": {"f": 1, "s": "b"}, "v": 1, "o": {"x": 1, "y": 2}},
    ]);
    assert_eq!(all, wanted);
    let names: Vec<_> = all[1].as_object().unwrap().keys().collect();
    assert_eq!(names, ["t", "m", "v", "o"]);
}

#[test]
fn projections_include_or_exclude() {
    let db = weather();
    let one =
        |projection: Json| found(&db, json!({"find": "w", "filter": {"v": 1}, "projection": projection}))[0].take();
    assert_eq!(one(json!({"v": 1})), json!({"v": 1}));
    assert_eq!(one(json!({"v": true, "_id": 0, "o.x": 1, "nothing": 1})), json!({"v": 1, "o": {"x": 1}}));
    assert_eq!(one(json!({"o": {"y": 1}, "m.s": 1})), json!({"m": {"s": "b"}, "o": {"y": 2}}));
    assert_eq!(one(json!({"t": 0, "m": 0, "o.x": 0})), json!({"v": 1, "o": {"y": 2}}));
    assert_eq!(one(json!({})).as_object().unwrap().len(), 4);
    assert_eq!(found(&db, json!({"find": "w", "projection": {"nothing": 1}})), json!([{}, {}, {}]));
    for wrong in [json!({"v": 1, "o": 0}), json!({"v": "x"}), json!({"o": 1, "o.x": 1}), json!({"o..x": 1})] {
        fails(&db, json!({"find": "w", "projection": wrong}), Code::BadValue);
    }
    fails(&db, json!({"find": "w", "projection": 1}), Code::TypeMismatch);
    let deep = vec!["a"; 1 << 20].join(".");
    fails(&db, json!({"find": "w", "projection": {deep.as_str(): 1}}), Code::BadValue);
    assert_eq!(found(&db, json!({"find": "w", "sort": {deep.as_str(): 1}, "filter": {deep: 1}})), json!([]));
}

#[test]
fn indexes_are_made_listed_changed_and_dropped() {
    let db = weather();
    let index = |name: &str, site: &str| json!({"key": {"t": 1}, "name": name, "expireAfterSeconds": 5, "partialFilterExpression": {"m.s": site}});
    let create = |indexes: Json| json!({"createIndexes": "w", "indexes": indexes});
    let names = || -> Vec<String> {
        let listed = found(&db, json!({"listIndexes": "w"}));
        listed.as_array().unwrap().iter().map(|i| i["name"].as_str().unwrap().to_owned()).collect()
    };
    let made = run(&db, create(json!([index("b", "x"), index("a", "y")])));
    assert_eq!((&made["numIndexesBefore"], &made["numIndexesAfter"]), (&json!(0), &json!(2)));
    assert!(run(&db, create(json!([index("b", "x")])))["note"].is_string());
    assert_eq!(found(&db, json!({"listIndexes": "w"}))[0], index("b", "x"));
    assert_eq!(names(), ["b", "a"]);

    let changed = run(&db, json!({"collMod": "w", "index": {"name": "a", "expireAfterSeconds": 7}}));
    assert_eq!((&changed["expireAfterSeconds_old"], &changed["expireAfterSeconds_new"]), (&json!(5), &json!(7)));

    let drop = |index: Json| json!({"dropIndexes": "w", "index": index});
    fails(&db, drop(json!({"t": 1})), Code::AmbiguousIndexKeyPattern);
    fails(&db, drop(json!({"t": -1})), Code::IndexNotFound);
    fails(&db, drop(json!(["a", "nope"])), Code::IndexNotFound);
    fails(&db, drop(json!([5])), Code::TypeMismatch);
    fails(&db, drop(json!(5)), Code::TypeMismatch);
    fails(&db, json!({"dropIndexes": "w"}), Code::IDLFailedToParse);
    assert_eq!(names(), ["b", "a"]);
    assert_eq!(run(&db, drop(json!(["a", "a"])))["nIndexesWas"], 2);
    run(&db, drop(json!({"t": 1})));
    run(&db, create(json!([index("c", "x"), index("d", "y")])));
    run(&db, drop(json!("*")));
    assert!(names().is_empty());
    fails(&db, json!({"listIndexes": "x"}), Code::NamespaceNotFound);
}

#[test]
fn parameters_are_set_all_or_none() {
    let db = database();
    assert_eq!(run(&db, json!({"setParameter": 1, "ttlMonitorSleepSecs": 5}))["was"], 60);
    let two = json!({"setParameter": 1, "ttlMonitorSleepSecs": 6, "ttlMonitorEnabled": 5});
    fails(&db, two, Code::TypeMismatch);
    assert_eq!(run(&db, json!({"getParameter": 1, "ttlMonitorSleepSecs": 1}))["ttlMonitorSleepSecs"], 5);
    assert_eq!(run(&db, json!({"getParameter": "*"}))["ttlMonitorEnabled"], true);
    fails(&db, json!({"getParameter": 1, "ttlMonitorSleep": 1}), Code::InvalidOptions);
    fails(&db, json!({"getParameter": 1}), Code::InvalidOptions);
    fails(&db, json!({"setParameter": 1, "comment": "nothing"}), Code::InvalidOptions);
    fails(&db, json!({"setParameter": 1, "ttlMonitorSleepSecs": 0}), Code::BadValue);
}

#[test]
fn the_state_of_the_server_is_shown() {
    let db = weather();
    let status = run(&db, json!({"serverStatus": 1}));
    assert_eq!(status["metrics"]["document"]["inserted"], 3);
    assert_eq!(status["metrics"]["ttl"]["passes"], 0);
    assert_eq!(status["ttl"]["held"], false);
    assert_eq!(run(&db, json!({"currentOp": 1}))["inprog"], json!([]));
    assert_eq!(run(&db, json!({"confirmClock": 1}))["wasHeld"], false);
    let early = json!([{"t": {"$date": "1969-01-01T00:00:00Z"}}]);
    run(&db, json!({"insert": "w", "documents": early}));
    assert_eq!(run(&db, json!({"serverStatus": 1}))["ttl"]["suspendedCollections"], json!({"w": 1}));
    let stats = run(&db, json!({"collStats": "w"}));
    let wanted = json!({"bucketCount": 3, "expirySuspended": true, "outOfRangeMeasurements": 1});
    assert_eq!((&stats["count"], &stats["timeseries"]), (&json!(4), &wanted));
    run(&db, json!({"compact": "w"}));
    run(&db, json!({"drop": "w"}));
    fails(&db, json!({"collStats": "w"}), Code::NamespaceNotFound);
}

#[test]
fn a_number_where_an_object_is_wanted_is_a_mismatch_in_extended_json_too() {
    let db = weather();
    run(&db, json!({"create": "d"}));
    let index = |key: Json| json!({"createIndexes": "d", "indexes": [key]});
    for number in [
        json!(1),
        json!({"$numberInt": "1"}),
        json!({"$numberDouble": "1.0"}),
        json!({"$date": "2024-01-01T00:00:00Z"}),
    ] {
        for command in [
            json!({"create": "x", "timeseries": number}),
            json!({"collMod": "w", "timeseries": number}),
            index(json!({"key": number, "name": "k"})),
            index(json!({"key": {"a": 1}, "partialFilterExpression": number})),
            index(number.clone()),
        ] {
            let message = fails(&db, command, Code::TypeMismatch).to_string();
            assert!(message.contains("must be an object, not "), "{message}");
        }
    }
    fails(&db, index(json!({"key": {"$**": 1}, "name": "k"})), Code::CannotCreateIndex);
    fails(&db, json!({"create": "x", "timeseries": {"$frob": 1}}), Code::IDLUnknownField);
}
