//! Inserts of one to ten thousand rows, group commit of eight threads, and sealing.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use ebbtide::{Collection, CollectionOptions, Database, Settings};
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

criterion_group!(benches, insert, seal);
criterion_main!(benches);
