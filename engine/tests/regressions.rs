//! Behaviours that once were wrong.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what it met")]

use arrow::array::{ArrayRef, BooleanArray};
use arrow::error::ArrowError;
use ebbtide::buckets::value_at;
use ebbtide::fs::sim::{Fault, FaultKind, Repeat, SimFs, Variant};
use ebbtide::fs::{Fs, Layer, WriteFile};
use ebbtide::ttl::{Clock, Code, Filter, Timestamp, Value, VirtualClock};
use ebbtide::{
    Collection, CollectionChange, CollectionOptions, Database, Durability, MetaFilter, ScanRequest, Settings,
};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ROOT: &str = "/data/db";

fn at(seconds: i64) -> Timestamp {
    Timestamp::parse("2024-01-01T00:00:00Z").unwrap().plus_seconds(seconds)
}

fn document(seconds: i64, field: &str, value: Value) -> Value {
    Value::Object(vec![("t".into(), Value::Date(at(seconds))), (field.into(), value)])
}

fn row(seconds: i64, v: i64) -> Value {
    document(seconds, "v", Value::Int(v))
}

/// What a test does before a file is created.
type Hook = Box<dyn FnMut(&Path) + Send>;

/// A disk that calls a test back before a file is created.
#[derive(Clone)]
struct Hooked {
    inner: SimFs,
    hook: Arc<Mutex<Option<Hook>>>,
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl Hooked {
    fn new(inner: &SimFs) -> Self {
        Hooked { inner: inner.clone(), hook: Arc::default() }
    }

    /// Calls `hook` before each segment file is created, but not from within itself.
    fn before_segment(&self, mut hook: impl FnMut() + Send + 'static) {
        let is_segment = |path: &Path| path.extension().is_some_and(|e| e == "parquet");
        *self.hook.lock().unwrap() = Some(Box::new(move |path| {
            if is_segment(path) {
                hook();
            }
        }));
    }
}

impl Layer for Hooked {
    fn below(&self) -> &dyn Fs {
        &self.inner
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let hook = self.hook.lock().unwrap().take();
        if let Some(mut hook) = hook {
            hook(path);
            self.hook.lock().unwrap().get_or_insert(hook);
        }
        self.inner.create(path)
    }
}

fn open(fs: &(impl Fs + Clone + 'static), clock: &VirtualClock, settings: Settings) -> ebbtide::Result<Database> {
    Database::builder(ROOT).fs(Arc::new(fs.clone())).clock(Arc::new(clock.clone())).settings(settings).open()
}

fn count(db: &Database) -> u64 {
    db.snapshot().collection("c").unwrap().count().unwrap()
}

fn segments_on(fs: &SimFs) -> Vec<PathBuf> {
    fs.files().into_iter().filter(|p| p.extension().is_some_and(|e| e == "parquet")).collect()
}

fn made(db: &Database, options: CollectionOptions) -> Collection {
    db.create_collection("c", options).unwrap()
}

fn interval() -> Settings {
    Settings { durability: Durability::Interval(Duration::from_secs(3600)), ..Settings::default() }
}

#[test]
fn a_power_cut_after_a_kill_and_a_reopen_finds_what_the_reopen_found() {
    for variant in Variant::WITHIN_CONTRACT {
        let (fs, clock) = (SimFs::new(ROOT), VirtualClock::new(at(0)));
        let db = open(&fs, &clock, interval()).unwrap();
        let c = made(&db, CollectionOptions::new("t"));
        c.insert_documents(&[row(0, 1)]).unwrap();
        c.insert_documents(&[row(1, 2)]).unwrap();
        drop(c);
        db.abandon(); // Killed: what was written is still there, though nothing of it was synced.
        let db = open(&fs, &clock, Settings::default()).unwrap();
        assert_eq!(count(&db), 2);
        db.collection("c").unwrap().insert_documents(&[row(2, 3)]).unwrap();
        let after = fs.crash(variant, 7);
        let db = open(&after, &clock, Settings::default()).unwrap();
        assert_eq!(count(&db), 3, "{variant:?}");
    }
}

#[test]
fn a_negative_number_of_seconds_is_refused_by_every_door() {
    let db = open(&SimFs::new(ROOT), &VirtualClock::new(at(0)), Settings::default()).unwrap();
    let c = made(&db, CollectionOptions::new("t").meta_field("m"));
    c.insert_documents(&[row(5, 1)]).unwrap();
    let change = CollectionChange { expire_after_seconds: Some(Some(-60)), ..CollectionChange::default() };
    assert_eq!(db.modify_collection("c", &change, None).unwrap_err().code(), Code::InvalidOptions);
    let filter = Filter::parse_partial(&Value::Object(vec![("m".into(), Value::Int(1))]), Some("m")).unwrap();
    let spec = |e: i64| ebbtide::ttl::RuleSpec::new("r", e, filter.clone());
    assert_eq!(db.create_rules("c", vec![spec(-1)]).unwrap_err().code(), Code::CannotCreateIndex);
    db.create_rules("c", vec![spec(60)]).unwrap();
    let rule = ebbtide::RuleChange::new(ebbtide::ttl::RuleSelector::Name("r".into())).expire_after_seconds(-1);
    let outcome = db.modify_collection("c", &CollectionChange::default(), Some(&rule));
    assert_eq!(outcome.unwrap_err().code(), Code::InvalidOptions);
    assert_eq!(count(&db), 1);
}

#[test]
fn a_full_disk_is_swept_while_open_buckets_are_due_too() {
    let (fs, clock) = (SimFs::new(ROOT), VirtualClock::new(at(0)));
    let db = open(&fs, &clock, Settings::default()).unwrap();
    let c = made(&db, CollectionOptions::new("t").expire_after_seconds(60));
    c.insert_documents(&(0..1000).map(|i| row(i % 60, i)).collect::<Vec<_>>()).unwrap();
    db.flush().unwrap();
    c.insert_documents(&[row(4000, 1), row(20_000, 2)]).unwrap(); // Other buckets, not sealed, one of them live.
    clock.set(at(20_000));
    fs.set_capacity(Some(fs.used()));
    let report = db.sweep().unwrap();
    assert_eq!(report.counts.deleted_documents, 1000);
    fs.set_capacity(None);
    assert_eq!(db.sweep().unwrap().counts.deleted_documents, 1);
}

#[test]
fn on_a_full_disk_whole_segments_go_first_and_make_room_to_say_what_goes_of_others() {
    let (fs, clock) = (SimFs::new(ROOT), VirtualClock::new(at(0)));
    let db = open(&fs, &clock, Settings::default()).unwrap();
    let c = made(&db, CollectionOptions::new("t").meta_field("m").expire_after_seconds(3600));
    let series = |hour: i64| {
        (0..1000_i64).map(move |i| match document(hour * 3600, "v", Value::Int(i * i * 7919 % 1_000_003)) {
            Value::Object(members) => Value::Object([vec![("m".into(), Value::Int(i))], members].concat()),
            other => other,
        })
    };
    c.insert_documents(&series(0).collect::<Vec<_>>()).unwrap();
    db.flush().unwrap();
    // Every other bucket of this one stays: a list of all that go is long.
    c.insert_documents(&series(5).chain(series(9)).collect::<Vec<_>>()).unwrap();
    db.flush().unwrap();
    assert_eq!(segments_on(&fs).len(), 2);
    clock.set(at(9 * 3600));
    fs.remove(&Path::new(ROOT).join("RESERVE")).unwrap();
    fs.set_capacity(Some(fs.used() + 400));
    // The room is there when the pass lets go of what it looked at.
    let swept = || {
        let counts = db.sweep().unwrap().counts;
        (counts.deleted_buckets, counts.reclaimed_files, counts.failed_rules)
    };
    assert_eq!([swept(), swept(), swept()], [(1000, 1, 1), (1000, 0, 0), (0, 0, 0)]);
    assert_eq!(count(&db), 1000);
    drop((c, db));
    fs.set_capacity(None);
    assert_eq!(count(&open(&fs, &clock, Settings::default()).unwrap()), 1000);
}

#[test]
fn a_full_disk_is_swept_though_every_bucket_that_is_due_is_open_in_part() {
    let (fs, clock) = (SimFs::new(ROOT), VirtualClock::new(at(0)));
    let db = open(&fs, &clock, Settings::default()).unwrap();
    let c = made(&db, CollectionOptions::new("t").expire_after_seconds(60));
    c.insert_documents(&(0..1000).map(|i| row(i % 60, i)).collect::<Vec<_>>()).unwrap();
    db.flush().unwrap();
    // The same bucket again, and a field that no segment has.
    c.insert_documents(&[row(30, 1), document(31, "extra", Value::from("x"))]).unwrap();
    let live = fs.fork();
    clock.set(at(20_000));
    let before = fs.used();
    fs.set_capacity(Some(before));
    let report = db.sweep().unwrap();
    assert_eq!((report.counts.deleted_buckets, report.counts.deleted_documents), (1, 1002));
    assert!(fs.used() < before, "{} bytes, {before} before", fs.used());
    assert_eq!(segments_on(&fs), Vec::<PathBuf>::new());
    db.abandon();
    // At a time at which none of it would be hidden.
    clock.set(at(0));
    let db = open(&fs, &clock, Settings::default()).unwrap();
    assert_eq!(count(&db), 0);
    assert!(db.collection("c").unwrap().snapshot().unwrap().schema().field_type("extra").is_some());
    // A live measurement in memory has to be sealed first: all waits for room, and nothing is lost.
    let db = open(&live, &clock, Settings::default()).unwrap();
    db.collection("c").unwrap().insert_documents(&[row(20_000, 5)]).unwrap();
    clock.set(at(20_000));
    live.set_capacity(Some(live.used()));
    assert_eq!(db.sweep().unwrap().counts.deleted_documents, 0);
    live.set_capacity(None);
    assert_eq!(db.sweep().unwrap().counts.deleted_documents, 1002);
    assert_eq!(count(&db), 1);
}

#[test]
fn data_that_arrives_expired_does_not_keep_the_sweeper_from_the_rest() {
    let (sim, clock) = (SimFs::new(ROOT), VirtualClock::new(at(0)));
    let fs = Hooked::new(&sim);
    let db = open(&fs, &clock, Settings::default()).unwrap();
    let c = made(&db, CollectionOptions::new("t").expire_after_seconds(60));
    c.insert_documents(&(0..100).map(|i| row(i % 60, i)).collect::<Vec<_>>()).unwrap();
    db.flush().unwrap();
    clock.set(at(20_000));
    c.insert_documents(&[row(4000, 1)]).unwrap();
    // While the sweep seals, an importer goes on.
    fs.before_segment(move || {
        c.insert_documents(&[row(4000, 2)]).unwrap();
    });
    assert_eq!(db.sweep().unwrap().counts.deleted_documents, 100);
}

#[test]
fn nobody_but_the_next_work_on_segments_waits_for_a_call_of_the_disk_that_hangs() {
    let (sim, clock) = (SimFs::new(ROOT), VirtualClock::new(at(0)));
    let fs = Hooked::new(&sim);
    let db = open(&fs, &clock, Settings::default()).unwrap();
    let c = made(&db, CollectionOptions::new("t").expire_after_seconds(60));
    c.insert_documents(&[row(0, 1)]).unwrap();
    let (other, (hangs, hung)) = (db.clone(), std::sync::mpsc::channel());
    // The call that makes a segment has not returned when all of this is done.
    fs.before_segment(move || {
        c.insert_documents(&[row(1, 2)]).unwrap();
        assert_eq!(count(&other), 2);
        assert_eq!((other.metrics().inserted, other.metrics().seals), (2, 0));
        assert!(other.verify().unwrap().faults.is_empty());
        hangs.send(()).unwrap();
    });
    db.flush().unwrap();
    hung.try_recv().unwrap();
    assert_eq!(count(&db), 2);
}

#[test]
fn a_flush_that_finds_no_room_leaves_no_files_behind() {
    let (fs, clock) = (SimFs::new(ROOT), VirtualClock::new(at(0)));
    let db = open(&fs, &clock, Settings { segment_rows_max: 100, ..Settings::default() }).unwrap();
    let c = made(&db, CollectionOptions::new("t").meta_field("v"));
    c.insert_documents(&(0..1000).map(|i| row(i, i)).collect::<Vec<_>>()).unwrap();
    fs.set_capacity(Some(fs.used() + 8_000));
    assert_eq!(db.flush().unwrap_err().code(), Code::OutOfDiskSpace);
    assert_eq!(segments_on(&fs), Vec::<PathBuf>::new());
    assert_eq!(count(&db), 1000);
    fs.set_capacity(None);
    db.flush().unwrap();
    assert_eq!(count(&db), 1000);
}

#[test]
fn a_log_without_a_manifest_is_not_thrown_away() {
    let (fs, clock) = (SimFs::new(ROOT), VirtualClock::new(at(0)));
    let db = open(&fs, &clock, Settings::default()).unwrap();
    made(&db, CollectionOptions::new("t")).insert_documents(&[row(0, 1)]).unwrap();
    db.abandon();
    let files = fs.files();
    let manifest = files.iter().find(|p| p.to_string_lossy().contains("MANIFEST")).unwrap();
    fs.remove(manifest).unwrap();
    let error = open(&fs, &clock, Settings::default()).unwrap_err();
    assert_eq!(error.code(), Code::DataCorruptionDetected, "{error}");
    assert!(fs.files().iter().any(|p| p.to_string_lossy().contains("wal-")));
}

/// A clock that lets a test act between the reading of it and what comes of it.
struct Interrupted {
    clock: VirtualClock,
    act: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.clock.fmt(f)
    }
}

impl Clock for Interrupted {
    fn now(&self) -> Timestamp {
        let now = self.clock.now();
        let act = self.act.lock().unwrap().take();
        if let Some(act) = act {
            act();
        }
        now
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }
}

#[test]
fn a_sweep_at_a_later_instant_takes_nothing_from_a_snapshot() {
    let virtual_clock = VirtualClock::new(at(0));
    let clock = Arc::new(Interrupted { clock: virtual_clock.clone(), act: Mutex::new(None) });
    let db = Database::builder(ROOT).fs(Arc::new(SimFs::new(ROOT))).clock(clock.clone()).open().unwrap();
    let c = made(&db, CollectionOptions::new("t").expire_after_seconds(60));
    c.insert_documents(&[row(0, 1)]).unwrap();
    let other = db.clone();
    *clock.act.lock().unwrap() = Some(Box::new(move || {
        virtual_clock.set(at(100));
        assert_eq!(other.sweep().unwrap().counts.deleted_documents, 1);
    }));
    let snapshot = db.snapshot();
    assert_eq!(snapshot.now(), at(0));
    assert_eq!(snapshot.collection("c").unwrap().count().unwrap(), 1);
}

#[test]
fn whole_numbers_in_lists_lose_no_precision_either() {
    let db = open(&SimFs::new(ROOT), &VirtualClock::new(at(0)), Settings::default()).unwrap();
    let c = made(&db, CollectionOptions::new("t"));
    let list = |x: Value| Value::Object(vec![("x".into(), Value::Array(vec![x]))]);
    c.insert_documents(&[document(0, "l", list(Value::Int(9_007_199_254_740_993)))]).unwrap();
    let error = c.insert_documents(&[document(1, "l", list(Value::Double(0.5)))]).unwrap_err();
    assert_eq!(error.code(), Code::TypeMismatch);
    // Once it is deleted, nothing stands in the way.
    c.delete(&Filter::everything()).unwrap();
    c.insert_documents(&[document(1, "l", list(Value::Double(0.5)))]).unwrap();
}

#[test]
fn what_is_compacted_while_a_field_widens_can_be_read_after_a_power_cut() {
    let (sim, clock) = (SimFs::new(ROOT), VirtualClock::new(at(0)));
    let fs = Hooked::new(&sim);
    let db = open(&fs, &clock, interval()).unwrap();
    let a = db.create_collection("a", CollectionOptions::new("t")).unwrap();
    let c = made(&db, CollectionOptions::new("t"));
    for i in 0..2 {
        a.insert_documents(&[row(i, i)]).unwrap();
        c.insert_documents(&[row(i, i)]).unwrap();
        db.flush().unwrap();
    }
    // Acknowledged while `a` is compacted, and lost with the power.
    fs.before_segment(move || {
        c.insert_documents(&[document(9, "v", Value::Double(0.5))]).unwrap();
    });
    db.compact(None).unwrap();
    let after = sim.crash(Variant::V0, 1);
    let db = open(&after, &clock, Settings::default()).unwrap();
    let report = db.verify().unwrap();
    assert_eq!(report.faults, Vec::<String>::new());
}

#[test]
fn a_collection_is_dropped_on_a_full_disk_without_an_error() {
    let (fs, clock) = (SimFs::new(ROOT), VirtualClock::new(at(0)));
    let db = open(&fs, &clock, Settings::default()).unwrap();
    let c = made(&db, CollectionOptions::new("t"));
    c.insert_documents(&[row(0, 1)]).unwrap();
    fs.set_capacity(Some(fs.used() + 20)); // Room for the edit, not for a new log.
    db.drop_collection("c").unwrap();
    assert!(db.collections().is_empty());
}

#[test]
fn a_panic_while_the_log_is_written_does_not_hang_the_other_writers() {
    let (sim, clock) = (SimFs::new(ROOT), VirtualClock::new(at(0)));
    let fs = Hooked::new(&sim);
    let settings = Settings { wal_file_bytes_max: 1 << 10, ..Settings::default() };
    let db = open(&fs, &clock, settings).unwrap();
    let c = made(&db, CollectionOptions::new("t"));
    *fs.hook.lock().unwrap() = Some(Box::new(|_| panic!("on purpose")));
    let insert = |i: i64| std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| c.insert_documents(&[row(i, i)])));
    let panicked = (0..100).position(|i| insert(i).is_err());
    assert!(panicked.is_some(), "a new log file is created at some time");
    let error = insert(100).unwrap().unwrap_err();
    assert_eq!(error.code(), Code::NotWritable);
    assert_eq!(count(&db), panicked.unwrap() as u64);
}

