//! A machine, and what it reads.

use ebbtide::fs::sim::SimFs;
use ebbtide::ttl::{Clock, Timestamp, Value, VirtualClock};
use ebbtide::{Builder, Database, Result};
use ebbtide_lake::Store;
use ebbtide_lake::sim::{SimLake, SimStore};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

pub(crate) const ROOT: &str = "/data/db";
pub(crate) const HOUR: i64 = 3600;
/// The URL of [`World::other`]. All others are [`World::store`].
pub(crate) const OTHER: &str = "s3://sim/other";

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::parse("2024-01-01T00:00:00Z").unwrap().plus_seconds(seconds)
}

pub(crate) fn reading(seconds: i64, v: i64) -> Value {
    let sensor = ["a", "b", "c"][v.unsigned_abs() as usize % 3];
    Value::Object(vec![
        ("t".into(), Value::Date(at(seconds))),
        ("sensor".into(), Value::from(sensor)),
        ("v".into(), Value::Int(v)),
    ])
}

/// A disk, a clock and two stores.
pub(crate) struct World {
    pub(crate) fs: SimFs,
    pub(crate) clock: VirtualClock,
    pub(crate) store: SimStore,
    pub(crate) other: SimStore,
}

impl World {
    pub(crate) fn new(store: SimStore) -> World {
        World::with_other(store, SimStore::new(2, 0))
    }

    pub(crate) fn with_other(store: SimStore, other: SimStore) -> World {
        World { fs: SimFs::new(ROOT), clock: VirtualClock::new(at(0)), store, other }
    }

    /// The same with another disk.
    pub(crate) fn on(&self, fs: SimFs) -> World {
        World { fs, clock: self.clock.clone(), store: self.store.clone(), other: self.other.clone() }
    }

    /// The same with an empty disk: another machine.
    pub(crate) fn another(&self) -> World {
        self.on(SimFs::new(ROOT))
    }

    pub(crate) fn builder(&self) -> Builder {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let places = Arc::new(SimLake::new(&self.store).and(OTHER, &self.other));
        Database::builder(ROOT).fs(Arc::new(self.fs.clone())).clock(clock).archives(places)
    }

    pub(crate) fn try_open(&self) -> Result<Database> {
        self.builder().open()
    }

    pub(crate) fn open(&self) -> Database {
        self.try_open().unwrap()
    }
}

/// Checks that the files are there that the newest version of a table names, and those that a version of the last hour names: other
/// programs may be reading it. Returns how many of them the newest one does not name.
pub(crate) fn check_files(store: &SimStore, what: &str) -> usize {
    let (present, oldest): (BTreeSet<String>, i64) = (store.names().into_iter().collect(), store.now() - HOUR * 1000);
    let mut named: BTreeSet<String> = BTreeSet::new();
    let mut of_the_hour = BTreeSet::new();
    for version in 0.. {
        let Some(content) = store.content(&format!("_delta_log/{version:020}.json")) else { break };
        let text = std::str::from_utf8(&content).unwrap();
        let actions: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let made = actions.iter().find_map(|action| action["commitInfo"]["timestamp"].as_i64()).unwrap();
        // The version before was the newest until then.
        if made >= oldest {
            of_the_hour.extend(named.iter().cloned());
        }
        let paths = |kind: &str| {
            let paths = actions.iter().filter_map(|action| action[kind]["path"].as_str());
            paths.map(str::to_owned).collect::<Vec<String>>()
        };
        for path in paths("remove") {
            named.remove(&path);
        }
        named.extend(paths("add"));
    }
    let needed: BTreeSet<&String> = of_the_hour.union(&named).collect();
    let missing: Vec<_> = needed.iter().filter(|name| !present.contains(**name)).collect();
    assert!(missing.is_empty(), "{what}: {missing:?}");
    of_the_hour.difference(&named).count()
}

/// The seeds of the random runs of a test, one in `one_in` of all: those from `EBBTIDE_LAKE_FIRST` on, or from 0, as many as
/// `EBBTIDE_LAKE_RUNS` says.
pub(crate) fn seeds(default: u64, one_in: u64) -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let first = number("EBBTIDE_LAKE_FIRST").unwrap_or(0);
    let end = first + number("EBBTIDE_LAKE_RUNS").unwrap_or(default);
    first / one_in..end / one_in
}

/// Numbers that a seed makes, each below a limit.
pub(crate) fn random(seed: u64) -> impl FnMut(i64) -> i64 {
    let mut random = seed;
    move |below: i64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
        i64::try_from(random >> 33).unwrap() % below
    }
}
