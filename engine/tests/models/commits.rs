//! Group commit: several writers share one append and one sync of the log.

use crate::rig::{World, below, explore, numbers, power_cut, reading, spawn};
use ebbtide::fs::sim::{Fault, FaultKind, Repeat, SimFs};
use ebbtide::ttl::Code;
use ebbtide::{Error, Settings};
use shuttle::sync::Mutex;
use std::sync::Arc;

/// Numbers that have to be on a disk, since somebody was told so, or saw them, before it lost power.
type Proof = (Vec<i64>, SimFs);

/// What became of one insert of two rows.
struct Attempt {
    numbers: [i64; 2],
    outcome: Result<u64, Error>,
}

/// Three writers, the first of them with two inserts, all at one time and place: a scan shows them in order of commit.
fn write_at_once(world: &World, proofs: &Arc<Mutex<Vec<Proof>>>) -> Vec<Attempt> {
    let writers: Vec<_> = [(0, 2), (1, 1), (2, 1)]
        .into_iter()
        .map(|(writer, inserts)| {
            let (weather, fs, proofs) = (world.weather.clone(), world.fs.clone(), proofs.clone());
            spawn(move || {
                let mut attempts = Vec::new();
                for insert in 0..inserts {
                    let first = writer * 10 + insert * 2;
                    let numbers = [first, first + 1];
                    let outcome = weather.insert_documents(&numbers.map(|v| reading(0, "roof", v)));
                    if outcome.is_ok() {
                        proofs.lock().unwrap().push((numbers.to_vec(), power_cut(&fs)));
                    }
                    attempts.push(Attempt { numbers, outcome });
                }
                attempts
            })
        })
        .collect();
    writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
}

/// Every insert is there as a whole, and those of one writer that were stored in its order.
fn assert_whole(order: &[i64]) {
    for pair in order.chunks(2) {
        assert!(pair.len() == 2 && pair[0] % 2 == 0 && pair[1] == pair[0] + 1, "an insert in parts: {order:?}");
    }
    let place = |number| order.iter().position(|n| *n == number);
    if let (Some(first), Some(second)) = (place(0), place(2)) {
        assert!(first < second, "the second insert of a writer came first: {order:?}");
    }
}

/// The disk has what it must have, and nothing out of order. `order` is the order of commit; behind it may come what was
/// refused with an outcome that is not known.
fn assert_proven(world: &World, (must, disk): &Proof, order: &[i64], unknown: &[i64]) {
    let found = world.numbers_on(disk);
    assert!(must.iter().all(|n| found.contains(n)), "lost: {must:?} of {found:?}");
    let known = found.iter().position(|n| unknown.contains(n)).unwrap_or(found.len());
    assert!(order.starts_with(&found[..known]), "recovered out of order: {found:?} of {order:?}");
    assert!(found[known..].iter().all(|n| unknown.contains(n)), "from nowhere: {found:?}");
    assert_whole(&found);
}

/// As [`assert_proven`] for one of these disks.
fn assert_one_proven(world: &World, proofs: &Mutex<Vec<Proof>>, order: &[i64], unknown: &[i64]) {
    let proofs = proofs.lock().unwrap();
    if !proofs.is_empty() {
        assert_proven(world, &proofs[below(proofs.len() as u64) as usize], order, unknown);
    }
}

fn what_is_acknowledged_or_seen_is_durable(disk: &SimFs) {
    // Log files of one group each: the leader also rotates.
    let wal_file_bytes_max = if below(4) == 0 { 1 << 10 } else { Settings::default().wal_file_bytes_max };
    let world = World::with(disk, Settings { wal_file_bytes_max, ..Settings::default() });
    let proofs = Arc::new(Mutex::new(Vec::new()));
    let reader = spawn({
        let (db, fs) = (world.db.clone(), world.fs.clone());
        move || {
            let (snapshot, cut) = (db.snapshot(), power_cut(&fs));
            (numbers(&snapshot).unwrap(), cut)
        }
    });
    for attempt in write_at_once(&world, &proofs) {
        attempt.outcome.unwrap();
    }
    let seen = reader.join().unwrap();
    let order = world.numbers();
    assert_eq!(order.len(), 8);
    assert_whole(&order);
    if seen.0.is_empty() {
        assert_one_proven(&world, &proofs, &order, &[]);
    } else {
        assert_proven(&world, &seen, &order, &[]);
    }
}

#[test]
fn what_a_group_commit_acknowledged_or_showed_is_durable_in_order() {
    explore(|_| (), what_is_acknowledged_or_seen_is_durable);
}

/// Of each group the log takes one append and one sync, and before that, once it is long enough, zeros ahead: one of these steps,
/// counted from here. A fault strikes only the steps that its kind is about.
fn step_of_group(world: &World) -> u64 {
    world.fs.mutating_ops() + below(12)
}

fn a_failed_sync_reaches_all(disk: &SimFs) {
    let world = World::on(disk);
    let kinds = [FaultKind::SyncEioKept, FaultKind::SyncEioDropped];
    let fault = Fault { kind: kinds[below(2) as usize], repeat: Repeat::Once };
    world.fs.fail_op(step_of_group(&world), fault);
    let proofs = Arc::new(Mutex::new(Vec::new()));
    let attempts = write_at_once(&world, &proofs);
    let mut unknown = Vec::new();
    for Attempt { numbers, outcome } in &attempts {
        if let Err(error) = outcome {
            assert_eq!(error.code(), Code::NotWritable, "{error}");
            unknown.extend(numbers);
        }
    }
    let order = world.numbers();
    assert_whole(&order);
    assert_eq!(order.len() + unknown.len(), 8, "what failed is seen, or what did not is not");
    assert!(order.iter().all(|n| !unknown.contains(n)), "what failed is seen: {order:?}");
    if world.fs.faults_fired() > 0 {
        let late = world.weather.insert_documents(&[reading(0, "roof", 99)]).unwrap_err();
        assert_eq!(late.code(), Code::NotWritable, "{late}");
    }
    proofs.lock().unwrap().push((order.clone(), world.power_cut()));
    assert_one_proven(&world, &proofs, &order, &unknown);
}

#[test]
fn a_failed_sync_of_the_leader_reaches_every_writer() {
    explore(|_| (), a_failed_sync_reaches_all);
}

fn a_failed_append_takes_its_group(disk: &SimFs) {
    let world = World::on(disk);
    let fault = Fault { kind: FaultKind::ShortWrite, repeat: Repeat::Once };
    world.fs.fail_op(step_of_group(&world), fault);
    let proofs = Arc::new(Mutex::new(Vec::new()));
    let attempts = write_at_once(&world, &proofs);
    let lost: Vec<i64> = attempts.iter().filter(|a| a.outcome.is_err()).flat_map(|a| a.numbers).collect();
    world.fs.heal(); // Fewer groups than that may have been written.
    world.weather.insert_documents(&[reading(0, "roof", 98), reading(0, "roof", 99)]).unwrap();
    let order = world.numbers();
    assert_eq!(order.len() + lost.len(), 10);
    assert!(order.iter().all(|n| !lost.contains(n)), "what failed is seen: {order:?}");
    assert_proven(&world, &(order.clone(), world.power_cut()), &order, &[]);
    // Before it is cut off again, what was refused may be on the disk.
    assert_one_proven(&world, &proofs, &order, &lost);
}

#[test]
fn a_failed_append_takes_its_group_and_nothing_else() {
    explore(|_| (), a_failed_append_takes_its_group);
}