#[test]
fn a_measurement_that_comes_while_the_span_grows_has_the_same_window_after_a_restart() {
    let (sim, clock) = (SimFs::new(ROOT), VirtualClock::new(at(0)));
    let fs = Hooked::new(&sim);
    let db = open(&fs, &clock, Settings::default()).unwrap();
    let c = made(&db, CollectionOptions::new("t").span_seconds(60));
    c.insert_documents(&[row(0, 1)]).unwrap();
    fs.before_segment(move || {
        c.insert_documents(&[row(61, 2)]).unwrap();
    });
    let bucketing = ebbtide::ttl::Bucketing::Custom { span_seconds: 3600 };
    let change = CollectionChange { bucketing: Some(bucketing), ..CollectionChange::default() };
    db.modify_collection("c", &change, None).unwrap();
    let windows = |db: &Database| -> Vec<_> {
        let buckets = db.snapshot().collection("c").unwrap().buckets().unwrap();
        buckets.iter().map(|b| (b.window_start, b.window_end)).collect()
    };
    let before = windows(&db);
    db.abandon();
    let db = open(&sim, &clock, Settings::default()).unwrap();
    assert_eq!(windows(&db), before);
}

#[test]
fn a_lenient_insert_names_bad_measurements_by_their_place_and_stays_fast_with_many() {
    let db = open(&SimFs::new(ROOT), &VirtualClock::new(at(0)), Settings::default()).unwrap();
    let c = made(&db, CollectionOptions::new("t"));
    let documents: Vec<Value> =
        (0..40_000).map(|i| if i % 2 == 0 { row(i, i) } else { document(i, "v", Value::from("text")) }).collect();
    let reply = c.insert_documents_lenient(&documents).unwrap();
    assert_eq!((reply.stored, reply.errors.len()), (20_000, 20_000));
    for (at, (index, error)) in reply.errors.iter().enumerate() {
        assert_eq!((*index, error.index()), (2 * at + 1, Some(*index)));
        assert!(error.to_string().starts_with(&format!("index {index}: ")), "{error}");
    }
}

