//! Hand-off: what a sink gets before a bucket is dropped, and what happens if it says no, nothing, or too late.

use super::*;
use ebbtide::fs::sim::Variant;
use ebbtide::ttl::{Code, Filter};
use ebbtide::{CollectionChange, ExpiredBucket, ExpirySink, HoldOptions, SinkError, SweepOptions};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

const HOUR: i64 = 3600;

/// Identity, rows and checksum of a bucket.
type Taken = (Value, Timestamp, u64, usize, u32);

/// Remembers what it got; refuses everything while it is told to.
#[derive(Default)]
struct Archive {
    taken: Mutex<Vec<Taken>>,
    commits: Mutex<Vec<usize>>,
    refuses: AtomicBool,
    refuses_commits: AtomicBool,
}

impl Archive {
    fn new() -> Arc<Archive> {
        Arc::default()
    }

    fn taken(&self) -> Vec<Taken> {
        std::mem::take(&mut *self.taken.lock().unwrap())
    }

    fn rows(&self) -> usize {
        self.taken().iter().map(|taken| taken.3).sum()
    }

    fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::SeqCst);
    }
}

impl ExpirySink for Archive {
    fn hand_over(&self, bucket: &ExpiredBucket) -> Result<(), SinkError> {
        if self.refuses.load(Ordering::SeqCst) {
            return Err("the archive is closed".into());
        }
        let ExpiredBucket { meta, window, generation, rows, checksum, .. } = bucket;
        self.taken.lock().unwrap().push((meta.clone(), window.0, *generation, rows.num_rows(), *checksum));
        Ok(())
    }

    fn commit(&self) -> Result<(), SinkError> {
        self.commits.lock().unwrap().push(self.taken.lock().unwrap().len());
        if self.refuses_commits.load(Ordering::SeqCst) { Err("no room".into()) } else { Ok(()) }
    }

    fn buckets_at_once(&self) -> usize {
        2
    }
}

fn state_of(db: &Database) -> String {
    db.snapshot().collection("weather").unwrap().rule_infos().unwrap()[0].state.clone()
}

/// A collection with a reading a minute of three sensors in one window, and what expires in an hour.
fn filled(db: &Database) -> Collection {
    let c = db.create_collection("weather", weather().expire_after_seconds(HOUR)).unwrap();
    let rows: Vec<Value> = (0..30).map(|v| reading(v * 60, ["a", "b", "c"][v as usize % 3], v)).collect();
    c.insert_documents(&rows).unwrap();
    c
}

#[test]
fn a_sink_gets_every_bucket_once_with_its_identity_and_then_it_is_dropped() {
    let sim = Sim::new();
    let db = sim.open();
    let c = filled(&db);
    db.flush().unwrap();
    // A second piece of one of the buckets, earlier than the first.
    c.insert_documents(&[reading(1, "a", 100)]).unwrap();
    let archive = Archive::new();
    db.on_expiry("weather", archive.clone()).unwrap();
    assert_eq!(state_of(&db), "active, handOff: required");
    assert_eq!(db.sweep().unwrap().counts.deleted_buckets, 0);
    assert_eq!(archive.taken(), []);
    sim.clock.set(at(2 * HOUR));
    let report = db.sweep().unwrap();
    assert_eq!((report.counts.deleted_buckets, report.counts.deleted_documents), (3, 31));
    let taken = archive.taken();
    let identities: Vec<_> = taken.iter().map(|t| (t.0.clone(), t.1, t.2, t.3)).collect();
    let of = |sensor: &str, generation, rows| (Value::from(sensor), at(0), generation, rows);
    assert_eq!(identities, [of("a", 0, 11), of("b", 1, 10), of("c", 2, 10)]);
    assert_eq!(*archive.commits.lock().unwrap(), [2, 3], "two buckets at once");
    assert_eq!(db.sweeps()[0].rule, "collection");
    // The same bucket again, later.
    c.insert_documents(&[reading(2, "b", 101)]).unwrap();
    assert_eq!(db.sweep().unwrap().counts.deleted_buckets, 1);
    let taken = archive.taken();
    assert_eq!((taken[0].0.clone(), taken[0].2, taken[0].3), (Value::from("b"), 3, 1));
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
}

