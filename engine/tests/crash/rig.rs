//! Opens a disk after a crash, and compares what is found with what may be.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use ebbtide::fs::sim::{SimFs, Variant};
use ebbtide::{CollectionOptions, Database, Error, Settings};
use ebbtide_ttl::{Timestamp, VirtualClock};

use crate::expect::{Expected, Found, FoundCollection};
use crate::runner::{Runner, add_more, find, open_at};
use crate::script::Scenario;

pub(crate) const ROOT: &str = "/data/db";

pub(crate) fn open(fs: &SimFs, clock: &VirtualClock, settings: &Settings) -> Result<Database, Error> {
    open_at(fs, Path::new(ROOT), clock, settings)
}

/// A scenario's runner on a simulated disk.
pub(crate) fn runner_of(fs: SimFs, scenario: &Scenario) -> Runner {
    Runner::new(fs, Path::new(ROOT), scenario.settings.clone())
}

/// Opens a disk after a crash and compares.
pub(crate) fn recover(fs: &SimFs, expected: &Expected, settings: &Settings) -> Result<(Database, Found), String> {
    recover_at(fs, &VirtualClock::new(Timestamp::from_millis(expected.now)), expected, settings)
}

/// As [`recover`], to go on with under a clock that is there already.
pub(crate) fn recover_at(
    fs: &SimFs,
    clock: &VirtualClock,
    expected: &Expected,
    settings: &Settings,
) -> Result<(Database, Found), String> {
    let db = open(fs, clock, settings).map_err(|error| format!("does not open: {:?}: {error}", error.kind()))?;
    let found = find(&db, expected).map_err(|error| format!("cannot be read: {:?}: {error}", error.kind()))?;
    expected.check(&found)?;
    Ok((db, found))
}

/// Works on with a recovered database: what it held stays, what is added stays too.
pub(crate) fn work_on(
    fs: &SimFs,
    db: Database,
    found: &Found,
    expected: &Expected,
    settings: &Settings,
) -> Result<(), String> {
    let said = |error: Error| format!("cannot work on: {:?}: {error}", error.kind());
    let mut wanted = found.clone();
    if !wanted.collections.contains_key("c") {
        db.create_collection("c", CollectionOptions::new("t").meta_field("m").span_seconds(3600)).map_err(said)?;
        wanted.collections.insert("c".to_owned(), FoundCollection::default());
    }
    add_more(&db, &mut wanted, expected.now)?;
    db.flush().map_err(said)?;
    db.compact(None).map_err(said)?;
    db.close().map_err(said)?;
    let handles = fs.open_handles();
    if !handles.is_empty() {
        return Err(format!("files are open after the close: {handles:?}"));
    }
    let clock = VirtualClock::new(Timestamp::from_millis(expected.now));
    let db = open(&fs.crash(Variant::V0, 0), &clock, settings).map_err(said)?;
    let again = find(&db, expected).map_err(said)?;
    if again == wanted { Ok(()) } else { Err(format!("after working on: expected={wanted:?} found={again:?}")) }
}

/// Turns a panic into a failure.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(payload) => {
            let text = payload.downcast_ref::<String>().cloned();
            let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(format!("panic: {}", text.unwrap_or_default()))
        }
    }
}