#[test]
fn sealed_logs_leave_a_full_disk_even_if_a_new_log_finds_no_room() {
    let (fs, clock) = (SimFs::new(ROOT), VirtualClock::new(at(0)));
    let settings = Settings { wal_file_bytes_max: 1 << 10, ..Settings::default() };
    let db = open(&fs, &clock, settings).unwrap();
    let c = made(&db, CollectionOptions::new("t"));
    for i in 0..50 {
        c.insert_documents(&[row(i, i)]).unwrap();
    }
    let logs = || fs.files().iter().filter(|p| p.extension().is_some_and(|e| e == "log")).count();
    assert!(logs() > 2);
    fs.set_capacity(Some(fs.used() + 20)); // Room for the edit, not for a new log.
    db.drop_collection("c").unwrap();
    assert!(logs() <= 2); // The one in use, and what is left of the attempt at a new one.
}

#[test]
fn a_log_that_the_manifest_could_not_name_is_removed_again() {
    let (fs, clock) = (SimFs::new("/data"), VirtualClock::new(at(0)));
    let db = open(&fs, &clock, Settings { wal_file_bytes_max: 1 << 10, ..Settings::default() }).unwrap();
    let c = made(&db, CollectionOptions::new("t"));
    let is_log = |path: &PathBuf| path.to_string_lossy().contains("/wal-");
    let logs = || fs.files().into_iter().filter(is_log).collect::<Vec<_>>();
    // The zeros behind the last record are cut off before another log is begun.
    let ends = || {
        let log = fs.read(logs().last().unwrap()).unwrap();
        (log.len() - log.iter().rev().take_while(|byte| **byte == 0).count(), log.len())
    };
    while ends().0 < 1 << 10 {
        c.insert_documents(&[row(0, 1)]).unwrap();
    }
    let before = logs();
    let (used, length) = ends();
    // Room for the header of another log, but not for the edit that names it.
    fs.set_capacity(Some(fs.used() - (length - used) as u64 + 40));
    assert_eq!(c.insert_documents(&[row(0, 1)]).unwrap_err().code(), Code::OutOfDiskSpace);
    assert_eq!(logs(), before);
    fs.set_capacity(None);
    c.insert_documents(&[row(0, 1)]).unwrap();
    assert_eq!(logs().len(), before.len() + 1);
}

