//! Copies: what is restored, or seen by a replica, is what the primary had acknowledged and shipped.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what it met")]

use ebbtide::fs::Fs;
use ebbtide::fs::sim::{SimFs, Variant};
use ebbtide::ttl::{Clock, Code, Filter, Timestamp, Value, VirtualClock};
use ebbtide::{
    Builder, CollectionChange, CollectionOptions, Database, DocumentsOptions, Replica, ScanRequest, Settings,
    ShipOptions, Shipper, bson::doc,
};
use ebbtide_lake::sim::{SimLake, SimStore};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const ROOT: &str = "/data/db";
const URL: &str = "s3://sim/copy";
const HOUR: i64 = 3600;

fn at(seconds: i64) -> Timestamp {
    Timestamp::parse("2024-01-01T00:00:00Z").unwrap().plus_seconds(seconds)
}

/// A machine with a disk, beside others that have the same store and the same time.
struct Machine {
    fs: SimFs,
    clock: VirtualClock,
    store: SimStore,
}

impl Machine {
    fn new(store: SimStore) -> Machine {
        Machine { fs: SimFs::new(ROOT), clock: VirtualClock::new(at(0)), store }
    }

    fn another(&self) -> Machine {
        Machine { fs: SimFs::new(ROOT), clock: self.clock.clone(), store: self.store.clone() }
    }

    fn builder(&self) -> Builder {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let places = Arc::new(SimLake::new(&self.store));
        // Small logs and memory, so that files come and go.
        let settings = Settings { wal_file_bytes_max: 4 << 10, memtable_bytes_max: 1 << 20, ..Settings::default() };
        Database::builder(ROOT).fs(Arc::new(self.fs.clone())).clock(clock).archives(places).settings(settings)
    }

    fn open(&self) -> Database {
        self.builder().open().unwrap()
    }

    fn shipper(&self, keep: Option<u64>) -> Shipper {
        let options = ShipOptions { keep: keep.map(Duration::from_secs), ..ShipOptions::default() };
        self.builder().shipper(URL, options).unwrap()
    }

    fn restored(&self, instant: Option<Timestamp>) -> (Machine, Database) {
        let machine = self.another();
        machine.builder().restore(URL, instant).unwrap();
        let db = machine.open();
        (machine, db)
    }
}

fn reading(seconds: i64, v: i64) -> Value {
    let sensor = ["a", "b", "c"][v.unsigned_abs() as usize % 3];
    Value::Object(vec![
        ("t".into(), Value::Date(at(seconds))),
        ("sensor".into(), Value::from(sensor)),
        ("v".into(), Value::Int(v)),
    ])
}

/// Everything that a database has stored and not hidden at an instant.
fn content(db: &Database, instant: Timestamp) -> BTreeMap<String, Vec<String>> {
    let snapshot = db.snapshot_at(instant);
    let mut content = BTreeMap::new();
    for name in db.collections() {
        let collection = snapshot.collection(&name).unwrap();
        let mut rows = Vec::new();
        for unit in collection.scan(&ScanRequest::default()).unwrap() {
            for batch in unit.read().unwrap() {
                let batch = batch.unwrap();
                for row in 0..batch.num_rows() {
                    let columns = batch.columns().iter();
                    let values: Vec<_> = columns.map(|c| ebbtide::buckets::value_at(c.as_ref(), row)).collect();
                    rows.push(format!("{values:?}"));
                }
            }
        }
        rows.sort_unstable();
        rows.push(format!("{:?}", collection.rules()));
        content.insert(name, rows);
    }
    for name in db.document_collections() {
        let found: Vec<ebbtide::bson::Document> = db.documents(&name).unwrap().find(&doc! {}).unwrap();
        let mut found: Vec<_> = found.iter().map(|document| format!("{document:?}")).collect();
        found.sort_unstable();
        content.insert(name, found);
    }
    content
}

