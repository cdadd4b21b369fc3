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
