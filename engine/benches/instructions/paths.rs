//! The paths: what a pipeline, a query and a sweep spend their time on.

use super::Result;
use arrow::array::{
    ArrayRef, AsArray, BooleanArray, Float64Array, RecordBatch, StringArray, TimestampMillisecondArray,
};
use arrow::error::ArrowError;
use ebbtide::bson::raw::cstr;
use ebbtide::bson::{DateTime, RawDocument, RawDocumentBuf};
use ebbtide::ttl::{Precision, Timestamp, Value, VirtualClock};
use ebbtide::{
    Aggregate, AggregateRequest, Collection, CollectionOptions, CollectionSnapshot, Database, DefaultTtl, Documents,
    DocumentsOptions, MetaFilter, ScanRequest, TimeRange,
};
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::sync::Arc;

/// Work that is counted, and that keeps what was prepared for it.
pub(super) type Work = Box<dyn FnOnce() -> Result<()>>;

pub(super) struct Path {
    pub(super) name: &'static str,
    /// Fills an empty folder with what is only read. It is not counted, so that it adds no noise.
    pub(super) fill: Option<fn(&std::path::Path) -> Result<()>>,
    /// Prepares the work, in that folder or in an empty one.
    pub(super) prepare: fn(&std::path::Path) -> Result<Work>,
}

const fn writes(name: &'static str, prepare: fn(&std::path::Path) -> Result<Work>) -> Path {
    Path { name, fill: None, prepare }
}

const fn reads(
    name: &'static str,
    fill: fn(&std::path::Path) -> Result<()>,
    prepare: fn(&std::path::Path) -> Result<Work>,
) -> Path {
    Path { name, fill: Some(fill), prepare }
}

/// Each with the number of rows, buckets or items of its name.
pub(super) const PATHS: [Path; 12] = [
    writes("insert 10000 rows of Arrow", insert_arrow),
    writes("insert 1000 documents", insert_documents),
    writes("seal 20000 rows", seal),
    writes("compact 20000 rows of 4 segments", compact),
    writes("open with 20000 rows in the log", open_log),
    writes("sweep half of 5000 buckets", sweep),
    writes("put 2000 items", put),
    reads("scan 40000 rows", fill_weather, scan_all),
    reads("scan an hour of one of 50 series", fill_weather, scan_one),
    reads("mean by hour and series of 40000 rows", fill_weather, mean),
    reads("last points of 50 series", fill_weather, last_points),
    reads("get 500 of 10000 items", fill_sessions, get),
];

/// 2024-01-01T00:00:00Z in milliseconds.
const START_MS: i64 = 1_704_067_200_000;
const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const SERIES: usize = 50;
/// A week, in seconds.
const LIFE: u32 = 7 * 24 * 3_600;

fn database(folder: &std::path::Path) -> Result<(Database, VirtualClock)> {
    let clock = VirtualClock::new(Timestamp::from_millis(START_MS));
    Ok((Database::builder(folder).clock(Arc::new(clock.clone())).open()?, clock))
}

fn weather(db: &Database) -> Result<Collection> {
    let options = CollectionOptions::new("time").meta_field("station").expire_after_seconds(LIFE.into());
    Ok(db.create_collection("weather", options)?)
}

/// Readings of all series, `step` apart: row `r` is the reading of series `r % SERIES`.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_wrap, reason = "small numbers")]
fn readings(rows: std::ops::Range<usize>, step: i64) -> Result<RecordBatch> {
    let values = |scale: usize| {
        let value = move |row: usize| ((row * 7 + scale * row / SERIES) % 400) as f64 / 10.0;
        Arc::new(Float64Array::from_iter_values(rows.clone().map(value))) as ArrayRef
    };
    let time = |row: usize| START_MS + (row / SERIES) as i64 * step;
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("time", Arc::new(TimestampMillisecondArray::from_iter_values(rows.clone().map(time)))),
        (
            "station",
            Arc::new(StringArray::from_iter_values(rows.clone().map(|row| format!("station-{}", row % SERIES)))),
        ),
        ("temp", values(1)),
        ("pressure", values(3)),
        ("humidity", values(5)),
        ("wind", values(11)),
    ];
    Ok(RecordBatch::try_from_iter(columns)?)
}

fn insert_arrow(folder: &std::path::Path) -> Result<Work> {
    let (db, _) = database(folder)?;
    let weather = weather(&db)?;
    weather.insert(&readings(0..10_000, MINUTE_MS)?)?;
    let batch = readings(10_000..20_000, MINUTE_MS)?;
    Ok(Box::new(move || {
        assert_eq!(weather.insert(black_box(&batch))?, 10_000);
        drop(db);
        Ok(())
    }))
}

