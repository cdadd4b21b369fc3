//! Every command with every role.

use super::*;
use crate::accounts::{AccountsFile, Role};
use crate::databases::Databases;
use crate::frame;
use crate::gate::Gate;
use crate::settings::Settings;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

mod logs;
mod nested;
mod operations;
mod refusals;

/// What each role may do beyond the one before it. A command that is in no list fails the test.
const ANYONE: &[&str] =
    &["connectionStatus", "hello", "isMaster", "logout", "ping", "saslContinue", "saslStart", "whatsmyuri"];
const READ: &[&str] = &[
    "aggregate",
    "buildInfo",
    "collStats",
    "count",
    "currentOp",
    "dbStats",
    "distinct",
    "endSessions",
    "explain",
    "find",
    "getLog",
    "getMore",
    "getParameter",
    "hostInfo",
    "killCursors",
    "killOp",
    "killSessions",
    "listCollections",
    "listCommands",
    "listDatabases",
    "listIndexes",
    "refreshSessions",
    "serverStatus",
    "top",
    "validate",
];
const WRITE: &[&str] = &["delete", "findAndModify", "insert", "update"];
const ADMIN: &[&str] = &[
    "collMod",
    "compact",
    "create",
    "createIndexes",
    "drop",
    "dropDatabase",
    "dropIndexes",
    "getCmdLineOpts",
    "profile",
    "renameCollection",
    "setParameter",
];

fn shared(folder: &std::path::Path) -> Shared {
    shared_of(folder, Databases::in_folder(folder).unwrap())
}