fn weather(db: &Database) -> ebbtide::Collection {
    let options = CollectionOptions::new("t").meta_field("sensor").expire_after_seconds(HOUR);
    db.create_collection("weather", options).unwrap()
}

#[test]
fn a_database_is_restored_as_it_was_at_a_time_and_its_sweeper_is_held() {
    let machine = Machine::new(SimStore::new(1, 0));
    let db = machine.open();
    let mut shipper = machine.shipper(None);
    let c = weather(&db);
    c.insert_documents(&(0..30).map(|v| reading(v, v)).collect::<Vec<_>>()).unwrap();
    let first = shipper.ship_now().unwrap();
    assert_eq!((first.epoch, first.piece, first.shipped_until), (1, 1, Some(at(0))));
    machine.clock.set(at(100));
    db.flush().unwrap();
    c.insert_documents(&(30..40).map(|v| reading(v, v)).collect::<Vec<_>>()).unwrap();
    let before_delete = content(&db, at(100));
    shipper.ship_now().unwrap();
    machine.clock.set(at(200));
    c.delete(&Filter::eq("v", Value::Int(7))).unwrap();
    shipper.ship_now().unwrap();
    machine.clock.set(at(300));

    let (_, restored) = machine.restored(None);
    assert_eq!(content(&restored, at(200)), content(&db, at(200)));
    assert_eq!(restored.verify().unwrap().faults, Vec::<String>::new());
    let (_, restored) = machine.restored(Some(at(150)));
    assert_eq!(content(&restored, at(100)), before_delete);
    let error = machine.another().builder().restore(URL, Some(at(-1))).unwrap_err();
    assert_eq!(error.code(), Code::NamespaceNotFound, "{error}");

    // Much later everything has expired: hidden, and kept until somebody says that the clock is right.
    machine.clock.set(at(10 * HOUR));
    let (later, restored) = machine.restored(None);
    assert_eq!(restored.snapshot().collection("weather").unwrap().count().unwrap(), 0);
    let held = restored.sweep().unwrap().held.unwrap();
    assert!(held.contains("restored as of 2024-01-01T00:03:20"), "{held}");
    drop(restored);
    let restored = later.open();
    assert!(restored.sweep().unwrap().held.is_some(), "a hold outlives an open");
    assert_eq!(content(&restored, at(200)).get("weather").unwrap().len(), 39 + 1);
    restored.confirm_clock();
    assert_eq!(restored.sweep().unwrap().held, None);
    assert_eq!(content(&restored, at(200)).get("weather").unwrap().len(), 1);
    drop(restored);
    assert_eq!(later.open().sweep().unwrap().held, None);
    let error = later.builder().restore(URL, None).unwrap_err();
    assert_eq!(error.code(), Code::NamespaceExists, "{error}");
}

