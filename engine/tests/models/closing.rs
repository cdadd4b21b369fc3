//! Closing a database under its users' hands.

use crate::rig::{LIFE, World, below, explore, insert, numbers, sorted, spawn};
use ebbtide::fs::sim::SimFs;
use ebbtide::ttl::Code;
use ebbtide::{Durability, Settings};
use std::time::Duration;

fn others_get_an_answer(disk: &SimFs) {
    let durability = [Durability::Sync, Durability::Interval(Duration::from_secs(60))][below(2) as usize];
    let world = World::with(disk, Settings { durability, ..Settings::default() });
    world.clock.advance(LIFE as u32 - 10);
    let writers: Vec<_> = [1, 2]
        .into_iter()
        .map(|number| {
            let weather = world.weather.clone();
            spawn(move || match insert(&weather, &[(LIFE, number)]) {
                Ok(_) => Some(number),
                Err(error) => {
                    assert_eq!(error.code(), Code::NotWritable, "{error}");
                    None
                }
            })
        })
        .collect();
    let worker = spawn({
        let db = world.db.clone();
        move || {
            for outcome in [db.flush(), db.sweep().map(drop), db.compact(None)] {
                assert!(outcome.as_ref().err().is_none_or(|e| e.code() == Code::NotWritable), "{outcome:?}");
            }
        }
    });
    world.db.clone().close().unwrap();
    // Whoever opens it now is alone: the disk panics if a file has two writers.
    let cut = world.power_cut();
    let again = world.open_on(&world.fs);
    let weather = again.collection("weather").unwrap();
    insert(&weather, &[(LIFE, 9)]).unwrap();
    let mut told: Vec<i64> = writers.into_iter().filter_map(|writer| writer.join().unwrap()).collect();
    worker.join().unwrap();
    assert_eq!(insert(&world.weather, &[(LIFE, 3)]).unwrap_err().code(), Code::NotWritable);
    told.insert(0, 0);
    // Nobody was told so after the door was closed.
    assert_eq!(sorted(world.numbers_on(&cut)), told);
    told.push(9);
    assert_eq!(sorted(numbers(&again.snapshot()).unwrap()), told);
    again.close().unwrap();
    assert_eq!(sorted(world.numbers_on(&world.power_cut())), told);
}

#[test]
fn closing_gives_every_writer_an_answer_and_the_folder_free() {
    explore(|world| world.insert(&[(0, 0)]), others_get_an_answer);
}
