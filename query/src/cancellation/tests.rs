use super::Stop;
use crate::session::Session;
use crate::statement;
use ebbtide::Database;
use ebbtide_ttl::Code;
use futures::TryStreamExt;

/// Counts pairs, none of which satisfies the condition: such a join returns nothing before its end.
const PAIRS: &str =
    "SELECT count(*) FROM generate_series(1, 20000) a, generate_series(1, 20000) b WHERE a.value + b.value < 0";

#[tokio::test]
async fn a_join_by_a_condition_stops_though_it_finds_no_rows() {
    let folder = tempfile::tempdir().unwrap();
    let session = Session::new(Database::open(folder.path()).unwrap()).unwrap();
    let statement = statement::parse(PAIRS).unwrap().remove(0);
    let stream = session.start(&statement, PAIRS).await.unwrap().stream.unwrap();
    session.stop_handle().stop();
    let error = stream.try_collect::<Vec<_>>().await.unwrap_err();
    let error = session.explain(&error, &statement, PAIRS);
    assert_eq!((error.code(), error.message()), (Code::Interrupted, "stopped"));
    session.stop_handle().reset();
    let again = "SELECT count(*) AS n FROM generate_series(1, 3) a, generate_series(1, 3) b WHERE a.value < b.value";
    assert_eq!(session.execute(again).await.unwrap().rows(), 1);
}

#[tokio::test]
async fn a_join_of_all_pairs_stops_at_the_next_rows() {
    let folder = tempfile::tempdir().unwrap();
    let session = Session::new(Database::open(folder.path()).unwrap()).unwrap();
    let text = "SELECT a.value, b.value FROM generate_series(1, 1000000) a CROSS JOIN generate_series(1, 1000000) b";
    let statement = statement::parse(text).unwrap().remove(0);
    let mut stream = session.start(&statement, text).await.unwrap().stream.unwrap();
    session.stop_handle().stop();
    let error = stream.try_next().await.unwrap_err();
    assert_eq!(session.explain(&error, &statement, text).code(), Code::Interrupted);
}

#[tokio::test]
async fn a_statement_with_a_handle_of_its_own_stops_alone() {
    let folder = tempfile::tempdir().unwrap();
    let session = Session::new(Database::open(folder.path()).unwrap()).unwrap();
    let statement = statement::parse(PAIRS).unwrap().remove(0);
    let stops = [Stop::default(), Stop::default()];
    let mut streams = Vec::new();
    for stop in &stops {
        let started = stop.clone().scope(session.start(&statement, PAIRS)).await.unwrap();
        streams.push(started.stream.unwrap());
    }
    stops[1].stop();
    assert!(streams.pop().unwrap().try_collect::<Vec<_>>().await.is_err());
    assert_eq!(streams.pop().unwrap().try_collect::<Vec<_>>().await.unwrap().len(), 1);
}

/// A session over a collection of documents with v = 1.
async fn documents(folder: &tempfile::TempDir) -> Session {
    let session = Session::new(Database::open(folder.path()).unwrap()).unwrap();
    session.execute("CREATE COLLECTION o").await.unwrap();
    session.execute("INSERT INTO o (_id, v) SELECT value, 1 FROM generate_series(1, 3000)").await.unwrap();
    session
}

/// The number and the sum of the documents.
async fn totals(session: &Session) -> String {
    let result = session.execute("SELECT count(*) AS n, sum(v) AS s FROM o").await.unwrap();
    crate::output::render(&result.schema, &result.batches, crate::output::TableStyle::default())
}

#[tokio::test]
async fn a_write_that_was_stopped_has_no_effect() {
    let folder = tempfile::tempdir().unwrap();
    let session = documents(&folder).await;
    session.execute("CREATE COLLECTION m WITH (timeField = 't')").await.unwrap();
    session.execute("INSERT INTO m (t) VALUES ('2024-01-01')").await.unwrap();
    let before = totals(&session).await;
    for text in [
        "UPDATE o SET v = v + 1",
        "DELETE FROM o WHERE v = 1",
        "INSERT INTO o (_id, v) VALUES (0, 1)",
        "INSERT INTO m (t) VALUES ('2024-01-02')",
        "DELETE FROM m",
        "CREATE COLLECTION n",
        "DROP COLLECTION m",
        "CREATE COLLECTION n AS SELECT v FROM o",
        "CREATE VIEW n AS SELECT v FROM o",
    ] {
        let stop = Stop::default();
        assert!(stop.stop());
        let error = stop.clone().scope(session.execute(text)).await.unwrap_err();
        assert_eq!(error.code(), Code::Interrupted, "{text}: {error}");
    }
    assert_eq!(totals(&session).await, before);
    assert_eq!(session.execute("SELECT * FROM m").await.unwrap().rows(), 1);
    assert!(!session.snapshot().has_collection("n"));
}

#[tokio::test]
async fn a_write_that_commits_is_stopped_too_late() {
    let folder = tempfile::tempdir().unwrap();
    let session = documents(&folder).await;
    let stop = Stop::default();
    stop.clone().scope(session.execute("UPDATE o SET v = v + 1")).await.unwrap();
    assert!(!stop.stop());
    stop.reset();
    assert!(stop.stop());
    // While it commits, its result is waited for.
    let (stop, database) = (Stop::default(), session.database().clone());
    let (committing, begun) = tokio::sync::oneshot::channel();
    let (go_on, told) = std::sync::mpsc::channel::<()>();
    let write = stop.of_statement().write(database, move |_, stop| {
        stop.begin_commit()?;
        committing.send(()).unwrap();
        told.recv().unwrap();
        Ok(7)
    });
    let ended = async {
        begun.await.unwrap();
        go_on.send(()).unwrap();
        "ended"
    };
    assert_eq!(stop.unless(ended, write).await.unwrap().unwrap(), 7);
}

#[tokio::test]
async fn a_write_that_nobody_waits_for_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let session = documents(&folder).await;
    let before = totals(&session).await;
    let (go_on, told) = std::sync::mpsc::channel::<()>();
    let (end, ended) = tokio::sync::oneshot::channel();
    let write = Stop::default().of_statement().write(session.database().clone(), move |db, stop| {
        told.recv().unwrap();
        let documents = db.documents("o")?.with_stop(stop);
        let stored =
            documents.store(vec![ebbtide::documents_model::bson::rawdoc! { "v": 1 }], ebbtide::OnConflict::Refuse);
        end.send(stored.map_err(|e| e.code())).unwrap();
        Ok(())
    });
    let mut write = Box::pin(write);
    assert!(futures::poll!(&mut write).is_pending());
    drop(write);
    go_on.send(()).unwrap();
    assert_eq!(ended.await.unwrap(), Err(Code::Interrupted));
    assert_eq!(totals(&session).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collection_of_rows_that_is_stopped_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let session = std::sync::Arc::new(Session::new(Database::open(folder.path()).unwrap()).unwrap());
    let endless = "FROM generate_series(1, 1000000000000)";
    for query in ["value", "to_timestamp_seconds(value / 1000) AS t, value"] {
        let text = format!("CREATE COLLECTION c AS SELECT {query} {endless}");
        let (stop, running) = (Stop::default(), std::sync::Arc::clone(&session));
        let task = tokio::spawn(stop.clone().scope(async move { running.execute(&text).await.map(drop) }));
        while !session.snapshot().has_collection("c") {
            tokio::task::yield_now().await;
        }
        assert!(!stop.stop());
        assert_eq!(task.await.unwrap().unwrap_err().code(), Code::Interrupted);
        assert!(!session.snapshot().has_collection("c"));
    }
}
