//! Commands on many documents are read before they are queued: what is written between is seen all the same.

use crate::{Sim, at};
use ebbtide::documents_model::DefaultTtl;
use ebbtide::documents_model::bson::raw::RawBsonRef;
use ebbtide::documents_model::bson::{Document, doc, rawdoc};
use ebbtide::{
    Database, DeleteRequest, Documents, DocumentsOptions, FindAndModify, FindAndModifyOptions, Rewrite, Stop,
    UpdateRequest,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

const NAME: &str = "things";
const LIFE: u32 = 100;

fn thing(id: i64, n: i64) -> Document {
    doc! { "_id": id, "n": n }
}

fn options() -> DocumentsOptions {
    DocumentsOptions { default_ttl: DefaultTtl::Seconds(LIFE), indexes: Vec::new() }
}

fn things(db: &Database) -> Documents {
    db.documents(NAME).unwrap()
}

/// Documents 1 to 4 with the number 1: two in a segment, two in memory.
fn made(sim: &Sim) -> Database {
    let db = sim.open();
    let things = db.create_documents(NAME, options()).unwrap();
    things.put_many(&[thing(1, 1), thing(2, 1)]).unwrap();
    db.flush().unwrap();
    things.put_many(&[thing(3, 1), thing(4, 1)]).unwrap();
    db
}

fn numbers(db: &Database) -> BTreeMap<i64, i64> {
    let found: Vec<Document> = things(db).find(&doc! {}).unwrap();
    found.iter().map(|found| (found.get_i64("_id").unwrap(), found.get_i64("n").unwrap())).collect()
}

/// Numbers by `_id`.
type Numbers = Vec<(i64, i64)>;

/// What happens after a command has begun to read.
type Meanwhile = fn(&Sim, &Database);

/// A handle whose first check for a stop, while a command reads, runs `meanwhile`.
fn interrupted(sim: &Sim, db: &Database, meanwhile: Meanwhile) -> Documents {
    let sim = Sim { fs: sim.fs.clone(), clock: sim.clock.clone(), settings: sim.settings.clone() };
    let waiting = Mutex::new(Some((sim, db.clone())));
    things(db).with_stop(Stop::when(move || {
        let waiting = waiting.lock().unwrap().take();
        if let Some((sim, db)) = waiting {
            meanwhile(&sim, &db);
        }
        false
    }))
}

fn put(db: &Database, id: i64, n: i64) {
    things(db).put(&thing(id, n)).unwrap();
}

/// What happens, and the numbers after a command adds 100 to those below 10: to all of them, and to the first.
fn cases() -> [(&'static str, Meanwhile, Numbers, Numbers); 11] {
    let all = || vec![(1, 101), (2, 101), (3, 101), (4, 101)];
    let first = || vec![(1, 101), (2, 1), (3, 1), (4, 1)];
    [
        ("nothing", |_, _| {}, all(), first()),
        (
            "the first one, in a segment, matches no more",
            |_, db| put(db, 1, 50),
            vec![(1, 50), (2, 101), (3, 101), (4, 101)],
            vec![(1, 50), (2, 101), (3, 1), (4, 1)],
        ),
        (
            "one in memory matches no more",
            |_, db| put(db, 3, 50),
            vec![(1, 101), (2, 101), (3, 50), (4, 101)],
            vec![(1, 101), (2, 1), (3, 50), (4, 1)],
        ),
        (
            "one is written and still matches",
            |_, db| put(db, 1, 2),
            vec![(1, 102), (2, 101), (3, 101), (4, 101)],
            vec![(1, 102), (2, 1), (3, 1), (4, 1)],
        ),
        (
            "a new one comes first",
            |_, db| put(db, 0, 2),
            vec![(0, 102), (1, 101), (2, 101), (3, 101), (4, 101)],
            vec![(0, 102), (1, 1), (2, 1), (3, 1), (4, 1)],
        ),
        (
            "one in a segment is removed",
            |_, db| assert!(things(db).delete(1_i64).unwrap()),
            vec![(2, 101), (3, 101), (4, 101)],
            vec![(2, 101), (3, 1), (4, 1)],
        ),
        (
            "one in memory is removed",
            |_, db| assert!(things(db).delete(4_i64).unwrap()),
            vec![(1, 101), (2, 101), (3, 101)],
            vec![(1, 101), (2, 1), (3, 1)],
        ),
        ("all is sealed", |_, db| db.flush().unwrap(), all(), first()),
        (
            "all is written, sealed and merged",
            |_, db| {
                put(db, 2, 3);
                db.flush().unwrap();
                db.compact(None).unwrap();
            },
            vec![(1, 101), (2, 103), (3, 101), (4, 101)],
            vec![(1, 101), (2, 3), (3, 1), (4, 1)],
        ),
        ("all expires", |sim, _| sim.clock.set(at(i64::from(LIFE))), Vec::new(), Vec::new()),
        (
            "another collection takes the name",
            |_, db| {
                db.drop_collection(NAME).unwrap();
                db.create_documents(NAME, options()).unwrap();
                put(db, 7, 7);
            },
            vec![(7, 107)],
            vec![(7, 107)],
        ),
    ]
}

#[test]
fn an_update_sees_what_was_written_while_it_read() {
    for (what, meanwhile, all, first) in cases() {
        for (multi, expected) in [(true, all), (false, first)] {
            let sim = Sim::new();
            let db = made(&sim);
            let change = rawdoc! { "$inc": { "n": 100_i64 } };
            let query = rawdoc! { "n": { "$lt": 10_i64 } };
            let update = UpdateRequest::new(query, RawBsonRef::Document(&change), multi, false);
            let outcome = interrupted(&sim, &db, meanwhile).update_many(vec![update], true).unwrap();
            let changed = expected.iter().filter(|(_, n)| *n > 100).count() as u64;
            assert_eq!((outcome.n, outcome.modified), (changed, changed), "{what}, multi {multi}");
            assert_eq!(numbers(&db), BTreeMap::from_iter(expected), "{what}, multi {multi}");
        }
    }
}

#[test]
fn a_rewrite_decides_again_on_what_was_written_while_it_read() {
    for (what, meanwhile, all, _) in cases() {
        let sim = Sim::new();
        let db = made(&sim);
        let query = rawdoc! { "n": { "$lt": 10_i64 } };
        let rewritten = interrupted(&sim, &db, meanwhile).rewrite(&query, false, |found| {
            let number = |name: &str, document: &ebbtide::Document| document.document.get_i64(name).unwrap();
            let raised = |one: &ebbtide::Document| {
                Rewrite::Put(rawdoc! { "_id": number("_id", one), "n": number("n", one) + 100 })
            };
            Ok(found.iter().map(raised).collect())
        });
        let changed = all.iter().filter(|(_, n)| *n > 100).count() as u64;
        assert_eq!(rewritten.unwrap(), changed, "{what}");
        assert_eq!(numbers(&db), BTreeMap::from_iter(all), "{what}");
    }
}

#[test]
fn a_delete_removes_what_matches_when_it_is_committed() {
    for (what, meanwhile, all, first) in cases() {
        for (only_one, changed) in [(false, all), (true, first)] {
            let sim = Sim::new();
            let db = made(&sim);
            let delete = DeleteRequest::new(&rawdoc! { "n": { "$lt": 10_i64 } }, only_one);
            let outcome = interrupted(&sim, &db, meanwhile).delete_many(vec![delete], true).unwrap();
            let (gone, left): (Numbers, Numbers) = changed.into_iter().partition(|(_, n)| *n > 100);
            assert_eq!(outcome.n, gone.len() as u64, "{what}, only one {only_one}");
            // What had expired is gone for good, too.
            sim.clock.set(at(0));
            assert_eq!(numbers(&db), BTreeMap::from_iter(left), "{what}, only one {only_one}");
        }
    }
}

#[test]
fn find_and_modify_takes_the_first_that_matches_when_it_is_committed() {
    for (what, meanwhile, _, first) in cases() {
        let sim = Sim::new();
        let db = made(&sim);
        let change = rawdoc! { "$inc": { "n": 100_i64 } };
        let command = FindAndModify::new(&FindAndModifyOptions {
            query: &rawdoc! { "n": { "$lt": 10_i64 } },
            sort: None,
            update: Some(RawBsonRef::Document(&change)),
            remove: false,
            new: true,
            upsert: false,
            fields: None,
        });
        let done = interrupted(&sim, &db, meanwhile).find_and_modify(command.unwrap()).unwrap();
        let changed = first.iter().find(|(_, n)| *n > 100);
        let number = done.value.as_ref().map(|value| (value.get_i64("_id").unwrap(), value.get_i64("n").unwrap()));
        assert_eq!(number, changed.copied(), "{what}");
        assert_eq!(numbers(&db), BTreeMap::from_iter(first), "{what}");
    }
}

#[test]
fn what_had_expired_is_updated_if_it_is_visible_again_when_the_update_is_committed() {
    let cases: [Meanwhile; 2] = [
        |sim, _| sim.clock.set(at(0)),
        |_, db| {
            let longer = |options: &mut DocumentsOptions| {
                options.default_ttl = DefaultTtl::Seconds(2 * LIFE);
                Ok(())
            };
            db.modify_documents(NAME, longer).unwrap();
        },
    ];
    for meanwhile in cases {
        let sim = Sim::new();
        let db = made(&sim);
        sim.clock.set(at(i64::from(LIFE)));
        put(&db, 5, 1);
        let change = rawdoc! { "$inc": { "n": 100_i64 } };
        let update = UpdateRequest::new(rawdoc! { "n": 1_i64 }, RawBsonRef::Document(&change), true, false);
        assert_eq!(interrupted(&sim, &db, meanwhile).update_many(vec![update], true).unwrap().modified, 5);
    }
}

#[test]
fn what_was_found_before_is_only_looked_for_again_if_segments_have_changed() {
    let asked = |meanwhile: fn(&Database)| {
        let sim = Sim::new();
        let db = made(&sim);
        let asked = Arc::new(AtomicU32::new(0));
        let (count, other) = (asked.clone(), db.clone());
        let stop = Stop::when(move || {
            if count.fetch_add(1, Ordering::Relaxed) == 0 {
                meanwhile(&other);
            }
            false
        });
        let change = rawdoc! { "$inc": { "n": 100_i64 } };
        let update = UpdateRequest::new(rawdoc! { "n": 1_i64 }, RawBsonRef::Document(&change), true, false);
        assert_eq!(things(&db).with_stop(stop).update_many(vec![update], true).unwrap().modified, 4);
        asked.load(Ordering::Relaxed)
    };
    let once = asked(|_| {});
    assert_eq!(asked(|db| put(db, 4, 1)), once);
    assert_eq!(asked(|db| db.flush().unwrap()), once + 1);
}
