//! Copies: what is restored, or seen by a replica, is what the primary had acknowledged and shipped.

use crate::archive::{all, archived, numbers, state_of};
use crate::world::{HOUR, OTHER, ROOT, World, at, reading};
use ebbtide::bson::doc;
use ebbtide::fs::{Fs, sim::Variant};
use ebbtide::ttl::{Code, Filter, Timestamp, Value};
use ebbtide::{Builder, CollectionOptions, Database, DocumentsOptions, ScanRequest, Settings, ShipOptions, Shipper};
use ebbtide_lake::Store as _;
use ebbtide_lake::sim::SimStore;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Barrier, Mutex};
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

/// Where a table is published.
const TABLE: &str = "s3://sim/table";

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
fn a_promoted_replica_is_the_only_primary() {
    let machine = World::new(SimStore::new(1, 0));
    let db = open(&machine);
    let mut shipper = shipper_of(&machine, None);
    let c = weather(&db);
    c.insert_documents(&(0..30).map(|v| reading(v, v)).collect::<Vec<_>>()).unwrap();
    db.publish("weather", TABLE, 60).unwrap();
    shipper.ship_now().unwrap();
    let beside = machine.another();
    drop(builder(&beside).follow(URL).unwrap());
    let error = builder(&beside).open().unwrap_err();
    assert!(error.to_string().contains("is a replica of s3://sim/copy"), "{error}");
    // Acknowledged and not shipped: it stays with the old primary.
    c.insert_documents(&[reading(5, 100)]).unwrap();
    machine.clock.set(at(60));
    let promoted = builder(&beside).promote(URL).unwrap();
    assert_eq!((promoted.at, promoted.epoch), (at(0), 2));
    let new = open(&beside);
    assert_eq!(new.sweep().unwrap().held, None, "the clock agrees with that of the primary before");
    let mut new_shipper = shipper_of(&beside, None);
    new.collection("weather").unwrap().insert_documents(&[reading(5, 200)]).unwrap();
    new.flush().unwrap();
    new_shipper.ship_now().unwrap();
    let published = new.publish_now("weather").unwrap();
    assert_eq!(published.measurements, 31);

    let error = shipper.ship_now().unwrap_err();
    assert_eq!(error.code(), Code::NotWritable, "{error}");
    let lost = "acknowledged here after 2024-01-01T00:00:00Z and are not in the copy: 1, as of 2024-01-01T00:01:00Z";
    assert!(error.to_string().contains(lost), "{error}");
    let told = builder(&beside).unshipped(URL).unwrap();
    assert_eq!(
        told.iter().map(|told| (told.until, told.rows, told.found_at)).collect::<Vec<_>>(),
        [(at(0), Some(1), at(60))]
    );
    assert_eq!(db.create_collection("x", CollectionOptions::new("t")).unwrap_err().code(), Code::NotWritable);
    assert_eq!(db.sweep().unwrap_err().code(), Code::NotWritable);
    assert_eq!(db.publish_now("weather").unwrap_err().code(), Code::NotWritable);
    assert_eq!(new.publish_now("weather").unwrap().measurements, published.measurements);
    drop((c, db));
    assert_eq!(builder(&machine).open().unwrap_err().code(), Code::NotWritable);
    let detached = builder(&machine).detach().open().unwrap();
    assert_eq!(detached.snapshot().collection("weather").unwrap().count().unwrap(), 31);
    let error = shipper_of(&machine, None).ship_now().unwrap_err();
    assert!(error.to_string().contains("another folder is its primary"), "{error}");

    let (_, restored) = restored_from(&machine, None);
    assert_eq!(content(&restored, at(0)), content(&new, at(0)));
    let (_, restored) = restored_from(&machine, Some(at(30)));
    assert_eq!(restored.snapshot_at(at(0)).collection("weather").unwrap().count().unwrap(), 30);
}

