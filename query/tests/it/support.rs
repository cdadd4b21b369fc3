//! A database in a temporary folder on a virtual clock, and a session on it.

use ebbtide::Database;
use ebbtide_query::{QueryError, Session, SessionSettings};
use ebbtide_ttl::{Clock, Timestamp, VirtualClock};
use serde_json::Value;
use std::sync::Arc;

pub(crate) struct World {
    runtime: tokio::runtime::Runtime,
    pub(crate) clock: VirtualClock,
    pub(crate) database: Database,
    session: Session,
    folder: tempfile::TempDir,
}

pub(crate) fn time(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

impl World {
    /// An empty database at this instant.
    pub(crate) fn at(now: &str) -> World {
        let folder = tempfile::tempdir().unwrap();
        let clock = VirtualClock::new(time(now));
        let database = Database::builder(folder.path().join("db"))
            .clock(Arc::new(clock.clone()) as Arc<dyn Clock>)
            .open()
            .unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let session = Session::new(database.clone()).unwrap();
        World { runtime, clock, database, session, folder }
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    pub(crate) fn set(&self, now: &str) {
        self.clock.set(time(now));
    }

    pub(crate) fn rows(&self, sql: &str) -> Vec<Value> {
        self.try_rows(sql).unwrap_or_else(|e| panic!("{sql}\n{e}"))
    }

    pub(crate) fn try_rows(&self, sql: &str) -> Result<Vec<Value>, QueryError> {
        self.runtime.block_on(self.session.rows_as_json(sql))
    }

    /// The rows as one line of JSON, for comparisons.
    pub(crate) fn text(&self, sql: &str) -> String {
        Value::Array(self.rows(sql)).to_string()
    }

    pub(crate) fn error(&self, sql: &str) -> QueryError {
        match self.try_rows(sql) {
            Ok(rows) => panic!("{sql}\nis expected to fail, gives {rows:?}"),
            Err(error) => error,
        }
    }

    /// The one number that a query returns.
    pub(crate) fn number(&self, sql: &str) -> i64 {
        let rows = self.rows(sql);
        let row = rows.first().and_then(Value::as_object).unwrap_or_else(|| panic!("{sql}: {rows:?}"));
        row.values().next().and_then(Value::as_i64).unwrap_or_else(|| panic!("{sql}: {rows:?}"))
    }

    /// Segment files in the folders of collections.
    pub(crate) fn segment_files(&self) -> usize {
        let folders = std::fs::read_dir(self.folder.path().join("db")).unwrap().map(|entry| entry.unwrap().path());
        let entries = folders.filter(|path| path.is_dir()).flat_map(|folder| std::fs::read_dir(folder).unwrap());
        entries.filter(|e| e.as_ref().unwrap().path().extension().is_some_and(|x| x == "parquet")).count()
    }

    /// The rows of a statement run as of another instant.
    pub(crate) fn text_at(&self, now: &str, sql: &str) -> String {
        let settings = SessionSettings { now: Some(time(now)), ..SessionSettings::default() };
        let session = Session::with_settings(self.database.clone(), &settings).unwrap();
        Value::Array(self.runtime.block_on(session.rows_as_json(sql)).unwrap()).to_string()
    }
}

/// A day of two sensors with a measurement every ten minutes; 'a' lives an hour, the others a day. It is
/// 2024-01-02T00:00Z.
pub(crate) fn two_sensors() -> World {
    let world = World::at("2024-01-01T00:00:00Z");
    world.rows("CREATE COLLECTION w WITH (timeField = 't', metaField = 's') EXPIRE AFTER 1 DAY");
    world.rows("CREATE TTL INDEX short ON w (t) EXPIRE AFTER 1 HOUR WHERE s = 'a'");
    world.rows(
        "INSERT INTO w (t, s, v) SELECT value, s, CAST(date_part('hour', value) AS DOUBLE)
         FROM generate_series(TIMESTAMP '2024-01-01T00:00:00', TIMESTAMP '2024-01-01T23:50:00', INTERVAL '10 minutes')
         CROSS JOIN (VALUES ('a'), ('b')) AS sensors (s)",
    );
    world.set("2024-01-02T00:00:00Z");
    world
}

/// The rows with and without the operators of this crate, and the plan with them.
pub(crate) fn both(world: &World, sql: &str) -> (Vec<Value>, Vec<Value>, String) {
    world.rows("SET ebbtide.fast_paths = true");
    let plan = world.text(&format!("EXPLAIN ANALYZE {sql}"));
    let fast = world.rows(sql);
    world.rows("SET ebbtide.fast_paths = false");
    (fast, world.rows(sql), plan)
}

/// A counter in the text of EXPLAIN ANALYZE.
pub(crate) fn counted(plan: &str, counter: &str) -> Vec<String> {
    let name = format!("{counter}=");
    plan.match_indices(&name)
        .map(|(at, _)| plan[at + name.len()..].split([',', ']']).next().unwrap().to_owned())
        .collect()
}
