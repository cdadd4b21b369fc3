//! Copies: what is restored, or seen by a replica, is what the primary had acknowledged and shipped.

use crate::world::{HOUR, OTHER, ROOT, World, at, reading};
use ebbtide::bson::doc;
use ebbtide::fs::Fs;
use ebbtide::fs::sim::{SimFs, Variant};
use ebbtide::ttl::{Code, Filter, Timestamp, Value};
use ebbtide::{Builder, CollectionOptions, Database, DocumentsOptions, ScanRequest, Settings, ShipOptions, Shipper};
use ebbtide_lake::Store as _;
use ebbtide_lake::sim::SimStore;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) const URL: &str = "s3://sim/copy";

/// How the database is opened: with small logs and memory, so that files come and go.
pub(crate) fn builder(machine: &World) -> Builder {
    let settings = Settings { wal_file_bytes_max: 4 << 10, memtable_bytes_max: 1 << 20, ..Settings::default() };
    machine.builder().settings(settings)
}

pub(crate) fn open(machine: &World) -> Database {
    builder(machine).open().unwrap()
}

pub(crate) fn shipper_of(machine: &World, keep: Option<u64>) -> Shipper {
    let options = ShipOptions { keep: keep.map(Duration::from_secs), ..ShipOptions::default() };
    builder(machine).shipper(URL, options).unwrap()
}

pub(crate) fn restored_from(machine: &World, instant: Option<Timestamp>) -> (World, Database) {
    let machine = machine.another();
    builder(&machine).restore(URL, instant).unwrap();
    let db = open(&machine);
    (machine, db)
}