#[test]
fn an_old_primary_that_comes_back_says_on_both_sides_what_it_had_not_shipped() {
    // How many more it had acknowledged; whether it sealed them; and what it knows of their number.
    for (more, seals, known) in [(0, false, Some(0)), (3, false, Some(3)), (3, true, None)] {
        let machine = World::new(SimStore::new(1, 0));
        let db = open(&machine);
        let c = weather(&db);
        c.insert_documents(&(0..30).map(|v| reading(v, v)).collect::<Vec<_>>()).unwrap();
        shipper_of(&machine, None).ship_now().unwrap();
        machine.clock.set(at(10));
        if more > 0 {
            let sessions = db.create_documents("sessions", DocumentsOptions::default()).unwrap();
            sessions.put(&doc! {"_id": 1, "n": 1}).unwrap();
            c.insert_documents(&(30..29 + more).map(|v| reading(v, v)).collect::<Vec<_>>()).unwrap();
        }
        if seals {
            db.flush().unwrap();
        }
        drop((c, db));
        let beside = machine.another();
        builder(&beside).promote(URL).unwrap();
        assert_eq!(builder(&beside).unshipped(URL).unwrap(), [], "it is not back yet");
        // Another promotion after the one that counts for it.
        machine.clock.set(at(20));
        let new = open(&beside);
        new.collection("weather").unwrap().insert_documents(&[reading(5, 200)]).unwrap();
        shipper_of(&beside, None).ship_now().unwrap();
        builder(&beside.another()).promote(URL).unwrap();

        machine.clock.set(at(100));
        let error = shipper_of(&machine, None).ship_now().unwrap_err();
        assert_eq!(error.code(), Code::NotWritable, "{error}");
        let words = match known {
            Some(n) => format!("acknowledged here after {} and are not in the copy: {n}, as of {}", at(0), at(100)),
            None => format!("what was acknowledged here after {} may not be in the copy", at(0)),
        };
        assert!(error.to_string().contains(&words), "{error}");
        assert_eq!(builder(&machine).open().unwrap_err().to_string(), error.to_string());
        let told = builder(&beside).unshipped(URL).unwrap();
        let told: Vec<_> = told.iter().map(|told| (told.until, told.rows, told.found_at)).collect();
        assert_eq!(told, [(at(0), known, at(100))]);
    }
}

#[test]
fn an_old_primary_guesses_no_number_where_the_copy_does_not_have_what_followed_it() {
    // The piece with which the new primary began is gone, or not there yet; or the epoch after that is all that is left.
    for (gone, other_epoch) in [(true, false), (true, true), (false, false)] {
        let machine = World::new(SimStore::new(1, 0));
        let db = open(&machine);
        let c = weather(&db);
        c.insert_documents(&[reading(1, 1)]).unwrap();
        shipper_of(&machine, None).ship_now().unwrap();
        machine.clock.set(at(10));
        c.insert_documents(&[reading(2, 2), reading(3, 3)]).unwrap();
        drop((c, db));
        let beside = machine.another();
        if gone {
            builder(&beside).promote(URL).unwrap();
            let new = open(&beside);
            new.collection("weather")
                .unwrap()
                .insert_documents(&(4..40).map(|v| reading(v, v)).collect::<Vec<_>>())
                .unwrap();
            if other_epoch {
                shipper_of(&beside, None).ship_now().unwrap();
                shipper_of(&beside, None).ship_now().unwrap();
            }
            machine.store.delete("pieces/0000000002/000000000001").unwrap();
        } else {
            let claim = machine.store.content("epochs/0000000001").unwrap();
            let claim = String::from_utf8(claim.to_vec()).unwrap();
            let mut claim: serde_json::Value = serde_json::from_str(&claim).unwrap();
            (claim["epoch"], claim["writer"], claim["process"]) =
                (2.into(), "f".repeat(32).into(), "e".repeat(32).into());
            claim.as_object_mut().unwrap().remove("crc");
            machine.store.tamper("epochs/0000000002", claim.to_string().into());
        }
        machine.clock.set(at(100));
        let error = shipper_of(&machine, None).ship_now().unwrap_err();
        assert_eq!(error.code(), Code::NotWritable, "{error}");
        let words = format!("what was acknowledged here after {} may not be in the copy", at(0));
        assert!(error.to_string().contains(&words), "{error}");
        let told = builder(&beside).unshipped(URL).unwrap();
        assert_eq!(told.iter().map(|told| (told.until, told.rows)).collect::<Vec<_>>(), [(at(0), None)]);
    }
}

