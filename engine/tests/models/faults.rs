//! A disk that fails while everybody is at work.

use crate::rig::{World, below, explore, insert, numbers, spawn};
use ebbtide::fs::sim::{Fault, FaultKind, Repeat, SimFs};
use ebbtide::ttl::Code;
use shuttle::sync::Mutex;
use std::sync::Arc;

fn one_row(world: &World) {
    world.insert(&[(0, 0)]);
    world.db.flush().unwrap();
}

fn writing_stops_for_all_and_reading_for_nobody(disk: &SimFs) {
    let world = World::on(disk);
    let kinds = [FaultKind::Eio, FaultKind::SyncEioKept, FaultKind::SyncEioDropped];
    let repeat = [Repeat::Once, Repeat::Forever][below(2) as usize];
    world.fs.fail_op(world.fs.mutating_ops() + below(14), Fault { kind: kinds[below(3) as usize], repeat });
    let told = Arc::new(Mutex::new(Vec::new()));
    let refused = |error: &ebbtide::Error| matches!(error.code(), Code::NotWritable | Code::FileStreamFailed);
    let writers: Vec<_> = [10, 20]
        .into_iter()
        .map(|first| {
            let (weather, told) = (world.weather.clone(), told.clone());
            spawn(move || {
                let mut stopped = false;
                for number in [first, first + 1] {
                    match insert(&weather, &[(0, number)]) {
                        Ok(_) => {
                            assert!(!stopped, "writing went on");
                            told.lock().unwrap().push(number);
                        }
                        Err(error) => {
                            assert!(refused(&error), "{error}");
                            stopped |= error.code() == Code::NotWritable;
                        }
                    }
                }
            })
        })
        .collect();
    let flusher = spawn({
        let db = world.db.clone();
        move || {
            if let Err(error) = db.flush() {
                assert!(refused(&error), "{error}");
            }
        }
    });
    let reader = spawn({
        let db = world.db.clone();
        move || {
            let mut last = vec![0];
            for _ in 0..3 {
                let seen = numbers(&db.snapshot()).unwrap();
                assert!(last.iter().all(|n| seen.contains(n)), "{last:?} and then {seen:?}");
                last = seen;
            }
            last
        }
    });
    for thread in writers {
        thread.join().unwrap();
    }
    flusher.join().unwrap();
    let seen = reader.join().unwrap();
    let order = world.numbers();
    let told = told.lock().unwrap();
    assert!(told.iter().chain(&seen).all(|n| order.contains(n)), "{told:?}, {seen:?}, {order:?}");
    world.fs.heal();
    let stopped = insert(&world.weather, &[(0, 99)]).is_err();
    assert!(!stopped || world.fs.faults_fired() > 0);
    if stopped {
        for outcome in [world.db.flush(), world.db.sweep().map(drop), world.db.drop_collection("weather")] {
            assert_eq!(outcome.unwrap_err().code(), Code::NotWritable);
        }
    }
    let found = world.numbers_on(&world.power_cut());
    let shown = world.numbers();
    assert_eq!(found[..shown.len()], shown, "what was seen is not what was recovered");
}

#[test]
fn a_failed_sync_stops_all_writing_and_no_reading() {
    explore(one_row, writing_stops_for_all_and_reading_for_nobody);
}