#[test]
fn rows_come_in_order_of_time_and_with_a_checksum_that_tells_them_apart() {
    let sim = Sim::new();
    let db = sim.open();
    let c = filled(&db);
    db.flush().unwrap();
    c.insert_documents(&[reading(1, "a", 100), reading(90, "a", 101)]).unwrap();
    sim.clock.set(at(2 * HOUR));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let seen = seen.clone();
        move |bucket: &ExpiredBucket| -> Result<(), SinkError> {
            let times = ebbtide::buckets::times(&bucket.rows)?.to_vec();
            seen.lock().unwrap().push((bucket.rule.clone(), times, bucket.checksum));
            Err("only looking".into())
        }
    };
    db.on_expiry("weather", Arc::new(sink)).unwrap();
    for _ in 0..2 {
        let report = db.sweep().unwrap();
        assert_eq!((report.counts.deleted_buckets, report.counts.failed_rules), (0, 1));
    }
    c.delete(&Filter::eq("v", Value::Int(100))).unwrap();
    db.sweep().unwrap();
    let seen = seen.lock().unwrap();
    assert!(seen.iter().all(|(rule, times, _)| rule == "collection" && times.is_sorted()), "{seen:?}");
    // Each pass shows the buckets of three sensors.
    assert_eq!((seen[0].1.len(), seen[6].1.len()), (12, 11));
    assert_eq!(seen[0].2, seen[3].2, "the same rows");
    assert_ne!(seen[3].2, seen[6].2, "other rows");
}

#[test]
fn a_no_leaves_the_bucket_hidden_for_the_next_pass_and_is_shown() {
    let sim = Sim::new();
    let db = sim.open();
    filled(&db);
    let archive = Archive::new();
    db.on_expiry("weather", archive.clone()).unwrap();
    sim.clock.set(at(2 * HOUR));
    archive.refuse(true);
    let report = db.sweep().unwrap();
    assert_eq!((report.counts.deleted_buckets, report.counts.failed_rules), (0, 1));
    assert_eq!(numbers(&db), NOTHING);
    assert_eq!(state_of(&db), "active, handOff: required, failed: the archive is closed");
    archive.refuse(false);
    archive.refuses_commits.store(true, Ordering::SeqCst);
    assert_eq!(db.sweep().unwrap().counts.deleted_buckets, 0, "what is not committed stays");
    assert_eq!(state_of(&db), "active, handOff: required, failed: no room");
    archive.refuses_commits.store(false, Ordering::SeqCst);
    let first = archive.taken();
    assert_eq!(db.sweep().unwrap().counts.deleted_buckets, 3);
    assert_eq!(archive.taken()[..2], first[..], "again, under the same identities");
    assert_eq!(state_of(&db), "active, handOff: required");
}

#[test]
fn a_crash_between_hand_off_and_drop_hands_over_again_under_the_same_identity() {
    let sim = Sim::new();
    let db = sim.open();
    filled(&db);
    let disk = Arc::new(Mutex::new(None));
    let archive = Archive::new();
    let sink = {
        let (fs, disk, archive) = (sim.fs.clone(), disk.clone(), archive.clone());
        move |bucket: &ExpiredBucket| -> Result<(), SinkError> {
            *disk.lock().unwrap() = Some(fs.crash(Variant::V0, 0));
            archive.hand_over(bucket)
        }
    };
    db.on_expiry("weather", Arc::new(sink)).unwrap();
    sim.clock.set(at(2 * HOUR));
    assert_eq!(db.sweep().unwrap().counts.deleted_buckets, 3);
    let before = archive.taken();
    drop(db);
    let crashed = sim.on(disk.lock().unwrap().take().unwrap());
    for _ in 0..2 {
        crashed.open().close().unwrap();
    }
    let db = crashed.open();
    // It remembers that it has a sink, and drops nothing without.
    assert_eq!(db.sweep().unwrap().counts.deleted_buckets, 0);
    assert_eq!(state_of(&db), "active, handOff: required");
    db.on_expiry("weather", archive.clone()).unwrap();
    assert_eq!(db.sweep().unwrap().counts.deleted_buckets, 3);
    assert_eq!(archive.taken(), before);
}

/// What happens to a database while a bucket of it is handed over.
#[derive(Debug, Clone, Copy)]
enum Change {
    LateMeasurement,
    Delete,
    LongerLife,
    Hold,
}

impl Change {
    fn make(self, db: &Database) {
        let c = db.collection("weather").unwrap();
        match self {
            Change::LateMeasurement => assert_eq!(c.insert_documents(&[reading(5, "a", 7)]).unwrap(), 1),
            Change::Delete => assert_eq!(c.delete(&Filter::eq("v", Value::Int(0))).unwrap(), 0, "it is hidden"),
            Change::LongerLife => {
                let longer = Some(Some(DAY));
                let change = CollectionChange { expire_after_seconds: longer, ..CollectionChange::default() };
                db.modify_collection("weather", &change, None).unwrap();
            }
            Change::Hold => db.create_hold("h", "weather", HoldOptions::new("why")).unwrap(),
        }
    }
}

