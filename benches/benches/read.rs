//! Opening, the bucket directory, scans, aggregates over scans, and sweeps.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use ebbtide::ttl::{Precision, Timestamp, VirtualClock};
use ebbtide::{Aggregate, CollectionOptions, Database, ScanRequest, TimeRange};
use ebbtide_benches::fleet::{self, Fleet};
use ebbtide_benches::query::{Grouping, NamedSeries, group, rows};
use ebbtide_benches::tsbs::{Cpu, FIELDS, START_MS};
use std::hint::black_box;
use std::sync::Arc;

const HOSTS: usize = 100;
const HOUR: i64 = 3_600_000;

fn read(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let db = Database::open(folder.path()).expect("a new database");
    let cpu = db.create_collection("cpu", CollectionOptions::new("time").meta_field("tags")).expect("a new collection");
    let mut source = Cpu::new(HOSTS);
    for _ in 0..20 {
        cpu.insert(&source.ticks(100).expect("generated rows")).expect("inserted");
    }
    db.compact(None).expect("compacted");
    let snapshot = cpu.snapshot().expect("a snapshot");

    let mut g = c.benchmark_group("read 200,000 rows");
    g.sample_size(20);
    let one = Arc::new(NamedSeries::new(Some("hostname"), vec!["host_7".to_owned()]));
    let hour = ScanRequest {
        time: TimeRange::of_units(Some(START_MS), Some(START_MS + HOUR - 1), Precision::Ms),
        meta: Some(one),
        ..ScanRequest::default()
    };
    g.bench_function("directory lookup", |b| b.iter(|| snapshot.scan(black_box(&hour))));
    g.bench_function("scan one series, one hour", |b| b.iter(|| rows(&snapshot, black_box(&hour))));
    g.throughput(Throughput::Elements(200_000));
    g.bench_function("scan everything", |b| b.iter(|| rows(&snapshot, black_box(&ScanRequest::default()))));
    let grouping =
        Grouping { aggregate: Aggregate::Avg, width: Some(HOUR), by_series: true, fields: vec![FIELDS[0].to_owned()] };
    g.bench_function("avg by hour and series", |b| {
        b.iter(|| group(&snapshot, &ScanRequest::default(), black_box(&grouping)));
    });
    g.bench_function("last point of every series", |b| {
        b.iter(|| snapshot.last_points(black_box(&ScanRequest::default())))
    });
    g.finish();

    let mut g = c.benchmark_group("open");
    g.bench_function("for reading", |b| b.iter(|| Database::builder(folder.path()).read_only().open()));
    g.finish();
}

fn sweep(c: &mut Criterion) {
    let mut g = c.benchmark_group("sweep");
    g.sample_size(10);
    let fleet = Fleet { series: 100, windows: 1_000 };
    let life = 500 * 3_600;
    let filled = || {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let clock = VirtualClock::new(Timestamp::from_millis(fleet::START_MS));
        let db = Database::builder(folder.path()).clock(Arc::new(clock.clone())).open().expect("a new database");
        let options = CollectionOptions::new("t").meta_field("sensor").expire_after_seconds(life);
        let all = db.create_collection("fleet", options).expect("a new collection");
        fleet.fill(&db, &all).expect("filled");
        clock.set(Timestamp::from_millis(fleet::START_MS + 500 * fleet::WINDOW_MS).plus_seconds(life));
        (folder, db)
    };
    g.bench_function("half of 100,000 buckets", |b| {
        b.iter_batched(
            filled,
            |(folder, db)| {
                db.sweep().expect("swept");
                (folder, db)
            },
            BatchSize::PerIteration,
        );
    });
    g.finish();
}

criterion_group!(benches, read, sweep);
criterion_main!(benches);