fn insert_documents(folder: &std::path::Path) -> Result<Work> {
    let (db, _) = database(folder)?;
    let weather = weather(&db)?;
    let document = |row: i64| {
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("time"), DateTime::from_millis(START_MS + row * MINUTE_MS));
        document.append(cstr!("station"), format!("station-{}", row % 50));
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        for (field, name) in (1_i64..).zip([cstr!("temp"), cstr!("pressure"), cstr!("humidity"), cstr!("wind")]) {
            document.append(name, (row * 7 * field % 400) as f64 / 10.0);
        }
        document
    };
    let documents: Vec<RawDocumentBuf> = (0..1_000).map(document).collect();
    weather.insert(&readings(0..1_000, MINUTE_MS)?)?;
    Ok(Box::new(move || {
        let documents: Vec<&RawDocument> = documents.iter().map(AsRef::as_ref).collect();
        assert_eq!(weather.insert_bson(black_box(&documents))?, 1_000);
        drop(db);
        Ok(())
    }))
}

fn seal(folder: &std::path::Path) -> Result<Work> {
    let (db, _) = database(folder)?;
    weather(&db)?.insert(&readings(0..20_000, MINUTE_MS)?)?;
    Ok(Box::new(move || Ok(db.flush()?)))
}

fn compact(folder: &std::path::Path) -> Result<Work> {
    let (db, _) = database(folder)?;
    let weather = weather(&db)?;
    for from in (0..20_000).step_by(5_000) {
        weather.insert(&readings(from..from + 5_000, MINUTE_MS)?)?;
        db.flush()?;
    }
    Ok(Box::new(move || Ok(db.compact(None)?)))
}

fn open_log(folder: &std::path::Path) -> Result<Work> {
    let (db, _) = database(folder)?;
    weather(&db)?.insert(&readings(0..20_000, MINUTE_MS)?)?;
    drop(db);
    let folder = folder.to_owned();
    Ok(Box::new(move || {
        let (db, _) = database(&folder)?;
        assert_eq!(db.collection("weather")?.snapshot()?.count()?, 20_000);
        Ok(())
    }))
}

/// 40,000 rows in one segment.
fn fill_weather(folder: &std::path::Path) -> Result<()> {
    let (db, _) = database(folder)?;
    weather(&db)?.insert(&readings(0..40_000, MINUTE_MS)?)?;
    Ok(db.close()?)
}

fn opened(folder: &std::path::Path) -> Result<Database> {
    let clock = VirtualClock::new(Timestamp::from_millis(START_MS));
    Ok(Database::builder(folder).clock(Arc::new(clock)).read_only().open()?)
}

/// The rows of [`fill_weather`], read once.
fn sealed(folder: &std::path::Path) -> Result<(Database, CollectionSnapshot)> {
    let db = opened(folder)?;
    let snapshot = db.collection("weather")?.snapshot()?;
    assert_eq!(rows(&snapshot, &ScanRequest::default())?, 40_000);
    Ok((db, snapshot))
}

fn rows(snapshot: &CollectionSnapshot, request: &ScanRequest) -> Result<usize> {
    let mut rows = 0;
    for unit in snapshot.scan(request)? {
        for batch in unit.read()? {
            rows += batch?.num_rows();
        }
    }
    Ok(rows)
}

fn scan_all(folder: &std::path::Path) -> Result<Work> {
    let (db, snapshot) = sealed(folder)?;
    Ok(Box::new(move || {
        for _ in 0..5 {
            assert_eq!(rows(&snapshot, black_box(&ScanRequest::default()))?, 40_000);
        }
        drop(db);
        Ok(())
    }))
}

fn scan_one(folder: &std::path::Path) -> Result<Work> {
    let (db, snapshot) = sealed(folder)?;
    let from = Timestamp::from_millis(START_MS + HOUR_MS);
    let request = ScanRequest {
        time: (from..from.plus_seconds(3_600)).into(),
        meta: Some(Arc::new(OneStation::new("station-7"))),
        ..ScanRequest::default()
    };
    assert_eq!(rows(&snapshot, &request)?, 60);
    Ok(Box::new(move || {
        for _ in 0..20 {
            assert_eq!(rows(&snapshot, black_box(&request))?, 60);
        }
        drop(db);
        Ok(())
    }))
}

/// Selects one station.
#[derive(Debug)]
struct OneStation([(Vec<String>, Vec<Value>); 1]);

impl OneStation {
    fn new(name: &str) -> Self {
        OneStation([(Vec::new(), vec![Value::from(name)])])
    }
}