#[test]
fn a_bucket_that_changes_while_it_is_handed_over_is_not_dropped_and_handed_over_again() {
    for change in [Change::LateMeasurement, Change::Delete, Change::LongerLife, Change::Hold] {
        let sim = Sim::new();
        let db = sim.open();
        filled(&db);
        db.flush().unwrap();
        let (other, done, archive) = (db.clone(), AtomicBool::new(false), Archive::new());
        let sink = {
            let archive = archive.clone();
            move |bucket: &ExpiredBucket| -> Result<(), SinkError> {
                // While the bucket of sensor a is handed over.
                if !done.swap(true, Ordering::SeqCst) {
                    change.make(&other);
                }
                archive.hand_over(bucket)
            }
        };
        db.on_expiry("weather", Arc::new(sink)).unwrap();
        sim.clock.set(at(2 * HOUR));
        let (first, left) = (db.sweep().unwrap(), db.snapshot().collection("weather").unwrap().bucket_count().unwrap());
        let expected = match change {
            // The segment of all three has changed.
            Change::Delete => (0, 3),
            Change::LateMeasurement => (2, 1),
            Change::LongerLife | Change::Hold => (0, 3),
        };
        assert_eq!((first.counts.deleted_buckets, left), expected, "{change:?}");
        let before = archive.taken();
        if let Change::Hold = change {
            db.lift_hold("h").unwrap();
        }
        sim.clock.set(at(2 * DAY));
        assert_eq!(db.sweep().unwrap().counts.deleted_buckets, left, "{change:?}");
        let again = archive.taken();
        let identity = |taken: &Taken| (taken.0.clone(), taken.1, taken.2);
        assert_eq!(identity(&again[0]), identity(&before[0]), "{change:?}");
        let rows = match change {
            Change::LateMeasurement => 11,
            Change::Delete => 9,
            Change::LongerLife | Change::Hold => 10,
        };
        assert_eq!((before[0].3, again[0].3), (10, rows), "{change:?}");
    }
}

/// Hangs until it is released.
struct Hanging {
    entered: Mutex<Sender<()>>,
    released: Mutex<Receiver<()>>,
}

impl ExpirySink for Hanging {
    fn hand_over(&self, _: &ExpiredBucket) -> Result<(), SinkError> {
        self.entered.lock().unwrap().send(())?;
        self.released.lock().unwrap().recv()?;
        Ok(())
    }
}

#[test]
fn a_sink_that_hangs_delays_only_its_own_collection_and_is_not_called_meanwhile() {
    let sim = Sim::new();
    let db = sim.open();
    filled(&db);
    let other = db.create_collection("other", weather().expire_after_seconds(HOUR)).unwrap();
    other.insert_documents(&readings(0..3)).unwrap();
    db.set_parameter("ttlHandOffTimeoutMS", &Value::Int(1)).unwrap();
    let (entered, entries) = channel();
    let (release, released) = channel();
    let hanging = Hanging { entered: Mutex::new(entered), released: Mutex::new(released) };
    db.on_expiry("weather", Arc::new(hanging)).unwrap();
    sim.clock.set(at(2 * HOUR));
    let report = db.sweep().unwrap();
    assert_eq!((report.counts.deleted_documents, report.counts.failed_rules), (3, 1));
    assert_eq!(state_of(&db), "active, handOff: required, failed: no answer within 1 ms");
    entries.recv().unwrap();
    let report = db.sweep().unwrap();
    assert_eq!((report.counts.deleted_documents, report.counts.failed_rules), (0, 1));
    assert!(state_of(&db).ends_with("the sink has not answered yet"));
    assert!(entries.try_recv().is_err(), "it was not called again");
    drop(release);
}

#[test]
fn a_sink_that_panics_has_said_no() {
    let sim = Sim::new();
    let db = sim.open();
    filled(&db);
    db.on_expiry("weather", Arc::new(|_: &ExpiredBucket| -> Result<(), SinkError> { panic!("a bug") })).unwrap();
    sim.clock.set(at(2 * HOUR));
    let report = db.sweep().unwrap();
    assert_eq!((report.counts.deleted_buckets, report.counts.failed_rules), (0, 1));
    assert!(state_of(&db).ends_with("failed: the sink panicked"));
}

#[test]
fn a_sweep_without_sink_drops_where_one_is_required_and_one_with_a_sink_hands_over_everything() {
    let sim = Sim::new();
    let db = sim.open();
    filled(&db);
    let required = CollectionChange { hand_off: Some(true), ..CollectionChange::default() };
    db.modify_collection("weather", &required, None).unwrap();
    let other = db.create_collection("other", weather().expire_after_seconds(HOUR)).unwrap();
    other.insert_documents(&readings(0..3)).unwrap();
    sim.clock.set(at(2 * HOUR));
    let archive = Archive::new();
    archive.refuse(true);
    let with_sink = || SweepOptions { sink: Some(archive.clone()), ..SweepOptions::default() };
    assert_eq!(db.sweep_with(&with_sink()).unwrap().counts.deleted_buckets, 0);
    archive.refuse(false);
    assert_eq!(db.sweep_with(&with_sink()).unwrap().counts.deleted_documents, 33);
    assert_eq!(archive.rows(), 33);
    db.drop_collection("weather").unwrap();
    filled(&db);
    db.modify_collection("weather", &required, None).unwrap();
    assert_eq!(db.sweep().unwrap().counts.deleted_buckets, 0);
    let without = SweepOptions { without_sink: true, ..SweepOptions::default() };
    assert_eq!(db.sweep_with(&without).unwrap().counts.deleted_buckets, 3);
    assert_eq!(archive.rows(), 0);
}

