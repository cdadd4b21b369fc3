//! Copies through crashes, lost requests, promotions and kills, at random.

use crate::copies::{URL, builder, content, open, restored_from, shipper_of, weather};
use crate::world::{HOUR, World, at, random, reading, seeds};
use ebbtide::fs::sim::Variant;
use ebbtide::fs::{Fs, RealFs};
use ebbtide::ttl::{Filter, Value};
use ebbtide::{
    CollectionChange, CollectionOptions, Database, DocumentsOptions, Replica, Settings, ShipOptions, bson::doc,
};
use ebbtide_lake::sim::SimStore;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

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
    for seed in seeds(1600, 32) {
        let one_in = if seed % 2 == 0 { 0 } else { 6 };
        let mut machine = World::new(SimStore::new(seed, one_in));
        let mut db = open(&machine);
        let mut shipper = shipper_of(&machine, (seed % 3 == 0).then_some(3000));
        let mut replica: Option<(World, Replica)> = None;
        let mut next = random(seed);
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
                    machine = machine.on(fs);
                    db = open(&machine);
                    shipper = shipper_of(&machine, (seed % 3 == 0).then_some(3000));
                }
                2 => shipper = shipper_of(&machine, None),
                3 => {
                    let beside = machine.another();
                    replica = builder(&beside).follow(URL).ok().map(|replica| (beside, replica));
                }
                4 if next(3) == 0 && !history.is_empty() => {
                    // What was not shipped is lost, and said to be.
                    let beside = machine.another();
                    let promoted = builder(&beside).promote(URL).or_else(|_| {
                        // The epoch may have been taken: only another try can end it.
                        machine.store.fail_one_in(0);
                        machine.store.settle();
                        builder(&beside).promote(URL)
                    });
                    let promoted = promoted.unwrap();
                    let new = open(&beside);
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
                    shipper = shipper_of(&machine, None);
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
        let (_, restored) = restored_from(&machine, None);
        assert_eq!(content(&restored, at(-HOUR)), content(&db, at(-HOUR)), "seed {seed}: restored");
        assert_eq!(restored.verify().unwrap().faults, Vec::<String>::new());
        for (now, expected) in history.iter().filter(|(now, _)| *now > 24 * 400 - 3000) {
            let (_, restored) = restored_from(&machine, Some(at(*now)));
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
            .args(["--exact", "copies_runs::a_primary_under_load", "--nocapture"])
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
        RealFs::new().remove_dir(&folder.path().join(&name)).unwrap();
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