#[test]
fn a_replica_sees_what_is_shipped_and_drops_only_what_the_primary_dropped() {
    let machine = Machine::new(SimStore::new(1, 0));
    let db = machine.open();
    let mut shipper = machine.shipper(None);
    let c = weather(&db);
    c.insert_documents(&(0..30).map(|v| reading(v, v)).collect::<Vec<_>>()).unwrap();
    shipper.ship_now().unwrap();
    let beside = machine.another();
    let mut replica = beside.builder().follow(URL).unwrap();
    assert_eq!(content(replica.database(), at(0)), content(&db, at(0)));
    let error = replica.database().create_collection("x", CollectionOptions::new("t")).unwrap_err();
    assert!(error.to_string().contains("read replica of s3://sim/copy"), "{error}");
    assert_eq!(replica.catch_up().unwrap(), 0);

    let sessions = db.create_documents("sessions", DocumentsOptions::default()).unwrap();
    sessions.put(&doc! {"_id": 1, "user": "ann"}).unwrap();
    shipper.ship_now().unwrap();
    assert_eq!(replica.catch_up().unwrap(), 1);
    db.flush().unwrap();
    sessions.put(&doc! {"_id": 1, "user": "bob"}).unwrap();
    c.insert_documents(&[reading(40, 40)]).unwrap();
    shipper.ship_now().unwrap();
    replica.catch_up().unwrap();
    assert_eq!(content(replica.database(), at(0)), content(&db, at(0)));

    // It hides by its own clock, at once, and keeps what is stored until the primary's drop arrives.
    machine.clock.set(at(3 * HOUR));
    let shown = |db: &Database| db.snapshot().collection("weather").unwrap().count().unwrap();
    assert_eq!(shown(replica.database()), 0);
    assert_eq!(replica.database().sweep().unwrap_err().code(), Code::IllegalOperation);
    assert_eq!(content(replica.database(), at(0)).get("weather").unwrap().len(), 31 + 1);
    let files =
        |machine: &Machine| machine.fs.list(Path::new(ROOT).join("weather.1").as_path()).map_or(0, |names| names.len());
    let before = files(&beside);
    assert_eq!(db.sweep().unwrap().counts.deleted_documents, 31);
    shipper.ship_now().unwrap();
    replica.catch_up().unwrap();
    assert_eq!(content(replica.database(), at(0)).get("weather").unwrap().len(), 1);
    assert!(files(&beside) < before, "the file of what was dropped is unlinked");
    let status = replica.database().replica_status().unwrap();
    assert_eq!((status.until, status.failed), (at(3 * HOUR), None));
}

#[test]
fn a_promoted_replica_is_the_only_primary() {
    let machine = Machine::new(SimStore::new(1, 0));
    let db = machine.open();
    let mut shipper = machine.shipper(None);
    let c = weather(&db);
    c.insert_documents(&(0..30).map(|v| reading(v, v)).collect::<Vec<_>>()).unwrap();
    shipper.ship_now().unwrap();
    let beside = machine.another();
    drop(beside.builder().follow(URL).unwrap());
    let error = beside.builder().open().unwrap_err();
    assert!(error.to_string().contains("is a replica of s3://sim/copy"), "{error}");
    // Acknowledged and not shipped: it stays with the old primary.
    c.insert_documents(&[reading(5, 100)]).unwrap();
    machine.clock.set(at(60));
    let promoted = beside.builder().promote(URL).unwrap();
    assert_eq!((promoted.at, promoted.epoch), (at(0), 2));
    let new = beside.open();
    assert_eq!(new.sweep().unwrap().held, None, "the clock agrees with that of the primary before");
    let mut new_shipper = beside.shipper(None);
    new.collection("weather").unwrap().insert_documents(&[reading(5, 200)]).unwrap();
    new.flush().unwrap();
    new_shipper.ship_now().unwrap();

    let error = shipper.ship_now().unwrap_err();
    assert_eq!(error.code(), Code::NotWritable, "{error}");
    let lost = "what was acknowledged here after 2024-01-01T00:00:00Z is not in the copy (measurements and changed documents in the log: 1)";
    assert!(error.to_string().contains(lost), "{error}");
    assert_eq!(db.create_collection("x", CollectionOptions::new("t")).unwrap_err().code(), Code::NotWritable);
    drop((c, db));
    assert_eq!(machine.builder().open().unwrap_err().code(), Code::NotWritable);
    let detached = machine.builder().detach().open().unwrap();
    assert_eq!(detached.snapshot().collection("weather").unwrap().count().unwrap(), 31);
    let error = machine.shipper(None).ship_now().unwrap_err();
    assert!(error.to_string().contains("another folder is its primary"), "{error}");

    let (_, restored) = machine.restored(None);
    assert_eq!(content(&restored, at(0)), content(&new, at(0)));
    let (_, restored) = machine.restored(Some(at(30)));
    assert_eq!(restored.snapshot_at(at(0)).collection("weather").unwrap().count().unwrap(), 30);
}

