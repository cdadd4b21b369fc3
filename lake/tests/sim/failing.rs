//! What cannot be written to is known to other processes.

use crate::copies::{URL, shipper_of};
use crate::world::{HOUR, OTHER, World, at, reading};
use ebbtide::CollectionOptions;
use ebbtide_lake::sim::SimStore;

const TABLE: &str = "s3://sim/table";

/// The places that fail, as another process sees them: what, where, since when in seconds, and why.
fn known(world: &World) -> Vec<(String, String, i64, String)> {
    let db = world.builder().read_only().open().unwrap();
    let seconds = |since: ebbtide::ttl::Timestamp| (0..20 * HOUR).find(|second| at(*second) == since).unwrap();
    let failing = db.failing_places().unwrap().into_iter();
    failing.map(|place| (place.what, place.url, seconds(place.since), place.error)).collect()
}

#[test]
fn another_process_sees_which_places_fail_since_when_and_why() {
    let world = World::new(SimStore::new(1, 0));
    let mut db = world.open();
    let options = CollectionOptions::new("t").meta_field("sensor").expire_after_seconds(HOUR).expire_into(OTHER);
    let mut c = db.create_collection("weather", options).unwrap();
    c.insert_documents(&[reading(0, 0)]).unwrap();
    db.publish("weather", TABLE, 60).unwrap();
    let mut shipper = shipper_of(&world, None);
    shipper.ship_now().unwrap();
    assert_eq!(known(&world), []);

    let error = "the store is away".to_owned();
    let archive = ("archive of weather".to_owned(), OTHER.to_owned(), 2 * HOUR, error.clone());
    let table = ("table of weather".to_owned(), TABLE.to_owned(), 3 * HOUR, error);
    for hour in 2..5 {
        world.clock.set(at(hour * HOUR));
        world.other.set_away(true);
        assert_eq!(db.sweep().unwrap().counts.failed_rules, 1);
        match hour {
            2 => assert_eq!(known(&world), std::slice::from_ref(&archive)),
            // Since the first of all attempts that have failed, in whatever process.
            _ => {
                world.store.set_away(true);
                c.insert_documents(&[reading(hour * HOUR, hour)]).unwrap();
                assert!(db.publish_now("weather").is_err());
                let told = shipper.ship_now().unwrap_err().to_string();
                let copy = ("copy".to_owned(), URL.to_owned(), 3 * HOUR, told);
                let known = known(&world);
                assert_eq!((&known[0], &known[2]), (&archive, &copy));
                assert_eq!((&known[1].0, &known[1].1, known[1].2), (&table.0, &table.1, table.2));
                assert!(known[1].3.contains(&table.3), "{known:?}");
            }
        }
        world.store.set_away(false);
        if hour == 2 {
            drop(c);
            drop(db);
            db = world.open();
            c = db.collection("weather").unwrap();
        }
    }
    shipper.ship_now().unwrap();
    assert_eq!(known(&world).len(), 2);
    db.publish_now("weather").unwrap();
    assert_eq!(known(&world).len(), 1);
    world.other.set_away(false);
    db.sweep().unwrap();
    assert_eq!(known(&world), []);

    // What succeeds although requests are refused is throttled.
    for (second, is_busy) in [(1, true), (2, false), (300, true), (400, false), (800, false), (1000, false)] {
        world.clock.set(at(5 * HOUR + second));
        world.store.set_busy(is_busy);
        world.other.set_busy(is_busy);
        c.insert_documents(&[reading(0, second), reading(5 * HOUR, second)]).unwrap();
        assert_eq!(db.sweep().unwrap().counts.failed_rules, 0);
        db.publish_now("weather").unwrap();
        shipper.ship_now().unwrap();
        let known = known(&world);
        let whats: Vec<&str> = known.iter().map(|(what, ..)| what.as_str()).collect();
        match second {
            // Ten minutes after the last refusal.
            1000 => assert_eq!(whats, [""; 0]),
            _ => assert_eq!(whats, ["archive of weather", "table of weather", "copy"]),
        }
        let is_told = |(_, _, since, error): &(_, _, i64, String)| *since == 5 * HOUR + 1 && error.contains("429, 503");
        assert!(known.iter().all(is_told), "{known:?}");
        let metrics = db.prometheus(&db.snapshot()).unwrap();
        let samples = metrics.lines().filter(|line| line.starts_with("ebbtide_place_throttled{"));
        assert_eq!(samples.count(), known.len(), "{metrics}");
        assert!(!metrics.contains("ebbtide_place_failing{"));
    }

    // What is no longer written to does not fail.
    world.store.set_away(true);
    world.clock.set(at(6 * HOUR));
    assert!(db.publish_now("weather").is_err());
    assert_eq!(known(&world).len(), 1);
    db.unpublish("weather").unwrap();
    assert_eq!(known(&world), []);
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
}
