//! Canaries: disks and kernels that break a promise, each as an engine with a bug would. The oracle of this file must be
//! quiet on an honest disk and notice every one of them; a harness that is quiet on these would prove nothing.
//!
//! `tests/crash` does the same for four syncs that are never done; here are the other promises.

use std::collections::BTreeSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use ebbtide::buckets::ReadAt;
use ebbtide::fs::sim::{Fault, FaultKind, Repeat, SimFs, Variant};
use ebbtide::fs::{FileLock, Fs, Layer, LockError, WriteFile};
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
    /// The checksums of the last record of a log are not looked at.
    UncheckedRecord,
    /// What should be gone is not, and comes back: the manifest of the open before is taken for the newest.
    OlderManifest,
    /// A segment goes with the edit that drops it, whoever still reads it.
    ReleasedPin,
}

#[derive(Debug, Clone)]
struct Liar {
    disk: SimFs,
    plant: Plant,
    calls: Arc<AtomicU64>,
    /// Whether segments are being merged.
    merging: Arc<AtomicBool>,
}

impl Liar {
    fn every(&self, n: u64) -> bool {
        self.calls.fetch_add(1, Ordering::Relaxed) % n == n - 1
    }

    /// Segments that were there before an edit and are merged into the newest one by it.
    fn release_pins(&self, near: &Path) {
        let dir = near.parent().unwrap_or(near);
        for folder in self.disk.list(dir).unwrap_or_default() {
            let folder = dir.join(folder);
            let names = self.disk.list(&folder).unwrap_or_default();
            let segments: Vec<&String> = names.iter().filter(|name| name.starts_with("seg-")).collect();
            for name in segments.iter().rev().skip(1) {
                let _removed = self.disk.remove(&folder.join(name));
            }
        }
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
            Plant::ReleasedPin
                if self.path.to_string_lossy().contains("MANIFEST-") && self.fs.merging.load(Ordering::Relaxed) =>
            {
                self.file.append(bytes)?;
                self.fs.release_pins(&self.path);
            }
            _ => self.file.append(bytes)?,
        }
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn fill_ahead(&mut self, bytes: usize) -> io::Result<()> {
        self.file.fill_ahead(bytes)
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

/// A file that is opened anew for each read.
#[derive(Debug)]
struct ByPath {
    file: Arc<dyn ReadAt>,
    path: std::path::PathBuf,
    disk: SimFs,
}

impl ReadAt for ByPath {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<bytes::Bytes> {
        if self.disk.exists(&self.path)? { self.file.read_at(offset, len) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

#[derive(Debug)]
struct NoLock;

impl FileLock for NoLock {}

impl Layer for Liar {
    fn below(&self) -> &dyn Fs {
        &self.disk
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        if path.to_string_lossy().contains("/seg-") {
            match self.plant {
                // Segments have a folder of their own.
                Plant::LogRemovedEarly => self.remove_oldest(path.parent().unwrap_or(path), "wal-"),
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
        let file = self.disk.open_read(path)?;
        match self.plant {
            Plant::ReleasedPin => Ok(Arc::new(ByPath { file, path: path.to_owned(), disk: self.disk.clone() })),
            _ => Ok(file),
        }
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut bytes = self.disk.read(path)?;
        if self.plant == Plant::UncheckedRecord && path.to_string_lossy().contains("/wal-") {
            vouch_for_last_record(&mut bytes);
        }
        Ok(bytes)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if self.plant == Plant::OlderManifest && path.to_string_lossy().contains("/MANIFEST-") {
            return Ok(());
        }
        match self.disk.remove(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.plant != Plant::Honest => Ok(()),
            other => other,
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = self.disk.list(dir)?;
        let is_manifest = |name: &&String| name.starts_with("MANIFEST-") && !name.ends_with(".tmp");
        if self.plant == Plant::OlderManifest && names.iter().filter(is_manifest).count() > 1 {
            let newest = names.iter().filter(is_manifest).max().cloned();
            names.retain(|name| Some(name) != newest.as_ref());
        }
        Ok(names)
    }

    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn FileLock>, LockError> {
        match self.plant {
            Plant::LockForEverybody => Ok(Box::new(NoLock)),
            _ => self.disk.lock(path, holder),
        }
    }
}

/// Gives the record that a log ends with the checksums of what is there (FORMAT.md has the layout).
fn vouch_for_last_record(bytes: &mut [u8]) {
    const HEADER: usize = 36;
    const HEAD: usize = 36;
    let length = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes")) as usize;
    let mut at = HEADER;
    while at + HEAD <= bytes.len() {
        let end = at + HEAD + length(bytes, at);
        if end < bytes.len() && length(bytes, at) > 0 {
            at = end;
            continue;
        }
        let crc = crc32fast::hash(&bytes[at + HEAD..]).to_le_bytes();
        let rest = u32::try_from(bytes.len() - at - HEAD).expect("a small log").to_le_bytes();
        bytes[at..at + 4].copy_from_slice(&rest);
        bytes[at + 8..at + 12].copy_from_slice(&crc);
        let place = (at as u64).to_le_bytes();
        let head = [&bytes[at..at + 4], &bytes[at + 8..at + HEAD], &bytes[HEADER - 4..HEADER], &place].concat();
        bytes[at + 4..at + 8].copy_from_slice(&crc32fast::hash(&head).to_le_bytes());
        return;
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
            ("t".into(), Value::Date(Timestamp::from_millis(NOON - 3_600_000 + id))),
            ("m".into(), Value::String("a".to_owned())),
            ("id".into(), Value::Int(id)),
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
    let fs = Arc::new(Liar { disk: disk.clone(), plant, calls: Arc::default(), merging: Arc::default() });
    let text = |e: Error| e.to_string();
    // A bug of reading shows when the database is opened after the crash.
    let reads = matches!(plant, Plant::UncheckedRecord | Plant::OlderManifest);
    let reader = |image: SimFs| -> Arc<dyn Fs> {
        if reads { Arc::new(Liar { disk: image, plant, ..fs.as_ref().clone() }) } else { Arc::new(image) }
    };
    let mut db = open(fs.clone()).map_err(text)?;
    db.create_collection("c", CollectionOptions::new("t").meta_field("m")).map_err(text)?;
    let mut acknowledged = BTreeSet::new();
    let mut seen = disk.steps().len();
    for step in 0..24_i64 {
        let before = acknowledged.clone();
        if step == 9 {
            // A new manifest takes the place of the old one.
            db.close().map_err(text)?;
            db = open(fs.clone()).map_err(text)?;
        }
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
            6 => {
                let held = db.collection("c").and_then(|c| c.snapshot()).map_err(text)?;
                let compacted = db.flush().and_then(|()| {
                    fs.merging.store(true, Ordering::Relaxed);
                    db.compact(None)
                });
                fs.merging.store(false, Ordering::Relaxed);
                let units = held.scan(&ScanRequest::default()).map_err(|e| format!("a snapshot: {e}"))?;
                for batch in units.iter().map(|unit| unit.read()) {
                    let rows: Result<Vec<_>, Error> = batch.and_then(|batches| batches.collect());
                    rows.map_err(|e| format!("a snapshot: {e}"))?;
                }
                compacted
            }
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
            for variant in [Variant::V0, Variant::V3, Variant::V2] {
                images.fetch_add(1, Ordering::Relaxed);
                let image = disk.before_step(point).crash(variant, point as u64);
                let found = open(reader(image)).and_then(|db| ids(&db));
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
        Plant::UncheckedRecord,
        Plant::OlderManifest,
        Plant::ReleasedPin,
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