#[test]
fn of_two_that_ship_one_folder_the_second_goes_on() {
    let machine = Machine::new(SimStore::new(1, 0));
    let db = machine.open();
    let (mut first, mut second) = (machine.shipper(None), machine.shipper(None));
    weather(&db);
    first.ship_now().unwrap();
    second.ship_now().unwrap();
    let error = first.ship_now().unwrap_err();
    assert_eq!(error.code(), Code::LockBusy, "{error}");
    weather(&db).insert_documents(&[reading(1, 1)]).unwrap();
    second.ship_now().unwrap();
    assert_eq!(content(&machine.restored(None).1, at(1)), content(&db, at(1)));
    // Another database has no business there.
    let stranger = machine.another();
    drop(stranger.open());
    let error = stranger.shipper(None).ship_now().unwrap_err();
    assert!(error.to_string().contains("the copy of another database"), "{error}");
}

#[test]
fn an_older_copy_of_the_folder_is_not_shipped_over_a_newer_one() {
    let machine = Machine::new(SimStore::new(1, 0));
    let db = machine.open();
    let c = weather(&db);
    machine.shipper(None).ship_now().unwrap();
    let older = Machine { fs: machine.fs.fork(), clock: machine.clock.clone(), store: machine.store.clone() };
    c.insert_documents(&[reading(1, 1)]).unwrap();
    machine.shipper(None).ship_now().unwrap();
    let error = older.shipper(None).ship_now().unwrap_err();
    assert!(error.to_string().contains("an older copy of the folder"), "{error}");
}

#[test]
fn damage_in_the_store_is_found_and_nothing_half_restored_opens() {
    let machine = Machine::new(SimStore::new(1, 0));
    let db = machine.open();
    let c = weather(&db);
    c.insert_documents(&(0..30).map(|v| reading(v, v)).collect::<Vec<_>>()).unwrap();
    db.flush().unwrap();
    machine.shipper(None).ship_now().unwrap();
    let names = machine.store.names();
    for name in names.iter().filter(|name| name.starts_with("files/") || name.starts_with("pieces/")) {
        let good = machine.store.content(name).unwrap();
        let mut bad = good.to_vec();
        let middle = bad.len() / 2;
        bad[middle] ^= 1;
        machine.store.tamper(name, bad.into());
        let target = machine.another();
        let error = target.builder().restore(URL, None).unwrap_err();
        assert_eq!(error.code(), Code::DataCorruptionDetected, "{name}: {error}");
        assert!(error.to_string().contains(name.as_str()), "{name}: {error}");
        assert!(target.builder().read_only().open().is_err());
        machine.store.tamper(name, good);
        // The same call goes on.
        target.builder().restore(URL, None).unwrap();
        assert_eq!(content(&target.open(), at(0)), content(&db, at(0)));
    }
}

#[test]
fn what_no_kept_time_needs_is_removed_and_every_kept_time_can_be_restored() {
    let machine = Machine::new(SimStore::new(1, 0));
    let db = machine.open();
    let c = weather(&db);
    let mut history = Vec::new();
    let mut objects = Vec::new();
    for day in 0..30_i64 {
        let now = day * 24 * HOUR;
        machine.clock.set(at(now));
        // Each shipper begins an epoch, and with it a base.
        let mut shipper = machine.shipper(Some(5 * 86_400));
        c.insert_documents(&(0..20).map(|v| reading(now, day * 20 + v)).collect::<Vec<_>>()).unwrap();
        db.flush().unwrap();
        db.sweep().unwrap();
        shipper.ship_now().unwrap();
        history.push((now, content(&db, at(0))));
        objects.push(machine.store.names().iter().filter(|name| !name.starts_with("epochs/")).count());
    }
    assert!(objects[29] <= objects[10] + 2, "the store does not grow: {objects:?}");
    for (now, expected) in &history[25..] {
        let (_, restored) = machine.restored(Some(at(*now + 1)));
        assert_eq!(content(&restored, at(0)), *expected, "as of {now}");
    }
    assert!(machine.another().builder().restore(URL, Some(at(0))).is_err());
}