fn shared_of(folder: &std::path::Path, databases: Databases) -> Shared {
    let file = AccountsFile::new(folder.join(AccountsFile::NAME));
    file.change(|accounts| {
        accounts.add("read", Role::Read, "p")?;
        accounts.add("write", Role::Write, "p")?;
        accounts.add("admin", Role::Admin, "p")
    })
    .unwrap();
    let gate = Gate::new(Some(file), Duration::ZERO).unwrap();
    Shared::new(databases, Settings::default(), gate, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
}

fn client(shared: &Shared, name: Option<&str>) -> Client {
    let client = Client::new(1, SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
    client.login.lock().user = name.map(|name| shared.gate.verifier(name).unwrap().0.unwrap());
    client
}

/// The code of the reply; 0 if there is no error.
fn code(shared: &Shared, client: &Client, command: &RawDocument) -> i32 {
    answer(shared, client, command).get_i32("code").unwrap_or(0)
}

fn answer(shared: &Shared, client: &Client, command: &RawDocument) -> RawDocumentBuf {
    let bytes = [&[0; 5][..], command.as_bytes()].concat();
    let header = [16 + bytes.len() as i32, 1, 0, 2013].into_iter().flat_map(i32::to_le_bytes);
    let message: Vec<u8> = header.chain(bytes).collect();
    let message = frame::Message::parse(&message).unwrap();
    run(shared, client, &message).unwrap()
}

#[test]
fn each_command_needs_its_role() {
    let folder = tempfile::tempdir().unwrap();
    let shared = shared(folder.path());
    let groups = [ANYONE, READ, WRITE, ADMIN];
    let listed: BTreeSet<&str> = groups.into_iter().flatten().copied().collect();
    let known: BTreeSet<&str> = HANDLERS.iter().map(|handler| handler.name).collect();
    assert_eq!(known, listed, "each command of the table is in one of the lists above");
    for (rank, name) in [None, Some("read"), Some("write"), Some("admin")].into_iter().enumerate() {
        let client = client(&shared, name);
        for (needed, group) in groups.into_iter().enumerate() {
            for command in group.iter().filter(|command| **command != "logout") {
                // On other databases these two are refused with the same code.
                let database = if matches!(*command, "killOp" | "renameCollection") { "admin" } else { "d" };
                let mut document = RawDocumentBuf::new();
                reply::append(&mut document, command, "c");
                reply::append(&mut document, "$db", database);
                let is_refused = code(&shared, &client, &document) == 13;
                assert_eq!(is_refused, needed > rank, "{command} of {name:?}");
            }
        }
    }
}

#[test]
fn pipelines_that_write_need_the_role_to_write() {
    let folder = tempfile::tempdir().unwrap();
    let shared = shared(folder.path());
    for stage in ["$out", "$merge"] {
        let mut last = RawDocumentBuf::new();
        reply::append(&mut last, stage, "x");
        let command = rawdoc! { "aggregate": "c", "$db": "d", "pipeline": [{ "$match": {} }, last], "cursor": {} };
        assert_eq!(code(&shared, &client(&shared, Some("read")), &command), 13, "{stage}");
        assert_ne!(code(&shared, &client(&shared, Some("write")), &command), 13, "{stage}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_waits_too_long_for_memory_stores_nothing() {
    let folder = tempfile::tempdir().unwrap();
    // A memory that is full after one document.
    let settings = ebbtide::Settings { memtable_bytes_max: 4096, ..ebbtide::Settings::default() };
    let small = ebbtide::Database::builder(folder.path().join("small")).settings(settings).open().unwrap();
    let databases = Databases::of("small", small.clone()).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let gate = Gate::new(None, Duration::ZERO).unwrap();
    let shared = Shared::new(databases, Settings::default(), gate, address);
    let client = client(&shared, None);
    let ask = |command: &RawDocument| tokio::task::block_in_place(|| answer(&shared, &client, command));
    let stored = || small.documents("c").unwrap().snapshot().unwrap().count().unwrap();
    let large = "x".repeat(8192);
    let first = rawdoc! { "insert": "c", "$db": "small", "documents": [{ "_id": 0, "text": large }] };
    assert_eq!(ask(&first).get_f64("ok").unwrap(), 1.0);
    assert!(small.is_full());
    // Somebody else makes room, and takes long.
    let busy = shared.room.clone().lock_owned().await;
    for command in [
        rawdoc! { "insert": "c", "$db": "small", "documents": [{ "_id": 1 }], "maxTimeMS": 1 },
        rawdoc! { "update": "c", "$db": "small", "updates": [{ "q": {}, "u": { "$set": { "x": 1 } } }], "maxTimeMS": 1 },
        rawdoc! { "delete": "c", "$db": "small", "deletes": [{ "q": {}, "limit": 0 }], "maxTimeMS": 1 },
        rawdoc! { "findAndModify": "c", "$db": "small", "query": {}, "remove": true, "maxTimeMS": 1 },
    ] {
        let reply = ask(&command);
        assert_eq!((reply.get_i32("code").unwrap(), reply.get_i32("n").unwrap()), (50, 0), "{reply:?}");
        assert_eq!(stored(), 1);
    }
    // The database that is written to is waited for, and nothing is claimed of what a pipeline has stored.
    let elsewhere = |stage| rawdoc! { "aggregate": "c", "$db": "admin", "pipeline": [{ "$collStats": {} }, stage], "cursor": {}, "maxTimeMS": 1 };
    for stage in [
        rawdoc! { "$out": { "db": "small", "coll": "x" } },
        rawdoc! { "$merge": { "into": { "db": "small", "coll": "c" } } },
    ] {
        let reply = ask(&elsewhere(stage));
        assert_eq!((reply.get_i32("code").unwrap(), reply.get("n").unwrap()), (50, None), "{reply:?}");
        assert_eq!((stored(), small.document_collections()), (1, vec!["c".to_owned()]));
    }
    drop(busy);
    let insert = rawdoc! { "insert": "c", "$db": "small", "documents": [{ "_id": 1 }] };
    assert_eq!(ask(&insert).get_f64("ok").unwrap(), 1.0);
    assert_eq!(stored(), 2);
}

#[test]
fn rows_above_the_rate_of_an_account_are_refused_whole() {
    let folder = tempfile::tempdir().unwrap();
    let mut shared = shared(folder.path());
    shared.rates = crate::limits::Rates::new(Some(1));
    let writer = client(&shared, Some("write"));
    let documents = rawdoc! { "insert": "c", "$db": "d", "documents": [{}, {}, {}] };
    assert_eq!(code(&shared, &writer, &documents), 0);
    assert_eq!(code(&shared, &writer, &documents), 462);
    assert_eq!(code(&shared, &writer, &rawdoc! { "delete": "c", "$db": "d", "deletes": [] }), 462);
    assert_eq!(code(&shared, &writer, &rawdoc! { "find": "c", "$db": "d" }), 0);
    let count = answer(&shared, &writer, &rawdoc! { "count": "c", "$db": "d" });
    assert_eq!(count.get_i32("n").unwrap(), 3);
}

#[test]
fn a_logout_ends_what_a_client_may_do() {
    let folder = tempfile::tempdir().unwrap();
    let shared = shared(folder.path());
    let client = client(&shared, Some("admin"));
    let find = rawdoc! { "find": "c", "$db": "d" };
    assert_eq!(code(&shared, &client, &find), 0);
    assert_eq!(code(&shared, &client, &rawdoc! { "logout": 1, "$db": "admin" }), 0);
    assert_eq!(code(&shared, &client, &find), 13);
}

#[test]
fn pipelines_write_their_results_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let shared = shared(folder.path());
    let writer = client(&shared, Some("write"));
    let documents: bson::RawArrayBuf = (0..50).map(|n| rawdoc! { "_id": n }).collect();
    assert_eq!(code(&shared, &writer, &rawdoc! { "insert": "c", "$db": "d", "documents": documents }), 0);
    let run = |target: &str| {
        for _ in 0..5 {
            let command = rawdoc! { "aggregate": "c", "$db": "d", "pipeline": [{ "$out": target }], "cursor": {} };
            assert_eq!(code(&shared, &writer, &command), 0);
        }
    };
    std::thread::scope(|scope| {
        for target in ["x", "x", "y", "z"] {
            scope.spawn(move || run(target));
        }
    });
    let database = shared.databases.get("d").unwrap().unwrap();
    assert_eq!(database.document_collections(), ["c", "x", "y", "z"]);
    for target in ["x", "y", "z"] {
        assert_eq!(database.documents(target).unwrap().snapshot().unwrap().count().unwrap(), 50);
    }
}

#[test]
fn what_a_crash_leaves_of_an_out_is_removed_when_the_database_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let [left, alike] = ["tmp.agg_out.00112233445566778899aabbccddeeff", "tmp.agg_out.mine"];
    let database = ebbtide::Database::open(folder.path().join("d")).unwrap();
    [left, alike].iter().for_each(|name| drop(database.create_documents(name, Default::default()).unwrap()));
    database.close().unwrap();
    let shared = shared(folder.path());
    assert_eq!(shared.databases.get("d").unwrap().unwrap().document_collections(), [alike]);
    // Clients make none of these names.
    let admin = client(&shared, Some("admin"));
    for command in [
        rawdoc! { "create": left, "$db": "d" },
        rawdoc! { "insert": left, "$db": "d", "documents": [{}] },
        rawdoc! { "renameCollection": format!("d.{alike}"), "to": format!("d.{left}"), "$db": "admin" },
        rawdoc! { "aggregate": alike, "$db": "d", "pipeline": [{ "$out": left }], "cursor": {} },
    ] {
        assert_eq!(code(&shared, &admin, &command), 73, "{command:?}");
    }
}

#[test]
fn a_cursor_is_its_accounts_alone() {
    let folder = tempfile::tempdir().unwrap();
    let shared = shared(folder.path());
    let (reader, admin) = (client(&shared, Some("read")), client(&shared, Some("admin")));
    let documents = rawdoc! { "insert": "c", "$db": "d", "documents": [{}, {}, {}, {}] };
    assert_eq!(code(&shared, &admin, &documents), 0);
    let find = |client| {
        let found = answer(&shared, client, &rawdoc! { "find": "c", "$db": "d", "batchSize": 1 });
        found.get_document("cursor").unwrap().get_i64("id").unwrap()
    };
    let (of_reader, of_admin) = (find(&reader), find(&admin));
    let more = |id: i64| rawdoc! { "getMore": id, "collection": "c", "$db": "d", "batchSize": 1 };
    let kill = |ids: &[i64]| {
        let ids: bson::RawArrayBuf = ids.iter().copied().collect();
        rawdoc! { "killCursors": "c", "$db": "d", "cursors": ids }
    };
    assert_eq!(code(&shared, &admin, &more(of_reader)), 13);
    assert_eq!(code(&shared, &reader, &more(of_admin)), 13);
    assert_eq!(code(&shared, &reader, &kill(&[of_reader, of_admin])), 13);
    // Nothing was closed, and another connection of the account may go on.
    let again = client(&shared, Some("read"));
    assert_eq!(code(&shared, &again, &more(of_reader)), 0);
    assert_eq!(code(&shared, &admin, &kill(&[of_admin])), 0);
    assert_eq!(code(&shared, &admin, &more(of_admin)), 43);
    assert_eq!(code(&shared, &again, &kill(&[of_reader, 5])), 0);
    assert_eq!(code(&shared, &reader, &more(of_reader)), 43);
}

#[test]
fn a_database_with_a_hold_has_figures_and_is_dropped_as_a_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let database = ebbtide::Database::open(folder.path().join("held")).unwrap();
    let shared = shared_of(folder.path(), Databases::of("held", database.clone()).unwrap());
    let admin = client(&shared, Some("admin"));
    for command in [
        rawdoc! { "insert": "a", "$db": "held", "documents": [{ "_id": 1 }] },
        rawdoc! { "create": "w", "$db": "held", "timeseries": { "timeField": "t" } },
        rawdoc! { "insert": "w", "$db": "held", "documents": [{ "t": bson::DateTime::from_millis(0), "v": 1 }] },
    ] {
        assert_eq!(code(&shared, &admin, &command), 0, "{command:?}");
    }
    database.create_hold("case", "w", ebbtide::HoldOptions::new("a test")).unwrap();
    let (stats, dropped) = (rawdoc! { "dbStats": 1, "$db": "held" }, rawdoc! { "dropDatabase": 1, "$db": "held" });
    assert_eq!(answer(&shared, &admin, &stats).get_i32("objects").unwrap(), 2);
    assert_eq!(code(&shared, &admin, &dropped), 20);
    assert_eq!(database.snapshot().all_collections().len(), 2);
    database.lift_hold("case").unwrap();
    assert_eq!(code(&shared, &admin, &dropped), 0);
    assert!(database.snapshot().all_collections().is_empty());
}