#[test]
fn a_database_on_a_full_disk_opens_and_can_be_swept() {
    for room in [0, 20, 4000] {
        let (fs, clock) = (SimFs::new(ROOT), VirtualClock::new(at(0)));
        let db = open(&fs, &clock, Settings::default()).unwrap();
        let c = made(&db, CollectionOptions::new("t").expire_after_seconds(60));
        c.insert_documents(&(0..1000).map(|i| row(i % 60, i)).collect::<Vec<_>>()).unwrap();
        db.flush().unwrap();
        c.insert_documents(&(0..1000).map(|i| row(86_400 + i % 60, i)).collect::<Vec<_>>()).unwrap();
        drop(c);
        db.abandon();
        fs.set_capacity(Some(fs.used() + room));
        clock.set(at(86_400));
        let db = open(&fs, &clock, Settings::default()).unwrap();
        assert_eq!(count(&db), 1000);
        assert_eq!(db.sweep().unwrap().counts.deleted_documents, 1000);
        assert_eq!(count(&db), 1000);
    }
}

#[test]
fn a_manifest_whose_end_is_damaged_at_rest_is_repaired_when_that_made_a_collection() {
    let fs = SimFs::new(ROOT);
    let clock = VirtualClock::new(at(100));
    let builder = |fs: &SimFs| Database::builder(ROOT).fs(Arc::new(fs.clone())).clock(Arc::new(clock.clone()));
    let db = builder(&fs).open().unwrap();
    let c = db.create_collection("c", CollectionOptions::new("t")).unwrap();
    c.insert_documents(&[row(1, 1), row(2, 2)]).unwrap();
    let disk = fs.fork();
    let manifest = disk.files().into_iter().find(|path| path.to_string_lossy().contains("MANIFEST-")).unwrap();
    disk.tamper(&manifest, |bytes| *bytes.last_mut().unwrap() ^= 1).unwrap();

    assert_eq!(builder(&disk.fork()).open().unwrap_err().code(), Code::DataCorruptionDetected);
    let report = builder(&disk).repair(ebbtide::RepairMode::Apply).unwrap();
    assert!(report.changes_lost && !report.is_clean(), "{report}");
    assert_eq!(report.rows_lost(), 2, "{report}");
    assert_eq!(report.set_aside.len(), 2, "the manifest and the log: {report}");
    let db = builder(&disk).open().unwrap();
    assert_eq!(db.snapshot().collections(), Vec::<String>::new());
    let d = db.create_collection("d", CollectionOptions::new("t")).unwrap();
    d.insert_documents(&[row(3, 3)]).unwrap();
    let db = builder(&disk.crash(Variant::V0, 1)).open().unwrap();
    assert_eq!(db.collection("d").unwrap().snapshot().unwrap().count().unwrap(), 1);
}