fn runs(default: u64) -> u64 {
    std::env::var("EBBTIDE_LAKE_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(default)
}

/// One step of random work at a primary.
fn work(db: &Database, now: i64, inserted: &mut i64, next: &mut impl FnMut(i64) -> i64) {
    let c = weather_of(db);
    match next(12) {
        0..=3 => {
            let rows: Vec<Value> =
                (0..1 + next(30)).map(|v| reading((now - next(4000)).max(0), *inserted + v)).collect();
            *inserted += i64::try_from(rows.len()).unwrap();
            c.insert_documents(&rows).unwrap();
        }
        4 => drop(c.delete(&Filter::eq("v", Value::Int(next(*inserted + 1)))).unwrap()),
        5 => {
            let e = [None, Some(600), Some(HOUR), Some(3 * HOUR)][usize::try_from(next(4)).unwrap()];
            let change = CollectionChange { expire_after_seconds: Some(e), ..CollectionChange::default() };
            db.modify_collection("weather", &change, None).unwrap();
        }
        6 => drop(db.sweep().unwrap()),
        7 => db.compact(None).unwrap(),
        8 => db.flush().unwrap(),
        9 | 10 => {
            let sessions = db.create_documents("sessions", DocumentsOptions::default()).unwrap();
            for _ in 0..1 + next(8) {
                let id = next(20);
                match next(4) {
                    0 => drop(sessions.delete(id).unwrap()),
                    _ => drop(sessions.put(&doc! {"_id": id, "n": next(1000), "text": "x".repeat(200)}).unwrap()),
                }
            }
        }
        _ if next(4) == 0 => db.drop_collection("weather").unwrap(),
        _ => drop(db.create_collection(&format!("other{}", next(3)), CollectionOptions::new("t"))),
    }
}

fn weather_of(db: &Database) -> ebbtide::Collection {
    match db.collection("weather") {
        Ok(collection) => collection,
        Err(_) => weather(db),
    }
}

#[test]
fn random_runs_of_writes_crashes_lost_requests_and_promotions_lose_nothing_that_was_shipped() {
    for seed in 0..runs(400) / 8 {
        let one_in = if seed % 2 == 0 { 0 } else { 6 };
        let mut machine = Machine::new(SimStore::new(seed, one_in));
        let mut db = machine.open();
        let mut shipper = machine.shipper((seed % 3 == 0).then_some(3000));
        let mut replica: Option<(Machine, Replica)> = None;
        let mut random = seed;
        let mut next = |below: i64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
            i64::try_from(random >> 33).unwrap() % below
        };
        let mut inserted = 0;
        // What was shipped as of which instant.
        let mut history: Vec<(i64, BTreeMap<String, Vec<String>>)> = Vec::new();
        for round in 0..25_i64 {
            let now = round * 400;
            machine.clock.set(at(now));
            for _ in 0..next(4) {
                work(&db, now, &mut inserted, &mut next);
            }
            let what = next(10);
            if std::env::var("TRACE").is_ok() {
                eprintln!(
                    "seed {seed} round {round} what {what} w {:?}",
                    db.collection("weather").map(|c| c.snapshot().unwrap().count().unwrap())
                );
            }
            match what {
                0 => drop(shipper.step()),
                1 => {
                    let fs = machine.fs.crash(Variant::V0, seed);
                    drop(db);
                    machine = Machine { fs, ..machine };
                    db = machine.open();
                    shipper = machine.shipper((seed % 3 == 0).then_some(3000));
                }
                2 => shipper = machine.shipper(None),
                3 => {
                    let beside = machine.another();
                    replica = beside.builder().follow(URL).ok().map(|replica| (beside, replica));
                }
                4 if next(3) == 0 && !history.is_empty() => {
                    // What was not shipped is lost, and said to be.
                    let beside = machine.another();
                    let promoted = beside.builder().promote(URL).or_else(|_| {
                        // The epoch may have been taken: only another try can end it.
                        machine.store.fail_one_in(0);
                        machine.store.settle();
                        beside.builder().promote(URL)
                    });
                    let promoted = promoted.unwrap();
                    let new = beside.open();
                    let (last, expected) = history.last().unwrap();
                    assert!(promoted.at >= at(*last), "seed {seed}, round {round}");
                    if promoted.at == at(*last) {
                        assert_eq!(content(&new, at(-HOUR)), *expected, "seed {seed}, round {round}: promoted");
                    }
                    new.confirm_clock();
                    machine.store.fail_one_in(0);
                    machine.store.settle();
                    let refused = shipper.ship_now();
                    assert!(refused.is_err(), "seed {seed}, round {round}: the old primary ships");
                    machine.store.fail_one_in(one_in);
                    drop(std::mem::replace(&mut db, new));
                    machine = beside;
                    shipper = machine.shipper(None);
                }
                _ => {}
            }
            if let Ok(shipped) = shipper.ship_now() {
                assert!(shipped.shipped_until >= Some(at(now)));
                history.push((now, content(&db, at(-HOUR))));
                if std::env::var("TRACE").is_ok() {
                    eprintln!("  shipped {shipped:?} {:?}", replica.as_ref().map(|r| r.1.database().replica_status()));
                }
                if let Some((_, replica)) = &mut replica
                    && replica.catch_up().is_ok()
                {
                    let is_new = replica.database().replica_status().unwrap().until >= at(now);
                    if is_new {
                        let seen = content(replica.database(), at(-HOUR));
                        assert_eq!(seen, content(&db, at(-HOUR)), "seed {seed}, round {round}: replica");
                    }
                }
            }
        }
        machine.store.fail_one_in(0);
        machine.store.settle();
        shipper.ship_now().unwrap();
        if let Some((_, replica)) = &mut replica {
            replica.catch_up().unwrap();
            assert_eq!(content(replica.database(), at(-HOUR)), content(&db, at(-HOUR)), "seed {seed}: replica");
        }
        let (_, restored) = machine.restored(None);
        assert_eq!(content(&restored, at(-HOUR)), content(&db, at(-HOUR)), "seed {seed}: restored");
        assert_eq!(restored.verify().unwrap().faults, Vec::<String>::new());
        for (now, expected) in history.iter().filter(|(now, _)| *now > 24 * 400 - 3000) {
            let (_, restored) = machine.restored(Some(at(*now)));
            assert_eq!(content(&restored, at(-HOUR)), *expected, "seed {seed}: as of {now}");
        }
    }
}

