//! Canaries: disks and kernels that break a promise, each as an engine with a bug would. The oracle of this file must be
//! quiet on an honest disk and notice every one of them; a harness that is quiet on these would prove nothing.
//!
//! `tests/crash` does the same for four syncs that are never done; here are the other promises.

use std::collections::BTreeSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use ebbtide::buckets::ReadAt;
use ebbtide::fs::sim::{Fault, FaultKind, Repeat, SimFs, Variant};
use ebbtide::fs::{FileLock, Fs, LockError, WriteFile};
use ebbtide::{CollectionOptions, Database, Error, ScanRequest, Settings};
use ebbtide_ttl::{Filter, Timestamp, Value, VirtualClock};

const ROOT: &str = "/data/db";
const NOON: i64 = 1_700_049_600_000;

/// A broken promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plant {
    Honest,
    /// One sync of a file in five is not done.
    SkippedSync,
    /// A sync that fails is reported as done.
    SwallowedSyncError,
    /// An append loses its last byte now and then.
    LostByte,
    /// An append is done twice now and then.
    DoubledAppend,
    /// The oldest log goes as soon as a segment begins to be written, before that is durable.
    LogRemovedEarly,
    /// A segment that is merged goes when the new one begins to be written.
    SegmentRemovedEarly,
    /// Everybody gets the lock.
    LockForEverybody,
    /// A sync of a log also loses the file's name.
    ForgottenName,
}

#[derive(Debug, Clone)]
struct Liar {
    disk: SimFs,
    plant: Plant,
    calls: Arc<AtomicU64>,
}

impl Liar {
    fn every(&self, n: u64) -> bool {
        self.calls.fetch_add(1, Ordering::Relaxed) % n == n - 1
    }

    fn remove_oldest(&self, near: &Path, start: &str) {
        let dir = near.parent().unwrap_or(near);
        let names = self.disk.list(dir).unwrap_or_default();
        if let Some(name) = names.iter().find(|n| n.starts_with(start)) {
            let _removed = self.disk.remove(&dir.join(name)).and_then(|()| self.disk.sync_dir(dir));
        }
    }
}

#[derive(Debug)]
struct LyingFile {
    file: Box<dyn WriteFile>,
    path: std::path::PathBuf,
    /// Bytes that the engine believes to be there.
    len: u64,
    fs: Liar,
}

impl WriteFile for LyingFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.fs.plant {
            Plant::LostByte if self.fs.every(7) => self.file.append(&bytes[..bytes.len() - 1])?,
            Plant::DoubledAppend if self.fs.every(7) => self.file.append(&[bytes, bytes].concat())?,
            _ => self.file.append(bytes)?,
        }
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        match self.fs.plant {
            Plant::SkippedSync if self.fs.every(5) => Ok(()),
            Plant::SwallowedSyncError => {
                let _error = self.file.sync();
                Ok(())
            }
            Plant::ForgottenName if self.path.to_string_lossy().contains("wal-") && self.fs.every(5) => {
                self.file.sync()?;
                self.fs.disk.remove(&self.path)?;
                self.fs.disk.sync_dir(Path::new(ROOT))
            }
            _ => self.file.sync(),
        }
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.file.truncate(len)?;
        self.len = len;
        Ok(())
    }
}

#[derive(Debug)]
struct NoLock;

impl FileLock for NoLock {}