#[test]
fn closing_syncs_what_came_while_it_sealed() {
    let (fs, clock) = (SimFs::new(ROOT), VirtualClock::new(at(0)));
    let hooked = Hooked::new(&fs);
    let db = open(&hooked, &clock, interval()).unwrap();
    let c = made(&db, CollectionOptions::new("t"));
    c.insert_documents(&[row(0, 1)]).unwrap();
    hooked.before_segment(move || assert_eq!(c.insert_documents(&[row(1, 2)]).unwrap(), 1));
    db.close().unwrap();
    let db = open(&fs.crash(Variant::V0, 1), &clock, Settings::default()).unwrap();
    assert_eq!(count(&db), 2);
}

#[test]
fn the_last_handle_of_a_database_syncs_what_was_acknowledged() {
    let (fs, clock) = (SimFs::new(ROOT), VirtualClock::new(at(0)));
    let db = open(&fs, &clock, interval()).unwrap();
    made(&db, CollectionOptions::new("t")).insert_documents(&[row(0, 1)]).unwrap();
    drop(db);
    let db = open(&fs.crash(Variant::V0, 1), &clock, Settings::default()).unwrap();
    assert_eq!(count(&db), 1);
}

/// Wants the metas that are this text; fails on those that are another one.
#[derive(Debug)]
struct Picky(&'static str);

impl MetaFilter for Picky {
    fn select(&self, metas: &ArrayRef) -> Result<BooleanArray, ArrowError> {
        let wanted = |i| match value_at(metas.as_ref(), i) {
            Value::Null => Ok(Some(false)),
            Value::String(text) if text == self.0 => Ok(Some(true)),
            other => Err(ArrowError::ComputeError(format!("{other:?}"))),
        };
        (0..metas.len()).map(wanted).collect()
    }
}

fn chosen(db: &Database, filter: Picky) -> ebbtide::Result<u64> {
    let request = ScanRequest { meta: Some(Arc::new(filter)), ..ScanRequest::default() };
    let units = db.collection("c")?.snapshot()?.scan(&request)?;
    units
        .iter()
        .try_fold(0, |sum, unit| unit.read()?.try_fold(sum, |sum, batch| batch.map(|b| sum + b.num_rows() as u64)))
}

#[test]
fn a_filter_of_metas_chooses_nothing_where_no_measurement_has_a_meta() {
    let db = open(&SimFs::new(ROOT), &VirtualClock::new(at(0)), Settings::default()).unwrap();
    let c = made(&db, CollectionOptions::new("t").meta_field("m"));
    c.insert_documents(&[row(0, 1), row(1, 2)]).unwrap();
    assert_eq!(chosen(&db, Picky("a")).unwrap(), 0);
    db.flush().unwrap();
    assert_eq!(chosen(&db, Picky("a")).unwrap(), 0);
}

#[test]
fn a_filter_that_fails_on_metas_of_which_nothing_is_seen_is_no_error() {
    let clock = VirtualClock::new(at(0));
    let db = open(&SimFs::new(ROOT), &clock, Settings::default()).unwrap();
    let c = made(&db, CollectionOptions::new("t").meta_field("m").expire_after_seconds(60));
    let of = |seconds, meta| document(seconds, "m", Value::from(meta));
    c.insert_documents(&[of(0, "gone"), of(30, "a"), of(40, "a")]).unwrap();
    for _ in ["open", "sealed"] {
        clock.set(at(20));
        assert!(chosen(&db, Picky("a")).unwrap_err().to_string().contains("gone"));
        clock.set(at(65));
        assert_eq!(chosen(&db, Picky("a")).unwrap(), 2);
        db.flush().unwrap();
    }
}

#[test]
fn the_first_bad_row_of_a_batch_is_named_whichever_column_it_is_in() {
    use arrow::array::{Int64Array, RecordBatch, StringArray, TimestampMillisecondArray};
    let db = open(&SimFs::new(ROOT), &VirtualClock::new(at(0)), Settings::default()).unwrap();
    let c = made(&db, CollectionOptions::new("t"));
    let wide = 9_007_199_254_740_993;
    let double = |field: &str| document(0, field, Value::Double(0.5));
    c.insert_documents(&[double("a"), double("b")]).unwrap();
    let refused = |a: [Option<i64>; 3], b: [Option<i64>; 3]| {
        let columns: [(&str, ArrayRef); 3] = [
            ("t", Arc::new(TimestampMillisecondArray::from(vec![0; 3]))),
            ("a", Arc::new(Int64Array::from(a.to_vec()))),
            ("b", Arc::new(Int64Array::from(b.to_vec()))),
        ];
        let error = c.insert(&RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true))).unwrap());
        error.unwrap_err().index()
    };
    assert_eq!(refused([None, None, Some(wide)], [None, Some(wide), None]), Some(1));
    assert_eq!(refused([None, Some(wide), None], [None, None, Some(wide)]), Some(1));
    assert_eq!(refused([None, None, Some(wide)], [Some(wide), None, Some(wide)]), Some(0));
    let texts: ArrayRef = Arc::new(StringArray::from(vec![None, None, Some("x")]));
    let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![Some(0), None, Some(0)]));
    let batch = RecordBatch::try_from_iter_with_nullable([("a", texts, true), ("t", times, true)]).unwrap();
    assert_eq!(c.insert(&batch).unwrap_err().index(), Some(1));
    assert_eq!(c.snapshot().unwrap().count().unwrap(), 2);
}