/// Names the folder of the run for the process that is killed.
const KILLED: &str = "EBBTIDE_COPIES_KILLED";

/// Not a test by itself: the primary that [`a_primary_that_is_killed_loses_nothing_that_it_shipped`] kills. It says what it has
/// acknowledged and what it has shipped.
#[test]
fn a_primary_under_load() {
    use std::io::Write;
    let Ok(folder) = std::env::var(KILLED) else { return };
    let folder = Path::new(&folder);
    let settings = Settings { wal_file_bytes_max: 64 << 10, memtable_bytes_max: 1 << 20, ..Settings::default() };
    let builder = || Database::builder(folder.join("db")).archives(Arc::new(ebbtide_lake::Lake::new()));
    let db = builder().settings(settings).open().unwrap();
    let c = db.create_collection("weather", CollectionOptions::new("t").meta_field("sensor")).unwrap();
    let sessions = db.create_documents("sessions", DocumentsOptions::default()).unwrap();
    let url = format!("file://{}", folder.join("copy").display());
    let options = ShipOptions { every: Duration::from_millis(5), ..ShipOptions::default() };
    let shipping = db.ship(&url, options).unwrap();
    let first: i64 = std::env::var("EBBTIDE_COPIES_FIRST").unwrap().parse().unwrap();
    let mut out = std::io::stdout();
    for n in first.. {
        c.insert_documents(&[reading(n, n)]).unwrap();
        sessions.put(&doc! {"_id": n % 50, "n": n}).unwrap();
        if n % 40 == 39 {
            db.flush().unwrap();
        }
        if n % 100 == 99 {
            db.compact(None).unwrap();
        }
        writeln!(out, "@ acknowledged {n}").unwrap();
        if n % 7 == 0 {
            shipping.ship_now().unwrap();
            writeln!(out, "@ shipped {n}").unwrap();
        }
        out.flush().unwrap();
    }
}