/// Everything that a database has stored and not hidden at an instant.
pub(crate) fn content(db: &Database, instant: Timestamp) -> BTreeMap<String, Vec<String>> {
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

pub(crate) fn weather(db: &Database) -> ebbtide::Collection {
    let options = CollectionOptions::new("t").meta_field("sensor").expire_after_seconds(HOUR);
    db.create_collection("weather", options).unwrap()
}

#[test]
fn a_database_is_restored_as_it_was_at_a_time_and_its_sweeper_is_held() {
    let machine = World::new(SimStore::new(1, 0));
    let db = open(&machine);
    let mut shipper = shipper_of(&machine, None);
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

    let (_, restored) = restored_from(&machine, None);
    assert_eq!(content(&restored, at(200)), content(&db, at(200)));
    assert_eq!(restored.verify().unwrap().faults, Vec::<String>::new());
    let (_, restored) = restored_from(&machine, Some(at(150)));
    assert_eq!(content(&restored, at(100)), before_delete);
    let error = builder(&machine.another()).restore(URL, Some(at(-1))).unwrap_err();
    assert_eq!(error.code(), Code::NamespaceNotFound, "{error}");

    // Much later everything has expired: hidden, and kept until somebody says that the clock is right.
    machine.clock.set(at(10 * HOUR));
    let (later, restored) = restored_from(&machine, None);
    assert_eq!(restored.snapshot().collection("weather").unwrap().count().unwrap(), 0);
    let held = restored.sweep().unwrap().held.unwrap();
    assert!(held.contains("restored as of 2024-01-01T00:03:20"), "{held}");
    drop(restored);
    let restored = open(&later);
    assert!(restored.sweep().unwrap().held.is_some(), "a hold outlives an open");
    assert_eq!(content(&restored, at(200)).get("weather").unwrap().len(), 39 + 1);
    restored.confirm_clock();
    assert_eq!(restored.sweep().unwrap().held, None);
    assert_eq!(content(&restored, at(200)).get("weather").unwrap().len(), 1);
    drop(restored);
    assert_eq!(open(&later).sweep().unwrap().held, None);
    let error = builder(&later).restore(URL, None).unwrap_err();
    assert_eq!(error.code(), Code::NamespaceExists, "{error}");
}

#[test]
fn a_replica_sees_what_is_shipped_and_drops_only_what_the_primary_dropped() {
    let machine = World::new(SimStore::new(1, 0));
    let db = open(&machine);
    let mut shipper = shipper_of(&machine, None);
    let c = weather(&db);
    c.insert_documents(&(0..30).map(|v| reading(v, v)).collect::<Vec<_>>()).unwrap();
    shipper.ship_now().unwrap();
    let beside = machine.another();
    let mut replica = builder(&beside).follow(URL).unwrap();
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
        |machine: &World| machine.fs.list(Path::new(ROOT).join("weather.1").as_path()).map_or(0, |names| names.len());
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
fn a_crash_at_any_request_of_the_removal_of_old_pieces_keeps_what_is_to_be_kept() {
    // Seven days are shipped, and the copy keeps two days. On the eighth day there is more to ship.
    let week = |machine: &World| {
        let db = open(machine);
        let c = weather(&db);
        let mut history = Vec::new();
        for day in 0..8_i64 {
            let now = day * 24 * HOUR;
            machine.clock.set(at(now));
            c.insert_documents(&(0..5).map(|v| reading(now, day * 5 + v)).collect::<Vec<_>>()).unwrap();
            db.flush().unwrap();
            db.sweep().unwrap();
            if day < 7 {
                shipper_of(machine, Some(2 * 86_400)).ship_now().unwrap();
                history.push((now, content(&db, at(0))));
            }
        }
        (db, history)
    };
    let machine = World::new(SimStore::new(1, 0));
    let (_db, history) = week(&machine);
    let (requests, before) = (machine.store.requests(), machine.store.names());
    shipper_of(&machine, Some(2 * 86_400)).ship_now().unwrap();
    let requests = machine.store.requests() - requests;
    let after = machine.store.names();
    assert!(before.iter().filter(|name| !after.contains(name)).count() > 2, "{before:?} {after:?}");
    for request in 0..=requests {
        let machine = World::new(SimStore::new(1, 0));
        let (db, _) = week(&machine);
        machine.store.stop_after(Some(request));
        drop(shipper_of(&machine, Some(2 * 86_400)).ship_now());
        machine.store.stop_after(None);
        let check = |what: &str| {
            for (now, expected) in &history[5..] {
                let (_, restored) = restored_from(&machine, Some(at(*now + 1)));
                assert_eq!(content(&restored, at(0)), *expected, "{what}, request {request}, as of {now}");
            }
        };
        check("after the crash");
        shipper_of(&machine, Some(2 * 86_400)).ship_now().unwrap();
        check("later");
        let (_, restored) = restored_from(&machine, None);
        assert_eq!(content(&restored, at(0)), content(&db, at(0)), "request {request}");
        // Nothing stays for ever.
        let left = machine.store.names();
        let is_left = |name: &&String| !after.contains(name) && before.contains(name);
        assert_eq!(left.iter().filter(is_left).collect::<Vec<_>>(), Vec::<&String>::new(), "request {request}");
    }
}

#[test]
fn of_two_that_take_the_same_epoch_one_ships() {
    for round in 0..3 {
        let machine = World::new(SimStore::new(round, 0));
        let db = open(&machine);
        weather(&db);
        if round > 0 {
            shipper_of(&machine, None).ship_now().unwrap();
        }
        let mut late = shipper_of(&machine, None);
        let mut quick = shipper_of(&machine, None);
        // Both have seen the same newest epoch when the other one creates the next.
        let epoch = format!("epochs/{:010}", 1 + u64::from(round > 0));
        let taken = Arc::new(Mutex::new(None));
        let to = taken.clone();
        machine.store.before_put(&epoch, move || {
            let shipped = quick.ship_now().unwrap();
            *to.lock().unwrap() = Some((quick, shipped));
        });
        let error = late.ship_now().unwrap_err();
        assert_eq!(error.code(), Code::LockBusy, "{error}");
        let (mut quick, shipped) = taken.lock().unwrap().take().unwrap();
        assert_eq!(shipped.epoch, 1 + u64::from(round > 0));
        weather(&db).insert_documents(&[reading(1, 1)]).unwrap();
        quick.ship_now().unwrap();
        assert_eq!(content(&restored_from(&machine, None).1, at(1)), content(&db, at(1)));
    }
}

#[test]
fn of_two_that_ship_one_folder_the_second_goes_on() {
    let machine = World::new(SimStore::new(1, 0));
    let db = open(&machine);
    let (mut first, mut second) = (shipper_of(&machine, None), shipper_of(&machine, None));
    weather(&db);
    first.ship_now().unwrap();
    second.ship_now().unwrap();
    let error = first.ship_now().unwrap_err();
    assert_eq!(error.code(), Code::LockBusy, "{error}");
    weather(&db).insert_documents(&[reading(1, 1)]).unwrap();
    second.ship_now().unwrap();
    assert_eq!(content(&restored_from(&machine, None).1, at(1)), content(&db, at(1)));
    // Another database has no business there.
    let stranger = machine.another();
    drop(open(&stranger));
    let error = shipper_of(&stranger, None).ship_now().unwrap_err();
    assert!(error.to_string().contains("the copy of another database"), "{error}");
}

#[test]
fn an_older_copy_of_the_folder_is_not_shipped_and_does_not_stop_the_newer_one() {
    let machine = World::new(SimStore::new(1, 0));
    let db = open(&machine);
    let c = weather(&db);
    let mut shipper = shipper_of(&machine, None);
    shipper.ship_now().unwrap();
    let older = machine.on(machine.fs.fork());
    c.insert_documents(&[reading(1, 1)]).unwrap();
    shipper.ship_now().unwrap();
    let error = shipper_of(&older, None).ship_now().unwrap_err();
    assert!(error.to_string().contains("an older copy of the folder"), "{error}");
    c.insert_documents(&[reading(2, 2)]).unwrap();
    shipper.ship_now().unwrap();
    assert_eq!(content(&restored_from(&machine, None).1, at(2)), content(&db, at(2)));
}

#[test]
fn an_older_copy_of_the_folder_with_more_records_is_not_shipped_either() {
    // Whether each piece is made by a process of its own, in an epoch of its own; and whether what was shipped has left the log.
    for (anew, seals) in [(true, false), (false, false), (true, true), (false, true)] {
        let machine = World::new(SimStore::new(1, 0));
        let db = open(&machine);
        let c = weather(&db);
        let mut shipper = shipper_of(&machine, None);
        c.insert_documents(&[reading(1, 1)]).unwrap();
        shipper.ship_now().unwrap();
        let older = machine.on(machine.fs.crash(Variant::V0, 0));
        for v in 2..4 {
            c.insert_documents(&[reading(v, v)]).unwrap();
            if seals {
                db.flush().unwrap();
            }
            if anew {
                shipper = shipper_of(&machine, None);
            }
            shipper.ship_now().unwrap();
        }
        let diverged = open(&older);
        for v in 10..20 {
            diverged.collection("weather").unwrap().insert_documents(&[reading(v, v)]).unwrap();
        }
        for _ in 0..2 {
            let error = shipper_of(&older, None).ship_now().unwrap_err();
            assert_eq!(error.code(), Code::InvalidOptions, "{error}");
            assert!(error.to_string().contains("an older copy of the folder"), "{error}");
        }
        // The primary goes on, in this process and in another one.
        c.insert_documents(&[reading(4, 4)]).unwrap();
        shipper.ship_now().unwrap();
        shipper_of(&machine, None).ship_now().unwrap();
        assert_eq!(content(&restored_from(&machine, None).1, at(2)), content(&db, at(2)), "{anew} {seals}");
        // So does a copy of the folder with all that was shipped, if it is the first to ship more.
        let moved = machine.on(machine.fs.crash(Variant::V0, 0));
        drop(open(&moved));
        shipper_of(&moved, None).ship_now().unwrap();
        let error = shipper_of(&machine, None).ship_now().unwrap_err();
        assert!(error.to_string().contains("an older copy of the folder"), "{error}");
    }
}

#[test]
fn a_copy_of_the_folder_that_was_never_shipped_to_a_place_is_not_shipped_over_what_is_there() {
    let machine = World::new(SimStore::new(1, 0));
    let db = open(&machine);
    let c = weather(&db);
    // It knows who it is to its copies, and has one elsewhere.
    builder(&machine).shipper(OTHER, ShipOptions::default()).unwrap().ship_now().unwrap();
    let older = machine.on(machine.fs.crash(Variant::V0, 0));
    shipper_of(&machine, None).ship_now().unwrap();
    let diverged = open(&older);
    diverged.collection("weather").unwrap().insert_documents(&[reading(1, 1)]).unwrap();
    let error = shipper_of(&older, None).ship_now().unwrap_err();
    assert!(error.to_string().contains("an older copy of the folder"), "{error}");
    c.insert_documents(&[reading(2, 2)]).unwrap();
    shipper_of(&machine, None).ship_now().unwrap();
    builder(&machine).shipper(OTHER, ShipOptions::default()).unwrap().ship_now().unwrap();
    assert_eq!(content(&restored_from(&machine, None).1, at(2)), content(&db, at(2)));
}

#[test]
fn a_folder_that_an_earlier_build_has_shipped_is_shipped_on() {
    let machine = World::new(SimStore::new(1, 0));
    let db = open(&machine);
    let c = weather(&db);
    shipper_of(&machine, None).ship_now().unwrap();
    let path = Path::new(ROOT).join("SHIP");
    let mut ship: serde_json::Value = serde_json::from_slice(&machine.fs.read(&path).unwrap()).unwrap();
    assert_eq!(ship.as_object_mut().unwrap().remove("sent").unwrap()[0]["piece"], 1);
    write(&machine, &path, ship.to_string().as_bytes());
    c.insert_documents(&[reading(1, 1)]).unwrap();
    let shipped = shipper_of(&machine, None).ship_now().unwrap();
    assert_eq!((shipped.epoch, shipped.piece), (2, 1));
    assert_eq!(content(&restored_from(&machine, None).1, at(2)), content(&db, at(2)));
}

#[test]
fn a_restore_goes_on_that_ended_before_its_first_segment() {
    let machine = World::new(SimStore::new(1, 0));
    let db = open(&machine);
    weather(&db).insert_documents(&[reading(1, 1)]).unwrap();
    db.flush().unwrap();
    shipper_of(&machine, None).ship_now().unwrap();
    let segment = machine.fs.list(&Path::new(ROOT).join("weather.1")).unwrap().remove(0);
    let begun = |names: &[&str]| {
        let target = machine.another();
        let folder = Path::new(ROOT).join("weather.1");
        target.fs.create_dir(&folder).unwrap();
        names.iter().for_each(|name| write(&target, &folder.join(name), b"half"));
        target
    };
    for names in [vec![], vec![format!("{segment}.tmp")]] {
        let target = begun(&names.iter().map(String::as_str).collect::<Vec<_>>());
        builder(&target).restore(URL, None).unwrap();
        assert_eq!(content(&open(&target), at(1)), content(&db, at(1)), "{names:?}");
    }
    let error = builder(&begun(&["letter.txt"])).restore(URL, None).unwrap_err();
    assert!(error.to_string().contains("not empty (it holds 'weather.1')"), "{error}");
}

#[test]
fn a_renamed_or_damaged_claim_of_an_epoch_is_found() {
    let machine = World::new(SimStore::new(1, 0));
    let db = open(&machine);
    weather(&db);
    shipper_of(&machine, None).ship_now().unwrap();
    let [first, second] = ["epochs/0000000001", "epochs/0000000002"];
    let claim = machine.store.content(first).unwrap();
    let mut bad = claim.to_vec();
    bad[30] ^= 1;
    for (name, content) in [(second, claim.clone()), (first, bad.into())] {
        machine.store.tamper(name, content);
        let restored = builder(&machine.another()).restore(URL, None).unwrap_err();
        let followed = builder(&machine.another()).follow(URL).map(drop).unwrap_err();
        let shipped = shipper_of(&machine, None).ship_now().unwrap_err();
        for error in [restored, followed, shipped] {
            assert_eq!(error.code(), Code::DataCorruptionDetected, "{error}");
            assert!(error.to_string().contains(name), "{error}");
        }
        match name == first {
            true => machine.store.tamper(first, claim.clone()),
            false => machine.store.delete(name).unwrap(),
        }
    }
    shipper_of(&machine, None).ship_now().unwrap();
}

#[test]
fn what_is_damaged_in_the_folder_is_not_passed_over() {
    let machine = World::new(SimStore::new(1, 0));
    let db = open(&machine);
    let c = weather(&db);
    c.insert_documents(&[reading(1, 1)]).unwrap();
    let sessions = db.create_documents("sessions", DocumentsOptions::default()).unwrap();
    sessions.put(&doc! {"_id": 1, "user": "ann"}).unwrap();
    db.flush().unwrap();
    // A segment that the manifest names.
    let mut shipper = shipper_of(&machine, None);
    for folder in ["weather.1", "sessions.2"] {
        let folder = Path::new(ROOT).join(folder);
        let path = folder.join(&machine.fs.list(&folder).unwrap()[0]);
        let good = machine.fs.read(&path).unwrap();
        for at in (0..good.len()).step_by(41).chain([good.len() - 1]) {
            let mut bad = good.clone();
            bad[at] ^= 1;
            write(&machine, &path, &bad);
            let error = shipper.ship_now().unwrap_err();
            assert_eq!(error.code(), Code::DataCorruptionDetected, "byte {at}: {error}");
            assert!(error.to_string().contains(&path.display().to_string()), "byte {at}: {error}");
        }
        write(&machine, &path, &good);
    }
    assert_eq!(machine.store.names().iter().filter(|name| name.starts_with("pieces/")).count(), 0);
    let folder = Path::new(ROOT).join("weather.1");
    let path = folder.join(&machine.fs.list(&folder).unwrap()[0]);
    let good = machine.fs.read(&path).unwrap();
    machine.fs.remove(&path).unwrap();
    let mut shipper = shipper_of(&machine, None);
    let error = shipper.ship_now().unwrap_err();
    assert_eq!(error.code(), Code::DataCorruptionDetected, "{error}");
    assert!(error.to_string().contains("segment file is missing"), "{error}");
    write(&machine, &path, &good);
    shipper.ship_now().unwrap();
    // A record of the log, with others behind it.
    for v in 2..6 {
        c.insert_documents(&[reading(v, v)]).unwrap();
    }
    drop((c, sessions, db));
    let logs = machine.fs.list(Path::new(ROOT)).unwrap().into_iter().filter(|name| name.starts_with("wal-"));
    let path = Path::new(ROOT).join(logs.max().unwrap());
    let good = machine.fs.read(&path).unwrap();
    for at in [40, good.len() / 2] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        write(&machine, &path, &bad);
        let error = shipper_of(&machine, None).ship_now().unwrap_err();
        assert_eq!(error.code(), Code::DataCorruptionDetected, "byte {at}: {error}");
        assert!(error.to_string().contains("wal-"), "byte {at}: {error}");
    }
    write(&machine, &path, &good);
    shipper_of(&machine, None).ship_now().unwrap();
    assert_eq!(restored_from(&machine, None).1.snapshot_at(at(0)).collection("weather").unwrap().count().unwrap(), 5);
}

/// Replaces a file.
fn write(machine: &World, path: &Path, bytes: &[u8]) {
    if machine.fs.exists(path).unwrap() {
        machine.fs.remove(path).unwrap();
    }
    let mut file = machine.fs.create(path).unwrap();
    file.append(bytes).unwrap();
    file.sync().unwrap();
}

#[test]
fn a_folder_that_is_open_is_not_detached() {
    let machine = World::new(SimStore::new(1, 0));
    let db = open(&machine);
    shipper_of(&machine, None).ship_now().unwrap();
    assert_eq!(builder(&machine).detach().open().unwrap_err().code(), Code::LockBusy);
    assert!(machine.fs.exists(&Path::new(ROOT).join("SHIP")).unwrap());
    drop(db);
    drop(builder(&machine).detach().open().unwrap());
    assert!(!machine.fs.exists(&Path::new(ROOT).join("SHIP")).unwrap());
}

#[test]
fn damage_in_the_store_is_found_and_nothing_half_restored_opens() {
    let machine = World::new(SimStore::new(1, 0));
    let db = open(&machine);
    let c = weather(&db);
    c.insert_documents(&(0..30).map(|v| reading(v, v)).collect::<Vec<_>>()).unwrap();
    db.flush().unwrap();
    shipper_of(&machine, None).ship_now().unwrap();
    let names = machine.store.names();
    for name in names.iter().filter(|name| name.starts_with("files/") || name.starts_with("pieces/")) {
        let good = machine.store.content(name).unwrap();
        let mut bad = good.to_vec();
        let middle = bad.len() / 2;
        bad[middle] ^= 1;
        machine.store.tamper(name, bad.into());
        let target = machine.another();
        let error = builder(&target).restore(URL, None).unwrap_err();
        assert_eq!(error.code(), Code::DataCorruptionDetected, "{name}: {error}");
        assert!(error.to_string().contains(name.as_str()), "{name}: {error}");
        let refused = builder(&target).read_only().open().err().unwrap().to_string();
        // Pieces are read before the folder is made.
        let told = if name.starts_with("files/") { "a restore into it has not ended" } else { "there is no database" };
        assert!(refused.contains(told), "{name}: {refused}");
        machine.store.tamper(name, good);
        // The same call goes on.
        builder(&target).restore(URL, None).unwrap();
        assert_eq!(content(&open(&target), at(0)), content(&db, at(0)));
    }
}

/// A copy, and a database in which there is more to ship.
fn changed(machine: &World) -> (Database, Shipper) {
    let db = open(machine);
    let c = weather(&db);
    let mut shipper = shipper_of(machine, Some(0));
    c.insert_documents(&(0..30).map(|v| reading(v, v)).collect::<Vec<_>>()).unwrap();
    db.flush().unwrap();
    shipper.ship_now().unwrap();
    machine.clock.set(at(100));
    c.insert_documents(&(30..40).map(|v| reading(v, v)).collect::<Vec<_>>()).unwrap();
    db.compact(None).unwrap();
    c.delete(&Filter::eq("v", Value::Int(7))).unwrap();
    c.insert_documents(&(40..50).map(|v| reading(v, v)).collect::<Vec<_>>()).unwrap();
    (db, shipper)
}

#[test]
fn a_crash_at_any_step_of_shipping_leaves_a_copy_that_can_be_restored() {
    let machine = World::new(SimStore::new(1, 0));
    let (db, mut shipper) = changed(&machine);
    let (steps, requests) = (machine.fs.mutating_ops(), machine.store.requests());
    let before = content(&restored_from(&machine, None).1, at(100));
    let after = content(&db, at(100));
    let read = machine.store.requests() - requests;
    shipper.ship_now().unwrap();
    let (steps, requests) = (machine.fs.mutating_ops() - steps, machine.store.requests() - requests - read);
    assert!(before != after && steps > 0 && requests > 2, "{steps} {requests}");
    let of_the_disk = (0..steps).map(|step| (Some(step), None));
    for (step, request) in of_the_disk.chain((0..requests).map(|request| (None, Some(request)))) {
        for variant in [Variant::V0, Variant::V1, Variant::V3] {
            let machine = World::new(SimStore::new(1, 0));
            let (db, mut shipper) = changed(&machine);
            if let Some(step) = step {
                machine.fs.stop_after(step);
            }
            machine.store.stop_after(request);
            drop(shipper.ship_now());
            machine.store.stop_after(None);
            let restored = content(&restored_from(&machine, None).1, at(100));
            assert!(restored == before || restored == after, "{step:?} {request:?}: {restored:?}");
            let machine = machine.on(machine.fs.crash(variant, step.unwrap_or(0)));
            drop((db, shipper));
            let db = open(&machine);
            assert_eq!(content(&db, at(100)), after, "{step:?} {request:?}");
            shipper_of(&machine, Some(0)).ship_now().unwrap();
            assert_eq!(content(&restored_from(&machine, None).1, at(100)), after, "{step:?} {request:?}");
        }
    }
}

#[test]
fn a_store_that_is_away_for_a_day_costs_nothing_but_lag() {
    let machine = World::new(SimStore::new(1, 0));
    let db = open(&machine);
    let c = weather(&db);
    let mut shipper = shipper_of(&machine, None);
    c.insert_documents(&[reading(0, 0)]).unwrap();
    let shipped = shipper.ship_now().unwrap();
    let before = content(&db, at(0));
    machine.store.set_away(true);
    for hour in 1..=24 {
        machine.clock.set(at(hour * HOUR));
        c.insert_documents(&[reading(hour * HOUR, hour)]).unwrap();
        db.flush().unwrap();
        db.compact(None).unwrap();
        db.sweep().unwrap();
        let error = shipper.ship_now().unwrap_err();
        assert_eq!(error.code(), Code::HostUnreachable, "{error}");
    }
    // What was shipped can still be restored: nothing of it was removed.
    machine.store.set_away(false);
    assert_eq!(content(&restored_from(&machine, None).1, at(0)), before);
    let again = shipper.ship_now().unwrap();
    assert_eq!((again.epoch, again.shipped_until), (shipped.epoch, Some(at(24 * HOUR))));
    let (_, restored) = restored_from(&machine, None);
    assert_eq!(content(&restored, at(24 * HOUR)), content(&db, at(24 * HOUR)));
    assert_eq!(restored.verify().unwrap().faults, Vec::<String>::new());
}

#[test]
fn a_restore_has_the_files_that_the_database_had_and_no_others() {
    let machine = World::new(SimStore::new(1, 0));
    let db = open(&machine);
    let c = weather(&db);
    let mut shipper = shipper_of(&machine, None);
    for v in 0..2 {
        c.insert_documents(&[reading(v, v)]).unwrap();
        db.flush().unwrap();
    }
    shipper.ship_now().unwrap();
    machine.clock.set(at(60));
    db.compact(None).unwrap();
    shipper.ship_now().unwrap();
    let segments = |machine: &World| {
        let is_segment = |path: &std::path::PathBuf| path.to_string_lossy().contains("/seg-");
        let mut found: Vec<_> = machine.fs.files().into_iter().filter(is_segment).collect();
        found.sort_unstable();
        found
    };
    // Those of before are in the copy too.
    let shipped = machine.store.names().into_iter().filter(|name| name.starts_with("files/")).count();
    assert!(!segments(&machine).is_empty() && segments(&machine).len() < shipped);
    let target = machine.another();
    let restored = builder(&target).restore(URL, None).unwrap();
    assert_eq!((segments(&target), restored.files), (segments(&machine), segments(&machine).len() as u64));
    let target = machine.another();
    builder(&target).promote(URL).unwrap();
    assert_eq!(segments(&target), segments(&machine));
}

#[test]
fn a_restored_folder_is_marked_for_other_programs_before_it_is_a_database() {
    const MARKER: &str = "/run-COMPACT-first.parquet";
    let machine = World::new(SimStore::new(1, 0));
    // Each row counts as many, so that a seal does not rewrite segments of other types.
    let settings = Settings { segment_rows_max: 1, ..Settings::default() };
    let db = machine.builder().settings(settings).open().unwrap();
    let c = weather(&db);
    let half = Value::Object(vec![
        ("t".into(), Value::Date(at(1))),
        ("sensor".into(), Value::from("a")),
        ("v".into(), Value::Double(0.5)),
    ]);
    for measurement in [reading(0, 12_345), half] {
        c.insert_documents(&[measurement]).unwrap();
        db.flush().unwrap();
    }
    shipper_of(&machine, None).ship_now().unwrap();
    let has = |fs: &SimFs, name: &str| fs.files().iter().any(|path| path.to_string_lossy().contains(name));
    assert!(has(&machine.fs, MARKER));
    let target = machine.another();
    target.fs.record();
    builder(&target).restore(URL, None).unwrap();
    assert!(has(&target.fs, MARKER));
    let steps = target.fs.steps();
    for step in 0..=steps.len() {
        let interrupted = target.on(target.fs.before_step(step));
        if has(&interrupted.fs, "/MANIFEST-") {
            assert!(has(&interrupted.fs, MARKER), "{step} of {steps:?}");
        } else {
            builder(&interrupted).restore(URL, None).unwrap();
            assert_eq!(content(&open(&interrupted), at(2)), content(&db, at(2)), "{step} of {steps:?}");
        }
    }
}

#[test]
fn files_that_are_fetched_at_once_are_those_of_the_copy_and_a_damaged_one_is_named() {
    let machine = World::new(SimStore::new(1, 0));
    machine.store.set_gets_at_once(8);
    let db = open(&machine);
    let c = weather(&db);
    let mut shipper = shipper_of(&machine, None);
    c.insert_documents(&[reading(0, 0)]).unwrap();
    shipper.ship_now().unwrap();
    let replica_of = machine.another();
    let mut replica = builder(&replica_of).follow(URL).unwrap();
    for number in 1..=20 {
        c.insert_documents(&[reading(number, number)]).unwrap();
        db.flush().unwrap();
    }
    shipper.ship_now().unwrap();
    let target = machine.another();
    let restored = builder(&target).restore(URL, None).unwrap();
    assert!(restored.files >= 20, "{restored:?}");
    let names = machine.store.names().into_iter().filter(|name| name.starts_with("files/"));
    let files: Vec<_> = names.collect();
    let bytes: usize = files.iter().map(|name| machine.store.content(name).unwrap().len()).sum();
    assert_eq!((restored.files, restored.fetched_bytes), (files.len() as u64, bytes as u64));
    assert_eq!(content(&open(&target), at(0)), content(&db, at(0)));
    replica.catch_up().unwrap();
    assert_eq!(content(replica.database(), at(0)), content(&db, at(0)));

    let name = &files[11];
    let good = machine.store.content(name).unwrap();
    machine.store.tamper(name, good.slice(1..));
    let target = machine.another();
    let error = builder(&target).restore(URL, None).unwrap_err();
    assert_eq!(error.code(), Code::DataCorruptionDetected, "{error}");
    assert!(error.to_string().contains(name), "{name}: {error}");
    assert!(builder(&target).read_only().open().is_err());
    machine.store.tamper(name, good);
    builder(&target).restore(URL, None).unwrap();
    assert_eq!(content(&open(&target), at(0)), content(&db, at(0)));
}

#[test]
fn what_no_kept_time_needs_is_removed_and_every_kept_time_can_be_restored() {
    let machine = World::new(SimStore::new(1, 0));
    let db = open(&machine);
    let c = weather(&db);
    let mut history = Vec::new();
    let mut objects = Vec::new();
    for day in 0..30_i64 {
        let now = day * 24 * HOUR;
        machine.clock.set(at(now));
        // Each shipper begins an epoch, and with it a base.
        let mut shipper = shipper_of(&machine, Some(5 * 86_400));
        c.insert_documents(&(0..20).map(|v| reading(now, day * 20 + v)).collect::<Vec<_>>()).unwrap();
        db.flush().unwrap();
        db.sweep().unwrap();
        shipper.ship_now().unwrap();
        history.push((now, content(&db, at(0))));
        objects.push(machine.store.names().iter().filter(|name| !name.starts_with("epochs/")).count());
    }
    assert!(objects[29] <= objects[10] + 2, "the store does not grow: {objects:?}");
    for (now, expected) in &history[25..] {
        let (_, restored) = restored_from(&machine, Some(at(*now + 1)));
        assert_eq!(content(&restored, at(0)), *expected, "as of {now}");
    }
    assert!(builder(&machine.another()).restore(URL, Some(at(0))).is_err());
}