#[test]
fn an_old_edit_in_the_place_of_one_that_a_power_cut_tore_is_no_edit() {
    let fs = SimFs::new(ROOT);
    let clock = VirtualClock::new(at(100));
    let builder = |fs: &SimFs| Database::builder(ROOT).fs(Arc::new(fs.clone())).clock(Arc::new(clock.clone()));
    let db = builder(&fs).open().unwrap();
    db.create_collection("c", CollectionOptions::new("t")).unwrap();
    let disk = fs.fork();
    let manifest = disk.files().into_iter().find(|path| path.to_string_lossy().contains("MANIFEST-")).unwrap();
    // Everything before, once more behind some garbage: whole edits, in the wrong place.
    disk.tamper(&manifest, |bytes| bytes.extend([&[7; 30], bytes.clone().as_slice()].concat())).unwrap();
    assert_eq!(builder(&disk).open().unwrap().snapshot().collections(), ["c"]);
}

/// What a power cut leaves in the place of a torn record may be an older one: bytes of another place of the disk.
#[test]
fn an_older_record_in_the_place_of_a_torn_one_counts_as_torn() {
    let (fs, clock) = (SimFs::new(ROOT), VirtualClock::new(at(0)));
    let db = open(&fs, &clock, Settings::default()).unwrap();
    let c = made(&db, CollectionOptions::new("t"));
    c.insert_documents(&[row(1, 1)]).unwrap();
    c.insert_documents(&[row(2, 2)]).unwrap();
    drop(c);
    db.abandon();
    let log = fs.files().into_iter().find(|p| p.extension().is_some_and(|e| e == "log")).unwrap();
    let (header, whole) = (36, fs.read(&log).unwrap());
    let first = header + 36 + u32::from_le_bytes(whole[header..header + 4].try_into().unwrap()) as usize;
    fs.tamper(&log, |bytes| bytes.extend_from_slice(&whole[header..first])).unwrap();
    let db = open(&fs, &clock, Settings::default()).unwrap();
    assert_eq!(count(&db), 2);
}

