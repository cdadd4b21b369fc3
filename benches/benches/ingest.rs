//! Inserts of one to ten thousand rows, of documents of BSON, group commit of eight threads, and sealing.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use ebbtide::bson::oid::ObjectId;
use ebbtide::bson::raw::{CStr, RawBsonRef, cstr};
use ebbtide::bson::{DateTime, RawDocument, RawDocumentBuf};
use ebbtide::buckets::batch_from_documents;
use ebbtide::ttl::Value;
use ebbtide::{Collection, CollectionOptions, Database, Settings, value_of_bson};
use ebbtide_benches::tsbs::Cpu;
use std::hint::black_box;
use tempfile::TempDir;

const HOSTS: usize = 100;

fn open() -> (TempDir, Database, Collection) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Enough memory for a whole run: sealing is measured separately.
    let settings = Settings { memtable_bytes_max: 4 << 30, ..Settings::default() };
    let db = Database::builder(folder.path()).settings(settings).open().expect("a new database");
    let cpu = db.create_collection("cpu", CollectionOptions::new("time").meta_field("tags")).expect("a new collection");
    (folder, db, cpu)
}

fn insert(c: &mut Criterion) {
    let mut group = c.benchmark_group("insert");
    group.sample_size(10);
    let batch = Cpu::new(HOSTS).ticks(100).expect("generated rows");
    for rows in [1, 100, 10_000] {
        let batch = batch.slice(0, rows);
        let (_folder, _db, cpu) = open();
        group.throughput(Throughput::Elements(rows as u64));
        group.bench_function(format!("{rows} rows"), |b| b.iter(|| cpu.insert(black_box(&batch))));
    }
    let one = batch.slice(0, 1);
    group.throughput(Throughput::Elements(8));
    group.bench_function("8 threads, 1 row each", |b| {
        let (_folder, _db, cpu) = open();
        b.iter(|| {
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| cpu.insert(black_box(&one)));
                }
            });
        });
    });
    group.finish();
}

fn seal(c: &mut Criterion) {
    let mut group = c.benchmark_group("seal");
    group.sample_size(10);
    let batch = Cpu::new(HOSTS).ticks(1000).expect("generated rows");
    group.throughput(Throughput::Elements(batch.num_rows() as u64));
    group.bench_function("100,000 rows", |b| {
        let filled = || {
            let (folder, db, cpu) = open();
            cpu.insert(&batch).expect("inserted");
            (folder, db)
        };
        b.iter_batched(
            filled,
            |(folder, db)| {
                db.flush().expect("sealed");
                (folder, db)
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

/// Documents like those of INMET's weather stations, as a driver sends them: hourly, of many stations, with 17 readings of which
/// some are missing.
fn inmet(rows: i64) -> Vec<RawDocumentBuf> {
    const FIELDS: [&CStr; 17] = [
        cstr!("rain"),
        cstr!("pressure"),
        cstr!("pressure_max"),
        cstr!("pressure_min"),
        cstr!("radiation"),
        cstr!("temp"),
        cstr!("dew"),
        cstr!("temp_max"),
        cstr!("temp_min"),
        cstr!("dew_max"),
        cstr!("dew_min"),
        cstr!("humidity_max"),
        cstr!("humidity_min"),
        cstr!("humidity"),
        cstr!("wind_dir"),
        cstr!("gust"),
        cstr!("wind"),
    ];
    let document = |row: i64| {
        let (station, hour) = (row % 560, row / 560);
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("_id"), ObjectId::new());
        document.append(cstr!("time"), DateTime::from_millis(1_600_000_000_000 + hour * 3_600_000));
        document.append(cstr!("station"), format!("A{station:03}"));
        for (at, name) in (0_i64..).zip(FIELDS) {
            let tenths = 150 + (row * 7 + at * 31) % 200;
            if tenths % 11 != 0 {
                #[expect(clippy::cast_precision_loss, reason = "small numbers")]
                document.append(name, tenths as f64 / 10.0);
            }
        }
        document
    };
    (0..rows).map(document).collect()
}

/// Documents of BSON read in place, and by way of trees of values.
fn bson(c: &mut Criterion) {
    let mut group = c.benchmark_group("bson");
    group.sample_size(20);
    let documents = inmet(10_000);
    let documents: Vec<&RawDocument> = documents.iter().map(AsRef::as_ref).collect();
    let open = || {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let settings = Settings { memtable_bytes_max: 4 << 30, ..Settings::default() };
        let db = Database::builder(folder.path()).settings(settings).open().expect("a new database");
        let options = CollectionOptions::new("time").meta_field("station");
        let weather = db.create_collection("weather", options).expect("a new collection");
        (folder, db, weather)
    };
    group.throughput(Throughput::Elements(documents.len() as u64));
    let (_folder, _db, weather) = open();
    group.bench_function("10,000 documents", |b| b.iter(|| weather.insert_bson(black_box(&documents))));
    let (_folder, _db, weather) = open();
    let tree = |document: &&RawDocument| match value_of_bson(RawBsonRef::Document(document)).expect("a value") {
        Value::Object(members) => Value::Object(members.into_iter().filter(|(name, _)| name != "_id").collect()),
        other => other,
    };
    group.bench_function("10,000 documents by way of values", |b| {
        b.iter(|| weather.insert_documents(&black_box(&documents).iter().map(tree).collect::<Vec<_>>()));
    });
    let schema = weather.snapshot().expect("a snapshot").schema().clone();
    let values: Vec<Value> = documents.iter().map(tree).collect();
    let batch = batch_from_documents(&values, &schema).expect("a batch").batch;
    let (_folder, _db, weather) = open();
    group.bench_function("10,000 rows of the same as columns", |b| b.iter(|| weather.insert(black_box(&batch))));
    group.finish();
}

criterion_group!(benches, insert, bson, seal);
criterion_main!(benches);
