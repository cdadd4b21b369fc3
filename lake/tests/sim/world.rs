//! A machine, and what it reads.

use ebbtide::buckets::Schema;
use ebbtide::fs::sim::SimFs;
use ebbtide::ttl::{Clock, Timestamp, Value, VirtualClock};
use ebbtide::{ArchivePart, ArchiveRead, Builder, Database, Result};
use ebbtide_lake::Store;
use ebbtide_lake::sim::{SimLake, SimStore};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

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

/// Makes an entry of a log one of an earlier build, which does not prove its version.
pub(crate) fn without_proof(store: &SimStore, name: &str) {
    let content = String::from_utf8(store.content(name).unwrap().to_vec()).unwrap();
    assert!(content.contains("\"ebbtide\":{"), "{content}");
    store.tamper(name, content.replacen("\"ebbtide\":{", "\"other\":{", 1).into());
}

/// What the log of a table says, version by version, as a program without Ebbtide finds it: if its beginning was removed, the first part
/// is a checkpoint.
pub(crate) fn log_of(store: &SimStore) -> Vec<Vec<serde_json::Value>> {
    let names = store.names();
    let versions = |suffix: &str| {
        let digits = |name: &String| name.strip_prefix("_delta_log/")?.strip_suffix(suffix)?.parse::<u64>().ok();
        names.iter().filter_map(digits).collect::<BTreeSet<u64>>()
    };
    let (entries, checkpoints) = (versions(".json"), versions(".checkpoint.parquet"));
    // Requests that arrive late leave entries below the beginning.
    let Some(newest) = entries.last() else { return Vec::new() };
    let begin = (0..=*newest).rev().take_while(|version| entries.contains(version)).last().unwrap();
    let checkpoint = checkpoints.range(begin..).next().copied().filter(|_| begin > 0);
    assert!(begin == 0 || checkpoint.is_some(), "the log begins at {begin} without a checkpoint");
    let content = |name: &str| store.content(&format!("_delta_log/{name}")).unwrap();
    let actions = |text: &[u8]| {
        let lines = std::str::from_utf8(text).unwrap().lines();
        lines.map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<serde_json::Value>>()
    };
    let first = checkpoint.map(|version| {
        let rows = ParquetRecordBatchReaderBuilder::try_new(content(&format!("{version:020}.checkpoint.parquet")));
        let mut lines = arrow_json::LineDelimitedWriter::new(Vec::new());
        for rows in rows.unwrap().build().unwrap() {
            lines.write(&rows.unwrap()).unwrap();
        }
        lines.finish().unwrap();
        // Files that have left the table are not part of the state.
        actions(&lines.into_inner()).into_iter().filter(|action| action.get("remove").is_none()).collect()
    });
    let rest = checkpoint.map_or(0, |version| version + 1)..=*newest;
    first.into_iter().chain(rest.map(|version| actions(&content(&format!("{version:020}.json"))))).collect()
}

/// Checks that the files are there that the newest version of a table names, and those that a version of the last hour names: other
/// programs may be reading it. Returns how many of them the newest one does not name.
pub(crate) fn check_files(store: &SimStore, what: &str) -> usize {
    let (present, oldest): (BTreeSet<String>, i64) = (store.names().into_iter().collect(), store.now() - HOUR * 1000);
    let mut named: BTreeSet<String> = BTreeSet::new();
    let mut of_the_hour = BTreeSet::new();
    for actions in log_of(store) {
        let made = actions.iter().find_map(|action| action["commitInfo"]["timestamp"].as_i64());
        // The version before was the newest until then. A checkpoint has no such time, and is older than an hour if the log begins with it.
        if made.is_some_and(|made| made >= oldest) {
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

/// Reads the fields of a schema in all of a file.
pub(crate) fn everything(schema: Arc<Schema>) -> ArchiveRead {
    ArchiveRead {
        schema,
        times: (i64::MIN, i64::MAX),
        metas: Vec::new(),
        part: ArchivePart::ALL,
        fetched: Arc::default(),
    }
}

/// The seeds of the random runs of a test, one in `one_in` of all: those from `EBBTIDE_LAKE_FIRST` on, or from 0, as many as
/// `EBBTIDE_LAKE_RUNS` says.
pub(crate) fn seeds(default: u64, one_in: u64) -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let first = number("EBBTIDE_LAKE_FIRST").unwrap_or(0);
    let end = first + number("EBBTIDE_LAKE_RUNS").unwrap_or(default);
    first / one_in..end / one_in
}

/// Makes a run for each seed, several at a time, and adds up what they return.
pub(crate) fn on_all_cores(seeds: Range<u64>, run: impl Fn(u64) -> usize + Sync) -> usize {
    let (next, sum) = (AtomicU64::new(seeds.start), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    sum.fetch_add(run(seed), Ordering::Relaxed);
                }
            });
        }
    });
    sum.into_inner()
}

/// Numbers that a seed makes, each below a limit.
pub(crate) fn random(seed: u64) -> impl FnMut(i64) -> i64 {
    let mut random = seed;
    move |below: i64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
        i64::try_from(random >> 33).unwrap() % below
    }
}
