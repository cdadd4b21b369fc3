//! Replicas that are made the primary of a copy, and the primaries before them.

use crate::archive::{all, archived, numbers, state_of};
use crate::copies::{URL, builder, content, open, restored_from, shipper_of, weather};
use crate::world::{HOUR, OTHER, World, at, reading};
use ebbtide::bson::doc;
use ebbtide::ttl::Code;
use ebbtide::{CollectionOptions, DocumentsOptions};
use ebbtide_lake::Store as _;
use ebbtide_lake::sim::SimStore;
use std::sync::Barrier;

/// Where a table is published.
const TABLE: &str = "s3://sim/table";

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