#[test]
fn an_old_primary_refuses_writes_although_it_cannot_say_what_it_had_not_shipped() {
    let mut said = Vec::new();
    // The piece and the claim of the next epoch; then the requests that say what is not there.
    for requests in 2..=6 {
        let machine = World::new(SimStore::new(1, 0));
        let db = open(&machine);
        let c = weather(&db);
        let mut shipper = shipper_of(&machine, None);
        shipper.ship_now().unwrap();
        machine.clock.set(at(10));
        c.insert_documents(&[reading(2, 2)]).unwrap();
        let beside = machine.another();
        builder(&beside).promote(URL).unwrap();
        machine.store.stop_after(Some(requests));
        let error = shipper.ship_now().unwrap_err();
        machine.store.stop_after(None);
        assert_eq!(error.code(), Code::NotWritable, "{requests}: {error}");
        let told = builder(&beside).unshipped(URL).unwrap().len();
        said.push((error.to_string().contains("and are not in the copy: 1, as of"), told));
        drop((c, db));
        assert_eq!(builder(&machine).open().unwrap_err().code(), Code::NotWritable, "{requests}");
    }
    assert_eq!(said, [(false, 0), (false, 0), (false, 0), (true, 0), (true, 1)]);
}

#[test]
fn a_promoted_replica_and_its_old_primary_archive_each_measurement_once() {
    // Whether the old primary ships what it has moved to the archive, before it is lost.
    for ships in [true, false] {
        let machine = World::new(SimStore::new(1, 0));
        let db = open(&machine);
        let options = CollectionOptions::new("t").meta_field("sensor").expire_after_seconds(HOUR).expire_into(OTHER);
        let c = db.create_collection("weather", options).unwrap();
        c.insert_documents(&(0..30).map(|v| reading(v, v)).collect::<Vec<_>>()).unwrap();
        shipper_of(&machine, None).ship_now().unwrap();
        machine.clock.set(at(2 * HOUR));
        assert_eq!(db.sweep().unwrap().counts.deleted_documents, 30);
        if ships {
            shipper_of(&machine, None).ship_now().unwrap();
        }
        let beside = machine.another();
        builder(&beside).promote(URL).unwrap();
        let new = open(&beside);
        new.confirm_clock();
        assert_eq!(all(&new), numbers(0..30), "shipped: {ships}");
        new.collection("weather").unwrap().insert_documents(&[reading(2 * HOUR, 30)]).unwrap();
        machine.clock.set(at(4 * HOUR));
        let failed = new.sweep().unwrap().counts.failed_rules;
        assert_eq!(all(&new), numbers(0..31), "shipped: {ships}");
        match ships {
            true => assert_eq!((failed, archived(&new)), (0, 31)),
            false => {
                assert_eq!((failed, archived(&new)), (1, 0));
                let state = state_of(&new);
                assert!(state.contains("a copy of this database archives to this place"), "{state}");
                let error = new.adopt_archive("weather").unwrap_err().to_string();
                assert!(error.contains("30 measurements that may be stored here too"), "{error}");
                assert_eq!(all(&new), numbers(0..31), "nothing was taken over");
            }
        }
        // The old primary comes back: what it inserts is stored there alone, and nothing of it is archived a second time.
        c.insert_documents(&[reading(2 * HOUR, 40)]).unwrap();
        drop(shipper_of(&machine, None).ship_now());
        drop(db.sweep());
        assert_eq!(all(&new), numbers(0..31), "shipped: {ships}");
        assert_eq!(all(&db), [numbers(0..30), vec![40]].concat(), "shipped: {ships}");
    }
}

