use super::*;
use crate::Session;
use crate::catalog;
use ebbtide::Database;
use std::sync::atomic::{AtomicBool, Ordering};

fn before_1970() -> Timestamp {
    Timestamp::EPOCH.plus_seconds(-1)
}

fn at_1970() -> Timestamp {
    Timestamp::EPOCH
}

#[tokio::test(flavor = "multi_thread")]
async fn before_1970_statements_that_are_no_queries_run_and_queries_say_why_they_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path().join("db")).unwrap();
    let mut session = Session::new(database).unwrap();
    session.replace_context(|state| LateContext::by_clock(state, |_| Ok(()), before_1970).unwrap());
    session.execute("CREATE COLLECTION w WITH (timeField = 't')").await.unwrap();
    for statement in ["CONFIRM CLOCK", "SWEEP", "FLUSH", "COMPACT", "ALTER COLLECTION w EXPIRE AFTER 1 DAY"] {
        session.execute(statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    for query in [
        "SELECT 1",
        "SELECT * FROM w",
        "INSERT INTO w (t) VALUES (now())",
        "SHOW TTL",
        "SET datafusion.execution.batch_size = 5",
    ] {
        let error = session.execute(query).await.unwrap_err();
        assert_eq!(error.code(), Code::IllegalOperation, "{query}: {error}");
        assert!(error.message().contains("before 1970"), "{query}: {error}");
    }
    session.replace_context(|state| LateContext::by_clock(state, |_| Ok(()), at_1970).unwrap());
    assert_eq!(session.execute("SELECT count(*) FROM w").await.unwrap().rows(), 1);
}

#[tokio::test]
async fn a_session_that_began_before_1970_runs_queries_once_the_clock_is_right() {
    static IS_RIGHT: AtomicBool = AtomicBool::new(false);
    let now = || if IS_RIGHT.load(Ordering::Relaxed) { at_1970() } else { before_1970() };
    let state = SessionStateBuilder::new().with_default_features().build();
    let functions = state.scalar_functions().len();
    let complete = |context: &SessionContext| Ok(crate::functions::register(context)?);
    let context = LateContext::by_clock(state, complete, now).unwrap();
    assert!(context.get().is_err());
    assert_eq!(context.state().scalar_functions().len(), functions);
    IS_RIGHT.store(true, Ordering::Relaxed);
    assert!(context.state().scalar_functions().len() > functions);
    IS_RIGHT.store(false, Ordering::Relaxed);
    // It stays as it is, and what runs is refused again.
    assert!(context.get().unwrap().state().scalar_functions().len() > functions);
    assert!(context.check_clock().is_err());
}

#[tokio::test]
async fn a_session_that_could_not_be_completed_is_completed_by_a_later_statement() {
    static FAILS: AtomicBool = AtomicBool::new(true);
    static IS_RIGHT: AtomicBool = AtomicBool::new(false);
    let now = || if IS_RIGHT.load(Ordering::Relaxed) { at_1970() } else { before_1970() };
    let complete = |context: &SessionContext| match FAILS.load(Ordering::Relaxed) {
        true => Err(QueryError::new(Code::HostUnreachable, "no answer")),
        false => Ok(crate::functions::register(context)?),
    };
    let state = SessionStateBuilder::new().with_default_features().build();
    let functions = state.scalar_functions().len();
    let context = LateContext::by_clock(state, complete, now).unwrap();
    IS_RIGHT.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        assert_eq!(context.get().map(drop).unwrap_err().code(), Code::HostUnreachable);
        assert_eq!(context.state().scalar_functions().len(), functions);
    }
    FAILS.store(false, Ordering::Relaxed);
    assert!(context.get().unwrap().state().scalar_functions().len() > functions);
}

#[test]
fn the_instant_of_a_statement_is_that_of_its_snapshot_also_before_1970() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path().join("db")).unwrap();
    let session = Session::new(database.clone()).unwrap();
    let snapshot = database.snapshot_at(Timestamp::EPOCH.plus_seconds(-5));
    let source = std::sync::Arc::new(LateContext::new(SessionStateBuilder::new().build(), |_| Ok(())).unwrap());
    let context = crate::context::StatementContext::new(database, snapshot, source, ebbtide::FileAccess::none());
    let mut state = session.state(&session.begin());
    catalog::start(&mut state, &context);
    assert_eq!(state.execution_props().query_execution_start_time.unwrap().timestamp(), -5);
}
