//! Memory is bounded by settings, however much is stored: inserting with sealing, merging, replay, a scan, an
//! aggregate, a delete, a sweep; documents that are refreshed, found, changed and forgotten. Nor does it grow with the
//! number of columns.
//!
//! One test, so that nothing else allocates while it measures.

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray};
use ebbtide::bson::{Document, doc};
use ebbtide::ttl::{Filter, RuleSpec, Timestamp, Value, VirtualClock};
use ebbtide::{
    Aggregate, AggregateRequest, Builder, Collection, CollectionOptions, Database, DefaultTtl, Documents,
    DocumentsOptions, Durability, ScanRequest, ScanUnit, Settings,
};
use peak_alloc::PeakAlloc;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const NOON: i64 = 1_700_049_600_000;
const BATCH_ROWS: i64 = 10_000;
const SERIES: i64 = 200;
const MEMTABLE: usize = 4 << 20;
/// What stays in memory for the next query.
const CACHE: usize = 4 << 20;
/// Half of the data, so that twice as much shows what grows with it.
const BATCHES: i64 = 20;
/// What sealing and merging take beside the open buckets: copies of columns, pages, encoders of all columns at once.
const WORK_BYTES: usize = 24 << 20;

/// A budget under which a log grows that is far larger than [`MEMTABLE`].
const MEMTABLE_BEFORE: usize = 16 * MEMTABLE;

fn open(path: &Path) -> Database {
    open_with(path, MEMTABLE)
}

fn open_with(path: &Path, memtable: usize) -> Database {
    let clock = VirtualClock::new(Timestamp::from_millis(NOON));
    builder(path, memtable).clock(Arc::new(clock)).open().expect("opens")
}

fn builder(path: &Path, memtable: usize) -> Builder {
    let settings = Settings {
        durability: Durability::Interval(Duration::from_secs(60)),
        memtable_bytes_max: memtable,
        wal_file_bytes_max: MEMTABLE as u64,
        segment_rows_max: 1 << 16,
        cache_bytes_max: CACHE,
        ..Settings::default()
    };
    Database::builder(path).settings(settings)
}

fn batch(number: i64) -> RecordBatch {
    batch_of(|| number * BATCH_ROWS..(number + 1) * BATCH_ROWS)
}

fn batch_of<Ids: Iterator<Item = i64>>(ids: impl Fn() -> Ids) -> RecordBatch {
    let times = TimestampMillisecondArray::from_iter_values(ids().map(|i| NOON - 86_400_000 + i / SERIES * 1_000));
    let metas = StringArray::from_iter_values(ids().map(|i| format!("series-{}", i % SERIES)));
    let mut columns: Vec<(String, ArrayRef)> =
        vec![("t".to_owned(), Arc::new(times)), ("m".to_owned(), Arc::new(metas))];
    for field in 0..4 {
        let values = Float64Array::from_iter_values(ids().map(|i| (i * (field + 7) % 1_000) as f64 / 10.0));
        columns.push((format!("f{field}"), Arc::new(values)));
    }
    columns.push(("id".to_owned(), Arc::new(Int64Array::from_iter_values(ids()))));
    RecordBatch::try_from_iter(columns).expect("a batch")
}

/// The most memory above what was in use before.
fn peak<T>(what: &str, work: impl FnOnce() -> T) -> (usize, T) {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let result = work();
    let peak = MEMORY.peak_usage().saturating_sub(before);
    println!("{what}: {} KiB", peak >> 10);
    (peak, result)
}