#[test]
fn of_three_that_are_promoted_at_the_same_time_one_is_the_primary() {
    for round in 0..30 {
        let machine = World::new(SimStore::new(1, 0));
        let db = open(&machine);
        weather(&db).insert_documents(&(0..30).map(|v| reading(v, v)).collect::<Vec<_>>()).unwrap();
        shipper_of(&machine, None).ship_now().unwrap();
        let machines = [machine.another(), machine.another(), machine.another()];
        let start = Barrier::new(machines.len());
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let promote = |machine| {
                start.wait();
                builder(machine).promote(URL)
            };
            let threads: Vec<_> = machines.iter().map(|machine| scope.spawn(move || promote(machine))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let mut promoted = Vec::new();
        for (machine, outcome) in machines.iter().zip(outcomes) {
            match outcome {
                Ok(restored) => promoted.push((restored.epoch, machine)),
                Err(error) => assert_eq!(error.code(), Code::LockBusy, "round {round}: {error}"),
            }
        }
        promoted.sort_by_key(|(epoch, _)| *epoch);
        assert!(promoted.windows(2).all(|two| two[0].0 < two[1].0), "round {round}: each has an epoch of its own");
        let (_, winner) = promoted.pop().expect("one of them is promoted");
        for (_, machine) in promoted {
            // It was the primary until the next one was promoted.
            let refused = builder(machine).open().and_then(|_db| shipper_of(machine, None).ship_now().map(drop));
            assert_eq!(refused.unwrap_err().code(), Code::NotWritable, "round {round}");
        }
        let new = open(winner);
        new.collection("weather").unwrap().insert_documents(&[reading(5, 200)]).unwrap();
        shipper_of(winner, None).ship_now().unwrap();
        assert_eq!(content(&restored_from(&machine, None).1, at(0)), content(&new, at(0)), "round {round}");
    }
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
fn a_copy_that_cannot_be_read_is_not_promoted_and_its_primary_goes_on() {
    let machine = World::new(SimStore::new(1, 0));
    let db = open(&machine);
    let c = weather(&db);
    c.insert_documents(&[reading(1, 1)]).unwrap();
    db.flush().unwrap();
    let mut shipper = shipper_of(&machine, None);
    shipper.ship_now().unwrap();
    let name = machine.store.names().into_iter().find(|name| name.starts_with("files/")).unwrap();
    let good = machine.store.content(&name).unwrap();
    machine.store.tamper(&name, b"short".as_slice().into());
    let beside = machine.another();
    let error = builder(&beside).promote(URL).unwrap_err();
    assert_eq!(error.code(), Code::DataCorruptionDetected, "{error}");
    c.insert_documents(&[reading(2, 2)]).unwrap();
    shipper.ship_now().unwrap();
    machine.store.tamper(&name, good);
    builder(&beside).promote(URL).unwrap();
    assert_eq!(content(&open(&beside), at(2)), content(&db, at(2)));
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
        assert!(builder(&target).read_only().open().is_err());
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

/// Removes the objects of a copy whose names begin so.
fn lose(machine: &World, what: &str) {
    for name in machine.store.names().into_iter().filter(|name| name.starts_with(what)) {
        machine.store.delete(&name).unwrap();
    }
}

#[test]
fn what_is_removed_from_a_copy_is_shipped_again_within_a_minute() {
    for what in ["", "epochs/", "pieces/", "bases/", "files/", "pieces/0000000002/000000000001"] {
        for restarts in [false, true] {
            let machine = World::new(SimStore::new(1, 0));
            let db = open(&machine);
            let c = weather(&db);
            let mut shipper = shipper_of(&machine, None);
            c.insert_documents(&[reading(0, 0), reading(1, 1)]).unwrap();
            db.flush().unwrap();
            shipper.ship_now().unwrap();
            let mut shipper = shipper_of(&machine, None);
            for v in 2..5 {
                c.insert_documents(&[reading(v, v)]).unwrap();
                shipper.ship_now().unwrap();
            }
            lose(&machine, what);
            if restarts {
                shipper = shipper_of(&machine, None);
            }
            // Whether or not anything changes.
            for (seconds, more) in [(61, Some(5)), (130, None)] {
                machine.clock.set(at(seconds));
                if let Some(v) = more {
                    c.insert_documents(&[reading(v, v)]).unwrap();
                }
                let shipped = shipper.ship_now().unwrap();
                assert_eq!(shipped.shipped_until, Some(at(seconds)), "{what} {restarts}");
                let (_, restored) = restored_from(&machine, None);
                assert_eq!(content(&restored, at(0)), content(&db, at(0)), "{what} {restarts} {seconds}");
                lose(&machine, what);
            }
            machine.clock.set(at(200));
            shipper.ship_now().unwrap();
            let beside = machine.another();
            builder(&beside).promote(URL).unwrap();
            assert_eq!(content(&open(&beside), at(0)), content(&db, at(0)), "{what} {restarts}");
            machine.clock.set(at(300));
            assert_eq!(shipper.ship_now().unwrap_err().code(), Code::NotWritable, "{what} {restarts}");
        }
    }
}

#[test]
fn a_copy_that_has_lost_files_that_are_no_longer_used_gets_a_new_base() {
    let machine = World::new(SimStore::new(1, 0));
    let db = open(&machine);
    let c = weather(&db);
    let mut shipper = shipper_of(&machine, None);
    shipper.ship_now().unwrap();
    for v in 0..3 {
        c.insert_documents(&[reading(v, v)]).unwrap();
        db.flush().unwrap();
        shipper.ship_now().unwrap();
    }
    let before = machine.store.names();
    db.compact(None).unwrap();
    shipper.ship_now().unwrap();
    lose(&machine, "files/");
    let error = builder(&machine.another()).restore(URL, None).unwrap_err();
    assert_eq!(error.code(), Code::DataCorruptionDetected, "{error}");
    machine.clock.set(at(61));
    let shipped = shipper.ship_now().unwrap();
    assert_eq!((shipped.epoch, shipped.shipped_until), (1, Some(at(61))));
    let (_, restored) = restored_from(&machine, None);
    assert_eq!(content(&restored, at(0)), content(&db, at(0)));
    let names = machine.store.names();
    let mut files = names.iter().filter(|name| name.starts_with("files/"));
    assert!(files.all(|name| !before.contains(name)), "only the file that is used is there");
}

#[test]
fn a_copy_that_has_lost_the_records_before_its_base_is_shipped_again() {
    let machine = World::new(SimStore::new(1, 0));
    let db = open(&machine);
    let c = weather(&db);
    let mut shipper = shipper_of(&machine, None);
    // The base in the middle needs records of the pieces before it.
    for v in 0..1_005 {
        machine.clock.set(at(v / 100));
        c.insert_documents(&[reading(v, v)]).unwrap();
        shipper.ship_now().unwrap();
    }
    lose(&machine, "pieces/0000000001/000000000001");
    assert!(builder(&machine.another()).restore(URL, None).is_err());
    machine.clock.set(at(90));
    let shipped = shipper.ship_now().unwrap();
    assert_eq!((shipped.epoch, shipped.shipped_until), (2, Some(at(90))));
    let (_, restored) = restored_from(&machine, None);
    assert_eq!(content(&restored, at(0)), content(&db, at(0)));
}

#[test]
fn a_copy_that_has_lost_nothing_is_checked_with_a_few_requests_a_minute() {
    let machine = World::new(SimStore::new(1, 0));
    let db = open(&machine);
    let c = weather(&db);
    let mut shipper = shipper_of(&machine, None);
    for v in 0..20 {
        c.insert_documents(&[reading(v, v)]).unwrap();
        db.flush().unwrap();
        shipper.ship_now().unwrap();
    }
    let requests_at = |shipper: &mut Shipper, seconds: i64| {
        machine.clock.set(at(seconds));
        let before = machine.store.requests();
        shipper.ship_now().unwrap();
        machine.store.requests() - before
    };
    // A piece, and a look for the next epoch.
    let beat = requests_at(&mut shipper, 20);
    assert_eq!(beat, 2);
    assert_eq!(requests_at(&mut shipper, 60) - beat, 6);
    assert_eq!(requests_at(&mut shipper, 119), beat);
    // A clock that was set back is no reason to wait for it.
    assert_eq!(requests_at(&mut shipper, 10), 7);
    assert_eq!(shipper.status().epoch, 1);
}

#[test]
fn what_a_copy_has_lost_while_its_store_is_away_is_shipped_when_it_is_back() {
    let machine = World::new(SimStore::new(1, 0));
    let db = open(&machine);
    let c = weather(&db);
    let mut shipper = shipper_of(&machine, None);
    c.insert_documents(&[reading(0, 0)]).unwrap();
    db.flush().unwrap();
    shipper.ship_now().unwrap();
    lose(&machine, "");
    machine.clock.set(at(70));
    c.insert_documents(&[reading(1, 1)]).unwrap();
    // Each request of what follows may be the first that fails.
    for requests in 0..30 {
        machine.store.stop_after(Some(requests));
        let shipped = shipper.ship_now();
        machine.store.stop_after(None);
        if let Ok(shipped) = shipped {
            assert!(requests > 5 && shipped.failed.is_none(), "{requests} {shipped:?}");
            break;
        }
        assert!(shipper.status().failed.is_some());
    }
    let (_, restored) = restored_from(&machine, None);
    assert_eq!(content(&restored, at(0)), content(&db, at(0)));
}