#[test]
fn what_goes_by_size_is_handed_over_too_even_while_the_clock_is_held() {
    let sim = Sim::new();
    let db = sim.open();
    let c = db.create_collection("weather", weather().expire_after_seconds(DAY).max_bytes(1)).unwrap();
    let rows: Vec<Value> = (0..5).map(|v| reading(v * HOUR, "a", v)).collect();
    c.insert_documents(&rows).unwrap();
    let archive = Archive::new();
    db.on_expiry("weather", archive.clone()).unwrap();
    sim.clock.jump(at(100 * DAY));
    let report = db.sweep().unwrap();
    assert!(report.held.is_some());
    assert_eq!((report.counts.deleted_buckets, archive.rows()), (4, 4));
    assert_eq!(db.sweeps().last().unwrap().rule, "size");
}

#[test]
fn a_sink_is_for_time_series_and_its_removal_ends_the_hand_off() {
    let sim = Sim::new();
    let db = sim.open();
    filled(&db);
    db.create_documents("papers", ebbtide::DocumentsOptions::default()).unwrap();
    let refused = |name: &str| db.on_expiry(name, Archive::new()).unwrap_err().code();
    assert_eq!((refused("papers"), refused("nothing")), (Code::InvalidOptions, Code::NamespaceNotFound));
    let archive = Archive::new();
    db.on_expiry("weather", archive.clone()).unwrap();
    db.remove_expiry_sink("weather").unwrap();
    assert_eq!(state_of(&db), "active");
    sim.clock.set(at(2 * HOUR));
    assert_eq!((db.sweep().unwrap().counts.deleted_buckets, archive.rows()), (3, 0));
}

#[test]
fn a_bucket_that_is_always_refused_holds_up_no_other() {
    let sim = Sim::new();
    let db = sim.open();
    let c = db.create_collection("weather", weather().expire_after_seconds(HOUR)).unwrap();
    let rows: Vec<Value> = (0..40).map(|v| reading(v, &format!("s{v:02}"), v)).collect();
    c.insert_documents(&rows).unwrap();
    let left = || db.snapshot_at(at(0)).collection("weather").unwrap().count().unwrap();
    // More in a row than a pass asks about.
    let refuses = |bucket: &ExpiredBucket| -> Result<(), SinkError> {
        let refused = bucket.meta < Value::from("s20");
        if refused { Err("not these".into()) } else { Ok(()) }
    };
    db.on_expiry("weather", Arc::new(refuses)).unwrap();
    sim.clock.set(at(2 * HOUR));
    let mut passes = Vec::new();
    for _ in 0..4 {
        passes.push((db.sweep().unwrap().counts.failed_rules, left()));
        assert!(state_of(&db).ends_with("failed: not these"));
    }
    assert_eq!(passes.last(), Some(&(1, 20)), "{passes:?}");
    assert_eq!(passes[1].1, 20, "what was refused comes last the next time: {passes:?}");
    db.on_expiry("weather", Archive::new()).unwrap();
    assert_eq!((db.sweep().unwrap().counts.failed_rules, left()), (0, 0));
}

#[test]
fn creating_a_collection_again_after_its_sink_was_registered_is_no_conflict() {
    let sim = Sim::new();
    let start = || {
        let db = sim.open();
        db.create_collection("weather", weather().expire_after_seconds(HOUR)).unwrap();
        db.on_expiry("weather", Archive::new()).unwrap();
        db
    };
    start().close().unwrap();
    let db = start();
    let refused = db.create_collection("weather", weather().expire_after_seconds(60).max_bytes(1)).unwrap_err();
    assert_eq!(refused.code(), Code::NamespaceExists);
    assert!(refused.to_string().contains("(expireAfterSeconds, maxBytes)"), "{refused}");
    db.remove_expiry_sink("weather").unwrap();
    let required = ebbtide::CollectionOptions { hand_off: true, ..weather().expire_after_seconds(HOUR) };
    let refused = db.create_collection("weather", required).unwrap_err();
    assert!(refused.to_string().contains("(handOff)"), "{refused}");
}