impl Fs for Liar {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        if path.to_string_lossy().contains("/seg-") {
            match self.plant {
                Plant::LogRemovedEarly => self.remove_oldest(path, "wal-"),
                Plant::SegmentRemovedEarly => self.remove_oldest(path, "seg-"),
                _ => {}
            }
        }
        let file = self.disk.create(path)?;
        Ok(Box::new(LyingFile { file, path: path.to_owned(), len: 0, fs: self.clone() }))
    }

    fn open_append(&self, path: &Path, len: u64) -> io::Result<Box<dyn WriteFile>> {
        let file = self.disk.open_append(path, len)?;
        Ok(Box::new(LyingFile { file, path: path.to_owned(), len, fs: self.clone() }))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn ReadAt>> {
        self.disk.open_read(path)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.disk.read(path)
    }

    fn publish(&self, tmp: &Path, path: &Path) -> io::Result<()> {
        self.disk.publish(tmp, path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match self.disk.remove(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.plant != Plant::Honest => Ok(()),
            other => other,
        }
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        self.disk.len(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.remove_dir(dir)
    }

    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn FileLock>, LockError> {
        match self.plant {
            Plant::LockForEverybody => Ok(Box::new(NoLock)),
            _ => self.disk.lock(path, holder),
        }
    }
}

fn open(fs: Arc<dyn Fs>) -> Result<Database, Error> {
    let settings = Settings { wal_file_bytes_max: 1 << 10, ..Settings::default() };
    let clock = VirtualClock::new(Timestamp::from_millis(NOON));
    Database::builder(ROOT).fs(fs).clock(Arc::new(clock)).settings(settings).open()
}

fn ids(db: &Database) -> Result<BTreeSet<i64>, Error> {
    let mut ids = BTreeSet::new();
    let snapshot = db.snapshot();
    if !snapshot.collections().contains(&"c".to_owned()) {
        return Ok(ids);
    }
    for unit in snapshot.collection("c")?.scan(&ScanRequest::default())? {
        for batch in unit.read()? {
            let batch = batch?;
            let column = batch.column_by_name("id").expect("the ids are read").as_primitive::<Int64Type>();
            for id in column.values() {
                assert!(ids.insert(*id), "row {id} is there twice");
            }
        }
    }
    Ok(ids)
}

fn insert(db: &Database, first: i64) -> Result<(), Error> {
    let row = |id: i64| {
        Value::Object(vec![
            ("t".to_owned(), Value::Date(Timestamp::from_millis(NOON - 3_600_000 + id))),
            ("m".to_owned(), Value::String("a".to_owned())),
            ("id".to_owned(), Value::Int(id)),
        ])
    };
    let rows: Vec<Value> = (first..first + 5).map(row).collect();
    db.collection("c")?.insert_documents(&rows).map(drop)
}

/// Runs a script on a disk with a plant, cutting the power before every step of the disk. Returns how many images were
/// looked at, and what was noticed.
fn run(plant: Plant) -> (u64, Option<String>) {
    let images = AtomicU64::new(0);
    let outcome = catch_unwind(AssertUnwindSafe(|| script(plant, &images)));
    let noticed = match outcome {
        Ok(Ok(())) => None,
        Ok(Err(what)) => Some(what),
        Err(_) => Some("an assertion".to_owned()),
    };
    (images.load(Ordering::Relaxed), noticed)
}

fn script(plant: Plant, images: &AtomicU64) -> Result<(), String> {
    let disk = SimFs::new(ROOT);
    disk.record();
    let fs = Arc::new(Liar { disk: disk.clone(), plant, calls: Arc::default() });
    let text = |e: Error| e.to_string();
    let db = open(fs.clone()).map_err(text)?;
    db.create_collection("c", CollectionOptions::new("t").meta_field("m")).map_err(text)?;
    let mut acknowledged = BTreeSet::new();
    let mut seen = disk.steps().len();
    for step in 0..24_i64 {
        let before = acknowledged.clone();
        if plant == Plant::SwallowedSyncError && step % 3 == 1 {
            for op in 0..8 {
                disk.fail_op(disk.mutating_ops() + op, Fault { kind: FaultKind::SyncEioDropped, repeat: Repeat::Once });
            }
        }
        if plant == Plant::LockForEverybody && step == 12 {
            let second = open(fs.clone()).map_err(text)?;
            insert(&second, 1000).map_err(text)?;
            acknowledged.extend(1000..1005);
            drop(second);
        }
        let done = match step % 8 {
            3 => db.flush(),
            6 => db.compact(None),
            7 => {
                let gone = acknowledged.first().copied().unwrap_or(0);
                acknowledged.remove(&gone);
                db.collection("c").and_then(|c| c.delete(&Filter::eq("id", Value::Int(gone)))).map(drop)
            }
            _ => {
                acknowledged.extend(step * 10..step * 10 + 5);
                insert(&db, step * 10)
            }
        };
        done.map_err(|e| format!("step {step} fails: {e}"))?;
        let now = disk.steps().len();
        for point in seen..=now {
            // At the end of a step everything of it was acknowledged.
            let allowed = if point == now { vec![&acknowledged] } else { vec![&before, &acknowledged] };
            for variant in [Variant::V0, Variant::V3] {
                images.fetch_add(1, Ordering::Relaxed);
                let image = disk.before_step(point).crash(variant, point as u64);
                let found = open(Arc::new(image)).and_then(|db| ids(&db));
                let found = found.map_err(|e| format!("step {step}: {e}"))?;
                if !allowed.contains(&&found) {
                    return Err(format!("step {step}: {} rows of {}", found.len(), acknowledged.len()));
                }
            }
        }
        seen = now;
    }
    Ok(())
}

#[test]
fn every_broken_promise_is_noticed() {
    let (images, noticed) = run(Plant::Honest);
    assert_eq!(noticed, None, "an honest disk is accused after {images} images");
    println!("canary: Honest: quiet in {images} images");
    let plants = [
        Plant::SkippedSync,
        Plant::SwallowedSyncError,
        Plant::LostByte,
        Plant::DoubledAppend,
        Plant::LogRemovedEarly,
        Plant::SegmentRemovedEarly,
        Plant::LockForEverybody,
        Plant::ForgottenName,
    ];
    let mut quiet = Vec::new();
    for plant in plants {
        match run(plant) {
            (images, Some(what)) => println!("canary: {plant:?}: noticed after {images} images: {what}"),
            (images, None) => quiet.push((plant, images)),
        }
    }
    assert!(quiet.is_empty(), "nobody noticed {quiet:?}");
}