/// The numbers of the readings, which are without a gap, and that the documents are of the same moment.
fn last_number(db: &Database) -> i64 {
    let content = content(db, at(-HOUR));
    let mut numbers: Vec<i64> = content["weather"]
        .iter()
        .filter_map(|row| row.rsplit_once("Int(")?.1.split(')').next()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    let last = i64::try_from(numbers.len()).unwrap() - 1;
    assert_eq!(numbers, (0..=last).collect::<Vec<_>>(), "no reading is missing or twice");
    let found: Vec<ebbtide::bson::Document> = db.documents("sessions").unwrap().find(&doc! {}).unwrap();
    let newest = found.iter().map(|document| document.get_i64("n").unwrap()).max().unwrap_or(-1);
    // The document is written after the reading of its number.
    assert!(newest == last || newest == last - 1, "documents until {newest}, readings until {last}");
    assert_eq!(i64::try_from(found.len()).unwrap(), (newest + 1).min(50));
    last
}

#[test]
fn a_primary_that_is_killed_loses_nothing_that_it_shipped() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let kills = std::env::var("EBBTIDE_COPIES_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(12_u64);
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().join("copy").display());
    let builder =
        |name: &str| Database::builder(folder.path().join(name)).archives(Arc::new(ebbtide_lake::Lake::new()));
    let (mut first, mut acknowledged, mut shipped) = (0_i64, -1_i64, -1_i64);
    let mut replica: Option<Replica> = None;
    for kill in 0..kills {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_primary_under_load", "--nocapture"])
            .env(KILLED, folder.path())
            .env("EBBTIDE_COPIES_FIRST", first.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        // It is killed after some lines, in the middle of what comes next.
        let wanted = 3 + (kill * 7919 + 11) % 60;
        let mut seen = 0;
        let mut take = |line: &str| {
            match line.strip_prefix("@ ").and_then(|line| line.split_once(' ')) {
                Some(("acknowledged", n)) => acknowledged = acknowledged.max(n.parse().unwrap()),
                Some(("shipped", n)) => shipped = shipped.max(n.parse().unwrap()),
                _ => return false,
            }
            true
        };
        while seen < wanted {
            seen += u64::from(take(&lines.next().unwrap()));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines {
            take(&line);
        }
        let name = format!("restored-{kill}");
        builder(&name).restore(&url, None).unwrap();
        let restored = last_number(&builder(&name).open().unwrap());
        assert!((shipped..=acknowledged + 1).contains(&restored), "{shipped} {restored} {acknowledged}");
        ebbtide::fs::RealFs::new().remove_dir(&folder.path().join(&name)).unwrap();
        match &mut replica {
            Some(replica) => drop(replica.catch_up().unwrap()),
            None => replica = Some(builder("replica").follow(&url).unwrap()),
        }
        let followed = replica.as_ref().map(|replica| last_number(replica.database()));
        assert_eq!(followed, Some(restored), "kill {kill}");
        // The primary itself has everything that it acknowledged.
        let db = builder("db").open().unwrap();
        let own = last_number(&db);
        assert!(own >= acknowledged, "{own} {acknowledged}");
        first = own + 1;
        // A reading without its document.
        db.documents("sessions").unwrap().put(&doc! {"_id": own % 50, "n": own}).unwrap();
        acknowledged = own;
    }
}