/// After a sync that failed and lost what it should have written, a second one proves nothing: what opening keeps has to
/// be written anew, also when the disk is full for a moment.
#[test]
fn a_log_that_a_failed_sync_lost_is_written_anew_though_the_disk_is_full_at_first() {
    for step in 0..12 {
        let (fs, clock) = (SimFs::new(ROOT), VirtualClock::new(at(0)));
        let db = open(&fs, &clock, Settings::default()).unwrap();
        let c = made(&db, CollectionOptions::new("t"));
        c.insert_documents(&[row(1, 1)]).unwrap();
        let sync = fs.mutating_ops() + 1;
        fs.fail_op(sync, Fault { kind: FaultKind::SyncEioDropped, repeat: Repeat::Once });
        c.insert_documents(&[row(2, 2)]).unwrap_err();
        drop(c);
        db.abandon();
        fs.fail_op(fs.mutating_ops() + step, Fault { kind: FaultKind::Enospc, repeat: Repeat::Once });
        let Ok(db) = open(&fs, &clock, Settings::default()) else { continue };
        let kept = count(&db);
        db.abandon();
        let cut = fs.crash(Variant::V0, step);
        let db = open(&cut, &clock, Settings::default()).unwrap_or_else(|e| panic!("step {step}: {e}"));
        assert_eq!(count(&db), kept, "step {step}");
    }
}

/// A full disk refused every write, and nothing but the errors of the writers told of it.
#[test]
fn a_full_disk_is_told_of_until_a_write_succeeds_or_none_was_tried_for_a_while() {
    let (fs, clock) = (SimFs::new(ROOT), VirtualClock::new(at(0)));
    let db = open(&fs, &clock, Settings::default()).unwrap();
    let c = made(&db, CollectionOptions::new("t"));
    let is_full = || db.write_failure().map(|error| error.code()) == Some(Code::OutOfDiskSpace);
    let fail = || {
        fs.fail_op(fs.mutating_ops(), Fault { kind: FaultKind::Enospc, repeat: Repeat::Once });
        let error = c.insert_documents(&[row(1, 1)]).unwrap_err();
        assert_eq!(error.code(), Code::OutOfDiskSpace);
    };
    fail();
    assert!(is_full());
    c.insert_documents(&[row(1, 1)]).unwrap();
    assert!(db.write_failure().is_none());
    fail();
    assert!(is_full());
    clock.set(at(120_000));
    assert!(db.write_failure().is_none());
}
