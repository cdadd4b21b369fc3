//! Copies that have lost objects, since somebody or a rule of the store has removed them.

use crate::copies::{URL, builder, content, open, restored_from, shipper_of, weather};
use crate::world::{World, at, reading};
use ebbtide::Shipper;
use ebbtide::ttl::Code;
use ebbtide_lake::Store as _;
use ebbtide_lake::sim::SimStore;

/// Removes the objects of a copy whose names begin so.
fn lose(machine: &World, what: &str) {
    for name in machine.store.names().into_iter().filter(|name| name.starts_with(what)) {
        machine.store.delete(&name).unwrap();
    }
}

#[test]
fn what_is_removed_from_a_copy_is_shipped_again_within_a_minute() {
    for what in ["", "epochs/", "pieces/", "bases/", "files/", "pieces/0000000002/000000000001", "epochs/0000000002"] {
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
    for restarts in [false, true] {
        let machine = World::new(SimStore::new(1, 0));
        let db = open(&machine);
        let c = weather(&db);
        let mut shipper = shipper_of(&machine, None);
        let mut older = None;
        // The base in the middle needs records of the pieces before it.
        for v in 0..1_005 {
            machine.clock.set(at(v / 100));
            c.insert_documents(&[reading(v, v)]).unwrap();
            shipper.ship_now().unwrap();
            if v == 1_002 {
                older = Some(machine.on(machine.fs.fork()));
            }
        }
        lose(&machine, "pieces/0000000001/000000000001");
        assert!(builder(&machine.another()).restore(URL, None).is_err());
        machine.clock.set(at(90));
        // What is left of the copy is newer than an older copy of the folder.
        let error = shipper_of(&older.unwrap(), None).ship_now().unwrap_err();
        assert!(error.to_string().contains("an older copy of the folder"), "{error}");
        if restarts {
            shipper = shipper_of(&machine, None);
        }
        let shipped = shipper.ship_now().unwrap();
        assert_eq!((shipped.epoch, shipped.shipped_until), (2, Some(at(90))), "{restarts}");
        let (_, restored) = restored_from(&machine, None);
        assert_eq!(content(&restored, at(0)), content(&db, at(0)), "{restarts}");
    }
}

#[test]
fn a_copy_whose_objects_are_damaged_is_shipped_again_when_shipping_starts() {
    let machine = World::new(SimStore::new(1, 0));
    let db = open(&machine);
    weather(&db).insert_documents(&[reading(0, 0)]).unwrap();
    db.flush().unwrap();
    shipper_of(&machine, None).ship_now().unwrap();
    machine.store.tamper("pieces/0000000001/000000000001", b"short".as_slice().into());
    assert_eq!(builder(&machine.another()).restore(URL, None).unwrap_err().code(), Code::DataCorruptionDetected);
    assert_eq!(shipper_of(&machine, None).ship_now().unwrap().epoch, 2);
    let (_, restored) = restored_from(&machine, None);
    assert_eq!(content(&restored, at(0)), content(&db, at(0)));
}

#[test]
fn an_epoch_that_was_lost_is_not_put_back_over_the_copy_of_another_database() {
    // How many epochs each has begun, and whether the claims of the other one are lost too.
    for (own, others, loses_claims) in [(1, 1, false), (3, 1, false), (1, 3, false), (1, 1, true), (3, 1, true)] {
        let what = format!("{own} {others} {loses_claims}");
        let machine = World::new(SimStore::new(1, 0));
        let db = open(&machine);
        let c = weather(&db);
        c.insert_documents(&[reading(0, 0)]).unwrap();
        let ship = |machine: &World, epochs| {
            let mut shipper = shipper_of(machine, None);
            shipper.ship_now().unwrap();
            for _ in 1..epochs {
                shipper = shipper_of(machine, None);
                shipper.ship_now().unwrap();
            }
            shipper
        };
        let mut shipper = ship(&machine, own);
        lose(&machine, "");
        machine.clock.set(at(10));
        let beside = machine.another();
        let other = open(&beside);
        weather(&other).insert_documents(&[reading(7, 7)]).unwrap();
        let mut other_shipper = ship(&beside, others);
        if loses_claims {
            lose(&machine, "epochs/");
        }
        let names = machine.store.names();
        machine.clock.set(at(61));
        let error = shipper.ship_now().unwrap_err();
        assert_eq!(error.code(), Code::LockBusy, "{what}: {error}");
        let words =
            format!("s3://sim/copy has lost epoch {own} of this database, and has a copy that another database began");
        assert!(error.to_string().contains(&words), "{what}: {error}");
        let error = shipper_of(&machine, None).ship_now().unwrap_err();
        assert!(error.to_string().contains("the copy of another database"), "{what}: {error}");
        assert_eq!(machine.store.names(), names, "{what}");
        // Both databases continue.
        drop((c, db));
        open(&machine).collection("weather").unwrap().insert_documents(&[reading(1, 1)]).unwrap();
        machine.clock.set(at(130));
        weather(&other).insert_documents(&[reading(8, 8)]).unwrap();
        other_shipper.ship_now().unwrap();
        assert_eq!(content(&restored_from(&machine, None).1, at(0)), content(&other, at(0)), "{what}");
    }
}

#[test]
fn an_epoch_that_was_lost_is_not_put_back_over_the_copy_that_an_old_primary_has_begun() {
    let machine = World::new(SimStore::new(1, 0));
    let old = open(&machine);
    weather(&old).insert_documents(&[reading(0, 0)]).unwrap();
    shipper_of(&machine, None).ship_now().unwrap();
    machine.clock.set(at(10));
    let beside = machine.another();
    builder(&beside).promote(URL).unwrap();
    let new = open(&beside);
    let mut shipper = shipper_of(&beside, None);
    shipper.ship_now().unwrap();
    lose(&machine, "");
    machine.clock.set(at(30));
    shipper_of(&machine, None).ship_now().unwrap();
    let names = machine.store.names();
    machine.clock.set(at(90));
    let error = shipper.ship_now().unwrap_err();
    assert_eq!(error.code(), Code::LockBusy, "{error}");
    assert!(error.to_string().contains("began there (epoch 1, 2024-01-01T00:00:30"), "{error}");
    assert_eq!(machine.store.names(), names);
    drop(new);
    open(&beside);
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
