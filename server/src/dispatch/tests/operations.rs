//! What runs, its end, and what is recorded of it.

use super::*;

/// The commands of a kind that a client sees.
fn running(shared: &Shared, client: &Client, kind: &str) -> Vec<i32> {
    let seen = answer(shared, client, &rawdoc! { "currentOp": 1, "$all": true, "$db": "admin" });
    let operations =
        seen.get_array("inprog").unwrap().into_iter().map(|one| one.unwrap().as_document().unwrap().to_owned());
    let of_kind = operations.filter(|operation| operation.get_str("op").unwrap() == kind);
    of_kind.map(|operation| operation.get_i32("opid").unwrap()).collect()
}

fn kill(number: i32) -> RawDocumentBuf {
    rawdoc! { "killOp": 1, "op": number, "$db": "admin" }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_ends_when_it_is_killed_by_who_may() {
    let folder = tempfile::tempdir().unwrap();
    let settings = ebbtide::Settings { memtable_bytes_max: 4096, ..ebbtide::Settings::default() };
    let small = ebbtide::Database::builder(folder.path().join("small")).settings(settings).open().unwrap();
    let shared = std::sync::Arc::new(shared_of(folder.path(), Databases::of("small", small).unwrap()));
    let ask = |client: &Client, command: &RawDocument| tokio::task::block_in_place(|| answer(&shared, client, command));
    let admin = client(&shared, Some("admin"));
    let large = rawdoc! { "insert": "c", "$db": "small", "documents": [{ "_id": 0, "text": "x".repeat(8192) }] };
    assert_eq!(ask(&admin, &large).get_f64("ok").unwrap(), 1.0);
    // Somebody else makes room, so that the next write waits.
    let busy = shared.room.clone().lock_owned().await;
    let (other, insert) = (shared.clone(), rawdoc! { "insert": "c", "$db": "small", "documents": [{ "_id": 1 }] });
    let again = insert.clone();
    let writing = tokio::task::spawn_blocking(move || {
        let writer = other.clients.enter(client(&other, Some("write")));
        let refused = answer(&other, &writer, &insert);
        (refused, answer(&other, &writer, &rawdoc! { "count": "c", "$db": "small" }))
    });
    let (reader, writer) = (client(&shared, Some("read")), client(&shared, Some("write")));
    let number = loop {
        if let Some(number) = tokio::task::block_in_place(|| running(&shared, &admin, "insert")).first() {
            break *number;
        }
        tokio::task::yield_now().await;
    };
    let seen = |client| tokio::task::block_in_place(|| running(&shared, client, "insert"));
    assert_eq!((seen(&reader), seen(&writer)), (Vec::new(), vec![number]), "an account sees its own");
    assert_eq!(ask(&reader, &kill(number)).get_i32("code").unwrap(), 13);
    assert_eq!(ask(&writer, &kill(-1)).get_f64("ok").unwrap(), 1.0, "one that has ended");
    assert_eq!(seen(&writer), [number]);
    assert_eq!(ask(&writer, &kill(number)).get_f64("ok").unwrap(), 1.0);
    // The connection goes on.
    let (refused, count) = writing.await.unwrap();
    assert_eq!((refused.get_i32("code").unwrap(), refused.get_str("codeName").unwrap()), (11601, "Interrupted"));
    assert_eq!(count.get_i32("n").unwrap(), 1);
    drop(busy);
    assert_eq!(ask(&writer, &again).get_i32("n").unwrap(), 1);
}

#[test]
fn a_command_ends_with_its_time_within_one_expression() {
    let folder = tempfile::tempdir().unwrap();
    let shared = shared(folder.path());
    let writer = client(&shared, Some("write"));
    let one = rawdoc! { "insert": "c", "documents": [{ "_id": 1, "n": 100_000 }], "$db": "d" };
    assert_eq!(answer(&shared, &writer, &one).get_i32("n").unwrap(), 1);
    let range = |end: &str| rawdoc! { "$range": [0, end] };
    let sum = |of: RawDocumentBuf, name: &str, list: RawDocumentBuf| rawdoc! { "$sum": { "$map": { "input": list, "as": name, "in": of } } };
    let long = || sum(sum(rawdoc! { "$add": ["$$x", "$$y"] }, "y", range("$n")), "x", range("$n"));
    for stage in [rawdoc! { "$project": { "r": long() } }, rawdoc! { "$match": { "$expr": long() } }] {
        let command = rawdoc! { "aggregate": "c", "pipeline": [stage], "cursor": {}, "maxTimeMS": 100, "$db": "d" };
        assert_eq!(code(&shared, &writer, &command), 50, "{command:?}");
    }
}

#[test]
fn only_what_the_level_asks_for_is_recorded_and_no_proof_of_a_password() {
    let folder = tempfile::tempdir().unwrap();
    let shared = shared(folder.path());
    let admin = client(&shared, Some("admin"));
    let ask = |command: &RawDocument| {
        let reply = answer(&shared, &admin, command);
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{command:?}: {reply:?}");
        reply
    };
    let records = || shared.profiler.records("d");
    let level = |level: i32, slow: i32| ask(&rawdoc! { "profile": level, "slowms": slow, "$db": "d" });
    ask(&rawdoc! { "insert": "c", "documents": [{ "_id": 1 }], "$db": "d" });
    assert!(records().is_empty());
    let was = level(2, 50);
    assert_eq!((was.get_i32("was").unwrap(), was.get_i32("slowms").unwrap()), (0, 100));
    ask(&rawdoc! { "find": "c", "filter": { "_id": 1 }, "$db": "d" });
    ask(&rawdoc! { "find": "c", "$db": "other" });
    for name in ["saslStart", "hello"] {
        let mut login = RawDocumentBuf::new();
        reply::append(&mut login, name, 1);
        let payload =
            bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: b"n,,n=admin,r=Secret".to_vec() };
        let members = rawdoc! { "mechanism": "SCRAM-SHA-256", "payload": payload };
        match name {
            "saslStart" => members.iter().for_each(|member| {
                let (name, value) = member.unwrap();
                login.append(name, value);
            }),
            _ => reply::append(&mut login, "speculativeAuthenticate", members),
        }
        reply::append(&mut login, "$db", "d");
        answer(&shared, &admin, &login);
    }
    let text = |needle: &str| records().iter().any(|r| String::from_utf8_lossy(r.as_bytes()).contains(needle));
    assert!(!text("Secret") && text("IDHACK") && !text("speculative"), "{:?}", records());
    let names: Vec<_> = records().iter().map(|r| r.get_str("op").unwrap().to_owned()).collect();
    assert_eq!(names, ["query", "command", "command"]);
    assert_eq!(records()[0].get_i32("nreturned").unwrap(), 1);
    // Slow ones alone, of which there are none.
    level(1, 1_000_000);
    ask(&rawdoc! { "find": "c", "$db": "d" });
    assert_eq!(records().len(), 3);
    assert_eq!(level(-1, 1_000_000).get_i32("was").unwrap(), 1);
    assert_eq!(code(&shared, &admin, &rawdoc! { "drop": "system.profile", "$db": "d" }), 20);
    assert_eq!(code(&shared, &admin, &rawdoc! { "insert": "system.profile", "documents": [{}], "$db": "d" }), 73);
    level(0, 100);
    ask(&rawdoc! { "drop": "system.profile", "$db": "d" });
    assert!(records().is_empty());
    // To look is free, to set is not.
    let reader = client(&shared, Some("read"));
    assert_eq!(code(&shared, &reader, &rawdoc! { "profile": -1, "$db": "d" }), 0);
    assert_eq!(code(&shared, &reader, &rawdoc! { "profile": -1, "slowms": 5, "$db": "d" }), 13);
    assert_eq!(code(&shared, &reader, &rawdoc! { "profile": 0, "$db": "d" }), 13);
}