impl MetaFilter for OneStation {
    fn select(&self, metas: &ArrayRef) -> std::result::Result<BooleanArray, ArrowError> {
        let [(_, names)] = &self.0;
        let is = |meta: &str| names.iter().any(|name| matches!(name, Value::String(name) if name == meta));
        Ok(metas.as_string_view().iter().map(|meta| Some(meta.is_some_and(is))).collect())
    }

    fn candidates(&self) -> &[(Vec<String>, Vec<Value>)] {
        &self.0
    }
}

fn mean(folder: &std::path::Path) -> Result<Work> {
    let (db, snapshot) = sealed(folder)?;
    let request = AggregateRequest {
        aggregates: vec![Aggregate::Avg("temp".to_owned()), Aggregate::Max("wind".to_owned())],
        time: TimeRange::default(),
        meta: None,
        by_meta: true,
        meta_groups: None,
        width: Some(Precision::Ms.duration(HOUR_MS)),
        period: None,
        starts: None,
    };
    let groups = snapshot.aggregate(&request)?.num_rows();
    assert_eq!(groups, SERIES * 40_000_usize.div_ceil(SERIES * 60));
    Ok(Box::new(move || {
        for _ in 0..10 {
            assert_eq!(snapshot.aggregate(black_box(&request))?.num_rows(), groups);
        }
        drop(db);
        Ok(())
    }))
}

fn last_points(folder: &std::path::Path) -> Result<Work> {
    let (db, snapshot) = sealed(folder)?;
    assert_eq!(snapshot.last_points(&ScanRequest::default())?.num_rows(), SERIES);
    Ok(Box::new(move || {
        for _ in 0..10 {
            assert_eq!(snapshot.last_points(black_box(&ScanRequest::default()))?.num_rows(), SERIES);
        }
        drop(db);
        Ok(())
    }))
}

fn sweep(folder: &std::path::Path) -> Result<Work> {
    let (db, clock) = database(folder)?;
    let weather = weather(&db)?;
    // A bucket holds an hour: one row in each.
    weather.insert(&readings(0..5_000, HOUR_MS)?)?;
    db.flush()?;
    clock.set(Timestamp::from_millis(START_MS + 50 * HOUR_MS - 1).plus_seconds(i64::from(LIFE)));
    Ok(Box::new(move || {
        assert_eq!(db.sweep()?.counts.deleted_buckets, 2_500);
        Ok(())
    }))
}

#[derive(Debug, Serialize, Deserialize)]
struct Item {
    #[serde(rename = "_id")]
    id: String,
    user: i64,
    agent: String,
    roles: Vec<String>,
    visits: i32,
}

fn items(range: std::ops::Range<u64>) -> Vec<Item> {
    let item = |n: u64| Item {
        id: id(n),
        user: i64::try_from(n * 7919 % 5_000).unwrap_or(0),
        agent: ["Firefox/128.0 (Linux)", "Chrome/127.0 (Windows)", "Safari/17.5 (iPhone)"][n as usize % 3].to_owned(),
        roles: vec!["customer".to_owned()],
        visits: 1,
    };
    range.map(item).collect()
}

fn id(n: u64) -> String {
    format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn sessions(folder: &std::path::Path) -> Result<(Database, Documents)> {
    let (db, _) = database(folder)?;
    let options = DocumentsOptions { default_ttl: DefaultTtl::Seconds(LIFE), ..DocumentsOptions::default() };
    let sessions = db.create_documents("sessions", options)?;
    sessions.put_many(&items(0..10_000))?;
    Ok((db, sessions))
}

fn put(folder: &std::path::Path) -> Result<Work> {
    let (db, sessions) = sessions(folder)?;
    // Half of them replace items.
    let batch = items(9_000..11_000);
    Ok(Box::new(move || {
        sessions.put_many(black_box(&batch))?;
        drop(db);
        Ok(())
    }))
}

fn fill_sessions(folder: &std::path::Path) -> Result<()> {
    let (db, sessions) = sessions(folder)?;
    drop(sessions);
    Ok(db.close()?)
}

fn get(folder: &std::path::Path) -> Result<Work> {
    let db = opened(folder)?;
    let sessions = db.documents("sessions")?;
    assert!(sessions.get::<Item>(id(1).as_str())?.is_some());
    Ok(Box::new(move || {
        for n in (0..10_000).step_by(20) {
            assert!(sessions.get::<Item>(black_box(id(n).as_str()))?.is_some_and(|item| item.visits == 1));
        }
        drop(db);
        Ok(())
    }))
}