#[test]
fn memory_does_not_grow_with_what_is_stored() {
    many_columns_take_no_more_than_their_rows();
    documents_take_no_more_than_their_budget();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let mut peaks: Vec<(&str, usize)> = Vec::new();
    let db = open(&path);
    let options = CollectionOptions::new("t").meta_field("m").expire_after_seconds(7 * 86_400);
    let c = db.create_collection("c", options).expect("is made");
    for half in [0, BATCHES] {
        let insert = || (half..half + BATCHES).map(|i| c.insert(&batch(i)).expect("is stored")).sum::<u64>();
        peaks.push(("insert", peak(&format!("insert {} rows", BATCHES * BATCH_ROWS), insert).0));
    }
    db.abandon();
    drop(c);
    let (bytes, db) = peak("replay", || open(&path));
    peaks.push(("replay", bytes));
    peaks.push(("merge", peak("merge", || db.compact(None).expect("merges")).0));
    peaks.push(("merge of interleaved segments", merge_interleaved(&db)));
    let c = db.collection("c").expect("is there");
    let (bytes, rows) = peak("scan", || rows_of(&c));
    assert_eq!(rows as i64, 2 * BATCHES * BATCH_ROWS);
    peaks.push(("scan", bytes));
    let (bytes, groups) = peak("aggregate", || groups_of(&c));
    assert!(groups > 100, "{groups}");
    peaks.push(("aggregate", bytes));
    let odd = Filter::compare("f0", ebbtide::ttl::Comparison::Lt, Value::Double(50.0));
    let (bytes, gone) = peak("delete half of the rows", || c.delete(&odd).expect("deletes"));
    assert!(gone as i64 > BATCHES * BATCH_ROWS / 2, "{gone}");
    peaks.push(("delete", bytes));
    let half = (0..SERIES / 2).map(|i| Value::from(format!("series-{i}").as_str())).collect();
    db.create_rules("c", vec![RuleSpec::new("half", 3_600, Filter::is_in("m", half))]).expect("is made");
    let (bytes, report) = peak("sweep half of the metas", || db.sweep().expect("sweeps"));
    assert!(report.counts.deleted_documents as i64 > BATCHES * BATCH_ROWS / 4, "{report:?}");
    peaks.push(("sweep", bytes));
    let (bytes, _) = peak("delete everything", || c.delete(&Filter::everything()).expect("deletes"));
    peaks.push(("delete", bytes));
    for (what, bytes) in peaks {
        assert!(bytes < 2 * MEMTABLE + CACHE + WORK_BYTES, "{what} took {bytes} bytes");
    }

    // A log that was written under a larger budget: what is over the present one is sealed while it is replayed.
    drop((c, db));
    let path = folder.path().join("larger");
    let db = open_with(&path, MEMTABLE_BEFORE);
    let c = db.create_collection("c", CollectionOptions::new("t").meta_field("m")).expect("is made");
    let stored: u64 = (0..2 * BATCHES).map(|i| c.insert(&batch(i)).expect("is stored")).sum();
    assert_eq!(stored as i64, 2 * BATCHES * BATCH_ROWS);
    assert!(c.snapshot().expect("a view").segments().is_empty(), "all of it is in the log");
    db.abandon();
    drop(c);
    let (bytes, db) = peak("replay under a smaller budget", || open(&path));
    assert!(bytes < 2 * MEMTABLE + CACHE + WORK_BYTES, "replay took {bytes} bytes");
    let c = db.collection("c").expect("is there");
    assert!(!c.snapshot().expect("a view").segments().is_empty(), "what is over the budget is sealed");
    assert_eq!(rows_of(&c) as i64, 2 * BATCHES * BATCH_ROWS);
    drop((c, db));
    let c = open(&path).collection("c").expect("is there");
    assert_eq!(rows_of(&c) as i64, 2 * BATCHES * BATCH_ROWS, "nothing is there twice");
}

/// What a merge takes of segments that each have some rows of every bucket.
fn merge_interleaved(db: &Database) -> usize {
    let c = db.create_collection("interleaved", CollectionOptions::new("t").meta_field("m")).expect("is made");
    for number in 0..2 * BATCHES {
        c.insert(&batch_of(|| (0..BATCH_ROWS).map(move |row| row * 2 * BATCHES + number))).expect("is stored");
        db.flush().expect("seals");
    }
    let (bytes, ()) = peak("merge interleaved segments", || db.compact(Some("interleaved")).expect("merges"));
    let segments = c.snapshot().expect("a view").segments();
    let (rows, buckets): (u64, u64) = segments.iter().fold((0, 0), |sum, s| (sum.0 + s.rows, sum.1 + s.buckets));
    assert_eq!((rows as i64, buckets as i64), (2 * BATCHES * BATCH_ROWS, SERIES), "one bucket for each series");
    bytes
}

/// Documents of half a kilobyte; a quarter of them is written again.
const DOCUMENTS: i64 = 120_000;
const DOCUMENTS_BATCH: i64 = 1_000;

/// Different for each number, in no order.
fn scattered(number: i64) -> i64 {
    number.wrapping_mul(0x5851_f42d_4c95_7f2d)
}

fn documents_take_no_more_than_their_budget() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let db = open(&path);
    let options = DocumentsOptions { default_ttl: DefaultTtl::Seconds(3_600), ..DocumentsOptions::default() };
    let d = db.create_documents("d", options).expect("is made");
    let one = |id: i64| {
        let text: String = (0..24).map(|part| format!("{:016x}", scattered(id * 24 + part))).collect();
        doc! { "_id": scattered(id), "n": id, "text": text, "ttl": if id % 2 == 0 { 60 } else { 7_200 } }
    };
    let put = |ids: std::ops::Range<i64>| {
        for start in ids.step_by(DOCUMENTS_BATCH as usize) {
            d.put_many(&(start..start + DOCUMENTS_BATCH).map(one).collect::<Vec<_>>()).expect("is stored");
        }
    };
    let mut peaks = Vec::new();
    peaks.push(("put", peak("put documents", || put(0..DOCUMENTS)).0));
    peaks.push(("refresh", peak("refresh documents", || put(0..DOCUMENTS / 4)).0));
    let count = |d: &Documents| d.snapshot().expect("a view").count().expect("counts");
    db.abandon();
    drop(d);
    let (bytes, db) = peak("replay documents", || open(&path));
    peaks.push(("replay", bytes));
    peaks.push(("merge", peak("merge documents", || db.compact(None).expect("merges")).0));
    let d = db.documents("d").expect("is there");
    assert_eq!(count(&d) as i64, DOCUMENTS);
    let mut found = 0;
    let scan = || {
        d.snapshot()
            .expect("a view")
            .for_each(&mut |_| {
                found += 1;
                Ok(true)
            })
            .expect("reads")
    };
    peaks.push(("scan", peak("scan documents", scan).0));
    assert_eq!(found, DOCUMENTS);
    let get = || {
        let is = |id: i64| d.get::<Document>(scattered(id)).expect("reads").is_some();
        (0..DOCUMENTS).filter(|id| is(*id)).count()
    };
    let (bytes, found) = peak("get each document", get);
    assert_eq!(found as i64, DOCUMENTS);
    peaks.push(("get", bytes));
    let later = VirtualClock::new(Timestamp::from_millis(NOON + 61_000));
    drop((d, db));
    let db = builder(&path, MEMTABLE).clock(Arc::new(later)).open().expect("opens");
    let (bytes, report) = peak("sweep half of the documents", || db.sweep().expect("sweeps"));
    assert_eq!(report.counts.deleted_documents as i64, DOCUMENTS / 2, "{report:?}");
    peaks.push(("sweep", bytes));
    assert_eq!(count(&db.documents("d").expect("is there")) as i64, DOCUMENTS / 2);
    for (what, bytes) in peaks {
        assert!(bytes < 2 * MEMTABLE + CACHE + WORK_BYTES, "{what} took {bytes} bytes");
    }
}