#[test]
fn records_take_bounded_memory_and_the_newest_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let shared = shared(folder.path());
    let admin = client(&shared, Some("admin"));
    answer(&shared, &admin, &rawdoc! { "profile": 2, "$db": "d" });
    for n in 0..5000 {
        answer(&shared, &admin, &rawdoc! { "count": "c", "query": { "n": n, "x": "x".repeat(300) }, "$db": "d" });
    }
    let records = shared.profiler.records("d");
    let bytes: usize = records.iter().map(|record| record.as_bytes().len()).sum();
    assert!((900_000..=1 << 20).contains(&bytes), "{bytes}");
    let newest = records.last().unwrap().get_document("command").unwrap().get_document("query").unwrap();
    assert_eq!(newest.get_i32("n").unwrap(), 4999);
}

#[test]
fn top_counts_commands_by_collection() {
    let folder = tempfile::tempdir().unwrap();
    let shared = shared(folder.path());
    let (admin, stranger) = (client(&shared, Some("admin")), client(&shared, None));
    for command in [
        rawdoc! { "insert": "c", "documents": [{}, {}], "$db": "d" },
        rawdoc! { "find": "c", "$db": "d" },
        rawdoc! { "find": "c", "$db": "d" },
        rawdoc! { "update": "c", "updates": [{ "q": {}, "u": { "$set": { "a": 1 } } }], "$db": "d" },
        rawdoc! { "delete": "c", "deletes": [{ "q": {}, "limit": 0 }], "$db": "d" },
        rawdoc! { "count": "c", "$db": "d" },
        rawdoc! { "ping": "c", "$db": "d" },
    ] {
        assert_eq!(code(&shared, &admin, &command), 0);
    }
    assert_eq!(code(&shared, &stranger, &rawdoc! { "find": "x", "$db": "d" }), 13);
    let top = answer(&shared, &admin, &rawdoc! { "top": 1, "$db": "admin" });
    let totals = top.get_document("totals").unwrap();
    assert!(totals.get("d.x").unwrap().is_none(), "a stranger is not counted");
    let of = |column: &str| {
        let total = totals.get_document("d.c").unwrap().get_document(column).unwrap();
        assert_eq!(total.get_i32("time").unwrap() > 0, total.get_i32("count").unwrap() > 0, "{column}");
        total.get_i32("count").unwrap()
    };
    let columns = ["total", "readLock", "writeLock", "queries", "getmore", "insert", "update", "remove", "commands"];
    assert_eq!(columns.map(of), [6, 3, 3, 2, 0, 1, 1, 1, 1]);
}