/// Columns of a wide collection: compressors and buffers of all of them at once would take gigabytes.
const MANY_COLUMNS: usize = 5_000;
const FEW_ROWS: i64 = 24;
/// What sealing and merging may take in addition to the rows, compressors written in C included.
const MANY_COLUMNS_BYTES: u64 = 64 << 20;

fn many_columns_take_no_more_than_their_rows() {
    let folder = tempfile::tempdir().expect("a folder");
    let db = open(&folder.path().join("db"));
    let c = db.create_collection("wide", CollectionOptions::new("t").meta_field("m")).expect("is made");
    let wide = |from: i64| {
        let ids = || from..from + FEW_ROWS;
        let times = TimestampMillisecondArray::from_iter_values(ids().map(|i| NOON - 86_400_000 + i * 1_000));
        let metas = StringArray::from_iter_values(ids().map(|_| "station"));
        let mut columns: Vec<(String, ArrayRef)> =
            vec![("t".to_owned(), Arc::new(times)), ("m".to_owned(), Arc::new(metas))];
        for field in 0..MANY_COLUMNS as i64 {
            let values = Float64Array::from_iter_values(ids().map(|i| (i * (field + 7) % 1_000) as f64 / 10.0));
            columns.push((format!("f{field}"), Arc::new(values)));
        }
        RecordBatch::try_from_iter(columns).expect("a batch")
    };
    let batches = [wide(0), wide(FEW_ROWS)];
    let rows: u64 = batches.iter().map(|batch| batch.get_array_memory_size() as u64).sum();
    for batch in &batches {
        c.insert(batch).expect("is stored");
        let seal = || db.flush().expect("seals");
        assert!(process_peak("seal 5,000 columns", seal) < MANY_COLUMNS_BYTES + rows);
    }
    let merge = || db.compact(None).expect("merges");
    assert!(process_peak("merge 5,000 columns", merge) < MANY_COLUMNS_BYTES + rows);
    assert_eq!(c.snapshot().expect("a view").segments().len(), 1);
    let read = || assert_eq!(rows_of(&c) as i64, 2 * FEW_ROWS);
    assert!(process_peak("read 5,000 columns", read) < MANY_COLUMNS_BYTES + rows);
}

/// The most memory of the process above what it had before, where the system tells; else that of the allocator.
#[expect(clippy::disallowed_methods, reason = "the kernel's figures of this process")]
fn process_peak(what: &str, work: impl FnOnce()) -> u64 {
    // Writing 5 there resets the peak.
    let reset = std::fs::write("/proc/self/clear_refs", "5").is_ok();
    let (before, (heap, ())) = (status("VmRSS"), peak(what, work));
    let process = status("VmHWM").zip(before).filter(|_| reset).map(|(after, before)| after.saturating_sub(before));
    println!("{what}: {} KiB of the process", process.unwrap_or_default() >> 10);
    process.unwrap_or(heap as u64)
}

/// A figure of the process's memory, in bytes.
fn status(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(name))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
}

/// Groups of seven seconds are not those of buckets: every row is read.
fn groups_of(c: &Collection) -> usize {
    let aggregates = ["f0", "f1", "f2", "f3"].map(|f| Aggregate::Avg(f.to_owned())).to_vec();
    let request = AggregateRequest { aggregates, width: Some(Duration::from_secs(7)), ..AggregateRequest::default() };
    c.snapshot().expect("a view").aggregate(&request).expect("aggregates").num_rows()
}

fn rows_of(c: &Collection) -> usize {
    let units = c.snapshot().expect("a view").scan(&ScanRequest::default()).expect("units");
    let rows = |unit: &ScanUnit| -> usize { unit.read().expect("reads").map(|b| b.expect("a batch").num_rows()).sum() };
    units.iter().map(rows).sum()
}
